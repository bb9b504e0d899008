package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
)

// A new answer holds for what begins afterwards; what is under way ends as it
// began, and both sides know both plans meanwhile.
func TestReplan(t *testing.T) {
	for _, name := range []string{"loop", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			r := rig{open: providers[name]}
			p := parsePair(t, tp8, tp2)
			s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
			d.policy.picks = []func(int, []int) int{replica(0)}
			peer := d.dial(transport.Destination, s)
			var back *agent.Peer
			wait(t, "the peer", func(ctx context.Context) (err error) { back, err = s.engine.Peer(ctx, "decode"); return err })
			old := peer.Proven().Digest().String()
			const tokens = 40
			st, dt := s.table(tokens), d.table(tokens)
			s.fill(1, st, allLayers, 0, tokens)
			d.soil()
			o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Streaming: true, TTL: 5 * time.Second})
			x, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
			if err != nil {
				t.Fatal(err)
			}
			half := agent.Box{Layers: allLayers, To: 20}
			if err := o.Ready(half); err != nil {
				t.Fatal(err)
			}
			wait(t, "half", func(ctx context.Context) error { return x.Landed(ctx, half) })

			d.policy.mu.Lock()
			d.policy.picks = []func(int, []int) int{replica(1), replica(0)}
			d.policy.mu.Unlock()
			if err := peer.Replan(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := peer.Plans()
			if len(now.Alternatives) != 2 || now.Alternatives[0].Proven.Digest().String() == old || now.Alternatives[1].Proven.Digest().String() != old {
				t.Fatalf("%d alternatives, the first %s", len(now.Alternatives), now.Alternatives[0].Proven.Digest())
			}
			if got := back.Plans().Alternatives; len(got) != 2 || got[0].Proven.Digest() != now.Alternatives[0].Proven.Digest() {
				t.Errorf("the source has %d alternatives", len(got))
			}
			if err := o.Ready(agent.Box{Layers: allLayers, From: 20, To: tokens}); err != nil {
				t.Fatal(err)
			}
			var result agent.Result
			wait(t, "the rest", func(ctx context.Context) (err error) { result, err = x.Wait(ctx); return err })
			if result.Route.Plan != old {
				t.Errorf("it ended under plan %s", result.Route.Plan)
			}
			d.check("under the old plan", moved{1, dt, allLayers, 0, tokens})
			freed(t, o, transfer.Read)
			if result, err = once(t, s, d, peer, 2, nil); err != nil || result.Route.Plan == old {
				t.Errorf("the next one: %+v, %v", result.Route, err)
			}
			if a, b := pushed(t, s, d, back, 3); a.Route.Plan == old || a.Route.Plan != b.Route.Plan {
				t.Errorf("a push: %+v, %+v", a.Route, b.Route)
			}
			if c := d.Counts(); c.Replans != 1 || c.Remaps != 2 {
				t.Errorf("counted %+v", c)
			}
			if err := back.Replan(t.Context()); err == nil || blame.Of(err) != blame.Local {
				t.Errorf("the source decides: %v", err)
			}
		})
	}
}

