// Package digest sums what a cache holds: a keyed 64-bit digest of logical
// rows that does not depend on where they lie. Two ranks with other layouts,
// block sizes, block tables or orders have equal digests of a set of rows if
// the rows hold the same bytes.
//
// It reads plain memory and knows no buffer: a caller whose memory can be
// taken away wraps a sum in move.Guard. It keeps no key and asks nobody: both
// ends are given the same one.
//
// # What is summed
//
// A row is the Dim elements of one (entry, head) of a component of a layer, in
// the order of dim, as they lie in memory (two to a byte, the first in the low
// half, where an element has four bits). It is cut into segments of 2,048
// bytes, of which the last may be shorter. The digest of a set of rows is,
// modulo 2^64,
//
//	the sum over rows and segments of S(coordinate, N(bytes of the segment))
//
// where S is SipHash-1-3 of 39 bytes, all numbers little-endian:
//
//	 0  uint16  group: its index in the pair
//	 2  uint16  component: its index in the group
//	 4  uint32  layer: its number in the model
//	 8  uint32  segment: its index in the row
//	12  uint32  length of the segment in bytes
//	16  128 bit N
//	32  40 bit  entry: its number in the request
//	37  uint16  head: its number in the model
//
// and N is NH with words of 64 bits: with the bytes, padded with zeros to a
// multiple of 16, as words m[0], m[1], ...
//
//	N = sum of (m[2i] + k[2i] mod 2^64) * (m[2i+1] + k[2i+1] mod 2^64), modulo 2^128
//
// The first 16 bytes of the Key are the key of S. The others are an AES-128
// key, and k[0] to k[255] are its key stream in counter mode, from a counter of
// zeros on.
//
// Digests are added: that of a set is the sum, modulo 2^64, of those of the
// parts it is divided into. So the boxes of several sources make up that of a
// destination, and two ends that differ ask each other for ever smaller parts
// until they can name what is wrong.
//
// # What goes unnoticed
//
// Let two ends hold sets of rows that differ in a way that does not depend on
// the key. Their digests are equal with a probability of at most 2^-63 over the
// choice of the key, as far as SipHash-1-3 and AES-128 cannot be told from
// random functions.
//
// For take a segment that differs, or that one end only has. Where both have
// one, of the same length, NH of the two is equal for at most 2^-64 of all keys
// (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC: Fast and Secure Message
// Authentication, CRYPTO 1999, section 4: 2^-w for words of w bits). Where it
// is not, S is asked at a point that stands in one of the two sums and not in
// the other, since a coordinate is summed once; there a random function has a
// value that is independent of all the other summands, and the two sums are
// equal for one such value of 2^64. A fault that touches several digests goes
// unnoticed only where it does in every one.
//
// Adding NH itself up would not do. Rows that changed places, a token in
// another's place, a head taken for its neighbour: these are the faults that
// moving a cache can have, and each leaves such a sum as it is. NH keys that
// depend on the coordinate would have to be as long as the cache. S binds the
// row to its coordinate, and costs about as much as NH of 100 bytes.
//
// The digest finds faults of machines and of programs. It is no signature: both
// ends have the key, and whoever has it can make rows of any digest.
//
// # Sampling
//
// SumSampled sums one row of so many. For each head, the entries of a request
// are divided into windows of that many, and of each window one entry is
// chosen:
//
//	window * every + floor(every * S(group, component, layer, 2^32-1, every, window, head) / 2^64)
//
// where S is of 23 bytes: those of above without N, with 2^32-1 for the
// segment, every for its length and the window for the entry. So the choice
// depends on coordinates alone, both ends make the same one, and it costs one S
// a window: rows that are not chosen are neither read nor looked at.
//
// A damaged row is among the chosen with probability 1/every. Of d damaged rows
// of one window, one is with probability d/every: a window that is damaged
// throughout is always found. Windows choose independently, so that m damaged
// rows are all missed with a probability of at most (1-1/every)^m, whichever
// they are. For one row in 64: one damaged row is found with probability 0.016;
// a block of 16 tokens that is wrong in 8 heads of k and of v of one layer with
// 1 - (48/64)^16 = 0.99 (where a block lies in one window); one of a whole model
// of 80 layers for certain, but for 10^-160. Rows of states, whose one entry is
// 0, are chosen or not each by itself.
package digest

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/kv/layout"
)

