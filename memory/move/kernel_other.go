//go:build !amd64 || race || msan || asan || purego

package move

// vectors says that there is no faster way than Go's copy here.
func vectors() (how method, ok bool) { return 0, false }

// copyVectors leaves every piece to the general copy.
func copyVectors(dst, src []byte, list []piece, how method) (done int) { return 0 }
