package matrix_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
)

// The clauses of what must hold, each with cases of its own.
const (
	ratioEven     = "tp 1..16 both ways, a part each"
	ratioUneven   = "tp 1..16 both ways, 16 heads"
	ratioWide     = "tp n to a multiple, both ways"
	twoThree      = "tp 2 to 3 on 12 heads"
	threeTwo      = "tp 3 to 2 on 12 heads"
	fourSix       = "tp 4 to 6 on 12 heads"
	sixFour       = "tp 6 to 4 on 12 heads"
	replicaFrom   = "replicated heads at the source"
	replicaTo     = "replicated heads at the destination"
	replicaBoth   = "replicated heads on both sides"
	mla           = "MLA"
	uneven        = "pp uneven on both sides"
	blockUp       = "block 16 to 64"
	blockDown     = "block 64 to 16"
	blockOdd      = "block 48 to 32"
	layouts       = "every kind of layout to every other"
	everything    = "all in one plan"
	dealt         = "dcp"
	types         = "element types"
	realPresets   = "presets of quantised caches and of states"
	everyPairText = "every pair of choices"
)

// leastClauses is how many cases each clause must have.
var leastClauses = map[string]int{
	ratioEven: 31, ratioUneven: 31, ratioWide: 14, twoThree: 8, threeTwo: 8, fourSix: 8, sixFour: 8, replicaFrom: 8, replicaTo: 8, replicaBoth: 8,
	mla: 24, uneven: 16, blockUp: 8, blockDown: 8, blockOdd: 8, layouts: 49, everything: 8, dealt: 16, types: 20, realPresets: 48, everyPairText: 400,
}

// kinds of layouts, with the presets that are of each.
var kinds = []struct {
	name    string
	presets []string
}{
	{"hnd", []string{"vllm/joint-hnd", "vllm/lbhnc", "vllm/lhbnc", "vllm/blhnc", "trtllm/pool", "dynamo/operational-hnd", "dynamo/universal-pp"}},
	{"nhd", []string{"vllm/joint-nhd", "vllm/lbnhc", "vllm/blnhc", "trtllm/pool-nhd", "dynamo/operational-nhd"}},
	{"packed", []string{"vllm/packed-hnd", "vllm/packed-nhd"}},
	{"cross-layer", []string{"vllm/cross-layer", "vllm/bhlnc", "dynamo/universal"}},
	{"split", []string{"vllm/split-hnd", "vllm/split-nhd", "sglang/mha"}},
	{"transposed", []string{"vllm/cpu-vec"}},
	{"tiled", []string{"vllm/cpu-amx", "vllm/x-packed"}},
}

func kindOf(preset string) string {
	for _, k := range kinds {
		if slices.Contains(k.presets, preset) {
			return k.name
		}
	}
	return "" // MLA
}

// leastTraits is in how many cases what a clause is about must occur, whatever
// the case was made for.
var leastTraits = traitTable()

func traitTable() map[string]int {
	out := map[string]int{
		"tp does not divide": 150, "replicas at the source": 60, "replicas at the destination": 60, "replicas on both sides": 10, "MLA": 24, "pp uneven on both sides": 80,
		"blocks do not divide": 80, "blocks grow": 80, "blocks shrink": 80, "dcp on both sides": 6, "some layers": 80, "push": 200, "pull": 200,
		"bf16": 100, "fp8_e4m3": 50, "fp32": 50, "fp4": 50,
	}
	for _, a := range kinds {
		for _, b := range kinds {
			out[a.name+" to "+b.name] = 1
		}
	}
	return out
}

// traits are what the case has of leastTraits.
func (c *instance) traits() []string {
	var out []string
	add := func(ok bool, name string) {
		if ok {
			out = append(out, name)
		}
	}
	s, d, n := c.source, c.destination, c.groups[0].Components[0].Heads
	mixed := func(h half) bool {
		for _, n := range h.stages {
			if n != h.stages[0] {
				return true
			}
		}
		return false
	}
	replicas := func(h half) bool { return n > 0 && h.tp > n }
	sb, db := s.pools[0].block, d.pools[0].block
	add(n > 0 && s.tp%d.tp != 0 && d.tp%s.tp != 0, "tp does not divide")
	add(replicas(s), "replicas at the source")
	add(replicas(d), "replicas at the destination")
	add(replicas(s) && replicas(d), "replicas on both sides")
	add(n == 0 || len(c.groups) > 1, "MLA")
	add(mixed(s) && mixed(d), "pp uneven on both sides")
	add(sb%db != 0 && db%sb != 0, "blocks do not divide")
	add(sb < db, "blocks grow")
	add(sb > db, "blocks shrink")
	add(s.dcp > 1 && d.dcp > 1, "dcp on both sides")
	add(c.part, "some layers")
	add(c.write, "push")
	add(!c.write, "pull")
	add(true, c.groups[0].Components[0].DType.String())
	add(n > 0, kindOf(s.pools[0].preset)+" to "+kindOf(d.pools[0].preset))
	return out
}

