// Package move is the copy seam: every byte that this runtime copies between
// buffers, or between a buffer and a wire, is copied here.
//
// A stamped segment keeps its strides down to this package, which expands it
// on the fly, at most MaxBytes bytes and MaxPieces contiguous pieces at a
// time. That bound is what keeps the garbage collector's stop-the-world pauses
// short: a goroutine inside a memory copy cannot be preempted, and a tight
// loop of large copies stops every other goroutine for up to seconds. Each
// bounded part runs in a function of its own with a real stack frame, whose
// prologue lets the collector in (see step).
//
// Lists of pieces are copied by vector instructions where the processor has
// them, and from some bytes of a transfer on past the cache; by Go's copy
// elsewhere, and under the race detector, which sees no assembly.
//
// Nothing here allocates. A segment is checked against both memories (Check)
// before any of it moves; memory that turns out to be gone (a mapping whose
// file shrank, a page that cannot be read) is an error inside Guard.
package move

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// The bounds of one uninterrupted part of a copy. Elements that are turned in
// tiles (see matrix) take the time of one piece each tilePieces.
const (
	MaxBytes   = 1 << 20
	MaxPieces  = 1 << 12
	tilePieces = 64
)

// BoundsError is a segment that does not lie inside the memory it was stamped
// for, or that no copy can have (a count below 1, an overflow). The plan was
// proved, so the fault is local: other memory was registered than was proved
// for.
type BoundsError struct {
	Side   string // "source" or "destination"
	Field  string
	Value  int64
	Size   int64 // of the memory
	Reason string
}

func (e *BoundsError) Error() string {
	return fmt.Sprintf("memory/move: %s: %s is %d in memory of %d bytes: %s", e.Side, e.Field, e.Value, e.Size, e.Reason)
}

// FaultError is memory that could not be read or written: its mapping is
// gone, or the file behind it shrank.
type FaultError struct{ Err error }

func (e *FaultError) Error() string {
	return "memory/move: the memory is gone: " + e.Err.Error()
}

// Unwrap returns the runtime's error.
func (e *FaultError) Unwrap() error { return e.Err }

// Guard runs f, in which a fault on mapped memory is returned as a
// *FaultError instead of ending the process. Every other panic goes on.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr // only faults at an address have it
		}:
			err = &FaultError{r}
		default:
			panic(r)
		}
	}()
	return f()
}

// Total is the number of bytes that the segment moves.
func Total(s *stamp.Segment) int64 { return s.Run.Total() * max(s.Blocks, 1) }

// Pieces is the number of contiguous copies that the segment stands for.
func Pieces(s *stamp.Segment) int64 { return s.Run.Pieces() }

// width is the length of the segment's contiguous pieces.
func width(s *stamp.Segment) int64 { return s.Run.Bytes * max(s.Blocks, 1) }

// Check returns a *BoundsError unless every piece of s lies inside a source
// of the given size and a destination of the given size. A negative size
// leaves that side unchecked (it is another process's).
func Check(s *stamp.Segment, source, destination int64) error {
	if source >= 0 {
		if err := check(s, source, true); err != nil {
			return err
		}
	}
	if destination >= 0 {
		return check(s, destination, false)
	}
	return nil
}

func check(s *stamp.Segment, size int64, source bool) error {
	side, offset := "destination", s.DestinationOffset
	if source {
		side, offset = "source", s.SourceOffset
	}
	n := s.Run.Bytes
	if n < 1 {
		return &BoundsError{side, "bytes", n, size, "want at least 1"}
	}
	if s.Blocks > 1 {
		if len(s.Run.Loops) > 0 {
			return &BoundsError{side, "blocks", s.Blocks, size, "a run with loops cannot be merged over blocks"}
		}
		hi, lo := bits.Mul64(uint64(n), uint64(s.Blocks))
		if hi != 0 || lo > uint64(size) {
			return &BoundsError{side, "blocks", s.Blocks, size, fmt.Sprintf("of %d bytes each do not fit", n)}
		}
		n = int64(lo)
	}
	low, high, err := reach(s.Run.Loops, size, source)
	if err != nil {
		return err
	}
	switch {
	case offset < 0 || offset > size || low > offset:
		return &BoundsError{side, "offset", offset - low, size, "outside the memory"}
	case n > size-offset || high > size-offset-n:
		return &BoundsError{side, "end", offset, size, fmt.Sprintf("%d bytes from this offset on are outside the memory", high+n)}
	}
	return nil
}

