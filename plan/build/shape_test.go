package build_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// apply lists what a plan's runs move in one period, with random block tables,
// and what they should.
func apply(p *plan.Pair, pl *plan.Plan, r *rand.Rand) ([]fixture.Move, *fixture.Due) {
	due := &fixture.Due{}
	for g, period := range pl.Groups {
		due.Source = append(due.Source, deal(r, period.SourceBlocks, p.Source.Groups[g].Blocks))
		due.Destination = append(due.Destination, deal(r, period.DestinationBlocks, p.Destination.Groups[g].Blocks))
		due.Spans = append(due.Spans, [2]int64{period.From, period.To})
	}
	var out []fixture.Move
	for _, e := range pl.Edges {
		sl, dl := p.Source.Ranks[e.Source][e.Group], p.Destination.Ranks[e.Destination][e.Group]
		for i := e.From; i < e.To; i++ {
			run := &pl.Runs[i]
			q := &pl.Pieces[run.Piece]
			var loop func(loops []plan.Loop, so, do int64)
			loop = func(loops []plan.Loop, so, do int64) {
				if len(loops) == 0 {
					out = append(out, fixture.Move{Group: e.Group, SourceRank: e.Source, SourceRegion: run.SourceRegion, SourceOffset: so,
						DestinationRank: e.Destination, DestinationRegion: run.DestinationRegion, DestinationOffset: do, Bytes: run.Bytes})
					return
				}
				for k := range loops[0].Count {
					loop(loops[1:], so+k*loops[0].SourceStride, do+k*loops[0].DestinationStride)
				}
			}
			loop(run.Loops, run.SourceOffset+plan.BlockOffset(sl, run.SourceMap, int64(due.Source[e.Group][q.SourceBlock])),
				run.DestinationOffset+plan.BlockOffset(dl, run.DestinationMap, int64(due.Destination[e.Group][q.DestinationBlock])))
		}
	}
	return out, due
}

// deal deals n different blocks of a pool.
func deal(r *rand.Rand, n int64, pool int) []uint32 {
	out := make([]uint32, n)
	for i, id := range r.Perm(pool)[:n] {
		out[i] = uint32(id)
	}
	return out
}

// ordered reports whether edges and runs stand in the canonical order.
func ordered(pl *plan.Plan) bool {
	at := 0
	for i, e := range pl.Edges {
		if i > 0 {
			o := pl.Edges[i-1]
			if slices.Compare([]int{o.Group, o.Destination, o.Source}, []int{e.Group, e.Destination, e.Source}) >= 0 {
				return false
			}
		}
		if e.From != at || e.To <= e.From || !slices.IsSortedFunc(pl.Runs[e.From:e.To], func(a, b plan.Run) int { return a.Layer - b.Layer }) {
			return false
		}
		for r := e.From; r < e.To; r++ {
			if pl.Runs[r].Edge != i {
				return false
			}
		}
		at = e.To
	}
	return at == len(pl.Runs)
}

// right builds, proves and judges a plan.
func right(t testing.TB, p *plan.Pair, as []plan.Assignment, r *rand.Rand, windows ...build.Window) *plan.Plan {
	t.Helper()
	pl, err := build.Build(p, as, windows, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(p, pl); err != nil {
		t.Fatalf("%+v\n%s", err, pl.Text(p))
	}
	moves, due := apply(p, pl, r)
	if err := fixture.Judge(p, due, moves); err != nil {
		t.Fatalf("%v\n%s", err, pl.Text(p))
	}
	if !ordered(pl) {
		t.Fatalf("out of order\n%s", pl.Text(p))
	}
	return pl
}

// shaped makes a pair of two sides that keep one group "g" in different ways.
func shaped(t testing.TB, group, sourceShard, source, destinationShard, destination string) *plan.Pair {
	t.Helper()
	p, _ := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 4, groups: [{name: g, %s}]}\nsource: {engine: s, shard: %s, groups: {g: {%s}}}\ndestination: {engine: d, shard: %s, groups: {g: {%s}}}\n",
		group, sourceShard, source, destinationShard, destination))
	return p
}

