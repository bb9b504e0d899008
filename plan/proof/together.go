package proof

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// scaled is the index of the component whose rows component i scales, -1 where
// it scales none.
func scaled(comps []geometry.Component, i int) int {
	if comps[i].Scales == "" {
		return -1
	}
	return slices.IndexFunc(comps, func(o geometry.Component) bool { return o.Name == comps[i].Scales })
}

// together reports whether every scale of the slice comes over the same edge as
// the rows that it scales: from the same source rank.
//
// Preconditions: the covers hold every element of the slice once.
func (c *checker) together(s *slice, covers []cover) bool {
	comps := c.pair.Destination.Model.Groups[s.group].Components
	for i := range comps {
		of := scaled(comps, i)
		if of < 0 || oneEdge(&covers[i], &covers[of]) {
			continue
		}
		t := tie{scale: &s.dest.parts[i], rows: &s.dest.parts[of], whole: comps[i].Heads == 0}
		if !t.single(c, &covers[i], &covers[of]) {
			return false
		}
	}
	return true
}

// oneEdge reports whether all cells of two covers come over one edge.
func oneEdge(a, b *cover) bool {
	edge := int32(-1)
	for _, v := range []*cover{a, b} {
		for i := range v.cells {
			if edge >= 0 && v.cells[i].edge != edge {
				return false
			}
			edge = v.cells[i].edge
		}
	}
	return true
}

// tie is a scale and the rows that it scales on one destination rank.
type tie struct {
	scale, rows *share
	whole       bool // one scale for all heads

	heads, entries sets // in places of the scale
	areas          []area
	last           [2]box // keys of the areas added last, for the scale and the rows
}

// area is what a cell touches: heads, and any of the entries, by number of
// their sets.
type area struct {
	heads   int32
	entries []int32
	edge    int32
}

// single reports whether each (head, entry) of the scale and all rows that it
// scales come over one edge. Where the scale's cells and those of its rows,
// both taken as heads and entries of the scale, fall into the same atom of the
// axes (see disjoint), their edges must be equal; the dims of a row do not
// matter, since all of them must come over that edge.
func (t *tie) single(c *checker, scale, rows *cover) bool {
	if !t.whole && !slices.Equal(t.scale.heads, t.rows.heads) {
		return false
	}
	entries := map[int32][]int32{}
	for i := range scale.cells {
		b := &scale.cells[i]
		t.add(0, b, t.heads.number(scale.heads.all[b.heads]), []int32{t.entries.number(scale.tokens.all[b.tokens])})
	}
	for i := range rows.cells {
		b := &rows.cells[i]
		h := set{} // of the one scale
		if !t.whole {
			h = rows.heads.all[b.heads]
		}
		e, ok := entries[b.tokens]
		if !ok {
			if e, ok = t.entriesOf(c, &rows.tokens.all[b.tokens]); !ok {
				return false
			}
			entries[b.tokens] = e
		}
		t.add(1, b, t.heads.number(h), e)
	}
	headAtoms, nh, ok1 := t.heads.atoms(c)
	entryAtoms, ne, ok2 := t.entries.atoms(c)
	if !ok1 || !ok2 || !c.spend(int64(nh)*int64(ne)) {
		return false
	}
	edges := make([]int32, nh*ne) // 1 more than the edge of an atom of both axes
	for _, a := range t.areas {
		for _, x := range headAtoms[a.heads] {
			for _, e := range a.entries {
				if !c.spend(int64(len(entryAtoms[e]))) {
					return false
				}
				for _, y := range entryAtoms[e] {
					at := &edges[int(x)*ne+int(y)]
					if *at != 0 && *at != a.edge+1 {
						return false
					}
					*at = a.edge + 1
				}
			}
		}
	}
	return true
}

// add notes the area of cell b, once for all dims: cells that differ in them
// only come one after the other, mostly.
func (t *tie) add(which int, b *box, heads int32, entries []int32) {
	key := box{b.heads, b.tokens, -1, b.edge}
	if t.last[which] == key {
		return
	}
	t.last[which] = key
	t.areas = append(t.areas, area{heads, entries, b.edge})
}

// entriesOf are the scale's entries that the places in s belong to; false where
// the budget does not suffice.
func (t *tie) entriesOf(c *checker, s *set) ([]int32, bool) {
	n := t.scale.unit.tokens
	switch {
	case n == 1:
		return []int32{t.entries.number(*s)}, true
	case s.interval():
		from, to := s.start/n, (s.start+s.size()-1)/n
		e := set{start: from}
		if to > from {
			e.used = 1
			e.loops[0].n, e.loops[0].delta = to-from+1, 1
		}
		return []int32{t.entries.number(e)}, true
	case !c.spend(s.size()):
		return nil, false
	}
	var out []int32
	last := int64(-1)
	s.values(func(x int64) bool { // ascending
		if x/n != last {
			last = x / n
			out = append(out, t.entries.number(set{start: last}))
		}
		return true
	})
	return out, true
}
