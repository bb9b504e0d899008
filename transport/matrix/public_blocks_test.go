package matrix_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// A block of 128 tokens that the kernel keeps as two of 64: block tables hold
// the scheduler's ids, offsets are of the kernel's blocks.
func TestKernelIdsTakenForSchedulerIds(t *testing.T) {
	x := examine(t)
	const kernel = ", kernel_block: 64"
	// A row of K and V is 64 bytes, a head's kernel block 4096. With two heads a
	// kernel block is 8192 and a block 16384.
	kv := fixture.KV(2, 16, "bf16")
	d := x.plan(x.pair(1, kv, end{"tp: 1", 128, 4, "hnd", kernel}, end{"tp: 2", 128, 4, "hnd", kernel})).carry(3, 300)
	x.same("block 3 to 1", d.block(3, 1, 128), // kernel blocks 6 and 7 to 2 and 3
		"0 layer0+49152 -> 0 layer0+8192 4096", "0 layer0+57344 -> 0 layer0+12288 4096",
		"0 layer0+53248 -> 1 layer0+8192 4096", "0 layer0+61440 -> 1 layer0+12288 4096")
	// The kernel's ids are no ids of a table.
	_, err := d.stamped(stamp.Request{Source: tables(6, 7), Destination: tables(2, 3), To: 256})
	x.refused(err, "source table (group 0) is 6: entry 0 names no block of a pool of 4")

	// One part of the engine counts in blocks and another in kernel blocks: of a
	// block [2 kernel blocks, 2 heads, 64 tokens] taken for [2 heads, 128 tokens]
	// two of four quarters are right.
	pair := func(more string) *plan.Pair {
		return x.pair(1, kv, end{"tp: 1", 128, 4, "hnd", more}, end{"tp: 1", 128, 4, "hnd", ""})
	}
	truth := pair(kernel)
	d = x.taken(truth, pair(""), stamp.Request{Source: tables(0), Destination: tables(0), To: 128}, "1/2")
	x.fault(truth, d.proven.Plan(), proof.Swap, "k layer 0 head 0 token 64 dim 0 gets k layer 0 head 1 token 0 dim 0")
	x.same("to a block without", x.plan(truth).carry(0, 130).block(0, 0, 128),
		"0 layer0+0 -> 0 layer0+0 4096", "0 layer0+8192 -> 0 layer0+4096 4096", "0 layer0+4096 -> 0 layer0+8192 4096", "0 layer0+12288 -> 0 layer0+12288 4096")
}

// A hybrid's blocks are of unlike sizes on both sides: 384 tokens (6 kernel
// blocks of 64) at tp 4, 640 (10) at tp 2. The source's ids are expanded with
// the source's ratio.
func TestBlocksExpandedWithTheOtherSidesRatio(t *testing.T) {
	x := examine(t)
	// 2 heads of 64: a row of K and V is 256 bytes, a kernel block of the one
	// head that each rank holds 16384, a block 98304 and 163840.
	p := x.pair(1, fixture.KV(2, 64, "bf16"), end{"tp: 4", 384, 8, "hnd", ", kernel_block: 64"}, end{"tp: 2", 640, 4, "hnd", ", kernel_block: 64"})
	d := x.plan(p)
	got := d.lines(d.copies(stamp.Request{Source: tables(5, 7), Destination: tables(2), To: 640}))
	// Kernel blocks 30 to 35 and 42 to 45 go to 20 to 29: of head 0 from rank 0,
	// of head 1 from rank 2.
	x.same("640 tokens", got,
		"0 layer0+491520 -> 0 layer0+327680 98304", "0 layer0+688128 -> 0 layer0+425984 65536",
		"2 layer0+491520 -> 1 layer0+327680 98304", "2 layer0+688128 -> 1 layer0+425984 65536")
	// With the destination's ratio they would be 50 to 59, of which no pool of 48
	// kernel blocks has any.
	wrongly := d.copies(stamp.Request{Source: tables(5, 7), Destination: tables(2), To: 640})
	for i := range wrongly {
		wrongly[i].SourceOffset += (5*10 - 5*6) * 16384
	}
	if err := judge(p, stamp.Request{Source: tables(5, 7), Destination: tables(2), To: 640}, wrongly); err == nil {
		t.Error("copies from the wrong kernel blocks pass")
	}
	if end := int64(48 * 16384); p.Source.Ranks[0][0].Regions[0].Bytes != end || wrongly[0].SourceOffset < end {
		t.Errorf("the wrong copy starts at %d of %d bytes", wrongly[0].SourceOffset, end)
	}

	// Blocks 5 and 6 of 34 kernel blocks are kernel blocks 170 to 237.
	d = x.plan(x.pair(1, fixture.KV(1, 2, "bf16"), end{"tp: 1", 544, 8, "hnd", ", kernel_block: 16"}, end{"tp: 1", 1088, 2, "hnd", ", kernel_block: 16"}))
	x.same("34 of 16", d.lines(d.copies(stamp.Request{Source: tables(5, 6), Destination: tables(0), To: 1088})), // 8 bytes a row, 128 a kernel block
		fmt.Sprintf("0 layer0+%d -> 0 layer0+0 %d", 170*128, 68*128))
}

