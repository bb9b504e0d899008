package proof_test

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

const (
	nhd = "block token head component dim"
	hnd = "block head token component dim"
)

// llama is a pair of TP 2 and TP 4 with 8 heads.
func llama(t testing.TB, layers, blocks int, source, destination string) *plan.Pair {
	t.Helper()
	g := geometry.Group{Components: []geometry.Component{{Name: "k", Heads: 8, Dim: 128, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 128, DType: geometry.BF16}}}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	model := geometry.Model{Name: "llama", Layers: layers, Groups: []geometry.Group{g}}
	side := func(engine string, tp int, words string) plan.Side {
		s := plan.Side{Engine: engine, Model: model, Groups: []plan.Pool{{Block: 16, Blocks: blocks}},
			Shard: shard.Spec{TP: tp, Stages: []int{layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}}
		l, err := sample.Order(words).Resolve(layout.Extent{Layers: g.Layers, Blocks: blocks, Tokens: 16, Heads: []int{8 / tp, 8 / tp}, Components: g.Components})
		if err != nil {
			t.Fatal(err)
		}
		for range tp {
			s.Ranks = append(s.Ranks, []*layout.Layout{l})
		}
		return s
	}
	return &plan.Pair{Source: side("prefill", 2, source), Destination: side("decode", 4, destination)}
}

// heads matches heads evenly.
func heads(p *plan.Pair) []plan.Assignment {
	var as []plan.Assignment
	layers := p.Source.Model.Layers
	for d := range p.Destination.Ranks {
		as = append(as, plan.Assignment{Components: 3, Destination: d, Source: d / 2, Layers: plan.Range{To: layers}, Heads: plan.Range{From: d * 2, To: d*2 + 2}})
	}
	return as
}

func built(t testing.TB, p *plan.Pair) *plan.Plan {
	t.Helper()
	pl, err := build.Build(p, heads(p), nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestSeedBug is the bug that the project was born from: both caches lie as
// NHD, the copies are computed as if they lay as HND, and every length fits.
func TestSeedBug(t *testing.T) {
	truth := llama(t, 2, 3, nhd, nhd)
	pl := built(t, llama(t, 2, 3, hnd, hnd))

	_, err := proof.Check(truth, pl)
	var f *proof.Fault
	if !errors.As(err, &f) || f.Kind != proof.Malformed || !strings.Contains(f.Reason, "the plan is for pair sha256:") {
		t.Errorf("Check: %v, want the pair's digest refused", err)
	}

	err = proof.Examine(truth, pl)
	if !errors.As(err, &f) || f.Kind != proof.Swap {
		t.Fatalf("Examine: %v, want a swap", err)
	}
	const want = `proof: swap at destination rank 0: k layer 0 head 0 token 1 dim 0 gets k layer 0 head 2 token 0 dim 0 of source rank 0 (run 0)
  edge 0: source rank 0 to destination rank 0
  source "prefill" lies as NHD [block token head component dim]
  destination "decode" lies as NHD [block token head component dim]`
	if got := fmt.Sprintf("%+v", err); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	v := judge(truth, pl, rand.New(rand.NewPCG(3, 4)))
	if v.wrong*10000 != v.all*9375 || v.elsewhere || v.first != f.At || v.rank != f.Rank {
		t.Errorf("the twin finds %+v, want 93.75 %% wrong", v)
	}
	t.Logf("%d of %d elements wrong", v.wrong, v.all)

	if err := proof.Examine(truth, built(t, truth)); err != nil {
		t.Errorf("the right plan: %v", err)
	}
}

// TestFaults has one plan for each kind of fault and holds its words.
func TestFaults(t *testing.T) {
	p := llama(t, 2, 3, nhd, hnd)
	for _, c := range []struct {
		name   string
		change func(*plan.Plan)
		want   string
	}{
		{"drop", func(pl *plan.Plan) { pl.Runs = pl.Runs[:pl.Edges[3].From]; pl.Edges = pl.Edges[:3] },
			"proof: gap at destination rank 3: k layer 0 head 6 token 0 dim 0 is not written"},
		{"repeat", func(pl *plan.Plan) {
			pl.Runs = append(pl.Runs, pl.Runs[len(pl.Runs)-1])
			pl.Edges[3].To++
		}, "proof: clash at destination rank 3: k layer 1 head 6 token 0 dim 0 is written more than once (run %d)"},
		{"region", func(pl *plan.Plan) { pl.Runs[0].SourceRegion = 1 },
			"proof: swap at destination rank 0: k layer 0 head 0 token 0 dim 0 gets k layer 1 head 0 token 0 dim 0 of source rank 0 (run 0)"},
		{"far", func(pl *plan.Plan) { pl.Runs[0].SourceOffset = 1 << 40 },
			`proof: bounds at destination rank 0: k layer 0 head 0 token 0 dim 0: it reads byte 1099511627776 of region "layer0", which is of no element (run 0)`},
		{"write", func(pl *plan.Plan) { pl.Runs[0].DestinationOffset += 3 * 2 * 16 * 512 },
			`proof: bounds at destination rank 0: it writes byte 49152 of region "layer0", which is of no element (run 0)`},
		{"block", func(pl *plan.Plan) { pl.Runs[0].DestinationOffset += 2 * 16 * 512 },
			`proof: bounds at destination rank 0: it writes byte 16384 of region "layer0", which is of another block (run 0)`},
		{"layer", func(pl *plan.Plan) { pl.Runs[len(pl.Runs)-1].Layer = 2 },
			"proof: bounds at destination rank 3: destination rank 3 does not hold layer 2 (run %d)"},
		{"piece", func(pl *plan.Plan) { pl.Pieces[0].SourceToken++ },
			"proof: malformed at destination rank 0: piece 0 is not true: its tokens lie elsewhere on the source rank (run 0)"},
		{"count", func(pl *plan.Plan) { pl.Runs[0].Loops[0].Count = 0 },
			"proof: malformed at destination rank 0: loop 0 counts 0 (run 0)"},
		{"overflow", func(pl *plan.Plan) { pl.Runs[0].Loops[0].Count = 1 << 62 },
			"proof: bounds at destination rank 0: it moves more bytes than a region can hold (run 0)"},
		{"pair", func(pl *plan.Plan) { pl.Pair[0]++ }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pl := built(t, p)
			last := len(pl.Runs)
			if c.name == "layer" {
				last--
			}
			c.change(pl)
			proven, err := proof.Check(p, pl)
			if err == nil || proven.Valid() || proven.Plan() != nil {
				t.Fatalf("accepted: %v", proven)
			}
			want := strings.ReplaceAll(c.want, "%d", strconv.Itoa(last))
			if c.want != "" && err.Error() != want {
				t.Errorf("got\n%s\nwant\n%s", err, want)
			}
			if err2 := proof.Examine(p, pl); c.name != "pair" && fmt.Sprintf("%+v", err2) != fmt.Sprintf("%+v", err) {
				t.Errorf("Examine says %v, Check %v", err2, err)
			}
		})
	}
}

func TestProven(t *testing.T) {
	if (proof.Proven{}).Valid() {
		t.Error("the zero value is valid")
	}
	p := llama(t, 2, 3, nhd, hnd)
	pl := built(t, p)
	proven, err := proof.Check(p, pl)
	if err != nil {
		t.Fatal(err)
	}
	if !proven.Valid() || proven.Plan() != pl || proven.Pair() != p || proven.Digest() != pl.Digest() || proven.Elements() != 2*2*8*16*128 {
		t.Errorf("got %v, %d elements", proven.Digest(), proven.Elements())
	}
}

func TestBudget(t *testing.T) {
	p := llama(t, 2, 3, nhd, hnd)
	pl := built(t, p)
	full := proof.DefaultBudget()
	for _, c := range []struct {
		what string
		b    proof.Budget
	}{
		{"runs", proof.Budget{Runs: 1, Pieces: full.Pieces, Cells: full.Cells, Steps: full.Steps}},
		{"pieces", proof.Budget{Runs: full.Runs, Cells: full.Cells, Steps: full.Steps}},
		{"cells of the proof", proof.Budget{Runs: full.Runs, Pieces: full.Pieces, Cells: 3, Steps: full.Steps}},
	} {
		_, err := proof.CheckWithin(p, pl, c.b)
		var e *plan.TooLarge
		if !errors.As(err, &e) || e.What != c.what {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	// A list of heads without a rule is compared step by step.
	m := sample.New(17)
	for {
		m.Rand = rand.New(rand.NewPCG(m.Uint64(), 1))
		m.Has = map[sample.Feature]bool{}
		p := m.Pair()
		pl, err := build.Build(p, m.Assign(p), nil, plan.DefaultBudget())
		if err != nil || p.Source.Shard.Heads == nil {
			continue
		}
		none := full
		none.Steps = 0
		var e *plan.TooLarge
		if _, err := proof.CheckWithin(p, pl, none); errors.As(err, &e) && e.What == "steps of the proof" {
			break
		}
	}
}

// comb is a pair of equal caches without heads, 7 bytes a token, and a plan of
// three runs that each move every third byte: right, and in step with nothing.
func comb(t *testing.T, block int) (*plan.Pair, *plan.Plan) {
	t.Helper()
	model := geometry.Model{Name: "comb", Layers: 1, Groups: []geometry.Group{{Layers: []int{0}, Components: []geometry.Component{{Name: "latent", Dim: 7, DType: geometry.FP8E4M3}}}}}
	l, err := sample.Order("block token dim").Resolve(layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: block, Heads: []int{0}, Components: model.Groups[0].Components})
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Side{Engine: "one", Model: model, Groups: []plan.Pool{{Block: block, Blocks: 2}}, Ranks: [][]*layout.Layout{{l}},
		Shard: shard.Spec{TP: 1, Stages: []int{1}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}}
	p := &plan.Pair{Source: s, Destination: s}
	p.Destination.Engine = "other"
	n := int64(block)
	pl := &plan.Plan{
		Pair:   p.Digest(),
		Groups: []plan.Period{{Tokens: n, To: n, SourceBlocks: 1, DestinationBlocks: 1}},
		Edges:  []plan.Edge{{To: 3}},
		Pieces: []plan.Piece{{Step: 1, Count: n, SourceStep: 1, DestinationStep: 1}},
	}
	for i := range int64(3) {
		pl.Runs = append(pl.Runs, plan.Run{SourceOffset: i, DestinationOffset: i, Bytes: 1, Loops: []plan.Loop{{Count: (7*n - i + 2) / 3, SourceStride: 3, DestinationStride: 3}}})
	}
	return p, pl
}

// TestCombs has runs that fall apart into as many cells as elements: they are
// decided while the budget lasts, however many there are.
func TestCombs(t *testing.T) {
	p, pl := comb(t, 100)
	if _, err := proof.Check(p, pl); err != nil {
		t.Errorf("%v", err)
	}
	pl.Runs[2].Loops[0].Count--
	var f *proof.Fault
	if _, err := proof.Check(p, pl); !errors.As(err, &f) || f.Kind != proof.Gap || f.At.Token != 99 || f.At.Dim != 5 {
		t.Errorf("%v, want a gap at token 99 dim 5", err)
	}
	p, pl = comb(t, 1<<16)
	if _, err := proof.Check(p, pl); err != nil {
		t.Errorf("%v", err)
	}
	small := proof.DefaultBudget()
	small.Cells = 1 << 16
	var e *plan.TooLarge
	if _, err := proof.CheckWithin(p, pl, small); !errors.As(err, &e) {
		t.Errorf("%v, want the budget named", err)
	}
}

// TestImports holds that the proof does not know who made a plan, and uses
// nothing but what the pair and the plan are made of.
func TestImports(t *testing.T) {
	const module = "github.com/kvferry/kvferry/"
	allowed := map[string]bool{module + "kv/geometry": true, module + "kv/layout": true, module + "kv/shard": true, module + "plan": true}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		for _, i := range parsed.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if strings.Contains(path, ".") && !allowed[path] {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d files seen", seen)
	}
}

func BenchmarkCheck70B(b *testing.B) {
	for _, c := range []struct{ name, source, destination string }{{"HND", hnd, hnd}, {"NHD", nhd, nhd}, {"NHD-HND", nhd, hnd}} {
		b.Run(c.name, func(b *testing.B) {
			p := llama(b, 80, 256, c.source, c.destination)
			pl := built(b, p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := proof.Check(p, pl); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(pl.Runs)), "runs")
		})
	}
}
