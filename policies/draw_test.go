package policies_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
)

// drawn is a pair of engines as far as a remap looks at it: who holds what, and
// no layouts. It can be larger than what package sample draws.
func drawn(m *sample.Maker) *plan.Pair {
	model := geometry.Model{Name: "drawn", Layers: 1 + m.IntN(6)}
	for i := range 1 + m.IntN(3) {
		g := geometry.Group{Name: fmt.Sprintf("g%d", i), State: m.Chance(20)}
		for l := range model.Layers {
			if m.Chance(60) {
				g.Layers = append(g.Layers, l)
			}
		}
		if g.Layers == nil {
			g.Layers = []int{m.IntN(model.Layers)}
		}
		heads := []int{0, 1, 2, 4, 6, 8, 12, 24}[m.IntN(8)]
		for k := range 1 + m.IntN(4) {
			c := geometry.Component{Name: fmt.Sprintf("c%d", k), Heads: heads, Dim: 8 * (1 + m.IntN(4)), DType: geometry.BF16}
			if m.Chance(25) {
				c.Heads = []int{0, 0, 2, 4, 8}[m.IntN(5)]
			}
			if c.Heads > 0 && m.Chance(25) {
				c.Unit = []int{2, 4}[m.IntN(2)]
			}
			if !g.State && m.Chance(20) {
				c.Entry = []int{2, 4}[m.IntN(2)]
			}
			if k > 0 && m.Chance(50) {
				of := m.IntN(k)
				if g.Components[of].Scales == "" && g.Components[of].Entry == 0 {
					c.Scales, c.DType, c.Dim = g.Components[of].Name, geometry.FP32, 1
					c.Heads = []int{0, g.Components[of].Heads}[m.IntN(2)]
				}
			}
			if c.Unit > 0 && (c.Heads == 0 || c.Heads%c.Unit != 0) {
				c.Unit = 0
			}
			g.Components = append(g.Components, c)
		}
		model.Groups = append(model.Groups, g)
	}
	p := &plan.Pair{}
	for i, s := range []*plan.Side{&p.Source, &p.Destination} {
		*s = plan.Side{Engine: []string{"prefill", "decode"}[i], Model: model, Groups: make([]plan.Pool, len(model.Groups))}
		ranks := []int{1, 2, 3, 4, 6, 8, 12, 16, 24}[m.IntN(9)]
		draw := func(groups ...int) shard.Spec {
			for {
				if s := drawShard(m, model, ranks); s.Validate(model.Select(groups)) == nil {
					return s
				}
				if m.Chance(5) {
					ranks = 1 + m.IntN(8)
				}
			}
		}
		var common []int
		for g := range s.Groups {
			s.Groups[g] = plan.Pool{Block: 4, Blocks: 8}
			if model.Groups[g].State {
				s.Groups[g].Block = 1
			}
			if !m.Chance(20) {
				common = append(common, g)
			}
		}
		s.Shard = draw(common...)
		ranks = s.Shard.Ranks()
		for g := range s.Groups {
			for tries := 0; !slices.Contains(common, g); tries++ {
				own := drawShard(m, model, ranks)
				if own.Ranks() == ranks && own.Validate(model.Select([]int{g})) == nil {
					s.Groups[g].Shard = &own
					break
				}
				if tries == 200 {
					return drawn(m)
				}
			}
		}
		s.Ranks = make([][]*layout.Layout, ranks)
	}
	return p
}

