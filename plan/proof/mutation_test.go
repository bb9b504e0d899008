package proof_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
)

// clone is a deep copy.
func clone(pl *plan.Plan) *plan.Plan {
	c := *pl
	c.Assignments = slices.Clone(pl.Assignments)
	c.Groups = slices.Clone(pl.Groups)
	c.Edges = slices.Clone(pl.Edges)
	c.Pieces = slices.Clone(pl.Pieces)
	c.Runs = slices.Clone(pl.Runs)
	for i := range c.Runs {
		c.Runs[i].Loops = slices.Clone(pl.Runs[i].Loops)
	}
	return &c
}

// number is one number of a plan.
type number struct {
	name string // such as "Runs.Bytes"
	v    reflect.Value
}

// numbers lists every number of a plan that the proof must look at: all but
// the assignments, which say what a policy answered and move nothing.
func numbers(pl *plan.Plan) []number {
	var out []number
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			out = append(out, number{name, v})
		case reflect.Slice:
			for i := range v.Len() {
				walk(name, v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	}
	v := reflect.ValueOf(pl).Elem()
	for _, f := range []string{"Groups", "Edges", "Pieces", "Runs"} {
		walk(f, v.FieldByName(f))
	}
	return out
}

// drawer draws a name among those of numbers, and returns a function that draws
// a number of that name.
func drawer(pl *plan.Plan, rng *rand.Rand) func() number {
	type kind struct {
		slices []reflect.Value // of structs
		name   string
		field  int
	}
	var kinds []kind
	list := func(name string, slices ...reflect.Value) {
		if len(slices) == 0 {
			return
		}
		of := slices[0].Type().Elem()
		for i := range of.NumField() {
			if k := of.Field(i).Type.Kind(); k == reflect.Int || k == reflect.Int64 {
				kinds = append(kinds, kind{slices, name + "." + of.Field(i).Name, i})
			}
		}
	}
	v := reflect.ValueOf(pl).Elem()
	for _, f := range []string{"Groups", "Edges", "Pieces", "Runs"} {
		if s := v.FieldByName(f); s.Len() > 0 {
			list(f, s)
		}
	}
	var loops []reflect.Value
	for i := range pl.Runs {
		if len(pl.Runs[i].Loops) > 0 {
			loops = append(loops, reflect.ValueOf(pl.Runs[i].Loops))
		}
	}
	list("Runs.Loops", loops...)
	k := kinds[rng.IntN(len(kinds))]
	return func() number {
		s := k.slices[rng.IntN(len(k.slices))]
		return number{k.name, s.Index(rng.IntN(s.Len())).Field(k.field)}
	}
}

// part moves a run of a scale to another edge to the same rank; false where
// there is none.
func part(p *plan.Pair, pl *plan.Plan, rng *rand.Rand) bool {
	for _, i := range rng.Perm(len(pl.Runs)) {
		r := pl.Runs[i]
		e := pl.Edges[r.Edge]
		if p.Source.Model.Groups[e.Group].Components[r.Component].Scales == "" || e.To-e.From == 1 {
			continue
		}
		for _, k := range rng.Perm(len(pl.Edges)) {
			o := pl.Edges[k]
			if k == r.Edge || o.Group != e.Group || o.Destination != e.Destination {
				continue
			}
			at := o.From
			for at < o.To && pl.Runs[at].Layer < r.Layer {
				at++
			}
			// Edges in between move by one run.
			from, to, by := r.Edge, k, -1
			if k < r.Edge {
				from, to, by = k, r.Edge, 1
			} else {
				at--
			}
			for x := from; x <= to; x++ {
				if x > from {
					pl.Edges[x].From += by
				}
				if x < to {
					pl.Edges[x].To += by
				}
			}
			r.Edge = k
			pl.Runs = slices.Insert(slices.Delete(pl.Runs, i, i+1), at, r)
			return true
		}
	}
	return false
}

// mutate changes one thing and says what.
func mutate(p *plan.Pair, pl *plan.Plan, rng *rand.Rand) string {
	if rng.IntN(8) == 0 && part(p, pl, rng) {
		return "part a scale"
	}
	if len(pl.Runs) > 0 && rng.IntN(4) == 0 {
		i, j := rng.IntN(len(pl.Runs)), rng.IntN(len(pl.Runs))
		// Edges keep their runs: what changes is the runs, not the ranges.
		resize := func(at, by int) {
			for e := range pl.Edges {
				if pl.Edges[e].From > at {
					pl.Edges[e].From += by
				}
				if pl.Edges[e].To > at {
					pl.Edges[e].To += by
				}
			}
		}
		switch rng.IntN(6) {
		case 0:
			pl.Runs = slices.Delete(pl.Runs, i, i+1)
			resize(i, -1)
			return "drop a run"
		case 1:
			pl.Runs = slices.Insert(pl.Runs, i, pl.Runs[i])
			resize(i, 1)
			return "repeat a run"
		case 2:
			pl.Runs[i], pl.Runs[j] = pl.Runs[j], pl.Runs[i]
			return "swap two runs"
		case 3:
			r := pl.Runs[i]
			pl.Runs = slices.Insert(slices.Delete(pl.Runs, i, i+1), min(j, len(pl.Runs)-1), r)
			return "move a run"
		case 4:
			r := &pl.Runs[i]
			r.Loops = append(r.Loops, plan.Loop{Count: 2, SourceStride: r.Bytes, DestinationStride: r.Bytes})
			return "add a loop"
		default:
			r := &pl.Runs[i]
			r.SourceOffset, r.DestinationOffset = r.DestinationOffset, r.SourceOffset
			return "exchange offsets"
		}
	}
	// Runs have the most numbers; every name gets its turn.
	draw := drawer(pl, rng)
	n := draw()
	old := n.v.Int()
	now := old
	switch rng.IntN(6) {
	case 0:
		now++
	case 1:
		now--
	case 2:
		now += int64(1+rng.IntN(4)) * int64(1<<rng.IntN(6)) * int64(1-2*rng.IntN(2))
	case 3:
		now = draw().v.Int()
	case 4:
		now = []int64{0, -1, -old, old * 2, old / 2}[rng.IntN(5)]
	default:
		now = int64(rng.IntN(64))
	}
	n.v.SetInt(now)
	return n.name
}

// TestMutations changes one thing in many plans: none that moves a wrong
// element may be accepted, and the faults name the first coordinate that the
// twin finds wrong.
func TestMutations(t *testing.T) {
	const first, changes, full = 900000, 40, 360
	n := pairs(full)
	var mu sync.Mutex
	kinds, accepted, harmless := map[proof.Kind]int{}, map[string]int{}, map[string]int{}
	names, undecided := map[string]int{}, map[string]int{}
	compared := 0
	each(t, first, n, func(seed uint64) {
		_, p, good, err := draw(seed)
		if err != nil {
			return // counted by TestRandomPairs
		}
		for i := range uint64(changes) {
			rng := rand.New(rand.NewPCG(seed, i))
			pl := clone(good)
			what := mutate(p, pl, rng)
			if reflect.DeepEqual(pl, good) {
				continue
			}
			_, err := proof.Check(p, pl)
			mu.Lock()
			names[what]++
			mu.Unlock()
			if err == nil {
				for range 3 { // with other block ids each time
					if v := judge(p, pl, rng); !v.right {
						t.Errorf("seed %d mutation %d (%s): accepted, but the twin finds %+v\n%s", seed, i, what, v, describe(p, pl))
						return
					}
				}
				mu.Lock()
				accepted[what]++
				mu.Unlock()
				continue
			}
			var f *proof.Fault
			if !errors.As(err, &f) {
				t.Errorf("seed %d mutation %d (%s): %v is no fault", seed, i, what, err)
				return
			}
			mu.Lock()
			kinds[f.Kind]++
			if strings.Contains(f.Reason, "cannot be decided") {
				undecided[what]++
			}
			mu.Unlock()
			switch f.Kind {
			case proof.Gap, proof.Clash, proof.Swap, proof.Parted:
				v := judge(p, pl, rng)
				if v.none && v.elsewhere {
					break // such as a run that moves what it should and claims another layer
				}
				if v.none || f.At != v.first || f.Rank != v.rank || v.parted != (f.Kind == proof.Parted) || v.parted && f.Got != v.row {
					t.Errorf("seed %d mutation %d (%s): %v, but the twin finds rank %d %v first\n%s", seed, i, what, err, v.rank, v.first, describe(p, pl))
					return
				}
				mu.Lock()
				compared++
				mu.Unlock()
			default:
				if i%4 == 0 && judgeable(pl, p) && judge(p, pl, rng).right {
					mu.Lock()
					harmless[what]++
					mu.Unlock()
				}
			}
		}
	})
	for _, k := range []proof.Kind{proof.Gap, proof.Clash, proof.Swap, proof.Bounds, proof.Parted, proof.Malformed} {
		if kinds[k] == 0 && (k != proof.Parted || n == full) { // which few pairs may not show
			t.Errorf("no mutation was refused as %s", k)
		}
	}
	if n == full && names["part a scale"] < n/10 {
		t.Errorf("%d scales were parted from their rows", names["part a scale"])
	}
	t.Logf("mutated %s", tally(names))
	t.Logf("refused as %v; %d first coordinates compared", kinds, compared)
	t.Logf("refused without a coordinate, as undecided: %s", tally(undecided))
	t.Logf("accepted, and moving the same elements: %s", tally(accepted))
	t.Logf("refused, though moving the same elements (a quarter looked at): %s", tally(harmless))
}

// judgeable reports whether the twin can run the plan.
func judgeable(pl *plan.Plan, p *plan.Pair) bool {
	for i, g := range pl.Groups {
		if g.Tokens < 1 || g.Tokens >= 1<<12 || g.SourceBlocks < 1 || g.DestinationBlocks < 1 ||
			g.SourceBlocks > int64(p.Source.Groups[i].Blocks) || g.DestinationBlocks > int64(p.Destination.Groups[i].Blocks) ||
			g.SourceBlocks*int64(p.Source.Groups[i].Block*p.Source.ShardOf(i).DCPSize) != g.Tokens ||
			g.DestinationBlocks*int64(p.Destination.Groups[i].Block*p.Destination.ShardOf(i).DCPSize) != g.Tokens ||
			g.From < 0 || g.To > g.Tokens {
			return false
		}
	}
	return true
}

func tally(m map[string]int) string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%s %d", n, m[n])
	}
	return strings.Join(names, ", ")
}

// FuzzCheck sets numbers of a small plan as the bytes say: whatever they are,
// Check returns, and what it accepts is right.
func FuzzCheck(f *testing.F) {
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), []byte{0, 1, 255, 255, 255, 255, 255, 255, 255, 127})
	f.Add(uint64(3), []byte{7, 0, 1, 0, 0, 0, 0, 0, 0, 128})
	f.Add(uint64(900001), []byte{40, 0, 16, 0, 0, 0, 0, 0, 0, 0, 41, 0, 16, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		m, p, pl, err := draw(seed % 64)
		if err != nil {
			return
		}
		all := numbers(pl)
		for ; len(data) >= 10; data = data[10:] {
			n := all[(int(data[0])|int(data[1])<<8)%len(all)]
			var x uint64
			for i, b := range data[2:10] {
				x |= uint64(b) << (8 * i)
			}
			n.v.SetInt(int64(x))
		}
		if _, err := proof.Check(p, pl); err != nil {
			return
		}
		if v := judge(p, pl, m.Rand); !v.right {
			t.Errorf("accepted, but the twin finds %+v\n%s", v, describe(p, pl))
		}
	})
}
