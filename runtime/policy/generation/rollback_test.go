package generation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

// judged does what an agent does with an answer: it builds and proves the plan,
// and says what came of it.
func (r *rig) judged(pair *plan.Pair) error {
	answer, err := r.Remap(ctx, pair)
	if err != nil {
		return err
	}
	pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
	if err == nil {
		_, err = proof.Check(pair, pl)
	}
	r.Judge(pair, err)
	return err
}

// wrongs are policies that do wrong, each in a way of its own.
func wrongs(tp int) map[string]struct {
	wasm []byte
	kind FaultKind
} {
	unknown := record(feeds(tp, same))
	unknown.Alternatives[0].Assignments[0].Source = 99
	gap := record(feeds(tp, same)[1:])
	return map[string]struct {
		wasm []byte
		kind FaultKind
	}{
		"trap":              {fixture.Guest("wrong", "1.0.0", fixture.Trap(), fixture.Trap()), Trap},
		"unreadable answer": {fixture.Guest("wrong", "1.0.0", fixture.Status(abi.StatusOk), fixture.Status(abi.StatusOk)), Faulty},
		"unknown status":    {fixture.Guest("wrong", "1.0.0", fixture.Status(77), fixture.Status(77)), Faulty},
		"unknown rank":      {fixture.Saying("wrong", "1.0.0", unknown, nil), Faulty},
		"gap":               {fixture.Saying("wrong", "1.0.0", gap, nil), Proof},
	}
}

func (r *rig) counted(id uint64, k FaultKind) int64 {
	c := r.info(id).Counters
	return map[FaultKind]int64{Trap: c.Traps, Fuel: c.Fuel, Faulty: c.Faulty, Proof: c.Unproved}[k]
}

// A policy that does wrong is taken out, whatever it did and wherever in the
// line it stood, and the one before answers again.
func TestRollbackOnEachReason(t *testing.T) {
	const tp = 2
	pair := latent(t, tp)
	good := fixture.Saying("good", "1.0.0", record(feeds(tp, same)), &abi.SelectLayoutOut{})
	for name, wrong := range wrongs(tp) {
		t.Run("active/"+name, func(t *testing.T) {
			r := start(t, Options{})
			one := r.activate(good)
			r.do(r.judged(pair))
			two := r.activate(wrong.wasm)
			for n := range 3 {
				if err := r.judged(pair); FaultOf(err) != wrong.kind || blame.Of(err) != blame.Policy && wrong.kind != Proof {
					t.Fatalf("call %d: %v is fault %q of %s, want %q", n, err, FaultOf(err), blame.Of(err), wrong.kind)
				}
			}
			r.reaches(two, Closed)
			r.until("the good one again", func() bool { return r.Name() == "good" })
			r.do(r.judged(pair))
			r.reaches(one, Closed)
			s := r.Status()
			active := s.Generations[0]
			if active.ID == one || active.Stage != Active || active.Digest != r.info(one).Digest || s.LastGood != nil {
				t.Errorf("%+v", s)
			}
			if r.counted(two, wrong.kind) != 3 || r.info(two).Counters.Faults() != 3 {
				t.Errorf("%+v", r.info(two).Counters)
			}
			r.do(r.Close()) // which tells what is still to be told
			back := r.told.of(RolledBack)
			if len(back) != 1 || back[0].Generation != two || back[0].Fault != wrong.kind || !strings.Contains(back[0].Reason, "3 faults in 3 calls") {
				t.Errorf("events %+v", back)
			}
			if faults := r.told.of(Fault); len(faults) == 0 || faults[0].Fault != wrong.kind || faults[0].Generation != two {
				t.Errorf("events %+v", faults)
			}
		})
		for stage, put := range map[Stage]func(r *rig, id uint64) error{
			Canary: func(r *rig, id uint64) error { return r.Canary(id, Share{Percent: 100}) },
			Shadow: func(r *rig, id uint64) error { return r.Shadow(id) },
		} {
			t.Run(string(stage)+"/"+name, func(t *testing.T) {
				r := start(t, Options{})
				r.activate(good)
				two := r.load(wrong.wasm)
				r.do(put(r, two))
				for range 3 {
					err := r.judged(pair)
					if stage == Shadow {
						r.do(err) // nobody notices
						r.idle()
					} else if FaultOf(err) != wrong.kind {
						t.Fatalf("%v is fault %q, want %q", err, FaultOf(err), wrong.kind)
					}
				}
				r.reaches(two, Closed)
				r.do(r.judged(pair))
				if r.Name() != "good" || r.counted(two, wrong.kind) != 3 {
					t.Errorf("%s, %+v", r.Name(), r.info(two).Counters)
				}
				r.do(r.Close()) // which tells what is still to be told
				if back := r.told.of(RolledBack); len(back) != 1 || back[0].Generation != two || back[0].From != stage || back[0].Fault != wrong.kind {
					t.Errorf("events %+v", back)
				}
			})
		}
	}
}

