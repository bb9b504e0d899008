package digest_test

import (
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory/digest"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/plan/stamp"
)

// filled is one side's memory with every element of a request in it: the bits
// are a function of the logical coordinate alone.
type filled struct {
	side    *plan.Side
	tables  [][]uint32
	regions [][][][]byte // [rank][group][region]
}

// fill makes a side's memory for tokens [0, n) of every group.
func fill(m *sample.Maker, side *plan.Side, n int64) (*filled, bool) {
	f := &filled{side: side}
	for g, pool := range side.Groups {
		_, need := stamp.Entries(side, g, 0, n)
		if need > int64(pool.Blocks) {
			return nil, false
		}
		var table []uint32
		for _, id := range m.Perm(pool.Blocks)[:need] {
			table = append(table, uint32(id))
		}
		f.tables = append(f.tables, table)
	}
	for r, layouts := range side.Ranks {
		var groups [][][]byte
		for g, l := range layouts {
			var regions [][]byte
			if l != nil {
				for _, region := range l.Regions {
					regions = append(regions, make([]byte, region.Bytes))
				}
			}
			groups = append(groups, regions)
			f.put(r, g, regions, n)
		}
		f.regions = append(f.regions, groups)
	}
	return f, true
}

// put writes one group of one rank, element by element.
func (f *filled) put(rank, g int, regions [][]byte, n int64) {
	l := f.side.Ranks[rank][g]
	if l == nil {
		return
	}
	group, part, pool := &f.side.Model.Groups[g], f.side.Part(g, rank), f.side.Groups[g]
	for ci, c := range group.Components {
		e := int64(c.EntryTokens())
		from, to := c.Entries(0, n)
		if group.State {
			from, to = 0, 1
		}
		heads := part.Heads[ci]
		if c.Heads == 0 {
			heads = []int{0}
		}
		for entry := from; entry < to; entry++ {
			at, place := int64(0), int64(0)
			if !group.State {
				u, ok := part.Local(entry * e)
				if !ok {
					continue
				}
				at, place = u/int64(pool.Block), u%int64(pool.Block)/e
			}
			for li, layer := range part.Layers {
				for hi, head := range heads {
					for d := range c.Dim {
						h := fnv.New64a()
						fmt.Fprint(h, g, ci, layer, head, entry, d)
						region, bit := l.Bit(ci, li, int64(f.tables[g][at]), place, int64(hi), int64(d))
						set(regions[region], bit, c.DType, h.Sum64())
					}
				}
			}
		}
	}
}

// set writes an element half byte by half byte: beside fp4 others may start in
// the middle of a byte.
func set(b []byte, bit int64, t geometry.DType, v uint64) {
	for at := bit; at < bit+t.Bits(); at += 4 {
		b[at/8] = b[at/8]&^(15<<(at%8)) | byte(v)&15<<(at%8)
		v >>= 4
	}
}

func (f *filled) part(p *plan.Pair, as []plan.Assignment, source bool, e stamp.EdgeKey, g int, span stamp.Span) digest.Part {
	rank := e.Destination
	if source {
		rank = e.Source
	}
	return digest.Part{Pair: p, Assignments: as, OfSource: source, Source: e.Source, Destination: e.Destination, Group: g, Component: -1,
		Layers: plan.Range{To: geometry.MaxLayers}, Heads: plan.Range{To: geometry.MaxHeads}, From: span.From, To: span.To,
		Regions: f.regions[rank][g], Table: f.tables[g]}
}

// Both ends of every edge sum the same rows, whatever their layouts, shards,
// blocks and context parallelism; and not one bit may differ.
func TestPartsOfBothEnds(t *testing.T) {
	h := digest.New(digest.Key{1, 2, 3})
	pairs, edges, sums := 0, 0, 0
	for seed := range uint64(700) {
		m := sample.New(seed)
		p := m.Pair()
		n := 1 + m.Int64N(40)
		s, ok := fill(m, &p.Source, n)
		d, also := fill(m, &p.Destination, n)
		if !ok || !also {
			continue
		}
		as := m.Assign(p)
		pairs++
		seen := map[stamp.EdgeKey]bool{}
		for _, a := range as {
			seen[stamp.EdgeKey{Source: a.Source, Destination: a.Destination}] = true
		}
		for e := range seen {
			edges++
			for g := range p.Source.Groups {
				span := stamp.Span{From: 0, To: n}
				if p.Source.Model.Groups[g].State {
					span = stamp.Span{From: 0, To: 1}
				}
				for _, every := range []int{1, 4} {
					ps, pd := s.part(p, as, true, e, g, span), d.part(p, as, false, e, g, span)
					x, err := h.Part(&ps, every)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					y, err := h.Part(&pd, every)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if fmt.Sprint(x) != fmt.Sprint(y) {
						t.Fatalf("seed %d edge %v group %d, one row in %d: %x at the source, %x at the destination", seed, e, g, every, x, y)
					}
					sums += len(x)
				}
				part := d.part(p, as, false, e, g, span)
				flipped(t, h, m, part, d, e)
			}
		}
	}
	if pairs < 200 || sums < 2000 {
		t.Errorf("only %d pairs, %d edges and %d sums", pairs, edges, sums)
	}
}

// flipped changes one bit of an element that the edge carries: the sum of its
// component and layer changes and no other.
func flipped(t *testing.T, h *digest.Hasher, m *sample.Maker, part digest.Part, f *filled, e stamp.EdgeKey) {
	t.Helper()
	before, err := h.Part(&part, 1)
	if err != nil {
		t.Fatal(err)
	}
	var used []int
	for i, v := range before {
		if v != 0 {
			used = append(used, i)
		}
	}
	if len(used) == 0 {
		return
	}
	group := &part.Pair.Source.Model.Groups[part.Group]
	layers := digest.Layers(part.Pair, part.Source, part.Destination, part.Group, part.Layers)
	at := used[m.IntN(len(used))]
	ci, layer := at%len(group.Components), layers[at/len(group.Components)]
	// Change every row of that component and layer on the rank: one of them is
	// the edge's.
	for _, region := range changed(f, e.Destination, part.Group, ci, layer) {
		region()
	}
	after, err := h.Part(&part, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if (before[i] != after[i]) != (i == at) {
			t.Fatalf("component %d of layer %d was changed: sum %d is %x, was %x", ci, layer, i, after[i], before[i])
		}
	}
	for _, region := range changed(f, e.Destination, part.Group, ci, layer) {
		region() // back again
	}
}

// changed returns functions that flip a bit of every element of a component of
// a layer.
func changed(f *filled, rank, g, ci, layer int) []func() {
	l := f.side.Ranks[rank][g]
	var out []func()
	x := &l.Extent
	for li, n := range x.Layers {
		if n != layer {
			continue
		}
		c := x.Components[ci]
		for _, id := range f.tables[g] {
			for tok := range int64(x.Tokens / c.EntryTokens()) {
				for h := range int64(max(x.Heads[ci], 1)) {
					region, bit := l.Bit(ci, li, int64(id), tok, h, 0)
					out = append(out, func() { f.regions[rank][g][region][bit/8] ^= 1 << (bit % 8) })
				}
			}
		}
	}
	return out
}
