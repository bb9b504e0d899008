package sample

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
)

// layouts draws one order of group gi and resolves it for every rank.
func (m *Maker) layouts(s *plan.Side, gi int) {
	g := s.Model.Groups[gi]
	o := orders{m: m, narrow: make([]int, len(g.Components))}
	extents := make([]layout.Extent, s.Shard.Ranks())
	for r := range extents {
		e := s.Part(gi, r).Extent(g, s.Groups[gi].Block, s.Groups[gi].Blocks)
		extents[r] = e
		if r == 0 {
			o.widest = e
			o.widest.Heads = slices.Clone(e.Heads)
		}
		if len(e.Layers) > len(o.widest.Layers) {
			o.widest.Layers = e.Layers
		}
		for i, n := range e.Heads {
			o.narrow[i] = gcd(o.narrow[i], n)
			o.widest.Heads[i] = max(o.widest.Heads[i], n)
		}
	}
	had := m.Has
	for tries := 0; ; tries++ {
		m.Has = map[Feature]bool{}
		spec := o.spec(tries == 100) // rows of half bytes must lie together; most orders part them
		known := map[string]*layout.Layout{}
		var all []*layout.Layout
		var err error
		for _, e := range extents {
			if len(e.Layers) == 0 {
				all = append(all, nil)
				continue
			}
			k := fmt.Sprint(e)
			if known[k] == nil {
				if known[k], err = spec.Resolve(e); err != nil {
					break
				}
			}
			all = append(all, known[k])
		}
		if err == nil {
			for r := range extents {
				s.Ranks[r] = append(s.Ranks[r], all[r])
			}
			for f := range m.Has {
				had[f] = true
			}
			m.Has = had
			return
		}
		half := slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.DType.Bits() < 8 })
		if !half || tries > 100 {
			panic(fmt.Sprintf("resolve %s (strides %v, kernel %d) for %+v: %v", spec.Text(), spec.Strides, spec.Kernel, o.widest, err))
		}
	}
}

// orders draws the order of one group.
type orders struct {
	m      *Maker
	widest layout.Extent // heads and layers: the most that a rank has
	narrow []int         // by component: a divisor of every rank's heads
	kernel int
}

// spec draws an order that fits every rank; a plain one where that is asked
// for.
func (o *orders) spec(plain bool) layout.Spec {
	e := &o.widest
	all := make([]int, len(e.Components))
	unit := 1
	for i, c := range e.Components {
		all[i] = i
		unit = LCM(unit, c.EntryTokens())
	}
	items := []layout.Item{{Axis: geometry.Block}, {Axis: geometry.Token}, {Axis: geometry.Head}, {Axis: geometry.Dim}}
	if e.State {
		items = []layout.Item{{Axis: geometry.Slot}, {Axis: geometry.Channel}, {Axis: geometry.Dim}}
	}
	items = slices.DeleteFunc(items, func(it layout.Item) bool {
		return !slices.ContainsFunc(all, func(c int) bool { return o.has(c, it) })
	})
	o.kernel = 0
	if plain {
		return layout.Spec{Order: o.plain(all, items)}
	}
	if !e.State && o.m.Chance(20) {
		var fits []int
		for k := unit; k <= e.Tokens; k += unit {
			if e.Tokens%k == 0 {
				fits = append(fits, k)
			}
		}
		o.kernel = pick(o.m, fits...)
		if o.kernel < e.Tokens {
			o.m.Has[Kernel] = true
		}
	}
	if o.m.Chance(50) {
		items = append(items, layout.Item{Axis: geometry.Layer})
	}
	var s layout.Spec
	s.Kernel = int64(o.kernel)
	s.Order, _ = o.order(all, items, 0)
	if o.m.Chance(20) {
		o.pad(&s, all)
	}
	return s
}

// plain is an order in which rows lie together, each component on its own.
func (o *orders) plain(all []int, items []layout.Item) []layout.Entry {
	branch := map[string][]layout.Entry{}
	for _, c := range all {
		branch[o.widest.Components[c].Name] = layout.Items(slices.DeleteFunc(slices.Clone(items), func(it layout.Item) bool { return !o.has(c, it) })...)
	}
	return []layout.Entry{{Branch: branch}}
}

// axis is what an item counts.
func axis(it layout.Item) geometry.Axis {
	switch it.Axis {
	case geometry.Slot:
		return geometry.Block
	case geometry.Channel:
		return geometry.Head
	}
	return it.Axis
}