// K and V apart: V starts behind the blocks of its own engine. With the number
// of the other one it is read from the middle of K.
func TestBlockCountOfTheOtherEngine(t *testing.T) {
	x := examine(t)
	pair := func(source, destination int) *plan.Pair {
		return x.pair(1, fixture.KV(8, 128, "bf16"), end{"tp: 2", 16, source, "split-hnd", ""}, end{"tp: 4", 16, destination, "split-hnd", ""})
	}
	truth := pair(12, 5)
	d := x.plan(truth).carry(0, 70)
	// A block of K is 4*16*256 = 16384 and 8192, all of it 196608 and 40960.
	// Block 11 starts at 180224, rank 1's heads 8192 behind.
	got := d.block(11, 4, 16)
	x.same("rank 1 from block 11 to 4", got[2:4], "0 layer0+188416 -> 1 layer0+32768 8192", "0 layer0+385024 -> 1 layer0+73728 8192")
	x.fault(truth, x.plan(pair(5, 5)).proven.Plan(), proof.Bounds, `v layer 0 head 0 token 0 dim 0: it reads byte 81920 of region "layer0", which is of another block`) // 5*16384
	x.fault(truth, x.plan(pair(12, 12)).proven.Plan(), proof.Bounds, `it writes byte 98304 of region "layer0", which is of no element`)                                 // 12*8192
	_, err := d.stamped(stamp.Request{Source: tables(4), Destination: tables(11), To: 16})
	x.refused(err, "destination table (group 0) is 11: entry 0 names no block of a pool of 5")
}

// The ranks of one engine found unlike room: 111680 and 111488 blocks. What one
// rank says of itself does not hold for the other.
func TestRanksWithUnequalPools(t *testing.T) {
	x := examine(t)
	const rooms, usable = 111680, 111488
	p := x.pair(1, fixture.KV(2, 64, "bf16"), end{"tp: 2", 16, usable, "split-hnd", ""}, end{"tp: 1", 16, 16, "split-hnd", ""})
	// A block of one head of K is 16*128 = 2048 bytes. Both ranks give the blocks
	// that both have, each with the distance from K to V that it has.
	tensors := func(blocks int64) []layout.Tensor {
		return []layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 2 * blocks * 2048}, Shape: []int64{2, usable, 1, 16, 64}, Strides: []int64{blocks * 2048, 2048, 2048, 128, 2},
			Dims: []string{"component", "block", "head", "token", "dim"}, DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{0}, Claim: "HND"}}
	}
	alike := *p
	alike.Source.Ranks = slices.Clone(p.Source.Ranks)
	x.registered(&p.Source, func(r int) []layout.Tensor { return tensors([]int64{rooms, usable}[r]) })
	d := x.plan(p)
	// The last block, 111487, is at 228325376 of K. V starts at 228720640 on rank
	// 0 and at 228327424 on rank 1. Block 3 of the destination is at 12288, its V
	// at 65536 more.
	x.same("block 111487 to 3", d.block(usable-1, 3, 16),
		"0 layer0+228325376 -> 0 layer0+12288 2048", "1 layer0+228325376 -> 0 layer0+14336 2048",
		"0 layer0+457046016 -> 0 layer0+77824 2048", "1 layer0+456652800 -> 0 layer0+79872 2048")
	// With rank 0's numbers for both.
	x.registered(&alike.Source, func(int) []layout.Tensor { return tensors(rooms) })
	x.fault(p, x.plan(&alike).proven.Plan(), proof.Bounds, `v layer 0 head 1 token 0 dim 0: it reads byte 228720640 of region "layer0", which is of another block`)
	// Unlike numbers of blocks in one engine are refused by rank and both values.
	e := p.Source.Ranks[1][0].Extent
	e.Blocks = rooms
	more := tensors(rooms)
	more[0].Shape[1] = rooms
	l, err := layout.FromTensors(more, e)
	if err != nil {
		t.Fatal(err)
	}
	p.Source.Ranks[0] = []*layout.Layout{l}
	p.Source.Ranks[0][0].Extent.Blocks = rooms
	x.refused(p.Validate(), "source.ranks[0].layout.blocks is 111680: the rank's shard says 111488")
}

