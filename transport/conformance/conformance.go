// Package conformance is what every transport.Provider must pass: real plans
// of unequal pairs, moved both ways and compared element by element, and every
// way in which an operation can end.
//
// It imports the testing package and is for tests only.
package conformance

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Harness is two providers of one kind that can reach each other, new for each
// test. The suite connects them (Destination dials Source) and closes them.
type Harness struct {
	Source, Destination transport.Provider
}

// patience is the deadline of operations that should end well before.
const patience = 15 * time.Second

var cases = []pairCase{
	{"hnd-tp2-to-nhd-tp4", 3, kv(3, 8, 16),
		engine{name: "prefill", tp: 2, order: "block head token component dim", block: 16, blocks: 24},
		engine{name: "decode", tp: 4, order: "block token head component dim", block: 32, blocks: 12}, 150},
	{"uneven-stages-to-cross-layer", 4, kv(4, 12, 8),
		engine{name: "prefill", tp: 4, stages: []int{3, 1}, order: "block token component head dim", block: 32, blocks: 12},
		engine{name: "decode", tp: 6, stages: []int{2, 2}, order: "block head layer token component dim", block: 48, blocks: 9}, 200},
	{"split-to-transposed-keys", 2, kv(2, 2, 12),
		engine{name: "prefill", tp: 1, order: "component block token head dim", block: 16, blocks: 20},
		engine{name: "decode", tp: 2, order: "block head component dim,token|token,dim", block: 16, blocks: 20}, 100},
	{"latent-whole-blocks", 3, one(3, geometry.Component{Name: "latent", Dim: 36, DType: geometry.Uint8}),
		engine{name: "prefill", tp: 2, order: "block token dim", block: 16, blocks: 30},
		engine{name: "decode", tp: 1, order: "block token dim", block: 16, blocks: 30}, 250},
	{"replicas-and-dcp", 2, kv(2, 2, 8),
		engine{name: "prefill", tp: 1, dcp: 2, interleave: 2, order: "block head token component dim", block: 8, blocks: 24},
		engine{name: "decode", tp: 4, order: "block token head component dim", block: 12, blocks: 24}, 120},
}

// big takes long enough to be caught in the middle: many short pieces.
var big = pairCase{"big", 8, kv(8, 8, 64),
	engine{name: "prefill", tp: 1, order: "block token head component dim", block: 16, blocks: 128},
	engine{name: "decode", tp: 1, order: "block head token component dim", block: 16, blocks: 128}, 128 * 16}

var both = map[string]transport.Direction{"read": transport.Read, "write": transport.Write}

// Run runs the suite; harness makes a new pair of providers each time it is
// called.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	in := func(name string, c pairCase, f func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			before := count()
			w := open(t, harness(t), c)
			f(t, w)
			w.t = t
			w.close()
			before.same(t)
		})
	}
	for _, c := range cases {
		in("moves/"+c.name, c, moves)
		in("several-at-once/"+c.name, c, several)
	}
	for _, c := range groupCases {
		in("groups/"+c.name, c, movesGroups)
		in("spans/"+c.name, c, movesSpans)
		in("refuses/"+c.name, c, refusesGroups)
		in("stale-before/"+c.name, c, staleGroups)
	}
	small := cases[0]
	in("refuses", small, refuses)
	in("stale-before", small, staleBefore)
	in("fence", small, fence)
	in("unregister", small, unregister)
	for name, d := range both {
		in("cancel/"+name, big, func(t *testing.T, w *world) { cancels(t, w, d) })
		in("deadline/"+name, big, func(t *testing.T, w *world) { deadlines(t, w, d) })
		in("stale-during/"+name, big, func(t *testing.T, w *world) { staleDuring(t, w, d) })
		in("revoke-during/"+name, big, func(t *testing.T, w *world) { revokes(t, w, d) })
		in("disconnect-during/"+name, big, func(t *testing.T, w *world) { disconnects(t, w, d) })
		t.Run("close-during/"+name, func(t *testing.T) { closes(t, harness, d) })
	}
	t.Run("idle", func(t *testing.T) { idle(t, harness) })
}

