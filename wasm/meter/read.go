package meter

import "unicode/utf8"

// reader reads the binary format from b[at:to]. Its first error stays, and
// every read after it gives zeros, so that callers check once for several reads.
// Counts are never trusted: what they size is bounded by the bytes that follow.
type reader struct {
	b   []byte
	at  int
	to  int
	fn  int // the function that is being read; -1: none
	err *Error
}

func (r *reader) fail(at int, what, why string, args ...any) {
	if r.err == nil {
		r.err = malformed(at, r.fn, what, why, args...)
	}
	r.at = r.to // ends every loop over what is left
}

// more reports whether something is left to read.
func (r *reader) more() bool { return r.err == nil && r.at < r.to }

func (r *reader) u8(what string) byte {
	if r.at >= r.to {
		r.fail(r.at, what, "cut off")
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// u32 reads an unsigned LEB128 of at most 32 bits: five bytes at most, with no
// bits set beyond the 32nd.
func (r *reader) u32(what string) uint32 {
	if r.at < r.to && r.b[r.at] < 0x80 {
		r.at++
		return uint32(r.b[r.at-1])
	}
	var v uint32
	start := r.at
	for i := range 5 {
		if r.at >= r.to {
			r.fail(start, what, "its number is cut off")
			return 0
		}
		c := r.b[r.at]
		r.at++
		if i == 4 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v
		}
	}
	r.fail(start, what, "its number has more than 32 bits")
	return 0
}

// signed reads a signed LEB128 of the given width (32, 33 or 64).
func (r *reader) signed(bits int, what string) int64 {
	var v int64
	start := r.at
	most := (bits + 6) / 7
	for i := range most {
		if r.at >= r.to {
			r.fail(start, what, "its number is cut off")
			return 0
		}
		c := r.b[r.at]
		r.at++
		v |= int64(c&0x7f) << (7 * i)
		if i == most-1 {
			// The bits beyond the width repeat the sign.
			used := bits - 7*i
			rest := int8(c<<1) >> used // the sign bit and what lies above it; c's own top bit is gone
			if c >= 0x80 || rest != 0 && rest != -1 {
				break
			}
		}
		if c < 0x80 {
			if shift := 7 * (i + 1); shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
	r.fail(start, what, "its number has more than %d bits", bits)
	return 0
}

func (r *reader) skip(n int, what string) {
	if n > r.to-r.at {
		r.fail(r.at, what, "cut off: %d bytes of %d are there", r.to-r.at, n)
		return
	}
	r.at += n
}

// count reads the number of things that follow, of which each takes at least
// least bytes, so that it cannot exceed what is there.
func (r *reader) count(least int, what string) int {
	at := r.at
	n := r.u32(what)
	if uint64(n)*uint64(least) > uint64(r.to-r.at) {
		r.fail(at, what, "%d of them cannot be in %d bytes", n, r.to-r.at)
		return 0
	}
	return int(n)
}

// name reads a name, which is UTF-8.
func (r *reader) name(what string) string {
	at := r.at
	n := r.count(1, what)
	if r.err != nil {
		return ""
	}
	s := r.b[r.at : r.at+n]
	r.at += n
	if !utf8.Valid(s) {
		r.fail(at, what, "is not UTF-8")
		return ""
	}
	return string(s)
}

func (r *reader) valueType(what string) byte {
	at := r.at
	t := r.u8(what)
	if r.err == nil && !isValueType(t) {
		r.unknownType(at, what, t)
	}
	return t
}

func (r *reader) unknownType(at int, what string, t byte) {
	r.fail(at, what, "%#02x is no value type of the features enabled here", t)
}

// The value types.
const (
	typeI32    = 0x7f
	typeI64    = 0x7e
	typeF32    = 0x7d
	typeF64    = 0x7c
	typeV128   = 0x7b
	typeFunc   = 0x70
	typeExtern = 0x6f
	typeEmpty  = 0x40 // of a block
)

func isValueType(t byte) bool {
	return t <= typeI32 && t >= typeV128 || isReference(t)
}

func isReference(t byte) bool { return t == typeFunc || t == typeExtern }

func appendUint(b []byte, v uint64) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func appendInt(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
