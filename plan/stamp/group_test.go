package stamp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/stamp"
)

// held makes the request of tokens [from, to) of one of end tokens.
func held(t testing.TB, s *stamp.Stamper, source, destination [][]uint32, from, to, end int64) (*stamp.Request, error) {
	t.Helper()
	p := s.Proven().Pair()
	r := &stamp.Request{ID: "r", Plan: s.Proven().Digest(), From: from, To: to}
	var err error
	if r.Source, r.SourceFirst, err = stamp.Held(&p.Source, source, end); err != nil {
		return nil, err
	}
	if r.Destination, r.DestinationFirst, err = stamp.Held(&p.Destination, destination, end); err != nil {
		return nil, err
	}
	r.Spans, err = stamp.Spans(p, from, to, end, r.SourceFirst, r.DestinationFirst)
	return r, err
}

// expand lists a request that is valid.
func expand(t testing.TB, s *stamp.Stamper, r *stamp.Request) []stamp.Copy {
	t.Helper()
	if err := s.Validate(r); err != nil {
		t.Fatalf("%v\n%+v", err, r)
	}
	copies, err := s.Expand(r)
	if err != nil {
		t.Fatal(err)
	}
	return copies
}

// sides makes a pair of one group whose two sides say these keys of it.
func sides(t testing.TB, group, sourceShard, source, destinationShard, destination string) *plan.Pair {
	t.Helper()
	p, _ := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 2, groups: [{name: g, %s}]}\nsource: {engine: s, shard: %s, groups: {g: {%s}}}\ndestination: {engine: d, shard: %s, groups: {g: {%s}}}\n",
		group, sourceShard, source, destinationShard, destination))
	return p
}

const small = "components: [{name: k, heads: 2, dim: 2, dtype: int8}]"

// A window moves what both sides hold, whatever the table leaves out and
// wherever the request ends.
func TestWindowsOfEveryAlignment(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct{ name, sourceShard, source, destinationShard, destination string }{
		{"blocks of 4 and 6", "{tp: 1}", "block: 4, blocks: 40, layout: {order: [block, head, token, dim]}", "{tp: 2}", "block: 6, blocks: 40, layout: {order: [block, token, head, dim]}"},
		{"kernel blocks", "{tp: 1}", "block: 6, kernel_block: 2, blocks: 40, layout: {order: [block, head, token, dim]}", "{tp: 1}", "block: 4, blocks: 40, layout: {order: [block, token, head, dim]}"},
		{"dealt to two", "{tp: 1, dcp: {size: 2, interleave: 1}}", "block: 4, blocks: 40, layout: {order: [block, head, token, dim]}", "{tp: 2}", "block: 3, blocks: 40, layout: {order: [block, token, head, dim]}"},
		{"dealt on both sides", "{tp: 1, dcp: {size: 2, interleave: 2}}", "block: 2, blocks: 40, layout: {order: [block, head, token, dim]}", "{tp: 2, dcp: {size: 3, interleave: 1}}", "block: 2, blocks: 40, layout: {order: [block, token, head, dim]}"},
	} {
		s := stamper(t, sides(t, "window: 10, "+small, c.sourceShard, c.source, c.destinationShard, c.destination), 0)
		p := s.Proven().Pair()
		moved, refused, short := 0, 0, 0
		for end := int64(1); end <= 50; end++ {
			_, se := stamp.Entries(&p.Source, 0, 0, end)
			_, de := stamp.Entries(&p.Destination, 0, 0, end)
			for out := range 4 { // entries more than the window needs
				lo, hi := stamp.Entries(&p.Source, 0, max(0, end-9), end)
				n := min(int(hi-lo)+out-1, int(se))
				m := min(2+out+r.IntN(5), int(de))
				if n < 1 || m < 1 {
					continue
				}
				req, err := held(t, s, [][]uint32{ids(r, n, 40)}, [][]uint32{ids(r, m, 40)}, r.Int64N(end), end, end)
				if text := errorText(t, err); text != "" {
					if !strings.Contains(text, "table (group 0) is from entry") || !strings.Contains(text, "still reaches them") {
						t.Fatal(text)
					}
					refused++
					continue
				}
				if err := judge(p, req, expand(t, s, req)); err != nil {
					t.Fatalf("%s: %v\n%+v", c.name, err, req)
				}
				moved++
				if req.Spans[0].From > req.From {
					short++
				}
			}
		}
		if moved < 60 || refused < 20 || short < 20 {
			t.Errorf("%s: %d moved, %d of them in part, %d refused", c.name, moved, short, refused)
		}
	}
}

