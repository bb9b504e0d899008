package matrix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan/fixture"
)

// grid is tp, pp and cp of one side.
type grid [3]int

func (g grid) end(order, layout string, block int) end {
	return end{fmt.Sprintf("tp: %d, pp: %d, dcp: {size: %d, interleave: %d}, rank_order: %s", g[0], g[1], g[2], block, order), block, 2, layout, ""}
}

// targetRanks are the worked numbers of an engine that numbers ranks with tp
// innermost (tp) or cp innermost (cp): by rank of the source, the ranks of the
// destination that it feeds, of 16 layers. Where the destination cuts context,
// blocks are dealt in turn. Of latents (third) any tp rank of a stage will do:
// by rank of the destination, with tp innermost, from whom; ranks take turns.
var targetRanks = [...]struct {
	source, destination grid
	tp, cp              string
	latent              string
}{
	{grid{4, 2, 1}, grid{2, 2, 1}, "[0] [0] [1] [1] [2] [2] [3] [3]", "[0] [0] [1] [1] [2] [2] [3] [3]", "[0] [1] [4] [5]"},
	{grid{2, 2, 1}, grid{4, 2, 1}, "[0 1] [2 3] [4 5] [6 7]", "[0 1] [2 3] [4 5] [6 7]", "[0] [1] [0] [1] [2] [3] [2] [3]"},
	{grid{2, 1, 1}, grid{4, 2, 1}, "[0 1 4 5] [2 3 6 7]", "[0 1 4 5] [2 3 6 7]", "[0] [1] [0] [1] [0] [1] [0] [1]"},
	{grid{2, 1, 1}, grid{1, 2, 1}, "[0 1] [0 1]", "[0 1] [0 1]", "[0] [1]"},
	{grid{2, 2, 1}, grid{2, 2, 2}, "[0 2] [1 3] [4 6] [5 7]", "[0 1] [2 3] [4 5] [6 7]", "[0] [1] [0] [1] [2] [3] [2] [3]"},
	{grid{2, 2, 1}, grid{4, 2, 2}, "[0 1 4 5] [2 3 6 7] [8 9 12 13] [10 11 14 15]", "[0 1 2 3] [4 5 6 7] [8 9 10 11] [12 13 14 15]", "[0] [1] [0] [1] [0] [1] [0] [1] [2] [3] [2] [3] [2] [3] [2] [3]"},
	{grid{4, 1, 1}, grid{2, 1, 2}, "[0 2] [0 2] [1 3] [1 3]", "[0 1] [0 1] [2 3] [2 3]", "[0] [1] [2] [3]"},
	{grid{2, 2, 1}, grid{2, 4, 2}, "[0 2 4 6] [1 3 5 7] [8 10 12 14] [9 11 13 15]", "[0 1 4 5] [2 3 6 7] [8 9 12 13] [10 11 14 15]", "[0] [1] [0] [1] [0] [1] [0] [1] [2] [3] [2] [3] [2] [3] [2] [3]"},
	{grid{2, 4, 1}, grid{2, 2, 2}, "[0 2] [1 3] [0 2] [1 3] [4 6] [5 7] [4 6] [5 7]", "[0 1] [2 3] [0 1] [2 3] [4 5] [6 7] [4 5] [6 7]", "[0 2] [1 3] [0 2] [1 3] [4 6] [5 7] [4 6] [5 7]"},
	{grid{4, 2, 1}, grid{2, 1, 2}, "[0 2] [0 2] [1 3] [1 3] [0 2] [0 2] [1 3] [1 3]", "[0 1] [0 1] [2 3] [2 3] [0 1] [0 1] [2 3] [2 3]", "[0 4] [1 5] [2 6] [3 7]"},
	{grid{2, 2, 1}, grid{4, 1, 2}, "[0 1 4 5] [2 3 6 7] [0 1 4 5] [2 3 6 7]", "[0 1 2 3] [4 5 6 7] [0 1 2 3] [4 5 6 7]", "[0 2] [1 3] [0 2] [1 3] [0 2] [1 3] [0 2] [1 3]"},
	{grid{2, 1, 1}, grid{1, 2, 4}, "[0 1 2 3 4 5 6 7] [0 1 2 3 4 5 6 7]", "[0 1 2 3 4 5 6 7] [0 1 2 3 4 5 6 7]", "[0] [1] [0] [1] [0] [1] [0] [1]"},
}

// Which rank feeds which, with heads for every rank of either side.
func TestTargetRanksOfBothNumberings(t *testing.T) {
	x := examine(t)
	for _, c := range targetRanks {
		for order, want := range map[string]string{"[pp, dcp, tp]": c.tp, "[pp, tp, dcp]": c.cp} {
			p := x.pair(16, fixture.KV(16, 2, "bf16"), c.source.end(order, "hnd", 4), c.destination.end(order, "nhd", 4))
			d := x.plan(p).carry(1, 8)
			if got := strings.Join(d.targets(), " "); got != want {
				t.Errorf("%v to %v, ranks by %s: %s, want %s", c.source, c.destination, order, got, want)
			}
		}
	}
}

