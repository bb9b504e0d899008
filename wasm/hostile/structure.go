package hostile

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
)

// escape would clear a terminal that it is written to as it is.
const escape = "\x1b[2J\r\n"

// table gives a module a table of functions.
func table(m *guest.Module, limits ...byte) { m.Tables = [][]byte{append([]byte{0x70}, limits...)} }

// again does something over and over.
func again(code ...[]byte) []byte {
	return then([]byte{0x03, 0x40}, then(code...), []byte{0x0c, 0, 0x0b})
}

// structured are those whose parts do not fit together, or are more than there
// may be of them.
func structured() []Module {
	sound := edit(func(*guest.Module) {})
	header := sound[:8]
	types := guest.Section(nil, 1, []byte{0})
	branches := func(locals, n int) []byte {
		branch := []byte{0x20, 0, 0x0d, 0} // local.get; br_if
		return then([]byte{1}, guest.Uleb(locals), []byte{0x7f, 0x02, 0x40}, bytes.Repeat(branch, n), []byte{0x0b})
	}
	return []Module{
		{"trailing", "has bytes behind its last section", append(bytes.Clone(sound), 0x7f, 0x7f, 0x7f), false},
		{"section-order", "has its types behind its memory", then(header, guest.Section(nil, 5, []byte{1, 0, 2}), types), false},
		{"section-twice", "has two sections of types", then(header, types, types), false},
		{"bodies-missing", "declares a function that it does not have", edit(func(m *guest.Module) {
			m.Funcs = append(m.Funcs, guest.Function{Kind: guest.TypeNone, Code: guest.Body()})
			code := m.Bytes()
			m.Raw = bytes.Replace(code, []byte{3, 4, 3, 0, 1, 3}, []byte{3, 5, 4, 0, 1, 3, 3}, 1) // of the function section
		}), false},
		{"work", "branches a thousand times with a thousand locals", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = then(branches(1000, 1000), decline())
		}), false},
		{"work-all", "has a hundred functions that are each as much work as one may be", edit(func(m *guest.Module) {
			m.Types = append(m.Types, "i>")
			m.Funcs = append(m.Funcs, slices.Repeat([]guest.Function{{Kind: len(m.Types) - 1, Code: branches(1000, 300)}}, 100)...)
		}), false},
		{"branches", "has 9,000 branches in a function", edit(func(m *guest.Module) { m.Funcs[guest.FuncHook].Code = then(branches(1, 9000), decline()) }), false},
		{"tables", "has two tables", edit(func(m *guest.Module) { m.Tables = [][]byte{{0x70, 0, 1}, {0x70, 0, 1}} }), false},
		{"elements", "has 300 element segments", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = slices.Repeat([][]byte{{1, 0, 0}}, 300)
		}), false},
		{"imports", "imports log a hundred times", edit(func(m *guest.Module) {
			for range 100 {
				imports(m, "kvferry_v1", "log", guest.TypeLog)
			}
		}), false},
		{"segment-nowhere", "copies from data segment 9 of 0", hook(guest.I32(0), guest.I32(0), guest.I32(1), []byte{0xfc, 8, 9, 0}, decline()), false},
		{"element-nowhere", "puts function 99 of 2 into its table", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = [][]byte{then([]byte{0}, guest.I32(0), []byte{0x0b, 1, 99})}
		}), false},
		{"data-outside", "has data behind the end of its memory", edit(func(m *guest.Module) { m.Data = [][]byte{then([]byte{0}, guest.I32(3<<16), []byte{0x0b, 1, 'x'})} }), false},
		{"data-wraps", "has data whose end is past 2^32", edit(func(m *guest.Module) {
			m.Data = [][]byte{then([]byte{0}, guest.I32(-2), []byte{0x0b, 4, 'd', 'a', 't', 'a'})}
		}), false},
		{"element-outside", "has an element behind the end of its table", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = [][]byte{then([]byte{0}, guest.I32(5), []byte{0x0b, 1, guest.FuncHook})}
		}), false},
		{"init-outside", "copies 4 GiB out of a data segment of one byte", edit(func(m *guest.Module) {
			m.Data = [][]byte{{1, 1, 'x'}}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(0), guest.I32(0), guest.I32(-1), []byte{0xfc, 8, 0, 0}, decline())
		}), true},
		{"init-wraps", "copies out of a data segment from where the end is past 2^32", edit(func(m *guest.Module) {
			m.Data = [][]byte{{1, 1, 'x'}}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(0), guest.I32(-1), guest.I32(2), []byte{0xfc, 8, 0, 0}, decline())
		}), true},
		{"table-copy", "copies a table over itself again and again", edit(func(m *guest.Module) {
			table(m, append([]byte{0}, guest.Uleb(65_536)...)...)
			m.Funcs[guest.FuncHook].Code = guest.Body(again(guest.I32(1), guest.I32(0), guest.I32(65_535), []byte{0xfc, 14, 0, 0}), decline())
		}), true},
		{"table-init-outside", "copies 4 Gi functions out of an element segment of one", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = [][]byte{{1, 0, 1, guest.FuncHook}}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(0), guest.I32(0), guest.I32(-1), []byte{0xfc, 12, 0, 0}, decline())
		}), true},
		{"table-outside", "calls what stands at 2^32-1 in its table", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(-1), []byte{0x11, guest.TypeNone, 0}, decline())
		}), true},
		{"table-other-type", "calls a function through its table as one of another type", edit(func(m *guest.Module) {
			table(m, 0, 1)
			m.Elements = [][]byte{then([]byte{0}, guest.I32(0), []byte{0x0b, 1, guest.FuncArena})}
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.I32(0), []byte{0x11, guest.TypeNone, 0}, decline())
		}), true},
	}
}