// A guest that ran out of fuel is no guest that trapped.
func TestRollbackOnFuel(t *testing.T) {
	r := start(t, Options{})
	r.activate(heads("1.0.0"))
	two := r.activate(heads("1.0.1"))
	g := r.line.Load().active
	for range 3 {
		r.observe(g, blame.On(blame.Policy, fmt.Errorf("policy: %w", &host.Fault{Policy: "heads", Hook: "remap", Reason: "ran out of fuel", Err: host.ErrFuel})))
	}
	r.reaches(two, Closed)
	if c := r.info(two).Counters; c.Fuel != 3 || c.Traps != 0 || r.Version() != "1.0.0" {
		t.Errorf("%+v, active is %s", c, r.Version())
	}
	r.do(r.Close()) // which tells what is still to be told
	if back := r.told.of(RolledBack); len(back) != 1 || back[0].Fault != Fuel {
		t.Errorf("events %+v", back)
	}
}

// What is no fault of the policy takes nothing from it.
func TestWhatIsNoFault(t *testing.T) {
	r := start(t, Options{Limits: Limits{Faults: 1, Rate: 1e-9}})
	r.activate(fixture.Saying("good", "1.0.0", record(feeds(2, same)), &abi.SelectLayoutOut{}))
	pair := latent(t, 2)
	id := r.activate(builtin("seedbug", "1.0.0")) // declines every layout
	for range 50 {
		if _, err := r.SelectLayout(ctx, question("a")); !isDeclined(err) {
			t.Fatal(err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.RemapFor(cancelled, policy.RemapQuestion{Pair: sample.New(7).Pair()}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var unasked *policy.QuestionError
	if _, err := r.SelectLayout(ctx, policy.Question{}); !errors.As(err, &unasked) {
		t.Errorf("no question: %v", err)
	}
	if _, err := r.Remap(ctx, pair); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		nil, &plan.TooLarge{What: "runs", Need: 2, Limit: 1}, context.DeadlineExceeded,
		blame.On(blame.Peer, errors.New("the peer went away")), blame.On(blame.Operator, errors.New("misconfigured")), errors.New("something here"),
	} {
		r.Judge(pair, err)
	}
	r.Judge(sample.New(8).Pair(), &proof.Fault{}) // of a pair that nobody asked about
	if c := r.info(id).Counters; c.Faults() != 0 || c.Declined != 50 || c.Failed != 2 || c.Proved != 1 || c.Answers != 1 || c.Calls != 53 {
		t.Errorf("%+v", c)
	}
	if r.Name() != "seedbug" || len(r.told.of(RolledBack)) > 0 {
		t.Errorf("%s is active, events %+v", r.Name(), r.told.of(RolledBack))
	}
	r.Judge(pair, &proof.Fault{Kind: proof.Gap})
	r.until("the good one again", func() bool { return r.Name() == "good" })
}

// Faults count as a rate over a window, and no further back.
func TestRateOverAWindow(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	now := began
	r := start(t, Options{Now: func() time.Time { return now }, Limits: Limits{Window: time.Minute, Faults: 3, Rate: 0.1}})
	r.activate(heads("1.0.0"))
	id := r.activate(heads("1.0.1"))
	g := r.line.Load().active
	fault := &host.Fault{Policy: "heads", Hook: "remap", Reason: "answered what cannot be read"}
	step := func(calls, faults int) {
		for range calls {
			r.observe(g, nil)
		}
		for range faults {
			r.observe(g, blame.On(blame.Policy, fault))
		}
	}
	step(97, 3) // 3 of 100: under the rate
	if g.condemned.Load() {
		t.Fatal("rolled back at 3 per cent, allowed are 10")
	}
	now = began.Add(2 * time.Minute) // forgotten
	step(0, 2)                       // every call, and under the least number
	if g.condemned.Load() {
		t.Fatal("rolled back for 2 faults, 3 are wanted")
	}
	now = began.Add(2*time.Minute + 50*time.Second) // still in the window
	step(0, 1)
	if !g.condemned.Load() {
		t.Fatalf("not rolled back: %+v", r.info(id).Counters)
	}
	r.reaches(id, Closed)
}

// Where there is nothing to go back to, the policy stays and fails, and that is
// told.
func TestNothingToGoBackTo(t *testing.T) {
	r := start(t, Options{Limits: Limits{Faults: 2}})
	id := r.activate(wrongs(2)["trap"].wasm)
	for range 2 {
		if _, err := r.Remap(ctx, latent(t, 2)); FaultOf(err) != Trap {
			t.Fatal(err)
		}
	}
	r.until("the event", func() bool { return len(r.told.of(RollbackFailed)) == 1 })
	if e := r.told.of(RollbackFailed)[0]; e.Generation != id || e.Fault != Trap || !strings.Contains(e.Reason, ErrNoLastGood.Error()) {
		t.Errorf("%+v", e)
	}
	r.until("another chance", func() bool { return !r.line.Load().active.condemned.Load() })
	if _, err := r.Remap(ctx, latent(t, 2)); FaultOf(err) != Trap || r.info(id).Stage != Active {
		t.Errorf("%v, %+v", err, r.info(id))
	}
	// It can be replaced.
	r.activate(heads("1.0.0"))
	r.do(r.judged(latent(t, 2)))
}

// There is no fallback unless one is configured; then it answers for faults and
// for nothing else, and that is counted, told and seen.
func TestFallback(t *testing.T) {
	const tp = 2
	pair := latent(t, tp)
	good := fixture.Saying("good", "1.0.0", record(feeds(tp, same)), nil)
	lax := Limits{Faults: 1000}
	for _, c := range []struct {
		fallback Fallback
		by       string // who answers
	}{{NoFallback, ""}, {LastGood, "good"}, {Builtin, "heads"}} {
		t.Run(string(c.fallback), func(t *testing.T) {
			r := start(t, Options{Fallback: c.fallback, Limits: lax})
			r.activate(good)
			id := r.activate(fixture.Guest("wrong", "1.0.0", fixture.Trap(), fixture.Status(abi.StatusDeclined)))
			for range 5 {
				answer, err := r.Remap(ctx, pair)
				if c.by == "" {
					if FaultOf(err) != Trap || len(answer.Alternatives) > 0 {
						t.Fatalf("%+v, %v", answer, err)
					}
				} else if err != nil || len(answer.Alternatives) != 1 {
					t.Fatalf("%+v, %v", answer, err)
				}
			}
			if _, err := r.SelectLayout(ctx, question("a")); !isDeclined(err) {
				t.Errorf("declined on purpose: %v", err)
			}
			s := r.Status()
			i := r.info(id)
			if c.by == "" {
				if i.Counters.Replaced != 0 || s.FallbackBy != nil || len(r.told.of(Replaced)) > 0 {
					t.Errorf("%+v", s)
				}
				return
			}
			if i.Counters.Replaced != 5 || i.Counters.Traps != 5 || s.Fallback != c.fallback || s.FallbackBy == nil || s.FallbackBy.Name != c.by || s.FallbackBy.Counters.Answers != 5 || r.Name() != "wrong" {
				t.Errorf("%+v, by %+v", i, s.FallbackBy)
			}
			r.until("the event", func() bool { return len(r.told.of(Replaced)) > 0 })
			if e := r.told.of(Replaced)[0]; e.Generation != id || e.Fault != Trap || !strings.Contains(e.Reason, "policy "+c.by) {
				t.Errorf("%+v", e)
			}
		})
	}
	// A fallback that fails too leaves the first error, and says so.
	r := start(t, Options{Fallback: LastGood, Limits: lax})
	r.activate(fixture.Guest("older", "1.0.0", fixture.Status(77), fixture.Trap()))
	r.activate(fixture.Guest("wrong", "1.0.0", fixture.Trap(), fixture.Trap()))
	if _, err := r.Remap(ctx, pair); FaultOf(err) != Trap || !strings.Contains(err.Error(), "status 77") || !strings.Contains(err.Error(), "and the fallback, policy older 1.0.0") {
		t.Errorf("both fail: %v", err)
	}
	if _, err := New(ctx, Options{Fallback: "something"}); err == nil || blame.Of(err) != blame.Operator {
		t.Errorf("an unknown fallback: %v", err)
	}
	if _, err := New(ctx, Options{Builtin: "something"}); err == nil || blame.Of(err) != blame.Operator {
		t.Errorf("an unknown built-in policy: %v", err)
	}
}

// The history is bounded, and so is what a flood of faults tells.
func TestEventsAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := start(t, Options{Now: func() time.Time { return now }, Limits: Limits{Faults: 1 << 30}})
	r.activate(wrongs(2)["trap"].wasm)
	for range 1000 {
		_, _ = r.Remap(ctx, latent(t, 2)) // traps
	}
	for n := range maxHistory {
		r.do(r.Canary(r.load(heads("1.0.0")), Share{Percent: float64(n%2 + 1)}))
	}
	history, err := r.History()
	r.do(err)
	if len(history) != maxHistory {
		t.Errorf("%d events in the history, want %d", len(history), maxHistory)
	}
	r.do(r.Close())
	if faults := r.told.of(Fault); len(faults) != 1 || faults[0].Count != 1 {
		t.Errorf("%d events of 1000 faults within one second, want 1", len(faults))
	}
}
