package build_test

import (
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew; review the difference")

const (
	kv8  = "{name: k, heads: 8, dim: 128, dtype: bf16}, {name: v, heads: 8, dim: 128, dtype: bf16}"
	kv4  = "{name: k, heads: 4, dim: 16, dtype: bf16}, {name: v, heads: 4, dim: 16, dtype: bf16}"
	kv12 = "{name: k, heads: 12, dim: 16, dtype: bf16}, {name: v, heads: 12, dim: 16, dtype: bf16}"
)

// everything asks each source rank for all that it holds, unless one before it
// holds the same: for pairs whose ranks share heads whole or not at all.
func everything(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	for gi, g := range p.Source.Model.Groups {
		for d := range p.Destination.Ranks {
			for _, class := range g.Classes() {
				first := bits.TrailingZeros64(class.Components)
				var seen []string
				for s := range p.Source.Ranks {
					part := p.Source.Part(gi, s)
					holds := fmt.Sprint(part.Layers, part.Phase, part.Heads[first])
					if slices.Contains(seen, holds) {
						continue
					}
					seen = append(seen, holds)
					out = append(out, plan.Assignment{Group: gi, Components: class.Components, Destination: d, Source: s,
						Layers: plan.Range{From: 0, To: p.Source.Model.Layers}, Heads: plan.Range{From: 0, To: max(class.Heads, 1)}})
				}
			}
		}
	}
	return out
}

func built(t testing.TB, p *plan.Pair, windows ...build.Window) *plan.Plan {
	t.Helper()
	pl, err := build.Build(p, everything(p), windows, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(p, pl); err != nil {
		t.Fatalf("%+v\n%s", err, pl.Text(p))
	}
	return pl
}

// reference is 80 layers, 8 heads, dim 128, bf16, blocks of 16, TP 2 to 4.
func reference(t testing.TB, source, destination string) *plan.Pair {
	return fixture.Pair(t, 80, kv8, fixture.Side("{tp: 2}", 16, source), fixture.Side("{tp: 4}", 16, destination))
}

var referenceLayouts = []string{"hnd", "nhd", "split-hnd", "split-nhd", "joint-hnd", "joint-nhd", "blhnc", "sglang", "trtllm"}

func TestReferenceRuns(t *testing.T) {
	for _, s := range referenceLayouts {
		for _, d := range referenceLayouts {
			p := reference(t, s, d)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			pl, err := build.Build(p, everything(p), nil, plan.DefaultBudget())
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := proof.Check(p, pl); err != nil {
				t.Errorf("%s -> %s: %v", s, d, err)
			}
			if n := len(pl.Runs); n > 4096 {
				t.Errorf("%s -> %s: %d runs", s, d, n)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 16e6 {
				t.Errorf("%s -> %s: %d bytes allocated", s, d, n)
			}
		}
	}
}

// Packed blocks move K and V of a row as one, head by head in HND to HND as
// one with the tokens.
func TestReferencePieces(t *testing.T) {
	for _, c := range []struct {
		source, destination string
		runs                int // a destination rank
		bytes               int64
		loops               []plan.Loop
	}{
		{"hnd", "hnd", 80, 16384, nil},
		{"joint-hnd", "joint-hnd", 160, 8192, nil},
		{"split-hnd", "split-hnd", 160, 8192, nil},
		{"nhd", "nhd", 80, 1024, []plan.Loop{{Count: 16, SourceStride: 2048, DestinationStride: 1024}}},
		{"joint-nhd", "joint-nhd", 160, 512, []plan.Loop{{Count: 16, SourceStride: 1024, DestinationStride: 512}}},
		{"nhd", "hnd", 80, 512, []plan.Loop{{Count: 2, SourceStride: 512, DestinationStride: 8192}, {Count: 16, SourceStride: 2048, DestinationStride: 512}}},
		{"joint-nhd", "joint-hnd", 160, 256, []plan.Loop{{Count: 2, SourceStride: 256, DestinationStride: 4096}, {Count: 16, SourceStride: 1024, DestinationStride: 256}}},
	} {
		pl := built(t, reference(t, c.source, c.destination))
		if len(pl.Runs) != 4*c.runs {
			t.Errorf("%s -> %s: %d runs, want %d", c.source, c.destination, len(pl.Runs), 4*c.runs)
		}
		for _, r := range pl.Runs {
			if r.Bytes != c.bytes || !slices.Equal(r.Loops, c.loops) {
				t.Fatalf("%s -> %s: run %+v, want %d bytes, loops %v", c.source, c.destination, r, c.bytes, c.loops)
			}
		}
	}
}

// Goldens that a person can follow: the runs of small pairs of every kind.
func TestRuns(t *testing.T) {
	cases := []struct {
		name    string
		p       *plan.Pair
		windows []build.Window
	}{
		{"packed-hnd", fixture.Pair(t, 1, kv8, fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 4}", 16, "hnd")), nil},
		{"window", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1}", 16, "hnd"), fixture.Side("{tp: 2}", 32, "nhd")), []build.Window{{From: 5, To: 27}}},
		{"transposed-k", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 2}", 16, "[block, head, {k: [dim, token], v: [token, dim]}]"), fixture.Side("{tp: 1}", 16, "joint-nhd")), nil},
		{"x-packed", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 2}", 16, "[block, head, {k: [dim/8, token, dim%8], v: [dim, token]}]"), fixture.Side("{tp: 2}", 16, "hnd")), nil},
		{"block-16-64", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1}", 16, "split-hnd"), fixture.Side("{tp: 1}", 64, "split-hnd")), nil},
		{"block-64-16", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1}", 64, "split-nhd"), fixture.Side("{tp: 1}", 16, "split-nhd")), nil},
		{"block-48-32", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1}", 48, "hnd"), fixture.Side("{tp: 1}", 32, "hnd")), nil},
		{"dcp-singly", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1, dcp: {size: 2, interleave: 1}}", 16, "nhd"), fixture.Side("{tp: 1}", 16, "hnd")), nil},
		{"dcp-both", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1, dcp: {size: 2, interleave: 4}}", 8, "nhd"), fixture.Side("{tp: 1, dcp: {size: 3, interleave: 2}}", 8, "nhd")), nil},
		{"tp-2-3", fixture.Pair(t, 2, kv12, fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 3, pp: [1, 1]}", 16, "hnd")), nil},
		{"heads", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 1, heads: [[3, 1, 0, 2]]}", 16, "hnd"), fixture.Side("{tp: 2, heads: [[0, 2], [1, 3]]}", 16, "hnd")), nil},
		{"cross-layer", fixture.Pair(t, 2, kv4, fixture.Side("{tp: 1}", 16, "[block, head, layer, token, component, dim]"), fixture.Side("{tp: 2}", 16, "[block, head, token, component, dim]")), nil},
		{"mla", fixture.Pair(t, 1, "{name: latent, heads: 0, dim: 576, dtype: bf16}", fixture.Side("{tp: 2}", 64, "mla"), fixture.Side("{tp: 1}", 64, "mla")), nil},
		{"unequal", fixture.Pair(t, 1, "{name: k, heads: 2, dim: 24, dtype: bf16}, {name: v, heads: 2, dim: 16, dtype: fp8_e4m3}", fixture.Side("{tp: 1}", 16, "nhd"), fixture.Side("{tp: 2}", 16, "hnd")), nil},
		{"half-bytes", fixture.Pair(t, 1, "{name: k, heads: 2, dim: 32, dtype: fp4}", fixture.Side("{tp: 1}", 16, "nhd"), fixture.Side("{tp: 2}", 16, "hnd")), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := built(t, c.p, c.windows...).Text(c.p)
			file := filepath.Join("testdata", c.name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Every tiling on both sides comes out as a few loops.
func TestTilingsStayFew(t *testing.T) {
	orders := []string{
		"[block, head, token, component, dim]",
		"[block, token/8, head, token%8, component, dim]",
		"[block, head, dim/8, component, token, dim%8]",
		"[block, head/2, dim/32, token/4, component, head%2, token%4, dim%32]",
		"[block, head, {k: [dim/16, token/2, dim%16, token%2], v: [token, dim]}]",
	}
	for _, s := range orders {
		for _, d := range orders {
			p := fixture.Pair(t, 4, kv8, fixture.Side("{tp: 1}", 16, s), fixture.Side("{tp: 2}", 32, d))
			pl := built(t, p)
			if n := len(pl.Runs); n > 4*2*2*4 { // layers, ranks, pieces, a few
				t.Errorf("%s -> %s: %d runs\n%s", s, d, n, pl.Text(p))
			}
		}
	}
}

// Groups have periods, edges and windows of their own.
func TestGroups(t *testing.T) {
	p := fixture.Pair(t, 4, kv4, fixture.Side("{tp: 1}", 16, "hnd"), fixture.Side("{tp: 2}", 16, "nhd"))
	g := p.Source.Model.Groups[0]
	other := g
	g.Name, g.Layers = "full", []int{0, 2}
	other.Name, other.Layers, other.Components = "window", []int{1, 3}, g.Components[:1]
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		s.Model.Groups = []geometry.Group{g, other}
		s.Groups = append(s.Groups, plan.Pool{Block: 8, Blocks: 16})
		for r := range s.Ranks {
			for gi, group := range s.Model.Groups {
				var spec layout.Spec
				for _, a := range []geometry.Axis{geometry.Block, geometry.Token, geometry.Head, geometry.Dim} {
					spec.Order = append(spec.Order, layout.Entry{Item: layout.Item{Axis: a}})
				}
				l, err := spec.Resolve(s.Part(gi, r).Extent(group, s.Groups[gi].Block, s.Groups[gi].Blocks))
				if err != nil {
					t.Fatal(err)
				}
				s.Ranks[r] = append(s.Ranks[r][:gi], l)
			}
		}
	}
	pl := built(t, p)
	if len(pl.Edges) != 4 || len(pl.Runs) != 2*(2*2+2*1) || pl.Groups[1].Tokens != 8 {
		t.Errorf("%s", pl.Text(p))
	}
	one := built(t, p, build.Window{None: true}, build.Window{From: 2, To: 5})
	if len(one.Edges) != 2 || one.Edges[0].Group != 1 || one.Groups[0].From != 0 || one.Groups[0].To != 0 || one.Groups[0].Tokens != 16 {
		t.Errorf("%s", one.Text(p))
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	p, q := reference(t, "nhd", "hnd"), reference(t, "nhd", "hnd")
	if a, b := built(t, p).Digest(), built(t, q).Digest(); a != b {
		t.Errorf("%s and %s", a, b)
	}
}

// Components, layers and heads in assignments of their own give the plan that
// one assignment does, but for what lies contiguous across them.
func TestSplitAssignments(t *testing.T) {
	p := fixture.Pair(t, 3, kv4, fixture.Side("{tp: 1}", 16, "joint-hnd"), fixture.Side("{tp: 1}", 16, "joint-nhd"))
	var as []plan.Assignment
	for layer := 2; layer >= 0; layer-- {
		for _, mask := range []uint64{2, 1} {
			as = append(as, plan.Assignment{Components: mask, Layers: plan.Range{From: layer, To: layer + 1}, Heads: plan.Range{From: 2, To: 4}},
				plan.Assignment{Components: mask, Layers: plan.Range{From: layer, To: layer + 1}, Heads: plan.Range{From: 0, To: 2}})
		}
	}
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(p, pl); err != nil {
		t.Fatal(err)
	}
	if len(pl.Edges) != 1 || len(pl.Runs) != 12 || !slices.IsSortedFunc(pl.Runs, func(a, b plan.Run) int { return a.Layer - b.Layer }) {
		t.Errorf("%s", pl.Text(p))
	}
}

// A box that names more than the ranks share moves what they share; one that
// they do not share at all moves nothing and is the proof's to refuse.
func TestBoxesAreIntersected(t *testing.T) {
	p := fixture.Pair(t, 2, kv8, fixture.Side("{tp: 2, pp: 2}", 16, "hnd"), fixture.Side("{tp: 4}", 16, "hnd"))
	a := plan.Assignment{Components: 3, Destination: 3, Source: 0, Layers: plan.Range{From: 0, To: 2}, Heads: plan.Range{From: 0, To: 8}}
	pl, err := build.Build(p, []plan.Assignment{a}, nil, plan.DefaultBudget())
	if err != nil || len(pl.Runs) != 0 || len(pl.Edges) != 0 {
		t.Errorf("%v, %+v", err, pl)
	}
	a.Source = 3 // stage 1, heads 4 to 7
	pl, err = build.Build(p, []plan.Assignment{a}, nil, plan.DefaultBudget())
	if err != nil || len(pl.Runs) != 1 || pl.Runs[0].Layer != 1 || pl.Runs[0].SourceOffset != 2*16*512 {
		t.Errorf("%v, %s", err, pl.Text(p))
	}
	var fault *proof.Fault
	if _, err := proof.Check(p, pl); !errors.As(err, &fault) || fault.Kind != proof.Gap {
		t.Errorf("got %v", err)
	}
}

func TestRefused(t *testing.T) {
	whole := plan.Assignment{Components: 1, Layers: plan.Range{From: 0, To: 1}, Heads: plan.Range{From: 0, To: 2}}
	small := fixture.Pair(t, 1, "{name: k, heads: 2, dim: 8, dtype: bf16}", fixture.Side("{tp: 1}", 16, "[block, head, token, dim]"), fixture.Side("{tp: 1}", 32, "[block, token, head, dim]"))
	split := fixture.Pair(t, 1, "{name: k, heads: 2, dim: 8, dtype: fp4}", fixture.Side("{tp: 1}", 16, "[block, head, token, dim]"), fixture.Side("{tp: 1}", 16, "[block, head, token, dim]"))
	for r := range split.Destination.Ranks { // dims four bits apart, one token after the other
		split.Destination.Ranks[r][0] = resolved(t, split.Destination.Ranks[r][0].Extent, "block", "head", "dim", "token")
	}
	deep := fixture.Pair(t, 1, "{name: k, heads: 16, dim: 256, dtype: bf16}",
		fixture.Side("{tp: 1}", 16, "[block, head%2, head%4/2, head%8/4, head/8, token%2, token%4/2, token%8/4, token/8, dim]"),
		fixture.Side("{tp: 1}", 16, "[block, dim/16, head, token, dim%16]"))
	for _, c := range []struct {
		name   string
		p      *plan.Pair
		a      plan.Assignment
		window build.Window
		budget plan.Budget
		want   string
	}{
		{name: "group", p: small, a: with(whole, func(a *plan.Assignment) { a.Group = 1 }), want: "assignment 0: group is 1"},
		{name: "components", p: small, a: with(whole, func(a *plan.Assignment) { a.Components = 2 }), want: "assignment 0: components is 0x2"},
		{name: "rank", p: small, a: with(whole, func(a *plan.Assignment) { a.Source = 1 }), want: "assignment 0: source rank is 1"},
		{name: "layers", p: small, a: with(whole, func(a *plan.Assignment) { a.Layers.To = 2 }), want: "assignment 0: layers is {0 2}"},
		{name: "heads", p: small, a: with(whole, func(a *plan.Assignment) { a.Heads.To = 3 }), want: "assignment 0: heads is {0 3}"},
		{name: "tokens", p: small, a: with(whole, func(a *plan.Assignment) { a.Tokens = plan.Tokens{Size: 2, Interleave: 1, Phase: 2} }), want: "assignment 0: tokens is"},
		{name: "window", p: small, a: whole, window: build.Window{From: 3, To: 33}, want: "pair: pair.window is {3 33 false}"},
		{name: "empty window", p: small, a: whole, window: build.Window{From: 3, To: 3}, want: "pair: pair.window is {3 3 false}"},
		{name: "window of none", p: small, a: whole, window: build.Window{From: 0, To: 3, None: true}, want: "pair: pair.window is {0 3 true}"},
		{name: "runs", p: small, a: whole, budget: plan.Budget{Runs: 1, Pieces: 9, Bytes: 1 << 20}, want: "plan: runs: at least 2 needed, the budget is 1"},
		{name: "pieces", p: small, a: whole, budget: plan.Budget{Runs: 9, Pieces: 1, Bytes: 1 << 20}, want: "plan: pieces: at least 2 needed, the budget is 1"},
		{name: "bytes", p: small, a: whole, budget: plan.Budget{Runs: 9, Pieces: 9, Bytes: 100}, want: "plan: bytes: at least"},
		{name: "half bytes", p: split, a: whole, want: "build: component k (fp4) layer 0 from source rank 0 to destination rank 0: a piece is not whole bytes"},
		{name: "loops", p: deep, a: with(whole, func(a *plan.Assignment) { a.Heads.To = 16 }), want: "build: component k (bf16) layer 0 from source rank 0 to destination rank 0: 9 nested loops needed, at most 8 are possible"},
	} {
		if c.budget == (plan.Budget{}) {
			c.budget = plan.DefaultBudget()
		}
		if err := c.p.Validate(); err != nil {
			t.Fatal(err)
		}
		_, err := build.Build(c.p, []plan.Assignment{c.a}, []build.Window{c.window}, c.budget)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func with(a plan.Assignment, f func(*plan.Assignment)) plan.Assignment {
	f(&a)
	return a
}

func resolved(t testing.TB, e layout.Extent, order ...string) *layout.Layout {
	t.Helper()
	var spec layout.Spec
	for _, text := range order {
		it, err := layout.ParseItem(text)
		if err != nil {
			t.Fatal(err)
		}
		spec.Order = append(spec.Order, layout.Entry{Item: it})
	}
	l, err := spec.Resolve(e)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// hostile makes a legal pair of one head and layer that is meant to take long.
func hostile(t testing.TB, blocks, dcp, interleave [2]int, dim int, orders [2][]string) *plan.Pair {
	m := geometry.Model{Name: "m", Layers: 1, Groups: []geometry.Group{{Layers: []int{0}, Components: []geometry.Component{{Name: "k", Heads: 1, Dim: dim, DType: geometry.FP8E4M3}}}}}
	p := &plan.Pair{}
	for i, s := range []*plan.Side{&p.Source, &p.Destination} {
		*s = plan.Side{Engine: "e", Model: m, Shard: shard.Spec{TP: 1, Stages: []int{1}, DCPSize: dcp[i], Interleave: interleave[i], Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}, Groups: []plan.Pool{{Block: blocks[i], Blocks: 2}}}
		l := resolved(t, layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: blocks[i], Heads: []int{1}, Components: m.Groups[0].Components}, orders[i]...)
		for range dcp[i] {
			s.Ranks = append(s.Ranks, []*layout.Layout{l})
		}
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// What would take long is refused before time or memory is spent on it.
func TestHostilePairsAreRefusedEarly(t *testing.T) {
	plain := [2][]string{{"block", "head", "token", "dim"}, {"block", "head", "token", "dim"}}
	all := func(p *plan.Pair) []plan.Assignment {
		var as []plan.Assignment
		for d := range p.Destination.Ranks {
			for s := range p.Source.Ranks {
				if len(as) < plan.MaxAssignments {
					as = append(as, plan.Assignment{Components: 1, Destination: d, Source: s, Layers: plan.Range{From: 0, To: 1}, Heads: plan.Range{From: 0, To: 1}})
				}
			}
		}
		return as
	}
	filtered := func(p *plan.Pair) []plan.Assignment {
		as := all(p)
		for i, n := range []int{4093, 4091, 4079, 4073} {
			a := as[0]
			a.Tokens = plan.Tokens{Size: n, Interleave: 1<<20 - i, Phase: 1}
			as = append(as, a)
		}
		return as
	}
	for _, c := range []struct {
		name            string
		blocks, dcp, in [2]int
		dim             int
		orders          [2][]string
		as              func(*plan.Pair) []plan.Assignment
	}{
		{"coprime blocks", [2]int{1<<20 - 1, 1 << 20}, [2]int{1, 1}, [2]int{1, 1}, 1, plain, all},
		{"coprime blocks, dcp", [2]int{1<<20 - 1, 1 << 20}, [2]int{4096, 4096}, [2]int{1, 1}, 1, plain, all},
		{"coprime interleaves", [2]int{1 << 20, 1 << 20}, [2]int{4096, 4095}, [2]int{1<<20 - 1, 1<<20 - 3}, 1, plain, all},
		{"tokens dealt singly", [2]int{1 << 20, 1 << 20}, [2]int{64, 63}, [2]int{1, 1}, 1, plain, all},
		{"token filters", [2]int{16, 16}, [2]int{1, 1}, [2]int{1, 1}, 1, plain, filtered},
		{"small periods of many phases", [2]int{1, 1}, [2]int{4096, 4095}, [2]int{1, 1}, 1, plain, all},
	} {
		p := hostile(t, c.blocks, c.dcp, c.in, c.dim, c.orders)
		as := c.as(p)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := build.Build(p, as, nil, plan.DefaultBudget())
		runtime.ReadMemStats(&after)
		var large *plan.TooLarge
		if !errors.As(err, &large) {
			t.Errorf("%s: got %v", c.name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 160<<20 {
			t.Errorf("%s: %d MB allocated", c.name, n>>20)
		}
	}
}

// Tiles that never meet fall into as many runs as the layouts force, and are
// neither refused nor walked element by element.
func TestCoprimeTiles(t *testing.T) {
	for _, orders := range [][2][]string{
		{{"block", "head", "token", "dim%1024", "dim/1024"}, {"block", "head", "token", "dim%729", "dim/729"}},
		{{"block", "head", "token", "dim%2", "dim%4/2", "dim%8/4", "dim%16/8", "dim/16"}, {"block", "head", "token", "dim%3", "dim%9/3", "dim%27/9", "dim/27"}},
	} {
		p := hostile(t, [2]int{16, 16}, [2]int{1, 1}, [2]int{1, 1}, 1024*729, orders)
		if n := len(built(t, p).Runs); n > 2000 {
			t.Errorf("%v: %d runs", orders, n)
		}
	}
}

// As many assignments as a policy may answer, none of which moves anything.
func TestManyIdleAssignments(t *testing.T) {
	p := fixture.Pair(t, 64, "{name: k, heads: 4096, dim: 1, dtype: bf16}", fixture.Side("{tp: 2}", 16, "[block, head, token, dim]"), fixture.Side("{tp: 2}", 16, "[block, head, token, dim]"))
	as := slices.Repeat([]plan.Assignment{{Components: 1, Source: 1, Layers: plan.Range{From: 0, To: 64}, Heads: plan.Range{From: 0, To: 4096}}}, plan.MaxAssignments)
	if pl, err := build.Build(p, as, nil, plan.DefaultBudget()); err != nil || len(pl.Runs) != 0 {
		t.Errorf("%d runs, %v", len(pl.Runs), err)
	}
}

func TestCost(t *testing.T) {
	cost := func(p *plan.Pair) build.Cost {
		t.Helper()
		c, err := build.CostOf(p, plan.DefaultBudget())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const periods = build.CostTokens / 16
	bytes := int64(80 * 2 * 8 * 16 * 128 * 2 * periods)
	for _, c := range []struct {
		source, destination string
		pieces              int64
	}{{"hnd", "hnd", 4 * 80}, {"split-hnd", "split-hnd", 4 * 160}, {"nhd", "nhd", 4 * 80 * 16}, {"nhd", "hnd", 4 * 80 * 32}, {"blhnc", "blhnc", 4 * 80}} {
		if got := cost(reference(t, c.source, c.destination)); got != (build.Cost{Pieces: c.pieces * periods, Bytes: bytes}) {
			t.Errorf("%s -> %s: %+v, want %d pieces, %d bytes", c.source, c.destination, got, c.pieces, bytes)
		}
	}
	// Each destination rank is served once, whoever else holds the same. Bytes are
	// those of a period.
	for _, c := range []struct {
		name   string
		p      *plan.Pair
		bytes  int64
		period int64
	}{
		{"replicas", fixture.Pair(t, 2, kv4, fixture.Side("{tp: 8, pp: 2}", 16, "hnd"), fixture.Side("{tp: 16}", 16, "hnd")), 16 * 2 * 2 * 16 * 32, 16},
		{"mla", fixture.Pair(t, 2, "{name: latent, heads: 0, dim: 8, dtype: bf16}", fixture.Side("{tp: 8, pp: 2}", 16, "mla"), fixture.Side("{tp: 2}", 16, "mla")), 2 * 2 * 16 * 16, 16},
		{"dcp", fixture.Pair(t, 2, kv4, fixture.Side("{tp: 2, dcp: {size: 2, interleave: 1}}", 16, "hnd"), fixture.Side("{tp: 1, pp: 2}", 16, "hnd")), 2 * 2 * 4 * 32 * 32, 32},
		{"lists", fixture.Pair(t, 1, kv4, fixture.Side("{tp: 2, heads: [[3, 1, 0], [2, 0]]}", 16, "hnd"), fixture.Side("{tp: 2, heads: [[0, 1, 3], [2, 3]]}", 16, "hnd")), 2 * 5 * 16 * 32, 16},
	} {
		if got, want := cost(c.p), c.bytes*build.CostTokens/c.period; got.Bytes != want || got.Pieces < 1 {
			t.Errorf("%s: %+v, want %d bytes", c.name, got, want)
		}
	}
	var large *plan.TooLarge
	if _, err := build.CostOf(reference(t, "hnd", "hnd"), plan.Budget{Runs: 5, Pieces: 5, Bytes: 1 << 20}); !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkBuild70B(b *testing.B) {
	for _, c := range [][2]string{{"split-hnd", "split-hnd"}, {"nhd", "hnd"}} {
		b.Run(c[0]+"-"+c[1], func(b *testing.B) {
			p := reference(b, c[0], c[1])
			as := everything(p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := build.Build(p, as, nil, plan.DefaultBudget()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
