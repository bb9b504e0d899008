package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

func offer(t testing.TB, n *node, o agent.Offer) *agent.Offered {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = 5 * time.Second
	}
	out, err := n.engine.Offer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func freed(t testing.TB, o *agent.Offered, want transfer.Reason) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	why, err := o.Wait(ctx)
	if why != want || (err == nil) != (want == transfer.Read) {
		t.Errorf("the offer was freed as %q (%v), want %q", why, err, want)
	}
}

// Every shape of pair, in both directions, whoever dials.
func TestPullAndPush(t *testing.T) {
	for _, c := range []struct{ source, destination string }{
		{tp2, tp4},
		{tp4, tp2},
		{"shard: {tp: 4}, block: 16", "shard: {tp: 3, heads: [[0], [1, 2], [3]]}, block: 48"},
		{"shard: {tp: 8}, block: 16", "shard: {tp: 2}, block: 16"},
		{"shard: {tp: 2, pp: [3, 1]}, block: 48", "shard: {tp: 8, pp: 2}, block: 32"},
	} {
		for _, sourceDials := range []bool{false, true} {
			for _, mode := range []string{"pull", "push"} {
				t.Run(fmt.Sprintf("%s to %s, source dials %v, %s", c.source, c.destination, sourceDials, mode), func(t *testing.T) {
					var r rig
					s, d := r.pair(t, c.source, c.destination)
					d.soil()
					const tokens, from = 77, 5
					st, dt := s.table(tokens), d.table(tokens)
					s.fill(1, st, allLayers, 0, tokens)
					var toDestination, toSource *agent.Peer
					var err error
					if sourceDials {
						toDestination = s.dial(transport.Source, d)
						wait(t, "peer", func(ctx context.Context) error { toSource, err = d.engine.Peer(ctx, "prefill"); return err })
					} else {
						toSource = d.dial(transport.Destination, s)
						wait(t, "peer", func(ctx context.Context) error { toDestination, err = s.engine.Peer(ctx, "decode"); return err })
					}
					if a, b := toSource.Proven(), toDestination.Proven(); !a.Valid() || a.Digest() != b.Digest() {
						t.Fatal("the sides hold different plans")
					}
					var result agent.Result
					if mode == "pull" {
						o := offer(t, s, agent.Offer{Request: "r1", Tables: st, Tokens: tokens, SideData: []byte("first token")})
						x, err := toSource.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, From: from, Tokens: tokens})
						if err != nil {
							t.Fatal(err)
						}
						wait(t, "transfer", func(ctx context.Context) (err error) { result, err = x.Wait(ctx); return err })
						freed(t, o, transfer.Read)
					} else {
						x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "r1", Tables: dt, From: from, Tokens: tokens, TTL: 5 * time.Second})
						if err != nil {
							t.Fatal(err)
						}
						p, err := toDestination.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, From: from, Tokens: tokens, SideData: []byte("first token")})
						if err != nil {
							t.Fatal(err)
						}
						var sent agent.Result
						wait(t, "push", func(ctx context.Context) (err error) { sent, err = p.Wait(ctx); return err })
						wait(t, "expectation", func(ctx context.Context) (err error) { result, err = x.Wait(ctx); return err })
						wait(t, "free", x.Free)
						result.Bytes, result.Segments = sent.Bytes, sent.Segments
					}
					d.check(mode, moved{1, dt, allLayers, from, tokens})
					bytes := int64(0)
					for _, rank := range d.held {
						part := d.side.Shard.Part(d.side.Model.Groups[0], rank)
						bytes += int64(len(part.Heads[0])*len(part.Layers)) * 2 * 8 * 4 * (tokens - from)
					}
					if result.Bytes != bytes || result.Segments == 0 || result.Request != "r1" || string(result.SideData) != "first token" || len(result.Ranks) != len(d.held) {
						t.Errorf("result %+v, want %d bytes", result, bytes)
					}
					if len(result.Valid) != 1 || result.Valid[0] != (agent.Box{Layers: allLayers, From: from, To: tokens}) || len(result.ValidBlocks[0]) != len(dt[0]) {
						t.Errorf("valid %v, blocks %v", result.Valid, result.ValidBlocks)
					}
				})
			}
		}
	}
}

