package build

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// CostTokens is the length of the request that a Cost is about.
const CostTokens = 4096

// Cost is what a request of CostTokens tokens takes to move: the figures that a
// layout selection compares. Requests of that length weigh groups against one
// another, whatever their block sizes: a window counts with its tokens, a state
// once.
type Cost struct {
	Pieces int64 // contiguous copies
	Bytes  int64
}

// CostOf counts the pieces of one whole period of every group, each destination
// rank served once by the first source ranks that hold what it needs, and scales
// them to the request, rounded up. It is an estimate for choosing layouts and
// never a plan that moves anything: what moves is decided by a policy's
// assignments.
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
	groups := make([]Cost, len(pl.Groups))
	for _, e := range pl.Edges {
		for i := e.From; i < e.To; i++ {
			groups[e.Group].Pieces += pl.Runs[i].Pieces()
			groups[e.Group].Bytes += pl.Runs[i].Total()
		}
	}
	var c Cost
	for g, period := range groups {
		scaled := Scale(p, pl, g, period)
		c.Pieces += scaled.Pieces
		c.Bytes += scaled.Bytes
	}
	return c, nil
}

// Scale is what a request of CostTokens tokens takes of something that takes
// period for each period of group g, rounded up.
// Preconditions: pl was built for p.
func Scale(p *plan.Pair, pl *plan.Plan, g int, period Cost) Cost {
	tokens, of := int64(CostTokens), pl.Groups[g].Tokens
	group := &p.Source.Model.Groups[g]
	if group.Window > 0 {
		tokens = min(tokens, int64(group.Window))
	}
	if group.State {
		tokens = of
	}
	return Cost{Pieces: (period.Pieces*tokens + of - 1) / of, Bytes: (period.Bytes*tokens + of - 1) / of}
}

// cover serves each destination rank, of each pipeline stage and DCP phase at
// the source, from the first ranks that hold its heads.
func cover(p *plan.Pair) ([]plan.Assignment, error) {
	var out []plan.Assignment
	var s, d holdings
	s.init(&p.Source)
	d.init(&p.Destination)
	for gi := range p.Source.Model.Groups {
		for _, class := range p.Source.Model.Groups[gi].Classes() {
			as, err := coverClass(p, &s, &d, gi, class, out)
			if err != nil {
				return nil, err
			}
			out = as
		}
	}
	return out, nil
}

// coverClass appends what serves one class of a group's components.
func coverClass(p *plan.Pair, s, d *holdings, gi int, class geometry.Class, out []plan.Assignment) ([]plan.Assignment, error) {
	spec := p.Source.ShardOf(gi)
	component := bits.TrailingZeros64(class.Components)
	rows := max(class.Heads, 1)
	// first[row] of a stage and phase is one more than the first rank, or 0.
	first := make([][]int32, len(spec.Stages)*spec.DCPSize)
	for r := range spec.Ranks() {
		at := spec.Place(r)
		k := at.PP*spec.DCPSize + at.DCP
		if first[k] == nil {
			first[k] = make([]int32, rows)
		}
		for _, h := range heads(s.part(gi, r), component) {
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
		wanted := slices.Clone(heads(need, component))
		slices.Sort(wanted)
		for _, ranks := range first {
			for i := 0; i < len(wanted); {
				rank := ranks[wanted[i]] - 1
				j := i + 1
				for j < len(wanted) && wanted[j] == wanted[j-1]+1 && ranks[wanted[j]]-1 == rank {
					j++
				}
				if layers, ok := overlap(s.part(gi, int(rank)), need); ok {
					out = append(out, plan.Assignment{Group: gi, Components: class.Components, Destination: dr, Source: int(rank),
						Layers: layers, Heads: plan.Range{From: wanted[i], To: wanted[j-1] + 1}})
				}
				i = j
			}
			if len(out) > plan.MaxAssignments {
				return nil, &plan.TooLarge{What: "assignments", Need: len(out), Limit: plan.MaxAssignments}
			}
		}
	}
	return out, nil
}

// heads are the rows of a component of a part: head 0 where it has no heads.
func heads(p *shard.Part, component int) []int {
	if p.Heads[component] == nil {
		return []int{0}
	}
	return p.Heads[component]
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
