package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Validate checks a layout that came from elsewhere: a peer, an engine, a
// file. One that passes is bounded in every field, its digits tile each axis
// exactly, every element lies inside its region, and no two elements share a
// bit.
//
// Whether elements overlap is decided from strides alone: the digits of a
// place must nest (each stride at least as large as what the smaller ones
// span), and places that share a region must lie apart, or be repeated with
// one stride inside which, again, they lie apart. Every layout that Resolve
// and FromTensors make has that form; another is refused as undecided.
//
// Errors: *Error naming the field and, for an overlap, the components and
// layers.
func (l *Layout) Validate() error {
	if err := l.Extent.Validate(); err != nil {
		return err
	}
	if err := l.validateRegions(); err != nil {
		return err
	}
	v := validator{l: l}
	if err := v.readMaps(); err != nil {
		return err
	}
	if err := v.readPlaces(); err != nil {
		return err
	}
	return v.disjoint()
}

func (l *Layout) validateRegions() error {
	if n := len(l.Regions); n < 1 || n > len(l.Extent.Layers)*len(l.Extent.Components) {
		return bad("regions", n, "want 1 to one for each component of each layer")
	}
	names := make(map[string]bool, len(l.Regions))
	for i, r := range l.Regions {
		switch {
		case !validName(r.Name):
			return bad(fmt.Sprintf("regions[%d].name", i), fmt.Sprintf("%q", clip(r.Name)), "want 1 to %d bytes of text", geometry.MaxName)
		case names[r.Name]:
			return bad(fmt.Sprintf("regions[%d].name", i), fmt.Sprintf("%q", r.Name), "named twice")
		case r.Bytes < 1 || r.Bytes > MaxRegionBytes:
			return bad(fmt.Sprintf("regions[%d].bytes", i), r.Bytes, "want 1 to %d", MaxRegionBytes)
		}
		names[r.Name] = true
	}
	return nil
}

// loop is a digit without its meaning.
type loop struct{ stride, count int64 }

// shape is what a map says about space.
type shape struct {
	extent [geometry.Dim + 1]int64 // places of each axis that the digits tile
	loops  []loop                  // by descending stride, of more than one value
	reach  int64                   // bits from the first element to the start of the last
	need   int64                   // largest element that the digits leave room for; 0: they overlap for any
}

type validator struct {
	l      *Layout
	shapes []shape
}

func (v *validator) readMaps() error {
	l := v.l
	if n := len(l.Maps); n < 1 || n > MaxMaps {
		return bad("maps", n, "want 1 to %d", MaxMaps)
	}
	v.shapes = make([]shape, len(l.Maps))
	for m, digits := range l.Maps {
		refuse := func(value any, why string, args ...any) error {
			return bad(fmt.Sprintf("maps[%d]", m), value, why, args...)
		}
		if len(digits) > MaxDigits {
			return refuse(len(digits), "want at most %d digits", MaxDigits)
		}
		s := &v.shapes[m]
		s.loops = make([]loop, 0, len(digits))
		for i, d := range digits {
			switch {
			case d.Axis < geometry.Block || d.Axis > geometry.Dim:
				return refuse(d.Axis, "want block, token, head or dim")
			case d.Div < 1 || d.Mod < d.Div || d.Mod > MaxBlocks || d.Mod%d.Div != 0:
				return refuse(d, "no digit: Div divides Mod, both 1 to %d", MaxBlocks)
			case d.Stride < 1 || d.Stride > maxBits/d.Count():
				return refuse(d, "want a stride of 1 bit to %d bytes in all", MaxRegionBytes)
			case i > 0 && cmp.Or(cmp.Compare(d.Stride, digits[i-1].Stride), cmp.Compare(digits[i-1].Axis, d.Axis)) > 0:
				return refuse(d, "digits are sorted by descending stride, then by axis")
			}
			if d.Count() > 1 {
				s.loops = append(s.loops, loop{d.Stride, d.Count()})
				s.reach += (d.Count() - 1) * d.Stride
			}
		}
		for axis := geometry.Block; axis <= geometry.Dim; axis++ {
			n, ok := tiled(digits, axis)
			if !ok {
				return refuse(axis, "its digits do not tile an axis")
			}
			s.extent[axis] = n
		}
		for o := range m {
			if slices.Equal(l.Maps[o], digits) {
				return refuse(fmt.Sprintf("map %d", o), "equal maps share an index")
			}
		}
		s.need = s.room()
	}
	return nil
}

// tiled returns the extent that the digits of an axis tile.
func tiled(digits []Digit, axis geometry.Axis) (int64, bool) {
	n, left := int64(1), 0
	for _, d := range digits {
		if d.Axis == axis {
			left++
		}
	}
	for left > 0 {
		before := left
		for _, d := range digits {
			if d.Axis == axis && d.Div == n && d.Count() > 1 {
				n = d.Mod
				left--
			}
		}
		if left == before {
			break
		}
	}
	// What is left are digits of one value, which may stand at any cut.
	for _, d := range digits {
		if d.Axis == axis && d.Count() == 1 {
			left--
		}
	}
	return n, left == 0
}

// room is the largest element, in bits, for which the loops nest.
func (s *shape) room() int64 {
	// The loop of stride t over smaller loops that reach r leaves t - r.
	room, reach := int64(maxBits), int64(0)
	for _, lp := range slices.Backward(s.loops) {
		room = min(room, lp.stride-reach)
		reach += (lp.count - 1) * lp.stride
	}
	return max(room, 0)
}

