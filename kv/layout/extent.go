package layout

import (
	"fmt"
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
		return int64(e.Tokens)
	case geometry.Head:
		return int64(max(e.Heads, 1))
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
	if e.Heads < 0 || e.Heads > geometry.MaxHeads {
		return bad("heads", e.Heads, "want 0 (no heads) to %d", geometry.MaxHeads)
	}
	if n := len(e.Components); n < 1 || n > geometry.MaxComponents {
		return bad("components", n, "want 1 to %d", geometry.MaxComponents)
	}
	for i, c := range e.Components {
		at := fmt.Sprintf("components[%d]", i)
		switch {
		case !validName(c.Name):
			return bad(at+".name", fmt.Sprintf("%q", clip(c.Name)), "want 1 to %d bytes of text", geometry.MaxName)
		case c.Heads < 0 || c.Heads > geometry.MaxHeads:
			return bad(at+".heads", c.Heads, "want 0 (no heads) to %d", geometry.MaxHeads)
		case e.Heads == 0 && c.Heads > 0:
			return bad("heads", 0, "component %s has %d heads, the rank holds at least one", c.Name, c.Heads)
		case e.Heads > c.Heads:
			return bad("heads", e.Heads, "component %s has %d in the whole model", c.Name, c.Heads)
		case c.Dim < 1 || c.Dim > geometry.MaxDim:
			return bad(at+".dim", c.Dim, "want 1 to %d", geometry.MaxDim)
		case !c.DType.Valid():
			return bad(at+".dtype", uint8(c.DType), "no such dtype")
		case c.RowBits()%8 != 0:
			return bad(at+".dim", c.Dim, "a row of %d %s elements is %d bits, not whole bytes", c.Dim, c.DType, c.RowBits())
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
