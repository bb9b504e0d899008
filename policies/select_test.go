package policies_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
)

// combination is an own candidate met by one candidate of each peer.
type combination struct {
	own    int
	weight uint64 // pieces a GiB times attention in per cent on both sides, all peers added
	order  int    // places in the orders of preference, added
	source int    // place in the source's
}

// chooseLayout is the native twin of the heads policy's select_layout: it
// lists every combination and takes the first in order. ok is false where none
// can be planned.
func chooseLayout(in *abi.SelectLayoutIn) (best combination, ok bool) {
	var all []combination
	for i, own := range in.Candidates {
		met := []combination{{own: i}}
		if len(in.Peers) == 0 {
			met[0] = combination{own: i, weight: uint64(own.Attention), order: i, source: i}
		}
		for p, peer := range in.Peers {
			var next []combination
			for _, before := range met {
				for _, c := range own.Costs {
					if int(c.Peer) != p {
						continue
					}
					rate := max(c.Pieces<<30/c.Bytes, 1)
					c2 := before
					c2.weight += rate * uint64(100+own.Attention) * uint64(100+peer.Candidates[c.Candidate].Attention)
					c2.order += i + int(c.Candidate)
					if in.Role == abi.RoleSource {
						c2.source += i
					} else {
						c2.source += int(c.Candidate)
					}
					next = append(next, c2)
				}
			}
			met = next
		}
		all = append(all, met...)
	}
	if len(all) == 0 {
		return combination{}, false
	}
	if p := int(in.Previous); p > 0 && slices.ContainsFunc(all, func(c combination) bool { return c.own == p-1 }) {
		return combination{own: p - 1}, true
	}
	return slices.MinFunc(all, func(a, b combination) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.order, b.order), cmp.Compare(a.source, b.source), cmp.Compare(a.own, b.own))
	}), true
}

var orders = map[string]string{
	"hnd":       "block head token component dim",
	"nhd":       "block token head component dim",
	"split-hnd": "component block head token dim",
	"lbnhc":     "layer block token head component dim",
	"pool":      "block layer component head token dim",
}

