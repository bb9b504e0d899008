package layout

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Tensor is a tensor that an engine registers: where it lies, its shape and
// byte strides as its framework reports them, and what each dimension means.
// A view is as good as a dense tensor; several tensors may lie in one region.
//
// A dimension is named by the text of an Item ("block", "token/16",
// "token%16"), or "component", or "layer". A dimension that holds more than
// one of these is first split in two, which every strided tensor allows:
// [slots, H, D] with stride s is [B, N, H, D] with strides (N*s, s), and
// [B, H, N, 2D] is [B, H, N, 2, D]. Components of unequal widths that lie side
// by side are registered as a view each.
type Tensor struct {
	Region     Region // where it lies; tensors that share a region name give it the same size
	Offset     int64  // bytes from the region's start to the element with all indices 0
	Shape      []int64
	Strides    []int64 // bytes
	Dims       []string
	DType      geometry.DType
	Components []string // by index of dimension "component"; without that dimension, the one that it holds
	Layers     []int    // model layer numbers by index of dimension "layer"; without that dimension, the one that it holds
	Claim      string   // a name that the engine gives the layout, checked; "" claims nothing
}

const componentDim = "component"

// view is a tensor read.
type view struct {
	*Tensor
	digits     []Digit // block, token, head and dim, canonical
	layers     []Digit // of Axis Layer, over positions in Tensor.Layers
	component  int64   // bits from one component to the next
	components []int   // indices into the extent's, by index of the dimension
}

