package proof_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// literal makes a plan that no planner would: one run for each row and, where
// its elements lie at one distance on both sides, a loop over them, in either
// direction; otherwise one for each element. It is false where an element does
// not lie on bytes. The rows of a token and what scales them come from one rank.
func literal(m *sample.Maker, p *plan.Pair) (*plan.Plan, bool) {
	g := &p.Source.Model.Groups[0]
	so, do := p.Source.ShardOf(0), p.Destination.ShardOf(0)
	sb, db := int64(p.Source.Groups[0].Block), int64(p.Destination.Groups[0].Block)
	period := int64(1)
	if !g.State {
		period = int64(sample.LCM(sample.LCM(int(sb)*so.DCPSize, so.Interleave*so.DCPSize), sample.LCM(int(db)*do.DCPSize, do.Interleave*do.DCPSize)))
	}
	pl := &plan.Plan{Pair: p.Digest(), Groups: []plan.Period{{
		Tokens: period, To: period,
		SourceBlocks:      period / int64(so.DCPSize) / sb,
		DestinationBlocks: period / int64(do.DCPSize) / db,
	}}}
	runs := map[[2]int][]plan.Run{} // by destination and source
	pieces := map[plan.Piece]int{}
	for d, ls := range p.Destination.Ranks {
		want := p.Destination.Part(0, d)
		for li, layer := range want.Layers {
			chosen := map[place]int{} // source ranks
			for ci := range g.Components {
				c := &g.Components[ci]
				if c.DType.Bits()%8 != 0 {
					return nil, false
				}
				for hi, head := range names(&want, ci) {
					for t := int64(0); t < period; t += entry(c) {
						du, held := want.Local(t)
						if !held {
							continue
						}
						s := origins(m, p, &want, chosen, layer, ci, head, t)
						have := p.Source.Part(0, s)
						su, _ := have.Local(t)
						si, sh := slices.Index(have.Layers, layer), slices.Index(names(&have, ci), head)
						sl, dl := p.Source.Ranks[s][0], ls[0]
						n := entry(c)
						q := plan.Piece{Token: t / n, Count: 1, SourceBlock: su / sb, SourceToken: su % sb / n, DestinationBlock: du / db, DestinationToken: du % db / n}
						piece, ok := pieces[q]
						if !ok {
							piece = len(pl.Pieces)
							pieces[q] = piece
							pl.Pieces = append(pl.Pieces, q)
						}
						row := plan.Run{Piece: piece, Component: ci, Layer: layer, SourceMap: sl.Places[ci][si].Map, DestinationMap: dl.Places[ci][li].Map, Bytes: c.DType.Bits() / 8}
						var so, do []int64
						for dim := range int64(c.Dim) {
							var bit int64
							row.SourceRegion, bit = sl.Bit(ci, si, 0, q.SourceToken, int64(sh), dim)
							so = append(so, bit/8)
							row.DestinationRegion, bit = dl.Bit(ci, li, 0, q.DestinationToken, int64(hi), dim)
							do = append(do, bit/8)
						}
						key := [2]int{d, s}
						if affine(so) && affine(do) && len(so) > 1 {
							l := plan.Loop{Count: int64(len(so)), SourceStride: so[1] - so[0], DestinationStride: do[1] - do[0]}
							row.SourceOffset, row.DestinationOffset = so[0], do[0]
							if m.Chance(30) {
								row.SourceOffset, row.DestinationOffset = so[len(so)-1], do[len(do)-1]
								l.SourceStride, l.DestinationStride = -l.SourceStride, -l.DestinationStride
							}
							row.Loops = []plan.Loop{l}
							runs[key] = append(runs[key], row)
							continue
						}
						for i := range so {
							one := row
							one.SourceOffset, one.DestinationOffset = so[i], do[i]
							runs[key] = append(runs[key], one)
						}
					}
				}
			}
		}
	}
	var keys [][2]int
	for k := range runs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for i, k := range keys {
		rs := runs[k]
		m.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		slices.SortStableFunc(rs, func(a, b plan.Run) int { return cmp.Compare(a.Layer, b.Layer) })
		for j := range rs {
			rs[j].Edge = i
		}
		pl.Edges = append(pl.Edges, plan.Edge{Source: k[1], Destination: k[0], From: len(pl.Runs), To: len(pl.Runs) + len(rs)})
		pl.Runs = append(pl.Runs, rs...)
	}
	return pl, true
}

// place is what comes from one source rank: the rows of a head, or of all where
// they have a scale for all, of tokens that share a scale.
type place struct {
	component string // scaled, not scaling
	head      int
	token     int64
}

// origins draws a source rank for a row, the same for all rows of a place.
func origins(m *sample.Maker, p *plan.Pair, want *shard.Part, chosen map[place]int, layer, ci, head int, t int64) int {
	g := &p.Source.Model.Groups[0]
	of := ci
	if s := g.Components[ci].Scales; s != "" {
		of = g.Component(s)
	}
	at := place{g.Components[of].Name, head, t}
	group, whole := int64(1), false
	for i := range g.Components {
		if c := &g.Components[i]; c.Scales == at.component {
			group, whole = int64(sample.LCM(int(group), int(entry(c)))), whole || c.Heads == 0
		}
	}
	at.token -= t % group
	if whole {
		at.head = 0
	}
	if r, ok := chosen[at]; ok {
		return r
	}
	for _, r := range m.Perm(len(p.Source.Ranks)) {
		have := p.Source.Part(0, r)
		_, held := have.Local(at.token)
		holds := held && slices.Contains(have.Layers, layer)
		for _, h := range names(want, of) {
			holds = holds && (!whole && h != head || slices.Contains(names(&have, of), h))
		}
		if holds {
			chosen[at] = r
			return r
		}
	}
	panic("no source rank holds the row")
}

func affine(x []int64) bool {
	for i := 2; i < len(x); i++ {
		if x[i]-x[i-1] != x[1]-x[0] {
			return false
		}
	}
	return true
}

// TestLiteralPlans shows that the proof does not know how plans are made: it
// accepts what moves every element, whoever wrote it, and finds the one run
// whose source was moved.
func TestLiteralPlans(t *testing.T) {
	var accepted, refused atomic.Int64
	each(t, 5000000, pairs(1500), func(seed uint64) {
		m := sample.New(seed)
		p := m.Pair()
		if len(p.Source.Groups) > 1 {
			return
		}
		pl, ok := literal(m, p)
		if !ok || len(pl.Runs) > 5000 {
			return
		}
		if _, err := proof.Check(p, pl); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, describe(p, pl))
			return
		}
		if v := judge(p, pl, m.Rand); !v.right {
			t.Errorf("seed %d: the twin finds %+v", seed, v)
			return
		}
		accepted.Add(1)
		r := &pl.Runs[m.IntN(len(pl.Runs))]
		r.SourceOffset += r.Bytes * int64(1+m.IntN(3))
		v := judge(p, pl, m.Rand)
		_, err := proof.Check(p, pl)
		var f *proof.Fault
		if v.right || !errors.As(err, &f) || f.At != v.first || f.Rank != v.rank || !strings.HasPrefix(err.Error(), "proof: ") {
			t.Errorf("seed %d: %v, the twin finds %+v", seed, err, v)
		}
		refused.Add(1)
	})
	t.Logf("%d plans accepted, %d of their mutations refused", accepted.Load(), refused.Load())
	if accepted.Load() < int64(pairs(500)) {
		t.Error("too few plans")
	}
}
