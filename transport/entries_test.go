package transport

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// Entries count in a side's own table: from the entries on that the request
// leaves out, for what the request moves of the group.
func TestEntriesAreThoseOfTheRequestsTable(t *testing.T) {
	model := geometry.Model{Groups: []geometry.Group{{Name: "all"}, {Name: "window", Window: 64}, {Name: "state", State: true}}}
	side := func(block int, dcp int) plan.Side {
		s := plan.Side{Model: model, Shard: shard.Spec{DCPSize: dcp, Interleave: 1}, Groups: []plan.Pool{{Block: block}, {Block: block}, {Block: 1}}}
		if dcp > 1 { // a state has no tokens to deal
			s.Groups[2].Shard = &shard.Spec{DCPSize: 1, Interleave: 1}
		}
		return s
	}
	p := &plan.Pair{Source: side(16, 1), Destination: side(8, 2)}
	for _, c := range []struct {
		name                string
		r                   stamp.Request
		source, destination string
	}{
		{"whole tables", stamp.Request{From: 20, To: 100}, "[1 7] [1 7] [0 1]", "[1 7] [1 7] [0 1]"},
		{"from the start", stamp.Request{To: 1}, "[0 1] [0 1] [0 1]", "[0 1] [0 1] [0 1]"},
		{"spans of each group", stamp.Request{From: 20, To: 100, Spans: []stamp.Span{{From: 32, To: 48}, {From: 99, To: 100}, {}}}, "[2 3] [6 7] [0 0]", "[2 3] [6 7] [0 0]"},
		{"entries left out", stamp.Request{From: 20, To: 100, Spans: []stamp.Span{{From: 32, To: 48}, {From: 64, To: 100}, {To: 1}}, SourceFirst: []int64{2, 3, 0}, DestinationFirst: []int64{0, 4, 0}},
			"[0 1] [1 4] [0 1]", "[2 3] [0 3] [0 1]"},
		{"an empty span needs none, whatever is left out", stamp.Request{From: 20, To: 100, Spans: []stamp.Span{{From: 20, To: 100}, {From: 20, To: 20}, {}}, SourceFirst: []int64{1, 9, 0}},
			"[0 6] [0 0] [0 0]", "[1 7] [0 0] [0 0]"},
	} {
		for s, want := range map[Side]string{Source: c.source, Destination: c.destination} {
			got := ""
			for g := range model.Groups {
				lo, hi := Entries(p, &c.r, s, g)
				if g > 0 {
					got += " "
				}
				got += fmt.Sprintf("[%d %d]", lo, hi)
			}
			if got != want {
				t.Errorf("%s, side %d: %s, want %s", c.name, s, got, want)
			}
		}
	}
}
