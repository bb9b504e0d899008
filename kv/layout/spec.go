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
	if it.Axis, ok = geometry.ParseAxis(name); !ok {
		return refuse("want layer, block, token, head or dim (slot and channel in a state), each with an optional %%M and /D")
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
// last entry only) a branch that gives some components an order of their own.
// Exactly one of the three is set.
//
// A key of a branch names one component, or several separated by commas, in the
// model's order ("k,k_scale"); the order below it may then say where these
// come together with "component", and may branch again.
type Entry struct {
	Item      Item
	Component bool
	Branch    map[string][]Entry
}

// Items makes the entries of a list of items.
func Items(items ...Item) []Entry {
	out := make([]Entry, len(items))
	for i, it := range items {
		out[i] = Entry{Item: it}
	}
	return out
}

// Spec describes a layout by the order of its axes, outermost first, as pair
// files and presets do.
//
// Component in an order concatenates the components there, in the model's order;
// those that a branch below has put together stand where the first of them
// does. Left out, each component has regions of its own. Likewise layer. Where an axis is divided
// into several items they must tile it exactly. Nothing is aligned or padded
// but by Strides. An order may take a row of sub-byte elements apart; a plan
// that would have to cut a byte is refused where it is built.
type Spec struct {
	Name    string           // claim ("HND"), checked; "" claims nothing (see Layout.Claim)
	Order   []Entry          // outermost first
	Strides map[string]int64 // bytes, by text of an item outside component; overrides the dense stride, in every component
	Bits    []int64          // element sizes for which the order is meant, any where empty: other components are refused
	// Kernel, where not 0, is the number of tokens of a kernel block: a block
	// is then that many tokens several times over, one kernel block behind the
	// other, and the order is that of a kernel block. A stride of "block" is
	// that of a kernel block.
	Kernel int64
}

// Text is the order as pair files write it.
func (s Spec) Text() string { return orderText(s.Order) }

func orderText(order []Entry) string {
	var parts []string
	for _, en := range order {
		switch {
		case en.Component:
			parts = append(parts, "component")
		case en.Branch != nil:
			var b []string
			for _, key := range keys(en.Branch) {
				b = append(b, keyText(key)+": "+orderText(en.Branch[key]))
			}
			parts = append(parts, "{"+strings.Join(b, ", ")+"}")
		default:
			parts = append(parts, en.Item.String())
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// keyText is a branch's key as YAML reads it back: in a flow mapping a comma
// would end it.
func keyText(key string) string {
	if strings.Contains(key, ",") {
		return `"` + key + `"`
	}
	return key
}

func keys(branch map[string][]Entry) []string {
	out := make([]string, 0, len(branch))
	for k := range branch {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// below returns the order that a branch gives a component; false where it gives
// none.
func below(branch map[string][]Entry, component string) ([]Entry, bool) {
	for key, order := range branch {
		if slices.Contains(strings.Split(key, ","), component) {
			return order, true
		}
	}
	return nil, false
}

// joined reports whether the components share regions.
func (s Spec) joined() bool {
	return slices.ContainsFunc(s.Order, func(en Entry) bool { return en.Component })
}

// kernel is the number of entries of a component in a kernel block, 0 where
// there are none.
func (s Spec) kernel(c *geometry.Component) int64 { return s.Kernel / int64(c.EntryTokens()) }

// lower returns what an item stands for in one component, outermost first: with
// kernel blocks, a block is those of its tokens.
func (s Spec) lower(it Item, c *geometry.Component) []Item {
	k := s.kernel(c)
	switch {
	case k == 0:
	case it.Axis == geometry.Block:
		return []Item{it, {Axis: geometry.Token, Div: k}}
	case it.Axis == geometry.Token && it.Mod == 0:
		it.Mod = k
	}
	return []Item{it}
}

// items returns the order of one component, outermost first, and how many of
// the items stand outside the place where components part ways: before
// "component", or before the branch where component is left out.
func (s Spec) items(c *geometry.Component) (items []Item, outer int) {
	outer = -1
	var walk func(order []Entry)
	walk = func(order []Entry) {
		for _, en := range order {
			switch {
			case en.Component:
				if outer < 0 {
					outer = len(items)
				}
			case en.Branch != nil:
				if outer < 0 {
					outer = len(items)
				}
				order, _ := below(en.Branch, c.Name)
				walk(order)
			default:
				items = append(items, s.lower(en.Item, c)...)
			}
		}
	}
	walk(s.Order)
	if outer < 0 {
		outer = len(items)
	}
	return items, outer
}

// validate checks what an order can show before the sizes of a rank are filled
// in: that every component has every axis it needs and nothing stands twice.
//
// Errors: *Error naming the field and the item.
func (s Spec) validate(e *Extent) error {
	if len(s.Order) == 0 {
		return bad("order", "empty", "a layout needs an order; there is no default")
	}
	if s.Kernel < 0 || s.Kernel > 0 && (e.State || int64(e.Tokens)%s.Kernel != 0) {
		return bad("kernel_block", s.Kernel, "does not divide a block of %d tokens", e.Tokens)
	}
	names := make([]string, len(e.Components))
	for i, c := range e.Components {
		names[i] = c.Name
	}
	if err := s.validateOrder(s.Order, names, 0); err != nil {
		return err
	}
	layered := false
	for ci := range e.Components {
		c := &e.Components[ci]
		if len(s.Bits) > 0 && !slices.Contains(s.Bits, c.DType.Bits()) {
			return bad("order", s.Text(), "made for elements of %v bits, component %s has %s", s.Bits, c.Name, c.DType)
		}
		if k := s.kernel(c); s.Kernel > 0 && k*int64(c.EntryTokens()) != s.Kernel {
			return bad("kernel_block", s.Kernel, "parts an entry of %d tokens of component %s", c.EntryTokens(), c.Name)
		}
		items, _ := s.items(c)
		if err := s.validateItems(e, ci, items); err != nil {
			return err
		}
		has := slices.ContainsFunc(items, func(it Item) bool { return it.Axis == geometry.Layer })
		if ci > 0 && has != layered {
			return bad("order", s.Text(), "layer stands in the order of some components only")
		}
		layered = has
	}
	return s.validateStrides(e)
}

// maxBranches bounds how deep branches nest.
const maxBranches = 4

// validateOrder checks the form of an order that some components follow.
func (s Spec) validateOrder(order []Entry, names []string, depth int) error {
	joined := false
	for i, en := range order {
		switch {
		case en.Component && en.Branch != nil || (en.Component || en.Branch != nil) && en.Item != (Item{}):
			return bad("order", s.Text(), "entry %d is more than one of item, component and branch", i)
		case en.Component:
			if joined {
				return bad("order", s.Text(), "component stands twice")
			}
			joined = true
		case en.Branch != nil:
			if i != len(order)-1 {
				return bad("order", s.Text(), "only the last entry may differ by component")
			}
			if depth == maxBranches {
				return bad("order", s.Text(), "branches nest more than %d deep", maxBranches)
			}
			seen := map[string]bool{}
			for _, key := range keys(en.Branch) {
				own := strings.Split(key, ",")
				last := -1
				for _, n := range own {
					at := slices.Index(names, n)
					switch {
					case at < 0 && depth > 0:
						return bad("order", s.Text(), "component %q does not belong to this branch", clip(n))
					case at < 0:
						return bad("order", s.Text(), "the model has no component %q", clip(n))
					case seen[n]:
						return bad("order", s.Text(), "the branch names component %q twice", n)
					case at < last:
						return bad("order", s.Text(), "the branch names component %q out of the model's order", n)
					}
					seen[n], last = true, at
				}
				if err := s.validateOrder(en.Branch[key], own, depth+1); err != nil {
					return err
				}
			}
			for _, n := range names {
				if !seen[n] {
					return bad("order", s.Text(), "the branch has no items for component %q", n)
				}
			}
		}
	}
	return nil
}

// on returns the axis that an item's axis stands for, in a group of states or
// of tokens.
func (e *Extent) on(axis geometry.Axis) (geometry.Axis, bool) {
	switch {
	case axis == geometry.Layer || axis == geometry.Dim:
		return axis, true
	case axis == geometry.Slot:
		return geometry.Block, e.State
	case axis == geometry.Channel:
		return geometry.Head, e.State
	}
	return axis, !e.State && axis >= geometry.Block && axis <= geometry.Head
}

// Name is what an axis of the extent is called in orders and messages.
func (e *Extent) Name(axis geometry.Axis) string {
	switch {
	case e.State && axis == geometry.Block:
		axis = geometry.Slot
	case e.State && axis == geometry.Head:
		axis = geometry.Channel
	}
	return axis.String()
}

func (s Spec) validateItems(e *Extent, ci int, items []Item) error {
	c := &e.Components[ci]
	if len(items) > MaxDigits {
		return bad("order", len(items), "want at most %d items", MaxDigits)
	}
	var has [geometry.Dim + 1]bool
	for i, it := range items {
		axis, ok := e.on(it.Axis)
		switch {
		case !ok && e.State:
			return bad("order", it, "want layer, slot, channel or dim in a state")
		case !ok:
			return bad("order", it, "want layer, block, token, head or dim")
		case it.Mod < 0 || it.Div < 0 || it.Mod > MaxBlocks || it.Div > MaxBlocks || it.Mod > 0 && it.Mod%max(it.Div, 1) != 0:
			return bad("order", it, "want a divisor that divides the modulus")
		case axis == geometry.Head && c.Heads == 0:
			return bad("order", it, "component %s has no heads", c.Name)
		case axis == geometry.Block && s.Kernel > 0 && it != (Item{Axis: geometry.Block}):
			return bad("order", it, "a block of kernel blocks is not taken apart")
		case slices.Contains(items[:i], it):
			return bad("order", it, "stands twice")
		}
		has[axis] = true
	}
	for _, axis := range []geometry.Axis{geometry.Block, geometry.Token, geometry.Head, geometry.Dim} {
		switch {
		case has[axis]:
		case axis == geometry.Head && c.Heads == 0:
		case axis == geometry.Token && (e.State || c.Entry > 1 && e.size(axis, ci) == 1):
		default:
			return bad("order", s.Text(), "%s is missing for component %s: only layer and component may be left out", e.Name(axis), c.Name)
		}
	}
	return nil
}

// stridden is the number of leading entries of the order whose items may have a
// stride of their own.
func (s Spec) stridden() int {
	for _, f := range []func(Entry) bool{func(en Entry) bool { return en.Component }, func(en Entry) bool { return en.Branch != nil }} {
		if i := slices.IndexFunc(s.Order, f); i >= 0 {
			return i
		}
	}
	return len(s.Order)
}

func (s Spec) validateStrides(e *Extent) error {
	names := make([]string, 0, len(s.Strides))
	for k := range s.Strides {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if !slices.ContainsFunc(s.Order[:s.stridden()], func(en Entry) bool { return en.Item.String() == k }) {
			return bad("strides", clip(k), "names no item outside component in %s", s.Text())
		}
		if v := s.Strides[k]; v < 1 || v > MaxRegionBytes {
			return bad("strides."+k, v, "want 1 to %d bytes", MaxRegionBytes)
		}
	}
	return nil
}
