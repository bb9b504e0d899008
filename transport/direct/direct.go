// Package direct is what loop and shm share: operations between memories that
// this process can address on both sides, copied straight to their place.
//
// A Core keeps a provider's books (ranks, plans, grants, operations,
// completions), a Mover copies on a fixed number of goroutines, and a Job is
// one operation's part of either. How the peer is reached, and on which of the
// two sides a job runs, is the provider's.
//
// Lock order: Core.mu, then Gate.mu, then Mover.mu. None is held while a
// job's Finish or Interrupt runs.
package direct

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Gate is something that jobs run under and that can be shut: a grant, a
// rank's memory, a peer. The zero value is open.
type Gate struct {
	mu   sync.Mutex
	jobs map[*Job]struct{}
	err  error         // why it is shut
	idle chan struct{} // closed and renewed whenever a job leaves
}

// enter registers j, or returns why the gate is shut.
func (g *Gate) enter(j *Job) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	if g.jobs == nil {
		g.jobs = map[*Job]struct{}{}
	}
	g.jobs[j] = struct{}{}
	return nil
}

func (g *Gate) leave(j *Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.jobs, j)
	if g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Stop stops every job under the gate with err.
func (g *Gate) Stop(err error) {
	g.mu.Lock()
	jobs := make([]*Job, 0, len(g.jobs))
	for j := range g.jobs {
		jobs = append(jobs, j)
	}
	g.mu.Unlock()
	for _, j := range jobs {
		j.Stop(err)
	}
}

// Shut lets no further job in, stops those inside with err and returns without
// waiting for them.
func (g *Gate) Shut(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.Stop(err)
}

// Wait returns when no job is under the gate, or none that copies here where
// local is set.
func (g *Gate) Wait(ctx context.Context, local bool) error {
	for {
		g.mu.Lock()
		busy := false
		for j := range g.jobs {
			busy = busy || !local || j.Interrupt == nil
		}
		if !busy {
			g.mu.Unlock()
			return nil
		}
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Memory is one rank's memory, ours or a peer's. Shutting its gate makes it
// unusable; once Wait returned, no job refers to it.
type Memory struct {
	Gate
	memory.Rank
}

// Check is the generations that some blocks must show before and after a
// copy, on one rank.
type Check struct {
	Group, Rank int
	Table       memory.Generations
	Blocks      []uint32
	Granted     []uint64 // as many
}

// find returns the first block that was given back.
func (c *Check) find() error {
	n := uint32(c.Table.Blocks())
	for i, b := range c.Blocks {
		if b >= n {
			return &transport.Stale{Group: c.Group, Rank: c.Rank, Block: b, Granted: c.Granted[i], Found: 0}
		}
		if found := c.Table.Load(int(b)); found != c.Granted[i] {
			return &transport.Stale{Group: c.Group, Rank: c.Rank, Block: b, Granted: c.Granted[i], Found: found}
		}
	}
	return nil
}

// Result is what became of a job.
type Result struct {
	Err             error
	Bytes, Segments int64
}

// Job is one operation, or one that a peer submitted and this side carries
// out or only keeps track of. Fields are set before Open and not changed after
// Start.
type Job struct {
	Plan                *Plan
	Request             stamp.Request
	Edges               []stamp.EdgeKey
	Source, Destination map[int]*Memory // by rank
	Checks              []Check
	Granted             [][]uint64 // the peer's generations, for checks made later
	Deadline            time.Time
	// Finish is called exactly once, when nothing of the job runs any more,
	// from any goroutine.
	Finish func(Result)
	// Interrupt, where not nil, makes this a job that the peer copies: it is
	// never started here, ends by Complete, and Interrupt asks the peer to
	// stop.
	Interrupt func(err error)

	mover *Mover
	gates []*Gate
	timer *time.Timer

	// Guarded by mover.mu.
	tasks    []task
	next     int // first task not taken
	running  int
	finished bool
	err      error // the first thing that went wrong
	bytes    int64
	segments int64

	stopped stopFlag
}

// errFinished says that a job was stopped before it was complete: its Finish
// has been or is being called.
var errFinished = errors.New("transport/direct: the job has finished")

// Open makes the job known to the mover, enters the gates and starts its
// deadline. On an error nothing is left of it and Finish is not called. A job
// that is stopped meanwhile opens without an error and has called Finish.
func (j *Job) Open(m *Mover, gates ...*Gate) error {
	j.mover = m
	err := j.Enter(gates...)
	j.mover.mu.Lock()
	if j.finished {
		j.mover.mu.Unlock()
		return nil
	}
	if err == nil {
		if !j.Deadline.IsZero() {
			j.timer = time.AfterFunc(time.Until(j.Deadline), func() { j.Stop(transport.ErrDeadline) })
		}
		j.mover.mu.Unlock()
		return nil
	}
	j.finished = true
	entered := j.gates
	j.mover.mu.Unlock()
	for _, g := range entered {
		g.leave(j)
	}
	return err
}

// Enter enters further gates. On an error the job still lives: the caller
// stops it.
func (j *Job) Enter(gates ...*Gate) error {
	for _, g := range gates {
		if err := g.enter(j); err != nil {
			return err
		}
		j.mover.mu.Lock()
		late := j.finished
		if !late {
			j.gates = append(j.gates, g)
		}
		j.mover.mu.Unlock()
		if late {
			g.leave(j)
			return errFinished
		}
	}
	return nil
}

// Stop ends the job with err unless it has finished: at once if nothing of it
// runs, else within one chunk. A job that the peer copies is interrupted; it
// ends at once only where there is nobody to wait for (deadline, dead peer,
// closed provider).
func (j *Job) Stop(err error) {
	j.mover.mu.Lock()
	if j.finished {
		j.mover.mu.Unlock()
		return
	}
	first := j.err == nil
	if first {
		j.err = err
	}
	j.stopped.set()
	j.next = len(j.tasks)
	wait := j.running > 0 || j.Interrupt != nil && !final(err)
	if wait {
		j.mover.mu.Unlock()
		if j.Interrupt != nil && first {
			j.Interrupt(err)
		}
		return
	}
	j.finished = true
	j.mover.mu.Unlock()
	if j.Interrupt != nil && first {
		j.Interrupt(err)
	}
	j.finish()
}

// Complete ends a job that the peer copied with the peer's result. An error
// with which this side stopped it first stands.
func (j *Job) Complete(r Result) {
	j.mover.mu.Lock()
	if j.finished {
		j.mover.mu.Unlock()
		return
	}
	j.finished = true
	if j.err == nil {
		j.err = r.Err
	}
	j.bytes, j.segments = r.Bytes, r.Segments
	j.mover.mu.Unlock()
	j.finish()
}

// finish reports and leaves the gates, in this order: whoever waits at a gate
// finds the completion reported.
func (j *Job) finish() {
	j.mover.mu.Lock()
	r := Result{j.err, j.bytes, j.segments}
	gates, timer := j.gates, j.timer
	j.gates = nil
	j.mover.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	j.Finish(r)
	for _, g := range gates {
		g.leave(j)
	}
}
