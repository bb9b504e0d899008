package agent

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// maxPlans bounds the plans of a link: those of one answer some times over. A
// peer whose policy gives other answers all the time has to connect again.
const maxPlans = 64

// agreed is a plan that both sides of a link proved. It is never modified.
type agreed struct {
	session.Alternative
	digest geometry.Digest
	flows  []policy.Flow   // what it moves, of all ranks
	edges  []stamp.EdgeKey // of the plan, between our held ranks and the peer agent's
	whole  bool            // edges are all of the plan's
	// through is what of flows goes over the link.
	through []policy.Flow
}

// proposal is an answer of the policy, as far as both sides of a link proved it.
type proposal struct {
	policy       session.Policy
	reason       string
	alternatives []*agreed
	unproved     []session.Unproved
}

// agree makes a plan of the link.
func (l *link) agree(a session.Alternative) *agreed {
	out := &agreed{Alternative: a, digest: a.Proven.Digest(), flows: policy.FlowsOf(l.result.Pair, a.Proven.Plan()), whole: true, edges: []stamp.EdgeKey{}} // never nil: that would mean all
	source, destination := l.engine.desc.Held, l.result.Peer.Engine.Held
	if l.role == session.Destination {
		source, destination = destination, source
	}
	seen := map[stamp.EdgeKey]bool{}
	for _, e := range a.Proven.Plan().Edges {
		k := stamp.EdgeKey{Source: e.Source, Destination: e.Destination}
		if !slices.Contains(source, e.Source) || !slices.Contains(destination, e.Destination) {
			out.whole = false
		} else if !seen[k] {
			seen[k] = true
			out.edges = append(out.edges, k)
		}
	}
	for _, f := range out.flows {
		if seen[stamp.EdgeKey{Source: f.Source, Destination: f.Destination}] {
			out.through = append(out.through, f)
		}
	}
	return out
}

// edgesOf is what a request names: nil for all.
func (a *agreed) edgesOf() []stamp.EdgeKey {
	if a.whole {
		return nil
	}
	return a.edges
}

// enter makes what both sides proved the link's plans for what starts from now
// on. Plans of before stay known: transfers under way name them.
//
// Errors: transfer.ErrLimit.
func (l *link) enter(by session.Policy, reason string, both []session.Alternative, not []session.Unproved) error {
	now := &proposal{policy: by, reason: reason, unproved: not}
	for _, a := range both {
		known := l.plan(a.Proven.Digest().String())
		if known == nil {
			known = l.agree(a)
		} else if known.Index != a.Index {
			again := *known
			again.Index = a.Index
			known = &again
		}
		now.alternatives = append(now.alternatives, known)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	more := 0
	for _, a := range now.alternatives {
		if l.plans[a.digest.String()] == nil {
			more++
		}
	}
	if len(l.plans)+more > maxPlans {
		return blame.On(blame.Peer, fmt.Errorf("%w: %d plans of one connection, want at most %d: connect again", transfer.ErrLimit, len(l.plans)+more, maxPlans))
	}
	for _, a := range now.alternatives {
		l.plans[a.digest.String()] = a
	}
	l.now = now
	return nil
}

// plan is the link's plan of that digest; nil: there is none.
func (l *link) plan(digest string) *agreed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plans[digest]
}

// current is what the link's sides agreed on last.
func (l *link) current() *proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// common are a peer's plans for what starts now.
type common struct {
	*proposal             // of one of the links
	plans     [][]*agreed // by alternative and link
}

// flows are what each alternative moves.
func (c *common) flows() [][]policy.Flow {
	out := make([][]policy.Flow, len(c.plans))
	for i, p := range c.plans {
		out[i] = p[0].flows
	}
	return out
}

// inCommon are the alternatives that all links have. While a peer is asked
// about again some links know them earlier than others.
//
// The agents of a destination ask their policies each for itself and may be
// answered differently. To whoever pushes that is all the same: each rank of the
// destination gets all that it needs under its own agent's plan.
func inCommon(links []*link) (*common, error) {
	for _, base := range links {
		out := &common{proposal: base.current()}
		for _, a := range out.alternatives {
			var row []*agreed
			for _, l := range links {
				if known := l.plan(a.digest.String()); known != nil {
					row = append(row, known)
				}
			}
			if len(row) == len(links) {
				out.plans = append(out.plans, row)
			}
		}
		if len(out.plans) > 0 {
			return out, nil
		}
	}
	if links[0].role == session.Source {
		out := &common{proposal: links[0].current(), plans: [][]*agreed{nil}}
		for _, l := range links {
			out.plans[0] = append(out.plans[0], l.current().alternatives[0])
		}
		return out, nil
	}
	return nil, blame.On(blame.Peer, fmt.Errorf("agent: the peer's %d agents have no plan in common: %w", len(links), transfer.ErrPlan))
}
