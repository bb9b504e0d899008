package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/policy"
)

// The seed case: a prefill engine of TP 2 and a decode engine of TP 4 for 8 kv
// heads, both caches NHD in blocks of 16, prompts that are a multiple of 16, and
// copies computed as if both were HND. Every length matches.
const (
	seedHeads  = 8
	seedBlock  = 16
	seedPrompt = 64
)

// SeedCase is c with the engines of the seed case.
func SeedCase(c Config) Config {
	c.Source = SideConfig{TP: 2, PP: 1, DCP: 1, Block: seedBlock, Layout: "nhd", Can: []string{"nhd"}}
	c.Destination = SideConfig{TP: 4, PP: 1, DCP: 1, Block: seedBlock, Layout: "nhd", Can: []string{"nhd"}}
	return c
}

// validateSeed refuses what would make it another case.
func (c Config) validateSeed() error {
	const fixed = "--replay-seed is one case: 8 heads, TP 2 to 4, both caches NHD in blocks of 16"
	want := SeedCase(c)
	switch {
	case c.Heads != seedHeads:
		return &UsageError{"heads", strconv.Itoa(c.Heads), fixed}
	case c.Source.String() != want.Source.String():
		return &UsageError{"source", c.Source.String(), fixed}
	case c.Destination.String() != want.Destination.String():
		return &UsageError{"destination", c.Destination.String(), fixed}
	case c.LieLayout:
		return &UsageError{"lie-layout", "true", fixed}
	case c.LieKernel:
		return &UsageError{"lie-kernel", "true", fixed}
	case c.Shape != tinyllm.Llama:
		return &UsageError{"model-shape", string(c.Shape), fixed}
	case c.Integrity != "off":
		return &UsageError{"integrity", c.Integrity, fixed}
	}
	return c.counts()
}

// Seed is what a replay of the seed case showed.
type Seed struct {
	Layouts  Layouts         `json:"layouts"` // what the caches truly are
	Assumed  Layouts         `json:"assumed"` // what the copies were computed for
	Fault    *proof.Fault    `json:"-"`       // the proof's verdict on the copies
	Elements int64           `json:"elements"`
	Wrong    int64           `json:"wrong"`
	Percent  float64         `json:"wrong_percent"`
	Requests []RequestResult `json:"requests"`
}

// SeedRefused is the proof's refusal of the copies of the seed case.
type SeedRefused struct {
	Source, Destination string // the layouts of the caches
	Assumed             string // the layout that the copies were computed for
	Fault               error
}

func (e *SeedRefused) Error() string {
	return fmt.Sprintf("the source's cache is %s and the destination's is %s, the copies were computed as if both were %s: %v", e.Source, e.Destination, e.Assumed, e.Fault)
}

// Unwrap returns the proof's fault.
func (e *SeedRefused) Unwrap() error { return e.Fault }

// seedPair is the seed case's pair with both caches in the named layout.
func seedPair(m geometry.Model, name string, blocks int) (*plan.Pair, error) {
	sides := SeedCase(Config{})
	var out plan.Pair
	for _, x := range []struct {
		of   SideConfig
		role string
		to   *plan.Side
	}{{sides.Source, "source", &out.Source}, {sides.Destination, "destination", &out.Destination}} {
		x.of.Can = []string{name}
		side, err := x.of.side(engineName(x.role), x.role, m, x.of.candidates(m)[0], []int{blocks})
		if err != nil {
			return nil, err
		}
		*x.to = side
	}
	return &out, nil
}

// ReplaySeed computes the copies of the seed case and gives them to the proof,
// which refuses them (*SeedRefused). With Config.Unchecked it replays them
// with a plain loop on scratch memory instead, and says what came out.
func ReplaySeed(ctx context.Context, c Config) (*Seed, error) {
	if err := c.validateSeed(); err != nil {
		return nil, err
	}
	model, err := c.Model()
	if err != nil {
		return nil, err
	}
	m := model.Geometry()
	blocks := c.Requests * ((seedPrompt+c.Tokens)/seedBlock + 2)
	truth, err := seedPair(m, "nhd", blocks)
	if err != nil {
		return nil, err
	}
	assumed, err := seedPair(m, "hnd", blocks)
	if err != nil {
		return nil, err
	}
	module, err := c.module()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(module)
	if err != nil {
		return nil, err
	}
	defer box.Close()
	p, err := policy.Open(ctx, module, box.Policy())
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", c.Policy, err)
	}
	answer, err := p.Remap(ctx, assumed)
	if err := errors.Join(err, p.Close()); err != nil {
		return nil, err
	}
	copies, err := build.Build(assumed, answer.Alternatives[0], nil, plan.DefaultBudget())
	if err != nil {
		return nil, err
	}
	out := &Seed{Layouts: Layouts{Source: "NHD", Destination: "NHD"}, Assumed: Layouts{Source: "HND", Destination: "HND"}}
	if !c.Unchecked {
		fault := proof.Examine(truth, copies)
		if fault == nil {
			return out, errors.New("demo: the proof accepted the copies of the seed case")
		}
		return out, &SeedRefused{Source: "NHD", Destination: "NHD", Assumed: "HND", Fault: fault}
	}
	if err := out.count(truth, copies); err != nil {
		return out, err
	}
	return out, out.replay(model, truth, copies, c)
}

