package policy

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/wasm/abi"
)

// hybrid is an engine with attention (k, and a scale for 16 tokens), states
// that are sharded in their own way, and optional draft layers.
func hybrid(name string) Engine {
	attention := geometry.Group{Name: "attention", Layers: []int{0, 2}, Window: 32, Shared: []geometry.Share{{Layer: 3, Owner: 2}}, Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 16, DType: geometry.FP8E4M3}, {Name: "scale", Heads: 4, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "k"},
	}}
	states := geometry.Group{Name: "states", Layers: []int{1}, State: true, Components: []geometry.Component{
		{Name: "x", Heads: 16, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 8, Unit: 4, Dim: 3, DType: geometry.BF16},
	}}
	draft := geometry.Group{Name: "draft", Layers: []int{4}, Optional: true, Components: attention.Components[:1]}
	grid := [3]shard.Grid{shard.PP, shard.TP, shard.DCP}
	own := &shard.Spec{TP: 1, Stages: []int{1, 1, 1, 2}, DCPSize: 1, Interleave: 1, Order: grid}
	return Engine{
		Name: name, Model: geometry.Model{Name: "hybrid", Layers: 5, Groups: []geometry.Group{attention, states, draft}},
		Shard: shard.Spec{TP: 4, Stages: []int{5}, DCPSize: 1, Interleave: 1, Order: grid},
		Candidates: []Candidate{{
			Name: "split", Layouts: []layout.Spec{sample.Order("block component head token dim"), sample.Order("slot component channel dim"), sample.Order("block token head dim")},
			Pools: []plan.Pool{{Block: 32, Blocks: 8, Ring: 3}, {Block: 1, Blocks: 6, Shard: own}, {Block: 8, Blocks: 4}},
		}},
	}
}

// lacking is the engine without some of its groups, the others in another
// order.
func lacking(e Engine, groups ...int) Engine {
	e.Model = e.Model.Select(groups)
	candidates := slices.Clone(e.Candidates)
	for i, c := range candidates {
		candidates[i].Layouts, candidates[i].Pools = nil, nil
		for _, g := range groups {
			candidates[i].Layouts = append(candidates[i].Layouts, c.Layouts[g])
			candidates[i].Pools = append(candidates[i].Pools, c.Pools[g])
		}
	}
	e.Candidates = candidates
	return e
}

// Groups are told with all that makes them differ; those of a peer are matched
// by name, and what one side lacks is left out.
func TestInputOfGroups(t *testing.T) {
	q := Question{Engine: hybrid("prefill"), Role: Source, Peers: []Engine{lacking(hybrid("decode"), 1, 0)}}
	got, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	fp8 := abi.Component{Name: "k", Heads: 4, Dim: 16, Dtype: abi.DtypeFp8E4m3, Bits: 8, Unit: 1, TokensPerEntry: 1}
	groups := []abi.Group{
		{Name: "attention", Window: 32, Layers: []abi.Range{{From: 0, To: 1}, {From: 2, To: 3}}, Shared: []abi.Share{{Layer: 3, Owner: 2}},
			Components: []abi.Component{fp8, {Name: "scale", Heads: 4, Dim: 1, Dtype: abi.DtypeFp32, Bits: 32, Unit: 1, TokensPerEntry: 16, Scales: 1}}},
		{Name: "states", State: 1, Layers: []abi.Range{{From: 1, To: 2}},
			Components: []abi.Component{{Name: "x", Heads: 16, Dim: 3, Dtype: abi.DtypeBf16, Bits: 16, Unit: 1, TokensPerEntry: 1}, {Name: "B", Heads: 8, Dim: 3, Dtype: abi.DtypeBf16, Bits: 16, Unit: 4, TokensPerEntry: 1}}},
		{Name: "draft", Optional: 1, Layers: []abi.Range{{From: 4, To: 5}}, Components: []abi.Component{fp8}},
	}
	if !reflect.DeepEqual(got.Groups, groups) {
		t.Errorf("groups\n%+v\nwant\n%+v", got.Groups, groups)
	}
	items := func(axes ...uint32) (out []abi.Item) {
		for _, a := range axes {
			out = append(out, abi.Item{Axis: a, Div: 1})
		}
		return out
	}
	layouts := []abi.GroupLayout{
		{Group: 0, Order: items(abi.AxisBlock, abi.AxisComponent, abi.AxisHead, abi.AxisToken, abi.AxisDim), Block: 32, Blocks: 8, Ring: 3, TP: 4, Stages: 1, DCP: 1, Interleave: 1},
		{Group: 1, Order: items(abi.AxisSlot, abi.AxisComponent, abi.AxisChannel, abi.AxisDim), Block: 1, Blocks: 6, TP: 1, Stages: 4, DCP: 1, Interleave: 1},
		{Group: 2, Order: items(abi.AxisBlock, abi.AxisToken, abi.AxisHead, abi.AxisDim), Block: 8, Blocks: 4, TP: 4, Stages: 1, DCP: 1, Interleave: 1},
	}
	if own := got.Candidates[0].Layouts; !reflect.DeepEqual(own, layouts) {
		t.Errorf("own layouts\n%+v\nwant\n%+v", own, layouts)
	}
	if theirs := got.Peers[0].Candidates[0].Layouts; !reflect.DeepEqual(theirs, layouts[:2]) {
		t.Errorf("the peer's layouts\n%+v\nwant\n%+v", theirs, layouts[:2])
	}
	// A window of 32 tokens in 2 layers of 4 heads, with 2 entries of the scale;
	// one state of 24 rows.
	want := uint64(2*4*(32*16+2*4) + 24*6)
	if costs := got.Candidates[0].Costs; len(costs) != 1 || costs[0].Bytes != want {
		t.Errorf("costs %+v, want %d bytes", costs, want)
	}
	// The other way round: the engine has no word for what it lacks.
	back, err := Question{Engine: q.Peers[0], Role: Destination, Peers: []Engine{q.Engine}}.Input()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(back.Peers[0].Candidates[0].Layouts); n != 2 || len(back.Groups) != 2 || back.Groups[0].Name != "states" || back.Candidates[0].Costs[0] != got.Candidates[0].Costs[0] {
		t.Errorf("asked by the peer: %d layouts, groups %+v, costs %+v, want the same two groups", n, back.Groups, back.Candidates[0].Costs)
	}
	if choice, err := open(t, "heads").SelectLayout(ctx, q); err != nil || choice.Index != 0 {
		t.Errorf("chose %+v (%v)", choice, err)
	}

	// What is not optional must be there.
	q.Peers[0] = lacking(hybrid("decode"), 1)
	_, err = q.Input()
	var mismatch *plan.Mismatch
	if !errors.As(err, &mismatch) || !slices.ContainsFunc(mismatch.Fields, func(d geometry.Difference) bool { return d.Field == "model.groups.attention" }) {
		t.Errorf("error %v, want a *plan.Mismatch that names the group", err)
	}
}

