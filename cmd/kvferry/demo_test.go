package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/demo"
	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
)

// The demo starts its engines as its own program with the argument
// "demo-engine"; in a test its own program is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "demo-engine" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if status, ran := sandbox.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); ran {
		os.Exit(status)
	}
	// What tests compile does not stay with the user.
	cache, err := os.MkdirTemp("", "kvferry-cache-")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("XDG_CACHE_HOME", cache); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(cache) // a temporary folder
	os.Exit(code)
}

// demoJSON is the JSON of the demo, as scripts read it.
type demoJSON struct {
	Processes []int `json:"processes"`
	Requests  []struct {
		ID           string  `json:"id"`
		PromptTokens int     `json:"prompt_tokens"`
		Bytes        int64   `json:"bytes"`
		Segments     int64   `json:"segments"`
		Pieces       int64   `json:"pieces"`
		Digests      int64   `json:"digests"`
		Seconds      float64 `json:"seconds"`
		Expected     []int   `json:"expected"`
		Tokens       []int   `json:"tokens"`
		Equal        bool    `json:"equal"`
	} `json:"requests"`
	Policy struct {
		Name   string `json:"name"`
		Digest string `json:"digest"`
		Calls  int64  `json:"calls"`
	} `json:"policy"`
	Layouts struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	} `json:"layouts"`
	Control struct {
		Equal *bool `json:"equal"`
	} `json:"control"`
	Shape     string           `json:"shape"`
	Integrity string           `json:"integrity"`
	Layout    string           `json:"layout"`
	Probed    bool             `json:"probed"`
	Error     *refusal.Refusal `json:"error"`
}

