package move_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// A file that shrinks under its mapping (SIGBUS) and a page that may not be
// read or written (SIGSEGV) are errors, not the end of the process.
func TestFaultIsAnError(t *testing.T) {
	const size = 1 << 16
	fd, err := unix.MemfdCreate("shrinks", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal("no memfd:", err)
	}
	f := os.NewFile(uintptr(fd), "shrinks")
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	heap := make([]byte, size)
	s := stamp.Segment{Run: &plan.Run{Bytes: size}}
	guarded := func(dst, src []byte) error {
		return move.Guard(func() error { return move.Copy(dst, src, &s) })
	}
	if err := guarded(heap, mapped); err != nil {
		t.Fatalf("copy of sound memory: %v", err)
	}
	var fault *move.FaultError
	if err := guarded(mapped, heap); !errors.As(err, &fault) || !errors.Is(err, move.ErrFault) {
		t.Errorf("write to read-only memory: %v, want a *FaultError", err)
	}
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	if err := guarded(heap, mapped); !errors.As(err, &fault) {
		t.Errorf("read of memory that is gone: %v, want a *FaultError", err)
	}
}
