package sample

// instruction is one without immediates other than its opcode, by what it takes
// and gives.
type instruction struct {
	code   []byte
	takes  []byte
	gives  byte
	floats byte // F32 or F64: it makes a vector of such lanes
	trunc  bool // it traps on many operands
	divide bool // it traps where the second operand is zero
}

// plain are the instructions of the given opcodes, both ends included.
func plain(from, to byte, gives byte, takes ...byte) []instruction {
	var out []instruction
	for op := int(from); op <= int(to); op++ {
		out = append(out, instruction{code: []byte{byte(op)}, takes: takes, gives: gives})
	}
	return out
}

// vectors are the instructions of the given numbers behind the vector prefix.
func vectors(gives byte, takes []byte, numbers ...int) []instruction {
	var out []instruction
	for _, n := range numbers {
		i := instruction{code: append([]byte{0xfd}, Uint(n)...), takes: takes, gives: gives}
		switch {
		case n >= 0x67 && n <= 0x6a, n == 0x5e, n >= 0xe0 && n <= 0xeb, n == 0xfa, n == 0xfb:
			i.floats = F32
		case n == 0x5f, n == 0x74, n == 0x75, n == 0x7a, n == 0x94, n >= 0xec && n <= 0xf7, n == 0xfe, n == 0xff:
			i.floats = F64
		}
		out = append(out, i)
	}
	return out
}

