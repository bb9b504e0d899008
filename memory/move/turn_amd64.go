//go:build amd64 && !race && !msan && !asan && !purego

package move

// turnVectors moves the rows and columns of a matrix (see matrix) by AVX2, in
// tiles of at least 16, 8 and 4 rows and 8, 8 and 4 columns of 1, 2 and 4 bytes.
//
// It cannot be preempted and is seen by no race detector, like copyVectors.
//
// Preconditions: vectors() is true; all of it lies inside the memories; rows and
// columns are multiples of those of a tile, and positive.
//
//go:noescape
func turnVectors(dst, src *byte, rows, columns, source, target, width int64)
