package proof_test

import (
	"math/rand/v2"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// verdict is what the twin says about a plan.
type verdict struct {
	right bool
	// first is the first element that is not written exactly once from where
	// it should be, in the order of group, rank, layer, component, head, token
	// and dim; elsewhere says that something else was touched, too.
	first     geometry.Coord
	rank      int
	none      bool // every element is right (but elsewhere may not be)
	elsewhere bool
	wrong     int // elements
	all       int

	// parted says that first is a scale, in a layer that is right otherwise,
	// and row the first element that it scales and that comes from another
	// source rank.
	parted bool
	row    geometry.Coord
}

// padding is what lies where no element of a table's block does.
const padding = -1

// numbering gives every unit of every element of a group a number of its own.
type numbering struct {
	g     geometry.Group
	heads int // of the component with most
	toks  int64
	dim   int
	parts int
}

func (n *numbering) number(component, layer, head int, token int64, dim, part int) int64 {
	return ((((int64(component)*1<<14+int64(layer))*int64(n.heads)+int64(head))*n.toks+token)*int64(n.dim)+int64(dim))*int64(n.parts) + int64(part)
}

func (n *numbering) layer(number int64) int {
	return int(number / int64(n.parts) / int64(n.dim) / n.toks / int64(n.heads) % (1 << 14))
}

// entry is the tokens of one entry of a component.
func entry(c *geometry.Component) int64 { return int64(max(c.Entry, 1)) }

// moves reports whether a plan of a window moves the entry that starts with a
// token: that of a scale with its first token, any other with its last.
func moves(c *geometry.Component, w *plan.Period, first int64) bool {
	decides := first + entry(c) - 1
	if c.Scales != "" {
		decides = first
	}
	return decides >= w.From && decides < w.To
}

// names are the model's heads of a component on a rank; 0 for one without.
func names(p *shard.Part, component int) []int {
	if p.Heads[component] == nil {
		return []int{0}
	}
	return p.Heads[component]
}

// memory is one side's, by rank and region.
type memory struct {
	unit [][][]int64
	// Of the destination: how often each was written, and from which rank last.
	times [][][]uint8
	from  [][][]int
}

// empty makes the memory of a group.
func empty(s *plan.Side, gi int, size int64) *memory {
	n := len(s.Ranks)
	mem := &memory{make([][][]int64, n), make([][][]uint8, n), make([][][]int, n)}
	for r, ls := range s.Ranks {
		if ls[gi] == nil {
			continue
		}
		for _, reg := range ls[gi].Regions {
			units := make([]int64, reg.Bytes*8/size)
			for i := range units {
				units[i] = padding
			}
			mem.unit[r] = append(mem.unit[r], units)
			mem.times[r] = append(mem.times[r], make([]uint8, len(units)))
			mem.from[r] = append(mem.from[r], make([]int, len(units)))
		}
	}
	return mem
}

// judge is the deliberately dumb twin of the proof: it carries the plan out,
// byte by byte (half a byte where elements are that small), between two caches
// whose blocks lie at random ids, and looks at every element afterwards. It
// knows where elements lie from layout.Bit only. Only small pairs can be judged.
func judge(p *plan.Pair, pl *plan.Plan, rng *rand.Rand) verdict {
	v := verdict{right: true, none: true}
	size := int64(8)
	for _, g := range p.Source.Model.Groups {
		for _, c := range g.Components {
			size = min(size, c.DType.Bits())
		}
	}
	for gi, g := range p.Source.Model.Groups {
		w := pl.Groups[gi]
		n := numbering{g: g, heads: 1, toks: w.Tokens, parts: int(64 / size)}
		for _, c := range g.Components {
			n.dim, n.heads = max(n.dim, c.Dim), max(n.heads, c.Heads)
		}
		st, dt := table(w.SourceBlocks, p.Source.Groups[gi].Blocks, rng), table(w.DestinationBlocks, p.Destination.Groups[gi].Blocks, rng)
		from := fill(&p.Source, gi, &n, st, size)
		to := empty(&p.Destination, gi, size)
		scales := slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.Scales != "" })
		for ri := range pl.Runs {
			run := &pl.Runs[ri]
			if run.Edge < 0 || run.Edge >= len(pl.Edges) {
				v.right, v.elsewhere = false, true
				continue
			}
			if e := pl.Edges[run.Edge]; e.Group == gi {
				if !execute(p, pl, run, e, from, to, st, dt, size, &n) {
					v.right, v.elsewhere = false, true
				}
			}
		}
		// What is due.
		for r, ls := range p.Destination.Ranks {
			if ls[gi] == nil {
				continue
			}
			l := ls[gi]
			part := p.Destination.Part(gi, r)
			for li, layer := range part.Layers {
				found := v.none
				var came []origin
				for ci := range g.Components {
					c := &g.Components[ci]
					for h, head := range names(&part, ci) {
						for t := int64(0); t < w.Tokens; t += entry(c) {
							u, held := part.Local(t)
							if !held || !moves(c, &w, t) {
								continue
							}
							block, in := u/int64(l.Extent.Tokens), u%int64(l.Extent.Tokens)/entry(c)
							for d := range c.Dim {
								region, bit := l.Bit(ci, li, int64(dt[block]), in, int64(h), int64(d))
								v.all++
								at := geometry.Coord{Group: gi, Component: ci, Layer: layer, Head: head, Token: t, Dim: d}
								fine := true
								for k := range int(c.DType.Bits() / size) {
									i := bit/size + int64(k)
									fine = fine && to.unit[r][region][i] == n.number(ci, layer, head, t, d, k) && to.times[r][region][i] == 1
									to.times[r][region][i] = 0
								}
								if scales {
									came = append(came, origin{at, to.from[r][region][bit/size]})
								}
								if !fine {
									v.wrong++
									v.right = false
									if v.none {
										v.none = false
										v.rank = r
										v.first = at
									}
								}
							}
						}
					}
				}
				if found && v.none {
					v.apart(&g, r, came)
				}
			}
			for _, mem := range to.times[r] {
				for _, x := range mem {
					if x != 0 {
						v.right, v.elsewhere = false, true
					}
				}
			}
		}
	}
	return v
}

