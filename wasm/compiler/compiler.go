// Package compiler compiles policy modules in a process of its own.
//
// Compiling is where a module can do the most harm before it runs: the engine
// has no limits of its own, so a flaw in it, or in the preflight that bounds what
// it is given, is one that a stranger's module can reach. Here the compiler runs
// in a child with limits on memory and time, without rights to gain any, that
// may write into one folder and call little of the kernel (see Protections). It
// puts native code into the engine's compilation cache, and this process loads
// it from there.
//
// What this does not do: native code that a subverted child writes runs in this
// process once it is loaded. The child keeps a module that crashes, stalls or
// bloats the compiler away from the agent; it is no guard against one that takes
// the compiler over. The folder is as trusted as the program itself, since only a
// checksum guards what lies in it.
package compiler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
)

// Config of a compiler. Zero numbers take the defaults named.
type Config struct {
	// Command starts the child: a program whose main calls Child for these
	// arguments. {"/proc/self/exe", "policy", "compile-child"} in kvferry.
	Command []string
	// Folder holds the cache. It is made where it does not exist, with mode 0700;
	// one that others may read or write, or that belongs to another user, is
	// refused.
	Folder string
	Memory uint64        // bytes of address space of the child; 4 GiB. Go's runtime reserves half of one before it does anything
	Time   time.Duration // of one compilation, by the clock and by the processor; 30 s
	Keep   int           // compiled modules that are kept; 256
}

// Compiler compiles modules into a cache on disk. Safe for concurrent use.
type Compiler struct {
	cfg     Config
	version string // folder of the cache that the engine of this process uses

	loading sync.Mutex // held by Exclusive

	mu     sync.Mutex
	report Protections // of the last child
	ran    int         // children started
}

// New makes a compiler.
//
// Errors: *Error of kind Setup.
func New(cfg Config) (*Compiler, error) {
	if len(cfg.Command) == 0 {
		return nil, setup(nil, "no command: name the program that compiles")
	}
	if cfg.Memory == 0 {
		cfg.Memory = 4 << 30
	}
	if cfg.Time <= 0 {
		cfg.Time = 30 * time.Second
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 256
	}
	folder, err := filepath.Abs(cfg.Folder)
	if err != nil {
		return nil, setup(err, "folder %s", cfg.Folder)
	}
	cfg.Folder = folder
	for _, dir := range []string{folder, filepath.Join(folder, knownFolder)} {
		if err := private(dir); err != nil {
			return nil, err
		}
	}
	version, err := versionFolder(folder)
	if err != nil {
		return nil, err
	}
	return &Compiler{cfg: cfg, version: version}, nil
}

// knownFolder holds a file for each module that was compiled, named by the
// SHA-256 of its bytes: the name of its entry in the engine's cache.
const knownFolder = "known"

// private makes a folder that is this user's alone, or refuses one that is not.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return setup(err, "make the folder of compiled modules")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return setup(err, "look at the folder of compiled modules")
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return setup(nil, "%s is no folder: the code that lies there runs in this process, so name one that is this user's alone", dir)
	case info.Mode().Perm()&0o077 != 0:
		return setup(nil, "%s has mode %04o: the code that lies there runs in this process, so it must be 0700", dir, info.Mode().Perm())
	case ok && int(stat.Uid) != os.Geteuid():
		return setup(nil, "%s belongs to user %d, this process is user %d", dir, stat.Uid, os.Geteuid())
	}
	return nil
}

