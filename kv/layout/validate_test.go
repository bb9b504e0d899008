package layout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// packed is kv's extent in [block head token component dim].
func packed(t testing.TB, text string) *layout.Layout {
	t.Helper()
	l, err := layout.Spec{Order: order(t, text)}.Resolve(kv())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestValidateRefuses(t *testing.T) {
	const hnd = "block head token component dim"
	for _, c := range []struct {
		name   string
		order  string
		change func(l *layout.Layout)
		field  string
		say    string
	}{
		{"no layers", hnd, func(l *layout.Layout) { l.Extent.Layers = nil }, "layers", "want 1"},
		{"a layer twice", hnd, func(l *layout.Layout) { l.Extent.Layers = []int{41, 41} }, "layers[1]", "named twice"},
		{"layers down and twice", hnd, func(l *layout.Layout) { l.Extent.Layers = []int{42, 41, 42} }, "layers[2]", "named twice"},
		{"a layer beyond", hnd, func(l *layout.Layout) { l.Extent.Layers = []int{41, 1 << 14} }, "layers[1]", "layer numbers"},
		{"no blocks", hnd, func(l *layout.Layout) { l.Extent.Blocks = 0 }, "blocks", "want 1"},
		{"too many tokens", hnd, func(l *layout.Layout) { l.Extent.Tokens = 1 << 21 }, "block", "want 1"},
		{"negative heads", hnd, func(l *layout.Layout) { l.Extent.Heads = []int{2, -1} }, "heads[1]", "want 0"},
		{"no heads where there are", hnd, func(l *layout.Layout) { l.Extent.Heads = []int{2, 0} }, "heads[1]", "component v has 8 heads, the rank holds at least one"},
		{"more heads than the model", hnd, func(l *layout.Layout) { l.Extent.Heads = []int{2, 9} }, "heads[1]", "component v has 8 in the whole model"},
		{"more blocks than digits", hnd, func(l *layout.Layout) { l.Extent.Blocks = 4 }, "places[0][0]", "tile so many places of block"},
		{"no components", hnd, func(l *layout.Layout) { l.Extent.Components = nil }, "components", "want 1"},
		{"a component twice", hnd, func(l *layout.Layout) { l.Extent.Components[1].Name = "k" }, "components[1].name", "named twice"},
		{"no dtype", hnd, func(l *layout.Layout) { l.Extent.Components[1].DType = 0 }, "components[1].dtype", "no such dtype"},
		{"half rows", hnd, func(l *layout.Layout) {
			l.Extent.Components[1].Dim, l.Extent.Components[1].DType = 3, geometry.FP4
		}, "components[1].dim", "not whole bytes"},
		{"larger elements", hnd, func(l *layout.Layout) { l.Extent.Components[1].DType = geometry.FP32 }, "places[1][0]", "leave 16 bits for each, one takes 32"},
		{"no regions", hnd, func(l *layout.Layout) { l.Regions = nil }, "regions", "want 1"},
		{"an unused region", "layer " + hnd, func(l *layout.Layout) { l.Regions = append(l.Regions, layout.Region{Name: "other", Bytes: 8}) }, "regions[1]", "nothing lies in it"},
		{"a region twice", hnd, func(l *layout.Layout) { l.Regions[1].Name = "layer41" }, "regions[1].name", "named twice"},
		{"a region without name", hnd, func(l *layout.Layout) { l.Regions[1].Name = "" }, "regions[1].name", "text"},
		{"a region of no text", hnd, func(l *layout.Layout) { l.Regions[1].Name = "\xff" }, "regions[1].name", "text"},
		{"a small region", hnd, func(l *layout.Layout) { l.Regions[1].Bytes-- }, "places[1][1]", `region "layer42" has 767 bytes`},
		{"a huge region", hnd, func(l *layout.Layout) { l.Regions[1].Bytes = 1 << 47 }, "regions[1].bytes", "want 1"},
		{"no maps", hnd, func(l *layout.Layout) { l.Maps = nil }, "maps", "want 1"},
		{"an unused map", hnd, func(l *layout.Layout) { l.Maps = append(l.Maps, l.Maps[0][:3]) }, "maps[1]", "every map places something"},
		{"a map twice", hnd, func(l *layout.Layout) { l.Maps = append(l.Maps, l.Maps[0]) }, "maps[1]", "equal maps share an index"},
		{"a layer digit", hnd, func(l *layout.Layout) { l.Maps[0][0].Axis = geometry.Layer }, "maps[0]", "want block, token, head or dim"},
		{"a digit that is none", hnd, func(l *layout.Layout) { l.Maps[0][0].Div = 2 }, "maps[0]", "Div divides Mod"},
		{"no stride", hnd, func(l *layout.Layout) { l.Maps[0][3].Stride = 0 }, "maps[0]", "want a stride"},
		{"an overflowing stride", hnd, func(l *layout.Layout) { l.Maps[0][0].Stride = 1 << 62 }, "maps[0]", "want a stride"},
		{"unsorted", hnd, func(l *layout.Layout) { slices.Reverse(l.Maps[0]) }, "maps[0]", "sorted"},
		{"digits that tile nothing", hnd, func(l *layout.Layout) { l.Maps[0][1].Axis = geometry.Block }, "maps[0]", "do not tile"},
		{"too many digits", hnd, func(l *layout.Layout) { l.Maps[0] = make([]layout.Digit, 33) }, "maps[0]", "at most 32"},
		{"strides that do not nest", "block head token dim", func(l *layout.Layout) { l.Maps[0][0].Stride -= 8 }, "places[0][0]", "elements of component k overlap"},
		{"places of one component", hnd, func(l *layout.Layout) { l.Places = l.Places[:1] }, "places", "2 components"},
		{"places of one layer", hnd, func(l *layout.Layout) { l.Places[1] = l.Places[1][:1] }, "places[1]", "2 layers"},
		{"a place in no region", hnd, func(l *layout.Layout) { l.Places[1][1].Region = 2 }, "places[1][1]", "2 regions"},
		{"a place of no map", hnd, func(l *layout.Layout) { l.Places[1][1].Map = -1 }, "places[1][1]", "1 maps"},
		{"a negative offset", hnd, func(l *layout.Layout) { l.Places[1][1].Offset = -8 }, "places[1][1]", "not negative"},
		{"V on K", hnd, func(l *layout.Layout) { l.Places[1][1].Offset = 0 }, "places", "component k of layer 42 and component v of layer 42 overlap"},
		{"V on K by a bit", hnd, func(l *layout.Layout) { l.Places[1][1].Offset -= 1 }, "places", "overlap"},
		{"layers on one another", "layer " + hnd, func(l *layout.Layout) { l.Places[0][1], l.Places[1][1] = l.Places[0][0], l.Places[1][0] }, "places", "layer 41"},
		{"K of one layer on V of another", "layer component block head token dim", func(l *layout.Layout) { l.Places[0][1].Offset = l.Places[1][0].Offset }, "places", "component v of layer 41 and component k of layer 42"},
		{"a row of V between rows of K", "block component head token dim", func(l *layout.Layout) { l.Places[1][0].Offset = 64 * 8 }, "places", "overlap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := packed(t, c.order)
			l.Extent.Components = slices.Clone(l.Extent.Components)
			c.change(l)
			err := l.Validate()
			var e *layout.Error
			if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v; want field %s and %q", err, c.field, c.say)
			}
		})
	}
}

