package sample

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// shards draws how a side's groups are sharded: all as the engine is, or some
// in a way of their own over as many ranks. It is false where no such way was
// found.
func (m *Maker) shards(s *plan.Side) bool {
	groups := s.Model.Groups
	s.Groups = make([]plan.Pool, len(groups))
	own := make([]bool, len(groups))
	for i := range own {
		own[i] = m.Chance(5) || len(groups) > 1 && m.Chance(15)
	}
	var common []int
	for i := range groups {
		if !own[i] {
			common = append(common, i)
		}
	}
	if len(common) == 0 { // an engine is sharded as some group is
		common, own[0] = []int{0}, false
	}
	s.Shard = m.shard(s.Model.Select(common))
	for i := range groups {
		if !own[i] {
			continue
		}
		found := false
		for range 200 {
			has := m.Has
			m.Has = map[Feature]bool{}
			spec := m.shard(s.Model.Select([]int{i}))
			drawn := m.Has
			m.Has = has
			if spec.Ranks() == s.Shard.Ranks() {
				for f := range drawn {
					m.Has[f] = true
				}
				s.Groups[i].Shard, found = &spec, true
				m.Has[OwnShard] = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// shard draws how the groups of a model are sharded.
func (m *Maker) shard(model geometry.Model) shard.Spec {
	s := shard.Spec{DCPSize: 1, Interleave: 1, Order: pick(m,
		[3]shard.Grid{shard.PP, shard.TP, shard.DCP}, [3]shard.Grid{shard.TP, shard.PP, shard.DCP}, [3]shard.Grid{shard.DCP, shard.TP, shard.PP},
		[3]shard.Grid{shard.TP, shard.DCP, shard.PP}, [3]shard.Grid{shard.PP, shard.DCP, shard.TP}, [3]shard.Grid{shard.DCP, shard.PP, shard.TP})}
	state := slices.ContainsFunc(model.Groups, func(g geometry.Group) bool { return g.State })
	if m.Chance(25) && !state {
		unit := 1
		for i := range model.Groups {
			unit = LCM(unit, entries(&model.Groups[i]))
		}
		s.DCPSize, s.Interleave = pick(m, 2, 2, 3), pick(m, 1, 1, 2, 3)*unit
		m.Has[DCP] = true
	}
	// Stages.
	for left := model.Layers; left > 0; {
		n := 1 + m.IntN(left)
		s.Stages = append(s.Stages, n)
		left -= n
	}
	if m.Chance(40) {
		s.Stages = []int{model.Layers}
	}
	for _, n := range s.Stages {
		if n != s.Stages[0] {
			m.Has[UnevenPP] = true
		}
	}
	m.heads(&s, model, state)
	if m.Chance(15) {
		s.Places = make([]shard.Place, s.Ranks())
		for i, r := range m.Perm(len(s.Places)) {
			grid := s
			grid.Places = nil
			s.Places[i] = grid.Place(r)
		}
		m.Has[Placed] = true
	}
	return s
}

// heads draws how the heads of every component are dealt.
func (m *Maker) heads(s *shard.Spec, model geometry.Model, state bool) {
	var units []int // of each kind of component with heads
	lists, heads := !state, 0
	for _, g := range model.Groups {
		for _, c := range g.Components {
			if c.Heads == 0 {
				continue
			}
			lists = lists && c.Unit == 0 && (heads == 0 || heads == c.Heads)
			heads = c.Heads
			if n := c.Heads / c.UnitHeads(); !slices.Contains(units, n) {
				units = append(units, n)
			}
		}
	}
	if units == nil {
		s.TP = 1 + m.IntN(3)
		return
	}
	if lists && m.Chance(25) {
		s.TP = 1 + m.IntN(4)
		s.Heads = m.headLists(heads, s.TP)
		return
	}
	var fits, beyond []int
	for t := 1; t <= 12; t++ {
		if slices.ContainsFunc(units, func(n int) bool { return n%t != 0 && t%n != 0 }) {
			continue
		}
		if t > slices.Min(units) {
			if t <= 8 {
				beyond = append(beyond, t)
			}
		} else {
			fits = append(fits, t)
		}
	}
	if beyond != nil && m.Chance(15) {
		s.TP = pick(m, beyond...)
		m.Has[Replica] = true
		return
	}
	s.TP = pick(m, fits...)
}

// headLists deals all heads to tp ranks in any order, some of them twice.
func (m *Maker) headLists(heads, tp int) [][]int {
	lists := make([][]int, tp)
	for _, h := range m.Perm(heads) {
		t := m.IntN(tp)
		lists[t] = append(lists[t], h)
	}
	for t := range lists {
		if len(lists[t]) == 0 || m.Chance(20) {
			h := m.IntN(heads)
			if !slices.Contains(lists[t], h) {
				lists[t] = append(lists[t], h)
			}
		}
		if m.Chance(40) {
			slices.Sort(lists[t])
		}
	}
	held := map[int]int{}
	for _, l := range lists {
		for _, h := range l {
			held[h]++
			if held[h] > 1 {
				m.Has[Replica] = true
			}
		}
	}
	return lists
}
