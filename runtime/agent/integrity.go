package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/memory/digest"
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// The destination compares: it makes digests of what lies in its blocks, asks
// the source for those of the same rows in the source's blocks, and where two
// differ asks on, for fewer rows each time, until it can name what is wrong.
// Both sides hold the blocks meanwhile.

// stricter is the level of the two that compares more.
func stricter(a, b transfer.Integrity) transfer.Integrity {
	if a == transfer.Full || b == transfer.Off {
		return a
	}
	return b
}

// gate counts those who read a transfer's blocks; once shut nobody enters.
type gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.closed {
		close(g.idle)
	}
}

// shut returns when nobody is inside any more.
func (g *gate) shut() {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.closed, g.idle = true, make(chan struct{})
	if g.n == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	<-g.idle
}

// maxHashing is how many questions of one connection are worked on at a time.
const maxHashing = 4

// answer makes the digests that the peer asks for, of blocks that it may read
// or that we write to it.
func (l *link) answer(m *transfer.Ask) error {
	if l.role != session.Source {
		return blame.On(blame.Peer, &transfer.MessageError{Type: m.Type(), Field: "x", Reason: "only a destination asks for digests"})
	}
	var g *gate
	var req *request
	var of scope
	var by *agreed
	l.mu.Lock()
	if m.Mine { // of a read of the peer's
		if s := l.served[m.X]; s != nil {
			g, of, by = &s.hashes, s.scope, s.plan
			if o, ok := s.holder.(*Offered); ok {
				req = &o.req
			}
		}
	} else if o := l.opened[m.X]; o != nil { // of a write of ours
		if granted := o.granted; granted != nil {
			g, req, of, by = &o.transfer.hashes, &o.transfer.req, granted.scope, o.plan
		}
	}
	if l.hashing++; l.hashing > maxHashing {
		l.mu.Unlock()
		return blame.On(blame.Peer, fmt.Errorf("%w: %d questions about digests at a time", transfer.ErrLimit, l.hashing))
	}
	l.mu.Unlock()
	done := func(out *transfer.Sums) {
		l.mu.Lock()
		l.hashing--
		l.mu.Unlock()
		l.send(out)
	}
	l.agent.wg.Go(func() {
		out := &transfer.Sums{N: m.N}
		if req == nil || !g.enter() {
			out.Failure = transfer.Failed(&transfer.TicketError{Err: transfer.ErrUnknown, Field: "transfer", Have: fmt.Sprint(m.X), Want: "an open one"})
			done(out)
			return
		}
		h := digest.New(digest.Key(m.Key))
		var err error
		for _, q := range m.Queries {
			var sums []uint64
			if sums, err = l.sum(h, by, req, of, q, m.Rate); err != nil {
				break
			}
			if out.Sums = append(out.Sums, sums...); len(out.Sums) > transfer.MaxSums {
				err = fmt.Errorf("%w: more than %d digests", transfer.ErrLimit, transfer.MaxSums)
				break
			}
		}
		g.leave()
		if err != nil {
			out.Sums, out.Failure = nil, transfer.Failed(err)
		}
		done(out)
	})
	return nil
}

