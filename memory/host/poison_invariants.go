//go:build invariants

package host

// Poison is what given-back bytes are overwritten with.
const Poison = 0xdb

func poison(p *Pool, group int, blocks []uint32) {
	g := p.spec.Groups[group]
	if g.Spans == nil {
		return
	}
	for _, id := range blocks {
		g.Spans(id, func(region int, offset, bytes int64) bool {
			b := p.buffers[group][region].Bytes()[offset : offset+bytes]
			for i := range b {
				b[i] = Poison
			}
			return true
		})
	}
}
