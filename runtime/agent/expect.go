package agent

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// Expected is an open expectation. Safe for concurrent use.
type Expected struct {
	engine *Engine
	id     transfer.ID
	ticket Ticket
	req    request
	ttl    time.Duration
	limit  time.Time
	begun  time.Time
	keys   atomic.Uint64

	machine *transfer.Expect // the goroutine's, like what follows
	serving map[transfer.Key]*serving
	fences  map[transfer.Key]context.CancelFunc
	waiters []waiter
	alarm   alarm
	freed   bool

	box    *mailbox[expectEvent]
	final  chan struct{} // closed with result and err
	done   chan struct{} // closed when the blocks are free
	result Result
	err    error
	shut   bool // freed by closing the engine, not by the peer's stopping
}

type expectEvent struct {
	ev   transfer.ExpectEvent
	s    *serving
	wait *waiter
}

// waiter waits for a box; ch has room for its one answer.
type waiter struct {
	box Box
	ch  chan error
}

// Expect opens blocks for writing and returns at once; the producer need not
// exist yet.
func (e *Engine) Expect(ctx context.Context, x Expect) (*Expected, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req, err := e.check(x.Request, x.Tables, x.From, x.Tokens, true)
	if err != nil {
		return nil, err
	}
	id, ticket, err := e.identify(transfer.ToWrite, x.Ticket, x.TTL, x.Trace)
	if err != nil {
		return nil, err
	}
	now := e.agent.clock.Now()
	limit := now.Add(e.agent.times.Lifetime)
	out := &Expected{engine: e, id: id, ticket: ticket, req: req, ttl: x.TTL, limit: limit, begun: now,
		serving: map[transfer.Key]*serving{}, fences: map[transfer.Key]context.CancelFunc{}, box: newMailbox[expectEvent](),
		final: make(chan struct{}), done: make(chan struct{}),
		machine: transfer.NewExpect(transfer.ExpectSpec{Shape: e.shape, From: x.From, To: x.Tokens, Lease: x.TTL, Limit: limit}, now)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.expects[id] != nil {
		return nil, blame.On(blame.Local, fmt.Errorf("agent: request %q: this agent joined the expectation already", x.Request))
	}
	if err := e.reserve("expectation", x.Request, req.blocks, true); err != nil {
		return nil, err
	}
	e.expects[id] = out
	e.wg.Go(out.run)
	return out, nil
}

// Ticket permits to write to the expectation.
func (x *Expected) Ticket() Ticket { return x.ticket }

// Wait returns the final state: nil when every byte of every producer rank is
// in place. After an error the blocks are quarantined until Free returns; the
// result says what of them is valid.
func (x *Expected) Wait(ctx context.Context) (Result, error) {
	select {
	case <-x.final:
		return x.result, x.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// Landed waits until the box is in place; it fails when the expectation does
// first.
func (x *Expected) Landed(ctx context.Context, b Box) error {
	if err := x.engine.shape.Check(b, x.req.from, x.req.to); err != nil {
		return blame.On(blame.Local, err)
	}
	w := waiter{b, make(chan error, 1)}
	if !x.box.post(expectEvent{wait: &w}) {
		<-x.final
		return x.err
	}
	select {
	case err := <-w.ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Free returns when the blocks may be reused: after Wait's success at once,
// after a failure when no handle of the peer can touch them any more. It is
// transfer.ErrShut where the engine was closed first: then the memory is free
// when Engine.Close returns.
func (x *Expected) Free(ctx context.Context) error {
	select {
	case <-x.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if x.shut {
		return blame.On(blame.Local, fmt.Errorf("agent: expectation %q: %w", x.req.name, transfer.ErrShut))
	}
	return nil
}

// Cancel aborts the expectation.
func (x *Expected) Cancel() { x.post(expectEvent{ev: transfer.End{Reason: transfer.Canceled}}) }

func (x *Expected) post(e expectEvent) bool { return x.box.post(e) }

func (x *Expected) landed(k transfer.Key, boxes []transfer.Box) {
	x.post(expectEvent{ev: transfer.Arrived{Key: k, Boxes: boxes}})
}
func (x *Expected) finished(k transfer.Key, err error) {
	x.post(expectEvent{ev: transfer.WriteDone{Key: k, Err: err}})
}
func (x *Expected) lost(k transfer.Key, err error) {
	x.post(expectEvent{ev: transfer.WriterGone{Key: k, Err: err}})
}
func (x *Expected) beaten() { x.post(expectEvent{ev: transfer.Beaten{}}) }

func (x *Expected) openWrite(s *serving, m *transfer.Open, who string, total int) bool {
	s.holder, s.key, s.side = x, transfer.Key(x.keys.Add(1)), m.SideData
	s.level = stricter(m.Integrity, x.engine.agent.cfg.Integrity)
	if !s.link.serve(s) {
		return true
	}
	if !x.post(expectEvent{s: s, ev: transfer.OpenWrite{Key: s.key, Plan: m.Plan, Producer: who, Ranks: m.Ranks, Total: total, From: m.From, To: m.To, Layers: plan.Range{From: m.Layers[0], To: m.Layers[1]}, Void: s.scope.void, Verify: s.level != transfer.Off, SideData: m.SideData}}) {
		s.link.unserve(s.x)
		return false
	}
	return true
}

func (x *Expected) run() {
	clock := x.engine.agent.clock
	tick := func() { x.post(expectEvent{ev: transfer.Tick{}}) }
	x.alarm.set(clock, x.machine.Wake(), tick)
	for !x.freed {
		for _, e := range x.box.take() {
			if e.wait != nil {
				x.wait(*e.wait)
				continue
			}
			out := x.machine.Step(clock.Now(), e.ev)
			if e.s != nil {
				x.answer(e, out)
			}
			for _, k := range out.Verify {
				x.verify(k)
			}
			for _, s := range out.Stop {
				x.stop(s)
			}
			if st, ok := e.ev.(transfer.Stopped); ok {
				if s := x.serving[st.Key]; s != nil {
					s.link.unserve(s.x)
					delete(x.serving, st.Key)
				}
			}
			if out.Final {
				x.conclude(out.Failure)
			}
			if out.Progress || out.Final {
				rest := x.waiters
				x.waiters = nil
				for _, w := range rest {
					x.wait(w)
				}
			}
			x.alarm.set(clock, out.Wake, tick)
			x.freed = x.freed || out.Free
		}
	}
	x.free()
}

func (x *Expected) wait(w waiter) {
	if err := absent(x.engine, w.box, x.result.Absent); err != nil {
		w.ch <- err
		return
	}
	select {
	case <-x.final:
		if x.err == nil || x.machine.Has(w.box) {
			w.ch <- nil
		} else {
			w.ch <- x.err
		}
		return
	default:
	}
	if x.machine.Has(w.box) {
		w.ch <- nil
		return
	}
	x.waiters = append(x.waiters, w)
}

func (x *Expected) answer(e expectEvent, out transfer.ExpectReady) {
	s, ev := e.s, e.ev.(transfer.OpenWrite)
	err := out.Err
	var granted *transfer.Granted
	if err == nil {
		x.serving[s.key] = s
		x.result.Absent = s.scope.absent
		x.result.Integrity = s.level
		x.result.OutOfWindow = append(x.result.OutOfWindow, s.scope.window...)
		granted, err = x.engine.grant(s, x.req, ev.From, ev.To, transport.Write, x.limit)
		if err == nil {
			s.burden = s.link.begin(s.plan, ev.To-ev.From, s.layers)
			x.result.Route = Route{Alternative: s.plan.Index, Proved: len(s.link.current().alternatives), Plan: s.plan.digest.String(), Transports: granted.Providers, Reason: "the source decided"}
		} else {
			// The producer's ranks cannot be written under this ticket any
			// more: the expectation cannot complete.
			x.post(expectEvent{ev: transfer.WriteDone{Key: s.key, Err: err}})
		}
	}
	if err != nil {
		s.link.unserve(s.x)
		s.link.send(&transfer.Refused{X: s.x, Failure: transfer.Failed(err)})
		return
	}
	granted.TTL = x.ttl.Milliseconds()
	s.link.send(granted)
	select {
	case <-s.link.done:
		x.post(expectEvent{ev: transfer.WriterGone{Key: s.key, Err: s.link.err}})
	default:
	}
}

// stop takes a writer's grant away and answers Stopped when nothing of it can
// write any more. A writer that did not say that it finished is waited for;
// one that stays silent or whose connection is lost is fenced.
func (x *Expected) stop(st transfer.Stop) {
	if cancel := x.fences[st.Key]; cancel != nil {
		cancel() // the second Stop of a key: its Done came
		return
	}
	s := x.serving[st.Key]
	if s == nil {
		x.post(expectEvent{ev: transfer.Stopped{Key: st.Key}})
		return
	}
	ctx, cancel := context.WithCancel(x.engine.ctx)
	x.fences[st.Key] = cancel
	failure := x.err
	if st.Failure != nil {
		failure = st.Failure
	}
	x.engine.agent.wg.Go(func() {
		defer cancel()
		if st.Tell != nil {
			s.link.send(&transfer.Ended{X: s.x, Failure: transfer.Failed(st.Tell)})
		}
		s.link.quiet(s)
		s.burden.end(st.Tell == nil && failure == nil)
		if st.Fence {
			s.link.fence(ctx)
		}
		if st.Tell == nil {
			s.link.send(&transfer.Closed{X: s.x, Failure: transfer.Failed(failure)})
		}
		x.post(expectEvent{ev: transfer.Stopped{Key: st.Key}})
	})
}

func (x *Expected) conclude(err error) {
	e := x.engine
	x.result = Result{Request: x.req.name, Elapsed: e.agent.clock.Now().Sub(x.begun), SideData: x.machine.SideData(), Ranks: append([]int(nil), e.desc.Held...),
		Valid: x.machine.Valid(), Integrity: x.result.Integrity, Absent: x.result.Absent, OutOfWindow: x.result.OutOfWindow, Route: x.result.Route}
	x.result.ValidBlocks = e.validBlocks(x.req, x.result.Valid)
	if err != nil {
		x.err = fmt.Errorf("agent: expectation %q: %w", x.req.name, err)
	}
	close(x.final)
}

func (x *Expected) free() {
	e := x.engine
	x.alarm.set(e.agent.clock, time.Time{}, nil)
	e.blocks.give(x.req.blocks, true, e.bump)
	e.mu.Lock()
	delete(e.expects, x.id)
	delete(e.requests, "expectation "+x.req.name)
	x.shut = e.closed && x.err != nil
	e.mu.Unlock()
	rest := x.box.close()
	close(x.done)
	for _, w := range x.waiters {
		w.ch <- x.err
	}
	for _, ev := range rest {
		if ev.wait != nil {
			x.wait(*ev.wait)
		}
		if ev.s != nil {
			ev.s.link.unserve(ev.s.x)
			ev.s.link.send(&transfer.Refused{X: ev.s.x, Failure: transfer.Failed(&transfer.TicketError{Err: transfer.ErrUnknown, Field: "expectation", Have: "given back", Want: "an open one"})})
		}
	}
	e.agent.log.Info().Str("engine", e.owner.Engine).Str("request", x.req.name).Err(x.err).Msg("expectation freed")
}

// absent is the error of waiting for a box of a group that the source has not.
func absent(e *Engine, b Box, groups []string) error {
	if len(groups) > 0 && b.Group < len(e.desc.Side.Model.Groups) && slices.Contains(groups, e.desc.Side.Model.Groups[b.Group].Name) {
		return blame.On(blame.Peer, fmt.Errorf("agent: wait for %s: %w", b, transfer.ErrAbsent))
	}
	return nil
}

// validBlocks turns valid boxes into places of the request's tables.
func (e *Engine) validBlocks(r request, valid []Box) [][]int {
	s := &e.desc.Side
	out := make([][]int, len(r.tables))
	for g, t := range r.tables {
		if s.Model.Groups[g].State {
			if transfer.Holds(e.shape, valid, g, r.to-1, r.to) { // a state counts as the last token
				out[g] = []int{0}
			}
			continue
		}
		spec := s.ShardOf(g)
		out[g] = transfer.ValidBlocks(e.shape, valid, g, int(r.first[g]), len(t), int64(s.Groups[g].Block), int64(spec.DCPSize), int64(spec.Interleave), r.from, r.to)
		for i, entry := range out[g] {
			if ring := s.Groups[g].Ring; ring > 0 {
				out[g][i] = entry % ring
			} else {
				out[g][i] = entry - int(r.first[g])
			}
		}
	}
	return out
}

var _ holder = (*Expected)(nil)
