package generation

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/store"
	"github.com/kvferry/kvferry/wasm/host"
)

// Stage is where a generation is in its life. It goes forward only: what comes
// back after a rollback is a generation of its own.
type Stage string

// The stages.
const (
	Loaded   Stage = "loaded"   // open, and asked nothing
	Shadow   Stage = "shadow"   // asked what the active one is asked; its answers go nowhere
	Canary   Stage = "canary"   // answers its share
	Active   Stage = "active"   // answers
	Draining Stage = "draining" // gets no new calls, and has some
	Closed   Stage = "closed"
)

// FaultKind says what a policy did wrong.
type FaultKind string

// The kinds of faults. A policy that declines, or says that it does not support
// something, has none.
const (
	NoFault FaultKind = ""
	Trap    FaultKind = "trap"
	Fuel    FaultKind = "fuel"   // it did not come to an end
	Faulty  FaultKind = "answer" // what it answered cannot be read, or names what there is not; or no instance of it can be made
	Proof   FaultKind = "proof"  // its plan does not put every element where it belongs
)

// FaultOf is the fault that an error of a policy, or of what was built from its
// answer, is.
func FaultOf(err error) FaultKind {
	var declined *policy.Declined
	var refused *host.Refused
	var unproved *proof.Fault
	switch {
	case err == nil, errors.As(err, &declined), errors.As(err, &refused):
		return NoFault
	case errors.Is(err, host.ErrFuel):
		return Fuel
	case errors.Is(err, host.ErrTrap):
		return Trap
	case errors.As(err, &unproved):
		return Proof
	case blame.Of(err) == blame.Policy, isFaulty(err):
		return Faulty
	}
	return NoFault
}

// Counters are what a generation did so far. All but InFlight only grow.
type Counters struct {
	Calls    int64 `json:"calls"`      // questions put to it; answers that were known are included
	Answers  int64 `json:"answers"`    // that it gave
	Declined int64 `json:"declined"`   // deliberate refusals
	Failed   int64 `json:"failed"`     // ended otherwise, by no fault of the policy (a cancelled caller, say)
	Traps    int64 `json:"traps"`      //
	Fuel     int64 `json:"fuel"`       //
	Faulty   int64 `json:"faulty"`     //
	Unproved int64 `json:"unproved"`   // answers whose plan was refused
	Proved   int64 `json:"proved"`     // answers whose plan was proved, as far as Judge was told
	Costly   int64 `json:"costly"`     // answers that cost too much beside the built-in policy's
	Weighed  int64 `json:"weighed"`    // answers that were compared with the built-in policy's
	Agreed   int64 `json:"agreed"`     // in shadow: answers like the active one's
	Differed int64 `json:"differed"`   // in shadow: other answers
	Replaced int64 `json:"replaced"`   // faults for which the fallback answered
	Spent    int64 `json:"fuel_spent"` // fuel that the guest's calls took
	InFlight int64 `json:"in_flight"`  // calls in progress
}

// Faults is the sum over all kinds.
func (c Counters) Faults() int64 { return c.Traps + c.Fuel + c.Faulty + c.Unproved }

type counters struct {
	calls, answers, declined, failed, traps, fuel, faulty, unproved, proved, costly, weighed, agreed, differed, replaced, spent atomic.Int64
}

// generation is an open policy and its place in the line.
type generation struct {
	store.Generation
	policy *policy.Policy
	wasm   []byte

	// refs counts the calls in progress, and one for as long as the line needs
	// it. Whoever brings it to 0 closes the policy; it never rises from there.
	refs   atomic.Int64
	counts counters
	window window
	// condemned says that a rollback is on its way.
	condemned atomic.Bool

	stage Stage // guarded by Manager.mu
}

// hold takes a reference; false once the generation is closing.
func (g *generation) hold() bool {
	for {
		n := g.refs.Load()
		if n == 0 {
			return false
		}
		if g.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release gives a reference back, and reports whether it was the last.
func (g *generation) release() bool { return g.refs.Add(-1) == 0 }

// mark makes the event say which generation it is about.
func (g *generation) mark(e Event) Event {
	e.Generation, e.Name, e.Version, e.Digest = g.ID, g.Name, g.Version, g.Digest.String()
	return e
}

func (g *generation) counters(stage Stage) Counters {
	c := &g.counts
	flying := g.refs.Load()
	if stage != Draining && stage != Closed {
		flying--
	}
	return Counters{
		Calls: c.calls.Load(), Answers: c.answers.Load(), Declined: c.declined.Load(), Failed: c.failed.Load(),
		Traps: c.traps.Load(), Fuel: c.fuel.Load(), Faulty: c.faulty.Load(), Unproved: c.unproved.Load(), Proved: c.proved.Load(),
		Costly: c.costly.Load(), Weighed: c.weighed.Load(), Agreed: c.agreed.Load(), Differed: c.differed.Load(), Replaced: c.replaced.Load(), Spent: c.spent.Load(),
		InFlight: max(flying, 0),
	}
}

func (c *counters) fault(k FaultKind) {
	switch k {
	case Trap:
		c.traps.Add(1)
	case Fuel:
		c.fuel.Add(1)
	case Proof:
		c.unproved.Add(1)
	default:
		c.faulty.Add(1)
	}
}

// window counts the calls and faults of the last while, in slices of it.
type window struct {
	mu     sync.Mutex
	slices [windowSlices]struct{ at, calls, faults int64 } // at: number of the slice
}

const windowSlices = 12

// add counts and returns the sums over the window.
func (w *window) add(now time.Time, length time.Duration, calls, faults int64) (allCalls, allFaults int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := now.UnixNano() / max(int64(length)/windowSlices, 1)
	s := &w.slices[uint64(n)%windowSlices]
	if s.at != n {
		s.at, s.calls, s.faults = n, 0, 0
	}
	s.calls += calls
	s.faults += faults
	for _, s := range w.slices {
		if n-s.at < windowSlices && s.at <= n {
			allCalls += s.calls
			allFaults += s.faults
		}
	}
	return allCalls, allFaults
}

// clear forgets all.
func (w *window) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.slices[:])
}

// attribution remembers who answered last about a pair, so that what becomes of
// the answer is counted where it belongs.
type attribution struct {
	mu    sync.Mutex
	by    map[geometry.Digest]*generation
	order []geometry.Digest // a ring, oldest at next
	next  int
}

const maxAttributed = 1024

func (a *attribution) set(pair geometry.Digest, g *generation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.by[pair]; !ok {
		if len(a.order) < maxAttributed {
			a.order = append(a.order, pair)
		} else {
			delete(a.by, a.order[a.next])
			a.order[a.next] = pair
			a.next = (a.next + 1) % maxAttributed
		}
	}
	a.by[pair] = g
}

func (a *attribution) of(pair geometry.Digest) *generation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[pair]
}

// forget lets go of a generation that is closed.
func (a *attribution) forget(g *generation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for pair, by := range a.by {
		if by == g {
			delete(a.by, pair)
		}
	}
}
