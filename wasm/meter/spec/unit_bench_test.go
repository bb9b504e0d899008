package spec

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// units are loops of instructions that take long: what one unit of fuel is worth
// at most.
func units() map[string][]byte {
	get := func(i int) []byte { return sample.Op(0x20, i) }
	set := func(i int) []byte { return sample.Op(0x21, i) }
	const n, h, l, f, d, v = 0, 1, 2, 3, 4, 5
	many := func(code []byte) []byte { return slices.Concat(code, code, code, code, code, code, code, code) }
	bulk := func(size int32, ops ...byte) []byte {
		return sample.Code(sample.Const(0), sample.Const(0), sample.Const(size), ops)
	}
	return map[string][]byte{
		"i32.add":           many(sample.Code(get(h), get(n), []byte{0x6a}, set(h))),
		"i32.mul":           many(sample.Code(get(h), get(n), []byte{0x6c}, set(h))),
		"i32.div_u":         many(sample.Code(sample.Const(-1), get(h), sample.Const(3), []byte{0x72, 0x6e}, set(h))),
		"i64.div_s":         many(sample.Code(sample.Const64(-1<<60), get(l), sample.Const64(3), []byte{0x84, 0x7f}, set(l))),
		"i64.rem_u":         many(sample.Code(sample.Const64(-1), get(l), sample.Const64(3), []byte{0x84, 0x82}, set(l))),
		"f32.div":           many(sample.Code([]byte{0x43, 0, 0, 0x80, 0x3f}, get(f), []byte{0x95}, set(f))),
		"f64.div":           many(sample.Code([]byte{0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, get(d), []byte{0xa3}, set(d))),
		"f64.sqrt":          many(sample.Code(get(d), []byte{0x9f}, set(d))),
		"f64x2.div":         many(sample.Code(get(v), get(v), []byte{0xfd, 0xf3, 1}, set(v))),
		"f64x2.sqrt":        many(sample.Code(get(v), []byte{0xfd, 0xef, 1}, set(v))),
		"i8x16.popcnt":      many(sample.Code(get(v), []byte{0xfd, 0x62}, set(v))),
		"i64x2.mul":         many(sample.Code(get(v), get(v), []byte{0xfd, 0xd5, 1}, set(v))),
		"i8x16.shr_s":       many(sample.Code(get(v), get(n), []byte{0xfd, 0x6c}, set(v))),
		"i8x16.swizzle":     many(sample.Code(get(v), get(v), []byte{0xfd, 0x0e}, set(v))),
		"i64.trunc_sat_f64": many(sample.Code(get(d), []byte{0xfc, 7, 0x1a})),
		"f64.nearest":       many(sample.Code(get(d), []byte{0x9e}, set(d))),
		"f64.min":           many(sample.Code(get(d), get(d), []byte{0xa4}, set(d))),
		"load, scattered":   many(sample.Code(get(h), sample.Const(1103515245), []byte{0x6c}, get(n), []byte{0x6a}, sample.Op(0x22, h), sample.Const(0xfffffc), []byte{0x71, 0x28, 2, 0}, get(h), []byte{0x73}, set(h))),
		"call":              many(sample.Op(0x10, 2)),
		"call_indirect":     many(sample.Code(sample.Const(0), []byte{0x11, 1, 0})),
		"import":            many(sample.Code(get(h), sample.Op(0x10, 0), set(h))),
		"memory.fill 0":     many(bulk(0, 0xfc, 11, 0)),
		"memory.fill 64":    many(bulk(64, 0xfc, 11, 0)),
		"memory.fill 1M":    many(bulk(1<<20, 0xfc, 11, 0)),
		"memory.copy 0":     many(bulk(0, 0xfc, 10, 0, 0)),
		"memory.copy 64":    many(bulk(64, 0xfc, 10, 0, 0)),
		"memory.copy 8M":    sample.Code(sample.Const(8<<20), sample.Const(0), sample.Const(8<<20), []byte{0xfc, 10, 0, 0}),
		"memory.init 64":    many(bulk(64, 0xfc, 8, 0, 0)),
		"table.copy 0":      many(bulk(0, 0xfc, 14, 0, 0)),
		"table.copy 1000":   many(bulk(1000, 0xfc, 14, 0, 0)),
		"table.init 8":      many(bulk(8, 0xfc, 12, 0, 0)),
		"table.fill 1000":   many(sample.Code(sample.Const(0), []byte{0xd0, sample.Func}, sample.Const(1000), []byte{0xfc, 17, 0})),
		"table.get":         many(sample.Code(sample.Const(0), []byte{0x25, 0, 0x1a})),
		"table.set":         many(sample.Code(sample.Const(1), []byte{0xd0, sample.Func, 0x26, 0})),
		"ref.func":          many([]byte{0xd2, 2, 0x1a}),
		"table.grow 0":      many(sample.Code([]byte{0xd0, sample.Func}, sample.Const(0), []byte{0xfc, 15, 0, 0x1a})),
		"memory.grow 0":     many(sample.Code(sample.Const(0), []byte{0x40, 0, 0x1a})),
		"br_table": many(sample.Code([]byte{0x02, sample.Empty, 0x02, sample.Empty, 0x02, sample.Empty}, get(h), sample.Const(1103515245), []byte{0x6c}, get(n), []byte{0x6a}, sample.Op(0x22, h), sample.Const(16), []byte{0x76},
			sample.Const(3), []byte{0x71, 0x0e, 3, 0, 1, 2, 1, 0x0b, 0x0b, 0x0b})),
	}
}

// BenchmarkUnit reports what a unit of fuel takes where it takes long.
func BenchmarkUnit(b *testing.B) {
	const rounds = 200
	all := units()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			i32 := []byte{sample.I32}
			elements := sample.Code([]byte{1, 0}, sample.Vector([]byte{2}, []byte{2}, []byte{2}, []byte{2}, []byte{2}, []byte{2}, []byte{2}, []byte{2}))
			m := &sample.Module{
				Types:   []sample.Type{{Params: i32, Results: i32}, {}},
				Imports: []sample.Import{{Module: sample.ImportModule, Name: sample.ImportName, Rest: []byte{0, 0}}},
				Funcs: []sample.Function{
					{Locals: []byte{sample.I32, sample.I64, sample.F32, sample.F64, sample.V128}, Code: sample.Code(
						sample.Const64(7), sample.Op(0x21, 2), []byte{0x43, 0, 0, 0x60, 0x40}, sample.Op(0x21, 3), []byte{0x44, 0, 0, 0, 0, 0, 0, 0x0c, 0x40}, sample.Op(0x21, 4),
						sample.Op(0x20, 4), []byte{0xfd, 0x14}, sample.Op(0x21, 5),
						[]byte{0x03, sample.Empty}, all[name], sample.Op(0x20, 0), sample.Const(1), []byte{0x6b}, sample.Op(0x22, 0), []byte{0x0d, 0, 0x0b},
						sample.Op(0x20, 1))},
					{Type: 1},
				},
				Tables:    [][]byte{append([]byte{sample.Func, 0}, sample.Uint(1000)...)},
				Memories:  [][]byte{append([]byte{0}, sample.Uint(256)...)},
				Exports:   []sample.Export{{Name: "run", Index: 1}},
				Elements:  [][]byte{sample.Code([]byte{0}, sample.Const(0), []byte{0x0b, 1, 2}), elements},
				DataCount: true, Data: [][]byte{append([]byte{1}, sample.Name(string(make([]byte, 64)))...)},
			}
			m.Elements[0], m.Elements[1] = m.Elements[1], m.Elements[0]
			metered, err := meter.Meter(m.Bytes(), meter.Options{Fuel: plenty, Slice: slice})
			if err != nil {
				b.Fatal(err)
			}
			r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(256))
			defer r.Close(ctx)
			h := r.NewHostModuleBuilder(sample.ImportModule)
			h.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(context.Context, api.Module, []uint64) {}), []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI32}).Export(sample.ImportName)
			if _, err := h.Instantiate(ctx); err != nil {
				b.Fatal(err)
			}
			i, err := r.InstantiateWithConfig(ctx, metered, wazero.NewModuleConfig().WithName(""))
			if err != nil {
				b.Fatal(err)
			}
			run := i.ExportedFunction("run")
			var took []time.Duration
			used := int64(0)
			for b.Loop() {
				fill(i, plenty)
				stack := [1]uint64{rounds}
				start := time.Now()
				if err := run.CallWithStack(ctx, stack[:]); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				used = plenty - rest(i)
			}
			b.ReportMetric(quantile(took, 0.1)/float64(used), "ns/unit")
			b.ReportMetric(float64(used)/rounds, "units/round")
		})
	}
}