// value is the value of a flag among args, or what it is without.
func value(args []string, flag, without string) string {
	if i := slices.Index(args, "--"+flag); i >= 0 {
		return args[i+1]
	}
	return without
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// right runs the demo with -o json and checks everything that must hold in a
// run that succeeds.
func right(t *testing.T, args ...string) demoJSON {
	t.Helper()
	code, out, errs := kvferry(append([]string{"demo", "-o", "json"}, args...)...)
	if code != 0 || errs != "" {
		t.Fatalf("demo %v: exit status %d, stderr %q, stdout %s", args, code, errs, out)
	}
	v := decode[demoJSON](t, out)
	if v.Error != nil {
		t.Errorf("error %+v", v.Error)
	}
	loop := value(args, "transport", "shm") == "loop"
	self := os.Getpid()
	if len(v.Processes) != 2 || (v.Processes[0] == v.Processes[1]) != loop || slices.Contains(v.Processes, self) != loop {
		t.Errorf("processes %v, ours is %d", v.Processes, self)
	}
	if n := number(t, value(args, "requests", "4")); len(v.Requests) != n {
		t.Fatalf("%d requests, want %d", len(v.Requests), n)
	}
	c := demo.Default()
	c.Shape, c.Heads = tinyllm.Shape(value(args, "model-shape", "llama")), number(t, value(args, "heads", "8"))
	for flag, side := range map[string]*demo.SideConfig{"source": &c.Source, "destination": &c.Destination} {
		if text := value(args, flag, ""); text != "" {
			if err := side.Set(flag, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	integrity := value(args, "integrity", "off")
	if v.Shape != string(c.Shape) || v.Integrity != integrity || v.Layout != "measured" || !v.Probed {
		t.Errorf("shape %q, integrity %q, layout %q, probed %v", v.Shape, v.Integrity, v.Layout, v.Probed)
	}
	for i, r := range v.Requests {
		if r.ID != fmt.Sprint("r", i) || !r.Equal || !slices.Equal(r.Tokens, r.Expected) || len(r.Tokens) != number(t, value(args, "tokens", "24")) {
			t.Errorf("request %d: %+v", i, r)
		}
		if want := arrives(t, c, r.PromptTokens); r.Bytes != want || r.Segments < 1 || r.Pieces < 1 || r.Seconds <= 0 || r.PromptTokens < 1 {
			t.Errorf("request %s of %d tokens: %d bytes in %d segments, %d pieces and %v s, want %d bytes", r.ID, r.PromptTokens, r.Bytes, r.Segments, r.Pieces, r.Seconds, want)
		}
		if (r.Digests > 0) != (integrity != "off") {
			t.Errorf("request %s: %d digests were compared, integrity is %s", r.ID, r.Digests, integrity)
		}
	}
	if v.Control.Equal == nil || *v.Control.Equal {
		t.Error("the control request with a cleared cache gave the same tokens, or is not there")
	}
	if v.Policy.Name == "" || !strings.HasPrefix(v.Policy.Digest, "sha256:") || v.Policy.Calls < 1 {
		t.Errorf("policy %+v", v.Policy)
	}
	if v.Layouts.Source == "" || v.Layouts.Destination == "" {
		t.Errorf("layouts %+v", v.Layouts)
	}
	return v
}

// arrives is how many bytes of a request of n tokens arrive: every head of every
// layer, replicas each on its own, and of a group with a window what both sides
// still hold.
func arrives(t *testing.T, c demo.Config, n int) (bytes int64) {
	t.Helper()
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	d := c.Destination
	for _, g := range m.Geometry().Groups {
		tokens, tp := n, d.TP
		switch {
		case g.State:
			tokens, tp = 1, d.TP*d.DCP
		case g.Window > 0:
			// The source gives the blocks from the one on that the window
			// reaches, the destination keeps a ring.
			source, ring := max(c.Source.Block/2, 1)*c.Source.DCP, max(d.Block/2, 1)*d.DCP
			from := max(n-g.Window+1, 0) / source * source
			kept := (g.Window-1+ring-1)/ring + 1
			tokens = n - max(from, ((n-1)/ring-kept+1)*ring)
		}
		for _, c := range g.Components {
			rows := tp
			if c.Heads > 0 {
				rows = max(c.Heads/c.UnitHeads(), tp) * c.UnitHeads()
			}
			bytes += int64(tokens*len(g.Layers)*rows) * c.RowBits() / 8
		}
	}
	return bytes
}

// small is the least demo, for tables of many.
func small(args ...string) []string {
	return append([]string{"--requests", "2", "--tokens", "6"}, args...)
}

// words splits a command line.
func words(line string) []string { return strings.Fields(line) }

// The README shows what the demo prints, but for what differs from run to run.
func TestDemoIsAsTheReadmeShows(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "\n```\nprefill (")
	block, _, ok := strings.Cut(block, "```\n")
	if !ok {
		t.Fatal("the README has no block of the demo's output")
	}
	code, out, errs := kvferry("demo")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, stderr %q", code, errs)
	}
	differs := regexp.MustCompile(`sha256:[0-9a-f]+|\[\d+ \d+\]|[0-9.]+ ms +[0-9.e+-]+|\([a-z]+: .*\)| +`)
	same := func(text string) string { return differs.ReplaceAllString(text, " ") }
	if got, want := same(out), same("prefill ("+block); got != want {
		t.Errorf("the demo prints\n%s\nthe README shows\n%s", got, want)
	}
	for _, want := range []string{
		"transport shm, mode pull, processes [", "policy heads sha256:", "proved on both sides",
		"rank 3    layers 0-3  .  .  .  .  .  .  1  1", // the picture
		"tokens equal to the unsplit run", "GB/s", "tokens differ: yes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// The command lines that the README and others show.
func TestDemoCommandLines(t *testing.T) {
	less := ""
	if testing.Short() {
		less = " --requests 2 --tokens 6"
	}
	v := right(t, words(less)...)
	if v.Layouts.Destination != "nhd" || v.Policy.Name != "heads" {
		t.Errorf("layouts %+v, policy %+v", v.Layouts, v.Policy)
	}
	right(t, words("--mode chunks --transport shm"+less)...)
	v = right(t, words("--heads 12 --source tp=4,layout=nhd,block=32 --destination tp=6,pp=2,layout=packed-hnd,block=48 --transport tcp --mode layers"+less)...)
	if v.Layouts.Source != "nhd" || v.Layouts.Destination != "packed-hnd" {
		t.Errorf("layouts %+v", v.Layouts)
	}
}

func TestDemoEveryTransportAndMode(t *testing.T) {
	for _, transport := range []string{"loop", "shm", "tcp"} {
		for i, mode := range []string{"pull", "push", "layers", "chunks"} {
			if testing.Short() && transport == "tcp" && i%2 == 0 {
				continue
			}
			t.Run(transport+" "+mode, func(t *testing.T) {
				right(t, small("--transport", transport, "--mode", mode)...)
			})
		}
	}
}

// Legal pairs of every odd kind; each goes over another transport and mode.
func TestDemoPairs(t *testing.T) {
	lines := []string{
		// TP, dividing or not, both ways; more ranks than heads.
		"--heads 12 --source tp=4 --destination tp=6",
		"--heads 12 --source tp=6 --destination tp=4",
		"--heads 6 --source tp=2 --destination tp=3",
		"--heads 12 --source tp=3 --destination tp=2",
		"--source tp=1 --destination tp=8",
		"--source tp=16 --destination tp=2",
		"--source tp=2 --destination tp=16",
		"--source tp=16 --destination tp=16",
		"--heads 4 --source tp=16 --destination tp=8",
		"--heads 1 --source tp=4 --destination tp=1",
		"--heads 7 --source tp=7 --destination tp=1",
		// PP, uneven on either side.
		"--source tp=2,pp=3 --destination tp=4,pp=4",
		"--source tp=1,pp=4 --destination tp=2,pp=3",
		"--source tp=16,pp=3 --destination tp=4,pp=2",
		// DCP.
		"--source tp=2,dcp=2 --destination tp=4",
		"--source tp=2 --destination tp=4,dcp=2",
		"--source tp=2,dcp=3 --destination tp=4,dcp=2",
		"--source tp=2,dcp=4,block=5 --destination tp=1,dcp=2,block=7",
		// Block sizes.
		"--source block=16 --destination block=64",
		"--source block=64 --destination block=16",
		"--source block=48 --destination block=32",
		"--source block=5 --destination block=7",
		"--source block=1 --destination block=64",
		"--source block=1 --destination block=1",
		"--source block=512 --destination block=3",
		// Layouts and all of it together.
		"--source layout=split-nhd,tp=4,pp=3,block=48 --destination layout=cpu-vec,tp=8,pp=2,block=32",
		"--source layout=cpu-amx,block=32 --destination layout=cross-layer,tp=16,block=48",
		"--source layout=x-packed,tp=8 --destination layout=trtllm,tp=1,pp=4,dcp=2,block=20",
		"--source layout=nhd --destination can=hnd,nhd",
		"--source can=cross-layer,joint-hnd,split-nhd --destination can=x-packed,cpu-vec",
	}
	if testing.Short() {
		lines = lines[len(lines)-5:]
	}
	modes := []string{"pull", "push", "layers", "chunks"}
	transports := []string{"loop", "shm", "tcp"}
	for i, line := range lines {
		t.Run(line, func(t *testing.T) {
			right(t, small(append(words(line), "--mode", modes[i%len(modes)], "--transport", transports[i%len(transports)])...)...)
		})
	}
}

// The tokens of every seed depend on the cache, and on nothing else.
func TestDemoSeedsRequestsAndTokens(t *testing.T) {
	seeds := 21
	if testing.Short() {
		seeds = 2
	}
	seen := map[string]int{}
	for seed := range seeds {
		v := right(t, "--transport", "loop", "--requests", "1", "--tokens", "2", "--seed", fmt.Sprint(seed))
		text := fmt.Sprint(v.Requests[0].Expected)
		seen[text]++
		if seen[text] > 1 && len(seen) == 1 {
			t.Errorf("seeds up to %d all give %s", seed, text)
		}
	}
	lines := []string{"--requests 3 --mode push --tokens 4", "--requests 1", "--requests 16 --tokens 4", "--requests 9 --mode chunks --transport tcp --tokens 4", "--tokens 100 --requests 1", "--seed 18446744073709551615 --requests 1"}
	if testing.Short() {
		lines = lines[:1]
	}
	for _, line := range lines {
		right(t, words(line)...)
	}
}

// A module in a file is asked like a built-in one.
func TestDemoPolicyFile(t *testing.T) {
	v := right(t, small("--policy", "../../policies/heads/heads.wasm")...)
	if v.Policy.Name != "heads" {
		t.Errorf("policy %+v", v.Policy)
	}
	// What was told needs no answer, so that a policy without one will do.
	v = right(t, small(words("--policy seedbug --source layout=hnd --destination layout=nhd")...)...)
	if v.Policy.Name != "seedbug" || v.Layouts.Source != "hnd" {
		t.Errorf("policy %+v, layouts %+v", v.Policy, v.Layouts)
	}
}

// Each refusal names what differs, moves nothing and ends with status 1.
func TestDemoRefuses(t *testing.T) {
	for _, c := range []struct {
		line  string
		kind  string
		fault string
		wants []string
	}{
		{"--policy seedbug", "declined", "policy", []string{"engine prefill can do hnd, nhd", "engine decode can do nhd", "no layout for engine prefill", "there is no default", "connectors do not specify"}},
		{"--policy seedbug --destination can=hnd,split-nhd --transport tcp --mode push", "declined", "policy", []string{"engine prefill can do hnd, nhd", "engine decode can do hnd, split-nhd"}},
		{"--policy seedbug --source layout=hnd --transport loop", "declined", "policy", []string{"no layout for engine decode", "engine prefill can do hnd"}},
		{"--lie-layout", "claim", "local", []string{"engine prefill", "the label says HND", "say NHD"}},
		{"--lie-layout --transport loop --destination tp=8", "claim", "local", []string{"engine prefill", "HND", "NHD"}},
		{"--lie-layout --transport loop --model-shape hybrid", "claim", "local", []string{"engine prefill", "the label says HND", "say NHD"}},
		{"--lie-layout --transport loop --model-shape fp8", "claim", "local", []string{"engine prefill", "the label says HND", "say NHD"}},
		{"--policy seedbug --transport loop --model-shape hybrid", "declined", "policy", []string{"engine prefill can do hnd + gdn-ds, hnd + gdn-sd, nhd + gdn-ds, nhd + gdn-sd", "engine decode can do nhd + gdn-sd"}},
		{"--policy no-such-file.wasm", "file", "operator", []string{"no-such-file.wasm"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			temporary(t)
			args := append([]string{"demo"}, words(c.line)...)
			code, out, errs := kvferry(args...)
			if code != 1 || out != "" || !strings.Contains(errs, "(fault: "+c.fault+")") {
				t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
			}
			code, out, jsonErrs := kvferry(append(args, "-o", "json")...)
			v := decode[demoJSON](t, out)
			if code != 1 || jsonErrs != "" || len(v.Requests) != 0 || v.Error == nil || v.Error.Kind != c.kind || v.Error.Fault != c.fault {
				t.Fatalf("exit status %d, stderr %q, JSON %s", code, jsonErrs, out)
			}
			for _, want := range c.wants {
				if !strings.Contains(errs, want) || !strings.Contains(v.Error.Message, want) {
					t.Errorf("no %q in %q and %q", want, errs, v.Error.Message)
				}
			}
			nothingLeft(t)
		})
	}
}

// temporary gives the test a folder for temporary files of its own, with a name
// that leaves room for a socket's.
func temporary(t *testing.T) {
	t.Helper()
	folder, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
}

// A folder for temporary files may have a longer name than a socket can.
func TestDemoLongTemporaryFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", folder)
	right(t, small()...)
}

// nothingLeft checks that the folder for temporary files is empty.
func nothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestDemoReplaySeed(t *testing.T) {
	code, out, errs := kvferry("demo", "--replay-seed")
	for _, want := range []string{"the source's cache is NHD", "the destination's is NHD", "as if both were HND", "swap at destination rank 0", "k layer 0 head 0 token 1 dim 0", "(fault: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in %q", want, errs)
		}
	}
	if code != 1 || out != "" {
		t.Errorf("exit status %d, stdout %q", code, out)
	}
	code, out, errs = kvferry("demo", "--replay-seed", "-o", "json")
	v := decode[demoJSON](t, out)
	if code != 1 || errs != "" || v.Error == nil || v.Error.Kind != "swap" {
		t.Fatalf("exit status %d, stderr %q, JSON %s", code, errs, out)
	}
	if want := (refusal.Coordinate{Component: "k", Token: 1}); v.Error.Coordinate == nil || *v.Error.Coordinate != want {
		t.Errorf("coordinate %+v, want %+v", v.Error.Coordinate, want)
	}
	if f := v.Error.Fields; len(f) != 1 || f[0].Field != "layout" || !strings.HasPrefix(f[0].Source, "NHD") || !strings.HasPrefix(f[0].Destination, "NHD") {
		t.Errorf("fields %+v", f)
	}
}

func TestDemoReplaySeedUnchecked(t *testing.T) {
	code, out, errs := kvferry("demo", "--replay-seed", "--unchecked")
	if code != 0 || errs != "" || !strings.Contains(out, "61440 of 65536 elements of the moved blocks are wrong: 93.75 %") {
		t.Errorf("exit status %d, stderr %q, stdout %s", code, errs, out)
	}
	seeds := 5
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		code, out, errs := kvferry("demo", "--replay-seed", "--unchecked", "-o", "json", "--seed", fmt.Sprint(seed))
		if code != 0 || errs != "" {
			t.Fatalf("exit status %d, stderr %q", code, errs)
		}
		v := decode[struct {
			Percent  float64 `json:"wrong_percent"`
			Requests []struct {
				Expected, Tokens []int
				Equal            bool
			}
		}](t, out)
		if v.Percent != 93.75 || len(v.Requests) != 4 {
			t.Errorf("seed %d: %v %% wrong, %d requests", seed, v.Percent, len(v.Requests))
		}
		for _, r := range v.Requests {
			if r.Equal || slices.Equal(r.Tokens, r.Expected) || len(r.Tokens) != 24 {
				t.Errorf("seed %d: tokens %v, the unsplit run gave %v", seed, r.Tokens, r.Expected)
			}
		}
	}
}

