package spec

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/abi/vector"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/overhead"
)

// questions are those of a policy's vectors.
func questions(t testing.TB, policy string) []vector.Question {
	return vector.Read(t, filepath.Join("..", "..", "..", "policies", policy, "vectors"))
}

// open opens a module as it is, and metered.
func open(t testing.TB, wasm []byte, interpreter bool) (plain, metered *overhead.Guest) {
	t.Helper()
	var out [2]*overhead.Guest
	for i := range out {
		g, err := overhead.Open(ctx, wasm, i == 1, interpreter)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		out[i] = g
	}
	return out[0], out[1]
}

// quantile of a list, which it sorts.
func quantile(list []time.Duration, q float64) float64 {
	slices.Sort(list)
	return float64(list[int(q*float64(len(list)-1))])
}

// inTurns runs calls of a guest as it is and metered, in turns, and reports how
// much longer the metered ones take.
func inTurns(b *testing.B, plain, metered func() (overhead.Took, error)) (as, paid float64, fuel uint64) {
	var a, c []time.Duration
	for b.Loop() {
		first, err := plain()
		if err != nil {
			b.Fatal(err)
		}
		second, err := metered()
		if err != nil {
			b.Fatal(err)
		}
		a, c, fuel = append(a, first.Time), append(c, second.Time), second.Fuel
	}
	as, paid = quantile(a, 0.1), quantile(c, 0.1)
	b.ReportMetric(100*(paid/as-1), "overhead-%")
	return as, paid, fuel
}

// BenchmarkHeads compares the built-in policy as it is with itself metered, call
// by call in turns.
func BenchmarkHeads(b *testing.B) {
	wasm, _ := policies.Get("heads")
	metered, err := meter.Meter(wasm, meter.Options{})
	if err != nil {
		b.Fatal(err)
	}
	plain, paid := open(b, wasm, false)
	for _, q := range questions(b, "heads") {
		b.Run(q.Name, func(b *testing.B) {
			ask := func(g *overhead.Guest) func() (overhead.Took, error) {
				return func() (overhead.Took, error) { _, _, took, err := g.Ask(ctx, q.Hook, q.In); return took, err }
			}
			p, m, used := inTurns(b, ask(plain), ask(paid))
			b.ReportMetric(p, "plain-ns")
			b.ReportMetric(float64(used), "fuel")
			b.ReportMetric(m/float64(used), "ns/unit")
			b.ReportMetric(float64(len(metered))/float64(len(wasm)), "size-ratio")
		})
	}
}

// BenchmarkLoop compares loops as they are with themselves metered, in turns.
func BenchmarkLoop(b *testing.B) {
	const rounds = 20_000
	for _, l := range overhead.Loops() {
		b.Run(l.Name, func(b *testing.B) {
			plain, metered := open(b, l.Wasm, false)
			run := func(g *overhead.Guest) func() (overhead.Took, error) {
				return func() (overhead.Took, error) { _, took, err := g.Run(ctx, "run", rounds); return took, err }
			}
			p, m, _ := inTurns(b, run(plain), run(metered))
			b.ReportMetric(p/rounds, "plain-ns/round")
			b.ReportMetric(m/rounds, "metered-ns/round")
		})
	}
}

// BenchmarkPass is how long the preflight and the pass take themselves.
func BenchmarkPass(b *testing.B) {
	wasm, _ := policies.Get("heads")
	b.Run("check", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			if err := meter.Check(wasm, meter.Policy()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("meter", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			if _, err := meter.Meter(wasm, meter.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
