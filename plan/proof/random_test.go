package proof_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
)

// pairs is how many random pairs a test draws.
func pairs(full int) int {
	if testing.Short() || raceEnabled {
		return full / 20
	}
	return full
}

// each draws n pairs with seeds from first on, in parallel, and calls f.
func each(t *testing.T, first uint64, n int, f func(seed uint64)) {
	t.Helper()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				f(first + uint64(i))
			}
		})
	}
	wait.Wait()
}

// draw makes a pair, and a plan of it for the whole period or a window. The
// error is build's.
func draw(seed uint64) (*sample.Maker, *plan.Pair, *plan.Plan, error) {
	m := sample.New(seed)
	p := m.Pair()
	as := m.Assign(p)
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		return m, p, nil, err
	}
	if m.Chance(25) {
		var windows []build.Window
		for i, g := range pl.Groups {
			if p.Source.Model.Groups[i].State && m.Chance(50) {
				windows = append(windows, build.Window{None: true})
				continue
			}
			from := m.Int64N(g.Tokens)
			from -= from % start(&p.Source.Model.Groups[i])
			windows = append(windows, build.Window{From: from, To: from + 1 + m.Int64N(g.Tokens-from)})
			if g.Tokens > 1 {
				m.Has[sample.Windowed] = true
			}
		}
		pl, err = build.Build(p, as, windows, plan.DefaultBudget())
	}
	return m, p, pl, err
}

// start is of what a window's first token is a multiple: it may not part the
// entries of a scale.
func start(g *geometry.Group) int64 {
	n := 1
	for i := range g.Components {
		if c := &g.Components[i]; c.Scales != "" {
			n = sample.LCM(n, int(entry(c)))
		}
	}
	return int64(n)
}

// TestRandomPairs compares proof and twin on plans as they are built.
func TestRandomPairs(t *testing.T) {
	const first = 1
	n := pairs(24000)
	var mu sync.Mutex
	count := map[sample.Feature]int{}
	refused := 0
	each(t, first, n, func(seed uint64) {
		m, p, pl, err := draw(seed)
		if err != nil {
			var e *build.Unaligned
			if !errors.As(err, &e) || !strings.Contains(p.Text(), "fp4") {
				t.Errorf("seed %d: build: %v", seed, err)
				return
			}
			mu.Lock() // half bytes apart: no run of whole bytes can move them
			refused++
			mu.Unlock()
			return
		}
		proven, err := proof.Check(p, pl)
		if err != nil {
			t.Errorf("seed %d: %+v\n%s", seed, err, describe(p, pl))
			return
		}
		v := judge(p, pl, m.Rand)
		if !v.right {
			t.Errorf("seed %d: accepted, but the twin finds %+v\n%s", seed, v, describe(p, pl))
		}
		if proven.Elements() != int64(v.all) {
			t.Errorf("seed %d: %d elements proved, %d due", seed, proven.Elements(), v.all)
		}
		mu.Lock()
		for f := range m.Has {
			count[f]++
		}
		mu.Unlock()
	})
	var line []string
	for _, f := range sample.Features() {
		line = append(line, fmt.Sprintf("%s %d", f, count[f]))
		if want := 500 * n / 24000; count[f] < want {
			t.Errorf("%s: %d pairs, want %d", f, count[f], want)
		}
	}
	t.Logf("seeds %d to %d, %d refused for half bytes: %s", first, first+n-1, refused, strings.Join(line, ", "))
	if n-refused < pairs(20000) {
		t.Errorf("%d pairs were refused", refused)
	}
}

// describe prints a pair and a plan in full.
func describe(p *plan.Pair, pl *plan.Plan) string {
	var b strings.Builder
	b.WriteString(p.Text())
	for _, a := range pl.Assignments {
		fmt.Fprintf(&b, "assignment %+v\n", a)
	}
	for _, g := range pl.Groups {
		fmt.Fprintf(&b, "period %+v\n", g)
	}
	for i, e := range pl.Edges {
		fmt.Fprintf(&b, "edge %d %+v\n", i, e)
	}
	for i, q := range pl.Pieces {
		fmt.Fprintf(&b, "piece %d %+v\n", i, q)
	}
	for i, r := range pl.Runs {
		fmt.Fprintf(&b, "run %d %+v\n", i, r)
	}
	return b.String()
}
