package matrix_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// A page of a gated delta net is the convolution's channels of Q, K and V and a
// recurrent state, and padded. Each of the three is cut between ranks; a cut
// through all of them as one run, or by the length of the padded page, mixes
// them.
func TestConvolutionCutAsOneRun(t *testing.T) {
	x := examine(t)
	// 16 heads of Q and K and 48 of V, of 128 channels each, 3 wide: 6 bytes a
	// channel. A rank of two has 1024, 1024 and 3072 channels, 30720 bytes, and
	// behind them 24 heads of 8 bytes; one of four half of it. Pages are padded to
	// 32768 and 16384. Two stages at the source, one at the destination.
	const three = "{name: q, channels: 2048, unit: 128, dim: 3, dtype: bf16}, {name: k, channels: 2048, unit: 128, dim: 3, dtype: bf16}, {name: v, channels: 6144, unit: 128, dim: 3, dtype: bf16}"
	const one = "{name: conv, channels: 10240, unit: 128, dim: 3, dtype: bf16}"
	pair := func(conv string, from, to string, pages ...int) *plan.Pair {
		const side = "{engine: e, shard: {%s}, groups: {gdn: {slots: 4, layout: {order: [slot, component, channel, dim], strides: {slot: %d}}}}}"
		return x.file(fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: gdn, state: true, components: [%s, {name: ssm, channels: 48, dim: 2, dtype: fp32}]}]}\nsource: "+side+"\ndestination: "+side+"\n",
			conv, from, pages[0], to, pages[1]))
	}
	truth := pair(three, "tp: 2, pp: 2", "tp: 4", 32768, 16384)
	d := x.plan(truth).carry(0, 9)
	x.same("who feeds whom", d.feeds(), // heads are the channels of Q
		"0<-0 heads 0-511 layers 0", "0<-2 heads 0-511 layers 1", "1<-0 heads 512-1023 layers 0", "1<-2 heads 512-1023 layers 1",
		"2<-1 heads 1024-1535 layers 0", "2<-3 heads 1024-1535 layers 1", "3<-1 heads 1536-2047 layers 0", "3<-3 heads 1536-2047 layers 1")
	request := stamp.Request{Source: tables(1), Destination: tables(2), To: 1}
	lines := d.lines(d.copies(request))
	// Rank 1, the second half of rank 0's channels, slot 1 at 32768 to slot 2 at
	// 32768: Q from 3072 on, K from 6144+3072, V from 12288+9216, and 12 states
	// from 30720+96.
	x.same("layer 0 of rank 1", slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, "-> 1 layer0+") }),
		"0 layer0+35840 -> 1 layer0+32768 3072", "0 layer0+41984 -> 1 layer0+35840 3072", "0 layer0+54272 -> 1 layer0+38912 9216", "0 layer0+63584 -> 1 layer0+48128 96")
	x.has("layer 1 comes from the second stage", lines, 2*4*4, "2 layer1+35840 -> 1 layer1+32768 3072", "3 layer1+54272 -> 3 layer1+38912 9216")

	// As one run rank 0 gets the first half of Q, K and V together: its K is the
	// rest of Q.
	x.fault(truth, x.plan(pair(one, "tp: 2, pp: 2", "tp: 4", 32768, 16384)).proven.Plan(), proof.Swap, "destination rank 0: gdn k layer 0 channel 0 dim 0 gets gdn q layer 0 channel 512 dim 0")
	// By the padded length the second half starts 1024 bytes late: 170 channels and two thirds of one.
	late := d.altered(func(r *plan.Run) {
		if d.proven.Plan().Edges[r.Edge].Destination == 1 && r.Component == 0 {
			r.SourceOffset += 16384 - 15360
		}
	})
	x.fault(truth, late, proof.Swap, "destination rank 1: gdn q layer 0 channel 512 dim 0 gets gdn q layer 0 channel 682 dim 2")

	// Four ranks to two: the parts of two ranks side by side in each of the three.
	d = x.plan(pair(three, "tp: 4", "tp: 2", 16384, 32768)).carry(0, 9)
	back := d.lines(d.copies(request))
	x.same("back, rank 0", back[:8],
		"0 layer0+16384 -> 0 layer0+65536 3072", "1 layer0+16384 -> 0 layer0+68608 3072",
		"0 layer0+19456 -> 0 layer0+71680 3072", "1 layer0+19456 -> 0 layer0+74752 3072",
		"0 layer0+22528 -> 0 layer0+77824 9216", "1 layer0+22528 -> 0 layer0+87040 9216",
		"0 layer0+31744 -> 0 layer0+96256 96", "1 layer0+31744 -> 0 layer0+96352 96")
}

