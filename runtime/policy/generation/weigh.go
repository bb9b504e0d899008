package generation

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
)

// isFaulty reports errors that building an answer's plan ends with where the
// answer is at fault. A plan that is larger than its budget is not among them:
// the budget is the operator's.
func isFaulty(err error) bool {
	var assignment *plan.AssignmentError
	var decision *policy.DecisionError
	return errors.As(err, &assignment) || errors.As(err, &decision)
}

// pieceWeight is what a piece costs besides its bytes, in bytes: about what a
// copy engine moves in the time that it takes to begin.
const pieceWeight = 2 << 10

// costOf is what an answer's plan takes, in bytes: the rank that is busiest with
// giving or taking decides when a transfer is done.
// Preconditions: pl was built for the pair.
func costOf(pair *plan.Pair, pl *plan.Plan) int64 {
	give, take := map[int]int64{}, map[int]int64{}
	most := int64(0)
	for _, f := range policy.FlowsOf(pair, pl) {
		c := f.Bytes + f.Pieces*pieceWeight
		give[f.Source] += c
		take[f.Destination] += c
		most = max(most, give[f.Source], take[f.Destination])
	}
	return most
}

// choiceCosts is what each candidate of a layout selection takes, in bytes: with
// each peer at its best, all peers together; below 0 where some peer cannot be
// reached with it at all.
func choiceCosts(in *abi.SelectLayoutIn) []int64 {
	out := make([]int64, len(in.Candidates))
	for i, c := range in.Candidates {
		best := map[uint32]int64{}
		for _, cost := range c.Costs {
			v := int64(cost.Bytes) + int64(cost.Pieces)*pieceWeight
			if old, ok := best[cost.Peer]; !ok || v < old {
				best[cost.Peer] = v
			}
		}
		for _, v := range best {
			out[i] += v
		}
		if len(best) < len(in.Peers) {
			out[i] = -1
		}
	}
	return out
}

// maxIntervals bounds how finely two plans are compared.
const maxIntervals = 1 << 18

// meaning is a digest of what a proved plan does, whatever it is cut into: which
// source rank fills which bytes of the destination. Two proved plans of one pair
// put the same elements into the same places, so nothing else can differ. ok is
// false where that would take too long to find out.
// Preconditions: pl was proved.
func meaning(pl *plan.Plan) (d geometry.Digest, ok bool) {
	type interval struct {
		rank, group, region, source int // regions count in each group
		block, from, to             int64
	}
	total := int64(0)
	for i := range pl.Runs {
		if total += pl.Runs[i].Pieces(); total > maxIntervals {
			return d, false
		}
	}
	list := make([]interval, 0, total)
	for i := range pl.Runs {
		r := &pl.Runs[i]
		e := pl.Edges[r.Edge]
		base := interval{rank: e.Destination, group: e.Group, region: r.DestinationRegion, source: e.Source, block: pl.Pieces[r.Piece].DestinationBlock}
		var walk func(loops []plan.Loop, at int64)
		walk = func(loops []plan.Loop, at int64) {
			if len(loops) == 0 {
				v := base
				v.from, v.to = at, at+r.Bytes
				list = append(list, v)
				return
			}
			for n := range loops[0].Count {
				walk(loops[1:], at+n*loops[0].DestinationStride)
			}
		}
		walk(r.Loops, r.DestinationOffset)
	}
	slices.SortFunc(list, func(a, b interval) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.group, b.group), cmp.Compare(a.region, b.region), cmp.Compare(a.block, b.block), cmp.Compare(a.from, b.from))
	})
	h := sha256.New()
	var buf []byte
	flush := func(v interval) {
		buf = buf[:0]
		for _, n := range []int64{int64(v.rank), int64(v.group), int64(v.region), v.block, v.from, v.to, int64(v.source)} {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(n))
		}
		h.Write(buf)
	}
	for i := 0; i < len(list); {
		v := list[i]
		for i++; i < len(list); i++ {
			n := list[i]
			if n.rank != v.rank || n.group != v.group || n.region != v.region || n.block != v.block || n.source != v.source || n.from != v.to {
				break
			}
			v.to = n.to
		}
		flush(v)
	}
	return geometry.Digest(h.Sum(nil)), true
}

// proved builds and proves the plan of one alternative.
func proved(pair *plan.Pair, as []plan.Assignment, budget plan.Budget) (*plan.Plan, error) {
	pl, err := build.Build(pair, as, nil, budget)
	if err != nil {
		return nil, fmt.Errorf("build the plan of an answer: %w", err)
	}
	if err := proof.Examine(pair, pl); err != nil {
		return nil, fmt.Errorf("prove the plan of an answer: %w", err)
	}
	return pl, nil
}

// unlike says how two proved answers about a pair differ; empty where they mean
// the same.
func unlike(candidate, active []*plan.Plan) string {
	if len(candidate) != len(active) {
		return fmt.Sprintf("%d alternatives, the active policy gives %d", len(candidate), len(active))
	}
	for i := range candidate {
		if candidate[i].Digest() == active[i].Digest() {
			continue
		}
		a, okA := meaning(candidate[i])
		b, okB := meaning(active[i])
		if !okA || !okB {
			return fmt.Sprintf("alternative %d is cut otherwise, and too large to say more", i)
		}
		if a != b {
			return fmt.Sprintf("alternative %d: %s, the active policy %s", i, flows(candidate[i]), flows(active[i]))
		}
	}
	return ""
}

// flows says in a few words who feeds whom.
func flows(pl *plan.Plan) string {
	s, n := "", 0
	seen := map[[2]int]bool{}
	for _, e := range pl.Edges {
		key := [2]int{e.Source, e.Destination}
		if seen[key] {
			continue
		}
		seen[key] = true
		if n++; n <= 8 {
			s += fmt.Sprintf(" %d>%d", e.Source, e.Destination)
		}
	}
	if n > 8 {
		s += fmt.Sprintf(" and %d more", n-8)
	}
	return "feeds ranks" + s
}
