package policies_test

import (
	"context"
	"fmt"
	"math/bits"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
)

// matchHeads is the native twin of the heads policy's remap: the oracle, in
// tests only. It looks for every holder of every head anew, head by head.
func matchHeads(p *plan.Pair) []plan.Assignment {
	t := twin{load: make([]uint64, len(p.Source.Ranks))}
	return t.match(p)
}

// match matches all groups, with loads that go on from what they are.
func (t *twin) match(p *plan.Pair) []plan.Assignment {
	s, d := &p.Source, &p.Destination
	t.out, t.given = nil, make([]uint64, len(s.Ranks))
	for gi, g := range s.Model.Groups {
		spec := s.ShardOf(gi)
		for dr := range d.Ranks {
			want := d.Part(gi, dr)
			if len(want.Layers) == 0 {
				continue
			}
			for stage := range spec.Stages {
				for dcp := range spec.DCPSize {
					t.cell = map[int]shard.Part{}
					t.template = plan.Assignment{Group: gi, Destination: dr}
					for r := range s.Ranks {
						if at, have := spec.Place(r), s.Part(gi, r); at.PP == stage && at.DCP == dcp && len(have.Layers) > 0 && meet(have, want) {
							t.cell[r] = have
							t.template.Layers = plan.Range{From: max(have.Layers[0], want.Layers[0]), To: min(last(have.Layers), last(want.Layers)) + 1}
						}
					}
					if t.template.Layers.From >= t.template.Layers.To {
						continue
					}
					if spec.DCPSize > 1 {
						t.template.Tokens = plan.Tokens{Size: spec.DCPSize, Interleave: spec.Interleave, Phase: dcp}
					}
					t.serve(g, want)
				}
			}
		}
	}
	return t.out
}

// tied numbers the classes of a group: those have one number that must come from
// the same rank, since some scale the rows of others.
func tied(g geometry.Group, classes []geometry.Class) []int {
	number := make([]int, len(classes))
	for i := range number {
		number[i] = i
	}
	of := func(component int) int {
		return slices.IndexFunc(classes, func(c geometry.Class) bool { return c.Components>>component&1 == 1 })
	}
	for range classes { // as often as it takes for the least number to reach all
		for i, c := range g.Components {
			if c.Scales != "" {
				a, b := of(i), of(g.Component(c.Scales))
				number[a] = min(number[a], number[b])
				number[b] = number[a]
			}
		}
	}
	return number
}

// twin is the state of matchHeads. Preferences are by destination and source
// rank; nil where there are none.
type twin struct {
	far      func(destination, source int) int    // nearer ranks come first; below 0: never
	toll     func(destination, source int) uint64 // what a bit costs that is served
	price    func(destination, source int) uint64 // what it counts for when alternatives are compared
	given    []uint64                             // bits of a token served in this alternative, times their price, by rank
	out      []plan.Assignment
	load     []uint64           // bits of a token served, by rank, times their tolls
	cell     map[int]shard.Part // the source ranks of a stage and DCP rank
	template plan.Assignment
}

// serve serves all classes of a group, those together that belong together.
func (t *twin) serve(g geometry.Group, want shard.Part) {
	classes := g.Classes()
	number := tied(g, classes)
	served := make([]bool, len(classes))
	for i := range classes {
		if served[i] {
			continue
		}
		var all, alike []int
		for k := range classes {
			if number[k] == number[i] && !served[k] {
				all = append(all, k)
				if classes[k].Heads == classes[i].Heads {
					alike = append(alike, k)
				}
			}
		}
		whole := -1
		if len(all) > len(alike) {
			whole = t.lightest(t.bits(g, gather(classes, all)), func(have shard.Part) bool {
				for _, k := range all {
					for _, h := range want.Heads[component(classes[k])] {
						if !holds(have, classes[k], h) {
							return false
						}
					}
				}
				return true
			})
			if whole < 0 {
				all = alike
			}
		}
		var set []geometry.Class
		for _, k := range all {
			served[k] = true
			set = append(set, classes[k])
		}
		if whole < 0 {
			t.walk(g, want, set, -1)
			continue
		}
		for _, c := range set {
			t.walk(g, want, []geometry.Class{c}, whole)
		}
	}
}

// walk serves head by head, from one rank where it is not below 0.
func (t *twin) walk(g geometry.Group, want shard.Part, set []geometry.Class, whole int) {
	heads, before := 0, -1
	for _, c := range set {
		heads = max(heads, c.Heads, 1)
	}
	box := map[uint64]int{} // by class, the assignment that may go on
	for h := range heads {
		wanted := slices.DeleteFunc(slices.Clone(set), func(c geometry.Class) bool { return !holds(want, c, h) })
		if len(wanted) == 0 {
			before = -1
			continue
		}
		all := func(have shard.Part) bool {
			return !slices.ContainsFunc(wanted, func(c geometry.Class) bool { return !holds(have, c, h) })
		}
		from := whole
		if have, ok := t.cell[before]; from < 0 && ok && all(have) {
			from = before
		}
		if from < 0 {
			from = t.lightest(t.bits(g, wanted), all)
		}
		before = from
		if from < 0 {
			continue
		}
		for _, c := range wanted {
			if at, ok := box[c.Components]; ok && t.out[at].Source == from && t.out[at].Heads.To == h {
				t.out[at].Heads.To++
			} else {
				a := t.template
				a.Components, a.Source, a.Heads = c.Components, from, plan.Range{From: h, To: h + 1}
				box[c.Components] = len(t.out)
				t.out = append(t.out, a)
			}
			d, n := t.template.Destination, t.bits(g, []geometry.Class{c})
			t.load[from] += n * t.tollOf(d, from)
			t.given[from] += n
			if t.price != nil {
				t.given[from] += n * (t.price(d, from) - 1)
			}
		}
	}
}

