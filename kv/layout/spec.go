package layout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Item is one item of an order: digit (x mod Mod) / Div of an axis. Mod 0
// stands for the axis's whole extent, Div 0 for 1. Its text is
// "axis[%M][/D]".
type Item struct {
	Axis geometry.Axis
	Mod  int64
	Div  int64
}

// String is the item's text in pair files.
func (it Item) String() string {
	s := it.Axis.String()
	if it.Mod > 0 {
		s += "%" + strconv.FormatInt(it.Mod, 10)
	}
	if it.Div > 1 {
		s += "/" + strconv.FormatInt(it.Div, 10)
	}
	return s
}

// ParseItem reads an item's text. An item has one text only: "token/1" and
// "token%016" are refused.
//
// Errors: *Error.
func ParseItem(text string) (Item, error) {
	refuse := func(why string, args ...any) (Item, error) {
		return Item{}, bad("order", fmt.Sprintf("%q", clip(text)), why, args...)
	}
	var it Item
	rest, div, hasDiv := strings.Cut(text, "/")
	name, mod, hasMod := strings.Cut(rest, "%")
	var ok bool
	if it.Axis, ok = geometry.ParseAxis(name); !ok || it.Axis > geometry.Dim {
		return refuse("want layer, block, token, head or dim, each with an optional %%M and /D")
	}
	number := func(s string) (int64, bool) {
		n, err := strconv.ParseInt(s, 10, 32)
		return n, err == nil && n >= 1 && strconv.FormatInt(n, 10) == s
	}
	if hasMod {
		if it.Mod, ok = number(mod); !ok {
			return refuse("%q is no modulus", clip(mod))
		}
	}
	if hasDiv {
		if it.Div, ok = number(div); !ok || it.Div == 1 {
			return refuse("%q is no divisor above 1", clip(div))
		}
	}
	if hasMod && hasDiv && it.Mod%it.Div != 0 {
		return refuse("%d does not divide %d", it.Div, it.Mod)
	}
	return it, nil
}

// Entry is one entry of an order: an item, the word "component", or (as the
// last entry only) a branch that gives each component's own items by name.
// Exactly one of the three is set.
type Entry struct {
	Item      Item
	Component bool
	Branch    map[string][]Item
}

// Spec describes a layout by the order of its axes, outermost first, as pair
// files and presets do.
//
// Component in an order concatenates the components there; left out, each
// component has regions of its own. Likewise layer. Where an axis is divided
// into several items they must tile it exactly. Nothing is aligned or padded
// but by Strides. An order may take a row of sub-byte elements apart; a plan
// that would have to cut a byte is refused where it is built.
type Spec struct {
	Name    string           // claim ("HND"), checked; "" claims nothing (see Layout.Claim)
	Order   []Entry          // outermost first
	Strides map[string]int64 // bytes, by text of an item outside component; overrides the dense stride, in every component
	Bits    []int64          // element sizes for which the order is meant, any where empty: other components are refused
}

