package pairfile_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
)

const hybrid = `kvferry: pair/1
model:
  name: hybrid
  layers: 6
  groups:
    - name: attention
      layers: "1,3-4"
      window: 64
      shared: {0: 1}
      components:
        - {name: k, heads: 8, dim: 16, dtype: fp8}
        - {name: k_scale, heads: 8, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}
    - name: mamba
      layers: [2]
      state: true
      components:
        - {name: x, channels: 64, dim: 3, dtype: bf16}
        - {name: B, channels: 32, unit: 8, dim: 3, dtype: bf16}
    - name: draft
      layers: "5"
      optional: true
      components:
        - {name: kv, heads: 0, dim: 16, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 2, pp: [2, 4]}
  groups:
    mamba: {slots: 4, layout: {order: [slot, channel, dim]}, shard: {tp: 4}}
    attention: {block: 32, blocks: 8, kernel_block: 16, ring: 5, layout: {order: [block, {"k,k_scale": [component, head, token, dim]}]}}
destination:
  engine: decode
  shard: {tp: 4, pp: 1}
  groups:
    attention: {block: 64, blocks: 8, layout: {order: [block, head, {k: [dim, token], k_scale: [token, dim]}]}}
    mamba: {slots: 2, layout: {order: [slot, {x: [dim, channel], B: [channel, dim]}]}}
    draft: {block: 16, blocks: 8, can: [mla, sglang/mla]}
`

func TestParseGroups(t *testing.T) {
	f := parse(t, hybrid)
	want := []geometry.Group{
		{Name: "attention", Layers: []int{1, 3, 4}, Window: 64, Shared: []geometry.Share{{Layer: 0, Owner: 1}}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: 16, DType: geometry.FP8E4M3}, {Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "k"}}},
		{Name: "mamba", Layers: []int{2}, State: true, Components: []geometry.Component{
			{Name: "x", Heads: 64, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 32, Unit: 8, Dim: 3, DType: geometry.BF16}}},
		{Name: "draft", Layers: []int{5}, Optional: true, Components: []geometry.Component{{Name: "kv", Dim: 16, DType: geometry.BF16}}},
	}
	if !reflect.DeepEqual(f.Model.Groups, want) {
		t.Errorf("groups\n%+v\nwant\n%+v", f.Model.Groups, want)
	}
	if got, want := f.Source.Present(), []int{0, 1}; !slices.Equal(got, want) {
		t.Errorf("the source has groups %v, want %v", got, want)
	}
	if !reflect.DeepEqual(f.Source.Groups[2], pairfile.SideGroup{Absent: true}) {
		t.Errorf("the source's draft group is %+v, want an absent one", f.Source.Groups[2])
	}
	a := f.Source.Groups[0]
	if a.Block != 32 || a.Blocks != 8 || a.Kernel != 16 || a.Ring != 5 || a.Shard != nil || a.Layout.Kernel != 16 || a.Layout.Text() != `[block, {"k,k_scale": [component, head, token, dim]}]` {
		t.Errorf("the source's attention group is %+v, layout %s", a, a.Layout.Text())
	}
	m := f.Source.Groups[1]
	wantShard := shard.Spec{TP: 4, Stages: []int{6}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	if m.Block != 1 || m.Blocks != 4 || m.Shard == nil || !reflect.DeepEqual(*m.Shard, wantShard) {
		t.Errorf("the source's mamba group is %+v, want 4 slots and a shard %+v", m, wantShard)
	}
	if got := f.Destination.Groups[2].Candidates(); len(got) != 2 || got[0].Name != "vllm/mla" || got[1].Name != "sglang/mla" {
		t.Errorf("the destination offers %v for its draft layers", got)
	}
	if got := f.Source.Groups[0].Candidates(); got != nil {
		t.Errorf("the source offers %v where it gives a layout", got)
	}
}

