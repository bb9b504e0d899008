package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/module"
)

var ctx = context.Background()

// question is an input that every guest here ignores.
var question = (&abi.RemapIn{}).Encode()

func load(t testing.TB, wasm []byte, opt Options) *Policy {
	t.Helper()
	opt.InProcess = true
	p, err := Load(ctx, wasm, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return p
}

// engines runs a test on the compiler and on the interpreter.
func engines(t *testing.T, f func(t *testing.T, opt Options)) {
	t.Run("compiler", func(t *testing.T) { f(t, Options{}) })
	t.Run("interpreter", func(t *testing.T) { f(t, Options{Interpreter: true}) })
}

func TestLoadRefusesByName(t *testing.T) {
	change := func(f func(g *guest.Module)) *guest.Module {
		g := guest.Sound(guest.Answer(abi.StatusDeclined, 0)...)
		f(g)
		return g
	}
	without := func(name string) *guest.Module {
		return change(func(g *guest.Module) {
			for i, e := range g.Exports {
				if strings.HasPrefix(string(e[1:]), name) {
					g.Exports = append(g.Exports[:i:i], g.Exports[i+1:]...)
					return
				}
			}
			t.Fatalf("no export %s", name)
		})
	}
	arena := func(code ...byte) *guest.Module {
		return change(func(g *guest.Module) { g.Funcs[0].Code = guest.Body(code) })
	}
	for _, c := range []struct {
		name string
		g    *guest.Module
		want string // of the error
	}{
		{"no module", &guest.Module{Raw: []byte("#!/bin/sh\n")}, "header: no WebAssembly module"},
		{"a component", &guest.Module{Raw: []byte("\x00asm\x0d\x00\x01\x00")}, "byte 4: header: version 65549, want a core module of version 1 (no component)"},
		{"cut off", change(func(g *guest.Module) { b := g.Bytes(); g.Raw = b[:len(b)-3] }), "byte 131: section size: 111 of them cannot be in 108 bytes"},
		{"no manifest", change(func(g *guest.Module) { g.Manifest = "" }), "section kvferry.manifest: missing"},
		{"manifest no JSON", change(func(g *guest.Module) { g.Manifest = "heads" }), "manifest: JSON"},
		{"manifest for a later minor", change(func(g *guest.Module) { g.Manifest = strings.ReplaceAll(guest.SoundManifest, "1.0", "1.7") }), "wants kvferry/1.7 or later, this host speaks kvferry/1.0"},
		{"manifest for another major", change(func(g *guest.Module) { g.Manifest = strings.ReplaceAll(guest.SoundManifest, `"1.0"`, `"2.0"`) }), `abi: "2.0" to "2.0": want versions such as 1.0`},
		{"manifest range backwards", change(func(g *guest.Module) { g.Manifest = strings.Replace(guest.SoundManifest, `"1.0"`, `"1.1"`, 1) }), "1.1 to 1.0 is no range"},
		{"start section", change(func(g *guest.Module) {
			g.Funcs = append(g.Funcs, guest.Function{Kind: guest.TypeNone, Code: guest.Body()})
			g.Start = []byte{2}
		}), "byte 113: start function: code that runs before any call is not allowed"},
		{"_start", change(func(g *guest.Module) {
			g.Funcs = append(g.Funcs, guest.Function{Kind: guest.TypeNone, Code: guest.Body()})
			g.Exports = append(g.Exports, guest.Export("_start", 0, 2))
		}), "export _start: a policy has no start function"},
		{"_initialize", change(func(g *guest.Module) {
			g.Funcs = append(g.Funcs, guest.Function{Kind: guest.TypeNone, Code: guest.Body()})
			g.Exports = append(g.Exports, guest.Export("_initialize", 0, 2))
		}), "export _initialize: a policy has no start function"},
		{"imported function", change(func(g *guest.Module) {
			g.Imports = [][]byte{guest.Import("wasi_snapshot_preview1", "clock_time_get", 0, guest.TypeArena)}
		}), "function 0: import wasi_snapshot_preview1.clock_time_get: its type is (i32) to (i32), want (i32 i64 i32) to (i32)"},
		{"imported memory", change(func(g *guest.Module) { g.Imports, g.Memory = [][]byte{guest.Import("env", "memory", 2, 0, 1)}, nil }), "byte 36: import env.memory: the memory is not among what may be imported"},
		{"imported table", change(func(g *guest.Module) { g.Imports = [][]byte{guest.Import("env", "table", 1, 0x70, 0, 1)} }), "import env.table: the table is not among"},
		{"imported global", change(func(g *guest.Module) { g.Imports = [][]byte{guest.Import("env", "now", 3, 0x7f, 1)} }), "import env.now: the global is not among"},
		{"log as a global", change(func(g *guest.Module) { g.Imports = [][]byte{guest.Import("kvferry_v1", "log", 3, 0x7f, 0)} }), "import kvferry_v1.log: the global is not among"},
		{"log of another type", change(func(g *guest.Module) {
			g.Imports = [][]byte{guest.Import("kvferry_v1", "log", 0, guest.TypeArena)}
			g.Exports = [][]byte{guest.Export("memory", 2, 0), guest.Export("kvferry_arena", 0, 1), guest.Export("kvferry_remap", 0, 2), guest.Export("kvferry_abi_v1", 3, 0)}
		}), "function 0: import kvferry_v1.log: its type is (i32) to (i32), want (i32 i32 i32) to ()"},
		{"another function of ours", change(func(g *guest.Module) { g.Imports = [][]byte{guest.Import("kvferry_v1", "now", 0, guest.TypeLog)} }), "import kvferry_v1.now: the function is not among"},
		{"no memory at all", change(func(g *guest.Module) { g.Memory, g.Exports = nil, g.Exports[1:] }), "export memory: missing"},
		{"memory not exported", without("memory"), "export memory: missing"},
		{"memory over the limit", change(func(g *guest.Module) { g.Memory = append([]byte{0}, guest.Uleb(300)...) }), "byte 41: pages of memory at the start: 300, at most 256 are allowed"},
		{"no arena", without("kvferry_arena"), "export kvferry_arena: missing"},
		{"no hook", without("kvferry_remap"), "export kvferry_remap: missing"},
		{"hook of another type", change(func(g *guest.Module) { g.Types[guest.TypeHook] = "iiil>l" }), "export kvferry_remap: its type is (i32 i32 i32 i64) to (i64), want (i32 i32 i32 i32) to (i64)"},
		{"hook without result", change(func(g *guest.Module) { g.Types[guest.TypeHook], g.Funcs[1].Code = "iiii>", guest.Body() }), "export kvferry_remap: its type is (i32 i32 i32 i32) to ()"},
		{"hook that is no function", change(func(g *guest.Module) { g.Exports[2] = guest.Export("kvferry_remap", 3, 0) }), "export kvferry_remap: missing"},
		{"no marker", without("kvferry_abi_v1"), "export kvferry_abi_v1: missing: this host speaks kvferry/1"},
		{"marker mutable", change(func(g *guest.Module) { g.Globals[0][1] = 1 }), "export kvferry_abi_v1: want an immutable i32 global"},
		{"marker of another type", change(func(g *guest.Module) { g.Globals[0][0], g.Globals[0][2] = 0x7e, 0x42 }), "export kvferry_abi_v1: want an immutable i32 global"},
		{"marker that is a function", change(func(g *guest.Module) { g.Exports[3] = guest.Export("kvferry_abi_v1", 0, 0) }), "export kvferry_abi_v1: is a function, want an immutable i32 global"},
		{"marker of another major", change(func(g *guest.Module) { g.Exports[3] = guest.Export("kvferry_abi_v2", 3, 0) }), "export kvferry_abi_v1: missing: this host speaks kvferry/1, the module speaks kvferry/2"},
		{"arena nowhere", arena(guest.I32(0)...), "export kvferry_arena: answered 0"},
		{"arena not aligned", arena(guest.I32(guest.ArenaAt + 4)...), "export kvferry_arena: answered 4100"},
		{"arena past the end", arena(guest.I32(2*pageSize - 8)...), "export kvferry_arena: answered 131064 for 65536 bytes in a memory of 131072"},
		{"arena wraps", arena(guest.I32(-8)...), "export kvferry_arena: answered 4294967288"},
		{"arena traps", arena(0x00), "export kvferry_arena: trapped"},
		{"not valid", change(func(g *guest.Module) { g.Funcs[1].Code = guest.Body(guest.I32(1)) }), "the module is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wasm := c.g.Bytes()
			p, err := Load(ctx, wasm, Options{InProcess: true})
			if err == nil {
				t.Fatal(errors.Join(errors.New("loaded"), p.Close(ctx)))
			}
			var here *Error
			var read *module.Error
			var preflight *meter.Error
			if !errors.As(err, &here) && !errors.As(err, &read) && !errors.As(err, &preflight) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want a typed one with %q", err, c.want)
			}
		})
	}
}