// Components of a group may have different head counts, units and entries: each
// class is dealt in its own way.
func TestClasses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const (
		mixed = "components: [{name: k, heads: 8, dim: 2, dtype: bf16}, {name: v, heads: 4, dim: 3, dtype: fp8}, {name: k_scale, heads: 8, dim: 1, dtype: fp32, scales: k}, {name: latent, heads: 0, dim: 10, dtype: bf16}]"
		apart = `{order: [block, {"k,k_scale": [token, head, component, dim], v: [head, token, dim], latent: [token, dim]}]}`
		other = `{order: [block, token, component, {"k,k_scale": [component, head, dim], v: [dim, head], latent: [dim]}]}`
	)
	for _, tp := range [][2]int{{1, 1}, {2, 4}, {4, 2}, {8, 1}, {1, 8}, {4, 4}, {16, 2}, {2, 16}} {
		p := shaped(t, mixed, fmt.Sprintf("{tp: %d, pp: 2}", tp[0]), "block: 8, blocks: 40, layout: "+apart, fmt.Sprintf("{tp: %d, pp: [1, 3]}", tp[1]), "block: 12, blocks: 40, layout: "+other)
		for skip := range 2 {
			right(t, p, fixture.Assign(p, skip), r)
		}
		right(t, p, fixture.Assign(p, 0), r, build.Window{From: 3, To: 17})
	}
}

// hybridModel is one of attention and states: the convolution as x | B | C, with
// channels that stay together, and the states.
const hybridModel = `
model:
  name: hybrid
  layers: 4
  groups:
    - {name: attention, layers: "1", components: [{name: k, heads: 2, dim: 4, dtype: bf16}, {name: v, heads: 2, dim: 4, dtype: bf16}]}
    - name: mamba
      state: true
      layers: "0,2-3"
      components:
        - {name: x, channels: 32, dim: 3, dtype: bf16}
        - {name: B, channels: 8, unit: 4, dim: 3, dtype: bf16}
        - {name: C, channels: 8, unit: 4, dim: 3, dtype: bf16}
        - {name: ssm, channels: 8, dim: 4, dtype: fp32}
`

func hybrid(t testing.TB, sourceTP int, sourceConv string, destinationTP int, destinationConv string) *plan.Pair {
	t.Helper()
	side := func(engine string, tp int, block int, conv string) string {
		return fmt.Sprintf(`{engine: %s, shard: {tp: %d}, groups: {attention: {block: %d, blocks: 20, layout: {order: [block, token, head, component, dim]}}, mamba: {slots: 5, layout: {order: [slot, component, {"x,B,C": [component, %s], ssm: [channel, dim]}]}}}}`, engine, tp, block, conv)
	}
	p, _ := fixture.Parse(t, hybridModel+"source: "+side("p", sourceTP, 4, sourceConv)+"\ndestination: "+side("d", destinationTP, 8, destinationConv)+"\n")
	return p
}

// Both layouts of a convolution, [channel][width] and [width][channel], over
// every ratio of tp, B and C replicated where there are more ranks than groups;
// states come from ranks of their own.
func TestStates(t *testing.T) {
	const ds, sd = "channel, dim", "dim, channel"
	r := rand.New(rand.NewPCG(3, 2))
	for _, tp := range [][2]int{{1, 1}, {2, 2}, {1, 4}, {4, 1}, {8, 2}, {2, 8}, {8, 1}, {1, 8}} {
		for _, conv := range [][2]string{{ds, ds}, {sd, sd}, {ds, sd}, {sd, ds}} {
			p := hybrid(t, tp[0], conv[0], tp[1], conv[1])
			for skip := range 2 {
				pl := right(t, p, fixture.Assign(p, skip), r)
				if pl.Groups[1] != (plan.Period{Tokens: 1, To: 1, SourceBlocks: 1, DestinationBlocks: 1}) {
					t.Errorf("the period of states is %+v", pl.Groups[1])
				}
				if n := len(pl.Runs); n > tp[1]*max(tp[0]/tp[1], 1)*(8+3*4) { // edges, pieces of attention, components of three layers
					t.Errorf("%v %v: %d runs\n%s", tp, conv, n, pl.Text(p))
				}
			}
		}
	}
	// Two heads over eight ranks: attention from ranks 0 and 4, states from all.
	p := hybrid(t, 8, ds, 1, ds)
	sources := map[int][]int{}
	for _, e := range right(t, p, fixture.Assign(p, 0), r).Edges {
		sources[e.Group] = append(sources[e.Group], e.Source)
	}
	if !slices.Equal(sources[0], []int{0, 4}) || !slices.Equal(sources[1], []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got %v", sources)
	}
	none := right(t, p, fixture.Assign(p, 0), r, build.Window{From: 1, To: 3}, build.Window{None: true})
	if slices.ContainsFunc(none.Edges, func(e plan.Edge) bool { return e.Group == 1 }) {
		t.Errorf("states are moved\n%s", none.Text(p))
	}
}

