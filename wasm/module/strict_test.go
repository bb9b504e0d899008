package module

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// What JSON readers disagree about is refused: two readers of one manifest must
// not read two things.
func TestManifestIsReadStrictly(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{manifest + "}", "JSON: something follows the object"},
		{manifest + "]", "JSON: something follows the object"},
		{manifest + " x", "JSON: something follows the object"},
		{`{"name": "first", ` + manifest[1:], `JSON: "name" stands twice`},
		{strings.Replace(manifest, `"name"`, `"Name"`, 1), `JSON: "Name" is no key of a manifest`},
		{strings.Replace(manifest, `"min": "1.0"`, `"min": "1.0", "min": "1.1"`, 1), `JSON: "min" stands twice`},
		{"null", `name: ""`},
		{strings.Replace(manifest, `"min": "1.0"`, `"min": "1.5"`, 1), "abi: 1.5 to 1.4 is no range: want the lower version as min"},
		{manifest[:len(manifest)-1], "JSON: unexpected EOF"},
	} {
		m, err := ParseManifest([]byte(c.text))
		var e *Error
		if !errors.As(err, &e) || e.Offset != -1 || !strings.Contains(err.Error(), "manifest: "+c.want) {
			t.Errorf("%s: error %v, want %s", c.text, err, c.want)
		}
		if !reflect.DeepEqual(m, Manifest{}) {
			t.Errorf("%s: a manifest came with the error: %+v", c.text, m)
		}
	}
	if _, err := ParseManifest([]byte("\n" + manifest + "\n")); err != nil {
		t.Errorf("white space around a manifest: %v", err)
	}
}

// A module that brings its own marker would say two things about itself once it
// was sealed.
func TestSealRefusesAMarker(t *testing.T) {
	b := append(append([]byte(nil), linked[:13]...), "\x06\x06\x01\x7f\x00\x41\x00\x0b"...)
	b = append(b, "\x07\x1b\x02\x06memory\x02\x00\x0ekvferry_abi_v1\x03\x00"...)
	_, err := Seal(b, []byte(manifest), 0)
	var e *Error
	if !errors.As(err, &e) || e.What != "export "+Marker || e.Offset != 21 {
		t.Errorf("error %v, want one about the marker at byte 21", err)
	}
}

