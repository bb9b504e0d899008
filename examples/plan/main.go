// Command plan makes a plan in code: two engines described from layout
// presets, the built-in policy's answer, the proved plan, and the copies that
// it gives for the block tables of one request.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

// model is what both engines must agree on.
var model = geometry.Model{
	Name: "example", Layers: 1,
	Groups: []geometry.Group{{Layers: []int{0}, Components: []geometry.Component{
		{Name: "k", Heads: 2, Dim: 64, DType: geometry.BF16},
		{Name: "v", Heads: 2, Dim: 64, DType: geometry.BF16},
	}}},
}

// side describes an engine of the given tensor parallelism whose ranks all
// keep their cache in one layout.
func side(engine string, tp, block int, spec layout.Spec) (plan.Side, error) {
	sh := shard.Spec{TP: tp, Stages: []int{model.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	pool := plan.Pool{Block: block, Blocks: 8}
	s := plan.Side{Engine: engine, Model: model, Shard: sh, Groups: []plan.Pool{pool}}
	for r := range sh.Ranks() {
		part := sh.Part(model.Groups[0], r) // the layers and heads of rank r
		l, err := spec.Resolve(part.Extent(model.Groups[0], pool.Block, pool.Blocks))
		if err != nil {
			return plan.Side{}, err
		}
		s.Ranks = append(s.Ranks, []*layout.Layout{l})
	}
	return s, nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	joint, _ := preset.Lookup("vllm/joint-hnd") // of each block K, then V
	split, _ := preset.Lookup("vllm/split-hnd") // K of all blocks, then V of all
	source, err := side("prefill", 1, 16, joint)
	if err != nil {
		return err
	}
	destination, err := side("decode", 2, 32, split)
	if err != nil {
		return err
	}
	pair := &plan.Pair{Source: source, Destination: destination}
	if err := pair.Validate(); err != nil {
		return err
	}

	// The policy says which rank's heads come from where, in logical
	// coordinates. It never sees an offset.
	module, _ := policies.Get("heads")
	p, err := policy.Open(ctx, module, policy.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	answer, err := p.Remap(ctx, pair)
	if err != nil {
		return err
	}
	for _, a := range answer.Alternatives[0] {
		fmt.Printf("rank %d takes layers [%d, %d), heads [%d, %d) from rank %d\n", a.Destination, a.Layers.From, a.Layers.To, a.Heads.From, a.Heads.To, a.Source)
	}

	// The plan is computed from that, and proved before anything may use it.
	pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
	if err != nil {
		return err
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return err
	}
	fmt.Printf("%d runs move %d elements, proved\n", len(pl.Runs), proven.Elements())

	// It serves every request of the pair: only the block tables change.
	stamper, err := stamp.New(proven)
	if err != nil {
		return err
	}
	request := &stamp.Request{Plan: proven.Digest(), Source: [][]uint32{{5, 2}}, Destination: [][]uint32{{3}}, To: 18}
	if err := stamper.Validate(request); err != nil {
		return err
	}
	copies, err := stamper.Expand(request)
	if err != nil {
		return err
	}
	for _, c := range copies {
		fmt.Printf("rank %d byte %5d  ->  rank %d byte %5d, %d bytes\n", c.SourceRank, c.SourceOffset, c.DestinationRank, c.DestinationOffset, c.Bytes)
	}
	return nil
}
