package layout_test

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// drawing draws random extents and specs.
type drawing struct{ *rand.Rand }

func (r drawing) of(n ...int) int { return n[r.IntN(len(n))] }

// divisor draws a divisor of n that is a multiple of all of the given.
func (r drawing) divisor(n int, of ...int) int {
	var all []int
	for d := 1; d <= n; d++ {
		if n%d == 0 && !slices.ContainsFunc(of, func(o int) bool { return d%max(o, 1) != 0 }) {
			all = append(all, d)
		}
	}
	return r.of(all...)
}

// extent draws a group of tokens or of states, whose components may differ in
// heads, width, type and tokens an entry.
func (r drawing) extent() layout.Extent {
	e := layout.Extent{Blocks: r.of(1, 2, 3, 4), Tokens: r.of(1, 2, 3, 4, 6, 8), State: r.IntN(6) == 0}
	if e.State {
		e.Tokens = 1
	}
	layer := 7
	for range r.of(1, 2, 3) {
		e.Layers = append(e.Layers, layer)
		layer += r.of(1, 2)
	}
	dtypes := []geometry.DType{geometry.FP32, geometry.BF16, geometry.FP8E4M3, geometry.FP4}
	dim, dtype, heads := r.of(2, 4, 6, 8), dtypes[r.IntN(4)], r.of(0, 1, 2, 3)
	mixed, entries := r.IntN(3) == 0, !e.State && r.IntN(3) == 0
	for i := range r.of(1, 2, 2, 3, 4) {
		c := geometry.Component{Name: []string{"k", "v", "k_scale", "v_scale"}[i], Dim: dim, DType: dtype}
		if r.IntN(3) == 0 {
			c.Dim, c.DType = r.of(2, 4, 10), dtypes[r.IntN(4)]
		}
		own := heads
		if mixed && r.IntN(2) == 0 {
			own = r.of(0, 1, 2, 3)
		}
		if own > 0 {
			c.Heads = 6
		}
		if own > 1 && r.IntN(4) == 0 {
			c.Unit = own
		}
		if entries && r.IntN(2) == 0 {
			if c.Entry = r.divisor(e.Tokens); c.Entry == 1 {
				c.Entry = 0
			}
		}
		if i > 1 && r.IntN(2) == 0 {
			c.Scales = strings.TrimSuffix(c.Name, "_scale")
		}
		e.Components, e.Heads = append(e.Components, c), append(e.Heads, own)
	}
	return e
}

// split cuts an axis of n places at random divisors.
func (r drawing) split(axis geometry.Axis, n int64) []layout.Item {
	cuts := []int64{1}
	for d := int64(2); d < n; d++ {
		if n%d == 0 && d%cuts[len(cuts)-1] == 0 && r.IntN(3) == 0 {
			cuts = append(cuts, d)
		}
	}
	cuts = append(cuts, 0)
	var out []layout.Item
	for i := range len(cuts) - 1 {
		it := layout.Item{Axis: axis, Mod: cuts[i+1]}
		if cuts[i] > 1 {
			it.Div = cuts[i]
		}
		out = append(out, it)
	}
	return out
}

// spec draws an order for the extent: axes in parts, branches in branches, with
// "component" at any of the levels or at none, kernel blocks and strides.
func (r drawing) spec(e layout.Extent) layout.Spec {
	var s layout.Spec
	if !e.State && r.IntN(4) == 0 {
		var of []int
		for _, c := range e.Components {
			of = append(of, c.Entry)
		}
		s.Kernel = int64(r.divisor(e.Tokens, of...))
	}
	axes := []geometry.Axis{geometry.Block, geometry.Token, geometry.Head, geometry.Dim}
	if r.IntN(2) == 0 {
		axes = append(axes, geometry.Layer)
	}
	left := make([][]layout.Item, len(e.Components)) // what the order of a component still lacks
	for _, axis := range axes {
		cut := map[int64][]layout.Item{}
		for ci, c := range e.Components {
			n := places(e, axis, ci)
			if axis == geometry.Token && s.Kernel > 0 {
				n = s.Kernel / int64(max(c.Entry, 1))
			}
			switch {
			case axis == geometry.Head && e.Heads[ci] == 0, axis == geometry.Token && e.State:
				continue
			case axis == geometry.Token && n == 1 && (c.Entry > 1 || s.Kernel > 0) && r.IntN(2) == 0:
				continue // one place: it need not be named
			case axis == geometry.Dim && r.IntN(3) == 0:
				left[ci] = append(left[ci], r.split(axis, n)...)
				continue
			case cut[n] == nil && axis == geometry.Block && s.Kernel > 0:
				cut[n] = []layout.Item{{Axis: axis}}
			case cut[n] == nil:
				cut[n] = r.split(named(e, axis), n)
			}
			left[ci] = append(left[ci], cut[n]...)
		}
	}
	s.Order = r.order(twin{s, e}, twin{s, e}.all(), left, 0, r.IntN(4) == 0)
	var outside []string
	for _, en := range s.Order {
		if en.Component || en.Branch != nil {
			break
		}
		outside = append(outside, en.Item.String())
	}
	if len(outside) > 0 && r.IntN(2) == 0 {
		s.Strides = map[string]int64{outside[r.IntN(len(outside))]: int64(1 << 17 << r.IntN(3))}
	}
	return s
}

// order draws the order of some components at a depth of branches. Where they
// all lie apart, an item may take another number of values in each.
func (r drawing) order(w twin, of []int, left [][]layout.Item, depth int, apart bool) []layout.Entry {
	var common []layout.Item
	for _, it := range left[of[0]] {
		_, want := w.loop(it, layout.Element{Component: of[0]})
		if !slices.ContainsFunc(of, func(c int) bool {
			_, n := w.loop(it, layout.Element{Component: c})
			return !slices.Contains(left[c], it) || !apart && n != want
		}) {
			common = append(common, it)
		}
	}
	r.Shuffle(len(common), func(i, j int) { common[i], common[j] = common[j], common[i] })
	if r.IntN(3) == 0 {
		common = common[:r.IntN(len(common)+1)]
	}
	var out []layout.Entry
	for _, it := range common {
		out = append(out, layout.Entry{Item: it})
		for _, c := range of {
			left[c] = slices.DeleteFunc(slices.Clone(left[c]), func(o layout.Item) bool { return o == it })
		}
	}
	if !apart && r.IntN(3) > 0 {
		out = slices.Insert(out, r.IntN(len(out)+1), layout.Entry{Component: true})
	}
	rest := slices.ContainsFunc(of, func(c int) bool { return len(left[c]) > 0 })
	switch {
	case len(of) == 1 && (depth == 4 || r.IntN(4) > 0):
		r.Shuffle(len(left[of[0]]), func(i, j int) { left[of[0]][i], left[of[0]][j] = left[of[0]][j], left[of[0]][i] })
		for _, it := range left[of[0]] {
			out = append(out, layout.Entry{Item: it})
		}
	case rest || depth < 3 && r.IntN(4) == 0:
		sets := make([][]int, len(of))
		for i, c := range of {
			set := i
			if depth < 3 {
				set = r.IntN(len(of))
			}
			sets[set] = append(sets[set], c)
		}
		branch := map[string][]layout.Entry{}
		for _, set := range sets {
			var names []string
			for _, c := range set {
				names = append(names, w.Components[c].Name)
			}
			if len(set) > 0 {
				branch[strings.Join(names, ",")] = r.order(w, set, left, depth+1, apart)
			}
		}
		out = append(out, layout.Entry{Branch: branch})
	}
	return out
}