// begun are those that do harm before the first question, as guests that bring a
// runtime of their own may: they have an _initialize that is called.
func begun() []Module {
	begins := func(code ...[]byte) []byte {
		return edit(func(m *guest.Module) {
			m.Types = append(m.Types, ">i")
			imports(m, "wasi_snapshot_preview1", "sched_yield", len(m.Types)-1)
			at := 1 + function(m, guest.TypeNone, guest.Body(code...))
			m.Exports = append(m.Exports, guest.Export("_initialize", 0, at))
		})
	}
	const own = 1 + guest.FuncHook + 1 // index of that _initialize
	return []Module{
		{"initialize-loops", "has a runtime of its own that loops for ever in _initialize", begins(forever), false},
		{"initialize-recurses", "has a runtime of its own whose _initialize calls itself for ever", begins([]byte{0x10, own}), false},
		{"initialize-traps", "has a runtime of its own that traps in _initialize", begins(trap), false},
		{"initialize-grows", "takes all the memory that it may have before the first question", begins(guest.I32(254), []byte{0x40, 0}, drop), true},
		{"initialize-fills", "fills its memory again and again in _initialize", begins(again(guest.I32(0), guest.I32(1), guest.I32(2<<16), []byte{0xfc, 11, 0})), false},
		{"initialize-takes", "wants a question in _initialize", edit(func(m *guest.Module) {
			m.Types = append(m.Types, ">i")
			imports(m, "wasi_snapshot_preview1", "sched_yield", len(m.Types)-1)
			m.Exports = append(m.Exports, guest.Export("_initialize", 0, 1+guest.FuncHook))
		}), false},
	}
}

