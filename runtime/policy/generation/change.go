package generation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/store"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
)

// Module is a policy to let in.
type Module struct {
	Wasm   []byte   // not modified, here or by the caller
	Source string   // where it came from, for people
	Keys   []string // whose signatures were accepted
	// AllowDowngrade lets a lower version in than the active one of its name.
	AllowDowngrade bool
}

// enter begins a change. The caller unlocks m.changing.
func (m *Manager) enter() error {
	m.changing.Lock()
	if m.line.Load().closed {
		m.changing.Unlock()
		return ErrClosed
	}
	return nil
}

// Load lets a module in: it is opened, has to conform, is kept, and waits. It is asked nothing
// before Shadow, Canary or Activate. A module that is in already is not let in
// again: its generation is returned.
//
// Errors: *DowngradeError, *ChangeError; those of policy.Open, of
// Options.Conform (*examine.RefusedError) and of the store; ErrClosed.
func (m *Manager) Load(ctx context.Context, mod Module) (uint64, error) {
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.changing.Unlock()
	manifest, err := module.ReadManifest(mod.Wasm)
	if err != nil {
		return 0, blame.On(blame.Policy, fmt.Errorf("load a policy: %w", err))
	}
	digest := geometry.Digest(sha256.Sum256(mod.Wasm))
	refuse := func(err error) (uint64, error) {
		m.told.tell(Event{Kind: Refused, Name: manifest.Name, Version: manifest.Version, Digest: digest.String(), Reason: err.Error()})
		return 0, err
	}
	m.mu.Lock()
	open := len(m.live)
	for _, g := range m.live {
		if g.Digest == digest && g.stage != Draining {
			m.mu.Unlock()
			return g.ID, nil
		}
	}
	id := m.lastID + 1
	m.mu.Unlock()
	if a := m.line.Load().active; a != nil && a.Name == manifest.Name && module.Lower(manifest.Version, a.Version) && !mod.AllowDowngrade {
		return refuse(&DowngradeError{manifest.Name, manifest.Version, a.Version})
	}
	if open >= maxOpen {
		return refuse(full(id, open))
	}
	g, err := m.make(ctx, store.Generation{ID: id, Name: manifest.Name, Version: manifest.Version, Digest: digest, Source: mod.Source, Keys: mod.Keys, Loaded: m.opt.Now().UTC()}, mod.Wasm)
	if err != nil {
		return refuse(err)
	}
	if err := m.opt.Conform(ctx, mod.Wasm); err != nil {
		g.refs.Store(0)
		return refuse(errors.Join(err, m.discard(g)))
	}
	g.stage = Loaded
	next := *m.line.Load()
	if err := m.install(next, m.lastGood, g, Event{Reason: mod.Source}); err != nil {
		g.refs.Store(0)
		return 0, errors.Join(err, m.discard(g))
	}
	return id, nil
}

// make opens a module as a generation that is in no list yet, with one
// reference, the line's.
func (m *Manager) make(ctx context.Context, meta store.Generation, wasm []byte) (*generation, error) {
	g := &generation{Generation: meta, wasm: wasm}
	opt := m.opt.Policy
	opt.Observe = func(c host.Call) { m.called(g, c) }
	var err error
	if g.policy, err = policy.Open(ctx, wasm, opt); err != nil {
		return nil, err
	}
	g.refs.Store(1)
	m.open.Add(1)
	return g, nil
}

// discard closes a generation that nobody ever saw.
func (m *Manager) discard(g *generation) error {
	defer m.open.Done()
	return g.policy.Close()
}

