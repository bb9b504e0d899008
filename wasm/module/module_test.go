package module

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const manifest = `{"name": "heads", "version": "1.2.3", "hooks": ["select_layout", "remap"], "abi": {"min": "1.0", "max": "1.4"}, "fuel": 2000000, "memory": 131072}`

// linked is what a linker gives: one memory, exported, and nothing else.
var linked = []byte("\x00asm\x01\x00\x00\x00" + "\x05\x03\x01\x00\x01" + "\x07\x0a\x01\x06memory\x02\x00")

func TestSealedModuleTellsItsManifest(t *testing.T) {
	sealed, err := Seal(linked, []byte(manifest), 4)
	if err != nil {
		t.Fatal(err)
	}
	want := "\x00asm\x01\x00\x00\x00" + "\x05\x03\x01\x00\x01" + "\x06\x06\x01\x7f\x00\x41\x04\x0b" +
		"\x07\x1b\x02\x06memory\x02\x00\x0ekvferry_abi_v1\x03\x00" +
		"\x00\xa3\x01\x10kvferry.manifest" + manifest
	if string(sealed) != want {
		t.Errorf("sealed\n%q\nwant\n%q", sealed, want)
	}
	m, err := ReadManifest(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if low, high := m.ABI.Minors(); low != 0 || high != 4 {
		t.Errorf("minors %d to %d, want 0 to 4", low, high)
	}
	if want := (Manifest{Name: "heads", Version: "1.2.3", Hooks: []string{"select_layout", "remap"}, ABI: ABIRange{"1.0", "1.4"}, Fuel: 2000000, Memory: 131072}); !reflect.DeepEqual(m, want) {
		t.Errorf("manifest %+v, want %+v", m, want)
	}
	if _, err := Seal(sealed, []byte(manifest), 0); err == nil || !strings.Contains(err.Error(), "sealed already") {
		t.Errorf("sealed again: %v", err)
	}
	if Start(sealed) >= 0 {
		t.Error("a start section was found where there is none")
	}
}

// Globals that are imported or there already shift the marker's index.
func TestSealCountsGlobals(t *testing.T) {
	b := append([]byte(nil), linked[:8]...)
	b = append(b, "\x02\x0e\x02\x01e\x01f\x00\x00\x01e\x01g\x03\x7f\x00"...)
	b = append(b, linked[8:13]...)
	b = append(b, "\x06\x06\x01\x7f\x01\x41\x00\x0b"...)
	b = append(b, linked[13:]...)
	sealed, err := Seal(b, []byte(manifest), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(sealed, []byte("\x06\x0b\x02\x7f\x01\x41\x00\x0b\x7f\x00\x41\x00\x0b")) || !bytes.Contains(sealed, []byte("kvferry_abi_v1\x03\x02")) {
		t.Errorf("sealed %q, want the marker as global 2", sealed)
	}
	list, err := Imports(sealed)
	if want := []Import{{"e", "f", Function}, {"e", "g", Global}}; err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("imports %v (%v), want %v", list, err, want)
	}
}

func TestManifestRefusals(t *testing.T) {
	change := func(from, to string) string {
		if !strings.Contains(manifest, from) {
			t.Fatalf("the manifest has no %s", from)
		}
		return strings.Replace(manifest, from, to, 1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "JSON: EOF"},
		{"[]", "JSON: "},
		{manifest + "{}", "JSON: something follows the object"},
		{change(`"fuel"`, `"gas"`), `JSON: json: unknown field "gas"`},
		{change("heads", "Heads"), `name: "Heads"`},
		{change("heads", ""), `name: ""`},
		{change("heads", "a\x01b"), "JSON: "},
		{change("1.2.3", "1.2"), `version: "1.2" is no semantic version`},
		{change("1.2.3", "01.2.3"), `version: "01.2.3"`},
		{change(`"select_layout", "remap"`, ``), "hooks: none named"},
		{change(`"select_layout"`, `"remap"`), `hooks: "remap": want select_layout, remap and route, each once`},
		{change(`"remap"`, `"explode"`), `hooks: "explode"`},
		{change("1.4", "2.4"), `abi: "1.0" to "2.4"`},
		{change("2000000", "-1"), "JSON: "},
		{strings.Repeat(" ", MaxManifest) + manifest, "size: "},
	} {
		_, err := ParseManifest([]byte(c.text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "manifest: "+c.want) {
			t.Errorf("%.60s: error %v, want %s", c.text, err, c.want)
		}
	}
}

func TestSectionRefusals(t *testing.T) {
	for _, c := range []struct{ name, b, want string }{
		{"empty", "", "header"},
		{"another version", "\x00asm\x02\x00\x00\x00", "header"},
		{"section without a size", "\x00asm\x01\x00\x00\x00\x01", "reaches past the module"},
		{"section past the end", "\x00asm\x01\x00\x00\x00\x01\x02\x00", "reaches past the module"},
		{"size that is no LEB128", "\x00asm\x01\x00\x00\x00\x01\xff\xff\xff\xff\xff\x00", "reaches past the module"},
		{"size of more than 32 bits", "\x00asm\x01\x00\x00\x00\x01\x80\x80\x80\x80\x10", "reaches past the module"},
		{"name past its section", "\x00asm\x01\x00\x00\x00\x00\x02\x05x", "its name reaches past the section"},
		{"no manifest", string(linked), "section kvferry.manifest: missing"},
		{"too large", "\x00asm\x01\x00\x00\x00" + strings.Repeat("\x00", MaxModule), "size"},
	} {
		_, err := ReadManifest([]byte(c.b))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	for _, c := range []struct{ name, section, want string }{
		{"no count", "", "cannot be read"},
		{"an import missing", "\x01", "cannot be read"},
		{"a name past the end", "\x01\x05e", "cannot be read"},
		{"no kind", "\x01\x01e\x01f", "cannot be read"},
		{"unknown kind", "\x01\x01e\x01f\x07", "cannot be read"},
		{"limits cut", "\x01\x01e\x01f\x02\x01\x01", "cannot be read"},
		{"global cut", "\x01\x01e\x01f\x03\x7f", "cannot be read"},
		{"more than there can be", "\xff\xff\xff\xff\x0f", "4294967295 imports"},
	} {
		b := append([]byte("\x00asm\x01\x00\x00\x00\x02"), byte(len(c.section)))
		_, err := Imports(append(b, c.section...))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("imports, %s: error %v, want %s", c.name, err, c.want)
		}
	}
}

// No bytes make the readers panic; what can be sealed keeps its imports and
// start and tells its manifest.
func FuzzModule(f *testing.F) {
	sealed, err := Seal(linked, []byte(manifest), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(linked)
	f.Add(sealed)
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x02\x0e\x02\x01e\x01f\x00\x00\x01e\x01g\x03\x7f\x00\x08\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ReadManifest(b) // it must return
		imports, err := Imports(b)
		if err != nil {
			return
		}
		out, err := Seal(b, []byte(manifest), 7)
		if err != nil || len(out) > MaxModule {
			return
		}
		if m, err := ReadManifest(out); err != nil || m.Name != "heads" {
			t.Errorf("manifest of a sealed module: %+v, %v", m, err)
		}
		if again, err := Imports(out); err != nil || !reflect.DeepEqual(imports, again) {
			t.Errorf("imports %v (%v) after sealing, %v before", again, err, imports)
		}
		if (Start(b) < 0) != (Start(out) < 0) {
			t.Error("sealing added or lost a start section")
		}
		if at := ManifestOffset(out); at < 0 || string(out[at:]) != manifest {
			t.Errorf("the manifest at %d is not what was sealed", at)
		}
		short := Unnamed(out)
		if again, err := Imports(short); err != nil || !reflect.DeepEqual(imports, again) || Functions(short) != Functions(b) || len(short) > len(out) || !bytes.Equal(Unnamed(short), short) {
			t.Errorf("without names it imports %v (%v) and has %d functions, before %v and %d", again, err, Functions(short), imports, Functions(b))
		}
	})
}

// A module with another manifest is what it would be had it been sealed with it.
func TestReseal(t *testing.T) {
	first := []byte(`{"name": "first", "version": "1.0.0", "hooks": ["remap"], "abi": {"min": "1.0", "max": "1.0"}}`)
	second := []byte(`{"name": "second", "version": "2.0.0", "hooks": ["remap"], "abi": {"min": "1.0", "max": "1.0"}}`)
	a, err := Seal(linked, first, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Seal(linked, second, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Reseal(a, second); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d bytes (%v), sealed with it at once %d", len(got), err, len(b))
	}
	for name, bad := range map[string][2][]byte{"a module that is not sealed": {linked, second}, "no manifest": {a, []byte("{}")}, "no module": {[]byte("heads"), second}} {
		if _, err := Reseal(bad[0], bad[1]); err == nil {
			t.Errorf("%s was sealed again", name)
		}
	}
}
