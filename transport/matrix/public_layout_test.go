package matrix_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// Both sides fall back to NHD, and the copies are computed as if they lay as
// HND. All lengths fit and no transfer fails. What is right of it: with H heads
// on the wider side, N tokens and rows numbered h*N+n on one side and n*H+h on
// the other, a row is right where the two numbers are the same.
//
// From TP 2 to 4, decode rank 1 takes rows 32 to 63 of a prefill block of 4
// heads for its 2: row n*2+h of it is right where 32+2n+h = 4n+h+2, at token 15
// only: 2 of 32 rows.
func TestLayoutPreferenceLostOnBothSides(t *testing.T) {
	x := examine(t)
	for _, era := range []string{"packed", "joint", "split"} {
		for _, c := range []struct {
			from, to int
			part     string
		}{{2, 4, "15/16"}, {4, 2, "15/16"}, {1, 2, "15/16"}, {2, 1, "15/16"}, {1, 8, "63/64"}, {8, 1, "63/64"}, {2, 2, "0/1"}, {8, 8, "0/1"}} {
			x.Run(fmt.Sprint(era, c.from, "to", c.to), func(t *testing.T) {
				x := x.of(t)
				pair := func(label string) *plan.Pair {
					at := func(tp int) end {
						return end{fmt.Sprintf("tp: %d", tp), 16, 2, "vllm/" + era + "-" + label, ""}
					}
					return x.pair(1, fixture.KV(8, 16, "fp16"), at(c.from), at(c.to))
				}
				truth := pair("nhd")
				d := x.taken(truth, pair("hnd"), stamp.Request{Source: tables(1), Destination: tables(0), To: 16}, c.part)
				if c.from != c.to {
					x.fault(truth, d.proven.Plan(), proof.Swap, "head 0 token 1 dim 0 gets k layer 0")
				} else if err := proof.Examine(truth, d.proven.Plan()); err != nil {
					t.Errorf("whole blocks of equal ranks are right in any order: %v", err)
				}
				x.plan(truth).carry(3, 29)
			})
		}
	}
	// Right: of every token the rows of heads 2 and 3, which lie side by side: a
	// row of K and V is 512 bytes, so 1024 of every 2048 from 1024 on.
	d := x.plan(x.pair(1, fixture.KV(8, 128, "fp16"), end{"tp: 2", 16, 4, "nhd", ""}, end{"tp: 4", 16, 4, "nhd", ""}))
	var mine []string
	for _, l := range d.block(3, 1, 16) {
		if strings.Contains(l, "-> 1 ") {
			mine = append(mine, l)
		}
	}
	x.same("rank 1", mine, each(16, "0 layer0+%d -> 1 layer0+%d 1024", func(t int) []any { return []any{3*32768 + t*2048 + 1024, 1*16384 + t*1024} })...)
}

// One side keeps HND and the other NHD, since on one of them only the outer of
// two connectors was asked. Ranks are as many, so whole blocks are copied. With
// 4 heads and 16 tokens row h*16+n is row n*4+h where 15h = 3n: at 4 of 64.
func TestLayoutAskedOfTheOuterConnectorOnly(t *testing.T) {
	x := examine(t)
	pair := func(source, destination string) *plan.Pair {
		return x.pair(1, fixture.KV(8, 16, "fp16"), end{"tp: 2", 16, 2, source, ""}, end{"tp: 2", 16, 2, destination, ""})
	}
	truth := pair("hnd", "nhd")
	r := stamp.Request{Source: tables(0), Destination: tables(1), To: 16}
	for _, label := range []string{"hnd", "nhd"} {
		d := x.taken(truth, pair(label, label), r, "15/16")
		x.fault(truth, d.proven.Plan(), proof.Swap, "")
	}
	// Right: each row of 64 bytes (K and V of 16 fp16) goes from h*16+n to n*4+h.
	d := x.plan(truth).carry(0, 32)
	x.has("rows", d.lines(d.copies(r)), 128,
		"0 layer0+64 -> 0 layer0+4352 64",   // head 0 token 1: row 1 to row 4 of block 1, which starts at 64 rows
		"1 layer0+1024 -> 1 layer0+4160 64", // the rank's head 1 token 0: row 16 to row 1
		"0 layer0+4032 -> 0 layer0+8128 64", // head 3 token 15: row 63 to row 63
		"0 layer0+1984 -> 0 layer0+8000 64") // head 1 token 15: row 31 to row 61
}

