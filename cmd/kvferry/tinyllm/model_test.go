package tinyllm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// order reads an order: words, and a branch "{k,v: words; w: words}" at the
// end.
func order(t *testing.T, text string) []layout.Entry {
	t.Helper()
	var out []layout.Entry
	common, branch, branches := strings.Cut(text, "{")
	for word := range strings.FieldsSeq(common) {
		if word == "component" {
			out = append(out, layout.Entry{Component: true})
			continue
		}
		it, err := layout.ParseItem(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, layout.Entry{Item: it})
	}
	if branches {
		below := map[string][]layout.Entry{}
		for one := range strings.SplitSeq(strings.TrimSuffix(branch, "}"), ";") {
			key, rest, _ := strings.Cut(one, ":")
			below[strings.TrimSpace(key)] = order(t, rest)
		}
		out = append(out, layout.Entry{Branch: below})
	}
	return out
}

// how is how an engine of a test holds one group.
type how struct {
	order               string
	block, blocks, ring int
}

// newCache makes a cache on plain memory. A group of states is sharded over all
// of tp and dcp.
func newCache(t *testing.T, m geometry.Model, tp, stages, dcp int, groups ...how) *Cache {
	t.Helper()
	pp, err := shard.Even(m.Layers, stages)
	if err != nil {
		t.Fatal(err)
	}
	ranks, err := shard.Order(nil)
	if err != nil {
		t.Fatal(err)
	}
	var held []Holding
	for g, group := range m.Groups {
		s := shard.Spec{TP: tp, Stages: pp, DCPSize: dcp, Interleave: 1, Order: ranks}
		if group.State {
			s.TP, s.DCPSize = tp*dcp, 1
			groups[g].block = 1
		}
		h := Holding{Shard: s, Ring: groups[g].ring}
		spec := layout.Spec{Order: order(t, groups[g].order)}
		for r := range s.Ranks() {
			part := s.Part(group, r)
			var l *layout.Layout
			var regions [][]byte
			if len(part.Layers) > 0 {
				if l, err = spec.Resolve(part.Extent(group, groups[g].block, groups[g].blocks)); err != nil {
					t.Fatal(err)
				}
				for _, region := range l.Regions {
					regions = append(regions, make([]byte, region.Bytes))
				}
			}
			h.Layouts, h.Regions = append(h.Layouts, l), append(h.Regions, regions)
		}
		held = append(held, h)
	}
	c, err := NewCache(m, held)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	hnd   = "block head token component dim"
	nhd   = "block token head component dim"
	pool  = "component layer head dim block token"
	tiled = "block token/4 head dim/8 token%4 component dim%8"

	latentOrder = "block token component dim"
	inline      = "block token head component {k,k_scale,v,v_scale: component dim}"
	apart       = "component block head token dim"
	ds          = "slot component channel dim"
	sd          = "slot component {q,k,v: dim channel; ssm: channel dim}"
)

// plainly is a simple way to hold each group of a shape, on one rank: blocks of
// 16 tokens for 60 and more, and a table.
func plainly(t *testing.T, m *Model) (*Cache, Tables) {
	t.Helper()
	h, table := how{order: hnd, block: 16, blocks: 8}, []uint32{5, 2, 7, 0, 4, 6, 1, 3}
	state := how{order: ds, blocks: 3}
	groups, tables := []how{h}, Tables{table}
	switch m.Config().Shape {
	case MLA:
		groups[0].order = latentOrder
	case FP8:
		groups[0].order = inline
	case Hybrid:
		groups, tables = []how{h, state}, Tables{table, {1}}
	case Sliding:
		groups, tables = []how{h, h}, Tables{table, {3, 1, 6, 4, 0, 7, 2, 5}}
	}
	return newCache(t, m.Geometry(), 1, 1, 1, groups...), tables
}

// sharding is a way to hold a cache that differs from plainly's.
type sharding struct {
	tp, pp, dcp, chunk int
	groups             []how
	tables             Tables
}

func (s sharding) String() string {
	return fmt.Sprintf("tp%d-pp%d-dcp%d-chunk%d-%v", s.tp, s.pp, s.dcp, s.chunk, s.groups)
}

