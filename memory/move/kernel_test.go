package move

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// manner is one of the ways in which this machine could copy a list.
type manner struct {
	how     method
	vectors bool
}

func (m manner) String() string {
	return fmt.Sprintf("vectors=%v streamed=%v wide=%v", m.vectors, m.how&streamed != 0, m.how&wide != 0)
}

// manners begins with that of a processor without the features.
func manners() []manner {
	out := []manner{{0, false}, {streamed, false}}
	machine, ok := vectors()
	if ok {
		out = append(out, manner{0, true}, manner{streamed, true})
		if machine&wide != 0 {
			out = append(out, manner{wide, true}, manner{wide | streamed, true})
		}
	}
	return out
}

// bytewise is the twin of copyList.
func bytewise(dst, src []byte, list []piece) {
	for _, p := range list {
		for k := range p.n {
			dst[p.d+k] = src[p.o+k]
		}
	}
}

func TestListEqualsTheTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	const size = 256 << 10
	src, before := fill(size, rng), fill(size, rng)
	for _, m := range manners() {
		lengths := map[int64]bool{}
		for round := range 100 {
			var list []piece
			for d := rng.Int64N(64); len(list) < 300; {
				n := 1 + rng.Int64N([]int64{9000, 700, 40}[rng.IntN(3)])
				switch rng.IntN(3) {
				case 0:
					d = (d + 63) &^ 63 // of an aligned heap object, so often aligned itself
				case 1:
					d += rng.Int64N(70)
				}
				if d+n > size {
					break
				}
				list = append(list, piece{d, rng.Int64N(size - n + 1), n})
				lengths[n] = true
				d += n
			}
			rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
			want, got := bytes.Clone(before), bytes.Clone(before)
			bytewise(want, src, list)
			copyWith(got, src, list, m.how, m.vectors)
			if !bytes.Equal(got, want) {
				for k := range got {
					if got[k] != want[k] {
						t.Fatalf("%v: round %d: wrong from byte %d on", m, round, k)
					}
				}
			}
		}
		if len(lengths) < 2000 {
			t.Errorf("%v: only %d different lengths", m, len(lengths))
		}
	}
}

// between returns size bytes, a multiple of the page's, with a page that may
// not be touched right before and right after them.
func between(t testing.TB, size int) []byte {
	t.Helper()
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{b[:page], b[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return b[page : page+size : page+size]
}

// Every length, against a guard page before and after both sides: nothing is
// read or written beyond a piece, whatever its alignment.
func TestListStaysInsideItsPieces(t *testing.T) {
	size := 3 * os.Getpagesize()
	src, dst := between(t, size), between(t, size)
	rng := rand.New(rand.NewPCG(23, 24))
	copy(src, fill(int64(size), rng))
	want := make([]byte, size)
	for _, m := range manners() {
		for n := int64(1); n <= 9000; n++ {
			if n > 1100 && n%61 != 0 && n%256 > 1 {
				continue
			}
			last := int64(size) - n
			for _, at := range [][2]int64{{0, 0}, {0, last}, {last, 0}, {last, last}, {rng.Int64N(last + 1), rng.Int64N(last + 1)}} {
				list := []piece{{at[0], at[1], n}}
				err := Guard(func() error { copyWith(dst, src, list, m.how, m.vectors); return nil })
				if err != nil {
					t.Fatalf("%v: %+v: %v", m, list[0], err)
				}
				if !bytes.Equal(dst[at[0]:at[0]+n], src[at[1]:at[1]+n]) {
					t.Fatalf("%v: %+v: copied wrongly", m, list[0])
				}
				clear(dst[at[0] : at[0]+n])
				if n < 600 && !bytes.Equal(dst, want) {
					t.Fatalf("%v: %+v: wrote outside the piece", m, list[0])
				}
			}
		}
		if !bytes.Equal(dst, want) {
			t.Fatalf("%v: wrote outside the pieces", m)
		}
	}
}

// A number that is wrong in spite of all checks panics, after the pieces
// before it and before a byte of its own.
func TestListWithAWrongNumberPanics(t *testing.T) {
	const size = 8192
	for _, m := range manners() {
		for _, wrong := range []piece{
			{size, 0, 1}, {0, size, 1}, {size - 255, 0, 256}, {0, size - 255, 256}, {-1, 0, 300}, {0, -1, 300},
			{0, 0, -1}, {0, 0, math.MinInt64}, {0, 0, size + 1}, {256, 0, math.MaxInt64}, {0, 256, math.MaxInt64},
			{math.MinInt64, 0, 256}, {math.MaxInt64, 0, 256}, {0, math.MinInt64, 256}, {0, math.MaxInt64, 256},
		} {
			backing, src := make([]byte, 3*size), bytes.Repeat([]byte{1}, 3*size)
			dst := backing[size : 2*size : 2*size]
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v: %+v did not panic", m, wrong)
					}
				}()
				copyWith(dst, src[size:2*size:2*size], []piece{{1024, 1024, 512}, wrong, {4096, 4096, 512}}, m.how, m.vectors)
			}()
			if n := bytes.Count(backing, []byte{1}); n != 512 || bytes.Count(dst[1024:1536], []byte{1}) != 512 {
				t.Errorf("%v: %+v: %d bytes were written, want the 512 before it", m, wrong, n)
			}
		}
	}
}

