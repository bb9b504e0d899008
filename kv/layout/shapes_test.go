package layout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// byHand compares every element of an extent with arithmetic by hand.
func byHand(t *testing.T, l *layout.Layout, where func(el layout.Element) (region string, byte float64)) {
	t.Helper()
	elements(l.Extent, func(el layout.Element) {
		r, bit := at(l, el)
		if region, byte := where(el); l.Regions[r].Name != region || float64(bit) != 8*byte {
			t.Fatalf("%s lies at bit %d of %s, want byte %v of %s", el, bit, l.Regions[r].Name, byte, region)
		}
	})
	if why := overlap(l); why != "" {
		t.Error(why)
	}
}

func resolve(t testing.TB, e layout.Extent, text string, strides map[string]int64) *layout.Layout {
	t.Helper()
	l, err := layout.Spec{Order: order(t, text), Strides: strides}.Resolve(e)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestMixedRows: an MLA row of 656 bytes is 512 fp8 latents, four scales, one
// for 128 of them, and 64 rope elements in bf16.
func TestMixedRows(t *testing.T) {
	e := layout.Extent{Layers: []int{4}, Blocks: 2, Tokens: 4, Heads: []int{0, 0, 0}, Components: []geometry.Component{
		{Name: "latent", Dim: 512, DType: geometry.FP8E4M3}, {Name: "scale", Dim: 4, DType: geometry.FP32, Scales: "latent"}, {Name: "rope", Dim: 64, DType: geometry.BF16}}}
	l := resolve(t, e, "block token component dim", nil)
	if want := (layout.Region{Name: "layer4", Bytes: 2 * 4 * 656}); len(l.Regions) != 1 || l.Regions[0] != want {
		t.Errorf("got %v, want %v", l.Regions, want)
	}
	byHand(t, l, func(el layout.Element) (string, float64) {
		inside := []int64{el.Dim, 512 + 4*el.Dim, 528 + 2*el.Dim}[el.Component]
		return "layer4", float64((el.Block*4+el.Token)*656 + inside)
	})
}

// TestIndexer: a block of a sparse indexer holds all its keys, then all their
// scales: 64 * (128 + 4) bytes.
func TestIndexer(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 64, Heads: []int{0, 0}, Components: []geometry.Component{
		{Name: "index", Dim: 128, DType: geometry.FP8E4M3}, {Name: "index_scale", Dim: 1, DType: geometry.FP32, Scales: "index"}}}
	l := resolve(t, e, "block component token dim", nil)
	if want := (layout.Region{Name: "layer0", Bytes: 2 * 8448}); len(l.Regions) != 1 || l.Regions[0] != want {
		t.Errorf("got %v, want %v", l.Regions, want)
	}
	byHand(t, l, func(el layout.Element) (string, float64) {
		if el.Component == 0 {
			return "layer0", float64(el.Block*8448 + el.Token*128 + el.Dim)
		}
		return "layer0", float64(el.Block*8448 + 8192 + el.Token*4)
	})
}

// TestPackedHalfBytes: nvfp4 as [B, 2H, N, D/2 + D/16]: the heads of K, then
// those of V, each row with one fp8 scale for 16 elements behind it.
func TestPackedHalfBytes(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 4, Heads: []int{2, 2, 2, 2}, Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 128, DType: geometry.FP4}, {Name: "v", Heads: 4, Dim: 128, DType: geometry.FP4},
		{Name: "k_scale", Heads: 4, Dim: 8, DType: geometry.FP8E4M3, Scales: "k"}, {Name: "v_scale", Heads: 4, Dim: 8, DType: geometry.FP8E4M3, Scales: "v"}}}
	const row = 128/2 + 128/16
	byHand(t, resolve(t, e, "block component {k,k_scale: head token component dim; v,v_scale: head token component dim}", nil), func(el layout.Element) (string, float64) {
		c := int64(el.Component)
		at := float64(((el.Block*4+c%2*2+el.Head)*4 + el.Token) * row)
		if c < 2 {
			return "layer0", at + float64(el.Dim)/2
		}
		return "layer0", at + 64 + float64(el.Dim)
	})
	// K and V side by side for each head: [B, H, N, 2, ...].
	byHand(t, resolve(t, e, "block head token component {k,k_scale: component dim; v,v_scale: component dim}", nil), func(el layout.Element) (string, float64) {
		c := int64(el.Component)
		at := float64((((el.Block*2+el.Head)*4+el.Token)*2 + c%2) * row)
		if c < 2 {
			return "layer0", at + float64(el.Dim)/2
		}
		return "layer0", at + 64 + float64(el.Dim)
	})
}

