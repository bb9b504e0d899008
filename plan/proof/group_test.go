package proof_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// TestEntriesOfWindows counts what a window moves of entries of several tokens:
// of a compressed cache those whose last token it holds, of a scale those whose
// first.
func TestEntriesOfWindows(t *testing.T) {
	g := geometry.Group{Components: []geometry.Component{
		{Name: "k", Dim: 1, DType: geometry.FP8E4M3},
		{Name: "k_scale", Dim: 10, DType: geometry.FP8E4M3, Entry: 4, Scales: "k"},
		{Name: "far", Dim: 100, DType: geometry.FP8E4M3, Entry: 4},
	}}
	p := &plan.Pair{Source: engine(t, "a", g, 1, 8, sample.Order("block token dim")), Destination: engine(t, "b", g, 1, 16, sample.Order("token block dim"))}
	as := []plan.Assignment{box(g, "k", 0, 0, 0, 1), box(g, "k_scale", 0, 0, 0, 1), box(g, "far", 0, 0, 0, 1)}
	for _, c := range []struct {
		from, to int64
		want     int64 // tokens, scales times 10, compressed entries times 100
	}{
		{0, 16, 16 + 40 + 400},
		{0, 1, 1 + 10 + 0},
		{0, 3, 3 + 10 + 0},
		{0, 4, 4 + 10 + 100},
		{4, 7, 3 + 10 + 0},
		{4, 8, 4 + 10 + 100},
		{4, 9, 5 + 20 + 100},
		{8, 16, 8 + 20 + 200},
	} {
		pl, err := build.Build(p, as, []build.Window{{From: c.from, To: c.to}}, plan.DefaultBudget())
		if err != nil {
			t.Fatal(err)
		}
		proven, err := proof.Check(p, pl)
		if err != nil || proven.Elements() != c.want {
			t.Errorf("tokens %d to %d: %d elements (%v), want %d", c.from, c.to, proven.Elements(), err, c.want)
		}
		// The plan of one window is none of another: the due is not what the
		// plan says.
		for _, other := range []struct{ from, to int64 }{{0, 16}, {0, 1}, {0, 3}, {0, 4}, {4, 7}, {4, 8}, {4, 9}, {8, 16}} {
			if other.from == c.from && other.to == c.to {
				continue
			}
			moved := clone(pl)
			moved.Groups[0].From, moved.Groups[0].To = other.from, other.to
			if _, err := proof.Check(p, moved); err == nil {
				t.Errorf("a plan of tokens %d to %d was accepted for %d to %d", c.from, c.to, other.from, other.to)
			}
		}
	}
}

