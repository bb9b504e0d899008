package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
)

// shown is a pair and a plan of it, as far as the text forms look at them.
func shown() (*plan.Pair, *plan.Plan) {
	m := geometry.Model{Name: "m", Layers: 2, Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{{Name: "k", Heads: 8, Dim: 128, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 128, DType: geometry.BF16}}}}}
	rank := []*layout.Layout{{Regions: []layout.Region{{Name: "layer0", Bytes: 1 << 20}, {Name: "layer1", Bytes: 1 << 20}}}}
	p := &plan.Pair{
		Source:      plan.Side{Engine: "prefill", Model: m, Ranks: [][]*layout.Layout{rank}},
		Destination: plan.Side{Engine: "decode", Model: m, Ranks: [][]*layout.Layout{rank, rank}},
	}
	return p, &plan.Plan{
		Assignments: []plan.Assignment{
			{Components: 3, Destination: 1, Source: 0, Layers: plan.Range{From: 0, To: 2}, Heads: plan.Range{From: 2, To: 4}},
			{Components: 2, Destination: 0, Source: 0, Layers: plan.Range{From: 1, To: 2}, Heads: plan.Range{From: 0, To: 1}, Tokens: plan.Tokens{Size: 2, Interleave: 4, Phase: 1}},
		},
		Groups: []plan.Period{{Tokens: 32, From: 8, To: 32, SourceBlocks: 2, DestinationBlocks: 1}},
		Edges:  []plan.Edge{{Source: 0, Destination: 1, From: 0, To: 4}},
		Pieces: []plan.Piece{
			{Token: 8, Step: 1, Count: 8, SourceToken: 8, SourceStep: 1, DestinationToken: 8, DestinationStep: 1},
			{Token: 16, Step: 2, Count: 8, SourceBlock: 1, SourceStep: 2, DestinationToken: 16, DestinationStep: 1},
		},
		Runs: []plan.Run{
			{Component: 0, Layer: 0, SourceOffset: 16384, Bytes: 8192, Loops: []plan.Loop{{Count: 2, SourceStride: 16384, DestinationStride: 8192}}},
			{Component: 1, Layer: 1, SourceRegion: 1, DestinationRegion: 1, Bytes: 256},
			{Piece: 1, Layer: 1, SourceRegion: 7, DestinationRegion: -1, Component: 9, Bytes: 256},
			{Piece: 5, Layer: 1, Bytes: 256},
		},
	}
}

