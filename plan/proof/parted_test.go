package proof_test

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// engine is a side of one group of one layer, of blocks with so many tokens.
func engine(t testing.TB, name string, g geometry.Group, tp, block int, order layout.Spec) plan.Side {
	t.Helper()
	g.Layers = []int{0}
	s := plan.Side{Engine: name, Model: geometry.Model{Name: "m", Layers: 1, Groups: []geometry.Group{g}}, Groups: []plan.Pool{{Block: block, Blocks: 2}},
		Shard: shard.Spec{TP: tp, Stages: []int{1}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}}
	for r := range tp {
		l, err := order.Resolve(s.Shard.Part(g, r).Extent(g, block, 2))
		if err != nil {
			t.Fatal(err)
		}
		s.Ranks = append(s.Ranks, []*layout.Layout{l})
	}
	return s
}

// box assigns heads [from, to) of the named components.
func box(g geometry.Group, names string, destination, source, from, to int, tokens ...plan.Tokens) plan.Assignment {
	a := plan.Assignment{Destination: destination, Source: source, Layers: plan.Range{To: 1}, Heads: plan.Range{From: from, To: to}}
	for _, n := range strings.Fields(names) {
		a.Components |= 1 << g.Component(n)
	}
	if len(tokens) > 0 {
		a.Tokens = tokens[0]
	}
	return a
}

