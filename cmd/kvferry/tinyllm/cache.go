package tinyllm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// Holding is how an engine holds one group of the model's cache.
type Holding struct {
	Shard   shard.Spec
	Ring    int              // blocks that a request goes round in; 0: a table without end
	Layouts []*layout.Layout // by rank; nil where the rank holds none of the group's layers
	Regions [][][]byte       // [rank][region], as the rank's layout names them
}

// Tables are a request's block tables by group. A group that goes round in a
// ring has the ring's blocks, one of states the request's slot.
type Tables [][]uint32

// Cache is the model's paged cache on the memory of all ranks of one engine.
// It owns no memory and is safe for concurrent use by requests whose block
// tables are disjoint.
type Cache struct{ groups []group }

// group is one group of the cache.
type group struct {
	state                        bool
	block, ring, dcp, interleave int64
	components                   []geometry.Component
	ranks                        []*rank // nil: nothing of the group
	// holders[component][layer][head][phase] lists the ranks that hold the
	// head's rows, by DCP phase; replicas in rank order. Layers are counted
	// within the group.
	holders [][][][][]holder
}

type holder struct{ rank, layer, head int } // places on the rank

type rank struct {
	part    shard.Part
	layout  *layout.Layout
	regions [][]byte
	// Byte offsets of each place along an axis, by map: an element's offset is
	// the sum of its axes'. Kept, since attention asks for every row.
	blocks, tokens, heads, dims [][]int64
}