// moves moves requests both ways, whole and in part, and compares everything.
func moves(t *testing.T, w *world) {
	n := w.c.tokens
	layers := plan.Range{From: 0, To: 1}
	for _, c := range []struct {
		name     string
		from, to int64
		layers   plan.Range
	}{
		{"whole", 0, n, plan.Range{}},
		{"from the middle of a block", n / 3, n - 1, plan.Range{}},
		{"one token", n / 2, n/2 + 1, plan.Range{}},
		{"one layer", 0, n, layers},
	} {
		for name, d := range both {
			w.t = t
			w.source.guard(0x11)
			w.destination.guard(0x77)
			src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
			w.source.write(w.source.memory(), w.tokens(src, 0, n, plan.Range{}), 1)
			source, want := w.source.image(), w.destination.image()
			w.destination.write(want, w.tokens(dst, c.from, c.to, c.layers), 1)
			done := w.move(transferCase{direction: d, source: src, destination: dst, from: c.from, to: c.to, layers: c.layers})
			what := c.name + ", " + name
			w.compare(w.destination, want, what)
			w.compare(w.source, source, what+" (the source)")
			s, err := stamp.New(w.proven)
			if err != nil {
				t.Fatal(err)
			}
			req := stamp.Request{Plan: w.digest, From: c.from, To: c.to, Layers: c.layers}
			bytes := int64(0)
			for _, e := range s.Edges(&req) {
				b, _, err := s.Totals(&req, e)
				if err != nil {
					t.Fatal(err)
				}
				bytes += b
			}
			if done.Bytes != bytes || done.Segments < 1 || done.Elapsed <= 0 {
				t.Errorf("%s: completion %+v, want %d bytes", what, done, bytes)
			}
			w.source.free(t, src)
			w.destination.free(t, dst)
		}
	}
}

// several moves requests in both directions at once, each edge on its own.
func several(t *testing.T, w *world) {
	w.t = t
	w.source.guard(0x33)
	w.destination.guard(0x55)
	n := w.c.tokens / 3
	var reads, writes []transport.OpID
	var grants []struct {
		end *end
		id  transport.GrantID
	}
	plans := w.proven.Plan()
	type request struct {
		src, dst [][]uint32
		salt     uint64
	}
	var requests []request
	for i := range 3 {
		r := request{w.source.alloc(t, n), w.destination.alloc(t, n), uint64(100 + i)}
		w.source.write(w.source.memory(), w.tokens(r.src, 0, n, plan.Range{}), r.salt)
		requests = append(requests, r)
	}
	want := w.destination.image()
	for i, r := range requests {
		w.destination.write(want, w.tokens(r.dst, 0, n, plan.Range{}), r.salt)
		d := transport.Read
		if i == 1 {
			d = transport.Write
		}
		for _, e := range plans.Edges {
			id, op := w.start(transferCase{direction: d, source: r.src, destination: r.dst, to: n, edges: []stamp.EdgeKey{{Source: e.Source, Destination: e.Destination}}})
			if d == transport.Read {
				reads = append(reads, id)
			} else {
				writes = append(writes, id)
			}
			grants = append(grants, struct {
				end *end
				id  transport.GrantID
			}{w.granter(d), op.Grant})
		}
	}
	for end, ids := range map[*end][]transport.OpID{w.destination: reads, w.source: writes} {
		for id, c := range w.waitAll(end, ids...) {
			if c.Err != nil {
				t.Errorf("operation %d: %v", id, c.Err)
			}
		}
	}
	w.compare(w.destination, want, "several at once")
	for _, g := range grants {
		if err := g.end.provider.Revoke(g.id); err != nil {
			t.Errorf("revoke: %v", err)
		}
	}
}

