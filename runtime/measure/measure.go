// Package measure finds out where an engine's own kernels put a cache, instead
// of believing what was declared: the engine writes known values into blocks
// with its cache-write kernel, the raw bytes are read back, and the layout that
// explains them is inferred.
//
// It owns no memory and knows no peer. What it is told to measure is
// overwritten, so it runs before the engine keeps anything there.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// Element names one element of a rank's cache: the coordinates on the rank, as
// in layout.Element (a state's slot is Block, its channel Head).
type Element = layout.Element

// Set is an element with the bits that it has, in its component's dtype.
type Set struct {
	Element
	Bits uint64
}

// Kernel is an engine's own way to write and read its cache. Its methods are
// called by one goroutine at a time.
type Kernel interface {
	// Write writes a block of a group on a rank through the kernel that writes
	// the cache during inference: the elements of set (in any order) with their
	// bits, which are finite numbers, and all others as zeros. It returns when
	// the bytes are in memory.
	Write(ctx context.Context, rank, group int, block uint32, set []Set) error
	// Read fills in the bits of elements of a block, as the kernel that reads
	// the cache during inference finds them.
	Read(ctx context.Context, rank, group int, block uint32, get []Set) error
}

// Digits is how many passes are written: in each one every element looked for
// has one of at most 16 values, so that its values of all passes tell it from
// all others. Few values, because an fp8 or bf16 holds few numbers exactly.
const Digits = 16

// digits is how many values the elements of a dtype take.
func digits(t geometry.DType) uint64 {
	switch t {
	case geometry.FP4:
		return 7
	case geometry.Int4:
		return 15
	}
	return 16
}

// code is the bits of digit d of a dtype: one of neighbouring numbers which are
// finite, not zero, and exact in every wider type that a kernel may compute in.
//
// Preconditions: t is valid, d < digits(t).
func code(t geometry.DType, d uint64) uint64 {
	switch t {
	case geometry.FP64:
		return 0x3FF0_0000_0000_0000 + d<<48 // 1 + d/16
	case geometry.FP32:
		return 0x3F80_0000 + d<<19
	case geometry.FP16:
		return 0x3C00 + d<<6
	case geometry.BF16:
		return 0x3F80 + d<<3
	case geometry.FP8E4M3:
		return 0x38 + d // 1 to 3.75
	case geometry.FP8E5M2:
		return 0x3C + d // 1 to 14
	}
	return 1 + d
}

// digit is what an element of a dtype gets in a pass: four bits of a hash of its
// coordinates.
func digit(t geometry.DType, e Element, pass int) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, x := range [...]uint64{uint64(e.Component), uint64(e.Layer), uint64(e.Block), uint64(e.Token), uint64(e.Head), uint64(e.Dim)} {
		h = (h ^ x) * 0xBF58476D1CE4E5B9
		h ^= h >> 29
	}
	h *= 0x94D049BB133111EB
	h ^= h >> 32
	return (h >> (4 * (pass % 16)) & 15) % digits(t)
}

// Bits is what an element of a dtype is to be in a pass.
func Bits(t geometry.DType, e Element, pass int) uint64 { return code(t, digit(t, e, pass)) }

// Part is a group of a rank to be measured.
type Part struct {
	Rank, Group int
	Declared    *layout.Layout
	Regions     [][]byte // by index of Declared.Regions, at least as long
}

// MaxBytes bounds the memory that is looked through for one part.
const MaxBytes = 4 << 30

// ErrTooLarge is a part whose memory is larger than MaxBytes.
var ErrTooLarge = errors.New("measure: the memory is too large to be looked through")

// Disagreement is an engine whose kernel does not do what was declared.
type Disagreement struct {
	Rank, Group int
	Component   string
	Layer       int // the model's
	Element     Element
	// Where the element lies: what was declared, and what the kernel did. Bit
	// is -1 where the kernel's write was found nowhere.
	DeclaredRegion, MeasuredRegion string
	DeclaredBit, MeasuredBit       int64
	Err                            error // of layout.Infer, where the measured places make no layout
}

