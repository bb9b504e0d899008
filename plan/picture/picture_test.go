package picture_test

import (
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/picture"
)

func side(t *testing.T, engine string, m geometry.Model, s shard.Spec) plan.Side {
	t.Helper()
	if s.Stages == nil {
		s.Stages = []int{m.Layers}
	}
	s.DCPSize, s.Interleave = max(s.DCPSize, 1), max(s.Interleave, 1)
	s.Order = [3]shard.Grid{shard.PP, shard.TP, shard.DCP}
	if err := s.Validate(m); err != nil {
		t.Fatal(err)
	}
	out := plan.Side{Engine: engine, Model: m, Shard: s}
	for _, g := range m.Groups {
		pool := plan.Pool{Block: 16, Blocks: 8}
		if g.State {
			pool.Block = 1
		}
		out.Groups = append(out.Groups, pool)
	}
	return out
}

func model(layers, heads int) geometry.Model {
	g := geometry.Group{Components: []geometry.Component{{Name: "k", Heads: heads, Dim: 8, DType: geometry.BF16}, {Name: "v", Heads: heads, Dim: 8, DType: geometry.BF16}}}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	return geometry.Model{Name: "m", Layers: layers, Groups: []geometry.Group{g}}
}

// everything assigns to each destination rank, from the lowest source rank
// that holds it, each (layer, head) of the components in mask; all source
// ranks with other tokens of it count.
func everything(p *plan.Pair, mask uint64) *plan.Plan {
	pl := &plan.Plan{}
	for gi, g := range p.Source.Model.Groups {
		for d := range p.Destination.Shard.Ranks() {
			dst := p.Destination.Part(gi, d)
			type key struct{ component, layer, head, phase int }
			taken := map[key]bool{}
			for s := range p.Source.Shard.Ranks() {
				src := p.Source.Part(gi, s)
				used := false
				for ci := range g.Components {
					heads, have := dst.Heads[ci], src.Heads[ci]
					if heads == nil {
						heads, have = []int{0}, []int{0}
					}
					for _, l := range dst.Layers {
						for _, h := range heads {
							k := key{ci, l, h, src.Phase}
							if mask>>ci&1 == 0 || taken[k] || !slices.Contains(src.Layers, l) || !slices.Contains(have, h) {
								continue
							}
							taken[k], used = true, true
							pl.Assignments = append(pl.Assignments, plan.Assignment{Group: gi, Components: 1 << ci, Destination: d, Source: s, Layers: plan.Range{From: l, To: l + 1}, Heads: plan.Range{From: h, To: h + 1}})
						}
					}
				}
				if used {
					pl.Edges = append(pl.Edges, plan.Edge{Group: gi, Source: s, Destination: d})
				}
			}
		}
	}
	return pl
}

