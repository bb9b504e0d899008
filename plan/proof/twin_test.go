package proof_test

import (
	"math/rand/v2"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
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
}

// padding is what lies where no element of a table's block does.
const padding = -1

// numbering gives every unit of every element of a group a number of its own.
type numbering struct {
	g     geometry.Group
	heads int
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
		n := numbering{g: g, heads: max(g.Heads(), 1), toks: w.Tokens, parts: int(64 / size)}
		for _, c := range g.Components {
			n.dim = max(n.dim, c.Dim)
		}
		st, dt := table(w.SourceBlocks, p.Source.Groups[gi].Blocks, rng), table(w.DestinationBlocks, p.Destination.Groups[gi].Blocks, rng)
		from := fill(&p.Source, gi, &n, st, size)
		to := make([][][]int64, len(p.Destination.Ranks))
		times := make([][][]uint8, len(to))
		for r, ls := range p.Destination.Ranks {
			if ls[gi] == nil {
				continue
			}
			for _, reg := range ls[gi].Regions {
				mem := make([]int64, reg.Bytes*8/size)
				for i := range mem {
					mem[i] = padding
				}
				to[r] = append(to[r], mem)
				times[r] = append(times[r], make([]uint8, len(mem)))
			}
		}
		for ri := range pl.Runs {
			run := &pl.Runs[ri]
			if run.Edge < 0 || run.Edge >= len(pl.Edges) {
				v.right, v.elsewhere = false, true
				continue
			}
			if e := pl.Edges[run.Edge]; e.Group == gi {
				if !execute(p, pl, run, e, from, to, times, st, dt, size, &n) {
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
			part := p.Destination.Shard.Part(g, r)
			for li, layer := range part.Layers {
				for ci, c := range g.Components {
					for h := range part.HeadCount() {
						head := 0
						if g.Heads() > 0 {
							head = part.Heads[h]
						}
						for t := w.From; t < w.To; t++ {
							u, held := part.Local(t)
							if !held {
								continue
							}
							block, in := u/int64(l.Extent.Tokens), u%int64(l.Extent.Tokens)
							for d := range c.Dim {
								region, bit := l.Bit(ci, li, int64(dt[block]), in, int64(h), int64(d))
								v.all++
								fine := true
								for k := range int(c.DType.Bits() / size) {
									i := bit/size + int64(k)
									fine = fine && to[r][region][i] == n.number(ci, layer, head, t, d, k) && times[r][region][i] == 1
									times[r][region][i] = 0
								}
								if !fine {
									v.wrong++
									v.right = false
									if v.none {
										v.none = false
										v.rank = r
										v.first = geometry.Coord{Group: gi, Component: ci, Layer: layer, Head: head, Token: t, Dim: d}
									}
								}
							}
						}
					}
				}
			}
			for _, mem := range times[r] {
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
func fill(s *plan.Side, gi int, n *numbering, table []int, size int64) [][][]int64 {
	out := make([][][]int64, len(s.Ranks))
	g := s.Model.Groups[gi]
	for r, ls := range s.Ranks {
		l := ls[gi]
		if l == nil {
			continue
		}
		for _, reg := range l.Regions {
			mem := make([]int64, reg.Bytes*8/size)
			for i := range mem {
				mem[i] = padding
			}
			out[r] = append(out[r], mem)
		}
		part := s.Shard.Part(g, r)
		for entry, block := range table {
			for in := range l.Extent.Tokens {
				t := part.Token(int64(entry*l.Extent.Tokens + in))
				for li, layer := range part.Layers {
					for ci, c := range g.Components {
						for h := range part.HeadCount() {
							head := 0
							if g.Heads() > 0 {
								head = part.Heads[h]
							}
							for d := range c.Dim {
								region, bit := l.Bit(ci, li, int64(block), int64(in), int64(h), int64(d))
								for k := range int(c.DType.Bits() / size) {
									out[r][region][bit/size+int64(k)] = n.number(ci, layer, head, t, d, k)
								}
							}
						}
					}
				}
			}
		}
	}
	return out
}

// execute carries one run out. It is false where the run touches what it may
// not: bytes outside a region, no element, or a layer that it does not carry.
func execute(p *plan.Pair, pl *plan.Plan, run *plan.Run, e plan.Edge, from, to [][][]int64, times [][][]uint8, st, dt []int, size int64, n *numbering) bool {
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
	src, dst, count := from[e.Source][run.SourceRegion], to[e.Destination][run.DestinationRegion], times[e.Destination][run.DestinationRegion]
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
			if count[d] < 2 {
				count[d]++
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
