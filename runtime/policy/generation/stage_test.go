package generation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
)

// A generation goes through every stage, each of which is an event, and the
// questions go where the stages say.
func TestStages(t *testing.T) {
	r := start(t, Options{})
	pair := sample.New(1).Pair()
	if _, err := r.Remap(ctx, pair); !errors.Is(err, ErrNoPolicy) || blame.Of(err) != blame.Operator {
		t.Errorf("without a policy: %v", err)
	}
	if r.Name() != "" || r.Version() != "" || r.Digest() != (geometry.Digest{}) {
		t.Errorf("%s %s %s without a policy", r.Name(), r.Version(), r.Digest())
	}
	one := r.activate(heads("1.0.1"))
	two := r.load(heads("1.0.2"))
	if again := r.load(heads("1.0.2")); again != two {
		t.Errorf("the same module is generation %d and %d", two, again)
	}
	if r.Version() != "1.0.1" || r.Name() != "heads" || r.Digest() != r.info(one).Digest {
		t.Errorf("active is %s %s %s", r.Name(), r.Version(), r.Digest())
	}
	answer, err := r.Remap(ctx, pair)
	r.do(err)
	if len(answer.Alternatives) == 0 || r.info(one).Counters.Answers != 1 || r.info(two).Counters.Calls != 0 {
		t.Errorf("%+v, %+v", r.info(one).Counters, r.info(two).Counters)
	}
	r.do(r.Shadow(two))
	_, err = r.Remap(ctx, pair)
	r.do(err)
	r.idle()
	if c := r.info(two).Counters; c.Calls != 1 || c.Agreed != 1 || c.Proved != 1 || c.Differed != 0 {
		t.Errorf("in shadow: %+v", c)
	}
	r.do(r.Canary(two, Share{Percent: 100}))
	_, err = r.Remap(ctx, pair)
	r.do(err)
	if c := r.info(two).Counters; c.Calls != 2 || c.Answers != 2 {
		t.Errorf("as a canary of 100 per cent: %+v", c)
	}
	if i := r.info(two); i.Share.Percent != 100 || r.Version() != "1.0.1" {
		t.Errorf("%+v, active is %s", i, r.Version())
	}
	id, _, err := r.Promote(ctx, 0, Share{})
	r.do(err)
	if id != two || r.Version() != "1.0.2" {
		t.Errorf("promoted %d, active is %s", id, r.Version())
	}
	r.reaches(one, Closed)
	if good := r.Status().LastGood; good == nil || good.ID != one {
		t.Errorf("last good is %+v, want generation %d", good, one)
	}
	three, err := r.Rollback(ctx, "an operator's wish")
	r.do(err)
	if r.Version() != "1.0.1" || r.info(three).Stage != Active || three <= two || r.Status().LastGood != nil {
		t.Errorf("after the rollback: %+v", r.Status())
	}
	r.reaches(two, Closed)
	if _, err := r.Rollback(ctx, "once more"); !errors.Is(err, ErrNoLastGood) {
		t.Errorf("a second rollback: %v", err)
	}
	four := r.load(heads("1.0.4"))
	r.do(r.Drop(four))
	r.reaches(four, Closed)

	history, err := r.History()
	r.do(err)
	var got []string
	for _, e := range history {
		got = append(got, fmt.Sprintf("%s %d %s>%s", e.Kind, e.Generation, e.From, e.To))
		if e.At.IsZero() || e.Name != "heads" || e.Version == "" || e.Digest == "" {
			t.Errorf("event %+v", e)
		}
	}
	for _, want := range []string{
		"changed 1 >loaded", "changed 1 loaded>active", "changed 2 >loaded", "changed 2 loaded>shadow", "changed 2 shadow>canary", "changed 2 canary>active",
		"changed 1 active>draining", "changed 1 draining>closed", "rolled back 2 active>draining", "changed 3 >active", "changed 2 draining>closed",
		"changed 4 >loaded", "changed 4 loaded>draining", "changed 4 draining>closed",
	} {
		if i := slices.Index(got, want); i < 0 {
			t.Errorf("no event %q in %q", want, got)
		} else {
			got = slices.Delete(got, i, i+1)
		}
	}
	if len(got) > 0 {
		t.Errorf("more events: %q", got)
	}
}

