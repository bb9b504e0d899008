package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// Route is how a transfer went, and who decided that: the policy of the side
// that began it, where it has a route.
type Route struct {
	Policy string `json:"policy,omitempty"` // that decided; empty: the agent chose, as configured
	Digest string `json:"digest,omitempty"` // of the policy
	// Alternative is the number, in the policy's answer to remap, of the one that
	// was used; Proved is how many there were to choose from.
	Alternative int    `json:"alternative"`
	Proved      int    `json:"proved"`
	Plan        string `json:"plan"` // digest
	// Transports are those that moved something, in the order in which they were
	// taken. Refused are those that could not, and why.
	Transports []string `json:"transports"`
	Refused    []string `json:"refused,omitempty"`
	Reason     string   `json:"reason,omitempty"`  // the policy's own words, to be escaped where they are shown
	Clamped    []string `json:"clamped,omitempty"` // what the policy chose and did not get: the configuration forbids it
	Unmet      []string `json:"unmet,omitempty"`   // what it chose and nothing here can do
	Fault      string   `json:"fault,omitempty"`   // why the policy's route does not count; see Config.OnPolicyFault
}

// Recompute is a pull that the policy refuses, within what Limits.Recompute
// allows: the engine should compute the cache itself. Nothing was moved and the
// ticket was not used; the offer stays open for as long as its owner keeps it.
type Recompute struct {
	Policy string
	Reason string // the policy's own words, escaped
	Tokens int64
}

func (e *Recompute) Error() string {
	s := fmt.Sprintf("agent: policy %s would rather have %d tokens recomputed than moved", e.Policy, e.Tokens)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Blame is the policy.
func (e *Recompute) Blame() blame.Party { return blame.Policy }

// way is how a transfer goes.
type way struct {
	plans      []*agreed // by link
	transports []string  // in order; nil: all, in the dialler's
	level      transfer.Integrity
	route      Route
}

// levels are integrity levels as policies know them.
func levels() map[transfer.Integrity]policy.Integrity {
	return map[transfer.Integrity]policy.Integrity{transfer.Off: policy.IntegrityOff, transfer.Sample: policy.IntegritySample, transfer.Full: policy.IntegrityFull}
}

// asked is what a transfer is asked to be.
type asked struct {
	name     string
	from, to int64
	timeout  time.Duration
	lease    time.Duration // 0: not known
	priority int
	level    transfer.Integrity
	pull     bool
	fixed    bool // the policy is not asked
}

// choose decides how a transfer over the links goes.
//
// Errors: *Recompute; where the policy fails and OnPolicyFault says so, its
// error; of ctx; a peer without a plan in common.
func (p *Peer) choose(ctx context.Context, links []*link, q asked) (*way, error) {
	plans, err := inCommon(links)
	if err != nil {
		return nil, err
	}
	a := p.e.agent
	// Every agent of a source that pushes its own ranks has to take the same
	// plan, and none knows what the others are asked.
	alone := q.pull || len(p.e.desc.Held) == len(p.e.desc.Side.Ranks)
	out := &way{plans: plans.plans[0], level: q.level, route: Route{Proved: len(plans.plans), Alternative: plans.plans[0][0].Index, Plan: plans.plans[0][0].digest.String()}}
	switch {
	case q.fixed:
		out.route.Reason = "a probe: as configured"
		return out, nil
	case a.cfg.Policy == nil:
		out.route.Reason = "no policy here: as configured"
		return out, nil
	case !routes(a.cfg.Policy):
		out.route.Reason = "policy " + a.cfg.Policy.Name() + " has no route: as configured"
		return out, nil
	}
	question := p.routeQuestion(links, plans, q, alone)
	name, digest := a.cfg.Policy.Name(), a.cfg.Policy.Digest().String()
	d, clamped, err := a.cfg.Policy.Route(ctx, question)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("agent: ask policy %s for a route: %w", name, err)
		}
		err = fmt.Errorf("agent: policy %s does not say how the transfer goes: %w", name, err)
		if blame.Of(err) == blame.Local { // not a fault of ours: a policy is one that says nothing of itself
			err = blame.On(blame.Policy, err)
		}
		a.count(func(c *Counts) { c.RouteFaults++ })
		if a.cfg.OnPolicyFault != FaultHost || isQuestion(err) {
			return nil, err
		}
		a.count(func(c *Counts) { c.Replaced++ })
		a.log.Warn().Err(err).Str("blame", string(blame.Of(err))).Msg("the agent chooses in the policy's place")
		out.route.Fault = err.Error()
		return out, nil
	}
	a.count(func(c *Counts) {
		c.Routed++
		c.Clamped += int64(len(clamped))
	})
	p.mu.Lock()
	p.decided, p.decidedFor = &d, plans.proposal
	p.mu.Unlock()
	if d.Recompute && q.pull {
		a.count(func(c *Counts) { c.Recomputed++ })
		return nil, &Recompute{Policy: name, Reason: d.Reason, Tokens: q.to - q.from}
	}
	out.route.Policy, out.route.Digest, out.route.Reason = name, digest, d.Reason
	for _, c := range clamped {
		out.route.Clamped = append(out.route.Clamped, c.String())
	}
	out.apply(&d, question, plans, alone)
	return out, nil
}

// isQuestion reports whether the policy was asked something that cannot be: our
// fault, which nothing replaces.
func isQuestion(err error) bool {
	var q *policy.QuestionError
	return errors.As(err, &q)
}

