package tcp

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// transfer is one operation with a peer, submitted here or there.
type transfer struct {
	job   *direct.Job
	mine  bool // submitted here
	sends bool // its bytes leave from here
	parts []*part
	bytes int64

	left     atomic.Int32 // parts with bytes to send or to receive
	segments atomic.Int64

	// Guarded by peer.mu.
	op       uint64 // 0 until the peer was asked
	finished bool
	ended    bool // mine: the peer is done with it
	went     bool // a write of mine: its bytes may go
	applied  bool // a read of mine: all bytes are in place
}

func newTransfer(p *direct.Plan, j *direct.Job, streams int) (*transfer, error) {
	t := &transfer{job: j}
	var err error
	if t.parts, t.bytes, err = divide(p, &j.Request, j.Edges, streams); err != nil {
		return nil, err
	}
	for _, q := range t.parts {
		q.transfer = t
	}
	t.left.Store(int32(len(t.parts)))
	return t, nil
}

// complete ends the transfer as done.
func (t *transfer) complete() {
	t.job.Complete(direct.Result{Bytes: t.bytes, Segments: t.segments.Load()})
}

// submit starts an operation of this side.
func (e *peer) submit(op *transport.Operation) (transport.OpID, error) {
	core := e.provider.Core
	pl, err := core.Plan(e.id, op.Request.Plan)
	if err != nil {
		return 0, err
	}
	// The peer knows its own tables; whatever the caller thinks of them is not
	// used.
	if pl.Local == transport.Source {
		op.Request.Destination, op.Request.DestinationFirst = nil, nil
	} else {
		op.Request.Source, op.Request.SourceFirst = nil, nil
	}
	op.PeerGenerations = nil
	local, err := direct.Local(pl, op, core)
	if err != nil {
		return 0, err
	}
	t, err := newTransfer(pl, local.Job(direct.Held{}, nil), len(e.data))
	if err != nil {
		return 0, err
	}
	t.mine, t.sends = true, op.Direction == transport.Write
	t.job.Finish = func(r direct.Result) { e.finished(t, r) }
	id, err := core.Submit(t.job, append(direct.Gates(local.Memories), &e.Gate)...)
	if err != nil {
		return 0, err
	}
	a := &ask{grant: op.Grant, direction: op.Direction, request: op.Request, remaining: int64(time.Until(op.Deadline)), bytes: t.bytes}
	e.ask(t, a)
	return id, nil
}

// ask gives a transfer its number and asks the peer for it, unless it was
// stopped meanwhile.
func (e *peer) ask(t *transfer, a *ask) {
	body := a.encode()
	e.mu.Lock()
	if t.finished || e.err != nil {
		e.mu.Unlock()
		return
	}
	e.last++
	t.op = e.last
	e.mine[t.op] = t
	h := header{kind: kindAsk, mine: true, op: t.op}
	ok := e.control.send(h.frame(body)) // under mu: numbers ascend on the wire
	e.mu.Unlock()
	if !ok {
		e.send(h, body) // which gives the peer up
	}
}

// finished is the end of a transfer of this side; its completion has been
// reported.
func (e *peer) finished(t *transfer, r direct.Result) {
	e.mu.Lock()
	t.finished = true
	delete(e.mine, t.op)
	tell := t.op != 0 && !t.ended && r.Err != nil
	e.mu.Unlock()
	if tell {
		e.send(header{kind: kindStop, mine: true, op: t.op}, (&report{err: r.Err}).encode(kindStop))
	}
}

// onAsk serves an operation of the peer. What is wrong with the operation is
// the operation's end, not the connection's.
func (e *peer) onAsk(h *header, body []byte) error {
	a, err := decodeAsk(body)
	if err != nil {
		return err
	}
	e.mu.Lock()
	if h.op <= e.asked {
		last := e.asked
		e.mu.Unlock()
		return h.bad("op", h.op, "more than %d, the one before", last)
	}
	e.asked = h.op
	busy := len(e.served) >= maxServed
	e.mu.Unlock()
	if busy {
		err = fmt.Errorf("transport/tcp: %d operations are under way already", maxServed)
	} else {
		err = e.serve(h.op, a)
	}
	if err != nil {
		e.end(h.op, direct.Result{Err: err})
	}
	return nil
}

// end reports the end of an operation of the peer to it.
func (e *peer) end(op uint64, r direct.Result) {
	e.send(header{kind: kindEnd, op: op}, (&report{err: r.Err, bytes: r.Bytes, segments: r.Segments}).encode(kindEnd))
}

