package generation

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

// 300 policies take each other's place while calls go on: none fails, none gets
// an answer that no policy gave, and all that were replaced are closed.
func TestHotSwapsUnderLoad(t *testing.T) {
	const swaps, workers, tp = 300, 4, 2
	r := start(t, Options{})
	pair := latent(t, tp)
	other := sample.New(1).Pair()
	answers := func(v int) *abi.RemapOut {
		return record(feeds(tp, func(rank int) int { return (rank + v) % tp }))
	}
	q := question("prefill")
	wasm := func(v int) []byte {
		return fixture.SayingAfter(20000, "swap", fmt.Sprintf("1.0.%d", v), answers(v), &abi.SelectLayoutOut{Index: uint32(v % 2)})
	}
	r.activate(wasm(0))
	var wg sync.WaitGroup
	var stop atomic.Bool
	var calls, failed atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				q := q
				q.Engine.Name = fmt.Sprintf("prefill-%d-%d", w, n) // a question that no cache knows
				choice, err := r.SelectLayout(ctx, q)
				calls.Add(1)
				if err != nil || choice.Index > 1 {
					failed.Add(1)
					t.Errorf("select_layout: %+v, %v", choice, err)
				}
				answer, err := r.Remap(ctx, pair)
				calls.Add(1)
				if err != nil || len(answer.Alternatives) != 1 || len(answer.Alternatives[0]) != tp {
					failed.Add(1)
					t.Errorf("remap: %+v, %v", answer, err)
					return
				}
				if as := answer.Alternatives[0]; as[1].Source != (as[0].Source+1)%tp {
					failed.Add(1)
					t.Errorf("remap: an answer of two policies: %+v", as)
				}
				r.Judge(pair, nil)
				r.Judge(other, nil) // never asked about
			}
		})
	}
	for v := 1; v <= swaps; v++ {
		for r.countOpen() > maxOpen-2 { // the calls in progress hold those that drain
			time.Sleep(time.Millisecond)
		}
		id := r.load(wasm(v))
		switch v % 3 {
		case 0:
			r.do(r.Shadow(id))
		case 1:
			r.do(r.Canary(id, Share{Percent: 50}))
		}
		r.do(r.Activate(ctx, id))
		if want := fmt.Sprintf("1.0.%d", v); r.Version() != want {
			t.Fatalf("active is %s, want %s", r.Version(), want)
		}
	}
	stop.Store(true)
	wg.Wait()
	if failed.Load() > 0 || calls.Load() < swaps {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	r.until("all but one closed", func() bool { return r.countOpen() == 1 })
	t.Logf("%d swaps, %d calls, %d failed", swaps, calls.Load(), failed.Load())
}

func (r *rig) countOpen() int {
	n := 0
	for _, i := range r.Status().Generations {
		if i.Stage != Closed {
			n++
		}
	}
	return n
}

// held makes the calls of the policy "slow" wait in the guest's hands until they
// are let go.
func held() (opt policy.Options, letGo func()) {
	gate := make(chan struct{})
	slow := geometry.Digest(sha256.Sum256(slowModule()))
	return policy.Options{Observe: func(c host.Call) {
		if c.Policy == slow {
			<-gate
		}
	}}, sync.OnceFunc(func() { close(gate) })
}

func slowModule() []byte {
	return fixture.Saying("slow", "1.0.0", nil, &abi.SelectLayoutOut{Index: 1})
}

// A call that began before the change ends with the policy that it began with,
// which is closed only then; the calls after it are not held up.
func TestDrainingWaitsForItsCalls(t *testing.T) {
	opt, letGo := held()
	r := start(t, Options{Policy: opt})
	defer letGo()
	slow := r.activate(slowModule())
	type result struct {
		choice policy.Choice
		err    error
	}
	got := make(chan result, 1)
	go func() {
		c, err := r.SelectLayout(ctx, question("a"))
		got <- result{c, err}
	}()
	r.until("the slow call", func() bool { return r.info(slow).Counters.InFlight == 1 && r.info(slow).Guest == 1 })
	fast := r.activate(fixture.Saying("fast", "1.0.0", nil, &abi.SelectLayoutOut{Index: 0}))
	if c, err := r.SelectLayout(ctx, question("a")); err != nil || c.Index != 0 {
		t.Errorf("beside the slow call: %+v, %v", c, err)
	}
	if stage := r.info(slow).Stage; stage != Draining || len(got) != 0 {
		t.Errorf("the old one is %s while it has a call", stage)
	}
	letGo()
	if v := <-got; v.err != nil || v.choice.Index != 1 {
		t.Errorf("the slow call: %+v", v)
	}
	r.reaches(slow, Closed)
	if r.info(fast).Counters.Answers != 1 || r.info(slow).Counters.Answers != 1 {
		t.Errorf("%+v", r.Status())
	}
}

// Close waits for the calls in progress, which end as they would have.
func TestCloseWaitsForCalls(t *testing.T) {
	opt, letGo := held()
	r := start(t, Options{Policy: opt})
	defer letGo()
	id := r.activate(slowModule())
	got, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.SelectLayout(ctx, question("a"))
		got <- err
	}()
	r.until("the call", func() bool { return r.info(id).Guest == 1 })
	go func() { closed <- r.Close() }()
	r.until("the end of the line", func() bool { return r.line.Load().closed })
	if _, err := r.SelectLayout(ctx, question("b")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if len(closed) != 0 {
		t.Error("Close returned before the call")
	}
	letGo()
	r.do(<-got)
	r.do(<-closed)
}
