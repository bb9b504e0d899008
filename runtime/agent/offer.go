package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// Offered is an open offer. Safe for concurrent use.
type Offered struct {
	engine *Engine
	id     transfer.ID
	ticket Ticket
	req    request
	ttl    time.Duration
	side   []byte
	limit  time.Time // of its grants, by the clock
	keys   atomic.Uint64

	machine *transfer.Offer // the goroutine's, like what follows
	serving map[transfer.Key]*serving
	alarm   alarm

	box    *mailbox[offerEvent]
	done   chan struct{}
	reason Reason // valid once done is closed
}

type offerEvent struct {
	ev    transfer.OfferEvent
	s     *serving     // of an OpenRead
	reply chan<- error // of a Written
}

// alarm posts a Tick at a time that may move.
type alarm struct {
	at   time.Time
	stop func() bool
}

func (a *alarm) set(clock Clock, at time.Time, f func()) {
	if at.Equal(a.at) {
		return
	}
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	if a.at = at; !at.IsZero() {
		a.stop = clock.AfterFunc(max(at.Sub(clock.Now()), 0), f)
	}
}

// grantLife gives what offers and expectations have in common: their ticket.
func (e *Engine) ticket(kind transfer.Kind, id transfer.ID, ttl time.Duration, trace string) (Ticket, error) {
	t, err := transfer.Ticket{Kind: kind, Offer: id, Deadline: e.agent.clock.Now().Add(ttl).Truncate(time.Millisecond), Engine: e.owner.Engine,
		Incarnation: e.owner.Incarnation, Audience: e.owner.Group, Trace: trace}.Seal(e.owner.Key)
	return Ticket(t), blame.On(blame.Local, err)
}

// identify gives an offer or expectation its id and ticket: new ones, or
// those of the engine's agent that opened it.
func (e *Engine) identify(kind transfer.Kind, join Ticket, ttl time.Duration, trace string) (id transfer.ID, ticket Ticket, err error) {
	if ttl <= 0 {
		return id, "", blame.On(blame.Local, errors.New("agent: TTL is zero: everything opened has an end"))
	}
	if join != "" {
		t, err := e.owner.Check(string(join), kind, e.owner.Group)
		if err != nil {
			return id, "", fmt.Errorf("agent: join: %w", err)
		}
		return t.Offer, join, nil
	}
	rand.Read(id[:])
	ticket, err = e.ticket(kind, id, ttl, trace)
	return id, ticket, err
}