// sorted returns the keys in order.
func sorted(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }

// book collects cases: it turns presets over and gives seeds.
type book struct {
	cases []*instance
	turn  int
}

// next turns over presets that take bf16 and any block of 16.
func (b *book) next() string {
	b.turn += 5 // prime to their number
	return presets[b.turn%len(presets)]
}

func (b *book) add(c instance) {
	c.seed = uint64(len(b.cases)) + 1
	if c.tokens == 0 {
		c.tokens = 100
	}
	rng := rand.New(rand.NewPCG(c.seed, 0x6c69))
	for _, h := range []*half{&c.source, &c.destination} {
		if h.tp == 0 {
			h.tp = 1
		}
		if h.heads == nil && len(c.groups) == 1 {
			h.heads = lists(c.groups[0].Components[0].Heads, h.tp, c.seed%3 == 0, rng)
		}
	}
	c.write = c.seed%2 == 0
	c.part = c.seed%5 == 0
	b.cases = append(b.cases, &c)
}

// tp adds a case of head counts.
func (b *book) tp(clause string, heads, from, to int) {
	b.add(instance{clause: clause, layers: 2, groups: attention(2, heads, 16, 16, geometry.BF16), tokens: 60,
		source: half{tp: from, pools: []pool{{b.next(), 16}}}, destination: half{tp: to, pools: []pool{{b.next(), 32}}}})
}

// clauses are the cases of each clause.
func clauses() []*instance {
	b := &book{}
	for r := 1; r <= 16; r++ {
		for _, way := range [][2]int{{1, r}, {r, 1}} {
			b.tp(ratioEven, r, way[0], way[1])
			b.tp(ratioUneven, 16, way[0], way[1])
		}
		if r > 1 && r <= 8 {
			b.tp(ratioWide, 2*r, 2, 2*r)
			b.tp(ratioWide, 2*r, 2*r, 2)
			b.tp(ratioWide, 6*r, 3, 3*r)
			b.tp(ratioWide, 6*r, 3*r, 3)
		}
	}
	for range 8 {
		b.tp(twoThree, 12, 2, 3)
		b.tp(threeTwo, 12, 3, 2)
		b.tp(fourSix, 12, 4, 6)
		b.tp(sixFour, 12, 6, 4)
	}
	for _, r := range [][3]int{{4, 8, 1}, {4, 8, 2}, {4, 8, 4}, {2, 16, 1}, {1, 5, 1}, {4, 12, 2}, {12, 16, 3}, {3, 7, 2}} {
		b.tp(replicaFrom, r[0], r[1], r[2])
		b.tp(replicaTo, r[0], r[2], r[1])
	}
	for _, r := range [][3]int{{4, 8, 16}, {2, 4, 8}, {2, 8, 4}, {1, 3, 5}, {4, 12, 8}, {2, 16, 16}, {12, 16, 14}, {3, 7, 9}} {
		b.tp(replicaBoth, r[0], r[1], r[2])
	}
	latents := []string{"vllm/mla", "sglang/mla"}
	for i, s := range []int{1, 2, 3, 8} {
		for j, d := range []int{1, 2, 4, 16} {
			b.add(instance{clause: mla, layers: 3, groups: latent(3, geometry.BF16),
				source: half{tp: s, pools: []pool{{latents[i%2], 16}}}, destination: half{tp: d, pools: []pool{{latents[j%2], 48}}}})
		}
		b.add(instance{clause: mla, layers: 5, groups: latent(5, geometry.FP8E4M3),
			source: half{tp: s, stages: []int{2, 3}, pools: []pool{{latents[i%2], 64}}}, destination: half{tp: 2, stages: []int{4, 1}, pools: []pool{{latents[1-i%2], 16}}}})
		b.add(instance{clause: mla, layers: 2, groups: latent(2, geometry.FP32),
			source: half{tp: s, dcp: 2, interleave: 4, pools: []pool{{latents[i%2], 16}}}, destination: half{tp: 3, dcp: 1 + i%3, interleave: 2, pools: []pool{{latents[1-i%2], 32}}}})
	}
	stages := [][]int{{3, 4}, {4, 3}, {1, 5, 1}, {2, 2, 3}}
	for i, s := range stages {
		for j, d := range stages {
			b.add(instance{clause: uneven, layers: 7, groups: attention(7, 4, 16, 16, geometry.BF16), tokens: 50,
				source: half{tp: 1 + i%2, stages: s, pools: []pool{{b.next(), 16}}}, destination: half{tp: 1 + j%3, stages: d, pools: []pool{{b.next(), 16}}}})
		}
	}
	for range 8 {
		for _, c := range []struct {
			clause   string
			from, to int
		}{{blockUp, 16, 64}, {blockDown, 64, 16}, {blockOdd, 48, 32}} {
			b.add(instance{clause: c.clause, layers: 2, groups: attention(2, 4, 16, 16, geometry.BF16), tokens: 250,
				source: half{tp: 2, pools: []pool{{b.next(), c.from}}}, destination: half{tp: 4, pools: []pool{{b.next(), c.to}}}})
		}
	}
	for i, s := range kinds {
		for j, d := range kinds {
			b.add(instance{clause: layouts, layers: 3, groups: attention(3, 4, 32, 32, geometry.BF16),
				source:      half{tp: 1 + j%2, pools: []pool{{s.presets[j%len(s.presets)], 32}}},
				destination: half{tp: 1 + i%4, pools: []pool{{d.presets[i%len(d.presets)], 16}}}})
		}
	}
	b.everything()
	b.dealt()
	b.types()
	b.realPresets()
	return b.cases
}

