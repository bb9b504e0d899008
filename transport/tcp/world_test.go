package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	mathrand "math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// patience is the deadline of what should end well before.
const patience = 20 * time.Second

const pair = `kvferry: pair/1
model:
  name: small
  layers: 4
  components:
    - {name: k, heads: 4, dim: 32, dtype: bf16}
    - {name: v, heads: 4, dim: 32, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 1}
  block: 16
  blocks: 256
  layout: {order: [block, token, head, component, dim]}
destination:
  engine: decode
  shard: {tp: 1}
  block: 32
  blocks: 128
  layout: {order: [block, head, token, component, dim]}
`

const (
	tokens     = 128 * 32
	tokenBytes = 4 * 2 * 4 * 32 * 2
)

var edge = stamp.EdgeKey{}

// world is the memory of both engines, and a provider for each where a test
// has no other use for one.
type world struct {
	t           *testing.T
	proven      proof.Proven
	owner       host.Owner
	pools       map[transport.Side]*host.Pool
	tables      map[transport.Side][]uint32
	goroutines  int
	source      *Provider
	destination *Provider
	peers       map[transport.Side]transport.PeerID // the other side, as this side knows it
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, goroutines: runtime.NumGoroutine(), pools: map[transport.Side]*host.Pool{}, tables: map[transport.Side][]uint32{}, peers: map[transport.Side]transport.PeerID{}}
	f, err := pairfile.Parse("pair", []byte(pair))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := f.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := build.Build(p, []plan.Assignment{{Components: 3, Layers: plan.Range{To: 4}, Heads: plan.Range{To: 4}}}, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if w.proven, err = proof.Check(p, pl); err != nil {
		t.Fatal(err)
	}
	for s, side := range map[transport.Side]*plan.Side{transport.Source: &p.Source, transport.Destination: &p.Destination} {
		g := host.Group{Blocks: side.Groups[0].Blocks}
		for _, r := range side.Ranks[0][0].Regions {
			g.Regions = append(g.Regions, host.Region{Name: r.Name, Bytes: r.Bytes})
		}
		pool, err := w.owner.Open(host.Spec{Engine: side.Engine, Groups: []host.Group{g}}, host.Options{SmallPages: true})
		if err != nil {
			t.Fatal(err)
		}
		w.pools[s] = pool
		if w.tables[s], err = host.NewBlocks(g.Blocks, uint64(s)).Alloc(g.Blocks); err != nil {
			t.Fatal(err)
		}
		for i := range g.Regions {
			mathrand.NewChaCha8([32]byte{byte(s), byte(i)}).Read(pool.Buffer(0, i).Bytes())
		}
	}
	t.Cleanup(w.close)
	return w
}

func (w *world) provider(o Options) *Provider {
	w.t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	p, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// open makes both providers, which are not connected yet.
func (w *world) open(o Options) *world {
	w.t.Helper()
	w.source, w.destination = w.provider(o), w.provider(o)
	w.register(w.source, transport.Source)
	w.register(w.destination, transport.Destination)
	return w
}

func (w *world) register(p *Provider, s transport.Side) {
	w.t.Helper()
	if err := p.Register(w.pools[s].Rank()); err != nil {
		w.t.Fatal(err)
	}
}

// connect lets the destination dial the source, at another address where one
// is given.
func (w *world) connect(at string) error {
	w.t.Helper()
	a := w.source.Address()
	if at != "" {
		a.Data = []byte(at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id, err := w.destination.Connect(ctx, a)
	if err != nil {
		return err
	}
	w.peers[transport.Destination] = id
	if id, err = w.source.Accepted(w.destination.Token(id)); err != nil {
		return err
	}
	w.peers[transport.Source] = id
	w.prepare(w.source, transport.Source)
	w.prepare(w.destination, transport.Destination)
	return nil
}

func (w *world) prepare(p *Provider, s transport.Side) {
	w.t.Helper()
	if err := p.Prepare(w.proven, w.peers[s], s); err != nil {
		w.t.Fatal(err)
	}
}

// close closes what is open and looks for what is left.
func (w *world) close() {
	for _, p := range []*Provider{w.source, w.destination} {
		if p != nil {
			if err := p.Close(); err != nil {
				w.t.Errorf("close: %v", err)
			}
		}
	}
	for _, p := range w.pools {
		if err := p.Close(); err != nil {
			w.t.Errorf("close a pool: %v", err)
		}
	}
	for _, l := range w.owner.Leaks() {
		w.t.Errorf("not closed: %s", l)
	}
	for began := time.Now(); runtime.NumGoroutine() > w.goroutines; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			b := make([]byte, 1<<16)
			w.t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), w.goroutines, b[:runtime.Stack(b, true)])
		}
	}
}

