package architecture

import (
	"github.com/kvferry/kvferry/kv/geometry"
)

// heads are the sizes of an ordinary attention: kv heads, and elements of one.
func (r *reader) heads() (kv, dim int) {
	n := r.size(geometry.MaxHeads, "num_attention_heads", "n_head")
	kv = r.sizeOr(n, geometry.MaxHeads, "num_key_value_heads", "num_kv_heads")
	r.shared(n, kv)
	return kv, r.headDim(n)
}

// shared checks that the query heads divide into those of the cache.
func (r *reader) shared(query, kv int) {
	if query%kv != 0 {
		r.fail(r.fields.at+"num_key_value_heads", kv, "does not divide num_attention_heads, %d", query)
	}
}

// headDim is what the configuration says, or what the layers' width gives for
// each query head.
func (r *reader) headDim(query int) int {
	if r.has("head_dim", "attention_head_dim") {
		return r.size(geometry.MaxDim, "head_dim", "attention_head_dim")
	}
	hidden := r.size(geometry.MaxDim, "hidden_size", "n_embd", "d_model")
	if hidden%query != 0 {
		r.fail(r.fields.at+"hidden_size", hidden, "is no multiple of num_attention_heads, %d, and head_dim is missing", query)
	}
	return max(hidden/query, 1)
}

// window is the sliding window that the configuration names, 0 for none.
func (r *reader) window() int { return r.sizeOr(0, geometry.MaxWindow, "sliding_window") }

// split adds the groups of a model some of whose layers look back no further
// than the window. kinds has a word for each layer.
func (r *reader) split(kinds []string, window int, full, sliding []geometry.Component) {
	if slide := of(kinds, "sliding_attention"); len(slide) > 0 && window == 0 {
		r.fail(r.fields.at+"sliding_window", nil, "missing, and layer %d is a sliding_attention", slide[0])
	}
	r.add(geometry.Group{Name: "sliding", Layers: of(kinds, "sliding_attention"), Window: window, Components: sliding})
	r.add(geometry.Group{Name: "full", Layers: of(kinds, "full_attention"), Components: full})
}

// everyNth says full_attention for the last of every n layers, and
// sliding_attention for the rest.
func (r *reader) everyNth(n int) []string {
	out := make([]string, r.layers)
	for l := range out {
		out[l] = "sliding_attention"
		if (l+1)%n == 0 {
			out[l] = "full_attention"
		}
	}
	return out
}

// attention is the group of layers that all look at everything.
func (r *reader) attention(layers []int, components []geometry.Component) {
	r.add(geometry.Group{Name: "attention", Layers: layers, Components: components})
}

// decoder: every layer keeps keys and values of all tokens.
func decoder(r *reader) {
	r.attention(r.all(), r.kv(r.square()))
}

// square is heads for keys and values of equal width.
func (r *reader) square() (heads, keyDim, valueDim int) {
	kv, dim := r.heads()
	return kv, dim, dim
}

// windowed: where sliding_window is given it holds for all layers; layer_types
// says otherwise layer by layer. A window that is not smaller than the longest
// context is none.
func windowed(r *reader) {
	c := r.kv(r.square())
	if kinds := r.kinds("full_attention sliding_attention", "layer_types"); kinds != nil {
		r.split(kinds, r.window(), c, c)
		return
	}
	window := r.window()
	if most := r.sizeOr(geometry.MaxWindow, geometry.MaxWindow, "max_position_embeddings"); window >= most {
		window = 0
	}
	r.add(geometry.Group{Name: "attention", Layers: r.all(), Window: window, Components: c})
}

// qwen: with use_sliding_window the layers from max_window_layers on have the
// window; it is off in all published models.
func qwen(r *reader) {
	c := r.kv(r.square())
	if kinds := r.kinds("full_attention sliding_attention", "layer_types"); kinds != nil {
		r.split(kinds, r.window(), c, c)
		return
	}
	if !r.flag("use_sliding_window") || !r.has("sliding_window") {
		r.attention(r.all(), c)
		return
	}
	first := r.whole1("max_window_layers")
	kinds := make([]string, r.layers)
	for l := range kinds {
		kinds[l] = "full_attention"
		if l >= first {
			kinds[l] = "sliding_attention"
		}
	}
	r.split(kinds, r.window(), c, c)
}

// whole1 reads a number of layers that must be there and may be 0.
func (r *reader) whole1(name string) int {
	v, at := r.get(name)
	if v == nil {
		r.fail(at, nil, "missing")
		return 0
	}
	return r.whole(v, at, geometry.MaxLayers)
}

// alternating reads a model of full and sliding layers; layer_types says which,
// else every nth is full. Where the nth layers are counted from the other end
// (GPT-OSS, Gemma 2) that is the same with n 2.
func alternating(n int, names ...string) func(*reader) {
	return func(r *reader) {
		kinds := r.kinds("full_attention sliding_attention", "layer_types")
		if kinds == nil {
			every := n
			if len(names) > 0 {
				every = r.sizeOr(n, geometry.MaxLayers, names...)
			}
			kinds = r.everyNth(every)
		}
		c := r.kv(r.square())
		r.split(kinds, r.window(), c, c)
	}
}

