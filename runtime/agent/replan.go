package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// A policy's new answer takes effect without a new connection: the destination
// asks, proves and proposes, the source proves and agrees, and transfers that
// begin afterwards go by the new plans. Those under way keep theirs, which both
// sides go on knowing by their digests.

// proposing is a proposal of ours that the source has not answered yet.
type proposing struct {
	policy       session.Policy
	reason       string
	alternatives []session.Alternative
	unproved     []session.Unproved
	done         chan error    // has room for the one outcome
	over         chan struct{} // closed: there is an outcome
}

func (o *proposing) end(err error) {
	o.done <- err
	close(o.over)
}

// Replan asks the policy about the peer again, with what is known and how busy
// everything is by now, and agrees with the peer's agents on what it answers.
// Transfers that begin after it returned nil go by the answer; those under way
// go on as they began. Where it fails everything stays as it was.
//
// An agent does this by itself when it finds that its policy's digest is not
// the one that answered: within a beat (a third of Timeouts.Idle), and when a
// transfer begins, which still goes by the plans that there are. New peers are
// asked about under the new policy at once.
//
// Errors: an engine that is the pair's source, whose peer decides; those of the
// policy; *session.Answer where no alternative is proved on both sides; the
// peer's end; of ctx. When ctx ends first, what the source answers still counts.
func (p *Peer) Replan(ctx context.Context) error {
	if p.role != session.Destination {
		return blame.On(blame.Local, errors.New("agent: replan: our engine is the pair's source: the destination's agent decides"))
	}
	select {
	case p.planning <- struct{}{}:
		defer func() { <-p.planning }()
	case <-ctx.Done():
		return fmt.Errorf("agent: replan: %w", ctx.Err())
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("agent: replan: %w", err)
	}
	links, err := p.open()
	if err != nil {
		return err
	}
	e := p.e
	own := e.policy()
	p.mu.Lock()
	p.askedOf = own.Digest // also where it fails: it would again
	p.mu.Unlock()
	pair := links[0].result.Pair
	got, err := e.remap(ctx, pair, p.role, links, e.before(pair.Digest()))
	if err != nil {
		return fmt.Errorf("agent: replan: %w", err)
	}
	proved, not := session.Prove(pair, got.Alternatives, e.agent.cfg.Budget)
	if len(proved) == 0 {
		e.judge(pair, nil, not)
		return fmt.Errorf("agent: replan: %w", session.NoneProved(own.Name, not))
	}
	var waiting []*proposing
	for _, l := range links {
		o := &proposing{policy: own, reason: got.Reason, alternatives: proved, unproved: not, done: make(chan error, 1), over: make(chan struct{})}
		waiting = append(waiting, o)
		if err := l.propose(ctx, o); err != nil {
			return fmt.Errorf("agent: replan: %w", err)
		}
	}
	for i, o := range waiting {
		select {
		case err = <-o.done:
		case <-links[i].done:
			err = blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrGone, links[i].err))
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("agent: replan: agent %q: %w", links[i].result.Peer.Agent, err)
		}
	}
	c, err := inCommon(links)
	if err != nil {
		return fmt.Errorf("agent: replan: %w", err)
	}
	p.asker.turn <- struct{}{}
	p.asker.set(pair, got)
	p.asker.judged = true
	<-p.asker.turn
	var both []session.Alternative
	for _, a := range c.plans {
		both = append(both, a[0].Alternative)
	}
	e.judge(pair, both, c.unproved)
	e.agent.count(func(c *Counts) { c.Replans++ })
	e.agent.log.Info().Str("engine", e.owner.Engine).Str("peer", p.engine).Str("policy", own.Name).Str("policy_digest", own.Digest).
		Str("plan", both[0].Proven.Digest().String()).Int("alternatives", len(both)).Errs("unproved", unproved(c.unproved)).Str("reason", got.Reason).Msg("planned again")
	return nil
}

