package proof_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/plan/proof"
)

// TestEverySingleCopyMutation walks through small plans copy by copy: every
// offset, stride, count, length and rank of every run is changed in every way
// below, one at a time, and each must be refused. The one change that may be
// accepted is another source rank that holds a replica of the same rows.
func TestEverySingleCopyMutation(t *testing.T) {
	const first, most = 700000, 48 // runs
	n := pairs(64)
	var mu sync.Mutex
	refused := map[string]int{}
	plans, replicas := 0, 0
	each(t, first, n, func(seed uint64) {
		_, p, pl, err := draw(seed)
		if err != nil || len(pl.Runs) > most {
			return // the first is counted by TestRandomPairs
		}
		count := map[string]int{}
		same := 0
		// set tries a value in the place of another.
		set := func(what string, run int, at *int64, now int64) {
			old := *at
			if now == old {
				return
			}
			*at = now
			_, err := proof.Check(p, pl)
			*at = old
			var f *proof.Fault
			if !errors.As(err, &f) {
				t.Errorf("seed %d run %d: %s %d instead of %d: %v, want a fault\n%s", seed, run, what, now, old, err, describe(p, pl))
				return
			}
			count[what]++
		}
		vary := func(what string, run int, at *int64, steps ...int64) {
			values := []int64{0, -1, -*at, *at * 2, *at / 2}
			for _, s := range append(steps, 1) {
				values = append(values, *at+s, *at-s)
			}
			slices.Sort(values)
			for _, v := range slices.Compact(values) {
				set(what, run, at, v)
			}
		}
		for i := range pl.Runs {
			r := &pl.Runs[i]
			vary("source offset", i, &r.SourceOffset, r.Bytes, 2, 16)
			vary("destination offset", i, &r.DestinationOffset, r.Bytes, 2, 16)
			vary("length", i, &r.Bytes, 2, r.Bytes)
			for k := range r.Loops {
				l := &r.Loops[k]
				vary("count", i, &l.Count)
				vary("source stride", i, &l.SourceStride, r.Bytes, 2, 16)
				vary("destination stride", i, &l.DestinationStride, r.Bytes, 2, 16)
			}
		}
		for i := range pl.Edges {
			e := &pl.Edges[i]
			for d := -1; d <= len(p.Destination.Ranks); d++ {
				if old := e.Destination; d != old {
					e.Destination = d
					if _, err := proof.Check(p, pl); err == nil {
						t.Errorf("seed %d edge %d: destination rank %d instead of %d was accepted\n%s", seed, i, d, old, describe(p, pl))
					}
					e.Destination = old
					count["destination rank"]++
				}
			}
			for s := -1; s <= len(p.Source.Ranks); s++ {
				old := e.Source
				if s == old {
					continue
				}
				e.Source = s
				if _, err := proof.Check(p, pl); err != nil {
					count["source rank"]++
				} else if v := judge(p, pl, rand.New(rand.NewPCG(seed, uint64(i)))); v.right {
					same++
				} else {
					t.Errorf("seed %d edge %d: source rank %d instead of %d was accepted, but the twin finds %+v\n%s", seed, i, s, old, v, describe(p, pl))
				}
				e.Source = old
			}
		}
		mu.Lock()
		defer mu.Unlock()
		plans++
		replicas += same
		for what, k := range count {
			refused[what] += k
		}
	})
	t.Logf("%d plans, seeds %d to %d; refused: %s; %d other source ranks held the same rows", plans, first, first+n-1, tally(refused), replicas)
	for _, what := range []string{"source offset", "destination offset", "length", "count", "source stride", "destination stride", "source rank", "destination rank"} {
		if refused[what] == 0 {
			t.Errorf("no change of a %s was tried", what)
		}
	}
}
