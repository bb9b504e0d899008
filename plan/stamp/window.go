package stamp

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
)

// What a Stamper keeps of windows. The least recently used go first; one that
// is asked for again is then built and proved again.
const (
	maxWindows     = 1024
	maxWindowBytes = 32 << 20 // estimated
)

// window names tokens [from, to) of a group's period.
type window struct {
	group    int
	from, to int64
}

// windows keeps the plans of windows.
type windows struct {
	mu             sync.Mutex
	entries        map[window]*entry
	newest, oldest *entry // both ends of the list by use
	bytes          int
}

// entry is one window's plan, or why there is none. Whoever asks first makes
// it; the others wait for that one only.
type entry struct {
	key        window
	once       sync.Once
	done       atomic.Bool
	plan       *prepared
	err        error
	bytes      int    // 0 until counted
	prev, next *entry // towards the newest, towards the oldest
}

// get returns the entry for the key, new or known, as the newest.
func (w *windows) get(key window) *entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[key]
	switch {
	case e == nil:
		e = &entry{key: key}
		w.entries[key] = e
	case e == w.newest:
		return e
	default:
		w.unlink(e)
	}
	e.next = w.newest
	if w.newest != nil {
		w.newest.prev = e
	}
	w.newest = e
	if w.oldest == nil {
		w.oldest = e
	}
	return e
}

func (w *windows) unlink(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		w.newest = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		w.oldest = e.prev
	}
	e.prev, e.next = nil, nil
}

// count adds what a finished entry takes and lets the oldest go.
func (w *windows) count(e *entry, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries[e.key] != e { // gone meanwhile
		return
	}
	e.bytes = bytes
	w.bytes += bytes
	for (len(w.entries) > maxWindows || w.bytes > maxWindowBytes) && w.oldest != e {
		o := w.oldest
		w.unlink(o)
		delete(w.entries, o.key)
		w.bytes -= o.bytes
	}
}

// windowed returns the proved plan of tokens [from, to) of a group's period.
// A window that cannot be planned stays so: the answer is kept, too.
func (s *Stamper) windowed(group int, from, to int64) (*prepared, error) {
	e := s.windows.get(window{group, from, to})
	if !e.done.Load() {
		s.fill(e)
	}
	return e.plan, e.err
}

// fill builds and proves an entry's window, once.
func (s *Stamper) fill(e *entry) {
	e.once.Do(func() {
		defer e.done.Store(true)
		pair, whole := s.proven.Pair(), s.proven.Plan()
		windows := make([]build.Window, len(whole.Groups))
		for g := range windows {
			windows[g] = build.Window{None: true}
		}
		windows[e.key.group] = build.Window{From: e.key.from, To: e.key.to}
		const overhead = 512
		bytes := overhead
		pl, err := build.Build(pair, whole.Assignments, windows, plan.DefaultBudget())
		if err == nil {
			var proven proof.Proven
			if proven, err = proof.Check(pair, pl); err == nil {
				e.plan = prepare(pair, proven.Plan())
				bytes += len(pl.Runs)*160 + len(pl.Pieces)*72 + len(pl.Edges)*80 + len(pl.Assignments)*104
			}
		}
		if err != nil {
			e.err = fmt.Errorf("plan tokens %d to %d of a period of group %d: %w", e.key.from, e.key.to-1, e.key.group, err)
		}
		s.windows.count(e, bytes)
	})
}

// part is a plan applied to a range of periods.
type part struct {
	plan     *prepared
	from, to int64 // periods
}

// parts fills in the head, the whole periods and the tail of a span; the number
// returned of them are not empty.
func (s *Stamper) parts(group int, span Span, out *[3]part) (int, error) {
	if span.Empty() {
		return 0, nil
	}
	from, to := span.From, span.To
	period := s.whole.plan.Groups[group].Tokens
	first, last := from/period, to/period // periods in which they lie
	head, tail := from%period, to%period
	n := 0
	if first == last || head != 0 {
		end := period
		if first == last {
			end, tail = tail, 0
		}
		p, err := s.windowed(group, head, end)
		if err != nil {
			return 0, err
		}
		out[n] = part{p, first, first + 1}
		n++
		first++
	}
	if first < last {
		out[n] = part{s.whole, first, last}
		n++
	}
	if tail != 0 {
		p, err := s.windowed(group, 0, tail)
		if err != nil {
			return 0, err
		}
		out[n] = part{p, last, last + 1}
		n++
	}
	return n, nil
}

// runs is the range of runs of an edge and of layers (all: the zero value) in
// a part.
func (p *part) runs(group int, edge EdgeKey, layers plan.Range) (from, to int) {
	i, ok := p.plan.edges[edgeID{group, edge.Source, edge.Destination}]
	if !ok {
		return 0, 0
	}
	e := &p.plan.plan.Edges[i]
	if layers == (plan.Range{}) {
		return e.From, e.To
	}
	runs := p.plan.plan.Runs[e.From:e.To]
	from = sort.Search(len(runs), func(i int) bool { return runs[i].Layer >= layers.From })
	to = sort.Search(len(runs), func(i int) bool { return runs[i].Layer >= layers.To })
	return e.From + from, e.From + to
}