// Latents are whole on every tp rank: of those that hold a layer's tokens one
// sends, and the others nothing.
func TestLatentsSentByEveryCopy(t *testing.T) {
	x := examine(t)
	for _, c := range targetRanks {
		const order = "[pp, dcp, tp]"
		p := x.pair(16, "{name: latent, heads: 0, dim: 4, dtype: bf16}", c.source.end(order, "mla", 4), c.destination.end(order, "mla", 4))
		if got := strings.Join(x.plan(p).carry(1, 8).sources(0), " "); got != c.latent {
			t.Errorf("%v to %v: from %s, want %s", c.source, c.destination, got, c.latent)
		}
	}
}

// With one engine for each rank of attention's data parallelism the pair is of
// one such engine, whatever the others are: four times one rank to two times one,
// four ranks to one of two times one, and one of four times one to two.
func TestDataParallelRanksCountedAsTensorParallel(t *testing.T) {
	x := examine(t)
	latent := func(from, to int) *drawn {
		at := func(tp int) end { return end{fmt.Sprintf("tp: %d", tp), 4, 4, "mla", ""} }
		return x.plan(x.pair(2, "{name: latent, heads: 0, dim: 4, dtype: bf16}", at(from), at(to))).carry(1, 10)
	}
	x.same("dp 4 to dp 2", latent(1, 1).sources(0), "[0]")
	x.same("tp 4 to dp 2", latent(4, 1).sources(0), "[0]") // one of four sends
	x.same("dp 4 to tp 2", latent(1, 2).targets(), "[0 1]")
	x.same("tp 4 to dp 2, with heads", x.plan(x.ranks(4, 4, 1)).sources(0), "[0 1 2 3]")
}

// Fewer heads than ranks: who receives from whom.
func TestSharedHeadsReceivedTwice(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		heads, from, to int
		want            []string
	}{
		{2, 4, 1, []string{"0<-0 heads 0 layers 0", "0<-2 heads 1 layers 0"}},
		{2, 4, 2, []string{"0<-0 heads 0 layers 0", "1<-2 heads 1 layers 0"}},
		{4, 8, 1, []string{"0<-0 heads 0 layers 0", "0<-2 heads 1 layers 0", "0<-4 heads 2 layers 0", "0<-6 heads 3 layers 0"}},
		{2, 1, 4, []string{"0<-0 heads 0 layers 0", "1<-0 heads 0 layers 0", "2<-0 heads 1 layers 0", "3<-0 heads 1 layers 0"}},
		{2, 4, 4, []string{"0<-0 heads 0 layers 0", "1<-1 heads 0 layers 0", "2<-2 heads 1 layers 0", "3<-3 heads 1 layers 0"}},
	} {
		x.same(fmt.Sprintf("%d heads, tp %d to %d", c.heads, c.from, c.to), x.plan(x.ranks(c.heads, c.from, c.to)).carry(0, 20).feeds(), c.want...)
	}
}

// Stages of unlike lengths: 10 layers as 3, 3, 2 and 2 to 2, 2, 3 and 3.
func TestStagesOfUnlikeLengths(t *testing.T) {
	x := examine(t)
	p := x.pair(10, fixture.KV(2, 4, "bf16"), end{"tp: 1, pp: [3, 3, 2, 2]", 16, 2, "hnd", ""}, end{"tp: 1, pp: [2, 2, 3, 3]", 16, 2, "hnd", ""})
	d := x.plan(p).carry(0, 20)
	x.same("targets", d.targets(), "[0 1]", "[1 2]", "[2 3]", "[3]")
	x.same("layers", d.feeds(),
		"0<-0 heads 0-1 layers 0-1", "1<-0 heads 0-1 layers 2", "1<-1 heads 0-1 layers 3", "2<-1 heads 0-1 layers 4-5",
		"2<-2 heads 0-1 layers 6", "3<-2 heads 0-1 layers 7", "3<-3 heads 0-1 layers 8-9")

	// 28 layers as 14 and 14 to 10, 9 and 9: the middle stage takes 4 layers of
	// the first and 5 of the second, K and V of each: 18.
	p = x.pair(28, fixture.KV(2, 4, "bf16"), end{"tp: 1, pp: [14, 14]", 16, 2, "split-nhd", ""}, end{"tp: 1, pp: [10, 9, 9]", 16, 2, "split-nhd", ""})
	d = x.plan(p).carry(0, 20)
	x.same("two to three", d.feeds(), "0<-0 heads 0-1 layers 0-9", "1<-0 heads 0-1 layers 10-13", "1<-1 heads 0-1 layers 14-18", "2<-1 heads 0-1 layers 19-27")
	n := 0
	for _, l := range d.block(0, 0, 16) {
		if strings.Contains(l, "-> 1 ") {
			n++
		}
	}
	if n != 18 {
		t.Errorf("the middle stage takes %d runs, want 18", n)
	}

	// Three stages of two ranks to two of four.
	p = x.pair(12, fixture.KV(4, 4, "bf16"), end{"tp: 2, pp: 3", 16, 2, "nhd", ""}, end{"tp: 4, pp: 2", 16, 2, "nhd", ""})
	x.same("3x2 to 2x4", x.plan(p).carry(0, 20).feeds(),
		"0<-0 heads 0 layers 0-3", "0<-2 heads 0 layers 4-5", "1<-0 heads 1 layers 0-3", "1<-2 heads 1 layers 4-5",
		"2<-1 heads 2 layers 0-3", "2<-3 heads 2 layers 4-5", "3<-1 heads 3 layers 0-3", "3<-3 heads 3 layers 4-5",
		"4<-2 heads 0 layers 6-7", "4<-4 heads 0 layers 8-11", "5<-2 heads 1 layers 6-7", "5<-4 heads 1 layers 8-11",
		"6<-3 heads 2 layers 6-7", "6<-5 heads 2 layers 8-11", "7<-3 heads 3 layers 6-7", "7<-5 heads 3 layers 8-11")
}

