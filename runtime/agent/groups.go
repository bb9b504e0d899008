package agent

import (
	"fmt"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// An engine speaks of its own groups; what passes a link is by group of the
// pair, which leaves out what one side lacks. This file is where the one
// becomes the other.

// ourSide is our side of the link's pair.
func (l *link) ourSide() *plan.Side {
	if l.role == session.Source {
		return &l.result.Pair.Source
	}
	return &l.result.Pair.Destination
}

// byPair picks the elements of the pair's groups from a list by our own groups.
func byPair[T any](l *link, own []T) []T {
	side := l.ourSide()
	out := make([]T, len(side.Groups))
	for g := range out {
		out[g] = own[side.OwnGroup(g)]
	}
	return out
}

// outward turns boxes of our groups into those of the pair; those of other
// groups concern nobody there.
func (l *link) outward(boxes []Box) []Box {
	side := l.ourSide()
	if side.Own == nil {
		return boxes
	}
	var out []Box
	for _, b := range boxes {
		for g, own := range side.Own {
			if own == b.Group {
				b.Group = g
				out = append(out, b)
				break
			}
		}
	}
	return out
}

// inward turns the peer's boxes into those of our groups.
//
// Errors: *transfer.RangeError, the peer's fault.
func (l *link) inward(boxes []Box) ([]Box, error) {
	side := l.ourSide()
	out := make([]Box, len(boxes))
	for i, b := range boxes {
		if b.Group < 0 || b.Group >= len(side.Groups) {
			return nil, blame.On(blame.Peer, &transfer.RangeError{What: "group", Have: fmt.Sprint(b.Group), Want: fmt.Sprintf("the pair's %d groups", len(side.Groups))})
		}
		b.Group = side.OwnGroup(b.Group)
		out[i] = b
	}
	return out, nil
}

// scope is what a transfer on a link moves.
type scope struct {
	spans  []stamp.Span // by group of the pair
	void   []Box        // by our groups: what of the range does not move
	window []Box        // of void, what is out of a window
	absent []string     // our groups that the peer has not
}

// reach is how far a request goes on one side and what its tables leave out.
type reach struct {
	first []int64 // by group of the pair
	end   int64   // token up to which the request goes
}

// scope computes what a transfer of tokens [from, to) moves; more says that a
// later one of the same ticket goes on.
//
// Errors: *stamp.Error, *transfer.StateError, *transfer.RangeError.
func (l *link) scope(from, to int64, ours, peers reach, more bool) (scope, error) {
	p := l.result.Pair
	if len(peers.first) != len(p.Source.Groups) {
		return scope{}, blame.On(blame.Peer, &transfer.RangeError{What: "first table entries", Have: fmt.Sprintf("of %d groups", len(peers.first)), Want: fmt.Sprintf("the pair's %d groups", len(p.Source.Groups))})
	}
	for _, n := range peers.first {
		if n < 0 || n > transfer.MaxTokens {
			return scope{}, blame.On(blame.Peer, &transfer.RangeError{What: "first table entry", Have: fmt.Sprint(n), Want: "what a table can hold"})
		}
	}
	source, destination := ours, peers
	if l.role == session.Destination {
		source, destination = peers, ours
	}
	if from < 0 || from >= to || to > source.end || to > destination.end {
		return scope{}, blame.On(blame.Peer, fmt.Errorf("%w: tokens [%d, %d) of a request of %d tokens at the source and %d at the destination", transfer.ErrRange, from, to, source.end, destination.end))
	}
	for g := range p.Source.Groups {
		group := &p.Source.Model.Groups[g]
		if group.State && (to == destination.end && !more && to != source.end || to == source.end && to != destination.end) {
			return scope{}, &transfer.StateError{Group: group.Name, Source: source.end, Destination: to}
		}
	}
	spans, err := stamp.Spans(p, from, to, source.end, source.first, destination.first)
	if err != nil {
		return scope{}, fmt.Errorf("%w: %w", transfer.ErrRange, err)
	}
	out := scope{spans: spans}
	e := l.engine
	side := l.ourSide()
	inPair := make([]bool, len(e.desc.Side.Groups))
	all := e.shape.Layers()
	for g, s := range spans {
		own := side.OwnGroup(g)
		inPair[own] = true
		switch {
		case p.Source.Model.Groups[g].State && s.Empty():
			out.void = append(out.void, Box{Group: own, Layers: all, From: from, To: to})
		case p.Source.Model.Groups[g].State:
			if from < to-1 { // a state counts as the last token
				out.void = append(out.void, Box{Group: own, Layers: all, From: from, To: to - 1})
			}
		case s.Empty():
			out.window = append(out.window, Box{Group: own, Layers: all, From: from, To: to})
		case s.From > from:
			out.window = append(out.window, Box{Group: own, Layers: all, From: from, To: s.From})
		}
	}
	out.void = append(out.void, out.window...)
	for own, in := range inPair {
		if !in {
			out.void = append(out.void, Box{Group: own, Layers: all, From: from, To: to})
			if l.role == session.Destination {
				out.absent = append(out.absent, e.desc.Side.Model.Groups[own].Name)
			}
		}
	}
	return out, nil
}

// grains are, by our groups, how many tokens an operation may not part.
func (e *Engine) grains() []int64 {
	out := make([]int64, len(e.desc.Side.Groups))
	for g := range out {
		out[g] = 1
		for _, c := range e.desc.Side.Model.Groups[g].Components {
			if c.Scales != "" { // compressed entries go with their last token by themselves
				out[g] = lcm(out[g], int64(c.EntryTokens()))
			}
		}
	}
	return out
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
