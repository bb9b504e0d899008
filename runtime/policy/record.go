package policy

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Input is the question as a policy is asked it. The cost of each candidate
// against each candidate of each peer is computed here, natively, for the groups
// that both engines have; a combination that cannot be planned has none. The
// same question gives the same bytes.
//
// Errors: *QuestionError; *layout.Error, *layout.ClaimError, *shard.Error and
// *plan.Error of a candidate that an engine cannot hold its cache in;
// *plan.Mismatch of engines that do not hold the same cache.
func (q Question) Input() (*abi.SelectLayoutIn, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	e := q.Engine
	in := &abi.SelectLayoutIn{
		Engine: e.Name, Model: e.Model.Name, Role: uint32(q.Role), Layers: uint32(e.Model.Layers),
		TP: uint32(e.Shard.TP), Stages: uint32(len(e.Shard.Stages)), DCP: uint32(e.Shard.DCPSize), Interleave: uint32(e.Shard.Interleave),
		Previous: uint32(q.Previous), Recorded: uint32(q.Recorded), Groups: groups(e.Model),
		Engines: []abi.Engine{e.record(e.Name)}, Providers: providers(q.Providers), Configuration: q.Configuration,
	}
	peers := make([][]plan.Side, len(q.Peers))
	for pi, peer := range q.Peers {
		p := abi.Peer{Engine: peer.Name, TP: uint32(peer.Shard.TP), Stages: uint32(len(peer.Shard.Stages)), DCP: uint32(peer.Shard.DCPSize), Interleave: uint32(peer.Shard.Interleave)}
		for _, c := range peer.Candidates {
			side, err := c.side(peer)
			if err != nil {
				return nil, err
			}
			peers[pi] = append(peers[pi], side)
			p.Candidates = append(p.Candidates, candidate(c, peer, e.Model))
		}
		if q.Edges != nil {
			p.Edges = edges(q.Edges[pi])
		}
		in.Peers = append(in.Peers, p)
		in.Engines = append(in.Engines, peer.record(peer.Name))
	}
	for _, c := range e.Candidates {
		ours, err := c.side(e)
		if err != nil {
			return nil, err
		}
		own := candidate(c, e, e.Model)
		for pi, sides := range peers {
			for ci, theirs := range sides {
				source, destination := ours, theirs
				if q.Role == Destination {
					source, destination = theirs, ours
				}
				pair, _, err := plan.Join(source, destination)
				if err != nil {
					return nil, fmt.Errorf("compare candidate %s with %s of engine %s: %w", c.Name, q.Peers[pi].Candidates[ci].Name, q.Peers[pi].Name, err)
				}
				cost, err := build.CostOf(pair, plan.DefaultBudget())
				if err != nil {
					continue // a pair of layouts that cannot be planned has no cost; others may
				}
				own.Costs = append(own.Costs, abi.Cost{Peer: uint32(pi), Candidate: uint32(ci), Pieces: uint64(cost.Pieces), Bytes: uint64(cost.Bytes)})
			}
		}
		in.Candidates = append(in.Candidates, own)
	}
	return in, nil
}

// shardOf is how a group of an engine is sharded in a candidate.
func (c Candidate) shardOf(e Engine, group int) *shard.Spec {
	if own := c.Pools[group].Shard; own != nil {
		return own
	}
	return &e.Shard
}

// Side is the engine with every rank in the layout of a candidate.
//
// Errors: *layout.Error, *layout.ClaimError, *shard.Error, *QuestionError of a
// candidate that the engine cannot hold its cache in.
// Preconditions: the candidate has a layout and a pool for each group.
func (e Engine) Side(candidate int) (plan.Side, error) { return e.Candidates[candidate].side(e) }

