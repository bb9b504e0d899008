package abi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

type message interface{ Encode() []byte }

// decoders reads each message by its name in the schema.
var decoders = map[string]func([]byte) (message, error){
	"select_layout_in":  func(b []byte) (message, error) { return DecodeSelectLayoutIn(b) },
	"select_layout_out": func(b []byte) (message, error) { return DecodeSelectLayoutOut(b) },
	"remap_in":          func(b []byte) (message, error) { return DecodeRemapIn(b) },
	"remap_out":         func(b []byte) (message, error) { return DecodeRemapOut(b) },
	"route_in":          func(b []byte) (message, error) { return DecodeRouteIn(b) },
	"route_out":         func(b []byte) (message, error) { return DecodeRouteOut(b) },
}

// readHex reads lines of "offset: bytes".
func readHex(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		_, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, b...)
	}
	return out
}

// The encoding is the one that the generator writes down from the schema by
// code of its own, to the byte, both ways.
func TestGoldenMessages(t *testing.T) {
	if len(goldens) != len(decoders) {
		t.Fatalf("%d goldens for %d messages", len(goldens), len(decoders))
	}
	for name, value := range goldens {
		want := readHex(t, name)
		got := value.(message).Encode()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: encoded\n%x\nwant\n%x", name, got, want)
		}
		back, err := decoders[name](want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(back, value) {
			t.Errorf("%s: decoded %+v, want %+v", name, back, value)
		}
	}
}

// words is a message of 32-bit words, its size filled in.
func words(w ...uint32) []byte {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	binary.LittleEndian.PutUint32(b[16:], uint32(len(b)))
	return b
}

const version = Major << 16

