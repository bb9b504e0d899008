// Package toolchain finds the compilers that guests are built with, for tests. A
// compiler that is not there skips the test, or fails it where the environment
// variable KVFERRY_REQUIRE names its language (clang, rust, as).
package toolchain

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/sdk/tool"
)

// missing ends the test for want of a compiler.
func missing(t testing.TB, language, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("KVFERRY_REQUIRE"), ","), language) {
		t.Fatalf("KVFERRY_REQUIRE names %s, but %s", language, why)
	}
	t.Skip(why)
}

// Clang is clang with the linker for guests, of the given major version; any
// where that is empty.
func Clang(t testing.TB, major string) string {
	t.Helper()
	return found(t, "c", "clang", func(v string) bool { return major == "" || strings.HasPrefix(v, major+".") }, "clang "+major)
}

// Rustc is a Rust compiler that has the target, of the given version; any where
// that is empty.
func Rustc(t testing.TB, exact string) string {
	t.Helper()
	return found(t, "rust", "rust", func(v string) bool { return exact == "" || v == exact }, "rustc "+exact)
}

// ASC is the AssemblyScript compiler, of the given version; any where that is
// empty.
func ASC(t testing.TB, exact string) string {
	t.Helper()
	return found(t, "as", "as", func(v string) bool { return exact == "" || v == exact }, "AssemblyScript "+exact)
}

// found is a language's compiler, of a version that is right. required is the
// language's name in KVFERRY_REQUIRE.
func found(t testing.TB, language, required string, right func(version string) bool, want string) string {
	t.Helper()
	c, err := tool.Find(t.Context(), language)
	switch {
	case err != nil:
		missing(t, required, err.Error())
	case !right(c.Version):
		missing(t, required, "the committed modules are those of "+want+", here is "+c.Version)
	}
	return c.Path
}

// Run runs a command in a folder, with variables added to the environment, and
// fails the test with what it wrote where it fails.
func Run(t testing.TB, dir string, environment []string, args ...string) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), environment...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
}

// Opened reads the files below a folder, so that the go command runs a test
// again whose compiler would see others.
func Opened(t testing.TB, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
