//go:build wasip1

package main

import (
	"math/bits"

	"github.com/kvferry/kvferry/wasm/sdk/go/kvferry"
)

// span is a range of heads or layers.
type span struct{ from, to uint32 }

func spanOf(r kvferry.Range) span { return span{r.From(), r.To()} }

// ranges is how many head ranges a part has; components without heads have the
// one range [0, 1).
func ranges(p kvferry.Part) uint32 { return max(p.Heads().Len(), 1) }

func rangeOf(l kvferry.List[kvferry.Range], i uint32) span {
	if l.Len() == 0 {
		return span{0, 1}
	}
	return spanOf(l.At(i))
}

// endOf is where the range of a part that holds a head ends, 0 where none does.
func endOf(p kvferry.Part, head uint32) uint32 {
	heads := p.Heads()
	for i := range max(heads.Len(), 1) {
		if g := rangeOf(heads, i); g.from <= head && head < g.to {
			return g.to
		}
		work++
	}
	return 0
}

// following is the first head from the given one on that a part holds; none
// where there is none.
func following(p kvferry.Part, head uint32) uint32 {
	least, heads := none, p.Heads()
	for i := range max(heads.Len(), 1) {
		g := rangeOf(heads, i)
		if from := max(g.from, head); from < g.to && from < least {
			least = from
		}
		work++
	}
	return least
}

const none = ^uint32(0)

// layers is the range that a part's layers lie in.
func layers(p kvferry.Part) span {
	var out span
	l := p.Layers()
	for i := range l.Len() {
		g := spanOf(l.At(i))
		if i == 0 || g.from < out.from {
			out.from = g.from
		}
		if i == 0 || g.to > out.to {
			out.to = g.to
		}
	}
	return out
}

// class is components of the group that are dealt alike.
type class struct {
	components uint64
	tied       uint64 // the classes that scales tie to it, as a mask; itself at least
	weight     uint64 // bits of one head of one layer, by token
	heads      uint32 // of the model; 0: none
}

// holders is what the source holds of one group, sorted out once a group. A
// cell is the ranks of one stage and DCP rank.
type holders struct {
	ranks       kvferry.List[kvferry.Rank]
	group, room uint32 // room: of classes
	classes     []class
	stages      []span         // range that the layers of each lie in, ascending
	held        []kvferry.Part // what ranks hold
	part        []uint32       // [rank][class]: 1 + index of held, 0: nothing
	dcp         uint32
	first       []uint32 // [stage][dcp]: 1 + the cell's first rank, 0: none
	next        []uint32 // [rank]: 1 + the next rank of its cell, 0: none
	load        []uint64 // [rank]: bits served of a token, of all groups
}

// zeros is room for n words; ok is false where that is more than this policy
// does.
func zeros(n uint64) (words []uint32, ok bool) {
	if n > maxTable {
		return nil, false
	}
	return make([]uint32, n), true
}

// classOf is the class of just these components, added where it is new and
// there is room; the number of classes where there is none.
func (h *holders) classOf(components uint64, add bool) uint32 {
	c := 0
	for c < len(h.classes) && h.classes[c].components != components {
		c++
	}
	work += uint64(c)
	if c == len(h.classes) && add && c < maxClasses {
		h.classes = append(h.classes, class{components, 1 << c, 1, 0})
	}
	return uint32(c)
}

// tie finds out which classes scales tie together, and what a head weighs.
func (h *holders) tie(components kvferry.List[kvferry.Component]) {
	for i := range components.Len() {
		c := components.At(i)
		scales, tied := c.Scales(), uint64(0)
		for k := range h.classes {
			own := &h.classes[k]
			if own.components>>i&1 == 1 {
				own.heads = c.Heads()
				own.weight += uint64(c.Dim()) * uint64(c.Bits()) / uint64(max(c.TokensPerEntry(), 1))
			}
			if own.components>>i&1 == 1 || scales > 0 && scales <= 64 && own.components>>(scales-1)&1 == 1 {
				tied |= own.tied
			}
		}
		for k := range h.classes {
			if tied>>k&1 == 1 {
				h.classes[k].tied = tied
			}
		}
	}
	work += uint64(components.Len()) * 2 * uint64(len(h.classes))
}