// tensor is a cache of 4 blocks of 16 tokens, 4 heads of 128 fp16, with the
// strides of [block, head, token, K|V, dim].
func tensor(claim string, strides ...int64) []layout.Tensor {
	return []layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 4 * 32768}, Shape: []int64{4, 4, 16, 2, 128}, Strides: strides,
		Dims: []string{"block", "head", "token", "component", "dim"}, DType: geometry.FP16, Components: []string{"k", "v"}, Layers: []int{0}, Claim: claim}}
}

// A backend's kernel keeps its own order whatever the connector asked for, or
// the host's copy of a cache is made in another order than the device's, and
// the label stays. The label is a claim, held against the strides.
func TestKernelIgnoresTheLabel(t *testing.T) {
	kv := attention(1, 4, 128, 128, geometry.FP16)[0]
	e := layout.Extent{Layers: []int{0}, Blocks: 4, Tokens: 16, Heads: []int{4, 4}, Components: kv.Components}
	split := func(claim string, strides ...int64) []layout.Tensor {
		ts := tensor(claim, strides...)
		ts[0].Shape, ts[0].Dims = []int64{2, 4, 16, 4, 128}, []string{"component", "block", "token", "head", "dim"}
		return ts
	}
	joint := func(claim string, strides ...int64) []layout.Tensor {
		ts := tensor(claim, strides...)
		ts[0].Shape, ts[0].Dims = []int64{4, 2, 16, 4, 128}, []string{"block", "component", "token", "head", "dim"}
		return ts
	}
	x := examine(t)
	// A row of K or V is 256 bytes, one of both 512.
	for _, c := range []struct {
		name         string
		tensors      []layout.Tensor
		says, preset string
	}{
		{"K and V apart, stride order token before head", split("HND", 65536, 16384, 1024, 256, 2), "the label says HND, the strides of component k say NHD", ""},
		{"K and V apart, as labelled", split("HND", 65536, 16384, 256, 4096, 2), "", "vllm/split-hnd"},
		{"halves of a block, stride order token before head", joint("HND", 32768, 16384, 1024, 256, 2), "the label says HND, the strides of component k say NHD", ""},
		{"halves of a block, as labelled", joint("HND", 32768, 16384, 256, 4096, 2), "", "vllm/joint-hnd"},
		{"rows of K and V, stride order token before head", tensor("HND", 32768, 512, 2048, 256, 2), "the label says HND, the strides of component k say NHD", ""},
		{"rows of K and V, as labelled", tensor("HND", 32768, 8192, 512, 256, 2), "", "vllm/packed-hnd"},
		{"rows of K and V, label NHD on heads outermost", tensor("NHD", 32768, 8192, 512, 256, 2), "the label says NHD, the strides of component k say HND", ""},
		{"order by name", tensor("LBHNC", 32768, 512, 2048, 256, 2), "the label says LBHNC, the strides of component k say BNHC", ""},
		{"order by name, as labelled", tensor("LBNHC", 32768, 512, 2048, 256, 2), "", "vllm/packed-nhd"},
		{"no label", tensor("", 32768, 512, 2048, 256, 2), "", "vllm/packed-nhd"},
	} {
		x.Run(c.name, func(t *testing.T) {
			l, err := layout.FromTensors(c.tensors, e)
			if c.says != "" {
				var claim *layout.ClaimError
				if !errors.As(err, &claim) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := presetOf(c.preset, 16)
			if err != nil {
				t.Fatal(err)
			}
			want, err := p.Resolve(e)
			if err != nil {
				t.Fatal(err)
			}
			if l.Text() != want.Text() {
				t.Errorf("the tensors lie as\n%s\nwant those of %s\n%s", l.Text(), c.preset, want.Text())
			}
		})
	}
	// TP 1 to 2 of 8 heads with a kernel that keeps NHD: rank 1 wants heads 4 to
	// 7 of each token, 2048 of 4096 bytes from 2048 on.
	d := x.plan(x.pair(1, fixture.KV(8, 128, "fp16"), end{"tp: 1", 16, 4, "nhd", ""}, end{"tp: 2", 16, 4, "nhd", ""}))
	x.same("the rows of both ranks", d.block(0, 0, 16), slices.Concat(
		each(16, "0 layer0+%d -> 0 layer0+%d 2048", func(t int) []any { return []any{t * 4096, t * 2048} }),
		each(16, "0 layer0+%d -> 1 layer0+%d 2048", func(t int) []any { return []any{t*4096 + 2048, t * 2048} }))...)
}

// A kernel that is NHD by nature under a connector that forces HND, TP 1 to 8
// with blocks of 128. Believed: rank r's rows are r*128 to r*128+127. Row n is
// right where r*128+n = 8n+r: 127r = 7n, at token 0 of rank 0 and token 127 of
// rank 7: 2 of 1024.
func TestHeadAxisPermutedFromOneRankToEight(t *testing.T) {
	x := examine(t)
	pair := func(label string) *plan.Pair {
		return x.pair(1, fixture.KV(8, 8, "bf16"), end{"tp: 1", 128, 2, label, ""}, end{"tp: 8", 128, 2, label, ""})
	}
	truth := pair("nhd")
	d := x.taken(truth, pair("hnd"), stamp.Request{Source: tables(1), Destination: tables(1), To: 128}, "511/512")
	x.fault(truth, d.proven.Plan(), proof.Swap, "destination rank 0: k layer 0 head 0 token 1 dim 0 gets k layer 0 head 1 token 0 dim 0")
	// Right: row r of each token's 8, 32 bytes of 256.
	d = x.plan(truth).carry(0, 200)
	x.has("rows", d.block(1, 0, 128), 1024, "0 layer0+32768 -> 0 layer0+0 32", "0 layer0+32992 -> 7 layer0+0 32", "0 layer0+65504 -> 7 layer0+4064 32", "0 layer0+33376 -> 3 layer0+64 32")
}

// Blocks whose rows hold K and V together, taken for blocks of a K half and a
// V half: the slice of a rank is then half of each. From TP 2 to 4, a block of
// heads 0 to 3 is cut into quarters, one a head. Rank 0 gets quarters 0 and 2
// and wants 0 and 1, rank 1 gets 1 and 3 and wants 2 and 3: half is wrong.
func TestPackedRowsCutIntoHalves(t *testing.T) {
	x := examine(t)
	pair := func(l string) *plan.Pair {
		return x.pair(1, fixture.KV(8, 8, "bf16"), end{"tp: 2", 128, 2, l, ""}, end{"tp: 4", 128, 2, l, ""})
	}
	truth := pair("vllm/packed-hnd")
	d := x.taken(truth, pair("vllm/joint-hnd"), stamp.Request{Source: tables(1), Destination: tables(0), To: 128}, "1/2")
	x.fault(truth, d.proven.Plan(), proof.Swap, "destination rank 0: k layer 0 head 1 token 0 dim 0 gets k layer 0 head 2 token 0 dim 0")
	// Right: heads 2 and 3 are one run, 2 heads * 128 tokens * 32 bytes, and no
	// halves. A block of the source is 16384.
	d = x.plan(truth).carry(0, 256)
	x.same("block 1 to 0", d.block(1, 0, 128),
		"0 layer0+16384 -> 0 layer0+0 8192", "0 layer0+24576 -> 1 layer0+0 8192",
		"1 layer0+16384 -> 2 layer0+0 8192", "1 layer0+24576 -> 3 layer0+0 8192")
}

// A cache of five dimensions, K and V first, whose order is changed on the way:
// a helper that counts on four indexes past the end. The tensors are registered
// with their dimensions' names, so there is nothing to count.
func TestFiveDimensionsPermutedAsFour(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(4, 64, "fp16"), end{"tp: 1", 16, 3, "split-hnd", ""}, end{"tp: 1", 16, 3, "split-nhd", ""})
	// [2, 3 blocks, 16 tokens, 4 heads, 64]: a row is 128 bytes, a block of K
	// 8192, all of K 24576.
	five := func(strides ...int64) func(int) []layout.Tensor {
		return func(int) []layout.Tensor {
			return []layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 49152}, Shape: []int64{2, 3, 16, 4, 64}, Strides: strides,
				Dims: []string{"component", "block", "token", "head", "dim"}, DType: geometry.FP16, Components: []string{"k", "v"}, Layers: []int{0}}}
		}
	}
	x.registered(&p.Source, five(24576, 8192, 128, 2048, 2))
	x.registered(&p.Destination, five(24576, 8192, 512, 128, 2))
	d := x.plan(p).carry(5, 40)
	x.has("block 1 to 2", d.block(1, 2, 16), 128,
		"0 layer0+10496 -> 0 layer0+17536 128", // K head 1 token 2: 8192+2048+256 to 16384+1024+128
		"0 layer0+35072 -> 0 layer0+42112 128", // V of it: both 24576 further
		"0 layer0+16256 -> 0 layer0+24448 128") // K head 3 token 15: 8192+6144+1920 to 16384+7680+384
}