// everything has every clause in one plan: ratios that do not divide,
// replicas, MLA beside attention, uneven stages, odd blocks, and two of the
// kinds of layout.
func (b *book) everything() {
	for i, r := range [][2]int{{4, 6}, {6, 4}, {2, 3}, {3, 2}, {4, 24}, {24, 4}, {24, 36}, {36, 24}} {
		attn, mla := attention(5, 12, 16, 16, geometry.BF16)[0], latent(5, geometry.BF16)[0]
		attn.Name, mla.Name = "attention", "latent"
		attn.Layers, mla.Layers = []int{0, 1, 3}, []int{2, 4}
		kind := func(n int) string { k := kinds[n%len(kinds)].presets; return k[i%len(k)] }
		blocks := [][2]int{{48, 32}, {16, 64}, {64, 16}}[i%3]
		b.add(instance{clause: everything, layers: 5, groups: []geometry.Group{attn, mla}, tokens: 110,
			source:      half{tp: r[0], stages: []int{2, 3}, pools: []pool{{kind(i), blocks[0]}, {"vllm/mla", 48}}},
			destination: half{tp: r[1], stages: []int{1, 3, 1}, pools: []pool{{kind(i + 3), blocks[1]}, {"sglang/mla", 32}}}})
	}
}

// dealt has tokens dealt over ranks, on either side and on both.
func (b *book) dealt() {
	for i, d := range [][4]int{{2, 1, 1, 1}, {1, 1, 2, 1}, {2, 1, 2, 1}, {2, 1, 2, 4}, {2, 4, 1, 1}, {3, 2, 2, 1}, {2, 16, 2, 1}, {4, 1, 2, 1}} {
		for _, tp := range [][2]int{{1, 2}, {4, 2}} {
			b.add(instance{clause: dealt, layers: 2, groups: attention(2, 4, 16, 16, geometry.BF16),
				source:      half{tp: tp[0], dcp: d[0], interleave: d[1], pools: []pool{{b.next(), 16}}},
				destination: half{tp: tp[1], dcp: d[2], interleave: d[3], pools: []pool{{b.next(), []int{16, 32}[i%2]}}}})
		}
	}
}

