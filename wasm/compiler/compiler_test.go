package compiler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/wasm/meter"
)

// The test binary is its own child: its first argument says which.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		if f := children()[os.Args[1]]; f != nil {
			os.Exit(f())
		}
	}
	os.Exit(m.Run())
}

func command(which string) []string { return []string{"/proc/self/exe", which} }

// children are what a child does.
func children() map[string]func() int {
	answer := func(r reply) int {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return 1
		}
		return 0
	}
	return map[string]func() int{
		"compile": func() int { return Child(os.Args, os.Stdin, os.Stdout, os.Stderr) },
		"escape":  escape,
		"garbage": func() int { fmt.Println("heads"); return 0 },
		"twice":   func() int { answer(reply{Protocol: protocol}); return answer(reply{Protocol: protocol}) },
		"unknown": func() int { fmt.Println(`{"protocol": 2, "trust": "me"}`); return 0 },
		"endless": func() int {
			for {
				if _, err := os.Stdout.Write(make([]byte, 1<<16)); err != nil {
					return 1
				}
			}
		},
		"future": func() int { return answer(reply{Protocol: protocol + 1}) },
		"other":  func() int { return answer(reply{Protocol: protocol, Version: "wazero-v9-s390x-linux"}) },
		"empty": func() int {
			version, sample, err := fingerprint(context.Background(), "sample")
			if err != nil {
				return 1
			}
			return answer(reply{Protocol: protocol, Version: version, Sample: sample})
		},
		"sample": func() int {
			version, _, err := fingerprint(context.Background(), "sample")
			if err != nil {
				return 1
			}
			return answer(reply{Protocol: protocol, Version: version, Sample: strings.Repeat("0", 64)})
		},
		"busy": func() int { // the kernel ends it first
			if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
				return 1
			}
			runtime.GOMAXPROCS(2)
			for range 2 {
				go func() {
					for n := uint(0); ; n++ {
						_ = n
					}
				}()
			}
			select {}
		},
		"fails":  func() int { fmt.Fprintln(os.Stderr, "no mood\nfor this"); return 7 },
		"killed": func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); return 1 },
		"stalls": func() int { time.Sleep(time.Hour); return 0 },
	}
}

// good is a metered module.
func good(t testing.TB) []byte {
	t.Helper()
	wasm, err := os.ReadFile("../../policies/heads/heads.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if wasm, err = meter.Meter(wasm, meter.Options{}); err != nil {
		t.Fatal(err)
	}
	return wasm
}

