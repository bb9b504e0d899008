package geometry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
)

// everything uses each thing that a model can say.
func everything() geometry.Model {
	return geometry.Model{
		Name: "everything", Layers: 12, Left: 1,
		Groups: []geometry.Group{
			{Name: "attention", Layers: []int{0, 3, 6}, Window: 1024, Shared: []geometry.Share{{Layer: 7, Owner: 6}, {Layer: 8, Owner: 6}}, Components: []geometry.Component{
				{Name: "k", Heads: 8, Dim: 128, DType: geometry.FP8E4M3},
				{Name: "v", Heads: 8, Dim: 64, DType: geometry.FP8E4M3},
				{Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "k"},
				{Name: "v_scale", Dim: 1, DType: geometry.FP32, Scales: "v"},
			}},
			{Name: "mamba", State: true, Layers: []int{1, 2}, Components: []geometry.Component{
				{Name: "x", Heads: 8192, Dim: 3, DType: geometry.BF16},
				{Name: "B", Heads: 1024, Unit: 128, Dim: 3, DType: geometry.BF16},
				{Name: "ssm", Heads: 128, Dim: 8192, DType: geometry.FP32},
			}},
			{Name: "mtp", Optional: true, Layers: []int{9}, Components: []geometry.Component{
				{Name: "latent", Dim: 576, DType: geometry.BF16, Entry: 4},
			}},
		},
	}
}