// sum makes the digests of one query of our blocks: one for each layer and
// component, in this order.
func (l *link) sum(h *digest.Hasher, by *agreed, req *request, of scope, q transfer.Query, rate int) ([]uint64, error) {
	p := l.result.Pair
	source := l.role == session.Source
	rank := q.Destination
	if source {
		rank = q.Source
	}
	bad := func(field string, have, want any) error {
		return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrRange, &transfer.RangeError{What: field, Have: fmt.Sprint(have), Want: fmt.Sprint(want)}))
	}
	if q.Group < 0 || q.Group >= len(p.Source.Groups) {
		return nil, bad("group", q.Group, fmt.Sprintf("the pair's %d groups", len(p.Source.Groups)))
	}
	memory, ok := l.engine.held[rank]
	if !ok || q.Source < 0 || q.Source >= len(p.Source.Ranks) || q.Destination < 0 || q.Destination >= len(p.Destination.Ranks) {
		return nil, bad("ranks", fmt.Sprintf("%d to %d", q.Source, q.Destination), "those of the connection")
	}
	group := &p.Source.Model.Groups[q.Group]
	span := of.spans[q.Group]
	if c := q.Component; c >= 0 {
		if c >= len(group.Components) {
			return nil, bad("component", c, fmt.Sprintf("%d components", len(group.Components)))
		}
		if !group.State {
			span.From, span.To = group.Components[c].Entries(span.From, span.To)
		}
	}
	if q.From < span.From || q.To > span.To || q.From > q.To {
		return nil, bad("tokens", fmt.Sprintf("[%d, %d)", q.From, q.To), fmt.Sprintf("[%d, %d)", span.From, span.To))
	}
	own := l.ourSide().OwnGroup(q.Group)
	part := digest.Part{Pair: p, Assignments: by.Assignments, OfSource: source, Source: q.Source, Destination: q.Destination, Group: q.Group, Component: q.Component,
		Layers: plan.Range{From: q.Layers[0], To: q.Layers[1]}, Heads: plan.Range{From: q.Heads[0], To: q.Heads[1]}, From: q.From, To: q.To,
		Table: req.tables[own], First: req.first[own]}
	for _, b := range memory.Buffers[own] {
		part.Regions = append(part.Regions, b.Bytes())
	}
	var out []uint64
	err := move.Guard(func() (err error) {
		out, err = h.Part(&part, rate)
		return err
	})
	return out, err
}

// askSums asks the peer for digests. It waits for its turn: no more questions
// are under way than the peer works on.
func (l *link) askSums(ctx context.Context, m *transfer.Ask) ([]uint64, error) {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-l.done:
		return nil, fmt.Errorf("%w: %w", transfer.ErrGone, l.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", transfer.ErrCanceled, context.Cause(ctx))
	}
	ch := make(chan *transfer.Sums, 1)
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", transfer.ErrGone, l.err)
	}
	l.asks++
	m.N = l.asks
	l.sums[m.N] = ch
	l.mu.Unlock()
	l.send(m)
	select {
	case s := <-ch:
		return s.Sums, s.Failure.Err()
	case <-l.done:
		return nil, fmt.Errorf("%w: %w", transfer.ErrGone, l.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", transfer.ErrCanceled, context.Cause(ctx))
	}
}

// verification compares what one transfer moved over one link.
type verification struct {
	link  *link
	plan  *agreed
	req   *request
	scope scope
	level transfer.Integrity
	x     uint64
	mine  bool // x is ours
	all   plan.Range
}

// run returns nil where every digest is that of the source.
func (v *verification) run(ctx context.Context) error {
	l := v.link
	var key digest.Key
	rand.Read(key[:]) // after the bytes moved: nothing that moved them can know it
	h := digest.New(key)
	p := l.result.Pair
	for _, e := range v.plan.edges {
		var queries []transfer.Query
		var own []uint64
		var starts []int // of each query in own
		for g, span := range v.scope.spans {
			if span.Empty() {
				continue
			}
			q := transfer.Query{Source: e.Source, Destination: e.Destination, Group: g, Component: -1, Layers: [2]int{v.all.From, v.all.To}, Heads: [2]int{0, maxHeads(p, g)}, From: span.From, To: span.To}
			sums, err := l.sum(h, v.plan, v.req, v.scope, q, v.level.Rate())
			if err != nil {
				return err
			}
			if len(sums) == 0 {
				continue
			}
			queries, starts = append(queries, q), append(starts, len(own))
			own = append(own, sums...)
		}
		theirs, err := v.ask(ctx, key, v.level.Rate(), queries)
		if err != nil {
			return err
		}
		if len(theirs) != len(own) {
			return blame.On(blame.Peer, fmt.Errorf("%w: the source answered %d digests, want %d", transfer.ErrInternal, len(theirs), len(own)))
		}
		for i := range own {
			if own[i] == theirs[i] {
				continue
			}
			k := len(starts) - 1
			for starts[k] > i {
				k--
			}
			return v.find(ctx, h, key, queries[k], i-starts[k])
		}
	}
	return nil
}

func maxHeads(p *plan.Pair, group int) int {
	n := 1
	for _, c := range p.Source.Model.Groups[group].Components {
		n = max(n, c.Heads)
	}
	return n
}

func (v *verification) ask(ctx context.Context, key digest.Key, rate int, queries []transfer.Query) ([]uint64, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	return v.link.askSums(ctx, &transfer.Ask{X: v.x, Mine: v.mine, Key: key[:], Rate: rate, Queries: queries})
}

