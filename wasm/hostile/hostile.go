// Package hostile holds modules that do harm, or try to: one way each. They are
// written to wasm/testdata/hostile, where every check of a policy is tried on
// them. It is for tests only.
package hostile

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
)

// Module is one of them.
type Module struct {
	Name string // of its file, without the ending
	Does string // what it tries
	Wasm []byte
	// Runs says that it gets as far as being called: what it does then has to be
	// contained.
	Runs bool
}

// Instructions that the modules below are written with.
var (
	drop    = []byte{0x1a}
	forever = []byte{0x03, 0x40, 0x0c, 0, 0x0b} // loop; br 0; end
	trap    = []byte{0x00}
)

// then puts code in a row.
func then(code ...[]byte) []byte { return slices.Concat(code...) }

// decline is how a module ends that did what it does and was let.
func decline() []byte { return guest.Answer(abi.StatusDeclined, 0) }

// unless traps where the code before left 0 on the stack.
func unless(code ...[]byte) []byte {
	return then(then(code...), []byte{0x45, 0x04, 0x40, 0x00, 0x0b}) // i32.eqz; if; unreachable; end
}

// edit changes a sound module that declines.
func edit(f func(m *guest.Module)) []byte {
	m := guest.Sound(decline()...)
	f(m)
	return m.Bytes()
}

// hook is a sound module with that remap hook.
func hook(code ...[]byte) []byte { return guest.Sound(then(code...)...).Bytes() }

// function adds a function of a type and returns its index.
func function(m *guest.Module, kind int, code []byte) int {
	m.Funcs = append(m.Funcs, guest.Function{Kind: kind, Code: code})
	return len(m.Funcs) - 1
}

// imports adds an imported function of a type: those of the module move on by one.
func imports(m *guest.Module, from, name string, kind int) {
	m.Imports = append(m.Imports, guest.Import(from, name, append([]byte{0}, guest.Uleb(kind)...)...))
	m.Exports[guest.ExportArena] = guest.Export("kvferry_arena", 0, guest.FuncArena+len(m.Imports))
	m.Exports[guest.ExportHook] = guest.Export("kvferry_remap", 0, guest.FuncHook+len(m.Imports))
}

// assignment is one of a remap answer: of all that the first question wants for
// destination rank 0, two layers of two heads.
func assignment(change func(*abi.Assignment)) abi.Assignment {
	a := abi.Assignment{Components: 3, LayerTo: 2, HeadTo: 2}
	if change != nil {
		change(&a)
	}
	return a
}

// answering is a module whose remap always answers these assignments.
func answering(a ...abi.Assignment) []byte {
	out := (&abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: a}}}).Encode()
	return hook(guest.Reply(abi.StatusOk, out))
}

// manifest is a module with another manifest.
func manifest(text string) []byte {
	return edit(func(m *guest.Module) { m.Manifest = text })
}

// replaced is a module with a piece of its manifest replaced.
func replaced(old, new string) []byte {
	if !strings.Contains(guest.SoundManifest, old) {
		panic("hostile: the manifest has no " + old)
	}
	return manifest(strings.Replace(guest.SoundManifest, old, new, 1))
}

