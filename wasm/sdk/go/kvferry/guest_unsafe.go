//go:build wasip1

package kvferry

import "unsafe"

// arena keeps what kvferry_arena gave away from the collector.
var arena []uint64

//go:wasmexport kvferry_arena
func takeArena(size uint32) uint32 {
	deepen()
	arena = make([]uint64, (uint64(size)+7)/8+1)
	settle()
	return uint32(uintptr(unsafe.Pointer(&arena[0])))
}

// deepen makes the stack grow now. A stack that grew in a call would lie
// elsewhere afterwards, which the host cannot put back: it would have to throw the
// instance away.
//
//go:noinline
func deepen() byte {
	var room [64 << 10]byte
	return room[len(arena)&0xff]
}

// stretch is n bytes of the guest's memory. The host checks that they lie in
// the arena.
func stretch(at, n uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&arena[0]), uintptr(at)-uintptr(unsafe.Pointer(&arena[0])))), n)
}

// Call runs a hook: it opens the question, begins the answer, lets decide fill
// it in, and returns what the hook returns.
func Call[Q message, R message](in, inLen, out, outCap uint32, decide func(Q, *Answer, R) Status) uint64 {
	q, ok := Open[Q](stretch(in, inLen))
	if !ok {
		return uint64(StatusBadInput) << 32
	}
	a, r := Begin[R](stretch(out, outCap))
	result := a.End(decide(q, a, r))
	settle()
	return result
}

// settle is the last function value that an export calls, so that the global
// which holds the last one called is the same after each of them: the host cannot
// put globals back.
var settle = func() {}

//go:wasmimport kvferry_v1 log
func hostLog(level, at, length uint32)

// Log writes a line for the operator; the host cuts it and drops what is too
// much. A policy that never calls it does not import the host's function.
func Log(level uint32, text string) {
	if len(text) > 0 {
		hostLog(level, uint32(uintptr(unsafe.Pointer(unsafe.StringData(text)))), uint32(len(text)))
	}
}
