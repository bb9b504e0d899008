package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/fault"
	"github.com/kvferry/kvferry/transport/loop"
)

// What a provider does wrong is the provider's fault, ends what it touches
// and nothing else, and gives every block back.
func TestProviderFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script  string
		connect bool // fails at Connect already
		want    error
		by      blame.Party
		again   bool // a second pull over the same peer succeeds
	}{
		{script: "connect: fail", connect: true, by: blame.Provider},
		{script: "prepare: fail", connect: true, by: blame.Provider},
		{script: "read: fail 1", want: transfer.ErrProvider, by: blame.Provider, again: true},
		{script: "submit: fail 1", want: transfer.ErrProvider, by: blame.Provider, again: true},
		{script: "submit: refuse 1", want: transfer.ErrGone, by: blame.Peer, again: true},
		{script: "complete: fail 1", want: transfer.ErrProvider, by: blame.Provider, again: true},
		{script: "complete: delay 50ms 1", again: true},
		{script: "poll: drop 3", again: true},
		{script: "complete: drop", want: transfer.ErrTimeout, by: blame.Peer}, // the completion never comes
	} {
		t.Run(c.script, func(t *testing.T) {
			p := parsePair(t, tp2, tp4)
			var r rig
			script, err := fault.Parse(c.script)
			if err != nil {
				t.Fatal(err)
			}
			quick := option(func(c *agent.Config, _ *agent.EngineSpec) { c.Timeouts.Idle = 300 * time.Millisecond })
			s := r.node(t, "a", &p.Source, nil, quick)
			d := r.nodeWith(t, "b", &p.Destination, nil, fault.New(r.net.New(loop.Options{Workers: 1}), script), quick)
			const tokens = 32
			st, dt := s.table(tokens), d.table(tokens)
			s.fill(6, st, allLayers, 0, tokens)
			d.soil()
			peer, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination})
			if c.connect {
				if err == nil || blame.Of(err) != c.by || !strings.Contains(err.Error(), "provider") {
					t.Errorf("%v blames %s, want %s", err, blame.Of(err), c.by)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, TTL: time.Second})
			x, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Timeout: 500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			wait(t, "transfer", func(ctx context.Context) error { _, err = x.Wait(ctx); return ctx.Err() })
			if !errors.Is(err, c.want) || err != nil && c.want != transfer.ErrTimeout && blame.Of(err) != c.by {
				t.Errorf("%v blames %s, want %v, %s", err, blame.Of(err), c.want, c.by)
			}
			wait(t, "freed", func(ctx context.Context) error { _, _ = o.Wait(ctx); return ctx.Err() })
			if err == nil {
				d.check(c.script, moved{6, dt, allLayers, 0, tokens})
			}
			if !c.again {
				<-peer.Done()
				return
			}
			o = offer(t, s, agent.Offer{Request: "again", Tables: st, Tokens: tokens})
			if err := pull(t, peer, o.Ticket(), dt, tokens); err != nil {
				t.Errorf("the next transfer: %v", err)
			}
			d.check(c.script, moved{6, dt, allLayers, 0, tokens})
			freed(t, o, transfer.Read)
		})
	}
}

// The first provider of the dialler's list that both have is taken.
func TestProviderChoice(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	tcp, err := providers["tcp"]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() }) // after the agents
	more := option(func(c *agent.Config, _ *agent.EngineSpec) {
		c.Providers = append([]transport.Provider{tcp}, c.Providers...)
	})
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil, more)
	if got := d.dial(transport.Destination, s).Provider(); got != "loop" {
		t.Errorf("took %q, the only one in common is loop", got)
	}
	shm, err := providers["shm"]()
	if err != nil {
		t.Fatal(err)
	}
	other := p.Source
	other.Engine = "prefill-2"
	lone := r.nodeWith(t, "c", &other, nil, shm)
	if _, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{lone.Address()}, Role: transport.Destination}); !errors.Is(err, session.ErrNoProvider) || blame.Of(err) != blame.Operator {
		t.Errorf("none in common: %v", err)
	}
}