// Modules are all of them, in the order of their names.
func Modules() []Module {
	all := slices.Concat(endless(), large(), bytesOf(), structured(), begun(), forged(), imported(), named(), arenas(), answers(), routed(), stateful(), manifests())
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// endless are those that do not come to an end, or only after very long.
func endless() []Module {
	indirect := func(m *guest.Module, to int) {
		m.Tables = [][]byte{{0x70, 0, 1}}
		m.Elements = [][]byte{then([]byte{0}, guest.I32(0), []byte{0x0b, 1}, guest.Uleb(to))}
	}
	parameters := []byte{0x20, 0, 0x20, 1, 0x20, 2, 0x20, 3}
	return []Module{
		{"loop", "loops for ever in remap", hook(forever, decline()), true},
		{"loop-select", "loops for ever in select_layout", guest.Selecting(then(forever, decline())...).Bytes(), true},
		{"loop-route", "loops for ever in route", edit(func(m *guest.Module) {
			m.Manifest = strings.Replace(m.Manifest, `"remap"`, `"remap", "route"`, 1)
			m.Exports = append(m.Exports, guest.Export("kvferry_route", 0, function(m, guest.TypeHook, guest.Body(forever, decline()))))
		}), true},
		{"loop-start", "loops for ever in a start function", edit(func(m *guest.Module) { m.Start = guest.Uleb(function(m, guest.TypeNone, guest.Body(forever))) }), false},
		{"loop-initialize", "loops for ever in _initialize", edit(func(m *guest.Module) {
			m.Exports = append(m.Exports, guest.Export("_initialize", 0, function(m, guest.TypeNone, guest.Body(forever))))
		}), false},
		{"loop-arena", "loops for ever when it is asked for its arena", edit(func(m *guest.Module) { m.Funcs[guest.FuncArena].Code = guest.Body(forever, guest.I32(guest.ArenaAt)) }), false},
		{"loop-br-table", "loops for ever by br_table", hook([]byte{0x03, 0x40, 0x20, 0, 0x0e, 2, 0, 0, 0, 0x0b}, decline()), true},
		{"loop-nested", "counts to 2^63 in a loop within a loop", edit(func(m *guest.Module) {
			count := []byte{0x20, 4, 0x42, 1, 0x7c, 0x22, 4}
			m.Funcs[guest.FuncHook].Code = then([]byte{1, 1, 0x7e, 0x03, 0x40, 0x03, 0x40}, count, guest.I64(1<<62), []byte{0x54, 0x0d, 0, 0x0b}, count, guest.I64(-1), []byte{0x52, 0x0d, 0, 0x0b}, decline())
		}), true},
		{"loop-select-operands", "loops for ever over select and unreachable code", hook([]byte{0x03, 0x40}, guest.I32(1), guest.I32(2), guest.I32(3), []byte{0x1b, 0x1a, 0x0c, 0, 0x00, 0x0b}, decline()), true},
		{"recursion", "calls itself for ever", hook(parameters, []byte{0x10, guest.FuncHook}), true},
		{"recursion-mutual", "two functions call each other for ever", edit(func(m *guest.Module) {
			other := function(m, guest.TypeHook, guest.Body(parameters, []byte{0x10, guest.FuncHook}))
			m.Funcs[guest.FuncHook].Code = guest.Body(parameters, []byte{0x10}, guest.Uleb(other))
		}), true},
		{"recursion-indirect", "calls itself for ever through a table", edit(func(m *guest.Module) {
			indirect(m, guest.FuncHook)
			m.Funcs[guest.FuncHook].Code = guest.Body(parameters, guest.I32(0), []byte{0x11, guest.TypeHook, 0})
		}), true},
		{"recursion-deep-frames", "calls itself with a thousand locals alive", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = then([]byte{1}, guest.Uleb(1000), []byte{0x7e}, parameters, []byte{0x10, guest.FuncHook, 0x20}, guest.Uleb(1003), []byte{0x7c})
		}), true},
		{"slow", "spends nearly all of its fuel in each call", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = then([]byte{1, 1, 0x7f, 0x03, 0x40}, guest.I32(0), guest.I32(0), guest.I32(1<<10), []byte{0xfc, 11, 0, 0x20, 4}, guest.I32(1), []byte{0x6a, 0x22, 4}, guest.I32(14_000), []byte{0x49, 0x0d, 0, 0x0b}, decline())
		}), true},
	}
}