// A reader of an older minor steps over what a newer one appended, and a reader
// of a newer minor takes what an older one left out as zero.
func TestMinorsMayAppend(t *testing.T) {
	// One alternative with one assignment, in records of the given sizes.
	answer := func(minor, record, alternative, assignment uint32) []byte {
		w := []uint32{Magic, version | minor, HookRemap, record, 0, 0, record, 1, alternative}
		for uint32(len(w)) < record/4 {
			w = append(w, 0)
		}
		if record >= 48 {
			w[9], w[10] = 0, 0 // no reason
		}
		w = append(w, record+alternative, 1, assignment)
		for uint32(len(w)) < (record+alternative)/4 {
			w = append(w, 0xdddddddd)
		}
		fields := []uint32{3, 0, 1, 2, 5, 0, 4, 1, 7, 2, 16, 1}
		for i := range assignment / 4 {
			if int(i) < len(fields) {
				w = append(w, fields[i])
			} else {
				w = append(w, 0xdddddddd)
			}
		}
		return words(w...)
	}
	whole := Assignment{Components: 3, Group: 1, Destination: 2, Source: 5, LayerTo: 4, HeadFrom: 1, HeadTo: 7, TokenSize: 2, TokenInterleave: 16, TokenPhase: 1}
	short := whole
	short.TokenSize, short.TokenInterleave, short.TokenPhase = 0, 0, 0
	short.HeadTo = 0
	for _, c := range []struct {
		name string
		b    []byte
		want Assignment
	}{
		{"this minor", answer(0, sizeRemapOut, sizeAlternative, sizeAssignment), whole},
		{"newer", answer(9, sizeRemapOut+16, sizeAlternative+8, sizeAssignment+24), whole},
		{"older", answer(0, sizeRemapOut-8, sizeAlternative, 32), short},
	} {
		got, err := DecodeRemapOut(c.b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := &RemapOut{Alternatives: []Alternative{{[]Assignment{c.want}}}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// What cannot be is an *Error that names the field.
func TestDecodeRefusals(t *testing.T) {
	head := func(w ...uint32) []byte {
		return words(append([]uint32{Magic, version, HookRemap, sizeRemapOut, 0, 0}, w...)...)
	}
	change := func(b []byte, at int, v uint32) []byte {
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	empty := []uint32{0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name, field string
		b           []byte
	}{
		{"nothing", "size", nil},
		{"header cut", "size", make([]byte, sizeHeader-1)},
		{"too large", "size", make([]byte, MaxMessage+1)},
		{"magic", "magic", change(head(empty...), 0, 1)},
		{"another major", "version", change(head(empty...), 4, 2<<16)},
		{"another hook", "hook", change(head(empty...), 8, HookSelectLayout)},
		{"size of another message", "size", change(head(empty...), 16, 40)},
		{"record past the end", "record", change(head(empty...), 12, 56)},
		{"record below the header", "record", change(head(empty...), 12, 16)},
		{"record not whole words", "record", change(head(empty...), 12, 44)},
		{"list past the end", "remap_out.alternatives", head(48, 1, 16, 0, 0, 0)},
		{"list in the header", "remap_out.alternatives", head(8, 1, 16, 0, 0, 0)},
		{"list not aligned", "remap_out.alternatives", head(44, 1, 8, 0, 0, 0)},
		{"records not aligned", "remap_out.alternatives", head(24, 1, 12, 0, 0, 0)},
		{"records of no size", "remap_out.alternatives", head(24, 1, 0, 0, 0, 0)},
		{"count times distance wraps", "remap_out.alternatives", head(24, 0x20000000, 8, 0, 0, 0)},
		{"most there is", "remap_out.alternatives", head(0xfffffff8, 0xffffffff, 0xfffffff8, 0, 0, 0)},
		{"text past the end", "remap_out.reason", head(0, 0, 0, 48, 1, 0)},
		{"text wraps", "remap_out.reason", head(0, 0, 0, 0xffffffff, 2, 0)},
		{"text too long", "remap_out.reason", head(0, 0, 0, 24, MaxText+1, 0)},
		{"text shared with the record", "remap_out.reason", head(0, 0, 0, 24, 8, 0)},
		{"text not UTF-8", "remap_out.reason", head(0, 0, 0, 48, 4, 0, 0xff, 0)},
		{"records shared", "alternative.assignments", head(48, 2, 16, 0, 0, 0, 80, 1, 48, 0, 80, 1, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
	} {
		_, err := DecodeRemapOut(c.b)
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || e.Message != "remap_out" {
			t.Errorf("%s: error %v, want one of remap_out that names %s", c.name, err, c.field)
		}
	}
}

// A message of many records is refused by number, not by the memory it takes.
func TestDecodeBoundsRecords(t *testing.T) {
	const n = MaxRecords + 1
	w := []uint32{Magic, version, HookRemap, sizeRemapOut, 0, 0, sizeRemapOut, n, 8, 0, 0, 0}
	b := words(append(w, make([]uint32, 2*n)...)...)
	_, err := DecodeRemapOut(b)
	var e *Error
	if !errors.As(err, &e) || e.Value != n {
		t.Errorf("error %v, want one that names %d records", err, n)
	}
}

func TestReason(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"nhd: fewest pieces":                   "nhd: fewest pieces",
		"größer, 良い":                           "größer, 良い",
		"a\nb\x1b[31m\x00":                     `a\u000ab\u001b[31m\u0000`,
		"\u202eright to left":                  `\u202eright to left`,
		"bad \xff byte":                        `bad \ufffd byte`,
		strings.Repeat("x", MaxReason+50):      strings.Repeat("x", MaxReason),
		strings.Repeat("é", MaxReason):         strings.Repeat("é", MaxReason/2),
		strings.Repeat("x", MaxReason-1) + "é": strings.Repeat("x", MaxReason-1),
	} {
		if got := Reason(in); got != want {
			t.Errorf("Reason(%q) = %q, want %q", in, got, want)
		}
	}
}

// Whatever is accepted is encoded again to what is decoded the same.
func fuzz(f *testing.F, name string) {
	seed := readHex(f, name)
	f.Add(seed)
	f.Add(seed[:len(seed)-8])
	f.Add(goldens[name].(message).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decoders[name](b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v is no *Error", err)
			}
			return
		}
		again := x.Encode()
		if len(again) > MaxMessage {
			return // short records of an older minor grow
		}
		y, err := decoders[name](again)
		if err != nil {
			t.Fatalf("what was decoded is refused once encoded: %v", err)
		}
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("decoded %+v, encoded and decoded again %+v", x, y)
		}
		if !bytes.Equal(again, y.Encode()) {
			t.Fatal("one value has two encodings")
		}
	})
}

func FuzzSelectLayoutIn(f *testing.F)  { fuzz(f, "select_layout_in") }
func FuzzSelectLayoutOut(f *testing.F) { fuzz(f, "select_layout_out") }
func FuzzRemapIn(f *testing.F)         { fuzz(f, "remap_in") }
func FuzzRemapOut(f *testing.F)        { fuzz(f, "remap_out") }
func FuzzRouteIn(f *testing.F)         { fuzz(f, "route_in") }
func FuzzRouteOut(f *testing.F)        { fuzz(f, "route_out") }

func BenchmarkRemapOut(b *testing.B) {
	bytes := goldens["remap_out"].(message).Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRemapOut(bytes); err != nil {
			b.Fatal(err)
		}
	}
}
