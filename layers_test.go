package kvferry_test

import (
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kvferry/kvferry/"

// The ladder. Each rung may import its own packages as the second list says,
// and only rungs that stand above it in this table. A package belongs to the
// rung with the longest matching name.
//
// Files are parsed rather than listed with "go list": the go command only
// re-runs a cached test when a file that the test itself opened has changed.
var ladder = []struct {
	rung string
	may  string // rungs and packages it may import, besides the standard library and itself
}{
	{"probe/point", ""},
	{"kv/geometry", ""},
	{"kv/layout", "kv/geometry"},
	{"kv/shard", "kv/geometry kv/layout"},
	{"kv/preset", "kv/geometry kv/layout"},
	{"kv/architecture", "kv/geometry"}, // models from the configuration files that they are published with
	{"kv", ""},
	{"plan", "kv/geometry kv/shard kv/layout"},
	{"plan/build", "kv/geometry kv/shard kv/layout plan"},
	{"plan/proof", "kv/geometry kv/shard kv/layout plan"},
	{"plan/stamp", "kv/geometry kv/shard kv/layout plan plan/build plan/proof"},
	{"plan/sample", "kv/geometry kv/shard kv/layout plan"}, // random pairs, for tests
	{"plan/picture", "kv/geometry kv/shard kv/layout plan"},
	{"plan/pairfile", "kv/geometry kv/shard kv/layout kv/preset plan"},
	{"plan/fixture", "kv/geometry kv/layout kv/shard plan plan/pairfile"}, // pairs in the words of pair files, for tests
	{"memory", ""},
	{"memory/host", "memory"},
	{"memory/move", "memory plan plan/stamp"},
	{"memory/digest", "kv memory plan"}, // what lies there, whatever the layout
	{"transport", "kv/geometry memory plan plan/proof plan/stamp"},
	{"transport/wire", "kv/geometry memory plan plan/proof plan/stamp transport"},
	{"transport/direct", "kv/geometry memory memory/move plan plan/proof plan/stamp transport"},
	{"transport/loop", "kv/geometry memory memory/move plan plan/proof plan/stamp transport"},
	{"transport/shm", "kv/geometry memory memory/host memory/move plan plan/proof plan/stamp transport"},
	{"transport/certificate", ""},
	{"transport/certificate/authority", "transport/certificate"}, // for tests only
	{"transport/tcp", "kv/geometry memory memory/move plan plan/proof plan/stamp transport"},
	{"transport/fault", "kv/geometry memory plan/proof plan/stamp transport"},
	{"transport/conformance", "kv memory memory/host plan plan/build plan/proof plan/stamp transport"},
	{"wasm/abi", "kv/geometry kv/shard kv/layout plan"},
	{"wasm/sdk", ""},
	{"wasm/meter", ""}, // and its random modules; its tests in wasm/meter/spec import the engine
	{"wasm/module", "wasm/abi"},
	{"wasm/overhead", "wasm/abi wasm/meter wasm/module"}, // runs modules of this program unmetered: benches and tests
	{"wasm/guest", "wasm/abi wasm/module"},               // for tests only
	{"wasm/compiler", "wasm/meter wasm/module"},          // compiles in a child process
	{"wasm/host", "kv/geometry kv/shard kv/layout plan wasm/abi wasm/compiler wasm/meter wasm/module"},
	{"wasm/hostile", "wasm/abi wasm/guest wasm/host"}, // for tests only
	{"policies", ""},
	{"runtime/blame", ""},
	{"runtime/policy", "kv plan plan/build plan/proof wasm policies runtime/blame"},
	{"runtime/locality", ""},                  // where a process runs
	{"runtime/measure", "kv plan plan/stamp"}, // what an engine's kernel does, whatever it declares
	{"runtime/session", "kv plan plan/build plan/proof runtime/blame runtime/policy"},
	{"runtime/transfer", "kv plan plan/proof plan/stamp runtime/blame"},
	{"runtime/agent", "kv memory plan plan/build plan/proof plan/stamp transport runtime"},
	{"cmd/kvferry/tinyllm", "kv"},
	{"cmd/kvferry/refusal", "kv plan runtime/blame runtime/policy"},
	{"cmd/kvferry/sandbox", "policies runtime/policy wasm/compiler wasm/host"}, // where modules are compiled that are not built in
	{"cmd/kvferry/demo", "kv memory plan transport policies runtime cmd/kvferry/tinyllm cmd/kvferry/refusal cmd/kvferry/sandbox"},
	{"cmd/kvferry", "kv memory plan transport wasm policies runtime cmd/kvferry/tinyllm cmd/kvferry/refusal cmd/kvferry/sandbox cmd/kvferry/demo"},
	{"examples", "kv memory plan transport wasm policies runtime"},
}

// only says, for each dependency, which packages may import it.
var only = map[string]string{
	"github.com/tetratelabs/wazero":          "wasm",
	"github.com/cilium/ebpf":                 "probe/reader",
	"github.com/ebitengine/purego":           "memory/cuda transport/ucx transport/nixl",
	"google.golang.org/grpc":                 "api control cmd",
	"oras.land/oras-go":                      "runtime/policy",
	"github.com/opencontainers":              "runtime/policy",
	"github.com/google/go-containerregistry": "runtime/policy cmd", // a registry, in tests
	"go.yaml.in/yaml":                        "plan/pairfile runtime/policy",
	"github.com/spf13/cobra":                 "cmd/kvferry",
	"golang.org/x/term":                      "cmd/kvferry",
	"golang.org/x/sys":                       "memory transport wasm/compiler wasm/host runtime/policy/control cmd/kvferry",
	"github.com/rs/zerolog":                  "runtime/agent runtime/policy control cmd examples",
	"go.uber.org/goleak":                     "transport runtime", // in tests
}

type source struct {
	path    string // slash-separated
	pkg     string // folder
	imports []string
	test    bool
}

// sources parses the imports of every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		path = filepath.ToSlash(path)
		if !strings.HasSuffix(path, ".go") || !strings.Contains(path, "/") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := source{path: path, pkg: path[:strings.LastIndexByte(path, '/')], test: strings.HasSuffix(path, "_test.go")}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imp)
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files: the walk is broken", len(out))
	}
	return out
}

// within reports whether pkg is name or lies below it.
func within(pkg, name string) bool { return pkg == name || strings.HasPrefix(pkg, name+"/") }

// rungOf returns the index of the rung that pkg belongs to, or -1.
func rungOf(pkg string) int {
	best := -1
	for i, r := range ladder {
		if within(pkg, r.rung) && (best < 0 || len(r.rung) > len(ladder[best].rung)) {
			best = i
		}
	}
	return best
}

// mayImport reports whether list (rung names, each with what lies below it
// unless that is a rung of its own which the list does not name) allows to.
func mayImport(list, to string) bool {
	for name := range strings.FieldsSeq(list) {
		// "plan" alone means the package, a top-level name that is no rung
		// ("kv", "runtime", "transport") means everything below it.
		if to == name || within(to, name) && (rungOf(to) == rungOf(name) || !isPackageRung(name)) {
			return true
		}
	}
	return false
}

// isPackageRung reports whether the name is a rung that stands for itself in
// lists. kv, memory and transport head whole folders when a runtime package or
// a command names them.
func isPackageRung(name string) bool {
	switch name {
	case "kv", "memory", "transport", "plan":
		return false
	}
	return rungOf(name) >= 0
}

func TestLayerImportsFollowTheLadder(t *testing.T) {
	for _, s := range sources(t) {
		from := rungOf(s.pkg)
		if from < 0 {
			t.Errorf("%s: package %s stands on no rung: add it to the ladder on purpose", s.path, s.pkg)
			continue
		}
		for _, imp := range s.imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours || s.test {
				continue
			}
			target := rungOf(to)
			if target < 0 {
				t.Errorf("%s imports %s, which stands on no rung", s.path, to)
				continue
			}
			if target == from {
				continue
			}
			if target > from {
				t.Errorf("%s imports %s, which stands below it on the ladder", s.path, to)
			} else if !mayImport(ladder[from].may, to) {
				t.Errorf("%s imports %s: %s may import only [%s]", s.path, to, ladder[from].rung, ladder[from].may)
			}
		}
	}
}

