package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
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

// engine is one side of a case, in short form.
type engine struct {
	name       string
	tp, dcp    int
	interleave int
	stages     []int  // nil: one
	order      string // "block head token component dim"; "a|b" as last word: branches of the components
	block      int
	blocks     int
}

// pairCase is a pair of engines.
type pairCase struct {
	name                string
	layers              int
	components          []geometry.Component
	source, destination engine
	tokens              int64
}

func kv(heads, dim int) []geometry.Component {
	return []geometry.Component{{Name: "k", Heads: heads, Dim: dim, DType: geometry.BF16}, {Name: "v", Heads: heads, Dim: dim, DType: geometry.BF16}}
}

var axes = map[string]geometry.Axis{"block": geometry.Block, "head": geometry.Head, "token": geometry.Token, "dim": geometry.Dim, "layer": geometry.Layer}

// spec reads an order.
func spec(order string, comps []geometry.Component) layout.Spec {
	item := func(word string) layout.Item { return layout.Item{Axis: axes[word]} }
	var s layout.Spec
	for word := range strings.FieldsSeq(order) {
		switch {
		case word == "component":
			s.Order = append(s.Order, layout.Entry{Component: true})
		case strings.Contains(word, "|"):
			branch := map[string][]layout.Item{}
			for i, items := range strings.Split(word, "|") {
				for w := range strings.SplitSeq(items, ",") {
					branch[comps[i].Name] = append(branch[comps[i].Name], item(w))
				}
			}
			s.Order = append(s.Order, layout.Entry{Branch: branch})
		default:
			s.Order = append(s.Order, layout.Entry{Item: item(word)})
		}
	}
	return s
}

// side makes a plan.Side of an engine.
func (e engine) side(m geometry.Model) (plan.Side, error) {
	order, err := shard.Order(nil)
	if err != nil {
		return plan.Side{}, err
	}
	stages := e.stages
	if stages == nil {
		stages = []int{m.Layers}
	}
	s := plan.Side{Engine: e.name, Model: m, Groups: []plan.Pool{{Block: e.block, Blocks: e.blocks}},
		Shard: shard.Spec{TP: e.tp, Stages: stages, DCPSize: max(e.dcp, 1), Interleave: max(e.interleave, 1), Order: order}}
	g := m.Groups[0]
	for r := range s.Shard.Ranks() {
		part := s.Shard.Part(g, r)
		l, err := spec(e.order, g.Components).Resolve(layout.Extent{Layers: part.Layers, Blocks: e.blocks, Tokens: e.block, Heads: len(part.Heads), Components: g.Components})
		if err != nil {
			return plan.Side{}, fmt.Errorf("lay out rank %d of %s: %w", r, e.name, err)
		}
		s.Ranks = append(s.Ranks, []*layout.Layout{l})
	}
	return s, nil
}

func (c pairCase) pair() (*plan.Pair, error) {
	m := geometry.Model{Name: c.name, Layers: c.layers, Groups: []geometry.Group{{Components: c.components}}}
	for l := range c.layers {
		m.Groups[0].Layers = append(m.Groups[0].Layers, l)
	}
	s, err := c.source.side(m)
	if err != nil {
		return nil, err
	}
	d, err := c.destination.side(m)
	if err != nil {
		return nil, err
	}
	p := &plan.Pair{Source: s, Destination: d}
	return p, p.Validate()
}

// assign gives every head of every destination rank to a source rank that has
// it, the first one.
func assign(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	g := p.Source.Model.Groups[0]
	for d := range p.Destination.Ranks {
		need := p.Destination.Shard.Part(g, d)
		heads := need.Heads
		if heads == nil {
			heads = []int{0}
		}
		for _, h := range heads {
			taken := map[string]bool{} // source layers and tokens
			for s := range p.Source.Ranks {
				have := p.Source.Shard.Part(g, s)
				if have.Heads != nil && !slices.Contains(have.Heads, h) {
					continue
				}
				from, to := max(have.Layers[0], need.Layers[0]), min(have.Layers[len(have.Layers)-1], need.Layers[len(need.Layers)-1])+1
				key := fmt.Sprint(from, to, have.Phase)
				if from >= to || taken[key] {
					continue
				}
				taken[key] = true
				a := plan.Assignment{Components: 1<<len(g.Components) - 1, Destination: d, Source: s, Layers: plan.Range{From: from, To: to}, Heads: plan.Range{From: h, To: h + 1}}
				if have.Size > 1 {
					a.Tokens = plan.Tokens{Size: have.Size, Interleave: have.Interleave, Phase: have.Phase}
				}
				out = append(out, a)
			}
		}
	}
	return out
}

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
	side     *plan.Side
	provider transport.Provider
	pools    []*host.Pool
	blocks   *host.Blocks
	peer     transport.PeerID
}

