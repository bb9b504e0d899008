package policies_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
)

// refusal is why vLLM's connector would not take a pair, in a word of the
// policy's reason; empty: it would. It looks at the pair itself, not at what a
// policy is told.
func refusal(p *plan.Pair) string {
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		switch {
		case len(s.Shard.Stages) > 1:
			return "pipeline stages"
		case s.Shard.DCPSize > 1:
			return "decode context parallelism"
		}
		for r := range s.Ranks {
			if s.Shard.Place(r).TP != r {
				return "order of their heads"
			}
		}
	}
	tp, td := p.Source.Shard.TP, p.Destination.Shard.TP
	if tp%td != 0 && td%tp != 0 {
		return "a multiple of the other"
	}
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		for gi, g := range s.Model.Groups {
			for r := range s.Ranks {
				part := s.Part(gi, r)
				if len(part.Layers) == 0 {
					continue
				}
				if part.Size > 1 {
					return "holds other heads or tokens"
				}
				for ci, c := range g.Components {
					if c.Heads > 0 && !slices.Equal(part.Heads[ci], vllmHeads(c, r, s.Shard.TP)) {
						return "holds other heads or tokens"
					}
				}
			}
		}
	}
	for gi, g := range p.Source.Model.Groups {
		sharded := false
		for _, c := range g.Components {
			if c.Scales != "" {
				rows := g.Components[g.Component(c.Scales)]
				if rows.Heads != c.Heads || rows.EntryTokens() != c.EntryTokens() {
					return "scales only within the rows"
				}
			}
			if c.Heads == 0 || tp <= td {
				continue
			}
			sharded = true
			if tp > c.Heads/max(c.Unit, 1) {
				return "holds heads several times"
			}
		}
		source, destination := p.Source.Groups[gi].Block, p.Destination.Groups[gi].Block
		if !g.State && (destination%source != 0 || sharded && source != destination) {
			return "blocks of"
		}
	}
	return ""
}

// vllmHeads are the heads that vLLM gives a rank; nil where it cannot deal them.
func vllmHeads(c geometry.Component, r, tp int) []int {
	unit := max(c.Unit, 1)
	units := c.Heads / unit
	if units%tp != 0 && tp%units != 0 {
		return []int{-1}
	}
	var out []int
	for u := r * units / tp; u < r*units/tp+max(units/tp, 1); u++ {
		for h := range unit {
			out = append(out, u*unit+h)
		}
	}
	return out
}

// vllmSources are the source ranks that vLLM has a destination rank read from.
func vllmSources(r, tp, td int) []int {
	if td >= tp {
		return []int{r * tp / td}
	}
	var out []int
	for i := range tp / td {
		out = append(out, r*(tp/td)+i)
	}
	return out
}

// drawTP makes a pair as vLLM has them, or nearly.
func drawTP(m *sample.Maker) *plan.Pair {
	for {
		p := m.Pair()
		for _, s := range []*plan.Side{&p.Source, &p.Destination} {
			if len(s.Shard.Stages) > 1 || s.Shard.DCPSize > 1 {
				p = nil
				break
			}
		}
		if p != nil {
			return p
		}
	}
}

