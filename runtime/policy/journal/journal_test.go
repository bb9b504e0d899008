package journal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

func entries() []journal.Entry {
	return []journal.Entry{
		{Policy: geometry.Digest{1}, Hook: "remap", Question: []byte("in"), Answer: []byte("out!"), Times: 3, Fuel: 77, Duration: time.Microsecond},
		{Policy: geometry.Digest{2}, Hook: "select_layout", Question: []byte("q"), Status: abi.StatusDeclined, Times: 1},
		{Policy: geometry.Digest{1}, Hook: "route", Question: []byte("r"), Error: "trapped", Times: 1},
	}
}

// The bytes of a file are part of its version.
func TestForm(t *testing.T) {
	j := journal.Journal{Entries: entries()[:1], Dropped: 9}
	b := j.Encode()
	want := "6b76664a6f75726e" + "01000000" + "01000000" + "0900000000000000" +
		"52000000" + "02000000" + "00000000" + "0300000000000000" + "4d00000000000000" + "e803000000000000" +
		"01" + strings.Repeat("00", 31) + "02000000" + "04000000" + "00000000" + hex.EncodeToString([]byte("inout!"))
	if got := hex.EncodeToString(b[:len(b)-sha256.Size]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, j := range []*journal.Journal{{}, {Dropped: 1}, {Entries: entries()}} {
		got, err := journal.Parse(j.Encode())
		if err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("%+v (%v), want %+v", got, err, j)
		}
	}
}

// sealed gives changed bytes a checksum that is right.
func sealed(b []byte) []byte {
	b = b[:len(b)-sha256.Size]
	sum := sha256.Sum256(b)
	return append(bytes.Clone(b), sum[:]...)
}

// A later version may append to entries.
func TestAppended(t *testing.T) {
	j := journal.Journal{Entries: entries()[:1]}
	b := j.Encode()
	b = append(b[:len(b)-sha256.Size], "more"...)
	binary.LittleEndian.PutUint32(b[24:], binary.LittleEndian.Uint32(b[24:])+4)
	got, err := journal.Parse(sealed(append(b, make([]byte, sha256.Size)...)))
	if err != nil || !reflect.DeepEqual(got, &j) {
		t.Errorf("%+v (%v)", got, err)
	}
}

