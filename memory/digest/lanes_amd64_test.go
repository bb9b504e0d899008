//go:build amd64 && !race && !msan && !asan && !purego

package digest

import "golang.org/x/sys/cpu"

// lanes are the sums of S by lanes that this processor has, by width.
func lanes() map[int]func(lo, hi, names []uint64, mid *state) uint64 {
	out := map[int]func(lo, hi, names []uint64, mid *state) uint64{}
	if cpu.X86.HasAVX2 {
		out[8] = sip8
	}
	if cpu.X86.HasAVX512F {
		out[16] = sip16
	}
	return out
}
