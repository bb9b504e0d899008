//go:build !race

package proof_test

// raceEnabled says that the race detector slows everything down.
const raceEnabled = false
