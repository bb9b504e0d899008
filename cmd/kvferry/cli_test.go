package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens under testdata/pairs anew")

const pairs = "../../testdata/pairs/"

// kvferry runs a command in process.
func kvferry(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// shown is the JSON of plan show and plan check, as section 13 of the design
// writes it.
type shown struct {
	File        string
	Edges       []flowJSON
	Copies      []copyJSON
	Absent      []string
	Skipped     []string
	OutOfWindow []passed `json:"out_of_window"`
	Proof       struct {
		OK       bool
		Elements int64
	}
	Policy struct{ Name, Digest string }
	Error  *refusal.Refusal
}

// show runs a command that must succeed and prints one JSON object.
func show(t *testing.T, args ...string) shown {
	t.Helper()
	code, out, errs := kvferry(append(args, "-o", "json")...)
	if code != 0 || errs != "" {
		t.Fatalf("%v: exit status %d, stderr %q, stdout %s", args, code, errs, out)
	}
	return decode[shown](t, out)
}

// decode reads exactly one line of JSON.
func decode[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "\n") {
		t.Fatalf("want one line of JSON, got %q", out)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return v
}

func glob(t *testing.T, pattern string, least int) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < least {
		t.Fatalf("%s matches %d files, want at least %d", pattern, len(names), least)
	}
	return names
}

// Every way to get the command line wrong is exit status 2, with the message
// on standard error and nothing on standard output.
func TestWrongFlagsExitTwo(t *testing.T) {
	seed, hybrid := pairs+"seed.yaml", pairs+"groups-hybrid-mamba2.yaml"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "say what to do: one of "},
		{[]string{"plam"}, `unknown command "plam", did you mean plan?`},
		{[]string{"plan"}, "say what to do: one of check, explain, model, presets, show"},
		{[]string{"plan", "chek", seed}, `unknown command "chek", did you mean check?`},
		{[]string{"plan", "check"}, "FILE is missing"},
		{[]string{"plan", "show"}, "FILE is missing"},
		{[]string{"plan", "check", seed, "--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"plan", "check", seed, "-o", "yaml"}, "-o yaml: want text or json"},
		{[]string{"plan", "show", seed, "--source-blocks", "1,x"}, `"x" is no block id`},
		{[]string{"plan", "show", seed, "--source-blocks", "-1"}, `"-1" is no block id`},
		{[]string{"plan", "show", seed, "--source-blocks", "7:1"}, `"7" is no group`},
		{[]string{"plan", "show", seed, "--source-blocks", "0:1", "--source-blocks", "2"}, "group 0 is given twice"},
		{[]string{"plan", "show", seed, "--source-blocks", "full:1"}, `"full" is no group: the pair names none`},
		{[]string{"plan", "show", seed, "--source-blocks", "1 2"}, "group 0 is given twice"},
		{[]string{"plan", "show", seed, "--source-blocks", ""}, `"" is no block id`},
		{[]string{"plan", "show", hybrid, "--source-blocks", "1,2"}, "the pair has groups attention, mamba: say whose table this is, as in attention:1,2"},
		{[]string{"plan", "show", hybrid, "--source-blocks", "attention:1,2"}, "--source-blocks: group mamba is missing"},
		{[]string{"plan", "show", hybrid, "--source-blocks", "attention:1;mamba:0 attention:2"}, "group attention is given twice"},
		{[]string{"plan", "show", hybrid, "--destination-blocks", "attention:1,;mamba:0"}, `--destination-blocks attention:1,: "" is no block id`},
		{[]string{"plan", "show", hybrid, "--destination-blocks", "attention:1;momba:0"}, `"momba" is no group of the pair (attention, mamba)`},
		{[]string{"plan", "show", seed, "--tokens", "many"}, "invalid argument"},
		{[]string{"plan", "show", seed, "--from", "-1"}, "--from -1"},
		{[]string{"plan", "presets", "hnd"}, "takes no arguments"},
		{[]string{"version", "now"}, "takes no arguments"},
		{[]string{"doctor", "--fix"}, "unknown flag: --fix"},
		{[]string{"bench"}, "say what to do: one of compare, copy, digest, plan, policy, roofline, tcp"},
		{[]string{"bench", "plan", "--rounds", "0"}, "--rounds 0"},
	} {
		code, out, errs := kvferry(c.args...)
		if code != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q; want 2 and %q", c.args, code, out, errs, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"plan", "--help"}, {"plan", "show", "--help"}, {"help", "plan"}} {
		code, out, errs := kvferry(args...)
		if code != 0 || !strings.Contains(out, "Usage:") || errs != "" {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := kvferry("version")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "kvferry ") || !strings.Contains(out, "pair file pair/1\n") || !strings.Contains(out, "policy    heads sha256:") {
		t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
	}
	code, out, _ = kvferry("version", "-o", "json")
	v := decode[versionJSON](t, out)
	if code != 0 || v.PairFile != "pair/1" || v.ABI != "kvferry/1" || len(v.Policies) < 2 || !strings.HasPrefix(v.Policies[0].Digest, "sha256:") {
		t.Errorf("exit status %d, %+v", code, v)
	}
}

func TestDoctor(t *testing.T) {
	code, out, errs := kvferry("doctor", "-o", "json")
	v := decode[struct {
		Checks  []check
		Machine machineJSON
	}](t, out)
	if code != 0 || errs != "" || v.Machine.CPUs < 1 || v.Machine.Memory < 1 || v.Machine.Kernel == "" {
		t.Fatalf("exit status %d, stderr %q, machine %+v", code, errs, v.Machine)
	}
	areas := map[string]int{}
	for _, c := range v.Checks {
		areas[c.Area]++
		if c.Found == "" || c.Use == "" || c.Do == "" || c.Name == "" {
			t.Errorf("a check says too little: %+v", c)
		}
		if c.Status != statusOK && c.Status != statusLimited && c.Status != statusMissing {
			t.Errorf("%s: status %q", c.Name, c.Status)
		}
	}
	for _, area := range []string{"processor", "pages", "memory", "sockets", "bpf", "libraries", "policies"} {
		if areas[area] < 2 {
			t.Errorf("%d checks of %s, want at least 2", areas[area], area)
		}
	}

	code, text, errs := kvferry("doctor")
	if code != 0 || errs != "" {
		t.Errorf("exit status %d, stderr %q", code, errs)
	}
	for _, c := range v.Checks {
		if !strings.Contains(text, c.Name) {
			t.Errorf("the text says nothing of %s", c.Name)
		}
		if c.Status != statusOK && !strings.Contains(text, c.Do) {
			t.Errorf("%s is %s and the text does not say what to do", c.Name, c.Status)
		}
	}
}

func TestPlanCheckAcceptsEveryPair(t *testing.T) {
	names := glob(t, pairs+"*.yaml", 45)
	code, out, errs := kvferry(append([]string{"plan", "check"}, names...)...)
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, stderr %s", code, errs)
	}
	if n := strings.Count(out, "\n"); n != len(names) {
		t.Errorf("%d lines for %d files:\n%s", n, len(names), out)
	}
	for _, name := range names {
		if !strings.Contains(out, name+": ok") {
			t.Errorf("no line for %s", name)
		}
	}
}