// reach returns how far the loops go to either side of an offset, each at most
// size, so that sums with an offset inside the memory cannot overflow.
func reach(loops []plan.Loop, size int64, source bool) (low, high int64, err error) {
	for i := range loops {
		l := &loops[i]
		stride, side := l.DestinationStride, "destination"
		if source {
			stride, side = l.SourceStride, "source"
		}
		if l.Count < 1 {
			return 0, 0, &BoundsError{side, "count", l.Count, size, "want at least 1"}
		}
		up := stride >= 0
		if !up {
			stride = -stride // MinInt64 stays negative and is huge as uint64
		}
		hi, lo := bits.Mul64(uint64(l.Count-1), uint64(stride))
		if hi != 0 || lo > uint64(size) {
			return 0, 0, &BoundsError{side, "stride", stride, size, fmt.Sprintf("%d steps of it do not fit", l.Count-1)}
		}
		if up {
			high += int64(lo)
		} else {
			low += int64(lo)
		}
		if high > size || low > size {
			return 0, 0, &BoundsError{side, "stride", stride, size, "the loops together do not fit"}
		}
	}
	return low, high, nil
}

// Position is how much of a segment has been moved, in its canonical order:
// loops outermost first, each piece from its first byte. The zero value is the
// start.
type Position struct {
	Piece int64 // pieces done
	Byte  int64 // bytes done of the next one
}

// Copy moves a whole segment from src to dst.
//
// Errors: *BoundsError, before a byte is moved.
// Preconditions: the source pieces and the destination pieces do not overlap.
func Copy(dst, src []byte, s *stamp.Segment) error {
	if err := Check(s, int64(len(src)), int64(len(dst))); err != nil {
		return err
	}
	var at Position
	for {
		if _, done := Step(dst, src, s, &at); done {
			return nil
		}
	}
}

// Step moves the next part of a segment, at most MaxBytes and MaxPieces, from
// src to dst, advances at, and returns the bytes moved and whether that was
// the last part. A caller looks at its cancellation between steps.
// Preconditions: Check(s, len(src), len(dst)) is nil.
func Step(dst, src []byte, s *stamp.Segment, at *Position) (n int64, done bool) {
	return step(dst, src, s, at, MaxBytes, strided, 0)
}

// Gather packs the next part of a segment into buf, as far as it fits and at
// most MaxBytes and MaxPieces, and advances at.
// Preconditions: Check(s, len(src), -1) is nil.
func Gather(buf, src []byte, s *stamp.Segment, at *Position) (n int64, done bool) {
	return step(buf, src, s, at, min(MaxBytes, int64(len(buf))), packDestination, 0)
}

// Scatter unpacks buf, which holds what Gather packs, into the next part of a
// segment, at most MaxBytes and MaxPieces, and advances at.
// Preconditions: Check(s, -1, len(dst)) is nil.
func Scatter(dst, buf []byte, s *stamp.Segment, at *Position) (n int64, done bool) {
	return step(dst, buf, s, at, min(MaxBytes, int64(len(buf))), packSource, 0)
}

// mode says whether one of the sides is a contiguous buffer.
type mode uint8

const (
	strided mode = iota
	packDestination
	packSource
)

