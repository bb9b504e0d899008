package policies_test

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

// matchHeads is the native twin of the heads policy's remap: the oracle, in
// tests only. It looks for every holder of every head anew.
func matchHeads(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	s, d := &p.Source, &p.Destination
	load := make([]int, len(s.Ranks)) // heads times layers served
	for gi, g := range s.Model.Groups {
		for dr := range d.Ranks {
			want := d.Shard.Part(g, dr)
			if len(want.Layers) == 0 {
				continue
			}
			for stage := range s.Shard.Stages {
				var layers plan.Range
				for r := range s.Ranks {
					if have := s.Shard.Part(g, r); s.Shard.Place(r).PP == stage && len(have.Layers) > 0 {
						layers = plan.Range{From: max(have.Layers[0], want.Layers[0]), To: min(last(have.Layers), last(want.Layers)) + 1}
					}
				}
				if layers.From >= layers.To {
					continue
				}
				for dcp := range s.Shard.DCPSize {
					before := -1
					for h := range max(g.Heads(), 1) {
						best := -1
						for r := range s.Ranks {
							have, at := s.Shard.Part(g, r), s.Shard.Place(r)
							if at.PP != stage || at.DCP != dcp || !holds(want, h) || !holds(have, h) || !meet(have, want) {
								continue
							}
							if best < 0 || r == before || load[r] < load[best] && best != before {
								best = r
							}
						}
						if best >= 0 {
							load[best] += layers.To - layers.From
							if best == before {
								out[len(out)-1].Heads.To++
							} else {
								a := plan.Assignment{Group: gi, Components: 1<<len(g.Components) - 1, Destination: dr, Source: best, Layers: layers, Heads: plan.Range{From: h, To: h + 1}}
								if s.Shard.DCPSize > 1 {
									a.Tokens = plan.Tokens{Size: s.Shard.DCPSize, Interleave: s.Shard.Interleave, Phase: dcp}
								}
								out = append(out, a)
							}
						}
						before = best
					}
				}
			}
		}
	}
	return out
}

func holds(p shard.Part, head int) bool {
	return p.Heads == nil && head == 0 || slices.Contains(p.Heads, head)
}

// meet reports whether any token lies on both parts' ranks, by looking.
func meet(a, b shard.Part) bool {
	for t := range int64(a.Size * a.Interleave * b.Size * b.Interleave) {
		_, ok := a.Local(t)
		_, too := b.Local(t)
		if ok && too {
			return true
		}
	}
	return false
}

func last(n []int) int { return n[len(n)-1] }

func open(t testing.TB, name string) *policy.Policy {
	t.Helper()
	module, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	p, err := policy.Open(context.Background(), module, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Every answer is the twin's, and is proved.
func TestRemapIsTheTwinsAndProved(t *testing.T) {
	p := open(t, "heads")
	seeds, refused := 3000, 0
	if testing.Short() {
		seeds = 300
	}
	for seed := range uint64(seeds) {
		pair := sample.New(seed).Pair()
		answer, err := p.Remap(context.Background(), pair)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(answer.Alternatives) != 1 || answer.Reason == "" {
			t.Fatalf("seed %d: %d alternatives, reason %q", seed, len(answer.Alternatives), answer.Reason)
		}
		if want := matchHeads(pair); !reflect.DeepEqual(answer.Alternatives[0], want) {
			t.Fatalf("seed %d: answer\n%v\nwant\n%v", seed, answer.Alternatives[0], want)
		}
		pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
		if err != nil {
			var half *build.Unaligned
			if !asUnaligned(err, &half) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			refused++
			continue
		}
		if _, err := proof.Check(pair, pl); err != nil {
			t.Fatalf("seed %d: %+v", seed, err)
		}
	}
	t.Logf("%d pairs, %d of them refused for half bytes", seeds, refused)
	if refused > seeds/4 {
		t.Errorf("%d of %d pairs could not be planned", refused, seeds)
	}
}

func asUnaligned(err error, into **build.Unaligned) bool {
	e, ok := err.(*build.Unaligned)
	*into = e
	return ok
}

// Where source ranks hold the same, each serves its share.
func TestReplicasShareTheWork(t *testing.T) {
	p := open(t, "heads")
	checked := 0
	for seed := range uint64(2000) {
		pair := sample.New(seed).Pair()
		s := &pair.Source
		g := s.Model.Groups[0]
		if g.Heads() != 0 && s.Shard.TP <= g.Heads() || s.Shard.Heads != nil || s.Shard.DCPSize > 1 || len(s.Shard.Stages) > 1 || len(s.Model.Groups) > 1 || len(pair.Destination.Shard.Stages) > 1 || pair.Destination.Shard.DCPSize > 1 {
			continue
		}
		answer, err := p.Remap(context.Background(), pair)
		if err != nil {
			t.Fatal(err)
		}
		served := map[int]map[int]bool{} // head -> source ranks
		takers := map[int]int{}
		for _, a := range answer.Alternatives[0] {
			for h := a.Heads.From; h < a.Heads.To; h++ {
				if served[h] == nil {
					served[h] = map[int]bool{}
				}
				served[h][a.Source] = true
				takers[h]++
			}
		}
		for h, ranks := range served {
			holders := 0
			for r := range s.Ranks {
				part := s.Shard.Part(g, r)
				if part.Heads == nil || part.Heads[0] == h {
					holders++
				}
			}
			if want := min(holders, takers[h]); len(ranks) != want {
				t.Errorf("seed %d: head %d is read from %d ranks, want %d of %d for %d readers", seed, h, len(ranks), want, holders, takers[h])
			}
			checked++
		}
	}
	if checked < 100 {
		t.Fatalf("only %d replicated heads were drawn", checked)
	}
}

// The seed bug's policy declines, and what follows is an error that names the
// engine and what each side can do.
func TestSeedbugDeclines(t *testing.T) {
	p := open(t, "seedbug")
	q := question()
	_, err := p.SelectLayout(context.Background(), q)
	want := `policy seedbug answered no layout for engine prefill (engine prefill can do hnd, nhd; engine decode can do nhd); there is no default: policy seedbug declined (hook select_layout): connectors do not specify a kv cache layout`
	if err == nil || err.Error() != want {
		t.Fatalf("error\n%v\nwant\n%s", err, want)
	}
}

func question() policy.Question {
	pair := sample.New(1).Pair()
	model := geometry.Model{Name: "llama", Layers: 2, Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{{Name: "k", Heads: 8, Dim: 16, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 16, DType: geometry.BF16}}}}}
	shard := func(tp int) policy.Engine {
		s := pair.Source.Shard
		s.TP, s.Stages, s.DCPSize, s.Interleave, s.Heads = tp, []int{2}, 1, 1, nil
		return policy.Engine{Model: model, Shard: s}
	}
	hnd := policy.Candidate{Name: "hnd", Layout: sample.Order("block head token component dim"), Block: 16, Blocks: 4}
	nhd := policy.Candidate{Name: "nhd", Layout: sample.Order("block token head component dim"), Block: 16, Blocks: 4}
	own, peer := shard(2), shard(4)
	own.Name, peer.Name = "prefill", "decode"
	own.Candidates, peer.Candidates = []policy.Candidate{hnd, nhd}, []policy.Candidate{nhd}
	return policy.Question{Engine: own, Role: policy.Source, Peers: []policy.Engine{peer}}
}

