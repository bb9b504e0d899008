package agent_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/fault"
	"github.com/kvferry/kvferry/wasm/abi"
)

// tp8 has two ranks for each of the four heads.
const tp8 = "shard: {tp: 8}, block: 16"

// also gives a node more providers, behind the one that it has.
func also(t testing.TB, names ...string) option {
	t.Helper()
	var more []transport.Provider
	for _, name := range names {
		p, err := providers[name]()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() }) // after the agents
		more = append(more, p)
	}
	return func(c *agent.Config, _ *agent.EngineSpec) { c.Providers = append(c.Providers, more...) }
}

// once moves one request by a pull and returns what came of it.
func once(t testing.TB, s, d *node, peer *agent.Peer, salt uint32, change func(*agent.Pull)) (agent.Result, error) {
	t.Helper()
	const tokens = 40
	st, dt := s.table(tokens), d.table(tokens)
	s.fill(salt, st, allLayers, 0, tokens)
	d.soil()
	o := offer(t, s, agent.Offer{Request: fmt.Sprint("r", salt), Tables: st, Tokens: tokens, TTL: 5 * time.Second})
	pull := agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens}
	if change != nil {
		change(&pull)
	}
	x, err := peer.Pull(t.Context(), pull)
	if err != nil {
		o.Cancel()
		return agent.Result{}, err
	}
	var result agent.Result
	wait(t, "transfer", func(ctx context.Context) error { result, err = x.Wait(ctx); return ctx.Err() })
	if err == nil {
		d.check(fmt.Sprint("request ", salt), moved{salt, dt, allLayers, 0, tokens})
		freed(t, o, transfer.Read)
	} else {
		o.Cancel()
	}
	return result, err
}