// install makes a change last and then takes effect: the state is on disk
// before any call sees the new line. fresh, where it is not nil, joins the
// generations; its stage is set. Generations that leave the line drain. e is the
// event that says so of those that change stage.
// Preconditions: m.changing is held, so nothing but closings goes on beside it.
func (m *Manager) install(next lineup, good *kept, fresh *generation, e Event) error {
	old := m.line.Load()
	staged := func(g *generation) Stage {
		switch g {
		case next.active:
			return Active
		case next.canary:
			return Canary
		case next.shadow:
			return Shadow
		case old.active, old.canary, old.shadow:
			return Draining
		}
		return g.stage
	}
	m.mu.Lock()
	var all []*generation
	for _, id := range m.ids() {
		all = append(all, m.live[id])
	}
	last := m.lastID
	if fresh != nil {
		all, last = append(all, fresh), max(last, fresh.ID)
	}
	state := store.State{Last: last}
	for _, g := range all {
		stage := staged(g)
		switch stage {
		case Active:
			state.Active = g.ID
		case Canary:
			state.Canary, state.Percent, state.By = g.ID, next.share.Percent, string(next.share.By)
		case Shadow:
			state.Shadow = g.ID
		case Draining, Closed:
			continue
		}
		state.Generations = append(state.Generations, g.Generation)
	}
	m.mu.Unlock()
	if good != nil {
		state.LastGood = good.ID
		state.Generations = append(state.Generations, good.Generation)
	}
	slices.SortFunc(state.Generations, func(a, b store.Generation) int { return cmp.Compare(a.ID, b.ID) })
	if err := m.save(state, good, fresh); err != nil {
		return err
	}

	m.mu.Lock()
	m.lastID, m.lastGood = last, good
	if fresh != nil {
		m.live[fresh.ID] = fresh
	}
	var events []Event
	var leaving []*generation
	for _, g := range all {
		stage, share := staged(g), Share{}
		if stage == Canary {
			share = next.share
		}
		if g == fresh || g.stage != stage || stage == Canary && old.share != next.share {
			said := g.mark(e)
			said.From, said.To, said.Percent, said.By = g.stage, stage, share.Percent, share.By
			switch {
			case g == fresh && e.Kind == RolledBack:
				said = g.mark(Event{Kind: Changed, To: stage, Reason: broughtBack})
			case g == fresh:
				said.From = ""
			}
			if said.Kind == "" {
				said.Kind = Changed
			}
			events = append(events, said)
		}
		if stage == Draining && g.stage != Draining {
			leaving = append(leaving, g)
		}
		g.stage = stage
	}
	m.line.Store(&next)
	m.mu.Unlock()
	m.told.tell(events...)
	if old.fallback != nil && old.fallback != next.fallback {
		m.give(old.fallback)
	}
	for _, g := range leaving {
		m.give(g)
	}
	return nil
}

// save makes a state last, with the modules that it may not have yet.
func (m *Manager) save(state store.State, good *kept, fresh *generation) error {
	if m.opt.Store == nil {
		return nil
	}
	if good != nil {
		if _, err := m.opt.Store.Put(good.wasm); err != nil {
			return err
		}
	}
	if fresh != nil {
		if _, err := m.opt.Store.Put(fresh.wasm); err != nil {
			return err
		}
	}
	return m.opt.Store.Save(state)
}

