package meter

import (
	"encoding/binary"
	"slices"
)

// section is one section of a module; from and to bound its contents.
type section struct {
	id       byte
	start    int // of the id
	from, to int
	name     string // of a custom section
	payload  int    // of a custom section: where what follows the name starts
}

// The sections' ids.
const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunction  = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElement   = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
	secTag       = 13
)

// orderOf is where a section stands among the others; 0: a custom section, which
// may stand anywhere, or no section.
func orderOf(id byte) int {
	switch {
	case id == secDataCount:
		return secElement*2 + 1
	case id <= secData:
		return int(id) * 2
	}
	return 0
}

// signature is a function type; both lists are parts of the module's bytes.
type signature struct{ params, results []byte }

// span is a part of the module.
type span struct{ from, to int }

// module is what the pass and the preflight know of a module. Its lists hold
// no more elements than the module has bytes.
type module struct {
	b        []byte
	sections []section
	types    []signature
	funcs    []uint32 // types, imported functions first
	imported int      // functions of funcs
	tables   []table
	memories int
	// room is how many bytes the module's own memory has at the start; -1 where it
	// is imported, and so may have more than is declared.
	room    int64
	globals []byte // types, imported globals first
	mutable []bool // by global
	// importedGlobals is how many of globals are imported: only those may stand
	// in constant expressions of the features enabled here.
	importedGlobals int
	elements        int
	data            int    // segments by the data count section; -1: it is missing
	taken           []bool // functions that a table or a reference may hold
	bodies          []span // of the functions that are not imported: declarations and code
	exportsFrom     int    // offset of the export section's first entry
	exports         int
	globalsFrom     int // offset of the global section's first entry
}

type table struct {
	at       int // offset
	min, max uint32
	bounded  bool // it has a max
	imported bool // and so may have more than is declared
}

