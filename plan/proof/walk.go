package proof

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// A walk takes one run apart. The run is a nest of loops over bits; walking
// the destination's tree from the root, each loop is resolved at the node
// whose stride it moves: a loop of stride k times the node's moves its digit by
// k; a loop that is carried from one repetition of the node into the next is
// divided there, and one that fits no such pattern is cut in two. What arrives
// at a leaf is a product of loops, each of which moves one digit, so the
// destination's coordinates are a start and one distance a loop. The same is
// then done with the source's tree, which may divide and cut further. At its
// leaf the two coordinates are compared: equal starts and equal distances along
// equal axes say that every element of the product comes from where it should.

// loop is one loop of a cell.
type loop struct {
	n     int64
	here  int64 // bits a step on the side that is walked
	there int64 // bits a step at the source, while the destination is walked
	level int   // of the node whose digit it moves, -1 while that is open
	step  int64 // by how much it moves the digit
	// The destination's coordinate, known once its tree was walked.
	axis  geometry.Axis
	delta int64
}

// bit is the axis of the loop over the bits of one element.
const bit = geometry.Axis(255)

// cell is a product of loops that starts at bit x of the side that is walked.
type cell struct {
	x, source        int64 // source: while the destination is walked
	component        int
	head, token, dim int64 // start at the destination
	loops            []loop
}

// walker holds what is fixed while one run is walked.
type walker struct {
	c              *checker
	run            *plan.Run
	piece          *plan.Piece
	source, dest   *holder
	sourceRoot     *node
	sourceBase     int64
	sourceClass    int // of block digits
	destClass      int
	values, origin []int64 // digits of the destination and the source by level
	atSource       bool
	emit           func(cell)
}

// decide is true where every bit that the run moves comes from where it should;
// emit is called for each cell. It says nothing about how often an element is
// written. False also stands for what this arithmetic does not decide.
func (w *walker) decide(dest *node, destBase int64) bool {
	r := w.run
	loops := make([]loop, 0, len(r.Loops)+4)
	x, y := r.DestinationOffset*8-destBase, r.SourceOffset*8
	for _, l := range r.Loops {
		if l.Count == 1 {
			continue
		}
		here, there := l.DestinationStride*8, l.SourceStride*8
		if here < 0 { // the other way round: the same copies
			x += (l.Count - 1) * here
			y += (l.Count - 1) * there
			here, there = -here, -there
		}
		if here == 0 || there == 0 {
			return false
		}
		loops = append(loops, loop{n: l.Count, here: here, there: there, level: -1})
	}
	loops = append(loops, loop{n: r.Bytes * 8, here: 1, there: 1, level: -1})
	if l := dest.leafAt(r.DestinationOffset*8 - destBase); l == nil || l.component != r.Component {
		return false
	}
	return w.at(dest, cell{x: x, source: y, loops: loops})
}

// open is the distance from the first to the last bit of the open loops.
func (c *cell) open() int64 {
	var s int64
	for i := range c.loops {
		if l := &c.loops[i]; l.level < 0 {
			s += (l.n - 1) * l.here
		}
	}
	return s
}

// at walks cell c at node n. The cell's loops are not modified. It calls itself
// for what a cut leaves in one repetition only, so that it never goes deeper
// than loops and nodes are nested, however often it cuts.
func (w *walker) at(n *node, c cell) bool {
	for w.c.cell() {
		open := c.open()
		if c.x < 0 || c.x+open >= n.size {
			return false
		}
		if n.leaf != nil {
			if w.atSource {
				return w.sourceLeaf(n.leaf, c)
			}
			return w.destLeaf(n.leaf, c)
		}
		var cut int
		var keep int64 // steps of loop cut to part from the others; 0: none
		if n.parts != nil {
			p := n.behind(c.x)
			if p < 0 {
				return false
			}
			end := n.parts[p].at + n.parts[p].node.size
			if c.x >= end {
				return false
			}
			if c.x+open < end {
				c.x -= n.parts[p].at
				n = n.parts[p].node
				continue
			}
			cut, keep = crossing(&c, end)
		} else {
			cut, keep = w.turn(n, &c)
		}
		if keep == 0 {
			w.digits()[n.level] = c.x / n.stride
			c.x %= n.stride
			n = n.child
			continue
		}
		one, two := c.cut(cut, keep)
		if !w.at(n, one) {
			return false
		}
		c = two
	}
	return false
}

