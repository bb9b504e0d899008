package digest_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/digest"
)

// drawing draws random caches.
type drawing struct{ *rand.Rand }

func draw(seed, stream uint64) drawing { return drawing{rand.New(rand.NewPCG(seed, stream))} }

func (r drawing) of(n ...int) int { return n[r.IntN(len(n))] }

func (r drawing) key() (k digest.Key) {
	r.fill(k[:])
	return k
}

// fill writes noise.
func (r drawing) fill(b []byte) {
	var w [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		b = b[copy(b, w[:]):]
	}
}

// group is a random group with its components; all of a state's.
func (r drawing) group() geometry.Group {
	g := geometry.Group{State: r.IntN(6) == 0}
	for l := 3; len(g.Layers) < r.of(1, 2); l += r.of(1, 2, 5) {
		g.Layers = append(g.Layers, l)
	}
	dtypes := []geometry.DType{geometry.FP64, geometry.FP32, geometry.BF16, geometry.BF16, geometry.FP8E4M3, geometry.FP4}
	heads := r.of(0, 1, 2, 4, 6)
	long := r.IntN(12) == 0
	if long {
		heads = r.of(0, 1)
	}
	for i := range r.of(1, 2, 3) {
		c := geometry.Component{Name: []string{"a", "b", "c"}[i], Heads: heads, Dim: r.of(2, 4, 8, 12, 16, 34, 80), DType: dtypes[r.IntN(len(dtypes))]}
		switch {
		case long:
			c.Dim = r.of(520, 1040, 2176)
		case r.IntN(5) == 0 && c.DType != geometry.FP4:
			c.Dim = r.of(1, 3, 5, 7, 9, 25)
		}
		if r.IntN(4) == 0 {
			c.Heads = r.of(0, 2, 3)
		}
		if r.IntN(6) == 0 && !g.State {
			c.Entry = 2
		}
		g.Components = append(g.Components, c)
	}
	return g
}

