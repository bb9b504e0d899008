package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Block tables and generations travel run-length coded, as unsigned varints:
//
//	tables:      groups, then for each group: runs, then for each run: first id, count (ids ascend by one)
//	generations: groups, then for each group: runs, then for each run: value, count
//
// Counts are at least 1 and sum to at most MaxTable over all groups. The
// coding is canonical: a decoder refuses runs that the encoder would have
// joined, and trailing bytes.

// AppendTables codes block tables.
func AppendTables(dst []byte, tables [][]uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tables)))
	for _, t := range tables {
		dst = appendRuns(dst, len(t), func(i int) uint64 { return uint64(t[i]) }, 1)
	}
	return dst
}

// AppendGenerations codes generations.
func AppendGenerations(dst []byte, gens [][]uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(gens)))
	for _, g := range gens {
		dst = appendRuns(dst, len(g), func(i int) uint64 { return g[i] }, 0)
	}
	return dst
}

func appendRuns(dst []byte, n int, at func(int) uint64, step uint64) []byte {
	runs := 0
	for i := range n {
		if i == 0 || at(i) != at(i-1)+step {
			runs++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(runs))
	for i := 0; i < n; {
		j := i + 1
		for j < n && at(j) == at(j-1)+step {
			j++
		}
		dst = binary.AppendUvarint(dst, at(i))
		dst = binary.AppendUvarint(dst, uint64(j-i))
		i = j
	}
	return dst
}

// ParseTables is the inverse of AppendTables.
func ParseTables(b []byte) ([][]uint32, error) {
	return parseRuns(b, 1, func(v, n uint64) ([]uint32, error) {
		if v > 1<<32-1 || v+n-1 > 1<<32-1 {
			return nil, fmt.Errorf("tables: block id %d is larger than %d", v+n-1, uint32(1<<32-1))
		}
		out := make([]uint32, n)
		for i := range out {
			out[i] = uint32(v) + uint32(i)
		}
		return out, nil
	})
}

// ParseGenerations is the inverse of AppendGenerations.
func ParseGenerations(b []byte) ([][]uint64, error) {
	return parseRuns(b, 0, func(v, n uint64) ([]uint64, error) {
		out := make([]uint64, n)
		for i := range out {
			out[i] = v
		}
		return out, nil
	})
}

func parseRuns[T uint32 | uint64](b []byte, step uint64, expand func(v, n uint64) ([]T, error)) ([][]T, error) {
	next := func() (uint64, error) {
		v, n := binary.Uvarint(b)
		if n <= 0 || n > 1 && b[n-1] == 0 {
			return 0, errors.New("tables: cut short or not canonical")
		}
		b = b[n:]
		return v, nil
	}
	groups, err := next()
	if err != nil {
		return nil, err
	}
	if groups > 64 {
		return nil, fmt.Errorf("tables: %d groups, want at most 64", groups)
	}
	out := make([][]T, groups)
	total := uint64(0)
	for g := range out {
		runs, err := next()
		if err != nil {
			return nil, err
		}
		out[g] = []T{}
		var end uint64
		for r := range runs {
			v, err := next()
			if err != nil {
				return nil, err
			}
			n, err := next()
			if err != nil {
				return nil, err
			}
			if total += n; n == 0 || n > MaxTable || total > MaxTable {
				return nil, fmt.Errorf("tables: a run of %d entries, want 1 to %d in all", n, MaxTable)
			}
			if r > 0 && v == end {
				return nil, errors.New("tables: two runs that are one")
			}
			end = v + n*step
			if step == 0 {
				end = v
			}
			run, err := expand(v, n)
			if err != nil {
				return nil, err
			}
			out[g] = append(out[g], run...)
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("tables: %d bytes too many", len(b))
	}
	return out, nil
}
