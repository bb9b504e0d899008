package matrix_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// ranks is a pair of one block size in which each (head, 16 tokens) of K and V
// is 8192 bytes of one run: 128 fp16.
func (x *examiner) ranks(heads, from, to int) *plan.Pair {
	x.Helper()
	at := func(tp int) end { return end{fmt.Sprintf("tp: %d", tp), 16, 4, "hnd", ""} }
	return x.pair(1, fixture.KV(heads, 128, "fp16"), at(from), at(to))
}

// Ranks that share a head have blocks as long as those of ranks with one head
// each: the length of a block does not go with 1/TP. Right is, for each rank,
// which rank of the source holds its head; every run is a whole block.
func TestBlockLengthAssumedToFollowTheRanks(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		heads, from, to int
		source          []int
	}{
		{8, 8, 16, []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}},
		{4, 4, 8, []int{0, 0, 1, 1, 2, 2, 3, 3}},
		// Source ranks 0 and 1 hold head 0, 2 and 3 head 1: they take turns.
		{2, 4, 8, []int{0, 1, 0, 1, 2, 3, 2, 3}},
	} {
		x.Run(fmt.Sprintf("%d heads, tp %d to %d", c.heads, c.from, c.to), func(t *testing.T) {
			x := x.of(t)
			p := x.ranks(c.heads, c.from, c.to)
			d := x.plan(p).carry(3, 60)
			x.same("blocks", d.block(2, 1, 16), each(c.to, "%d layer0+16384 -> %d layer0+8192 8192", func(r int) []any { return []any{c.source[r], r} })...)
			// Half of it, as the ratio of ranks would have it: the second half of
			// the tokens never comes.
			half := d.altered(func(r *plan.Run) { r.Bytes /= 2 })
			x.fault(p, half, proof.Gap, "destination rank 0: k layer 0 head 0 token 8 dim 0 is not written")
		})
	}
}

// More ranks than heads are no error: rank r of T holds head r*H/T.
func TestMoreRanksThanHeads(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		heads, from, to int
		want            func(r int) []any // source rank, offset
	}{
		{8, 1, 16, func(r int) []any { return []any{0, r / 2 * 8192, r} }},
		{8, 2, 16, func(r int) []any { return []any{r / 8, r / 2 % 4 * 8192, r} }},
		{8, 4, 16, func(r int) []any { return []any{r / 4, r / 2 % 2 * 8192, r} }},
		{2, 1, 8, func(r int) []any { return []any{0, r / 4 * 8192, r} }},
		{2, 2, 8, func(r int) []any { return []any{r / 4, 0, r} }},
		{1, 1, 4, func(r int) []any { return []any{0, 0, r} }},
	} {
		d := x.plan(x.ranks(c.heads, c.from, c.to)).carry(0, 33)
		x.same(fmt.Sprintf("%d heads, tp %d to %d", c.heads, c.from, c.to), d.block(0, 0, 16), each(c.to, "%d layer0+%d -> %d layer0+0 8192", c.want)...)
	}
}

// A source with copies of its heads and fewer ranks on the other side is
// refused elsewhere though the map is right. Of copies the ones that have
// served least serve next.
func TestReplicasAtTheSourceRefused(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		heads, from, to int
		want            string
	}{
		{8, 16, 8, "[[0] [2] [4] [6] [8] [10] [12] [14]]"},
		{4, 8, 1, "[[0 2 4 6]]"},
		{4, 8, 2, "[[0 2] [4 6]]"},
		{4, 8, 4, "[[0] [2] [4] [6]]"},
		{4, 16, 8, "[[0] [1] [4] [5] [8] [9] [12] [13]]"},
		{2, 4, 1, "[[0 2]]"},
		{2, 4, 2, "[[0] [2]]"},
		{2, 8, 1, "[[0 4]]"},
		{2, 8, 2, "[[0] [4]]"},
		{2, 8, 4, "[[0] [1] [4] [5]]"},
		{2, 16, 8, "[[0] [1] [2] [3] [8] [9] [10] [11]]"},
	} {
		d := x.plan(x.ranks(c.heads, c.from, c.to)).carry(5, 50)
		if got := fmt.Sprint(d.sources(0)); got != c.want {
			t.Errorf("%d heads, tp %d to %d: by destination rank from %s, want %s", c.heads, c.from, c.to, got, c.want)
		}
		// Every source rank holds one head: its block goes whole to that head's place.
		n := max(c.heads/c.to, 1)
		lines := d.block(0, 0, 16)
		if len(lines) != n*c.to {
			t.Errorf("%d heads, tp %d to %d: %d copies, want %d heads on each of %d ranks", c.heads, c.from, c.to, len(lines), n, c.to)
		}
	}
}

