package stamp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// group is a side's one group: what Entries, Held and Spans look at, without
// layouts.
type group struct {
	dcp, interleave, block, blocks, ring, window int
	state                                        bool
	components                                   []geometry.Component
}

func (g group) side() *plan.Side {
	return &plan.Side{
		Model:  geometry.Model{Groups: []geometry.Group{{Name: "g", State: g.state, Window: g.window, Components: g.components}}},
		Shard:  shard.Spec{DCPSize: max(g.dcp, 1), Interleave: max(g.interleave, 1)},
		Groups: []plan.Pool{{Block: max(g.block, 1), Blocks: g.blocks, Ring: g.ring}},
	}
}

// entriesOf are the table entries in which each token of [from, to) lies, by
// the definition of the dealing.
func entriesOf(s *plan.Side, from, to int64) map[int64]bool {
	out := map[int64]bool{}
	c, i, block := int64(s.Shard.DCPSize), int64(s.Shard.Interleave), int64(s.Groups[0].Block)
	for t := from; t < to; t++ {
		out[(t/(i*c)*i+t%i)/block] = true
	}
	return out
}

func TestEntriesAreThoseOfTheTokens(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range 20000 {
		s := group{dcp: 1 + rng.IntN(5), interleave: 1 + rng.IntN(6), block: 1 + rng.IntN(9)}.side()
		from := rng.Int64N(80)
		to := from + rng.Int64N(60)
		lo, hi := stamp.Entries(s, 0, from, to)
		want := entriesOf(s, from, to)
		var wantLo, wantHi int64
		for e := range want {
			if wantHi == 0 || e < wantLo {
				wantLo = e
			}
			wantHi = max(wantHi, e+1)
		}
		if lo != wantLo || hi != wantHi {
			t.Fatalf("%+v %+v tokens [%d, %d): entries [%d, %d), want [%d, %d)", s.Shard, s.Groups[0], from, to, lo, hi, wantLo, wantHi)
		}
	}
	if lo, hi := stamp.Entries(group{state: true}.side(), 0, 0, 1); lo != 0 || hi != 1 {
		t.Errorf("a state lies in entries [%d, %d)", lo, hi)
	}
	own := group{block: 4}.side() // dealt otherwise than the engine
	own.Groups[0].Shard = &shard.Spec{DCPSize: 2, Interleave: 1}
	if lo, hi := stamp.Entries(own, 0, 0, 17); lo != 0 || hi != 3 {
		t.Errorf("entries [%d, %d) of a group of its own shard, want [0, 3)", lo, hi)
	}
}