func compiler(t testing.TB, which string, change func(*Config)) *Compiler {
	t.Helper()
	cfg := Config{Command: command(which), Folder: filepath.Join(t.TempDir(), "cache")}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// files are all that lie below a folder, but for the lock.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Name() != lockFile {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What the child compiled is what this process's engine finds: loading it adds
// nothing to the cache.
func TestCompiledElsewhereFoundHere(t *testing.T) {
	c := compiler(t, "compile", nil)
	wasm := good(t)
	for range 3 {
		if err := c.compile(t.Context(), wasm, 256); err != nil {
			t.Fatal(err)
		}
	}
	if c.Children() != 1 {
		t.Errorf("%d children for one module", c.Children())
	}
	if p := c.Protections(); !p.Limits || !p.NoNew || !p.Seccomp {
		t.Errorf("protections %+v", p)
	}
	before := files(t, c.cfg.Folder)
	if len(before) != 2 {
		t.Fatalf("the cache holds %v, want the code and its note", before)
	}
	load := func() error { return c.Exclusive(func() error { return c.load(t, wasm) }) }
	if err := load(); err != nil {
		t.Fatal(err)
	}
	if after := files(t, c.cfg.Folder); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("the engine compiled it again: before %v, after %v", before, after)
	}
	// It would have shown: without the entry the engine compiles, and that is
	// found out.
	var lost *Error
	for _, f := range before {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := load(); !errors.As(err, &lost) || lost.Kind != Missed || !lost.Operator {
		t.Errorf("without the entry: error %v, want that it was missed", err)
	}
	if after := files(t, c.cfg.Folder); len(after) != 0 {
		t.Errorf("what was compiled here is still there: %v", after)
	}
	// A new compiler on the folder, as after a restart.
	if err := c.compile(t.Context(), wasm, 256); err != nil || c.Children() != 2 {
		t.Errorf("after the loss: %v, %d children", err, c.Children())
	}
	again, err := New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.compile(t.Context(), wasm, 256); err != nil || again.Children() != 0 {
		t.Errorf("on a filled folder: %v, %d children", err, again.Children())
	}
	if err := errors.Join(again.Exclusive(func() error { return again.load(t, wasm) }), again.Close()); err != nil {
		t.Error(err)
	}
}

// compile takes a metered module for what it was before it was metered.
func (c *Compiler) compile(ctx context.Context, wasm []byte, pages uint32) error {
	return c.Compile(ctx, wasm, wasm, pages)
}

// load has the engine of this process load a module, as package host does.
func (c *Compiler) load(t testing.TB, wasm []byte) error {
	cache, err := c.Cache()
	if err != nil {
		return err
	}
	r := wazero.NewRuntimeWithConfig(t.Context(), engineConfig(cache, 256))
	_, err = r.CompileModule(t.Context(), wasm)
	return errors.Join(err, r.Close(t.Context()), cache.Close(t.Context()))
}

// An entry that is damaged is compiled again, and one that lies there without
// having been made by a child is removed when the folder is opened.
func TestDamageIsMended(t *testing.T) {
	c := compiler(t, "compile", nil)
	wasm := good(t)
	if err := c.compile(t.Context(), wasm, 256); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(c.cfg.Folder, "wazero-*", "*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	whole, err := os.ReadFile(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	for n, damage := range [][]byte{nil, whole[:len(whole)-1], append(bytes.Clone(whole), 0), append([]byte("WAZEVO\x01x"), whole[8:]...), append(bytes.Clone(whole[:len(whole)/2]), append([]byte{^whole[len(whole)/2]}, whole[len(whole)/2+1:]...)...)} {
		if err := os.WriteFile(entries[0], damage, 0o600); err != nil {
			t.Fatal(err)
		}
		err := c.Exclusive(func() error { return errors.Join(c.compile(t.Context(), wasm, 256), c.load(t, wasm)) })
		if err != nil || c.Children() != n+2 {
			t.Errorf("damage %d: %v, %d children", n, err, c.Children())
		}
	}
	note := files(t, filepath.Join(c.cfg.Folder, notesFolder))[0]
	if err := os.WriteFile(note, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if left := files(t, c.cfg.Folder); len(left) != 1 || left[0] != note {
		t.Errorf("it left %v", left)
	}
	if err := errors.Join(again.compile(t.Context(), wasm, 256), again.Close()); err != nil || again.Children() != 1 {
		t.Errorf("%v, %d children", err, again.Children())
	}
}

// A child that died long ago left its folder, another that may still run keeps
// it.
func TestOldFoldersAreRemoved(t *testing.T) {
	c := compiler(t, "compile", nil)
	old, young := filepath.Join(c.cfg.Folder, workPrefix+"1"), filepath.Join(c.cfg.Folder, workPrefix+"2")
	past := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Mkdir(old, 0o700), os.Mkdir(young, 0o700), os.Chtimes(old, past, past)); err != nil {
		t.Fatal(err)
	}
	again, err := New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// A compiler that is closed ends its child, and takes nothing more.
func TestClose(t *testing.T) {
	c, err := New(Config{Command: command("stalls"), Folder: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- c.compile(t.Context(), good(t), 256) }()
	for c.Children() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("the compilation that was going on: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the compilation goes on")
	}
	for what, err := range map[string]error{
		"Compile": c.compile(t.Context(), good(t), 256), "Exclusive": c.Exclusive(func() error { return nil }), "Close": c.Close(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func TestChildrenThatDoNotAnswer(t *testing.T) {
	for _, c := range []struct {
		which    string
		kind     Kind
		operator bool
		want     string
	}{
		{"garbage", Protocol, true, "does not answer as one: it wrote no answer"},
		{"twice", Protocol, true, "more than an answer"},
		{"unknown", Protocol, true, `unknown field "trust"`},
		{"endless", Time, false, "more than 1.5s"},
		{"future", Protocol, true, "it speaks protocol 3, this process 2"},
		{"other", Setup, true, "the child compiles for wazero-v9-s390x-linux, this process runs wazero-"},
		{"empty", Protocol, true, "left 0 files"},
		{"fails", Crashed, false, "status 7: no mood"},
		{"sample", Setup, true, "other features of the processor"},
		{"killed", Crashed, false, `ended by the signal "killed"`},
		{"stalls", Time, false, "compiling takes more than 1.5s; make the module smaller"},
	} {
		t.Run(c.which, func(t *testing.T) {
			t.Parallel()
			own := compiler(t, c.which, func(cfg *Config) { cfg.Time = 1500 * time.Millisecond })
			err := own.compile(t.Context(), good(t), 256)
			var e *Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Operator != c.operator || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one of kind %s with %q", err, c.kind, c.want)
			}
			if left := files(t, own.cfg.Folder); len(left) != 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

func TestNoSuchProgram(t *testing.T) {
	c := compiler(t, "compile", func(cfg *Config) { cfg.Command = []string{filepath.Join(t.TempDir(), "kvferry")} })
	err := c.compile(t.Context(), good(t), 256)
	var e *Error
	if !errors.As(err, &e) || e.Kind != Setup || !e.Operator || !strings.Contains(err.Error(), "start the child") {
		t.Errorf("error %v", err)
	}
}

// What a module wants of the compiler is bounded, and the module is blamed.
func TestLimits(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		c := compiler(t, "compile", func(cfg *Config) { cfg.Memory = 1 << 30 })
		err := c.compile(t.Context(), straight(6<<20), 256)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Memory || e.Operator || !strings.Contains(err.Error(), "1073741824 bytes") {
			t.Errorf("error %v, want one about memory", err)
		}
	})
	t.Run("time", func(t *testing.T) {
		c := compiler(t, "compile", func(cfg *Config) { cfg.Time = time.Second })
		err := c.compile(t.Context(), straight(6<<20), 256)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Time || e.Operator {
			t.Errorf("error %v, want one about time", err)
		}
	})
	t.Run("time of the processor", func(t *testing.T) {
		c := compiler(t, "busy", func(cfg *Config) { cfg.Time = time.Second })
		err := c.compile(t.Context(), good(t), 256)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Time || e.Operator || e.Limit != 1000 {
			t.Errorf("error %v, want one about time", err)
		}
	})
	t.Run("size", func(t *testing.T) {
		c := compiler(t, "compile", nil)
		err := c.compile(t.Context(), make([]byte, maxModule+1), 256)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Invalid || e.Operator || e.Limit != maxModule || c.Children() != 0 {
			t.Errorf("error %v, want one about size", err)
		}
	})
	t.Run("not valid", func(t *testing.T) {
		c := compiler(t, "compile", nil)
		err := c.compile(t.Context(), good(t)[:300], 256)
		var e *Error
		if !errors.As(err, &e) || e.Kind != Invalid || e.Operator {
			t.Errorf("error %v, want that it is not valid", err)
		}
	})
	// Metered, it would be: a module that counts on what the meter adds.
	t.Run("not valid before", func(t *testing.T) {
		c := compiler(t, "compile", nil)
		forged := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), []byte{1, 4, 1, 0x60, 0, 0}, []byte{3, 2, 1, 0}, []byte{10, 8, 1, 6, 0, 0x42, 0, 0x24, 0, 0x0b}) // global 0 = 0
		metered, err := meter.Meter(forged, meter.Options{})
		if err == nil {
			err = c.Compile(t.Context(), forged, metered, 256)
			var e *Error
			if !errors.As(err, &e) || e.Kind != Invalid || e.Operator {
				t.Errorf("error %v, want that it is not valid", err)
			}
		}
		// Whatever the meter says of it: a valid module does not vouch for another.
		if err := c.compile(t.Context(), good(t), 256); err != nil {
			t.Fatal(err)
		}
		if err := c.Compile(t.Context(), forged, good(t), 256); err == nil || c.Children() < 2 {
			t.Errorf("error %v after %d children", err, c.Children())
		}
	})
	t.Run("canceled", func(t *testing.T) {
		c := compiler(t, "stalls", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := c.compile(ctx, good(t), 256); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the context's", err)
		}
	})
}

// straight is a module with one function of n bytes, which the preflight would
// refuse: i32.const 1, drop, over and over, with values kept on the stack.
func straight(n int) []byte {
	body := []byte{1, 1, 0x7f} // one local
	for len(body) < n {
		body = append(body, 0x20, 0, 0x41, 1, 0x6a, 0x22, 0, 0x45, 0x04, 0x40, 0x0b) // local.tee 0 (local.get 0 + 1), i32.eqz, if end
	}
	body = append(body, 0x0b)
	uleb := func(v int) []byte {
		var out []byte
		for ; v >= 0x80; v >>= 7 {
			out = append(out, byte(v)|0x80)
		}
		return append(out, byte(v))
	}
	code := append(append([]byte{1}, uleb(len(body))...), body...)
	out := append([]byte("\x00asm\x01\x00\x00\x00"), 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0)
	return append(append(append(out, 10), uleb(len(code))...), code...)
}

func TestFolderMustBeOurs(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{open: "mode 0755", file: "not a directory", link: "is no folder"} {
		_, err := New(Config{Command: command("compile"), Folder: folder})
		var e *Error
		if !errors.As(err, &e) || e.Kind != Setup || !e.Operator || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", folder, err, want)
		}
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(t.TempDir(), "foreign")
		if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Command: command("compile"), Folder: foreign}); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
			t.Errorf("error %v about a folder of somebody else's", err)
		}
	}
}

