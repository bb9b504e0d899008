package main

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
)

func tensorParallel(tp int) shard.Spec {
	return shard.Spec{TP: tp, Stages: []int{model.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
}

// pair is a TP 2 engine and a TP 4 engine that keep their caches in the same
// layout.
func pair(name string) (*plan.Pair, error) {
	lies, ok := preset.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("no layout preset is called %q", name)
	}
	side := func(engine string, tp int) (plan.Side, error) {
		s := plan.Side{Engine: engine, Model: model, Shard: tensorParallel(tp), Groups: []plan.Pool{{Block: block, Blocks: blocks}}}
		for rank := range tp {
			l, err := lies.Resolve(s.Part(0, rank).Extent(model.Groups[0], block, blocks))
			if err != nil {
				return s, err
			}
			s.Ranks = append(s.Ranks, []*layout.Layout{l})
		}
		return s, nil
	}
	source, err := side("prefill", 2)
	if err != nil {
		return nil, err
	}
	destination, err := side("decode", 4)
	return &plan.Pair{Source: source, Destination: destination}, err
}

// engine is an engine as a policy sees it, with the layouts that its attention
// can read and write.
func engine(name string, tp int, can ...string) policy.Engine {
	e := policy.Engine{Name: name, Model: model, Shard: tensorParallel(tp)}
	for _, c := range can {
		lies, _ := preset.Lookup(c)
		e.Candidates = append(e.Candidates, policy.Candidate{Name: c, Layouts: []layout.Spec{lies}, Pools: []plan.Pool{{Block: block, Blocks: blocks}}})
	}
	return e
}
