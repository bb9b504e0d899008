package hostile_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/hostile"
)

const folder = "../testdata/hostile"

var rewrite = flag.Bool("rewrite", false, "write the modules anew")

// The committed files are what the source gives, and nothing else lies there.
func TestFiles(t *testing.T) {
	var want []string
	for _, m := range hostile.Modules() {
		want = append(want, m.Name)
		name := filepath.Join(folder, m.Name+".wasm")
		if *rewrite {
			if err := os.WriteFile(name, m.Wasm, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, m.Wasm) {
			t.Errorf("%s is not what the source gives (%v): run the test with -rewrite", name, err)
		}
		if m.Does == "" {
			t.Errorf("%s does not say what it does", m.Name)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, strings.TrimSuffix(filepath.Base(f), ".wasm"))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) < 50 {
		t.Errorf("%d files %q, want %q", len(got), got, want)
	}
}
