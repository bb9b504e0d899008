package layout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// spot is where an element lies, by hand.
type spot struct {
	el     layout.Element
	region string
	byte   int64
}

// shape is an order of an extent with what is known of it by hand.
type shape struct {
	name    string
	extent  layout.Extent
	order   string
	strides map[string]int64
	regions []layout.Region
	spots   []spot
}

func (c *shape) check(t *testing.T) *layout.Layout {
	t.Helper()
	s := layout.Spec{Order: order(t, c.order), Strides: c.strides}
	l, err := s.Resolve(c.extent)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Regions) != len(c.regions) {
		t.Fatalf("regions %v, want %v", l.Regions, c.regions)
	}
	for i, r := range c.regions {
		if l.Regions[i] != r {
			t.Errorf("region %d is %v, want %v", i, l.Regions[i], r)
		}
	}
	for _, p := range c.spots {
		if r, bit := at(l, p.el); l.Regions[r].Name != p.region || bit != 8*p.byte {
			t.Errorf("%s lies at %s byte %d, want %s byte %d", p.el, l.Regions[r].Name, bit/8, p.region, p.byte)
		}
	}
	if why := overlap(l); why != "" {
		t.Error(why)
	}
	if why := (twin{s, c.extent}).compare(l); why != "" {
		t.Error(why)
	}
	return l
}

// scaled is kv in fp8 with a scale for each row: 2 layers (3 and 5), 3 blocks
// of 4 tokens, 2 heads of 8 bytes and a scale of 4 bytes.
func scaled() layout.Extent {
	return layout.Extent{Layers: []int{3, 5}, Blocks: 3, Tokens: 4, Heads: []int{2, 2, 2, 2}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 8, DType: geometry.FP8E4M3},
		{Name: "v", Heads: 8, Dim: 8, DType: geometry.FP8E4M3},
		{Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Scales: "k"},
		{Name: "v_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Scales: "v"},
	}}
}

// The components of scaled.
const (
	k = iota
	v
	kScale
	vScale
)

