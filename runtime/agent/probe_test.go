package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// kernel is a test engine's own way to its memory: it follows layouts that may
// be others than the engine declares.
type kernel struct {
	n             *node
	writes, reads [][]*layout.Layout // by rank and group
	wrote         atomic.Int64
}

// honest is a kernel that does what the side declares.
func honest(n *node) *kernel { return &kernel{n: n, writes: n.side.Ranks, reads: n.side.Ranks} }

func (k *kernel) bits(l *layout.Layout, rank, group int, e measure.Element, f func(b []byte, shift uint, size int64)) {
	region, bit := l.Bit(e.Component, e.Layer, e.Block, e.Token, e.Head, e.Dim)
	f(k.n.pools[rank].Buffer(group, region).Bytes()[bit/8:], uint(bit%8), l.Extent.Components[e.Component].DType.Bits())
}

func (k *kernel) Write(_ context.Context, rank, group int, block uint32, set []measure.Set) error {
	k.wrote.Add(1)
	l := k.writes[rank][group]
	put := func(e measure.Element, v uint64) {
		k.bits(l, rank, group, e, func(b []byte, _ uint, size int64) {
			for i := range size / 8 {
				b[i] = byte(v >> (8 * i))
			}
		})
	}
	x := &l.Extent
	for ci, c := range x.Components {
		for li := range x.Layers {
			for tok := range int64(x.Tokens / c.EntryTokens()) {
				for h := range int64(max(x.Heads[ci], 1)) {
					for d := range int64(c.Dim) {
						put(measure.Element{Component: ci, Layer: li, Block: int64(block), Token: tok, Head: h, Dim: d}, 0)
					}
				}
			}
		}
	}
	for _, s := range set {
		put(s.Element, s.Bits)
	}
	return nil
}

func (k *kernel) Read(_ context.Context, rank, group int, block uint32, get []measure.Set) error {
	for i, s := range get {
		k.bits(k.reads[rank][group], rank, group, s.Element, func(b []byte, _ uint, size int64) {
			var v uint64
			for j := range size / 8 {
				v |= uint64(b[j]) << (8 * j)
			}
			get[i].Bits = v
		})
	}
	return nil
}

// scratch are the first blocks of every pool, for n tokens.
func scratch(side *plan.Side, n int64) [][]uint32 {
	out := make([][]uint32, len(side.Groups))
	for g, pool := range side.Groups {
		_, entries := stamp.Entries(side, g, 0, n)
		if pool.Ring > 0 {
			entries = int64(pool.Ring)
		}
		for i := range entries {
			out[g] = append(out[g], uint32(int(i)))
		}
	}
	return out
}

// swapped is a side's layouts with head and token exchanged in one group.
func swapped(t testing.TB, side *plan.Side, group int, order ...layout.Entry) [][]*layout.Layout {
	t.Helper()
	out := make([][]*layout.Layout, len(side.Ranks))
	for r, own := range side.Ranks {
		out[r] = append([]*layout.Layout(nil), own...)
		if own[group] == nil {
			continue
		}
		l, err := layout.Spec{Order: order}.Resolve(own[group].Extent)
		if err != nil {
			t.Fatal(err)
		}
		out[r][group] = l
	}
	return out
}

func words(t testing.TB, texts ...string) []layout.Entry {
	t.Helper()
	var out []layout.Entry
	for _, w := range texts {
		if w == "component" {
			out = append(out, layout.Entry{Component: true})
			continue
		}
		it, err := layout.ParseItem(w)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, layout.Entry{Item: it})
	}
	return out
}

