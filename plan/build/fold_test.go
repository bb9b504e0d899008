package build

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
)

// digits tiles n places of the head axis by the given divisors, ascending, in
// an order of strides drawn from r.
func digits(r *rand.Rand, n int64, divs ...int64) []layout.Digit {
	var out []layout.Digit
	mods := append(slices.Clone(divs[1:]), n)
	for i, d := range divs {
		out = append(out, layout.Digit{Axis: geometry.Head, Mod: mods[i], Div: d})
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	stride := int64(8)
	for i := range out {
		out[i].Stride = stride
		stride *= out[i].Count() + r.Int64N(2) // sometimes padded
	}
	return out
}

// chain draws ascending divisors of n, each dividing the next, from 1 on.
func chain(r *rand.Rand, n int64) []int64 {
	divs := []int64{1}
	for d := int64(2); d < n; d++ {
		if n%d == 0 && d%divs[len(divs)-1] == 0 && r.IntN(3) == 0 {
			divs = append(divs, d)
		}
	}
	return divs
}

func offset(ds []layout.Digit, x int64) (bits int64) {
	for _, d := range ds {
		bits += x % d.Mod / d.Div * d.Stride
	}
	return bits
}

func newBuilder() *builder { return &builder{budget: plan.DefaultBudget()} }

// Whatever the tiling, start and step, the fragments hold every coordinate's
// pair of offsets, each once.
func TestFoldHoldsEveryCoordinateOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	tiled, stepped := 0, 0
	for range 20000 {
		n := []int64{1, 2, 6, 12, 16, 24, 36, 60, 64}[r.IntN(9)]
		m := []int64{1, 2, 6, 12, 16, 24, 36, 60, 64}[r.IntN(9)]
		s, d := digits(r, n, chain(r, n)...), digits(r, m, chain(r, m)...)
		p := progression{source: r.Int64N(n), sourceStep: 1 + r.Int64N(3), destination: r.Int64N(m), destinationStep: 1 + r.Int64N(3)}
		p.n = 1 + r.Int64N(min((n-1-p.source)/p.sourceStep, (m-1-p.destination)/p.destinationStep)+1)
		if len(s) > 1 && len(d) > 1 && p.n > 2 {
			tiled++
		}
		if p.n > 2 && p.sourceStep > 1 {
			stepped++
		}
		want := map[[2]int64]int{}
		for i := range p.n {
			want[[2]int64{offset(s, p.source+i*p.sourceStep), offset(d, p.destination+i*p.destinationStep)}]++
		}
		frags, err := newBuilder().fold(nil, walk{at: newLadder(s, geometry.Head), start: p.source, step: p.sourceStep}, walk{at: newLadder(d, geometry.Head), start: p.destination, step: p.destinationStep}, p.n)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, f := range frags {
			count := int64(1)
			for _, l := range f.loops {
				if l.count < 2 || l.source < 1 || l.destination < 1 {
					t.Fatalf("loop %+v of %+v", l, f)
				}
				count *= l.count
			}
			total += count
			for i := range count {
				so, do, k := f.source, f.destination, i
				for _, l := range slices.Backward(f.loops) {
					so, do, k = so+k%l.count*l.source, do+k%l.count*l.destination, k/l.count
				}
				want[[2]int64{so, do}]--
			}
		}
		for at, left := range want {
			if left != 0 {
				t.Fatalf("offsets %v: %d too few\nsource %+v\ndestination %+v\n%+v\n%+v", at, left, s, d, p, frags)
			}
		}
		if total != p.n {
			t.Fatalf("%d coordinates, want %d", total, p.n)
		}
	}
	if tiled < 1000 || stepped < 1000 {
		t.Errorf("%d tiled on both sides, %d with steps", tiled, stepped)
	}
}

// The work is in proportion to the tiles that differ, not to the coordinates.
func TestFoldDoesNotWalkCoordinates(t *testing.T) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name                string
		source, destination []int64
		p                   progression
		fragments, steps    int
	}{
		{"plain", []int64{1}, []int64{1}, progression{0, 1, 0, 1, n}, 1, 1},
		{"one side tiled", []int64{1, 16}, []int64{1}, progression{0, 1, 0, 1, n}, 1, 4},
		{"both tiled alike", []int64{1, 16}, []int64{1, 16}, progression{0, 1, 0, 1, n}, 1, 4},
		{"tiles in tiles", []int64{1, 4, 64}, []int64{1, 16, 1024}, progression{0, 1, 0, 1, n}, 1, 40},
		{"a window that cuts tiles", []int64{1, 16}, []int64{1}, progression{5, 1, 0, 1, n - 9}, 3, 8},
		{"every second", []int64{1, 16}, []int64{1, 4}, progression{1, 2, 0, 1, n / 2}, 1, 10},
	} {
		b := newBuilder()
		got, err := b.fold(nil, walk{at: newLadder(digits(r, n, c.source...), geometry.Head), start: c.p.source, step: c.p.sourceStep},
			walk{at: newLadder(digits(r, n, c.destination...), geometry.Head), start: c.p.destination, step: c.p.destinationStep}, c.p.n)
		if err != nil || len(got) > c.fragments || b.steps > c.steps {
			t.Errorf("%s: %d fragments in %d steps, want %d in %d (%v)\n%+v", c.name, len(got), b.steps, c.fragments, c.steps, err, got)
		}
	}
}

// Digits that continue one another are one, and those of one value none.
func TestLadderJoinsDigits(t *testing.T) {
	ds := []layout.Digit{
		{Axis: geometry.Dim, Mod: 64, Div: 16, Stride: 256}, {Axis: geometry.Dim, Mod: 16, Div: 4, Stride: 64},
		{Axis: geometry.Dim, Mod: 4, Div: 1, Stride: 16}, {Axis: geometry.Dim, Mod: 4, Div: 4, Stride: 8}, {Axis: geometry.Head, Mod: 2, Div: 1, Stride: 8},
	}
	if got := newLadder(ds, geometry.Dim); !slices.Equal(got, ladder{{1, 16}}) {
		t.Errorf("got %v", got)
	}
	ds[0].Stride = 512
	if got := newLadder(ds, geometry.Dim); !slices.Equal(got, ladder{{1, 16}, {16, 512}}) {
		t.Errorf("got %v", got)
	}
}
