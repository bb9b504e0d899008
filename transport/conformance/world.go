package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// world is a case with memory, connected.
type world struct {
	t           testing.TB
	c           pairCase
	h           Harness
	pair        *plan.Pair
	proven      proof.Proven
	digest      geometry.Digest
	owner       host.Owner
	source      *end
	destination *end
	serial      byte
}

// end is one side of a world.
type end struct {
	engine   plan.Side  // with all groups that it has: memory is by these
	side     *plan.Side // as it is in the pair
	provider transport.Provider
	pools    []*host.Pool
	blocks   []*host.Blocks // by group of the pair
	peer     transport.PeerID
}

// open makes memory for a case, registers it, connects the sides and prepares
// the plan.
func open(t testing.TB, h Harness, c pairCase) *world {
	t.Helper()
	w := &world{t: t, c: c, h: h}
	w.pair, w.proven = c.prove(t)
	w.digest = w.proven.Digest()
	source, destination, err := c.sides()
	if err != nil {
		t.Fatal(err)
	}
	w.source = w.end(source, &w.pair.Source, h.Source, 1)
	w.destination = w.end(destination, &w.pair.Destination, h.Destination, 2)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if w.destination.peer, err = h.Destination.Connect(ctx, h.Source.Address()); err != nil {
		t.Fatal(err)
	}
	if w.source.peer, err = h.Source.Accepted(h.Destination.Token(w.destination.peer)); err != nil {
		t.Fatal(err)
	}
	if err := h.Source.Prepare(w.proven, w.source.peer, transport.Source); err != nil {
		t.Fatal(err)
	}
	if err := h.Destination.Prepare(w.proven, w.destination.peer, transport.Destination); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) end(engine plan.Side, s *plan.Side, p transport.Provider, seed uint64) *end {
	w.t.Helper()
	e := &end{engine: engine, side: s, provider: p}
	for g := range s.Groups {
		e.blocks = append(e.blocks, host.NewBlocks(s.Groups[g].Blocks, seed))
	}
	for r := range engine.Ranks {
		pool, err := w.owner.Open(host.Spec{Engine: engine.Engine, Rank: r, Groups: groups(&engine, r)}, host.Options{SmallPages: true})
		if err != nil {
			w.t.Fatal(err)
		}
		e.pools = append(e.pools, pool)
		rank := pool.Rank()
		for g, l := range engine.Ranks[r] {
			if l == nil { // an engine need not count what it has not
				rank.Generations[g] = nil
			}
		}
		if err := p.Register(rank); err != nil {
			w.t.Fatal(err)
		}
	}
	return e
}

// regions is how many regions a layout has, which may be none.
func regions(l *layout.Layout) int {
	if l == nil {
		return 0
	}
	return len(l.Regions)
}

// groups are the memory of a rank of an engine.
func groups(s *plan.Side, rank int) []host.Group {
	var out []host.Group
	for g, l := range s.Ranks[rank] {
		group := host.Group{Blocks: s.Groups[g].Blocks}
		for i := range regions(l) {
			group.Regions = append(group.Regions, host.Region{Name: l.Regions[i].Name, Bytes: l.Regions[i].Bytes})
		}
		out = append(out, group)
	}
	return out
}

// close closes the providers, then the memory, and looks for what is left.
func (w *world) close() {
	w.t.Helper()
	for _, p := range []transport.Provider{w.h.Destination, w.h.Source} {
		if err := p.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
		if err := p.Close(); err == nil {
			w.t.Error("a second Close is no error")
		}
	}
	for _, e := range []*end{w.source, w.destination} {
		for _, p := range e.pools {
			if err := p.Close(); err != nil {
				w.t.Errorf("close a pool: %v", err)
			}
		}
	}
	for _, l := range w.owner.Leaks() {
		w.t.Errorf("not closed: %s", l)
	}
}