// Four heads on one rank whose pages are padded to 40960 bytes, to eight ranks.
// The distance of heads is that of the rows, 8192, and not a quarter of the
// page, 10240: from which two of eight ranks would be right, those of head 0.
func TestHeadStrideTakenFromThePaddedPage(t *testing.T) {
	x := examine(t)
	pair := func(strides string) *plan.Pair {
		return x.pair(1, fixture.KV(4, 128, "fp16"), end{"tp: 1", 16, 4, "{order: [block, head, token, component, dim], strides: {" + strides + "}}", ""}, end{"tp: 8", 16, 4, "hnd", ""})
	}
	truth := pair("block: 40960")
	d := x.plan(truth).carry(0, 64)
	x.same("block 3 to 1", d.block(3, 1, 16), each(8, "0 layer0+%d -> %d layer0+8192 8192", func(r int) []any { return []any{3*40960 + r/2*8192, r} })...)
	d = x.taken(truth, pair("block: 40960, head: 10240"), stamp.Request{Source: tables(0), Destination: tables(0), To: 16}, "3/4")
	x.fault(truth, d.proven.Plan(), proof.Swap, "destination rank 2: k layer 0 head 1 token 0 dim 0 gets k layer 0 head 1 token 4 dim 0")

	// With 4-bit rows and their scales in a block of K, K's scales, V, V's scales:
	// 4096, 512, 4096 and 512 bytes, of a head 1024, 128, 1024 and 128. A quarter
	// of the page, 2304, is no distance of heads at all.
	const fp4 = "{name: k, heads: 4, dim: 128, dtype: fp4}, {name: k_scale, heads: 4, dim: 8, dtype: fp8_e4m3, scales: k}, {name: v, heads: 4, dim: 128, dtype: fp4}, {name: v_scale, heads: 4, dim: 8, dtype: fp8_e4m3, scales: v}"
	d = x.plan(x.pair(1, fp4, end{"tp: 1", 16, 4, "vllm/nvfp4-linear-hnd", ""}, end{"tp: 8", 16, 4, "vllm/nvfp4-linear-hnd", ""})).carry(0, 64)
	var want []string
	for r := range 8 {
		h := r / 2
		for _, c := range [][3]int{{h * 1024, 0, 1024}, {4096 + h*128, 1024, 128}, {4608 + h*1024, 1152, 1024}, {8704 + h*128, 2176, 128}} {
			want = append(want, fmt.Sprintf("0 layer0+%d -> %d layer0+%d %d", 9216+c[0], r, c[1], c[2]))
		}
	}
	x.same("fp4, block 1 to 0", d.block(1, 0, 16), want...)
}

// Four heads from eight ranks to one: of 262144 bytes of a block each of ranks
// 0, 2, 4 and 6 brings 65536. One source rank alone brings a quarter, and three
// quarters are never sent.
func TestThreeQuartersNeverSent(t *testing.T) {
	x := examine(t)
	// 128 tokens of 512 bytes are 65536.
	p := x.pair(1, fixture.KV(4, 128, "fp16"), end{"tp: 8", 128, 2, "hnd", ""}, end{"tp: 1", 128, 2, "hnd", ""})
	d := x.plan(p).carry(0, 129)
	x.same("block 1 to 1", d.block(1, 1, 128),
		"0 layer0+65536 -> 0 layer0+262144 65536", "2 layer0+65536 -> 0 layer0+327680 65536",
		"4 layer0+65536 -> 0 layer0+393216 65536", "6 layer0+65536 -> 0 layer0+458752 65536")
	one := x.answer(p, plan.Assignment{Components: 3, Layers: plan.Range{To: 1}, Heads: plan.Range{To: 4}})
	x.fault(p, one, proof.Gap, "destination rank 0: k layer 0 head 1 token 0 dim 0 is not written")
	if n := one.Runs[0].Total(); len(one.Runs) != 1 || 262144-n != 196608 {
		t.Errorf("one rank brings %d bytes in %d runs", n, len(one.Runs))
	}
}

