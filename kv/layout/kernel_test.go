package layout_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// logical is an extent of blocks of 12 tokens, with entries of two tokens
// beside rows for each.
func logical() layout.Extent {
	return layout.Extent{Layers: []int{3, 5}, Blocks: 3, Tokens: 12, Heads: []int{2, 2, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 8, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 8, DType: geometry.BF16},
		{Name: "s", Dim: 1, DType: geometry.FP32, Entry: 2, Scales: "k"}}}
}

// TestKernelBlocks: logical block b is kernel blocks b*n to b*n+n-1, so the
// layout is that of an engine which counts in kernel blocks alone.
func TestKernelBlocks(t *testing.T) {
	for _, text := range []string{
		"block component {k,v: head token component dim; s: token dim}",
		"block component {k,v: token head component dim; s: token dim}",
		"block {k: head dim token; v: head token dim; s: token dim}",
		"layer block component {k: head dim/4 token dim%4; v: token/2 head token%2 dim; s: token dim}",
		"block layer component {k: head token dim; v: head token dim; s: token dim}",
		"component {k: head block token dim; v: block token head dim; s: token block dim}",
	} {
		for _, kernel := range []int{2, 4, 6, 12} {
			for _, stride := range []int64{0, 4096} {
				e, n := logical(), int64(12/kernel)
				s := layout.Spec{Order: order(t, text), Kernel: int64(kernel)}
				outer := strings.Fields(text)[0]
				if stride > 0 && outer != "component" {
					s.Strides = map[string]int64{outer: stride}
				}
				l, err := s.Resolve(e)
				if err != nil {
					t.Fatalf("%s, kernel %d: %v", text, kernel, err)
				}
				plain := s
				plain.Kernel = 0
				ke := e
				ke.Blocks, ke.Tokens = e.Blocks*int(n), kernel
				kl, err := plain.Resolve(ke)
				if err != nil {
					t.Fatalf("%s of %d tokens: %v", text, kernel, err)
				}
				if fmt.Sprint(l.Regions) != fmt.Sprint(kl.Regions) {
					t.Fatalf("%s, kernel %d: regions %v, by kernel blocks %v", text, kernel, l.Regions, kl.Regions)
				}
				elements(e, func(el layout.Element) {
					per := places(ke, geometry.Token, el.Component) // entries a kernel block
					kel := el
					kel.Block, kel.Token = el.Block*n+el.Token/per, el.Token%per
					r, bit := at(l, el)
					if kr, kbit := at(kl, kel); kr != r || kbit != bit {
						t.Fatalf("%s, kernel %d: %s lies at bit %d, in kernel blocks %s at bit %d", text, kernel, el, bit, kel, kbit)
					}
				})
			}
		}
	}
}

// TestKernelBlocksTiled: the same order written with divided tokens.
func TestKernelBlocksTiled(t *testing.T) {
	for _, c := range []struct {
		kernel, tiled string
		size          int64
		strides       map[string]int64 // of the kernel order; "block" is "token/size" in the tiled one
	}{
		{"block head token component dim", "block token/4 head token%4 component dim", 4, nil},
		{"block head token component dim", "block token/4 head token%4 component dim", 4, map[string]int64{"block": 1024}},
		{"block head token component dim", "block token/4 head token%4 component dim", 4, map[string]int64{"head": 512}},
		{"block component head token dim", "block token/3 component head token%3 dim", 3, map[string]int64{"block": 1000}},
		{"head block token component dim", "head block token/6 token%6 component dim", 6, nil},
		{"head block token/2 component dim token%2", "head block token/6 token%6/2 component dim token%2", 6, nil},
		{"block head component {k: dim/2 token dim%2; v: token dim}", "block token/2 head component {k: dim/2 token%2 dim%2; v: token%2 dim}", 2, map[string]int64{"block": 640}},
		{"layer block token head dim", "layer block token/4 token%4 head dim", 4, nil},
		{"block token head component dim", "block token head component dim", 12, nil}, // a kernel block is the block
		{"block head token component dim", "block token head component dim", 1, nil},  // or one token
		{"block head component dim", "block token head component dim", 1, nil},        // which need not be named
	} {
		e := kv()
		e.Tokens = 12
		strides := maps.Clone(c.strides)
		if v, ok := strides["block"]; ok && c.size < 12 {
			delete(strides, "block")
			strides[fmt.Sprintf("token/%d", c.size)] = v
		}
		a, err := layout.Spec{Order: order(t, c.kernel), Kernel: c.size, Strides: c.strides}.Resolve(e)
		if err != nil {
			t.Fatalf("%s, kernel %d: %v", c.kernel, c.size, err)
		}
		b, err := layout.Spec{Order: order(t, c.tiled), Strides: strides}.Resolve(e)
		if err != nil {
			t.Fatalf("%s: %v", c.tiled, err)
		}
		if !a.Equal(b) {
			t.Errorf("%s in kernel blocks of %d:\n%s\n%s:\n%s", c.kernel, c.size, a.Text(), c.tiled, b.Text())
		}
	}
}

