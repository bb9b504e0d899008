package policies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
)

// Every pair file's answer is proved: states, scales, compressed entries, MLA
// with an indexer, draft layers, windows, shards of groups' own among them.
func TestPairFilesAreProved(t *testing.T) {
	p := open(t, "heads")
	files, err := filepath.Glob("../testdata/pairs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pair files (%v)", len(files), err)
	}
	groups := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := pairfile.Parse(filepath.Base(path), text)
		if err != nil {
			t.Fatal(err)
		}
		pair, _, err := f.Pair(func(string, int) (int, error) { return 0, nil })
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Remap(context.Background(), pair)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
		if err == nil {
			_, err = proof.Check(pair, pl)
		}
		if err != nil {
			t.Errorf("%s: %+v", path, err)
		}
		groups += len(pair.Source.Groups)
	}
	if groups <= len(files) {
		t.Errorf("%d groups in %d files: none has several", groups, len(files))
	}
}

// A scale comes from where its rows come from. One that all heads share binds
// them to one source rank; where none has them all, the proof says what comes
// apart. What scales nothing goes its own way.
func TestScalesComeWithTheirRows(t *testing.T) {
	const (
		k        = "{name: k, heads: %d, dim: 16, dtype: fp8}"
		shared   = k + ", {name: scale, heads: 0, dim: 1, dtype: fp32, scales: k}"
		byBlock  = k + ", {name: scale, heads: 0, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}"
		headed   = k + ", {name: scale, heads: %d, dim: 1, dtype: fp32, tokens_per_entry: 16, scales: k}"
		latent   = k + ", {name: latent, heads: 0, dim: 16, dtype: bf16}"
		together = "{order: [block, component, {k: [token, head, dim], scale: [token, dim]}]}"
		byHead   = "{order: [block, component, token, head, dim]}"
		beside   = "{order: [block, component, {k: [token, head, dim], latent: [token, dim]}]}"
	)
	for _, c := range []struct {
		name, components    string
		heads               int
		layout              string
		source, destination string
		want                string // one line an assignment
		parted              bool
	}{
		{"heads of one rank", shared, 8, together, "{tp: 2}", "{tp: 4}", `
			rank 0 <- rank 0: k, layers 0, heads 0-1
			rank 0 <- rank 0: scale, layers 0, heads 0
			rank 1 <- rank 0: k, layers 0, heads 2-3
			rank 1 <- rank 0: scale, layers 0, heads 0
			rank 2 <- rank 1: k, layers 0, heads 4-5
			rank 2 <- rank 1: scale, layers 0, heads 0
			rank 3 <- rank 1: k, layers 0, heads 6-7
			rank 3 <- rank 1: scale, layers 0, heads 0`, false},
		{"for a block of tokens, over replicas", byBlock, 2, together, "{tp: 4}", "{tp: 4}", `
			rank 0 <- rank 0: k, layers 0, heads 0
			rank 0 <- rank 0: scale, layers 0, heads 0
			rank 1 <- rank 1: k, layers 0, heads 0
			rank 1 <- rank 1: scale, layers 0, heads 0
			rank 2 <- rank 2: k, layers 0, heads 1
			rank 2 <- rank 2: scale, layers 0, heads 0
			rank 3 <- rank 3: k, layers 0, heads 1
			rank 3 <- rank 3: scale, layers 0, heads 0`, false},
		{"heads of two ranks", shared, 4, together, "{tp: 2}", "{tp: 1}", `
			rank 0 <- rank 0: k, layers 0, heads 0-1
			rank 0 <- rank 1: k, layers 0, heads 2-3
			rank 0 <- rank 0: scale, layers 0, heads 0`, true},
		{"all heads on one of the ranks", shared, 2, together, "{tp: 3, heads: [[0], [1], [1, 0]]}", "{tp: 2}", `
			rank 0 <- rank 0: k, layers 0, heads 0
			rank 0 <- rank 0: scale, layers 0, heads 0
			rank 1 <- rank 1: k, layers 0, heads 1
			rank 1 <- rank 1: scale, layers 0, heads 0`, false},
		{"the one rank with all heads", shared, 2, together, "{tp: 3, heads: [[0], [1], [1, 0]]}", "{tp: 1}", `
			rank 0 <- rank 2: k, layers 0, heads 0-1
			rank 0 <- rank 2: scale, layers 0, heads 0`, false},
		{"a scale for each head, over replicas", headed, 2, byHead, "{tp: 4}", "{tp: 1}", `
			rank 0 <- rank 0: k, layers 0, heads 0
			rank 0 <- rank 0: scale, layers 0, heads 0
			rank 0 <- rank 2: k, layers 0, heads 1
			rank 0 <- rank 2: scale, layers 0, heads 1`, false},
		{"tokens of several ranks", byBlock, 2, together, "{tp: 1, dcp: {size: 2, interleave: 16}}", "{tp: 1}", `
			rank 0 <- rank 0: k, layers 0, heads 0-1, tokens with (t / 16) mod 2 = 0
			rank 0 <- rank 0: scale, layers 0, heads 0, tokens with (t / 16) mod 2 = 0
			rank 0 <- rank 1: k, layers 0, heads 0-1, tokens with (t / 16) mod 2 = 1
			rank 0 <- rank 1: scale, layers 0, heads 0, tokens with (t / 16) mod 2 = 1`, false},
		{"no scale at all", latent, 4, beside, "{tp: 2}", "{tp: 2}", `
			rank 0 <- rank 0: k, layers 0, heads 0-1
			rank 0 <- rank 1: latent, layers 0, heads 0
			rank 1 <- rank 1: k, layers 0, heads 2-3
			rank 1 <- rank 0: latent, layers 0, heads 0`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			components := fmt.Sprintf(strings.ReplaceAll(c.components, "%d", "%[1]d"), c.heads)
			side := func(name, shard string) string {
				return fmt.Sprintf("%s: {engine: %s, shard: %s, block: 16, blocks: 8, layout: %s}\n", name, name, shard, c.layout)
			}
			pair, _ := fixture.Parse(t, fmt.Sprintf("model: {name: m, layers: 1, components: [%s]}\n", components)+side("source", c.source)+side("destination", c.destination))
			answer, err := open(t, "heads").Remap(context.Background(), pair)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, a := range answer.Alternatives[0] {
				got += "\n\t\t\t" + a.Text(pair)
			}
			if got != c.want {
				t.Errorf("answer%s\nwant%s", got, c.want)
			}
			pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
			if err != nil {
				t.Fatal(err)
			}
			_, err = proof.Check(pair, pl)
			var fault *proof.Fault
			if parted := errors.As(err, &fault) && fault.Kind == proof.Parted; parted != c.parted || !parted && err != nil {
				t.Errorf("proof: %+v, want that it comes apart: %v", err, c.parted)
			}
		})
	}
}
