package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// mixed are the groups of a model with attention beside a window, states, and
// a quantised cache with compressed entries; and a draft model and a layer for
// several tokens, of which an engine may lack either.
func mixed() []geometry.Group {
	pair := kv(1, 4, 8)[0].Components
	channels := func(name string, n, unit, dim int, d geometry.DType) geometry.Component {
		return geometry.Component{Name: name, Heads: n, Unit: unit, Dim: dim, DType: d}
	}
	return []geometry.Group{
		{Name: "draft", Layers: []int{7}, Optional: true, Components: kv(1, 4, 4)[0].Components},
		{Name: "attention", Layers: []int{1, 4}, Components: pair},
		{Name: "window", Layers: []int{0, 2}, Window: 40, Components: pair},
		{Name: "ahead", Layers: []int{6}, Optional: true, Components: pair},
		{Name: "mamba", State: true, Layers: []int{3, 5}, Components: []geometry.Component{
			channels("x", 8, 0, 3, geometry.BF16), channels("B", 4, 2, 3, geometry.BF16), channels("ssm", 4, 0, 6, geometry.FP32)}},
		{Name: "quantised", Layers: []int{8}, Components: []geometry.Component{
			{Name: "k", Heads: 4, Dim: 16, DType: geometry.Uint8}, {Name: "k_scale", Heads: 4, Dim: 1, DType: geometry.FP32, Entry: 8, Scales: "k"},
			{Name: "summary", Dim: 12, DType: geometry.Uint8, Entry: 4}}},
	}
}

// groupCases have several groups on each side, not all of them on both, in
// another order of memory than that of the pair.
var groupCases = []pairCase{
	{"stages-and-ring", 9, mixed(),
		engine{name: "prefill", tp: 2, stages: []int{4, 5}, pools: map[string]pool{
			"attention": {order: "block head token component dim", block: 16, blocks: 16},
			"window":    {order: "block component token head dim", block: 8, blocks: 24},
			"ahead":     {order: "block head token component dim", block: 16, blocks: 2},
			"mamba":     {order: "slot component channel dim", block: 1, blocks: 5},
			"quantised": {order: "block component head,token,dim|head,token,dim|token,dim", block: 16, blocks: 16}}},
		engine{name: "decode", tp: 4, pools: map[string]pool{
			"draft":     {order: "block head token component dim", block: 16, blocks: 3},
			"attention": {order: "block token head component dim", block: 32, blocks: 8},
			"window":    {order: "block head token component dim", block: 16, blocks: 10, ring: 5},
			"mamba":     {order: "layer slot channel,dim|dim,channel|channel,dim", block: 1, blocks: 7},
			"quantised": {order: "block token,head,dim|head,token,dim|token,dim", block: 32, blocks: 8}}}, 144},
	{"dealt-tokens", 9, mixed(),
		engine{name: "prefill", tp: 1, dcp: 2, interleave: 8, pools: map[string]pool{
			"draft":     {order: "block head token component dim", block: 8, blocks: 2},
			"attention": {order: "block head token component dim", block: 16, blocks: 8},
			"window":    {order: "block component token head dim", block: 8, blocks: 16, ring: 6},
			"mamba":     {order: "slot component dim,channel|channel,dim|channel,dim", block: 1, blocks: 3, tp: 2},
			"quantised": {order: "block component head,token,dim|head,token,dim|token,dim", block: 16, blocks: 8}}},
		engine{name: "decode", tp: 2, pools: map[string]pool{
			"attention": {order: "block token head component dim", block: 8, blocks: 24, tp: 1, dcp: 2, interleave: 2},
			"window":    {order: "block head token component dim", block: 16, blocks: 12},
			"ahead":     {order: "block head token component dim", block: 16, blocks: 2},
			"mamba":     {order: "slot component channel dim", block: 1, blocks: 4},
			"quantised": {order: "block component head,token,dim|head,token,dim|token,dim", block: 8, blocks: 24}}}, 144},
}

