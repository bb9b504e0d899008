package host

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/wasm/module"
)

// guest is a WebAssembly module put together by hand: the hostile ones are not
// what a compiler makes. The zero value lacks everything; sound gives one that
// loads.
type guest struct {
	manifest string
	imports  [][]byte
	types    []string // "params>result" of i and l (i64)
	funcs    []function
	memory   []byte // limits
	globals  [][]byte
	exports  [][]byte
	data     [][]byte
	start    []byte
	raw      []byte // instead of everything
}

type function struct {
	kind int    // index into types
	code []byte // locals and body, without the final end
}

const (
	typeArena = 0 // (i32) i32
	typeHook  = 1 // (i32 i32 i32 i32) i64
	typeLog   = 2 // (i32 i32 i32)
	typeNone  = 3 // ()
)

const soundManifest = `{"name": "guest", "version": "0.1.0", "hooks": ["remap"], "abi": {"min": "1.0", "max": "1.0"}}`

// arenaAt is where the arena of a sound guest starts.
const arenaAt = 4096

// sound is a module that loads, with the given code as its remap hook.
func sound(hook ...byte) *guest {
	return &guest{
		manifest: soundManifest,
		types:    []string{"i>i", "iiii>l", "iii>", ">"},
		funcs:    []function{{typeArena, body(i32(arenaAt))}, {typeHook, body(hook)}},
		memory:   []byte{0x00, 2},
		globals:  [][]byte{{0x7f, 0x00, 0x41, 0x00, 0x0b}},
		exports: [][]byte{
			export("memory", 2, 0), export("kvferry_arena", 0, 0), export("kvferry_remap", 0, 1), export("kvferry_abi_v1", 3, 0),
		},
	}
}

// body is code without locals.
func body(code ...[]byte) []byte { return append([]byte{0}, slices.Concat(code...)...) }

func sleb(v int64) []byte { return module.AppendSigned(nil, v) }

func i32(v int32) []byte { return append([]byte{0x41}, sleb(int64(v))...) }
func i64(v int64) []byte { return append([]byte{0x42}, sleb(v)...) }

// answer is the hook's result.
func answer(status, low uint32) []byte { return i64(int64(uint64(status)<<32 | uint64(low))) }

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func named(name string) []byte { return append(uleb(len(name)), name...) }

func export(name string, kind byte, index int) []byte {
	return append(append(named(name), kind), uleb(index)...)
}

func imported(from, name string, rest ...byte) []byte {
	return slices.Concat(named(from), named(name), rest)
}

func (g *guest) bytes() []byte {
	if g.raw != nil {
		return g.raw
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, items [][]byte) {
		if len(items) == 0 {
			return
		}
		b := append(uleb(len(items)), slices.Concat(items...)...)
		out = append(append(append(out, id), uleb(len(b))...), b...)
	}
	var types, funcs, codes [][]byte
	for _, t := range g.types {
		b := []byte{0x60}
		params, result, _ := cut(t)
		for _, side := range []string{params, result} {
			b = append(b, byte(len(side)))
			for _, c := range side {
				b = append(b, map[rune]byte{'i': 0x7f, 'l': 0x7e}[c])
			}
		}
		types = append(types, b)
	}
	for _, f := range g.funcs {
		funcs = append(funcs, uleb(f.kind))
		code := append(slices.Clone(f.code), 0x0b)
		codes = append(codes, append(uleb(len(code)), code...))
	}
	section(1, types)
	section(2, g.imports)
	section(3, funcs)
	if g.memory != nil {
		section(5, [][]byte{g.memory})
	}
	section(6, g.globals)
	section(7, g.exports)
	if g.start != nil {
		out = append(append(append(out, 8), uleb(len(g.start))...), g.start...)
	}
	if len(g.data) > 0 {
		out = append(out, 12, 1, byte(len(g.data)))
	}
	section(10, codes)
	section(11, g.data)
	if g.manifest != "" {
		b := append(named("kvferry.manifest"), g.manifest...)
		out = append(append(append(out, 0), uleb(len(b))...), b...)
	}
	return out
}

func cut(t string) (params, result string, ok bool) {
	i := slices.Index([]byte(t), '>')
	return t[:i], t[i+1:], true
}