// Heads of four between one, two and four ranks: from which head on, how many,
// and where to. A head's block is 8192 bytes.
func TestHeadRangesOfFour(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		from, to int
		want     []string
	}{
		{1, 2, []string{"0 layer0+0 -> 0 layer0+0 16384", "0 layer0+16384 -> 1 layer0+0 16384"}},
		{2, 1, []string{"0 layer0+0 -> 0 layer0+0 16384", "1 layer0+0 -> 0 layer0+16384 16384"}},
		{1, 4, each(4, "0 layer0+%d -> %d layer0+0 8192", func(r int) []any { return []any{r * 8192, r} })},
		{4, 1, each(4, "%d layer0+0 -> 0 layer0+%d 8192", func(r int) []any { return []any{r, r * 8192} })},
	} {
		x.same(fmt.Sprintf("tp %d to %d", c.from, c.to), x.plan(x.ranks(4, c.from, c.to)).block(0, 0, 16), c.want...)
	}
}

// One pool for all layers, from one rank to two stages of two: layer 2 head 3
// token 5 of element 1236 (K) and 1492 (V) of a block goes to rank 3, to 84 and
// 212. One-byte elements, 4 wide; a block is 2048 and 512 of them.
func TestElementOfAPoolOfAllLayers(t *testing.T) {
	x := examine(t)
	const kv = "{name: k, heads: 4, dim: 4, dtype: int8}, {name: v, heads: 4, dim: 4, dtype: int8}"
	d := x.plan(x.pair(4, kv, end{"tp: 1", 16, 4, "trtllm", ""}, end{"tp: 2, pp: 2", 16, 4, "trtllm", ""})).carry(3, 40)
	// Heads 2 and 3 of layer 2's K are 128 bytes from 1024+128 on, of V from
	// 1280+128 on; the rank's first layer starts with them.
	lines := d.block(2, 1, 16)
	x.has("block 2 to 1", lines, 4*4,
		"0 pool+5248 -> 3 pool+512 128", // 4096+1152: token 5 of head 3 is 84 further, at 4096+1236
		"0 pool+5504 -> 3 pool+640 128") // 4096+1408, 512+128: at 4096+1492 and 512+212
}

// All grids of 1, 2, 4 and 8 heads and tp and 1, 2 and 4 stages are planned and
// proved: 576. A test that should do a tenth does every seventh.
func TestEveryGridOfHeadsRanksAndStages(t *testing.T) {
	x := examine(t)
	n := 0
	for _, heads := range []int{1, 2, 4, 8} {
		for _, from := range []int{1, 2, 4, 8} {
			for _, to := range []int{1, 2, 4, 8} {
				for _, source := range []int{1, 2, 4} {
					for _, destination := range []int{1, 2, 4} {
						if n++; sparse() && n%7 != 0 {
							continue
						}
						at := func(tp, pp int) end { return end{fmt.Sprintf("tp: %d, pp: %d", tp, pp), 2, 1, "trtllm", ""} }
						d := x.plan(x.pair(4, fixture.KV(heads, 1, "bf16"), at(from, source), at(to, destination)))
						if got, want := d.proven.Elements(), int64(4*2*2*to*max(1, heads/to)); got != want {
							t.Errorf("%d heads, %dx%d to %dx%d: %d elements are written, want %d", heads, from, source, to, destination, got, want)
						}
					}
				}
			}
		}
	}
	if n != 576 {
		t.Errorf("%d grids", n)
	}
}
