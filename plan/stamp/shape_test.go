package stamp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/plan/stamp"
)

// drawn is a random pair of any shape with its stamper.
type drawn struct {
	m *sample.Maker
	p *plan.Pair
	s *stamp.Stamper
	// unit is a number of tokens that no scale of several tokens is parted at.
	unit int64
}

// draw makes a pair of any shape, some of its groups with windows and rings;
// false where elements that share a byte cannot be moved.
func draw(t testing.TB, seed uint64) (*drawn, bool) {
	t.Helper()
	m := sample.New(seed)
	d := &drawn{m: m, p: m.Pair(), unit: 1}
	for g := range d.p.Source.Groups {
		group := &d.p.Source.Model.Groups[g]
		for _, c := range group.Components {
			if c.Scales != "" {
				d.unit = int64(sample.LCM(int(d.unit), c.EntryTokens()))
			}
		}
		if group.State || !m.Chance(60) {
			continue
		}
		pool := &d.p.Destination.Groups[g]
		window := 1 + m.IntN(int(stamp.Capacity(pool.Blocks, pool.Block, *d.p.Destination.ShardOf(g))))
		for _, s := range []*plan.Side{&d.p.Source, &d.p.Destination} {
			s.Model.Groups[g].Window = window
			if m.Chance(40) {
				s.Groups[g].Ring = (s.Groups[g].Blocks + 1 + m.IntN(s.Groups[g].Blocks)) / 2
			}
		}
	}
	as := m.Assign(d.p)
	pl, err := build.Build(d.p, as, nil, plan.DefaultBudget())
	if halves(d.p, err) {
		return nil, false
	}
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	proven, err := proof.Check(d.p, pl)
	if err != nil {
		t.Fatalf("seed %d: %+v", seed, err)
	}
	if d.s, err = stamp.New(proven); err != nil {
		t.Fatal(err)
	}
	return d, true
}

// longest is a number of tokens that the destination's pools can mostly hold.
func (d *drawn) longest() int64 {
	out := int64(300)
	for g, pool := range d.p.Destination.Groups {
		if group := &d.p.Source.Model.Groups[g]; !group.State && (group.Window == 0 || d.m.Chance(20)) {
			out = min(out, stamp.Capacity(pool.Blocks, pool.Block, *d.p.Destination.ShardOf(g)))
		}
	}
	return out
}

// tables deals a side's block tables for a request of end tokens, shorter ones
// where the window allows; false where the pools are too small.
func (d *drawn) tables(s *plan.Side, end int64) ([][]uint32, bool) {
	out := make([][]uint32, len(s.Groups))
	for g := range out {
		group, pool := &s.Model.Groups[g], &s.Groups[g]
		_, need := stamp.Entries(s, g, 0, end)
		n := int(need)
		switch {
		case group.State:
			n = 1
		case pool.Ring > 0:
			n = pool.Ring
		case group.Window > 0 && d.m.Chance(70):
			lo, hi := stamp.Entries(s, g, max(0, end-int64(group.Window)), end)
			n = min(int(hi-lo)+d.m.IntN(3), n)
		}
		if n <= pool.Blocks && (s == &d.p.Destination || d.m.Chance(50)) {
			out[g] = ids(d.m.Rand, n, pool.Blocks)
			continue
		}
		if s == &d.p.Destination {
			return nil, false
		}
		for range n { // a source block may stand anywhere
			out[g] = append(out[g], uint32(d.m.IntN(pool.Blocks)))
		}
	}
	return out, true
}

// request draws a request of end tokens; false where a window is not held.
func (d *drawn) request(t testing.TB, end int64) (*stamp.Request, bool) {
	t.Helper()
	source, ok1 := d.tables(&d.p.Source, end)
	destination, ok2 := d.tables(&d.p.Destination, end)
	if !ok1 || !ok2 {
		return nil, false
	}
	r := &stamp.Request{ID: "r", Plan: d.s.Proven().Digest()}
	var err error
	if r.Source, r.SourceFirst, err = stamp.Held(&d.p.Source, source, end); err != nil {
		t.Fatal(err)
	}
	if r.Destination, r.DestinationFirst, err = stamp.Held(&d.p.Destination, destination, end); err != nil {
		t.Fatal(err)
	}
	return r, d.part(t, r, d.m.Int64N(end)/d.unit*d.unit, end, end)
}

