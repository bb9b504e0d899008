package meter

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/meter/sample"
)

func metered(t *testing.T, wasm []byte) *module {
	t.Helper()
	out, err := Meter(wasm, Options{Fuel: 7})
	if err != nil {
		t.Fatal(err)
	}
	m, perr := parse(patch(out), nil)
	if perr != nil {
		t.Fatalf("the result: %v\n%x", perr, out)
	}
	return m
}

// patch renames the meter's exports, whose names no module may have.
func patch(wasm []byte) []byte {
	out := bytes.Replace(wasm, []byte(Fuel), []byte("kvferry_FUEL"), 1)
	out = bytes.Replace(out, []byte(Rest), []byte("kvferry_REST"), 1)
	return bytes.Replace(out, []byte(Depth), []byte("kvferry_DEPTH"), 1)
}

// find returns the contents of a section of a module.
func find(t *testing.T, m *module, id byte, name string) []byte {
	t.Helper()
	for _, s := range m.sections {
		if s.id == id && s.name == name {
			return m.b[s.from:s.to]
		}
	}
	return nil
}

func ids(m *module) (out []byte) {
	for _, s := range m.sections {
		out = append(out, s.id)
	}
	return out
}

// The globals and the exports are added where their sections belong, and to
// them where they are there already, empty ones included.
func TestMeterAddsGlobals(t *testing.T) {
	globals := "\x7e\x01\x42\x07\x0b\x7e\x01\x42\x00\x0b\x7f\x01\x41\xe8\x07\x0b" // i64 mutable 7 and 0, i32 mutable 1000
	exports := func(first byte) string {
		return "\x0ckvferry_FUEL\x03" + string(first) + "\x0ckvferry_REST\x03" + string(first+1) + "\x0dkvferry_DEPTH\x03" + string(first+2)
	}
	empty := func(ids ...byte) []byte {
		out := []byte(sample.Header)
		for _, id := range ids {
			out = append(out, id, 1, 0)
		}
		return out
	}
	for _, c := range []struct {
		name            string
		wasm            []byte
		order           []byte
		globals, export string
	}{
		{"no sections", empty(), []byte{6, 7}, "\x03" + globals, "\x03" + exports(0)},
		{"an empty global section", empty(6), []byte{6, 7}, "\x03" + globals, "\x03" + exports(0)},
		{"an empty export section", empty(7), []byte{6, 7}, "\x03" + globals, "\x03" + exports(0)},
		{"all sections, empty", empty(1, 2, 3, 4, 5, 6, 7, 9, 12, 10, 11), []byte{1, 2, 3, 4, 5, 6, 7, 9, 12, 10, 11}, "\x03" + globals, "\x03" + exports(0)},
		{"sections around them", empty(1, 5, 9, 12, 10, 11), []byte{1, 5, 6, 7, 9, 12, 10, 11}, "\x03" + globals, "\x03" + exports(0)},
		{"a data count alone", empty(12), []byte{6, 7, 12}, "\x03" + globals, "\x03" + exports(0)},
		{"a count with a long number", append([]byte(sample.Header), sample.Section(6, []byte{0x80, 0x80, 0})...), []byte{6, 7}, "\x03" + globals, "\x03" + exports(0)},
		{"globals of its own", sound(nil), []byte{1, 3, 4, 5, 6, 7, 9, 10, 11}, "\x04\x7f\x01\x41\x00\x0b" + globals, "\x05\x01f\x00\x00\x06memory\x02\x00" + exports(1)},
		{"imported globals", sound(func(m *sample.Module) {
			m.Imports = []sample.Import{{Module: "m", Name: "n", Rest: []byte{3, sample.I32, 0}}}
		}), []byte{1, 2, 3, 4, 5, 6, 7, 9, 10, 11}, "\x04\x7f\x01\x41\x00\x0b" + globals, "\x05\x01f\x00\x00\x06memory\x02\x00" + exports(2)},
	} {
		m := metered(t, c.wasm)
		if got := ids(m); !slices.Equal(got, c.order) {
			t.Errorf("%s: sections %v, want %v", c.name, got, c.order)
		}
		if got := find(t, m, secGlobal, ""); string(got) != c.globals {
			t.Errorf("%s: globals %q, want %q", c.name, got, c.globals)
		}
		if got := find(t, m, secExport, ""); string(got) != c.export {
			t.Errorf("%s: exports %q, want %q", c.name, got, c.export)
		}
	}
}

