package proof

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// checker decides one plan.
type checker struct {
	pair   *plan.Pair
	pl     *plan.Plan
	budget Budget

	cells, steps int    // spent
	over         string // the budget that did not suffice
	forms        map[*layout.Layout]*form
	latest       *form              // the form read last
	sources      map[[2]int]*holder // by group and rank
	truth        map[int]pieceKey   // pieces found true
	ranks        map[rankKey]*right
	held         map[heldKey]*holder // what ranks at equal places hold
	elements     int64
}

func newChecker(p *plan.Pair, pl *plan.Plan, b Budget) *checker {
	return &checker{pair: p, pl: pl, budget: b, forms: map[*layout.Layout]*form{}, sources: map[[2]int]*holder{}, truth: map[int]pieceKey{}, ranks: map[rankKey]*right{}, held: map[heldKey]*holder{}}
}

// cell counts one node passed.
func (c *checker) cell() bool {
	c.cells++
	if c.cells > c.budget.Cells {
		c.over = "cells"
	}
	return c.over == ""
}

// spend counts n single steps.
func (c *checker) spend(n int64) bool {
	if n > int64(c.budget.Steps-c.steps) {
		c.over = "steps"
		return false
	}
	c.steps += int(n)
	return c.over == ""
}

// tooLarge is the error for the budget that did not suffice.
func (c *checker) tooLarge() error {
	if c.over == "steps" {
		return &plan.TooLarge{What: "steps of the proof", Need: c.budget.Steps + 1, Limit: c.budget.Steps}
	}
	return &plan.TooLarge{What: "cells of the proof", Need: c.budget.Cells + 1, Limit: c.budget.Cells}
}

// malformed is a fault of form; edge and run may be -1.
func (c *checker) malformed(edge, run int, why string, args ...any) *Fault {
	f := &Fault{Kind: Malformed, Rank: -1, Source: -1, Edge: edge, Run: run, Reason: fmt.Sprintf(why, args...)}
	c.name(f)
	return f
}

// name fills in what the pair and plan say about a fault.
func (c *checker) name(f *Fault) {
	f.SourceEngine, f.DestinationEngine = c.pair.Source.Engine, c.pair.Destination.Engine
	group := f.At.Group
	if f.Edge >= 0 && f.Edge < len(c.pl.Edges) {
		e := c.pl.Edges[f.Edge]
		f.Source, f.Rank, group = e.Source, e.Destination, e.Group
	}
	if group < 0 || group >= len(c.pair.Source.Model.Groups) {
		return
	}
	g := &c.pair.Source.Model.Groups[group]
	f.Group, f.State = g.Name, g.State
	if f.Has {
		f.AtComponent = g.Components[f.At.Component].Name
		if f.Kind == Swap || f.Kind == Parted {
			f.GotComponent = g.Components[f.Got.Component].Name
		}
	}
	describe := func(s *plan.Side, r int) string {
		if r < 0 || r >= len(s.Ranks) || s.Ranks[r][group] == nil {
			return ""
		}
		form, why := c.form(s.Ranks[r][group])
		if why != "" {
			return ""
		}
		return form.order()
	}
	f.SourceLayout = describe(&c.pair.Source, f.Source)
	f.DestinationLayout = describe(&c.pair.Destination, f.Rank)
}

// form returns the form of l, made once. The layouts of two stages often differ
// by the numbers of their layers only, of which a form knows nothing.
func (c *checker) form(l *layout.Layout) (*form, string) {
	if f, ok := c.forms[l]; ok {
		return f, ""
	}
	if o := c.latest; o != nil && renumbered(o.l, l) {
		f := *o
		f.l = l
		c.forms[l] = &f
		return &f, ""
	}
	f, why := read(l)
	if why == "" {
		c.forms[l], c.latest = f, f
	}
	return f, why
}

// renumbered reports whether two layouts differ by nothing but the numbers of
// their layers and the names of their regions.
func renumbered(a, b *layout.Layout) bool {
	x, y := &a.Extent, &b.Extent
	return x.Blocks == y.Blocks && x.Tokens == y.Tokens && x.State == y.State && len(x.Layers) == len(y.Layers) && slices.Equal(x.Heads, y.Heads) && slices.Equal(x.Components, y.Components) &&
		slices.EqualFunc(a.Regions, b.Regions, func(r, s layout.Region) bool { return r.Bytes == s.Bytes }) &&
		slices.EqualFunc(a.Maps, b.Maps, slices.Equal[[]layout.Digit]) && slices.EqualFunc(a.Places, b.Places, slices.Equal[[]layout.Place])
}

