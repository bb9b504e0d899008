package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
	"github.com/kvferry/kvferry/transport/shm"
	"github.com/kvferry/kvferry/transport/tcp"
)

// world is a pair with memory and a request.
type world struct {
	n                   *numbering
	q                   request
	seed                uint64
	owner               host.Owner
	source, destination *cache
}

// newWorld makes the world of a pair whose sides are the engines.
func newWorld(pair *plan.Pair, q request, seed uint64) (*world, error) {
	return joinedWorld(pair, &pair.Source, &pair.Destination, q, seed)
}

// joinedWorld makes the world of a pair of two engines, which may have groups
// that the pair has not.
func joinedWorld(pair *plan.Pair, source, destination *plan.Side, q request, seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 0x776f))
	w := &world{n: number(pair.Source.Model, q.length()), q: q, seed: seed}
	var err error
	if w.source, err = open(&w.owner, source, &pair.Source, w.n, q.length(), rng); err != nil {
		return nil, err
	}
	w.destination, err = open(&w.owner, destination, &pair.Destination, w.n, q.length(), rng)
	return w, err
}

// close gives the memory back.
func (w *world) close() error {
	if err := errors.Join(w.source.close(), w.destination.close()); err != nil {
		return err
	}
	if left := w.owner.Leaks(); len(left) > 0 {
		return fmt.Errorf("not closed: %v", left)
	}
	return nil
}

// all is everything that the source holds of the request; moved what moves.
func (w *world) all() box {
	return box{layers: plan.Range{To: w.n.model.Layers}, to: w.q.length()}
}

func (w *world) moved() box {
	b := box{layers: w.q.layers, from: w.q.from, to: w.q.to, spans: w.q.spans}
	if b.layers == (plan.Range{}) {
		b.layers.To = w.n.model.Layers
	}
	return b
}

// soil fills both sides for a pass with what no element of it is.
func (w *world) soil(pass int) {
	w.source.noise(w.seed<<8 | uint64(pass)<<1)
	w.destination.noise(w.seed<<8 | uint64(pass)<<1 | 1)
}

// verify moves the request once a pass and compares all memory of both sides.
func (w *world) verify(move func() error) error {
	for pass := range w.n.most() {
		w.soil(pass)
		w.source.write(w.source.memory(), pass, w.all())
		sent, want := w.source.image(), w.destination.image()
		w.destination.write(want, pass, w.moved())
		if err := move(); err != nil {
			return err
		}
		for _, err := range []error{w.destination.compare(want), w.source.compare(sent)} {
			if err != nil {
				return fmt.Errorf("pass %d of %d, tokens %d to %d, layers %v: %w", pass, w.n.most(), w.q.from, w.q.to-1, w.q.layers, err)
			}
		}
	}
	return nil
}

// providers open a pair of providers.
var providers = map[string]func() (source, destination transport.Provider, err error){
	"loop": func() (transport.Provider, transport.Provider, error) {
		var n loop.Network
		return n.New(loop.Options{Workers: 1}), n.New(loop.Options{Workers: 1}), nil
	},
	"shm": func() (transport.Provider, transport.Provider, error) {
		s, err := shm.New(shm.Options{Workers: 1})
		if err != nil {
			return nil, nil, err
		}
		d, err := shm.New(shm.Options{Workers: 1})
		return s, d, err
	},
	"tcp": func() (transport.Provider, transport.Provider, error) {
		s, err := tcp.New(tcp.Options{Listen: "127.0.0.1:0"})
		if err != nil {
			return nil, nil, err
		}
		d, err := tcp.New(tcp.Options{Listen: "127.0.0.1:0"})
		return s, d, err
	},
}

