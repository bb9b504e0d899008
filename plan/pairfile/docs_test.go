package pairfile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan/pairfile"
)

// Every example of the reference is a pair file whose sides hold the same
// cache, and so is every order that it shows.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/pairs.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(text), "```yaml\n")[1:]
	if len(examples) < 2 {
		t.Fatalf("%d examples, want at least 2", len(examples))
	}
	for i, ex := range examples {
		ex, _, _ = strings.Cut(ex, "```\n")
		f, err := pairfile.Parse(fmt.Sprintf("example %d", i+1), []byte(ex))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, _, err := f.Pair(func(string, int) (int, error) { return 0, nil }); err != nil {
			t.Error(err)
		}
		roundTrip(t, f)
	}
	orders := 0
	for line := range strings.Lines(string(text)) {
		order, ok := strings.CutPrefix(line, "    order: ")
		if !ok || strings.HasPrefix(order, "[block, head, token") { // part of an example
			continue
		}
		orders++
		side := "    attention: {block: 32, blocks: 8, layout: {order: " + strings.TrimSpace(order) + "}}\n"
		if strings.Contains(order, "slot") {
			side = "    attention: {slots: 8, layout: {order: " + strings.TrimSpace(order) + "}}\n"
		}
		model := "kvferry: pair/1\nmodel:\n  name: shown\n  layers: 2\n  groups:\n    - name: attention\n      components:\n"
		components := []string{"k, heads: 8", "v, heads: 8"}
		if strings.Contains(order, "slot") {
			model = strings.Replace(model, "      components", "      state: true\n      components", 1)
			components = []string{"x, channels: 64", "B, channels: 32", "C, channels: 32", "ssm, channels: 16"}
		}
		for _, c := range components {
			model += "        - {name: " + c + ", dim: 4, dtype: fp32}\n"
		}
		for _, s := range []string{"source", "destination"} {
			model += s + ":\n  engine: one\n  shard: {tp: 2}\n  groups:\n" + side
		}
		f, err := pairfile.Parse("order", []byte(model))
		if err == nil {
			_, _, err = f.Pair(nil)
		}
		if err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(order), err)
		}
	}
	if orders != 2 {
		t.Errorf("%d orders shown by themselves, want 2", orders)
	}
}
