package architecture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// mamba1 adds layers of the first Mamba: a state of its own for each channel.
func (r *reader) mamba1(layers []int, channels, state, kernel int) {
	r.state("mamba", layers,
		r.conv("x", channels, 1, kernel),
		geometry.Component{Name: "ssm", Heads: channels, Dim: state, DType: r.stateDType(0)})
}

// mamba2Sizes are those of the second Mamba.
type mamba2Sizes struct {
	heads, dim, groups, state, kernel int
	ssm                               geometry.DType // of the state where the configuration names none; 0: as the rest
}

// mamba2 adds layers of it. Their convolution runs over x (a head's channels
// stay together), B and C (a group's do); where there are more ranks than
// groups, a group's B and C lie on several.
func (r *reader) mamba2(layers []int, s mamba2Sizes) {
	if s.heads%s.groups != 0 {
		r.fail(r.fields.at+"the number of groups", s.groups, "does not divide %d heads", s.heads)
	}
	r.state("mamba", layers,
		r.conv("x", s.heads*s.dim, s.dim, s.kernel),
		r.conv("B", s.groups*s.state, s.state, s.kernel),
		r.conv("C", s.groups*s.state, s.state, s.kernel),
		geometry.Component{Name: "ssm", Heads: s.heads, Dim: s.dim * s.state, DType: r.stateDType(s.ssm)})
}

// Sizes are read with limits that keep their products within the geometry's.
const (
	maxState  = 1 << 10 // of a state, and of a head of it
	maxKernel = 1 << 10
)

// prefixed reads the fields of Bamba, Granite 4 and Falcon-H1, whose names all
// begin alike.
func (r *reader) prefixed() mamba2Sizes {
	s := mamba2Sizes{
		heads:  r.size(geometry.MaxHeads, "mamba_n_heads"),
		groups: r.size(geometry.MaxHeads, "mamba_n_groups"),
		state:  r.size(maxState, "mamba_d_state"),
		kernel: r.size(maxKernel, "mamba_d_conv"),
	}
	inner := r.size(geometry.MaxHeads, "hidden_size") * r.sizeOr(2, 64, "mamba_expand")
	if r.has("mamba_d_ssm") {
		inner = r.size(geometry.MaxHeads, "mamba_d_ssm")
	}
	if v, _ := r.get("mamba_d_head"); v == "auto" || v == nil {
		s.dim = max(inner/s.heads, 1)
	} else {
		s.dim = r.size(maxState, "mamba_d_head")
	}
	if s.heads*s.dim != inner {
		r.fail(r.fields.at+"mamba_n_heads", s.heads, "times %d of mamba_d_head is not %d, the width inside the layer", s.dim, inner)
	}
	return s
}

// bamba: attn_layer_indices are attention, the rest Mamba 2.
func bamba(r *reader) {
	v, at := r.get("attn_layer_indices")
	var full []int
	if v != nil {
		full = r.numbers(0, v, at)
	}
	attention := map[int]bool{}
	for _, l := range full {
		attention[l] = true
	}
	r.hybrid(full, r.where(func(l int) bool { return !attention[l] }), r.prefixed)
}

// hybrid adds attention and Mamba 2 layers. sizes is asked only where there are
// some of the latter.
func (r *reader) hybrid(full, recurrent []int, sizes func() mamba2Sizes) {
	if len(recurrent) > 0 {
		r.mamba2(recurrent, sizes())
	}
	if len(full) > 0 {
		r.attention(full, r.kv(r.square()))
	}
}

// granite4: layer_types says which.
func granite4(r *reader) {
	kinds := r.kinds("mamba attention", "layer_types", "layers_block_type")
	if kinds == nil {
		r.fail(r.fields.at+"layer_types", nil, "missing")
		return
	}
	r.hybrid(of(kinds, "attention"), of(kinds, "mamba"), r.prefixed)
}

// falconH1: every layer is both.
func falconH1(r *reader) { r.hybrid(r.all(), r.all(), r.prefixed) }

