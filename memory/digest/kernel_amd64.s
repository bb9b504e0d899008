//go:build amd64 && !race && !msan && !asan && !purego

#include "textflag.h"

// PAIR adds one pair of words, o bytes above BX in the row at SI and in the key
// at DI, to the sum in R11:R10.
#define PAIR(o) \
	MOVQ o(SI)(BX*1), AX;   \
	MOVQ o+8(SI)(BX*1), DX; \
	ADDQ o(DI)(BX*1), AX;   \
	ADDQ o+8(DI)(BX*1), DX; \
	MULQ DX;                \
	ADDQ AX, R10;           \
	ADCQ DX, R11

// func nhList(region []byte, offs []int64, ahead, bytes int64, key *nhKey, lo, hi []uint64) (done int)
TEXT ·nhList(SB), NOSPLIT, $0-128
	MOVQ region_base+0(FP), R9
	MOVQ offs_base+24(FP), R8
	MOVQ bytes+56(FP), R13
	MOVQ key+64(FP), DI
	XORQ CX, CX

row:
	CMPQ CX, offs_len+32(FP)
	JGE  end

	// The row must lie inside the region.
	MOVQ region_len+8(FP), AX
	SUBQ R13, AX
	JCS  end
	MOVQ (R8)(CX*8), SI
	CMPQ SI, AX
	JHI  end
	ADDQ R9, SI

	// R12 is the row ahead, of which a line is fetched for each that is read
	// here; the row itself at the end of the list. A fetch never faults.
	MOVQ SI, R12
	MOVQ CX, AX
	ADDQ ahead+48(FP), AX
	CMPQ AX, offs_len+32(FP)
	JGE  begin
	MOVQ (R8)(AX*8), R12
	ADDQ R9, R12

begin:
	XORQ R10, R10
	XORQ R11, R11
	XORQ BX, BX
	MOVQ R13, R15
	SUBQ $64, R15
	JLT  rest

lines:
	PREFETCHT0 (R12)(BX*1)
	PAIR(0)
	PAIR(16)
	PAIR(32)
	PAIR(48)
	ADDQ $64, BX
	CMPQ BX, R15
	JLE  lines

rest:
	CMPQ BX, R13
	JGE  store
	PREFETCHT0 (R12)(BX*1)

pairs:
	PAIR(0)
	ADDQ $16, BX
	CMPQ BX, R13
	JLT  pairs

store:
	MOVQ lo_base+72(FP), AX
	MOVQ R10, (AX)(CX*8)
	MOVQ hi_base+96(FP), AX
	MOVQ R11, (AX)(CX*8)
	INCQ CX
	JMP  row

end:
	MOVQ CX, done+120(FP)
	RET

// A round of SipHash in eight lanes of Z0-Z3 and, at the same time, of Z4-Z7.
#define ROUND16 \
	VPADDQ Z1, Z0, Z0;  VPADDQ Z5, Z4, Z4;  \
	VPADDQ Z3, Z2, Z2;  VPADDQ Z7, Z6, Z6;  \
	VPROLQ $13, Z1, Z1; VPROLQ $13, Z5, Z5; \
	VPROLQ $16, Z3, Z3; VPROLQ $16, Z7, Z7; \
	VPXORQ Z0, Z1, Z1;  VPXORQ Z4, Z5, Z5;  \
	VPXORQ Z2, Z3, Z3;  VPXORQ Z6, Z7, Z7;  \
	VPROLQ $32, Z0, Z0; VPROLQ $32, Z4, Z4; \
	VPADDQ Z1, Z2, Z2;  VPADDQ Z5, Z6, Z6;  \
	VPADDQ Z3, Z0, Z0;  VPADDQ Z7, Z4, Z4;  \
	VPROLQ $17, Z1, Z1; VPROLQ $17, Z5, Z5; \
	VPROLQ $21, Z3, Z3; VPROLQ $21, Z7, Z7; \
	VPXORQ Z2, Z1, Z1;  VPXORQ Z6, Z5, Z5;  \
	VPXORQ Z0, Z3, Z3;  VPXORQ Z4, Z7, Z7;  \
	VPROLQ $32, Z2, Z2; VPROLQ $32, Z6, Z6

