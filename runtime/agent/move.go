package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// Transfer is one movement in progress. Safe for concurrent use.
type Transfer struct {
	peer      *Peer
	engine    *Engine
	req       request
	ticket    Ticket
	direction transfer.Direction
	layers    plan.Range
	more      bool
	fixed     bool // the policy is not asked how it goes
	priority  int
	level     transfer.Integrity
	side      []byte
	deadline  time.Time
	begun     time.Time

	machine   *transfer.Move // the goroutine's, like what follows
	links     []*carrier
	ops       map[uint64]flight
	canceled  map[uint64]bool // operations that were asked to stop
	way       *way
	burdens   []*burden
	waiters   []waiter
	alarm     alarm
	grace     func() bool // stops the timer of canceled operations
	verifying context.Context
	unverify  func() // gives up what is being verified
	hashes    gate   // open while digests of our blocks are made for the peer
	got       []byte // side data of the offer
	last      time.Time
	ended     bool
	failure   error

	box    *mailbox[moveEvent]
	done   chan struct{}
	result Result // valid once done is closed, like err
	err    error
}

// carrier is a transfer's part on one link.
type carrier struct {
	link    *link
	plan    *agreed
	x       uint64
	lanes   []*lane // that the owner was asked for, in order
	granted *grantedTables
	lane    int // index into the granted lanes of the one in use
}

// grantedTables is what the owner granted.
type grantedTables struct {
	grant       transport.GrantID
	lanes       []*lane    // that take the grant, in order
	tables      [][]uint32 // by group of the pair; nil for an owner-mediated provider
	first       []int64
	scope       scope
	generations [][]uint64
	side        []byte
	request     string
}

type flight struct {
	op   transport.OpID
	l    *link
	lane *lane
}

// cannot is an operation that a lane's provider cannot carry out.
type cannot struct {
	of   transfer.Submission
	lane int
	err  error
}

type moveEvent struct {
	ev      transfer.MoveEvent
	granted *grantedTables // of a Permitted
	reply   chan<- error   // of a Written
	wait    *waiter
	cannot  *cannot
	by      string // of a Completed: the provider
	overdue bool   // operations that were canceled should have ended by now
}

// Pull starts reading an offer of the peer.
//
// Errors: *Recompute, where the policy refuses it; what is wrong with the
// request; where the policy fails to say how it goes, its error.
func (p *Peer) Pull(ctx context.Context, pull Pull) (*Transfer, error) {
	return p.pull(ctx, pull, false)
}

func (p *Peer) pull(ctx context.Context, pull Pull, fixed bool) (*Transfer, error) {
	if p.role != session.Destination {
		return nil, blame.On(blame.Local, errors.New("agent: pull: our engine is the pair's source: it pushes"))
	}
	return p.move(ctx, &Transfer{direction: transfer.Pull, ticket: pull.Ticket, layers: pull.Layers, more: pull.More, fixed: fixed, priority: pull.Priority, level: stricter(pull.Integrity, p.e.agent.cfg.Integrity)}, pull.Tables, pull.From, pull.Tokens, pull.Timeout, true)
}

// Push starts writing to an expectation of the peer.
func (p *Peer) Push(ctx context.Context, push Push) (*Transfer, error) {
	if p.role != session.Source {
		return nil, blame.On(blame.Local, errors.New("agent: push: our engine is the pair's destination: it pulls"))
	}
	if len(push.SideData) > transfer.MaxSideData {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: push: %d bytes of side data, want at most %d", len(push.SideData), transfer.MaxSideData))
	}
	return p.move(ctx, &Transfer{direction: transfer.Push, ticket: push.Ticket, layers: push.Layers, priority: push.Priority, level: push.Integrity, side: append([]byte(nil), push.SideData...)},
		push.Tables, push.From, push.Tokens, push.Timeout, push.Streaming)
}

