package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/hostile"
)

const hostileFolder = "../../wasm/testdata/hostile"

// expected is what becomes of a hostile module: it is refused at a stage, for a
// reason of some kind, at a place; or it is contained, and may run.
type expected struct {
	Does      string  `json:"does"`
	Contained bool    `json:"contained,omitempty"`
	Stage     string  `json:"stage,omitempty"`
	Kind      string  `json:"kind,omitempty"`
	Fault     string  `json:"fault,omitempty"`
	Hook      string  `json:"hook,omitempty"`
	Export    string  `json:"export,omitempty"`
	Function  *int    `json:"function,omitempty"`
	Offset    *int    `json:"offset,omitempty"`
	Got       *uint64 `json:"got,omitempty"`
	Limit     *uint64 `json:"limit,omitempty"`
}

// Every hostile module is refused with its reason, its place, whose fault it is
// and what to do, or is contained; one command does them all.
func TestHostileModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(hostileFolder, "*.wasm"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	code, out, errs := kvferry(append([]string{"policy", "check", "-o", "json"}, files...)...)
	if code != 1 || errs != "" {
		t.Errorf("exit status %d, %s", code, errs)
	}
	does := map[string]string{}
	for _, m := range hostile.Modules() {
		does[m.Name] = m.Does
	}
	got := map[string]expected{}
	for line := range strings.Lines(out) {
		r := decode[struct {
			File  string
			OK    bool
			Stage string
			Error *struct {
				Kind, Fault, Hook, Export, Message, Fix string
				Function, Offset                        *int
				Got, Limit                              *uint64
			}
		}](t, line)
		name := strings.TrimSuffix(filepath.Base(r.File), ".wasm")
		e := expected{Does: does[name], Contained: r.OK, Stage: r.Stage}
		if x := r.Error; x != nil {
			e.Kind, e.Fault, e.Hook, e.Export, e.Function, e.Offset, e.Got, e.Limit = x.Kind, x.Fault, x.Hook, x.Export, x.Function, x.Offset, x.Got, x.Limit
			if x.Fix == "" || x.Message == "" || x.Fault == "" {
				t.Errorf("%s: %q, fault %q, fix %q", name, x.Message, x.Fault, x.Fix)
			}
			if x.Offset == nil && x.Function == nil && x.Export == "" && name != "manifest-missing" && !strings.HasPrefix(x.Message, "policy module: manifest abi") {
				t.Errorf("%s: no place: %s", name, x.Message)
			}
		}
		if r.OK == (r.Error != nil) {
			t.Errorf("%s: ok %v, error %+v", name, r.OK, r.Error)
		}
		got[name] = e
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
	var want map[string]expected
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if g, ok := got[name]; !ok || !reflect.DeepEqual(g, w) {
			t.Errorf("%s: got %s, want %s", name, asText(t, g), asText(t, w))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s stands in no expectation", name)
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
func hostilePage(all map[string]expected) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Hostile modules\n\nPolicies that do harm, or try to, one way each; package `wasm/hostile` writes them. What becomes of each is in\n`expect.json`, which `kvferry policy check *.wasm -o json` has to agree with. Contained means that it runs and gets\nnowhere.\n\n| module | tries | what happens |\n|---|---|---|\n")
	for _, m := range hostile.Modules() {
		e := all[m.Name]
		what := "contained"
		if !e.Contained {
			what = fmt.Sprintf("refused at %s: %s", e.Stage, e.Kind)
			switch {
			case e.Offset != nil:
				what += fmt.Sprintf(", byte %d", *e.Offset)
			case e.Export != "":
				what += ", `" + e.Export + "`"
			}
			if e.Limit != nil {
				what += fmt.Sprintf(", limit %d", *e.Limit)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, m.Does, what)
	}
	return b.Bytes()
}
