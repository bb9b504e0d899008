package meter

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestWeights(t *testing.T) {
	direct := func(calls ...uint32) *plan { return &plan{calls: calls} }
	table := func(calls ...uint32) *plan { return &plan{calls: calls, indirect: true} }
	chain := func(n int) []*plan {
		var out []*plan
		for i := range n {
			out = append(out, direct(uint32(i+1)))
		}
		return append(out, direct())
	}
	all := make([]int, 402)
	for i := range all {
		all[i] = 1
	}
	for _, c := range []struct {
		name  string
		plans []*plan
		taken []bool
		want  []int
	}{
		{"nothing", nil, nil, []int{}},
		{"a tree", []*plan{direct(1, 2), direct(2), direct()}, nil, []int{0, 0, 0}},
		{"itself", []*plan{direct(0)}, nil, []int{1}},
		{"itself, above a chain", []*plan{direct(0, 1), direct(2), direct()}, nil, []int{3, 0, 0}},
		{"each other", []*plan{direct(1), direct(0), direct(0)}, nil, []int{1, 1, 0}},
		{"two rings", []*plan{direct(1, 2), direct(0), direct(3), direct(2)}, nil, []int{1, 1, 1, 1}},
		{"through the table", []*plan{direct(1), table()}, []bool{true, false}, []int{1, 1}},
		{"through the table, to others", []*plan{table(), direct(2), direct()}, []bool{false, true}, []int{0, 0, 0}},
		{"through the table, above a chain", []*plan{table(), direct(2), direct()}, []bool{true, true}, []int{3, 0, 0}},
		{"a long chain", chain(399), nil, make([]int, 400)},
		{"a chain that is too long", chain(401), nil, all},
	} {
		m := &module{taken: c.taken}
		if got := weigh(m, c.plans); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: weights %v, want %v", c.name, got, c.want)
		}
	}
	// Large functions count for more.
	large := []*plan{{calls: []uint32{0}, size: 10_000}, {size: 10_000}}
	if got := weigh(&module{}, large); !slices.Equal(got, []int{3, 0}) {
		t.Errorf("large functions: weights %v", got)
	}
	// Imported functions have indices, and no weight.
	m := &module{imported: 2, taken: []bool{true, true, true}}
	if got := weigh(m, []*plan{{calls: []uint32{2}}, {calls: []uint32{2}, indirect: true}}); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("with imports: weights %v", got)
	}
}

// On random graphs, no path of calls comes to more frames than its weights and
// one chain more say. The paths are walked at random: a twin that knows nothing
// of components.
func TestWeightsBoundFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		n := 1 + r.IntN(12)
		plans := make([]*plan, n)
		taken := make([]bool, n)
		for i := range plans {
			plans[i] = &plan{indirect: r.IntN(8) == 0}
			taken[i] = r.IntN(5) == 0
			for range r.IntN(3) {
				plans[i].calls = append(plans[i].calls, uint32(r.IntN(n)))
			}
		}
		weights := weigh(&module{taken: taken}, plans)
		for range 20 {
			f, frames, counted := r.IntN(n), 0, 0
			for range 60 {
				frames++
				counted += weights[f]
				if frames > counted+n { // a chain without counted ones holds each function once
					t.Fatalf("%d frames, %d counted, of %d functions %+v with weights %v", frames, counted, n, plans, weights)
				}
				next := slices.Clone(plans[f].calls)
				if plans[f].indirect {
					for i := range taken {
						if taken[i] {
							next = append(next, uint32(i))
						}
					}
				}
				if len(next) == 0 {
					break
				}
				f = int(next[r.IntN(len(next))])
			}
		}
	}
}
