package policies_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// The committed modules are what their sources give, to the byte.
func TestCommittedModulesAreRebuilt(t *testing.T) {
	toolchain.Clang(t, "14")
	toolchain.Opened(t, ".")
	toolchain.Opened(t, "../wasm/sdk/c")
	folder := t.TempDir()
	toolchain.Run(t, ".", nil, "sh", "build.sh", folder)
	for _, name := range policies.Names() {
		got, err := os.ReadFile(filepath.Join(folder, name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := policies.Get(name)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the committed module (%d bytes) is not what its source gives (%d bytes): run \"make policies\"", name, len(want), len(got))
		}
		if bytes.Contains(got, []byte(folder)) {
			t.Errorf("%s: the module holds the folder it was built in", name)
		}
	}
}

// A policy's folder holds its source, manifest, module, vectors and words about
// it; nothing in Go could decide in its place.
func TestPolicyFolders(t *testing.T) {
	for _, name := range policies.Names() {
		for _, want := range []string{"manifest.json", name + ".c", name + ".wasm", "README.md", "vectors"} {
			if _, err := os.Stat(filepath.Join(name, want)); err != nil {
				t.Error(err)
			}
		}
		err := filepath.WalkDir(name, func(path string, d os.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				t.Errorf("%s: Go in a policy's folder", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A question that would take for ever is given up, and says so.
func TestHeadsGivesUpInTime(t *testing.T) {
	p := load(t, "heads", false)
	in := &abi.SelectLayoutIn{Engine: "prefill", Model: "m", Role: abi.RoleSource, Peers: make([]abi.Peer, 20_000), Candidates: make([]abi.Candidate, 1)}
	for i := range in.Peers {
		in.Peers[i].Candidates = []abi.Candidate{{}}
		in.Candidates[0].Costs = append(in.Candidates[0].Costs, abi.Cost{Peer: uint32(i), Pieces: 1, Bytes: 1})
	}
	_, _, err := p.SelectLayout(context.Background(), in.Encode(), 1)
	if !errors.Is(err, host.ErrFuel) {
		t.Errorf("error %.200v, want that there is no fuel left", err)
	}

	// One rank with a part for each of many groups, all of the last.
	const n = 20_000
	ask := &abi.RemapIn{Model: "m", Groups: make([]abi.Group, n), Sides: make([]abi.Side, 2)}
	for i := range ask.Groups {
		ask.Groups[i].Components = []abi.Component{{}}
	}
	for i := range ask.Sides {
		ask.Sides[i] = abi.Side{Stages: 1, DCP: 1, Ranks: []abi.Rank{{Parts: make([]abi.Part, n)}}}
		for k := range ask.Sides[i].Ranks[0].Parts {
			ask.Sides[i].Ranks[0].Parts[k].Group = n - 1
		}
	}
	_, err = p.Remap(context.Background(), ask.Encode())
	if !errors.Is(err, host.ErrFuel) {
		t.Errorf("error %.200v, want that there is no fuel left", err)
	}
}
