package matrix_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
)

// numbering gives every element of a request, whoever holds it, a number of
// its own, from 0 up.
type numbering struct {
	model  geometry.Model
	tokens int64
	base   []int64 // by group; its last is the count of all
	passes [65]int // by element bits: in how many passes such elements spell out any number
}

func number(m geometry.Model, tokens int64) *numbering {
	n := &numbering{model: m, tokens: tokens, base: []int64{0}}
	for gi, g := range m.Groups {
		n.base = append(n.base, n.base[gi]+int64(len(g.Components)*m.Layers)*int64(max(g.Heads(), 1))*tokens*n.dim(gi))
	}
	for bits := range n.passes {
		n.passes[bits] = 1
		for left := (n.base[len(m.Groups)] - 1) >> bits; bits > 0 && left > 0; left >>= bits {
			n.passes[bits]++
		}
	}
	return n
}

// dim is the widest row of a group.
func (n *numbering) dim(gi int) int64 {
	d := 0
	for _, c := range n.model.Groups[gi].Components {
		d = max(d, c.Dim)
	}
	return int64(d)
}

func (n *numbering) of(c geometry.Coord) int64 {
	g := n.model.Groups[c.Group]
	i := int64(c.Component*n.model.Layers + c.Layer)
	i = i*int64(max(g.Heads(), 1)) + int64(c.Head)
	return n.base[c.Group] + (i*n.tokens+c.Token)*n.dim(c.Group) + int64(c.Dim)
}

// coord is the inverse of of.
func (n *numbering) coord(id int64) geometry.Coord {
	c := geometry.Coord{}
	for n.base[c.Group+1] <= id {
		c.Group++
	}
	id -= n.base[c.Group]
	take := func(size int64) int64 {
		x := id % size
		id /= size
		return x
	}
	c.Dim = int(take(n.dim(c.Group)))
	c.Token = take(n.tokens)
	c.Head = int(take(int64(max(n.model.Groups[c.Group].Heads(), 1))))
	c.Layer = int(take(int64(n.model.Layers)))
	c.Component = int(id)
	return c
}

// most is the passes that the smallest element takes: an element that is right
// in each of them is no other.
func (n *numbering) most() int {
	k := 1
	for _, g := range n.model.Groups {
		for _, c := range g.Components {
			k = max(k, n.passes[c.DType.Bits()])
		}
	}
	return k
}

// digit is what an element of so many bits holds in a pass.
func (n *numbering) digit(id int64, bits uint8, pass int) uint64 {
	return uint64(id) >> (int(bits) * (pass % n.passes[bits])) & (1<<bits - 1)
}

// place is where one element lies on a rank.
type place struct {
	bit    int64
	id     int64
	token  int32
	layer  int16
	group  int16
	region int16
	bits   uint8
}

// cache is the memory of one side, with the block tables of one request.
type cache struct {
	side   *plan.Side
	n      *numbering
	pools  []*host.Pool
	tables [][]uint32
	places [][]place // by rank: every element of the request's tokens from 0 on
}

// open makes a side's memory and deals block tables for tokens up to to, some
// with surplus entries.
func open(owner *host.Owner, s *plan.Side, n *numbering, to int64, rng *rand.Rand) (*cache, error) {
	c := &cache{side: s, n: n}
	for g, p := range s.Groups {
		need := entries(s, g, to)
		ids, err := host.NewBlocks(p.Blocks, rng.Uint64()).Alloc(need + rng.IntN(min(2, p.Blocks-need)+1))
		if err != nil {
			return nil, err
		}
		c.tables = append(c.tables, ids)
	}
	for r, layouts := range s.Ranks {
		spec := host.Spec{Engine: s.Engine, Rank: r}
		for g, l := range layouts {
			group := host.Group{Blocks: s.Groups[g].Blocks}
			if l != nil {
				for _, region := range l.Regions {
					group.Regions = append(group.Regions, host.Region{Name: region.Name, Bytes: region.Bytes})
				}
			}
			spec.Groups = append(spec.Groups, group)
		}
		p, err := owner.Open(spec, host.Options{SmallPages: true})
		if err != nil {
			return nil, err
		}
		c.pools = append(c.pools, p)
		c.places = append(c.places, c.lay(r, to))
	}
	return c, nil
}