// side is the engine with every rank in the candidate's layout.
func (c Candidate) side(e Engine) (plan.Side, error) {
	s := plan.Side{Engine: e.Name, Model: e.Model, Shard: e.Shard, Groups: c.Pools}
	var common []int // groups sharded as the engine is
	for g, pool := range c.Pools {
		if pool.Shard == nil {
			common = append(common, g)
		} else if err := pool.Shard.Validate(e.Model.Select([]int{g})); err != nil {
			return s, fmt.Errorf("engine %s, candidate %s, group %q: %w", e.Name, c.Name, e.Model.Groups[g].Name, err)
		} else if n := pool.Shard.Ranks(); n != e.Shard.Ranks() {
			return s, &QuestionError{fmt.Sprintf("shard of group %q in candidate %s of engine %s", e.Model.Groups[g].Name, c.Name, e.Name), fmt.Sprintf("%d ranks", n), fmt.Sprintf("the engine has %d", e.Shard.Ranks())}
		}
	}
	if err := e.Shard.Validate(e.Model.Select(common)); err != nil {
		return s, fmt.Errorf("engine %s: %w", e.Name, err)
	}
	known := map[string]*layout.Layout{}
	for r := range e.Shard.Ranks() {
		var ranks []*layout.Layout
		for gi, g := range e.Model.Groups {
			part := s.Part(gi, r)
			if len(part.Layers) == 0 {
				ranks = append(ranks, nil)
				continue
			}
			extent := part.Extent(g, c.Pools[gi].Block, c.Pools[gi].Blocks)
			key := fmt.Sprintf("%d %s %v", gi, geometry.Ranges(part.Layers), extent.Heads)
			l, ok := known[key]
			if !ok {
				var err error
				if l, err = c.Layouts[gi].Resolve(extent); err != nil {
					return s, fmt.Errorf("engine %s, candidate %s: %w", e.Name, c.Name, err)
				}
				known[key] = l
			}
			ranks = append(ranks, l)
		}
		s.Ranks = append(s.Ranks, ranks)
	}
	return s, nil
}

// candidate is a candidate of an engine, with the groups of the asked model
// that the engine has.
// Preconditions: c.side(e) gives no error.
func candidate(c Candidate, e Engine, asked geometry.Model) abi.Candidate {
	out := abi.Candidate{Name: c.Name, Attention: uint32(c.Attention)}
	for k, g := range asked.Groups {
		gi := slices.IndexFunc(e.Model.Groups, func(own geometry.Group) bool { return own.Name == g.Name })
		if gi < 0 {
			continue
		}
		pool, spec := c.Pools[gi], c.shardOf(e, gi)
		out.Layouts = append(out.Layouts, abi.GroupLayout{
			Group: uint32(k), Order: order(c.Layouts[gi].Order, e.Model.Groups[gi], 0), KernelBlock: uint32(c.Layouts[gi].Kernel),
			Block: uint32(pool.Block), Blocks: uint32(pool.Blocks), Ring: uint32(pool.Ring),
			TP: uint32(spec.TP), Stages: uint32(len(spec.Stages)), DCP: uint32(spec.DCPSize), Interleave: uint32(spec.Interleave),
		})
	}
	return out
}

// order is an order that the given components of a group follow, 0 for all: what
// stands below a branch follows with the components of its key, in the order of
// their first ones.
func order(entries []layout.Entry, g geometry.Group, components uint64) []abi.Item {
	var out []abi.Item
	for _, entry := range entries {
		switch {
		case entry.Component:
			out = append(out, abi.Item{Axis: abi.AxisComponent, Div: 1, Components: components})
		case entry.Branch != nil:
			below := map[uint64][]layout.Entry{}
			var sets []uint64
			for key, order := range entry.Branch {
				set := uint64(0)
				for name := range strings.SplitSeq(key, ",") {
					set |= 1 << g.Component(name)
				}
				below[set] = order
				sets = append(sets, set)
			}
			slices.SortFunc(sets, func(a, b uint64) int { return cmp.Compare(bits.TrailingZeros64(a), bits.TrailingZeros64(b)) })
			for _, set := range sets {
				out = append(out, order(below[set], g, set)...)
			}
		default:
			it := entry.Item
			out = append(out, abi.Item{Axis: uint32(it.Axis), Mod: uint32(it.Mod), Div: uint32(max(it.Div, 1)), Components: components})
		}
	}
	return out
}