// prove plans and proves a case.
func (c pairCase) prove(t testing.TB) (*plan.Pair, proof.Proven) {
	t.Helper()
	pair, err := c.pair()
	if err != nil {
		t.Fatalf("case %s: %+v", c.name, err)
	}
	pl, err := build.Build(pair, assign(pair), nil, plan.DefaultBudget())
	if err != nil {
		t.Fatalf("case %s: build: %+v", c.name, err)
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		t.Fatalf("case %s: prove: %+v", c.name, err)
	}
	return pair, proven
}

// open makes memory for a case, registers it, connects the sides and prepares
// the plan.
func open(t testing.TB, h Harness, c pairCase) *world {
	t.Helper()
	w := &world{t: t, c: c, h: h}
	w.pair, w.proven = c.prove(t)
	w.digest = w.proven.Digest()
	w.source = w.end(&w.pair.Source, h.Source, 1)
	w.destination = w.end(&w.pair.Destination, h.Destination, 2)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
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

func (w *world) end(s *plan.Side, p transport.Provider, seed uint64) *end {
	w.t.Helper()
	e := &end{side: s, provider: p, blocks: host.NewBlocks(s.Groups[0].Blocks, seed)}
	for r, layouts := range s.Ranks {
		var g host.Group
		g.Blocks = s.Groups[0].Blocks
		for _, region := range layouts[0].Regions {
			g.Regions = append(g.Regions, host.Region{Name: region.Name, Bytes: region.Bytes})
		}
		pool, err := w.owner.Open(host.Spec{Engine: s.Engine, Rank: r, Groups: []host.Group{g}}, host.Options{SmallPages: true})
		if err != nil {
			w.t.Fatal(err)
		}
		e.pools = append(e.pools, pool)
		if err := p.Register(pool.Rank()); err != nil {
			w.t.Fatal(err)
		}
	}
	return e
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

// bytes returns the region of a rank.
func (e *end) bytes(rank, region int) []byte { return e.pools[rank].Buffer(0, region).Bytes() }

// alloc takes blocks for n tokens.
func (e *end) alloc(t testing.TB, n int64) []uint32 {
	t.Helper()
	_, hi := transport.Entries(e.side, 0, 0, n)
	table, err := e.blocks.Alloc(int(hi))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// generations are those of a table now.
func (e *end) generations(table []uint32) [][]uint64 {
	out := make([]uint64, len(table))
	for i, b := range table {
		out[i] = e.pools[0].Generations(0).Load(int(b))
	}
	return [][]uint64{out}
}

// release gives blocks back on every rank.
func (e *end) release(t testing.TB, table []uint32) {
	t.Helper()
	for _, p := range e.pools {
		if err := p.Release(0, table); err != nil {
			t.Fatal(err)
		}
	}
}

// guard fills all memory of a side with a pattern.
func (e *end) guard(salt byte) {
	for r, layouts := range e.side.Ranks {
		for i := range layouts[0].Regions {
			b := e.bytes(r, i)
			for k := range b {
				b[k] = byte(k*31+k>>8) ^ salt
			}
		}
	}
}

// value is what an element holds, unlike its neighbours' in any direction.
func value(c geometry.Coord, salt uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, v := range []uint64{uint64(c.Component), uint64(c.Layer), uint64(c.Head), uint64(c.Token), uint64(c.Dim), salt} {
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	return h.Sum64()
}

// each calls f for every element of tokens [from, to) and the layers that a
// rank holds, with its place under the table.
func (e *end) each(rank int, table []uint32, from, to int64, layers plan.Range, f func(c geometry.Coord, region int, offset, size int64)) {
	g := e.side.Model.Groups[0]
	part := e.side.Shard.Part(g, rank)
	l := e.side.Ranks[rank][0]
	block := int64(e.side.Groups[0].Block)
	heads := part.Heads
	if heads == nil {
		heads = []int{0}
	}
	for t := from; t < to; t++ {
		u, ok := part.Local(t)
		if !ok {
			continue
		}
		for ci, comp := range g.Components {
			for li, layer := range part.Layers {
				if layers != (plan.Range{}) && (layer < layers.From || layer >= layers.To) {
					continue
				}
				for hi, head := range heads {
					for dim := range comp.Dim {
						region, bit := l.Bit(ci, li, int64(table[u/block]), u%block, int64(hi), int64(dim))
						f(geometry.Coord{Component: ci, Layer: layer, Head: head, Token: t, Dim: dim}, region, bit/8, comp.DType.Bits()/8)
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

// fill writes the elements of a request into the source.
func (w *world) fill(table []uint32, n int64, salt uint64) {
	for r := range w.source.pools {
		w.source.each(r, table, 0, n, plan.Range{}, func(c geometry.Coord, region int, offset, size int64) {
			put(w.source.bytes(r, region), offset, size, value(c, salt))
		})
	}
}

// image is a copy of all memory of a side, [rank][region].
func (e *end) image() [][][]byte {
	out := make([][][]byte, len(e.pools))
	for r, layouts := range e.side.Ranks {
		for i := range layouts[0].Regions {
			out[r] = append(out[r], bytes.Clone(e.bytes(r, i)))
		}
	}
	return out
}

// expect writes into an image of the destination what a request must bring.
func (w *world) expect(image [][][]byte, table []uint32, from, to int64, layers plan.Range, salt uint64) {
	for r := range image {
		w.destination.each(r, table, from, to, layers, func(c geometry.Coord, region int, offset, size int64) {
			put(image[r][region], offset, size, value(c, salt))
		})
	}
}

// compare holds a side against an image, byte for byte.
func (w *world) compare(e *end, image [][][]byte, what string) {
	w.t.Helper()
	for r := range image {
		for i := range image[r] {
			got := e.bytes(r, i)
			if bytes.Equal(got, image[r][i]) {
				continue
			}
			wrong, first := 0, -1
			for k := range got {
				if got[k] != image[r][i][k] {
					if wrong++; first < 0 {
						first = k
					}
				}
			}
			w.t.Errorf("%s: %s rank %d region %d: %d of %d bytes are wrong, the first at %d: %#x, want %#x", what, e.side.Engine, r, i, wrong, len(got), first, got[first], image[r][i][first])
		}
	}
}

// transferCase is one request's movement.
type transferCase struct {
	direction           transport.Direction
	source, destination []uint32
	from, to            int64
	layers              plan.Range
	edges               []stamp.EdgeKey
	deadline            time.Duration // 0: patience
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
	req := stamp.Request{ID: fmt.Sprint(w.serial), Plan: w.digest, From: x.from, To: x.to, Layers: x.layers, Edges: x.edges}
	g := transport.Grant{ID: id, Peer: granter.peer, Direction: x.direction, Request: req, Deadline: time.Now().Add(patience)}
	op := transport.Operation{Peer: submitter.peer, Grant: id, Direction: x.direction, Request: req, Deadline: time.Now().Add(x.deadline)}
	sided := submitter.provider.Capabilities().OneSided
	if x.direction == transport.Read {
		g.Request.Source, g.Generations = [][]uint32{x.source}, w.source.generations(x.source)
		op.Request.Destination = [][]uint32{x.destination}
		if sided {
			op.Request.Source, op.PeerGenerations = [][]uint32{x.source}, g.Generations
		}
	} else {
		g.Request.Destination, g.Generations = [][]uint32{x.destination}, w.destination.generations(x.destination)
		op.Request.Source = [][]uint32{x.source}
		if sided {
			op.Request.Destination, op.PeerGenerations = [][]uint32{x.destination}, g.Generations
		}
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
