package host

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tetratelabs/wazero/experimental"
)

// memories gives the instances of a policy their linear memories, and keeps those
// that are given back for the next. They lie outside Go's heap, so that a
// collection neither scans nor counts them, and their pages are there before a
// guest touches them: what a page fault costs is not in a guest's fuel.
type memories struct {
	limit uint64 // bytes of a memory
	keep  int    // memories that are kept

	mu     sync.Mutex
	idle   [][]byte
	closed bool
}

// mapped is anonymous memory of n bytes without pages, or an error that says so.
func mapped(n uint64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return b, nil
}

// populate makes pages present.
func populate(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	switch err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err {
	case nil:
		return nil
	case unix.EINVAL: // a kernel before 5.14
		for at := 0; at < len(b); at += os.Getpagesize() {
			b[at] = 0
		}
		return nil
	default:
		return fmt.Errorf("make %d bytes present: %w", len(b), err)
	}
}

// take gets a memory of limit bytes, all zero.
func (s *memories) take() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		b := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return b, nil
	}
	return mapped(s.limit)
}

// clearable is how much of a memory is cleared by hand; where more was used, the
// pages go back to the kernel.
const clearable = 1 << 20

// give takes a memory back whose first used bytes may not be zero.
func (s *memories) give(b []byte, used uint64) {
	if used <= clearable {
		clear(b[:used])
	} else if unix.Madvise(b[:used], unix.MADV_DONTNEED) != nil {
		_ = unix.Munmap(b) // it cannot be cleared cheaply: there will be another
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.idle) >= s.keep {
		_ = unix.Munmap(b) // ours alone, and whole
		return
	}
	s.idle = append(s.idle, b)
}

// close unmaps what is idle; what is given back later is unmapped then.
func (s *memories) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, b := range s.idle {
		_ = unix.Munmap(b)
	}
	s.idle = nil
}

// linear is the memory of one instance: an experimental.LinearMemory, and where
// the engine gets it from.
type linear struct {
	store *memories
	whole []byte
	used  uint64
}

var _ experimental.LinearMemory = (*linear)(nil)

// Allocate hands out the memory that take got before, so that an instance that
// cannot have one is an error and no panic of the engine's.
func (l *linear) Allocate(_, _ uint64) experimental.LinearMemory { return l }

// Reallocate grows the memory; nil where it cannot.
func (l *linear) Reallocate(size uint64) []byte {
	if size > uint64(len(l.whole)) {
		return nil
	}
	if size > l.used {
		if populate(l.whole[l.used:pages(size)]) != nil {
			return nil
		}
		l.used = size
	}
	return l.whole[:size:size]
}

// pages rounds up to the kernel's pages. Guests' pages are multiples of them.
func pages(n uint64) uint64 {
	p := uint64(os.Getpagesize())
	return (n + p - 1) / p * p
}

// Free gives the memory back. The engine calls it once the instance is closed.
func (l *linear) Free() {
	if l.whole != nil {
		l.store.give(l.whole, l.used)
		l.whole = nil
	}
}

// piece is how much is copied at a time: copying cannot be interrupted, and a
// collection should not wait for it.
const piece = 1 << 20

// put copies src to the start of a memory.
func put(dst, src []byte) {
	for len(src) > 0 {
		n := copy(dst, src[:min(len(src), piece)])
		dst, src = dst[n:], src[n:]
	}
}

// wipe makes a memory zero, in pieces for the same reason.
func wipe(dst []byte) {
	for len(dst) > 0 {
		n := min(len(dst), piece)
		clear(dst[:n])
		dst = dst[n:]
	}
}