// find names what differs in the i-th layer and component of a query: the
// first head with a difference, and there the entries from the first to the
// last one that differs.
func (v *verification) find(ctx context.Context, h *digest.Hasher, key digest.Key, q transfer.Query, i int) error {
	p := v.link.result.Pair
	group := &p.Source.Model.Groups[q.Group]
	layers := digest.Layers(p, q.Source, q.Destination, q.Group, plan.Range{From: q.Layers[0], To: q.Layers[1]})
	layer := layers[i/len(group.Components)]
	component := i % len(group.Components)
	c := group.Components[component]
	q.Component, q.Layers, q.Heads = component, [2]int{layer, layer + 1}, [2]int{0, c.HeadCount()}
	if !group.State {
		q.From, q.To = c.Entries(q.From, q.To)
	}
	differ := func(q transfer.Query) (bool, error) {
		own, err := v.link.sum(h, v.plan, v.req, v.scope, q, 1)
		if err != nil {
			return false, err
		}
		theirs, err := v.ask(ctx, key, 1, []transfer.Query{q})
		if err != nil {
			return false, err
		}
		return len(own) != 1 || len(theirs) != 1 || own[0] != theirs[0], nil
	}
	// Each search finds the first place up to which the rows differ.
	first := func(from, to int64, set func(*transfer.Query, int64)) (int64, error) {
		for lo, hi := from, to; ; {
			if lo+1 >= hi {
				return lo, nil
			}
			mid := lo + (hi-lo)/2
			part := q
			set(&part, mid)
			bad, err := differ(part)
			if err != nil {
				return 0, err
			}
			if bad {
				hi = mid
			} else {
				lo = mid
			}
		}
	}
	head, err := first(0, int64(c.HeadCount()), func(q *transfer.Query, mid int64) { q.Heads[1] = int(mid) })
	if err != nil {
		return err
	}
	q.Heads = [2]int{int(head), int(head) + 1}
	from, err := first(q.From, q.To, func(q *transfer.Query, mid int64) { q.To = mid })
	if err != nil {
		return err
	}
	end := q.To
	q.From = from
	// From behind: the last entry that differs is the last from which rows do.
	for lo, hi := from, end; lo+1 < hi; {
		mid := lo + (hi-lo)/2
		part := q
		part.From, part.To = mid, end
		bad, err := differ(part)
		if err != nil {
			return err
		}
		if bad {
			lo = mid
		} else {
			hi, end = mid, min(end, mid)
		}
	}
	out := &transfer.Corrupt{SourceRank: q.Source, DestinationRank: q.Destination, Group: group.Name, Component: c.Name, Layer: layer, Head: int(head), From: from, To: end}
	if c.Heads == 0 {
		out.Head = -1
	}
	if !group.State {
		out.From, out.To = from*int64(c.EntryTokens()), end*int64(c.EntryTokens())
	}
	return out
}

// verify compares what a link of a pull brought.
func (t *Transfer) verify(i int) {
	if t.unverify == nil {
		t.verifying, t.unverify = context.WithCancel(t.engine.ctx)
	}
	c := t.links[i]
	v := &verification{link: c.link, plan: c.plan, req: &t.req, scope: c.granted.scope, level: t.level, x: c.x, mine: true, all: t.layers}
	ctx := t.verifying
	t.engine.wg.Go(func() {
		t.box.post(moveEvent{ev: transfer.Verified{Link: i, Err: v.judge(ctx)}})
	})
}

// verify compares what a writer brought.
func (x *Expected) verify(k transfer.Key) {
	s := x.serving[k]
	v := &verification{link: s.link, plan: s.plan, req: &x.req, scope: s.scope, level: s.level, x: s.x, all: s.layers}
	x.engine.wg.Go(func() {
		x.post(expectEvent{ev: transfer.Checked{Key: k, Err: v.judge(x.engine.ctx)}})
	})
}

// judge is run with whose fault a failure is.
func (v *verification) judge(ctx context.Context) error {
	err := v.run(ctx)
	var corrupt *transfer.Corrupt
	if err == nil || errors.As(err, &corrupt) {
		return err
	}
	return fmt.Errorf("agent: compare with the source: %w", err)
}
