package stamp

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// span is what the request moves of a group.
func (r *Request) span(m *geometry.Model, group int) Span {
	switch {
	case r.Spans != nil:
		return r.Spans[group]
	case m.Groups[group].State:
		return Span{0, 1}
	}
	return Span{r.From, r.To}
}

// Span is what the request moves of a group of the pair.
// Preconditions: Stamper.Validate(r) is nil.
func (r *Request) Span(p *plan.Pair, group int) Span { return r.span(&p.Source.Model, group) }

// Entries returns the table entries [lo, hi) of a group in which tokens
// [from, to) lie on a side, on any of its ranks, counted from the request's
// first block on; of a group of states, entry 0. What a component keeps once
// for several tokens lies there, too: no block and no rank parts an entry.
// Preconditions: the side is valid, 0 <= from <= to.
func Entries(side *plan.Side, group int, from, to int64) (lo, hi int64) {
	if from >= to {
		return 0, 0
	}
	if side.Model.Groups[group].State {
		return 0, 1
	}
	spec := side.ShardOf(group)
	c, i, block := int64(spec.DCPSize), int64(spec.Interleave), int64(side.Groups[group].Block)
	// Token t lies at local place t/(i*c)*i + t%i of the rank with phase
	// t/i%c: every round of i*c tokens takes i places on each rank. The lowest
	// place is that of the first token, or the round's first one, where the
	// next phase starts before to. The highest is that of the last token, or
	// the round's last one, where the phase before ends behind from.
	first, last := from, to-1
	low, high := first/(i*c)*i+first%i, last/(i*c)*i+last%i
	if next := (first/i + 1) * i; next < to && next%(i*c) != 0 {
		low = first / (i * c) * i
	}
	if last%(i*c) >= i && last/i*i-1 >= from {
		high = last/(i*c)*i + i - 1
	}
	return low / block, high/block + 1
}

// oldest is the first token below end from which on every token lies in a table
// entry from first on, whatever its rank; end where none does.
//
// Preconditions: first >= 0, end > 0.
func oldest(side *plan.Side, group int, first, end int64) int64 {
	if first == 0 {
		return 0
	}
	if _, hi := Entries(side, group, 0, end); first >= hi {
		return end
	}
	spec := side.ShardOf(group)
	c, i := int64(spec.DCPSize), int64(spec.Interleave)
	// Behind the last token that lies at place u or below it: on the last rank,
	// unless the request ends before that one's turn in the round of u.
	u, last := first*int64(side.Groups[group].Block)-1, end-1
	round, phase, within := u/i, c-1, u%i
	if last/(i*c) == round {
		phase, within = last/i%c, min(within, last%i)
	}
	return (round*c+phase)*i + within + 1
}

// Held turns one side's block tables of a request of tokens [0, end) into what
// the side holds: by group the tables as a Request wants them, and how many
// leading entries they leave out.
//
// A group's table has an entry for every block of the request's tokens, and may
// have more. Where the group has a window, a shorter table is legal: it holds
// the last entries. Where the side goes round in a ring of blocks the table has
// that many entries; what they held before is gone. A group of states has one
// entry. Whether what is held suffices is for Spans to say.
//
// The tables are not modified; held is made of them and shares their memory
// where nothing has to be rearranged.
//
// Errors: *Error with field "table".
// Preconditions: the side is valid, 0 < end.
func Held(side *plan.Side, tables [][]uint32, end int64) (held [][]uint32, first []int64, err error) {
	if len(tables) != len(side.Groups) {
		return nil, nil, &Error{"table", 0, len(tables), fmt.Sprintf("want one a group, %d", len(side.Groups))}
	}
	held, first = make([][]uint32, len(tables)), make([]int64, len(tables))
	for g, table := range tables {
		group, pool := &side.Model.Groups[g], &side.Groups[g]
		_, need := Entries(side, g, 0, end)
		have := int64(len(table))
		held[g] = table
		switch {
		case group.State:
			if have != 1 {
				return nil, nil, &Error{"table", g, fmt.Sprintf("%d entries", have), fmt.Sprintf("group %q keeps one state a request: want one slot", group.Name)}
			}
		case pool.Ring > 0:
			if have != int64(pool.Ring) {
				return nil, nil, &Error{"table", g, fmt.Sprintf("%d entries", have), fmt.Sprintf("the group goes round in a ring of %d blocks", pool.Ring)}
			}
			if first[g] = max(0, need-have); need < have {
				held[g] = table[:need]
				break
			}
			round := make([]uint32, have)
			for k := range round {
				round[k] = table[(first[g]+int64(k))%have]
			}
			held[g] = round
		case have >= need:
		case group.Window > 0 && have > 0:
			first[g] = need - have
		default:
			return nil, nil, &Error{"table", g, fmt.Sprintf("%d entries", have), fmt.Sprintf("they hold %d tokens, %d are needed", Capacity(len(table), pool.Block, *side.ShardOf(g)), end)}
		}
	}
	return held, first, nil
}