func TestChangesThatCannotBe(t *testing.T) {
	r := start(t, Options{})
	one := r.load(heads("1.0.0"))
	var bad *ChangeError
	refused := func(name string, err error, text string) {
		t.Helper()
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), text) || blame.Of(err) != blame.Operator {
			t.Errorf("%s: %v, want %q", name, err, text)
		}
	}
	refused("shadow of nothing", r.Shadow(one), "no generation is active")
	refused("canary of nothing", r.Canary(one, Share{Percent: 5}), "no generation is active")
	_, _, err := r.Promote(ctx, 0, Share{})
	refused("promote what is loaded", err, "no generation is active")
	r.do(r.Activate(ctx, one))
	refused("activate twice", r.Activate(ctx, one), "it is active")
	refused("drop what is active", r.Drop(one), "it is active")
	refused("unknown", r.Shadow(99), "no such generation")
	two, three := r.load(heads("1.0.2")), r.load(heads("1.0.3"))
	for _, p := range []float64{0, -1, 100.1, math.NaN(), math.Inf(1)} {
		refused(fmt.Sprint(p), r.Canary(two, Share{Percent: p}), "is no share")
	}
	r.do(r.Shadow(two))
	refused("a second shadow", r.Shadow(three), fmt.Sprintf("generation %d is in shadow", two))
	r.do(r.Canary(three, Share{Percent: 10}))
	refused("a second canary", r.Canary(two, Share{Percent: 10}), fmt.Sprintf("generation %d is the canary", three))
	r.do(r.Canary(three, Share{Percent: 20}))
	if p := r.info(three).Share.Percent; p != 20 {
		t.Errorf("share %v after it was changed to 20", p)
	}
	r.do(r.Drop(three))
	r.do(r.Canary(two, Share{Percent: 10}))
	r.do(r.Shadow(two)) // and back
	if i := r.info(two); i.Stage != Shadow || i.Share.Percent != 0 {
		t.Errorf("%+v", i)
	}
	// A bad module is not let in, and says so.
	for _, wasm := range [][]byte{nil, []byte("\x00asm\x01\x00\x00\x00"), heads("1.0.0")[:500]} {
		if _, err := r.Load(ctx, Module{Wasm: wasm}); err == nil || blame.Of(err) != blame.Policy {
			t.Errorf("%d bytes: %v", len(wasm), err)
		}
	}
	for n := 4; ; n++ {
		if _, err = r.Load(ctx, Module{Wasm: fixture.Saying("say", fmt.Sprintf("1.0.%d", n), nil, nil)}); err != nil {
			break
		}
		if n > 2*maxOpen {
			t.Fatal("any number of generations is open")
		}
	}
	refused("too many", err, "generations are open")
	r.do(r.Close())
	if _, err := r.Load(ctx, Module{Wasm: heads("2.0.0")}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for _, err := range []error{r.Shadow(two), r.Canary(two, Share{Percent: 1}), r.Activate(ctx, two), r.Drop(two), r.Close()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := r.SelectLayout(ctx, question("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestDowngrades(t *testing.T) {
	r := start(t, Options{})
	r.activate(heads("1.10.0"))
	for _, v := range []string{"1.9.9", "1.10.0", "0.99.0", "1.10.1"} {
		_, err := r.Load(ctx, Module{Wasm: fixture.Rename(heads(v), "heads", v)})
		var bad *DowngradeError
		if low := v == "1.9.9" || v == "0.99.0"; low != errors.As(err, &bad) || !low && err != nil {
			t.Errorf("version %s beside 1.10.0: %v", v, err)
		} else if low && (bad.Active != "1.10.0" || bad.Version != v || blame.Of(err) != blame.Operator) {
			t.Errorf("%+v", bad)
		}
	}
	if _, err := r.Load(ctx, Module{Wasm: heads("1.9.9"), AllowDowngrade: true}); err != nil {
		t.Errorf("allowed: %v", err)
	}
	if _, err := r.Load(ctx, Module{Wasm: builtin("seedbug", "0.0.1")}); err != nil {
		t.Errorf("another policy's version: %v", err)
	}
	r.until("a refusal for each", func() bool { return len(r.told.of(Refused)) == 2 })
}

// The manager is what an agent takes.
var _ interface {
	Name() string
	Digest() geometry.Digest
	Remap(ctx context.Context, pair *plan.Pair) (plan.Answer, error)
} = (*Manager)(nil)
