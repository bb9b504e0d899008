package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
)

// asker asks the policy about a peer: all links of it share the answer, so that
// its agents hold the same plans, however busy anything is by the time that the
// next one connects. Safe for concurrent use.
type asker struct {
	e     *Engine
	users int           // handshakes and the peer; under Engine.mu
	turn  chan struct{} // a slot, held while the policy is asked

	pair   geometry.Digest // that was answered; held by whoever has the turn
	answer *session.Answered
	judged bool // the policy was told what became of the answer
}

func newAsker(e *Engine) *asker { return &asker{e: e, turn: make(chan struct{}, 1)} }

// asking is the peer of an incoming hello, empty where there is none yet, and
// who asks the policy about it. done is to be called when the handshake is over.
func (e *Engine) asking(h *session.Hello) (p *Peer, ask *asker, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := keyOf(h)
	if p = e.inbound[k]; p == nil {
		p = newPeer(e, h.Role.Other(), false)
	}
	if ask = e.askers[k]; ask == nil {
		ask = newAsker(e)
		e.askers[k] = ask
	}
	ask.users++
	return p, ask, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		ask.users--
		e.unask(k)
	}
}

// unask forgets what was asked about a peer that is gone.
// Preconditions: e.mu is held.
func (e *Engine) unask(k inboundKey) {
	if a := e.askers[k]; a != nil && a.users == 0 && e.inbound[k] == nil {
		delete(e.askers, k)
	}
}

// ask returns the policy's answer about a pair. links are those of the peer that
// there are, the one that asks included.
func (a *asker) ask(ctx context.Context, pair *plan.Pair, links []*link) (session.Event, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, blame.On(blame.Local, fmt.Errorf("agent: wait for the policy's answer: %w", context.Cause(ctx)))
	}
	if d := pair.Digest(); a.answer == nil || a.pair != d {
		got, err := a.e.remap(ctx, pair, session.Destination, links, a.e.before(d))
		if err != nil {
			return nil, err
		}
		a.set(pair, got)
	}
	return *a.answer, nil
}

// set enters an answer.
// Preconditions: the caller has the turn.
func (a *asker) set(pair *plan.Pair, got *session.Answered) {
	a.pair, a.answer, a.judged = pair.Digest(), got, false
}

// remap asks the policy about a pair.
func (e *Engine) remap(ctx context.Context, pair *plan.Pair, role session.Role, links []*link, previous [][]plan.Assignment) (*session.Answered, error) {
	p := e.agent.cfg.Policy
	if p == nil {
		return nil, blame.On(blame.Operator, session.With(session.CodePolicy, errors.New("agent: a destination needs a policy, and none is configured")))
	}
	got, err := p.RemapFor(ctx, e.remapQuestion(pair, role, links, previous))
	switch {
	case err != nil && isQuestion(err): // we asked what cannot be asked
		return nil, blame.On(blame.Local, session.With(session.CodePolicy, fmt.Errorf("agent: policy %q remap: %w", p.Name(), err)))
	case err != nil:
		return nil, blame.On(blame.Policy, session.With(session.CodePolicy, fmt.Errorf("agent: policy %q remap: %w", p.Name(), err)))
	case len(got.Alternatives) == 0:
		return nil, blame.On(blame.Policy, session.With(session.CodePolicy, fmt.Errorf("agent: policy %q answered remap with no alternative", p.Name())))
	}
	return &session.Answered{Alternatives: got.Alternatives, Reason: got.Reason}, nil
}

// maxBefore bounds the pairs whose last answer is kept.
const maxBefore = 64

// before is what was answered about a pair before.
func (e *Engine) before(pair geometry.Digest) [][]plan.Assignment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.previous[pair]
}

// remember keeps the alternatives of a pair that were proved.
func (e *Engine) remember(pair geometry.Digest, proved []session.Alternative) {
	var as [][]plan.Assignment
	for _, a := range proved {
		as = append(as, a.Assignments)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.previous) >= maxBefore {
		clear(e.previous) // they are answered without a previous one
	}
	e.previous[pair] = as
}

// judge tells the policy, once, what became of its answer about a peer.
func (a *asker) judge(r session.Result, err error) {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	if a.answer == nil || a.judged || r.Pair == nil {
		return
	}
	if err == nil {
		a.judged = true
		a.e.judge(r.Pair, r.Alternatives, r.Unproved)
		return
	}
	var answer *session.Answer // no alternative was proved
	if errors.As(err, &answer) {
		a.judged = true
		a.e.judge(r.Pair, nil, r.Unproved)
	}
}

// judge tells the policy what became of an answer of its own, and counts it.
func (e *Engine) judge(pair *plan.Pair, proved []session.Alternative, not []session.Unproved) {
	if len(proved) > 0 {
		e.remember(pair.Digest(), proved)
	}
	e.agent.count(func(c *Counts) {
		if len(proved) > 0 {
			c.Remaps++
		}
		c.Unproved += int64(len(not))
	})
	j, ok := e.agent.cfg.Policy.(interface{ Judge(*plan.Pair, error) })
	for _, u := range not {
		e.agent.log.Warn().Err(u).Str("blame", string(u.By)).Str("policy", e.agent.cfg.Policy.Name()).Msg("an alternative of the policy is not proved")
		if ok {
			j.Judge(pair, u)
		}
	}
	if ok && len(not) == 0 {
		j.Judge(pair, nil)
	}
}

// unproved are the errors of alternatives.
func unproved(list []session.Unproved) []error {
	var out []error
	for _, u := range list {
		out = append(out, u)
	}
	return out
}
