package build

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// Cost is what a whole period of a pair takes to move: the figures that a
// layout selection compares. Periods of different block sizes have different
// lengths: what compares is the pieces for a byte.
type Cost struct {
	Pieces int64 // contiguous copies
	Bytes  int64
}

// CostOf counts one whole period of every group, each destination rank served
// once by the first source ranks that hold what it needs. It is an estimate
// for choosing layouts and never a plan that moves anything: what moves is
// decided by a policy's assignments.
//
// Errors: those of Build.
// Preconditions: p.Validate() is nil.
func CostOf(p *plan.Pair, budget plan.Budget) (Cost, error) {
	as, err := cover(p)
	if err != nil {
		return Cost{}, err
	}
	pl, err := Build(p, as, nil, budget)
	if err != nil {
		return Cost{}, fmt.Errorf("estimate the cost of a pair: %w", err)
	}
	var c Cost
	for i := range pl.Runs {
		c.Pieces += pl.Runs[i].Pieces()
		c.Bytes += pl.Runs[i].Total()
	}
	return c, nil
}

// cover serves each destination rank, of each pipeline stage and DCP phase at
// the source, from the first ranks that hold its heads.
func cover(p *plan.Pair) ([]plan.Assignment, error) {
	var out []plan.Assignment
	var s, d holdings
	s.init(&p.Source)
	d.init(&p.Destination)
	spec := &p.Source.Shard
	for gi := range p.Source.Model.Groups {
		g := &p.Source.Model.Groups[gi]
		mask := ^uint64(0) >> (64 - len(g.Components))
		rows := max(g.Heads(), 1)
		// first[row] of a stage and phase is one more than the first rank, or 0.
		first := make([][]int32, len(spec.Stages)*spec.DCPSize)
		for r := range spec.Ranks() {
			at := spec.Place(r)
			k := at.PP*spec.DCPSize + at.DCP
			if first[k] == nil {
				first[k] = make([]int32, rows)
			}
			for _, h := range heads(s.part(gi, r)) {
				if first[k][h] == 0 {
					first[k][h] = int32(r) + 1
				}
			}
		}
		for dr := range p.Destination.Ranks {
			need := d.part(gi, dr)
			if len(need.Layers) == 0 {
				continue
			}
			wanted := slices.Clone(heads(need))
			slices.Sort(wanted)
			for _, ranks := range first {
				for i := 0; i < len(wanted); {
					rank := ranks[wanted[i]] - 1
					j := i + 1
					for j < len(wanted) && wanted[j] == wanted[j-1]+1 && ranks[wanted[j]]-1 == rank {
						j++
					}
					if layers, ok := overlap(s.part(gi, int(rank)), need); ok {
						out = append(out, plan.Assignment{Group: gi, Components: mask, Destination: dr, Source: int(rank),
							Layers: layers, Heads: plan.Range{From: wanted[i], To: wanted[j-1] + 1}})
					}
					i = j
				}
				if len(out) > plan.MaxAssignments {
					return nil, &plan.TooLarge{What: "assignments", Need: len(out), Limit: plan.MaxAssignments}
				}
			}
		}
	}
	return out, nil
}

// heads are the rows of a part: head 0 of a group without heads.
func heads(p *shard.Part) []int {
	if p.Heads == nil {
		return []int{0}
	}
	return p.Heads
}

// overlap is the range of layers in which those that both parts hold lie.
func overlap(a, b *shard.Part) (plan.Range, bool) {
	if len(a.Layers) == 0 || len(b.Layers) == 0 {
		return plan.Range{}, false
	}
	from := max(a.Layers[0], b.Layers[0])
	to := min(a.Layers[len(a.Layers)-1], b.Layers[len(b.Layers)-1]) + 1
	return plan.Range{From: from, To: to}, from < to
}
