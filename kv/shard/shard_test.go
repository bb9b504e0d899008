package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
)

// model has the given layers and heads in one group.
func model(layers, heads int) geometry.Model {
	all := make([]int, layers)
	for i := range all {
		all[i] = i
	}
	return geometry.Model{Name: "m", Layers: layers, Groups: []geometry.Group{{Layers: all, Components: []geometry.Component{
		{Name: "k", Heads: heads, Dim: 128, DType: geometry.BF16},
	}}}}
}

// spec is a shard in the usual rank order.
func spec(tp int, stages []int, dcp, interleave int) shard.Spec {
	return shard.Spec{TP: tp, Stages: stages, DCPSize: dcp, Interleave: interleave, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		partial []shard.Grid
		want    string
	}{
		{nil, "[pp tp dcp]"},
		{[]shard.Grid{shard.TP}, "[tp pp dcp]"},
		{[]shard.Grid{shard.DCP}, "[dcp pp tp]"},
		{[]shard.Grid{shard.TP, shard.PP}, "[tp pp dcp]"},
		{[]shard.Grid{shard.DCP, shard.TP, shard.PP}, "[dcp tp pp]"},
	} {
		got, err := shard.Order(c.partial)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("Order(%v) = %v, %v; want %s", c.partial, got, err, c.want)
		}
	}
	for _, partial := range [][]shard.Grid{{shard.TP, shard.TP}, {0}, {4}, {shard.PP, shard.TP, shard.DCP, shard.PP}} {
		var e *shard.Error
		if got, err := shard.Order(partial); !errors.As(err, &e) || e.Field != "rank_order" {
			t.Errorf("Order(%v) = %v, %v; want an *Error of rank_order", partial, got, err)
		}
	}
}

// TestGrid numbers ranks by hand: outer axis first.
func TestGrid(t *testing.T) {
	s := spec(2, []int{1, 2, 1}, 2, 1)
	for _, c := range []struct {
		order [3]shard.Grid
		rank  int
		want  shard.Place
	}{
		{[3]shard.Grid{shard.PP, shard.TP, shard.DCP}, 7, shard.Place{PP: 1, TP: 1, DCP: 1}},
		{[3]shard.Grid{shard.PP, shard.TP, shard.DCP}, 9, shard.Place{PP: 2, TP: 0, DCP: 1}},
		{[3]shard.Grid{shard.TP, shard.PP, shard.DCP}, 7, shard.Place{PP: 0, TP: 1, DCP: 1}},
		{[3]shard.Grid{shard.DCP, shard.TP, shard.PP}, 7, shard.Place{PP: 1, TP: 0, DCP: 1}},
		{[3]shard.Grid{shard.DCP, shard.PP, shard.TP}, 11, shard.Place{PP: 2, TP: 1, DCP: 1}},
	} {
		s.Order = c.order
		if got := s.Place(c.rank); got != c.want {
			t.Errorf("order %v: rank %d is at %+v, want %+v", c.order, c.rank, got, c.want)
		}
		seen := map[shard.Place]bool{}
		for r := range s.Ranks() {
			p := s.Place(r)
			if s.Rank(p) != r || seen[p] {
				t.Errorf("order %v: rank %d is at %+v, where rank %d is", c.order, r, p, s.Rank(p))
			}
			seen[p] = true
		}
		if len(seen) != 12 {
			t.Errorf("order %v: %d places", c.order, len(seen))
		}
	}
}

// TestTokens deals canonical tokens and finds them again, and compares with
// the rule written the other way round: token = (u/I*size + phase)*I + u%I.
func TestTokens(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 8} {
		for _, interleave := range []int{1, 2, 3, 16} {
			s := spec(1, []int{1}, size, interleave)
			held := 0
			next := make([]int64, size) // tokens come to a rank in order, without gaps
			for token := range int64(10 * size * interleave) {
				for r := range s.Ranks() {
					p := s.Part(model(1, 1).Groups[0], r)
					u, ok := p.Local(token)
					if !ok {
						continue
					}
					held++
					if u != next[r] {
						t.Fatalf("dcp %d/%d: token %d lies at place %d of rank %d, want %d", size, interleave, token, u, r, next[r])
					}
					next[r]++
					if back := p.Token(u); back != token {
						t.Fatalf("dcp %d/%d: place %d of rank %d holds token %d, want %d", size, interleave, u, r, back, token)
					}
					i := int64(interleave)
					if want := (u/i*int64(size)+int64(r))*i + u%i; want != token {
						t.Fatalf("dcp %d/%d: place %d of rank %d holds token %d by the rule, want %d", size, interleave, u, r, want, token)
					}
				}
			}
			if held != 10*size*interleave {
				t.Errorf("dcp %d/%d: %d tokens held of %d", size, interleave, held, 10*size*interleave)
			}
		}
	}
	// By hand: size 2, interleave 2 deals 0 1 | 2 3 | 4 5 | 6 7 in turn.
	s := spec(1, []int{1}, 2, 2)
	for r, want := range [][]int64{{0, 1, 4, 5}, {2, 3, 6, 7}} {
		p := s.Part(model(1, 1).Groups[0], r)
		for u, token := range want {
			if got := p.Token(int64(u)); got != token {
				t.Errorf("rank %d place %d: token %d, want %d", r, u, got, token)
			}
		}
	}
}