// routes reports whether a policy may have a route.
func routes(p Policy) bool {
	h, ok := p.(interface{ Hooks() []string })
	return !ok || slices.Contains(h.Hooks(), "route")
}

// maxAsked is the longest request that a question can be about.
const maxAsked = 1 << 31

func (p *Peer) routeQuestion(links []*link, plans *common, q asked, alone bool) policy.RouteQuestion {
	a := p.e.agent
	s := p.e.survey(links)
	pair := links[0].result.Pair
	out := policy.RouteQuestion{
		Request: q.name, Model: pair.Source.Model.Name,
		Source: policy.Party{Name: pair.Source.Engine}, Destination: policy.Party{Name: pair.Destination.Engine},
		Tokens: rounded(min(q.to, maxAsked)), Cached: rounded(min(q.from, maxAsked)), Priority: q.priority, Deadline: q.timeout, Lease: q.lease,
		Limits:       policy.Limits{Chunk: a.cfg.Limits.Chunk, Streams: a.cfg.Limits.Streams, Integrity: levels()[q.level], Recompute: a.cfg.Limits.Recompute && q.pull},
		Alternatives: plans.flows(), Providers: a.transports(), Edges: s.edges, Configuration: a.configuration(),
	}
	if !alone {
		out.Alternatives = out.Alternatives[:1]
	}
	out.Source.About, out.Destination.About = s.by(p.role)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decided != nil && p.decidedFor == plans.proposal && out.Fits(p.decided) {
		out.Previous = p.decided
	}
	return out
}

// apply makes a decision the way, and says what of it nothing here can do.
func (w *way) apply(d *policy.Decision, q policy.RouteQuestion, plans *common, alone bool) {
	w.plans = plans.plans[d.Alternative]
	w.route.Alternative, w.route.Plan = w.plans[0].Index, w.plans[0].digest.String()
	w.route.Proved = len(q.Alternatives)
	for level, known := range levels() {
		if known == d.Integrity {
			w.level = stricter(w.level, level)
		}
	}
	unmet := func(format string, args ...any) { w.route.Unmet = append(w.route.Unmet, fmt.Sprintf(format, args...)) }
	order := d.Providers
	if order == nil && (d.CRC == policy.On || d.TLS == policy.On) {
		for i := range q.Providers {
			order = append(order, i)
		}
	}
	// Protection that was not configured: those transports are taken that have
	// it, where any has.
	for _, s := range []struct {
		name  string
		asked policy.Switch
		has   func(policy.Provider) bool
	}{{"crc", d.CRC, func(p policy.Provider) bool { return p.CRC }}, {"tls", d.TLS, func(p policy.Provider) bool { return p.TLS }}} {
		if s.asked != policy.On {
			continue
		}
		var with []int
		for _, i := range order {
			if s.has(q.Providers[i]) {
				with = append(with, i)
			}
		}
		if len(with) == 0 {
			unmet("%s on: none of the transports has it", s.name)
			continue
		}
		order = with
	}
	for _, i := range order {
		w.transports = append(w.transports, q.Providers[i].Name)
	}
	// The contract of providers has no place for these: they go as configured.
	if d.Mode != 0 {
		unmet("mode %d: providers choose it", d.Mode)
	}
	if d.Permute != 0 {
		unmet("permute %d: providers choose it", d.Permute)
	}
	if d.Chunk != 0 {
		unmet("chunk %d: it is set where a transport is opened", d.Chunk)
	}
	if d.Streams != 0 {
		unmet("streams %d: they are set where a transport is opened", d.Streams)
	}
	if d.Priority != 0 {
		unmet("priority %d: transports serve in the order of submission", d.Priority)
	}
	if len(d.Rails) > 0 {
		unmet("%d rails: no transport here binds to one", len(d.Rails))
	}
	if d.Recompute {
		unmet("recompute: a push cannot be recomputed")
	}
}

// lanesFor are the lanes of a link that a transfer may take, in order: those
// that the decision names, else all as the dialler has them, whose peer is
// believed alive and on which the plan can be prepared.
//
// Errors: those of failed.
func (w *way) lanesFor(l *link, a *agreed) (out []*lane, refused []string, _ error) {
	if len(a.edges) == 0 {
		return nil, nil, nil
	}
	names := w.transports
	if names == nil {
		for _, lane := range l.lanes {
			names = append(names, lane.name())
		}
	}
	var errs []error
	for _, name := range names {
		lane := l.lane(name)
		if lane == nil {
			continue // configured here and not at the peer, or not reached
		}
		err := lane.provider.Health(lane.peer)
		if err == nil {
			err = lane.prepare(a, l.role)
		}
		if err != nil {
			errs = append(errs, failed(fmt.Errorf("%s: %w", name, err)))
			refused = append(refused, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		out = append(out, lane)
	}
	if len(out) == 0 {
		if errs == nil { // the policy named what is not connected
			errs = append(errs, blame.On(blame.Provider, transfer.ErrProvider))
		}
		return nil, refused, blame.On(blame.Of(errs[0]), fmt.Errorf("none of %s can be used with agent %q: %w", strings.Join(names, ", "), l.result.Peer.Agent, errors.Join(errs...)))
	}
	return out, refused, nil
}

// lease is what is left of a ticket, as far as clocks agree; 0: nothing is known.
func (p *Peer) lease(t transfer.Ticket) time.Duration {
	if p.role != session.Destination {
		return 0
	}
	return max(t.Deadline.Sub(p.e.agent.clock.Now()), 0)
}
