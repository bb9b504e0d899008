package agent_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
)

// pull reads an offer and returns the final error.
func pull(t testing.TB, p *agent.Peer, ticket agent.Ticket, tables [][]uint32, tokens int64) error {
	t.Helper()
	x, err := p.Pull(t.Context(), agent.Pull{Ticket: ticket, Tables: tables, Tokens: tokens})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = x.Wait(ctx)
	return err
}

func TestTickets(t *testing.T) {
	var r rig
	key := make([]byte, 32)
	s, d := r.pair(t, tp2, tp4, func(_ *agent.Config, e *agent.EngineSpec) { e.Key = key })
	d.soil()
	peer := d.dial(transport.Destination, s)
	const tokens = 32
	st, dt := s.table(tokens), d.table(tokens)
	live := offer(t, s, agent.Offer{Request: "live", Tables: st, Tokens: tokens, Readers: 2})
	over := offer(t, s, agent.Offer{Request: "over", Tables: st, Tokens: tokens})
	over.Cancel()
	freed(t, over, transfer.Canceled)
	expired := offer(t, s, agent.Offer{Request: "expired", Tables: st, Tokens: tokens, TTL: time.Millisecond})
	freed(t, expired, transfer.Expired)
	x, err := s.engine.Expect(t.Context(), agent.Expect{Request: "x", Tables: s.table(tokens), Tokens: tokens, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	like := func(change func(*transfer.Ticket), with []byte) agent.Ticket {
		k, err := transfer.Peek(string(live.Ticket()))
		if err != nil {
			t.Fatal(err)
		}
		change(&k)
		sealed, err := k.Seal(with)
		if err != nil {
			t.Fatal(err)
		}
		return agent.Ticket(sealed)
	}
	same := func(*transfer.Ticket) {}
	for _, c := range []struct {
		name   string
		ticket agent.Ticket
		want   error
	}{
		{"another key", like(same, append([]byte{1}, key...)), transfer.ErrForged},
		{"a later deadline", agent.Ticket(string(live.Ticket()[:30]) + "A" + string(live.Ticket()[31:])), transfer.ErrForged},
		{"another engine", like(func(k *transfer.Ticket) { k.Engine = "prefill-0" }, key), transfer.ErrEngine},
		{"another incarnation", like(func(k *transfer.Ticket) { k.Incarnation = "0" }, key), transfer.ErrIncarnation},
		{"another audience", like(func(k *transfer.Ticket) { k.Audience = "red" }, key), transfer.ErrAudience},
		{"an offer that never was", like(func(k *transfer.Ticket) { k.Offer = transfer.ID{} }, key), transfer.ErrUnknown},
		{"one that was given back", over.Ticket(), transfer.ErrUnknown},
		{"expired", expired.Ticket(), transfer.ErrExpired},
		{"to write", x.Ticket(), transfer.ErrKind},
		{"no ticket", "", transfer.ErrMalformed},
	} {
		err := pull(t, peer, c.ticket, dt, tokens)
		if !errors.Is(err, c.want) || blame.Of(err) == blame.Peer && c.want != transfer.ErrMalformed {
			// The owner blames its peer, which is us.
			t.Errorf("%s: %v (blames %s), want %v", c.name, err, blame.Of(err), c.want)
		}
	}
	d.check("nothing was moved")
	s.fill(1, st, allLayers, 0, tokens)
	if err := pull(t, peer, live.Ticket(), dt, tokens); err != nil {
		t.Fatal(err)
	}
	if err := pull(t, peer, live.Ticket(), dt, tokens); !errors.Is(err, transfer.ErrUsed) {
		t.Errorf("used twice: %v", err)
	}
	if _, err := peer.Pull(t.Context(), agent.Pull{Ticket: live.Ticket(), Tables: dt, Tokens: tokens + 1}); err == nil || blame.Of(err) != blame.Local {
		t.Errorf("more tokens than our table holds: %v", err)
	}
	live.Cancel()
	freed(t, live, transfer.Canceled)
	x.Cancel()
	if _, err := x.Wait(t.Context()); !errors.Is(err, transfer.ErrCanceled) {
		t.Errorf("a canceled expectation: %v", err)
	}
	wait(t, "free", x.Free)
}

// A bad message never stops the listener, and leaves nothing behind.
func TestBadBytes(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4, func(c *agent.Config, _ *agent.EngineSpec) { c.Timeouts.Handshake = 300 * time.Millisecond })
	network, address, _ := strings.Cut(s.Address(), ":")
	frame := func(typ, text string) string {
		return "4b564659" + "01" + typ + "0000" + fmt.Sprintf("%02x000000", len(text)) + hex.EncodeToString([]byte(text))
	}
	for _, c := range []struct {
		name, hex string
		want      session.Code // "": the connection is closed without a word
		field     string
	}{
		{"wrong magic", "474554202f20485454502f31", session.CodeProtocol, "magic"},
		{"another framing version", "4b5646590201000000000000", session.CodeProtocol, "version"},
		{"unknown type", "4b564659010f000000000000", session.CodeProtocol, "type"},
		{"oversized", "4b56465901010000ffffffff", session.CodeProtocol, "length"},
		{"a transfer before the handshake", frame("10", "{}"), session.CodeProtocol, "type"},
		{"out of turn", frame("06", `{"plans":["x"]}`), session.CodeProtocol, "confirm"},
		{"not JSON", frame("01", "hello"), session.CodeProtocol, "payload"},
		{"another version", frame("01", `{"versions":{"protocol":9,"abi":1,"plan":1}}`), session.CodeVersion, "versions.protocol"},
		{"an unknown key", frame("01", `{"versions":{"protocol":2,"abi":1,"plan":1},"x":1}`), session.CodeProtocol, "unknown field"},
		{"another engine", frame("01", `{"versions":{"protocol":2,"abi":1,"plan":1},"want":"other"}`), session.CodeEngine, "other"},
		{"an empty engine", frame("01", `{"versions":{"protocol":2,"abi":1,"plan":1},"role":"destination"}`), session.CodeMismatch, "incarnation"},
		{"truncated header", "4b5646", "", ""},
		{"truncated payload", frame("01", "0123456789")[:30], "", ""},
		{"silence", "", "", ""},
	} {
		raw, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = raw.SetReadDeadline(time.Now().Add(5 * time.Second))
		answer, err := io.ReadAll(raw)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: the connection was not closed: %v", c.name, err)
		}
		raw.Close()
		if c.want == "" {
			if len(answer) != 0 {
				t.Errorf("%s: answered %q", c.name, answer)
			}
			continue
		}
		if len(answer) < session.HeaderSize {
			t.Errorf("%s: answered %q", c.name, answer)
			continue
		}
		h, err := session.ParseHeader([session.HeaderSize]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		msg, err := session.Decode(h.Type, answer[session.HeaderSize:])
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := msg.(*session.Refuse); !ok || r.Code != c.want || !strings.Contains(r.Message, c.field) {
			t.Errorf("%s: answered %+v, want %s naming %q", c.name, msg, c.want, c.field)
		}
	}
	d.dial(transport.Destination, s) // it still listens
}

// generation is the word of a block on a node's first rank.
func (n *node) generation(block uint32) uint64 {
	return n.pools[n.held[0]].Generations(0).Load(int(block))
}

// A block that is given back while it is read is an error, never data.
func TestStale(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	peer := d.dial(transport.Destination, s)
	const tokens = 64
	st, dt := s.table(tokens), d.table(tokens)
	o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Streaming: true})
	x, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	half := agent.Box{Layers: allLayers, To: 32}
	if err := o.Ready(half); err != nil {
		t.Fatal(err)
	}
	wait(t, "the first half", func(ctx context.Context) error { return x.Landed(ctx, half) })
	for _, p := range s.pools { // the engine breaks its word
		if err := p.Release(0, st[0][3:4]); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Ready(agent.Box{Layers: allLayers, From: 32, To: 64}); err != nil {
		t.Fatal(err)
	}
	result, err := x.Wait(t.Context())
	var stale *transport.Stale
	if !errors.Is(err, transfer.ErrStale) || !errors.As(err, &stale) || stale.Block != st[0][3] || blame.Of(err) != blame.Peer {
		t.Errorf("a block that was given back: %v (blames %s)", err, blame.Of(err))
	}
	if fmt.Sprint(result.Valid) != "[group 0 layers 0-3 tokens 0-31]" || fmt.Sprint(result.ValidBlocks) != "[[0]]" {
		t.Errorf("valid %v %v", result.Valid, result.ValidBlocks)
	}
	freed(t, o, transfer.Abandoned)
}