func (e *Disagreement) Error() string {
	s := fmt.Sprintf("measure: rank %d group %d: the engine's kernel disagrees with its declaration: component %s layer %d block %d token %d head %d dim %d lies ", e.Rank, e.Group, e.Component, e.Layer, e.Element.Block, e.Element.Token, e.Element.Head, e.Element.Dim)
	place := func(region string, bit int64) string {
		if bit%8 != 0 {
			return fmt.Sprintf("at bit %d of %s", bit, region)
		}
		return fmt.Sprintf("at byte %d of %s", bit/8, region)
	}
	if e.MeasuredBit < 0 {
		s += "nowhere"
	} else {
		s += place(e.MeasuredRegion, e.MeasuredBit)
	}
	s += ", declared " + place(e.DeclaredRegion, e.DeclaredBit)
	if e.Err != nil {
		s += fmt.Sprintf(" (%v)", e.Err)
	}
	return s
}

// Unwrap returns what layout.Infer said.
func (e *Disagreement) Unwrap() error { return e.Err }

// Run measures a part and returns the layout that explains what the kernel did.
// It overwrites the regions.
//
// Errors: *Disagreement where the measured layout is not the declared one,
// ErrTooLarge, what the kernel returns.
// Preconditions: nothing else touches the regions meanwhile; Declared is valid.
func Run(ctx context.Context, k Kernel, p Part) (*layout.Layout, error) {
	var total int64
	for i, r := range p.Declared.Regions {
		total += r.Bytes
		if int64(len(p.Regions[i])) < r.Bytes {
			return nil, fmt.Errorf("measure: rank %d group %d region %q has %d bytes, the layout %d", p.Rank, p.Group, r.Name, len(p.Regions[i]), r.Bytes)
		}
	}
	if total > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes of rank %d group %d, at most %d", ErrTooLarge, total, p.Rank, p.Group, MaxBytes)
	}
	m := &search{Part: p, extent: &p.Declared.Extent}
	samples := layout.Samples(p.Declared.Extent)
	if err := m.passes(ctx, k, samples); err != nil {
		return nil, err
	}
	return m.infer(samples)
}

// search is one part being measured.
type search struct {
	Part
	extent *layout.Extent
	// By region, the candidates: places whose bytes changed in the first pass,
	// with the digits read there so far, by element size.
	found map[sized]map[uint64][]place
}

type sized struct {
	bits  int64
	dtype geometry.DType
}

type place struct {
	region int
	bit    int64
}

// passes has the kernel write all passes and collects what was found where.
func (m *search) passes(ctx context.Context, k Kernel, samples []layout.Element) error {
	byBlock := map[uint32][]Set{}
	for _, e := range samples {
		byBlock[uint32(e.Block)] = append(byBlock[uint32(e.Block)], Set{Element: e})
	}
	blocks := slices.Sorted(maps.Keys(byBlock))
	write := func(pass int) error {
		for _, b := range blocks {
			for i, s := range byBlock[b] {
				byBlock[b][i].Bits = Bits(m.extent.Components[s.Component].DType, s.Element, pass)
			}
			if err := k.Write(ctx, m.Rank, m.Group, b, byBlock[b]); err != nil {
				return fmt.Errorf("measure: write block %d of rank %d group %d with the engine's kernel: %w", b, m.Rank, m.Group, err)
			}
		}
		return ctx.Err()
	}
	// What a kernel writes is found as what differs from a fill, under two fills
	// since one of them may be what it writes.
	touched := make([][]uint64, len(m.Declared.Regions)) // a bit a byte
	for i, r := range m.Declared.Regions {
		touched[i] = make([]uint64, (r.Bytes+63)/64)
	}
	for _, fill := range [...]byte{0xA5, 0x5A} {
		page := bytes.Repeat([]byte{fill}, 4096)
		for i, r := range m.Declared.Regions {
			for b := m.Regions[i][:r.Bytes]; len(b) > 0; {
				b = b[copy(b, page):]
			}
		}
		if err := write(0); err != nil {
			return err
		}
		for i, r := range m.Declared.Regions {
			for at := int64(0); at < r.Bytes; at += int64(len(page)) {
				b := m.Regions[i][at:min(at+int64(len(page)), r.Bytes)]
				if bytes.Equal(b, page[:len(b)]) {
					continue
				}
				for j, v := range b {
					if x := at + int64(j); v != fill {
						touched[i][x/64] |= 1 << (x % 64)
					}
				}
			}
		}
	}
	kinds := map[sized]map[place]uint64{} // digits so far
	for _, c := range m.extent.Components {
		kinds[sized{c.DType.Bits(), c.DType}] = nil
	}
	for pass := range Digits {
		if pass > 0 {
			if err := write(pass); err != nil {
				return err
			}
		}
		for kind, known := range kinds {
			next := map[place]uint64{}
			m.candidates(kind, known, touched, func(at place, digits uint64) {
				if d, ok := m.digit(kind, at); ok {
					next[at] = digits | d<<(4*pass)
				}
			})
			kinds[kind] = next
		}
	}
	m.found = map[sized]map[uint64][]place{}
	for kind, known := range kinds {
		byDigits := map[uint64][]place{}
		for at, digits := range known {
			byDigits[digits] = append(byDigits[digits], at)
		}
		m.found[kind] = byDigits
	}
	return nil
}