// TestKernelBlocksByHand has figures of public engines: blocks of 384 and 640
// tokens over kernel blocks of 64 (6 and 10 of them), 128 over 64.
func TestKernelBlocksByHand(t *testing.T) {
	for _, c := range []struct{ tokens, n int64 }{{384, 6}, {640, 10}, {128, 2}} {
		e := layout.Extent{Layers: []int{0}, Blocks: 4, Tokens: int(c.tokens), Heads: []int{2, 2}, Components: []geometry.Component{
			{Name: "k", Heads: 2, Dim: 64, DType: geometry.BF16}, {Name: "v", Heads: 2, Dim: 64, DType: geometry.BF16}}}
		l, err := layout.Spec{Name: "HND", Order: order(t, "block head token component dim"), Kernel: 64}.Resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		const page = 2 * 64 * 2 * 64 * 2 // bytes of a kernel block
		if r := (layout.Region{Name: "layer0", Bytes: 4 * c.n * page}); l.Regions[0] != r {
			t.Errorf("got %v, want %v", l.Regions[0], r)
		}
		for _, token := range []int64{0, 1, 63, 64, 127, c.tokens - 1} {
			want := (3*c.n+token/64)*page + 64*2*64*2 + token%64*256 + 128 + 2*5
			if _, bit := l.Bit(1, 0, 3, token, 1, 5); bit != 8*want {
				t.Errorf("%d tokens: token %d lies at byte %d, want %d", c.tokens, token, bit/8, want)
			}
		}
	}
}

func TestKernelBlocksClaim(t *testing.T) {
	e := kv()
	e.Tokens = 12
	for _, c := range []struct {
		order, claim, actual string
		kernel               int64
	}{
		{"block head token component dim", "HND", "", 4},
		{"block head token component dim", "NHD", "HND", 4},
		{"block token head component dim", "NHD", "", 4},
		{"block token head component dim", "HND", "NHD", 4},
		{"layer block head token component dim", "LBHNC", "", 4},
		{"block layer head token component dim", "LBHNC", "BLHNC", 4},
		{"block head token component dim", "HND", "", 1},
		{"block head token component dim", "NHD", "HND", 12},
		// By strides alone, heads inside a kernel block lie between the tokens.
		{"block token/4 head token%4 component dim", "HND", "neither: parts of head and token lie inside one another", 0},
	} {
		_, err := layout.Spec{Name: c.claim, Order: order(t, c.order), Kernel: c.kernel}.Resolve(e)
		var ce *layout.ClaimError
		if c.actual == "" && err != nil || c.actual != "" && (!errors.As(err, &ce) || ce.Actual != c.actual || ce.Claim != c.claim) {
			t.Errorf("%s in kernel blocks of %d as %s: got %v, want to hear of %q", c.order, c.kernel, c.claim, err, c.actual)
		}
	}
}

func TestKernelBlocksRefused(t *testing.T) {
	state := layout.Extent{Layers: []int{0}, Blocks: 3, Tokens: 1, State: true, Heads: []int{2}, Components: []geometry.Component{{Name: "ssm", Heads: 2, Dim: 4, DType: geometry.FP32}}}
	two := kv()
	two.Tokens = 12
	for _, c := range []struct {
		name   string
		extent layout.Extent
		order  string
		kernel int64
		want   string
	}{
		{"no divisor", two, "block head token component dim", 5, "layout: kernel_block is 5: does not divide a block of 12 tokens"},
		{"larger than a block", two, "block head token component dim", 24, "layout: kernel_block is 24: does not divide a block of 12 tokens"},
		{"negative", two, "block head token component dim", -4, "layout: kernel_block is -4: does not divide a block of 12 tokens"},
		{"of a state", state, "slot channel dim", 1, "layout: kernel_block is 1: does not divide a block of 1 tokens"},
		{"that parts an entry", logical(), "block component {k: head token dim; v: head token dim; s: token dim}", 3, "layout: kernel_block is 3: parts an entry of 2 tokens of component s"},
		{"smaller than an entry", logical(), "block component {k: head token dim; v: head token dim; s: token dim}", 1, "layout: kernel_block is 1: parts an entry of 2 tokens of component s"},
		{"a block taken apart", two, "block/3 head token component dim block%3", 4, "layout: order is block/3: a block of kernel blocks is not taken apart"},
		{"a block taken whole with a modulus", two, "block%3 head token component dim", 4, "layout: order is block%3: a block of kernel blocks is not taken apart"},
		{"tokens forgotten", two, "block head component dim", 4, "layout: order is [block, head, component, dim]: the items of token do not tile its 12 places: the part below 4 is missing"},
		{"tokens across kernel blocks", two, "block token/6 head token%6 component dim", 4, "layout: order is token%4/6: want a divisor that divides the modulus"},
	} {
		_, err := layout.Spec{Order: order(t, c.order), Kernel: c.kernel}.Resolve(c.extent)
		var e *layout.Error
		if !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
}