// pushed is once by a push.
func pushed(t testing.TB, s, d *node, peer *agent.Peer, salt uint32) (agent.Result, agent.Result) {
	t.Helper()
	const tokens = 40
	st, dt := s.table(tokens), d.table(tokens)
	s.fill(salt, st, allLayers, 0, tokens)
	d.soil()
	e, err := d.engine.Expect(t.Context(), agent.Expect{Request: fmt.Sprint("w", salt), Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	x, err := peer.Push(t.Context(), agent.Push{Ticket: e.Ticket(), Tables: st, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	var out [2]agent.Result
	wait(t, "push", func(ctx context.Context) (err error) { out[0], err = x.Wait(ctx); return err })
	wait(t, "expectation", func(ctx context.Context) (err error) { out[1], err = e.Wait(ctx); return err })
	d.check(fmt.Sprint("push ", salt), moved{salt, dt, allLayers, 0, tokens})
	return out[0], out[1]
}

// The policy's decision is carried out: which alternative, which transports, how
// much is compared; what it asks beyond that is named.
func TestRouteDecides(t *testing.T) {
	two := []func(int, []int) int{replica(0), replica(1)}
	for _, second := range []string{"shm", "tcp"} {
		var r rig
		p := parsePair(t, tp8, tp2)
		limits := option(func(c *agent.Config, _ *agent.EngineSpec) { c.Limits = agent.Limits{Chunk: 1 << 20, Streams: 4} })
		railed := option(func(_ *agent.Config, e *agent.EngineSpec) {
			e.About.Places = slices.Repeat([]policy.Place{{Rails: []policy.Rail{{Name: "mlx5_0"}}}}, 8)
		})
		s, d := r.node(t, "a", &p.Source, nil, also(t, second), railed), r.node(t, "b", &p.Destination, nil, also(t, second), limits)
		d.policy.picks = two
		decision := policy.Decision{}
		var clamped []policy.Clamped
		d.policy.route = func(policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) { return decision, clamped, nil }
		peer := d.dial(transport.Destination, s)
		if got := peer.Providers(); !reflect.DeepEqual(got, []string{"loop", second}) {
			t.Fatalf("connected with %v", got)
		}
		for i, c := range []struct {
			name       string
			d          policy.Decision
			transports []string
			level      agent.Integrity
			unmet      []string
		}{
			{"nothing", policy.Decision{}, []string{"loop"}, transfer.Sample, nil},
			{"the second alternative", policy.Decision{Alternative: 1, Reason: "less busy"}, []string{"loop"}, transfer.Sample, nil},
			{"the second transport", policy.Decision{Providers: []int{1, 0}}, []string{second}, transfer.Sample, nil},
			{"all is compared", policy.Decision{Integrity: policy.IntegrityFull}, []string{"loop"}, transfer.Full, nil},
			{"less than asked", policy.Decision{Integrity: policy.IntegrityOff}, []string{"loop"}, transfer.Sample, nil},
			{"hints", policy.Decision{Mode: policy.Staged, Permute: policy.Source, Chunk: 1 << 20, Streams: 2, Priority: 3, Rails: []policy.RailChoice{{Side: policy.Source}}}, []string{"loop"}, transfer.Sample,
				[]string{"mode", "permute", "chunk", "streams", "priority", "1 rails"}},
			{"a push's", policy.Decision{TLS: policy.On}, []string{"loop"}, transfer.Sample, []string{"tls on"}},
		} {
			decision, clamped = c.d, []policy.Clamped{{Field: "streams", Asked: 9, Given: 4, Why: "so many are configured"}}
			result, err := once(t, s, d, peer, uint32(i+1), func(p *agent.Pull) { p.Integrity, p.Priority, p.Timeout = transfer.Sample, 5, 3*time.Second })
			if err != nil {
				t.Errorf("%s, %s: %v", second, c.name, err)
				continue
			}
			got := result.Route
			want := agent.Route{Policy: "heads-double", Digest: d.policy.Digest().String(), Alternative: c.d.Alternative, Proved: 2, Plan: peer.Plans().Alternatives[c.d.Alternative].Proven.Digest().String(),
				Transports: c.transports, Reason: c.d.Reason, Clamped: []string{"streams: asked 9, given 4: so many are configured"}}
			unmet := got.Unmet
			got.Unmet = nil
			if !reflect.DeepEqual(got, want) || result.Integrity != c.level {
				t.Errorf("%s, %s: %+v and %q, want %+v and %q", second, c.name, got, result.Integrity, want, c.level)
			}
			if len(unmet) != len(c.unmet) {
				t.Errorf("%s, %s: unmet %q, want %q", second, c.name, unmet, c.unmet)
			} else {
				for k := range unmet {
					if !strings.HasPrefix(unmet[k], c.unmet[k]) {
						t.Errorf("%s, %s: unmet %q, want %q", second, c.name, unmet, c.unmet)
					}
				}
			}
		}
		q := d.policy.routed[len(d.policy.routed)-1]
		if q.Tokens != 40 || q.Cached != 0 || q.Priority != 5 || q.Deadline != 3*time.Second || q.Lease <= 0 || q.Lease > 5*time.Second || q.Limits != (policy.Limits{Chunk: 1 << 20, Streams: 4, Integrity: policy.IntegritySample}) {
			t.Errorf("asked %+v", q)
		}
		if len(q.Alternatives) != 2 || q.Alternatives[0][0].Source != 0 || q.Alternatives[1][0].Source != 1 || q.Previous == nil || len(q.Providers) != 2 {
			t.Errorf("asked with alternatives %+v, previous %+v", q.Alternatives, q.Previous)
		}
		if c := d.Counts(); c.Routed != 7 || c.Clamped != 7 || c.Remaps != 1 || c.RouteFaults != 0 {
			t.Errorf("counted %+v", c)
		}
		// Where CRC is asked for, the transport is taken that has it.
		decision = policy.Decision{CRC: policy.On}
		result, err := once(t, s, d, peer, 20, nil)
		if err != nil || second == "tcp" && (!slices.Equal(result.Route.Transports, []string{"tcp"}) || result.Route.Unmet != nil) || second == "shm" && len(result.Route.Unmet) != 1 {
			t.Errorf("%s, crc on: %+v, %v", second, result.Route, err)
		}
	}
}

// Whoever begins the transfer asks its own policy; without a route it goes as
// configured, and says so.
func TestWhoDecides(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
	d.policy.picks = []func(int, []int) int{replica(0), replica(1)}
	s.policy.route = func(q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
		return policy.Decision{Alternative: 1, Recompute: true, Reason: "the source's"}, nil, nil
	}
	peer := s.dial(transport.Source, d)
	first, second := pushed(t, s, d, peer, 1)
	if first.Route.Alternative != 1 || first.Route.Reason != "the source's" || len(first.Route.Unmet) != 1 || second.Route.Plan != first.Route.Plan || second.Route.Alternative != 1 ||
		!reflect.DeepEqual(second.Route.Transports, []string{"loop"}) {
		t.Errorf("%+v and %+v", first.Route, second.Route)
	}
	if len(s.policy.routed) != 1 || len(d.policy.routed) != 0 || s.policy.routed[0].Limits.Recompute {
		t.Errorf("the source was asked %d times, the destination %d", len(s.policy.routed), len(d.policy.routed))
	}
	var back *agent.Peer
	wait(t, "the peer", func(ctx context.Context) (err error) { back, err = d.engine.Peer(ctx, "prefill"); return err })
	result, err := once(t, s, d, back, 2, nil)
	if err != nil || result.Route.Policy != "" || result.Route.Alternative != 0 || result.Route.Reason != "policy heads-double has no route: as configured" {
		t.Errorf("%+v, %v", result.Route, err)
	}
	plain := p.Source
	plain.Engine = "prefill-2"
	none := r.node(t, "c", &plain, nil, func(c *agent.Config, _ *agent.EngineSpec) { c.Policy = nil })
	if first, _ := pushed(t, none, d, none.dial(transport.Source, d), 3); first.Route.Reason != "no policy here: as configured" {
		t.Errorf("%+v", first.Route)
	}
}

// A policy may have the engine recompute, where that is configured; nothing was
// moved then and the offer is still there.
func TestRecompute(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil, func(c *agent.Config, _ *agent.EngineSpec) { c.Limits.Recompute = true })
	again := true
	d.policy.route = func(q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
		if !q.Limits.Recompute {
			t.Error("the policy is not told that it may")
		}
		return policy.Decision{Recompute: again, Reason: "most of it is cached"}, nil, nil
	}
	peer := d.dial(transport.Destination, s)
	const tokens = 32
	st, dt := s.table(tokens), d.table(tokens)
	s.fill(1, st, allLayers, 0, tokens)
	d.soil()
	o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
	_, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, From: 16})
	var re *agent.Recompute
	if !errors.As(err, &re) || re.Tokens != 16 || re.Reason != "most of it is cached" || blame.Of(err) != blame.Policy {
		t.Fatalf("%v", err)
	}
	d.check("nothing moved")
	if c := d.Counts(); c.Recomputed != 1 || c.RouteFaults != 0 {
		t.Errorf("counted %+v", c)
	}
	again = false
	if err := pull(t, peer, o.Ticket(), dt, tokens); err != nil {
		t.Errorf("and then moved: %v", err)
	}
	d.check("moved", moved{1, dt, allLayers, 0, tokens})
	freed(t, o, transfer.Read)
}

// A transport that cannot makes way for the next one, wherever it says so, on
// either side; the result tells.
func TestTransportsThatCannot(t *testing.T) {
	for _, c := range []struct {
		script    string
		side      string // that has it, as its first provider
		transport string
		refused   int // that the one who pulls knows of
		fell      int64
	}{
		{"", "both", "shm", 0, 0},
		{"prepare: cannot", "destination", "tcp", 1, 0},
		{"prepare: cannot", "source", "tcp", 0, 0},
		{"grant: cannot", "source", "tcp", 0, 0},
		{"submit: cannot", "destination", "tcp", 1, 1},
		{"read: cannot", "destination", "tcp", 1, 1},
		{"read: cannot after 1", "destination", "shm", 0, 0},
		{"connect: cannot", "destination", "tcp", 0, 0},
		{"health: refuse", "destination", "tcp", 1, 0},
	} {
		t.Run(c.script+" "+c.side, func(t *testing.T) {
			var r rig
			p := parsePair(t, tp2, tp4)
			open := func(scripted bool) transport.Provider {
				shm, err := providers["shm"]()
				if err != nil {
					t.Fatal(err)
				}
				if !scripted {
					return shm
				}
				script, err := fault.Parse(c.script)
				if err != nil {
					t.Fatal(err)
				}
				return fault.New(shm, script)
			}
			s := r.nodeWith(t, "a", &p.Source, nil, open(c.side == "source"), also(t, "tcp"))
			d := r.nodeWith(t, "b", &p.Destination, nil, open(c.side == "destination"), also(t, "tcp"))
			peer := d.dial(transport.Destination, s)
			result, err := once(t, s, d, peer, 1, func(p *agent.Pull) { p.Integrity = transfer.Full })
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Route; !slices.Equal(got.Transports, []string{c.transport}) || len(got.Refused) != c.refused {
				t.Errorf("%+v", got)
			}
			if got := d.Counts().FellBack; got != c.fell {
				t.Errorf("fell back %d times", got)
			}
		})
	}
}

// What a transport fails at, and only that, is a failure: nobody tries again on
// blocks that may hold half of it.
func TestFailuresAreNotRetried(t *testing.T) {
	for _, script := range []string{"submit: fail 1", "read: fail 1", "complete: fail 1"} {
		var r rig
		p := parsePair(t, tp2, tp4)
		shm, err := providers["shm"]()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := fault.Parse(script)
		if err != nil {
			t.Fatal(err)
		}
		other, err := providers["shm"]()
		if err != nil {
			t.Fatal(err)
		}
		s := r.nodeWith(t, "a", &p.Source, nil, other, also(t, "tcp"))
		d := r.nodeWith(t, "b", &p.Destination, nil, fault.New(shm, parsed), also(t, "tcp"))
		peer := d.dial(transport.Destination, s)
		if _, err := once(t, s, d, peer, 1, nil); !errors.Is(err, transfer.ErrProvider) || blame.Of(err) != blame.Provider {
			t.Errorf("%s: %v", script, err)
		}
		if _, err := once(t, s, d, peer, 2, nil); err != nil {
			t.Errorf("%s, the next one: %v", script, err)
		}
	}
}

// A decision whose transports are all gone fails and says why; it is not
// replaced by others.
func TestNoTransportLeft(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	script, err := fault.Parse("prepare: cannot")
	if err != nil {
		t.Fatal(err)
	}
	shm, err := providers["shm"]()
	if err != nil {
		t.Fatal(err)
	}
	other, err := providers["shm"]()
	if err != nil {
		t.Fatal(err)
	}
	s := r.nodeWith(t, "a", &p.Source, nil, other, also(t, "tcp"))
	d := r.nodeWith(t, "b", &p.Destination, nil, fault.New(shm, script), also(t, "tcp"))
	d.policy.route = func(policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
		return policy.Decision{Providers: []int{0}}, nil, nil
	}
	_, err = once(t, s, d, d.dial(transport.Destination, s), 1, nil)
	if !errors.Is(err, transfer.ErrProvider) || !errors.Is(err, transport.ErrNotSupported) || blame.Of(err) != blame.Provider || !strings.Contains(err.Error(), "none of shm can be used") {
		t.Errorf("%v", err)
	}
}

// records are an alternative as a module writes it.
func records(as []plan.Assignment) (out abi.Alternative) {
	for _, a := range as {
		out.Assignments = append(out.Assignments, abi.Assignment{Components: a.Components, Group: uint32(a.Group), Destination: uint32(a.Destination), Source: uint32(a.Source),
			LayerFrom: uint32(a.Layers.From), LayerTo: uint32(a.Layers.To), HeadFrom: uint32(a.Heads.From), HeadTo: uint32(a.Heads.To)})
	}
	return out
}

// hostile opens a real module whose remap is the double's and whose route is
// given.
func hostile(t testing.TB, p *plan.Pair, route *abi.RouteOut, code fixture.Code) *policy.Policy {
	t.Helper()
	remap := &abi.RemapOut{Reason: "the double's"}
	for _, n := range []int{0, 1} {
		remap.Alternatives = append(remap.Alternatives, records(assign(p, replica(n))))
	}
	pol, err := policy.Open(t.Context(), fixture.Routing("hostile", "1.0.0", remap, route, code), policy.Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pol.Close(); err != nil {
			t.Error(err)
		}
	})
	return pol
}