// States and heads of one request have source ranks of their own: two heads on
// eight ranks are four copies each, a state's eight heads are one each.
func TestStatesTakenFromTheRanksOfHeads(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: %d}, groups: {attention: {block: 16, blocks: 4, layout: hnd}, mamba: {slots: 4, layout: vllm/mamba2-ds}}}"
	p := x.file(fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: attention, layers: [1], components: [%s]}, {name: mamba, layers: [0], state: true, components: [{name: x, channels: 64, unit: 8, dim: 3, dtype: bf16}, {name: B, channels: 16, unit: 8, dim: 3, dtype: bf16}, {name: C, channels: 16, unit: 8, dim: 3, dtype: bf16}, {name: ssm, channels: 8, dim: 16, dtype: fp32}]}]}\nsource: "+side+"\ndestination: "+side+"\n",
		fixture.KV(2, 16, "bf16"), 8, 1))
	d := x.plan(p).carry(0, 40)
	x.same("attention", d.sources(0), "[0 4]")
	x.same("states", d.sources(1), "[0 1 2 3 4 5 6 7]")
	lines := d.lines(d.copies(stamp.Request{Source: [][]uint32{{3}, {2}}, Destination: [][]uint32{{1}, {0}}, To: 16}))
	// B and C are of two groups on eight ranks: ranks 0 to 3 hold the first, 4 to
	// 7 the second. x is 8 channels a rank, 48 bytes; a slot is 48+48+48+64.
	x.has("copies", lines, 2+8+2+2+8,
		"attention: 0 layer1+3072 -> 0 layer1+2048 1024", "attention: 4 layer1+3072 -> 0 layer1+3072 1024",
		"mamba: 5 layer0+416 -> 0 layer0+240 48",  // x of rank 5
		"mamba: 7 layer0+560 -> 0 layer0+1024 64") // ssm of rank 7, behind 384+96+96: 7*64 further
	// B of each group comes from one of the four that hold it: of those that have
	// served no heads, the first.
	var b []string
	for _, l := range lines {
		if strings.Contains(l, "-> 0 layer0+384 ") || strings.Contains(l, "-> 0 layer0+432 ") {
			b = append(b, l)
		}
	}
	x.same("B", b, "mamba: 1 layer0+464 -> 0 layer0+384 48", "mamba: 5 layer0+464 -> 0 layer0+432 48")
}

// Draft layers that one engine runs and the other does not stand in the middle
// of its list of pointers (all of K, then all of V) and in front of its groups:
// by position every later one is another layer's.
func TestDraftLayersShiftTheList(t *testing.T) {
	x := examine(t)
	main, draft := fmt.Sprintf("{name: main, layers: \"0-3\", components: [%s]}", fixture.KV(4, 16, "bf16")), fmt.Sprintf("{name: draft, layers: \"4\", optional: true, components: [%s]}", fixture.KV(4, 16, "bf16"))
	const with, without = "{engine: e, shard: {tp: %d}, groups: {draft: {block: 16, blocks: 4, layout: sglang}, main: {block: 16, blocks: 4, layout: sglang}}}", "{engine: e, shard: {tp: %d}, groups: {main: {block: 16, blocks: 4, layout: sglang}}}"
	for _, c := range []struct {
		name, source, destination string
		absent, skipped, own      string
	}{
		{"at the destination", without, with, "[draft]", "[]", "0 1"},
		{"at the source", with, without, "[]", "[draft]", "1 0"},
	} {
		x.Run(c.name, func(t *testing.T) {
			x := x.of(t)
			p, common := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 5, groups: [%s, %s]}\nsource: "+c.source+"\ndestination: "+c.destination+"\n", draft, main, 2, 4))
			if got := fmt.Sprintf("%v %v", common.Absent, common.Skipped); got != c.absent+" "+c.skipped {
				t.Errorf("absent and skipped %s, want %s %s", got, c.absent, c.skipped)
			}
			if got := fmt.Sprint(p.Source.OwnGroup(0), p.Destination.OwnGroup(0)); got != c.own || len(p.Source.Groups) != 1 {
				t.Errorf("the common group is %s of its engines, of %d; want %s", got, len(p.Source.Groups), c.own)
			}
			d := x.plan(p)
			// A block is 16 tokens of 2 heads of 32 bytes, and of one. Every layer's K
			// and V come from the layer's own: rank 0 takes the first half of a token.
			lines := d.block(1, 2, 16)
			var want []string
			for l := range 4 {
				want = append(want, fmt.Sprintf("0 layer%d.k+1024 -> 0 layer%d.k+1024 32", l, l), fmt.Sprintf("1 layer%d.v+2016 -> 3 layer%d.v+1504 32", l, l))
			}
			x.has("rows", lines, 4*2*4*16, want...)
			// By position, one further on.
			shifted := d.altered(func(r *plan.Run) { r.SourceRegion = (r.SourceRegion + 1) % 8 })
			x.fault(p, shifted, proof.Swap, "destination rank 0: main k layer 0 head 0 token 0 dim 0 gets ")
		})
	}
}

