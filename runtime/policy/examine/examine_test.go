package examine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/examine"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

func module(t testing.TB, name string) []byte {
	t.Helper()
	wasm, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	return wasm
}

func examined(t testing.TB, wasm []byte, opt examine.Options) *examine.Report {
	t.Helper()
	opt.Host.InProcess = true
	r, err := examine.Module(context.Background(), wasm, opt)
	if err != nil {
		t.Fatal(err)
	}
	if r.OK != (r.Error == nil) || r.OK != (r.Stage == "") {
		t.Errorf("ok %v, error %+v, stage %q", r.OK, r.Error, r.Stage)
	}
	return r
}

// What asks and what is asked: the pairs are those of the repository, so that
// what is known of them there is known of them here.
func TestPairsAreTheRepositorys(t *testing.T) {
	names, err := filepath.Glob("pairs/*.yaml")
	if err != nil || len(names) < 15 {
		t.Fatalf("%d pairs (%v)", len(names), err)
	}
	for _, name := range names {
		here, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		there, err := os.ReadFile(filepath.Join("../../../testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(here, there) {
			t.Errorf("%s differs from testdata/%s: copy it", name, name)
		}
	}
}

// The built-in policies pass with their own vectors; what they refuse on
// purpose is shown and is no fault.
func TestBuiltInPoliciesPass(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			vectors, err := examine.ReadVectors(filepath.Join("../../../policies", name, "vectors"))
			if err != nil || len(vectors) == 0 {
				t.Fatalf("%d vectors (%v)", len(vectors), err)
			}
			r := examined(t, module(t, name), examine.Options{Vectors: vectors})
			if !r.OK || r.Name != name || r.Vectors != len(vectors) || len(r.Hooks) < 2 || r.Memory == nil || r.Memory.Used == 0 || r.Memory.Used > r.Memory.Limit {
				t.Fatalf("%s", r.Text())
			}
			asked := 0
			for _, h := range r.Hooks {
				if asked += h.Questions; h.Answered+h.Refused != h.Questions || h.Fuel == 0 || h.Fuel > h.Limit || h.Costliest == "" {
					t.Errorf("%+v", h)
				}
				if h.Name == "remap" && (h.Proved != h.Answered || h.NotProvable != 0) {
					t.Errorf("%+v: not all are proved", h)
				}
			}
			if asked != r.Questions {
				t.Errorf("%d questions, %d of hooks", r.Questions, asked)
			}
			if name == "seedbug" && (len(r.Refusals) == 0 || r.Refusals[0].Status != "declined" || !strings.Contains(r.Text(), " more: "+r.Refusals[0].Reason)) {
				t.Errorf("it declines layouts, and the report says\n%s", r.Text())
			}
			if !strings.HasPrefix(r.Text(), "module: ok: "+name) {
				t.Errorf("%s", r.Text())
			}
		})
	}
}

// saying is a guest that answers the same to everything.
func saying(remap *abi.RemapOut, selects *abi.SelectLayoutOut) []byte {
	return fixture.Saying("mine", "1.0.0", remap, selects)
}

// Each way to be wrong is found, at its stage, with the question that shows it.
func TestRefusals(t *testing.T) {
	declines := fixture.Status(abi.StatusDeclined)
	one := func(as ...abi.Assignment) *abi.RemapOut {
		return &abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: as}}}
	}
	for _, c := range []struct {
		name     string
		wasm     []byte
		stage    examine.Stage
		kind     string
		question string // how it begins
		message  string
	}{
		{"nothing", nil, examine.Preflight, "malformed", "", ""},
		{"text", []byte("hello"), examine.Preflight, "malformed", "", ""},
		{"no manifest", []byte("\x00asm\x01\x00\x00\x00"), examine.Preflight, "manifest", "", "manifest"},
		{"traps", fixture.Guest("mine", "1.0.0", fixture.Trap(), declines), examine.Vectors, "trap", "remap ", "trapped"},
		{"never ends", fixture.Guest("mine", "1.0.0", declines, fixture.Endless()), examine.Vectors, "fuel", "select_layout ", "fuel"},
		{"no such status", fixture.Guest("mine", "1.0.0", fixture.Status(9), declines), examine.Vectors, "fault", "remap ", "status 9"},
		{"no such candidate", saying(nil, &abi.SelectLayoutOut{Index: 7}), examine.Vectors, "fault", "select_layout ", "candidate 7 of 2"},
		{"no alternative", saying(&abi.RemapOut{}, nil), examine.Vectors, "fault", "remap ", "0 alternatives"},
		{"no such rank", saying(one(abi.Assignment{Components: 1, Destination: 99, LayerTo: 1, HeadTo: 1}), nil), examine.Vectors, "assignment", "remap ", "destination rank is 99"},
		{"nothing moves", saying(one(), nil), examine.Proof, "gap", "remap ", "gap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := examined(t, c.wasm, examine.Options{})
			if r.OK || r.Stage != c.stage || r.Error.Kind != c.kind || r.Error.Fault != string(blame.Policy) || !strings.HasPrefix(r.Error.Question, c.question) || (c.question == "") != (r.Error.Question == "") || !strings.Contains(r.Error.Message, c.message) {
				b, _ := json.Marshal(r)
				t.Fatalf("%s", b)
			}
			if r.Error.Fix == "" && c.kind != "malformed" {
				t.Errorf("nothing says how to fix it: %+v", r.Error)
			}
			if r.Error.Kind == "fuel" && (r.Error.Limit == nil || *r.Error.Limit != host.DefaultFuel || r.Error.Got == nil) {
				t.Errorf("fuel: %+v", r.Error)
			}
			if !strings.HasPrefix(r.Text(), "module: refused at "+string(c.stage)+": ") || !strings.Contains(r.Text(), "(fault: policy)") {
				t.Errorf("%s", r.Text())
			}
		})
	}
}

