package generation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/store"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// line is what managers and stores at rest have in common.
type line interface {
	Load(context.Context, Module) (uint64, error)
	Shadow(uint64) error
	Canary(uint64, Share) error
	Activate(context.Context, uint64) error
	Promote(context.Context, uint64, Share) (uint64, Stage, error)
	Rollback(context.Context, string) (uint64, error)
	Drop(uint64) error
}

// standing is a state without what differs between two that were made at
// different times.
func standing(s store.State) string {
	s.Generations = slices.Clone(s.Generations)
	for i := range s.Generations {
		s.Generations[i].Loaded = time.Time{}
	}
	return fmt.Sprintf("%+v", s)
}

// Whatever is done to a store at rest leaves what a manager leaves, and is
// refused where a manager refuses it, in the same words.
func TestRestChangesAsAManagerDoes(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 7))
		live := open(t, filepath.Join(t.TempDir(), "live"))
		still := open(t, filepath.Join(t.TempDir(), "rest"))
		r := start(t, Options{Store: live})
		rest := AtRest(Options{Store: still, Policy: policy.Options{InProcess: true}, Conform: func(context.Context, []byte) error { return nil }})
		did := map[string]int{}
		for step := range 150 {
			id := uint64(random.IntN(int(live.State().Last) + 2))
			if known := live.State().Generations; len(known) > 0 && random.IntN(4) > 0 {
				id = known[random.IntN(len(known))].ID
			}
			share := Share{Percent: []float64{0, 5, 100, 101}[random.IntN(4)], By: []By{"", ByRequest, ByPair, "moon"}[random.IntN(4)]}
			if random.IntN(2) == 0 {
				share = Share{Percent: 5}
			}
			wasm := fixture.Saying("say", fmt.Sprintf("1.%d.%d", random.IntN(3), random.IntN(3)), nil, nil)
			what := []string{"load", "load", "shadow", "canary", "activate", "promote", "rollback", "drop"}[random.IntN(8)]
			if what == "promote" && random.IntN(2) == 0 {
				id = 0
			}
			do := func(l line) (string, error) {
				switch what {
				case "load":
					id, err := l.Load(ctx, Module{Wasm: wasm, Source: "a test", AllowDowngrade: step%5 == 0})
					return fmt.Sprint(id), err
				case "shadow":
					return "", l.Shadow(id)
				case "canary":
					return "", l.Canary(id, share)
				case "activate":
					return "", l.Activate(ctx, id)
				case "promote":
					id, to, err := l.Promote(ctx, id, share)
					return fmt.Sprint(id, to), err
				case "rollback":
					id, err := l.Rollback(ctx, "a test")
					return fmt.Sprint(id), err
				}
				return "", l.Drop(id)
			}
			a, bad := do(r)
			b, worse := do(rest)
			// A manager still has what drains; at rest it is gone.
			said := func(err error) string {
				if err == nil {
					return ""
				}
				for _, gone := range []string{"it is draining, want [loaded shadow canary]", "it is draining, want [loaded canary]"} {
					if s, ok := strings.CutSuffix(err.Error(), gone); ok {
						return s + "there is no such generation, or it is closed; list shows those there are"
					}
				}
				return err.Error()
			}
			if a != b || said(bad) != said(worse) {
				t.Fatalf("seed %d, step %d: %s %d: a manager says %q, %v, at rest it is %q, %v", seed, step, what, id, a, bad, b, worse)
			}
			if x, y := standing(live.State()), standing(still.State()); x != y {
				t.Fatalf("seed %d, step %d: %s %d leaves\n%s, at rest\n%s", seed, step, what, id, x, y)
			}
			if bad == nil {
				did[what]++
			}
		}
		if len(did) < 6 {
			t.Errorf("seed %d: too little was done: %v", seed, did)
		}
		r.do(r.Close())
	}
}