// Of a hybrid only every fourth layer is attention: the second stage's share of
// the destination's list of regions does not start at its first layer's number.
func TestStagesSliceTheListByPosition(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {%s}, groups: {attention: {block: 16, blocks: 4, layout: hnd}}}"
	pair := func(stages string) *plan.Pair {
		return x.file(fmt.Sprintf("model: {name: m, layers: 16, groups: [{name: attention, layers: \"3,7,11,15\", components: [%s]}]}\nsource: "+side+"\ndestination: "+side+"\n", fixture.KV(2, 16, "bf16"), stages, "tp: 1"))
	}
	p := pair("tp: 1, pp: 2")
	d := x.plan(p).carry(0, 33)
	x.same("two stages", d.block(1, 0, 16),
		"0 layer3+2048 -> 0 layer3+0 2048", "0 layer7+2048 -> 0 layer7+0 2048", "1 layer11+2048 -> 0 layer11+0 2048", "1 layer15+2048 -> 0 layer15+0 2048")
	for i := range d.proven.Plan().Runs { // layer 8 is the stage's first, and the list has four regions
		r := d.proven.Plan().Runs[i]
		if want := r.Layer / 4; r.DestinationRegion != want || r.SourceRegion != want%2 {
			t.Errorf("layer %d: from region %d to %d, want %d to %d", r.Layer, r.SourceRegion, r.DestinationRegion, want%2, want)
		}
	}
	first := d.altered(func(r *plan.Run) {
		if r.Layer > 7 {
			r.DestinationRegion -= 2
		}
	})
	x.fault(p, first, proof.Bounds, "destination rank 0: it is of layer 11 and writes layer 3")
	x.same("uneven stages", x.plan(pair("tp: 1, pp: [12, 4]")).carry(0, 33).feeds(), "0<-0 heads 0-1 layers 3,7,11", "0<-1 heads 0-1 layers 15")
}

// Sliding windows from one rank to four, blocks of 128 to 64: not refused, and
// what the window does not reach is not waited for.
func TestSlidingWindowsBetweenUnlikeRanks(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: %d}, groups: {full: {block: %d, blocks: 16, layout: hnd}, sliding: {block: %d, blocks: 16, layout: hnd}}}"
	kv := fixture.KV(8, 4, "bf16")
	p := x.file(fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: full, layers: [1], components: [%s]}, {name: sliding, layers: [0], window: 128, components: [%s]}]}\nsource: "+side+"\ndestination: "+side+"\n", kv, kv, 1, 128, 128, 4, 64, 64))
	d := x.plan(p).carry(0, 700)
	// 700 tokens: entries 0 to 5 of 128 and 0 to 10 of 64. The window reaches back
	// to token 573, so the last two of the source, from 512 on, and the last
	// three of the destination, from 512 on, are enough.
	source, from, err := stamp.Held(&p.Source, [][]uint32{{0, 1, 2, 3, 4, 5}, {9, 4}}, 700)
	if err != nil {
		t.Fatal(err)
	}
	destination, to, err := stamp.Held(&p.Destination, [][]uint32{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {7, 2, 5}}, 700)
	if err != nil {
		t.Fatal(err)
	}
	spans, err := stamp.Spans(p, 0, 700, 700, from, to)
	if err != nil || fmt.Sprint(spans, from, to) != "[{0 700} {512 700}] [0 4] [0 8]" {
		t.Fatalf("moves %v from entries %v and %v on: %v", spans, from, to, err)
	}
	lines := d.lines(d.copies(stamp.Request{Source: source, Destination: destination, SourceFirst: from, DestinationFirst: to, Spans: spans, To: 700}))
	// A head's row of K and V is 16 bytes: a source block is 8 heads of 2048, a
	// destination block 2 heads of 1024. Head 7 is the second of rank 3.
	x.has("sliding", slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "sliding") }), 3*8,
		"sliding: 0 layer0+161792 -> 3 layer0+15360 1024", // tokens 512 to 575: 9*16384+7*2048 to 7*2048+1024
		"sliding: 0 layer0+162816 -> 3 layer0+5120 1024",  // 576 to 639, block 2
		"sliding: 0 layer0+79872 -> 3 layer0+11264 960")   // 640 to 699, 60 rows, block 4 to 5
	// One entry less at the destination, and the window reaches what is gone.
	_, to, err = stamp.Held(&p.Destination, [][]uint32{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5}}, 700)
	if err == nil {
		_, err = stamp.Spans(p, 0, 700, 700, from, to)
	}
	x.refused(err, `destination table (group 1) is from entry 9 on: tokens 573 to 575 of group "sliding" are gone`)
}

