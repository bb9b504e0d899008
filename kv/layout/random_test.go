package layout_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// drawing draws random specs and extents.
type drawing struct{ *rand.Rand }

func (r drawing) of(n ...int) int { return n[r.IntN(len(n))] }

func (r drawing) extent() layout.Extent {
	e := layout.Extent{Blocks: r.of(1, 2, 3, 4), Tokens: r.of(1, 2, 3, 4, 6), Heads: r.of(0, 1, 2, 3)}
	layer := 7
	for range r.of(1, 2, 3) {
		e.Layers = append(e.Layers, layer)
		layer += r.of(1, 2)
	}
	dtypes := []geometry.DType{geometry.FP32, geometry.BF16, geometry.FP8E4M3, geometry.FP4}
	dim, dtype := r.of(2, 4, 6, 8), dtypes[r.IntN(4)]
	for i := range r.of(1, 2, 2, 3) {
		c := geometry.Component{Name: []string{"k", "v", "scale"}[i], Dim: dim, DType: dtype}
		if e.Heads > 0 {
			c.Heads = 6
		}
		if r.IntN(3) == 0 {
			c.Dim, c.DType = r.of(2, 4, 10), dtypes[r.IntN(4)]
		}
		e.Components = append(e.Components, c)
	}
	return e
}

