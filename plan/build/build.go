// Package build lowers a policy's assignments to the strided runs of a plan.
//
// It checks that the assignments are possible and nothing else: whether the
// plan is right is decided by package proof, which shares no arithmetic with
// this one.
//
// The method: the coordinates that both ranks share are taken axis by axis
// (head, token, dim). Each axis falls into fragments, in which both sides
// advance in the same nest of loops (fold.go); a tiled axis takes a few loops
// more and no case of its own. The fragments of all axes are crossed, their
// loops sorted by the destination's stride and collapsed where they lie
// contiguous on both sides, and what continues one another becomes one run
// (lower.go).
package build

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// Window is a range of tokens of a group's period. The zero value is the
// whole period.
type Window struct {
	From, To int64
	None     bool // no token of the group; From and To are 0
}

// Unaligned is a run of sub-byte elements that would not start or end on a
// byte.
type Unaligned struct {
	Component           string
	DType               geometry.DType
	Layer               int
	Source, Destination int // ranks
	Bits                int64
}

func (e *Unaligned) Error() string {
	return fmt.Sprintf("build: component %s (%s) layer %d from source rank %d to destination rank %d: a piece is not whole bytes (bit %d): the layouts part elements that share a byte",
		e.Component, e.DType, e.Layer, e.Source, e.Destination, e.Bits)
}

// TooDeep is a run that needs more loops than plan.MaxLoops.
type TooDeep struct {
	Component           string
	DType               geometry.DType
	Layer               int
	Source, Destination int // ranks
	Loops               int
}

func (e *TooDeep) Error() string {
	return fmt.Sprintf("build: component %s (%s) layer %d from source rank %d to destination rank %d: %d nested loops needed, at most %d are possible",
		e.Component, e.DType, e.Layer, e.Source, e.Destination, e.Loops, plan.MaxLoops)
}

// maxSteps bounds the work that is in no proportion to the runs that come of
// it: intervals of tokens and of axes looked at, rows of ranks compared.
const maxSteps = 1 << 23

// maxPeriod bounds the tokens of a period, so that sums and products of them
// stay within int64.
const maxPeriod = int64(1) << 44

// Build lowers assignments for the whole period, or for the window where one
// is given for each group. Missing windows are whole periods. The result
// depends on the arguments only; it shares no memory with them.
//
// Errors: *plan.AssignmentError (the policy's fault), *plan.TooLarge,
// *plan.Error for a window, *Unaligned, *TooDeep.
// Preconditions: p.Validate() is nil.
func Build(p *plan.Pair, as []plan.Assignment, windows []Window, budget plan.Budget) (*plan.Plan, error) {
	if err := p.ValidateAssignments(as); err != nil {
		return nil, err
	}
	b := &builder{pair: p, budget: budget, pieces: map[pieceKey]span{}, folds: map[foldKey][]fragment{}, forms: map[*layout.Layout]*form{}, made: map[madeKey]made{}}
	b.out = &plan.Plan{Pair: p.Digest(), Assignments: slices.Clone(as), Groups: make([]plan.Period, len(p.Source.Model.Groups))}
	for g := range b.out.Groups {
		period, err := b.period(g, as)
		if err != nil {
			return nil, err
		}
		if g < len(windows) {
			if err := windows[g].apply(&period); err != nil {
				return nil, err
			}
		}
		b.out.Groups[g] = period
	}
	b.source.init(&p.Source)
	b.destination.init(&p.Destination)
	order := make([]int, len(as))
	for i := range order {
		order[i] = i
	}
	compare := func(a, b *plan.Assignment) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Source, b.Source))
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(&as[i], &as[j]) })
	for i := 0; i < len(order); {
		j := i + 1
		for j < len(order) && compare(&as[order[i]], &as[order[j]]) == 0 {
			j++
		}
		b.rest = len(order) - j
		if err := b.edge(as, order[i:j]); err != nil {
			return nil, err
		}
		i = j
	}
	return b.out, nil
}

// apply restricts a period to the window.
func (w Window) apply(period *plan.Period) error {
	switch {
	case w == (Window{}):
		return nil
	case w == (Window{None: true}):
		period.From, period.To = 0, 0
		return nil
	case w.None || w.From < 0 || w.To > period.Tokens || w.From >= w.To:
		return &plan.Error{Side: "pair", Field: "window", Value: w, Reason: fmt.Sprintf("want a range within a period of %d tokens", period.Tokens)}
	}
	period.From, period.To = w.From, w.To
	return nil
}

// span is a half-open range of indices.
type span struct{ from, to int }

