package tinyllm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// Cache is the model's paged KV cache on the memory of all ranks of one
// engine. It owns no memory and is safe for concurrent use by requests whose
// block tables are disjoint.
type Cache struct {
	block int64 // tokens a block
	dcp   int64
	ranks []rankCache
	// holders[layer][head] lists the ranks that hold the head's rows, by DCP
	// phase; replicas in rank order.
	holders [][][][]holder
}

type holder struct{ rank, layer, head int } // places on the rank

type rankCache struct {
	part    shard.Part
	layout  *layout.Layout
	regions [][]byte
	// Byte offsets of each place along an axis, by map: an element's offset is
	// the sum of its axes'. Kept, since attention asks for every row.
	blocks, tokens, heads, dims [][]int64
}

// NewCache views regions ([rank][region], as each rank's layout names them) as
// the cache of an engine that holds m's group 0 so sharded.
func NewCache(m geometry.Model, s shard.Spec, layouts []*layout.Layout, regions [][][]byte) (*Cache, error) {
	if err := s.Validate(m); err != nil {
		return nil, fmt.Errorf("view a cache: %w", err)
	}
	if len(layouts) != s.Ranks() || len(regions) != s.Ranks() {
		return nil, fmt.Errorf("tinyllm: %d layouts and %d memories for %d ranks", len(layouts), len(regions), s.Ranks())
	}
	g := m.Groups[0]
	c := &Cache{block: int64(layouts[0].Extent.Tokens), dcp: int64(s.DCPSize)}
	c.holders = make([][][][]holder, m.Layers)
	for l := range c.holders {
		c.holders[l] = make([][][]holder, g.Heads())
		for h := range c.holders[l] {
			c.holders[l][h] = make([][]holder, s.DCPSize)
		}
	}
	for r, l := range layouts {
		part := s.Part(g, r)
		rc := rankCache{part: part, layout: l, regions: regions[r]}
		if len(rc.regions) != len(l.Regions) {
			return nil, fmt.Errorf("tinyllm: rank %d has %d regions of memory, its layout %d", r, len(rc.regions), len(l.Regions))
		}
		for i, region := range l.Regions {
			if int64(len(rc.regions[i])) < region.Bytes {
				return nil, fmt.Errorf("tinyllm: rank %d region %s has %d bytes, its layout needs %d", r, region.Name, len(rc.regions[i]), region.Bytes)
			}
		}
		for _, digits := range l.Maps {
			rc.blocks = append(rc.blocks, offsets(digits, geometry.Block, l.Extent.Blocks))
			rc.tokens = append(rc.tokens, offsets(digits, geometry.Token, l.Extent.Tokens))
			rc.heads = append(rc.heads, offsets(digits, geometry.Head, l.Extent.Heads))
			rc.dims = append(rc.dims, offsets(digits, geometry.Dim, g.Components[0].Dim))
		}
		c.ranks = append(c.ranks, rc)
		for li, layer := range part.Layers {
			for hi, head := range part.Heads {
				at := &c.holders[layer][head][part.Phase]
				*at = append(*at, holder{r, li, hi})
			}
		}
	}
	return c, nil
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

// row returns the region and the byte offset of dim 0 of a row, and the
// offsets of its dims from there.
func (c *Cache) row(table []uint32, component int, at holder, token int64) ([]byte, int64, []int64) {
	r := &c.ranks[at.rank]
	local, _ := r.part.Local(token)
	p := &r.layout.Places[component][at.layer]
	offset := p.Offset/8 + r.blocks[p.Map][table[local/c.block]] + r.tokens[p.Map][local%c.block] + r.heads[p.Map][at.head]
	return r.regions[p.Region], offset, r.dims[p.Map]
}

func (c *Cache) at(layer, head int, token int64) []holder {
	interleave := int64(c.ranks[0].part.Interleave)
	return c.holders[layer][head][token/interleave%c.dcp]
}

// write stores a row in every replica, rounded to bf16.
func (c *Cache) write(table []uint32, component, layer, head int, token int64, row []float32) {
	for _, h := range c.at(layer, head, token) {
		region, base, dims := c.row(table, component, h, token)
		for d, v := range row {
			binary.LittleEndian.PutUint16(region[base+dims[d]:], bf16(v))
		}
	}
}

// read loads a row for a query head. Replicas take turns by token and query
// head, so that every one of them matters.
func (c *Cache) read(table []uint32, component, layer, head int, token int64, query int, row []float32) {
	holders := c.at(layer, head, token)
	h := holders[(int(token)+query)%len(holders)]
	region, base, dims := c.row(table, component, h, token)
	for d := range row {
		row[d] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(region[base+dims[d]:])) << 16)
	}
}

// Zero clears every row of the first n tokens of a table, on all ranks.
func (c *Cache) Zero(table []uint32, n int64) {
	zero := make([]float32, len(c.ranks[0].dims[0]))
	for layer := range c.holders {
		for head := range c.holders[layer] {
			for t := range n {
				c.write(table, 0, layer, head, t, zero)
				c.write(table, 1, layer, head, t, zero)
			}
		}
	}
}

// bf16 rounds to nearest even.
func bf16(v float32) uint16 {
	b := math.Float32bits(v)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
