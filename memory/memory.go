// Package memory is what the runtime owns: buffers, their generations, and
// what each buffer can do. Buffers come from memory/host (memfd), later from
// memory/process and memory/cuda; memory/move copies between them.
//
// Ownership words are fixed: a Buffer is Opened and Closed, a Lease is taken
// and Released, a descriptor is Exported and Imported.
package memory

import "errors"

// Kind is where a buffer's bytes live.
type Kind uint8

// The kinds of memory.
const (
	Host Kind = 1
	CUDA Kind = 2
)

// String is the kind's name in reports.
func (k Kind) String() string {
	switch k {
	case Host:
		return "host"
	case CUDA:
		return "cuda"
	}
	return "unknown"
}

// ErrClosed is returned by every use of a buffer after Close, and by a second
// Close.
var ErrClosed = errors.New("memory: buffer is closed")

// Buffer is one span of memory of one rank: the bytes of one layout region.
// Implementations are safe for concurrent use; the bytes are the engine's and
// the provider's to order.
type Buffer interface {
	Name() string // the layout region it holds
	Kind() Kind
	Size() int64
	// Bytes is the memory itself, or nil where the CPU cannot address it. The
	// slice is valid until Close.
	Bytes() []byte
}

// Generations is the generation word of every block of one pool. The owner
// bumps a block's generation before it gives the block back to its engine, so
// a reader that saw one value before a copy and the same after it has read
// what it was offered.
type Generations interface {
	Blocks() int
	// Load returns the generation of a block (atomic, acquire).
	// Preconditions: 0 <= block < Blocks.
	Load(block int) uint64
	// Bump adds one to each block's generation (atomic, release).
	Bump(blocks []uint32)
}

// Rank is the memory of one rank of an engine, as providers register it: one
// buffer for each region of each group's layout, and one generation table a
// group.
type Rank struct {
	Engine      string
	Rank        int
	Buffers     [][]Buffer    // [group][region], in the order of Layout.Regions
	Generations []Generations // [group]
	// Export, where not nil, gives the descriptors that another process on the
	// host needs to map this memory; see memory/host.
	Export any
}
