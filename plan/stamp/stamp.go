// Package stamp applies a request's block tables and token range to a proved
// plan. It yields copies one at a time and keeps their strides: nothing is
// expanded to a list.
//
// The order of an edge's copies is canonical, so that two ends that know only
// their own block table agree on it: the head window (where the request starts
// inside a period), the whole periods, the tail window; within each, the runs
// in the plan's order; within a run, the periods ascending. Joining adjacent
// blocks never changes the order of the bytes.
package stamp

import (
	"fmt"
	"sort"
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
)

// Request is one request's part of a transfer.
type Request struct {
	ID   string
	Plan geometry.Digest // the whole-period plan
	// Source and Destination are block tables by group: block ids in token
	// order, the same for all ranks of the side. A side that is not known here
	// is nil (an owner-mediated provider knows its own only).
	Source, Destination [][]uint32
	From, To            int64      // canonical tokens [From, To)
	Layers              plan.Range // the model's layers moved; the zero value is all
	// Edges, where not nil, restricts what is moved to these edges.
	Edges []EdgeKey
}

// EdgeKey names an edge.
type EdgeKey struct{ Source, Destination int }

// Segment is one strided copy of one request: Run's bytes and loops at these
// offsets. Where a side's table is unknown its offset is -1.
type Segment struct {
	Run               *plan.Run
	SourceOffset      int64
	DestinationOffset int64
	// Blocks above 1: that many blocks lie contiguous on both sides and were
	// joined; the copy is Run.Bytes*Blocks long. Only where both tables are
	// known and Run has no loops.
	Blocks int64
}

// Error is a request that the plan cannot serve.
type Error struct {
	Field  string // "plan", "tokens", "source table", "destination table", "layers", "edges"
	Group  int
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("stamp: %s (group %d) is %v: %s", e.Field, e.Group, e.Value, e.Reason)
}

// maxWindows bounds the window plans that a Stamper keeps.
const maxWindows = 64

// Stamper holds a proved plan and the proved plans of the windows in which
// requests have started or ended. Safe for concurrent use.
type Stamper struct {
	proven proof.Proven
	whole  *prepared

	mu      sync.Mutex
	windows map[window]*prepared
	recent  []window // oldest first
}

type window struct {
	group    int
	from, to int64
}

// prepared is a proved plan with what stamping looks up.
type prepared struct {
	plan  *plan.Plan
	edges map[edgeID]int
	// strides[side][run] is the distance of consecutive block ids, or -1 where
	// the block axis has several digits.
	source, destination []int64
}

type edgeID struct{ group, source, destination int }

// New makes a stamper. It refuses the zero Proven.
func New(p proof.Proven) (*Stamper, error) {
	if !p.Valid() {
		return nil, &Error{"plan", 0, "unproved", "only a proved plan is stamped"}
	}
	return &Stamper{proven: p, whole: prepare(p.Pair(), p.Plan()), windows: map[window]*prepared{}}, nil
}

// Proven returns what the stamper was made of.
func (s *Stamper) Proven() proof.Proven { return s.proven }

func prepare(p *plan.Pair, pl *plan.Plan) *prepared {
	q := &prepared{plan: pl, edges: make(map[edgeID]int, len(pl.Edges)), source: make([]int64, len(pl.Runs)), destination: make([]int64, len(pl.Runs))}
	for i, e := range pl.Edges {
		q.edges[edgeID{e.Group, e.Source, e.Destination}] = i
		sl, dl := p.Source.Ranks[e.Source][e.Group], p.Destination.Ranks[e.Destination][e.Group]
		for r := e.From; r < e.To; r++ {
			q.source[r] = blockStride(sl, pl.Runs[r].SourceMap)
			q.destination[r] = blockStride(dl, pl.Runs[r].DestinationMap)
		}
	}
	return q
}

func blockStride(l *layout.Layout, m int) int64 {
	stride, n := int64(0), 0
	for _, d := range l.Maps[m] {
		if d.Axis == geometry.Block {
			stride = d.Stride / 8
			n++
		}
	}
	if n != 1 {
		return -1
	}
	return stride
}

