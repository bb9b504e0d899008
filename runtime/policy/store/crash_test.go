package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
)

// A test starts its own program with these to be the process that dies.
const (
	childFolder = "KVFERRY_TEST_STORE"
	childEnd    = "KVFERRY_TEST_STORE_END"   // after so many operations it kills itself
	childLimit  = "KVFERRY_TEST_STORE_LIMIT" // bytes that a file may have
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child makes every kind of change that there is, and prints what it did.
func child(dir string) int {
	s, err := Open(dir)
	if err != nil {
		fmt.Println("open:", err)
		return 3
	}
	if end, err := strconv.Atoi(os.Getenv(childEnd)); err == nil {
		n := 0
		s.between = func(done string) {
			fmt.Println(done)
			if n++; n == end {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	limit, late := strings.CutPrefix(os.Getenv(childLimit), "after put ")
	if !late {
		limited(limit)
	}
	before := s.State()
	d, err := s.Put(changed)
	if err != nil {
		fmt.Println("put:", err)
	}
	if late {
		limited(limit)
	}
	next := after(before, d)
	if saved := s.Save(next); saved != nil {
		fmt.Println("save:", saved)
		err = errors.Join(err, saved)
		if !same(s.State(), before) {
			fmt.Println("in memory it holds another state")
			return 4
		}
	}
	if appended := s.Append([]byte(event)); appended != nil {
		fmt.Println("append:", appended)
		err = errors.Join(err, appended)
	}
	// One of these does not fit: the older half goes.
	for range 3 {
		if appended := s.Append([]byte(long)); appended != nil {
			fmt.Println("append:", appended)
			err = errors.Join(err, appended)
		}
	}
	if err := s.Close(); err != nil {
		fmt.Println("close:", err)
		return 3
	}
	if err != nil {
		return 5
	}
	return 0
}

// limited bounds what the process can write into a file.
func limited(text string) {
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
}

var changed = bytes.Repeat([]byte("another"), 9000)

const event = `{"event":"changed"}`

var long = `{"event":"` + strings.Repeat("x", MaxLine/2) + `"}`

// after is the state that the child saves: the policy that was active is the
// last good one, and what was that before is gone.
func after(s State, d geometry.Digest) State {
	active, _ := s.Find(s.Active)
	fresh := Generation{ID: s.Last + 1, Name: "heads", Version: "2.0.0", Digest: d, Source: "a test", Loaded: time.Unix(1_700_000_002, 0).UTC()}
	return State{Last: fresh.ID, Active: fresh.ID, LastGood: active.ID, Generations: []Generation{active, fresh}}
}

// seeded is a store as the child finds it: its last good policy is a module of
// its own, and its history is nearly full.
func seeded(t *testing.T) (string, State) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	state, _ := filled(t, dir)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	state.Generations[0].Digest, err = s.Put([]byte("the one before"))
	if err = errors.Join(err, s.Save(state)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"event":"` + strings.Repeat("o", MaxLine/2) + "\"}\n")
	text := bytes.Repeat(line, (MaxHistory-len(long)-500)/len(line))
	if err := os.WriteFile(filepath.Join(dir, historyName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, state
}

// whole opens a store and reads all that is in it. It returns its state, and the
// history's lines.
func whole(t *testing.T, dir string) (State, []string) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	state := s.State()
	for _, g := range state.Generations {
		if _, err := s.Module(g.Digest); err != nil {
			t.Errorf("generation %d: %v", g.ID, err)
		}
	}
	lines, err := s.History()
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, l := range lines {
		out = append(out, string(l))
	}
	// Nothing half written stays, and it can be written to.
	if left, err := filepath.Glob(filepath.Join(dir, "*"+newSuffix)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := errors.Join(s.Save(state), s.Append([]byte(event)), s.Close()); err != nil {
		t.Errorf("write: %v", err)
	}
	return state, out
}

// Wherever a process is killed, the next one finds the old state or the new one,
// whole, with every module that it names, and every line of the history that was
// there before.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	var old, new, points int
	var operations []string
	for end := 1; ; end++ {
		dir, before := seeded(t)
		_, lines := whole(t, dir)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childFolder+"="+dir, childEnd+"="+strconv.Itoa(end))
		out, err := cmd.Output()
		ended := cmd.ProcessState.ExitCode() == 0
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ended && (!ok || status.Signal() != syscall.SIGKILL) {
			t.Fatalf("operation %d: %v: %s", end, err, out)
		}
		done := strings.Split(strings.TrimSpace(string(out)), "\n")
		at := done[len(done)-1]
		got, now := whole(t, dir)
		switch {
		case same(got, before):
			old++
			if ended {
				t.Errorf("the change was made and is not there")
			}
		case got.Active == before.Last+1 && got.LastGood == before.Active:
			new++
		default:
			t.Errorf("killed after %q: the state is neither: %+v", at, got)
		}
		// What the history had is there, but for the half that may go.
		kept := len(lines)
		if ended || slices.Contains(now, long) {
			kept /= 2
		}
		if n := len(now); n < kept {
			t.Errorf("killed after %q: %d lines of %d are left", at, n, len(lines))
		}
		if ended {
			operations = done
			break
		}
		if points++; points > 200 {
			t.Fatal("there is no end")
		}
	}
	t.Logf("killed after each of %d operations: %d times the old state, %d times the new", points, old, new)
	for _, want := range []string{"write half of state.new", "rename to state", "rename to state.backup", "write half of history", "rename to history", "sync the folder of modules/", "remove module "} {
		if !slices.ContainsFunc(operations, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no %q among %q", want, operations)
		}
	}
	if old < 5 || new < 5 {
		t.Errorf("%d times the old state, %d times the new", old, new)
	}
}

// Where nothing more can be written the old state stays, in memory and on disk,
// and the error says so.
func TestDiskFull(t *testing.T) {
	dir, before := seeded(t)
	_, lines := whole(t, dir)
	for _, limit := range []string{"10", "300", "after put 300"} { // nothing; not the module; not the state
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childFolder+"="+dir, childLimit+"="+limit)
		out, _ := cmd.Output() // its status says it
		if code := cmd.ProcessState.ExitCode(); code != 5 {
			t.Fatalf("limit %s: exit status %d: %s", limit, code, out)
		}
		all := []string{"save: write ", "state.new: file too large", "append: write "}
		if !strings.HasPrefix(limit, "after") {
			all = []string{"put: write ", "save: ", "append: write ", "file too large"}
		}
		for _, want := range all {
			if !strings.Contains(string(out), want) {
				t.Errorf("limit %s: %q is not in %s", limit, want, out)
			}
		}
		got, now := whole(t, dir)
		if !same(got, before) || len(now) < len(lines) {
			t.Errorf("limit %s: %+v, %d lines of %d", limit, got, len(now), len(lines))
		}
	}
}
