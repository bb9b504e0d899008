package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// created makes a new policy's folder, builds it with the one command that it
// has, and returns the module, sealed.
func created(t *testing.T, lang string) []byte {
	t.Helper()
	var environment []string
	switch lang {
	case "c":
		environment = []string{"CLANG=" + toolchain.Clang(t, "")}
	case "rust":
		environment = []string{"RUSTC=" + toolchain.Rustc(t, "")}
	case "as":
		environment = []string{"ASC=" + toolchain.ASC(t, "")}
	case "go":
		environment = []string{"GOWORK=off", "GOFLAGS="}
	}
	files, err := sdk.New(lang, "mine")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var manifest []byte
	for _, f := range files {
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, mode); err != nil {
			t.Fatal(err)
		}
		if f.Path == sdk.Manifest {
			manifest = bytes.TrimSpace(f.Data)
		}
	}
	toolchain.Run(t, dir, environment, "sh", sdk.BuildScript)
	if lang == "go" { // also as plain Go, where its author tests it
		toolchain.Run(t, dir, environment, "go", "vet", "./...")
	}
	built, err := os.ReadFile(filepath.Join(dir, sdk.Built))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := module.Seal(built, manifest, abi.Minor)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(built, []byte(dir)) {
		t.Errorf("the module holds the folder it was built in")
	}
	return sealed
}

// routing is a question of two alternatives, of which the second spares the busy
// rank.
func routing() policy.RouteQuestion {
	return policy.RouteQuestion{
		Model: "m", Tokens: 100,
		Source:      policy.Party{Name: "prefill", About: policy.About{Places: []policy.Place{{Load: 7}, {Load: 2}, {Load: 1}}}},
		Destination: policy.Party{Name: "decode"},
		Alternatives: [][]policy.Flow{
			{{Source: 0, Destination: 0, Bytes: 1, Pieces: 1}, {Source: 2, Destination: 1, Bytes: 1, Pieces: 1}},
			{{Source: 1, Destination: 0, Bytes: 1, Pieces: 1}, {Source: 2, Destination: 1, Bytes: 1, Pieces: 1}},
		},
	}
}