// NewCache views memory as the cache of an engine that holds m's groups so.
func NewCache(m geometry.Model, held []Holding) (*Cache, error) {
	if len(held) != len(m.Groups) {
		return nil, fmt.Errorf("tinyllm: %d groups are held, the model has %d", len(held), len(m.Groups))
	}
	c := &Cache{groups: make([]group, len(held))}
	for g, h := range held {
		if err := h.Shard.Validate(m.Select([]int{g})); err != nil {
			return nil, fmt.Errorf("view a cache: %w", err)
		}
		if n := h.Shard.Ranks(); len(h.Layouts) != n || len(h.Regions) != n {
			return nil, fmt.Errorf("tinyllm: %d layouts and %d memories for %d ranks", len(h.Layouts), len(h.Regions), n)
		}
		if err := c.groups[g].view(m.Groups[g], h); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (g *group) view(of geometry.Group, h Holding) error {
	g.state, g.components, g.ring = of.State, of.Components, int64(h.Ring)
	g.dcp, g.interleave = int64(h.Shard.DCPSize), int64(h.Shard.Interleave)
	place := map[int]int{} // of a layer in the group
	for i, l := range of.Layers {
		place[l] = i
	}
	g.holders = make([][][][][]holder, len(of.Components))
	for ci, c := range of.Components {
		g.holders[ci] = make([][][][]holder, len(of.Layers))
		for li := range of.Layers {
			g.holders[ci][li] = make([][][]holder, c.HeadCount())
			for hi := range g.holders[ci][li] {
				g.holders[ci][li][hi] = make([][]holder, h.Shard.DCPSize)
			}
		}
	}
	for r, l := range h.Layouts {
		part := h.Shard.Part(of, r)
		if l == nil {
			if len(part.Layers) > 0 {
				return fmt.Errorf("tinyllm: rank %d holds layers %s and has no layout", r, geometry.Ranges(part.Layers))
			}
			g.ranks = append(g.ranks, nil)
			continue
		}
		own, err := newRank(r, part, l, h.Regions[r])
		if err != nil {
			return err
		}
		g.block = int64(l.Extent.Tokens)
		g.ranks = append(g.ranks, own)
		for ci, c := range of.Components {
			heads := part.Heads[ci]
			if c.Heads == 0 {
				heads = []int{0}
			}
			for li, layer := range part.Layers {
				for hi, head := range heads {
					at := &g.holders[ci][place[layer]][head][part.Phase]
					*at = append(*at, holder{r, li, hi})
				}
			}
		}
	}
	return nil
}

func newRank(r int, part shard.Part, l *layout.Layout, regions [][]byte) (*rank, error) {
	if len(regions) != len(l.Regions) {
		return nil, fmt.Errorf("tinyllm: rank %d has %d regions of memory, its layout %d", r, len(regions), len(l.Regions))
	}
	for i, region := range l.Regions {
		if int64(len(regions[i])) < region.Bytes {
			return nil, fmt.Errorf("tinyllm: rank %d region %s has %d bytes, its layout needs %d", r, region.Name, len(regions[i]), region.Bytes)
		}
	}
	out := &rank{part: part, layout: l, regions: regions}
	heads, dims := 1, 1 // components that share a map may differ in these
	for ci, c := range l.Extent.Components {
		heads, dims = max(heads, l.Extent.Heads[ci]), max(dims, c.Dim)
	}
	for _, digits := range l.Maps {
		out.blocks = append(out.blocks, offsets(digits, geometry.Block, l.Extent.Blocks))
		out.tokens = append(out.tokens, offsets(digits, geometry.Token, l.Extent.Tokens))
		out.heads = append(out.heads, offsets(digits, geometry.Head, heads))
		out.dims = append(out.dims, offsets(digits, geometry.Dim, dims))
	}
	return out, nil
}

// offsets are the byte offsets of n places along one axis.
func offsets(digits []layout.Digit, axis geometry.Axis, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		for _, d := range digits {
			if d.Axis == axis {
				out[i] += int64(i) % d.Mod / d.Div * d.Stride / 8
			}
		}
	}
	return out
}

// Row names a row of one rank's memory. Layer, Token and Head are places on
// the rank: the layer's in its layout, the token's in its block, the head's
// among those that the rank holds.
type Row struct {
	Group, Rank, Component, Layer int
	Block                         uint32
	Token, Head                   int
}

// find returns the region and the byte offset of dim 0 of a row, and the
// offsets of its dims from there.
func (r *rank) find(at Row) ([]byte, int64, []int64) {
	p := &r.layout.Places[at.Component][at.Layer]
	offset := p.Offset/8 + r.blocks[p.Map][at.Block] + r.tokens[p.Map][at.Token] + r.heads[p.Map][at.Head]
	return r.regions[p.Region], offset, r.dims[p.Map]
}

// Store writes a row, each number rounded to the component's dtype. It is what
// every write of the model comes to.
//
// Preconditions: the row lies on the rank, and row has the component's dims.
func (c *Cache) Store(at Row, row []float32) {
	g := &c.groups[at.Group]
	region, base, dims := g.ranks[at.Rank].find(at)
	switch g.components[at.Component].DType {
	case geometry.BF16:
		for d, v := range row {
			binary.LittleEndian.PutUint16(region[base+dims[d]:], bf16(v))
		}
	case geometry.FP8E4M3:
		for d, v := range row {
			region[base+dims[d]] = e4m3(v)
		}
	default: // fp32, the only other one that Geometry names
		for d, v := range row {
			binary.LittleEndian.PutUint32(region[base+dims[d]:], math.Float32bits(v))
		}
	}
}

// Load reads a row. It is what every read of the model comes to.
//
// Preconditions: as for Store.
func (c *Cache) Load(at Row, row []float32) {
	g := &c.groups[at.Group]
	region, base, dims := g.ranks[at.Rank].find(at)
	switch g.components[at.Component].DType {
	case geometry.BF16:
		for d := range row {
			row[d] = fromBF16(binary.LittleEndian.Uint16(region[base+dims[d]:]))
		}
	case geometry.FP8E4M3:
		for d := range row {
			row[d] = fromE4M3(region[base+dims[d]])
		}
	default:
		for d := range row {
			row[d] = math.Float32frombits(binary.LittleEndian.Uint32(region[base+dims[d]:]))
		}
	}
}

// at are the ranks that hold a row of a token.
func (g *group) at(component, layer, head int, token int64) []holder {
	return g.holders[component][layer][head][token/g.interleave%g.dcp]
}

// row is where a token's row lies with one of its holders.
func (c *Cache) row(t Tables, group, component int, h holder, token int64) Row {
	g := &c.groups[group]
	at := Row{Group: group, Rank: h.rank, Component: component, Layer: h.layer, Head: h.head}
	if g.state {
		at.Block = t[group][0]
		return at
	}
	local, _ := g.ranks[h.rank].part.Local(token)
	entry := local / g.block
	if g.ring > 0 {
		entry %= g.ring
	}
	at.Block, at.Token = t[group][entry], int(local%g.block)
	return at
}

// write stores a row of a token, or of a state, in every replica.
func (c *Cache) write(t Tables, group, component, layer, head int, token int64, row []float32) {
	for _, h := range c.groups[group].at(component, layer, head, token) {
		c.Store(c.row(t, group, component, h, token), row)
	}
}

// read loads a token's row for a query head. Replicas take turns by token and
// query head, so that every one of them matters.
func (c *Cache) read(t Tables, group, component, layer, head int, token int64, query int, row []float32) {
	holders := c.groups[group].at(component, layer, head, token)
	h := holders[(int(token)+query)%len(holders)]
	c.Load(c.row(t, group, component, h, token), row)
}

// readState loads a row of a state. It is read once for all that follows, so
// replicas take turns by element.
func (c *Cache) readState(t Tables, group, component, layer, head int, row []float32) {
	holders := c.groups[group].at(component, layer, head, 0)
	c.Load(c.row(t, group, component, holders[0], 0), row)
	if len(holders) == 1 {
		return
	}
	other := make([]float32, len(row))
	for i, h := range holders {
		c.Load(c.row(t, group, component, h, 0), other)
		for d := range row {
			if (head+d)%len(holders) == i {
				row[d] = other[d]
			}
		}
	}
}

// Zero clears every row of the first n tokens of a request, and its states, on
// all ranks.
func (c *Cache) Zero(t Tables, n int64) {
	for g := range c.groups {
		for component := range c.groups[g].components {
			for layer := range c.groups[g].holders[component] {
				c.zero(t, g, component, layer, n)
			}
		}
	}
}

func (c *Cache) zero(t Tables, group, component, layer int, n int64) {
	if c.groups[group].state {
		n = 1
	}
	row := make([]float32, c.groups[group].components[component].Dim)
	for head := range c.groups[group].holders[component][layer] {
		for token := range n {
			c.write(t, group, component, layer, head, token, row)
		}
	}
}