func TestBranches(t *testing.T) {
	last := func(c, l int) layout.Element {
		return layout.Element{Component: c, Layer: l, Block: 2, Token: 3, Head: 1}
	}
	for _, c := range []shape{
		{
			"sets in regions of their own", scaled(), "block head {k,k_scale: token component dim; v,v_scale: component token dim}", nil,
			// A row of K with its scale behind it; all rows of V, then all scales.
			[]layout.Region{{Name: "layer3.k+k_scale", Bytes: 288}, {Name: "layer3.v+v_scale", Bytes: 288}, {Name: "layer5.k+k_scale", Bytes: 288}, {Name: "layer5.v+v_scale", Bytes: 288}},
			[]spot{
				{last(k, 0), "layer3.k+k_scale", 2*96 + 48 + 3*12},
				{last(kScale, 1), "layer5.k+k_scale", 2*96 + 48 + 3*12 + 8},
				{last(v, 0), "layer3.v+v_scale", 2*96 + 48 + 3*8},
				{last(vScale, 1), "layer5.v+v_scale", 2*96 + 48 + 32 + 3*4},
			},
		},
		{
			"sets that hold all layers", scaled(), "layer block {k,k_scale: head token component dim; v,v_scale: head component token dim}", nil,
			[]layout.Region{{Name: "k+k_scale", Bytes: 576}, {Name: "v+v_scale", Bytes: 576}},
			[]spot{{last(kScale, 1), "k+k_scale", 288 + 2*96 + 48 + 3*12 + 8}, {last(vScale, 1), "v+v_scale", 288 + 2*96 + 48 + 32 + 3*4}},
		},
		{
			"sets behind one another", scaled(), "block component {k,k_scale: head token component dim; v,v_scale: head token component dim}", nil,
			[]layout.Region{{Name: "layer3", Bytes: 576}, {Name: "layer5", Bytes: 576}},
			[]spot{
				{last(k, 0), "layer3", 2*192 + 48 + 3*12},
				{last(kScale, 0), "layer3", 2*192 + 48 + 3*12 + 8},
				{last(v, 1), "layer5", 2*192 + 96 + 48 + 3*12},
				{last(vScale, 1), "layer5", 2*192 + 96 + 48 + 3*12 + 8},
			},
		},
		{
			"a set that says one thing of two, in the model's order", scaled(), "block component {k,k_scale: head token dim; v,v_scale: token head dim}", nil,
			[]layout.Region{{Name: "layer3", Bytes: 576}, {Name: "layer5", Bytes: 576}},
			[]spot{
				{last(k, 0), "layer3", 2*192 + 32 + 3*8},
				{last(v, 0), "layer3", 2*192 + 64 + 3*16 + 8},
				{last(kScale, 0), "layer3", 2*192 + 128 + 16 + 3*4},
				{last(vScale, 0), "layer3", 2*192 + 160 + 3*8 + 4},
			},
		},
		{
			"scales of the whole pool behind the rows", scaled(), "component {k,v: layer block head token component dim; k_scale,v_scale: layer block component head token dim}", nil,
			[]layout.Region{{Name: "pool", Bytes: 1152}},
			[]spot{
				{last(k, 1), "pool", 384 + 2*128 + 64 + 3*16},
				{last(v, 1), "pool", 384 + 2*128 + 64 + 3*16 + 8},
				{last(kScale, 1), "pool", 768 + 192 + 2*64 + 16 + 3*4},
				{last(vScale, 1), "pool", 768 + 192 + 2*64 + 32 + 16 + 3*4},
			},
		},
		{
			"a branch in a branch", scaled(), "block {k,k_scale: component head {k: dim/4 token dim%4; k_scale: token dim}; v: head token dim; v_scale: token head dim}", nil,
			[]layout.Region{{Name: "layer3.k+k_scale", Bytes: 288}, {Name: "layer3.v", Bytes: 192}, {Name: "layer3.v_scale", Bytes: 96},
				{Name: "layer5.k+k_scale", Bytes: 288}, {Name: "layer5.v", Bytes: 192}, {Name: "layer5.v_scale", Bytes: 96}},
			[]spot{
				{layout.Element{Component: k, Block: 2, Token: 3, Head: 1, Dim: 6}, "layer3.k+k_scale", 2*96 + 32 + 16 + 3*4 + 2},
				{last(kScale, 0), "layer3.k+k_scale", 2*96 + 64 + 16 + 3*4},
				{last(v, 1), "layer5.v", 2*64 + 32 + 3*8},
				{last(vScale, 1), "layer5.v_scale", 2*32 + 3*8 + 4},
			},
		},
		{
			"as deep as branches go", scaled(), "block {k,v,k_scale,v_scale: component {k,v,k_scale: component {k,k_scale: component {k: head token dim; k_scale: token head dim}; v: head token dim}; v_scale: head token dim}}", nil,
			[]layout.Region{{Name: "layer3.k+k_scale+v+v_scale", Bytes: 576}, {Name: "layer5.k+k_scale+v+v_scale", Bytes: 576}},
			[]spot{
				{last(k, 0), "layer3.k+k_scale+v+v_scale", 2*192 + 32 + 3*8},
				{last(kScale, 0), "layer3.k+k_scale+v+v_scale", 2*192 + 64 + 3*8 + 4},
				{last(v, 0), "layer3.k+k_scale+v+v_scale", 2*192 + 96 + 32 + 3*8},
				{last(vScale, 0), "layer3.k+k_scale+v+v_scale", 2*192 + 160 + 16 + 3*4},
			},
		},
		{
			"padded pages around sets", scaled(), "block component {k,k_scale: head token component dim; v,v_scale: head token component dim}", map[string]int64{"block": 256},
			[]layout.Region{{Name: "layer3", Bytes: 768}, {Name: "layer5", Bytes: 768}},
			[]spot{{last(vScale, 1), "layer5", 2*256 + 96 + 48 + 3*12 + 8}},
		},
		{
			"padded blocks of regions apart", scaled(), "block {k,k_scale: head token component dim; v: head token dim; v_scale: head token dim}", map[string]int64{"block": 128},
			[]layout.Region{{Name: "layer3.k+k_scale", Bytes: 384}, {Name: "layer3.v", Bytes: 384}, {Name: "layer3.v_scale", Bytes: 384},
				{Name: "layer5.k+k_scale", Bytes: 384}, {Name: "layer5.v", Bytes: 384}, {Name: "layer5.v_scale", Bytes: 384}},
			[]spot{{last(vScale, 1), "layer5.v_scale", 2*128 + 16 + 3*4}},
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t) })
	}
}