// Text is the order as pair files write it.
func (s Spec) Text() string {
	var parts []string
	for _, en := range s.Order {
		switch {
		case en.Component:
			parts = append(parts, "component")
		case en.Branch != nil:
			names := make([]string, 0, len(en.Branch))
			for n := range en.Branch {
				names = append(names, n)
			}
			slices.Sort(names)
			var b []string
			for _, n := range names {
				b = append(b, n+": ["+itemsText(en.Branch[n])+"]")
			}
			parts = append(parts, "{"+strings.Join(b, ", ")+"}")
		default:
			parts = append(parts, en.Item.String())
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func itemsText(items []Item) string {
	texts := make([]string, len(items))
	for i, it := range items {
		texts[i] = it.String()
	}
	return strings.Join(texts, ", ")
}

// joined reports whether the components share regions.
func (s Spec) joined() bool {
	return slices.ContainsFunc(s.Order, func(en Entry) bool { return en.Component })
}

// items returns the order of one component, outermost first, and how many of
// the items stand outside the place where components part ways: before
// "component", or before the branch where component is left out.
func (s Spec) items(component string) (items []Item, outer int) {
	outer = -1
	for _, en := range s.Order {
		switch {
		case en.Component:
			outer = len(items)
		case en.Branch != nil:
			if outer < 0 {
				outer = len(items)
			}
			items = append(items, en.Branch[component]...)
		default:
			items = append(items, en.Item)
		}
	}
	if outer < 0 {
		outer = len(items)
	}
	return items, outer
}

// Validate checks what an order can show without the sizes of a rank: that
// every component of the list has every axis it needs and nothing stands
// twice. Resolve checks the rest.
//
// Errors: *Error naming the field and the item.
func (s Spec) Validate(components []geometry.Component) error {
	if len(s.Order) == 0 {
		return bad("order", "empty", "a layout needs an order; there is no default")
	}
	if len(components) == 0 {
		return bad("components", 0, "an order is that of at least one component")
	}
	joined := false
	for i, en := range s.Order {
		switch {
		case en.Component && en.Branch != nil || (en.Component || en.Branch != nil) && en.Item != (Item{}):
			return bad("order", s.Text(), "entry %d is more than one of item, component and branch", i)
		case en.Component:
			if joined {
				return bad("order", s.Text(), "component stands twice")
			}
			joined = true
		case en.Branch != nil:
			if i != len(s.Order)-1 {
				return bad("order", s.Text(), "only the last entry may differ by component")
			}
			for n := range en.Branch {
				if !slices.ContainsFunc(components, func(c geometry.Component) bool { return c.Name == n }) {
					return bad("order", s.Text(), "the model has no component %q", clip(n))
				}
			}
		}
	}
	layered := false
	for ci, c := range components {
		if len(s.Bits) > 0 && !slices.Contains(s.Bits, c.DType.Bits()) {
			return bad("order", s.Text(), "made for elements of %v bits, component %s has %s", s.Bits, c.Name, c.DType)
		}
		if en := s.Order[len(s.Order)-1]; en.Branch != nil {
			if _, ok := en.Branch[c.Name]; !ok {
				return bad("order", s.Text(), "the branch has no items for component %q", c.Name)
			}
		}
		items, _ := s.items(c.Name)
		if err := s.validateItems(c, items); err != nil {
			return err
		}
		has := slices.ContainsFunc(items, func(it Item) bool { return it.Axis == geometry.Layer })
		if ci > 0 && has != layered {
			return bad("order", s.Text(), "layer stands in the order of some components only")
		}
		layered = has
	}
	return s.validateStrides(components)
}

func (s Spec) validateItems(c geometry.Component, items []Item) error {
	if len(items) > MaxDigits {
		return bad("order", len(items), "want at most %d items", MaxDigits)
	}
	var has [geometry.Dim + 1]bool
	for i, it := range items {
		switch {
		case it.Axis < geometry.Layer || it.Axis > geometry.Dim:
			return bad("order", it, "want layer, block, token, head or dim")
		case it.Mod < 0 || it.Div < 0 || it.Mod > MaxBlocks || it.Div > MaxBlocks || it.Mod > 0 && it.Mod%max(it.Div, 1) != 0:
			return bad("order", it, "want a divisor that divides the modulus")
		case it.Axis == geometry.Head && c.Heads == 0:
			return bad("order", it, "component %s has no heads", c.Name)
		case slices.Contains(items[:i], it):
			return bad("order", it, "stands twice")
		}
		has[it.Axis] = true
	}
	for _, axis := range []geometry.Axis{geometry.Block, geometry.Token, geometry.Head, geometry.Dim} {
		if !has[axis] && (axis != geometry.Head || c.Heads > 0) {
			return bad("order", s.Text(), "%s is missing for component %s: only layer and component may be left out", axis, c.Name)
		}
	}
	return nil
}

func (s Spec) validateStrides(components []geometry.Component) error {
	keys := make([]string, 0, len(s.Strides))
	for k := range s.Strides {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	items, outer := s.items(components[0].Name)
	for _, k := range keys {
		if !slices.ContainsFunc(items[:outer], func(it Item) bool { return it.String() == k }) {
			return bad("strides", clip(k), "names no item outside component in %s", s.Text())
		}
		if v := s.Strides[k]; v < 1 || v > MaxRegionBytes {
			return bad("strides."+k, v, "want 1 to %d bytes", MaxRegionBytes)
		}
	}
	return nil
}
