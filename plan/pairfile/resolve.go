package pairfile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/plan"
)

// Choose answers for a group whose layout a side offers with can: the index
// into the group's Candidates. group is the index in File.Model.Groups. It is
// called at most once a (side, group), the source's groups first, and its error
// is returned as it is.
type Choose func(side string, group int) (int, error)

// Pair computes the layouts of every rank and returns the pair of the groups
// that both sides have, and which these are: Common counts a side's groups as
// Side.Present lists them. choose is called for the groups whose layout a side
// offers; where one does, a nil choose is an *Error, since there is no default
// layout.
//
// Errors: *Error; *plan.Mismatch where the sides do not hold the same cache;
// whatever choose returns.
func (f *File) Pair(choose Choose) (*plan.Pair, plan.Common, error) {
	var sides [2]plan.Side
	for i, name := range []string{Source, Destination} {
		var err error
		if sides[i], err = f.side(name, choose); err != nil {
			return nil, plan.Common{}, err
		}
	}
	p, common, err := plan.Join(sides[0], sides[1])
	var side *plan.Error
	if errors.As(err, &side) {
		field := side.Side
		if side.Field != "" {
			field += "." + side.Field
		}
		return nil, plan.Common{}, f.locate(field, side.Value, err.Error(), err)
	} else if err != nil {
		return nil, plan.Common{}, err
	}
	return p, common, nil
}

// bare is the given groups of a side, indices in File.Model.Groups, without
// their layouts.
func (f *File) bare(s *Side, groups []int) plan.Side {
	m := f.SideModel(s)
	if present := s.Present(); len(groups) < len(present) {
		var own []int
		for _, g := range groups {
			own = append(own, slices.Index(present, g))
		}
		m = m.Select(own)
	}
	out := plan.Side{Engine: s.Engine, Model: m, Shard: s.Shard, Ranks: make([][]*layout.Layout, s.Shard.Ranks())}
	for _, g := range groups {
		out.Groups = append(out.Groups, s.Groups[g].Pool())
	}
	for r := range out.Ranks {
		out.Ranks[r] = make([]*layout.Layout, len(groups))
	}
	return out
}

// side computes one side as it lies in memory.
func (f *File) side(name string, choose Choose) (plan.Side, error) {
	present := f.Side(name).Present()
	out := f.bare(f.Side(name), present)
	for i, g := range present {
		l, err := f.chosen(name, g, choose)
		if err != nil {
			return out, err
		}
		if err := f.resolve(&out, i, l); err != nil {
			return out, err
		}
	}
	return out, nil
}

// laid is a layout that a side gives or offers, and its place in the file. A
// preset knows more than its order: which element sizes it is made for.
type laid struct {
	preset.Preset // without a name where it is an order
	field         string
}

func (l laid) resolve(e layout.Extent) (*layout.Layout, error) {
	if l.Name == "" {
		return l.Spec.Resolve(e)
	}
	return l.Resolve(e)
}

// chosen returns the layout that a side gives for a group, or that is chosen of
// those that it offers. Each of these must fit the group: whoever chooses has
// what the file says to choose from.
func (f *File) chosen(name string, g int, choose Choose) (laid, error) {
	s := f.Side(name)
	own := &s.Groups[g]
	field := f.groupField(name, g)
	if own.Layout != nil {
		return laid{preset.Preset{Name: own.Preset, Spec: *own.Layout}, field + ".layout"}, nil
	}
	field += ".can"
	if choose == nil {
		return laid{}, f.locate(field, nil, fmt.Sprintf("engine %q offers layouts and nothing chooses one; there is no default layout", s.Engine), nil)
	}
	var offers []laid
	for i, p := range own.Candidates() {
		offers = append(offers, laid{p, fmt.Sprintf("%s[%d]", field, i)})
	}
	for _, l := range offers {
		side := f.bare(s, []int{g})
		if err := f.resolve(&side, 0, l); err != nil {
			return l, err
		}
	}
	i, err := choose(name, g)
	if err != nil {
		return laid{}, err
	}
	if i < 0 || i >= len(offers) {
		return laid{}, f.locate(field, i, fmt.Sprintf("engine %q offers %d layouts", s.Engine, len(offers)), nil)
	}
	return offers[i], nil
}

// resolve computes a side's layouts of one group. Ranks of equal extents share
// a value; a rank without layers of the group has none.
func (f *File) resolve(s *plan.Side, g int, l laid) error {
	type key struct {
		first, layers int // a stage's layers follow from these
		heads         string
	}
	group, pool := s.Model.Groups[g], s.Groups[g]
	known := map[key]*layout.Layout{}
	for r := range s.Ranks {
		part := s.Part(g, r)
		if len(part.Layers) == 0 {
			continue
		}
		e := part.Extent(group, pool.Block, pool.Blocks)
		k := key{e.Layers[0], len(e.Layers), fmt.Sprint(e.Heads)}
		out, ok := known[k]
		if !ok {
			var err error
			if out, err = l.resolve(e); err != nil {
				return f.layoutError(group, l, err)
			}
			known[k] = out
		}
		s.Ranks[r][g] = out
	}
	return nil
}

// layoutError gives a layout's fault its place in the file: where the order is a
// preset's, the preset's.
func (f *File) layoutError(g geometry.Group, l laid, err error) error {
	var claim *layout.ClaimError
	if errors.As(err, &claim) {
		return f.locate(l.field+".name", claim.Claim, fmt.Sprintf("the name is a claim, and the order says %s (component %s)", claim.Actual, claim.Component), err)
	}
	var e *layout.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("resolve %s: %w", l.field, err)
	}
	if l.Name != "" {
		of := "the model's components"
		if f.named() {
			of = fmt.Sprintf("group %q", g.Name)
		}
		return f.locate(l.field, l.Name, fmt.Sprintf("the preset does not fit %s: %s is %v: %s", of, e.Field, e.Value, e.Reason), err)
	}
	field := l.field
	if e.Field != "" {
		field += "." + e.Field
	}
	return f.locate(field, e.Value, e.Reason, err)
}
