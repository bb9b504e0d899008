package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/policies"
)

// A side that offers layouts gets the policy's choice, with its reason.
func TestPlanPolicyChoosesLayouts(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"can.yaml", "-o", "json")
	v := decode[struct {
		Layouts, Reasons map[string]string
		Policy           struct{ Name string }
	}](t, out)
	if code != 0 || errs != "" || v.Policy.Name != "heads" {
		t.Fatalf("exit status %d, stderr %q, %s", code, errs, out)
	}
	// The destination can do NHD only, so NHD needs the fewest pieces.
	for _, side := range []string{"source", "destination"} {
		if v.Layouts[side] != "vllm/packed-nhd" || v.Reasons[side] == "" {
			t.Errorf("%s: layout %q because %q, want vllm/packed-nhd and a reason", side, v.Layouts[side], v.Reasons[side])
		}
	}
	// The destination of this one tells HND.
	code, out, errs = kvferry("plan", "check", pairs+"can-source.yaml", "-v")
	if code != 0 || errs != "" || !strings.Contains(out, "source layout chosen: vllm/packed-hnd\n    because ") {
		t.Errorf("exit status %d, stderr %q, %s", code, errs, out)
	}
}

// A policy that answers no layout is a refusal that names the engine and what
// each side can do; no layout is taken in its place.
func TestPlanPolicyDeclines(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"can.yaml", "--policy", "seedbug", "-o", "json")
	v := decode[shown](t, out)
	if code != 1 || errs != "" || v.Error == nil || v.Copies != nil || v.Proof.OK {
		t.Fatalf("exit status %d, stderr %q, %s", code, errs, out)
	}
	if v.Error.Kind != "declined" || v.Error.Fault != "policy" || len(v.Error.Fields) != 1 {
		t.Fatalf("error %+v", v.Error)
	}
	if f := v.Error.Fields[0]; f.Field != "layout" || f.Source != "vllm/packed-hnd, vllm/packed-nhd" || f.Destination != "vllm/packed-nhd" {
		t.Errorf("fields %+v", f)
	}
	for _, want := range []string{"seedbug", "prefill", "there is no default"} {
		if !strings.Contains(v.Error.Message, want) {
			t.Errorf("%q does not say %q", v.Error.Message, want)
		}
	}
}

// Everything is decided in the sandbox: without a module nothing is planned,
// and a module that is not built in runs as one that is.
func TestPlanPolicyModules(t *testing.T) {
	heads, ok := policies.Get("heads")
	if !ok {
		t.Fatal("no policy heads")
	}
	write := func(name string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := write("other.wasm", append(append([]byte{}, heads...), 0, 2, 1, 'x')) // an empty custom section more
	for _, c := range []struct {
		args        []string
		kind, fault string
		want        string
	}{
		{[]string{"--policy", write("empty.wasm", nil)}, "policy", "policy", "empty.wasm"},
		{[]string{"--policy", write("text.wasm", []byte("hello"))}, "policy", "policy", "text.wasm"},
		{[]string{"--policy", write("cut.wasm", heads[:len(heads)/2])}, "policy", "policy", "cut.wasm"},
		{[]string{"--policy", "no-such-file.wasm"}, "file", "operator", "no-such-file.wasm"},
	} {
		args := append([]string{"plan", "show", pairs + "seed.yaml", "-o", "json"}, c.args...)
		code, out, errs := kvferry(args...)
		v := decode[shown](t, out)
		if code != 1 || errs != "" || v.Error == nil || v.Error.Kind != c.kind || v.Error.Fault != c.fault || !strings.Contains(v.Error.Message, c.want) {
			t.Errorf("%v: exit status %d, stderr %q, %s", c.args, code, errs, out)
		}
	}
	if code, _, errs := kvferry("plan", "show", pairs+"seed.yaml", "--policy", "nobody"); code != 2 || !strings.Contains(errs, `--policy "nobody": no built-in policy of that name (compat-vllm, heads, mla-spread, pin, rails, seedbug)`) {
		t.Errorf("a policy that is none: exit status %d, %q", code, errs)
	}
	if v := show(t, "plan", "show", pairs+"seed.yaml", "--policy", other); v.Proof.Elements != 32768 || v.Policy.Name != "heads" {
		t.Errorf("%+v", v)
	}
	// A module named by file that is built in needs no permission.
	show(t, "plan", "show", pairs+"seed.yaml", "--policy", write("heads.wasm", heads))
}