// An allocator of its own lies K and V apart while the engine's shape says
// [block, 2, ...]: only the strides are true. Block 1, believed to be units 2
// and 3 of the region, is K of blocks 2 and 3: everything is wrong.
func TestLogicalShapeIsNotTheBytes(t *testing.T) {
	x := examine(t)
	joint := end{"tp: 1", 16, 4, "joint-nhd", ""}
	p, believed := x.pair(1, fixture.KV(2, 16, "bf16"), joint, joint), x.pair(1, fixture.KV(2, 16, "bf16"), joint, joint)
	// A row is 32 bytes, a token 64, a block of K 1024, all of K 4096.
	x.registered(&p.Source, func(int) []layout.Tensor {
		return []layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 8192}, Shape: []int64{4, 2, 16, 2, 16}, Strides: []int64{1024, 4096, 64, 32, 2},
			Dims: []string{"block", "component", "token", "head", "dim"}, DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{0}, Claim: "NHD"}}
	})
	preset, err := presetOf("vllm/split-nhd", 16)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := preset.Resolve(p.Source.Ranks[0][0].Extent); err != nil || want.Text() != p.Source.Ranks[0][0].Text() {
		t.Errorf("the tensor lies as\n%swant split-nhd (%v)", p.Source.Ranks[0][0].Text(), err)
	}
	d := x.taken(p, believed, stamp.Request{Source: tables(1), Destination: tables(1), To: 16}, "1/1")
	x.fault(p, d.proven.Plan(), proof.Bounds, `it reads byte 1024 of region "layer0", which is of another block`)
	d = x.plan(p).carry(0, 60)
	x.same("block 1 to 1", d.block(1, 1, 16), "0 layer0+1024 -> 0 layer0+2048 1024", "0 layer0+5120 -> 0 layer0+3072 1024")
}

