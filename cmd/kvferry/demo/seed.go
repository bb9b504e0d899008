package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
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

// side is an engine of the seed case with all ranks in the named layout.
func (s SideConfig) side(engine, name string, m geometry.Model, blocks int) (plan.Side, error) {
	spec, ok := preset.Lookup(name)
	if !ok {
		return plan.Side{}, &UsageError{"layout", name, "no such preset"}
	}
	sh, err := s.Shard(m)
	if err != nil {
		return plan.Side{}, err
	}
	side := plan.Side{Engine: engine, Model: m, Shard: sh, Groups: []plan.Pool{{Block: s.Block, Blocks: blocks}}}
	for r := range sh.Ranks() {
		part := sh.Part(m.Groups[0], r)
		l, err := spec.Resolve(layout.Extent{Layers: part.Layers, Blocks: blocks, Tokens: s.Block, Heads: len(part.Heads), Components: m.Groups[0].Components})
		if err != nil {
			return plan.Side{}, fmt.Errorf("lay out rank %d of engine %s: %w", r, engine, err)
		}
		side.Ranks = append(side.Ranks, []*layout.Layout{l})
	}
	return side, side.Validate(engine)
}

// seedPair is the seed case's pair with both caches in the named layout.
func seedPair(m geometry.Model, name string, blocks int) (*plan.Pair, error) {
	sides := SeedCase(Config{})
	s, err := sides.Source.side(engineName("source"), name, m, blocks)
	if err != nil {
		return nil, err
	}
	d, err := sides.Destination.side(engineName("destination"), name, m, blocks)
	if err != nil {
		return nil, err
	}
	return &plan.Pair{Source: s, Destination: d}, nil
}

// ReplaySeed computes the copies of the seed case and gives them to the proof,
// which refuses them (*SeedRefused). With Config.Unchecked it replays them
// with a plain loop on scratch memory instead, and says what came out.
func ReplaySeed(ctx context.Context, c Config) (*Seed, error) {
	model, err := tinyllm.New(tinyllm.Default(seedHeads, c.Seed))
	if err != nil {
		return nil, err
	}
	m := model.Geometry()
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	blocks := c.Requests * ((seedPrompt+c.Tokens)/seedBlock + 2)
	truth, err := seedPair(m, "nhd", blocks)
	if err != nil {
		return nil, err
	}
	assumed, err := seedPair(m, "hnd", blocks)
	if err != nil {
		return nil, err
	}
	module, err := policyModule(c.Policy)
	if err != nil {
		return nil, err
	}
	p, err := policy.Open(ctx, module, policy.Options{Unmetered: c.Unmetered})
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

// scratch is the memory of all ranks of one side.
func scratch(s *plan.Side) [][][]byte {
	out := make([][][]byte, len(s.Ranks))
	for r, layouts := range s.Ranks {
		for _, region := range layouts[0].Regions {
			out[r] = append(out[r], make([]byte, region.Bytes))
		}
	}
	return out
}

// unchecked does what the world did before: it runs a plan's copies for one
// pair of tables with a plain loop and asks nobody.
func unchecked(p *plan.Pair, pl *plan.Plan, source, destination [][][]byte, sourceTable, destinationTable []uint32) {
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
				copy(destination[e.Destination][run.DestinationRegion][do:do+run.Bytes], source[e.Source][run.SourceRegion][so:])
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
		for _, v := range []struct{ x, size int }{{c.Layer, p.Source.Model.Layers}, {c.Head, g.Heads()}, {int(c.Token), seedPrompt}, {c.Dim, g.Components[0].Dim}} {
			n = n*uint32(v.size) + uint32(v.x)
		}
		return n + 1
	}
	wrong := map[int]map[geometry.Coord]bool{}
	for pass := range passes {
		source, destination := scratch(&p.Source), scratch(&p.Destination)
		each(&p.Source, tables[0], func(rank int, c geometry.Coord, region int, offset int64) {
			binary.LittleEndian.PutUint16(source[rank][region][offset:], uint16(number(c)>>(16*pass)))
		})
		unchecked(p, pl, source, destination, tables[0], tables[1])
		each(&p.Destination, tables[1], func(rank int, c geometry.Coord, region int, offset int64) {
			if binary.LittleEndian.Uint16(destination[rank][region][offset:]) != uint16(number(c)>>(16*pass)) {
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
		part, l := s.Shard.Part(g, r), s.Ranks[r][0]
		for ci, component := range g.Components {
			for li, layer := range part.Layers {
				for hi, head := range part.Heads {
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
		first := model.Prefill(sourceCache, sourceTable, prompt, 0, nil)
		unchecked(p, pl, source, destination, sourceTable[:entries], destinationTable[:entries])
		r := RequestResult{ID: requestName(i), PromptTokens: seedPrompt}
		r.Tokens = model.Decode(destinationCache, destinationTable, first, seedPrompt, c.Tokens)
		if r.Expected, err = unsplit(model, prompt, c.Tokens); err != nil {
			return err
		}
		r.Equal = slices.Equal(r.Tokens, r.Expected)
		out.Requests = append(out.Requests, r)
	}
	return nil
}

// cacheOn views scratch memory as a side's cache.
func cacheOn(s *plan.Side, memory [][][]byte) (*tinyllm.Cache, error) {
	layouts := make([]*layout.Layout, len(s.Ranks))
	for r := range layouts {
		layouts[r] = s.Ranks[r][0]
	}
	return tinyllm.NewCache(s.Model, s.Shard, layouts, memory)
}

// plain is a cache of the given shape in plain memory, with the table of its
// one request.
func plain(m geometry.Model, s SideConfig, name string, tokens int) (*tinyllm.Cache, []uint32, error) {
	blocks := (tokens + s.Block - 1) / s.Block
	side, err := s.side("unsplit", name, m, blocks)
	if err != nil {
		return nil, nil, err
	}
	table := make([]uint32, blocks)
	for i := range table {
		table[i] = uint32(i)
	}
	c, err := cacheOn(&side, scratch(&side))
	return c, table, err
}