func (c *cache) close() error {
	for _, p := range c.pools {
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

// ranks is the memory as providers register it.
func (c *cache) ranks() []memory.Rank {
	var out []memory.Rank
	for _, p := range c.pools {
		out = append(out, p.Rank())
	}
	return out
}

// lay lists the elements of tokens [0, to) that a rank holds.
func (c *cache) lay(rank int, to int64) []place {
	var out []place
	for gi, g := range c.side.Model.Groups {
		l, part := c.side.Ranks[rank][gi], c.side.Shard.Part(g, rank)
		if l == nil {
			continue
		}
		block := int64(c.side.Groups[gi].Block)
		for t := range to {
			u, held := part.Local(t)
			if !held {
				continue
			}
			id := int64(c.tables[gi][u/block])
			for ci, comp := range g.Components {
				for li, layer := range part.Layers {
					for h := range part.HeadCount() {
						at := geometry.Coord{Group: gi, Component: ci, Layer: layer, Token: t}
						if g.Heads() > 0 {
							at.Head = part.Heads[h]
						}
						first := c.n.of(at)
						for d := range int64(comp.Dim) {
							region, bit := l.Bit(ci, li, id, u%block, int64(h), d)
							out = append(out, place{bit, first + d, int32(t), int16(layer), int16(gi), int16(region), uint8(comp.DType.Bits())})
						}
					}
				}
			}
		}
	}
	return out
}

// box is some layers and tokens of a request.
type box struct {
	layers   plan.Range
	from, to int64
}

func (b box) holds(p *place) bool {
	return int64(p.token) >= b.from && int64(p.token) < b.to && int(p.layer) >= b.layers.From && int(p.layer) < b.layers.To
}

// memory is every region's bytes, [rank][group][region].
func (c *cache) memory() [][][][]byte {
	out := make([][][][]byte, len(c.pools))
	for r, layouts := range c.side.Ranks {
		out[r] = make([][][]byte, len(layouts))
		for g, l := range layouts {
			if l == nil {
				continue
			}
			for i := range l.Regions {
				out[r][g] = append(out[r][g], c.pools[r].Buffer(g, i).Bytes())
			}
		}
	}
	return out
}

// image is a copy of the memory.
func (c *cache) image() [][][][]byte {
	out := c.memory()
	for r := range out {
		for g := range out[r] {
			for i := range out[r][g] {
				out[r][g][i] = bytes.Clone(out[r][g][i])
			}
		}
	}
	return out
}

// noise fills all memory, padding and blocks of nobody included, with what
// differs from byte to byte and from seed to seed.
func (c *cache) noise(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x6e6f))
	for _, rank := range c.memory() {
		for _, group := range rank {
			for _, b := range group {
				for ; len(b) >= 8; b = b[8:] {
					binary.LittleEndian.PutUint64(b, rng.Uint64())
				}
				for i := range b {
					b[i] = byte(rng.Uint64())
				}
			}
		}
	}
}

// write puts the elements of a box into memory or an image of it.
func (c *cache) write(into [][][][]byte, pass int, b box) {
	for r := range into {
		for i := range c.places[r] {
			if p := &c.places[r][i]; b.holds(p) {
				put(into[r][p.group][p.region], p.bit, p.bits, c.n.digit(p.id, p.bits, pass))
			}
		}
	}
}

func put(b []byte, bit int64, bits uint8, v uint64) {
	at := bit / 8
	switch bits {
	case 4:
		shift := bit % 8
		b[at] = b[at]&^(15<<shift) | byte(v<<shift)
	case 8:
		b[at] = byte(v)
	case 16:
		binary.LittleEndian.PutUint16(b[at:], uint16(v))
	case 32:
		binary.LittleEndian.PutUint32(b[at:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[at:], v)
	}
}

// compare holds all memory against an image; it names the first element that
// differs, or the first byte that no element of the request owns.
func (c *cache) compare(want [][][][]byte) error {
	have := c.memory()
	for r := range want {
		for g := range want[r] {
			for i := range want[r][g] {
				if !bytes.Equal(have[r][g][i], want[r][g][i]) {
					return c.explain(r, g, i, have[r][g][i], want[r][g][i])
				}
			}
		}
	}
	return nil
}

func (c *cache) explain(rank, group, region int, have, want []byte) error {
	wrong, first := 0, -1
	for i := range have {
		if have[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	what := "which is no element of the request"
	for _, p := range c.places[rank] {
		if int(p.group) == group && int(p.region) == region && p.bit/8 <= int64(first) && (p.bit+int64(p.bits)-1)/8 >= int64(first) {
			what = c.n.coord(p.id).String()
			break
		}
	}
	return fmt.Errorf("%s rank %d group %d region %d: %d of %d bytes are wrong, the first at %d: %#x, want %#x: %s",
		c.side.Engine, rank, group, region, wrong, len(have), first, have[first], want[first], what)
}
