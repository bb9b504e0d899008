package architecture

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// latent: multi-head latent attention. Each token has one row, which every
// tensor parallel rank holds whole.
func latent(r *reader) {
	c := r.latentRows()
	r.attention(r.all(), c)
	r.draftLike([]geometry.Group{{Components: c}}, "num_nextn_predict_layers")
}

func (r *reader) latentRows() []geometry.Component {
	return r.mla(r.size(geometry.MaxDim, "kv_lora_rank"), r.size(geometry.MaxDim, "qk_rope_head_dim"))
}

// deepseekV2: MLA, or in its first models, which have no kv_lora_rank, an
// ordinary attention.
func deepseekV2(r *reader) {
	if !r.has("kv_lora_rank") {
		decoder(r)
		return
	}
	latent(r)
}

// sparse: MLA with an indexer (DeepSeek V3.2, GLM-5), whose keys are a group of
// their own: they have another type, and an engine may give them another block.
// Layers whose indexer_types say shared take what another's indexer has found.
func sparse(r *reader) {
	c := r.latentRows()
	index := indexer(r.indexDim(), 0)
	r.attention(r.all(), c)
	searching := r.all()
	if kinds := r.kinds("full shared", "indexer_types"); kinds != nil {
		searching = of(kinds, "full")
	}
	r.add(geometry.Group{Name: "indexer", Layers: searching, Components: index})
	r.draftLike([]geometry.Group{{Components: c}, {Name: "indexer", Components: index}}, "num_nextn_predict_layers")
}

// indexDim is the width of an indexer's key.
func (r *reader) indexDim() int {
	dim := r.size(geometry.MaxDim, "index_head_dim")
	if dim > 128 && dim%128 != 0 {
		r.fail(r.fields.at+"index_head_dim", dim, "does not part into the 128 elements that share a scale")
	}
	return dim
}

// deepseekV4: every layer keeps one row a token (key and value in one) for the
// window. A layer of compression ratio 4 or 128 keeps besides a row for every so
// many tokens of all that came before, and of the tokens that make up the next
// rows, what its compressor has gathered: of each of the last 8 or 128 tokens an
// fp32 row of values and one of weights (twice as wide at ratio 4, whose rows
// overlap). At ratio 4 an indexer keeps the same in a width of its own.
//
// The draft layers keep the window alone.
func deepseekV4(r *reader) {
	dim := r.size(geometry.MaxDim/4, "head_dim")
	rope := r.size(geometry.MaxDim, "qk_rope_head_dim")
	window := r.size(geometry.MaxWindow, "sliding_window")
	ratios := r.ratios()
	if r.err != nil {
		return
	}
	row := r.single(dim, rope, 0)
	r.add(geometry.Group{Name: "window", Layers: r.all(), Window: window, Components: row})
	for _, ratio := range []int{4, 128} {
		layers := r.where(func(l int) bool { return ratios[l] == ratio })
		if len(layers) == 0 {
			continue
		}
		name, overlap := fmt.Sprintf("c%d", ratio), 1
		if ratio == 4 {
			overlap = 2
		}
		gathered := func(name string, dim int) geometry.Group {
			return geometry.Group{Name: name, Layers: layers, Window: overlap * ratio, Components: []geometry.Component{
				{Name: "values", Dim: overlap * dim, DType: geometry.FP32},
				{Name: "weights", Dim: overlap * dim, DType: geometry.FP32},
			}}
		}
		r.add(geometry.Group{Name: name, Layers: layers, Components: r.single(dim, rope, ratio)})
		r.add(gathered(name+"-state", dim))
		if ratio == 4 {
			width := r.indexDim()
			r.add(geometry.Group{Name: name + "-index", Layers: layers, Components: indexer(width, ratio)})
			r.add(gathered(name+"-index-state", min(width, geometry.MaxDim/2)))
		}
	}
	r.draftLike([]geometry.Group{{Window: window, Components: row}}, "num_nextn_predict_layers")
}

// ratios are the compression ratios of the model's own layers: 0 or 1 for none,
// 4 or 128. The list may go on with those of the draft layers.
func (r *reader) ratios() []int {
	list, at := r.list("compress_ratios")
	if list == nil {
		r.fail(at, nil, "missing: which layers compress, and how much, stands nowhere else")
		return nil
	}
	if n := len(list); n < r.layers {
		r.fail(at, fmt.Sprintf("%d elements", n), "there are %d layers", r.layers)
		return nil
	}
	var out []int
	for i, v := range list[:r.layers] {
		n := r.whole(v, fmt.Sprintf("%s[%d]", at, i), geometry.MaxEntry)
		if !slices.Contains([]int{0, 1, 4, 128}, n) {
			r.fail(fmt.Sprintf("%s[%d]", at, i), n, "the caches of ratios 4 and 128 are known, and 0 or 1 for none")
		}
		out = append(out, n)
	}
	return out
}

// kimiLinear: three of four layers are a linear attention with a gate for each
// channel (KDA), whose state is fp32 and whose convolutions are three; the rest
// are MLA. Layers are counted from 1.
func kimiLinear(r *reader) {
	v, at := r.get("linear_attn_config")
	m, ok := v.(map[string]any)
	if !ok {
		r.fail(at, describe(v), "want an object with kda_layers, full_attn_layers, num_heads, head_dim and short_conv_kernel_size")
		return
	}
	linear := r.numbers(1, m["kda_layers"], at+".kda_layers")
	full := r.numbers(1, m["full_attn_layers"], at+".full_attn_layers")
	if both := slices.Sorted(slices.Values(append(slices.Clone(linear), full...))); r.err == nil && !slices.Equal(both, r.all()) {
		r.fail(at, fmt.Sprintf("kda_layers %s, full_attn_layers %s", geometry.Ranges(linear), geometry.Ranges(full)), "together want each of %d layers once (counted from 0 here)", r.layers)
	}
	inner := func(name string, max int) int {
		n := r.whole(m[name], at+"."+name, max)
		if n == 0 {
			r.fail(at+"."+name, 0, "want 1 to %d", max)
			return 1
		}
		return n
	}
	heads, dim, kernel := inner("num_heads", geometry.MaxHeads), inner("head_dim", 1<<10), inner("short_conv_kernel_size", geometry.MaxDim)
	r.state("kda", linear,
		r.conv("q", heads*dim, dim, kernel), r.conv("k", heads*dim, dim, kernel), r.conv("v", heads*dim, dim, kernel),
		geometry.Component{Name: "ssm", Heads: heads, Dim: dim * dim, DType: r.stateDType(geometry.FP32)})
	c := r.latentRows()
	r.attention(full, c)
	r.draftLike([]geometry.Group{{Components: c}}, "num_nextn_predict_layers")
}
