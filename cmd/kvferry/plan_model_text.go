package main

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan/pairfile"
)

// yaml is the text of what there is of a pair file, with a comment wherever
// something is missing.
func (d *described) yaml() string {
	text := string(pairfile.Marshal(d.file))
	if d.complete {
		return text
	}
	// The canonical writer's model part; a model's own text has no such line.
	model, _, _ := strings.Cut(text, "\n"+pairfile.Source+":\n")
	var b strings.Builder
	b.WriteString(model + "\n")
	if !d.sides {
		b.WriteString("# add source and destination: each with engine, shard, block sizes and layouts\n")
		return b.String()
	}
	for _, name := range []string{pairfile.Source, pairfile.Destination} {
		s := d.file.Side(name)
		fmt.Fprintf(&b, "%s:\n  engine: %s\n  shard: {tp: %d, pp: [%s]}\n", name, s.Engine, s.Shard.TP, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Shard.Stages), " ", ", "), "[]"))
		if !grouped(d.file.Model) {
			partly(&b, "  ", d.file.Model.Groups[0], &s.Groups[0])
			continue
		}
		b.WriteString("  groups:\n")
		for g, group := range d.file.Model.Groups {
			if own := &s.Groups[g]; !own.Absent {
				fmt.Fprintf(&b, "    %s:\n", group.Name)
				partly(&b, "      ", group, own)
			}
		}
	}
	return b.String()
}

// grouped reports whether a pair file calls the model's groups by name.
func grouped(m geometry.Model) bool { return len(m.Groups) > 1 || m.Groups[0].Name != "" }

// partly writes what there is of a group of a side.
func partly(b *strings.Builder, indent string, g geometry.Group, s *pairfile.SideGroup) {
	size := func(name, what string, n int) {
		if n > 0 {
			fmt.Fprintf(b, "%s%s: %d\n", indent, name, n)
		} else {
			fmt.Fprintf(b, "%s# %s: %s\n", indent, name, what)
		}
	}
	if g.State {
		size("slots", "add the number of slots in the pool", s.Blocks)
	} else {
		size("block", "add the tokens of a block", s.Block)
		size("blocks", "add the number of blocks in the pool", s.Blocks)
	}
	if s.Preset != "" {
		fmt.Fprintf(b, "%slayout: %s\n", indent, s.Preset)
	} else {
		fmt.Fprintf(b, "%s# layout: add a preset (kvferry plan presets) or an order; there is no default\n", indent)
	}
}

// The JSON form is a pair file too, since YAML reads JSON.
type (
	pairJSON struct {
		Version     string    `json:"kvferry"`
		Model       modelJSON `json:"model"`
		Source      *sideJSON `json:"source,omitempty"`
		Destination *sideJSON `json:"destination,omitempty"`
	}
	modelJSON struct {
		Name       string            `json:"name"`
		Layers     int               `json:"layers"`
		Identity   geometry.Identity `json:"identity,omitempty"`
		Components []componentJSON   `json:"components,omitempty"`
		Groups     []groupJSON       `json:"groups,omitempty"`
	}
	groupJSON struct {
		Name       string          `json:"name"`
		Layers     string          `json:"layers"`
		State      bool            `json:"state,omitempty"`
		Window     int             `json:"window,omitempty"`
		Optional   bool            `json:"optional,omitempty"`
		Shared     map[int]int     `json:"shared,omitempty"`
		Components []componentJSON `json:"components"`
	}
	componentJSON struct {
		Name     string `json:"name"`
		Heads    *int   `json:"heads,omitempty"`
		Channels *int   `json:"channels,omitempty"`
		Unit     int    `json:"unit,omitempty"`
		Dim      int    `json:"dim"`
		DType    string `json:"dtype"`
		Entry    int    `json:"tokens_per_entry,omitempty"`
		Scales   string `json:"scales,omitempty"`
	}
	sideJSON struct {
		Engine string    `json:"engine"`
		Shard  shardJSON `json:"shard"`
		*poolJSON
		Groups map[string]*poolJSON `json:"groups,omitempty"`
	}
	shardJSON struct {
		TP int   `json:"tp"`
		PP []int `json:"pp"`
	}
	poolJSON struct {
		Block  int    `json:"block,omitempty"`
		Blocks int    `json:"blocks,omitempty"`
		Slots  int    `json:"slots,omitempty"`
		Layout string `json:"layout,omitempty"`
	}
)

// json is what there is of the pair file.
func (d *described) json() pairJSON {
	m := &d.file.Model
	out := pairJSON{Version: pairfile.Version, Model: modelJSON{Name: m.Name, Layers: m.Layers, Identity: m.Identity}}
	if !grouped(*m) {
		out.Model.Components = componentsJSON(m.Groups[0])
	} else {
		for _, g := range m.Groups {
			j := groupJSON{Name: g.Name, Layers: geometry.Ranges(g.Layers), State: g.State, Window: g.Window, Optional: g.Optional, Components: componentsJSON(g)}
			for _, s := range g.Shared {
				if j.Shared == nil {
					j.Shared = map[int]int{}
				}
				j.Shared[s.Layer] = s.Owner
			}
			out.Model.Groups = append(out.Model.Groups, j)
		}
	}
	if d.sides {
		out.Source, out.Destination = d.sideJSON(pairfile.Source), d.sideJSON(pairfile.Destination)
	}
	return out
}

func componentsJSON(g geometry.Group) []componentJSON {
	var out []componentJSON
	for _, c := range g.Components {
		j := componentJSON{Name: c.Name, Unit: c.Unit, Dim: c.Dim, DType: c.DType.String(), Entry: c.Entry, Scales: c.Scales}
		if heads := c.Heads; g.State {
			j.Channels = &heads
		} else {
			j.Heads = &heads
		}
		out = append(out, j)
	}
	return out
}

func (d *described) sideJSON(name string) *sideJSON {
	s := d.file.Side(name)
	out := &sideJSON{Engine: s.Engine, Shard: shardJSON{s.Shard.TP, s.Shard.Stages}}
	pool := func(g int) *poolJSON {
		own := &s.Groups[g]
		if d.file.Model.Groups[g].State {
			return &poolJSON{Slots: own.Blocks, Layout: own.Preset}
		}
		return &poolJSON{Block: own.Block, Blocks: own.Blocks, Layout: own.Preset}
	}
	if !grouped(d.file.Model) {
		out.poolJSON = pool(0)
		return out
	}
	out.Groups = map[string]*poolJSON{}
	for g, group := range d.file.Model.Groups {
		if !s.Groups[g].Absent {
			out.Groups[group.Name] = pool(g)
		}
	}
	return out
}