// builder holds what is shared by all edges.
type builder struct {
	pair                *plan.Pair
	source, destination holdings
	budget              plan.Budget
	out                 *plan.Plan
	bytes               int // of the plan, estimated
	steps               int

	pieces map[pieceKey]span
	folds  map[foldKey][]fragment
	forms  map[*layout.Layout]*form
	latest [2]*form // the form made last, by side
	made   map[madeKey]made
	rest   int // assignments behind those of the edge that is being lowered

	heads  []progression // scratch
	wide   []wide        // scratch
	loops  []bitLoop     // scratch of wide
	places []int32       // scratch: place of each model head at the source, or -1
}

// step counts work that no budget of the plan covers.
func (b *builder) step(n int) error {
	if b.steps += n; b.steps > maxSteps {
		return &plan.TooLarge{What: "steps of the build", Need: b.steps, Limit: maxSteps}
	}
	return nil
}

// spend counts n runs more of the given memory, before they are made.
func (b *builder) spend(n, bytes int) error {
	if need := len(b.out.Runs) + n; need > b.budget.Runs {
		return &plan.TooLarge{What: "runs", Need: need, Limit: b.budget.Runs}
	}
	if b.bytes += bytes; b.bytes > b.budget.Bytes {
		return &plan.TooLarge{What: "bytes", Need: b.bytes, Limit: b.budget.Bytes}
	}
	return nil
}

// holdings is what each rank of a side holds, computed once.
type holdings struct {
	side  *plan.Side
	parts [][]*shard.Part // [group][rank]
	// at has them by place in the grid: where a group has no heads, all TP ranks
	// share one.
	at []map[shard.Place]*shard.Part // [group]
}

func (h *holdings) init(s *plan.Side) {
	h.side = s
	h.parts = make([][]*shard.Part, len(s.Groups))
	h.at = make([]map[shard.Place]*shard.Part, len(s.Groups))
}

