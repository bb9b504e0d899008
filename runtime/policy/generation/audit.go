package generation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
)

// auditor compares answers behind the calls' backs: a candidate's in shadow with
// the active policy's, and every policy's with what the built-in one would cost.
// It is one goroutine with a bounded queue; what does not fit is counted and
// left out, so that no call ever waits for it.
type auditor struct {
	m       *Manager
	jobs    chan func(ctx context.Context)
	done    chan struct{}
	dropped atomic.Int64

	// Below is the goroutine's own.
	builtin *policy.Policy // opened with the first comparison
	broken  bool           // it could not be
	seen    map[[32]byte]bool
	order   [][32]byte // of seen, a ring

	mu      sync.Mutex
	differs []Difference
}

const (
	maxJobs        = 256
	maxSeen        = 4096
	maxDifferences = 32
)

func (a *auditor) start(m *Manager) {
	a.m, a.jobs, a.done, a.seen = m, make(chan func(context.Context), maxJobs), make(chan struct{}), map[[32]byte]bool{}
	go func() {
		defer close(a.done)
		for {
			select {
			case <-m.ctx.Done():
				return
			case job := <-a.jobs:
				job(m.ctx)
			}
		}
	}()
}

// close ends the auditor. What was waiting is left out.
// Preconditions: the manager's context is cancelled.
func (a *auditor) close() {
	<-a.done
	if a.builtin != nil {
		_ = a.builtin.Close() // nobody else has it
	}
}

func (a *auditor) add(job func(ctx context.Context)) {
	select {
	case a.jobs <- job:
	default:
		a.dropped.Add(1)
	}
}

func (a *auditor) differences() []Difference {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Difference(nil), a.differs...)
}

// first reports whether something is looked at for the first time, as far as is
// remembered: guests are deterministic, so once is enough.
func (a *auditor) first(what string, id uint64, other uint64, input []byte) bool {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d\n", what, id, other)
	h.Write(input)
	key := [32]byte(h.Sum(nil))
	if a.seen[key] {
		return false
	}
	if len(a.order) == maxSeen {
		delete(a.seen, a.order[0])
		a.order = append(a.order[:0], a.order[1:]...)
	}
	a.seen[key] = true
	a.order = append(a.order, key)
	return true
}

// forget lets something be looked at again.
func (a *auditor) forget() {
	if n := len(a.order); n > 0 {
		delete(a.seen, a.order[n-1])
		a.order = a.order[:n-1]
	}
}

// baseline is the built-in policy, nil where it cannot be had.
func (a *auditor) baseline(ctx context.Context) *policy.Policy {
	if a.builtin == nil && !a.broken {
		p, err := policy.Open(ctx, a.m.builtin, policy.Options{Memory: a.m.opt.Policy.Memory})
		if err != nil {
			a.broken = ctx.Err() == nil
			a.m.told.tell(Event{Kind: Refused, Name: a.m.opt.Builtin, Reason: "answers are not weighed: " + err.Error()})
			return nil
		}
		a.builtin = p
	}
	return a.builtin
}

// isBuiltin reports whether a generation is what it would be weighed against.
func (a *auditor) isBuiltin(g *generation) bool {
	return g.Digest == geometry.Digest(sha256.Sum256(a.m.builtin))
}

// shadowed runs f with the candidate in shadow, where there is one still and
// the active policy answered.
func (a *auditor) shadowed(by *generation, l *lineup, f func(ctx context.Context, candidate *generation)) {
	candidate := l.shadow
	if candidate == nil || by != l.active {
		return
	}
	a.add(func(ctx context.Context) {
		if candidate.condemned.Load() || a.m.line.Load().shadow != candidate || !candidate.hold() {
			return
		}
		defer a.m.give(candidate)
		f(ctx, candidate)
	})
}