// refuses asks for what was not granted.
func refuses(t *testing.T, w *world) {
	w.t = t
	n := w.c.tokens
	src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
	w.destination.guard(0x77)
	untouched := w.destination.image()
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	unknown := func(err error) bool { var u *transport.Unknown; return errors.As(err, &u) }
	some := func(err error) bool { return err != nil }
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		name string
		edit func(g *transport.Grant, op *transport.Operation)
		ok   func(error) bool
	}{
		{"unknown grant", func(g *transport.Grant, op *transport.Operation) { op.Grant[3]++ }, is(transport.ErrNotGranted)},
		{"a plan that nobody prepared", func(g *transport.Grant, op *transport.Operation) { op.Request.Plan[0]++ }, unknown},
		{"granted under a plan that nobody prepared", func(g *transport.Grant, op *transport.Operation) { g.Request.Plan[0]++ }, unknown},
		{"no deadline", func(g *transport.Grant, op *transport.Operation) { op.Deadline = time.Time{} }, is(transport.ErrNoDeadline)},
		{"deadline passed", func(g *transport.Grant, op *transport.Operation) { op.Deadline = past }, is(transport.ErrDeadline)},
		{"grant's deadline passed", func(g *transport.Grant, op *transport.Operation) { g.Deadline = past }, some},
		{"more tokens than granted", func(g *transport.Grant, op *transport.Operation) { g.Request.To-- }, some},
		{"earlier tokens than granted", func(g *transport.Grant, op *transport.Operation) { g.Request.From++ }, some},
		{"more layers than granted", func(g *transport.Grant, op *transport.Operation) { g.Request.Layers = plan.Range{From: 0, To: 1} }, some},
		{"more edges than granted", func(g *transport.Grant, op *transport.Operation) {
			g.Request.Edges = []stamp.EdgeKey{{Source: 0, Destination: 0}}
		}, some},
		{"no tokens", func(g *transport.Grant, op *transport.Operation) { op.Request.From = op.Request.To }, some},
		{"table too short", func(g *transport.Grant, op *transport.Operation) {
			for _, tables := range []*[][]uint32{&op.Request.Source, &op.Request.Destination} {
				if *tables != nil {
					*tables = [][]uint32{(*tables)[0][:1]}
				}
			}
		}, some},
		{"unknown peer", func(g *transport.Grant, op *transport.Operation) { op.Peer += 1000 }, is(transport.ErrPeerGone)},
	} {
		for name, d := range both {
			if err := w.try(transferCase{direction: d, source: src, destination: dst, to: n, changed: c.edit}); !c.ok(err) {
				t.Errorf("%s, %s: got %v", c.name, name, err)
			}
		}
	}
	for name, d := range both {
		// The wrong way round: granted for reading, used for writing.
		if err := w.try(transferCase{direction: d, source: src, destination: dst, to: n, changed: func(g *transport.Grant, op *transport.Operation) {
			op.Direction = transport.Read + transport.Write - d
		}}); err == nil {
			t.Errorf("%s: used in the other direction", name)
		}
		op, err := w.grant(transferCase{direction: d, source: src, destination: dst, to: n})
		if err != nil {
			t.Fatal(err)
		}
		granter := w.granter(d)
		if err := granter.provider.Revoke(op.Grant); err != nil {
			t.Errorf("%s: revoke: %v", name, err)
		}
		if err := w.submit(w.submitter(d), op); !errors.Is(err, transport.ErrNotGranted) {
			t.Errorf("%s, revoked: got %v", name, err)
		}
		if err := granter.provider.Revoke(op.Grant); !errors.Is(err, transport.ErrNotGranted) {
			t.Errorf("%s: revoked twice: %v", name, err)
		}
		if err := w.submitter(d).provider.Cancel(1 << 40); !errors.Is(err, transport.ErrNoOperation) {
			t.Errorf("%s: canceled what never was: %v", name, err)
		}
	}
	w.compare(w.destination, untouched, "refused")
}

// staleBefore moves blocks that were given back after they were granted.
func staleBefore(t *testing.T, w *world) {
	w.t = t
	n := w.c.tokens
	w.destination.guard(0x77)
	untouched := w.destination.image()
	for name, d := range both {
		src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
		op, err := w.grant(transferCase{direction: d, source: src, destination: dst, to: n})
		if err != nil {
			t.Fatal(err)
		}
		granter, table := w.granter(d), src
		if d == transport.Write {
			table = dst
		}
		granter.release(t, 0, table[0][1:2])
		err = w.submit(w.submitter(d), op)
		var stale *transport.Stale
		if !errors.As(err, &stale) {
			t.Errorf("%s: got %v, want *Stale", name, err)
		} else if stale.Block != table[0][1] || stale.Found != stale.Granted+1 {
			t.Errorf("%s: %v, want block %d", name, stale, table[0][1])
		}
		w.compare(w.destination, untouched, "stale "+name)
		// Tokens whose blocks are still there move.
		op.Request.From = n - 1
		if err := w.submit(w.submitter(d), op); err != nil {
			t.Errorf("%s: tokens of another block: %v", name, err)
		}
		w.destination.guard(0x77) // what the last one wrote is right to be there
		w.source.free(t, src)
		w.destination.free(t, dst)
	}
}

