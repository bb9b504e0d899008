package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// maxBits bounds offsets and spans inside a region.
const maxBits = MaxRegionBytes * 8

// part is an item of one component with the extents filled in.
type part struct {
	item     Item
	mod, div int64
	stride   int64 // bits
}

func (p *part) count() int64 { return p.mod / p.div }

// column is the order of one component.
type column struct {
	parts  []part // outermost first
	outer  int    // parts[:outer] stand outside the place where components part ways
	size   int64  // bits of the region, or of the component's part of it
	offset int64  // bits of its first element above that of the first component
}

// Resolve computes the layout of one rank.
//
// Region names are "pool", or by component ("k"), by layer ("layer41") or by
// both ("layer41.k") where component and layer are left out of the order; a
// layer's number is its number in the model. A region's size is the count of
// the outermost item times its stride, trailing pad included.
//
// Errors: *Error, *ClaimError.
func (s Spec) Resolve(e Extent) (*Layout, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if err := s.Validate(e.Components); err != nil {
		return nil, err
	}
	columns := make([]column, len(e.Components))
	joined := s.joined()
	var sum int64
	for ci, c := range e.Components {
		items, outer := s.items(c.Name)
		parts, err := s.parts(&e, ci, items)
		if err != nil {
			return nil, err
		}
		col := column{parts: parts, outer: outer, size: c.DType.Bits()}
		inner := 0
		if joined {
			inner = outer
		}
		for i := len(parts) - 1; i >= inner; i-- {
			if err := s.put(&col, i, !joined && i < outer); err != nil {
				return nil, err
			}
		}
		if joined {
			col.offset = sum
			if sum += col.size; sum > maxBits {
				return nil, bad("order", s.Text(), "the components together are larger than %d bytes", MaxRegionBytes)
			}
		}
		columns[ci] = col
	}
	if joined {
		// An axis outside component strides over the components' sum.
		for ci := range columns {
			col := &columns[ci]
			col.size = sum
			for i := col.outer - 1; i >= 0; i-- {
				if n, o := col.parts[i].count(), columns[0].parts[i].count(); n != o {
					return nil, bad("order", col.parts[i].item, "stands outside component and takes %d values in component %s, %d in %s", n, e.Components[ci].Name, o, e.Components[0].Name)
				}
				if err := s.put(col, i, true); err != nil {
					return nil, err
				}
			}
		}
	}
	l := s.assemble(e, joined, columns)
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if s.Name != "" {
		if err := s.claim(&e, columns); err != nil {
			return nil, err
		}
		if err := l.Claim(s.Name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// parts fills in an item list for one component and checks that the items of
// each axis tile it.
func (s Spec) parts(e *Extent, component int, items []Item) ([]part, error) {
	out := make([]part, len(items))
	var byAxis [geometry.Dim + 1][]part
	for i, it := range items {
		n := e.size(it.Axis, component)
		p := part{item: it, mod: it.Mod, div: max(it.Div, 1)}
		if p.mod == 0 {
			p.mod = n
		}
		if n%p.mod != 0 {
			return nil, bad("order", it, "%d does not divide the %d places of %s", p.mod, n, it.Axis)
		}
		if p.mod%p.div != 0 {
			return nil, bad("order", it, "%d does not divide %d places of %s", p.div, p.mod, it.Axis)
		}
		out[i] = p
		byAxis[it.Axis] = append(byAxis[it.Axis], p)
	}
	for axis, ps := range byAxis {
		if len(ps) == 0 {
			continue // Validate has seen that it may be left out
		}
		// From the most significant part down, each starts where the last ends.
		slices.SortStableFunc(ps, func(a, b part) int { return cmp.Or(cmp.Compare(b.mod, a.mod), cmp.Compare(b.div, a.div)) })
		n := e.size(geometry.Axis(axis), component)
		want := n
		for _, p := range ps {
			if p.mod != want {
				return nil, bad("order", s.Text(), "the items of %s do not tile its %d places: %s stands where the part below %d is due", geometry.Axis(axis), n, p.item, want)
			}
			want = p.div
		}
		if want != 1 {
			return nil, bad("order", s.Text(), "the items of %s do not tile its %d places: the part below %d is missing", geometry.Axis(axis), n, want)
		}
	}
	return out, nil
}

// put gives part i of a column its stride over what lies inside it, and adds
// it to the column's size.
func (s Spec) put(col *column, i int, mayStride bool) error {
	p := &col.parts[i]
	p.stride = col.size
	if mayStride {
		if v, ok := s.Strides[p.item.String()]; ok {
			if v*8 < col.size {
				return bad("strides."+p.item.String(), v, "smaller than what lies inside, %d bytes", (col.size+7)/8)
			}
			p.stride = v * 8
		}
	}
	if p.stride > maxBits/p.count() {
		return bad("order", p.item, "%d times %d bytes is larger than %d bytes", p.count(), (p.stride+7)/8, MaxRegionBytes)
	}
	col.size = p.stride * p.count()
	return nil
}

// assemble makes the layout from each component's order.
func (s Spec) assemble(e Extent, joined bool, columns []column) *Layout {
	layered := slices.ContainsFunc(columns[0].parts, func(p part) bool { return p.item.Axis == geometry.Layer })
	var regions []Region
	index := make([]int, len(e.Layers)*len(e.Components)) // region by layer, component
	for li, layer := range e.Layers {
		for ci, c := range e.Components {
			at := li*len(e.Components) + ci
			var name string
			switch {
			case joined && ci > 0:
				index[at] = index[at-1]
				continue
			case layered && li > 0:
				index[at] = index[ci]
				continue
			case joined && layered:
				name = "pool"
			case layered:
				name = c.Name
			case joined:
				name = fmt.Sprintf("layer%d", layer)
			default:
				name = fmt.Sprintf("layer%d.%s", layer, c.Name)
			}
			index[at] = len(regions)
			regions = append(regions, Region{name, (columns[ci].size + 7) / 8})
		}
	}
	digits := make([][]Digit, len(columns))
	for ci, col := range columns {
		for _, p := range col.parts {
			if p.item.Axis != geometry.Layer {
				digits[ci] = append(digits[ci], Digit{p.item.Axis, p.mod, p.div, p.stride})
			}
		}
		digits[ci] = canonical(digits[ci])
	}
	return build(e, regions, func(ci, li int) (int, int64, []Digit) {
		offset := columns[ci].offset
		for _, p := range columns[ci].parts {
			if p.item.Axis == geometry.Layer {
				offset += int64(li) % p.mod / p.div * p.stride
			}
		}
		return index[li*len(e.Components)+ci], offset, digits[ci]
	})
}

// build makes a layout of places. at says where a component of a layer (by
// index) lies; its digits are canonical.
func build(e Extent, regions []Region, at func(component, layer int) (region int, offset int64, digits []Digit)) *Layout {
	l := &Layout{Extent: e, Regions: regions, Places: make([][]Place, len(e.Components))}
	for ci := range e.Components {
		l.Places[ci] = make([]Place, len(e.Layers))
		for li := range e.Layers {
			region, offset, digits := at(ci, li)
			m := slices.IndexFunc(l.Maps, func(o []Digit) bool { return slices.Equal(o, digits) })
			switch {
			case m >= 0:
			case len(l.Maps) > MaxMaps: // Validate refuses it for that
				m = MaxMaps
			default:
				m = len(l.Maps)
				l.Maps = append(l.Maps, digits)
			}
			l.Places[ci][li] = Place{region, offset, m}
		}
	}
	return l
}

// canonical drops the digits of one value, joins those of an axis that
// continue one another, and sorts: equal functions have equal digits.
func canonical(digits []Digit) []Digit {
	var out []Digit
	for axis := geometry.Block; axis <= geometry.Dim; axis++ {
		var own []Digit
		for _, d := range digits {
			if d.Axis == axis && d.Count() > 1 {
				own = append(own, d)
			}
		}
		slices.SortFunc(own, func(a, b Digit) int { return cmp.Compare(a.Div, b.Div) })
		for i, d := range own {
			if last := len(out) - 1; i > 0 && d.Div == out[last].Mod && d.Stride == out[last].Count()*out[last].Stride {
				out[last].Mod = d.Mod
				continue
			}
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b Digit) int { return cmp.Or(cmp.Compare(b.Stride, a.Stride), cmp.Compare(a.Axis, b.Axis)) })
	return out
}
