package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy/examine"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/tool"
)

// What the commands print. Fuel, times and sizes are those of a build and of a
// machine, and left out.
func TestPolicyTranscripts(t *testing.T) {
	var plain []func(string) string
	for _, r := range [][2]string{
		{`\d+ of \d+ fuel, [0-9.]+[nµm]?s`, "F of F fuel, T"}, {`\d+ of \d+ fuel`, "F of F fuel"}, {`\d+ bytes, sha256`, "N bytes, sha256"}, {`\d+ KiB of`, "N KiB of"},
		{`"size":\d+`, `"size":N`},
	} {
		re := regexp.MustCompile(r[0])
		plain = append(plain, func(s string) string { return re.ReplaceAllString(s, r[1]) })
	}
	for _, name := range glob(t, "../../testdata/policies/*.txt", 3) {
		transcript(t, name, func(s string) string {
			for _, f := range plain {
				s = f(s)
			}
			return s
		})
	}
}

// Every command says what it is for, with an example.
func TestPolicyHelp(t *testing.T) {
	a := &app{}
	var verbs []string
	for _, c := range policyCommand(a).Commands() {
		if c.Hidden {
			continue
		}
		verbs = append(verbs, c.Name())
		code, out, errs := kvferry("policy", c.Name(), "--help")
		if code != 0 || errs != "" || !strings.Contains(out, "Examples:\n") || !strings.Contains(out, "kvferry policy "+c.Name()) {
			t.Errorf("policy %s --help: exit status %d, %q, %s", c.Name(), code, errs, out)
		}
	}
	want := []string{"activate", "bench", "build", "canary", "check", "diff", "differences", "drop", "explain", "history", "keygen", "list", "load", "new", "promote", "pull", "push", "record", "recover", "replay", "rollback", "shadow", "sign", "test", "verify"}
	if !slices.Equal(verbs, want) {
		t.Errorf("commands %v, want %v", verbs, want)
	}
}

func TestPolicyWrongFlags(t *testing.T) {
	seed := pairs + "seed.yaml"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"new", "--lang", "c"}, "NAME is missing"},
		{[]string{"new", "mine"}, "--lang is missing: want one of as, c, go, rust"},
		{[]string{"new", "--lang", "cobol", "mine"}, `"cobol", want one of as, c, go, rust`},
		{[]string{"new", "--lang", "c", "Mine"}, "a policy's name is a small letter"},
		{[]string{"build", "a", "b"}, "takes 1 DIR, got 2"},
		{[]string{"test", "a", "b"}, "takes 1 DIR, got 2"},
		{[]string{"explain"}, "PAIR is missing"},
		{[]string{"explain", seed, "--tokens", "0"}, "--tokens 0: want at least 1"},
		{[]string{"explain", seed, "--policy", "nobody"}, `--policy "nobody": no built-in policy of that name`},
		{[]string{"diff", "heads", "heads"}, "A, B or PAIR is missing"},
		{[]string{"bench"}, "PAIR is missing"},
		{[]string{"bench", seed, "--calls", "0"}, "--calls 0: want 1 to 1000000"},
		{[]string{"record"}, "FILE is missing"},
		{[]string{"record", "j"}, "--pairs is missing"},
		{[]string{"replay"}, "FILE is missing"},
	} {
		code, out, errs := kvferry(append([]string{"policy"}, c.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q; want 2 and %q", c.args, code, out, errs, c.want)
		}
	}
}

