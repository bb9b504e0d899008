package spec

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// question is one input of a policy.
type question struct {
	name string
	hook string
	in   []byte
}

// questions are those of a policy's vectors.
func questions(t testing.TB, policy string) []question {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "policies", policy, "vectors", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors of %s (%v)", policy, err)
	}
	var out []question
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Hook   string              `json:"hook"`
			Select *abi.SelectLayoutIn `json:"select_layout_in"`
			Remap  *abi.RemapIn        `json:"remap_in"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		q := question{name: strings.TrimSuffix(filepath.Base(file), ".json"), hook: "kvferry_" + v.Hook}
		if v.Remap != nil {
			q.in = v.Remap.Encode()
		} else {
			q.in = v.Select.Encode()
		}
		out = append(out, q)
	}
	return out
}

// guest is an instance of a policy with an arena.
type guest struct {
	m        api.Module
	memory   api.Memory
	at       uint32
	snapshot []byte
	hooks    map[string]api.Function
	fuel     api.MutableGlobal // nil: it is not metered
}

const arena = 128 << 10

func newGuest(t testing.TB, r wazero.Runtime, wasm []byte) *guest {
	t.Helper()
	m, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{m: m, memory: m.Memory(), hooks: map[string]api.Function{}}
	g.fuel, _ = m.ExportedGlobal(meter.Fuel).(api.MutableGlobal)
	g.refuel()
	res, err := m.ExportedFunction("kvferry_arena").Call(ctx, arena)
	if err != nil {
		t.Fatal(err)
	}
	g.at = uint32(res[0])
	live, _ := g.memory.Read(0, g.memory.Size())
	g.snapshot = slices.Clone(live)
	return g
}

func (g *guest) refuel() {
	if g.fuel != nil {
		g.fuel.Set(plenty)
	}
}

// ask runs a hook from where every call starts. It returns the answer, the time
// of the call alone and the fuel used.
func (g *guest) ask(t testing.TB, q question) (status uint64, answer []byte, took time.Duration, used int64) {
	f := g.hooks[q.hook]
	if f == nil {
		f = g.m.ExportedFunction(q.hook)
		g.hooks[q.hook] = f
	}
	g.memory.Write(0, g.snapshot)
	g.memory.Write(g.at, q.in)
	out := (g.at + uint32(len(q.in)) + 7) &^ 7
	g.refuel()
	stack := [4]uint64{uint64(g.at), uint64(len(q.in)), uint64(out), uint64(g.at + arena - out)}
	start := time.Now()
	err := f.CallWithStack(ctx, stack[:])
	took = time.Since(start)
	if err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
	if g.fuel != nil {
		used = plenty - int64(g.fuel.Get())
	}
	answer, _ = g.memory.Read(out, uint32(stack[0]))
	return stack[0], answer, took, used
}

// quantile of a list, which it sorts.
func quantile(list []time.Duration, q float64) float64 {
	slices.Sort(list)
	return float64(list[int(q*float64(len(list)-1))])
}

// BenchmarkHeads compares the built-in policy as it is with itself metered, call
// by call in turns, and reports how much longer the metered one takes.
func BenchmarkHeads(b *testing.B) {
	wasm, _ := policies.Get("heads")
	metered, err := meter.Meter(wasm, meter.Options{Fuel: plenty})
	if err != nil {
		b.Fatal(err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer r.Close(ctx)
	plain, paid := newGuest(b, r, wasm), newGuest(b, r, metered)
	for _, q := range questions(b, "heads") {
		b.Run(q.name, func(b *testing.B) {
			var a, c []time.Duration
			var used int64
			for b.Loop() {
				_, _, took, _ := plain.ask(b, q)
				a = append(a, took)
				_, _, took, used = paid.ask(b, q)
				c = append(c, took)
			}
			p, m := quantile(a, 0.1), quantile(c, 0.1)
			b.ReportMetric(100*(m/p-1), "overhead-%")
			b.ReportMetric(p, "plain-ns")
			b.ReportMetric(float64(used), "fuel")
			b.ReportMetric(m/float64(used), "ns/unit")
			b.ReportMetric(float64(len(metered))/float64(len(wasm)), "size-ratio")
		})
	}
}

// loops are synthetic: a count in local 0 goes down to zero while something is
// done in each round.
func loops() map[string]*sample.Module {
	down := sample.Code(sample.Op(0x20, 0), sample.Const(1), []byte{0x6b}, sample.Op(0x22, 0), []byte{0x0d, 0, 0x0b}) // until 0
	address := sample.Code(sample.Op(0x20, 0), sample.Const(0xfffc), []byte{0x71})
	loop := func(round ...[]byte) []byte {
		return sample.Code([]byte{0x03, sample.Empty}, sample.Code(round...), down, sample.Op(0x20, 1))
	}
	module := func(code []byte, more ...sample.Function) *sample.Module {
		return &sample.Module{
			Types:    []sample.Type{{Params: []byte{sample.I32}, Results: []byte{sample.I32}}},
			Funcs:    append([]sample.Function{{Locals: []byte{sample.I32, sample.I32}, Code: code}}, more...),
			Memories: [][]byte{{0, 2}},
			Exports:  []sample.Export{{Name: "run"}, {Name: "memory", Kind: 2}},
		}
	}
	// h = (h ^ byte) * prime
	hash := sample.Code(sample.Op(0x20, 1), address, []byte{0x2d, 0, 0}, []byte{0x73}, sample.Const(16777619), []byte{0x6c}, sample.Op(0x21, 1))
	return map[string]*sample.Module{
		"empty": module(loop()),
		"sum":   module(loop(sample.Op(0x20, 1), address, []byte{0x28, 2, 0, 0x6a}, sample.Op(0x21, 1))),
		"hash":  module(loop(hash)),
		"store": module(loop(address, sample.Op(0x20, 1), []byte{0x36, 2, 0}, sample.Op(0x20, 1), sample.Op(0x20, 0), []byte{0x6a}, sample.Op(0x21, 1))),
		"branch": module(loop(address, []byte{0x28, 2, 0}, sample.Op(0x20, 0), []byte{0x73}, sample.Const(3), []byte{0x71},
			[]byte{0x04, sample.Empty}, hash, []byte{0x05}, sample.Op(0x20, 1), sample.Const(5), []byte{0x77}, sample.Op(0x21, 1), []byte{0x0b})),
		"call": module(loop(sample.Op(0x20, 1), []byte{0x10, 1}, sample.Op(0x21, 1)),
			sample.Function{Code: sample.Code(sample.Op(0x20, 0), sample.Const(3), []byte{0x6c}, sample.Op(0x20, 0), sample.Const(7), []byte{0x76, 0x73}, sample.Op(0x20, 0), []byte{0x6a}, sample.Const(9), []byte{0x77})}),
	}
}

// BenchmarkLoop compares loops as they are with themselves metered, in turns.
func BenchmarkLoop(b *testing.B) {
	const rounds = 20_000
	all := loops()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			wasm := all[name].Bytes()
			metered, err := meter.Meter(wasm, meter.Options{Fuel: plenty})
			if err != nil {
				b.Fatal(err)
			}
			r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
			defer r.Close(ctx)
			var calls [2]api.Function
			for i, w := range [][]byte{wasm, metered} {
				m, err := r.InstantiateWithConfig(ctx, w, wazero.NewModuleConfig().WithName(""))
				if err != nil {
					b.Fatal(err)
				}
				calls[i] = m.ExportedFunction("run")
			}
			var took [2][]time.Duration
			for b.Loop() {
				for i, f := range calls {
					stack := [1]uint64{rounds}
					start := time.Now()
					if err := f.CallWithStack(ctx, stack[:]); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			p, m := quantile(took[0], 0.1), quantile(took[1], 0.1)
			b.ReportMetric(100*(m/p-1), "overhead-%")
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
