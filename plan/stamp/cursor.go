package stamp

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
)

// Cursor walks one edge's segments of one request. The zero value is spent;
// Stamper.Cursor makes it ready. A Cursor is used by one goroutine at a time
// and may be used again. Work is shared by giving each worker a cursor of
// another range of layers.
type Cursor struct {
	s                   *Stamper
	edge                EdgeKey
	layers              plan.Range
	source, destination [][]uint32 // tables by group, nil: unknown
	from, to            int64

	group  int
	parts  [3]part
	nParts int
	part   int

	run, runEnd       int
	r                 *plan.Run
	period, periodEnd int64 // left of the run
	at                [2]lane
	adjacent          bool // adjacent blocks can be joined
}

// lane is one side of the run that a cursor walks.
type lane struct {
	table  []uint32
	entry  int64 // of the next segment
	every  int64 // entries a period
	base   int64 // bytes, with block id 0
	stride int64 // bytes from one block id to the next, or manyDigits
}

// Cursor makes c walk the segments of one edge of the request. An edge that
// carries nothing is walked in no steps.
//
// Errors: those of building and proving a window in which no request has
// started or ended before; c is then spent.
// Preconditions: Validate(req) is nil; the tables of req are not modified
// while the cursor is in use.
func (s *Stamper) Cursor(req *Request, edge EdgeKey, c *Cursor) error {
	*c = Cursor{}
	// Make every window before the first step, so that Next cannot fail.
	var parts [3]part
	for g := range s.whole.plan.Groups {
		if _, err := s.parts(g, req.From, req.To, &parts); err != nil {
			return err
		}
	}
	c.s, c.edge, c.layers, c.group = s, edge, req.Layers, -1
	c.source, c.destination = req.Source, req.Destination
	c.from, c.to = req.From, req.To
	return nil
}

// Next stores the next segment and reports whether there was one.
func (c *Cursor) Next(seg *Segment) bool {
	if c.period == c.periodEnd && !c.advance() {
		return false
	}
	s, d := &c.at[0], &c.at[1]
	if s.stride|d.stride < 0 {
		return c.scattered(seg)
	}
	sid, did := s.table[s.entry], d.table[d.entry]
	seg.Run, seg.Blocks = c.r, 1
	seg.SourceOffset = s.base + int64(sid)*s.stride
	seg.DestinationOffset = d.base + int64(did)*d.stride
	c.period++
	s.entry += s.every
	d.entry += d.every
	if !c.adjacent {
		return true
	}
	for c.period < c.periodEnd && s.table[s.entry] == sid+1 && d.table[d.entry] == did+1 {
		sid, did = sid+1, did+1
		seg.Blocks++
		c.period++
		s.entry += s.every
		d.entry += d.every
	}
	return true
}

// scattered is Next where block ids are not at one distance, or no table is
// known.
func (c *Cursor) scattered(seg *Segment) bool {
	p := c.s.proven.Pair()
	*seg = Segment{Run: c.r, SourceOffset: -1, DestinationOffset: -1, Blocks: 1}
	if c.source != nil {
		seg.SourceOffset = c.at[0].scattered(p.Source.Ranks[c.edge.Source][c.group], c.r.SourceMap)
	}
	if c.destination != nil {
		seg.DestinationOffset = c.at[1].scattered(p.Destination.Ranks[c.edge.Destination][c.group], c.r.DestinationMap)
	}
	c.period++
	return true
}

func (a *lane) scattered(l *layout.Layout, m int) int64 {
	id := a.table[a.entry]
	a.entry += a.every
	return a.base + plan.BlockOffset(l, m, int64(id))
}

// Group is the group of the segment that Next stored last.
func (c *Cursor) Group() int { return c.group }

// advance goes to the next run, part or group; false behind the last one, with
// the cursor spent.
func (c *Cursor) advance() bool {
	if c.s == nil {
		return false
	}
	for c.run++; c.run >= c.runEnd; {
		for c.part++; c.part >= c.nParts; {
			if c.group++; c.group == len(c.s.whole.plan.Groups) {
				*c = Cursor{}
				return false
			}
			n, err := c.s.parts(c.group, c.from, c.to, &c.parts)
			if err != nil {
				panic(fmt.Sprintf("stamp: a window that Cursor made cannot be made again: %v", err))
			}
			c.part, c.nParts = 0, n
		}
		c.run, c.runEnd = c.parts[c.part].runs(c.group, c.edge, c.layers)
	}
	pt := &c.parts[c.part]
	r := &pt.plan.plan.Runs[c.run]
	piece := &pt.plan.plan.Pieces[r.Piece]
	period := &pt.plan.plan.Groups[c.group]
	c.r = r
	c.period, c.periodEnd = pt.from, pt.to
	c.adjacent = false
	s, d := &c.at[0], &c.at[1]
	*s = lane{entry: pt.from*period.SourceBlocks + piece.SourceBlock, every: period.SourceBlocks, base: r.SourceOffset, stride: pt.plan.source[c.run]}
	*d = lane{entry: pt.from*period.DestinationBlocks + piece.DestinationBlock, every: period.DestinationBlocks, base: r.DestinationOffset, stride: pt.plan.destination[c.run]}
	if c.source != nil {
		s.table = c.source[c.group]
	}
	if c.destination != nil {
		d.table = c.destination[c.group]
	}
	switch {
	case c.source != nil && c.destination != nil:
		c.adjacent = len(r.Loops) == 0 && s.stride == r.Bytes && d.stride == r.Bytes
	case c.source != nil && s.stride >= 0: // the unknown side steps along: every offset is -1
		*d = lane{table: s.table, entry: s.entry, every: s.every, base: -1}
	case c.destination != nil && d.stride >= 0:
		*s = lane{table: d.table, entry: d.entry, every: d.every, base: -1}
	default:
		s.stride = manyDigits
	}
	return true
}