// absolute is a path that holds after a change of folder.
func absolute(t *testing.T, path string) string {
	t.Helper()
	out, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lines decodes a JSON object a line.
func lines[T any](t *testing.T, out string) []T {
	t.Helper()
	var list []T
	for line := range strings.Lines(out) {
		list = append(list, decode[T](t, line))
	}
	return list
}

// From nothing to a policy that is checked, tested and explained, in every
// language that there is a compiler for.
func TestPolicySession(t *testing.T) {
	seed := absolute(t, pairs+"seed.yaml")
	for _, lang := range sdk.Languages() {
		t.Run(lang, func(t *testing.T) {
			if testing.Short() && lang != "c" {
				t.Skip("compilers take their time")
			}
			if _, err := tool.Find(t.Context(), lang); err != nil {
				t.Skip(err)
			}
			t.Chdir(t.TempDir())
			run := func(want int, args ...string) string {
				t.Helper()
				code, out, errs := kvferry(append([]string{"policy"}, args...)...)
				if code != want || (code == 0) != (errs == "") {
					t.Fatalf("policy %v: exit status %d, stdout %s, stderr %s", args, code, out, errs)
				}
				return out
			}
			out := run(0, "new", "--lang", lang, "mine")
			if !strings.Contains(out, "next: cd mine && kvferry policy build") {
				t.Errorf("new says %q", out)
			}
			if code, _, errs := kvferry("policy", "new", "--lang", lang, "mine"); code != 1 || !strings.Contains(errs, "mine is there already") {
				t.Errorf("new again: exit status %d, %q", code, errs)
			}
			t.Chdir("mine")
			if code, _, errs := kvferry("policy", "check"); code != 1 || !strings.Contains(errs, `"kvferry policy build" makes it (fault: operator)`) {
				t.Errorf("check before build: exit status %d, %q", code, errs)
			}
			b := decode[built](t, run(0, "build", "-o", "json"))
			if b.File != "mine.wasm" || b.Name != "mine" || b.Version != "0.1.0" || b.Language != lang || b.Size == 0 || b.Compiler == "" {
				t.Errorf("built %+v", b)
			}
			r := decode[examine.Report](t, run(0, "check", "-o", "json"))
			if !r.OK || r.Digest != b.Digest || r.File != "mine.wasm" || len(r.Hooks) != 3 || r.Memory.Used == 0 {
				t.Errorf("checked %+v", r)
			}
			for _, c := range lines[caseJSON](t, run(0, "test", "-o", "json")) {
				if !c.OK || c.Line == 0 || c.File != filepath.Join("tests", "first.yaml") {
					t.Errorf("case %+v", c)
				}
			}
			e := decode[explainedJSON](t, run(0, "explain", seed, "-o", "json"))
			if e.Policy.Name != "mine" || !e.Proof.OK || len(e.Edges) != 4 || e.Cost["remap"].Fuel == 0 || e.Cost["remap"].Nanoseconds == 0 || e.Route == nil || e.Route.Error != nil {
				t.Errorf("explained %+v", e)
			}
			for _, row := range lines[benchedJSON](t, run(0, "bench", seed, "--calls", "20", "-o", "json")) {
				if row.Outcome != "ok" || row.Fuel == 0 || row.Fuel > row.Limit || row.Median <= 0 || row.HeadsFuel == 0 || row.Ratio <= 0 {
					t.Errorf("benched %+v", row)
				}
			}
		})
	}
}

// The author's words about what does not build reach the author.
func TestPolicyBuildFails(t *testing.T) {
	if _, err := tool.Find(t.Context(), "c"); err != nil {
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	if code, _, errs := kvferry("policy", "new", "--lang", "c", "mine"); code != 0 {
		t.Fatal(errs)
	}
	source := filepath.Join("mine", "policy.c")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, append(text, "\nint oops(void) { return nothing_of_that_name; }\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := kvferry("policy", "build", "mine")
	if code != 1 || out != "" || !strings.Contains(errs, "nothing_of_that_name") || !strings.Contains(errs, filepath.Join("mine", "build.sh")) || !strings.Contains(errs, "fault: operator") {
		t.Errorf("exit status %d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join("mine", "mine.wasm")); err == nil {
		t.Error("a module was left")
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CLANG", "")
	code, _, errs = kvferry("policy", "build", "mine")
	if code != 1 || !strings.Contains(errs, "clang, which builds policies in this language (c), was not found") || !strings.Contains(errs, "to get it: ") {
		t.Errorf("without a compiler: exit status %d, %q", code, errs)
	}
}

// Several modules give a line each, in order; one that is refused is exit status
// 1, whatever the others are.
func TestPolicyCheckSeveral(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	endless := write("endless.wasm", fixture.Guest("endless", "1.0.0", fixture.Endless(), fixture.Status(abi.StatusDeclined)))
	no := write("no.wasm", fixture.Saying("no", "2.0.0", nil, nil))
	gap := write("gap.wasm", fixture.Saying("gap", "1.0.0", &abi.RemapOut{Alternatives: []abi.Alternative{{}}}, nil))
	text := write("text.wasm", []byte("hello"))
	code, out, errs := kvferry("policy", "check", "-o", "json", endless, no, gap, text, filepath.Join(folder, "none.wasm"))
	got := lines[examine.Report](t, out)
	if code != 1 || errs != "" || len(got) != 5 {
		t.Fatalf("exit status %d, %q, %s", code, errs, out)
	}
	for i, want := range []struct {
		file  string
		stage examine.Stage
		kind  string
	}{{endless, examine.Vectors, "fuel"}, {no, "", ""}, {gap, examine.Proof, "gap"}, {text, examine.Preflight, "malformed"}, {filepath.Join(folder, "none.wasm"), "", "file"}} {
		r := got[i]
		if r.File != want.file || r.Stage != want.stage || r.OK != (want.kind == "") || (r.Error != nil) != (want.kind != "") || r.Error != nil && (r.Error.Kind != want.kind || r.Error.Fault == "") {
			t.Errorf("line %d: %+v (%+v)", i, r, r.Error)
		}
	}
	if code, _, errs := kvferry("policy", "check", no); code != 0 || errs != "" {
		t.Errorf("one that passes: exit status %d, %q", code, errs)
	}
}

// A case that fails says in what, and is exit status 1.
func TestPolicyTestFails(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := "kvferry: cases/1\ncases:\n  - {name: wrong, pair: " + absolute(t, pairs+"seed.yaml") + ", hook: remap, expect: {edges: [0 -> 3]}}\n" +
		"  - {name: right, pair: " + absolute(t, pairs+"seed.yaml") + ", hook: remap, configuration: {a: 1}, expect: {alternatives: 1}}\n"
	if err := os.WriteFile(filepath.Join(folder, "tests", "a.yaml"), []byte(cases), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := kvferry("policy", "test", folder, "--policy", "heads", "-o", "json")
	got := lines[caseJSON](t, out)
	if code != 1 || errs != "" || len(got) != 2 || got[0].OK || len(got[0].Wrong) != 5 || !got[1].OK {
		t.Errorf("exit status %d, %q, %s", code, errs, out)
	}
	code, out, _ = kvferry("policy", "test", folder, "--policy", "heads")
	if code != 1 || !strings.Contains(out, "a.yaml:3: FAILED: wrong (") || !strings.Contains(out, "  nothing moves from rank 0 to rank 3") || !strings.HasSuffix(out, "1 cases passed, 1 failed\n") {
		t.Errorf("exit status %d, %s", code, out)
	}
}

// What a policy was asked is asked again, and what another decides otherwise is
// said as plans.
func TestPolicyRecordReplay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "questions.journal")
	code, out, errs := kvferry("policy", "record", name, "--pairs", pairs+"seed.yaml", pairs+"can.yaml", pairs+"replicas-both.yaml", pairs+"dcp-both.yaml", "-o", "json")
	r := decode[recordedJSON](t, out)
	if code != 0 || errs != "" || r.Entries < 6 || r.Dropped != 0 || r.Policy.Name != "heads" {
		t.Fatalf("exit status %d, %q, %s", code, errs, out)
	}
	last := func(out string) summaryJSON {
		all := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		var s summaryJSON
		if err := json.Unmarshal([]byte(all[len(all)-1]), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	code, out, errs = kvferry("policy", "replay", name, "--policy", "heads", "-o", "json")
	if s := last(out); code != 0 || errs != "" || s.Same != r.Entries || s.Differ != 0 || s.Outcomes["answered"] != r.Entries {
		t.Errorf("the same policy: exit status %d, %q, %s", code, errs, out)
	}
	code, out, errs = kvferry("policy", "replay", name, "--policy", "seedbug", "-o", "json")
	if s := last(out); code != 1 || errs != "" || s.Differ != 2 || s.Outcomes["declined"] != 2 {
		t.Errorf("one without layouts: exit status %d, %q, %s", code, errs, out)
	}
	if !strings.Contains(out, `"outcome":"declined","reason":"connectors do not specify a kv cache layout"`) {
		t.Errorf("no reason in %s", out)
	}
	trap := filepath.Join(t.TempDir(), "trap.wasm")
	if err := os.WriteFile(trap, fixture.Guest("trap", "1.0.0", fixture.Trap(), fixture.Endless()), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = kvferry("policy", "replay", name, "--policy", trap)
	if code != 1 || errs != "" || !strings.Contains(out, "  now: fault: policy trap, hook remap: trapped") || !strings.Contains(out, "0 the same") {
		t.Errorf("one that traps: exit status %d, %q, %s", code, errs, out)
	}
	// A file that is no journal, or a broken one, is refused by its place.
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := kvferry("policy", "replay", name); code != 1 || !strings.Contains(errs, "the checksum is not that of the file") || !strings.Contains(errs, "(fault: operator)") {
		t.Errorf("a damaged file: exit status %d, %q", code, errs)
	}
}

// A demo keeps what both engines' policies were asked, and a policy that was not
// built in decides in a demo as anywhere.
func TestDemoRecord(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "demo.journal")
	heads, ok := policies.Get("heads")
	if !ok {
		t.Fatal("no policy heads")
	}
	other := filepath.Join(folder, "other.wasm")
	if err := os.WriteFile(other, fixture.Rename(heads, "other", "9.0.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := kvferry("demo", "--record", name, "--policy", other, "--requests", "1", "--tokens", "2", "-o", "json")
	if code != 0 {
		t.Fatalf("exit status %d, %s", code, errs)
	}
	code, out, errs := kvferry("policy", "replay", name, "--policy", "heads", "-v")
	for _, want := range []string{"select_layout, engine prefill: the same", "select_layout, engine decode: the same", "remap, prefill -> decode: the same", "3 questions, 3 the same, 0 differ"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit status %d, %q, %s: no %q", code, errs, out, want)
		}
	}
	if err := os.WriteFile(name, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := kvferry("demo", "--record", name); code != 1 || !strings.Contains(errs, "refuse to replace what is no journal") {
		t.Errorf("exit status %d, %q", code, errs)
	}
}

// The operator's configuration reaches the policy as canonical JSON, and a bad
// one is refused by its place.
func TestPolicyConfiguration(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", "b: 1\na: [x]\n"), write("bad.yaml", "a: 1\na: 2\n")
	name := filepath.Join(folder, "j")
	if code, _, errs := kvferry("policy", "record", name, "--pairs", pairs+"seed.yaml", "--policy-config", good); code != 0 {
		t.Fatalf("exit status %d, %s", code, errs)
	}
	b, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(b), `{"a":["x"],"b":1}`) {
		t.Errorf("the question does not hold the configuration (%v)", err)
	}
	for _, args := range [][]string{{"plan", "check", pairs + "seed.yaml"}, {"policy", "explain", pairs + "seed.yaml"}, {"policy", "check", "../../policies/heads"}, {"policy", "diff", "heads", "heads", pairs + "seed.yaml"}} {
		if code, _, errs := kvferry(append(args, "--policy-config", bad)...); code != 1 || !strings.Contains(errs, "bad.yaml:2: a: stands twice (fault: operator)") {
			t.Errorf("%v: exit status %d, %q", args, code, errs)
		}
		if code, _, errs := kvferry(append(args, "--policy-config", good)...); code != 0 {
			t.Errorf("%v: exit status %d, %q", args, code, errs)
		}
	}
	site := write("site.yaml", "kvferry: site/1\nsource: {places: [{load: 9}]}\n")
	if code, _, errs := kvferry("policy", "explain", pairs+"seed.yaml", "--site", site); code != 1 || !strings.Contains(errs, "(fault: operator)") {
		t.Errorf("exit status %d, %q", code, errs)
	}
}