// What a side lacks is no part of its model, and its pair has what both have,
// in the destination's order.
func TestPairOfGroups(t *testing.T) {
	f := parse(t, hybrid)
	source := f.SideModel(&f.Source)
	if len(source.Groups) != 2 || source.Left != 1 || source.Layers != 6 {
		t.Errorf("the source's model has %d groups, %d of %d layers left out; want 2, 1 of 6", len(source.Groups), source.Left, source.Layers)
	}
	if m := f.SideModel(&f.Destination); !reflect.DeepEqual(m, f.Model) {
		t.Errorf("the destination's model is %+v, want the file's", m)
	}
	type question struct {
		side  string
		group int
	}
	var asked []question
	p, common, err := f.Pair(func(side string, group int) (int, error) {
		asked = append(asked, question{side, group})
		return 1, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []question{{pairfile.Destination, 2}}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	if want := (plan.Common{Source: []int{0, 1}, Destination: []int{0, 1}, Absent: []string{"draft"}}); !reflect.DeepEqual(common, want) {
		t.Errorf("common %+v, want %+v", common, want)
	}
	if want := (plan.Pool{Block: 32, Blocks: 8, Ring: 5}); p.Source.Groups[0] != want {
		t.Errorf("pool %+v, want %+v", p.Source.Groups[0], want)
	}
	for r, layouts := range p.Source.Ranks {
		// Stages of 2 and 4 layers: 1 | 3, 4; the state's own shard has no stages.
		layers := []string{"1", "3-4"}[r/2]
		if got := geometry.Ranges(layouts[0].Extent.Layers); got != layers {
			t.Errorf("source rank %d holds attention layers %s, want %s", r, got, layers)
		}
		if got := fmt.Sprint(layouts[1].Extent.Layers, layouts[1].Extent.Heads); got != "[2] [16 8]" {
			t.Errorf("source rank %d holds state layers and channels %s, want [2] [16 8]", r, got)
		}
		if layouts[1] != p.Source.Ranks[0][1] || layouts[0] != p.Source.Ranks[r/2*2][0] {
			t.Errorf("source rank %d does not share the layout of ranks that hold as much", r)
		}
	}
	// Kernel blocks of 16 tokens: k of 4 heads, then scales, 1088 bytes, twice a
	// block.
	l := p.Source.Ranks[0][0]
	if _, bit := l.Bit(0, 0, 1, 16, 0, 0); bit/8 != 3*(4*16*16+4*4) {
		t.Errorf("token 16 of block 1 at byte %d, want %d", bit/8, 3*(4*16*16+4*4))
	}
}

// A rank whose stages hold no layer of a group has no layout of it.
func TestRanksWithoutGroup(t *testing.T) {
	p, _, err := parse(t, strings.Replace(hybrid, ", shard: {tp: 4}}", "}", 1)).Pair(func(string, int) (int, error) { return 0, nil })
	if err != nil {
		t.Fatal(err)
	}
	for r, layouts := range p.Source.Ranks {
		if held := layouts[1] != nil; held != (r >= 2) {
			t.Errorf("source rank %d holds states: %v; layer 2 is of the second stage", r, held)
		}
	}
}

// A number of stages divides the layers that are not a draft's: the last stage
// holds those too, whether or not the side has them.
func TestStagesBeforeDraft(t *testing.T) {
	text := strings.Replace(hybrid, "      shared: {0: 1}\n", "", 1)
	for _, c := range []struct{ old, pp, want string }{
		{"", "1", "[6]"},
		{"", "5", "[1 1 1 1 2]"},
		{"", "[3, 3]", "[3 3]"},
		{"", "4", "does not divide 5 layers"},
		{"optional: true", "4", "does not divide 6 layers"}, // then the layer is one of the model's own
		{`layers: "5"`, "4", "does not divide 5 layers"},    // layer 4 is attention's too
	} {
		changed := strings.Replace(text, "shard: {tp: 4, pp: 1}", "shard: {tp: 4, pp: "+c.pp+"}", 1)
		switch c.old {
		case "optional: true":
			changed = strings.Replace(changed, c.old, "optional: false", 1)
			changed = strings.Replace(changed, "    mamba: {slots: 4", "    draft: {block: 16, blocks: 8, layout: mla}\n    mamba: {slots: 4", 1)
		case `layers: "5"`:
			changed = strings.Replace(changed, c.old, `layers: "4-5"`, 1)
		}
		f, err := pairfile.Parse("pair", []byte(changed))
		if err != nil {
			if !strings.Contains(err.Error(), "destination.shard.pp") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("pp %s (%s): got %v, want %q", c.pp, c.old, err, c.want)
			}
			continue
		}
		if got := fmt.Sprint(f.Destination.Shard.Stages); got != c.want {
			t.Errorf("pp %s (%s): stages %s, want %s", c.pp, c.old, got, c.want)
		}
	}
}

// Layers are numbers and ranges, in either spelling; a group that does not say
// has all.
func TestGroupLayers(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`layers: "1,3-4"`, "1,3-4"},
		{`layers: "1, 3-4"`, "1,3-4"},
		{`layers: 1,3-4`, "1,3-4"},
		{`layers: [1, 3, 4]`, "1,3-4"},
		{`layers: "1-4"`, "1-4"},
		{`optional: false`, "0-5"},
	} {
		text := strings.Replace(hybrid, `layers: "1,3-4"`, c.text, 1)
		text = strings.Replace(text, "      shared: {0: 1}\n", "", 1)
		if got := geometry.Ranges(parse(t, text).Model.Groups[0].Layers); got != c.want {
			t.Errorf("%s: layers %s, want %s", c.text, got, c.want)
		}
	}
	for _, bad := range []string{`"1,3-4,"`, `"3-3"`, `"4-3"`, `"1,1"`, `"-1"`, `"01"`, `"1-"`, `""`, `"1;3"`, `"1-99999"`, `"1-2-3"`, "1", "[]", "true", "{}"} {
		_, err := pairfile.Parse("pair", []byte(strings.Replace(hybrid, `"1,3-4"`, bad, 1)))
		var e *pairfile.Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Field, "model.groups[0].layers") || e.Line != 7 {
			t.Errorf("layers: %s: got %v, want an error at model.groups[0].layers, line 7", bad, err)
		}
	}
}

