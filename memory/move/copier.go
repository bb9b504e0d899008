package move

import (
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// Copier moves segment after segment between the same two memories. It
// remembers what the last segment's run looks like (the segments of a run
// differ by their offsets only) and collects short pieces over segments into a
// list, which one tight loop then copies: between short pieces every other
// instruction takes the place of a load that the processor could have under
// way. The zero value is ready after Use. Not for concurrent use.
type Copier struct {
	dst, src []byte

	run                 *plan.Run // last prepared; nil: none
	sourceLow, sourceTo int64     // what a segment's offset must be within
	low, to             int64
	way                 way
	outer, inner        plan.Loop
	square              matrix // where turned
	turned              bool
	total               int64

	at Position // of a segment that is moved in steps

	moved int64 // bytes since Reset

	n     int   // pieces in list
	bytes int64 // of them
	list  [listLength]piece
}

// piece is one contiguous copy.
type piece struct{ d, o, n int64 }

// listLength keeps the list small beside the first-level cache.
const listLength = 256

// way is how the segments of a run are moved.
type way uint8

const (
	inSteps way = iota // step by step
	whole              // at most two loops of tiny pieces, by the kernel at once
	listed             // into the list
)

// Pieces of shortPiece bytes and more are listed: shorter ones are moved by
// loads and stores, for which a list costs more than it gives.
const shortPiece = 64

// streamFrom is after how many bytes the following ones are stored past the
// cache. What a short transfer has moved is likely to be read soon, and stays
// at hand; a long one would push its own first bytes out, along with
// everybody else's, and pay for reading each line that it overwrites.
const streamFrom = 4 << 20

// Use sets the memories that the following segments are moved between. What
// is in the list must have been flushed; a segment begun in steps is
// forgotten.
func (c *Copier) Use(dst, src []byte) {
	c.dst, c.src = dst, src
	c.forget()
}

// Reset begins a transfer: it forgets the list, the segment that a part was
// moved of, and how much was moved.
func (c *Copier) Reset() {
	c.forget()
	c.moved = 0
}

func (c *Copier) forget() { c.run, c.at, c.n, c.bytes = nil, Position{}, 0, 0 }

// how says whether what is copied next goes past the cache.
func (c *Copier) how() method {
	if c.moved >= streamFrom {
		return streamed
	}
	return 0
}

// Add moves the next part of s, at most MaxBytes and MaxPieces: the first one
// of a segment not seen before, which it checks, else the one after that
// before. Some of it may be in the list until Flush. It returns the bytes
// taken and whether that was the last part; the caller calls it with the same
// s until then.
//
// Errors: *BoundsError, before a byte of s is moved.
// Preconditions: between Resets, no destination piece overlaps another or a
// source piece.
func (c *Copier) Add(s *stamp.Segment) (n int64, done bool, err error) {
	if c.at != (Position{}) {
		return c.next(s)
	}
	if s.Run != c.run || s.Blocks > 1 {
		if err := c.prepare(s); err != nil {
			return 0, false, err
		}
	}
	d, o := s.DestinationOffset, s.SourceOffset
	if o < c.sourceLow || o > c.sourceTo || d < c.low || d > c.to {
		return 0, false, Check(s, int64(len(c.src)), int64(len(c.dst)))
	}
	if c.way == listed {
		if c.bytes+c.total > MaxBytes {
			c.Flush()
		}
		width := width(s)
		for range c.outer.Count {
			a, b := d, o
			for range c.inner.Count {
				if c.n == listLength {
					c.Flush()
				}
				c.list[c.n] = piece{a, b, width}
				c.n++
				a += c.inner.DestinationStride
				b += c.inner.SourceStride
			}
			d += c.outer.DestinationStride
			o += c.outer.SourceStride
		}
		c.bytes += c.total
		c.moved += c.total
		return c.total, true, nil
	}
	if c.way == whole {
		c.wholly(s)
		c.moved += c.total
		return c.total, true, nil
	}
	return c.next(s)
}

// Flush copies what is in the list. Like step, it is a framed wrapper around
// at most MaxBytes and MaxPieces.
//
//go:noinline
func (c *Copier) Flush() {
	copyList(c.dst, c.src, c.list[:c.n], c.how())
	c.n, c.bytes = 0, 0
}

// wholly is a framed wrapper, like step.
//
//go:noinline
func (c *Copier) wholly(s *stamp.Segment) {
	d, o := s.DestinationOffset, s.SourceOffset
	if c.turned {
		turn(c.dst, c.src, d, o, c.square)
		return
	}
	for range c.outer.Count {
		kernel(c.dst, c.src, d, o, s.Run.Bytes, c.inner.Count, c.inner.DestinationStride, c.inner.SourceStride, c.how())
		d += c.outer.DestinationStride
		o += c.outer.SourceStride
	}
}

func (c *Copier) next(s *stamp.Segment) (int64, bool, error) {
	n, done := step(c.dst, c.src, s, &c.at, MaxBytes, strided, c.how())
	c.moved += n
	if done {
		c.at = Position{}
	}
	return n, done, nil
}

// prepare learns a new run, with the checks of Check.
func (c *Copier) prepare(s *stamp.Segment) error {
	c.run = nil
	sourceSize, size := int64(len(c.src)), int64(len(c.dst))
	if err := Check(s, sourceSize, size); err != nil {
		return err
	}
	n := width(s)
	loops := s.Run.Loops
	sourceLow, sourceHigh, err := reach(loops, sourceSize, true)
	if err != nil {
		return err
	}
	low, high, err := reach(loops, size, false)
	if err != nil {
		return err
	}
	c.sourceLow, c.sourceTo = sourceLow, sourceSize-sourceHigh-n
	c.low, c.to = low, size-high-n
	c.outer, c.inner, c.way = plan.Loop{Count: 1}, plan.Loop{Count: 1}, inSteps
	switch len(loops) {
	case 0:
	case 1:
		c.inner = loops[0]
	case 2:
		c.outer, c.inner = loops[0], loops[1]
	}
	c.square, c.turned = matrixOf(n, c.outer, c.inner)
	most := int64(MaxPieces)
	if c.turned {
		most *= tilePieces
	}
	if len(loops) <= 2 && n <= MaxBytes && c.inner.Count <= most && c.outer.Count <= most && c.inner.Count*c.outer.Count <= min(most, MaxBytes/n) {
		c.total = n * c.inner.Count * c.outer.Count
		switch {
		case n >= shortPiece:
			c.way = listed
		case s.Blocks <= 1:
			c.way = whole
		}
	}
	if s.Blocks <= 1 { // a joined segment's width is its own, not its run's
		c.run = s.Run
	}
	return nil
}
