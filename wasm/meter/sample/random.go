package sample

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Case is a random module and how to call it.
type Case struct {
	Wasm  []byte
	Funcs []Callable
}

// Callable is an exported function; its types are numbers and vectors.
type Callable struct {
	Name   string
	Params []byte
	// Results are its results' types.
	Results []byte
}

// ImportModule and ImportName are what a random module imports: a function from
// i32 to i32.
const (
	ImportModule = "env"
	ImportName   = "f"
)

// Random makes a valid module from a seed: the same from the same seed. Its
// functions end, by a result or by a trap: they call only functions with lower
// indices, loops count down, and one function, "deep", calls itself as often as
// its parameter says. Not a number has one pattern of bits in it, so that all
// engines agree on every bit.
func Random(seed uint64) *Case {
	g := &generator{
		r: rand.New(rand.NewPCG(seed, 0x6b7666)), m: &Module{DataCount: true}, pure: pure(), loads: loads(), stores: stores(),
		blocks: map[string]int{},
	}
	g.module()
	c := &Case{Wasm: g.m.Bytes()}
	for _, e := range g.m.Exports {
		if e.Kind == 0 {
			t := g.m.Types[g.types[e.Index]]
			c.Funcs = append(c.Funcs, Callable{e.Name, t.Params, t.Results})
		}
	}
	return c
}

type generator struct {
	r      *rand.Rand
	m      *Module
	pure   map[byte][]instruction
	loads  []access
	stores []access
	types  []int // of functions, by index
	work   []int // what a call of a function takes, about
	// blocks are the types of blocks with several results or parameters.
	blocks map[string]int

	// The function.
	code    []byte
	locals  []byte
	free    int // locals from here on are the generator's own
	labels  []label
	budget  int // of instructions to write
	loops   int // how often the current code runs, about
	spent   int // what the function takes, about
	results []byte
}

type label struct {
	types []byte
	loop  bool
}

// most is what a function may take, about.
const most = 20_000

// Global indices by type, mutable ones.
var numeric = []byte{I32, I64, F32, F64, V128}

const (
	constantTable = 8 // slots of table 0 that nothing writes to
	tableSize     = 16
	importedFuncs = 1
)

func (g *generator) pick(list []byte) byte   { return list[g.r.IntN(len(list))] }
func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *generator) typeOf(params, results []byte) int {
	i := slices.IndexFunc(g.m.Types, func(t Type) bool { return slices.Equal(t.Params, params) && slices.Equal(t.Results, results) })
	if i < 0 {
		i = len(g.m.Types)
		g.m.Types = append(g.m.Types, Type{params, results})
	}
	return i
}

func (g *generator) list(most int) []byte {
	out := make([]byte, g.r.IntN(most+1))
	for i := range out {
		out[i] = g.pick(numeric)
	}
	return out
}