// types has every element type, between layouts that keep rows whole.
func (b *book) types() {
	i := 0
	for _, dtype := range []geometry.DType{geometry.FP64, geometry.FP32, geometry.FP16, geometry.BF16, geometry.FP8E4M3, geometry.FP8E5M2, geometry.Int8, geometry.Uint8, geometry.FP4, geometry.Int4} {
		for range 2 {
			i++
			b.add(instance{clause: types, layers: 2, groups: attention(2, 6, 16, 24, dtype), tokens: 70,
				source: half{tp: 2, pools: []pool{{rowwise[i%len(rowwise)], 16}}}, destination: half{tp: 3, pools: []pool{{rowwise[i*7%len(rowwise)], 24}}}})
		}
	}
}

// realPresets have what engines keep beside K and V: scales in the block, rows
// of several types in their real size, an indexer, and states.
func (b *book) realPresets() {
	rows := func(d, scale geometry.DType, dim int) []geometry.Component {
		return []geometry.Component{{Name: "k", Heads: 4, Dim: 32, DType: d}, {Name: "k_scale", Heads: 4, Dim: dim, DType: scale, Scales: "k"},
			{Name: "v", Heads: 4, Dim: 32, DType: d}, {Name: "v_scale", Heads: 4, Dim: dim, DType: scale, Scales: "v"}}
	}
	for _, family := range []struct {
		group   geometry.Group
		presets []string
	}{
		{group("", rows(geometry.FP8E4M3, geometry.FP32, 1), 0, 1), []string{"vllm/token-head-scales-hnd", "vllm/token-head-scales-nhd"}},
		{group("", rows(geometry.FP4, geometry.FP8E4M3, 2), 0, 1), []string{"vllm/nvfp4-hnd", "vllm/nvfp4-linear-hnd", "vllm/nvfp4-linear-nhd"}},
		{group("", []geometry.Component{{Name: "latent", Dim: 512, DType: geometry.FP8E4M3}, {Name: "scale", Dim: 4, DType: geometry.FP32, Scales: "latent"}, {Name: "rope", Dim: 64, DType: geometry.BF16}}, 0, 1), []string{"vllm/mla-fp8"}},
		{group("", []geometry.Component{{Name: "index_k", Dim: 128, DType: geometry.FP8E4M3}, {Name: "index_scale", Dim: 1, DType: geometry.FP32, Scales: "index_k"}}, 0, 1), []string{"vllm/indexer"}},
		{state("", []geometry.Component{channels("x", 32, 0, 3, geometry.BF16), channels("ssm", 32, 0, 16, geometry.FP32)}, 0, 1), []string{"vllm/mamba1-ds", "vllm/mamba1-sd"}},
		{state("", []geometry.Component{channels("x", 64, 0, 3, geometry.BF16), channels("B", 16, 8, 3, geometry.BF16), channels("C", 16, 8, 3, geometry.BF16), channels("ssm", 8, 0, 64, geometry.FP32)}, 0, 1), []string{"vllm/mamba2-ds", "vllm/mamba2-sd"}},
		{state("", []geometry.Component{channels("q", 16, 8, 3, geometry.BF16), channels("k", 16, 8, 3, geometry.BF16), channels("v", 32, 8, 3, geometry.BF16), channels("ssm", 4, 0, 64, geometry.FP32)}, 0, 1), []string{"vllm/gdn-ds", "vllm/gdn-sd"}},
	} {
		for _, from := range family.presets {
			for _, to := range family.presets {
				for i, tp := range [][2]int{{1, 2}, {4, 2}} {
					blocks := [][2]int{{16, 64}, {48, 16}}[i]
					if family.group.State {
						blocks = [2]int{1, 1}
					}
					b.add(instance{clause: realPresets, layers: 2, groups: []geometry.Group{family.group}, tokens: 90,
						source: half{tp: tp[0], pools: []pool{{from, blocks[0]}}}, destination: half{tp: tp[1], pools: []pool{{to, blocks[1]}}}})
				}
			}
		}
	}
}

// factors of the covering cases: an index into each is one choice.
var factors = struct {
	tps    []int
	blocks []int
	stages [][]int
	heads  []int
	dtypes []geometry.DType
	widths []int // of v; k is 16 wide
}{
	tps:    []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	blocks: []int{16, 32, 48, 64, 6},
	stages: [][]int{{4}, {1, 3}, {3, 1}, {2, 2}, {1, 2, 1}},
	heads:  []int{2, 8, 12},
	dtypes: []geometry.DType{geometry.BF16, geometry.FP8E4M3, geometry.FP32, geometry.FP4},
	widths: []int{16, 32},
}