// drawEngine makes an engine that offers some layouts in some order.
func drawEngine(m *sample.Maker, name string, model geometry.Model) policy.Engine {
	tp := []int{1, 2, 4, 8, 16}[m.IntN(5)]
	e := policy.Engine{Name: name, Model: model, Shard: shard.Spec{TP: tp, Stages: []int{model.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}}
	names := []string{"hnd", "nhd", "split-hnd", "lbnhc", "pool"}
	m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, n := range names[:1+m.IntN(4)] {
		c := policy.Candidate{Name: n, Layouts: []layout.Spec{sample.Order(orders[n])}, Pools: []plan.Pool{{Block: []int{8, 16, 48}[m.IntN(3)], Blocks: 12}}}
		if m.Chance(30) {
			c.Attention = m.IntN(400)
		}
		e.Candidates = append(e.Candidates, c)
	}
	return e
}

// Both engines of a pair, each asked alone, choose halves of one combination:
// the best there is.
func TestSelectLayoutIsTheTwinsAndBothSidesAgree(t *testing.T) {
	p := open(t, "heads")
	ctx := context.Background()
	pairs := 400
	if testing.Short() {
		pairs = 60
	}
	differ := 0
	for seed := range uint64(pairs) {
		m := sample.New(seed)
		model := question().Engine.Model
		a, b := drawEngine(m, "prefill", model), drawEngine(m, "decode", model)
		questions := []policy.Question{
			{Engine: a, Role: policy.Source, Peers: []policy.Engine{b}},
			{Engine: b, Role: policy.Destination, Peers: []policy.Engine{a}},
		}
		var best [2]combination
		var got [2]int
		for i, q := range questions {
			in, err := q.Input()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			var ok bool
			if best[i], ok = chooseLayout(in); !ok {
				t.Fatalf("seed %d: no combination can be planned", seed)
			}
			choice, err := p.SelectLayout(ctx, q)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got[i] = choice.Index; got[i] != best[i].own || !strings.HasPrefix(choice.Reason, q.Engine.Candidates[got[i]].Name+": ") {
				t.Fatalf("seed %d, %s: chose %d (%s), the twin %+v", seed, q.Engine.Name, got[i], choice.Reason, best[i])
			}
		}
		x, y := best[0], best[1]
		if x.weight != y.weight || x.order != got[0]+got[1] || y.order != x.order || x.source != got[0] || y.source != got[0] {
			t.Fatalf("seed %d: the source chose %d for %+v, the destination %d for %+v: not one combination", seed, got[0], x, got[1], y)
		}
		if a.Candidates[got[0]].Name != b.Candidates[got[1]].Name {
			differ++
		}
	}
	if differ < pairs/20 || differ > pairs*19/20 {
		t.Errorf("in %d of %d pairs the sides use different layouts: the draw shows nothing", differ, pairs)
	}
}

// Several peers are weighed together, and an answer given before is kept while
// it can be.
func TestSelectLayoutWithSeveralPeers(t *testing.T) {
	p := open(t, "heads")
	ctx := context.Background()
	kept := 0
	for seed := range uint64(120) {
		m := sample.New(seed)
		model := question().Engine.Model
		q := policy.Question{Engine: drawEngine(m, "prefill", model), Role: policy.Source}
		for i := range m.IntN(4) {
			q.Peers = append(q.Peers, drawEngine(m, fmt.Sprintf("decode-%d", i), model))
		}
		q.Previous = m.IntN(len(q.Engine.Candidates) + 1)
		in, err := q.Input()
		if err != nil {
			t.Fatal(err)
		}
		want, ok := chooseLayout(in)
		choice, err := p.SelectLayout(ctx, q)
		if err != nil || !ok || choice.Index != want.own {
			t.Fatalf("seed %d: chose %+v (%v), the twin %+v", seed, choice, err, want)
		}
		if q.Previous > 0 {
			kept++
			if !strings.Contains(choice.Reason, "kept, as answered before") {
				t.Errorf("seed %d: reason %q does not say that it was kept", seed, choice.Reason)
			}
		}
	}
	if kept < 20 {
		t.Errorf("only %d questions had an answer before", kept)
	}
}

// A candidate that cannot be planned with an expected peer is not chosen,
// whatever else speaks for it.
func TestSelectLayoutLeavesOutWhatCannotBePlanned(t *testing.T) {
	h := load(t, "heads", false)
	cost := func(peer uint32, pieces uint64) abi.Cost {
		return abi.Cost{Peer: peer, Pieces: pieces, Bytes: 1 << 20}
	}
	in := &abi.SelectLayoutIn{
		Engine: "prefill", Model: "m", Role: abi.RoleSource,
		Peers: []abi.Peer{{Engine: "one", Candidates: []abi.Candidate{{Name: "x"}}}, {Engine: "two", Candidates: []abi.Candidate{{Name: "x"}}}},
		Candidates: []abi.Candidate{
			{Name: "cheap", Costs: []abi.Cost{cost(0, 1)}},
			{Name: "dear", Costs: []abi.Cost{cost(0, 1000), cost(1, 1000)}},
		},
	}
	ctx := context.Background()
	for previous := range uint32(3) {
		in.Previous = previous
		i, reason, err := h.SelectLayout(ctx, in.Encode(), 2)
		if err != nil || i != 1 {
			t.Errorf("previous %d: chose %d (%s, %v), want 1", previous, i, reason, err)
		}
	}
	in.Previous = 0
	in.Candidates = in.Candidates[:1]
	_, _, err := h.SelectLayout(ctx, in.Encode(), 1)
	if err == nil || !strings.Contains(err.Error(), "could be planned with engine two") {
		t.Errorf("error %v, want that it declines and names the engine", err)
	}

	// The largest figures do not wrap.
	most := abi.Cost{Peer: 0, Pieces: 1<<64 - 1, Bytes: 1}
	in.Peers = in.Peers[:1]
	in.Candidates = []abi.Candidate{{Name: "huge", Attention: 1<<32 - 1, Costs: []abi.Cost{most}}, {Name: "small", Costs: []abi.Cost{cost(0, 1)}}}
	if i, reason, err := h.SelectLayout(ctx, in.Encode(), 2); err != nil || i != 1 {
		t.Errorf("chose %d (%s, %v), want 1", i, reason, err)
	}
	// A name is cut to whole runes.
	in.Candidates[1].Name = strings.Repeat("é", 300)
	if _, reason, err := h.SelectLayout(ctx, in.Encode(), 2); err != nil || !strings.HasPrefix(reason, strings.Repeat("é", 50)+": ") {
		t.Errorf("reason %q (%v)", reason, err)
	}
}
