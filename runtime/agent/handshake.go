package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

func (e *Engine) hello(role session.Role, want string) *session.Hello {
	a := e.agent
	h := &session.Hello{
		Versions: session.Versions{Protocol: session.Protocol, ABI: session.ABI, Plan: session.PlanVersion},
		Role:     role, Agent: a.cfg.Name, Group: a.cfg.Group, Want: want, Engine: e.desc, Site: e.told(),
		Policy: e.policy(),
	}
	for _, p := range a.cfg.Providers {
		h.Providers = append(h.Providers, session.Provider{Name: p.Name(), Data: p.Address().Data})
	}
	return h
}

// shake drives one handshake to its end. first is the dialler's hello where
// it has been read already. The connection's deadline is set by the caller.
func (e *Engine) shake(ctx context.Context, c *conn, local, first *session.Hello, ask *asker, p *Peer) (_ *link, err error) {
	a := e.agent
	m := session.NewMachine(local, first == nil, a.cfg.Budget)
	l := &link{agent: a, engine: e, conn: c, role: local.Role}
	defer func() {
		if err != nil {
			l.abandonLanes()
		}
	}()
	ready := m.Step(session.Start{})
	for {
		for _, msg := range ready.Send {
			frame, err := session.Encode(msg)
			if err == nil {
				err = c.send(frame)
			}
			if err != nil && ready.Err == nil {
				if said, ok := a.parting(c, err); ok {
					ready = m.Step(session.Received{Message: said})
					break
				}
				ready = m.Step(session.Failed{Err: fmt.Errorf("%w: send %s: %w", transfer.ErrGone, msg.Type(), broken(err)), Gone: true})
				break
			}
		}
		if ready.Err != nil {
			ask.judge(m.Result(), ready.Err)
			return nil, ready.Err
		}
		if ready.Open {
			l.result = m.Result()
			ask.judge(l.result, nil)
			return l, nil
		}
		var ev session.Event
		var failed error
		switch do := ready.Do; {
		case do.Connect != nil:
			made, err := l.connect(ctx, do.Connect)
			ev, failed = session.Connected{Connections: made}, err
		case do.Accept != nil:
			known, err := l.accept(do.Accept)
			ev, failed = session.Accepted{Providers: known}, err
		case do.Remap != nil:
			l.result = m.Result() // what is known of the peer by now
			l.greeted()
			ev, failed = ask.ask(ctx, do.Remap, append(p.whole(), l))
		case do.Prepare:
			l.result = m.Result()
			if failed = l.ready(l.agree(l.result.Alternatives[0]), l.result.Providers); failed == nil {
				ev = session.Prepared{}
			}
		case first != nil:
			ev, first = session.Received{Message: first}, nil
		default:
			msg, err := a.readHandshake(c)
			switch {
			case err == nil:
				ev = session.Received{Message: msg}
			case isProtocol(err):
				failed = err
			default:
				if ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", transfer.ErrTimeout, context.Cause(ctx))
				} else {
					err = fmt.Errorf("%w: %w", transfer.ErrGone, broken(err))
				}
				ready = m.Step(session.Failed{Err: blame.On(blame.Peer, err), Gone: true})
				continue
			}
		}
		if failed != nil {
			ev = session.Failed{Err: failed}
		}
		ready = m.Step(ev)
	}
}

// parting is what a peer said before it closed the connection that a message
// could no longer be sent on: a refusal says more than a broken pipe.
func (a *Agent) parting(c *conn, err error) (*session.Refuse, bool) {
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return nil, false
	}
	msg, err := a.readHandshake(c)
	if err != nil {
		return nil, false
	}
	r, ok := msg.(*session.Refuse)
	return r, ok
}

func (a *Agent) readHandshake(c *conn) (session.Message, error) {
	t, payload, err := c.read(0)
	if err != nil {
		return nil, err
	}
	return session.Decode(t, payload)
}

// isProtocol reports whether a read failed for what the peer said, not for
// want of a peer.
func isProtocol(err error) bool {
	var f *session.FrameError
	var v *session.VersionError
	return errors.As(err, &f) || errors.As(err, &v)
}

// bound gives the connection the handshake's deadline and ctx's end.
func (a *Agent) bound(ctx context.Context, c *conn) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.times.Handshake, fmt.Errorf("the handshake took longer than %v", a.times.Handshake))
	_ = c.raw.SetDeadline(time.Now().Add(a.times.Handshake + time.Second)) // ctx's end comes first and has a cause
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetReadDeadline(time.Unix(1, 0)) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// welcome serves one incoming connection from its first byte to its end.
func (a *Agent) welcome(c *conn) {
	l, err := a.receive(c)
	<-a.tokens
	if err != nil {
		a.log.Warn().Err(err).Str("blame", string(blame.Of(err))).Msg("incoming handshake failed")
		a.untrack(c)
		return
	}
	l.run()
}

func (a *Agent) receive(c *conn) (*link, error) {
	ctx, done := a.bound(a.ctx, c)
	defer done()
	if err := c.protect(a.cfg.Wrap, false); err != nil {
		return nil, broken(err)
	}
	msg, err := a.readHandshake(c)
	if err != nil {
		if isProtocol(err) {
			a.refuse(c, err)
		}
		return nil, err
	}
	first, ok := msg.(*session.Hello)
	if !ok {
		err := &session.Turn{State: "waiting for hello", Got: msg.Type()}
		a.refuse(c, err)
		return nil, err
	}
	e, err := a.engine(first.Want)
	if err == nil {
		err = e.admit(first)
	}
	if err != nil {
		a.refuse(c, err)
		return nil, err
	}
	p, ask, done := e.asking(first)
	defer done()
	l, err := e.shake(ctx, c, e.hello(first.Role.Other(), ""), first, ask, p)
	if err != nil {
		return nil, err
	}
	if err := e.join(l, ask); err != nil {
		l.abandonLanes()
		return nil, err
	}
	return l, nil
}

// admit checks an incoming hello against the other agents of the same engine.
func (e *Engine) admit(h *session.Hello) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return session.With(session.CodeClosed, ErrClosed)
	}
	n := 0
	for p := range e.peers {
		if p.engine == h.Engine.Side.Engine {
			n += p.count()
		}
	}
	if n >= maxLinks {
		return blame.On(blame.Peer, session.With(session.CodeBusy, fmt.Errorf("agent: engine %q has %d connections already", h.Engine.Side.Engine, n)))
	}
	if p := e.inbound[keyOf(h)]; p != nil {
		return p.claims(h)
	}
	return nil
}

func keyOf(h *session.Hello) inboundKey {
	return inboundKey{h.Engine.Side.Engine, h.Engine.Incarnation, h.Role}
}

// join adds an incoming link to its peer.
func (e *Engine) join(l *link, ask *asker) error {
	h := l.result.Peer
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	p, err := e.inbound[keyOf(h)], error(ErrClosed)
	if p != nil {
		err = p.add(l)
	}
	if errors.Is(err, ErrClosed) { // none yet, or its last link has just died
		p = newPeer(e, l.role, false)
		p.asker = ask
		if err = p.add(l); err == nil {
			e.inbound[keyOf(h)] = p
			e.peers[p] = struct{}{}
		}
	}
	if err != nil {
		return err
	}
	close(e.arrived)
	e.arrived = make(chan struct{})
	if p.role == session.Destination { // it is the destination that probes, whoever dialled
		e.wg.Go(func() { _ = p.settle(e.ctx) }) // Peer tells the error
	}
	return nil
}