func numbers(from, to int) []int {
	var out []int
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

// pure returns all instructions that only compute, by the type that they give.
func pure() map[byte][]instruction {
	var all []instruction
	add := func(list []instruction) { all = append(all, list...) }
	add(plain(0x45, 0x45, I32, I32))
	add(plain(0x46, 0x4f, I32, I32, I32))
	add(plain(0x50, 0x50, I32, I64))
	add(plain(0x51, 0x5a, I32, I64, I64))
	add(plain(0x5b, 0x60, I32, F32, F32))
	add(plain(0x61, 0x66, I32, F64, F64))
	add(plain(0x67, 0x69, I32, I32))
	add(plain(0x6a, 0x78, I32, I32, I32))
	add(plain(0x79, 0x7b, I64, I64))
	add(plain(0x7c, 0x8a, I64, I64, I64))
	add(plain(0x8b, 0x91, F32, F32))
	add(plain(0x92, 0x98, F32, F32, F32))
	add(plain(0x99, 0x9f, F64, F64))
	add(plain(0xa0, 0xa6, F64, F64, F64))
	add(plain(0xa7, 0xa7, I32, I64))
	add(plain(0xa8, 0xa9, I32, F32))
	add(plain(0xaa, 0xab, I32, F64))
	add(plain(0xac, 0xad, I64, I32))
	add(plain(0xae, 0xaf, I64, F32))
	add(plain(0xb0, 0xb1, I64, F64))
	add(plain(0xb2, 0xb3, F32, I32))
	add(plain(0xb4, 0xb5, F32, I64))
	add(plain(0xb6, 0xb6, F32, F64))
	add(plain(0xb7, 0xb8, F64, I32))
	add(plain(0xb9, 0xba, F64, I64))
	add(plain(0xbb, 0xbb, F64, F32))
	add(plain(0xbc, 0xbc, I32, F32))
	add(plain(0xbd, 0xbd, I64, F64))
	add(plain(0xbe, 0xbe, F32, I32))
	add(plain(0xbf, 0xbf, F64, I64))
	add(plain(0xc0, 0xc1, I32, I32))
	add(plain(0xc2, 0xc4, I64, I64))
	for n, t := range [][2]byte{{I32, F32}, {I32, F32}, {I32, F64}, {I32, F64}, {I64, F32}, {I64, F32}, {I64, F64}, {I64, F64}} {
		all = append(all, instruction{code: []byte{0xfc, byte(n)}, takes: t[1:], gives: t[0]})
	}
	add(plain(0xd1, 0xd1, I32, Func))
	add(plain(0xd1, 0xd1, I32, Extern))

	one, two, three := []byte{V128}, []byte{V128, V128}, []byte{V128, V128, V128}
	add(vectors(V128, two, 0x0e)) // swizzle
	for i, t := range []byte{I32, I32, I32, I64, F32, F64} {
		add(vectors(V128, []byte{t}, 0x0f+i)) // splats
	}
	add(vectors(V128, two, numbers(0x23, 0x4c)...))
	add(vectors(V128, one, 0x4d))
	add(vectors(V128, two, numbers(0x4e, 0x51)...))
	add(vectors(V128, three, 0x52))
	add(vectors(I32, one, 0x53, 0x63, 0x64, 0x83, 0x84, 0xa3, 0xa4, 0xc3, 0xc4))
	add(vectors(V128, one, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x67, 0x68, 0x69, 0x6a, 0x74, 0x75, 0x7a, 0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81))
	add(vectors(V128, two, 0x65, 0x66, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x76, 0x77, 0x78, 0x79, 0x7b, 0x82, 0x85, 0x86))
	add(vectors(V128, one, 0x87, 0x88, 0x89, 0x8a, 0x94, 0xa0, 0xa1, 0xa7, 0xa8, 0xa9, 0xaa, 0xc0, 0xc1, 0xc7, 0xc8, 0xc9, 0xca))
	add(vectors(V128, two, 0x8e, 0x8f, 0x90, 0x91, 0x92, 0x93, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f))
	add(vectors(V128, two, 0xae, 0xb1, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbc, 0xbd, 0xbe, 0xbf))
	add(vectors(V128, two, 0xce, 0xd1, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf))
	add(vectors(V128, one, 0xe0, 0xe1, 0xe3, 0xec, 0xed, 0xef, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff))
	add(vectors(V128, two, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xeb, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7))
	add(vectors(V128, []byte{V128, I32}, 0x6b, 0x6c, 0x6d, 0x8b, 0x8c, 0x8d, 0xab, 0xac, 0xad, 0xcb, 0xcc, 0xcd)) // shifts

	out := map[byte][]instruction{}
	for _, i := range all {
		if len(i.code) == 1 {
			i.trunc = i.code[0] >= 0xa8 && i.code[0] <= 0xab || i.code[0] >= 0xae && i.code[0] <= 0xb1
			i.divide = i.code[0] >= 0x6d && i.code[0] <= 0x70 || i.code[0] >= 0x7f && i.code[0] <= 0x82
		}
		out[i.gives] = append(out[i.gives], i)
	}
	return out
}

// access is a load or a store, with the exponent of the alignment that it may
// have at most.
type access struct {
	code  []byte
	kind  byte // what is loaded or stored
	align int
	lanes int // of a lane load or store, else 0
}

func loads() (out []access) {
	for i, a := range []struct {
		kind  byte
		align int
	}{{I32, 2}, {I64, 3}, {F32, 2}, {F64, 3}, {I32, 0}, {I32, 0}, {I32, 1}, {I32, 1}, {I64, 0}, {I64, 0}, {I64, 1}, {I64, 1}, {I64, 2}, {I64, 2}} {
		out = append(out, access{code: []byte{byte(0x28 + i)}, kind: a.kind, align: a.align})
	}
	for i, align := range []int{4, 3, 3, 3, 3, 3, 3, 0, 1, 2, 3} {
		out = append(out, access{code: []byte{0xfd, byte(i)}, kind: V128, align: align})
	}
	out = append(out, access{code: []byte{0xfd, 0x5c}, kind: V128, align: 2}, access{code: []byte{0xfd, 0x5d}, kind: V128, align: 3})
	for i := range 4 {
		out = append(out, access{code: []byte{0xfd, byte(0x54 + i)}, kind: V128, align: i, lanes: 16 >> i})
	}
	return out
}

func stores() (out []access) {
	for i, a := range []struct {
		kind  byte
		align int
	}{{I32, 2}, {I64, 3}, {F32, 2}, {F64, 3}, {I32, 0}, {I32, 1}, {I64, 0}, {I64, 1}, {I64, 2}} {
		out = append(out, access{code: []byte{byte(0x36 + i)}, kind: a.kind, align: a.align})
	}
	out = append(out, access{code: []byte{0xfd, 11}, kind: V128, align: 4})
	for i := range 4 {
		out = append(out, access{code: []byte{0xfd, byte(0x58 + i)}, kind: V128, align: i, lanes: 16 >> i})
	}
	return out
}

// Computation is an instruction that only computes and gives one value.
type Computation struct {
	Code  []byte
	Takes int // values
}

// Pure returns all instructions that only compute.
func Pure() []Computation {
	var out []Computation
	for _, list := range pure() {
		for _, i := range list {
			out = append(out, Computation{i.code, len(i.takes)})
		}
	}
	return out
}
