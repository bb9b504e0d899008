// Package layout says where the elements of a cache lie: byte (in fact bit)
// strides per axis inside named regions of one rank's memory.
//
// A Layout is always computed, from an order of axes (Spec), from registered
// tensors (FromTensors) or from observation (Infer). A name such as "HND" is a
// claim about it that is checked, never a source of it. There is no default
// layout and no unknown one.
package layout

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Extent is the shape of what one rank holds of one group.
type Extent struct {
	Layers     []int                // model layer numbers in storage order
	Blocks     int                  // blocks in the pool; slots of a state
	Tokens     int                  // tokens a block; 1 for a state
	Heads      []int                // by component: heads (channels) on the rank; 0: it has none
	Components []geometry.Component // in storage order where they share a tensor
	State      bool                 // the group's; block and head are then called slot and channel in orders
}

// Region is one registered span of a rank's memory.
type Region struct {
	Name  string // "pool", "k", "layer41", "layer41.k": layer numbers are the model's
	Bytes int64
}

// Digit is one part of an axis: coordinate x adds ((x mod Mod) / Div) * Stride
// to the offset. Div divides Mod; the digits of an axis tile it exactly: sorted
// by Div, each one's Mod is the next one's Div and the last one's Mod is the
// axis's extent. x is the coordinate on the rank: the block's id, the token in
// its block (the entry, where a component's entries are several tokens), the
// head's place on the rank, the dim; a state's slot counts as Block and its
// channel as Head. An axis of one coordinate has no digit in the layouts that
// this package makes.
type Digit struct {
	Axis   geometry.Axis // Block, Token, Head or Dim
	Mod    int64
	Div    int64
	Stride int64 // bits
}

// Count is the number of values that the digit takes.
func (d Digit) Count() int64 { return d.Mod / d.Div }

// Place says where one component of one layer lies: the element with block b,
// token n, head h and dim d is at bit Offset + the sum of its Digits inside
// region Region. (Layer and component are already part of Region and Offset.)
type Place struct {
	Region int   // index into Layout.Regions
	Offset int64 // bits
	Map    int   // index into Layout.Maps
}

// Layout is where one group of one rank lies. It is a pure value; treat it as
// immutable once made. Places that share a Map index have identical digits.
type Layout struct {
	Extent  Extent
	Regions []Region
	Maps    [][]Digit // sorted by descending stride, ties by axis
	Places  [][]Place // [component][layer index in Extent.Layers]
}

// Bit returns the offset in bits of an element inside its region.
// Preconditions: component and layer are indices into Places, the other
// coordinates lie inside the extent.
func (l *Layout) Bit(component, layer int, block, token, head, dim int64) (region int, bit int64) {
	p := l.Places[component][layer]
	bit = p.Offset
	for _, d := range l.Maps[p.Map] {
		x := dim
		switch d.Axis {
		case geometry.Block:
			x = block
		case geometry.Token:
			x = token
		case geometry.Head:
			x = head
		}
		bit += x % d.Mod / d.Div * d.Stride
	}
	return p.Region, bit
}

// MaxRegionBytes bounds a region, so that bit offsets and their sums stay
// within int64.
const MaxRegionBytes = int64(1) << 46

// Text is the canonical form, digested by Digest.
func (l *Layout) Text() string { return string(l.AppendText(nil)) }

// AppendText appends Text to b. It does without fmt where there is much to
// write: every plan and every proof digests it.
func (l *Layout) AppendText(b []byte) []byte {
	e := l.Extent
	b = fmt.Appendf(b, "layout layers %s blocks %d tokens %d heads %d", geometry.Ranges(e.Layers), e.Blocks, e.Tokens, e.Heads)
	if e.State {
		b = append(b, " state"...)
	}
	b = append(b, '\n')
	for _, c := range e.Components {
		b = append(append(b, c.Text()...), '\n')
	}
	for _, r := range l.Regions {
		b = appendQuoted(append(b, "region "...), r.Name)
		b = append(strconv.AppendInt(append(b, " bytes "...), r.Bytes, 10), '\n')
	}
	for _, m := range l.Maps {
		b = append(b, "map"...)
		for _, d := range m {
			b = append(append(b, ' '), d.text()...)
		}
		b = append(b, '\n')
	}
	for _, places := range l.Places {
		b = append(b, "places"...)
		for _, p := range places {
			b = strconv.AppendInt(append(b, ' '), int64(p.Region), 10)
			b = strconv.AppendInt(append(b, '+'), p.Offset, 10)
			b = strconv.AppendInt(append(b, '@'), int64(p.Map), 10)
		}
		b = append(b, '\n')
	}
	return b
}

// appendQuoted is strconv.AppendQuote, which takes its time, with a short way
// for the names that this package gives.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' {
			return strconv.AppendQuote(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Digest is the SHA-256 of Text.
func (l *Layout) Digest() geometry.Digest { return sha256.Sum256([]byte(l.Text())) }

// Equal reports whether two layouts put every element at the same place of
// regions with the same names and sizes.
func (l *Layout) Equal(o *Layout) bool { return slices.Equal([]byte(l.Text()), []byte(o.Text())) }
