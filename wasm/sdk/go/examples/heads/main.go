//go:build wasip1

// Command heads is the built-in policy heads in Go: the same answers, to the
// byte. policies/heads says what they are.
package main

import "github.com/kvferry/kvferry/wasm/sdk/go/kvferry"

//go:wasmexport kvferry_remap
func remap(in, inLen, out, outCap uint32) uint64 {
	return kvferry.Call(in, inLen, out, outCap, matchHeads)
}

//go:wasmexport kvferry_select_layout
func selectLayout(in, inLen, out, outCap uint32) uint64 {
	return kvferry.Call(in, inLen, out, outCap, chooseLayout)
}

func main() {}

// Bounds on what the policy looks at.
const (
	maxAssignments = 1 << 16
	maxTable       = 1 << 20
	maxWork        = 1 << 26
	maxClasses     = 64
)

// work counts ranks, parts, ranges, replicas and costs looked at so far. The
// host puts it back to 0 before each call.
var work uint64
