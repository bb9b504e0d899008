package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Input is the question as a policy is asked it. The cost of each candidate
// against each candidate of each peer is computed here, natively; a combination
// that cannot be planned has none. The same question gives the same bytes.
//
// Errors: *QuestionError; *layout.Error, *layout.ClaimError and *shard.Error of
// a candidate that an engine cannot hold its cache in; *plan.Mismatch of engines
// that do not hold the same cache.
func (q Question) Input() (*abi.SelectLayoutIn, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	e := q.Engine
	in := &abi.SelectLayoutIn{
		Engine: e.Name, Model: e.Model.Name, Role: uint32(q.Role), Layers: uint32(e.Model.Layers),
		TP: uint32(e.Shard.TP), Stages: uint32(len(e.Shard.Stages)), DCP: uint32(e.Shard.DCPSize), Interleave: uint32(e.Shard.Interleave),
		Previous: uint32(q.Previous), Groups: groups(e.Model), Labels: labels(e.Labels),
	}
	for _, c := range e.Candidates {
		own := candidate(c, e.Model)
		ours, err := c.side(e)
		if err != nil {
			return nil, err
		}
		for pi, peer := range q.Peers {
			for ci, theirs := range peer.Candidates {
				side, err := theirs.side(peer)
				if err != nil {
					return nil, err
				}
				pair := &plan.Pair{Source: ours, Destination: side}
				if q.Role == Destination {
					pair = &plan.Pair{Source: side, Destination: ours}
				}
				if err := pair.Validate(); err != nil {
					return nil, fmt.Errorf("compare candidate %s with %s of engine %s: %w", c.Name, theirs.Name, peer.Name, err)
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
	for _, peer := range q.Peers {
		p := abi.Peer{Engine: peer.Name, TP: uint32(peer.Shard.TP), Stages: uint32(len(peer.Shard.Stages)), DCP: uint32(peer.Shard.DCPSize), Interleave: uint32(peer.Shard.Interleave)}
		for _, c := range peer.Candidates {
			p.Candidates = append(p.Candidates, candidate(c, peer.Model))
		}
		in.Peers = append(in.Peers, p)
	}
	return in, nil
}

// side is the engine with every rank in the candidate's layout.
func (c Candidate) side(e Engine) (plan.Side, error) {
	s := plan.Side{Engine: e.Name, Model: e.Model, Shard: e.Shard}
	if err := e.Model.Validate(); err != nil {
		return s, fmt.Errorf("engine %s: %w", e.Name, err)
	}
	if err := e.Shard.Validate(e.Model); err != nil {
		return s, fmt.Errorf("engine %s: %w", e.Name, err)
	}
	for range e.Model.Groups {
		s.Groups = append(s.Groups, plan.Pool{Block: c.Block, Blocks: c.Blocks})
	}
	known := map[string]*layout.Layout{}
	for r := range e.Shard.Ranks() {
		var ranks []*layout.Layout
		for _, g := range e.Model.Groups {
			part := e.Shard.Part(g, r)
			if len(part.Layers) == 0 {
				ranks = append(ranks, nil)
				continue
			}
			key := fmt.Sprintf("%s %s %d", g.Name, geometry.Ranges(part.Layers), len(part.Heads))
			l, ok := known[key]
			if !ok {
				var err error
				if l, err = c.Layout.Resolve(layout.Extent{Layers: part.Layers, Blocks: c.Blocks, Tokens: c.Block, Heads: len(part.Heads), Components: g.Components}); err != nil {
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

func candidate(c Candidate, m geometry.Model) abi.Candidate {
	out := abi.Candidate{Name: c.Name, Attention: uint32(c.Attention)}
	for _, g := range m.Groups {
		out.Layouts = append(out.Layouts, abi.GroupLayout{Order: order(c.Layout, g), Block: uint32(c.Block), Blocks: uint32(c.Blocks)})
	}
	return out
}

// order is a layout's order for the components of a group.
func order(s layout.Spec, g geometry.Group) []abi.Item {
	var out []abi.Item
	item := func(it layout.Item, component int) {
		out = append(out, abi.Item{Axis: uint32(it.Axis), Mod: uint32(it.Mod), Div: uint32(max(it.Div, 1)), Component: uint32(component)})
	}
	for _, entry := range s.Order {
		switch {
		case entry.Component:
			out = append(out, abi.Item{Axis: abi.AxisComponent, Div: 1})
		case entry.Branch != nil:
			for ci, component := range g.Components {
				for _, it := range entry.Branch[component.Name] {
					item(it, ci+1)
				}
			}
		default:
			item(entry.Item, 0)
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
		r := abi.Group{Name: g.Name, Heads: uint32(g.Heads()), Layers: ranges(g.Layers)}
		for _, c := range g.Components {
			r.Components = append(r.Components, abi.Component{Name: c.Name, Heads: uint32(c.Heads), Dim: uint32(c.Dim), Dtype: uint32(c.DType), Bits: uint32(c.DType.Bits())})
		}
		out = append(out, r)
	}
	return out
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
	if q.Previous < 0 || q.Previous > len(q.Engine.Candidates) {
		return &QuestionError{"previous", q.Previous, fmt.Sprintf("want 0 or 1 + the index of one of %d candidates", len(q.Engine.Candidates))}
	}
	for i, e := range append([]Engine{q.Engine}, q.Peers...) {
		at := "engine"
		if i > 0 {
			at = fmt.Sprintf("peers[%d]", i-1)
		}
		if err := textual(at+".name", e.Name, geometry.MaxName); err != nil {
			return err
		}
		for k, v := range e.Labels {
			if err := errors.Join(textual(at+".labels", k, geometry.MaxName), textual(at+".labels."+k, v, abi.MaxText)); err != nil {
				return err
			}
		}
		for k, c := range e.Candidates {
			at := fmt.Sprintf("%s.candidates[%d]", at, k)
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

// RemapInput is the question about a pair as a policy is asked it.
// Preconditions: p.Validate() is nil.
func RemapInput(p *plan.Pair) *abi.RemapIn {
	in := &abi.RemapIn{Model: p.Source.Model.Name, Layers: uint32(p.Source.Model.Layers), Groups: groups(p.Source.Model)}
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		side := abi.Side{Engine: s.Engine, TP: uint32(s.Shard.TP), Stages: uint32(len(s.Shard.Stages)), DCP: uint32(s.Shard.DCPSize), Interleave: uint32(s.Shard.Interleave)}
		for _, pool := range s.Groups {
			side.Pools = append(side.Pools, abi.Pool{Block: uint32(pool.Block), Blocks: uint32(pool.Blocks)})
		}
		for r := range s.Ranks {
			at := s.Shard.Place(r)
			rank := abi.Rank{Rank: uint32(r), PP: uint32(at.PP), TP: uint32(at.TP), DCP: uint32(at.DCP)}
			for gi, g := range s.Model.Groups {
				part := s.Shard.Part(g, r)
				if len(part.Layers) == 0 {
					continue
				}
				rank.Parts = append(rank.Parts, abi.Part{
					Group: uint32(gi), DCPSize: uint32(part.Size), DCPInterleave: uint32(part.Interleave), DCPPhase: uint32(part.Phase),
					Layers: ranges(part.Layers), Heads: ranges(part.Heads),
				})
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
		as := make([]plan.Assignment, 0, len(alternative.Assignments))
		for _, a := range alternative.Assignments {
			as = append(as, plan.Assignment{
				Group: int(a.Group), Components: a.Components, Destination: int(a.Destination), Source: int(a.Source),
				Layers: plan.Range{From: int(a.LayerFrom), To: int(a.LayerTo)},
				Heads:  plan.Range{From: int(a.HeadFrom), To: int(a.HeadTo)},
				Tokens: plan.Tokens{Size: int(a.TokenSize), Interleave: int(a.TokenInterleave), Phase: int(a.TokenPhase)},
			})
		}
		if err := p.ValidateAssignments(as); err != nil {
			return Answer{}, fmt.Errorf("alternative %d: %w", i, err)
		}
		answer.Alternatives = append(answer.Alternatives, as)
	}
	return answer, nil
}