// named are those that would have their words shown as they are: on a terminal,
// or as lines of a log.
func named() []Module {
	names := func(function int, name string) []byte {
		sub := then([]byte{1}, guest.Uleb(function), guest.Named(name))
		body := then(guest.Named("name"), []byte{1}, guest.Uleb(len(sub)), sub)
		return guest.Section(nil, 0, body)
	}
	trapping := guest.Sound(trap...).Bytes()
	return []Module{
		{"name-trap", "traps in a function whose name would clear a terminal", then(trapping, names(guest.FuncHook, escape)), true},
		{"name-trap-forged", "traps in a function that is named as if it were another", then(trapping, names(guest.FuncHook, "$0(i32) i32"+escape)), true},
		{"name-invalid", "adds a number to nothing in a function whose name would clear a terminal", edit(func(m *guest.Module) {
			m.Funcs[guest.FuncHook].Code = guest.Body([]byte{0x6a, 0x1a}, decline())
			m.Exports = append(m.Exports, guest.Export(escape, 0, guest.FuncHook))
			m.Raw = then(m.Bytes(), names(guest.FuncHook, escape))
		}), false},
		{"name-import", "imports what has a name that would clear a terminal", edit(func(m *guest.Module) { imports(m, "env", escape, guest.TypeNone) }), false},
		{"name-import-module", "imports from what has a name that would clear a terminal", edit(func(m *guest.Module) { imports(m, escape, "log", guest.TypeNone) }), false},
		{"name-utf8", "exports a function under a name that is no UTF-8", edit(func(m *guest.Module) { m.Exports = append(m.Exports, guest.Export("\xff\xfe", 0, 0)) }), false},
		{"name-twice", "exports two functions under one name", edit(func(m *guest.Module) {
			m.Exports = append(m.Exports, guest.Export("kvferry_remap", 0, guest.FuncArena))
		}), false},
		{"marker-escapes", "speaks an ABI whose name would clear a terminal", edit(func(m *guest.Module) {
			m.Exports[guest.ExportMarker] = guest.Export("kvferry_abi_v"+escape, 3, 0)
		}), false},
		{"manifest-escapes", "has a manifest with a field that would clear a terminal", replaced(`"version"`, `"\u001b[2J\r\n": 1, "version"`), false},
		{"manifest-version-escapes", "has a version that would clear a terminal", replaced("0.1.0", `\u001b[2J\r\n`), false},
	}
}

// routed are those whose route answers what cannot be.
func routed() []Module {
	answering := func(d ...abi.Decision) []byte {
		return edit(func(m *guest.Module) {
			m.Manifest = string(bytes.Replace([]byte(m.Manifest), []byte(`"remap"`), []byte(`"route"`), 1))
			m.Exports[guest.ExportHook] = guest.Export("kvferry_route", 0, guest.FuncHook)
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.Reply(abi.StatusOk, (&abi.RouteOut{Decisions: d}).Encode()))
		})
	}
	return []Module{
		{"route-nothing", "decides nothing about a transfer", answering(), true},
		{"route-twice", "decides twice about a transfer", answering(abi.Decision{}, abi.Decision{}), true},
		{"route-alternative-unknown", "chooses the eighth alternative of one", answering(abi.Decision{Alternative: 7}), true},
		{"route-alternative-largest", "chooses alternative 2^32-1", answering(abi.Decision{Alternative: 1<<32 - 1}), true},
		{"route-transport-unknown", "chooses a transport that there is not", answering(abi.Decision{Transports: []abi.Transport{{Provider: 9}}}), true},
		{"route-rail-unknown", "chooses a rail of a rank that there is not", answering(abi.Decision{Rails: []abi.RailChoice{{Side: 1, Rank: 99}}}), true},
		{"route-mode-unknown", "chooses a mode that there is not", answering(abi.Decision{Mode: 77}), true},
		{"route-recompute-unknown", "answers 2 where yes is 1", answering(abi.Decision{Recompute: 2}), true},
		{"route-greedy", "chooses chunks of a byte, 2^32-1 streams, the highest priority, no check of what arrives, no CRC and no TLS", answering(abi.Decision{Chunk: 1, Streams: 1<<32 - 1, Priority: 1<<32 - 1, Integrity: 1, CRC: 1, TLS: 1}), true},
		{"reason-long", "gives a reason of 32 KiB", edit(func(m *guest.Module) {
			out := guest.Remap(0, "")
			const at, n = 1 << 10, 32 << 10 // behind the message, of spaces
			const size, reason = 16, 36     // words of the message: its size; where the reason is, and how long
			out = guest.With(guest.With(guest.With(out, size, at+n), reason, at), reason+4, n)
			m.Funcs[guest.FuncHook].Code = guest.Body(guest.Store(out),
				[]byte{0x20, 2}, guest.I32(at), []byte{0x6a}, guest.I32(' '), guest.I32(n), []byte{0xfc, 11, 0}, guest.Answer(abi.StatusDeclined, at+n))
		}), true},
	}
}
