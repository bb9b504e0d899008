package meter

import (
	"cmp"
	"slices"
)

// A plan says what the pass puts into one function.
//
// Fuel is charged ahead: a function pays on entry, and a loop at the head of
// every round, for all that can run until the next charge. What runs only under
// a condition (an arm of an if, what follows a br_if) pays for itself where it
// is large, and is paid for ahead together with what precedes it where it is
// small, whether it runs or not: a charge for every few instructions would cost
// more than they do. So a charge is never less than what it pays for, and
// exceeds it by tolerance at most.
type plan struct {
	edits  []edit
	entry  int64 // what entering costs
	total  int64 // what all its instructions cost together
	size   int   // bytes of its body
	locals uint64
	groups int // of declared locals
	decls  int // offset of the first group
	code   int // offset of the first instruction
	loops  bool
	sizes  bool // it has instructions that are charged by size
	calls  []uint32
	// indirect says that it calls through tables.
	indirect bool
	leaf     bool // it calls nothing
	fills    bool // it fills memory, or copies it
	copies   bool
}

const (
	// A charge of its own for what costs at least this.
	threshold = 32
	// What a charge may include, at most, of what may not run.
	tolerance = 128
)

type editKind byte

const (
	// In the order in which they go to one place.
	editReload  editKind = iota // fuel is read back after a call
	editLoopEnd                 // what is around a loop ends
	editCharge                  // the bucket is charged
	editRound                   // the bucket is charged at the head of a loop that has something around it
	editCheck                   // the bucket is charged, and refilled for where that leaves less than nothing
	editLoop                    // what is around a loop begins; its type is text
	editStore                   // fuel is written back before a call
	editSize                    // the size on top of the stack is charged, shifted by value
	editReturn                  // a return is replaced by a branch to label value
	editReplace                 // an instruction is replaced by text
	editFill                    // an instruction that fills memory is replaced by a call
	editCopy                    // and one that copies it
)

type edit struct {
	at     int // offset into the module
	kind   editKind
	skip   int   // bytes there that are left out
	value  int64 // a cost, a shift or a label
	bucket int   // whose cost the value is to be
	text   []byte
}

// bucket is a stretch of code that runs as a whole once it is entered, but for
// traps, and what was merged into it.
type bucket struct {
	at     int
	cost   int64
	merged int64    // the part of cost that may not run
	parent int      // the bucket that always runs before this one
	own    bool     // charged where it starts
	kind   editKind // how
}

// region is an open block, loop or condition, or the function.
type region struct {
	dead  bool // it cannot be entered
	leaks bool // something in it leaves it other than by its end
	outer int  // the bucket in which it starts
	first int  // the first bucket within
	// around says that three blocks go around it: it is a loop.
	around bool
}

type planner struct {
	s       *scanner
	p       *plan
	buckets []bucket
	regions []region
	current int
	dead    bool // the current instruction cannot be reached
}

// plan scans the body of a function and plans its charges.
func (q *planner) plan(fn int, body span) (*plan, *Error) {
	s := q.s
	if !s.open(fn, body) {
		return nil, s.r.err
	}
	q.p = &plan{size: body.to - body.from, locals: s.locals, groups: s.groups, decls: s.decls, code: s.code, leaf: true}
	q.buckets = append(q.buckets[:0], bucket{at: s.code, cost: costEntry, own: true})
	q.regions = append(q.regions[:0], region{first: 1})
	q.current, q.dead = 0, false
	for s.next() {
		q.instruction()
	}
	if s.r.err != nil {
		return nil, s.r.err
	}
	for i, b := range q.buckets {
		if !b.own {
			continue
		}
		q.p.total += b.cost
		if i > 0 && b.cost > 0 {
			q.p.edits = append(q.p.edits, edit{at: b.at, kind: b.kind, value: b.cost})
		}
	}
	for i := range q.p.edits {
		if d := &q.p.edits[i]; d.kind == editLoop {
			d.value = q.buckets[d.bucket].cost
		}
	}
	q.p.entry = q.buckets[0].cost
	slices.SortStableFunc(q.p.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind))
	})
	return q.p, nil
}

