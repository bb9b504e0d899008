// Package host runs policy modules: untrusted WebAssembly guests that answer
// the hooks of package abi. It is the only package that knows the engine
// (wazero).
//
// A guest gets a memory limit, no imports but a capped log, no clock, no
// randomness and no state: every call starts from the same memory and globals.
// An instance that trapped is thrown away. Guests are not metered yet, so only
// modules whose digest is allowed run, and the loop of any other could hold up
// the process; prepare is the place where preflight and metering go.
package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

// Names of the guest's exports.
const (
	exportMemory = "memory"
	exportArena  = "kvferry_arena"
	exportSelect = "kvferry_select_layout"
	exportRemap  = "kvferry_remap"
	importModule = "kvferry_v1"
	importLog    = "log"
)

const pageSize = 64 << 10

// Options bound a policy. The zero value is the least that is useful.
type Options struct {
	Memory uint32 // bytes of linear memory, rounded up to pages; 0: 16 MiB
	// Allowed are the digests of modules that may run unmetered; Unmetered
	// lets any.
	Allowed   []geometry.Digest
	Unmetered bool
	// Interpreter runs the guest in the interpreter: slower, the same answers.
	Interpreter bool
	// Instances bounds how many calls run at a time, and so the memory of all
	// instances together; more wait. 0: two more than GOMAXPROCS.
	Instances int
	// Log receives what the guest logs, within the caps below, from the
	// goroutine of the call. Nil drops it.
	Log func(level uint32, text string)
}

// Caps on a guest's log: what is beyond them is dropped.
const (
	MaxLogLines = 16  // a call
	MaxLogLine  = 256 // printable bytes a line
	MaxLogRate  = 200 // lines a second, all calls of a policy together
)

// Error is a module that cannot be a policy here. The fault is the policy's
// unless Operator says that the configuration refuses it.
type Error struct {
	What     string // "import", "export", "start function", "memory", "compile", "metering", ...
	Name     string
	Reason   string
	Operator bool
	Err      error
}