// What was changed at rest is what the next manager begins with, and the history
// has it all.
func TestRestIsWhereTheNextManagerBegins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	rest := AtRest(Options{Store: s, Policy: policy.Options{InProcess: true}})
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one, err := rest.Load(ctx, Module{Wasm: heads("1.0.1"), Source: "a file"})
	do(err)
	do(rest.Activate(ctx, one))
	if _, err := rest.Load(ctx, Module{Wasm: heads("1.0.0")}); err == nil || blame.Of(err) != blame.Operator {
		t.Errorf("a lower version: %v", err)
	}
	if _, err := rest.Load(ctx, Module{Wasm: fixture.Guest("trap", "1.0.0", fixture.Trap(), fixture.Trap())}); err == nil || blame.Of(err) != blame.Policy {
		t.Errorf("one that traps: %v", err)
	}
	two, err := rest.Load(ctx, Module{Wasm: heads("1.0.2"), Source: "a file", Keys: []string{"ops"}})
	do(err)
	do(rest.Canary(two, Share{Percent: 100, By: ByPair}))
	if got := rest.Status(); len(got.Generations) != 2 || got.Generations[1].Share != (Share{100, ByPair}) || got.Generations[1].Stage != Canary {
		t.Errorf("%+v", got)
	}
	do(s.Close())

	s = open(t, dir)
	r := start(t, Options{Store: s})
	if i := r.info(two); i.Stage != Canary || i.Share != (Share{100, ByPair}) || !slices.Equal(i.Keys, []string{"ops"}) || r.Version() != "1.0.1" {
		t.Errorf("%+v, active is %s", i, r.Version())
	}
	_, err = r.Remap(ctx, sample.New(1).Pair())
	do(err)
	if c := r.info(two).Counters; c.Calls != 1 {
		t.Errorf("the canary of 100 per cent: %+v", c)
	}
	_, to, err := r.Promote(ctx, 0, Share{})
	do(err)
	if to != Active || r.Version() != "1.0.2" {
		t.Errorf("promoted to %s, active is %s", to, r.Version())
	}
	do(r.Close())
	do(s.Close())

	// The last good one is there although nothing of where it came from is.
	s = open(t, dir)
	rest = AtRest(Options{Store: s})
	three, err := rest.Rollback(ctx, "a wish")
	do(err)
	history, err := rest.History()
	do(err)
	var got []string
	for _, e := range history {
		got = append(got, fmt.Sprintf("%s %d %s>%s", e.Kind, e.Generation, e.From, e.To))
	}
	for _, want := range []string{
		"changed 1 >loaded", "changed 1 loaded>active", "refused 0 >", "changed 2 >loaded", "changed 2 loaded>canary", "restored 2 >canary", "restored 1 >active",
		"changed 2 canary>active", "rolled back 2 active>closed", "changed 3 >active",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no event %q in %q", want, got)
		}
	}
	do(s.Close())
	s = open(t, dir)
	r = start(t, Options{Store: s})
	if r.Version() != "1.0.1" || r.info(three).Stage != Active {
		t.Errorf("active is %s", r.Version())
	}
}

