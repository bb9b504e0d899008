package demo

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/digest"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// allocate makes one pool a rank, in the layouts that the engine chose, and the
// model's view of all of them.
func (e *engine) allocate(c candidate) ([]memory.Rank, error) {
	name := engineName(e.start.Role)
	var err error
	if e.side, err = e.start.Side.side(name, e.start.Role, e.model.Geometry(), c, e.start.Blocks); err != nil {
		return nil, err
	}
	for g, pool := range e.side.Groups {
		e.blocks = append(e.blocks, host.NewBlocks(pool.Blocks, 2*e.start.Seed+uint64(len(e.start.Role))%2+uint64(g)<<32))
	}
	var ranks []memory.Rank
	var buffers [][][][]byte // [rank][group][region]
	for r, layouts := range e.side.Ranks {
		spec := host.Spec{Engine: name, Rank: r}
		for g, l := range layouts {
			group := host.Group{Blocks: e.side.Groups[g].Blocks}
			for i := 0; l != nil && i < len(l.Regions); i++ {
				group.Regions = append(group.Regions, host.Region{Name: l.Regions[i].Name, Bytes: l.Regions[i].Bytes})
			}
			spec.Groups = append(spec.Groups, group)
		}
		pool, err := e.owner.Open(spec, host.Options{})
		if err != nil {
			return nil, fmt.Errorf("allocate rank %d of engine %s: %w", r, name, err)
		}
		e.close = append(e.close, pool.Close)
		rank := pool.Rank()
		views := make([][][]byte, len(layouts))
		for g := range views {
			for _, b := range rank.Buffers[g] {
				views[g] = append(views[g], b.Bytes())
			}
		}
		ranks, buffers = append(ranks, rank), append(buffers, views)
	}
	does := e.side
	if e.start.Lie == lieKernel {
		if does, err = otherwise(e.side, c.layouts[0]); err != nil {
			return nil, err
		}
	}
	e.cache, err = cacheOn(&does, buffers)
	return ranks, err
}

// tables takes random blocks of every group for n tokens.
func (e *engine) tables(n int64) (tinyllm.Tables, error) {
	var out tinyllm.Tables
	for g, blocks := range need(e.side.Model, e.side.Groups, e.side.Shard, n) {
		table, err := e.blocks[g].Alloc(blocks)
		if err != nil {
			e.give(out)
			return nil, err
		}
		out = append(out, table)
	}
	return out, nil
}

// give gives blocks back that tables took.
func (e *engine) give(t tinyllm.Tables) {
	for g, table := range t {
		if err := e.blocks[g].Release(table); err != nil {
			panic(err) // a block given back twice is this package's own mistake
		}
	}
}

// handed are the tables of a request of n tokens that is handed over: of a group
// with a window the last blocks only, which hold what it still reaches.
func (e *engine) handed(t tinyllm.Tables, n int64) [][]uint32 {
	out := slices.Clone([][]uint32(t))
	for g, group := range e.side.Model.Groups {
		if group.Window > 0 && e.side.Groups[g].Ring == 0 {
			first, _ := stamp.Entries(&e.side, g, max(0, n-int64(group.Window)+1), n)
			out[g] = t[g][first:]
		}
	}
	return out
}

// pieces counts the contiguous copies of a request at the destination; gone is
// what of it lay out of a window.
func (e *engine) pieces(tables tinyllm.Tables, tokens int64, gone []agent.Box) (int64, error) {
	held, first, err := stamp.Held(&e.side, tables, tokens)
	if err != nil {
		return 0, err
	}
	req := stamp.Request{Plan: e.peer.Proven().Digest(), Destination: held, DestinationFirst: first, To: tokens}
	for _, g := range e.side.Model.Groups {
		span := stamp.Span{From: 0, To: tokens}
		if g.State {
			span.To = 1
		}
		req.Spans = append(req.Spans, span)
	}
	for _, b := range gone {
		req.Spans[b.Group].From = b.To
	}
	if err := e.stamper.Validate(&req); err != nil {
		return 0, err
	}
	seen := map[stamp.EdgeKey]bool{} // a pair of ranks has an edge for each group
	var n int64
	for _, edge := range e.peer.Proven().Plan().Edges {
		key := stamp.EdgeKey{Source: edge.Source, Destination: edge.Destination}
		if seen[key] {
			continue
		}
		seen[key] = true
		var c stamp.Cursor
		if err := e.stamper.Cursor(&req, key, &c); err != nil {
			return 0, err
		}
		var seg stamp.Segment
		for c.Next(&seg) {
			n += seg.Run.Pieces()
		}
	}
	return n, nil
}

// digests counts what a comparison with the source compares: one digest for
// each pair of ranks, group, layer and component.
func (e *engine) digests(level agent.Integrity) int64 {
	if level == transfer.Off {
		return 0
	}
	p := e.peer.Pair()
	all := plan.Range{From: 0, To: p.Source.Model.Layers}
	var n int64
	for _, edge := range e.peer.Proven().Plan().Edges {
		n += int64(len(digest.Layers(p, edge.Source, edge.Destination, edge.Group, all)) * len(p.Source.Model.Groups[edge.Group].Components))
	}
	return n
}