// errorText is an error's text, "" for none; anything but an *Error fails.
func errorText(t testing.TB, err error) string {
	t.Helper()
	var e *stamp.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("got %v (%T)", err, err)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    group
		table []uint32
		end   int64
		held  []uint32
		first int64
		err   string
	}{
		{name: "as long as needed", of: group{block: 4}, table: []uint32{7, 5, 3}, end: 12, held: []uint32{7, 5, 3}},
		{name: "surplus", of: group{block: 4}, table: []uint32{7, 5, 3, 1}, end: 9, held: []uint32{7, 5, 3, 1}},
		{name: "too short", of: group{block: 4}, table: []uint32{7, 5, 3}, end: 13, err: "stamp: table (group 0) is 3 entries: they hold 12 tokens, 13 are needed"},
		{name: "none", of: group{block: 4}, table: nil, end: 1, err: "stamp: table (group 0) is 0 entries: they hold 0 tokens, 1 are needed"},
		{name: "dealt", of: group{block: 4, dcp: 2, interleave: 2}, table: []uint32{7, 5}, end: 16, held: []uint32{7, 5}},
		{name: "dealt, too short", of: group{block: 4, dcp: 2, interleave: 2}, table: []uint32{7, 5}, end: 17, err: "stamp: table (group 0) is 2 entries: they hold 16 tokens, 17 are needed"},
		{name: "window, whole table", of: group{block: 4, window: 5}, table: []uint32{7, 5, 3}, end: 9, held: []uint32{7, 5, 3}},
		{name: "window, last entries", of: group{block: 4, window: 5}, table: []uint32{5, 3}, end: 9, held: []uint32{5, 3}, first: 1},
		{name: "window, one entry", of: group{block: 4, window: 5}, table: []uint32{3}, end: 9, held: []uint32{3}, first: 2},
		{name: "window, empty", of: group{block: 4, window: 5}, table: []uint32{}, end: 9, err: "stamp: table (group 0) is 0 entries: they hold 0 tokens, 9 are needed"},
		{name: "window, dealt", of: group{block: 4, dcp: 2, window: 5}, table: []uint32{9, 4}, end: 25, held: []uint32{9, 4}, first: 2},
		{name: "ring not full", of: group{block: 4, window: 5, ring: 3, blocks: 9}, table: []uint32{7, 5, 3}, end: 7, held: []uint32{7, 5}},
		{name: "ring just full", of: group{block: 4, window: 5, ring: 3, blocks: 9}, table: []uint32{7, 5, 3}, end: 12, held: []uint32{7, 5, 3}},
		{name: "ring, second round", of: group{block: 4, window: 5, ring: 3, blocks: 9}, table: []uint32{7, 5, 3}, end: 13, held: []uint32{5, 3, 7}, first: 1},
		{name: "ring, many rounds", of: group{block: 4, window: 5, ring: 3, blocks: 9}, table: []uint32{7, 5, 3}, end: 400, held: []uint32{5, 3, 7}, first: 97},
		{name: "ring of one", of: group{block: 4, window: 2, ring: 1, blocks: 9}, table: []uint32{7}, end: 400, held: []uint32{7}, first: 99},
		{name: "ring, dealt", of: group{block: 2, dcp: 2, window: 5, ring: 3, blocks: 9}, table: []uint32{7, 5, 3}, end: 19, held: []uint32{3, 7, 5}, first: 2},
		{name: "ring, another length", of: group{block: 4, ring: 3, blocks: 9}, table: []uint32{7, 5}, end: 4, err: "stamp: table (group 0) is 2 entries: the group goes round in a ring of 3 blocks"},
		{name: "state", of: group{state: true}, table: []uint32{7}, end: 4711, held: []uint32{7}},
		{name: "two states", of: group{state: true}, table: []uint32{7, 8}, end: 9, err: `stamp: table (group 0) is 2 entries: group "g" keeps one state a request: want one slot`},
		{name: "no state", of: group{state: true}, end: 9, err: `stamp: table (group 0) is 0 entries: group "g" keeps one state a request: want one slot`},
	} {
		given := slices.Clone(c.table)
		held, first, err := stamp.Held(c.of.side(), [][]uint32{c.table}, c.end)
		if got := errorText(t, err); got != c.err {
			t.Errorf("%s: error %q, want %q", c.name, got, c.err)
		}
		if c.err == "" && err == nil && (!slices.Equal(held[0], c.held) || first[0] != c.first) {
			t.Errorf("%s: %v from entry %d on, want %v from %d on", c.name, held[0], first[0], c.held, c.first)
		}
		if !slices.Equal(given, c.table) {
			t.Errorf("%s: the table given was changed to %v", c.name, c.table)
		}
	}
	if _, _, err := stamp.Held(group{}.side(), nil, 1); errorText(t, err) != "stamp: table (group 0) is 0: want one a group, 1" {
		t.Errorf("got %v", err)
	}
}

// onePair is a pair of sides of one group each.
func onePair(source, destination group) *plan.Pair {
	return &plan.Pair{Source: *source.side(), Destination: *destination.side()}
}