// stageOf is the stage with the layers of a part, added where it is new; none
// where the part has none, or the ranks have more stages than they are.
func (h *holders) stageOf(p kvferry.Part) uint32 {
	own, s := layers(p), len(h.stages)
	for s > 0 && h.stages[s-1].from > own.from {
		s--
	}
	work += uint64(p.Layers().Len()) + uint64(len(h.stages)-s)
	if s > 0 && h.stages[s-1].from == own.from {
		return uint32(s - 1)
	}
	if own.from >= own.to || len(h.stages) == int(h.ranks.Len()) {
		return none
	}
	h.stages = append(h.stages, span{})
	copy(h.stages[s+1:], h.stages[s:])
	h.stages[s] = own
	return uint32(s)
}

// collect fills in h; false where the group is too large for this policy.
func (h *holders) collect(group kvferry.Group) bool {
	n := h.ranks.Len()
	h.classes, h.stages, h.held = h.classes[:0], h.stages[:0], h.held[:0]
	var ok, too bool
	h.part, ok = zeros(uint64(n) * uint64(h.room))
	h.next, too = zeros(uint64(n))
	if !ok || !too || uint64(n)*2 > maxTable {
		return false
	}
	for i := uint32(0); i < n && work <= maxWork; i++ {
		parts := h.ranks.At(i).Parts()
		for k := uint32(0); k < parts.Len() && work <= maxWork; k++ {
			if p := parts.At(k); p.Group() == h.group {
				c := h.classOf(p.Components(), len(h.classes) < int(h.room))
				if c < uint32(len(h.classes)) && h.stageOf(p) != none {
					h.held = append(h.held, p)
					h.part[i*h.room+c] = uint32(len(h.held))
				}
			}
			work++
		}
	}
	if len(h.held) == 0 {
		return true
	}
	h.tie(group.Components())
	h.dcp = h.held[len(h.held)-1].DCPSize()
	if h.dcp == 0 || h.dcp > maxTable || work > maxWork {
		return false
	}
	if h.first, ok = zeros(uint64(len(h.stages)) * uint64(h.dcp)); !ok {
		return false
	}
	// Backwards, so that each chain ascends.
	for i := n; i > 0 && work <= maxWork; i-- {
		var p *kvferry.Part
		for c := uint32(0); int(c) < len(h.classes) && p == nil; c++ {
			p = h.of(i-1, c)
			work++
		}
		if p == nil || p.DCPPhase() >= h.dcp {
			continue
		}
		first := &h.first[h.stageOf(*p)*h.dcp+p.DCPPhase()]
		h.next[i-1] = *first
		*first = i
	}
	return work <= maxWork
}

// of is what a source rank holds of a class; nil for nothing.
func (h *holders) of(rank, c uint32) *kvferry.Part {
	if i := h.part[rank*h.room+c]; i > 0 {
		return &h.held[i-1]
	}
	return nil
}

func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shares reports whether any token lies on both parts' DCP ranks.
func shares(a, b kvferry.Part) bool {
	n, m := uint64(a.DCPInterleave()), uint64(b.DCPInterleave())
	g := divisor(n*uint64(a.DCPSize()), m*uint64(b.DCPSize()))
	if g == 0 {
		return false
	}
	x, y := n*uint64(a.DCPPhase())%g, m*uint64(b.DCPPhase())%g
	return (y+g-x)%g < n || (x+g-y)%g < m
}

// box is an assignment that heads are still added to.
type box struct {
	source, to uint32 // source 0: none
	w          kvferry.Assignment
}

// target is a destination rank that is served from one cell.
type target struct {
	want       [maxClasses]kvferry.Part // by class of the group
	wants      uint64                   // the classes that it has, as a mask
	open       [maxClasses]box
	rank, cell uint32
	layers     span
	tokens     *kvferry.Part // of the source
}

// holds is up to where a source rank holds a head, and those that follow it, in
// all classes of a set; 0 where it does not.
func (h *holders) holds(rank uint32, set uint64, head uint32) uint32 {
	end := none
	for ; set != 0; set &= set - 1 {
		e := uint32(0)
		if p := h.of(rank, uint32(bits.TrailingZeros64(set))); p != nil {
			e = endOf(*p, head)
		}
		end = min(end, e)
	}
	return end
}

