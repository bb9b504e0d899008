package proof

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// maxLook bounds the elements that an explanation looks at one by one.
const maxLook = 1 << 22

// explain looks at a slice that was not accepted element by element and
// returns its first fault. blame is the entry that was refused, nil where each
// was fine and their sum was not. It never returns nil: what it finds no fault
// with was not decided, and stays refused.
func (c *checker) explain(s *slice, sources []*holder, from int, blame *entry) error {
	if c.over != "" {
		return c.tooLarge()
	}
	x := explanation{c: c, s: s}
	if f, ok := x.find(sources, from); !ok {
		if blame == nil {
			return c.slice(s, "not every element is written once; there are too many to say which is not")
		}
		return c.malformed(blame.run.Edge, blame.index, "it moves an element elsewhere; too many elements to say which")
	} else if f != nil {
		return f
	}
	if blame == nil {
		return c.slice(s, "its runs cannot be decided")
	}
	return c.malformed(blame.run.Edge, blame.index, "it cannot be decided")
}

// slice is a Malformed fault of a slice of which no run is to blame alone.
func (c *checker) slice(s *slice, why string) *Fault {
	f := &Fault{Kind: Malformed, Rank: s.rank, Source: -1, Edge: -1, Run: -1, At: geometry.Coord{Group: s.group}, Reason: fmt.Sprintf("layer %d: %s", s.layer, why)}
	c.name(f)
	return f
}

// explanation is the state of one explanation: what was written to each
// element that is due, and the first fault seen.
type explanation struct {
	c     *checker
	s     *slice
	first []int64  // by component: index of its first element
	low   int64    // the rank's place of the window's first token
	due   int64    // tokens
	mask  []uint16 // by element: the written units of 4 bits
	best  int64    // index of the first wrong element, -1 while none is
	fault *Fault
}

// find returns the first fault, nil where there is none; false where there are
// too many elements to look at.
func (x *explanation) find(sources []*holder, from int) (*Fault, bool) {
	s := x.s
	comps := x.c.pair.Destination.Model.Groups[s.group].Components
	x.low = s.dest.below(s.window.From)
	x.due = s.dest.below(s.window.To) - x.low
	var elements int64
	for i := range comps {
		x.first = append(x.first, elements)
		n := x.c.due(s, i)
		if n > maxLook-elements {
			return nil, false
		}
		elements += n
	}
	var units int64
	for i := range s.entries {
		r := s.entries[i].run
		n := r.Bytes
		for _, l := range r.Loops {
			n *= l.Count // checked before
		}
		if n > 4*maxLook-units {
			return nil, false
		}
		units += n
	}
	x.mask, x.best = make([]uint16, elements), -1
	for i := range s.entries {
		e := &s.entries[i]
		if f := x.run(e, sources[e.run.Edge-from]); f != nil {
			return f, true
		}
	}
	for i, comp := range comps {
		full := uint16(1)<<(comp.DType.Bits()/4) - 1
		n := x.c.due(s, i)
		for k := x.first[i]; k < x.first[i]+n && (x.best < 0 || k < x.best); k++ {
			if x.mask[k] != full {
				x.wrong(k, &Fault{Kind: Gap, Rank: s.rank, Source: -1, Edge: -1, Run: -1, At: x.coord(i, k), Has: true})
			}
		}
	}
	return x.fault, true
}

// coord is the coordinate of element k, which belongs to component i.
func (x *explanation) coord(i int, k int64) geometry.Coord {
	comp := &x.c.pair.Destination.Model.Groups[x.s.group].Components[i]
	k -= x.first[i]
	row := k / int64(comp.Dim)
	return geometry.Coord{
		Group: x.s.group, Component: i, Layer: x.s.layer,
		Head:  x.s.dest.heads[row/x.due],
		Token: x.s.dest.canonical(x.low + row%x.due),
		Dim:   int(k % int64(comp.Dim)),
	}
}

// wrong keeps the fault of the first element.
func (x *explanation) wrong(k int64, f *Fault) {
	if x.best < 0 || k < x.best {
		x.best, x.fault = k, f
		x.c.name(f)
	}
}

// run looks at every element that a run moves. It returns a fault that has no
// place among the slice's elements.
func (x *explanation) run(e *entry, source *holder) *Fault {
	index := make([]int64, len(e.run.Loops))
	for {
		so, do := e.run.SourceOffset, e.run.DestinationOffset
		for i, l := range e.run.Loops {
			so += index[i] * l.SourceStride
			do += index[i] * l.DestinationStride
		}
		for at := int64(0); at < e.run.Bytes*8; {
			n, f := x.element(e, source, so*8+at, do*8+at, e.run.Bytes*8-at)
			if f != nil {
				return f
			}
			at += n
		}
		k := len(index) - 1
		for ; k >= 0; k-- {
			if index[k]++; index[k] < e.run.Loops[k].Count {
				break
			}
			index[k] = 0
		}
		if k < 0 {
			return nil
		}
	}
}

