package matrix_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy"
)

// examiner plans the pairs of one test with the built-in policy.
type examiner struct {
	*testing.T
	policy *policy.Policy
}

func examine(t *testing.T) *examiner { return &examiner{t, heads(t)} }

// of is the examiner in a subtest.
func (x *examiner) of(t *testing.T) *examiner { return &examiner{t, x.policy} }

// end is one side of a pair of one group in the words of pair files.
type end struct {
	shard         string
	block, blocks int
	layout        string // a preset; in brackets an order; in braces a layout
	more          string // further keys: ", kernel_block: 64"
}

func (e end) text() string {
	l := e.layout
	if strings.HasPrefix(l, "[") {
		l = "{order: " + l + "}"
	}
	return fmt.Sprintf("{engine: e, shard: {%s}, block: %d, blocks: %d, layout: %s%s}", e.shard, e.block, e.blocks, l, e.more)
}

// pair makes a pair of a model of one group.
func (x *examiner) pair(layers int, components string, source, destination end) *plan.Pair {
	x.Helper()
	return x.file(fmt.Sprintf("model: {name: m, layers: %d, components: [%s]}\nsource: %s\ndestination: %s\n", layers, components, source.text(), destination.text()))
}

// file makes the pair of a pair file, given without its first line.
func (x *examiner) file(text string) *plan.Pair {
	x.Helper()
	p, _ := fixture.Parse(x.T, text)
	return p
}

// drawn is a pair with its proved plan.
type drawn struct {
	*examiner
	pair    *plan.Pair
	proven  proof.Proven
	stamper *stamp.Stamper
}

// plan asks the policy, builds and proves.
func (x *examiner) plan(p *plan.Pair) *drawn {
	x.Helper()
	proven, err := prove(x.policy, p)
	if err != nil {
		x.Fatalf("%+v", err)
	}
	s, err := stamp.New(proven)
	if err != nil {
		x.Fatal(err)
	}
	return &drawn{x, p, proven, s}
}

// carry moves a request between the memory of real pools and compares every
// byte. Its block tables are drawn by chance. There is nothing in it for the
// race detector that TestMatrix has not, and it takes ten times as long there.
func (d *drawn) carry(from, to int64) *drawn {
	d.Helper()
	if raceEnabled {
		return d
	}
	w, err := newWorld(d.pair, request{from: from, to: to}, 7)
	if err != nil {
		d.Fatal(err)
	}
	if w.q.spans, err = stamp.Spans(d.pair, from, to, to, w.source.first, w.destination.first); err != nil {
		d.Fatal(err)
	}
	if err := errors.Join(w.through("loop", d.proven), w.close()); err != nil {
		d.Errorf("%+v", err)
	}
	return d
}

// tables are block tables of a pair of one group.
func tables(ids ...uint32) [][]uint32 { return [][]uint32{ids} }

// copies are the copies of a request, each judged: that every element which is
// due comes from its own and nothing else is written.
func (d *drawn) copies(r stamp.Request) []stamp.Copy {
	d.Helper()
	out, err := d.stamped(r)
	if err != nil {
		d.Fatalf("%+v", err)
	}
	if raceEnabled { // one goroutine, element by element
		return out
	}
	if err := judge(d.pair, r, out); err != nil {
		d.Errorf("the copies are wrong: %v", err)
	}
	return out
}

// stamped are the copies of a request, or why it cannot be served.
func (d *drawn) stamped(r stamp.Request) ([]stamp.Copy, error) {
	r.ID, r.Plan = "r", d.proven.Digest()
	if err := d.stamper.Validate(&r); err != nil {
		return nil, err
	}
	return d.stamper.Expand(&r)
}

// judge holds copies against the element by element twin.
func judge(p *plan.Pair, r stamp.Request, copies []stamp.Copy) error {
	due := fixture.Due{Source: r.Source, Destination: r.Destination, SourceFirst: r.SourceFirst, DestinationFirst: r.DestinationFirst, Layers: r.Layers}
	for g := range p.Source.Groups {
		span := r.Span(p, g)
		due.Spans = append(due.Spans, [2]int64{span.From, span.To})
	}
	moves := make([]fixture.Move, len(copies))
	for i, c := range copies {
		moves[i] = fixture.Move(c)
	}
	return fixture.Judge(p, &due, moves)
}