// asked counts what a candidate in shadow answered. It reports whether that is
// to be compared.
func (a *auditor) asked(ctx context.Context, candidate *generation, err error) bool {
	if err != nil && ctx.Err() != nil {
		a.forget()
		return false // the manager is closing
	}
	if a.m.observe(candidate, err) != NoFault {
		a.forget() // a fault is counted as often as it happens
		return false
	}
	return err == nil || isDeclined(err)
}

// compared counts how a candidate's answer differs; text is empty where it does
// not.
func (a *auditor) compared(hook, about string, candidate, active *generation, text string) {
	if text == "" {
		candidate.counts.agreed.Add(1)
		return
	}
	candidate.counts.differed.Add(1)
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	a.mu.Lock()
	if len(a.differs) == maxDifferences {
		a.differs = append(a.differs[:0], a.differs[1:]...)
	}
	a.differs = append(a.differs, Difference{a.m.opt.Now(), hook, about, candidate.ID, active.ID, text})
	a.mu.Unlock()
	a.m.told.tell(candidate.mark(Event{Kind: Differs, Reason: hook + ", " + about + ": " + text}))
}

// settled compares where not both gave an answer; ok is true where it could.
func settled(candidate, active error) (text string, ok bool) {
	switch {
	case candidate == nil && active == nil:
		return "", false
	case candidate != nil && active != nil:
		return "", true // both decline
	case candidate != nil:
		return "declines: " + candidate.Error(), true
	case isDeclined(active):
		return "answers, the active policy declines: " + active.Error(), true
	}
	return "answers, the active policy fails: " + active.Error(), true
}

// weighed counts what an answer costs beside the built-in policy's.
func (a *auditor) weighed(g *generation, hook, about string, cost, builtin int64) {
	if cost < 0 && builtin < 0 || builtin == 0 {
		return
	}
	g.counts.weighed.Add(1)
	switch {
	case builtin < 0 || cost >= 0 && float64(cost) <= a.m.opt.Limits.Costly*float64(builtin):
		return
	case cost < 0:
		g.counts.costly.Add(1)
		a.m.told.tell(g.mark(Event{Kind: Costly, Reason: fmt.Sprintf("%s, %s: cannot be planned with every peer, what policy %s answers can", hook, about, a.m.opt.Builtin)}))
	default:
		g.counts.costly.Add(1)
		a.m.told.tell(g.mark(Event{Kind: Costly, Reason: fmt.Sprintf("%s, %s: costs %.1f times what policy %s's answer does (%d and %d bytes and pieces of the busiest rank)", hook, about, float64(cost)/float64(builtin), a.m.opt.Builtin, cost, builtin)}))
	}
}

// layout looks at an answer to select_layout.
func (a *auditor) layout(g *generation, l *lineup, q policy.Question, out policy.Choice, err error) {
	about := fmt.Sprintf("engine %s", q.Engine.Name)
	a.shadowed(g, l, func(ctx context.Context, candidate *generation) {
		in, bad := q.Input()
		if bad != nil || !a.first("select_layout", candidate.ID, g.ID, in.Encode()) {
			return
		}
		other, again := candidate.policy.SelectLayout(ctx, q)
		if !a.asked(ctx, candidate, again) {
			return
		}
		text, ok := settled(again, err)
		if !ok && other.Index != out.Index {
			text = fmt.Sprintf("chooses %s, the active policy %s", q.Engine.Candidates[other.Index].Name, q.Engine.Candidates[out.Index].Name)
		}
		a.compared("select_layout", about, candidate, g, text)
	})
	if err != nil || a.isBuiltin(g) {
		return
	}
	a.add(func(ctx context.Context) {
		in, bad := q.Input()
		if bad != nil || !a.first("weigh select_layout", g.ID, 0, in.Encode()) {
			return
		}
		base := a.baseline(ctx)
		if base == nil {
			return
		}
		if best, err := base.SelectLayout(ctx, q); err == nil {
			costs := choiceCosts(in)
			a.weighed(g, "select_layout", about, costs[out.Index], costs[best.Index])
		}
	})
}