// TestParted holds the words of scales that come from another rank than their
// rows, however much alike the ranks' replicas should be.
func TestParted(t *testing.T) {
	k := geometry.Component{Name: "k", Heads: 2, Dim: 4, DType: geometry.FP8E4M3}
	scale := geometry.Component{Name: "k_scale", Heads: 2, Dim: 1, DType: geometry.FP32, Scales: "k"}
	long, whole, unheaded := scale, scale, k
	long.Entry, whole.Heads, unheaded.Heads = 4, 0, 0
	x := geometry.Component{Name: "x", Heads: 2, Dim: 4, DType: geometry.FP8E4M3}
	state := geometry.Component{Name: "x_scale", Heads: 2, Dim: 1, DType: geometry.FP32, Scales: "x"}
	half := func(interleave, phase int) plan.Tokens {
		return plan.Tokens{Size: 2, Interleave: interleave, Phase: phase}
	}
	for _, c := range []struct {
		name   string
		scale  geometry.Component
		tp     [2]int
		answer func(geometry.Group) []plan.Assignment
		want   string
	}{
		{"together", scale, [2]int{4, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k k_scale", 0, 1, 0, 1), box(g, "k k_scale", 0, 3, 1, 2)}
		}, ""},
		{"replica", scale, [2]int{4, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k", 0, 0, 0, 1), box(g, "k k_scale", 0, 2, 1, 2), box(g, "k_scale", 0, 1, 0, 1)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 comes from source rank 1, and k layer 0 head 0 token 0 dim 0, which it scales, from source rank 0"},
		{"second head", scale, [2]int{4, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k k_scale", 0, 0, 0, 1), box(g, "k", 0, 2, 1, 2), box(g, "k_scale", 0, 3, 1, 2)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 1 token 0 dim 0 comes from source rank 3, and k layer 0 head 1 token 0 dim 0, which it scales, from source rank 2"},
		{"tokens by turns", scale, [2]int{4, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k k_scale", 0, 0, 0, 1, half(2, 0)), box(g, "k k_scale", 0, 1, 0, 1, half(2, 1)), box(g, "k k_scale", 1, 3, 1, 2)}
		}, ""},
		{"long scale, tokens by turns", long, [2]int{4, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k", 0, 0, 0, 1, half(2, 0)), box(g, "k", 0, 1, 0, 1, half(2, 1)), box(g, "k_scale", 0, 0, 0, 1), box(g, "k", 1, 3, 1, 2), box(g, "k_scale", 1, 3, 1, 2)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 comes from source rank 0, and k layer 0 head 0 token 2 dim 0, which it scales, from source rank 1"},
		{"long scale, entries by turns", long, [2]int{4, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{
				box(g, "k", 0, 0, 0, 1, half(4, 0)), box(g, "k", 0, 1, 0, 1, half(4, 1)), box(g, "k_scale", 0, 0, 0, 1, half(4, 0)), box(g, "k_scale", 0, 1, 0, 1, half(4, 1)),
				box(g, "k", 1, 3, 1, 2), box(g, "k_scale", 1, 3, 1, 2)}
		}, ""},
		{"long scale, the wrong turn", long, [2]int{4, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{
				box(g, "k", 0, 0, 0, 1, half(4, 0)), box(g, "k", 0, 1, 0, 1, half(4, 1)), box(g, "k_scale", 0, 0, 0, 1),
				box(g, "k", 1, 3, 1, 2), box(g, "k_scale", 1, 3, 1, 2)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 4 dim 0 comes from source rank 0, and k layer 0 head 0 token 4 dim 0, which it scales, from source rank 1"},
		{"long scale, every other token", long, [2]int{4, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{
				box(g, "k", 0, 0, 0, 1, half(1, 0)), box(g, "k", 0, 0, 0, 1, half(1, 1)), box(g, "k_scale", 0, 0, 0, 1, half(4, 0)), box(g, "k_scale", 0, 1, 0, 1, half(4, 1)),
				box(g, "k", 1, 3, 1, 2), box(g, "k_scale", 1, 3, 1, 2)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 4 dim 0 comes from source rank 1, and k layer 0 head 0 token 4 dim 0, which it scales, from source rank 0"},
		{"a scale for all heads", whole, [2]int{2, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k", 0, 0, 0, 1), box(g, "k", 0, 1, 1, 2), box(g, "k_scale", 0, 0, 0, 1)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 comes from source rank 0, and k layer 0 head 1 token 0 dim 0, which it scales, from source rank 1"},
		{"a scale for all heads of a rank", whole, [2]int{2, 2}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k", 0, 0, 0, 1), box(g, "k", 1, 1, 1, 2), box(g, "k_scale", 0, 0, 0, 1), box(g, "k_scale", 1, 1, 0, 1)}
		}, ""},
		{"no heads", whole, [2]int{2, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "k", 0, 1, 0, 1), box(g, "k_scale", 0, 0, 0, 1)}
		}, "proof: parted at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 comes from source rank 0, and k layer 0 head 0 token 0 dim 0, which it scales, from source rank 1"},
		{"state", state, [2]int{4, 1}, func(g geometry.Group) []plan.Assignment {
			return []plan.Assignment{box(g, "x", 0, 0, 0, 1), box(g, "x x_scale", 0, 2, 1, 2), box(g, "x_scale", 0, 1, 0, 1)}
		}, "proof: parted at destination rank 0: x_scale layer 0 channel 0 dim 0 comes from source rank 1, and x layer 0 channel 0 dim 0, which it scales, from source rank 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := geometry.Group{Components: []geometry.Component{k, c.scale}}
			order, block := "block token head dim", 8
			switch {
			case c.scale.Name == "x_scale":
				g = geometry.Group{State: true, Components: []geometry.Component{x, c.scale}}
				order, block = "slot channel dim", 1
			case c.name == "no heads":
				g.Components[0] = unheaded
				order = "block token dim"
			}
			spec := sample.Order(order)
			if g.Components[0].Heads > 0 && c.scale.Heads == 0 {
				spec = layout.Spec{Order: append(sample.Order("block token").Order, layout.Entry{Branch: map[string][]layout.Entry{"k": sample.Order("head dim").Order, "k_scale": sample.Order("dim").Order}})}
			}
			p := &plan.Pair{Source: engine(t, "a", g, c.tp[0], block, spec), Destination: engine(t, "b", g, c.tp[1], block, spec)}
			pl, err := build.Build(p, c.answer(g), nil, plan.DefaultBudget())
			if err != nil {
				t.Fatal(err)
			}
			_, err = proof.Check(p, pl)
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
				t.Errorf("got\n%s\nwant\n%s\n%s", got, c.want, describe(p, pl))
			}
			v := judge(p, pl, sample.New(1).Rand)
			var f *proof.Fault
			if errors.As(err, &f) {
				if !v.parted || f.Kind != proof.Parted || f.At != v.first || f.Got != v.row || f.Rank != v.rank {
					t.Errorf("%v, the twin finds %+v", err, v)
				}
			} else if !v.right {
				t.Errorf("accepted, the twin finds %+v", v)
			}
		})
	}
}

// TestPartedAndMany names the layer where there are too many elements to look
// at.
func TestPartedAndMany(t *testing.T) {
	g := geometry.Group{Components: []geometry.Component{{Name: "k", Dim: 1024, DType: geometry.FP8E4M3}, {Name: "k_scale", Dim: 1, DType: geometry.FP32, Entry: 64, Scales: "k"}}}
	const block = 1 << 13
	p := &plan.Pair{Source: engine(t, "a", g, 2, block, sample.Order("block token dim")), Destination: engine(t, "b", g, 1, block, sample.Order("block token dim"))}
	pl, err := build.Build(p, []plan.Assignment{box(g, "k", 0, 0, 0, 1), box(g, "k_scale", 0, 1, 0, 1)}, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	_, err = proof.Check(p, pl)
	const want = "proof: parted at destination rank 0: layer 0: a scale comes from another source rank than the rows it scales; there are too many elements to say which"
	if fmt.Sprint(err) != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestPartedScales takes scales, or rows that have one, from another rank in
// random pairs: whole, or a part of the tokens only. What is accepted is right,
// and what is parted is named at the first coordinate that the twin finds.
func TestPartedScales(t *testing.T) {
	const first, changes = 800000, 5
	n := pairs(2000)
	var mu sync.Mutex
	count := map[string]int{}
	each(t, first, n, func(seed uint64) {
		m := sample.New(seed)
		p := m.Pair()
		if !m.Has[sample.Scaled] && !m.Has[sample.LongScales] {
			return
		}
		var good []plan.Assignment
		var tied []int // those of scales, and of rows that have one
		for _, a := range m.Assign(p) {
			g := &p.Source.Model.Groups[a.Group]
			for mask := a.Components; mask != 0; mask &= mask - 1 {
				b := a
				b.Components = mask & -mask
				c := &g.Components[bits.TrailingZeros64(mask)]
				for i := range g.Components {
					if c.Scales != "" || g.Components[i].Scales == c.Name {
						tied = append(tied, len(good))
						break
					}
				}
				good = append(good, b)
			}
		}
		for range changes {
			as := append([]plan.Assignment{}, good...)
			i := tied[m.IntN(len(tied))]
			what := "whole"
			other := as[i]
			old := p.Source.Part(other.Group, other.Source)
			for _, r := range m.Perm(len(p.Source.Ranks)) { // mostly one that holds the same heads
				other.Source = r
				now := p.Source.Part(other.Group, r)
				if r != as[i].Source && (now.Phase == old.Phase && slices.Equal(now.Layers, old.Layers) && slices.Equal(now.Heads[0], old.Heads[0]) || m.Chance(3)) {
					break
				}
			}
			if c := &p.Source.Model.Groups[other.Group].Components[bits.TrailingZeros64(other.Components)]; m.Chance(50) && other.Tokens.All() && !p.Source.Model.Groups[other.Group].State {
				what = "some tokens"
				step := int(entry(c))
				if c.Scales == "" {
					step = 1 + m.IntN(3)
				}
				as[i].Tokens = plan.Tokens{Size: 2, Interleave: step, Phase: 0}
				other.Tokens = plan.Tokens{Size: 2, Interleave: step, Phase: 1}
				as = append(as, other)
			} else {
				as[i] = other
			}
			pl, err := build.Build(p, as, nil, plan.DefaultBudget())
			if err != nil || !judgeable(pl, p) {
				continue // half bytes, or a period that the pools do not hold
			}
			_, err = proof.Check(p, pl)
			v := judge(p, pl, m.Rand)
			var f *proof.Fault
			switch {
			case err == nil && v.right:
				what += ": right"
			case errors.As(err, &f) && f.Kind == proof.Parted:
				what += ": parted"
				if !v.parted || f.At != v.first || f.Rank != v.rank || f.Got != v.row || f.Source == f.Other {
					t.Errorf("seed %d: %v, but the twin finds %+v\n%s", seed, err, v, describe(p, pl))
				}
			case err != nil && !v.right && !v.parted:
				what += ": wrong otherwise"
			default:
				t.Errorf("seed %d: %v, but the twin finds %+v\n%s", seed, err, v, describe(p, pl))
			}
			mu.Lock()
			count[what]++
			mu.Unlock()
		}
	})
	t.Logf("seeds %d to %d: %s", first, first+n-1, tally(count))
	for _, what := range []string{"whole: right", "whole: parted", "some tokens: parted"} {
		if count[what] < n/40 {
			t.Errorf("%s: only %d", what, count[what])
		}
	}
}

// BenchmarkCheckScales is the 80-layer pair with a scale for each (token, head)
// and one for all heads of 16 tokens, fed by two source ranks, which is what
// makes the proof look at where scales come from.
func BenchmarkCheckScales(b *testing.B) {
	const layers = 80
	g := geometry.Group{Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 128, DType: geometry.FP8E4M3}, {Name: "v", Heads: 8, Dim: 128, DType: geometry.FP8E4M3},
		{Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Scales: "k"}, {Name: "v_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "v"},
	}}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	side := func(name string, tp, block int) plan.Side {
		s := plan.Side{Engine: name, Model: geometry.Model{Name: "m", Layers: layers, Groups: []geometry.Group{g}}, Groups: []plan.Pool{{Block: block, Blocks: 256}},
			Shard: shard.Spec{TP: tp, Stages: []int{layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}}
		l, err := sample.Order("block token head dim").Resolve(s.Shard.Part(g, 0).Extent(g, block, 256))
		if err != nil {
			b.Fatal(err)
		}
		for range tp {
			s.Ranks = append(s.Ranks, []*layout.Layout{l})
		}
		return s
	}
	p := &plan.Pair{Source: side("a", 4, 16), Destination: side("b", 2, 64)}
	pl, err := build.Build(p, sample.New(1).Assign(p), nil, plan.DefaultBudget())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := proof.Check(p, pl); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(pl.Runs)), "runs")
}
