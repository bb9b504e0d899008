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
			return c.slice(s, Malformed, "not every element is written once; there are too many to say which is not")
		}
		return c.malformed(blame.run.Edge, blame.index, "it moves an element elsewhere; too many elements to say which")
	} else if f != nil {
		return f
	}
	if blame == nil {
		return c.slice(s, Malformed, "its runs cannot be decided")
	}
	return c.malformed(blame.run.Edge, blame.index, "it cannot be decided")
}

// parted is explain for a slice in which every element is right, and a scale
// does not come with its rows.
func (c *checker) parted(s *slice, sources []*holder, from int) error {
	if c.over != "" {
		return c.tooLarge()
	}
	x := explanation{c: c, s: s}
	f, ok := x.find(sources, from)
	switch {
	case !ok:
		return c.slice(s, Parted, "a scale comes from another source rank than the rows it scales; there are too many elements to say which")
	case f != nil:
		return f
	}
	if f := x.apart(); f != nil {
		return f
	}
	return c.slice(s, Malformed, "its scales cannot be decided")
}

// slice is a fault of a slice of which no run is to blame alone.
func (c *checker) slice(s *slice, kind Kind, why string) *Fault {
	f := &Fault{Kind: kind, Rank: s.rank, Source: -1, Edge: -1, Run: -1, At: geometry.Coord{Group: s.group}, Reason: fmt.Sprintf("layer %d: %s", s.layer, why)}
	c.name(f)
	return f
}

// explanation is the state of one explanation: what was written to each
// element that is due, and the first fault seen.
type explanation struct {
	c     *checker
	s     *slice
	comps []geometry.Component
	areas []extent // by component
	mask  []uint16 // by element: the written units of 4 bits
	edges []int32  // by element: the edge that wrote it last
	best  int64    // index of the first wrong element, -1 while none is
	fault *Fault
}

// extent is the elements of one component that are due: heads times entries
// times dims, in that order, from index first on.
type extent struct {
	first   int64
	low     int64 // the rank's place of the first entry
	entries int64
	rows    int64 // heads times entries
	dim     int64
}

// index is that of an element, by the rank's places.
func (a *extent) index(head, place, dim int64) int64 {
	return a.first + (head*a.entries+place-a.low)*a.dim + dim
}

