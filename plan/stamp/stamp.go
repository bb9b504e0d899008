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
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
)

// Request is one request's part of a transfer.
type Request struct {
	ID   string
	Plan geometry.Digest // the whole-period plan
	// Source and Destination are block tables by group of the pair: block ids
	// in token order, the same for all ranks of the side. A side that is not
	// known here is nil (an owner-mediated provider knows its own only).
	Source, Destination [][]uint32
	// SourceFirst and DestinationFirst are, by group, how many table entries
	// the side no longer holds and its table leaves out at the front; nil where
	// no table leaves any out. See Held.
	SourceFirst, DestinationFirst []int64
	From, To                      int64 // canonical tokens [From, To)
	// Spans are, by group, what is moved: tokens within [From, To), or in a
	// group of states [0, 1) for the state. Nil: all of [From, To) of every
	// group of tokens, and every state. See Spans.
	Spans  []Span
	Layers plan.Range // the model's layers moved; the zero value is all
	// Edges, where not nil, restricts what is moved to these edges.
	Edges []EdgeKey
}

// Span is a range [From, To) of tokens (of states, 0 to 1); empty where the two
// are equal.
type Span struct{ From, To int64 }

// Empty reports whether the span holds nothing.
func (s Span) Empty() bool { return s.From >= s.To }

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
	Field  string // "plan", "tokens", "spans", "source table", "destination table", "layers", "edges"; of Held "table"
	Group  int    // of the pair; of Held of the side
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("stamp: %s (group %d) is %v: %s", e.Field, e.Group, e.Value, e.Reason)
}

// maxTokens bounds the end of a request, so that no sum overflows.
const maxTokens = 1 << 40

// Stamper holds a proved plan and the proved plans of the windows in which
// requests have started or ended. Safe for concurrent use.
type Stamper struct {
	proven  proof.Proven
	whole   *prepared
	windows windows
	scratch sync.Pool // *[]uint64, all zero: bits of destination ids seen
}

// prepared is a proved plan with what stamping looks up.
type prepared struct {
	plan  *plan.Plan
	edges map[edgeID]int
	// By run, the distance of consecutive block ids in bytes, or manyDigits.
	source, destination []int64
}

type edgeID struct{ group, source, destination int }

// New makes a stamper. It refuses the zero Proven.
func New(p proof.Proven) (*Stamper, error) {
	if !p.Valid() {
		return nil, &Error{"plan", 0, "unproved", "only a proved plan is stamped"}
	}
	s := &Stamper{proven: p, whole: prepare(p.Pair(), p.Plan())}
	s.windows.entries = map[window]*entry{}
	return s, nil
}

// Proven returns what the stamper was made of.
func (s *Stamper) Proven() proof.Proven { return s.proven }