// TestEntries: a component with an entry for several tokens has block/e places
// on its token axis, and need not name the axis where that is one.
func TestEntries(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 16, Heads: []int{0, 0, 0}, Components: []geometry.Component{
		{Name: "window", Dim: 8, DType: geometry.BF16}, {Name: "four", Dim: 8, DType: geometry.BF16, Entry: 4}, {Name: "all", Dim: 2, DType: geometry.FP32, Entry: 16}}}
	// 16 rows of 16 bytes, 4 rows of 16 bytes, 8 bytes: 328 a block.
	place := func(el layout.Element) (string, float64) {
		inside := []int64{el.Token*16 + 2*el.Dim, 256 + el.Token*16 + 2*el.Dim, 320 + 4*el.Dim}[el.Component]
		return "layer0", float64(el.Block*328 + inside)
	}
	for _, text := range []string{
		"block component {window: token dim; four: token dim; all: token dim}",
		"block component {window: token dim; four: token/2 token%2 dim; all: dim}",
		"block component token dim",
	} {
		l := resolve(t, e, text, nil)
		byHand(t, l, place)
		if n := len(l.Maps[l.Places[2][0].Map]); n != 2 { // block and dim
			t.Errorf("%s: the component of one entry a block has %d digits", text, n)
		}
	}
	byHand(t, resolve(t, e, "block {window: token dim; four: token dim; all: dim}", nil), func(el layout.Element) (string, float64) {
		return []string{"layer0.window", "layer0.four", "layer0.all"}[el.Component],
			float64([]int64{(el.Block*16+el.Token)*16 + 2*el.Dim, (el.Block*4+el.Token)*16 + 2*el.Dim, el.Block*8 + 4*el.Dim}[el.Component])
	})
	for _, c := range []struct{ order, say string }{
		{"block component {window: dim; four: token dim; all: dim}", "token is missing for component window"},
		{"block component {window: token dim; four: dim; all: dim}", "token is missing for component four"},
		{"block component {window: token dim; four: token/8 token%8 dim; all: dim}", "8 does not divide 4 places of token"},
		{"block token component dim", "takes 4 values in component four, 16 in window"},
	} {
		var le *layout.Error
		if _, err := (layout.Spec{Order: order(t, c.order)}).Resolve(e); !errors.As(err, &le) || le.Field != "order" || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: got %v, want %q", c.order, err, c.say)
		}
	}
	// Samples count in entries.
	var tokens [3][]int64
	for _, el := range layout.Samples(e) {
		if !slices.Contains(tokens[el.Component], el.Token) {
			tokens[el.Component] = append(tokens[el.Component], el.Token)
		}
	}
	if want := [3][]int64{{0, 1, 2, 4, 8, 15}, {0, 1, 2, 3}, {0}}; !slices.Equal(tokens[0], want[0]) || !slices.Equal(tokens[1], want[1]) || !slices.Equal(tokens[2], want[2]) {
		t.Errorf("sampled tokens %v, want %v", tokens, want)
	}
	l := resolve(t, e, "block component token dim", nil)
	seen := observe(l, layout.Samples(e))
	seen[len(seen)-1].Token = 1
	var le *layout.Error
	if _, err := layout.Infer(seen, e, l.Regions); !errors.As(err, &le) || !strings.Contains(err.Error(), "token is 1: want 0 to 0") {
		t.Errorf("a sample of no entry: got %v", err)
	}
}

// TestPackedKeys: keys as [B, H, D/x, N, x] beside values as [B, H, D, N], with
// a scale a block behind both.
func TestPackedKeys(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 4, Heads: []int{2, 2, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 32, DType: geometry.FP8E4M3}, {Name: "v", Heads: 4, Dim: 16, DType: geometry.BF16}, {Name: "scale", Dim: 2, DType: geometry.FP32, Entry: 4, Scales: "k"}}}
	byHand(t, resolve(t, e, "block component {k: head dim/16 token dim%16; v: head dim token; scale: dim}", map[string]int64{"block": 1024}), func(el layout.Element) (string, float64) {
		inside := []int64{
			el.Head*128 + el.Dim/16*64 + el.Token*16 + el.Dim%16,
			256 + el.Head*128 + el.Dim*8 + el.Token*2,
			512 + el.Dim*4,
		}[el.Component]
		return "layer0", float64(el.Block*1024 + inside)
	})
}

// TestMixedClaims: a label says where heads and tokens lie; a component without
// heads beside others that have some contradicts no place of the heads.
func TestMixedClaims(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 4, Heads: []int{2, 2, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 8, DType: geometry.FP8E4M3}, {Name: "v", Heads: 4, Dim: 8, DType: geometry.FP8E4M3}, {Name: "scale", Dim: 1, DType: geometry.FP32, Scales: "k"}}}
	for _, c := range []struct{ order, claim, actual string }{
		{"block component {k,v: head token component dim; scale: token dim}", "HND", ""},
		{"block component {k,v: head token component dim; scale: token dim}", "NHD", "HND"},
		{"block component {k,v: token head component dim; scale: token dim}", "NHD", ""},
		{"layer block component {k: head token dim; v: token head dim; scale: token dim}", "HND", "NHD"},
		{"component {k,v: block head token component dim; scale: token block dim}", "HND", ""},
	} {
		_, err := layout.Spec{Name: c.claim, Order: order(t, c.order)}.Resolve(e)
		var ce *layout.ClaimError
		if c.actual == "" && err != nil || c.actual != "" && (!errors.As(err, &ce) || ce.Actual != c.actual || ce.Component == "scale") {
			t.Errorf("%s as %s: got %v, want to hear of %q", c.order, c.claim, err, c.actual)
		}
	}
}

