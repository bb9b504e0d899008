package tinyllm

import (
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
)

// bf16 rounds to nearest even.
func bf16(v float32) uint16 {
	b := math.Float32bits(v)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// The fp8 of OCP's "OFP8" in its E4M3 form: 4 bits of exponent with bias 7, 3 of
// mantissa, no infinities, the one NaN 0x7f (and 0xff), 448 the largest number.
const (
	largestE4M3 = 448
	smallest    = 1.0 / 512 // distance of the subnormal numbers
)

// e4m3 rounds to nearest even; what is larger than the largest number becomes
// that, with its sign.
func e4m3(v float32) byte {
	b := math.Float32bits(v)
	sign := byte(b >> 31 << 7)
	b &= 1<<31 - 1
	switch a := math.Float32frombits(b); {
	case a != a:
		return sign | 0x7f
	case a >= largestE4M3:
		return sign | 0x7e
	case a < 1.0/64: // subnormal; what rounds up to 8 is the smallest normal number
		return sign | byte(math.RoundToEven(float64(a)/smallest))
	}
	b += 0x7ffff + b>>20&1
	return sign | byte((b>>23-127+7)<<3|b>>20&7)
}

func fromE4M3(v byte) float32 {
	sign, exponent, mantissa := uint32(v>>7)<<31, uint32(v>>3&15), uint32(v&7)
	switch {
	case v&0x7f == 0x7f:
		return float32(math.NaN())
	case exponent == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*smallest))
	}
	return math.Float32frombits(sign | (exponent+127-7)<<23 | mantissa<<20)
}

// quantise returns the scale of a row whose numbers are to be kept in fp8, and
// divides them by it: the largest of them becomes the largest fp8.
func quantise(row []float32) float32 {
	var most float32
	for _, v := range row {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return 1
	}
	scale := most / largestE4M3
	for i := range row {
		row[i] /= scale
	}
	return scale
}

func silu(v float32) float32 { return v / (1 + float32(math.Exp(float64(-v)))) }

func sigmoid(v float32) float32 { return 1 / (1 + float32(math.Exp(float64(-v)))) }

// FromBits is the number with these bits in a dtype that the model keeps.
func FromBits(t geometry.DType, bits uint64) float32 {
	switch t {
	case geometry.BF16:
		return fromBF16(uint16(bits))
	case geometry.FP8E4M3:
		return fromE4M3(byte(bits))
	}
	return math.Float32frombits(uint32(bits))
}

// Bits is a number rounded to a dtype that the model keeps.
func Bits(t geometry.DType, v float32) uint64 {
	switch t {
	case geometry.BF16:
		return uint64(bf16(v))
	case geometry.FP8E4M3:
		return uint64(e4m3(v))
	}
	return uint64(math.Float32bits(v))
}
