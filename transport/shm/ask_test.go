package shm

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// small is a pair of one rank each: attention, a window and a state.
func small(t *testing.T) proof.Proven {
	t.Helper()
	kv := []geometry.Component{{Name: "kv", Heads: 2, Dim: 8, DType: geometry.Uint8}}
	m := geometry.Model{Name: "small", Layers: 3, Groups: []geometry.Group{
		{Name: "attention", Layers: []int{0}, Components: kv}, {Name: "window", Window: 16, Layers: []int{1}, Components: kv}, {Name: "state", State: true, Layers: []int{2}, Components: kv}}}
	order, err := shard.Order(nil)
	if err != nil {
		t.Fatal(err)
	}
	side := func(engine string) plan.Side {
		s := plan.Side{Engine: engine, Model: m, Shard: shard.Spec{TP: 1, Stages: []int{3}, DCPSize: 1, Interleave: 1, Order: order},
			Groups: []plan.Pool{{Block: 8, Blocks: 8}, {Block: 8, Blocks: 8}, {Block: 1, Blocks: 4}}, Ranks: make([][]*layout.Layout, 1)}
		for g, pool := range s.Groups {
			axes := []geometry.Axis{geometry.Block, geometry.Token, geometry.Head, geometry.Dim}
			if m.Groups[g].State {
				axes = []geometry.Axis{geometry.Slot, geometry.Channel, geometry.Dim}
			}
			var spec layout.Spec
			for _, a := range axes {
				spec.Order = append(spec.Order, layout.Entry{Item: layout.Item{Axis: a}})
			}
			l, err := spec.Resolve(s.Part(g, 0).Extent(m.Groups[g], pool.Block, pool.Blocks))
			if err != nil {
				t.Fatal(err)
			}
			s.Ranks[0] = append(s.Ranks[0], l)
		}
		return s
	}
	p := &plan.Pair{Source: side("prefill"), Destination: side("decode")}
	var as []plan.Assignment
	for g := range m.Groups {
		as = append(as, plan.Assignment{Group: g, Components: 1, Layers: plan.Range{To: 3}, Heads: plan.Range{To: 2}})
	}
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	proven, err := proof.Check(p, pl)
	if err != nil {
		t.Fatal(err)
	}
	return proven
}

