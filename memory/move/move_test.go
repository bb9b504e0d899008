package move

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// twin lists the byte pairs of a segment in canonical order, the dumb way.
func twin(s *stamp.Segment) (source, destination []int64) {
	n := s.Run.Bytes * max(s.Blocks, 1)
	var walk func(i int, a, b int64)
	walk = func(i int, a, b int64) {
		if i == len(s.Run.Loops) {
			for k := range n {
				source, destination = append(source, a+k), append(destination, b+k)
			}
			return
		}
		l := s.Run.Loops[i]
		for k := range l.Count {
			walk(i+1, a+k*l.SourceStride, b+k*l.DestinationStride)
		}
	}
	walk(0, s.SourceOffset, s.DestinationOffset)
	return source, destination
}

// random makes a segment whose destination pieces do not overlap, and the
// sizes of memories that just hold it.
func random(rng *rand.Rand) (s stamp.Segment, source, destination int64) {
	widths := []int64{1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 64, 100, 256}
	run := &plan.Run{Bytes: widths[rng.IntN(len(widths))]}
	if rng.IntN(5) == 0 {
		s.Blocks = 1 + rng.Int64N(4)
	}
	s.Run = run
	width := run.Bytes * max(s.Blocks, 1)
	source, destination = width, width
	var loops []plan.Loop
	if s.Blocks <= 1 {
		for range rng.IntN(4) { // innermost first
			l := plan.Loop{Count: 1 + rng.Int64N(6)}
			l.DestinationStride = destination + rng.Int64N(5)
			l.SourceStride = rng.Int64N(source + 5) // overlapping sources are legal
			destination += (l.Count - 1) * l.DestinationStride
			source += (l.Count - 1) * l.SourceStride
			loops = append([]plan.Loop{l}, loops...)
		}
	}
	run.Loops = loops
	for i := range loops { // some loops run backwards
		l := &loops[i]
		if rng.IntN(4) == 0 {
			s.DestinationOffset += (l.Count - 1) * l.DestinationStride
			l.DestinationStride = -l.DestinationStride
		}
		if rng.IntN(4) == 0 {
			s.SourceOffset += (l.Count - 1) * l.SourceStride
			l.SourceStride = -l.SourceStride
		}
	}
	a, b := rng.Int64N(20), rng.Int64N(20)
	s.SourceOffset += a
	s.DestinationOffset += b
	return s, source + a, destination + b
}

// copy moves a whole segment.
func (c *Copier) copy(dst, src []byte, s *stamp.Segment) (int64, error) {
	c.Use(dst, src)
	total := int64(0)
	for {
		n, done, err := c.Add(s)
		total += n
		if done || err != nil {
			c.Flush()
			return total, err
		}
	}
}

func fill(n int64, rng *rand.Rand) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestCopyAndPackEqualTheTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var copier Copier
	for i := range 20_000 {
		s, sn, dn := random(rng)
		src, dst := fill(sn, rng), fill(dn+9, rng)
		want := bytes.Clone(dst)
		var packed []byte
		from, to := twin(&s)
		for k := range from {
			want[to[k]] = src[from[k]]
			packed = append(packed, src[from[k]])
		}
		before := bytes.Clone(dst)
		if err := Copy(dst[:dn], src, &s); err != nil {
			t.Fatalf("segment %d %+v %+v: %v", i, s, *s.Run, err)
		}
		if !bytes.Equal(dst, want) {
			t.Fatalf("segment %d %+v %+v: copied wrongly", i, s, *s.Run)
		}
		again := bytes.Clone(before)
		if n, err := copier.copy(again[:dn], src, &s); err != nil || n != Total(&s) || !bytes.Equal(again, want) {
			t.Fatalf("segment %d %+v %+v: copied wrongly by the copier: %d, %v", i, s, *s.Run, n, err)
		}
		if int64(len(packed)) != Total(&s) || int64(len(from)) != Pieces(&s)*width(&s) {
			t.Fatalf("segment %d: total %d pieces %d, want %d bytes", i, Total(&s), Pieces(&s), len(packed))
		}

		// Gathered through buffers of any size, scattered through others.
		var at Position
		var stream []byte
		for done := false; !done; {
			buf := make([]byte, 1+rng.IntN(40))
			var n int64
			n, done = Gather(buf, src, &s, &at)
			stream = append(stream, buf[:n]...)
		}
		if !bytes.Equal(stream, packed) {
			t.Fatalf("segment %d %+v %+v: gathered wrongly", i, s, *s.Run)
		}
		at = Position{}
		for done := false; !done; {
			var n int64
			n, done = Scatter(before[:dn], stream[:min(len(stream), 1+rng.IntN(40))], &s, &at)
			stream = stream[n:]
		}
		if len(stream) > 0 || !bytes.Equal(before, want) {
			t.Fatalf("segment %d %+v %+v: scattered wrongly", i, s, *s.Run)
		}
	}
}