// Entries of several tokens in windows of every alignment: a compressed entry
// comes with its last token, a scale with its first, which must not be parted
// from the others.
func TestEntriesInEveryWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	const (
		few  = "components: [{name: k, heads: 2, dim: 2, dtype: int8}, {name: c, heads: 0, dim: 2, dtype: int8, tokens_per_entry: 4}]"
		both = "components: [{name: k, heads: 2, dim: 2, dtype: int8}, {name: s, heads: 2, dim: 1, dtype: fp16, tokens_per_entry: 4, scales: k}, {name: c, heads: 0, dim: 2, dtype: int8, tokens_per_entry: 8}, {name: c4, heads: 2, dim: 1, dtype: int8, tokens_per_entry: 4}]"
	)
	for _, c := range []struct {
		group, sourceShard, source, destinationShard, destination string
		scale                                                     int64 // tokens that share one; 1: none
	}{
		{few, "{tp: 2}", "block: 8, blocks: 40, layout: {order: [block, {k: [head, token, dim], c: [token, dim]}]}", "{tp: 1}", "block: 12, blocks: 40, layout: {order: [block, {k: [token, head, dim], c: [token, dim]}]}", 1},
		{few, "{tp: 1, dcp: {size: 2, interleave: 4}}", "block: 8, blocks: 40, layout: {order: [block, {k: [head, token, dim], c: [token, dim]}]}", "{tp: 2}", "block: 4, blocks: 40, layout: {order: [block, component, {k: [head, token, dim], c: [dim]}]}", 1},
		{both, "{tp: 2}", "block: 8, blocks: 40, layout: {order: [block, {k: [head, token, dim], s: [token, head, dim], c: [token, dim], c4: [token, head, dim]}]}", "{tp: 1}", "block: 24, kernel_block: 8, blocks: 40, layout: {order: [block, {k: [token, head, dim], s: [head, token, dim], c: [token, dim], c4: [token, head, dim]}]}", 4},
		{both, "{tp: 1, dcp: {size: 2, interleave: 8}}", "block: 8, blocks: 40, layout: {order: [block, {k: [head, token, dim], s: [token, head, dim], c: [token, dim], c4: [token, head, dim]}]}", "{tp: 2, dcp: {size: 2, interleave: 16}}", "block: 16, blocks: 40, layout: {order: [block, {k: [token, head, dim], s: [head, token, dim], c: [token, dim], c4: [token, head, dim]}]}", 4},
	} {
		p := shaped(t, c.group, c.sourceShard, c.source, c.destinationShard, c.destination)
		as := fixture.Assign(p, 0)
		period, every := right(t, p, as, r).Groups[0].Tokens, int64(1)
		if testing.Short() {
			every = 3
		}
		for from := int64(0); from < period; from += every {
			for to := from + 1; to <= period; to++ {
				if from%c.scale == 0 {
					right(t, p, as, r, build.Window{From: from, To: to})
					continue
				}
				var e *plan.Error
				if _, err := build.Build(p, as, []build.Window{{From: from, To: to}}, plan.DefaultBudget()); !errors.As(err, &e) ||
					err.Error() != fmt.Sprintf("pair: pair.window is %d: it starts inside the 4 tokens that share a scale", from) {
					t.Fatalf("[%d, %d): got %v", from, to, err)
				}
			}
		}
	}
	// As large as they come: 4 and 128 tokens an entry, scales of 16.
	p := shaped(t, "components: [{name: k, heads: 0, dim: 2, dtype: int8}, {name: s, heads: 0, dim: 1, dtype: fp16, tokens_per_entry: 16, scales: k}, {name: c4, heads: 0, dim: 2, dtype: int8, tokens_per_entry: 4}, {name: c128, heads: 0, dim: 2, dtype: int8, tokens_per_entry: 128}]",
		"{tp: 1}", "block: 128, blocks: 9, layout: {order: [block, component, {k: [token, dim], s: [token, dim], c4: [token, dim], c128: [dim]}]}",
		"{tp: 1, dcp: {size: 2, interleave: 128}}", "block: 128, blocks: 9, layout: {order: [block, {k: [token, dim], s: [token, dim], c4: [dim, token], c128: [dim]}]}")
	as := fixture.Assign(p, 0)
	for range 500 {
		from := r.Int64N(16) * 16
		right(t, p, as, r, build.Window{From: from, To: from + 1 + r.Int64N(256-from)})
	}
}

