//go:build amd64 && !race && !msan && !asan && !purego

#include "textflag.h"

// A tile is turned by rounds of a perfect shuffle: with n rows of n columns,
// log2(n) rounds each interleave register i with register i+n/2, the low halves
// into one register and the high halves into the next. Where 32-byte registers
// are used, their upper half is a second tile, of the rows that follow, so that
// each column is stored as one piece.

// Interleaves a and b into lo and hi; words of 2 and of 4 bytes.
#define SHUFFLE2(a, b, lo, hi) \
	VPUNPCKLWD b, a, lo \
	VPUNPCKHWD b, a, hi
#define SHUFFLE4(a, b, lo, hi) \
	VPUNPCKLDQ b, a, lo \
	VPUNPCKHDQ b, a, hi

#define ROUND2(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7) \
	SHUFFLE2(a0, a4, b0, b1) \
	SHUFFLE2(a1, a5, b2, b3) \
	SHUFFLE2(a2, a6, b4, b5) \
	SHUFFLE2(a3, a7, b6, b7)
#define ROUND4(a0, a1, a2, a3, b0, b1, b2, b3) \
	SHUFFLE4(a0, a2, b0, b1) \
	SHUFFLE4(a1, a3, b2, b3)

// 8 bytes of row i and of row i+8, interleaved.
#define PAIR1(a, b, x, y, out) \
	VMOVQ a, x \
	VMOVQ b, y \
	VPUNPCKLBW y, x, out

#define SHUFFLE1(a, b, lo, hi) \
	VPUNPCKLBW b, a, lo \
	VPUNPCKHBW b, a, hi
#define ROUND1(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7) \
	SHUFFLE1(a0, a4, b0, b1) \
	SHUFFLE1(a1, a5, b2, b3) \
	SHUFFLE1(a2, a6, b4, b5) \
	SHUFFLE1(a3, a7, b6, b7)