// Capacity is the number of canonical tokens that a table of the given number
// of entries can hold: with n = entries*block local places, interleave I and
// DCP size c, (n/I)*I*c + n mod I.
func Capacity(entries int, block int, s shard.Spec) int64 {
	n := int64(entries) * int64(block)
	if s.DCPSize == 1 {
		return n
	}
	i := int64(s.Interleave)
	return n/i*i*int64(s.DCPSize) + n%i
}

// Validate returns an *Error where the request cannot be served: another
// plan's digest, an empty or too long token range, a table too short on a
// known side, an id outside the pool, a destination id given twice. Surplus
// table entries are legal and untouched.
func (s *Stamper) Validate(r *Request) error {
	if r.Plan != s.proven.Digest() {
		return &Error{"plan", 0, r.Plan, fmt.Sprintf("this is %s", s.proven.Digest())}
	}
	pair := s.proven.Pair()
	if r.From < 0 || r.To <= r.From || r.To > 1<<40 {
		return &Error{"tokens", 0, fmt.Sprintf("[%d, %d)", r.From, r.To), "want a range that is not empty"}
	}
	if l := r.Layers; l != (plan.Range{}) && (l.From < 0 || l.To > pair.Source.Model.Layers || l.From >= l.To) {
		return &Error{"layers", 0, fmt.Sprintf("[%d, %d)", l.From, l.To), fmt.Sprintf("want a range within 0 to %d", pair.Source.Model.Layers)}
	}
	for _, e := range r.Edges {
		if e.Source < 0 || e.Source >= len(pair.Source.Ranks) || e.Destination < 0 || e.Destination >= len(pair.Destination.Ranks) {
			return &Error{"edges", 0, fmt.Sprintf("%d to %d", e.Source, e.Destination), "no such ranks"}
		}
	}
	if err := validateTables("source table", r.Source, &pair.Source, r.To, false); err != nil {
		return err
	}
	return validateTables("destination table", r.Destination, &pair.Destination, r.To, true)
}

func validateTables(field string, tables [][]uint32, s *plan.Side, to int64, once bool) error {
	if tables == nil {
		return nil
	}
	if len(tables) != len(s.Groups) {
		return &Error{field, 0, len(tables), fmt.Sprintf("want one table a group, %d", len(s.Groups))}
	}
	for g, table := range tables {
		pool := s.Groups[g]
		if have := Capacity(len(table), pool.Block, s.Shard); have < to {
			return &Error{field, g, fmt.Sprintf("%d entries", len(table)), fmt.Sprintf("they hold %d tokens, %d are needed", have, to)}
		}
		var seen map[uint32]struct{}
		if once && len(table) > 64 {
			seen = make(map[uint32]struct{}, len(table))
		}
		for i, id := range table {
			if int64(id) >= int64(pool.Blocks) {
				return &Error{field, g, id, fmt.Sprintf("entry %d names no block of a pool of %d", i, pool.Blocks)}
			}
			if !once {
				continue
			}
			twice := false
			if seen != nil {
				_, twice = seen[id]
				seen[id] = struct{}{}
			} else {
				for _, other := range table[:i] {
					twice = twice || other == id
				}
			}
			if twice {
				return &Error{field, g, id, fmt.Sprintf("entry %d repeats it: two places would be written at once", i)}
			}
		}
	}
	return nil
}

