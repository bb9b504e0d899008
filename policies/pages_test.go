package policies_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

// A policy's README is also its page of the documentation, to the byte: what is
// said stands where the source is and where operators look.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/policies/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !has(name) || name == "seedbug" {
			t.Errorf("%s: there is no such policy for operators", page)
		}
	}
	for _, name := range policies.Names() {
		if name == "seedbug" { // the bug that it shows is nothing to run
			continue
		}
		text, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		page := filepath.Join("..", "docs", "policies", name+".md")
		if *rewrite {
			if err := os.WriteFile(page, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(page); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not %s/README.md (%v): run go test ./policies -run TestPages -rewrite", page, name, err)
		}
		if n := bytes.Count(text, []byte("\n")); n > 80 {
			t.Errorf("%s: %d lines are no page", name, n)
		}
		for _, want := range []string{"# " + name + "\n", "**When to use it.**", "**What it does.**", "**Configuration.**", "**What it declines", "kvferry policy explain", "**What it costs.**"} {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s: the page does not have %q", name, want)
			}
		}
	}
}

func has(name string) bool {
	_, ok := policies.Get(name)
	return ok
}

// The configurations that the pages show are taken as they are.
func TestConfigurationsOfPages(t *testing.T) {
	shown := 0
	for _, name := range policies.Names() {
		text, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			shown++
			pair := parsePair(t, "seed")
			pair.Source.Engine, pair.Destination.Engine = "prefill-a", "decode-1"
			q := policy.RemapQuestion{Pair: pair}
			crowded(&q)
			q.Providers[1].Name = "shm"
			q.Configuration = written(t, string(block[1]))
			p := open(t, name)
			answer, err := p.RemapFor(context.Background(), q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r := routed(q, answer)
			for i := range r.Source.Places {
				r.Source.Places[i].Rails = rails("mlx5_0", "mlx5_1")
			}
			for i := range r.Destination.Places {
				r.Destination.Places[i].Rails = rails("mlx5_1", "mlx5_0")
			}
			if _, _, err := p.Route(context.Background(), r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if shown != 3 {
		t.Errorf("%d configurations are shown", shown)
	}
}

func rails(names ...string) (out []policy.Rail) {
	for _, n := range names {
		out = append(out, policy.Rail{Name: n})
	}
	return out
}
