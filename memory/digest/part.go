package digest

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// Part is what one edge of a pair carries of one request's group, as it lies
// on the rank at one end. The same part of both ends names the same rows.
type Part struct {
	Pair                *plan.Pair
	Assignments         []plan.Assignment // of the proved plan
	OfSource            bool              // at which end the memory is
	Source, Destination int               // ranks
	Group               int               // of the pair
	Component           int               // -1: every one
	Layers              plan.Range        // the model's
	Heads               plan.Range        // the model's
	// From and To are tokens, or entries where Component names one; of a group
	// of states, 0 and 1.
	From, To int64
	Regions  [][]byte // of the rank's group, by index of its layout's regions
	Table    []uint32 // the group's block table
	First    int64    // leading entries that it leaves out
}

// Layers returns the layers of a group within a range that both ranks of an
// edge hold, ascending.
func Layers(p *plan.Pair, source, destination, group int, within plan.Range) []int {
	s, d := p.Source.Part(group, source), p.Destination.Part(group, destination)
	var out []int
	for _, l := range d.Layers {
		if l >= within.From && l < within.To && slices.Contains(s.Layers, l) {
			out = append(out, l)
		}
	}
	return out
}

// Part returns the digests of a part, of one row in every: one for each layer
// that Layers names and each component, in this order. A component of which
// the edge carries nothing has a digest of 0.
//
// Errors: *Error.
// Preconditions: the pair is valid; ranks, group and component are its own;
// as for Sum, nobody writes to the rows meanwhile.
func (h *Hasher) Part(p *Part, every int) ([]uint64, error) {
	if p.From < 0 || p.From > p.To || p.To > MaxEntry {
		return nil, bad("tokens", fmt.Sprintf("[%d, %d)", p.From, p.To), "want a range within 0 to %d", MaxEntry)
	}
	side, rank := &p.Pair.Destination, p.Destination
	if p.OfSource {
		side, rank = &p.Pair.Source, p.Source
	}
	layers := Layers(p.Pair, p.Source, p.Destination, p.Group, p.Layers)
	l := side.Ranks[rank][p.Group]
	if len(layers) == 0 || l == nil {
		return nil, nil
	}
	w := parts{Part: p, source: p.Pair.Source.Part(p.Group, p.Source), destination: p.Pair.Destination.Part(p.Group, p.Destination), block: int64(side.Groups[p.Group].Block), spans: map[spanKey][]Span{}}
	w.own = &w.destination
	if p.OfSource {
		w.own = &w.source
	}
	group := &p.Pair.Source.Model.Groups[p.Group]
	var out []uint64
	for _, layer := range layers {
		for ci := range group.Components {
			if p.Component >= 0 && ci != p.Component {
				continue
			}
			var sum uint64
			for i := range p.Assignments {
				a := &p.Assignments[i]
				if a.Group != p.Group || a.Source != p.Source || a.Destination != p.Destination || a.Components>>ci&1 == 0 || layer < a.Layers.From || layer >= a.Layers.To {
					continue
				}
				spans, err := w.entries(&group.Components[ci], group.State, a.Tokens)
				if err != nil {
					return nil, err
				}
				heads := w.heads(&group.Components[ci], ci, a.Heads)
				if len(spans) == 0 || len(heads) == 0 {
					continue
				}
				s, err := h.SumSampled(&Rows{Layout: l, Regions: p.Regions, Component: ci, Layer: slices.Index(w.own.Layers, layer),
					Name: Name{Group: p.Group, Component: ci, Layer: layer}, Heads: heads, Spans: spans}, every)
				if err != nil {
					return nil, err
				}
				sum += s
			}
			out = append(out, sum)
		}
	}
	return out, nil
}

// parts is a Part being taken apart.
type parts struct {
	*Part
	source, destination shard.Part
	own                 *shard.Part
	block               int64
	spans               map[spanKey][]Span
}

type spanKey struct {
	entry  int
	scales bool
	tokens plan.Tokens
}