func drawShard(m *sample.Maker, model geometry.Model, ranks int) shard.Spec {
	s := shard.Spec{DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	m.Shuffle(3, func(i, j int) { s.Order[i], s.Order[j] = s.Order[j], s.Order[i] })
	part := func() int {
		for {
			if n := 1 + m.IntN(ranks); ranks%n == 0 {
				ranks /= n
				return n
			}
		}
	}
	stages := 1
	if m.Chance(40) {
		stages = min(part(), model.Layers)
	}
	for left := model.Layers; stages > 0; stages-- {
		n := 1 + m.IntN(left-stages+1)
		if stages == 1 {
			n = left
		}
		s.Stages = append(s.Stages, n)
		left -= n
	}
	if m.Chance(30) {
		s.DCPSize, s.Interleave = part(), []int{1, 2, 4}[m.IntN(3)]
		if s.DCPSize == 1 {
			s.Interleave = 1
		}
	}
	s.TP = ranks
	if heads := model.Groups[0].Components[0].Heads; heads > 0 && m.Chance(15) {
		s.Heads = dealt(m, heads, s.TP)
	}
	if m.Chance(20) {
		places := make([]shard.Place, s.Ranks())
		for i, r := range m.Perm(len(places)) {
			places[i] = s.Place(r)
		}
		s.Places = places
	}
	return s
}

// dealt is all heads on tp ranks in any order, some of them several times.
func dealt(m *sample.Maker, heads, tp int) [][]int {
	lists := make([][]int, tp)
	for _, h := range m.Perm(max(heads, tp)) {
		t := h % tp
		if h >= heads || m.Chance(30) {
			t = m.IntN(tp)
		}
		if h %= heads; !slices.Contains(lists[t], h) {
			lists[t] = append(lists[t], h)
		}
	}
	return lists
}

// taken is the source rank that an answer takes an element from; -1 where none
// or several give it.
func taken(p *plan.Pair, as []plan.Assignment, gi, component, destination, layer, head int, token int64) int {
	found := -1
	for _, a := range as {
		if a.Group != gi || a.Components>>component&1 == 0 || a.Destination != destination || layer < a.Layers.From || layer >= a.Layers.To || head < a.Heads.From || head >= a.Heads.To {
			continue
		}
		if t := a.Tokens; !t.All() && int(token)/t.Interleave%t.Size != t.Phase {
			continue
		}
		have := p.Source.Part(gi, a.Source)
		if _, ok := have.Local(token); !ok || !slices.Contains(have.Layers, layer) || have.Heads[component] != nil && !slices.Contains(have.Heads[component], head) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = a.Source
	}
	return found
}

// Every answer is the twin's on shapes of all kinds, gives each element once
// from a rank that holds it, and takes scales from where their rows come from,
// wherever the source holds them so that this can be.
func TestRemapOfManyShapes(t *testing.T) {
	p := open(t, "heads")
	seeds := 3000
	if testing.Short() {
		seeds = 300
	}
	tiedTo, apart, elements := 0, 0, 0
	for seed := range uint64(seeds) {
		m := sample.New(seed)
		pair := drawn(m)
		answer, err := p.Remap(context.Background(), pair)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		as := answer.Alternatives[0]
		if want := matchHeads(pair); !reflect.DeepEqual(as, want) {
			t.Fatalf("seed %d: answer\n%v\nwant\n%v\n%s", seed, as, want, pair.Source.Model.Text())
		}
		for gi, g := range pair.Source.Model.Groups {
			for dr := range pair.Destination.Ranks {
				want := pair.Destination.Part(gi, dr)
				if len(want.Layers) == 0 {
					continue
				}
				layer, token := want.Layers[m.IntN(len(want.Layers))], want.Token(0)
				if !g.State {
					token = want.Token(int64(m.IntN(16)))
				}
				rows := func(component int) []int {
					if want.Heads[component] == nil {
						return []int{0}
					}
					return want.Heads[component]
				}
				for ci, c := range g.Components {
					from := map[int]bool{}
					for _, head := range rows(ci) {
						s := taken(pair, as, gi, ci, dr, layer, head, token)
						if s < 0 {
							t.Fatalf("seed %d: group %d component %d layer %d head %d token %d of rank %d is not given once: %v", seed, gi, ci, layer, head, token, dr, as)
						}
						from[s] = true
						elements++
					}
					if c.Scales == "" {
						continue
					}
					of := g.Component(c.Scales)
					for _, head := range rows(of) {
						scale := head
						if c.Heads == 0 {
							scale = 0
						} else if !slices.Contains(rows(ci), head) {
							continue // units differ: the scale lies elsewhere
						}
						if taken(pair, as, gi, of, dr, layer, head, token) == taken(pair, as, gi, ci, dr, layer, scale, token) {
							tiedTo++
							continue
						}
						if possible(pair, gi, dr, layer, token) {
							t.Fatalf("seed %d: group %d: %s of rank %d does not come from where %s head %d comes from, and could: %v\n%s", seed, gi, c.Name, dr, c.Scales, head, as, pair.Source.Model.Text())
						}
						apart++
					}
				}
			}
		}
	}
	t.Logf("%d elements, %d scales with their rows, %d that no source rank holds together", elements, tiedTo, apart)
	if tiedTo < 1000 || apart < 100 {
		t.Error("the draw shows nothing")
	}
}

// possible reports whether source ranks could give a destination rank all rows
// of a group together with what scales them.
func possible(p *plan.Pair, gi, destination, layer int, token int64) bool {
	for of, c := range p.Source.Model.Groups[gi].Components {
		if c.Heads > 0 && !together(p, gi, of, destination, layer, token) {
			return false
		}
	}
	return true
}

// together is possible for the rows of one component.
func together(p *plan.Pair, gi, of, destination, layer int, token int64) bool {
	g := p.Source.Model.Groups[gi]
	want := p.Destination.Part(gi, destination)
	gives := func(r int, heads []int) bool {
		have := p.Source.Part(gi, r)
		if _, ok := have.Local(token); !ok || !slices.Contains(have.Layers, layer) {
			return false
		}
		for ci, c := range g.Components {
			if c.Heads == 0 || ci != of && c.Scales != g.Components[of].Name {
				continue
			}
			for _, h := range heads {
				if slices.Contains(want.Heads[ci], h) && !slices.Contains(have.Heads[ci], h) {
					return false
				}
			}
		}
		return true
	}
	someone := func(heads []int) bool {
		return slices.ContainsFunc(numbers(len(p.Source.Ranks)), func(r int) bool { return gives(r, heads) })
	}
	if slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.Heads == 0 && c.Scales == g.Components[of].Name }) {
		return someone(want.Heads[of]) // one rank for all heads
	}
	return !slices.ContainsFunc(want.Heads[of], func(h int) bool { return !someone([]int{h}) })
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
