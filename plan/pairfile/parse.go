package pairfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Limits on identities, which are compared and sent, never computed with.
const (
	maxIdentity      = 256
	maxIdentityValue = 1024
	maxIdentityDepth = 8
)

// Parse reads a pair file. name is what errors call it. Every error is an
// *Error.
func Parse(name string, data []byte) (*File, error) {
	root, err := document(name, data)
	if err != nil {
		return nil, err
	}
	r := &reader{name: name, at: map[string]position{}}
	f := &File{name: name, at: r.at}
	m, _, err := r.mapping(root, "", "kvferry", "model", Source, Destination)
	if err != nil {
		return nil, err
	}
	n, err := r.required(m, root, "", "kvferry")
	if err != nil {
		return nil, err
	}
	version, err := r.text(n, "kvferry")
	if err != nil {
		return nil, err
	}
	if version != Version {
		return nil, r.fail(n, "kvferry", version, "this reader knows %s only", Version)
	}
	if n, err = r.required(m, root, "", "model"); err != nil {
		return nil, err
	}
	if err := r.model(n, f); err != nil {
		return nil, err
	}
	for _, side := range []string{Source, Destination} {
		if n, err = r.required(m, root, "", side); err != nil {
			return nil, err
		}
		if err := r.side(n, side, f, f.Side(side)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line ([0-9]+): )?(.*)$`)

// document parses the one YAML document of a pair file.
func document(name string, data []byte) (root *yaml.Node, err error) {
	bad := func(line int, why string) error {
		return &Error{File: name, Line: line, Reason: why}
	}
	if len(data) > MaxBytes {
		return nil, bad(0, fmt.Sprintf("%d bytes: a pair file has at most %d", len(data), MaxBytes))
	}
	// The YAML package reports some malformed input by panicking inside; a
	// file is never a reason to crash.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, bad(0, fmt.Sprintf("not YAML: %v", p))
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, rest yaml.Node
	err = dec.Decode(&doc)
	if err == nil {
		if err = dec.Decode(&rest); err == nil {
			return nil, bad(rest.Line, "a second document: a pair file holds one")
		}
	} else if errors.Is(err, io.EOF) {
		return nil, bad(0, "empty: a pair file starts with \"kvferry: "+Version+"\"")
	}
	if !errors.Is(err, io.EOF) {
		m := yamlLine.FindStringSubmatch(strings.SplitN(err.Error(), "\n", 2)[0])
		line, _ := strconv.Atoi(m[1]) // absent: 0
		return nil, bad(line, "not YAML: "+m[2])
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, bad(0, "empty: a pair file starts with \"kvferry: "+Version+"\"")
	}
	return doc.Content[0], nil
}

func (r *reader) model(n *yaml.Node, f *File) error {
	m, _, err := r.mapping(n, "model", "name", "layers", "identity", "components", "groups")
	if err != nil {
		return err
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"name", "layers"} {
		if at[key], err = r.required(m, n, "model", key); err != nil {
			return err
		}
	}
	components, groups := m["components"], m["groups"]
	switch {
	case components != nil && groups != nil:
		return r.fail(groups, "model.groups", nil, "components and groups are both given: a model's components are those of its one group, or stand in its groups")
	case components == nil && groups == nil:
		return r.fail(n, "model.components", nil, "missing, and so is groups: a model has components, or groups that have them")
	}
	if f.Model.Name, err = r.text(at["name"], "model.name"); err != nil {
		return err
	}
	layers, err := r.integer(at["layers"], "model.layers", geometry.MaxLayers)
	if err != nil {
		return err
	}
	f.Model.Layers = int(layers)
	if id, ok := m["identity"]; ok {
		if f.Model.Identity, err = r.identity(id, "model.identity"); err != nil {
			return err
		}
	}
	if components != nil {
		g := geometry.Group{Layers: every(f.Model.Layers)}
		if g.Components, err = r.components(components, "model.components", false); err != nil {
			return err
		}
		f.Model.Groups = []geometry.Group{g}
	} else if err := r.groups(groups, f); err != nil {
		return err
	}
	return f.modelError("model", f.Model.Validate())
}

// every is the layers of a group that does not say which it has.
func every(layers int) []int {
	out := make([]int, layers)
	for l := range out {
		out[l] = l
	}
	return out
}

func (r *reader) components(n *yaml.Node, field string, state bool) ([]geometry.Component, error) {
	list, err := r.list(n, field, geometry.MaxComponents)
	if err != nil {
		return nil, err
	}
	var out []geometry.Component
	for i, n := range list {
		c, err := r.component(n, fmt.Sprintf("%s[%d]", field, i), state)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// counted is what a component's heads are called in the file.
func counted(state bool) string {
	if state {
		return "channels"
	}
	return "heads"
}

func (r *reader) component(n *yaml.Node, field string, state bool) (c geometry.Component, err error) {
	count := counted(state)
	m, _, err := r.mapping(n, field, "name", "heads", "channels", "unit", "dim", "dtype", "tokens_per_entry", "scales")
	if err != nil {
		return c, err
	}
	if other, ok := m[counted(!state)]; ok {
		why := "an entry a token has heads; channels are those of a group of states"
		if state {
			why = "a state has channels, not heads"
		}
		return c, r.fail(other, join(field, counted(!state)), nil, "%s", why)
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"name", count, "dim", "dtype"} {
		if at[key], err = r.required(m, n, field, key); err != nil {
			return c, err
		}
	}
	if c.Name, err = r.text(at["name"], field+".name"); err != nil {
		return c, err
	}
	heads, err := r.integer(at[count], join(field, count), geometry.MaxHeads)
	if err != nil {
		return c, err
	}
	dim, err := r.integer(at["dim"], field+".dim", geometry.MaxDim)
	if err != nil {
		return c, err
	}
	c.Heads, c.Dim = int(heads), int(dim)
	if c.Unit, err = r.optional(m, field, "unit", 2, geometry.MaxHeads); err != nil {
		return c, err
	}
	if c.Entry, err = r.optional(m, field, "tokens_per_entry", 2, geometry.MaxEntry); err != nil {
		return c, err
	}
	if v, ok := m["scales"]; ok {
		if c.Scales, err = r.text(v, field+".scales"); err != nil {
			return c, err
		}
		if c.Scales == "" {
			return c, r.fail(v, field+".scales", "", "empty: leave it out where nothing is scaled")
		}
	}
	c.DType, err = r.dtype(at["dtype"], field+".dtype")
	return c, err
}

func (r *reader) dtype(n *yaml.Node, field string) (geometry.DType, error) {
	s, err := r.text(n, field)
	if err != nil {
		return 0, err
	}
	d, err := geometry.ParseDType(s)
	if err != nil {
		e := r.fail(n, field, clip(s), "unknown dtype (known: fp64 fp32 fp16 bf16 fp8_e4m3 fp8_e5m2 int8 uint8 fp4 int4)").(*Error)
		e.Err = err
		return 0, e
	}
	return d, nil
}

// identity flattens nested mappings to dotted names.
func (r *reader) identity(n *yaml.Node, field string) (geometry.Identity, error) {
	id := geometry.Identity{}
	var walk func(n *yaml.Node, field, prefix string, depth int) error
	walk = func(n *yaml.Node, field, prefix string, depth int) error {
		m, order, err := r.mapping(n, field)
		if err != nil {
			return err
		}
		if len(order) == 0 {
			return r.fail(n, field, nil, "empty: leave it out where nothing is declared")
		}
		if depth > maxIdentityDepth {
			return r.fail(n, field, nil, "nested more than %d deep", maxIdentityDepth)
		}
		for _, key := range order {
			v, at, name := m[key], join(field, key), join(prefix, key)
			if key == "" || len(name) > geometry.MaxName {
				return r.fail(v, at, nil, "a name has 1 to %d bytes", geometry.MaxName)
			}
			if v.Kind == yaml.MappingNode {
				if err := walk(v, at, name, depth+1); err != nil {
					return err
				}
				continue
			}
			if err := r.expect(v, at, yaml.ScalarNode); err != nil {
				return err
			}
			_, twice := id[name]
			switch {
			case v.ShortTag() == "!!null":
				return r.fail(v, at, nil, "no value: leave it out where nothing is declared")
			case len(v.Value) > maxIdentityValue:
				return r.fail(v, at, clip(v.Value), "longer than %d bytes", maxIdentityValue)
			case twice:
				return r.fail(v, at, clip(v.Value), "duplicate key: %s is declared twice", name)
			case len(id) == maxIdentity:
				return r.fail(v, at, nil, "more than %d names", maxIdentity)
			}
			id[name] = v.Value
		}
		return nil
	}
	return id, walk(n, field, "", 1)
}
