package layout_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// places is how many coordinates a component has on an axis of its extent.
func places(e layout.Extent, axis geometry.Axis, component int) int64 {
	c := e.Components[component]
	switch axis {
	case geometry.Layer:
		return int64(len(e.Layers))
	case geometry.Block, geometry.Slot:
		return int64(e.Blocks)
	case geometry.Token:
		return int64(e.Tokens / max(c.Entry, 1))
	case geometry.Head, geometry.Channel:
		return int64(max(e.Heads[component], 1))
	}
	return int64(c.Dim)
}

// elements calls f for every element of an extent.
func elements(e layout.Extent, f func(layout.Element)) {
	for c, comp := range e.Components {
		for l := range e.Layers {
			for b := range int64(e.Blocks) {
				for n := range places(e, geometry.Token, c) {
					for h := range places(e, geometry.Head, c) {
						for d := range int64(comp.Dim) {
							f(layout.Element{Component: c, Layer: l, Block: b, Token: n, Head: h, Dim: d})
						}
					}
				}
			}
		}
	}
}

func at(l *layout.Layout, el layout.Element) (int, int64) {
	return l.Bit(el.Component, el.Layer, el.Block, el.Token, el.Head, el.Dim)
}

// overlap looks at every bit of every element: the dumb twin of Validate.
func overlap(l *layout.Layout) string {
	type bit struct {
		region int
		at     int64
	}
	// Bits come in halves of a byte, but where a test has moved something.
	grain := int64(4)
	for _, places := range l.Places {
		for _, p := range places {
			if p.Offset%4 != 0 {
				grain = 1
			}
		}
	}
	for _, m := range l.Maps {
		for _, d := range m {
			if d.Stride%4 != 0 {
				grain = 1
			}
		}
	}
	owner := map[bit]layout.Element{}
	why := ""
	elements(l.Extent, func(el layout.Element) {
		r, x := at(l, el)
		bits := l.Extent.Components[el.Component].DType.Bits()
		if x < 0 || x+bits > l.Regions[r].Bytes*8 {
			why = fmt.Sprintf("%s leaves its region", el)
		}
		for b := int64(0); b < bits; b += grain {
			if o, ok := owner[bit{r, x + b}]; ok {
				why = fmt.Sprintf("%s lies on %s", el, o)
			}
			owner[bit{r, x + b}] = el
		}
	})
	return why
}

// twin says where an element lies by the definition of an order: a nest of
// loops, where "component" puts one thing behind the other, where a branch goes
// on for some components alone, and where a block of kernel blocks is so many
// blocks with ids of their own.
type twin struct {
	layout.Spec
	layout.Extent
}

// kernels is the number of kernel blocks in a block, and of entries in each.
func (w twin) kernels(component int) (blocks, entries int64) {
	entries = places(w.Extent, geometry.Token, component)
	if w.Kernel == 0 {
		return 1, entries
	}
	return int64(w.Tokens) / w.Kernel, entries / (int64(w.Tokens) / w.Kernel)
}

// loop is the value that an item takes for an element, and how many it can.
func (w twin) loop(it layout.Item, el layout.Element) (x, n int64) {
	blocks, entries := w.kernels(el.Component)
	n = places(w.Extent, it.Axis, el.Component)
	switch it.Axis {
	case geometry.Layer:
		x = int64(el.Layer)
	case geometry.Block, geometry.Slot:
		x, n = el.Block*blocks+el.Token/entries, n*blocks
	case geometry.Token:
		x, n = el.Token%entries, entries
	case geometry.Head, geometry.Channel:
		x = el.Head
	default:
		x = el.Dim
	}
	if it.Mod > 0 {
		x, n = x%it.Mod, it.Mod
	}
	return x / max(it.Div, 1), n / max(it.Div, 1)
}

// chosen is what a branch says of a component, and for which it says so.
func (w twin) chosen(branch map[string][]layout.Entry, component int) ([]layout.Entry, []int) {
	for key, order := range branch {
		var own []int
		for name := range strings.SplitSeq(key, ",") {
			own = append(own, slices.IndexFunc(w.Components, func(c geometry.Component) bool { return c.Name == name }))
		}
		if slices.Contains(own, component) {
			return order, own
		}
	}
	panic("a branch without the component")
}

// unit is the components of those given that lie together with one, as they lie.
func (w twin) unit(order []layout.Entry, component int, of []int) []int {
	for i, en := range order {
		if en.Component {
			return slices.Concat(w.units(order[i+1:], of)...)
		}
		if en.Branch != nil {
			below, own := w.chosen(en.Branch, component)
			return w.unit(below, component, own)
		}
	}
	return []int{component}
}

// size is how many bits an order takes for what lies together with a component.
// Items have strides of their own where outside.
func (w twin) size(order []layout.Entry, component int, of []int, outside bool) int64 {
	if len(order) == 0 {
		return w.Components[component].DType.Bits()
	}
	switch en := order[0]; {
	case en.Component:
		var sum int64
		for _, u := range w.units(order[1:], of) {
			sum += w.size(order[1:], u[0], of, false)
		}
		return sum
	case en.Branch != nil:
		below, own := w.chosen(en.Branch, component)
		return w.size(below, component, own, false)
	default:
		_, n := w.loop(en.Item, layout.Element{Component: component})
		return n * w.stride(order, component, of, outside)
	}
}

