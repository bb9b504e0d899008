// Package sketch makes a pair again from what a policy was asked about it.
//
// A question tells ranks, heads, layers and tokens, and not how a cache lies in
// memory. The pair that is made of one has layouts of its own, in which
// assignments are lowered, proved, drawn and compared as in the real one: what
// brings every element in the one does so in the other, real layouts that part
// elements within a byte aside. Offsets and pieces say nothing about the real
// pair.
//
// What comes out asks the same question again, to the byte; where that cannot
// be had, there is an error and no sketch.
package sketch

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Error is a question that no pair asks, or none that can be made of it.
type Error struct {
	Field  string // in the schema's names
	Value  any
	Reason string
	Err    error // the cause, where another package found it
}

func (e *Error) Error() string {
	s := "no pair can be made of the question: " + e.Field
	if e.Value != nil {
		s += fmt.Sprintf(" is %v", e.Value)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Bounds on what is made of a question: whoever wrote it may claim anything in a
// few bytes.
const (
	maxRanks = 1 << 10
	maxCells = 1 << 22 // ranks times layers times groups, both sides together
)

// Remap is the question that in asks, about a pair with layouts of its own. The
// pair is valid.
//
// Errors: *Error.
func Remap(in *abi.RemapIn) (policy.RemapQuestion, error) {
	q, err := remap(in)
	if err != nil {
		return policy.RemapQuestion{}, err
	}
	again, err := q.Input()
	if err != nil {
		return policy.RemapQuestion{}, &Error{Field: "remap_in", Err: err}
	}
	if !bytes.Equal(again.Encode(), in.Encode()) {
		return policy.RemapQuestion{}, &Error{Field: "remap_in", Reason: "the pair made of it asks another question"}
	}
	return q, nil
}

func remap(in *abi.RemapIn) (policy.RemapQuestion, error) {
	if len(in.Sides) != 2 || len(in.Engines) != 2 {
		return policy.RemapQuestion{}, &Error{Field: "sides", Value: fmt.Sprintf("%d, of %d engines", len(in.Sides), len(in.Engines)), Reason: "a pair has two"}
	}
	if in.Model == "" {
		return policy.RemapQuestion{}, &Error{Field: "model", Reason: "has no name"}
	}
	model, err := modelOf(in)
	if err != nil {
		return policy.RemapQuestion{}, err
	}
	cells := 0
	for _, s := range in.Sides {
		cells += len(s.Ranks) * model.Layers * len(model.Groups)
	}
	if cells > maxCells {
		return policy.RemapQuestion{}, &Error{Field: "ranks", Value: cells, Reason: fmt.Sprintf("ranks times layers times groups, at most %d are sketched", maxCells)}
	}
	pair := &plan.Pair{}
	for i, s := range []*plan.Side{&pair.Source, &pair.Destination} {
		if *s, err = side(&in.Sides[i], model); err != nil {
			return policy.RemapQuestion{}, err
		}
	}
	if err := pair.Validate(); err != nil {
		return policy.RemapQuestion{}, &Error{Field: "sides", Err: err}
	}
	q := policy.RemapQuestion{
		Pair: pair, Source: about(&in.Engines[0]), Destination: about(&in.Engines[1]),
		Providers: providers(in.Providers), Edges: edges(in.Edges), Configuration: in.Configuration,
	}
	for _, a := range in.Previous {
		q.Previous = append(q.Previous, policy.Assignments(a.Assignments))
	}
	return q, nil
}

// span expands ranges to the numbers in them; at most most of them.
func span(field string, ranges []abi.Range, most int) ([]int, error) {
	var out []int
	for _, r := range ranges {
		if r.From >= r.To || int64(r.To)-int64(r.From) > int64(most-len(out)) {
			return nil, &Error{Field: field, Value: fmt.Sprintf("%d to %d", r.From, r.To), Reason: fmt.Sprintf("want ranges of at most %d together", most)}
		}
		for n := r.From; n < r.To; n++ {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// modelOf is the model of a question's groups.
func modelOf(in *abi.RemapIn) (geometry.Model, error) {
	m := geometry.Model{Name: in.Model, Layers: int(in.Layers)}
	for gi, r := range in.Groups {
		at := fmt.Sprintf("groups[%d]", gi)
		layers, err := span(at+".layers", r.Layers, geometry.MaxLayers)
		if err != nil {
			return m, err
		}
		g := geometry.Group{Name: r.Name, Layers: layers, State: r.State == 1, Optional: r.Optional == 1, Window: int(r.Window)}
		for ci, c := range r.Components {
			one := geometry.Component{Name: c.Name, Heads: int(c.Heads), Dim: int(c.Dim), DType: geometry.DType(c.Dtype)}
			if c.Unit > 1 {
				one.Unit = int(c.Unit)
			}
			if c.TokensPerEntry > 1 {
				one.Entry = int(c.TokensPerEntry)
			}
			if c.Scales > uint32(len(r.Components)) {
				return m, &Error{Field: fmt.Sprintf("%s.components[%d].scales", at, ci), Value: c.Scales, Reason: fmt.Sprintf("the group has %d components", len(r.Components))}
			}
			if c.Scales > 0 {
				one.Scales = r.Components[c.Scales-1].Name
			}
			if uint32(one.DType) != c.Dtype {
				return m, &Error{Field: fmt.Sprintf("%s.components[%d].dtype", at, ci), Value: c.Dtype, Reason: "no such dtype"}
			}
			g.Components = append(g.Components, one)
		}
		for _, s := range r.Shared {
			g.Shared = append(g.Shared, geometry.Share{Layer: int(s.Layer), Owner: int(s.Owner)})
		}
		m.Groups = append(m.Groups, g)
	}
	if err := m.Validate(); err != nil {
		return m, &Error{Field: "groups", Err: err}
	}
	return m, nil
}

// side is an engine whose ranks hold what the record says.
func side(r *abi.Side, m geometry.Model) (plan.Side, error) {
	bad := func(field string, v any, why string, err error) (plan.Side, error) {
		return plan.Side{}, &Error{Field: fmt.Sprintf("side %s: %s", abi.Reason(r.Engine), field), Value: v, Reason: why, Err: err}
	}
	n := len(r.Ranks)
	if n < 1 || n > maxRanks || uint64(r.TP)*uint64(r.Stages)*uint64(r.DCP) != uint64(n) {
		return bad("ranks", n, fmt.Sprintf("want tp x stages x dcp of them (%d x %d x %d), at most %d", r.TP, r.Stages, r.DCP, maxRanks), nil)
	}
	if len(r.Pools) != len(m.Groups) {
		return bad("pools", len(r.Pools), fmt.Sprintf("there are %d groups", len(m.Groups)), nil)
	}
	s := plan.Side{Engine: r.Engine, Model: m, Shard: shard.Spec{
		TP: int(r.TP), DCPSize: int(r.DCP), Interleave: int(r.Interleave), Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP},
	}}
	if s.Engine == "" {
		return bad("engine", nil, "has no name", nil)
	}
	held := make([][][]abi.Part, n) // by rank and group
	for i, rank := range r.Ranks {
		if int(rank.Rank) != i {
			return bad("rank", rank.Rank, fmt.Sprintf("rank %d stands there", i), nil)
		}
		s.Shard.Places = append(s.Shard.Places, shard.Place{PP: int(rank.PP), TP: int(rank.TP), DCP: int(rank.DCP)})
		held[i] = make([][]abi.Part, len(m.Groups))
		for _, p := range rank.Parts {
			if int(p.Group) >= len(m.Groups) {
				return bad("part", p.Group, fmt.Sprintf("there are %d groups", len(m.Groups)), nil)
			}
			held[i][p.Group] = append(held[i][p.Group], p)
		}
	}
	var err error
	if s.Shard.Stages, err = stages(r, m, s.Shard.Places, int(r.Stages)); err != nil {
		return plan.Side{}, err
	}
	var follow []int // groups that the engine's shard must fit
	for g := range m.Groups {
		pool := plan.Pool{Block: int(r.Pools[g].Block), Blocks: int(r.Pools[g].Blocks), Ring: int(r.Pools[g].Ring)}
		parts := column(held, g)
		if !fits(s.Shard, m, g, parts) {
			if own, ok := deal(m, g, parts); ok {
				pool.Shard = own
			}
		}
		if pool.Shard == nil {
			follow = append(follow, g)
		}
		s.Groups = append(s.Groups, pool)
	}
	s.Shard.Heads = lists(s.Shard, m, follow, held)
	if err := s.Shard.Validate(m.Select(follow)); err != nil {
		return bad("shard", nil, "", err)
	}
	if err := lay(&s); err != nil {
		return bad("layout", nil, "", err)
	}
	return s, nil
}

func column(held [][][]abi.Part, g int) [][]abi.Part {
	out := make([][]abi.Part, len(held))
	for r := range held {
		out[r] = held[r][g]
	}
	return out
}

// stages are the layers of each pipeline stage: a stage begins with the first
// layer that a rank of it holds, and layers that nobody holds stay with the
// stage before.
func stages(r *abi.Side, m geometry.Model, places []shard.Place, n int) ([]int, error) {
	first := make([]int, n)
	for i := range first {
		first[i] = m.Layers
	}
	for i, rank := range r.Ranks {
		if places[i].PP >= n {
			return nil, &Error{Field: "rank.pp", Value: places[i].PP, Reason: fmt.Sprintf("there are %d stages", n)}
		}
		for _, p := range rank.Parts {
			if own := m.Groups[p.Group].Layers; len(p.Layers) > 0 && int(p.DCPSize) == int(r.DCP) && slices.Contains(own, int(p.Layers[0].From)) {
				first[places[i].PP] = min(first[places[i].PP], int(p.Layers[0].From))
			}
		}
	}
	first[0] = 0
	for i := n - 1; i > 0; i-- { // a stage that holds nothing has the layer before the next
		most := m.Layers
		if i+1 < n {
			most = first[i+1]
		}
		first[i] = min(first[i], most-1)
		if first[i] < i {
			return nil, &Error{Field: "rank.parts", Value: fmt.Sprintf("stage %d from layer %d", i, first[i]), Reason: "stages hold at least a layer each, in the model's order"}
		}
	}
	out := make([]int, n)
	for i := range out {
		next := m.Layers
		if i+1 < n {
			next = first[i+1]
		}
		if out[i] = next - first[i]; out[i] < 1 {
			return nil, &Error{Field: "rank.parts", Value: fmt.Sprintf("stage %d from layer %d", i, first[i]), Reason: "stages hold at least a layer each, in the model's order"}
		}
	}
	return out, nil
}

// fits reports whether ranks sharded so hold those parts of a group, heads in
// any order that a list of heads can give.
func fits(s shard.Spec, m geometry.Model, g int, parts [][]abi.Part) bool {
	for r := range parts {
		at := s.Places[r]
		lo := 0
		for _, n := range s.Stages[:min(at.PP, len(s.Stages))] {
			lo += n
		}
		if at.PP >= len(s.Stages) {
			return false
		}
		var layers []int
		for _, l := range m.Groups[g].Layers {
			if l >= lo && l < lo+s.Stages[at.PP] {
				layers = append(layers, l)
			}
		}
		if len(layers) == 0 != (len(parts[r]) == 0) {
			return false
		}
		for _, p := range parts[r] {
			own, err := span("layers", p.Layers, geometry.MaxLayers)
			if err != nil || !slices.Equal(own, layers) || int(p.DCPSize) != s.DCPSize || int(p.DCPInterleave) != s.Interleave || int(p.DCPPhase) != at.DCP {
				return false
			}
			if p.Components == 0 || bits.TrailingZeros64(p.Components) >= len(m.Groups[g].Components) {
				return false
			}
			if c := m.Groups[g].Components[bits.TrailingZeros64(p.Components)]; c.Heads > 0 {
				heads, err := span("heads", p.Heads, geometry.MaxHeads)
				if units := c.Heads / c.UnitHeads(); err != nil || len(heads) != max(units/s.TP, 1)*c.UnitHeads() {
					return false
				}
			}
		}
	}
	return true
}

// deal finds a group's own shard: which ranks make up its stages, its phases and
// its head shards, by what they hold.
func deal(m geometry.Model, g int, parts [][]abi.Part) (*shard.Spec, bool) {
	n := len(parts)
	s := shard.Spec{DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}, Places: make([]shard.Place, n)}
	var starts []int // first layers, ascending
	for r := range parts {
		if len(parts[r]) == 0 || len(parts[r][0].Layers) == 0 {
			return nil, false // a stage of its own without layers of the group: which one is not told
		}
		p := parts[r][0]
		s.DCPSize, s.Interleave = int(p.DCPSize), int(p.DCPInterleave)
		if at := int(p.Layers[0].From); !slices.Contains(starts, at) {
			starts = append(starts, at)
		}
	}
	slices.Sort(starts)
	if s.DCPSize < 1 || n%(len(starts)*s.DCPSize) != 0 {
		return nil, false
	}
	s.TP = n / (len(starts) * s.DCPSize)
	for i := range starts {
		from, to := 0, m.Layers
		if i > 0 {
			from = starts[i]
		}
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		if to <= from {
			return nil, false
		}
		s.Stages = append(s.Stages, to-from)
	}
	// Head shards in ascending order of what they hold: equal ones, replicas, in
	// the order of the ranks.
	type seat struct{ stage, phase int }
	ranks := map[seat][]int{}
	for r := range parts {
		at := seat{slices.Index(starts, int(parts[r][0].Layers[0].From)), int(parts[r][0].DCPPhase)}
		ranks[at] = append(ranks[at], r)
	}
	first := func(r int) int {
		for _, p := range parts[r] {
			if len(p.Heads) > 0 {
				return int(p.Heads[0].From)
			}
		}
		return 0
	}
	for at, list := range ranks {
		if at.phase >= s.DCPSize || len(list) != s.TP {
			return nil, false
		}
		slices.SortStableFunc(list, func(a, b int) int { return first(a) - first(b) })
		for t, r := range list {
			s.Places[r] = shard.Place{PP: at.stage, TP: t, DCP: at.phase}
		}
	}
	if !fits(s, m, g, parts) || s.Validate(m.Select([]int{g})) != nil {
		return nil, false
	}
	return &s, true
}

// lists are the heads of each tp rank, where they are not the equal parts that
// there are without a list.
func lists(s shard.Spec, m geometry.Model, groups []int, held [][][]abi.Part) [][]int {
	out := make([][]int, s.TP)
	other := false
	for _, g := range groups {
		for r := range held {
			for _, p := range held[r][g] {
				if p.Components == 0 || bits.TrailingZeros64(p.Components) >= len(m.Groups[g].Components) || s.Places[r].TP >= s.TP {
					continue
				}
				c := m.Groups[g].Components[bits.TrailingZeros64(p.Components)]
				heads, err := span("heads", p.Heads, geometry.MaxHeads)
				if err != nil || c.Heads == 0 {
					continue
				}
				t := s.Places[r].TP
				out[t] = heads
				unit := c.UnitHeads()
				first, count := t*(c.Heads/unit)/s.TP*unit, max(c.Heads/unit/s.TP, 1)*unit
				for i, h := range heads {
					other = other || i >= count || h != first+i
				}
				other = other || len(heads) != count
			}
		}
	}
	if !other || slices.ContainsFunc(out, func(h []int) bool { return h == nil }) {
		return nil
	}
	return out
}

// lay gives every rank a layout: each component in a region of its own, blocks
// outside, rows innermost.
func lay(s *plan.Side) error {
	s.Ranks = make([][]*layout.Layout, s.Shard.Ranks())
	for r := range s.Ranks {
		s.Ranks[r] = make([]*layout.Layout, len(s.Groups))
	}
	for gi, g := range s.Model.Groups {
		spec := order(g)
		known := map[string]*layout.Layout{}
		for r := range s.Ranks {
			part := s.Part(gi, r)
			if len(part.Layers) == 0 {
				continue
			}
			e := part.Extent(g, s.Groups[gi].Block, s.Groups[gi].Blocks)
			key := fmt.Sprint(part.Layers, e.Heads)
			l, ok := known[key]
			if !ok {
				var err error
				if l, err = spec.Resolve(e); err != nil {
					return err
				}
				known[key] = l
			}
			s.Ranks[r][gi] = l
		}
	}
	return nil
}

// order is [block, {NAME: [token, head, dim], ...}], without the axes that a
// component does not have.
func order(g geometry.Group) layout.Spec {
	item := func(a geometry.Axis) layout.Entry { return layout.Entry{Item: layout.Item{Axis: a}} }
	outer, inner, head := geometry.Block, []geometry.Axis{geometry.Token}, geometry.Head
	if g.State {
		outer, inner, head = geometry.Slot, nil, geometry.Channel
	}
	branch := map[string][]layout.Entry{}
	for _, c := range g.Components {
		var entries []layout.Entry
		for _, a := range inner {
			entries = append(entries, item(a))
		}
		if c.Heads > 0 {
			entries = append(entries, item(head))
		}
		branch[c.Name] = append(entries, item(geometry.Dim))
	}
	if len(g.Components) == 1 {
		return layout.Spec{Order: append([]layout.Entry{item(outer)}, branch[g.Components[0].Name]...)}
	}
	return layout.Spec{Order: []layout.Entry{item(outer), {Branch: branch}}}
}
