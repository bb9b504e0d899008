package generation

import (
	"context"
	"errors"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/examine"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
)

// A module whose answers are not proved, or that traps, is not let in: it is
// asked before anything counts. One that declines is.
func TestLoadConforms(t *testing.T) {
	heads, _ := policies.Get("heads")
	told := &listener{}
	m, err := New(ctx, Options{Policy: policy.Options{InProcess: true}, Events: told.add})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name  string
		wasm  []byte
		stage examine.Stage // empty: it is let in
	}{
		{"heads", heads, ""},
		{"one that declines", fixture.Saying("no", "1.0.0", nil, nil), ""},
		{"one that traps", fixture.Guest("trap", "1.0.0", fixture.Trap(), fixture.Status(abi.StatusDeclined)), examine.Vectors},
		{"one that brings nothing", fixture.Saying("gap", "1.0.0", &abi.RemapOut{Alternatives: []abi.Alternative{{}}}, nil), examine.Proof},
	} {
		id, err := m.Load(ctx, Module{Wasm: c.wasm, Source: "a test"})
		var refused *examine.RefusedError
		if got := errors.As(err, &refused); got != (c.stage != "") || !got && (err != nil || id == 0) {
			t.Errorf("%s: generation %d, error %v", c.name, id, err)
		} else if got && (refused.Report.Stage != c.stage || blame.Of(err) != blame.Policy) {
			t.Errorf("%s: refused at %s, fault %s", c.name, refused.Report.Stage, blame.Of(err))
		}
	}
	if n := len(m.Status().Generations); n != 2 {
		t.Errorf("%d generations, want those that were let in", n)
	}
	if err := m.opt.Conform(context.Background(), heads); err != nil {
		t.Error(err)
	}
}