// holder returns what a rank holds of a group.
func (c *checker) holder(s *plan.Side, name string, group, rank int) (*holder, error) {
	of := &s.Model.Groups[group]
	l := s.Ranks[rank][group]
	key := heldKey{s, group, l, gridOf(s.ShardOf(group), rank)}
	at := key.at
	if !slices.ContainsFunc(of.Components, func(o geometry.Component) bool { return o.Heads > 0 }) {
		key.at[shard.TP] = 0 // all TP ranks hold the same
	}
	if h, ok := c.held[key]; ok {
		return h, nil
	}
	h, why := hold(s.ShardOf(group), of, at, s.Groups[group].Block)
	if why != "" {
		return nil, c.malformed(-1, -1, "the shard of group %d at the %s: %s", group, name, why)
	}
	if len(h.layers) == 0 {
		return h, nil
	}
	fits := l != nil && slices.Equal(l.Extent.Layers, h.layers) && len(l.Extent.Heads) == len(h.parts)
	for i := 0; fits && i < len(h.parts); i++ {
		fits = max(l.Extent.Heads[i], 1) == len(h.parts[i].heads)
	}
	if !fits {
		return nil, c.malformed(-1, -1, "the layout of %s rank %d is not that of what its shard holds", name, rank)
	}
	f, why := c.form(l)
	if why != "" {
		return nil, c.malformed(-1, -1, "the layout of %s rank %d: %s", name, rank, why)
	}
	h.form = f
	c.held[key] = h
	return h, nil
}

// heldKey is all that what a rank holds of a group follows from.
type heldKey struct {
	side   *plan.Side
	group  int
	layout *layout.Layout
	at     grid
}

// source is holder for the source, kept.
func (c *checker) source(group, rank int) (*holder, error) {
	k := [2]int{group, rank}
	if h, ok := c.sources[k]; ok {
		return h, nil
	}
	h, err := c.holder(&c.pair.Source, "source", group, rank)
	if err == nil {
		c.sources[k] = h
	}
	return h, err
}

