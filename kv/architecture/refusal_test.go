package architecture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/kv/geometry"
)

// TestRefusals: every error names the field, and the value where there is one.
func TestRefusals(t *testing.T) {
	// change applies JSON fields to a published configuration; null removes one.
	change := func(model, fields string) []byte {
		data, err := os.ReadFile(configs + model + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var m, f map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(fields), &f); err != nil {
			t.Fatal(err)
		}
		in := m
		if text, ok := m["text_config"].(map[string]any); ok {
			in = text
		}
		maps.Copy(in, f)
		data, err = json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var many []string
	for i := range 130 {
		many = append(many, fmt.Sprintf(`"n%d": 1`, 1000+i))
	}
	manyFields := "{" + strings.Join(many, ", ") + "}"
	for _, c := range []struct {
		model, fields string
		o             architecture.Options
		field, want   string
	}{
		{"llama-3-8b", `{}`, architecture.Options{Name: "-"}, "name", "give a name"},
		{"llama-3-8b", `{"num_hidden_layers": null}`, architecture.Options{}, "num_hidden_layers", "missing, and so is num_layers"},
		{"llama-3-8b", `{"num_hidden_layers": "32"}`, architecture.Options{}, "num_hidden_layers", `is "32": want a whole number`},
		{"llama-3-8b", `{"num_hidden_layers": 32.5}`, architecture.Options{}, "num_hidden_layers", "want a whole number"},
		{"llama-3-8b", `{"num_hidden_layers": -1}`, architecture.Options{}, "num_hidden_layers", "is -1: want 0 to 16384"},
		{"llama-3-8b", `{"num_hidden_layers": 0}`, architecture.Options{}, "num_hidden_layers", "is 0: want 1 to 16384"},
		{"llama-3-8b", `{"num_key_value_heads": 7}`, architecture.Options{}, "num_key_value_heads", "is 7: does not divide num_attention_heads, 32"},
		{"llama-3-8b", `{"hidden_size": 4097}`, architecture.Options{}, "hidden_size", "is 4097: is no multiple of num_attention_heads, 32"},
		{"llama-3-8b", `{"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}}`, architecture.Options{}, "quantization_config.kv_cache_scheme", "give the cache dtype"},
		{"llama-3-8b", `{"quantization_config": {"kv_cache_quant_algo": "FP8"}}`, architecture.Options{}, "quantization_config.kv_cache_quant_algo", "the cache is quantised"},
		{"llama-3-8b", `{"torch_dtype": null}`, architecture.Options{}, "torch_dtype", "say what the cache's dtype is"},
		{"llama-3-8b", `{"torch_dtype": "complex64"}`, architecture.Options{}, "torch_dtype", `is "complex64": no such dtype`},
		{"llama-3-8b", `{}`, architecture.Options{CacheDType: "fp9"}, "cache dtype", `is "fp9"`},
		{"llama-3-8b", `{}`, architecture.Options{Draft: true}, "draft", "speaks of no draft layers"},
		{"llama-3-8b", `{}`, architecture.Options{Quantisation: "int3"}, "quantisation", "want one of fp8, fp8_e5m2"},
		{"llama-3-8b", `{}`, architecture.Options{Quantisation: "fp8_ds_mla"}, "quantisation", "is not for an attention with keys and values"},
		{"llama-3-8b", `{"head_dim": 72}`, architecture.Options{Quantisation: "nvfp4"}, "quantisation", "rows of 72 elements"},
		{"llama-3-8b", `{"is_encoder_decoder": true}`, architecture.Options{}, "is_encoder_decoder", "cross attention"},
		{"llama-3-8b", `{"rope_scaling": ` + manyFields + `}`, architecture.Options{}, "rope.n1127", "at most 128 names"},
		{"llama-3-8b", `{"rope_scaling": {"` + strings.Repeat("n", 200) + `": 1}}`, architecture.Options{}, "rope", "a name has at most 128 bytes"},
		{"deepseek-v3", `{}`, architecture.Options{Quantisation: "nvfp4"}, "quantisation", "is not for MLA"},
		{"deepseek-v3", `{"kv_lora_rank": 500}`, architecture.Options{Quantisation: "fp8_ds_mla"}, "kv_lora_rank", "is 500"},
		{"deepseek-v3", `{"qk_rope_head_dim": null}`, architecture.Options{}, "qk_rope_head_dim", "missing"},
		{"deepseek-v3.2", `{"index_head_dim": null}`, architecture.Options{}, "index_head_dim", "missing"},
		{"deepseek-v4-flash", `{"compress_ratios": null}`, architecture.Options{}, "compress_ratios", "stands nowhere else"},
		{"deepseek-v4-flash", `{"compress_ratios": [0, 4, 128]}`, architecture.Options{}, "compress_ratios", "3 elements"},
		{"deepseek-v4-flash", `{"num_hidden_layers": 3, "compress_ratios": [0, 4, 16]}`, architecture.Options{}, "compress_ratios[2]", "is 16: the caches of ratios 4 and 128 are known"},
		{"gpt-oss-20b", `{"sliding_window": null}`, architecture.Options{}, "sliding_window", "layer 0 is a sliding_attention"},
		{"gpt-oss-20b", `{"layer_types": ["full_attention"]}`, architecture.Options{}, "layer_types", "there are 24 layers"},
		{"gpt-oss-20b", `{"num_hidden_layers": 1, "layer_types": ["odd_attention"]}`, architecture.Options{}, "layer_types[0]", `is "odd_attention": want one of full_attention, sliding_attention`},
		{"gemma-3n-e4b", `{"layer_types": null}`, architecture.Options{}, "text_config.layer_types", "missing"},
		{"gemma-3n-e4b", `{"num_kv_shared_layers": 35}`, architecture.Options{}, "text_config.num_kv_shared_layers", "none of 35 layers"},
		{"gemma-3n-e4b", `{"num_kv_shared_layers": 32}`, architecture.Options{}, "text_config.layer_types", "layer 4 shares"},
		{"nemotron-h-8b", `{"hybrid_override_pattern": null}`, architecture.Options{}, "hybrid_override_pattern", "missing, and so is layers_block_type"},
		{"nemotron-h-8b", `{"hybrid_override_pattern": "M*"}`, architecture.Options{}, "hybrid_override_pattern", "num_hidden_layers is 52"},
		{"nemotron-h-8b", `{"num_hidden_layers": 2, "hybrid_override_pattern": "MX"}`, architecture.Options{}, "hybrid_override_pattern[1]", `is "X": want M, *, - or E`},
		{"nemotron-h-8b", `{"n_groups": 3}`, architecture.Options{}, "the number of groups", "is 3: does not divide 128 heads"},
		{"nemotron-h-8b", `{"num_hidden_layers": 1, "hybrid_override_pattern": "E"}`, architecture.Options{}, "the model's groups", "want 1 to 64 groups"},
		{"nemotron-h-56b", `{"mamba_head_dim": 128}`, architecture.Options{}, "the model's groups[0].components[0].heads", "is 32768: want 0 (no heads) to 16384"},
		{"bamba-9b-v2", `{"attn_layer_indices": [9, 32]}`, architecture.Options{}, "attn_layer_indices[1]", "there are 32 layers, numbered from 0"},
		{"bamba-9b-v2", `{"attn_layer_indices": [9, 9]}`, architecture.Options{}, "attn_layer_indices", "named twice"},
		{"bamba-9b-v2", `{"mamba_n_heads": 96}`, architecture.Options{}, "mamba_n_heads", "times 64 of mamba_d_head is not 8192"},
		{"jamba-1.5-mini", `{"attn_layer_offset": 8}`, architecture.Options{}, "attn_layer_offset", "is not below attn_layer_period, 8"},
		{"jamba-1.5-mini", `{"mamba_d_conv": 1}`, architecture.Options{}, "the convolution's kernel", "keeps nothing"},
		{"mamba-2.8b", `{}`, architecture.Options{Quantisation: "fp8"}, "quantisation", "no attention cache"},
		{"mamba-codestral-7b-v0.1", `{"num_heads": 64}`, architecture.Options{}, "num_heads", "is not 8192"},
		{"qwen3-next-80b-a3b", `{"linear_num_key_heads": 12}`, architecture.Options{}, "linear_num_key_heads", "does not divide linear_num_value_heads, 32"},
		{"kimi-linear-48b-a3b", `{"linear_attn_config": null}`, architecture.Options{}, "linear_attn_config", "want an object"},
		{"kimi-linear-48b-a3b", `{"linear_attn_config": {"kda_layers": [1], "full_attn_layers": [27], "num_heads": 1, "head_dim": 1, "short_conv_kernel_size": 4}}`, architecture.Options{}, "linear_attn_config", "together want each of 27 layers once"},
		{"kimi-linear-48b-a3b", `{"linear_attn_config": {"kda_layers": [0]}}`, architecture.Options{}, "linear_attn_config.kda_layers[0]", "numbered from 1"},
		{"minimax-m1-80k", `{"attn_type_list": null}`, architecture.Options{}, "attn_type_list", "missing"},
		{"minimax-m2", `{"num_hidden_layers": 2, "attn_type_list": [1, 0]}`, architecture.Options{}, "attn_type_list[1]", "are full attention"},
		{"llama-4-scout-17b-16e", `{"attention_chunk_size": null}`, architecture.Options{}, "text_config.attention_chunk_size", "missing"},
		{"qwen2.5-72b", `{"use_sliding_window": true, "max_window_layers": null}`, architecture.Options{}, "max_window_layers", "missing"},
	} {
		if c.o.Name = "m"; c.field == "name" {
			c.o.Name = ""
		}
		_, err := architecture.Read(change(c.model, c.fields), c.o)
		var e *architecture.Error
		if !errors.As(err, &e) {
			t.Errorf("%s %s: %v, want an *Error", c.model, c.fields, err)
			continue
		}
		if e.Field != c.field || !strings.Contains(err.Error(), c.want) || e.Fault() != "operator" {
			t.Errorf("%s %.80s: %v (field %s), want field %s and %q", c.model, c.fields, err, e.Field, c.field, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                        "not a JSON object",
		"[]":                      "not a JSON object",
		"null":                    "not a JSON object: null",
		"{} {}":                   "something follows",
		`{"num_hidden_layers":1}`: "nothing says what model this is",
		strings.Repeat(" ", architecture.MaxBytes) + "{}": "want at most 1048576",
	} {
		if _, err := architecture.Read([]byte(text), architecture.Options{Name: "m"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// TestForms: the other ways in which files say the same.
func TestForms(t *testing.T) {
	read := func(fields string) string {
		m, err := architecture.Read([]byte(`{"torch_dtype": "bfloat16", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, `+fields+`}`), architecture.Options{Name: "m"})
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, g := range m.Groups {
			text := fmt.Sprintf("%s %s", g.Name, geometry.Ranges(g.Layers))
			if g.Window > 0 {
				text += fmt.Sprintf(" window %d", g.Window)
			}
			out = append(out, text)
		}
		return fmt.Sprintf("%d: %s", m.Layers, strings.Join(out, "; "))
	}
	const mamba2 = `"mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 8, "conv_kernel": 4, "mamba_n_heads": 16, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_n_groups": 1, `
	for fields, want := range map[string]string{
		// Newer names of the kinds of layers, and a list that says how many there are.
		`"model_type": "nemotron_h", ` + mamba2 + `"layers_block_type": ["mamba", "moe", "attention", "mlp"]`:      "4: mamba 0; attention 2",
		`"model_type": "nemotron_h", ` + mamba2 + `"layers_block_type": ["linear_attention", "full_attention"]`:    "2: mamba 0; attention 1",
		`"model_type": "nemotron_h", ` + mamba2 + `"hybrid_override_pattern": "M-*"`:                               "3: mamba 0; attention 2",
		`"model_type": "nemotron_h", ` + mamba2 + `"layers_block_type": ["mamba", "lstm"]`:                         `architecture: layers_block_type[1] is "lstm": want mamba, attention, mlp or moe`,
		`"model_type": "granitemoehybrid", "mamba_d_head": "auto", ` + mamba2 + `"layer_types": ["mamba"]`:         "1: mamba 0",
		`"model_type": "granitemoehybrid", ` + mamba2 + `"layer_types": ["attention", "attention"]`:                "2:  0-1",
		`"model_type": "granitemoehybrid", "num_hidden_layers": 2`:                                                 "architecture: layer_types: missing",
		`"model_type": "jamba", "mamba_d_state": 4, "mamba_d_conv": 4, "layers_block_type": ["mamba","attention"]`: "2: mamba 0; attention 1",

		// Windows.
		`"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 64, "max_position_embeddings": 64`:                                                              "2:  0-1",
		`"model_type": "mistral", "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]`:                                                             "2: sliding 0 window 64; full 1",
		`"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 3`:                                           "4: sliding 3 window 64; full 0-2",
		`"model_type": "qwen3", "use_sliding_window": true, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]`:                                   "2: sliding 0 window 64; full 1",
		`"model_type": "cohere2", "num_hidden_layers": 5, "sliding_window": 64`:                                                                                             "5: sliding 0-2,4 window 64; full 3",
		`"model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 64, "sliding_window_pattern": 2`:                                                                "4: sliding 0,2 window 64; full 1,3",
		`"model_type": "qwen2", "num_hidden_layers": 1, "use_sliding_window": "no"`:                                                                                         `architecture: use_sliding_window is "no": want true or false`,
		`"model_type": "llama4_text", "num_hidden_layers": 2, "no_rope_layers": [0, 1], "attention_chunk_size": 64`:                                                         "2: chunked 1 window 64; full 0",
		`"model_type": "llama4_text", "layer_types": ["chunked_attention"], "attention_chunk_size": 64`:                                                                     "1: chunked 0 window 64",
		`"model_type": "llama4_text", "num_hidden_layers": 2, "no_rope_layers": [0, 1, 1]`:                                                                                  "architecture: no_rope_layers is \"3 elements\": there are 2 layers",
		`"model_type": "minimax", "layer_types": ["linear_attention", "full_attention"]`:                                                                                    "2: lightning 0; attention 1",
		`"model_type": "minimax", "num_hidden_layers": 1, "attn_type_list": 3`:                                                                                              `architecture: attn_type_list is "3": want a list`,
		`"model_type": "minimax", "num_hidden_layers": 1, "head_dim": 4096, "attn_type_list": [0]`:                                                                          "architecture: head_dim is 4096: want at most 1024 for a square state",
		`"model_type": "mamba", "num_hidden_layers": 2.0, "expand": 2, "state_size": 16, "conv_kernel": 4`:                                                                  "2: mamba 0-1",
		`"model_type": "deepseek_v2", "num_hidden_layers": 2`:                                                                                                               "2:  0-1",
		`"model_type": "glm_moe_dsa", "num_hidden_layers": 3, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "index_head_dim": 128, "indexer_types": ["full", "shared", "full"]`: "3: attention 0-2; indexer 0,2",
		`"model_type": "chatglm", "num_layers": 2`:                                                                                                                          "2:  0-1",
		`"model_type": "glm4_moe", "num_hidden_layers": 2, "num_nextn_predict_layers": 1`:                                                                                   "2: attention 0-1",
		`"model_type": "glm_moe_dsa", "num_hidden_layers": 2, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "index_head_dim": 200`:                                              "architecture: index_head_dim is 200: does not part into the 128 elements that share a scale",
		`"model_type": "deepseek_v4", "num_hidden_layers": 1, "head_dim": 8, "qk_rope_head_dim": 4, "sliding_window": 4, "compress_ratios": "none"`:                         `architecture: compress_ratios is "none": want a list`,
		`"model_type": "deepseek_v4", "num_hidden_layers": 2, "head_dim": 8, "qk_rope_head_dim": 4, "sliding_window": 4, "compress_ratios": [0, 128]`:                       "2: window 0-1 window 4; c128 1; c128-state 1 window 128",
	} {
		if got := read(fields); got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
	// Element types as PyTorch calls them.
	for name, want := range map[string]geometry.DType{
		"torch.bfloat16": geometry.BF16, "half": geometry.FP16, "float32": geometry.FP32, "float8_e4m3fn": geometry.FP8E4M3, "float8_e5m2": geometry.FP8E5M2, "fp16": geometry.FP16,
	} {
		m := published(t, "llama-3-8b", architecture.Options{CacheDType: name})
		if got := m.Groups[0].Components[0].DType; got != want {
			t.Errorf("dtype %s is %s, want %s", name, got, want)
		}
	}
	// Draft layers that keep a state are not known.
	data, err := os.ReadFile(configs + "nemotron-3-super-120b-a12b.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := architecture.Read([]byte(strings.Replace(string(data), `"*E"`, `"ME"`, 1)), architecture.Options{Name: "m", Draft: true}); err == nil || !strings.Contains(err.Error(), "draft layers with a state are not known") {
		t.Error(err)
	}
	if _, err := architecture.Read([]byte(strings.Replace(string(data), `"num_nextn_predict_layers": 1`, `"num_nextn_predict_layers": 100`, 1)), architecture.Options{Name: "m", Draft: true}); err == nil || !strings.Contains(err.Error(), "is 100: draft layers, want at most 64") {
		t.Error(err)
	}
}

// TestUnknown: the error of an unknown architecture says what to add.
func TestUnknown(t *testing.T) {
	const config = `{"architectures": ["MarvelForCausalLM"], "model_type": "marvel", "num_hidden_layers": 12, "num_key_value_heads": 4, "head_dim": 64}`
	_, err := architecture.Read([]byte(config), architecture.Options{Name: "m"})
	var e *architecture.UnknownError
	if !errors.As(err, &e) || e.Architecture != "MarvelForCausalLM" || e.ModelType != "marvel" || e.Fault() != "operator" {
		t.Fatalf("%v", err)
	}
	const want = "architecture: MarvelForCausalLM (model_type marvel) is not known. To add it: write a function that turns its fields into groups, " +
		"such as decoder in kv/architecture/attention.go, name it in a line of the table in kv/architecture/table.go, and put its configuration into " +
		"testdata/configs with a line for it in TestSizes. Its configuration has of the fields that usually describe a cache head_dim, num_hidden_layers, num_key_value_heads"
	if err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	// A known architecture around an unknown language model is known by its own
	// name.
	if _, err := architecture.Read([]byte(`{"model_type": "marvel"}`), architecture.Options{Name: "m"}); err == nil || !strings.Contains(err.Error(), "model_type marvel is not known") {
		t.Error(err)
	}
	// The files that it names exist.
	for _, file := range []string{"attention.go", "table.go"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