// Freed means: new generations, and a late reader is refused.
func TestGenerationsMoveBeforeBlocksDo(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	peer := d.dial(transport.Destination, s)
	const tokens = 32
	st, dt := s.table(tokens), d.table(tokens)
	// Two requests share a prefix: the block is free when both are.
	shared := [][]uint32{{st[0][0], s.table(16)[0][0]}}
	a, b := offer(t, s, agent.Offer{Request: "a", Tables: st, Tokens: tokens}), offer(t, s, agent.Offer{Request: "b", Tables: shared, Tokens: tokens})
	before := s.generation(st[0][0])
	if err := pull(t, peer, a.Ticket(), dt, tokens); err != nil {
		t.Fatal(err)
	}
	freed(t, a, transfer.Read)
	if got := s.generation(st[0][0]); got != before {
		t.Errorf("a shared block went to generation %d while another offer holds it", got)
	}
	if got := s.generation(st[0][1]); got != before+1 {
		t.Errorf("a freed block has generation %d, want %d", got, before+1)
	}
	if err := pull(t, peer, b.Ticket(), dt, tokens); err != nil {
		t.Fatal(err)
	}
	freed(t, b, transfer.Read)
	if got := s.generation(st[0][0]); got != before+1 {
		t.Errorf("the shared block has generation %d, want %d", got, before+1)
	}
}

