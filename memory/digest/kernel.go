package digest

import (
	"encoding/binary"
	"math/bits"
)

// aheadBytes is how far ahead of the row that is read the list's rows are
// fetched.
const aheadBytes = 8 << 10

// nhRows hashes the rows of length bytes at offs.
// Preconditions: every row lies inside region, 1 <= length <= segmentBytes; lo
// and hi are as long as offs.
func nhRows(region []byte, offs []int64, length int64, key *nhKey, lo, hi []uint64) {
	lo, hi = lo[:len(offs)], hi[:len(offs)]
	switch length {
	case 1:
		for i, o := range offs {
			hi[i], lo[i] = bits.Mul64(uint64(region[o])+key[0], key[1])
		}
		return
	case 2:
		for i, o := range offs {
			hi[i], lo[i] = bits.Mul64(uint64(binary.LittleEndian.Uint16(region[o:]))+key[0], key[1])
		}
		return
	case 4:
		for i, o := range offs {
			hi[i], lo[i] = bits.Mul64(uint64(binary.LittleEndian.Uint32(region[o:]))+key[0], key[1])
		}
		return
	case 8:
		for i, o := range offs {
			hi[i], lo[i] = bits.Mul64(binary.LittleEndian.Uint64(region[o:])+key[0], key[1])
		}
		return
	}
	whole := length &^ 15
	done := 0
	if whole > 0 {
		done = nhList(region, offs, max(aheadBytes/length, 1), whole, key, lo, hi)
		if whole < length {
			k0, k1 := key[whole/8], key[whole/8+1]
			for i, o := range offs[:done] {
				a, b := ends(region[o+whole : o+length])
				var carry uint64
				h, l := bits.Mul64(a+k0, b+k1)
				lo[i], carry = bits.Add64(lo[i], l, 0)
				hi[i], _ = bits.Add64(hi[i], h, carry)
			}
		}
	}
	for i := done; i < len(offs); i++ {
		o := offs[i]
		lo[i], hi[i] = nh(region[o:o+length], key)
	}
}

// sipRows is the sum of S over rows, of which mid is what they have in common.
// Preconditions: the slices are equally long.
func sipRows(lo, hi, names []uint64, mid *state) (sum uint64) {
	sum, done := sipLanes(lo, hi, names, mid)
	lo, hi, names = lo[done:], hi[done:], names[done:]
	hi, names = hi[:len(lo)], names[:len(lo)]
	for i := range lo {
		sum += mid.add(lo[i]).add(hi[i]).end(names[i])
	}
	return sum
}

func high(a, b uint64) uint64 {
	h, _ := bits.Mul64(a, b)
	return h
}