// digits is where the values of the side that is walked are kept.
func (w *walker) digits() []int64 {
	if w.atSource {
		return w.origin
	}
	return w.values
}

// turn decides which loops of c move the digit of loop node n, dividing those
// that are carried from one repetition into the next. Where that needs a cut,
// it says at which loop and after how many steps.
func (w *walker) turn(n *node, c *cell) (cut int, keep int64) {
	x, open := c.x%n.stride, c.open()
	if open >= n.stride {
		// Loops as large as the stride move this digit.
		cloned := false
		for i, l := range c.loops {
			if l.level >= 0 || l.here < n.stride {
				continue
			}
			if l.here%n.stride != 0 {
				return i, 1
			}
			if !cloned {
				c.loops, cloned = slices.Clone(c.loops), true
			}
			c.loops[i].level, c.loops[i].step = n.level, l.here/n.stride
		}
		open = c.open()
	}
	for x+open >= n.stride {
		i, fit := crossing(c, c.x-x+n.stride)
		l := c.loops[i]
		m := n.stride / l.here
		switch {
		case n.stride%l.here != 0 || fit != m:
			return i, fit
		case l.n%m != 0:
			return i, l.n / m * m
		}
		c.loops = slices.Clone(c.loops)
		c.loops[i].n = m
		l.n /= m
		l.here, l.there, l.delta = n.stride, l.there*m, l.delta*m
		l.level, l.step = n.level, 1
		c.loops = append(c.loops, l)
		open = c.open()
	}
	return 0, 0
}

// crossing returns the open loop of smallest distance that, with the smaller
// ones, reaches bit end, and how many of its steps do not.
//
// Preconditions: c.x < end <= c.x + c.open().
func crossing(c *cell, end int64) (i int, fit int64) {
	var buf [32]int
	order := buf[:0]
	for k := range c.loops {
		if c.loops[k].level >= 0 {
			continue
		}
		at := len(order)
		for at > 0 && c.loops[order[at-1]].here > c.loops[k].here {
			at--
		}
		order = slices.Insert(order, at, k)
	}
	rest := c.x
	for _, i = range order {
		l := &c.loops[i]
		if rest+(l.n-1)*l.here >= end {
			return i, (end-1-rest)/l.here + 1
		}
		rest += (l.n - 1) * l.here
	}
	panic("proof: crossing called for a cell that crosses nothing")
}

// cut parts the first k steps of loop i from the others.
//
// Preconditions: 0 < k < c.loops[i].n.
func (c *cell) cut(i int, k int64) (one, two cell) {
	one, two = *c, *c
	one.loops, two.loops = slices.Clone(c.loops), slices.Clone(c.loops)
	one.loops[i].n = k
	l := &two.loops[i]
	l.n -= k
	two.x += k * l.here
	two.source += k * l.there
	two.move(l.axis, k*l.delta)
	one.drop(i)
	two.drop(i)
	return one, two
}

// drop removes loop i where it has one step only.
func (c *cell) drop(i int) {
	if c.loops[i].n == 1 {
		c.loops = slices.Delete(c.loops, i, i+1)
	}
}

// move moves the start along an axis.
func (c *cell) move(axis geometry.Axis, by int64) {
	switch axis {
	case geometry.Head:
		c.head += by
	case geometry.Token:
		c.token += by
	case geometry.Dim:
		c.dim += by
	}
}

// resolve turns the digit values of a leaf into coordinates, added to c. It
// refuses values that the leaf's digits do not have, which are those of a
// neighbour that repeats more often, and every block but the first: with block
// id 0 all addresses of a run lie in rows of block 0, so with another id they
// lie in the same rows of that one.
func resolve(l *leaf, values []int64, loops []loop, c *cell) bool {
	for i, d := range l.digits {
		last := values[i]
		for k := range loops {
			if o := &loops[k]; o.level == i {
				last += o.step * (o.n - 1)
			}
		}
		if last >= d.count || d.axis == geometry.Block && last != 0 {
			return false
		}
		c.move(d.axis, values[i]*d.div)
	}
	return true
}