// ids are those of the live generations, ascending. m.mu is held.
func (m *Manager) ids() []uint64 {
	var out []uint64
	for id := range m.live {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// finish closes a generation whose last reference is gone, without holding up
// whoever gave it back.
func (m *Manager) finish(g *generation) {
	go func() {
		defer m.open.Done()
		calls := g.policy.Calls()
		err := g.policy.Close()
		m.who.forget(g)
		m.mu.Lock()
		listed := m.live[g.ID] == g
		if listed {
			delete(m.live, g.ID)
			g.stage = Closed
			info := g.info(Closed)
			info.Guest = calls
			if len(m.closed) == maxClosed {
				m.closed = append(m.closed[:0], m.closed[1:]...)
			}
			m.closed = append(m.closed, info)
		}
		over := m.line.Load().closed
		m.mu.Unlock()
		if listed && !over {
			e := g.mark(Event{Kind: Changed, From: Draining, To: Closed})
			if err != nil {
				e.Reason = err.Error()
			}
			m.told.tell(e)
		}
	}()
}

// find gives a generation that may be put to a stage.
// Preconditions: m.changing is held.
func (m *Manager) find(id uint64, to Stage) (*generation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.live[id]
	if g == nil {
		return nil, unknown(id, to)
	}
	if err := follows(id, g.stage, to); err != nil {
		return nil, err
	}
	if g.condemned.Load() {
		return nil, &ChangeError{id, to, "it is being rolled back"}
	}
	return g, nil
}

// roles are who stands where in the line.
func (l *lineup) roles() roles {
	number := func(g *generation) uint64 {
		if g == nil {
			return 0
		}
		return g.ID
	}
	return roles{number(l.active), number(l.canary), number(l.shadow)}
}

// leave takes a generation out of the candidates of a line.
func (l *lineup) leave(g *generation) {
	if l.shadow == g {
		l.shadow = nil
	}
	if l.canary == g {
		l.canary, l.share = nil, Share{}
	}
}

// Shadow asks a generation what the active one is asked, and compares. Its
// answers go nowhere.
//
// Errors: *ChangeError; those of the store; ErrClosed.
func (m *Manager) Shadow(id uint64) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.changing.Unlock()
	return m.shadow(id)
}

// shadow is Shadow. m.changing is held.
func (m *Manager) shadow(id uint64) error {
	g, err := m.find(id, Shadow)
	if err != nil {
		return err
	}
	next := *m.line.Load()
	next.leave(g)
	if err := next.roles().room(id, Shadow); err != nil {
		return err
	}
	next.shadow = g
	return m.install(next, m.lastGood, nil, Event{})
}

// Canary gives a generation a share of the questions, or changes its share.
//
// Errors: *ChangeError; those of the store; ErrClosed.
func (m *Manager) Canary(id uint64, share Share) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.changing.Unlock()
	return m.canary(id, share)
}

// canary is Canary. m.changing is held.
func (m *Manager) canary(id uint64, share Share) error {
	share, err := share.valid(id)
	if err != nil {
		return err
	}
	g, err := m.find(id, Canary)
	if err != nil {
		return err
	}
	next := *m.line.Load()
	next.leave(g)
	if err := next.roles().room(id, Canary); err != nil {
		return err
	}
	next.canary, next.share = g, share
	return m.install(next, m.lastGood, nil, Event{})
}

// Activate puts a generation in charge. The one before drains, and is the last
// good one.
//
// Errors: *ChangeError; with a fallback, those of policy.Open; those of the
// store; ErrClosed.
func (m *Manager) Activate(ctx context.Context, id uint64) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.changing.Unlock()
	return m.activate(ctx, id)
}

// activate is Activate. m.changing is held.
func (m *Manager) activate(ctx context.Context, id uint64) error {
	g, err := m.find(id, Active)
	if err != nil {
		return err
	}
	next := *m.line.Load()
	next.leave(g)
	good := m.lastGood
	if next.active != nil {
		good = &kept{next.active.Generation, next.active.wasm}
	}
	next.active = g
	return m.charge(ctx, next, good, nil, Event{})
}

// Promote takes a generation one stage further: from loaded to shadow, to
// canary with the share given, to active. id 0 is the candidate that is furthest:
// the canary, else the one in shadow, else the only one that is loaded. It
// returns which one it was and where it is now.
//
// Errors: those of Shadow, Canary and Activate.
func (m *Manager) Promote(ctx context.Context, id uint64, share Share) (uint64, Stage, error) {
	if err := m.enter(); err != nil {
		return 0, "", err
	}
	defer m.changing.Unlock()
	var loaded []uint64
	m.mu.Lock()
	for _, n := range m.ids() {
		if m.live[n].stage == Loaded {
			loaded = append(loaded, n)
		}
	}
	m.mu.Unlock()
	id, to, err := m.line.Load().roles().promoted(id, loaded)
	if err != nil {
		return id, to, err
	}
	switch to {
	case Shadow:
		err = m.shadow(id)
	case Canary:
		err = m.canary(id, share)
	default:
		err = m.activate(ctx, id)
	}
	return id, to, err
}