// func turnVectors(dst, src *byte, rows, columns, source, target, width int64)
//
// SI and DI the first column of this tile's rows, DX rows left; AX and BX this
// tile, CX columns left; R8 and R9 the source's stride, once and thrice, R10 and
// R11 the destination's; R12 and R13 addresses. No frame: the runtime can unwind
// a fault from any instruction. R14 is Go's and stays untouched.
TEXT ·turnVectors(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ rows+16(FP), DX
	MOVQ source+32(FP), R8
	MOVQ target+40(FP), R10
	LEAQ (R8)(R8*2), R9
	LEAQ (R10)(R10*2), R11
	MOVQ width+48(FP), AX
	CMPQ AX, $2
	JEQ  rows2
	JHI  rows4

rows1: // 16 rows
	MOVQ SI, AX
	MOVQ DI, BX
	MOVQ columns+24(FP), CX

tile1:
	LEAQ (AX)(R8*4), R12
	LEAQ (AX)(R8*8), R13
	PAIR1(0(AX), 0(R13), X8, X9, X0)
	PAIR1((AX)(R8*1), (R13)(R8*1), X10, X11, X1)
	PAIR1((AX)(R8*2), (R13)(R8*2), X12, X13, X2)
	PAIR1((AX)(R9*1), (R13)(R9*1), X14, X15, X3)
	LEAQ (R12)(R8*8), R13
	PAIR1(0(R12), 0(R13), X8, X9, X4)
	PAIR1((R12)(R8*1), (R13)(R8*1), X10, X11, X5)
	PAIR1((R12)(R8*2), (R13)(R8*2), X12, X13, X6)
	PAIR1((R12)(R9*1), (R13)(R9*1), X14, X15, X7)
	ROUND1(X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15)
	ROUND1(X8, X9, X10, X11, X12, X13, X14, X15, X0, X1, X2, X3, X4, X5, X6, X7)
	ROUND1(X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15)
	LEAQ (BX)(R10*4), R12
	VMOVDQU X8, (BX)
	VMOVDQU X9, (BX)(R10*1)
	VMOVDQU X10, (BX)(R10*2)
	VMOVDQU X11, (BX)(R11*1)
	VMOVDQU X12, (R12)
	VMOVDQU X13, (R12)(R10*1)
	VMOVDQU X14, (R12)(R10*2)
	VMOVDQU X15, (R12)(R11*1)
	ADDQ $8, AX
	LEAQ (BX)(R10*8), BX
	SUBQ $8, CX
	JNZ  tile1
	LEAQ (SI)(R8*8), SI
	LEAQ (SI)(R8*8), SI
	ADDQ $16, DI
	SUBQ $16, DX
	JNZ  rows1
	JMP  end

rows2:
	CMPQ DX, $16
	JCS  half2

	// 16 rows
	MOVQ SI, AX
	MOVQ DI, BX
	MOVQ columns+24(FP), CX

tile2:
	LEAQ (AX)(R8*8), R13
	VMOVDQU (AX), X0
	VMOVDQU (AX)(R8*1), X1
	VMOVDQU (AX)(R8*2), X2
	VMOVDQU (AX)(R9*1), X3
	VINSERTI128 $1, (R13), Y0, Y0
	VINSERTI128 $1, (R13)(R8*1), Y1, Y1
	VINSERTI128 $1, (R13)(R8*2), Y2, Y2
	VINSERTI128 $1, (R13)(R9*1), Y3, Y3
	LEAQ (AX)(R8*4), R12
	LEAQ (R12)(R8*8), R13
	VMOVDQU (R12), X4
	VMOVDQU (R12)(R8*1), X5
	VMOVDQU (R12)(R8*2), X6
	VMOVDQU (R12)(R9*1), X7
	VINSERTI128 $1, (R13), Y4, Y4
	VINSERTI128 $1, (R13)(R8*1), Y5, Y5
	VINSERTI128 $1, (R13)(R8*2), Y6, Y6
	VINSERTI128 $1, (R13)(R9*1), Y7, Y7
	ROUND2(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15)
	ROUND2(Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15, Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7)
	ROUND2(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15)
	LEAQ (BX)(R10*4), R12
	VMOVDQU Y8, (BX)
	VMOVDQU Y9, (BX)(R10*1)
	VMOVDQU Y10, (BX)(R10*2)
	VMOVDQU Y11, (BX)(R11*1)
	VMOVDQU Y12, (R12)
	VMOVDQU Y13, (R12)(R10*1)
	VMOVDQU Y14, (R12)(R10*2)
	VMOVDQU Y15, (R12)(R11*1)
	ADDQ $16, AX
	LEAQ (BX)(R10*8), BX
	SUBQ $8, CX
	JNZ  tile2
	LEAQ (SI)(R8*8), SI
	LEAQ (SI)(R8*8), SI
	ADDQ $32, DI
	SUBQ $16, DX
	JNZ  rows2
	JMP  end

half2: // 8 rows
	MOVQ columns+24(FP), CX

tile2half:
	LEAQ (SI)(R8*4), R12
	VMOVDQU (SI), X0
	VMOVDQU (SI)(R8*1), X1
	VMOVDQU (SI)(R8*2), X2
	VMOVDQU (SI)(R9*1), X3
	VMOVDQU (R12), X4
	VMOVDQU (R12)(R8*1), X5
	VMOVDQU (R12)(R8*2), X6
	VMOVDQU (R12)(R9*1), X7
	ROUND2(X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15)
	ROUND2(X8, X9, X10, X11, X12, X13, X14, X15, X0, X1, X2, X3, X4, X5, X6, X7)
	ROUND2(X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15)
	LEAQ (DI)(R10*4), R12
	VMOVDQU X8, (DI)
	VMOVDQU X9, (DI)(R10*1)
	VMOVDQU X10, (DI)(R10*2)
	VMOVDQU X11, (DI)(R11*1)
	VMOVDQU X12, (R12)
	VMOVDQU X13, (R12)(R10*1)
	VMOVDQU X14, (R12)(R10*2)
	VMOVDQU X15, (R12)(R11*1)
	ADDQ $16, SI
	LEAQ (DI)(R10*8), DI
	SUBQ $8, CX
	JNZ  tile2half
	JMP  end

rows4:
	CMPQ DX, $8
	JCS  half4

	// 8 rows
	MOVQ SI, AX
	MOVQ DI, BX
	MOVQ columns+24(FP), CX

tile4:
	LEAQ (AX)(R8*4), R12
	VMOVDQU (AX), X0
	VMOVDQU (AX)(R8*1), X1
	VMOVDQU (AX)(R8*2), X2
	VMOVDQU (AX)(R9*1), X3
	VINSERTI128 $1, (R12), Y0, Y0
	VINSERTI128 $1, (R12)(R8*1), Y1, Y1
	VINSERTI128 $1, (R12)(R8*2), Y2, Y2
	VINSERTI128 $1, (R12)(R9*1), Y3, Y3
	ROUND4(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7)
	ROUND4(Y4, Y5, Y6, Y7, Y0, Y1, Y2, Y3)
	VMOVDQU Y0, (BX)
	VMOVDQU Y1, (BX)(R10*1)
	VMOVDQU Y2, (BX)(R10*2)
	VMOVDQU Y3, (BX)(R11*1)
	ADDQ $16, AX
	LEAQ (BX)(R10*4), BX
	SUBQ $4, CX
	JNZ  tile4
	LEAQ (SI)(R8*8), SI
	ADDQ $32, DI
	SUBQ $8, DX
	JNZ  rows4
	JMP  end

half4: // 4 rows
	MOVQ columns+24(FP), CX

tile4half:
	VMOVDQU (SI), X0
	VMOVDQU (SI)(R8*1), X1
	VMOVDQU (SI)(R8*2), X2
	VMOVDQU (SI)(R9*1), X3
	ROUND4(X0, X1, X2, X3, X4, X5, X6, X7)
	ROUND4(X4, X5, X6, X7, X0, X1, X2, X3)
	VMOVDQU X0, (DI)
	VMOVDQU X1, (DI)(R10*1)
	VMOVDQU X2, (DI)(R10*2)
	VMOVDQU X3, (DI)(R11*1)
	ADDQ $16, SI
	LEAQ (DI)(R10*4), DI
	SUBQ $4, CX
	JNZ  tile4half

end:
	VZEROUPPER
	RET