// large are those that take much of something.
func large() []Module {
	fill := then(guest.I32(0), guest.I32(1), guest.I32(2<<16), []byte{0xfc, 11, 0})
	nested := func(n int) []byte {
		return then(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n), decline())
	}
	many := func(n int, item []byte) [][]byte { return slices.Repeat([][]byte{item}, n) }
	return []Module{
		{"grow-memory", "grows its memory until there is no more, and writes to all of it", hook(
			[]byte{0x03, 0x40}, guest.I32(1), []byte{0x40, 0}, guest.I32(-1), []byte{0x47, 0x0d, 0, 0x0b}, // loop: memory.grow 1 until -1
			unless([]byte{0x3f, 0}, guest.I32(256), []byte{0x4d}), // memory.size <= 256
			guest.I32(0), guest.I32(7), []byte{0x3f, 0}, guest.I32(16), []byte{0x74, 0xfc, 11, 0}, decline()), true},
		{"grow-memory-at-once", "asks for 4 GiB at once", hook(unless(guest.I32(65535), []byte{0x40, 0}, guest.I32(-1), []byte{0x46}), decline()), true},
		{"memory-full", "grows to all that it may have, and traps if it gets more", hook(guest.I32(254), []byte{0x40, 0}, drop,
			unless([]byte{0x3f, 0}, guest.I32(256), []byte{0x46}), unless(guest.I32(1), []byte{0x40, 0}, guest.I32(-1), []byte{0x46}), decline()), true},
		{"memory-large", "has 300 pages of memory from the start", edit(func(m *guest.Module) { m.Memory = append([]byte{0}, guest.Uleb(300)...) }), false},
		{"memory-largest", "has 65536 pages of memory from the start", edit(func(m *guest.Module) { m.Memory = append([]byte{0}, guest.Uleb(65536)...) }), false},
		{"memories", "has two memories", bytes.Replace(edit(func(*guest.Module) {}), []byte{5, 3, 1, 0, 2}, []byte{5, 5, 2, 0, 2, 0, 2}, 1), false},
		{"memory-64", "has a memory of 64-bit addresses", edit(func(m *guest.Module) { m.Memory = []byte{0x04, 2} }), false},
		{"memory-shared", "has a memory that threads share", edit(func(m *guest.Module) { m.Memory = []byte{0x03, 2, 4} }), false},
		{"grow-table", "grows a table for ever", edit(func(m *guest.Module) {
			table(m, 1, 1, 100)
			m.Funcs[guest.FuncHook].Code = guest.Body(again([]byte{0xd0, 0x70}, guest.I32(1), []byte{0xfc, 15, 0}, drop), decline())
		}), true},
		{"grow-table-unbounded", "grows a table that says no maximum", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Funcs[guest.FuncHook].Code = guest.Body(again([]byte{0xd0, 0x70}, guest.I32(1<<20), []byte{0xfc, 15, 0}, drop), decline())
		}), false},
		{"table-large", "has a table of ten million elements", edit(func(m *guest.Module) { table(m, append([]byte{0}, guest.Uleb(10_000_000)...)...) }), false},
		{"table-fill", "fills a table again and again", edit(func(m *guest.Module) {
			table(m, append([]byte{0}, guest.Uleb(65_536)...)...)
			m.Funcs[guest.FuncHook].Code = guest.Body(again(guest.I32(0), []byte{0xd0, 0x70}, guest.I32(65_536), []byte{0xfc, 17, 0}), decline())
		}), true},
		{"fill", "fills its memory again and again", hook(again(fill), decline()), true},
		{"fill-grown", "grows to 16 MiB and fills that again and again", hook(guest.I32(254), []byte{0x40, 0}, drop, again(guest.I32(0), guest.I32(1), guest.I32(256<<16), []byte{0xfc, 11, 0}), decline()), true},
		{"copy", "copies its memory over itself again and again", hook(again(guest.I32(0), guest.I32(1<<16), guest.I32(1<<16), []byte{0xfc, 10, 0, 0}), decline()), true},
		{"fill-past-the-end", "fills more than there is", hook(guest.I32(1), guest.I32(1), guest.I32(-1), []byte{0xfc, 11, 0}, decline()), true},
		{"locals", "has 50,001 locals in a function of a few bytes", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = then([]byte{1}, guest.Uleb(50_001), []byte{0x7f}, decline())
		}), false},
		{"locals-overflow", "has locals that together are more than 2^32", edit(func(m *guest.Module) {
			group := append(guest.Uleb(1<<32-1), 0x7f)
			m.Funcs[guest.FuncHook].Code = then([]byte{2}, group, group, decline())
		}), false},
		{"locals-vectors", "has a thousand vectors as locals", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = then([]byte{1}, guest.Uleb(1021), []byte{0x7b}, decline())
		}), false},
		{"nesting", "nests 2,000 blocks", hook(nested(2000)), false},
		{"nesting-wide", "has thousands of blocks beside each other", hook(bytes.Repeat([]byte{0x02, 0x40, 0x0b}, 5000), decline()), false},
		{"body", "has a function of 300 KiB", hook(bytes.Repeat([]byte{0x01}, 300<<10), decline()), false},
		{"operands", "leaves 5,000 values on the stack", hook(bytes.Repeat([]byte{0x41, 0}, 5000), bytes.Repeat(drop, 5000), decline()), false},
		{"br-table", "has a br_table of 100,000 labels", hook([]byte{0x02, 0x40, 0x20, 0, 0x0e}, guest.Uleb(100_000), make([]byte, 100_001), []byte{0x0b}, decline()), false},
		{"types", "has 5,000 types", edit(func(m *guest.Module) { m.Types = append(m.Types, slices.Repeat([]string{"i>"}, 5000)...) }), false},
		{"parameters", "has a type of 1,000 parameters", edit(func(m *guest.Module) { m.Types = append(m.Types, strings.Repeat("i", 1000)+">") }), false},
		{"results", "has a type of 1,000 results", edit(func(m *guest.Module) { m.Types = append(m.Types, ">"+strings.Repeat("i", 1000)) }), false},
		{"functions", "has 25,000 functions", edit(func(m *guest.Module) {
			m.Funcs = append(m.Funcs, slices.Repeat([]guest.Function{{Kind: guest.TypeNone, Code: guest.Body()}}, 25_000)...)
		}), false},
		{"globals", "has 1,000 globals", edit(func(m *guest.Module) { m.Globals = append(m.Globals, many(1000, []byte{0x7f, 1, 0x41, 0, 0x0b})...) }), false},
		{"exports", "exports one function under 500 names", edit(func(m *guest.Module) {
			for i := range 500 {
				m.Exports = append(m.Exports, guest.Export(strings.Repeat("x", 1+i), 0, 0))
			}
		}), false},
		{"data", "has 100,000 data segments", edit(func(m *guest.Module) { m.Data = many(100_000, []byte{1, 0}) }), false},
		{"customs", "has 1,000 custom sections", append(edit(func(*guest.Module) {}), bytes.Repeat(guest.Section(nil, 0, guest.Named("x")), 1000)...), false},
		{"name", "exports a function under a name of 64 KiB", edit(func(m *guest.Module) { m.Exports = append(m.Exports, guest.Export(strings.Repeat("x", 64<<10), 0, 0)) }), false},
	}
}

