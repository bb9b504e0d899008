package pairfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
)

// groups reads the model's groups.
func (r *reader) groups(n *yaml.Node, f *File) error {
	list, err := r.list(n, "model.groups", geometry.MaxGroups)
	if err != nil {
		return err
	}
	for i, n := range list {
		g, err := r.group(n, fmt.Sprintf("model.groups[%d]", i), f.Model.Layers)
		if err != nil {
			return err
		}
		f.Model.Groups = append(f.Model.Groups, g)
	}
	return nil
}

func (r *reader) group(n *yaml.Node, field string, layers int) (g geometry.Group, err error) {
	m, _, err := r.mapping(n, field, "name", "layers", "state", "window", "optional", "shared", "components")
	if err != nil {
		return g, err
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"name", "components"} {
		if at[key], err = r.required(m, n, field, key); err != nil {
			return g, err
		}
	}
	if g.Name, err = r.text(at["name"], field+".name"); err != nil {
		return g, err
	}
	// Sides name groups by key, and errors name places by dots.
	if g.Name == "" || len(g.Name) > geometry.MaxName || strings.ContainsAny(g.Name, " \t\n./:,[]") {
		return g, r.fail(at["name"], field+".name", clip(g.Name), "a group's name is 1 to %d bytes without spaces and ./:,[]", geometry.MaxName)
	}
	g.Layers = every(layers)
	if v, ok := m["layers"]; ok {
		if g.Layers, err = r.layers(v, field+".layers"); err != nil {
			return g, err
		}
	}
	if g.State, err = r.flag(m, field, "state"); err != nil {
		return g, err
	}
	if g.Window, err = r.optional(m, field, "window", 1, geometry.MaxWindow); err != nil {
		return g, err
	}
	if g.Optional, err = r.flag(m, field, "optional"); err != nil {
		return g, err
	}
	if v, ok := m["shared"]; ok {
		if g.Shared, err = r.shared(v, field+".shared"); err != nil {
			return g, err
		}
	}
	g.Components, err = r.components(at["components"], field+".components", g.State)
	return g, err
}

// layers reads layer numbers: a list, or a text of numbers and ranges. A bare
// number is neither: it reads like a count.
func (r *reader) layers(n *yaml.Node, field string) ([]int, error) {
	if n.Kind == yaml.SequenceNode {
		return r.integers(n, field, geometry.MaxLayers, geometry.MaxLayers-1)
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
		return nil, r.fail(n, field, clip(n.Value), "wrong type: want layer numbers, as a text (\"0-4,6\", \"7\") or a list")
	}
	text, err := r.text(n, field)
	if err != nil {
		return nil, err
	}
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		from, ok := layerNumber(first)
		to := from
		if ranged && ok {
			to, ok = layerNumber(last)
			ok = ok && from < to
		}
		if !ok {
			return nil, r.fail(n, field, clip(text), "%q is no layer number and no range of them: want 0 to %d, such as \"0-4,6\"", clip(part), geometry.MaxLayers-1)
		}
		if k := len(out); k > 0 && from <= out[k-1] {
			return nil, r.fail(n, field, clip(text), "layer numbers ascend, %d follows %d", from, out[k-1])
		}
		for l := from; l <= to; l++ {
			out = append(out, l)
		}
	}
	return out, nil
}

func layerNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && decimal.MatchString(s) && n >= 0 && n < geometry.MaxLayers
}

// shared reads which layers read another layer's cache.
func (r *reader) shared(n *yaml.Node, field string) ([]geometry.Share, error) {
	m, names, err := r.mapping(n, field)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, r.fail(n, field, nil, "empty: leave it out where every layer has a cache of its own")
	}
	var out []geometry.Share
	for _, name := range names {
		layer, ok := layerNumber(name)
		if !ok {
			return nil, r.fail(m[name], join(field, clip(name)), nil, "the key is a layer number, 0 to %d", geometry.MaxLayers-1)
		}
		owner, err := r.integer(m[name], join(field, name), geometry.MaxLayers-1)
		if err != nil {
			return nil, err
		}
		out = append(out, geometry.Share{Layer: layer, Owner: int(owner)})
	}
	slices.SortFunc(out, func(a, b geometry.Share) int { return cmp.Compare(a.Layer, b.Layer) })
	return out, nil
}

// modelError gives a model's fault its place in the file.
func (f *File) modelError(prefix string, err error) error {
	var g *geometry.Error
	if !errors.As(err, &g) {
		return err
	}
	return f.locate(prefix+"."+f.modelField(g.Field), g.Value, g.Reason, err)
}

// modelField is a place in the model as the file writes it: without the one
// group that it has no name for, with shared layers by number, and with the
// heads of states as channels.
func (f *File) modelField(field string) string {
	if !f.named() {
		return strings.TrimPrefix(strings.TrimPrefix(field, "groups[0]"), ".")
	}
	var gi, i int
	if n, _ := fmt.Sscanf(field, "groups[%d].shared[%d]", &gi, &i); n == 2 {
		return fmt.Sprintf("groups[%d].shared.%d", gi, f.Model.Groups[gi].Shared[i].Layer)
	}
	if n, _ := fmt.Sscanf(field, "groups[%d]", &gi); n == 1 && f.Model.Groups[gi].State {
		if at, ok := strings.CutSuffix(field, ".heads"); ok {
			return at + "." + counted(true)
		}
	}
	return field
}