// The same over every provider that two engines of one host can have, with
// the control connection over TCP.
func TestProviders(t *testing.T) {
	for name, open := range providers {
		t.Run(name, func(t *testing.T) {
			r := rig{open: open}
			s, d := r.pair(t, tp2, tp4, func(c *agent.Config, _ *agent.EngineSpec) { c.Listen = "tcp:127.0.0.1:0" })
			d.soil()
			reader, writer := d.dial(transport.Destination, s), s.dial(transport.Source, d)
			if reader.Provider() != name {
				t.Errorf("provider %q", reader.Provider())
			}
			var have []moved
			for i := range 4 {
				tokens := int64(40 + 13*i)
				st, dt := s.table(tokens), d.table(tokens)
				salt := uint32(i)
				boxes := []agent.Box{{Layers: plan.Range{From: 0, To: 3}, To: tokens}, {Layers: plan.Range{From: 3, To: 4}, To: 30}, {Layers: plan.Range{From: 3, To: 4}, From: 30, To: tokens}}
				var ready func(...agent.Box) error
				var end []func(context.Context) error
				if i%2 == 0 {
					o := offer(t, s, agent.Offer{Request: fmt.Sprint(i), Tables: st, Tokens: tokens, Streaming: true})
					x, err := reader.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
					if err != nil {
						t.Fatal(err)
					}
					ready = o.Ready
					end = append(end, func(ctx context.Context) error { _, err := x.Wait(ctx); return err }, func(ctx context.Context) error { _, err := o.Wait(ctx); return err })
				} else {
					x, err := d.engine.Expect(t.Context(), agent.Expect{Request: fmt.Sprint(i), Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					p, err := writer.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens, Streaming: true})
					if err != nil {
						t.Fatal(err)
					}
					ready = p.Ready
					end = append(end, func(ctx context.Context) error { _, err := p.Wait(ctx); return err }, func(ctx context.Context) error { _, err := x.Wait(ctx); return err }, x.Free)
				}
				for _, b := range boxes {
					s.fill(salt, st, b.Layers, b.From, b.To)
					if err := ready(b); err != nil {
						t.Fatal(err)
					}
				}
				for _, f := range end {
					wait(t, "end", f)
				}
				have = append(have, moved{salt, dt, allLayers, 0, tokens})
				d.check(name, have...)
			}
		})
	}
}

// Layers and chunks flow before the end, both ways.
func TestStreaming(t *testing.T) {
	const tokens = 100
	layer := func(l int) agent.Box { return agent.Box{Layers: plan.Range{From: l, To: l + 1}, To: tokens} }
	chunk := func(i int) agent.Box {
		return agent.Box{Layers: allLayers, From: int64(i) * 25, To: int64(i+1) * 25}
	}
	for _, mode := range []string{"pull", "push"} {
		for by, box := range map[string]func(int) agent.Box{"layers": layer, "chunks": chunk} {
			t.Run(mode+" by "+by, func(t *testing.T) {
				var r rig
				s, d := r.pair(t, tp2, tp4)
				d.soil()
				st, dt := s.table(tokens), d.table(tokens)
				var ready func(...agent.Box) error
				var landed func(context.Context, agent.Box) error
				var end []func(context.Context) error
				if mode == "pull" {
					o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Streaming: true})
					x, err := d.dial(transport.Destination, s).Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
					if err != nil {
						t.Fatal(err)
					}
					ready, landed = o.Ready, x.Landed
					end = append(end, func(ctx context.Context) error { _, err := x.Wait(ctx); return err }, func(ctx context.Context) error { _, err := o.Wait(ctx); return err })
				} else {
					x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "r", Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					p, err := s.dial(transport.Source, d).Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens, Streaming: true})
					if err != nil {
						t.Fatal(err)
					}
					ready, landed = p.Ready, x.Landed
					end = append(end, func(ctx context.Context) error { _, err := p.Wait(ctx); return err }, func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
				}
				var have []moved
				for i := range 4 {
					b := box(i)
					s.fill(9, st, b.Layers, b.From, b.To)
					if err := ready(b); err != nil {
						t.Fatal(err)
					}
					wait(t, "landed", func(ctx context.Context) error { return landed(ctx, b) })
					have = append(have, moved{9, dt, b.Layers, b.From, b.To})
					d.check(fmt.Sprint("after part ", i), have...) // and nothing of the parts to come
				}
				for _, f := range end {
					wait(t, "end", f)
				}
				if err := ready(box(0)); err == nil && mode == "pull" {
					t.Error("an offer that ended took a mark")
				}
				if err := landed(t.Context(), box(3)); err != nil {
					t.Errorf("landed after the end: %v", err)
				}
			})
		}
	}
}