// memory is all bytes of a side, [rank][group of the engine][region].
func (e *end) memory() [][][][]byte {
	out := make([][][][]byte, len(e.pools))
	for r, layouts := range e.engine.Ranks {
		out[r] = make([][][]byte, len(layouts))
		for g, l := range layouts {
			for i := range regions(l) {
				out[r][g] = append(out[r][g], e.pools[r].Buffer(g, i).Bytes())
			}
		}
	}
	return out
}

// spread calls f for every region of a side.
func (e *end) spread(f func(b []byte)) {
	for _, rank := range e.memory() {
		for _, group := range rank {
			for _, b := range group {
				f(b)
			}
		}
	}
}

// alloc takes blocks for n tokens: tables by group of the pair. That of a ring
// has its entries, however many tokens there are.
func (e *end) alloc(t testing.TB, n int64) [][]uint32 {
	t.Helper()
	var out [][]uint32
	for g := range e.side.Groups {
		_, need := stamp.Entries(e.side, g, 0, n)
		if ring := e.side.Groups[g].Ring; ring > 0 {
			need = int64(ring)
		}
		table, err := e.blocks[g].Alloc(int(need))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, table)
	}
	return out
}

// free gives the blocks of tables to others, without anybody noticing.
func (e *end) free(t testing.TB, tables [][]uint32) {
	t.Helper()
	for g, table := range tables {
		if err := e.blocks[g].Release(table); err != nil {
			t.Fatal(err)
		}
	}
}

// generations are those of tables now, on any rank that holds the group.
func (e *end) generations(tables [][]uint32) [][]uint64 {
	out := make([][]uint64, len(tables))
	for g, table := range tables {
		r := slices.IndexFunc(e.side.Ranks, func(l []*layout.Layout) bool { return l[g] != nil })
		for _, b := range table {
			out[g] = append(out[g], e.pools[r].Generations(e.side.OwnGroup(g)).Load(int(b)))
		}
	}
	return out
}

// release gives blocks of a group of the pair back on every rank that holds
// them.
func (e *end) release(t testing.TB, group int, ids []uint32) {
	t.Helper()
	for r, p := range e.pools {
		if e.side.Ranks[r][group] == nil {
			continue
		}
		if err := p.Release(e.side.OwnGroup(group), ids); err != nil {
			t.Fatal(err)
		}
	}
}

// guard fills all memory of a side with a pattern.
func (e *end) guard(salt byte) {
	e.spread(func(b []byte) {
		for k := range b {
			b[k] = byte(k*31+k>>8) ^ salt
		}
	})
}

