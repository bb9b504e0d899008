// Package matrix_test moves real caches between all kinds of pairs: described
// by presets, matched by the built-in policy in its sandbox, built, proved,
// moved by real providers and agents between the memory of real pools, and
// compared element by element with values that are unique to their position.
// TestCover is the table of all shapes of caches with all ways to keep them;
// TestMatrix looks closer at each clause of attention.
// Nothing here knows where an element should come from but the shards and
// layouts of the two sides.
package matrix_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// heads opens the built-in policy.
func heads(t testing.TB) *policy.Policy {
	t.Helper()
	wasm, ok := policies.Get("heads")
	if !ok {
		t.Fatal("no policy heads")
	}
	p, err := policy.Open(context.Background(), wasm, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the policy: %v", err)
		}
	})
	return p
}

// prove asks the policy, builds and proves the first alternative.
func prove(p *policy.Policy, pair *plan.Pair) (proof.Proven, error) {
	answer, err := p.Remap(context.Background(), pair)
	if err != nil {
		return proof.Proven{}, fmt.Errorf("remap: %w", err)
	}
	pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
	if err != nil {
		return proof.Proven{}, fmt.Errorf("build: %w", err)
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return proof.Proven{}, fmt.Errorf("prove: %w", err)
	}
	return proven, nil
}

// tally counts the cases that were right.
type tally struct {
	mu      sync.Mutex
	clauses map[string]int
	traits  map[string]int
}

func (c *tally) add(clause string, traits []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clauses == nil {
		c.clauses, c.traits = map[string]int{}, map[string]int{}
	}
	c.clauses[clause]++
	for _, t := range traits {
		c.traits[t]++
	}
}

// filtered reports whether -run picks single cases, of which no count is due.
func filtered() bool { return strings.Contains(flag.Lookup("test.run").Value.String(), "/") }

// run moves the cases through a provider, in parallel.
func run(t *testing.T, p *policy.Policy, provider string, cases []*instance) *tally {
	var count tally
	t.Run(provider, func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name(), func(t *testing.T) {
				t.Parallel()
				pair, q, err := c.draw(rand.New(rand.NewPCG(c.seed, 0x6b76)))
				if err != nil {
					t.Fatal(err)
				}
				proven, err := prove(p, pair)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				w, err := newWorld(pair, q, c.seed)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.through(provider, proven), w.close()); err != nil {
					t.Fatalf("%+v", err)
				}
				count.add(c.clause, c.traits())
			})
		}
	})
	return &count
}

// sparse reports whether a test should do a tenth of its cases.
func sparse() bool { return testing.Short() || raceEnabled }

// thin keeps one case of each clause and every n-th.
func thin(cases []*instance, n int) []*instance {
	var out []*instance
	seen := map[string]bool{}
	for i, c := range cases {
		if !seen[c.clause] || i%n == 0 {
			out = append(out, c)
		}
		seen[c.clause] = true
	}
	return out
}

// TestMatrix moves every clause's cases, and every pair of choices.
func TestMatrix(t *testing.T) {
	cases := append(clauses(), covering(t)...)
	want := map[string]int{}
	for _, c := range cases {
		want[c.clause]++
	}
	for clause, least := range leastClauses {
		if want[clause] < least {
			t.Errorf("clause %q has %d cases, want at least %d", clause, want[clause], least)
		}
	}
	if sparse() {
		cases = thin(cases, 10)
		clear(want)
		for _, c := range cases {
			want[c.clause]++
		}
	}
	got := run(t, heads(t), "loop", cases)
	if filtered() {
		return
	}
	for _, clause := range sorted(want) {
		t.Logf("%4d of %4d  %s", got.clauses[clause], want[clause], clause)
		if got.clauses[clause] != want[clause] {
			t.Errorf("clause %q: %d of %d cases were right", clause, got.clauses[clause], want[clause])
		}
	}
	t.Logf("%4d cases in all", len(cases))
	for _, trait := range sorted(leastTraits) {
		t.Logf("%4d  %s", got.traits[trait], trait)
		if n := leastTraits[trait]; !sparse() && got.traits[trait] < n {
			t.Errorf("%q is a trait of %d cases, want at least %d", trait, got.traits[trait], n)
		}
	}
}