// A block of several kernel blocks, on one side or both, in ratios that do not
// divide one another.
func TestKernelBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 2))
	const kv = "components: [{name: k, heads: 2, dim: 2, dtype: int8}, {name: v, heads: 2, dim: 2, dtype: int8}]"
	kernels := []string{"block: 12, kernel_block: 12", "block: 12, kernel_block: 6", "block: 12, kernel_block: 4", "block: 12, kernel_block: 1", "block: 12", "block: 8, kernel_block: 4", "block: 20, kernel_block: 10"}
	orders := []string{"[block, head, token, component, dim]", "[block, component, token, head, dim]", "[component, block, head, dim, token]", "[layer, block, token/2, head, token%2, component, dim]"}
	for i, s := range kernels {
		for j, d := range kernels {
			so, do := orders[(i+j)%3], orders[(i+2*j)%3]
			if !strings.HasSuffix(s, ": 1") {
				so = orders[(i+j)%4]
			}
			p := shaped(t, kv, "{tp: 2}", s+", blocks: 12, layout: {order: "+so+"}", "{tp: 1}", d+", blocks: 12, layout: {order: "+do+"}")
			as := fixture.Assign(p, 0)
			pl := right(t, p, as, r)
			period := pl.Groups[0].Tokens
			for range 4 {
				from := r.Int64N(period)
				right(t, p, as, r, build.Window{From: from, To: from + 1 + r.Int64N(period-from)})
			}
		}
	}
	// Where both sides lie alike, a block is one run however it is made up.
	p := shaped(t, kv, "{tp: 1}", "block: 12, kernel_block: 4, blocks: 12, layout: {order: [block, head, token, component, dim]}", "{tp: 1}", "block: 12, kernel_block: 4, blocks: 12, layout: {order: [block, head, token, component, dim]}")
	if pl := right(t, p, fixture.Assign(p, 0), r); len(pl.Runs) != 4 || pl.Runs[0].Bytes != 12*2*4 {
		t.Errorf("%s", pl.Text(p))
	}
}