// split cuts an axis of n places at random divisors.
func (r drawing) split(axis geometry.Axis, n int) []layout.Item {
	cuts := []int64{1}
	for d := int64(2); d < int64(n); d++ {
		if int64(n)%d == 0 && d%cuts[len(cuts)-1] == 0 && r.IntN(3) == 0 {
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

func (r drawing) spec(e layout.Extent) layout.Spec {
	items := slices.Concat(r.split(geometry.Block, e.Blocks), r.split(geometry.Token, e.Tokens))
	if e.Heads > 0 {
		items = append(items, r.split(geometry.Head, e.Heads)...)
	}
	if r.IntN(2) == 0 {
		items = append(items, r.split(geometry.Layer, len(e.Layers))...)
	}
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	keep := r.IntN(len(items) + 1) // what follows goes into a branch
	branched := r.IntN(3) == 0
	if !branched {
		keep = len(items)
	}
	var s layout.Spec
	for _, it := range items[:keep] {
		s.Order = append(s.Order, layout.Entry{Item: it})
	}
	at := r.IntN(len(s.Order) + 1)
	joined := r.IntN(3) > 0
	if joined {
		s.Order = slices.Insert(s.Order, at, layout.Entry{Component: true})
	} else {
		at = len(s.Order)
	}
	if branched {
		branch := map[string][]layout.Item{}
		for _, c := range e.Components {
			own := slices.Concat(items[keep:], r.split(geometry.Dim, c.Dim))
			r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
			branch[c.Name] = own
		}
		s.Order = append(s.Order, layout.Entry{Branch: branch})
	} else {
		s.Order = append(s.Order, layout.Entry{Item: layout.Item{Axis: geometry.Dim}})
	}
	if at > 0 && r.IntN(2) == 0 {
		if en := s.Order[r.IntN(at)]; en.Branch == nil {
			s.Strides = map[string]int64{en.Item.String(): int64(4096 << r.IntN(3))}
		}
	}
	return s
}

// elements calls f for every element of an extent.
func elements(e layout.Extent, f func(layout.Element)) {
	for c, comp := range e.Components {
		for l := range e.Layers {
			for b := range int64(e.Blocks) {
				for n := range int64(e.Tokens) {
					for h := range int64(max(e.Heads, 1)) {
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
	owner := map[bit]layout.Element{}
	why := ""
	elements(l.Extent, func(el layout.Element) {
		r, x := at(l, el)
		bits := l.Extent.Components[el.Component].DType.Bits()
		if x < 0 || x+bits > l.Regions[r].Bytes*8 {
			why = fmt.Sprintf("%s leaves its region", el)
		}
		for b := range bits {
			if o, ok := owner[bit{r, x + b}]; ok {
				why = fmt.Sprintf("%s lies on %s", el, o)
			}
			owner[bit{r, x + b}] = el
		}
	})
	return why
}

// walk computes an element's place the long way, entry by entry: the index of
// a dense array of the items' shape, as a nest of loops would visit it.
func walk(s layout.Spec, e layout.Extent, el layout.Element) int64 {
	value := func(it layout.Item) (x, n int64) {
		switch it.Axis {
		case geometry.Layer:
			x, n = int64(el.Layer), int64(len(e.Layers))
		case geometry.Block:
			x, n = el.Block, int64(e.Blocks)
		case geometry.Token:
			x, n = el.Token, int64(e.Tokens)
		case geometry.Head:
			x, n = el.Head, int64(e.Heads)
		}
		if it.Axis == geometry.Dim {
			x, n = el.Dim, int64(e.Components[el.Component].Dim)
		}
		if it.Mod > 0 {
			x, n = x%it.Mod, it.Mod
		}
		return x / max(it.Div, 1), n / max(it.Div, 1)
	}
	// size is how many bits the entries from i on take in a component.
	var size func(i, component int) int64
	joined := slices.ContainsFunc(s.Order, func(en layout.Entry) bool { return en.Component })
	one := func(it layout.Item, inner int64, component int, outside bool) (stride, whole int64) {
		probe := el
		el.Component = component
		_, n := value(it)
		el = probe
		stride = inner
		if v, ok := s.Strides[it.String()]; ok && outside {
			stride = 8 * v
		}
		return stride, stride * n
	}
	before := func(i int) bool { // entry i stands outside component
		return !joined || slices.ContainsFunc(s.Order[i:], func(en layout.Entry) bool { return en.Component })
	}
	size = func(i, component int) int64 {
		if i == len(s.Order) {
			return e.Components[component].DType.Bits()
		}
		switch en := s.Order[i]; {
		case en.Component:
			var sum int64
			for c := range e.Components {
				sum += size(i+1, c)
			}
			return sum
		case en.Branch != nil:
			n := e.Components[component].DType.Bits()
			for _, it := range slices.Backward(en.Branch[e.Components[component].Name]) {
				_, n = one(it, n, component, false)
			}
			return n
		default:
			_, n := one(en.Item, size(i+1, component), component, before(i))
			return n
		}
	}
	var bit int64
	for i, en := range s.Order {
		switch {
		case en.Component:
			for c := range el.Component {
				bit += size(i+1, c)
			}
		case en.Branch != nil:
			n := e.Components[el.Component].DType.Bits()
			for _, it := range slices.Backward(en.Branch[e.Components[el.Component].Name]) {
				x, _ := value(it)
				bit += x * n
				_, n = one(it, n, el.Component, false)
			}
		default:
			x, _ := value(en.Item)
			stride, _ := one(en.Item, size(i+1, el.Component), el.Component, before(i))
			bit += x * stride
		}
	}
	return bit
}

func observe(l *layout.Layout, els []layout.Element) []layout.Sample {
	var out []layout.Sample
	for _, el := range els {
		r, x := at(l, el)
		out = append(out, layout.Sample{Element: el, Region: r, Bit: x})
	}
	return out
}

// TestRandomSpecs resolves random orders and compares every element with the
// long way, and with what FromTensors, Infer and the JSON form make of it.
func TestRandomSpecs(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 300
	}
	var made, tiled, branched, strided, tensors int
	for seed := range uint64(runs) {
		r := drawing{rand.New(rand.NewPCG(seed, 1))}
		e := r.extent()
		s := r.spec(e)
		l, err := s.Resolve(e)
		if err != nil {
			t.Fatalf("seed %d: resolve %s: %v", seed, s.Text(), err)
		}
		made++
		elements(e, func(el layout.Element) {
			if _, x := at(l, el); x != walk(s, e, el) {
				t.Fatalf("seed %d: %s %v: %s lies at bit %d, the long way gives %d", seed, s.Text(), s.Strides, el, x, walk(s, e, el))
			}
		})
		if why := overlap(l); why != "" {
			t.Fatalf("seed %d: %s: %s", seed, s.Text(), why)
		}
		data, err := json.Marshal(l)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var read layout.Layout
		if err := json.Unmarshal(data, &read); err != nil || !read.Equal(l) {
			t.Fatalf("seed %d: read %s: %v", seed, data, err)
		}
		seen := observe(l, layout.Samples(e))
		r.Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		inferred, err := layout.Infer(seen, e, l.Regions)
		if err != nil {
			t.Fatalf("seed %d: infer %s: %v", seed, s.Text(), err)
		}
		if !inferred.Equal(l) {
			t.Fatalf("seed %d: %s\ninferred\n%swant\n%s", seed, s.Text(), inferred.Text(), l.Text())
		}
		if ts := register(l); ts != nil {
			tensors++
			got, err := layout.FromTensors(ts, e)
			if err != nil {
				t.Fatalf("seed %d: from tensors %+v: %v", seed, ts, err)
			}
			elements(e, func(el layout.Element) {
				r, x := at(l, el)
				if gr, gx := at(got, el); l.Regions[r] != got.Regions[gr] || gx != x {
					t.Fatalf("seed %d: %s: %s lies at bit %d, tensors give %d", seed, s.Text(), el, x, gx)
				}
			})
		}
		for _, en := range s.Order {
			if en.Branch != nil {
				branched++
			} else if en.Item.Div > 1 {
				tiled++
			}
		}
		strided += len(s.Strides)
	}
	t.Logf("%d layouts: %d tiled items outside branches, %d branched, %d strided, %d registered as tensors", made, tiled, branched, strided, tensors)
	if tiled == 0 || branched == 0 || strided == 0 || tensors == 0 {
		t.Error("a feature was not drawn")
	}
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
				t.Dims = append(t.Dims, layout.Item{Axis: d.Axis, Mod: d.Mod, Div: d.Div}.String())
				t.Shape, t.Strides = append(t.Shape, d.Count()), append(t.Strides, d.Stride/8)
			}
			if len(t.Dims) == 0 { // one element
				t.Dims, t.Shape, t.Strides = []string{"block"}, []int64{1}, []int64{0}
			}
			out = append(out, t)
		}
	}
	return out
}

// TestRandomMutations changes one number of a layout: one that Validate still
// takes has no overlap.
func TestRandomMutations(t *testing.T) {
	runs := 6000
	if testing.Short() {
		runs = 600
	}
	taken, refused := 0, 0
	for seed := range uint64(runs) {
		r := drawing{rand.New(rand.NewPCG(seed, 2))}
		e := r.extent()
		l, err := r.spec(e).Resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		places := make([][]layout.Place, len(l.Places))
		for i := range places {
			places[i] = slices.Clone(l.Places[i])
		}
		l.Places, l.Regions = places, slices.Clone(l.Regions)
		p := &l.Places[r.IntN(len(l.Places))][r.IntN(len(e.Layers))]
		m := slices.Clone(l.Maps[p.Map])
		l.Maps[p.Map] = m
		switch k := r.IntN(5); {
		case k == 0:
			p.Offset += int64(r.of(-64, -16, -8, 8, 16, 32, 256))
		case k == 1:
			p.Region = r.IntN(len(l.Regions))
		case k == 2:
			l.Regions[p.Region].Bytes += int64(r.of(-1, 1, 64))
		case len(m) > 0:
			d := &m[r.IntN(len(m))]
			switch r.IntN(4) {
			case 0:
				d.Stride += int64(r.of(-8, -4, 4, 8, 16))
			case 1:
				d.Stride *= 2
			case 2:
				d.Mod *= 2
			case 3:
				d.Axis = geometry.Axis(r.IntN(7))
			}
		}
		why := ""
		if err := l.Validate(); err == nil {
			taken++
			if why = overlap(l); why != "" {
				t.Fatalf("seed %d: accepted although %s:\n%s", seed, why, l.Text())
			}
		} else {
			refused++
		}
	}
	t.Logf("%d taken, %d refused", taken, refused)
	if taken == 0 || refused == 0 {
		t.Error("the mutations were all of one kind")
	}
}
