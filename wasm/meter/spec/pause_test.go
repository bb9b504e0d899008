package spec

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// Long fills and copies are done in parts, and do what they do at once: where
// they overlap either way, end at the memory's end, or are out of bounds and
// write nothing.
func TestLongFillsAndCopies(t *testing.T) {
	param := func(i int) []byte { return sample.Op(0x20, i) }
	args := sample.Code(param(0), param(1), param(2))
	m := &sample.Module{
		Types:    []sample.Type{{Params: []byte{sample.I32, sample.I32, sample.I32}}},
		Memories: [][]byte{append([]byte{0}, sample.Uint(32)...)},
		Funcs: []sample.Function{
			{Code: sample.Code(args, []byte{0xfc, 11, 0})},
			{Code: sample.Code(args, []byte{0xfc, 10, 0, 0})},
		},
		Exports: []sample.Export{{Name: "fill"}, {Name: "copy", Index: 1}, {Name: "memory", Kind: 2}},
	}
	metered, err := meter.Meter(m.Bytes(), meter.Options{Slice: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	const size, part = 32 << 16, meter.PauseBytes
	random := rand.New(rand.NewPCG(5, 6))
	before := make([]byte, size)
	for i := range before {
		before[i] = byte(random.Uint32())
	}
	open := func(e int, wasm []byte) api.Module {
		r := host(t, engines[e])
		g, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	plain := open(0, m.Bytes())
	paid := []api.Module{open(0, metered), open(1, metered)}
	lengths := []uint64{0, 1, part - 1, part, part + 1, 2 * part, 3*part + 17, size - part, size - 1, size, size + 1, 1<<32 - 1}
	for range 300 {
		n := lengths[random.IntN(len(lengths))]
		to, from := random.Uint64N(size), random.Uint64N(size)
		switch random.IntN(4) {
		case 0:
			to, from = 0, random.Uint64N(100)
		case 1:
			to, from = random.Uint64N(100), 0
		case 2: // up to the end
			to, from = size-min(n, size), size-min(n+random.Uint64N(100), size)
		}
		name := []string{"fill", "copy"}[random.IntN(2)]
		run := func(g api.Module) (trapped bool, out []byte, used int64) {
			g.Memory().Write(0, before)
			const units = 1 << 40
			if g.ExportedGlobal(meter.Fuel) != nil {
				fill(g, units)
			}
			_, err := g.ExportedFunction(name).Call(ctx, to, from, n)
			out, _ = g.Memory().Read(0, size)
			if g.ExportedGlobal(meter.Fuel) != nil {
				used = units - rest(g)
			}
			return err != nil, bytes.Clone(out), used
		}
		trap, want, _ := run(plain)
		spent := int64(-1)
		for i, g := range paid {
			got, out, used := run(g)
			if got != trap || !bytes.Equal(out, want) {
				t.Fatalf("%s(%d, %d, %d) on the %s: trapped %v, want %v; the same memory: %v", name, to, from, n, engines[i].name, got, trap, bytes.Equal(out, want))
			}
			if spent >= 0 && used != spent {
				t.Errorf("%s(%d, %d, %d): %d units on the %s, %d on the %s", name, to, from, n, spent, engines[0].name, used, engines[1].name)
			}
			spent = used
		}
	}
}
