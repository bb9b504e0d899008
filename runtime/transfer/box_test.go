package transfer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// testModel has two groups with a layer in common, and a layer of none.
func testModel() geometry.Model {
	c := []geometry.Component{{Name: "k", Heads: 2, Dim: 4, DType: geometry.FP16}, {Name: "v", Heads: 2, Dim: 4, DType: geometry.FP16}}
	return geometry.Model{Name: "m", Layers: 7, Groups: []geometry.Group{
		{Name: "full", Layers: []int{0, 2, 4, 6}, Components: c}, {Name: "window", Layers: []int{1, 2, 5}, Components: c}}}
}

// twin is the dumb twin of cover: a set of (group, layer, token).
type twin map[[3]int64]bool

func (s twin) add(b Box) {
	for _, l := range testModel().Groups[b.Group].Layers {
		for t := b.From; l >= b.Layers.From && l < b.Layers.To && t < b.To; t++ {
			s[[3]int64{int64(b.Group), int64(l), t}] = true
		}
	}
}

func setOf(bs []Box) twin {
	s := twin{}
	for _, b := range bs {
		s.add(b)
	}
	return s
}

func same(a, b twin) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

func TestCoverAgainstASet(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	shape := NewShape(testModel())
	box := func() Box {
		l, f := r.IntN(7), r.Int64N(20)
		return Box{r.IntN(2), plan.Range{From: l, To: l + 1 + r.IntN(7-l)}, f, f + 1 + r.Int64N(20-f)}
	}
	for i := range 3000 {
		a, b := newCover(shape), newCover(shape)
		sa, sb := twin{}, twin{}
		for range 1 + r.IntN(6) {
			x, y := box(), box()
			before := len(sa)
			sa.add(x)
			if grew := a.add(x); grew != (len(sa) > before) {
				t.Fatalf("seed %d case %d: add(%v) grew %v", seed, i, x, grew)
			}
			b.add(y)
			sb.add(y)
		}
		both, minus := twin{}, twin{}
		for k := range sa {
			if sb[k] {
				both[k] = true
			} else {
				minus[k] = true
			}
		}
		for what, pair := range map[string][2]twin{
			"boxes": {sa, setOf(a.boxes())}, "intersect": {both, setOf(a.intersect(b).boxes())},
			"minus": {minus, setOf(a.minus(b).boxes())},
		} {
			if !same(pair[0], pair[1]) {
				t.Fatalf("seed %d case %d: %s of %v and %v is wrong", seed, i, what, a.boxes(), b.boxes())
			}
		}
		x := box()
		sx := setOf([]Box{x})
		contains, overlaps := true, false
		for k := range sx {
			contains = contains && sa[k]
			overlaps = overlaps || sa[k]
		}
		if a.contains(x) != contains || a.overlaps(x) != overlaps {
			t.Fatalf("seed %d case %d: contains or overlaps of %v in %v is wrong", seed, i, x, a.boxes())
		}
	}
}

func TestCheck(t *testing.T) {
	shape := NewShape(testModel())
	for _, c := range []struct {
		box  Box
		want string
	}{
		{Box{0, plan.Range{From: 0, To: 7}, 2, 8}, ""},
		{Box{2, plan.Range{From: 0, To: 7}, 2, 8}, "transfer: group 2 lie outside the model's 2 groups"},
		{Box{-1, plan.Range{From: 0, To: 7}, 2, 8}, "transfer: group -1 lie outside the model's 2 groups"},
		{Box{0, plan.Range{From: 0, To: 8}, 2, 8}, "transfer: layers [0, 8) lie outside [0, 7)"},
		{Box{0, plan.Range{From: 3, To: 3}, 2, 8}, "transfer: layers [3, 3) lie outside [0, 7)"},
		{Box{0, plan.Range{From: 0, To: 7}, 1, 8}, "transfer: tokens [1, 8) lie outside [2, 8)"},
		{Box{0, plan.Range{From: 0, To: 7}, 2, 9}, "transfer: tokens [2, 9) lie outside [2, 8)"},
		{Box{0, plan.Range{From: 0, To: 7}, 8, 2}, "transfer: tokens [8, 2) lie outside [2, 8)"},
	} {
		got := ""
		if err := shape.Check(c.box, 2, 8); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.box, got, c.want)
		}
	}
}

func TestValidBlocks(t *testing.T) {
	shape := NewShape(testModel())
	box := func(from, to int64) []Box { return shape.Boxes(shape.Layers(), from, to) }
	for _, c := range []struct {
		name                    string
		valid                   []Box
		first, entries          int
		block, size, interleave int64
		from, to                int64
		want                    []int
	}{
		{"all", box(0, 10), 0, 3, 4, 1, 1, 0, 10, []int{0, 1, 2}},
		{"a prefix in mid-block", box(0, 7), 0, 3, 4, 1, 1, 0, 10, []int{0}},
		{"a missing layer", []Box{{0, plan.Range{From: 0, To: 6}, 0, 10}, {1, plan.Range{From: 0, To: 7}, 0, 10}}, 0, 3, 4, 1, 1, 0, 10, nil},
		{"a suffix moved only", box(6, 10), 0, 3, 4, 1, 1, 6, 10, []int{1, 2}},
		{"dealt over two ranks", box(0, 8), 0, 2, 4, 2, 1, 0, 16, []int{0}},
		{"entries before are left out", box(4, 10), 2, 1, 4, 1, 1, 0, 10, []int{2}},
		{"surplus entries are not named", box(0, 4), 0, 3, 4, 1, 1, 0, 4, []int{0}},
	} {
		if got := ValidBlocks(shape, c.valid, 0, c.first, c.entries, c.block, c.size, c.interleave, c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