// A guest that fails at its route fails the transfer and nothing else, or is
// replaced where that is configured; what it chooses beyond the limits it does
// not get.
func TestRouteFaults(t *testing.T) {
	for _, c := range []struct {
		name     string
		route    *abi.RouteOut
		code     fixture.Code
		declined bool
		want     string // in the error; empty: it is carried out
		clamped  []string
	}{
		{name: "trap", code: fixture.Trap(), want: "trap"},
		{name: "endless", code: fixture.Endless(), want: "fuel"},
		{name: "declined", code: fixture.Status(abi.StatusDeclined), declined: true, want: "answered no decision"},
		{name: "an alternative that is not there", route: &abi.RouteOut{Decisions: []abi.Decision{{Alternative: 2}}}, want: "0 to 1 are the alternatives"},
		{name: "a transport that is not there", route: &abi.RouteOut{Decisions: []abi.Decision{{Transports: []abi.Transport{{Provider: 7}}}}}, want: "the question has 1 providers"},
		{name: "no bytes", code: fixture.Status(abi.StatusOk), want: "bytes"},
		{name: "beyond the limits", route: &abi.RouteOut{Decisions: []abi.Decision{{Alternative: 1, Chunk: 1, Streams: 99, Priority: 99, Integrity: abi.IntegrityOff, Recompute: 1}}, Reason: "greedy"},
			clamped: []string{"chunk: ", "streams: ", "priority: ", "integrity: ", "recompute: "}},
	} {
		for _, host := range []bool{false, true} {
			var r rig
			p := parsePair(t, tp8, tp2)
			pol := hostile(t, p, c.route, c.code)
			s := r.node(t, "a", &p.Source, nil)
			d := r.node(t, "b", &p.Destination, nil, func(cfg *agent.Config, _ *agent.EngineSpec) {
				cfg.Policy, cfg.Integrity = pol, transfer.Sample
				if host {
					cfg.OnPolicyFault = agent.FaultHost
				}
			})
			peer := d.dial(transport.Destination, s)
			result, err := once(t, s, d, peer, 1, nil)
			switch {
			case c.want == "":
				if err != nil || result.Route.Alternative != 1 || result.Route.Reason != "greedy" || result.Integrity != transfer.Sample || len(result.Route.Clamped) != len(c.clamped) {
					t.Errorf("%s: %+v, %v", c.name, result.Route, err)
					continue
				}
				for i, want := range c.clamped {
					if !strings.HasPrefix(result.Route.Clamped[i], want) {
						t.Errorf("%s: clamped %q, want %q", c.name, result.Route.Clamped, c.clamped)
					}
				}
			case host:
				if err != nil || result.Route.Policy != "" || !strings.Contains(result.Route.Fault, c.want) {
					t.Errorf("%s, replaced: %+v, %v", c.name, result.Route, err)
				}
				if n := d.Counts(); n.RouteFaults != 1 || n.Replaced != 1 {
					t.Errorf("%s: counted %+v", c.name, n)
				}
			default:
				var declined *policy.Declined
				if err == nil || blame.Of(err) != blame.Policy || !strings.Contains(err.Error(), c.want) || errors.As(err, &declined) != c.declined {
					t.Errorf("%s: %v (blames %s), want %q", c.name, err, blame.Of(err), c.want)
				}
				if n := d.Counts(); n.RouteFaults != 1 || n.Replaced != 0 || n.Routed != 0 {
					t.Errorf("%s: counted %+v", c.name, n)
				}
				if err := peer.Err(); err != nil {
					t.Errorf("%s ended the peer: %v", c.name, err)
				}
			}
		}
	}
}

// Equal transfers ask the guest once.
func TestRouteIsRemembered(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	pol := hostile(t, p, &abi.RouteOut{Decisions: []abi.Decision{{Alternative: 1}}}, nil)
	s := r.node(t, "a", &p.Source, nil)
	d := r.node(t, "b", &p.Destination, nil, func(cfg *agent.Config, _ *agent.EngineSpec) { cfg.Policy = pol })
	peer := d.dial(transport.Destination, s)
	for i := range 3 { // what was decided before is part of the question, once
		if _, err := once(t, s, d, peer, uint32(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	before := pol.Calls()
	for i := range 5 {
		if _, err := once(t, s, d, peer, uint32(10+i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := pol.Calls() - before; n > 1 { // a lease or a sample may have got another number
		t.Errorf("the guest was called %d times for five equal transfers", n)
	}
}
