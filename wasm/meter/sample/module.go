// Package sample puts WebAssembly modules together, by hand and at random, for
// tests. It checks nothing: what it is told to write it writes, valid or not.
package sample

import (
	"encoding/binary"
	"slices"
)

// The value types, as the format writes them.
const (
	I32    = 0x7f
	I64    = 0x7e
	F32    = 0x7d
	F64    = 0x7c
	V128   = 0x7b
	Func   = 0x70 // a reference to a function
	Extern = 0x6f // a reference to something of the host's
	Empty  = 0x40 // the type of a block that gives nothing
)

// Module is a module by its sections. Zero fields are left out.
type Module struct {
	Types     []Type
	Imports   []Import
	Funcs     []Function
	Tables    [][]byte // encoded: type and limits
	Memories  [][]byte // encoded: limits
	Globals   [][]byte // encoded: type, mutability, expression
	Exports   []Export
	Start     []byte // encoded: function index
	Elements  [][]byte
	DataCount bool
	Data      [][]byte
	Customs   []Custom // behind all other sections
}

// Type is a function type.
type Type struct{ Params, Results []byte }

// Import is an import; Rest is its kind and what follows it.
type Import struct {
	Module, Name string
	Rest         []byte
}

// Function is one function. Code is without the last end.
type Function struct {
	Type   int
	Locals []byte // types
	Code   []byte
	// Raw, where it is set, is the whole body, declarations and last end
	// included.
	Raw []byte
}

// Export is an export of any kind.
type Export struct {
	Name  string
	Kind  byte // 0: function, 1: table, 2: memory, 3: global
	Index int
}

// Custom is a custom section.
type Custom struct {
	Name string
	Data []byte
}

// Header is what every module starts with.
const Header = "\x00asm\x01\x00\x00\x00"

// Bytes encodes the module.
func (m *Module) Bytes() []byte {
	out := []byte(Header)
	vector := func(id byte, items [][]byte) {
		if len(items) > 0 {
			out = append(out, Section(id, Vector(items...))...)
		}
	}
	var types, imports, funcs, exports, codes [][]byte
	for _, t := range m.Types {
		types = append(types, slices.Concat([]byte{0x60}, Uint(len(t.Params)), t.Params, Uint(len(t.Results)), t.Results))
	}
	for _, i := range m.Imports {
		imports = append(imports, slices.Concat(Name(i.Module), Name(i.Name), i.Rest))
	}
	for _, f := range m.Funcs {
		funcs = append(funcs, Uint(f.Type))
		body := f.Raw
		if body == nil {
			body = slices.Concat(locals(f.Locals), f.Code, []byte{0x0b})
		}
		codes = append(codes, append(Uint(len(body)), body...))
	}
	for _, e := range m.Exports {
		exports = append(exports, slices.Concat(Name(e.Name), []byte{e.Kind}, Uint(e.Index)))
	}
	vector(1, types)
	vector(2, imports)
	vector(3, funcs)
	vector(4, m.Tables)
	vector(5, m.Memories)
	vector(6, m.Globals)
	vector(7, exports)
	if m.Start != nil {
		out = append(out, Section(8, m.Start)...)
	}
	vector(9, m.Elements)
	if m.DataCount {
		out = append(out, Section(12, Uint(len(m.Data)))...)
	}
	vector(10, codes)
	vector(11, m.Data)
	for _, c := range m.Customs {
		out = append(out, Section(0, append(Name(c.Name), c.Data...))...)
	}
	return out
}

// locals declares locals, those of a type that stand together as one group.
func locals(types []byte) []byte {
	var groups [][]byte
	for i := 0; i < len(types); {
		n := 1
		for i+n < len(types) && types[i+n] == types[i] {
			n++
		}
		groups = append(groups, append(Uint(n), types[i]))
		i += n
	}
	return Vector(groups...)
}

// Section is a section with its header.
func Section(id byte, contents []byte) []byte {
	return slices.Concat([]byte{id}, Uint(len(contents)), contents)
}

// Vector is a list with its length before it.
func Vector(items ...[]byte) []byte { return append(Uint(len(items)), slices.Concat(items...)...) }

// Name is a name with its length before it.
func Name(s string) []byte { return append(Uint(len(s)), s...) }

// Uint encodes an unsigned number.
func Uint(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// Int encodes a signed number.
func Int(v int64) []byte {
	var out []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(out, c)
		}
		out = append(out, c|0x80)
	}
}

// Const pushes an i32.
func Const(v int32) []byte { return append([]byte{0x41}, Int(int64(v))...) }

// Const64 pushes an i64.
func Const64(v int64) []byte { return append([]byte{0x42}, Int(v)...) }

// Op is an opcode with an index behind it.
func Op(op byte, index int) []byte { return append([]byte{op}, Uint(index)...) }

// Code joins pieces of code.
func Code(parts ...[]byte) []byte { return slices.Concat(parts...) }
