package move

import "encoding/binary"

// kernel copies count pieces of bytes each, the first from src[o:] to dst[d:],
// the following ones at the given strides.
//
// Pieces of up to 32 bytes that are a power of two are moved by loads and
// stores: the call into the general copy costs more than they do. Slicing is
// bounds-checked, so that a wrong number panics and never writes elsewhere.
//
// Pieces of shortPiece bytes and more are listed (see copyList).
//
// Preconditions: every piece lies inside dst and src; count >= 1, bytes >= 1;
// no destination piece overlaps another or a source piece.
func kernel(dst, src []byte, d, o, bytes, count, dStride, oStride int64, how method) {
	switch bytes {
	case 1:
		for ; count > 0; count-- {
			dst[d] = src[o]
			d += dStride
			o += oStride
		}
	case 2:
		for ; count > 0; count-- {
			binary.NativeEndian.PutUint16(dst[d:d+2:d+2], binary.NativeEndian.Uint16(src[o:o+2:o+2]))
			d += dStride
			o += oStride
		}
	case 4:
		for ; count > 0; count-- {
			binary.NativeEndian.PutUint32(dst[d:d+4:d+4], binary.NativeEndian.Uint32(src[o:o+4:o+4]))
			d += dStride
			o += oStride
		}
	case 8:
		for ; count > 0; count-- {
			binary.NativeEndian.PutUint64(dst[d:d+8:d+8], binary.NativeEndian.Uint64(src[o:o+8:o+8]))
			d += dStride
			o += oStride
		}
	case 16, 32:
		words(dst, src, d, o, bytes, count, dStride, oStride)
	default:
		if bytes >= shortPiece && (count >= fewPieces || how&streamed != 0) {
			list(dst, src, d, o, bytes, count, dStride, oStride, how)
			return
		}
		pieces(dst, src, d, o, bytes, count, dStride, oStride)
	}
}

// pieces is a function of its own because the copy it calls keeps no
// registers: the fewer values live around it, the fewer are spilled a piece.
//
//go:noinline
func pieces(dst, src []byte, d, o, bytes, count, dStride, oStride int64) {
	for range count {
		copy(dst[d:d+bytes], src[o:o+bytes])
		d += dStride
		o += oStride
	}
}

// words moves pieces that are a multiple of 16 bytes by pairs of words.
func words(dst, src []byte, d, o, bytes, count, dStride, oStride int64) {
	for ; count > 0; count-- {
		to, from := dst[d:d+bytes:d+bytes], src[o:o+bytes:o+bytes]
		for len(to) >= 16 && len(from) >= 16 {
			a, b := binary.NativeEndian.Uint64(from), binary.NativeEndian.Uint64(from[8:])
			binary.NativeEndian.PutUint64(to, a)
			binary.NativeEndian.PutUint64(to[8:], b)
			to, from = to[16:], from[16:]
		}
		d += dStride
		o += oStride
	}
}

// fewPieces are not worth a list that is made for them alone.
const fewPieces = 4

// list is pieces through copyList.
//
//go:noinline
func list(dst, src []byte, d, o, bytes, count, dStride, oStride int64, how method) {
	var l [64]piece
	for count > 0 {
		n := min(count, int64(len(l)))
		for i := range l[:n] {
			l[i] = piece{d, o, bytes}
			d += dStride
			o += oStride
		}
		copyList(dst, src, l[:n], how)
		count -= n
	}
}

// method is how pieces are copied, as flags. The assembly knows their values.
type method uint8

const (
	streamed method = 1 << iota // past the cache, where that is possible
	wide                        // with 64-byte registers
)

// Vectors reports whether lists are copied by vector instructions here, for
// reports and for what may be expected of a machine.
func Vectors() bool {
	_, ok := vectors()
	return ok
}

// copyList copies a list of pieces: the shape in which pieces move
// fastest, and the place for an implementation of a machine's own.
// Preconditions: every piece lies inside dst and src; no destination piece
// overlaps another or a source piece.
func copyList(dst, src []byte, list []piece, how method) {
	machine, ok := vectors()
	copyWith(dst, src, list, how|machine, ok)
}

// copyWith is copyList on a processor that has vectors or has not. The pieces
// that those leave over are copied by Go, bounds-checked: a wrong number
// panics and never writes elsewhere.
func copyWith(dst, src []byte, list []piece, how method, vectors bool) {
	for {
		if vectors {
			list = list[copyVectors(dst, src, list, how):]
		}
		if len(list) == 0 {
			return
		}
		p := &list[0]
		copy(dst[p.d:p.d+p.n], src[p.o:p.o+p.n])
		list = list[1:]
	}
}