func TestDemoWrongFlags(t *testing.T) {
	for line, want := range map[string]string{
		"extra":                 "takes no arguments",
		"--tokens 1":            "want 2 to 512",
		"--requests 0":          "want 1 to 64",
		"--requests 65":         "want 1 to 64",
		"--heads 0":             "--heads",
		"--heads 7":             "7 heads do not split evenly over tp 2",
		"--transport rdma":      "want one of loop, shm, tcp",
		"--mode fetch":          "want one of pull, push, layers, chunks",
		"--model-shape rwkv":    "want one of llama, sliding, mla, fp8, hybrid",
		"--model-shape":         "flag needs an argument",
		"--integrity most":      "want one of off, sample, full",
		"--source state=gdn-ds": "the model has no states that could be kept as gdn-ds",
		"--source state=":       "state names no layout",
		"--model-shape hybrid --source state=hnd":            "layout hnd + hnd does not fit",
		"--model-shape hybrid --source layout=gdn-ds":        "layout gdn-ds + gdn-ds does not fit",
		"--model-shape hybrid --heads 4 --source tp=2,dcp=3": "do not split evenly over tp 6",
		"--model-shape mla --source layout=hnd":              "layout hnd does not fit",
		"--model-shape fp8 --source layout=x-packed":         "layout x-packed does not fit",
		"--model-shape mla --lie-layout":                     "a latent has no heads",
		"--lie-layout --lie-kernel":                          "one lie at a time",
		"--replay-seed --model-shape hybrid":                 "--replay-seed is one case",
		"--replay-seed --integrity full":                     "--replay-seed is one case",
		"--replay-seed --lie-kernel":                         "--replay-seed is one case",
		"--replay-seed --model-shape rwkv":                   "--replay-seed is one case",
		"--unchecked":                                        "goes with --replay-seed only",
		"--policy no-such-policy":                            "no built-in policy of that name (compat-vllm, heads, mla-spread, pin, rails, seedbug)",
		"--source tp=0":                                      `tp is "0"`,
		"--source tp=two":                                    `tp is "two"`,
		"--source tp":                                        "is not name=value",
		"--source ranks=2":                                   `unknown name "ranks"`,
		"--source pp=5":                                      "the model has 4 layers",
		"--destination tp=5":                                 "8 heads do not split evenly over tp 5",
		"--source tp=16,pp=4,dcp=64":                         "4096 ranks",
		"--source block=0":                                   `block is "0"`,
		"--source block=65536 --requests 64":                 "tokens take",
		"--source layout=nope":                               "no layout preset is called",
		"--source layout=hnd,nhd":                            "is not name=value",
		"--source layout=hnd+nhd":                            "layout tells one layout",
		"--source can=":                                      "can names no layout",
		"--source layout=cpu-amx,block=8":                    "layout cpu-amx does not fit",
		"--destination can=nhd,mla":                          "layout mla does not fit",
		"--seed -1":                                          "--seed",
		"--replay-seed --heads 12":                           "--replay-seed is one case",
		"--replay-seed --source tp=4":                        "--replay-seed is one case",
		"--replay-seed --destination tp=8":                   "--replay-seed is one case",
		"--replay-seed --lie-layout":                         "--replay-seed is one case",
		"--replay-seed --tokens 1":                           "want 2 to 512",
	} {
		code, out, errs := kvferry(append([]string{"demo"}, words(line)...)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("demo %s: exit status %d, stdout %q, stderr %q; want 2 and %q", line, code, out, errs, want)
		}
	}
}

