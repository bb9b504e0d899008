// Package tool finds the compilers that policies are built with. It runs them to
// ask what they are, and for nothing else.
package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Tool is a compiler that was found.
type Tool struct {
	Language string // "c", "rust", "as" or "go"
	Variable string // that a policy's build.sh reads its path from: "CLANG", ...
	Path     string
	Version  string // "14.0.6"; empty where it does not say
}

// Missing is a compiler that was not found.
type Missing struct {
	Language string
	Tool     string // what it is called
	Reason   string
	Install  string // how to get it
}

func (e *Missing) Error() string {
	return fmt.Sprintf("%s, which builds policies in this language (%s), was not found: %s; to get it: %s", e.Tool, e.Language, e.Reason, e.Install)
}

// ErrLanguage is a language that there is no compiler for.
var ErrLanguage = errors.New("wasm/sdk/tool: no compiler is known for this language")

// Find looks for a language's compiler: where its variable of the environment
// says, and else where it is usually.
//
// Errors: *Missing, ErrLanguage.
func Find(ctx context.Context, language string) (Tool, error) {
	switch language {
	case "c":
		return clang(ctx)
	case "rust":
		return rustc(ctx)
	case "as":
		return simple(ctx, "as", "ASC", "asc", "the AssemblyScript compiler", `"npm install -g assemblyscript@0.28.20", or "npm install" in the policy's folder, or set ASC to its path`)
	case "go":
		return simple(ctx, "go", "GO", "go", "the Go compiler (1.24 or later)", "https://go.dev/dl, or set GO to its path")
	}
	return Tool{}, fmt.Errorf("%w: %q", ErrLanguage, language)
}

// simple is a compiler that its variable or the PATH names.
func simple(ctx context.Context, language, variable, name, called, install string) (Tool, error) {
	path := os.Getenv(variable)
	if path == "" {
		path = name
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return Tool{}, &Missing{language, called, err.Error(), install}
	}
	return Tool{language, variable, found, version(ctx, found, language)}, nil
}

func clang(ctx context.Context) (Tool, error) {
	const install = "the packages clang and lld (Debian: apt install clang lld), or set CLANG to its path"
	t, err := simple(ctx, "c", "CLANG", "clang", "clang", install)
	if err != nil {
		return t, err
	}
	out, err := exec.CommandContext(ctx, t.Path, "--print-targets").CombinedOutput()
	if err == nil && !strings.Contains(string(out), "wasm32") {
		return Tool{}, &Missing{"c", "clang with the target wasm32", t.Path + " does not have it", install}
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		// Some installations have the linker beside the compiler only, or with a
		// version in its name; clang finds those itself.
		out, asked := exec.CommandContext(ctx, t.Path, "--print-prog-name=wasm-ld").Output()
		if path := strings.TrimSpace(string(out)); asked != nil || !filepath.IsAbs(path) {
			return Tool{}, &Missing{"c", "wasm-ld, the linker of clang", err.Error(), install}
		}
	}
	return t, nil
}

// rustc looks for one that has the target: one that rustup manages often has
// not.
func rustc(ctx context.Context) (Tool, error) {
	const install = "the packages rustc and libstd-rust-dev-wasm32 (Debian), or \"rustup target add wasm32-unknown-unknown\", or set RUSTC to its path"
	why := "no rustc in the PATH"
	for _, name := range []string{os.Getenv("RUSTC"), "rustc", "/usr/bin/rustc"} {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		root, err := exec.CommandContext(ctx, path, "--print", "sysroot").Output()
		if err != nil {
			why = path + " does not run: " + err.Error()
			continue
		}
		target := filepath.Join(strings.TrimSpace(string(root)), "lib", "rustlib", "wasm32-unknown-unknown")
		if _, err := os.Stat(target); err != nil {
			why = path + " does not have it"
			continue
		}
		return Tool{"rust", "RUSTC", path, version(ctx, path, "rust")}, nil
	}
	return Tool{}, &Missing{"rust", "rustc with the target wasm32-unknown-unknown", why, install}
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// version is what a compiler says of itself.
func version(ctx context.Context, path, language string) string {
	flag := "--version"
	if language == "go" {
		flag = "version"
	}
	out, err := exec.CommandContext(ctx, path, flag).Output()
	if err != nil {
		return ""
	}
	return number.FindString(string(out))
}