func (v *validator) readPlaces() error {
	l, e := v.l, &v.l.Extent
	if len(l.Places) != len(e.Components) {
		return bad("places", len(l.Places), "want one list for each of %d components", len(e.Components))
	}
	usedMaps, usedRegions := make([]bool, len(l.Maps)), make([]bool, len(l.Regions))
	for ci, places := range l.Places {
		c := e.Components[ci]
		if len(places) != len(e.Layers) {
			return bad(fmt.Sprintf("places[%d]", ci), len(places), "want one for each of %d layers", len(e.Layers))
		}
		checked := make([]bool, len(l.Maps))
		for li, p := range places {
			refuse := func(value any, why string, args ...any) error {
				return bad(fmt.Sprintf("places[%d][%d]", ci, li), value, why, args...)
			}
			if p.Region < 0 || p.Region >= len(l.Regions) {
				return refuse(p.Region, "there are %d regions", len(l.Regions))
			}
			if p.Map < 0 || p.Map >= len(l.Maps) {
				return refuse(p.Map, "there are %d maps", len(l.Maps))
			}
			s := &v.shapes[p.Map]
			if !checked[p.Map] {
				checked[p.Map] = true
				for axis := geometry.Block; axis <= geometry.Dim; axis++ {
					if n := e.size(axis, ci); s.extent[axis] != n {
						return refuse(s.extent[axis], "the digits of map %d tile so many places of %s, component %s has %d", p.Map, e.Name(axis), c.Name, n)
					}
				}
				if s.need < c.DType.Bits() {
					return refuse(p.Map, "elements of component %s overlap: the strides of the map leave %d bits for each, one takes %d", c.Name, s.need, c.DType.Bits())
				}
			}
			if p.Offset < 0 {
				return refuse(p.Offset, "an offset in bits is not negative")
			}
			r := l.Regions[p.Region]
			if end := s.reach + c.DType.Bits(); p.Offset > r.Bytes*8-end {
				return refuse(p.Offset, "component %s of layer %d lies there and is %d bits from first to last, region %q has %d bytes", c.Name, e.Layers[li], end, r.Name, r.Bytes)
			}
			usedMaps[p.Map], usedRegions[p.Region] = true, true
		}
	}
	if i := slices.Index(usedMaps, false); i >= 0 {
		return bad(fmt.Sprintf("maps[%d]", i), "unused", "every map places something")
	}
	if i := slices.Index(usedRegions, false); i >= 0 {
		return bad(fmt.Sprintf("regions[%d]", i), fmt.Sprintf("%q", l.Regions[i].Name), "nothing lies in it")
	}
	return nil
}

// body is a place on its way through disjoint: what is left of it below the
// loops that it shares with its neighbours.
type body struct {
	at, size         int64 // bits; size to behind the last element
	loops            []loop
	component, layer int
}

// disjoint checks that the places of each region share no bit.
func (v *validator) disjoint() error {
	l := v.l
	start := make([]int, len(l.Regions)+1) // bodies by region
	for _, places := range l.Places {
		for _, p := range places {
			start[p.Region+1]++
		}
	}
	for r := range l.Regions {
		start[r+1] += start[r]
	}
	bodies := make([]body, start[len(l.Regions)])
	next := slices.Clone(start)
	for li := range l.Extent.Layers {
		for ci, places := range l.Places {
			p := places[li]
			s := &v.shapes[p.Map]
			bodies[next[p.Region]] = body{p.Offset, s.reach + l.Extent.Components[ci].DType.Bits(), s.loops, ci, li}
			next[p.Region]++
		}
	}
	var last []body // the bodies of an earlier region as they were
	for r := range l.Regions {
		own := bodies[start[r]:start[r+1]]
		if len(own) < 2 {
			continue
		}
		slices.SortFunc(own, func(a, b body) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.layer, b.layer), cmp.Compare(a.component, b.component))
		})
		// Layers in regions of their own mostly look alike.
		if alike(own, last, l) {
			continue
		}
		last = append(last[:0], own...)
		if a, b := apart(own); a != nil {
			e := &l.Extent
			return bad("places", fmt.Sprintf("region %q", l.Regions[r].Name), "component %s of layer %d and component %s of layer %d overlap, or interleave with strides that do not show that they lie apart",
				e.Components[a.component].Name, e.Layers[a.layer], e.Components[b.component].Name, e.Layers[b.layer])
		}
	}
	return nil
}

// alike reports whether two regions hold the same shapes at the same
// distances.
func alike(a, b []body, l *Layout) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		pa, pb := l.Places[a[i].component][a[i].layer], l.Places[b[i].component][b[i].layer]
		if pa.Map != pb.Map || a[i].size != b[i].size || a[i].at-a[0].at != b[i].at-b[0].at {
			return false
		}
	}
	return true
}

// apart returns two bodies that are not seen to lie apart; nil where all do.
// The bodies are sorted by place and are modified.
func apart(bodies []body) (a, b *body) {
	for i := 0; i < len(bodies); {
		// bodies[i:j] overlap as spans.
		end := bodies[i].at + bodies[i].size
		j := i + 1
		for j < len(bodies) && bodies[j].at < end {
			end = max(end, bodies[j].at+bodies[j].size)
			j++
		}
		if j == i+1 {
			i = j
			continue
		}
		group := bodies[i:j]
		i = j
		// They are apart if one stride repeats them all and, in each
		// repetition, they lie apart within the stride. The counts may differ.
		if len(group[0].loops) == 0 {
			return &group[0], &group[1]
		}
		stride := group[0].loops[0].stride
		end = 0
		for k := range group {
			g := &group[k]
			if len(g.loops) == 0 || g.loops[0].stride != stride {
				return &group[0], g
			}
			g.size -= (g.loops[0].count - 1) * stride
			g.loops = g.loops[1:]
			end = max(end, g.at+g.size)
			if end-group[0].at > stride {
				return &group[0], g
			}
		}
		if a, b := apart(group); a != nil {
			return a, b
		}
	}
	return nil, nil
}
