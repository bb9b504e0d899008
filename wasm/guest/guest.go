// Package guest puts WebAssembly modules together by hand, for tests: the hostile
// ones are not what a compiler makes.
package guest

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

// Module is a module by its parts. The zero value lacks everything; Sound gives
// one that loads. Parts are encoded items of their sections.
type Module struct {
	Manifest string
	Types    []string // "params>results" of i, l (i64), f, d (f64) and v (v128)
	Imports  [][]byte
	Funcs    []Function
	Tables   [][]byte
	Memory   []byte // limits; nil: none
	Globals  [][]byte
	Exports  [][]byte
	Start    []byte // nil: none
	Elements [][]byte
	Data     [][]byte
	Raw      []byte // instead of everything
}

// Function is a function of its own.
type Function struct {
	Kind int    // index into Types
	Code []byte // locals and body, without the final end
}

// Types of Sound's functions.
const (
	TypeArena = 0 // (i32) i32
	TypeHook  = 1 // (i32 i32 i32 i32) i64
	TypeLog   = 2 // (i32 i32 i32)
	TypeNone  = 3 // ()
)

// Functions and exports of Sound.
const (
	FuncArena = 0
	FuncHook  = 1

	ExportMemory = 0
	ExportArena  = 1
	ExportHook   = 2
	ExportMarker = 3
)

// SoundManifest is that of Sound.
const SoundManifest = `{"name": "guest", "version": "0.1.0", "hooks": ["remap"], "abi": {"min": "1.0", "max": "1.0"}}`

// ArenaAt is where the arena of a sound module starts.
const ArenaAt = 4096

// Sound is a module that loads, with the given code as its remap hook.
func Sound(hook ...byte) *Module {
	return &Module{
		Manifest: SoundManifest,
		Types:    []string{"i>i", "iiii>l", "iii>", ">"},
		Funcs:    []Function{{TypeArena, Body(I32(ArenaAt))}, {TypeHook, Body(hook)}},
		Memory:   []byte{0x00, 2},
		Globals:  [][]byte{{0x7f, 0x00, 0x41, 0x00, 0x0b}},
		Exports: [][]byte{
			Export("memory", 2, 0), Export("kvferry_arena", 0, 0), Export("kvferry_remap", 0, 1), Export("kvferry_abi_v1", 3, 0),
		},
	}
}

// Selecting is a sound module whose hook is select_layout.
func Selecting(hook ...byte) *Module {
	m := Sound(hook...)
	m.Manifest = strings.Replace(SoundManifest, "remap", "select_layout", 1)
	m.Exports[ExportHook] = Export("kvferry_select_layout", 0, 1)
	return m
}

// Body is code without locals.
func Body(code ...[]byte) []byte { return append([]byte{0}, slices.Concat(code...)...) }

// Sleb is a signed LEB128 number.
func Sleb(v int64) []byte { return module.AppendSigned(nil, v) }

// Uleb is an unsigned LEB128 number, which is what encoding/binary calls a varint.
func Uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// I32 and I64 are constants on the stack.
func I32(v int32) []byte { return append([]byte{0x41}, Sleb(int64(v))...) }
func I64(v int64) []byte { return append([]byte{0x42}, Sleb(v)...) }

// Answer is a hook's result.
func Answer(status, low uint32) []byte { return I64(int64(uint64(status)<<32 | uint64(low))) }

// Store writes b at a hook's out, eight bytes at a time.
func Store(b []byte) []byte {
	b = append(slices.Clone(b), make([]byte, (8-len(b)%8)%8)...)
	var code []byte
	for at := 0; at < len(b); at += 8 {
		code = slices.Concat(code, []byte{0x20, 2}, I64(int64(binary.LittleEndian.Uint64(b[at:]))), []byte{0x37, 3}, Uleb(at))
	}
	return code
}

// Reply writes b and returns its size with a status.
func Reply(status uint32, b []byte) []byte {
	return append(Store(b), Answer(status, uint32(len(b)))...)
}

// Named is a name of a section's item.
func Named(name string) []byte { return append(Uleb(len(name)), name...) }

// Export is an item of the export section; kind is 0 for a function, 1 a table, 2
// a memory, 3 a global.
func Export(name string, kind byte, index int) []byte {
	return append(append(Named(name), kind), Uleb(index)...)
}

// Import is an item of the import section.
func Import(from, name string, rest ...byte) []byte {
	return slices.Concat(Named(from), Named(name), rest)
}

// With changes one 32-bit word of a message.
func With(b []byte, at int, v uint32) []byte {
	b = slices.Clone(b)
	binary.LittleEndian.PutUint32(b[at:], v)
	return b
}

// Bytes encodes the module.
func (m *Module) Bytes() []byte {
	if m.Raw != nil {
		return m.Raw
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, items [][]byte) {
		if len(items) > 0 {
			out = Section(out, id, append(Uleb(len(items)), slices.Concat(items...)...))
		}
	}
	var types, funcs, codes [][]byte
	for _, t := range m.Types {
		b := []byte{0x60}
		params, results, _ := strings.Cut(t, ">")
		for _, side := range []string{params, results} {
			b = append(b, Uleb(len(side))...)
			for _, c := range side {
				b = append(b, map[rune]byte{'i': 0x7f, 'l': 0x7e, 'f': 0x7d, 'd': 0x7c, 'v': 0x7b}[c])
			}
		}
		types = append(types, b)
	}
	for _, f := range m.Funcs {
		funcs = append(funcs, Uleb(f.Kind))
		code := append(slices.Clone(f.Code), 0x0b)
		codes = append(codes, append(Uleb(len(code)), code...))
	}
	section(1, types)
	section(2, m.Imports)
	section(3, funcs)
	section(4, m.Tables)
	if m.Memory != nil {
		section(5, [][]byte{m.Memory})
	}
	section(6, m.Globals)
	section(7, m.Exports)
	if m.Start != nil {
		out = Section(out, 8, m.Start)
	}
	section(9, m.Elements)
	if len(m.Data) > 0 {
		out = Section(out, 12, Uleb(len(m.Data)))
	}
	section(10, codes)
	section(11, m.Data)
	if m.Manifest != "" {
		out = Section(out, 0, append(Named(module.ManifestSection), m.Manifest...))
	}
	return out
}

// Section appends a section.
func Section(out []byte, id byte, body []byte) []byte {
	return append(append(append(out, id), Uleb(len(body))...), body...)
}

// Remap is a remap answer of so many alternatives without assignments.
func Remap(alternatives int, reason string) []byte {
	return (&abi.RemapOut{Alternatives: make([]abi.Alternative, alternatives), Reason: reason}).Encode()
}
