package generation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
)

// A canary gets its share of the pairs and of the engines, the same ones in
// every agent; another canary gets others.
func TestCanaryShares(t *testing.T) {
	const n = 400
	chosen := func(r *rig, share float64, version string) []bool {
		r.activate(fixture.Saying("active", "1.0.0", nil, &abi.SelectLayoutOut{Index: 0}))
		r.do(r.Canary(r.load(fixture.Saying("canary", version, nil, &abi.SelectLayoutOut{Index: 1})), Share{Percent: share}))
		var out []bool
		for i := range n {
			c, err := r.SelectLayout(ctx, question(fmt.Sprintf("engine-%d", i)))
			r.do(err)
			out = append(out, c.Index == 1)
		}
		return out
	}
	count := func(b []bool) int {
		k := 0
		for _, v := range b {
			if v {
				k++
			}
		}
		return k
	}
	for _, share := range []float64{1, 10, 50, 99.5, 100} {
		r := start(t, Options{})
		got := chosen(r, share, "1.0.0")
		// Five standard deviations of a binomial distribution.
		p := share / 100
		if off := math.Abs(float64(count(got)) - n*p); off > 5*math.Sqrt(n*p*(1-p))+1e-9 {
			t.Errorf("share %v: %d of %d", share, count(got), n)
		}
		if share != 50 {
			continue
		}
		if again := chosen(start(t, Options{}), share, "1.0.0"); !slices.Equal(got, again) {
			t.Error("another agent's canary is asked by others")
		}
		if other := chosen(start(t, Options{}), share, "1.0.1"); slices.Equal(got, other) {
			t.Error("another canary is asked by the same")
		}
		for i := range 20 { // and one engine always gets the same
			q := question(fmt.Sprintf("engine-%d", i))
			q.Previous, q.Configuration = 1, []byte(`{"load": 3}`)
			if c, err := r.SelectLayout(ctx, q); err != nil || (c.Index == 1) != got[i] {
				t.Errorf("engine %d, with other things known: %+v, %v", i, c, err)
			}
		}
		// Pairs, and requests.
		canary := 0
		before := r.info(2).Counters.Calls
		for seed := range uint64(n) {
			_, err := r.Remap(ctx, sample.New(seed).Pair())
			if !isDeclined(err) {
				t.Fatal(err)
			}
		}
		canary = int(r.info(2).Counters.Calls - before)
		if math.Abs(float64(canary)-n/2) > 5*math.Sqrt(n/4) {
			t.Errorf("%d of %d pairs", canary, n)
		}
		before = r.info(2).Counters.Calls
		for i := range n {
			if _, _, err := r.Route(ctx, routed(fmt.Sprintf("request-%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		canary = int(r.info(2).Counters.Calls - before)
		if math.Abs(float64(canary)-n/2) > 5*math.Sqrt(n/4) {
			t.Errorf("%d of %d requests", canary, n)
		}
	}
}

func routed(request string) policy.RouteQuestion {
	return policy.RouteQuestion{
		Request: request, Model: "llama", Source: policy.Party{Name: "prefill"}, Destination: policy.Party{Name: "decode"}, Tokens: 1000,
		Alternatives: [][]policy.Flow{{{Source: 0, Destination: 0, Bytes: 1 << 20, Pieces: 64}}}, Providers: []policy.Provider{{Name: "shm", Memory: []policy.Memory{policy.HostMemory}}},
	}
}

// What a shadow answers is compared as plans: other words for the same plan
// agree, another plan differs, and no answer of it is ever given.
func TestShadowComparesPlans(t *testing.T) {
	const tp = 2
	pair := latent(t, tp)
	split := feeds(tp, same)
	for i := range tp { // layer by layer
		lower := split[i]
		split[i].Layers.To, lower.Layers.From = 1, 1
		split = append(split, lower)
	}
	cross := feeds(tp, func(r int) int { return (r + 1) % tp })
	for _, c := range []struct {
		name   string
		answer *abi.RemapOut
		want   Counters
		text   string
	}{
		{"the same words", record(feeds(tp, same)), Counters{Agreed: 1, Proved: 1, Answers: 1}, ""},
		{"other words", record(split), Counters{Agreed: 1, Proved: 1, Answers: 1}, ""},
		{"another plan", record(cross), Counters{Differed: 1, Proved: 1, Answers: 1}, "alternative 0: feeds ranks 1>0 0>1, the active policy feeds ranks 0>0 1>1"},
		{"more alternatives", record(feeds(tp, same), cross), Counters{Differed: 1, Proved: 1, Answers: 1}, "2 alternatives, the active policy gives 1"},
		{"declines", nil, Counters{Differed: 1, Declined: 1}, "declines: "},
		{"no plan", record(feeds(tp, same)[:1]), Counters{Unproved: 1, Answers: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, Options{})
			r.activate(fixture.Saying("active", "1.0.0", record(feeds(tp, same)), nil))
			id := r.load(fixture.Saying("candidate", "1.0.0", c.answer, &abi.SelectLayoutOut{Index: 1}))
			r.do(r.Shadow(id))
			answer, err := r.Remap(ctx, pair)
			r.do(err)
			if as := answer.Alternatives[0]; len(as) != tp || as[0].Source != 0 {
				t.Errorf("the shadow's answer was given: %+v", as)
			}
			r.idle()
			got := r.info(id).Counters
			c.want.Calls = 1
			got.Spent = 0 // a small guest's is none of the matter
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			differences := r.Status().Differences
			if (c.text != "") != (len(differences) == 1) {
				t.Fatalf("differences %+v", differences)
			}
			if c.text != "" {
				if d := differences[0]; !strings.Contains(d.Text, c.text) || d.Candidate != id || d.Hook != "remap" || d.About != "engines prefill and decode" {
					t.Errorf("difference %+v, want %q", d, c.text)
				}
				r.until("an event", func() bool { return len(r.told.of(Differs)) == 1 })
			}
			// Once is enough for what was compared, and a fault counts every time.
			_, err = r.Remap(ctx, pair)
			r.do(err)
			r.idle()
			want := int64(1)
			if c.want.Unproved > 0 {
				want = 2
			}
			if got := r.info(id).Counters.Calls; got != want {
				t.Errorf("asked %d times about one pair, want %d", got, want)
			}
		})
	}
}

// Layout selections and decisions of transfers are compared too.
func TestShadowComparesChoices(t *testing.T) {
	r := start(t, Options{})
	r.activate(fixture.Saying("active", "1.0.0", nil, &abi.SelectLayoutOut{Index: 0}))
	id := r.load(fixture.Saying("candidate", "1.0.0", nil, &abi.SelectLayoutOut{Index: 1}))
	r.do(r.Shadow(id))
	for range 2 {
		if c, err := r.SelectLayout(ctx, question("a")); err != nil || c.Index != 0 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	if _, _, err := r.Route(ctx, routed("request")); err != nil {
		t.Error(err)
	}
	if _, err := r.Remap(ctx, sample.New(3).Pair()); !isDeclined(err) {
		t.Error(err)
	}
	r.idle()
	if c := r.info(id).Counters; c.Differed != 1 || c.Agreed != 2 || c.Calls != 3 || c.Declined != 1 {
		t.Errorf("%+v", c)
	}
	if d := r.Status().Differences; len(d) != 1 || d[0].Text != "chooses hnd, the active policy nhd" || d[0].About != "engine a" {
		t.Errorf("differences %+v", d)
	}
}

// An answer that costs far more than the built-in policy's is counted and told,
// and given all the same.
func TestCostlyAnswers(t *testing.T) {
	const tp = 8
	pair := latent(t, tp)
	for _, c := range []struct {
		name   string
		from   func(r int) int
		costly int64
	}{
		{"spread", func(r int) int { return tp - 1 - r }, 0},
		{"on two", func(r int) int { return r % 2 }, 0}, // 4 times is not over 4 times
		{"on one", func(r int) int { return 0 }, 1},
	} {
		r := start(t, Options{})
		id := r.activate(fixture.Saying("guest", "1.0.0", record(feeds(tp, c.from)), &abi.SelectLayoutOut{}))
		for range 3 {
			if _, err := r.Remap(ctx, pair); err != nil {
				t.Fatal(err)
			}
		}
		r.idle()
		if got := r.info(id).Counters; got.Costly != c.costly || got.Weighed != 1 || got.Answers != 3 || got.Faults() != 0 {
			t.Errorf("%s: %+v", c.name, got)
		}
		r.until("the event", func() bool { return len(r.told.of(Costly)) == int(c.costly) })
		for _, e := range r.told.of(Costly) {
			if !strings.Contains(e.Reason, "costs 8.0 times what policy heads's answer does") {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
	}
	// A layout that makes small pieces of everything.
	r := start(t, Options{Limits: Limits{Costly: 1.5}})
	id := r.activate(fixture.Saying("guest", "1.0.0", nil, &abi.SelectLayoutOut{Index: 1}))
	q := question("a")
	if _, err := r.SelectLayout(ctx, q); err != nil {
		t.Fatal(err)
	}
	r.idle()
	in, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	if costs := choiceCosts(in); 2*costs[1] <= 3*costs[0] {
		t.Fatalf("costs %v: the question is none for this test", costs)
	}
	if got := r.info(id).Counters; got.Costly != 1 || got.Weighed != 1 {
		t.Errorf("%+v", got)
	}
	// The built-in policy is not weighed against itself.
	r = start(t, Options{})
	wasm, _ := policies.Get("heads")
	id = r.activate(wasm)
	if _, err := r.Remap(ctx, pair); err != nil {
		t.Fatal(err)
	}
	r.idle()
	if got := r.info(id).Counters; got.Weighed != 0 {
		t.Errorf("%+v", got)
	}
}