// serve admits an operation of the peer and starts this side's part of it. An
// error is the caller's to report.
func (e *peer) serve(op uint64, a *ask) error {
	core := e.provider.Core
	granted, err := core.Admit(&direct.Ask{Peer: e.id, Grant: a.grant, Direction: a.direction, Request: a.request})
	if err != nil {
		return err
	}
	p := granted.Plan
	side := p.Engine(p.Local)
	j := &direct.Job{Plan: p, Request: granted.Request, Edges: p.Stamper.Edges(&granted.Request)}
	ours, err := direct.Memories(j.Edges, p.Local, func(rank int) (*direct.Memory, error) { return core.Memory(side.Engine, rank) })
	if err != nil {
		return err
	}
	j.Set(direct.Of(&granted.Request, p.Local), ours, direct.Held{}, nil)
	j.Checks = direct.Checks(p.Pair, &granted.Request, p.Local, granted.Generations, ours)
	// The submitter's time counts, and the grant's where that is over sooner.
	j.Deadline = granted.Grant.Deadline
	if d := time.Now().Add(time.Duration(a.remaining)); d.Before(j.Deadline) {
		j.Deadline = d
	}
	if a.remaining <= 0 {
		return transport.ErrDeadline
	}
	t, err := newTransfer(p, j, len(e.data))
	if err != nil {
		return err
	}
	if a.bytes != t.bytes {
		return &transport.Mismatch{Field: "bytes", Asked: fmt.Sprint(a.bytes), Grants: fmt.Sprint(t.bytes)}
	}
	t.op, t.sends = op, a.direction == transport.Read
	j.Finish = func(r direct.Result) {
		e.mu.Lock()
		delete(e.served, op)
		e.mu.Unlock()
		e.end(op, r)
	}
	e.mu.Lock()
	e.served[op] = t
	e.mu.Unlock()
	if err := j.Open(core.Mover, append(direct.Gates(ours), &granted.Grant.Gate, &e.Gate)...); err != nil {
		e.mu.Lock()
		delete(e.served, op)
		e.mu.Unlock()
		return err
	}
	if err := e.checkAll(t); err != nil || len(t.parts) == 0 {
		if err == nil {
			t.complete()
		}
		return nil
	}
	if t.sends {
		t.assign(e.data)
	} else {
		e.send(header{kind: kindGo, op: op}, nil)
	}
	return nil
}

// checkAll checks the generations of every block of a served transfer, which
// ends if one is stale or if it was stopped before.
func (e *peer) checkAll(t *transfer) error {
	if !t.job.Begin() {
		return errStopped
	}
	err := t.job.Verify()
	if !t.job.End(0, 0, err) && err == nil {
		err = errStopped
	}
	return err
}

// onGo lets the bytes of a write go.
func (e *peer) onGo(h *header) error {
	t, err := e.find(h)
	if t == nil {
		return err
	}
	e.mu.Lock()
	twice := t.went
	t.went = true
	e.mu.Unlock()
	if !t.sends || twice {
		return h.bad("op", h.op, "a write that waits for it")
	}
	t.assign(e.data)
	return nil
}

// onEnd takes the peer's end of an operation of this side.
func (e *peer) onEnd(h *header, body []byte) error {
	r, err := decodeReport(kindEnd, body)
	if err != nil {
		return err
	}
	t, err := e.find(h)
	if t == nil {
		return err
	}
	if r.err == nil && r.bytes != t.bytes {
		return h.bad("bytes", r.bytes, "%d", t.bytes)
	}
	if r.err == nil && t.sends && t.left.Load() > 0 {
		return h.bad("op", h.op, "an operation of which all bytes were sent")
	}
	e.mu.Lock()
	twice := t.ended
	t.ended = true
	applied := t.applied
	e.mu.Unlock()
	switch {
	case twice:
		return h.bad("op", h.op, "an operation that has not ended")
	case r.err != nil:
		t.job.Stop(r.err)
	case t.sends || applied || len(t.parts) == 0:
		t.complete()
	}
	return nil
}

// onStop ends an operation of the peer that it has given up.
func (e *peer) onStop(h *header, body []byte) error {
	r, err := decodeReport(kindStop, body)
	if err != nil {
		return err
	}
	t, err := e.find(h)
	if t == nil {
		return err
	}
	t.job.Stop(r.err)
	return nil
}