// A test may look further than its package, but never up the ladder past the
// packages that its subject is built on by name: no production code is meant
// here, so only direction across the heavy rungs is kept.
func TestLayerTestsStayBelowTheCommand(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			if to, ours := strings.CutPrefix(imp, module); ours && s.test && within(to, "cmd") && !within(s.pkg, "cmd") {
				t.Errorf("%s imports %s: a test below the command does not need it", s.path, to)
			}
		}
	}
}

func TestLayerProofKnowsNoPlanner(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg != "plan/proof" || s.test {
			continue
		}
		for _, imp := range s.imports {
			if to, ours := strings.CutPrefix(imp, module); ours && to != "plan" && !within(to, "kv") {
				t.Errorf("%s imports %s: the proof stands on kv and the plan's types alone", s.path, to)
			}
		}
	}
}

func TestLayerDependenciesHaveTheirPlace(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			first, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(imp, module) {
				continue // standard library, ours
			}
			ok, known := false, false
			for dep, who := range only {
				if within(imp, dep) || strings.HasPrefix(imp, dep) {
					known = true
					for name := range strings.FieldsSeq(who) {
						ok = ok || within(s.pkg, name)
					}
				}
			}
			switch {
			case !known:
				t.Errorf("%s imports %s: every dependency has a line in this test and a reason in RATIONALE.md", s.path, imp)
			case !ok:
				t.Errorf("%s imports %s, which is not its to import", s.path, imp)
			}
		}
	}
}

// Nothing but a bench and tests runs modules that are not metered.
func TestLayerUnmeteredModulesAreTheBenches(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			if imp == module+"wasm/overhead" && !s.test && !strings.HasPrefix(s.path, "cmd/kvferry/bench_") {
				t.Errorf("%s imports %s, which runs modules unmetered", s.path, imp)
			}
		}
	}
}

// kv and plan are pure: the standard library without clock, network, process
// or file system.
func TestLayerCoreIsPure(t *testing.T) {
	forbidden := []string{"os", "os/exec", "net", "time", "log", "log/slog", "io/fs", "syscall", "unsafe", "math/rand", "math/rand/v2", "crypto/rand"}
	pure := []string{"kv", "plan", "runtime/session", "runtime/transfer"}
	for _, s := range sources(t) {
		if s.test || s.pkg == "plan/pairfile" || s.pkg == "plan/sample" {
			continue
		}
		for _, p := range pure {
			if !within(s.pkg, p) {
				continue
			}
			for _, imp := range s.imports {
				if imp == "time" && within(s.pkg, "runtime") {
					continue // durations and instants as values; the clock is the caller's
				}
				if slices.Contains(forbidden, imp) {
					t.Errorf("%s imports %s: %s decides, it does not act", s.path, imp, p)
				}
			}
		}
	}
}

func TestLayerUnsafeIsNamed(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(s.imports, "unsafe") && !strings.HasSuffix(strings.TrimSuffix(s.path, "_test.go"), "_unsafe.go") && !strings.Contains(s.path, "_unsafe") {
			t.Errorf("%s imports unsafe: only files named *_unsafe.go may", s.path)
		}
	}
}

// A file of more than 800 lines, or a policy folder with Go in it, has lost
// its shape.
func TestLayerFilesKeepTheirSize(t *testing.T) {
	for _, s := range sources(t) {
		if generated(s.path) {
			continue
		}
		b, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n > 800 {
			t.Errorf("%s has %d lines, want at most 800", s.path, n)
		}
		if within(s.pkg, "policies") && s.pkg != "policies" {
			t.Errorf("%s: a policy's folder holds no Go", s.path)
		}
		for line := range strings.Lines(string(b)) {
			if constraint.IsGoBuild(line) && strings.Contains(line, "cgo") {
				t.Errorf("%s: build constraint %s: nothing here uses cgo", s.path, strings.TrimSpace(line))
			}
		}
	}
}

func generated(path string) bool {
	base := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(base, "_gen.") || strings.Contains(base, "_gen_") || strings.HasSuffix(base, ".pb.go")
}