func TestGrid(t *testing.T) {
	m8, m12 := model(4, 8), model(5, 12)
	mla := model(2, 0)
	for _, c := range []struct {
		name     string
		src, dst plan.Side
		o        picture.Options
		want     string
	}{
		{"tp 2 to 4", side(t, "prefill", m8, shard.Spec{TP: 2}), side(t, "decode", m8, shard.Spec{TP: 4}), picture.Options{}, `
prefill (tp 2, block 16) -> decode (tp 4, block 16)
               heads  0  1  2  3  4  5  6  7
rank 0    layers 0-3  0  0  .  .  .  .  .  .
rank 1    layers 0-3  .  .  0  0  .  .  .  .
rank 2    layers 0-3  .  .  .  .  1  1  .  .
rank 3    layers 0-3  .  .  .  .  .  .  1  1
`},
		{"uneven stages, ratio that does not divide", side(t, "a", m12, shard.Spec{TP: 2, Stages: []int{3, 2}}), side(t, "b", m12, shard.Spec{TP: 3}), picture.Options{}, `
a (tp 2, pp 2, block 16) -> b (tp 3, block 16)
               heads  0  1  2  3  4  5  6  7  8  9  10  11
rank 0    layers 0-2  0  0  0  0  .  .  .  .  .  .   .   .
          layers 3-4  2  2  2  2  .  .  .  .  .  .   .   .
rank 1    layers 0-2  .  .  .  .  0  0  1  1  .  .   .   .
          layers 3-4  .  .  .  .  2  2  3  3  .  .   .   .
rank 2    layers 0-2  .  .  .  .  .  .  .  .  1  1   1   1
          layers 3-4  .  .  .  .  .  .  .  .  3  3   3   3
`},
		{"no heads", side(t, "a", mla, shard.Spec{TP: 2}), side(t, "b", mla, shard.Spec{TP: 2}), picture.Options{}, `
a (tp 2, block 16) -> b (tp 2, block 16)
rank 0    layers 0-1  0
rank 1    layers 0-1  0
`},
		{"tokens from several ranks", side(t, "a", m8, shard.Spec{TP: 1, DCPSize: 2, Interleave: 4}), side(t, "b", m8, shard.Spec{TP: 2}), picture.Options{}, `
a (tp 1, dcp 2 by 4, block 16) -> b (tp 2, block 16)
               heads    0    1    2    3    4    5    6    7
rank 0    layers 0-3  0-1  0-1  0-1  0-1    .    .    .    .
rank 1    layers 0-3    .    .    .    .  0-1  0-1  0-1  0-1
`},
		{"narrow: equal columns merge", side(t, "a", model(1, 64), shard.Spec{TP: 2}), side(t, "b", model(1, 64), shard.Spec{TP: 4}), picture.Options{Width: 60}, `
a (tp 2, block 16) -> b (tp 4, block 16)
             heads  0-15  16-31  32-47  48-63
rank 0    layers 0     0      .      .      .
rank 1    layers 0     .      0      .      .
rank 2    layers 0     .      .      1      .
rank 3    layers 0     .      .      .      1
`},
		{"too many ranks", side(t, "a", m8, shard.Spec{TP: 1}), side(t, "b", m8, shard.Spec{TP: 8}), picture.Options{Ranks: 2}, `
a (tp 1, block 16) -> b (tp 8, block 16)
               heads  0  1  2  3  4  5  6  7
rank 0    layers 0-3  0  .  .  .  .  .  .  .
rank 1    layers 0-3  .  0  .  .  .  .  .  .
... and 6 more ranks
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &plan.Pair{Source: c.src, Destination: c.dst}
			if got := picture.Grid(p, everything(p, 3), c.o); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, c.want)
			}
		})
	}
}

func TestGridShowsWhatNothingBrings(t *testing.T) {
	m := model(1, 2)
	p := &plan.Pair{Source: side(t, "a", m, shard.Spec{TP: 1}), Destination: side(t, "b", m, shard.Spec{TP: 2})}
	want := `a (tp 1, block 16) -> b (tp 2, block 16)
               heads  0  1
rank 0    layers 0 k  0  .
          layers 0 v  !  .
rank 1    layers 0 k  .  0
          layers 0 v  .  !
`
	if got := picture.Grid(p, everything(p, 1), picture.Options{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Components with other numbers of heads have a table of their own; states have
// channels, and a group's own shard is told.
func TestGridOfGroups(t *testing.T) {
	m := geometry.Model{Name: "m", Layers: 3, Groups: []geometry.Group{
		{Name: "attention", Layers: []int{1}, Components: []geometry.Component{
			{Name: "k", Heads: 4, Dim: 8, DType: geometry.BF16}, {Name: "index", Heads: 0, Dim: 8, DType: geometry.BF16}, {Name: "v", Heads: 4, Dim: 8, DType: geometry.BF16},
		}},
		{Name: "mamba", State: true, Layers: []int{0, 2}, Components: []geometry.Component{
			{Name: "x", Heads: 8192, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 1024, Unit: 128, Dim: 3, DType: geometry.BF16}, {Name: "C", Heads: 1024, Unit: 128, Dim: 3, DType: geometry.BF16},
		}},
	}}
	src, dst := side(t, "a", m, shard.Spec{TP: 2}), side(t, "b", m, shard.Spec{TP: 4})
	own := shard.Spec{TP: 1, Stages: []int{2, 1}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	src.Groups[1].Shard = &own
	p := &plan.Pair{Source: src, Destination: dst}
	want := `a (tp 2, block 16; mamba: tp 1, pp 2) -> b (tp 4, block 16)
group attention
k, v
             heads  0  1  2  3
rank 0    layers 1  0  .  .  .
rank 1    layers 1  .  0  .  .
rank 2    layers 1  .  .  1  .
rank 3    layers 1  .  .  .  1
index
rank 0    layers 1  0
rank 1    layers 1  0
rank 2    layers 1  0
rank 3    layers 1  0
group mamba
x
          channels  0-2047  2048-4095  4096-6143  6144-8191
rank 0    layers 0       0          .          .          .
          layers 2       1          .          .          .
rank 1    layers 0       .          0          .          .
          layers 2       .          1          .          .
rank 2    layers 0       .          .          0          .
          layers 2       .          .          1          .
rank 3    layers 0       .          .          .          0
          layers 2       .          .          .          1
B, C
          channels  0-255  256-511  512-767  768-1023
rank 0    layers 0      0        .        .         .
          layers 2      1        .        .         .
rank 1    layers 0      .        0        .         .
          layers 2      .        1        .         .
rank 2    layers 0      .        .        0         .
          layers 2      .        .        1         .
rank 3    layers 0      .        .        .         0
          layers 2      .        .        .         1
`
	pl := everything(p, 7)
	for i := range pl.Assignments { // a policy answers in boxes, not head by head
		if a := &pl.Assignments[i]; a.Group == 1 {
			n := m.Groups[1].Components[bits.TrailingZeros64(a.Components)].Heads / 4
			a.Heads = plan.Range{From: a.Heads.From / n * n, To: a.Heads.From/n*n + n}
		}
	}
	if got := picture.Grid(p, pl, picture.Options{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Colours change no column, and panels stay within the width.
func TestGridWidthAndColour(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]+m")
	heads := make([][]int, 2)
	for h := range 64 { // alternate heads, so that no columns merge
		heads[h%2] = append(heads[h%2], h)
	}
	m := model(2, 64)
	p := &plan.Pair{Source: side(t, "a", m, shard.Spec{TP: 2, Heads: heads}), Destination: side(t, "b", m, shard.Spec{TP: 1})}
	pl := everything(p, 3)
	for _, width := range []int{40, 60, 120} {
		plain := picture.Grid(p, pl, picture.Options{Width: width})
		for line := range strings.Lines(plain) {
			if n := len(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
		colour := picture.Grid(p, pl, picture.Options{Width: width, Colour: true})
		if colour == plain || escape.ReplaceAllString(colour, "") != plain {
			t.Errorf("width %d: colours change the text:\n%s", width, colour)
		}
		if !strings.Contains(colour, "\x1b[36m0\x1b[0m") || !strings.Contains(colour, "\x1b[33m1\x1b[0m") {
			t.Errorf("width %d: source ranks 0 and 1 want colours 36 and 33:\n%q", width, colour)
		}
	}
}