// TestMixedTensors registers components of unequal heads and entries, a view
// each, and a cache of kernel blocks as an engine has it.
func TestMixedTensors(t *testing.T) {
	e := layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 8, Heads: []int{4, 2, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 4, DType: geometry.BF16}, {Name: "v", Heads: 4, Dim: 4, DType: geometry.BF16}, {Name: "four", Dim: 4, DType: geometry.BF16, Entry: 4}}}
	const size = 8*4*8 + 8*2*8 + 2*8
	region := layout.Region{Name: "r", Bytes: 2 * size}
	good := func() []layout.Tensor {
		return []layout.Tensor{
			// Kernel blocks of two tokens, heads outermost in each.
			{Region: region, Shape: []int64{2, 4, 4, 2, 4}, Strides: []int64{size, 64, 16, 8, 2}, Dims: dims("block token/2 head token%2 dim"), DType: geometry.BF16, Components: []string{"k"}, Layers: []int{0}},
			{Region: region, Offset: 256, Shape: []int64{2, 8, 2, 4}, Strides: []int64{size, 16, 8, 2}, Dims: dims("block token head dim"), DType: geometry.BF16, Components: []string{"v"}, Layers: []int{0}},
			{Region: region, Offset: 384, Shape: []int64{2, 2, 4}, Strides: []int64{size, 8, 2}, Dims: dims("block token dim"), DType: geometry.BF16, Components: []string{"four"}, Layers: []int{0}},
		}
	}
	l, err := layout.FromTensors(good(), e)
	if err != nil {
		t.Fatal(err)
	}
	byHand(t, l, func(el layout.Element) (string, float64) {
		inside := []int64{el.Token/2*64 + el.Head*16 + el.Token%2*8, 256 + el.Token*16 + el.Head*8, 384 + el.Token*8}[el.Component]
		return "r", float64(el.Block*size + inside + 2*el.Dim)
	})
	for _, c := range []struct {
		name   string
		change func(ts []layout.Tensor)
		want   string
	}{
		{"unequal heads in one", func(ts []layout.Tensor) {
			ts[1].Components, ts[1].Dims, ts[1].Shape, ts[1].Strides = []string{"k", "v"}, dims("block component token head dim"), []int64{2, 2, 8, 2, 4}, []int64{size, 128, 16, 8, 2}
		}, "layout: tensors[1].components[1] is v: has other heads or entries a block than k: register a view each"},
		{"unequal entries in one", func(ts []layout.Tensor) { ts[2].Components = []string{"v", "four"} }, "layout: tensors[2].components[1] is four: has other heads or entries a block than v: register a view each"},
		{"heads of none", func(ts []layout.Tensor) {
			ts[2].Dims, ts[2].Shape, ts[2].Strides = dims("block token head dim"), []int64{2, 2, 1, 4}, []int64{size, 8, 8, 2}
		}, "layout: tensors[2].dims[2] is head: the components have no heads"},
		{"the heads of another", func(ts []layout.Tensor) { ts[1].Shape[2] = 4 }, "layout: tensors[1].shape[2] is 4: dimension head of 2 places of head is another"},
		{"tokens for entries", func(ts []layout.Tensor) { ts[2].Shape[1] = 8 }, "layout: tensors[2].shape[1] is 8: dimension token of 2 places of token is another"},
		{"slots", func(ts []layout.Tensor) { ts[2].Dims[0] = "slot" }, "layout: tensors[2].dims[0] is slot: no axis of the group"},
	} {
		ts := good()
		c.change(ts)
		if _, err := layout.FromTensors(ts, e); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
	both := e
	both.Heads = []int{0, 0}
	both.Components = []geometry.Component{{Name: "latent", Dim: 4, DType: geometry.BF16}, e.Components[2]}
	_, err = layout.FromTensors([]layout.Tensor{{Region: layout.Region{Name: "r", Bytes: 256}, Shape: []int64{2, 2, 8, 4}, Strides: []int64{128, 64, 8, 2}, Dims: dims("block component token dim"), DType: geometry.BF16, Components: []string{"latent", "four"}, Layers: []int{0}}}, both)
	if want := "layout: tensors[0].components[1] is four: has other heads or entries a block than latent: register a view each"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// Where a block has one entry, the axis need not be registered.
	one := e
	one.Components = []geometry.Component{{Name: "eight", Dim: 4, DType: geometry.BF16, Entry: 8}}
	one.Heads = []int{0}
	a, err := layout.FromTensors([]layout.Tensor{{Region: layout.Region{Name: "r", Bytes: 16}, Shape: []int64{2, 4}, Strides: []int64{8, 2}, Dims: dims("block dim"), DType: geometry.BF16, Components: []string{"eight"}, Layers: []int{0}}}, one)
	if err != nil {
		t.Fatal(err)
	}
	byHand(t, a, func(el layout.Element) (string, float64) { return "r", float64(el.Block*8 + 2*el.Dim) })
}