func (q *planner) instruction() {
	s := q.s
	if !q.dead {
		q.buckets[q.current].cost += costOf(s.op)
	}
	switch s.op {
	case opBlock, opLoop, opIf:
		q.regions = append(q.regions, region{dead: q.dead, outer: q.current, first: len(q.buckets)})
		if !q.dead && s.op == opLoop {
			q.p.loops = true
			q.start(q.current)
			q.loop()
		} else if !q.dead && s.op == opIf {
			q.start(q.current)
		}
	case opElse:
		g := &q.regions[len(q.regions)-1]
		q.settle(g.first)
		if q.dead = g.dead; !q.dead {
			q.start(g.outer)
		}
	case opEnd:
		g := q.regions[len(q.regions)-1]
		q.regions = q.regions[:len(q.regions)-1]
		q.settle(g.first)
		q.dead, q.current = g.dead, g.outer
		if g.around {
			q.edit(edit{at: s.r.at, kind: editLoopEnd})
		}
		if !q.dead && g.leaks && len(q.regions) > 0 {
			q.start(g.outer)
		}
	case opBr, opBrTable:
		q.relabel()
		q.leave(int(s.label))
		q.dead = true
	case opBrIf:
		q.relabel()
		q.leave(int(s.label))
		if !q.dead {
			q.start(q.current)
		}
	case opReturn:
		q.leave(len(q.regions))
		if !q.dead {
			q.edit(edit{at: s.start, kind: editReturn, value: int64(q.label(len(q.regions) - 1))})
		}
		q.dead = true
	case opUnreachable:
		q.dead = true
	case opCall, opCallIndirect:
		q.call()
	default:
		if shift, ok := bulkShift(s.op); ok && !q.dead {
			q.p.sizes = true
			q.edit(edit{at: s.start, kind: editSize, value: int64(shift)})
			switch s.op {
			case opMemoryFill:
				q.p.fills = true
				q.edit(edit{at: s.start, kind: editFill, skip: s.r.at - s.start})
			case opMemoryCopy:
				q.p.copies = true
				q.edit(edit{at: s.start, kind: editCopy, skip: s.r.at - s.start})
			}
		}
	}
}

func (q *planner) call() {
	s := q.s
	if q.dead {
		return
	}
	q.p.leaf = false
	switch {
	case s.op == opCallIndirect:
		q.p.indirect = true
	case int(s.index) < s.m.imported:
		q.buckets[q.current].cost += costLeave
	default:
		q.p.calls = append(q.p.calls, s.index)
	}
	q.edit(edit{at: s.start, kind: editStore})
	q.edit(edit{at: s.r.at, kind: editReload})
}

func (q *planner) edit(d edit) { q.p.edits = append(q.p.edits, d) }

// around is how many blocks the pass puts around a loop.
const around = 3

// loop plans the head of the loop that the current instruction begins. One with
// parameters is left as it is, and refills within.
func (q *planner) loop() {
	s := q.s
	b, g := &q.buckets[q.current], &q.regions[len(q.regions)-1]
	b.own, b.kind = true, editCheck
	if s.takes > 0 {
		return
	}
	b.kind, g.around = editRound, true
	q.edit(edit{at: s.start, kind: editLoop, text: s.m.b[s.start+1 : s.r.at], bucket: q.current})
}

// label is what a label becomes: blocks that the pass puts around loops are
// counted.
func (q *planner) label(l int) int {
	to := l
	for i := len(q.regions) - 1; i > len(q.regions)-1-l; i-- {
		if q.regions[i].around {
			to += around
		}
	}
	return to
}

// relabel plans for a branch out of loops.
func (q *planner) relabel() {
	s := q.s
	if q.label(int(s.label)) == int(s.label) {
		return
	}
	r := &reader{b: s.r.b, at: s.start + 1, to: s.r.at}
	text := []byte{byte(s.op)}
	n := 1
	if s.op == opBrTable {
		n = int(r.u32("labels"))
		text = appendUint(text, uint64(n))
		n++
	}
	for range n {
		text = appendUint(text, uint64(q.label(int(r.u32("label")))))
	}
	q.edit(edit{at: s.start, kind: editReplace, skip: s.r.at - s.start, text: text})
}

// start begins a bucket behind the current instruction.
func (q *planner) start(parent int) {
	q.current = len(q.buckets)
	q.buckets = append(q.buckets, bucket{at: q.s.r.at, parent: parent, kind: editCharge})
}

// leave notes that the regions inside the one with the label are left.
func (q *planner) leave(label int) {
	if q.dead {
		return
	}
	for i := len(q.regions) - 1; i >= 0 && label > 0; i, label = i-1, label-1 {
		q.regions[i].leaks = true
	}
}

// settle decides for the buckets from first on, whose region ends here, which
// are charged where they start and which with their parents.
func (q *planner) settle(first int) {
	for i := len(q.buckets) - 1; i >= first; i-- {
		b := &q.buckets[i]
		if b.own || b.cost == 0 {
			continue
		}
		parent := &q.buckets[b.parent]
		if b.cost >= threshold || parent.merged+b.cost > tolerance {
			b.own = true
			continue
		}
		parent.cost += b.cost
		parent.merged += b.cost
		b.cost = 0
	}
}