// bytesOf are those whose bytes are no module, or one of another kind.
func bytesOf() []Module {
	sound := edit(func(*guest.Module) {})
	second := func(op ...byte) []byte { return hook(op, decline()) }
	return []Module{
		{"empty", "is an empty file", []byte{}, false},
		{"script", "is a shell script", []byte("#!/bin/sh\necho no module\n"), false},
		{"component", "is a component, not a core module", []byte("\x00asm\x0d\x00\x01\x00"), false},
		{"cut-off", "ends in the middle of its code", sound[:len(sound)-len(guest.SoundManifest)-40], false},
		{"section-size", "has a section that is longer than the file", guest.Section(append([]byte(nil), "\x00asm\x01\x00\x00\x00\x01\xff\xff\xff\xff\x0f"...), 0, nil), false},
		{"number-too-long", "has a number of eleven bytes", []byte("\x00asm\x01\x00\x00\x00\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), false},
		{"type-mismatch", "adds a number to nothing", second(0x6a, 0x1a), false},
		{"branch-nowhere", "branches out of eight blocks where there is one", second(0x0c, 8), false},
		{"local-nowhere", "reads local 99 of 4", second(0x20, 99, 0x1a), false},
		{"call-nowhere", "calls function 99 of 2", second(0x10, 99), false},
		{"opcode-reserved", "has an instruction that there is not", second(0x27), false},
		{"atomics", "has an instruction of threads", second(0xfe, 0x03, 0x00), false},
		{"tail-call", "has a tail call", second(0x12, 0), false},
		{"exceptions", "has a try", second(0x06, 0x40, 0x0b), false},
	}
}

// forged are those that reach for what the meter adds.
func forged() []Module {
	mutable := []byte{0x7e, 1, 0x42, 0, 0x0b}
	global := func(name string) []byte {
		return edit(func(m *guest.Module) {
			m.Globals = append(m.Globals, mutable)
			m.Exports = append(m.Exports, guest.Export(name, 3, 1))
		})
	}
	return []Module{
		{"fuel-exported", "exports a global under the name of the meter's", global("kvferry_fuel"), false},
		{"depth-exported", "exports a global under the name of the meter's depth", global("kvferry_depth"), false},
		{"state-exported", "exports a global under a name that the meter gives", global("kvferry_global_0"), false},
		{"fuel-imported", "imports the meter's fuel", edit(func(m *guest.Module) { m.Imports = [][]byte{guest.Import("kvferry_v1", "fuel", 3, 0x7e, 1)} }), false},
		{"fuel-written", "writes to the global that the meter would add", hook(guest.I64(1<<62), []byte{0x24, 1}, forever, decline()), false},
		{"fuel-own", "has a global where the meter's would be, and refills it for ever", edit(func(m *guest.Module) {
			m.Globals = append(m.Globals, mutable)
			m.Funcs[guest.FuncHook].Code = guest.Body([]byte{0x03, 0x40}, guest.I64(1<<62), []byte{0x24, 1, 0x0c, 0, 0x0b}, decline())
		}), true},
	}
}

// imported are those that import more than there is, or misuse what there is.
func imported() []Module {
	wasi := "wasi_snapshot_preview1"
	with := func(from, name, kind string, code ...[]byte) []byte {
		return edit(func(m *guest.Module) {
			m.Types = append(m.Types, kind)
			imports(m, from, name, len(m.Types)-1)
			m.Funcs[guest.FuncHook].Code = guest.Body(then(code...), decline())
		})
	}
	call := []byte{0x10, 0}
	text := func(at, n int32) []byte { return then(guest.I32(0), guest.I32(at), guest.I32(n), call) }
	return []Module{
		{"import-clock", "imports a clock of its own", with("env", "now", ">l", call, drop), false},
		{"import-memory", "imports a memory", edit(func(m *guest.Module) { m.Imports = [][]byte{guest.Import("env", "memory", 2, 0, 1)} }), false},
		{"import-files", "imports a way to open files", with(wasi, "path_open", "iiiiillii>i"), false},
		{"import-sockets", "imports a way to accept connections", with(wasi, "sock_accept", "iii>i"), false},
		{"import-log-other-type", "imports log with another type", with("kvferry_v1", "log", "l>"), false},
		{"wasi-time", "works between two looks at the clock, and traps if it learns how long that took", with(wasi, "clock_time_get", "ili>i",
			guest.I32(0), guest.I64(1), guest.I32(128), call, drop,
			guest.I32(1<<12), guest.I32(1), guest.I32(1<<12), []byte{0xfc, 11, 0}, // memory.fill
			unless(guest.I32(0), guest.I64(1), guest.I32(136), call, drop,
				guest.I32(136), []byte{0x29, 3, 0}, guest.I32(128), []byte{0x29, 3, 0, 0x7d}, guest.I64(1000), []byte{0x51})), true}, // i64.load, i64.sub, i64.eq
		{"wasi-random", "asks for randomness, and traps if it gets any", with(wasi, "random_get", "ii>i",
			unless(guest.I32(64), guest.I32(8), call, drop, guest.I32(64), []byte{0x29, 3, 0, 0x50})), true},
		{"wasi-random-outside", "asks for randomness outside its memory", with(wasi, "random_get", "ii>i", guest.I32(-8), guest.I32(1<<30), call, drop), true},
		{"wasi-sleep", "waits for an hour", with(wasi, "poll_oneoff", "iiii>i", guest.I32(64), guest.I32(256), guest.I32(1), guest.I32(512), call, drop), true},
		{"wasi-exit", "ends the process", with(wasi, "proc_exit", "i>", guest.I32(0), call), true},
		{"wasi-write-outside", "writes a text that lies outside its memory", with(wasi, "fd_write", "iiii>i", guest.I32(1), guest.I32(-16), guest.I32(1<<28), guest.I32(64), call, drop), true},
		{"log-flood", "logs for ever", with("kvferry_v1", "log", "iii>", []byte{0x03, 0x40}, text(0, 1000), []byte{0x0c, 0, 0x0b}), true},
		{"log-outside", "logs a text that lies outside its memory", with("kvferry_v1", "log", "iii>", text(-1, 100)), true},
		{"log-wraps", "logs a text whose end is past 2^32", with("kvferry_v1", "log", "iii>", text(100, -1)), true},
	}
}

// arenas are those whose arena is where it cannot be.
func arenas() []Module {
	at := func(code []byte) []byte {
		return edit(func(m *guest.Module) { m.Funcs[guest.FuncArena].Code = guest.Body(code) })
	}
	return []Module{
		{"arena-nowhere", "has its arena at 0", at(guest.I32(0)), false},
		{"arena-odd", "has its arena at an odd address", at(guest.I32(guest.ArenaAt + 1)), false},
		{"arena-past-the-end", "has an arena that ends past its memory", at(guest.I32(2<<16 - 8)), false},
		{"arena-wraps", "has an arena whose end is past 2^32", at(guest.I32(-8)), false},
		{"arena-traps", "traps when it is asked for its arena", at(trap), false},
		{"hook-other-type", "has a hook of another type", edit(func(m *guest.Module) { m.Types[guest.TypeHook] = "iiil>l" }), false},
		{"hook-missing", "names a hook that it does not export", edit(func(m *guest.Module) { m.Exports = slices.Delete(m.Exports, guest.ExportHook, guest.ExportHook+1) }), false},
		{"hook-no-function", "exports a global as its hook", edit(func(m *guest.Module) { m.Exports[guest.ExportHook] = guest.Export("kvferry_remap", 3, 0) }), false},
		{"marker-missing", "does not say which ABI it speaks", edit(func(m *guest.Module) { m.Exports = m.Exports[:guest.ExportMarker] }), false},
		{"marker-later", "speaks the next major of the ABI", edit(func(m *guest.Module) { m.Exports[guest.ExportMarker] = guest.Export("kvferry_abi_v2", 3, 0) }), false},
		{"marker-mutable", "can change which ABI it speaks", edit(func(m *guest.Module) { m.Globals[0][1] = 1 }), false},
	}
}

// answers are those that answer what cannot be.
func answers() []Module {
	one := (&abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: []abi.Assignment{assignment(nil)}}}}).Encode()
	list := len(abi.RemapOut{}.Reason) + 24 // of the alternatives: behind the header of 24 bytes
	said := func(b []byte) []byte { return hook(guest.Reply(abi.StatusOk, b)) }
	return []Module{
		{"trap", "traps", hook(trap), true},
		{"load-outside", "reads the last byte of 4 GiB", hook(guest.I32(-1), []byte{0x2d, 0, 0}, drop, decline()), true},
		{"store-outside", "writes past the end of its memory", hook(guest.I32(2<<16-1), guest.I32(1), []byte{0x36, 0, 0}, decline()), true},
		{"divide", "divides by zero", hook(guest.I32(1), guest.I32(0), []byte{0x6d}, drop, decline()), true},
		{"status-unknown", "answers a status that there is not", hook(guest.Answer(77, 0)), true},
		{"answer-long", "says that its answer is longer than there was room for", hook(guest.Answer(abi.StatusOk, 1<<20)), true},
		{"answer-longest", "says that its answer has 2^32-1 bytes", hook(guest.Answer(abi.StatusOk, 1<<32-1)), true},
		{"answer-empty", "answers nothing at all", hook(guest.Answer(abi.StatusOk, 0)), true},
		{"answer-garbage", "answers bytes without meaning", said(bytes.Repeat([]byte{0xa5}, 256)), true},
		{"answer-again", "asks for more room for ever", edit(func(m *guest.Module) {
			m.Memory = append([]byte{0}, guest.Uleb(200)...)
			m.Funcs[guest.FuncHook].Code = guest.Body([]byte{0x20, 3, 0xad}, guest.I64(8), []byte{0x7c}, guest.I64(int64(abi.StatusAgain)<<32), []byte{0x84})
		}), true},
		{"answer-again-huge", "asks for room of 2 GiB", hook(guest.Answer(abi.StatusAgain, 1<<31)), true},
		{"answer-list-outside", "answers a list that lies outside its answer", said(guest.With(one, list, 1<<20)), true},
		{"answer-list-wraps", "answers a list whose end is past 2^32", said(guest.With(guest.With(one, list, 1<<32-8), list+4, 1<<28)), true},
		{"answer-list-long", "answers a list of 2^32-1 records", said(guest.With(one, list+4, 1<<32-1)), true},
		{"answer-no-alternative", "answers no alternative", said(guest.Remap(0, "")), true},
		{"answer-alternatives", "answers nine alternatives", said(guest.Remap(9, "")), true},
		{"answer-unassigned", "assigns nothing", said(guest.Remap(1, "")), true},
		{"answer-incomplete", "leaves out all but the first layer", answering(assignment(func(a *abi.Assignment) { a.LayerTo = 1; a.HeadTo = 1; a.Components = 1 })), true},
		{"answer-overlapping", "assigns one head of one layer twice", func() []byte {
			one := assignment(func(a *abi.Assignment) { a.LayerTo, a.HeadTo, a.Components = 1, 1, 1 })
			return answering(one, one)
		}(), true},
		{"answer-rank-unknown", "names a source rank that there is not", answering(assignment(func(a *abi.Assignment) { a.Source = 4000 })), true},
		{"answer-rank-largest", "names source rank 2^32-1", answering(assignment(func(a *abi.Assignment) { a.Source = 1<<32 - 1 })), true},
		{"answer-group-unknown", "names a group that there is not", answering(assignment(func(a *abi.Assignment) { a.Group = 99 })), true},
		{"answer-range-backwards", "assigns layers 5 to 2", answering(assignment(func(a *abi.Assignment) { a.LayerFrom, a.LayerTo = 5, 2 })), true},
		{"answer-component-unknown", "names a component that there is not", answering(assignment(func(a *abi.Assignment) { a.Components = 1 << 40 })), true},
		{"answer-many", "answers more assignments than a plan may have", edit(func(m *guest.Module) {
			const n, each = 70_000, 48 // assignments, and bytes of one
			out := (&abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: slices.Repeat([]abi.Assignment{assignment(nil)}, n)}}}).Encode()
			first := len(out) - n*each
			m.Memory = append([]byte{0}, guest.Uleb(200)...)
			code := then([]byte{0x20, 3}, guest.I32(int32(len(out))), []byte{0x49, 0x04, 0x40}, guest.Answer(abi.StatusAgain, uint32(len(out))), []byte{0x0f, 0x0b}, // too little room
				guest.Store(out[:first+each]))
			for have := each; have < n*each; have *= 2 { // memory.copy of what is there behind itself
				code = then(code, []byte{0x20, 2}, guest.I32(int32(first+have)), []byte{0x6a, 0x20, 2}, guest.I32(int32(first)), []byte{0x6a}, guest.I32(int32(min(have, n*each-have))), []byte{0xfc, 10, 0, 0})
			}
			m.Funcs[guest.FuncHook].Code = guest.Body(code, guest.Answer(abi.StatusOk, uint32(len(out))))
		}), true},
		{"reason-escapes", "gives a reason that would clear a terminal", hook(guest.Reply(abi.StatusDeclined, (&abi.RemapOut{Reason: "\x1b[2J\x1b]0;owned\a\u202e" + strings.Repeat("x", 900)}).Encode())), true},
		{"layout-unknown", "chooses layout 99", guest.Selecting(guest.Reply(abi.StatusOk, (&abi.SelectLayoutOut{Index: 99}).Encode())...).Bytes(), true},
	}
}