// Latents that every rank holds whole and heads that are cut, in one model: what
// holds for the one region is not done to the other.
func TestLatentsCutLikeHeads(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: %d}, groups: {full: {block: 16, blocks: 4, layout: hnd}, mla: {block: 16, blocks: 4, layout: mla}}}"
	p := x.file(fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: full, layers: [0], components: [%s]}, {name: mla, layers: [1], components: [{name: latent, heads: 0, dim: 32, dtype: bf16}, {name: rope, heads: 0, dim: 4, dtype: bf16}]}]}\nsource: "+side+"\ndestination: "+side+"\n", fixture.KV(4, 16, "bf16"), 2, 4))
	d := x.plan(p).carry(3, 50)
	lines := d.lines(d.copies(stamp.Request{Source: [][]uint32{{1}, {2}}, Destination: [][]uint32{{0}, {3}}, To: 16}))
	// A head is 1024 bytes a block, a block of latents 16*72 = 1152: whole to each
	// rank, from the two source ranks in turn.
	x.same("both", lines,
		"full: 0 layer0+2048 -> 0 layer0+0 1024", "mla: 0 layer1+2304 -> 0 layer1+3456 1152",
		"full: 0 layer0+3072 -> 1 layer0+0 1024", "mla: 1 layer1+2304 -> 1 layer1+3456 1152",
		"full: 1 layer0+2048 -> 2 layer0+0 1024", "mla: 0 layer1+2304 -> 2 layer1+3456 1152",
		"full: 1 layer0+3072 -> 3 layer0+0 1024", "mla: 1 layer1+2304 -> 3 layer1+3456 1152")
	// Half of the latent, as of heads.
	half := d.altered(func(r *plan.Run) {
		if d.proven.Plan().Edges[r.Edge].Group == 1 {
			r.Bytes /= 2
		}
	})
	x.fault(p, half, proof.Gap, "destination rank 0: mla latent layer 1 head 0 token 8 dim 0 is not written")
}

// A state is that of one number of tokens, and no suffix of it exists: it moves
// where a transfer goes up to the request's end and not before.
func TestStateOfFewerTokens(t *testing.T) {
	x := examine(t)
	const side = "{engine: e, shard: {tp: 1}, groups: {attention: {block: 16, blocks: 8, layout: hnd}, mamba: {slots: 4, layout: vllm/mamba1-ds}}}"
	p := x.file(fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: attention, layers: [1], components: [%s]}, {name: mamba, layers: [0], state: true, components: [{name: x, channels: 16, dim: 3, dtype: bf16}, {name: ssm, channels: 16, dim: 4, dtype: fp32}]}]}\nsource: "+side+"\ndestination: "+side+"\n", fixture.KV(2, 16, "bf16")))
	x.plan(p).carry(16, 50)
	for _, c := range []struct {
		from, to, end int64
		want          string
	}{{0, 50, 50, "[{0 50} {0 1}]"}, {16, 50, 50, "[{16 50} {0 1}]"}, {0, 48, 50, "[{0 48} {0 0}]"}, {48, 49, 50, "[{48 49} {0 0}]"}} {
		spans, err := stamp.Spans(p, c.from, c.to, c.end, nil, nil)
		if err != nil || fmt.Sprint(spans) != c.want {
			t.Errorf("tokens %d to %d of %d move %v (%v), want %s", c.from, c.to-1, c.end, spans, err, c.want)
		}
	}
}
