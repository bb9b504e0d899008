package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/hostile"
)

const hostileFolder = "../../wasm/testdata/hostile"

// Every hostile module is refused with its reason, its place, whose fault it is
// and what to do, or is contained; one command does them all.
func TestHostileModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(hostileFolder, "*.wasm"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	all := len(files)
	if testing.Short() && !*rewrite { // the race detector looks for races: some do for that
		some := files[:0:0]
		for i := 0; i < all; i += 8 {
			some = append(some, files[i])
		}
		files = some
	}
	code, out, errs := kvferry(append([]string{"policy", "check", "-o", "json"}, files...)...)
	if code != 1 || errs != "" {
		t.Errorf("exit status %d, %s", code, errs)
	}
	got := map[string]hostile.Outcome{}
	for line := range strings.Lines(out) {
		r, err := hostile.Read([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if l := r.Lacks(); l != "" {
			t.Errorf("%s does not say %s: %q; %q", r.Name, l, r.Message, r.Fix)
		}
		got[r.Name] = r.Outcome
	}
	if len(got) != len(files) {
		t.Errorf("%d reports of %d modules", len(got), len(files))
	}
	name := filepath.Join(hostileFolder, "expect.json")
	if *rewrite {
		text, err := json.MarshalIndent(got, "", "\t")
		if err == nil {
			err = os.WriteFile(name, append(text, '\n'), 0o644)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(hostileFolder, "README.md"), hostilePage(got), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]hostile.Outcome
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) != all {
		t.Errorf("%d expectations of %d modules", len(want), all)
	}
	for name, g := range got {
		if w, ok := want[name]; !ok || !(hostile.Report{Name: name, Outcome: g}).Is(w) {
			t.Errorf("%s: got %s, want %s", name, asText(t, g), asText(t, w))
		}
	}
	page, err := os.ReadFile(filepath.Join(hostileFolder, "README.md"))
	if err != nil || !bytes.Equal(page, hostilePage(want)) {
		t.Errorf("README.md is not what expect.json says (%v): run the test with -rewrite", err)
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// hostilePage is the folder's page.
func hostilePage(all map[string]hostile.Outcome) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Hostile modules\n\nPolicies that do harm, or try to, one way each; package `wasm/hostile` writes them. What becomes of each is in\n`expect.json`, which `kvferry policy check *.wasm -o json` has to agree with. Contained means that it runs and gets\nnowhere.\n\n| module | tries | what happens |\n|---|---|---|\n")
	for _, m := range hostile.Modules() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, m.Does, all[m.Name])
	}
	return b.Bytes()
}
