package spec

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

var seeds = flag.Int("modules", 200, "how many random modules to run")

// host is a runtime with what random modules import. The function's answers
// depend on its questions alone.
func host(t testing.TB, e engine) wazero.Runtime {
	t.Helper()
	r := wazero.NewRuntimeWithConfig(ctx, e.config().WithMemoryLimitPages(64))
	b := r.NewHostModuleBuilder(sample.ImportModule)
	b.NewFunctionBuilder().WithFunc(func(_ context.Context, x uint32) uint32 { return x*2654435761 ^ x>>7 }).Export(sample.ImportName)
	if _, err := b.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// outcome is all that can be seen of a call.
type outcome struct {
	name    string
	results []uint64
	trap    string // its first line, without what differs
	memory  [32]byte
	globals []uint64
	left    int64 // fuel; plenty where it is not metered
	cause   meter.Cause
}

func (o outcome) String() string {
	return fmt.Sprintf("%s: results %x, trap %q (%s), %d left, globals %x, memory %x", o.name, o.results, o.trap, o.cause, o.left, o.globals, o.memory[:4])
}

// behaviour is an outcome without what metering adds.
func (o outcome) behaviour() string {
	o.left, o.cause = 0, ""
	return o.String()
}

var trapWord = regexp.MustCompile(`wasm error: ([a-z ]+)`)

// play instantiates a module and calls all its functions in order, with
// arguments by the seed. Each call may use the given fuel.
func play(t testing.TB, r wazero.Runtime, wasm []byte, c *sample.Case, seed uint64, fuel func(call int) int64) []outcome {
	t.Helper()
	m, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	var out []outcome
	if err != nil {
		if word := trapWord.FindStringSubmatch(err.Error()); word != nil && strings.Contains(err.Error(), "start") {
			return []outcome{{name: "start", trap: word[1]}} // no instance, nothing to see
		}
		t.Fatalf("seed %d: instantiate: %v", seed, err)
	}
	defer func() {
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	depth, isMetered := m.ExportedGlobal(meter.Depth).(api.MutableGlobal)
	random := rand.New(rand.NewPCG(seed, 1))
	for _, f := range c.Funcs {
		for round := range 2 {
			var args []uint64
			for _, p := range f.Params {
				switch p {
				case sample.I32:
					args = append(args, uint64(random.Uint32N(40)))
				case sample.I64:
					args = append(args, random.Uint64())
				case sample.F32:
					args = append(args, api.EncodeF32(float32(random.IntN(1000))/8))
				case sample.F64:
					args = append(args, api.EncodeF64(float64(random.IntN(1000))/8))
				case sample.V128:
					args = append(args, random.Uint64(), random.Uint64())
				}
			}
			if isMetered {
				fill(m, fuel(len(out)))
			}
			o := outcome{name: fmt.Sprintf("%s(%d)", f.Name, round), left: plenty}
			var err error
			o.results, err = m.ExportedFunction(f.Name).Call(ctx, args...)
			narrow(o.results, f.Results)
			if isMetered {
				o.left = rest(m)
			}
			if err != nil {
				word := trapWord.FindStringSubmatch(err.Error())
				if word == nil {
					t.Fatalf("seed %d: %s: %v", seed, o.name, err)
				}
				o.trap, o.cause = strings.TrimSpace(word[1]), meter.Spent(o.left)
			} else if isMetered && o.left < 0 {
				o.cause = meter.ByFuel // it came to its end with more than it had
			} else if isMetered && depth.Get() != meter.Frames {
				t.Errorf("seed %d: %s: %d frames left, want all %d", seed, o.name, int32(depth.Get()), meter.Frames)
			}
			live, _ := m.Memory().Read(0, m.Memory().Size())
			o.memory = sha256.Sum256(live)
			for i := range 5 {
				g := m.ExportedGlobal(fmt.Sprintf("global%d", i))
				if g.Type() == 0x7b {
					continue // vectors are not read through this interface
				}
				v := []uint64{g.Get()}
				narrow(v, []byte{g.Type()})
				o.globals = append(o.globals, v...)
			}
			out = append(out, o)
		}
	}
	return out
}

// narrow clears what is above the 32 bits of a value in its word.
func narrow(words []uint64, types []byte) {
	at := 0
	for _, t := range types {
		if at >= len(words) {
			return // a trap, no results
		}
		switch t {
		case sample.I32, sample.F32:
			words[at] = uint64(uint32(words[at]))
		case sample.V128:
			at++
		}
		at++
	}
}

func enough(int) int64 { return plenty }

// TestRandomModules runs random modules as they are and metered, on both
// engines, with fuel enough and with less. With enough, a metered module does
// what the original does and uses the same fuel everywhere; with less, it stops
// at the same place everywhere.
func TestRandomModules(t *testing.T) {
	hosts := []wazero.Runtime{host(t, engines[0]), host(t, engines[1])}
	count := map[string]int{}
	n := *seeds
	if testing.Short() {
		n = min(n, 40)
	}
	for seed := range uint64(n) {
		c := sample.Random(seed)
		if err := check(c.Wasm); err != nil {
			t.Fatalf("seed %d: Check: %v", seed, err)
		}
		metered, err := meter.Meter(c.Wasm, meter.Options{Fuel: plenty, Slice: slice})
		if err != nil {
			t.Fatalf("seed %d: Meter: %v", seed, err)
		}
		var full [2][]outcome
		for i, r := range hosts {
			plain := play(t, r, c.Wasm, c, seed, enough)
			full[i] = play(t, r, metered, c, seed, enough)
			compare(t, seed, "unmetered and metered on the "+engines[i].name, plain, full[i], outcome.behaviour)
		}
		compare(t, seed, "compiler and interpreter", full[0], full[1], outcome.String)
		if t.Failed() {
			return
		}

		// With exactly what was used, all is as before; with one unit less, the
		// first call that ended runs out.
		used := func(o outcome) int64 { return plenty - o.left }
		exact := func(call int) int64 {
			if full[0][call].trap != "" {
				return plenty // a trap of the guest's own may hide some of what was used
			}
			return used(full[0][call])
		}
		random := rand.New(rand.NewPCG(seed, 2))
		cuts := make([]int64, len(full[0]))
		for i, o := range full[0] {
			count[string(o.cause)]++
			if used(o) > 0 {
				cuts[i] = random.Int64N(used(o))
			}
		}
		if full[0][0].name == "start" {
			count["start"]++
			continue
		}
		var short [2][]outcome
		for i, r := range hosts {
			compare(t, seed, "with what was used, on the "+engines[i].name, full[i], play(t, r, metered, c, seed, exact), outcome.behaviour)
			short[i] = play(t, r, metered, c, seed, func(call int) int64 { return cuts[call] })
		}
		compare(t, seed, "compiler and interpreter, short of fuel", short[0], short[1], outcome.String)
		for i, o := range short[0] {
			if full[0][i].trap == "" && o.cause != meter.ByFuel && slices.Equal(o.globals, full[0][i].globals) {
				// What ran before may have changed its way; with the same state it
				// cannot have come to its end.
				if i == 0 {
					t.Errorf("seed %d: %s ended with less than it uses: %s", seed, o.name, o)
				}
			}
			count["short: "+string(o.cause)]++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("outcomes %v", count)
	if count[""] < count["guest"] || count["short: fuel"] == 0 || count["guest"] == 0 {
		t.Errorf("outcomes %v: want mostly results, some traps, and some that run out of fuel", count)
	}
}

func compare(t *testing.T, seed uint64, what string, a, b []outcome, see func(outcome) string) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("seed %d: %s: %d calls and %d", seed, what, len(a), len(b))
		return
	}
	for i := range a {
		if see(a[i]) != see(b[i]) {
			t.Errorf("seed %d: %s differ:\n%s\n%s", seed, what, see(a[i]), see(b[i]))
			return
		}
	}
}

// TestEveryCut gives a few modules every amount of fuel up to what they use.
func TestEveryCut(t *testing.T) {
	hosts := []wazero.Runtime{host(t, engines[0]), host(t, engines[1])}
	for seed := uint64(10_000); seed < 10_004; seed++ {
		c := sample.Random(seed)
		metered, err := meter.Meter(c.Wasm, meter.Options{Fuel: plenty, Slice: slice})
		if err != nil {
			t.Fatal(err)
		}
		c.Funcs = c.Funcs[:2]
		full := play(t, hosts[0], metered, c, seed, enough)
		if full[0].name == "start" {
			continue
		}
		most := int64(0)
		for _, o := range full {
			most = max(most, min(plenty-o.left, 60))
		}
		for fuel := range most + 1 {
			a := play(t, hosts[0], metered, c, seed, func(int) int64 { return fuel })
			b := play(t, hosts[1], metered, c, seed, func(int) int64 { return fuel })
			compare(t, seed, fmt.Sprintf("compiler and interpreter with %d units", fuel), a, b, outcome.String)
			if t.Failed() {
				return
			}
			if enough := fuel >= plenty-full[0].left; (a[0].cause == meter.ByFuel) == enough && full[0].cause == "" {
				t.Fatalf("seed %d: with %d of %d units: %s", seed, fuel, plenty-full[0].left, a[0])
			}
		}
	}
}

// check refuses what a random module has that a policy may not.
func check(wasm []byte) error {
	l := meter.Policy()
	l.Start, l.Tables, l.Allowed = true, 2, []meter.Import{{Module: sample.ImportModule, Name: sample.ImportName, Extern: meter.Function}}
	return meter.Check(wasm, l)
}

// TestRecursion: calls go as deep on one engine as on the other, and stop for
// depth.
func TestRecursion(t *testing.T) {
	c := sample.Random(1)
	metered, err := meter.Meter(c.Wasm, meter.Options{Fuel: plenty, Slice: slice})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		m, err := host(t, e).Instantiate(ctx, metered)
		if err != nil {
			t.Fatal(err)
		}
		call := func(n uint64, units int64) (uint64, meter.Cause, error) {
			fill(m, units)
			res, err := m.ExportedFunction("deep").Call(ctx, n)
			if err != nil {
				return 0, meter.Spent(rest(m)), err
			}
			return res[0], "", nil
		}
		if res, _, err := call(meter.Frames-1, plenty); err != nil || res != meter.Frames-1 {
			t.Errorf("%s: %d frames answered %d (%v)", e.name, meter.Frames, res, err)
		}
		if _, cause, err := call(meter.Frames, plenty); cause != meter.ByDepth {
			t.Errorf("%s: one frame more: error %v for %q, want %s", e.name, err, cause, meter.ByDepth)
		}
		if _, cause, err := call(meter.Frames-1, 3000); cause != meter.ByFuel {
			t.Errorf("%s: with little fuel: error %v for %q, want %s", e.name, err, cause, meter.ByFuel)
		}
		// A host that goes on with the instance all the same gets nothing for free.
		if _, _, err := call(meter.Frames, plenty); err == nil {
			t.Fatal("no trap")
		}
		m.ExportedGlobal(meter.Depth).(api.MutableGlobal).Set(meter.Frames)
		if _, err := m.ExportedFunction("deep").Call(ctx, 1); err == nil || meter.Spent(rest(m)) == meter.ByGuest {
			t.Errorf("%s: the fuel of a trap for depth paid for a call: error %v", e.name, err)
		}
	}
}

// FuzzRandomModule lets the fuzzer pick the seeds and cut the fuel.
func FuzzRandomModule(f *testing.F) {
	f.Add(uint64(1), uint64(100))
	hosts := []wazero.Runtime{host(f, engines[0]), host(f, engines[1])}
	f.Fuzz(func(t *testing.T, seed, cut uint64) {
		c := sample.Random(seed)
		metered, err := meter.Meter(c.Wasm, meter.Options{Fuel: plenty, Slice: slice})
		if err != nil {
			t.Fatal(err)
		}
		fuel := func(int) int64 { return int64(cut % 100_000) }
		compare(t, seed, "unmetered and metered", play(t, hosts[0], c.Wasm, c, seed, enough), play(t, hosts[0], metered, c, seed, enough), outcome.behaviour)
		compare(t, seed, "compiler and interpreter", play(t, hosts[0], metered, c, seed, fuel), play(t, hosts[1], metered, c, seed, fuel), outcome.String)
	})
}