// children are the processes that this one started, in ascending order.
func children(t *testing.T) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(names) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	var out []int
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended since
		}
		// The command's name, in parentheses, may hold anything; then come the
		// state and the parent.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if f[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, number(t, filepath.Base(filepath.Dir(name))))
		}
	}
	slices.Sort(out)
	return out
}

// An engine that is killed at any time ends the run with an error that names
// it; nothing stays behind.
func TestDemoEngineKilled(t *testing.T) {
	delays := []time.Duration{0, 30 * time.Millisecond, 120 * time.Millisecond, 400 * time.Millisecond}
	tokens := "150"
	if testing.Short() {
		delays, tokens = delays[1:2], "20"
	}
	for i, delay := range delays {
		for victim, engine := range []string{"prefill", "decode"} {
			for _, transport := range []string{"shm", "tcp"} {
				mode := []string{"pull", "push", "layers", "chunks"}[(i+victim)%4]
				t.Run(fmt.Sprintf("%s after %v, %s %s", engine, delay, transport, mode), func(t *testing.T) {
					temporary(t)
					type ended struct {
						code int
						out  string
					}
					done := make(chan ended, 1)
					go func() {
						code, out, _ := kvferry("demo", "-o", "json", "--tokens", tokens, "--transport", transport, "--mode", mode)
						done <- ended{code, out}
					}()
					var engines []int
					for engines = children(t); len(engines) < 2; engines = children(t) {
						select {
						case e := <-done:
							t.Fatalf("the demo ended before its engines were seen: status %d, %s", e.code, e.out)
						case <-time.After(time.Millisecond):
						}
					}
					if len(engines) != 2 {
						t.Fatalf("children %v, want two", engines)
					}
					time.Sleep(delay)
					if err := syscall.Kill(engines[victim], syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					var e ended
					select {
					case e = <-done:
					case <-time.After(time.Minute):
						t.Fatal("the demo does not end")
					}
					v := decode[demoJSON](t, e.out)
					if e.code != 1 || v.Error == nil || v.Error.Kind != "engine" || len(v.Processes) != 2 {
						t.Fatalf("exit status %d, JSON %s", e.code, e.out)
					}
					// Process numbers wrap around, so the demo says who is who.
					name := engine
					if v.Processes[victim] != engines[victim] {
						name = map[string]string{"prefill": "decode", "decode": "prefill"}[engine]
					}
					if !strings.Contains(v.Error.Message, "engine "+name+" ended") || !strings.Contains(v.Error.Message, "killed") {
						t.Errorf("message %q, want engine %s", v.Error.Message, name)
					}
					for _, pid := range engines {
						if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
							t.Errorf("process %d is still there (%v)", pid, err)
						}
					}
					nothingLeft(t)
				})
			}
		}
	}
}

