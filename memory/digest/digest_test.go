package digest_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/digest"
	"github.com/kvferry/kvferry/memory/move"
)

func mustSum(t testing.TB, h *digest.Hasher, r *digest.Rows, every int) uint64 {
	t.Helper()
	sum, err := h.SumSampled(r, every)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Whatever the layout, the block size, the tables and the order of heads and
// spans, the digest is that of the definition; and so two sides that hold the
// same have the same, full and sampled.
func TestRandomLayoutsAgree(t *testing.T) {
	runs := 1500
	if testing.Short() {
		runs = 150
	}
	drawn := map[string]int{}
	for seed := range uint64(runs) {
		r := draw(seed, 1)
		b := r.box()
		source, destination := r.side(b), r.side(b)
		source.copyTo(destination)
		key := r.key()
		h, tw := digest.New(key), newTwin(key)
		for ci, c := range b.group.Components {
			for li := range b.group.Layers {
				for _, every := range []int{1, r.of(2, 3, 8, 64)} {
					x, y := source.rows(5, ci, li), destination.rows(5, ci, li)
					want, _ := tw.sum(x, int64(every))
					for _, rows := range []*digest.Rows{x, y} {
						if got := mustSum(t, h, rows, every); got != want {
							t.Fatalf("seed %d: component %d (%s), layer %d, one in %d: %016x, want %016x\n%s%+v", seed, ci, c.Text(), li, every, got, want, rows.Layout.Text(), rows.Spans)
						}
					}
				}
			}
			drawn[fmt.Sprint(c.DType.Bits(), " bits")]++
			if c.RowBits() > 8*2048 {
				drawn["several segments"]++
			}
			if c.Heads == 0 {
				drawn["no heads"]++
			}
			if c.Entry > 1 {
				drawn["entries of several tokens"]++
			}
		}
		if b.group.State {
			drawn["states"]++
		}
	}
	t.Log(drawn)
	if len(drawn) < 9 {
		t.Error("a shape was not drawn")
	}
}

// One is a layout of one layer, in one region, with rows of one component. Its
// memory is noise.
func one(t testing.TB, e layout.Extent, items string) *digest.Rows {
	t.Helper()
	l, err := layout.Spec{Order: order(t, items)}.Resolve(e)
	if err != nil {
		t.Fatal(err)
	}
	r := &digest.Rows{Layout: l, Name: digest.Name{Group: 1, Component: 2, Layer: e.Layers[0]}}
	for _, region := range l.Regions {
		m := make([]byte, region.Bytes)
		draw(uint64(len(m)), 9).fill(m)
		r.Regions = append(r.Regions, m)
	}
	for i := range e.Heads[0] {
		r.Heads = append(r.Heads, digest.Head{Place: i, Number: i})
	}
	places := int64(e.Tokens / e.Components[0].EntryTokens())
	for i := range int64(e.Blocks) {
		r.Spans = append(r.Spans, digest.Span{Block: uint32(i), Step: 1, Count: places, Entry: i * places, EntryStep: 1})
	}
	return r
}

func extent(dim int, dtype geometry.DType, heads, tokens, blocks int) layout.Extent {
	return layout.Extent{Layers: []int{7}, Blocks: blocks, Tokens: tokens, Heads: []int{heads}, Components: []geometry.Component{{Name: "k", Heads: heads, Dim: dim, DType: dtype}}}
}

var shapes = []struct {
	name string
	e    layout.Extent
	at   string
}{
	{"HND", extent(16, geometry.BF16, 2, 4, 2), "block head token dim"},
	{"NHD", extent(24, geometry.BF16, 2, 4, 2), "block token head dim"},
	{"transposed", extent(16, geometry.BF16, 2, 16, 2), "block head dim token"},
	{"fp8 transposed", extent(16, geometry.FP8E4M3, 2, 16, 2), "block head dim token"},
	{"x-packed", extent(16, geometry.BF16, 2, 4, 2), "block head dim/8 token dim%8"},
	{"fp4", extent(6, geometry.FP4, 2, 4, 2), "block head dim token"},
	{"scales", extent(1, geometry.FP32, 2, 4, 2), "block head token dim"},
	{"many segments", extent(1100, geometry.FP32, 1, 2, 1), "block head token dim"},
	{"bytes", extent(3, geometry.Int8, 2, 4, 2), "block token head dim"},
}

// The construction is part of what two ends agree on and never changes: these
// are its digests by shape, in full and of one row in three, where the key is
// 0, 1, ... and byte i of the memory i * 31 + i / 256.
func TestGolden(t *testing.T) {
	var key digest.Key
	for i := range key {
		key[i] = byte(i)
	}
	h, tw := digest.New(key), newTwin(key)
	want := strings.Fields(golden)
	for i, s := range shapes {
		r := one(t, s.e, s.at)
		for i := range r.Regions[0] {
			r.Regions[0][i] = byte(i*31 + i>>8)
		}
		for k, every := range []int{1, 3} {
			got := fmt.Sprintf("%016x", mustSum(t, h, r, every))
			if by, _ := tw.sum(r, int64(every)); got != fmt.Sprintf("%016x", by) {
				t.Errorf("%s, one in %d: %s, the definition gives %016x", s.name, every, got, by)
			}
			if at := 2*i + k; at >= len(want) || got != want[at] {
				t.Errorf("%s, one in %d: the digest is now %s", s.name, every, got)
			}
		}
	}
}

// The sources of SipHash-1-3 in the definition: OCaml's and Rust's tests have
// these.
func TestSipHashIsSipHash(t *testing.T) {
	var zero, count [16]byte
	for i := range count {
		count[i] = byte(i)
	}
	for _, c := range []struct {
		key     [16]byte
		message []byte
		want    uint64
	}{{zero, nil, 0xd1fba762150c532c}, {zero, []byte{0}, 0x68a914128e01e473}, {count, nil, 0xabac0158050fc4dc}} {
		if got := sipHash(c.key, c.message); got != c.want {
			t.Errorf("SipHash-1-3 of %x under %x is %016x, want %016x", c.message, c.key, got, c.want)
		}
	}
}

// Every bit of every row counts, and none beside them.
func TestEveryBitCounts(t *testing.T) {
	for _, s := range shapes {
		r := one(t, s.e, s.at)
		r.Spans = r.Spans[:len(r.Spans)/2+len(r.Spans)%2]
		r.Spans[0].Count-- // the last entry is not one of ours
		h := digest.New(digest.Key{5})
		before := mustSum(t, h, r, 1)
		ours := map[int64]bool{}
		c := s.e.Components[0]
		for _, sp := range r.Spans {
			for i := range sp.Count {
				for _, head := range r.Heads {
					for d := range int64(c.Dim) {
						_, bit := r.Layout.Bit(0, 0, int64(sp.Block), sp.Place+i, int64(head.Place), d)
						for b := range c.DType.Bits() {
							ours[bit+b] = true
						}
					}
				}
			}
		}
		seen := map[uint64]int64{before: -1}
		for bit := range 8 * int64(len(r.Regions[0])) {
			if len(ours) > 20000 && bit%31 > 0 {
				continue
			}
			r.Regions[0][bit/8] ^= 1 << (bit % 8)
			got := mustSum(t, h, r, 1)
			r.Regions[0][bit/8] ^= 1 << (bit % 8)
			if o, same := seen[got]; same == ours[bit] {
				t.Fatalf("%s: bit %d, which is ours: %v, gives %016x, as does %d", s.name, bit, ours[bit], got, o)
			}
			if ours[bit] {
				seen[got] = bit
			}
		}
		if mustSum(t, h, r, 1) != before {
			t.Errorf("%s: the digest of the same rows has changed", s.name)
		}
	}
}

// Rows with other names are other rows: whatever changes places, between
// entries, heads, components, layers or groups, is seen, though the bytes in
// all are the same.
func TestNamesCount(t *testing.T) {
	h := digest.New(digest.Key{6})
	for _, s := range shapes {
		r := one(t, s.e, s.at)
		before := mustSum(t, h, r, 1)
		check := func(what string, change func(r *digest.Rows)) {
			t.Helper()
			changed := *r
			changed.Heads, changed.Spans = append([]digest.Head{}, r.Heads...), append([]digest.Span{}, r.Spans...)
			change(&changed)
			if mustSum(t, h, &changed, 1) == before {
				t.Errorf("%s: %s is not seen", s.name, what)
			}
		}
		check("another group", func(r *digest.Rows) { r.Name.Group++ })
		check("another component", func(r *digest.Rows) { r.Name.Component++ })
		check("another layer", func(r *digest.Rows) { r.Name.Layer++ })
		check("group and component changed", func(r *digest.Rows) { r.Name.Group, r.Name.Component = r.Name.Component, r.Name.Group })
		check("later entries", func(r *digest.Rows) {
			for i := range r.Spans {
				r.Spans[i].Entry += 1 << 35
			}
		})
		if len(r.Heads) > 1 {
			check("heads changed places", func(r *digest.Rows) { r.Heads[0].Place, r.Heads[1].Place = r.Heads[1].Place, r.Heads[0].Place })
			check("other heads", func(r *digest.Rows) { r.Heads[0].Number, r.Heads[1].Number = 16382, 16383 })
		}
		if len(r.Spans) > 1 {
			check("blocks changed places", func(r *digest.Rows) { r.Spans[0].Block, r.Spans[1].Block = 1, 0 })
		}
		check("entries changed places", func(r *digest.Rows) {
			r.Spans[0].Count = 1
			second := r.Spans[0]
			r.Spans[0].Entry, second.Place = 1, 1
			r.Spans = append(r.Spans, second)
			if n := r.Layout.Extent.Tokens; n > 2 {
				r.Spans = append(r.Spans, digest.Span{Place: 2, Step: 1, Count: int64(n - 2), Entry: 2, EntryStep: 1})
			}
		})
		check("a row less", func(r *digest.Rows) { r.Spans[0].Count-- })
		check("a row twice", func(r *digest.Rows) {
			r.Spans = append(r.Spans, digest.Span{Count: 1})
		})
	}
	// Two segments of one row changed places.
	r := one(t, extent(2048, geometry.BF16, 1, 2, 1), "block head token dim")
	before := mustSum(t, h, r, 1)
	row := r.Regions[0][:4096]
	copy(row, append(append([]byte{}, row[2048:]...), row[:2048]...))
	if mustSum(t, h, r, 1) == before {
		t.Error("segments that changed places are not seen")
	}
	if mustSum(t, digest.New(digest.Key{7}), r, 1) == mustSum(t, h, r, 1) {
		t.Error("two keys have one digest")
	}
}

// The digest of a whole is the sum of those of its parts, however it is
// divided.
func TestPartsAddUp(t *testing.T) {
	for seed := range uint64(300) {
		r := draw(seed, 2)
		b := r.box()
		s := r.side(b)
		h := digest.New(r.key())
		every := r.of(1, 1, 3, 8)
		for ci := range b.group.Components {
			whole := s.rows(3, ci, 0)
			want := mustSum(t, h, whole, every)
			var got uint64
			heads := whole.Heads
			if len(heads) == 0 {
				heads = []digest.Head{{}}
			}
			at := r.IntN(len(heads) + 1)
			for _, some := range [][]digest.Head{heads[:at], heads[at:]} {
				for _, sp := range whole.Spans {
					n := r.Int64N(sp.Count + 1)
					first, rest := sp, sp
					first.Count, rest.Count = n, sp.Count-n
					rest.Place, rest.Entry = sp.Place+n*sp.Step, sp.Entry+n*sp.EntryStep
					for _, part := range []digest.Span{first, rest} {
						if part.Count > 0 && len(some) > 0 {
							p := *whole
							p.Heads, p.Spans = some, []digest.Span{part}
							got += mustSum(t, h, &p, every)
						}
					}
				}
			}
			if got != want {
				t.Fatalf("seed %d: component %d, one in %d: the parts add up to %016x, the whole is %016x", seed, ci, every, got, want)
			}
		}
		empty := s.rows(3, 0, 0)
		empty.Spans = nil
		if got := mustSum(t, h, empty, every); got != 0 {
			t.Fatalf("seed %d: the digest of nothing is %016x", seed, got)
		}
	}
}

// Of each window of entries exactly one is chosen, in each head another, and
// one that is cut off by the end of a request may be missing.
func TestSamplingChoosesOneAWindow(t *testing.T) {
	r := one(t, extent(8, geometry.BF16, 4, 16, 64), "block head token dim") // 1,024 entries
	for _, every := range []int{2, 7, 64, 100, 1024, 4000} {
		for k := range byte(10) {
			h := digest.New(digest.Key{k})
			_, n, err := h.Count(r, every)
			if err != nil {
				t.Fatal(err)
			}
			if least, most := int64(4*(1024/every)), int64(4*((1024+every-1)/every)); n < least || n > most {
				t.Errorf("one in %d of 4096 rows: %d are chosen, want %d to %d", every, n, least, most)
			}
		}
	}
	// More rows than are fetched or listed at a time.
	key := digest.Key{4}
	for _, at := range []string{"block head token dim", "block head dim token"} {
		many := one(t, extent(128, geometry.BF16, 4, 16, 32), at)
		want, chosen := newTwin(key).sum(many, 2)
		if got, n, err := digest.New(key).Count(many, 2); err != nil || got != want || n != int64(chosen) || n < 1000 {
			t.Errorf("%s: %016x of %d rows, %v; want %016x of %d", at, got, n, err, want, chosen)
		}
	}
	same := 0
	for at := range int64(16) { // of windows of 64 entries, those chosen in the first two heads
		var chosen [2]int64
		for head := range chosen {
			for e := range int64(64) {
				p := *r
				p.Heads = r.Heads[head : head+1]
				entry := 64*at + e
				p.Spans = []digest.Span{{Block: uint32(entry / 16), Place: entry % 16, Count: 1, Entry: entry}}
				if _, n, _ := digest.New(digest.Key{1}).Count(&p, 64); n == 1 {
					chosen[head] = e
				}
			}
		}
		if chosen[0] == chosen[1] {
			same++
		}
	}
	if same > 4 {
		t.Errorf("in %d of 16 windows two heads choose alike", same)
	}
}

// Damage is found with the probability that the package's comment states, over
// many keys.
func TestSamplingFindsDamage(t *testing.T) {
	const every, keys = 8, 3000
	for _, c := range []struct {
		name    string
		entries []int64
		missed  float64
	}{
		{"one row", []int64{13}, 1 - 1.0/every},
		{"three rows of one window", []int64{16, 18, 23}, 1 - 3.0/every},
		{"three rows of three windows", []int64{1, 9, 30}, math.Pow(1-1.0/every, 3)},
		{"a window", []int64{8, 9, 10, 11, 12, 13, 14, 15}, 0},
	} {
		sound := one(t, extent(4, geometry.FP32, 1, 16, 2), "block head token dim")
		damaged := *sound
		damaged.Regions = [][]byte{append([]byte{}, sound.Regions[0]...)}
		for _, e := range c.entries {
			damaged.Regions[0][e*16+e%16] ^= 4
		}
		missed := 0
		r := draw(1, 3)
		for range keys {
			h := digest.New(r.key())
			if mustSum(t, h, sound, every) == mustSum(t, h, &damaged, every) {
				missed++
			}
		}
		// Four standard deviations.
		if off := math.Abs(float64(missed)/keys - c.missed); off > 4*math.Sqrt(c.missed*(1-c.missed)/keys) {
			t.Errorf("%s: %d of %d keys miss it, want %.3f of them", c.name, missed, keys, c.missed)
		}
	}
}

// What a layout or the memory does not have is refused by name, before any of
// it is read.
func TestRefusals(t *testing.T) {
	base := one(t, extent(8, geometry.BF16, 2, 4, 3), "block head token dim")
	h := digest.New(digest.Key{})
	for _, c := range []struct {
		name, want string
		change     func(r *digest.Rows)
	}{
		{"component", "digest: component is 1: the layout has 1", func(r *digest.Rows) { r.Component = 1 }},
		{"component below", "digest: component is -1: the layout has 1", func(r *digest.Rows) { r.Component = -1 }},
		{"layer", "digest: layer is 1: the layout has 1", func(r *digest.Rows) { r.Layer = 1 }},
		{"group", "digest: name.group is 64: want 0 to 63", func(r *digest.Rows) { r.Name.Group = 64 }},
		{"component's name", "digest: name.component is -1: want 0 to 63", func(r *digest.Rows) { r.Name.Component = -1 }},
		{"layer's name", "digest: name.layer is 16384: want 0 to 16383", func(r *digest.Rows) { r.Name.Layer = 1 << 14 }},
		{"no memory", `digest: regions is 0: region "layer7.k" of the layout has 384 bytes`, func(r *digest.Rows) { r.Regions = nil }},
		{"short memory", `digest: regions is 383: region "layer7.k" of the layout has 384 bytes`, func(r *digest.Rows) { r.Regions = [][]byte{r.Regions[0][:383]} }},
		{"no head", "digest: heads is empty: the component has 2 on the rank", func(r *digest.Rows) { r.Heads = nil }},
		{"head", "digest: heads is 2: the component has 2 places for heads on the rank", func(r *digest.Rows) { r.Heads[1].Place = 2 }},
		{"head's number", "digest: heads is 16384: heads have numbers of 0 to 16383", func(r *digest.Rows) { r.Heads[1].Number = 16384 }},
		{"block", "digest: spans.block is 3: the layout has 3", func(r *digest.Rows) { r.Spans[1].Block = 3 }},
		{"no entry", "digest: spans.count is 0: a block has 4 places for entries", func(r *digest.Rows) { r.Spans[1].Count = 0 }},
		{"entries", "digest: spans.count is 5: a block has 4 places for entries", func(r *digest.Rows) { r.Spans[1].Count = 5 }},
		{"place", "digest: spans.place is 4: a block has 4 places for entries", func(r *digest.Rows) { r.Spans[1].Place = 4 }},
		{"places", "digest: spans.step is 1: 4 entries from place 1 on do not lie in a block with 4 places", func(r *digest.Rows) { r.Spans[1].Place = 1 }},
		{"step", "digest: spans.step is 9223372036854775807: 2 entries from place 1 on do not lie in a block with 4 places", func(r *digest.Rows) {
			r.Spans[1] = digest.Span{Place: 1, Step: math.MaxInt64, Count: 2, EntryStep: 1}
		}},
		{"no step", "digest: spans.step is 0: 4 entries from place 0 on do not lie in a block with 4 places", func(r *digest.Rows) { r.Spans[1].Step = 0 }},
		{"entry", "digest: spans.entry is -1: want 0 to 1099511627775", func(r *digest.Rows) { r.Spans[1].Entry = -1 }},
		{"last entry", "digest: spans.entry_step is 1: 4 entries from 1099511627773 on are not within 0 to 1099511627775", func(r *digest.Rows) { r.Spans[1].Entry = digest.MaxEntry - 3 }},
		{"entry step", "digest: spans.entry_step is -1: 4 entries from 4 on are not within 0 to 1099511627775", func(r *digest.Rows) { r.Spans[1].EntryStep = -1 }},
	} {
		r := *base
		r.Heads, r.Spans = append([]digest.Head{}, base.Heads...), append([]digest.Span{}, base.Spans...)
		c.change(&r)
		var refused *digest.Error
		if _, err := h.Sum(&r); !errors.As(err, &refused) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	for _, every := range []int{0, -1, 1<<20 + 1} {
		var refused *digest.Error
		if _, err := h.SumSampled(base, every); !errors.As(err, &refused) || refused.Field != "every" {
			t.Errorf("one in %d: %v, want an *Error", every, err)
		}
	}
	// A layout that nobody makes, but a peer may send: bits at odd places.
	odd := *base.Layout
	odd.Places = [][]layout.Place{{{Offset: 2}}}
	odd.Regions = []layout.Region{{Name: "pool", Bytes: 385}}
	r := *base
	r.Layout, r.Regions = &odd, [][]byte{make([]byte, 385)}
	if err := odd.Validate(); err != nil {
		t.Fatal(err)
	}
	var refused *digest.Error
	if _, err := h.Sum(&r); !errors.As(err, &refused) || refused.Field != "layout" {
		t.Errorf("elements at bit 2: %v, want an *Error", err)
	}
}

// One hasher serves many at once, whatever their rows look like.
func TestConcurrent(t *testing.T) {
	h := digest.New(digest.Key{8})
	var wg sync.WaitGroup
	for _, s := range shapes {
		r := one(t, s.e, s.at)
		want := mustSum(t, h, r, 1)
		for range 3 {
			wg.Go(func() {
				for range 20 {
					if got, err := h.Sum(r); err != nil || got != want {
						t.Errorf("%s: %016x, %v, want %016x", s.name, got, err, want)
					}
				}
			})
		}
	}
	wg.Wait()
}

// A sum allocates nothing once its hasher has made others.
func TestSumAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	h := digest.New(digest.Key{9})
	for _, s := range shapes {
		r := one(t, s.e, s.at)
		if n := testing.AllocsPerRun(50, func() { mustSum(t, h, r, 1) }); n > 0.5 { // a collection empties the pool
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
}

// Memory that goes away is an error under move.Guard, in every way of reading,
// and the hasher goes on.
func TestFaultIsAnError(t *testing.T) {
	h := digest.New(digest.Key{10})
	for _, s := range shapes {
		e := s.e
		e.Blocks = 400
		r := one(t, e, s.at)
		want := mustSum(t, h, r, 1)
		size := len(r.Regions[0])
		page := unix.Getpagesize()
		m, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		copy(m, r.Regions[0])
		r.Regions = [][]byte{m}
		hole := m[len(m)-page:]
		if err := unix.Mprotect(hole, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		sum := func() (sum uint64, err error) {
			err = move.Guard(func() (err error) { sum, err = h.Sum(r); return err })
			return sum, err
		}
		if _, err := sum(); !errors.Is(err, move.ErrFault) {
			t.Errorf("%s: %v, want a fault", s.name, err)
		}
		if err := unix.Mprotect(hole, unix.PROT_READ); err != nil {
			t.Fatal(err)
		}
		if got, err := sum(); err != nil || got != want {
			t.Errorf("%s: after a fault: %016x, %v, want %016x", s.name, got, err, want)
		}
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	}
}
