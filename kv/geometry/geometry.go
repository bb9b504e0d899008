// Package geometry says what a KV cache is: its groups, components, axes and
// element types, and the identity of the model that filled it.
//
// It owns no memory, knows no byte offsets (package layout) and no ranks
// (package shard).
package geometry

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sort"
	"strconv"
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
	MaxEntry      = 1 << 16 // tokens an entry
	MaxWindow     = 1 << 30 // tokens
)

// Component is one kind of value that a layer keeps: k, v, an MLA latent,
// scales, a part of a convolution's state.
//
// Its elements are rows of Dim elements: one row for each (entry, head), an
// entry being one token, or Entry tokens, or in a group of states the one state
// of a slot, whose heads are then called channels.
type Component struct {
	Name  string
	Heads int // kv heads, or channels of a state, in the model; 0: the component has none (MLA latent) and every TP rank holds it whole
	Dim   int // elements per (entry, head)
	DType DType
	// Unit is how many neighbouring heads a shard never parts (the channels of
	// one head or group of a state); 0 stands for 1, and 1 is not written.
	Unit int
	// Entry is how many tokens share one entry; 0 stands for 1, and 1 is not
	// written. An entry of a component that scales others travels with the
	// first of its tokens; any other (a compressed cache) is complete with the
	// last of them and travels then.
	Entry int
	// Scales names the component of the group whose rows this one scales, or
	// is empty. A scale comes from the rank that its rows come from.
	Scales string
}

// HeadCount is Heads, or 1 for a component without heads: the number of rows
// an entry has in it.
func (c Component) HeadCount() int { return max(c.Heads, 1) }

// UnitHeads is the number of heads that a shard never parts, at least 1.
func (c Component) UnitHeads() int { return max(c.Unit, 1) }

// EntryTokens is the number of tokens that share an entry, at least 1.
func (c Component) EntryTokens() int { return max(c.Entry, 1) }

// RowBits is the size of one (entry, head) row in bits.
func (c Component) RowBits() int64 { return int64(c.Dim) * c.DType.Bits() }

// Entries returns the range of entries that a transfer of tokens [from, to)
// moves; empty (from == to) where it moves none. A compressed entry moves in
// the transfer of its last token, a scale in the transfer of its first.
//
// Preconditions: 0 <= from <= to.
func (c Component) Entries(from, to int64) (int64, int64) {
	e := int64(c.EntryTokens())
	if c.Scales != "" {
		return (from + e - 1) / e, (to + e - 1) / e
	}
	return from / e, to / e
}

// Share is a layer that keeps no cache of its own and reads another's.
type Share struct{ Layer, Owner int }

// Group is a set of layers that share components, block size and block table.
type Group struct {
	Name       string // unique in the model; "" in a model of one group
	Layers     []int  // the model's layer numbers, ascending
	Components []Component
	// State: the group keeps one state a request instead of one entry a token.
	// Its blocks are slots of one place each, and a state is valid at one
	// token count only.
	State bool
	// Window is how many tokens a token of the layers sees, itself counted; 0
	// is all before it.
	Window int
	// Optional: an engine may lack the group (draft and multi-token-prediction
	// layers). Groups are matched by name.
	Optional bool
	// Shared are the layers that read the cache of one of Layers, ascending.
	Shared []Share
}

// Class is the components of a group that are dealt to ranks and tokens alike.
type Class struct {
	Components         uint64 // bit i: component i of the group
	Heads, Unit, Entry int    // as in Component; Unit and Entry at least 1
	Scales             bool   // they scale others
}

// Classes divides the group's components, in the order of their first ones.
func (g Group) Classes() []Class {
	var out []Class
next:
	for i, c := range g.Components {
		of := Class{1 << i, c.Heads, c.UnitHeads(), c.EntryTokens(), c.Scales != "" && c.EntryTokens() > 1}
		for k := range out {
			if o := out[k]; o.Heads == of.Heads && o.Unit == of.Unit && o.Entry == of.Entry && o.Scales == of.Scales {
				out[k].Components |= of.Components
				continue next
			}
		}
		out = append(out, of)
	}
	return out
}

