package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"
)

// script is one file of the WebAssembly specification's test suite, in the form
// that the tools of the format make of it.
type script struct {
	name     string
	folder   string
	Commands []command `json:"commands"`
}

type command struct {
	Type       string  `json:"type"`
	Line       int     `json:"line"`
	Name       string  `json:"name"`
	Filename   string  `json:"filename"`
	As         string  `json:"as"`
	ModuleType string  `json:"module_type"`
	Text       string  `json:"text"`
	Action     action  `json:"action"`
	Expected   []value `json:"expected"`
}

type action struct {
	Type   string  `json:"type"` // "invoke" or "get"
	Module string  `json:"module"`
	Field  string  `json:"field"`
	Args   []value `json:"args"`
}

type value struct {
	Type  string `json:"type"`
	Lane  string `json:"lane_type"` // of a v128
	Value any    `json:"value"`     // a string, a list of them, or nothing: any reference will do
}

// suites is where the suite lies: the engine's own module brings it along.
func suites(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("ask the go command where the engine's module is: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
}

// scripts reads all files of one version of the suite.
func scripts(t testing.TB, folder string) []script {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s (%v)", folder, err)
	}
	var out []script
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s := script{name: strings.TrimSuffix(filepath.Base(f), ".json"), folder: folder}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out = append(out, s)
	}
	return out
}

// lanes are a value as the numbers of one width that it is made of: one, or
// those of a vector.
func (v value) lanes() (texts []string, kind string) {
	if v.Type != "v128" {
		s, _ := v.Value.(string)
		return []string{s}, v.Type
	}
	list, _ := v.Value.([]any)
	for _, l := range list {
		s, _ := l.(string)
		texts = append(texts, s)
	}
	return texts, v.Lane
}

func width(kind string) int {
	switch kind {
	case "i8":
		return 8
	case "i16":
		return 16
	case "i32", "f32":
		return 32
	}
	return 64
}

// words is how the engine passes a value: one word, two for a vector.
func (v value) words() ([]uint64, error) {
	texts, kind := v.lanes()
	out := make([]uint64, 1, 2)
	if v.Type == "v128" {
		out = out[:2]
	}
	w := width(kind)
	for i, s := range texts {
		n, err := number(s, kind)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", kind, s, err)
		}
		out[i*w/64] |= n << (i * w % 64)
	}
	return out, nil
}

func number(s, kind string) (uint64, error) {
	switch {
	case s == "null" && strings.HasSuffix(kind, "ref"):
		return 0, nil
	case kind == "externref": // the engine takes 0 for null, so ours start at 1
		n, err := strconv.ParseUint(s, 10, 63)
		return n + 1, err
	case strings.HasPrefix(s, "-"):
		n, err := strconv.ParseInt(s, 10, width(kind))
		return uint64(n) & (math.MaxUint64 >> (64 - width(kind))), err
	}
	return strconv.ParseUint(s, 10, width(kind))
}

// equal compares an answer's words with what is expected of them.
func (v value) equal(words []uint64) (bool, error) {
	if strings.HasSuffix(v.Type, "ref") && v.Value == nil {
		return words[0] != 0, nil // any reference
	}
	texts, kind := v.lanes()
	w := width(kind)
	for i, s := range texts {
		got := words[i*w/64] >> (i * w % 64) & (math.MaxUint64 >> (64 - w))
		// The payload's highest bit, with the exponent that makes it a NaN.
		quiet := uint64(0x7fc00000)
		if kind == "f64" {
			quiet = 0x7ff8000000000000
		}
		switch s {
		case "nan:canonical":
			if got&^(1<<(w-1)) != quiet {
				return false, nil
			}
		case "nan:arithmetic":
			if got&quiet != quiet {
				return false, nil
			}
		default:
			want, err := number(s, kind)
			if err != nil {
				return false, fmt.Errorf("%s %q: %w", kind, s, err)
			}
			// Which payload a NaN has that came in as one is the engine's choice.
			if got != want && !(isNaN(got, kind) && isNaN(want, kind)) {
				return false, nil
			}
		}
	}
	return true, nil
}

func isNaN(bits uint64, kind string) bool {
	switch kind {
	case "f32":
		return math.IsNaN(float64(math.Float32frombits(uint32(bits))))
	case "f64":
		return math.IsNaN(math.Float64frombits(bits))
	}
	return false
}

// trapTexts are the engine's words for the suite's.
var trapTexts = map[string]string{
	"out of bounds memory access":   "out of bounds memory access",
	"unreachable":                   "unreachable",
	"integer overflow":              "integer overflow",
	"integer divide by zero":        "integer divide by zero",
	"invalid conversion to integer": "invalid conversion to integer",
	"indirect call type mismatch":   "indirect call type mismatch",
	"indirect call":                 "indirect call type mismatch",
	"undefined":                     "invalid table access",
	"undefined element":             "invalid table access",
	"out of bounds table access":    "invalid table access",
	"uninitialized":                 "invalid table access",
	"uninitialized element":         "invalid table access",
	"uninitialized element 2":       "invalid table access",
	"uninitialized element 7":       "invalid table access",
}

// suite is one version of the specification.
type suite struct {
	name     string
	features api.CoreFeatures
	// want is how many commands of each type pass. A "register" that follows
	// its module is part of it.
	want map[string]int
	// text is how many malformed modules are given as text: there is nothing
	// binary to refuse. Nothing else is left out.
	text int
	// checks is what the engine's own runner counts on both engines together:
	// the commands but "register", those given as text, the scripts and the run.
	checks int
}

func (s suite) folder(t testing.TB) string { return filepath.Join(suites(t), s.name, "testdata") }
