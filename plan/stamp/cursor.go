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
	req                 Request
	source, destination [][]uint32 // tables by group, nil: unknown

	group  int
	parts  [3]part
	nParts int
	part   int

	run, runEnd int
	r           *plan.Run
	at, end     int64 // periods of the run walked, and all
	how         mode
	lanes       [2]lane
}

// lane is one side of the run that a cursor walks.
type lane struct {
	table  []uint32 // from the run's first entry on
	every  int64    // entries a period
	base   int64    // bytes, with block id 0
	stride int64    // bytes from one block id to the next, or manyDigits
}

// leading is how many entries a group's table leaves out at the front.
func leading(first []int64, group int) int64 {
	if first == nil {
		return 0
	}
	return first[group]
}

// mode is how a run's segments are made.
type mode uint8

const (
	plain     mode = iota // block ids at one distance on both sides
	adjacent              // and blocks side by side are one
	scattered             // block ids at several distances, or no table known
)

// Cursor makes c walk the segments of one edge of the request. An edge that
// carries nothing is walked in no steps.
//
// Errors: those of building and proving a window in which no request has
// started or ended before; c is then spent.
// Preconditions: Validate(req) is nil; the tables and spans of req are not
// modified while the cursor is in use.
func (s *Stamper) Cursor(req *Request, edge EdgeKey, c *Cursor) error {
	*c = Cursor{}
	// Make every window before the first step, so that Next cannot fail.
	var parts [3]part
	for g := range s.whole.plan.Groups {
		if _, err := s.parts(g, req.span(&s.proven.Pair().Source.Model, g), &parts); err != nil {
			return err
		}
	}
	c.s, c.edge, c.layers, c.group = s, edge, req.Layers, -1
	c.req, c.source, c.destination = *req, req.Source, req.Destination
	return nil
}

// Next stores the next segment and reports whether there was one.
func (c *Cursor) Next(seg *Segment) bool {
	if c.at == c.end && !c.advance() {
		return false
	}
	if c.how == scattered {
		return c.scattered(seg)
	}
	k := c.at
	c.at = k + 1
	s, d := &c.lanes[0], &c.lanes[1]
	sid, did := s.table[k*s.every], d.table[k*d.every]
	seg.Run, seg.Blocks = c.r, 1
	seg.SourceOffset = s.base + int64(sid)*s.stride
	seg.DestinationOffset = d.base + int64(did)*d.stride
	if c.how == adjacent {
		c.join(seg, sid, did)
	}
	return true
}

// join lengthens a segment of blocks sid and did by those that lie behind them.
func (c *Cursor) join(seg *Segment, sid, did uint32) {
	s, d := &c.lanes[0], &c.lanes[1]
	for ; c.at < c.end && s.table[c.at*s.every] == sid+1 && d.table[c.at*d.every] == did+1; c.at++ {
		sid, did = sid+1, did+1
		seg.Blocks++
	}
}

// scattered is Next by the digits of the block axis.
func (c *Cursor) scattered(seg *Segment) bool {
	p := c.s.proven.Pair()
	*seg = Segment{Run: c.r, SourceOffset: -1, DestinationOffset: -1, Blocks: 1}
	if c.source != nil {
		seg.SourceOffset = c.lanes[0].offset(c.at, p.Source.Ranks[c.edge.Source][c.group], c.r.SourceMap)
	}
	if c.destination != nil {
		seg.DestinationOffset = c.lanes[1].offset(c.at, p.Destination.Ranks[c.edge.Destination][c.group], c.r.DestinationMap)
	}
	c.at++
	return true
}

func (a *lane) offset(k int64, l *layout.Layout, m int) int64 {
	return a.base + plan.BlockOffset(l, m, int64(a.table[k*a.every]))
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
			n, err := c.s.parts(c.group, c.req.span(&c.s.proven.Pair().Source.Model, c.group), &c.parts)
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
	c.r, c.at, c.end, c.how = r, 0, pt.to-pt.from, plain
	s, d := &c.lanes[0], &c.lanes[1]
	*s = lane{every: period.SourceBlocks, base: r.SourceOffset, stride: pt.plan.source[c.run]}
	*d = lane{every: period.DestinationBlocks, base: r.DestinationOffset, stride: pt.plan.destination[c.run]}
	if c.source != nil {
		s.table = c.source[c.group][pt.from*period.SourceBlocks+piece.SourceBlock-leading(c.req.SourceFirst, c.group):]
	}
	if c.destination != nil {
		d.table = c.destination[c.group][pt.from*period.DestinationBlocks+piece.DestinationBlock-leading(c.req.DestinationFirst, c.group):]
	}
	switch {
	case c.source == nil && c.destination == nil:
		c.how = scattered
	case c.source == nil: // the unknown side steps along: every offset is -1
		*s = lane{table: d.table, every: d.every, base: -1}
	case c.destination == nil:
		*d = lane{table: s.table, every: s.every, base: -1}
	case len(r.Loops) == 0 && s.stride == r.Bytes && d.stride == r.Bytes:
		c.how = adjacent
	}
	if s.stride|d.stride < 0 {
		c.how = scattered
	}
	return true
}
