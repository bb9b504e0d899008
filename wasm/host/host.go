// Package host runs policy modules: untrusted WebAssembly guests that answer
// the hooks of package abi. It is the only package that knows the engine
// (wazero).
//
// A guest gets a memory limit, no imports but a capped log, no clock that tells
// time, no randomness and no state: every call starts from the same memory and
// globals. What it does costs fuel, and a call that has none left ends. An
// instance that trapped is thrown away.
//
// A module is loaded in this order: preflight (package meter: limits, imports,
// no start function), manifest and exports, validation by the engine as it is,
// metering, compilation of the result. Only what the operator trusts is compiled
// in this process: engines have no limits of their own, and the preflight's are
// all that stands between a module and the compiler there.
package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/compiler"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/module"
)

// Names of the guest's exports.
const (
	exportMemory = "memory"
	exportArena  = "kvferry_arena"
	exportBegin  = "_initialize"
	importModule = "kvferry_v1"
	importLog    = "log"
)

const pageSize = 64 << 10

// Options bound a policy. The zero value is the least that is useful, for a
// module that may be compiled.
type Options struct {
	Memory uint32 // bytes of linear memory, rounded up to pages; 0: DefaultMemory
	Fuel   Fuel
	// Trusted are the digests of modules that are compiled in this process, since
	// they are the product's own; InProcess lets any. What is neither is compiled
	// by Compiler, and refused where that is nil.
	Trusted   []geometry.Digest
	InProcess bool
	Compiler  Compiler
	// Interpreter runs the guest in the interpreter: slower, the same answers.
	// Nothing is compiled for it, so Compiler is not asked.
	Interpreter bool
	// Instances bounds how many calls run at a time, and so the memory of all
	// instances together; more wait. 0: two more than GOMAXPROCS.
	Instances int
	// Log receives what the guest logs, within the caps below, from the
	// goroutine of the call. Nil drops it.
	Log func(level uint32, text string)
	// Observe is told of every call of a hook, from the call's goroutine, once the
	// guest has returned. Nil: nobody is.
	Observe func(Call)
}

// Compiler compiles modules where it harms nobody; *compiler.Compiler is one.
type Compiler interface {
	// Compile validates a module whose memory may have so many pages, and compiles
	// it as it is metered into the cache, so that the engine finds it there and
	// compiles nothing.
	Compile(ctx context.Context, wasm, metered []byte, pages uint32) error
	// Cache is a new handle of where the engine finds it. The host closes it.
	Cache() (wazero.CompilationCache, error)
	// Exclusive runs f while no other load uses the cache: the engine does not
	// stand two at a time.
	Exclusive(f func() error) error
}

// Caps on a guest's log: what is beyond them is dropped.
const (
	MaxLogLines = 16  // a call
	MaxLogLine  = 256 // printable bytes a line
	MaxLogRate  = 200 // lines a second, all calls of a policy together
)

// Policy is a loaded module. Safe for concurrent use.
type Policy struct {
	manifest module.Manifest
	digest   geometry.Digest
	opt      Options
	pages    uint32
	runtime  wazero.Runtime
	cache    wazero.CompilationCache // nil: none
	compiled wazero.CompiledModule

	functions int // of the module, imported ones counted

	calls  atomic.Int64
	memory atomic.Uint64  // bytes, the most that an instance had
	open   sync.WaitGroup // calls in progress
	slots  chan struct{}  // one element a call that runs
	// reuse says that an instance may serve again. Memory and globals are put
	// back; a module that can leave something elsewhere (in a table, or as a
	// dropped segment) gets a new instance for each call.
	reuse bool
	store *memories // of linear memories
	gate  gate

	mu     sync.Mutex
	closed bool
	live   int                    // instances, idle ones included
	idle   map[uint32][]*instance // by arena size
}

