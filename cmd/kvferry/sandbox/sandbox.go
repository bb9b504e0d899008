// Package sandbox is where this program lets modules be compiled that are not
// built in: a process of its own for each, and the user's folder for what they
// compile to.
package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/compiler"
	"github.com/kvferry/kvferry/wasm/host"
)

// Box is what some modules need to be loaded. Close it once nothing is loaded
// any more.
type Box struct {
	compiler *compiler.Compiler // nil: built-in modules only
	folder   string             // to be removed; empty: kept for the next run
}

// command is how this program is started to compile a module: the file that
// runs, though another may lie under its name by now.
func command() []string { return append([]string{"/proc/self/exe"}, arguments()...) }

func arguments() []string { return []string{"policy", "compile-child"} }

// Child is the whole program where it was started to compile a module; ran is
// false where it was started for anything else. It comes before all that a
// command does, since the process confines itself. args are those of the process,
// its name first.
func Child(args []string, in io.Reader, out, complaints io.Writer) (status int, ran bool) {
	if len(args) == 0 || !slices.Equal(args[1:], arguments()) {
		return 0, false
	}
	return compiler.Child(command(), in, out, complaints), true
}

// Open makes what the modules need: nothing where all of them are built in. What
// is compiled is kept in the user's folder for caches; a user who has none, or
// one that others may write to, compiles anew in every run.
func Open(modules ...[]byte) (*Box, error) {
	known := policies.Digests()
	if !slices.ContainsFunc(modules, func(m []byte) bool { return !slices.Contains(known, sha256.Sum256(m)) }) {
		return &Box{}, nil
	}
	return OpenAny()
}

// OpenAny is Open for modules that are not known yet.
func OpenAny() (*Box, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		if b, err := OpenIn(filepath.Join(cache, "kvferry", "compiled")); err == nil {
			return b, nil
		}
	}
	folder, err := os.MkdirTemp("", "kvferry-compiled-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for compiled policies: %w", err)
	}
	b, err := OpenIn(folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	b.folder = folder
	return b, nil
}

// OpenIn makes what modules need that are not built in, with a folder for what
// they compile to.
func OpenIn(folder string) (*Box, error) {
	c, err := compiler.New(compiler.Config{Command: command(), Folder: folder})
	if err != nil {
		return nil, err
	}
	return &Box{compiler: c}, nil
}

// Limits are what modules run under here.
func (b *Box) Limits() host.Options {
	o := host.Options{Compiler: b.Policy().Compiler}
	for _, d := range policies.Digests() {
		o.Trusted = append(o.Trusted, d)
	}
	return o
}

// Policy are the same for a policy that is opened.
func (b *Box) Policy() policy.Options {
	if b.compiler == nil { // a nil pointer in an interface is not nil
		return policy.Options{}
	}
	return policy.Options{Compiler: b.compiler}
}

// Check compiles a built-in module in a child and forgets it: whether this host
// lets modules be compiled, and what holds the child then.
func Check(ctx context.Context) (compiler.Protections, error) {
	wasm, ok := policies.Get("heads")
	if !ok {
		return compiler.Protections{}, errors.New("no policy heads is built in")
	}
	folder, err := os.MkdirTemp("", "kvferry-compiled-")
	if err != nil {
		return compiler.Protections{}, fmt.Errorf("make a folder for compiled policies: %w", err)
	}
	b, err := OpenIn(folder)
	if err != nil {
		return compiler.Protections{}, errors.Join(err, os.RemoveAll(folder))
	}
	b.folder = folder
	defer b.Close()
	err = b.compiler.Compile(ctx, wasm, wasm, 256)
	return b.compiler.Protections(), err
}

// Close gives the box back.
func (b *Box) Close() {
	if b.compiler != nil {
		_ = b.compiler.Close() // nothing is being compiled any more
	}
	if b.folder != "" {
		_ = os.RemoveAll(b.folder) // a temporary folder: at worst the system removes it
	}
}
