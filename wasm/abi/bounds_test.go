package abi

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
)

// allocated is what f allocates in all, freed or not: the least of three times,
// since the runtime allocates now and then for itself.
func allocated(f func()) uint64 {
	least := ^uint64(0)
	for range 3 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// The memory that a message takes is bounded by its own bytes, whatever its
// lists claim: the largest record in Go is some 17 times the 8 bytes that it
// takes at least.
func TestDecodeBoundsMemory(t *testing.T) {
	// list is a remap_in of n bytes in which field "at" lists count records,
	// 8 bytes apart, from just behind the message's own record.
	list := func(n int, at, count uint32) []byte {
		b := make([]byte, n)
		for i, v := range []uint32{Magic, version, HookRemap, sizeRemapIn, uint32(n)} {
			binary.LittleEndian.PutUint32(b[4*i:], v)
		}
		for i, v := range []uint32{sizeRemapIn, count, 8} {
			binary.LittleEndian.PutUint32(b[at+4*uint32(i):], v)
		}
		return b
	}
	const sides = 52 // where remap_in lists its sides
	for _, c := range []struct {
		name    string
		b       []byte
		refused bool
		most    uint64
	}{
		{"2^32-1 records in 64 bytes", list(sizeRemapIn, sides, 1<<32-1), true, 4 << 10},
		{"2^29 records, whose bytes wrap 32 bits to 0", list(sizeRemapIn, sides, 1<<29), true, 4 << 10},
		{"one record more than fits", list(sizeRemapIn+80, sides, 11), true, 4 << 10},
		{"most records that there can be", list(MaxMessage, sides, MaxRecords), false, 64 << 20},
		{"one record more than there can be", list(MaxMessage, sides, MaxRecords+1), true, 4 << 10},
	} {
		var err error
		got := allocated(func() { _, err = DecodeRemapIn(c.b) })
		var e *Error
		if refused := errors.As(err, &e); refused != c.refused || refused && e.Field != "remap_in.sides" {
			t.Errorf("%s: error %v", c.name, err)
		}
		if got > c.most {
			t.Errorf("%s: %d bytes were allocated for a message of %d, want at most %d", c.name, got, len(c.b), c.most)
		}
	}
}

// Lists of lists that all point at the same bytes would unfold without bound:
// 1,000 ranks that share the parts of one, 1,000 parts that share the ranges of
// one.
func TestDecodeRefusesSharing(t *testing.T) {
	const n = 1000
	side := Side{Ranks: make([]Rank, n)}
	side.Ranks[0].Parts = make([]Part, n)
	side.Ranks[0].Parts[0].Layers = make([]Range, n)
	whole := (&RemapIn{Sides: []Side{side}}).Encode()
	if _, err := DecodeRemapIn(whole); err != nil {
		t.Fatal(err)
	}
	u32 := func(at uint32) uint32 { return binary.LittleEndian.Uint32(whole[at:]) }
	const (
		sides  = 52 // remap_in.sides
		ranks  = 36 // side.ranks
		parts  = 16 // rank.parts
		layers = 24 // part.layers
	)
	// share makes every record of the list whose first is at "first" point where
	// that one's list field does.
	share := func(b []byte, first, size, field uint32) []byte {
		b = append([]byte(nil), b...)
		for i := uint32(1); i < n; i++ {
			copy(b[first+i*size+field:][:12], b[first+field:][:12])
		}
		return b
	}
	rank0 := u32(u32(sides) + ranks)
	part0 := u32(rank0 + parts)
	for _, c := range []struct {
		field string
		b     []byte
	}{
		{"rank.parts", share(whole, rank0, sizeRank, parts)},
		{"part.layers", share(whole, part0, sizePart, layers)},
		{"part.layers", share(share(whole, part0, sizePart, layers), rank0, sizeRank, parts)},
	} {
		var err error
		got := allocated(func() { _, err = DecodeRemapIn(c.b) })
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("shared %s: error %v", c.field, err)
		}
		if got > 1<<20 {
			t.Errorf("shared %s: %d bytes were allocated before it was refused", c.field, got)
		}
	}
}

// An error names the message, the field and both values.
func TestErrorText(t *testing.T) {
	out, err := DecodeRemapOut(words(Magic, 2<<16, HookRemap, sizeRemapOut, 0, 0))
	if want := "abi: remap_out: version is 2: this side speaks kvferry/1"; err == nil || err.Error() != want || out != nil {
		t.Errorf("%+v, error %v, want none and %s", out, err, want)
	}
}
