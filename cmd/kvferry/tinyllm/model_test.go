package tinyllm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// newCache makes a cache on plain memory in the given order.
func newCache(t *testing.T, m geometry.Model, tp, stages, dcp, block, blocks int, order ...string) *Cache {
	t.Helper()
	spec := layout.Spec{}
	for _, text := range order {
		if text == "component" {
			spec.Order = append(spec.Order, layout.Entry{Component: true})
			continue
		}
		it, err := layout.ParseItem(text)
		if err != nil {
			t.Fatal(err)
		}
		spec.Order = append(spec.Order, layout.Entry{Item: it})
	}
	pp, err := shard.Even(m.Layers, stages)
	if err != nil {
		t.Fatal(err)
	}
	ranks, err := shard.Order(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := shard.Spec{TP: tp, Stages: pp, DCPSize: dcp, Interleave: 1, Order: ranks}
	var layouts []*layout.Layout
	var memory [][][]byte
	for r := range s.Ranks() {
		p := s.Part(m.Groups[0], r)
		l, err := spec.Resolve(layout.Extent{Layers: p.Layers, Blocks: blocks, Tokens: block, Heads: len(p.Heads), Components: m.Groups[0].Components})
		if err != nil {
			t.Fatal(err)
		}
		var regions [][]byte
		for _, region := range l.Regions {
			regions = append(regions, make([]byte, region.Bytes))
		}
		layouts, memory = append(layouts, l), append(memory, regions)
	}
	c, err := NewCache(m, s, layouts, memory)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	hnd  = []string{"block", "head", "token", "component", "dim"}
	nhd  = []string{"block", "token", "head", "component", "dim"}
	pool = []string{"component", "layer", "head", "dim", "block", "token"}
)

// How the cache is sharded and laid out must not change a single token.
func TestTokensDoNotDependOnShardOrLayout(t *testing.T) {
	m, err := New(Default(8, 1))
	if err != nil {
		t.Fatal(err)
	}
	const n, count = 45, 12
	prompt := m.Prompt(0, n)
	table := []uint32{5, 2, 7, 0, 4, 6, 1, 3}
	run := func(c *Cache, chunk int) []int {
		return m.Decode(c, table, m.Prefill(c, table, prompt, chunk, nil), n, count)
	}
	want := run(newCache(t, m.Geometry(), 1, 1, 1, 16, 8, hnd...), 0)
	if slices.Max(want) == slices.Min(want) {
		t.Fatalf("the model repeats one token: %v", want)
	}
	for _, c := range []struct {
		tp, pp, dcp, block int
		order              []string
		chunk              int
	}{
		{1, 1, 1, 16, nhd, 0}, {2, 1, 1, 16, hnd, 7}, {4, 2, 1, 16, nhd, 16}, {16, 1, 1, 16, nhd, 0},
		{8, 4, 1, 8, pool, 1}, {2, 2, 2, 8, hnd, 0}, {1, 1, 4, 4, nhd, 5},
	} {
		t.Run(fmt.Sprintf("tp%d-pp%d-dcp%d-block%d-chunk%d", c.tp, c.pp, c.dcp, c.block, c.chunk), func(t *testing.T) {
			got := run(newCache(t, m.Geometry(), c.tp, c.pp, c.dcp, c.block, 8, c.order...), c.chunk)
			if !slices.Equal(got, want) {
				t.Errorf("tokens %v, want %v", got, want)
			}
		})
	}
}

// A model that ignored its cache would make every comparison of tokens
// worthless: each seed and each wrong byte must show.
func TestTokensDependOnTheCache(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, heads := range []int{1, 2, 8, 12} {
			m, err := New(Default(heads, seed))
			if err != nil {
				t.Fatal(err)
			}
			table := []uint32{2, 0, 1, 3, 4}
			prompt := m.Prompt(0, 40)
			c := newCache(t, m.Geometry(), 1, 1, 1, 16, 5, hnd...)
			first := m.Prefill(c, table, prompt, 0, nil)
			want := m.Decode(c, table, first, 40, 16)
			c.Zero(table, 40)
			if got := m.Decode(c, table, first, 40, 16); slices.Equal(got, want) {
				t.Errorf("seed %d, %d heads: a cleared cache gives the same tokens %v", seed, heads, got)
			}
		}
	}
}

// Every replica is read: a wrong one must show in the tokens.
func TestEveryReplicaMatters(t *testing.T) {
	m, err := New(Default(2, 3))
	if err != nil {
		t.Fatal(err)
	}
	const tp = 8 // four replicas of each head
	table := []uint32{0, 1, 2, 3}
	prompt := m.Prompt(0, 30)
	run := func(spoil int) []int {
		c := newCache(t, m.Geometry(), tp, 1, 1, 16, 4, nhd...)
		first := m.Prefill(c, table, prompt, 0, nil)
		if spoil >= 0 {
			for _, region := range c.ranks[spoil].regions {
				for i := range region {
					region[i] ^= 0x15
				}
			}
		}
		return m.Decode(c, table, first, 30, 16)
	}
	want := run(-1)
	for rank := range tp {
		if slices.Equal(run(rank), want) {
			t.Errorf("spoiling rank %d changes no token", rank)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{}, {Layers: 1, KVHeads: 1, Queries: 1, HeadDim: 3, Hidden: 8, FFN: 8, Vocab: 8}, {Layers: 1, KVHeads: -1, Queries: 1, HeadDim: 4, Hidden: 8, FFN: 8, Vocab: 8}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) gave a model", c)
		}
	}
}

// The kept offsets are the layout's own.
func TestRowsLieWhereTheLayoutSays(t *testing.T) {
	m, err := New(Default(4, 1))
	if err != nil {
		t.Fatal(err)
	}
	tiled := []string{"block", "token/4", "head", "dim/8", "token%4", "component", "dim%8"}
	for _, order := range [][]string{hnd, nhd, pool, tiled} {
		c := newCache(t, m.Geometry(), 2, 2, 2, 8, 3, order...)
		table := []uint32{2, 0, 1}
		for component := range 2 {
			for layer := range c.holders {
				for head := range c.holders[layer] {
					for token := range int64(3 * 8 * 2) {
						for _, h := range c.at(layer, head, token) {
							memory, base, dims := c.row(table, component, h, token)
							r := c.ranks[h.rank]
							local := token / 2 // DCP 2, one token at a time
							for d := range dims {
								region, bit := r.layout.Bit(component, h.layer, int64(table[local/8]), local%8, int64(h.head), int64(d))
								if &memory[0] != &r.regions[region][0] || base+dims[d] != bit/8 {
									t.Fatalf("%v: component %d layer %d head %d token %d dim %d lies at %d, want %d", order, component, layer, head, token, d, base+dims[d], bit/8)
								}
							}
						}
					}
				}
			}
		}
	}
}