// has reports whether a component has an item's axis.
func (o *orders) has(c int, it layout.Item) bool {
	return axis(it) != geometry.Head || o.widest.Components[c].Heads > 0
}

// alike reports whether an item takes equally many values in all components,
// on every rank.
func (o *orders) alike(components []int, it layout.Item) bool {
	first := &o.widest.Components[components[0]]
	return !slices.ContainsFunc(components, func(i int) bool {
		c := &o.widest.Components[i]
		switch {
		case !o.has(i, it) || !o.has(components[0], it):
			return true
		case it.Mod > 0:
			return false
		case axis(it) == geometry.Token:
			return c.Entry != first.Entry
		case axis(it) == geometry.Head:
			return c.Heads != first.Heads || c.Unit != first.Unit
		case axis(it) == geometry.Dim:
			return c.Dim != first.Dim
		}
		return false
	})
}

// split divides an item by chance where every component has room for it.
func (o *orders) split(components []int, it layout.Item) []layout.Item {
	n := 0
	for _, i := range components {
		c := &o.widest.Components[i]
		switch axis(it) {
		case geometry.Token:
			tokens := o.widest.Tokens
			if o.kernel > 0 {
				tokens = o.kernel
			}
			n = gcd(n, tokens/c.EntryTokens())
		case geometry.Head:
			n = gcd(n, o.narrow[i])
		case geometry.Dim:
			n = gcd(n, c.Dim)
		}
	}
	var fits []int64
	for d := 2; d < n; d++ {
		if n%d == 0 {
			fits = append(fits, int64(d))
		}
	}
	if it.Mod != 0 || it.Div != 0 || len(fits) == 0 || !o.m.Chance(15) {
		return []layout.Item{it}
	}
	o.m.Has[Tiled] = true
	d := pick(o.m, fits...)
	if len(fits) > 1 && o.m.Chance(30) {
		for _, e := range fits {
			if e > d && e%d == 0 {
				return []layout.Item{{Axis: it.Axis, Div: e}, {Axis: it.Axis, Mod: e, Div: d}, {Axis: it.Axis, Mod: d}}
			}
		}
	}
	return []layout.Item{{Axis: it.Axis, Div: d}, {Axis: it.Axis, Mod: d}}
}

// order draws an order of the items that some components follow. It also
// returns which of them lie together then.
func (o *orders) order(components []int, items []layout.Item, depth int) ([]layout.Entry, [][]int) {
	m := o.m
	var outer, inner []layout.Item // before and behind a branch
	everywhere := true             // all components have all axes
	for _, it := range items {
		for _, part := range o.split(components, it) {
			everywhere = everywhere && !slices.ContainsFunc(components, func(c int) bool { return !o.has(c, part) })
			outer = append(outer, part)
		}
	}
	if depth > 0 || !m.Chance(40) {
		m.Shuffle(len(outer), func(i, j int) { outer[i], outer[j] = outer[j], outer[i] })
	} else if k := slices.IndexFunc(outer, func(i layout.Item) bool { return axis(i) == geometry.Head }); k > 0 && m.Chance(50) {
		outer[1], outer[k] = outer[k], outer[1] // as engines do: block outside, dim inside, nothing else moved far
	}
	var order []layout.Entry
	var together [][]int
	if branches := o.branches(components, everywhere, depth); branches != nil && len(outer) > 0 {
		m.Has[Branched] = true
		// What the components do not have alike lies inside, and some more.
		inner = slices.Clone(outer[len(outer)-m.IntN(min(3, len(outer))):])
		if m.Chance(80) {
			inner = slices.DeleteFunc(inner, func(it layout.Item) bool { return it.Axis == geometry.Layer || axis(it) == geometry.Block })
		}
		for _, it := range outer {
			if !o.alike(components, it) && !slices.Contains(inner, it) {
				inner = append(inner, it)
			}
		}
		if len(inner) == 0 {
			inner = outer[len(outer)-1:]
		}
		outer = slices.DeleteFunc(slices.Clone(outer), func(it layout.Item) bool { return slices.Contains(inner, it) })
		branch := map[string][]layout.Entry{}
		for _, own := range branches {
			var names []string
			for _, c := range own {
				names = append(names, o.widest.Components[c].Name)
			}
			if len(own) > 1 {
				m.Has[Nested] = true
			}
			below, units := o.order(own, slices.DeleteFunc(slices.Clone(inner), func(it layout.Item) bool { return !o.has(own[0], it) }), depth+1)
			branch[strings.Join(names, ",")] = below
			together = append(together, units...)
		}
		order = []layout.Entry{{Branch: branch}}
	} else {
		for _, c := range components {
			together = append(together, []int{c})
		}
	}
	at := -1 // where they come together
	if len(components) > 1 && m.Chance(60) || m.Chance(20) {
		at = len(outer)
		if i := slices.IndexFunc(outer, func(it layout.Item) bool { return !o.alike(components, it) }); i >= 0 {
			at = i
		}
		at = m.IntN(at + 1)
		together = [][]int{components}
	}
	entries := layout.Items(outer...)
	if at >= 0 {
		entries = slices.Insert(entries, at, layout.Entry{Component: true})
	}
	return append(entries, order...), together
}

