// Package fault decorates a transport.Provider with faults from a one-line
// script, so that whoever uses providers is tested against what they may do.
//
// It fakes no transport: what the script leaves alone is the decorated
// provider's own doing. See Script for what can be asked for.
package fault

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Injected is an error that the script asked for.
type Injected struct {
	Point string
	Hit   int // of the point, from 1
	// Gone says that it matches transport.ErrPeerGone, Cannot that it matches
	// transport.ErrNotSupported.
	Gone, Cannot bool
}

func (e *Injected) Error() string {
	return fmt.Sprintf("transport/fault: injected at hit %d of %s", e.Hit, e.Point)
}

// Is reports whether target is transport.ErrPeerGone and the script said
// refuse, or transport.ErrNotSupported and it said cannot.
func (e *Injected) Is(target error) bool {
	return e.Gone && target == transport.ErrPeerGone || e.Cannot && target == transport.ErrNotSupported
}

// Provider is a decorated provider.
type Provider struct {
	transport.Provider // the decorated one
	script             Script
	ready              chan struct{}
	done               chan struct{}
	wg                 sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	hits    map[string]int
	ranks   map[rankKey]memory.Rank
	plans   map[planKey]prepared
	ops     map[transport.OpID]transport.Operation // submitted, not complete
	ids     map[transport.OpID]transport.OpID      // the decorated provider's -> ours
	theirs  map[transport.OpID]transport.OpID      // ours -> the decorated provider's
	last    transport.OpID
	results []result
}

type rankKey struct {
	engine string
	rank   int
}

type planKey struct {
	peer transport.PeerID
	plan [32]byte
}

type prepared struct {
	stamper *stamp.Stamper
	proven  proof.Proven
}

// result is a completion, not reported before due.
type result struct {
	c   transport.Completion
	due time.Time
}

var _ transport.Provider = (*Provider)(nil)

// New decorates p, which then belongs to the decorator: Close closes it.
func New(p transport.Provider, s Script) *Provider {
	f := &Provider{Provider: p, script: s, ready: make(chan struct{}, 1), done: make(chan struct{}), hits: map[string]int{},
		ranks: map[rankKey]memory.Rank{}, plans: map[planKey]prepared{}, ops: map[transport.OpID]transport.Operation{},
		ids: map[transport.OpID]transport.OpID{}, theirs: map[transport.OpID]transport.OpID{}}
	f.wg.Go(f.forward)
	return f
}

// forward passes the decorated provider's signal on.
func (p *Provider) forward() {
	for {
		select {
		case <-p.Provider.Ready():
			p.signal()
		case <-p.done:
			return
		}
	}
}

func (p *Provider) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// verdict is what the script does to one hit of a point.
type verdict struct {
	err           error
	delay         time.Duration
	drop, corrupt bool
}

// hit counts a hit. Preconditions: p.mu is held.
func (p *Provider) hit(point string) (v verdict) {
	p.hits[point]++
	n := p.hits[point]
	for i := range p.script.rules {
		r := &p.script.rules[i]
		if r.point != point || !r.applies(n) {
			continue
		}
		switch r.action {
		case "fail":
			v.err = &Injected{Point: point, Hit: n}
		case "refuse":
			v.err = &Injected{Point: point, Hit: n, Gone: true}
		case "cannot":
			v.err = &Injected{Point: point, Hit: n, Cannot: true}
		case "delay":
			v.delay += r.delay
		case "drop":
			v.drop = true
		case "corrupt":
			v.corrupt = true
		}
	}
	return v
}

// call applies a call's point: it waits as the script says and returns its
// error.
func (p *Provider) call(point string) error {
	p.mu.Lock()
	v := p.hit(point)
	p.mu.Unlock()
	if v.delay > 0 {
		time.Sleep(v.delay)
	}
	return v.err
}

// Register implements transport.Provider.
func (p *Provider) Register(r memory.Rank) error {
	if err := p.call("register"); err != nil {
		return err
	}
	if err := p.Provider.Register(r); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranks[rankKey{r.Engine, r.Rank}] = r
	return nil
}

// Unregister implements transport.Provider.
func (p *Provider) Unregister(engine string, rank int) error {
	if err := p.call("unregister"); err != nil {
		return err
	}
	err := p.Provider.Unregister(engine, rank)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ranks, rankKey{engine, rank})
	return err
}

// Connect implements transport.Provider.
func (p *Provider) Connect(ctx context.Context, a transport.Address) (transport.PeerID, error) {
	if err := p.call("connect"); err != nil {
		return 0, err
	}
	return p.Provider.Connect(ctx, a)
}