// part returns what a rank holds of a group.
func (h *holdings) part(g, rank int) *shard.Part {
	if h.parts[g] == nil {
		h.parts[g] = make([]*shard.Part, len(h.side.Ranks))
		if !slices.ContainsFunc(h.side.Model.Groups[g].Components, func(c geometry.Component) bool { return c.Heads > 0 }) {
			h.at[g] = map[shard.Place]*shard.Part{}
		}
	}
	if p := h.parts[g][rank]; p != nil {
		return p
	}
	var at shard.Place
	if h.at[g] != nil {
		at = h.side.ShardOf(g).Place(rank)
		at.TP = 0
		if p := h.at[g][at]; p != nil {
			h.parts[g][rank] = p
			return p
		}
	}
	p := h.side.Part(g, rank)
	h.parts[g][rank] = &p
	if h.at[g] != nil {
		h.at[g][at] = &p
	}
	return &p
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// lcm is the least common multiple; false above limit.
// Preconditions: a, b >= 1.
func lcm(a, b, limit int64) (int64, bool) {
	a /= gcd(a, b)
	if a > limit/b {
		return 0, false
	}
	return a * b, true
}

// period computes how tokens and table entries of a group repeat.
func (b *builder) period(g int, as []plan.Assignment) (plan.Period, error) {
	tooLong := &plan.TooLarge{What: "pieces", Need: b.budget.Pieces + 1, Limit: b.budget.Pieces}
	st, se, ok := repeat(&b.pair.Source, g)
	dt, de, also := repeat(&b.pair.Destination, g)
	if !ok || !also {
		return plan.Period{}, tooLong
	}
	t, ok := lcm(st, dt, maxPeriod)
	if !ok {
		return plan.Period{}, tooLong
	}
	last := plan.Tokens{}
	for i := range as {
		if f := as[i].Tokens; as[i].Group == g && !f.All() && f != last {
			if t, ok = lcm(t, int64(f.Size)*int64(f.Interleave), maxPeriod); !ok {
				return plan.Period{}, tooLong
			}
			last = f
		}
	}
	out := plan.Period{Tokens: t, To: t, SourceBlocks: t / st * se, DestinationBlocks: t / dt * de}
	// Every table entry of a period is a piece of its own on some edge.
	if n := max(out.SourceBlocks, out.DestinationBlocks); n > int64(b.budget.Pieces) {
		return plan.Period{}, &plan.TooLarge{What: "pieces", Need: int(n), Limit: b.budget.Pieces}
	}
	return out, nil
}

// repeat says after how many tokens and table entries the places of a side's
// tokens repeat.
func repeat(s *plan.Side, g int) (tokens, entries int64, ok bool) {
	spec := s.ShardOf(g)
	block, interleave := int64(s.Groups[g].Block), int64(spec.Interleave)
	if spec.DCPSize == 1 {
		return block, 1, true
	}
	local, ok := lcm(block, interleave, maxPeriod/int64(spec.DCPSize))
	return local * int64(spec.DCPSize), local / block, ok
}

// madeKey finds the edge that another may be a repetition of.
type madeKey struct {
	group               int
	source, destination *layout.Layout
	first               [4]int // layers and heads
}

// made is an edge that has been lowered.
type made struct {
	source, destination *shard.Part
	which               []int // indices of its assignments
	runs                span
}

// repeats reports whether an edge between ranks that hold such parts, with the
// assignments of the given indices, has the runs of m: ranks that hold the same
// in the same layout lie alike.
// Preconditions: m is an edge of the same group and layouts.
func (m *made) repeats(source, destination *shard.Part, as []plan.Assignment, which []int) bool {
	return same(m.source, source) && same(m.destination, destination) && slices.EqualFunc(m.which, which, func(i, j int) bool {
		a, b := &as[i], &as[j]
		return a.Components == b.Components && a.Layers == b.Layers && a.Heads == b.Heads && a.Tokens == b.Tokens
	})
}

func same(a, b *shard.Part) bool {
	return a == b || a.Size == b.Size && a.Interleave == b.Interleave && a.Phase == b.Phase && slices.Equal(a.Layers, b.Layers) && slices.EqualFunc(a.Heads, b.Heads, slices.Equal[[]int])
}

// key is where an edge is kept.
func (b *builder) key(group int, sl, dl *layout.Layout, source, destination *shard.Part) madeKey {
	k := madeKey{group: group, source: sl, destination: dl}
	for i, p := range []*shard.Part{source, destination} {
		k.first[2*i] = p.Layers[0]
		for _, heads := range p.Heads {
			if len(heads) > 0 {
				k.first[2*i+1] = heads[0]
				break
			}
		}
	}
	return k
}

// edge lowers all assignments of one edge, which are those with the given
// indices.
func (b *builder) edge(as []plan.Assignment, which []int) error {
	first := &as[which[0]]
	e := plan.Edge{Group: first.Group, Source: first.Source, Destination: first.Destination, From: len(b.out.Runs)}
	sl, dl := b.pair.Source.Ranks[e.Source][e.Group], b.pair.Destination.Ranks[e.Destination][e.Group]
	if sl == nil || dl == nil {
		return nil
	}
	source, destination := b.source.part(e.Group, e.Source), b.destination.part(e.Group, e.Destination)
	key := b.key(e.Group, sl, dl, source, destination)
	if m, ok := b.made[key]; ok && m.repeats(source, destination, as, which) {
		return b.again(e, m.runs)
	}
	group := &b.pair.Source.Model.Groups[e.Group]
	l := lowering{
		b: b, edge: e, index: len(b.out.Edges), group: group, classes: group.Classes(),
		source:      end{sl, b.form(0, sl), source},
		destination: end{dl, b.form(1, dl), destination},
	}
	l.rows = make([][]row, len(l.classes))
	for _, i := range which {
		l.a = &as[i]
		for c := range l.classes {
			if l.mask = l.a.Components & l.classes[c].Components; l.mask == 0 {
				continue
			}
			if err := l.run(c); err != nil {
				return err
			}
		}
	}
	e.To = len(b.out.Runs)
	b.made[key] = made{source, destination, which, span{e.From, e.To}}
	if e.To == e.From {
		return nil
	}
	if len(which) > 1 || len(l.classes) > 1 {
		slices.SortStableFunc(b.out.Runs[e.From:e.To], func(x, y plan.Run) int { return cmp.Compare(x.Layer, y.Layer) })
	}
	b.out.Edges = append(b.out.Edges, e)
	return nil
}

// again appends the runs of an edge once more, for the edge e.
func (b *builder) again(e plan.Edge, runs span) error {
	n := runs.to - runs.from
	if n == 0 {
		return nil
	}
	if err := b.spend(n, n*runBytes); err != nil {
		return err
	}
	if len(b.out.Runs)+n > cap(b.out.Runs) {
		b.out.Runs = slices.Grow(b.out.Runs, n*min(b.rest+1, max(1, 4096/n)))
	}
	b.out.Runs = append(b.out.Runs, b.out.Runs[runs.from:runs.to]...)
	e.To = len(b.out.Runs)
	for i := e.From; i < e.To; i++ {
		b.out.Runs[i].Edge = len(b.out.Edges)
	}
	b.out.Edges = append(b.out.Edges, e)
	return nil
}
