package tinyllm

import (
	"math"
	"testing"
)

// Every fp8 is a number of its own that rounding gives back, and what lies
// between two of them goes to the nearer one, or the even one.
func TestFP8RoundsToTheNearest(t *testing.T) {
	for _, x := range []struct {
		code byte
		v    float32
	}{{0x00, 0}, {0x01, 1.0 / 512}, {0x07, 7.0 / 512}, {0x08, 1.0 / 64}, {0x38, 1}, {0x39, 1.125}, {0x7e, 448}, {0xb8, -1}} {
		if got := fromE4M3(x.code); got != x.v {
			t.Errorf("%#x is %v, want %v", x.code, got, x.v)
		}
	}
	for code := range byte(0x7f) {
		v := fromE4M3(code)
		if got, minus := e4m3(v), e4m3(-v); got != code || minus != code|0x80 || fromE4M3(code|0x80) != -v {
			t.Fatalf("%v (%#x) becomes %#x, its negative %#x", v, code, got, minus)
		}
		if code == 0x7e {
			break
		}
		next := fromE4M3(code + 1)
		if next <= v {
			t.Fatalf("%#x is %v, and %#x is %v", code, v, code+1, next)
		}
		half := v + (next-v)/2
		even := code + code&1
		if got := e4m3(half); got != even {
			t.Errorf("%v, between %#x and %#x, becomes %#x, want the even one", half, code, code+1, got)
		}
		if below, above := e4m3(math.Nextafter32(half, 0)), e4m3(math.Nextafter32(half, 1e9)); below != code || above != code+1 {
			t.Errorf("beside %v, between %#x and %#x: %#x and %#x", half, code, code+1, below, above)
		}
	}
	for _, v := range []float32{449, 464, 480, 1e30, float32(math.Inf(1))} {
		if e4m3(v) != 0x7e || e4m3(-v) != 0xfe {
			t.Errorf("%v becomes %#x, want the largest number", v, e4m3(v))
		}
	}
	nan := float32(math.NaN())
	if e4m3(nan)&0x7f != 0x7f || fromE4M3(0xff) == fromE4M3(0xff) {
		t.Error("no NaN comes of a NaN")
	}
}

func TestQuantiseUsesTheWholeRange(t *testing.T) {
	row := []float32{0.5, -2, 0, 1.25}
	if scale := quantise(row); scale != 2.0/448 {
		t.Errorf("scale %v", scale)
	}
	if e4m3(row[1]) != 0xfe || row[2] != 0 || e4m3(row[0]) != e4m3(112) {
		t.Errorf("row %v", row)
	}
	if zero := []float32{0, 0}; quantise(zero) != 1 || zero[0] != 0 {
		t.Errorf("a row of zeros becomes %v", zero)
	}
}

func TestBF16RoundsToTheNearest(t *testing.T) {
	for _, x := range []struct {
		v    float32
		bits uint16
	}{{1, 0x3f80}, {-1.5, 0xbfc0}, {math.Float32frombits(0x3f808000), 0x3f80}, {math.Float32frombits(0x3f818000), 0x3f82}, {math.Float32frombits(0x3f808001), 0x3f81}} {
		if got := bf16(x.v); got != x.bits {
			t.Errorf("%v becomes %#x, want %#x", x.v, got, x.bits)
		}
	}
	if fromBF16(0x3fc0) != 1.5 {
		t.Errorf("0x3fc0 is %v", fromBF16(0x3fc0))
	}
}