// Load checks and compiles a module and makes its first instance.
//
// Errors: *meter.Error, *module.Error, *Error; those of Options.Compiler.
func Load(ctx context.Context, wasm []byte, opt Options) (*Policy, error) {
	digest := geometry.Digest(sha256.Sum256(wasm))
	limits := meter.Policy()
	limits.Allowed = imports()
	if err := meter.Check(wasm, limits); err != nil {
		return nil, err
	}
	manifest, err := module.ReadManifest(wasm)
	if err != nil {
		return nil, err
	}
	if opt.Memory == 0 {
		opt.Memory = DefaultMemory
	}
	if opt.Instances <= 0 {
		opt.Instances = runtime.GOMAXPROCS(0) + 2
	}
	p := &Policy{
		manifest: manifest, digest: digest, opt: opt, pages: (opt.Memory-1)/pageSize + 1,
		slots: make(chan struct{}, opt.Instances), gate: gate{now: time.Now}, idle: map[uint32][]*instance{},
	}
	p.store = &memories{limit: uint64(p.pages) * pageSize, keep: opt.Instances}
	if err := checkABI(manifest.ABI, module.ManifestOffset(wasm)); err != nil {
		return nil, err
	}
	if err := p.checkWants(); err != nil {
		return nil, err
	}
	if err := checkMarker(wasm); err != nil {
		return nil, err
	}
	if !opt.Interpreter {
		if err := compilerSupported(); err != nil {
			return nil, err
		}
	}
	trusted := slices.Contains(opt.Trusted, digest)
	if !trusted && !opt.InProcess && !opt.Interpreter && opt.Compiler == nil {
		e := refuse("compile", manifest.Name, "module %s is not built in, and only built-in modules are compiled in this process", digest)
		e.Operator = true
		return nil, e.fixed("name a compiler that runs as a process of its own, or accept that the module is compiled in this one")
	}
	here := trusted || opt.InProcess || opt.Interpreter
	if here && !trusted {
		if err := validate(ctx, wasm, manifest.Name, p.pages); err != nil {
			return nil, err
		}
	}
	keeps, err := meter.Keeps(wasm)
	if err != nil {
		return nil, err
	}
	p.reuse = keeps == ""
	// Names are the guest's words: the engine would put them, whatever they are,
	// where it says in which function a call trapped.
	p.functions = module.Functions(wasm)
	metered, err := meter.Meter(module.Unnamed(wasm), meter.Options{Globals: true, Slice: meter.DefaultSlice})
	if err != nil {
		return nil, err
	}
	// The child validates what it compiles. That takes long and comes first, while
	// others may load; within Exclusive it is found done.
	compile := func() error {
		err := opt.Compiler.Compile(ctx, wasm, metered, p.pages)
		var refused *compiler.Error
		if errors.As(err, &refused) && refused.Kind == compiler.Invalid && !refused.Operator && refused.Limit == 0 {
			return invalid(manifest.Name, wasm, err)
		}
		return err
	}
	if here {
		err = p.start(ctx, metered, nil)
	} else if err = compile(); err == nil {
		err = opt.Compiler.Exclusive(func() error {
			if err := compile(); err != nil {
				return err
			}
			return p.start(ctx, metered, opt.Compiler)
		})
	}
	if err != nil {
		_ = p.end(ctx) // the reason is err
		return nil, err
	}
	return p, nil
}

// checkWants refuses a policy that says that it needs more than it would get.
func (p *Policy) checkWants() error {
	over := func(what string, got, limit uint64, unit, how string) error {
		e := refuse(what, p.manifest.Name, "the manifest wants %d%s, this host gives at most %d", got, unit, limit)
		e.Got, e.Limit = got, limit
		return e.fixed("%s", how)
	}
	if limit := uint64(p.pages) * pageSize; p.manifest.Memory > limit {
		return over("memory", p.manifest.Memory, limit, " bytes", "make the policy need less, or have the operator raise its memory limit")
	}
	for _, h := range p.manifest.Hooks {
		if limit := p.opt.FuelOf(h); p.manifest.Fuel > limit {
			return over("fuel", p.manifest.Fuel, limit, " for a call of "+h, "make the policy need less, or have the operator raise the fuel of the hook")
		}
	}
	return nil
}

// validate has the engine look at a module as it is. The interpreter does it: it
// compiles next to nothing.
func validate(ctx context.Context, wasm []byte, name string, pages uint32) (err error) {
	defer recovered(name, &err)
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(pages).WithDebugInfoEnabled(false))
	defer func() { _ = r.Close(ctx) }() // it ran nothing
	if _, err := r.CompileModule(ctx, wasm); err != nil {
		return invalid(name, wasm, err)
	}
	return nil
}