// check decides the plan.
//
// Preconditions: the pair is valid.
func (c *checker) check() error {
	if n := len(c.pl.Runs); n > c.budget.Runs {
		return &plan.TooLarge{What: "runs", Need: n, Limit: c.budget.Runs}
	}
	if n := len(c.pl.Pieces); n > c.budget.Pieces {
		return &plan.TooLarge{What: "pieces", Need: n, Limit: c.budget.Pieces}
	}
	if err := c.checkPeriods(); err != nil {
		return err
	}
	if err := c.checkOrder(); err != nil {
		return err
	}
	if err := c.checkRuns(); err != nil {
		return err
	}
	next := 0 // edge
	for g := range c.pair.Destination.Model.Groups {
		for rank := range c.pair.Destination.Ranks {
			from := next
			for next < len(c.pl.Edges) && c.pl.Edges[next].Group == g && c.pl.Edges[next].Destination == rank {
				next++
			}
			if err := c.checkRank(g, rank, from, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxTokens bounds a period, far above any budget of runs.
const maxTokens = 1 << 44

func (c *checker) checkPeriods() error {
	s, d := &c.pair.Source, &c.pair.Destination
	if len(c.pl.Groups) != len(s.Model.Groups) {
		return c.malformed(-1, -1, "it has periods for %d groups, the model has %d", len(c.pl.Groups), len(s.Model.Groups))
	}
	for g, w := range c.pl.Groups {
		if w.Tokens < 1 || w.Tokens > maxTokens || w.From < 0 || w.From > w.To || w.To > w.Tokens {
			return c.malformed(-1, -1, "the period of group %d has %d tokens and a window from %d to %d", g, w.Tokens, w.From, w.To)
		}
		if s.Model.Groups[g].State && w.Tokens != 1 {
			return c.malformed(-1, -1, "the period of group %d has %d tokens, a state has none and counts as one", g, w.Tokens)
		}
		for i := range s.Model.Groups[g].Components {
			if u := unitOf(&s.Model.Groups[g].Components[i]); u.first && w.From < w.To && w.From%u.tokens != 0 {
				return c.malformed(-1, -1, "the window of group %d starts at token %d, inside an entry of %d tokens of component %s, which moves with the first of them", g, w.From, u.tokens, s.Model.Groups[g].Components[i].Name)
			}
		}
		for _, side := range []struct {
			name   string
			s      *plan.Side
			blocks int64
		}{{"source", s, w.SourceBlocks}, {"destination", d, w.DestinationBlocks}} {
			own := side.s.ShardOf(g)
			deal := dealt{int64(own.DCPSize), int64(own.Interleave), 0, int64(side.s.Groups[g].Block)}
			if !deal.repeats(w.Tokens, side.blocks) {
				return c.malformed(-1, -1, "the %s does not repeat after %d tokens and %d blocks of %d in group %d", side.name, w.Tokens, side.blocks, deal.block, g)
			}
		}
	}
	return nil
}

// checkOrder checks the edges and the canonical order of the runs.
func (c *checker) checkOrder() error {
	at := 0
	for i, e := range c.pl.Edges {
		if e.Group < 0 || e.Group >= len(c.pl.Groups) || e.Source < 0 || e.Source >= len(c.pair.Source.Ranks) || e.Destination < 0 || e.Destination >= len(c.pair.Destination.Ranks) {
			return c.malformed(-1, -1, "edge %d names a group or rank that is not there", i)
		}
		if i > 0 {
			o := c.pl.Edges[i-1]
			if slices.Compare([]int{o.Group, o.Destination, o.Source}, []int{e.Group, e.Destination, e.Source}) >= 0 {
				return c.malformed(i, -1, "edge %d is not behind edge %d in the order of group, destination and source", i, i-1)
			}
		}
		if e.From != at || e.To <= e.From || e.To > len(c.pl.Runs) {
			return c.malformed(i, -1, "edge %d has runs %d to %d, want some from %d", i, e.From, e.To, at)
		}
		for r := e.From; r < e.To; r++ {
			if c.pl.Runs[r].Edge != i {
				return c.malformed(i, r, "it says edge %d and lies in edge %d", c.pl.Runs[r].Edge, i)
			}
			if r > e.From && c.pl.Runs[r].Layer < c.pl.Runs[r-1].Layer {
				return c.malformed(i, r, "layer %d comes behind layer %d", c.pl.Runs[r].Layer, c.pl.Runs[r-1].Layer)
			}
		}
		at = e.To
	}
	if at != len(c.pl.Runs) {
		return c.malformed(-1, at, "it belongs to no edge")
	}
	return nil
}

// times multiplies non-negative numbers; false above limit.
func times(a, b, limit int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= uint64(limit)
}

// checkRuns bounds every number of every run, so that no later sum or product
// overflows.
func (c *checker) checkRuns() error {
	const far = layout.MaxRegionBytes
	for i := range c.pl.Runs {
		r := &c.pl.Runs[i]
		e := &c.pl.Edges[r.Edge]
		s, d := c.pair.Source.Ranks[e.Source][e.Group], c.pair.Destination.Ranks[e.Destination][e.Group]
		switch {
		case s == nil:
			return c.malformed(r.Edge, i, "source rank %d holds nothing of the group", e.Source)
		case d == nil:
			return c.malformed(r.Edge, i, "destination rank %d holds nothing of the group", e.Destination)
		case r.Piece < 0 || r.Piece >= len(c.pl.Pieces):
			return c.malformed(r.Edge, i, "piece %d is not one of %d", r.Piece, len(c.pl.Pieces))
		case r.SourceRegion < 0 || r.SourceRegion >= len(s.Regions):
			return c.malformed(r.Edge, i, "source region %d is not one of %d", r.SourceRegion, len(s.Regions))
		case r.DestinationRegion < 0 || r.DestinationRegion >= len(d.Regions):
			return c.malformed(r.Edge, i, "destination region %d is not one of %d", r.DestinationRegion, len(d.Regions))
		case r.SourceMap < 0 || r.SourceMap >= len(s.Maps):
			return c.malformed(r.Edge, i, "source map %d is not one of %d", r.SourceMap, len(s.Maps))
		case r.DestinationMap < 0 || r.DestinationMap >= len(d.Maps):
			return c.malformed(r.Edge, i, "destination map %d is not one of %d", r.DestinationMap, len(d.Maps))
		case r.Component < 0 || r.Component >= len(s.Places):
			return c.malformed(r.Edge, i, "component %d is not one of %d", r.Component, len(s.Places))
		case len(r.Loops) > plan.MaxLoops:
			return c.malformed(r.Edge, i, "it has %d loops, at most %d are allowed", len(r.Loops), plan.MaxLoops)
		case r.Bytes < 1 || r.Bytes > far:
			return c.malformed(r.Edge, i, "it moves %d bytes at a time", r.Bytes)
		case r.SourceOffset < 0 || r.SourceOffset > far:
			return c.bounds(r.Edge, i, "it reads at byte %d of region %q", r.SourceOffset, s.Regions[r.SourceRegion].Name)
		case r.DestinationOffset < 0 || r.DestinationOffset > far:
			return c.bounds(r.Edge, i, "it writes at byte %d of region %q", r.DestinationOffset, d.Regions[r.DestinationRegion].Name)
		}
		total := r.Bytes
		for k, l := range r.Loops {
			if l.Count < 1 {
				return c.malformed(r.Edge, i, "loop %d counts %d", k, l.Count)
			}
			var ok bool
			if total, ok = times(total, l.Count, far); !ok {
				return c.bounds(r.Edge, i, "it moves more bytes than a region can hold")
			}
			for _, stride := range []int64{l.SourceStride, l.DestinationStride} {
				if stride > far || stride < -far {
					return c.bounds(r.Edge, i, "loop %d has a stride of %d bytes", k, stride)
				}
				if _, ok := times(max(stride, -stride), l.Count, 2*far); !ok {
					return c.bounds(r.Edge, i, "loop %d reaches beyond any region", k)
				}
			}
		}
	}
	return nil
}

// bounds is a Bounds fault without a coordinate.
func (c *checker) bounds(edge, run int, why string, args ...any) *Fault {
	f := c.malformed(edge, run, why, args...)
	f.Kind = Bounds
	return f
}

// entry is a run of a slice, relative to the places of its layer: equal entries
// move the same elements of their layers.
type entry struct {
	index        int // of the run
	run          *plan.Run
	source, dest *stratum // nil where the layer does not lie in the run's region or on the rank
	so, do       int      // ordinals of the regions
	sx, dx       int64    // bits above the bases
}

// like reports whether two entries differ by their layer only.
func (e *entry) like(o *entry) bool {
	a, b := e.run, o.run
	return e.source != nil && o.source != nil && e.dest != nil && o.dest != nil &&
		a.Edge == b.Edge && a.Piece == b.Piece && a.Component == b.Component &&
		e.source.shape == o.source.shape && e.dest.shape == o.dest.shape &&
		e.so == o.so && e.do == o.do && e.sx == o.sx && e.dx == o.dx &&
		a.SourceMap == b.SourceMap && a.DestinationMap == b.DestinationMap &&
		a.Bytes == b.Bytes && slices.Equal(a.Loops, b.Loops)
}

// slice is one layer of one group on one destination rank.
type slice struct {
	group, rank, layer int
	dest               *holder
	window             *plan.Period
	entries            []entry
}

// checkRank decides the edges from (inclusive) to to, which are all that feed
// the rank.
func (c *checker) checkRank(g, rank, from, to int) error {
	dest, err := c.holder(&c.pair.Destination, "destination", g, rank)
	if err != nil {
		return err
	}
	cursor := make([]int, to-from)
	sources := make([]*holder, to-from)
	for i := range cursor {
		cursor[i] = c.pl.Edges[from+i].From
		if sources[i], err = c.source(g, c.pl.Edges[from+i].Source); err != nil {
			return err
		}
		if sources[i].form == nil {
			return c.malformed(from+i, -1, "source rank %d holds nothing of the group", c.pl.Edges[from+i].Source)
		}
	}
	key := rankKey{group: g, form: dest.form, edges: to - from, head: dest.parts[0].heads[0]}
	if known := c.ranks[key]; known != nil && known.repeats(c.pl, dest, sources, from) {
		c.elements += known.elements
		return nil
	}
	before := c.elements
	for i := from; i < to; i++ {
		e := &c.pl.Edges[i]
		for k := e.From; k < e.To; k++ {
			n := c.pl.Runs[k].Layer
			if k > e.From && n == c.pl.Runs[k-1].Layer {
				continue
			}
			if !slices.Contains(dest.layers, n) {
				return c.bounds(i, k, "destination rank %d does not hold layer %d", rank, n)
			}
		}
	}
	window := &c.pl.Groups[g]
	comps := c.pair.Destination.Model.Groups[g].Components
	covers := make([]cover, len(comps))
	for i := range covers {
		from, to := dest.parts[i].due(window)
		covers[i].due = (to - from) * int64(len(dest.parts[i].heads)) * int64(comps[i].Dim)
	}
	var kept, now []entry
	decided := false
	for li, layer := range dest.layers {
		now = now[:0]
		for i := range cursor {
			for ; cursor[i] < c.pl.Edges[from+i].To; cursor[i]++ {
				r := &c.pl.Runs[cursor[i]]
				if r.Layer != layer {
					break
				}
				now = append(now, c.entry(cursor[i], sources[i], dest, li))
			}
		}
		if !decided || len(now) != len(kept) || !slices.EqualFunc(now, kept, func(a, b entry) bool { return a.like(&b) }) {
			s := slice{g, rank, layer, dest, window, now}
			if err := c.decide(&s, sources, from, covers); err != nil {
				return err
			}
			decided = true
			kept, now = now, kept
		}
		for i := range covers {
			c.elements += covers[i].due
		}
	}
	c.ranks[key] = &right{dest, sources, from, c.elements - before}
	return nil
}

// entry makes the entry of run index; li is the layer's index at the
// destination.
func (c *checker) entry(index int, source, dest *holder, li int) entry {
	r := &c.pl.Runs[index]
	e := entry{index: index, run: r}
	if si, ok := slices.BinarySearch(source.layers, r.Layer); ok { // those of its layout, ascending
		s := &source.form.strata[si]
		if e.so = slices.Index(s.regions, r.SourceRegion); e.so >= 0 {
			e.source = s
			e.sx = r.SourceOffset*8 - s.bases[e.so]
		}
	}
	d := &dest.form.strata[li]
	if e.do = slices.Index(d.regions, r.DestinationRegion); e.do >= 0 {
		e.dest = d
		e.dx = r.DestinationOffset*8 - d.bases[e.do]
	}
	return e
}

// decide decides one slice. sources are the holders of the edges from edge
// from on.
func (c *checker) decide(s *slice, sources []*holder, from int, covers []cover) error {
	for i := range covers {
		covers[i].reset()
	}
	deep := 0
	for i := range s.entries {
		if e := &s.entries[i]; e.source != nil && e.dest != nil {
			deep = max(deep, e.source.shape.deep, e.dest.shape.deep)
		}
	}
	values := make([]int64, 2*deep)
	for i := range s.entries {
		e := &s.entries[i]
		source := sources[e.run.Edge-from]
		q := &c.pl.Pieces[e.run.Piece]
		part := &s.dest.parts[e.run.Component]
		key := pieceKey{s.group, int(source.phase), int(s.dest.phase), part.unit}
		if known, ok := c.truth[e.run.Piece]; !ok || known != key {
			if why := c.piece(q, s.window, &source.parts[e.run.Component], part); why != "" {
				if c.over != "" {
					return c.tooLarge()
				}
				return c.malformed(e.run.Edge, e.index, "piece %d is not true: %s", e.run.Piece, why)
			}
			c.truth[e.run.Piece] = key
		}
		if e.source == nil || e.dest == nil {
			return c.explain(s, sources, from, e)
		}
		if !source.form.aligned[e.run.SourceMap] || !s.dest.form.aligned[e.run.DestinationMap] {
			return c.malformed(e.run.Edge, e.index, "blocks do not start on bytes")
		}
		fine := true
		w := walker{
			c: c, run: e.run, piece: q, source: source, dest: s.dest,
			sourceRoot: e.source.shape.roots[e.so], sourceBase: e.source.bases[e.so],
			sourceClass: source.form.block[e.run.SourceMap], destClass: s.dest.form.block[e.run.DestinationMap],
			values: values[:deep], origin: values[deep:],
			emit: func(cell cell) {
				fine = fine && covers[cell.component].add(&cell, q.DestinationBlock*part.block, e.run.Edge)
			},
		}
		if !w.decide(e.dest.shape.roots[e.do], e.dest.bases[e.do]) || !fine {
			return c.explain(s, sources, from, e)
		}
	}
	for i := range covers {
		if covers[i].written != covers[i].due || !covers[i].disjoint(c) {
			return c.explain(s, sources, from, nil)
		}
	}
	if !c.together(s, covers) {
		return c.parted(s, sources, from)
	}
	return nil
}
