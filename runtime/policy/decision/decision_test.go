package decision_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
)

func file(t *testing.T, name string) *pairfile.File {
	t.Helper()
	return fixture.File(t, "../../../testdata/pairs/"+name+".yaml")
}

func opened(t *testing.T, wasm []byte) *policy.Policy {
	t.Helper()
	p, err := policy.Open(context.Background(), wasm, policy.Options{InProcess: true})
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

func builtin(t *testing.T, name string) *policy.Policy {
	wasm, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	return opened(t, wasm)
}

// Layouts are decided first, the source's before the destination's, and what is
// decided is what the pair then has.
func TestMake(t *testing.T) {
	f := file(t, "groups-can")
	d, err := decision.Make(context.Background(), f, builtin(t, "heads"), decision.Site{Configuration: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Layouts) != 3 || len(d.Decided) != 3 || !d.Proven.Valid() || d.Alternative != 0 || d.Reasons["assignments"] == "" {
		t.Errorf("%+v", d)
	}
	for of, i := range d.Decided {
		if want := f.Side(of.Side).Groups[of.Group].Can[i]; d.Layouts[of.Name(f)] != want {
			t.Errorf("%s: %s was decided, %s is said", of.Name(f), want, d.Layouts[of.Name(f)])
		}
	}
	if err := d.Pair.Validate(); err != nil {
		t.Error(err)
	}
}

// A policy that gives no layout leaves the pair undecided: what each side can
// do is said, and no layout is taken.
func TestUndecided(t *testing.T) {
	_, err := decision.Make(context.Background(), file(t, "can"), builtin(t, "seedbug"), decision.Site{})
	var undecided *decision.Undecided
	var declined *policy.Declined
	if !errors.As(err, &undecided) || !errors.As(err, &declined) || len(undecided.Fields) != 1 || undecided.Fields[0].Source != "vllm/packed-hnd, vllm/packed-nhd" || undecided.Fields[0].Destination != "vllm/packed-nhd" {
		t.Errorf("error %+v", err)
	}
}

// halves are the assignments of two ranks of four heads each to four of two.
func halves() (as []abi.Assignment) {
	for d := range uint32(4) {
		as = append(as, abi.Assignment{Components: 3, Destination: d, Source: d / 2, LayerTo: 1, HeadFrom: 2 * d, HeadTo: 2*d + 2})
	}
	return as
}

// The first alternative that is proved counts, and a transfer is routed among
// those that are; where none is, it is the first that is complained of.
func TestAlternatives(t *testing.T) {
	whole := abi.Alternative{Assignments: halves()}
	gap := abi.Alternative{Assignments: halves()[1:]}
	p := opened(t, fixture.Saying("two", "1.0.0", &abi.RemapOut{Alternatives: []abi.Alternative{gap, whole, gap, whole}, Reason: "both ways"}, nil))
	d, err := decision.Make(context.Background(), file(t, "seed"), p, decision.Site{})
	if err != nil || d.Alternative != 1 || d.Reasons["assignments"] != "both ways" || len(d.Answer.Alternatives) != 4 {
		t.Fatalf("%+v (%v)", d, err)
	}
	r, err := d.Route(context.Background(), p, decision.Site{}, 100)
	if err != nil || len(r.Question.Alternatives) != 2 || len(r.Question.Alternatives[0]) != 4 || r.Question.Tokens != 100 || r.Decision.Reason == "" {
		t.Errorf("%+v (%v)", r, err)
	}
	none := opened(t, fixture.Saying("none", "1.0.0", &abi.RemapOut{Alternatives: []abi.Alternative{gap, {}}}, nil))
	_, err = decision.Make(context.Background(), file(t, "seed"), none, decision.Site{})
	var fault *proof.Fault
	if !errors.As(err, &fault) || fault.Rank != 0 {
		t.Errorf("error %v", err)
	}
	if _, _, err := decision.Prove(d.Pair, policy.Answer{}); err == nil {
		t.Error("no alternative was proved")
	}
}