// Decode blocks four times as long. Token-major, block b of the destination is
// blocks 4b to 4b+3 of the source's size: ten blocks go to 4 to 13 of blocks 1,
// 2 and 3, and what is left of block 3 is not touched.
func TestDecodeBlocksFourTimesAsLong(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(2, 64, "fp16"), end{"tp: 1", 16, 10, "nhd", ""}, end{"tp: 1", 64, 4, "nhd", ""})
	d := x.plan(p).carry(0, 160)
	ids := []uint32{9, 7, 5, 3, 1, 8, 6, 4, 2, 0}
	x.same("ten blocks", d.lines(d.copies(stamp.Request{Source: tables(ids...), Destination: tables(1, 2, 3), To: 160})), // 8192 bytes a source block
		each(10, "0 layer0+%d -> 0 layer0+%d 8192", func(i int) []any { return []any{int(ids[i]) * 8192, (4 + i) * 8192} })...)
	// A source block that is the longer one is no error either.
	back := x.plan(x.pair(1, fixture.KV(2, 64, "fp16"), end{"tp: 1", 64, 4, "nhd", ""}, end{"tp: 1", 16, 10, "nhd", ""})).carry(0, 160)
	x.same("back", back.lines(back.copies(stamp.Request{Source: tables(1, 2, 3), Destination: tables(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), To: 160})), "0 layer0+32768 -> 0 layer0+0 81920")
}

// Short blocks put one behind the other in a long one. Head-major this is wrong:
// part r of head h lies at r*H+h and belongs at h*4+r, which is the same where
// r(H-1) = 3h. Token-major it is right, and a permutation afterwards that counts
// on head-major parts makes as much wrong.
func TestShortBlocksJoinedInTheWrongOrder(t *testing.T) {
	x := examine(t)
	for _, c := range []struct {
		heads int
		part  string
	}{{2, "3/4"}, {4, "3/4"}, {8, "15/16"}} {
		pair := func(l string) *plan.Pair {
			return x.pair(1, fixture.KV(c.heads, 8, "fp16"), end{"tp: 1", 16, 4, l, ""}, end{"tp: 1", 64, 2, l, ""})
		}
		r := stamp.Request{Source: tables(3, 1, 2, 0), Destination: tables(1), To: 64}
		hnd, nhd := pair("hnd"), pair("nhd")
		d := x.taken(hnd, nhd, r, c.part)
		x.fault(hnd, d.proven.Plan(), proof.Swap, "k layer 0 head 0 token 16 dim 0 gets k layer 0 head 1 token 0 dim 0")
		d = x.taken(nhd, hnd, r, c.part)
		x.fault(nhd, d.proven.Plan(), proof.Swap, fmt.Sprintf("k layer 0 head 0 token %d dim 0 gets k layer 0 head 0 token 16 dim 0", 16/c.heads)) // 16 rows in
		// Right: part i of head h, 16*32 = 512 bytes, to place h*4+i.
		d = x.plan(hnd).carry(0, 64)
		var want []string
		for h := range c.heads {
			for i, id := range []int{3, 1, 2, 0} {
				want = append(want, fmt.Sprintf("0 layer0+%d -> 0 layer0+%d 512", (id*c.heads+h)*512, (c.heads*4+h*4+i)*512))
			}
		}
		x.same(fmt.Sprint(c.heads, " heads"), d.lines(d.copies(r)), want...)
		x.plan(nhd).carry(0, 64)
	}
}

