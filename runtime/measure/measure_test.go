package measure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/runtime/measure"
)

// kernel is an engine that keeps its cache in some layout, whatever it says.
type kernel struct {
	does    *layout.Layout
	regions [][]byte
	err     error
	writes  int
}

func (k *kernel) put(e layout.Element, v uint64) {
	t := k.does.Extent.Components[e.Component].DType
	region, bit := k.does.Bit(e.Component, e.Layer, e.Block, e.Token, e.Head, e.Dim)
	b := k.regions[region][bit/8:]
	if t.Bits() == 4 {
		b[0] = b[0]&^(15<<(bit%8)) | byte(v)<<(bit%8)
		return
	}
	for i := range t.Bits() / 8 {
		b[i] = byte(v >> (8 * i))
	}
}

func (k *kernel) Write(_ context.Context, _, _ int, block uint32, set []measure.Set) error {
	if k.err != nil {
		return k.err
	}
	k.writes++
	e := &k.does.Extent
	for ci, c := range e.Components {
		for li := range e.Layers {
			for tok := range int64(e.Tokens / c.EntryTokens()) {
				for h := range int64(max(e.Heads[ci], 1)) {
					for d := range int64(c.Dim) {
						k.put(layout.Element{Component: ci, Layer: li, Block: int64(block), Token: tok, Head: h, Dim: d}, 0)
					}
				}
			}
		}
	}
	for _, s := range set {
		k.put(s.Element, s.Bits)
	}
	return nil
}

func (k *kernel) Read(context.Context, int, int, uint32, []measure.Set) error { return nil }

func lay(t *testing.T, e layout.Extent, order ...layout.Entry) *layout.Layout {
	t.Helper()
	l, err := layout.Spec{Order: order}.Resolve(e)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func axes(a ...geometry.Axis) []layout.Entry {
	var out []layout.Entry
	for _, x := range a {
		if x == 0 {
			out = append(out, layout.Entry{Component: true})
		} else {
			out = append(out, layout.Entry{Item: layout.Item{Axis: x}})
		}
	}
	return out
}

func memory(l *layout.Layout) [][]byte {
	var out [][]byte
	for _, r := range l.Regions {
		out = append(out, make([]byte, r.Bytes))
	}
	return out
}

const (
	b = geometry.Block
	n = geometry.Token
	h = geometry.Head
	d = geometry.Dim
	c = geometry.Axis(0) // component
)

func extent(t geometry.DType) layout.Extent {
	return layout.Extent{Layers: []int{3, 4}, Blocks: 12, Tokens: 8, Heads: []int{2, 2}, Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 16, DType: t}, {Name: "v", Heads: 4, Dim: 16, DType: t}}}
}

// What the kernel does is what counts, for every dtype and many layouts.
func TestRun(t *testing.T) {
	orders := map[string][]layout.Entry{
		"HND": axes(b, h, n, c, d), "NHD": axes(b, n, h, c, d), "split": axes(c, b, n, h, d), "apart": axes(b, h, d, n),
	}
	for _, dtype := range []geometry.DType{geometry.FP64, geometry.FP32, geometry.FP16, geometry.BF16, geometry.FP8E4M3, geometry.FP8E5M2, geometry.Int8, geometry.Uint8, geometry.FP4, geometry.Int4} {
		for says, declared := range orders {
			for does, real := range orders {
				e := extent(dtype)
				said, done := lay(t, e, declared...), lay(t, e, real...)
				if len(said.Regions) != len(done.Regions) {
					continue // the memory itself would be other regions
				}
				k := &kernel{does: done, regions: memory(done)}
				got, err := measure.Run(t.Context(), k, measure.Part{Rank: 1, Declared: said, Regions: k.regions})
				if says == does {
					if err != nil {
						t.Fatalf("%s %s: %v", dtype, says, err)
					}
					if !got.Equal(said) {
						t.Errorf("%s %s: measured another layout", dtype, says)
					}
					continue
				}
				var dis *measure.Disagreement
				if !errors.As(err, &dis) {
					t.Fatalf("%s declared %s, does %s: got %v", dtype, says, does, err)
				}
				if dis.MeasuredBit == dis.DeclaredBit && dis.MeasuredRegion == dis.DeclaredRegion {
					t.Errorf("%s declared %s, does %s: %v names no difference", dtype, says, does, dis)
				}
			}
		}
	}
}

