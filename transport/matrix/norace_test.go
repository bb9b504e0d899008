//go:build !race

package matrix_test

// raceEnabled says that the race detector slows everything down.
const raceEnabled = false
