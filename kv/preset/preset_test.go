package preset_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; review the difference")

// sizes are those of the example: layers 40 to 42, B blocks of N tokens, H heads of
// D elements of E bytes.
type sizes struct{ L, B, N, H, D, E int64 }

// index is element (layer, block, token, head, dim) of component c, 0 for K
// and 1 for V.
type index struct{ c, l, b, n, h, d int64 }

// formulas say at which byte of which region an element lies, written like
// index arithmetic on the engines' arrays and apart from how the presets say
// it. The region is "" for the pool of all layers, "layer" for one a layer,
// "kv" for one a layer and component.
var formulas = map[string]struct {
	region string
	byte   func(s sizes, i index) int64
}{
	// kv[b, h, n, c*D + d]
	"vllm/packed-hnd": {"layer", func(s sizes, i index) int64 { return (((i.b*s.H+i.h)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E }},
	// kv[b, n, h, c*D + d]
	"vllm/packed-nhd": {"layer", func(s sizes, i index) int64 { return (((i.b*s.N+i.n)*s.H+i.h)*2*s.D + i.c*s.D + i.d) * s.E }},
	// kv[c, b, h, n, d]
	"vllm/split-hnd": {"layer", func(s sizes, i index) int64 { return ((((i.c*s.B+i.b)*s.H+i.h)*s.N+i.n)*s.D + i.d) * s.E }},
	// kv[c, b, n, h, d]
	"vllm/split-nhd": {"layer", func(s sizes, i index) int64 { return ((((i.c*s.B+i.b)*s.N+i.n)*s.H+i.h)*s.D + i.d) * s.E }},
	// kv[b, c, h, n, d]
	"vllm/joint-hnd": {"layer", func(s sizes, i index) int64 { return ((((i.b*2+i.c)*s.H+i.h)*s.N+i.n)*s.D + i.d) * s.E }},
	// kv[b, c, n, h, d]
	"vllm/joint-nhd": {"layer", func(s sizes, i index) int64 { return ((((i.b*2+i.c)*s.N+i.n)*s.H+i.h)*s.D + i.d) * s.E }},
	// kv[l, b, h, n, c*D + d] and its permutations
	"vllm/lbhnc": {"", func(s sizes, i index) int64 {
		return ((((i.l*s.B+i.b)*s.H+i.h)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/lbnhc": {"", func(s sizes, i index) int64 {
		return ((((i.l*s.B+i.b)*s.N+i.n)*s.H+i.h)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/lhbnc": {"", func(s sizes, i index) int64 {
		return ((((i.l*s.H+i.h)*s.B+i.b)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/blhnc": {"", func(s sizes, i index) int64 {
		return ((((i.b*s.L+i.l)*s.H+i.h)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/blnhc": {"", func(s sizes, i index) int64 {
		return ((((i.b*s.L+i.l)*s.N+i.n)*s.H+i.h)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/bhlnc": {"", func(s sizes, i index) int64 {
		return ((((i.b*s.H+i.h)*s.L+i.l)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	"vllm/cross-layer": {"", func(s sizes, i index) int64 {
		return ((((i.b*s.H+i.h)*s.L+i.l)*s.N+i.n)*2*s.D + i.c*s.D + i.d) * s.E
	}},
	// A chunk of 2*N*D elements a (l, b, h): K[d, n], then V[n, d].
	"vllm/cpu-vec": {"", func(s sizes, i index) int64 {
		chunk := ((i.l*s.B+i.b)*s.H + i.h) * 2 * s.N * s.D
		if i.c == 0 {
			return (chunk + i.d*s.N + i.n) * s.E
		}
		return (chunk + s.N*s.D + i.n*s.D + i.d) * s.E
	}},
	// K[n/16, d/2, n%16, d%2], then V[d/16, n/2, d%16, n%2].
	"vllm/cpu-amx": {"", func(s sizes, i index) int64 {
		chunk := ((i.l*s.B+i.b)*s.H + i.h) * 2 * s.N * s.D
		if i.c == 0 {
			return (chunk + ((i.n/16*(s.D/2)+i.d/2)*16+i.n%16)*2 + i.d%2) * s.E
		}
		return (chunk + s.N*s.D + ((i.d/16*(s.N/2)+i.n/2)*16+i.d%16)*2 + i.n%2) * s.E
	}},
	// key[b, h, d/x, n, d%x] with x = 16 bytes of elements; value[b, h, d, n].
	"vllm/x-packed":    {"kv", xPacked},
	"vllm/x-packed-4":  {"kv", xPacked},
	"vllm/x-packed-16": {"kv", xPacked},
	// kv[b, n, latent]: 512 of latent, then 64 of rope.
	"vllm/mla":   {"layer", latent},
	"sglang/mla": {"layer", latent},
	// kv[b, h, n, c*(D+4) + d], four bytes of scale behind each row
	"vllm/token-head-scales-hnd": {"layer", func(s sizes, i index) int64 { return ((i.b*s.H+i.h)*s.N+i.n)*2*(s.D+4) + tokenHead(s, i) }},
	"vllm/token-head-scales-nhd": {"layer", func(s sizes, i index) int64 { return ((i.b*s.N+i.n)*s.H+i.h)*2*(s.D+4) + tokenHead(s, i) }},
	// A page of K, K's scales, V, V's scales, the last swizzled as the kernel
	// does it.
	"vllm/nvfp4-hnd": {"layer", func(s sizes, i index) int64 {
		scales := s.D / 16
		if i.c == 3 {
			group := scales / 4
			t, d := i.n/4*4+i.d/group, i.d%group*4+i.n%4
			return nvfp4Page(s, i) + (i.h*s.N+t)*scales + d
		}
		return nvfp4Page(s, i) + nvfp4Row(s, i, i.h*s.N+i.n)
	}},
	"vllm/nvfp4-linear-hnd": {"layer", func(s sizes, i index) int64 { return nvfp4Page(s, i) + nvfp4Row(s, i, i.h*s.N+i.n) }},
	"vllm/nvfp4-linear-nhd": {"layer", func(s sizes, i index) int64 { return nvfp4Page(s, i) + nvfp4Row(s, i, i.n*s.H+i.h) }},
	// kv[b, n, 656]: 512 fp8, 4 fp32, 64 bf16
	"vllm/mla-fp8": {"layer", func(s sizes, i index) int64 {
		return (i.b*s.N+i.n)*656 + []int64{i.d, 512 + 4*i.d, 528 + 2*i.d}[i.c]
	}},
	// block_size * head_dim bytes of keys, then 4 bytes a token
	"vllm/indexer": {"layer", func(s sizes, i index) int64 {
		return i.b*s.N*132 + []int64{i.n*128 + i.d, s.N*128 + i.n*4}[i.c]
	}},
	// A page of conv[dim, 3] or conv[3, dim] in 2-byte elements, then
	// ssm[heads, elements] in 4-byte ones. Of 48 channels x, 16 B, 16 C; of 32 q,
	// 32 k, 48 v; the states are 6 heads of 40 elements.
	"vllm/mamba1-ds": {"layer", func(s sizes, i index) int64 { return statePage(i, 48*3*2+48*16*4, i.h*3+i.d, 48*3*2, i.h*16+i.d, 1) }},
	"vllm/mamba1-sd": {"layer", func(s sizes, i index) int64 { return statePage(i, 48*3*2+48*16*4, i.d*48+i.h, 48*3*2, i.h*16+i.d, 1) }},
	"vllm/mamba2-ds": {"layer", func(s sizes, i index) int64 {
		return statePage(i, 80*3*2+6*40*4, (convStart("mamba2", i)+i.h)*3+i.d, 80*3*2, i.h*40+i.d, 3)
	}},
	"vllm/mamba2-sd": {"layer", func(s sizes, i index) int64 {
		return statePage(i, 80*3*2+6*40*4, i.d*80+convStart("mamba2", i)+i.h, 80*3*2, i.h*40+i.d, 3)
	}},
	"vllm/gdn-ds": {"layer", func(s sizes, i index) int64 {
		return statePage(i, 112*3*2+6*40*4, (convStart("gdn", i)+i.h)*3+i.d, 112*3*2, i.h*40+i.d, 3)
	}},
	"vllm/gdn-sd": {"layer", func(s sizes, i index) int64 {
		return statePage(i, 112*3*2+6*40*4, i.d*112+convStart("gdn", i)+i.h, 112*3*2, i.h*40+i.d, 3)
	}},
	// pool[b][l][c][h][n][d]
	"trtllm/pool": {"", func(s sizes, i index) int64 {
		return (i.b*s.L*2*s.H*s.N*s.D + (i.l*2+i.c)*s.H*s.N*s.D + i.h*s.N*s.D + i.n*s.D + i.d) * s.E
	}},
	"trtllm/pool-nhd": {"", func(s sizes, i index) int64 {
		return (i.b*s.L*2*s.H*s.N*s.D + (i.l*2+i.c)*s.H*s.N*s.D + i.n*s.H*s.D + i.h*s.D + i.d) * s.E
	}},
	// k_buffer[layer][slot, h, d], slot = b*N + n
	"sglang/mha": {"kv", func(s sizes, i index) int64 { return (((i.b*s.N+i.n)*s.H+i.h)*s.D + i.d) * s.E }},
	// [nh, nl, no, nt, hd] a block
	"dynamo/universal": {"", func(s sizes, i index) int64 {
		return (((((i.b*s.H+i.h)*s.L+i.l)*2+i.c)*s.N+i.n)*s.D + i.d) * s.E
	}},
	"dynamo/universal-pp": {"", func(s sizes, i index) int64 {
		return (((((i.b*s.L+i.l)*s.H+i.h)*2+i.c)*s.N+i.n)*s.D + i.d) * s.E
	}},
	// [nl, no, nt*nh*hd] a block, ((h*nt)+t)*hd+d and ((t*nh)+h)*hd+d
	"dynamo/operational-hnd": {"", func(s sizes, i index) int64 {
		return (((i.b*s.L+i.l)*2+i.c)*s.N*s.H*s.D + ((i.h*s.N)+i.n)*s.D + i.d) * s.E
	}},
	"dynamo/operational-nhd": {"", func(s sizes, i index) int64 {
		return (((i.b*s.L+i.l)*2+i.c)*s.N*s.H*s.D + ((i.n*s.H)+i.h)*s.D + i.d) * s.E
	}},
}

func xPacked(s sizes, i index) int64 {
	if i.c == 0 {
		x := 16 / s.E
		return ((((i.b*s.H+i.h)*(s.D/x)+i.d/x)*s.N+i.n)*x + i.d%x) * s.E
	}
	return (((i.b*s.H+i.h)*s.D+i.d)*s.N + i.n) * s.E
}

func latent(s sizes, i index) int64 { return ((i.b*s.N+i.n)*576 + i.c*512 + i.d) * s.E }

// tokenHead is the byte within a (token, head) slot of D bytes of K, 4 of its
// scale, D of V, 4 of its scale.
func tokenHead(s sizes, i index) int64 { return i.c/2*(s.D+4) + i.c%2*s.D + i.d }

// nvfp4Page is the byte at which component c of block b starts: per head and
// token half a byte an element and a byte for each 16.
func nvfp4Page(s sizes, i index) int64 {
	rows, data, scales := s.H*s.N, s.D/2, s.D/16
	return i.b*rows*2*(data+scales) + rows*[]int64{0, data, data + scales, 2*data + scales}[i.c]
}

// nvfp4Row is the byte, within its component, of an element of a row.
func nvfp4Row(s sizes, i index, row int64) int64 {
	if i.c%2 == 1 {
		return row*(s.D/16) + i.d
	}
	return row*(s.D/2) + i.d/2
}

// statePage is the byte of a conv element, or behind the conv bytes of a page
// one of the states, which is component last.
func statePage(i index, page, element, conv, state, last int64) int64 {
	if i.c == last {
		return i.b*page + conv + state*4
	}
	return i.b*page + element*2
}

// convStart is the first channel of a conv component among all of them.
func convStart(kind string, i index) int64 {
	if i.c == 3 {
		return 0
	}
	return map[string][]int64{"mamba2": {0, 48, 64}, "gdn": {0, 32, 64}}[kind][i.c]
}

// example is a rank that the preset fits: 3 layers (40 to 42), 4 blocks of 32
// tokens, 2 heads of 32 elements; for MLA a latent of 512 and a rope part of 64;
// for NVFP4 heads of 64 elements; for states 4 slots.
func example(p preset.Preset) (layout.Extent, sizes) {
	s := sizes{L: 3, B: 4, N: 32, H: 2, D: 32, E: 2}
	dtype := geometry.BF16
	_, layoutName, _ := strings.Cut(p.Name, "/")
	kind, _, _ := strings.Cut(layoutName, "-")
	quantised := kind == "nvfp4" || kind == "token" || layoutName == "mla-fp8" || kind == "indexer"
	if len(p.Spec.Bits) > 0 && !quantised {
		s.E = p.Spec.Bits[0] / 8
		dtype = map[int64]geometry.DType{1: geometry.FP8E4M3, 2: geometry.BF16, 4: geometry.FP32}[s.E]
	}
	e := layout.Extent{Layers: []int{40, 41, 42}, Blocks: 4, Tokens: 32}
	add := func(name string, heads, dim int, dtype geometry.DType) {
		c := geometry.Component{Name: name, Heads: 4 * heads, Dim: dim, DType: dtype}
		switch name {
		case "k_scale", "v_scale":
			c.Scales = name[:1]
		case "scale":
			c.Scales = "latent"
		case "index_scale":
			c.Scales = "index_k"
		}
		e.Components, e.Heads = append(e.Components, c), append(e.Heads, heads)
	}
	states := func(conv ...any) {
		e.State, e.Tokens, s.N, s.H = true, 1, 1, 112
		for i := 0; i < len(conv); i += 2 {
			add(conv[i].(string), conv[i+1].(int), 3, geometry.BF16)
		}
	}
	switch {
	case layoutName == "mla":
		s.H = 1
		add("latent", 0, 512, dtype)
		add("rope", 0, 64, dtype)
	case layoutName == "mla-fp8":
		s.H = 1
		add("latent", 0, 512, geometry.FP8E4M3)
		add("scale", 0, 4, geometry.FP32)
		add("rope", 0, 64, geometry.BF16)
	case kind == "indexer":
		s.H = 1
		add("index_k", 0, 128, geometry.FP8E4M3)
		add("index_scale", 0, 1, geometry.FP32)
	case kind == "token":
		for _, c := range []string{"k", "v"} {
			add(c, 2, 32, geometry.FP8E4M3)
			add(c+"_scale", 2, 1, geometry.FP32)
		}
	case kind == "nvfp4":
		s.D = 64
		for _, c := range []string{"k", "v"} {
			add(c, 2, 64, geometry.FP4)
			add(c+"_scale", 2, 4, geometry.FP8E4M3)
		}
	case kind == "mamba1":
		states("x", 48)
		add("ssm", 48, 16, geometry.FP32)
	case kind == "mamba2":
		states("x", 48, "B", 16, "C", 16)
		add("ssm", 6, 40, geometry.FP32)
	case kind == "gdn":
		states("q", 32, "k", 32, "v", 48)
		add("ssm", 6, 40, geometry.FP32)
	default:
		add("k", 2, 32, dtype)
		add("v", 2, 32, dtype)
	}
	return e, s
}

func TestPresets(t *testing.T) {
	known := map[string]bool{}
	for _, p := range preset.All() {
		known[p.Name] = true
		t.Run(p.Name, func(t *testing.T) {
			f, ok := formulas[p.Name]
			if !ok {
				t.Fatal("there is no formula for this preset")
			}
			e, s := example(p)
			l, err := p.Resolve(e)
			if err != nil {
				t.Fatal(err)
			}
			var golden strings.Builder
			fmt.Fprintf(&golden, "# %s %s\n# %s\n# layers %s, ", p.Name, p.Spec.Text(), p.Doc, geometry.Ranges(e.Layers))
			head := "head"
			if e.State {
				head = "channel"
				fmt.Fprintf(&golden, "%d slots", s.B)
			} else {
				fmt.Fprintf(&golden, "%d blocks of %d tokens", s.B, s.N)
			}
			for ci, c := range e.Components {
				fmt.Fprintf(&golden, ", %s: ", c.Name)
				if n := e.Heads[ci]; n > 0 {
					fmt.Fprintf(&golden, "%d %ss of ", n, head)
				}
				fmt.Fprintf(&golden, "%d %s", c.Dim, c.DType)
			}
			golden.WriteString("\n")
			for _, r := range l.Regions {
				fmt.Fprintf(&golden, "region %-12s %8d bytes\n", r.Name, r.Bytes)
			}
			for ci, c := range e.Components {
				for li := range s.L {
					for b := range s.B {
						for n := range s.N {
							for h := range int64(max(e.Heads[ci], 1)) {
								for d := range int64(c.Dim) {
									i := index{int64(ci), li, b, n, h, d}
									region, bit := l.Bit(ci, int(li), b, n, h, d)
									name := map[string]string{
										"": "pool", "layer": fmt.Sprintf("layer%d", e.Layers[li]), "kv": fmt.Sprintf("layer%d.%s", e.Layers[li], c.Name),
									}[f.region]
									// Of two elements in a byte the first is the low half.
									low := i.d * c.DType.Bits() % 8
									if got := l.Regions[region].Name; got != name || bit != 8*f.byte(s, i)+low {
										t.Fatalf("%+v lies at %s byte %d, want %s byte %d", i, got, bit/8, name, f.byte(s, i))
									}
									if shown(i, s, int64(max(e.Heads[ci], 1)), int64(c.Dim)) {
										at := fmt.Sprintf("block %d token %2d head %d", b, n, h)
										if e.State {
											at = fmt.Sprintf("slot %d channel %2d", b, h)
										}
										fmt.Fprintf(&golden, "%-6s layer %d %s dim %3d  at %-9s %8d\n", c.Name, e.Layers[li], at, d, name, bit/8)
									}
								}
							}
						}
					}
				}
			}
			file := filepath.Join("testdata", strings.ReplaceAll(p.Name, "/", "_")+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(golden.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if golden.String() != string(want) {
				t.Errorf("differs from %s (-rewrite writes it anew):\n%s", file, golden.String())
			}
			// The name is not needed: the layout follows from observation, and
			// from its own JSON.
			var seen []layout.Sample
			for _, el := range layout.Samples(e) {
				r, bit := l.Bit(el.Component, el.Layer, el.Block, el.Token, el.Head, el.Dim)
				seen = append(seen, layout.Sample{Element: el, Region: r, Bit: bit})
			}
			inferred, err := layout.Infer(seen, e, l.Regions)
			if err != nil || !inferred.Equal(l) {
				t.Errorf("infer: %v", err)
			}
			data, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			var read layout.Layout
			if err := json.Unmarshal(data, &read); err != nil || !read.Equal(l) {
				t.Errorf("JSON: %v", err)
			}
		})
	}
	for name := range formulas {
		if !known[name] {
			t.Errorf("a formula for %s, which is no preset", name)
		}
	}
	// Files of presets that are gone.
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(known) {
		t.Errorf("%d golden files for %d presets: %v", len(files), len(known), err)
	}
}

// shown picks a few elements for the golden file: the first, one step along
// each axis, and some in the middle.
func shown(i index, s sizes, heads, dim int64) bool {
	return slices.Contains([]index{
		{c: i.c}, {c: i.c, l: 1}, {c: i.c, b: 1}, {c: i.c, n: 1}, {c: i.c, h: 1}, {c: i.c, d: 1},
		{c: i.c, n: 17}, {c: i.c, d: 9}, {c: i.c, n: 17, d: 9},
		{i.c, 2, 3, 5, heads - 1, 7}, {i.c, s.L - 1, s.B - 1, s.N - 1, heads - 1, dim - 1},
	}, i)
}

// TestFacts are numbers that others measured, not computed here.
func TestFacts(t *testing.T) {
	get := func(name string, e layout.Extent) *layout.Layout {
		p, ok := preset.Get(name)
		if !ok {
			t.Fatalf("no preset %s", name)
		}
		l, err := p.Resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	extent := func(blocks, tokens, heads, dim int, dtype geometry.DType, layers ...int) layout.Extent {
		return layout.Extent{Layers: layers, Blocks: blocks, Tokens: tokens, Heads: []int{heads, heads}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: dim, DType: dtype}, {Name: "v", Heads: 8, Dim: dim, DType: dtype}}}
	}
	byteOf := func(l *layout.Layout, c, layer int, b, n, h, d int64) int64 {
		_, bit := l.Bit(c, layer, b, n, h, d)
		return bit / 8
	}
	nvfp4 := layout.Extent{Layers: []int{0}, Blocks: 1, Tokens: 8, Heads: []int{1, 1, 1, 1}, Components: []geometry.Component{
		{Name: "k", Heads: 1, Dim: 256, DType: geometry.FP4}, {Name: "k_scale", Heads: 1, Dim: 16, DType: geometry.FP8E4M3, Scales: "k"},
		{Name: "v", Heads: 1, Dim: 256, DType: geometry.FP4}, {Name: "v_scale", Heads: 1, Dim: 16, DType: geometry.FP8E4M3, Scales: "v"}}}
	tokenHeads := layout.Extent{Layers: []int{0}, Blocks: 1, Tokens: 8, Heads: []int{1, 1, 1, 1}, Components: []geometry.Component{
		{Name: "k", Heads: 1, Dim: 256, DType: geometry.Int8}, {Name: "k_scale", Heads: 1, Dim: 1, DType: geometry.FP32, Scales: "k"},
		{Name: "v", Heads: 1, Dim: 256, DType: geometry.Int8}, {Name: "v_scale", Heads: 1, Dim: 1, DType: geometry.FP32, Scales: "v"}}}
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		// A prefill rank of TP 2 and a decode rank of TP 4, 8 heads, 16 tokens,
		// 128 fp16: block 32768 and 16384 bytes, head slice of rank 1 at 16384.
		{"packed block, 4 heads", byteOf(get("hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 0, 0, 1, 0, 0, 0), 32768},
		{"packed block, 2 heads", byteOf(get("hnd", extent(4, 16, 2, 128, geometry.FP16, 0)), 0, 0, 1, 0, 0, 0), 16384},
		{"packed, head 2", byteOf(get("hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 0, 0, 0, 0, 2, 0), 16384},
		{"packed, block 3 head 2", byteOf(get("hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 0, 0, 3, 0, 2, 0), 114688},
		{"joint, K of head 2", byteOf(get("joint-hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 0, 0, 0, 0, 2, 0), 8192},
		{"joint, V of head 2", byteOf(get("joint-hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 1, 0, 0, 0, 2, 0), 24576},
		{"split, V of head 2", byteOf(get("split-hnd", extent(4, 16, 4, 128, geometry.FP16, 0)), 1, 0, 0, 0, 2, 0), 65536 + 8192},
		{"split, V, 2 heads", byteOf(get("split-hnd", extent(4, 16, 2, 128, geometry.FP16, 0)), 1, 0, 0, 0, 0, 0), 32768},
		{"mla block", byteOf(get("mla", layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 64, Heads: []int{0}, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.FP16}}}), 0, 0, 1, 0, 0, 0), 73728},
		// NVFP4 heads of 256 elements, 16 scales each: the kernel puts the scale
		// of token 5 and group 7 at row 5, column 13 of V's; K's lie as they are.
		{"nvfp4 V scale", byteOf(get("nvfp4-hnd", nvfp4), 3, 0, 0, 5, 0, 7) - byteOf(get("nvfp4-hnd", nvfp4), 3, 0, 0, 0, 0, 0), 5*16 + 13},
		{"nvfp4 K scale", byteOf(get("nvfp4-hnd", nvfp4), 1, 0, 0, 5, 0, 7) - byteOf(get("nvfp4-hnd", nvfp4), 1, 0, 0, 0, 0, 0), 5*16 + 7},
		// A head of 256 int8 elements has slots of 260 bytes, K and V 520.
		{"token-head slot", byteOf(get("token-head-scales-hnd", tokenHeads), 2, 0, 0, 0, 0, 0), 260},
		{"token-head pair", byteOf(get("token-head-scales-hnd", tokenHeads), 0, 0, 0, 1, 0, 0), 520},
		// TensorRT-LLM: 4 layers, 4 heads, 16 tokens, 4 wide: element layer 2
		// head 3 token 5 dim 0 is K 1236 and V 1492, in elements of a block.
		{"trtllm K", byteOf(get("trtllm", extent(1, 16, 4, 4, geometry.Int8, 0, 1, 2, 3)), 0, 2, 0, 5, 3, 0), 1236},
		{"trtllm V", byteOf(get("trtllm", extent(1, 16, 4, 4, geometry.Int8, 0, 1, 2, 3)), 1, 2, 0, 5, 3, 0), 1492},
		// and on a rank of TP 2, PP 2 (layers 2 and 3, heads 2 and 3) 84 and 212.
		{"trtllm K, TP 2 PP 2", byteOf(get("trtllm", extent(1, 16, 2, 4, geometry.Int8, 2, 3)), 0, 0, 0, 5, 1, 0), 84},
		{"trtllm V, TP 2 PP 2", byteOf(get("trtllm", extent(1, 16, 2, 4, geometry.Int8, 2, 3)), 1, 0, 0, 5, 1, 0), 212},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, p := range preset.All() {
		if p.Doc == "" || p.Source == "" || strings.ContainsAny(p.Doc+p.Source, "\n\t") || !strings.Contains(p.Name, "/") {
			t.Errorf("%q: want engine/layout, one line of doc and a source", p.Name)
		}
		for _, n := range append([]string{p.Name}, p.Aliases...) {
			if o, ok := seen[n]; ok {
				t.Errorf("%s names %s and %s", n, o, p.Name)
			}
			seen[n] = p.Name
			got, ok := preset.Get(n)
			if !ok || got.Name != p.Name {
				t.Errorf("Get(%s) = %s, %v", n, got.Name, ok)
			}
			spec, ok := preset.Lookup(n)
			if !ok || spec.Text() != p.Spec.Text() {
				t.Errorf("Lookup(%s) = %s, %v", n, spec.Text(), ok)
			}
		}
	}
	for short, full := range map[string]string{"hnd": "vllm/packed-hnd", "nhd": "vllm/packed-nhd", "packed-hnd": "vllm/packed-hnd", "packed-nhd": "vllm/packed-nhd"} {
		if seen[short] != full {
			t.Errorf("%s is %q, want %s", short, seen[short], full)
		}
	}
	for _, n := range []string{"", "HND", "vllm", "vllm/packed", "default"} {
		if p, ok := preset.Get(n); ok {
			t.Errorf("Get(%q) = %s", n, p.Name)
		}
		if _, ok := preset.Lookup(n); ok {
			t.Errorf("Lookup(%q) finds something", n)
		}
	}
	// What a caller does to a preset stays with the caller.
	p, _ := preset.Get("cpu-vec")
	p.Spec.Order[0].Item.Axis = geometry.Dim
	p.Spec.Order[4].Branch["k"][0].Item.Axis = geometry.Block
	p.Spec.Bits[0] = 1
	q, _ := preset.Get("cpu-vec")
	if got, want := q.Spec.Text(), "[layer, block, head, component, {k: [dim, token], v: [token, dim]}]"; got != want || q.Spec.Bits[0] != 32 {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRefusals has engines for which a preset is not made.
func TestRefusals(t *testing.T) {
	attention, _ := example(preset.Preset{})
	mla, _ := example(preset.Preset{Name: "vllm/mla"})
	fp8 := attention
	fp8.Components = slices.Clone(attention.Components)
	fp8.Components[0].DType, fp8.Components[1].DType = geometry.FP8E4M3, geometry.FP8E4M3
	odd := attention
	odd.Tokens = 24
	// swapped is a preset's own example with two components exchanged: what the
	// preset concatenates would lie elsewhere.
	swapped := func(name string, a, b int) layout.Extent {
		p, ok := preset.Get(name)
		if !ok {
			t.Fatal(name)
		}
		e, _ := example(p)
		e.Components[a], e.Components[b] = e.Components[b], e.Components[a]
		e.Heads[a], e.Heads[b] = e.Heads[b], e.Heads[a]
		return e
	}
	named := attention
	named.Components = slices.Clone(attention.Components)
	named.Components[0].Name = "key"
	for _, c := range []struct {
		name   string
		extent layout.Extent
		say    string
	}{
		{"hnd", mla, "resolve preset vllm/packed-hnd: layout: order is head: component latent has no heads"},
		{"mla", attention, "resolve preset vllm/mla: layout: order is [block, token, component, dim]: head is missing for component k"},
		{"x-packed", fp8, "made for elements of [16] bits, component k has fp8_e4m3"},
		{"cpu-amx", odd, "24 places of token"},
		{"cpu-vec", named, `no component "k"`},
		{"mla-fp8", mla, `no component "scale"`},
		{"mla-fp8", swapped("vllm/mla-fp8", 1, 2), `names component "rope" out of the model's order`},
		{"mamba2-ds", swapped("vllm/mamba2-ds", 0, 3), `names component "B" out of the model's order`},
		{"gdn-sd", swapped("vllm/mamba2-sd", 0, 0), `no component "q"`},
		{"nvfp4-hnd", swapped("vllm/token-head-scales-hnd", 0, 0), "made for elements of [4 8] bits, component k_scale has fp32"},
		{"mamba1-ds", attention, `no component "x"`},
		{"hnd", swapped("vllm/mamba1-ds", 0, 0), "order is block: want layer, slot, channel or dim in a state"},
	} {
		p, ok := preset.Get(c.name)
		if !ok {
			t.Fatal(c.name)
		}
		_, err := p.Resolve(c.extent)
		var e *layout.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: got %v; want %q", c.name, err, c.say)
		}
	}
}
