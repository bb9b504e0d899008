package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// Peer is a connected peer engine: handshake done, plan proved on both sides
// and prepared. Safe for concurrent use.
type Peer struct {
	e       *Engine
	role    session.Role
	dialled bool
	done    chan struct{}

	mu     sync.Mutex
	engine string
	links  map[string]*link // by the peer's agent
	first  session.Result   // of the link that came first
	broken bool
	err    error

	settled chan struct{} // closed: the probe is over; nil: none was begun
	unfit   error         // what it found

	asker      *asker           // at the destination: whom the links asked
	askedOf    string           // digest of the policy that was asked last
	decided    *policy.Decision // the last route
	decidedFor *proposal        // that it was made for
	planning   chan struct{}    // a slot: one Replan at a time
}

func newPeer(e *Engine, role session.Role, dialled bool) *Peer {
	return &Peer{e: e, role: role, dialled: dialled, done: make(chan struct{}), links: map[string]*link{}, planning: make(chan struct{}, 1)}
}

// roster is the peer's agents but one.
func (p *Peer) roster(but string) *session.Roster {
	r := &session.Roster{}
	for _, name := range slices.Sorted(maps.Keys(p.links)) {
		if name != but {
			_ = r.Add(name, &p.links[name].result.Peer.Engine) // was checked when it was added
		}
	}
	return r
}

// claims returns the error with which an agent contradicts the peer's others.
func (p *Peer) claims(h *session.Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roster(h.Agent).Add(h.Agent, &h.Engine)
}

// add enters a link. An agent that connects again replaces its old link for
// what starts from now on.
func (p *Peer) add(l *link) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := l.result.Peer
	if p.broken {
		return ErrClosed
	}
	if err := p.roster(h.Agent).Add(h.Agent, &h.Engine); err != nil {
		return err
	}
	if err := l.start(p); err != nil {
		return err
	}
	if len(p.links) == 0 {
		p.first, p.engine, p.askedOf = l.result, h.Engine.Side.Engine, l.result.Policy.Digest
	}
	p.links[h.Agent] = l
	return nil
}

// drop takes a dead link out. A peer that we dialled is whole or gone; one
// that connected lives as long as any of its agents.
func (p *Peer) drop(l *link, err error) {
	p.mu.Lock()
	if p.links[l.result.Peer.Agent] == l {
		delete(p.links, l.result.Peer.Agent)
	}
	over := !p.broken && (p.dialled || len(p.links) == 0)
	var others []*link
	if over {
		p.broken, p.err = true, err
		for _, o := range p.links {
			others = append(others, o)
		}
	}
	p.mu.Unlock()
	if !over {
		return
	}
	close(p.done)
	for _, o := range others {
		o.fail(err)
	}
	p.e.mu.Lock()
	delete(p.e.peers, p)
	for k, q := range p.e.inbound {
		if q == p {
			delete(p.e.inbound, k)
			p.e.unask(k)
		}
	}
	p.e.mu.Unlock()
}

func (p *Peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Peer) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.broken
}

// open returns the peer's links, or why it cannot be used.
func (p *Peer) open() ([]*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return nil, blame.On(blame.Peer, fmt.Errorf("agent: peer %q: %w: %w", p.engine, transfer.ErrGone, p.err))
	}
	if r := p.roster(""); !r.Open() {
		return nil, &NotOpen{p.engine, r.Missing(), slices.Sorted(maps.Keys(p.links))}
	}
	return p.sorted(), nil
}

// sorted are the links in the order of their agents.
// Preconditions: p.mu is held.
func (p *Peer) sorted() []*link {
	var out []*link
	for _, name := range slices.Sorted(maps.Keys(p.links)) {
		out = append(out, p.links[name])
	}
	return out
}

// NotOpen is an engine some ranks of which no connected agent holds.
type NotOpen struct {
	Engine  string
	Missing []int
	Agents  []string // that are connected
}

func (e *NotOpen) Error() string {
	return fmt.Sprintf("agent: engine %q is not open: nobody of %q holds ranks %s", e.Engine, e.Agents, geometry.Ranges(e.Missing))
}

// Blame is the operator, who named the agents.
func (e *NotOpen) Blame() blame.Party { return blame.Operator }