// part makes a request that of tokens [from, to); false where a window is not
// held.
func (d *drawn) part(t testing.TB, r *stamp.Request, from, to, end int64) bool {
	t.Helper()
	spans, err := stamp.Spans(d.p, from, to, end, r.SourceFirst, r.DestinationFirst)
	var e *stamp.Error
	if errors.As(err, &e) && strings.HasSuffix(e.Field, "table") {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	r.From, r.To, r.Spans = from, to, spans
	return true
}

// moves lists what a request moves, and compares the totals; false where it
// would cut a byte that two elements share.
func (d *drawn) moves(t testing.TB, r *stamp.Request) ([]stamp.Copy, bool) {
	t.Helper()
	if err := d.s.Validate(r); err != nil {
		t.Fatalf("%v\n%+v", err, r)
	}
	copies, err := d.s.Expand(r)
	if halves(d.p, err) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	var listed, total int64
	for _, c := range copies {
		listed += c.Bytes
	}
	edges := d.s.Edges(r)
	for _, e := range edges {
		n, _, err := d.s.Totals(r, e)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	oneStream(t, d.s, r, edges[d.m.IntN(len(edges))])
	if total != listed {
		t.Fatalf("totals say %d bytes, the copies are %d", total, listed)
	}
	return copies, true
}

// halves reports whether an error is that elements which share a byte are moved
// apart.
func halves(p *plan.Pair, err error) bool {
	var unaligned *build.Unaligned
	return errors.As(err, &unaligned) && strings.Contains(p.Source.Model.Text(), "fp4")
}

// fixtureDue is what a request should move, in the judge's words.
func fixtureDue(p *plan.Pair, r *stamp.Request) *fixture.Due {
	due := &fixture.Due{Source: r.Source, Destination: r.Destination, SourceFirst: r.SourceFirst, DestinationFirst: r.DestinationFirst, Layers: r.Layers}
	for g := range p.Source.Groups {
		span := r.Span(p, g)
		due.Spans = append(due.Spans, [2]int64{span.From, span.To})
	}
	return due
}

// judge compares a request's copies with what they should be, element by
// element.
func judge(p *plan.Pair, r *stamp.Request, copies []stamp.Copy) error {
	moves := make([]fixture.Move, len(copies))
	for i, c := range copies {
		moves[i] = fixture.Move(c)
	}
	return fixture.Judge(p, fixtureDue(p, r), moves)
}

// Requests of pairs of every shape, with tables that leave entries out, rings,
// states and scales: every element that is due comes once from where it should,
// and in pieces of any cut the same.
func TestRandomShapes(t *testing.T) {
	const first = 1
	seeds := 500
	if testing.Short() {
		seeds = 150
	}
	count := map[string]int{}
	for seed := uint64(first); seed < uint64(first+seeds); seed++ {
		d, ok := draw(t, seed)
		if !ok {
			count["half bytes apart"]++
			continue
		}
		for range 4 {
			end := 1 + d.m.Int64N(d.longest())
			r, ok := d.request(t, end)
			if !ok {
				count["not held"]++
				continue
			}
			count["requests"]++
			for f := range d.m.Has {
				count[string(f)]++
			}
			for g := range d.p.Source.Groups {
				if r.SourceFirst[g] > 0 {
					count["source leaves out"]++
				}
				if r.DestinationFirst[g] > 0 {
					count["destination leaves out"]++
				}
				if d.p.Source.Groups[g].Ring > 0 && r.SourceFirst[g] > 0 {
					count["unrolled"]++
				}
				if span := r.Spans[g]; !span.Empty() && span.From > r.From && !d.p.Source.Model.Groups[g].State {
					count["out of the window"]++
				}
			}
			copies, ok := d.moves(t, r)
			if !ok {
				count["half bytes apart"]++
				continue
			}
			if err := judge(d.p, r, copies); err != nil {
				t.Fatalf("seed %d: %v\n%+v\n%s%s", seed, err, r, d.p.Text(), d.s.Proven().Plan().Text(d.p))
			}
			whole := *r
			var all []stamp.Copy
			cuts := []int64{r.From, r.To}
			for range 1 + d.m.IntN(4) {
				if c := d.m.Int64N(r.To) / d.unit * d.unit; c > r.From {
					cuts = append(cuts, c)
				}
			}
			slices.Sort(cuts)
			for i, to := range slices.Compact(cuts)[1:] {
				if !d.part(t, r, cuts[i], to, end) {
					t.Fatalf("seed %d: a part of %+v is refused", seed, whole)
				}
				copies, more := d.moves(t, r)
				all, ok = append(all, copies...), ok && more
			}
			if err := judge(d.p, &whole, all); ok && err != nil {
				t.Fatalf("seed %d: in parts %v: %v\n%+v\n%s", seed, cuts, err, whole, d.p.Text())
			}
			count["parts"] += len(cuts) - 1
		}
	}
	t.Log(count)
	for _, want := range append([]string{"source leaves out", "destination leaves out", "unrolled", "out of the window", "parts"},
		strings.Fields(fmt.Sprintf("%s %s %s %s", sample.States, sample.DCP, sample.MLA, sample.Tiled))...) {
		if count[want] < seeds/12 {
			t.Errorf("%s: %d", want, count[want])
		}
	}
}