// No index that was out of range becomes one of the meter's globals, whatever
// holds it.
func TestForgedFuel(t *testing.T) {
	const fuel = 1 // the index that the fuel global gets
	for name, wasm := range map[string][]byte{
		"read":         code(sample.Op(opGlobalGet, fuel), []byte{0xa7}),
		"written":      code(sample.Const64(1<<40), sample.Op(opGlobalSet, fuel), sample.Const(0)),
		"depth":        code(sample.Const(1<<30), sample.Op(opGlobalSet, fuel+1), sample.Const(0)),
		"in dead code": code([]byte{opUnreachable}, sample.Op(opGlobalGet, fuel)),
		"long number":  code([]byte{opGlobalGet, 0x81, 0x80, 0}, []byte{0xa7}),
		"exported": sound(func(m *sample.Module) {
			m.Exports = append(m.Exports, sample.Export{Name: "mine", Kind: 3, Index: fuel})
		}),
		"in a global": sound(func(m *sample.Module) {
			m.Globals = append(m.Globals[:0], []byte{sample.I64, 0, opGlobalGet, 1, opEnd})
		}),
		"in a data segment": sound(func(m *sample.Module) { m.Data[0] = []byte{0, opGlobalGet, fuel, opEnd, 0} }),
		"in an element segment": sound(func(m *sample.Module) {
			m.Elements[0] = []byte{0, opGlobalGet, fuel, opEnd, 0}
		}),
		"local": code(sample.Const64(1), sample.Op(opLocalSet, 1), sample.Op(opLocalGet, 0)),
	} {
		_, err := Meter(wasm, Options{})
		var e *Error
		if !errors.As(err, &e) || e.Kind != Malformed || !strings.Contains(e.What, "index") {
			t.Errorf("%s: error %v, want one about the index", name, err)
		}
	}
	for _, name := range []string{Fuel, Rest, Depth} {
		for what, wasm := range map[string][]byte{
			"export": sound(func(m *sample.Module) { m.Exports[0].Name = name }),
			"import": sound(func(m *sample.Module) { m.Imports = []sample.Import{{Module: "", Name: name, Rest: []byte{0, 1}}} }),
		} {
			_, err := Meter(wasm, Options{})
			var e *Error
			if !errors.As(err, &e) || e.Kind != Forbidden || !strings.Contains(e.Error(), what+" ") || !strings.Contains(e.Error(), name) {
				t.Errorf("%s %s: error %v, want that the name is taken", what, name, err)
			}
		}
	}
}

// Bytes that say less than they hold, or more, are refused and not put right.
func TestLyingLengths(t *testing.T) {
	// The module lies in a larger array: what follows it is not the module's.
	whole := append(only(0, append(sample.Name("x"), 1, 2, 3)...), 0, 0, 0, 0)
	short := whole[: len(whole)-6 : len(whole)]
	for name, wasm := range map[string][]byte{
		"a custom section past the end":   short,
		"a name past its section":         only(0, 5, 'a'),
		"a section without a size":        append([]byte(sample.Header), 0),
		"an overlong size":                append([]byte(sample.Header), 0, 0x83, 0x80, 0x80, 0x80, 0x80, 0, 1, 'a', 'b'),
		"a size with too many bits":       append([]byte(sample.Header), 0, 0x83, 0x80, 0x80, 0x80, 0x70, 1, 'a', 'b'),
		"fewer types than said":           only(1, 2, 0x60, 0, 0),
		"more types than said":            only(1, 0, 0x60, 0, 0),
		"a body that is longer than said": append(append(only(1, 1, 0x60, 0, 0), sample.Section(3, []byte{1, 0})...), sample.Section(10, []byte{1, 2, 0, opNop, opEnd})...),
	} {
		_, err := Meter(wasm, Options{})
		var e *Error
		if !errors.As(err, &e) || e.Kind != Malformed {
			t.Errorf("%s: error %v, want that it is malformed", name, err)
		}
	}
}

