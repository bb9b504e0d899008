package build_test

import (
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
)

// Groups count as a request of one length has them, whatever their blocks: a
// window with its tokens, a state once, each component with its own heads and
// entries, a group with the shard of its own.
func TestCostOfGroups(t *testing.T) {
	const model = `model:
  name: m
  layers: 5
  groups:
    - name: full
      layers: "0"
      components:
        - {name: k, heads: 4, dim: 16, dtype: bf16}
        - {name: latent, heads: 0, dim: 8, dtype: bf16}
        - {name: scale, heads: 4, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}
    - {name: window, layers: "1,2", window: 48, components: [{name: k, heads: 4, dim: 16, dtype: bf16}]}
    - {name: state, layers: "3,4", state: true, components: [{name: x, channels: 64, dim: 3, dtype: bf16}, {name: B, channels: 16, unit: 8, dim: 3, dtype: bf16}]}
`
	side := func(engine, shard string, full, window string) string {
		return "\n  engine: " + engine + "\n  shard: " + shard + "\n  groups:\n" +
			"    full: {blocks: 8, layout: {order: [block, component, token, {k: [head, dim], latent: [dim], scale: [head, dim]}]}, " + full + "}\n" +
			"    window: {blocks: 8, layout: hnd, " + window + "}\n" +
			"    state: {slots: 4, layout: {order: [slot, component, channel, dim]}}\n"
	}
	pair := func(full, window string) *plan.Pair {
		t.Helper()
		p, _ := fixture.Parse(t, model+"source:"+side("a", "{tp: 2}", full, "block: 16")+"destination:"+side("b", "{tp: 4}", "block: 16", window))
		return p
	}
	const (
		full   = 4096*4*32 + 4 /* ranks */ *4096*16 + 4096/16*4*4
		window = 2 * 48 * 4 * 32
		state  = 2 * (64*6 + 4 /* ranks */ *8*6)
	)
	for _, c := range [][2]string{
		{"block: 16", "block: 16"}, {"block: 32", "block: 48"}, {"block: 64", "block: 16"},
		{"block: 16, shard: {tp: 1, dcp: {size: 2, interleave: 16}}", "block: 16"},
	} {
		got, err := build.CostOf(pair(c[0], c[1]), plan.DefaultBudget())
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(full + window + state); got.Bytes != want || got.Pieces < 1 {
			t.Errorf("%v: %+v, want %d bytes", c, got, want)
		}
	}
}