// group is the index of a group of the pair.
func (w *world) group(name string) int {
	w.t.Helper()
	for i, g := range w.pair.Source.Model.Groups {
		if g.Name == name {
			return i
		}
	}
	w.t.Fatalf("the pair has no group %q", name)
	return -1
}

// request is a request of tokens [0, end) on both sides, of which the source
// has given back what its windows no longer need.
type request struct {
	end int64
	// As a stamp.Request wants them, by group of the pair.
	source, destination           [][]uint32
	sourceFirst, destinationFirst []int64
	// As they were taken.
	takenSource, takenDestination [][]uint32
}

func (w *world) request(end int64, rng *rand.Rand) *request {
	w.t.Helper()
	q := &request{end: end, takenSource: w.source.alloc(w.t, end), takenDestination: w.destination.alloc(w.t, end)}
	raw := append([][]uint32{}, q.takenSource...)
	for g, group := range w.pair.Source.Model.Groups {
		if pool := w.source.side.Groups[g]; group.Window > 0 && pool.Ring == 0 {
			keep := (group.Window-1)/pool.Block + 2
			if spare := len(raw[g]) - keep; spare > 0 {
				raw[g] = raw[g][1+rng.IntN(spare):]
			}
		}
	}
	var err error
	if q.source, q.sourceFirst, err = stamp.Held(w.source.side, raw, end); err != nil {
		w.t.Fatal(err)
	}
	if q.destination, q.destinationFirst, err = stamp.Held(w.destination.side, q.takenDestination, end); err != nil {
		w.t.Fatal(err)
	}
	return q
}

func (w *world) done(q *request) {
	w.source.free(w.t, q.takenSource)
	w.destination.free(w.t, q.takenDestination)
}

// spans are what a transfer of tokens [from, to) of the request moves.
func (w *world) spans(q *request, from, to int64) []stamp.Span {
	w.t.Helper()
	spans, err := stamp.Spans(w.pair, from, to, q.end, q.sourceFirst, q.destinationFirst)
	if err != nil {
		w.t.Fatal(err)
	}
	return spans
}

// transfer is one of the request's.
func (q *request) transfer(d transport.Direction, from, to int64, spans []stamp.Span) transferCase {
	return transferCase{direction: d, source: q.source, destination: q.destination, from: from, to: to, spans: spans,
		sourceFirst: q.sourceFirst, destinationFirst: q.destinationFirst}
}

// check moves some of a request and compares all memory of both sides,
// that of groups which the other side lacks included.
func (w *world) check(q *request, d transport.Direction, from, to int64, spans []stamp.Span, what string) {
	w.t.Helper()
	salt := uint64(w.serial) + 1
	w.source.guard(0x11)
	w.destination.guard(0x77)
	held := w.tokens(q.source, 0, q.end, plan.Range{})
	held.first = q.sourceFirst
	w.source.write(w.source.memory(), held, salt)
	sent, want := w.source.image(), w.destination.image()
	moved := part{tables: q.destination, first: q.destinationFirst, spans: spans}
	w.destination.write(want, moved, salt)
	bytes := int64(0)
	for r := range w.destination.pools {
		w.destination.each(r, moved, func(_ geometry.Coord, _, _ int, _, size int64) { bytes += size })
	}
	done := w.move(q.transfer(d, from, to, spans))
	w.compare(w.destination, want, what)
	w.compare(w.source, sent, what+" (the source)")
	if done.Bytes != bytes {
		w.t.Errorf("%s: %d bytes were moved, want %d", what, done.Bytes, bytes)
	}
}

