package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
)

// large is a pair of a model at the upper end: TP 16 -> 8 and PP 4 -> 2, with
// what its plan may take at most.
type large struct {
	name        string
	text        string
	floor       float64 // of the time against the reference case's
	runs, bytes int
}

// largest are the pairs whose planning is measured against that of the
// reference case. The dense one has the most layers, the others the most
// replicas of a row and, with seven groups, three times the reference's runs:
// that one comes close to the target and has a floor with room for noise.
func largest() []large {
	layers := func(from, to int) string { // every second one
		var n []string
		for l := from; l <= to; l += 2 {
			n = append(n, fmt.Sprint(l))
		}
		return strings.Join(n, ",")
	}
	latent := func(block int, layout string) string {
		return fmt.Sprintf("{block: %d, blocks: 1024, layout: %s}", block, layout)
	}
	side := func(shard string, groups ...string) string {
		return fmt.Sprintf("{engine: e, shard: %s, groups: {%s}}", shard, strings.Join(groups, ", "))
	}
	pair := func(model, source, destination string) string {
		return fmt.Sprintf("kvferry: pair/1\nmodel: %s\nsource: %s\ndestination: %s\n", model, source, destination)
	}
	both := func(model, source, destination string, groups ...string) string {
		return pair(model, side(source, groups...), side(destination, groups...))
	}
	const kv = "block: 16, blocks: 1024, layout: vllm/packed-hnd"
	even, odd := layers(2, 60), "0,"+layers(1, 59)
	return []large{
		{"llama-3.1-405b", pair("{name: llama-3.1-405b, layers: 126, components: [{name: k, heads: 8, dim: 128, dtype: bf16}, {name: v, heads: 8, dim: 128, dtype: bf16}]}",
			"{engine: e, shard: {tp: 16, pp: [32, 32, 31, 31]}, "+kv+"}", "{engine: e, shard: {tp: 8, pp: 2}, "+kv+"}"), 4, 4096, 1 << 20},
		{"deepseek-v3", both("{name: deepseek-v3, layers: 61, groups: [{name: attention, components: [{name: latent, heads: 0, dim: 512, dtype: bf16}, {name: rope, heads: 0, dim: 64, dtype: bf16}]}]}",
			"{tp: 16, pp: [16, 15, 15, 15]}", "{tp: 8, pp: [31, 30]}", "attention: "+latent(64, "vllm/mla")), 4, 4096, 1 << 20},
		{"deepseek-v4-pro", both("{name: deepseek-v4-pro, layers: 61, groups: ["+strings.Join([]string{
			"{name: window, window: 128, components: [{name: kv, heads: 0, dim: 512, dtype: bf16}]}",
			"{name: c4, layers: '" + even + "', components: [{name: kv, heads: 0, dim: 512, dtype: bf16, tokens_per_entry: 4}]}",
			"{name: c4-state, layers: '" + even + "', window: 8, components: [{name: values, heads: 0, dim: 1024, dtype: fp32}, {name: weights, heads: 0, dim: 1024, dtype: fp32}]}",
			"{name: c4-index, layers: '" + even + "', components: [{name: index_k, heads: 0, dim: 128, dtype: fp8, tokens_per_entry: 4}, {name: index_scale, heads: 0, dim: 1, dtype: fp32, tokens_per_entry: 4}]}",
			"{name: c4-index-state, layers: '" + even + "', window: 8, components: [{name: values, heads: 0, dim: 256, dtype: fp32}, {name: weights, heads: 0, dim: 256, dtype: fp32}]}",
			"{name: c128, layers: '" + odd + "', components: [{name: kv, heads: 0, dim: 512, dtype: bf16, tokens_per_entry: 128}]}",
			"{name: c128-state, layers: '" + odd + "', window: 128, components: [{name: values, heads: 0, dim: 512, dtype: fp32}, {name: weights, heads: 0, dim: 512, dtype: fp32}]}",
		}, ", ")+"]}", "{tp: 16, pp: [16, 15, 15, 15]}", "{tp: 8, pp: [31, 30]}",
			"window: "+latent(64, "vllm/mla"), "c4: "+latent(256, "vllm/mla"), "c4-state: "+latent(4, "vllm/mla"), "c4-index: "+latent(256, "vllm/indexer"),
			"c4-index-state: "+latent(4, "vllm/mla"), "c128: "+latent(256, "vllm/mla"), "c128-state: "+latent(8, "vllm/mla")), 5, 8192, 2 << 20},
	}
}

// largestRows measures how long planning and proving the largest pairs takes
// against the reference case of 80 layers, and how large their plans are. The
// times compared are the best of many interleaved ones, a planning each: what
// else the machine does only ever adds, and mostly to the longer one.
func (a *app) largestRows(ctx context.Context, pol *chooser, flags *benchFlags) ([]row, error) {
	pairs := append([]large{{name: "the 80-layer pair", text: string(reference(80, 512, 1024, "hnd", "hnd"))}}, largest()...)
	variants := make([]variant, len(pairs))
	plans := make([]*plan.Plan, len(pairs))
	for i, l := range pairs {
		f, err := pairfile.Parse(l.name, []byte(l.text))
		if err != nil {
			return nil, err
		}
		pair, _, err := f.Pair(nil)
		if err != nil {
			return nil, err
		}
		assignments, err := pol.remap(ctx, pair)
		if err != nil {
			return nil, err
		}
		run := func() error {
			var err error
			if plans[i], err = build.Build(pair, assignments, nil, plan.DefaultBudget()); err != nil {
				return err
			}
			_, err = proof.Check(pair, plans[i])
			return err
		}
		variants[i] = variant{"build and prove " + l.name, 1, run}
	}
	t, err := a.interleave(ctx, 6*flags.rounds, variants...)
	if err != nil {
		return nil, err
	}
	rows := []row{timed(variants[0].name, t[0])}
	for i, l := range pairs[1:] {
		pl, took := plans[i+1], t[i+1]
		bytes := planBytes(pl)
		rows = append(rows,
			timed(variants[i+1].name, took).against(judge(pairs[0].name, took.best/t[0].best, "most", 4, l.floor)),
			row{Name: "plan of " + l.name, Value: float64(len(pl.Runs)), Unit: fmt.Sprintf("runs of %d edges in %d KiB", len(pl.Edges), (bytes+1023)>>10),
				Compared: []compare{judge(fmt.Sprintf("%d runs", l.runs), float64(len(pl.Runs))/float64(l.runs), "most", 0, 1),
					judge(fmt.Sprintf("%d KiB", l.bytes>>10), float64(bytes)/float64(l.bytes), "most", 0, 1)}})
	}
	return rows, nil
}

// planBytes is the memory that a plan takes, loops that runs share counted once.
func planBytes(pl *plan.Plan) int {
	size := func(v any) int { return int(reflect.TypeOf(v).Size()) }
	n := len(pl.Runs)*size(plan.Run{}) + len(pl.Pieces)*size(plan.Piece{}) + len(pl.Edges)*size(plan.Edge{}) + len(pl.Groups)*size(plan.Period{}) + len(pl.Assignments)*size(plan.Assignment{})
	seen := map[*plan.Loop]bool{}
	for i := range pl.Runs {
		if l := pl.Runs[i].Loops; len(l) > 0 && !seen[&l[0]] {
			seen[&l[0]] = true
			n += len(l) * size(plan.Loop{})
		}
	}
	return n
}