// heads keeps the layout that takes the fewest pieces, whatever comes first,
// weighs what attention costs on it, and never picks what is not offered.
func TestSelectLayoutTakesTheFewestPieces(t *testing.T) {
	p := open(t, "heads")
	for _, c := range []struct {
		own, peer []string
		attention map[string]int
		want      string
	}{
		{[]string{"hnd", "nhd"}, []string{"nhd"}, nil, "nhd"},
		{[]string{"nhd", "hnd"}, []string{"nhd"}, nil, "nhd"},
		{[]string{"hnd", "nhd"}, []string{"hnd"}, nil, "hnd"},
		{[]string{"hnd", "nhd"}, []string{"hnd", "nhd"}, nil, "hnd"},
		{[]string{"nhd", "hnd"}, []string{"hnd", "nhd"}, nil, "hnd"},
		{[]string{"nhd"}, []string{"hnd"}, nil, "nhd"},
		{[]string{"hnd", "nhd"}, []string{"nhd"}, map[string]int{"nhd": 400}, "hnd"},
	} {
		t.Run(fmt.Sprint(c.own, c.peer, c.attention), func(t *testing.T) {
			q := question()
			all := map[string]policy.Candidate{}
			for _, k := range q.Engine.Candidates {
				k.Attention = c.attention[k.Name]
				all[k.Name] = k
			}
			take := func(names []string) (out []policy.Candidate) {
				for _, n := range names {
					out = append(out, all[n])
				}
				return out
			}
			q.Engine.Candidates, q.Peers[0].Candidates = take(c.own), take(c.peer)
			got, err := p.SelectLayout(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if c.own[got.Index] != c.want || got.Reason == "" {
				t.Errorf("chose %s (%s), want %s", c.own[got.Index], got.Reason, c.want)
			}
			before := p.Calls()
			again, err := p.SelectLayout(context.Background(), q)
			if err != nil || again != got || p.Calls() != before {
				t.Errorf("asked again: %v, %v, %d calls more", again, err, p.Calls()-before)
			}
		})
	}
}

// A call of the guest beside what it replaces: the native twin, and a copy of
// the memory snapshot that every call restores.
func BenchmarkRemap(b *testing.B) {
	text, err := os.ReadFile("../testdata/pairs/llama-70b-hnd.yaml")
	if err != nil {
		b.Fatal(err)
	}
	f, err := pairfile.Parse("llama-70b-hnd", text)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := f.Pair(nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.Run("twin", func(b *testing.B) {
		for b.Loop() {
			matchHeads(pair)
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		from, to := make([]byte, 3<<16), make([]byte, 3<<16)
		for b.Loop() {
			copy(to, from)
		}
	})
	in := policy.RemapInput(pair).Encode()
	for _, engine := range []string{"compiler", "interpreter"} {
		h := load(b, "heads", engine == "interpreter")
		b.Run("call/"+engine, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Remap(ctx, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	p := open(b, "heads")
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.Remap(ctx, pair); err != nil {
				b.Fatal(err)
			}
		}
	})
}
