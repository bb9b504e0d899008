package generation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/store"
	"github.com/kvferry/kvferry/wasm/module"
)

// Rest is a store that no process runs, changed by the rules of a Manager: the
// next manager on the store begins with what stands there then. Nobody is asked
// anything, so nothing is counted and nothing drains: a generation that leaves
// the line is closed at once. Safe for concurrent use.
type Rest struct {
	mu  sync.Mutex
	opt Options
}

// AtRest is what changes opt.Store; the caller has it open and closes it later.
// Of the other options Policy, Conform, Log and Now are used.
// Preconditions: opt.Store is not nil.
func AtRest(opt Options) *Rest {
	opt.complete()
	return &Rest{opt: opt}
}

// change makes one change last and tells what happened.
func (r *Rest) change(do func(s *store.State) ([]Event, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.opt.Store.State()
	state.Generations = slices.Clone(state.Generations)
	events, err := do(&state)
	if err == nil && len(events) > 0 {
		err = r.opt.Store.Save(state)
	}
	var bad error
	if err == nil || len(events) > 0 && events[0].Kind == Refused {
		bad = r.tell(events)
	}
	return errors.Join(err, bad)
}

// tell writes events to the history.
func (r *Rest) tell(events []Event) error {
	for _, e := range events {
		e.At, e.Reason = r.opt.Now(), clip(e.Reason)
		b, err := json.Marshal(e)
		if err == nil {
			err = r.opt.Store.Append(b)
		}
		if err != nil {
			return fmt.Errorf("the change is made, and the history cannot be written: %w", err)
		}
		e.log(&r.opt.Log)
	}
	return nil
}

// stageOf is where a generation of a state stands.
func stageOf(s *store.State, id uint64) Stage {
	switch id {
	case s.Active:
		return Active
	case s.Canary:
		return Canary
	case s.Shadow:
		return Shadow
	case s.LastGood:
		return Closed
	}
	return Loaded
}

func rolesOf(s *store.State) roles { return roles{s.Active, s.Canary, s.Shadow} }

// said is an event about a generation of a state.
func said(g store.Generation, e Event) Event {
	if e.Kind == "" {
		e.Kind = Changed
	}
	return (&generation{Generation: g}).mark(e)
}

// leave takes a generation out of the candidates.
func leave(s *store.State, id uint64) {
	if s.Shadow == id {
		s.Shadow = 0
	}
	if s.Canary == id {
		s.Canary, s.Percent, s.By = 0, 0, ""
	}
}

// remove takes a generation out of the state.
func remove(s *store.State, id uint64) {
	s.Generations = slices.DeleteFunc(s.Generations, func(g store.Generation) bool { return g.ID == id })
}

// move is a change of stage. It takes the generation out of its role.
func move(s *store.State, id uint64, to Stage) (store.Generation, Stage, error) {
	g, ok := s.Find(id)
	if !ok || id == s.LastGood {
		return g, "", unknown(id, to)
	}
	from := stageOf(s, id)
	if err := follows(id, from, to); err != nil {
		return g, from, err
	}
	leave(s, id)
	return g, from, rolesOf(s).room(id, to)
}

// whole refuses a generation whose module cannot be opened later.
func (r *Rest) whole(g store.Generation) error {
	if _, err := r.opt.Store.Module(g.Digest); err != nil {
		return fmt.Errorf("policy %s %s, generation %d: %w", g.Name, g.Version, g.ID, err)
	}
	return nil
}

// Load lets a module in as Manager.Load does.
//
// Errors: those of Manager.Load.
func (r *Rest) Load(ctx context.Context, mod Module) (id uint64, err error) {
	err = r.change(func(s *store.State) ([]Event, error) {
		manifest, err := module.ReadManifest(mod.Wasm)
		if err != nil {
			return nil, blame.On(blame.Policy, fmt.Errorf("load a policy: %w", err))
		}
		digest := geometry.Digest(sha256.Sum256(mod.Wasm))
		live := 0
		for _, g := range s.Generations {
			if g.ID == s.LastGood {
				continue
			}
			if live++; g.Digest == digest {
				id = g.ID
				return nil, nil
			}
		}
		fresh := store.Generation{ID: s.Last + 1, Name: manifest.Name, Version: manifest.Version, Digest: digest, Source: mod.Source, Keys: mod.Keys, Loaded: r.opt.Now().UTC()}
		refuse := func(err error) ([]Event, error) {
			e := said(fresh, Event{Kind: Refused, Reason: err.Error()})
			e.Generation = 0 // it never was one
			return []Event{e}, err
		}
		if a, ok := s.Find(s.Active); ok && a.Name == manifest.Name && module.Lower(manifest.Version, a.Version) && !mod.AllowDowngrade {
			return refuse(&DowngradeError{manifest.Name, manifest.Version, a.Version})
		}
		if live >= maxOpen {
			return refuse(full(fresh.ID, live))
		}
		p, err := policy.Open(ctx, mod.Wasm, r.opt.Policy)
		if err != nil {
			return refuse(err)
		}
		if err := errors.Join(p.Close(), r.opt.Conform(ctx, mod.Wasm)); err != nil {
			return refuse(err)
		}
		if _, err := r.opt.Store.Put(mod.Wasm); err != nil {
			return nil, err
		}
		id, s.Last = fresh.ID, fresh.ID
		s.Generations = append(s.Generations, fresh)
		return []Event{said(fresh, Event{To: Loaded, Reason: mod.Source})}, nil
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// Shadow is Manager.Shadow: the next process asks the generation beside the
// active one.
//
// Errors: *ChangeError; those of the store.
func (r *Rest) Shadow(id uint64) error {
	return r.change(func(s *store.State) ([]Event, error) { return shadowAtRest(s, id) })
}

func shadowAtRest(s *store.State, id uint64) ([]Event, error) {
	g, from, err := move(s, id, Shadow)
	if err != nil {
		return nil, err
	}
	s.Shadow = id
	return []Event{said(g, Event{From: from, To: Shadow})}, nil
}

// Canary is Manager.Canary: the next process gives the generation its share.
//
// Errors: *ChangeError; those of the store.
func (r *Rest) Canary(id uint64, share Share) error {
	return r.change(func(s *store.State) ([]Event, error) { return canaryAtRest(s, id, share) })
}

func canaryAtRest(s *store.State, id uint64, share Share) ([]Event, error) {
	share, err := share.valid(id)
	if err != nil {
		return nil, err
	}
	g, from, err := move(s, id, Canary)
	if err != nil {
		return nil, err
	}
	s.Canary, s.Percent, s.By = id, share.Percent, string(share.By)
	return []Event{said(g, Event{From: from, To: Canary, Percent: share.Percent, By: share.By})}, nil
}

// Activate is Manager.Activate: the next process begins with the generation.
//
// Errors: *ChangeError; those of the store, also for a module that is not whole.
func (r *Rest) Activate(_ context.Context, id uint64) error {
	return r.change(func(s *store.State) ([]Event, error) { return r.activate(s, id) })
}

func (r *Rest) activate(s *store.State, id uint64) ([]Event, error) {
	g, from, err := move(s, id, Active)
	if err == nil {
		err = r.whole(g)
	}
	if err != nil {
		return nil, err
	}
	events := []Event{said(g, Event{From: from, To: Active})}
	if old, ok := s.Find(s.Active); ok {
		remove(s, s.LastGood)
		s.LastGood = old.ID
		events = append(events, said(old, Event{From: Active, To: Closed}))
	}
	s.Active = id
	return events, nil
}

// Promote is Manager.Promote.
//
// Errors: those of Shadow, Canary and Activate.
func (r *Rest) Promote(_ context.Context, id uint64, share Share) (out uint64, to Stage, err error) {
	err = r.change(func(s *store.State) ([]Event, error) {
		var loaded []uint64
		for _, g := range s.Generations {
			if stageOf(s, g.ID) == Loaded {
				loaded = append(loaded, g.ID)
			}
		}
		var err error
		if out, to, err = rolesOf(s).promoted(id, loaded); err != nil {
			return nil, err
		}
		switch to {
		case Shadow:
			return shadowAtRest(s, out)
		case Canary:
			return canaryAtRest(s, out, share)
		}
		return r.activate(s, out)
	})
	return out, to, err
}

// Rollback is Manager.Rollback.
//
// Errors: ErrNoLastGood; those of the store, also for a module that is not whole.
func (r *Rest) Rollback(_ context.Context, reason string) (id uint64, err error) {
	err = r.change(func(s *store.State) ([]Event, error) {
		good, ok := s.Find(s.LastGood)
		if !ok {
			return nil, blame.On(blame.Operator, ErrNoLastGood)
		}
		if err := r.whole(good); err != nil {
			return nil, err
		}
		old, had := s.Find(s.Active)
		remove(s, s.Active)
		remove(s, s.LastGood)
		good.ID, good.Loaded = s.Last+1, r.opt.Now().UTC()
		id, s.Last, s.Active, s.LastGood = good.ID, good.ID, good.ID, 0
		s.Generations = append(s.Generations, good)
		var events []Event
		if had {
			events = append(events, said(old, Event{Kind: RolledBack, From: Active, To: Closed, Reason: reason}))
		}
		return append(events, said(good, Event{To: Active, Reason: broughtBack})), nil
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// Drop is Manager.Drop.
//
// Errors: *ChangeError; those of the store.
func (r *Rest) Drop(id uint64) error {
	return r.change(func(s *store.State) ([]Event, error) {
		g, from, err := move(s, id, Draining)
		if err != nil {
			return nil, err
		}
		remove(s, id)
		return []Event{said(g, Event{From: from, To: Closed})}, nil
	})
}

// Recovered tells the history that the store was recovered from its backup, and
// where the broken state is kept.
//
// Errors: those of the store.
func (r *Rest) Recovered(set string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.opt.Store.State()
	e := Event{Kind: Restored, To: Active, Reason: "the state could not be read and is again what its backup says"}
	if set != "" {
		e.Reason += "; the broken one is " + set
	}
	if g, ok := state.Find(state.Active); ok {
		e = said(g, e)
	}
	return r.tell([]Event{e})
}

// Status is what stands in the store: where each generation is, and no counters.
func (r *Rest) Status() Status {
	state := r.opt.Store.State()
	var out Status
	for _, g := range state.Generations {
		i := Info{ID: g.ID, Name: g.Name, Version: g.Version, Digest: g.Digest, Source: g.Source, Keys: slices.Clone(g.Keys), Loaded: g.Loaded, Stage: stageOf(&state, g.ID)}
		if g.ID == state.LastGood {
			out.LastGood = &i
			continue
		}
		if i.Stage == Canary {
			i.Share = shareOf(&state)
		}
		out.Generations = append(out.Generations, i)
	}
	return out
}

// History is every change that is still known, oldest first.
//
// Errors: those of the store.
func (r *Rest) History() ([]Event, error) {
	lines, err := r.opt.Store.History()
	return read(lines), err
}