// movesGroups moves requests of several groups, from prefixes that are there
// already and of any length.
func movesGroups(t *testing.T, w *world) {
	rng := rand.New(rand.NewPCG(7, 0x6772))
	for i := range 6 {
		for name, d := range both {
			w.t = t
			end := w.c.tokens - rng.Int64N(60)
			from := rng.Int64N(end) / 8 * 8 // eight tokens share a scale
			q := w.request(end, rng)
			w.check(q, d, from, end, w.spans(q, from, end), fmt.Sprintf("tokens %d to %d, %s", from, end-1, name))
			if to := (from + end) / 16 * 8; i%2 == 0 && from < to { // up to the middle: no state
				w.check(q, d, from, to, w.spans(q, from, to), fmt.Sprintf("tokens %d to %d of %d, %s", from, to-1, end, name))
			}
			w.done(q)
		}
	}
}

// movesSpans moves other tokens of each group, of some none.
func movesSpans(t *testing.T, w *world) {
	w.t = t
	rng := rand.New(rand.NewPCG(8, 0x6772))
	end := w.c.tokens - 5
	q := w.request(end, rng)
	whole := w.spans(q, 0, end)
	attention, window, mamba, quantised := w.group("attention"), w.group("window"), w.group("mamba"), w.group("quantised")
	last := stamp.Span{From: whole[window].From + 3, To: end - 1}
	for _, c := range []struct {
		name  string
		spans map[int]stamp.Span
	}{
		{"each its own", map[int]stamp.Span{attention: {From: 5, To: 77}, window: last, mamba: {To: 1}, quantised: {From: 16, To: 50}}},
		{"the state alone", map[int]stamp.Span{mamba: {To: 1}}},
		{"no state", map[int]stamp.Span{attention: {To: end}, window: last, quantised: {To: end}}},
		{"one token", map[int]stamp.Span{window: {From: end - 2, To: end - 1}}},
		{"scales of one entry, no compressed one", map[int]stamp.Span{quantised: {From: 24, To: 27}}},
		{"empty spans anywhere", map[int]stamp.Span{attention: {From: 40, To: 40}, window: {From: 1, To: 1}, quantised: {From: 8, To: 24}}},
		{"nothing", nil},
	} {
		for name, d := range both {
			spans := make([]stamp.Span, len(whole))
			for g, s := range c.spans {
				spans[g] = s
			}
			w.check(q, d, 0, end, spans, c.name+", "+name)
		}
	}
	w.done(q)
}