// scratch is the memory of all ranks of one side: [rank][group][region].
func scratch(s *plan.Side) [][][][]byte {
	out := make([][][][]byte, len(s.Ranks))
	for r, layouts := range s.Ranks {
		out[r] = make([][][]byte, len(layouts))
		for g, l := range layouts {
			for i := 0; l != nil && i < len(l.Regions); i++ {
				out[r][g] = append(out[r][g], make([]byte, l.Regions[i].Bytes))
			}
		}
	}
	return out
}

// unchecked does what the world did before: it runs a plan's copies for one
// pair of tables with a plain loop and asks nobody.
func unchecked(p *plan.Pair, pl *plan.Plan, source, destination [][][][]byte, sourceTable, destinationTable []uint32) {
	for i := range pl.Runs {
		run := &pl.Runs[i]
		e, piece := pl.Edges[run.Edge], pl.Pieces[run.Piece]
		sl, dl := p.Source.Ranks[e.Source][e.Group], p.Destination.Ranks[e.Destination][e.Group]
		for k := int64(0); ; k++ {
			sb, db := k*pl.Groups[e.Group].SourceBlocks+piece.SourceBlock, k*pl.Groups[e.Group].DestinationBlocks+piece.DestinationBlock
			if sb >= int64(len(sourceTable)) || db >= int64(len(destinationTable)) {
				break
			}
			so := run.SourceOffset + plan.BlockOffset(sl, run.SourceMap, int64(sourceTable[sb]))
			do := run.DestinationOffset + plan.BlockOffset(dl, run.DestinationMap, int64(destinationTable[db]))
			walk(run.Loops, so, do, func(so, do int64) {
				copy(destination[e.Destination][e.Group][run.DestinationRegion][do:do+run.Bytes], source[e.Source][e.Group][run.SourceRegion][so:])
			})
		}
	}
}

func walk(loops []plan.Loop, so, do int64, f func(so, do int64)) {
	if len(loops) == 0 {
		f(so, do)
		return
	}
	for range loops[0].Count {
		walk(loops[1:], so, do, f)
		so += loops[0].SourceStride
		do += loops[0].DestinationStride
	}
}

// count fills the source with values that say where they belong and counts the
// destination elements of the moved blocks that hold another one.
func (out *Seed) count(p *plan.Pair, pl *plan.Plan) error {
	// An element of the cache is 2 bytes, too few to number all of them, so
	// the copies run several times, each pass moving 16 bits of the number.
	const passes = 2
	g := p.Source.Model.Groups[0]
	tables := [2][]uint32{{1, 3, 0, 2}, {2, 0, 3, 1}}
	number := func(c geometry.Coord) uint32 {
		n := uint32(c.Component)
		for _, v := range []struct{ x, size int }{{c.Layer, p.Source.Model.Layers}, {c.Head, seedHeads}, {int(c.Token), seedPrompt}, {c.Dim, g.Components[0].Dim}} {
			n = n*uint32(v.size) + uint32(v.x)
		}
		return n + 1
	}
	wrong := map[int]map[geometry.Coord]bool{}
	for pass := range passes {
		source, destination := scratch(&p.Source), scratch(&p.Destination)
		each(&p.Source, tables[0], func(rank int, c geometry.Coord, region int, offset int64) {
			binary.LittleEndian.PutUint16(source[rank][0][region][offset:], uint16(number(c)>>(16*pass)))
		})
		unchecked(p, pl, source, destination, tables[0], tables[1])
		each(&p.Destination, tables[1], func(rank int, c geometry.Coord, region int, offset int64) {
			if binary.LittleEndian.Uint16(destination[rank][0][region][offset:]) != uint16(number(c)>>(16*pass)) {
				if wrong[rank] == nil {
					wrong[rank] = map[geometry.Coord]bool{}
				}
				wrong[rank][c] = true
			}
			if pass == 0 {
				out.Elements++
			}
		})
	}
	for _, w := range wrong {
		out.Wrong += int64(len(w))
	}
	out.Percent = 100 * float64(out.Wrong) / float64(out.Elements)
	return nil
}

