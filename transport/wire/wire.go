// Package wire holds the numbers, lists and errors that providers put into
// their frames. Numbers are little-endian; texts and lists are preceded by
// their u32 length. What a frame is, and which fields it has, is each
// provider's.
package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Error is a field that is not what it must be. The peer is at fault.
type Error struct {
	Field  string
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Encoder appends fields to B. The zero value is ready.
type Encoder struct{ B []byte }

// U8 appends a byte.
func (e *Encoder) U8(v uint8) { e.B = append(e.B, v) }

// U16 appends a number.
func (e *Encoder) U16(v uint16) { e.B = binary.LittleEndian.AppendUint16(e.B, v) }

// U32 appends a number.
func (e *Encoder) U32(v uint32) { e.B = binary.LittleEndian.AppendUint32(e.B, v) }

// U64 appends a number.
func (e *Encoder) U64(v uint64) { e.B = binary.LittleEndian.AppendUint64(e.B, v) }

// I64 appends a number in two's complement.
func (e *Encoder) I64(v int64) { e.U64(uint64(v)) }

// Raw appends bytes without their length.
func (e *Encoder) Raw(b []byte) { e.B = append(e.B, b...) }

// Text appends a text.
func (e *Encoder) Text(s string) {
	e.U32(uint32(len(s)))
	e.B = append(e.B, s...)
}

// Flag appends 1 or 0.
func (e *Encoder) Flag(v bool) {
	if v {
		e.U8(1)
	} else {
		e.U8(0)
	}
}

// Decoder reads fields until the first that is not there; after that every
// field reads as zero and End says what was wrong.
type Decoder struct {
	b   []byte
	bad *Error
}

// NewDecoder reads from b, which must not change meanwhile.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Fail makes End return an *Error, unless something failed before.
func (d *Decoder) Fail(field, format string, args ...any) {
	if d.bad == nil {
		d.bad = &Error{field, fmt.Sprintf(format, args...)}
	}
	d.b = nil
}

// take returns the next n <= 32 bytes, or zeros.
func (d *Decoder) take(n int, field string) []byte {
	if n > len(d.b) {
		d.Fail(field, "%d bytes are left of the frame, %d are needed", len(d.b), n)
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

// U8 reads a byte.
func (d *Decoder) U8(field string) uint8 { return d.take(1, field)[0] }

// U16 reads a number.
func (d *Decoder) U16(field string) uint16 { return binary.LittleEndian.Uint16(d.take(2, field)) }

// U32 reads a number.
func (d *Decoder) U32(field string) uint32 { return binary.LittleEndian.Uint32(d.take(4, field)) }

// U64 reads a number.
func (d *Decoder) U64(field string) uint64 { return binary.LittleEndian.Uint64(d.take(8, field)) }

// I64 reads a number in two's complement.
func (d *Decoder) I64(field string) int64 { return int64(d.U64(field)) }

// Raw fills out.
// Preconditions: len(out) <= 32.
func (d *Decoder) Raw(out []byte, field string) { copy(out, d.take(len(out), field)) }

// Small reads a u32 that is at most 2^31-1.
func (d *Decoder) Small(field string) int {
	v := d.U32(field)
	if v > math.MaxInt32 {
		d.Fail(field, "is %d, want at most %d", v, math.MaxInt32)
		return 0
	}
	return int(v)
}

// Flag reads 1 or 0.
func (d *Decoder) Flag(field string) bool {
	v := d.U8(field)
	if v > 1 {
		d.Fail(field, "is %d, want 0 or 1", v)
	}
	return v == 1
}

// Count reads the length of a list whose items take at least size bytes each,
// so that a lying length allocates nothing.
// Preconditions: size >= 1.
func (d *Decoder) Count(size int, field string) int {
	n := int64(d.U32(field))
	if n*int64(size) > int64(len(d.b)) {
		d.Fail(field, "a list of %d items is longer than the frame", n)
		return 0
	}
	return int(n)
}

// Text reads a text.
func (d *Decoder) Text(field string) string {
	n := d.Count(1, field)
	out := string(d.b[:n])
	d.b = d.b[n:]
	return out
}

// End returns an *Error if a field was wrong or if bytes are left.
func (d *Decoder) End() error {
	if d.bad == nil && len(d.b) > 0 {
		d.Fail("end", "%d bytes follow the last field", len(d.b))
	}
	if d.bad != nil {
		return d.bad
	}
	return nil
}