// Prefill blocks of 128 tokens and decode blocks of 64: one entry of the source
// is two of the destination, and the reverse. A head-major row of K and V of 16
// bf16 is 64 bytes; a head's 64 tokens 4096.
func TestDecodeBlocksHalfAndTwiceAsLong(t *testing.T) {
	x := examine(t)
	at := func(block int) end { return end{"tp: 1", block, 4, "hnd", ""} }
	d := x.plan(x.pair(1, fixture.KV(2, 16, "bf16"), at(128), at(64))).carry(0, 200)
	x.same("128 to 64", d.lines(d.copies(stamp.Request{Source: tables(3), Destination: tables(2, 0), To: 128})),
		"0 layer0+53248 -> 0 layer0+0 4096", "0 layer0+61440 -> 0 layer0+4096 4096", // tokens 64 to 127 of heads 0 and 1
		"0 layer0+49152 -> 0 layer0+16384 4096", "0 layer0+57344 -> 0 layer0+20480 4096")
	d = x.plan(x.pair(1, fixture.KV(2, 16, "bf16"), at(64), at(128))).carry(0, 200)
	x.same("64 to 128", d.lines(d.copies(stamp.Request{Source: tables(2, 0), Destination: tables(3), To: 128})),
		"0 layer0+16384 -> 0 layer0+49152 4096", "0 layer0+0 -> 0 layer0+53248 4096",
		"0 layer0+20480 -> 0 layer0+57344 4096", "0 layer0+4096 -> 0 layer0+61440 4096")
	// A request that ends at token 100 does not touch tokens 100 to 127.
	x.same("100 tokens", d.lines(d.copies(stamp.Request{Source: tables(2, 0), Destination: tables(3), To: 100})),
		"0 layer0+16384 -> 0 layer0+49152 4096", "0 layer0+0 -> 0 layer0+53248 2304",
		"0 layer0+20480 -> 0 layer0+57344 4096", "0 layer0+4096 -> 0 layer0+61440 2304")
}

// Keys that a processor's kernel keeps transposed, [dim][token] in each block and
// head: a longer block has longer rows. Blocks of 32 put one behind the other
// into one of 64 are wrong but for a little: the values of head 2's tokens 32 to
// 63, which by chance lie there (32*64), and 32 elements of head 0's first row.
func TestTransposedKeysInLongerBlocks(t *testing.T) {
	x := examine(t)
	kv := fixture.KV(3, 64, "fp32")
	pair := func(more string) *plan.Pair {
		return x.pair(1, kv, end{"tp: 1", 32, 6, "cpu-vec", ""}, end{"tp: 1", 64, 3, "cpu-vec", more})
	}
	truth := pair("")
	r := stamp.Request{Source: tables(4, 1), Destination: tables(0), To: 64}
	d := x.plan(pair(", kernel_block: 32"))
	if bad, all := wrong(truth, r, d.copies(r)); all != 64*3*64*2 || bad != all-32*64-32 {
		t.Errorf("%d of %d elements are wrong, want %d of 24576", bad, all, 24576-2080)
	}
	x.fault(truth, d.proven.Plan(), proof.Swap, "k layer 0 head 0 token 0 dim 1 gets k layer 0 head 0 token 0 dim 2")
	// Right: head 2 of block 1 lies at 49152+32768 of the source and at 65536 of
	// the destination; its K has rows of 32*4 and 64*4 bytes, and its V is 8192
	// and 16384 further on.
	d = x.plan(truth).carry(0, 101)
	x.has("two blocks", d.lines(d.copies(r)), 3*2*64+3*2, // V's 64 tokens of each head are two runs
		"0 pool+82560 -> 0 pool+66944 128", // dim 5: 81920+640 to 65536+1280+128
		"0 pool+90112 -> 0 pool+90112 8192")
	// Five tokens are 20 bytes of each row of K.
	x.has("five tokens", d.block(0, 2, 5), 3*64+3, "0 pool+16512 -> 0 pool+229632 20", "0 pool+24576 -> 0 pool+245760 1280") // head 1 of block 2, at 196608+32768: dim 1, and V
	// One rank with blocks of 32 to three with blocks of 96.
	d = x.plan(x.pair(1, kv, end{"tp: 1", 32, 6, "cpu-vec", ""}, end{"tp: 3", 96, 2, "cpu-vec", ""})).carry(1, 150)
	x.has("one rank to three", d.lines(d.copies(stamp.Request{Source: tables(2, 0, 5), Destination: tables(1), To: 96})), 3*(64*3+3),
		"0 pool+278528 -> 2 pool+49408 128", // head 2 token 64 dim 0: 5*49152+2*16384 to 49152+256
		"0 pool+24576 -> 1 pool+81920 8192") // V of head 1 tokens 32 to 63: 16384+8192 to 49152+24576+8192
}