// stateful are those that answer unlike when they are asked the same: by what
// they keep between calls, or by what engines do unlike.
func stateful() []Module {
	// second answers a status that there is not where the flag is set, and else sets it.
	second := func(get, set []byte) []byte {
		return then(get, []byte{0x04, 0x40}, guest.Answer(77, 0), []byte{0x0f, 0x0b}, set, decline())
	}
	return []Module{
		{"keeps-memory", "answers otherwise in its second call: by its memory", hook(second(then(guest.I32(64), []byte{0x28, 2, 0}), then(guest.I32(64), guest.I32(1), []byte{0x36, 2, 0}))), true},
		{"keeps-global", "answers otherwise in its second call: by a global", edit(func(m *guest.Module) {
			m.Globals = append(m.Globals, []byte{0x7f, 1, 0x41, 0, 0x0b})
			m.Funcs[guest.FuncHook].Code = guest.Body(second([]byte{0x23, 1}, then(guest.I32(1), []byte{0x24, 1})))
		}), true},
		{"keeps-vector", "answers otherwise in its second call: by a vector", edit(func(m *guest.Module) {
			zero := append([]byte{0xfd, 12}, make([]byte, 16)...)
			m.Globals = append(m.Globals, then([]byte{0x7b, 1}, zero, []byte{0x0b}))
			m.Funcs[guest.FuncHook].Code = guest.Body(second([]byte{0x23, 1, 0xfd, 0x53}, then([]byte{0xfd, 12}, bytes.Repeat([]byte{1}, 16), []byte{0x24, 1})))
		}), true},
		{"keeps-table", "answers otherwise in its second call: by a table", edit(func(m *guest.Module) {
			m.Tables = [][]byte{{0x70, 0, 1}}
			m.Elements = [][]byte{then([]byte{1, 0, 1}, guest.Uleb(guest.FuncHook))} // passive
			m.Funcs[guest.FuncHook].Code = guest.Body(second(then(guest.I32(0), []byte{0x25, 0, 0xd1, 0x45}), then(guest.I32(0), guest.I32(0), guest.I32(1), []byte{0xfc, 12, 0, 0})))
		}), true},
		{"keeps-dropped", "traps in its second call: it has dropped a segment", edit(func(m *guest.Module) {
			m.Data = [][]byte{{1, 1, 'x'}}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(64), guest.I32(0), guest.I32(1), []byte{0xfc, 8, 0, 0, 0xfc, 9, 0}, decline())
		}), true},
		{"keeps-element", "traps in its second call: it has dropped an element segment", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = [][]byte{{1, 0, 1, guest.FuncHook}}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(0), guest.I32(0), guest.I32(1), []byte{0xfc, 12, 0, 0, 0xfc, 13, 0}, decline())
		}), true},
		{"keeps-size", "answers otherwise in its second call: by the size of its memory", hook(second(then([]byte{0x3f, 0}, guest.I32(2), []byte{0x47}), then(guest.I32(1), []byte{0x40, 0}, drop))), true},
		{"sees-others", "looks for what another call left in the arena, behind its own question", hook(
			// The eight bytes behind the question, rounded up, must be zero.
			unless([]byte{0x20, 0, 0x20, 1, 0x6a}, guest.I32(15), []byte{0x6a}, guest.I32(-8), []byte{0x71, 0x29, 3, 0, 0x50}),
			[]byte{0x20, 2}, guest.I64(-1), []byte{0x37, 3, 0}, decline()), true},
		// Which of the two an engine keeps is its own business, and in the interpreter
		// that of the compiler that made it: it depends on the operation and on the
		// build. A sum and a product differ in one of them or the other.
		{"engines-differ", "gives its reason by the sum and the product of two values that are no numbers: one engine keeps the first, another the second", hook(func() []byte {
			a, b := (&abi.RemapOut{Reason: "aa"}).Encode(), (&abi.RemapOut{Reason: "ba"}).Encode()
			at := 0
			for a[at] == b[at] {
				at++
			}
			nan := func(payload uint64) []byte { return binary.LittleEndian.AppendUint64([]byte{0x44}, payload) }
			letter := func(op byte, at int) []byte { // op, reinterpret, and, add, i64.store8
				return then([]byte{0x20, 2}, nan(0x7ff8<<48|1), nan(0xfff8<<48|2), []byte{op, 0xbd}, guest.I64(1), []byte{0x83}, guest.I64('a'), []byte{0x7c, 0x3c, 0}, guest.Uleb(at))
			}
			const add, mul = 0xa0, 0xa2 // f64's
			return then(guest.Store(a), letter(add, at), letter(mul, at+1), guest.Answer(abi.StatusDeclined, uint32(len(a))))
		}()), true},
	}
}

