package meter

// scanner walks over a function's code and checks every instruction, immediate
// and index on its way. It is used for one body after the other.
type scanner struct {
	m      *module
	r      reader
	frames []byte // opcodes of what is open; the function itself is the first, as a block
	locals uint64 // parameters counted
	groups int    // of declared locals
	decls  int    // offset of the first group
	code   int    // offset of the first instruction

	// The instruction.
	start int    // its offset; r.at is where it ends
	op    uint32 // prefix << 16 | number
	label uint32 // of br and br_if; of br_table the outermost one
	count int    // of br_table: labels, the default counted
	index uint32 // of a call: the function
	// Values that it takes and gives: of a block by its type, of a call.
	takes, gives int
}

// open starts with the body of a function. It reports whether its declarations
// can be read.
func (s *scanner) open(fn int, b span) bool {
	s.r = reader{b: s.m.b, at: b.from, to: b.to, fn: fn}
	s.frames = append(s.frames[:0], opBlock)
	s.locals = uint64(len(s.m.types[s.m.funcs[fn]].params))
	s.groups = s.r.count(2, "groups of locals")
	s.decls = s.r.at
	for i := 0; i < s.groups && s.r.err == nil; i++ {
		at := s.r.at
		s.locals += uint64(s.r.u32("locals"))
		s.r.valueType("locals")
		// The pass adds three.
		if s.r.err == nil && s.locals > 1<<32-4 {
			s.r.fail(at, "locals", "more than 32 bits can count")
		}
	}
	s.code = s.r.at
	return s.r.err == nil
}

// depth is how many blocks are open, the function not counted.
func (s *scanner) depth() int { return len(s.frames) - 1 }

// next reads one instruction. It returns false behind the function's end, and
// on an error, which s.r.err is then.
func (s *scanner) next() bool {
	r := &s.r
	if len(s.frames) == 0 {
		if r.err == nil && r.at != r.to {
			r.fail(r.at, "function body", "%d bytes behind its end", r.to-r.at)
		}
		return false
	}
	s.start = r.at
	op := r.u8("instruction")
	if r.err != nil {
		return false
	}
	s.op = uint32(op)
	var k imm
	switch op {
	case opMisc, opVector:
		sub := r.u32("instruction")
		// A vector instruction's number may be longer than it has to be by the
		// format, and engines that take it for one byte would read another
		// instruction than we do.
		if width := r.at - s.start - 1; r.err == nil && (sub > 0xffff || op == opVector && width != len(appendUint(nil, uint64(sub)))) {
			r.fail(s.start, "instruction", "its number %d takes %d bytes", sub, width)
		}
		if r.err != nil {
			return false
		}
		s.op = uint32(op)<<16 | sub
		if op == opMisc {
			k = immMisc(sub)
		} else {
			k = immVector(sub)
		}
	default:
		k = immOf(op)
	}
	s.immediate(k)
	return r.err == nil
}

