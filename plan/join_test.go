package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// engine makes a side of the named groups out of a set of three: "full" (layers
// 0 and 1), "window" (2) and the optional "draft" (3), in the given order; tp
// head shards.
func engine(t testing.TB, name string, tp int, groups ...string) plan.Side {
	t.Helper()
	var model, side []string
	for _, g := range groups {
		model = append(model, map[string]string{
			"full":   `{name: full, layers: "0-1", components: [{name: k, heads: 4, dim: 2, dtype: bf16}]}`,
			"window": `{name: window, layers: "2", window: 8, components: [{name: k, heads: 2, dim: 2, dtype: bf16}]}`,
			"draft":  `{name: draft, layers: "3", optional: true, components: [{name: k, heads: 2, dim: 4, dtype: fp8}]}`,
			"mtp":    `{name: mtp, layers: "0,4", optional: true, components: [{name: c, heads: 0, dim: 4, dtype: fp8}]}`,
		}[g])
		order := "[block, head, token, dim]"
		if g == "mtp" {
			order = "[block, token, dim]"
		}
		side = append(side, fmt.Sprintf("%s: {block: 4, blocks: 9, layout: {order: %s}}", g, order))
	}
	one := fmt.Sprintf("{engine: %s, shard: {tp: %d}, groups: {%s}}", name, tp, strings.Join(side, ", "))
	p, _ := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 5, groups: [%s]}\nsource: %s\ndestination: %s\n", strings.Join(model, ", "), one, one))
	return p.Source
}

// names are a pair's groups.
func names(s *plan.Side) []string {
	var out []string
	for _, g := range s.Model.Groups {
		out = append(out, g.Name)
	}
	return out
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		name                string
		source, destination []string
		groups              []string // of the pair
		common              plan.Common
		own                 [2][]int
		left                [2]int
	}{
		{name: "the same", source: []string{"full", "window"}, destination: []string{"full", "window"}, groups: []string{"full", "window"},
			common: plan.Common{Source: []int{0, 1}, Destination: []int{0, 1}}},
		{name: "in another order", source: []string{"full", "window"}, destination: []string{"window", "full"}, groups: []string{"window", "full"},
			common: plan.Common{Source: []int{1, 0}, Destination: []int{0, 1}}, own: [2][]int{{1, 0}, nil}},
		{name: "the source drafts", source: []string{"full", "draft", "window"}, destination: []string{"full", "window"}, groups: []string{"full", "window"},
			common: plan.Common{Source: []int{0, 2}, Destination: []int{0, 1}, Skipped: []string{"draft"}}, own: [2][]int{{0, 2}, nil}, left: [2]int{1, 0}},
		{name: "the destination drafts", source: []string{"full", "window"}, destination: []string{"draft", "full", "window"}, groups: []string{"full", "window"},
			common: plan.Common{Source: []int{0, 1}, Destination: []int{1, 2}, Absent: []string{"draft"}}, own: [2][]int{nil, {1, 2}}, left: [2]int{0, 1}},
		{name: "each has what the other lacks", source: []string{"draft", "window", "full"}, destination: []string{"full", "mtp", "window"}, groups: []string{"full", "window"},
			common: plan.Common{Source: []int{2, 1}, Destination: []int{0, 2}, Absent: []string{"mtp"}, Skipped: []string{"draft"}}, own: [2][]int{{2, 1}, {0, 2}}, left: [2]int{1, 1}},
		{name: "an optional one in common", source: []string{"draft", "full"}, destination: []string{"full", "draft", "mtp"}, groups: []string{"full", "draft"},
			common: plan.Common{Source: []int{1, 0}, Destination: []int{0, 1}, Absent: []string{"mtp"}}, own: [2][]int{{1, 0}, {0, 1}}, left: [2]int{0, 1}},
		{name: "nothing but an optional one", source: []string{"draft"}, destination: []string{"draft"}, groups: []string{"draft"},
			common: plan.Common{Source: []int{0}, Destination: []int{0}}},
	} {
		source, destination := engine(t, "p", 2, c.source...), engine(t, "d", 1, c.destination...)
		before := [2]string{fmt.Sprintf("%+v", source), fmt.Sprintf("%+v", destination)}
		p, common, err := plan.Join(source, destination)
		if err != nil {
			t.Errorf("%s: %+v", c.name, err)
			continue
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(names(&p.Source), c.groups) || !slices.Equal(names(&p.Destination), c.groups) {
			t.Errorf("%s: groups %v and %v, want %v", c.name, names(&p.Source), names(&p.Destination), c.groups)
		}
		if !reflect.DeepEqual(common, c.common) {
			t.Errorf("%s: got %+v, want %+v", c.name, common, c.common)
		}
		for k, s := range []*plan.Side{&p.Source, &p.Destination} {
			if !slices.Equal(s.Own, c.own[k]) || (s.Own == nil) != (c.own[k] == nil) || s.Model.Left != c.left[k] {
				t.Errorf("%s: side %d has groups %v of its own and left %d layers out, want %v and %d", c.name, k, s.Own, s.Model.Left, c.own[k], c.left[k])
			}
			for g, name := range c.groups {
				own := [2][]string{c.source, c.destination}[k]
				if own[s.OwnGroup(g)] != name {
					t.Errorf("%s: group %s is said to be the engine's %s", c.name, name, own[s.OwnGroup(g)])
				}
			}
		}
		if after := [2]string{fmt.Sprintf("%+v", source), fmt.Sprintf("%+v", destination)}; after != before {
			t.Errorf("%s: a side was modified", c.name)
		}
		check(t, c.name, p)
		// Sides that were joined join again, and say the same groups.
		again, _, err := plan.Join(p.Source, p.Destination)
		if err != nil || again.Digest() != p.Digest() {
			t.Errorf("%s: joined again it is another pair (%v)\n%s\n%s", c.name, err, p.Text(), again.Text())
		}
	}
}