// each visits every element of a request of seedPrompt tokens on one side.
func each(s *plan.Side, table []uint32, f func(rank int, c geometry.Coord, region int, offset int64)) {
	g := s.Model.Groups[0]
	for r := range s.Ranks {
		part, l := s.Part(0, r), s.Ranks[r][0]
		for ci, component := range g.Components {
			for li, layer := range part.Layers {
				for hi, head := range part.Heads[ci] {
					for t := range int64(seedPrompt) {
						for d := range component.Dim {
							region, bit := l.Bit(ci, li, int64(table[t/seedBlock]), t%seedBlock, int64(hi), int64(d))
							f(r, geometry.Coord{Component: ci, Layer: layer, Head: head, Token: t, Dim: d}, region, bit/8)
						}
					}
				}
			}
		}
	}
}

// replay decodes from caches that the unchecked copies filled.
func (out *Seed) replay(model *tinyllm.Model, p *plan.Pair, pl *plan.Plan, c Config) error {
	source, destination := scratch(&p.Source), scratch(&p.Destination)
	sourceCache, err := cacheOn(&p.Source, source)
	if err != nil {
		return err
	}
	destinationCache, err := cacheOn(&p.Destination, destination)
	if err != nil {
		return err
	}
	entries := seedPrompt / seedBlock
	extra := (c.Tokens + seedBlock - 1) / seedBlock
	next := uint32(0)
	for i := range c.Requests {
		var sourceTable, destinationTable []uint32
		for range entries + extra {
			sourceTable = append(sourceTable, next)
			next++
		}
		destinationTable = append(destinationTable, sourceTable...)
		slices.Reverse(destinationTable)
		prompt := model.Prompt(i, seedPrompt)
		first := model.Prefill(sourceCache, tinyllm.Tables{sourceTable}, prompt, 0, nil)
		unchecked(p, pl, source, destination, sourceTable[:entries], destinationTable[:entries])
		r := RequestResult{ID: requestName(i), PromptTokens: seedPrompt}
		r.Tokens = model.Decode(destinationCache, tinyllm.Tables{destinationTable}, first, seedPrompt, c.Tokens)
		if r.Expected, err = unsplit(model, prompt, c.Tokens); err != nil {
			return err
		}
		r.Equal = slices.Equal(r.Tokens, r.Expected)
		out.Requests = append(out.Requests, r)
	}
	return nil
}

// cacheOn views memory, [rank][group][region], as a side's cache.
func cacheOn(s *plan.Side, memory [][][][]byte) (*tinyllm.Cache, error) {
	held := make([]tinyllm.Holding, len(s.Groups))
	for g := range held {
		held[g] = tinyllm.Holding{Shard: *s.ShardOf(g), Ring: s.Groups[g].Ring}
		for r, layouts := range s.Ranks {
			held[g].Layouts = append(held[g].Layouts, layouts[g])
			held[g].Regions = append(held[g].Regions, memory[r][g])
		}
	}
	return tinyllm.NewCache(s.Model, held)
}

// plain is a cache on one rank in plain memory, with the tables of its one
// request.
func plain(model *tinyllm.Model, tokens int) (*tinyllm.Cache, tinyllm.Tables, error) {
	c := Config{Shape: model.Config().Shape, Source: SideConfig{TP: 1, PP: 1, DCP: 1, Block: 16}}
	m, s := model.Geometry(), Shaped(c).Source
	sh, err := s.Shard(m)
	if err != nil {
		return nil, nil, err
	}
	blocks := need(m, s.pools(m, "source", sh, nil), sh, int64(tokens))
	side, err := s.side("unsplit", "source", m, s.candidates(m)[0], blocks)
	if err != nil {
		return nil, nil, err
	}
	tables := make(tinyllm.Tables, len(blocks))
	for g, n := range blocks {
		for i := range n {
			tables[g] = append(tables[g], uint32(i))
		}
	}
	cache, err := cacheOn(&side, scratch(&side))
	return cache, tables, err
}