// What is not built in is compiled elsewhere, or where the operator says so; the
// error says how.
func TestWhoCompiles(t *testing.T) {
	wasm := guest.Sound(guest.Answer(abi.StatusDeclined, 0)...).Bytes()
	_, err := Load(ctx, wasm, Options{Trusted: []geometry.Digest{sha256.Sum256(nil)}})
	var e *Error
	if !errors.As(err, &e) || e.What != "compile" || !e.Operator || e.Fix == "" || !strings.Contains(err.Error(), geometry.Digest(sha256.Sum256(wasm)).String()) {
		t.Fatalf("error %v, want one of the operator's about the module", err)
	}
	for name, opt := range map[string]Options{"trusted": {Trusted: []geometry.Digest{sha256.Sum256(wasm)}}, "in process": {InProcess: true}, "interpreter": {Interpreter: true}} {
		p, err := Load(ctx, wasm, opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var refused *Refused
		if _, err := p.Remap(ctx, question); !errors.As(err, &refused) {
			t.Errorf("%s: error %v, want a refusal", name, err)
		}
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestManifestAndDigest(t *testing.T) {
	wasm := guest.Sound(guest.Answer(abi.StatusDeclined, 0)...).Bytes()
	p := load(t, wasm, Options{})
	if p.Name() != "guest" || p.Version() != "0.1.0" || p.Digest() != sha256.Sum256(wasm) || len(p.Manifest().Hooks) != 1 || p.Calls() != 0 {
		t.Errorf("name %s, version %s, digest %s, manifest %+v, calls %d", p.Name(), p.Version(), p.Digest(), p.Manifest(), p.Calls())
	}
}

// Whatever a hook does, the caller gets a typed error, and the next call works.
func TestFaults(t *testing.T) {
	const unreachable = 0x00
	fill := func(size int32) []byte { // memory.fill(out, 0x41, size); ok, size bytes
		return append(append([]byte{0x20, 2, 0x41, 0x41}, append(guest.I32(size), 0xfc, 11, 0)...), guest.Answer(abi.StatusOk, uint32(size))...)
	}
	for _, c := range []struct {
		name string
		hook []byte
		want string
	}{
		{"unreachable", []byte{unreachable}, "trapped"},
		{"load out of bounds", append([]byte{0x41, 0x7f, 0x28, 2, 0, 0x1a}, guest.Answer(0, 0)...), "trapped"},
		{"division by zero", append([]byte{0x41, 1, 0x41, 0, 0x6d, 0x1a}, guest.Answer(0, 0)...), "trapped"},
		{"deep recursion", []byte{0x20, 0, 0x20, 1, 0x20, 2, 0x20, 3, 0x10, 1}, "its calls went deeper than 1000 frames"},
		{"an endless loop", append([]byte{0x03, 0x40, 0x0c, 0, 0x0b}, guest.Answer(0, 0)...), "used up its fuel of 4000000"},
		{"status unknown", guest.Answer(5, 0), "status 5 is none of kvferry/1"},
		{"status negative", guest.I64(-1), "status 4294967295 is none"},
		{"more than there was room for", guest.Answer(abi.StatusOk, leastArena), "says that it wrote 65536 bytes where it had room for"},
		{"most bytes there are", guest.Answer(abi.StatusOk, 0xffffffff), "says that it wrote 4294967295 bytes"},
		{"an empty answer", guest.Answer(abi.StatusOk, 0), "answered what cannot be read"},
		{"garbage", fill(64), "answered what cannot be read"},
		{"again without a size", guest.Answer(abi.StatusAgain, 0), "does not say how much"},
		{"again for what it had", guest.Answer(abi.StatusAgain, 64), "asks for 64 bytes, of which it had"},
		{"again for too much", guest.Answer(abi.StatusAgain, abi.MaxMessage+1), "wants 4194305 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines(t, func(t *testing.T, opt Options) {
				p := load(t, guest.Sound(c.hook...).Bytes(), opt)
				for range 3 {
					_, err := p.Remap(ctx, question)
					var fault *Fault
					if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "policy guest, hook remap: ") {
						t.Fatalf("error %v, want a *Fault with %q", err, c.want)
					}
				}
				if p.Calls() != 3 {
					t.Errorf("%d calls, want 3", p.Calls())
				}
			})
		})
	}
}

