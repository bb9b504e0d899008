package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// Box is a part of a request: the layers of one group and canonical tokens
// [From, To). Ready marks, progress and reports of what landed are boxes, so
// that layers and chunks both flow before the end.
type Box struct {
	Group  int
	Layers plan.Range // the model's layer numbers; those outside the group are ignored
	From   int64
	To     int64
}

// boxForm is a box as it travels: {"group":0,"layers":[0,80],"from":0,"to":16}.
type boxForm struct {
	Group  int    `json:"group"`
	Layers [2]int `json:"layers"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// MarshalJSON writes the box with its layers as a pair.
func (b Box) MarshalJSON() ([]byte, error) {
	return json.Marshal(boxForm{b.Group, [2]int{b.Layers.From, b.Layers.To}, b.From, b.To})
}

// UnmarshalJSON reads it, strictly.
func (b *Box) UnmarshalJSON(text []byte) error {
	var f boxForm
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return err
	}
	*b = Box{f.Group, plan.Range{From: f.Layers[0], To: f.Layers[1]}, f.From, f.To}
	return nil
}

func (b Box) String() string {
	return fmt.Sprintf("group %d layers %d-%d tokens %d-%d", b.Group, b.Layers.From, b.Layers.To-1, b.From, b.To-1)
}

// Shape is what boxes are measured against: the group of each layer of the
// model.
type Shape struct {
	groups []int // by layer; -1: a layer of no group
	count  int
}

// NewShape returns the shape of a model.
// Preconditions: m is valid.
func NewShape(m geometry.Model) Shape {
	s := Shape{groups: make([]int, m.Layers), count: len(m.Groups)}
	for l := range s.groups {
		s.groups[l] = -1
	}
	for g, group := range m.Groups {
		for _, l := range group.Layers {
			s.groups[l] = g
		}
	}
	return s
}

// Layers is the range of all layers.
func (s Shape) Layers() plan.Range { return plan.Range{From: 0, To: len(s.groups)} }

// Boxes returns the layers and tokens of every group as boxes.
func (s Shape) Boxes(layers plan.Range, from, to int64) []Box {
	var out []Box
	for g := range s.count {
		lo, hi := -1, -1
		for l := layers.From; l < layers.To; l++ {
			if s.groups[l] == g {
				if lo < 0 {
					lo = l
				}
				hi = l + 1
			}
		}
		if lo >= 0 {
			out = append(out, Box{g, plan.Range{From: lo, To: hi}, from, to})
		}
	}
	return out
}

// RangeError is a box, layer range or token range outside what there is.
type RangeError struct {
	What       string // "group", "layers", "tokens"
	Have, Want string
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("transfer: %s %s lie outside %s", e.What, e.Have, e.Want)
}

// Check returns a *RangeError where a box lies outside the shape or outside
// tokens [from, to).
func (s Shape) Check(b Box, from, to int64) error {
	if b.Group < 0 || b.Group >= s.count {
		return &RangeError{"group", fmt.Sprint(b.Group), fmt.Sprintf("the model's %d groups", s.count)}
	}
	if err := s.CheckLayers(b.Layers); err != nil {
		return err
	}
	return checkTokens(b.From, b.To, from, to)
}

// CheckLayers returns a *RangeError where r is no range of the model's layers.
func (s Shape) CheckLayers(r plan.Range) error {
	if r.From < 0 || r.From >= r.To || r.To > len(s.groups) {
		return &RangeError{"layers", fmt.Sprintf("[%d, %d)", r.From, r.To), fmt.Sprintf("[0, %d)", len(s.groups))}
	}
	return nil
}

func checkTokens(f, t, from, to int64) error {
	if f < from || f >= t || t > to {
		return &RangeError{"tokens", fmt.Sprintf("[%d, %d)", f, t), fmt.Sprintf("[%d, %d)", from, to)}
	}
	return nil
}

type span struct{ from, to int64 }

// cover is which tokens of which layers are there: by layer, ascending and
// disjoint, not touching. There are several for each transfer in flight, so an
// empty one has no lists, and layers that hold the same share one: a list is
// never changed, only replaced.
type cover struct {
	shape Shape
	spans [][]span // nil: empty
}

func newCover(s Shape) *cover { return &cover{shape: s} }

// at returns the list of a layer.
func (c *cover) at(l int) []span {
	if c.spans == nil {
		return nil
	}
	return c.spans[l]
}

func (c *cover) set(l int, list []span) {
	if c.spans == nil {
		if len(list) == 0 {
			return
		}
		c.spans = make([][]span, len(c.shape.groups))
	}
	c.spans[l] = list
}

// sameList reports whether two lists are one.
func sameList(a, b []span) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// add unites the box with the cover. It reports whether the cover grew.
func (c *cover) add(b Box) bool {
	grew := false
	var old, new []span // of the layer before: the next one often shares its list
	first := true
	for l := b.Layers.From; l < b.Layers.To; l++ {
		if c.shape.groups[l] != b.Group {
			continue
		}
		if list := c.at(l); first || !sameList(list, old) {
			old, new = list, insert(list, span{b.From, b.To})
			first = false
		}
		grew = grew || !sameList(old, new)
		c.set(l, new)
	}
	return grew
}

// insert returns the union of a list with a span: the list itself where that
// is all the same.
func insert(list []span, s span) []span {
	// The spans that s overlaps or touches are list[i:j].
	i := 0
	for i < len(list) && list[i].to < s.from {
		i++
	}
	j := i
	for j < len(list) && list[j].from <= s.to {
		j++
	}
	if j == i+1 && list[i].from <= s.from && list[i].to >= s.to {
		return list
	}
	if j > i {
		s = span{min(s.from, list[i].from), max(s.to, list[j-1].to)}
	}
	out := make([]span, 0, len(list)-(j-i)+1)
	out = append(out, list[:i]...)
	out = append(out, s)
	return append(out, list[j:]...)
}

// most is the largest number of spans of a layer.
func (c *cover) most() int {
	n := 0
	for _, s := range c.spans {
		n = max(n, len(s))
	}
	return n
}

func (c *cover) contains(b Box) bool {
	for l := b.Layers.From; l < b.Layers.To; l++ {
		if c.shape.groups[l] == b.Group && !c.holds(l, span{b.From, b.To}) {
			return false
		}
	}
	return true
}

func (c *cover) holds(l int, s span) bool {
	for _, have := range c.at(l) {
		if have.from <= s.from && s.to <= have.to {
			return true
		}
	}
	return false
}

func (c *cover) overlaps(b Box) bool {
	for l := b.Layers.From; l < b.Layers.To; l++ {
		if c.shape.groups[l] != b.Group {
			continue
		}
		for _, have := range c.at(l) {
			if have.from < b.To && b.From < have.to {
				return true
			}
		}
	}
	return false
}

func (c *cover) containsAll(bs []Box) bool {
	for _, b := range bs {
		if !c.contains(b) {
			return false
		}
	}
	return true
}

// intersect returns what both hold.
func (c *cover) intersect(o *cover) *cover {
	out := newCover(c.shape)
	for l := range c.spans {
		if a, b := c.at(l), o.at(l); l > 0 && sameList(a, c.at(l-1)) && sameList(b, o.at(l-1)) {
			out.set(l, out.at(l-1))
		} else {
			out.set(l, meet(a, b))
		}
	}
	return out
}

func meet(a, b []span) []span {
	var out []span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if f, t := max(a[i].from, b[j].from), min(a[i].to, b[j].to); f < t {
			out = append(out, span{f, t})
		}
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

// minus returns what c holds and o does not.
func (c *cover) minus(o *cover) *cover {
	out := newCover(c.shape)
	for l, list := range c.spans {
		var rest []span
		for _, s := range list {
			at := s.from
			for _, cut := range o.at(l) {
				if cut.to <= at || cut.from >= s.to {
					continue
				}
				if cut.from > at {
					rest = append(rest, span{at, cut.from})
				}
				at = max(at, cut.to)
			}
			if at < s.to {
				rest = append(rest, span{at, s.to})
			}
		}
		out.set(l, rest)
	}
	return out
}

// boxes returns the cover as boxes, group by group: neighbouring layers with
// equal tokens share one.
func (c *cover) boxes() []Box {
	var out []Box
	for g := range c.shape.count {
		out = append(out, c.merge(func(l int) bool { return c.shape.groups[l] == g }, g)...)
	}
	return out
}

// strips returns the cover as layer and token ranges over all groups, for
// operations, which take layers of the model; Group is meaningless.
func (c *cover) strips() []Box {
	return c.merge(func(l int) bool { return c.shape.groups[l] >= 0 }, 0)
}

func (c *cover) merge(in func(layer int) bool, group int) []Box {
	var out []Box
	last, lo := -1, -1 // layers [lo, last] share last's spans
	flush := func() {
		if lo >= 0 {
			for _, s := range c.spans[last] {
				out = append(out, Box{group, plan.Range{From: lo, To: last + 1}, s.from, s.to})
			}
		}
	}
	for l := range c.spans {
		if !in(l) {
			continue
		}
		if lo < 0 || !slices.Equal(c.spans[l], c.spans[last]) {
			flush()
			lo = l
		}
		last = l
	}
	flush()
	return out
}

// EntryTokens bounds the canonical tokens [from, to) that a table's entry
// holds over all phases of a pool with block tokens a block, dealt over size
// ranks with the given interleave. Where an interleave run straddles two
// blocks the bounds are wide, so that a block is never called free or valid
// too early.
func EntryTokens(entry int, block, size, interleave int64) (from, to int64) {
	e := int64(entry)
	return e * block / interleave * interleave * size, ((e+1)*block + interleave - 1) / interleave * interleave * size
}

// ValidBlocks returns the places in a group's block table all of whose tokens
// within [from, to) are valid in every layer of the group, for a pool of
// block tokens a block dealt over size ranks with the given interleave.
// Places without a token of the range are left out.
func ValidBlocks(s Shape, valid []Box, group int, entries int, block, size, interleave int64, from, to int64) []int {
	c := newCover(s)
	for _, b := range valid {
		c.add(b)
	}
	var all []span
	first := true
	for l, g := range s.groups {
		if g != group {
			continue
		}
		if first {
			all, first = c.at(l), false
		} else {
			all = meet(all, c.at(l))
		}
	}
	var out []int
	for e := range entries {
		lo, hi := EntryTokens(e, block, size, interleave)
		lo, hi = max(lo, from), min(hi, to)
		if lo >= hi {
			continue
		}
		for _, have := range all {
			if have.from <= lo && hi <= have.to {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// clone returns a copy, which costs one slice: lists are shared.
func (c *cover) clone() *cover {
	return &cover{c.shape, slices.Clone(c.spans)}
}

func (c *cover) unite(o *cover) *cover {
	out := c.clone()
	for l, list := range o.spans {
		if l > 0 && sameList(list, o.at(l-1)) && sameList(c.at(l), c.at(l-1)) && len(list) > 0 {
			out.set(l, out.at(l-1))
			continue
		}
		mine := out.at(l)
		for _, s := range list {
			mine = insert(mine, s)
		}
		out.set(l, mine)
	}
	return out
}