// A window of 2048 tokens in blocks of 16 reaches over 129 blocks wherever the
// request ends inside one: the table holds the last 129.
func TestWindowKeepsOneBlockTooFew(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: %d}, groups: {sliding: {block: 16, blocks: 700, layout: hnd}}}"
	p := x.file(fmt.Sprintf("model: {name: m, layers: 1, groups: [{name: sliding, window: 2048, components: [%s]}]}\nsource: "+side+"\ndestination: "+side+"\n", fixture.KV(2, 2, "bf16"), 1, 2))
	const end = 10009 // of 626 blocks; the window reaches back to token 7962, which lies in block 497
	last := func(n uint32) [][]uint32 {
		var ids []uint32
		for i := range n {
			ids = append(ids, 699-i)
		}
		return tables(ids...)
	}
	reach := func(n uint32) ([][]uint32, []int64, []stamp.Span, error) {
		held, first, err := stamp.Held(&p.Source, last(n), end)
		if err != nil {
			t.Fatal(err)
		}
		spans, err := stamp.Spans(p, 0, end, end, first, first)
		return held, first, spans, err
	}
	held, first, spans, err := reach(129)
	if err != nil || first[0] != 497 || spans[0] != (stamp.Span{From: 7952, To: end}) {
		t.Errorf("129 blocks: from entry %d on, %v (%v); want 497 and tokens 7952 to %d", first[0], spans, err, end)
	}
	_, first, _, err = reach(128)
	if first[0] != 498 {
		t.Errorf("128 blocks: from entry %d on, want 498", first[0])
	}
	x.refused(err, `source table (group 0) is from entry 498 on: tokens 7962 to 7967 of group "sliding" are gone, and its window of 2048 tokens still reaches them`)
	// The first of the 129 is of tokens 7952 to 7967: 16 rows of 8 bytes of each head.
	d := x.plan(p)
	all := d.copies(stamp.Request{Source: held, Destination: held, SourceFirst: []int64{497}, DestinationFirst: []int64{497}, To: end, Spans: spans})
	lines := d.lines(all)
	x.has("copies", lines, 2*129, "0 layer0+178944 -> 0 layer0+89472 128", "0 layer0+179072 -> 1 layer0+89472 128", // block 699
		"0 layer0+146176 -> 0 layer0+73088 72") // the last, block 571, of 9 tokens
}

// What the destination has cached already is not asked for: the rest is the end
// of the source's list, not its start.
func TestPrefixHitTakesTheFirstBlocks(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 1", 16, 16, "hnd", ""}, end{"tp: 1", 16, 16, "hnd", ""})
	d := x.plan(p).carry(48, 80)
	// Three of five blocks are there: 13 and 14 of 10 to 14 are due, from 4 and 5
	// of 1 to 5. A block is 2*16*64 = 2048 bytes.
	r := stamp.Request{Source: tables(1, 2, 3, 4, 5), Destination: tables(10, 11, 12, 13, 14), From: 48, To: 80}
	copies := d.copies(r)
	x.same("the rest", d.lines(copies), "0 layer0+8192 -> 0 layer0+26624 4096")
	copies[0].SourceOffset = 2048 // blocks 1 and 2
	err := judge(p, r, copies)
	x.refused(err, "token 48 dim 0: from bit 16384 of region 0 of source rank 0, want 65536 of 0")
	// Blocks 1 and 2 are for tokens 0 to 31, and 13 and 14 for 48 on.
	r.Source, r.Destination, r.From, r.To = tables(4, 5), tables(13, 14), 0, 32
	x.same("by tables of the rest alone", d.lines(d.copies(r)), "0 layer0+8192 -> 0 layer0+26624 4096")
}

