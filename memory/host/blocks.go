package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// ErrNoBlocks is returned by Alloc where fewer blocks are free than asked
// for.
var ErrNoBlocks = errors.New("memory/host: not enough free blocks")

// Blocks hands out the block ids of one group in random order, as a pool that
// has served for a while does. It knows no bytes: bump and poison with
// Pool.Release before Release here. Safe for concurrent use.
type Blocks struct {
	mu    sync.Mutex
	rng   *rand.Rand
	free  []uint32
	taken []bool
}

// NewBlocks makes an allocator of ids 0 to n-1. Equal seeds give equal ids.
// Preconditions: 1 <= n <= MaxBlocks.
func NewBlocks(n int, seed uint64) *Blocks {
	b := &Blocks{rng: rand.New(rand.NewPCG(seed, 0x6b76)), free: make([]uint32, n), taken: make([]bool, n)}
	for i := range b.free {
		b.free[i] = uint32(i)
	}
	return b
}

// Alloc takes n blocks, or none and ErrNoBlocks.
func (b *Blocks) Alloc(n int) ([]uint32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 || n > len(b.free) {
		return nil, fmt.Errorf("take %d of %d: %w", n, len(b.free), ErrNoBlocks)
	}
	out := make([]uint32, n)
	for i := range out {
		last := len(b.free) - 1
		k := b.rng.IntN(last + 1)
		out[i] = b.free[k]
		b.free[k] = b.free[last]
		b.free = b.free[:last]
		b.taken[out[i]] = true
	}
	return out, nil
}

// Release gives blocks back. A block that is not taken, or given twice, is an
// *Error naming it, and then none of them is given back.
func (b *Blocks) Release(ids []uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, id := range ids {
		if int(id) >= len(b.taken) || !b.taken[id] {
			for _, done := range ids[:i] {
				b.taken[done] = true
			}
			return &Error{"release", "local", "block", id, "it is not taken", nil}
		}
		b.taken[id] = false
	}
	b.free = append(b.free, ids...)
	return nil
}

// Free is the number of free blocks.
func (b *Blocks) Free() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.free)
}
