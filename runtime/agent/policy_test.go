package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/wasm/abi"
)

// The real policy is one that an agent takes, and so are its generations.
var (
	_ agent.Policy = (*policy.Policy)(nil)
	_ agent.Policy = (*generation.Manager)(nil)
)

// managed is a manager with one active generation.
func managed(t testing.TB, wasm []byte, opt generation.Options) *generation.Manager {
	t.Helper()
	opt.Policy.InProcess = true
	opt.Conform = func(context.Context, []byte) error { return nil } // what is tested here comes after it
	m, err := generation.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	id, err := m.Load(t.Context(), generation.Module{Wasm: wasm, Source: "a test"})
	if err == nil {
		err = m.Activate(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A module that does wrong at remap is a refused handshake that blames the
// policy and is counted against its generation; with a fallback the built-in
// policy answers.
func TestRemapFaults(t *testing.T) {
	for _, c := range []struct {
		name     string
		code     fixture.Code
		declined bool
	}{{"trap", fixture.Trap(), false}, {"endless", fixture.Endless(), false}, {"declined", fixture.Status(abi.StatusDeclined), true}, {"no bytes", fixture.Status(abi.StatusOk), false}} {
		for _, fallback := range []generation.Fallback{generation.NoFallback, generation.Builtin} {
			var r rig
			p := parsePair(t, tp2, tp4)
			m := managed(t, fixture.Guest("mine", "1.0.0", c.code, fixture.Status(abi.StatusDeclined)), generation.Options{Fallback: fallback})
			s := r.node(t, "a", &p.Source, nil)
			d := r.node(t, "b", &p.Destination, nil, func(cfg *agent.Config, _ *agent.EngineSpec) { cfg.Policy = m })
			_, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination})
			replaced := fallback == generation.Builtin && !c.declined
			if replaced != (err == nil) || err != nil && blame.Of(err) != blame.Policy {
				t.Errorf("%s, fallback %q: %v (blames %s)", c.name, fallback, err, blame.Of(err))
			}
			var declined *policy.Declined
			if c.declined && !errors.As(err, &declined) {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, g := range m.Status().Generations {
				if want := int64(1); g.Name == "mine" && !c.declined && g.Counters.Faults() != want {
					t.Errorf("%s: generation %d counts %+v", c.name, g.ID, g.Counters)
				}
			}
		}
	}
}

// An alternative of a module that is not proved is counted against its
// generation, although transfers go on by the others.
func TestUnprovedAlternativesAreJudged(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	gap := assign(p, replica(0))[1:]
	m := managed(t, fixture.Saying("mine", "1.0.0", &abi.RemapOut{Alternatives: []abi.Alternative{records(gap), records(assign(p, replica(1)))}}, nil), generation.Options{})
	s := r.node(t, "a", &p.Source, nil)
	d := r.node(t, "b", &p.Destination, nil, func(cfg *agent.Config, _ *agent.EngineSpec) { cfg.Policy = m })
	peer := d.dial(transport.Destination, s)
	result, err := once(t, s, d, peer, 1, nil)
	if err != nil || result.Route.Alternative != 1 || result.Route.Proved != 1 {
		t.Errorf("%+v, %v", result.Route, err)
	}
	for _, g := range m.Status().Generations {
		if g.Counters.Unproved != 1 || g.Counters.Faults() != 1 {
			t.Errorf("generation %d counts %+v", g.ID, g.Counters)
		}
	}
}
