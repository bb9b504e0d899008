package proof

import (
	"slices"

	"github.com/kvferry/kvferry/plan"
)

// rankKey finds the destination rank that another may be a repetition of.
type rankKey struct {
	group, edges, head int // head: the first that it holds
	form               *form
}

// right is a destination rank of a group that was found right.
type right struct {
	dest     *holder
	sources  []*holder // by edge, from edge from on
	from     int
	elements int64
}

// repeats reports whether a rank holds what d does, where d does, and is fed by
// the same runs from ranks of which the same is true, one for each of those that
// feed d. It is then right for the same reasons: the numbers of the ranks, and
// of the edges between them, are all that differs.
//
// Preconditions: the edges of both are in the canonical order, so that no source
// rank is met twice; the rank has as many edges, from edge from on, as d.
func (d *right) repeats(pl *plan.Plan, dest *holder, sources []*holder, from int) bool {
	if !d.dest.like(dest) {
		return false
	}
	for i := range sources {
		a, b := &pl.Edges[d.from+i], &pl.Edges[from+i]
		if !d.sources[i].like(sources[i]) || !slices.EqualFunc(pl.Runs[a.From:a.To], pl.Runs[b.From:b.To], sameRun) {
			return false
		}
	}
	return true
}

// like reports whether two ranks hold the same of a group, in the same layout.
func (h *holder) like(o *holder) bool {
	return h == o || h.form == o.form && h.phase == o.phase && h.block == o.block && slices.Equal(h.layers, o.layers) &&
		slices.EqualFunc(h.parts, o.parts, func(a, b share) bool {
			return a.unit == b.unit && a.dealt == b.dealt && slices.Equal(a.heads, b.heads)
		})
}

// sameRun reports whether two runs differ by their edge only.
func sameRun(a, b plan.Run) bool {
	return a.Piece == b.Piece && a.Component == b.Component && a.Layer == b.Layer &&
		a.SourceRegion == b.SourceRegion && a.DestinationRegion == b.DestinationRegion &&
		a.SourceOffset == b.SourceOffset && a.DestinationOffset == b.DestinationOffset &&
		a.SourceMap == b.SourceMap && a.DestinationMap == b.DestinationMap &&
		a.Bytes == b.Bytes && slices.Equal(a.Loops, b.Loops)
}
