// Package spec runs metered modules in an engine: those of the WebAssembly
// specification's test suite, random ones and the built-in policies. It holds
// tests only.
package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
)

var ctx = context.Background()

// engine is one of the two ways to run a module.
type engine struct {
	name   string
	config func() wazero.RuntimeConfig
}

var engines = []engine{{"compiler", wazero.NewRuntimeConfigCompiler}, {"interpreter", wazero.NewRuntimeConfigInterpreter}}

var versions = []suite{
	{"v1", api.CoreFeaturesV1, map[string]int{
		"module": 780, "register": 10, "action": 42, "assert_return": 15_788, "assert_trap": 458, "assert_exhaustion": 15,
		"assert_invalid": 989, "assert_malformed": 1091 - 430, "assert_unlinkable": 95, "assert_uninstantiable": 2,
	}, 430, 38_668},
	{"v2", api.CoreFeaturesV2, map[string]int{
		"module": 1599, "register": 22, "action": 155, "assert_return": 45_734, "assert_trap": 2408, "assert_exhaustion": 15,
		"assert_invalid": 2146, "assert_malformed": 1810 - 1091, "assert_unlinkable": 83, "assert_uninstantiable": 34,
	}, 1091, 108_266},
}

// plenty is fuel that no test uses up.
const plenty = 1 << 60

// TestSuite runs the specification's own tests with every module metered. Each
// is compiled as it is first: what is invalid is refused there, as in a host.
// What is left of the fuel after each command is the same on both engines.
func TestSuite(t *testing.T) {
	for i, v := range versions {
		if i > 0 && testing.Short() {
			break // the later version holds all of the earlier one's tests, and takes longer
		}
		all := scripts(t, v.folder(t))
		traces := make([][]string, len(engines))
		t.Run(v.name, func(t *testing.T) {
			for i, e := range engines {
				t.Run(e.name, func(t *testing.T) {
					t.Parallel()
					r := &run{t: t, version: v, engine: e, passed: map[string]int{}}
					for _, s := range all {
						r.script(s)
					}
					traces[i] = r.trace
					if r.text != v.text {
						t.Errorf("%d modules are text, want %d", r.text, v.text)
					}
					total := 0
					for kind, want := range v.want {
						if r.passed[kind] != want {
							t.Errorf("%s: %d passed, want %d", kind, r.passed[kind], want)
						}
						total += r.passed[kind]
					}
					if got := len(engines) * (total - r.passed["register"] + r.text + len(all) + 1); got != v.checks {
						t.Errorf("%d checks, want %d", got, v.checks)
					}
					t.Logf("%d commands passed, %d of them calls, in %d scripts; %d modules metered, %d invalid or malformed ones refused by the meter as well", total, len(r.trace), len(all), r.metered, r.refused)
				})
			}
		})
		if t.Failed() {
			continue
		}
		if a, b := traces[0], traces[1]; !slices.Equal(a, b) {
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("fuel differs: %s on the %s, %s on the %s", a[i], engines[0].name, b[i], engines[1].name)
					break
				}
			}
			t.Errorf("%d calls on one engine, %d on the other", len(a), len(b))
		}
	}
}

// run is one version of the suite on one engine.
type run struct {
	t       *testing.T
	version suite
	engine  engine
	passed  map[string]int
	text    int
	metered int
	refused int
	trace   []string // a call and the fuel that it left, each

	runtime wazero.Runtime
	modules map[string]api.Module // by the script's names
	last    api.Module
	all     []api.Module
}

