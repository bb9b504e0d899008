package overhead

import (
	"slices"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

// Spin is a policy, not sealed yet, whose one hook, remap, goes round a loop so
// often and then declines. Where slow is true, a round is made of divisions, which
// take longest of all arithmetic for what they cost.
func Spin(rounds uint32, slow bool) []byte {
	const n = 4 // local: the rounds done
	var round []byte
	if slow {
		for range 8 { // in = -1 rem_u (in | 3)
			round = append(round, i32Const, 0x7f, localGet, 0, i32Const, 3, 0x72, 0x70, localSet, 0)
		}
	}
	return policy(slices.Concat([]byte{1, 1, typeI32, 0x03, 0x40}, round,
		[]byte{localGet, n, i32Const, 1, add, localTee, n, i32Const}, signed(int64(int32(rounds))),
		[]byte{0x49, 0x0d, 0, 0x0b}, declined()))
}

// Fill is a policy, not sealed yet, whose one hook, remap, grows its memory to
// hold so many bytes, fills them at once and then declines.
func Fill(bytes uint32) []byte {
	pages := (int64(bytes) + 1<<16 - 1) >> 16
	return policy(slices.Concat([]byte{0, i32Const}, signed(pages), []byte{0x40, 0, 0x1a, // memory.grow, drop
		i32Const, 0, i32Const, 1, i32Const}, signed(int64(int32(bytes))), []byte{0xfc, 11, 0}, declined())) // memory.fill
}

// declined is how a hook ends that has nothing to say.
func declined() []byte {
	return append([]byte{0x42}, append(signed(int64(abi.StatusDeclined)<<32), 0x0b)...)
}

// policy is a policy with the body of its one hook.
func policy(hook []byte) []byte {
	arena := slices.Concat([]byte{0, i32Const}, signed(4096), []byte{0x0b})
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{2, 0x60, 1, typeI32, 1, typeI32, 0x60, 4, typeI32, typeI32, typeI32, typeI32, 1, 0x7e}),
		section(3, []byte{2, 0, 1}),
		section(5, []byte{1, 0, 3}),
		section(7, []byte("\x03\x06memory\x02\x00\x0dkvferry_arena\x00\x00\x0dkvferry_remap\x00\x01")),
		section(10, []byte{2}, sized(arena), sized(hook)))
}

// signed is a number as the format writes it.
func signed(v int64) []byte { return module.AppendSigned(nil, v) }

// section is a section of its parts.
func section(id byte, parts ...[]byte) []byte { return append([]byte{id}, sized(parts...)...) }

// sized are parts behind their length, in two bytes: the modules here are small.
func sized(parts ...[]byte) []byte {
	b := slices.Concat(parts...)
	if len(b) > 0x3fff {
		panic("overhead: a module of this package is larger than it knows how to write")
	}
	return append([]byte{byte(len(b)) | 0x80, byte(len(b) >> 7)}, b...)
}
