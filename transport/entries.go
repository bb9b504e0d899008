package transport

import (
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// Entries returns the entries [lo, hi) of a side's table of a group, as the
// request gives it, in which what the request moves lies, on any rank: those
// whose generations an operation checks.
// Preconditions: the request is valid for the pair, and the side's tables are
// known.
func Entries(p *plan.Pair, r *stamp.Request, s Side, group int) (lo, hi int64) {
	side, first := &p.Source, r.SourceFirst
	if s == Destination {
		side, first = &p.Destination, r.DestinationFirst
	}
	span := r.Span(p, group)
	lo, hi = stamp.Entries(side, group, span.From, span.To)
	if first != nil && hi > 0 {
		lo, hi = lo-first[group], hi-first[group]
	}
	return lo, hi
}