// lines are copies as text, by destination: "0 layer0+16384 -> 1 layer0+0 8192"
// is of source rank 0 to destination rank 1, 8192 bytes. Of a pair of several
// groups each begins with its group's name.
func (d *drawn) lines(copies []stamp.Copy) []string {
	var out []string
	for _, c := range copies {
		s, t := d.pair.Source.Ranks[c.SourceRank][c.Group], d.pair.Destination.Ranks[c.DestinationRank][c.Group]
		line := fmt.Sprintf("%d %s+%d -> %d %s+%d %d", c.SourceRank, s.Regions[c.SourceRegion].Name, c.SourceOffset, c.DestinationRank, t.Regions[c.DestinationRegion].Name, c.DestinationOffset, c.Bytes)
		if gs := d.pair.Source.Model.Groups; len(gs) > 1 {
			line = gs[c.Group].Name + ": " + line
		}
		out = append(out, line)
	}
	return out
}

// block is the text of the copies of tokens [0, to), which lie in one block on
// either side.
func (d *drawn) block(source, destination uint32, to int64) []string {
	d.Helper()
	return d.lines(d.copies(stamp.Request{Source: tables(source), Destination: tables(destination), To: to}))
}

// same holds texts against those that are right.
func (x *examiner) same(what string, got []string, want ...string) {
	x.Helper()
	if !slices.Equal(got, want) {
		x.Errorf("%s:\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// has looks for single texts among many.
func (x *examiner) has(what string, got []string, count int, want ...string) {
	x.Helper()
	if len(got) != count {
		x.Errorf("%s: %d copies, want %d", what, len(got), count)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			x.Errorf("%s: there is no %q among\n  %s", what, w, strings.Join(got[:min(len(got), 20)], "\n  "))
		}
	}
}

// each makes n lines.
func each(n int, format string, args func(i int) []any) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(format, args(i)...))
	}
	return out
}

// feeds says who feeds whom: "1<-0 heads 2-3 layers 0-7", by destination rank.
// It is of the first group, and of its first component.
func (d *drawn) feeds() []string {
	pl := d.proven.Plan()
	type key struct{ destination, source int }
	layers, hs := map[key]map[int]bool{}, map[key]map[int]bool{}
	for i := range pl.Runs {
		r := &pl.Runs[i]
		e := pl.Edges[r.Edge]
		k := key{e.Destination, e.Source}
		if e.Group != 0 {
			continue
		}
		if layers[k] == nil {
			layers[k], hs[k] = map[int]bool{}, map[int]bool{}
		}
		layers[k][r.Layer] = true
	}
	for _, a := range pl.Assignments {
		k := key{a.Destination, a.Source}
		if a.Group == 0 && a.Components&1 == 1 && hs[k] != nil {
			for h := a.Heads.From; h < a.Heads.To; h++ {
				hs[k][h] = true
			}
		}
	}
	var out []string
	for _, k := range slices.SortedFunc(maps.Keys(layers), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.destination, b.destination), cmp.Compare(a.source, b.source))
	}) {
		out = append(out, fmt.Sprintf("%d<-%d heads %s layers %s", k.destination, k.source,
			geometry.Ranges(slices.Sorted(maps.Keys(hs[k]))), geometry.Ranges(slices.Sorted(maps.Keys(layers[k])))))
	}
	return out
}

// sources are, by destination rank, the source ranks that feed it with a group.
func (d *drawn) sources(group int) []string {
	by := make([][]int, len(d.pair.Destination.Ranks))
	for _, e := range d.proven.Plan().Edges {
		if e.Group == group {
			by[e.Destination] = append(by[e.Destination], e.Source)
		}
	}
	var out []string
	for _, s := range by {
		out = append(out, fmt.Sprint(s))
	}
	return out
}

// targets are, by source rank, the destination ranks that it feeds.
func (d *drawn) targets() []string {
	by := make([][]int, len(d.pair.Source.Ranks))
	for _, e := range d.proven.Plan().Edges {
		by[e.Source] = append(by[e.Source], e.Destination)
	}
	var out []string
	for _, s := range by {
		slices.Sort(s)
		out = append(out, fmt.Sprint(slices.Compact(s)))
	}
	return out
}

// fault holds the proof's judgement of a plan that was made for something else
// than the truth against its kind and words.
func (x *examiner) fault(truth *plan.Pair, pl *plan.Plan, kind proof.Kind, words string) {
	x.Helper()
	err := proof.Examine(truth, pl)
	var f *proof.Fault
	if !errors.As(err, &f) || f.Kind != kind || !strings.Contains(err.Error(), words) {
		x.Errorf("the proof says %v, want a %s with %q", err, kind, words)
	}
}