// charge installs a line with another active generation, and the fallback that
// goes with it.
// Preconditions: m.changing is held.
func (m *Manager) charge(ctx context.Context, next lineup, good *kept, fresh *generation, e Event) error {
	made := (*generation)(nil)
	switch {
	case m.opt.Fallback == Builtin && next.fallback == nil:
		manifest, err := module.ReadManifest(m.builtin)
		if err != nil {
			return err
		}
		if made, err = m.make(ctx, store.Generation{Name: manifest.Name, Version: manifest.Version, Digest: sha256.Sum256(m.builtin), Source: "built-in"}, m.builtin); err != nil {
			return err
		}
	case m.opt.Fallback == LastGood && good == nil:
		next.fallback = nil
	case m.opt.Fallback == LastGood && (next.fallback == nil || next.fallback.ID != good.ID):
		var err error
		if made, err = m.make(ctx, good.Generation, good.wasm); err != nil {
			return err
		}
	}
	if made != nil {
		next.fallback = made
	}
	if err := m.install(next, good, fresh, e); err != nil {
		if made != nil {
			err = errors.Join(err, m.discard(made))
		}
		return err
	}
	return nil
}

// Drop takes a generation that is not active out of the line. It drains and is
// closed.
//
// Errors: *ChangeError; those of the store; ErrClosed.
func (m *Manager) Drop(id uint64) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.changing.Unlock()
	g, err := m.find(id, Draining)
	if err != nil {
		return err
	}
	return m.drop(g, Event{})
}

// drop takes a generation that is not active out of the line.
// Preconditions: m.changing is held.
func (m *Manager) drop(g *generation, e Event) error {
	next := *m.line.Load()
	next.leave(g)
	m.mu.Lock()
	waits := g.stage == Loaded
	m.mu.Unlock()
	if !waits {
		return m.install(next, m.lastGood, nil, e)
	}
	// It stands in no role: it leaves as if it had stood in one.
	m.mu.Lock()
	g.stage = Draining
	m.mu.Unlock()
	if err := m.install(next, m.lastGood, nil, e); err != nil {
		m.mu.Lock()
		g.stage = Loaded
		m.mu.Unlock()
		return err
	}
	said := g.mark(e)
	said.From, said.To = Loaded, Draining
	if said.Kind == "" {
		said.Kind = Changed
	}
	m.told.tell(said)
	m.give(g)
	return nil
}

// Rollback puts the last good policy in charge, as a generation of its own; the
// active one drains. There is no last good policy after that.
//
// Errors: ErrNoLastGood; those of policy.Open and of the store; ErrClosed.
func (m *Manager) Rollback(ctx context.Context, reason string) (uint64, error) {
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.changing.Unlock()
	return m.rollback(ctx, Event{Kind: RolledBack, Reason: reason})
}

// rollback reopens the last good policy and puts it in charge.
// Preconditions: m.changing is held.
func (m *Manager) rollback(ctx context.Context, e Event) (uint64, error) {
	good := m.lastGood
	if good == nil {
		return 0, blame.On(blame.Operator, ErrNoLastGood)
	}
	meta := good.Generation
	m.mu.Lock()
	meta.ID, meta.Loaded = m.lastID+1, m.opt.Now().UTC()
	m.mu.Unlock()
	g, err := m.make(ctx, meta, good.wasm)
	if err != nil {
		return 0, err
	}
	g.stage = Active
	next := *m.line.Load()
	next.active = g
	if err := m.charge(ctx, next, nil, g, e); err != nil {
		return 0, errors.Join(err, m.discard(g))
	}
	return g.ID, nil
}