// through moves the world's request through providers until it is right in
// every pass.
func (w *world) through(name string, proven proof.Proven) (err error) {
	s, d, err := providers[name]()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), s.Close()) }()
	for _, r := range w.source.ranks() {
		if err := s.Register(r); err != nil {
			return err
		}
	}
	for _, r := range w.destination.ranks() {
		if err := d.Register(r); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	toSource, err := d.Connect(ctx, s.Address())
	if err != nil {
		return err
	}
	toDestination, err := s.Accepted(d.Token(toSource))
	if err != nil {
		return err
	}
	if err := s.Prepare(proven, toDestination, transport.Source); err != nil {
		return err
	}
	if err := d.Prepare(proven, toSource, transport.Destination); err != nil {
		return err
	}
	serial := byte(0)
	return w.verify(func() error {
		serial++
		id := transport.GrantID{serial, 15: 0x5a}
		req := stamp.Request{ID: "r", Plan: proven.Digest(), From: w.q.from, To: w.q.to, Spans: w.q.spans, Layers: w.q.layers}
		deadline := time.Now().Add(patience)
		g := transport.Grant{ID: id, Peer: toDestination, Direction: transport.Read, Request: req, Deadline: deadline}
		op := transport.Operation{Peer: toSource, Grant: id, Direction: transport.Read, Request: req, Deadline: deadline}
		from := func(r *stamp.Request) { r.Source, r.SourceFirst = w.source.tables, w.source.first }
		to := func(r *stamp.Request) { r.Destination, r.DestinationFirst = w.destination.tables, w.destination.first }
		w.source.use()
		w.destination.use()
		granter, submitter, granted, own := s, d, from, to
		g.Generations = w.source.generations()
		if w.q.write {
			granter, submitter, granted, own = d, s, to, from
			g.Peer, op.Peer, g.Direction, op.Direction = toSource, toDestination, transport.Write, transport.Write
			g.Generations = w.destination.generations()
		}
		granted(&g.Request)
		own(&op.Request)
		if submitter.Capabilities().OneSided {
			granted(&op.Request)
			op.PeerGenerations = g.Generations
		}
		if err := granter.Grant(g); err != nil {
			return fmt.Errorf("grant: %w", err)
		}
		op1, err := submitter.Submit(op)
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		done, err := wait(submitter, op1)
		if err != nil {
			return err
		}
		if want := w.bytes(); done.Bytes != want {
			return fmt.Errorf("%d bytes were moved, want %d", done.Bytes, want)
		}
		return granter.Revoke(id)
	})
}

// bytes is what the request moves, replicas at the destination included.
func (w *world) bytes() int64 {
	bits, b := int64(0), w.moved()
	for _, places := range w.destination.places {
		for i := range places {
			if b.holds(&places[i], &w.n.model.Groups[places[i].group]) {
				bits += int64(places[i].bits)
			}
		}
	}
	return bits / 8
}

// use gives the tables' blocks new generations, on the ranks that hold them.
func (c *cache) use() {
	for r, layouts := range c.side.Ranks {
		for g, l := range layouts {
			if l != nil {
				c.pools[r].Generations(c.side.OwnGroup(g)).Bump(c.tables[g])
			}
		}
	}
}

// generations are those of the tables' blocks, on any rank that holds them.
func (c *cache) generations() [][]uint64 {
	out := make([][]uint64, len(c.tables))
	for g, table := range c.tables {
		r := slices.IndexFunc(c.side.Ranks, func(l []*layout.Layout) bool { return l[g] != nil })
		for _, id := range table {
			out[g] = append(out[g], c.pools[r].Generations(c.side.OwnGroup(g)).Load(int(id)))
		}
	}
	return out
}

// wait polls until the operation is complete.
func wait(p transport.Provider, id transport.OpID) (transport.Completion, error) {
	limit := time.NewTimer(2 * patience)
	defer limit.Stop()
	for {
		var c [1]transport.Completion
		if p.Poll(c[:]) == 1 {
			if c[0].Op != id {
				return c[0], fmt.Errorf("operation %d completed, waiting for %d", c[0].Op, id)
			}
			return c[0], c[0].Err
		}
		select {
		case <-p.Ready():
		case <-limit.C:
			return c[0], errors.New("no completion came")
		}
	}
}