// functionOf is how the engine names a function that is not valid: by its index
// among those of the module's own.
var functionOf = regexp.MustCompile(`function\[(\d+)\]`)

func invalid(name string, wasm []byte, err error) error {
	e := refuse("validation", name, "the module is not valid, or wants more than it may have").because(err).fixed("build it with a compiler that makes valid WebAssembly")
	if found := functionOf.FindStringSubmatch(err.Error()); found != nil {
		imports, bad := module.Imports(wasm)
		if index, err := strconv.Atoi(found[1]); err == nil && bad == nil {
			e.Func = len(imports) + index // the preflight lets functions be imported, and nothing else
		}
	}
	return e
}

// recovered makes a panic of the engine, which a module may provoke, an error.
func recovered(name string, err *error) {
	if r := recover(); r != nil {
		*err = refuse("compile", name, "the engine panicked: %v", r)
	}
}

// start makes the runtime and loads the metered module, compiled by another
// process or, where that is nil, in this one.
func (p *Policy) start(ctx context.Context, wasm []byte, other Compiler) (err error) {
	defer recovered(p.manifest.Name, &err)
	config := wazero.NewRuntimeConfigInterpreter()
	if !p.opt.Interpreter {
		// Never NewRuntimeConfig: it falls back to the interpreter in silence,
		// which is a hundred times slower.
		config = wazero.NewRuntimeConfigCompiler()
	}
	if other != nil {
		if p.cache, err = other.Cache(); err != nil {
			return err
		}
		config = config.WithCompilationCache(p.cache)
	}
	p.runtime = wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(p.pages).WithDebugInfoEnabled(false))
	return p.load(ctx, wasm)
}

// checkABI refuses a policy that was written for a later minor than this host
// speaks. One for an earlier minor is welcome: minors only append. offset is
// where the manifest is.
func checkABI(r module.ABIRange, offset int) error {
	if low, _ := r.Minors(); low > abi.Minor {
		e := refuse("manifest", "abi", "the policy wants kvferry/%s or later, this host speaks kvferry/%d.%d", r.Min, abi.Major, abi.Minor).fixed("build it for kvferry/%d.%d, or run it in a later kvferry", abi.Major, abi.Minor)
		e.Offset = offset
		return e
	}
	return nil
}

// checkMarker refuses a module of another major by what it says that it speaks.
func checkMarker(wasm []byte) error {
	exports, err := module.Exports(wasm)
	if err != nil {
		return err
	}
	other := ""
	for _, e := range exports {
		if e.Name == module.Marker {
			if e.Kind != module.Global {
				return exported(module.Marker, "is a %s, want an immutable i32 global", e.Kind).fixed("seal the module with kvferry policy build")
			}
			return nil
		}
		if v, ok := strings.CutPrefix(e.Name, markerPrefix); ok && other == "" {
			other = fmt.Sprintf(", the module speaks kvferry/%s", abi.Reason(v))
		}
	}
	if other == "" {
		other = " and the module does not, or it was not sealed"
	}
	return exported(module.Marker, "missing: this host speaks kvferry/%d%s", abi.Major, other).fixed("seal the module with kvferry policy build")
}

// markerPrefix is what the markers of all majors begin with.
const markerPrefix = "kvferry_abi_v"

func compilerSupported() error {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return nil
	}
	e := refuse("compile", "", "no compiler for %s", runtime.GOARCH)
	e.Operator = true
	return e
}

func (p *Policy) load(ctx context.Context, wasm []byte) error {
	host := p.runtime.NewHostModuleBuilder(importModule)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(p.log), []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}, nil).Export(importLog)
	if _, err := host.Instantiate(ctx); err != nil {
		return refuse("compile", "", "make the log import").because(err)
	}
	var err error
	if p.compiled, err = p.runtime.CompileModule(ctx, wasm); err != nil {
		return invalid(p.manifest.Name, wasm, err)
	}
	if err := p.check(); err != nil {
		return err
	}
	if p.usesWASI() {
		if err := p.wasi(ctx, p.runtime.NewHostModuleBuilder(wasiModule)); err != nil {
			return refuse("compile", "", "make the imports of %s", wasiModule).because(err)
		}
	}
	// The first instance shows whether there can be any.
	i, err := p.instantiate(ctx, leastArena)
	if err != nil {
		return err
	}
	p.live = 1
	p.idle[i.size] = append(p.idle[i.size], i)
	return nil
}

