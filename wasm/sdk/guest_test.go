package sdk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// guest is an instance of a policy, called as the ABI says and in no other way:
// what it answers is compared byte by byte, so the host, which reads and checks
// answers, stays out of it.
type guest struct {
	t        testing.TB
	ctx      context.Context
	again    func() (api.Module, error)
	module   api.Module
	hooks    map[string]api.Function
	arena    uint32
	size     uint32
	snapshot []byte
	globals  []uint64
	made     int // instances
}

// answer is what a hook returned and wrote.
type answer struct {
	status, low uint32
	bytes       []byte
}

// run instantiates a module with room for questions and answers of size bytes
// each.
func run(t testing.TB, wasm []byte, size uint32) *guest {
	t.Helper()
	g := &guest{t: t, ctx: context.Background(), hooks: map[string]api.Function{}, size: size}
	r := wazero.NewRuntimeWithConfig(g.ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(1024))
	t.Cleanup(func() {
		if err := r.Close(g.ctx); err != nil {
			t.Error(err)
		}
	})
	compiled, err := r.CompileModule(g.ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	if len(compiled.ImportedFunctions()) > 0 { // of a Go guest
		wasi_snapshot_preview1.MustInstantiate(g.ctx, r)
	}
	g.again = func() (api.Module, error) {
		return r.InstantiateModule(g.ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	}
	g.start()
	return g
}

// start makes a new instance, ready to be called.
func (g *guest) start() {
	g.t.Helper()
	var err error
	if g.module, err = g.again(); err != nil {
		g.t.Fatal(err)
	}
	g.made++
	if f := g.module.ExportedFunction("_initialize"); f != nil {
		g.must(f)
	}
	g.arena = uint32(g.must(g.module.ExportedFunction("kvferry_arena"), uint64(2*g.size)))
	for _, h := range []string{"select_layout", "remap", "route"} {
		g.hooks[h] = g.module.ExportedFunction("kvferry_" + h)
	}
	all, _ := g.module.Memory().Read(0, g.module.Memory().Size())
	g.snapshot, g.globals = bytes.Clone(all), g.state()
}

// state is what the globals hold.
func (g *guest) state() []uint64 {
	m := g.module.(experimental.InternalModule)
	var out []uint64
	for i := range m.NumGlobal() {
		out = append(out, m.Global(i).Get())
	}
	return out
}

// restore puts the instance back to where every call starts, or takes a new one
// where that cannot be done.
func (g *guest) restore() {
	g.t.Helper()
	m := g.module.Memory()
	if slices.Equal(g.state(), g.globals) && m.Size() == uint32(len(g.snapshot)) && m.Write(0, g.snapshot) {
		return
	}
	if err := g.module.Close(g.ctx); err != nil {
		g.t.Fatal(err)
	}
	g.start()
}

func (g *guest) must(f api.Function, params ...uint64) uint64 {
	g.t.Helper()
	out, err := f.Call(g.ctx, params...)
	if err != nil {
		g.t.Fatal(err)
	}
	if len(out) == 0 {
		return 0
	}
	return out[0]
}

// call asks a hook, with room for an answer of cap bytes.
func (g *guest) call(hook string, in []byte, room uint32) answer {
	g.t.Helper()
	if room > g.size || len(in) > int(g.size) {
		g.t.Fatalf("a question of %d bytes and an answer of %d do not fit into %d each", len(in), room, g.size)
	}
	g.restore()
	m := g.module.Memory()
	m.Write(g.arena, in)
	out := g.arena + g.size
	result := g.must(g.hooks[hook], uint64(g.arena), uint64(len(in)), uint64(out), uint64(room))
	a := answer{status: uint32(result >> 32), low: uint32(result)}
	if n := a.low; a.status != 1 {
		b, ok := m.Read(out, n)
		if !ok || n > room {
			g.t.Fatalf("%s says that it wrote %d bytes of %d", hook, n, room)
		}
		a.bytes = bytes.Clone(b)
	}
	return a
}

// hookOf is the hook that a message is about.
func hookOf(message []byte) string {
	return map[uint32]string{1: "select_layout", 2: "remap", 3: "route"}[binary.LittleEndian.Uint32(message[8:])]
}