// A ring holds the last blocks, from wherever the request has come to in it:
// below, at and above its length, on either side.
func TestRingsOfEveryLength(t *testing.T) {
	const order = "layout: {order: [block, head, token, dim]}"
	r := rand.New(rand.NewPCG(6, 6))
	for _, c := range []struct{ source, destination string }{
		{"block: 4, blocks: 30, ring: 4, " + order, "block: 4, blocks: 30, " + order},
		{"block: 4, blocks: 30, " + order, "block: 4, blocks: 30, ring: 4, " + order},
		{"block: 4, blocks: 30, ring: 4, " + order, "block: 6, blocks: 30, ring: 3, " + order},
		{"block: 3, blocks: 30, ring: 30, " + order, "block: 12, blocks: 30, ring: 2, " + order},
	} {
		s := stamper(t, sides(t, "window: 9, "+small, "{tp: 1}", c.source, "{tp: 2}", c.destination), 0)
		p := s.Proven().Pair()
		table := func(side *plan.Side, end int64) [][]uint32 {
			n := int64(side.Groups[0].Ring)
			if n == 0 {
				_, n = stamp.Entries(side, 0, 0, end)
			}
			return [][]uint32{ids(r, int(n), 30)}
		}
		for end := int64(1); end <= 90; end++ {
			source, destination := table(&p.Source, end), table(&p.Destination, end)
			req, err := held(t, s, source, destination, 0, end, end)
			if err != nil {
				t.Fatalf("%+v, %d tokens: %v", c, end, err)
			}
			if err := judge(p, req, expand(t, s, req)); err != nil {
				t.Fatalf("%+v, %d tokens: %v", c, end, err)
			}
			// The last token lies in the block to which the round has come.
			for _, side := range []struct {
				of    *plan.Side
				given []uint32
				held  []uint32
				first int64
			}{{&p.Source, source[0], req.Source[0], req.SourceFirst[0]}, {&p.Destination, destination[0], req.Destination[0], req.DestinationFirst[0]}} {
				last := (end - 1) / int64(side.of.Groups[0].Block)
				if want := side.given[last%int64(len(side.given))]; side.held[last-side.first] != want {
					t.Fatalf("%d tokens: the last block is %d, want %d", end, side.held[last-side.first], want)
				}
			}
		}
	}
}

// A state is that of the request's last token: it moves with that one only,
// from source ranks of its own, beside the tokens.
func TestStates(t *testing.T) {
	p, _ := fixture.Parse(t, `
model:
  name: hybrid
  layers: 4
  groups:
    - {name: attention, layers: "1,3", components: [{name: k, heads: 2, dim: 4, dtype: bf16}, {name: v, heads: 2, dim: 4, dtype: bf16}]}
    - name: mamba
      state: true
      layers: "0,2"
      components:
        - {name: x, channels: 16, dim: 3, dtype: bf16}
        - {name: B, channels: 4, unit: 2, dim: 3, dtype: bf16}
        - {name: ssm, channels: 8, dim: 4, dtype: fp32}
source:
  engine: p
  shard: {tp: 8}
  groups:
    attention: {block: 4, blocks: 16, layout: {order: [block, head, token, component, dim]}}
    mamba: {slots: 4, layout: {order: [slot, {"x,B": [component, channel, dim], ssm: [channel, dim]}]}}
destination:
  engine: d
  shard: {tp: 1}
  groups:
    attention: {block: 8, blocks: 16, layout: {order: [block, token, head, component, dim]}}
    mamba: {slots: 4, layout: {order: [slot, {"x,B": [component, dim, channel], ssm: [channel, dim]}]}}
`)
	s := stamper(t, p, 0)
	source, destination := [][]uint32{{3, 1, 7, 5}, {2}}, [][]uint32{{9, 4}, {3}}
	bytes := func(copies []stamp.Copy, group int) (n int64, ranks []int) {
		for _, c := range copies {
			if c.Group == group {
				n += c.Bytes
				if !slices.Contains(ranks, c.SourceRank) {
					ranks = append(ranks, c.SourceRank)
				}
			}
		}
		slices.Sort(ranks)
		return n, ranks
	}
	const perToken, state = 2 * 2 * 2 * 4 * 2, 2 * (16*3*2 + 4*3*2 + 8*4*4)
	for _, c := range []struct {
		from, to, end, tokens, states int64
	}{{0, 16, 16, 16, state}, {0, 13, 13, 13, state}, {12, 13, 13, 1, state}, {0, 12, 13, 12, 0}, {4, 8, 13, 4, 0}} {
		req, err := held(t, s, source, destination, c.from, c.to, c.end)
		if err != nil {
			t.Fatal(err)
		}
		copies := expand(t, s, req)
		if err := judge(p, req, copies); err != nil {
			t.Fatal(err)
		}
		tokens, tokenRanks := bytes(copies, 0)
		states, stateRanks := bytes(copies, 1)
		if tokens != c.tokens*perToken || states != c.states {
			t.Errorf("[%d, %d) of %d: %d bytes of tokens and %d of states, want %d and %d", c.from, c.to, c.end, tokens, states, c.tokens*perToken, c.states)
		}
		if !slices.Equal(tokenRanks, []int{0, 4}) || states > 0 && len(stateRanks) != 8 {
			t.Errorf("tokens come from ranks %v, states from %v", tokenRanks, stateRanks)
		}
	}
	// Without spans everything moves, and a state's slot is a table of its own.
	req := &stamp.Request{Plan: s.Proven().Digest(), Source: source, Destination: destination, From: 3, To: 5}
	if n, _ := bytes(expand(t, s, req), 1); n != state {
		t.Errorf("%d bytes of states, want %d", n, state)
	}
	req.Destination = [][]uint32{{9, 4}, {}}
	if err := s.Validate(req); errorText(t, err) != "stamp: destination table (group 1) is 0 entries: group \"mamba\" keeps one state a request: want its slot" {
		t.Errorf("got %v", err)
	}
}