// Ranks that stand where a list says, context-parallel prefill over several
// axes, and groups that are sharded otherwise than their engine.
func TestPlacesAndShards(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 2))
	const kv = "components: [{name: k, heads: 4, dim: 2, dtype: int8}]"
	const block4, block6 = "block: 4, blocks: 40, layout: {order: [block, head, token, dim]}", "block: 6, blocks: 40, layout: {order: [block, token, head, dim]}"
	for _, c := range [][2]string{
		{"{tp: 2, dcp: {size: 2, interleave: 1}, ranks: [{tp: 1, dcp: 0}, {tp: 0, dcp: 0}, {tp: 1, dcp: 1}, {tp: 0, dcp: 1}]}", "{tp: 4}"},
		{"{tp: 4}", "{tp: 2, dcp: {size: 2, interleave: 3}, ranks: [{tp: 0, dcp: 1}, {tp: 1, dcp: 0}, {tp: 0, dcp: 0}, {tp: 1, dcp: 1}]}"},
		{"{tp: 2, pcp: 2, dcp: {size: 2, interleave: 2}}", "{tp: 1, pp: 2}"},
		{"{tp: 2, pcp: 2, rank_order: [pcp, tp]}", "{tp: 2, pcp: 3}"},
		{"{tp: 1, pp: 2, ranks: [{pp: 1}, {pp: 0}]}", "{tp: 1, pp: 2}"},
	} {
		p := shaped(t, kv, c[0], block4, c[1], block6)
		for skip := range 3 {
			right(t, p, fixture.Assign(p, skip), r)
			right(t, p, fixture.Assign(p, skip), r, build.Window{From: 1, To: 11})
		}
	}
	for _, c := range [][2]string{
		{"{tp: 2, dcp: {size: 2, interleave: 1}}", "shard: {tp: 4}"},
		{"{tp: 4}", "shard: {tp: 2, dcp: {size: 2, interleave: 2}}"},
		{"{tp: 4}", "shard: {tp: 1, pp: [1, 1, 1, 1]}"},
		{"{tp: 2, pp: 2}", "shard: {tp: 4, ranks: [{tp: 3}, {tp: 1}, {tp: 0}, {tp: 2}]}"},
	} {
		p := shaped(t, kv, c[0], block4+", "+c[1], "{tp: 2}", block6)
		back := &plan.Pair{Source: p.Destination, Destination: p.Source}
		for _, p := range []*plan.Pair{p, back} {
			right(t, p, fixture.Assign(p, 1), r)
			right(t, p, fixture.Assign(p, 0), r, build.Window{From: 5, To: 9})
		}
	}
}

// Rows of half bytes are moved where they lie whole on both sides, and refused
// by name where a byte would be cut.
func TestHalfBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 2))
	const nvfp4 = "components: [{name: k, heads: 2, dim: 32, dtype: fp4}, {name: k_scale, heads: 2, dim: 2, dtype: fp8, scales: k}]"
	side := func(order string) string {
		return "block: 4, blocks: 12, layout: {order: " + order + "}"
	}
	for _, c := range []struct{ source, destination, want string }{
		{"[block, head, token, component, dim]", "[block, token, head, component, dim]", ""},
		{"[block, component, head, token, dim]", "[block, {k: [head, dim/16, token, dim%16], k_scale: [token, head, dim]}]", ""},
		{"[block, component, head, token, dim]", "[block, {k: [head, dim/2, token, dim%2], k_scale: [token, head, dim]}]", ""},
		{"[block, component, head, token, dim]", "[block, {k: [head, dim, token], k_scale: [token, head, dim]}]",
			"build: component k (fp4) layer 0 from source rank 0 to destination rank 0: a piece is not whole bytes (bit 4): the layouts part elements that share a byte"},
		{"[block, {k: [head, dim%2, token, dim/2], k_scale: [token, head, dim]}]", "[block, component, token, head, dim]",
			"build: component k (fp4) layer 0 from source rank 0 to destination rank 0: a piece is not whole bytes (bit 4): the layouts part elements that share a byte"},
		{"[block, {k: [head, dim, token], k_scale: [token, head, dim]}]", "[block, {k: [head, dim, token], k_scale: [token, head, dim]}]", ""}, // cut alike
	} {
		p := shaped(t, nvfp4, "{tp: 1}", side(c.source), "{tp: 2}", side(c.destination))
		if c.want == "" {
			right(t, p, fixture.Assign(p, 0), r)
			continue
		}
		_, err := build.Build(p, fixture.Assign(p, 0), nil, plan.DefaultBudget())
		var e *build.Unaligned
		if !errors.As(err, &e) || err.Error() != c.want || e.Component != "k" {
			t.Errorf("%s -> %s: got %v", c.source, c.destination, err)
		}
	}
	// Tokens side by side in a byte move together, and are refused where a
	// window would part them.
	p := shaped(t, nvfp4, "{tp: 1}", side("[block, {k: [head, dim, token], k_scale: [token, head, dim]}]"), "{tp: 1}", side("[block, {k: [head, dim, token], k_scale: [token, head, dim]}]"))
	right(t, p, fixture.Assign(p, 0), r, build.Window{From: 2, To: 4})
	var e *build.Unaligned
	if _, err := build.Build(p, fixture.Assign(p, 0), []build.Window{{From: 1, To: 4}}, plan.DefaultBudget()); !errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
	// Layers that lie alike but for half a byte do not.
	p = shaped(t, "layers: [0, 1], components: [{name: k, heads: 0, dim: 2, dtype: fp4}]", "{tp: 1}", "block: 3, blocks: 12, layout: {order: [block, dim, layer, token]}", "{tp: 1}", "block: 3, blocks: 12, layout: {order: [block, dim, layer, token]}")
	if _, err := build.Build(p, fixture.Assign(p, 0), []build.Window{{From: 0, To: 2}}, plan.DefaultBudget()); !errors.As(err, &e) || e.Layer != 1 || e.Bits != 12 {
		t.Errorf("got %v", err)
	}
	// An odd split: 6 elements of half a byte in tiles of 3.
	p = shaped(t, "components: [{name: k, heads: 2, dim: 6, dtype: fp4}]", "{tp: 1}", side("[block, head, dim/3, token, dim%3]"), "{tp: 1}", side("[block, head, token, dim]"))
	if _, err := build.Build(p, fixture.Assign(p, 0), nil, plan.DefaultBudget()); !errors.As(err, &e) || e.Component != "k" || e.Bits%8 == 0 {
		t.Errorf("got %v", err)
	}
}