// A side of a pair says the engine's own groups, also where it joins another
// side that lacks more of them.
func TestJoinKeepsOwnGroups(t *testing.T) {
	all := engine(t, "d", 1, "mtp", "draft", "full")
	p, _, err := plan.Join(engine(t, "p", 1, "full", "draft"), all)
	if err != nil {
		t.Fatal(err)
	}
	again, common, err := plan.Join(engine(t, "q", 1, "full"), p.Destination)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Destination.Own, []int{1, 2}) || !slices.Equal(again.Destination.Own, []int{2}) || !slices.Equal(common.Destination, []int{1}) || again.Destination.Model.Left != 2 {
		t.Errorf("own groups %v, then %v, which are %v of the side; %d layers left out", p.Destination.Own, again.Destination.Own, common.Destination, again.Destination.Model.Left)
	}
	check(t, "full", again)
}

// check builds and proves a plan of everything.
func check(t testing.TB, name string, p *plan.Pair) {
	t.Helper()
	pl, err := build.Build(p, fixture.Assign(p, 0), nil, plan.DefaultBudget())
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if _, err := proof.Check(p, pl); err != nil {
		t.Errorf("%s: %+v", name, err)
	}
}

func TestJoinRefused(t *testing.T) {
	full := func(f func(*plan.Side)) plan.Side {
		s := engine(t, "d", 1, "full", "draft")
		s.Model.Groups = slices.Clone(s.Model.Groups)
		s.Groups = slices.Clone(s.Groups)
		if f != nil {
			f(&s)
		}
		return s
	}
	for _, c := range []struct {
		name                string
		source, destination plan.Side
		want                string // in the text of %+v
	}{
		{"a group that is not optional is lacking", engine(t, "p", 1, "full", "window"), engine(t, "d", 1, "full"), "model.groups.window: source layers 2, destination (no such group)"},
		{"or here", engine(t, "p", 1, "full"), engine(t, "d", 1, "full", "window"), "model.groups.window: source (no such group), destination layers 2"},
		{"nothing in common", engine(t, "p", 1, "draft"), engine(t, "d", 1, "mtp"), "model.groups: source none in common, destination (want at least one)"},
		{"components", full(nil), full(func(s *plan.Side) {
			s.Model.Groups[0].Window = 4
		}), "model.groups.full.window: source 0, destination 4"},
		{"layers", engine(t, "p", 1, "full", "window"), engine(t, "d", 1, "full", "draft"), "model.groups.window: source layers 2, destination (no such group)"},
		{"a source that contradicts itself", full(func(s *plan.Side) { s.Groups[1].Blocks = 8 }), full(nil), "pair: source.ranks[0].layouts[1].blocks is 9: the rank's shard says 8"},
		{"a destination that contradicts itself", full(nil), full(func(s *plan.Side) { s.Engine = "" }), `pair: destination.engine is "": an engine's name has 1 to 128 bytes`},
	} {
		p, common, err := plan.Join(c.source, c.destination)
		if err == nil || !strings.Contains(fmt.Sprintf("%+v", err), c.want) {
			t.Errorf("%s: got %+v, want %s", c.name, err, c.want)
		}
		if p != nil || !reflect.DeepEqual(common, plan.Common{}) {
			t.Errorf("%s: an error comes with %v and %+v", c.name, p, common)
		}
		var mismatch *plan.Mismatch
		var side *plan.Error
		if !errors.As(err, &mismatch) && !errors.As(err, &side) {
			t.Errorf("%s: got %T", c.name, err)
		}
	}
	// Sides of the same groups in unequal order are no pair by themselves.
	p := &plan.Pair{Source: engine(t, "p", 1, "full", "window"), Destination: engine(t, "d", 1, "window", "full")}
	if err := p.Validate(); err == nil || err.Error() != "pair: pair.groups is 2 and 2: the sides of a pair have the same groups in the same order" {
		t.Errorf("got %v", err)
	}
	p.Source = engine(t, "p", 1, "window", "full", "draft")
	if err := p.Validate(); err == nil || err.Error() != "pair: pair.groups is 3 and 2: the sides of a pair have the same groups in the same order" {
		t.Errorf("got %v", err)
	}
}

