package plan

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// Common says which groups two engines have in common.
type Common struct {
	// Source and Destination are, by group of the pair, the index of the group
	// on the side. Block tables and memory are by the side's own groups.
	Source, Destination []int
	// Absent are the names of groups that the destination has and the source
	// has not: no transfer fills them.
	Absent []string
	// Skipped are the names of groups that only the source has.
	Skipped []string
}

// Join makes the pair of two engines: of the groups that both have, in the
// destination's order. Optional groups that one side lacks are left out by
// name; everything else must be equal.
//
// Errors: *Error where a side contradicts itself, *Mismatch with every field
// that differs.
func Join(source, destination Side) (*Pair, Common, error) {
	var common Common
	if err := source.Validate("source"); err != nil {
		return nil, common, err
	}
	if err := destination.Validate("destination"); err != nil {
		return nil, common, err
	}
	match, d := geometry.Compare(source.Model, destination.Model)
	if len(d) > 0 {
		return nil, common, &Mismatch{Fields: d}
	}
	for _, g := range match.Groups {
		common.Source = append(common.Source, g.Source)
		common.Destination = append(common.Destination, g.Destination)
	}
	common.Absent, common.Skipped = match.Absent, match.Skipped
	return &Pair{source.choose(common.Source), destination.choose(common.Destination)}, common, nil
}

// choose is the side with the given groups only; itself where these are all.
func (s Side) choose(groups []int) Side {
	all := len(groups) == len(s.Groups)
	for i, g := range groups {
		all = all && i == g
	}
	if all {
		return s
	}
	out := s
	out.Own = make([]int, len(groups))
	for i, g := range groups {
		out.Own[i] = s.OwnGroup(g)
	}
	out.Model = s.Model.Select(groups)
	out.Groups = make([]Pool, len(groups))
	headed := false // some group is dealt by the engine's lists of heads
	for i, g := range groups {
		out.Groups[i] = s.Groups[g]
		headed = headed || s.Groups[g].Shard == nil && slices.ContainsFunc(s.Model.Groups[g].Components, func(c geometry.Component) bool { return c.Heads > 0 })
	}
	if !headed {
		out.Shard.Heads = nil // a shard that says how no heads are dealt is refused
	}
	out.Ranks = make([][]*layout.Layout, len(s.Ranks))
	for r, own := range s.Ranks {
		out.Ranks[r] = make([]*layout.Layout, len(groups))
		for i, g := range groups {
			out.Ranks[r][i] = own[g]
		}
	}
	return out
}