// A chooser is asked for each group that offers, the source's first, and its
// error is its own.
func TestChooseByGroup(t *testing.T) {
	text := strings.Replace(hybrid, "blocks: 8, kernel_block: 16, ring: 5, layout: {order: [block, {\"k,k_scale\": [component, head, token, dim]}]}}", "blocks: 8, kernel_block: 16, can: [vllm/joint-hnd, joint-nhd]}", 1)
	f := parse(t, text)
	var asked []string
	p, _, err := f.Pair(func(side string, group int) (int, error) {
		asked = append(asked, side+" "+f.Model.Groups[group].Name)
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"source attention", "destination draft"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	// Kernel blocks hold for what is chosen too.
	if _, bit := p.Source.Ranks[0][0].Bit(0, 0, 0, 16, 0, 0); bit/8 != 4*16*16+4*4 {
		t.Errorf("token 16 lies at byte %d, want %d", bit/8, 4*16*16+4*4)
	}
	declined := errors.New("declined")
	if _, _, err := f.Pair(func(string, int) (int, error) { return 0, declined }); err != declined {
		t.Errorf("got %v, want the chooser's own error", err)
	}
	var e *pairfile.Error
	if _, _, err := f.Pair(nil); !errors.As(err, &e) || e.Field != "source.groups.attention.can" || !strings.Contains(e.Reason, "no default layout") {
		t.Errorf("nothing chooses: got %v", err)
	}
	if _, _, err := f.Pair(func(string, int) (int, error) { return 7, nil }); !errors.As(err, &e) || e.Field != "source.groups.attention.can" || e.Value != 7 {
		t.Errorf("a choice out of range: got %v", err)
	}
}

// A dtype of the side's holds for all groups, and says where it cannot.
func TestSideDTypeOfGroups(t *testing.T) {
	f := parse(t, strings.Replace(hybrid, "engine: decode\n", "engine: decode\n  dtype: fp16\n", 1))
	for _, g := range f.SideModel(&f.Destination).Groups {
		for _, c := range g.Components {
			if c.DType != geometry.FP16 {
				t.Errorf("%s.%s is %s, want fp16", g.Name, c.Name, c.DType)
			}
		}
	}
	// The source lacks no group before mamba; put the draft first, and it does.
	i, j := strings.Index(hybrid, "    - name: draft"), strings.Index(hybrid, "source:")
	k := strings.Index(hybrid, "    - name: attention")
	text := hybrid[:k] + hybrid[i:j] + hybrid[k:i] + hybrid[j:]
	_, err := pairfile.Parse("pair", []byte(strings.Replace(text, "engine: prefill\n", "engine: prefill\n  dtype: fp4\n", 1)))
	var e *pairfile.Error
	if !errors.As(err, &e) || e.Field != "source.dtype" || !strings.HasPrefix(e.Reason, "groups[1].components[1].dim is 1:") {
		t.Errorf("got %v, want the second group of the file", err)
	}
}

const canonicalHybrid = `kvferry: pair/1
model:
  name: hybrid
  layers: 6
  groups:
    - name: attention
      layers: "1,3-4"
      window: 64
      shared: {0: 1}
      components:
        - {name: k, heads: 8, dim: 16, dtype: fp8_e4m3}
        - {name: k_scale, heads: 8, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}
    - name: mamba
      layers: "2"
      state: true
      components:
        - {name: x, channels: 64, dim: 3, dtype: bf16}
        - {name: B, channels: 32, unit: 8, dim: 3, dtype: bf16}
    - name: draft
      layers: "5"
      optional: true
      components:
        - {name: kv, heads: 0, dim: 16, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 2, pp: [2, 4], dcp: {size: 1, interleave: 1}, rank_order: [pp, tp, dcp]}
  groups:
    attention:
      block: 32
      blocks: 8
      kernel_block: 16
      ring: 5
      layout:
        order: [block, {"k,k_scale": [component, head, token, dim]}]
    mamba:
      slots: 4
      shard: {tp: 4, pp: [6], dcp: {size: 1, interleave: 1}, rank_order: [pp, tp, dcp]}
      layout:
        order: [slot, channel, dim]
destination:
  engine: decode
  shard: {tp: 4, pp: [6], dcp: {size: 1, interleave: 1}, rank_order: [pp, tp, dcp]}
  groups:
    attention:
      block: 64
      blocks: 8
      layout:
        order: [block, head, {k: [dim, token], k_scale: [token, dim]}]
    mamba:
      slots: 2
      layout:
        order: [slot, {B: [channel, dim], x: [dim, channel]}]
    draft:
      block: 16
      blocks: 8
      can: [vllm/mla, sglang/mla]
`

func TestMarshalGroups(t *testing.T) {
	f := parse(t, hybrid)
	if got := string(pairfile.Marshal(f)); got != canonicalHybrid {
		t.Errorf("canonical text\n%s\nwant\n%s", got, canonicalHybrid)
	}
	roundTrip(t, f)
	i, j := strings.Index(canonicalHybrid, "model:"), strings.Index(canonicalHybrid, "source:")
	if got := string(pairfile.MarshalModel(f.Model)); got != canonicalHybrid[i:j] {
		t.Errorf("the model's text\n%s\nwant\n%s", got, canonicalHybrid[i:j])
	}
	// Names that YAML would read as something else.
	roundTrip(t, parse(t, strings.NewReplacer("name: mamba", `name: "true"`, "mamba:", `"true":`, "name: x,", `name: "1",`, "{x: [", `{"1": [`).Replace(hybrid)))
}

// The text of a file without groups, to the letter.
func TestMarshalPlain(t *testing.T) {
	want := `kvferry: pair/1
model:
  name: small
  layers: 4
  identity:
    "rope.theta": "500000"
    "rope.type": "llama3"
    "weights": "sha256:aa"
  components:
    - {name: k, heads: 8, dim: 16, dtype: bf16}
    - {name: v, heads: 8, dim: 16, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 2, pp: [3, 1], dcp: {size: 1, interleave: 1}, rank_order: [pp, tp, dcp]}
  block: 16
  blocks: 8
  layout:
    order: [block, head, token, component, dim]
    strides: {block: 32768}
    name: HND
destination:
  engine: decode
  shard: {tp: 4, pp: [4], dcp: {size: 2, interleave: 4}, rank_order: [tp, pp, dcp]}
  block: 32
  blocks: 8
  layout:
    order: [block, head, {k: [dim, token], v: [token, dim]}]
`
	if got := string(pairfile.Marshal(parse(t, example))); got != want {
		t.Errorf("canonical text\n%s\nwant\n%s", got, want)
	}
}

// An engine by itself has all its own groups; the pair has those in common.
func TestEngine(t *testing.T) {
	f := parse(t, hybrid)
	choose := func(string, int) (int, error) { return 0, nil }
	p, common, err := f.Pair(choose)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		side string
		has  int
		of   *plan.Side
		own  []int
	}{{pairfile.Source, 2, &p.Source, common.Source}, {pairfile.Destination, 3, &p.Destination, common.Destination}} {
		s, err := f.Engine(c.side, choose)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(c.side); err != nil || len(s.Groups) != c.has || !reflect.DeepEqual(s.Model, f.SideModel(f.Side(c.side))) {
			t.Errorf("%s: %d groups (%v), want %d", c.side, len(s.Groups), err, c.has)
		}
		for i, g := range c.own {
			if s.Model.Groups[g].Name != c.of.Model.Groups[i].Name || !s.Ranks[0][g].Equal(c.of.Ranks[0][i]) {
				t.Errorf("%s: group %d of the pair is not group %d of the engine", c.side, i, g)
			}
		}
	}
}