func TestSpans(t *testing.T) {
	scaled := func(g group) group {
		g.components = []geometry.Component{{Name: "k"}, {Name: "k_scale", Entry: 16, Scales: "k"}}
		return g
	}
	compressed := func(g group) group {
		g.components = []geometry.Component{{Name: "c", Entry: 4}}
		return g
	}
	all := group{block: 16}
	w := group{block: 16, window: 32}
	for _, c := range []struct {
		name                string
		source, destination group
		from, to, end       int64
		sf, df              int64
		want                string // "[from, to)" or the error
	}{
		{name: "all", source: all, destination: all, from: 3, to: 77, end: 99, want: "[3, 77)"},
		{name: "window, all held", source: w, destination: w, from: 3, to: 77, end: 77, want: "[3, 77)"},
		{name: "window, source short", source: w, destination: w, from: 0, to: 77, end: 77, sf: 2, want: "[32, 77)"},
		{name: "window, destination shorter", source: w, destination: w, from: 0, to: 79, end: 79, sf: 2, df: 3, want: "[48, 79)"},
		{name: "the token that looks counts", source: w, destination: w, from: 0, to: 79, end: 79, sf: 3, want: "[48, 79)"},
		{name: "one token too few", source: w, destination: w, from: 0, to: 78, end: 78, sf: 3,
			want: `stamp: source table (group 0) is from entry 3 on: tokens 47 to 47 of group "g" are gone, and its window of 32 tokens still reaches them`},
		{name: "many too few", source: w, destination: w, from: 0, to: 78, end: 78, df: 4,
			want: `stamp: destination table (group 0) is from entry 4 on: tokens 47 to 63 of group "g" are gone, and its window of 32 tokens still reaches them`},
		{name: "all gone", source: w, destination: w, from: 0, to: 78, end: 78, df: 5,
			want: `stamp: destination table (group 0) is from entry 5 on: tokens 47 to 77 of group "g" are gone, and its window of 32 tokens still reaches them`},
		{name: "more gone than there is", source: w, destination: w, from: 0, to: 78, end: 78, df: 1 << 40,
			want: `stamp: destination table (group 0) is from entry 1099511627776 on: tokens 47 to 77 of group "g" are gone, and its window of 32 tokens still reaches them`},
		{name: "more gone than numbers hold", source: group{block: 1 << 20, dcp: 4096, window: 32}, destination: w, from: 0, to: 78, end: 78, sf: 1 << 40,
			want: `stamp: source table (group 0) is from entry 1099511627776 on: tokens 47 to 77 of group "g" are gone, and its window of 32 tokens still reaches them`},
		{name: "a suffix needs no more than it moves", source: w, destination: w, from: 64, to: 78, end: 78, sf: 4, want: "[64, 78)"},
		{name: "a prefix out of the window", source: w, destination: w, from: 0, to: 32, end: 79, sf: 3, want: "[0, 0)"},
		{name: "a prefix that reaches the window", source: w, destination: w, from: 0, to: 49, end: 79, sf: 3, want: "[48, 49)"},
		{name: "a prefix that ends before it", source: w, destination: w, from: 5, to: 48, end: 79, sf: 3, want: "[5, 5)"},
		{name: "a window of one token", source: group{block: 16, window: 1}, destination: group{block: 16, window: 1}, from: 0, to: 32, end: 32, sf: 2, want: "[0, 0)"},
		{name: "no window", source: all, destination: all, from: 0, to: 77, end: 77, sf: 1,
			want: `stamp: source table (group 0) is from entry 1 on: tokens 0 to 15 of group "g" are gone, and it has no window: all of them are needed`},
		{name: "no window, a suffix of what is held", source: all, destination: all, from: 16, to: 77, end: 77, sf: 1, want: "[16, 77)"},
		{name: "no window, ring", source: group{block: 16, ring: 3, blocks: 9}, destination: all, from: 15, to: 77, end: 77, sf: 1,
			want: `stamp: source table (group 0) is from entry 1 on: tokens 15 to 15 of group "g" are gone, and it has no window: all of them are needed`},
		{name: "dealt: the last rank's token decides", source: group{block: 4, dcp: 2, window: 20}, destination: w, from: 0, to: 40, end: 40, sf: 2, want: "[16, 40)"},
		{name: "dealt two at a time", source: group{block: 3, dcp: 2, interleave: 2, window: 20}, destination: w, from: 0, to: 40, end: 40, sf: 1, want: "[7, 40)"},
		{name: "scales", source: scaled(all), destination: scaled(all), from: 16, to: 64, end: 99, want: "[16, 64)"},
		{name: "scales to the end", source: scaled(all), destination: scaled(all), from: 16, to: 99, end: 99, want: "[16, 99)"},
		{name: "scales, starts inside", source: scaled(all), destination: scaled(all), from: 17, to: 64, end: 99,
			want: "stamp: spans (group 0) is 17: the transfer would start inside the 16 tokens from 16 on for which component k_scale has one value"},
		{name: "scales, ends inside", source: scaled(all), destination: scaled(all), from: 16, to: 65, end: 99,
			want: "stamp: spans (group 0) is 65: the transfer would end inside the 16 tokens from 64 on for which component k_scale has one value, and the request at 99"},
		{name: "scales, out of the window", source: scaled(w), destination: scaled(w), from: 17, to: 33, end: 79, sf: 3, want: "[17, 17)"},
		{name: "scales, begins with the window", source: scaled(w), destination: scaled(w), from: 17, to: 79, end: 79, sf: 3, want: "[48, 79)"},
		{name: "compressed", source: compressed(all), destination: compressed(all), from: 3, to: 77, end: 99, want: "[3, 77)"},
		{name: "state at the end", source: group{state: true}, destination: group{state: true}, from: 3, to: 99, end: 99, want: "[0, 1)"},
		{name: "state before", source: group{state: true}, destination: group{state: true}, from: 3, to: 98, end: 99, want: "[0, 0)"},
	} {
		spans, err := stamp.Spans(onePair(c.source, c.destination), c.from, c.to, c.end, []int64{c.sf}, []int64{c.df})
		got := errorText(t, err)
		if err == nil {
			got = fmt.Sprintf("[%d, %d)", spans[0].From, spans[0].To)
		}
		if got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.name, got, c.want)
		}
	}
	if spans, err := stamp.Spans(onePair(all, all), 3, 5, 9, nil, nil); err != nil || spans[0] != (stamp.Span{From: 3, To: 5}) {
		t.Errorf("no tables that leave anything out: %v, %v", spans, err)
	}
}

