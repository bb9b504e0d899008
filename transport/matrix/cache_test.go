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
	"github.com/kvferry/kvferry/plan/stamp"
)

// numbering gives every element of a request, whoever holds it, a number of
// its own, from 0 up.
type numbering struct {
	model  geometry.Model
	tokens int64
	base   [][]int64 // by group and component: its first number
	count  int64     // of all
	passes [65]int   // by element bits: in how many passes such elements spell out any number
}

func number(m geometry.Model, tokens int64) *numbering {
	n := &numbering{model: m, tokens: tokens}
	for gi, g := range m.Groups {
		n.base = append(n.base, nil)
		for ci, c := range g.Components {
			n.base[gi] = append(n.base[gi], n.count)
			n.count += int64(m.Layers) * n.entries(gi, ci) * int64(c.HeadCount()) * int64(c.Dim)
		}
	}
	for bits := range n.passes {
		n.passes[bits] = 1
		for left := (n.count - 1) >> bits; bits > 0 && left > 0; left >>= bits {
			n.passes[bits]++
		}
	}
	return n
}

// entries is how many entries of a component the request's tokens have, the
// last of which may be of fewer tokens.
func (n *numbering) entries(gi, ci int) int64 {
	g := n.model.Groups[gi]
	if g.State {
		return 1
	}
	e := int64(g.Components[ci].EntryTokens())
	return (n.tokens + e - 1) / e
}

// of is the number of an element. Its token is the first of its entry's.
func (n *numbering) of(c geometry.Coord) int64 {
	comp := &n.model.Groups[c.Group].Components[c.Component]
	i := int64(c.Layer)*n.entries(c.Group, c.Component) + c.Token/int64(comp.EntryTokens())
	i = i*int64(comp.HeadCount()) + int64(c.Head)
	return n.base[c.Group][c.Component] + i*int64(comp.Dim) + int64(c.Dim)
}

// coord is the inverse of of.
func (n *numbering) coord(id int64) geometry.Coord {
	var c geometry.Coord
	for gi := range n.base {
		for ci, base := range n.base[gi] {
			if base <= id {
				c.Group, c.Component = gi, ci
			}
		}
	}
	comp := &n.model.Groups[c.Group].Components[c.Component]
	id -= n.base[c.Group][c.Component]
	take := func(size int64) int64 {
		x := id % size
		id /= size
		return x
	}
	c.Dim = int(take(int64(comp.Dim)))
	c.Head = int(take(int64(comp.HeadCount())))
	c.Token = take(n.entries(c.Group, c.Component)) * int64(comp.EntryTokens())
	c.Layer = int(id)
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
	token  int32 // with which the element is moved; 0 for a state
	layer  int16
	group  int16 // of the pair
	own    int16 // the engine's number of the group
	region int16
	bits   uint8
}

// cache is the memory of one side, with the block tables of one request.
type cache struct {
	engine *plan.Side // with all groups that it has: memory is by these
	side   *plan.Side // as it is in the pair
	n      *numbering
	pools  []*host.Pool
	raw    [][]uint32 // by group of the pair, as the engine gives its tables
	gone   []int64    // leading entries of the request that they do not have
	tables [][]uint32 // as a stamp.Request wants them
	first  []int64    // leading entries that these leave out
	places [][]place  // by rank: every element of the request's tokens that the side holds
}

