package move_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// The copier must not hold up the garbage collector: collections while it
// copies large pieces take about what they take while it is idle. The bound is
// a ratio within this run and generous, with a floor for the noise of a busy
// machine; a loop of unbounded copies is two to four orders of magnitude over
// it (each collection then waits for whole copies, over and over).
func TestCopyingDoesNotStopTheWorld(t *testing.T) {
	if testing.Short() {
		t.Skip("a timing test")
	}
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor: every collection waits for its turn")
	}
	const size = 32 << 20
	src, dst := make([]byte, size), make([]byte, size)
	segments := []stamp.Segment{
		{Run: &plan.Run{Bytes: size}},
		{Run: &plan.Run{Bytes: 512, Loops: []plan.Loop{{Count: size / 1024, SourceStride: 1024, DestinationStride: 1024}}}},
	}
	collect := func() time.Duration { // median of stopping the world, with what the collector does then
		var d []time.Duration
		for range 15 {
			began := time.Now()
			runtime.GC()
			d = append(d, time.Since(began))
		}
		slices.Sort(d)
		return d[len(d)/2]
	}
	idle := collect()
	// Whole segments, and lists that are collected over segments and flushed.
	var list move.Copier
	short := stamp.Segment{Run: &plan.Run{Bytes: 512, Loops: []plan.Loop{{Count: 16, SourceStride: 1024, DestinationStride: 1024}}}}
	ways := []func() error{
		func() error { return move.Copy(dst, src, &segments[0]) },
		func() error { return move.Copy(dst, src, &segments[1]) },
		func() error {
			list.Reset() // each time: the first pieces stay in the cache, the others are streamed
			list.Use(dst, src)
			for short.SourceOffset = 0; short.SourceOffset < size; short.SourceOffset += 16 << 10 {
				short.DestinationOffset = short.SourceOffset
				if _, done, err := list.Add(&short); err != nil || !done {
					return fmt.Errorf("added: %v, %w", done, err)
				}
			}
			list.Flush()
			return nil
		},
		func() error { // long pieces, in parts
			list.Reset()
			list.Use(dst, src)
			for {
				if _, done, err := list.Add(&segments[0]); done || err != nil {
					return err
				}
			}
		},
	}
	for i, way := range ways {
		var stop atomic.Bool
		var copies atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for !stop.Load() {
				if err := way(); err != nil {
					t.Error(err)
					return
				}
				copies.Add(1)
			}
		})
		for copies.Load() == 0 && !t.Failed() {
			runtime.Gosched()
		}
		busy := collect()
		stop.Store(true)
		wg.Wait()
		t.Logf("way %d: a collection takes %v idle, %v while copying", i, idle, busy)
		if limit := 20*idle + 100*time.Millisecond; busy > limit {
			t.Errorf("way %d: a collection takes %v while copying, %v idle: want at most %v", i, busy, idle, limit)
		}
	}
}