func (g *generator) module() {
	m := g.m
	imported := g.typeOf([]byte{I32}, []byte{I32})
	m.Imports = []Import{{ImportModule, ImportName, append([]byte{0}, Uint(imported)...)}}
	g.types, g.work = []int{imported}, []int{20}
	m.Memories = [][]byte{{1, 1, 3}}
	m.Tables = [][]byte{{Func, 1, tableSize, 2 * tableSize}, {Extern, 1, tableSize, 2 * tableSize}}
	for i, t := range numeric {
		m.Globals = append(m.Globals, Code([]byte{t, 1}, g.zero(t), []byte{0x0b}), Code([]byte{t, 0}, g.constant(t), []byte{0x0b}))
		m.Exports = append(m.Exports, Export{fmt.Sprintf("global%d", i), 3, 2 * i})
	}
	m.Globals = append(m.Globals, []byte{Func, 1, 0xd0, Func, 0x0b}, []byte{Extern, 1, 0xd0, Extern, 0x0b}, []byte{Func, 0, 0xd2, 0, 0x0b})
	m.Exports = append(m.Exports, Export{"memory", 2, 0})

	// The first is what table calls and references reach.
	n := 3 + g.r.IntN(5)
	for i := range n {
		params, results := g.list(4), g.list(3)
		if i == 0 {
			params, results = nil, nil
		}
		g.types = append(g.types, g.typeOf(params, results))
		m.Funcs = append(m.Funcs, Function{Type: g.types[importedFuncs+i]})
		g.function(i, 60+g.r.IntN(240))
		m.Exports = append(m.Exports, Export{fmt.Sprintf("f%d", i), 0, importedFuncs + i})
	}
	// deep(n): n == 0 ? 0 : deep(n-1) + 1
	deep := importedFuncs + len(m.Funcs)
	g.types = append(g.types, imported)
	m.Funcs = append(m.Funcs, Function{Type: imported, Code: Code(
		Op(0x20, 0), []byte{0x45, 0x04, I32}, Const(0), []byte{0x05},
		Op(0x20, 0), Const(1), []byte{0x6b}, Op(0x10, deep), Const(1), []byte{0x6a, 0x0b})})
	m.Exports = append(m.Exports, Export{"deep", 0, deep})

	// Table slots hold the functions in order, and the last of them nothing.
	var indices, exprs [][]byte
	for i := range min(n, constantTable-1) {
		indices = append(indices, Uint(importedFuncs+i))
	}
	for range 6 {
		e := Code([]byte{0xd2}, Uint(g.r.IntN(importedFuncs+n)), []byte{0x0b})
		if g.chance(30) {
			e = []byte{0xd0, Func, 0x0b}
		}
		exprs = append(exprs, e)
	}
	declared := [][]byte{Uint(0)}
	for i := range n {
		declared = append(declared, Uint(importedFuncs+i))
	}
	m.Elements = [][]byte{
		Code([]byte{0}, Const(0), []byte{0x0b}, Vector(indices...)),
		Code([]byte{5, Func}, Vector(exprs...)),
		Code([]byte{1, 0}, Vector(indices...)),
		Code([]byte{3, 0}, Vector(declared...)),
	}
	m.Data = [][]byte{
		Code([]byte{0}, Const(int32(g.r.IntN(4000))), []byte{0x0b}, Name(string(g.bytes(40)))),
		Code([]byte{1}, Name(string(g.bytes(64)))),
	}
	if g.chance(25) {
		m.Start = Uint(importedFuncs)
	}
	m.Customs = []Custom{{"producers", []byte{0}}, {"name", Code([]byte{1}, Name(string(Vector(Code(Uint(1), Name("first"))))))}}
}

func (g *generator) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(g.r.Uint32())
	}
	return out
}