// value is what an element holds, unlike its neighbours' in any direction.
func value(c geometry.Coord, salt uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, v := range []uint64{uint64(c.Group), uint64(c.Component), uint64(c.Layer), uint64(c.Head), uint64(c.Token), uint64(c.Dim), salt} {
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	return h.Sum64()
}

// part is some of a request on one side: its tables with the leading entries
// that they leave out, and by group the tokens (of states, [0, 1) is the state).
type part struct {
	tables [][]uint32
	first  []int64 // nil: none
	spans  []stamp.Span
	layers plan.Range // the zero value is all
}

// tokens is the part of tokens [from, to) of every group of tokens, and of
// every state.
func (w *world) tokens(tables [][]uint32, from, to int64, layers plan.Range) part {
	p := part{tables: tables, layers: layers}
	for _, g := range w.pair.Source.Model.Groups {
		span := stamp.Span{From: from, To: to}
		if g.State {
			span = stamp.Span{From: 0, To: 1}
		}
		p.spans = append(p.spans, span)
	}
	return p
}

// each calls f for every element of a part that a rank holds, with its place
// in the memory of the engine. An element of several tokens counts by the first
// of them; it is in the part with the last, if it scales others with the first.
func (e *end) each(rank int, p part, f func(c geometry.Coord, group, region int, offset, size int64)) {
	for gi, g := range e.side.Model.Groups {
		l, own := e.side.Ranks[rank][gi], e.side.Part(gi, rank)
		if l == nil {
			continue
		}
		block, skip := int64(e.side.Groups[gi].Block), int64(0)
		if p.first != nil {
			skip = p.first[gi]
		}
		for ci, comp := range g.Components {
			entry := int64(comp.EntryTokens())
			for t := p.spans[gi].From / entry * entry; t < p.spans[gi].To; t += entry {
				decides := t + entry - 1
				if comp.Scales != "" {
					decides = t
				}
				u, held := own.Local(t)
				if g.State {
					u, held = 0, true
				}
				if !held || decides < p.spans[gi].From || decides >= p.spans[gi].To {
					continue
				}
				if u/block < skip { // no longer held
					continue
				}
				id := int64(p.tables[gi][u/block-skip])
				for li, layer := range own.Layers {
					if p.layers != (plan.Range{}) && (layer < p.layers.From || layer >= p.layers.To) {
						continue
					}
					for hi := range max(len(own.Heads[ci]), 1) {
						c := geometry.Coord{Group: gi, Component: ci, Layer: layer, Token: t}
						if comp.Heads > 0 {
							c.Head = own.Heads[ci][hi]
						}
						for c.Dim = range comp.Dim {
							region, bit := l.Bit(ci, li, id, u%block/entry, int64(hi), int64(c.Dim))
							f(c, e.side.OwnGroup(gi), region, bit/8, comp.DType.Bits()/8)
						}
					}
				}
			}
		}
	}
}

// put writes elements where the image has them.
func put(b []byte, offset, size int64, v uint64) {
	for k := range size {
		b[offset+k] = byte(v >> (8 * k))
	}
}

// write puts the elements of a part into memory of a side, or an image of it.
func (e *end) write(into [][][][]byte, p part, salt uint64) {
	for r := range into {
		e.each(r, p, func(c geometry.Coord, group, region int, offset, size int64) {
			put(into[r][group][region], offset, size, value(c, salt))
		})
	}
}

// image is a copy of all memory of a side.
func (e *end) image() [][][][]byte {
	out := e.memory()
	for _, rank := range out {
		for _, group := range rank {
			for i := range group {
				group[i] = bytes.Clone(group[i])
			}
		}
	}
	return out
}

// wrong counts the bytes of a region that are not as in an image; first is the
// first of them, -1 where there is none.
func wrong(got, want []byte) (n, first int) {
	first = -1
	if bytes.Equal(got, want) {
		return 0, first
	}
	for k := range got {
		if got[k] != want[k] {
			if n++; first < 0 {
				first = k
			}
		}
	}
	return n, first
}

// compare holds a side against an image, byte for byte.
func (w *world) compare(e *end, image [][][][]byte, what string) {
	w.t.Helper()
	have := e.memory()
	for r := range image {
		for g := range image[r] {
			for i, want := range image[r][g] {
				got := have[r][g][i]
				if n, first := wrong(got, want); n > 0 {
					w.t.Errorf("%s: %s rank %d group %d region %d: %d of %d bytes are wrong, the first at %d: %#x, want %#x", what, e.side.Engine, r, g, i, n, len(got), first, got[first], want[first])
				}
			}
		}
	}
}

// transferCase is one request's movement.
type transferCase struct {
	direction           transport.Direction
	source, destination [][]uint32
	from, to            int64
	spans               []stamp.Span
	// Leading entries that the tables leave out, by group; nil: none.
	sourceFirst, destinationFirst []int64
	layers                        plan.Range
	edges                         []stamp.EdgeKey
	deadline                      time.Duration // 0: patience
	// changed, where not nil, edits what is granted and what is submitted.
	changed func(g *transport.Grant, op *transport.Operation)
}

// grant grants a transfer and returns what its submitter submits.
func (w *world) grant(x transferCase) (transport.Operation, error) {
	if x.deadline == 0 {
		x.deadline = patience
	}
	w.serial++
	var id transport.GrantID
	id[0], id[15] = w.serial, 0x5a
	submitter, granter := w.destination, w.source
	if x.direction == transport.Write {
		submitter, granter = granter, submitter
	}
	req := stamp.Request{ID: fmt.Sprint(w.serial), Plan: w.digest, From: x.from, To: x.to, Spans: x.spans, Layers: x.layers, Edges: x.edges}
	g := transport.Grant{ID: id, Peer: granter.peer, Direction: x.direction, Request: req, Deadline: time.Now().Add(patience)}
	op := transport.Operation{Peer: submitter.peer, Grant: id, Direction: x.direction, Request: req, Deadline: time.Now().Add(x.deadline)}
	from := func(r *stamp.Request) { r.Source, r.SourceFirst = x.source, x.sourceFirst }
	to := func(r *stamp.Request) { r.Destination, r.DestinationFirst = x.destination, x.destinationFirst }
	granted, own := from, to
	g.Generations = w.source.generations(x.source)
	if x.direction == transport.Write {
		granted, own = to, from
		g.Generations = w.destination.generations(x.destination)
	}
	granted(&g.Request)
	own(&op.Request)
	if submitter.provider.Capabilities().OneSided {
		granted(&op.Request)
		op.PeerGenerations = g.Generations
	}
	if x.changed != nil {
		x.changed(&g, &op)
	}
	return op, granter.provider.Grant(g)
}

// submitter is the side that submits in a direction, granter the other.
func (w *world) submitter(d transport.Direction) *end {
	if d == transport.Write {
		return w.source
	}
	return w.destination
}

func (w *world) granter(d transport.Direction) *end {
	if d == transport.Write {
		return w.destination
	}
	return w.source
}

// start grants and submits a transfer.
func (w *world) start(x transferCase) (transport.OpID, transport.Operation) {
	w.t.Helper()
	op, err := w.grant(x)
	if err != nil {
		w.t.Fatalf("grant: %v", err)
	}
	id, err := w.submitter(x.direction).provider.Submit(op)
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return id, op
}

// move does a whole transfer, which must succeed.
func (w *world) move(x transferCase) transport.Completion {
	w.t.Helper()
	id, op := w.start(x)
	done := w.wait(w.submitter(x.direction), id)
	if done.Err != nil {
		w.t.Fatalf("transfer: %+v", done.Err)
	}
	if err := w.granter(x.direction).provider.Revoke(op.Grant); err != nil {
		w.t.Errorf("revoke: %v", err)
	}
	return done
}

// try does a transfer and returns what is wrong with it, found at once or at
// its end.
func (w *world) try(x transferCase) error {
	w.t.Helper()
	op, err := w.grant(x)
	if err != nil {
		return err
	}
	return w.submit(w.submitter(x.direction), op)
}

// submit runs an operation to its end.
func (w *world) submit(e *end, op transport.Operation) error {
	w.t.Helper()
	id, err := e.provider.Submit(op)
	if err != nil {
		return err
	}
	return w.wait(e, id).Err
}

// wait polls until the operation is complete; others' completions are a
// failure.
func (w *world) wait(e *end, id transport.OpID) transport.Completion {
	w.t.Helper()
	return w.waitAll(e, id)[id]
}

func (w *world) waitAll(e *end, ids ...transport.OpID) map[transport.OpID]transport.Completion {
	w.t.Helper()
	out := map[transport.OpID]transport.Completion{}
	limit := time.After(2 * patience)
	var some [3]transport.Completion
	for {
		n := e.provider.Poll(some[:])
		for _, c := range some[:n] {
			if _, twice := out[c.Op]; twice || !slices.Contains(ids, c.Op) {
				w.t.Fatalf("operation %d completed, waiting for %v", c.Op, ids)
			}
			out[c.Op] = c
		}
		if len(out) == len(ids) {
			return out
		}
		if n > 0 {
			continue
		}
		select {
		case <-e.provider.Ready():
		case <-limit:
			w.t.Fatalf("no completion of %v after %v", ids, 2*patience)
		}
	}
}
