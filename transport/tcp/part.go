package tcp

import (
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// perPart is how many bytes make it worth to divide an operation further.
const perPart = 1 << 20

// part is a share of an operation's bytes: one edge, or some layers of one. It
// belongs to one connection, whose goroutine alone touches what is below
// bytes.
type part struct {
	transfer *transfer
	number   uint32
	edge     stamp.EdgeKey
	layers   plan.Range
	bytes    int64

	done int64 // bytes sent or received
	walk *walk // nil before the first chunk
}

// walk is where a part is in its own memory.
type walk struct {
	memory   *direct.Memory
	cursor   stamp.Cursor
	segment  stamp.Segment
	side     *plan.Side
	at       move.Position
	open     bool      // segment has bytes left
	run      *plan.Run // whose region span is
	span     []byte
	segments int64
}

// divide makes the parts of an operation as the package comment says.
// Preconditions: the stamper has validated r.
func divide(p *direct.Plan, r *stamp.Request, edges []stamp.EdgeKey, streams int) (parts []*part, bytes int64, err error) {
	each := make([]int64, len(edges))
	for i, e := range edges {
		if each[i], _, err = p.Stamper.Totals(r, e); err != nil {
			return nil, 0, err
		}
		bytes += each[i]
	}
	layers := r.Layers
	if layers == (plan.Range{}) {
		layers.To = max(p.Pair.Source.Model.Layers, p.Pair.Destination.Model.Layers)
	}
	want := int(max(1, min(bytes/perPart, 2*int64(streams))))
	n, l := 1, layers.To-layers.From
	if len(edges) < want {
		n = min(l, (want+len(edges)-1)/len(edges))
	}
	add := func(e stamp.EdgeKey, layers plan.Range, bytes int64) {
		if bytes > 0 {
			parts = append(parts, &part{number: uint32(len(parts)), edge: e, layers: layers, bytes: bytes})
		}
	}
	for i, e := range edges {
		if n == 1 {
			add(e, r.Layers, each[i])
			continue
		}
		for k := range n {
			sub := *r
			sub.Layers = plan.Range{From: layers.From + l*k/n, To: layers.From + l*(k+1)/n}
			b, _, err := p.Stamper.Totals(&sub, e)
			if err != nil {
				return nil, 0, err
			}
			add(e, sub.Layers, b)
		}
	}
	return parts, bytes, nil
}

// rank is the part's rank on this side.
func (p *part) rank() int {
	if p.transfer.job.Plan.Local == transport.Source {
		return p.edge.Source
	}
	return p.edge.Destination
}

// start makes the walk.
// Preconditions: between Begin and End of the job.
func (p *part) start() error {
	if p.walk != nil {
		return nil
	}
	j := p.transfer.job
	w := &walk{memory: j.Destination[p.edge.Destination], side: j.Plan.Engine(j.Plan.Local)}
	if j.Plan.Local == transport.Source {
		w.memory = j.Source[p.edge.Source]
	}
	r := j.Request
	r.Layers = p.layers
	if err := j.Plan.Stamper.Cursor(&r, p.edge, &w.cursor); err != nil {
		return err
	}
	p.walk = w
	return nil
}

// next makes the segment one with bytes left and its region the span. It
// returns false at the part's end.
func (w *walk) next(source bool) (bool, error) {
	if w.open {
		return true, nil
	}
	if !w.cursor.Next(&w.segment) {
		return false, nil
	}
	s := &w.segment
	if s.Run != w.run {
		region := s.Run.DestinationRegion
		if source {
			region = s.Run.SourceRegion
		}
		var err error
		if w.span, err = w.memory.Region(w.side.OwnGroup(w.cursor.Group()), region); err != nil {
			return false, err
		}
		w.run = s.Run
	}
	from, to := int64(-1), int64(-1)
	if source {
		from = int64(len(w.span))
	} else {
		to = int64(len(w.span))
	}
	if err := move.Check(s, from, to); err != nil {
		return false, err
	}
	w.open, w.at = true, move.Position{}
	w.segments++
	return true, nil
}

// pass moves bytes between buf and the next ones of the part's memory, all of
// buf unless the part ends before, and returns how many and in how many newly
// begun segments.
// Preconditions: between Begin and End of the job; start returned nil.
func (p *part) pass(buf []byte, gather bool) (n, segments int64, err error) {
	w := p.walk
	source := p.transfer.job.Plan.Local == transport.Source
	before := w.segments
	err = move.Guard(func() error {
		for n < int64(len(buf)) {
			more, err := w.next(source)
			if err != nil || !more {
				return err
			}
			var m int64
			var done bool
			if gather {
				m, done = move.Gather(buf[n:], w.span, &w.segment, &w.at)
			} else {
				m, done = move.Scatter(w.span, buf[n:], &w.segment, &w.at)
			}
			n += m
			w.open = !done
		}
		return nil
	})
	return n, w.segments - before, err
}

// assign gives the parts to the connections that carry them.
func (t *transfer) assign(data []*conn) {
	for i, c := range data {
		for k := i; k < len(t.parts); k += len(data) {
			c.push(t.parts[k])
		}
	}
}
