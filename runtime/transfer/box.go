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

// Shape is what boxes are measured against: the layers of each group. A layer
// may belong to several groups.
type Shape struct {
	rows   []row // by group, then ascending by layer
	first  []int // by group: the index of its first row; then their number
	layers int
}

type row struct{ group, layer int }

// NewShape returns the shape of a model.
// Preconditions: m is valid.
func NewShape(m geometry.Model) Shape {
	s := Shape{layers: m.Layers}
	for g, group := range m.Groups {
		s.first = append(s.first, len(s.rows))
		for _, l := range group.Layers {
			s.rows = append(s.rows, row{g, l})
		}
	}
	s.first = append(s.first, len(s.rows))
	return s
}

// groups is the number of groups.
func (s Shape) groups() int { return len(s.first) - 1 }

// within returns the rows [from, to) of a box.
func (s Shape) within(b Box) (from, to int) {
	from, to = s.first[b.Group], s.first[b.Group+1]
	for from < to && s.rows[from].layer < b.Layers.From {
		from++
	}
	for to > from && s.rows[to-1].layer >= b.Layers.To {
		to--
	}
	return from, to
}

// Layers is the range of all layers.
func (s Shape) Layers() plan.Range { return plan.Range{From: 0, To: s.layers} }

// Boxes returns the layers and tokens of every group as boxes.
func (s Shape) Boxes(layers plan.Range, from, to int64) []Box {
	var out []Box
	for g := range s.groups() {
		lo, hi := s.within(Box{Group: g, Layers: layers})
		if lo < hi {
			out = append(out, Box{g, plan.Range{From: s.rows[lo].layer, To: s.rows[hi-1].layer + 1}, from, to})
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
	if b.Group < 0 || b.Group >= s.groups() {
		return &RangeError{"group", fmt.Sprint(b.Group), fmt.Sprintf("the model's %d groups", s.groups())}
	}
	if err := s.CheckLayers(b.Layers); err != nil {
		return err
	}
	return checkTokens(b.From, b.To, from, to)
}

// CheckLayers returns a *RangeError where r is no range of the model's layers.
func (s Shape) CheckLayers(r plan.Range) error {
	if r.From < 0 || r.From >= r.To || r.To > s.layers {
		return &RangeError{"layers", fmt.Sprintf("[%d, %d)", r.From, r.To), fmt.Sprintf("[0, %d)", s.layers)}
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

// cover is which tokens of which layers are there: by row of the shape,
// ascending and disjoint, not touching. There are several for each transfer in flight, so an
// empty one has no lists, and layers that hold the same share one: a list is
// never changed, only replaced.
type cover struct {
	shape Shape
	spans [][]span // nil: empty
}

func newCover(s Shape) *cover { return &cover{shape: s} }

// at returns the list of a row.
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
		c.spans = make([][]span, len(c.shape.rows))
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
	for l, to := c.shape.within(b); l < to; l++ {
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
	for l, to := c.shape.within(b); l < to; l++ {
		if !c.holds(l, span{b.From, b.To}) {
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
	for l, to := c.shape.within(b); l < to; l++ {
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

// boxes returns the cover as boxes, group by group: neighbouring layers of a
// group with equal tokens share one.
func (c *cover) boxes() []Box {
	var out []Box
	if c.spans == nil {
		return nil
	}
	for g := range c.shape.groups() {
		for i, end := c.shape.first[g], c.shape.first[g+1]; i < end; {
			j := i + 1
			for j < end && slices.Equal(c.spans[i], c.spans[j]) {
				j++
			}
			for _, s := range c.spans[i] {
				out = append(out, Box{g, plan.Range{From: c.shape.rows[i].layer, To: c.shape.rows[j-1].layer + 1}, s.from, s.to})
			}
			i = j
		}
	}
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

// all is the tokens that are valid in every layer of a group.
func all(s Shape, valid []Box, group int) []span {
	c := newCover(s)
	for _, b := range valid {
		c.add(b)
	}
	var out []span
	for l := s.first[group]; l < s.first[group+1]; l++ {
		if l == s.first[group] {
			out = c.at(l)
		} else {
			out = meet(out, c.at(l))
		}
	}
	return out
}

func within(spans []span, from, to int64) bool {
	return slices.ContainsFunc(spans, func(have span) bool { return have.from <= from && to <= have.to })
}

// Holds reports whether tokens [from, to) are valid in every layer of a group.
func Holds(s Shape, valid []Box, group int, from, to int64) bool {
	return within(all(s, valid, group), from, to)
}

// ValidBlocks returns the entries of a group's block table, among those from
// first on, all of whose tokens within [from, to) are valid in every layer of
// the group, for a pool of block tokens a block dealt over size ranks with the
// given interleave. Entries without a token of the range are left out.
func ValidBlocks(s Shape, valid []Box, group int, first, entries int, block, size, interleave int64, from, to int64) []int {
	have := all(s, valid, group)
	var out []int
	for e := first; e < first+entries; e++ {
		lo, hi := EntryTokens(e, block, size, interleave)
		lo, hi = max(lo, from), min(hi, to)
		if lo < hi && within(have, lo, hi) {
			out = append(out, e)
		}
	}
	return out
}

// clone returns a copy, which costs one slice: lists are shared.
func (c *cover) clone() *cover {
	return &cover{c.shape, slices.Clone(c.spans)}
}