func TestHeads(t *testing.T) {
	for _, c := range []struct {
		name  string
		heads int
		spec  shard.Spec
		want  string // of the tp ranks in turn
	}{
		{"split", 8, spec(4, []int{1}, 1, 1), "[[0 1] [2 3] [4 5] [6 7]]"},
		{"one each", 4, spec(4, []int{1}, 1, 1), "[[0] [1] [2] [3]]"},
		{"replicated twice", 2, spec(4, []int{1}, 1, 1), "[[0] [0] [1] [1]]"},
		{"replicated, one head", 1, spec(3, []int{1}, 1, 1), "[[0] [0] [0]]"},
		{"replicated, tp 16", 8, spec(16, []int{1}, 1, 1), "[[0] [0] [1] [1] [2] [2] [3] [3] [4] [4] [5] [5] [6] [6] [7] [7]]"},
		{"none", 0, spec(3, []int{1}, 1, 1), "[[] [] []]"},
		{"twelve over three", 12, spec(3, []int{1}, 1, 1), "[[0 1 2 3] [4 5 6 7] [8 9 10 11]]"},
		{"explicit, in storage order", 4, shard.Spec{TP: 2, Stages: []int{1}, DCPSize: 1, Interleave: 1, Heads: [][]int{{3, 0}, {1, 2, 3}}, Order: [3]shard.Grid{1, 2, 3}}, "[[3 0] [1 2 3]]"},
	} {
		m := model(1, c.heads)
		if err := c.spec.Validate(m); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := make([][]int, c.spec.TP)
		for r := range c.spec.Ranks() {
			p := c.spec.Part(m.Groups[0], r)
			if len(p.Heads) != 1 {
				t.Fatalf("%s: rank %d has heads %v of one component", c.name, r, p.Heads)
			}
			got[r] = p.Heads[0]
			if e := p.Extent(m.Groups[0], 16, 8); !slices.Equal(e.Heads, []int{len(p.Heads[0])}) {
				t.Errorf("%s: rank %d counts %d heads", c.name, r, e.Heads)
			}
			if c.heads == 0 && p.Heads[0] != nil {
				t.Errorf("%s: rank %d has heads %v", c.name, r, p.Heads)
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		}
	}
	// What a caller does to a part stays with the caller.
	s := shard.Spec{TP: 2, Stages: []int{1}, DCPSize: 1, Interleave: 1, Heads: [][]int{{0}, {1}}, Order: [3]shard.Grid{1, 2, 3}}
	s.Part(model(1, 2).Groups[0], 0).Heads[0][0] = 9
	if s.Heads[0][0] != 0 {
		t.Error("a part shares the spec's head list")
	}
}

func TestStages(t *testing.T) {
	s := spec(1, []int{3, 1, 2}, 1, 1)
	m := model(6, 1)
	m.Groups = []geometry.Group{
		{Name: "a", Layers: []int{0, 2, 4}, Components: m.Groups[0].Components},
		{Name: "b", Layers: []int{1, 5}, Components: m.Groups[0].Components},
	}
	if err := s.Validate(m); err != nil {
		t.Fatal(err)
	}
	for g, want := range []string{"[[0 2] [] [4]]", "[[1] [] [5]]"} {
		var got [][]int
		for r := range 3 {
			got = append(got, s.Part(m.Groups[g], r).Layers)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("group %d: got %v, want %s", g, got, want)
		}
	}
	if got, err := shard.Even(80, 4); err != nil || !slices.Equal(got, []int{20, 20, 20, 20}) {
		t.Errorf("Even(80, 4) = %v, %v", got, err)
	}
	for _, n := range []int{-1, 0, 3, 160} {
		var e *shard.Error
		if got, err := shard.Even(80, n); !errors.As(err, &e) || e.Field != "pp" {
			t.Errorf("Even(80, %d) = %v, %v", n, got, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers int
		heads  int
		change func(s *shard.Spec)
		field  string
		say    string
	}{
		{"no tp", 4, 8, func(s *shard.Spec) { s.TP = 0 }, "tp", "want 1"},
		{"negative tp", 4, 8, func(s *shard.Spec) { s.TP = -2 }, "tp", "want 1"},
		{"huge tp", 4, 8, func(s *shard.Spec) { s.TP = 1 << 13 }, "tp", "want 1"},
		{"no dcp", 4, 8, func(s *shard.Spec) { s.DCPSize = 0 }, "dcp.size", "want 1"},
		{"no interleave", 4, 8, func(s *shard.Spec) { s.Interleave = 0 }, "dcp.interleave", "want 1"},
		{"no stages", 4, 8, func(s *shard.Spec) { s.Stages = nil }, "pp", "want 1 to 4 stages"},
		{"an empty stage", 4, 8, func(s *shard.Spec) { s.Stages = []int{4, 0} }, "pp[1]", "at least one layer"},
		{"a negative stage", 4, 8, func(s *shard.Spec) { s.Stages = []int{5, -1} }, "pp[0]", "at least one layer"},
		{"too few layers", 4, 8, func(s *shard.Spec) { s.Stages = []int{1, 2} }, "pp", "hold 3 layers, the model has 4"},
		{"no order", 4, 8, func(s *shard.Spec) { s.Order = [3]shard.Grid{} }, "rank_order", "want pp, tp and dcp"},
		{"an axis twice", 4, 8, func(s *shard.Spec) { s.Order[1] = shard.PP }, "rank_order", "named twice"},
		{"too many ranks", 4, 0, func(s *shard.Spec) { s.TP, s.DCPSize = 64, 65 }, "ranks", "at most 4096"},
		{"heads that do not divide", 4, 12, func(s *shard.Spec) { s.TP = 8 }, "tp", "12 heads do not split evenly over tp 8"},
		{"replicas that do not divide", 4, 8, func(s *shard.Spec) { s.TP = 12 }, "tp", "nor tp over heads"},
		{"heads of none", 4, 0, func(s *shard.Spec) { s.Heads = [][]int{{0}, {1}} }, "heads", "have no heads"},
		{"a list short", 4, 8, func(s *shard.Spec) { s.Heads = [][]int{{0}} }, "heads", "each of 2 tp ranks"},
		{"an empty list", 4, 2, func(s *shard.Spec) { s.Heads = [][]int{{0, 1}, {}} }, "heads[1]", "at least one head"},
		{"a head beyond", 4, 2, func(s *shard.Spec) { s.Heads = [][]int{{0}, {1, 2}} }, "heads[1][1]", "0 to 1"},
		{"a head twice on a rank", 4, 2, func(s *shard.Spec) { s.Heads = [][]int{{0, 0}, {1}} }, "heads[0][1]", "each once a rank"},
		{"a head nowhere", 4, 3, func(s *shard.Spec) { s.Heads = [][]int{{0}, {2, 0}} }, "heads", "every head lies on some rank"},
	} {
		s := spec(2, []int{c.layers}, 1, 1)
		if err := s.Validate(model(c.layers, c.heads)); c.heads%2 == 0 && err != nil {
			t.Errorf("%s: the shard is bad before the change: %v", c.name, err)
		}
		c.change(&s)
		err := s.Validate(model(c.layers, c.heads))
		var e *shard.Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: got %v; want field %s and %q", c.name, err, c.field, c.say)
		}
	}
}

// TestPartsCover counts how often each (layer, head, token) is held.
func TestPartsCover(t *testing.T) {
	for _, c := range []struct {
		heads int
		s     shard.Spec
		want  int
	}{
		{6, spec(3, []int{2, 1}, 2, 2), 1},
		{2, spec(4, []int{1, 2}, 1, 1), 2},
		{0, spec(4, []int{3}, 2, 1), 4},
	} {
		m := model(3, c.heads)
		held := map[[3]int64]int{}
		for r := range c.s.Ranks() {
			p := c.s.Part(m.Groups[0], r)
			heads := p.Heads[0]
			if heads == nil {
				heads = []int{0}
			}
			for _, l := range p.Layers {
				for _, h := range heads {
					for token := range int64(24) {
						if _, ok := p.Local(token); ok {
							held[[3]int64{int64(l), int64(h), token}]++
						}
					}
				}
			}
		}
		if n := 3 * max(c.heads, 1) * 24; len(held) != n {
			t.Errorf("%s: %d of %d held", c.s.Text(), len(held), n)
		}
		for k, n := range held {
			if n != c.want {
				t.Errorf("%s: %v is held %d times, want %d", c.s.Text(), k, n, c.want)
			}
		}
	}
}

func TestText(t *testing.T) {
	s := spec(2, []int{3, 1}, 2, 16)
	if got, want := s.Text(), "shard tp 2 pp [3 1] dcp 2 interleave 16 order pp,tp,dcp\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h := s
	h.Heads = [][]int{{1, 0}, {2}}
	if got, want := h.Text(), "shard tp 2 pp [3 1] dcp 2 interleave 16 order pp,tp,dcp heads [[1 0] [2]]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Digest() == h.Digest() {
		t.Error("head lists do not show in the digest")
	}
}
