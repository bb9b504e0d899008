// Package sample draws random legal pairs of engines, for tests only: every
// planner and policy has a random test against a dumb twin, and they share one
// source of pairs.
package sample

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// Feature is something that a random pair has or has not; each is counted.
type Feature string

// The features that pairs are drawn with.
const (
	DCP              Feature = "dcp"
	Replica          Feature = "replica"
	UnevenPP         Feature = "uneven pp"
	NonDividingTP    Feature = "non-dividing tp"
	NonDividingBlock Feature = "non-dividing block"
	Tiled            Feature = "tiled"
	Branched         Feature = "branched order"
	Padded           Feature = "padded strides"
	MLA              Feature = "MLA"
	Windowed         Feature = "window"
	Grouped          Feature = "groups"
)

// Features are all of them.
func Features() []Feature {
	return []Feature{DCP, Replica, UnevenPP, NonDividingTP, NonDividingBlock, Tiled, Branched, Padded, MLA, Windowed, Grouped}
}

// Maker draws pairs. It is deterministic in its seed.
type Maker struct {
	*rand.Rand
	Has map[Feature]bool
}

// New makes a maker.
func New(seed uint64) *Maker {
	return &Maker{rand.New(rand.NewPCG(seed, 0x6b76)), map[Feature]bool{}}
}

func pick[T any](m *Maker, from ...T) T { return from[m.IntN(len(from))] }

// Chance is true in so many of a hundred draws.
func (m *Maker) Chance(percent int) bool { return m.IntN(100) < percent }

// Pair draws a small legal pair.
func (m *Maker) Pair() *plan.Pair {
	model := m.model()
	p := &plan.Pair{}
	sides := []*plan.Side{&p.Source, &p.Destination}
	heads := model.Groups[0].Heads()
	for i, s := range sides {
		*s = plan.Side{Engine: []string{"prefill", "decode"}[i], Model: model, Shard: m.shard(model)}
	}
	if s, d := p.Source.Shard, p.Destination.Shard; heads > 0 && s.TP%d.TP != 0 && d.TP%s.TP != 0 {
		m.Has[NonDividingTP] = true
	}
	for range model.Groups {
		blocks := [2]int{pick(m, 1, 2, 3, 4, 6, 8), pick(m, 1, 2, 3, 4, 6, 8)}
		switch {
		case m.Chance(8):
			blocks = [2]int{5, 7}
		case m.Chance(8):
			blocks = [2]int{6, 4}
		}
		if p.Source.Shard.DCPSize*p.Destination.Shard.DCPSize > 1 { // keeps periods small
			blocks = [2]int{pick(m, 1, 2, 3, 4), pick(m, 1, 2, 3, 4)}
		}
		if blocks[0]%blocks[1] != 0 && blocks[1]%blocks[0] != 0 {
			m.Has[NonDividingBlock] = true
		}
		period := 1
		for i, s := range sides {
			period = LCM(period, LCM(blocks[i]*s.Shard.DCPSize, s.Shard.DCPSize*s.Shard.Interleave))
		}
		for i, s := range sides {
			s.Groups = append(s.Groups, plan.Pool{Block: blocks[i], Blocks: period/s.Shard.DCPSize/blocks[i] + m.IntN(3)})
		}
	}
	for _, s := range sides {
		s.Ranks = make([][]*layout.Layout, s.Shard.Ranks())
		for g := range model.Groups {
			m.layouts(s, g)
		}
	}
	return p
}

