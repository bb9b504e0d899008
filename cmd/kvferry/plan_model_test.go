package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/plan/pairfile"
)

const (
	configs = "../../testdata/configs/"
	models  = "../../testdata/models/"
)

// published reads a published model's configuration.
func published(t *testing.T, name string, o architecture.Options) string {
	t.Helper()
	data, err := os.ReadFile(configs + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	o.Name = name
	m, err := architecture.Read(data, o)
	if err != nil {
		t.Fatal(err)
	}
	return m.Text()
}

// parsed reads a pair file.
func parsed(t *testing.T, name, text string) *pairfile.File {
	t.Helper()
	f, err := pairfile.Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

// Every published configuration gives a model part, and with sizes and layouts
// a complete pair file that is read back as the same model, in both forms.
func TestPlanModelOfPublishedConfigs(t *testing.T) {
	files := glob(t, configs+"*.json", 20)
	code, out, errs := kvferry(append([]string{"plan", "model", "--tp", "4", "--pp", "2"}, files...)...)
	if documents := strings.Split(out, "---\n"); code != 0 || errs != "" || len(documents) != len(files) {
		t.Fatalf("exit status %d, %d documents of %d files, stderr %s", code, len(documents), len(files), errs)
	}
	engines := []string{"--tp", "1:2", "--block", "128:256", "--blocks", "16:8", "--slots", "4"}
	for _, p := range []string{"hnd", "vllm/mla", "vllm/indexer", "vllm/mamba1-ds", "vllm/mamba2-ds", "vllm/gdn-ds"} {
		engines = append(engines, "--layout", p)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"plan", "model", file}, engines)
			code, yaml, errs := kvferry(args...)
			if name == "minimax-m1-80k" { // no preset is of a state without a convolution
				if code != 1 || !strings.Contains(errs, `none of the layouts given fits group "lightning"`) {
					t.Errorf("exit status %d, stderr %s", code, errs)
				}
				return
			}
			if code != 0 || errs != "" {
				t.Fatalf("exit status %d, stderr %s", code, errs)
			}
			f := parsed(t, name, yaml)
			if got, want := f.Model.Text(), published(t, name, architecture.Options{}); got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
			_, line, _ := kvferry(append(args, "-o", "json")...)
			if j := parsed(t, name, line); !bytes.Equal(pairfile.Marshal(j), pairfile.Marshal(f)) {
				t.Errorf("the JSON form says\n%s\nthe YAML form\n%s", pairfile.Marshal(j), yaml)
			}
			if strings.Count(line, "\n") != 1 {
				t.Errorf("the JSON form has %d lines", strings.Count(line, "\n"))
			}
		})
	}
}

// The pair files of published models are proved, and their model parts are
// what the configurations say.
func TestPlanModelPairsOfPublishedModels(t *testing.T) {
	files := glob(t, models+"*.yaml", 12)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := parsed(t, file, string(data))
		o := architecture.Options{Quantisation: f.Model.Identity["cache.quantisation"]}
		for _, g := range f.Model.Groups {
			o.Draft = o.Draft || g.Optional
		}
		if got, want := f.Model.Text(), published(t, f.Model.Name, o); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", file, got, want)
		}
	}
	code, out, errs := kvferry(append([]string{"plan", "check"}, files...)...)
	if code != 0 || errs != "" || strings.Count(out, ": ok: ") != len(files) {
		t.Errorf("exit status %d, stdout %s, stderr %s", code, out, errs)
	}
}