// Spans returns what a transfer of tokens [from, to) moves by group, of a
// request that has end tokens at the source and whose tables leave the given
// numbers of leading entries out (nil: none). Of a group with a window it moves
// what both sides hold; the tokens before are out of the window. A state is
// that of token end and moves where the transfer goes up to it.
//
// A window of w tokens holds the token that looks and the w-1 before it: what
// follows the request looks back to token end-w+1, and no side may lack a token
// from there on. A group without a window needs all of its tokens.
//
// Errors: *Error with field "source table" or "destination table" where that
// side lacks a token that is needed, and with field "spans" where the transfer
// would part the tokens that share a scale: where it starts inside them, or ends
// inside them before the request does.
// Preconditions: p is valid, 0 <= from < to <= end, no number is negative.
func Spans(p *plan.Pair, from, to, end int64, sourceFirst, destinationFirst []int64) ([]Span, error) {
	out := make([]Span, len(p.Source.Groups))
	for g := range out {
		group := &p.Source.Model.Groups[g]
		if group.State {
			if to == end {
				out[g] = Span{0, 1}
			}
			continue
		}
		need := from
		if group.Window > 0 {
			need = max(from, end-int64(group.Window)+1)
		}
		span := Span{from, to}
		for _, side := range []struct {
			field string
			side  *plan.Side
			first []int64
		}{{"source table", &p.Source, sourceFirst}, {"destination table", &p.Destination, destinationFirst}} {
			first := leading(side.first, g)
			old := oldest(side.side, g, first, end)
			if need < to && old > need {
				return nil, &Error{side.field, g, fmt.Sprintf("from entry %d on", first), fmt.Sprintf("tokens %d to %d of group %q are gone, and %s", need, min(old, to)-1, group.Name, reaches(group))}
			}
			span.From = max(span.From, old)
		}
		if span.From >= span.To {
			span = Span{from, from}
		}
		for _, c := range group.Components {
			e := int64(c.EntryTokens())
			switch {
			case c.Scales == "" || span.Empty():
			case span.From%e != 0:
				return nil, &Error{"spans", g, span.From, fmt.Sprintf("the transfer would start inside the %d tokens from %d on for which component %s has one value", e, span.From/e*e, c.Name)}
			case span.To%e != 0 && to != end:
				return nil, &Error{"spans", g, span.To, fmt.Sprintf("the transfer would end inside the %d tokens from %d on for which component %s has one value, and the request at %d", e, span.To/e*e, c.Name, end)}
			}
		}
		out[g] = span
	}
	return out, nil
}

// reaches says why tokens of a group are needed.
func reaches(g *geometry.Group) string {
	if g.Window == 0 {
		return "it has no window: all of them are needed"
	}
	return fmt.Sprintf("its window of %d tokens still reaches them", g.Window)
}