// TestValidatePeer changes what a peer can say of components, heads and states.
// Whatever it says, the message stays short.
func TestValidatePeer(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	states := func(f func(l *layout.Layout)) func(l *layout.Layout) {
		return func(l *layout.Layout) {
			*l = *resolve(t, mamba(), convDS, nil)
			l.Extent.Components, l.Extent.Heads = slices.Clone(l.Extent.Components), slices.Clone(l.Extent.Heads)
			f(l)
		}
	}
	for _, c := range []struct {
		name   string
		change func(l *layout.Layout)
		want   string
	}{
		{"no heads", func(l *layout.Layout) { l.Extent.Heads = nil }, "heads is 0: want a number for each of 4 components"},
		{"heads of some", func(l *layout.Layout) { l.Extent.Heads = l.Extent.Heads[:3] }, "heads is 3: want a number for each of 4 components"},
		{"heads of many", func(l *layout.Layout) { l.Extent.Heads = make([]int, 1<<20) }, "heads is 1048576: want a number for each of 4 components"},
		{"negative heads", func(l *layout.Layout) { l.Extent.Heads[3] = -1 }, "heads[3] is -1: want 0 (no heads) to 16384"},
		{"huge heads", func(l *layout.Layout) { l.Extent.Heads[3] = 1 << 60 }, "heads[3] is 1152921504606846976: want 0 (no heads) to 16384"},
		{"heads of none", func(l *layout.Layout) { l.Extent.Components[3].Heads = 0 }, "heads[3] is 2: component v_scale has 0 in the whole model"},
		{"none of some heads", func(l *layout.Layout) { l.Extent.Heads[3] = 0 }, "heads[3] is 0: component v_scale has 8 heads, the rank holds at least one"},
		{"more heads than the model", func(l *layout.Layout) { l.Extent.Heads[3] = 9 }, "heads[3] is 9: component v_scale has 8 in the whole model"},
		{"other heads than the digits", func(l *layout.Layout) { l.Extent.Heads[3] = 4 }, "places[3][0] is 2: the digits of map 3 tile so many places of head, component v_scale has 4"},
		{"a model of too many heads", func(l *layout.Layout) { l.Extent.Components[3].Heads = 1 << 15 }, "components[3].heads is 32768: want 0 (no heads) to 16384"},
		{"a model of negative heads", func(l *layout.Layout) { l.Extent.Components[3].Heads = -8 }, "components[3].heads is -8: want 0 (no heads) to 16384"},
		{"a unit of one", func(l *layout.Layout) { l.Extent.Components[3].Unit = 1 }, "components[3].unit is 1: want a divisor of the rank's 2 heads above 1, or nothing for 1"},
		{"a negative unit", func(l *layout.Layout) { l.Extent.Components[3].Unit = -2 }, "components[3].unit is -2: want a divisor of the rank's 2 heads above 1, or nothing for 1"},
		{"a unit larger than the rank's heads", func(l *layout.Layout) { l.Extent.Components[3].Unit = 4 }, "components[3].unit is 4: want a divisor of the rank's 2 heads above 1, or nothing for 1"},
		{"a unit of no heads", func(l *layout.Layout) {
			l.Extent.Components[3].Heads, l.Extent.Heads[3], l.Extent.Components[3].Unit = 0, 0, 1<<60
		}, "components[3].unit is 1152921504606846976: want a divisor of the rank's 0 heads above 1, or nothing for 1"},
		{"a unit that does not divide the model's heads", func(l *layout.Layout) { l.Extent.Components[3].Heads, l.Extent.Components[3].Unit = 7, 2 }, "components[3].unit is 2: want a divisor of the model's 7 heads"},
		{"an entry of one", func(l *layout.Layout) { l.Extent.Components[3].Entry = 1 }, "components[3].tokens_per_entry is 1: want a divisor of the block's 4 tokens above 1, or nothing for 1"},
		{"a negative entry", func(l *layout.Layout) { l.Extent.Components[3].Entry = -2 }, "components[3].tokens_per_entry is -2: want a divisor of the block's 4 tokens above 1, or nothing for 1"},
		{"an entry that does not divide", func(l *layout.Layout) { l.Extent.Components[3].Entry = 3 }, "components[3].tokens_per_entry is 3: want a divisor of the block's 4 tokens above 1, or nothing for 1"},
		{"an entry larger than a block", func(l *layout.Layout) { l.Extent.Components[3].Entry = 8 }, "components[3].tokens_per_entry is 8: want a divisor of the block's 4 tokens above 1, or nothing for 1"},
		{"a huge entry", func(l *layout.Layout) { l.Extent.Tokens, l.Extent.Components[3].Entry = 1<<20, 1<<20 }, "components[3].tokens_per_entry is 1048576: want a divisor of the block's 1048576 tokens above 1, or nothing for 1"},
		{"entries where the digits have tokens", func(l *layout.Layout) { l.Extent.Components[3].Entry = 2 }, "places[3][0] is 4: the digits of map 3 tile so many places of token, component v_scale has 2"},
		{"a scale of nothing", func(l *layout.Layout) { l.Extent.Components[3].Scales = "w" }, `components[3].scales is "w": names no other component`},
		{"a scale of a long name", func(l *layout.Layout) { l.Extent.Components[3].Scales = long }, `components[3].scales is "` + long[:128] + `...": names no other component`},
		{"a scale of itself", func(l *layout.Layout) { l.Extent.Components[3].Scales = "v_scale" }, `components[3].scales is "v_scale": names no other component`},
		{"a scale of a scale", func(l *layout.Layout) { l.Extent.Components[3].Scales = "k_scale" }, `components[3].scales is "k_scale": is a scale itself`},
		{"a long name", func(l *layout.Layout) { l.Extent.Components[3].Name = long }, `components[3].name is "` + long[:128] + `...": want 1 to 128 bytes of text`},
		{"a state of tokens", func(l *layout.Layout) { l.Extent.State = true }, "block is 4: a slot holds one state"},
		{"tokens of a state", states(func(l *layout.Layout) { l.Extent.Tokens = 4 }), "block is 4: a slot holds one state"},
		{"entries of a state", states(func(l *layout.Layout) { l.Extent.Components[0].Entry = 2 }), "components[0].tokens_per_entry is 2: want a divisor of the block's 1 tokens above 1, or nothing for 1"},
		{"channels parted inside a unit", states(func(l *layout.Layout) { l.Extent.Heads[1] = 2 }), "components[1].unit is 4: want a divisor of the rank's 2 heads above 1, or nothing for 1"},
		{"more slots than digits", states(func(l *layout.Layout) { l.Extent.Blocks = 4 }), "places[0][0] is 3: the digits of map 0 tile so many places of slot, component x has 4"},
		{"more channels than digits", states(func(l *layout.Layout) { l.Extent.Heads[0] = 16 }), "places[0][0] is 8: the digits of map 0 tile so many places of channel, component x has 16"},
		{"a component that fits no slot", states(func(l *layout.Layout) { l.Places[1][0].Offset -= 8 }), `places is region "layer0": component x of layer 0 and component B of layer 0 overlap, or interleave with strides that do not show that they lie apart`},
	} {
		l := resolve(t, scaled(), "block component {k: head token dim; v: token head dim; k_scale: head token dim; v_scale: token head dim}", nil)
		l.Extent.Components = slices.Clone(l.Extent.Components)
		c.change(l)
		err := l.Validate()
		var e *layout.Error
		if !errors.As(err, &e) || err.Error() != "layout: "+c.want {
			t.Errorf("%s:\ngot  %.300v\nwant layout: %.300s", c.name, err, c.want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: a message of %d bytes", c.name, len(err.Error()))
		}
	}
}

// TestValidateHandmade has layouts that no order gives and that are legal.
func TestValidateHandmade(t *testing.T) {
	e := kv()
	e.Layers = e.Layers[:1]
	digits := func(block, head, token, dim int64) []layout.Digit {
		return []layout.Digit{{Axis: geometry.Block, Mod: 3, Div: 1, Stride: block * 8}, {Axis: geometry.Head, Mod: 2, Div: 1, Stride: head * 8},
			{Axis: geometry.Token, Mod: 4, Div: 1, Stride: token * 8}, {Axis: geometry.Dim, Mod: 8, Div: 1, Stride: dim * 8}}
	}
	for name, l := range map[string]*layout.Layout{
		"V before K, and padding before both": {
			Regions: []layout.Region{{Name: "r", Bytes: 868}},
			Maps:    [][]layout.Digit{digits(300, 64, 16, 2)},
			Places:  [][]layout.Place{{{Offset: 140 * 8}}, {{Offset: 12 * 8}}},
		},
		"an axis of one coordinate with a digit": {
			Extent:  layout.Extent{Layers: []int{0}, Blocks: 1, Tokens: 1, Heads: []int{0}, Components: []geometry.Component{{Name: "c", Dim: 8, DType: geometry.Int8}}},
			Regions: []layout.Region{{Name: "r", Bytes: 8}},
			Maps:    [][]layout.Digit{{{Axis: geometry.Block, Mod: 1, Div: 1, Stride: 64}, {Axis: geometry.Dim, Mod: 8, Div: 1, Stride: 8}}},
			Places:  [][]layout.Place{{{}}},
		},
	} {
		if len(l.Extent.Layers) == 0 {
			l.Extent = e
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if why := overlap(l); why != "" {
			t.Errorf("%s: the test is wrong: %s", name, why)
		}
	}
}

// llama70b is a rank of the reference model.
func llama70b(layers int) layout.Extent {
	e := layout.Extent{Blocks: 256, Tokens: 16, Heads: []int{4, 4}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 128, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 128, DType: geometry.BF16}}}
	for i := range layers {
		e.Layers = append(e.Layers, i)
	}
	return e
}

func BenchmarkValidate(b *testing.B) {
	for _, text := range []string{"block head token component dim", "block head layer token component dim", "block token head dim"} {
		l, err := layout.Spec{Order: order(b, text)}.Resolve(llama70b(80))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				if err := l.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	s := layout.Spec{Order: order(b, "block head token component dim")}
	for b.Loop() {
		if _, err := s.Resolve(llama70b(80)); err != nil {
			b.Fatal(err)
		}
	}
}
