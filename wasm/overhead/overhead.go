// Package overhead runs a module as it is beside itself metered, to measure what
// metering costs.
//
// It is the one place where a module runs that is not metered, and where one that
// is gets fuel without an end: either may hang the process. It is for modules of
// this program, in benches and tests; package host runs policies, and does
// neither.
package overhead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
)

// Plenty is the fuel that a metered guest has for each call.
const Plenty = 1 << 50

const (
	exportArena = "kvferry_arena"
	arenaSize   = 128 << 10
)

// Guest is an instance of a module without imports. One call at a time.
type Guest struct {
	runtime  wazero.Runtime
	module   api.Module
	memory   api.Memory // nil: the module has none
	calls    map[string]api.Function
	fuel     api.MutableGlobal // nil: it is not metered
	rest     api.MutableGlobal
	at       uint32 // where the arena starts; 0: no policy
	snapshot []byte // of the memory with the arena
	stack    [4]uint64
}

// Took is what a call took.
type Took struct {
	Time time.Duration // of the guest alone
	Fuel uint64        // 0: the guest is not metered
}

// Open makes an instance of a module, metered or as it is, in the compiler or
// the interpreter. Close it.
//
// Preconditions: the module is this program's own, and valid.
func Open(ctx context.Context, wasm []byte, metered, interpreter bool) (_ *Guest, err error) {
	if metered {
		if wasm, err = meter.Meter(wasm, meter.Options{Fuel: Plenty, Slice: meter.DefaultSlice}); err != nil {
			return nil, err
		}
	}
	config := wazero.NewRuntimeConfigCompiler()
	if interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	g := &Guest{runtime: wazero.NewRuntimeWithConfig(ctx, config), calls: map[string]api.Function{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.runtime.Close(ctx))
		}
	}()
	compiled, err := g.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, fmt.Errorf("compile a module of this program: %w", err)
	}
	if g.module, err = g.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return nil, fmt.Errorf("instantiate a module of this program: %w", err)
	}
	if len(compiled.ExportedMemories()) > 0 {
		g.memory = g.module.Memory()
	}
	if metered {
		g.fuel = g.module.ExportedGlobal(meter.Fuel).(api.MutableGlobal) // the meter put both there
		g.rest = g.module.ExportedGlobal(meter.Rest).(api.MutableGlobal)
	}
	if _, ok := compiled.ExportedFunctions()[exportArena]; !ok || g.memory == nil {
		return g, nil
	}
	at, _, err := g.Run(ctx, exportArena, arenaSize)
	if err != nil {
		return nil, err
	}
	g.at = uint32(at)
	live, _ := g.memory.Read(0, g.memory.Size())
	g.snapshot = bytes.Clone(live)
	return g, nil
}

// Close gives the instance back.
func (g *Guest) Close(ctx context.Context) error { return g.runtime.Close(ctx) }

// Run calls an exported function of at most four parameters and returns its
// first result, or 0. The instance is as the calls before left it.
func (g *Guest) Run(ctx context.Context, export string, args ...uint64) (uint64, Took, error) {
	f := g.calls[export]
	if f == nil {
		if f = g.module.ExportedFunction(export); f == nil {
			return 0, Took{}, fmt.Errorf("the module does not export %s", export)
		}
		g.calls[export] = f
	}
	if g.fuel != nil {
		fuel, rest := meter.Split(Plenty, meter.DefaultSlice)
		g.fuel.Set(uint64(fuel))
		g.rest.Set(uint64(rest))
	}
	g.stack = [4]uint64{}
	copy(g.stack[:], args)
	began := time.Now()
	err := f.CallWithStack(ctx, g.stack[:])
	took := Took{Time: time.Since(began)}
	if err != nil {
		return 0, took, fmt.Errorf("run %s: %w", export, err)
	}
	if g.fuel != nil {
		took.Fuel = Plenty - g.fuel.Get() - g.rest.Get()
	}
	return g.stack[0], took, nil
}

// Ask puts a question to a hook, from where every call starts, and returns the
// hook's result with the bytes of its answer, which are good until the next call.
//
// Preconditions: the module is a policy, and question and answer fit into 128 KiB.
func (g *Guest) Ask(ctx context.Context, hook string, in []byte) (status uint64, answer []byte, took Took, err error) {
	if g.at == 0 {
		return 0, nil, took, errors.New("the module has no arena")
	}
	g.memory.Write(0, g.snapshot)
	g.memory.Write(g.at, in)
	out := (g.at + uint32(len(in)) + 7) &^ 7
	if status, took, err = g.Run(ctx, "kvferry_"+hook, uint64(g.at), uint64(len(in)), uint64(out), uint64(g.at+arenaSize-out)); err != nil {
		return 0, nil, took, err
	}
	answer, _ = g.memory.Read(out, uint32(status))
	return status, answer, took, nil
}
