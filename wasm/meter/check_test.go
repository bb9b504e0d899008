package meter

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// sound is a module that passes, to be spoilt.
func sound(change func(m *sample.Module)) []byte {
	m := &sample.Module{
		Types:    []sample.Type{{Params: []byte{sample.I32}, Results: []byte{sample.I32}}, {}},
		Funcs:    []sample.Function{{Type: 0, Code: sample.Op(opLocalGet, 0)}, {Type: 1}},
		Tables:   [][]byte{{sample.Func, 0, 1}},
		Memories: [][]byte{{0, 1}},
		Globals:  [][]byte{{sample.I32, 1, opI32Const, 0, opEnd}},
		Exports:  []sample.Export{{Name: "f", Index: 0}, {Name: "memory", Kind: 2}},
		Elements: [][]byte{sample.Code([]byte{0}, sample.Const(0), []byte{opEnd, 1, 0})},
		Data:     [][]byte{sample.Code([]byte{0}, sample.Const(0), []byte{opEnd, 1, 'x'})},
	}
	if change != nil {
		change(m)
	}
	return m.Bytes()
}

// code is a sound module with the given code in its first function.
func code(parts ...[]byte) []byte {
	return sound(func(m *sample.Module) { m.Funcs[0].Code = sample.Code(parts...) })
}

func repeat(n int, b ...byte) []byte { return bytes.Repeat(b, n) }

// section is a module of one section.
func only(id byte, contents ...byte) []byte {
	return append([]byte(sample.Header), sample.Section(id, contents)...)
}

