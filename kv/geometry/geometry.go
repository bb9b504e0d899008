// Package geometry says what a KV cache is: its groups, components, axes and
// element types, and the identity of the model that filled it.
//
// It owns no memory, knows no byte offsets (package layout) and no ranks
// (package shard).
package geometry

import (
	"crypto/sha256"
	"fmt"
	"sort"
	"strings"
)

// Axis is a named dimension of a component.
type Axis uint8

// The axes of an attention component. Slot and Channel are those of state
// components. The numbers travel in policy records and never change.
const (
	Layer   Axis = 1
	Block   Axis = 2
	Token   Axis = 3 // within a block
	Head    Axis = 4
	Dim     Axis = 5
	Slot    Axis = 6
	Channel Axis = 7
)

var axes = [...]string{Layer: "layer", Block: "block", Token: "token", Head: "head", Dim: "dim", Slot: "slot", Channel: "channel"}

// String is the axis's name in pair files.
func (a Axis) String() string {
	if a == 0 || int(a) >= len(axes) {
		return fmt.Sprintf("axis(%d)", uint8(a))
	}
	return axes[a]
}

// ParseAxis returns the axis with the given name.
func ParseAxis(s string) (Axis, bool) {
	for a, name := range axes {
		if name == s && s != "" {
			return Axis(a), true
		}
	}
	return 0, false
}

// Limits on sizes. They keep every product of sizes that the planner forms
// within int64 and are far above any model.
const (
	MaxLayers     = 1 << 14
	MaxHeads      = 1 << 14
	MaxDim        = 1 << 20
	MaxComponents = 64 // a policy's component set is a 64-bit mask
	MaxGroups     = 64
	MaxName       = 128
)

// Component is one kind of value that a layer keeps for each token: k, v, an
// MLA latent, scales.
type Component struct {
	Name  string
	Heads int // kv heads in the model; 0: the component has no heads (MLA latent) and every TP rank holds it whole
	Dim   int // elements per (token, head)
	DType DType
}

// HeadCount is Heads, or 1 for a component without heads: the number of rows
// a token has in it.
func (c Component) HeadCount() int { return max(c.Heads, 1) }

// RowBits is the size of one (token, head) row in bits.
func (c Component) RowBits() int64 { return int64(c.Dim) * c.DType.Bits() }

// Group is a set of layers that share components, block size and block table.
type Group struct {
	Name       string // unique in the model; "" in a model of one group
	Layers     []int  // the model's layer numbers, ascending
	Components []Component
}

// Model says what a cache is, independent of who holds it and where it lies.
type Model struct {
	Name     string
	Layers   int // of the whole model; groups name a subset each
	Identity Identity
	Groups   []Group
}

// Identity is what equal shapes do not show: dotted names ("weights",
// "rope.type", "rope.theta", "window", ...) with their values, compared field
// by field. The nil map says that nothing was declared.
type Identity map[string]string

