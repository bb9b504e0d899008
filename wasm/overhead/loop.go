package overhead

import "slices"

// What the modules here are written with.
const (
	typeI32  = 0x7f
	localGet = 0x20
	localSet = 0x21
	localTee = 0x22
	i32Const = 0x41
	add      = 0x6a
	subtract = 0x6b
	multiply = 0x6c
	and      = 0x71
	xor      = 0x73
	shift    = 0x76
	rotate   = 0x77
)

// Loop is a synthetic module with one loop in it. Its export "run" takes the
// number of rounds, at least one.
type Loop struct {
	Name string
	Does string // in each round
	Wasm []byte
}

// Loops are loops so tight that metering shows: heads and other policies do more
// between two charges.
func Loops() []Loop {
	const n, h = 0, 1 // locals: the rounds left, and what comes out
	code := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	address := []byte{localGet, n, i32Const, 0xfc, 0xff, 0x03, and}                           // n & 0xfffc
	hash := code([]byte{localGet, h}, address, []byte{0x2d, 0, 0, xor, i32Const, 0x93, 0x83}, // h = (h ^ byte) * 16777619
		[]byte{0x80, 0x08, multiply, localSet, h})
	loop := func(round []byte) []byte {
		return code([]byte{1, 1, typeI32, 0x03, 0x40}, round, []byte{localGet, n, i32Const, 1, subtract, localTee, n, 0x0d, 0, 0x0b, localGet, h, 0x0b})
	}
	module := func(bodies ...[]byte) []byte {
		var all []byte
		for _, b := range bodies {
			all = append(all, sized(b)...)
		}
		return code([]byte("\x00asm\x01\x00\x00\x00"),
			section(1, []byte{1, 0x60, 1, typeI32, 1, typeI32}),
			section(3, []byte{byte(len(bodies))}, make([]byte, len(bodies))),
			section(5, []byte{1, 0, 2}),
			section(7, []byte("\x01\x03run\x00\x00")),
			section(10, []byte{byte(len(bodies))}, all))
	}
	return []Loop{
		{"empty", "counts", module(loop(nil))},
		{"sum", "adds a word of memory", module(loop(code([]byte{localGet, h}, address, []byte{0x28, 2, 0, add, localSet, h})))},
		{"hash", "hashes a byte of memory", module(loop(hash))},
		{"store", "writes a word of memory", module(loop(code(address, []byte{localGet, h, 0x36, 2, 0, localGet, h, localGet, n, add, localSet, h})))},
		{"branch", "decides what to do by a word of memory", module(loop(code(address, []byte{0x28, 2, 0, localGet, n, xor, i32Const, 3, and, 0x04, 0x40}, hash,
			[]byte{0x05, localGet, h, i32Const, 5, rotate, localSet, h, 0x0b})))},
		{"call", "calls a small function", module(loop([]byte{localGet, h, 0x10, 1, localSet, h}),
			[]byte{0, localGet, 0, i32Const, 3, multiply, localGet, 0, i32Const, 7, shift, xor, localGet, 0, add, i32Const, 9, rotate, 0x0b})},
	}
}