// versionFolder makes the engine make the folder of its cache, and returns its
// name: it says which engine, for which processor.
func versionFolder(folder string) (string, error) {
	cache, err := wazero.NewCompilationCacheWithDir(folder)
	if err != nil {
		return "", setup(err, "make the cache of compiled modules")
	}
	if err := cache.Close(context.Background()); err != nil {
		return "", setup(err, "close the cache of compiled modules")
	}
	names, err := filepath.Glob(filepath.Join(folder, "wazero-*-"+runtime.GOARCH+"-"+runtime.GOOS))
	if err != nil || len(names) == 0 {
		return "", setup(err, "the engine made no folder in its cache %s", folder)
	}
	// Others are left from other versions of the engine; this one was made or
	// touched last only where it is new, so ask a folder that has no other.
	if len(names) == 1 {
		return filepath.Base(names[0]), nil
	}
	alone, err := os.MkdirTemp(folder, "version-")
	if err != nil {
		return "", setup(err, "ask the engine for its version")
	}
	defer func() { _ = os.RemoveAll(alone) }() // empty but for folders
	return versionFolder(alone)
}

// Cache is a new handle of the cache. Close it once no runtime uses it.
func (c *Compiler) Cache() (wazero.CompilationCache, error) {
	cache, err := wazero.NewCompilationCacheWithDir(c.cfg.Folder)
	if err != nil {
		return nil, setup(err, "open the cache of compiled modules")
	}
	return cache, nil
}

// Exclusive runs f while no other load uses the cache: the engine does not stand
// two at a time.
func (c *Compiler) Exclusive(f func() error) error {
	c.loading.Lock()
	defer c.loading.Unlock()
	return f()
}

// Protections are what held in the last child; false before there was one.
func (c *Compiler) Protections() Protections {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// Children is how many were started; a module that lies in the cache needs none.
func (c *Compiler) Children() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran
}