// A refusal is no fault, with or without a reason.
func TestRefusals(t *testing.T) {
	for status, want := range map[uint32]string{
		abi.StatusDeclined:    "policy guest declined (hook remap)",
		abi.StatusUnsupported: "policy guest does not support this (hook remap)",
		abi.StatusBadInput:    "policy guest calls the input bad (hook remap)",
	} {
		_, err := load(t, guest.Sound(guest.Answer(status, 0)...).Bytes(), Options{}).Remap(ctx, question)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Status != status || err.Error() != want {
			t.Errorf("status %d: error %v, want %s", status, err, want)
		}
	}
}

// once is a hook that declines where the state is as it was after loading, and
// traps where a call before left something behind.
func once(read, leave []byte) []byte {
	hook := append(read, 0x04, 0x40, 0x00, 0x0b) // if state then unreachable
	return append(append(hook, leave...), guest.Answer(abi.StatusDeclined, 0)...)
}

// Every call starts from the same state, wherever a guest tries to keep some.
func TestCallsAreStateless(t *testing.T) {
	hidden := func(g *guest.Module) { g.Globals = append(g.Globals, []byte{0x7f, 0x01, 0x41, 0x00, 0x0b}) }
	for _, c := range []struct {
		name   string
		hook   []byte
		change func(g *guest.Module)
	}{
		{"memory", once([]byte{0x41, 16, 0x28, 2, 0}, []byte{0x41, 16, 0x41, 1, 0x36, 2, 0}), nil},
		{"a global that is not exported", once([]byte{0x23, 1}, []byte{0x41, 1, 0x24, 1}), hidden},
		{"the size of the memory", once([]byte{0x3f, 0, 0x41, 2, 0x47}, []byte{0x41, 1, 0x40, 0, 0x1a}), nil},
		{"the arena", once([]byte{0x20, 2, 0x28, 2, 0}, []byte{0x20, 2, 0x41, 1, 0x36, 2, 0}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines(t, func(t *testing.T, opt Options) {
				g := guest.Sound(c.hook...)
				if c.change != nil {
					c.change(g)
				}
				p := load(t, g.Bytes(), opt)
				for i := range 4 {
					var refused *Refused
					if _, err := p.Remap(ctx, question); !errors.As(err, &refused) {
						t.Fatalf("call %d: %v", i, err)
					}
				}
			})
		})
	}
}