// find returns the first fault, nil where there is none; false where there are
// too many elements to look at.
func (x *explanation) find(sources []*holder, from int) (*Fault, bool) {
	s := x.s
	x.comps = x.c.pair.Destination.Model.Groups[s.group].Components
	var elements int64
	for i := range x.comps {
		part := &s.dest.parts[i]
		low, high := part.due(s.window)
		a := extent{elements, low, high - low, int64(len(part.heads)) * (high - low), int64(x.comps[i].Dim)}
		if n := a.rows * a.dim; n > maxLook-elements {
			return nil, false
		}
		x.areas = append(x.areas, a)
		elements += a.rows * a.dim
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
	x.mask, x.edges, x.best = make([]uint16, elements), make([]int32, elements), -1
	for i := range s.entries {
		e := &s.entries[i]
		if f := x.run(e, sources[e.run.Edge-from]); f != nil {
			return f, true
		}
	}
	for i, comp := range x.comps {
		full := uint16(1)<<(comp.DType.Bits()/4) - 1
		a := &x.areas[i]
		for k := a.first; k < a.first+a.rows*a.dim && (x.best < 0 || k < x.best); k++ {
			if x.mask[k] != full {
				x.wrong(k, &Fault{Kind: Gap, Rank: s.rank, Source: -1, Edge: -1, Run: -1, At: x.coord(i, k), Has: true})
			}
		}
	}
	return x.fault, true
}

// apart returns the first scale of which a row comes over another edge, nil
// where there is none.
//
// Preconditions: find found no fault.
func (x *explanation) apart() *Fault {
	for i := range x.comps {
		of := scaled(x.comps, i)
		if of < 0 {
			continue
		}
		scale, rows := &x.areas[i], &x.areas[of]
		part, covered := &x.s.dest.parts[i], &x.s.dest.parts[of]
		n := part.unit.tokens
		for h, head := range part.heads {
			for place := scale.low; place < scale.low+scale.entries; place++ {
				for d := range scale.dim {
					k := scale.index(int64(h), place, d)
					for rh, own := range covered.heads {
						if x.comps[i].Heads > 0 && own != head {
							continue
						}
						for t := max(place*n, rows.low); t < min(place*n+n, rows.low+rows.entries); t++ {
							first := rows.index(int64(rh), t, 0)
							for r := first; r < first+rows.dim; r++ {
								if x.edges[r] == x.edges[k] {
									continue
								}
								f := &Fault{Kind: Parted, Edge: int(x.edges[k]), Run: -1, At: x.coord(i, k), Has: true,
									Got: x.coord(of, r), Other: x.c.pl.Edges[x.edges[r]].Source}
								x.c.name(f)
								return f
							}
						}
					}
				}
			}
		}
	}
	return nil
}

// coord is the coordinate of element k, which belongs to component i.
func (x *explanation) coord(i int, k int64) geometry.Coord {
	part, a := &x.s.dest.parts[i], &x.areas[i]
	k -= a.first
	row := k / a.dim
	return geometry.Coord{
		Group: x.s.group, Component: i, Layer: x.s.layer,
		Head:  part.heads[row/a.entries],
		Token: part.token(a.low + row%a.entries),
		Dim:   int(k % a.dim),
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
		return 0, fault(Bounds, "it writes byte %d of region %q, which is of another %s", do/8, regions[r.DestinationRegion].Name, s.dest.form.name(geometry.Block))
	}
	if s.dest.form.block[d.m] != s.dest.form.block[r.DestinationMap] {
		return 0, fault(Bounds, "destination map %d places other %ss than those of the rows that it writes", r.DestinationMap, s.dest.form.name(geometry.Block))
	}
	if layer := s.dest.layers[d.layer]; layer != s.layer {
		return 0, fault(Bounds, "it is of layer %d and writes layer %d", s.layer, layer)
	}
	part := &s.dest.parts[d.component]
	place := q.DestinationBlock*part.block + d.token
	area := &x.areas[d.component]
	if place < area.low || place >= area.low+area.entries {
		if s.dest.form.l.Extent.State {
			return 0, fault(Bounds, "it writes a state, and the window is empty")
		}
		return 0, fault(Bounds, "it writes token %d, the window is from %d to %d", part.token(place), s.window.From, s.window.To)
	}
	comp := &x.comps[d.component]
	k := area.index(d.head, place, d.dim)
	at := x.coord(d.component, k)
	n := min(left, comp.DType.Bits()-d.rest)
	here := func(kind Kind, why string, args ...any) {
		if x.best < 0 || k < x.best { // a fault in words is dear
			f := fault(kind, why, args...)
			f.At, f.Has = at, true
			x.wrong(k, f)
		}
	}

	from, ok := source.form.spot(r.SourceRegion, so)
	switch {
	case !ok:
		here(Bounds, "it reads byte %d of region %q, which is of no element", so/8, source.form.l.Regions[r.SourceRegion].Name)
		n = 4
	case from.foreign:
		here(Bounds, "it reads byte %d of region %q, which is of another %s", so/8, source.form.l.Regions[r.SourceRegion].Name, source.form.name(geometry.Block))
		n = 4
	case source.form.block[from.m] != source.form.block[r.SourceMap]:
		here(Bounds, "source map %d places other %ss than those of the rows that it reads", r.SourceMap, source.form.name(geometry.Block))
	default:
		origin := &source.parts[from.component]
		n = min(n, x.comps[from.component].DType.Bits()-from.rest)
		got := geometry.Coord{
			Group: s.group, Component: from.component, Layer: source.layers[from.layer], Head: origin.heads[from.head],
			Token: origin.token(q.SourceBlock*origin.block + from.token), Dim: int(from.dim),
		}
		if got != at || from.rest != d.rest {
			if x.best >= 0 && k >= x.best {
				break
			}
			f := fault(Swap, "")
			f.At, f.Has, f.Got = at, true, got
			if got == at {
				f.Reason = fmt.Sprintf("bit %d of it comes from bit %d", d.rest, from.rest)
			}
			x.wrong(k, f)
		} else if first := s.dest.parts[r.Component].unit; part.unit != first {
			here(Malformed, "entries of %d tokens move with entries of %d, which piece %d counts", part.unit.tokens, first.tokens, r.Piece)
		} else if !member(q, from.token, d.token) {
			here(Malformed, "it moves a token that piece %d does not name", r.Piece)
		} else if so == r.SourceOffset*8 && do == r.DestinationOffset*8 && d.component != r.Component {
			here(Malformed, "it says that it starts with component %s", x.comps[r.Component].Name)
		}
	}
	units := (uint16(1)<<((n+3)/4) - 1) << (d.rest / 4)
	if x.mask[k]&units != 0 {
		here(Clash, "")
	}
	x.mask[k] |= units
	x.edges[k] = int32(r.Edge)
	return n, nil
}

// member reports whether the piece names the token at these places.
func member(q *plan.Piece, source, destination int64) bool {
	j, ok := position(source-q.SourceToken, destination-q.DestinationToken, q)
	return ok && j >= 0 && j < q.Count
}