func labels(m map[string]string) []abi.Label {
	var out []abi.Label
	for k, v := range m {
		out = append(out, abi.Label{Key: k, Value: v})
	}
	slices.SortFunc(out, func(a, b abi.Label) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func groups(m geometry.Model) []abi.Group {
	var out []abi.Group
	for _, g := range m.Groups {
		r := abi.Group{Name: g.Name, State: flag(g.State), Optional: flag(g.Optional), Window: uint32(g.Window), Layers: ranges(g.Layers)}
		for _, c := range g.Components {
			scales := 0
			if c.Scales != "" {
				scales = 1 + g.Component(c.Scales)
			}
			r.Components = append(r.Components, abi.Component{
				Name: c.Name, Heads: uint32(c.Heads), Dim: uint32(c.Dim), Dtype: uint32(c.DType), Bits: uint32(c.DType.Bits()),
				Unit: uint32(c.UnitHeads()), TokensPerEntry: uint32(c.EntryTokens()), Scales: uint32(scales),
			})
		}
		for _, s := range g.Shared {
			r.Shared = append(r.Shared, abi.Share{Layer: uint32(s.Layer), Owner: uint32(s.Owner)})
		}
		out = append(out, r)
	}
	return out
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// ranges joins numbers that follow each other, in their order.
func ranges(n []int) []abi.Range {
	var out []abi.Range
	for _, v := range n {
		if k := len(out); k > 0 && out[k-1].To == uint32(v) {
			out[k-1].To++
			continue
		}
		out = append(out, abi.Range{From: uint32(v), To: uint32(v) + 1})
	}
	return out
}

// QuestionError is a question that cannot be asked. The fault is the caller's.
type QuestionError struct {
	Field  string
	Value  any
	Reason string
}

func (e *QuestionError) Error() string {
	return fmt.Sprintf("policy question: %s is %v: %s", e.Field, e.Value, e.Reason)
}

func (q Question) validate() error {
	if q.Role != Source && q.Role != Destination {
		return &QuestionError{"role", uint32(q.Role), "want source or destination"}
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"previous", q.Previous}, {"recorded", q.Recorded}} {
		if f.v < 0 || f.v > len(q.Engine.Candidates) {
			return &QuestionError{f.name, f.v, fmt.Sprintf("want 0 or 1 + the index of one of %d candidates", len(q.Engine.Candidates))}
		}
	}
	if q.Edges != nil && len(q.Edges) != len(q.Peers) {
		return &QuestionError{"edges", len(q.Edges), fmt.Sprintf("want those of each of %d peers, or none", len(q.Peers))}
	}
	for i, e := range append([]Engine{q.Engine}, q.Peers...) {
		at := "engine"
		if i > 0 {
			at = fmt.Sprintf("peers[%d]", i-1)
		}
		if err := textual(at+".name", e.Name, geometry.MaxName); err != nil {
			return err
		}
		if err := e.Model.Validate(); err != nil {
			return fmt.Errorf("engine %s: %w", e.Name, err)
		}
		if err := e.About.Validate(at, e.Shard.Ranks()); err != nil {
			return err
		}
		s := site{q.Providers, nil, q.Configuration, [2]int{q.Engine.Shard.Ranks(), e.Shard.Ranks()}}
		if i > 0 && q.Edges != nil {
			s.edges = q.Edges[i-1]
		}
		if q.Role == Destination {
			s.ranks[0], s.ranks[1] = s.ranks[1], s.ranks[0]
		}
		if err := s.validate(); err != nil {
			return err
		}
		for k, c := range e.Candidates {
			at := fmt.Sprintf("%s.candidates[%d]", at, k)
			if n := len(e.Model.Groups); len(c.Layouts) != n || len(c.Pools) != n {
				return &QuestionError{at, fmt.Sprintf("%d layouts and %d pools", len(c.Layouts), len(c.Pools)), fmt.Sprintf("want one of each for each of %d groups", n)}
			}
			if err := textual(at+".name", c.Name, abi.MaxText); err != nil {
				return err
			}
			if c.Attention < 0 || c.Attention > MaxAttention {
				return &QuestionError{at + ".attention", c.Attention, fmt.Sprintf("want 0 to %d per cent", MaxAttention)}
			}
		}
	}
	return nil
}

func textual(field, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) {
		return &QuestionError{field, fmt.Sprintf("%.64q", s), fmt.Sprintf("want UTF-8 of at most %d bytes", most)}
	}
	return nil
}

// RemapInput is the question about a pair of whose engines nothing is known but
// their caches: that of RemapQuestion{Pair: p}.
// Preconditions: p.Validate() is nil.
func RemapInput(p *plan.Pair) *abi.RemapIn {
	in := &abi.RemapIn{Model: p.Source.Model.Name, Layers: uint32(max(p.Source.Model.Layers, p.Destination.Model.Layers)), Groups: groups(p.Source.Model)}
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		in.Engines = append(in.Engines, About{}.record(s.Engine))
		side := abi.Side{Engine: s.Engine, TP: uint32(s.Shard.TP), Stages: uint32(len(s.Shard.Stages)), DCP: uint32(s.Shard.DCPSize), Interleave: uint32(s.Shard.Interleave)}
		classes := make([][]geometry.Class, len(s.Groups))
		for gi, pool := range s.Groups {
			side.Pools = append(side.Pools, abi.Pool{Block: uint32(pool.Block), Blocks: uint32(pool.Blocks), Ring: uint32(pool.Ring)})
			classes[gi] = s.Model.Groups[gi].Classes()
		}
		for r := range s.Ranks {
			at := s.Shard.Place(r)
			rank := abi.Rank{Rank: uint32(r), PP: uint32(at.PP), TP: uint32(at.TP), DCP: uint32(at.DCP)}
			for gi := range s.Groups {
				part := s.Part(gi, r)
				if len(part.Layers) == 0 {
					continue
				}
				layers := ranges(part.Layers)
				for _, class := range classes[gi] {
					rank.Parts = append(rank.Parts, abi.Part{
						Components: class.Components, Group: uint32(gi), DCPSize: uint32(part.Size), DCPInterleave: uint32(part.Interleave), DCPPhase: uint32(part.Phase),
						Layers: layers, Heads: ranges(part.Heads[bits.TrailingZeros64(class.Components)]),
					})
				}
			}
			side.Ranks = append(side.Ranks, rank)
		}
		in.Sides = append(in.Sides, side)
	}
	return in
}