func TestBranchesRefused(t *testing.T) {
	const good = "head token component dim"
	for _, c := range []struct {
		name    string
		order   string
		strides map[string]int64
		field   string
		say     string
	}{
		{"a component in two sets", "block {k,v: " + good + "; k,k_scale: " + good + "; v_scale: head token dim}", nil, "order", `names component "k" twice`},
		{"a component twice in a set", "block {k,k: " + good + "; v,k_scale,v_scale: " + good + "}", nil, "order", `names component "k" twice`},
		{"a component in no set", "block {k,v: " + good + "; k_scale: head token dim}", nil, "order", `no items for component "v_scale"`},
		{"a stranger in a set", "block {k,v,w: " + good + "; k_scale: head token dim; v_scale: head token dim}", nil, "order", `no component "w"`},
		{"out of order", "block {v,k: " + good + "; k_scale,v_scale: " + good + "}", nil, "order", `names component "k" out of the model's order`},
		{"out of order inside", "block {k,v,k_scale,v_scale: head {k_scale,v: token component dim; k: token dim; v_scale: token dim}}", nil, "order", `names component "v" out of the model's order`},
		{"an empty name", "block {k,: " + good + "; v,k_scale,v_scale: " + good + "}", nil, "order", `no component ""`},
		{"of another branch", "block {k,v: head {k: token dim; v: token dim; k_scale: token dim}; k_scale,v_scale: " + good + "}", nil, "order", `component "k_scale" does not belong to this branch`},
		{"forgotten in a branch in a branch", "block {k,v: head {k: token dim}; k_scale,v_scale: " + good + "}", nil, "order", `no items for component "v"`},
		{"component twice in a branch", "block {k,v: component head token component dim; k_scale,v_scale: " + good + "}", nil, "order", "component stands twice"},
		{"too deep", "block {k,v,k_scale,v_scale: {k,v,k_scale,v_scale: {k,v,k_scale,v_scale: {k,v,k_scale,v_scale: {k,v,k_scale,v_scale: " + good + "}}}}}", nil, "order", "nest more than 4 deep"},
		{"an axis in one member's order only", "block {k,k_scale: component {k: head token dim; k_scale: token dim}; v,v_scale: " + good + "}", nil, "order", "head is missing for component k_scale"},
		{"an axis twice along the way down", "block head {k,k_scale: component head token dim; v,v_scale: token component dim}", nil, "order", "stands twice"},
		{"layer in one set", "block {k,k_scale: layer " + good + "; v,v_scale: " + good + "}", nil, "order", "some components only"},
		{"outside component with unequal widths", "block {k,k_scale: head token dim component; v,v_scale: " + good + "}", nil, "order", "takes 1 values in component k_scale, 8 in k"},
		{"a stride inside a branch", "block {k,k_scale: " + good + "; v,v_scale: " + good + "}", map[string]int64{"head": 4096}, "strides", "names no item outside component"},
		{"a stride smaller than a set", "block {k,k_scale: " + good + "; v,v_scale: " + good + "}", map[string]int64{"block": 95}, "strides.block", "smaller than what lies inside, 96 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := layout.Spec{Order: order(t, c.order), Strides: c.strides}.Resolve(scaled())
			var e *layout.Error
			if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v; want field %s and %q", err, c.field, c.say)
			}
		})
	}
	// What only Go code can write.
	branch := map[string][]layout.Entry{"k,v,k_scale,v_scale": order(t, good)}
	for name, en := range map[string]layout.Entry{
		"item and branch":      {Item: layout.Item{Axis: geometry.Block}, Branch: branch},
		"component and branch": {Component: true, Branch: branch},
		"an empty branch":      {Branch: map[string][]layout.Entry{}},
	} {
		var e *layout.Error
		if _, err := (layout.Spec{Order: append(order(t, "block"), en)}).Resolve(scaled()); !errors.As(err, &e) || e.Field != "order" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A branch that is not the last thing of a branch.
	inner := append([]layout.Entry{{Branch: branch}}, order(t, "token")...)
	var e *layout.Error
	if _, err := (layout.Spec{Order: append(order(t, "block"), layout.Entry{Branch: map[string][]layout.Entry{"k,v,k_scale,v_scale": inner}})}).Resolve(scaled()); !errors.As(err, &e) || !strings.Contains(err.Error(), "only the last entry may differ") {
		t.Errorf("got %v", err)
	}
}

// TestBranchText: keys of several components stand in quotes, as YAML wants
// them in a flow mapping.
func TestBranchText(t *testing.T) {
	s := layout.Spec{Order: order(t, "block component {v,v_scale: head token component dim; k,k_scale: component head {k_scale: token dim; k: dim token}}")}
	if got, want := s.Text(), `[block, component, {"k,k_scale": [component, head, {k: [dim, token], k_scale: [token, dim]}], "v,v_scale": [head, token, component, dim]}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
