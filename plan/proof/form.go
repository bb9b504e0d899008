package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// A form is a layout turned inside out: where the layout says at which bit an
// element lies, the form says which element lies at a bit. It is a tree of
// three kinds of nodes: a loop (what is inside repeats with a stride), a split
// (different things lie one after the other) and a leaf (one element). That
// such a tree exists also shows that no two elements share a bit.
type form struct {
	l       *layout.Layout
	digits  [][]digit // by map: those that take more than one value, by descending stride
	block   []int     // by map: maps with equal block digits have equal numbers
	aligned []bool    // by map: every block starts on a byte
	strata  []stratum // by layer index
	whole   []*node   // by region; nil where one layer is alone in it
}

// stratum is one layer of a form.
type stratum struct {
	shape   *shape
	regions []int   // regions in which it lies; the index is the ordinal
	bases   []int64 // by ordinal: bit at which the shape's tree starts
}

// shape is what layers alike share: the trees, one an ordinal.
type shape struct {
	roots []*node
	key   []placement
	deep  int // loops from root to leaf, at most
}

type placement struct {
	ordinal int
	offset  int64 // bits above the base
	m       int
}

// digit is part of an axis: value v of it is v*div of the coordinate.
type digit struct {
	axis               geometry.Axis
	count, div, stride int64
}

type node struct {
	size int64 // bits from the first to behind the last element

	stride int64 // a loop over child, how often depends on the leaf
	level  int   // loops above this one
	child  *node

	parts []part // a split, ascending and disjoint

	leaf *leaf
}

type part struct {
	at   int64 // bits
	node *node
}

type leaf struct {
	component, layer int // layer: index in the extent
	bits             int64
	m                int
	digits           []digit // by level
}

// read makes the form of l. It returns a reason where no tree explains l: then
// elements overlap, or leave their region, or interleave in a way that is not
// decided here.
func read(l *layout.Layout) (*form, string) {
	f := &form{l: l, whole: make([]*node, len(l.Regions))}
	if why := f.readMaps(); why != "" {
		return nil, why
	}
	if why := f.readPlaces(); why != "" {
		return nil, why
	}
	return f, ""
}

// name is what an axis is called: blocks and heads of states are slots and
// channels.
func (f *form) name(a geometry.Axis) string {
	switch {
	case f.l.Extent.State && a == geometry.Block:
		a = geometry.Slot
	case f.l.Extent.State && a == geometry.Head:
		a = geometry.Channel
	}
	return a.String()
}

// readMaps takes the maps apart into digits.
func (f *form) readMaps() string {
	for m, digits := range f.l.Maps {
		var ds []digit
		aligned := true
		for _, d := range digits {
			if d.Div < 1 || d.Mod < d.Div || d.Mod%d.Div != 0 {
				return fmt.Sprintf("map %d: %s%%%d/%d is no digit", m, f.name(d.Axis), d.Mod, d.Div)
			}
			if d.Mod == d.Div {
				continue // one value, 0
			}
			if d.Stride < 1 || d.Stride > layout.MaxRegionBytes*8 {
				return fmt.Sprintf("map %d: stride of %s is %d bits", m, f.name(d.Axis), d.Stride)
			}
			ds = append(ds, digit{d.Axis, d.Mod / d.Div, d.Div, d.Stride})
			aligned = aligned && (d.Axis != geometry.Block || d.Stride%8 == 0)
		}
		slices.SortStableFunc(ds, func(a, b digit) int { return cmp.Compare(b.stride, a.stride) })
		f.digits = append(f.digits, ds)
		f.aligned = append(f.aligned, aligned)
		class := m
		for o := range m {
			if slices.Equal(blocks(f.digits[o]), blocks(ds)) {
				class = o
				break
			}
		}
		f.block = append(f.block, class)
	}
	return ""
}

// blocks returns the block digits among ds.
func blocks(ds []digit) []digit {
	var out []digit
	for _, d := range ds {
		if d.axis == geometry.Block {
			out = append(out, d)
		}
	}
	return out
}

