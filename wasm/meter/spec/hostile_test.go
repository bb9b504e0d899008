package spec

import (
	"context"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// budget is what a call of a policy may use.
const budget = 2_000_000

// Guests that would never end, or take what is not theirs, stop for the same
// cause with the same fuel left on both engines.
func TestGuestsThatDoNotEnd(t *testing.T) {
	loop := func(round ...[]byte) []byte {
		return sample.Code([]byte{0x03, sample.Empty}, sample.Code(round...), []byte{0x0c, 0, 0x0b})
	}
	fill := func(size int32) []byte {
		return sample.Code(sample.Const(0), sample.Const(1), sample.Const(size), []byte{0xfc, 11, 0})
	}
	call := func(i int) []byte { return sample.Op(0x10, i) }
	table := []byte{0x11, 0, 0} // call_indirect of type 0 in table 0
	for _, c := range []struct {
		name  string
		funcs [][]byte
		start bool
		want  meter.Cause
	}{
		{"endless loop", [][]byte{loop()}, false, meter.ByFuel},
		{"endless loop with a condition", [][]byte{sample.Code([]byte{0x03, sample.Empty}, sample.Const(1), []byte{0x0d, 0, 0x0b})}, false, meter.ByFuel},
		{"endless loop by br_table", [][]byte{sample.Code([]byte{0x03, sample.Empty}, sample.Const(1), []byte{0x0e, 1, 0, 0, 0x0b})}, false, meter.ByFuel},
		{"endless loop of two labels", [][]byte{sample.Code([]byte{0x03, sample.Empty, 0x03, sample.Empty}, sample.Const(1), []byte{0x0d, 1, 0x0c, 0, 0x0b, 0x0b})}, false, meter.ByFuel},
		{"endless loop that calls a leaf", [][]byte{loop(call(1)), {}}, false, meter.ByFuel},
		{"endless loop of large blocks", [][]byte{loop(sample.Const(0), []byte{0x04, sample.Empty}, []byte(strings.Repeat("\x41\x00\x1a", 100)), []byte{0x0b})}, false, meter.ByFuel},
		{"recursion", [][]byte{call(0)}, false, meter.ByDepth},
		{"recursion of two", [][]byte{call(1), call(0)}, false, meter.ByDepth},
		{"recursion through the table", [][]byte{sample.Code(sample.Const(0), table)}, false, meter.ByDepth},
		{"recursion behind a leaf", [][]byte{call(1), sample.Code(call(2), call(0)), {}}, false, meter.ByDepth},
		{"recursion in a loop", [][]byte{loop(call(0))}, false, meter.ByDepth},
		{"calls that double", doubling(40), false, meter.ByFuel},
		{"small fills", [][]byte{loop(fill(0))}, false, meter.ByFuel},
		{"large fills", [][]byte{loop(fill(60_000))}, false, meter.ByFuel},
		{"a fill that is too large for everything", [][]byte{fill(-1)}, false, meter.ByFuel},
		{"copies", [][]byte{loop(sample.Const(0), sample.Const(1), sample.Const(60_000), []byte{0xfc, 10, 0, 0})}, false, meter.ByFuel},
		{"memory that grows", [][]byte{loop(sample.Const(1), []byte{0x40, 0, 0x1a})}, false, meter.ByFuel},
		{"memory that grows by all", [][]byte{loop(sample.Const(-1), []byte{0x40, 0, 0x1a})}, false, meter.ByFuel},
		{"a table that grows", [][]byte{loop([]byte{0xd0, sample.Func}, sample.Const(1), []byte{0xfc, 15, 0, 0x1a})}, false, meter.ByFuel},
		{"a table that is filled", [][]byte{loop(sample.Const(0), []byte{0xd0, sample.Func}, sample.Const(8), []byte{0xfc, 17, 0})}, false, meter.ByFuel},
		{"a table that is copied", [][]byte{loop(sample.Const(0), sample.Const(0), sample.Const(8), []byte{0xfc, 14, 0, 0})}, false, meter.ByFuel},
		{"start function", [][]byte{loop()}, true, meter.ByFuel},
		{"its own trap", [][]byte{{0x00}}, false, meter.ByGuest},
		{"its own trap in a loop", [][]byte{loop([]byte{0x00})}, false, meter.ByGuest},
		{"an access outside", [][]byte{sample.Code(sample.Const(-1), []byte{0x28, 2, 0, 0x1a})}, false, meter.ByGuest},
		{"nothing in the table", [][]byte{sample.Code(sample.Const(5), table)}, false, meter.ByGuest},
		{"nothing", [][]byte{{}}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &sample.Module{
				Types: []sample.Type{{}}, Memories: [][]byte{{0, 1}}, Tables: [][]byte{{sample.Func, 1, 8, 64}},
				Exports: []sample.Export{{Name: "run"}}, Elements: [][]byte{{0, 0x41, 0, 0x0b, 1, 0}},
			}
			for _, f := range c.funcs {
				m.Funcs = append(m.Funcs, sample.Function{Code: f})
			}
			if c.start {
				m.Start = []byte{0}
			}
			wasm, err := meter.Meter(m.Bytes(), meter.Options{Fuel: budget, Slice: slice})
			if err != nil {
				t.Fatal(err)
			}
			var left [2]int64
			for i, e := range engines {
				r := wazero.NewRuntimeWithConfig(ctx, e.config().WithMemoryLimitPages(256))
				g, err := r.Instantiate(ctx, wasm)
				if c.start {
					if err == nil || !strings.Contains(err.Error(), "unreachable") {
						t.Errorf("%s: error %v, want a trap", e.name, err)
					}
				} else if err != nil {
					t.Fatal(err)
				} else {
					_, err = g.ExportedFunction("run").Call(ctx)
					left[i] = rest(g)
					if (err == nil) != (c.want == "") || err != nil && meter.Spent(left[i]) != c.want {
						t.Errorf("%s: error %v with %d left, want a trap for %q", e.name, err, left[i], c.want)
					}
				}
				if err := r.Close(ctx); err != nil {
					t.Error(err)
				}
			}
			if left[0] != left[1] {
				t.Errorf("%d left on the %s, %d on the %s", left[0], engines[0].name, left[1], engines[1].name)
			}
		})
	}
}

