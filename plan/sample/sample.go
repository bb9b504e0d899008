// Package sample draws random legal pairs of engines, for tests only: every
// planner and policy has a random test against a dumb twin, and they share one
// source of pairs.
package sample

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
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
	Nested           Feature = "branch of several components"
	Padded           Feature = "padded strides"
	MLA              Feature = "MLA"
	Windowed         Feature = "window"
	Grouped          Feature = "groups"
	States           Feature = "states"
	Units            Feature = "units"
	MixedHeads       Feature = "mixed head counts"
	Headless         Feature = "headless beside headed"
	Compressed       Feature = "compressed entries"
	Scaled           Feature = "scales of one token"
	LongScales       Feature = "scales of several tokens"
	Kernel           Feature = "kernel blocks"
	OwnShard         Feature = "shard of a group's own"
	Placed           Feature = "explicit places"
)

// Features are all of them.
func Features() []Feature {
	return []Feature{DCP, Replica, UnevenPP, NonDividingTP, NonDividingBlock, Tiled, Branched, Nested, Padded, MLA, Windowed, Grouped,
		States, Units, MixedHeads, Headless, Compressed, Scaled, LongScales, Kernel, OwnShard, Placed}
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

// Pair draws a small legal pair of which a right plan exists: where a scale
// belongs to rows of several ranks, some source rank holds all of them.
func (m *Maker) Pair() *plan.Pair {
	had := maps.Clone(m.Has)
	for {
		if p, ok := m.pair(); ok && answerable(p) {
			return p
		}
		m.Has = maps.Clone(had)
	}
}

// maxPeriod keeps pairs small enough for twins that look at every element.
const maxPeriod = 288

func (m *Maker) pair() (*plan.Pair, bool) {
	model := m.model()
	p := &plan.Pair{}
	sides := []*plan.Side{&p.Source, &p.Destination}
	for i, s := range sides {
		*s = plan.Side{Engine: []string{"prefill", "decode"}[i], Model: model}
		if !m.shards(s) {
			return nil, false
		}
	}
	headed := slices.ContainsFunc(model.Groups, func(g geometry.Group) bool { return g.Components[0].Heads > 0 })
	if s, d := p.Source.Shard, p.Destination.Shard; headed && s.TP%d.TP != 0 && d.TP%s.TP != 0 {
		m.Has[NonDividingTP] = true
	}
	for gi := range model.Groups {
		if !m.pools(sides, gi) {
			return nil, false
		}
	}
	for _, s := range sides {
		s.Ranks = make([][]*layout.Layout, s.Shard.Ranks())
		for g := range model.Groups {
			m.layouts(s, g)
		}
	}
	return p, true
}

// pools draws block sizes of a group and pools that hold a period.
func (m *Maker) pools(sides []*plan.Side, gi int) bool {
	g := &sides[0].Model.Groups[gi]
	if g.State {
		for _, s := range sides {
			s.Groups[gi].Block, s.Groups[gi].Blocks = 1, 1+m.IntN(4)
		}
		return true
	}
	blocks := [2]int{pick(m, 1, 2, 3, 4, 6, 8), pick(m, 1, 2, 3, 4, 6, 8)}
	switch {
	case m.Chance(8):
		blocks = [2]int{5, 7}
	case m.Chance(8):
		blocks = [2]int{6, 4}
	}
	unit := entries(g)
	s, d := sides[0].ShardOf(gi), sides[1].ShardOf(gi)
	if s.DCPSize*d.DCPSize > 1 || unit > 1 { // keeps periods small
		blocks = [2]int{pick(m, 1, 2, 3, 4), pick(m, 1, 2, 3, 4)}
	}
	if blocks[0]%blocks[1] != 0 && blocks[1]%blocks[0] != 0 {
		m.Has[NonDividingBlock] = true
	}
	period := 1
	for i, s := range sides {
		blocks[i] *= unit
		own := s.ShardOf(gi)
		period = LCM(period, LCM(blocks[i]*own.DCPSize, own.DCPSize*own.Interleave))
	}
	for i, s := range sides {
		s.Groups[gi].Block, s.Groups[gi].Blocks = blocks[i], period/s.ShardOf(gi).DCPSize/blocks[i]+m.IntN(3)
	}
	return period <= maxPeriod
}

// entries is the least number of tokens that are whole entries of every
// component.
func entries(g *geometry.Group) int {
	n := 1
	for _, c := range g.Components {
		n = LCM(n, c.EntryTokens())
	}
	return n
}

// LCM is the least common multiple of two positive numbers.
func LCM(a, b int) int { return a / gcd(a, b) * b }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (m *Maker) model() geometry.Model {
	model := geometry.Model{Name: "small", Layers: 1 + m.IntN(3)}
	all := make([]int, model.Layers)
	for l := range all {
		all[l] = l
	}
	only := func(g geometry.Group, name string, layers []int) {
		g.Name, g.Layers = name, layers
		model.Groups = append(model.Groups, g)
	}
	switch {
	case m.Chance(5):
		only(m.states(), "", all)
	case m.Chance(12): // a layer with both, or each with its own layers
		full, state := all, all
		if at := m.IntN(model.Layers); at > 0 {
			full, state = all[:at], all[at:]
		}
		only(m.attention(), "full", full)
		only(m.states(), "state", state)
		m.Has[Grouped] = true
	case model.Layers > 1 && m.Chance(12):
		at := 1 + m.IntN(model.Layers-1)
		g := m.attention()
		only(g, "full", all[:at])
		if m.Chance(50) {
			g = m.attention()
		}
		only(g, "window", all[at:])
		m.Has[Grouped] = true
	default:
		only(m.attention(), "", all)
	}
	return model
}

// attention draws a group of tokens, without name and layers.
func (m *Maker) attention() geometry.Group {
	heads := pick(m, 1, 2, 4, 6, 8, 12)
	if m.Chance(15) {
		heads = 0
		m.Has[MLA] = true
	}
	g := geometry.Group{}
	dim, dtype := pick(m, 1, 2, 3, 4, 8), m.dtype()
	for i := range 1 + m.IntN(3) {
		c := geometry.Component{Name: []string{"k", "v", "index"}[i], Heads: heads, Dim: dim, DType: dtype}
		if m.Chance(30) {
			c.Dim = pick(m, 1, 2, 4, 6)
		}
		if m.Chance(20) {
			c.DType = m.dtype()
		}
		g.Components = append(g.Components, c)
	}
	if m.Chance(10) {
		m.units(g.Components)
	}
	if last := &g.Components[len(g.Components)-1]; heads > 0 && len(g.Components) > 1 {
		switch {
		case m.Chance(10):
			last.Heads, last.Unit = 0, 0
			m.Has[Headless] = true
		case m.Chance(10):
			if n := pick(m, 1, 2, 3, 4, 6); n != heads {
				last.Heads, last.Unit = n, 0
				m.Has[MixedHeads] = true
			}
		}
	}
	if m.Chance(10) {
		m.Has[Compressed] = true
		entry := pick(m, 2, 2, 3, 4)
		for i := m.IntN(len(g.Components)); i < len(g.Components); i++ {
			g.Components[i].Entry = entry
		}
	}
	for i := range g.Components {
		if c := g.Components[i]; c.Entry == 0 && m.Chance(12) {
			g.Components = append(g.Components, m.scale(c, pick(m, 0, 0, 2, 3, 4)))
		}
	}
	return m.finish(g)
}

// units makes several heads a unit, the same in all components where it can be.
func (m *Maker) units(components []geometry.Component) {
	want := pick(m, 2, 2, 3, 4)
	for i := range components {
		if c := &components[i]; c.Heads > 0 && c.Heads%want == 0 {
			c.Unit = want
			m.Has[Units] = true
		}
	}
}

// scale draws a component that scales the rows of c, with entries of so many
// tokens (0: one).
func (m *Maker) scale(c geometry.Component, entry int) geometry.Component {
	if entry == 0 {
		m.Has[Scaled] = true
	} else {
		m.Has[LongScales] = true
	}
	s := geometry.Component{Name: c.Name + "_scale", Heads: c.Heads, Unit: c.Unit, Dim: pick(m, 1, 1, 2), DType: pick(m, geometry.FP32, geometry.FP8E4M3), Entry: entry, Scales: c.Name}
	if c.Heads > 0 && m.Chance(15) {
		s.Heads, s.Unit = 0, 0
		m.Has[Headless] = true
	}
	return s
}

// states draws a group of states, without name and layers.
func (m *Maker) states() geometry.Group {
	m.Has[States] = true
	wide := pick(m, 2, 3, 4)
	unit := pick(m, 0, 2, 3)
	narrow := geometry.Component{Heads: max(unit, 1) * pick(m, 1, 2, 4), Unit: unit, Dim: wide, DType: m.dtype()}
	x := geometry.Component{Name: "x", Heads: pick(m, 4, 6, 8), Dim: wide, DType: narrow.DType}
	ssm := geometry.Component{Name: "ssm", Heads: pick(m, 2, 4), Dim: pick(m, 2, 4, 6), DType: m.dtype()}
	if x.Heads%2 == 0 && m.Chance(30) {
		x.Unit = 2
	}
	b, c := narrow, narrow
	b.Name, c.Name = "B", "C"
	g := geometry.Group{State: true, Components: pick(m,
		[]geometry.Component{x}, []geometry.Component{x, ssm}, []geometry.Component{x, b, c, ssm}, []geometry.Component{x, b, c})}
	for _, c := range g.Components {
		if c.Unit > 1 {
			m.Has[Units] = true
		}
		if c.Heads != x.Heads {
			m.Has[MixedHeads] = true
		}
	}
	if m.Chance(8) {
		g.Components = append(g.Components, m.scale(g.Components[m.IntN(len(g.Components))], 0))
	}
	return m.finish(g)
}

// finish makes rows whole bytes and puts the components in any order.
func (m *Maker) finish(g geometry.Group) geometry.Group {
	for i := range g.Components {
		if c := &g.Components[i]; c.RowBits()%8 != 0 {
			c.Dim *= 2
		}
	}
	if m.Chance(20) {
		m.Shuffle(len(g.Components), func(i, j int) { g.Components[i], g.Components[j] = g.Components[j], g.Components[i] })
	}
	return g
}

func (m *Maker) dtype() geometry.DType {
	return pick(m, geometry.BF16, geometry.BF16, geometry.FP16, geometry.FP32, geometry.FP8E4M3, geometry.FP8E5M2, geometry.Int8, geometry.FP4)
}