// tiles reports whether the digits of map m tile an axis of n values exactly.
func (f *form) tiles(m int, axis geometry.Axis, n int64) bool {
	var own []digit
	for _, d := range f.digits[m] {
		if d.axis == axis {
			own = append(own, d)
		}
	}
	slices.SortFunc(own, func(a, b digit) int { return cmp.Compare(a.div, b.div) })
	have := int64(1)
	for _, d := range own {
		if d.div != have {
			return false
		}
		have *= d.count
	}
	return have == n
}

// item is a leaf on its way into the tree: what is left of it below a node.
type item struct {
	at     int64 // bits above the node's start
	size   int64 // bits to behind its last element
	digits []digit
	leaf   *leaf
}

func (f *form) readPlaces() string {
	l := f.l
	type fit struct{ component, m int }
	fits := map[fit]bool{}
	alone := make([]int, len(l.Regions)) // layer index + 1 in the region, -1 for several
	var known []*shape
	if len(l.Places) != len(l.Extent.Components) || len(l.Extent.Heads) != len(l.Extent.Components) {
		return "it has not one place for each component"
	}
	for _, places := range l.Places {
		if len(places) != len(l.Extent.Layers) {
			return "it has not one place for each layer"
		}
	}
	// By layer and component, each allocated once: places are many. What a
	// stratum keeps points into these, which are never grown.
	n := len(l.Places) * len(l.Extent.Layers)
	all, leaves := make([]item, 0, n), make([]leaf, 0, n)
	regions, bases := make([]int, 0, n), make([]int64, 0, n)
	f.strata = make([]stratum, 0, len(l.Extent.Layers))
	var key []placement
	items := make([][]item, len(l.Places)) // by ordinal
	for layer := range l.Extent.Layers {
		s := stratum{regions: regions[len(regions):], bases: bases[len(bases):]}
		key = key[:0]
		for c, places := range l.Places {
			p, comp := places[layer], l.Extent.Components[c]
			if p.Region < 0 || p.Region >= len(l.Regions) || p.Map < 0 || p.Map >= len(l.Maps) {
				return fmt.Sprintf("place [%d][%d] names a region or map that is not there", c, layer)
			}
			if k := (fit{c, p.Map}); !fits[k] {
				for _, a := range []struct {
					axis geometry.Axis
					n    int
				}{{geometry.Block, l.Extent.Blocks}, {geometry.Token, l.Extent.Tokens / max(comp.Entry, 1)}, {geometry.Head, max(l.Extent.Heads[c], 1)}, {geometry.Dim, comp.Dim}} {
					if !f.tiles(p.Map, a.axis, int64(a.n)) {
						return fmt.Sprintf("map %d does not tile %d values of axis %s", p.Map, a.n, f.name(a.axis))
					}
				}
				fits[k] = true
			}
			it := item{at: p.Offset, size: comp.DType.Bits(), digits: f.digits[p.Map]}
			for _, d := range it.digits {
				it.size += (d.count - 1) * d.stride // validated layouts are far below overflow: size and stride of a region are bounded
				if it.size > layout.MaxRegionBytes*8 {
					return fmt.Sprintf("map %d is larger than any region", p.Map)
				}
			}
			if p.Offset < 0 || it.size > l.Regions[p.Region].Bytes*8-p.Offset {
				return fmt.Sprintf("component %s of layer %d leaves region %q", comp.Name, l.Extent.Layers[layer], l.Regions[p.Region].Name)
			}
			leaves = append(leaves, leaf{component: c, layer: layer, bits: comp.DType.Bits(), m: p.Map, digits: it.digits})
			it.leaf = &leaves[len(leaves)-1]
			ordinal := slices.Index(s.regions, p.Region)
			if ordinal < 0 {
				ordinal = len(s.regions)
				s.regions = append(s.regions, p.Region)
				s.bases = append(s.bases, p.Offset)
				items[ordinal] = items[ordinal][:0]
			}
			s.bases[ordinal] = min(s.bases[ordinal], p.Offset)
			items[ordinal] = append(items[ordinal], it)
			key = append(key, placement{ordinal, p.Offset, p.Map})
			all = append(all, it)
			switch alone[p.Region] {
			case 0, layer + 1:
				alone[p.Region] = layer + 1
			default:
				alone[p.Region] = -1
			}
		}
		regions, bases = regions[:len(regions)+len(s.regions)], bases[:len(bases)+len(s.bases)]
		for i := range key {
			key[i].offset -= s.bases[key[i].ordinal]
		}
		for _, o := range known {
			if slices.Equal(o.key, key) {
				s.shape = o
				break
			}
		}
		if s.shape == nil {
			s.shape = &shape{key: slices.Clone(key)}
			for o := range s.regions {
				root, why := grow(shift(items[o], s.bases[o]), 0)
				if why != "" {
					return fmt.Sprintf("layer %d: %s", l.Extent.Layers[layer], why)
				}
				s.shape.roots = append(s.shape.roots, root)
			}
			for _, p := range l.Places {
				s.shape.deep = max(s.shape.deep, len(f.digits[p[layer].Map]))
			}
			if known = append(known, s.shape); len(known) > 4 {
				known = known[1:]
			}
		}
		f.strata = append(f.strata, s)
	}
	if !slices.Contains(alone, -1) {
		return ""
	}
	byRegion := make([][]item, len(l.Regions))
	for _, it := range all {
		// A layer's own tree covers a region that is the layer's alone.
		if r := l.Places[it.leaf.component][it.leaf.layer].Region; alone[r] < 0 {
			byRegion[r] = append(byRegion[r], it)
		}
	}
	for r, items := range byRegion {
		if items == nil {
			continue
		}
		root, why := grow(items, 0)
		if why != "" {
			return fmt.Sprintf("region %q: %s", l.Regions[r].Name, why)
		}
		f.whole[r] = root
	}
	return ""
}

