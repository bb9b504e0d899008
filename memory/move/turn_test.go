package move

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// elementwise is the twin of turn.
func elementwise(dst, src []byte, d, o int64, m matrix) {
	for r := range m.rows {
		for c := range m.columns {
			for k := range m.width {
				dst[d+c*m.target+r*m.width+k] = src[o+r*m.source+c*m.width+k]
			}
		}
	}
}

// turners are the ways in which this machine could turn a matrix.
func turners() []bool {
	if _, ok := vectors(); ok {
		return []bool{false, true}
	}
	return []bool{false}
}

// Every number of rows and columns around those of the tiles, with strides of
// either sign and gaps between the rows, and not a byte beside the elements.
func TestTurnEqualsTheTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	const size = 64 << 10
	src, before := fill(size, rng), fill(size, rng)
	for _, vectors := range turners() {
		for _, width := range []int64{1, 2, 4} {
			for rows := int64(1); rows <= 40; rows++ {
				for columns := int64(1); columns <= 40; columns++ {
					m := matrix{rows, columns, width, columns*width + rng.Int64N(9), rows*width + rng.Int64N(9)}
					d, o := rng.Int64N(64), rng.Int64N(64)
					if rng.IntN(2) == 0 {
						o += (rows - 1) * m.source
						m.source = -m.source
					}
					if rng.IntN(2) == 0 {
						d += (columns - 1) * m.target
						m.target = -m.target
					}
					want, got := bytes.Clone(before), bytes.Clone(before)
					elementwise(want, src, d, o, m)
					turnWith(got, src, d, o, m, vectors)
					if !bytes.Equal(got, want) {
						t.Fatalf("vectors=%v %+v", vectors, m)
					}
				}
			}
		}
	}
}

// Against guard pages before and after both sides: nothing is read or written
// beyond the matrix.
func TestTurnStaysInsideTheMatrix(t *testing.T) {
	size := 4 * os.Getpagesize()
	src, dst := between(t, size), between(t, size)
	rng := rand.New(rand.NewPCG(33, 34))
	copy(src, fill(int64(size), rng))
	for _, vectors := range turners() {
		for range 3000 {
			width := int64(1) << rng.IntN(3)
			m := matrix{rows: 1 + rng.Int64N(40), columns: 1 + rng.Int64N(40), width: width}
			m.source, m.target = m.columns*width, m.rows*width
			total := m.rows * m.columns * width
			for _, at := range [][2]int64{{0, 0}, {int64(size) - total, int64(size) - total}} {
				want := make([]byte, total)
				elementwise(want, src[at[1]:], 0, 0, m)
				turnWith(dst, src, at[0], at[1], m, vectors)
				if !bytes.Equal(dst[at[0]:at[0]+total], want) {
					t.Fatalf("vectors=%v %+v at %v", vectors, m, at)
				}
			}
		}
	}
}

// A wrong number panics, and nothing outside the memories is touched.
func TestTurnWithAWrongNumberPanics(t *testing.T) {
	for _, vectors := range turners() {
		for _, m := range []matrix{
			{64, 64, 2, 128, 128}, {64, 64, 4, 256, 256}, {128, 64, 1, 64, 128},
			{16, 16, 2, -32, 32}, {16, 16, 2, 32, -32}, {16, 16, 2, 1 << 20, 32}, {16, 16, 2, 32, 1 << 20},
		} {
			size := int64(64*64*2 - 1)
			backing := make([]byte, 3*size)
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("vectors=%v %+v in %d bytes: no panic", vectors, m, size)
					}
				}()
				turnWith(backing[size:2*size:2*size], make([]byte, size), 0, 0, m, vectors)
			}()
			for i, b := range backing {
				if b != 0 {
					t.Fatalf("vectors=%v %+v: wrote byte %d", vectors, m, int64(i)-size)
				}
			}
		}
	}
}

