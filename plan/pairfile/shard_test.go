package pairfile_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan/pairfile"
)

// sourceShard is the shard of a file whose source has the given one.
func sourceShard(t *testing.T, text string) shard.Spec {
	t.Helper()
	return parse(t, strings.Replace(example, "shard: {tp: 2, pp: [3, 1]}", "shard: {"+text+"}", 1)).Source.Shard
}

// Ranks of prefill context parallelism, counted by hand: of the grid pp x pcp x
// tp x dcp, dcp innermost, and the tokens of cp rank pcp * dcp size + dcp.
func TestPCP(t *testing.T) {
	at := func(pp, tp, dcp int) shard.Place { return shard.Place{PP: pp, TP: tp, DCP: dcp} }
	for _, c := range []struct {
		shard string
		size  int
		want  []shard.Place
	}{
		{"tp: 2, pcp: 2, dcp: {size: 2, interleave: 4}", 4, []shard.Place{
			at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(0, 1, 1), at(0, 0, 2), at(0, 0, 3), at(0, 1, 2), at(0, 1, 3)}},
		{"tp: 2, pcp: 2", 2, []shard.Place{at(0, 0, 0), at(0, 1, 0), at(0, 0, 1), at(0, 1, 1)}},
		{"tp: 2, pcp: 2, rank_order: [tp]", 2, []shard.Place{at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(0, 1, 1)}},
		{"pcp: 2, dcp: {size: 2}, rank_order: [dcp, pcp]", 4, []shard.Place{at(0, 0, 0), at(0, 0, 2), at(0, 0, 1), at(0, 0, 3)}},
		{"pp: 2, pcp: 2, dcp: {size: 3}, rank_order: [pcp, pp]", 6, []shard.Place{
			at(0, 0, 0), at(0, 0, 1), at(0, 0, 2), at(1, 0, 0), at(1, 0, 1), at(1, 0, 2),
			at(0, 0, 3), at(0, 0, 4), at(0, 0, 5), at(1, 0, 3), at(1, 0, 4), at(1, 0, 5)}},
	} {
		s := sourceShard(t, c.shard)
		if s.DCPSize != c.size || !reflect.DeepEqual(s.Places, c.want) {
			t.Errorf("%s: %d context-parallel ranks at %v, want %d at %v", c.shard, s.DCPSize, s.Places, c.size, c.want)
		}
	}
	// One pcp rank is none, also where the order names it.
	if s := sourceShard(t, "tp: 2, pcp: 1, dcp: {size: 2}, rank_order: [pcp, tp]"); s.Places != nil || s.DCPSize != 2 || s.Order != [3]shard.Grid{shard.TP, shard.PP, shard.DCP} {
		t.Errorf("pcp 1: %+v", s)
	}
}

// With prefill and decode context parallelism together, token t lies on cp rank
// (t / I) mod (pcp * dcp), at the local place that this gives.
func TestPCPTokens(t *testing.T) {
	f := parse(t, strings.Replace(example, "shard: {tp: 2, pp: [3, 1]}", "shard: {tp: 2, pcp: 2, dcp: {size: 2, interleave: 4}}", 1))
	p, _, err := f.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	const pcp, dcp, tp, interleave = 2, 2, 2, 4
	for rank := range pcp * tp * dcp {
		cp := rank/(tp*dcp)*dcp + rank%dcp
		part := p.Source.Part(0, rank)
		for token := range int64(64) {
			local, held := part.Local(token)
			if want := token/interleave%(pcp*dcp) == int64(cp); held != want {
				t.Fatalf("rank %d holds token %d: %v, want %v", rank, token, held, want)
			}
			if want := token/(interleave*pcp*dcp)*interleave + token%interleave; held && local != want {
				t.Errorf("rank %d has token %d at %d, want %d", rank, token, local, want)
			}
		}
		if got, want := fmt.Sprint(part.Heads[0]), fmt.Sprint([][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}[rank/dcp%tp]); got != want {
			t.Errorf("rank %d holds heads %s, want %s", rank, got, want)
		}
	}
}

func TestRanks(t *testing.T) {
	s := sourceShard(t, "tp: 2, dcp: {size: 2}, ranks: [{tp: 0, dcp: 0}, {pp: 0, tp: 1, dcp: 1}, {tp: 1, dcp: 0}, {tp: 0, dcp: 1}]")
	want := []shard.Place{{}, {TP: 1, DCP: 1}, {TP: 1}, {DCP: 1}}
	if !reflect.DeepEqual(s.Places, want) {
		t.Errorf("places %v, want %v", s.Places, want)
	}
}

// The canonical text writes a grid of pcp ranks as one, whichever way it was
// given, and other places rank by rank.
func TestMarshalPlaces(t *testing.T) {
	for _, c := range []struct{ shard, want string }{
		{"tp: 2, pcp: 2, dcp: {size: 2, interleave: 4}", "tp: 2, pp: [4], pcp: 2, dcp: {size: 2, interleave: 4}, rank_order: [pp, pcp, tp, dcp]"},
		{"tp: 2, pcp: 2", "tp: 2, pp: [4], pcp: 2, dcp: {size: 1, interleave: 1}, rank_order: [pp, pcp, tp, dcp]"},
		{"tp: 2, pcp: 2, dcp: {size: 2}, rank_order: [dcp, tp, pcp]", "tp: 2, pp: [4], pcp: 2, dcp: {size: 2, interleave: 1}, rank_order: [pp, dcp, tp, pcp]"},
		{"tp: 2, dcp: {size: 2}, ranks: [{tp: 0, dcp: 0}, {tp: 1, dcp: 0}, {tp: 0, dcp: 1}, {tp: 1, dcp: 1}]", "tp: 2, pp: [4], pcp: 2, dcp: {size: 1, interleave: 1}, rank_order: [pp, pcp, tp, dcp]"},
		{"tp: 2, dcp: {size: 2}, ranks: [{tp: 0, dcp: 0}, {tp: 1, dcp: 1}, {tp: 1, dcp: 0}, {tp: 0, dcp: 1}]",
			"tp: 2, pp: [4], dcp: {size: 2, interleave: 1}, ranks: [{tp: 0, dcp: 0}, {tp: 1, dcp: 1}, {tp: 1, dcp: 0}, {tp: 0, dcp: 1}]"},
		{"ranks: [{}]", "tp: 1, pp: [4], dcp: {size: 1, interleave: 1}, ranks: [{}]"},
	} {
		f := parse(t, strings.Replace(example, "shard: {tp: 2, pp: [3, 1]}", "shard: {"+c.shard+"}", 1))
		if got := string(pairfile.Marshal(f)); !strings.Contains(got, "  engine: prefill\n  shard: {"+c.want+"}\n") {
			t.Errorf("%s: no %s in\n%s", c.shard, c.want, got)
		}
		roundTrip(t, f)
	}
}
