//go:build !amd64 || race || msan || asan || purego

package digest

// Vectors says that Go is all there is here.
func Vectors() bool { return false }

// nhList leaves every row to nh.
func nhList(region []byte, offs []int64, ahead, bytes int64, key *nhKey, lo, hi []uint64) (done int) {
	return 0
}

// sipLanes leaves every row to state.
func sipLanes(lo, hi, names []uint64, mid *state) (sum uint64, done int) { return 0, 0 }

// fetchLines leaves it to the processor.
func fetchLines(region []byte, at int64, chunks []int64, bytes int64) {}

// vectors2 leaves every row to squares2.
func vectors2(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (n int, m int64) {
	return 0, 0
}

// vectors1 leaves every row to squares1.
func vectors1(dst []byte, packed int64, src []byte, chunks []int64, rows int64) (n int, m int64) {
	return 0, 0
}
