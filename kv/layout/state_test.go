package layout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// mamba is the state of a small Mamba2 layer on a rank: a convolution of width
// 4 (three columns kept) over 8 channels of x and 4 each of B and C, and 2
// heads of a state of 5.
func mamba() layout.Extent {
	return layout.Extent{Layers: []int{0, 2}, Blocks: 3, Tokens: 1, State: true, Heads: []int{8, 4, 4, 2}, Components: []geometry.Component{
		{Name: "x", Heads: 32, Dim: 3, DType: geometry.BF16},
		{Name: "B", Heads: 16, Unit: 4, Dim: 3, DType: geometry.BF16},
		{Name: "C", Heads: 16, Unit: 4, Dim: 3, DType: geometry.BF16},
		{Name: "ssm", Heads: 8, Dim: 5, DType: geometry.FP32},
	}}
}

const (
	convDS = "slot component {x,B,C: component channel dim; ssm: channel dim}" // [channels, width-1]
	convSD = "slot component {x,B,C: dim component channel; ssm: channel dim}" // [width-1, channels]
)

// mambaPlace is where an element lies in a slot of 96 bytes of convolution and
// 40 of state, by hand.
func mambaPlace(el layout.Element, sd bool) int64 {
	channel := []int64{0, 8, 12}
	switch {
	case el.Component == 3:
		return 96 + el.Head*20 + el.Dim*4
	case sd:
		return el.Dim*32 + (channel[el.Component]+el.Head)*2
	}
	return (channel[el.Component]+el.Head)*6 + el.Dim*2
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		order   string
		sd      bool
		strides map[string]int64
		slot    int64
	}{
		{convDS, false, nil, 136},
		{convSD, true, nil, 136},
		{convDS, false, map[string]int64{"slot": 256}, 256}, // a page as large as that of attention
		{convSD, true, map[string]int64{"slot": 4096}, 4096},
		{"slot component {x,B,C: component channel dim; ssm: channel/2 channel%2 dim}", false, nil, 136},
	} {
		l := resolve(t, mamba(), c.order, c.strides)
		want := []layout.Region{{Name: "layer0", Bytes: 3 * c.slot}, {Name: "layer2", Bytes: 3 * c.slot}}
		if !slices.Equal(l.Regions, want) {
			t.Errorf("%s: got %v, want %v", c.order, l.Regions, want)
		}
		byHand(t, l, func(el layout.Element) (string, float64) {
			return fmt.Sprintf("layer%d", 2*el.Layer), float64(el.Block*c.slot + mambaPlace(el, c.sd))
		})
	}
	// Layers in one pool, and convolution and state in regions of their own.
	byHand(t, resolve(t, mamba(), "slot layer component {x,B,C: dim component channel; ssm: channel dim}", nil), func(el layout.Element) (string, float64) {
		return "pool", float64((el.Block*2+int64(el.Layer))*136 + mambaPlace(el, true))
	})
	byHand(t, resolve(t, mamba(), "slot {x,B,C: component channel dim; ssm: channel dim}", nil), func(el layout.Element) (string, float64) {
		if el.Component == 3 {
			return fmt.Sprintf("layer%d.ssm", 2*el.Layer), float64(el.Block*40 + mambaPlace(el, false) - 96)
		}
		return fmt.Sprintf("layer%d.x+B+C", 2*el.Layer), float64(el.Block*96 + mambaPlace(el, false))
	})
	// The two orders of the convolution are of one size and nothing alike.
	if resolve(t, mamba(), convDS, nil).Equal(resolve(t, mamba(), convSD, nil)) {
		t.Error("DS and SD are the same")
	}
}

