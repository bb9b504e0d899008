package move

import "encoding/binary"

// kernel copies count pieces of bytes each, the first from src[o:] to dst[d:],
// the following ones at the given strides. It is the one place where a faster
// implementation for a machine is put in.
//
// Pieces of up to 64 bytes that are a power of two are moved by loads and
// stores: the call into the general copy costs more than they do. Slicing is
// bounds-checked, so that a wrong number panics and never writes elsewhere.
//
// Preconditions: every piece lies inside dst and src; count >= 1, bytes >= 1.
func kernel(dst, src []byte, d, o, bytes, count, dStride, oStride int64) {
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
	case 16, 32, 64:
		words(dst, src, d, o, bytes, count, dStride, oStride)
	default:
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

// copyList copies a list of pieces: the shape in which short pieces move
// fastest, and the second place for a faster implementation.
// Preconditions: every piece lies inside dst and src.
func copyList(dst, src []byte, list []piece) {
	for i := range list {
		p := &list[i]
		copy(dst[p.d:p.d+p.n], src[p.o:p.o+p.n])
	}
}