// The destination has one block more than the source, for tokens to come: lists
// are matched from the front. From the back every block would be one off.
func TestOneBlockMoreThanTheSource(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 2", 16, 8, "hnd", ""}, end{"tp: 2", 16, 16, "hnd", ""})
	d := x.plan(p).carry(0, 48)
	r := stamp.Request{Source: tables(1, 2, 3), Destination: tables(7, 8, 9, 10), To: 48} // 1024 bytes a block
	x.same("by the front", d.lines(d.copies(r)), "0 layer0+1024 -> 0 layer0+7168 3072", "1 layer0+1024 -> 1 layer0+7168 3072")
	copies := d.copies(r)
	for i := range copies {
		copies[i].DestinationOffset += 1024
	}
	x.refused(judge(p, r, copies), "rank 0 group 0 component k layer 0 head 0 token 0 dim 0: not written")
}

// Ids that no pool has, a list that is too short, an id twice: refused by entry
// before a byte moves, on either side.
func TestBlockIdsOutOfRange(t *testing.T) {
	x := examine(t)
	d := x.plan(x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 1", 128, 4, "hnd", ""}, end{"tp: 1", 64, 8, "hnd", ""})).carry(0, 300)
	for _, c := range []struct {
		source, destination [][]uint32
		words               string
	}{
		{tables(0, 4), tables(0, 1, 2, 3), "source table (group 0) is 4: entry 1 names no block of a pool of 4"},
		{tables(0, 1), tables(0, 1, 2, 8), "destination table (group 0) is 8: entry 3 names no block of a pool of 8"},
		{tables(0, 1), tables(0, 1, 2, 1<<32-1), "destination table (group 0) is 4294967295: entry 3 names no block of a pool of 8"},
		{tables(0), tables(0, 1, 2, 3), "source table (group 0) is 1 entries: they hold 128 tokens, 256 are needed"},
		{tables(0, 1), tables(0, 1, 2), "destination table (group 0) is 3 entries: they hold 192 tokens, 256 are needed"},
		{tables(0, 1), tables(0, 1, 2, 1), "destination table (group 0) is 1: entry 3 repeats it"},
	} {
		_, err := d.stamped(stamp.Request{Source: c.source, Destination: c.destination, To: 256})
		x.refused(err, c.words)
	}
}

// Two groups of unlike block sizes, 64 and 4, that nothing divides: each has its
// blocks, on either side.
func TestNoCommonBlockSize(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: 1}, groups: {full: {block: %d, kernel_block: %d, blocks: 8, layout: [REST]}, sliding: {block: %d, blocks: 16, layout: [REST]}}}"
	text := fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: full, layers: [0], components: [{name: kv, heads: 0, dim: 16, dtype: bf16}]}, {name: sliding, layers: [1], window: 24, components: [{name: kv, heads: 0, dim: 16, dtype: bf16}]}]}\nsource: "+side+"\ndestination: "+side+"\n", 64, 32, 4, 48, 16, 6)
	p := x.file(strings.ReplaceAll(text, "[REST]", "{order: [block, token, dim]}"))
	d := x.plan(p).carry(0, 30)
	// Rows of 32 bytes: 30 tokens of one block of 64 to one of 48; 8 entries of 4
	// to 5 of 6, in turns of 4, 2, 2 and 4 tokens.
	full := d.lines(d.copies(stamp.Request{Source: [][]uint32{{3}, {7, 6, 5, 4, 3, 2, 1, 0}}, Destination: [][]uint32{{2}, {0, 2, 4, 6, 8}}, To: 30}))
	x.same("30 tokens", full,
		"full: 0 layer0.kv+6144 -> 0 layer0.kv+3072 960",
		"sliding: 0 layer1.kv+896 -> 0 layer1.kv+0 128", "sliding: 0 layer1.kv+768 -> 0 layer1.kv+128 64", // tokens 0-3, 4-5
		"sliding: 0 layer1.kv+832 -> 0 layer1.kv+384 64", "sliding: 0 layer1.kv+640 -> 0 layer1.kv+448 128", // 6-7, 8-11
		"sliding: 0 layer1.kv+512 -> 0 layer1.kv+768 128", "sliding: 0 layer1.kv+384 -> 0 layer1.kv+896 64", // 12-15, 16-17
		"sliding: 0 layer1.kv+448 -> 0 layer1.kv+1152 64", "sliding: 0 layer1.kv+256 -> 0 layer1.kv+1216 128", // 18-19, 20-23
		"sliding: 0 layer1.kv+128 -> 0 layer1.kv+1536 128", "sliding: 0 layer1.kv+0 -> 0 layer1.kv+1664 64") // 24-27, 28-29
}