// The places of the factors in a row.
const (
	fromPreset = iota
	toPreset
	fromTP
	toTP
	fromBlock
	toBlock
	fromStages
	toStages
	headCount
	elementType
	width
	pushes
	someLayers
	factorCount
)

type row [factorCount]int

// may reports whether two choices go together: every rule is about two.
func may(i, a, j, b int) bool {
	if i > j {
		i, a, j, b = j, b, i, a
	}
	if i > toPreset {
		return true
	}
	switch {
	case j == elementType:
		return fits(presets[a], factors.dtypes[b].Bits(), 16)
	case j == fromBlock+i: // of the same side
		return fits(presets[a], 16, factors.blocks[b])
	}
	return true
}

// cover returns rows in which every two choices that go together meet.
func cover() []row {
	sizes := row{len(presets), len(presets), len(factors.tps), len(factors.tps), len(factors.blocks), len(factors.blocks), len(factors.stages), len(factors.stages),
		len(factors.heads), len(factors.dtypes), len(factors.widths), 2, 2}
	type two struct{ i, a, j, b int }
	left := map[two]bool{}
	var order []two
	for i := range sizes {
		for j := i + 1; j < len(sizes); j++ {
			for a := range sizes[i] {
				for b := range sizes[j] {
					if may(i, a, j, b) {
						left[two{i, a, j, b}] = true
						order = append(order, two{i, a, j, b})
					}
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 0x6b76))
	each := func(r row, f func(two)) {
		for i := range r {
			for j := i + 1; j < len(r); j++ {
				f(two{i, r[i], j, r[j]})
			}
		}
	}
	var rows []row
	for _, first := range order {
		if !left[first] {
			continue
		}
		var best row
		most := 0
		for range 40 { // rows that have the first of what is left, the one with the most of it
			r, gain, ok := row{}, 0, true
			for i := range r {
				switch i {
				case first.i:
					r[i] = first.a
				case first.j:
					r[i] = first.b
				default:
					r[i] = rng.IntN(sizes[i])
				}
			}
			each(r, func(t two) {
				ok = ok && may(t.i, t.a, t.j, t.b)
				if left[t] {
					gain++
				}
			})
			if ok && gain > most {
				best, most = r, gain
			}
		}
		if most == 0 { // by chance none was legal: the plainest choices are
			best = row{}
			best[first.i], best[first.j] = first.a, first.b
		}
		each(best, func(t two) { delete(left, t) })
		rows = append(rows, best)
	}
	return rows
}

// covering are cases in which any two choices that go together meet.
func covering(t testing.TB) []*instance {
	t.Helper()
	rows := cover()
	met := map[string]bool{}
	var out []*instance
	for n, r := range rows {
		for i := range r {
			for j := i + 1; j < len(r); j++ {
				if !may(i, r[i], j, r[j]) {
					t.Errorf("row %d is not legal", n)
				}
				met[fmt.Sprint(i, r[i], j, r[j])] = true
			}
		}
		c := &instance{clause: everyPairText, layers: 4, seed: uint64(10000 + n), tokens: 80, write: r[pushes] == 1, part: r[someLayers] == 1,
			groups:      attention(4, factors.heads[r[headCount]], 16, factors.widths[r[width]], factors.dtypes[r[elementType]]),
			source:      half{tp: factors.tps[r[fromTP]], stages: factors.stages[r[fromStages]], pools: []pool{{presets[r[fromPreset]], factors.blocks[r[fromBlock]]}}},
			destination: half{tp: factors.tps[r[toTP]], stages: factors.stages[r[toStages]], pools: []pool{{presets[r[toPreset]], factors.blocks[r[toBlock]]}}}}
		rng := rand.New(rand.NewPCG(c.seed, 0x6c69))
		for _, h := range []*half{&c.source, &c.destination} {
			h.heads = lists(c.groups[0].Components[0].Heads, h.tp, n%3 == 0, rng)
		}
		out = append(out, c)
	}
	// Presets and tp are the choices that matter most: each two of them met.
	for i := range presets {
		for j := range presets {
			if !met[fmt.Sprint(fromPreset, i, toPreset, j)] {
				t.Errorf("%s to %s is not covered", presets[i], presets[j])
			}
		}
	}
	for i := range factors.tps {
		for j := range factors.tps {
			if !met[fmt.Sprint(fromTP, i, toTP, j)] {
				t.Errorf("tp %d to %d is not covered", i+1, j+1)
			}
		}
	}
	return out
}