func prepare(p *plan.Pair, pl *plan.Plan) *prepared {
	strides := make([]int64, 2*len(pl.Runs))
	q := &prepared{plan: pl, edges: make(map[edgeID]int, len(pl.Edges)), source: strides[:len(pl.Runs)], destination: strides[len(pl.Runs):]}
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

// manyDigits stands for a block axis of several digits: ids are not at one
// distance.
const manyDigits = -1

// blockStride is the distance of consecutive block ids: 0 where there is one
// block.
func blockStride(l *layout.Layout, m int) int64 {
	stride, n := int64(0), 0
	for _, d := range l.Maps[m] {
		if d.Axis == geometry.Block && d.Count() > 1 {
			stride = d.Stride / 8
			n++
		}
	}
	if n > 1 {
		return manyDigits
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
// plan's digest, an empty or too long token range, a span outside it, a table
// on a known side that does not reach over its span, an id outside the pool, a
// destination id given twice. Surplus table entries are legal and untouched,
// but bound by the same rules.
func (s *Stamper) Validate(r *Request) error {
	if r.Plan != s.proven.Digest() {
		return &Error{"plan", 0, r.Plan, fmt.Sprintf("this is %s", s.proven.Digest())}
	}
	pair := s.proven.Pair()
	if r.From < 0 || r.To <= r.From || r.To > maxTokens {
		return &Error{"tokens", 0, fmt.Sprintf("[%d, %d)", r.From, r.To), fmt.Sprintf("want a range that is not empty within 0 to %d", int64(maxTokens))}
	}
	if layers := max(pair.Source.Model.Layers, pair.Destination.Model.Layers); r.Layers != (plan.Range{}) && (r.Layers.From < 0 || r.Layers.To > layers || r.Layers.From >= r.Layers.To) {
		return &Error{"layers", 0, fmt.Sprintf("[%d, %d)", r.Layers.From, r.Layers.To), fmt.Sprintf("want a range within 0 to %d", layers)}
	}
	for _, e := range r.Edges {
		if e.Source < 0 || e.Source >= len(pair.Source.Ranks) || e.Destination < 0 || e.Destination >= len(pair.Destination.Ranks) {
			return &Error{"edges", 0, fmt.Sprintf("%d to %d", e.Source, e.Destination), "no such ranks"}
		}
	}
	if err := s.validateSpans(r); err != nil {
		return err
	}
	if err := s.validateTables("source table", r.Source, r.SourceFirst, &pair.Source, r); err != nil {
		return err
	}
	if err := s.validateTables("destination table", r.Destination, r.DestinationFirst, &pair.Destination, r); err != nil {
		return err
	}
	for g, table := range r.Destination {
		if i := s.repeated(table, pair.Destination.Groups[g].Blocks); i >= 0 {
			return &Error{"destination table", g, table[i], fmt.Sprintf("entry %d repeats it: two places would be written at once", i)}
		}
	}
	return nil
}

func (s *Stamper) validateSpans(r *Request) error {
	m := &s.proven.Pair().Source.Model
	if r.Spans != nil && len(r.Spans) != len(m.Groups) {
		return &Error{"spans", 0, len(r.Spans), fmt.Sprintf("want one a group, %d", len(m.Groups))}
	}
	for g := range m.Groups {
		span := r.span(m, g)
		from, to := r.From, r.To
		if m.Groups[g].State {
			from, to = 0, 1
		}
		if !span.Empty() && (span.From < from || span.To > to || m.Groups[g].State && span != (Span{0, 1})) || span.From > span.To {
			return &Error{"spans", g, fmt.Sprintf("[%d, %d)", span.From, span.To), fmt.Sprintf("want a range within [%d, %d)", from, to)}
		}
		for _, c := range m.Groups[g].Components {
			if e := int64(c.EntryTokens()); c.Scales != "" && !span.Empty() && span.From%e != 0 {
				return &Error{"spans", g, span.From, fmt.Sprintf("component %s has one value for %d tokens, of which the first would be left out: start at token %d or %d", c.Name, e, span.From/e*e, (span.From/e+1)*e)}
			}
		}
	}
	return nil
}

func (s *Stamper) validateTables(field string, tables [][]uint32, first []int64, side *plan.Side, r *Request) error {
	if tables == nil {
		return nil
	}
	if len(tables) != len(side.Groups) {
		return &Error{field, 0, len(tables), fmt.Sprintf("want one table a group, %d", len(side.Groups))}
	}
	if first != nil && len(first) != len(tables) {
		return &Error{field, 0, len(first), fmt.Sprintf("want a number of leading entries a group, %d", len(side.Groups))}
	}
	for g, table := range tables {
		pool := side.Groups[g]
		span := r.span(&side.Model, g)
		lo, hi := Entries(side, g, span.From, span.To)
		skip := int64(0)
		if first != nil {
			skip = first[g]
		}
		switch have := skip + int64(len(table)); {
		case skip < 0 || skip > maxTokens:
			return &Error{field, g, skip, fmt.Sprintf("leading entries left out: want 0 to %d", int64(maxTokens))}
		case span.Empty():
		case have < hi && side.Model.Groups[g].State:
			return &Error{field, g, fmt.Sprintf("%d entries", len(table)), fmt.Sprintf("group %q keeps one state a request: want its slot", side.Model.Groups[g].Name)}
		case have < hi && skip > 0:
			return &Error{field, g, fmt.Sprintf("%d entries from entry %d on", len(table), skip), fmt.Sprintf("entry %d is needed", hi-1)}
		case have < hi:
			return &Error{field, g, fmt.Sprintf("%d entries", len(table)), fmt.Sprintf("they hold %d tokens, %d are needed", Capacity(len(table), pool.Block, *side.ShardOf(g)), span.To)}
		case lo < skip:
			return &Error{field, g, fmt.Sprintf("from entry %d on", skip), fmt.Sprintf("entry %d is needed", lo)}
		}
		for i, id := range table {
			if int64(id) >= int64(pool.Blocks) {
				return &Error{field, g, id, fmt.Sprintf("entry %d names no block of a pool of %d", i, pool.Blocks)}
			}
		}
	}
	return nil
}

// repeated returns the index of the first entry whose id stands before it, -1
// where all differ. A bit a block of the pool is kept between calls.
// Preconditions: every id is below blocks.
func (s *Stamper) repeated(table []uint32, blocks int) int {
	if len(table) <= 32 {
		for i, id := range table {
			for _, other := range table[:i] {
				if other == id {
					return i
				}
			}
		}
		return -1
	}
	words := (blocks + 63) / 64
	kept, _ := s.scratch.Get().(*[]uint64)
	if kept == nil || len(*kept) < words {
		kept = new([]uint64)
		*kept = make([]uint64, words)
	}
	seen, found := *kept, -1
	for i, id := range table {
		bit := uint64(1) << (id % 64)
		if seen[id/64]&bit != 0 {
			found = i
			break
		}
		seen[id/64] |= bit
	}
	for _, id := range table {
		seen[id/64] = 0
	}
	s.scratch.Put(kept)
	return found
}

// Totals is what one edge of the request moves: bytes, and segments before
// any are joined. It does not walk the blocks.
//
// Errors: those of Cursor.
// Preconditions: Validate(req) is nil.
func (s *Stamper) Totals(req *Request, edge EdgeKey) (bytes, segments int64, err error) {
	for g := range s.whole.plan.Groups {
		var parts [3]part
		n, err := s.parts(g, req.span(&s.proven.Pair().Source.Model, g), &parts)
		if err != nil {
			return 0, 0, err
		}
		for i := range parts[:n] {
			p := &parts[i]
			from, to := p.runs(g, edge, req.Layers)
			for r := from; r < to; r++ {
				bytes += p.plan.plan.Runs[r].Total() * (p.to - p.from)
			}
			segments += int64(to-from) * (p.to - p.from)
		}
	}
	return bytes, segments, nil
}
