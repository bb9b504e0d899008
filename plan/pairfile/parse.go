package pairfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
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
	m, _, err := r.mapping(n, "model", "name", "layers", "identity", "components")
	if err != nil {
		return err
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"name", "layers", "components"} {
		if at[key], err = r.required(m, n, "model", key); err != nil {
			return err
		}
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
	list, err := r.list(at["components"], "model.components", geometry.MaxComponents)
	if err != nil {
		return err
	}
	g := geometry.Group{Layers: make([]int, f.Model.Layers)}
	for l := range g.Layers {
		g.Layers[l] = l
	}
	for i, n := range list {
		c, err := r.component(n, fmt.Sprintf("model.components[%d]", i))
		if err != nil {
			return err
		}
		g.Components = append(g.Components, c)
	}
	f.Model.Groups = []geometry.Group{g}
	return f.modelError("model", f.Model.Validate())
}

// modelError gives a model's fault its place in the file.
func (f *File) modelError(prefix string, err error) error {
	var g *geometry.Error
	if !errors.As(err, &g) {
		return err
	}
	field := strings.TrimPrefix(strings.TrimPrefix(g.Field, "groups[0]"), ".")
	return f.locate(prefix+"."+field, g.Value, g.Reason, err)
}

func (r *reader) component(n *yaml.Node, field string) (c geometry.Component, err error) {
	m, _, err := r.mapping(n, field, "name", "heads", "dim", "dtype")
	if err != nil {
		return c, err
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"name", "heads", "dim", "dtype"} {
		if at[key], err = r.required(m, n, field, key); err != nil {
			return c, err
		}
	}
	if c.Name, err = r.text(at["name"], field+".name"); err != nil {
		return c, err
	}
	heads, err := r.integer(at["heads"], field+".heads", geometry.MaxHeads)
	if err != nil {
		return c, err
	}
	dim, err := r.integer(at["dim"], field+".dim", geometry.MaxDim)
	if err != nil {
		return c, err
	}
	c.Heads, c.Dim = int(heads), int(dim)
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

func (r *reader) side(n *yaml.Node, field string, f *File, s *Side) error {
	m, _, err := r.mapping(n, field, "engine", "shard", "block", "blocks", "layout", "can", "dtype", "identity")
	if err != nil {
		return err
	}
	at := map[string]*yaml.Node{}
	for _, key := range []string{"engine", "shard", "block", "blocks"} {
		if at[key], err = r.required(m, n, field, key); err != nil {
			return err
		}
	}
	if s.Engine, err = r.text(at["engine"], field+".engine"); err != nil {
		return err
	}
	if s.Engine == "" || len(s.Engine) > geometry.MaxName {
		return r.fail(at["engine"], field+".engine", clip(s.Engine), "an engine's name has 1 to %d bytes", geometry.MaxName)
	}
	for _, size := range []struct {
		name string
		to   *int
		max  int64
	}{{"block", &s.Block, 1 << 20}, {"blocks", &s.Blocks, 1 << 28}} {
		v, err := r.integer(at[size.name], field+"."+size.name, size.max)
		if err != nil {
			return err
		}
		if v == 0 {
			return r.fail(at[size.name], field+"."+size.name, v, "want 1 to %d", size.max)
		}
		*size.to = int(v)
	}
	if d, ok := m["dtype"]; ok {
		if s.DType, err = r.dtype(d, field+".dtype"); err != nil {
			return err
		}
	}
	if id, ok := m["identity"]; ok {
		if s.Identity, err = r.identity(id, field+".identity"); err != nil {
			return err
		}
	}
	if err := f.SideModel(s).Validate(); err != nil {
		// The model itself is valid, so it is this side's dtype.
		var g *geometry.Error
		if errors.As(err, &g) {
			return f.locate(field+".dtype", s.DType, fmt.Sprintf("%s is %v: %s", strings.TrimPrefix(g.Field, "groups[0]."), g.Value, g.Reason), err)
		}
		return err
	}
	if err := r.shard(at["shard"], field+".shard", f, s); err != nil {
		return err
	}
	lay, given := m["layout"]
	can, offered := m["can"]
	switch {
	case given && offered:
		return r.fail(can, field+".can", nil, "layout and can are both given: a side tells its layout or lets the policy choose one")
	case !given && !offered:
		return r.fail(n, field+".layout", nil, "missing: engine %q says neither its layout nor, with can, which ones it could use; there is no default layout", s.Engine)
	case offered:
		return r.can(can, field+".can", s)
	}
	return r.layout(lay, field+".layout", f, s)
}

func (r *reader) shard(n *yaml.Node, field string, f *File, s *Side) error {
	m, _, err := r.mapping(n, field, "tp", "pp", "dcp", "heads", "rank_order")
	if err != nil {
		return err
	}
	fault := func(err error) error {
		var e *shard.Error
		if !errors.As(err, &e) {
			return err
		}
		return f.locate(field+"."+e.Field, e.Value, e.Reason, err)
	}
	s.Shard = shard.Spec{TP: 1, Stages: []int{f.Model.Layers}, DCPSize: 1, Interleave: 1}
	if v, ok := m["tp"]; ok {
		tp, err := r.integer(v, field+".tp", shard.MaxRanks)
		if err != nil {
			return err
		}
		s.Shard.TP = int(tp)
	}
	if v, ok := m["pp"]; ok {
		if v.Kind == yaml.SequenceNode {
			if s.Shard.Stages, err = r.integers(v, field+".pp", geometry.MaxLayers, geometry.MaxLayers); err != nil {
				return err
			}
		} else {
			pp, err := r.integer(v, field+".pp", geometry.MaxLayers)
			if err != nil {
				return err
			}
			if s.Shard.Stages, err = shard.Even(f.Model.Layers, int(pp)); err != nil {
				return fault(err)
			}
		}
	}
	if v, ok := m["dcp"]; ok {
		d, _, err := r.mapping(v, field+".dcp", "size", "interleave")
		if err != nil {
			return err
		}
		size, err := r.required(d, v, field+".dcp", "size")
		if err != nil {
			return err
		}
		c, err := r.integer(size, field+".dcp.size", shard.MaxRanks)
		if err != nil {
			return err
		}
		s.Shard.DCPSize = int(c)
		if v, ok := d["interleave"]; ok {
			i, err := r.integer(v, field+".dcp.interleave", 1<<20)
			if err != nil {
				return err
			}
			s.Shard.Interleave = int(i)
		}
	}
	if v, ok := m["heads"]; ok {
		lists, err := r.list(v, field+".heads", shard.MaxRanks)
		if err != nil {
			return err
		}
		for i, n := range lists {
			heads, err := r.integers(n, fmt.Sprintf("%s.heads[%d]", field, i), geometry.MaxHeads, geometry.MaxHeads)
			if err != nil {
				return err
			}
			s.Shard.Heads = append(s.Shard.Heads, heads)
		}
	}
	var order []shard.Grid
	if v, ok := m["rank_order"]; ok {
		names, err := r.list(v, field+".rank_order", 3)
		if err != nil {
			return err
		}
		for i, n := range names {
			at := fmt.Sprintf("%s.rank_order[%d]", field, i)
			name, err := r.text(n, at)
			if err != nil {
				return err
			}
			g := shard.Grid(slices.Index([]string{"pp", "tp", "dcp"}, name) + 1)
			if g == 0 {
				return r.fail(n, at, clip(name), "want pp, tp or dcp")
			}
			order = append(order, g)
		}
	}
	if s.Shard.Order, err = shard.Order(order); err != nil {
		return fault(err)
	}
	return fault(s.Shard.Validate(f.Model))
}

func (r *reader) integers(n *yaml.Node, field string, count int, max int64) ([]int, error) {
	list, err := r.list(n, field, count)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(list))
	for i, n := range list {
		v, err := r.integer(n, fmt.Sprintf("%s[%d]", field, i), max)
		if err != nil {
			return nil, err
		}
		out[i] = int(v)
	}
	return out, nil
}
