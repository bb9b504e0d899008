package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// link is one connection with one agent of a peer, after its handshake.
type link struct {
	agent  *Agent
	engine *Engine
	conn   *conn
	role   session.Role   // ours
	result session.Result // of the handshake: of plans, current tells
	lanes  []*lane        // in the dialler's order; at least one
	up     *Peer

	turn sync.Mutex // held while a new X is sent; before mu

	mu        sync.Mutex
	dead      bool
	err       error
	next      uint64              // our last X
	seen      uint64              // the peer's last X
	opened    map[uint64]*opening // by our X
	served    map[uint64]*serving // by the peer's X
	plans     map[string]*agreed  // by digest
	now       *proposal           // what the sides agreed on last
	offered   *proposing          // a proposal of ours under way
	judging   bool                // one of the peer's is
	proposals []time.Time         // of the peer's, the latest ones
	asked     map[uint64]chan *transfer.Extended
	asking    chan struct{}                  // a slot for each question of ours under way
	asks      uint64                         // our last question about digests
	sums      map[uint64]chan *transfer.Sums // by our question
	probing   bool                           // probes of the peer's are served
	hashing   int                            // questions of the peer's under way
	replies   chan transfer.Message
	beat      chan struct{} // the beat interval may have shrunk
	done      chan struct{} // closed: dead
	probes    chan *transfer.Probed
	judged    chan struct{} // closed: there is a verdict
	// What the peer asks for; a question ends the one before.
	asksProbe chan *transfer.Probe
	verdict   *transfer.Failure
	fenced    chan struct{} // closed: and nothing of the peer touches our memory
	closing   sync.Once
}

// opening is our side of a transfer on this link.
type opening struct {
	transfer *Transfer
	index    int // the link's number in the transfer
	plan     *agreed
	lanes    []*lane       // that the owner was asked for
	ttl      time.Duration // 0: not granted yet
	granted  *grantedTables
}

// serving is the owner's side of a transfer on this link.
type serving struct {
	holder holder
	key    transfer.Key
	link   *link
	x      uint64
	plan   *agreed
	wanted []*lane // that the opener would use, in its order
	lanes  []*lane // of them, those that took the grant
	burden *burden
	grant  transport.GrantID
	side   []byte
	scope  scope // what it moves
	layers plan.Range
	level  transfer.Integrity
	hashes gate // open while digests of its blocks are made
}

// holder is an Offered or an Expected, as a link sees it.
type holder interface {
	landed(key transfer.Key, boxes []transfer.Box)
	finished(key transfer.Key, err error)
	lost(key transfer.Key, err error)
	beaten()
}

// start completes a link that has shaken hands.
//
// Errors: those of enter.
func (l *link) start(up *Peer) error {
	l.up = up
	l.plans = map[string]*agreed{}
	if err := l.enter(l.result.Policy, l.result.Reason, l.result.Alternatives, l.result.Unproved); err != nil {
		return err
	}
	l.opened, l.served, l.asked = map[uint64]*opening{}, map[uint64]*serving{}, map[uint64]chan *transfer.Extended{}
	l.sums, l.asking = map[uint64]chan *transfer.Sums{}, make(chan struct{}, maxHashing)
	l.replies = make(chan transfer.Message, 256)
	l.probes, l.judged, l.asksProbe = make(chan *transfer.Probed, 1), make(chan struct{}), make(chan *transfer.Probe, 2)
	l.beat, l.done, l.fenced = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	return nil
}