// fence stops what a peer may do, and only that.
func fence(t *testing.T, w *world) {
	w.t = t
	n := w.c.tokens
	src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
	for name, d := range both {
		op, err := w.grant(transferCase{direction: d, source: src, destination: dst, to: n})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.submit(w.submitter(d), op); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		granter := w.granter(d)
		if err := granter.provider.Fence(ctx, granter.peer); err != nil {
			t.Errorf("%s: fence: %v", name, err)
		}
		cancel()
		if err := w.submit(w.submitter(d), op); !errors.Is(err, transport.ErrNotGranted) {
			t.Errorf("%s: after the fence: %v", name, err)
		}
		if err := granter.provider.Health(granter.peer); err != nil {
			t.Errorf("%s: the fence broke the connection: %v", name, err)
		}
		w.move(transferCase{direction: d, source: src, destination: dst, to: n})
	}
}

// unregister takes memory away.
func unregister(t *testing.T, w *world) {
	w.t = t
	n := w.c.tokens
	src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
	w.move(transferCase{direction: transport.Read, source: src, destination: dst, to: n})
	if err := w.h.Source.Register(w.source.pools[0].Rank()); err == nil {
		t.Error("a rank is registered twice")
	}
	if err := w.h.Source.Unregister("prefill", 1); err != nil {
		t.Fatal(err)
	}
	if err := w.h.Source.Unregister("prefill", 1); err == nil {
		t.Error("a rank is unregistered twice")
	}
	for name, d := range both {
		if err := w.try(transferCase{direction: d, source: src, destination: dst, to: n}); err == nil {
			t.Errorf("%s: moved from memory that is not registered", name)
		}
		edges := []stamp.EdgeKey{{Source: 0, Destination: 0}, {Source: 0, Destination: 1}}
		w.move(transferCase{direction: d, source: src, destination: dst, to: n, edges: edges})
	}
	if err := w.h.Source.Register(w.source.pools[1].Rank()); err != nil {
		t.Fatal(err)
	}
	for _, d := range both {
		w.move(transferCase{direction: d, source: src, destination: dst, to: n})
	}
}

// idle is a pair of providers that never did anything.
func idle(t *testing.T, harness func(t *testing.T) Harness) {
	before := count()
	h := harness(t)
	for _, p := range []transport.Provider{h.Source, h.Destination} {
		if p.Name() == "" || p.Address().Provider != p.Name() || len(p.Capabilities().Memory) == 0 {
			t.Errorf("%q: address %q, capabilities %+v", p.Name(), p.Address().Provider, p.Capabilities())
		}
		if err := p.Health(99); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("health of nobody: %v", err)
		}
		if _, err := p.Accepted("nobody"); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("accepted nobody: %v", err)
		}
		if err := p.Disconnect(99); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("disconnected nobody: %v", err)
		}
		if n := p.Poll(make([]transport.Completion, 4)); n != 0 {
			t.Errorf("%d completions of nothing", n)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := p.Close(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
		if _, err := p.Submit(transport.Operation{}); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("submit after close: %v", err)
		}
	}
	before.same(t)
}

// census is what must not grow.
type census struct{ goroutines, descriptors int }

func count() census {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return census{runtime.NumGoroutine(), -1}
	}
	return census{runtime.NumGoroutine(), len(list)}
}

// same waits until nothing more is there than before.
func (c census) same(t *testing.T) {
	t.Helper()
	var now census
	for range 200 {
		if now = count(); now.goroutines <= c.goroutines && now.descriptors <= c.descriptors {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("left behind: %d goroutines, %d descriptors; before: %d, %d\n%s", now.goroutines, now.descriptors, c.goroutines, c.descriptors, stacks[:runtime.Stack(stacks, true)])
}
