package geometry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
)

// TestCompare changes one field at a time: exactly that field is named, with
// both values, the source's first.
func TestCompare(t *testing.T) {
	for _, m := range []geometry.Model{llama(), hybrid(), everything()} {
		match, d := geometry.Compare(m, m)
		if d != nil || len(match.Groups) != len(m.Groups) || match.Absent != nil || match.Skipped != nil {
			t.Errorf("%s differs from itself: %+v, %v", m.Name, match, d)
		}
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
		{hybrid, func(m *geometry.Model) { m.Groups[1].Name = "w" }, []geometry.Difference{
			{Field: "model.groups.window", Source: "layers 1,3", Destination: "(no such group)"},
			{Field: "model.groups.w", Source: "(no such group)", Destination: "layers 1,3"},
		}},
		{hybrid, func(m *geometry.Model) { m.Groups[1].Components[0].Dim = 64 }, []geometry.Difference{{Field: "model.groups.window.components.k.dim", Source: "128", Destination: "64"}}},
		{hybrid, func(m *geometry.Model) { m.Groups = m.Groups[:1] }, []geometry.Difference{{Field: "model.groups.window", Source: "layers 1,3", Destination: "(no such group)"}}},
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
		if _, got := geometry.Compare(c.base(), m); !slices.Equal(got, c.want) {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
		// The other way round the values change places.
		values := func(ds []geometry.Difference, turned bool) []string {
			var out []string
			for _, d := range ds {
				if turned {
					d.Source, d.Destination = d.Destination, d.Source
				}
				out = append(out, d.Source+" | "+d.Destination)
			}
			slices.Sort(out)
			return out
		}
		if _, reversed := geometry.Compare(m, c.base()); !slices.Equal(values(reversed, true), values(c.want, false)) {
			t.Errorf("reversed: got %+v, want %+v the other way round", reversed, c.want)
		}
		// Whatever differs shows in text and digest, and the reverse.
		if m.Text() == c.base().Text() || m.Digest() == c.base().Digest() {
			t.Errorf("%+v does not show in the text", c.want)
		}
	}
}

// TestCompareGroups changes what groups can say beyond layers and components.
func TestCompareGroups(t *testing.T) {
	type model = geometry.Model
	for _, c := range []struct {
		name   string
		change func(m *model)
		want   string // field: source | destination
		match  string // source:destination of the common groups, then absent and skipped
	}{
		{"nothing", func(m *model) {}, "", "0:0 1:1 2:2 [] []"},
		{"a state", func(m *model) { m.Groups[1].State = false }, "model.groups.mamba.state: true | false", "0:0 1:1 2:2 [] []"},
		{"a window", func(m *model) { m.Groups[0].Window = 0 }, "model.groups.attention.window: 1024 | 0", "0:0 1:1 2:2 [] []"},
		{"shared layers", func(m *model) { m.Groups[0].Shared[1].Owner = 3 }, "model.groups.attention.shared: 7:6,8:6 | 7:6,8:3", "0:0 1:1 2:2 [] []"},
		{"no shared layers", func(m *model) { m.Groups[0].Shared = nil }, "model.groups.attention.shared: 7:6,8:6 | -", "0:0 1:1 2:2 [] []"},
		{"layers of a group", func(m *model) { m.Groups[1].Layers = []int{1, 4} }, "model.groups.mamba.layers: 1-2 | 1,4", "0:0 1:1 2:2 [] []"},
		{"a unit", func(m *model) { m.Groups[1].Components[1].Unit = 0 }, "model.groups.mamba.components.B.unit: 128 | 1", "0:0 1:1 2:2 [] []"},
		{"an entry", func(m *model) { m.Groups[2].Components[0].Entry = 0 }, "model.groups.mtp.components.latent.tokens_per_entry: 4 | 1", "0:0 1:1 2:2 [] []"},
		{"a scale", func(m *model) { m.Groups[0].Components[3].Scales = "k" }, "model.groups.attention.components.v_scale.scales: v | k", "0:0 1:1 2:2 [] []"},
		{"no scale", func(m *model) { m.Groups[0].Components[3].Scales = "" }, "model.groups.attention.components.v_scale.scales: v | ", "0:0 1:1 2:2 [] []"},
		{"the heads of one component", func(m *model) { m.Groups[1].Components[2].Heads = 64 }, "model.groups.mamba.components.ssm.heads: 128 | 64", "0:0 1:1 2:2 [] []"},
		// Both have it, so it does not matter whether one could do without.
		{"optional on one side", func(m *model) { m.Groups[2].Optional = false }, "", "0:0 1:1 2:2 [] []"},
		{"another order of groups", func(m *model) { slices.Reverse(m.Groups) }, "", "2:0 1:1 0:2 [] []"},
		{"an optional group less", func(m *model) { m.Groups = m.Groups[:2] }, "", "0:0 1:1 [] [mtp]"},
		{"an optional group less, and its layer", func(m *model) { m.Groups, m.Layers, m.Left = m.Groups[:2], 10, 0 }, "", "0:0 1:1 [] [mtp]"},
		{"an optional group less, its layer counted as left", func(m *model) { m.Groups, m.Left = m.Groups[:2], 2 }, "", "0:0 1:1 [] [mtp]"},
		{"an optional group more", func(m *model) {
			m.Groups = append(m.Groups, geometry.Group{Name: "draft", Optional: true, Layers: []int{10, 11}, Components: m.Groups[0].Components})
		}, "", "0:0 1:1 2:2 [draft] []"},
		{"an optional group more, with layers of its own, before the others", func(m *model) {
			m.Groups = append([]geometry.Group{{Name: "draft", Optional: true, Layers: []int{12, 13}, Components: m.Groups[0].Components}}, m.Groups...)
			m.Layers = 14
		}, "", "0:1 1:2 2:3 [draft] []"},
		{"another optional group", func(m *model) { m.Groups[2].Name = "eagle" }, "", "0:0 1:1 [eagle] [mtp]"},
		{"a required group of another name", func(m *model) { m.Groups[1].Name = "gdn" }, "model.groups.mamba: layers 1-2 | (no such group); model.groups.gdn: (no such group) | layers 1-2", "0:0 2:2 [] []"},
		{"a required group less", func(m *model) { m.Groups = m.Groups[1:] }, "model.groups.attention: layers 0,3,6 | (no such group)", "1:0 2:1 [] []"},
		{"a required group more", func(m *model) {
			m.Groups = append(m.Groups, geometry.Group{Name: "cross", Layers: []int{4}, Components: m.Groups[0].Components})
		}, "model.groups.cross: (no such group) | layers 4", "0:0 1:1 2:2 [] []"},
		{"one more layer that is required", func(m *model) { m.Layers = 13 }, "model.layers: 10 | 11", "0:0 1:1 2:2 [] []"},
		{"layers counted otherwise: their numbers say nothing", func(m *model) { m.Layers = 13; m.Groups[1].Layers = []int{5}; m.Groups[1].Window = 7 }, "model.layers: 10 | 11; model.groups.mamba.window: 0 | 7", "0:0 1:1 2:2 [] []"},
	} {
		m := everything()
		c.change(&m)
		match, ds := geometry.Compare(everything(), m)
		var lines, groups []string
		for _, d := range ds {
			lines = append(lines, fmt.Sprintf("%s: %s | %s", d.Field, d.Source, d.Destination))
		}
		for _, g := range match.Groups {
			groups = append(groups, fmt.Sprintf("%d:%d", g.Source, g.Destination))
		}
		if got := strings.Join(lines, "; "); got != c.want {
			t.Errorf("%s: differs in\n%s\nwant\n%s", c.name, got, c.want)
		}
		if got := fmt.Sprintf("%s %v %v", strings.Join(groups, " "), match.Absent, match.Skipped); got != c.match {
			t.Errorf("%s: matches %s, want %s", c.name, got, c.match)
		}
		// The other way round, absent and skipped change places.
		back, ds := geometry.Compare(m, everything())
		if len(ds) != len(lines) || !slices.Equal(back.Absent, match.Skipped) || !slices.Equal(back.Skipped, match.Absent) || len(back.Groups) != len(match.Groups) {
			t.Errorf("%s, the other way round: %+v, %+v", c.name, back, ds)
		}
	}
}

// TestCompareNothing: two engines that share no group have nothing to move.
func TestCompareNothing(t *testing.T) {
	a, b := llama(), llama()
	a.Groups[0].Name, a.Groups[0].Optional = "a", true
	b.Groups[0].Name, b.Groups[0].Optional = "b", true
	match, ds := geometry.Compare(a, b)
	want := []geometry.Difference{{Field: "model.groups", Source: "none in common", Destination: "(want at least one)"}}
	if !slices.Equal(ds, want) || len(match.Groups) > 0 || !slices.Equal(match.Absent, []string{"b"}) || !slices.Equal(match.Skipped, []string{"a"}) {
		t.Errorf("got %+v, %+v", match, ds)
	}
}

// TestSelect counts by the definition: of the layers of the model, those that
// some group held and no group that is left holds.
func TestSelect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 500 {
		m := geometry.Model{Name: "m", Layers: 12, Left: r.IntN(3)}
		for g := range 1 + r.IntN(4) {
			own := geometry.Group{Name: fmt.Sprint("g", g), Optional: g > 0 && r.IntN(2) == 0, Components: llama().Groups[0].Components}
			for l := range m.Layers {
				if r.IntN(4) == 0 || l == g {
					own.Layers = append(own.Layers, l)
				}
			}
			m.Groups = append(m.Groups, own)
		}
		before := m.Text()
		var chosen []int
		optional := true // whether only optional groups go
		for g := range m.Groups {
			if r.IntN(2) == 0 {
				chosen = append(chosen, g)
			} else {
				optional = optional && m.Groups[g].Optional
			}
		}
		if len(chosen) == 0 {
			chosen, optional = []int{0}, true
			for _, g := range m.Groups[1:] {
				optional = optional && g.Optional
			}
		}
		r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		got := m.Select(chosen)
		left := m.Left
		for l := range m.Layers {
			held, kept := false, false
			for g, own := range m.Groups {
				if slices.Contains(own.Layers, l) {
					held = true
					kept = kept || slices.Contains(chosen, g)
				}
			}
			if held && !kept {
				left++
			}
		}
		if got.Left != left || got.Layers != m.Layers || len(got.Groups) != len(chosen) {
			t.Fatalf("%sselect %v: %swant left %d", before, chosen, got.Text(), left)
		}
		for i, g := range chosen {
			if got.Groups[i].Name != m.Groups[g].Name {
				t.Fatalf("select %v: group %d is %q", chosen, i, got.Groups[i].Name)
			}
		}
		if m.Text() != before {
			t.Fatalf("select %v changed the model", chosen)
		}
		// Without optional groups it is the same model still.
		if optional {
			match, ds := geometry.Compare(m, got)
			if ds != nil || len(match.Groups) != len(chosen) || match.Absent != nil || len(match.Skipped) != len(m.Groups)-len(chosen) {
				t.Fatalf("%sselect %v: %+v, %+v", before, chosen, match, ds)
			}
		}
	}
}