// TestOtherProviders moves some of each clause between shared memory and over
// sockets.
func TestOtherProviders(t *testing.T) {
	cases := append(clauses(), covering(t)...)
	step := 32
	if sparse() {
		step = 400
	}
	p := heads(t)
	for _, name := range []string{"shm", "tcp"} {
		some := thin(cases, step)
		got := run(t, p, name, some)
		n := 0
		for _, k := range got.clauses {
			n += k
		}
		t.Logf("%d cases over %s", n, name)
		if !filtered() && (n != len(some) || !sparse() && n < 24) {
			t.Errorf("%s: %d of %d cases were right, want at least 24", name, n, len(some))
		}
	}
}

// shared is the number of tokens at whose multiples no two share a scale with
// one before.
func shared(m geometry.Model) int64 {
	n := int64(1)
	for _, g := range m.Groups {
		for _, c := range g.Components {
			if c.Scales != "" {
				common := n
				for e := int64(c.EntryTokens()); common%e != 0; {
					common += n
				}
				n = common
			}
		}
	}
	return n
}

// halves reports whether elements of the model are less than a byte.
func halves(m geometry.Model) bool {
	return slices.ContainsFunc(m.Groups, func(g geometry.Group) bool {
		return slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.DType.Bits() < 8 })
	})
}

// TestRandomPairs moves pairs of plan/sample: dcp, padded strides, tiled and
// branched orders, several groups, in blocks of a few tokens.
func TestRandomPairs(t *testing.T) {
	n := 200
	if sparse() {
		n = 20
	}
	p := heads(t)
	var mu sync.Mutex
	var refused int
	count := map[sample.Feature]int{}
	moved := 0
	t.Run("loop", func(t *testing.T) {
		for seed := range uint64(n * 8 / 5) { // some part elements that share a byte, and are refused by name
			t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
				t.Parallel()
				m := sample.New(0x3a7 + seed)
				pair := m.Pair()
				if err := pair.Validate(); err != nil {
					t.Fatal(err)
				}
				most := int64(1 << 30)
				for _, s := range []*plan.Side{&pair.Source, &pair.Destination} {
					for g, pool := range s.Groups {
						if !s.Model.Groups[g].State {
							most = min(most, stamp.Capacity(pool.Blocks, pool.Block, *s.ShardOf(g)))
						}
					}
				}
				q := request{to: 1 + min(m.Int64N(most), 200), write: m.Chance(50)}
				q.from = m.Int64N(q.to)
				q.from -= q.from % shared(pair.Source.Model) // no transfer parts what shares a scale
				if layers := pair.Source.Model.Layers; m.Chance(25) {
					q.layers.From = m.IntN(layers)
					q.layers.To = q.layers.From + 1 + m.IntN(layers-q.layers.From)
				}
				proven, err := prove(p, pair)
				var w *world
				if err == nil {
					if w, err = newWorld(pair, q, seed); err != nil {
						t.Fatal(err)
					}
					err = errors.Join(w.through("loop", proven), w.close())
				}
				var unaligned *build.Unaligned
				if errors.As(err, &unaligned) && halves(pair.Source.Model) {
					mu.Lock()
					refused++
					mu.Unlock()
					return
				}
				if err != nil {
					t.Fatalf("%v\n%+v", m.Has, err)
				}
				mu.Lock()
				defer mu.Unlock()
				moved++
				for f := range m.Has {
					count[f]++
				}
			})
		}
	})
	if filtered() {
		return
	}
	t.Logf("%d pairs moved, %d refused for elements that share a byte", moved, refused)
	if moved < n {
		t.Errorf("%d pairs were moved, want at least %d", moved, n)
	}
	for _, f := range sample.Features() {
		if f == sample.Windowed { // every request of ours is one
			continue
		}
		t.Logf("%4d  %s", count[f], f)
		if count[f] == 0 && !sparse() {
			t.Errorf("no pair has %s", f)
		}
	}
}
