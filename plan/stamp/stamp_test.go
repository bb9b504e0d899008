package stamp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

func stamper(t testing.TB, p *plan.Pair, skip int) *stamp.Stamper {
	t.Helper()
	pl, err := build.Build(p, fixture.Assign(p, skip), nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	proven, err := proof.Check(p, pl)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	s, err := stamp.New(proven)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(s *stamp.Stamper, source, destination []uint32, from, to int64) *stamp.Request {
	r := &stamp.Request{ID: "r", Plan: s.Proven().Digest(), From: from, To: to}
	if source != nil {
		r.Source = [][]uint32{source}
	}
	if destination != nil {
		r.Destination = [][]uint32{destination}
	}
	return r
}

// ids deals n different block ids of a pool.
func ids(r *rand.Rand, n, pool int) []uint32 {
	out := make([]uint32, n)
	for i, id := range r.Perm(pool)[:n] {
		out[i] = uint32(id)
	}
	return out
}

// walk collects the segments of one edge.
func walk(t testing.TB, s *stamp.Stamper, req *stamp.Request, e stamp.EdgeKey) []stamp.Segment {
	t.Helper()
	if err := s.Validate(req); err != nil {
		t.Fatal(err)
	}
	var c stamp.Cursor
	if err := s.Cursor(req, e, &c); err != nil {
		t.Fatal(err)
	}
	var out []stamp.Segment
	var seg stamp.Segment
	for c.Next(&seg) {
		out = append(out, seg)
	}
	if c.Next(&seg) {
		t.Error("a spent cursor has more")
	}
	return out
}

func lines(copies []stamp.Copy, rank int) []string {
	var out []string
	for _, c := range copies {
		if rank < 0 || c.DestinationRank == rank {
			out = append(out, fmt.Sprintf("%d+%d -> %d+%d %d", c.SourceRank, c.SourceOffset, c.DestinationRank, c.DestinationOffset, c.Bytes))
		}
	}
	return out
}

// The worked numbers of one engine's own connector: 16 tokens, dim 128, fp16.
// Region 0 of one layer throughout; "rank+offset -> rank+offset bytes".
func TestWorkedNumbers(t *testing.T) {
	each := func(n int, format string, args func(r int) []any) []string {
		var out []string
		for r := range n {
			out = append(out, fmt.Sprintf(format, args(r)...))
		}
		return out
	}
	packed := func(heads int, p, d string) *plan.Pair {
		return fixture.Pair(t, 1, fixture.KV(heads, 128, "fp16"), fixture.Side(p, 16, "hnd"), fixture.Side(d, 16, "hnd"))
	}
	two := func(layout string) *plan.Pair {
		return fixture.Pair(t, 1, fixture.KV(8, 128, "fp16"), fixture.Side("{tp: 2}", 16, layout), fixture.Side("{tp: 4}", 16, layout))
	}
	for _, c := range []struct {
		name                string
		p                   *plan.Pair
		skip                int
		source, destination []uint32
		to                  int64
		rank                int
		want                []string
	}{
		{"packed, remote 1 3 to local 2 0", two("hnd"), 0, []uint32{1, 3}, []uint32{2, 0}, 32, 1, []string{"0+114688 -> 1+0 16384", "0+49152 -> 1+32768 16384"}},
		{"packed, block 3", two("hnd"), 0, []uint32{3}, []uint32{3}, 16, -1, []string{"0+98304 -> 0+49152 16384", "0+114688 -> 1+49152 16384", "1+98304 -> 2+49152 16384", "1+114688 -> 3+49152 16384"}},
		{"joint, block 2", two("joint-hnd"), 0, []uint32{2}, []uint32{2}, 16, 1, []string{"0+73728 -> 1+32768 8192", "0+90112 -> 1+40960 8192"}},
		{"P4 D2, 8 heads", packed(8, "{tp: 4}", "{tp: 2}"), 0, []uint32{0}, []uint32{0}, 16, -1, []string{"0+0 -> 0+0 16384", "1+0 -> 0+16384 16384", "2+0 -> 1+0 16384", "3+0 -> 1+16384 16384"}},
		{"P1 D8, 8 heads", packed(8, "{tp: 1}", "{tp: 8}"), 0, []uint32{0}, []uint32{0}, 16, -1, each(8, "0+%d -> %d+0 8192", func(r int) []any { return []any{r * 8192, r} })},
		{"P8 D1, 8 heads", packed(8, "{tp: 8}", "{tp: 1}"), 0, []uint32{0}, []uint32{0}, 16, -1, each(8, "%d+0 -> 0+%d 8192", func(r int) []any { return []any{r, r * 8192} })},
		{"P8 D16, 8 heads", packed(8, "{tp: 8}", "{tp: 16}"), 0, []uint32{0}, []uint32{0}, 16, -1, each(16, "%d+0 -> %d+0 8192", func(r int) []any { return []any{r / 2, r} })},
		{"P4 D16, 8 heads", packed(8, "{tp: 4}", "{tp: 16}"), 0, []uint32{0}, []uint32{0}, 16, -1, each(16, "%d+%d -> %d+0 8192", func(r int) []any { return []any{r / 4, r / 2 % 2 * 8192, r} })},
		{"P1 D4, 2 heads", packed(2, "{tp: 1}", "{tp: 4}"), 0, []uint32{0}, []uint32{0}, 16, -1, each(4, "0+%d -> %d+0 8192", func(r int) []any { return []any{r / 2 * 8192, r} })},
		{"N 16 to 64", fixture.Pair(t, 1, fixture.KV(8, 128, "fp16"), fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 4}", 64, "hnd")), 0, []uint32{4, 5, 6, 7}, []uint32{1}, 64, 1,
			each(8, "0+%d -> 1+%d 8192", func(i int) []any { return []any{(4+i%4)*32768 + 16384 + i/4*8192, 65536 + i*8192} })},
		{"MLA P8 D2", fixture.Pair(t, 1, "{name: latent, heads: 0, dim: 576, dtype: bf16}", fixture.Side("{tp: 8}", 64, "mla"), fixture.Side("{tp: 2}", 64, "mla")), 4, []uint32{0}, []uint32{0}, 64, -1, each(2, "4+0 -> %d+0 73728", func(r int) []any { return []any{r} })},
		{"MLA P2 D8", fixture.Pair(t, 1, "{name: latent, heads: 0, dim: 576, dtype: bf16}", fixture.Side("{tp: 2}", 64, "mla"), fixture.Side("{tp: 8}", 64, "mla")), 0, []uint32{1}, []uint32{2}, 64, -1, each(8, "0+73728 -> %d+147456 73728", func(r int) []any { return []any{r} })},
		// Any ratio and any phase, from here on choice-free but beyond that engine.
		{"N 64 to 16", fixture.Pair(t, 1, fixture.KV(2, 16, "bf16"), fixture.Side("{tp: 1}", 64, "hnd"), fixture.Side("{tp: 2}", 16, "hnd")), 0, []uint32{1}, []uint32{5, 3}, 32, 1, []string{"0+13312 -> 1+3072 1024", "0+12288 -> 1+5120 1024"}},
		{"N 48 to 32", fixture.Pair(t, 1, fixture.KV(1, 16, "bf16"), fixture.Side("{tp: 1}", 48, "hnd"), fixture.Side("{tp: 1}", 32, "hnd")), 0, []uint32{2, 0}, []uint32{0, 1, 4}, 96, -1,
			[]string{"0+6144 -> 0+0 3072", "0+0 -> 0+3072 1024", "0+1024 -> 0+8192 2048"}},
		{"DCP source, tokens dealt singly", fixture.Pair(t, 1, fixture.KV(1, 16, "bf16"), fixture.Side("{tp: 1, dcp: {size: 2, interleave: 1}}", 4, "hnd"), fixture.Side("{tp: 1}", 4, "hnd")), 0, []uint32{1}, []uint32{0}, 3, -1,
			[]string{"0+256 -> 0+0 64", "1+256 -> 0+64 64", "0+320 -> 0+128 64"}},
		{"DCP both", fixture.Pair(t, 1, fixture.KV(1, 16, "bf16"), fixture.Side("{tp: 1, dcp: {size: 2, interleave: 2}}", 4, "hnd"), fixture.Side("{tp: 1, dcp: {size: 2, interleave: 4}}", 8, "hnd")), 0, []uint32{1, 0}, []uint32{3}, 12, -1,
			[]string{"0+256 -> 0+1536 128", "1+256 -> 0+1664 128", "0+0 -> 0+1792 128", "1+0 -> 0+1920 128", "0+384 -> 1+1536 128", "1+384 -> 1+1664 128"}},
	} {
		s := stamper(t, c.p, c.skip)
		req := request(s, c.source, c.destination, 0, c.to)
		if err := s.Validate(req); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		copies, err := s.Expand(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(copies, c.rank); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	// K and V apart share a layer's region of 4 blocks each.
	p := fixture.Pair(t, 1, fixture.KV(8, 128, "fp16"), fixture.Side("{tp: 2}", 16, "split-hnd"), fixture.Side("{tp: 4}", 16, "split-hnd"))
	s := stamper(t, p, 0)
	copies, err := s.Expand(request(s, []uint32{2}, []uint32{3}, 0, 16))
	if err != nil {
		t.Fatal(err)
	}
	const all = 512 // blocks
	want := []string{"0+40960 -> 1+24576 8192", fmt.Sprintf("0+%d -> 1+%d 8192", all*16384+40960, all*8192+24576)}
	if got := lines(copies, 1); !slices.Equal(got, want) {
		t.Errorf("split: got %q, want %q", got, want)
	}
}

// The reference request, 4,096 tokens of 80 layers to one destination rank,
// is 40,960 segments of K and V apart, whatever the pieces in them.
func TestReferenceSegments(t *testing.T) {
	for _, c := range []struct {
		source, destination string
		segments            int
		pieces              int64 // a segment
	}{
		{"split-hnd", "split-hnd", 40960, 1}, {"joint-hnd", "joint-hnd", 40960, 1},
		{"split-nhd", "split-nhd", 40960, 16}, {"split-nhd", "split-hnd", 40960, 32},
		{"hnd", "hnd", 20480, 1}, {"nhd", "nhd", 20480, 16},
	} {
		s := stamper(t, fixture.Pair(t, 80, fixture.KV(8, 128, "bf16"), fixture.Side("{tp: 2}", 16, c.source), fixture.Side("{tp: 4}", 16, c.destination)), 0)
		r := rand.New(rand.NewPCG(1, 1))
		source, destination := ids(r, 256, 512), ids(r, 256, 512)
		for i := 2; i < 256; i++ { // nothing to join
			if source[i] == source[i-1]+1 {
				source[i-1], source[i-2] = source[i-2], source[i-1]
			}
		}
		req := request(s, source, destination, 0, 4096)
		e := stamp.EdgeKey{Source: 0, Destination: 1}
		segs := walk(t, s, req, e)
		bytes, segments, err := s.Totals(req, e)
		if err != nil || bytes != 80*2*2*4096*256 || segments != int64(c.segments) {
			t.Errorf("%s -> %s: %d bytes, %d segments (%v)", c.source, c.destination, bytes, segments, err)
		}
		n := 0
		for _, g := range segs {
			n += int(g.Blocks)
			if g.Run.Pieces() != c.pieces {
				t.Fatalf("%s -> %s: %d pieces in %+v", c.source, c.destination, g.Run.Pieces(), g)
			}
		}
		if n != c.segments || len(segs) > c.segments {
			t.Errorf("%s -> %s: %d segments of %d blocks, want %d", c.source, c.destination, len(segs), n, c.segments)
		}
	}
}

// Two ends that know only their own table walk the same stream: the same runs
// in the same order, each with its own side's offsets.
func TestBothEndsWalkOneStream(t *testing.T) {
	for _, c := range []struct {
		name string
		p    *plan.Pair
	}{
		{"hnd", fixture.Pair(t, 3, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 4}", 16, "hnd"))},
		{"nhd to tiles, 48 to 32", fixture.Pair(t, 3, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2}", 48, "nhd"), fixture.Side("{tp: 4}", 32, "[block, token/8, head, dim, token%8, component]"))},
		{"tiled blocks", fixture.Pair(t, 2, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2}", 16, "[block/4, head, block%4, token, component, dim]"), fixture.Side("{tp: 4}", 16, "hnd"))},
		{"dcp", fixture.Pair(t, 2, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2, dcp: {size: 2, interleave: 4}}", 8, "hnd"), fixture.Side("{tp: 1, dcp: {size: 3, interleave: 2}}", 8, "hnd"))},
	} {
		s := stamper(t, c.p, 0)
		r := rand.New(rand.NewPCG(3, 3))
		source, destination := ids(r, 80, 512), ids(r, 80, 512)
		for _, tokens := range [][2]int64{{0, 192}, {5, 7}, {7, 300}, {96, 301}, {31, 96}} {
			both := request(s, source, destination, tokens[0], tokens[1])
			for _, e := range s.Edges(both) {
				oneStream(t, s, both, e)
			}
		}
	}
}

// oneStream compares an edge's walk with both tables with those that know one
// of them, or none.
func oneStream(t testing.TB, s *stamp.Stamper, both *stamp.Request, e stamp.EdgeKey) {
	t.Helper()
	var want []stamp.Segment
	for _, g := range walk(t, s, both, e) {
		for k := range g.Blocks {
			want = append(want, stamp.Segment{Run: g.Run, SourceOffset: g.SourceOffset + k*g.Run.Bytes, DestinationOffset: g.DestinationOffset + k*g.Run.Bytes, Blocks: 1})
		}
	}
	source, destination, neither := *both, *both, *both
	source.Destination, source.DestinationFirst = nil, nil
	destination.Source, destination.SourceFirst = nil, nil
	neither.Source, neither.Destination = nil, nil
	src, dst, none := walk(t, s, &source, e), walk(t, s, &destination, e), walk(t, s, &neither, e)
	if len(src) != len(want) || len(dst) != len(want) || len(none) != len(want) {
		t.Fatalf("%+v: %d, %d, %d and %d segments", both, len(want), len(src), len(dst), len(none))
	}
	for i, w := range want {
		if src[i] != (stamp.Segment{Run: w.Run, SourceOffset: w.SourceOffset, DestinationOffset: -1, Blocks: 1}) ||
			dst[i] != (stamp.Segment{Run: w.Run, SourceOffset: -1, DestinationOffset: w.DestinationOffset, Blocks: 1}) ||
			none[i] != (stamp.Segment{Run: w.Run, SourceOffset: -1, DestinationOffset: -1, Blocks: 1}) {
			t.Fatalf("%+v: segment %d is %+v and %+v, want %+v", both, i, src[i], dst[i], w)
		}
	}
}

// The canonical order: head window, whole periods, tail window; in each the
// runs, in each run the periods.
func TestOrder(t *testing.T) {
	s := stamper(t, fixture.Pair(t, 2, fixture.KV(1, 8, "bf16"), fixture.Side("{tp: 1}", 4, "joint-nhd"), fixture.Side("{tp: 1}", 4, "joint-nhd")), 0)
	var got []string
	for _, g := range walk(t, s, request(s, []uint32{7, 5, 3, 1}, []uint32{0, 2, 4, 6}, 3, 13), stamp.EdgeKey{}) {
		got = append(got, fmt.Sprintf("%d.%d %d->%d %d", g.Run.Layer, g.Run.Component, g.SourceOffset, g.DestinationOffset, g.Run.Bytes))
	}
	want := []string{
		"0.0 944->48 16", "0.1 1008->112 16", "1.0 944->48 16", "1.1 1008->112 16", // token 3
		"0.0 640->256 128", "0.0 384->512 128", "1.0 640->256 128", "1.0 384->512 128", // 4 to 11, K and V of a block in one
		"0.0 128->768 16", "0.1 192->832 16", "1.0 128->768 16", "1.1 192->832 16", // 12
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Blocks that lie side by side on both sides are one copy.
func TestAdjacentBlocksAreJoined(t *testing.T) {
	s := stamper(t, fixture.Pair(t, 1, fixture.KV(2, 16, "bf16"), fixture.Side("{tp: 1}", 16, "hnd"), fixture.Side("{tp: 1}", 16, "hnd")), 0)
	for _, c := range []struct {
		source, destination []uint32
		want                []int64
	}{
		{[]uint32{4, 5, 6, 7}, []uint32{1, 2, 3, 4}, []int64{4}},
		{[]uint32{4, 5, 6, 9}, []uint32{1, 2, 7, 8}, []int64{2, 1, 1}},
		{[]uint32{4, 3, 2, 1}, []uint32{4, 3, 2, 1}, []int64{1, 1, 1, 1}},
		{[]uint32{5, 6, 5, 6}, []uint32{0, 1, 2, 3}, []int64{2, 2}},
	} {
		var got []int64
		for _, g := range walk(t, s, request(s, c.source, c.destination, 0, 64), stamp.EdgeKey{}) {
			got = append(got, g.Blocks)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v -> %v: got %v, want %v", c.source, c.destination, got, c.want)
		}
	}
	// Heads of one rank only: its blocks have gaps at the source, or at the
	// destination.
	s = stamper(t, fixture.Pair(t, 1, fixture.KV(2, 16, "bf16"), fixture.Side("{tp: 1}", 16, "hnd"), fixture.Side("{tp: 2}", 16, "hnd")), 0)
	if got := walk(t, s, request(s, []uint32{0, 1}, []uint32{0, 1}, 0, 32), stamp.EdgeKey{}); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	s = stamper(t, fixture.Pair(t, 1, fixture.KV(2, 16, "bf16"), fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 1}", 16, "hnd")), 0)
	if got := walk(t, s, request(s, []uint32{0, 1}, []uint32{0, 1}, 0, 32), stamp.EdgeKey{}); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

// Ranges of layers part the work without overlap.
func TestLayersPartTheWork(t *testing.T) {
	s := stamper(t, fixture.Pair(t, 5, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2, pp: [2, 3]}", 16, "joint-hnd"), fixture.Side("{tp: 1}", 32, "joint-nhd")), 0)
	r := rand.New(rand.NewPCG(5, 5))
	req := request(s, ids(r, 8, 512), ids(r, 4, 512), 9, 121)
	all, err := s.Expand(req)
	if err != nil {
		t.Fatal(err)
	}
	var parts []stamp.Copy
	var bytes int64
	for _, l := range []plan.Range{{From: 3, To: 5}, {From: 0, To: 1}, {From: 1, To: 3}} {
		part := *req
		part.Layers = l
		if err := s.Validate(&part); err != nil {
			t.Fatal(err)
		}
		copies, err := s.Expand(&part)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, copies...)
		for _, e := range s.Edges(&part) {
			n, _, err := s.Totals(&part, e)
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
	}
	sum := func(copies []stamp.Copy) (n int64) {
		for _, c := range copies {
			n += c.Bytes
		}
		return n
	}
	if a, b := sum(all), sum(parts); a != b || a != bytes || a != 112*5*2*4*32 {
		t.Errorf("%d bytes in all, %d in parts, %d in totals", a, b, bytes)
	}
	req.Edges = []stamp.EdgeKey{{Source: 2, Destination: 0}}
	some, err := s.Expand(req)
	if err != nil || len(some) == 0 || slices.ContainsFunc(some, func(c stamp.Copy) bool { return c.SourceRank != 2 }) {
		t.Errorf("%v, %v", some, err)
	}
	if got := walk(t, s, req, stamp.EdgeKey{Source: 3, Destination: 7}); len(got) != 0 {
		t.Errorf("an edge that is not there yields %v", got)
	}
}

func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		entries, block, size, interleave int
		want                             int64
	}{
		{0, 16, 1, 1, 0}, {3, 16, 1, 1, 48}, {3, 16, 1, 5, 48}, {3, 16, 2, 1, 96}, {3, 16, 2, 16, 96}, {1, 16, 2, 32, 16}, {3, 16, 2, 32, 80}, {5, 3, 4, 4, 51}, {1 << 28, 1 << 20, 4096, 1, 1 << 60},
	} {
		if got := stamp.Capacity(c.entries, c.block, shard.Spec{DCPSize: c.size, Interleave: c.interleave}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestValidate(t *testing.T) {
	p := fixture.Pair(t, 2, fixture.KV(4, 16, "bf16"), fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 1, dcp: {size: 2, interleave: 1}}", 16, "hnd"))
	s := stamper(t, p, 0)
	good := func() *stamp.Request { return request(s, []uint32{0, 1, 2, 1, 9}, []uint32{5, 3}, 3, 64) }
	if err := s.Validate(good()); err != nil { // surplus entries, and a source block twice
		t.Fatal(err)
	}
	long := make([]uint32, 400)
	for i := range long {
		long[i] = uint32(i)
	}
	for _, c := range []struct {
		spoil func(*stamp.Request)
		want  string
	}{
		{func(r *stamp.Request) { r.Plan = geometry.Digest{1} }, "stamp: plan (group 0) is sha256:0100"},
		{func(r *stamp.Request) { r.From = -1 }, "stamp: tokens (group 0) is [-1, 64)"},
		{func(r *stamp.Request) { r.From = 64 }, "stamp: tokens (group 0) is [64, 64)"},
		{func(r *stamp.Request) { r.To = 1<<40 + 1 }, "stamp: tokens (group 0) is [3, 1099511627777)"},
		{func(r *stamp.Request) { r.Layers = plan.Range{From: 1, To: 3} }, "stamp: layers (group 0) is [1, 3): want a range within 0 to 2"},
		{func(r *stamp.Request) { r.Layers = plan.Range{From: 1, To: 1} }, "stamp: layers (group 0) is [1, 1)"},
		{func(r *stamp.Request) { r.Edges = []stamp.EdgeKey{{Source: 0, Destination: 2}} }, "stamp: edges (group 0) is 0 to 2: no such ranks"},
		{func(r *stamp.Request) { r.Source = [][]uint32{} }, "stamp: source table (group 0) is 0: want one table a group, 1"},
		{func(r *stamp.Request) { r.To = 81; r.Destination[0] = long[:3] }, "stamp: source table (group 0) is 5 entries: they hold 80 tokens, 81 are needed"},
		{func(r *stamp.Request) { r.Destination[0] = []uint32{7} }, "stamp: destination table (group 0) is 1 entries: they hold 32 tokens, 64 are needed"},
		{func(r *stamp.Request) { r.Source[0][4] = 512 }, "stamp: source table (group 0) is 512: entry 4 names no block of a pool of 512"},
		{func(r *stamp.Request) { r.Destination[0][1] = 1 << 31 }, "stamp: destination table (group 0) is 2147483648: entry 1 names no block of a pool of 512"},
		{func(r *stamp.Request) { r.Destination[0] = []uint32{4, 9, 4} }, "stamp: destination table (group 0) is 4: entry 2 repeats it"},
		{func(r *stamp.Request) { r.Destination[0] = append(slices.Clone(long), 77) }, "stamp: destination table (group 0) is 77: entry 400 repeats it"},
	} {
		r := good()
		c.spoil(r)
		err := s.Validate(r)
		var e *stamp.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for range 3 { // what an earlier table has left behind is no repetition
		r := good()
		r.Destination[0] = long
		if err := s.Validate(r); err != nil {
			t.Error(err)
		}
	}
	if _, err := stamp.New(proof.Proven{}); err == nil {
		t.Error("an unproved plan is stamped")
	}
}

func TestExpandIsBounded(t *testing.T) {
	s := stamper(t, fixture.Pair(t, 80, fixture.KV(8, 128, "bf16"), fixture.Side("{tp: 1}", 16, "split-hnd"), fixture.Side("{tp: 1}", 16, "[block, token, dim, head]")), 0)
	r := rand.New(rand.NewPCG(1, 1))
	_, err := s.Expand(request(s, ids(r, 64, 512), ids(r, 64, 512), 0, 1024))
	var large *plan.TooLarge
	if !errors.As(err, &large) || large.What != "copies" || large.Limit != stamp.MaxCopies {
		t.Errorf("got %v", err)
	}
}

// Stamping allocates nothing once the windows of a request are known, also
// for a table of a million tokens.
func TestStampingAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      *plan.Pair
		tokens [2]int64
	}{
		{"hnd", fixture.Pair(t, 8, fixture.KV(8, 128, "bf16"), fixture.Side("{tp: 2}", 16, "hnd"), fixture.Side("{tp: 4}", 16, "hnd")), [2]int64{0, 4096}},
		{"windows", fixture.Pair(t, 8, fixture.KV(8, 128, "bf16"), fixture.Side("{tp: 2}", 48, "nhd"), fixture.Side("{tp: 4}", 32, "hnd")), [2]int64{7, 4001}},
		{"a million tokens", fixture.Pair(t, 1, fixture.KV(1, 8, "bf16"), fixture.Side("{tp: 1}", 2048, "nhd"), fixture.Side("{tp: 1}", 2048, "hnd")), [2]int64{1, 1<<20 - 1}},
	} {
		s := stamper(t, c.p, 0)
		r := rand.New(rand.NewPCG(1, 1))
		req := request(s, ids(r, 512, 512), ids(r, 512, 512), c.tokens[0], c.tokens[1])
		var cursor stamp.Cursor
		var seg stamp.Segment
		n := 0
		e := stamp.EdgeKey{}
		if got := testing.AllocsPerRun(20, func() {
			if err := s.Cursor(req, e, &cursor); err != nil {
				t.Fatal(err)
			}
			for cursor.Next(&seg) {
				n++
			}
			if _, _, err := s.Totals(req, e); err != nil {
				t.Fatal(err)
			}
		}); got != 0 || n == 0 {
			t.Errorf("%s: %v allocations, %d segments", c.name, got, n)
		}
	}
}

// Many requests that start and end anywhere, at once.
func TestConcurrentWindows(t *testing.T) {
	s := stamper(t, fixture.Pair(t, 1, fixture.KV(1, 2, "bf16"), fixture.Side("{tp: 1}", 64, "nhd"), fixture.Side("{tp: 1}", 64, "hnd")), 0)
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w%2), 9))
			for range 600 {
				from := r.Int64N(128)
				to := from + 1 + r.Int64N(192-from)
				req := request(s, []uint32{3, 1, 2}, []uint32{0, 4, 5}, from, to)
				bytes, _, err := s.Totals(req, stamp.EdgeKey{})
				if err != nil || bytes != (to-from)*8 {
					t.Errorf("[%d, %d): %d bytes, %v", from, to, bytes, err)
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkStamp70B(b *testing.B) {
	s := stamper(b, fixture.Pair(b, 80, fixture.KV(8, 128, "bf16"), fixture.Side("{tp: 2}", 16, "joint-hnd"), fixture.Side("{tp: 4}", 16, "joint-hnd")), 0)
	r := rand.New(rand.NewPCG(1, 1))
	req := request(s, ids(r, 256, 512), ids(r, 256, 512), 0, 4096)
	key := stamp.EdgeKey{Source: 0, Destination: 1}
	ring := make([]stamp.Segment, 4096)
	b.Run("cursor", func(b *testing.B) {
		var c stamp.Cursor
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Cursor(req, key, &c); err != nil {
				b.Fatal(err)
			}
			for n := 0; c.Next(&ring[n&4095]); n++ {
			}
		}
	})
	b.Run("tables of one side", func(b *testing.B) {
		own := *req
		own.Destination = nil
		var c stamp.Cursor
		for b.Loop() {
			if err := s.Cursor(&own, key, &c); err != nil {
				b.Fatal(err)
			}
			for n := 0; c.Next(&ring[n&4095]); n++ {
			}
		}
	})
	b.Run("plain loop", func(b *testing.B) {
		runs := s.Proven().Plan().Runs
		i := slices.IndexFunc(s.Proven().Plan().Edges, func(e plan.Edge) bool { return e.Source == 0 && e.Destination == 1 })
		e := s.Proven().Plan().Edges[i]
		for b.Loop() {
			n := 0
			for k := e.From; k < e.To; k++ {
				run := &runs[k]
				for j, id := range req.Source[0] {
					ring[n&4095] = stamp.Segment{Run: run, SourceOffset: run.SourceOffset + int64(id)*32768, DestinationOffset: run.DestinationOffset + int64(req.Destination[0][j])*16384, Blocks: 1}
					n++
				}
			}
		}
	})
}