// gemma3: five sliding layers to each full one. Its smaller models leave out
// what the configuration class has as its default: 8 heads, 4 of the cache, 256
// wide.
func gemma3(r *reader) {
	n := r.sizeOr(8, geometry.MaxHeads, "num_attention_heads")
	kv := r.sizeOr(4, geometry.MaxHeads, "num_key_value_heads")
	r.shared(n, kv)
	dim := r.sizeOr(256, geometry.MaxDim, "head_dim")
	kinds := r.kinds("full_attention sliding_attention", "layer_types")
	if kinds == nil {
		kinds = r.everyNth(r.sizeOr(6, geometry.MaxLayers, "sliding_window_pattern", "_sliding_window_pattern"))
	}
	c := r.kv(kv, dim, dim)
	r.split(kinds, r.window(), c, c)
}

// gemmaShared: Gemma 3n and Gemma 4. The last num_kv_shared_layers layers have
// no cache: each reads that of the last layer of its kind before them. In Gemma
// 4 full layers have a head width of their own, and with attention_k_eq_v a
// number of heads of their own; keys and values are one projection then, but
// turned and normed apart, so that both are kept.
func gemmaShared(r *reader) {
	kinds := r.kinds("full_attention sliding_attention", "layer_types")
	if kinds == nil {
		r.fail(r.fields.at+"layer_types", nil, "missing")
		return
	}
	kv, dim := r.heads()
	wide, few := r.sizeOr(dim, geometry.MaxDim, "global_head_dim"), kv
	if r.flag("attention_k_eq_v") {
		few = r.sizeOr(kv, geometry.MaxHeads, "num_global_key_value_heads")
	}
	shared := r.count("num_kv_shared_layers")
	if shared >= r.layers {
		r.fail(r.fields.at+"num_kv_shared_layers", shared, "leaves none of %d layers a cache", r.layers)
		return
	}
	owners := kinds[:r.layers-shared]
	r.split(owners, r.window(), r.kv(few, wide, wide), r.kv(kv, dim, dim))
	for l := len(owners); l < r.layers && r.err == nil; l++ {
		from := of(owners, kinds[l])
		if len(from) == 0 {
			r.fail(r.fields.at+"layer_types", kinds[l], "layer %d shares the cache of a layer of its kind, and none before layer %d is", l, len(owners))
			return
		}
		for g := range r.groups {
			if (r.groups[g].Window > 0) == (kinds[l] == "sliding_attention") {
				r.groups[g].Shared = append(r.groups[g].Shared, geometry.Share{Layer: l, Owner: from[len(from)-1]})
			}
		}
	}
}

// llama4: three of four layers look back to the beginning of their chunk only.
// A chunk is not a window, but what it needs lies within the last
// attention_chunk_size tokens; an engine that frees a chunk when it ends holds
// less, which stamping a request finds out.
func llama4(r *reader) {
	c := r.kv(r.square())
	kinds := r.kinds("full_attention chunked_attention", "layer_types")
	if kinds == nil {
		kinds = make([]string, r.layers)
		turned := r.perLayer(1, "no_rope_layers")
		every := r.sizeOr(4, geometry.MaxLayers, "no_rope_layer_interval")
		for l := range kinds {
			kinds[l] = "chunked_attention"
			if len(turned) > 0 && turned[l] == 0 || len(turned) == 0 && (l+1)%every == 0 {
				kinds[l] = "full_attention"
			}
		}
	}
	if r.err != nil {
		return
	}
	full := of(kinds, "full_attention")
	if len(full) < r.layers {
		chunk := r.size(geometry.MaxWindow, "attention_chunk_size")
		r.declare("attention.chunk", r.fields.inner["attention_chunk_size"])
		r.add(geometry.Group{Name: "chunked", Layers: of(kinds, "chunked_attention"), Window: chunk, Components: c})
	}
	if len(full) > 0 {
		r.identity["rope.none"] = geometry.Ranges(full)
	}
	r.add(geometry.Group{Name: "full", Layers: full, Components: c})
}

// chatGLM: GLM-4 as it was first published, with names of its own.
func chatGLM(r *reader) {
	n := r.size(geometry.MaxHeads, "num_attention_heads")
	kv := n
	if r.flag("multi_query_attention") {
		kv = r.size(geometry.MaxHeads, "multi_query_group_num")
	}
	r.shared(n, kv)
	dim := r.sizeOr(r.headDimOr(n), geometry.MaxDim, "kv_channels")
	r.attention(r.all(), r.kv(kv, dim, dim))
}

// headDimOr is headDim where kv_channels does not say it.
func (r *reader) headDimOr(query int) int {
	if r.has("kv_channels") {
		return 1
	}
	return r.headDim(query)
}

// withDraft: a decoder whose configuration speaks of draft layers that are like
// its own.
func withDraft(names ...string) func(*reader) {
	return func(r *reader) {
		c := r.kv(r.square())
		r.attention(r.all(), c)
		r.draftLike([]geometry.Group{{Components: c}}, names...)
	}
}
