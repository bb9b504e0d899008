package proof

import (
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// holder is what one rank holds of one group, read from the shard by this
// package's own arithmetic.
type holder struct {
	layers []int
	heads  []int // model head by place on the rank; [0] for a group without heads
	// step is the distance of neighbours in heads where it is the same for
	// all (1 for a single head), 0 where the list follows no such rule.
	step int64
	dealt
	form *form
}

// dealt says how tokens are dealt to a rank and paged on it.
type dealt struct{ ranks, chunk, phase, block int64 }

// hold reads what rank r holds of g.
func hold(s *shard.Spec, g *geometry.Group, r int, block int) *holder {
	var at [4]int
	size := [4]int{shard.PP: len(s.Stages), shard.TP: s.TP, shard.DCP: s.DCPSize}
	for rest, i := r, len(s.Order)-1; i >= 0; i-- {
		axis := s.Order[i]
		at[axis] = rest % size[axis]
		rest /= size[axis]
	}
	h := &holder{dealt: dealt{int64(s.DCPSize), int64(s.Interleave), int64(at[shard.DCP]), int64(block)}}
	first := 0
	for i := range at[shard.PP] {
		first += s.Stages[i]
	}
	for _, l := range g.Layers {
		if first <= l && l-first < s.Stages[at[shard.PP]] {
			h.layers = append(h.layers, l)
		}
	}
	n, t := g.Heads(), at[shard.TP]
	switch {
	case n == 0:
		h.heads = []int{0}
	case s.Heads != nil:
		h.heads = s.Heads[t]
	default:
		// Rank t of T holds the heads from t*n/T: n/T of them, or the one that
		// it shares where there are more ranks than heads.
		for k := 0; k < max(n/s.TP, 1); k++ {
			h.heads = append(h.heads, t*n/s.TP+k)
		}
	}
	h.step = 1
	for i := 1; i < len(h.heads); i++ {
		d := int64(h.heads[i] - h.heads[i-1])
		if i == 1 {
			h.step = d
		} else if d != h.step {
			h.step = 0
			break
		}
	}
	return h
}

// below counts the canonical tokens smaller than t that the rank holds. Since
// tokens keep their order, it is also the local place of t where t is held.
func (d dealt) below(t int64) int64 {
	lap := d.ranks * d.chunk
	return t/lap*d.chunk + min(max(t%lap-d.phase*d.chunk, 0), d.chunk)
}

// holds reports whether the rank holds canonical token t.
func (d dealt) holds(t int64) bool { return t/d.chunk%d.ranks == d.phase }

// canonical is the token at local place u.
func (d dealt) canonical(u int64) int64 {
	return u/d.chunk*d.ranks*d.chunk + d.phase*d.chunk + u%d.chunk
}

// repeats reports whether a period of n tokens is blocks whole table entries
// of the rank, and the dealing repeats with it.
func (d dealt) repeats(n, blocks int64) bool {
	if d.ranks > 1 && n%(d.ranks*d.chunk) != 0 {
		return false
	}
	return n%d.ranks == 0 && n/d.ranks%d.block == 0 && n/d.ranks/d.block == blocks
}

// sequence returns the local places of tokens t, t+step, ... (n of them): the
// first, and their distance where it is the same for all. spend is called with
// the number of tokens looked at one by one.
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

// pieceKey says in which context a piece was found true.
type pieceKey struct{ group, source, destination int } // the phases, since the rest belongs to the group

// piece returns "" where everything that piece q claims is true of the two
// ranks and inside the window, otherwise what is not.
func (c *checker) piece(q *plan.Piece, w *plan.Period, s, d dealt) string {
	if q.Count < 1 || q.Count > w.Tokens || q.Token < 0 {
		return "its count or first token is out of range"
	}
	if q.Count > 1 && (q.Step < 1 || q.Step > w.Tokens) {
		return "its step is out of range"
	}
	if q.Token < w.From || q.Token+(q.Count-1)*q.Step >= w.To {
		return "its tokens lie outside the window"
	}
	for _, side := range []struct {
		name               string
		d                  dealt
		entry, place, step int64
	}{
		{"source", s, q.SourceBlock, q.SourceToken, q.SourceStep},
		{"destination", d, q.DestinationBlock, q.DestinationToken, q.DestinationStep},
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