// TestGroupFaults holds the words of faults that only groups of states and
// entries of several tokens can have.
func TestGroupFaults(t *testing.T) {
	tokens := geometry.Group{Components: []geometry.Component{{Name: "k", Dim: 4, DType: geometry.FP8E4M3}, {Name: "k_scale", Dim: 1, DType: geometry.FP32, Entry: 4, Scales: "k"}}}
	inline := sample.Order("block component token dim")
	states := geometry.Group{State: true, Components: []geometry.Component{{Name: "x", Heads: 4, Dim: 2, DType: geometry.FP8E4M3}, {Name: "y", Heads: 2, Dim: 8, DType: geometry.FP8E4M3}}}
	slots := sample.Order("slot component channel dim")
	whole := func(bytes int64, period plan.Period, pieces ...plan.Piece) *plan.Plan {
		return &plan.Plan{Groups: []plan.Period{period}, Edges: []plan.Edge{{To: 1}}, Pieces: pieces, Runs: []plan.Run{{Bytes: bytes}}}
	}
	block := plan.Period{Tokens: 8, To: 8, SourceBlocks: 1, DestinationBlocks: 1}
	eight := plan.Piece{Step: 1, Count: 8, SourceStep: 1, DestinationStep: 1}
	slot := plan.Period{Tokens: 1, To: 1, SourceBlocks: 1, DestinationBlocks: 1}
	two := func(pl *plan.Plan, runs ...plan.Run) *plan.Plan {
		pl.Runs = runs
		pl.Edges[0].To = len(runs)
		return pl
	}
	for _, c := range []struct {
		name string
		g    geometry.Group
		pl   *plan.Plan
		want string
	}{
		{"a block with its scales at once", tokens, whole(40, block, eight),
			"proof: malformed at destination rank 0: k_scale layer 0 head 0 token 0 dim 0: entries of 4 tokens move with entries of 1, which piece 0 counts (run 0)"},
		{"rows and scales", tokens, two(whole(0, block, eight, plan.Piece{Step: 1, Count: 2, SourceStep: 1, DestinationStep: 1}),
			plan.Run{Bytes: 32}, plan.Run{Piece: 1, Component: 1, SourceOffset: 32, DestinationOffset: 32, Bytes: 8}), ""},
		{"scales counted as tokens", tokens, two(whole(0, block, eight),
			plan.Run{Bytes: 32}, plan.Run{Component: 1, SourceOffset: 32, DestinationOffset: 32, Bytes: 8}),
			"proof: malformed at destination rank 0: piece 0 is not true: its tokens lie outside the window (run 1)"},
		{"scales are missing", tokens, whole(32, block, eight),
			"proof: gap at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 is not written"},
		{"the second scale is missing", tokens, two(whole(0, block, eight, plan.Piece{Count: 1}),
			plan.Run{Bytes: 32}, plan.Run{Piece: 1, Component: 1, SourceOffset: 32, DestinationOffset: 32, Bytes: 4}),
			"proof: gap at destination rank 0: k_scale layer 0 head 0 token 4 dim 0 is not written"},
		{"scales swapped", tokens, two(whole(0, block, eight, plan.Piece{Step: 1, Count: 2, SourceStep: 1, DestinationStep: 1}),
			plan.Run{Bytes: 32}, plan.Run{Piece: 1, Component: 1, SourceOffset: 36, DestinationOffset: 32, Bytes: 4, Loops: []plan.Loop{{Count: 2, SourceStride: -4, DestinationStride: 4}}}),
			"proof: swap at destination rank 0: k_scale layer 0 head 0 token 0 dim 0 gets k_scale layer 0 head 0 token 4 dim 0 of source rank 0 (run 1)"},
		{"a window inside a scale", tokens, whole(32, plan.Period{Tokens: 8, From: 2, To: 8, SourceBlocks: 1, DestinationBlocks: 1}, eight),
			"proof: malformed: the window of group 0 starts at token 2, inside an entry of 4 tokens of component k_scale, which moves with the first of them"},
		{"a state", states, whole(24, slot, plan.Piece{Step: 1, Count: 1}), ""},
		{"a state of two tokens", states, whole(24, plan.Period{Tokens: 2, To: 2, SourceBlocks: 2, DestinationBlocks: 2}, plan.Piece{Step: 1, Count: 1}),
			"proof: malformed: the period of group 0 has 2 tokens, a state has none and counts as one"},
		{"a state that the window leaves out", states, whole(24, plan.Period{Tokens: 1, SourceBlocks: 1, DestinationBlocks: 1}, plan.Piece{Step: 1, Count: 1}),
			"proof: malformed at destination rank 0: piece 0 is not true: its tokens lie outside the window (run 0)"},
		{"channels left out", states, whole(20, slot, plan.Piece{Step: 1, Count: 1}),
			"proof: gap at destination rank 0: y layer 0 channel 1 dim 4 is not written"},
		{"channels swapped", states, two(whole(0, slot, plan.Piece{Step: 1, Count: 1}), plan.Run{SourceOffset: 2, Bytes: 2}, plan.Run{DestinationOffset: 2, Bytes: 2}, plan.Run{SourceOffset: 4, DestinationOffset: 4, Bytes: 20}),
			"proof: swap at destination rank 0: x layer 0 channel 0 dim 0 gets x layer 0 channel 1 dim 0 of source rank 0 (run 0)"},
		{"another slot", states, whole(25, slot, plan.Piece{Step: 1, Count: 1}),
			`proof: bounds at destination rank 0: it writes byte 24 of region "layer0", which is of another slot (run 0)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			order, size := inline, 8
			if c.g.State {
				order, size = slots, 1
			}
			p := &plan.Pair{Source: engine(t, "a", c.g, 1, size, order), Destination: engine(t, "b", c.g, 1, size, order)}
			c.pl.Pair = p.Digest()
			_, err := proof.Check(p, c.pl)
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if judgeable(c.pl, p) && judge(p, c.pl, sample.New(2).Rand).right != (err == nil) {
				var f *proof.Fault
				if !errors.As(err, &f) || f.Kind != proof.Malformed {
					t.Errorf("%v, but the twin says otherwise", err)
				}
			}
		})
	}
}

// TestHeadsOfEachComponent moves two components with one run, of which the
// source rank holds the heads of one only.
func TestHeadsOfEachComponent(t *testing.T) {
	g := geometry.Group{Components: []geometry.Component{{Name: "one", Heads: 1, Dim: 4, DType: geometry.BF16}, {Name: "two", Heads: 2, Dim: 4, DType: geometry.BF16}}}
	order := sample.Order("block token component head dim")
	p := &plan.Pair{Source: engine(t, "a", g, 2, 8, order), Destination: engine(t, "b", g, 2, 8, order)}
	as := []plan.Assignment{box(g, "one", 0, 0, 0, 1), box(g, "two", 0, 0, 0, 1), box(g, "one", 1, 1, 0, 1), box(g, "two", 1, 1, 1, 2)}
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	pl.Runs = pl.Runs[:1] // of each rank one, for both components
	pl.Runs[0].Bytes, pl.Runs[0].Loops = 8*16, nil
	pl.Runs = append(pl.Runs, pl.Runs[0])
	pl.Runs[1].Edge = 1
	pl.Edges = pl.Edges[:2]
	pl.Edges[0].To, pl.Edges[1].From, pl.Edges[1].To = 1, 1, 2
	if _, err := proof.Check(p, pl); err != nil {
		t.Fatal(err)
	}
	pl.Edges[1].Source = 0
	_, err = proof.Check(p, pl)
	const want = "proof: swap at destination rank 1: two layer 0 head 1 token 0 dim 0 gets two layer 0 head 0 token 0 dim 0 of source rank 0 (run 1)"
	if fmt.Sprint(err) != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