// LCM is the least common multiple of two positive numbers.
func LCM(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func (m *Maker) model() geometry.Model {
	heads := pick(m, 1, 2, 4, 6, 8, 12)
	if m.Chance(15) {
		heads = 0
		m.Has[MLA] = true
	}
	model := geometry.Model{Name: "small", Layers: 1 + m.IntN(3)}
	g := geometry.Group{}
	for l := range model.Layers {
		g.Layers = append(g.Layers, l)
	}
	dim := pick(m, 1, 2, 3, 4, 8)
	dtype := m.dtype()
	for i := range 1 + m.IntN(3) {
		c := geometry.Component{Name: []string{"k", "v", "scale"}[i], Heads: heads, Dim: dim, DType: dtype}
		if m.Chance(30) {
			c.Dim = pick(m, 1, 2, 4, 6)
		}
		if m.Chance(20) {
			c.DType = m.dtype()
		}
		if c.RowBits()%8 != 0 {
			c.Dim *= 2
		}
		g.Components = append(g.Components, c)
	}
	model.Groups = []geometry.Group{g}
	if model.Layers > 1 && m.Chance(10) {
		m.Has[Grouped] = true
		at := 1 + m.IntN(model.Layers-1)
		other := g
		model.Groups[0].Name, other.Name = "full", "window"
		model.Groups[0].Layers, other.Layers = g.Layers[:at], g.Layers[at:]
		other.Components = g.Components[:1]
		model.Groups = append(model.Groups, other)
	}
	return model
}

func (m *Maker) dtype() geometry.DType {
	return pick(m, geometry.BF16, geometry.BF16, geometry.FP16, geometry.FP32, geometry.FP8E4M3, geometry.FP8E5M2, geometry.Int8, geometry.FP4)
}

func (m *Maker) shard(model geometry.Model) shard.Spec {
	heads := model.Groups[0].Heads()
	s := shard.Spec{DCPSize: 1, Interleave: 1, Order: pick(m,
		[3]shard.Grid{shard.PP, shard.TP, shard.DCP}, [3]shard.Grid{shard.TP, shard.PP, shard.DCP}, [3]shard.Grid{shard.DCP, shard.TP, shard.PP},
		[3]shard.Grid{shard.TP, shard.DCP, shard.PP}, [3]shard.Grid{shard.PP, shard.DCP, shard.TP}, [3]shard.Grid{shard.DCP, shard.PP, shard.TP})}
	if m.Chance(25) {
		s.DCPSize, s.Interleave = pick(m, 2, 2, 3), pick(m, 1, 1, 2, 3)
		m.Has[DCP] = true
	}
	// Stages.
	for left := model.Layers; left > 0; {
		n := 1 + m.IntN(left)
		s.Stages = append(s.Stages, n)
		left -= n
	}
	if m.Chance(40) {
		s.Stages = []int{model.Layers}
	}
	for _, n := range s.Stages {
		if n != s.Stages[0] {
			m.Has[UnevenPP] = true
		}
	}
	switch {
	case heads == 0:
		s.TP = 1 + m.IntN(3)
	case m.Chance(25):
		s.TP = 1 + m.IntN(4)
		s.Heads = m.headLists(heads, s.TP)
	case m.Chance(15):
		s.TP = heads * pick(m, 2, 3)
		if s.TP > 8 {
			s.TP = heads
		} else {
			m.Has[Replica] = true
		}
	default:
		var fits []int
		for t := 1; t <= heads; t++ {
			if heads%t == 0 {
				fits = append(fits, t)
			}
		}
		s.TP = fits[m.IntN(len(fits))]
	}
	return s
}

// headLists deals all heads to tp ranks in any order, some of them twice.
func (m *Maker) headLists(heads, tp int) [][]int {
	lists := make([][]int, tp)
	for _, h := range m.Perm(heads) {
		t := m.IntN(tp)
		lists[t] = append(lists[t], h)
	}
	for t := range lists {
		if len(lists[t]) == 0 || m.Chance(20) {
			h := m.IntN(heads)
			if !slices.Contains(lists[t], h) {
				lists[t] = append(lists[t], h)
			}
		}
		if m.Chance(40) {
			slices.Sort(lists[t])
		}
	}
	held := map[int]int{}
	for _, l := range lists {
		for _, h := range l {
			held[h]++
			if held[h] > 1 {
				m.Has[Replica] = true
			}
		}
	}
	return lists
}

// layouts draws one order of group gi and resolves it for every rank.
func (m *Maker) layouts(s *plan.Side, gi int) {
	g := s.Model.Groups[gi]
	extent := func(r int) layout.Extent {
		part := s.Shard.Part(g, r)
		return layout.Extent{Layers: part.Layers, Blocks: s.Groups[gi].Blocks, Tokens: s.Groups[gi].Block, Heads: len(part.Heads), Components: g.Components}
	}
	heads, widest := 0, extent(0)
	for r := range s.Shard.Ranks() {
		e := extent(r)
		heads = gcd(heads, e.Heads)
		widest.Heads = max(widest.Heads, e.Heads)
		if len(e.Layers) > len(widest.Layers) {
			widest.Layers = e.Layers
		}
	}
	dim := 0
	for _, c := range g.Components {
		dim = gcd(dim, c.Dim)
	}
	spec := m.spec(widest, heads, dim)
	// Rows of half bytes must lie together; most orders part them.
	half := slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.DType.Bits() < 8 })
	for tries := 0; half && tries < 100; tries++ {
		if _, err := spec.Resolve(widest); err == nil {
			break
		}
		spec = m.spec(widest, heads, dim)
	}
	if _, err := spec.Resolve(widest); half && err != nil {
		spec = Order("block token component dim")
		if heads > 0 {
			spec = Order("block head token component dim")
		}
	}
	known := map[string]*layout.Layout{}
	for r := range s.Shard.Ranks() {
		e := extent(r)
		if len(e.Layers) == 0 {
			s.Ranks[r] = append(s.Ranks[r], nil)
			continue
		}
		k := fmt.Sprint(e)
		l, ok := known[k]
		if !ok {
			var err error
			if l, err = spec.Resolve(e); err != nil {
				panic(fmt.Sprintf("resolve %+v for %+v: %v", spec, e, err))
			}
			known[k] = l
		}
		s.Ranks[r] = append(s.Ranks[r], l)
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// split is the items of one axis of n values, tiled by chance.
func (m *Maker) split(axis geometry.Axis, n int, percent int) []layout.Item {
	var fits []int64
	for d := 2; d < n; d++ {
		if n%d == 0 {
			fits = append(fits, int64(d))
		}
	}
	if len(fits) == 0 || !m.Chance(percent) {
		return []layout.Item{{Axis: axis}}
	}
	m.Has[Tiled] = true
	d := fits[m.IntN(len(fits))]
	if len(fits) > 1 && m.Chance(30) {
		for _, e := range fits {
			if e > d && e%d == 0 {
				return []layout.Item{{Axis: axis, Div: e}, {Axis: axis, Mod: e, Div: d}, {Axis: axis, Mod: d}}
			}
		}
	}
	return []layout.Item{{Axis: axis, Div: d}, {Axis: axis, Mod: d}}
}

// spec draws an order that fits every rank: e is the largest extent, heads and
// dim divide those of all ranks and components.
func (m *Maker) spec(e layout.Extent, heads, dim int) layout.Spec {
	var items []layout.Item
	items = append(items, layout.Item{Axis: geometry.Block})
	items = append(items, m.split(geometry.Token, e.Tokens, 15)...)
	if e.Heads > 0 {
		items = append(items, m.split(geometry.Head, heads, 15)...)
	}
	items = append(items, m.split(geometry.Dim, dim, 15)...)
	if m.Chance(50) {
		items = append(items, layout.Item{Axis: geometry.Layer})
	}
	if m.Chance(40) { // as engines do: block outside, dim inside, nothing else moved far
		if m.Chance(50) {
			k := slices.IndexFunc(items, func(i layout.Item) bool { return i.Axis == geometry.Head })
			if k > 0 && len(items) > 2 {
				items[1], items[k] = items[k], items[1]
			}
		}
	} else {
		m.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	var tail []layout.Item
	if m.Chance(15) && len(items) > 2 {
		n := 2 + m.IntN(2)
		tail = slices.Clone(items[len(items)-n:])
		if !slices.ContainsFunc(tail, func(i layout.Item) bool { return i.Axis == geometry.Layer || i.Axis == geometry.Block }) {
			items = items[:len(items)-n]
		} else {
			tail = nil
		}
	}
	var s layout.Spec
	for _, i := range items {
		s.Order = append(s.Order, layout.Entry{Item: i})
	}
	component := -1
	if m.Chance(60) {
		last := len(s.Order)
		for _, c := range e.Components {
			if c.Dim != e.Components[0].Dim { // what lies outside components has one extent for all
				last = slices.IndexFunc(append(items, layout.Item{Axis: geometry.Dim}), func(i layout.Item) bool { return i.Axis == geometry.Dim })
			}
		}
		component = m.IntN(last + 1)
		s.Order = slices.Insert(s.Order, component, layout.Entry{Component: true})
	}
	if tail != nil {
		m.Has[Branched] = true
		b := map[string][]layout.Item{}
		for _, c := range e.Components {
			t := slices.Clone(tail)
			m.Shuffle(len(t), func(i, j int) { t[i], t[j] = t[j], t[i] })
			b[c.Name] = t
		}
		s.Order = append(s.Order, layout.Entry{Branch: b})
	}
	if m.Chance(20) {
		m.pad(&s, e, component)
	}
	return s
}

// pad makes one item before the component wider than it needs to be.
func (m *Maker) pad(s *layout.Spec, e layout.Extent, component int) {
	end := len(s.Order)
	if component >= 0 {
		end = component
	}
	var fits []int
	for i, o := range s.Order[:end] {
		if o.Branch == nil {
			fits = append(fits, i)
		}
	}
	if len(fits) == 0 {
		return
	}
	at := fits[m.IntN(len(fits))]
	var sum, most int64
	for _, c := range e.Components {
		n := c.DType.Bits()
		for _, o := range s.Order[at+1:] {
			switch {
			case o.Branch != nil:
				for _, i := range o.Branch[c.Name] {
					n *= values(i, e, c)
				}
			case !o.Component:
				n *= values(o.Item, e, c)
			}
		}
		sum += n
		most = max(most, n)
	}
	need := most
	if component >= 0 {
		need = sum
	}
	m.Has[Padded] = true
	s.Strides = map[string]int64{text(s.Order[at].Item): (need+7)/8 + int64(m.IntN(3))*4}
}

func text(i layout.Item) string {
	s := i.Axis.String()
	if i.Mod != 0 {
		s += fmt.Sprintf("%%%d", i.Mod)
	}
	if i.Div != 0 {
		s += fmt.Sprintf("/%d", i.Div)
	}
	return s
}

// values is the number of values of an item.
func values(i layout.Item, e layout.Extent, c geometry.Component) int64 {
	n := i.Mod
	if n == 0 {
		n = int64(map[geometry.Axis]int{geometry.Layer: len(e.Layers), geometry.Block: e.Blocks, geometry.Token: e.Tokens, geometry.Head: e.Heads, geometry.Dim: c.Dim}[i.Axis])
	}
	return n / max(i.Div, 1)
}

// Assign matches ranks as a policy would: it finds, for each destination rank,
// who holds what it needs, and chooses among replicas by chance.
func (m *Maker) Assign(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	for gi := range p.Source.Model.Groups {
		out = append(out, m.match(p, gi)...)
	}
	return out
}

func (m *Maker) match(p *plan.Pair, gi int) []plan.Assignment {
	var out []plan.Assignment
	g := p.Source.Model.Groups[gi]
	fine := m.Chance(30) // box by box, instead of one favourite source for all
	for d := range p.Destination.Ranks {
		want := p.Destination.Shard.Part(g, d)
		favour := m.Perm(len(p.Source.Ranks))
		c := p.Source.Shard
		for phase := range c.DCPSize {
			var tokens plan.Tokens
			if c.DCPSize > 1 {
				tokens = plan.Tokens{Size: c.DCPSize, Interleave: c.Interleave, Phase: phase}
			}
			heads := slices.Clone(want.Heads)
			if heads == nil {
				heads = []int{0}
			}
			slices.Sort(heads)
			for _, layer := range want.Layers {
				last := -1
				for _, head := range heads {
					if fine {
						m.Shuffle(len(favour), func(i, j int) { favour[i], favour[j] = favour[j], favour[i] })
					}
					for _, r := range favour {
						have := c.Part(g, r)
						if have.Phase != phase || !slices.Contains(have.Layers, layer) || have.Heads != nil && !slices.Contains(have.Heads, head) {
							continue
						}
						if last >= 0 && out[last].Source == r && out[last].Heads.To == head && out[last].Layers.From == layer {
							out[last].Heads.To++
							break
						}
						last = len(out)
						out = append(out, plan.Assignment{
							Group: gi, Components: 1<<len(g.Components) - 1, Destination: d, Source: r,
							Layers: plan.Range{From: layer, To: layer + 1}, Heads: plan.Range{From: head, To: head + 1}, Tokens: tokens,
						})
						break
					}
				}
			}
		}
	}
	if !fine && m.Chance(70) { // join the layers of equal boxes
		var joined []plan.Assignment
		for _, a := range out {
			at := slices.IndexFunc(joined, func(b plan.Assignment) bool {
				same := b
				same.Layers = a.Layers
				return same == a && b.Layers.To == a.Layers.From
			})
			if at >= 0 {
				joined[at].Layers.To = a.Layers.To
			} else {
				joined = append(joined, a)
			}
		}
		out = joined
	}
	if n := len(g.Components); n > 1 && m.Chance(15) { // components apart
		var apart []plan.Assignment
		for _, a := range out {
			for i := range n {
				b := a
				b.Components = 1 << i
				apart = append(apart, b)
			}
		}
		out = apart
	}
	return out
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