// open makes an engine's memory and deals block tables for tokens up to to,
// some with surplus entries, and of windows some without what is no longer
// needed.
func open(owner *host.Owner, engine, side *plan.Side, n *numbering, to int64, rng *rand.Rand) (*cache, error) {
	c := &cache{engine: engine, side: side, n: n}
	for g, p := range side.Groups {
		need := entries(side, g, to)
		all := need
		surplus := rng.IntN(max(min(2, p.Blocks-need), 0) + 1)
		if p.Ring > 0 {
			need, surplus = p.Ring, 0
		}
		window := side.Model.Groups[g].Window
		if side.Model.Groups[g].State || window > 0 {
			surplus = 0 // a table that is cut short ends with the request
		}
		ids, err := host.NewBlocks(p.Blocks, rng.Uint64()).Alloc(need + surplus)
		if err != nil {
			return nil, err
		}
		if window > 0 && p.Ring == 0 {
			ids = ids[rng.IntN(spare(side, g, to)+1):]
		}
		c.raw, c.gone = append(c.raw, ids), append(c.gone, int64(max(0, all-len(ids))))
	}
	var err error
	if c.tables, c.first, err = stamp.Held(side, c.raw, to); err != nil {
		return nil, err
	}
	for r, layouts := range engine.Ranks {
		spec := host.Spec{Engine: engine.Engine, Rank: r}
		for g, l := range layouts {
			group := host.Group{Blocks: engine.Groups[g].Blocks}
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

// held is the first token from which on a side holds every token up to to, if
// its table leaves out the given number of leading entries: by looking at each.
func held(s *plan.Side, g int, first, to int64) int64 {
	block := int64(s.Groups[g].Block)
	from := to
	for ; from > 0; from-- {
		for r := range s.Ranks {
			if u, ok := s.Part(g, r).Local(from - 1); ok && u/block < first {
				return from
			}
		}
	}
	return from
}

// spare is how many leading entries of a window's table are no longer needed:
// the layers of a request of tokens up to to look back over the window only.
func spare(s *plan.Side, g int, to int64) int {
	n := 0
	for held(s, g, int64(n+1), to) <= max(0, to-int64(s.Model.Groups[g].Window)) && n+1 < entries(s, g, to) {
		n++
	}
	return n
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
	size := 0
	for gi, g := range c.side.Model.Groups {
		for ci, comp := range g.Components {
			part := c.side.Part(gi, rank)
			size += int(c.n.entries(gi, ci)+1) / part.Size * len(part.Layers) * max(len(part.Heads[ci]), 1) * comp.Dim
		}
	}
	out := make([]place, 0, size)
	for gi, g := range c.side.Model.Groups {
		l, part := c.side.Ranks[rank][gi], c.side.Part(gi, rank)
		if l == nil {
			continue
		}
		block, end := int64(c.side.Groups[gi].Block), to
		if g.State {
			end = 1 // of its one place
		}
		for ci, comp := range g.Components {
			e := int64(comp.EntryTokens())
			for t := int64(0); t < end; t += e {
				u, mine := t, true
				if !g.State {
					u, mine = part.Local(t)
				}
				moves := t + e - 1 // with the last of its tokens
				if comp.Scales != "" {
					moves = t
				}
				if !mine || u/block < c.gone[gi] || moves >= end {
					continue
				}
				entry := u/block - c.gone[gi]
				if ring := int64(c.side.Groups[gi].Ring); ring > 0 {
					entry = u / block % ring
				}
				id := int64(c.raw[gi][entry])
				for li, layer := range part.Layers {
					for h := range max(len(part.Heads[ci]), 1) {
						at := geometry.Coord{Group: gi, Component: ci, Layer: layer, Token: t}
						if comp.Heads > 0 {
							at.Head = part.Heads[ci][h]
						}
						first := c.n.of(at)
						for d := range int64(comp.Dim) {
							region, bit := l.Bit(ci, li, id, u%block/e, int64(h), d)
							out = append(out, place{bit, first + d, int32(moves), int16(layer), int16(gi), int16(c.side.OwnGroup(gi)), int16(region), uint8(comp.DType.Bits())})
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
	spans    []stamp.Span // by group, of states [0, 1); nil: from and to of every group of tokens, and every state
}

func (b box) holds(p *place, g *geometry.Group) bool {
	from, to := b.from, b.to
	switch {
	case b.spans != nil:
		from, to = b.spans[p.group].From, b.spans[p.group].To
	case g.State:
		from, to = 0, 1
	}
	return int64(p.token) >= from && int64(p.token) < to && int(p.layer) >= b.layers.From && int(p.layer) < b.layers.To
}

// memory is every region's bytes, [rank][group of the engine][region].
func (c *cache) memory() [][][][]byte {
	out := make([][][][]byte, len(c.pools))
	for r, layouts := range c.engine.Ranks {
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
			if p := &c.places[r][i]; b.holds(p, &c.n.model.Groups[p.group]) {
				put(into[r][p.own][p.region], p.bit, p.bits, c.n.digit(p.id, p.bits, pass))
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
		if int(p.own) == group && int(p.region) == region && p.bit/8 <= int64(first) && (p.bit+int64(p.bits)-1)/8 >= int64(first) {
			what = c.n.coord(p.id).String()
			break
		}
	}
	return fmt.Errorf("%s rank %d group %d region %d: %d of %d bytes are wrong, the first at %d: %#x, want %#x: %s",
		c.side.Engine, rank, group, region, wrong, len(have), first, have[first], want[first], what)
}
