package agent

import "testing"

// Lengths that differ by less than an eighth are mostly one question, and what is
// cached of a request is never more than it has.
func TestRounded(t *testing.T) {
	seen := map[int]bool{}
	last := 0
	for n := range int64(1 << 16) {
		got := rounded(n)
		if got > int(n) || int64(got)*9/8 < n-1 || got < last || rounded(int64(got)) != got {
			t.Fatalf("%d is rounded to %d", n, got)
		}
		last = got
		seen[got] = true
	}
	if len(seen) > 16+8*12 {
		t.Errorf("%d lengths", len(seen))
	}
	if got := rounded(1<<32 - 1); got != 15<<28 {
		t.Errorf("the longest request is rounded to %d", got)
	}
}