// run reads the link until it ends, and takes everything down with it.
func (l *link) run() {
	a := l.agent
	_ = l.conn.raw.SetDeadline(time.Time{})
	a.log.Info().Str("engine", l.engine.owner.Engine).Str("peer", l.result.Peer.Engine.Side.Engine).Str("peer_agent", l.result.Peer.Agent).
		Strs("providers", l.result.Providers).Str("plan", l.current().alternatives[0].digest.String()).Int("alternatives", len(l.current().alternatives)).
		Errs("unproved", unproved(l.result.Unproved)).Str("policy", l.result.Policy.Name).Str("reason", l.result.Reason).Msg("peer connected")
	a.wg.Go(l.beats)
	a.wg.Go(l.answers)
	var err error
	for err == nil {
		var t session.Type
		var payload []byte
		if t, payload, err = l.conn.read(a.times.Idle); err != nil {
			err = broken(err)
			break
		}
		if t == session.TypePropose || t == session.TypeAgree {
			err = l.planning(t, payload)
			continue
		}
		var msg transfer.Message
		if msg, err = transfer.Decode(uint8(t), payload); err == nil {
			err = l.dispatch(msg)
		}
	}
	l.fail(err)
	a.untrack(l.conn)
	l.sever()
}

// fail ends the link once: everything on it hears of it.
func (l *link) fail(err error) {
	l.closing.Do(func() {
		l.mu.Lock()
		l.dead, l.err = true, err
		var opened []*opening
		for _, o := range l.opened {
			opened = append(opened, o)
		}
		var served []*serving
		for _, s := range l.served {
			served = append(served, s)
		}
		l.mu.Unlock()
		close(l.done)
		_ = l.conn.close()
		l.agent.log.Info().Err(err).Str("peer", l.result.Peer.Engine.Side.Engine).Str("peer_agent", l.result.Peer.Agent).Msg("peer disconnected")
		for _, o := range opened {
			o.transfer.box.post(moveEvent{ev: transfer.Lost{Link: o.index, Err: err}})
		}
		for _, s := range served {
			s.holder.lost(s.key, err)
		}
		l.untold()
		l.up.drop(l, err)
	})
}

// send writes a message; a link that cannot is dead.
func (l *link) send(m transfer.Message) {
	payload, err := transfer.Encode(m)
	var frame []byte
	if err == nil {
		frame, err = session.AppendFrame(nil, session.Type(m.Type()), payload)
	}
	l.put(frame, err, fmt.Sprintf("a message of type %d", m.Type()))
}

// put writes a frame that was made without an error.
func (l *link) put(frame []byte, err error, what string) {
	if err != nil { // our own bug or a table too large: the peer waits in vain
		l.fail(blame.On(blame.Local, err))
		return
	}
	select {
	case <-l.done:
		return
	default:
	}
	if err := l.conn.send(frame); err != nil {
		l.fail(broken(fmt.Errorf("send %s: %w", what, err)))
	}
}

// reply queues an answer of the reading goroutine, which must not wait for a
// peer to read. A peer that asks faster than it reads loses its connection.
func (l *link) reply(m transfer.Message) error {
	select {
	case l.replies <- m:
		return nil
	default:
		return blame.On(blame.Peer, fmt.Errorf("%w: %d answers wait for the peer to read them", transfer.ErrLimit, cap(l.replies)))
	}
}

func (l *link) answers() {
	for {
		select {
		case m := <-l.replies:
			l.send(m)
		case <-l.done:
			return
		}
	}
}

// beats keeps the connection and the leases of our transfers alive, and tells
// the peer how busy our ranks are where that changed.
func (l *link) beats() {
	clock := l.agent.clock
	last := clock.Now()
	var told []transfer.Load
	var alive []uint64
	for {
		_, every := l.leases()
		poked := false
		if d := last.Add(max(every/3, time.Millisecond)).Sub(clock.Now()); d > 0 {
			wait := make(chan struct{})
			stop := clock.AfterFunc(d, func() { close(wait) })
			select {
			case <-l.done:
				stop()
				return
			case <-l.beat:
				stop()
				poked = true
			case <-wait:
			}
		}
		l.up.refresh()
		xs, _ := l.leases()
		beat := &transfer.Beat{X: xs}
		if loads := l.engine.rankLoads(); !slices.Equal(loads, told) {
			beat.Loads, told = loads, loads
		} else if poked && slices.Equal(xs, alive) {
			continue // nothing new, and the next beat comes in time
		}
		l.send(beat)
		last, alive = clock.Now(), xs
	}
}