// The number of ranks of the peer is not known and taken to be 1: every rank
// sends to rank 0, and seven eighths of the cache are not written.
func TestRankCountTakenToBeOne(t *testing.T) {
	x := examine(t)
	p := x.ranks(8, 8, 8)
	d := x.plan(p).carry(0, 64)
	x.same("block 3 to 2", d.block(3, 2, 16), each(8, "%d layer0+24576 -> %d layer0+16384 8192", func(r int) []any { return []any{r, r} })...)
	var as []plan.Assignment
	for r := range 8 {
		as = append(as, plan.Assignment{Components: 3, Source: r, Layers: plan.Range{To: 1}, Heads: plan.Range{To: 8}})
	}
	pl := x.answer(p, as...)
	x.fault(p, pl, proof.Gap, "destination rank 1: k layer 0 head 1 token 0 dim 0 is not written")
	var written int64
	for i := range pl.Runs {
		written += pl.Runs[i].Total()
	}
	if written*8 != 8*8192 {
		t.Errorf("%d of %d bytes are written, want an eighth", written, 8*8192)
	}
	// A side that does not say how many ranks it has is none, and one that says
	// one and has the memory of eight contradicts itself.
	s := p.Destination
	s.Shard.TP = 0
	x.refused(s.Validate("destination"), "tp is 0: want 1 to")
	s.Shard.TP = 1
	x.refused(s.Validate("destination"), "destination.ranks is 8: the shard has 1")
}

// More ranks at the source than at the destination: each brings its heads.
func TestSourceWiderThanTheDestination(t *testing.T) {
	x := examine(t)
	// 2 heads of 16*256 bytes of fp8.
	p := x.pair(1, fixture.KV(8, 128, "fp8_e4m3"), end{"tp: 4", 16, 4, "hnd", ""}, end{"tp: 1", 16, 4, "hnd", ""})
	x.same("block 1 to 2", x.plan(p).carry(1, 47).block(1, 2, 16), each(4, "%d layer0+8192 -> 0 layer0+%d 8192", func(r int) []any { return []any{r, 65536 + r*8192} })...)
}

// Two heads on four ranks are not four heads: a total that is reckoned as heads
// a rank times ranks counts copies. Rank 1 would then get head 1 for its head 0.
func TestTotalHeadsReckonedFromCopies(t *testing.T) {
	x := examine(t)
	truth := x.ranks(2, 1, 4)
	d := x.plan(truth).carry(0, 40)
	x.same("block 0 to 0", d.block(0, 0, 16), each(4, "0 layer0+%d -> %d layer0+0 8192", func(r int) []any { return []any{r / 2 * 8192, r} })...)
	// Reckoned so, rank 1 holds head 1 of 4.
	x.fault(truth, x.plan(x.ranks(4, 1, 4)).proven.Plan(), proof.Swap, "destination rank 1: k layer 0 head 0 token 0 dim 0 gets k layer 0 head 1 token 0 dim 0")
	// The same count also differs between the sides, and is named.
	p := plan.Pair{Source: truth.Source, Destination: x.ranks(4, 1, 4).Destination}
	x.refused(p.Validate(), "model.components.k.heads differs: source 2, destination 4")
}

// slice is, for a source and a destination rank, which of the source rank's
// heads go where: first, count and place. It is the rule of public connectors
// for all numbers of heads in total.
func slice(heads, from, to, source, destination int) (first, count, place int) {
	sh, dh := max(1, heads/from), max(1, heads/to)
	if from > to {
		return 0, sh, source / max(1, from/heads) * sh % dh
	}
	return destination / max(1, to/heads) * dh % sh, dh, 0
}

// spread is the same rule where it forgot that destination ranks may share a
// head.
func spread(heads, from, to, source, destination int) (first, count, place int) {
	sh, dh := max(1, heads/from), max(1, heads/to)
	if from > to {
		return 0, sh, source / max(1, from/heads) * sh % dh
	}
	return destination * dh % sh, dh, 0
}