// FromTensors computes the layout of the tensors that hold one group of one
// rank. Every component of every layer of the extent lies in exactly one
// tensor; regions come in the order in which the tensors name them.
//
// Errors: *Error naming the tensor and the field, and for tensors that overlap
// or leave their region the component and layer; *ClaimError.
func FromTensors(tensors []Tensor, e Extent) (*Layout, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if n := len(e.Layers) * len(e.Components); len(tensors) < 1 || len(tensors) > n {
		return nil, bad("tensors", len(tensors), "want 1 to one for each component of each layer, %d", n)
	}
	type spot struct {
		region int
		offset int64
		digits []Digit
	}
	spots := make([]spot, len(e.Layers)*len(e.Components)) // by layer, component
	owner := make([]int, len(spots))                       // tensor + 1
	layerIndex := make(map[int]int, len(e.Layers))
	for i, l := range e.Layers {
		layerIndex[l] = i
	}
	var regions []Region
	regionIndex := map[string]int{}
	for ti := range tensors {
		v, err := read(&tensors[ti], ti, &e)
		if err != nil {
			return nil, err
		}
		r, ok := regionIndex[v.Region.Name]
		if !ok {
			r = len(regions)
			regionIndex[v.Region.Name] = r
			regions = append(regions, v.Region)
		}
		if regions[r] != v.Region {
			return nil, bad(fmt.Sprintf("tensors[%d].region.bytes", ti), v.Region.Bytes, "another tensor says that region %q has %d", clip(v.Region.Name), regions[r].Bytes)
		}
		for at, layer := range v.Layers {
			li, ok := layerIndex[layer]
			if !ok {
				return nil, bad(fmt.Sprintf("tensors[%d].layers[%d]", ti, at), layer, "the rank holds layers %s", geometry.Ranges(e.Layers))
			}
			offset := v.Offset * 8
			for _, d := range v.layers {
				offset += int64(at) % d.Mod / d.Div * d.Stride
			}
			for k, ci := range v.components {
				i := li*len(e.Components) + ci
				if owner[i] > 0 {
					return nil, bad(fmt.Sprintf("tensors[%d]", ti), fmt.Sprintf("region %q", clip(v.Region.Name)), "component %s of layer %d lies in tensor %d already", e.Components[ci].Name, layer, owner[i]-1)
				}
				owner[i] = ti + 1
				spots[i] = spot{r, offset + int64(k)*v.component, v.digits}
			}
		}
	}
	if i := slices.Index(owner, 0); i >= 0 {
		return nil, bad("tensors", len(tensors), "component %s of layer %d lies in none of them", e.Components[i%len(e.Components)].Name, e.Layers[i/len(e.Components)])
	}
	l := build(e, regions, func(ci, li int) (int, int64, []Digit) {
		s := spots[li*len(e.Components)+ci]
		return s.region, s.offset, s.digits
	})
	if err := l.Validate(); err != nil {
		return nil, err
	}
	for ti := range tensors {
		if err := l.Claim(tensors[ti].Claim); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// read takes one tensor apart.
func read(t *Tensor, ti int, e *Extent) (*view, error) {
	refuse := func(field string, value any, why string, args ...any) (*view, error) {
		return nil, bad(fmt.Sprintf("tensors[%d].%s", ti, field), value, why, args...)
	}
	v := &view{Tensor: t}
	n := len(t.Dims)
	if n < 1 || n > MaxDigits {
		return refuse("dims", n, "want 1 to %d", MaxDigits)
	}
	if len(t.Shape) != n || len(t.Strides) != n {
		return refuse("dims", n, "the shape has %d dimensions and there are %d strides", len(t.Shape), len(t.Strides))
	}
	if t.Offset < 0 || t.Offset > MaxRegionBytes {
		return refuse("offset", t.Offset, "want 0 to %d bytes", MaxRegionBytes)
	}
	if len(t.Layers) < 1 || len(t.Layers) > len(e.Layers) {
		return refuse("layers", len(t.Layers), "want 1 to %d", len(e.Layers))
	}
	for i, name := range t.Components {
		ci := slices.IndexFunc(e.Components, func(c geometry.Component) bool { return c.Name == name })
		switch {
		case ci < 0:
			return refuse(fmt.Sprintf("components[%d]", i), fmt.Sprintf("%q", clip(name)), "the model has no such component")
		case slices.Contains(v.components, ci):
			return refuse(fmt.Sprintf("components[%d]", i), name, "named twice")
		case e.Components[ci].DType != t.DType:
			return refuse("dtype", t.DType, "component %s is %s", name, e.Components[ci].DType)
		case e.Components[ci].Dim != e.Components[v.first(ci)].Dim:
			return refuse(fmt.Sprintf("components[%d]", i), name, "is %d wide, %s is %d: register a view each", e.Components[ci].Dim, t.Components[0], e.Components[v.components[0]].Dim)
		case e.size(geometry.Head, ci) != e.size(geometry.Head, v.first(ci)) || e.size(geometry.Token, ci) != e.size(geometry.Token, v.first(ci)):
			return refuse(fmt.Sprintf("components[%d]", i), name, "has other heads or entries a block than %s: register a view each", t.Components[0])
		}
		v.components = append(v.components, ci)
	}
	if len(v.components) == 0 {
		return refuse("components", 0, "want the components that it holds")
	}
	var has [geometry.Dim + 1]bool
	along, seen := false, make([]string, 0, n)
	for i, dim := range t.Dims {
		field := fmt.Sprintf("strides[%d]", i)
		size, stride := t.Shape[i], t.Strides[i]
		if size < 1 || size > MaxBlocks {
			return refuse(fmt.Sprintf("shape[%d]", i), size, "want 1 to %d", MaxBlocks)
		}
		if slices.Contains(seen, dim) {
			return refuse(fmt.Sprintf("dims[%d]", i), dim, "stands twice")
		}
		seen = append(seen, dim)
		if size > 1 {
			if stride < 1 {
				return refuse(field, stride, "want at least 1 byte: elements of dimension %s would overlap or descend", dim)
			}
			if stride > MaxRegionBytes/size {
				return refuse(field, stride, "%d times that is more than %d bytes", size, MaxRegionBytes)
			}
		}
		if dim == componentDim {
			if size != int64(len(t.Components)) {
				return refuse(fmt.Sprintf("shape[%d]", i), size, "there are %d components", len(t.Components))
			}
			along, v.component = true, stride*8
			continue
		}
		it, err := ParseItem(dim)
		if err != nil {
			return refuse(fmt.Sprintf("dims[%d]", i), fmt.Sprintf("%q", clip(dim)), "want component, layer, block, token, head or dim, each but the first with an optional %%M and /D")
		}
		on, ok := e.on(it.Axis)
		if !ok {
			return refuse(fmt.Sprintf("dims[%d]", i), dim, "no axis of the group")
		}
		it.Axis = on
		whole := e.size(it.Axis, v.components[0])
		if it.Axis == geometry.Layer {
			whole = int64(len(t.Layers))
		}
		if it.Axis == geometry.Head && e.Heads[v.components[0]] == 0 {
			return refuse(fmt.Sprintf("dims[%d]", i), dim, "the components have no heads")
		}
		d := Digit{it.Axis, it.Mod, max(it.Div, 1), stride * 8}
		if d.Mod == 0 {
			d.Mod = whole
		}
		if whole%d.Mod != 0 || d.Mod%d.Div != 0 || d.Count() != size {
			return refuse(fmt.Sprintf("shape[%d]", i), size, "dimension %s of %d places of %s is another", dim, whole, e.Name(it.Axis))
		}
		has[it.Axis] = true
		if it.Axis == geometry.Layer {
			v.layers = append(v.layers, d)
		} else {
			v.digits = append(v.digits, d)
		}
	}
	if !along && len(t.Components) > 1 {
		return refuse("components", len(t.Components), "there is no dimension component")
	}
	if !has[geometry.Layer] && len(t.Layers) > 1 {
		return refuse("layers", len(t.Layers), "there is no dimension layer")
	}
	// With the dimension's shape, Validate later sees that block, token, head
	// and dim are tiled; a layer that is not shows here.
	if total, ok := tiled(v.layers, geometry.Layer); !ok || has[geometry.Layer] && total != int64(len(t.Layers)) {
		return refuse("dims", t.Dims, "the dimensions of layer do not tile %d layers", len(t.Layers))
	}
	if bits := t.DType.Bits(); bits < 8 {
		v.digits = append(v.digits, Digit{geometry.Dim, 8 / bits, 1, bits})
	}
	for axis := geometry.Block; axis <= geometry.Dim; axis++ {
		want := e.size(axis, v.components[0])
		if total, ok := tiled(v.digits, axis); !ok || total != want {
			return refuse("dims", t.Dims, "the dimensions of %s do not tile its %d places", e.Name(axis), want)
		}
	}
	v.digits = canonical(v.digits)
	return v, nil
}

// first is the index of the first component read, or ci where there is none.
func (v *view) first(ci int) int {
	if len(v.components) > 0 {
		return v.components[0]
	}
	return ci
}