// What is not said stands there as a comment, and is never made up.
func TestPlanModelSaysWhatIsMissing(t *testing.T) {
	const model = `kvferry: pair/1
model:
  name: nemotron-h-8b
  layers: 52
  groups:
    - name: mamba
      layers: "0,2,4,6,9,11,13,15,17,20,22,24,26,28,31,33,35,37,39,42,44,46,48,50"
      state: true
      components:
        - {name: x, channels: 8192, unit: 64, dim: 3, dtype: bf16}
        - {name: B, channels: 1024, unit: 128, dim: 3, dtype: bf16}
        - {name: C, channels: 1024, unit: 128, dim: 3, dtype: bf16}
        - {name: ssm, channels: 128, dim: 8192, dtype: fp32}
    - name: attention
      layers: "7,18,29,40"
      components:
        - {name: k, heads: 8, dim: 128, dtype: bf16}
        - {name: v, heads: 8, dim: 128, dtype: bf16}
`
	file := configs + "nemotron-h-8b.json"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, model + "# add source and destination: each with engine, shard, block sizes and layouts\n"},
		{[]string{"--tp", "1:4", "--pp", "3", "--block", "64:32", "--layout", "hnd", "--layout", "vllm/mamba2-ds"}, model + `source:
  engine: prefill
  shard: {tp: 1, pp: [18, 17, 17]}
  groups:
    mamba:
      # slots: add the number of slots in the pool
      layout: vllm/mamba2-ds
    attention:
      block: 64
      # blocks: add the number of blocks in the pool
      layout: vllm/packed-hnd
destination:
  engine: decode
  shard: {tp: 4, pp: [18, 17, 17]}
  groups:
    mamba:
      # slots: add the number of slots in the pool
      layout: vllm/mamba2-ds
    attention:
      block: 32
      # blocks: add the number of blocks in the pool
      layout: vllm/packed-hnd
`},
	} {
		code, out, errs := kvferry(append([]string{"plan", "model", file}, c.args...)...)
		if code != 0 || errs != "" || out != c.want {
			t.Errorf("%v: exit status %d, stderr %s, stdout\n%s\nwant\n%s", c.args, code, errs, out, c.want)
		}
	}
	// Of a model of one group the side itself says it.
	_, out, _ := kvferry("plan", "model", configs+"llama-3-8b.json", "--blocks", "8:9")
	if want := `
source:
  engine: prefill
  shard: {tp: 1, pp: [32]}
  # block: add the tokens of a block
  blocks: 8
  # layout: add a preset (kvferry plan presets) or an order; there is no default
destination:
`; !strings.Contains(out, want) || strings.Contains(out, "layout: vllm") {
		t.Errorf("%s\nwant in it%s", out, want)
	}
	// The JSON form leaves it out.
	_, out, _ = kvferry("plan", "model", configs+"llama-3-8b.json", "--tp", "2", "-o", "json")
	if want := `"source":{"engine":"prefill","shard":{"tp":2,"pp":[32]}},"destination":`; !strings.Contains(out, want) {
		t.Errorf("%s, want in it %s", out, want)
	}
	_, out, _ = kvferry("plan", "model", configs+"llama-3-8b.json", "-o", "json")
	if strings.Contains(out, "source") || !json.Valid([]byte(out)) {
		t.Error(out)
	}
}

// Draft layers are the last stage's, and only the side that runs them has them.
func TestPlanModelDraft(t *testing.T) {
	args := []string{"plan", "model", configs + "glm-4.5.json", "--tp", "4:8", "--pp", "3:1", "--draft", "destination",
		"--block", "16", "--blocks", "8", "--source-layout", "nhd", "--layout", "hnd"}
	code, out, errs := kvferry(args...)
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, stderr %s", code, errs)
	}
	f := parsed(t, "glm", out)
	if got := f.Source.Shard.Stages; !slices.Equal(got, []int{31, 31, 31}) {
		t.Errorf("stages %v: want 31 of the 92 layers, 31, and 30 with the draft layer", got)
	}
	if s, d := f.Source.Groups[1], f.Destination.Groups[1]; !s.Absent || d.Absent || d.Preset != "vllm/packed-hnd" || f.Source.Groups[0].Preset != "vllm/packed-nhd" {
		t.Errorf("source %+v, destination %+v", s, d)
	}
	if _, common, err := f.Pair(nil); err != nil || !slices.Equal(common.Absent, []string{"mtp92"}) {
		t.Errorf("%v, %v", common, err)
	}
	// And a quantised cache of both.
	code, out, errs = kvferry(append(args, "--cache-dtype", "fp8", "--name", "glm")...)
	if code != 0 || !strings.Contains(out, "name: glm\n") || strings.Count(out, "dtype: fp8_e4m3") != 4 {
		t.Errorf("exit status %d, stderr %s, stdout %s", code, errs, out)
	}
}

func TestPlanModelRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	unknown := file("marvel/config.json", `{"architectures": ["MarvelForCausalLM"], "model_type": "marvel", "num_hidden_layers": 2}`)
	phi := file("phi-4.json", `{"architectures": ["Phi3ForCausalLM"], "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10, "torch_dtype": "bfloat16"}`)
	llama := configs + "llama-3-8b.json"
	for _, c := range []struct {
		args        []string
		kind, fault string
		field       string
		want        string
	}{
		{[]string{unknown}, "architecture", "operator", "architectures", "To add it: write a function"},
		{[]string{file("bad.json", `{"model_type": "llama", "num_hidden_layers": 0}`)}, "config", "operator", "num_hidden_layers", "want 1 to 16384"},
		{[]string{file("no.json", "no")}, "config", "operator", "the configuration", "not a JSON object"},
		{[]string{filepath.Join(dir, "absent.json")}, "file", "operator", "", "no such file"},
		{[]string{phi, "--tp", "4"}, "failed", "operator", "", "source: shard: tp is 4: 10 heads do not split evenly over tp 4"},
		{[]string{llama, "--pp", "1:33"}, "failed", "operator", "", "destination: shard: pp is 33: the model has 32 layers"},
		{[]string{llama, "--layout", "vllm/mla"}, "failed", "operator", "", `none of the layouts given fits group ""`},
		{[]string{llama, "--dtype", "fp9"}, "config", "operator", "cache dtype", "no such dtype"},
		{[]string{llama, "--draft", "both"}, "config", "operator", "draft", "no draft layers"},
		{[]string{llama, "--cache-dtype", "fp8_ds_mla"}, "config", "operator", "quantisation", "is not for an attention with keys and values"},
		{[]string{configs + "gemma-3n-e4b.json", "--pp", "3"}, "failed", "operator", "", "which lies in another stage"},
	} {
		code, out, _ := kvferry(append([]string{"plan", "model", "-o", "json"}, c.args...)...)
		got := decode[struct {
			File  string
			Error *refusal.Refusal
		}](t, out)
		e := got.Error
		if code != 1 || e == nil || e.Kind != c.kind || e.Fault != c.fault || !strings.Contains(e.Message, c.want) || got.File != c.args[0] {
			t.Errorf("%v: exit status %d, %s, want kind %s, fault %s and %q", c.args, code, out, c.kind, c.fault, c.want)
			continue
		}
		if c.field != "" && (len(e.Fields) == 0 || e.Fields[0].Field != c.field) {
			t.Errorf("%v: fields %v, want %s", c.args, e.Fields, c.field)
		}
	}
	// One that fails does not stop the next.
	code, out, errs := kvferry("plan", "model", unknown, llama)
	if code != 1 || !strings.HasPrefix(out, "kvferry: pair/1\n") || !strings.Contains(errs, "MarvelForCausalLM (model_type marvel) is not known") {
		t.Errorf("exit status %d, stdout %s, stderr %s", code, out, errs)
	}
	for _, args := range [][]string{
		{}, {"--known", llama}, {llama, "--tp", "0"}, {llama, "--tp", "2:x"}, {llama, "--tp", "1:2:3"}, {llama, "--block", "-1"},
		{llama, "--layout", "vllm/none"}, {llama, "--draft", "yes"}, {llama, "--cache-dtype", "bf16"}, {llama, llama, "--name", "x"},
	} {
		if code, out, errs := kvferry(append([]string{"plan", "model"}, args...)...); code != 2 || out != "" || errs == "" {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q, want usage", args, code, out, errs)
		}
	}
}

// A file that is called as all are is known by its folder, and standard input
// by what it says itself.
func TestPlanModelNames(t *testing.T) {
	for file, want := range map[string]string{
		"/models/Llama-3-8B/config.json": "Llama-3-8B", "/a/qwen3-32b.json": "qwen3-32b", "x": "x", "-": "", "/config.json": "",
	} {
		if got := modelName(file); got != want {
			t.Errorf("%s is called %q, want %q", file, got, want)
		}
	}
}

func TestPlanModelKnown(t *testing.T) {
	code, out, errs := kvferry("plan", "model", "--known")
	if code != 0 || errs != "" || strings.Count(out, "\n") != 2*len(architecture.Known()) || !strings.Contains(out, "\nGptOssForCausalLM gpt_oss\n  keys and values; ") {
		t.Errorf("exit status %d, stderr %s, stdout %s", code, errs, out)
	}
	code, out, _ = kvferry("plan", "model", "--known", "-o", "json")
	got := decode[struct {
		Architectures []struct{ Names []string }
	}](t, out)
	if code != 0 || len(got.Architectures) != len(architecture.Known()) || !slices.Contains(got.Architectures[0].Names, "LlamaForCausalLM") {
		t.Errorf("exit status %d, %s", code, out)
	}
}