// Segments collected over one another arrive as if each had been copied alone.
func TestCopierOverSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const size = 4 << 20
	src := fill(size, rng)
	for round := range 40 {
		got, want := make([]byte, size), make([]byte, size)
		var c Copier
		c.Use(got, src)
		total, d := int64(0), int64(0)
		for range 50 { // destinations one after another, so that none overlap
			run := &plan.Run{Bytes: 1 + rng.Int64N(3000)}
			for range rng.IntN(3) {
				run.Loops = append(run.Loops, plan.Loop{Count: 1 + rng.Int64N(4), SourceStride: rng.Int64N(5000)})
			}
			extent := run.Bytes
			for i := len(run.Loops) - 1; i >= 0; i-- {
				run.Loops[i].DestinationStride = extent
				extent *= run.Loops[i].Count
			}
			for range 1 + rng.IntN(3) {
				s := stamp.Segment{Run: run, SourceOffset: rng.Int64N(size / 2), DestinationOffset: d}
				if d += extent; d > size {
					break
				}
				if err := Copy(want, src, &s); err != nil {
					t.Fatal(err)
				}
				for done := false; !done; {
					n, last, err := c.Add(&s)
					if err != nil {
						t.Fatal(err)
					}
					total += n
					done = last
				}
			}
		}
		c.Flush()
		if !bytes.Equal(got, want) {
			t.Fatalf("round %d: copied wrongly", round)
		}
		if total == 0 {
			t.Fatal("nothing was moved")
		}
	}
}

// A step never moves more than its bounds, whatever the segment.
func TestStepIsBounded(t *testing.T) {
	for _, run := range []plan.Run{
		{Bytes: 5 << 20},
		{Bytes: 3 << 20, Loops: []plan.Loop{{Count: 2, SourceStride: 3 << 20, DestinationStride: 3 << 20}}},
		{Bytes: 2, Loops: []plan.Loop{{Count: 9, SourceStride: 4096, DestinationStride: 4096}, {Count: 2048, SourceStride: 2, DestinationStride: 2}}},
		{Bytes: 700 << 10, Loops: []plan.Loop{{Count: 5, SourceStride: 700 << 10, DestinationStride: 700 << 10}}},
	} {
		s := stamp.Segment{Run: &run}
		src, dst := fill(8<<20, rand.New(rand.NewPCG(3, 4))), make([]byte, 8<<20)
		var at Position
		total, steps := int64(0), 0
		for done := false; !done; steps++ {
			was := at
			var n int64
			n, done = Step(dst, src, &s, &at)
			if n < 1 || n > MaxBytes || at.Piece-was.Piece > MaxPieces {
				t.Fatalf("%+v: a step of %d bytes, %d pieces", run, n, at.Piece-was.Piece)
			}
			total += n
		}
		if total != Total(&s) || steps < 2 {
			t.Errorf("%+v: %d bytes in %d steps, want %d", run, total, steps, Total(&s))
		}
		if !bytes.Equal(dst[:Total(&s)], src[:Total(&s)]) && run.Bytes > 2 {
			t.Errorf("%+v: copied wrongly", run)
		}
	}
}