// WORD16 takes the words that p points to, at CX.
#define WORD16(p) \
	VMOVDQU64 (p)(CX*8), Z8; VMOVDQU64 64(p)(CX*8), Z9; \
	VPXORQ    Z8, Z3, Z3;    VPXORQ    Z9, Z7, Z7;      \
	ROUND16;                                            \
	VPXORQ    Z8, Z0, Z0;    VPXORQ    Z9, Z4, Z4

// func sip16(lo, hi, names []uint64, mid *state) (sum uint64)
TEXT ·sip16(SB), NOSPLIT, $0-88
	MOVQ         lo_base+0(FP), SI
	MOVQ         lo_len+8(FP), R9
	MOVQ         hi_base+24(FP), DI
	MOVQ         names_base+48(FP), R8
	MOVQ         mid+72(FP), AX
	VPBROADCASTQ 0(AX), Z16
	VPBROADCASTQ 8(AX), Z17
	VPBROADCASTQ 16(AX), Z18
	VPBROADCASTQ 24(AX), Z19
	MOVQ         $0xff, AX
	VPBROADCASTQ AX, Z20
	VPXORQ       Z21, Z21, Z21
	VPXORQ       Z22, Z22, Z22
	XORQ         CX, CX

sixteen:
	LEAQ      16(CX), AX
	CMPQ      AX, R9
	JHI       sum16
	VMOVDQA64 Z16, Z0
	VMOVDQA64 Z17, Z1
	VMOVDQA64 Z18, Z2
	VMOVDQA64 Z19, Z3
	VMOVDQA64 Z16, Z4
	VMOVDQA64 Z17, Z5
	VMOVDQA64 Z18, Z6
	VMOVDQA64 Z19, Z7
	WORD16(SI)
	WORD16(DI)
	WORD16(R8)
	VPXORQ    Z20, Z2, Z2
	VPXORQ    Z20, Z6, Z6
	ROUND16
	ROUND16
	ROUND16
	VPXORQ    Z1, Z0, Z0
	VPXORQ    Z5, Z4, Z4
	VPXORQ    Z3, Z2, Z2
	VPXORQ    Z7, Z6, Z6
	VPXORQ    Z2, Z0, Z0
	VPXORQ    Z6, Z4, Z4
	VPADDQ    Z0, Z21, Z21
	VPADDQ    Z4, Z22, Z22
	MOVQ      AX, CX
	JMP       sixteen

sum16:
	VPADDQ        Z22, Z21, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ        Y1, Y0, Y0
	VEXTRACTI128  $1, Y0, X1
	VPADDQ        X1, X0, X0
	VPSRLDQ       $8, X0, X1
	VPADDQ        X1, X0, X0
	MOVQ          X0, AX
	VZEROUPPER
	MOVQ          AX, sum+80(FP)
	RET

// Y14 has the bytes of words that are turned left by 16 bits.
DATA turn16<>+0(SB)/8, $0x0504030201000706
DATA turn16<>+8(SB)/8, $0x0d0c0b0a09080f0e
DATA turn16<>+16(SB)/8, $0x0504030201000706
DATA turn16<>+24(SB)/8, $0x0d0c0b0a09080f0e
GLOBL turn16<>(SB), RODATA|NOPTR, $32

// TURN turns the words of a and b left by n bits; n and m are 64.
#define TURN(a, b, n, m) \
	VPSLLQ $n, a, Y8; VPSLLQ $n, b, Y9; \
	VPSRLQ $m, a, a;  VPSRLQ $m, b, b;  \
	VPOR   Y8, a, a;  VPOR   Y9, b, b

// ROUND16 with four lanes each.
#define ROUND8 \
	VPADDQ  Y1, Y0, Y0;    VPADDQ  Y5, Y4, Y4;    \
	VPADDQ  Y3, Y2, Y2;    VPADDQ  Y7, Y6, Y6;    \
	TURN(Y1, Y5, 13, 51);                         \
	VPSHUFB Y14, Y3, Y3;   VPSHUFB Y14, Y7, Y7;   \
	VPXOR   Y0, Y1, Y1;    VPXOR   Y4, Y5, Y5;    \
	VPXOR   Y2, Y3, Y3;    VPXOR   Y6, Y7, Y7;    \
	VPSHUFD $0xb1, Y0, Y0; VPSHUFD $0xb1, Y4, Y4; \
	VPADDQ  Y1, Y2, Y2;    VPADDQ  Y5, Y6, Y6;    \
	VPADDQ  Y3, Y0, Y0;    VPADDQ  Y7, Y4, Y4;    \
	TURN(Y1, Y5, 17, 47);                         \
	TURN(Y3, Y7, 21, 43);                         \
	VPXOR   Y2, Y1, Y1;    VPXOR   Y6, Y5, Y5;    \
	VPXOR   Y0, Y3, Y3;    VPXOR   Y4, Y7, Y7;    \
	VPSHUFD $0xb1, Y2, Y2; VPSHUFD $0xb1, Y6, Y6