// A policy that fails, or whose answer is not proved, leaves everything as it
// was; so does a source that can take no more.
func TestReplanFails(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
	peer := d.dial(transport.Destination, s)
	first := peer.Proven().Digest()
	for _, c := range []struct {
		name   string
		change func(h *heads)
		want   string
		by     blame.Party
	}{
		{"an error", func(h *heads) { h.err = errors.New("out of order") }, "out of order", blame.Policy},
		{"gaps", func(h *heads) {
			h.picks = []func(int, []int) int{func(_ int, holders []int) int { return 7 - holders[0] }}
		}, "gap", blame.Policy},
		{"nothing", func(h *heads) { h.picks = []func(int, []int) int{} }, "no alternative", blame.Policy},
	} {
		d.policy.mu.Lock()
		d.policy.err, d.policy.picks = nil, nil
		c.change(d.policy)
		d.policy.mu.Unlock()
		err := peer.Replan(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || blame.Of(err) != c.by {
			t.Errorf("%s: %v blames %s", c.name, err, blame.Of(err))
		}
		if got := peer.Proven().Digest(); got != first || peer.Err() != nil {
			t.Errorf("%s: plan %s, %v", c.name, got, peer.Err())
		}
		if _, err := once(t, s, d, peer, 1, nil); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	d.policy.mu.Lock()
	d.policy.err, d.policy.picks = nil, nil
	d.policy.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := peer.Replan(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := peer.Replan(t.Context()); err != nil {
		t.Errorf("and then well: %v", err)
	}
}

// A policy that gives other answers all the time fills what a connection may
// hold, and no more; transfers go on.
func TestPlansOfALinkAreBounded(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
	peer := d.dial(transport.Destination, s)
	full := false
	for n := 1; n < 80 && !full; n++ {
		d.policy.mu.Lock()
		d.policy.picks = nil
		for k := range 8 { // each head of each destination rank from either replica
			bits := n*8 + k
			at := 0
			d.policy.picks = append(d.policy.picks, func(_ int, holders []int) int {
				at++
				return holders[bits>>(at%10)&1]
			})
		}
		d.policy.mu.Unlock()
		err := peer.Replan(t.Context())
		if full = errors.Is(err, transfer.ErrLimit) || err != nil && strings.Contains(err.Error(), "plans of one connection"); err != nil && !full {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	if !full {
		t.Error("there is no end to the plans of a connection")
	}
	if _, err := once(t, s, d, peer, 1, nil); err != nil {
		t.Error(err)
	}
}

// When the policy's digest changes, peers are asked about again by themselves,
// within a beat.
func TestReplanFollowsThePolicy(t *testing.T) {
	var r rig
	p := parsePair(t, tp8, tp2)
	often := option(func(c *agent.Config, _ *agent.EngineSpec) { c.Timeouts.Idle = 300 * time.Millisecond })
	s, d := r.node(t, "a", &p.Source, nil, often), r.node(t, "b", &p.Destination, nil, often)
	d.policy.picks = []func(int, []int) int{replica(0)}
	peer := d.dial(transport.Destination, s)
	old := peer.Proven().Digest()
	d.policy.mu.Lock()
	d.policy.picks, d.policy.digest = []func(int, []int) int{replica(1)}, 7
	d.policy.mu.Unlock()
	eventually(t, "another plan", func() bool { return peer.Proven().Digest() != old })
	if _, digest := peer.Policy(); !strings.HasPrefix(digest, "sha256:07") {
		t.Errorf("by policy %s", digest)
	}
	// A policy that fails is asked once, not at every beat.
	d.policy.mu.Lock()
	calls := d.policy.calls
	d.policy.err, d.policy.digest = errors.New("out of order"), 8
	d.policy.mu.Unlock()
	asked := func() int {
		d.policy.mu.Lock()
		defer d.policy.mu.Unlock()
		return d.policy.calls - calls
	}
	eventually(t, "a question", func() bool { return asked() == 1 })
	time.Sleep(500 * time.Millisecond)
	if n := asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := once(t, s, d, peer, 1, nil); err != nil {
		t.Error(err)
	}
}

// Policies are swapped under load: no transfer fails, each goes under a plan
// that both sides proved, and in the end under the last policy's.
func TestHotSwapUnderLoad(t *testing.T) {
	heads, _ := policies.Get("heads")
	m, err := generation.New(t.Context(), generation.Options{Policy: policy.Options{InProcess: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	swap := func(n int) {
		t.Helper()
		id, err := m.Load(t.Context(), generation.Module{Wasm: fixture.Rename(heads, "heads", fmt.Sprintf("9.0.%d", n)), Source: "a test"})
		if err == nil {
			err = m.Activate(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	swap(0)
	var r rig
	p := parsePair(t, tp2, tp4)
	often := option(func(c *agent.Config, _ *agent.EngineSpec) { c.Timeouts.Idle = 600 * time.Millisecond })
	s := r.node(t, "a", &p.Source, nil, often)
	d := r.node(t, "b", &p.Destination, nil, often, func(c *agent.Config, _ *agent.EngineSpec) { c.Policy = m })
	peer := d.dial(transport.Destination, s)
	stop := make(chan struct{})
	var failed atomic.Pointer[error]
	done := make(chan int)
	go func() {
		n := 0
		st, dt := s.table(32), d.table(32)
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			o, err := s.engine.Offer(context.Background(), agent.Offer{Request: fmt.Sprint("r", n), Tables: st, Tokens: 32, TTL: 5 * time.Second})
			if err == nil {
				var x *agent.Transfer
				if x, err = peer.Pull(context.Background(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: 32}); err == nil {
					_, err = x.Wait(context.Background())
				}
				if err == nil {
					_, err = o.Wait(context.Background())
				}
			}
			if err != nil {
				failed.Store(&err)
			}
			n++
		}
	}()
	for n := 1; n <= 6; n++ {
		swap(n)
		eventually(t, "the new policy's plan", func() bool { _, digest := peer.Policy(); return digest == m.Digest().String() })
	}
	close(stop)
	n := <-done
	if err := failed.Load(); err != nil {
		t.Errorf("of %d transfers: %v", n, *err)
	}
	if n < 10 {
		t.Errorf("only %d transfers", n)
	}
	if c := d.Counts(); c.Replans != 6 {
		t.Errorf("counted %+v", c)
	}
	for _, g := range m.Status().Generations {
		if g.Counters.Faults() > 0 || g.Counters.Proved == 0 {
			t.Errorf("generation %d: %+v", g.ID, g.Counters)
		}
	}
}

// stranger shakes hands with a node as its pair's source, and is then whatever
// the test makes it.
func stranger(t *testing.T, r *rig, d *node, side *plan.Side, proposals func(net.Conn, *session.Machine)) {
	t.Helper()
	own := r.net.New(loop.Options{Workers: 1})
	defer own.Close()
	network, address, _ := strings.Cut(d.Address(), ":")
	raw, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	hello := &session.Hello{Versions: session.Versions{Protocol: session.Protocol, ABI: session.ABI, Plan: session.PlanVersion}, Role: session.Source, Agent: "stranger",
		Engine: session.Engine{Side: *side, Incarnation: "1", State: session.Declared}, Providers: []session.Provider{{Name: "loop", Data: own.Address().Data}}}
	for i := range side.Ranks {
		hello.Engine.Held = append(hello.Engine.Held, i)
	}
	m := session.NewMachine(hello, true, plan.Budget{})
	ready := m.Step(session.Start{})
	for !ready.Open {
		if ready.Err != nil {
			t.Fatal(ready.Err)
		}
		for _, msg := range ready.Send {
			say(t, raw, msg)
		}
		switch {
		case ready.Do.Connect != nil:
			id, err := own.Connect(t.Context(), transport.Address{Provider: "loop", Data: ready.Do.Connect[0].Data})
			if err != nil {
				t.Fatal(err)
			}
			ready = m.Step(session.Connected{Connections: []session.Connection{{Provider: "loop", Token: own.Token(id)}}})
		case ready.Do.Prepare:
			ready = m.Step(session.Prepared{})
		default:
			typ, payload := hear(t, raw)
			msg, err := session.Decode(typ, payload)
			if err != nil {
				t.Fatal(err)
			}
			ready = m.Step(session.Received{Message: msg})
		}
	}
	proposals(raw, m)
}

func say(t *testing.T, c net.Conn, m session.Message) {
	t.Helper()
	frame, err := session.Encode(m)
	if err == nil {
		_, err = c.Write(frame)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hear reads the next frame; a connection that is closed is type 0.
func hear(t *testing.T, c net.Conn) (session.Type, []byte) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	read := func(n int) []byte {
		b := make([]byte, n)
		for at := 0; at < n; {
			k, err := c.Read(b[at:])
			if at += k; err != nil {
				return nil
			}
		}
		return b
	}
	b := read(session.HeaderSize)
	if b == nil {
		return 0, nil
	}
	h, err := session.ParseHeader([session.HeaderSize]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	return h.Type, read(h.Length)
}

// A source that answers what was not asked, or asks what is not its to ask,
// loses its connection and nothing else happens.
func TestStrangersDoNotPlan(t *testing.T) {
	propose := &session.Propose{}
	for _, c := range []struct {
		name string
		say  func(*session.Machine) session.Message
	}{
		{"a proposal of the source's", func(*session.Machine) session.Message { return propose }},
		{"an answer to nothing", func(m *session.Machine) session.Message {
			return &session.Agree{Plans: []string{m.Result().Alternatives[0].Proven.Digest().String()}}
		}},
	} {
		var r rig
		p := parsePair(t, tp2, tp4)
		d := r.node(t, "b", &p.Destination, nil)
		stranger(t, &r, d, &p.Source, func(raw net.Conn, m *session.Machine) {
			say(t, raw, c.say(m))
			for {
				typ, _ := hear(t, raw)
				if typ == 0 {
					break
				}
			}
		})
	}
	// One that names a plan twice, or another one, in its answer.
	for _, plans := range [][]string{{}, {"sha256:00"}, {"", ""}} {
		var r rig
		p := parsePair(t, tp2, tp4)
		d := r.node(t, "b", &p.Destination, nil)
		stranger(t, &r, d, &p.Source, func(raw net.Conn, m *session.Machine) {
			say(t, raw, &session.Confirm{Plans: []string{m.Result().Alternatives[0].Proven.Digest().String()}}) // never read: the handshake is over
		})
		stranger(t, &r, d, &p.Source, func(raw net.Conn, m *session.Machine) {
			peer, err := d.engine.Peer(t.Context(), "prefill")
			if err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() { result <- peer.Replan(context.Background()) }()
			for {
				typ, payload := hear(t, raw)
				if typ == session.TypePropose {
					var got session.Propose
					if err := json.Unmarshal(payload, &got); err != nil || len(got.Alternatives) != 1 {
						t.Errorf("%s, %v", payload, err)
					}
					say(t, raw, &session.Agree{Plans: plans})
				}
				if typ == 0 || slices.Equal(plans, []string{""}) {
					break
				}
			}
			if err := <-result; err == nil {
				t.Errorf("agreed on %q", plans)
			}
		})
	}
}