// Connect shakes hands with the peer's agents, proves the policy's alternatives
// on both sides and prepares the first with the common providers. It succeeds
// where one alternative is proved and one provider can be used with each agent.
func (e *Engine) Connect(ctx context.Context, d Dial) (*Peer, error) {
	role := session.Source
	switch d.Role {
	case transport.Source:
	case transport.Destination:
		role = session.Destination
	default:
		return nil, blame.On(blame.Local, fmt.Errorf("agent: connect: role is %d, want source or destination", d.Role))
	}
	if len(d.Addresses) == 0 {
		return nil, blame.On(blame.Operator, errors.New("agent: connect: no addresses"))
	}
	p := newPeer(e, role, true)
	p.engine = d.Engine
	ask := newAsker(e)
	p.asker = ask
	want := d.Engine
	for _, addr := range d.Addresses {
		l, err := e.dial(ctx, addr, role, want, ask, p)
		if err != nil {
			p.shut("another agent of the engine could not be reached")
			return nil, fmt.Errorf("agent: connect %q to %s: %w", e.owner.Engine, addr, err)
		}
		want = l.result.Peer.Engine.Side.Engine
	}
	if _, err := p.open(); err != nil {
		p.shut("not all ranks are there")
		return nil, err
	}
	if err := p.settle(ctx); err != nil {
		p.shut("the probe failed")
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		p.shut("the engine was closed")
		return nil, ErrClosed
	}
	e.peers[p] = struct{}{}
	e.mu.Unlock()
	if !p.alive() { // died before it was entered, and could not take itself out
		e.mu.Lock()
		delete(e.peers, p)
		e.mu.Unlock()
	}
	return p, nil
}

func (e *Engine) dial(ctx context.Context, addr string, role session.Role, want string, ask *asker, p *Peer) (*link, error) {
	a := e.agent
	ctx, done := context.WithTimeoutCause(ctx, a.times.Handshake, fmt.Errorf("the handshake took longer than %v", a.times.Handshake))
	defer done()
	stop := context.AfterFunc(e.ctx, done)
	defer stop()
	raw, err := dial(ctx, addr, a.cfg.Insecure || a.cfg.Wrap != nil)
	if err != nil {
		return nil, err
	}
	c := a.newConn(raw)
	if !a.track(c) {
		return nil, ErrClosed
	}
	ctx, unbound := a.bound(ctx, c)
	var l *link
	if err = c.protect(a.cfg.Wrap, true); err == nil {
		l, err = e.shake(ctx, c, e.hello(role, want), nil, ask, p)
	}
	unbound()
	if err == nil {
		if err = p.add(l); err != nil {
			a.refuse(c, err)
			l.abandonLanes()
		}
	}
	if err != nil {
		a.untrack(c)
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		c.close()
		return nil, ErrClosed
	}
	a.wg.Go(l.run)
	return l, nil
}

// Peer returns the peer engine of that id that connected to us, waiting until
// it has, with all its ranks.
func (e *Engine) Peer(ctx context.Context, engine string) (*Peer, error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, ErrClosed
		}
		more := e.arrived
		var found []*Peer
		for k, p := range e.inbound {
			if k.engine == engine {
				found = append(found, p)
			}
		}
		e.mu.Unlock()
		for _, p := range found {
			if _, err := p.open(); err != nil {
				continue
			}
			if err := p.settle(ctx); err != nil {
				return nil, err
			}
			return p, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Peer) firstResult() session.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first
}

// Engine is the peer engine's id, and its incarnation.
func (p *Peer) Engine() (id, incarnation string) {
	h := p.firstResult().Peer
	return h.Engine.Side.Engine, h.Engine.Incarnation
}

// Pair is what the plan was made for. It must not be modified.
func (p *Peer) Pair() *plan.Pair { return p.firstResult().Pair }

// Plans are what a peer's sides agreed on: the alternatives that a policy
// answered and that all agents of both sides proved.
type Plans struct {
	Policy       session.Policy // the destination's, which answered
	Reason       string         // at most 256 bytes of its own words, to be escaped where they are shown
	Alternatives []session.Alternative
	Unproved     []session.Unproved // what else it answered, as far as this side knows
}

// Plans are those of transfers that begin now. They must not be modified.
func (p *Peer) Plans() Plans {
	if links := p.whole(); len(links) > 0 {
		c, err := inCommon(links)
		if err != nil { // their agents disagree: what the first has
			c = &common{proposal: links[0].current()}
			for _, a := range c.alternatives {
				c.plans = append(c.plans, []*agreed{a})
			}
		}
		out := Plans{Policy: c.policy, Reason: c.reason, Unproved: c.unproved}
		for _, a := range c.plans {
			out.Alternatives = append(out.Alternatives, a[0].Alternative)
		}
		return out
	}
	r := p.firstResult() // the peer is gone
	return Plans{r.Policy, r.Reason, r.Alternatives, r.Unproved}
}