#define WORD8(p) \
	VPXOR (p)(CX*8), Y3, Y3; VPXOR 32(p)(CX*8), Y7, Y7; \
	ROUND8;                                             \
	VPXOR (p)(CX*8), Y0, Y0; VPXOR 32(p)(CX*8), Y4, Y4

// func sip8(lo, hi, names []uint64, mid *state) (sum uint64)
TEXT ·sip8(SB), NOSPLIT, $0-88
	MOVQ         lo_base+0(FP), SI
	MOVQ         lo_len+8(FP), R9
	MOVQ         hi_base+24(FP), DI
	MOVQ         names_base+48(FP), R8
	MOVQ         mid+72(FP), DX
	MOVQ         $0xff, AX
	MOVQ         AX, X15
	VPBROADCASTQ X15, Y15
	VMOVDQU      turn16<>(SB), Y14
	VPXOR        Y13, Y13, Y13
	XORQ         CX, CX

eight:
	LEAQ         8(CX), AX
	CMPQ         AX, R9
	JHI          sum8
	VPBROADCASTQ 0(DX), Y0
	VPBROADCASTQ 8(DX), Y1
	VPBROADCASTQ 16(DX), Y2
	VPBROADCASTQ 24(DX), Y3
	VMOVDQA      Y0, Y4
	VMOVDQA      Y1, Y5
	VMOVDQA      Y2, Y6
	VMOVDQA      Y3, Y7
	WORD8(SI)
	WORD8(DI)
	WORD8(R8)
	VPXOR        Y15, Y2, Y2
	VPXOR        Y15, Y6, Y6
	ROUND8
	ROUND8
	ROUND8
	VPXOR        Y1, Y0, Y0
	VPXOR        Y5, Y4, Y4
	VPXOR        Y3, Y2, Y2
	VPXOR        Y7, Y6, Y6
	VPXOR        Y2, Y0, Y0
	VPXOR        Y6, Y4, Y4
	VPADDQ       Y0, Y13, Y13
	VPADDQ       Y4, Y13, Y13
	MOVQ         AX, CX
	JMP          eight

sum8:
	VEXTRACTI128 $1, Y13, X1
	VPADDQ       X1, X13, X0
	VPSRLDQ      $8, X0, X1
	VPADDQ       X1, X0, X0
	MOVQ         X0, AX
	VZEROUPPER
	MOVQ         AX, sum+80(FP)
	RET

// func fetchLines(region []byte, at int64, chunks []int64, bytes int64)
TEXT ·fetchLines(SB), NOSPLIT, $0-64
	MOVQ  region_base+0(FP), SI
	ADDQ  at+24(FP), SI
	MOVQ  chunks_base+32(FP), R8
	MOVQ  chunks_len+40(FP), CX
	MOVQ  bytes+56(FP), R9
	MOVQ  $-1, DX               // the last line that was fetched
	TESTQ CX, CX
	JLE   fetched

chunk:
	MOVQ (R8), AX
	ADDQ SI, AX                 // begins
	LEAQ -1(AX)(R9*1), BX       // ends
	SHRQ $6, AX
	SHRQ $6, BX

line:
	CMPQ       AX, DX
	JEQ        next
	MOVQ       AX, DX
	MOVQ       AX, DI
	SHLQ       $6, DI
	PREFETCHT0 (DI)

next:
	INCQ AX
	CMPQ AX, BX
	JLS  line
	ADDQ $8, R8
	DECQ CX
	JNZ  chunk

fetched:
	RET

// LOAD loads 16 bytes of chunk k.
#define LOAD(k, x) \
	MOVQ    8*k(R8), AX;    \
	CMPQ    AX, R10;        \
	JHI     out;            \
	VMOVDQU (SI)(AX*1), x