// assignments turns an answer into assignments that the pair can have.
func assignments(p *plan.Pair, out *abi.RemapOut) (Answer, error) {
	answer := Answer{Reason: out.Reason}
	for i, alternative := range out.Alternatives {
		as := Assignments(alternative.Assignments)
		if err := p.ValidateAssignments(as); err != nil {
			return Answer{}, fmt.Errorf("alternative %d: %w", i, err)
		}
		answer.Alternatives = append(answer.Alternatives, as)
	}
	return answer, nil
}

// Assignments are an alternative's records as plans know them. Whether a pair can
// have them is for plan.Pair.ValidateAssignments.
func Assignments(records []abi.Assignment) []plan.Assignment {
	out := make([]plan.Assignment, 0, len(records))
	for _, a := range records {
		out = append(out, plan.Assignment{
			Group: int(a.Group), Components: a.Components, Destination: int(a.Destination), Source: int(a.Source),
			Layers: plan.Range{From: int(a.LayerFrom), To: int(a.LayerTo)},
			Heads:  plan.Range{From: int(a.HeadFrom), To: int(a.HeadTo)},
			Tokens: plan.Tokens{Size: int(a.TokenSize), Interleave: int(a.TokenInterleave), Phase: int(a.TokenPhase)},
		})
	}
	return out
}