// element looks at what moves from bit so to bit do, at most left bits, and
// returns how many bits belong to one element on both sides.
func (x *explanation) element(e *entry, source *holder, so, do, left int64) (int64, *Fault) {
	c, s, r := x.c, x.s, e.run
	q := &c.pl.Pieces[r.Piece]
	fault := func(kind Kind, why string, args ...any) *Fault {
		f := &Fault{Kind: kind, Edge: r.Edge, Run: e.index, Reason: fmt.Sprintf(why, args...)}
		c.name(f)
		return f
	}
	regions := s.dest.form.l.Regions
	d, ok := s.dest.form.spot(r.DestinationRegion, do)
	if !ok {
		return 0, fault(Bounds, "it writes byte %d of region %q, which is of no element", do/8, regions[r.DestinationRegion].Name)
	}
	if d.foreign {
		return 0, fault(Bounds, "it writes byte %d of region %q, which is of another block", do/8, regions[r.DestinationRegion].Name)
	}
	if s.dest.form.block[d.m] != s.dest.form.block[r.DestinationMap] {
		return 0, fault(Bounds, "destination map %d places other blocks than those of the rows that it writes", r.DestinationMap)
	}
	if layer := s.dest.layers[d.layer]; layer != s.layer {
		return 0, fault(Bounds, "it is of layer %d and writes layer %d", s.layer, layer)
	}
	token := s.dest.canonical(q.DestinationBlock*s.dest.dealt.block + d.token)
	if token < s.window.From || token >= s.window.To {
		return 0, fault(Bounds, "it writes token %d, the window is from %d to %d", token, s.window.From, s.window.To)
	}
	comps := c.pair.Destination.Model.Groups[s.group].Components
	comp := &comps[d.component]
	k := x.first[d.component] + (d.head*x.due+s.dest.below(token)-x.low)*int64(comp.Dim) + d.dim
	at := x.coord(d.component, k)
	n := min(left, comp.DType.Bits()-d.rest)
	here := func(kind Kind, why string, args ...any) {
		f := fault(kind, why, args...)
		f.At, f.Has = at, true
		x.wrong(k, f)
	}

	from, ok := source.form.spot(r.SourceRegion, so)
	switch {
	case !ok:
		here(Bounds, "it reads byte %d of region %q, which is of no element", so/8, source.form.l.Regions[r.SourceRegion].Name)
		n = 4
	case from.foreign:
		here(Bounds, "it reads byte %d of region %q, which is of another block", so/8, source.form.l.Regions[r.SourceRegion].Name)
		n = 4
	case source.form.block[from.m] != source.form.block[r.SourceMap]:
		here(Bounds, "source map %d places other blocks than those of the rows that it reads", r.SourceMap)
	default:
		n = min(n, comps[from.component].DType.Bits()-from.rest)
		got := geometry.Coord{
			Group: s.group, Component: from.component, Layer: source.layers[from.layer], Head: source.heads[from.head],
			Token: source.canonical(q.SourceBlock*source.dealt.block + from.token), Dim: int(from.dim),
		}
		if got != at || from.rest != d.rest {
			f := fault(Swap, "")
			f.At, f.Has, f.Got = at, true, got
			if got == at {
				f.Reason = fmt.Sprintf("bit %d of it comes from bit %d", d.rest, from.rest)
			}
			x.wrong(k, f)
		} else if !member(q, from.token, d.token) {
			here(Malformed, "it moves a token that piece %d does not name", r.Piece)
		} else if so == r.SourceOffset*8 && do == r.DestinationOffset*8 && d.component != r.Component {
			here(Malformed, "it says that it starts with component %s", comps[r.Component].Name)
		}
	}
	units := (uint16(1)<<((n+3)/4) - 1) << (d.rest / 4)
	if x.mask[k]&units != 0 {
		here(Clash, "")
	}
	x.mask[k] |= units
	return n, nil
}

// member reports whether the piece names the token at these places.
func member(q *plan.Piece, source, destination int64) bool {
	j, ok := position(source-q.SourceToken, destination-q.DestinationToken, q)
	return ok && j >= 0 && j < q.Count
}