// Key is what a digest depends on beside the rows. It is drawn from crypto/rand
// by one end, for one session, and told the other; digests under different keys
// cannot be compared.
type Key [32]byte

// MaxEntry bounds canonical entries.
const MaxEntry = int64(1) << 40

// Head is a head (channel, of a state) by its place on the rank and by its
// number in the model.
type Head struct{ Place, Number int }

// Span is entries at equal distances in one block: Count of them, the first at
// Place in the block and Entry in the request, the following ones Step places
// and EntryStep entries further on. A place is an entry's in its block: with
// one token an entry, the token in the block. Where Count is 1 the steps mean
// nothing.
type Span struct {
	Block              uint32
	Place, Step, Count int64
	Entry, EntryStep   int64
}

// Name is what rows are called on both ends.
type Name struct {
	Group     int // index in the pair
	Component int // index in the pair's group
	Layer     int // number in the model
}

// Rows are rows of one component of one layer on one rank: all those of Heads
// and Spans.
type Rows struct {
	Layout    *layout.Layout
	Regions   [][]byte // by index of Layout.Regions; those that hold no row may be nil
	Component int      // index in Layout.Extent.Components
	Layer     int      // index in Layout.Extent.Layers
	Name      Name
	Heads     []Head // of a component without heads: {0, 0}, or nil
	Spans     []Span
}

// Error is a set of rows that cannot be.
type Error struct {
	Field  string
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("digest: %s is %v: %s", e.Field, e.Value, e.Reason)
}

func bad(field string, value any, why string, args ...any) error {
	return &Error{Field: field, Value: value, Reason: fmt.Sprintf(why, args...)}
}

// Hasher makes digests under one key. It is immutable and safe for concurrent
// use.
type Hasher struct {
	start state // of SipHash
	key   nhKey
	pool  sync.Pool // of *summer
}

// New makes a hasher.
func New(key Key) *Hasher {
	h := &Hasher{start: begin(binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:]))}
	block, err := aes.NewCipher(key[16:])
	if err != nil {
		panic(fmt.Sprintf("digest: AES-128 with a key of 16 bytes: %v", err))
	}
	var stream [segmentBytes]byte
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(stream[:], stream[:])
	for i := range h.key {
		h.key[i] = binary.LittleEndian.Uint64(stream[8*i:])
	}
	return h
}

// Sum returns the digest of the rows.
//
// Errors: *Error where the layout or the memory does not have them.
// Preconditions: the layout is valid; no (head, entry) is given twice; nobody
// writes to the rows meanwhile.
func (h *Hasher) Sum(r *Rows) (uint64, error) {
	sum, _, err := h.sum(r, 1)
	return sum, err
}

// SumSampled returns the digest of the rows that are chosen where one of every
// so many is (see the package's comment). With every 1 it is Sum.
//
// Errors and preconditions are those of Sum; every is 1 to 2^20.
func (h *Hasher) SumSampled(r *Rows, every int) (uint64, error) {
	if every < 1 || every > 1<<20 {
		return 0, bad("every", every, "want 1 to %d", 1<<20)
	}
	sum, _, err := h.sum(r, int64(every))
	return sum, err
}

// sum returns the digest and the number of rows that it is of.
func (h *Hasher) sum(r *Rows, every int64) (sum uint64, rows int64, err error) {
	s, _ := h.pool.Get().(*summer)
	if s == nil {
		s = &summer{}
	}
	s.key, s.start = &h.key, h.start
	if err := s.prepare(r); err != nil {
		return 0, 0, err
	}
	if every == 1 {
		s.all(r.Spans)
	} else {
		s.sampled(r.Spans, every)
	}
	s.flush()
	sum, rows = s.sum, s.rows
	s.region = nil
	h.pool.Put(s) // a fault, which panics, leaves it to the collector
	return sum, rows, nil
}