// kept simulates a side: every token of the request is written where its table
// entry leads, and what a ring or a short table has no room for is gone. It
// returns the first token from which on all are there.
func kept(s *plan.Side, entries int, end int64) int64 {
	c, i, block := int64(s.Shard.DCPSize), int64(s.Shard.Interleave), int64(s.Groups[0].Block)
	entry := func(t int64) int64 { return (t/(i*c)*i + t%i) / block }
	last := int64(0)
	for t := range end {
		last = max(last, entry(t))
	}
	there := func(e int64) bool { // the last so many entries
		return e > last-int64(entries)
	}
	if ring := int64(s.Groups[0].Ring); ring > 0 {
		slots := map[int64]int64{}
		for e := range last + 1 {
			slots[e%ring] = e
		}
		there = func(e int64) bool { return slots[e%ring] == e }
	}
	for t := end - 1; t >= 0; t-- {
		if !there(entry(t)) {
			return t + 1
		}
	}
	return 0
}

// checkReach compares Held and Spans of a pair of groups with a simulation,
// token by token.
func checkReach(t testing.TB, source, destination group, sourceEntries, destinationEntries int, from, to, end int64) {
	t.Helper()
	p := onePair(source, destination)
	olds := [2]int64{}
	firsts := [2][]int64{}
	for k, side := range []*plan.Side{&p.Source, &p.Destination} {
		n := [2]int{sourceEntries, destinationEntries}[k]
		if ring := side.Groups[0].Ring; ring > 0 {
			n = ring
		}
		table := make([]uint32, n)
		for i := range table {
			table[i] = uint32(100 + i)
		}
		held, first, err := stamp.Held(side, [][]uint32{table}, end)
		_, need := stamp.Entries(side, 0, 0, end)
		if err != nil {
			if int64(n) >= need || n > 0 && side.Model.Groups[0].Window > 0 {
				t.Fatalf("%+v with %d entries, %d tokens: %v", side.Groups[0], n, end, err)
			}
			return
		}
		firsts[k], olds[k] = first, kept(side, n, end)
		for e := first[0]; e < need; e++ { // each entry has its block
			var want uint32
			switch {
			case side.Groups[0].Ring > 0:
				want = table[e%int64(n)]
			case int64(n) < need:
				want = table[e-(need-int64(n))]
			default:
				want = table[e]
			}
			if held[0][e-first[0]] != want {
				t.Fatalf("%+v with %d entries, %d tokens: entry %d is block %d, want %d", side.Groups[0], n, end, e, held[0][e-first[0]], want)
			}
		}
	}
	group := &p.Source.Model.Groups[0]
	need := from
	if group.Window > 0 {
		need = max(from, end-int64(group.Window)+1)
	}
	var want string // the side at fault
	unit := int64(1)
	for _, c := range group.Components {
		if c.Scales != "" {
			unit = int64(c.EntryTokens())
		}
	}
	moved := stamp.Span{From: from, To: from}
	for tok := from; tok < to && want == ""; tok++ { // what both hold from here on
		if tok >= olds[0] && tok >= olds[1] {
			moved = stamp.Span{From: tok, To: to}
			break
		}
	}
	switch {
	case need < to && olds[0] > need:
		want = "source table"
	case need < to && olds[1] > need:
		want = "destination table"
	case !moved.Empty() && (moved.From%unit != 0 || to%unit != 0 && to != end):
		want = "spans"
	}
	spans, err := stamp.Spans(p, from, to, end, firsts[0], firsts[1])
	var e *stamp.Error
	switch {
	case want != "":
		if !errors.As(err, &e) || e.Field != want {
			t.Fatalf("%+v (%d) -> %+v (%d), [%d, %d) of %d: got %v and %v, want an error of the %s", source, sourceEntries, destination, destinationEntries, from, to, end, spans, err, want)
		}
	case err != nil || spans[0] != moved:
		t.Fatalf("%+v (%d) -> %+v (%d), [%d, %d) of %d: got %v and %v, want %v", source, sourceEntries, destination, destinationEntries, from, to, end, spans, err, moved)
	}
}

