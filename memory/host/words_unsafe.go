package host

import (
	"sync/atomic"
	"unsafe"
)

// words views the first n*8 bytes of page-aligned shared memory as atomic
// words: atomic.Uint64 is one naturally aligned machine word, and atomic
// operations on it are atomic between processes as between threads.
func words(b []byte, n int) []atomic.Uint64 {
	_ = b[:n*8]
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// address is where b lies, to find it again in /proc/self/smaps.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
