package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
	"github.com/kvferry/kvferry/transport/shm"
)

func benchCopyCommand(a *app) *cobra.Command {
	var flags benchFlags
	var pool int64
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "copying one rank's request of the 70B pair, against Go's copy of the same pieces and a contiguous copy",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if pool < 1 || pool > 256 {
				return usagef("--pool %d: want 1 to 256 GiB", pool)
			}
			return a.benchCopy(cmd.Context(), &flags, pool<<30)
		},
	}
	flags.add(cmd, 7)
	cmd.Flags().Int64Var(&pool, "pool", 1, "at least `GIB` of memory a pool; should be four times the last-level cache")
	return cmd
}

// contiguous is the roofline: one thread copies in 1 MiB parts, through the
// same copier as the providers.
type contiguous struct {
	dst, src []byte
	seg      stamp.Segment
	copier   move.Copier
}

func (c *contiguous) run() error {
	c.copier.Reset()
	c.copier.Use(c.dst, c.src)
	defer c.copier.Flush()
	return add(&c.copier, &c.seg)
}

// add takes a whole segment.
func add(c *move.Copier, s *stamp.Segment) error {
	for {
		if _, done, err := c.Add(s); done || err != nil {
			return err
		}
	}
}

// newContiguous makes a roofline on memory of its own.
func newContiguous(bytes int64) (*contiguous, func(), error) {
	dst, freeDst, err := anonymous(bytes)
	if err != nil {
		return nil, nil, err
	}
	src, freeSrc, err := anonymous(bytes)
	if err != nil {
		freeDst()
		return nil, nil, err
	}
	return between(dst, src), func() { freeDst(); freeSrc() }, nil
}

func between(dst, src []byte) *contiguous {
	n := int64(min(len(dst), len(src)))
	return &contiguous{dst: dst, src: src, seg: stamp.Segment{Run: &plan.Run{Bytes: n}, Blocks: 1}}
}

// anonymous maps pre-faulted memory outside the garbage-collected heap.
func anonymous(bytes int64) ([]byte, func(), error) {
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes: %w", bytes, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // small pages do as well
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b, func() { _ = unix.Munmap(b) }, nil
}

// copyCase is one shape of the reference case in memory: the pool of source
// rank 0 and of destination rank 1, and a request with random tables.
type copyCase struct {
	name     string
	owner    *host.Owner
	src, dst *host.Pool
	st       *stamp.Stamper
	req      *stamp.Request
	key      stamp.EdgeKey
	bytes    int64
	pieces   []piece
	c        stamp.Cursor
	copier   move.Copier
}

// piece is one contiguous copy, for the plain loop: what a list of descriptors
// holds.
type piece struct {
	region       int32
	bytes        int32
	source, dest int64
}

// open makes the pools. Pools hold at least the given bytes.
func (a *app) open(ctx context.Context, pol *chooser, name, source, destination string, layers int, pool int64, seed uint64) (*copyCase, error) {
	perBlock := int64(layers) * 2 * referenceBlock * 128 * 2 // of one head, k and v
	least := int64(referenceTokens / referenceBlock)
	sourceBlocks, destinationBlocks := max(least, (pool+4*perBlock-1)/(4*perBlock)), max(least, (pool+2*perBlock-1)/(2*perBlock))
	f, err := pairfile.Parse("reference", reference(layers, int(sourceBlocks), int(destinationBlocks), source, destination))
	if err != nil {
		return nil, err
	}
	pair, _, err := f.Pair(nil)
	if err != nil {
		return nil, err
	}
	assignments, err := pol.remap(ctx, pair)
	if err != nil {
		return nil, err
	}
	pl, err := build.Build(pair, assignments, nil, plan.DefaultBudget())
	if err != nil {
		return nil, err
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return nil, err
	}
	c := &copyCase{name: name, owner: &host.Owner{}, key: stamp.EdgeKey{Source: 0, Destination: 1}}
	if c.st, err = stamp.New(proven); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	c.req = &stamp.Request{ID: name, Plan: proven.Digest(), Source: [][]uint32{table(rng, int(sourceBlocks))}, Destination: [][]uint32{table(rng, int(destinationBlocks))}, To: referenceTokens}
	if source == "flat" {
		for _, table := range [][]uint32{c.req.Source[0], c.req.Destination[0]} {
			for i := range table {
				table[i] = uint32(i)
			}
		}
	}
	if err := c.st.Validate(c.req); err != nil {
		return nil, err
	}
	a.step("%s: open pools", name)
	if c.src, err = openPool(c.owner, &pair.Source, 0); err != nil {
		return nil, err
	}
	if c.dst, err = openPool(c.owner, &pair.Destination, 1); err != nil {
		c.close()
		return nil, err
	}
	return c, c.list()
}

