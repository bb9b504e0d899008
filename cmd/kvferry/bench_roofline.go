package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

func benchRooflineCommand(a *app) *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "roofline",
		Short: "what this machine's memory can do on one thread and on two, and what the copy kernel makes of it",
		Long: "roofline copies between two pools that no cache holds: contiguously, which is what\n" +
			"everything else is measured against, and in the pieces that caches are moved in,\n" +
			"in random order, down to single elements that are transposed.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.benchRoofline(cmd.Context(), &flags)
		},
	}
	flags.add(cmd, 7)
	return cmd
}

// cut is a way to cut the bytes of a pool into pieces.
type cut struct {
	name          string
	run           plan.Run
	source, block int64 // bytes that a segment reaches over in the source, and that it moves
	// Targets and floors against the contiguous copy on as many threads, from
	// section 12 of the design.
	target, floor [2]float64
}

// cuts are the pieces of the reference case, and those that need more than
// copying.
func cuts() []cut {
	loop := func(count, source, destination int64) plan.Loop {
		return plan.Loop{Count: count, SourceStride: source, DestinationStride: destination}
	}
	turned := func(width int64) cut { // K of a block, two heads of 128, [dim][token] to [token][dim]
		const tokens, dims = 16, 2 * 128
		return cut{
			fmt.Sprintf("elements of %d B, transposed", width), plan.Run{Bytes: width, Loops: []plan.Loop{loop(tokens, width, dims*width), loop(dims, tokens*width, width)}},
			tokens * dims * width, tokens * dims * width, [2]float64{0.30, 0.30}, [2]float64{0.2, 0.2},
		}
	}
	return []cut{
		{"pieces of 64 KiB", plan.Run{Bytes: 64 << 10}, 64 << 10, 64 << 10, [2]float64{0.95, 0.85}, [2]float64{0.7, 0.7}},
		{"pieces of 8 KiB, every other", plan.Run{Bytes: 8 << 10}, 16 << 10, 8 << 10, [2]float64{0.70, 0.65}, [2]float64{0.5, 0.5}},
		{"pieces of 512 B, every other", plan.Run{Bytes: 512, Loops: []plan.Loop{loop(16, 1024, 512)}}, 16 << 10, 8 << 10, [2]float64{0.65, 0.65}, [2]float64{0.45, 0.45}},
		{"pieces of 256 B, permuted", plan.Run{Bytes: 256, Loops: []plan.Loop{loop(2, 256, 4096), loop(16, 1024, 256)}}, 16 << 10, 8 << 10, [2]float64{0.55, 0.5}, [2]float64{0.4, 0.4}},
		turned(2), turned(4),
	}
}

// lane is one thread's part of the pools.
type lane struct {
	dst, src []byte
	copier   move.Copier
	segments []stamp.Segment
}

// cut fills the lane's list of segments, in random order on both sides.
func (l *lane) cut(c *cut, most int64, rng *rand.Rand) {
	n := min(int64(len(l.src))/c.source, int64(len(l.dst))/c.block, most/c.block)
	from, to := rng.Perm(int(n)), rng.Perm(int(n))
	l.segments = l.segments[:0]
	for i := range n {
		l.segments = append(l.segments, stamp.Segment{Run: &c.run, SourceOffset: int64(from[i]) * c.source, DestinationOffset: int64(to[i]) * c.block})
	}
}

func (l *lane) move() error {
	l.copier.Reset()
	l.copier.Use(l.dst, l.src)
	for i := range l.segments {
		if err := add(&l.copier, &l.segments[i]); err != nil {
			return err
		}
	}
	l.copier.Flush()
	return nil
}

