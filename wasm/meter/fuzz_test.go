package meter

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// Whatever the bytes are, Check and Meter end with a result or a typed error
// that says where; what Check lets through Meter can rewrite, and the result can
// be read and, under other names, rewritten again.
func FuzzModule(f *testing.F) {
	f.Add(sound(nil))
	f.Add([]byte(sample.Header))
	f.Add(only(0, 4, 'n', 'a', 'm', 'e', 1, 1, 0))
	for seed := range uint64(8) {
		f.Add(sample.Random(seed).Wasm)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		if len(wasm) > 1<<20 {
			return
		}
		limits := Policy()
		limits.AnyImport = true
		checked := Check(wasm, limits)
		var e *Error
		if checked != nil && (!errors.As(checked, &e) || e.Offset > len(wasm) || e.Offset < -1 || e.What == "" || len(e.Error()) > 1000) {
			t.Fatalf("error %v", checked)
		}
		before := bytes.Clone(wasm)
		out, err := Meter(wasm, Options{})
		if !bytes.Equal(before, wasm) {
			t.Fatal("the module was written to")
		}
		if err != nil {
			if !errors.As(err, &e) || e.Kind == OverLimit {
				t.Fatalf("error %v, want one about the format", err)
			}
			if checked == nil {
				t.Fatalf("Check passes it, Meter says: %v", err)
			}
			return
		}
		if len(out) > 64*len(wasm)+256 {
			t.Errorf("%d bytes became %d", len(wasm), len(out))
		}
		if _, err := Meter(patch(out), Options{}); err != nil {
			t.Errorf("the result cannot be read: %v", err)
		}
	})
}

// Numbers survive being written and read, and what is read says how long it was.
func FuzzNumber(f *testing.F) {
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x08}, int64(-1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, int64(1<<62))
	f.Fuzz(func(t *testing.T, b []byte, v int64) {
		for _, bits := range []int{32, 33, 64} {
			r := &reader{b: b, to: len(b), fn: -1}
			if got := r.signed(bits, "n"); r.err == nil {
				if r.at > (bits+6)/7 || bits < 64 && (got < -1<<(bits-1) || got >= 1<<(bits-1)) {
					t.Errorf("%x: %d of %d bits in %d bytes", b, got, bits, r.at)
				}
			}
		}
		r := &reader{b: b, to: len(b), fn: -1}
		if n := r.u32("n"); r.err == nil {
			short := appendUint(nil, uint64(n))
			if len(short) > r.at || r.at > 5 {
				t.Errorf("%x: %d in %d bytes", b, n, r.at)
			}
		}
		encoded := appendInt(nil, v)
		r = &reader{b: encoded, to: len(encoded), fn: -1}
		if got := r.signed(64, "n"); got != v || r.err != nil || r.at != len(encoded) {
			t.Errorf("%d became %d (%v)", v, got, r.err)
		}
		encoded = appendUint(nil, uint64(uint32(v)))
		r = &reader{b: encoded, to: len(encoded), fn: -1}
		if got := r.u32("n"); got != uint32(v) || r.err != nil || r.at != len(encoded) {
			t.Errorf("%d became %d (%v)", uint32(v), got, r.err)
		}
	})
}