// With two kv heads [blocks, tokens, K|V, heads*dim] and [blocks, tokens, heads,
// K|V of dim] have the same shape and the same strides: no shape says which it
// is. The names of the dimensions do.
func TestShapesThatLookAlikeAtTwoHeads(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 1", 16, 4, "[block, token, component, head, dim]", ""}, end{"tp: 1", 16, 4, "nhd", ""})
	e := p.Source.Ranks[0][0].Extent
	read := func(dims ...string) *layout.Layout {
		// [4, 16, 2, 2, 16] of bf16, dense.
		l, err := layout.FromTensors([]layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 8192}, Shape: []int64{4, 16, 2, 2, 16}, Strides: []int64{2048, 128, 64, 32, 2},
			Dims: dims, DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{0}}}, e)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	halves, rows := read("block", "token", "component", "head", "dim"), read("block", "token", "head", "component", "dim")
	if halves.Text() == rows.Text() {
		t.Fatal("the two read alike")
	}
	truth, believed := *p, *p
	truth.Source.Ranks, believed.Source.Ranks = [][]*layout.Layout{{halves}}, [][]*layout.Layout{{rows}}
	// Of a token's four rows K0 K1 V0 V1, taken for K0 V0 K1 V1, two are right.
	d := x.taken(&truth, &believed, stamp.Request{Source: tables(2), Destination: tables(0), To: 16}, "1/2")
	x.fault(&truth, d.proven.Plan(), proof.Swap, "k layer 0 head 1 token 0 dim 0 gets v layer 0 head 0 token 0 dim 0")
	d = x.plan(&truth).carry(1, 50)
	// Right: 64 rows, of which V1 of a token and K0 of the next, 15 times, go side by side.
	x.has("rows of block 0", d.block(0, 0, 16), 49, "0 layer0+0 -> 0 layer0+0 32", "0 layer0+32 -> 0 layer0+64 32", "0 layer0+64 -> 0 layer0+32 32", "0 layer0+96 -> 0 layer0+96 64")
	// With four heads the shapes part, and a wrong name of a dimension shows.
	e = x.pair(1, fixture.KV(4, 16, "bf16"), end{"tp: 1", 16, 4, "nhd", ""}, end{"tp: 1", 16, 4, "nhd", ""}).Source.Ranks[0][0].Extent
	_, err := layout.FromTensors([]layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 16384}, Shape: []int64{4, 16, 2, 4, 16}, Strides: []int64{4096, 256, 128, 32, 2},
		Dims: []string{"block", "token", "head", "component", "dim"}, DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{0}}}, e)
	x.refused(err, "tensors[0].shape[2] is 2: dimension head of 4 places of head is another")
}