// remap looks at an answer to remap.
func (a *auditor) remap(g *generation, l *lineup, q policy.RemapQuestion, out policy.Answer, err error) {
	about := fmt.Sprintf("engines %s and %s", q.Pair.Source.Engine, q.Pair.Destination.Engine)
	a.shadowed(g, l, func(ctx context.Context, candidate *generation) {
		in, bad := q.Input()
		if bad != nil || !a.first("remap", candidate.ID, g.ID, in.Encode()) {
			return
		}
		other, again := candidate.policy.RemapFor(ctx, q)
		if !a.asked(ctx, candidate, again) {
			return
		}
		var plans []*plan.Plan
		if again == nil {
			if plans, bad = a.plans(q.Pair, other); bad != nil {
				a.judged(candidate, bad)
				return
			}
			candidate.counts.proved.Add(1)
		}
		text, ok := settled(again, err)
		if !ok {
			active, bad := a.plans(q.Pair, out)
			switch {
			case bad != nil:
				text = "answers, the active policy's answer is no plan: " + bad.Error()
			default:
				text = unlike(plans, active)
			}
		}
		a.compared("remap", about, candidate, g, text)
	})
	if err != nil || a.isBuiltin(g) || len(out.Alternatives) == 0 {
		return
	}
	a.add(func(ctx context.Context) {
		in, bad := q.Input()
		if bad != nil || !a.first("weigh remap", g.ID, 0, in.Encode()) {
			return
		}
		base := a.baseline(ctx)
		if base == nil {
			return
		}
		best, err := base.RemapFor(ctx, q)
		if err != nil {
			return
		}
		mine, err := proved(q.Pair, out.Alternatives[0], a.m.opt.Budget)
		theirs, other := proved(q.Pair, best.Alternatives[0], a.m.opt.Budget)
		if err == nil && other == nil {
			a.weighed(g, "remap", about, costOf(q.Pair, mine), costOf(q.Pair, theirs))
		}
	})
}

// plans builds and proves every alternative of an answer.
func (a *auditor) plans(pair *plan.Pair, out policy.Answer) ([]*plan.Plan, error) {
	var list []*plan.Plan
	for i, as := range out.Alternatives {
		pl, err := proved(pair, as, a.m.opt.Budget)
		if err != nil {
			return nil, fmt.Errorf("alternative %d: %w", i, err)
		}
		list = append(list, pl)
	}
	return list, nil
}

// judged counts a candidate's answer whose plan was refused.
func (a *auditor) judged(candidate *generation, err error) {
	a.forget()
	var large *plan.TooLarge
	if fault := FaultOf(err); fault != NoFault {
		a.m.faulted(candidate, 0, fault, err)
	} else if !errors.As(err, &large) {
		a.m.faulted(candidate, 0, Faulty, err)
	}
}

// route looks at a decision of route.
func (a *auditor) route(g *generation, l *lineup, q policy.RouteQuestion, out policy.Decision, err error) {
	about := fmt.Sprintf("a transfer from engine %s to engine %s", q.Source.Name, q.Destination.Name)
	a.shadowed(g, l, func(ctx context.Context, candidate *generation) {
		in, bad := q.Input()
		if bad != nil || !a.first("route", candidate.ID, g.ID, in.Encode()) {
			return
		}
		other, _, again := candidate.policy.Route(ctx, q)
		if !a.asked(ctx, candidate, again) {
			return
		}
		text, ok := settled(again, err)
		if !ok {
			mine, theirs := other, out
			mine.Reason, theirs.Reason = "", ""
			if !reflect.DeepEqual(mine, theirs) {
				text = fmt.Sprintf("decides %+v, the active policy %+v", mine, theirs)
			}
		}
		a.compared("route", about, candidate, g, text)
	})
}