// condemn takes a generation out of the line that did too much wrong.
func (m *Manager) condemn(g *generation, fault FaultKind, reason string) {
	if m.enter() != nil {
		return
	}
	defer m.changing.Unlock()
	e := Event{Kind: RolledBack, Fault: fault, Reason: reason}
	var err error
	switch l := m.line.Load(); g {
	case l.active:
		_, err = m.rollback(m.ctx, e)
	case l.canary, l.shadow:
		err = m.drop(g, e)
	default:
		return // someone else took it out
	}
	if err == nil {
		return
	}
	// It stays, and may be condemned again once it did as much wrong again.
	g.window.clear()
	g.condemned.Store(false)
	m.told.tell(g.mark(Event{Kind: RollbackFailed, Fault: fault, Reason: err.Error() + " (" + reason + ")"}))
}

// restore puts the generations of the store back where they were.
func (m *Manager) restore(ctx context.Context) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	var state store.State
	if m.opt.Store != nil {
		state = m.opt.Store.State()
	}
	m.lastID = state.Last
	var next lineup
	var good *kept
	var changed bool
	refuse := func(meta store.Generation, err error) {
		changed = true
		m.told.tell(Event{Kind: Refused, Generation: meta.ID, Name: meta.Name, Version: meta.Version, Digest: meta.Digest.String(), Reason: err.Error()})
	}
	if meta, ok := state.Find(state.LastGood); ok {
		if wasm, err := m.opt.Store.Module(meta.Digest); err != nil {
			refuse(meta, err)
		} else {
			good = &kept{meta, wasm}
		}
	}
	var events []Event
	for _, meta := range state.Generations {
		if meta.ID == state.LastGood {
			continue
		}
		stage := Loaded
		switch meta.ID {
		case state.Active:
			stage = Active
		case state.Shadow:
			stage = Shadow
		case state.Canary:
			stage = Canary
		}
		e := Event{Kind: Restored, To: stage}
		wasm, err := m.opt.Store.Module(meta.Digest)
		var g *generation
		if err == nil {
			g, err = m.make(ctx, meta, wasm)
		}
		if err != nil && stage == Active && m.opt.Fallback == LastGood && good != nil {
			refuse(meta, err)
			e = Event{Kind: RolledBack, To: stage, Reason: fmt.Sprintf("generation %d cannot be opened: %v", meta.ID, err)}
			again := good.Generation
			again.ID, again.Loaded = m.lastID+1, m.opt.Now().UTC()
			m.lastID = again.ID
			g, err = m.make(ctx, again, good.wasm)
			good, changed = nil, true
		}
		if err != nil {
			if stage == Active {
				return fmt.Errorf("open the active policy, %s %s, generation %d of %s: %w", meta.Name, meta.Version, meta.ID, m.opt.Store.Folder(), err)
			}
			refuse(meta, err)
			continue
		}
		g.stage = stage
		m.mu.Lock()
		m.live[g.ID] = g
		m.mu.Unlock()
		switch stage {
		case Active:
			next.active = g
		case Shadow:
			next.shadow = g
		case Canary:
			next.canary, next.share = g, shareOf(&state)
			e.Percent, e.By = next.share.Percent, next.share.By
		}
		events = append(events, g.mark(e))
	}
	// Candidates of a line without an active generation wait; no state says so
	// that this package wrote.
	if next.active == nil && (next.shadow != nil || next.canary != nil) {
		for _, g := range []*generation{next.shadow, next.canary} {
			if g != nil {
				g.stage, changed = Loaded, true
			}
		}
		next = lineup{}
	}
	m.lastGood = good
	m.line.Store(&next) // what is installed below differs in its fallback at most
	m.told.tell(events...)
	if changed || next.active != nil && m.opt.Fallback != NoFallback {
		return m.charge(ctx, next, good, nil, Event{})
	}
	return nil
}
