package geometry

import "fmt"

// DType is the type of one element. The zero value is no type and is refused
// everywhere; there is no default.
type DType uint8

// The element types that a component can have. The numbers travel in policy
// records and handshakes and never change.
const (
	FP64    DType = 1
	FP32    DType = 2
	FP16    DType = 3
	BF16    DType = 4
	FP8E4M3 DType = 5
	FP8E5M2 DType = 6
	Int8    DType = 7
	Uint8   DType = 8
	FP4     DType = 9
	Int4    DType = 10
)

var dtypes = [...]struct {
	name string
	bits int64
}{
	FP64: {"fp64", 64}, FP32: {"fp32", 32}, FP16: {"fp16", 16}, BF16: {"bf16", 16},
	FP8E4M3: {"fp8_e4m3", 8}, FP8E5M2: {"fp8_e5m2", 8}, Int8: {"int8", 8}, Uint8: {"uint8", 8},
	FP4: {"fp4", 4}, Int4: {"int4", 4},
}

// Valid reports whether d names an element type.
func (d DType) Valid() bool { return d > 0 && int(d) < len(dtypes) }

// Bits is the size of one element in bits (4 for the sub-byte types), or 0
// for an invalid type.
func (d DType) Bits() int64 {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].bits
}

// String is the canonical name, such as "bf16" or "fp8_e4m3".
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ParseDType returns the type with the given name. "f32", "f16"
// and "fp8" are accepted as other names of fp32, fp16 and fp8_e4m3.
func ParseDType(s string) (DType, error) {
	switch s {
	case "f32":
		return FP32, nil
	case "f16":
		return FP16, nil
	case "fp8":
		return FP8E4M3, nil
	}
	for d, t := range dtypes {
		if t.name == s && s != "" {
			return DType(d), nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %q (known: fp64 fp32 fp16 bf16 fp8_e4m3 fp8_e5m2 int8 uint8 fp4 int4)", s)
}