// manifests are those that do not say what they are, or say it wrong.
func manifests() []Module {
	sound := edit(func(*guest.Module) {})
	section := func(text string) []byte {
		return guest.Section(nil, 0, append(guest.Named("kvferry.manifest"), text...))
	}
	return []Module{
		{"manifest-missing", "has no manifest", manifest(""), false},
		{"manifest-twice", "has two manifests", append(bytes.Clone(sound), section(guest.SoundManifest)...), false},
		{"manifest-no-json", "has a manifest that is no JSON", manifest("heads 1.0.0"), false},
		{"manifest-cut-off", "has a manifest that ends in the middle", manifest(guest.SoundManifest[:40]), false},
		{"manifest-more", "has something behind its manifest", manifest(guest.SoundManifest + "{}"), false},
		{"manifest-large", "has a manifest of 20 KiB", manifest(guest.SoundManifest + strings.Repeat(" ", 20<<10)), false},
		{"manifest-field", "has a manifest with a field that there is not", replaced(`"version"`, `"privileges": "all", "version"`), false},
		{"manifest-field-twice", "names itself twice", replaced(`"version"`, `"name": "heads", "version"`), false},
		{"manifest-name", "calls itself by a path", replaced(`"guest"`, `"../../heads"`), false},
		{"manifest-version", "has a version that is none", replaced("0.1.0", "latest"), false},
		{"manifest-hook", "names a hook that there is not", replaced(`"remap"`, `"remap", "free_blocks"`), false},
		{"manifest-no-hook", "names no hook", replaced(`"remap"`, ``), false},
		{"manifest-later", "needs a later minor of the ABI", replaced(`{"min": "1.0", "max": "1.0"}`, `{"min": "1.7", "max": "1.9"}`), false},
		{"manifest-backwards", "speaks 1.1 to 1.0", replaced(`"min": "1.0"`, `"min": "1.1"`), false},
		{"manifest-deep", "has a manifest nested a thousand deep", manifest(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)), false},
	}
}