func TestValidate(t *testing.T) {
	uneven := hybrid()
	uneven.Groups[1].Components[1].Heads = 4 // components of a group may have different head counts
	for name, m := range map[string]geometry.Model{"llama": llama(), "hybrid": hybrid(), "everything": everything(), "unequal heads": uneven} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestValidateRefuses holds every refusal with its whole text.
func TestValidateRefuses(t *testing.T) {
	const (
		attention = iota
		mamba
		mtp
	)
	type model = geometry.Model
	component := func(g, c int, change func(c *geometry.Component)) func(m *model) {
		return func(m *model) { change(&m.Groups[g].Components[c]) }
	}
	long := strings.Repeat("x", 129)
	for _, c := range []struct {
		name   string
		change func(m *model)
		want   string
	}{
		{"no name", func(m *model) { m.Name = "" }, `name is "": a model needs a name of 1 to 128 bytes`},
		{"a long name", func(m *model) { m.Name = long }, `name is "` + long + `": a model needs a name of 1 to 128 bytes`},
		{"no layers", func(m *model) { m.Layers = 0 }, `layers is 0: want 1 to 16384`},
		{"too many layers", func(m *model) { m.Layers = 1 << 15 }, `layers is 32768: want 1 to 16384`},
		{"negative left", func(m *model) { m.Left = -1 }, `left is -1: want 0 to 11`},
		{"all left", func(m *model) { m.Left = 12 }, `left is 12: want 0 to 11`},
		{"no groups", func(m *model) { m.Groups = nil }, `groups is 0: want 1 to 64 groups`},
		{"too many groups", func(m *model) { m.Groups = make([]geometry.Group, 65) }, `groups is 65: want 1 to 64 groups`},
		{"groups of one name", func(m *model) { m.Groups[mamba].Name = "attention" }, `groups[1].name is "attention": group names are unique and not empty`},
		{"a group without name", func(m *model) { m.Groups[mamba].Name = "" }, `groups[1].name is "": group names are unique and not empty`},
		{"a long group name", func(m *model) { m.Groups[mamba].Name = long }, `groups[1].name is "` + long + `": group names are unique and not empty`},
		{"an empty group", func(m *model) { m.Groups[mamba].Layers = nil }, `groups[1].layers is empty: a group holds at least one layer`},
		{"a layer beyond", func(m *model) { m.Groups[mamba].Layers = []int{1, 12} }, `groups[1].layers[1] is 12: layer numbers ascend within 0 to 11`},
		{"layers down", func(m *model) { m.Groups[mamba].Layers = []int{3, 1} }, `groups[1].layers[1] is 1: layer numbers ascend within 0 to 11`},
		{"a layer twice", func(m *model) { m.Groups[mamba].Layers = []int{3, 3} }, `groups[1].layers[1] is 3: layer numbers ascend within 0 to 11`},
		{"a negative layer", func(m *model) { m.Groups[mamba].Layers = []int{-1} }, `groups[1].layers[0] is -1: layer numbers ascend within 0 to 11`},
		{"a negative window", func(m *model) { m.Groups[attention].Window = -1 }, `groups[0].window is -1: want 0 (all) to 1073741824 tokens, and none in a group of states`},
		{"a huge window", func(m *model) { m.Groups[attention].Window = 1<<30 + 1 }, `groups[0].window is 1073741825: want 0 (all) to 1073741824 tokens, and none in a group of states`},
		{"a window of states", func(m *model) { m.Groups[mamba].Window = 16 }, `groups[1].window is 16: want 0 (all) to 1073741824 tokens, and none in a group of states`},
		{"a shared layer beyond", func(m *model) { m.Groups[attention].Shared[1].Layer = 12 }, `groups[0].shared[1] is 12: layer numbers ascend within 0 to 11`},
		{"a negative shared layer", func(m *model) { m.Groups[attention].Shared[0].Layer = -1 }, `groups[0].shared[0] is -1: layer numbers ascend within 0 to 11`},
		{"shared layers down", func(m *model) { m.Groups[attention].Shared[1].Layer = 5 }, `groups[0].shared[1] is 5: layer numbers ascend within 0 to 11`},
		{"a shared layer twice", func(m *model) { m.Groups[attention].Shared[1].Layer = 7 }, `groups[0].shared[1] is 7: layer numbers ascend within 0 to 11`},
		{"a layer with a cache that shares", func(m *model) { m.Groups[attention].Shared[0].Layer = 3 }, `groups[0].shared[0] is 3: the layer has a cache of its own in the group`},
		{"an owner without a cache", func(m *model) { m.Groups[attention].Shared[1].Owner = 7 }, `groups[0].shared[1] is 7: layer 8 shares the cache of a layer that has none in the group`},
		{"an owner of another group", func(m *model) { m.Groups[attention].Shared[1].Owner = 1 }, `groups[0].shared[1] is 1: layer 8 shares the cache of a layer that has none in the group`},
		{"no components", func(m *model) { m.Groups[mamba].Components = nil }, `groups[1].components is 0: want 1 to 64 components`},
		{"too many components", func(m *model) { m.Groups[mamba].Components = make([]geometry.Component, 65) }, `groups[1].components is 65: want 1 to 64 components`},
		{"a component without name", component(mamba, 1, func(c *geometry.Component) { c.Name = "" }), `groups[1].components[1].name is "": a component name is 1 to 128 bytes without spaces and ./:,`},
		{"a component with a long name", component(mamba, 1, func(c *geometry.Component) { c.Name = long }), `groups[1].components[1].name is "` + long + `": a component name is 1 to 128 bytes without spaces and ./:,`},
		{"a component with a dot", component(mamba, 1, func(c *geometry.Component) { c.Name = "v.x" }), `groups[1].components[1].name is "v.x": a component name is 1 to 128 bytes without spaces and ./:,`},
		{"a component with a comma", component(mamba, 1, func(c *geometry.Component) { c.Name = "v,x" }), `groups[1].components[1].name is "v,x": a component name is 1 to 128 bytes without spaces and ./:,`},
		{"a component twice", component(mamba, 1, func(c *geometry.Component) { c.Name = "x" }), `groups[1].components[1].name is "x": named twice`},
		{"negative heads", component(attention, 0, func(c *geometry.Component) { c.Heads = -1 }), `groups[0].components[0].heads is -1: want 0 (no heads) to 16384`},
		{"too many heads", component(attention, 0, func(c *geometry.Component) { c.Heads = 1<<14 + 1 }), `groups[0].components[0].heads is 16385: want 0 (no heads) to 16384`},
		{"no dim", component(attention, 1, func(c *geometry.Component) { c.Dim = 0 }), `groups[0].components[1].dim is 0: want 1 to 1048576`},
		{"too wide", component(attention, 1, func(c *geometry.Component) { c.Dim = 1<<20 + 1 }), `groups[0].components[1].dim is 1048577: want 1 to 1048576`},
		{"no dtype", component(attention, 1, func(c *geometry.Component) { c.DType = 0 }), `groups[0].components[1].dtype is 0: no such dtype`},
		{"an unknown dtype", component(attention, 1, func(c *geometry.Component) { c.DType = 200 }), `groups[0].components[1].dtype is 200: no such dtype`},
		{"half a byte", component(attention, 1, func(c *geometry.Component) { c.Dim, c.DType = 127, geometry.FP4 }), `groups[0].components[1].dim is 127: a row of 127 fp4 elements is 508 bits, not whole bytes`},
		{"a unit of one", component(mamba, 1, func(c *geometry.Component) { c.Unit = 1 }), `groups[1].components[1].unit is 1: want a divisor of 1024 heads above 1, or nothing for 1`},
		{"a negative unit", component(mamba, 1, func(c *geometry.Component) { c.Unit = -128 }), `groups[1].components[1].unit is -128: want a divisor of 1024 heads above 1, or nothing for 1`},
		{"a unit that does not divide", component(mamba, 1, func(c *geometry.Component) { c.Unit = 96 }), `groups[1].components[1].unit is 96: want a divisor of 1024 heads above 1, or nothing for 1`},
		{"a unit larger than all", component(mamba, 1, func(c *geometry.Component) { c.Unit = 2048 }), `groups[1].components[1].unit is 2048: want a divisor of 1024 heads above 1, or nothing for 1`},
		{"a unit of no heads", component(mtp, 0, func(c *geometry.Component) { c.Unit = 2 }), `groups[2].components[0].unit is 2: want a divisor of 0 heads above 1, or nothing for 1`},
		{"an entry of one", component(mtp, 0, func(c *geometry.Component) { c.Entry = 1 }), `groups[2].components[0].tokens_per_entry is 1: want 2 to 65536, or nothing for 1`},
		{"a negative entry", component(mtp, 0, func(c *geometry.Component) { c.Entry = -4 }), `groups[2].components[0].tokens_per_entry is -4: want 2 to 65536, or nothing for 1`},
		{"a huge entry", component(mtp, 0, func(c *geometry.Component) { c.Entry = 1<<16 + 1 }), `groups[2].components[0].tokens_per_entry is 65537: want 2 to 65536, or nothing for 1`},
		{"an entry of states", component(mamba, 1, func(c *geometry.Component) { c.Entry = 2 }), `groups[1].components[1].tokens_per_entry is 2: a state has no tokens`},
		{"a scale of nothing", component(attention, 2, func(c *geometry.Component) { c.Scales = "w" }), `groups[0].components[2].scales is "w": names no other component of the group`},
		{"a scale of another group's", component(attention, 2, func(c *geometry.Component) { c.Scales = "latent" }), `groups[0].components[2].scales is "latent": names no other component of the group`},
		{"a scale of itself", component(attention, 2, func(c *geometry.Component) { c.Scales = "k_scale" }), `groups[0].components[2].scales is "k_scale": names no other component of the group`},
		{"a scale of a scale", component(attention, 2, func(c *geometry.Component) { c.Scales = "v_scale" }), `groups[0].components[2].scales is "v_scale": is a scale itself`},
		{"a scale of entries", component(attention, 0, func(c *geometry.Component) { c.Entry = 4 }), `groups[0].components[2].scales is "k": has entries of several tokens: their scales are part of the entry`},
		{"a scale of other heads", component(attention, 2, func(c *geometry.Component) { c.Heads = 4 }), `groups[0].components[2].scales is "k": has 8 heads, the scale 4: want as many or none`},
		{"a scale of rows without heads", component(attention, 0, func(c *geometry.Component) { c.Heads = 0 }), `groups[0].components[2].scales is "k": has 0 heads, the scale 8: want as many or none`},
		{"a scale of other units", component(attention, 0, func(c *geometry.Component) { c.Unit = 2 }), `groups[0].components[2].scales is "k": is dealt in units of 2 heads, the scale in units of 1: ranks would hold rows without their scales`},
	} {
		m := everything()
		c.change(&m)
		err := m.Validate()
		var e *geometry.Error
		if !errors.As(err, &e) || err.Error() != "geometry: "+c.want {
			t.Errorf("%s:\ngot  %v\nwant geometry: %s", c.name, err, c.want)
		}
	}
}

func TestTextOfEverything(t *testing.T) {
	want := `model "everything" layers 12 left 1
group "attention" layers 0,3,6 window 1024 shared 7:6,8:6
component "k" heads 8 dim 128 dtype fp8_e4m3
component "v" heads 8 dim 64 dtype fp8_e4m3
component "k_scale" heads 8 dim 1 dtype fp32 entry 16 scales "k"
component "v_scale" heads 0 dim 1 dtype fp32 scales "v"
group "mamba" layers 1-2 state
component "x" heads 8192 dim 3 dtype bf16
component "B" heads 1024 dim 3 dtype bf16 unit 128
component "ssm" heads 128 dim 8192 dtype fp32
group "mtp" layers 9 optional
component "latent" heads 0 dim 576 dtype bf16 entry 4
`
	if got := everything().Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