// Tokens dealt over two ranks on one side only: that side has half as many
// blocks. Its first block is not of the source's first, nor of its last ones.
func TestContextParallelHalvesTheTable(t *testing.T) {
	x := examine(t)
	const latent = "{name: latent, heads: 0, dim: 16, dtype: bf16}" // rows of 32 bytes, blocks of 512
	one, two := end{"tp: 1", 16, 8, "mla", ""}, end{"tp: 1, dcp: {size: 2, interleave: 16}", 16, 4, "mla", ""}
	d := x.plan(x.pair(1, latent, one, two)).carry(0, 128)
	eight, four := tables(0, 1, 2, 3, 4, 5, 6, 7), tables(3, 2, 1, 0)
	// Rank 0 holds blocks 0, 2, 4, 6 of the request and rank 1 the others.
	x.same("to two, block by block", d.lines(d.copies(stamp.Request{Source: eight, Destination: four, To: 128})),
		"0 layer0+3072 -> 0 layer0+0 512", "0 layer0+2048 -> 0 layer0+512 512", "0 layer0+1024 -> 0 layer0+1024 512", "0 layer0+0 -> 0 layer0+1536 512",
		"0 layer0+3584 -> 1 layer0+0 512", "0 layer0+2560 -> 1 layer0+512 512", "0 layer0+1536 -> 1 layer0+1024 512", "0 layer0+512 -> 1 layer0+1536 512")
	d = x.plan(x.pair(1, latent, two, one)).carry(0, 128)
	x.same("from two, block by block", d.lines(d.copies(stamp.Request{Source: four, Destination: eight, To: 128})),
		"0 layer0+1536 -> 0 layer0+0 512", "1 layer0+1536 -> 0 layer0+512 512", "0 layer0+1024 -> 0 layer0+1024 512", "1 layer0+1024 -> 0 layer0+1536 512",
		"0 layer0+512 -> 0 layer0+2048 512", "1 layer0+512 -> 0 layer0+2560 512", "0 layer0+0 -> 0 layer0+3072 512", "1 layer0+0 -> 0 layer0+3584 512")
	// Token by token: rank 1 takes the odd ones, 16 of each two blocks.
	singly := end{"tp: 1, dcp: {size: 2, interleave: 1}", 16, 4, "mla", ""}
	truth := x.pair(1, latent, one, singly)
	d = x.plan(truth).carry(0, 128)
	x.has("singly", d.lines(d.copies(stamp.Request{Source: eight, Destination: four, To: 128})), 128,
		"0 layer0+0 -> 0 layer0+1536 32", "0 layer0+32 -> 1 layer0+1536 32", "0 layer0+992 -> 1 layer0+2016 32", "0 layer0+1056 -> 1 layer0+1024 32")
	// A side that is not told to be dealt so is taken to hold all of it twice: the
	// first block would be the first.
	x.fault(truth, x.plan(x.pair(1, latent, one, end{"tp: 2", 16, 4, "mla", ""})).proven.Plan(), proof.Malformed, "the destination does not repeat after 16 tokens and 1 blocks of 16 in group 0")
	// Four blocks are too few for 128 tokens on one rank, and enough on two.
	if n := stamp.Capacity(4, 16, truth.Destination.Shard); n != 128 {
		t.Errorf("four blocks hold %d tokens", n)
	}
	_, err := x.plan(x.pair(1, latent, one, one)).stamped(stamp.Request{Source: eight, Destination: four, To: 128})
	x.refused(err, "destination table (group 0) is 4 entries: they hold 64 tokens, 128 are needed")
}
