package direct

import (
	"slices"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Submission is this side's part of an operation that it submits.
type Submission struct {
	Plan     *Plan
	Edges    []stamp.EdgeKey
	Memories map[int]*Memory // ours, by rank
	// Snapshot is, for a write, our generations now by rank and group, for the
	// entries of the tokens.
	Snapshot map[int][][]uint64

	op *transport.Operation
}

// Local checks an operation against this side's plan and memory.
//
// Errors: *transport.Mismatch, *transport.Unregistered, and what the stamper
// finds wrong with the request.
func Local(p *Plan, op *transport.Operation, c *Core) (*Submission, error) {
	if err := CheckSide(op.Direction, p.Local, true); err != nil {
		return nil, err
	}
	if err := p.Stamper.Validate(&op.Request); err != nil {
		return nil, err
	}
	s := &Submission{Plan: p, Edges: p.Stamper.Edges(&op.Request), op: op}
	side := p.Engine(p.Local)
	tables := Of(&op.Request, p.Local).Tables
	unused := make([][]uint64, len(tables)) // our own generations are not the caller's to say
	for g := range tables {
		unused[g] = make([]uint64, len(tables[g]))
	}
	if err := CheckTables(p.Pair, &op.Request, p.Local, unused); err != nil {
		return nil, err
	}
	var err error
	s.Memories, err = Memories(s.Edges, p.Local, func(rank int) (*Memory, error) { return c.Memory(side.Engine, rank) })
	if err != nil {
		return nil, err
	}
	if op.Direction == transport.Write {
		// What is pushed must still be there when it was pushed.
		entries, _ := Slice(p.Pair, &op.Request, p.Local, unused)
		s.Snapshot = map[int][][]uint64{}
		for r, m := range s.Memories {
			if s.Snapshot[r], err = Snapshot(side, m, entries); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// Entries returns our block ids for the tokens of the operation.
func (s *Submission) Entries() [][]uint32 {
	tables := Of(&s.op.Request, s.Plan.Local).Tables
	out := make([][]uint32, len(tables))
	for g, t := range tables {
		lo, hi := transport.Entries(s.Plan.Pair, &s.op.Request, s.Plan.Local, g)
		out[g] = t[lo:hi]
	}
	return out
}

// Ask is the operation as the granting side is asked for it; self is this side
// as that one knows it.
func (s *Submission) Ask(self transport.PeerID) (*Ask, error) {
	r := &s.op.Request
	a := &Ask{Peer: self, Grant: s.op.Grant, Direction: s.op.Direction, Request: scope(r)}
	across := Other(s.Plan.Local)
	if Of(r, across).Tables == nil {
		return a, nil
	}
	if err := CheckTables(s.Plan.Pair, r, across, s.op.PeerGenerations); err != nil {
		return nil, err
	}
	a.Tables, a.Generations = Slice(s.Plan.Pair, r, across, s.op.PeerGenerations)
	return a, nil
}

// Job is the operation, with the peer's tables and memory, ready to be
// submitted to this side's Core. A write's job checks our own generations;
// the peer's are the caller's to add.
func (s *Submission) Job(peer Held, memories map[int]*Memory) *Job {
	j := &Job{Plan: s.Plan, Request: s.op.Request, Edges: s.Edges, Deadline: s.op.Deadline}
	j.Request.Spans = slices.Clone(j.Request.Spans) // as the tables
	j.Set(Of(&s.op.Request, s.Plan.Local).Clone(), s.Memories, peer, memories)
	if s.Snapshot != nil {
		j.Checks = append(j.Checks, SnapshotChecks(s.Plan.Engine(s.Plan.Local), Clone(s.Entries()), s.Snapshot, s.Memories)...)
	}
	return j
}

// SnapshotChecks are the checks of a write's source blocks, by rank. As in
// Checks, a rank without layers of a group has none of its.
func SnapshotChecks(side *plan.Side, entries [][]uint32, snapshot map[int][][]uint64, memories map[int]*Memory) []Check {
	var out []Check
	for r, m := range memories {
		for g := range entries {
			if own := side.OwnGroup(g); own < len(m.Generations) && g < len(snapshot[r]) && side.Ranks[r][g] != nil {
				out = append(out, Check{Group: g, Rank: r, Table: m.Generations[own], Blocks: entries[g], Granted: snapshot[r][g]})
			}
		}
	}
	return out
}

// Set fills in the tables and memories of both sides.
// Preconditions: Plan is set; the job is not started.
func (j *Job) Set(own Held, ours map[int]*Memory, peer Held, theirs map[int]*Memory) {
	own.put(&j.Request, j.Plan.Local)
	peer.put(&j.Request, Other(j.Plan.Local))
	if j.Plan.Local == transport.Source {
		j.Source, j.Destination = ours, theirs
		return
	}
	j.Destination, j.Source = ours, theirs
}
