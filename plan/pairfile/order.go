package pairfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

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

func (r *reader) can(n *yaml.Node, field string, s *Side) error {
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

func (r *reader) layout(n *yaml.Node, field string, f *File, s *Side) error {
	if n.Kind == yaml.ScalarNode {
		p, err := r.named(n, field)
		if err != nil {
			return err
		}
		spec := p.Spec
		s.Preset, s.Layout = p.Name, &spec
		return nil
	}
	m, _, err := r.mapping(n, field, "order", "strides", "name")
	if err != nil {
		return err
	}
	s.Layout = &layout.Spec{}
	order, err := r.required(m, n, field, "order")
	if err != nil {
		return err
	}
	if err := r.order(order, field+".order", f, s.Layout); err != nil {
		return err
	}
	if v, ok := m["strides"]; ok {
		st, names, err := r.mapping(v, field+".strides")
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return r.fail(v, field+".strides", nil, "empty: leave it out where nothing is padded")
		}
		s.Layout.Strides = map[string]int64{}
		for _, name := range names {
			at := field + ".strides." + name
			item, err := r.item(st[name], name, at)
			if err != nil {
				return err
			}
			bytes, err := r.integer(st[name], at, layout.MaxRegionBytes)
			if err != nil {
				return err
			}
			if _, ok := s.Layout.Strides[item.String()]; ok {
				return r.fail(st[name], at, nil, "duplicate key: a stride of %s is already given", item)
			}
			s.Layout.Strides[item.String()] = bytes
		}
	}
	if v, ok := m["name"]; ok {
		if s.Layout.Name, err = r.text(v, field+".name"); err != nil {
			return err
		}
		if s.Layout.Name == "" {
			return r.fail(v, field+".name", "", "empty: leave it out where nothing is claimed")
		}
	}
	return nil
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

const maxItems = 64

func (r *reader) order(n *yaml.Node, field string, f *File, spec *layout.Spec) error {
	list, err := r.list(n, field, maxItems)
	if err != nil {
		return err
	}
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == yaml.MappingNode {
			if i != len(list)-1 {
				return r.fail(n, at, nil, "only the last item of an order may differ by component")
			}
			branch, err := r.branch(n, at, f)
			if err != nil {
				return err
			}
			spec.Order = append(spec.Order, layout.Entry{Branch: branch})
			continue
		}
		word, err := r.text(n, at)
		if err != nil {
			return err
		}
		if word == "component" {
			spec.Order = append(spec.Order, layout.Entry{Component: true})
			continue
		}
		it, err := r.item(n, word, at)
		if err != nil {
			return err
		}
		spec.Order = append(spec.Order, layout.Entry{Item: it})
	}
	return nil
}

func (r *reader) branch(n *yaml.Node, field string, f *File) (map[string][]layout.Item, error) {
	m, names, err := r.mapping(n, field)
	if err != nil {
		return nil, err
	}
	g := f.Model.Groups[0]
	branch := map[string][]layout.Item{}
	for _, name := range names {
		if g.Component(name) < 0 {
			return nil, r.fail(m[name], join(field, name), nil, "the model has no component of this name")
		}
		list, err := r.list(m[name], join(field, name), maxItems)
		if err != nil {
			return nil, err
		}
		for i, n := range list {
			at := fmt.Sprintf("%s[%d]", join(field, name), i)
			word, err := r.text(n, at)
			if err != nil {
				return nil, err
			}
			it, err := r.item(n, word, at)
			if err != nil {
				return nil, err
			}
			branch[name] = append(branch[name], it)
		}
	}
	for _, c := range g.Components {
		if branch[c.Name] == nil {
			return nil, r.fail(n, join(field, c.Name), nil, "missing: a branch gives every component's items")
		}
	}
	return branch, nil
}
