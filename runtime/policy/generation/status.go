package generation

import (
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Info is a generation as Status shows it.
type Info struct {
	ID       uint64
	Name     string
	Version  string
	Digest   geometry.Digest
	Source   string
	Keys     []string
	Loaded   time.Time
	Stage    Stage
	Share    Share // of a canary
	Guest    int64 // calls of its guest; the other answers were known
	Counters Counters
}

// Status is what a manager is doing.
type Status struct {
	Generations []Info // live ones by number, then the last that were closed, oldest first
	LastGood    *Info  // what a rollback goes back to; nil: nothing. It has no counters
	Fallback    Fallback
	// FallbackBy is who answers where a policy fails; nil: nobody.
	FallbackBy *Info
	// Unaudited are answers that were to be compared with the shadow's or weighed
	// against the built-in policy's, and were not, because too many were waiting.
	Unaudited   int64
	Differences []Difference // the last answers of shadows that differed, oldest first
	// Events is how many there were of each kind since the manager was made, those
	// included that were not told one by one.
	Events map[EventKind]int64
	// Unwritten are changes that the store's history could not take.
	Unwritten int64
}

// Difference is a question to which a candidate in shadow gave another answer
// than the active policy.
type Difference struct {
	At                time.Time
	Hook              string
	About             string // what was asked about
	Candidate, Active uint64 // generations
	Text              string // what the candidate answers, and the active one
}

func (g *generation) info(stage Stage) Info {
	return Info{ID: g.ID, Name: g.Name, Version: g.Version, Digest: g.Digest, Source: g.Source, Keys: slices.Clone(g.Keys), Loaded: g.Loaded, Stage: stage, Guest: g.policy.Calls(), Counters: g.counters(stage)}
}

// Status is what the manager is doing, at one moment as far as stages go;
// counters go on while they are read.
func (m *Manager) Status() Status {
	m.mu.Lock()
	l := m.line.Load()
	s := Status{Fallback: m.opt.Fallback}
	for _, id := range m.ids() {
		i := m.live[id].info(m.live[id].stage)
		if m.live[id] == l.canary {
			i.Share = l.share
		}
		s.Generations = append(s.Generations, i)
	}
	s.Generations = append(s.Generations, m.closed...)
	if k := m.lastGood; k != nil {
		s.LastGood = &Info{ID: k.ID, Name: k.Name, Version: k.Version, Digest: k.Digest, Source: k.Source, Keys: slices.Clone(k.Keys), Loaded: k.Loaded, Stage: Closed}
	}
	if l.fallback != nil {
		i := l.fallback.info(Active)
		s.FallbackBy = &i
	}
	m.mu.Unlock()
	s.Unaudited = m.audit.dropped.Load()
	s.Differences = m.audit.differences()
	m.told.mu.Lock()
	s.Unwritten, s.Events = m.told.lost, maps.Clone(m.told.counts)
	m.told.mu.Unlock()
	return s
}
