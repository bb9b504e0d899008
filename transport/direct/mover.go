package direct

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// stopFlag is looked at between chunks.
type stopFlag struct{ v atomic.Bool }

func (s *stopFlag) set()        { s.v.Store(true) }
func (s *stopFlag) isSet() bool { return s.v.Load() }

// final says of an error with which this side stops a job whether there is
// nobody left to wait for.
func final(err error) bool {
	return errors.Is(err, transport.ErrDeadline) || errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrClosed)
}

// task is the part of a job that one worker does at a time: some layers of
// one edge.
type task struct {
	edge   stamp.EdgeKey
	layers plan.Range
}

// Mover copies jobs on a fixed number of goroutines, taking turns between
// jobs.
type Mover struct {
	workers int
	wg      sync.WaitGroup

	mu     sync.Mutex // guards what follows and the jobs' own fields
	work   sync.Cond
	queue  []*Job // those with tasks not taken
	closed bool
}

// Workers is the default number of copy goroutines: half the processors, since
// the engine that is served runs here too.
func Workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// NewMover starts the goroutines; Close ends them.
// Preconditions: workers >= 1.
func NewMover(workers int) *Mover {
	m := &Mover{workers: workers}
	m.work.L = &m.mu
	for range workers {
		m.wg.Go(m.run)
	}
	return m
}

// Close ends the goroutines. Preconditions: every job has finished or been
// stopped.
func (m *Mover) Close() {
	m.mu.Lock()
	m.closed = true
	m.work.Broadcast()
	m.mu.Unlock()
	m.wg.Wait()
}

// Start checks the generations of an opened job and queues it. What is wrong
// ends the job through its Finish.
func (m *Mover) Start(j *Job) {
	m.mu.Lock()
	if j.finished || j.err != nil {
		m.mu.Unlock()
		return
	}
	j.running++ // nobody ends the job, and lets its memory go, during the checks
	m.mu.Unlock()
	err := j.check()
	var tasks []task
	if err == nil {
		tasks = m.split(j)
	}
	m.mu.Lock()
	j.running--
	if j.err == nil {
		j.err = err
	}
	if j.err == nil && m.closed {
		j.err = transport.ErrClosed
	}
	if j.err != nil || len(tasks) == 0 {
		j.finished = true
		m.mu.Unlock()
		j.finish()
		return
	}
	j.tasks = tasks
	m.queue = append(m.queue, j)
	m.work.Broadcast()
	m.mu.Unlock()
}

// split divides a job into tasks: one an edge, or several ranges of layers
// each where there are fewer edges than workers could use.
func (m *Mover) split(j *Job) []task {
	lo, hi := j.Request.Layers.From, j.Request.Layers.To
	if lo == 0 && hi == 0 {
		hi = j.Plan.Pair.Source.Model.Layers
	}
	parts := 1
	if m.workers > 1 {
		parts = min(hi-lo, (2*m.workers+len(j.Edges)-1)/max(len(j.Edges), 1))
	}
	var out []task
	for _, e := range j.Edges {
		for i := range parts {
			from, to := lo+(hi-lo)*i/parts, lo+(hi-lo)*(i+1)/parts
			if from < to {
				out = append(out, task{e, plan.Range{From: from, To: to}})
			}
		}
	}
	return out
}

func (m *Mover) run() {
	var w worker
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		for len(m.queue) == 0 {
			if m.closed {
				return
			}
			m.work.Wait()
		}
		j := m.queue[0]
		copy(m.queue, m.queue[1:])
		m.queue = m.queue[:len(m.queue)-1]
		if j.next >= len(j.tasks) { // stopped while queued
			continue
		}
		t := j.tasks[j.next]
		j.next++
		j.running++
		if j.next < len(j.tasks) {
			m.queue = append(m.queue, j)
		}
		m.mu.Unlock()

		bytes, segments, err := j.copy(t, &w)

		m.mu.Lock()
		j.bytes += bytes
		j.segments += segments
		if err != nil {
			if j.err == nil {
				j.err = err
			}
			j.stopped.set()
			j.next = len(j.tasks)
		}
		if j.running > 1 || j.next < len(j.tasks) {
			j.running--
			continue
		}
		if j.err == nil {
			m.mu.Unlock()
			err = j.checkAgain()
			m.mu.Lock()
			if j.err == nil {
				j.err = err
			}
		}
		j.running--
		j.finished = true
		m.mu.Unlock()
		j.finish()
		m.mu.Lock()
	}
}

func (j *Job) check() error {
	for i := range j.Checks {
		if err := j.Checks[i].find(); err != nil {
			return err
		}
	}
	return nil
}

// Verify checks the generations of a job that is not started here.
func (j *Job) Verify() error { return move.Guard(j.check) }

// checkAgain checks the generations after the copy.
func (j *Job) checkAgain() error {
	// The loads of the copy come before those of the generations: an atomic
	// read-modify-write in between keeps weakly ordered machines from turning
	// them round, which an atomic load alone would not.
	var fence atomic.Uint64
	fence.Add(1)
	return j.check()
}

// copy moves one task's segments.
func (j *Job) copy(t task, w *worker) (bytes, segments int64, err error) {
	req := j.Request
	req.Layers = t.layers
	group := -1
	source, destination := j.Source[t.edge.Source], j.Destination[t.edge.Destination]
	err = move.Guard(func() error {
		if err := j.Plan.Stamper.Cursor(&req, t.edge, &w.cursor); err != nil {
			return err
		}
		w.copier.Reset()
		var of *plan.Run // whose regions the copier uses
		s := &w.segment
		for w.cursor.Next(s) {
			if of == nil || s.Run != of && (s.Run.SourceRegion != of.SourceRegion || s.Run.DestinationRegion != of.DestinationRegion || w.cursor.Group() != group) {
				w.copier.Flush()
				group = w.cursor.Group()
				src, err := span(&source.Rank, j.Plan.Pair.Source.OwnGroup(group), s.Run.SourceRegion)
				if err != nil {
					return err
				}
				dst, err := span(&destination.Rank, j.Plan.Pair.Destination.OwnGroup(group), s.Run.DestinationRegion)
				if err != nil {
					return err
				}
				w.copier.Use(dst, src)
			}
			of = s.Run
			segments++
			for done := false; !done; {
				if j.stopped.isSet() {
					return nil // whoever set it says why
				}
				n, last, err := w.copier.Add(s)
				if err != nil {
					return err
				}
				bytes += n
				done = last
			}
		}
		w.copier.Flush()
		return nil
	})
	return bytes, segments, err
}

// worker is what one copy goroutine keeps: stamping and copying allocate
// nothing.
type worker struct {
	cursor  stamp.Cursor
	segment stamp.Segment
	copier  move.Copier
}