func TestCheckRefusesWhatDoesNotFit(t *testing.T) {
	const size = 1 << 20
	loops := func(l ...plan.Loop) []plan.Loop { return l }
	for _, c := range []struct {
		name  string
		s     stamp.Segment
		side  string // "" is fine
		field string
	}{
		{"whole", stamp.Segment{Run: &plan.Run{Bytes: size}}, "", ""},
		{"last byte", stamp.Segment{Run: &plan.Run{Bytes: 1}, SourceOffset: size - 1, DestinationOffset: size - 1}, "", ""},
		{"one past", stamp.Segment{Run: &plan.Run{Bytes: 2}, SourceOffset: size - 1}, "source", "end"},
		{"one past there", stamp.Segment{Run: &plan.Run{Bytes: 2}, DestinationOffset: size - 1}, "destination", "end"},
		{"negative", stamp.Segment{Run: &plan.Run{Bytes: 2}, SourceOffset: -1}, "source", "offset"},
		{"unknown side", stamp.Segment{Run: &plan.Run{Bytes: 2}, DestinationOffset: math.MinInt64}, "destination", "offset"},
		{"far", stamp.Segment{Run: &plan.Run{Bytes: 2}, SourceOffset: math.MaxInt64}, "source", "offset"},
		{"no bytes", stamp.Segment{Run: &plan.Run{}}, "source", "bytes"},
		{"huge bytes", stamp.Segment{Run: &plan.Run{Bytes: math.MaxInt64}, SourceOffset: 1}, "source", "end"},
		{"blocks fit", stamp.Segment{Run: &plan.Run{Bytes: size / 4}, Blocks: 4}, "", ""},
		{"blocks do not", stamp.Segment{Run: &plan.Run{Bytes: size / 4}, Blocks: 5}, "source", "blocks"},
		{"blocks overflow", stamp.Segment{Run: &plan.Run{Bytes: 1 << 40}, Blocks: 1 << 40}, "source", "blocks"},
		{"blocks with loops", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 1})}, Blocks: 2}, "source", "blocks"},
		{"loop fits", stamp.Segment{Run: &plan.Run{Bytes: 16, Loops: loops(plan.Loop{Count: size / 16, SourceStride: 16, DestinationStride: 16})}}, "", ""},
		{"loop does not", stamp.Segment{Run: &plan.Run{Bytes: 17, Loops: loops(plan.Loop{Count: size / 16, SourceStride: 16, DestinationStride: 16})}}, "source", "end"},
		{"no count", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 0})}}, "source", "count"},
		{"stride overflow", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: math.MaxInt64, SourceStride: math.MaxInt64})}}, "source", "stride"},
		{"least stride", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 2, SourceStride: math.MinInt64})}}, "source", "stride"},
		{"backwards fits", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 2, SourceStride: -8})}, SourceOffset: 8}, "", ""},
		{"backwards does not", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 2, SourceStride: -8})}, SourceOffset: 7}, "source", "offset"},
		{"loops add up", stamp.Segment{Run: &plan.Run{Bytes: 1, Loops: loops(plan.Loop{Count: 2, SourceStride: size - 10}, plan.Loop{Count: 2, SourceStride: size - 10})}}, "source", "stride"},
	} {
		err := Check(&c.s, size, size)
		var b *BoundsError
		switch {
		case c.side == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.side != "" && (!errors.As(err, &b) || b.Side != c.side || b.Field != c.field):
			t.Errorf("%s: got %v, want the %s's %s", c.name, err, c.side, c.field)
		}
		if c.side == "" {
			continue
		}
		dst := make([]byte, size)
		if Copy(dst, make([]byte, size), &c.s) == nil {
			t.Errorf("%s: copied", c.name)
		}
		if _, err := new(Copier).copy(dst, make([]byte, size), &c.s); !errors.As(err, &b) {
			t.Errorf("%s: the copier says %v", c.name, err)
		}
	}
	if err := Check(&stamp.Segment{Run: &plan.Run{Bytes: 4}, DestinationOffset: -1}, 4, -1); err != nil {
		t.Errorf("an unknown side was checked: %v", err)
	}
}