func TestPlanText(t *testing.T) {
	want := `assign rank 1 <- rank 0: k v, layers 0-1, heads 2-3
assign rank 0 <- rank 0: v, layers 1, heads 0, tokens with (t / 4) mod 2 = 1
period 32 tokens, source 2 blocks, destination 1 block, window 8 to 32
edge 0 -> 1
  piece 0: tokens 8 to 15, block 0 at 8 -> block 0 at 8
  layer 0 k: layer0+16384 -> layer0+0, 8192 bytes, 2 x (16384 -> 8192)
  layer 1 v: layer1+0 -> layer1+0, 256 bytes
  piece 1: tokens 16 to 30 by 2, block 1 at 0 by 2 -> block 0 at 16
  layer 1 component 9?: region 7?+0 -> region -1?+0, 256 bytes
  piece 5?
  layer 1 k: layer0+0 -> layer0+0, 256 bytes
`
	p, pl := shown()
	if got := pl.Text(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// States are told in their own words, and so are entries of several tokens.
func TestPlanTextOfGroups(t *testing.T) {
	p, _ := shown()
	rank := []*layout.Layout{{Regions: []layout.Region{{Name: "pool"}}}, {Regions: []layout.Region{{Name: "state"}}}}
	p.Source.Model.Groups = []geometry.Group{
		{Name: "attention", Layers: []int{0}, Components: []geometry.Component{{Name: "k", Heads: 8, Dim: 128, DType: geometry.FP8E4M3}, {Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 4, Scales: "k"}}},
		{Name: "mamba", State: true, Layers: []int{1}, Components: []geometry.Component{{Name: "x", Heads: 64, Dim: 3, DType: geometry.BF16}}},
	}
	p.Source.Ranks, p.Destination.Ranks = [][]*layout.Layout{rank}, [][]*layout.Layout{rank}
	pl := &plan.Plan{
		Assignments: []plan.Assignment{{Group: 1, Components: 1, Layers: plan.Range{From: 1, To: 2}, Heads: plan.Range{To: 32}}},
		Groups:      []plan.Period{{Tokens: 16, To: 16, SourceBlocks: 1, DestinationBlocks: 1}, {Tokens: 1, To: 1, SourceBlocks: 1, DestinationBlocks: 1}},
		Edges:       []plan.Edge{{To: 4}, {Group: 1, From: 4, To: 6}},
		Pieces: []plan.Piece{
			{Count: 16, Step: 1, SourceStep: 1, DestinationStep: 1}, {Count: 4, Step: 1, SourceStep: 1, DestinationStep: 1},
			{Token: 1, Count: 1, SourceToken: 1, DestinationToken: 1}, {Count: 1}, {Count: 2, Step: 1, SourceStep: 1, DestinationStep: 1},
		},
		Runs: []plan.Run{{Bytes: 16}, {Component: 1, Piece: 1, Bytes: 16}, {Component: 1, Piece: 2, Bytes: 4}, {Piece: 2, Bytes: 4}, {Piece: 3, Layer: 1, Bytes: 192}, {Piece: 4, Layer: 1, Bytes: 192}},
	}
	want := `assign rank 0 <- rank 0: x, layers 1, channels 0-31, group mamba
group attention period 16 tokens, source 1 block, destination 1 block
group mamba period 1 state, source 1 slot, destination 1 slot
edge 0 -> 0 group attention
  piece 0: tokens 0 to 15, block 0 at 0 -> block 0 at 0
  layer 0 k: pool+0 -> pool+0, 16 bytes
  piece 1: entries 0 to 3 of 4 tokens, block 0 at 0 -> block 0 at 0
  layer 0 k_scale: pool+0 -> pool+0, 16 bytes
  piece 2: entry 1 of 4 tokens, block 0 at 1 -> block 0 at 1
  layer 0 k_scale: pool+0 -> pool+0, 4 bytes
  piece 2: token 1, block 0 at 1 -> block 0 at 1
  layer 0 k: pool+0 -> pool+0, 4 bytes
edge 0 -> 0 group mamba
  piece 3: state, slot 0 -> slot 0
  layer 1 x: state+0 -> state+0, 192 bytes
  piece 4: tokens 0 to 1, block 0 at 0 -> block 0 at 0
  layer 1 x: state+0 -> state+0, 192 bytes
`
	if got := pl.Text(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPlanJSON(t *testing.T) {
	_, pl := shown()
	b, err := json.Marshal(pl)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"digest":"` + pl.Digest().String() + `","pair":"sha256:0000000000000000000000000000000000000000000000000000000000000000",` +
		`"assignments":2,"pieces":2,"runs":4,"edges":[{"group":0,"source":0,"destination":1,"runs":4}]}`
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
}

func TestCopyForms(t *testing.T) {
	c := plan.Copy{
		Source:      plan.Place{Rank: 0, Region: "layer0", Offset: 16384},
		Destination: plan.Place{Rank: 1, Region: "layer0", Offset: 0},
		Bytes:       16384,
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"source":{"rank":0,"region":"layer0","offset":16384},"destination":{"rank":1,"region":"layer0","offset":0},"bytes":16384}`; string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	c.Loops = []plan.Loop{{Count: 2, SourceStride: 8192, DestinationStride: 4096}}
	if want := "rank 0 layer0+16384 -> rank 1 layer0+0, 16384 bytes, 2 x (8192 -> 4096)"; c.String() != want {
		t.Errorf("got %q, want %q", c, want)
	}
	b, err = json.Marshal(c.Loops)
	if want := `[{"count":2,"source_stride":8192,"destination_stride":4096}]`; err != nil || string(b) != want {
		t.Errorf("got %s (%v), want %s", b, err, want)
	}
}
