// Package generation runs the generations of an agent's policy: it lets a new
// module in beside the one that answers, compares it, gives it a share of the
// questions, puts it in charge without a lost or blocked call, and takes it out
// again when it does harm.
//
//	loaded -> shadow -> canary -> active -> draining -> closed
//
// A generation may leave out stages on its way to active and goes to draining
// from any of them. There is one active generation at most, one in shadow and
// one canary. Every call holds the generation that it was given until it
// returns; a draining one is closed by the last call that it has.
//
// There is no fallback unless the options name one: where a policy fails, the
// call fails. A policy that does wrong at more than a rate is rolled back: a
// candidate is dropped, and where the active one is at fault the last good one
// takes its place. To decline is no fault.
//
// Everything that happens is an event (Event), counted (Status), and logged;
// changes are kept in the history. With a store, a process that starts again
// stands where the last one stood, whatever became of where the modules came
// from.
//
// Lock order: Manager.changing, Manager.mu, then those of teller, window,
// attribution, auditor and store, which are leaves. No lock but changing is held
// while a module is opened or a file written, none while a guest runs, and calls
// never take changing.
package generation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/examine"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

// Fallback says who answers where a policy fails.
type Fallback string

// The fallbacks.
const (
	NoFallback Fallback = ""
	LastGood   Fallback = "last good" // the one that was active before
	Builtin    Fallback = "built-in"
)

// String is the fallback as configurations name it: none, last-good or built-in.
func (f Fallback) String() string {
	switch f {
	case NoFallback:
		return "none"
	case LastGood:
		return "last-good"
	}
	return string(f)
}

// ParseFallback is the fallback that String gives.
func ParseFallback(text string) (Fallback, error) {
	for _, f := range []Fallback{NoFallback, LastGood, Builtin} {
		if f.String() == text {
			return f, nil
		}
	}
	return "", blame.On(blame.Operator, fmt.Errorf("policy: fallback %q: want %s, %s or %s", text, NoFallback, LastGood, Builtin))
}

// Options of a manager. The zero value is sound.
type Options struct {
	Policy policy.Options // of every generation
	// Conform is what a module has to pass before it is let in; nil:
	// examine.Conform within the limits of Policy, which asks it some general
	// questions on both engines and proves what it answers.
	Conform func(ctx context.Context, wasm []byte) error
	// Store keeps generations and history; nil: nothing outlives the process.
	// The manager is its only user while it is open; whoever opened it closes
	// it, after Close.
	Store *store.Store
	// Fallback answers where the policy that was asked is at fault. Where there
	// is no last good policy, none answers.
	Fallback Fallback
	// Builtin is the name of the built-in policy that answers are weighed
	// against, and that Fallback may name; empty: heads.
	Builtin string
	Limits  Limits
	Budget  plan.Budget    // of plans that are compared; zero: plan.DefaultBudget()
	Events  func(Event)    // told of every event, one at a time, in order; may call the manager, but not Close
	Log     zerolog.Logger // the zero value writes nothing
	Now     func() time.Time
}

// Limits say how much wrong is too much. Zero fields take the defaults named.
type Limits struct {
	Window time.Duration // over which faults are counted; 1 min
	Faults int           // fewer than this are let pass; 3
	Rate   float64       // faults a call above which a generation is rolled back; 0.05
	Costly float64       // times the cost of the built-in policy's answer; 4
}

// maxOpen bounds the generations that are open at a time, draining ones
// included.
const maxOpen = 16

// maxClosed is how many closed generations Status still shows.
const maxClosed = 16

// Errors of calls and changes.
var (
	// ErrNoPolicy is a question while no generation is active.
	ErrNoPolicy = errors.New("policy: none is active")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("policy: the manager is closed")
	// ErrNoLastGood is a rollback without anything to go back to.
	ErrNoLastGood = errors.New("policy: there is no last good policy to go back to; activate another one")
)

// ChangeError is a change that cannot be made as things stand. The fault is the
// operator's.
type ChangeError struct {
	Generation uint64
	To         Stage
	Reason     string
}

func (e *ChangeError) Error() string {
	return fmt.Sprintf("policy generation %d to %s: %s", e.Generation, e.To, e.Reason)
}

// Blame is the operator.
func (e *ChangeError) Blame() blame.Party { return blame.Operator }

// DowngradeError is a policy with a lower version than the active one of its
// name. The fault is the operator's.
type DowngradeError struct {
	Name            string
	Version, Active string
}

func (e *DowngradeError) Error() string {
	return fmt.Sprintf("policy %s: version %s is lower than %s, which is there; allow downgrades to load it all the same", e.Name, e.Version, e.Active)
}

