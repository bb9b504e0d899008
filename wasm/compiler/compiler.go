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
// the compiler over. The folder is as trusted as the program itself: checksums in
// it guard against damage, not against who can write there.
package compiler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// Config of a compiler. Zero numbers take the defaults named.
type Config struct {
	// Command starts the child: a program whose main calls Child for these
	// arguments. {"/proc/self/exe", "policy", "compile-child"} in kvferry.
	Command []string
	// Folder holds the cache. It is made where it does not exist, with mode 0700;
	// one that others may read or write, that belongs to another user, or that is
	// a link, is refused. Several processes may use it.
	Folder string
	Memory uint64        // bytes of address space of the child; 4 GiB. Go's runtime reserves half of one before it does anything
	Time   time.Duration // of one compilation, by the clock and by the processor; 30 s
	Keep   int           // compiled modules that are kept; 256
}

// maxChildren is how many run at a time; more wait.
const maxChildren = 2

// Compiler compiles modules into a cache on disk. Safe for concurrent use.
type Compiler struct {
	cfg    Config
	folder *folder
	sample string // entry of the sample in the engine's cache

	loading sync.Mutex // held by Exclusive
	slots   chan struct{}
	ctx     context.Context // of children
	stop    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // of Compile and Exclusive
	report  Protections    // of the last child
	ran     int            // children started
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("wasm/compiler: the compiler is closed")

// New makes a compiler. Close it.
//
// Errors: *Error of kind Setup.
func New(cfg Config) (*Compiler, error) {
	if len(cfg.Command) == 0 {
		return nil, setup(nil, "no command").fixed("name the program that compiles")
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
	f, err := openFolder(cfg.Folder, cfg.Keep)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(f.dir, workPrefix)
	if err != nil {
		return nil, setup(err, "make a folder in that of compiled modules")
	}
	defer func() { _ = os.RemoveAll(work) }() // tidy takes it otherwise
	c := &Compiler{cfg: cfg, folder: f, slots: make(chan struct{}, maxChildren)}
	if f.engine, c.sample, err = fingerprint(context.Background(), work); err != nil {
		return nil, setup(err, "ask the engine for its version")
	}
	f.tidy(time.Now())
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// enter begins what Close waits for.
func (c *Compiler) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.running.Add(1)
	return nil
}

// Close ends the children that run and waits for what was begun. Handles that
// Cache gave stay good. A second Close returns ErrClosed.
func (c *Compiler) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
	return nil
}

// Cache is a new handle of the cache. Close it once no runtime uses it.
//
// Errors: *Error of kind Setup.
func (c *Compiler) Cache() (wazero.CompilationCache, error) {
	cache, err := wazero.NewCompilationCacheWithDir(c.folder.dir)
	if err != nil {
		return nil, setup(err, "open the cache of compiled modules")
	}
	return cache, nil
}

// Exclusive runs f, which loads modules from the cache, while no other load of
// this process uses the cache, since the engine does not stand two at a time,
// and no process removes any of it. Where f made the engine compile a module,
// since what the child had compiled was not found, that is an error, whatever f
// returns: the module was to be kept from the compiler here.
//
// f is to call Compile first, however lately it was called before.
//
// Errors: f's; ErrClosed; *Error of the kinds Setup and Missed.
func (c *Compiler) Exclusive(f func() error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.running.Done()
	c.loading.Lock()
	defer c.loading.Unlock()
	release, err := c.folder.lock(unix.LOCK_SH)
	if err != nil {
		return err
	}
	before, err := c.folder.strays()
	if err == nil {
		err = c.watch(before, f)
	}
	release()
	c.folder.prune()
	return err
}

// watch runs f and looks whether the engine compiled meanwhile: it adds what it
// compiles to its cache. before are the entries that no child made.
func (c *Compiler) watch(before map[string]bool, f func() error) error {
	failed := f()
	after, err := c.folder.strays()
	var made []string
	for name := range after {
		if !before[name] {
			made = append(made, name)
		}
	}
	if len(made) == 0 && err == nil {
		return failed
	}
	if len(made) == 0 {
		return errors.Join(failed, err)
	}
	e := &Error{Kind: Missed, Operator: true, Reason: fmt.Sprintf("the engine did not find what the child had compiled, and compiled it in this process (%s)", strings.Join(made, ", "))}
	return errors.Join(e.fixed("name a command of the same build as this process"), failed, c.folder.drop(made))
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

// Compile sees to it that a module lies compiled in the cache, as it is metered,
// for a memory of so many pages of 64 KiB at most. The module as it was is
// validated first, in the child too: metering what is not valid may make something
// that is. It is sure to stay in the cache within Exclusive only. What lies there
// is compared with what the child left, and compiled again where it is damaged.
// ctx ends the child early.
//
// Preconditions: the module passed the preflight, and was metered.
// Errors: *Error; ctx's; ErrClosed.
func (c *Compiler) Compile(ctx context.Context, wasm, metered []byte, pages uint32) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.running.Done()
	was, is := sha256.Sum256(wasm), sha256.Sum256(metered)
	sum := sha256.Sum256(append(was[:], is[:]...))
	if c.folder.has(sum) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return c.ended(ctx)
	}
	defer func() { <-c.slots }()
	if ctx.Err() != nil {
		return c.ended(ctx)
	}
	if n := max(len(wasm), len(metered)); n > maxModule {
		e := &Error{Kind: Invalid, Reason: fmt.Sprintf("the metered module has %d bytes, at most %d are compiled", n, maxModule), Limit: maxModule}
		return e.fixed("make the module smaller")
	}
	work, err := os.MkdirTemp(c.folder.dir, workPrefix)
	if err != nil {
		return setup(err, "make a folder for the child")
	}
	defer func() { _ = os.RemoveAll(work) }() // what was of use is moved out
	reply, err := c.child(ctx, request{Pages: pages, Original: wasm, Metered: metered}, work)
	if err != nil {
		return err
	}
	switch {
	case reply.Version != c.folder.engine:
		return setup(nil, "the child compiles for %s, this process runs %s", reply.Version, c.folder.engine).fixed("name a command of the same build")
	case reply.Sample != c.sample:
		return setup(nil, "the child compiles with other features of the processor than this process has, or in another manner").fixed("name a command of the same build, and leave GODEBUG alone")
	}
	made, err := os.ReadDir(filepath.Join(work, c.folder.engine))
	if err != nil || len(made) != 1 || !isEntry(made[0].Name()) || !made[0].Type().IsRegular() {
		return &Error{Kind: Protocol, Reason: fmt.Sprintf("the child left %d files where it should have left one", len(made)), Operator: true, Err: err}
	}
	return c.folder.take(work, made[0].Name(), sum)
}

// ended is why a compilation was given up.
func (c *Compiler) ended(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return context.Cause(ctx)
}