// One assignment of components of equal head counts whose units or entries
// differ is several classes: runs stay in the order of layers.
func TestClassesOfOneAssignment(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 2))
	p := shaped(t, "components: [{name: k, heads: 4, dim: 2, dtype: int8}, {name: c, heads: 4, unit: 2, dim: 2, dtype: int8}, {name: s, heads: 4, dim: 1, dtype: fp16, tokens_per_entry: 4, scales: k}]",
		"{tp: 2}", "block: 8, blocks: 40, layout: {order: [block, {k: [head, token, dim], c: [token, head, dim], s: [token, head, dim]}]}",
		"{tp: 1}", "block: 4, blocks: 40, layout: {order: [block, {k: [token, head, dim], c: [head, token, dim], s: [head, token, dim]}]}")
	var one, apart []plan.Assignment
	for s := range p.Source.Ranks {
		a := plan.Assignment{Components: 7, Source: s, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 4}}
		one = append(one, a)
		for c := range 3 {
			a.Components = 1 << c
			apart = append(apart, a)
		}
	}
	a, b := right(t, p, one, r), right(t, p, apart, r)
	if len(a.Runs) != len(b.Runs) || len(a.Edges) != 2 {
		t.Errorf("%s\n%s", a.Text(p), b.Text(p))
	}
	right(t, p, one, r, build.Window{From: 4, To: 7})
	if c, d := right(t, p, one, r).Digest(), a.Digest(); c != d {
		t.Errorf("digests %s and %s", c, d)
	}
}

