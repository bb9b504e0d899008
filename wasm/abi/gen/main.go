// Command gen makes everything that follows from the schema of ABI kvferry/1:
// the Go host code, the guest code for C, Rust, AssemblyScript and Go, the
// specification docs/abi.md and the golden messages. It is run by
// "go generate ./wasm/abi".
package main

import (
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
)

const schemaFile = "kvferry1.schema"

// folder is wasm/abi, from where "go run ./wasm/abi/gen" or "go generate" run.
func folder() string {
	for _, dir := range []string{".", "wasm/abi"} {
		if _, err := os.Stat(filepath.Join(dir, "schema", schemaFile)); err == nil {
			return dir
		}
	}
	return ".."
}

func main() {
	log.SetFlags(0)
	dir := folder()
	files, err := generate(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.path), f.data, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// file is a generated file; its path is relative to wasm/abi.
type file struct {
	path string
	data []byte
}

// generate makes every generated file from the schema below dir.
func generate(dir string) ([]file, error) {
	text, err := os.ReadFile(filepath.Join(dir, "schema", schemaFile))
	if err != nil {
		return nil, err
	}
	s, err := parse(string(text))
	if err != nil {
		return nil, err
	}
	rules, err := os.ReadFile(filepath.Join(dir, "schema", "abi.md"))
	if err != nil {
		return nil, err
	}
	spec, err := s.markdown(string(rules))
	if err != nil {
		return nil, err
	}
	values, messages := s.golden()
	out := []file{
		{"../sdk/c/kvferry_abi_gen.h", s.cCode()},
		{"../sdk/rust/src/abi_gen.rs", s.rustCode()},
		{"../sdk/assemblyscript/assembly/abi_gen.ts", s.asCode()},
		{"../../docs/abi.md", spec},
	}
	for _, code := range []file{{"records_gen.go", s.goCode()}, {"golden_gen_test.go", values}, {"../sdk/go/kvferry/abi_gen.go", s.guestCode()}} {
		formatted, err := format.Source(code.data)
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", code.path, err)
		}
		out = append(out, file{code.path, formatted})
	}
	return append(out, messages...), nil
}