func TestKeepsWhatIsUsed(t *testing.T) {
	c := compiler(t, "compile", func(cfg *Config) { cfg.Keep = 2 })
	for n := range 4 {
		if err := c.Exclusive(func() error { return c.compile(t.Context(), append(good(t), 0, 2, 1, byte('a'+n)), 256) }); err != nil { // a custom section
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // files are told apart by their times
	}
	if left := files(t, c.cfg.Folder); len(left) != 4 {
		t.Errorf("the cache holds %v, want two modules and their notes", left)
	}
	if err := c.compile(t.Context(), append(good(t), 0, 2, 1, 'd'), 256); err != nil || c.Children() != 4 {
		t.Errorf("the last one: %v, %d children", err, c.Children())
	}
}

func TestTwoAtOnce(t *testing.T) {
	c := compiler(t, "compile", nil)
	var wait sync.WaitGroup
	for n := range 6 {
		wait.Go(func() {
			if err := c.compile(t.Context(), append(good(t), 0, 2, 1, byte('a'+n%2)), 256); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if left := files(t, c.cfg.Folder); len(left) != 4 {
		t.Errorf("the cache holds %v, want two modules and their notes", left)
	}
}

// attempt is what a subverted compiler might try.
type attempt struct {
	name   string
	do     func() error
	by     func(Protections) bool // what keeps it from doing so
	denied []error
}

func attempts(parent int) []attempt {
	seccomp := func(p Protections) bool { return p.Seccomp }
	files := func(p Protections) bool { return p.Landlock }
	open := func(path string, flags int) func() error {
		return func() error {
			f, err := os.OpenFile(path, flags, 0o600)
			if err == nil {
				_ = f.Close()
			}
			return err
		}
	}
	perm := []error{unix.EPERM}
	access := []error{unix.EACCES, unix.EPERM}
	return []attempt{
		{"dial", func() error { _, err := net.Dial("tcp", "127.0.0.1:9"); return err }, seccomp, perm},
		{"listen", func() error { _, err := net.Listen("unix", "socket"); return err }, seccomp, perm},
		{"another program", func() error { return exec.Command("/bin/true").Run() }, seccomp, access},
		{"exec", func() error { return syscall.Exec("/bin/true", []string{"true"}, nil) }, seccomp, perm},
		{"fork", func() error {
			_, _, e := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
			if e == 0 {
				return nil
			}
			return e
		}, seccomp, perm},
		{"trace the parent", func() error { return unix.PtraceAttach(parent) }, seccomp, perm},
		{"kill the parent", func() error { return unix.Kill(parent, unix.SIGTERM) }, seccomp, perm},
		{"read the parent", func() error {
			_, err := unix.ProcessVMReadv(parent, []unix.Iovec{{}}, []unix.RemoteIovec{{}}, 0)
			return err
		}, seccomp, perm},
		{"more memory", func() error {
			return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 50, Max: 1 << 50})
		}, seccomp, perm},
		{"a mount", func() error { return unix.Mount("none", ".", "tmpfs", 0, "") }, seccomp, perm},
		{"memory without a name", func() error { _, err := unix.MemfdCreate("x", 0); return err }, seccomp, perm},
		{"a program for the kernel", func() error {
			_, _, e := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
			if e == 0 {
				return nil
			}
			return e
		}, seccomp, perm},
		{"a file outside", open("../escaped", os.O_CREATE|os.O_WRONLY), files, access},
		{"an absolute file outside", open(filepath.Join(os.TempDir(), "escaped"), os.O_CREATE|os.O_WRONLY), files, access},
		{"the list of users", open("/etc/passwd", os.O_RDONLY), files, access},
		{"the parent's environment", open(fmt.Sprintf("/proc/%d/environ", parent), os.O_RDONLY), files, access},
		{"to rename out of the folder", func() error {
			if err := os.WriteFile("mine", nil, 0o600); err != nil {
				return fmt.Errorf("in the folder itself: %v", err)
			}
			return os.Rename("mine", "../yours")
		}, files, append(access, unix.EXDEV)},
	}
}

// escape confines itself as a child does, and then tries.
func escape() int {
	confined, again := os.LookupEnv(stageVariable)
	if !again {
		fmt.Fprintln(os.Stderr, confine(os.Args, 4<<30, 60))
		return exitSetup
	}
	var p Protections
	if err := json.Unmarshal([]byte(confined), &p); err != nil {
		return exitInput
	}
	parent := os.Getppid() // which the filter does not allow
	var err error
	if p.Seccomp, err = filter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitSetup
	}
	fmt.Println(p.Limits, p.NoNew, p.Landlock, p.Seccomp)
	for _, a := range attempts(parent) {
		err := a.do()
		word := "done"
		for _, d := range a.denied {
			if errors.Is(err, d) {
				word = "denied"
			}
		}
		fmt.Printf("%s: %s (%v)\n", a.name, word, err)
	}
	// And what it is for still works.
	if err := errors.Join(os.WriteFile("file", []byte("x"), 0o600), os.Rename("file", "other"), os.Remove("other")); err != nil {
		fmt.Println("its own folder:", err)
	}
	return 0
}

func TestEscapes(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no filter for this architecture")
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "escape")
	cmd.Dir = filepath.Join(dir, "work")
	if err := os.Mkdir(cmd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var p Protections
	if _, err := fmt.Sscan(lines[0], &p.Limits, &p.NoNew, &p.Landlock, &p.Seccomp); err != nil {
		t.Fatal(err)
	}
	if !p.Limits || !p.NoNew || !p.Seccomp {
		t.Errorf("protections %+v: this kernel has filters", p)
	}
	t.Logf("protections %+v", p)
	all := attempts(0)
	if len(lines) != len(all)+1 {
		t.Fatalf("it said\n%s", out)
	}
	for i, a := range all {
		if a.by(p) && !strings.HasPrefix(lines[i+1], a.name+": denied") {
			t.Errorf("%s", lines[i+1])
		}
	}
	if left := files(t, dir); p.Landlock && len(left) > 1 {
		t.Errorf("files outside: %v", left)
	}
}

// The command is of no use to anybody else.
func TestChildByHand(t *testing.T) {
	var complaints bytes.Buffer
	if status := Child([]string{"x"}, strings.NewReader("hello"), &bytes.Buffer{}, &complaints); status != exitInput || !strings.Contains(complaints.String(), "kvferry's own use") {
		t.Errorf("status %d: %s", status, complaints.String())
	}
}

func FuzzNote(f *testing.F) {
	f.Add(note{strings.Repeat("0a", 32), [32]byte{1}}.encode())
	f.Add([]byte("heads"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := parseNote(b); ok && !bytes.Equal(n.encode(), b) {
			t.Errorf("%q was read as %q", b, n.encode())
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(request{Pages: 256, Original: []byte("\x00asm"), Metered: []byte("\x00asm\x01")}.encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRequest(bytes.NewReader(b))
		if err == nil && !bytes.Equal(r.encode(), b) {
			t.Errorf("%x was read as %x", b, r.encode())
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"protocol": 2, "version": "wazero-v1.12.0-amd64-linux", "protections": {"limits": true, "no_new": true, "landlock": false, "seccomp": true}}`))
	f.Add([]byte(`{"protocol": 2}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReply(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeReply(again); err != nil || back != r {
			t.Errorf("%q was read as %+v, and its text as %+v (%v)", b, r, back, err)
		}
	})
}
