package layout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// dense returns the byte strides of a contiguous tensor.
func dense(element int64, shape ...int64) []int64 {
	out := make([]int64, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = element
		element *= shape[i]
	}
	return out
}

func dims(text string) []string { return strings.Fields(text) }

func TestFromTensors(t *testing.T) {
	one := kv() // layer 41 only
	one.Layers = one.Layers[:1]
	region := layout.Region{Name: "r", Bytes: 768}
	both := []string{"k", "v"}
	fp4 := one
	fp4.Components, fp4.Heads = []geometry.Component{{Name: "k", Heads: 8, Dim: 8, DType: geometry.FP4}}, []int{2}
	unequal := one
	unequal.Components = []geometry.Component{{Name: "k", Heads: 8, Dim: 8, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 4, DType: geometry.BF16}}
	for _, c := range []struct {
		name    string
		extent  layout.Extent
		tensors []layout.Tensor
		// place is where an element lies, in bytes, by the strides of the tensor.
		place func(el layout.Element) (region string, byte float64)
	}{
		{
			"packed", one,
			[]layout.Tensor{{Region: region, Shape: []int64{3, 2, 4, 2, 8}, Strides: dense(2, 3, 2, 4, 2, 8), Dims: dims("block head token component dim"),
				DType: geometry.BF16, Components: both, Layers: []int{41}, Claim: "HND"}},
			func(el layout.Element) (string, float64) {
				return "r", float64((((el.Block*2+el.Head)*4+el.Token)*2+int64(el.Component))*16 + el.Dim*2)
			},
		},
		{
			"a permuted view: logical [B,N,H,2,D] of physical [B,H,N,2,D]", one,
			[]layout.Tensor{{Region: region, Shape: []int64{3, 4, 2, 2, 8}, Strides: []int64{256, 32, 128, 16, 2}, Dims: dims("block token head component dim"),
				DType: geometry.BF16, Components: both, Layers: []int{41}, Claim: "HND"}},
			func(el layout.Element) (string, float64) {
				return "r", float64(el.Block*256 + el.Head*128 + el.Token*32 + int64(el.Component)*16 + el.Dim*2)
			},
		},
		{
			"padded pages behind a header, V before K", one,
			[]layout.Tensor{{Region: layout.Region{Name: "r", Bytes: 4096}, Offset: 64, Shape: []int64{2, 3, 4, 2, 8}, Strides: []int64{128, 1000, 32, 16, 2}, Dims: dims("component block token head dim"),
				DType: geometry.BF16, Components: []string{"v", "k"}, Layers: []int{41}, Claim: "NHD"}},
			func(el layout.Element) (string, float64) {
				return "r", float64(64 + (1-int64(el.Component))*128 + el.Block*1000 + el.Token*32 + el.Head*16 + el.Dim*2)
			},
		},
		{
			"layers in a pool, one tensor with a layer dimension", kv(),
			[]layout.Tensor{{Region: layout.Region{Name: "pool", Bytes: 1536}, Shape: []int64{3, 2, 2, 2, 4, 8}, Strides: dense(2, 3, 2, 2, 2, 4, 8), Dims: dims("block layer component head token dim"),
				DType: geometry.BF16, Components: both, Layers: []int{42, 41}}},
			func(el layout.Element) (string, float64) {
				return "pool", float64(el.Block*512 + (1-int64(el.Layer))*256 + int64(el.Component)*128 + el.Head*64 + el.Token*16 + el.Dim*2)
			},
		},
		{
			"layers in a pool, a view each", kv(),
			[]layout.Tensor{
				{Region: layout.Region{Name: "pool", Bytes: 1536}, Offset: 256, Shape: []int64{3, 2, 2, 4, 8}, Strides: []int64{512, 128, 64, 16, 2}, Dims: dims("block component head token dim"), DType: geometry.BF16, Components: both, Layers: []int{42}},
				{Region: layout.Region{Name: "pool", Bytes: 1536}, Shape: []int64{3, 2, 2, 4, 8}, Strides: []int64{512, 128, 64, 16, 2}, Dims: dims("block component head token dim"), DType: geometry.BF16, Components: both, Layers: []int{41}},
			},
			func(el layout.Element) (string, float64) {
				return "pool", float64(el.Block*512 + int64(el.Layer)*256 + int64(el.Component)*128 + el.Head*64 + el.Token*16 + el.Dim*2)
			},
		},
		{
			"K transposed, V not, in one chunk", one,
			[]layout.Tensor{
				{Region: region, Shape: []int64{3, 2, 8, 4}, Strides: []int64{256, 128, 8, 2}, Dims: dims("block head dim token"), DType: geometry.BF16, Components: []string{"k"}, Layers: []int{41}},
				{Region: region, Offset: 64, Shape: []int64{3, 2, 4, 8}, Strides: []int64{256, 128, 16, 2}, Dims: dims("block head token dim"), DType: geometry.BF16, Components: []string{"v"}, Layers: []int{41}},
			},
			func(el layout.Element) (string, float64) {
				if el.Component == 0 {
					return "r", float64(el.Block*256 + el.Head*128 + el.Dim*8 + el.Token*2)
				}
				return "r", float64(el.Block*256 + el.Head*128 + 64 + el.Token*16 + el.Dim*2)
			},
		},
		{
			"x-packed keys with plain values, a region each", one,
			[]layout.Tensor{
				{Region: layout.Region{Name: "K", Bytes: 384}, Shape: []int64{3, 2, 2, 4, 4}, Strides: dense(2, 3, 2, 2, 4, 4), Dims: dims("block head dim/4 token dim%4"), DType: geometry.BF16, Components: []string{"k"}, Layers: []int{41}},
				{Region: layout.Region{Name: "V", Bytes: 384}, Shape: []int64{3, 2, 8, 4}, Strides: dense(2, 3, 2, 8, 4), Dims: dims("block head dim token"), DType: geometry.BF16, Components: []string{"v"}, Layers: []int{41}},
			},
			func(el layout.Element) (string, float64) {
				if el.Component == 0 {
					return "K", float64(el.Block*128 + el.Head*64 + el.Dim/4*32 + el.Token*8 + el.Dim%4*2)
				}
				return "V", float64(el.Block*128 + el.Head*64 + el.Dim*8 + el.Token*2)
			},
		},
		{
			"unequal widths side by side", unequal,
			[]layout.Tensor{
				{Region: layout.Region{Name: "r", Bytes: 576}, Shape: []int64{3, 4, 2, 8}, Strides: []int64{192, 48, 24, 2}, Dims: dims("block token head dim"), DType: geometry.BF16, Components: []string{"k"}, Layers: []int{41}},
				{Region: layout.Region{Name: "r", Bytes: 576}, Offset: 16, Shape: []int64{3, 4, 2, 4}, Strides: []int64{192, 48, 24, 2}, Dims: dims("block token head dim"), DType: geometry.BF16, Components: []string{"v"}, Layers: []int{41}},
			},
			func(el layout.Element) (string, float64) {
				return "r", float64(el.Block*192 + el.Token*48 + el.Head*24 + int64(el.Component)*16 + el.Dim*2)
			},
		},
		{
			"half bytes", fp4,
			[]layout.Tensor{{Region: layout.Region{Name: "r", Bytes: 96}, Shape: []int64{3, 4, 2, 4}, Strides: dense(1, 3, 4, 2, 4), Dims: dims("block token head dim/2"), DType: geometry.FP4, Components: []string{"k"}, Layers: []int{41}}},
			func(el layout.Element) (string, float64) {
				return "r", float64(el.Block*32+el.Token*8+el.Head*4) + float64(el.Dim)/2
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := layout.FromTensors(c.tensors, c.extent)
			if err != nil {
				t.Fatal(err)
			}
			elements(c.extent, func(el layout.Element) {
				r, bit := at(l, el)
				if region, byte := c.place(el); l.Regions[r].Name != region || float64(bit) != 8*byte {
					t.Fatalf("%s lies at bit %d of %s, want byte %v of %s", el, bit, l.Regions[r].Name, byte, region)
				}
			})
			if why := overlap(l); why != "" {
				t.Error(why)
			}
		})
	}
}