// Offer opens blocks for reading and returns at once.
func (e *Engine) Offer(ctx context.Context, o Offer) (*Offered, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req, err := e.check(o.Request, o.Tables, o.From, o.Tokens, false)
	if err != nil {
		return nil, err
	}
	if len(o.SideData) > transfer.MaxSideData {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: request %q: %d bytes of side data, want at most %d", o.Request, len(o.SideData), transfer.MaxSideData))
	}
	if o.Readers < 0 || o.Readers > transfer.MaxReaders {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: request %q: %d readers, want 0 (one) to %d", o.Request, o.Readers, transfer.MaxReaders))
	}
	id, ticket, err := e.identify(transfer.ToRead, o.Ticket, o.TTL, o.Trace)
	if err != nil {
		return nil, err
	}
	now := e.agent.clock.Now()
	limit := now.Add(e.agent.times.Lifetime)
	out := &Offered{engine: e, id: id, ticket: ticket, req: req, ttl: o.TTL, side: append([]byte(nil), o.SideData...), limit: limit,
		serving: map[transfer.Key]*serving{}, box: newMailbox[offerEvent](), done: make(chan struct{}),
		machine: transfer.NewOffer(transfer.OfferSpec{Shape: e.shape, From: o.From, To: o.Tokens, Lease: o.TTL, Limit: limit, Readers: max(o.Readers, 1), Streaming: o.Streaming}, now)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.offers[id] != nil {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: request %q: this agent joined the offer already", o.Request))
	}
	if err := e.reserve("offer", o.Request, req.blocks, false); err != nil {
		return nil, err
	}
	e.offers[id] = out
	e.wg.Go(out.run)
	return out, nil
}

// Ticket permits to read the offer.
func (o *Offered) Ticket() Ticket { return o.ticket }

// Ready says that boxes are written and may be read; for streaming offers.
// Marks are idempotent and may overlap. The bytes must be in memory before
// the call. Errors: *transfer.RangeError, transfer.ErrUnknown once the offer
// has ended.
func (o *Offered) Ready(boxes ...Box) error {
	reply := make(chan error, 1)
	if !o.box.post(offerEvent{ev: transfer.Written{Boxes: append([]Box(nil), boxes...)}, reply: reply}) {
		return o.over()
	}
	select {
	case err := <-reply:
		return err
	case <-o.done:
		// A mark may be what the last reader waited for: it was taken, and the
		// offer is over because of it.
		select {
		case err := <-reply:
			return err
		default:
			return o.over()
		}
	}
}

func (o *Offered) over() error {
	<-o.done
	return fmt.Errorf("agent: offer %q: %w (%s)", o.req.name, transfer.ErrUnknown, o.reason)
}

// Wait returns when the blocks may be reused: every handle that touched them
// stopped and their generations are bumped. The error is nil when every
// reader finished well; otherwise it says why the offer ended: ErrCanceled,
// ErrExpired, ErrShut of package transfer, or *Incomplete.
// When ctx ends first the offer stays open and the error is ctx's.
func (o *Offered) Wait(ctx context.Context) (Reason, error) {
	select {
	case <-o.done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	switch o.reason {
	case transfer.Read:
		return o.reason, nil
	case transfer.Expired:
		return o.reason, blame.On(blame.Peer, fmt.Errorf("agent: offer %q: no reader finished or kept the lease of %v alive: %w", o.req.name, o.ttl, transfer.ErrExpired))
	case transfer.Canceled:
		return o.reason, blame.On(blame.Local, fmt.Errorf("agent: offer %q: %w", o.req.name, transfer.ErrCanceled))
	case transfer.Shut:
		return o.reason, blame.On(blame.Local, fmt.Errorf("agent: offer %q: %w", o.req.name, transfer.ErrShut))
	}
	return o.reason, &Incomplete{o.req.name}
}

// Incomplete is an offer whose readers finished, one of them without having
// read everything that it came for.
type Incomplete struct{ Request string }

func (e *Incomplete) Error() string {
	return fmt.Sprintf("agent: offer %q: a reader gave up", e.Request)
}

// Blame is the peer.
func (e *Incomplete) Blame() blame.Party { return blame.Peer }

// Cancel ends the offer; Wait tells when the blocks are free.
func (o *Offered) Cancel() { o.post(offerEvent{ev: transfer.End{Reason: transfer.Canceled}}) }

func (o *Offered) post(e offerEvent) bool { return o.box.post(e) }

func (o *Offered) landed(transfer.Key, []transfer.Box) {} // a reader has nothing to land
func (o *Offered) finished(k transfer.Key, err error) {
	o.post(offerEvent{ev: transfer.ReadDone{Key: k, Err: err}})
}
func (o *Offered) lost(k transfer.Key, err error) {
	o.post(offerEvent{ev: transfer.ReaderGone{Key: k}})
}
func (o *Offered) beaten() { o.post(offerEvent{ev: transfer.Beaten{}}) }

// openRead takes an Open from a link's reading goroutine; false: the offer is
// over.
func (o *Offered) openRead(s *serving, m *transfer.Open, who string, total int) bool {
	s.holder, s.key = o, transfer.Key(o.keys.Add(1))
	if !s.link.serve(s) {
		return true // nobody is left to be told
	}
	if !o.post(offerEvent{s: s, ev: transfer.OpenRead{Key: s.key, Consumer: who, Ranks: m.Ranks, Total: total, From: m.From, To: m.To, Layers: plan.Range{From: m.Layers[0], To: m.Layers[1]}, More: m.More}}) {
		s.link.unserve(s.x)
		return false
	}
	return true
}

func (o *Offered) run() {
	clock := o.engine.agent.clock
	tick := func() { o.post(offerEvent{ev: transfer.Tick{}}) }
	o.alarm.set(clock, o.machine.Wake(), tick)
	for {
		for _, e := range o.box.take() {
			out := o.machine.Step(clock.Now(), e.ev)
			if e.reply != nil {
				e.reply <- out.Err
			}
			if e.s != nil {
				o.answer(e, out)
			}
			for _, m := range out.Marks {
				o.mark(m)
			}
			for _, s := range out.Stop {
				o.stop(s)
			}
			if st, ok := e.ev.(transfer.Stopped); ok {
				if s := o.serving[st.Key]; s != nil {
					s.link.unserve(s.x)
					delete(o.serving, st.Key)
				}
			}
			o.alarm.set(clock, out.Wake, tick)
			if out.Free {
				o.reason = out.Reason
			}
		}
		if o.reason != "" {
			o.free()
			return
		}
	}
}

// answer grants or refuses an OpenRead.
func (o *Offered) answer(e offerEvent, out transfer.OfferReady) {
	s, ev := e.s, e.ev.(transfer.OpenRead)
	err := out.Err
	var granted *transfer.Granted
	if err == nil {
		o.serving[s.key] = s
		granted, err = o.engine.grant(s, o.req, ev.From, ev.To, transport.Read, o.limit)
		if err == nil {
			s.burden = s.link.begin(s.plan, ev.To-ev.From, s.layers)
		} else {
			o.post(offerEvent{ev: transfer.ReaderGone{Key: s.key}}) // the machine believes it reads
		}
	}
	if err != nil {
		s.link.unserve(s.x)
		s.link.send(&transfer.Refused{X: s.x, Failure: transfer.Failed(err)})
		return
	}
	granted.TTL, granted.SideData = o.ttl.Milliseconds(), o.side
	ready := out.Ready
	var rest []Box
	if len(ready) > transfer.MaxBoxes {
		ready, rest = ready[:transfer.MaxBoxes], ready[transfer.MaxBoxes:]
	}
	granted.Ready = s.link.outward(ready)
	s.link.send(granted)
	if len(rest) > 0 {
		o.mark(transfer.Marked{Key: s.key, Boxes: rest})
	}
	select {
	case <-s.link.done: // it may have died before it knew of s
		o.post(offerEvent{ev: transfer.ReaderGone{Key: s.key}})
	default:
	}
}

func (o *Offered) mark(m transfer.Marked) {
	s := o.serving[m.Key]
	if s == nil {
		return
	}
	boxes := s.link.outward(m.Boxes)
	for at := 0; at < len(boxes); at += transfer.MaxBoxes {
		s.link.send(&transfer.Mark{X: s.x, Boxes: boxes[at:min(at+transfer.MaxBoxes, len(boxes))]})
	}
}

// stop takes a reader's grant away. Revoke is enough for a read: whoever
// reads our memory itself checks the generations that we bump.
func (o *Offered) stop(st transfer.Stop) {
	s := o.serving[st.Key]
	if s == nil {
		o.post(offerEvent{ev: transfer.Stopped{Key: st.Key}})
		return
	}
	o.engine.agent.wg.Go(func() {
		if st.Tell != nil {
			s.link.send(&transfer.Ended{X: s.x, Failure: transfer.Failed(blame.On(blame.Local, st.Tell))})
		}
		s.link.quiet(s)
		s.burden.end(st.Tell == nil)
		s.hashes.shut()
		if st.Tell == nil {
			s.link.send(&transfer.Closed{X: s.x})
		}
		o.post(offerEvent{ev: transfer.Stopped{Key: st.Key}})
	})
}

// free gives the blocks back. Nothing of the offer runs any more.
func (o *Offered) free() {
	e := o.engine
	o.alarm.set(e.agent.clock, time.Time{}, nil)
	e.blocks.give(o.req.blocks, false, e.bump)
	e.mu.Lock()
	delete(e.offers, o.id)
	delete(e.requests, "offer "+o.req.name)
	e.mu.Unlock()
	rest := o.box.close()
	close(o.done)
	for _, ev := range rest {
		if ev.reply != nil {
			ev.reply <- o.over()
		}
		if ev.s != nil {
			ev.s.link.unserve(ev.s.x)
			ev.s.link.send(&transfer.Refused{X: ev.s.x, Failure: transfer.Failed(&transfer.TicketError{Err: transfer.ErrUnknown, Field: "offer", Have: "given back", Want: "an open one"})})
		}
	}
	e.agent.log.Info().Str("engine", e.owner.Engine).Str("request", o.req.name).Str("reason", string(o.reason)).Msg("offer freed")
}

// grant makes a provider's grant for one transfer of the peer.
func (e *Engine) grant(s *serving, req request, from, to int64, d transport.Direction, limit time.Time) (*transfer.Granted, error) {
	gens, err := e.generations(req.tables)
	if err != nil {
		return nil, err
	}
	l := s.link
	r := l.ours(s.plan, &req, from, to, s.scope.spans)
	gens = byPair(l, gens)
	tables, first := r.Source, r.SourceFirst
	if d == transport.Write {
		tables, first = r.Destination, r.DestinationFirst
	}
	out := &transfer.Granted{X: s.x, Grant: transfer.Grant(s.grant), Request: req.name, End: req.to, First: first}
	show := len(s.plan.edges) == 0 // nothing can be moved: the providers have nothing to permit
	var errs []error
	for _, lane := range s.wanted {
		err := lane.prepare(s.plan, l.role)
		if err == nil {
			err = lane.provider.Grant(transport.Grant{ID: s.grant, Peer: lane.peer, Direction: d, Request: r, Deadline: e.agent.wall(limit), Generations: gens})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("grant with provider %s: %w", lane.name(), err))
			continue
		}
		s.lanes, out.Providers = append(s.lanes, lane), append(out.Providers, lane.name())
		show = show || lane.provider.Capabilities().OneSided
	}
	if len(s.lanes) == 0 && len(s.plan.edges) > 0 {
		return nil, blame.On(blame.Provider, fmt.Errorf("%w: %w", transfer.ErrProvider, errors.Join(errs...)))
	}
	for _, err := range errs {
		e.agent.log.Warn().Err(err).Msg("a provider cannot be used for a transfer")
	}
	if show {
		out.Tables, out.Generations = transfer.AppendTables(nil, tables), transfer.AppendGenerations(nil, gens)
	}
	return out, nil
}

// wall turns a time of the agent's clock into one of the machine's, which
// providers use.
func (a *Agent) wall(t time.Time) time.Time { return time.Now().Add(t.Sub(a.clock.Now())) }

var _ holder = (*Offered)(nil)
