package proof

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// unit is what the tokens of a component are counted in: entries of so many
// tokens each, which move with the last of them, or with the first where they
// scale other rows. Pieces count in the unit of the components that their runs
// move; the one state of a slot counts as one token.
type unit struct {
	tokens int64
	first  bool
}

// single is the unit of most components.
var single = unit{tokens: 1}

func unitOf(c *geometry.Component) unit {
	if c.Entry <= 1 {
		return single
	}
	return unit{int64(c.Entry), c.Scales != ""}
}

// within is the range of entries that a window moves.
func (u unit) within(w *plan.Period) (from, to int64) {
	if u.first {
		return (w.From + u.tokens - 1) / u.tokens, (w.To + u.tokens - 1) / u.tokens
	}
	return w.From / u.tokens, w.To / u.tokens
}

// holder is what one rank holds of one group, read from the shard by this
// package's own arithmetic.
type holder struct {
	layers []int
	parts  []share // by component
	phase  int64   // of the dealing of tokens
	block  int64   // tokens
	form   *form
}

// share is what one rank holds of one component.
type share struct {
	heads []int // model head by place on the rank; [0] for a component without heads
	// step is the distance of neighbours in heads where it is the same for
	// all (1 for a single head), 0 where the list follows no such rule.
	step int64
	unit unit
	dealt
}

// dealt says how entries are dealt to a rank and paged on it.
type dealt struct{ ranks, chunk, phase, block int64 }

// grid is where in an engine's grid a rank stands, by axis.
type grid [4]int

func gridOf(s *shard.Spec, r int) grid {
	if s.Places != nil {
		return grid{shard.PP: s.Places[r].PP, shard.TP: s.Places[r].TP, shard.DCP: s.Places[r].DCP}
	}
	var at grid
	size := grid{shard.PP: len(s.Stages), shard.TP: s.TP, shard.DCP: s.DCPSize}
	for rest, i := r, len(s.Order)-1; i >= 0; i-- {
		axis := s.Order[i]
		at[axis] = rest % size[axis]
		rest /= size[axis]
	}
	return at
}

// hold reads what a rank at a place of the grid holds of g. It returns a reason
// where the shard or the block parts an entry.
func hold(s *shard.Spec, g *geometry.Group, at grid, block int) (*holder, string) {
	h := &holder{phase: int64(at[shard.DCP]), block: int64(block), parts: make([]share, len(g.Components))}
	first := 0
	for i := range at[shard.PP] {
		first += s.Stages[i]
	}
	for i, l := range g.Layers {
		if first <= l && l-first < s.Stages[at[shard.PP]] {
			if h.layers == nil {
				h.layers = make([]int, 0, min(len(g.Layers)-i, s.Stages[at[shard.PP]]))
			}
			h.layers = append(h.layers, l)
		}
	}
	tokens := dealt{int64(s.DCPSize), int64(s.Interleave), h.phase, h.block}
	if tokens.ranks == 1 {
		tokens.chunk = 1 // however many are dealt at a time, to one rank
	}
	for i := range g.Components {
		c := &g.Components[i]
		p := &h.parts[i]
		if i > 0 && c.Heads == g.Components[i-1].Heads && c.Unit == g.Components[i-1].Unit {
			p.heads, p.step = h.parts[i-1].heads, h.parts[i-1].step
		} else {
			p.heads = headsOf(s, c, at[shard.TP])
			p.step = distance(p.heads)
		}
		p.unit, p.dealt = unitOf(c), tokens
		if n := p.unit.tokens; n > 1 {
			if tokens.block%n != 0 || tokens.ranks > 1 && tokens.chunk%n != 0 {
				return nil, fmt.Sprintf("it parts the entries of %d tokens that component %s has", n, c.Name)
			}
			p.block /= n
			if p.ranks > 1 {
				p.chunk /= n
			}
		}
	}
	return h, ""
}

// headsOf are the model's heads of a component on TP rank t: a list that the
// shard gives, or whole units of neighbours. Rank t of T holds the units from
// t*n/T: n/T of them, or the one that it shares where there are more ranks than
// units.
func headsOf(s *shard.Spec, c *geometry.Component, t int) []int {
	switch {
	case c.Heads == 0:
		return []int{0}
	case s.Heads != nil:
		return s.Heads[t]
	}
	wide := max(c.Unit, 1)
	n := c.Heads / wide
	heads := make([]int, 0, max(n/s.TP, 1)*wide)
	for len(heads) < cap(heads) {
		heads = append(heads, t*n/s.TP*wide+len(heads))
	}
	return heads
}

