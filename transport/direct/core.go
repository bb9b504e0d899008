package direct

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// RankKey names a rank of an engine.
type RankKey struct {
	Engine string
	Rank   int
}

// Core keeps a provider's books. Its exported methods that a
// transport.Provider has too are meant to be promoted. Safe for concurrent
// use.
type Core struct {
	Mover *Mover

	mu      sync.Mutex
	closed  bool
	ranks   map[RankKey]*Memory
	plans   map[planKey]*Plan
	grants  map[transport.GrantID]*Grant
	ops     map[transport.OpID]*Job
	last    transport.OpID
	results []transport.Completion
	ready   chan struct{}
}

type planKey struct {
	peer   transport.PeerID
	digest geometry.Digest
}

// Plan is a plan prepared with a peer.
type Plan struct {
	Proven  proof.Proven
	Stamper *stamp.Stamper
	Pair    *plan.Pair
	Local   transport.Side
}

// Engine returns the side's engine.
func (p *Plan) Engine(s transport.Side) *plan.Side {
	if s == transport.Source {
		return &p.Pair.Source
	}
	return &p.Pair.Destination
}

// Grant is a grant in force.
type Grant struct {
	Gate
	transport.Grant
	plan *Plan
}

// NewCore makes the books of a provider with so many copy goroutines.
// Preconditions: workers >= 1.
func NewCore(workers int) *Core {
	return &Core{
		Mover: NewMover(workers), ranks: map[RankKey]*Memory{}, plans: map[planKey]*Plan{},
		grants: map[transport.GrantID]*Grant{}, ops: map[transport.OpID]*Job{}, ready: make(chan struct{}, 1),
	}
}

// Register implements transport.Provider.
func (c *Core) Register(r memory.Rank) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return transport.ErrClosed
	}
	k := RankKey{r.Engine, r.Rank}
	if c.ranks[k] != nil {
		return fmt.Errorf("register rank %d of engine %q: %w", r.Rank, r.Engine, ErrRegistered)
	}
	for _, group := range r.Buffers {
		for _, b := range group {
			if b.Kind() != memory.Host || b.Bytes() == nil {
				return fmt.Errorf("register region %q of rank %d of engine %q (%s memory): %w", b.Name(), r.Rank, r.Engine, b.Kind(), transport.ErrNotSupported)
			}
		}
	}
	if len(r.Buffers) != len(r.Generations) {
		return fmt.Errorf("register rank %d of engine %q: %d groups of buffers, %d of generations", r.Rank, r.Engine, len(r.Buffers), len(r.Generations))
	}
	c.ranks[k] = &Memory{Rank: r}
	return nil
}

// Unregister implements transport.Provider.
func (c *Core) Unregister(engine string, rank int) error {
	k := RankKey{engine, rank}
	c.mu.Lock()
	m := c.ranks[k]
	delete(c.ranks, k)
	c.mu.Unlock()
	if m == nil {
		return &transport.Unregistered{Engine: engine, Rank: rank}
	}
	m.Shut(&transport.Unregistered{Engine: engine, Rank: rank})
	return m.Wait(context.Background(), false)
}

// Drop forgets a rank without waiting for anything.
func (c *Core) Drop(engine string, rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ranks, RankKey{engine, rank})
}

// Registered returns the registered ranks of an engine, in order of rank.
func (c *Core) Registered(engine string) []*Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*Memory
	for k, m := range c.ranks {
		if k.Engine == engine {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *Memory) int { return a.Rank.Rank - b.Rank.Rank })
	return out
}

// Memory returns a registered rank's memory, or *transport.Unregistered.
func (c *Core) Memory(engine string, rank int) (*Memory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.ranks[RankKey{engine, rank}]; m != nil {
		return m, nil
	}
	return nil, &transport.Unregistered{Engine: engine, Rank: rank}
}

// Prepare keeps a plan for a peer; fresh says that it was not yet.
func (c *Core) Prepare(p proof.Proven, peer transport.PeerID, local transport.Side) (fresh bool, err error) {
	if local != transport.Source && local != transport.Destination {
		return false, fmt.Errorf("transport: side %d is neither the source nor the destination", local)
	}
	s, err := stamp.New(p)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, transport.ErrClosed
	}
	k := planKey{peer, p.Digest()}
	if was := c.plans[k]; was != nil {
		if was.Local != local {
			return false, &transport.Mismatch{Field: "side", Asked: fmt.Sprint(local), Grants: fmt.Sprint(was.Local)}
		}
		return false, nil
	}
	c.plans[k] = &Plan{Proven: p, Stamper: s, Pair: p.Pair(), Local: local}
	return true, nil
}

// Plan returns a prepared plan, or *transport.Unknown.
func (c *Core) Plan(peer transport.PeerID, d geometry.Digest) (*Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan(peer, d)
}

func (c *Core) plan(peer transport.PeerID, d geometry.Digest) (*Plan, error) {
	if p := c.plans[planKey{peer, d}]; p != nil {
		return p, nil
	}
	return nil, &transport.Unknown{Plan: d}
}