// How the cache is sharded and laid out must not change a single token.
func TestTokensDoNotDependOnShardOrLayout(t *testing.T) {
	const n, count = 45, 12
	eight := []uint32{5, 2, 7, 0, 4, 6, 1, 3}
	one := func(order string, block int) ([]how, Tables) {
		return []how{{order: order, block: block, blocks: 8}}, Tables{eight}
	}
	single := func(tp, pp, dcp, chunk int, order string, block int) sharding {
		groups, tables := one(order, block)
		return sharding{tp, pp, dcp, chunk, groups, tables}
	}
	// two groups: the second one's blocks of size b, a ring of them where ring
	// is not 0, in a pool of 12.
	window := func(tp, pp, dcp, chunk int, first, second string, b, ring int) sharding {
		table := []uint32{9, 0, 3, 11, 7, 1, 8, 2, 10, 6, 4, 5}
		if ring > 0 {
			table = table[:ring]
		}
		return sharding{tp, pp, dcp, chunk, []how{{order: first, block: 16, blocks: 8}, {order: second, block: b, blocks: 12, ring: ring}}, Tables{eight, table}}
	}
	states := func(tp, pp, dcp, chunk int, first, second string) sharding {
		return sharding{tp, pp, dcp, chunk, []how{{order: first, block: 8, blocks: 8}, {order: second, blocks: 4}}, Tables{eight, {3}}}
	}
	for shape, cases := range map[Shape][]sharding{
		Llama: {
			single(1, 1, 1, 0, nhd, 16), single(2, 1, 1, 7, hnd, 16), single(4, 2, 1, 16, nhd, 16), single(16, 1, 1, 0, nhd, 16),
			single(8, 4, 1, 1, pool, 8), single(2, 2, 2, 0, hnd, 8), single(1, 1, 4, 5, nhd, 4),
		},
		MLA: {
			single(2, 1, 1, 0, latentOrder, 16), single(4, 2, 1, 7, "block component token dim", 8), single(1, 4, 2, 16, "block component {latent: dim token; rope: token dim}", 8),
		},
		FP8: {
			single(2, 1, 1, 0, inline, 16), single(16, 2, 1, 7, apart, 8), single(1, 4, 2, 16, "block head token dim", 8),
		},
		Sliding: {
			window(2, 1, 1, 0, hnd, nhd, 8, 0), window(4, 2, 1, 7, nhd, hnd, 5, 0), window(1, 4, 2, 1, pool, nhd, 3, 0),
			// A ring of blocks that hold 23 tokens and the block being written:
			// the prompt comes in pieces, as it does where a ring is all there is.
			window(2, 1, 1, 1, hnd, nhd, 8, 4), window(1, 1, 1, 1, hnd, nhd, 4, 7), window(8, 2, 2, 1, nhd, nhd, 4, 4),
		},
		Hybrid: {
			states(2, 1, 1, 0, nhd, ds), states(4, 2, 1, 7, hnd, sd), states(8, 1, 1, 1, nhd, "layer slot {q,k: channel dim; v: dim channel; ssm: dim channel}"),
			states(16, 4, 1, 16, nhd, sd), states(2, 1, 4, 5, pool, ds),
		},
	} {
		m, err := New(Default(shape, 8, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Geometry().Validate(); err != nil {
			t.Fatal(err)
		}
		prompt := m.Prompt(0, n)
		run := func(c *Cache, tables Tables, chunk int) []int {
			return m.Decode(c, tables, m.Prefill(c, tables, prompt, chunk, nil), n, count)
		}
		c, tables := plainly(t, m)
		want := run(c, tables, 0)
		if slices.Max(want) == slices.Min(want) {
			t.Fatalf("%s: the model repeats one token: %v", shape, want)
		}
		for _, s := range cases {
			t.Run(fmt.Sprint(shape, " ", s), func(t *testing.T) {
				got := run(newCache(t, m.Geometry(), s.tp, s.pp, s.dcp, s.groups...), s.tables, s.chunk)
				if !slices.Equal(got, want) {
					t.Errorf("tokens %v, want %v", got, want)
				}
			})
		}
	}
}

// A model that ignored its cache would make every comparison of tokens
// worthless: each seed and each wrong byte must show.
func TestTokensDependOnTheCache(t *testing.T) {
	for _, shape := range Shapes() {
		seeds := uint64(3)
		if shape == string(Llama) {
			seeds = 8
		}
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			for _, heads := range []int{1, 2, 8, 12} {
				m, err := New(Default(Shape(shape), heads, seed))
				if err != nil {
					t.Fatal(err)
				}
				c, tables := plainly(t, m)
				first := m.Prefill(c, tables, m.Prompt(0, 40), 0, nil)
				kept := remember(c)
				want := m.Decode(c, tables, first, 40, 16)
				kept.restore()
				c.Zero(tables, 40)
				if got := m.Decode(c, tables, first, 40, 16); slices.Equal(got, want) {
					t.Errorf("%s, seed %d, %d heads: a cleared cache gives the same tokens %v", shape, seed, heads, got)
				}
			}
		}
	}
}

// image is the memory of a cache.
type image []struct{ region, bytes []byte }

func remember(c *Cache) (out image) {
	for g := range c.groups {
		for _, r := range c.groups[g].ranks {
			for _, region := range r.regions {
				out = append(out, struct{ region, bytes []byte }{region, slices.Clone(region)})
			}
		}
	}
	return out
}

func (i image) restore() {
	for _, r := range i {
		copy(r.region, r.bytes)
	}
}

// Every component of every layer is read: without any one of them the tokens
// are others.
func TestTokensDependOnEveryComponent(t *testing.T) {
	const n = 40
	for _, shape := range Shapes() {
		m, err := New(Default(Shape(shape), 8, 1))
		if err != nil {
			t.Fatal(err)
		}
		c, tables := plainly(t, m)
		first := m.Prefill(c, tables, m.Prompt(0, n), 0, nil)
		kept := remember(c)
		want := m.Decode(c, tables, first, n, 24)
		for g, group := range m.Geometry().Groups {
			for component := range group.Components {
				for layer := range group.Layers {
					kept.restore()
					c.zero(tables, g, component, layer, n)
					if got := m.Decode(c, tables, first, n, 24); slices.Equal(got, want) {
						t.Errorf("%s: clearing %s of layer %d changes no token", shape, group.Components[component].Name, group.Layers[layer])
					}
				}
			}
		}
	}
}

// Tokens behind the window are not read, those inside are.
func TestWindowReachesItsTokens(t *testing.T) {
	m, err := New(Default(Sliding, 4, 2))
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	c, tables := plainly(t, m)
	first := m.Prefill(c, tables, m.Prompt(0, n), 0, nil)
	kept := remember(c)
	want := m.Decode(c, tables, first, n, 24)
	spoil := func(token int64) []int {
		kept.restore()
		for layer := range 2 {
			for head := range 4 {
				for component := range 2 {
					c.write(tables, 1, component, layer, head, token, make([]float32, 16))
				}
			}
		}
		return m.Decode(c, tables, first, n, 24)
	}
	// The next token, at position n, looks at itself and Window-1 before it.
	if got := spoil(n - Window); !slices.Equal(got, want) {
		t.Errorf("a token out of the window matters: %v, want %v", got, want)
	}
	for _, token := range []int64{n - Window + 1, n - 1} {
		if slices.Equal(spoil(token), want) {
			t.Errorf("token %d lies in the window and does not matter", token)
		}
	}
}

// Every replica is read: a wrong one must show in the tokens.
func TestEveryReplicaMatters(t *testing.T) {
	const n, tp = 30, 8 // four replicas of each head
	for _, shape := range Shapes() {
		m, err := New(Default(Shape(shape), 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		groups := []how{{order: nhd, block: 16, blocks: 4}, {order: nhd, block: 16, blocks: 4}}[:len(m.Geometry().Groups)]
		tables := Tables{{0, 1, 2, 3}, {0, 1, 2, 3}}[:len(groups)]
		switch Shape(shape) {
		case MLA:
			groups[0].order = latentOrder
		case Hybrid:
			groups[1], tables[1] = how{order: ds, blocks: 2}, []uint32{1}
		}
		for g := range groups {
			run := func(spoil int) []int {
				c := newCache(t, m.Geometry(), tp, 1, 1, groups...)
				first := m.Prefill(c, tables, m.Prompt(0, n), 0, nil)
				if spoil >= 0 {
					for _, region := range c.groups[g].ranks[spoil].regions {
						for i := range region {
							region[i] ^= 0x15
						}
					}
				}
				return m.Decode(c, tables, first, n, 16)
			}
			want := run(-1)
			for rank := range tp {
				if slices.Equal(run(rank), want) {
					t.Errorf("%s: spoiling group %d of rank %d changes no token", shape, g, rank)
				}
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{
		{}, Default("rwkv", 8, 1), {Shape: Llama, Layers: 1, KVHeads: 1, Queries: 1, HeadDim: 3, Hidden: 8, FFN: 8, Vocab: 8}, Default(Llama, -1, 1),
		{Shape: Hybrid, Layers: 1, KVHeads: 1, Queries: 1, HeadDim: 4, Hidden: 8, FFN: 8, Vocab: 8},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) gave a model", c)
		}
	}
}

// The kept offsets are the layout's own, of every component of every group.
func TestRowsLieWhereTheLayoutSays(t *testing.T) {
	for _, x := range []struct {
		shape  Shape
		groups []how
	}{
		{Llama, []how{{order: hnd, block: 8, blocks: 3}}}, {Llama, []how{{order: nhd, block: 8, blocks: 3}}}, {Llama, []how{{order: pool, block: 8, blocks: 3}}}, {Llama, []how{{order: tiled, block: 8, blocks: 3}}},
		{MLA, []how{{order: latentOrder, block: 8, blocks: 3}}}, {MLA, []how{{order: "block {latent: dim/8 token dim%8; rope: dim token}", block: 8, blocks: 3}}},
		{FP8, []how{{order: inline, block: 8, blocks: 3}}}, {FP8, []how{{order: apart, block: 8, blocks: 3}}},
		{Sliding, []how{{order: hnd, block: 8, blocks: 3}, {order: tiled, block: 4, blocks: 6}}},
		{Hybrid, []how{{order: hnd, block: 8, blocks: 3}, {order: sd, blocks: 3}}},
	} {
		m, err := New(Default(x.shape, 4, 1))
		if err != nil {
			t.Fatal(err)
		}
		const dcp = 2
		c := newCache(t, m.Geometry(), 2, 2, dcp, x.groups...)
		tables := Tables{{2, 0, 1}}
		for _, h := range x.groups[1:] {
			table := []uint32{2}
			for b := 1; b < h.blocks; b++ {
				table = append(table, uint32(b+2)%uint32(h.blocks))
			}
			tables = append(tables, table)
		}
		for gi := range c.groups {
			g := &c.groups[gi]
			tokens, table := int64(x.groups[gi].blocks*x.groups[gi].block*dcp), tables[gi]
			if g.state {
				tokens, table = 1, table[:1]
			}
			for component := range g.holders {
				for layer := range g.holders[component] {
					for head := range g.holders[component][layer] {
						for token := range tokens {
							for _, h := range g.at(component, layer, head, token) {
								r := g.ranks[h.rank]
								memory, base, dims := r.find(c.row(tables, gi, component, h, token))
								local := token / dcp // one token at a time
								for d := range g.components[component].Dim {
									region, bit := r.layout.Bit(component, h.layer, int64(table[local/g.block]), local%g.block, int64(h.head), int64(d))
									if &memory[0] != &r.regions[region][0] || base+dims[d] != bit/8 {
										t.Fatalf("%s %v: component %d layer %d head %d token %d dim %d lies at %d, want %d", x.shape, x.groups, component, layer, head, token, d, base+dims[d], bit/8)
									}
								}
							}
						}
					}
				}
			}
		}
	}
}