func TestBlocksInUse(t *testing.T) {
	var r rig
	s, _ := r.pair(t, tp2, tp4)
	st := s.table(32)
	o := offer(t, s, agent.Offer{Request: "a", Tables: st, Tokens: 32})
	var used *agent.InUse
	_, err := s.engine.Expect(t.Context(), agent.Expect{Request: "x", Tables: st, Tokens: 32, TTL: time.Second})
	if !errors.As(err, &used) || used.By != `offer "a"` || used.For != `expectation "x"` || blame.Of(err) != blame.Local {
		t.Errorf("writing blocks that are offered: %v", err)
	}
	if _, err := s.engine.Offer(t.Context(), agent.Offer{Request: "a", Tables: st, Tokens: 32, TTL: time.Second}); err == nil || !strings.Contains(err.Error(), `offer "a" is open already`) {
		t.Errorf("one name twice: %v", err)
	}
	o.Cancel()
	freed(t, o, transfer.Canceled)
	x, err := s.engine.Expect(t.Context(), agent.Expect{Request: "x", Tables: st, Tokens: 32, TTL: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Wait(t.Context()); !errors.Is(err, transfer.ErrTimeout) {
		t.Errorf("nobody came: %v", err)
	}
	wait(t, "free", x.Free)
	for _, bad := range []agent.Offer{
		{Request: "", Tables: st, Tokens: 32, TTL: 1}, {Request: "b", Tables: st, Tokens: 33, TTL: 1}, {Request: "b", Tables: st, Tokens: 0, TTL: 1},
		{Request: "b", Tables: st, From: -1, Tokens: 5, TTL: 1}, {Request: "b", Tables: nil, Tokens: 5, TTL: 1}, {Request: "b", Tables: [][]uint32{{64, 1}}, Tokens: 5, TTL: 1},
		{Request: "b", Tables: st, Tokens: 32}, {Request: "b", Tables: st, Tokens: 32, TTL: 1, SideData: make([]byte, transfer.MaxSideData+1)},
		{Request: "b", Tables: st, Tokens: 32, TTL: 1, Ticket: "x"}, {Request: "b", Tables: st, Tokens: 32, TTL: 1, Trace: strings.Repeat("x", 56)},
	} {
		if _, err := s.engine.Offer(t.Context(), bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
	if _, err := s.engine.Expect(t.Context(), agent.Expect{Request: "x", Tables: [][]uint32{{1, 1}}, Tokens: 32, TTL: 1}); err == nil || !strings.Contains(err.Error(), "would be written twice") {
		t.Errorf("a destination block twice: %v", err)
	}
}

func TestCancelAndTimeout(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	d.soil()
	reader, writer := d.dial(transport.Destination, s), s.dial(transport.Source, d)
	const tokens = 32
	st, dt := s.table(tokens), d.table(tokens)
	start := func(name string, timeout time.Duration) (*agent.Offered, *agent.Transfer) {
		o := offer(t, s, agent.Offer{Request: name, Tables: st, Tokens: tokens, Streaming: true})
		x, err := reader.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return o, x
	}
	o, x := start("reader cancels", 0)
	x.Cancel()
	if _, err := x.Wait(t.Context()); !errors.Is(err, transfer.ErrCanceled) || blame.Of(err) != blame.Local {
		t.Errorf("canceled by the reader: %v", err)
	}
	freed(t, o, transfer.Abandoned)

	o, x = start("reader gives up", 50*time.Millisecond)
	if _, err := x.Wait(t.Context()); !errors.Is(err, transfer.ErrTimeout) {
		t.Errorf("no marks in time: %v", err)
	}
	freed(t, o, transfer.Abandoned)

	o, x = start("owner cancels", 0)
	// A mark that arrives shows that the reader is in.
	part := agent.Box{Layers: plan.Range{From: 0, To: 1}, To: 32}
	if err := o.Ready(part); err != nil {
		t.Fatal(err)
	}
	wait(t, "landed", func(ctx context.Context) error { return x.Landed(ctx, part) })
	o.Cancel()
	result, err := x.Wait(t.Context())
	if !errors.Is(err, transfer.ErrEnded) || blame.Of(err) != blame.Peer {
		t.Errorf("canceled by the owner: %v (blames %s)", err, blame.Of(err))
	}
	if len(result.Valid) != 1 || result.Valid[0] != part || len(result.ValidBlocks[0]) != 0 {
		t.Errorf("valid %v %v, want the layer that landed and no block", result.Valid, result.ValidBlocks)
	}
	freed(t, o, transfer.Canceled)

	for _, who := range []string{"producer", "owner"} {
		e, err := d.engine.Expect(t.Context(), agent.Expect{Request: who, Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p, err := writer.Push(t.Context(), agent.Push{Ticket: e.Ticket(), Tables: st, Tokens: tokens, Streaming: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Ready(part); err != nil {
			t.Fatal(err)
		}
		wait(t, "landed", func(ctx context.Context) error { return e.Landed(ctx, part) })
		if who == "producer" {
			p.Cancel()
		} else {
			e.Cancel()
		}
		_, pushed := p.Wait(t.Context())
		got, expected := e.Wait(t.Context())
		if !errors.Is(pushed, transfer.ErrCanceled) || !errors.Is(expected, transfer.ErrCanceled) {
			t.Errorf("canceled by the %s: %v; %v", who, pushed, expected)
		}
		if want := map[string]blame.Party{"producer": blame.Peer, "owner": blame.Local}[who]; blame.Of(expected) != want {
			t.Errorf("canceled by the %s: the owner blames %s, want %s", who, blame.Of(expected), want)
		}
		if len(got.Valid) != 1 || got.Valid[0] != part {
			t.Errorf("canceled by the %s: valid %v", who, got.Valid)
		}
		if err := e.Landed(t.Context(), agent.Box{Layers: allLayers, To: 32}); !errors.Is(err, transfer.ErrCanceled) {
			t.Errorf("waiting for what never lands: %v", err)
		}
		wait(t, "free", e.Free)
	}
	if _, err := d.engine.Expect(t.Context(), agent.Expect{Request: "again", Tables: dt, Tokens: tokens, TTL: time.Second}); err != nil {
		t.Errorf("the blocks did not come back: %v", err)
	}
}

// A running transfer keeps a short lease alive by itself, and Extend one that
// has not begun.
func TestLeases(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	peer := d.dial(transport.Destination, s)
	const tokens, ttl = 32, 150 * time.Millisecond
	st, dt := s.table(tokens), d.table(tokens)
	o := offer(t, s, agent.Offer{Request: "running", Tables: st, Tokens: tokens, TTL: ttl, Streaming: true})
	x, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * ttl)
	if err := o.Ready(agent.Box{Layers: allLayers, To: tokens}); err != nil {
		t.Errorf("the lease passed under a running transfer: %v", err)
	}
	if _, err := x.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	freed(t, o, transfer.Read)
	o = offer(t, s, agent.Offer{Request: "waiting", Tables: st, Tokens: tokens, TTL: 2 * ttl})
	for range 8 {
		time.Sleep(ttl / 2)
		if err := peer.Extend(t.Context(), o.Ticket()); err != nil {
			t.Fatal(err)
		}
	}
	if err := pull(t, peer, o.Ticket(), dt, tokens); err != nil {
		t.Errorf("the lease passed although it was extended: %v", err)
	}
	freed(t, o, transfer.Read)
	if err := peer.Extend(t.Context(), o.Ticket()); !errors.Is(err, transfer.ErrExpired) && !errors.Is(err, transfer.ErrUnknown) {
		t.Errorf("extending what is over: %v", err)
	}
}

// A consumer that is gone in the middle does not hold the blocks, and a
// restarted one may come again.
func TestConsumerDies(t *testing.T) {
	p := parsePair(t, tp2, tp4)
	var r rig
	s := r.node(t, "a", &p.Source, nil)
	d := r.node(t, "b", &p.Destination, nil)
	const tokens = 32
	st := s.table(tokens)
	s.fill(8, st, allLayers, 0, tokens)
	o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens, Streaming: true})
	x, err := d.dial(transport.Destination, s).Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: d.table(tokens), Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	first := agent.Box{Layers: plan.Range{From: 0, To: 1}, From: 0, To: tokens}
	if err := o.Ready(first); err != nil {
		t.Fatal(err)
	}
	if err := x.Landed(t.Context(), first); err != nil { // the reader has come
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Wait(t.Context()); !errors.Is(err, transfer.ErrShut) {
		t.Errorf("a transfer of an agent that was closed: %v", err)
	}
	freed(t, o, transfer.Abandoned) // a close says goodbye: the reader has given up
	o = offer(t, s, agent.Offer{Request: "r2", Tables: st, Tokens: tokens})
	again := r.node(t, "b", &p.Destination, nil, func(_ *agent.Config, e *agent.EngineSpec) { e.Incarnation = "2" })
	again.soil()
	dt := again.table(tokens)
	if err := pull(t, again.dial(transport.Destination, s), o.Ticket(), dt, tokens); err != nil {
		t.Fatal(err)
	}
	again.check("read by the restarted consumer", moved{8, dt, allLayers, 0, tokens})
	freed(t, o, transfer.Read)
}

// Nothing is answered by default.
func TestPolicyFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(h *heads)
		want   string
		by     blame.Party
	}{
		{"an error", func(h *heads) { h.err = errors.New("declined: no idea") }, "declined: no idea", blame.Policy},
		{"a gap", func(h *heads) { h.change = func(as []plan.Assignment) []plan.Assignment { return as[1:] } }, "gap", blame.Policy},
		{"a wrong head", func(h *heads) {
			h.change = func(as []plan.Assignment) []plan.Assignment { as[0].Heads = plan.Range{From: 3, To: 4}; return as }
		}, "gap", blame.Policy},
		{"nothing", func(h *heads) { h.change = func([]plan.Assignment) []plan.Assignment { return nil } }, "no assignments", blame.Policy},
	} {
		for _, destinationDials := range []bool{true, false} {
			var r rig
			s, d := r.pair(t, tp2, tp4)
			c.change(d.policy)
			from, to, role := d, s, transport.Destination
			if !destinationDials {
				from, to, role = s, d, transport.Source
			}
			_, err := from.engine.Connect(t.Context(), agent.Dial{Addresses: []string{to.Address()}, Role: role})
			if err == nil || !strings.Contains(err.Error(), c.want) || blame.Of(err) != c.by {
				t.Errorf("%s, destination dials %v: %v (blames %s)", c.name, destinationDials, err, blame.Of(err))
			}
		}
	}
	var r rig
	s, d := r.pair(t, tp2, tp4, func(c *agent.Config, _ *agent.EngineSpec) { c.Policy = nil })
	if _, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination}); err == nil || blame.Of(err) != blame.Operator {
		t.Errorf("no policy: %v", err)
	}
}

func TestRegisterRefusals(t *testing.T) {
	p := parsePair(t, tp2, tp4)
	var r rig
	n := r.node(t, "a", &p.Source, nil)
	good := agent.EngineSpec{ID: "e", Incarnation: "1", Model: p.Source.Model, Shard: p.Source.Shard, Pools: p.Source.Groups, Layouts: p.Source.Ranks}
	for i := range n.held {
		m := n.pools[i].Rank()
		m.Engine = "e"
		good.Held = append(good.Held, m)
	}
	for _, c := range []struct {
		name   string
		change func(e *agent.EngineSpec)
		want   string
	}{
		{"another engine's memory", func(e *agent.EngineSpec) { e.ID = "f" }, `held rank 0 is memory of engine "e", want "f"`},
		{"twice", func(e *agent.EngineSpec) { e.Held = append(e.Held, e.Held[0]) }, "rank 0 is held twice"},
		{"no incarnation", func(e *agent.EngineSpec) { e.Incarnation = "" }, "incarnation"},
		{"no layout", func(e *agent.EngineSpec) { e.Layouts = e.Layouts[:1] }, "ranks is 1"},
		{"part of it and no key", func(e *agent.EngineSpec) { e.Held = e.Held[:1] }, "Key is absent"},
		{"a short key", func(e *agent.EngineSpec) { e.Key = []byte("x") }, "at least 32"},
		{"no memory", func(e *agent.EngineSpec) { e.Held[0].Buffers = nil }, "memory for 0 groups"},
		{"too few regions", func(e *agent.EngineSpec) { e.Held[0].Buffers[0] = nil }, "0 buffers, the layout has"},
		{"nothing held", func(e *agent.EngineSpec) { e.Held = nil }, "held is empty"},
	} {
		e := good
		e.Held = nil
		for _, m := range good.Held {
			m.Buffers = append(m.Buffers[:0:0], m.Buffers...)
			e.Held = append(e.Held, m)
		}
		c.change(&e)
		if _, err := n.Register(t.Context(), e); err == nil || !strings.Contains(err.Error(), c.want) || blame.Of(err) != blame.Local {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := n.Register(t.Context(), agent.EngineSpec{ID: "prefill", Incarnation: "2", Model: good.Model, Shard: good.Shard, Pools: good.Pools, Layouts: good.Layouts,
		Held: []memory.Rank{n.pools[0].Rank(), n.pools[1].Rank()}}); err == nil || !strings.Contains(err.Error(), "registered already") {
		t.Errorf("registered twice: %v", err)
	}
}

func TestConfigRefusals(t *testing.T) {
	var net loop.Network
	p := net.New(loop.Options{Workers: 1})
	defer p.Close()
	providers := []transport.Provider{p}
	for _, c := range []agent.Config{
		{}, {Name: "a"}, {Providers: providers}, {Name: strings.Repeat("a", 129), Providers: providers},
		{Name: "a", Providers: append(providers, p)}, {Name: "a", Providers: providers, PolicyMatch: 7},
		{Name: "a", Providers: providers, Listen: "tcp:0.0.0.0:0"}, {Name: "a", Providers: providers, Listen: "http://x"},
		{Name: "a", Providers: providers, Group: strings.Repeat("g", 65)},
	} {
		if _, err := agent.New(c); err == nil || blame.Of(err) != blame.Operator {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	peer := d.dial(transport.Destination, s)
	o := offer(t, s, agent.Offer{Request: "r", Tables: s.table(16), Tokens: 16})
	for _, close := range []func() error{peer.Close, s.engine.Close, s.Close, d.Close} {
		if err := close(); err != nil {
			t.Error(err)
		}
		if err := close(); !errors.Is(err, agent.ErrClosed) {
			t.Errorf("a second close: %v", err)
		}
	}
	freed(t, o, transfer.Shut)
	if _, err := s.engine.Offer(t.Context(), agent.Offer{Request: "r", Tables: [][]uint32{{1}}, Tokens: 16, TTL: 1}); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("an offer of a closed engine: %v", err)
	}
	if _, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination}); err == nil {
		t.Error("connected to a closed agent")
	}
}

// An agent that is too busy to shake hands says so, and the dialler hears it,
// also where the connection is gone before its hello.
func TestBusy(t *testing.T) {
	var r rig
	s, d := r.pair(t, tp2, tp4)
	network, address, _ := strings.Cut(s.Address(), ":")
	for range 80 { // more than an agent shakes hands with at once
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for i := range 20 { // the hello races with the close
		_, err := d.engine.Connect(t.Context(), agent.Dial{Role: transport.Destination, Addresses: []string{s.Address()}})
		var refused *session.Refused
		if !errors.As(err, &refused) || refused.Code != session.CodeBusy {
			t.Fatalf("connection %d: %v, want %s", i, err, session.CodeBusy)
		}
	}
}

// The kernel's own word for a socket path that is too long says nothing.
func TestSocketPath(t *testing.T) {
	var r rig
	s, _ := r.pair(t, tp2, tp4)
	long := "unix:/" + strings.Repeat("d", 107)
	provider := r.net.New(loop.Options{Workers: 1})
	defer provider.Close()
	for what, err := range map[string]error{
		"listen": func() error {
			_, err := agent.New(agent.Config{Name: "c", Listen: long, Providers: []transport.Provider{provider}})
			return err
		}(),
		"dial": func() error {
			_, err := s.engine.Connect(t.Context(), agent.Dial{Role: transport.Source, Addresses: []string{long}})
			return err
		}(),
	} {
		if err == nil || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), "has 108 bytes, at most 107") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
