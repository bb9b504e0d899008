package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/digest"
)

func benchDigestCommand(a *app) *cobra.Command {
	var flags benchFlags
	var pool int64
	cmd := &cobra.Command{
		Use:   "digest",
		Short: "digests of what lies in a pool, in several layouts, against one thread that reads it",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if pool < 0 || pool > 256 {
				return usagef("--pool %d: want 1 to 256 GiB, or 0", pool)
			}
			return a.benchDigest(cmd.Context(), &flags, pool<<30)
		},
	}
	flags.add(cmd, digestParts)
	cmd.Flags().Int64Var(&pool, "pool", 0, "`GIB` of memory that is digested; 0: four times the last-level cache, and at least 1")
	return cmd
}

// digestParts is how many parts of the pool are measured one by one. They are
// short, so that the best of many says what the machine can do though others
// use it too; and each variant is at another part at a time, so that no part is
// read while a cache still has it.
const digestParts = 40

// digestPool is how much memory to digest where nothing else is asked for.
func digestPool(m *machineJSON) int64 {
	const gib = 1 << 30
	pool := max((4*m.CacheBytes+gib-1)/gib, 1) * gib
	if m.MemoryAvailable > 0 { // a quarter stays free
		pool = min(pool, max(m.MemoryAvailable*3/4/gib, 1)*gib)
	}
	return pool
}

// lie is rows of one kind and where they lie: each of some layers has two
// components, in blocks of 16 tokens that stand in the table in random order.
type lie struct {
	name    string
	like    geometry.Component
	state   bool
	heads   int
	order   string // below the layer; "component" where the two part
	every   int    // one row in so many
	partial int    // one part in so many
}

const (
	inHND        = "block component head token dim"
	inNHD        = "block component token head dim"
	inTransposed = "block component head dim token"
	inXPacked    = "block component head dim/8 token dim%8"
)

// lies are the cases; the names are stable.
func lies() []lie {
	row := geometry.Component{Heads: 8, Dim: 128, DType: geometry.BF16}
	return []lie{
		{name: "HND, 256 B rows, 8 heads", like: row, heads: 8, order: inHND},
		{name: "NHD, 256 B rows, 8 heads", like: row, heads: 8, order: inNHD},
		{name: "70B HND, 256 B rows, 8 KiB pieces", like: row, heads: 2, order: inHND},
		{name: "[dim][token], 2 B elements", like: row, heads: 8, order: inTransposed},
		{name: "[dim][token], 1 B elements", like: geometry.Component{Heads: 8, Dim: 128, DType: geometry.FP8E4M3}, heads: 8, order: inTransposed},
		{name: "[dim/8][token][8], 2 B elements", like: row, heads: 8, order: inXPacked},
		{name: "states, 32 KiB rows", like: geometry.Component{Heads: 128, Dim: 8192, DType: geometry.FP32}, state: true, heads: 16, order: "slot component channel dim"},
		{name: "HND, sampled 1/64", like: row, heads: 8, order: inHND, every: 64},
		{name: "scales, 4 B rows", like: geometry.Component{Heads: 8, Dim: 1, DType: geometry.FP32}, heads: 8, order: inHND, partial: 4},
	}
}

// extent is the shape of a rank with so many layers and blocks.
func (c *lie) extent(layers, tokens, blocks int) layout.Extent {
	e := layout.Extent{Blocks: blocks, Tokens: tokens, Heads: []int{c.heads, c.heads}, State: c.state}
	if c.state {
		e.Tokens = 1
	}
	for i := range layers {
		e.Layers = append(e.Layers, i)
	}
	for _, name := range []string{"k", "v"} {
		of := c.like
		of.Name = name
		e.Components = append(e.Components, of)
	}
	return e
}

func (c *lie) layout(e layout.Extent) (*layout.Layout, error) {
	s := layout.Spec{Order: layout.Items(layout.Item{Axis: geometry.Layer})}
	for item := range strings.FieldsSeq(c.order) {
		if item == "component" {
			s.Order = append(s.Order, layout.Entry{Component: true})
			continue
		}
		it, err := layout.ParseItem(item)
		if err != nil {
			return nil, err
		}
		s.Order = append(s.Order, layout.Entry{Item: it})
	}
	return s.Resolve(e)
}

