package stamp

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/plan"
)

// Copy is one contiguous copy. Regions are indices into the ranks' layouts.
type Copy struct {
	Group                              int
	SourceRank, SourceRegion           int
	SourceOffset                       int64
	DestinationRank, DestinationRegion int
	DestinationOffset                  int64
	Bytes                              int64
}

// MaxCopies bounds what Expand lists.
const MaxCopies = 1 << 22

// Edges are the edges that the request moves, in the plan's order, each once.
func (s *Stamper) Edges(req *Request) []EdgeKey {
	var out []EdgeKey
	for _, e := range s.whole.plan.Edges {
		k := EdgeKey{e.Source, e.Destination}
		if !slices.Contains(out, k) && (req.Edges == nil || slices.Contains(req.Edges, k)) {
			out = append(out, k)
		}
	}
	return out
}

// Expand lists the request as maximal contiguous copies, sorted by
// destination (rank, group, region, offset). It is for people and tests; transfers
// keep their strides.
//
// Errors: *plan.TooLarge over MaxCopies, and those of Cursor.
// Preconditions: Validate(req) is nil; both tables are known.
func (s *Stamper) Expand(req *Request) ([]Copy, error) {
	var out []Copy
	for _, key := range s.Edges(req) {
		var c Cursor
		if err := s.Cursor(req, key, &c); err != nil {
			return nil, err
		}
		var seg Segment
		for c.Next(&seg) {
			r := seg.Run
			n := r.Pieces()
			if int64(len(out))+n > MaxCopies {
				return nil, &plan.TooLarge{What: "copies", Need: len(out) + int(n), Limit: MaxCopies}
			}
			one := Copy{Group: c.group, SourceRank: key.Source, SourceRegion: r.SourceRegion, DestinationRank: key.Destination, DestinationRegion: r.DestinationRegion, Bytes: r.Bytes * seg.Blocks}
			expand(r.Loops, seg.SourceOffset, seg.DestinationOffset, func(so, do int64) {
				one.SourceOffset, one.DestinationOffset = so, do
				out = append(out, one)
			})
		}
	}
	slices.SortFunc(out, func(a, b Copy) int {
		return cmp.Or(cmp.Compare(a.DestinationRank, b.DestinationRank), cmp.Compare(a.Group, b.Group), cmp.Compare(a.DestinationRegion, b.DestinationRegion), cmp.Compare(a.DestinationOffset, b.DestinationOffset))
	})
	n := 0
	for _, c := range out {
		if n > 0 {
			l := &out[n-1]
			if l.Group == c.Group && l.DestinationRank == c.DestinationRank && l.DestinationRegion == c.DestinationRegion && l.DestinationOffset+l.Bytes == c.DestinationOffset &&
				l.SourceRank == c.SourceRank && l.SourceRegion == c.SourceRegion && l.SourceOffset+l.Bytes == c.SourceOffset {
				l.Bytes += c.Bytes
				continue
			}
		}
		out[n] = c
		n++
	}
	return out[:n], nil
}

func expand(loops []plan.Loop, so, do int64, f func(so, do int64)) {
	if len(loops) == 0 {
		f(so, do)
		return
	}
	for range loops[0].Count {
		expand(loops[1:], so, do, f)
		so += loops[0].SourceStride
		do += loops[0].DestinationStride
	}
}