// leases are our transfers on the link that have one, and how long the shortest
// lasts.
func (l *link) leases() (xs []uint64, every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	every = l.agent.times.Idle
	if len(l.opened)+len(l.served) > 0 { // loads change
		every = min(every, 3*time.Second)
	}
	for x, o := range l.opened {
		if o.ttl > 0 {
			xs = append(xs, x)
			every = min(every, o.ttl)
		}
	}
	slices.Sort(xs)
	return xs, every
}

// dispatch hands a message to whom it concerns. An error ends the link: the
// peer does not speak the protocol. It never blocks.
func (l *link) dispatch(msg transfer.Message) error {
	switch m := msg.(type) {
	case *transfer.Open:
		return l.open(m)
	case *transfer.Granted:
		if o := l.opening(m.X); o != nil {
			o.transfer.granted(l, o, m)
		}
	case *transfer.Refused:
		if o := l.forget(m.X); o != nil {
			o.transfer.box.post(moveEvent{ev: transfer.Declined{Link: o.index, Err: m.Failure.Err()}})
		}
	case *transfer.Mark:
		boxes, err := l.inward(m.Boxes)
		if err != nil {
			return err
		}
		if o := l.opening(m.X); o != nil {
			o.transfer.box.post(moveEvent{ev: transfer.Readied{Link: o.index, Boxes: boxes}})
		}
	case *transfer.Ended:
		if o := l.opening(m.X); o != nil {
			o.transfer.box.post(moveEvent{ev: transfer.Stopping{Link: o.index, Err: m.Failure.Err()}})
		}
	case *transfer.Closed:
		if o := l.forget(m.X); o != nil {
			o.transfer.box.post(moveEvent{ev: transfer.Taken{Link: o.index, Err: m.Failure.Err()}})
		}
	case *transfer.Landed:
		boxes, err := l.inward(m.Boxes)
		if err != nil {
			return err
		}
		if s := l.serving(m.X); s != nil {
			s.holder.landed(s.key, boxes)
		}
	case *transfer.Done:
		if s := l.serving(m.X); s != nil {
			s.holder.finished(s.key, m.Failure.Err())
		}
	case *transfer.Beat:
		if err := l.told(m.Loads); err != nil {
			return err
		}
		for _, x := range m.X {
			if s := l.serving(x); s != nil {
				s.holder.beaten()
			}
		}
	case *transfer.Extend:
		return l.reply(l.extend(m))
	case *transfer.Extended:
		l.mu.Lock()
		ch := l.asked[m.X]
		delete(l.asked, m.X)
		l.mu.Unlock()
		if ch != nil {
			ch <- m
		}
	case *transfer.Ask:
		return l.answer(m)
	case *transfer.Sums:
		l.mu.Lock()
		ch := l.sums[m.N]
		delete(l.sums, m.N)
		l.mu.Unlock()
		if ch != nil {
			ch <- m
		}
	case *transfer.Probe:
		if l.role != session.Source {
			return blame.On(blame.Peer, &transfer.MessageError{Type: m.Type(), Field: "role", Reason: "only a destination asks for a probe"})
		}
		select {
		case l.asksProbe <- m:
		default:
			return blame.On(blame.Peer, fmt.Errorf("%w: %d probes asked for at a time", transfer.ErrLimit, cap(l.asksProbe)+1))
		}
		l.mu.Lock()
		first := !l.probing
		l.probing = true
		l.mu.Unlock()
		if first {
			l.agent.wg.Go(l.serveProbes)
		}
	case *transfer.Probed:
		select {
		case l.probes <- m:
		default:
			return blame.On(blame.Peer, &transfer.MessageError{Type: m.Type(), Field: "type", Reason: "nobody asked"})
		}
	case *transfer.Verdict:
		select {
		case <-l.judged:
		default:
			l.verdict = m.Failure
			close(l.judged)
		}
	case *transfer.Bye:
		return blame.On(blame.Peer, fmt.Errorf("agent: the peer closed: %s", m.Message))
	}
	return nil
}

func (l *link) opening(x uint64) *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened[x]
}