// move starts a transfer; streaming: nothing is ready before somebody says so.
func (p *Peer) move(ctx context.Context, t *Transfer, tables [][]uint32, from, to int64, timeout time.Duration, streaming bool) (*Transfer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := p.e
	links, err := p.open()
	if err != nil {
		return nil, err
	}
	if !t.level.Valid() {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: integrity %q: want off (the empty text), sample or full", t.level))
	}
	ticket, err := transfer.Peek(string(t.ticket))
	if err != nil {
		return nil, err
	}
	if t.priority < 0 || t.priority > policy.MaxPriority {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: priority %d: want 0 (nothing asked) to %d", t.priority, policy.MaxPriority))
	}
	name := "to or from offer " + ticket.Offer.String()
	write := t.direction == transfer.Pull
	if t.req, err = e.check(name, tables, from, to, write); err != nil {
		return nil, err
	}
	if timeout <= 0 {
		timeout = e.agent.times.Transfer
	}
	p.refresh()
	t.way, err = p.choose(ctx, links, asked{name: ticket.Offer.String(), from: from, to: to, timeout: timeout, lease: p.lease(ticket), priority: t.priority, level: t.level, pull: write, fixed: t.fixed})
	if err != nil {
		return nil, err
	}
	t.level = t.way.level
	t.peer, t.engine = p, e
	t.begun = e.agent.clock.Now()
	t.last, t.deadline = t.begun, t.begun.Add(timeout)
	t.ops, t.canceled, t.box, t.done = map[uint64]flight{}, map[uint64]bool{}, newMailbox[moveEvent](), make(chan struct{})
	spec := transfer.MoveSpec{Direction: t.direction, Shape: e.shape, From: from, To: to, Layers: t.layers, Streaming: streaming, Grain: e.grains(), Verify: t.level != transfer.Off, Deadline: t.deadline}
	for i, l := range links {
		a := t.way.plans[i]
		t.links = append(t.links, &carrier{link: l, plan: a})
		spec.Links = append(spec.Links, len(a.edges) > 0)
	}
	if t.machine, err = transfer.NewMove(t.way.plans[0].Proven, spec); err != nil {
		return nil, err
	}
	if t.layers == (plan.Range{}) {
		t.layers = e.shape.Layers()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if err := e.blocks.take(t.req.blocks, write, "transfer "+name); err != nil {
		return nil, err
	}
	e.moves[t] = struct{}{}
	t.box.post(moveEvent{ev: transfer.Begin{}})
	e.wg.Go(t.run)
	return t, nil
}

// Ready says that boxes are written and may be moved; for streaming pushes.
// Marks are idempotent and may overlap. The bytes must be in memory before
// the call.
func (t *Transfer) Ready(boxes ...Box) error {
	if t.direction != transfer.Push {
		return blame.On(blame.Local, errors.New("agent: ready marks of a pull come from its offer"))
	}
	reply := make(chan error, 1)
	if !t.box.post(moveEvent{ev: transfer.Written{Boxes: slices.Clone(boxes)}, reply: reply}) {
		<-t.done
		return t.err
	}
	select {
	case err := <-reply:
		return err
	case <-t.done:
		select { // the mark may be what ended the transfer
		case err := <-reply:
			return err
		default:
			return t.err
		}
	}
}

// Landed waits until the box is in place at the destination; it fails when
// the transfer does first.
func (t *Transfer) Landed(ctx context.Context, b Box) error {
	if err := t.engine.shape.Check(b, t.req.from, t.req.to); err != nil {
		return blame.On(blame.Local, err)
	}
	w := waiter{b, make(chan error, 1)}
	if !t.box.post(moveEvent{wait: &w}) {
		<-t.done
		return t.err
	}
	select {
	case err := <-w.ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns the final state. When it returns, nothing of the transfer
// touches this side's blocks any more. When ctx ends first the transfer goes
// on and the error is ctx's.
func (t *Transfer) Wait(ctx context.Context) (Result, error) {
	select {
	case <-t.done:
		return t.result, t.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// Cancel asks the transfer to stop; Wait tells when it has.
func (t *Transfer) Cancel() {
	t.box.post(moveEvent{ev: transfer.Abort{Err: blame.On(blame.Local, transfer.ErrCanceled)}})
}

func (t *Transfer) run() {
	clock := t.engine.agent.clock
	tick := func() { t.box.post(moveEvent{ev: transfer.Tick{}}) }
	for !t.ended {
		for _, e := range t.box.take() {
			if e.wait != nil {
				t.wait(*e.wait)
				continue
			}
			if e.overdue {
				t.abandon()
				continue
			}
			if e.cannot != nil {
				t.fallBack(e.cannot)
				continue
			}
			switch ev := e.ev.(type) {
			case transfer.Permitted:
				if t.links[ev.Link].granted != nil {
					break // said twice: the machine takes the first
				}
				t.links[ev.Link].granted = e.granted
				t.burdens = append(t.burdens, t.links[ev.Link].link.begin(t.links[ev.Link].plan, t.req.to-t.req.from, t.layers))
				if len(e.granted.side) > 0 {
					t.got = e.granted.side
				}
				t.req.name = e.granted.request
				t.result.Absent, t.result.OutOfWindow = e.granted.scope.absent, e.granted.scope.window
			case transfer.Completed:
				delete(t.ops, ev.Op)
				t.last = clock.Now()
				if used := &t.way.route.Transports; ev.Err == nil && !slices.Contains(*used, e.by) {
					*used = append(*used, e.by)
				}
			}
			out := t.machine.Step(clock.Now(), e.ev)
			if e.reply != nil {
				e.reply <- out.Err
			}
			t.act(out)
			if out.Progress {
				rest := t.waiters
				t.waiters = nil
				for _, w := range rest {
					t.wait(w)
				}
			}
			t.alarm.set(clock, out.Wake, tick)
			if out.Final {
				t.ended, t.failure = true, out.Failure
			}
		}
	}
	t.finish()
}

func (t *Transfer) wait(w waiter) {
	if err := absent(t.engine, w.box, t.result.Absent); err != nil {
		w.ch <- err
		return
	}
	switch {
	case t.machine.Has(w.box):
		w.ch <- nil
	case t.ended && t.failure != nil:
		w.ch <- t.failure
	default:
		t.waiters = append(t.waiters, w)
	}
}

func (t *Transfer) act(out transfer.MoveReady) {
	for _, i := range out.Open {
		t.open(i)
	}
	for _, s := range out.Submit {
		t.submit(s)
	}
	for _, op := range out.Cancel {
		t.canceled[op] = true
		if f, ok := t.ops[op]; ok {
			_ = f.lane.provider.Cancel(f.op) // it may have completed: its completion is on the way
		}
	}
	for _, i := range out.Verify {
		t.verify(i)
	}
	if out.Unverify && t.unverify != nil {
		t.unverify()
	}
	if len(out.Cancel) > 0 {
		a := t.engine.agent
		t.grace = a.clock.AfterFunc(a.times.Idle, func() { t.box.post(moveEvent{overdue: true}) })
	}
	for _, b := range out.Landed {
		c := t.links[b.Link]
		boxes := c.link.outward(b.Boxes)
		for at := 0; at < len(boxes); at += transfer.MaxBoxes {
			c.link.send(&transfer.Landed{X: c.x, Boxes: boxes[at:min(at+transfer.MaxBoxes, len(boxes))]})
		}
	}
	for _, d := range out.Done {
		c := t.links[d.Link]
		if t.direction == transfer.Pull || d.Err != nil {
			c.link.forget(c.x) // the owner's answer changes nothing any more
		}
		c.link.send(&transfer.Done{X: c.x, Failure: transfer.Failed(d.Err)})
	}
}

func (t *Transfer) open(i int) {
	c := t.links[i]
	var err error
	var refused []string
	c.lanes, refused, err = t.way.lanesFor(c.link, c.plan)
	t.way.route.Refused = append(t.way.route.Refused, refused...)
	if err != nil {
		t.box.post(moveEvent{ev: transfer.Declined{Link: i, Err: err}})
		return
	}
	m := &transfer.Open{Kind: transfer.ToRead, Ticket: string(t.ticket), Ranks: t.engine.desc.Held, Plan: c.plan.digest.String(),
		From: t.req.from, To: t.req.to, Layers: [2]int{t.layers.From, t.layers.To}, End: t.req.to, First: byPair(c.link, t.req.first), More: t.more, SideData: t.side}
	if t.direction == transfer.Push {
		m.Kind, m.Integrity = transfer.ToWrite, t.level
	}
	for _, lane := range c.lanes {
		m.Providers = append(m.Providers, lane.name())
	}
	if !c.link.ask(func(x uint64) transfer.Message {
		c.x, m.X = x, x
		c.link.opened[x] = &opening{transfer: t, index: i, plan: c.plan, lanes: c.lanes}
		return m
	}) {
		t.box.post(moveEvent{ev: transfer.Lost{Link: i, Err: c.link.err}})
	}
}

// abandon deals with operations whose completions do not come although they
// were canceled: the provider is broken, or hangs with its peer. Their blocks
// are safe only once the peer is fenced, so the connection goes.
func (t *Transfer) abandon() {
	for op, f := range t.ops {
		err := blame.On(blame.Provider, fmt.Errorf("%w: %s does not end operation %d, which was canceled", transfer.ErrProvider, f.lane.name(), f.op))
		t.engine.agent.wg.Go(func() {
			f.l.fail(err)
			<-f.l.fenced
			t.box.post(moveEvent{ev: transfer.Completed{Op: op, Err: err}})
		})
	}
}

// granted takes an owner's Granted on the link's reading goroutine.
func (t *Transfer) granted(l *link, o *opening, m *transfer.Granted) {
	g := &grantedTables{grant: transport.GrantID(m.Grant), first: m.First, side: m.SideData, request: m.Request}
	refuse := func(err error) {
		t.box.post(moveEvent{ev: transfer.Abort{Err: blame.On(blame.Peer, fmt.Errorf("agent: what agent %q granted: %w", l.result.Peer.Agent, err))}})
	}
	var err error
	if g.scope, err = l.scope(t.req.from, t.req.to, l.reach(&t.req), reach{m.First, m.End}, t.more); err != nil {
		refuse(err)
		return
	}
	ready, err := l.inward(m.Ready)
	if err != nil {
		refuse(err)
		return
	}
	oneSided := false
	for _, name := range m.Providers {
		lane := l.lane(name)
		if lane == nil || !slices.Contains(o.lanes, lane) || slices.Contains(g.lanes, lane) {
			refuse(&transfer.RangeError{What: "provider", Have: fmt.Sprintf("%.80q", name), Want: "those that were asked for, each once"})
			return
		}
		g.lanes = append(g.lanes, lane)
		oneSided = oneSided || lane.provider.Capabilities().OneSided
	}
	if len(g.lanes) == 0 && len(o.plan.edges) > 0 {
		refuse(&transfer.RangeError{What: "providers", Have: "none", Want: "one of those that were asked for"})
		return
	}
	if oneSided {
		if g.tables, err = transfer.ParseTables(m.Tables); err == nil {
			if g.generations, err = transfer.ParseGenerations(m.Generations); err == nil {
				err = l.fits(g)
			}
		}
		if err != nil {
			refuse(err)
			return
		}
	}
	l.mu.Lock()
	o.ttl, o.granted = time.Duration(m.TTL)*time.Millisecond, g
	l.mu.Unlock()
	select {
	case l.beat <- struct{}{}:
	default:
	}
	t.box.post(moveEvent{ev: transfer.Permitted{Link: o.index, Boxes: ready, Void: g.scope.void}, granted: g})
}

// fits checks the peer's tables against its pools: a block id is an offset
// into somebody's memory.
func (l *link) fits(granted *grantedTables) error {
	s := &l.result.Pair.Source
	if l.role == session.Source {
		s = &l.result.Pair.Destination
	}
	tables, gens := granted.tables, granted.generations
	if len(tables) != len(s.Groups) || len(gens) != len(tables) {
		return fmt.Errorf("%d tables and generations for %d groups, the pair has %d", len(tables), len(gens), len(s.Groups))
	}
	for g, t := range tables {
		lo, hi := stamp.Entries(s, g, granted.scope.spans[g].From, granted.scope.spans[g].To)
		if first := granted.first[g]; lo < hi && (lo < first || hi > first+int64(len(t))) {
			return fmt.Errorf("group %d: %d blocks from entry %d hold no entries %d to %d", g, len(t), first, lo, hi-1)
		}
		if len(gens[g]) != len(t) {
			return fmt.Errorf("group %d: %d generations for %d blocks", g, len(gens[g]), len(t))
		}
		for i, id := range t {
			if int64(id) >= int64(s.Groups[g].Blocks) {
				return fmt.Errorf("group %d: table entry %d is block %d, the pool has %d", g, i, id, s.Groups[g].Blocks)
			}
		}
	}
	return nil
}

// spans are what an operation on a box of ours moves, by group of the pair.
func (l *link) spans(b Box) []stamp.Span {
	side := l.ourSide()
	out := make([]stamp.Span, len(side.Groups))
	for g := range out {
		out[g] = stamp.Span{From: b.From, To: b.From}
		switch {
		case side.OwnGroup(g) != b.Group:
			if side.Model.Groups[g].State {
				out[g] = stamp.Span{}
			}
		case side.Model.Groups[g].State:
			out[g] = stamp.Span{From: 0, To: 1}
		default:
			out[g] = stamp.Span{From: b.From, To: b.To}
		}
	}
	return out
}

func (t *Transfer) submit(s transfer.Submission) {
	c := t.links[s.Link]
	l := c.link
	lane := c.granted.lanes[c.lane]
	req := l.ours(c.plan, &t.req, s.Box.From, s.Box.To, l.spans(s.Box))
	if all := t.engine.shape.Layers(); s.Box.Layers != all {
		req.Layers = s.Box.Layers
	}
	op := transport.Operation{Peer: lane.peer, Grant: c.granted.grant, Direction: transport.Read, Request: req, PeerGenerations: c.granted.generations, Deadline: t.engine.agent.wall(t.deadline)}
	if t.direction == transfer.Push {
		op.Direction = transport.Write
	}
	if lane.provider.Capabilities().OneSided { // else the owner's provider keeps them to itself
		if t.direction == transfer.Push {
			op.Request.Destination, op.Request.DestinationFirst = c.granted.tables, c.granted.first
		} else {
			op.Request.Source, op.Request.SourceFirst = c.granted.tables, c.granted.first
		}
	}
	at := c.lane
	report := func(done transport.Completion) {
		if errors.Is(done.Err, transport.ErrNotSupported) && at+1 < len(c.granted.lanes) {
			t.box.post(moveEvent{cannot: &cannot{s, at, done.Err}})
			return
		}
		t.box.post(moveEvent{by: lane.name(), ev: transfer.Completed{Op: s.Op, Err: failed(done.Err), Bytes: done.Bytes, Segments: done.Segments}})
	}
	id, err := t.engine.agent.pumps[lane.name()].submit(op, report)
	if err != nil {
		report(transport.Completion{Err: err})
		return
	}
	t.ops[s.Op] = flight{id, l, lane}
}

// fallBack goes on with the next transport that the owner granted where one
// cannot do an operation: nothing of it was moved.
func (t *Transfer) fallBack(e *cannot) {
	c := t.links[e.of.Link]
	delete(t.ops, e.of.Op)
	if t.canceled[e.of.Op] {
		t.box.post(moveEvent{ev: transfer.Completed{Op: e.of.Op, Err: failed(transport.ErrCanceled)}})
		return
	}
	if c.lane == e.lane { // the first operation that it cannot do
		name := c.granted.lanes[c.lane].name()
		c.lane++
		route := &t.way.route
		route.Refused = append(route.Refused, fmt.Sprintf("%s: %v", name, e.err))
		t.engine.agent.count(func(c *Counts) { c.FellBack++ })
		t.engine.agent.log.Warn().Err(e.err).Str("provider", name).Str("instead", c.granted.lanes[c.lane].name()).Msg("a provider cannot do an operation: the next one does")
	}
	t.submit(e.of)
}

// failed says what a provider's error means for a transfer.
func failed(err error) error {
	var stale *transport.Stale
	switch {
	case err == nil:
		return nil
	case errors.As(err, &stale):
		return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrStale, err))
	case errors.Is(err, transport.ErrCanceled):
		return blame.On(blame.Local, fmt.Errorf("%w: %w", transfer.ErrCanceled, err))
	case errors.Is(err, transport.ErrDeadline):
		return blame.On(blame.Provider, fmt.Errorf("%w: %w", transfer.ErrTimeout, err))
	case errors.Is(err, transport.ErrPeerGone):
		return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrGone, err))
	case errors.Is(err, transport.ErrNotGranted):
		return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrEnded, err))
	}
	return blame.On(blame.Provider, fmt.Errorf("%w: %w", transfer.ErrProvider, err))
}

