package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/abi/vector"
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

// vectors are the questions of the built-in policy.
func vectors(t testing.TB) []vector.Question {
	t.Helper()
	out := vector.Read(t, "../../policies/heads/vectors")
	if len(out) < 20 {
		t.Fatalf("%d vectors", len(out))
	}
	return out
}

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
	used := map[*instance]bool{}
	for range 3 {
		for _, v := range vectors(t) {
			got, err := g.call(ctx, v.Hook, v.In) // as they came
			want, wantErr := c.call(ctx, v.Hook, v.In)
			if string(got) != string(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s: %d bytes (%v), the C policy answers %d (%v)", v.Name, len(got), err, len(want), wantErr)
			}
			for _, list := range g.idle {
				for _, i := range list {
					used[i] = true
				}
			}
		}
	}
	t.Logf("%d bytes, linear memory %d, most fuel %d, %d instances in %d calls", len(wasm), g.Memory(), most, len(used), g.Calls())
	if len(used) != 1 {
		t.Errorf("%d instances took turns: calls one after another need one", len(used))
	}
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
			if v.Name != "remap-seed" && v.Name != "remap-groups-gdn" {
				continue
			}
			b.Run(g.name+"/"+v.Name, func(b *testing.B) {
				for b.Loop() {
					if _, err := p.call(ctx, v.Hook, v.In); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