// answer builds the plan of an answer that the built-in policy did not give.
func (x *examiner) answer(p *plan.Pair, as ...plan.Assignment) *plan.Plan {
	x.Helper()
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		x.Fatal(err)
	}
	return pl
}

// altered is a copy of a proved plan, with every run changed.
func (d *drawn) altered(change func(*plan.Run)) *plan.Plan {
	pl := *d.proven.Plan()
	pl.Runs = slices.Clone(pl.Runs)
	for i := range pl.Runs {
		change(&pl.Runs[i])
	}
	return &pl
}

// refused holds an error against its words.
func (x *examiner) refused(err error, words string) {
	x.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		x.Errorf("got %v, want a refusal with %q", err, words)
	}
}

// spot is a byte of a rank.
type spot struct {
	rank, group, region int
	offset              int64
}

// elements calls f with every element of the tokens [0, to) of groups of tokens
// that a side holds, and the byte at which it starts.
func elements(s *plan.Side, tables [][]uint32, to int64, f func(spot, geometry.Coord)) {
	for rank, layouts := range s.Ranks {
		for gi, g := range s.Model.Groups {
			l, part, block := layouts[gi], s.Part(gi, rank), int64(s.Groups[gi].Block)
			if l == nil {
				continue
			}
			for ci, c := range g.Components {
				for token := range to {
					u, mine := part.Local(token)
					if !mine {
						continue
					}
					for li, layer := range part.Layers {
						for h, head := range fixture.Heads(&part, ci) {
							for dim := range int64(c.Dim) {
								region, bit := l.Bit(ci, li, int64(tables[gi][u/block]), u%block, int64(h), dim)
								f(spot{rank, gi, region, bit / 8}, geometry.Coord{Group: gi, Component: ci, Layer: layer, Head: head, Token: token, Dim: int(dim)})
							}
						}
					}
				}
			}
		}
	}
}

// wrong counts the elements of a request that copies put where another belongs,
// or do not bring, and all of them. Elements are whole bytes, of tokens.
func wrong(truth *plan.Pair, r stamp.Request, copies []stamp.Copy) (wrong, all int) {
	held := map[spot]geometry.Coord{}
	elements(&truth.Source, r.Source, r.To, func(at spot, c geometry.Coord) { held[at] = c })
	elements(&truth.Destination, r.Destination, r.To, func(at spot, want geometry.Coord) {
		all++
		for _, c := range copies {
			if k := at.offset - c.DestinationOffset; c.DestinationRank == at.rank && c.Group == at.group && c.DestinationRegion == at.region && k >= 0 && k < c.Bytes {
				if got, ok := held[spot{c.SourceRank, c.Group, c.SourceRegion, c.SourceOffset + k}]; ok && got == want {
					return
				}
			}
		}
		wrong++
	})
	return wrong, all
}

// taken holds how much is wrong where a pair is taken for another: the copies
// are those of the believed pair. The part is in lowest terms, "15/16".
func (x *examiner) taken(truth, believed *plan.Pair, r stamp.Request, part string) *drawn {
	x.Helper()
	d := x.plan(believed)
	copies := d.copies(r)
	bad, all := wrong(truth, r, copies)
	k := gcd(bad, all)
	if got := fmt.Sprintf("%d/%d", bad/k, all/k); got != part {
		x.Errorf("%s of the elements are wrong, want %s", got, part)
	}
	return d
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// registered is a side whose ranks' layouts come from the tensors that an
// engine registers, not from an order.
func (x *examiner) registered(s *plan.Side, tensors func(rank int) []layout.Tensor) {
	x.Helper()
	for r := range s.Ranks {
		l, err := layout.FromTensors(tensors(r), s.Part(0, r).Extent(s.Model.Groups[0], s.Groups[0].Block, s.Groups[0].Blocks))
		if err != nil {
			x.Fatal(err)
		}
		s.Ranks[r] = []*layout.Layout{l}
	}
}

// sharded reads a pair file with a destination sharded so.
func sharded(words string) (*plan.Pair, error) {
	const side = "{engine: e, shard: %s, block: 16, blocks: 4, layout: mla}"
	f, err := pairfile.Parse("p.yaml", fmt.Appendf(nil, "kvferry: pair/1\nmodel: {name: m, layers: 1, components: [{name: latent, heads: 0, dim: 16, dtype: bf16}]}\nsource: "+side+"\ndestination: "+side+"\n", "{tp: 1}", words))
	if err != nil {
		return nil, err
	}
	p, _, err := f.Pair(nil)
	return p, err
}