// windowed returns the proved plan of tokens [from, to) of a group's period.
func (s *Stamper) windowed(group int, from, to int64) (*prepared, error) {
	key := window{group, from, to}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.windows[key]; ok {
		return p, nil
	}
	pair, whole := s.proven.Pair(), s.proven.Plan()
	windows := make([]build.Window, len(whole.Groups))
	windows[group] = build.Window{From: from, To: to}
	pl, err := build.Build(pair, whole.Assignments, windows, plan.DefaultBudget)
	if err != nil {
		return nil, fmt.Errorf("build the plan of tokens %d to %d of a period: %w", from, to-1, err)
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return nil, fmt.Errorf("prove the plan of tokens %d to %d of a period: %w", from, to-1, err)
	}
	if len(s.recent) >= maxWindows {
		delete(s.windows, s.recent[0])
		s.recent = append(s.recent[:0], s.recent[1:]...)
	}
	p := prepare(pair, proven.Plan())
	s.windows[key] = p
	s.recent = append(s.recent, key)
	return p, nil
}

// part is a plan applied to a range of periods.
type part struct {
	plan     *prepared
	from, to int64 // periods
}

// parts fills in the head, the whole periods and the tail of a token range;
// the number returned of them are not empty.
func (s *Stamper) parts(group int, from, to int64, out *[3]part) (int, error) {
	period := s.whole.plan.Groups[group].Tokens
	n := 0
	first, last := from/period, to/period // periods in which they lie
	add := func(lo, hi, k int64) error {
		p, err := s.windowed(group, lo, hi)
		if err == nil {
			out[n] = part{p, k, k + 1}
			n++
		}
		return err
	}
	head, tail := from%period, to%period
	if first == last {
		return 1, add(head, tail, first)
	}
	if head != 0 {
		if err := add(head, period, first); err != nil {
			return 0, err
		}
		first++
	}
	if first < last {
		out[n] = part{s.whole, first, last}
		n++
	}
	if tail != 0 {
		if err := add(0, tail, last); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Cursor walks one edge's segments of one request. The zero value is spent;
// Stamper.Cursor makes it ready. A Cursor is used by one goroutine at a time
// and may be used again.
type Cursor struct {
	s                   *Stamper
	edge                EdgeKey
	layers              plan.Range
	source, destination [][]uint32
	from, to            int64

	group  int
	parts  [3]part
	nParts int
	part   int
	active bool // the fields below are those of a run

	run, runEnd                     int
	r                               *plan.Run
	period, periodEnd               int64
	sourceTable, destinationTable   []uint32
	sourceEvery, destinationEvery   int64 // table entries a period
	sourceEntry, destinationEntry   int64
	sourceStride, destinationStride int64
	adjacent                        bool
}

// Cursor makes c walk the segments of one edge of the request. An edge that
// carries nothing is walked in no steps.
//
// Errors: those of building and proving a window in which no request has
// started or ended before.
// Preconditions: Validate(req) is nil; req and its tables are not modified
// while the cursor is in use.
func (s *Stamper) Cursor(req *Request, edge EdgeKey, c *Cursor) error {
	*c = Cursor{s: s, edge: edge, layers: req.Layers, source: req.Source, destination: req.Destination, from: req.From, to: req.To, group: -1}
	// Make every window before the first step, so that Next cannot fail.
	for g := range s.whole.plan.Groups {
		if _, err := s.parts(g, req.From, req.To, &c.parts); err != nil {
			return err
		}
	}
	return nil
}

// Next stores the next segment and reports whether there was one.
func (c *Cursor) Next(seg *Segment) bool {
	for !c.active || c.period == c.periodEnd {
		if !c.advance() {
			return false
		}
	}
	r := c.r
	seg.Run, seg.Blocks = r, 1
	seg.SourceOffset, seg.DestinationOffset = -1, -1
	var sid, did uint32
	if c.sourceTable != nil {
		sid = c.sourceTable[c.sourceEntry]
		seg.SourceOffset = r.SourceOffset + c.offset(true, sid)
	}
	if c.destinationTable != nil {
		did = c.destinationTable[c.destinationEntry]
		seg.DestinationOffset = r.DestinationOffset + c.offset(false, did)
	}
	c.step()
	for c.adjacent && c.period < c.periodEnd {
		s, d := c.sourceTable[c.sourceEntry], c.destinationTable[c.destinationEntry]
		if s != sid+1 || d != did+1 {
			break
		}
		sid, did = s, d
		seg.Blocks++
		c.step()
	}
	return true
}

// Group is the group of the segment that Next stored last.
func (c *Cursor) Group() int { return c.group }

func (c *Cursor) step() {
	c.period++
	c.sourceEntry += c.sourceEvery
	c.destinationEntry += c.destinationEvery
}

func (c *Cursor) offset(source bool, id uint32) int64 {
	p := c.s.proven.Pair()
	if source {
		if c.sourceStride >= 0 {
			return int64(id) * c.sourceStride
		}
		return plan.BlockOffset(p.Source.Ranks[c.edge.Source][c.group], c.r.SourceMap, int64(id))
	}
	if c.destinationStride >= 0 {
		return int64(id) * c.destinationStride
	}
	return plan.BlockOffset(p.Destination.Ranks[c.edge.Destination][c.group], c.r.DestinationMap, int64(id))
}

// advance goes to the next run, part or group.
func (c *Cursor) advance() bool {
	if c.s == nil {
		return false
	}
	if c.active {
		c.run++
	}
	for !c.active || c.run == c.runEnd {
		if c.active {
			c.part++
		}
		c.active = false
		for c.group < 0 || c.part == c.nParts {
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
		c.active = true
		c.run, c.runEnd = c.runs(&c.parts[c.part])
	}
	pt := &c.parts[c.part]
	pl := pt.plan.plan
	r := &pl.Runs[c.run]
	piece := &pl.Pieces[r.Piece]
	period := &pl.Groups[c.group]
	c.r = r
	c.period, c.periodEnd = pt.from, pt.to
	c.sourceEvery, c.destinationEvery = period.SourceBlocks, period.DestinationBlocks
	c.sourceEntry = pt.from*period.SourceBlocks + piece.SourceBlock
	c.destinationEntry = pt.from*period.DestinationBlocks + piece.DestinationBlock
	c.sourceTable, c.destinationTable = nil, nil
	if c.source != nil {
		c.sourceTable = c.source[c.group]
	}
	if c.destination != nil {
		c.destinationTable = c.destination[c.group]
	}
	c.sourceStride, c.destinationStride = pt.plan.source[c.run], pt.plan.destination[c.run]
	c.adjacent = len(r.Loops) == 0 && c.sourceStride == r.Bytes && c.destinationStride == r.Bytes && c.sourceTable != nil && c.destinationTable != nil
	return true
}

// runs is the range of runs of the cursor's edge and layers in a part.
func (c *Cursor) runs(p *part) (from, to int) {
	i, ok := p.plan.edges[edgeID{c.group, c.edge.Source, c.edge.Destination}]
	if !ok {
		return 0, 0
	}
	e := &p.plan.plan.Edges[i]
	if c.layers == (plan.Range{}) {
		return e.From, e.To
	}
	runs := p.plan.plan.Runs[e.From:e.To]
	from = sort.Search(len(runs), func(i int) bool { return runs[i].Layer >= c.layers.From })
	to = sort.Search(len(runs), func(i int) bool { return runs[i].Layer >= c.layers.To })
	return e.From + from, e.From + to
}

// Totals is what one edge of the request moves: bytes, and segments before
// any are joined. It does not walk the blocks.
// Preconditions: Validate(req) is nil.
func (s *Stamper) Totals(req *Request, edge EdgeKey) (bytes, segments int64, err error) {
	c := Cursor{s: s, edge: edge, layers: req.Layers}
	for c.group = range s.whole.plan.Groups {
		n, err := s.parts(c.group, req.From, req.To, &c.parts)
		if err != nil {
			return 0, 0, err
		}
		for i := range n {
			p := &c.parts[i]
			from, to := c.runs(p)
			for r := from; r < to; r++ {
				bytes += p.plan.plan.Runs[r].Total() * (p.to - p.from)
			}
			segments += int64(to-from) * (p.to - p.from)
		}
	}
	return bytes, segments, nil
}