// rows are those of a request whose table has every block, in random order.
func (c *lie) rows(l *layout.Layout, memory []byte, rng *rand.Rand) []digest.Rows {
	e := &l.Extent
	var heads []digest.Head
	for i := range c.heads {
		heads = append(heads, digest.Head{Place: i, Number: i})
	}
	var spans []digest.Span
	n := int64(e.Tokens)
	for i, id := range rng.Perm(e.Blocks) {
		at := int64(i) * n
		if c.state { // each is a request's own
			at = int64(i)
		}
		spans = append(spans, digest.Span{Block: uint32(id), Step: 1, Count: n, Entry: at, EntryStep: 1})
	}
	var out []digest.Rows
	for li := range e.Layers {
		for ci := range e.Components {
			out = append(out, digest.Rows{Layout: l, Regions: [][]byte{memory[:l.Regions[0].Bytes]}, Component: ci, Layer: li,
				Name: digest.Name{Component: ci, Layer: e.Layers[li]}, Heads: heads, Spans: spans})
		}
	}
	return out
}

// divide divides what there is into at most digestParts equal parts.
func divide[T any](all []T) [][]T {
	n := max(len(all)/digestParts, 1)
	var out [][]T
	for len(all) >= n {
		out = append(out, all[:n:n])
		all = all[n:]
	}
	return out
}

// summing digests one part after the other, each always with the same outcome.
type summing struct {
	hasher *digest.Hasher
	parts  [][]digest.Rows
	every  int
	next   int
	sums   []uint64 // by part
	known  []bool
}

func newSumming(h *digest.Hasher, parts [][]digest.Rows, every, next int) *summing {
	return &summing{hasher: h, parts: parts, every: max(every, 1), next: next % len(parts), sums: make([]uint64, len(parts)), known: make([]bool, len(parts))}
}

func (s *summing) run() error {
	var sum uint64
	part := s.parts[s.next]
	for i := range part {
		d, err := s.hasher.SumSampled(&part[i], s.every)
		if err != nil {
			return err
		}
		sum += d
	}
	if s.known[s.next] && sum != s.sums[s.next] {
		return fmt.Errorf("bench digest: the same rows gave %016x, then %016x", s.sums[s.next], sum)
	}
	s.sums[s.next], s.known[s.next] = sum, true
	s.next = (s.next + 1) % len(s.parts)
	return nil
}

// reading adds up one part after the other, as the plainest reader would: with
// parts of one piece it is the roofline.
type reading struct {
	parts [][][]byte
	next  int
	sum   uint64 // so that the reading is not left out
}

func newReading(parts [][][]byte, next int) *reading {
	return &reading{parts: parts, next: next % len(parts)}
}

func (r *reading) run() error {
	for _, p := range r.parts[r.next] {
		r.sum += readWords(p)
	}
	r.next = (r.next + 1) % len(r.parts)
	return nil
}

//go:noinline
func readWords(b []byte) uint64 {
	var w, x, y, z uint64
	for len(b) >= 64 {
		a := (*[64]byte)(b)
		w += binary.LittleEndian.Uint64(a[0:]) + binary.LittleEndian.Uint64(a[32:])
		x += binary.LittleEndian.Uint64(a[8:]) + binary.LittleEndian.Uint64(a[40:])
		y += binary.LittleEndian.Uint64(a[16:]) + binary.LittleEndian.Uint64(a[48:])
		z += binary.LittleEndian.Uint64(a[24:]) + binary.LittleEndian.Uint64(a[56:])
		b = b[64:]
	}
	return w + x + y + z
}