func TestCheckRefuses(t *testing.T) {
	raw := func(body ...byte) []byte {
		return sound(func(m *sample.Module) { m.Funcs[0].Raw = body })
	}
	get := sample.Op(opLocalGet, 0)
	nest := func(n int) []byte {
		return code(repeat(n, opBlock, sample.Empty), repeat(n, opEnd), get)
	}
	imported := func(module, name string, rest ...byte) []byte {
		return sound(func(m *sample.Module) { m.Imports = []sample.Import{{Module: module, Name: name, Rest: rest}} })
	}
	long := strings.Repeat("n", 1025)
	for _, c := range []struct {
		name string
		wasm []byte
		kind Kind
		want string
	}{
		{"nothing", nil, Malformed, "byte 0: header: no WebAssembly module"},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00"), Malformed, "byte 4: header: version 65549, want a core module of version 1 (no component)"},
		{"too large", append(sound(nil), sample.Section(0, append(sample.Name("x"), make([]byte, 4<<20)...))...), OverLimit, "size in bytes: 4194399, at most 4194304 are allowed; strip it"},
		{"4e9 locals in a few bytes", []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x0a\x01\x08\x01\xff\xff\xff\xff\x0f\x7f\x0b"), Malformed, "byte 23, function 0: locals: more than 32 bits can count"},
		{"a billion locals", raw(1, 0x80, 0x80, 0x80, 0x80, 4, sample.I32, opEnd), OverLimit, "byte 73, function 0: locals: 1073741825, at most 1024 are allowed; keep arrays in memory, or split the function"},
		{"types that are not there", only(1, 0xff, 0xff, 0xff, 0xff, 0x0f), Malformed, "byte 10: types: 4294967295 of them cannot be in 0 bytes"},
		{"types", sound(func(m *sample.Module) {
			for range 5000 {
				m.Types = append(m.Types, sample.Type{})
			}
		}), OverLimit, "byte 11: types: 5002, at most 4096"},
		{"parameters", sound(func(m *sample.Module) { m.Types = append(m.Types, sample.Type{Params: repeat(65, sample.I32)}) }), OverLimit, "parameters of a type: 65, at most 64 are allowed; pass a pointer"},
		{"results", sound(func(m *sample.Module) { m.Types = append(m.Types, sample.Type{Results: repeat(17, sample.I32)}) }), OverLimit, "results of a type: 17, at most 16 are allowed; return a pointer"},
		{"type of another kind", only(1, 1, 0x5f, 0, 0), Unsupported, "byte 11: type: needs struct, array and recursive types, which no policy may use"},
		{"type of no kind", only(1, 1, 0x40, 0, 0), Malformed, "byte 11: type: starts with 0x40, want 0x60"},
		{"value type", only(1, 1, 0x60, 1, 0x20, 0), Malformed, "byte 13: parameters of a type: 0x20 is no value type"},
		{"functions", sound(func(m *sample.Module) {
			for range 20_001 {
				m.Funcs = append(m.Funcs, sample.Function{Type: 1})
			}
		}), OverLimit, "functions: 20003, at most 20000 are allowed; link less"},
		{"function of no type", only(3, 1, 0), Malformed, "byte 11: type index: type 0 of 0"},
		{"function without a body", append(only(1, 1, 0x60, 0, 0), sample.Section(3, []byte{1, 0})...), Malformed, "code section: 0 bodies for 1 functions"},
		{"body without a function", only(10, 1, 2, 0, opEnd), Malformed, "byte 10: code section: 1 bodies for 0 functions"},
		{"sections out of order", append(only(3, 0), sample.Section(1, []byte{0})...), Malformed, "byte 11: type section: stands twice or behind a section that has to follow it"},
		{"a section twice", append(only(6, 0), sample.Section(6, []byte{0})...), Malformed, "byte 11: global section: stands twice"},
		{"a section of no kind", only(14), Malformed, "byte 8: section: no section has the id 14"},
		{"a section that is cut off", only(1, 1, 0x60)[:11], Malformed, "byte 9: section size: 2 of them cannot be in 1 bytes"},
		{"a section with something behind", only(1, 0, 0), Malformed, "byte 11: type section: 1 bytes too many"},
		{"a tag section", only(13, 0), Unsupported, "byte 8: tag section: needs exceptions, which no policy may use; compile without -fwasm-exceptions"},
		{"a number that is too long", only(1, 0x80, 0x80, 0x80, 0x80, 0x80, 0), Malformed, "byte 10: types: its number has more than 32 bits"},
		{"a number with too many bits", only(1, 0x80, 0x80, 0x80, 0x80, 0x10), Malformed, "byte 10: types: its number has more than 32 bits"},
		{"a name that is no text", only(0, 2, 0xff, 0xff), Malformed, "name of a custom section: is not UTF-8"},
		{"custom sections", append(sound(nil), bytes.Repeat([]byte{0, 1, 0}, 65)...), OverLimit, "custom sections: 65, at most 64 are allowed; strip"},
		{"a custom section's name", sound(func(m *sample.Module) { m.Customs = []sample.Custom{{Name: long}} }), OverLimit, "length of a custom section's name: 1025, at most 1024"},
		{"names that are not there", sound(func(m *sample.Module) {
			m.Customs = []sample.Custom{{Name: "name", Data: []byte{1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f}}}
		}), Malformed, "names: 4294967295 of them cannot be in 0 bytes"},
		{"names of locals that are not there", sound(func(m *sample.Module) {
			m.Customs = []sample.Custom{{Name: "name", Data: []byte{2, 7, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}}}
		}), Malformed, "names: 4294967295 of them cannot be in 0 bytes"},
		{"a name in the name section", sound(func(m *sample.Module) {
			m.Customs = []sample.Custom{{Name: "name", Data: append([]byte{0}, sample.Name(string(sample.Name(long)))...)}}
		}), OverLimit, "length of a name: 1025, at most 1024"},
		{"the name section's parts", sound(func(m *sample.Module) { m.Customs = []sample.Custom{{Name: "name", Data: []byte{0, 2, 0, 0}}} }), Malformed, "name section: 1 bytes too many in part 0"},

		{"import", imported("env", "now", 0, 1), Forbidden, "import env.now: the function is not among what may be imported: kvferry_v1.log; remove what calls for it"},
		{"import of another kind", imported("kvferry_v1", "log", 3, sample.I32, 0), Forbidden, "import kvferry_v1.log: the global is not among"},
		{"import with a strange name", imported("e\x1b[2J", strings.Repeat("x", 100), 0, 1), Forbidden, "import e?[2J." + strings.Repeat("x", 64) + "...: the function"},
		{"imports", sound(func(m *sample.Module) {
			for range 65 {
				m.Imports = append(m.Imports, sample.Import{Module: "kvferry_v1", Name: "log", Rest: []byte{0, 1}})
			}
		}), OverLimit, "imports: 65, at most 64"},
		{"import of no kind", imported("m", "n", 9), Malformed, "import m.n: no import has the kind 9"},
		{"imported tag", imported("m", "n", 4, 0, 0), Unsupported, "import m.n: needs exceptions, which no policy may use"},
		{"imported memory, and another", imported("m", "n", 2, 0, 1), Forbidden, "import m.n: the memory is not among"},
		{"imported fuel", imported("env", Fuel, 3, sample.I64, 1), Forbidden, "import env.kvferry_fuel: the name is the meter's own; use another name"},
		{"exported fuel", sound(func(m *sample.Module) { m.Exports = append(m.Exports, sample.Export{Name: Fuel, Kind: 3}) }), Forbidden, "export kvferry_fuel: the name is the meter's own"},
		{"exported depth", sound(func(m *sample.Module) { m.Exports = append(m.Exports, sample.Export{Name: Depth}) }), Forbidden, "export kvferry_depth: the name is the meter's own"},
		{"start function", sound(func(m *sample.Module) { m.Start = []byte{1} }), Forbidden, "byte 59: start function: code that runs before any call is not allowed; link with -Wl,--no-entry"},
		{"start function that is not there", sound(func(m *sample.Module) { m.Start = []byte{2} }), Malformed, "start function: function 2 of 2"},
		{"exports", sound(func(m *sample.Module) {
			for i := range 65 {
				m.Exports = append(m.Exports, sample.Export{Name: fmt.Sprint(i)})
			}
		}), OverLimit, "exports: 67, at most 64"},
		{"export twice", sound(func(m *sample.Module) { m.Exports = append(m.Exports, m.Exports[0]) }), Malformed, "export f: stands twice"},
		{"export of no kind", sound(func(m *sample.Module) { m.Exports[0].Kind = 7 }), Malformed, "export f: no export has the kind 7"},
		{"export's name", sound(func(m *sample.Module) { m.Exports[0].Name = long }), OverLimit, "length of an export's name: 1025"},
		{"exported function that is not there", sound(func(m *sample.Module) { m.Exports[0].Index = 2 }), Malformed, "function index: function 2 of 2"},
		{"exported table that is not there", sound(func(m *sample.Module) { m.Exports[0].Kind, m.Exports[0].Index = 1, 1 }), Malformed, "table index: table 1 of 1"},
		{"exported memory that is not there", sound(func(m *sample.Module) { m.Exports[1].Index = 1 }), Malformed, "memory index: memory 1 of 1"},
		{"exported global that is not there", sound(func(m *sample.Module) { m.Exports[0].Kind, m.Exports[0].Index = 3, 1 }), Malformed, "global index: global 1 of 1"},
		{"globals", sound(func(m *sample.Module) {
			for range 256 {
				m.Globals = append(m.Globals, m.Globals[0])
			}
		}), OverLimit, "globals: 257, at most 256"},
		{"global's mutability", sound(func(m *sample.Module) { m.Globals[0][1] = 2 }), Malformed, "global: mutability 0x02, want 0 or 1"},
		{"global of a global that is defined", sound(func(m *sample.Module) { m.Globals = append(m.Globals, []byte{sample.I32, 0, opGlobalGet, 0, opEnd}) }), Malformed, "global index: global 0 of 0"},
		{"constant that computes", sound(func(m *sample.Module) {
			m.Globals[0] = sample.Code([]byte{sample.I32, 0}, sample.Const(1), sample.Const(2), []byte{0x6a, opEnd})
		}), Malformed, "constant expression: want one instruction and an end"},
		{"constant that is none", sound(func(m *sample.Module) { m.Globals[0] = []byte{sample.I32, 0, opLocalGet, 0, opEnd} }), Malformed, "constant expression: instruction 0x20 is not constant"},
		{"tables", sound(func(m *sample.Module) { m.Tables = append(m.Tables, m.Tables[0]) }), OverLimit, "tables: 2, at most 1 are allowed; use one table"},
		{"table's size", sound(func(m *sample.Module) { m.Tables[0] = append([]byte{sample.Func, 0}, sample.Uint(1<<27)...) }), OverLimit, "elements of a table: 134217728, at most 65536"},
		{"table with limits upside down", sound(func(m *sample.Module) { m.Tables[0] = []byte{sample.Func, 1, 2, 1} }), Malformed, "table: 2 at least and 1 at most"},
		{"table of numbers", sound(func(m *sample.Module) { m.Tables[0][0] = sample.I32 }), Malformed, "table: 0x7f is no reference type"},
		{"table of typed references", sound(func(m *sample.Module) { m.Tables[0][0] = 0x64 }), Unsupported, "table: needs typed function references"},
		{"shared memory", sound(func(m *sample.Module) { m.Memories[0] = []byte{3, 1, 1} }), Unsupported, "shared memory: needs threads, which no policy may use; compile without -pthread"},
		{"64-bit memory", sound(func(m *sample.Module) { m.Memories[0] = []byte{4, 1} }), Unsupported, "64-bit memory: needs 64-bit memories, which no policy may use; compile for wasm32"},
		{"memory's flags", sound(func(m *sample.Module) { m.Memories[0] = []byte{8, 1} }), Malformed, "memory: limits start with 0x08"},
		{"memories", sound(func(m *sample.Module) { m.Memories = append(m.Memories, m.Memories[0]) }), Unsupported, "memory: needs several memories"},
		{"memory's size", sound(func(m *sample.Module) { m.Memories[0] = append([]byte{0}, sample.Uint(257)...) }), OverLimit, "pages of memory at the start: 257, at most 256"},
		{"memory past the format's end", sound(func(m *sample.Module) { m.Memories[0] = append([]byte{0}, sample.Uint(65537)...) }), Malformed, "memory: 65537 to 65536, the format ends at 65536"},
		{"element segments", sound(func(m *sample.Module) {
			for range 256 {
				m.Elements = append(m.Elements, m.Elements[0])
			}
		}), OverLimit, "element segments: 257, at most 256"},
		{"elements", sound(func(m *sample.Module) {
			m.Elements[0] = sample.Code([]byte{0}, sample.Const(0), []byte{opEnd}, sample.Uint(70_000), make([]byte, 70_000))
		}), OverLimit, "elements of a segment: 70000, at most 65536"},
		{"elements behind the table", sound(func(m *sample.Module) {
			m.Elements[0] = sample.Code([]byte{0}, sample.Const(1), []byte{opEnd, 1, 0})
		}), OverLimit, "end of an element segment in its table: 2, at most 1 are allowed; declare a larger table"},
		{"elements behind a table that is named", sound(func(m *sample.Module) {
			m.Elements[0] = sample.Code([]byte{2, 0}, sample.Const(-1), []byte{opEnd, 0, 1, 0})
		}), OverLimit, "end of an element segment in its table: 4294967296, at most 1"},
		{"data behind the memory", sound(func(m *sample.Module) {
			m.Data[0] = sample.Code([]byte{0}, sample.Const(65535), []byte{opEnd, 2, 'x', 'y'})
		}), OverLimit, "end of a data segment in memory: 65537, at most 65536 are allowed; declare more memory"},
		{"data past 2^32", sound(func(m *sample.Module) {
			m.Data[0] = sample.Code([]byte{2, 0}, sample.Const(-2), []byte{opEnd, 2, 'x', 'y'})
		}), OverLimit, "end of a data segment in memory: 4294967296, at most 65536"},
		{"no data behind the memory", sound(func(m *sample.Module) {
			m.Data[0] = sample.Code([]byte{0}, sample.Const(65537), []byte{opEnd, 0})
		}), OverLimit, "end of a data segment in memory: 65537, at most 65536"},
		{"element segment of no form", sound(func(m *sample.Module) { m.Elements[0][0] = 8 }), Malformed, "element segment: no segment has the form 8"},
		{"elements of no kind", sound(func(m *sample.Module) { m.Elements[0] = []byte{1, 1, 0} }), Malformed, "element segment: no elements have the kind 1"},
		{"data segments", sound(func(m *sample.Module) {
			m.Data = nil
			for range 65_537 {
				m.Data = append(m.Data, []byte{1, 0})
			}
		}), OverLimit, "data segments: 65537, at most 65536"},
		{"data count", sound(func(m *sample.Module) { m.DataCount = true; m.Data = append(m.Data, []byte{3}) }), Malformed, "data segment: no segment has the form 3"},
		{"data count alone", only(12, 1), Malformed, "data section: missing, though the data count section announces 1 segments"},
		{"data count that is not kept", append(only(12, 1), sample.Section(11, []byte{2, 1, 0, 1, 0})...), Malformed, "data section: 2 segments, the data count section announces 1"},
		{"data of a memory that is not there", sound(func(m *sample.Module) {
			m.Memories = nil
			m.Exports = m.Exports[:1]
			m.Data[0] = []byte{2, 0, opI32Const, 0, opEnd, 0}
		}), Malformed, "memory index: memory 0 of 0"},

		{"body", raw(append(append([]byte{0}, repeat(256<<10, opNop)...), opEnd)...), OverLimit, "function 0: bytes of a function's body: 262146, at most 262144"},
		{"body with something behind", raw(0, opEnd, opNop), Malformed, "byte 74, function 0: function body: 1 bytes behind its end"},
		{"body without an end", raw(0, opBlock, sample.Empty, opEnd), Malformed, "function 0: instruction: cut off"},
		{"nesting", nest(1025), OverLimit, "byte 2123, function 0: nesting of blocks: 1025, at most 1024 are allowed; split the function"},
		{"blocks", code(bytes.Repeat([]byte{opBlock, sample.Empty, opEnd}, 2049), get), OverLimit, "blocks: 2049, at most 2048"},
		{"edges", code([]byte{opBlock, sample.Empty}, bytes.Repeat([]byte{opLocalGet, 0, opBrIf, 0}, 8192), []byte{opEnd}, get), OverLimit, "blocks, branches and labels: 8193, at most 8192 are allowed; split"},
		{"br_table", code(get, []byte{opBrTable}, sample.Uint(4096), repeat(4097, 0), get), OverLimit, "labels of a br_table: 4097, at most 4096 are allowed; split the switch"},
		{"br_tables", code(bytes.Repeat(sample.Code([]byte{opBlock, sample.Empty}, get, []byte{opBrTable}, sample.Uint(4095), repeat(4096, 0), []byte{opEnd}), 3), get), OverLimit, "blocks, branches and labels: 8194, at most 8192"},
		{"labels that are not there", code([]byte{opBrTable, 0xff, 0xff, 0xff, 0xff, 0x0f}), Malformed, "labels of br_table: 4294967295 of them cannot be in"},
		{"operands", code(repeat(1026, get...), repeat(1025, 0x1a)), OverLimit, "operands at a time: 1025, at most 1024"},
		{"work of a function", sound(func(m *sample.Module) {
			m.Funcs[0].Locals = repeat(1000, sample.I32)
			m.Funcs[0].Code = sample.Code(bytes.Repeat([]byte{opLoop, sample.Empty, opEnd}, 300), get)
		}), OverLimit, "function 0: work of compiling the function (branches times locals, more in loops): 1051"},
		{"work of all functions", sound(func(m *sample.Module) {
			f := sample.Function{Locals: repeat(1000, sample.I32), Code: bytes.Repeat([]byte{opBlock, sample.Empty, opEnd}, 1000)}
			for range 9 {
				m.Funcs = append(m.Funcs, sample.Function{Type: 1, Locals: f.Locals, Code: f.Code})
			}
		}), OverLimit, "function 10: work of compiling all functions up to here"},
		{"growing table without a maximum", code(sample.Code([]byte{opRefNull, sample.Func}, sample.Const(1), []byte{opMisc, 15, 0})), OverLimit, "byte 27: elements at most of a table of a module that grows tables (byte 77): 4294967295, at most 65536 are allowed; declare a maximum"},

		{"no instruction", code([]byte{0x27}), Malformed, "byte 73, function 0: opcode 0x27: is no instruction"},
		{"tail call", code([]byte{0x12, 0}), Unsupported, "byte 73, function 0: return_call (opcode 0x12): needs tail calls, which no policy may use; compile without -mtail-call"},
		{"tail call through a table", code([]byte{0x13, 0, 0}), Unsupported, "return_call_indirect (opcode 0x13): needs tail calls"},
		{"exception", code([]byte{0x08, 0}), Unsupported, "exception handling (opcode 0x08): needs exceptions, which no policy may use; compile without -fwasm-exceptions"},
		{"typed reference", code([]byte{0x14, 0}), Unsupported, "typed function reference (opcode 0x14): needs typed function references"},
		{"object", code([]byte{0xfb, 0}), Unsupported, "garbage collected object (opcode 0xfb): needs garbage collection"},
		{"atomic", code([]byte{0xfe, 0x10, 2, 0}), Unsupported, "atomic (opcode 0xfe): needs threads, which no policy may use; compile without -pthread"},
		{"relaxed vector", code([]byte{0xfd, 0x80, 2}), Unsupported, "relaxed SIMD (opcode 0xfd 256): needs relaxed SIMD, which no policy may use"},
		{"wide arithmetic", code([]byte{0xfc, 19}), Unsupported, "wide arithmetic (opcode 0xfc 19)"},
		{"no vector instruction", code([]byte{0xfd, 0x9a, 1}), Malformed, "opcode 0xfd 154: is no instruction"},
		{"vector instruction by a long number", code([]byte{0xfd, 0xae, 0x00}), Malformed, "instruction: its number 46 takes 2 bytes"},
		{"vector instruction that an engine would take for two", code([]byte{0xfd, 0xae, 0x81, 0x00}), Malformed, "instruction: its number 174 takes 3 bytes"},
		{"local that is not there", code(sample.Op(opLocalGet, 1)), Malformed, "byte 74, function 0: local index: local 1 of 1"},
		{"global that is not there", code(sample.Op(opGlobalGet, 1)), Malformed, "byte 74, function 0: global index: global 1 of 1"},
		{"function that is not there", code(sample.Op(opCall, 2)), Malformed, "function index: function 2 of 2"},
		{"label that is not there", code(get, sample.Op(opBrIf, 1)), Malformed, "label: label 1 of 1"},
		{"block of no type", code([]byte{opBlock, 2, opEnd}), Malformed, "block type: type 2 of 2"},
		{"block of a strange type", code([]byte{opBlock, 0x6e, opEnd}), Malformed, "block type: -18 is no type"},
		{"else without if", code([]byte{opBlock, sample.Empty, opElse, opEnd}), Malformed, "else: belongs to no if"},
		{"two elses", code(get, []byte{opIf, sample.Empty, opElse, opElse, opEnd}), Malformed, "else: belongs to no if"},
		{"alignment", code(get, []byte{0x28, 5, 0}), Malformed, "alignment: 2^5, want at most 2^4"},
		{"memory that is not there", code([]byte{0x3f, 1}), Malformed, "memory index: 0x01, want a zero byte"},
		{"lane that is not there", code([]byte{0xfd, 0x15, 16}), Malformed, "lane: lane 16 of 16"},
		{"shuffle", code([]byte{0xfd, 13}, repeat(16, 32)), Malformed, "lane: lane 32 of 32"},
		{"constant that is cut off", code([]byte{opF64Const, 0, 0}), Malformed, "constant: cut off: 3 bytes of 8 are there"},
		{"constant with too many bits", code([]byte{opI32Const, 0x80, 0x80, 0x80, 0x80, 0x10}), Malformed, "constant: its number has more than 32 bits"},
		{"long constant with too many bits", code([]byte{opI64Const}, repeat(9, 0x80), []byte{0x02}), Malformed, "constant: its number has more than 64 bits"},
		{"two types of a select", code([]byte{0x1c, 2, sample.I32, sample.I32}), Malformed, "types of select: 2 of them, want 1"},
		{"data segment without a count", code([]byte{opMisc, 9, 0}), Malformed, "data segment: is used, and there is no data count section"},
		{"element segment that is not there", code([]byte{opMisc, 13, 1}), Malformed, "element segment: segment 1 of 1"},
		{"reference to what is none", code([]byte{opRefNull, sample.I32}), Malformed, "reference type: 0x7f is no value type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Policy()
			l.Allowed = []Import{{"kvferry_v1", "log", Function}}
			err := Check(c.wasm, l)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want *Error", err)
			}
			if e.Kind != c.kind || !strings.Contains(e.Error(), c.want) {
				t.Errorf("%s error %q, want %s with %q", e.Kind, e, c.kind, c.want)
			}
			if e.Fault() != "policy" || e.Kind != Malformed && e.Fix == "" {
				t.Errorf("fault %q, fix %q: want the policy's and one", e.Fault(), e.Fix)
			}
		})
	}
}