// A run that is interrupted says so and leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	for _, transport := range []string{"loop", "shm"} {
		t.Run(transport, func(t *testing.T) {
			temporary(t)
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			var out, errs bytes.Buffer
			code := run(ctx, words("demo --tokens 100 --transport "+transport), &out, &errs)
			if code != 1 || !strings.Contains(errs.String(), "context deadline exceeded") {
				t.Errorf("exit status %d, stderr %q", code, errs.String())
			}
			if left := children(t); len(left) != 0 {
				t.Errorf("children %v", left)
			}
			nothingLeft(t)
		})
	}
}

// Nothing but the policies' modules decides: with them emptied, a build of the
// same program cannot choose or plan anything.
func TestNoDefaultBehindThePolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program anew")
	}
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, name := range glob(t, "../../policies/*/*.wasm", 2) {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = empty
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "kvferry")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlayFile, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, line := range []string{
		"demo", "demo --transport loop", "demo --source layout=hnd --destination layout=nhd", "demo --policy seedbug", "demo --replay-seed", "demo --replay-seed --unchecked",
		"plan show " + pairs + "seed.yaml", "plan check " + pairs + "seed.yaml",
	} {
		var out, errs bytes.Buffer
		cmd := exec.Command(program, words(line)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 1 || out.Len() != 0 || !strings.Contains(errs.String(), "no WebAssembly module") {
			t.Errorf("%s: %v, stdout %q, stderr %q", line, err, out.String(), errs.String())
		}
	}
}

// The demo's own words about its model stay true.
func TestDemoModel(t *testing.T) {
	m, err := demo.Default().Model()
	if err != nil {
		t.Fatal(err)
	}
	if cfg := m.Config(); cfg.Layers != 4 || cfg.HeadDim != 16 || cfg.Vocab > 256 {
		t.Errorf("%+v: the first token travels as one byte, and the tests count 4 layers of 16", cfg)
	}
}