// reach draws a case for checkReach from small numbers.
func reach(t testing.TB, n func(int) int) {
	unit := []int{1, 1, 2, 4}[n(4)]
	window := []int{0, 1, 5, 8, 20}[n(5)]
	var components []geometry.Component
	if unit > 1 {
		components = []geometry.Component{{Name: "k"}, {Name: "s", Entry: unit, Scales: "k"}}
	}
	one := func() (group, int) {
		g := group{dcp: 1 + n(4), interleave: unit * (1 + n(3)), block: unit * (1 + n(5)), window: window, components: components}
		if g.ring = n(8) - 2; g.ring < 0 {
			g.ring = 0
		}
		return g, n(24)
	}
	source, se := one()
	destination, de := one()
	end := int64(1 + n(70))
	from := int64(n(int(end)))
	if n(3) == 0 {
		from -= from % int64(unit)
	}
	checkReach(t, source, destination, se, de, from, from+1+int64(n(int(end-from))), end)
}

func TestHeldAndSpansAgainstASimulation(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 60000 {
		reach(t, rng.IntN)
	}
}

func FuzzHeldAndSpans(f *testing.F) {
	f.Add([]byte("what a table leaves out"))
	f.Add([]byte{2, 3, 1, 1, 3, 4, 0, 9, 1, 2, 3, 0, 20, 60, 3, 1, 40})
	f.Fuzz(func(t *testing.T, b []byte) {
		reach(t, func(n int) int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0]) % n
			b = b[1:]
			return v
		})
	})
}