// What says where in the code something stands goes, the rest stays.
func TestMeterKeepsCustomSections(t *testing.T) {
	names := sample.Code(
		[]byte{0}, sample.Name(string(sample.Name("policy"))),
		[]byte{1}, sample.Name(string(sample.Vector(sample.Code(sample.Uint(0), sample.Name("f"))))),
		[]byte{2}, sample.Name(string(sample.Vector(sample.Code(sample.Uint(0), sample.Vector(sample.Code(sample.Uint(0), sample.Name("x"))))))),
		[]byte{3}, sample.Name("\x01\x00\x01\x00\x01l"), // of labels
		[]byte{7}, sample.Name("\x01\x00\x01g"), // of globals
	)
	wasm := sound(func(m *sample.Module) {
		for _, n := range []string{".debug_info", "reloc.CODE", "linking", "sourceMappingURL", "external_debug_info", "metadata.code.branch_hint", "producers", "kvferry.manifest", ".debugger"} {
			m.Customs = append(m.Customs, sample.Custom{Name: n, Data: []byte("contents of " + n)})
		}
		m.Customs = append(m.Customs, sample.Custom{Name: "name", Data: names})
	})
	m := metered(t, wasm)
	var kept []string
	for _, s := range m.sections {
		if s.id == secCustom {
			kept = append(kept, s.name)
			if got := string(m.b[s.payload:s.to]); s.name != "name" && got != "contents of "+s.name {
				t.Errorf("%s holds %q", s.name, got)
			}
		}
	}
	if want := []string{"producers", "kvferry.manifest", ".debugger", "name"}; !slices.Equal(kept, want) {
		t.Errorf("kept are %v, want %v", kept, want)
	}
	want := bytes.Replace(names, []byte("\x03\x06\x01\x00\x01\x00\x01l"), nil, 1)
	if got := find(t, m, secCustom, "name"); string(got) != string(append(sample.Name("name"), want...)) {
		t.Errorf("names are %q, want %q", got, want)
	}
}

// An empty custom section is not left at the end by what is left out behind it.
func TestMeterLeavesNoEmptyEnd(t *testing.T) {
	m := metered(t, sound(func(m *sample.Module) {
		m.Customs = []sample.Custom{{Name: "a"}, {Name: "b", Data: []byte{1}}, {Name: "c"}, {Name: "linking", Data: []byte{1}}}
	}))
	var names []string
	for _, s := range m.sections {
		if s.id == secCustom {
			names = append(names, s.name)
		}
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("kept are %v", names)
	}
}

// What becomes of functions, byte by byte.
func TestForms(t *testing.T) {
	const fuel, rest, depth = 1, 2, 3
	const refill, fill, copying = 2, 3, 3 // functions, behind two others
	globalGet := sample.Op(opGlobalGet, fuel)
	globalSet := sample.Op(opGlobalSet, fuel)
	param := sample.Op(opLocalGet, 0)
	zero := sample.Const64(0)
	end := []byte{opEnd}
	empty := func(op byte) []byte { return []byte{op, sample.Empty} }
	inner := []byte{opBlock, sample.I32}
	many := bytes.Repeat([]byte{0x45}, 20)
	spend := func(cost int64) []byte { // from the global
		return sample.Code(globalGet, sample.Const64(cost), []byte{opI64Sub}, globalSet)
	}
	below := sample.Code(globalGet, zero, []byte{opI64LtS})
	filled := sample.Code(empty(opIf), sample.Op(opCall, refill), end)
	// From local 1.
	load := sample.Code(globalGet, sample.Op(opLocalSet, 1))
	store := sample.Code(sample.Op(opLocalGet, 1), globalSet)
	take := func(cost int64) []byte {
		return sample.Code(sample.Op(opLocalGet, 1), sample.Const64(cost), []byte{opI64Sub}, sample.Op(opLocalTee, 1), zero, []byte{opI64LtS})
	}
	refilled := sample.Code(empty(opIf), store, sample.Op(opCall, refill), load, end)
	begin := func(cost int64) []byte {
		return sample.Code(empty(opBlock), empty(opLoop), sample.Op(opLocalGet, 2), empty(opIf), sample.Const(0), sample.Op(opLocalSet, 2),
			store, sample.Op(opCall, refill), load, sample.Op(opLocalGet, 1), sample.Const64(cost), []byte{opI64Add}, sample.Op(opLocalSet, 1), end,
			empty(opBlock), empty(opLoop), take(cost), sample.Op(opBrIf, 1))
	}
	done := sample.Code(end, sample.Op(opBr, 2), end, sample.Const(1), sample.Op(opLocalSet, 2), sample.Op(opBr, 0), end, []byte{opUnreachable}, end)
	size := sample.Code(sample.Op(opLocalTee, 1), globalGet, sample.Op(opLocalGet, 1), []byte{opI64ExtendU}, sample.Const64(2), []byte{opI64ShrU, opI64Sub}, globalSet, below, filled)
	for _, c := range []struct {
		name       string
		code, want []byte // want without declarations
		added      int    // locals
	}{
		{"a small leaf", sample.Code(param, []byte{0x45}), sample.Code(param, []byte{0x45, opEnd}), 0},
		{"a leaf", sample.Code(param, many), sample.Code(spend(23), inner, param, many, end, end), 0},
		{"a loop", sample.Code(empty(opLoop), param, []byte{opBrIf, 0}, param, []byte{opReturn, opEnd}, sample.Const(1)), sample.Code(
			load, take(3), refilled, inner, begin(4), param, []byte{opBrIf, 0}, param, sample.Op(opBr, 4), done, sample.Const(1), end, store, end), 2},
		{"a loop with a call", sample.Code(empty(opLoop), sample.Op(opCall, 1), param, []byte{opBrIf, 0, opEnd}, param), sample.Code(
			load, take(3), refilled, inner, begin(costCall+2), store, sample.Op(opCall, 1), load, param, []byte{opBrIf, 0}, done, param, end, store, end), 2},
		{"branches out of a loop", sample.Code(empty(opBlock), empty(opLoop), param, []byte{opBrIf, 1}, param, []byte{opBrTable, 2, 0, 1, 2, opEnd, opEnd}, param), sample.Code(
			load, take(3), refilled, inner, empty(opBlock), begin(4), param, []byte{opBrIf, 4}, param, []byte{opBrTable, 2, 0, 4, 5}, done, end, param, end, store, end), 2},
		{"a fill", sample.Code(param, param, param, []byte{opMisc, 11, 0}, param), sample.Code(
			spend(costEntry+4+costBulk), inner, param, param, param, size, sample.Op(opCall, fill), param, end, end), 1},
		{"a copy", sample.Code(param, param, param, []byte{opMisc, 10, 0, 0}, param), sample.Code(
			spend(costEntry+4+costBulk), inner, param, param, param, size, sample.Op(opCall, copying), param, end, end), 1},
		{"recursion", sample.Code(param, sample.Op(opCall, 0)), sample.Code(
			spend(costEntry+1+costCall), below, filled,
			sample.Op(opGlobalGet, depth), sample.Const(1), []byte{opI32Sub}, sample.Op(opGlobalSet, depth), sample.Op(opGlobalGet, depth), sample.Const(0),
			[]byte{opI32LtS}, empty(opIf), sample.Const64(tooDeep), globalSet, zero, sample.Op(opGlobalSet, rest), []byte{opUnreachable, opEnd},
			inner, param, sample.Op(opCall, 0), end,
			sample.Op(opGlobalGet, depth), sample.Const(1), []byte{opI32Add}, sample.Op(opGlobalSet, depth), end), 0},
	} {
		m := metered(t, code(c.code))
		s := &scanner{m: m}
		s.open(0, m.bodies[0])
		if got := m.b[s.code:m.bodies[0].to]; !bytes.Equal(got, c.want) {
			t.Errorf("%s:\n%x, want\n%x", c.name, got, c.want)
		}
		if s.locals != uint64(1+c.added) {
			t.Errorf("%s: %d locals, want %d more than 1", c.name, s.locals, c.added)
		}
	}
}

