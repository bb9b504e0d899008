package geometry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
)

func llama() geometry.Model {
	return geometry.Model{
		Name: "llama", Layers: 4,
		Identity: geometry.Identity{"weights": "sha256:aa", "rope.type": "llama3"},
		Groups: []geometry.Group{{Layers: []int{0, 1, 2, 3}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: 128, DType: geometry.BF16},
			{Name: "v", Heads: 8, Dim: 128, DType: geometry.BF16},
		}}},
	}
}

// hybrid has two groups.
func hybrid() geometry.Model {
	m := llama()
	c := m.Groups[0].Components
	m.Groups = []geometry.Group{{Name: "full", Layers: []int{0, 2}, Components: c}, {Name: "window", Layers: []int{1, 3}, Components: slices.Clone(c)}}
	return m
}

func TestDTypes(t *testing.T) {
	bits := map[string]int64{"fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "uint8": 8, "fp4": 4, "int4": 4}
	for name, want := range bits {
		d, err := geometry.ParseDType(name)
		if err != nil || d.String() != name || d.Bits() != want || !d.Valid() {
			t.Errorf("%s: %v %d bits, %v", name, d, d.Bits(), err)
		}
	}
	for alias, want := range map[string]geometry.DType{"f32": geometry.FP32, "f16": geometry.FP16, "fp8": geometry.FP8E4M3} {
		if d, err := geometry.ParseDType(alias); err != nil || d != want {
			t.Errorf("%s: %v, %v", alias, d, err)
		}
	}
	for _, name := range []string{"", "BF16", "fp2", "float", "dtype(0)"} {
		if d, err := geometry.ParseDType(name); err == nil {
			t.Errorf("%q is %v", name, d)
		}
	}
	for _, d := range []geometry.DType{0, 11, 255} {
		if d.Valid() || d.Bits() != 0 || d.String() != fmt.Sprintf("dtype(%d)", uint8(d)) {
			t.Errorf("%v is a type of %d bits", d, d.Bits())
		}
	}
	// Numbers that travel.
	if geometry.FP64 != 1 || geometry.BF16 != 4 || geometry.FP8E4M3 != 5 || geometry.Int4 != 10 {
		t.Error("the numbers of dtypes changed")
	}
}

func TestAxes(t *testing.T) {
	for i, name := range []string{"layer", "block", "token", "head", "dim", "slot", "channel"} {
		a, ok := geometry.ParseAxis(name)
		if !ok || a != geometry.Axis(i+1) || a.String() != name {
			t.Errorf("%s: %v, %v", name, a, ok)
		}
	}
	for _, name := range []string{"", "Layer", "component", "axis(0)"} {
		if a, ok := geometry.ParseAxis(name); ok {
			t.Errorf("%q is %v", name, a)
		}
	}
	if s := geometry.Axis(9).String(); s != "axis(9)" {
		t.Errorf("got %s", s)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		in   []int
		want string
	}{
		{nil, "-"}, {[]int{5}, "5"}, {[]int{0, 1, 2, 3}, "0-3"}, {[]int{0, 1, 3, 5, 6}, "0-1,3,5-6"}, {[]int{7, 3, 4}, "7,3-4"},
	} {
		if got := geometry.Ranges(c.in); got != c.want {
			t.Errorf("Ranges(%v) = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	want := `model "llama" layers 4
identity rope.type "llama3"
identity weights "sha256:aa"
group "" layers 0-3
component "k" heads 8 dim 128 dtype bf16
component "v" heads 8 dim 128 dtype bf16
`
	if got := llama().Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if s := llama().Digest().String(); !strings.HasPrefix(s, "sha256:") || len(s) != len("sha256:")+64 {
		t.Errorf("got %s", s)
	}
}

func TestCoord(t *testing.T) {
	c := geometry.Coord{Component: 1, Layer: 2, Head: 3, Token: 4, Dim: 5}
	if got, want := c.String(), "component 1 layer 2 head 3 token 4 dim 5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.Group = 6
	if got, want := c.String(), "group 6 component 1 layer 2 head 3 token 4 dim 5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestComponents(t *testing.T) {
	g := llama().Groups[0]
	if g.Component("v") != 1 || g.Component("w") != -1 {
		t.Errorf("got %d, %d", g.Component("v"), g.Component("w"))
	}
	c := geometry.Component{Dim: 6, DType: geometry.FP4}
	if c.HeadCount() != 1 || c.RowBits() != 24 || c.UnitHeads() != 1 || c.EntryTokens() != 1 {
		t.Errorf("got %d heads of %d bits in units of %d, entries of %d", c.HeadCount(), c.RowBits(), c.UnitHeads(), c.EntryTokens())
	}
	c = geometry.Component{Heads: 1024, Unit: 128, Dim: 3, DType: geometry.BF16, Entry: 4}
	if c.HeadCount() != 1024 || c.RowBits() != 48 || c.UnitHeads() != 128 || c.EntryTokens() != 4 {
		t.Errorf("got %d heads of %d bits in units of %d, entries of %d", c.HeadCount(), c.RowBits(), c.UnitHeads(), c.EntryTokens())
	}
}