func shift(items []item, by int64) []item {
	out := slices.Clone(items)
	for i := range out {
		out[i].at -= by
	}
	return out
}

// grow makes the tree of the items, whose places count from the node's start.
// items is reordered.
func grow(items []item, level int) (*node, string) {
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	end := int64(0)
	var groups [][]item // by overlapping spans
	for i, it := range items {
		if i == 0 || it.at >= end {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], it)
		end = max(end, it.at+it.size)
	}
	if len(groups) > 1 || items[0].at > 0 {
		n := &node{size: end, level: level}
		for _, g := range groups {
			child, why := grow(shift(g, g[0].at), level)
			if why != "" {
				return nil, why
			}
			n.parts = append(n.parts, part{g[0].at, child})
		}
		return n, ""
	}
	if len(items) == 1 && len(items[0].digits) == 0 {
		return &node{size: end, level: level, leaf: items[0].leaf}, ""
	}
	// What overlaps can only be told apart by a digit that all share.
	inner := make([]item, len(items))
	for i, it := range items {
		if len(it.digits) == 0 || len(items[0].digits) == 0 {
			return nil, "elements overlap"
		}
		d, top := it.digits[0], items[0].digits[0]
		if d.stride != top.stride {
			return nil, fmt.Sprintf("components %d and %d interleave with unequal strides", items[0].leaf.component, it.leaf.component)
		}
		inner[i] = item{at: it.at, size: it.size - (d.count-1)*d.stride, digits: it.digits[1:], leaf: it.leaf}
	}
	top := items[0].digits[0]
	child, why := grow(inner, level+1)
	if why != "" {
		return nil, why
	}
	if child.size > top.stride {
		return nil, fmt.Sprintf("elements overlap: the stride of %s is %d bits, what it repeats spans %d", top.axis, top.stride, child.size)
	}
	return &node{size: end, level: level, stride: top.stride, child: child}, ""
}

