package main

import (
	"encoding/binary"
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
)

// model is what both engines must agree on. Its elements have 32 bits, so that
// each one of a request can have a value of its own.
var model = geometry.Model{
	Name: "example", Layers: 2,
	Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 16, DType: geometry.FP32},
		{Name: "v", Heads: 8, Dim: 16, DType: geometry.FP32},
	}}},
}

// engine is what a real one brings: its description and its memory.
type engine struct {
	spec  agent.EngineSpec
	owner host.Owner
	pools []*host.Pool
}

// newEngine makes an engine whose ranks all keep their cache in one layout.
func newEngine(id string, tp, block int, layoutName string) (*engine, error) {
	lies, ok := preset.Lookup(layoutName)
	if !ok {
		return nil, fmt.Errorf("no layout preset is called %q", layoutName)
	}
	const blocks = 16
	sh := shard.Spec{TP: tp, Stages: []int{model.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	e := &engine{spec: agent.EngineSpec{ID: id, Incarnation: "1", Model: model, Shard: sh, Pools: []plan.Pool{{Block: block, Blocks: blocks}}}}
	for rank := range sh.Ranks() {
		part := sh.Part(model.Groups[0], rank) // the layers and heads of this rank
		l, err := lies.Resolve(part.Extent(model.Groups[0], block, blocks))
		if err != nil {
			e.close()
			return nil, err
		}
		group := host.Group{Blocks: blocks}
		for _, r := range l.Regions {
			group.Regions = append(group.Regions, host.Region{Name: r.Name, Bytes: r.Bytes})
		}
		pool, err := e.owner.Open(host.Spec{Engine: id, Rank: rank, Groups: []host.Group{group}}, host.Options{})
		if err != nil {
			e.close()
			return nil, err
		}
		e.pools = append(e.pools, pool)
		e.spec.Layouts = append(e.spec.Layouts, []*layout.Layout{l})
		e.spec.Held = append(e.spec.Held, pool.Rank())
	}
	return e, nil
}

func (e *engine) close() {
	for _, p := range e.pools {
		p.Close()
	}
}

// each visits the memory of every element of a request, with a value that no
// other element of the request has.
func (e *engine) each(table []uint32, tokens int64, visit func(memory []byte, value uint32)) {
	g, block := model.Groups[0], int64(e.spec.Pools[0].Block)
	for rank, pool := range e.pools {
		part, l := e.spec.Shard.Part(g, rank), e.spec.Layouts[rank][0]
		for c, component := range g.Components {
			for li, layer := range part.Layers {
				for hi, head := range part.Heads[c] {
					for t := range tokens {
						for d := range component.Dim {
							region, bit := l.Bit(c, li, int64(table[t/block]), t%block, int64(hi), int64(d))
							value := uint32(((c*model.Layers+layer)*component.Heads+head)*int(tokens)+int(t))*uint32(component.Dim) + uint32(d)
							visit(pool.Buffer(0, region).Bytes()[bit/8:][:4], value+1) // 0 is what empty memory holds
						}
					}
				}
			}
		}
	}
}

// fill stands for prefill: it writes a request's elements.
func (e *engine) fill(table []uint32, tokens int64) {
	e.each(table, tokens, func(memory []byte, value uint32) { binary.LittleEndian.PutUint32(memory, value) })
}

// count stands for decode: it reads them, and compares.
func (e *engine) count(table []uint32, tokens int64) (right, wrong int) {
	e.each(table, tokens, func(memory []byte, value uint32) {
		if binary.LittleEndian.Uint32(memory) == value {
			right++
		} else {
			wrong++
		}
	})
	return right, wrong
}