// Prepare implements transport.Provider.
func (p *Provider) Prepare(pr proof.Proven, peer transport.PeerID, local transport.Side) error {
	if err := p.call("prepare"); err != nil {
		return err
	}
	if err := p.Provider.Prepare(pr, peer, local); err != nil {
		return err
	}
	s, err := stamp.New(pr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans[planKey{peer, pr.Digest()}] = prepared{s, pr}
	return nil
}

// Grant implements transport.Provider.
func (p *Provider) Grant(g transport.Grant) error {
	if err := p.call("grant"); err != nil {
		return err
	}
	return p.Provider.Grant(g)
}

// Revoke implements transport.Provider.
func (p *Provider) Revoke(id transport.GrantID) error {
	if err := p.call("revoke"); err != nil {
		return err
	}
	return p.Provider.Revoke(id)
}

// Submit implements transport.Provider.
func (p *Provider) Submit(op transport.Operation) (transport.OpID, error) {
	if err := p.call("submit"); err != nil {
		return 0, err
	}
	point := "read"
	if op.Direction == transport.Write {
		point = "write"
	}
	p.mu.Lock()
	v := p.hit(point)
	if v.err != nil && !p.closed {
		p.last++
		id := p.last
		p.complete(transport.Completion{Op: id, Err: v.err, Elapsed: v.delay}, v.delay)
		p.mu.Unlock()
		return id, nil
	}
	p.mu.Unlock()
	if v.delay > 0 {
		time.Sleep(v.delay)
	}
	// Held over the submission: its completion must not be looked at before
	// its number is known.
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := p.Provider.Submit(op)
	if err != nil {
		return 0, err
	}
	p.last++
	p.ops[p.last] = op
	p.ids[id] = p.last
	p.theirs[p.last] = id
	return p.last, nil
}

// complete queues a completion. Preconditions: p.mu is held.
func (p *Provider) complete(c transport.Completion, delay time.Duration) {
	p.results = append(p.results, result{c, time.Now().Add(delay)})
	if delay <= 0 {
		p.signal()
		return
	}
	p.wg.Go(func() {
		select {
		case <-time.After(delay):
		case <-p.done:
		}
		p.signal()
	})
}

// Poll implements transport.Provider.
func (p *Provider) Poll(out []transport.Completion) int {
	p.mu.Lock()
	v := p.hit("poll")
	p.mu.Unlock()
	if v.delay > 0 {
		time.Sleep(v.delay)
	}
	if v.drop {
		p.signal() // what was ready still is
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var some [16]transport.Completion
	for {
		n := p.Provider.Poll(some[:])
		for _, c := range some[:n] {
			p.arrived(c)
		}
		if n < len(some) {
			break
		}
	}
	n := 0
	kept := p.results[:0]
	for _, r := range p.results {
		if n < len(out) && (p.closed || !time.Now().Before(r.due)) {
			out[n] = r.c
			n++
		} else {
			kept = append(kept, r)
		}
	}
	p.results = kept
	if n == len(out) && len(kept) > 0 {
		p.signal()
	}
	return n
}

// arrived does to a completion what the script says. Preconditions: p.mu is
// held.
func (p *Provider) arrived(c transport.Completion) {
	ours := p.ids[c.Op]
	op := p.ops[ours]
	delete(p.ids, c.Op)
	delete(p.ops, ours)
	delete(p.theirs, ours)
	c.Op = ours
	v := p.hit("complete")
	if v.corrupt && c.Err == nil && op.Direction == transport.Read {
		p.corrupt(op)
	}
	if v.err != nil {
		c.Err = v.err
	}
	if v.drop {
		return
	}
	c.Elapsed += v.delay
	p.complete(c, v.delay)
}

// corrupt changes one byte that a read has brought.
func (p *Provider) corrupt(op transport.Operation) {
	pl, ok := p.plans[planKey{op.Peer, op.Request.Plan}]
	if !ok {
		return
	}
	req := op.Request
	req.Source = nil
	for _, e := range pl.stamper.Edges(&req) {
		var c stamp.Cursor
		var s stamp.Segment
		if pl.stamper.Cursor(&req, e, &c) != nil || !c.Next(&s) {
			continue
		}
		destination := &pl.proven.Pair().Destination
		r, ok := p.ranks[rankKey{destination.Engine, e.Destination}]
		if !ok {
			continue
		}
		r.Buffers[destination.OwnGroup(c.Group())][s.Run.DestinationRegion].Bytes()[s.DestinationOffset] ^= 0x10
		return
	}
}

// Ready implements transport.Provider.
func (p *Provider) Ready() <-chan struct{} { return p.ready }

// Cancel implements transport.Provider.
func (p *Provider) Cancel(id transport.OpID) error {
	if err := p.call("cancel"); err != nil {
		return err
	}
	p.mu.Lock()
	theirs, running := p.theirs[id]
	known := id > 0 && id <= p.last
	p.mu.Unlock()
	switch {
	case running:
		return p.Provider.Cancel(theirs)
	case known:
		return nil
	}
	return fmt.Errorf("cancel %d: %w", id, transport.ErrNoOperation)
}

// Fence implements transport.Provider.
func (p *Provider) Fence(ctx context.Context, peer transport.PeerID) error {
	if err := p.call("fence"); err != nil {
		return err
	}
	return p.Provider.Fence(ctx, peer)
}

// Disconnect implements transport.Provider.
func (p *Provider) Disconnect(peer transport.PeerID) error {
	if err := p.call("disconnect"); err != nil {
		return err
	}
	return p.Provider.Disconnect(peer)
}

// Health implements transport.Provider.
func (p *Provider) Health(peer transport.PeerID) error {
	if err := p.call("health"); err != nil {
		return err
	}
	return p.Provider.Health(peer)
}

// Close implements transport.Provider. The script cannot touch it: whoever
// closes must get everything back.
func (p *Provider) Close() error {
	if err := p.Provider.Close(); err != nil {
		return err
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.done)
	p.wg.Wait()
	p.signal()
	return nil
}
