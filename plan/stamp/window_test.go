package stamp

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
)

// narrow makes a stamper of one row of one rank, with a group of one layer for
// each block size.
func narrow(t *testing.T, blocks ...int) *Stamper {
	side := plan.Side{Engine: "e", Model: geometry.Model{Name: "m", Layers: len(blocks)}, Shard: shard.Spec{TP: 1, Stages: []int{len(blocks)}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}, Ranks: make([][]*layout.Layout, 1)}
	spec := layout.Spec{Order: []layout.Entry{{Item: layout.Item{Axis: geometry.Block}}, {Item: layout.Item{Axis: geometry.Token}}, {Item: layout.Item{Axis: geometry.Dim}}}}
	var as []plan.Assignment
	for g, block := range blocks {
		group := geometry.Group{Name: string(rune('a' + g)), Layers: []int{g}, Components: []geometry.Component{{Name: "k", Dim: 2, DType: geometry.BF16}}}
		l, err := spec.Resolve(layout.Extent{Layers: group.Layers, Blocks: 4, Tokens: block, Heads: []int{0}, Components: group.Components})
		if err != nil {
			t.Fatal(err)
		}
		side.Model.Groups = append(side.Model.Groups, group)
		side.Groups = append(side.Groups, plan.Pool{Block: block, Blocks: 4})
		side.Ranks[0] = append(side.Ranks[0], l)
		as = append(as, plan.Assignment{Group: g, Components: 1, Layers: plan.Range{From: 0, To: len(blocks)}, Heads: plan.Range{From: 0, To: 1}})
	}
	p := &plan.Pair{Source: side, Destination: side}
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	proven, err := proof.Check(p, pl)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(proven)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// length walks the list both ways.
func (w *windows) length(t *testing.T) int {
	n, back := 0, 0
	for e := w.newest; e != nil; e = e.next {
		n++
		if w.entries[e.key] != e {
			t.Fatalf("window %+v is listed and not kept", e.key)
		}
	}
	for e := w.oldest; e != nil; e = e.prev {
		back++
	}
	if n != back || n != len(w.entries) {
		t.Fatalf("%d windows forward, %d backward, %d kept", n, back, len(w.entries))
	}
	return n
}

func TestWindowsAreBounded(t *testing.T) {
	s := narrow(t, 2048)
	first, err := s.windowed(0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(2); i < 2000; i++ {
		if _, err := s.windowed(0, 0, i); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 { // what is used stays
			if again, err := s.windowed(0, 0, 1); err != nil || again != first {
				t.Fatalf("after %d windows the first is gone (%v)", i, err)
			}
		}
	}
	if n := s.windows.length(t); n != maxWindows {
		t.Errorf("%d windows kept, want %d", n, maxWindows)
	}
	before := s.windows.bytes
	if before < maxWindows*512 || before > maxWindowBytes {
		t.Errorf("%d bytes counted", before)
	}
	// One that has gone is made again and moves the same.
	p, err := s.windowed(0, 0, 2)
	if err != nil || p.plan.Runs[0].Total() != 8 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWindowsAreBoundedInBytes(t *testing.T) {
	w := windows{entries: map[window]*entry{}}
	for i := range int64(40) {
		w.count(w.get(window{0, 0, i}), 1<<20)
	}
	if n := w.length(t); n != 32 || w.bytes != 32<<20 {
		t.Errorf("%d windows of %d bytes", n, w.bytes)
	}
	// A single one that is too large is kept while it is the only one.
	w.count(w.get(window{1, 0, 1}), 100<<20)
	if n := w.length(t); n != 1 || w.bytes != 100<<20 {
		t.Errorf("%d windows of %d bytes", n, w.bytes)
	}
	w.count(w.get(window{1, 0, 2}), 1)
	if n := w.length(t); n != 1 || w.bytes != 1 {
		t.Errorf("%d windows of %d bytes", n, w.bytes)
	}
}

// That a window cannot be planned is remembered, too.
func TestRefusedWindowsAreKept(t *testing.T) {
	s := narrow(t, 2048)
	_, first := s.windowed(0, 5, 2049)
	_, again := s.windowed(0, 5, 2049)
	if first == nil || first != again {
		t.Errorf("got %v, then %v", first, again)
	}
}

func TestParts(t *testing.T) {
	s := narrow(t, 2048)
	for _, c := range []struct {
		from, to int64
		want     [][4]int64 // first and last token of the window, periods
	}{
		{0, 2048, [][4]int64{{0, 2048, 0, 1}}},
		{2048, 8192, [][4]int64{{0, 2048, 1, 4}}},
		{0, 7, [][4]int64{{0, 7, 0, 1}}},
		{5, 7, [][4]int64{{5, 7, 0, 1}}},
		{5, 2048, [][4]int64{{5, 2048, 0, 1}}},
		{2053, 2055, [][4]int64{{5, 7, 1, 2}}},
		{5, 2050, [][4]int64{{5, 2048, 0, 1}, {0, 2, 1, 2}}},
		{5, 4100, [][4]int64{{5, 2048, 0, 1}, {0, 2048, 1, 2}, {0, 4, 2, 3}}},
		{2048, 4100, [][4]int64{{0, 2048, 1, 2}, {0, 4, 2, 3}}},
	} {
		var parts [3]part
		n, err := s.parts(0, Span{c.from, c.to}, &parts)
		if err != nil || n != len(c.want) {
			t.Fatalf("[%d, %d): %d parts, %v", c.from, c.to, n, err)
		}
		for i, w := range c.want {
			g := parts[i].plan.plan.Groups[0]
			if got := [4]int64{g.From, g.To, parts[i].from, parts[i].to}; got != w {
				t.Errorf("[%d, %d): part %d is %v, want %v", c.from, c.to, i, got, w)
			}
		}
	}
}

// Groups follow one another, each with its own table and period.
func TestGroups(t *testing.T) {
	s := narrow(t, 8, 4)
	req := &Request{Plan: s.proven.Digest(), Source: [][]uint32{{3, 1}, {2, 0, 1}}, Destination: [][]uint32{{0, 2}, {3, 1, 2}}, From: 2, To: 12}
	if err := s.Validate(req); err != nil {
		t.Fatal(err)
	}
	bytes, segments, err := s.Totals(req, EdgeKey{})
	if err != nil || bytes != 80 || segments != 5 {
		t.Errorf("%d bytes in %d segments, %v", bytes, segments, err)
	}
	type step struct {
		group                      int
		source, destination, bytes int64
	}
	want := []step{{0, 104, 8, 24}, {0, 32, 64, 16}, {1, 40, 56, 8}, {1, 0, 16, 32}} // the last two joined
	var got []step
	var c Cursor
	if err := s.Cursor(req, EdgeKey{}, &c); err != nil {
		t.Fatal(err)
	}
	for seg := (Segment{}); c.Next(&seg); {
		got = append(got, step{c.Group(), seg.SourceOffset, seg.DestinationOffset, seg.Run.Bytes * seg.Blocks})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	req.Source[1] = req.Source[1][:2]
	if err := s.Validate(req); err == nil || err.Error() != "stamp: source table (group 1) is 2 entries: they hold 8 tokens, 12 are needed" {
		t.Errorf("got %v", err)
	}
}
