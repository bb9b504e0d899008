package meter

// work adds up what compiling a module takes, and holds each function to its
// limits. It follows the height of the operand stack, not what is on it.
type work struct {
	s      *scanner
	limits *Limits
	total  uint64 // of all functions so far, in units of Limits.Work
	before uint64 // of the functions before this one

	height int
	blocks int
	edges  int
	loops  int // open
	frames []height
}

// height is what an open block started with.
type height struct {
	base         int // what lies below its own operands
	takes, gives int
	loop, dead   bool
}

// open starts with the function that the scanner has opened.
func (w *work) open() {
	s := w.s
	w.height, w.blocks, w.edges, w.loops, w.before = 0, 0, 0, 0, w.total
	w.frames = append(w.frames[:0], height{})
	if l := w.limits; s.locals > uint64(max(l.Locals, 0)) {
		s.r.err = over(s.decls, s.r.fn, "locals", s.locals, l.Locals, "keep arrays in memory, or split the function")
	}
}

// close adds what depends on the function as a whole.
func (w *work) close() {
	const cheap = 32 // looks at an edge for each unit
	w.add(uint64(w.edges) * uint64(w.edges) / cheap)
}

func (w *work) add(units uint64) {
	s := w.s
	if s.r.err != nil {
		return
	}
	w.total += units
	const fix = "split functions with many branches and locals, or compile with -Os"
	if l := w.limits; w.total-w.before > uint64(max(l.FunctionWork, 0)) {
		s.r.err = over(s.start, s.r.fn, "work of compiling the function (branches times locals, more in loops)", w.total-w.before, l.FunctionWork, fix)
	} else if w.total > uint64(max(l.Work, 0)) {
		s.r.err = over(s.start, s.r.fn, "work of compiling all functions up to here (branches times locals, more in loops)", w.total, l.Work, fix)
	}
}

// flow counts edges, each of which carries the function's values.
func (w *work) flow(edges, weight int) {
	s := w.s
	w.edges += edges
	s.r.most(w.limits, s.start, "blocks, branches and labels", w.edges, func(l *Limits) int { return l.Edges }, "split the function, or compile with -Os")
	// No product of numbers that the limits bound overflows; where they do not,
	// the bounds here keep it from doing so.
	values := min(s.locals+uint64(w.height), 1<<31)
	w.add(min(uint64(edges), 1<<16) * values * uint64(min(weight+w.loops, 1<<16)))
}

func (w *work) instruction() {
	s := w.s
	if s.r.err != nil {
		return
	}
	top := &w.frames[len(w.frames)-1]
	switch s.op {
	case opBlock, opLoop, opIf:
		w.blocks++
		s.r.most(w.limits, s.start, "blocks", w.blocks, func(l *Limits) int { return l.Blocks }, "split the function, or compile with -Os")
		s.r.most(w.limits, s.start, "nesting of blocks", s.depth(), func(l *Limits) int { return l.Nesting }, "split the function")
		if s.op == opIf {
			w.pop(1)
		}
		w.pop(s.takes)
		f := height{base: w.height, takes: s.takes, gives: s.gives, loop: s.op == opLoop, dead: top.dead}
		w.frames = append(w.frames, f)
		w.height += s.takes
		if f.loop {
			w.flow(1, 5)
			w.loops++
		} else {
			w.flow(1, 1)
		}
	case opElse:
		w.height, top.dead = top.base+top.takes, w.frames[len(w.frames)-2].dead
	case opEnd:
		w.height = top.base + top.gives
		if top.loop {
			w.loops--
		}
		w.frames = w.frames[:len(w.frames)-1]
	case opBr:
		w.flow(1, 3)
		w.end(top)
	case opBrTable:
		s.r.most(w.limits, s.start, "labels of a br_table", s.count, func(l *Limits) int { return l.BrTable }, "split the switch, or compile with -fno-jump-tables")
		w.flow(s.count, 1)
		w.end(top)
	case opReturn, opUnreachable:
		w.end(top)
	case opBrIf:
		w.pop(1)
		w.flow(1, 3)
	case opCall, opCallIndirect:
		if s.op == opCallIndirect {
			w.pop(1)
		}
		w.pop(s.takes)
		w.push(s.gives)
	default:
		if n := effect(s.op); n < 0 {
			w.pop(-n)
		} else {
			w.push(n)
		}
	}
	s.r.most(w.limits, s.start, "operands at a time", w.height, func(l *Limits) int { return l.Stack }, "split the function, or pass a pointer to a structure")
}

func (w *work) push(n int) { w.height += n }

// pop takes operands away; dead code may take more than there are.
func (w *work) pop(n int) {
	w.height = max(w.height-n, w.frames[len(w.frames)-1].base)
}

// end is where control does not go on.
func (w *work) end(top *height) { w.height, top.dead = top.base, true }