// whole are the links that there are, in the order of their agents.
func (p *Peer) whole() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sorted()
}

// Proven is the first of the proved plans.
func (p *Peer) Proven() proof.Proven { return p.Plans().Alternatives[0].Proven }

// Assignments is the first of the destination policy's proved alternatives, and
// its reason: at most 256 bytes of the policy's own words, to be escaped where
// they are shown.
func (p *Peer) Assignments() ([]plan.Assignment, string) {
	r := p.Plans()
	return r.Alternatives[0].Assignments, r.Reason
}

// Policy names the policy that answered: the destination's.
func (p *Peer) Policy() (name, digest string) {
	r := p.Plans()
	return r.Policy.Name, r.Policy.Digest
}

// LayoutState says how far the peer's layouts can be trusted.
func (p *Peer) LayoutState() session.LayoutState { return p.firstResult().Peer.Engine.State }

// Role is what our engine is in the pair.
func (p *Peer) Role() transport.Side {
	if p.role == session.Source {
		return transport.Source
	}
	return transport.Destination
}

// Provider is the name of the provider that transfers take where no policy says
// otherwise: the first of Providers.
func (p *Peer) Provider() string { return p.firstResult().Providers[0] }

// Providers are those that are connected with the peer's first agent, in the
// dialler's order.
func (p *Peer) Providers() []string { return slices.Clone(p.firstResult().Providers) }

// PolicyDiffers returns both sides' policies where their digests differ, and
// false where they are equal.
func (p *Peer) PolicyDiffers() (geometry.Difference, bool) {
	ours, peers := p.e.hello(p.role, "").Policy, p.firstResult().Peer.Policy
	if p.role == session.Source {
		return session.PolicyDifference(ours, peers)
	}
	return session.PolicyDifference(peers, ours)
}

// Extend extends the lease of an offer or expectation of the peer that is not
// being moved yet. A running transfer extends it by itself.
func (p *Peer) Extend(ctx context.Context, t Ticket) error {
	links, err := p.open()
	if err != nil {
		return err
	}
	ticket, err := transfer.Peek(string(t))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.e.agent.times.Handshake)
	defer cancel()
	for _, l := range links {
		ch := make(chan *transfer.Extended, 1)
		var x uint64
		if !l.ask(func(n uint64) transfer.Message {
			x = n
			l.asked[x] = ch
			return &transfer.Extend{X: x, Kind: ticket.Kind, Ticket: string(t)}
		}) {
			return blame.On(blame.Peer, fmt.Errorf("agent: extend: %w: %w", transfer.ErrGone, l.err))
		}
		select {
		case m := <-ch:
			if err := m.Failure.Err(); err != nil {
				return fmt.Errorf("agent: extend: %w", err)
			}
		case <-l.done:
			return blame.On(blame.Peer, fmt.Errorf("agent: extend: %w: %w", transfer.ErrGone, l.err))
		case <-ctx.Done():
			l.mu.Lock()
			delete(l.asked, x)
			l.mu.Unlock()
			return fmt.Errorf("agent: extend: %w", ctx.Err())
		}
	}
	return nil
}

// Loads are how busy the pair's ranks are, as policies are told: from 1 (idle)
// to policy.MaxLoad, 0 where nobody has said. Our agent's sample is a second old
// at most, what the peer tells a beat more.
func (p *Peer) Loads() (source, destination []policy.Load) {
	links := p.whole()
	if len(links) == 0 {
		return nil, nil
	}
	of := func(a policy.About) (out []policy.Load) {
		for _, place := range a.Places {
			out = append(out, place.Load)
		}
		return out
	}
	s, d := p.e.survey(links).by(p.role)
	return of(s), of(d)
}

// Done is closed when the peer is gone; Err then says why.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err is nil until Done is closed.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return p.err
	}
	return nil
}

// Close ends the peer's transfers and connections. A second Close returns
// ErrClosed.
func (p *Peer) Close() error {
	if !p.alive() {
		return ErrClosed
	}
	p.shut("the peer object was closed")
	return nil
}

func (p *Peer) shut(why string) {
	p.mu.Lock()
	var links []*link
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.send(&transfer.Bye{Message: why})
		l.fail(blame.On(blame.Local, fmt.Errorf("%w: %s", ErrClosed, why)))
	}
}