// Grant implements transport.Provider. Whether the peer exists is the
// provider's to check before.
func (c *Core) Grant(g transport.Grant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return transport.ErrClosed
	}
	p, err := c.plan(g.Peer, g.Request.Plan)
	if err != nil {
		return err
	}
	if err := CheckSide(g.Direction, p.Local, false); err != nil {
		return err
	}
	if g.Deadline.IsZero() {
		return fmt.Errorf("grant: %w", transport.ErrNoDeadline)
	}
	if c.grants[g.ID] != nil {
		return fmt.Errorf("grant %x: %w", g.ID, ErrGranted)
	}
	if err := p.Stamper.Validate(&g.Request); err != nil {
		return err
	}
	if err := CheckTables(p.Pair, &g.Request, p.Local, g.Generations); err != nil {
		return err
	}
	for _, s := range [2]transport.Side{transport.Source, transport.Destination} {
		Of(&g.Request, s).Clone().put(&g.Request, s)
	}
	g.Request.Spans, g.Request.Edges = slices.Clone(g.Request.Spans), slices.Clone(g.Request.Edges)
	g.Generations = Clone(g.Generations)
	c.grants[g.ID] = &Grant{Grant: g, plan: p}
	return nil
}

// Revoke implements transport.Provider.
func (c *Core) Revoke(id transport.GrantID) error {
	c.mu.Lock()
	g := c.grants[id]
	delete(c.grants, id)
	c.mu.Unlock()
	if g == nil {
		return transport.ErrNotGranted
	}
	g.Shut(transport.ErrNotGranted)
	return g.Wait(context.Background(), true)
}

// Forget drops the plans and grants of a peer; running jobs are the peer's
// gate's matter.
func (c *Core) Forget(peer transport.PeerID) {
	c.RevokeAll(peer)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.plans {
		if k.peer == peer {
			delete(c.plans, k)
		}
	}
}

// RevokeAll shuts every grant of a peer, without waiting.
func (c *Core) RevokeAll(peer transport.PeerID) {
	var shut []*Grant
	c.mu.Lock()
	for id, g := range c.grants {
		if g.Peer == peer {
			shut = append(shut, g)
			delete(c.grants, id)
		}
	}
	c.mu.Unlock()
	for _, g := range shut {
		g.Shut(transport.ErrNotGranted)
	}
}

// Ready implements transport.Provider.
func (c *Core) Ready() <-chan struct{} { return c.ready }

// Poll implements transport.Provider.
func (c *Core) Poll(out []transport.Completion) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(out, c.results)
	c.results = slices.Delete(c.results, 0, n)
	if len(c.results) > 0 {
		c.signal()
	}
	return n
}

func (c *Core) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Cancel implements transport.Provider.
func (c *Core) Cancel(id transport.OpID) error {
	c.mu.Lock()
	j := c.ops[id]
	known := id > 0 && id <= c.last
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("cancel %d: %w", id, transport.ErrNoOperation)
	}
	if j != nil {
		j.Stop(transport.ErrCanceled)
	}
	return nil
}

// Submit opens a job as an operation of this side: its completion goes to
// Poll, before the job's own Finish, if any, is called. On an error there is no
// operation and Finish is not called.
func (c *Core) Submit(j *Job, gates ...*Gate) (transport.OpID, error) {
	if j.Deadline.IsZero() {
		return 0, transport.ErrNoDeadline
	}
	if !time.Now().Before(j.Deadline) {
		return 0, transport.ErrDeadline
	}
	began := time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, transport.ErrClosed
	}
	c.last++
	id := c.last
	then := j.Finish
	j.Finish = func(r Result) {
		c.mu.Lock()
		delete(c.ops, id)
		c.results = append(c.results, transport.Completion{Op: id, Err: r.Err, Bytes: r.Bytes, Segments: r.Segments, Elapsed: time.Since(began)})
		c.signal()
		c.mu.Unlock()
		if then != nil {
			then(r)
		}
	}
	j.mover = c.Mover // Close may stop it from here on
	c.ops[id] = j
	c.mu.Unlock()
	if err := j.Open(c.Mover, gates...); err != nil {
		c.mu.Lock()
		delete(c.ops, id)
		c.mu.Unlock()
		return 0, err
	}
	return id, nil
}

// BeginClose makes the core refuse everything new and ends its operations
// with ErrClosed, without waiting. A second one is ErrClosed.
func (c *Core) BeginClose() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return transport.ErrClosed
	}
	c.closed = true
	jobs := make([]*Job, 0, len(c.ops))
	for _, j := range c.ops {
		jobs = append(jobs, j)
	}
	c.mu.Unlock()
	for _, j := range jobs {
		j.Stop(transport.ErrClosed)
	}
	return nil
}

// EndClose ends what peers still do with this side's memory, for them with
// ErrPeerGone, waits until nothing copies here and ends the copy goroutines.
// Preconditions: BeginClose returned nil.
func (c *Core) EndClose() {
	c.mu.Lock()
	var gates []*Gate
	for _, g := range c.grants {
		gates = append(gates, &g.Gate)
	}
	for _, m := range c.ranks {
		gates = append(gates, &m.Gate)
	}
	clear(c.grants)
	clear(c.plans)
	clear(c.ranks)
	c.mu.Unlock()
	for _, g := range gates {
		g.Shut(transport.ErrPeerGone)
	}
	for _, g := range gates {
		g.Wait(context.Background(), true)
	}
	c.Mover.Close()
}
