// Package meter makes untrusted WebAssembly modules safe to compile and to run:
// Check refuses what an engine would choke on, Meter rewrites a module so that
// it pays for what it does with fuel and stops when there is none left.
//
// Both read the binary format with their own strict decoder and know nothing of
// any engine. The order that a host keeps:
//
//  1. Check the module.
//  2. Let the engine validate it as it is: neither Check nor Meter knows types.
//  3. Meter it and compile the result.
//  4. Before each call, set the exported globals Fuel and Rest to what the call may
//     use (Split).
//  5. After a trap, Spent says by the same globals why it happened. Throw the
//     instance away: its memory, its call depth and its fuel are what the trap
//     left. A call may also come to its end with less than no fuel left: what it
//     did since the last place where that is looked at is bounded by the module's
//     size. It has used more than it may, as if it had trapped there.
//
// What was used is what was set less what is left of both; after a trap of the guest's
// own it may show less than was used, never more.
//
// A metered module behaves as the original does, but that it may trap for fuel
// or depth, and does so at the same instruction with the same fuel left on every
// engine, and that it pauses (Options.Slice). What it costs is a property of the module's bytes alone.
package meter

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Names of the exports that Meter adds. A module that imports or exports
// something of either name is refused.
const (
	// Fuel is a mutable i64 global: the units that are left.
	Fuel = "kvferry_fuel"
	// Rest is a mutable i64 global: the units beyond those of Fuel. Where Fuel is
	// used up, the next slice of them moves there.
	Rest = "kvferry_rest"
	// Depth is a mutable i32 global: the frames that are left, of Frames. It is
	// back at Frames when a call returns; after a trap it is not.
	Depth = "kvferry_depth"
)

// Globals is how many globals Meter adds, behind all others.
const Globals = 3

// globalPrefix is what the names begin with under which Options.Globals exports.
const globalPrefix = "kvferry_global_"

// GlobalName is the name under which Options.Globals exports the global of an
// index.
func GlobalName(index int) string { return globalPrefix + strconv.Itoa(index) }

// Reserved reports whether a name is the meter's own.
func Reserved(name string) bool {
	return name == Fuel || name == Rest || name == Depth || strings.HasPrefix(name, globalPrefix)
}

// Cause is why a metered module trapped.
type Cause string

// The causes.
const (
	ByGuest Cause = "guest" // a trap of the guest's own
	ByFuel  Cause = "fuel"  // it ran out of fuel
	ByDepth Cause = "depth" // its calls went too deep
)

// tooDeep is in the fuel global after a trap for depth, and nothing rests then. No
// charge goes as low, and what is charged after it cannot wrap around.
const tooDeep = -1 << 62

// Spent says why a metered module trapped, by what the trap left in the globals
// Fuel and Rest together.
func Spent(left int64) Cause {
	switch {
	case left < tooDeep/2:
		return ByDepth
	case left < 0:
		return ByFuel
	}
	return ByGuest
}

// Most is the most fuel that may be set.
const Most = math.MaxInt64

// Split divides what a call may use into what the globals Fuel and Rest are set
// to.
func Split(units, slice int64) (fuel, rest int64) {
	if slice <= 0 {
		return units, 0
	}
	fuel = min(units, slice)
	return fuel, units - fuel
}

// Options say how to meter.
type Options struct {
	// Fuel is what the global holds in a new instance: what its start function
	// may use, and every call until the host sets the global. 0: nothing runs
	// before that.
	Fuel int64
	// Slice is how much fuel is used at most between two pauses, in which the host
	// can do what it cannot while a guest runs: stop the world for a garbage
	// collection. 0: there are none but in long fills and copies.
	Slice int64
	// Globals exports every mutable number that the module keeps in a global of
	// its own, by GlobalName, so that a host can put it back.
	Globals bool
}

// Meter rewrites a module.
//
// Sections that say where in the code something stands (DWARF, relocations,
// branch hints, source maps, names of labels) are left out, since it moves; all
// others and all indices stay what they were. What is not charged at all: data
// and element segments that an instance starts with, which the module's size
// bounds.
//
// Preconditions: the module is valid. One that is not is refused, or its result
// is no more valid than it was.
//
// Errors: *Error.
func Meter(wasm []byte, opt Options) ([]byte, error) {
	m, err := parse(wasm, nil)
	if err != nil {
		return nil, err
	}
	w := &writer{m: m, fuel: uint64(len(m.globals)), rest: uint64(len(m.globals)) + 1, depth: uint64(len(m.globals)) + 2, slice: opt.Slice, typesAt: map[string]int{}}
	if w.slice <= 0 {
		w.slice = math.MaxInt64
	}
	q := &planner{s: &scanner{m: m}}
	w.plans = make([]*plan, len(m.bodies))
	for i, b := range m.bodies {
		if w.plans[i], err = q.plan(m.imported+i, b); err != nil {
			return nil, err
		}
	}
	w.weights = weigh(m, w.plans)
	return w.module(opt), nil
}

