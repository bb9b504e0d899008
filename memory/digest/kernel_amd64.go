//go:build amd64 && !race && !msan && !asan && !purego

package digest

import "golang.org/x/sys/cpu"

// Vectors reports whether rows are hashed by instructions of the machine's own,
// for reports and for what may be expected of a machine.
func Vectors() bool { return cpu.X86.HasAVX2 }

// nhList puts NH of rows of the list, in order, into lo and hi: up to one that
// does not lie inside region, which is left to nh, as are all where a row is
// not whole pairs of words. It returns how many it did. While it reads a row
// it fetches the row that stands ahead in the list by so many.
//
// It cannot be preempted: the caller bounds the list. It cannot be seen by a
// race detector or a sanitizer: those builds do without.
// Preconditions: bytes is 16 to segmentBytes and a multiple of 16; ahead >= 0;
// lo and hi are as long as offs.
//
//go:noescape
func nhList(region []byte, offs []int64, ahead, bytes int64, key *nhKey, lo, hi []uint64) (done int)

// sipLanes is the sum of S over the first rows of the list, as many as it
// says.
func sipLanes(lo, hi, names []uint64, mid *state) (sum uint64, done int) {
	switch {
	// The 64-byte registers are used from the generation on that does not
	// lower its clock for them, which is told by an instruction set that came
	// with it.
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512VBMI2:
		done = len(lo) &^ 15
		return sip16(lo[:done], hi[:done], names[:done], mid), done
	case cpu.X86.HasAVX2:
		done = len(lo) &^ 7
		return sip8(lo[:done], hi[:done], names[:done], mid), done
	}
	return 0, 0
}

// sip16 is the sum of S over rows, 16 at a time. It needs AVX-512 F.
// Preconditions: the slices are equally long, a multiple of 16.
//
//go:noescape
func sip16(lo, hi, names []uint64, mid *state) (sum uint64)

// sip8 is sip16 with AVX2, 8 at a time.
//
//go:noescape
func sip8(lo, hi, names []uint64, mid *state) (sum uint64)

// fetchLines begins to load the lines of the bytes that begin at each chunk
// above at. It never faults.
//
//go:noescape
func fetchLines(region []byte, at int64, chunks []int64, bytes int64)

// vectors2 is transpose2 of the first m rows of the first n chunks.
func vectors2(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (n int, m int64) {
	if m = rows &^ 7; m == 0 || len(chunks) < 8 || !cpu.X86.HasAVX {
		return 0, 0
	}
	_ = dst[(m-1)*packed+int64(2*len(chunks))-1]
	return words8(dst, packed, src, chunks, m), m
}

// words8 is transpose2 of whole eights of chunks and rows, up to eight chunks
// of which one does not lie inside src; it returns how many it did.
// Preconditions: rows is a multiple of 8 above 0, and the rows lie inside dst.
//
//go:noescape
func words8(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (done int)

// vectors1 is transpose1 of the first m rows of the first n chunks.
func vectors1(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (n int, m int64) {
	if m = rows &^ 15; m == 0 || len(chunks) < 8 || !cpu.X86.HasAVX {
		return 0, 0
	}
	_ = dst[(m-1)*packed+int64(len(chunks))-1]
	return bytes8(dst, packed, src, chunks, m), m
}

// bytes8 is words8 with transpose1 and a multiple of 16 rows.
//
//go:noescape
func bytes8(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (done int)