// together runs something on each lane at once.
func together(lanes []*lane, f func(l *lane) error) func() error {
	return func() error {
		errs := make([]error, len(lanes))
		var wg sync.WaitGroup
		for i, l := range lanes[1:] {
			wg.Go(func() { errs[i+1] = f(l) })
		}
		errs[0] = f(lanes[0])
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func (a *app) benchRoofline(ctx context.Context, flags *benchFlags) error {
	pool, most := int64(1<<30), int64(256<<20)
	if flags.small {
		pool, most = 64<<20, 32<<20
	}
	if m := machine(); !flags.small && m.MemoryAvailable > 0 && m.MemoryAvailable < 2*pool+pool/2 {
		return fmt.Errorf("bench roofline: two pools of %s need more than the %s that are available: use --small", size(pool), size(m.MemoryAvailable))
	}
	dst, freeDst, err := anonymous(pool)
	if err != nil {
		return err
	}
	defer freeDst()
	src, freeSrc, err := anonymous(pool)
	if err != nil {
		return err
	}
	defer freeSrc()
	fill([][]byte{src})
	r := &report{Bench: "bench roofline", Small: flags.small, Rounds: flags.rounds, Verified: true,
		Case: fmt.Sprintf("pools of %s, %s a thread, in random order", size(pool), size(most))}
	for threads := 1; threads <= min(2, runtime.NumCPU()); threads++ {
		rows, err := a.rooflineRows(ctx, dst, src, threads, most, flags)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
	}
	return a.report(r)
}

func (a *app) rooflineRows(ctx context.Context, dst, src []byte, threads int, most int64, flags *benchFlags) ([]row, error) {
	all := cuts()
	part := len(src) / threads
	// Each cut has lanes of its own: its segments are made before anything is
	// measured.
	lanes := func(c *cut) []*lane {
		var out []*lane
		for i := range threads {
			l := &lane{dst: dst[i*part : (i+1)*part : (i+1)*part], src: src[i*part : (i+1)*part : (i+1)*part]}
			if c != nil {
				l.cut(c, most, rand.New(rand.NewPCG(flags.seed, uint64(i))))
			}
			out = append(out, l)
		}
		return out
	}
	on := "1 thread"
	if threads > 1 {
		on = fmt.Sprintf("%d threads", threads)
	}
	n := min(most, int64(part))
	whole := cut{run: plan.Run{Bytes: n}, source: n, block: n}
	flat := lanes(&whole)
	variants := []variant{
		{"contiguous copy, " + on, 1, together(flat, (*lane).move)},
		{"Go copy(), " + on, 1, together(flat, func(l *lane) error {
			for at := int64(0); at < n; at += move.MaxBytes { // so that the collector gets in
				goCopy(l.dst[at:min(at+move.MaxBytes, n)], l.src[at:min(at+move.MaxBytes, n)])
			}
			return nil
		})},
	}
	moves := []int64{n, n}
	var cutLanes [][]*lane
	for i := range all {
		ls := lanes(&all[i])
		cutLanes = append(cutLanes, ls)
		variants = append(variants, variant{all[i].name + ", " + on, 1, together(ls, (*lane).move)})
		moves = append(moves, int64(len(ls[0].segments))*all[i].block)
	}
	t, err := a.interleave(ctx, flags.rounds, variants...)
	if err != nil {
		return nil, err
	}
	perByte := func(i int) float64 { return t[i].median / float64(moves[i]) }
	var rows []row
	for i, v := range variants {
		r := moved(v.name, t[i], moves[i]*int64(threads), 0)
		if i >= 2 {
			c := &all[i-2]
			a.step("verify %s", v.name)
			for _, l := range cutLanes[i-2] {
				if err := l.verify(); err != nil {
					return nil, fmt.Errorf("bench %s: %w", v.name, err)
				}
			}
			floor := c.floor[threads-1]
			if !move.Vectors() {
				floor = 0 // Go's copy alone promises nothing of the kind
			}
			r = r.against(judge("contiguous copy on as many threads", perByte(0)/perByte(i), "least", c.target[threads-1], floor))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

//go:noinline
func goCopy(dst, src []byte) { copy(dst, src) }

// verify moves some segments once more into cleared memory and compares every
// byte.
func (l *lane) verify() error {
	few := *l
	few.segments = l.segments[:min(len(l.segments), 200)]
	for i := range few.segments {
		s := &few.segments[i]
		clear(l.dst[s.DestinationOffset : s.DestinationOffset+move.Total(s)])
	}
	if err := few.move(); err != nil {
		return err
	}
	for i := range few.segments {
		s := &few.segments[i]
		var wrong error
		each(s.Run.Loops, s.SourceOffset, s.DestinationOffset, func(so, do int64) {
			if wrong == nil && string(l.dst[do:do+s.Run.Bytes]) != string(l.src[so:so+s.Run.Bytes]) {
				wrong = fmt.Errorf("wrong bytes at %d", do)
			}
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