// writer puts the metered module together.
type writer struct {
	m          *module
	plans      []*plan
	weights    []int
	slice      int64
	fuel, rest uint64 // the globals' indices
	depth      uint64
	refill     uint64 // the added functions' indices
	fill, copy uint64
	added      []function
	types      [][]byte       // added, encoded
	typesAt    map[string]int // their indices
	out        []byte
}

func (w *writer) module(opt Options) []byte {
	m := w.m
	code := w.code() // first: it adds types
	w.out = append(make([]byte, 0, len(m.b)+len(code)/2+256), m.b[:8]...)

	fuel, rest := Split(opt.Fuel, opt.Slice)
	globals := appendInt([]byte{typeI64, 1, opI64Const}, fuel)
	globals = appendInt(append(globals, opEnd, typeI64, 1, opI64Const), rest)
	globals = append(globals, opEnd, typeI32, 1, opI32Const)
	globals = append(appendInt(globals, Frames), opEnd)
	type exported struct {
		name  string
		index uint64
	}
	added := []exported{{Fuel, w.fuel}, {Rest, w.rest}, {Depth, w.depth}}
	for i := m.importedGlobals; opt.Globals && i < len(m.globals); i++ {
		if m.mutable[i] && m.globals[i] <= typeI32 && m.globals[i] >= typeF64 {
			added = append(added, exported{GlobalName(i), uint64(i)})
		}
	}
	var exports []byte
	for _, e := range added {
		exports = append(appendUint(exports, uint64(len(e.name))), e.name...)
		exports = appendUint(append(exports, byte(Global)), e.index)
	}

	seen := map[byte]bool{}
	// missing adds the sections that the module lacks, once those are passed that
	// come before them.
	missing := func(before int) {
		if !seen[secGlobal] && before > orderOf(secGlobal) {
			w.section(secGlobal, []byte{3}, globals)
			seen[secGlobal] = true
		}
		if !seen[secExport] && before > orderOf(secExport) {
			w.section(secExport, appendUint(nil, uint64(len(added))), exports)
			seen[secExport] = true
		}
	}
	solid := len(w.out) // behind the last section that is not an empty custom one
	for i := range m.sections {
		s := &m.sections[i]
		before := len(w.out)
		if s.id != secCustom {
			missing(orderOf(s.id))
			seen[s.id] = true
		}
		switch s.id {
		case secCustom:
			w.custom(s)
		case secType:
			n := &reader{b: m.b, at: s.from, to: s.to}
			n.u32("types")
			w.section(secType, appendUint(nil, uint64(len(m.types)+len(w.types))), m.b[n.at:s.to], slices.Concat(w.types...))
		case secFunction:
			n := &reader{b: m.b, at: s.from, to: s.to}
			n.u32("functions")
			var kinds []byte
			for _, f := range w.added {
				kinds = appendUint(kinds, uint64(f.kind))
			}
			w.section(secFunction, appendUint(nil, uint64(len(m.bodies)+len(w.added))), m.b[n.at:s.to], kinds)
		case secGlobal:
			w.section(secGlobal, appendUint(nil, uint64(len(m.globals)-m.importedGlobals+3)), m.b[m.globalsFrom:s.to], globals)
		case secExport:
			w.section(secExport, appendUint(nil, uint64(m.exports+len(added))), m.b[m.exportsFrom:s.to], exports)
		case secCode:
			w.section(secCode, code)
		default:
			w.out = append(w.out, m.b[s.start:s.to]...)
		}
		if len(w.out) > before && (s.id != secCustom || s.payload < s.to) {
			solid = len(w.out)
		}
	}
	end := len(w.out)
	missing(math.MaxInt)
	if len(w.out) == end {
		// Some engines cannot read an empty custom section that nothing follows,
		// and what followed one may have been left out.
		w.out = w.out[:solid]
	}
	return w.out
}

func (w *writer) section(id byte, parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	w.out = appendUint(append(w.out, id), uint64(n))
	for _, p := range parts {
		w.out = append(w.out, p...)
	}
}

// custom copies a custom section, unless it holds places in the code.
func (w *writer) custom(s *section) {
	for _, prefix := range []string{".debug_", "reloc.", "metadata.code."} {
		if strings.HasPrefix(s.name, prefix) {
			return
		}
	}
	switch s.name {
	case "linking", "sourceMappingURL", "external_debug_info":
		return
	case "name":
		// Labels are numbered, and the pass adds some.
		const labels = 3
		kept := append([]byte(nil), w.m.b[s.from:s.payload]...)
		for r := (&reader{b: w.m.b, at: s.payload, to: s.to}); r.more(); {
			from := r.at
			id := r.u8("part")
			r.at += r.count(1, "part")
			if id != labels {
				kept = append(kept, w.m.b[from:r.at]...)
			}
		}
		w.section(secCustom, kept)
	default:
		w.out = append(w.out, w.m.b[s.start:s.to]...)
	}
}
