package move_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// The pieces of the reference case, against a plain loop of copy() over the
// same pieces: x-copy is how many times as fast as that loop they move. A small
// transfer is of 1 MiB between pools that a cache holds.
func BenchmarkPieces(b *testing.B) {
	const pool = 512 << 20
	src, dst := make([]byte, pool), make([]byte, pool)
	for i := 0; i < pool; i += 4096 {
		src[i], dst[i] = 1, 1
	}
	for _, shape := range []struct {
		name           string
		bytes, count   int64
		source, target int64 // strides
		block          int64 // source block
	}{
		{"1MiB", 1 << 20, 1, 0, 0, 2 << 20},
		{"64KiB", 64 << 10, 1, 0, 0, 128 << 10},
		{"8KiB", 8 << 10, 1, 0, 0, 16 << 10},
		{"512B", 512, 16, 1024, 512, 16 << 10},
		{"256B-permute", 256, 32, 1024, 256, 32 << 10},
		{"500B-unaligned", 500, 16, 1000, 500, 16 << 10},
		{"64B", 64, 64, 384, 96, 32 << 10},
		{"16B", 16, 128, 64, 16, 16 << 10},
		{"2B", 2, 512, 256, 2, 128 << 10},
		{"64KiB-small", 64 << 10, 1, 0, 0, 128 << 10},
		{"8KiB-small", 8 << 10, 1, 0, 0, 16 << 10},
		{"512B-small", 512, 16, 1024, 512, 16 << 10},
		{"256B-small", 256, 32, 1024, 256, 32 << 10},
		{"100B-small", 100, 32, 200, 100, 32 << 10},
	} {
		pool, most := int64(pool), int64(128<<20)
		if strings.HasSuffix(shape.name, "small") {
			pool, most = 2<<20, 1<<20
		}
		run := &plan.Run{Bytes: shape.bytes}
		if shape.count > 1 {
			run.Loops = []plan.Loop{{Count: shape.count, SourceStride: shape.source, DestinationStride: shape.target}}
		}
		total := shape.bytes * shape.count
		n := min(pool/shape.block, most/total)
		rng := rand.New(rand.NewPCG(5, 6))
		from, to := rng.Perm(int(pool / shape.block))[:n], rng.Perm(int(pool / shape.block))[:n]
		segments := make([]stamp.Segment, n)
		for i := range segments {
			segments[i] = stamp.Segment{Run: run, SourceOffset: int64(from[i]) * shape.block, DestinationOffset: int64(to[i]) * shape.block}
		}
		b.Run(shape.name, func(b *testing.B) {
			b.SetBytes(2 * total * n)
			turnAbout(b, dst, src, segments, func() {
				for i := range segments {
					o, d := segments[i].SourceOffset, segments[i].DestinationOffset
					for range shape.count {
						copy(dst[d:d+shape.bytes], src[o:o+shape.bytes])
						o += shape.source
						d += shape.target
					}
				}
			})
		})
	}
}

// Transposed layouts, K of a block [head][dim][token] to [head][token][dim] and
// back, against a plain contiguous copy() of as many bytes: x-copy is how many
// times as fast as that.
func BenchmarkTransposes(b *testing.B) {
	const pool, tokens, dim = 256 << 20, 16, 128
	src, dst := make([]byte, pool), make([]byte, pool)
	for i := 0; i < pool; i += 4096 {
		src[i], dst[i] = 1, 1
	}
	for _, width := range []int64{1, 2, 4} {
		for _, shape := range []struct {
			name  string
			loops []plan.Loop
		}{
			{"dim-token", []plan.Loop{{Count: tokens, SourceStride: width, DestinationStride: 4 * dim * width}, {Count: 4 * dim, SourceStride: tokens * width, DestinationStride: width}}},
			{"token-dim", []plan.Loop{{Count: tokens, SourceStride: 4 * dim * width, DestinationStride: width}, {Count: 4 * dim, SourceStride: width, DestinationStride: tokens * width}}},
		} {
			total := 4 * dim * tokens * width
			run := &plan.Run{Bytes: width, Loops: shape.loops}
			n := pool / total
			rng := rand.New(rand.NewPCG(7, 8))
			from, to := rng.Perm(int(n)), rng.Perm(int(n))
			segments := make([]stamp.Segment, n)
			for i := range segments {
				segments[i] = stamp.Segment{Run: run, SourceOffset: int64(from[i]) * total, DestinationOffset: int64(to[i]) * total}
			}
			b.Run(fmt.Sprintf("%s-%dB", shape.name, width), func(b *testing.B) {
				b.SetBytes(2 * total * n)
				turnAbout(b, dst, src, segments, func() { copy(dst, src) })
			})
		}
	}
}

// turnAbout moves segments and then does the plain thing, again and again, in the
// thread's own processor time: neighbours on the machine disturb both alike.
func turnAbout(b *testing.B, dst, src []byte, segments []stamp.Segment, other func()) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var c move.Copier
	var ours, plain time.Duration
	for b.Loop() {
		began := processorTime(b)
		c.Reset()
		c.Use(dst, src)
		for i := range segments {
			for done := false; !done; {
				var err error
				if _, done, err = c.Add(&segments[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
		c.Flush()
		between := processorTime(b)
		other()
		ours += between - began
		plain += processorTime(b) - between
	}
	b.ReportMetric(float64(plain)/float64(ours), "x-copy")
}

func processorTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
