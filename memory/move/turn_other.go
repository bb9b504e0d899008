//go:build !amd64 || race || msan || asan || purego

package move

// turnVectors is not called where vectors() is false.
func turnVectors(dst, src *byte, rows, columns, source, target, width int64) {
	panic("memory/move: no vectors here")
}
