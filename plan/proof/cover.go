package proof

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// set is the values that a cell covers on one axis: start plus any multiple
// below count of each distance. Sets are in canonical form (see axisSet), so
// equal keys are equal sets.
type set struct {
	start int64
	used  int
	loops [6]struct{ n, delta int64 } // ascending distances, each beyond the reach of the smaller ones
}

func (s *set) size() int64 {
	n := int64(1)
	for _, l := range s.loops[:s.used] {
		n *= l.n
	}
	return n
}

// interval reports whether the set is a run of neighbours.
func (s *set) interval() bool { return s.used == 0 || s.used == 1 && s.loops[0].delta == 1 }

// axisSet collects what the loops cover on axis a, from start. It is false
// where a value is covered twice, or where that is not decided.
func axisSet(loops []loop, a geometry.Axis, start int64) (set, bool) {
	s := set{start: start}
	for _, l := range loops {
		if l.axis != a || l.n == 1 {
			continue
		}
		if l.delta < 0 {
			s.start += (l.n - 1) * l.delta
			l.delta = -l.delta
		}
		if s.used == len(s.loops) {
			return s, false
		}
		at := s.used
		for at > 0 && s.loops[at-1].delta > l.delta {
			s.loops[at] = s.loops[at-1]
			at--
		}
		s.loops[at].n, s.loops[at].delta = l.n, l.delta
		s.used++
	}
	reach, kept := int64(0), 0
	for i := range s.used {
		l := s.loops[i]
		if l.delta <= reach {
			return s, false
		}
		reach += (l.n - 1) * l.delta
		if kept > 0 && l.delta == s.loops[kept-1].n*s.loops[kept-1].delta {
			s.loops[kept-1].n *= l.n // goes on where the smaller one ends
			continue
		}
		s.loops[kept] = l
		kept++
	}
	for i := kept; i < s.used; i++ {
		s.loops[i].n, s.loops[i].delta = 0, 0
	}
	s.used = kept
	return s, true
}

// values calls f for each value of the set until f is false.
func (s *set) values(f func(int64) bool) bool { return s.nest(s.used-1, s.start, f) }

func (s *set) nest(i int, at int64, f func(int64) bool) bool {
	if i < 0 {
		return f(at)
	}
	for k := range s.loops[i].n {
		if !s.nest(i-1, at+k*s.loops[i].delta, f) {
			return false
		}
	}
	return true
}

// sets numbers the distinct sets of one axis.
type sets struct {
	all   []set
	known map[set]int32
}

func (s *sets) number(x set) int32 {
	if len(s.all) > 0 && s.all[len(s.all)-1] == x {
		return int32(len(s.all) - 1)
	}
	if s.known == nil {
		s.known = map[set]int32{}
	}
	n, ok := s.known[x]
	if !ok {
		n = int32(len(s.all))
		s.known[x] = n
		s.all = append(s.all, x)
	}
	return n
}

func (s *sets) reset() {
	s.all = s.all[:0]
	clear(s.known)
}

// cover counts what the cells of one component of one slice write.
type cover struct {
	due                 int64 // elements of the component that a slice must get
	heads, tokens, dims sets
	cells               []box
	written             int64 // elements
}

// box is a cell: the numbers of its sets, and the edge that feeds it.
type box struct{ heads, tokens, dims, edge int32 }

func (v *cover) reset() {
	v.heads.reset()
	v.tokens.reset()
	v.dims.reset()
	v.cells = v.cells[:0]
	v.written = 0
}

// add notes a cell whose token 0 is the rank's place first. It is false where
// the cell writes an element twice.
func (v *cover) add(c *cell, first int64, edge int) bool {
	h, ok1 := axisSet(c.loops, geometry.Head, c.head)
	t, ok2 := axisSet(c.loops, geometry.Token, c.token+first)
	d, ok3 := axisSet(c.loops, geometry.Dim, c.dim)
	if !ok1 || !ok2 || !ok3 {
		return false
	}
	v.cells = append(v.cells, box{v.heads.number(h), v.tokens.number(t), v.dims.number(d), int32(edge)})
	v.written += h.size() * t.size() * d.size()
	return true
}

// disjoint reports whether no two cells share an element. It divides each axis
// into atoms, the finest parts that the cells' sets tell apart; cells are then
// boxes of atoms, and each such box may be taken once.
func (v *cover) disjoint(c *checker) bool {
	if len(v.cells) < 2 {
		return true
	}
	heads, nh, ok1 := v.heads.atoms(c)
	tokens, nt, ok2 := v.tokens.atoms(c)
	dims, nd, ok3 := v.dims.atoms(c)
	if !ok1 || !ok2 || !ok3 {
		return false
	}
	boxes := int64(nh) * int64(nt) * int64(nd)
	if !c.spend(boxes/64 + 1) {
		return false
	}
	taken := make([]uint64, (boxes+63)/64)
	for _, cell := range v.cells {
		for _, h := range heads[cell.heads] {
			for _, t := range tokens[cell.tokens] {
				if !c.spend(int64(len(dims[cell.dims]))) {
					return false
				}
				for _, d := range dims[cell.dims] {
					i := (int64(h)*int64(nt)+int64(t))*int64(nd) + int64(d)
					if taken[i/64]>>(i%64)&1 != 0 {
						return false
					}
					taken[i/64] |= 1 << (i % 64)
				}
			}
		}
	}
	return true
}

// atoms divides the axis. It returns the atoms of each set and their number;
// false where the budget does not suffice.
func (s *sets) atoms(c *checker) ([][]int32, int, bool) {
	members := make([][]int32, len(s.all))
	if len(s.all) == 1 {
		members[0] = []int32{0}
		return members, 1, true
	}
	intervals := true
	for i := range s.all {
		intervals = intervals && s.all[i].interval()
	}
	if intervals {
		var ends []int64
		for i := range s.all {
			ends = append(ends, s.all[i].start, s.all[i].start+s.all[i].size())
		}
		slices.Sort(ends)
		ends = slices.Compact(ends)
		for i := range s.all {
			from, _ := slices.BinarySearch(ends, s.all[i].start)
			to, _ := slices.BinarySearch(ends, s.all[i].start+s.all[i].size())
			if !c.spend(int64(to - from)) {
				return nil, 0, false
			}
			for k := from; k < to; k++ {
				members[i] = append(members[i], int32(k))
			}
		}
		return members, len(ends) - 1, true
	}
	// Two values are in one atom where the same sets hold them: refine the
	// atoms set by set.
	atom := map[int64]int32{} // by value; a value that no set held yet has none
	n := int32(0)
	for i := range s.all {
		split := map[int32]int32{}
		fresh := int32(-1)
		if !c.spend(2 * s.all[i].size()) {
			return nil, 0, false
		}
		s.all[i].values(func(x int64) bool {
			old, ok := atom[x]
			if !ok {
				if fresh < 0 {
					fresh = n
					n++
				}
				atom[x] = fresh
				return true
			}
			to, ok := split[old]
			if !ok {
				to = n
				n++
				split[old] = to
			}
			atom[x] = to
			return true
		})
	}
	for i := range s.all {
		seen := map[int32]bool{}
		s.all[i].values(func(x int64) bool {
			if a := atom[x]; !seen[a] {
				seen[a] = true
				members[i] = append(members[i], a)
			}
			return true
		})
		slices.SortFunc(members[i], func(a, b int32) int { return cmp.Compare(a, b) })
	}
	return members, int(n), true
}
