package tool_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/tool"
)

// A compiler that is not there is named, with how to get it, for every language
// that there is an SDK for.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, v := range []string{"CLANG", "RUSTC", "ASC", "GO"} {
		t.Setenv(v, "")
	}
	for _, language := range sdk.Languages() {
		found, err := tool.Find(t.Context(), language)
		if language == "rust" && err == nil {
			if found.Path != "/usr/bin/rustc" {
				t.Errorf("rust: found %+v with nothing in the PATH", found)
			}
			continue
		}
		var missing *tool.Missing
		if !errors.As(err, &missing) || missing.Language != language || missing.Install == "" || !strings.Contains(err.Error(), "to get it: "+missing.Install) {
			t.Errorf("%s: error %v", language, err)
		}
	}
	if _, err := tool.Find(t.Context(), "cobol"); !errors.Is(err, tool.ErrLanguage) {
		t.Errorf("error %v", err)
	}
}

// What a variable names is taken before anything else, and asked what it is.
func TestVariables(t *testing.T) {
	folder := t.TempDir()
	asc := filepath.Join(folder, "my-asc")
	if err := os.WriteFile(asc, []byte("#!/bin/sh\necho Version 1.2.3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASC", asc)
	if got, err := tool.Find(t.Context(), "as"); err != nil || got != (tool.Tool{Language: "as", Variable: "ASC", Path: asc, Version: "1.2.3"}) {
		t.Errorf("%+v (%v)", got, err)
	}
	// A compiler without the target or without its linker is none.
	clang := filepath.Join(folder, "clang")
	if err := os.WriteFile(clang, []byte("#!/bin/sh\ncase $1 in --print-targets) echo x86;; *) echo clang 9.9.9;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CLANG", clang)
	var missing *tool.Missing
	if _, err := tool.Find(t.Context(), "c"); !errors.As(err, &missing) || !strings.Contains(missing.Tool, "wasm32") {
		t.Errorf("error %v", err)
	}
	rustc := filepath.Join(folder, "rustc")
	if err := os.WriteFile(rustc, []byte("#!/bin/sh\necho "+folder+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUSTC", rustc)
	if got, err := tool.Find(t.Context(), "rust"); err == nil && got.Path == rustc {
		t.Error("a rustc without the target was taken")
	}
	if err := os.MkdirAll(filepath.Join(folder, "lib", "rustlib", "wasm32-unknown-unknown"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := tool.Find(t.Context(), "rust"); err != nil || got.Path != rustc {
		t.Errorf("%+v (%v)", got, err)
	}
	if !slices.Contains(sdk.Languages(), "rust") {
		t.Error("no SDK for Rust")
	}
}