// whole reports whether the open loops are exactly the bits of one element,
// and returns that loop.
func (c *cell) whole(bits int64) (int, bool) {
	if c.x != 0 {
		return 0, false
	}
	found := -1
	for i, l := range c.loops {
		if l.level >= 0 {
			continue
		}
		if found >= 0 || l.here != 1 || l.n != bits {
			return 0, false
		}
		found = i
	}
	return found, found >= 0
}

// destLeaf goes on at the source.
func (w *walker) destLeaf(l *leaf, c cell) bool {
	one, ok := c.whole(l.bits)
	if !ok || w.dest.form.block[l.m] != w.destClass || w.dest.parts[l.component].unit != w.dest.parts[w.run.Component].unit {
		return false
	}
	next := cell{x: c.source - w.sourceBase, component: l.component, loops: make([]loop, len(c.loops), len(c.loops)+4)}
	if !resolve(l, w.values, c.loops, &next) {
		return false
	}
	for i, o := range c.loops {
		n := loop{n: o.n, here: o.there, level: -1, axis: bit}
		if i != one {
			d := l.digits[o.level]
			if d.axis == geometry.Block {
				return false
			}
			n.axis, n.delta = d.axis, o.step*d.div
		}
		if n.here < 0 { // backwards at the source: count from the other end
			next.x += (n.n - 1) * n.here
			next.move(n.axis, (n.n-1)*n.delta)
			n.here, n.delta = -n.here, -n.delta
		}
		next.loops[i] = n
	}
	w.atSource = true
	ok = w.at(w.sourceRoot, next)
	w.atSource = false
	return ok
}

// sourceLeaf compares the two sides.
func (w *walker) sourceLeaf(l *leaf, c cell) bool {
	one, ok := c.whole(l.bits)
	if !ok || c.loops[one].axis != bit || l.component != c.component || w.source.form.block[l.m] != w.sourceClass {
		return false
	}
	var from cell
	if !resolve(l, w.origin, c.loops, &from) || from.dim != c.dim {
		return false
	}
	q := w.piece
	token, ok := position(from.token-q.SourceToken, c.token-q.DestinationToken, q)
	if !ok {
		return false
	}
	low, high := token, token
	sp, dp := &w.source.parts[c.component], &w.dest.parts[c.component]
	linear := sp.step != 0 && dp.step != 0
	if sp.heads[from.head] != dp.heads[c.head] {
		return false
	}
	heads := false
	for i := range c.loops {
		if i == one {
			continue
		}
		o := &c.loops[i]
		d := l.digits[o.level]
		if d.axis != o.axis {
			return false
		}
		delta := o.step * d.div
		switch d.axis {
		case geometry.Dim:
			if delta != o.delta {
				return false
			}
		case geometry.Token:
			e, ok := position(delta, o.delta, q)
			if !ok || q.Count == 1 {
				return false
			}
			low += min(e, 0) * (o.n - 1)
			high += max(e, 0) * (o.n - 1)
		case geometry.Head:
			if linear && delta*sp.step != o.delta*dp.step {
				return false
			}
			heads = true
		default: // a block, or the bits of an element
			return false
		}
	}
	if low < 0 || high >= q.Count {
		return false
	}
	if heads && !linear && !w.headsOneByOne(c.loops, l, sp.heads, dp.heads, from.head, c.head) {
		return false
	}
	w.emit(c)
	return true
}

// position returns how many steps of the piece the distances are, which must
// be the same on both sides.
func position(source, destination int64, q *plan.Piece) (int64, bool) {
	if q.Count == 1 {
		return 0, source == 0 && destination == 0
	}
	j := source / q.SourceStep
	return j, j*q.SourceStep == source && j*q.DestinationStep == destination
}

// headsOneByOne compares model heads at each step of the head loops.
func (w *walker) headsOneByOne(loops []loop, l *leaf, sources, dests []int, source, dest int64) bool {
	for i := range loops {
		o := &loops[i]
		if o.axis != geometry.Head {
			continue
		}
		delta := o.step * l.digits[o.level].div
		for k := range o.n {
			if !w.headsOneByOne(loops[i+1:], l, sources, dests, source+k*delta, dest+k*o.delta) {
				return false
			}
		}
		return true
	}
	return w.c.spend(1) && sources[source] == dests[dest]
}