func gather(classes []geometry.Class, which []int) []geometry.Class {
	var out []geometry.Class
	for _, k := range which {
		out = append(out, classes[k])
	}
	return out
}

// bits is what one head of some classes weighs, in all layers that are served.
func (t *twin) bits(g geometry.Group, set []geometry.Class) uint64 {
	weight := uint64(0)
	for _, c := range set {
		weight++
		for i, k := range g.Components {
			if c.Components>>i&1 == 1 {
				weight += uint64(k.RowBits()) / uint64(k.EntryTokens())
			}
		}
	}
	return weight * uint64(t.template.Layers.To-t.template.Layers.From)
}

func (t *twin) tollOf(destination, source int) uint64 {
	if t.toll == nil {
		return 1
	}
	return t.toll(destination, source)
}

// lightest is of the ranks of the cell that pass the first of the least loaded
// of the nearest, when it has served so many bits more; -1 where none passes.
func (t *twin) lightest(bits uint64, passes func(shard.Part) bool) int {
	best, nearest, least := -1, 0, uint64(0)
	d := t.template.Destination
	for r := range t.load {
		far := 0
		if t.far != nil {
			far = t.far(d, r)
		}
		load := t.load[r] + bits*t.tollOf(d, r)
		if have, ok := t.cell[r]; ok && far >= 0 && passes(have) && (best < 0 || far < nearest || far == nearest && load < least) {
			best, nearest, least = r, far, load
		}
	}
	return best
}

func component(c geometry.Class) int { return bits.TrailingZeros64(c.Components) }

func holds(p shard.Part, c geometry.Class, head int) bool {
	return c.Heads == 0 && head == 0 || slices.Contains(p.Heads[component(c)], head)
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
	drawn := map[string]int{}
	for seed := range uint64(seeds) {
		pair := sample.New(seed).Pair()
		count(drawn, pair)
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
	for _, what := range []string{"states", "classes", "scales", "groups", "own shards"} {
		if drawn[what] < seeds/60 {
			t.Errorf("only %d of %d pairs have %s", drawn[what], seeds, what)
		}
	}
}

// count counts what a pair has.
func count(drawn map[string]int, p *plan.Pair) {
	has := map[string]bool{"groups": len(p.Source.Groups) > 1}
	for gi, g := range p.Source.Model.Groups {
		has["states"] = has["states"] || g.State
		has["classes"] = has["classes"] || len(g.Classes()) > 1
		has["scales"] = has["scales"] || slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.Scales != "" })
		has["own shards"] = has["own shards"] || p.Source.Groups[gi].Shard != nil || p.Destination.Groups[gi].Shard != nil
	}
	for what, ok := range has {
		if ok {
			drawn[what]++
		}
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
		heads := g.Components[0].Heads
		if heads != 0 && s.Shard.TP <= heads || s.Shard.Heads != nil || s.Shard.DCPSize > 1 || len(s.Shard.Stages) > 1 || len(s.Model.Groups) > 1 || len(pair.Destination.Shard.Stages) > 1 || pair.Destination.Shard.DCPSize > 1 ||
			len(g.Classes()) > 1 || s.Groups[0].Shard != nil || pair.Destination.Groups[0].Shard != nil {
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
				if own := s.Part(0, r).Heads[0]; own == nil || slices.Contains(own, h) {
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
	hnd := policy.Candidate{Name: "hnd", Layouts: []layout.Spec{sample.Order("block head token component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
	nhd := policy.Candidate{Name: "nhd", Layouts: []layout.Spec{sample.Order("block token head component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
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
	pair := fixture.Pair(b, "../testdata/pairs/llama-70b-hnd.yaml")
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
	// One with states: five classes in two groups.
	hybrid := fixture.Pair(b, "../testdata/pairs/groups-hybrid-mamba2.yaml")
	states, h := policy.RemapInput(hybrid).Encode(), load(b, "heads", false)
	b.Run("call/hybrid", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h.Remap(ctx, states); err != nil {
				b.Fatal(err)
			}
		}
	})
	p := open(b, "heads")
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.Remap(ctx, pair); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// parsePair is the pair of a file beside the tests.
func parsePair(t testing.TB, name string) *plan.Pair {
	t.Helper()
	return fixture.Pair(t, filepath.Join("..", "testdata", "pairs", name+".yaml"))
}
