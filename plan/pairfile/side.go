package pairfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// ofGroup are the keys that say how a side keeps a group of entries a token.
var ofGroup = [...]string{"block", "blocks", "kernel_block", "ring", "layout", "can"}

func (r *reader) side(n *yaml.Node, field string, f *File, s *Side) error {
	known := slices.Concat([]string{"engine", "shard"}, ofGroup[:], []string{"dtype", "identity", "groups"})
	if !f.named() {
		known = known[:len(known)-1]
	}
	if v := child(n, "groups"); v != nil && !f.named() {
		return r.fail(v, field+".groups", nil, "the model has no groups: the side itself gives block, blocks and layout")
	}
	m, order, err := r.mapping(n, field, known...)
	if err != nil {
		return err
	}
	needed := []string{"engine", "shard", "block", "blocks"}
	if f.named() {
		for _, key := range order {
			if slices.Contains(ofGroup[:], key) {
				return r.fail(m[key], join(field, key), nil, "the model has groups: each gives its own, below %s", join(field, "groups"))
			}
		}
		needed = []string{"engine", "shard", "groups"}
	}
	at := map[string]*yaml.Node{}
	for _, key := range needed {
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
	groups := []groupNode{{n, m}}
	s.Groups = make([]SideGroup, len(f.Model.Groups))
	if f.named() {
		if groups, err = r.sideGroups(at["groups"], field+".groups", f, s); err != nil {
			return err
		}
	}
	for g, node := range groups {
		if node.keys == nil {
			continue
		}
		if err := r.sizes(node, f.groupField(field, g), f.Model.Groups[g], &s.Groups[g]); err != nil {
			return err
		}
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
			at := g.Field
			var own int // the side's own number of the group
			if n, _ := fmt.Sscanf(at, "groups[%d]", &own); n == 1 {
				at = fmt.Sprintf("groups[%d]%s", s.Present()[own], at[strings.IndexByte(at, ']')+1:])
			}
			return f.locate(field+".dtype", s.DType, fmt.Sprintf("%s is %v: %s", f.modelField(at), g.Value, g.Reason), err)
		}
		return err
	}
	if err := r.shards(at["shard"], field, groups, f, s); err != nil {
		return err
	}
	for g, node := range groups {
		if node.keys == nil {
			continue
		}
		if err := r.lies(node, f.groupField(field, g), f, s, g); err != nil {
			return err
		}
	}
	return nil
}

// groupNode is where a side says how it keeps a group, with its keys; nil keys:
// the side lacks the group.
type groupNode struct {
	node *yaml.Node
	keys map[string]*yaml.Node
}

// sideGroups finds what a side says of each of the model's groups.
func (r *reader) sideGroups(n *yaml.Node, field string, f *File, s *Side) ([]groupNode, error) {
	m, order, err := r.mapping(n, field)
	if err != nil {
		return nil, err
	}
	for _, name := range order {
		if !slices.ContainsFunc(f.Model.Groups, func(g geometry.Group) bool { return g.Name == name }) {
			return nil, r.fail(m[name], join(field, name), nil, "the model has no group of this name")
		}
	}
	if len(order) == 0 {
		return nil, r.fail(n, field, nil, "empty: a side has at least one of the model's groups")
	}
	out := make([]groupNode, len(f.Model.Groups))
	for gi, g := range f.Model.Groups {
		v, ok := m[g.Name]
		switch {
		case ok:
		case g.Optional:
			s.Groups[gi].Absent = true
			continue
		default:
			return nil, r.fail(n, join(field, g.Name), nil, "missing: the model does not call the group optional")
		}
		known := slices.Concat(ofGroup[:], []string{"shard"})
		if g.State {
			known = []string{"slots", "layout", "can", "shard"}
		}
		at := join(field, g.Name)
		keys, _, err := r.mapping(v, at, known...)
		if err != nil {
			return nil, err
		}
		out[gi] = groupNode{v, keys}
	}
	return out, nil
}

// sizes reads the sizes of a group's pool.
func (r *reader) sizes(n groupNode, field string, g geometry.Group, s *SideGroup) error {
	type size struct {
		name string
		to   *int
		max  int64
	}
	sizes := []size{{"block", &s.Block, layout.MaxTokens}, {"blocks", &s.Blocks, layout.MaxBlocks}}
	if g.State {
		s.Block = 1
		sizes = []size{{"slots", &s.Blocks, layout.MaxBlocks}}
	}
	for _, size := range sizes {
		at, err := r.required(n.keys, n.node, field, size.name)
		if err != nil {
			return err
		}
		v, err := r.integer(at, field+"."+size.name, size.max)
		if err != nil {
			return err
		}
		if v == 0 {
			return r.fail(at, field+"."+size.name, v, "want 1 to %d", size.max)
		}
		*size.to = int(v)
	}
	var err error
	if s.Ring, err = r.optional(n.keys, field, "ring", 1, layout.MaxBlocks); err != nil {
		return err
	}
	if s.Ring > s.Blocks {
		return r.fail(n.keys["ring"], field+".ring", s.Ring, "a request goes round in more blocks than the pool's %d", s.Blocks)
	}
	if s.Kernel, err = r.optional(n.keys, field, "kernel_block", 1, layout.MaxTokens); err != nil {
		return err
	}
	if s.Kernel > 0 && s.Block%s.Kernel != 0 {
		return r.fail(n.keys["kernel_block"], field+".kernel_block", s.Kernel, "does not divide a block of %d tokens", s.Block)
	}
	for _, c := range g.Components {
		if e := c.EntryTokens(); s.Block%e != 0 {
			return r.fail(n.keys["block"], field+".block", s.Block, "component %s has an entry for every %d tokens", c.Name, e)
		} else if s.Kernel%e != 0 {
			return r.fail(n.keys["kernel_block"], field+".kernel_block", s.Kernel, "component %s has an entry for every %d tokens", c.Name, e)
		}
	}
	return nil
}

// lies reads where a group lies.
func (r *reader) lies(n groupNode, field string, f *File, s *Side, g int) error {
	lay, given := n.keys["layout"]
	can, offered := n.keys["can"]
	switch {
	case given && offered:
		return r.fail(can, field+".can", nil, "layout and can are both given: a side tells its layout or lets the policy choose one")
	case !given && !offered:
		of := ""
		if f.named() {
			of = fmt.Sprintf(" of group %q", f.Model.Groups[g].Name)
		}
		return r.fail(n.node, field+".layout", nil, "missing: engine %q says neither its layout%s nor, with can, which ones it could use; there is no default layout", s.Engine, of)
	case offered:
		return r.can(can, field+".can", &s.Groups[g])
	}
	spec, name, err := r.layout(lay, field+".layout", f.Model.Groups[g])
	if err != nil {
		return err
	}
	spec.Kernel = int64(s.Groups[g].Kernel)
	s.Groups[g].Layout, s.Groups[g].Preset = spec, name
	return nil
}
