package geometry_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
)

// TestEntries goes by the definition: an entry is the tokens [j*e, j*e+e). It
// moves in the transfer of its last token, or of its first where it scales.
func TestEntries(t *testing.T) {
	const end = 40
	for e := range 7 { // 0 and 1 are both one token an entry
		for _, scales := range []string{"", "k"} {
			c := geometry.Component{Name: "c", Entry: e, Scales: scales}
			n := int64(max(e, 1))
			for from := int64(0); from <= end; from++ {
				for to := from; to <= end; to++ {
					var want []int64
					for j := int64(0); j*n < end+n; j++ {
						due := j*n + n - 1
						if scales != "" {
							due = j * n
						}
						if from <= due && due < to {
							want = append(want, j)
						}
					}
					lo, hi := c.Entries(from, to)
					var got []int64
					for j := lo; j < hi; j++ {
						got = append(got, j)
					}
					if !slices.Equal(got, want) || lo > hi {
						t.Fatalf("%d tokens an entry, scales %q: tokens [%d,%d) move entries [%d,%d), want %v", e, scales, from, to, lo, hi, want)
					}
				}
			}
		}
	}
}

// TestEntriesSplit: transfers that follow one another move each entry once.
func TestEntriesSplit(t *testing.T) {
	for _, c := range []geometry.Component{{Entry: 5}, {Entry: 5, Scales: "k"}, {}, {Scales: "k"}} {
		for from := int64(0); from <= 20; from++ {
			for mid := from; mid <= 20; mid++ {
				for to := mid; to <= 20; to++ {
					a, b := c.Entries(from, mid)
					d, e := c.Entries(mid, to)
					if f, g := c.Entries(from, to); a != f || b != d || e != g {
						t.Fatalf("%+v: [%d,%d) and [%d,%d) move [%d,%d) and [%d,%d), together [%d,%d)", c, from, mid, mid, to, a, b, d, e, f, g)
					}
				}
			}
		}
	}
}

func TestClasses(t *testing.T) {
	type class = geometry.Class
	for _, c := range []struct {
		name       string
		components []geometry.Component
		want       []class
	}{
		{"none", nil, nil},
		{"k and v", []geometry.Component{{Name: "k", Heads: 8, Dim: 128}, {Name: "v", Heads: 8, Dim: 64}}, []class{{0b11, 8, 1, 1, false}}},
		{"latent", []geometry.Component{{Name: "latent"}, {Name: "rope"}}, []class{{0b11, 0, 1, 1, false}}},
		// A scale for each token is dealt as its rows are.
		{"a scale a token and head", []geometry.Component{{Name: "k", Heads: 8}, {Name: "k_scale", Heads: 8, Scales: "k"}}, []class{{0b11, 8, 1, 1, false}}},
		{"a scale without heads", []geometry.Component{{Name: "k", Heads: 8}, {Name: "k_scale", Scales: "k"}}, []class{{0b01, 8, 1, 1, false}, {0b10, 0, 1, 1, false}}},
		// Entries of as many tokens move at different times.
		{"scales and entries of four", []geometry.Component{{Name: "c", Heads: 8, Entry: 4}, {Name: "k", Heads: 8}, {Name: "s", Heads: 8, Entry: 4, Scales: "k"}, {Name: "d", Heads: 8, Entry: 4}},
			[]class{{0b1001, 8, 1, 4, false}, {0b0010, 8, 1, 1, false}, {0b0100, 8, 1, 4, true}}},
		{"entries of another size", []geometry.Component{{Name: "c", Entry: 4}, {Name: "d", Entry: 128}}, []class{{0b01, 0, 1, 4, false}, {0b10, 0, 1, 128, false}}},
		{"channels", []geometry.Component{{Name: "x", Heads: 8192}, {Name: "B", Heads: 1024, Unit: 128}, {Name: "C", Heads: 1024, Unit: 128}, {Name: "ssm", Heads: 128}},
			[]class{{0b0001, 8192, 1, 1, false}, {0b0110, 1024, 128, 1, false}, {0b1000, 128, 1, 1, false}}},
		{"units alone", []geometry.Component{{Name: "a", Heads: 8}, {Name: "b", Heads: 8, Unit: 2}, {Name: "c", Heads: 8}}, []class{{0b101, 8, 1, 1, false}, {0b010, 8, 2, 1, false}}},
	} {
		if got := (geometry.Group{Components: c.components}).Classes(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	// The classes of many components are a division of them, in order.
	var g geometry.Group
	for i := range 64 {
		g.Components = append(g.Components, geometry.Component{Name: fmt.Sprint(i), Heads: 8 * (i % 3), Entry: []int{0, 4}[i/5%2]})
	}
	var all uint64
	first := -1
	for _, class := range g.Classes() {
		if class.Components&all != 0 {
			t.Errorf("%b: a component has two classes", class.Components)
		}
		all |= class.Components
		at := -1
		for i, c := range g.Components {
			in := class.Components>>i&1 == 1
			if in != (c.Heads == class.Heads && c.EntryTokens() == class.Entry) {
				t.Errorf("component %d: in class %+v: %v", i, class, in)
			}
			if in && at < 0 {
				at = i
			}
		}
		if at <= first {
			t.Errorf("class %b stands behind one that begins at %d", class.Components, first)
		}
		first = at
	}
	if all != ^uint64(0) {
		t.Errorf("components %b have no class", ^all)
	}
}