// A branch's order follows with the components of its key, those that come
// first in the model first, whatever the keys are called.
func TestOrderOfBranches(t *testing.T) {
	g := geometry.Group{Components: []geometry.Component{{Name: "z"}, {Name: "z_scale"}, {Name: "a"}, {Name: "a_scale"}}}
	entries := func(words string) []layout.Entry { return sample.Order(words).Order }
	branch := func(b map[string][]layout.Entry) layout.Entry { return layout.Entry{Branch: b} }
	o := append(entries("block component head"), branch(map[string][]layout.Entry{
		"a,a_scale": append(entries("component"), branch(map[string][]layout.Entry{"a_scale": entries("dim"), "a": entries("token/8 dim token%8")})),
		"z,z_scale": entries("token component dim"),
	}))
	want := []abi.Item{
		{Axis: abi.AxisBlock, Div: 1}, {Axis: abi.AxisComponent, Div: 1}, {Axis: abi.AxisHead, Div: 1},
		{Components: 3, Axis: abi.AxisToken, Div: 1}, {Components: 3, Axis: abi.AxisComponent, Div: 1}, {Components: 3, Axis: abi.AxisDim, Div: 1},
		{Components: 12, Axis: abi.AxisComponent, Div: 1},
		{Components: 4, Axis: abi.AxisToken, Div: 8}, {Components: 4, Axis: abi.AxisDim, Div: 1}, {Components: 4, Axis: abi.AxisToken, Mod: 8, Div: 1},
		{Components: 8, Axis: abi.AxisDim, Div: 1},
	}
	for range 20 { // a map's order is another each time
		if got := order(o, g, 0); !reflect.DeepEqual(got, want) {
			t.Fatalf("order\n%+v\nwant\n%+v", got, want)
		}
	}
}

// A rank has a part for each class of a group's components, of the shard that
// the group has; the rank's place is the engine's.
func TestRemapInputOfGroups(t *testing.T) {
	a, b := hybrid("prefill"), lacking(hybrid("decode"), 1, 0)
	source, err := a.Candidates[0].side(a)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := b.Candidates[0].side(b)
	if err != nil {
		t.Fatal(err)
	}
	pair, _, err := plan.Join(source, destination)
	if err != nil {
		t.Fatal(err)
	}
	got := RemapInput(pair)
	if len(got.Groups) != 2 || got.Groups[0].Name != "states" || got.Groups[1].Name != "attention" || got.Layers != 5 {
		t.Errorf("%d layers, groups %+v, want the destination's", got.Layers, got.Groups)
	}
	if want := []abi.Pool{{Block: 1, Blocks: 6}, {Block: 32, Blocks: 8, Ring: 3}}; !reflect.DeepEqual(got.Sides[0].Pools, want) {
		t.Errorf("pools %+v, want %+v", got.Sides[0].Pools, want)
	}
	window := []abi.Range{{From: 0, To: 1}, {From: 2, To: 3}}
	for r, rank := range got.Sides[0].Ranks {
		var want []abi.Part
		if r == 1 { // the second of four stages holds the layer of states, whole
			layers := []abi.Range{{From: 1, To: 2}}
			want = []abi.Part{
				{Components: 1, DCPSize: 1, DCPInterleave: 1, Layers: layers, Heads: []abi.Range{{From: 0, To: 16}}},
				{Components: 2, DCPSize: 1, DCPInterleave: 1, Layers: layers, Heads: []abi.Range{{From: 0, To: 8}}},
			}
		}
		head := []abi.Range{{From: uint32(r), To: uint32(r) + 1}}
		want = append(want,
			abi.Part{Components: 1, Group: 1, DCPSize: 1, DCPInterleave: 1, Layers: window, Heads: head},
			abi.Part{Components: 2, Group: 1, DCPSize: 1, DCPInterleave: 1, Layers: window, Heads: head})
		if rank.Rank != uint32(r) || rank.PP != 0 || rank.TP != uint32(r) || !reflect.DeepEqual(rank.Parts, want) {
			t.Errorf("rank %d: %+v, want tp %d and %+v", r, rank, r, want)
		}
	}
	answer, err := open(t, "heads").Remap(ctx, pair)
	if err != nil || len(answer.Alternatives) != 1 {
		t.Fatalf("%+v (%v)", answer, err)
	}
	// Who is divided how is told group by group.
	if text := divided(&source); !strings.Contains(text, "tp 4 pp [5]") || !strings.Contains(text, ", group states shard tp 1 pp [1 1 1 2]") {
		t.Errorf("divided as %q", text)
	}
}