// A policy that says no to everything passes: what it prefers is its own
// business.
func TestDecliningPasses(t *testing.T) {
	r := examined(t, saying(nil, nil), examine.Options{})
	if !r.OK || len(r.Refusals) != r.Questions {
		t.Errorf("%s", r.Text())
	}
}

// A module has to answer what its vectors say.
func TestVectors(t *testing.T) {
	vectors, err := examine.ReadVectors("../../../policies/heads/vectors")
	if err != nil {
		t.Fatal(err)
	}
	var one examine.Vector
	for _, v := range vectors {
		if v.Name == "remap-seed" {
			one = v
		}
	}
	for name, change := range map[string]func(*examine.Vector){
		"another answer": func(v *examine.Vector) { v.RemapAnswer = &abi.RemapOut{Reason: "because"} },
		"a refusal":      func(v *examine.Vector) { v.Status, v.RemapAnswer = "declined", nil },
	} {
		changed := one
		change(&changed)
		r := examined(t, module(t, "heads"), examine.Options{Vectors: []examine.Vector{changed}})
		if r.OK || r.Stage != examine.Vectors || r.Error.Kind != "unequal" || r.Error.Question != "vector remap-seed" {
			t.Errorf("%s: %s", name, r.Text())
		}
	}
	if none, err := examine.ReadVectors(filepath.Join(t.TempDir(), "vectors")); err != nil || none != nil {
		t.Errorf("%v (%v)", none, err)
	}
}

func TestVectorRefusals(t *testing.T) {
	for name, text := range map[string]string{
		"hello":                      "no JSON",
		`{}`:                         "no status",
		`{"hook":"remap"} {}`:        "two",
		`{"hook":"x","status":"ok"}`: "no such hook",
		`{"hook":"remap","status":"ok","remap_in":{}}`:                      "no answer",
		`{"hook":"remap","status":"declined","remap_in":{},"remap_out":{}}`: "an answer of a refusal",
		`{"hook":"remap","status":"declined","select_layout_in":{}}`:        "another hook's question",
		`{"hook":"remap","status":"declined","remap_in":{},"route_in":{}}`:  "two questions",
		`{"hook":"remap","status":"declined","remap_in":{},"more":1}`:       "an unknown key",
	} {
		_, err := examine.ParseVector("v.json", []byte(name))
		var e *examine.VectorError
		if !errors.As(err, &e) || e.File != "v.json" {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// What an agent asks at load is quick and finds the same.
func TestConform(t *testing.T) {
	limits := host.Options{InProcess: true}
	if err := examine.Conform(context.Background(), module(t, "heads"), limits, nil); err != nil {
		t.Error(err)
	}
	err := examine.Conform(context.Background(), saying(&abi.RemapOut{Alternatives: []abi.Alternative{{}}}, nil), limits, nil)
	var refused *examine.RefusedError
	if !errors.As(err, &refused) || refused.Report.Stage != examine.Proof || blame.Of(err) != blame.Policy {
		t.Errorf("error %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := examine.Conform(ctx, module(t, "heads"), limits, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	// A configuration that no question can hold is the operator's.
	if err := examine.Conform(context.Background(), module(t, "heads"), limits, make([]byte, abi.MaxBytes+1)); err == nil || errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

// Whatever stands in a vector's file, it is read or refused; what is read says
// the same when it is written again.
func FuzzParseVector(f *testing.F) {
	names, err := filepath.Glob("../../../policies/heads/vectors/*.json")
	if err != nil || len(names) == 0 {
		f.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 4<<10 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := examine.ParseVector("v.json", text)
		if err != nil {
			var e *examine.VectorError
			if !errors.As(err, &e) {
				t.Fatalf("error %T %v", err, err)
			}
			return
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := examine.ParseVector("v.json", b)
		if err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		c, err := json.Marshal(again)
		if err != nil || !bytes.Equal(b, c) {
			t.Errorf("%s\n%s (%v)", b, c, err)
		}
	})
}

// What an agent pays for at load.
func BenchmarkConform(b *testing.B) {
	wasm := module(b, "heads")
	limits := host.Options{InProcess: true}
	for b.Loop() {
		if err := examine.Conform(context.Background(), wasm, limits, nil); err != nil {
			b.Fatal(err)
		}
	}
}
