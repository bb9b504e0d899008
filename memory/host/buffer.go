package host

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/memory"
)

// buffer is one region of a pool or view.
type buffer struct {
	name  string
	size  int64
	bytes atomic.Pointer[[]byte] // nil after Close
}

func buffers(mem []byte, m Manifest) [][]*buffer {
	out := make([][]*buffer, len(m.Groups))
	for g, group := range m.Groups {
		for _, r := range group.Regions {
			b := &buffer{name: r.Name, size: r.Bytes}
			span := mem[r.Offset : r.Offset+r.Bytes : r.Offset+r.Bytes]
			b.bytes.Store(&span)
			out[g] = append(out[g], b)
		}
	}
	return out
}

func (b *buffer) Name() string      { return b.name }
func (b *buffer) Kind() memory.Kind { return memory.Host }
func (b *buffer) Size() int64       { return b.size }

func (b *buffer) Bytes() []byte {
	if p := b.bytes.Load(); p != nil {
		return *p
	}
	return nil
}

// Closed is the generation that every block of a closed pool shows: no grant
// was ever made under it, so late is an error here too.
const Closed = ^uint64(0)

// table is the generation words of one group, in shared memory.
type table struct {
	blocks   int
	writable bool
	words    atomic.Pointer[[]atomic.Uint64] // nil after Close
}

func tables(mem []byte, m Manifest, writable bool) []*table {
	var out []*table
	for _, group := range m.Groups {
		t := &table{blocks: group.Blocks, writable: writable}
		w := words(mem[group.Generations:], group.Blocks)
		t.words.Store(&w)
		out = append(out, t)
	}
	return out
}

func (t *table) Blocks() int { return t.blocks }

func (t *table) Load(block int) uint64 {
	if w := t.words.Load(); w != nil {
		return (*w)[block].Load()
	}
	return Closed
}

func (t *table) Bump(blocks []uint32) {
	w := t.words.Load()
	if w == nil {
		return
	}
	if !t.writable {
		panic("memory/host: bug: a view's generations were bumped; only their owner may")
	}
	for _, b := range blocks {
		(*w)[b].Add(1)
	}
}