func TestSealRefusals(t *testing.T) {
	header := string(linked[:8])
	for _, c := range []struct{ name, b, manifest, want string }{
		{"no module", "ELF", manifest, "header"},
		{"bad manifest", string(linked), "{}", "manifest: name"},
		{"no exports", header + "\x05\x03\x01\x00\x01", manifest, "export section: missing"},
		{"global section empty", header + "\x06\x00" + string(linked[13:]), manifest, "global section: no count"},
		{"imports cut", header + "\x02\x01\x01" + string(linked[13:]), manifest, "import section: cannot be read"},
		{"exports without a count", header + "\x07\x00", manifest, "export section: cannot be read"},
		{"exports cut", header + "\x07\x02\x01\x06", manifest, "export section: cannot be read"},
		{"bytes after the exports", header + "\x07\x06\x01\x01m\x02\x00\x00", manifest, "export section: cannot be read"},
		{"bytes after the imports", header + "\x02\x02\x00\x00" + string(linked[13:]), manifest, "import section: cannot be read"},
		{"a section twice", string(linked) + string(linked[13:]), manifest, "section 7: stands twice"},
		{"an export without a kind", header + "\x07\x03\x01\x01m", manifest, "export section: cannot be read"},
		{"an export without an index", header + "\x07\x04\x01\x01m\x02", manifest, "export section: cannot be read"},
		{"more exports than there can be", header + "\x07\x05\xff\xff\xff\xff\x0f", manifest, "4294967295 exports"},
	} {
		_, err := Seal([]byte(c.b), []byte(c.manifest), 0)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

func TestExports(t *testing.T) {
	sealed, err := Seal(linked, []byte(manifest), 3)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Exports(sealed)
	if want := []Export{{"memory", Memory, 0}, {Marker, Global, 0}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("exports %v (%v), want %v", got, err, want)
	}
	if got, err := Exports(linked[:13]); err != nil || got != nil {
		t.Errorf("exports %v (%v) of a module that has none", got, err)
	}
	if _, err := Exports(linked[:12]); err == nil {
		t.Error("the exports of a module that is cut off were read")
	}
}

// What is more than is read says how many there may be.
func TestLimits(t *testing.T) {
	long := []byte(strings.Repeat(" ", MaxManifest+1))
	_, manifest := ParseManifest(long)
	_, size := Imports(append(linked[:len(linked):len(linked)], make([]byte, MaxModule)...))
	_, imports := Imports([]byte("\x00asm\x01\x00\x00\x00\x02\x02\x81\x08"))
	_, exports := Exports([]byte("\x00asm\x01\x00\x00\x00\x07\x02\x81\x20"))
	for name, c := range map[string]struct {
		err   error
		limit uint64
	}{"manifest": {manifest, MaxManifest}, "size": {size, MaxModule}, "imports": {imports, 1024}, "exports": {exports, 4096}} {
		var e *Error
		if !errors.As(c.err, &e) || e.Limit != c.limit || e.Got <= e.Limit {
			t.Errorf("%s: error %+v, want the limit %d", name, c.err, c.limit)
		}
	}
}

// Names are taken away, and nothing else; functions are counted with those that
// are imported.
func TestUnnamed(t *testing.T) {
	functions := "\x01\x04\x01\x60\x00\x00" + "\x02\x0e\x02\x01e\x01f\x00\x00\x01e\x01g\x03\x7f\x00" + "\x03\x03\x02\x00\x00"
	names := "\x00\x0b\x04name\x01\x04\x01\x00\x01x"
	other := "\x00\x05\x04name"
	header := string(linked[:8])
	for _, c := range []struct {
		in, want  string
		functions int
	}{
		{header + functions + names, header + functions, 3},
		{header + names + functions + other, header + functions, 3},
		{header + "\x00\x06\x05names" + functions, header + "\x00\x06\x05names" + functions, 3},
		{header, header, 0},
		{header + "\x00\xff", header + "\x00\xff", -1},
		{header + "\x03\x00", header + "\x03\x00", -1},
		{"ELF", "ELF", -1},
	} {
		if got := Unnamed([]byte(c.in)); string(got) != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
		if n := Functions([]byte(c.in)); n != c.functions {
			t.Errorf("%q has %d functions, want %d", c.in, n, c.functions)
		}
	}
	if at := ManifestOffset(linked); at != -1 {
		t.Errorf("the manifest of a module that has none is at %d", at)
	}
}

func TestStart(t *testing.T) {
	if at := Start([]byte("\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01\x08\x01\x00")); at != 13 {
		t.Errorf("start section at %d, want 13", at)
	}
	if at := Start(linked); at != -1 {
		t.Errorf("start section at %d of a module that has none", at)
	}
}

// A manifest that is accepted says the same once it is written and read again,
// and its range can be taken apart.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest))
	f.Add([]byte(`{"name": "a", "name": "b"}`))
	f.Add([]byte(manifest + "}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is no *Error", err)
			}
			return
		}
		if low, high := m.ABI.Minors(); low < 0 || high < 0 || low > 99999 || high > 99999 {
			t.Errorf("minors %d to %d of %+v", low, high, m.ABI)
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseManifest(again)
		if err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%+v became %+v (%v)", m, back, err)
		}
	})
}

// No bytes make the export reader panic, and what is sealed exports
// one thing more, the marker.
func FuzzExports(f *testing.F) {
	sealed, err := Seal(linked, []byte(manifest), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(linked)
	f.Fuzz(func(t *testing.T, b []byte) {
		before, err := Exports(b)
		if err != nil {
			return
		}
		out, err := Seal(b, []byte(manifest), 0)
		if err != nil || len(out) > MaxModule || len(before) >= maxExports {
			return
		}
		after, err := Exports(out)
		if err != nil || len(after) != len(before)+1 || after[len(after)-1].Name != Marker {
			t.Errorf("exports %v (%v) after sealing, %v before", after, err, before)
		}
	})
}
