package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// claimed returns the letters whose order a name claims, outermost first; ""
// for a name that is no claim. HND and NHD say nothing but how head and token
// lie to one another; the others name every axis, with C for what a (token,
// head) row holds of all components.
func claimed(name string) string {
	switch name {
	case "HND":
		return "HN"
	case "NHD":
		return "NH"
	case "LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC":
		return name
	}
	return ""
}

// ClaimError is a name that the strides contradict.
type ClaimError struct {
	Claim     string // what the label says
	Actual    string // what the strides say
	Component string
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("layout: the label says %s, the strides of component %s say %s", e.Claim, e.Component, e.Actual)
}

// letters gives, by axis letter, the range of distances at which it moves an
// element. An axis that moves nothing has no entry.
type letters map[byte]span

type span struct{ low, high int64 }

func (ls letters) add(letter byte, distance int64) {
	s, ok := ls[letter]
	if !ok {
		s = span{math.MaxInt64, 0}
	}
	ls[letter] = span{min(s.low, distance), max(s.high, distance)}
}

// order names the letters from the largest distance to the smallest.
func (ls letters) order() string {
	var all []byte
	for l := range ls {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b byte) int { return cmp.Or(cmp.Compare(ls[b].high, ls[a].high), cmp.Compare(a, b)) })
	return string(all)
}

var letterOf = [...]byte{geometry.Layer: 'L', geometry.Block: 'B', geometry.Token: 'N', geometry.Head: 'H', geometry.Dim: 'C'}

// check compares a claim with the letters of one component. A letter that
// moves nothing can stand anywhere, and a component without heads beside others
// that have some (their scales) bears any place of the heads.
func (ls letters) check(name string, e *Extent, c geometry.Component) error {
	claim := claimed(name)
	if claim == "" {
		return bad("name", fmt.Sprintf("%q", clip(name)), "no such claim (known: HND, NHD and the orders LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, BHLNC)")
	}
	if e.State {
		return &ClaimError{name, "a state, which has slots and channels", c.Name}
	}
	headed := func(o geometry.Component) bool { return o.Heads > 0 }
	if strings.Contains(claim, "H") && !slices.ContainsFunc(e.Components, headed) {
		return &ClaimError{name, "no heads", c.Name}
	}
	var present []byte
	for i := range len(claim) {
		if _, ok := ls[claim[i]]; ok {
			present = append(present, claim[i])
		}
	}
	for i := 1; i < len(present); i++ {
		outer, inner := ls[present[i-1]], ls[present[i]]
		if outer.low > inner.high {
			continue
		}
		actual := ls.order()
		if len(claim) == 2 {
			switch h, n := ls['H'], ls['N']; {
			case h.low > n.high:
				actual = "HND"
			case n.low > h.high:
				actual = "NHD"
			default:
				actual = "neither: parts of head and token lie inside one another"
			}
		}
		return &ClaimError{name, actual, c.Name}
	}
	return nil
}

// Claim checks a name against the strides, for each component. HND says that
// head lies outside token, NHD the reverse; LBHNC, LBNHC, LHBNC, BLHNC, BLNHC
// and BHLNC name all axes of a packed cache, outermost first. "" says nothing.
// An axis with one coordinate on the rank contradicts no claim here; Resolve
// also checks it against the order as written.
//
// Errors: *ClaimError; *Error for a name that is none.
func (l *Layout) Claim(name string) error {
	if name == "" {
		return nil
	}
	for ci, c := range l.Extent.Components {
		for li, p := range l.Places[ci] {
			if li > 0 && p.Map == l.Places[ci][li-1].Map {
				continue
			}
			ls := letters{}
			for _, d := range l.Maps[p.Map] {
				if d.Count() > 1 {
					ls.add(letterOf[d.Axis], d.Stride)
				}
			}
			if len(claimed(name)) > 2 {
				for o := range l.Extent.Components {
					q := l.Places[o][li]
					switch {
					case o == ci:
					case q.Region != p.Region:
						return &ClaimError{name, "components in regions of their own", c.Name}
					default:
						ls.add('C', max(q.Offset-p.Offset, p.Offset-q.Offset))
					}
				}
				l.layerSpan(ci, ls)
			}
			if err := ls.check(name, &l.Extent, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// layerSpan adds the distances between the layers that share a region.
func (l *Layout) layerSpan(component int, ls letters) {
	var offsets []int64
	for _, p := range l.Places[component] {
		if p.Region == l.Places[component][0].Region {
			offsets = append(offsets, p.Offset)
		}
	}
	slices.Sort(offsets)
	for i := 1; i < len(offsets); i++ {
		ls.add('L', offsets[i]-offsets[i-1])
	}
}

// claim checks the name against the order as written, where an axis of one
// coordinate has a position too.
func (s Spec) claim(e *Extent, columns []column) error {
	for ci, c := range e.Components {
		ls, ones := letters{}, letters{}
		parts := columns[ci].parts
		for i, p := range parts {
			at, letter := int64(2*(len(parts)-i)), letterOf[p.axis]
			if k := s.kernel(&c); k > 0 && p.axis == geometry.Token && p.item.Mod == 0 && p.item.Div == k {
				continue // which kernel block of a block
			}
			if p.count() > 1 {
				ls.add(letter, at)
			} else {
				ones.add(letter, at)
			}
		}
		for letter, one := range ones {
			if _, ok := ls[letter]; !ok {
				ls[letter] = one
			}
		}
		if s.joined() && len(e.Components) > 1 {
			ls.add('C', int64(2*(len(parts)-columns[ci].outer))+1)
		}
		if err := ls.check(s.Name, e, c); err != nil {
			return err
		}
	}
	return nil
}