// Each bad file is refused with a message that names the place, the value and
// the fault; the goldens are what a person would read.
func TestPlanCheckRefusesEveryBadPair(t *testing.T) {
	for _, name := range glob(t, pairs+"bad/*.yaml", 40) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			code, out, errs := kvferry("plan", "check", name)
			if code != 1 || out != "" {
				t.Fatalf("exit status %d, stdout %q, stderr %q", code, out, errs)
			}
			got := strings.ReplaceAll(errs, filepath.Dir(name)+"/", "")
			golden := strings.TrimSuffix(name, ".yaml") + ".txt"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got  %swant %s", got, want)
			}

			code, out, errs = kvferry("plan", "check", name, "-o", "json")
			v := decode[shown](t, out)
			if code != 1 || errs != "" || v.Error == nil || v.File != name || v.Error.Fault != "operator" || v.Error.Kind == "" || v.Error.Message == "" || v.Proof.OK {
				t.Errorf("exit status %d, stderr %q, JSON %s", code, errs, out)
			}
		})
	}
}

// One bad file among good ones: a line each, in order, and exit status 1.
func TestPlanCheckSeveralFiles(t *testing.T) {
	code, out, errs := kvferry("plan", "check", "-o", "json", pairs+"seed.yaml", pairs+"bad/no-layout.yaml", pairs+"no-such-file.yaml", pairs+"seed-nhd.yaml")
	lines := strings.SplitAfter(strings.TrimSuffix(out, "\n"), "\n")
	if code != 1 || errs != "" || len(lines) != 4 {
		t.Fatalf("exit status %d, stderr %q, stdout %s", code, errs, out)
	}
	for i, want := range []struct {
		ok    bool
		kind  string
		field string
	}{{true, "", ""}, {false, "pairfile", "source.layout"}, {false, "file", ""}, {true, "", ""}} {
		v := decode[shown](t, strings.TrimSuffix(lines[i], "\n")+"\n")
		switch {
		case v.Proof.OK != want.ok || (v.Error == nil) != want.ok:
			t.Errorf("line %d: %s", i, lines[i])
		case v.Error != nil && (v.Error.Kind != want.kind || want.field != "" && v.Error.Fields[0].Field != want.field):
			t.Errorf("line %d: %s, want kind %s and field %s", i, lines[i], want.kind, want.field)
		}
	}
}