// A peer that asks for what it was not granted is told so and nothing moves;
// the connection lives.
func TestAskIsRefusedAlone(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	proven := small(t)
	side := &proven.Pair().Destination
	var owner host.Owner
	var groups []host.Group
	for g, l := range side.Ranks[0] {
		groups = append(groups, host.Group{Blocks: side.Groups[g].Blocks, Regions: []host.Region{{Name: l.Regions[0].Name, Bytes: l.Regions[0].Bytes}}})
	}
	pools := map[string]*host.Pool{}
	for _, engine := range []string{"prefill", "decode"} {
		if pools[engine], err = owner.Open(host.Spec{Engine: engine, Groups: groups}, host.Options{SmallPages: true}); err != nil {
			t.Fatal(err)
		}
		defer pools[engine].Close()
	}
	if err := p.Register(pools["decode"].Rank()); err != nil {
		t.Fatal(err)
	}
	token := random()
	x := rawPeer(t, p, false)
	if err := x.greet(p.address.secret, token); err != nil {
		t.Fatal(err)
	}
	id, err := p.Accepted(hex.EncodeToString(token[:]))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Prepare(proven, id, transport.Destination); err != nil {
		t.Fatal(err)
	}
	// The peer shows memory of its own, from which it has us write.
	m, d, err := pools["prefill"].Export()
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	x.writeFrame(outgoing{frame(frameMemory, text, len(d.Files)), d.Files})
	closeFiles(d.Files)

	// 29 tokens, of which the window's first block is gone.
	tables, first := [][]uint32{{3, 1, 5, 7}, {6, 2, 0}, {2}}, []int64{0, 1, 0}
	spans := []stamp.Span{{From: 4, To: 29}, {From: 13, To: 29}, {To: 1}}
	grant := transport.Grant{ID: transport.GrantID{1}, Peer: id, Direction: transport.Write, Deadline: time.Now().Add(time.Minute), Generations: [][]uint64{make([]uint64, 4), make([]uint64, 3), {0}},
		Request: stamp.Request{Plan: proven.Digest(), Destination: tables, DestinationFirst: first, From: 0, To: 29, Spans: spans}}
	if err := p.Grant(grant); err != nil {
		t.Fatal(err)
	}
	good := func() *ask {
		return &ask{grant: grant.ID, direction: transport.Write, request: stamp.Request{Plan: proven.Digest(), From: 0, To: 29, Spans: slices.Clone(spans)}, remaining: int64(time.Minute),
			own: [][]uint32{{0, 1, 2, 3}, {4, 5, 6}, {1}}, snapshot: []snapshot{{0, [][]uint64{{0, 0, 0, 0}, {0, 0, 0}, {0}}}}}
	}
	fill := func(engine string, v byte) {
		for g := range groups {
			b := pools[engine].Buffer(g, 0).Bytes()
			copy(b, bytes.Repeat([]byte{v}, len(b)))
		}
	}
	fill("prefill", 9)
	fill("decode", 0)
	op := uint64(0)
	report := func(a *ask) *report {
		t.Helper()
		op++
		a.op = op
		x.writeFrame(outgoing{bytes: frame(frameAsk, a.encode(), 0)})
		for {
			kind, body, files, err := x.receive()
			closeFiles(files)
			if err != nil {
				t.Fatal(err)
			}
			if kind == frameMemory { // what it shows us
				continue
			}
			r, err := decodeReport(kind, body)
			if err != nil || kind != frameEnd || r.op != op {
				t.Fatalf("frame of type %d: %+v, %v", kind, r, err)
			}
			return r
		}
	}
	for _, c := range []struct {
		name string
		edit func(a *ask)
		says string
	}{
		{"a span before the grant's", func(a *ask) { a.request.Spans[0].From = 3 }, "spans"},
		{"a span of a window's past", func(a *ask) { a.request.Spans[1].From = 0 }, "table"},
		{"all tokens", func(a *ask) { a.request.Spans = nil }, "table"},
		{"spans below zero", func(a *ask) { a.request.Spans[0].From = -1 << 63 }, "spans"},
		{"spans beyond everything", func(a *ask) { a.request.Spans[0].To = 1<<63 - 1 }, "spans"},
		{"spans that end before they begin", func(a *ask) { a.request.Spans[0] = stamp.Span{From: 20, To: 8} }, "spans"},
		{"spans of no group", func(a *ask) { a.request.Spans = []stamp.Span{} }, "spans"},
		{"spans of another group", func(a *ask) { a.request.Spans = append(a.request.Spans, stamp.Span{}) }, "spans"},
		{"two states", func(a *ask) { a.request.Spans[2].To = 2 }, "spans"},
		{"more of its own entries than the spans need", func(a *ask) { a.own[1] = append(a.own[1], 7) }, "entries of group 1"},
		{"fewer of its own entries", func(a *ask) { a.own[0] = a.own[0][1:] }, "entries of group 0"},
		{"no slot of its own", func(a *ask) { a.own[2] = nil }, "entries of group 2"},
		{"a slot where no state moves", func(a *ask) { a.request.Spans[2] = stamp.Span{} }, "entries of group 2"},
		{"own entries of no group", func(a *ask) { a.own = nil }, "tables"},
		{"a block that it has not", func(a *ask) { a.own[1][2] = 8 }, "source table"},
		{"generations of fewer groups", func(a *ask) { a.snapshot[0].generations = a.snapshot[0].generations[1:] }, "generations"},
		{"generations of no rank", func(a *ask) { a.snapshot = nil }, "generations"},
		{"generations that are none of its blocks'", func(a *ask) { a.snapshot[0].generations[1][0] = 5 }, "given back"},
		{"other blocks than were granted", func(a *ask) {
			a.tables, a.generations = [][]uint32{{3, 1, 5, 7}, {2, 0}, {2}}, [][]uint64{{0, 0, 0, 0}, {0, 0}, {0}}
		}, "tables"},
	} {
		a := good()
		c.edit(a)
		if r := report(a); r.err == nil || r.bytes != 0 || !strings.Contains(r.err.Error(), c.says) {
			t.Errorf("%s: %v, %d bytes, want an error with %q", c.name, r.err, r.bytes, c.says)
		}
	}
	count := func() (n int64) {
		for g := range groups {
			n += int64(bytes.Count(pools["decode"].Buffer(g, 0).Bytes(), []byte{9}))
		}
		return n
	}
	if n := count(); n > 0 {
		t.Errorf("%d bytes landed", n)
	}
	want := int64(25+16+1) * 16
	if r := report(good()); r.err != nil || r.bytes != want || count() != want {
		t.Errorf("what was granted: %v, %d bytes of which %d are in place, want %d", r.err, r.bytes, count(), want)
	}
}
