package layout

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Limits on what one layout can say. They bound its text and JSON forms and
// the time that Validate takes.
const (
	MaxBlocks = 1 << 28
	MaxTokens = 1 << 20 // a block
	MaxPlaces = 1 << 16 // layers times components
	MaxMaps   = 1 << 8
	MaxDigits = 32 // a map, and items an order
)

// Error is a layout that cannot be. Field is the dotted place below "layout".
type Error struct {
	Field  string
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("layout: %s is %v: %s", e.Field, e.Value, e.Reason)
}

func bad(field string, value any, why string, args ...any) error {
	return &Error{Field: field, Value: value, Reason: fmt.Sprintf(why, args...)}
}

// size is the number of coordinates that component c has on an axis.
func (e *Extent) size(axis geometry.Axis, c int) int64 {
	switch axis {
	case geometry.Layer:
		return int64(len(e.Layers))
	case geometry.Block:
		return int64(e.Blocks)
	case geometry.Token:
		return int64(e.Tokens / e.Components[c].EntryTokens())
	case geometry.Head:
		return int64(max(e.Heads[c], 1))
	}
	return int64(e.Components[c].Dim)
}

// Validate returns an *Error naming the first field that cannot be true.
func (e *Extent) Validate() error {
	if n := len(e.Layers); n < 1 || n > geometry.MaxLayers {
		return bad("layers", n, "want 1 to %d", geometry.MaxLayers)
	}
	ascending := true
	for i, l := range e.Layers {
		if l < 0 || l >= geometry.MaxLayers {
			return bad(fmt.Sprintf("layers[%d]", i), l, "layer numbers are 0 to %d", geometry.MaxLayers-1)
		}
		ascending = ascending && (i == 0 || l > e.Layers[i-1])
	}
	if !ascending {
		seen := make(map[int]bool, len(e.Layers))
		for i, l := range e.Layers {
			if seen[l] {
				return bad(fmt.Sprintf("layers[%d]", i), l, "named twice")
			}
			seen[l] = true
		}
	}
	if e.Blocks < 1 || e.Blocks > MaxBlocks {
		return bad("blocks", e.Blocks, "want 1 to %d", MaxBlocks)
	}
	if e.Tokens < 1 || e.Tokens > MaxTokens {
		return bad("block", e.Tokens, "want 1 to %d tokens", MaxTokens)
	}
	if e.State && e.Tokens != 1 {
		return bad("block", e.Tokens, "a slot holds one state")
	}
	if n := len(e.Components); n < 1 || n > geometry.MaxComponents {
		return bad("components", n, "want 1 to %d", geometry.MaxComponents)
	}
	if len(e.Heads) != len(e.Components) {
		return bad("heads", len(e.Heads), "want a number for each of %d components", len(e.Components))
	}
	for i, c := range e.Components {
		at := fmt.Sprintf("components[%d]", i)
		heads := e.Heads[i]
		switch {
		case !validName(c.Name):
			return bad(at+".name", fmt.Sprintf("%q", clip(c.Name)), "want 1 to %d bytes of text", geometry.MaxName)
		case c.Heads < 0 || c.Heads > geometry.MaxHeads:
			return bad(at+".heads", c.Heads, "want 0 (no heads) to %d", geometry.MaxHeads)
		case heads < 0 || heads > geometry.MaxHeads:
			return bad(fmt.Sprintf("heads[%d]", i), heads, "want 0 (no heads) to %d", geometry.MaxHeads)
		case heads == 0 && c.Heads > 0:
			return bad(fmt.Sprintf("heads[%d]", i), 0, "component %s has %d heads, the rank holds at least one", c.Name, c.Heads)
		case heads > c.Heads:
			return bad(fmt.Sprintf("heads[%d]", i), heads, "component %s has %d in the whole model", c.Name, c.Heads)
		case c.Unit == 1 || c.Unit < 0 || c.Unit > 1 && (heads == 0 || heads%c.Unit != 0):
			return bad(at+".unit", c.Unit, "want a divisor of the rank's %d heads above 1, or nothing for 1", heads)
		case c.Unit > 1 && c.Heads%c.Unit != 0:
			return bad(at+".unit", c.Unit, "want a divisor of the model's %d heads", c.Heads)
		case c.Entry == 1 || c.Entry < 0 || c.Entry > geometry.MaxEntry || c.Entry > 1 && (e.State || e.Tokens%c.Entry != 0):
			return bad(at+".tokens_per_entry", c.Entry, "want a divisor of the block's %d tokens above 1, or nothing for 1", e.Tokens)
		case c.Dim < 1 || c.Dim > geometry.MaxDim:
			return bad(at+".dim", c.Dim, "want 1 to %d", geometry.MaxDim)
		case !c.DType.Valid():
			return bad(at+".dtype", uint8(c.DType), "no such dtype")
		case c.RowBits()%8 != 0:
			return bad(at+".dim", c.Dim, "a row of %d %s elements is %d bits, not whole bytes", c.Dim, c.DType, c.RowBits())
		}
		if of := slices.IndexFunc(e.Components, func(o geometry.Component) bool { return o.Name == c.Scales }); c.Scales != "" {
			switch {
			case of < 0 || of == i:
				return bad(at+".scales", fmt.Sprintf("%q", clip(c.Scales)), "names no other component")
			case e.Components[of].Scales != "":
				return bad(at+".scales", fmt.Sprintf("%q", clip(c.Scales)), "is a scale itself")
			}
		}
		for _, o := range e.Components[:i] {
			if o.Name == c.Name {
				return bad(at+".name", fmt.Sprintf("%q", c.Name), "named twice")
			}
		}
	}
	if n := len(e.Layers) * len(e.Components); n > MaxPlaces {
		return bad("places", n, "want at most %d layers times components", MaxPlaces)
	}
	return nil
}

// validName reports whether a name is 1 to MaxName bytes of UTF-8.
func validName(s string) bool {
	return s != "" && len(s) <= geometry.MaxName && utf8.ValidString(s)
}

// clip shortens a text from outside to what a message can hold.
func clip(s string) string {
	if len(s) > geometry.MaxName {
		return s[:geometry.MaxName] + "..."
	}
	return s
}