// step is the framed wrapper around all copies: noinline, so that each call
// has a prologue, where the scheduler and the collector can stop it; between
// two prologues it moves at most limit <= MaxBytes bytes in at most MaxPieces
// pieces. (The asynchronous preemption signal does not help: it nearly always
// lands inside the copy itself, which is no safe point.)
//
//go:noinline
func step(dst, src []byte, s *stamp.Segment, at *Position, limit int64, m mode, how method) (n int64, done bool) {
	bytes := width(s)
	loops := s.Run.Loops
	if len(loops) == 0 {
		part := min(bytes-at.Byte, limit)
		d, o := s.DestinationOffset+at.Byte, s.SourceOffset+at.Byte
		switch m {
		case packDestination:
			d = 0
		case packSource:
			o = 0
		}
		kernel(dst, src, d, o, part, 1, 0, 0, how)
		at.Byte += part
		if at.Byte < bytes {
			return part, false
		}
		*at = Position{Piece: 1}
		return part, true
	}

	// Where the position is in each loop, and the offsets it stands for. The
	// innermost loop is walked by the kernel, the others here.
	var index [plan.MaxLoops]int64
	inner := len(loops) - 1
	d, o := s.DestinationOffset, s.SourceOffset
	for i, rest := inner, at.Piece; i >= 0; i-- {
		l := &loops[i]
		index[i] = rest % l.Count
		rest /= l.Count
		d += index[i] * l.DestinationStride
		o += index[i] * l.SourceStride
	}
	in := loops[inner]
	in.SourceStride, in.DestinationStride = strides(&in, m, bytes)
	var around plan.Loop // of the loop outside the innermost, where the two are a matrix
	turned := false
	if inner > 0 {
		around = loops[inner-1]
		around.SourceStride, around.DestinationStride = strides(&around, m, bytes*in.Count)
		_, turned = matrixOf(bytes, around, in)
	}

	for pieces := int64(MaxPieces); ; {
		a, b := d, o
		switch m {
		case packDestination:
			a = n
		case packSource:
			b = n
		}
		// The loop that goes on, how often, and for how many pieces.
		level, times, count := inner, int64(1), int64(1)
		if turned && index[inner] == 0 && at.Byte == 0 {
			around.Count = min(loops[inner-1].Count-index[inner-1], pieces*tilePieces/in.Count, (limit-n)/(bytes*in.Count))
		} else {
			around.Count = 0
		}
		switch {
		case at.Byte > 0 || bytes > limit-n:
			// Part of one piece: it began in an earlier step, or does not fit.
			part := min(bytes-at.Byte, limit-n)
			if m != packDestination {
				a += at.Byte
			}
			if m != packSource {
				b += at.Byte
			}
			kernel(dst, src, a, b, part, 1, 0, 0, how)
			n += part
			if at.Byte += part; at.Byte < bytes {
				return n, false
			}
			at.Byte = 0
			pieces--
		case around.Count > 0:
			level, times, count = inner-1, around.Count, around.Count*in.Count
			square, _ := matrixOf(bytes, around, in)
			turn(dst, src, a, b, square)
			n += count * bytes
			pieces -= (count + tilePieces - 1) / tilePieces
		default:
			times = min(in.Count-index[inner], pieces, (limit-n)/bytes)
			count = times
			kernel(dst, src, a, b, bytes, count, in.DestinationStride, in.SourceStride, how)
			n += count * bytes
			pieces -= count
		}
		at.Piece += count

		// Advance like an odometer.
		index[level] += times
		d += times * loops[level].DestinationStride
		o += times * loops[level].SourceStride
		for i := level; index[i] == loops[i].Count; i-- {
			if i == 0 {
				return n, true
			}
			index[i] = 0
			d += loops[i-1].DestinationStride - loops[i].Count*loops[i].DestinationStride
			o += loops[i-1].SourceStride - loops[i].Count*loops[i].SourceStride
			index[i-1]++
		}
		if n == limit || pieces <= 0 {
			return n, false
		}
	}
}

// strides are those of a loop, where a packed side has turns of it follow each
// other.
func strides(l *plan.Loop, m mode, packed int64) (source, destination int64) {
	source, destination = l.SourceStride, l.DestinationStride
	switch m {
	case packDestination:
		destination = packed
	case packSource:
		source = packed
	}
	return source, destination
}

// ErrFault matches every *FaultError with errors.Is.
var ErrFault = errors.New("memory/move: the memory is gone")

// Is reports whether target is ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }
