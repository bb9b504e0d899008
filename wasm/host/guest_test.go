package host

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

// goGuest builds the Go example of a policy, which is too large to be kept.
func goGuest(t testing.TB) []byte {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.Command("sh", "build.sh", folder)
	cmd.Dir = "../sdk/go/examples/heads"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the Go guest: %v\n%s", err, out)
	}
	return sealed(t, filepath.Join(folder, "heads.wasm"))
}

// sealed is a module of the example with the built-in policy's manifest.
func sealed(t testing.TB, file string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../policies/heads/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	if wasm, err = module.Seal(wasm, manifest, abi.Minor); err != nil {
		t.Fatal(err)
	}
	return wasm
}

// vector is a question of the built-in policy.
type vector struct {
	name, hook string
	in         []byte
	candidates int
}

func vectors(t testing.TB) []vector {
	t.Helper()
	files, err := filepath.Glob("../../policies/heads/vectors/*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d vectors (%v)", len(files), err)
	}
	var out []vector
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			SelectLayoutIn *abi.SelectLayoutIn `json:"select_layout_in"`
			RemapIn        *abi.RemapIn        `json:"remap_in"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if v.SelectLayoutIn != nil {
			out = append(out, vector{filepath.Base(file), "select_layout", v.SelectLayoutIn.Encode(), len(v.SelectLayoutIn.Candidates)})
		} else {
			out = append(out, vector{filepath.Base(file), "remap", v.RemapIn.Encode(), 0})
		}
	}
	return out
}

// ask puts a question and returns the answer's bytes as they came.
func (v vector) ask(p *Policy) ([]byte, error) { return p.call(ctx, v.hook, v.in) }

// A Go guest brings a runtime, asks for the time and for random numbers, and
// answers as the C policy does, in instances that serve again.
func TestGoGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("building and compiling it takes seconds")
	}
	wasm := goGuest(t)
	var mu sync.Mutex
	most := uint64(0)
	g := load(t, wasm, Options{Instances: 2, Fuel: Fuel{SelectLayout: 1 << 30, Remap: 1 << 30}, Observe: func(c Call) {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, c.Fuel)
	}})
	c := load(t, mustRead(t, "../../policies/heads/heads.wasm"), Options{})
	fresh := 0
	for range 3 {
		for _, v := range vectors(t) {
			before := g.made.Load()
			got, err := v.ask(g)
			want, wantErr := v.ask(c)
			if string(got) != string(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s: %d bytes (%v), the C policy answers %d (%v)", v.name, len(got), err, len(want), wantErr)
			}
			fresh += int(g.made.Load() - before)
		}
	}
	t.Logf("%d bytes, linear memory %d, most fuel %d, new instances %d in %d calls", len(wasm), g.Memory(), most, fresh, g.Calls())
}

func mustRead(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A call of each language's example, with all that it takes to start from the
// same state.
func BenchmarkCall(b *testing.B) {
	for _, g := range []struct {
		name string
		wasm func() []byte
	}{
		{"c", func() []byte { return mustRead(b, "../../policies/heads/heads.wasm") }},
		{"rust", func() []byte { return sealed(b, "../sdk/rust/examples/heads/heads.wasm") }},
		{"as", func() []byte { return sealed(b, "../sdk/assemblyscript/examples/heads/heads.wasm") }},
		{"go", func() []byte { return goGuest(b) }},
	} {
		p := load(b, g.wasm(), Options{})
		for _, v := range vectors(b) {
			if v.name != "remap-seed.json" && v.name != "remap-groups-gdn.json" {
				continue
			}
			b.Run(g.name+"/"+v.name, func(b *testing.B) {
				for b.Loop() {
					if _, err := v.ask(p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