func (s *scanner) immediate(k imm) {
	r, m := &s.r, s.m
	switch k {
	case immBad:
		name, feature, fix := featureOf(s.op)
		if feature == "" {
			r.fail(s.start, name, "is no instruction")
		} else if r.err == nil {
			r.err = unsupported(s.start, r.fn, name, feature, fix)
		}
	case immNone:
		s.structure()
	case immBlock:
		s.blockType()
		s.frames = append(s.frames, byte(s.op))
	case immLabel:
		s.label = s.branch()
	case immTable:
		s.count = r.count(1, "labels of br_table") + 1
		s.label = 0
		for i := 0; i < s.count && r.err == nil; i++ {
			s.label = max(s.label, s.branch())
		}
	case immFunc:
		s.index = m.funcIndex(r, s.op == opRefFunc)
		if r.err == nil {
			s.signature(m.funcs[s.index])
		}
	case immIndirect:
		if i := m.typeIndex(r); r.err == nil {
			s.signature(i)
		}
		m.tableIndex(r)
	case immLocal:
		at := r.at
		if i := r.u32("local index"); r.err == nil && uint64(i) >= s.locals {
			r.fail(at, "local index", "local %d of %d", i, s.locals)
		}
	case immGlobal:
		m.globalIndex(r, len(m.globals))
	case immTab:
		m.tableIndex(r)
	case immMemarg:
		s.memarg()
	case immZero:
		s.zero()
	case immMemMem:
		s.zero()
		s.zero()
	case immI32:
		r.signed(32, "constant")
	case immI64:
		r.signed(64, "constant")
	case imm4:
		r.skip(4, "constant")
	case imm8:
		r.skip(8, "constant")
	case imm16:
		r.skip(16, "constant")
	case immLanes:
		for range 16 {
			s.lane(32)
		}
	case immRef:
		m.reference(r)
	case immTypes:
		at := r.at
		if n := r.count(1, "types of select"); r.err == nil && n != 1 {
			r.fail(at, "types of select", "%d of them, want 1", n)
		}
		r.valueType("type of select")
	case immDataMem:
		s.data()
		s.zero()
	case immData:
		s.data()
	case immElemTab:
		s.element()
		m.tableIndex(r)
	case immElem:
		s.element()
	case immTabTab:
		m.tableIndex(r)
		m.tableIndex(r)
	case immLane2:
		s.lane(2)
	case immLane4:
		s.lane(4)
	case immLane8:
		s.lane(8)
	case immLane16:
		s.lane(16)
	case immMemLane2:
		s.memarg()
		s.lane(2)
	case immMemLane4:
		s.memarg()
		s.lane(4)
	case immMemLane8:
		s.memarg()
		s.lane(8)
	case immMemLane16:
		s.memarg()
		s.lane(16)
	}
}

// structure follows else and end.
func (s *scanner) structure() {
	last := len(s.frames) - 1
	switch s.op {
	case opElse:
		if s.frames[last] != opIf {
			s.r.fail(s.start, "else", "belongs to no if")
			return
		}
		s.frames[last] = opElse
	case opEnd:
		s.frames = s.frames[:last]
	}
}

func (s *scanner) blockType() {
	at := s.r.at
	t := s.r.signed(33, "block type")
	s.takes, s.gives = 0, 1
	switch {
	case s.r.err != nil:
	case t >= int64(len(s.m.types)):
		s.r.fail(at, "block type", "type %d of %d", t, len(s.m.types))
	case t >= 0:
		s.signature(uint32(t))
	case t == typeEmpty-128:
		s.gives = 0
	case t < -64 || !isValueType(byte(t&0x7f)):
		s.r.fail(at, "block type", "%d is no type of the features enabled here", t)
	}
}

func (s *scanner) signature(i uint32) {
	s.takes, s.gives = len(s.m.types[i].params), len(s.m.types[i].results)
}

func (s *scanner) branch() uint32 {
	at := s.r.at
	l := s.r.u32("label")
	if s.r.err == nil && uint64(l) >= uint64(len(s.frames)) {
		s.r.fail(at, "label", "label %d of %d", l, len(s.frames))
	}
	return l
}

func (s *scanner) memarg() {
	at := s.r.at
	align := s.r.u32("alignment")
	if s.r.err == nil && align > 4 {
		s.r.fail(at, "alignment", "2^%d, want at most 2^4", align)
	}
	s.r.u32("offset")
}

// zero reads the index of the memory, which is one byte.
func (s *scanner) zero() {
	at := s.r.at
	if b := s.r.u8("memory index"); s.r.err == nil && b != 0 {
		s.r.fail(at, "memory index", "%#02x, want a zero byte", b)
	}
}

func (s *scanner) lane(below byte) {
	at := s.r.at
	if l := s.r.u8("lane"); s.r.err == nil && l >= below {
		s.r.fail(at, "lane", "lane %d of %d", l, below)
	}
}

func (s *scanner) data() {
	at := s.r.at
	i := s.r.u32("data segment")
	switch {
	case s.r.err != nil:
	case s.m.data < 0:
		s.r.fail(at, "data segment", "is used, and there is no data count section")
	case uint64(i) >= uint64(s.m.data):
		s.r.fail(at, "data segment", "segment %d of %d", i, s.m.data)
	}
}

func (s *scanner) element() {
	at := s.r.at
	if i := s.r.u32("element segment"); s.r.err == nil && uint64(i) >= uint64(s.m.elements) {
		s.r.fail(at, "element segment", "segment %d of %d", i, s.m.elements)
	}
}