// A canary by pair takes all that is asked about two engines, one by request a
// share of each pair's transfers.
func TestCanaryByPairAndByRequest(t *testing.T) {
	const n = 200
	route := func(alternative uint32) *abi.RouteOut {
		return &abi.RouteOut{Decisions: []abi.Decision{{Alternative: alternative}}}
	}
	for _, by := range []By{ByRequest, ByPair} {
		r := start(t, Options{})
		both := record(feeds(2, same), feeds(2, same))
		r.activate(fixture.Routing("active", "1.0.0", both, route(0), nil))
		two := r.load(fixture.Routing("canary", "1.0.0", both, route(1), nil))
		r.do(r.Canary(two, Share{Percent: 50, By: by}))
		if !slices.Contains(r.Hooks(), "route") {
			t.Fatalf("hooks %v", r.Hooks())
		}
		mixed := 0
		chosen := map[uint32]int{}
		for pair := range n / 10 {
			seen := map[int]bool{}
			for request := range 10 {
				flows := [][]policy.Flow{{{Source: 0, Destination: 0, Bytes: 1, Pieces: 1}}, {{Source: 1, Destination: 0, Bytes: 1, Pieces: 1}}}
				d, _, err := r.Route(ctx, policy.RouteQuestion{
					Request: fmt.Sprintf("r%d-%d", pair, request), Model: "m", Tokens: 16, Alternatives: flows,
					Source: policy.Party{Name: fmt.Sprintf("prefill-%d", pair)}, Destination: policy.Party{Name: "decode"},
				})
				r.do(err)
				seen[d.Alternative] = true
				chosen[uint32(d.Alternative)]++
			}
			if len(seen) == 2 {
				mixed++
			}
		}
		if by == ByPair && mixed > 0 || by == ByRequest && mixed < n/10-3 {
			t.Errorf("by %s: %d of %d pairs have transfers of both policies", by, mixed, n/10)
		}
		if chosen[0] < n/5 || chosen[1] < n/5 {
			t.Errorf("by %s: %v of 50 per cent", by, chosen)
		}
	}
}

func TestPromote(t *testing.T) {
	r := start(t, Options{})
	var bad *ChangeError
	if _, _, err := r.Promote(ctx, 0, Share{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "load a policy first") {
		t.Errorf("nothing: %v", err)
	}
	one := r.activate(heads("1.0.0"))
	if _, _, err := r.Promote(ctx, one, Share{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "nothing further") {
		t.Errorf("what is active: %v", err)
	}
	two := r.load(heads("1.0.1"))
	three := r.load(heads("1.0.2"))
	if _, _, err := r.Promote(ctx, 0, Share{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprintf("generations [%d %d] are loaded: name one", two, three)) {
		t.Errorf("one of two: %v", err)
	}
	for _, want := range []Stage{Shadow, Canary, Active} {
		id, to, err := r.Promote(ctx, 0, Share{Percent: 5})
		if want == Shadow {
			id, to, err = r.Promote(ctx, three, Share{Percent: 5})
		}
		r.do(err)
		if id != three || to != want || r.info(three).Stage != want {
			t.Errorf("promoted %d to %s, want %d to %s", id, to, three, want)
		}
	}
	if _, _, err := r.Promote(ctx, 99, Share{}); !errors.As(err, &bad) {
		t.Errorf("unknown: %v", err)
	}
}

// A tap sees every question once, whatever was known before, from those that
// answer, and nothing after it was stopped.
func TestTap(t *testing.T) {
	r := start(t, Options{})
	r.activate(heads("1.0.0"))
	pair := sample.New(1).Pair()
	for range 2 {
		_, err := r.Remap(ctx, pair)
		r.do(err)
	}
	r.do(r.Shadow(r.load(heads("1.0.1"))))
	var seen []host.Call
	stop, err := r.Tap(func(c host.Call) { seen = append(seen, c) })
	r.do(err)
	for range 3 {
		_, err := r.Remap(ctx, pair)
		r.do(err)
	}
	r.idle()
	stop()
	if len(seen) != 1 || seen[0].Hook != "remap" || seen[0].Policy != r.Digest() || seen[0].Fuel == 0 {
		t.Errorf("%d calls: %+v", len(seen), seen)
	}
	_, err = r.Remap(ctx, sample.New(2).Pair())
	r.do(err)
	if len(seen) != 1 {
		t.Errorf("%d calls after it was stopped", len(seen))
	}
	r.do(r.Close())
	if _, err := r.Tap(func(host.Call) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestParseFallback(t *testing.T) {
	for _, f := range []Fallback{NoFallback, LastGood, Builtin} {
		if got, err := ParseFallback(f.String()); got != f || err != nil {
			t.Errorf("%q is read as %q, %v", f, got, err)
		}
	}
	if _, err := ParseFallback(""); err == nil || blame.Of(err) != blame.Operator {
		t.Errorf("nothing: %v", err)
	}
}
