package proof_test

import (
	"errors"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/proof"
)

// A rank that holds and gets what another does is right for the same reasons.
// One whose runs differ in anything is looked at for itself.
func TestRanksAlikeAreNotTakenOnTrust(t *testing.T) {
	for _, c := range []struct {
		name, components    string
		source, destination fixture.Half
		ranks               int // of the destination
	}{
		{"latents", "{name: latent, heads: 0, dim: 8, dtype: bf16}, {name: rope, heads: 0, dim: 4, dtype: bf16}",
			fixture.Side("{tp: 2, pp: 2}", 4, "[block, token, component, dim]"), fixture.Side("{tp: 4, pp: 2}", 8, "[component, block, token, dim]"), 8},
		{"shared heads", fixture.KV(2, 4, "fp8"),
			fixture.Side("{tp: 4}", 4, "[block, head, token, component, dim]"), fixture.Side("{tp: 6}", 4, "[block, token, head, component, dim]"), 6},
		{"scales", "{name: k, heads: 2, dim: 4, dtype: fp8}, {name: s, heads: 0, dim: 1, dtype: fp32, tokens_per_entry: 2, scales: k}",
			fixture.Side("{tp: 2}", 4, "[block, {k: [head, token, dim], s: [token, dim]}]"), fixture.Side("{tp: 4}", 4, "[block, {k: [token, head, dim], s: [token, dim]}]"), 4},
		{"dealt tokens", "{name: latent, heads: 0, dim: 8, dtype: bf16}",
			fixture.Side("{tp: 2, dcp: {size: 2, interleave: 2}}", 4, "[block, token, dim]"), fixture.Side("{tp: 3}", 4, "[block, token, dim]"), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := fixture.Pair(t, 4, c.components, c.source, c.destination)
			make := func() *plan.Plan {
				pl, err := build.Build(p, fixture.Assign(p, 1), nil, plan.DefaultBudget())
				if err != nil {
					t.Fatal(err)
				}
				return pl
			}
			pl := make()
			proven, err := proof.Check(p, pl)
			if err != nil {
				t.Fatal(err)
			}
			if want := countElements(p, pl); proven.Elements() != want {
				t.Errorf("%d elements, want %d", proven.Elements(), want)
			}
			ranks := map[int]bool{}
			for _, e := range pl.Edges {
				ranks[e.Destination] = true
			}
			if len(ranks) != c.ranks {
				t.Fatalf("%d ranks are fed, want %d", len(ranks), c.ranks)
			}
			changes := map[string]func(*plan.Run){
				"source offset":      func(r *plan.Run) { r.SourceOffset++ },
				"destination offset": func(r *plan.Run) { r.DestinationOffset++ },
				"bytes":              func(r *plan.Run) { r.Bytes-- },
				"longer":             func(r *plan.Run) { r.Bytes++ },
				"layer":              func(r *plan.Run) { r.Layer++ },
				"source region":      func(r *plan.Run) { r.SourceRegion ^= 1 },
				"destination region": func(r *plan.Run) { r.DestinationRegion ^= 1 },
				"no loops":           func(r *plan.Run) { r.Loops = nil },
				"a loop more": func(r *plan.Run) {
					r.Loops = append([]plan.Loop{{Count: 2, SourceStride: 1, DestinationStride: 1}}, r.Loops...)
				},
				"component": func(r *plan.Run) { r.Component++ },
				"piece":     func(r *plan.Run) { r.Piece++ },
			}
			for i := range pl.Runs {
				for what, change := range changes {
					bad := make()
					before := len(bad.Runs[i].Loops)
					if change(&bad.Runs[i]); what == "no loops" && before == 0 {
						continue
					}
					var fault *proof.Fault
					if err := proof.Examine(p, bad); !errors.As(err, &fault) {
						t.Errorf("run %d of edge %d, %s changed: %v", i, bad.Runs[i].Edge, what, err)
					}
				}
			}
			// A rank that is fed less than the one that it is like.
			for i := range pl.Edges {
				bad := make()
				e := bad.Edges[i]
				bad.Edges = append(bad.Edges[:i], bad.Edges[i+1:]...)
				bad.Runs = append(bad.Runs[:e.From], bad.Runs[e.To:]...)
				for k := range bad.Edges[i:] {
					o := &bad.Edges[i+k]
					o.From, o.To = o.From-(e.To-e.From), o.To-(e.To-e.From)
					for r := o.From; r < o.To; r++ {
						bad.Runs[r].Edge--
					}
				}
				var fault *proof.Fault
				if err := proof.Examine(p, bad); !errors.As(err, &fault) || fault.Kind != proof.Gap || fault.Rank != e.Destination {
					t.Errorf("without edge %d (%d to %d): %v", i, e.Source, e.Destination, err)
				}
			}
		})
	}
}

// countElements counts, entry by entry, what the destination ranks hold of a
// period.
func countElements(p *plan.Pair, pl *plan.Plan) int64 {
	var n int64
	for g, group := range p.Destination.Model.Groups {
		for r := range p.Destination.Ranks {
			part := p.Destination.Part(g, r)
			for ci, c := range group.Components {
				for t := int64(0); t < pl.Groups[g].Tokens; t += int64(c.EntryTokens()) {
					if _, held := part.Local(t); held {
						n += int64(len(part.Layers) * len(fixture.Heads(&part, ci)) * c.Dim)
					}
				}
			}
		}
	}
	return n
}
