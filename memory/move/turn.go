package move

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/plan"
)

// matrix is what two loops of elements are when the source has one of them
// contiguous and the destination the other: element (row, column) goes from
// row*source + column*width to column*target + row*width. Element by element
// every access but one of a cache line is wasted, so tiles are turned in
// registers.
type matrix struct {
	rows, columns  int64
	width          int64 // of an element in bytes: 1, 2 or 4
	source, target int64 // strides of the source's rows and the destination's, in bytes
}

// matrixOf says whether two loops around elements of that width are a matrix
// that turn moves.
func matrixOf(width int64, outer, inner plan.Loop) (m matrix, ok bool) {
	if width != 1 && width != 2 && width != 4 {
		return m, false
	}
	switch {
	case outer.SourceStride == width && inner.DestinationStride == width:
		return matrix{inner.Count, outer.Count, width, inner.SourceStride, outer.DestinationStride}, true
	case inner.SourceStride == width && outer.DestinationStride == width:
		return matrix{outer.Count, inner.Count, width, outer.SourceStride, inner.DestinationStride}, true
	}
	return m, false
}

// turn moves a matrix from src[o:] to dst[d:]. Like kernel it cannot be
// preempted: the caller bounds the matrix.
//
// Preconditions: every element lies inside dst and src; rows, columns >= 1; no
// destination element overlaps another or a source element.
func turn(dst, src []byte, d, o int64, m matrix) {
	_, vectors := vectors()
	turnWith(dst, src, d, o, m, vectors)
}

// turnWith is turn on a processor that has vectors or has not. What is left
// over beside the tiles, at most the last few rows and columns, goes element by
// element.
func turnWith(dst, src []byte, d, o int64, m matrix, vectors bool) {
	rows, columns := m.tiles()
	if vectors && rows > 0 && columns > 0 && m.inside(int64(len(dst)), int64(len(src)), d, o) {
		turnVectors(&dst[d], &src[o], rows, columns, m.source, m.target, m.width)
	} else {
		rows, columns = turnWords(dst, src, d, o, m)
	}
	elements(dst, src, d+rows*m.width, o+rows*m.source, matrix{m.rows - rows, columns, m.width, m.source, m.target})
	elements(dst, src, d+columns*m.target, o+columns*m.width, matrix{m.rows, m.columns - columns, m.width, m.source, m.target})
}

// tiles is how many of the rows and columns turnVectors moves.
func (m matrix) tiles() (rows, columns int64) {
	switch m.width {
	case 1:
		return m.rows &^ 15, m.columns &^ 7
	case 2:
		return m.rows &^ 7, m.columns &^ 7
	}
	return m.rows &^ 3, m.columns &^ 3
}

// inside reports whether all of the matrix lies inside memories of those
// sizes: assembly does not look.
func (m matrix) inside(dst, src, d, o int64) bool {
	within := func(at, size, stride, rows, columns int64) bool {
		last := (rows - 1) * stride // no overflow: the plan was checked against the memories
		return at+min(last, 0) >= 0 && at+max(last, 0)+columns*m.width <= size
	}
	return within(o, src, m.source, m.rows, m.columns) && within(d, dst, m.target, m.columns, m.rows)
}

// elements moves a matrix, or none, element by element.
func elements(dst, src []byte, d, o int64, m matrix) {
	if m.rows == 0 {
		return
	}
	for c := range m.columns {
		kernel(dst, src, d+c*m.target, o+c*m.width, m.width, m.rows, m.width, m.source, 0)
	}
}

// turnWords moves tiles of one word a row, and returns how many rows and columns
// they are. A tile has as many rows as columns: n turns by log2(n) rounds, in
// each of which the halves of pairs of words change places.
func turnWords(dst, src []byte, d, o int64, m matrix) (rows, columns int64) {
	n := 8 / m.width
	rows, columns = m.rows/n*n, m.columns/n*n
	for r := int64(0); r < rows; r += n {
		for c := int64(0); c < columns; c += n {
			var w [8]uint64
			from := o + r*m.source + c*m.width
			for i := range n {
				w[i] = binary.LittleEndian.Uint64(src[from : from+8 : from+8])
				from += m.source
			}
			switch m.width {
			case 1:
				swap(&w, 4, 32, 0x00000000ffffffff)
				swap(&w, 2, 16, 0x0000ffff0000ffff)
				swap(&w, 1, 8, 0x00ff00ff00ff00ff)
			case 2:
				swap(&w, 2, 32, 0x00000000ffffffff)
				swap(&w, 1, 16, 0x0000ffff0000ffff)
			case 4:
				swap(&w, 1, 32, 0x00000000ffffffff)
			}
			to := d + c*m.target + r*m.width
			for i := range n {
				binary.LittleEndian.PutUint64(dst[to:to+8:to+8], w[i])
				to += m.target
			}
		}
	}
	return rows, columns
}

// swap is one round: the upper parts of word i and the lower ones of word
// i+apart change places. Words beyond the tile are zero and stay so.
func swap(w *[8]uint64, apart int, shift uint, low uint64) {
	for i := range w {
		if i&apart != 0 {
			continue
		}
		a, b := w[i], w[i+apart]
		w[i] = a&low | b&low<<shift
		w[i+apart] = b&^low | a&^low>>shift
	}
}