// The segments of transposed layouts, of any size and cut anywhere: whole, in
// steps, packed and unpacked, all equal the twin.
func TestTransposedSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		width := int64(1) << rng.IntN(3)
		rows, columns := 1+rng.Int64N(200), 1+rng.Int64N(70)
		if rng.IntN(20) == 0 {
			rows, columns = 300+rng.Int64N(900), 300+rng.Int64N(900)
		}
		across := plan.Loop{Count: columns, SourceStride: width, DestinationStride: rows*width + width*rng.Int64N(3)}
		along := plan.Loop{Count: rows, SourceStride: columns*width + width*rng.Int64N(3), DestinationStride: width}
		loops := []plan.Loop{across, along}
		if rng.IntN(2) == 0 {
			loops = []plan.Loop{along, across}
		}
		n := rows*max(along.SourceStride, along.DestinationStride) + columns*max(across.SourceStride, across.DestinationStride)
		if rng.IntN(2) == 0 && n < 1<<19 {
			loops = append([]plan.Loop{{Count: 1 + rng.Int64N(4), SourceStride: n, DestinationStride: n}}, loops...)
			n *= 4
		}
		s := stamp.Segment{Run: &plan.Run{Bytes: width, Loops: loops}, SourceOffset: rng.Int64N(70), DestinationOffset: rng.Int64N(70)}
		src, before := fill(n+70, rng), fill(n+70, rng)
		source, destination := twin(&s)
		want, packed := bytes.Clone(before), make([]byte, 0, len(source))
		for i := range source {
			want[destination[i]] = src[source[i]]
			packed = append(packed, src[source[i]])
		}
		name := fmt.Sprintf("%d bytes, %+v", width, loops)

		got := bytes.Clone(before)
		if err := Copy(got, src, &s); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: in steps: %v", name, err)
		}
		got = bytes.Clone(before)
		var c Copier
		c.Use(got, src)
		if _, err := c.copy(got, src, &s); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: by a copier: %v", name, err)
		}
		var pack []byte
		got = bytes.Clone(before)
		var from, to Position
		for last := false; !last; {
			buf := make([]byte, 1+rng.Int64N(int64(len(packed))))
			k, done := Gather(buf, src, &s, &from)
			pack = append(pack, buf[:k]...)
			for part := buf[:k]; len(part) > 0; {
				k := min(int64(len(part)), 1+rng.Int64N(int64(len(packed))))
				k, _ = Scatter(got, part[:k], &s, &to)
				part = part[k:]
			}
			last = done
		}
		if !bytes.Equal(pack, packed) || !bytes.Equal(got, want) {
			t.Fatalf("%s: packed %v, unpacked %v", name, bytes.Equal(pack, packed), bytes.Equal(got, want))
		}
	}
}

// FuzzTurn: every way equals the twin.
func FuzzTurn(f *testing.F) {
	f.Add(uint8(2), uint8(16), uint8(8), uint8(0), uint8(0), []byte("0123456789abcdef"))
	f.Add(uint8(1), uint8(33), uint8(17), uint8(5), uint8(3), []byte{1})
	f.Add(uint8(0), uint8(90), uint8(9), uint8(1), uint8(255), []byte{7, 8})
	f.Fuzz(func(t *testing.T, power, rows, columns, sourceGap, targetGap uint8, text []byte) {
		width := int64(1) << (power % 3)
		m := matrix{rows: 1 + int64(rows), columns: 1 + int64(columns), width: width}
		m.source, m.target = m.columns*width+int64(sourceGap), m.rows*width+int64(targetGap)
		if len(text) == 0 {
			return
		}
		src := bytes.Repeat(text, int(m.rows*m.source)/len(text)+1)
		want := make([]byte, m.columns*m.target)
		elementwise(want, src, 0, 0, m)
		for _, vectors := range turners() {
			got := make([]byte, len(want))
			turnWith(got, src, 0, 0, m, vectors)
			if !bytes.Equal(got, want) {
				t.Fatalf("vectors=%v %+v", vectors, m)
			}
		}
	})
}