// Names returns the declared names in ascending order.
func (id Identity) Names() []string {
	names := make([]string, 0, len(id))
	for n := range id {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Coord names one element of a cache, independent of rank, layout and block
// size: the coordinate that a proof compares.
type Coord struct {
	Group     int
	Component int // index into the group's Components
	Layer     int // the model's layer number
	Head      int // the model's head number; 0 for a component without heads
	Token     int64
	Dim       int
}

// String gives the coordinate in words with indices, e.g. "component 0 layer
// 3 head 5 token 77 dim 9".
func (c Coord) String() string {
	s := fmt.Sprintf("component %d layer %d head %d token %d dim %d", c.Component, c.Layer, c.Head, c.Token, c.Dim)
	if c.Group != 0 {
		s = fmt.Sprintf("group %d ", c.Group) + s
	}
	return s
}

// Error is a description that cannot be true. Field is the dotted place, such
// as "components[1].dim".
type Error struct {
	Field  string
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("geometry: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Validate returns an *Error naming the first field that cannot be true.
func (m Model) Validate() error {
	bad := func(field string, v any, why string, args ...any) error {
		return &Error{Field: field, Value: v, Reason: fmt.Sprintf(why, args...)}
	}
	if m.Name == "" || len(m.Name) > MaxName {
		return bad("name", fmt.Sprintf("%q", m.Name), "a model needs a name of 1 to %d bytes", MaxName)
	}
	if m.Layers < 1 || m.Layers > MaxLayers {
		return bad("layers", m.Layers, "want 1 to %d", MaxLayers)
	}
	if len(m.Groups) < 1 || len(m.Groups) > MaxGroups {
		return bad("groups", len(m.Groups), "want 1 to %d groups", MaxGroups)
	}
	names := map[string]bool{}
	for gi, g := range m.Groups {
		at := fmt.Sprintf("groups[%d]", gi)
		if names[g.Name] || len(g.Name) > MaxName || (g.Name == "" && len(m.Groups) > 1) {
			return bad(at+".name", fmt.Sprintf("%q", g.Name), "group names are unique and not empty")
		}
		names[g.Name] = true
		if len(g.Layers) == 0 {
			return bad(at+".layers", "empty", "a group holds at least one layer")
		}
		for i, l := range g.Layers {
			if l < 0 || l >= m.Layers || i > 0 && l <= g.Layers[i-1] {
				return bad(fmt.Sprintf("%s.layers[%d]", at, i), l, "layer numbers ascend within 0 to %d", m.Layers-1)
			}
		}
		if len(g.Components) < 1 || len(g.Components) > MaxComponents {
			return bad(at+".components", len(g.Components), "want 1 to %d components", MaxComponents)
		}
		comps := map[string]bool{}
		for ci, c := range g.Components {
			at := fmt.Sprintf("%s.components[%d]", at, ci)
			switch {
			case c.Name == "" || len(c.Name) > MaxName || strings.ContainsAny(c.Name, " \t\n./:,"):
				return bad(at+".name", fmt.Sprintf("%q", c.Name), "a component name is 1 to %d bytes without spaces and ./:,", MaxName)
			case comps[c.Name]:
				return bad(at+".name", fmt.Sprintf("%q", c.Name), "named twice")
			case c.Heads < 0 || c.Heads > MaxHeads:
				return bad(at+".heads", c.Heads, "want 0 (no heads) to %d", MaxHeads)
			case c.Dim < 1 || c.Dim > MaxDim:
				return bad(at+".dim", c.Dim, "want 1 to %d", MaxDim)
			case !c.DType.Valid():
				return bad(at+".dtype", uint8(c.DType), "no such dtype")
			case c.RowBits()%8 != 0:
				return bad(at+".dim", c.Dim, "a row of %d %s elements is %d bits, not whole bytes", c.Dim, c.DType, c.RowBits())
			case c.Heads != g.Components[0].Heads:
				return bad(at+".heads", c.Heads, "components of one group have equal head counts, %s has %d", g.Components[0].Name, g.Components[0].Heads)
			}
			comps[c.Name] = true
		}
	}
	return nil
}

// Heads is the head count of the group's components (0: no heads).
func (g Group) Heads() int {
	if len(g.Components) == 0 {
		return 0
	}
	return g.Components[0].Heads
}

// Component returns the index of the named component, or -1.
func (g Group) Component(name string) int {
	for i, c := range g.Components {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// Text is the canonical form: one line a fact, digested by Digest. Two models
// with equal texts are equal.
func (m Model) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %q layers %d\n", m.Name, m.Layers)
	for _, n := range m.Identity.Names() {
		fmt.Fprintf(&b, "identity %s %q\n", n, m.Identity[n])
	}
	for _, g := range m.Groups {
		fmt.Fprintf(&b, "group %q layers %s\n", g.Name, Ranges(g.Layers))
		for _, c := range g.Components {
			fmt.Fprintf(&b, "component %q heads %d dim %d dtype %s\n", c.Name, c.Heads, c.Dim, c.DType)
		}
	}
	return b.String()
}

// Digest is the SHA-256 of Text.
func (m Model) Digest() Digest { return sha256.Sum256([]byte(m.Text())) }

// Digest is a SHA-256 of a canonical text.
type Digest [32]byte

// String is "sha256:" and 64 hex digits.
func (d Digest) String() string { return fmt.Sprintf("sha256:%x", d[:]) }

// Ranges writes ascending numbers as ranges: "0-3,7,9-10"; "-" when empty.
func Ranges(n []int) string {
	if len(n) == 0 {
		return "-"
	}
	var b strings.Builder
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if i == j {
			fmt.Fprintf(&b, "%d", n[i])
		} else {
			fmt.Fprintf(&b, "%d-%d", n[i], n[j])
		}
		i = j + 1
	}
	return b.String()
}

// Difference is one field in which two descriptions differ, with both values.
type Difference struct {
	Field       string `json:"field"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// Compare returns every field in which two models differ, in the order of
// Text; none means that a cache of one is a cache of the other. An identity
// name that only one side declares is a difference; its missing value is
// written "(not declared)".
func Compare(source, destination Model) []Difference {
	var out []Difference
	add := func(field string, s, d any) {
		if a, b := fmt.Sprint(s), fmt.Sprint(d); a != b {
			out = append(out, Difference{field, a, b})
		}
	}
	add("model.name", source.Name, destination.Name)
	add("model.layers", source.Layers, destination.Layers)
	all := Identity{}
	for n := range source.Identity {
		all[n] = ""
	}
	for n := range destination.Identity {
		all[n] = ""
	}
	value := func(id Identity, n string) string {
		if v, ok := id[n]; ok {
			return v
		}
		return "(not declared)"
	}
	for _, n := range all.Names() {
		add("model.identity."+n, value(source.Identity, n), value(destination.Identity, n))
	}
	add("model.groups", len(source.Groups), len(destination.Groups))
	for gi := range min(len(source.Groups), len(destination.Groups)) {
		s, d := source.Groups[gi], destination.Groups[gi]
		group := fmt.Sprintf("model.groups[%d].", gi)
		add(group+"name", s.Name, d.Name)
		if source.Layers == destination.Layers {
			add(group+"layers", Ranges(s.Layers), Ranges(d.Layers))
		}
		// Where there is one group, its components are the model's.
		at := "model."
		if len(source.Groups) > 1 || len(destination.Groups) > 1 {
			at = group
		}
		add(at+"components", len(s.Components), len(d.Components))
		for ci := range min(len(s.Components), len(d.Components)) {
			a, b := s.Components[ci], d.Components[ci]
			at := fmt.Sprintf("%scomponents.%s.", at, a.Name)
			add(at+"name", a.Name, b.Name)
			add(at+"heads", a.Heads, b.Heads)
			add(at+"dim", a.Dim, b.Dim)
			add(at+"dtype", a.DType, b.DType)
		}
	}
	return out
}