// packed is a pair of compressed entries of 4 tokens and values of 2 bytes, in
// blocks of 8 and 12.
func packed(t testing.TB) *plan.Pair {
	return sides(t, "layers: [0], components: [{name: c, heads: 0, dim: 2, dtype: int8, tokens_per_entry: 4}]",
		"{tp: 1}", "block: 8, blocks: 40, layout: {order: [block, token, dim]}", "{tp: 1}", "block: 12, blocks: 40, layout: {order: [block, token, dim]}")
}

// An entry of several tokens that is not complete is never moved, and comes
// with the transfer that completes it.
func TestPartialEntriesAreNotMoved(t *testing.T) {
	s := stamper(t, packed(t), 0)
	source, destination := []uint32{3, 1, 7}, []uint32{9, 4}
	for _, c := range []struct {
		from, to int64
		want     []string
	}{
		{0, 3, nil},
		{0, 4, []string{"0+12 -> 0+54 2"}},
		{0, 7, []string{"0+12 -> 0+54 2"}},
		{3, 7, []string{"0+12 -> 0+54 2"}},                   // completes what began before
		{4, 7, nil},                                          // the first is there, the second not complete
		{1, 9, []string{"0+12 -> 0+54 4"}},                   // tokens 0 to 7
		{7, 13, []string{"0+14 -> 0+56 2", "0+4 -> 0+58 2"}}, // 4 to 7, 8 to 11
		{10, 11, nil},
		{11, 12, []string{"0+4 -> 0+58 2"}},
		{11, 24, []string{"0+6 -> 0+24 2", "0+28 -> 0+26 4", "0+4 -> 0+58 2"}},
	} {
		req := request(s, source, destination, c.from, c.to)
		copies := expand(t, s, req)
		if got := lines(copies, -1); !slices.Equal(got, c.want) {
			t.Errorf("[%d, %d): got %q, want %q", c.from, c.to, got, c.want)
		}
		if err := judge(s.Proven().Pair(), req, copies); err != nil {
			t.Errorf("[%d, %d): %v", c.from, c.to, err)
		}
	}
}