func TestCheckPasses(t *testing.T) {
	for name, wasm := range map[string][]byte{
		"empty":            []byte(sample.Header),
		"sound":            sound(nil),
		"a maximum":        sound(func(m *sample.Module) { m.Memories[0] = append([]byte{1, 1}, sample.Uint(65536)...) }),
		"greedy dead code": code([]byte{opUnreachable}, repeat(2000, 0x1a), []byte{opBlock, sample.Empty, opEnd, opUnreachable}),
		"unknown customs":  sound(func(m *sample.Module) { m.Customs = []sample.Custom{{Name: "x", Data: []byte{0xff}}, {Name: "x"}} }),
		"unknown names":    sound(func(m *sample.Module) { m.Customs = []sample.Custom{{Name: "name", Data: []byte{9, 1, 0xff}}} }),
		"segments that end where there is an end": sound(func(m *sample.Module) {
			m.Elements[0] = sample.Code([]byte{0}, sample.Const(1), []byte{opEnd, 0})
			m.Data[0] = sample.Code([]byte{0}, sample.Const(65535), []byte{opEnd, 1, 'x'})
		}),
		"segments that are not placed": sound(func(m *sample.Module) {
			m.Elements[0] = []byte{1, 0, 2, 0, 0}
			m.Data[0] = append([]byte{1, 200, 1}, make([]byte, 200)...)
		}),
		"a long number": only(1, 0x80, 0x80, 0x80, 0x80, 0),
		"a table that ends": sound(func(m *sample.Module) {
			m.Tables[0] = []byte{sample.Func, 1, 1, 9}
			m.Funcs[0].Code = sample.Code([]byte{opRefNull, sample.Func}, sample.Const(1), []byte{opMisc, 15, 0})
		}),
	} {
		if err := Check(wasm, Policy()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is imported may be larger than it has to be.
	open := Policy()
	open.AnyImport = true
	if err := Check(sound(func(m *sample.Module) {
		m.Imports = []sample.Import{{Module: "m", Name: "memory", Rest: []byte{2, 0, 1}}, {Module: "m", Name: "table", Rest: []byte{1, sample.Func, 0, 1}}}
		m.Memories, m.Tables = nil, nil
		m.Elements[0] = sample.Code([]byte{0}, sample.Const(7), []byte{opEnd, 1, 0})
		m.Data[0] = sample.Code([]byte{0}, sample.Const(70000), []byte{opEnd, 1, 'x'})
	}), open); err != nil {
		t.Errorf("segments of an imported memory and table: %v", err)
	}
	if err := Check(sound(nil), Limits{}); err == nil || !strings.Contains(err.Error(), "at most 0") {
		t.Errorf("no limits at all: %v, want a refusal", err)
	}
}

// What a module claims costs nothing: Check and Meter allocate by its bytes.
func TestClaimsCostNothing(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	var hostile [][]byte
	for id := byte(1); id < 13; id++ {
		hostile = append(hostile, only(id, huge...), append([]byte(sample.Header), append([]byte{id}, huge...)...))
	}
	locals := sound(func(m *sample.Module) {
		m.Funcs[0].Raw = sample.Code([]byte{1}, []byte{0xf0, 0xff, 0xff, 0xff, 0x0f, sample.I32}, sample.Op(opLocalGet, 0), []byte{opEnd})
	})
	hostile = append(hostile, locals, code([]byte{opBrTable}, huge), code([]byte{0x1c}, huge))
	unlimited := Limits{Size: math.MaxInt, Customs: math.MaxInt, Name: math.MaxInt, Types: math.MaxInt, Params: math.MaxInt, Results: math.MaxInt, Imports: math.MaxInt,
		Functions: math.MaxInt, Tables: math.MaxInt, TableElements: math.MaxInt, MemoryPages: math.MaxInt, Globals: math.MaxInt, Exports: math.MaxInt, Elements: math.MaxInt,
		Data: math.MaxInt, Body: math.MaxInt, Locals: math.MaxInt, Stack: math.MaxInt, Nesting: math.MaxInt, Blocks: math.MaxInt, BrTable: math.MaxInt, Edges: math.MaxInt,
		Work: math.MaxInt, FunctionWork: math.MaxInt, AnyImport: true, Start: true}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, wasm := range hostile {
		err := Check(wasm, unlimited)
		if _, e := Meter(wasm, Options{}); (e == nil) != (err == nil) {
			t.Errorf("module %d: Check says %v, Meter %v", i, err, e)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes allocated for %d modules of less than 200 bytes each", got, len(hostile))
	}
	if err := Check(locals, unlimited); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// Every instruction that is enabled has an immediate, a name for none, and is in
// some random module.
func TestRandomModulesHaveEveryInstruction(t *testing.T) {
	seen := map[uint32]bool{}
	for seed := range uint64(250) {
		m, err := parse(sample.Random(seed).Wasm, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &scanner{m: m}
		for i, b := range m.bodies {
			for ok := s.open(m.imported+i, b); ok && s.next(); {
				seen[s.op] = true
			}
			if s.r.err != nil {
				t.Fatalf("seed %d: %v", seed, s.r.err)
			}
		}
	}
	var missing []string
	count := 0
	want := func(op uint32, k imm) {
		if k == immBad {
			return
		}
		count++
		if !seen[op] {
			missing = append(missing, fmt.Sprintf("%#x", op))
		}
	}
	for op := range 256 {
		if op != opMisc && op != opVector {
			want(uint32(op), immOf(byte(op)))
		}
		want(opMisc<<16|uint32(op), immMisc(uint32(op)))
		want(opVector<<16|uint32(op), immVector(uint32(op)))
	}
	if len(missing) > 0 {
		t.Errorf("no random module has %v", missing)
	}
	if count != 183+18+236 {
		t.Errorf("%d instructions, want %d", count, 183+18+236)
	}
}

// TestEffects holds the heights of the stack against the types of all
// instructions that only compute.
func TestEffects(t *testing.T) {
	n := 0
	for _, i := range sample.Pure() {
		s := &scanner{m: &module{}, frames: []byte{opBlock}, r: reader{b: i.Code, to: len(i.Code), fn: -1}}
		if !s.next() {
			t.Fatalf("%x: %v", i.Code, s.r.err)
		}
		if got, want := effect(s.op), 1-i.Takes; got != want {
			t.Errorf("%x: effect %d, want %d", i.Code, got, want)
		}
		n++
	}
	if n < 300 {
		t.Errorf("only %d instructions", n)
	}
}

// The stack is as high as the types of what closes say, wherever control gets
// to: in valid code, with which random modules are full.
func TestHeights(t *testing.T) {
	ends := 0
	for seed := range uint64(100) {
		m, err := parse(sample.Random(seed).Wasm, nil)
		if err != nil {
			t.Fatal(err)
		}
		limits := Policy()
		s := &scanner{m: m}
		w := &work{s: s, limits: &limits}
		for i, b := range m.bodies {
			s.open(m.imported+i, b)
			w.open()
			w.frames[0].gives = len(m.types[m.funcs[m.imported+i]].results)
			for s.next() {
				if top := w.frames[len(w.frames)-1]; (s.op == opEnd || s.op == opElse) && !top.dead {
					if ends++; w.height != top.base+top.gives {
						t.Fatalf("seed %d, byte %d: %d operands, want %d and %d", seed, s.start, w.height, top.base, top.gives)
					}
				}
				w.instruction()
			}
			if s.r.err != nil {
				t.Fatal(s.r.err)
			}
		}
	}
	if ends < 10_000 {
		t.Errorf("only %d ends", ends)
	}
}