// TestFromTensorsShapes is the pair of shapes that no look at a shape can tell
// apart: [NB, BS, 2, NH*HS] and [NB, BS, NH=2, 2*HS].
func TestFromTensorsShapes(t *testing.T) {
	e := kv()
	e.Layers = e.Layers[:1]
	tensor := layout.Tensor{Region: layout.Region{Name: "r", Bytes: 768}, Shape: []int64{3, 4, 2, 2, 8}, Strides: dense(2, 3, 4, 2, 2, 8),
		DType: geometry.BF16, Components: []string{"k", "v"}, Layers: []int{41}}
	a, b := tensor, tensor
	a.Dims, b.Dims = dims("block token component head dim"), dims("block token head component dim")
	la, err := layout.FromTensors([]layout.Tensor{a}, e)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := layout.FromTensors([]layout.Tensor{b}, e)
	if err != nil {
		t.Fatal(err)
	}
	if la.Equal(lb) || la.Digest() == lb.Digest() {
		t.Error("names of dimensions make no difference")
	}
}

func TestFromTensorsRefuses(t *testing.T) {
	e := kv()
	e.Layers = e.Layers[:1]
	good := func() []layout.Tensor {
		return []layout.Tensor{
			{Region: layout.Region{Name: "r", Bytes: 768}, Shape: []int64{3, 2, 4, 8}, Strides: []int64{256, 128, 32, 2}, Dims: dims("block head token dim"), DType: geometry.BF16, Components: []string{"k"}, Layers: []int{41}},
			{Region: layout.Region{Name: "r", Bytes: 768}, Offset: 16, Shape: []int64{3, 2, 4, 8}, Strides: []int64{256, 128, 32, 2}, Dims: dims("block head token dim"), DType: geometry.BF16, Components: []string{"v"}, Layers: []int{41}},
		}
	}
	if _, err := layout.FromTensors(good(), e); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(ts []layout.Tensor) []layout.Tensor
		field  string
		say    string
	}{
		{"none", func(ts []layout.Tensor) []layout.Tensor { return nil }, "tensors", "want 1"},
		{"V missing", func(ts []layout.Tensor) []layout.Tensor { return ts[:1] }, "tensors", "component v of layer 41 lies in none"},
		{"K twice", func(ts []layout.Tensor) []layout.Tensor { ts[1].Components = []string{"k"}; return ts }, "tensors[1]", "component k of layer 41 lies in tensor 0 already"},
		{"a stranger", func(ts []layout.Tensor) []layout.Tensor { ts[1].Components = []string{"w"}; return ts }, "tensors[1].components[0]", "no such component"},
		{"another layer", func(ts []layout.Tensor) []layout.Tensor { ts[1].Layers = []int{42}; return ts }, "tensors[1].layers[0]", "holds layers 41"},
		{"no layer", func(ts []layout.Tensor) []layout.Tensor { ts[1].Layers = nil; return ts }, "tensors[1].layers", "want 1"},
		{"another dtype", func(ts []layout.Tensor) []layout.Tensor { ts[1].DType = geometry.FP16; return ts }, "tensors[1].dtype", "component v is bf16"},
		{"two sizes of a region", func(ts []layout.Tensor) []layout.Tensor { ts[1].Region.Bytes++; return ts }, "tensors[1].region.bytes", "has 768"},
		{"a region too small", func(ts []layout.Tensor) []layout.Tensor {
			ts[0].Region.Bytes, ts[1].Region.Bytes = 767, 767
			return ts
		}, "places[1][0]", `region "r" has 767 bytes`},
		{"on one another", func(ts []layout.Tensor) []layout.Tensor { ts[1].Offset = 14; return ts }, "places", "component k of layer 41 and component v of layer 41 overlap"},
		{"expanded", func(ts []layout.Tensor) []layout.Tensor { ts[1].Strides[1] = 0; return ts }, "tensors[1].strides[1]", "want at least 1"},
		{"flipped", func(ts []layout.Tensor) []layout.Tensor { ts[1].Strides[1] = -128; return ts }, "tensors[1].strides[1]", "descend"},
		{"a huge stride", func(ts []layout.Tensor) []layout.Tensor { ts[1].Strides[0] = 1 << 62; return ts }, "tensors[1].strides[0]", "more than"},
		{"a negative offset", func(ts []layout.Tensor) []layout.Tensor { ts[1].Offset = -1; return ts }, "tensors[1].offset", "want 0"},
		{"another shape", func(ts []layout.Tensor) []layout.Tensor { ts[1].Shape[2] = 5; return ts }, "tensors[1].shape[2]", "4 places of token"},
		{"a shape of nothing", func(ts []layout.Tensor) []layout.Tensor { ts[1].Shape[2] = 0; return ts }, "tensors[1].shape[2]", "want 1"},
		{"a dimension short", func(ts []layout.Tensor) []layout.Tensor { ts[1].Dims = ts[1].Dims[:3]; return ts }, "tensors[1].dims", "4 dimensions"},
		{"a dimension of nothing", func(ts []layout.Tensor) []layout.Tensor { ts[1].Dims[3] = "width"; return ts }, "tensors[1].dims[3]", "want component"},
		{"a dimension twice", func(ts []layout.Tensor) []layout.Tensor { ts[1].Dims[3] = "token"; return ts }, "tensors[1].dims[3]", "stands twice"},
		{"an axis missing", func(ts []layout.Tensor) []layout.Tensor {
			ts[1].Dims, ts[1].Shape, ts[1].Strides = dims("block head token"), ts[1].Shape[:3], ts[1].Strides[:3]
			return ts
		}, "tensors[1].dims", "dimensions of dim do not tile"},
		{"components without a dimension", func(ts []layout.Tensor) []layout.Tensor { ts[0].Components = []string{"k", "v"}; return ts[:1] }, "tensors[0].components", "no dimension component"},
		{"a wrong name", func(ts []layout.Tensor) []layout.Tensor { ts[1].Claim = "nhd"; return ts }, "name", "no such claim"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := layout.FromTensors(c.change(good()), e)
			var le *layout.Error
			if !errors.As(err, &le) || le.Field != c.field || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v; want field %s and %q", err, c.field, c.say)
			}
		})
	}
	ts := good()
	ts[1].Claim = "NHD"
	var claim *layout.ClaimError
	if _, err := layout.FromTensors(ts, e); !errors.As(err, &claim) || claim.Claim != "NHD" || claim.Actual != "HND" {
		t.Errorf("a lying label: got %v", err)
	}
	two := kv()
	ts = good()[:1]
	ts[0].Layers = []int{41, 42}
	var le *layout.Error
	if _, err := layout.FromTensors(ts, two); !errors.As(err, &le) || le.Field != "tensors[0].layers" {
		t.Errorf("two layers without a dimension: got %v", err)
	}
}