// A scale of several tokens comes with the first of them.
func TestScalesComeWithTheirFirstToken(t *testing.T) {
	p, _ := fixture.Parse(t, `
model: {name: m, layers: 1, components: [{name: k, heads: 0, dim: 2, dtype: fp8}, {name: s, heads: 0, dim: 1, dtype: fp32, tokens_per_entry: 4, scales: k}]}
source: {engine: s, shard: {tp: 1}, block: 8, blocks: 40, layout: {order: [block, {k: [token, dim], s: [token, dim]}]}}
destination: {engine: d, shard: {tp: 1}, block: 4, blocks: 40, layout: {order: [component, block, token, dim]}}
`)
	s := stamper(t, p, 0)
	source, destination := []uint32{3, 1}, []uint32{9, 4, 2}
	for _, c := range []struct {
		from, to int64
		want     []string
	}{
		{0, 4, []string{"0+48 -> 0+72 8", "0+24 -> 0+356 4"}},
		{0, 3, []string{"0+48 -> 0+72 6", "0+24 -> 0+356 4"}},
		{0, 5, []string{"0+56 -> 0+32 2", "0+48 -> 0+72 8", "0+28 -> 0+336 4", "0+24 -> 0+356 4"}},
		{4, 9, []string{"0+16 -> 0+16 2", "0+56 -> 0+32 8", "0+8 -> 0+328 4", "0+28 -> 0+336 4"}},
	} {
		req := request(s, source, destination, c.from, c.to)
		copies := expand(t, s, req)
		if got := lines(copies, -1); !slices.Equal(got, c.want) {
			t.Errorf("[%d, %d): got %q, want %q", c.from, c.to, got, c.want)
		}
		if err := judge(p, req, copies); err != nil {
			t.Errorf("[%d, %d): %v", c.from, c.to, err)
		}
	}
	for _, c := range []struct {
		from, to, end int64
		want          string
	}{
		{5, 9, 9, "stamp: spans (group 0) is 5: the transfer would start inside the 4 tokens from 4 on for which component s has one value"},
		{4, 7, 9, "stamp: spans (group 0) is 7: the transfer would end inside the 4 tokens from 4 on for which component s has one value, and the request at 9"},
	} {
		if _, err := held(t, s, [][]uint32{source}, [][]uint32{destination}, c.from, c.to, c.end); errorText(t, err) != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if err := s.Validate(request(s, source, destination, 5, 9)); errorText(t, err) != "stamp: spans (group 0) is 5: component s has one value for 4 tokens, of which the first would be left out: start at token 4 or 8" {
		t.Errorf("got %v", err)
	}
}

func TestValidateSpansAndFirsts(t *testing.T) {
	p, _ := fixture.Parse(t, `
model:
  name: m
  layers: 2
  groups:
    - {name: a, layers: [0], window: 8, components: [{name: k, heads: 0, dim: 2, dtype: int8}]}
    - {name: m, layers: [1], state: true, components: [{name: x, channels: 2, dim: 2, dtype: int8}]}
source: {engine: s, shard: {tp: 1}, groups: {a: {block: 4, blocks: 40, layout: {order: [block, token, dim]}}, m: {slots: 3, layout: {order: [slot, channel, dim]}}}}
destination: {engine: d, shard: {tp: 1}, groups: {a: {block: 4, blocks: 40, layout: {order: [block, token, dim]}}, m: {slots: 3, layout: {order: [slot, channel, dim]}}}}
`)
	s := stamper(t, p, 0)
	good := func() *stamp.Request {
		return &stamp.Request{Plan: s.Proven().Digest(), From: 10, To: 20, Source: [][]uint32{{5, 6, 7}, {1}}, SourceFirst: []int64{2, 0},
			Destination: [][]uint32{{1, 2}, {2}}, DestinationFirst: []int64{3, 0}, Spans: []stamp.Span{{From: 12, To: 20}, {From: 0, To: 1}}}
	}
	if err := s.Validate(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spoil func(*stamp.Request)
		want  string
	}{
		{func(r *stamp.Request) { r.Spans = r.Spans[:1] }, "stamp: spans (group 0) is 1: want one a group, 2"},
		{func(r *stamp.Request) { r.Spans[0].From = 9 }, "stamp: spans (group 0) is [9, 20): want a range within [10, 20)"},
		{func(r *stamp.Request) { r.Spans[0].To = 21 }, "stamp: spans (group 0) is [12, 21): want a range within [10, 20)"},
		{func(r *stamp.Request) { r.Spans[0] = stamp.Span{From: 15, To: 14} }, "stamp: spans (group 0) is [15, 14): want a range within [10, 20)"},
		{func(r *stamp.Request) { r.Spans[1].To = 2 }, "stamp: spans (group 1) is [0, 2): want a range within [0, 1)"},
		{func(r *stamp.Request) { r.Spans[1] = stamp.Span{From: 10, To: 20} }, "stamp: spans (group 1) is [10, 20): want a range within [0, 1)"},
		{func(r *stamp.Request) { r.Spans[0].From = 11 }, "stamp: destination table (group 0) is from entry 3 on: entry 2 is needed"},
		{func(r *stamp.Request) { r.Spans = nil }, "stamp: destination table (group 0) is from entry 3 on: entry 2 is needed"},
		{func(r *stamp.Request) { r.SourceFirst[0] = 1 }, "stamp: source table (group 0) is 3 entries from entry 1 on: entry 4 is needed"},
		{func(r *stamp.Request) { r.SourceFirst[0] = 4 }, "stamp: source table (group 0) is from entry 4 on: entry 3 is needed"},
		{func(r *stamp.Request) { r.SourceFirst[0] = -1 }, "stamp: source table (group 0) is -1: leading entries left out: want 0 to 1099511627776"},
		{func(r *stamp.Request) { r.SourceFirst[0] = 1<<40 + 1 }, "stamp: source table (group 0) is 1099511627777: leading entries left out: want 0 to 1099511627776"},
		{func(r *stamp.Request) { r.SourceFirst[1] = 1 }, "stamp: source table (group 1) is from entry 1 on: entry 0 is needed"},
		{func(r *stamp.Request) { r.SourceFirst = r.SourceFirst[:1] }, "stamp: source table (group 0) is 1: want a number of leading entries a group, 2"},
		{func(r *stamp.Request) { r.Source[1][0] = 3 }, "stamp: source table (group 1) is 3: entry 0 names no block of a pool of 3"},
		{func(r *stamp.Request) { r.Source[1] = nil }, "stamp: source table (group 1) is 0 entries: group \"m\" keeps one state a request: want its slot"},
	} {
		r := good()
		c.spoil(r)
		if got := errorText(t, s.Validate(r)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	// What moves nothing of a group asks nothing of its tables.
	r := good()
	r.Spans, r.Source[1], r.Destination[0] = []stamp.Span{{From: 10, To: 10}, {}}, nil, []uint32{}
	if copies := expand(t, s, r); len(copies) != 0 {
		t.Errorf("got %v", copies)
	}
}

// Stamping allocates nothing with groups, windows that leave entries out, rings,
// states and entries of several tokens either.
func TestStampingGroupsAllocatesNothing(t *testing.T) {
	p, _ := fixture.Parse(t, `
model:
  name: m
  layers: 6
  groups:
    - {name: full, layers: "0-1", components: [{name: k, heads: 4, dim: 8, dtype: fp8}, {name: v, heads: 4, dim: 8, dtype: fp8}, {name: s, heads: 4, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}]}
    - {name: window, layers: "2-3", window: 100, components: [{name: k, heads: 2, dim: 8, dtype: bf16}, {name: c, heads: 0, dim: 8, dtype: bf16, tokens_per_entry: 4}]}
    - {name: state, layers: "4-5", state: true, components: [{name: x, channels: 8, dim: 3, dtype: bf16}]}
source:
  engine: s
  shard: {tp: 2}
  groups:
    full: {block: 16, blocks: 300, layout: {order: [block, {"k,v": [head, token, component, dim], s: [token, head, dim]}]}}
    window: {block: 16, blocks: 300, ring: 9, layout: {order: [block, {k: [head, token, dim], c: [token, dim]}]}}
    state: {slots: 4, layout: {order: [slot, channel, dim]}}
destination:
  engine: d
  shard: {tp: 4}
  groups:
    full: {block: 48, blocks: 300, layout: {order: [block, {"k,v": [token, head, component, dim], s: [token, head, dim]}]}}
    window: {block: 32, blocks: 300, layout: {order: [block, {k: [head, token, dim], c: [token, dim]}]}}
    state: {slots: 4, layout: {order: [slot, dim, channel]}}
`)
	s := stamper(t, p, 0)
	r := rand.New(rand.NewPCG(1, 1))
	req, err := held(t, s, [][]uint32{ids(r, 251, 300), ids(r, 9, 300), {1}}, [][]uint32{ids(r, 84, 300), ids(r, 7, 300), {2}}, 16, 4001, 4001)
	if err != nil {
		t.Fatal(err)
	}
	some := *req
	some.Layers = plan.Range{From: 1, To: 3}
	if err := judge(p, &some, expand(t, s, &some)); err != nil {
		t.Fatal(err)
	}
	var cursor stamp.Cursor
	var seg stamp.Segment
	n, groups := 0, map[int]bool{}
	for range 2 {
		if got := testing.AllocsPerRun(20, func() {
			for _, e := range []stamp.EdgeKey{{Source: 0, Destination: 0}, {Source: 1, Destination: 3}} {
				if err := s.Cursor(req, e, &cursor); err != nil {
					t.Fatal(err)
				}
				for cursor.Next(&seg) {
					n++
					groups[cursor.Group()] = true
				}
				if _, _, err := s.Totals(req, e); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Validate(req); err != nil {
				t.Fatal(err)
			}
		}); got != 0 || n == 0 || len(groups) != 3 {
			t.Errorf("%v allocations, %d segments of groups %v", got, n, groups)
		}
	}
}
