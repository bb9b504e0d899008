package digest

// Count is SumSampled and the number of rows that were chosen.
func (h *Hasher) Count(r *Rows, every int) (sum uint64, rows int64, err error) {
	return h.sum(r, int64(every))
}