// units are what "component" puts behind one another, in the model's order.
func (w twin) units(order []layout.Entry, of []int) [][]int {
	var out [][]int
	for _, c := range of {
		if !slices.ContainsFunc(out, func(u []int) bool { return slices.Contains(u, c) }) {
			out = append(out, w.unit(order, c, of))
		}
	}
	return out
}

func (w twin) stride(order []layout.Entry, component int, of []int, outside bool) int64 {
	if v, ok := w.Strides[order[0].Item.String()]; ok && outside {
		return 8 * v
	}
	return w.size(order[1:], component, of, outside)
}

// term is a loop of the nest with the bits from one turn to the next.
type term struct {
	item   layout.Item
	stride int64
}

// terms are the loops of a component in what lies together with it, and where
// its first element lies there.
func (w twin) terms(order []layout.Entry, component int, of []int, outside bool) (first int64, terms []term) {
	if len(order) == 0 {
		return 0, nil
	}
	switch en := order[0]; {
	case en.Component:
		var before int64
		for _, u := range w.units(order[1:], of) {
			if slices.Contains(u, component) {
				break
			}
			before += w.size(order[1:], u[0], of, false)
		}
		first, terms = w.terms(order[1:], component, of, false)
		return before + first, terms
	case en.Branch != nil:
		below, own := w.chosen(en.Branch, component)
		return w.terms(below, component, own, false)
	default:
		first, terms = w.terms(order[1:], component, of, outside)
		return first, append(terms, term{en.Item, w.stride(order, component, of, outside)})
	}
}

func (w twin) all() []int {
	out := make([]int, len(w.Components))
	for i := range out {
		out[i] = i
	}
	return out
}

// region is the one in which a component of a layer lies, with its size.
func (w twin) region(component, layer int) layout.Region {
	layered := false
	var look func(order []layout.Entry)
	look = func(order []layout.Entry) {
		for _, en := range order {
			layered = layered || en.Item.Axis == geometry.Layer
			for _, below := range en.Branch {
				look(below)
			}
		}
	}
	look(w.Order)
	var names []string
	for _, c := range w.unit(w.Order, component, w.all()) {
		names = append(names, w.Components[c].Name)
	}
	name := strings.Join(names, "+")
	switch whole := slices.ContainsFunc(w.Order, func(en layout.Entry) bool { return en.Component }); {
	case whole && layered:
		name = "pool"
	case whole:
		name = fmt.Sprintf("layer%d", w.Layers[layer])
	case !layered:
		name = fmt.Sprintf("layer%d.%s", w.Layers[layer], name)
	}
	return layout.Region{Name: name, Bytes: (w.size(w.Order, component, w.all(), true) + 7) / 8}
}

// compare looks at every element; "" where the layout is that of the twin.
func (w twin) compare(l *layout.Layout) string {
	why := ""
	var component, layer int
	first, terms := int64(0), []term(nil)
	region := layout.Region{}
	elements(w.Extent, func(el layout.Element) {
		if region.Name == "" || el.Component != component || el.Layer != layer {
			component, layer = el.Component, el.Layer
			region = w.region(component, layer)
			first, terms = w.terms(w.Order, component, w.all(), true)
		}
		bit := first
		for _, t := range terms {
			x, _ := w.loop(t.item, el)
			bit += x * t.stride
		}
		if r, x := at(l, el); l.Regions[r] != region || bit != x {
			why = fmt.Sprintf("%s lies at bit %d of %v, by the definition at bit %d of %v", el, x, l.Regions[r], bit, region)
		}
	})
	return why
}

func observe(l *layout.Layout, els []layout.Element) []layout.Sample {
	var out []layout.Sample
	for _, el := range els {
		r, x := at(l, el)
		out = append(out, layout.Sample{Element: el, Region: r, Bit: x})
	}
	return out
}

// register describes a layout as one tensor a place; nil where elements are
// smaller than a byte.
func register(l *layout.Layout) []layout.Tensor {
	var out []layout.Tensor
	for li, layer := range l.Extent.Layers {
		for ci, c := range l.Extent.Components {
			if c.DType.Bits() < 8 {
				return nil
			}
			p := l.Places[ci][li]
			if p.Offset%8 != 0 {
				return nil
			}
			t := layout.Tensor{Region: l.Regions[p.Region], Offset: p.Offset / 8, DType: c.DType, Components: []string{c.Name}, Layers: []int{layer}}
			for _, d := range l.Maps[p.Map] {
				if d.Stride%8 != 0 {
					return nil
				}
				t.Dims = append(t.Dims, layout.Item{Axis: named(l.Extent, d.Axis), Mod: d.Mod, Div: d.Div}.String())
				t.Shape, t.Strides = append(t.Shape, d.Count()), append(t.Strides, d.Stride/8)
			}
			if len(t.Dims) == 0 { // one element
				t.Dims, t.Shape, t.Strides = []string{named(l.Extent, geometry.Block).String()}, []int64{1}, []int64{0}
			}
			out = append(out, t)
		}
	}
	return out
}

// named is the axis as orders and tensors of the extent call it.
func named(e layout.Extent, axis geometry.Axis) geometry.Axis {
	switch {
	case e.State && axis == geometry.Block:
		return geometry.Slot
	case e.State && axis == geometry.Head:
		return geometry.Channel
	}
	return axis
}
