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

// example is a rank that the preset fits: 3 layers (40 to 42), 4 blocks of 32
// tokens, 2 heads of 32 elements; for MLA a latent of 512 and a rope part of 64.
func example(p preset.Preset) (layout.Extent, sizes) {
	s := sizes{L: 3, B: 4, N: 32, H: 2, D: 32, E: 2}
	dtype := geometry.BF16
	if len(p.Spec.Bits) > 0 {
		s.E = p.Spec.Bits[0] / 8
		dtype = map[int64]geometry.DType{1: geometry.FP8E4M3, 2: geometry.BF16, 4: geometry.FP32}[s.E]
	}
	e := layout.Extent{Layers: []int{40, 41, 42}, Blocks: 4, Tokens: 32, Heads: 2, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 32, DType: dtype}, {Name: "v", Heads: 8, Dim: 32, DType: dtype}}}
	if strings.HasSuffix(p.Name, "/mla") {
		s.H = 1
		e.Heads = 0
		e.Components = []geometry.Component{{Name: "latent", Dim: 512, DType: dtype}, {Name: "rope", Dim: 64, DType: dtype}}
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
			fmt.Fprintf(&golden, "# %s %s\n# %s\n# layers %s, %d blocks of %d tokens, %d heads", p.Name, p.Spec.Text(), p.Doc, geometry.Ranges(e.Layers), s.B, s.N, e.Heads)
			for _, c := range e.Components {
				fmt.Fprintf(&golden, ", %s: %d %s", c.Name, c.Dim, c.DType)
			}
			golden.WriteString("\n")
			for _, r := range l.Regions {
				fmt.Fprintf(&golden, "region %-12s %8d bytes\n", r.Name, r.Bytes)
			}
			for ci, c := range e.Components {
				for li := range s.L {
					for b := range s.B {
						for n := range s.N {
							for h := range s.H {
								for d := range int64(c.Dim) {
									i := index{int64(ci), li, b, n, h, d}
									region, bit := l.Bit(ci, int(li), b, n, h, d)
									name := map[string]string{
										"": "pool", "layer": fmt.Sprintf("layer%d", e.Layers[li]), "kv": fmt.Sprintf("layer%d.%s", e.Layers[li], c.Name),
									}[f.region]
									if got := l.Regions[region].Name; got != name || bit != 8*f.byte(s, i) {
										t.Fatalf("%+v lies at %s byte %d, want %s byte %d", i, got, bit/8, name, f.byte(s, i))
									}
									if shown(i, s, int64(c.Dim)) {
										fmt.Fprintf(&golden, "%-6s layer %d block %d token %2d head %d dim %3d  at %-9s %8d\n", c.Name, e.Layers[li], b, n, h, d, name, bit/8)
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
func shown(i index, s sizes, dim int64) bool {
	return slices.Contains([]index{
		{c: i.c}, {c: i.c, l: 1}, {c: i.c, b: 1}, {c: i.c, n: 1}, {c: i.c, h: 1}, {c: i.c, d: 1},
		{c: i.c, n: 17}, {c: i.c, d: 9}, {c: i.c, n: 17, d: 9},
		{i.c, 2, 3, 5, s.H - 1, 7}, {i.c, s.L - 1, s.B - 1, s.N - 1, s.H - 1, dim - 1},
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
		return layout.Extent{Layers: layers, Blocks: blocks, Tokens: tokens, Heads: heads, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: dim, DType: dtype}, {Name: "v", Heads: 8, Dim: dim, DType: dtype}}}
	}
	byteOf := func(l *layout.Layout, c, layer int, b, n, h, d int64) int64 {
		_, bit := l.Bit(c, layer, b, n, h, d)
		return bit / 8
	}
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
		{"mla block", byteOf(get("mla", layout.Extent{Layers: []int{0}, Blocks: 2, Tokens: 64, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.FP16}}}), 0, 0, 1, 0, 0, 0), 73728},
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
	p.Spec.Order[4].Branch["k"][0].Axis = geometry.Block
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