// Two engines whose kernels do what they declare: both are measured, the probe
// passes, requests move as ever, and a second connection is not probed again.
func TestKernelsAreMeasuredAndProbed(t *testing.T) {
	source, destination := engines(t, hybrid)
	for name, open := range providers {
		for _, dials := range []string{"source", "destination"} {
			t.Run(name+"/"+dials+" dials", func(t *testing.T) {
				r := rig{open: open}
				var ks *kernel
				s, err := r.register(t, "a", &source, nil, r.provider(t), func(n *node) measure.Kernel { ks = honest(n); return ks })
				if err != nil {
					t.Fatal(err)
				}
				d, err := r.register(t, "b", &destination, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
				if err != nil {
					t.Fatal(err)
				}
				connect := func() *agent.Peer {
					if dials == "source" {
						s.dial(transport.Source, d)
						p, err := d.engine.Peer(t.Context(), source.Engine)
						if err != nil {
							t.Fatal(err)
						}
						return p
					}
					return d.dial(transport.Destination, s)
				}
				peer := connect()
				if !peer.Probed() || peer.LayoutState() != session.Measured {
					t.Fatalf("probed %v, layout: %s", peer.Probed(), peer.LayoutState())
				}
				before := ks.wrote.Load()
				if err := peer.Close(); err != nil {
					t.Fatal(err)
				}
				if again := connect(); !again.Probed() || ks.wrote.Load() != before {
					t.Errorf("connected again: probed %v, %d writes more", again.Probed(), ks.wrote.Load()-before)
				} else {
					peer = again
				}
				const tokens = 40
				st, dt := blocksOf(&source, tokens, 9), blocksOf(&destination, tokens, 9)
				s.compute(st, tokens)
				o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
				if err := pull(t, peer, o.Ticket(), dt, tokens); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// An engine whose cache-write kernel does not do what the engine declares is
// refused before anyone meets it.
func TestKernelThatDisagreesWithItsDeclaration(t *testing.T) {
	source, _ := engines(t, hybrid)
	for _, c := range []struct {
		group int
		order []layout.Entry
	}{
		{1, words(t, "block", "head", "component", "token", "dim")},
		{3, words(t, "token", "block", "dim")},
	} {
		var r rig
		does := swapped(t, &source, c.group, c.order...)
		_, err := r.register(t, "a", &source, nil, r.provider(t), func(n *node) measure.Kernel { return &kernel{n: n, writes: does, reads: does} })
		var dis *measure.Disagreement
		if !errors.As(err, &dis) || dis.Group != c.group || blame.Of(err) != blame.Local {
			t.Errorf("group %d: got %v, want a *measure.Disagreement", c.group, err)
		}
	}
}

// Declarations that are right and a kernel that reads otherwise than it writes:
// only the probe transfer shows it, to both sides.
func TestProbeFindsAKernelThatReadsWrongly(t *testing.T) {
	source, destination := engines(t, hybrid)
	var r rig
	s, err := r.register(t, "a", &source, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
	if err != nil {
		t.Fatal(err)
	}
	wrong := swapped(t, &destination, 1, words(t, "block", "component", "head", "token", "dim")...)
	d, err := r.register(t, "b", &destination, nil, r.provider(t), func(n *node) measure.Kernel {
		return &kernel{n: n, writes: destination.Ranks, reads: wrong}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination})
	var mismatch *measure.Mismatch
	if !errors.As(err, &mismatch) || mismatch.Group != "window" {
		t.Errorf("the destination hears %v, want a *measure.Mismatch", err)
	}
	_, err = s.engine.Connect(t.Context(), agent.Dial{Addresses: []string{d.Address()}, Role: transport.Source})
	if err == nil || !strings.Contains(err.Error(), "probe: rank") {
		t.Errorf("the source hears %v", err)
	}
}

// Without kernels layouts are believed, and the session says so.
func TestWithoutKernelsLayoutsAreDeclared(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	if p := d.dial(transport.Destination, s); p.LayoutState() != session.Declared || p.Probed() {
		t.Errorf("layout: %s, probed %v", p.LayoutState(), p.Probed())
	}
}

// Engines whose ranks live under several agents are measured and probed by each
// of them, and what arrives is compared over every connection.
func TestProbeAndIntegrityUnderSeveralAgents(t *testing.T) {
	source, destination := engines(t, hybrid)
	var r rig
	key := func(_ *agent.Config, spec *agent.EngineSpec) { spec.Key = make([]byte, 32) }
	add := func(name string, side *plan.Side, held ...int) *node {
		t.Helper()
		n, err := r.register(t, name, side, held, r.provider(t), func(n *node) measure.Kernel { return honest(n) }, key)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s1, s2 := add("a1", &source, 0, 1), add("a2", &source, 2, 3)
	d1, d2 := add("b1", &destination, 0, 2), add("b2", &destination, 1, 3)
	p1, p2 := d1.dial(transport.Destination, s1, s2), d2.dial(transport.Destination, s1, s2)
	if !p1.Probed() || !p2.Probed() {
		t.Fatalf("probed %v and %v", p1.Probed(), p2.Probed())
	}
	const tokens = 75
	st, dt := blocksOf(&source, tokens, 9), blocksOf(&destination, tokens, 9)
	s1.compute(st, tokens)
	s2.compute(st, tokens)
	o := offer(t, s1, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
	o2 := offer(t, s2, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Ticket: o.Ticket()})
	d1.soilAll()
	d2.soilAll()
	a, err := p1.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Integrity: transfer.Full})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p2.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Integrity: transfer.Sample})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "pull", func(ctx context.Context) error { _, err := a.Wait(ctx); return err })
	wait(t, "pull", func(ctx context.Context) error { _, err := b.Wait(ctx); return err })
	freed(t, o, transfer.Read)
	freed(t, o2, transfer.Read)
	spans := everything(&destination, tokens)
	spans[1].From, spans[4] = 44, stamp.Span{}
	d1.holds("first agent", dt, spans)
	d2.holds("second agent", dt, spans)
}

// Two engines that are each other's source and destination take turns.
func TestEnginesThatProbeEachOther(t *testing.T) {
	one, other := engines(t, hybrid)
	for range 3 {
		var r rig
		a, err := r.register(t, "a", &one, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.register(t, "b", &other, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		for _, x := range [][2]*node{{a, b}, {b, a}} {
			go func() {
				_, err := x[0].engine.Connect(t.Context(), agent.Dial{Addresses: []string{x[1].Address()}, Role: transport.Destination})
				errs <- err
			}()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
}

// stuck is a kernel that waits until it is told to give up.
type stuck struct{}

func (stuck) Write(ctx context.Context, _, _ int, _ uint32, _ []measure.Set) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) Read(context.Context, int, int, uint32, []measure.Set) error { return nil }

// Measuring has an end.
func TestKernelThatHangs(t *testing.T) {
	source, _ := engines(t, hybrid)
	var r rig
	_, err := r.register(t, "a", &source, nil, r.provider(t), func(*node) measure.Kernel { return stuck{} },
		func(c *agent.Config, _ *agent.EngineSpec) { c.Timeouts.Measure = 50 * time.Millisecond })
	if err == nil || !strings.Contains(err.Error(), "took longer than 50ms") {
		t.Errorf("got %v", err)
	}
}

// Whatever closes while what arrived is being compared, the transfer ends and
// the blocks come back.
func TestCloseWhileComparing(t *testing.T) {
	source, destination := engines(t, hybrid)
	const tokens = 75
	for i := range 24 {
		var r rig
		s, d := r.node(t, "a", &source, nil), r.node(t, "b", &destination, nil)
		st, dt := blocksOf(&source, tokens, 3), blocksOf(&destination, tokens, 1)
		s.compute(st, tokens)
		peer := d.dial(transport.Destination, s)
		o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
		p, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Integrity: transfer.Full})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		switch i % 3 {
		case 0:
			_ = s.engine.Close()
		case 1:
			_ = d.engine.Close()
			o.Cancel() // a reader that is gone leaves an offer to others
		case 2:
			o.Cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		if _, err := p.Wait(ctx); ctx.Err() != nil {
			t.Errorf("case %d: the transfer does not end: %v", i, err)
		}
		if _, err := o.Wait(ctx); ctx.Err() != nil {
			t.Errorf("case %d: the offer does not end: %v", i, err)
		}
		cancel()
	}
}

// Groups are matched by name: a group that one side lacks may stand anywhere.
func TestProbeWithADraftBeforeTheOthers(t *testing.T) {
	begin := strings.Index(hybrid, "    - name: draft\n")
	end := strings.Index(hybrid, "source:\n")
	draft := hybrid[begin:end]
	text := strings.Replace(hybrid[:begin]+hybrid[end:], "  groups:\n", "  groups:\n"+draft, 1)
	source, destination := engines(t, text)
	if destination.Model.Groups[0].Name != "draft" || source.Model.Groups[0].Name != "full" {
		t.Fatalf("groups %q and %q", source.Model.Groups[0].Name, destination.Model.Groups[0].Name)
	}
	var r rig
	s, err := r.register(t, "a", &source, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.register(t, "b", &destination, nil, r.provider(t), func(n *node) measure.Kernel { return honest(n) })
	if err != nil {
		t.Fatal(err)
	}
	if p := d.dial(transport.Destination, s); !p.Probed() {
		t.Error("not probed")
	}
}