func (t *Transfer) finish() {
	e := t.engine
	t.alarm.set(e.agent.clock, time.Time{}, nil)
	if t.grace != nil {
		t.grace()
	}
	if t.unverify != nil {
		t.unverify()
	}
	t.hashes.shut()
	t.result = Result{Request: t.req.name, Elapsed: t.last.Sub(t.begun), SideData: t.got, Ranks: slices.Clone(e.desc.Held), Valid: t.machine.Valid(),
		Integrity: t.level, Absent: t.result.Absent, OutOfWindow: t.result.OutOfWindow, Route: t.way.route}
	t.result.Bytes, t.result.Segments = t.machine.Moved()
	if t.direction == transfer.Pull {
		t.result.ValidBlocks = e.validBlocks(t.req, t.result.Valid)
	}
	for _, b := range t.burdens {
		b.end(t.failure == nil)
	}
	if t.failure != nil {
		t.err = fmt.Errorf("agent: transfer %q: %w", t.req.name, t.failure)
	}
	e.blocks.give(t.req.blocks, t.direction == transfer.Pull, nil)
	e.mu.Lock()
	delete(e.moves, t)
	e.mu.Unlock()
	rest := t.box.close()
	for _, ev := range rest {
		if ev.wait != nil {
			t.waiters = append(t.waiters, *ev.wait)
		}
	}
	for _, w := range t.waiters {
		err := absent(e, w.box, t.result.Absent)
		if err == nil && !t.machine.Has(w.box) {
			err = t.err
		}
		w.ch <- err
	}
	close(t.done)
	r := &t.result.Route
	e.agent.log.Info().Str("engine", e.owner.Engine).Str("request", t.req.name).Int64("bytes", t.result.Bytes).Int64("segments", t.result.Segments).
		Dur("elapsed", t.result.Elapsed).Str("policy", r.Policy).Int("alternative", r.Alternative).Strs("transports", r.Transports).Str("reason", r.Reason).
		Strs("refused", r.Refused).Strs("clamped", r.Clamped).Strs("unmet", r.Unmet).Str("fault", r.Fault).Err(t.err).Msg("transfer finished")
}