// submitter is the side that submits in a direction.
func submitter(d transport.Direction) transport.Side {
	if d == transport.Read {
		return transport.Destination
	}
	return transport.Source
}

func other(s transport.Side) transport.Side { return transport.Source + transport.Destination - s }

// request is the tokens of a request with the table of one side.
func (w *world) request(s transport.Side, from, to int64) stamp.Request {
	r := stamp.Request{ID: "r", Plan: w.proven.Digest(), From: from, To: to}
	if s == transport.Source {
		r.Source = [][]uint32{w.tables[s]}
	} else {
		r.Destination = [][]uint32{w.tables[s]}
	}
	return r
}

// grant lets the peer of p, which is side s, move tokens.
func (w *world) grant(p *Provider, s transport.Side, id byte, d transport.Direction, from, to int64) transport.GrantID {
	w.t.Helper()
	g := transport.Grant{ID: transport.GrantID{id, 1}, Peer: w.peers[s], Direction: d, Request: w.request(s, from, to), Deadline: time.Now().Add(time.Minute),
		Generations: [][]uint64{make([]uint64, len(w.tables[s]))}}
	for i, b := range w.tables[s] {
		g.Generations[0][i] = w.pools[s].Generations(0).Load(int(b))
	}
	if err := p.Grant(g); err != nil {
		w.t.Fatal(err)
	}
	return g.ID
}

// operation is what side s submits.
func (w *world) operation(s transport.Side, grant transport.GrantID, d transport.Direction, from, to int64) transport.Operation {
	return transport.Operation{Peer: w.peers[s], Grant: grant, Direction: d, Request: w.request(s, from, to), Deadline: time.Now().Add(patience)}
}

// start grants and submits.
func (w *world) start(id byte, d transport.Direction, from, to int64) (transport.OpID, error) {
	w.t.Helper()
	s := submitter(d)
	p, q := w.destination, w.source
	if s == transport.Source {
		p, q = q, p
	}
	g := w.grant(q, other(s), id, d, from, to)
	return p.Submit(w.operation(s, g, d, from, to))
}

// wait returns the completion of an operation and fails if another completes
// or if it completes twice.
func (w *world) wait(p *Provider, id transport.OpID) transport.Completion {
	w.t.Helper()
	var some [2]transport.Completion
	for limit := time.After(2 * patience); ; {
		switch n := p.Poll(some[:]); {
		case n > 1 || n == 1 && some[0].Op != id:
			w.t.Fatalf("completed: %+v, waiting for %d", some[:n], id)
		case n == 1:
			return some[0]
		}
		select {
		case <-p.Ready():
		case <-limit:
			w.t.Fatalf("operation %d does not end", id)
		}
	}
}

// image is a copy of a side's memory.
func (w *world) image(s transport.Side) [][]byte {
	var out [][]byte
	for i := range w.pair(s).Ranks[0][0].Regions {
		out = append(out, bytes.Clone(w.pools[s].Buffer(0, i).Bytes()))
	}
	return out
}

func (w *world) pair(s transport.Side) *plan.Side {
	if s == transport.Source {
		return &w.proven.Pair().Source
	}
	return &w.proven.Pair().Destination
}