// usesWASI says that it is a guest that brings a runtime of its own.
func (p *Policy) usesWASI() bool {
	return slices.ContainsFunc(p.compiled.ImportedFunctions(), func(f api.FunctionDefinition) bool {
		m, _, _ := f.Import()
		return m == wasiModule
	})
}

// check refuses by name what the ABI does not have.
func (p *Policy) check() error {
	for _, f := range p.compiled.ImportedFunctions() {
		m, n, _ := f.Import()
		params, results := signature(m, n)
		if !slices.Equal(f.ParamTypes(), letters(params)) || !slices.Equal(f.ResultTypes(), letters(results)) {
			e := refuse("import", m+"."+n, "its type is (%s) to (%s), want (%s) to (%s)", types(f.ParamTypes()), types(f.ResultTypes()), types(letters(params)), types(letters(results)))
			e.Func = int(f.Index())
			return e.fixed("declare it as docs/abi.md, or WASI's preview 1, has it")
		}
	}
	if _, ok := p.compiled.ExportedMemories()[exportMemory]; !ok {
		return exported(exportMemory, "missing").fixed("export the memory under that name")
	}
	functions := p.compiled.ExportedFunctions()
	if _, ok := functions["_start"]; ok {
		return exported("_start", "a policy has no start function").fixed("build it as a library (a reactor), not as a program")
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	want := map[string][2][]api.ValueType{exportArena: {{i32}, {i32}}}
	for _, h := range p.manifest.Hooks {
		want["kvferry_"+h] = [2][]api.ValueType{{i32, i32, i32, i32}, {i64}}
	}
	if _, ok := functions[exportBegin]; ok {
		if !p.usesWASI() {
			return exported(exportBegin, "a policy has no start function").fixed("leave it out: nothing but a guest that brings a runtime of its own, and so imports %s, has one", wasiModule)
		}
		want[exportBegin] = [2][]api.ValueType{}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t := want[name]
		f, ok := functions[name]
		if !ok {
			return exported(name, "missing: no function of that name is exported, though the manifest or the ABI has one").fixed("export it, as the SDKs do, or take its hook out of the manifest")
		}
		if !slices.Equal(f.ParamTypes(), t[0]) || !slices.Equal(f.ResultTypes(), t[1]) {
			e := exported(name, "its type is (%s) to (%s), want (%s) to (%s)", types(f.ParamTypes()), types(f.ResultTypes()), types(t[0]), types(t[1]))
			e.Func = int(f.Index())
			return e.fixed("declare it as docs/abi.md and the SDKs do")
		}
	}
	return nil
}

func types(ts []api.ValueType) string {
	s := ""
	for i, t := range ts {
		if i > 0 {
			s += " "
		}
		s += api.ValueTypeName(t)
	}
	return s
}

// Name is the manifest's name.
func (p *Policy) Name() string { return p.manifest.Name }

// Version is the manifest's semantic version.
func (p *Policy) Version() string { return p.manifest.Version }

// Digest is the SHA-256 of the module's bytes.
func (p *Policy) Digest() geometry.Digest { return p.digest }

// Manifest is what the module says of itself.
func (p *Policy) Manifest() module.Manifest { return p.manifest }

// FuelOf is what a call of a hook may use.
func (p *Policy) FuelOf(hook string) uint64 { return p.opt.FuelOf(hook) }

// Memory is how many bytes of linear memory an instance had at most so far.
func (p *Policy) Memory() uint64 { return p.memory.Load() }

// Calls is the number of hook calls so far.
func (p *Policy) Calls() int64 { return p.calls.Load() }

// Close waits for the calls in progress and gives everything back. A second
// Close returns ErrClosed.
func (p *Policy) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	p.mu.Unlock()
	p.open.Wait()
	return p.end(ctx)
}

// end gives everything back. No call is in progress, and none comes.
func (p *Policy) end(ctx context.Context) error {
	var errs []error
	if p.runtime != nil {
		errs = append(errs, p.runtime.Close(ctx))
	}
	if p.cache != nil {
		errs = append(errs, p.cache.Close(ctx))
	}
	for _, list := range p.idle {
		for _, i := range list {
			i.forget()
		}
	}
	p.store.close()
	return errors.Join(errs...)
}