// What vLLM takes is mapped as it maps it, and proved; all else is declined by
// name.
func TestCompatIsVLLMs(t *testing.T) {
	p := open(t, "compat-vllm")
	seeds, taken := 3000, 0
	if testing.Short() {
		seeds = 300
	}
	why := map[string]int{}
	for seed := range uint64(seeds) {
		m := sample.New(seed)
		pair := drawTP(m)
		if seed%4 == 0 {
			pair = m.Pair()
		}
		want := refusal(pair)
		answer, err := p.Remap(context.Background(), pair)
		why[want]++
		if want != "" {
			var declined *policy.Declined
			if !errors.As(err, &declined) || !strings.Contains(err.Error(), want) {
				t.Fatalf("seed %d: error %v, want %q", seed, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		taken++
		tp, td := pair.Source.Shard.TP, pair.Destination.Shard.TP
		for _, a := range answer.Alternatives[0] {
			sources := vllmSources(a.Destination, tp, td)
			if pair.Source.Model.Groups[a.Group].Components[component(geometry.Class{Components: a.Components})].Heads == 0 {
				sources = []int{a.Destination * tp / td}
			}
			if !slices.Contains(sources, a.Source) {
				t.Fatalf("seed %d: rank %d reads from %d, want %v of %d: %+v", seed, a.Destination, a.Source, sources, tp, a)
			}
		}
		proved(t, seed, pair, answer.Alternatives[0])
	}
	t.Logf("%d of %d taken; refused: %v", taken, seeds, why)
	if taken < seeds/50 || len(why) < 7 {
		t.Error("the draw shows nothing")
	}
}

// The cases that vLLM itself was run on: which ranks read from which.
func TestCompatGoldens(t *testing.T) {
	p := open(t, "compat-vllm")
	for _, c := range []struct {
		heads, source, destination int // heads 0: a latent
		want                       string
	}{
		{8, 2, 4, "0<-0 1<-0 2<-1 3<-1"},
		{8, 4, 2, "0<-0 0<-1 1<-2 1<-3"},
		{8, 1, 8, "0<-0 1<-0 2<-0 3<-0 4<-0 5<-0 6<-0 7<-0"},
		{8, 8, 1, "0<-0 0<-1 0<-2 0<-3 0<-4 0<-5 0<-6 0<-7"},
		{8, 8, 16, "0<-0 1<-0 2<-1 3<-1 4<-2 5<-2 6<-3 7<-3 8<-4 9<-4 10<-5 11<-5 12<-6 13<-6 14<-7 15<-7"},
		{8, 4, 16, "0<-0 1<-0 2<-0 3<-0 4<-1 5<-1 6<-1 7<-1 8<-2 9<-2 10<-2 11<-2 12<-3 13<-3 14<-3 15<-3"},
		{2, 1, 4, "0<-0 1<-0 2<-0 3<-0"},
		{2, 8, 8, "0<-0 1<-1 2<-2 3<-3 4<-4 5<-5 6<-6 7<-7"},
		{0, 8, 2, "0<-0 1<-4"},
		{0, 2, 8, "0<-0 1<-0 2<-0 3<-0 4<-1 5<-1 6<-1 7<-1"},
		{8, 16, 8, "the cache: 8 heads on 16 ranks: vLLM refuses a source that holds heads several times and has more ranks than the destination, 8"},
		{4, 8, 1, "the cache: 4 heads on 8 ranks: vLLM refuses a source that holds heads several times and has more ranks than the destination, 1"},
		{2, 4, 2, "the cache: 2 heads on 4 ranks: vLLM refuses a source that holds heads several times and has more ranks than the destination, 2"},
		{12, 2, 3, "tensor parallel sizes 2 and 3: vLLM wants one a multiple of the other"},
		{12, 6, 4, "tensor parallel sizes 6 and 4: vLLM wants one a multiple of the other"},
	} {
		components := fmt.Sprintf("{name: k, heads: %d, dim: 16, dtype: bf16}", c.heads)
		order := "{order: [block, head, token, dim]}"
		if c.heads == 0 {
			order = "{order: [block, token, dim]}"
		}
		side := func(name string, tp int) string {
			return fmt.Sprintf("%s: {engine: %s, shard: {tp: %d}, block: 16, blocks: 8, layout: %s}\n", name, name, tp, order)
		}
		pair, _ := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 1, components: [%s]}\n", components)+side("source", c.source)+side("destination", c.destination))
		answer, err := p.Remap(context.Background(), pair)
		if err != nil {
			if !strings.HasSuffix(err.Error(), "(hook remap): "+c.want) {
				t.Errorf("%d heads, %d to %d: %v, want %s", c.heads, c.source, c.destination, err, c.want)
			}
			continue
		}
		var got []string
		for _, a := range answer.Alternatives[0] {
			got = append(got, fmt.Sprintf("%d<-%d", a.Destination, a.Source))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d heads, %d to %d: %s, want %s", c.heads, c.source, c.destination, s, c.want)
		}
	}
}

// Of the layouts that an engine offers, the first that has heads before tokens
// and goes with what its peers can do so.
func TestCompatSelectsHND(t *testing.T) {
	p := open(t, "compat-vllm")
	items := map[string]policy.Candidate{}
	for name, words := range map[string]string{"hnd": "block head token component dim", "nhd": "block token head component dim", "split": "component block head token dim", "cross": "block head layer component token dim"} {
		items[name] = policy.Candidate{Name: name, Layouts: []layout.Spec{sample.Order(words)}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
	}
	items["hnd-64"] = policy.Candidate{Name: "hnd-64", Layouts: items["hnd"].Layouts, Pools: []plan.Pool{{Block: 64, Blocks: 4}}}
	take := func(names []string) (out []policy.Candidate) {
		for _, n := range names {
			out = append(out, items[n])
		}
		return out
	}
	for _, c := range []struct {
		own, peer []string
		role      policy.Role
		previous  int
		want      string
	}{
		{[]string{"nhd", "hnd"}, []string{"nhd", "hnd"}, policy.Source, 0, "hnd"},
		{[]string{"nhd", "split", "hnd"}, []string{"hnd"}, policy.Source, 0, "split"},
		{[]string{"nhd", "split", "hnd"}, []string{"hnd"}, policy.Source, 3, "hnd"},
		{[]string{"nhd", "hnd"}, []string{"hnd"}, policy.Source, 1, "hnd"},
		{[]string{"cross"}, nil, policy.Source, 0, "cross"},
		{[]string{"nhd"}, []string{"hnd"}, policy.Source, 0, "engine prefill offers no layout with heads before tokens (HND), which vLLM's connector requires"},
		{[]string{"hnd"}, []string{"nhd"}, policy.Source, 0, "engine prefill offers no layout that vLLM's connector takes together with one of engine decode: heads before tokens on both sides, blocks that go into each other"},
		{[]string{"hnd"}, []string{"hnd-64"}, policy.Source, 0, "hnd"},
		{[]string{"hnd-64"}, []string{"hnd"}, policy.Source, 0, "engine prefill offers no layout that vLLM's connector takes together with one of engine decode: heads before tokens on both sides, blocks that go into each other"},
		// The peer is the source, with more ranks: blocks are the same.
		{[]string{"hnd-64"}, []string{"hnd"}, policy.Destination, 0, "engine prefill offers no layout that vLLM's connector takes together with one of engine decode: heads before tokens on both sides, blocks that go into each other"},
		{[]string{"hnd-64", "hnd"}, []string{"hnd"}, policy.Destination, 0, "hnd"},
	} {
		q := question()
		q.Role, q.Previous, q.Engine.Candidates = c.role, c.previous, take(c.own)
		q.Peers[0].Candidates = take(c.peer)
		if c.peer == nil {
			q.Peers = nil
		}
		got, err := p.SelectLayout(context.Background(), q)
		if err != nil {
			if !strings.HasSuffix(err.Error(), "(hook select_layout): "+c.want) {
				t.Errorf("%v with %v: %v, want %s", c.own, c.peer, err, c.want)
			}
		} else if name := c.own[got.Index]; name != c.want || got.Reason != name+": the engine's first that vLLM's connector takes" {
			t.Errorf("%v with %v: %s (%s), want %s", c.own, c.peer, name, got.Reason, c.want)
		}
	}
	// A latent may lie as it likes.
	q := question()
	q.Engine.Model.Groups = []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.BF16}}}}
	q.Peers = nil
	q.Engine.Candidates = []policy.Candidate{{Name: "mla", Layouts: []layout.Spec{sample.Order("block token dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}}
	if got, err := p.SelectLayout(context.Background(), q); err != nil || got.Index != 0 {
		t.Errorf("a latent: %+v (%v)", got, err)
	}
	// There is nothing to set.
	q.Configuration = []byte(`{"layout":"nhd"}`)
	if _, err := p.SelectLayout(context.Background(), q); err == nil || !strings.HasSuffix(err.Error(), "configuration: this policy has no settings: it does what vLLM does") {
		t.Errorf("error %v, want that there are no settings", err)
	}
	if !reflect.DeepEqual(p.Hooks(), []string{"select_layout", "remap"}) {
		t.Errorf("hooks %v", p.Hooks())
	}
}