// refresh has the policy asked again where it is another than the one that
// answered. It does not wait.
func (p *Peer) refresh() {
	e := p.e
	if p.role != session.Destination || e.agent.cfg.Policy == nil {
		return
	}
	now := e.policy().Digest
	p.mu.Lock()
	stale := !p.broken && p.askedOf != now
	if stale {
		p.askedOf = now
	}
	p.mu.Unlock()
	if !stale {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.wg.Go(func() {
		ctx, cancel := context.WithTimeout(e.ctx, e.agent.times.Handshake)
		defer cancel()
		if err := p.Replan(ctx); err != nil && e.ctx.Err() == nil {
			e.agent.log.Warn().Err(err).Str("blame", string(blame.Of(err))).Str("peer", p.engine).Msg("the policy is another now and the peer keeps its plans of before")
		}
	})
}

// policy names the policy that we run.
func (e *Engine) policy() session.Policy {
	out := session.Policy{Required: e.agent.cfg.PolicyMatch == MatchRequired}
	if p := e.agent.cfg.Policy; p != nil {
		out.Name, out.Digest = p.Name(), p.Digest().String()
	}
	return out
}

// propose sends a proposal, once the one before is answered.
func (l *link) propose(ctx context.Context, o *proposing) error {
	for {
		l.mu.Lock()
		before := l.offered
		if before == nil && !l.dead {
			l.offered = o
			l.mu.Unlock()
			l.say(session.Proposal(o.alternatives, o.policy, o.reason))
			return nil
		}
		l.mu.Unlock()
		var over chan struct{} // nil: the link is dead
		if before != nil {
			over = before.over
		}
		select {
		case <-over:
		case <-l.done:
			return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrGone, l.err))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say sends a message of the handshake's.
func (l *link) say(m session.Message) {
	frame, err := session.Encode(m)
	l.put(frame, err, m.Type().String())
}

// planning takes a proposal or the answer to one. An error ends the link. It
// never blocks.
func (l *link) planning(t session.Type, payload []byte) error {
	m, err := session.Decode(t, payload)
	if err != nil {
		return err
	}
	turn := blame.On(blame.Peer, &session.Turn{State: "connected as the pair's " + string(l.role), Got: t})
	switch m := m.(type) {
	case *session.Propose:
		if l.role != session.Source {
			return turn
		}
		l.mu.Lock()
		busy := l.judging
		l.judging = true
		l.mu.Unlock()
		if busy {
			return blame.On(blame.Peer, fmt.Errorf("%w: a second proposal before the first was answered", transfer.ErrLimit))
		}
		l.agent.wg.Go(func() {
			if err := l.judge(m); err != nil {
				l.fail(err)
			}
		})
	case *session.Agree:
		l.mu.Lock()
		o := l.offered
		l.offered = nil
		l.mu.Unlock()
		if l.role != session.Destination || o == nil {
			return turn
		}
		both, not, err := m.Agreed(o.alternatives)
		if err != nil {
			o.end(err)
			return err
		}
		not = slices.Concat(o.unproved, not)
		if len(both) == 0 {
			o.end(session.NoneProved(o.policy.Name, not))
			return nil
		}
		o.end(l.enter(o.policy, o.reason, both, not))
	}
	return nil
}

// judge lowers and proves what the destination proposes, and answers. A peer
// that proposes all the time gets an answer ten times in the time of a handshake
// at most, so that proving leaves room for others.
func (l *link) judge(m *session.Propose) error {
	began := l.agent.clock.Now()
	both, not, answer, err := m.Judge(l.result.Pair, l.agent.cfg.Budget)
	if err != nil {
		return err
	}
	if len(both) > 0 {
		if err := l.enter(m.Policy, m.Reason, both, not); err != nil {
			for i := range answer.Plans {
				if answer.Plans[i] != "" {
					answer.Plans[i] = ""
					answer.Unproved = append(answer.Unproved, session.Failing{Index: i, Blame: blame.Of(err), Message: err.Error()})
				}
			}
		}
	}
	if rest := l.agent.times.Handshake/10 - l.agent.clock.Now().Sub(began); len(l.pace(began)) > maxProposals && rest > 0 {
		wait := make(chan struct{})
		stop := l.agent.clock.AfterFunc(rest, func() { close(wait) })
		select {
		case <-wait:
		case <-l.done:
			stop()
			return nil
		}
	}
	l.mu.Lock()
	l.judging = false
	l.mu.Unlock()
	l.say(answer)
	for _, u := range not {
		l.agent.log.Warn().Err(u).Str("blame", string(u.By)).Str("peer_agent", l.result.Peer.Agent).Msg("an alternative that the peer proposes is not proved here")
	}
	return nil
}

// maxProposals is how many of a peer's proposals within the time of a handshake
// are answered at once.
const maxProposals = 8

// pace enters a proposal and returns the times of those within the time of a
// handshake before it.
func (l *link) pace(now time.Time) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proposals = slices.DeleteFunc(append(l.proposals, now), func(t time.Time) bool { return now.Sub(t) > l.agent.times.Handshake })
	return l.proposals
}
