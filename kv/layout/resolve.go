package layout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// maxBits bounds offsets and spans inside a region.
const maxBits = MaxRegionBytes * 8

// part is an item of one component with the extents filled in.
type part struct {
	item     Item
	axis     geometry.Axis // slot and channel as block and head
	mod, div int64
	stride   int64 // bits
}

func (p *part) count() int64 { return p.mod / p.div }

// column is the order of one component.
type column struct {
	parts  []part // outermost first
	outer  int    // parts[:outer] stand outside the place where components part ways
	left   int    // parts that have no stride yet
	offset int64  // bits of its first element above that of its unit
}

// unit is components that lie together, inside what has been laid out so far.
type unit struct {
	components []int
	size       int64 // bits
}

// Resolve computes the layout of one rank.
//
// Region names are "pool", or by component ("k"), by layer ("layer41") or by
// both ("layer41.k") where component and layer are left out of the order; a
// layer's number is its number in the model, and components that lie together
// are joined by "+", as they lie. A region's size is the count of the outermost item times
// its stride, trailing pad included.
//
// Errors: *Error, *ClaimError.
func (s Spec) Resolve(e Extent) (*Layout, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if err := s.validate(&e); err != nil {
		return nil, err
	}
	columns := make([]column, len(e.Components))
	all := make([]int, len(e.Components))
	for ci := range e.Components {
		items, outer := s.items(&e.Components[ci])
		parts, err := s.parts(&e, ci, items)
		if err != nil {
			return nil, err
		}
		columns[ci] = column{parts: parts, outer: outer, left: len(parts)}
		all[ci] = ci
	}
	units, err := s.lay(&e, columns, s.Order, all, s.stridden())
	if err != nil {
		return nil, err
	}
	l := s.assemble(e, units, columns)
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if s.Name != "" {
		if err := s.claim(&e, columns); err != nil {
			return nil, err
		}
		if s.Kernel == 0 { // the strides of a block show no kernel blocks
			if err := l.Claim(s.Name); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// lay gives strides to what an order says of some components, from the inside
// out, and returns what lies together then. The items of the first stridden
// entries may have a stride given.
func (s Spec) lay(e *Extent, columns []column, order []Entry, components []int, stridden int) ([]unit, error) {
	var units []unit
	last := len(order)
	if last > 0 && order[last-1].Branch != nil {
		last--
		for _, ci := range components {
			if slices.ContainsFunc(units, func(u unit) bool { return slices.Contains(u.components, ci) }) {
				continue
			}
			for key, below := range order[last].Branch {
				names := strings.Split(key, ",")
				if !slices.Contains(names, e.Components[ci].Name) {
					continue
				}
				var own []int
				for _, o := range components {
					if slices.Contains(names, e.Components[o].Name) {
						own = append(own, o)
					}
				}
				more, err := s.lay(e, columns, below, own, 0)
				if err != nil {
					return nil, err
				}
				units = append(units, more...)
			}
		}
		// What a branch says of several at once leaves them where they are.
		slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.components[0], b.components[0]) })
	} else {
		for _, ci := range components {
			units = append(units, unit{[]int{ci}, e.Components[ci].DType.Bits()})
		}
	}
	for i := last - 1; i >= 0; i-- {
		if order[i].Component {
			var together unit
			for _, u := range units {
				for _, ci := range u.components {
					columns[ci].offset += together.size
				}
				together.components = append(together.components, u.components...)
				if together.size += u.size; together.size > maxBits {
					return nil, bad("order", s.Text(), "the components together are larger than %d bytes", MaxRegionBytes)
				}
			}
			units = []unit{together}
			continue
		}
		for u := range units {
			if err := s.put(e, columns, &units[u], order[i].Item, i < stridden); err != nil {
				return nil, err
			}
		}
	}
	return units, nil
}

// put gives an item its stride over the unit, which grows by it.
func (s Spec) put(e *Extent, columns []column, u *unit, it Item, mayStride bool) error {
	first := u.components[0]
	lowered := s.lower(it, &e.Components[first])
	for k := len(lowered) - 1; k >= 0; k-- {
		stride := u.size
		if k == len(lowered)-1 && mayStride {
			if v, ok := s.Strides[it.String()]; ok {
				if v*8 < u.size {
					return bad("strides."+it.String(), v, "smaller than what lies inside, %d bytes", (u.size+7)/8)
				}
				stride = v * 8
			}
		}
		var count int64
		for _, ci := range u.components {
			col := &columns[ci]
			col.left--
			p := &col.parts[col.left]
			p.stride = stride
			if ci == first {
				count = p.count()
			} else if n := p.count(); n != count {
				return bad("order", p.item, "stands outside component and takes %d values in component %s, %d in %s", n, e.Components[ci].Name, count, e.Components[first].Name)
			}
		}
		if stride > maxBits/count {
			return bad("order", it, "%d times %d bytes is larger than %d bytes", count, (stride+7)/8, MaxRegionBytes)
		}
		u.size = stride * count
	}
	return nil
}

// parts fills in an item list for one component and checks that the items of
// each axis tile it.
func (s Spec) parts(e *Extent, component int, items []Item) ([]part, error) {
	out := make([]part, len(items))
	var byAxis [geometry.Dim + 1][]part
	for i, it := range items {
		axis, _ := e.on(it.Axis)
		n := e.size(axis, component)
		p := part{item: it, axis: axis, mod: it.Mod, div: max(it.Div, 1)}
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
		byAxis[axis] = append(byAxis[axis], p)
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
				return nil, bad("order", s.Text(), "the items of %s do not tile its %d places: %s stands where the part below %d is due", e.Name(geometry.Axis(axis)), n, p.item, want)
			}
			want = p.div
		}
		if want != 1 {
			return nil, bad("order", s.Text(), "the items of %s do not tile its %d places: the part below %d is missing", e.Name(geometry.Axis(axis)), n, want)
		}
	}
	return out, nil
}

// assemble makes the layout from what lies together and each component's order.
func (s Spec) assemble(e Extent, units []unit, columns []column) *Layout {
	layered := slices.ContainsFunc(columns[0].parts, func(p part) bool { return p.axis == geometry.Layer })
	whole := s.joined() // one unit
	var regions []Region
	index := make([]int, len(e.Layers)*len(e.Components)) // region by layer, component
	for li, layer := range e.Layers {
		for _, u := range units {
			region := len(regions)
			if layered && li > 0 {
				region = index[u.components[0]]
			} else {
				var names []string
				for _, ci := range u.components {
					names = append(names, e.Components[ci].Name)
				}
				name := strings.Join(names, "+")
				switch {
				case whole && layered:
					name = "pool"
				case whole:
					name = fmt.Sprintf("layer%d", layer)
				case !layered:
					name = fmt.Sprintf("layer%d.%s", layer, name)
				}
				regions = append(regions, Region{name, (u.size + 7) / 8})
			}
			for _, ci := range u.components {
				index[li*len(e.Components)+ci] = region
			}
		}
	}
	digits := make([][]Digit, len(columns))
	for ci, col := range columns {
		for _, p := range col.parts {
			if p.axis != geometry.Layer {
				digits[ci] = append(digits[ci], Digit{p.axis, p.mod, p.div, p.stride})
			}
		}
		digits[ci] = canonical(digits[ci])
	}
	return build(e, regions, func(ci, li int) (int, int64, []Digit) {
		offset := columns[ci].offset
		for _, p := range columns[ci].parts {
			if p.axis == geometry.Layer {
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
