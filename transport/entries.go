package transport

import "github.com/kvferry/kvferry/plan"

// Entries returns the table entries [lo, hi) of a group in which tokens
// [from, to) lie on a side, on any of its ranks: those whose generations an
// operation on these tokens checks.
// Preconditions: the side is valid, 0 <= from <= to.
func Entries(side *plan.Side, group int, from, to int64) (lo, hi int64) {
	if from >= to {
		return 0, 0
	}
	c, i, block := int64(side.Shard.DCPSize), int64(side.Shard.Interleave), int64(side.Groups[group].Block)
	// Token t lies at local place t/(i*c)*i + t%i on the rank with phase t/i%c.
	// The lowest place is that of the first token, or of the next phase's
	// first token in the same round; the highest that of the last token, or of
	// the previous phase's last one in the same round.
	first, last := from, to-1
	low, high := first/(i*c)*i+first%i, last/(i*c)*i+last%i
	if next := (first/i + 1) * i; next < to && next%(i*c) != 0 {
		low = first / (i * c) * i
	}
	if last%(i*c) >= i && last/i*i-1 >= from {
		high = last/(i*c)*i + i - 1
	}
	return low / block, high/block + 1
}