// branches divides components that follow orders of their own, nil where all
// follow one.
func (o *orders) branches(components []int, everywhere bool, depth int) [][]int {
	var out [][]int
	switch {
	case !everywhere: // with heads, and without
		out = make([][]int, 2)
		for _, c := range components {
			k := min(o.widest.Components[c].Heads, 1)
			out[k] = append(out[k], c)
		}
	case depth < 2 && o.m.Chance(20):
		out = make([][]int, 1+o.m.IntN(len(components)))
		for i, c := range components {
			if i >= len(out) {
				i = o.m.IntN(len(out))
			}
			out[i] = append(out[i], c)
		}
	}
	return out
}

// pad makes one item before the components part wider than it needs to be.
func (o *orders) pad(s *layout.Spec, all []int) {
	end := slices.IndexFunc(s.Order, func(en layout.Entry) bool { return en.Component })
	if end < 0 {
		end = slices.IndexFunc(s.Order, func(en layout.Entry) bool { return en.Branch != nil })
	}
	if end < 0 {
		end = len(s.Order)
	}
	if end == 0 {
		return
	}
	at := o.m.IntN(end)
	need := slices.Max(o.sizes(s.Order[at+1:], all))
	o.m.Has[Padded] = true
	s.Strides = map[string]int64{s.Order[at].Item.String(): (need+7)/8 + int64(o.m.IntN(3))*4}
}

// sizes are the bits that each part of the components that lies together takes.
func (o *orders) sizes(order []layout.Entry, components []int) []int64 {
	if len(order) == 0 {
		var out []int64
		for _, c := range components {
			out = append(out, o.widest.Components[c].DType.Bits())
		}
		return out
	}
	first, rest := order[0], order[1:]
	if first.Branch != nil {
		var out []int64
		for key, below := range first.Branch {
			names := strings.Split(key, ",")
			own := slices.DeleteFunc(slices.Clone(components), func(c int) bool { return !slices.Contains(names, o.widest.Components[c].Name) })
			out = append(out, o.sizes(below, own)...)
		}
		return out
	}
	out := o.sizes(rest, components)
	if first.Component {
		sum := int64(0)
		for _, n := range out {
			sum += n
		}
		return []int64{sum}
	}
	if len(out) == len(components) { // each on its own, in any order where they branched
		if !slices.ContainsFunc(rest, func(en layout.Entry) bool { return en.Branch != nil }) {
			for i, c := range components {
				out[i] *= o.values(first.Item, c)
			}
			return out
		}
	}
	most := int64(0)
	for _, c := range components {
		most = max(most, o.values(first.Item, c))
	}
	for i := range out {
		out[i] *= most
	}
	return out
}

// values is the number of values of an item, at most.
func (o *orders) values(it layout.Item, component int) int64 {
	e := &o.widest
	c := &e.Components[component]
	n := it.Mod
	if n == 0 {
		tokens := e.Tokens
		if o.kernel > 0 {
			tokens = o.kernel
		}
		switch axis(it) {
		case geometry.Layer:
			n = int64(len(e.Layers))
		case geometry.Block:
			n = int64(e.Blocks) * int64(e.Tokens/tokens)
		case geometry.Token:
			n = int64(tokens / c.EntryTokens())
		case geometry.Head:
			n = int64(max(e.Heads[component], 1))
		default:
			n = int64(c.Dim)
		}
	}
	return n / max(it.Div, 1)
}

// Order makes a spec from words: item texts, and "component".
// Preconditions: every word is one.
func Order(words string) layout.Spec {
	var s layout.Spec
	for _, w := range strings.Fields(words) {
		if w == "component" {
			s.Order = append(s.Order, layout.Entry{Component: true})
			continue
		}
		item, err := layout.ParseItem(w)
		if err != nil {
			panic(err)
		}
		s.Order = append(s.Order, layout.Entry{Item: item})
	}
	return s
}