// A kernel that writes elsewhere in a way that is no layout at all is refused,
// too; so is one that does nothing, and one that fails.
func TestRunRefuses(t *testing.T) {
	e := extent(geometry.BF16)
	l := lay(t, e, axes(b, h, n, c, d)...)
	for _, x := range []struct {
		name string
		k    func(*kernel) measure.Kernel
		want string
	}{
		{"nothing is written", func(*kernel) measure.Kernel { return idle{} }, "lies nowhere"},
		{"the kernel fails", func(k *kernel) measure.Kernel { k.err = errors.New("out of memory"); return k }, "with the engine's kernel: out of memory"},
		{"blocks are kept in another order", func(k *kernel) measure.Kernel { return &permuted{k} }, "disagrees with its declaration"},
	} {
		k := &kernel{does: l, regions: memory(l)}
		_, err := measure.Run(t.Context(), x.k(k), measure.Part{Declared: l, Regions: k.regions})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want %q", x.name, err, x.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := &kernel{does: l, regions: memory(l)}
	if _, err := measure.Run(ctx, k, measure.Part{Declared: l, Regions: k.regions}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled measurement: %v", err)
	}
	if _, err := measure.Run(t.Context(), k, measure.Part{Declared: l, Regions: [][]byte{nil, nil}}); err == nil {
		t.Error("memory that is too small was measured")
	}
}

type idle struct{}

func (idle) Write(context.Context, int, int, uint32, []measure.Set) error { return nil }
func (idle) Read(context.Context, int, int, uint32, []measure.Set) error  { return nil }

// permuted swaps blocks 1 and 2, which no layout does.
type permuted struct{ *kernel }

func (p *permuted) Write(ctx context.Context, rank, group int, block uint32, set []measure.Set) error {
	if block == 1 || block == 2 {
		block = 3 - block
		set = append([]measure.Set(nil), set...)
		for i := range set {
			set[i].Block = int64(block)
		}
	}
	return p.kernel.Write(ctx, rank, group, block, set)
}

// States, entries of several tokens and mixed element sizes in one page.
func TestRunOtherShapes(t *testing.T) {
	state := layout.Extent{Layers: []int{0}, Blocks: 6, Tokens: 1, State: true, Heads: []int{8, 4, 2}, Components: []geometry.Component{
		{Name: "x", Heads: 8, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 4, Dim: 3, DType: geometry.BF16}, {Name: "ssm", Heads: 2, Dim: 8, DType: geometry.FP32}}}
	slot, channel := layout.Entry{Item: layout.Item{Axis: geometry.Slot}}, layout.Entry{Item: layout.Item{Axis: geometry.Channel}}
	dim, component := layout.Entry{Item: layout.Item{Axis: geometry.Dim}}, layout.Entry{Component: true}
	sd := layout.Entry{Branch: map[string][]layout.Entry{"x,B": {dim, component, channel}, "ssm": {channel, dim}}}
	scales := layout.Extent{Layers: []int{0, 1}, Blocks: 4, Tokens: 8, Heads: []int{2, 2, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 2, Dim: 4, DType: geometry.FP8E4M3}, {Name: "k_scale", Heads: 2, Dim: 1, DType: geometry.FP32, Scales: "k"}, {Name: "block_scale", Dim: 1, DType: geometry.BF16, Entry: 8, Scales: "k"}}}
	row := layout.Entry{Branch: map[string][]layout.Entry{"k,k_scale": {{Item: layout.Item{Axis: h}}, {Item: layout.Item{Axis: n}}, component, dim}, "block_scale": {dim}}}
	for name, l := range map[string]*layout.Layout{
		"state":  lay(t, state, slot, component, sd),
		"scales": lay(t, scales, layout.Entry{Item: layout.Item{Axis: b}}, component, row),
	} {
		k := &kernel{does: l, regions: memory(l)}
		got, err := measure.Run(t.Context(), k, measure.Part{Declared: l, Regions: k.regions})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !got.Equal(l) {
			t.Errorf("%s: measured another layout", name)
		}
	}
}
