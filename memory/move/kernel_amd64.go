//go:build amd64 && !race && !msan && !asan && !purego

package move

import "golang.org/x/sys/cpu"

// vectors is how copyVectors works on this processor, and whether it can: it
// needs AVX2. The 64-byte registers are used from the generation on that does
// not lower its clock for them, which is told by an instruction set that came
// with it.
func vectors() (how method, ok bool) {
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VBMI2 {
		how = wide
	}
	return how, cpu.X86.HasAVX2
}

// copyVectors copies the pieces of the list, in order, up to one that it leaves
// to the general copy: one that does not lie inside dst and src, or that is
// long and not streamed. It returns how many it copied. Under streamed, bytes
// of pieces of at least 256 whose destination is aligned to 64 are stored past
// the cache, and are in their place when it returns.
//
// It cannot be preempted: the caller bounds the list. It cannot be seen by a
// race detector or a sanitizer: those builds do without.
//
//go:noescape
func copyVectors(dst, src []byte, list []piece, how method) (done int)