// holdsAll reports whether a source rank holds every head that the destination
// rank wants of a set of classes.
func (h *holders) holdsAll(t *target, rank uint32, set uint64) bool {
	for ; set != 0; set &= set - 1 {
		c := bits.TrailingZeros64(set)
		heads := t.want[c].Heads()
		for i := range ranges(t.want[c]) {
			g := rangeOf(heads, i)
			for head := g.from; head < g.to; {
				if head = h.holds(rank, 1<<c, head); head == 0 {
					return false
				}
			}
		}
	}
	return true
}

// pick is the least loaded source rank of the cell that holds a head, or all
// that are wanted where that is none, in all classes of a set; of those the
// first. 1 + its index, 0 where there is none.
func (h *holders) pick(t *target, set uint64, head uint32) uint32 {
	best := uint32(0)
	for i := h.first[t.cell]; i != 0 && work <= maxWork; i = h.next[i-1] {
		if best == 0 || h.load[i-1] < h.load[best-1] {
			if head == none && h.holdsAll(t, i-1, set) || head != none && h.holds(i-1, set, head) > 0 {
				best = i
			}
		}
		work++
	}
	return best
}

// answer is what is written so far.
type answer struct {
	*kvferry.Answer
	list    kvferry.Records[kvferry.Assignment]
	written uint32
}

// put says that heads of a class come from a source rank: in the box before
// where that goes on.
func (h *holders) put(a *answer, t *target, c, s, from, to uint32) {
	b := &t.open[c]
	if b.source != s || b.to != from {
		w := a.list.Add(a.Answer)
		a.written++
		b.source, b.w = s, w
		w.SetComponents(h.classes[c].components)
		w.SetGroup(h.group)
		w.SetDestination(t.rank)
		w.SetSource(h.ranks.At(s - 1).Rank())
		w.SetLayerFrom(t.layers.from)
		w.SetLayerTo(t.layers.to)
		w.SetHeadFrom(from)
		if t.tokens.DCPSize() > 1 {
			w.SetTokenSize(t.tokens.DCPSize())
			w.SetTokenInterleave(t.tokens.DCPInterleave())
			w.SetTokenPhase(t.tokens.DCPPhase())
		}
	}
	b.to = to
	b.w.SetHeadTo(to)
	h.load[s-1] += h.classes[c].weight * uint64(to-from) * uint64(t.layers.to-t.layers.from)
}

// walk serves the wanted heads of a set of classes in ascending order: a head
// of all of them that want it from one source rank, which is whole where that is
// not 0.
func (h *holders) walk(a *answer, t *target, all uint64, whole uint32) {
	for set := all; set != 0; set &= set - 1 {
		t.open[bits.TrailingZeros64(set)].source = 0
	}
	for from, before := uint32(0), uint32(0); work <= maxWork && a.written <= maxAssignments; {
		head, end := none, none
		for set := all; set != 0; set &= set - 1 {
			head = min(head, following(t.want[bits.TrailingZeros64(set)], from))
		}
		if head == none {
			return
		}
		if head != from {
			before = 0
		}
		wanted := uint64(0)
		for set := all; set != 0; set &= set - 1 {
			c := bits.TrailingZeros64(set)
			e := endOf(t.want[c], head)
			if e != 0 {
				wanted |= 1 << c
			} else {
				e = following(t.want[c], head)
			}
			end = min(end, e)
		}
		s := whole
		if s == 0 && before != 0 && h.holds(before-1, wanted, head) != 0 {
			s = before
		} else if s == 0 {
			s = h.pick(t, wanted, head)
		}
		e := head + 1 // nobody has it: the proof will name it
		if s != 0 {
			e = h.holds(s-1, wanted, head)
		}
		end = min(end, e)
		if s != 0 {
			for set := wanted; set != 0; set &= set - 1 {
				h.put(a, t, uint32(bits.TrailingZeros64(set)), s, head, end)
			}
		}
		before, from = s, end
	}
}

// serve serves a destination rank from one cell. Classes that scales tie
// together and that have equally many heads are served head by head; where their
// heads do not match, since some have none, one rank must have them all.
func (h *holders) serve(a *answer, t *target) {
	work += uint64(len(h.classes))
	for left := t.wants; left != 0; {
		first := bits.TrailingZeros64(left)
		set, alike, whole := h.classes[first].tied&left, uint64(0), uint32(0)
		for m := set; m != 0; m &= m - 1 {
			if c := bits.TrailingZeros64(m); h.classes[c].heads == h.classes[first].heads {
				alike |= 1 << c
			}
			work++
		}
		if alike != set {
			whole = h.pick(t, set, none)
		}
		if whole != 0 {
			for m := set; m != 0; m &= m - 1 {
				h.walk(a, t, m&-m, whole)
			}
		} else { // where it had to be one rank, the proof will name what comes apart
			set = alike
			h.walk(a, t, set, 0)
		}
		left &^= set
	}
}