// parse reads a module strictly, every section and every index but the code's.
// Where limits is nil nothing but the format bounds the module.
func parse(b []byte, limits *Limits) (*module, *Error) {
	m := &module{b: b, data: -1}
	r := &reader{b: b, to: len(b), fn: -1}
	if limits != nil && len(b) > limits.Size {
		return nil, over(-1, -1, "size in bytes", uint64(len(b)), limits.Size, "strip it (-Wl,--strip-all, wasm-opt -Oz) or move tables out of it")
	}
	if len(b) < 8 || string(b[:4]) != "\x00asm" {
		return nil, malformed(0, -1, "header", "no WebAssembly module")
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != 1 {
		return nil, malformed(4, -1, "header", "version %d, want a core module of version 1 (no component)", v)
	}
	r.at = 8
	last, custom := 0, 0
	for r.more() {
		s := section{id: b[r.at], start: r.at}
		r.at++
		n := r.count(1, "section size")
		if r.err != nil {
			return nil, r.err
		}
		s.from, s.to = r.at, r.at+n
		r.at = s.to
		if s.id == secTag {
			return nil, unsupported(s.start, -1, "tag section", "exceptions", "compile without -fwasm-exceptions")
		}
		if s.id > secDataCount {
			return nil, malformed(s.start, -1, "section", "no section has the id %d", s.id)
		}
		in := &reader{b: b, at: s.from, to: s.to, fn: -1}
		if s.id == secCustom {
			custom++
			s.name = in.name("name of a custom section")
			s.payload = in.at
			if in.err == nil && limits != nil {
				if custom > limits.Customs {
					in.err = over(s.start, -1, "custom sections", uint64(custom), limits.Customs, "strip the module")
				} else if len(s.name) > limits.Name {
					in.err = over(s.from, -1, "length of a custom section's name", uint64(len(s.name)), limits.Name, "strip the module")
				}
			}
			if in.err == nil && s.name == "name" {
				names(in, limits)
			}
		} else {
			if o := orderOf(s.id); o <= last {
				return nil, malformed(s.start, -1, sectionName(s.id), "stands twice or behind a section that has to follow it")
			} else {
				last = o
			}
			m.section(in, &s, limits)
			if in.err == nil && in.at != in.to {
				in.fail(in.at, sectionName(s.id), "%d bytes too many", in.to-in.at)
			}
		}
		if in.err != nil {
			return nil, in.err
		}
		m.sections = append(m.sections, s)
	}
	if r.err != nil {
		return nil, r.err
	}
	if n := len(m.funcs) - m.imported; n != len(m.bodies) {
		return nil, malformed(-1, -1, "code section", "%d bodies for %d functions", len(m.bodies), n)
	}
	if m.data > 0 && !slices.ContainsFunc(m.sections, func(s section) bool { return s.id == secData }) {
		return nil, malformed(-1, -1, "data section", "missing, though the data count section announces %d segments", m.data)
	}
	return m, nil
}

func sectionName(id byte) string {
	return [...]string{"custom section", "type section", "import section", "function section", "table section", "memory section", "global section",
		"export section", "start section", "element section", "code section", "data section", "data count section"}[id]
}

// section reads the contents of one section that is not custom.
func (m *module) section(r *reader, s *section, limits *Limits) {
	switch s.id {
	case secType:
		m.typeSection(r, limits)
	case secImport:
		m.importSection(r, limits)
	case secFunction:
		n := r.count(1, "functions")
		r.most(limits, s.start, "functions", n, func(l *Limits) int { return l.Functions }, "link less into the module, or strip what is not called (-Wl,--gc-sections)")
		for i := 0; i < n && r.more(); i++ {
			m.funcs = append(m.funcs, m.typeIndex(r))
		}
	case secTable:
		n := r.count(3, "tables")
		for i := 0; i < n && r.err == nil; i++ {
			m.table(r, limits)
		}
	case secMemory:
		n := r.count(2, "memories")
		for i := 0; i < n && r.err == nil; i++ {
			m.memory(r, limits)
		}
	case secGlobal:
		n := r.count(4, "globals")
		r.most(limits, s.start, "globals", len(m.globals)+n, func(l *Limits) int { return l.Globals }, "keep state in memory")
		m.globalsFrom = r.at
		for i := 0; i < n && r.err == nil; i++ {
			t := m.globalType(r)
			m.constant(r)
			m.globals = append(m.globals, t)
		}
	case secExport:
		m.exportSection(r, s, limits)
	case secStart:
		at := r.at
		if i := r.u32("start function"); r.err == nil && uint64(i) >= uint64(len(m.funcs)) {
			r.fail(at, "start function", "function %d of %d", i, len(m.funcs))
		}
		if r.err == nil && limits != nil && !limits.Start {
			r.err = &Error{Kind: Forbidden, Offset: s.start, Func: -1, What: "start function", Reason: "code that runs before any call is not allowed", Fix: "link with -Wl,--no-entry and do the work in the hooks"}
		}
	case secElement:
		m.elementSection(r, s, limits)
	case secDataCount:
		m.data = int(r.u32("data count"))
		r.most(limits, s.start, "data segments", m.data, func(l *Limits) int { return l.Data }, "merge the segments")
	case secCode:
		m.codeSection(r, limits)
	case secData:
		m.dataSection(r, s, limits)
	}
}

// most refuses more of something than the limits allow.
func (r *reader) most(limits *Limits, at int, what string, got int, limit func(*Limits) int, fix string) {
	if r.err == nil && limits != nil && got > limit(limits) {
		r.err = over(at, r.fn, what, uint64(got), limit(limits), fix)
	}
}

func over(at, fn int, what string, got uint64, limit int, fix string) *Error {
	return &Error{Kind: OverLimit, Offset: at, Func: fn, What: what, Got: got, Limit: uint64(max(limit, 0)), Fix: fix}
}

func unsupported(at, fn int, what, feature, fix string) *Error {
	return &Error{Kind: Unsupported, Offset: at, Func: fn, What: what, Reason: "needs " + feature + ", which no policy may use", Fix: fix}
}

func (m *module) typeSection(r *reader, limits *Limits) {
	start := r.at
	n := r.count(3, "types")
	r.most(limits, start, "types", n, func(l *Limits) int { return l.Types }, "use fewer signatures")
	for i := 0; i < n && r.err == nil; i++ {
		at := r.at
		if form := r.u8("type"); r.err == nil && form != 0x60 {
			if form >= 0x4e && form <= 0x5f {
				r.err = unsupported(at, -1, "type", "struct, array and recursive types", "use a compiler that keeps its objects in linear memory")
			} else {
				r.fail(at, "type", "starts with %#02x, want 0x60", form)
			}
		}
		list := func(what string, limit func(*Limits) int, fix string) []byte {
			at := r.at
			n := r.count(1, what)
			r.most(limits, at, what, n, limit, fix)
			from := r.at
			for i := 0; i < n && r.err == nil; i++ {
				r.valueType(what)
			}
			return r.b[from:r.at]
		}
		t := signature{params: list("parameters of a type", func(l *Limits) int { return l.Params }, "pass a pointer to a structure")}
		t.results = list("results of a type", func(l *Limits) int { return l.Results }, "return a pointer to a structure")
		m.types = append(m.types, t)
	}
}

func (m *module) typeIndex(r *reader) uint32 {
	at := r.at
	i := r.u32("type index")
	if r.err == nil && uint64(i) >= uint64(len(m.types)) {
		r.fail(at, "type index", "type %d of %d", i, len(m.types))
	}
	return i
}

func (m *module) importSection(r *reader, limits *Limits) {
	start := r.at
	n := r.count(4, "imports")
	r.most(limits, start, "imports", n, func(l *Limits) int { return l.Imports }, "import less")
	for i := 0; i < n && r.err == nil; i++ {
		at := r.at
		from := r.name("module of an import")
		name := r.name("name of an import")
		what := "import " + printable(from) + "." + printable(name)
		kindAt := r.at
		kind := r.u8(what)
		if r.err != nil {
			return
		}
		if Reserved(name) {
			r.err = reserved(at, what)
			return
		}
		switch Extern(kind) {
		case Function:
			m.funcs = append(m.funcs, m.typeIndex(r))
			m.imported++
			m.taken = append(m.taken, false)
		case Table:
			m.table(r, limits)
			m.tables[len(m.tables)-1].imported = true
		case Memory:
			m.memory(r, limits)
			m.room = -1
		case Global:
			m.globals = append(m.globals, m.globalType(r))
			m.importedGlobals++
		case tag:
			r.err = unsupported(kindAt, -1, what, "exceptions", "compile without -fwasm-exceptions")
			return
		default:
			r.fail(kindAt, what, "no import has the kind %d", kind)
			return
		}
		if r.err == nil && limits != nil && !limits.AnyImport && !slices.Contains(limits.Allowed, Import{from, name, Extern(kind)}) {
			r.err = &Error{Kind: Forbidden, Offset: at, Func: -1, What: what, Reason: "the " + Extern(kind).String() + " is not among what may be imported: " + listed(limits.Allowed), Fix: "remove what calls for it, or link it into the module"}
		}
	}
}

// bounds reads limits; most is what a minimum and a maximum may be by the format.
func bounds(r *reader, what string, most uint64) (low, high uint32, bounded bool) {
	at := r.at
	flag := r.u8(what)
	switch {
	case r.err != nil:
	case flag == 2 || flag == 3:
		r.err = unsupported(at, -1, "shared "+what, "threads", "compile without -pthread and -matomics")
	case flag >= 4 && flag <= 7:
		r.err = unsupported(at, -1, "64-bit "+what, "64-bit memories", "compile for wasm32")
	case flag > 7:
		r.fail(at, what, "limits start with %#02x, want 0 or 1", flag)
	}
	at = r.at
	low = r.u32(what)
	high = uint32(min(most, 1<<32-1))
	if bounded = flag == 1; bounded {
		high = r.u32(what)
	}
	if r.err == nil && (uint64(low) > most || bounded && uint64(high) > most) {
		r.fail(at, what, "%d to %d, the format ends at %d", low, high, most)
	}
	if r.err == nil && low > high {
		r.fail(at, what, "%d at least and %d at most", low, high)
	}
	return low, high, bounded
}

func (m *module) table(r *reader, limits *Limits) {
	t := table{at: r.at}
	kind := r.u8("table")
	if r.err == nil && !isReference(kind) {
		if kind == 0x40 || kind == 0x63 || kind == 0x64 {
			r.err = unsupported(t.at, -1, "table", "typed function references", "compile without -mtyped-function-references")
		} else {
			r.fail(t.at, "table", "%#02x is no reference type", kind)
		}
	}
	t.min, t.max, t.bounded = bounds(r, "table", 1<<32-1)
	m.tables = append(m.tables, t)
	r.most(limits, t.at, "tables", len(m.tables), func(l *Limits) int { return l.Tables }, "use one table")
	r.most(limits, t.at, "elements of a table", int(t.min), func(l *Limits) int { return l.TableElements }, "take the address of fewer functions")
}

func (m *module) memory(r *reader, limits *Limits) {
	at := r.at
	least, _, _ := bounds(r, "memory", 65536)
	if m.memories++; m.memories > 1 && r.err == nil {
		r.err = unsupported(at, -1, "memory", "several memories", "use one memory")
	}
	m.room = int64(least) << 16
	r.most(limits, at, "pages of memory at the start", int(least), func(l *Limits) int { return l.MemoryPages }, "link with a smaller stack and less static data, or raise the limit")
}

func (m *module) globalType(r *reader) byte {
	t := r.valueType("global")
	at := r.at
	mutable := r.u8("global")
	if r.err == nil && mutable > 1 {
		r.fail(at, "global", "mutability %#02x, want 0 or 1", mutable)
	}
	m.mutable = append(m.mutable, mutable == 1)
	return t
}

func (m *module) globalIndex(r *reader, below int) uint32 {
	at := r.at
	i := r.u32("global index")
	if r.err == nil && uint64(i) >= uint64(below) {
		r.fail(at, "global index", "global %d of %d", i, below)
	}
	return i
}

// funcIndex reads a function's index and notes where the function's address is
// taken.
func (m *module) funcIndex(r *reader, taken bool) uint32 {
	at := r.at
	i := r.u32("function index")
	if r.err == nil && uint64(i) >= uint64(len(m.funcs)) {
		r.fail(at, "function index", "function %d of %d", i, len(m.funcs))
	} else if r.err == nil && taken {
		m.take(i)
	}
	return i
}

// take notes that a function's address is taken.
func (m *module) take(i uint32) {
	if n := len(m.funcs); len(m.taken) < n {
		m.taken = append(m.taken, make([]bool, n-len(m.taken))...)
	}
	m.taken[i] = true
}

// constant reads a constant expression: one instruction and an end. value is what
// it is worth as an address; -1 where that is not known, or it is none.
func (m *module) constant(r *reader) (value int64) {
	value = -1
	at := r.at
	switch op := r.u8("constant expression"); op {
	case opI32Const:
		value = int64(uint32(r.signed(32, "constant")))
	case opI64Const:
		r.signed(64, "constant")
	case opF32Const:
		r.skip(4, "constant")
	case opF64Const:
		r.skip(8, "constant")
	case opGlobalGet:
		m.globalIndex(r, m.importedGlobals)
	case opRefNull:
		m.reference(r)
	case opRefFunc:
		m.funcIndex(r, true)
	case opVector:
		if sub := r.u32("constant expression"); r.err == nil && sub != opV128Const&0xffff {
			r.fail(at, "constant expression", "vector instruction %d is not constant", sub)
		}
		r.skip(16, "constant")
	default:
		if r.err == nil {
			r.fail(at, "constant expression", "instruction %#02x is not constant", op)
		}
	}
	at = r.at
	if op := r.u8("constant expression"); r.err == nil && op != opEnd {
		r.fail(at, "constant expression", "want one instruction and an end")
	}
	return value
}

// within refuses a segment that starts at from, where that is known, and ends
// behind the room that there is for it, where that is known. With one an instance
// cannot be made; engines differ in whether they say so.
func (r *reader) within(limits *Limits, at int, what string, from, n, room int64, fix string) {
	if from >= 0 && room >= 0 && from+n > room {
		r.most(limits, at, "end of "+what, int(from+n), func(*Limits) int { return int(room) }, fix)
	}
}

// reference reads a reference type.
func (m *module) reference(r *reader) {
	at := r.at
	if t := r.u8("reference type"); r.err == nil && !isReference(t) {
		r.unknownType(at, "reference type", t)
	}
}

func (m *module) exportSection(r *reader, s *section, limits *Limits) {
	m.exports = r.count(3, "exports")
	m.exportsFrom = r.at
	r.most(limits, s.start, "exports", m.exports, func(l *Limits) int { return l.Exports }, "export the hooks and the memory only")
	seen := make(map[string]bool, min(m.exports, 1024))
	for i := 0; i < m.exports && r.err == nil; i++ {
		at := r.at
		name := r.name("name of an export")
		if r.err != nil {
			return
		}
		what := "export " + printable(name)
		r.most(limits, at, "length of an export's name", len(name), func(l *Limits) int { return l.Name }, "use a shorter name")
		if seen[name] {
			r.fail(at, what, "stands twice")
		}
		seen[name] = true
		if r.err == nil && Reserved(name) {
			r.err = reserved(at, what)
			return
		}
		kindAt := r.at
		switch kind := r.u8(what); Extern(kind) {
		case Function:
			m.funcIndex(r, false)
		case Table:
			m.tableIndex(r)
		case Memory:
			m.memoryIndex(r)
		case Global:
			m.globalIndex(r, len(m.globals))
		default:
			r.fail(kindAt, what, "no export has the kind %d", kind)
		}
	}
}

func reserved(at int, what string) *Error {
	return &Error{Kind: Forbidden, Offset: at, Func: -1, What: what, Reason: "the name is the meter's own", Fix: "use another name"}
}

func (m *module) tableIndex(r *reader) uint32 {
	at := r.at
	i := r.u32("table index")
	if r.err == nil && uint64(i) >= uint64(len(m.tables)) {
		r.fail(at, "table index", "table %d of %d", i, len(m.tables))
	}
	return i
}

func (m *module) memoryIndex(r *reader) {
	at := r.at
	if i := r.u32("memory index"); r.err == nil && uint64(i) >= uint64(m.memories) {
		r.fail(at, "memory index", "memory %d of %d", i, m.memories)
	}
}

func (m *module) elementSection(r *reader, s *section, limits *Limits) {
	n := r.count(2, "element segments")
	r.most(limits, s.start, "element segments", n, func(l *Limits) int { return l.Elements }, "merge the segments")
	m.elements = n
	for i := 0; i < n && r.err == nil; i++ {
		at := r.at
		// Bit 0: passive or declared, bit 1: with a table or declared, bit 2:
		// expressions and not indices.
		flags := r.u32("element segment")
		if r.err == nil && flags > 7 {
			r.fail(at, "element segment", "no segment has the form %d", flags)
		}
		from, room := int64(-1), int64(-1)
		if flags&1 == 0 {
			var to uint32
			if flags&2 != 0 {
				to = m.tableIndex(r)
			}
			from = m.constant(r)
			if r.err == nil && uint64(to) < uint64(len(m.tables)) && !m.tables[to].imported {
				room = int64(m.tables[to].min)
			}
		}
		if flags&3 != 0 {
			if flags&4 != 0 {
				m.reference(r)
			} else if kind := r.u8("element segment"); r.err == nil && kind != 0 {
				r.fail(at, "element segment", "no elements have the kind %d", kind)
			}
		}
		count := r.count(1, "elements")
		r.most(limits, at, "elements of a segment", count, func(l *Limits) int { return l.TableElements }, "take the address of fewer functions")
		r.within(limits, at, "an element segment in its table", from, int64(count), room, "declare a larger table, or place the elements within it")
		for i := 0; i < count && r.err == nil; i++ {
			if flags&4 != 0 {
				m.constant(r)
			} else {
				m.funcIndex(r, true)
			}
		}
	}
}

func (m *module) codeSection(r *reader, limits *Limits) {
	at := r.at
	n := r.count(2, "function bodies")
	if want := len(m.funcs) - m.imported; r.err == nil && n != want {
		r.fail(at, "code section", "%d bodies for %d functions", n, want)
	}
	for i := 0; i < n && r.err == nil; i++ {
		r.fn = m.imported + i
		at := r.at
		size := r.count(1, "function body")
		r.most(limits, at, "bytes of a function's body", size, func(l *Limits) int { return l.Body }, "split the function, or compile with -Os")
		if r.err != nil {
			return
		}
		m.bodies = append(m.bodies, span{r.at, r.at + size})
		r.at += size
	}
}

func (m *module) dataSection(r *reader, s *section, limits *Limits) {
	at := r.at
	n := r.count(2, "data segments")
	r.most(limits, s.start, "data segments", n, func(l *Limits) int { return l.Data }, "merge the segments")
	if r.err == nil && m.data >= 0 && m.data != n {
		r.fail(at, "data section", "%d segments, the data count section announces %d", n, m.data)
	}
	for i := 0; i < n && r.err == nil; i++ {
		at := r.at
		flags := r.u32("data segment")
		if r.err == nil && flags > 2 {
			r.fail(at, "data segment", "no segment has the form %d", flags)
		}
		if flags == 2 {
			m.memoryIndex(r)
		}
		from := int64(-1)
		if flags != 1 {
			from = m.constant(r)
		}
		size := r.count(1, "data segment")
		if m.memories > 0 {
			r.within(limits, at, "a data segment in memory", from, int64(size), m.room, "declare more memory, or place the data within it")
		}
		if r.err == nil {
			r.at += size
		}
	}
}

// names reads the parts of the name section that engines read: their lists too
// are made by counts.
func names(r *reader, limits *Limits) {
	for r.more() {
		id := r.u8("name section")
		n := r.count(1, "part of the name section")
		if r.err != nil {
			return
		}
		in := &reader{b: r.b, at: r.at, to: r.at + n, fn: -1}
		r.at += n
		name := func() {
			at := in.at
			s := in.name("name")
			in.most(limits, at, "length of a name", len(s), func(l *Limits) int { return l.Name }, "strip the module")
		}
		list := func() {
			for i := in.count(2, "names"); i > 0 && in.err == nil; i-- {
				in.u32("index of a name")
				name()
			}
		}
		switch id {
		case 0:
			name()
		case 1:
			list()
		case 2:
			for i := in.count(2, "names of locals"); i > 0 && in.err == nil; i-- {
				in.u32("index of a function")
				list()
			}
		default:
			in.at = in.to
		}
		if in.err == nil && in.at != in.to {
			in.fail(in.at, "name section", "%d bytes too many in part %d", in.to-in.at, id)
		}
		if in.err != nil {
			r.err = in.err
		}
	}
}