func (e *Error) Error() string {
	s := "policy module: " + e.What
	if e.Name != "" {
		s += " " + e.Name
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fault is a guest that trapped or answered nonsense. The fault is the
// policy's.
type Fault struct {
	Policy string
	Hook   string
	Reason string
	Err    error
}

func (e *Fault) Error() string {
	s := fmt.Sprintf("policy %s, hook %s: %s", e.Policy, e.Hook, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Fault) Unwrap() error { return e.Err }

// Is makes a guest that trapped ErrTrap.
func (e *Fault) Is(target error) bool { return target == ErrTrap && e.Reason == trapped }

const trapped = "trapped"

// Refused is a deliberate answer other than ok.
type Refused struct {
	Policy string
	Hook   string
	Status uint32 // abi.StatusDeclined, abi.StatusUnsupported or abi.StatusBadInput
	Reason string // as the guest gave it, made printable; may be empty
}

func (e *Refused) Error() string {
	word := map[uint32]string{abi.StatusDeclined: "declined", abi.StatusUnsupported: "does not support this", abi.StatusBadInput: "calls the input bad"}[e.Status]
	s := fmt.Sprintf("policy %s %s (hook %s)", e.Policy, word, e.Hook)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("wasm/host: policy is closed")

// ErrTrap is what a *Fault is (errors.Is) whose guest trapped, for another
// reason than that it had no fuel left.
var ErrTrap = errors.New("wasm/host: the guest trapped")

// ErrFuel is the cause (errors.Is) of a *Fault whose guest used up the fuel of
// its call.
var ErrFuel = errors.New("wasm/host: out of fuel")

// Policy is a loaded module. Safe for concurrent use.
type Policy struct {
	manifest module.Manifest
	digest   geometry.Digest
	opt      Options
	pages    uint32
	runtime  wazero.Runtime
	compiled wazero.CompiledModule

	calls atomic.Int64
	open  sync.WaitGroup // calls in progress
	slots chan struct{}  // one element a call that runs
	// reuse says that an instance may serve again. Memory and globals are put
	// back and compared; what a module may hide elsewhere (tables, dropped
	// segments) is not seen before there is a preflight, so a module that is not
	// allowed by digest gets a new instance for each call.
	reuse bool
	gate  gate

	mu     sync.Mutex
	closed bool
	live   int                    // instances, idle ones included
	idle   map[uint32][]*instance // by arena size
}

// Load checks and compiles a module and makes its first instance.
//
// Errors: *module.Error, *Error.
func Load(ctx context.Context, wasm []byte, opt Options) (*Policy, error) {
	digest := geometry.Digest(sha256.Sum256(wasm))
	manifest, err := module.ReadManifest(wasm)
	if err != nil {
		return nil, err
	}
	if !opt.Unmetered && !slices.Contains(opt.Allowed, digest) {
		return nil, &Error{What: "metering", Name: manifest.Name, Operator: true,
			Reason: fmt.Sprintf("module %s is not built in, and guests are not metered yet: --unsafe-unmetered runs it all the same", digest)}
	}
	if opt.Memory == 0 {
		opt.Memory = 16 << 20
	}
	if at := module.Start(wasm); at >= 0 {
		return nil, &Error{What: "start function", Name: manifest.Name, Reason: fmt.Sprintf("the module has one (byte %d); a policy runs in its hooks only", at)}
	}
	if opt.Instances <= 0 {
		opt.Instances = runtime.GOMAXPROCS(0) + 2
	}
	p := &Policy{
		manifest: manifest, digest: digest, opt: opt, pages: (opt.Memory-1)/pageSize + 1,
		slots: make(chan struct{}, opt.Instances), reuse: slices.Contains(opt.Allowed, digest),
		gate: gate{now: time.Now}, idle: map[uint32][]*instance{},
	}
	if err := checkABI(manifest.ABI); err != nil {
		return nil, err
	}
	if err := checkImports(wasm); err != nil {
		return nil, err
	}
	if err := checkMarker(wasm); err != nil {
		return nil, err
	}
	prepared, err := prepare(wasm)
	if err != nil {
		return nil, err
	}
	config := wazero.NewRuntimeConfigInterpreter()
	if !opt.Interpreter {
		// Never NewRuntimeConfig: it falls back to the interpreter in silence,
		// which is a hundred times slower.
		if err := compilerSupported(); err != nil {
			return nil, err
		}
		config = wazero.NewRuntimeConfigCompiler()
	}
	if err := p.start(ctx, config.WithMemoryLimitPages(p.pages).WithDebugInfoEnabled(false), prepared); err != nil {
		if p.runtime != nil {
			_ = p.runtime.Close(ctx) // the reason is err
		}
		return nil, err
	}
	return p, nil
}

// start makes the runtime and loads the module. A panic of the engine, which a
// module may provoke, is an error.
func (p *Policy) start(ctx context.Context, config wazero.RuntimeConfig, wasm []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{What: "compile", Name: p.manifest.Name, Reason: fmt.Sprintf("the engine panicked: %v", r)}
		}
	}()
	p.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	return p.load(ctx, wasm)
}

// checkABI refuses a policy that was written for a later minor than this host
// speaks. One for an earlier minor is welcome: minors only append.
func checkABI(r module.ABIRange) error {
	low, high := r.Minors()
	if low > high {
		return &Error{What: "manifest", Name: "abi", Reason: fmt.Sprintf("%s to %s is no range", r.Min, r.Max)}
	}
	if low > abi.Minor {
		return &Error{What: "manifest", Name: "abi", Reason: fmt.Sprintf("the policy wants kvferry/%s or later, this host speaks kvferry/%d.%d", r.Min, abi.Major, abi.Minor)}
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
				return &Error{What: "export", Name: module.Marker, Reason: fmt.Sprintf("is a %s, want an immutable i32 global", e.Kind)}
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
	return &Error{What: "export", Name: module.Marker, Reason: fmt.Sprintf("missing: this host speaks kvferry/%d%s", abi.Major, other)}
}

// markerPrefix is what the markers of all majors begin with.
const markerPrefix = "kvferry_abi_v"

// checkImports refuses by name what a policy may not import.
func checkImports(wasm []byte) error {
	imports, err := module.Imports(wasm)
	if err != nil {
		return err
	}
	for _, i := range imports {
		switch {
		case i.Kind == module.Memory:
			return &Error{What: "import", Name: i.Module + "." + i.Name, Reason: "a policy brings its own memory"}
		case i.Module != importModule || i.Name != importLog || i.Kind != module.Function:
			return &Error{What: "import", Name: i.Module + "." + i.Name, Reason: fmt.Sprintf("is a %s; a policy imports the function %s.%s and nothing else", i.Kind, importModule, importLog)}
		}
	}
	return nil
}

// prepare is the seam for preflight and metering: the bytes of the module in,
// the bytes that are compiled out.
func prepare(wasm []byte) ([]byte, error) { return wasm, nil }

func compilerSupported() error {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return nil
	}
	return &Error{What: "compile", Reason: fmt.Sprintf("no compiler for %s", runtime.GOARCH), Operator: true}
}

func (p *Policy) load(ctx context.Context, wasm []byte) error {
	host := p.runtime.NewHostModuleBuilder(importModule)
	host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(p.log), []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}, nil).Export(importLog)
	if _, err := host.Instantiate(ctx); err != nil {
		return &Error{What: "compile", Reason: "make the log import", Err: err}
	}
	var err error
	if p.compiled, err = p.runtime.CompileModule(ctx, wasm); err != nil {
		return &Error{What: "compile", Name: p.manifest.Name, Reason: "the module is not valid, or wants more than it may have", Err: err}
	}
	if err := p.check(); err != nil {
		return err
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

// check refuses by name what the ABI does not have.
func (p *Policy) check() error {
	for _, f := range p.compiled.ImportedFunctions() {
		m, n, _ := f.Import()
		if !slices.Equal(f.ParamTypes(), []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}) || len(f.ResultTypes()) != 0 {
			return &Error{What: "import", Name: m + "." + n, Reason: "its type is not (i32 i32 i32) to ()"}
		}
	}
	if _, ok := p.compiled.ExportedMemories()[exportMemory]; !ok {
		return &Error{What: "export", Name: exportMemory, Reason: "missing"}
	}
	functions := p.compiled.ExportedFunctions()
	for _, name := range []string{"_start", "_initialize"} {
		if _, ok := functions[name]; ok {
			return &Error{What: "export", Name: name, Reason: "a policy has no start function"}
		}
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	want := map[string][2][]api.ValueType{exportArena: {{i32}, {i32}}}
	for _, h := range p.manifest.Hooks {
		want["kvferry_"+h] = [2][]api.ValueType{{i32, i32, i32, i32}, {i64}}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t := want[name]
		f, ok := functions[name]
		if !ok {
			return &Error{What: "export", Name: name, Reason: "missing, though the manifest or the ABI has it"}
		}
		if !slices.Equal(f.ParamTypes(), t[0]) || !slices.Equal(f.ResultTypes(), t[1]) {
			return &Error{What: "export", Name: name, Reason: fmt.Sprintf("its type is (%s) to (%s), want (%s) to (%s)", types(f.ParamTypes()), types(f.ResultTypes()), types(t[0]), types(t[1]))}
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
	return p.runtime.Close(ctx)
}
