// Package load turns bytes that are on their way into how busy ranks and links
// are, as policies see it: eight buckets, sampled at most once a second, that do
// not flicker. What a meter says is part of every question and so of what
// answers are kept by, so it changes seldom and never within a sample.
//
// A meter is pure: it has no clock, and whoever uses it says what time it is.
package load

import (
	"maps"
	"math"
	"time"

	"github.com/kvferry/kvferry/runtime/policy"
)

// Options of a meter. Zero fields take the defaults named.
type Options struct {
	Every time.Duration // between samples, at least; 1 s, and no less
	Unit  int64         // bytes from which on something is not idle; 1 MiB
	Most  int           // things that are metered at a time; 16384
}

// The buckets: 1 is less than a unit of work, and from bucket b on to the next
// one the work grows by step. Work that lies less than slack of an edge beyond
// it leaves the bucket as it was.
const (
	step  = 4
	slack = 0.25
)

// Meter meters things that are named by a K: ranks, links. Not for concurrent
// use.
type Meter[K comparable] struct {
	opt   Options
	begun time.Time // of the current sample; zero: there is none
	work  map[K]*work
	told  map[K]policy.Load
	now   Snapshot[K]
	full  bool // something was not let in
}

// work is what one thing has to do.
type work struct {
	flying int64   // bytes on their way
	moved  int64   // bytes that arrived since the last sample
	rate   float64 // bytes a second, averaged over the samples before
	bucket policy.Load
}

// Snapshot is how busy everything was at one sample. It is never modified.
type Snapshot[K comparable] struct {
	// Number is another one whenever any bucket is.
	Number uint64
	of     map[K]policy.Load
	absent policy.Load
}

// Load is the bucket of k. What has no work is idle; where there were too many
// things to meter, what was not metered is not known.
func (s Snapshot[K]) Load(k K) policy.Load {
	if l, ok := s.of[k]; ok {
		return l
	}
	return s.absent
}

// Known is the bucket of k, or 0 where nothing is metered and nothing was told:
// of what others meter, that says nothing.
func (s Snapshot[K]) Known(k K) policy.Load { return s.of[k] }

// New makes a meter.
func New[K comparable](o Options) *Meter[K] {
	o.Every = max(o.Every, time.Second)
	if o.Unit <= 0 {
		o.Unit = 1 << 20
	}
	if o.Most <= 0 {
		o.Most = 1 << 14
	}
	return &Meter[K]{opt: o, work: map[K]*work{}, told: map[K]policy.Load{}, now: Snapshot[K]{absent: 1}}
}

// Begin says that so many bytes are on their way from, to or through k. Each
// Begin has one End with the same bytes. False: too much is metered already, and
// this is not; there is to be no End.
func (m *Meter[K]) Begin(k K, bytes int64) bool {
	w := m.work[k]
	if w == nil {
		if len(m.work)+len(m.told) >= m.opt.Most {
			m.full = true
			return false
		}
		w = &work{bucket: 1}
		m.work[k] = w
	}
	w.flying += bytes
	return true
}

// End says that bytes which began are no longer on their way, and that moved of
// them arrived.
func (m *Meter[K]) End(k K, bytes, moved int64) {
	if w := m.work[k]; w != nil {
		w.flying -= bytes
		w.moved += moved
	}
}

// Tell enters what somebody else says of k, in place of what he said before; it
// shows from the next sample on. A load that is none says that it is not known.
// False: too much is metered already.
func (m *Meter[K]) Tell(k K, l policy.Load) bool {
	if l > policy.MaxLoad {
		l = 0
	}
	if _, ok := m.told[k]; !ok && len(m.work)+len(m.told) >= m.opt.Most {
		m.full = true
		return false
	}
	m.told[k] = l
	return true
}

// Forget drops what was told of k.
func (m *Meter[K]) Forget(k K) { delete(m.told, k) }

// Sample returns how busy everything is at a time, or was at the last sample
// where that is less than Options.Every ago or lies in the future. Of what somebody
// told and what is metered the busier counts: either sees only a part.
func (m *Meter[K]) Sample(now time.Time) Snapshot[K] {
	passed := m.opt.Every
	if !m.begun.IsZero() {
		if passed = now.Sub(m.begun); passed < m.opt.Every {
			return m.now
		}
	}
	m.begun = now
	of := maps.Clone(m.told)
	// Each sample weighs as much as all before it together.
	weight := math.Exp2(-float64(passed) / float64(m.opt.Every))
	for k, w := range m.work {
		w.rate = w.rate*weight + float64(w.moved)/passed.Seconds()*(1-weight)
		w.moved = 0
		w.bucket = m.bucket(w.bucket, float64(w.flying)+w.rate)
		if w.flying <= 0 && w.rate < 1 {
			delete(m.work, k)
			continue
		}
		of[k] = max(of[k], w.bucket)
	}
	absent := policy.Load(1)
	if m.full {
		absent = 0
	}
	m.full = false
	if absent != m.now.absent || !maps.Equal(of, m.now.of) {
		m.now = Snapshot[K]{m.now.Number + 1, of, absent}
	}
	return m.now
}

// bucket is where work belongs that was in bucket b.
func (m *Meter[K]) bucket(b policy.Load, work float64) policy.Load {
	for b < policy.MaxLoad && work >= m.edge(b+1)*(1+slack) {
		b++
	}
	for b > 1 && work < m.edge(b)*(1-slack) {
		b--
	}
	return b
}

// edge is the work from which on bucket b begins.
func (m *Meter[K]) edge(b policy.Load) float64 {
	return float64(m.opt.Unit) * math.Pow(step, float64(b)-2)
}