// Functions with several results need a type for the block around them: added
// behind all others, once for the same results.
func TestResultTypes(t *testing.T) {
	two := sample.Type{Params: []byte{sample.I32}, Results: []byte{sample.I64, sample.I32}}
	loop := sample.Code([]byte{opLoop, sample.Empty}, sample.Op(opLocalGet, 0), []byte{opBrIf, 0, opEnd}, sample.Const64(1), sample.Const(2))
	m := metered(t, (&sample.Module{Types: []sample.Type{two}, Funcs: []sample.Function{{Code: loop}, {Code: loop}}}).Bytes())
	if got := find(t, m, secType, ""); string(got) != "\x03\x60\x01\x7f\x02\x7e\x7f\x60\x00\x00\x60\x00\x02\x7e\x7f" {
		t.Errorf("types %q", got)
	}
}

func TestSpent(t *testing.T) {
	for left, want := range map[int64]Cause{0: ByGuest, Most: ByGuest, -1: ByFuel, -1 << 46: ByFuel, tooDeep: ByDepth, tooDeep - 1<<50: ByDepth} {
		if got := Spent(left); got != want {
			t.Errorf("%d left: %s, want %s", left, got, want)
		}
	}
	if Most != math.MaxInt64 {
		t.Error("more fuel fits")
	}
}

// The result is a module again whose code the pass could meter, and the same
// every time.
func TestMeterRandom(t *testing.T) {
	for seed := range uint64(200) {
		wasm := sample.Random(seed).Wasm
		before := bytes.Clone(wasm)
		a, err := Meter(wasm, Options{Fuel: 1})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b, err := Meter(wasm, Options{Fuel: 1})
		if err != nil || !bytes.Equal(a, b) || !bytes.Equal(wasm, before) {
			t.Fatalf("seed %d: metered twice, the results differ, or the module was written to (%v)", seed, err)
		}
		if _, err := Meter(a, Options{}); err == nil {
			t.Fatalf("seed %d: a metered module was metered again", seed)
		}
		if _, err := Meter(patch(a), Options{}); err != nil {
			t.Fatalf("seed %d: the result is malformed: %v", seed, err)
		}
	}
}