// nemotronH: a letter for each layer: M for Mamba 2, * for attention, - for a
// feed-forward and E for an expert layer, which keep nothing. Newer files have
// words. The draft layers have a pattern too, once for each of them; those of its
// layers that keep nothing have no number.
func nemotronH(r *reader) {
	kinds := r.pattern(r.layers, "hybrid_override_pattern", "layers_block_type")
	if kinds == nil {
		r.fail(r.fields.at+"hybrid_override_pattern", nil, "missing, and so is layers_block_type")
		return
	}
	r.hybrid(of(kinds, "attention"), of(kinds, "mamba"), func() mamba2Sizes {
		return mamba2Sizes{
			heads:  r.size(geometry.MaxHeads, "mamba_num_heads"),
			dim:    r.size(maxState, "mamba_head_dim"),
			groups: r.size(geometry.MaxHeads, "n_groups", "mamba_n_groups"),
			state:  r.size(maxState, "ssm_state_size"),
			kernel: r.size(maxKernel, "conv_kernel"),
			ssm:    geometry.FP32, // what engines run it with where the file is silent (vLLM's default for the architecture)
		}
	})
	r.spoken = r.count("num_nextn_predict_layers") > 0
	if !r.spoken || !r.options.Draft {
		return
	}
	one := r.pattern(0, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
	if len(of(one, "mamba")) > 0 {
		r.fail(r.fields.at+"mtp_hybrid_override_pattern", "M", "draft layers with a state are not known")
		return
	}
	if n := r.count("num_nextn_predict_layers") * len(of(one, "attention")); n > 0 {
		c := r.kv(r.square())
		r.drafts(n, "num_nextn_predict_layers", geometry.Group{Components: c})
	}
}

// pattern reads the kinds of layers, from letters or words; n of them, or any
// number where n is 0.
func (r *reader) pattern(n int, letters, words string) []string {
	known := map[string]string{"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
	var out []string
	if s := r.text(letters); s != "" {
		if len(s) > geometry.MaxLayers {
			r.fail(r.fields.at+letters, clip(s), "longer than %d layers", geometry.MaxLayers)
			return nil
		}
		for i, c := range strings.Split(s, "") {
			kind, ok := known[c]
			if !ok {
				r.fail(fmt.Sprintf("%s%s[%d]", r.fields.at, letters, i), clip(c), "want M, *, - or E")
				return nil
			}
			out = append(out, kind)
		}
	} else {
		list, at := r.list(words)
		for i, v := range list {
			kind, _ := v.(string)
			if kind = modern("", kind); !slices.Contains([]string{"mamba", "attention", "mlp", "moe"}, kind) {
				r.fail(fmt.Sprintf("%s[%d]", at, i), describe(v), "want mamba, attention, mlp or moe")
				return nil
			}
			out = append(out, kind)
		}
	}
	if n > 0 && out != nil && len(out) != n {
		r.fail(r.fields.at+letters, fmt.Sprintf("%d layers", len(out)), "num_hidden_layers is %d", n)
		return nil
	}
	return out
}

// jamba: attention at attn_layer_offset of every attn_layer_period layers, the
// first Mamba elsewhere.
func jamba(r *reader) {
	kinds := r.kinds("mamba attention", "layers_block_type")
	full, recurrent := of(kinds, "attention"), of(kinds, "mamba")
	if kinds == nil {
		period, offset := r.size(geometry.MaxLayers, "attn_layer_period"), r.whole1("attn_layer_offset")
		if offset >= period {
			r.fail(r.fields.at+"attn_layer_offset", offset, "is not below attn_layer_period, %d", period)
		}
		full = r.where(func(l int) bool { return l%period == offset })
		recurrent = r.where(func(l int) bool { return l%period != offset })
	}
	if len(recurrent) > 0 {
		r.mamba1(recurrent, r.size(geometry.MaxHeads, "hidden_size")*r.sizeOr(2, 64, "mamba_expand"), r.size(maxState, "mamba_d_state"), r.size(maxKernel, "mamba_d_conv"))
	}
	if len(full) > 0 {
		r.attention(full, r.kv(r.square()))
	}
}

// mamba: nothing but layers of the first Mamba.
func mamba(r *reader) {
	channels := 0
	if r.has("intermediate_size", "d_inner") {
		channels = r.size(geometry.MaxHeads, "intermediate_size", "d_inner")
	} else {
		channels = r.size(geometry.MaxHeads, "hidden_size", "d_model") * r.sizeOr(2, 64, "expand")
	}
	r.mamba1(r.all(), channels, r.size(maxState, "state_size", "d_state"), r.size(maxKernel, "conv_kernel", "d_conv"))
}

// mamba2Only: nothing but layers of the second.
func mamba2Only(r *reader) {
	s := mamba2Sizes{
		heads:  r.size(geometry.MaxHeads, "num_heads"),
		dim:    r.size(maxState, "head_dim"),
		groups: r.size(geometry.MaxHeads, "n_groups"),
		state:  r.size(maxState, "state_size"),
		kernel: r.size(maxKernel, "conv_kernel"),
	}
	if inner := r.size(geometry.MaxHeads, "hidden_size") * r.sizeOr(2, 64, "expand"); s.heads*s.dim != inner {
		r.fail(r.fields.at+"num_heads", s.heads, "times %d of head_dim is not %d, expand times hidden_size", s.dim, inner)
	}
	r.mamba2(r.all(), s)
}

// gatedDelta: Qwen3-Next and Qwen3.5. Three of four layers are a gated delta
// net, whose convolution runs over q, k and v.
func gatedDelta(r *reader) {
	kinds := r.kinds("full_attention linear_attention", "layer_types")
	if kinds == nil {
		every := r.size(geometry.MaxLayers, "full_attention_interval")
		kinds = make([]string, r.layers)
		for l := range kinds {
			kinds[l] = "linear_attention"
			if (l+1)%every == 0 {
				kinds[l] = "full_attention"
			}
		}
	}
	keys, values := r.size(geometry.MaxHeads, "linear_num_key_heads"), r.size(geometry.MaxHeads, "linear_num_value_heads")
	keyDim, valueDim := r.size(maxState, "linear_key_head_dim"), r.size(maxState, "linear_value_head_dim")
	kernel := r.size(maxKernel, "linear_conv_kernel_dim")
	if values%keys != 0 {
		r.fail(r.fields.at+"linear_num_key_heads", keys, "does not divide linear_num_value_heads, %d", values)
	}
	r.state("gdn", of(kinds, "linear_attention"),
		r.conv("q", keys*keyDim, keyDim, kernel), r.conv("k", keys*keyDim, keyDim, kernel), r.conv("v", values*valueDim, valueDim, kernel),
		geometry.Component{Name: "ssm", Heads: values, Dim: valueDim * keyDim, DType: r.stateDType(0)})
	c := r.kv(r.square())
	r.attention(of(kinds, "full_attention"), c)
	r.draftLike([]geometry.Group{{Components: c}}, "mtp_num_hidden_layers", "num_nextn_predict_layers")
}

// lightning: MiniMax-Text-01 and M1. Seven of eight layers are a linear
// attention without a convolution: a square matrix for each head.
func lightning(r *reader) {
	types := r.perLayer(1, "attn_type_list")
	kinds := r.kinds("full_attention linear_attention", "layer_types")
	if types == nil && kinds == nil {
		r.fail(r.fields.at+"attn_type_list", nil, "missing, and so is layer_types")
		return
	}
	if r.err != nil {
		return
	}
	full := of(kinds, "full_attention")
	if kinds == nil {
		full = r.where(func(l int) bool { return types[l] == 1 })
	}
	attention := map[int]bool{}
	for _, l := range full {
		attention[l] = true
	}
	if len(full) < r.layers {
		heads := r.size(geometry.MaxHeads, "num_attention_heads")
		dim := r.headDim(heads)
		if dim > maxState {
			r.fail(r.fields.at+"head_dim", dim, "want at most %d for a square state", maxState)
			return
		}
		r.state("lightning", r.where(func(l int) bool { return !attention[l] }),
			geometry.Component{Name: "ssm", Heads: heads, Dim: dim * dim, DType: r.stateDType(0)})
	}
	if len(full) > 0 {
		r.attention(full, r.kv(r.square()))
	}
}

// minimaxM2: full attention in every layer; several draft modules of some
// layers each.
func minimaxM2(r *reader) {
	for l, t := range r.perLayer(1, "attn_type_list") {
		if t != 1 {
			r.fail(fmt.Sprintf("%sattn_type_list[%d]", r.fields.at, l), t, "layers of MiniMax M2 are full attention (1)")
		}
	}
	c := r.kv(r.square())
	r.attention(r.all(), c)
	modules := r.count("num_mtp_modules")
	if r.spoken = modules > 0; !r.spoken || !r.options.Draft {
		return
	}
	r.drafts(modules*r.sizeOr(1, geometry.MaxLayers, "mtp_transformer_layers"), "num_mtp_modules", geometry.Group{Components: c})
}