// All ratios of 1, 2, 4 and 8 heads and ranks: every copy is the rule's, and the
// rule that forgets copies is wrong for exactly four of the 64.
func TestHeadSlicesForgetCopies(t *testing.T) {
	x := examine(t)
	var differ []string
	for _, heads := range []int{1, 2, 4, 8} {
		for _, from := range []int{1, 2, 4, 8} {
			for _, to := range []int{1, 2, 4, 8} {
				at := func(tp int) end { return end{fmt.Sprintf("tp: %d", tp), 2, 2, "hnd", ""} }
				// A head's block is 2 tokens of 2 rows of 4 bytes: 16.
				d := x.plan(x.pair(1, fixture.KV(heads, 2, "fp16"), at(from), at(to))).carry(0, 3)
				name := fmt.Sprintf("(%d,%d,%d)", heads, from, to)
				got := map[int]int{} // by destination rank
				for _, c := range d.copies(stamp.Request{Source: tables(0), Destination: tables(0), To: 2}) {
					first, count, place := slice(heads, from, to, c.SourceRank, c.DestinationRank)
					if c.SourceOffset != int64(first)*16 || c.DestinationOffset != int64(place)*16 || c.Bytes != int64(count)*16 {
						t.Errorf("%s: %v, want heads %d to %d of the source rank at place %d", name, d.lines([]stamp.Copy{c}), first, first+count-1, place)
					}
					got[c.DestinationRank] += count
					if f, n, p := spread(heads, from, to, c.SourceRank, c.DestinationRank); (f != first || n != count || p != place) && !slices.Contains(differ, name) {
						differ = append(differ, name)
					}
				}
				for r := range to {
					if got[r] != max(1, heads/to) {
						t.Errorf("%s: rank %d gets %d heads, want %d", name, r, got[r], max(1, heads/to))
					}
				}
			}
		}
	}
	x.same("wrong without copies", differ, "(2,1,4)", "(2,1,8)", "(4,1,8)", "(4,2,8)")
	// What it would do from 1 to 4 with 2 heads: heads 0 1 0 1 for 0 0 1 1.
	truth := x.ranks(2, 1, 4)
	wrongly := x.pair(1, fixture.KV(2, 128, "fp16"), end{"tp: 1", 16, 4, "hnd", ""}, end{"tp: 4, heads: [[0], [1], [0], [1]]", 16, 4, "hnd", ""})
	x.taken(truth, wrongly, stamp.Request{Source: tables(0), Destination: tables(0), To: 16}, "1/2")
	x.fault(truth, x.plan(wrongly).proven.Plan(), proof.Swap, "destination rank 1: k layer 0 head 0 token 0 dim 0 gets k layer 0 head 1 token 0 dim 0")
}

// Rank i takes from rank i, whatever the two tps are.
func TestRankFedByItsOwnNumber(t *testing.T) {
	x := examine(t)
	own := func(n int) (out []plan.Assignment) {
		for r := range n {
			out = append(out, plan.Assignment{Components: 3, Source: r, Destination: r, Layers: plan.Range{To: 1}, Heads: plan.Range{To: 8}})
		}
		return out
	}
	up, down := x.ranks(8, 2, 4), x.ranks(8, 4, 2)
	x.refused(up.ValidateAssignments(own(4)), "assignment 2: source rank is 2: the source has 2 ranks")
	x.fault(up, x.answer(up, own(2)...), proof.Gap, "destination rank 1: k layer 0 head 2 token 0 dim 0 is not written")
	x.fault(down, x.answer(down, own(2)...), proof.Gap, "destination rank 0: k layer 0 head 2 token 0 dim 0 is not written")
	x.same("tp 2 to 4", x.plan(up).carry(0, 64).feeds(), "0<-0 heads 0-1 layers 0", "1<-0 heads 2-3 layers 0", "2<-1 heads 4-5 layers 0", "3<-1 heads 6-7 layers 0")
	x.same("tp 4 to 2", x.plan(down).carry(0, 64).feeds(), "0<-0 heads 0-1 layers 0", "0<-1 heads 2-3 layers 0", "1<-2 heads 4-5 layers 0", "1<-3 heads 6-7 layers 0")
	// Ranks of no whole ratio: rank 1 takes a head from each.
	x.same("tp 2 to 3", x.plan(x.ranks(6, 2, 3)).carry(0, 64).feeds(), "0<-0 heads 0-1 layers 0", "1<-0 heads 2 layers 0", "1<-1 heads 3 layers 0", "2<-1 heads 4-5 layers 0")
}

// Where heads are shared the counts of a rank differ: two heads on one rank, one
// on each of four. A copy of whole blocks, which a match of heads would allow,
// writes two heads where one is.
func TestWholeBlocksBetweenUnequalHeads(t *testing.T) {
	x := examine(t)
	p := x.ranks(2, 1, 4)
	d := x.plan(p)
	whole := d.altered(func(r *plan.Run) { r.Bytes *= 2; r.SourceOffset = 0 })
	x.fault(p, whole, proof.Bounds, "destination rank 0: it writes byte 8192 of region \"layer0\", which is of another block")
	x.same("block 1 to 3", d.block(1, 3, 16),
		"0 layer0+16384 -> 0 layer0+24576 8192", "0 layer0+16384 -> 1 layer0+24576 8192",
		"0 layer0+24576 -> 2 layer0+24576 8192", "0 layer0+24576 -> 3 layer0+24576 8192")
}

