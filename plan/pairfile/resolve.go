package pairfile

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/plan"
)

// Choose answers for a side that offers layouts with can: the index into the
// side's Candidates. It is called at most once a side, the source first, and
// its error is returned as it is.
type Choose func(side string) (int, error)

// Pair computes the layouts of every rank and returns the pair. choose is
// called for the sides that offer their layouts; where a side does, a nil
// choose is an *Error, since there is no default layout.
//
// Errors: *Error; *plan.Mismatch where the sides do not hold the same cache;
// whatever choose returns.
func (f *File) Pair(choose Choose) (*plan.Pair, error) {
	p := &plan.Pair{}
	for _, name := range []string{Source, Destination} {
		s := f.Side(name)
		resolve, field := resolver(s), name+".layout"
		if resolve == nil {
			field = name + ".can"
			if choose == nil {
				return nil, f.locate(field, nil, fmt.Sprintf("engine %q offers layouts and nothing chooses one; there is no default layout", s.Engine), nil)
			}
			i, err := choose(name)
			if err != nil {
				return nil, err
			}
			c := s.Candidates()
			if i < 0 || i >= len(c) {
				return nil, f.locate(field, i, fmt.Sprintf("engine %q offers %d layouts", s.Engine, len(c)), nil)
			}
			field = fmt.Sprintf("%s[%d]", field, i)
			resolve = c[i].Resolve
		}
		side, err := f.resolve(s, resolve, field)
		if err != nil {
			return nil, err
		}
		if name == Source {
			p.Source = side
		} else {
			p.Destination = side
		}
	}
	var side *plan.Error
	if err := p.Validate(); errors.As(err, &side) {
		field := side.Side
		if side.Field != "" {
			field += "." + side.Field
		}
		return nil, f.locate(field, side.Value, err.Error(), err)
	} else if err != nil {
		return nil, err
	}
	return p, nil
}

// resolver returns what computes the layout that the side gives, nil where it
// gives none. A preset knows more than its order: which element sizes it is
// made for.
func resolver(s *Side) func(layout.Extent) (*layout.Layout, error) {
	if p, ok := preset.Get(s.Preset); ok {
		return p.Resolve
	}
	if s.Layout != nil {
		return s.Layout.Resolve
	}
	return nil
}

// resolve computes one side's layouts. Ranks of equal extents share a value.
func (f *File) resolve(s *Side, compute func(layout.Extent) (*layout.Layout, error), field string) (plan.Side, error) {
	m := f.SideModel(s)
	out := plan.Side{
		Engine: s.Engine, Model: m, Shard: s.Shard,
		Groups: []plan.Pool{{Block: s.Block, Blocks: s.Blocks}},
		Ranks:  make([][]*layout.Layout, s.Shard.Ranks()),
	}
	type key struct{ first, layers, heads int }
	known := map[key]*layout.Layout{}
	for r := range out.Ranks {
		part := s.Shard.Part(m.Groups[0], r)
		k := key{part.Layers[0], len(part.Layers), len(part.Heads)}
		l, ok := known[k]
		if !ok {
			var err error
			l, err = compute(layout.Extent{Layers: part.Layers, Blocks: s.Blocks, Tokens: s.Block, Heads: len(part.Heads), Components: m.Groups[0].Components})
			if err != nil {
				var claim *layout.ClaimError
				if errors.As(err, &claim) {
					return out, f.locate(field+".name", claim.Claim, fmt.Sprintf("the name is a claim, and the order says %s (component %s)", claim.Actual, claim.Component), err)
				}
				var e *layout.Error
				if !errors.As(err, &e) {
					return out, fmt.Errorf("resolve %s: %w", field, err)
				}
				at := field
				if e.Field != "" {
					at += "." + e.Field
				}
				return out, f.locate(at, e.Value, e.Reason, err)
			}
			known[k] = l
		}
		out.Ranks[r] = []*layout.Layout{l}
	}
	return out, nil
}
