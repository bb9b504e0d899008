package pairfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
)

// named looks up a preset.
func (r *reader) named(n *yaml.Node, field string) (preset.Preset, error) {
	name, err := r.text(n, field)
	if err != nil {
		return preset.Preset{}, err
	}
	p, ok := preset.Get(name)
	if !ok {
		return p, r.fail(n, field, clip(name), "no preset has this name (known: %s)", strings.Join(presets(), ", "))
	}
	return p, nil
}

func presets() []string {
	var names []string
	for _, p := range preset.All() {
		names = append(names, p.Name)
	}
	return names
}

func (r *reader) can(n *yaml.Node, field string, s *SideGroup) error {
	list, err := r.list(n, field, 64)
	if err != nil {
		return err
	}
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		p, err := r.named(n, at)
		if err != nil {
			return err
		}
		if slices.Contains(s.Can, p.Name) {
			return r.fail(n, at, p.Name, "offered twice")
		}
		s.Can = append(s.Can, p.Name)
	}
	return nil
}

// layout reads a layout and the name of the preset that gives it, "" for an
// order.
func (r *reader) layout(n *yaml.Node, field string, g geometry.Group) (*layout.Spec, string, error) {
	if n.Kind == yaml.ScalarNode {
		p, err := r.named(n, field)
		if err != nil {
			return nil, "", err
		}
		return &p.Spec, p.Name, nil
	}
	spec, err := r.spec(n, field, g)
	return spec, "", err
}

func (r *reader) spec(n *yaml.Node, field string, g geometry.Group) (*layout.Spec, error) {
	m, _, err := r.mapping(n, field, "order", "strides", "name")
	if err != nil {
		return nil, err
	}
	spec := &layout.Spec{}
	order, err := r.required(m, n, field, "order")
	if err != nil {
		return nil, err
	}
	names := make([]string, len(g.Components))
	for i, c := range g.Components {
		names[i] = c.Name
	}
	if spec.Order, err = r.order(order, field+".order", names, 0); err != nil {
		return nil, err
	}
	if v, ok := m["strides"]; ok {
		st, names, err := r.mapping(v, field+".strides")
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, r.fail(v, field+".strides", nil, "empty: leave it out where nothing is padded")
		}
		spec.Strides = map[string]int64{}
		for _, name := range names {
			at := field + ".strides." + name
			item, err := r.item(st[name], name, at)
			if err != nil {
				return nil, err
			}
			bytes, err := r.integer(st[name], at, layout.MaxRegionBytes)
			if err != nil {
				return nil, err
			}
			if _, ok := spec.Strides[item.String()]; ok {
				return nil, r.fail(st[name], at, nil, "duplicate key: a stride of %s is already given", item)
			}
			spec.Strides[item.String()] = bytes
		}
	}
	if v, ok := m["name"]; ok {
		if spec.Name, err = r.text(v, field+".name"); err != nil {
			return nil, err
		}
		if spec.Name == "" {
			return nil, r.fail(v, field+".name", "", "empty: leave it out where nothing is claimed")
		}
	}
	return spec, nil
}

func (r *reader) item(n *yaml.Node, text, field string) (layout.Item, error) {
	it, err := layout.ParseItem(text)
	if err != nil {
		why := err.Error()
		var l *layout.Error
		if errors.As(err, &l) {
			why = l.Reason
		}
		e := r.fail(n, field, clip(text), "%s", why).(*Error)
		e.Err = err
		return it, e
	}
	return it, nil
}

// Limits on orders, above what layout.Spec takes.
const (
	maxItems  = 64
	maxNested = 8
)

// order reads what an order says of the named components, below depth branches.
func (r *reader) order(n *yaml.Node, field string, components []string, depth int) ([]layout.Entry, error) {
	list, err := r.list(n, field, maxItems)
	if err != nil {
		return nil, err
	}
	var out []layout.Entry
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == yaml.MappingNode {
			if i != len(list)-1 {
				return nil, r.fail(n, at, nil, "only the last item of an order may differ by component")
			}
			if depth == maxNested {
				return nil, r.fail(n, at, nil, "branches nest more than %d deep", maxNested)
			}
			branch, err := r.branch(n, at, components, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, layout.Entry{Branch: branch})
			continue
		}
		word, err := r.text(n, at)
		if err != nil {
			return nil, err
		}
		if word == "component" {
			out = append(out, layout.Entry{Component: true})
			continue
		}
		it, err := r.item(n, word, at)
		if err != nil {
			return nil, err
		}
		out = append(out, layout.Entry{Item: it})
	}
	return out, nil
}

// branch reads the orders of the components by key: one component, or several
// with commas between them, in the model's order.
func (r *reader) branch(n *yaml.Node, field string, components []string, depth int) (map[string][]layout.Entry, error) {
	m, keys, err := r.mapping(n, field)
	if err != nil {
		return nil, err
	}
	branch := map[string][]layout.Entry{}
	seen := map[string]bool{}
	for _, key := range keys {
		at := join(field, key)
		own := strings.Split(key, ",")
		last := -1
		for i, name := range own {
			own[i] = strings.TrimSpace(name)
			place := slices.Index(components, own[i])
			switch {
			case place < 0 && len(own) == 1 && depth == 1:
				return nil, r.fail(m[key], at, nil, "the model has no component of this name")
			case place < 0:
				return nil, r.fail(m[key], at, nil, "%q is no component that this branch parts (%s)", clip(own[i]), strings.Join(components, ", "))
			case seen[own[i]]:
				return nil, r.fail(m[key], at, nil, "the branch gives component %s twice", own[i])
			case place < last:
				return nil, r.fail(m[key], at, nil, "component %s stands out of the model's order (%s)", own[i], strings.Join(components, ", "))
			}
			seen[own[i]], last = true, place
		}
		if branch[strings.Join(own, ",")], err = r.order(m[key], at, own, depth); err != nil {
			return nil, err
		}
	}
	for _, name := range components {
		if !seen[name] {
			return nil, r.fail(n, join(field, name), nil, "missing: a branch gives every component's items")
		}
	}
	return branch, nil
}