// Many requests at once over one peer, each its own.
func TestManyAtOnce(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	d.soil()
	peer := d.dial(transport.Destination, s)
	const n, tokens = 30, 30
	var want [n]moved
	var wg sync.WaitGroup
	for i := range n {
		st, dt := s.table(tokens), d.table(tokens)
		s.fill(uint32(i), st, allLayers, 0, tokens)
		want[i] = moved{uint32(i), dt, allLayers, 0, tokens}
		o := offer(t, s, agent.Offer{Request: fmt.Sprint("r", i), Tables: st, Tokens: tokens})
		wg.Go(func() {
			x, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := x.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := o.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d.check("all", want[:]...)
	if d.policy.calls != 1 || s.policy.calls != 0 {
		t.Errorf("the destination's policy was asked %d times, the source's %d, want 1 and 0", d.policy.calls, s.policy.calls)
	}
}

// Ranges may come one after the other; the offer stays until the last.
func TestMoreFollows(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	d.soil()
	peer := d.dial(transport.Destination, s)
	const tokens = 64
	st, dt := s.table(tokens), d.table(tokens)
	s.fill(3, st, allLayers, 0, tokens)
	o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
	for _, p := range []agent.Pull{{Layers: plan.Range{From: 2, To: 4}, Tokens: tokens, More: true}, {Layers: plan.Range{From: 0, To: 2}, Tokens: tokens}} {
		p.Ticket, p.Tables = o.Ticket(), dt
		x, err := peer.Pull(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "part", func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
	}
	freed(t, o, transfer.Read)
	d.check("both", moved{3, dt, allLayers, 0, tokens})
}

// Ranks of both engines under two agents each: one aggregate, and every agent
// that holds offered blocks is told, also the one whose replicas nobody read.
func TestEnginesUnderSeveralAgents(t *testing.T) {
	p := parsePair(t, "shard: {tp: 8}, block: 16", tp2) // eight ranks for four heads: replicas
	var r rig
	key := option(func(c *agent.Config, s *agent.EngineSpec) { s.Key = slices.Repeat([]byte{5}, 32) })
	// The double takes replica d % 2, so that with one destination rank per
	// pair of heads the odd replicas of rank 0's heads are never read.
	s := []*node{r.node(t, "a0", &p.Source, []int{0, 2, 4, 6}, key), r.node(t, "a1", &p.Source, []int{1, 3, 5, 7}, key)}
	d := []*node{r.node(t, "b0", &p.Destination, []int{0}, key), r.node(t, "b1", &p.Destination, []int{1}, key)}
	const tokens = 50
	st, dt := s[0].table(tokens), d[0].table(tokens)
	lead := offer(t, s[0], agent.Offer{Request: "r", Tables: st, Tokens: tokens})
	offers := []*agent.Offered{lead, offer(t, s[1], agent.Offer{Request: "r", Tables: st, Tokens: tokens, Ticket: lead.Ticket()})}
	for _, n := range s {
		n.fill(2, st, allLayers, 0, tokens)
	}
	for i, n := range d {
		n.soil()
		x, err := n.dial(transport.Destination, s...).Pull(t.Context(), agent.Pull{Ticket: lead.Ticket(), Tables: dt, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "transfer", func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
		n.check("pulled", moved{2, dt, allLayers, 0, tokens})
		if i == 0 {
			for _, o := range offers {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if why, err := o.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("freed as %q before all of the consumer's ranks had finished", why)
				}
				cancel()
			}
		}
	}
	for _, o := range offers {
		freed(t, o, transfer.Read)
	}

	// And the other way: two producers, two owners.
	for _, n := range d {
		n.soil()
	}
	first, err := d[0].engine.Expect(t.Context(), agent.Expect{Request: "w", Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	second, err := d[1].engine.Expect(t.Context(), agent.Expect{Request: "w", Tables: dt, Tokens: tokens, TTL: 5 * time.Second, Ticket: first.Ticket()})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s {
		x, err := n.dial(transport.Source, d...).Push(t.Context(), agent.Push{Ticket: first.Ticket(), Tables: st, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "push", func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
	}
	for i, x := range []*agent.Expected{first, second} {
		wait(t, "expectation", func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
		d[i].check("pushed", moved{2, dt, allLayers, 0, tokens})
	}

	// One agent alone is not the engine, and two that hold one rank are none.
	_, err = d[0].engine.Connect(t.Context(), agent.Dial{Addresses: []string{s[0].Address()}, Role: transport.Destination})
	var notOpen *agent.NotOpen
	if !errors.As(err, &notOpen) || fmt.Sprint(notOpen.Missing) != "[1 3 5 7]" {
		t.Errorf("half an engine: %v", err)
	}
	twin := r.node(t, "a2", &p.Source, []int{1, 3}, key)
	_, err = d[0].engine.Connect(t.Context(), agent.Dial{Addresses: []string{s[1].Address(), twin.Address()}, Role: transport.Destination})
	var claim *session.RosterError
	if !errors.As(err, &claim) || !strings.Contains(err.Error(), `rank 1 is claimed by agent "a1" and by agent "a2"`) {
		t.Errorf("a rank claimed twice: %v", err)
	}
}

func TestFanOut(t *testing.T) {
	p := parsePair(t, tp2, tp4)
	var r rig
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
	other := p.Destination
	other.Engine = "decode-2"
	e := r.node(t, "c", &other, nil)
	const tokens = 40
	st := s.table(tokens)
	s.fill(4, st, allLayers, 0, tokens)
	o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Readers: 2})
	for _, n := range []*node{d, e} {
		n.soil()
		dt := n.table(tokens)
		x, err := n.dial(transport.Destination, s).Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "transfer", func(ctx context.Context) error { _, err := x.Wait(ctx); return err })
		n.check("read", moved{4, dt, allLayers, 0, tokens})
	}
	freed(t, o, transfer.Read)
}

func TestPolicyDigests(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	s, d := r.node(t, "a", &p.Source, nil), r.node(t, "b", &p.Destination, nil)
	d.policy.digest = 9
	peer := d.dial(transport.Destination, s)
	if diff, ok := peer.PolicyDiffers(); !ok || !strings.Contains(diff.Destination, "sha256:09") {
		t.Errorf("unequal policies: %v %v", diff, ok)
	}
	if as, why := peer.Assignments(); len(as) != 16 || why != "each head from a rank that holds it" {
		t.Errorf("%d assignments, %q", len(as), why)
	}
	if peer.LayoutState() != session.Declared || peer.Provider() != "loop" || peer.Role() != transport.Destination {
		t.Errorf("peer is %v %v %v", peer.LayoutState(), peer.Provider(), peer.Role())
	}
	other := p.Source
	other.Engine = "prefill-2"
	strict := r.node(t, "c", &other, nil, func(c *agent.Config, _ *agent.EngineSpec) { c.PolicyMatch = agent.MatchRequired })
	_, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{strict.Address()}, Role: transport.Destination})
	var refused *session.Refused
	if !errors.As(err, &refused) || refused.Code != session.CodeMismatch || refused.Fields[0].Field != "policy.digest" || blame.Of(err) != blame.Operator {
		t.Errorf("required and unequal: %v", err)
	}
}