// refusesGroups asks for spans and tables that were not granted or cannot be.
func refusesGroups(t *testing.T, w *world) {
	w.t = t
	rng := rand.New(rand.NewPCG(9, 0x6772))
	end := w.c.tokens - 5
	q := w.request(end, rng)
	attention, window, mamba, quantised := w.group("attention"), w.group("window"), w.group("mamba"), w.group("quantised")
	whole := w.spans(q, 0, end)
	w.destination.guard(0x77)
	untouched := w.destination.image()
	// span edits one group's span of a request.
	span := func(r *stamp.Request, g int, from, to int64) {
		r.Spans = append([]stamp.Span{}, r.Spans...)
		r.Spans[g] = stamp.Span{From: from, To: to}
	}
	// first edits how many entries a request's own side leaves out.
	first := func(r *stamp.Request, g int, n int64) {
		for _, f := range []*[]int64{&r.SourceFirst, &r.DestinationFirst} {
			*f = append([]int64{}, *f...)
			if len(*f) > 0 {
				(*f)[g] = n
			}
		}
	}
	says := func(words ...string) func(error) bool {
		return func(err error) bool {
			for _, word := range words {
				if err == nil || !strings.Contains(err.Error(), word) {
					return false
				}
			}
			return true
		}
	}
	outside := func(err error) bool {
		var e *transport.Mismatch
		return errors.As(err, &e) && e.Field == "spans"
	}
	type edit func(g *transport.Grant, op *transport.Operation)
	for _, c := range []struct {
		name string
		edit edit
		ok   func(error) bool
	}{
		{"more tokens of a group than granted", func(g *transport.Grant, op *transport.Operation) { span(&g.Request, attention, 8, end) }, outside},
		{"later tokens of a group than granted", func(g *transport.Grant, op *transport.Operation) { span(&g.Request, quantised, 0, end-1) }, outside},
		{"a group of which nothing was granted", func(g *transport.Grant, op *transport.Operation) { span(&g.Request, window, 0, 0) }, outside},
		{"a state that was not granted", func(g *transport.Grant, op *transport.Operation) { span(&g.Request, mamba, 0, 0) }, outside},
		{"everything, of a grant of spans", func(g *transport.Grant, op *transport.Operation) {
			op.Request.Spans = nil
			span(&g.Request, attention, 0, 8)
		}, func(err error) bool { return outside(err) || says("stamp: ")(err) }}, // or a table that does not reach
		{"spans of too few groups", func(g *transport.Grant, op *transport.Operation) { op.Request.Spans = op.Request.Spans[1:] }, says("stamp: spans")},
		{"spans of too many groups", func(g *transport.Grant, op *transport.Operation) {
			op.Request.Spans = append(append([]stamp.Span{}, op.Request.Spans...), stamp.Span{})
		}, says("stamp: spans")},
		{"spans of no group", func(g *transport.Grant, op *transport.Operation) { op.Request.Spans = []stamp.Span{} }, says("stamp: spans")},
		{"a span below zero", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, attention, -8, end) }, says("stamp: spans", "[-8,")},
		{"a span far below zero", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, attention, -1<<63, end) }, says("stamp: spans")},
		{"a span beyond everything", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, attention, 0, 1<<63-1) }, says("stamp: spans")},
		{"a span that ends before it begins", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, attention, 9, 3) }, says("stamp: spans", "[9, 3)")},
		{"a span outside the request", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, attention, 0, end+1) }, says("stamp: spans")},
		{"two states", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, mamba, 0, 2) }, says("stamp: spans")},
		{"a state like tokens", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, mamba, 1, 2) }, says("stamp: spans")},
		{"from inside a scale", func(g *transport.Grant, op *transport.Operation) { span(&op.Request, quantised, 3, end) }, says("stamp: spans", "k_scale")},
		{"granted from inside a scale", func(g *transport.Grant, op *transport.Operation) { span(&g.Request, quantised, 3, end) }, says("stamp: spans", "k_scale")},
		{"granted spans of too few groups", func(g *transport.Grant, op *transport.Operation) { g.Request.Spans = g.Request.Spans[1:] }, says("stamp: spans")},
		{"fewer than no entries left out", func(g *transport.Grant, op *transport.Operation) { first(&op.Request, attention, -1) }, says("table")},
		{"far fewer than no entries left out", func(g *transport.Grant, op *transport.Operation) { first(&op.Request, attention, -1<<63) }, says("table")},
		{"more entries left out than there are", func(g *transport.Grant, op *transport.Operation) { first(&op.Request, attention, 1<<63-1) }, says("table")},
		{"entries left out that are needed", func(g *transport.Grant, op *transport.Operation) { first(&op.Request, attention, 1) }, says("table")},
		{"a state left out", func(g *transport.Grant, op *transport.Operation) { first(&op.Request, mamba, 1) }, says("table")},
		{"granted with fewer than no entries left out", func(g *transport.Grant, op *transport.Operation) { first(&g.Request, attention, -1) }, says("table")},
		{"granted with entries left out that are needed", func(g *transport.Grant, op *transport.Operation) { first(&g.Request, attention, 1) }, says("table")},
		{"entries left out of too few groups", func(g *transport.Grant, op *transport.Operation) {
			r := &op.Request
			r.SourceFirst, r.DestinationFirst = r.SourceFirst[:min(1, len(r.SourceFirst))], r.DestinationFirst[:min(1, len(r.DestinationFirst))]
		}, says("table")},
		{"a table that does not reach over a group's span", func(g *transport.Grant, op *transport.Operation) {
			for _, tables := range []*[][]uint32{&op.Request.Source, &op.Request.Destination} {
				if *tables != nil {
					*tables = append([][]uint32{}, *tables...)
					(*tables)[quantised] = (*tables)[quantised][:1]
				}
			}
		}, says("table")},
		{"no slot for a state", func(g *transport.Grant, op *transport.Operation) {
			for _, tables := range []*[][]uint32{&op.Request.Source, &op.Request.Destination} {
				if *tables != nil {
					*tables = append([][]uint32{}, *tables...)
					(*tables)[mamba] = nil
				}
			}
		}, says("table")},
		{"generations of fewer entries than granted", func(g *transport.Grant, op *transport.Operation) {
			g.Generations = append([][]uint64{}, g.Generations...)
			g.Generations[mamba] = nil
		}, func(err error) bool { var e *transport.Mismatch; return errors.As(err, &e) && e.Field == "generations" }},
	} {
		for name, d := range both {
			x := q.transfer(d, 0, end, whole)
			x.changed = c.edit
			if err := w.try(x); !c.ok(err) {
				t.Errorf("%s, %s: got %v", c.name, name, err)
			}
		}
	}
	w.compare(w.destination, untouched, "refused")
	// The connection is sound, and what was granted still moves.
	for name, d := range both {
		w.check(q, d, 0, end, whole, "after the refusals, "+name)
	}
	w.done(q)
}