// Any shape in any window: as the twin says.
func TestRandomShapes(t *testing.T) {
	seeds := uint64(700)
	if testing.Short() {
		seeds = 100
	}
	judged, refused := 0, 0
	for seed := range seeds {
		m := sample.New(seed)
		p := m.Pair()
		as := m.Assign(p)
		pl, err := build.Build(p, as, nil, plan.DefaultBudget())
		var e *build.Unaligned
		if errors.As(err, &e) && strings.Contains(p.Source.Model.Text(), "fp4") {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var windows []build.Window
		for g, period := range pl.Groups {
			unit := int64(1)
			for _, c := range p.Source.Model.Groups[g].Components {
				if c.Scales != "" {
					unit = int64(sample.LCM(int(unit), c.EntryTokens()))
				}
			}
			w := build.Window{From: m.Int64N(period.Tokens) / unit * unit}
			w.To = w.From + 1 + m.Int64N(period.Tokens-w.From)
			if m.Chance(10) {
				w = build.Window{None: true}
			}
			windows = append(windows, w)
		}
		for _, w := range [][]build.Window{nil, windows} {
			pl, err := build.Build(p, as, w, plan.DefaultBudget())
			if errors.As(err, &e) && strings.Contains(p.Source.Model.Text(), "fp4") {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			moves, due := apply(p, pl, m.Rand)
			if err := fixture.Judge(p, due, moves); err != nil {
				t.Fatalf("seed %d, windows %v: %v\n%s%s", seed, w, err, p.Text(), pl.Text(p))
			}
			if !ordered(pl) {
				t.Fatalf("seed %d: out of order\n%s", seed, pl.Text(p))
			}
			judged++
		}
	}
	if judged < int(seeds)*3/2 {
		t.Errorf("%d plans judged, %d pairs refused", judged, refused)
	}
}

// A plan of a large hybrid model over many ranks stays as small as its layers,
// edges and components are few, whatever the tokens, channels and blocks.
func TestLargeHybridStaysSmall(t *testing.T) {
	side := func(engine, shard, attention, conv string) string {
		return fmt.Sprintf(`{engine: %s, shard: %s, groups: {
  attention: {block: 64, kernel_block: 16, blocks: 64, layout: {order: %s}},
  window: {block: 128, blocks: 64, ring: 17, layout: {order: %s}},
  compressed: {block: 256, blocks: 64, layout: {order: [block, {k: [token, dim], k_scale: [token, dim], c4: [token, dim], c128: [token, dim]}]}},
  mamba: {slots: 16, layout: {order: [slot, {"x,B,C": [component, %s], ssm: [channel, dim]}]}}}}`, engine, shard, attention, attention, conv)
	}
	p, _ := fixture.Parse(t, `
model:
  name: large
  layers: 96
  groups:
    - {name: attention, layers: "0-23", components: [{name: k, heads: 16, dim: 128, dtype: fp8}, {name: v, heads: 16, dim: 128, dtype: fp8}]}
    - {name: window, layers: "24-47", window: 2048, components: [{name: k, heads: 8, dim: 128, dtype: bf16}, {name: v, heads: 8, dim: 128, dtype: bf16}]}
    - {name: compressed, layers: "48-71", components: [{name: k, heads: 0, dim: 128, dtype: fp8}, {name: k_scale, heads: 0, dim: 1, dtype: fp32, tokens_per_entry: 64, scales: k}, {name: c4, heads: 0, dim: 512, dtype: bf16, tokens_per_entry: 4}, {name: c128, heads: 0, dim: 512, dtype: bf16, tokens_per_entry: 128}]}
    - name: mamba
      state: true
      layers: "72-95"
      components:
        - {name: x, channels: 16384, dim: 3, dtype: bf16}
        - {name: B, channels: 1024, unit: 128, dim: 3, dtype: bf16}
        - {name: C, channels: 1024, unit: 128, dim: 3, dtype: bf16}
        - {name: ssm, channels: 256, dim: 8192, dtype: fp32}
source: `+side("p", "{tp: 16, pp: 4}", "[block, head, token, component, dim]", "channel, dim")+`
destination: `+side("d", "{tp: 8, pp: 2}", "[block, token, head, component, dim]", "dim, channel")+"\n")
	pl, err := build.Build(p, fixture.Assign(p, 0), nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(p, pl); err != nil {
		t.Fatal(err)
	}
	// Each destination rank gets a layer from two source ranks at most, of each
	// component one run a piece: of attention and window in each of 4 kernel
	// blocks, compressed and states in one.
	const most = 24 * 8 * 2 * (4 + 1 + 4 + 4)
	if n := len(pl.Runs); n > most || len(pl.Pieces) > 100 {
		t.Errorf("%d runs of %d pieces, want at most %d", n, len(pl.Pieces), most)
	}
	loops := 0
	for i := range pl.Runs {
		loops += len(pl.Runs[i].Loops)
	}
	t.Logf("%d runs, %d loops, %d pieces, %d edges", len(pl.Runs), loops, len(pl.Pieces), len(pl.Edges))
}