// A fault in the middle of a list, in whatever loop, is an error, and the
// goroutine goes on: its stack can be walked from there and it can be
// collected.
func TestListFaultIsAnError(t *testing.T) {
	page := os.Getpagesize()
	size := 16 * page
	rng := rand.New(rand.NewPCG(25, 26))
	sound, into := fill(int64(size), rng), make([]byte, size)
	fd, err := unix.MemfdCreate("shrinks", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal("no memfd:", err)
	}
	f := os.NewFile(uintptr(fd), "shrinks")
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	shrunk, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(shrunk)
	if err := f.Truncate(int64(size / 2)); err != nil {
		t.Fatal(err)
	}
	hole := between(t, size)
	if err := unix.Mprotect(hole[size/2:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, m := range manners() {
		for _, n := range []int64{1, 3, 6, 12, 20, 50, 100, 200, 256, 512, 1000, 4096, 9000} {
			var list []piece
			for at := int64(0); at+n <= int64(size) && len(list) < 4096; at += max(n, int64(size)/2000) &^ 63 {
				list = append(list, piece{at, at, n})
				if n < 64 {
					at += 64
				} else if n&63 != 0 {
					at += 64
				}
			}
			for _, c := range []struct {
				name     string
				dst, src []byte
			}{{"source shrank", into, shrunk}, {"destination shrank", shrunk, sound}, {"source has a hole", into, hole}, {"destination has a hole", hole, sound}} {
				clear(into)
				err := Guard(func() error { copyWith(c.dst, c.src, list, m.how, m.vectors); return nil })
				var fault *FaultError
				if !errors.As(err, &fault) || !errors.Is(err, ErrFault) {
					t.Errorf("%v: pieces of %d bytes: %s: %v, want a *FaultError", m, n, c.name, err)
				}
			}
			copyWith(into, sound, list, m.how, m.vectors)
			for _, p := range list {
				if !bytes.Equal(into[p.d:p.d+p.n], sound[p.o:p.o+p.n]) {
					t.Fatalf("%v: pieces of %d bytes: copied wrongly after a fault", m, n)
				}
			}
		}
	}
}

// The copier too survives a fault in Flush, within the cache and past it, and
// works again after Reset.
func TestCopierFaultIsAnError(t *testing.T) {
	const size = 3 * streamFrom / 2
	hole, into := between(t, size), make([]byte, size)
	run := &plan.Run{Bytes: 512, Loops: []plan.Loop{{Count: 8, SourceStride: 512, DestinationStride: 512}}}
	var c Copier
	move := func() error {
		c.Reset()
		c.Use(into, hole)
		for at := int64(0); at < size; at += 4096 {
			if _, _, err := c.Add(&stamp.Segment{Run: run, SourceOffset: at, DestinationOffset: at}); err != nil {
				return err
			}
		}
		c.Flush()
		return nil
	}
	page := os.Getpagesize()
	for _, at := range []int{0, size - page} {
		if err := unix.Mprotect(hole[at:at+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := Guard(move); !errors.Is(err, ErrFault) {
			t.Errorf("a hole at %d: %v, want a *FaultError", at, err)
		}
		if err := unix.Mprotect(hole[at:at+page], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
		hole[at]++
		if err := Guard(move); err != nil || !bytes.Equal(into, hole) {
			t.Errorf("after a hole at %d: %v, or copied wrongly", at, err)
		}
	}
}

// A long transfer goes past the cache from a point on, over many segments, and
// a new one starts within it.
func TestCopierStreamsLongTransfers(t *testing.T) {
	const size = 3 * streamFrom
	rng := rand.New(rand.NewPCG(27, 28))
	src := fill(size, rng)
	var c Copier
	for _, run := range []plan.Run{
		{Bytes: size},
		{Bytes: 512, Loops: []plan.Loop{{Count: 16, SourceStride: 1024, DestinationStride: 512}}},
		{Bytes: 1000, Loops: []plan.Loop{{Count: 7, SourceStride: 1000, DestinationStride: 1003}}},
		{Bytes: 96 << 10},
		{Bytes: 512, Loops: []plan.Loop{{Count: size / 1024, SourceStride: 1024, DestinationStride: 1024}}},
		{Bytes: 512, Loops: []plan.Loop{{Count: 3, SourceStride: size / 3, DestinationStride: size / 3}, {Count: 4, SourceStride: 2048, DestinationStride: 2048}, {Count: size / 24576, SourceStride: 8192, DestinationStride: 8192}}},
	} {
		got, want := make([]byte, size), make([]byte, size)
		c.Reset()
		c.Use(got, src)
		if c.how()&streamed != 0 {
			t.Fatalf("%+v: streams from the first byte on", run)
		}
		reach := run.Bytes
		for _, l := range run.Loops {
			reach += (l.Count - 1) * max(l.SourceStride, l.DestinationStride)
		}
		total := int64(0)
		for at := int64(0); at+reach <= size; at += reach {
			s := stamp.Segment{Run: &run, SourceOffset: at, DestinationOffset: at}
			if err := Copy(want, src, &s); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				var n int64
				var err error
				if n, done, err = c.Add(&s); err != nil {
					t.Fatal(err)
				}
				if n > MaxBytes || c.bytes > MaxBytes {
					t.Fatalf("%+v: a part of %d bytes, %d listed", run, n, c.bytes)
				}
				total += n
			}
		}
		c.Flush()
		if !bytes.Equal(got, want) {
			t.Errorf("%+v: copied wrongly", run)
		}
		if streams := c.how()&streamed != 0; streams != (total >= streamFrom) || total == 0 {
			t.Errorf("%+v: after %d bytes: streamed is %v", run, total, streams)
		}
		c.Use(got, src)
		if streams := c.how()&streamed != 0; streams != (total >= streamFrom) {
			t.Errorf("%+v: other memory began another transfer", run)
		}
	}
}

// Any list that lies inside both sides and does not overlap itself is copied
// as the twin does, in every manner.
func FuzzList(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 1, 0, 64, 0, 2, 255, 7, 33})
	f.Add(bytes.Repeat([]byte{0, 0, 3, 1, 0, 1}, 9))
	f.Add(bytes.Repeat([]byte{64, 9, 5, 200, 0, 35}, 5))
	f.Fuzz(func(t *testing.T, b []byte) {
		const size = 64 << 10
		var list []piece
		for d := int64(0); len(b) >= 6 && len(list) < MaxPieces; b = b[6:] {
			gap, o, n := int64(b[0]), int64(binary.LittleEndian.Uint16(b[1:])), int64(binary.LittleEndian.Uint16(b[4:]))%9000
			d += gap
			o = min(o+int64(b[3]), size-1)
			n = min(max(n, 1), size-o, size-d)
			if n < 1 {
				break
			}
			list = append(list, piece{d, o, n})
			d += n
		}
		src := make([]byte, size)
		for k := range src {
			src[k] = byte(k*7 + k>>8 + 1)
		}
		want := make([]byte, size)
		bytewise(want, src, list)
		for _, m := range manners() {
			got := make([]byte, size)
			copyWith(got, src, list, m.how, m.vectors)
			if !bytes.Equal(got, want) {
				t.Fatalf("%v: %d pieces: copied wrongly", m, len(list))
			}
		}
	})
}