// moved is an image of the destination after tokens have been moved.
func (w *world) moved(image [][]byte, from, to int64) [][]byte {
	w.t.Helper()
	st, err := stamp.New(w.proven)
	if err != nil {
		w.t.Fatal(err)
	}
	r := w.request(transport.Source, from, to)
	r.Destination = [][]uint32{w.tables[transport.Destination]}
	var c stamp.Cursor
	if err := st.Cursor(&r, edge, &c); err != nil {
		w.t.Fatal(err)
	}
	for s := (stamp.Segment{}); c.Next(&s); {
		if err := move.Copy(image[s.Run.DestinationRegion], w.pools[transport.Source].Buffer(0, s.Run.SourceRegion).Bytes(), &s); err != nil {
			w.t.Fatal(err)
		}
	}
	return image
}

// same holds the destination against an image.
func (w *world) same(image [][]byte, what string) {
	w.t.Helper()
	for i, b := range w.image(transport.Destination) {
		if !bytes.Equal(b, image[i]) {
			w.t.Errorf("%s: region %d is not what it should be", what, i)
		}
	}
}

// raw is a peer that says whatever a test wants.
type raw struct {
	t     *testing.T
	conns []net.Conn // control, then data
	read  []*reader
}

// dialRaw makes the connections of a peer to p and returns the peer as p knows
// it.
func (w *world) dialRaw(p *Provider, streams int) (*raw, transport.PeerID) {
	w.t.Helper()
	r := &raw{t: w.t}
	h := hello{version: version, role: roleControl, streams: uint8(streams), progress: 60000}
	rand.Read(h.token[:])
	for i := range streams + 1 {
		if i > 0 {
			h.role, h.streams, h.progress = roleData, uint8(i-1), 0
		}
		c, wl, err := greetRaw(p, h.encode(), h.role)
		if err != nil {
			w.t.Fatal(err)
		}
		if i == 0 {
			h.secret = wl.secret
		}
		r.conns = append(r.conns, c)
		r.read = append(r.read, &reader{r: c})
		w.t.Cleanup(func() { c.Close() })
	}
	id, err := p.Accepted(h.token.String())
	if err != nil {
		w.t.Fatal(err)
	}
	return r, id
}

func greetRaw(p *Provider, hello []byte, of role) (net.Conn, welcome, error) {
	c, err := net.Dial("tcp", string(p.Address().Data))
	if err != nil {
		return nil, welcome{}, err
	}
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(hello); err != nil {
		return nil, welcome{}, err
	}
	wl, err := readWelcome(c, of)
	if err != nil {
		c.Close()
		return nil, welcome{}, err
	}
	return c, wl, nil
}

// send writes bytes on a connection: -1 is control.
func (r *raw) send(stream int, b []byte) {
	r.conns[stream+1].Write(b) // a peer that has hung up is what many tests want
}

// hear reads frames of a connection until one is of the kind, or the end.
func (r *raw) hear(stream int, k kind) (header, []byte, error) {
	for {
		var h header
		n, err := r.read[stream+1].next(&h)
		if err != nil {
			return h, nil, err
		}
		b, err := r.read[stream+1].body(&h, n)
		if err != nil {
			return h, nil, err
		}
		if h.kind == k {
			return h, b, nil
		}
	}
}

func (r *raw) must(stream int, k kind) (header, []byte) {
	r.t.Helper()
	h, b, err := r.hear(stream, k)
	if err != nil {
		r.t.Fatalf("waiting for a %s frame: %v", k, err)
	}
	return h, b
}

// hungUp waits until the provider closes the connection.
func (r *raw) hungUp(stream int) {
	if _, err := io.Copy(io.Discard, r.conns[stream+1]); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			r.t.Errorf("connection %d is still open", stream)
		}
	}
}

// health waits until a peer is gone and returns why.
func (w *world) health(p *Provider, id transport.PeerID) error {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := p.Health(id); err != nil {
			return err
		}
		if time.Since(began) > patience {
			w.t.Fatal("the peer is believed alive")
		}
	}
}
