package direct

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/memory/move"
)

// A provider that moves the bytes itself, chunk by chunk and on its own
// goroutines, opens a job, never starts it, brackets each chunk by Begin and
// End, and calls Complete when all are done. Stop then ends the job at once if
// no chunk runs, else with the End of the last one that does.

// Begin keeps the job's memory for one chunk, until End. It returns false,
// and the caller touches nothing, if the job has been stopped.
func (j *Job) Begin() bool {
	j.mover.mu.Lock()
	defer j.mover.mu.Unlock()
	if j.finished || j.err != nil {
		return false
	}
	j.running++
	return true
}

// End reports what the chunk moved and what went wrong with it, which ends the
// job, and whether the job goes on.
// Preconditions: Begin returned true.
func (j *Job) End(bytes, segments int64, err error) bool {
	j.mover.mu.Lock()
	j.running--
	j.bytes += bytes
	j.segments += segments
	if err != nil {
		if j.err == nil {
			j.err = err
		}
		j.stopped.set()
	}
	goes := j.err == nil
	if goes || j.running > 0 || j.finished {
		j.mover.mu.Unlock()
		return goes
	}
	j.finished = true
	j.mover.mu.Unlock()
	j.finish()
	return false
}

// CheckRank returns the first block of a rank that was given back, as a
// *transport.Stale. Copies made before the call have read or written the
// blocks as they were granted, if it returns nil.
// Preconditions: between Begin and End.
func (j *Job) CheckRank(rank int) error {
	var fence atomic.Uint64 // as in checkAgain
	fence.Add(1)
	return move.Guard(func() error {
		for i := range j.Checks {
			if j.Checks[i].Rank != rank {
				continue
			}
			if err := j.Checks[i].find(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Region returns the bytes of a region of the rank.
func (m *Memory) Region(group, region int) ([]byte, error) { return span(&m.Rank, group, region) }