// What is sound is used again, unless the module can leave something where it
// cannot be put back.
func TestReuse(t *testing.T) {
	vector := func(g *guest.Module) {
		g.Globals = append(g.Globals, append([]byte{0x7b, 1, 0xfd, 12}, append(make([]byte, 16), 0x0b)...))
	}
	for _, c := range []struct {
		name   string
		change func(g *guest.Module)
		hook   []byte
		idle   int
	}{
		{"declines", nil, guest.Answer(abi.StatusDeclined, 0), 1},
		{"changes a global", func(g *guest.Module) { g.Globals = append(g.Globals, []byte{0x7f, 0x01, 0x41, 0x00, 0x0b}) }, once([]byte{0x23, 1}, []byte{0x41, 1, 0x24, 1}), 1},
		{"has a global that cannot be put back", vector, guest.Answer(abi.StatusDeclined, 0), 0},
		{"drops a segment", func(g *guest.Module) { g.Data = [][]byte{{1, 0}} }, append([]byte{0xfc, 9, 0}, guest.Answer(abi.StatusDeclined, 0)...), 0},
		{"traps", nil, []byte{0x00}, 0},
		{"grows", nil, once([]byte{0x41, 0}, []byte{0x41, 1, 0x40, 0, 0x1a}), 0},
	} {
		g := guest.Sound(c.hook...)
		if c.change != nil {
			c.change(g)
		}
		p, err := Load(ctx, g.Bytes(), Options{InProcess: true})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for range 5 {
			if _, err := p.Remap(ctx, question); err == nil {
				t.Errorf("%s: answered", c.name)
			}
		}
		if got := len(p.idle[leastArena]); got != c.idle || p.live != c.idle || len(p.slots) != 0 {
			t.Errorf("%s: %d idle, %d live, %d running, want %d idle and no other", c.name, got, p.live, len(p.slots), c.idle)
		}
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// growing answers AGAIN until the room is at least least bytes, and then
// declines.
func growing(least int32) []byte {
	hook := append([]byte{0x20, 3}, guest.I32(least)...)
	hook = append(hook, 0x49, 0x04, 0x40) // room < least: if
	hook = append(append(hook, guest.Answer(abi.StatusAgain, uint32(least))...), 0x0f, 0x0b)
	return append(hook, guest.Answer(abi.StatusDeclined, 0)...)
}

// A guest that needs more room gets it, in an instance with a larger arena.
func TestAgainGetsRoom(t *testing.T) {
	g := guest.Sound(growing(300_000)...)
	g.Memory = []byte{0, 16} // a megabyte
	p := load(t, g.Bytes(), Options{})
	for i := range 3 {
		var refused *Refused
		if _, err := p.Remap(ctx, question); !errors.As(err, &refused) {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if p.Calls() != 6 {
		t.Errorf("%d calls of the guest, want 2 each", p.Calls())
	}
}

func TestInputTooLarge(t *testing.T) {
	p := load(t, guest.Sound(guest.Answer(abi.StatusDeclined, 0)...).Bytes(), Options{})
	_, err := p.Remap(ctx, make([]byte, abi.MaxMessage+8))
	var e *Error
	if !errors.As(err, &e) || e.What != "input" || p.Calls() != 0 {
		t.Errorf("error %v after %d calls, want one about the input and no call", err, p.Calls())
	}
}

func TestHookNotThere(t *testing.T) {
	p := load(t, guest.Sound(guest.Answer(abi.StatusDeclined, 0)...).Bytes(), Options{})
	_, _, err := p.SelectLayout(ctx, question, 1)
	var e *Error
	if !errors.As(err, &e) || e.What != "hook" || e.Name != "select_layout" {
		t.Errorf("error %v, want one that names the hook", err)
	}
}

// logger logs n times the bytes at 16, which hold a control sequence.
func logger(n int, at, length int32) *guest.Module {
	code := guest.I32(16)
	code = append(append(code, guest.I32(0x6d31331b)...), 0x36, 2, 0) // ESC 3 1 m
	for range n {
		code = append(append(append(code, guest.I32(2)...), append(guest.I32(at), guest.I32(length)...)...), 0x10, 0)
	}
	g := guest.Sound(append(code, guest.Answer(abi.StatusDeclined, 0)...)...)
	g.Imports = [][]byte{guest.Import("kvferry_v1", "log", 0, guest.TypeLog)}
	g.Exports = [][]byte{guest.Export("memory", 2, 0), guest.Export("kvferry_arena", 0, 1), guest.Export("kvferry_remap", 0, 2), guest.Export("kvferry_abi_v1", 3, 0)}
	return g
}

func TestLogIsCapped(t *testing.T) {
	var lines []string
	var levels uint32
	opt := Options{Log: func(level uint32, text string) { lines, levels = append(lines, text), levels+level }}
	p := load(t, logger(MaxLogLines+9, 16, 4).Bytes(), opt)
	clock := time.Unix(1, 0)
	p.gate.now = func() time.Time { return clock }
	if _, err := p.Remap(ctx, question); err == nil {
		t.Fatal("answered")
	}
	if len(lines) != MaxLogLines || lines[0] != `\u001b31m` || levels != 2*MaxLogLines {
		t.Errorf("%d lines, the first %q, levels %d", len(lines), lines[0], levels)
	}
	for range 2 * MaxLogRate / MaxLogLines {
		_, _ = p.Remap(ctx, question) // a refusal each
	}
	if len(lines) != MaxLogRate {
		t.Errorf("%d lines in a second, want %d", len(lines), MaxLogRate)
	}
	clock = clock.Add(time.Second)
	_, _ = p.Remap(ctx, question)
	if len(lines) != MaxLogRate+MaxLogLines {
		t.Errorf("%d lines after another second, want %d more", len(lines), MaxLogLines)
	}

	lines = nil
	long := load(t, logger(1, 16, 100_000).Bytes(), opt)
	_, _ = long.Remap(ctx, question)
	if len(lines) != 1 || len(lines[0]) > MaxLogLine {
		t.Errorf("%d lines, the first of %d bytes, want 1 of at most %d", len(lines), len(lines[0]), MaxLogLine)
	}
	lines = nil
	outside := load(t, logger(1, -4, 100).Bytes(), opt)
	if _, err := outside.Remap(ctx, question); len(lines) != 0 {
		t.Errorf("a line from outside the memory: %q (%v)", lines, err)
	}
}

// At most as many calls run as there are instances; the rest wait, until their
// context ends.
func TestInstancesAreBounded(t *testing.T) {
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	p := load(t, logger(1, 16, 4).Bytes(), Options{Instances: 2, Log: func(uint32, string) { entered <- struct{}{}; <-leave }})
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() { _, _ = p.Remap(ctx, question) })
	}
	<-entered
	<-entered
	late, cancel := context.WithCancel(ctx)
	third := make(chan error)
	go func() {
		_, err := p.Remap(late, question)
		third <- err
	}()
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("third call: %v, want that it was cancelled", err)
	}

	// Close waits for the two, and refuses what comes after.
	closed := make(chan error)
	go func() { closed <- p.Close(ctx) }()
	for {
		if _, err := p.Remap(late, question); errors.Is(err, context.Canceled) {
			if _, err := p.acquire(late, leastArena); errors.Is(err, ErrClosed) {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned (%v) while calls ran", err)
	default:
	}
	close(leave)
	wait.Wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := p.Remap(ctx, question); !errors.Is(err, ErrClosed) {
		t.Errorf("call after Close: %v", err)
	}
	if err := p.Close(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if p.Calls() != 2 {
		t.Errorf("%d calls, want 2", p.Calls())
	}
}

// Many goroutines, few instances, arenas of two sizes.
func TestConcurrentCalls(t *testing.T) {
	g := guest.Sound(growing(100_000)...)
	g.Memory = []byte{0, 16}
	p := load(t, g.Bytes(), Options{Instances: 3})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				var refused *Refused
				if _, err := p.Remap(ctx, question); !errors.As(err, &refused) {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if p.live > 3 || len(p.slots) != 0 {
		t.Errorf("%d instances live, %d running, want at most 3 and none", p.live, len(p.slots))
	}
}