// Three stages of one rank to two of two ranks: layers and heads are cut at
// once.
func TestStagesAndRanksAtOnce(t *testing.T) {
	x := examine(t)
	p := x.pair(12, fixture.KV(8, 16, "bf16"), end{"tp: 1, pp: 3", 16, 2, "hnd", ""}, end{"tp: 2, pp: 2", 16, 2, "nhd", ""})
	x.same("1x3 to 2x2", x.plan(p).carry(3, 30).feeds(),
		"0<-0 heads 0-3 layers 0-3", "0<-1 heads 0-3 layers 4-5",
		"1<-0 heads 4-7 layers 0-3", "1<-1 heads 4-7 layers 4-5",
		"2<-1 heads 0-3 layers 6-7", "2<-2 heads 0-3 layers 8-11",
		"3<-1 heads 4-7 layers 6-7", "3<-2 heads 4-7 layers 8-11")
}

// The numbering of ranks changed between two versions of one engine: tp
// innermost, then cp innermost. A plan for one is not one for the other, and
// the order is said, never assumed.
func TestRanksNumberedInTheOtherOrder(t *testing.T) {
	x := examine(t)
	pair := func(order string) *plan.Pair {
		return x.pair(1, "{name: latent, heads: 0, dim: 16, dtype: bf16}, {name: rope, heads: 0, dim: 8, dtype: bf16}",
			end{"tp: 2", 4, 8, "mla", ""}, end{"tp: 2, dcp: {size: 2, interleave: 4}, rank_order: " + order, 4, 8, "mla", ""})
	}
	tp, cp := pair("[pp, dcp, tp]"), pair("[pp, tp, dcp]")
	// Blocks of 4 are dealt in turn: rank 1 is the second tp rank of the even
	// blocks, or the first of the odd ones.
	even := func(p *plan.Pair, rank int) bool { _, ok := p.Destination.Part(0, rank).Local(0); return ok }
	for rank, want := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		if got := [2]bool{even(tp, rank), even(cp, rank)}; got != want {
			t.Errorf("rank %d holds token 0: %v with tp innermost and with cp innermost, want %v", rank, got, want)
		}
	}
	x.plan(tp).carry(2, 30)
	d := x.plan(cp).carry(2, 30)
	x.fault(tp, d.proven.Plan(), proof.Malformed, "destination rank 1: piece 1 is not true: its tokens do not lie at one distance on the destination rank")
	if tp.Digest() == cp.Digest() {
		t.Error("the two have one digest")
	}
	// An order that names an axis twice is none.
	if _, err := shard.Order([]shard.Grid{shard.TP, shard.TP}); err == nil {
		t.Error("an order of ranks names tp twice")
	}
}

// Whether context is cut in turn or into equal runs decides which rank holds a
// block: 10 blocks over four ranks.
func TestContextCutIntoRunsOrInTurn(t *testing.T) {
	x := examine(t)
	p := x.pair(1, "{name: latent, heads: 0, dim: 16, dtype: bf16}", end{"tp: 1", 16, 10, "mla", ""}, end{"tp: 1, dcp: {size: 4, interleave: 16}", 16, 3, "mla", ""})
	d := x.plan(p).carry(0, 160)
	var got []string
	for r := range 4 {
		var blocks []int64
		for b := range int64(10) {
			if _, ok := p.Destination.Part(0, r).Local(b * 16); ok {
				blocks = append(blocks, b)
			}
		}
		got = append(got, fmt.Sprint(blocks))
	}
	x.same("blocks by rank", got, "[0 4 8]", "[1 5 9]", "[2 6]", "[3 7]") // in runs it would be 0-2, 3-5, 6-7, 8-9
	// Block 9 is the third of rank 1; a block is 512 bytes.
	all := d.lines(d.copies(stamp.Request{Source: tables(9, 8, 7, 6, 5, 4, 3, 2, 1, 0), Destination: tables(2, 0, 1), To: 160}))
	x.has("copies", all, 10, "0 layer0+4608 -> 0 layer0+1024 512", "0 layer0+0 -> 1 layer0+512 512", "0 layer0+1024 -> 3 layer0+0 512")
	_, err := sharded("{tp: 1, dcp: {size: 4, split: contiguous}}")
	x.refused(err, "contiguous context parallelism cuts each request by its own length")
}