func (r *run) script(s script) {
	r.runtime = wazero.NewRuntimeWithConfig(ctx, r.engine.config().WithCoreFeatures(r.version.features))
	r.modules, r.last, r.all = map[string]api.Module{}, nil, nil
	defer func() {
		if err := r.runtime.Close(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	b, err := os.ReadFile(filepath.Join(s.folder, "..", "..", "testdata", "spectest.wasm"))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.runtime.Instantiate(ctx, b); err != nil {
		r.t.Fatal(err)
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		if c.ModuleType == "text" {
			r.text++
			continue
		}
		as := ""
		if next := i + 1; next < len(s.Commands) && s.Commands[next].Type == "register" {
			as = s.Commands[next].As
		}
		if err := r.command(s, c, as); err != nil {
			r.t.Errorf("%s.wast:%d: %s %s: %v", s.name, c.Line, c.Type, c.Action.Field, err)
			continue
		}
		r.passed[c.Type]++
	}
}

func (r *run) command(s script, c *command, as string) error {
	switch c.Type {
	case "register":
		if r.last == nil || r.last.Name() != c.As {
			return fmt.Errorf("does not follow its module")
		}
		return nil
	case "module", "assert_uninstantiable", "assert_unlinkable", "assert_invalid", "assert_malformed":
		b, err := os.ReadFile(filepath.Join(s.folder, c.Filename))
		if err != nil {
			return err
		}
		if c.Type == "assert_invalid" || c.Type == "assert_malformed" {
			return r.refuses(b)
		}
		m, err := r.instantiate(b, as)
		switch {
		case c.Type == "module" && err != nil:
			return err
		case c.Type == "module":
			r.last = m
			if c.Name != "" {
				r.modules[c.Name] = m
			}
		case c.Text == "out of bounds table access" && c.Type == "assert_uninstantiable":
			// The engine keeps such an instance on purpose: what it wrote before
			// the segment that does not fit stays in shared tables.
			return err
		case err == nil:
			return fmt.Errorf("instantiated")
		}
		return nil
	}
	m := r.last
	if c.Action.Module != "" {
		m = r.modules[c.Action.Module]
	}
	if m == nil {
		return fmt.Errorf("no module %q", c.Action.Module)
	}
	if c.Action.Type == "get" {
		return same(c.Expected, []uint64{m.ExportedGlobal(c.Action.Field).Get()})
	}
	var args []uint64
	for _, a := range c.Action.Args {
		w, err := a.words()
		if err != nil {
			return err
		}
		args = append(args, w...)
	}
	r.refuel()
	f := m.ExportedFunction(c.Action.Field)
	results, err := f.Call(ctx, args...)
	left := rest(m)
	r.trace = append(r.trace, fmt.Sprintf("%s.wast:%d: %d left", s.name, c.Line, left))
	switch c.Type {
	case "action", "assert_return":
		if err != nil {
			return err
		}
		if d := m.ExportedGlobal(meter.Depth).Get(); d != meter.Frames {
			return fmt.Errorf("%d frames left, want all %d", int32(d), meter.Frames)
		}
		if c.Type == "action" {
			return nil
		}
		return same(c.Expected, results)
	case "assert_trap":
		want, ok := trapTexts[c.Text]
		if !ok {
			return fmt.Errorf("trap %q is not known here", c.Text)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("error %v, want %s", err, want)
		}
		if meter.Spent(left) != meter.ByGuest {
			return fmt.Errorf("trapped for %s", meter.Spent(left))
		}
		return nil
	case "assert_exhaustion":
		if err == nil || meter.Spent(left) != meter.ByDepth {
			return fmt.Errorf("error %v with %d left, want one for depth", err, left)
		}
		return nil
	}
	return fmt.Errorf("command is not known here")
}

// same compares results with what is expected.
func same(want []value, got []uint64) error {
	at := 0
	for _, v := range want {
		n := 1
		if v.Type == "v128" {
			n = 2
		}
		if at+n > len(got) {
			return fmt.Errorf("%d words of results, want more", len(got))
		}
		ok, err := v.equal(got[at : at+n])
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("answered %#x, want %s %v", got[at:at+n], v.Type, v.Value)
		}
		at += n
	}
	if at != len(got) {
		return fmt.Errorf("%d words of results, want %d", len(got), at)
	}
	return nil
}

// instantiate compiles a module as it is, meters it and makes an instance of
// the result.
func (r *run) instantiate(b []byte, name string) (api.Module, error) {
	original, err := r.runtime.CompileModule(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("compile the original: %w", err)
	}
	if err := original.Close(ctx); err != nil {
		return nil, err
	}
	limits := meter.Policy()
	limits.AnyImport, limits.Start = true, true
	var e *meter.Error
	if err := meter.Check(b, limits); err != nil && !(errors.As(err, &e) && e.Kind == meter.OverLimit) {
		return nil, fmt.Errorf("check: %w", err)
	}
	metered, err := meter.Meter(b, meter.Options{Fuel: plenty, Slice: slice})
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	r.metered++
	compiled, err := r.runtime.CompileModule(ctx, metered)
	if err != nil {
		return nil, fmt.Errorf("compile the metered module: %w", err)
	}
	m, err := r.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(name).WithStartFunctions())
	if err == nil {
		r.all = append(r.all, m)
	}
	return m, err
}

// refuses is for modules that are not valid: the engine refuses the original,
// and what the meter makes of it, where it makes anything, is no more valid. Some
// constant expressions the engine looks at no sooner than it makes an instance.
func (r *run) refuses(b []byte) error {
	config := wazero.NewModuleConfig().WithStartFunctions()
	if m, err := r.runtime.InstantiateWithConfig(ctx, b, config); err == nil {
		return fmt.Errorf("there is an instance of the original (%v)", m.Close(ctx))
	}
	metered, err := meter.Meter(b, meter.Options{})
	if err != nil {
		r.refused++
		return nil
	}
	if m, err := r.runtime.InstantiateWithConfig(ctx, metered, config); err == nil {
		return fmt.Errorf("there is an instance of the metered module (%v)", m.Close(ctx))
	}
	return nil
}

// refuel gives every instance what a call may use.
func (r *run) refuel() {
	for _, m := range r.all {
		fill(m, plenty)
	}
}
