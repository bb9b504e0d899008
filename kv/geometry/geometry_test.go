package geometry_test

import (
	"errors"
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

func TestValidate(t *testing.T) {
	for name, m := range map[string]geometry.Model{"llama": llama(), "hybrid": hybrid()} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(m *geometry.Model)
		field  string
	}{
		{"no name", func(m *geometry.Model) { m.Name = "" }, "name"},
		{"a long name", func(m *geometry.Model) { m.Name = strings.Repeat("x", 129) }, "name"},
		{"no layers", func(m *geometry.Model) { m.Layers = 0 }, "layers"},
		{"too many layers", func(m *geometry.Model) { m.Layers = 1 << 15 }, "layers"},
		{"no groups", func(m *geometry.Model) { m.Groups = nil }, "groups"},
		{"groups of one name", func(m *geometry.Model) { m.Groups[1].Name = "full" }, "groups[1].name"},
		{"a group without name", func(m *geometry.Model) { m.Groups[1].Name = "" }, "groups[1].name"},
		{"an empty group", func(m *geometry.Model) { m.Groups[1].Layers = nil }, "groups[1].layers"},
		{"a layer beyond", func(m *geometry.Model) { m.Groups[1].Layers = []int{1, 4} }, "groups[1].layers[1]"},
		{"layers down", func(m *geometry.Model) { m.Groups[1].Layers = []int{3, 1} }, "groups[1].layers[1]"},
		{"a negative layer", func(m *geometry.Model) { m.Groups[1].Layers = []int{-1} }, "groups[1].layers[0]"},
		{"no components", func(m *geometry.Model) { m.Groups[1].Components = nil }, "groups[1].components"},
		{"a component without name", func(m *geometry.Model) { m.Groups[1].Components[1].Name = "" }, "groups[1].components[1].name"},
		{"a component with a dot", func(m *geometry.Model) { m.Groups[1].Components[1].Name = "v.x" }, "groups[1].components[1].name"},
		{"a component twice", func(m *geometry.Model) { m.Groups[1].Components[1].Name = "k" }, "groups[1].components[1].name"},
		{"negative heads", func(m *geometry.Model) { m.Groups[1].Components[0].Heads = -1 }, "groups[1].components[0].heads"},
		{"unequal heads", func(m *geometry.Model) { m.Groups[1].Components[1].Heads = 4 }, "groups[1].components[1].heads"},
		{"no dim", func(m *geometry.Model) { m.Groups[1].Components[1].Dim = 0 }, "groups[1].components[1].dim"},
		{"no dtype", func(m *geometry.Model) { m.Groups[1].Components[1].DType = 0 }, "groups[1].components[1].dtype"},
		{"half a byte", func(m *geometry.Model) {
			m.Groups[1].Components[1].Dim, m.Groups[1].Components[1].DType = 127, geometry.FP4
		}, "groups[1].components[1].dim"},
	} {
		m := hybrid()
		c.change(&m)
		var e *geometry.Error
		if err := m.Validate(); !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: got %v; want field %s", c.name, err, c.field)
		}
	}
}