// candidates calls f for every place that may hold an element of a kind: those
// that did before, or in the first pass every one whose bytes were touched.
func (m *search) candidates(kind sized, known map[place]uint64, touched [][]uint64, f func(place, uint64)) {
	if known != nil {
		for at, digits := range known {
			f(at, digits)
		}
		return
	}
	width := max(kind.bits/8, 1)
	for i, words := range touched {
		size := m.Declared.Regions[i].Bytes
		for w, word := range words {
			for ; word != 0; word &= word - 1 {
				at := int64(w)*64 + int64(bits.TrailingZeros64(word))
				if at+width > size {
					continue
				}
				f(place{i, at * 8}, 0)
				if kind.bits == 4 {
					f(place{i, at*8 + 4}, 0)
				}
			}
		}
	}
}

// digit reads the digit at a place; false where no element of the kind has
// these bits.
func (m *search) digit(kind sized, at place) (uint64, bool) {
	b := m.Regions[at.region][at.bit/8:]
	var v uint64
	if kind.bits == 4 {
		v = uint64(b[0]>>(at.bit%8)) & 15
	} else {
		for i := range kind.bits / 8 {
			v |= uint64(b[i]) << (8 * i)
		}
	}
	for d := range digits(kind.dtype) {
		if code(kind.dtype, d) == v {
			return d, true
		}
	}
	return 0, false
}

// infer turns what was found into a layout, and compares.
func (m *search) infer(elements []layout.Element) (*layout.Layout, error) {
	var samples []layout.Sample
	for _, e := range elements {
		t := m.extent.Components[e.Component].DType
		var want uint64
		for pass := range Digits {
			want |= digit(t, e, pass) << (4 * pass)
		}
		places := m.found[sized{t.Bits(), t}][want]
		if len(places) == 1 {
			samples = append(samples, layout.Sample{Element: e, Region: places[0].region, Bit: places[0].bit})
			continue
		}
		return nil, m.disagree(e, -1, 0, fmt.Errorf("its value was found at %d places", len(places)))
	}
	got, err := layout.Infer(samples, *m.extent, m.Declared.Regions)
	if err == nil && got.Equal(m.Declared) {
		return got, nil
	}
	for _, s := range samples {
		region, bit := m.Declared.Bit(s.Component, s.Layer, s.Block, s.Token, s.Head, s.Dim)
		if region != s.Region || bit != s.Bit {
			return nil, m.disagree(s.Element, s.Bit, s.Region, err)
		}
	}
	if err == nil {
		err = errors.New("the layouts differ, and every sample lies where it was declared")
	}
	return nil, m.disagree(elements[0], samples[0].Bit, samples[0].Region, err)
}

func (m *search) disagree(e layout.Element, bit int64, region int, err error) error {
	r, b := m.Declared.Bit(e.Component, e.Layer, e.Block, e.Token, e.Head, e.Dim)
	return &Disagreement{Rank: m.Rank, Group: m.Group, Component: m.extent.Components[e.Component].Name, Layer: m.extent.Layers[e.Layer], Element: e,
		DeclaredRegion: m.Declared.Regions[r].Name, DeclaredBit: b, MeasuredRegion: m.Declared.Regions[region].Name, MeasuredBit: bit, Err: err}
}
