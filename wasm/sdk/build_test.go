package sdk_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// language is one that there is an SDK for. C has its own module, which the
// others are compared with.
type language struct {
	name  string
	heads func(testing.TB) []byte
}

var languages = []language{
	{"rust", func(t testing.TB) []byte { return read(t, "rust/examples/heads/heads.wasm") }},
	{"assemblyscript", func(t testing.TB) []byte { return read(t, "assemblyscript/examples/heads/heads.wasm") }},
	{"go", goHeads},
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goHeads builds the Go guest: it is too large to be kept. The compiler is the
// one that runs this test.
var goHeads = func() func(testing.TB) []byte {
	var once sync.Once
	var wasm []byte
	return func(t testing.TB) []byte {
		t.Helper()
		once.Do(func() {
			toolchain.Opened(t, "go")
			out := t.TempDir()
			toolchain.Run(t, "go/examples/heads", nil, "sh", "build.sh", out)
			wasm = read(t, filepath.Join(out, "heads.wasm"))
		})
		if wasm == nil {
			t.Fatal("the Go guest was not built")
		}
		return wasm
	}
}()

// The committed modules are what their sources give, to the byte, with the
// compilers that they are those of.
func TestCommittedModulesAreRebuilt(t *testing.T) {
	for _, c := range []struct {
		language, folder, version, environment string
		compiler                               func(testing.TB, string) string
	}{
		{"rust", "rust/examples/heads", "1.63.0", "RUSTC", toolchain.Rustc},
		{"as", "assemblyscript/examples/heads", "0.28.20", "ASC", toolchain.ASC},
	} {
		t.Run(c.language, func(t *testing.T) {
			compiler := c.compiler(t, c.version)
			toolchain.Opened(t, filepath.Dir(filepath.Dir(c.folder)))
			out := t.TempDir()
			toolchain.Run(t, c.folder, []string{c.environment + "=" + compiler}, "sh", "build.sh", out)
			got, want := read(t, filepath.Join(out, "heads.wasm")), read(t, c.folder+"/heads.wasm")
			if !bytes.Equal(got, want) {
				t.Errorf("%s/heads.wasm (%d bytes) is not what its source gives (%d bytes): run its build.sh", c.folder, len(want), len(got))
			}
			here, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(got, []byte(here)) {
				t.Error("the module holds a path of the machine that built it")
			}
		})
	}
}