func openPool(o *host.Owner, s *plan.Side, rank int) (*host.Pool, error) {
	l := s.Ranks[rank][0]
	g := host.Group{Blocks: s.Groups[0].Blocks}
	for _, r := range l.Regions {
		g.Regions = append(g.Regions, host.Region{Name: r.Name, Bytes: r.Bytes})
	}
	return o.Open(host.Spec{Engine: s.Engine, Rank: rank, Groups: []host.Group{g}}, host.Options{})
}

// close frees the pools; a second Close of one is reported by the pool itself
// and is our own bug, so it is not hidden.
func (c *copyCase) close() error {
	var first error
	for _, p := range []*host.Pool{c.src, c.dst} {
		if p != nil {
			if err := p.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// list fills the plain loop's list of pieces, in the order of the segments.
func (c *copyCase) list() error {
	if err := c.st.Cursor(c.req, c.key, &c.c); err != nil {
		return err
	}
	var s stamp.Segment
	for c.c.Next(&s) {
		c.bytes += move.Total(&s)
		r := s.Run
		width := r.Bytes * max(s.Blocks, 1)
		each(r.Loops, s.SourceOffset, s.DestinationOffset, func(so, do int64) {
			c.pieces = append(c.pieces, piece{int32(r.SourceRegion), int32(width), so, do})
		})
	}
	return nil
}

// each walks loops, outermost first.
func each(loops []plan.Loop, so, do int64, f func(so, do int64)) {
	if len(loops) == 0 {
		f(so, do)
		return
	}
	l := loops[0]
	for i := range l.Count {
		each(loops[1:], so+i*l.SourceStride, do+i*l.DestinationStride, f)
	}
}

// regions are the buffers of a pool by region.
func regions(p *host.Pool) [][]byte {
	var out [][]byte
	for _, buffers := range p.Rank().Buffers {
		for _, b := range buffers {
			out = append(out, b.Bytes())
		}
	}
	return out
}

// ours moves the request as the providers' workers do: segment by segment
// through the copy seam, with nothing expanded beforehand.
func (c *copyCase) ours(dst, src [][]byte) func() error {
	return func() error {
		if err := c.st.Cursor(c.req, c.key, &c.c); err != nil {
			return err
		}
		c.copier.Reset()
		var s stamp.Segment
		to, from := -1, -1
		for c.c.Next(&s) {
			if s.Run.DestinationRegion != to || s.Run.SourceRegion != from {
				c.copier.Flush()
				to, from = s.Run.DestinationRegion, s.Run.SourceRegion
				c.copier.Use(dst[to], src[from])
			}
			if err := add(&c.copier, &s); err != nil {
				return err
			}
		}
		c.copier.Flush()
		return nil
	}
}

// plain copies the list of pieces with Go's copy, at most 4,096 a call so that
// the garbage collector gets in.
func (c *copyCase) plain(dst, src [][]byte) func() error {
	return func() error {
		for i := 0; i < len(c.pieces); i += move.MaxPieces {
			copyPieces(dst, src, c.pieces[i:min(i+move.MaxPieces, len(c.pieces))])
		}
		return nil
	}
}

//go:noinline
func copyPieces(dst, src [][]byte, list []piece) {
	for i := range list {
		p := &list[i]
		n := int64(p.bytes)
		copy(dst[p.region][p.dest:p.dest+n], src[p.region][p.source:p.source+n])
	}
}

// fill writes words that name their place, so that no two are equal.
func fill(regions [][]byte) {
	word := uint64(1)
	for _, r := range regions {
		for i := 0; i+8 <= len(r); i += 8 {
			binary.LittleEndian.PutUint64(r[i:], word*0x9E3779B97F4A7C15)
			word++
		}
	}
}

// verify clears the destination, runs the variant once and compares every
// piece.
func (c *copyCase) verify(name string, dst, src [][]byte, run func() error) error {
	for _, r := range dst {
		clear(r)
	}
	if err := run(); err != nil {
		return err
	}
	for _, p := range c.pieces {
		n := int64(p.bytes)
		if string(dst[p.region][p.dest:p.dest+n]) != string(src[p.region][p.source:p.source+n]) {
			return fmt.Errorf("bench: %s left wrong bytes in region %d at %d", name, p.region, p.dest)
		}
	}
	return nil
}

// shape is a row of section 12 of the design: a piece size and its floor
// against the contiguous copy.
type shape struct {
	name, source, destination string
	target, floor             float64
}

func (a *app) benchCopy(ctx context.Context, flags *benchFlags, pool int64) error {
	layers := flags.layers()
	if flags.small {
		pool = 0
	}
	if m := machine(); !flags.small && m.MemoryAvailable > 0 && m.MemoryAvailable < 2*pool+pool/2 {
		return fmt.Errorf("bench copy: two pools of %s need more than the %s that are available: use --small", size(pool), size(m.MemoryAvailable))
	}
	pol, err := (&policyFlags{name: defaultPolicy}).open(ctx)
	if err != nil {
		return err
	}
	defer pol.close()
	r := &report{Bench: "bench copy", Small: flags.small, Rounds: flags.rounds, Verified: true,
		Case: fmt.Sprintf("%d layers, 8 kv heads, dim 128, bf16, block 16, TP 2 -> 4, %d tokens, random tables, 1 thread", layers, referenceTokens)}
	for _, s := range []shape{
		{"HND -> HND", "hnd", "hnd", 0.70, 0.5},
		{"NHD -> NHD", "nhd", "nhd", 0.65, 0.45},
		{"NHD -> HND", "nhd", "hnd", 0.55, 0.4},
	} {
		rows, pages, err := a.copyRows(ctx, pol, s, layers, pool, flags)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
		r.Memory = pages
	}
	return a.report(r)
}

// floorAgainstCopy is what the providers must reach of Go's copy of the same
// pieces, which is what anybody would write: where this runtime has no copy of
// its own it is Go's, and slower by no more than noise, as are the small
// transfers that a cache holds.
func floorAgainstCopy(small bool) float64 {
	if move.Vectors() && !small {
		return 1
	}
	return 0.9
}

func (a *app) copyRows(ctx context.Context, pol *chooser, s shape, layers int, pool int64, flags *benchFlags) (rows []row, pages string, err error) {
	c, err := a.open(ctx, pol, s.name, s.source, s.destination, layers, pool, flags.seed)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if e := c.close(); e != nil && err == nil {
			err = e
		}
	}()
	dst, src := regions(c.dst), regions(c.src)
	fill(src)
	flat, err := roofline(c, dst, src)
	if err != nil {
		return nil, "", err
	}
	variants := []variant{{"contiguous", 1, flat}, {"Go copy()", 1, c.plain(dst, src)}, {"copy seam", 1, c.ours(dst, src)}}
	for _, name := range []string{loop.Name, shm.Name} {
		source, destination, err := providers(name)
		if err != nil {
			return nil, "", err
		}
		between, err := connect(ctx, c, source, destination)
		if err != nil {
			return nil, "", fmt.Errorf("bench over %s: %w", name, err)
		}
		defer func() {
			if e := between.close(); e != nil && err == nil {
				err = e
			}
		}()
		variants = append(variants, variant{name, 1, between.run})
	}
	for i := range variants {
		variants[i].name = fmt.Sprintf("%s, %d B, %s", s.name, c.pieces[0].bytes, variants[i].name)
	}
	t, err := a.interleave(ctx, flags.rounds, variants...)
	if err != nil {
		return nil, "", err
	}
	n := int64(len(c.pieces))
	for i, v := range variants {
		if i == 0 {
			rows = append(rows, moved(v.name, t[i], c.bytes, 0))
			continue
		}
		a.step("verify %s", v.name)
		if err := c.verify(v.name, dst, src, v.run); err != nil {
			return nil, "", err
		}
		r := moved(v.name, t[i], c.bytes, n)
		if i > 2 { // the providers are what is promised; the seam by itself shows what they add
			r = r.against(judge("Go copy() of the same pieces", t[1].median/t[i].median, "least", 1.1, floorAgainstCopy(flags.small)),
				judge("contiguous copy", t[0].median/t[i].median, "least", s.target, s.floor))
		}
		rows = append(rows, r)
	}
	return rows, c.dst.Outcome().Pages + " pages", nil
}

// providers makes two ends of a transport that copies on one goroutine.
func providers(name string) (source, destination transport.Provider, err error) {
	if name == loop.Name {
		var n loop.Network
		return n.New(loop.Options{Workers: 1}), n.New(loop.Options{Workers: 1}), nil
	}
	if source, err = shm.New(shm.Options{Workers: 1}); err != nil {
		return nil, nil, err
	}
	if destination, err = shm.New(shm.Options{Workers: 1}); err != nil {
		_ = source.Close() // the first error is the one to report
	}
	return source, destination, err
}

// roofline copies as many bytes as the case moves, contiguously, between the
// same pools: region by region from the front.
func roofline(c *copyCase, dst, src [][]byte) (func() error, error) {
	left := c.bytes
	var parts []*contiguous
	for i := range dst {
		n := min(left, int64(len(dst[i])), int64(len(src[i])))
		if n > 0 {
			parts = append(parts, between(dst[i][:n], src[i][:n]))
			left -= n
		}
	}
	if left > 0 {
		return nil, fmt.Errorf("bench %s: the pools are %d bytes smaller than the request", c.name, left)
	}
	return func() error {
		for _, p := range parts {
			if err := p.run(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