// A segment that Check lets pass never panics and never writes outside what
// the twin says; one that it refuses is outside by the twin's account too.
func FuzzCheck(f *testing.F) {
	f.Add(int64(0), int64(0), int64(8), int64(1), int64(2), int64(8), int64(8), int64(3), int64(16), int64(16))
	f.Add(int64(16), int64(5), int64(4), int64(0), int64(2), int64(-8), int64(9), int64(1), int64(-1), int64(7))
	f.Add(int64(0), int64(0), int64(math.MaxInt64), int64(3), int64(math.MaxInt64), int64(math.MinInt64), int64(1), int64(1), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, so, do, n, blocks, c1, s1, d1, c2, s2, d2 int64) {
		const size = 512
		run := &plan.Run{Bytes: n}
		if c1 != 0 || c2 != 0 {
			run.Loops = []plan.Loop{{Count: c1, SourceStride: s1, DestinationStride: d1}, {Count: c2, SourceStride: s2, DestinationStride: d2}}
		}
		s := stamp.Segment{Run: run, SourceOffset: so, DestinationOffset: do, Blocks: blocks}
		err := Check(&s, size, size)
		tiny := n >= 1 && n <= size && c1 <= 64 && c2 <= 64 && (len(run.Loops) == 0 || c1 >= 1 && c2 >= 1) && blocks <= 64 && (blocks <= 1 || len(run.Loops) == 0)
		if !tiny {
			if err == nil && (n > size || n < 1) {
				t.Fatalf("%+v %+v passed", s, *run)
			}
			if err == nil { // long loops in place: legal, but not for the twin
				var at Position
				Step(make([]byte, size), make([]byte, size), &s, &at)
			}
			return
		}
		far := false
		for _, v := range []int64{so, do, s1, d1, s2, d2} {
			far = far || v > 1<<40 || v < -1<<40
		}
		if far {
			if err == nil {
				var at Position
				Step(make([]byte, size), make([]byte, size), &s, &at)
			}
			return
		}
		from, to := twin(&s)
		inside := true
		for k := range from {
			inside = inside && from[k] >= 0 && from[k] < size && to[k] >= 0 && to[k] < size
		}
		if _, again := new(Copier).copy(make([]byte, size), make([]byte, size), &s); (again == nil) != (err == nil) {
			t.Fatalf("%+v %+v: Check says %v, the copier %v", s, *run, err, again)
		}
		if inside != (err == nil) {
			t.Fatalf("%+v %+v: the twin says inside: %v, Check says %v", s, *run, inside, err)
		}
		if err != nil {
			return
		}
		src, dst := bytes.Repeat([]byte{1}, size), make([]byte, size)
		if err := Copy(dst, src, &s); err != nil {
			t.Fatal(err)
		}
		written := map[int64]bool{}
		for _, k := range to {
			written[k] = true
		}
		for k, v := range dst {
			if (v == 1) != written[int64(k)] {
				t.Fatalf("%+v %+v: byte %d", s, *run, k)
			}
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	src, dst := make([]byte, 1<<16), make([]byte, 1<<16)
	s := stamp.Segment{Run: &plan.Run{Bytes: 16, Loops: []plan.Loop{{Count: 8, SourceStride: 4096, DestinationStride: 2048}, {Count: 16, SourceStride: 64, DestinationStride: 32}}}}
	var at Position
	var c Copier
	if n := testing.AllocsPerRun(100, func() {
		c.Use(dst, src)
		if _, _, err := c.Add(&s); err != nil {
			t.Fatal(err)
		}
		c.Flush()
		if err := Copy(dst, src, &s); err != nil {
			t.Fatal(err)
		}
		at = Position{}
		Gather(dst, src, &s, &at)
		at = Position{}
		Scatter(dst, src, &s, &at)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestGuardLetsOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); fmt.Sprint(r) != "bug" {
			t.Errorf("recovered %v", r)
		}
	}()
	if err := Guard(func() error { return errors.New("plain") }); err == nil || err.Error() != "plain" {
		t.Errorf("got %v", err)
	}
	Guard(func() error { panic("bug") })
}