// Blame is the operator.
func (e *DowngradeError) Blame() blame.Party { return blame.Operator }

// kept is a generation that could be opened again.
type kept struct {
	store.Generation
	wasm []byte
}

// lineup is who answers. It is never modified.
type lineup struct {
	active, canary, shadow *generation // nil: none
	fallback               *generation
	share                  Share // of the canary
	closed                 bool
}

// Manager runs the generations of an agent's policy. Safe for concurrent use.
type Manager struct {
	opt     Options
	builtin []byte
	line    atomic.Pointer[lineup]
	told    teller
	who     attribution
	audit   auditor

	// changing is held for the whole of a change, opening modules included;
	// calls never take it.
	changing sync.Mutex

	mu       sync.Mutex
	live     map[uint64]*generation // not closed
	closed   []Info                 // that were, oldest first
	lastID   uint64
	lastGood *kept
	taps     map[*tap]struct{}
	tapped   atomic.Bool // there are some

	open       sync.WaitGroup // generations that are not closed
	background sync.WaitGroup // rollbacks
	stop       context.CancelFunc
	ctx        context.Context // of what runs in the background
}

// New makes a manager, and puts every generation of the store back where it
// was. Generations that waited, ran in shadow or were a canary and cannot be
// opened any more are dropped, with an event. An active one that cannot be
// opened is an error; with Fallback LastGood, the last good one is active in
// its place, with an event.
//
// Errors: *store.FileError, store.ErrUnknown, those of policy.Open.
func New(ctx context.Context, opt Options) (*Manager, error) {
	if opt.Builtin == "" {
		opt.Builtin = "heads"
	}
	builtin, ok := policies.Get(opt.Builtin)
	if !ok {
		return nil, blame.On(blame.Operator, fmt.Errorf("policy: no policy %q is built in", opt.Builtin))
	}
	if opt.Fallback != NoFallback && opt.Fallback != LastGood && opt.Fallback != Builtin {
		return nil, blame.On(blame.Operator, fmt.Errorf("policy: fallback %q is none of %q and %q", opt.Fallback, LastGood, Builtin))
	}
	opt.complete()
	m := &Manager{opt: opt, builtin: builtin, live: map[uint64]*generation{}, taps: map[*tap]struct{}{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.told = teller{log: opt.Log, listen: opt.Events, store: opt.Store, now: opt.Now}
	m.told.start()
	m.who.by = map[geometry.Digest]*generation{}
	m.line.Store(&lineup{})
	m.audit.start(m)
	if err := m.restore(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// complete fills in the defaults.
func (opt *Options) complete() {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if guest := opt.Policy.Host(); opt.Conform == nil {
		opt.Conform = func(ctx context.Context, wasm []byte) error {
			return examine.Conform(ctx, wasm, guest, nil)
		}
	}
	if opt.Budget == (plan.Budget{}) {
		opt.Budget = plan.DefaultBudget()
	}
	if opt.Limits.Window <= 0 {
		opt.Limits.Window = time.Minute
	}
	if opt.Limits.Faults <= 0 {
		opt.Limits.Faults = 3
	}
	if !(opt.Limits.Rate > 0) {
		opt.Limits.Rate = 0.05
	}
	if !(opt.Limits.Costly > 0) {
		opt.Limits.Costly = 4
	}
}

// hash turns what a canary is chosen by into a number. It depends on the
// candidate, so that not the same pairs are first every time, and on nothing of
// this process: all agents choose alike.
func (l *lineup) chosen(key string) bool {
	h := sha256.New()
	h.Write(l.canary.Digest[:])
	h.Write([]byte(key))
	v := binary.LittleEndian.Uint64(h.Sum(nil))
	return float64(v>>11)*(100/float64(1<<53)) < l.share.Percent
}

// take gives the generation that answers a question, held.
func (m *Manager) take(key func(By) string) (*generation, *lineup, error) {
	for {
		l := m.line.Load()
		if l.closed {
			return nil, nil, ErrClosed
		}
		g := l.active
		if l.canary != nil && l.chosen(key(l.share.By)) {
			g = l.canary
		}
		if g == nil {
			return nil, nil, blame.On(blame.Operator, ErrNoPolicy)
		}
		if g.hold() {
			return g, l, nil
		}
		// It left the line between the two looks: the line is another now.
	}
}

// give ends a call.
func (m *Manager) give(g *generation) {
	if g.release() {
		m.finish(g)
	}
}

// ask puts a question to whoever has to answer it. It returns who did.
func ask[T any](m *Manager, key func(By) string, put func(p *policy.Policy) (T, error)) (T, *generation, *lineup, error) {
	var none T
	g, l, err := m.take(key)
	if err != nil {
		return none, nil, nil, err
	}
	out, err := put(g.policy)
	fault := m.observe(g, err)
	if fault == NoFault {
		m.give(g)
		return out, g, l, err
	}
	defer m.give(g)
	f := l.fallback
	if f == nil || f.Digest == g.Digest || !f.hold() {
		return none, g, l, err
	}
	defer m.give(f)
	second, again := put(f.policy)
	m.observe(f, again)
	if again != nil {
		return none, g, l, fmt.Errorf("%w (and the fallback, policy %s %s: %w)", err, f.Name, f.Version, again)
	}
	g.counts.replaced.Add(1)
	m.told.tell(g.mark(Event{Kind: Replaced, Fault: fault, Reason: fmt.Sprintf("policy %s %s answered in its place (%s): %v", f.Name, f.Version, m.opt.Fallback, err)}))
	return second, f, l, nil
}

// observe counts what came of a call, and starts a rollback where it is one
// fault too many.
func (m *Manager) observe(g *generation, err error) FaultKind {
	g.counts.calls.Add(1)
	fault := FaultOf(err)
	switch {
	case err == nil:
		g.counts.answers.Add(1)
	case fault != NoFault:
		m.faulted(g, 1, fault, err)
		return fault
	case isDeclined(err):
		g.counts.declined.Add(1)
	default:
		g.counts.failed.Add(1)
		return NoFault
	}
	g.window.add(m.opt.Now(), m.opt.Limits.Window, 1, 0)
	return NoFault
}

func isDeclined(err error) bool {
	var d *policy.Declined
	return errors.As(err, &d)
}

// faulted counts a fault; calls is 0 where its call was counted before.
func (m *Manager) faulted(g *generation, calls int64, fault FaultKind, err error) {
	g.counts.fault(fault)
	all, faults := g.window.add(m.opt.Now(), m.opt.Limits.Window, calls, 1)
	m.told.tell(g.mark(Event{Kind: Fault, Fault: fault, Reason: err.Error()}))
	if faults < int64(m.opt.Limits.Faults) || float64(faults) <= m.opt.Limits.Rate*float64(all) {
		return
	}
	if l := m.line.Load(); g != l.active && g != l.canary && g != l.shadow || !g.condemned.CompareAndSwap(false, true) {
		return
	}
	reason := fmt.Sprintf("%d faults in %d calls of the last %v, the last: %s: %v", faults, all, m.opt.Limits.Window, fault, err)
	m.inBackground(func() { m.condemn(g, fault, reason) })
}

// inBackground runs f, for which Close waits.
func (m *Manager) inBackground(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line.Load().closed {
		return
	}
	m.background.Go(f)
}

// Name is the active policy's name; empty where none is active.
func (m *Manager) Name() string {
	if g := m.line.Load().active; g != nil {
		return g.Name
	}
	return ""
}

// Version is the active policy's version; empty where none is active.
func (m *Manager) Version() string {
	if g := m.line.Load().active; g != nil {
		return g.Version
	}
	return ""
}

// Digest is the SHA-256 of the active policy's module; zero where none is
// active. While there is a canary, its share of the answers is another module's.
func (m *Manager) Digest() geometry.Digest {
	if g := m.line.Load().active; g != nil {
		return g.Digest
	}
	return geometry.Digest{}
}

// Hooks are those that the policies have which may answer, and the one in shadow:
// a hook that none of them has need not be asked.
func (m *Manager) Hooks() []string {
	l := m.line.Load()
	var out []string
	for _, g := range []*generation{l.active, l.canary, l.shadow, l.fallback} {
		if g == nil {
			continue
		}
		for _, h := range g.policy.Hooks() {
			if !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}

// Calls is how often guests were called, all generations together that Status
// shows.
func (m *Manager) Calls() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int64(0)
	for _, g := range m.live {
		n += g.policy.Calls()
	}
	for _, i := range m.closed {
		n += i.Guest
	}
	return n
}

// SelectLayout asks which layout an engine should use. A canary is chosen by the
// engine, its role and its peers.
//
// Errors: those of policy.Policy.SelectLayout; ErrNoPolicy, ErrClosed.
// Preconditions: the question is not modified later.
func (m *Manager) SelectLayout(ctx context.Context, q policy.Question) (policy.Choice, error) {
	key := fmt.Sprintf("select %q %q %d", q.Engine.Name, q.Engine.Model.Name, q.Role)
	for _, p := range q.Peers {
		key += fmt.Sprintf(" %q", p.Name)
	}
	out, g, l, err := ask(m, func(By) string { return key }, func(p *policy.Policy) (policy.Choice, error) { return p.SelectLayout(ctx, q) })
	if g != nil && worth(ctx, err) {
		m.audit.layout(g, l, q, out, err)
	}
	return out, err
}

// Remap asks RemapFor about a pair of whose engines nothing is known but their
// caches.
func (m *Manager) Remap(ctx context.Context, pair *plan.Pair) (policy.Answer, error) {
	return m.RemapFor(ctx, policy.RemapQuestion{Pair: pair})
}

// RemapFor asks which source rank feeds which destination rank of the pair. A
// canary is chosen by the pair: its digest, or with ByPair its engines' names.
//
// Errors: those of policy.Policy.RemapFor; ErrNoPolicy, ErrClosed.
// Preconditions: q.Pair.Validate() is nil; the question is not modified later.
func (m *Manager) RemapFor(ctx context.Context, q policy.RemapQuestion) (policy.Answer, error) {
	pair := q.Pair.Digest()
	out, g, l, err := ask(m, func(by By) string {
		if by == ByPair {
			return between(q.Pair.Source.Engine, q.Pair.Destination.Engine)
		}
		return "remap " + pair.String()
	}, func(p *policy.Policy) (policy.Answer, error) { return p.RemapFor(ctx, q) })
	if g != nil {
		if err == nil {
			m.who.set(pair, g)
		}
		if worth(ctx, err) {
			m.audit.remap(g, l, q, out, err)
		}
	}
	return out, err
}

// Route asks how the transfer of a request goes. A canary is chosen by
// q.Request, or with ByPair by the engines' names.
//
// Errors: those of policy.Policy.Route; ErrNoPolicy, ErrClosed.
// Preconditions: the question is not modified later.
func (m *Manager) Route(ctx context.Context, q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
	type routed struct {
		decision policy.Decision
		clamped  []policy.Clamped
	}
	out, g, l, err := ask(m, func(by By) string {
		if by == ByPair {
			return between(q.Source.Name, q.Destination.Name)
		}
		return "route " + q.Request
	}, func(p *policy.Policy) (routed, error) {
		d, c, err := p.Route(ctx, q)
		return routed{d, c}, err
	})
	if g != nil && worth(ctx, err) {
		m.audit.route(g, l, q, out.decision, err)
	}
	return out.decision, out.clamped, err
}

// between is what a canary is chosen by where two engines are asked about.
func between(source, destination string) string {
	return fmt.Sprintf("pair %q %q", source, destination)
}

// worth reports whether an answer says something about the policy.
func worth(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() == nil && (FaultOf(err) != NoFault || isDeclined(err))
}

// Judge takes what came of the last answer about a pair: nil where its plan was
// proved, otherwise the error. A proof that failed, and whatever else is the
// policy's fault, counts against the generation that gave the answer; errors of
// others do not.
//
// Preconditions: pair is one that RemapFor was asked about.
func (m *Manager) Judge(pair *plan.Pair, err error) {
	g := m.who.of(pair.Digest())
	if g == nil {
		return // too long ago
	}
	if err == nil {
		g.counts.proved.Add(1)
		return
	}
	if fault := FaultOf(err); fault != NoFault {
		m.faulted(g, 0, fault, err)
	}
}

// History is every change that is still known, oldest first: with a store, those
// of earlier processes too.
//
// Errors: those of the store.
func (m *Manager) History() ([]Event, error) { return m.told.past() }

// Close ends the manager: later calls and changes return ErrClosed. It waits for
// the calls in progress. What is in the store stays as it is, for the next
// process.
func (m *Manager) Close() error {
	m.changing.Lock()
	m.mu.Lock()
	old := m.line.Load()
	if old.closed {
		m.mu.Unlock()
		m.changing.Unlock()
		return ErrClosed
	}
	m.line.Store(&lineup{closed: true})
	var last []*generation
	for _, g := range m.live {
		if g.stage != Draining && g.release() {
			last = append(last, g)
		}
	}
	if f := old.fallback; f != nil && f.release() { // it stands in no list but the line
		last = append(last, f)
	}
	m.mu.Unlock()
	m.changing.Unlock()
	m.stop()
	m.audit.close()
	for _, g := range last {
		m.finish(g)
	}
	m.background.Wait()
	m.open.Wait()
	m.told.close()
	return nil
}