func (l *link) forget(x uint64) *opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.opened[x]
	delete(l.opened, x)
	return o
}

func (l *link) serving(x uint64) *serving {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served[x]
}

// ask gives a message of ours its X and sends it. Numbers reach the peer in
// ascending order, so both happen in one turn; enter records what the answer
// is for, under l.mu. False: the link is dead.
func (l *link) ask(enter func(x uint64) transfer.Message) bool {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return false
	}
	l.next++
	m := enter(l.next)
	l.mu.Unlock()
	l.send(m)
	return true
}

// serve enters a transfer of the peer; false: the link is dead.
func (l *link) serve(s *serving) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false
	}
	l.served[s.x] = s
	return true
}

func (l *link) unserve(x uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.served, x)
}

// open checks an Open as far as it can be checked without the offer's state.
func (l *link) open(m *transfer.Open) error {
	if m.X <= l.seen {
		return &transfer.MessageError{Type: m.Type(), Field: "x", Reason: fmt.Sprintf("%d was used before, the last one is %d", m.X, l.seen)}
	}
	l.seen = m.X
	refuse := func(err error) error {
		return l.reply(&transfer.Refused{X: m.X, Failure: transfer.Failed(blame.On(blame.Peer, err))})
	}
	// A source's blocks are read, a destination's are written: the plan has
	// one direction.
	want := transfer.ToRead
	if l.role == session.Destination {
		want = transfer.ToWrite
	}
	if m.Kind != want {
		return refuse(&transfer.TicketError{Err: transfer.ErrKind, Field: "kind", Have: m.Kind.String(), Want: fmt.Sprintf("%s, this side is the pair's %s", want, l.role)})
	}
	t, err := l.engine.owner.Check(m.Ticket, m.Kind, l.result.Peer.Group)
	if err != nil {
		return refuse(err)
	}
	agreed := l.plan(m.Plan)
	if agreed == nil {
		return refuse(fmt.Errorf("%w: have %.80q, agreed on last is %s", transfer.ErrPlan, m.Plan, l.current().alternatives[0].digest))
	}
	for i, r := range m.Ranks {
		if !slices.Contains(l.result.Peer.Engine.Held, r) || slices.Contains(m.Ranks[:i], r) {
			return refuse(fmt.Errorf("%w: rank %d is not one of agent %q, or named twice", transfer.ErrRange, r, l.result.Peer.Agent))
		}
	}
	wanted := []*lane{}
	for _, name := range m.Providers {
		lane := l.lane(name)
		if lane == nil || slices.Contains(wanted, lane) {
			return refuse(fmt.Errorf("%w: provider %.80q is none of the connection's %q, or named twice", transfer.ErrRange, name, l.result.Providers))
		}
		wanted = append(wanted, lane)
	}
	if len(wanted) == 0 && len(agreed.edges) > 0 {
		return refuse(fmt.Errorf("%w: no provider is named", transfer.ErrRange))
	}
	s := &serving{link: l, x: m.X, plan: agreed, wanted: wanted, layers: plan.Range{From: m.Layers[0], To: m.Layers[1]}}
	rand.Read(s.grant[:])
	h := l.result.Peer.Engine
	who := fmt.Sprintf("%q incarnation %q", h.Side.Engine, h.Incarnation)
	total := len(h.Side.Ranks)
	if m.Kind == transfer.ToRead {
		l.engine.mu.Lock()
		o := l.engine.offers[t.Offer]
		l.engine.mu.Unlock()
		if o == nil {
			return refuse(t.Late(l.agent.clock.Now()))
		}
		if s.scope, err = l.scope(m.From, m.To, l.reach(&o.req), reach{m.First, m.End}, m.More); err != nil {
			return refuse(err)
		}
		if !o.openRead(s, m, who, total) {
			return refuse(t.Late(l.agent.clock.Now()))
		}
		return nil
	}
	l.engine.mu.Lock()
	x := l.engine.expects[t.Offer]
	l.engine.mu.Unlock()
	if x == nil {
		return refuse(t.Late(l.agent.clock.Now()))
	}
	if s.scope, err = l.scope(m.From, m.To, l.reach(&x.req), reach{m.First, m.End}, m.More); err != nil {
		return refuse(err)
	}
	if !x.openWrite(s, m, who, total) {
		return refuse(t.Late(l.agent.clock.Now()))
	}
	return nil
}

