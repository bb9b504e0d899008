package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/tool"
)

func policyNewCommand(a *app) *cobra.Command {
	var lang string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "makes the folder of a new policy: a template that builds, and the SDK beside it",
		Long: "new makes a folder NAME with a policy that is complete: it builds, passes\n" +
			"\"policy check\", and has a first test. Nothing is fetched: the SDK lies in the\n" +
			"folder.",
		Example: "  kvferry policy new --lang c mine && cd mine && kvferry policy build && kvferry policy check",
		Args:    arguments(1, 1, "NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if lang == "" {
				return usagef("--lang is missing: want one of %s", strings.Join(sdk.Languages(), ", "))
			}
			return a.policyNew(lang, args[0])
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "", "the `LANGUAGE` that it is written in: "+strings.Join(sdk.Languages(), ", "))
	return cmd
}

// sources are the files that an author changes, by language.
func sources() map[string]string {
	return map[string]string{"c": "policy.c", "rust": "src/lib.rs", "as": "policy.ts", "go": "policy.go"}
}

func (a *app) policyNew(lang, name string) error {
	files, err := sdk.New(lang, filepath.Base(name))
	if errors.Is(err, sdk.ErrUnknownLanguage) || errors.Is(err, sdk.ErrName) {
		return usagef("%v", err)
	} else if err != nil {
		return err
	}
	// Mkdir, not MkdirAll: a folder that is there is somebody's work.
	if err := os.Mkdir(name, 0o755); errors.Is(err, fs.ErrExist) {
		return blame.On(blame.Operator, fmt.Errorf("%s is there already: choose another name, or remove it", name))
	} else if err != nil {
		return err
	}
	var paths []string
	for _, f := range files {
		path := filepath.Join(name, filepath.FromSlash(f.Path))
		mode := os.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, mode); err != nil {
			return err
		}
		paths = append(paths, f.Path)
	}
	if a.json() {
		return a.emit(struct {
			Folder   string   `json:"folder"`
			Language string   `json:"language"`
			Source   string   `json:"source"`
			Files    []string `json:"files"`
		}{name, lang, sources()[lang], paths})
	}
	fmt.Fprintf(a.out, "%s: %d files; %s decides\n", name, len(paths), filepath.Join(name, sources()[lang]))
	if a.verbose {
		for _, p := range paths {
			fmt.Fprintf(a.out, "  %s\n", p)
		}
	}
	fmt.Fprintf(a.out, "next: cd %s && kvferry policy build && kvferry policy check && kvferry policy test\n", name)
	return nil
}

func policyBuildCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "build [DIR]",
		Short: "builds the policy in a folder and seals it: adds the manifest and the marker of the ABI",
		Long: "build runs the folder's build.sh with the compiler of the policy's language, which\n" +
			"it looks for (CLANG, RUSTC, ASC and GO name others), and seals what comes out as\n" +
			"NAME.wasm with manifest.json.",
		Example: "  cd mine && kvferry policy build\n  CLANG=clang-19 kvferry policy build mine",
		Args:    arguments(0, 1, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.policyBuild(cmd, folder(args))
		},
	}
}

// folder is the folder that a command is about.
func folder(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// built is what policy build prints.
type built struct {
	File     string `json:"file"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Digest   string `json:"digest"`
	Size     int    `json:"size"`
	Language string `json:"language,omitempty"`
	Compiler string `json:"compiler,omitempty"`
}

// languageOf tells what a policy is written in by its source; "" where that
// cannot be told.
func languageOf(dir string) string {
	for _, lang := range sdk.Languages() {
		if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(sources()[lang]))); err == nil && info.Mode().IsRegular() {
			return lang
		}
	}
	return ""
}

// maxOutput bounds what a compiler's own words take in an error.
const maxOutput = 8 << 10

func (a *app) policyBuild(cmd *cobra.Command, dir string) error {
	manifest, text, err := folderManifest(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sdk.BuildScript)); err != nil {
		return noPolicyFolder(dir, err)
	}
	out := built{File: filepath.Join(dir, manifest.Name+".wasm"), Name: manifest.Name, Version: manifest.Version, Language: languageOf(dir)}
	build := exec.CommandContext(cmd.Context(), "sh", sdk.BuildScript)
	build.Dir, build.Env = dir, os.Environ()
	if out.Language != "" {
		// In the policy's folder npm puts a compiler that no PATH names.
		local := filepath.Join(dir, "node_modules", ".bin", "asc")
		if _, err := os.Stat(local); out.Language != "as" || err != nil {
			t, err := tool.Find(cmd.Context(), out.Language)
			if err != nil {
				return blame.On(blame.Operator, err)
			}
			build.Env = append(build.Env, t.Variable+"="+t.Path)
			out.Compiler = strings.TrimSpace(t.Path + " " + t.Version)
		}
	}
	linked := filepath.Join(dir, sdk.Built)
	if err := os.Remove(linked); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	said := &bytes.Buffer{}
	build.Stdout, build.Stderr = said, said
	a.step("building %s", manifest.Name)
	err = build.Run()
	a.step("")
	if err != nil {
		words := strings.TrimSpace(said.String())
		if len(words) > maxOutput {
			words = words[:maxOutput] + "\n..."
		}
		return blame.On(blame.Operator, fmt.Errorf("%s: %w\n%s", filepath.Join(dir, sdk.BuildScript), err, words))
	}
	wasm, err := readUpTo(linked, module.MaxModule+1)
	if err != nil {
		return fmt.Errorf("%s left no module: %w", filepath.Join(dir, sdk.BuildScript), err)
	}
	sealed, err := module.Seal(wasm, text, abi.Minor)
	if err != nil {
		return blame.On(blame.Operator, fmt.Errorf("seal %s: %w", linked, err))
	}
	if err := replace(out.File, sealed); err != nil {
		return err
	}
	if linked != out.File {
		if err := os.Remove(linked); err != nil { // not sealed: nothing would load it
			return err
		}
	}
	out.Digest, out.Size = geometry.Digest(sha256.Sum256(sealed)).String(), len(sealed)
	if a.json() {
		return a.emit(out)
	}
	fmt.Fprintf(a.out, "%s: %s %s, %d bytes, %s\n", out.File, out.Name, out.Version, out.Size, out.Digest)
	if words := strings.TrimSpace(said.String()); words != "" {
		fmt.Fprint(a.out, indent(words+"\n")) // warnings
	}
	if a.verbose && out.Compiler != "" {
		fmt.Fprintf(a.out, "  built with %s\n", out.Compiler)
	}
	return nil
}

// replace writes a file as a whole or not at all.
func replace(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".kvferry-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