// split cuts an axis of n places at random divisors.
func (r drawing) split(axis geometry.Axis, n int) []layout.Item {
	cuts := []int64{1}
	for d := int64(2); d < int64(n); d++ {
		if int64(n)%d == 0 && d%cuts[len(cuts)-1] == 0 && r.IntN(4) == 0 {
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

// order is a random order of a component, the layers aside: rows in one piece,
// or across those of tokens or heads, or in pieces among them, or anyhow.
func (r drawing) order(e *layout.Extent, ci int) []layout.Entry {
	c := e.Components[ci]
	block, head := geometry.Block, geometry.Head
	if e.State {
		block, head = geometry.Slot, geometry.Channel
	}
	var rows []layout.Item
	if !e.State {
		rows = r.split(geometry.Token, e.Tokens/c.EntryTokens())
	}
	if c.Heads > 0 {
		rows = append(rows, r.split(head, e.Heads[ci])...)
	}
	dims := r.split(geometry.Dim, c.Dim)
	shuffled := func(items ...layout.Item) []layout.Item {
		r.Shuffle(len(items), func(i, k int) { items[i], items[k] = items[k], items[i] })
		return items
	}
	rows = shuffled(rows...)
	blocks := r.split(block, e.Blocks)
	whole := layout.Item{Axis: geometry.Dim}
	switch {
	case r.IntN(3) == 0:
		return layout.Items(append(shuffled(append(blocks, rows...)...), whole)...)
	case r.IntN(2) == 0:
		return layout.Items(slices.Concat(blocks, shuffled(dims...), rows)...)
	case r.IntN(2) == 0:
		x := int64(r.of(1, 2, 3, 4, 8, 16, 32))
		if x > 1 && x < int64(c.Dim) && int64(c.Dim)%x == 0 {
			return layout.Items(slices.Concat(blocks, []layout.Item{{Axis: geometry.Dim, Div: x}}, rows, []layout.Item{{Axis: geometry.Dim, Mod: x}})...)
		}
	}
	return layout.Items(shuffled(slices.Concat(blocks, rows, dims)...)...)
}

// layout is a random layout of a part.
func (r drawing) layout(e layout.Extent) *layout.Layout {
	var s layout.Spec
	layered := r.IntN(2) == 0
	if layered {
		s.Order = append(s.Order, layout.Entry{Item: layout.Item{Axis: geometry.Layer}})
	}
	if r.IntN(2) == 0 {
		s.Order = append(s.Order, layout.Entry{Component: true})
	}
	branch := map[string][]layout.Entry{}
	for ci, c := range e.Components {
		branch[c.Name] = r.order(&e, ci)
	}
	s.Order = append(s.Order, layout.Entry{Branch: branch})
	l, err := s.Resolve(e)
	if err == nil && layered && r.IntN(3) == 0 { // padded
		stride := int64(0)
		for _, region := range l.Regions {
			stride = max(stride, region.Bytes+int64(r.of(1, 8, 64)))
		}
		s.Strides = map[string]int64{"layer": stride}
		l, err = s.Resolve(e)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", s.Text(), err))
	}
	return l
}

// box is a set of rows that lies in one or several places: the heads by number
// and the entries of each component.
type box struct {
	group   geometry.Group
	heads   [][]int
	entries [][2]int64
}

// side is how a rank keeps a box.
type side struct {
	layout  *layout.Layout
	regions [][]byte
	heads   [][]digest.Head
	spans   [][]digest.Span
}

// side draws another way to keep the box, with memory that is all noise. Its
// heads and spans are in any order.
func (r drawing) side(b *box) *side {
	g := b.group
	s := &side{}
	e := layout.Extent{Layers: g.Layers, Tokens: 1, Components: g.Components, State: g.State}
	if !g.State {
		e.Tokens = r.of(2, 4, 6, 8, 16, 16, 32)
	}
	// Table entries: of each component the same blocks.
	var need int64
	for ci, c := range g.Components {
		need = max(need, (b.entries[ci][1]*int64(c.EntryTokens())+int64(e.Tokens)-1)/int64(e.Tokens))
	}
	e.Blocks = int(need) + r.of(0, 1, 3)
	table := r.Perm(e.Blocks)
	for ci, c := range g.Components {
		places := 0
		if c.Heads > 0 {
			places = len(b.heads[ci]) + r.of(0, 0, 1, 2)
			places = min(places, c.Heads)
		}
		e.Heads = append(e.Heads, places)
		var heads []digest.Head
		for i, at := range r.Perm(max(places, 1))[:max(len(b.heads[ci]), 1)] {
			n := 0
			if len(b.heads[ci]) > 0 {
				n = b.heads[ci][i]
			}
			heads = append(heads, digest.Head{Place: at, Number: n})
		}
		if places == 0 && r.IntN(2) == 0 {
			heads = nil
		}
		s.heads = append(s.heads, heads)
		perBlock := int64(e.Tokens / c.EntryTokens())
		s.spans = append(s.spans, r.spans(b.entries[ci], perBlock, table))
	}
	s.layout = r.layout(e)
	for _, region := range s.layout.Regions {
		m := make([]byte, region.Bytes+int64(r.of(0, 8)))
		r.fill(m)
		s.regions = append(s.regions, m)
	}
	return s
}

// spans divides entries among blocks, and within them at random.
func (r drawing) spans(of [2]int64, perBlock int64, table []int) []digest.Span {
	var out []digest.Span
	for at := of[0]; at < of[1]; {
		place := at % perBlock
		n := min(perBlock-place, of[1]-at)
		sp := digest.Span{Block: uint32(table[at/perBlock]), Place: place, Step: 1, Count: n, Entry: at, EntryStep: 1}
		switch {
		case n >= 2 && r.IntN(3) == 0: // every other one, and the others
			a, b := sp, sp
			a.Step, a.EntryStep, a.Count = 2, 2, (n+1)/2
			b.Step, b.EntryStep, b.Count, b.Place, b.Entry = 2, 2, n/2, place+1, at+1
			out = append(out, a, b)
		case n >= 2 && r.IntN(3) == 0: // two parts
			k := 1 + r.Int64N(n-1)
			a, b := sp, sp
			a.Count, b.Count, b.Place, b.Entry = k, n-k, place+k, at+k
			if k == 1 {
				a.Step, a.EntryStep = r.Int64N(3)*99, -5 // they mean nothing
			}
			out = append(out, b, a)
		default:
			out = append(out, sp)
		}
		at += n
	}
	r.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// box draws which rows of a group.
func (r drawing) box() *box {
	b := &box{group: r.group()}
	from := int64(r.of(0, 0, 1, 7, 40)) * 2
	to := from + int64(r.of(1, 2, 5, 17, 33))*2
	if b.group.Components[0].Dim > 500 {
		to = from + 4
	}
	if b.group.State {
		from, to = 0, 1
	}
	for _, c := range b.group.Components {
		var heads []int
		if c.Heads > 0 {
			heads = r.Perm(c.Heads)[:1+r.IntN(c.Heads)]
		}
		b.heads = append(b.heads, heads)
		e := int64(c.EntryTokens())
		b.entries = append(b.entries, [2]int64{from / e, to / e})
	}
	return b
}

// rows are those of a component of a layer, by index.
func (s *side) rows(group, component, layer int) *digest.Rows {
	return &digest.Rows{Layout: s.layout, Regions: s.regions, Component: component, Layer: layer,
		Name:  digest.Name{Group: group, Component: component, Layer: s.layout.Extent.Layers[layer]},
		Heads: s.heads[component], Spans: s.spans[component]}
}

// bits calls f for each row of a component of a layer with where the bits of
// its elements begin.
func (s *side) bits(component, layer int, f func(head int, entry int64, at []int64)) {
	l := s.layout
	c := l.Extent.Components[component]
	heads := s.heads[component]
	if len(heads) == 0 {
		heads = []digest.Head{{}}
	}
	at := make([]int64, c.Dim)
	for _, h := range heads {
		for _, sp := range s.spans[component] {
			for i := range sp.Count {
				for d := range at {
					_, at[d] = l.Bit(component, layer, int64(sp.Block), sp.Place+i*sp.Step, int64(h.Place), int64(d))
				}
				f(h.Number, sp.Entry+i*sp.EntryStep, at)
			}
		}
	}
}

// region is the memory that a component of a layer lies in.
func (s *side) region(component, layer int) []byte {
	n, _ := s.layout.Bit(component, layer, 0, 0, 0, 0)
	return s.regions[n]
}

// copyTo moves the box, bit by bit.
func (s *side) copyTo(o *side) {
	type name struct {
		head  int
		entry int64
	}
	for ci, c := range s.layout.Extent.Components {
		for li := range s.layout.Extent.Layers {
			rows := map[name][]byte{}
			n := c.DType.Bits()
			s.bits(ci, li, func(head int, entry int64, at []int64) {
				rows[name{head, entry}] = elements(s.region(ci, li), c.Dim, n, func(d int64) int64 { return at[d] })
			})
			to := o.region(ci, li)
			o.bits(ci, li, func(head int, entry int64, at []int64) {
				row := rows[name{head, entry}]
				for d, first := range at {
					if n%8 == 0 && first%8 == 0 {
						copy(to[first/8:], row[int64(d)*n/8:(int64(d)+1)*n/8])
						continue
					}
					for b := range n {
						bit, from := first+b, int64(d)*n+b
						to[bit/8] = to[bit/8]&^(1<<(bit%8)) | row[from/8]>>(from%8)&1<<(bit%8)
					}
				}
			})
		}
	}
}
