package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
	"github.com/kvferry/kvferry/wasm/meter"
)

// named gives function n a name.
func named(g *guest.Module, n int, name string) *guest.Module {
	sub := append(append([]byte{1}, guest.Uleb(n)...), guest.Named(name)...)
	body := append(guest.Named("name"), 1)
	g.Raw = guest.Section(g.Bytes(), 0, append(append(body, guest.Uleb(len(sub))...), sub...))
	return g
}

// A trap is told on one line, with the function that trapped, on both engines.
// Names are the guest's words and are not shown: they may say another function,
// or be what a terminal takes for a command.
func TestTrapsSayWhere(t *testing.T) {
	trap := []byte{0x00}
	outside := append(append(guest.I32(1<<20), guest.I32(0)...), append(guest.I32(8), 0xfc, 11, 0)...) // memory.fill
	within := func(code []byte) *guest.Module {
		g := guest.Sound(append([]byte{0x10, 2}, guest.Answer(abi.StatusDeclined, 0)...)...)
		g.Funcs = append(g.Funcs, guest.Function{Kind: guest.TypeNone, Code: guest.Body(code)})
		return g
	}
	importing := within(trap)
	importing.Imports = [][]byte{guest.Import("kvferry_v1", "log", 0, guest.TypeLog)}
	importing.Exports[guest.ExportArena] = guest.Export("kvferry_arena", 0, 1)
	importing.Exports[guest.ExportHook] = guest.Export("kvferry_remap", 0, 2)
	importing.Funcs[guest.FuncHook].Code = guest.Body([]byte{0x10, 3}, guest.Answer(abi.StatusDeclined, 0))
	for _, c := range []struct {
		name string
		g    *guest.Module
		want int
		says string
	}{
		{"in the hook", guest.Sound(trap...), 1, "trapped in function 1: wasm error: unreachable"},
		{"in a function", within(trap), 2, "trapped in function 2: wasm error: unreachable"},
		{"behind an import", importing, 3, "trapped in function 3: wasm error: unreachable"},
		{"in a fill that the meter does", guest.Sound(append(outside, guest.Answer(abi.StatusDeclined, 0)...)...), 1, "trapped in function 1: wasm error: out of bounds memory access"},
		{"under a name", named(guest.Sound(trap...), 1, "\x1b[2J\r\n"), 1, "trapped in function 1: wasm error: unreachable"},
		{"under another's name", named(guest.Sound(trap...), 1, "$0(i32) i32\n"), 1, "trapped in function 1: wasm error: unreachable"},
	} {
		for _, interpreter := range []bool{false, true} {
			p := load(t, c.g.Bytes(), Options{Interpreter: interpreter})
			_, err := p.Remap(ctx, question)
			var f *Fault
			if !errors.As(err, &f) || f.Cause != meter.ByGuest || f.Trapped == nil || *f.Trapped != c.want {
				t.Errorf("%s, interpreter %v: error %+v, want a trap in function %d", c.name, interpreter, err, c.want)
				continue
			}
			if want := "policy guest, hook remap: " + c.says; err.Error() != want {
				t.Errorf("%s, interpreter %v: %q, want %q", c.name, interpreter, err, want)
			}
			if f.Err == nil || !strings.Contains(f.Err.Error(), "stack trace") || strings.Contains(f.Err.Error(), "\x1b") {
				t.Errorf("%s, interpreter %v: cause %q, want the guest's stack by indices", c.name, interpreter, f.Err)
			}
		}
	}
}

// What fails while an instance is made says so, and where.
func TestInstancesThatCannotBeMade(t *testing.T) {
	arena := func(code ...byte) []byte {
		g := guest.Sound(guest.Answer(abi.StatusDeclined, 0)...)
		g.Funcs[guest.FuncArena].Code = guest.Body(code)
		return g.Bytes()
	}
	for _, c := range []struct {
		name  string
		wasm  []byte
		fn    int
		limit uint64
	}{
		{"traps", arena(0x00), 0, 0},
		{"loops", arena(0x03, 0x40, 0x0c, 0, 0x0b, 0x00), -1, Options{}.startFuel()},
		{"recurses", arena(0x20, 0, 0x10, 0), -1, meter.Frames},
		{"nowhere", arena(guest.I32(0)...), -1, 0},
	} {
		_, err := Load(ctx, c.wasm, Options{InProcess: true})
		var e *Error
		if !errors.As(err, &e) || !e.Instance || e.Export != "kvferry_arena" || e.Func != c.fn || e.Limit != c.limit || (c.limit > 0) != (e.Got > 0) || e.Fix == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %+v", c.name, err)
		}
	}
	g := guest.Sound(guest.Answer(abi.StatusDeclined, 0)...)
	g.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(1))
	var e *Error
	if _, err := Load(ctx, g.Bytes(), Options{InProcess: true}); !errors.As(err, &e) || e.Instance {
		t.Errorf("a module that is not valid: error %+v", err)
	}
}

// An answer that is too much of something says how much may be.
func TestAnswersBeyondALimit(t *testing.T) {
	for name, c := range map[string]struct {
		code      []byte
		got, most uint64
	}{
		"alternatives": {guest.Reply(abi.StatusOk, guest.Remap(9, "")), 9, abi.MaxAlternatives},
		"again":        {guest.Answer(abi.StatusAgain, 1<<31), 1 << 31, abi.MaxMessage},
		"none":         {guest.Reply(abi.StatusOk, guest.Remap(0, "")), 0, 0},
	} {
		p := load(t, guest.Sound(c.code...).Bytes(), Options{})
		_, err := p.Remap(ctx, question)
		var f *Fault
		if !errors.As(err, &f) || f.Got != c.got || f.Most != c.most || f.Trapped != nil {
			t.Errorf("%s: error %+v, want %d of %d", name, f, c.got, c.most)
		}
	}
}