// inPieces are the pieces of memory in which the rows of an HND lie is read.
func inPieces(parts [][]digest.Rows) [][][]byte {
	out := make([][][]byte, len(parts))
	for k, part := range parts {
		for i := range part {
			of := &part[i]
			size := int64(len(of.Heads)*of.Layout.Extent.Tokens) * of.Layout.Extent.Components[0].RowBits() / 8
			for _, sp := range of.Spans {
				_, bit := of.Layout.Bit(of.Component, of.Layer, int64(sp.Block), 0, 0, 0)
				out[k] = append(out[k], of.Regions[0][bit/8:bit/8+size])
			}
		}
	}
	return out
}

// sameDigests checks that the same rows have one digest, in full and sampled,
// in every layout of their element's size, with blocks of other sizes and
// random tables, and that a bit that changed is seen.
func sameDigests(h *digest.Hasher, seed uint64) error {
	type kind struct {
		of    geometry.Component
		every int
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	want := map[kind]uint64{}
	for _, c := range lies() {
		if c.state {
			continue
		}
		for _, order := range []string{inHND, inNHD, inTransposed, c.order} {
			for _, tokens := range []int{8, 16, 32} {
				c := c
				c.order, c.heads, c.partial = order, 2, 0
				if order == inXPacked && c.like.Dim%8 != 0 {
					continue
				}
				l, err := c.layout(c.extent(2, tokens, 192/tokens))
				if err != nil {
					return err
				}
				memory := make([]byte, l.Regions[0].Bytes)
				rows := c.rows(l, memory, rng)
				for i := range rows {
					writeCoordinates(&rows[i])
				}
				for _, every := range []int{1, 8} {
					s := newSumming(h, [][]digest.Rows{rows}, every, 0)
					if err := s.run(); err != nil {
						return err
					}
					k := kind{c.like, every}
					if first, ok := want[k]; ok && first != s.sums[0] {
						return fmt.Errorf("bench digest: rows of %s have the digest %016x, and %016x in the order %s with blocks of %d tokens", c.name, first, s.sums[0], order, tokens)
					}
					want[k] = s.sums[0]
				}
				memory[rng.IntN(len(memory))] ^= 1 << rng.IntN(8)
				s := newSumming(h, [][]digest.Rows{rows}, 1, 0)
				if err := s.run(); err != nil {
					return err
				}
				if s.sums[0] == want[kind{c.like, 1}] {
					return fmt.Errorf("bench digest: %s: a bit that changed is not seen", c.name)
				}
			}
		}
	}
	return nil
}

// writeCoordinates writes elements that are made from their coordinates.
func writeCoordinates(r *digest.Rows) {
	c := r.Layout.Extent.Components[r.Component]
	size := c.DType.Bits() / 8
	for _, head := range r.Heads {
		for _, sp := range r.Spans {
			for i := range sp.Count {
				for d := range int64(c.Dim) {
					_, bit := r.Layout.Bit(r.Component, r.Layer, int64(sp.Block), sp.Place+i, int64(head.Place), d)
					word := uint64(r.Name.Component)<<60 | uint64(r.Name.Layer)<<50 | uint64(head.Number)<<40 | uint64(sp.Entry+i)<<20 | uint64(d)
					var b [8]byte
					binary.LittleEndian.PutUint64(b[:], word*0x9E3779B97F4A7C15>>8)
					copy(r.Regions[0][bit/8:], b[:size])
				}
			}
		}
	}
}

func (a *app) benchDigest(ctx context.Context, flags *benchFlags, pool int64) error {
	m := machine()
	layers := flags.layers()
	switch {
	case flags.small:
		pool = 32 << 20
	case pool == 0:
		pool = digestPool(&m)
	}
	if !flags.small && m.MemoryAvailable > 0 && m.MemoryAvailable < pool+pool/4 {
		return fmt.Errorf("bench digest: a pool of %s needs more than the %s that are available: use --small", size(pool), size(m.MemoryAvailable))
	}
	var key digest.Key
	binary.LittleEndian.PutUint64(key[:], flags.seed)
	h := digest.New(key)
	a.step("compare the digests of layouts")
	if err := sameDigests(h, flags.seed); err != nil {
		return err
	}
	a.step("open the pool")
	memory, free, err := anonymous(pool)
	if err != nil {
		return err
	}
	defer free()
	fill([][]byte{memory})

	type measured struct {
		lie
		bytes, rows int64 // of a part
	}
	part := pool / digestParts
	var roof [][][]byte
	for i := range int64(digestParts) {
		roof = append(roof, [][]byte{memory[i*part : (i+1)*part]})
	}
	variants := []variant{{"read, contiguous", 1, newReading(roof, 0).run}}
	// Where each variant begins, as far from the others as there is room.
	begins := func() int { return len(variants) * digestParts / (len(lies()) + 2) }
	var cases []measured
	for _, c := range lies() {
		of := c.extent(layers, referenceBlock, 1)
		block := int64(2*layers*c.heads*of.Tokens) * c.like.RowBits() / 8
		if c.state && block > pool { // of the small case
			of.Layers, block = of.Layers[:1], block/int64(layers)
		}
		of.Blocks = int(pool / block)
		l, err := c.layout(of)
		if err != nil {
			return err
		}
		parts := divide(c.rows(l, memory, rand.New(rand.NewPCG(flags.seed, 2))))
		if c.partial > 1 {
			for i := range parts {
				parts[i] = parts[i][:max(len(parts[i])/c.partial, 1)]
			}
		}
		n := int64(len(parts[0])*len(parts[0][0].Heads)*of.Blocks) * int64(of.Tokens)
		cases = append(cases, measured{c, n * c.like.RowBits() / 8, n})
		variants = append(variants, variant{c.name, 1, newSumming(h, parts, c.every, begins()).run})
		if c.heads == 2 {
			variants = append(variants, variant{"read, the same 8 KiB pieces", 1, newReading(inPieces(parts), begins()).run})
		}
	}
	t, err := a.interleave(ctx, flags.rounds, variants...)
	if err != nil {
		return err
	}
	// A ratio is of the best samples: what else the machine does hits one
	// variant or the other.
	rate := func(i int, bytes int64) float64 { return float64(bytes) / t[i].best }
	roofline := rate(0, part)
	r := &report{Bench: "bench digest", Small: flags.small, Rounds: flags.rounds, Verified: true, Memory: fmt.Sprintf("%s of anonymous memory", size(pool)),
		Case: fmt.Sprintf("%d layers, 2 components, block %d, random tables over the whole pool, 1 thread; %d parts one by one, ratios of best samples", layers, referenceBlock, digestParts)}
	r.Rows = append(r.Rows, moved(variants[0].name, t[0], part, 0))
	const full = 1 // the variant of the first case
	at := full
	for _, c := range cases {
		row := moved(c.name, t[at], c.bytes, c.rows)
		ratio := rate(at, c.bytes) / roofline
		switch {
		case c.every > 1:
			row = row.against(judge("the full digest", t[at].best/t[full].best, "most", 0.1, 0.4))
		case c.partial > 1:
			row = row.against(judge("a row of 256 B", t[at].best/float64(c.rows)/(t[full].best/float64(cases[0].rows)), "most", 0.3, 0.6))
		case strings.HasPrefix(c.name, "["):
			row = row.against(judge("read, contiguous", ratio, "least", 0.3, digestFloor(0.15, 0.03)))
		default:
			row = row.against(judge("read, contiguous", ratio, "least", 0.5, digestFloor(0.3, 0.12)))
		}
		at++
		if c.heads == 2 {
			row = row.against(judge("read, the same pieces", t[at].best/t[at-1].best, "least", 0.8, digestFloor(0.5, 0.25)))
			r.Rows = append(r.Rows, moved(variants[at].name, t[at], c.bytes, c.bytes/8192))
			at++
		}
		r.Rows = append(r.Rows, row)
	}
	return a.report(r)
}

// digestFloor is a floor where there are vectors, and another where there are
// none.
func digestFloor(with, without float64) float64 {
	if digest.Vectors() {
		return with
	}
	return without
}
