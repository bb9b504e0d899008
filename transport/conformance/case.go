package conformance

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
)

// engine is one side of a case, in short form.
type engine struct {
	name       string
	tp, dcp    int
	interleave int
	stages     []int  // nil: one
	order      string // "block head token component dim"; "a|b" as last word: branches of the components
	block      int
	blocks     int
	// pools are, in a case of groups, how the engine keeps each, by name,
	// instead of order, block and blocks. One left out is a group that it lacks.
	pools map[string]pool
}

// pool is how an engine keeps one group.
type pool struct {
	order  string
	block  int
	blocks int
	ring   int
	// Where tp is not 0 the group has a shard of its own, over as many ranks.
	tp, dcp, interleave int
}

// pairCase is a pair of engines.
type pairCase struct {
	name                string
	layers              int
	groups              []geometry.Group
	source, destination engine
	tokens              int64
}

// kv is a model's one group, of K and V.
func kv(layers, heads, dim int) []geometry.Group {
	return one(layers, geometry.Component{Name: "k", Heads: heads, Dim: dim, DType: geometry.BF16}, geometry.Component{Name: "v", Heads: heads, Dim: dim, DType: geometry.BF16})
}

func one(layers int, components ...geometry.Component) []geometry.Group {
	g := geometry.Group{Components: components}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	return []geometry.Group{g}
}

var axes = map[string]geometry.Axis{"block": geometry.Block, "head": geometry.Head, "token": geometry.Token, "dim": geometry.Dim, "layer": geometry.Layer, "slot": geometry.Slot, "channel": geometry.Channel}

// spec reads an order.
func spec(order string, comps []geometry.Component) layout.Spec {
	item := func(word string) layout.Item { return layout.Item{Axis: axes[word]} }
	var s layout.Spec
	for word := range strings.FieldsSeq(order) {
		switch {
		case word == "component":
			s.Order = append(s.Order, layout.Entry{Component: true})
		case strings.Contains(word, "|"):
			branch := map[string][]layout.Entry{}
			for i, items := range strings.Split(word, "|") {
				for w := range strings.SplitSeq(items, ",") {
					branch[comps[i].Name] = append(branch[comps[i].Name], layout.Entry{Item: item(w)})
				}
			}
			s.Order = append(s.Order, layout.Entry{Branch: branch})
		default:
			s.Order = append(s.Order, layout.Entry{Item: item(word)})
		}
	}
	return s
}

// side makes a plan.Side of an engine, with the groups that it has.
func (e engine) side(m geometry.Model) (plan.Side, error) {
	order, err := shard.Order(nil)
	if err != nil {
		return plan.Side{}, err
	}
	stages := e.stages
	if stages == nil {
		stages = []int{m.Layers}
	}
	s := plan.Side{Engine: e.name, Shard: shard.Spec{TP: e.tp, Stages: stages, DCPSize: max(e.dcp, 1), Interleave: max(e.interleave, 1), Order: order}}
	pools := e.pools
	if pools == nil {
		pools = map[string]pool{"": {order: e.order, block: e.block, blocks: e.blocks}}
	}
	var has []int
	for g := range m.Groups {
		if _, ok := pools[m.Groups[g].Name]; ok {
			has = append(has, g)
		}
	}
	if s.Model = m; len(has) < len(m.Groups) {
		s.Model = m.Select(has)
	}
	s.Ranks = make([][]*layout.Layout, s.Shard.Ranks())
	for gi, g := range s.Model.Groups {
		p := pools[g.Name]
		s.Groups = append(s.Groups, plan.Pool{Block: p.block, Blocks: p.blocks, Ring: p.ring})
		if p.tp > 0 {
			s.Groups[gi].Shard = &shard.Spec{TP: p.tp, Stages: stages, DCPSize: max(p.dcp, 1), Interleave: max(p.interleave, 1), Order: order}
		}
		for r := range s.Ranks {
			part := s.Part(gi, r)
			if len(part.Layers) == 0 {
				s.Ranks[r] = append(s.Ranks[r], nil)
				continue
			}
			l, err := spec(p.order, g.Components).Resolve(part.Extent(g, p.block, p.blocks))
			if err != nil {
				return plan.Side{}, fmt.Errorf("lay out rank %d of %s: %w", r, e.name, err)
			}
			s.Ranks[r] = append(s.Ranks[r], l)
		}
	}
	return s, nil
}

// model is what the case's engines hold, all optional groups included.
func (c pairCase) model() geometry.Model {
	return geometry.Model{Name: c.name, Layers: c.layers, Groups: c.groups}
}

// sides are the engines as they are, each with its own groups.
func (c pairCase) sides() (source, destination plan.Side, err error) {
	if source, err = c.source.side(c.model()); err == nil {
		destination, err = c.destination.side(c.model())
	}
	return source, destination, err
}

func (c pairCase) pair() (*plan.Pair, error) {
	s, d, err := c.sides()
	if err != nil {
		return nil, err
	}
	p, _, err := plan.Join(s, d)
	if err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// assign gives every head of every destination rank to a source rank that has
// it, the first one.
func assign(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	for gi, g := range p.Source.Model.Groups {
		for _, class := range g.Classes() {
			ci := bits.TrailingZeros64(class.Components)
			for d := range p.Destination.Ranks {
				need := p.Destination.Part(gi, d)
				heads := need.Heads[ci]
				if heads == nil {
					heads = []int{0}
				}
				if len(need.Layers) == 0 {
					continue
				}
				for _, h := range heads {
					taken := map[string]bool{} // source layers and tokens
					for s := range p.Source.Ranks {
						have := p.Source.Part(gi, s)
						if len(have.Layers) == 0 || have.Heads[ci] != nil && !slices.Contains(have.Heads[ci], h) {
							continue
						}
						from, to := max(have.Layers[0], need.Layers[0]), min(have.Layers[len(have.Layers)-1], need.Layers[len(need.Layers)-1])+1
						key := fmt.Sprint(from, to, have.Phase)
						if from >= to || taken[key] {
							continue
						}
						taken[key] = true
						a := plan.Assignment{Group: gi, Components: class.Components, Destination: d, Source: s, Layers: plan.Range{From: from, To: to}, Heads: plan.Range{From: h, To: h + 1}}
						if have.Size > 1 {
							a.Tokens = plan.Tokens{Size: have.Size, Interleave: have.Interleave, Phase: have.Phase}
						}
						out = append(out, a)
					}
				}
			}
		}
	}
	return out
}

// proven plans and proves a case.
func (c pairCase) proven() (*plan.Pair, proof.Proven, error) {
	pair, err := c.pair()
	if err != nil {
		return nil, proof.Proven{}, err
	}
	pl, err := build.Build(pair, assign(pair), nil, plan.DefaultBudget())
	if err != nil {
		return nil, proof.Proven{}, fmt.Errorf("build: %w", err)
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return nil, proof.Proven{}, fmt.Errorf("prove: %w", err)
	}
	return pair, proven, nil
}

func (c pairCase) prove(t testing.TB) (*plan.Pair, proof.Proven) {
	t.Helper()
	pair, proven, err := c.proven()
	if err != nil {
		t.Fatalf("case %s: %+v", c.name, err)
	}
	return pair, proven
}
