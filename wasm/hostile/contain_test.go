package hostile_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/wasm/abi/vector"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/hostile"
)

// load opens a module in this process.
func load(t testing.TB, wasm []byte) *host.Policy {
	t.Helper()
	p, err := host.Load(t.Context(), wasm, host.Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closed(t testing.TB, p *host.Policy) {
	t.Helper()
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// felt is what others feel of what some guests do.
type felt struct {
	call, collect time.Duration // of a call to another policy the 99th percentile, of a garbage collection the 90th
	resident      int64         // bytes that the process takes
	heap          int64         // bytes of the program's own that live
	calls         int
}

// resident is how much memory the process takes.
func resident(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// beside measures a sound policy and the collector while two goroutines do
// something over and over.
func beside(t testing.TB, span time.Duration, do func()) felt {
	t.Helper()
	wasm, err := os.ReadFile("../../policies/heads/heads.wasm")
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, wasm)
	defer closed(t, p)
	questions := vector.Read(t, "../../policies/heads/vectors")
	i := slices.IndexFunc(questions, func(q vector.Question) bool { return q.Name == "remap-seed" })
	end := time.Now().Add(span)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for time.Now().Before(end) {
				do()
			}
		})
	}
	var collections []time.Duration
	wg.Go(func() {
		for time.Now().Before(end) {
			began := time.Now()
			runtime.GC()
			collections = append(collections, time.Since(began))
			time.Sleep(5 * time.Millisecond)
		}
	})
	var calls []time.Duration
	for time.Now().Before(end) {
		began := time.Now()
		if _, err := p.Remap(context.Background(), questions[i].In); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, time.Since(began))
		time.Sleep(100 * time.Microsecond)
	}
	wg.Wait()
	slices.Sort(calls)
	slices.Sort(collections)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return felt{calls[len(calls)*99/100], collections[len(collections)*9/10], resident(t), int64(m.HeapAlloc), len(calls)}
}

// What hostile guests do stays with them: other calls, the collector and the
// process's memory are no worse off than beside guests that work. (How much one
// call can hold up a collection is measured by "kvferry bench policy".)
func TestHostileGuestsAreContained(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	period := 2 * time.Second
	sound, err := os.ReadFile("../../policies/heads/heads.wasm")
	if err != nil {
		t.Fatal(err)
	}
	working := load(t, sound)
	defer closed(t, working)
	questions := vector.Read(t, "../../policies/heads/vectors")
	remap := slices.IndexFunc(questions, func(q vector.Question) bool { return q.Hook == "remap" })
	var all []*host.Policy
	for _, m := range hostile.Modules() {
		if m.Runs {
			p := load(t, m.Wasm)
			defer closed(t, p)
			all = append(all, p)
		}
	}
	ask := func(p *host.Policy) error {
		var err error
		for _, h := range p.Manifest().Hooks {
			switch h {
			case "remap":
				_, err = p.Remap(context.Background(), questions[remap].In)
			case "route":
				_, err = p.Route(context.Background(), questions[remap].In)
			case "select_layout":
				_, _, err = p.SelectLayout(context.Background(), questions[remap].In, 2)
			}
		}
		return err
	}
	var worst string
	for range 3 { // neighbours on the machine disturb either
		before := beside(t, period, func() {
			if err := ask(working); err != nil {
				t.Error(err)
			}
		})
		var mu sync.Mutex
		next, asked := 0, 0
		kinds := map[string]int{}
		after := beside(t, period, func() {
			mu.Lock()
			p := all[next%len(all)]
			next++
			mu.Unlock()
			err := ask(p)
			mu.Lock()
			defer mu.Unlock()
			asked++
			switch {
			case errors.Is(err, host.ErrFuel):
				kinds["fuel"]++
			case errors.Is(err, host.ErrTrap):
				kinds["trap"]++
			case err != nil:
				kinds["other"]++
			}
		})
		t.Logf("beside work: %+v; beside %d calls of hostile guests, %v: %+v", before, asked, kinds, after)
		if asked < 2*len(all) || kinds["fuel"] == 0 || kinds["trap"] == 0 {
			t.Errorf("%d calls of %d guests, %v", asked, len(all), kinds)
		}
		worst = ""
		if after.call > 20*before.call {
			worst = "other calls"
		}
		if after.collect > 20*before.collect {
			worst = "the collector"
		}
		if after.resident > before.resident+256<<20 {
			worst = "the process's memory"
		}
		if after.heap > before.heap+32<<20 {
			worst = "the program's heap"
		}
		if worst == "" {
			return
		}
	}
	t.Errorf("%s suffered three times", worst)
}
