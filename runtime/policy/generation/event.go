package generation

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/runtime/policy/store"
)

// EventKind says what happened.
type EventKind string

// The kinds of events. Those of the first group are changes: they are kept in
// the history. Those of the second tell of answers: they are counted, and one
// event a second and generation stands for all.
const (
	Changed        EventKind = "changed"         // a generation went From one stage To another
	Restored       EventKind = "restored"        // a generation of the process before is back where it was
	RolledBack     EventKind = "rolled back"     // a generation was taken out of the line; Reason says why
	RollbackFailed EventKind = "rollback failed" // there is nothing to go back to, or it cannot be opened
	Refused        EventKind = "refused"         // a module was not let in, or one of the store could not be opened

	Fault    EventKind = "fault"    // a policy did something wrong
	Replaced EventKind = "replaced" // the fallback answered in a policy's place
	Costly   EventKind = "costly"   // an answer costs far more than the built-in policy's
	Differs  EventKind = "differs"  // the candidate in shadow answers otherwise than the active policy
)

func (k EventKind) change() bool {
	switch k {
	case Changed, Restored, RolledBack, RollbackFailed, Refused:
		return true
	}
	return false
}

// Event is something that happened to a policy, or that one did.
type Event struct {
	At         time.Time `json:"at"`
	Kind       EventKind `json:"event"`
	Generation uint64    `json:"generation,omitempty"` // 0: none yet
	Name       string    `json:"name,omitempty"`
	Version    string    `json:"version,omitempty"`
	Digest     string    `json:"digest,omitempty"`
	From       Stage     `json:"from,omitempty"`
	To         Stage     `json:"to,omitempty"`
	Percent    float64   `json:"percent,omitempty"` // of a canary
	By         By        `json:"by,omitempty"`      // likewise
	Fault      FaultKind `json:"fault,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Count      int64     `json:"count,omitempty"` // of events of the second group that this one stands for
}

const maxReason = 1024 // bytes of a reason that are kept

// clip cuts a reason to what is kept of it.
func clip(s string) string {
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "..."
	}
	return s
}

// teller writes events to the history and the log and tells whoever listens, in
// order, from a goroutine of its own: nothing that makes an event waits for a
// disk or a listener.
type teller struct {
	log    zerolog.Logger
	listen func(Event)
	store  *store.Store // nil: the history is kept in memory only
	now    func() time.Time
	wake   chan struct{} // holds one
	done   chan struct{}

	writing sync.Mutex // held while an event moves from the queue to the store's history; before mu

	mu      sync.Mutex
	queue   []Event // not written yet
	ended   bool
	history []Event // changes, oldest first
	counts  map[EventKind]int64
	lost    int64 // changes that could not be written to the store's history
	limits  map[limitKey]*limit
}

type limitKey struct {
	kind       EventKind
	generation uint64
}

// limit is how much of a kind was not told yet.
type limit struct {
	last  time.Time
	count int64
}

const (
	maxHistory = 256
	maxLimits  = 1024
)

func (t *teller) start() {
	t.wake, t.done, t.limits, t.counts = make(chan struct{}, 1), make(chan struct{}), map[limitKey]*limit{}, map[EventKind]int64{}
	go func() {
		defer close(t.done)
		for {
			t.writing.Lock()
			t.mu.Lock()
			if len(t.queue) == 0 {
				ended := t.ended
				t.mu.Unlock()
				t.writing.Unlock()
				if ended {
					return
				}
				<-t.wake
				continue
			}
			e := t.queue[0]
			t.queue = t.queue[1:]
			t.mu.Unlock()
			t.write(e)
			t.writing.Unlock()
			e.log(&t.log)
			if t.listen != nil {
				t.listen(e)
			}
		}
	}()
}

// close tells what is queued and ends.
func (t *teller) close() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.nudge()
	<-t.done
}

func (t *teller) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tell queues events.
func (t *teller) tell(events ...Event) {
	t.mu.Lock()
	now := t.now()
	for _, e := range events {
		e.At = now
		t.counts[e.Kind]++
		e.Reason = clip(e.Reason)
		if e.Kind.change() {
			if len(t.history) == maxHistory {
				t.history = append(t.history[:0], t.history[1:]...)
			}
			t.history = append(t.history, e)
		} else {
			key := limitKey{e.Kind, e.Generation}
			l := t.limits[key]
			if l == nil {
				if len(t.limits) >= maxLimits {
					clear(t.limits)
				}
				l = &limit{}
				t.limits[key] = l
			}
			l.count++
			if since := now.Sub(l.last); !l.last.IsZero() && since >= 0 && since < time.Second {
				continue
			}
			e.Count, l.last, l.count = l.count, now, 0
		}
		t.queue = append(t.queue, e)
	}
	t.mu.Unlock()
	t.nudge()
}

// write puts a change into the store's history. t.writing is held.
func (t *teller) write(e Event) {
	if t.store == nil || !e.Kind.change() {
		return
	}
	b, err := json.Marshal(e)
	if err == nil {
		err = t.store.Append(b)
	}
	if err != nil {
		t.mu.Lock()
		t.lost++
		t.mu.Unlock()
		t.log.Error().Err(err).Msg("policy history cannot be written")
	}
}

// log writes an event to a log.
func (e Event) log(log *zerolog.Logger) {
	level := zerolog.InfoLevel
	switch e.Kind {
	case RolledBack, Fault, Replaced, Costly, Refused:
		level = zerolog.WarnLevel
	case RollbackFailed:
		level = zerolog.ErrorLevel
	}
	line := log.WithLevel(level).Str("event", string(e.Kind)).Uint64("generation", e.Generation).Str("policy", e.Name).Str("version", e.Version).Str("digest", e.Digest)
	for _, f := range []struct{ key, value string }{{"from", string(e.From)}, {"to", string(e.To)}, {"fault", string(e.Fault)}, {"reason", e.Reason}} {
		if f.value != "" {
			line = line.Str(f.key, f.value)
		}
	}
	if e.Percent > 0 {
		line = line.Float64("percent", e.Percent).Str("by", string(e.By))
	}
	if e.Count > 0 {
		line = line.Int64("count", e.Count)
	}
	line.Msg("policy " + string(e.Kind))
}

// past is the history: what the store has, or what this process saw.
func (t *teller) past() ([]Event, error) {
	if t.store == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		return append([]Event(nil), t.history...), nil
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	lines, err := t.store.History()
	if err != nil {
		return nil, err
	}
	out := read(lines)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.queue {
		if e.Kind.change() {
			out = append(out, e)
		}
	}
	return out, nil
}

// read reads the lines of a history. One that is no event is left out.
func read(lines [][]byte) []Event {
	var out []Event
	for _, line := range lines {
		var e Event
		if json.Unmarshal(line, &e) == nil {
			out = append(out, e)
		}
	}
	return out
}
