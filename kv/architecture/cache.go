package architecture

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Quantisations returns the names that Options.Quantisation takes.
//
//   - fp8, fp8_e5m2: one scale a tensor, which comes with the weights and not with
//     the cache; fp8 is fp8_e4m3.
//   - fp8_per_token_head, int8_per_token_head: an fp32 scale for each token and
//     head, behind the row that it scales. Not for MLA.
//   - fp8_ds_mla: DeepSeek's rows of mixed types, for MLA only. 656 bytes of 512
//     fp8, 4 fp32 scales of 128 elements each, and 64 bf16 of rope; in DeepSeek V4
//     584 bytes of 448 fp8, 64 bf16 of rope, and 8 bytes of power-of-two scales of
//     64 elements each, of which the last is padding.
//   - nvfp4: fp4, an fp8_e4m3 scale for every 16 elements behind the row. Not for
//     MLA.
func Quantisations() []string {
	return []string{"fp8", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head", "fp8_ds_mla", "nvfp4"}
}

// nvfp4Block is the number of elements that share a scale in nvfp4.
const nvfp4Block = 16

// quantised declares how the cache is quantised, and returns it.
func (r *reader) quantised() string {
	q := r.options.Quantisation
	if q != "" {
		r.identity["cache.quantisation"] = q
	}
	return q
}

// eightBits is the element type of fp8 and fp8_e5m2.
func eightBits(quantisation string) geometry.DType {
	if quantisation == "fp8_e5m2" {
		return geometry.FP8E5M2
	}
	return geometry.FP8E4M3
}

// kv are the components of an attention whose keys and values have the same
// heads.
func (r *reader) kv(heads, keyDim, valueDim int) []geometry.Component {
	var out []geometry.Component
	for _, c := range []geometry.Component{{Name: "k", Dim: keyDim}, {Name: "v", Dim: valueDim}} {
		c.Heads = heads
		out = append(out, r.rows(c)...)
	}
	return out
}

// rows is a component as it is kept: quantised, and then with its scales.
func (r *reader) rows(c geometry.Component) []geometry.Component {
	scale := geometry.Component{Name: c.Name + "_scale", Heads: c.Heads, Dim: 1, DType: geometry.FP32, Scales: c.Name}
	switch q := r.quantised(); q {
	case "":
		c.DType = r.dtype
		return []geometry.Component{c}
	case "fp8", "fp8_e5m2":
		c.DType = eightBits(q)
		return []geometry.Component{c}
	case "fp8_per_token_head":
		c.DType = geometry.FP8E4M3
	case "int8_per_token_head":
		c.DType = geometry.Int8
	case "nvfp4":
		c.DType, scale.DType = geometry.FP4, geometry.FP8E4M3
		if scale.Dim = c.Dim / nvfp4Block; c.Dim%nvfp4Block != 0 {
			r.fail("quantisation", q, "component %s has rows of %d elements, which do not part into blocks of %d", c.Name, c.Dim, nvfp4Block)
		}
	default:
		r.fail("quantisation", q, "is not for an attention with keys and values (component %s)", c.Name)
	}
	return []geometry.Component{c, scale}
}

// mla are the components of multi-head latent attention: a latent and the part
// of the key that positions turn, both without heads.
func (r *reader) mla(latent, rope int) []geometry.Component {
	l := geometry.Component{Name: "latent", Dim: latent, DType: r.dtype}
	p := geometry.Component{Name: "rope", Dim: rope, DType: r.dtype}
	switch q := r.quantised(); q {
	case "":
	case "fp8", "fp8_e5m2":
		l.DType, p.DType = eightBits(q), eightBits(q)
	case "fp8_ds_mla":
		const block = 128 // elements that share a scale
		if latent%block != 0 {
			r.fail(r.fields.at+"kv_lora_rank", latent, "does not part into the %d elements that share a scale in fp8_ds_mla", block)
		}
		l.DType, p.DType = geometry.FP8E4M3, geometry.BF16
		scale := geometry.Component{Name: "scale", Dim: max(latent/block, 1), DType: geometry.FP32, Scales: "latent"}
		return []geometry.Component{l, scale, p}
	default:
		r.fail("quantisation", q, "is not for MLA: its rows have no heads, and latent and rope are one row")
	}
	return []geometry.Component{l, p}
}

// indexer are the components of a sparse attention's indexer: one fp8 key a
// token with a scale for every 128 elements, whatever the attention's own cache
// is.
func indexer(dim, entry int) []geometry.Component {
	const block = 128
	key := geometry.Component{Name: "index_k", Dim: dim, DType: geometry.FP8E4M3, Entry: entry}
	scale := geometry.Component{Name: "index_scale", Dim: max(dim/block, 1), DType: geometry.FP32, Entry: entry}
	if entry == 0 {
		scale.Scales = key.Name // those of compressed entries are part of the entry
	}
	return []geometry.Component{key, scale}
}

// single is the row of DeepSeek V4, key and value in one. In fp8_ds_mla its
// parts lie apart, but they move together.
func (r *reader) single(dim, rope, entry int) []geometry.Component {
	row := geometry.Component{Name: "kv", Dim: dim, DType: r.dtype, Entry: entry}
	switch q := r.quantised(); q {
	case "":
	case "fp8", "fp8_e5m2":
		row.DType = eightBits(q)
	case "fp8_ds_mla":
		const block = 64
		flat := dim - rope
		if flat < block || flat%block != 0 {
			r.fail(r.fields.at+"head_dim", dim, "less %d of rope does not part into the %d elements that share a scale in fp8_ds_mla", rope, block)
			return nil
		}
		row.Dim, row.DType = flat, geometry.FP8E4M3
		scale := geometry.Component{Name: "kv_scale", Dim: flat/block + 1, DType: geometry.Uint8, Entry: entry}
		if entry == 0 {
			scale.Scales = row.Name
		}
		return []geometry.Component{row, {Name: "rope", Dim: rope, DType: geometry.BF16, Entry: entry}, scale}
	default:
		r.fail("quantisation", q, "is not for rows that are key and value in one")
	}
	return []geometry.Component{row}
}

// conv is a part of a convolution's state: the last inputs of each channel.
func (r *reader) conv(name string, channels, unit, kernel int) geometry.Component {
	if unit == 1 {
		unit = 0
	}
	if kernel < 2 {
		r.fail("the convolution's kernel", kernel, "keeps nothing: want at least 2")
	}
	return geometry.Component{Name: name, Heads: channels, Unit: unit, Dim: max(kernel-1, 1), DType: r.dtype}
}

// state is the group of recurrent layers.
func (r *reader) state(name string, layers []int, components ...geometry.Component) {
	r.add(geometry.Group{Name: name, Layers: layers, State: true, Components: slices.Clip(components)})
}