// A list of heads says nothing where the group that it is for is left out.
func TestJoinLeavesHeadsOut(t *testing.T) {
	p, common := fixture.Parse(t, `
model:
  name: m
  layers: 2
  groups:
    - {name: main, layers: [0], components: [{name: c, heads: 0, dim: 4, dtype: fp8}]}
    - {name: draft, layers: [1], optional: true, components: [{name: k, heads: 2, dim: 4, dtype: fp8}]}
source:
  engine: p
  shard: {tp: 2, heads: [[1], [0]]}
  groups:
    main: {block: 4, blocks: 9, layout: {order: [block, token, dim]}}
    draft: {block: 4, blocks: 9, layout: {order: [block, head, token, dim]}}
destination: {engine: d, shard: {tp: 1}, groups: {main: {block: 4, blocks: 9, layout: {order: [block, token, dim]}}}}
`)
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(common.Skipped, []string{"draft"}) || p.Source.Shard.Heads != nil {
		t.Errorf("%+v, heads %v", common, p.Source.Shard.Heads)
	}
	check(t, "main", p)
}

// Whatever optional groups each side lacks, and in whatever order they keep
// theirs: what they join to is valid, says the right groups, and is planned.
func TestJoinRandom(t *testing.T) {
	seeds := uint64(600)
	if testing.Short() {
		seeds = 60
	}
	lacking, permuted := 0, 0
	for seed := range seeds {
		m := sample.New(seed)
		p := m.Pair()
		rng := rand.New(rand.NewPCG(seed, 5))
		n := len(p.Source.Groups)
		kept := rng.IntN(n) // in common
		optional := make([]bool, n)
		for g := range optional {
			optional[g] = g != kept && rng.IntN(2) == 0
		}
		var sides [2]plan.Side
		var has [2][]int
		for k, s := range []plan.Side{p.Source, p.Destination} {
			s.Model.Groups = slices.Clone(s.Model.Groups)
			for g := range s.Model.Groups {
				s.Model.Groups[g].Optional = optional[g]
			}
			for _, g := range rng.Perm(n) {
				if !optional[g] || rng.IntN(2) == 0 {
					has[k] = append(has[k], g)
				}
			}
			sides[k] = with(s, has[k])
		}
		joined, common, err := plan.Join(sides[0], sides[1])
		if err != nil {
			t.Fatalf("seed %d: %+v\n%+v\n%+v", seed, err, sides[0].Model, sides[1].Model)
		}
		if err := joined.Validate(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, joined.Text())
		}
		var want []int
		for _, g := range has[1] {
			if slices.Contains(has[0], g) {
				want = append(want, g)
			}
		}
		if len(joined.Source.Groups) != len(want) || len(common.Absent) != len(has[1])-len(want) || len(common.Skipped) != len(has[0])-len(want) {
			t.Fatalf("seed %d: %d groups, %+v, want %v of %v", seed, len(joined.Source.Groups), common, want, has)
		}
		for i, g := range want {
			if has[0][common.Source[i]] != g || has[1][common.Destination[i]] != g || joined.Source.OwnGroup(i) != common.Source[i] || joined.Destination.OwnGroup(i) != common.Destination[i] {
				t.Fatalf("seed %d: group %d of the pair is %+v, want %d", seed, i, common, g)
			}
		}
		if len(want) < n {
			lacking++
		}
		if !slices.IsSorted(common.Source) {
			permuted++
		}
		pl, err := build.Build(joined, m.Assign(joined), nil, plan.DefaultBudget())
		var unaligned *build.Unaligned
		if errors.As(err, &unaligned) {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := proof.Check(joined, pl); err != nil {
			t.Fatalf("seed %d: %+v\n%s", seed, err, joined.Text())
		}
	}
	if lacking < int(seeds)/50 || permuted < int(seeds)/50 {
		t.Errorf("%d pairs lack groups, %d have theirs in unequal order", lacking, permuted)
	}
}

// with is an engine that has the given groups only, in that order.
func with(s plan.Side, groups []int) plan.Side {
	out := s
	out.Model = s.Model.Select(groups)
	out.Groups, out.Ranks = nil, make([][]*layout.Layout, len(s.Ranks))
	headed := false
	for _, g := range groups {
		out.Groups = append(out.Groups, s.Groups[g])
		for r := range out.Ranks {
			out.Ranks[r] = append(out.Ranks[r], s.Ranks[r][g])
		}
		headed = headed || s.Groups[g].Shard == nil && slices.ContainsFunc(s.Model.Groups[g].Components, func(c geometry.Component) bool { return c.Heads > 0 })
	}
	if !headed {
		out.Shard.Heads = nil
	}
	return out
}