// Model says what a cache is, independent of who holds it and where it lies.
type Model struct {
	Name   string
	Layers int // of the whole model; groups name a subset each
	// Left is how many of Layers belong to optional groups that this
	// description leaves out, as that of a pair does with what one side lacks.
	Left     int
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
	if m.Left < 0 || m.Left >= m.Layers {
		return bad("left", m.Left, "want 0 to %d", m.Layers-1)
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
		if g.Window < 0 || g.Window > MaxWindow || g.Window > 0 && g.State {
			return bad(at+".window", g.Window, "want 0 (all) to %d tokens, and none in a group of states", MaxWindow)
		}
		for i, s := range g.Shared {
			at := fmt.Sprintf("%s.shared[%d]", at, i)
			switch {
			case s.Layer < 0 || s.Layer >= m.Layers || i > 0 && s.Layer <= g.Shared[i-1].Layer:
				return bad(at, s.Layer, "layer numbers ascend within 0 to %d", m.Layers-1)
			case slices.Contains(g.Layers, s.Layer):
				return bad(at, s.Layer, "the layer has a cache of its own in the group")
			case !slices.Contains(g.Layers, s.Owner):
				return bad(at, s.Owner, "layer %d shares the cache of a layer that has none in the group", s.Layer)
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
			case c.Unit == 1 || c.Unit < 0 || c.Unit > 1 && (c.Heads == 0 || c.Heads%c.Unit != 0):
				return bad(at+".unit", c.Unit, "want a divisor of %d heads above 1, or nothing for 1", c.Heads)
			case c.Entry == 1 || c.Entry < 0 || c.Entry > MaxEntry:
				return bad(at+".tokens_per_entry", c.Entry, "want 2 to %d, or nothing for 1", MaxEntry)
			case c.Entry > 1 && g.State:
				return bad(at+".tokens_per_entry", c.Entry, "a state has no tokens")
			}
			comps[c.Name] = true
		}
		for ci, c := range g.Components {
			if c.Scales == "" {
				continue
			}
			at := fmt.Sprintf("%s.components[%d].scales", at, ci)
			of := g.Component(c.Scales)
			switch {
			case of < 0 || of == ci:
				return bad(at, fmt.Sprintf("%q", c.Scales), "names no other component of the group")
			case g.Components[of].Scales != "":
				return bad(at, fmt.Sprintf("%q", c.Scales), "is a scale itself")
			case g.Components[of].EntryTokens() > 1:
				return bad(at, fmt.Sprintf("%q", c.Scales), "has entries of several tokens: their scales are part of the entry")
			case c.Heads != 0 && c.Heads != g.Components[of].Heads:
				return bad(at, fmt.Sprintf("%q", c.Scales), "has %d heads, the scale %d: want as many or none", g.Components[of].Heads, c.Heads)
			case c.Heads != 0 && c.UnitHeads() != g.Components[of].UnitHeads():
				return bad(at, fmt.Sprintf("%q", c.Scales), "is dealt in units of %d heads, the scale in units of %d: ranks would hold rows without their scales", g.Components[of].UnitHeads(), c.UnitHeads())
			}
		}
	}
	return nil
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
	fmt.Fprintf(&b, "model %q layers %d", m.Name, m.Layers)
	if m.Left > 0 {
		fmt.Fprintf(&b, " left %d", m.Left)
	}
	b.WriteByte('\n')
	for _, n := range m.Identity.Names() {
		fmt.Fprintf(&b, "identity %s %q\n", n, m.Identity[n])
	}
	for _, g := range m.Groups {
		g.text(&b)
	}
	return b.String()
}

func (g Group) text(b *strings.Builder) {
	fmt.Fprintf(b, "group %q layers %s", g.Name, Ranges(g.Layers))
	if g.State {
		b.WriteString(" state")
	}
	if g.Window > 0 {
		fmt.Fprintf(b, " window %d", g.Window)
	}
	if g.Optional {
		b.WriteString(" optional")
	}
	if len(g.Shared) > 0 {
		b.WriteString(" shared " + sharesText(g.Shared))
	}
	b.WriteByte('\n')
	for _, c := range g.Components {
		b.WriteString(c.Text() + "\n")
	}
}

// Text is the canonical form of the component, one line without its end.
func (c Component) Text() string {
	b := strconv.AppendQuote([]byte("component "), c.Name)
	b = strconv.AppendInt(append(b, " heads "...), int64(c.Heads), 10)
	b = strconv.AppendInt(append(b, " dim "...), int64(c.Dim), 10)
	b = append(append(b, " dtype "...), c.DType.String()...)
	if c.Unit > 1 {
		b = strconv.AppendInt(append(b, " unit "...), int64(c.Unit), 10)
	}
	if c.Entry > 1 {
		b = strconv.AppendInt(append(b, " entry "...), int64(c.Entry), 10)
	}
	if c.Scales != "" {
		b = strconv.AppendQuote(append(b, " scales "...), c.Scales)
	}
	return string(b)
}

func sharesText(shares []Share) string {
	if len(shares) == 0 {
		return "-"
	}
	var t []string
	for _, s := range shares {
		t = append(t, fmt.Sprintf("%d:%d", s.Layer, s.Owner))
	}
	return strings.Join(t, ",")
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
	var b []byte
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n[i]), 10)
		if i < j {
			b = strconv.AppendInt(append(b, '-'), int64(n[j]), 10)
		}
		i = j + 1
	}
	return string(b)
}