// A new policy of every language builds with one command and is a policy: its
// answers are proved where it answers, it declines what it cannot do, and all
// languages' answers are the same to the byte.
func TestNewPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("four compilers take their time")
	}
	pairs := []string{"seed", "llama-70b-hnd", "pp-uneven", "replicas-both", "vllm-mla-p8-d2", "dcp-both", "groups-gdn"}
	in, err := routing().Input()
	if err != nil {
		t.Fatal(err)
	}
	questions := vectors(t)
	questions["route"] = in.Encode()
	var reference map[string]answer // of the first language that could be built
	for _, lang := range sdk.Languages() {
		t.Run(lang, func(t *testing.T) {
			wasm := created(t, lang)
			g := run(t, wasm, room)
			answers, declined := map[string]answer{}, 0
			for name, q := range questions {
				a := g.call(hookOf(q), q, room)
				answers[name] = a
				if a.status == abi.StatusDeclined {
					declined++
				}
				if reference != nil && (a.status != reference[name].status || !bytes.Equal(a.bytes, reference[name].bytes)) {
					t.Errorf("%s: status %d\n%x\nthe others answer status %d\n%x", name, a.status, a.bytes, reference[name].status, reference[name].bytes)
				}
			}
			reference = answers
			if declined == 0 {
				t.Error("nothing was declined")
			}
			for _, name := range pairs {
				pair := fixture.Pair(t, "../../testdata/pairs/"+name+".yaml")
				a := g.call("remap", policy.RemapInput(pair).Encode(), room)
				out, err := abi.DecodeRemapOut(a.bytes)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if name == "dcp-both" {
					if a.status != abi.StatusDeclined || !strings.Contains(out.Reason, "both sides part tokens") {
						t.Errorf("%s: status %d, reason %q, want that it declines", name, a.status, out.Reason)
					}
					continue
				}
				var as []plan.Assignment
				for _, r := range out.Alternatives[0].Assignments {
					as = append(as, plan.Assignment{
						Group: int(r.Group), Components: r.Components, Destination: int(r.Destination), Source: int(r.Source),
						Layers: plan.Range{From: int(r.LayerFrom), To: int(r.LayerTo)}, Heads: plan.Range{From: int(r.HeadFrom), To: int(r.HeadTo)},
						Tokens: plan.Tokens{Size: int(r.TokenSize), Interleave: int(r.TokenInterleave), Phase: int(r.TokenPhase)},
					})
				}
				pl, err := build.Build(pair, as, nil, plan.DefaultBudget())
				if err == nil {
					_, err = proof.Check(pair, pl)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			out, err := abi.DecodeRouteOut(answers["route"].bytes)
			if err != nil || len(out.Decisions) != 1 || out.Decisions[0].Alternative != 1 || out.Reason != "alternative 1: load of its busiest source rank 2 of 8" {
				t.Errorf("route: %+v (%v)", out, err)
			}
		})
	}
}

// What New writes is complete and named, whatever is built here.
func TestNew(t *testing.T) {
	for _, lang := range sdk.Languages() {
		files, err := sdk.New(lang, "my-policy")
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]sdk.File{}
		for _, f := range files {
			if _, twice := have[f.Path]; twice || len(f.Data) == 0 || strings.Contains(f.Path, "..") || strings.HasSuffix(f.Path, ".txt") || strings.HasSuffix(f.Path, "_test.go") {
				t.Errorf("%s: %s is empty, twice there or no path", lang, f.Path)
			}
			if bytes.Contains(f.Data, []byte("{{NAME")) {
				t.Errorf("%s: %s is not filled in", lang, f.Path)
			}
			have[f.Path] = f
		}
		if !slices.IsSortedFunc(files, func(a, b sdk.File) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("%s: the files are not in order", lang)
		}
		for _, want := range []string{"README.md", sdk.Manifest, sdk.BuildScript} {
			if _, ok := have[want]; !ok {
				t.Errorf("%s: %s is missing", lang, want)
			}
		}
		var m struct{ Name string }
		if err := json.Unmarshal(have[sdk.Manifest].Data, &m); err != nil || m.Name != "my-policy" {
			t.Errorf("%s: manifest of %q (%v)", lang, m.Name, err)
		}
		if _, err := module.ParseManifest(bytes.TrimSpace(have[sdk.Manifest].Data)); err != nil {
			t.Errorf("%s: %v", lang, err)
		}
		if !have[sdk.BuildScript].Executable || have["README.md"].Executable {
			t.Errorf("%s: the script is to be run, the README is not", lang)
		}
	}
	if _, err := sdk.New("cobol", "mine"); !errors.Is(err, sdk.ErrUnknownLanguage) || !strings.Contains(err.Error(), `"cobol", want one of as, c, go, rust`) {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"", "Mine", "a/b", "../x", "1a", "a b", strings.Repeat("a", 64)} {
		if _, err := sdk.New("c", name); !errors.Is(err, sdk.ErrName) {
			t.Errorf("%q: error %v", name, err)
		}
	}
}

// The runtime asks a policy how a transfer goes, remembers the answer, and keeps
// it within the limits.
func TestRouteThroughTheRuntime(t *testing.T) {
	wasm := created(t, "c")
	ctx := context.Background()
	p, err := policy.Open(ctx, wasm, policy.Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	q := routing()
	for range 2 {
		d, clamped, err := p.Route(ctx, q)
		if err != nil || d.Alternative != 1 || !strings.HasPrefix(d.Reason, "alternative 1: ") || clamped != nil || p.Calls() != 1 {
			t.Errorf("%+v, %v (%v) in %d calls", d, clamped, err, p.Calls())
		}
	}
	q.Source.Places[1].Load = 8
	if d, _, err := p.Route(ctx, q); err != nil || d.Alternative != 0 || p.Calls() != 2 {
		t.Errorf("another load: %+v (%v) in %d calls", d, err, p.Calls())
	}
	q.Alternatives = nil
	var bad *policy.QuestionError
	if _, _, err := p.Route(ctx, q); !errors.As(err, &bad) || bad.Field != "alternatives" {
		t.Errorf("error %v", err)
	}
}
