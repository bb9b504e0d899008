package digest_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/memory/digest"
)

// words adds up memory, as the plainest reader of it would.
func words(b []byte) uint64 {
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

// BenchmarkSum is each shape of rows over a pool that no cache holds; x-read is
// its rate against reading the pool from front to back.
func BenchmarkSum(b *testing.B) {
	const pool = 2 << 30
	m, err := unix.Mmap(-1, 0, pool, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(m)
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	for i := 0; i < pool; i += 8 {
		binary.LittleEndian.PutUint64(m[i:], uint64(i)*0x9E3779B97F4A7C15)
	}
	var sink uint64
	var read float64
	b.Run("read", func(b *testing.B) {
		b.SetBytes(pool)
		for b.Loop() {
			sink += words(m)
		}
		read = pool * float64(b.N) / b.Elapsed().Seconds()
	})
	h := digest.New(digest.Key{1: 1, 31: 31})
	for _, shape := range benchShapes() {
		b.Run(shape.name, func(b *testing.B) {
			rows, total := shape.rows(b, m)
			b.SetBytes(total)
			for b.Loop() {
				for i := range rows {
					sum, err := h.SumSampled(&rows[i], shape.every)
					if err != nil {
						b.Fatal(err)
					}
					sink += sum
				}
			}
			if read > 0 {
				b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds()/read, "x-read")
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(total/(rows[0].Layout.Extent.Components[0].RowBits()/8)), "ns/row")
		})
	}
	_ = sink
}

type benchShape struct {
	name      string
	component geometry.Component
	order     string
	heads     int
	every     int
}

func benchShapes() []benchShape {
	k := geometry.Component{Name: "k", Heads: 64, Dim: 128, DType: geometry.BF16}
	scale := geometry.Component{Name: "k", Heads: 64, Dim: 1, DType: geometry.FP32}
	fp8 := geometry.Component{Name: "k", Heads: 64, Dim: 128, DType: geometry.FP8E4M3}
	mla := geometry.Component{Name: "k", Dim: 576, DType: geometry.BF16}
	return []benchShape{
		{"HND", k, "block head token dim", 8, 1},
		{"NHD", k, "block token head dim", 8, 1},
		{"HND-8KiB", k, "block head token dim", 2, 1},
		{"HND-4KiB", k, "block head token dim", 1, 1},
		{"fp8-HND", fp8, "block head token dim", 8, 1},
		{"MLA", mla, "block token dim", 0, 1},
		{"transposed", k, "block head dim token", 8, 1},
		{"fp8-transposed", fp8, "block head dim token", 8, 1},
		{"x-packed", k, "block head dim/8 token dim%8", 8, 1},
		{"HND-1/64", k, "block head token dim", 8, 64},
		{"transposed-1/64", k, "block head dim token", 8, 64},
		{"scales-HND", scale, "block head token dim", 8, 1},
		{"scales-NHD", scale, "block token head dim", 8, 1},
	}
}

func (s *benchShape) rows(b *testing.B, m []byte) ([]digest.Rows, int64) {
	e := layout.Extent{Layers: []int{0}, Tokens: 16, Heads: []int{s.heads}, Components: []geometry.Component{s.component}}
	size := int64(e.Tokens) * int64(max(s.heads, 1)) * s.component.RowBits() / 8
	e.Blocks = int(int64(len(m)) / size)
	l, err := layout.Spec{Order: order(b, s.order)}.Resolve(e)
	if err != nil {
		b.Fatal(err)
	}
	var heads []digest.Head
	for i := range s.heads {
		heads = append(heads, digest.Head{Place: i, Number: 3 + i})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const request = 256
	var out []digest.Rows
	table := rng.Perm(e.Blocks)
	for len(table) > 0 {
		own := table[:min(len(table), request)]
		table = table[len(own):]
		r := digest.Rows{Layout: l, Regions: [][]byte{m}, Heads: heads}
		for i, id := range own {
			r.Spans = append(r.Spans, digest.Span{Block: uint32(id), Step: 1, Count: 16, Entry: int64(16 * i), EntryStep: 1})
		}
		out = append(out, r)
	}
	return out, int64(e.Blocks) * size
}