// TestCompare changes one field at a time: exactly that field is named, with
// both values, the source's first.
func TestCompare(t *testing.T) {
	if d := geometry.Compare(llama(), llama()); d != nil {
		t.Errorf("equal models differ: %v", d)
	}
	for _, c := range []struct {
		base   func() geometry.Model
		change func(m *geometry.Model)
		want   []geometry.Difference
	}{
		{llama, func(m *geometry.Model) { m.Name = "other" }, []geometry.Difference{{Field: "model.name", Source: "llama", Destination: "other"}}},
		{llama, func(m *geometry.Model) { m.Layers = 5 }, []geometry.Difference{{Field: "model.layers", Source: "4", Destination: "5"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Layers = []int{0, 1, 2} }, []geometry.Difference{{Field: "model.groups[0].layers", Source: "0-3", Destination: "0-2"}}},
		{llama, func(m *geometry.Model) { m.Identity = geometry.Identity{"weights": "sha256:bb", "rope.type": "llama3"} },
			[]geometry.Difference{{Field: "model.identity.weights", Source: "sha256:aa", Destination: "sha256:bb"}}},
		{llama, func(m *geometry.Model) { m.Identity = nil }, []geometry.Difference{
			{Field: "model.identity.rope.type", Source: "llama3", Destination: "(not declared)"},
			{Field: "model.identity.weights", Source: "sha256:aa", Destination: "(not declared)"},
		}},
		{llama, func(m *geometry.Model) {
			m.Identity = geometry.Identity{"weights": "sha256:aa", "rope.type": "llama3", "window": "4096"}
		}, []geometry.Difference{{Field: "model.identity.window", Source: "(not declared)", Destination: "4096"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Components[1].Dim = 64 }, []geometry.Difference{{Field: "model.components.v.dim", Source: "128", Destination: "64"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Components[1].DType = geometry.FP16 }, []geometry.Difference{{Field: "model.components.v.dtype", Source: "bf16", Destination: "fp16"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Components[0].Heads = 4 }, []geometry.Difference{{Field: "model.components.k.heads", Source: "8", Destination: "4"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Components[1].Name = "w" }, []geometry.Difference{{Field: "model.components.v.name", Source: "v", Destination: "w"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Components = m.Groups[0].Components[:1] }, []geometry.Difference{{Field: "model.components", Source: "2", Destination: "1"}}},
		{llama, func(m *geometry.Model) { m.Groups[0].Name = "g" }, []geometry.Difference{{Field: "model.groups[0].name", Source: "", Destination: "g"}}},
		{hybrid, func(m *geometry.Model) { m.Groups[1].Name = "w" }, []geometry.Difference{{Field: "model.groups[1].name", Source: "window", Destination: "w"}}},
		{hybrid, func(m *geometry.Model) { m.Groups[1].Components[0].Dim = 64 }, []geometry.Difference{{Field: "model.groups[1].components.k.dim", Source: "128", Destination: "64"}}},
		{hybrid, func(m *geometry.Model) { m.Groups = m.Groups[:1] }, []geometry.Difference{{Field: "model.groups", Source: "2", Destination: "1"}}},
		{llama, func(m *geometry.Model) {
			m.Name = "other"
			m.Groups[0].Components[0].DType = geometry.FP8E4M3
			m.Groups[0].Components[1].Dim = 192
		}, []geometry.Difference{
			{Field: "model.name", Source: "llama", Destination: "other"},
			{Field: "model.components.k.dtype", Source: "bf16", Destination: "fp8_e4m3"},
			{Field: "model.components.v.dim", Source: "128", Destination: "192"},
		}},
	} {
		m := c.base()
		c.change(&m)
		if got := geometry.Compare(c.base(), m); !slices.Equal(got, c.want) {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
		// The other way round the values change places.
		for i, d := range geometry.Compare(m, c.base()) {
			if i < len(c.want) && (d.Source != c.want[i].Destination || d.Destination != c.want[i].Source) {
				t.Errorf("reversed: got %+v, want %+v the other way round", d, c.want[i])
			}
		}
		// Whatever differs shows in text and digest, and the reverse.
		if m.Text() == c.base().Text() || m.Digest() == c.base().Digest() {
			t.Errorf("%+v does not show in the text", c.want)
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
	if g.Component("v") != 1 || g.Component("w") != -1 || g.Heads() != 8 || (geometry.Group{}).Heads() != 0 {
		t.Errorf("got %d, %d, %d", g.Component("v"), g.Component("w"), g.Heads())
	}
	c := geometry.Component{Dim: 6, DType: geometry.FP4}
	if c.HeadCount() != 1 || c.RowBits() != 24 {
		t.Errorf("got %d heads of %d bits", c.HeadCount(), c.RowBits())
	}
}