// distance is that of neighbours, 0 where they differ in it.
func distance(heads []int) int64 {
	if len(heads) == 1 {
		return 1
	}
	d := heads[1] - heads[0]
	for i := 2; i < len(heads); i++ {
		if heads[i]-heads[i-1] != d {
			return 0
		}
	}
	return int64(d)
}

// due is the range of the rank's places of a component that a window moves.
func (s *share) due(w *plan.Period) (from, to int64) {
	from, to = s.unit.within(w)
	return s.below(from), s.below(to)
}

// token is the first canonical token of the entry at a place.
func (s *share) token(place int64) int64 { return s.canonical(place) * s.unit.tokens }

// below counts the canonical entries smaller than t that the rank holds. Since
// entries keep their order, it is also the local place of t where t is held.
func (d dealt) below(t int64) int64 {
	lap := d.ranks * d.chunk
	return t/lap*d.chunk + min(max(t%lap-d.phase*d.chunk, 0), d.chunk)
}

// holds reports whether the rank holds canonical entry t.
func (d dealt) holds(t int64) bool { return t/d.chunk%d.ranks == d.phase }

// canonical is the entry at local place u.
func (d dealt) canonical(u int64) int64 {
	return u/d.chunk*d.ranks*d.chunk + d.phase*d.chunk + u%d.chunk
}

// repeats reports whether a period of n entries is blocks whole table entries
// of the rank, and the dealing repeats with it.
func (d dealt) repeats(n, blocks int64) bool {
	if d.ranks > 1 && n%(d.ranks*d.chunk) != 0 {
		return false
	}
	return n%d.ranks == 0 && n/d.ranks%d.block == 0 && n/d.ranks/d.block == blocks
}

// sequence returns the local places of entries t, t+step, ... (n of them): the
// first, and their distance where it is the same for all. spend is called with
// the number of entries looked at one by one.
//
// Preconditions: t >= 0, step >= 1, n >= 1, no overflow.
func (d dealt) sequence(t, step, n int64, spend func(int64) bool) (first, distance int64, ok bool) {
	if !d.holds(t) {
		return 0, 0, false
	}
	first = d.below(t)
	last := t + (n-1)*step
	switch {
	case n == 1:
		return first, 0, true
	case d.ranks == 1, t/d.chunk == last/d.chunk:
		return first, step, true
	case step%(d.ranks*d.chunk) == 0:
		return first, step / d.ranks, true
	}
	if !spend(n) {
		return 0, 0, false
	}
	distance = d.below(t+step) - first
	for i := int64(1); i < n; i++ {
		if x := t + i*step; !d.holds(x) || d.below(x) != first+i*distance {
			return 0, 0, false
		}
	}
	return first, distance, true
}

// pieceKey says in which context a piece was found true: the phases and the
// unit, since the rest belongs to the group.
type pieceKey struct {
	group, source, destination int
	unit                       unit
}

// piece returns "" where everything that piece q claims is true of the two
// ranks' shares and inside the window, otherwise what is not.
func (c *checker) piece(q *plan.Piece, w *plan.Period, s, d *share) string {
	if q.Count < 1 || q.Count > w.Tokens || q.Token < 0 {
		return "its count or first token is out of range"
	}
	if q.Count > 1 && (q.Step < 1 || q.Step > w.Tokens) {
		return "its step is out of range"
	}
	from, to := d.unit.within(w)
	if q.Token < from || q.Token >= to || q.Count > 1 && q.Count-1 > (to-1-q.Token)/q.Step {
		return "its tokens lie outside the window"
	}
	for _, side := range []struct {
		name               string
		d                  dealt
		entry, place, step int64
	}{
		{"source", s.dealt, q.SourceBlock, q.SourceToken, q.SourceStep},
		{"destination", d.dealt, q.DestinationBlock, q.DestinationToken, q.DestinationStep},
	} {
		first, distance, ok := side.d.sequence(q.Token, q.Step, q.Count, c.spend)
		if !ok {
			return "its tokens do not lie at one distance on the " + side.name + " rank"
		}
		if first/side.d.block != side.entry || first%side.d.block != side.place {
			return "its tokens lie elsewhere on the " + side.name + " rank"
		}
		if q.Count > 1 && side.step != distance {
			return "its tokens lie at another distance on the " + side.name + " rank"
		}
		if side.place+(q.Count-1)*distance >= side.d.block {
			return "its tokens leave the block on the " + side.name + " rank"
		}
	}
	return ""
}