// doubling are functions of which each calls the next twice.
func doubling(n int) [][]byte {
	var out [][]byte
	for i := range n {
		out = append(out, sample.Code(sample.Op(0x10, i+1), sample.Op(0x10, i+1)))
	}
	return append(out, nil)
}

// An import sees in the global what is left, and what it takes is gone: a host
// can charge for its own work.
func TestHostCharges(t *testing.T) {
	const price = 1000
	m := &sample.Module{
		Types:   []sample.Type{{Params: []byte{sample.I32}}, {}},
		Imports: []sample.Import{{Module: "host", Name: "work", Rest: []byte{0, 1}}},
		// A loop of n rounds that calls the import.
		Funcs: []sample.Function{{Type: 0, Code: sample.Code([]byte{0x03, sample.Empty}, sample.Op(0x10, 0),
			sample.Op(0x20, 0), sample.Const(1), []byte{0x6b}, sample.Op(0x22, 0), []byte{0x0d, 0, 0x0b})}},
		Exports: []sample.Export{{Name: "run", Index: 1}},
	}
	wasm, err := meter.Meter(m.Bytes(), meter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		r := wazero.NewRuntimeWithConfig(ctx, e.config())
		var seen []int64
		b := r.NewHostModuleBuilder("host")
		b.NewFunctionBuilder().WithFunc(func(_ context.Context, g api.Module) {
			fuel := g.ExportedGlobal(meter.Fuel).(api.MutableGlobal)
			seen = append(seen, int64(fuel.Get()))
			fuel.Set(fuel.Get() - price)
		}).Export("work")
		if _, err := b.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
		g, err := r.Instantiate(ctx, wasm)
		if err != nil {
			t.Fatal(err)
		}
		fuel := g.ExportedGlobal(meter.Fuel).(api.MutableGlobal)
		if _, err := g.ExportedFunction("run").Call(ctx, 1); err == nil || meter.Spent(int64(fuel.Get())) != meter.ByFuel {
			t.Errorf("%s: with the fuel of a new instance: error %v", e.name, err)
		}
		fuel.Set(100_000)
		if _, err := g.ExportedFunction("run").Call(ctx, 3); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 3 || seen[0] >= 100_000 || seen[0]-seen[1] != seen[1]-seen[2] || seen[0]-seen[1] <= price {
			t.Errorf("%s: the import saw %d left", e.name, seen)
		}
		if left := int64(fuel.Get()); left != seen[2]-price {
			t.Errorf("%s: %d left behind the call, want what the import left of %d", e.name, left, seen[2])
		}
		fuel.Set(5000)
		if _, err := g.ExportedFunction("run").Call(ctx, 100); err == nil || meter.Spent(int64(fuel.Get())) != meter.ByFuel {
			t.Errorf("%s: with too little for 100 calls: error %v", e.name, err)
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