// origin is an element and the source rank that it came from.
type origin struct {
	at   geometry.Coord
	rank int
}

// apart looks for the first scale of a layer that comes from another source
// rank than an element that it scales, both in the order of the elements.
func (v *verdict) apart(g *geometry.Group, rank int, came []origin) {
	for si := range g.Components {
		scale := &g.Components[si]
		if scale.Scales == "" {
			continue
		}
		type key struct {
			head  int
			token int64
		}
		of := func(at geometry.Coord) key {
			if scale.Heads == 0 {
				at.Head = 0
			}
			return key{at.Head, at.Token / entry(scale)}
		}
		rows := map[key][]origin{}
		for _, o := range came {
			if g.Components[o.at.Component].Name == scale.Scales {
				rows[of(o.at)] = append(rows[of(o.at)], o)
			}
		}
		for _, s := range came {
			if s.at.Component != si {
				continue
			}
			for _, o := range rows[of(s.at)] {
				if o.rank != s.rank {
					v.right, v.none, v.parted, v.rank, v.first, v.row = false, false, true, rank, s.at, o.at
					return
				}
			}
		}
	}
}

// table deals n different block ids of a pool.
//
// Preconditions: the pool holds a period.
func table(n int64, pool int, rng *rand.Rand) []int {
	if n > int64(pool) {
		panic("the twin needs a pool that holds a period")
	}
	return rng.Perm(pool)[:n]
}

// fill makes a side's memory: every element of the table's blocks holds its
// number.
func fill(s *plan.Side, gi int, n *numbering, table []int, size int64) *memory {
	mem := empty(s, gi, size)
	g := s.Model.Groups[gi]
	for r, ls := range s.Ranks {
		l := ls[gi]
		if l == nil {
			continue
		}
		part := s.Part(gi, r)
		for place, block := range table {
			for ci := range g.Components {
				c := &g.Components[ci]
				for in := range int64(l.Extent.Tokens) / entry(c) {
					t := part.Token(int64(place*l.Extent.Tokens) + in*entry(c))
					for li, layer := range part.Layers {
						for h, head := range names(&part, ci) {
							for d := range c.Dim {
								region, bit := l.Bit(ci, li, int64(block), in, int64(h), int64(d))
								for k := range int(c.DType.Bits() / size) {
									mem.unit[r][region][bit/size+int64(k)] = n.number(ci, layer, head, t, d, k)
								}
							}
						}
					}
				}
			}
		}
	}
	return mem
}

// execute carries one run out. It is false where the run touches what it may
// not: bytes outside a region, no element, or a layer that it does not carry.
func execute(p *plan.Pair, pl *plan.Plan, run *plan.Run, e plan.Edge, from, to *memory, st, dt []int, size int64, n *numbering) bool {
	sl, dl := sideLayout(&p.Source, e.Source, e.Group), sideLayout(&p.Destination, e.Destination, e.Group)
	if sl == nil || dl == nil || run.Piece < 0 || run.Piece >= len(pl.Pieces) ||
		run.SourceRegion < 0 || run.SourceRegion >= len(sl.Regions) || run.DestinationRegion < 0 || run.DestinationRegion >= len(dl.Regions) ||
		run.SourceMap < 0 || run.SourceMap >= len(sl.Maps) || run.DestinationMap < 0 || run.DestinationMap >= len(dl.Maps) || run.Bytes < 1 || run.Bytes > 1<<20 {
		return false
	}
	q := pl.Pieces[run.Piece]
	if q.SourceBlock < 0 || q.SourceBlock >= int64(len(st)) || q.DestinationBlock < 0 || q.DestinationBlock >= int64(len(dt)) {
		return false
	}
	so := run.SourceOffset + plan.BlockOffset(sl, run.SourceMap, int64(st[q.SourceBlock]))
	do := run.DestinationOffset + plan.BlockOffset(dl, run.DestinationMap, int64(dt[q.DestinationBlock]))
	src, dst := from.unit[e.Source][run.SourceRegion], to.unit[e.Destination][run.DestinationRegion]
	times, whence := to.times[e.Destination][run.DestinationRegion], to.from[e.Destination][run.DestinationRegion]
	fine := true
	work := 0
	var loop func(k int, so, do int64)
	loop = func(k int, so, do int64) {
		if k < len(run.Loops) {
			l := run.Loops[k]
			if l.Count < 1 {
				fine = false
			}
			for i := int64(0); i < l.Count; i++ {
				loop(k+1, so+i*l.SourceStride, do+i*l.DestinationStride)
				if work++; work > 1<<20 {
					fine = false
					return
				}
			}
			return
		}
		for i := range run.Bytes * 8 / size {
			s, d := so*8/size+i, do*8/size+i
			if so < 0 || do < 0 || s >= int64(len(src)) || d >= int64(len(dst)) {
				fine = false
				return
			}
			dst[d] = src[s]
			whence[d] = e.Source
			if times[d] < 2 {
				times[d]++
			}
			if src[s] < 0 || n.layer(src[s]) != run.Layer {
				fine = false
			}
			work++
		}
	}
	loop(0, so, do)
	return fine
}

func sideLayout(s *plan.Side, rank, group int) *layout.Layout {
	if rank < 0 || rank >= len(s.Ranks) {
		return nil
	}
	return s.Ranks[rank][group]
}
