// Package toolchain finds the compilers that guests are built with, for tests. A
// compiler that is not there skips the test, or fails it where the environment
// variable KVFERRY_REQUIRE names its language (clang, rust, as).
package toolchain

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, "clang", err.Error()+" (Debian: clang and lld)")
		}
	}
	if v := version(t, "clang"); major != "" && !strings.HasPrefix(v, major+".") {
		missing(t, "clang", "the committed modules are those of clang "+major+", here is "+v)
	}
	return "clang"
}

// Rustc is a Rust compiler that has the target, of the given version; any where
// that is empty.
func Rustc(t testing.TB, exact string) string {
	t.Helper()
	why := "no rustc with the target wasm32-unknown-unknown was found (Debian: rustc and libstd-rust-dev-wasm32)"
	for _, path := range []string{os.Getenv("RUSTC"), "rustc", "/usr/bin/rustc"} {
		if path == "" {
			continue
		}
		root, err := exec.Command(path, "--print", "sysroot").Output()
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(root)), "lib", "rustlib", "wasm32-unknown-unknown")); err != nil {
			continue
		}
		v := version(t, path)
		if exact == "" || v == exact {
			return path
		}
		why = "the committed modules are those of rustc " + exact + ", here is " + v
	}
	missing(t, "rust", why)
	return ""
}

// ASC is the AssemblyScript compiler, of the given version; any where that is
// empty.
func ASC(t testing.TB, exact string) string {
	t.Helper()
	path := os.Getenv("ASC")
	if path == "" {
		path = "asc"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		missing(t, "as", "no AssemblyScript compiler was found (npm install -g assemblyscript@0.28.20): "+err.Error())
	}
	if v := version(t, path); exact != "" && v != exact {
		missing(t, "as", "the committed modules are those of AssemblyScript "+exact+", here is "+v)
	}
	return path
}

// version is what a compiler says of itself.
func version(t testing.TB, compiler string) string {
	t.Helper()
	out, err := exec.Command(compiler, "--version").Output()
	if err != nil {
		t.Fatalf("%s --version: %v", compiler, err)
	}
	return regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
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