// spot is the element at a bit.
type spot struct {
	component, layer int // layer: index in the extent
	head, token, dim int64
	foreign          bool  // in another block than id 0
	rest             int64 // bits above the element's start
	m                int
}

// spot returns what lies at bit x of a region; false for padding and for bits
// outside every row.
func (f *form) spot(region int, x int64) (spot, bool) {
	n := f.whole[region]
	if n == nil {
		// One layer at most lies here.
		for i := range f.strata {
			if o := slices.Index(f.strata[i].regions, region); o >= 0 {
				s, ok := find(f.strata[i].shape.roots[o], x-f.strata[i].bases[o])
				s.layer = i // the shape is another layer's, too
				return s, ok
			}
		}
		return spot{}, false
	}
	return find(n, x)
}

func find(n *node, x int64) (spot, bool) {
	var room [16]int64
	values := room[:0]
	for {
		switch {
		case x < 0 || x >= n.size:
			return spot{}, false
		case n.leaf != nil:
			s := spot{component: n.leaf.component, layer: n.leaf.layer, m: n.leaf.m, rest: x}
			for i, d := range n.leaf.digits {
				if values[i] >= d.count {
					return spot{}, false
				}
				v := values[i] * d.div
				switch d.axis {
				case geometry.Block:
					s.foreign = s.foreign || v != 0
				case geometry.Head:
					s.head += v
				case geometry.Token:
					s.token += v
				default:
					s.dim += v
				}
			}
			return s, true
		case n.child != nil:
			values = append(values, x/n.stride)
			x %= n.stride
			n = n.child
		default:
			p := n.behind(x)
			if p < 0 {
				return spot{}, false
			}
			x -= n.parts[p].at
			n = n.parts[p].node
		}
	}
}

// leafAt returns the leaf that bit x lies in, nil for none.
func (n *node) leafAt(x int64) *leaf {
	for x >= 0 && x < n.size {
		switch {
		case n.leaf != nil:
			return n.leaf
		case n.child != nil:
			x %= n.stride
			n = n.child
		default:
			p := n.behind(x)
			if p < 0 {
				return nil
			}
			x -= n.parts[p].at
			n = n.parts[p].node
		}
	}
	return nil
}

// behind returns the index of the last part that starts at or before x, -1
// where none does.
func (n *node) behind(x int64) int {
	i, ok := slices.BinarySearchFunc(n.parts, x, func(p part, x int64) int { return cmp.Compare(p.at, x) })
	if !ok {
		i--
	}
	return i
}

// order gives the axes outermost first, as the strides say, with the label
// that they deserve: "HND [block head token component dim]".
func (f *form) order() string {
	if len(f.strata) == 0 {
		return ""
	}
	type entry struct {
		name   string
		stride int64
	}
	var all []entry
	first := f.l.Places[0][0]
	head, token := int64(-1), int64(-1)
	for _, d := range f.digits[first.Map] {
		name := f.name(d.axis)
		if d.div > 1 {
			name += fmt.Sprintf("/%d", d.div)
		}
		all = append(all, entry{name, d.stride})
		switch d.axis {
		case geometry.Head:
			head = max(head, d.stride)
		case geometry.Token:
			token = max(token, d.stride)
		}
	}
	for c := 1; c < len(f.l.Places); c++ {
		if p := f.l.Places[c][0]; p.Region == first.Region {
			all = append(all, entry{"component", max(p.Offset-first.Offset, first.Offset-p.Offset)})
			break
		}
	}
	if len(f.strata) > 1 {
		if p := f.l.Places[0][1]; p.Region == first.Region {
			all = append(all, entry{"layer", max(p.Offset-first.Offset, first.Offset-p.Offset)})
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.stride, a.stride) })
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.name
	}
	label := ""
	switch {
	case head < 0 || token < 0:
	case head > token:
		label = "HND "
	default:
		label = "NHD "
	}
	return label + "[" + strings.Join(names, " ") + "]"
}
