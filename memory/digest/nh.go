package digest

import (
	"encoding/binary"
	"math/bits"
)

// segmentBytes is the longest piece of a row that is hashed at once, and so the
// length of the key of NH, which stays in the first-level cache beside the
// rows. It is part of the construction.
const segmentBytes = 2048

// segmentWords is the number of words of the key of NH.
const segmentWords = segmentBytes / 8

// nhKey is the key of NH.
type nhKey [segmentWords]uint64

// nh is NH with 64-bit words of at most segmentBytes: the sum of
// (m[2i] + k[2i] mod 2^64) * (m[2i+1] + k[2i+1] mod 2^64) modulo 2^128, with m
// padded with zeros to whole pairs of words.
// Preconditions: len(m) <= segmentBytes.
func nh(m []byte, key *nhKey) (lo, hi uint64) {
	var carry uint64
	k := key[:]
	for len(m) >= 64 && len(k) >= 8 {
		a, b := (*[64]byte)(m), (*[8]uint64)(k)
		h, l := bits.Mul64(binary.LittleEndian.Uint64(a[0:])+b[0], binary.LittleEndian.Uint64(a[8:])+b[1])
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
		h, l = bits.Mul64(binary.LittleEndian.Uint64(a[16:])+b[2], binary.LittleEndian.Uint64(a[24:])+b[3])
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
		h, l = bits.Mul64(binary.LittleEndian.Uint64(a[32:])+b[4], binary.LittleEndian.Uint64(a[40:])+b[5])
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
		h, l = bits.Mul64(binary.LittleEndian.Uint64(a[48:])+b[6], binary.LittleEndian.Uint64(a[56:])+b[7])
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
		m, k = m[64:], k[8:]
	}
	for len(m) > 0 && len(k) >= 2 {
		var a, b uint64
		if len(m) >= 16 {
			a, b = binary.LittleEndian.Uint64(m), binary.LittleEndian.Uint64(m[8:])
			m = m[16:]
		} else {
			a, b = ends(m)
			m = nil
		}
		h, l := bits.Mul64(a+k[0], b+k[1])
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
		k = k[2:]
	}
	return lo, hi
}

// ends is the last pair of words of a segment, padded with zeros.
// Preconditions: 1 <= len(m) <= 15.
func ends(m []byte) (a, b uint64) {
	if len(m) < 8 {
		return word(m), 0
	}
	return binary.LittleEndian.Uint64(m), word(m[8:])
}

// word is up to 7 bytes as a word, padded with zeros.
func word(m []byte) (w uint64) {
	switch n := len(m); {
	case n >= 4: // two loads that may overlap
		low, high := uint64(binary.LittleEndian.Uint32(m)), uint64(binary.LittleEndian.Uint32(m[n-4:]))
		return low | high>>(8*(8-uint(n)))<<32
	case n >= 2:
		return uint64(binary.LittleEndian.Uint16(m)) | uint64(m[n-1])<<(8*uint(n-1))
	case n == 1:
		return uint64(m[0])
	}
	return 0
}

// state is that of SipHash between words of its message.
type state struct{ v0, v1, v2, v3 uint64 }

// begin is the state before the first word.
func begin(k0, k1 uint64) state {
	return state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
}

// add takes the next word of the message.
func (s state) add(m uint64) state {
	s.v3 ^= m
	s = s.round()
	s.v0 ^= m
	return s
}

// end takes the last word, which holds the message's length in its top byte,
// and returns the hash.
func (s state) end(m uint64) uint64 {
	s = s.add(m)
	s.v2 ^= 0xff
	s = s.round().round().round()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

func (s state) round() state {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
	return s
}
