package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
)

func filled(t testing.TB, dir string) (State, []byte) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	module := bytes.Repeat([]byte("heads"), 100)
	d, err := s.Put(module)
	if err != nil {
		t.Fatal(err)
	}
	state := State{Last: 2, Active: 2, LastGood: 1, Generations: []Generation{
		{ID: 1, Name: "heads", Version: "1.0.0", Digest: d, Source: "a file", Loaded: time.Unix(1_700_000_000, 0).UTC()},
		{ID: 2, Name: "heads", Version: "1.0.1", Digest: d, Source: "a file", Keys: []string{"ops"}, Loaded: time.Unix(1_700_000_001, 0).UTC()},
	}}
	if err := errors.Join(s.Save(state), s.Append([]byte(`{"kind":"changed"}`)), s.Close()); err != nil {
		t.Fatal(err)
	}
	return state, module
}

func same(a, b State) bool {
	x, err := a.Encode()
	y, other := b.Encode()
	return err == nil && other == nil && bytes.Equal(x, y)
}

// What was saved is there in the next process, and only one may have it.
func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	state, module := filled(t, dir)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !same(s.State(), state) {
		t.Errorf("reopened %+v, saved %+v", s.State(), state)
	}
	if b, err := s.Module(state.Generations[0].Digest); err != nil || !bytes.Equal(b, module) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if lines, err := s.History(); err != nil || len(lines) != 1 || string(lines[0]) != `{"kind":"changed"}` {
		t.Errorf("history %q, %v", lines, err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A file that was changed or cut is found, named and blamed on the operator; the
// backup brings the state back.
func TestBrokenFiles(t *testing.T) {
	for name, hurt := range map[string]func(b []byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"emptied": func([]byte) []byte { return nil },
		"garbage": func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			state, _ := filled(t, dir)
			s, err := Open(dir) // saved twice, so that there is a backup
			if err == nil {
				err = errors.Join(s.Save(state), s.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, stateName)
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, hurt(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(dir)
			var broken *FileError
			if !errors.As(err, &broken) || !broken.Recoverable || blame.Of(err) != blame.Operator {
				t.Fatalf("error %v, want one that names the file and that it can be recovered", err)
			}
			s, set, err := Recover(dir)
			if err != nil || set == "" || s.State().Active != state.Active {
				t.Fatalf("recovered %+v, the broken file is kept as %q, %v", s, set, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("module", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		state, _ := filled(t, dir)
		d := state.Generations[0].Digest
		if err := os.WriteFile(filepath.Join(dir, moduleName(d)), []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Module(d); err == nil || blame.Of(err) != blame.Operator {
			t.Errorf("%d bytes of a module that is another (%v)", len(b), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func FuzzState(f *testing.F) {
	state, _ := filled(f, filepath.Join(f.TempDir(), "store"))
	b, err := state.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", b, err)
		}
		if back, err := Decode(again); err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("%q was read as %+v and then as %+v (%v)", b, s, back, err)
		}
	})
}