// A layout guessed from the shape, where the number of blocks is that of K and
// V: [2, 2, ...] is blocks first or K and V first, with the strides of the two
// exchanged. Of two blocks' four units, in the order K0 V0 K1 V1, taken for K0
// K1 V0 V1, two are right.
func TestLayoutGuessedFromTheShape(t *testing.T) {
	x := examine(t)
	pair := func(source string) *plan.Pair {
		return x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 1", 16, 2, source, ""}, end{"tp: 1", 16, 2, "joint-nhd", ""})
	}
	truth, believed := pair("joint-nhd"), pair("split-nhd")
	d := x.taken(truth, believed, stamp.Request{Source: tables(0, 1), Destination: tables(0, 1), To: 32}, "1/2")
	x.fault(truth, d.proven.Plan(), proof.Bounds, `v layer 0 head 0 token 0 dim 0: it reads byte 2048 of region "layer0", which is of another block`)
	d = x.plan(truth).carry(0, 32)
	x.same("two blocks", d.lines(d.copies(stamp.Request{Source: tables(0, 1), Destination: tables(1, 0), To: 32})),
		"0 layer0+2048 -> 0 layer0+0 2048", "0 layer0+0 -> 0 layer0+2048 2048")
}

// An unknown layout is not equal to another unknown layout: a side without one,
// or with a name that is none, is refused before anything is compared.
func TestUnknownLayoutsPassAsEqual(t *testing.T) {
	x := examine(t)
	p := x.pair(1, fixture.KV(2, 16, "bf16"), end{"tp: 1", 16, 2, "hnd", ""}, end{"tp: 1", 16, 2, "hnd", ""})
	p.Source.Ranks, p.Destination.Ranks = [][]*layout.Layout{{nil}}, [][]*layout.Layout{{nil}}
	x.refused(p.Validate(), "source.ranks[0].layout is absent: the rank holds layers 0 and there is no default layout")
	const text = "kvferry: pair/1\nmodel: {name: m, layers: 1, components: [{name: k, heads: 2, dim: 16, dtype: bf16}]}\n" +
		"source: {engine: s, shard: {tp: 1}, block: 16, blocks: 2%[1]s}\ndestination: {engine: d, shard: {tp: 1}, block: 16, blocks: 2%[1]s}\n"
	for _, c := range [][2]string{{"", "there is no default layout"}, {", layout: unknown", `source.layout is "unknown": no preset has this name`}, {", layout: {order: [block, token, head, dim], name: Unknown}", `name is "Unknown": no such claim`}} {
		f, err := pairfile.Parse("p.yaml", fmt.Appendf(nil, text, c[0]))
		if err == nil {
			_, _, err = f.Pair(nil)
		}
		x.refused(err, c[1])
	}
}

