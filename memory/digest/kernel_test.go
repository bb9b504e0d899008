package digest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func noise(n int, rng *rand.Rand) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func randomKey(rng *rand.Rand) *nhKey {
	var k nhKey
	for i := range k {
		k[i] = rng.Uint64()
	}
	return &k
}

// fenced returns size bytes, a multiple of the page's, between two pages that
// may not be touched.
func fenced(t testing.TB, size int) []byte {
	t.Helper()
	page := os.Getpagesize()
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	for _, fence := range [][]byte{m[:page], m[page+size:]} {
		if err := unix.Mprotect(fence, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return m[page : page+size : page+size]
}

// Every length at both ends of memory, by vectors where there are some and
// without: nothing beside a row is read, and the hash is that of nh.
func TestRowsOfEveryLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := fenced(t, 2*os.Getpagesize())
	copy(m, noise(len(m), rng))
	key := randomKey(rng)
	for n := int64(1); n <= segmentBytes; n++ {
		last := int64(len(m)) - n
		offs := []int64{0, last, rng.Int64N(last + 1), last, 0}
		var lo, hi [5]uint64
		nhRows(m, offs, n, key, lo[:], hi[:])
		for i, o := range offs {
			if l, h := nh(m[o:o+n], key); lo[i] != l || hi[i] != h {
				t.Fatalf("%d bytes at %d: %016x%016x, nh gives %016x%016x", n, o, hi[i], lo[i], h, l)
			}
		}
	}
}

// A row that does not lie in memory, in spite of all checks, panics and is not
// read.
func TestRowsOutsidePanic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := fenced(t, os.Getpagesize())
	key := randomKey(rng)
	for _, n := range []int64{1, 2, 4, 8, 11, 16, 64, 100, 256, 2048} {
		for _, o := range []int64{-1, int64(len(m)) - n + 1, int64(len(m)), math.MaxInt64, math.MinInt64, math.MaxInt64 - n + 1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%d bytes at %d did not panic", n, o)
					}
				}()
				nhRows(m, []int64{0, o, 0}, n, key, make([]uint64, 3), make([]uint64, 3))
			}()
		}
	}
}

// Lists of every length, by lanes of each width that there is and one by one.
func TestLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	ways := lanes()
	for n := range 100 {
		lo, hi, names := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		for i := range n {
			lo[i], hi[i], names[i] = rng.Uint64(), rng.Uint64(), rng.Uint64()
		}
		mid := state{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()}
		sums := make([]uint64, n+1)
		for i := range n {
			sums[i+1] = sums[i] + mid.add(lo[i]).add(hi[i]).end(names[i])
		}
		if got := sipRows(lo, hi, names, &mid); got != sums[n] {
			t.Fatalf("%d rows: %016x, want %016x", n, got, sums[n])
		}
		for width, f := range ways {
			k := n / width * width
			if got := f(lo[:k], hi[:k], names[:k], &mid); got != sums[k] {
				t.Fatalf("%d rows by %d: %016x, want %016x", k, width, got, sums[k])
			}
		}
	}
}

// Rectangles of every size, packed closely and loosely, against one element
// after the other; nothing is written beside them.
func TestTransposes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	src := fenced(t, 4*os.Getpagesize())
	copy(src, noise(len(src), rng))
	for _, c := range []struct {
		size int64
		f    func(dst []byte, packed int64, src []byte, chunks []int64, rows int64)
	}{{1, transpose1}, {1, squares1}, {2, transpose2}, {2, squares2}, {4, transpose4}, {8, transpose8}, {16, transpose16}} {
		for rows := int64(1); rows < 40; rows++ {
			for n := 1; n < 30; n++ {
				last := int64(len(src)) - c.size*rows
				chunks := make([]int64, n)
				for i := range chunks {
					chunks[i] = []int64{0, last, rng.Int64N(last + 1)}[rng.IntN(3)]
				}
				length := int64(n) * c.size
				packed := length + rng.Int64N(9)
				got := make([]byte, rows*packed-packed+length)
				c.f(got, packed, src, chunks, rows)
				for at, b := range got {
					row, from := int64(at)/packed, int64(at)%packed
					want := byte(0)
					if from < length {
						want = src[chunks[from/c.size]+row*c.size+from%c.size]
					}
					if b != want {
						t.Fatalf("chunks of %d bytes: %d rows of %d chunks, %d bytes apart: byte %d is wrong", c.size, rows, n, packed, at)
					}
				}
			}
		}
		for _, wrong := range []int64{-1, int64(len(src)) - 16*c.size + 1, math.MaxInt64, math.MinInt64} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("chunks of %d bytes: one at %d did not panic", c.size, wrong)
					}
				}()
				chunks := make([]int64, 16)
				chunks[11] = wrong
				c.f(make([]byte, 256*c.size), 16*c.size, src, chunks, 16)
			}()
		}
	}
}

// Lines may be fetched from anywhere.
func TestFetchNeverFaults(t *testing.T) {
	m := fenced(t, os.Getpagesize())
	fetchLines(m, 0, []int64{0, 1, 4096, -4096, math.MaxInt64, math.MinInt64, 8192}, 300)
	fetchLines(m, 0, nil, 64)
}

// FuzzRows holds the kernels against nh and state on whatever rows.
func FuzzRows(f *testing.F) {
	f.Add(uint64(1), uint16(256), []byte("some memory, of which the rows are"))
	f.Add(uint64(2), uint16(19), make([]byte, 100))
	f.Fuzz(func(t *testing.T, seed uint64, length uint16, m []byte) {
		n := int64(length)%segmentBytes + 1
		if int64(len(m)) < n {
			m = append(m, make([]byte, n-int64(len(m)))...)
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		key := randomKey(rng)
		count := 1 + rng.IntN(70)
		offs, lo, hi, names := make([]int64, count), make([]uint64, count), make([]uint64, count), make([]uint64, count)
		for i := range offs {
			offs[i], names[i] = rng.Int64N(int64(len(m))-n+1), rng.Uint64()
		}
		mid := begin(rng.Uint64(), rng.Uint64())
		nhRows(m, offs, n, key, lo, hi)
		var want uint64
		for i, o := range offs {
			l, h := nh(m[o:o+n], key)
			if lo[i] != l || hi[i] != h {
				t.Fatalf("row %d of %d bytes at %d: %016x%016x, nh gives %016x%016x", i, n, o, hi[i], lo[i], h, l)
			}
			want += mid.add(l).add(h).end(names[i])
		}
		if got := sipRows(lo, hi, names, &mid); got != want {
			t.Fatalf("%d rows: %016x, want %016x", count, got, want)
		}
	})
}

// word must not be taken from beyond its bytes.
func TestWord(t *testing.T) {
	for n := range 8 {
		m := []byte{1, 2, 3, 4, 5, 6, 7, 8}
		var padded [8]byte
		copy(padded[:], m[:n])
		if got, want := word(m[:n:n]), binary.LittleEndian.Uint64(padded[:]); got != want {
			t.Errorf("%d bytes: %016x, want %016x", n, got, want)
		}
	}
}