// zero is an instruction that pushes a constant zero.
func (g *generator) zero(t byte) []byte {
	switch t {
	case I32:
		return Const(0)
	case I64:
		return Const64(0)
	case F32:
		return []byte{0x43, 0, 0, 0, 0}
	case F64:
		return []byte{0x44, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	return append([]byte{0xfd, 12}, make([]byte, 16)...)
}

// constant is an instruction that pushes one.
func (g *generator) constant(t byte) []byte {
	small := func() int64 { return int64(g.r.IntN(200) - 100) }
	switch t {
	case I32:
		if g.chance(70) {
			return Const(int32(small()))
		}
		return Const(int32(g.r.Uint32()))
	case I64:
		if g.chance(70) {
			return Const64(small())
		}
		return Const64(int64(g.r.Uint64()))
	case F32:
		v := float32(small()) / 4
		if g.chance(10) {
			v = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, math.SmallestNonzeroFloat32}[g.r.IntN(4)]
		}
		return binary.LittleEndian.AppendUint32([]byte{0x43}, math.Float32bits(v))
	case F64:
		v := float64(small()) / 4
		if g.chance(10) {
			v = []float64{math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}[g.r.IntN(4)]
		}
		return binary.LittleEndian.AppendUint64([]byte{0x44}, math.Float64bits(v))
	case V128:
		return append([]byte{0xfd, 12}, g.bytes(16)...)
	}
	return []byte{0xd0, t}
}

// function writes the body of the i-th function.
func (g *generator) function(i, budget int) {
	f := &g.m.Funcs[i]
	t := g.m.Types[f.Type]
	g.code, g.budget, g.loops, g.spent = nil, budget, 1, 0
	g.locals = slices.Clone(t.Params)
	g.locals = append(g.locals, g.list(6)...)
	g.locals = append(g.locals, Func, Extern)
	g.free = len(g.locals)
	g.results = t.Results
	g.labels = []label{{types: t.Results}}
	for g.budget > 0 && g.spent < most {
		g.statement(0)
	}
	for _, r := range t.Results {
		g.value(r, 1)
	}
	f.Code = g.code
	f.Locals = g.locals[len(t.Params):]
	g.work = append(g.work, g.spent+10)
}

func (g *generator) emit(parts ...[]byte) {
	for _, p := range parts {
		g.code = append(g.code, p...)
	}
	g.budget--
	g.spent += g.loops
}

// own adds a local of the generator's.
func (g *generator) own(t byte) int {
	g.locals = append(g.locals, t)
	return len(g.locals) - 1
}

// local returns a local of a type that code may use, or -1.
func (g *generator) local(t byte) int {
	var all []int
	for i, l := range g.locals[:g.free] {
		if l == t {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return -1
	}
	return all[g.r.IntN(len(all))]
}

// blockType is the type of a block that takes and gives values.
func (g *generator) blockType(params, results []byte) []byte {
	if len(params) == 0 && len(results) == 0 {
		return []byte{Empty}
	}
	if len(params) == 0 && len(results) == 1 {
		return results
	}
	return Int(int64(g.typeOf(params, results)))
}

func global(t byte) int { return 2 * slices.Index(numeric, t) }

// value writes code that pushes a value.
func (g *generator) value(t byte, depth int) {
	if t == Func || t == Extern {
		g.reference(t)
		return
	}
	if depth > 4 || g.budget <= 0 {
		g.leaf(t)
		return
	}
	switch g.r.IntN(20) {
	case 0, 1, 2:
		g.leaf(t)
	case 3, 4, 5, 6, 7, 8, 9:
		g.compute(t, depth)
	case 10, 11:
		g.load(t, depth)
	case 12: // select
		g.value(t, depth+1)
		g.value(t, depth+1)
		g.value(I32, depth+1)
		if g.chance(50) {
			g.emit([]byte{0x1c, 1, t})
		} else {
			g.emit([]byte{0x1b})
		}
	case 13: // if with a result
		g.value(I32, depth+1)
		g.emit([]byte{0x04, t})
		g.nested(label{types: []byte{t}}, func() {
			g.statements(2, depth+1)
			g.value(t, depth+1)
			g.code = append(g.code, 0x05)
			g.statements(1, depth+1)
			g.value(t, depth+1)
		})
	case 14: // a block with a result, which may be left
		g.emit([]byte{0x02, t})
		g.nested(label{types: []byte{t}}, func() {
			g.statements(2, depth+1)
			g.value(t, depth+1)
			if g.chance(50) {
				g.value(I32, depth+1)
				g.emit(Op(0x0d, 0))
			}
		})
	case 15:
		g.calling(t, depth)
	case 16: // local.tee
		if l := g.local(t); l >= 0 {
			g.value(t, depth+1)
			g.emit(Op(0x22, l))
		} else {
			g.leaf(t)
		}
	case 17:
		g.lane(t, depth)
	case 18: // a loop that carries a value around
		g.value(t, depth+1)
		g.loop([]byte{t}, []byte{t}, func() {
			if l := g.local(t); l >= 0 {
				g.emit(Op(0x22, l))
			}
			g.statements(1, depth+2)
		})
	default:
		g.size(t)
	}
}

// leaf pushes a value in one instruction.
func (g *generator) leaf(t byte) {
	l := g.local(t)
	switch {
	case l >= 0 && g.chance(60):
		g.emit(Op(0x20, l))
	case g.chance(30):
		g.emit(Op(0x23, global(t)+g.r.IntN(2)))
	default:
		g.emit(g.constant(t))
	}
}

// size pushes the size of the memory or of a table, or leaves that be.
func (g *generator) size(t byte) {
	if t != I32 {
		g.leaf(t)
		return
	}
	switch g.r.IntN(4) {
	case 0:
		g.emit([]byte{0x3f, 0})
	case 1:
		g.emit([]byte{0xfc, 16, byte(g.r.IntN(2))})
	case 2:
		g.emit(Const(int32(g.r.IntN(2))))
		g.emit([]byte{0x40, 0})
	case 3:
		kind := g.r.IntN(2)
		g.reference([]byte{Func, Extern}[kind])
		g.emit(Const(int32(g.r.IntN(3))))
		g.emit([]byte{0xfc, 15, byte(kind)})
	}
}

func (g *generator) reference(t byte) {
	l := g.local(t)
	switch {
	case l >= 0 && g.chance(40):
		g.emit(Op(0x20, l))
	case t == Func && g.chance(40):
		g.emit(Op(0xd2, g.r.IntN(importedFuncs+len(g.m.Funcs))))
	case g.chance(40):
		g.emit(Const(int32(g.r.IntN(tableSize))))
		g.emit([]byte{0x25, Func - t}) // table 0 or 1
	case g.chance(40):
		g.emit(Op(0x23, 2*len(numeric)+int(Func-t)))
	default:
		g.emit([]byte{0xd0, t})
	}
}

func (g *generator) compute(t byte, depth int) {
	list := g.pure[t]
	i := list[g.r.IntN(len(list))]
	for i.trunc && !g.chance(10) {
		i = list[g.r.IntN(len(list))]
	}
	for n, p := range i.takes {
		g.value(p, depth+1)
		if i.divide && n == 1 && !g.chance(3) { // no zero
			if t == I32 {
				g.emit(Const(1), []byte{0x72})
			} else {
				g.emit(Const64(1), []byte{0x84})
			}
		}
	}
	g.emit(i.code)
	if i.floats != 0 {
		g.canonicalVector(i.floats)
	} else {
		g.canonical(t)
	}
}

// canonical replaces every not-a-number on the stack by one pattern of bits.
func (g *generator) canonical(t byte) {
	if t != F32 && t != F64 {
		return
	}
	l := g.own(t)
	nan, equal := binary.LittleEndian.AppendUint32([]byte{0x43}, 0x7fc00000), byte(0x5b)
	if t == F64 {
		nan, equal = binary.LittleEndian.AppendUint64([]byte{0x44}, 0x7ff8000000000000), 0x61
	}
	g.emit(Op(0x22, l), nan, Op(0x20, l), Op(0x20, l), []byte{equal, 0x1b})
}

func (g *generator) canonicalVector(lane byte) {
	l := g.own(V128)
	nan, equal := []byte{0xfd, 12}, []byte{0xfd, 0x41}
	for len(nan) < 18 {
		if lane == F32 {
			nan = binary.LittleEndian.AppendUint32(nan, 0x7fc00000)
		} else {
			nan = binary.LittleEndian.AppendUint64(nan, 0x7ff8000000000000)
		}
	}
	if lane == F64 {
		equal[1] = 0x47
	}
	g.emit(Op(0x22, l), nan, Op(0x20, l), Op(0x20, l), equal, []byte{0xfd, 0x52})
}

// address pushes an address; nearly always one that leaves room for any access.
func (g *generator) address(depth int) {
	g.value(I32, depth+1)
	if !g.chance(1) {
		g.emit(Const(0xffc0), []byte{0x71})
	}
}

func (g *generator) memarg(a access) []byte {
	return append(Uint(g.r.IntN(a.align+1)), Uint(g.r.IntN(16))...)
}

func (g *generator) load(t byte, depth int) {
	for {
		a := g.loads[g.r.IntN(len(g.loads))]
		if a.kind != t {
			continue
		}
		g.address(depth)
		if a.lanes > 0 {
			g.value(V128, depth+1)
			g.emit(a.code, g.memarg(a), []byte{byte(g.r.IntN(a.lanes))})
		} else {
			g.emit(a.code, g.memarg(a))
		}
		g.canonical(t)
		return
	}
}

// lane takes a value out of a vector, or puts one in, or shuffles two.
func (g *generator) lane(t byte, depth int) {
	g.value(V128, depth+1)
	switch t {
	case I32:
		n := g.r.IntN(5)
		g.emit([]byte{0xfd, []byte{0x15, 0x16, 0x18, 0x19, 0x1b}[n], byte(g.r.IntN([]int{16, 16, 8, 8, 4}[n]))})
	case I64:
		g.emit([]byte{0xfd, 0x1d, byte(g.r.IntN(2))})
	case F32:
		g.emit([]byte{0xfd, 0x1f, byte(g.r.IntN(4))})
	case F64:
		g.emit([]byte{0xfd, 0x21, byte(g.r.IntN(2))})
	case V128:
		n := g.r.IntN(7)
		if n == 6 {
			g.value(V128, depth+1)
			lanes := g.bytes(16)
			for i := range lanes {
				lanes[i] %= 32
			}
			g.emit([]byte{0xfd, 13}, lanes)
			return
		}
		g.value([]byte{I32, I32, I32, I64, F32, F64}[n], depth+1)
		g.emit([]byte{0xfd, []byte{0x17, 0x1a, 0x1c, 0x1e, 0x20, 0x22}[n], byte(g.r.IntN([]int{16, 8, 4, 2, 4, 2}[n]))})
	}
	g.canonical(t)
}