// Split kernels that count on [heads, tokens] over a pool that another backend
// keeps as [tokens, heads], at unlike tp. The numbers are those of the first
// test, for K and V alike.
func TestSplitKernelsOnAPoolOfTheOtherOrder(t *testing.T) {
	x := examine(t)
	pair := func(l string) *plan.Pair {
		return x.pair(2, fixture.KV(8, 4, "int8"), end{"tp: 2", 16, 2, l, ""}, end{"tp: 4", 16, 2, l, ""})
	}
	truth := pair("trtllm/pool-nhd")
	d := x.taken(truth, pair("trtllm/pool"), stamp.Request{Source: tables(0), Destination: tables(1), To: 16}, "15/16")
	x.fault(truth, d.proven.Plan(), proof.Swap, "destination rank 0: k layer 0 head 0 token 1 dim 0 gets k layer 0 head 2 token 0 dim 0")
	// Right: of a block [2 layers, 2, 16, 4 heads, 4] rank 1 takes 8 of each 16
	// bytes from 8 on; a block of the source is 1024, of the destination 512.
	d = x.plan(truth).carry(2, 31)
	x.has("block 1 to 0", d.block(1, 0, 16), 4*2*2*16,
		"0 pool+1032 -> 1 pool+0 8",   // layer 0 K token 0
		"0 pool+1304 -> 1 pool+136 8", // layer 0 V token 1: 1024+256+16+8 to 128+8
		"1 pool+2032 -> 2 pool+504 8") // layer 1 V token 15: 1024+512+256+240 to 256+128+120
}

// One side keeps all layers of a block together and the other a region a layer.
// This is refused elsewhere as an unequal hash that names no field; here it is
// planned, and what cannot be planned is named.
func TestCrossLayerBlocksAgainstARegionALayer(t *testing.T) {
	x := examine(t)
	source, destination := end{"tp: 1", 16, 4, "vllm/cross-layer", ""}, end{"tp: 2", 16, 4, "hnd", ""}
	// A head's 16 rows of K and V are 16*64 = 1024 bytes. A block of the source is
	// [4 heads, 2 layers, 1024], of the destination [2 heads, 1024] a layer.
	d := x.plan(x.pair(2, fixture.KV(4, 16, "bf16"), source, destination)).carry(7, 50)
	x.same("block 1 to 2", d.block(1, 2, 16),
		"0 pool+8192 -> 0 layer0+4096 1024", "0 pool+10240 -> 0 layer0+5120 1024", // heads 0 and 1 of layer 0
		"0 pool+9216 -> 0 layer1+4096 1024", "0 pool+11264 -> 0 layer1+5120 1024",
		"0 pool+12288 -> 1 layer0+4096 1024", "0 pool+14336 -> 1 layer0+5120 1024", // heads 2 and 3
		"0 pool+13312 -> 1 layer1+4096 1024", "0 pool+15360 -> 1 layer1+5120 1024")

	other := x.pair(2, fixture.KV(8, 16, "bf16"), source, destination)
	p := plan.Pair{Source: d.pair.Source, Destination: other.Destination}
	x.refused(p.Validate(), "model.components.k.heads differs: source 4, destination 8")
}

