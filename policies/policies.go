// Package policies holds the built-in policies: one folder each with its
// source, manifest and the module built from them. It is data; nothing in Go
// decides anything here.
package policies

import (
	"crypto/sha256"
	"embed"
	"path"
	"slices"
)

//go:embed */*.wasm
var modules embed.FS

// Names are the built-in policies in ascending order.
func Names() []string {
	files, err := modules.ReadDir(".")
	if err != nil {
		panic("policies: the embedded folder cannot be read: " + err.Error())
	}
	var out []string
	for _, f := range files {
		if _, ok := Get(f.Name()); ok {
			out = append(out, f.Name())
		}
	}
	slices.Sort(out)
	return out
}

// Get returns a built-in policy's module.
func Get(name string) ([]byte, bool) {
	b, err := modules.ReadFile(path.Join(name, name+".wasm"))
	return b, err == nil
}

// Digests are the SHA-256 of the built-in modules: what is compiled without a process of its own.
func Digests() [][sha256.Size]byte {
	var out [][sha256.Size]byte
	for _, n := range Names() {
		b, _ := Get(n)
		out = append(out, sha256.Sum256(b))
	}
	return out
}