func TestStatesRefused(t *testing.T) {
	change := func(f func(e *layout.Extent)) layout.Extent {
		e := mamba()
		f(&e)
		return e
	}
	for _, c := range []struct {
		name   string
		extent layout.Extent
		order  string
		want   string
	}{
		{"blocks", mamba(), "block component {x,B,C: component channel dim; ssm: channel dim}", "layout: order is block: want layer, slot, channel or dim in a state"},
		{"heads", mamba(), "slot component {x,B,C: component head dim; ssm: channel dim}", "layout: order is head: want layer, slot, channel or dim in a state"},
		{"tokens", mamba(), "slot token component {x,B,C: component channel dim; ssm: channel dim}", "layout: order is token: want layer, slot, channel or dim in a state"},
		{"slots of tokens", kv(), "slot head token component dim", "layout: order is slot: want layer, block, token, head or dim"},
		{"channels of tokens", kv(), "block channel token component dim", "layout: order is channel: want layer, block, token, head or dim"},
		{"no slot", mamba(), "component {x,B,C: component channel dim; ssm: channel dim}", "layout: order is [component, {ssm: [channel, dim], \"x,B,C\": [component, channel, dim]}]: slot is missing for component x: only layer and component may be left out"},
		{"no channel", mamba(), "slot component {x,B,C: component channel dim; ssm: dim}", "layout: order is [slot, component, {ssm: [dim], \"x,B,C\": [component, channel, dim]}]: channel is missing for component ssm: only layer and component may be left out"},
		{"channels outside component", mamba(), "slot component {x,B,C: channel component dim; ssm: channel dim}", "layout: order is channel: stands outside component and takes 4 values in component B, 8 in x"},
		{"channels that do not tile", mamba(), "slot component {x,B,C: component channel/2 dim; ssm: channel dim}", "layout: order is [slot, component, {ssm: [channel, dim], \"x,B,C\": [component, channel/2, dim]}]: the items of channel do not tile its 8 places: the part below 2 is missing"},
		{"slots that do not divide", mamba(), "slot/2 slot%2 component {x,B,C: component channel dim; ssm: channel dim}", "layout: order is slot/2: 2 does not divide 3 places of slot"},
		{"tokens a slot", change(func(e *layout.Extent) { e.Tokens = 2 }), convDS, "layout: block is 2: a slot holds one state"},
		{"entries", change(func(e *layout.Extent) { e.Components[1].Entry = 2 }), convDS, "layout: components[1].tokens_per_entry is 2: want a divisor of the block's 1 tokens above 1, or nothing for 1"},
	} {
		_, err := layout.Spec{Order: order(t, c.order)}.Resolve(c.extent)
		var e *layout.Error
		if !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
	// A label of heads and tokens says nothing that could be true of a state.
	_, err := layout.Spec{Name: "HND", Order: order(t, convDS)}.Resolve(mamba())
	var ce *layout.ClaimError
	if !errors.As(err, &ce) || ce.Claim != "HND" || !strings.Contains(err.Error(), "a state, which has slots and channels") {
		t.Errorf("got %v", err)
	}
	if err := resolve(t, mamba(), convDS, nil).Claim("NHD"); !errors.As(err, &ce) || ce.Claim != "NHD" {
		t.Errorf("got %v", err)
	}
}

// TestStateTensors: engines register the convolution as one tensor over the
// channels of all, which are views of unequal heights: one each.
func TestStateTensors(t *testing.T) {
	for _, sd := range []bool{false, true} {
		var ts []layout.Tensor
		for li, layer := range []int{0, 2} {
			region := layout.Region{Name: fmt.Sprintf("page%d", layer), Bytes: 3 * 256}
			for ci, c := range mamba().Components {
				channels := int64(mamba().Heads[ci])
				v := layout.Tensor{Region: region, Shape: []int64{3, channels, int64(c.Dim)}, Strides: []int64{256, 6, 2}, Dims: dims("slot channel dim"),
					DType: c.DType, Components: []string{c.Name}, Layers: []int{layer}}
				switch {
				case c.Name == "ssm":
					v.Strides = []int64{256, 20, 4}
				case sd: // [slots, width-1, channels]
					v.Shape, v.Strides, v.Dims = []int64{3, int64(c.Dim), channels}, []int64{256, 32, 2}, dims("slot dim channel")
				}
				v.Offset = mambaPlace(layout.Element{Component: ci, Layer: li}, sd)
				ts = append(ts, v)
			}
		}
		l, err := layout.FromTensors(ts, mamba())
		if err != nil {
			t.Fatal(err)
		}
		byHand(t, l, func(el layout.Element) (string, float64) {
			return fmt.Sprintf("page%d", 2*el.Layer), float64(el.Block*256 + mambaPlace(el, sd))
		})
		for _, c := range []struct {
			name   string
			change func(ts []layout.Tensor)
			want   string
		}{
			{"a block of a state", func(ts []layout.Tensor) { ts[3].Dims = dims("block channel dim") }, "layout: tensors[3].dims[0] is block: no axis of the group"},
			{"a head of a state", func(ts []layout.Tensor) { ts[3].Dims = dims("slot head dim") }, "layout: tensors[3].dims[1] is head: no axis of the group"},
			{"other channels", func(ts []layout.Tensor) { ts[3].Shape = []int64{3, 4, 5} }, "layout: tensors[3].shape[1] is 4: dimension channel of 2 places of channel is another"},
			{"no channels", func(ts []layout.Tensor) {
				ts[3].Dims, ts[3].Shape, ts[3].Strides = dims("slot dim"), []int64{3, 5}, []int64{256, 4}
			}, "layout: tensors[3].dims is [slot dim]: the dimensions of channel do not tile its 2 places"},
			{"unequal channels in one tensor", func(ts []layout.Tensor) {
				ts[0].Components, ts[0].Dims, ts[0].Shape, ts[0].Strides = []string{"x", "B"}, dims("slot component channel dim"), []int64{3, 2, 8, 3}, []int64{256, 48, 6, 2}
			}, "layout: tensors[0].components[1] is B: has other heads or entries a block than x: register a view each"},
			{"the claim of heads", func(ts []layout.Tensor) { ts[3].Claim = "HND" }, "layout: the label says HND, the strides of component x say a state, which has slots and channels"},
		} {
			own := slices.Clone(ts)
			c.change(own)
			if _, err := layout.FromTensors(own, mamba()); err == nil || err.Error() != c.want {
				t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
			}
		}
	}
	// B and C have equal heights: one tensor may hold both.
	l := resolve(t, mamba(), convDS, nil)
	var ts []layout.Tensor
	for li, layer := range []int{0, 2} {
		at := func(c int) int64 { return mambaPlace(layout.Element{Component: c, Layer: li}, false) }
		r := l.Regions[li]
		ts = append(ts,
			layout.Tensor{Region: r, Shape: []int64{3, 8, 3}, Strides: []int64{136, 6, 2}, Dims: dims("slot channel dim"), DType: geometry.BF16, Components: []string{"x"}, Layers: []int{layer}},
			layout.Tensor{Region: r, Offset: at(1), Shape: []int64{3, 2, 4, 3}, Strides: []int64{136, 24, 6, 2}, Dims: dims("slot component channel dim"), DType: geometry.BF16, Components: []string{"B", "C"}, Layers: []int{layer}},
			layout.Tensor{Region: r, Offset: at(3), Shape: []int64{3, 2, 5}, Strides: []int64{136, 20, 4}, Dims: dims("slot channel dim"), DType: geometry.FP32, Components: []string{"ssm"}, Layers: []int{layer}})
	}
	got, err := layout.FromTensors(ts, mamba())
	if err != nil || !got.Equal(l) {
		t.Errorf("got %v", err)
	}
}

// TestStateSamples: what is written into a scratch slot is enough to find DS
// and SD again, and to tell them apart.
func TestStateSamples(t *testing.T) {
	ds, sd := resolve(t, mamba(), convDS, nil), resolve(t, mamba(), convSD, nil)
	for _, l := range []*layout.Layout{ds, sd} {
		seen := observe(l, layout.Samples(mamba()))
		got, err := layout.Infer(seen, mamba(), l.Regions)
		if err != nil || !got.Equal(l) {
			t.Errorf("got %v", err)
		}
	}
	// A kernel that writes x as SD and the rest as DS is found out as neither.
	seen := observe(ds, layout.Samples(mamba()))
	for i, s := range observe(sd, layout.Samples(mamba())) {
		if s.Component == 0 {
			seen[i] = s
		}
	}
	got, err := layout.Infer(seen, mamba(), ds.Regions)
	if err == nil {
		t.Errorf("a layout in which they overlap was found:\n%s", got.Text())
	}
}