// heads are those of a component that both ranks hold, within the ranges.
func (w *parts) heads(c *geometry.Component, ci int, within plan.Range) []Head {
	if c.Heads == 0 {
		if w.Heads.From > 0 || within.From > 0 {
			return nil
		}
		return []Head{{0, 0}}
	}
	var out []Head
	other := w.source.Heads[ci]
	if w.OfSource {
		other = w.destination.Heads[ci]
	}
	has := make(map[int]bool, len(other))
	for _, n := range other {
		has[n] = true
	}
	for place, n := range w.own.Heads[ci] {
		if has[n] && n >= within.From && n < within.To && n >= w.Heads.From && n < w.Heads.To {
			out = append(out, Head{place, n})
		}
	}
	return out
}

// entries are the entries of a component that both ranks hold and the filter
// selects, as they lie on the own rank.
func (w *parts) entries(c *geometry.Component, state bool, filter plan.Tokens) ([]Span, error) {
	e := int64(c.EntryTokens())
	key := spanKey{c.EntryTokens(), c.Scales != "", filter}
	if s, ok := w.spans[key]; ok {
		return s, nil
	}
	from, to := w.From, w.To
	if w.Component < 0 && !state {
		from, to = c.Entries(from, to)
	}
	pick := shard.Part{Size: 1, Interleave: 1}
	if !filter.All() {
		pick = shard.Part{Size: filter.Size, Interleave: filter.Interleave, Phase: filter.Phase}
	}
	holders := [3]dealt{deal(&w.source, e), deal(&w.destination, e), deal(&pick, e)}
	own := holders[1]
	if w.OfSource {
		own = holders[0]
	}
	block := w.block / e
	var out []Span
	for t := from; t < to; {
		n, skip := to-t, int64(0)
		for _, d := range holders {
			ok, run := d.holds(t)
			if !ok {
				skip = max(skip, run)
			}
			n = min(n, run)
		}
		if skip > 0 {
			t += skip
			continue
		}
		u := own.local(t)
		n = min(n, block-u%block)
		entry := u/block - w.First
		if entry < 0 || entry >= int64(len(w.Table)) {
			return nil, bad("table", fmt.Sprintf("entries %d to %d", w.First, w.First+int64(len(w.Table))-1), "entry %d is needed", u/block)
		}
		out = join(out, Span{Block: w.Table[entry], Place: u % block, Step: 1, Count: n, Entry: t, EntryStep: 1})
		t += n
	}
	w.spans[key] = out
	return out, nil
}

// join appends a span, or lengthens the last one where single entries follow
// at constant distances in the same block.
func join(out []Span, s Span) []Span {
	if len(out) > 0 && s.Count == 1 {
		q := &out[len(out)-1]
		last := q.Count - 1
		step, entries := s.Place-(q.Place+last*q.Step), s.Entry-(q.Entry+last*q.EntryStep)
		if q.Block == s.Block && step > 0 && entries > 0 && (q.Count == 1 || step == q.Step && entries == q.EntryStep) {
			q.Step, q.EntryStep = step, entries
			q.Count++
			return out
		}
	}
	return append(out, s)
}

// dealt is how entries are dealt to a rank: chunk of them at a time, to ranks
// in turn.
type dealt struct{ ranks, chunk, phase int64 }

func deal(p *shard.Part, entry int64) dealt {
	if p.Size == 1 {
		return dealt{1, 1, 0}
	}
	return dealt{int64(p.Size), int64(p.Interleave) / entry, int64(p.Phase)}
}

// holds reports whether the rank has entry t, and for how many entries from t
// on that stays so.
func (d dealt) holds(t int64) (bool, int64) {
	if d.ranks == 1 {
		return true, 1 << 62
	}
	phase := t / d.chunk % d.ranks
	if phase != d.phase {
		return false, (d.phase-phase+d.ranks)%d.ranks*d.chunk - t%d.chunk
	}
	return true, d.chunk - t%d.chunk
}

// local is the place on the rank of an entry that it has.
func (d dealt) local(t int64) int64 { return t/(d.chunk*d.ranks)*d.chunk + t%d.chunk }