#define LOADS \
	LOAD(0, X0); LOAD(1, X1); LOAD(2, X2); LOAD(3, X3); \
	LOAD(4, X4); LOAD(5, X5); LOAD(6, X6); LOAD(7, X7)

// What X0-X7 hold of 8 chunks is interleaved: elements, pairs and fours.
#define INTERLEAVE(low1, high1, low2, high2, low4, high4) \
	low1 X1, X0, X8;   high1 X1, X0, X9;   \
	low1 X3, X2, X10;  high1 X3, X2, X11;  \
	low1 X5, X4, X12;  high1 X5, X4, X13;  \
	low1 X7, X6, X14;  high1 X7, X6, X15;  \
	low2 X10, X8, X0;  high2 X10, X8, X1;  \
	low2 X11, X9, X2;  high2 X11, X9, X3;  \
	low2 X14, X12, X4; high2 X14, X12, X5; \
	low2 X15, X13, X6; high2 X15, X13, X7; \
	low4 X4, X0, X8;   high4 X4, X0, X9;   \
	low4 X5, X1, X10;  high4 X5, X1, X11;  \
	low4 X6, X2, X12;  high4 X6, X2, X13;  \
	low4 X7, X3, X14;  high4 X7, X3, X15

#define STORE1(x) \
	VMOVDQU x, (DI); \
	ADDQ    R9, DI

#define STORE2(x) \
	VMOVQ   x, (DI);     \
	VMOVHPS x, (DI)(R9*1); \
	LEAQ    (DI)(R9*2), DI

// func words8(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (done int)
TEXT ·words8(SB), NOSPLIT, $0-96
	MOVQ dst_base+0(FP), R11
	MOVQ packed+24(FP), R9
	MOVQ chunks_base+56(FP), R8
	MOVQ chunks_len+64(FP), DX
	MOVQ rows+80(FP), CX
	MOVQ src_len+40(FP), R10
	XORQ BX, BX
	SUBQ CX, R10
	SUBQ CX, R10                // the last place for a chunk
	JLT  out

group2:
	LEAQ 8(BX), AX
	CMPQ AX, DX
	JGT  out
	MOVQ src_base+32(FP), SI
	MOVQ R11, DI
	MOVQ CX, R12

rows2:
	LOADS
	INTERLEAVE(VPUNPCKLWD, VPUNPCKHWD, VPUNPCKLDQ, VPUNPCKHDQ, VPUNPCKLQDQ, VPUNPCKHQDQ)
	STORE1(X8)
	STORE1(X9)
	STORE1(X10)
	STORE1(X11)
	STORE1(X12)
	STORE1(X13)
	STORE1(X14)
	STORE1(X15)
	ADDQ $16, SI
	SUBQ $8, R12
	JNZ  rows2
	ADDQ $8, BX
	ADDQ $64, R8
	ADDQ $16, R11
	JMP  group2

out:
	MOVQ BX, done+88(FP)
	VZEROUPPER
	RET

// func bytes8(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (done int)
TEXT ·bytes8(SB), NOSPLIT, $0-96
	MOVQ dst_base+0(FP), R11
	MOVQ packed+24(FP), R9
	MOVQ chunks_base+56(FP), R8
	MOVQ chunks_len+64(FP), DX
	MOVQ rows+80(FP), CX
	MOVQ src_len+40(FP), R10
	XORQ BX, BX
	SUBQ CX, R10                // the last place for a chunk
	JLT  out

group1:
	LEAQ 8(BX), AX
	CMPQ AX, DX
	JGT  out
	MOVQ src_base+32(FP), SI
	MOVQ R11, DI
	MOVQ CX, R12

rows1:
	LOADS
	INTERLEAVE(VPUNPCKLBW, VPUNPCKHBW, VPUNPCKLWD, VPUNPCKHWD, VPUNPCKLDQ, VPUNPCKHDQ)
	STORE2(X8)
	STORE2(X9)
	STORE2(X10)
	STORE2(X11)
	STORE2(X12)
	STORE2(X13)
	STORE2(X14)
	STORE2(X15)
	ADDQ $16, SI
	SUBQ $16, R12
	JNZ  rows1
	ADDQ $8, BX
	ADDQ $64, R8
	ADDQ $8, R11
	JMP  group1

out:
	MOVQ BX, done+88(FP)
	VZEROUPPER
	RET
