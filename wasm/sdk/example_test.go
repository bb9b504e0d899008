package sdk_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// The examples that come with the binary are those of the folders.
func TestExamples(t *testing.T) {
	for lang, folder := range map[string]string{"rust": "rust", "as": "assemblyscript"} {
		got, err := sdk.Example(lang)
		if err != nil || !bytes.Equal(got, read(t, folder+"/examples/heads/heads.wasm")) {
			t.Errorf("%s: %d bytes, %v", lang, len(got), err)
		}
	}
	for _, lang := range []string{"c", "go", "cobol"} {
		if _, err := sdk.Example(lang); !errors.Is(err, sdk.ErrUnknownLanguage) {
			t.Errorf("%s: %v", lang, err)
		}
	}
}

// The Go example builds away from the repository, and answers alike.
func TestGoExampleBuildsAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("building it takes seconds")
	}
	dir := t.TempDir()
	files, script := sdk.GoExample()
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, script)
	toolchain.Run(t, folder, []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, "sh", "build.sh")
	in := vectors(t)["remap-seed.json"]
	got := run(t, read(t, filepath.Join(folder, "heads.wasm")), room).call(hookOf(in), in, room)
	want := run(t, goHeads(t), room).call(hookOf(in), in, room)
	if got.status != want.status || !bytes.Equal(got.bytes, want.bytes) {
		t.Errorf("status %d, %x; in the repository %d, %x", got.status, got.bytes, want.status, want.bytes)
	}
}