// staleGroups gives blocks back after they were granted: of a group's table
// that leaves its first entries out, the slot of a state, and blocks that are
// not moved.
func staleGroups(t *testing.T, w *world) {
	w.t = t
	rng := rand.New(rand.NewPCG(10, 0x6772))
	end := w.c.tokens - 5
	for name, d := range both {
		granter := w.granter(d)
		for _, c := range []struct {
			group string
			entry func(lo, hi int64) int64 // of the table, given those that the request moves
			stale bool
		}{
			{"window", func(lo, hi int64) int64 { return lo }, true},
			{"window", func(lo, hi int64) int64 { return hi - 1 }, true},
			{"mamba", func(lo, hi int64) int64 { return 0 }, true},
			{"quantised", func(lo, hi int64) int64 { return lo }, true},
			{"attention", func(lo, hi int64) int64 { return lo - 1 }, false}, // before the span
			{"quantised", func(lo, hi int64) int64 { return hi }, false},     // behind it
		} {
			q := w.request(end, rng)
			g := w.group(c.group)
			spans := w.spans(q, 0, end)
			spans[w.group("attention")].From = 70
			spans[w.group("quantised")] = stamp.Span{From: 40, To: 72}
			op, err := w.grant(q.transfer(d, 0, end, spans))
			if err != nil {
				t.Fatalf("%s, %s: grant: %v", name, c.group, err)
			}
			side, tables := transport.Source, q.source
			if d == transport.Write {
				side, tables = transport.Destination, q.destination
			}
			r := stamp.Request{From: 0, To: end, Spans: spans, SourceFirst: q.sourceFirst, DestinationFirst: q.destinationFirst}
			at := c.entry(transport.Entries(w.pair, &r, side, g))
			granter.release(t, g, tables[g][at:at+1])
			err = w.submit(w.submitter(d), op)
			var stale *transport.Stale
			switch {
			case !c.stale && err != nil:
				t.Errorf("%s, %s, entry %d is not moved: %v", name, c.group, at, err)
			case c.stale && !errors.As(err, &stale):
				t.Errorf("%s, %s, entry %d was given back: got %v, want *Stale", name, c.group, at, err)
			case c.stale && (stale.Group != g || stale.Block != tables[g][at] || stale.Found != stale.Granted+1):
				t.Errorf("%s, %s: %v, want block %d of group %d", name, c.group, stale, tables[g][at], g)
			}
			if err := granter.provider.Revoke(op.Grant); err != nil {
				t.Errorf("revoke: %v", err)
			}
			w.done(q)
		}
	}
}