// extend answers an Extend.
func (l *link) extend(m *transfer.Extend) *transfer.Extended {
	out := &transfer.Extended{X: m.X}
	t, err := l.engine.owner.Check(m.Ticket, m.Kind, l.result.Peer.Group)
	if err == nil {
		l.engine.mu.Lock()
		o, x := l.engine.offers[t.Offer], l.engine.expects[t.Offer]
		l.engine.mu.Unlock()
		switch {
		case o != nil && m.Kind == transfer.ToRead:
			o.beaten()
			out.TTL = o.ttl.Milliseconds()
		case x != nil && m.Kind == transfer.ToWrite:
			x.beaten()
			out.TTL = x.ttl.Milliseconds()
		default:
			err = t.Late(l.agent.clock.Now())
		}
	}
	out.Failure = transfer.Failed(err)
	return out
}

// quiet takes a grant of ours away and returns when nothing under it runs
// here.
func (l *link) quiet(s *serving) {
	for _, lane := range s.lanes {
		if err := lane.provider.Revoke(s.grant); err != nil {
			l.agent.log.Debug().Err(err).Str("provider", lane.name()).Msg("revoke")
		}
	}
}

// ours is the request as this side knows it: the peer's tables are nil.
func (l *link) ours(a *agreed, req *request, from, to int64, spans []stamp.Span) stamp.Request {
	r := stamp.Request{ID: req.name, Plan: a.digest, From: from, To: to, Spans: spans, Edges: a.edgesOf()}
	if l.role == session.Source {
		r.Source, r.SourceFirst = byPair(l, req.tables), byPair(l, req.first)
	} else {
		r.Destination, r.DestinationFirst = byPair(l, req.tables), byPair(l, req.first)
	}
	return r
}

// reach is how far our request goes.
func (l *link) reach(req *request) reach { return reach{byPair(l, req.first), req.to} }

// fence returns when nothing of the peer can touch our memory under this
// link: its handle said so (ctx ends), or the connection is gone and the
// provider has fenced the peer. A live peer that does not answer within the
// idle time has lost its right to the connection.
func (l *link) fence(ctx context.Context) {
	silent := make(chan struct{})
	stop := l.agent.clock.AfterFunc(l.agent.times.Idle, func() { close(silent) })
	defer stop()
	for range 2 {
		select {
		case <-ctx.Done():
			return
		case <-l.fenced:
			return
		case <-silent:
			l.fail(blame.On(blame.Peer, errors.New("agent: the peer did not stop a write that was taken back")))
			silent = nil
		}
	}
}

// sever fences and forgets the providers' side of a dead link, however long
// that takes: blocks wait for it in quarantine.
func (l *link) sever() {
	for _, lane := range l.lanes {
		wait := 50 * time.Millisecond
		for {
			err := lane.provider.Fence(l.engine.ctx, lane.peer)
			if err == nil || l.engine.ctx.Err() != nil || errors.Is(err, transport.ErrClosed) {
				break // a closing engine revokes its registrations, which is stronger
			}
			l.agent.log.Warn().Err(err).Str("provider", lane.name()).Msg("a dead peer cannot be fenced yet: its blocks stay in quarantine")
			again := make(chan struct{})
			stop := l.agent.clock.AfterFunc(wait, func() { close(again) })
			select {
			case <-again:
			case <-l.engine.ctx.Done():
				stop()
			}
			wait = min(2*wait, 5*time.Second)
		}
	}
	close(l.fenced)
	for _, lane := range l.lanes {
		if err := lane.provider.Disconnect(lane.peer); err != nil && !errors.Is(err, transport.ErrClosed) {
			l.agent.log.Warn().Err(err).Str("provider", lane.name()).Msg("disconnect")
		}
	}
}