// Caches of equal bytes that are not the same: 8 heads of 128 and 4 of 256, fp8
// and bf16 of half the width. What differs is named.
func TestEqualBytesOfUnlikeCaches(t *testing.T) {
	x := examine(t)
	side := func(components string) plan.Side {
		return x.pair(1, components, end{"tp: 1", 16, 2, "hnd", ""}, end{"tp: 1", 16, 2, "hnd", ""}).Source
	}
	wide := side(fixture.KV(8, 128, "bf16"))
	for _, c := range []struct {
		other  string
		fields []string
	}{
		{fixture.KV(4, 256, "bf16"), []string{"model.components.k.heads 8 4", "model.components.k.dim 128 256", "model.components.v.heads 8 4", "model.components.v.dim 128 256"}},
		{fixture.KV(8, 256, "fp8_e4m3"), []string{"model.components.k.dim 128 256", "model.components.k.dtype bf16 fp8_e4m3", "model.components.v.dim 128 256", "model.components.v.dtype bf16 fp8_e4m3"}},
		{fixture.KV(8, 128, "fp16"), []string{"model.components.k.dtype bf16 fp16", "model.components.v.dtype bf16 fp16"}},
	} {
		p := plan.Pair{Source: wide, Destination: side(c.other)}
		var m *plan.Mismatch
		if err := p.Validate(); !errors.As(err, &m) {
			t.Errorf("%s: %v", c.other, err)
			continue
		}
		var got []string
		for _, f := range m.Fields {
			got = append(got, fmt.Sprintf("%s %s %s", f.Field, f.Source, f.Destination))
		}
		x.same(c.other, got, c.fields...)
	}
}

// A head size of 0 in the configuration is no size to reckon with, nor is one
// that follows from another field: both are refused by the name of the field,
// and a tensor of another width is.
func TestHeadSizeOfZero(t *testing.T) {
	x := examine(t)
	_, err := architecture.Read([]byte(`{"architectures": ["LlamaForCausalLM"], "hidden_size": 1280, "num_hidden_layers": 12, "num_attention_heads": 10, "num_key_value_heads": 10, "head_dim": 0, "dtype": "bfloat16"}`), architecture.Options{Name: "m"})
	x.refused(err, "head_dim")
	p := x.pair(1, fixture.KV(10, 128, "bf16"), end{"tp: 1", 16, 2, "hnd", ""}, end{"tp: 2", 16, 2, "hnd", ""})
	m := p.Source.Model
	m.Groups = slices.Clone(m.Groups)
	m.Groups[0].Components = slices.Clone(m.Groups[0].Components)
	m.Groups[0].Components[0].Dim = 0
	x.refused(m.Validate(), "groups[0].components[0].dim is 0: want 1 to")
	e := p.Source.Ranks[0][0].Extent
	_, err = layout.FromTensors([]layout.Tensor{{Region: layout.Region{Name: "layer0", Bytes: 2 * 81920}, Shape: []int64{2, 10, 16, 2, 64}, Strides: []int64{81920, 8192, 512, 256, 2},
		Dims: []string{"block", "head", "token", "component", "dim"}, DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{0}}}, e)
	x.refused(err, "tensors[0].shape[4] is 64: dimension dim of 128 places of dim is another")
	// Right: 10 heads of 128 bf16, 5 for each of two ranks: 5*16*512 bytes.
	x.same("block 0 to 1", x.plan(p).carry(0, 20).block(0, 1, 16), "0 layer0+0 -> 0 layer0+40960 40960", "0 layer0+40960 -> 1 layer0+40960 40960")
}