func TestRefusals(t *testing.T) {
	good := (&journal.Journal{Entries: entries()}).Encode()
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return sealed(b)
	}
	for _, c := range []struct {
		name string
		b    []byte
		at   int64
		want string
	}{
		{"nothing", nil, 0, "no journal"},
		{"text", []byte("hello, this is a text of more than sixty bytes, and no journal at all"), 0, "no journal"},
		{"cut", good[:40], 40, "ends within its head"},
		{"damaged", append(bytes.Clone(good[:60]), append([]byte{^good[60]}, good[61:]...)...), int64(len(good) - 32), "checksum"},
		{"version", change(8, 2), 8, "version 2, this program reads version 1"},
		{"hook", change(28, 9), 28, "hook 9"},
		{"never asked", change(36, 0), 28, "asked 0 times"},
		{"size", change(24, 0xff, 0xff), 24, "want 76 to"},
		{"small", change(24, 8, 0), 24, "want 76 to"},
		{"count", change(12, 4), int64(len(good) - 32), "ends before entry 3 of 4"},
		{"fewer", change(12, 2), 0, "follow the last entry"},
		{"parts", change(28+64, 0xff), 28 + 76, "reach past it"},
	} {
		_, err := journal.Parse(c.b)
		var e *journal.Error
		if !errors.As(err, &e) || !strings.Contains(e.Reason, c.want) || c.at > 0 && e.Offset != c.at {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

// A recorder keeps each question once, within its bounds, and counts the rest.
func TestRecorder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "questions.journal")
	r, err := journal.Create(name, journal.Options{Bytes: 1 << 10, Entries: 4})
	if err != nil {
		t.Fatal(err)
	}
	in := []byte("a")
	for range 3 {
		r.Observe(host.Call{Policy: geometry.Digest{1}, Hook: "remap", In: in, Out: []byte("b"), Fuel: 5, Duration: time.Second})
	}
	in[0] = 'x' // the recorder has its own
	r.Observe(host.Call{Policy: geometry.Digest{2}, Hook: "remap", In: []byte("a"), Err: errors.New(strings.Repeat("é", 4000))})
	r.Observe(host.Call{Hook: "no hook", In: []byte("a")})
	r.Observe(host.Call{Hook: "remap", In: make([]byte, 2<<10)}) // too large
	for i := range 5 {
		r.Observe(host.Call{Hook: "route", In: []byte{byte(i)}})
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	j, err := journal.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range j.Entries {
		got = append(got, fmt.Sprintf("%x %s %q %q %d", e.Policy[:1], e.Hook, e.Question, e.Answer, e.Times))
	}
	// The long error leaves no room for it within 1 KiB.
	want := []string{`01 remap "a" "b" 3`, `00 route "\x00" "" 1`, `00 route "\x01" "" 1`, `00 route "\x02" "" 1`}
	if !reflect.DeepEqual(got, want) || j.Dropped != 4 {
		t.Errorf("%q, %d dropped", got, j.Dropped)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 1<<10 {
		t.Errorf("%v, %d bytes (%v)", info.Mode(), info.Size(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// What is no journal is not replaced; a journal is.
func TestCreate(t *testing.T) {
	folder := t.TempDir()
	precious := filepath.Join(folder, "thesis.txt")
	if err := os.WriteFile(precious, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	var e *journal.Error
	if _, err := journal.Create(precious, journal.Options{}); !errors.As(err, &e) || e.File != precious {
		t.Errorf("error %v", err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "years of work" {
		t.Errorf("%q (%v)", b, err)
	}
	name := filepath.Join(folder, "j")
	for range 2 {
		r, err := journal.Create(name, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := journal.Create(filepath.Join(folder, "none", "j"), journal.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestMerge(t *testing.T) {
	a, b := &journal.Journal{Entries: entries(), Dropped: 1}, &journal.Journal{Entries: entries()[1:], Dropped: 2}
	b.Entries[0].Policy = geometry.Digest{9}
	got := journal.Merge(a, b)
	if len(got.Entries) != 4 || got.Dropped != 3 || got.Entries[2].Times != 2 || got.Entries[3].Policy != (geometry.Digest{9}) || a.Entries[2].Times != 1 {
		t.Errorf("%+v", got)
	}
}

// Calls of many policies at a time and flushes beside them lose nothing.
func TestConcurrent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "j")
	r, err := journal.Create(name, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 200 {
				r.Observe(host.Call{Policy: geometry.Digest{byte(w)}, Hook: "remap", In: []byte{byte(i % 50)}})
			}
		})
	}
	for range 5 {
		if err := r.Flush(); err != nil {
			t.Error(err)
		}
		if _, err := journal.Read(name); err != nil {
			t.Error(err) // as a whole or not at all
		}
	}
	all.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Read(name)
	if err != nil || len(j.Entries) != 200 || j.Dropped != 0 {
		t.Fatalf("%d entries, %d dropped (%v)", len(j.Entries), j.Dropped, err)
	}
	times := uint64(0)
	for _, e := range j.Entries {
		times += e.Times
	}
	if times != 800 {
		t.Errorf("%d calls, want 800", times)
	}
}

// Whatever a file holds, it is read or refused; what is read is written again
// as it was read.
func FuzzParse(f *testing.F) {
	f.Add((&journal.Journal{Entries: entries(), Dropped: 3}).Encode(), false)
	f.Add((&journal.Journal{}).Encode(), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= sha256.Size {
			b = sealed(b)
		}
		j, err := journal.Parse(b)
		if err != nil {
			var e *journal.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %T %v", err, err)
			}
			return
		}
		again, err := journal.Parse(j.Encode())
		if err != nil || !reflect.DeepEqual(again, j) {
			t.Errorf("%+v (%v)\nwant %+v", again, err, j)
		}
	})
}