// Compile sees to it that a module, whose memory may have so many pages of
// 64 KiB, lies compiled in the cache. ctx ends the child early.
//
// Preconditions: the module passed the preflight and was metered.
// Errors: *Error; ctx's.
func (c *Compiler) Compile(ctx context.Context, wasm []byte, pages uint32) error {
	sum := sha256.Sum256(wasm)
	known := filepath.Join(c.cfg.Folder, knownFolder, hex.EncodeToString(sum[:]))
	if entry, err := os.ReadFile(known); err == nil && isEntry(string(entry)) {
		file := filepath.Join(c.cfg.Folder, c.version, string(entry))
		if now := time.Now(); os.Chtimes(file, now, now) == nil {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	work, err := os.MkdirTemp(c.cfg.Folder, "work-")
	if err != nil {
		return setup(err, "make a folder for the child")
	}
	defer func() { _ = os.RemoveAll(work) }() // what was of use is moved out
	reply, err := c.child(ctx, request{Pages: pages, Wasm: wasm}, work)
	if err != nil {
		return err
	}
	if reply.Version != c.version {
		return setup(nil, "the child compiles for %s, this process runs %s: name a command of the same build", reply.Version, c.version)
	}
	made, err := os.ReadDir(filepath.Join(work, c.version))
	if err != nil || len(made) != 1 || !isEntry(made[0].Name()) || !made[0].Type().IsRegular() {
		return &Error{Kind: Protocol, Reason: fmt.Sprintf("the child left %d files where it should have left one", len(made)), Operator: true, Err: err}
	}
	entry := made[0].Name()
	if err := os.Rename(filepath.Join(work, c.version, entry), filepath.Join(c.cfg.Folder, c.version, entry)); err != nil {
		return setup(err, "take over what the child compiled")
	}
	note := filepath.Join(work, "known")
	if err := os.WriteFile(note, []byte(entry), 0o600); err != nil {
		return setup(err, "note what was compiled")
	}
	if err := os.Rename(note, known); err != nil {
		return setup(err, "note what was compiled")
	}
	c.prune()
	return nil
}

// isEntry reports whether a name is one of the engine's cache.
func isEntry(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size
}

// prune drops what was not used for longest, beyond what is kept. What fails is
// tried again with the next module.
func (c *Compiler) prune() {
	files, err := os.ReadDir(filepath.Join(c.cfg.Folder, knownFolder))
	if err != nil || len(files) <= c.cfg.Keep {
		return
	}
	type known struct {
		file, entry string
		used        time.Time
	}
	var all []known
	for _, f := range files {
		file := filepath.Join(c.cfg.Folder, knownFolder, f.Name())
		entry, err := os.ReadFile(file)
		k := known{file: file}
		if err == nil && isEntry(string(entry)) {
			k.entry = filepath.Join(c.cfg.Folder, c.version, string(entry))
			if info, err := os.Stat(k.entry); err == nil {
				k.used = info.ModTime()
			}
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b known) int { return a.used.Compare(b.used) })
	for _, k := range all[:len(all)-c.cfg.Keep] {
		_ = os.Remove(k.file)
		if k.entry != "" {
			_ = os.Remove(k.entry)
		}
	}
}

// child runs one.
func (c *Compiler) child(ctx context.Context, r request, work string) (reply, error) {
	// The child dies with the thread that started it, so that no parent that is
	// killed leaves one behind.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.mu.Lock()
	c.ran++
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, c.cfg.Time)
	defer cancel()
	cmd := exec.CommandContext(limited, c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir = work
	cmd.Env = []string{
		fmt.Sprintf("%s=%d", memoryVariable, c.cfg.Memory),
		fmt.Sprintf("%s=%d", timeVariable, max(1, int64(c.cfg.Time/time.Second))),
		"GOTRACEBACK=none", "GOMAXPROCS=1",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Stdin = bytes.NewReader(r.encode())
	var out, complaint tail
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return reply{}, ctx.Err()
	}
	if limited.Err() != nil {
		return reply{}, c.slow()
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		return reply{}, c.died(exit, complaint.String())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return reply{}, setup(err, "start the child %s", strings.Join(c.cfg.Command, " "))
	default:
		return reply{}, setup(err, "run the child %s", strings.Join(c.cfg.Command, " "))
	}
	answer, err := decodeReply(out.b)
	if err != nil {
		return reply{}, &Error{Kind: Protocol, Reason: fmt.Sprintf("the child %s does not answer as one", strings.Join(c.cfg.Command, " ")), Operator: true, Err: err}
	}
	c.mu.Lock()
	c.report = answer.Protections
	c.mu.Unlock()
	if answer.Refused != "" {
		return reply{}, &Error{Kind: Invalid, Reason: answer.Refused}
	}
	return answer, nil
}

func (c *Compiler) slow() error {
	return &Error{Kind: Time, Reason: fmt.Sprintf("compiling takes more than %v", c.cfg.Time), Fix: "make the module smaller or its functions simpler"}
}

// died says why a child ended without an answer.
func (c *Compiler) died(exit *exec.ExitError, complaint string) error {
	if line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n"); line != "" {
		complaint = line
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled() && status.Signal() == syscall.SIGXCPU:
		return c.slow()
	case strings.Contains(complaint, "out of memory") || strings.Contains(complaint, "cannot allocate memory"):
		return &Error{Kind: Memory, Reason: fmt.Sprintf("compiling takes more than %d bytes of address space", c.cfg.Memory), Fix: "make the module smaller or its functions simpler"}
	case ok && status.Signaled():
		return &Error{Kind: Crashed, Reason: fmt.Sprintf("the compiler was ended by %v", status.Signal())}
	case ok && status.ExitStatus() == exitSetup:
		return setup(nil, "the child cannot protect itself: %s", complaint)
	}
	return &Error{Kind: Crashed, Reason: fmt.Sprintf("the compiler ended with status %d: %s", exit.ExitCode(), complaint)}
}

// tail keeps the first bytes that a child writes and drops the rest.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), max(0, maxReply-len(t.b)))]...)
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.b), "?") }

// decodeReply reads a child's answer strictly.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if len(b) >= maxReply {
		return r, fmt.Errorf("it wrote %d bytes or more, at most %d are read", len(b), maxReply-1)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return reply{}, fmt.Errorf("it wrote no answer: %w", err)
	}
	if d.More() {
		return reply{}, errors.New("it wrote more than an answer")
	}
	if r.Protocol != protocol {
		return reply{}, fmt.Errorf("it speaks protocol %d, this process %d", r.Protocol, protocol)
	}
	return r, nil
}
