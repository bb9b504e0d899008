package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

// Options bound what a recorder keeps. Zero fields take the defaults named.
type Options struct {
	Bytes   int64 // of the file, at most MaxBytes; 16 MiB
	Entries int   // 4096
}

// Recorder keeps questions and answers in memory, each once, and writes them to
// a file, if it has one. When there is no room for more, later questions are counted and left
// out: what is kept is how it began. Safe for concurrent use.
//
// Lock order: writing, mu. Calls of policies take mu only, which is never held
// over a write.
type Recorder struct {
	name string // of the file; empty: there is none
	opt  Options

	writing sync.Mutex

	mu     sync.Mutex
	index  map[[sha256.Size]byte]int // of entries, by policy, hook and question
	j      Journal
	bytes  int64
	dirty  bool
	closed bool
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("journal: the recorder is closed")

// Create makes a recorder, and its file, empty. A file of the name that is a
// journal is replaced; one that is anything else is refused.
//
// Errors: *Error; those of reading and writing a file.
func Create(name string, opt Options) (*Recorder, error) {
	if _, err := Read(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("refuse to replace what is no journal: %w", err)
	}
	r := Keep(opt)
	r.name, r.dirty = name, true
	if err := r.Flush(); err != nil {
		return nil, err
	}
	return r, nil
}

// Keep makes a recorder without a file: what it keeps is had from Journal.
func Keep(opt Options) *Recorder {
	if opt.Bytes <= 0 {
		opt.Bytes = 16 << 20
	}
	opt.Bytes = min(opt.Bytes, MaxBytes)
	if opt.Entries <= 0 {
		opt.Entries = 4096
	}
	return &Recorder{opt: opt, index: map[[sha256.Size]byte]int{}, bytes: headBytes + sumBytes}
}

// Observe keeps a call: the Observe of a policy's options. It copies what it
// keeps, writes nothing and takes no longer than hashing the question does.
func (r *Recorder) Observe(c host.Call) {
	if _, ok := hookNumber(c.Hook); !ok || len(c.In) > abi.MaxMessage || len(c.Out) > abi.MaxMessage {
		return
	}
	e := Entry{Policy: c.Policy, Hook: c.Hook, Question: c.In, Answer: c.Out, Status: c.Status, Times: 1, Fuel: c.Fuel, Duration: max(c.Duration, 0)}
	key := e.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.dirty = true
	if i, ok := r.index[key]; ok {
		r.j.Entries[i].Times++
		return
	}
	var refused *host.Refused // an answer like any other
	if c.Err != nil && !errors.As(c.Err, &refused) {
		e.Error = clip(c.Err.Error())
	}
	if len(r.j.Entries) >= r.opt.Entries || r.bytes+e.size() > r.opt.Bytes {
		r.j.Dropped++
		return
	}
	e.Question, e.Answer = bytes.Clone(c.In), bytes.Clone(c.Out)
	r.index[key] = len(r.j.Entries)
	r.j.Entries = append(r.j.Entries, e)
	r.bytes += e.size()
}

// clip cuts a text to what an entry may hold.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError-3], "") + "..."
	}
	return s
}

// Journal is what is kept so far. The messages are shared and must not be
// modified.
func (r *Recorder) Journal() *Journal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Journal{Entries: slices.Clone(r.j.Entries), Dropped: r.j.Dropped}
}

// Flush writes the file, if there is anything new.
//
// Errors: those of writing a file; ErrClosed.
func (r *Recorder) Flush() error { return r.flush(false) }

// Close writes the file and ends the recorder: later calls are not kept. A
// second Close returns ErrClosed.
func (r *Recorder) Close() error { return r.flush(true) }

func (r *Recorder) flush(last bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.closed = last
	j, dirty := Journal{Entries: slices.Clone(r.j.Entries), Dropped: r.j.Dropped}, r.dirty
	r.dirty = false
	r.mu.Unlock()
	if !dirty || r.name == "" {
		return nil
	}
	if err := Write(r.name, &j); err != nil {
		r.mu.Lock()
		r.dirty = true // the next Flush tries again
		r.mu.Unlock()
		return err
	}
	return nil
}