// matchGroup writes what serves the destination's parts of one group; false
// where the group is too large for this policy.
func (h *holders) matchGroup(group kvferry.Group, destination kvferry.List[kvferry.Rank], t *target, a *answer) bool {
	if !h.collect(group) {
		return false
	}
	for i := uint32(0); i < destination.Len() && work <= maxWork; i++ {
		r := destination.At(i)
		parts := r.Parts()
		var d kvferry.Part
		found := false
		t.wants = 0
		work += uint64(len(h.classes))
		for k := uint32(0); k < parts.Len() && work <= maxWork; k++ {
			if p := parts.At(k); p.Group() == h.group {
				if c := h.classOf(p.Components(), false); int(c) < len(h.classes) {
					t.want[c], d, found = p, p, true
					t.wants |= 1 << c
				}
			}
			work++
		}
		if found {
			t.rank = r.Rank()
			h.matchRank(d, t, a)
		}
		if a.written > maxAssignments {
			break
		}
		work++
	}
	return true
}

// matchRank serves one destination rank from each cell that has something of
// what it wants.
func (h *holders) matchRank(d kvferry.Part, t *target, a *answer) {
	wanted := layers(d)
	for stage := uint32(0); int(stage) < len(h.stages) && work <= maxWork; stage++ {
		have := h.stages[stage]
		t.layers = span{max(have.from, wanted.from), min(have.to, wanted.to)}
		for dcp := uint32(0); t.layers.from < t.layers.to && dcp < h.dcp && work <= maxWork; dcp++ {
			t.cell = stage*h.dcp + dcp
			if h.first[t.cell] != 0 {
				t.tokens = nil
				for c := uint32(0); t.tokens == nil; c++ {
					t.tokens = h.of(h.first[t.cell]-1, c)
				}
				if shares(*t.tokens, d) {
					h.serve(a, t)
				}
			}
			work++
		}
		work++
	}
}

func matchHeads(q kvferry.RemapIn, a *kvferry.Answer, r kvferry.RemapOut) kvferry.Status {
	sides := q.Sides()
	if sides.Len() != 2 {
		return a.Nothing(kvferry.StatusBadInput)
	}
	h := &holders{ranks: sides.At(0).Ranks()}
	destination := sides.At(1).Ranks()
	var line kvferry.Line
	fits := uint64(h.ranks.Len())*2 <= maxTable
	if fits {
		h.load = make([]uint64, h.ranks.Len())
	}
	alternatives := kvferry.NewRecords[kvferry.Alternative](a)
	alternative := alternatives.Add(a)
	out, t := &answer{a, kvferry.NewRecords[kvferry.Assignment](a), 0}, new(target)
	groups := q.Groups()
	for g := range groups.Len() {
		group := groups.At(g)
		h.group, h.room = g, group.Components().Len()
		if h.room < 1 || h.room > maxClasses {
			return a.Nothing(kvferry.StatusBadInput)
		}
		fits = fits && h.matchGroup(group, destination, t, out)
		if out.written > maxAssignments || work > maxWork {
			line.Say("the pair takes more assignments, or more time, than this policy gives it")
			return kvferry.Refuse[kvferry.RemapOut](a, kvferry.StatusUnsupported, &line)
		}
		if !fits {
			line.Say("the source has more ranks times components than this policy looks at")
			return kvferry.Refuse[kvferry.RemapOut](a, kvferry.StatusUnsupported, &line)
		}
	}
	serving := uint64(0)
	for _, l := range h.load {
		if l > 0 {
			serving++
		}
	}
	line.Say("heads matched in ").SayNumber(uint64(out.written))
	if out.written == 1 {
		line.Say(" assignment, ")
	} else {
		line.Say(" assignments, ")
	}
	line.SayNumber(serving).Say(" of ").SayNumber(uint64(h.ranks.Len())).Say(" source ranks serve")
	r.SetReason(line.Text(a))
	alternative.SetAssignments(out.list)
	r.SetAlternatives(alternatives)
	return kvferry.StatusOk
}
