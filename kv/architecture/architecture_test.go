package architecture_test

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew; review the difference")

const configs = "../../testdata/configs/"

// published reads the published configuration of a model.
func published(t *testing.T, name string, o architecture.Options) geometry.Model {
	t.Helper()
	data, err := os.ReadFile(configs + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if o.Name == "" {
		o.Name = name
	}
	m, err := architecture.Read(data, o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// names are those of the published configurations.
func names(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(configs + "*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d configurations: %v", len(files), err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".json")
	}
	return files
}

// size is what a model keeps: bytes a token of all its length, bytes a token
// of what lies within windows, and bytes a request of states.
type size struct{ token, window, state int64 }

func sizeOf(m geometry.Model) size {
	var s size
	for _, g := range m.Groups {
		for _, c := range g.Components {
			// Of 128 tokens, so that entries of several are whole.
			bytes := int64(len(g.Layers)) * c.RowBits() / 8 * int64(c.HeadCount())
			switch {
			case g.State:
				s.state += bytes
			case g.Window > 0:
				s.window += bytes
			default:
				s.token += bytes * 128 / int64(c.EntryTokens()) / 128
			}
		}
	}
	return s
}

// TestSizes: what one token, and one request, costs in each published model,
// written as layers x (what one of them keeps) x bytes.
func TestSizes(t *testing.T) {
	sizes := map[string]size{
		"llama-3-8b":             {token: 32 * 2 * 8 * 128 * 2},
		"llama-3-70b":            {token: 327680},
		"llama-3.1-405b":         {token: 126 * 2 * 8 * 128 * 2},
		"llama-4-scout-17b-16e":  {token: 12 * 2 * 8 * 128 * 2, window: 36 * 2 * 8 * 128 * 2},
		"mistral-7b-v0.1":        {window: 32 * 2 * 8 * 128 * 2},
		"mistral-small-24b-2501": {token: 40 * 2 * 8 * 128 * 2},
		"mixtral-8x7b-v0.1":      {token: 32 * 2 * 8 * 128 * 2},
		"qwen2.5-72b":            {token: 80 * 2 * 8 * 128 * 2},
		"qwen3-32b":              {token: 64 * 2 * 8 * 128 * 2},
		"qwen3-235b-a22b":        {token: 94 * 2 * 4 * 128 * 2},

		// (2*16 + 32)*128 channels of 3 bf16, and 32 heads of 128 x 128 in the
		// cache's type; Qwen3.5 says fp32.
		"qwen3-next-80b-a3b": {token: 12 * 2 * 2 * 256 * 2, state: 36 * (8192*3*2 + 32*128*128*2)},
		"qwen3.5-27b":        {token: 16 * 2 * 4 * 256 * 2, state: 48 * (10240*3*2 + 48*128*128*4)},
		"qwen3.5-35b-a3b":    {token: 10 * 2 * 2 * 256 * 2, state: 30 * (8192*3*2 + 32*128*128*4)},
		"qwen3.5-397b-a17b":  {token: 15 * 2 * 2 * 256 * 2, state: 45 * (12288*3*2 + 64*128*128*4)},

		"deepseek-v2-lite": {token: 27 * 576 * 2},
		"deepseek-v3":      {token: 70272},
		"deepseek-v3.2":    {token: 61 * (576*2 + 132)},
		"glm-5":            {token: 78 * (576*2 + 132)},
		"kimi-k2":          {token: 61 * 576 * 2},
		// 21 layers of ratio 4 with an indexer, 20 of 128; the window's row in all
		// 43, and of their last 8 tokens 2 x 2 x (512 + 128) fp32, of 128 2 x 512.
		"deepseek-v4-flash": {token: 21*(1024+132)/4 + 20*1024/128, window: 43*1024 + 21*4*640*4 + 20*2*512*4},
		"deepseek-v4-pro":   {token: 30*(1024+132)/4 + 31*1024/128, window: 61*1024 + 30*4*640*4 + 31*2*512*4},
		// 3 convolutions of 4096 channels, and 32 heads of 128 x 128 fp32.
		"kimi-linear-48b-a3b": {token: 7 * 576 * 2, state: 20 * (3*4096*3*2 + 32*128*128*4)},

		"gpt-oss-20b":  {token: 12 * 2 * 8 * 64 * 2, window: 12 * 2 * 8 * 64 * 2},
		"gpt-oss-120b": {token: 18 * 2 * 8 * 64 * 2, window: 18 * 2 * 8 * 64 * 2},
		"gemma-2-27b":  {token: 23 * 2 * 16 * 128 * 4, window: 23 * 2 * 16 * 128 * 4},
		"gemma-3-4b":   {token: 5 * 2 * 4 * 256 * 2, window: 29 * 2 * 4 * 256 * 2},
		"gemma-3-27b":  {token: 10 * 2 * 16 * 128 * 2, window: 52 * 2 * 16 * 128 * 2},
		// The first 20 of 35 layers, and the first 24 of 42, have a cache.
		"gemma-3n-e4b": {token: 4 * 2 * 2 * 256 * 2, window: 16 * 2 * 2 * 256 * 2},
		"gemma-4-e4b":  {token: 4 * 2 * 2 * 512 * 2, window: 20 * 2 * 2 * 256 * 2},
		"gemma-4-31b":  {token: 10 * 2 * 4 * 512 * 2, window: 50 * 2 * 16 * 256 * 2},

		"nemotron-h-8b":              {token: 4 * 2 * 8 * 128 * 2, state: 24 * (10240*3*2 + 128*64*128*4)},
		"nemotron-h-56b":             {token: 10 * 2 * 8 * 128 * 2, state: 54 * (20480*3*2 + 256*64*256*4)},
		"nemotron-3-nano-30b-a3b":    {token: 6 * 2 * 2 * 128 * 2, state: 23 * (36864 + 2097152)},
		"nemotron-3-super-120b-a12b": {token: 8 * 2 * 2 * 128 * 2, state: 40 * (10240*3*2 + 128*64*128*4)},
		"jamba-1.5-mini":             {token: 4 * 2 * 8 * 128 * 2, state: 28 * (8192*3*2 + 8192*16*2)},
		"jamba-1.5-large":            {token: 9 * 2 * 8 * 128 * 2, state: 63 * (16384*3*2 + 16384*16*2)},
		"bamba-9b-v2":                {token: 3 * 2 * 8 * 128 * 2, state: 29 * (8448*3*2 + 128*64*128*2)},
		"granite-4.0-h-small":        {token: 4 * 2 * 8 * 128 * 2, state: 36 * (8448*3*2 + 128*64*128*2)},
		"granite-4.0-h-tiny":         {token: 4 * 2 * 4 * 128 * 2, state: 36 * (3328*3*2 + 48*64*128*2)},
		"falcon-h1-7b":               {token: 44 * 2 * 2 * 128 * 2, state: 44 * (3584*3*2 + 24*128*256*2)},
		"falcon-h1-34b":              {token: 72 * 2 * 4 * 128 * 2, state: 72 * (5120*3*2 + 32*128*256*2)},
		"mamba-2.8b":                 {state: 64 * (5120*3*4 + 5120*16*4)},
		"mamba-codestral-7b-v0.1":    {state: 64 * (10240*3*2 + 128*64*128*2)},
		"minimax-m1-80k":             {token: 10 * 2 * 8 * 128 * 2, state: 70 * 64 * 128 * 128 * 2},
		"minimax-m2":                 {token: 62 * 2 * 8 * 128 * 2},

		"glm-4-9b-0414": {token: 40 * 2 * 2 * 128 * 2},
		"glm-4-9b-chat": {token: 40 * 2 * 2 * 128 * 2},
		"glm-4.5":       {token: 92 * 2 * 8 * 128 * 2},
		"glm-4.5-air":   {token: 46 * 2 * 8 * 128 * 2},
		"phi-4-mini":    {token: 32 * 2 * 8 * 128 * 2},
		"phi-3-mini-4k": {window: 32 * 2 * 32 * 96 * 2},
		"olmo-2-7b":     {token: 32 * 2 * 32 * 128 * 4},
		"olmo-3-32b":    {token: 16 * 2 * 8 * 128 * 2, window: 48 * 2 * 8 * 128 * 2},
	}
	for _, name := range names(t) {
		want, ok := sizes[name]
		if !ok {
			t.Errorf("%s has no line here", name)
			continue
		}
		if got := sizeOf(published(t, name, architecture.Options{})); got != want {
			t.Errorf("%s keeps %+v, want %+v", name, got, want)
		}
		delete(sizes, name)
	}
	for name := range sizes {
		t.Errorf("%s has a line here and no configuration", name)
	}
}

// TestModels compares every model with the golden file, with its draft layers
// where it has some.
func TestModels(t *testing.T) {
	var b strings.Builder
	for _, name := range names(t) {
		b.WriteString(published(t, name, architecture.Options{}).Text())
		data, err := os.ReadFile(configs + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		m, err := architecture.Read(data, architecture.Options{Name: name, Draft: true})
		var none *architecture.Error
		if errors.As(err, &none) && none.Field == "draft" {
			b.WriteByte('\n')
			continue
		}
		if err != nil {
			t.Fatalf("%s with draft layers: %v", name, err)
		}
		for _, g := range m.Groups {
			if g.Optional {
				line := geometry.Model{Name: name, Layers: m.Layers, Groups: []geometry.Group{g}}.Text()
				_, line, _ = strings.Cut(line, "\n")
				b.WriteString("with draft layers, " + line)
			}
		}
		b.WriteByte('\n')
	}
	const file = "testdata/models.txt"
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, expect := strings.Split(b.String(), "\n\n"), strings.Split(string(want), "\n\n")
	for i := range max(len(got), len(expect)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(expect) {
			w = expect[i]
		}
		if g != w {
			t.Fatalf("differs from %s (-rewrite writes it anew):\n%s\nwant:\n%s", file, g, w)
		}
	}
}

// TestStateParts: the channels of each part of a state on the first rank at
// each TP. The lines of Nemotron-H-8B and Qwen3.5-27B are measured ones.
func TestStateParts(t *testing.T) {
	for _, c := range []struct {
		model string
		tp    int
		conv  []int // x, b, c; q, k, v; or x alone
		ssm   int   // heads, or channels in the first Mamba
	}{
		{"nemotron-h-8b", 1, []int{8192, 1024, 1024}, 128},
		{"nemotron-h-8b", 2, []int{4096, 512, 512}, 64},
		{"nemotron-h-8b", 4, []int{2048, 256, 256}, 32},
		{"nemotron-h-8b", 8, []int{1024, 128, 128}, 16},
		{"nemotron-h-8b", 16, []int{512, 128, 128}, 8}, // 8 groups: each on two ranks
		{"nemotron-h-56b", 1, []int{16384, 2048, 2048}, 256},
		{"nemotron-h-56b", 8, []int{2048, 256, 256}, 32},
		{"nemotron-3-nano-30b-a3b", 1, []int{4096, 1024, 1024}, 64},
		{"nemotron-3-nano-30b-a3b", 4, []int{1024, 256, 256}, 16},
		{"nemotron-3-super-120b-a12b", 8, []int{1024, 128, 128}, 16},
		{"mamba-codestral-7b-v0.1", 4, []int{2048, 256, 256}, 32},
		{"bamba-9b-v2", 1, []int{8192, 128, 128}, 128},
		{"bamba-9b-v2", 4, []int{2048, 128, 128}, 32}, // one group: on every rank
		{"granite-4.0-h-small", 2, []int{4096, 128, 128}, 64},
		{"granite-4.0-h-tiny", 4, []int{768, 128, 128}, 12},
		{"falcon-h1-34b", 1, []int{4096, 512, 512}, 32},
		{"falcon-h1-34b", 2, []int{2048, 256, 256}, 16},
		{"falcon-h1-34b", 4, []int{1024, 256, 256}, 8}, // two groups: each on two ranks
		{"falcon-h1-7b", 2, []int{1536, 256, 256}, 12},
		{"jamba-1.5-mini", 4, []int{2048}, 2048},
		{"jamba-1.5-large", 8, []int{2048}, 2048},
		{"mamba-2.8b", 2, []int{2560}, 2560},
		{"qwen3-next-80b-a3b", 1, []int{2048, 2048, 4096}, 32},
		{"qwen3-next-80b-a3b", 4, []int{512, 512, 1024}, 8},
		{"qwen3.5-27b", 8, []int{256, 256, 768}, 6},
		{"qwen3.5-35b-a3b", 2, []int{1024, 1024, 2048}, 16},
		{"qwen3.5-397b-a17b", 16, []int{128, 128, 512}, 4},
		{"kimi-linear-48b-a3b", 4, []int{1024, 1024, 1024}, 8},
		{"minimax-m1-80k", 8, nil, 8},
	} {
		m := published(t, c.model, architecture.Options{})
		s := shard.Spec{TP: c.tp, Stages: []int{m.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
		states := slices.IndexFunc(m.Groups, func(g geometry.Group) bool { return g.State })
		if states < 0 {
			t.Errorf("%s has no states", c.model)
			continue
		}
		g := m.Groups[states]
		if err := s.Validate(m.Select([]int{states})); err != nil {
			t.Errorf("%s at TP %d: %v", c.model, c.tp, err)
			continue
		}
		held := map[int]int{} // of the last component but one: how many ranks hold its first unit
		for rank := range c.tp {
			part := s.Part(g, rank)
			var got []int
			for i, h := range part.Heads {
				got = append(got, len(h))
				if unit := g.Components[i].UnitHeads(); h[0]%unit != 0 || len(h)%unit != 0 {
					t.Errorf("%s at TP %d: rank %d holds %d channels of %s from %d on, which parts units of %d", c.model, c.tp, rank, len(h), g.Components[i].Name, h[0], unit)
				}
			}
			if want := append(slices.Clone(c.conv), c.ssm); !slices.Equal(got, want) {
				t.Errorf("%s at TP %d: rank %d holds %v channels, want %v", c.model, c.tp, rank, got, want)
			}
			held[part.Heads[max(len(c.conv)-1, 0)][0]]++
		}
		// Every rank of those that share a group's B and C reads the same.
		counts := slices.Sorted(maps.Values(held))
		if counts[0] != counts[len(counts)-1] {
			t.Errorf("%s at TP %d: shared by %v ranks", c.model, c.tp, counts)
		}
	}
}

// TestStateBytes: convolution and recurrent bytes of one layer of Nemotron 3
// Nano on a rank, as an engine reports them.
func TestStateBytes(t *testing.T) {
	m := published(t, "nemotron-3-nano-30b-a3b", architecture.Options{})
	g := m.Groups[0]
	for _, c := range []struct {
		tp        int
		conv, ssm int64
	}{{1, 36864, 2097152}, {2, 18432, 1048576}, {4, 9216, 524288}} {
		s := shard.Spec{TP: c.tp, Stages: []int{m.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
		var conv, ssm int64
		for i, h := range s.Part(g, c.tp-1).Heads {
			bytes := int64(len(h)) * g.Components[i].RowBits() / 8
			if g.Components[i].Name == "ssm" {
				ssm += bytes
			} else {
				conv += bytes
			}
		}
		if conv != c.conv || ssm != c.ssm {
			t.Errorf("TP %d: %d and %d bytes, want %d and %d", c.tp, conv, ssm, c.conv, c.ssm)
		}
	}
}

// TestQuantisation: bytes a token and layer of each quantisation that is for a
// model.
func TestQuantisation(t *testing.T) {
	for _, c := range []struct {
		model, quantisation string
		token               int64 // of the first group with tokens, in one layer
		components          string
	}{
		{"llama-3-70b", "", 4096, "k v"},
		{"llama-3-70b", "fp8", 2048, "k v"},
		{"llama-3-70b", "fp8_e5m2", 2048, "k v"},
		{"llama-3-70b", "fp8_per_token_head", 2 * 8 * (128 + 4), "k k_scale v v_scale"},
		{"llama-3-70b", "int8_per_token_head", 2 * 8 * (128 + 4), "k k_scale v v_scale"},
		{"llama-3-70b", "nvfp4", 2 * 8 * (64 + 8), "k k_scale v v_scale"},
		{"deepseek-v3", "", 1152, "latent rope"},
		{"deepseek-v3", "fp8", 576, "latent rope"},
		{"deepseek-v3.2", "fp8_ds_mla", 656, "latent scale rope"},
		{"deepseek-v4-flash", "", 1024, "kv"},
		{"deepseek-v4-flash", "fp8", 512, "kv"},
		{"deepseek-v4-flash", "fp8_ds_mla", 584, "kv rope kv_scale"},
	} {
		m := published(t, c.model, architecture.Options{Quantisation: c.quantisation})
		var bytes int64
		var names []string
		for _, comp := range m.Groups[0].Components {
			bytes += comp.RowBits() / 8 * int64(comp.HeadCount())
			names = append(names, comp.Name)
		}
		if bytes != c.token || strings.Join(names, " ") != c.components {
			t.Errorf("%s %s: %d bytes of %v, want %d of %s", c.model, c.quantisation, bytes, names, c.token, c.components)
		}
		if got := m.Identity["cache.quantisation"]; got != c.quantisation {
			t.Errorf("%s: the identity says quantisation %q, want %q", c.model, got, c.quantisation)
		}
	}
	// A scale names what it scales, but inside entries of several tokens.
	m := published(t, "deepseek-v4-flash", architecture.Options{Quantisation: "fp8_ds_mla"})
	for _, g := range m.Groups {
		for _, comp := range g.Components {
			if strings.HasSuffix(comp.Name, "_scale") && (comp.Scales != "") != (comp.Entry == 0) {
				t.Errorf("group %s: %s", g.Name, comp.Text())
			}
		}
	}
}

// TestDraft: draft layers are optional groups, met by the number of the layer,
// and a model that has them joins with one that has not.
func TestDraft(t *testing.T) {
	for _, c := range []struct {
		model, groups string
		layers        int
	}{
		{"glm-4.5", "attention mtp92", 93},
		{"deepseek-v3", "attention mtp61", 62},
		{"deepseek-v3.2", "attention indexer mtp61 mtp61-indexer", 62},
		{"minimax-m2", "attention mtp62 mtp63 mtp64", 65},
		{"qwen3.5-27b", "gdn attention mtp64", 65},
		{"nemotron-3-super-120b-a12b", "mamba attention mtp88", 89},
		{"deepseek-v4-flash", "window c4 c4-state c4-index c4-index-state c128 c128-state mtp43", 44},
	} {
		with, without := published(t, c.model, architecture.Options{Draft: true}), published(t, c.model, architecture.Options{})
		var names []string
		for _, g := range with.Groups {
			names = append(names, g.Name)
			if strings.HasPrefix(g.Name, "mtp") != g.Optional {
				t.Errorf("%s: group %s is optional: %v", c.model, g.Name, g.Optional)
			}
		}
		if got := strings.Join(names, " "); got != c.groups || with.Layers != c.layers {
			t.Errorf("%s: %d layers in groups %s, want %d in %s", c.model, with.Layers, got, c.layers, c.groups)
		}
		match, differences := geometry.Compare(without, with)
		if len(differences) > 0 || len(match.Groups) != len(without.Groups) || len(match.Absent) != len(with.Groups)-len(without.Groups) {
			t.Errorf("%s with and without draft layers: %v, %v", c.model, match, differences)
		}
	}
}

// TestShared: layers without a cache read that of the last of their kind.
func TestShared(t *testing.T) {
	for model, want := range map[string]map[int]int{
		"gemma-3n-e4b": {20: 18, 23: 18, 24: 19, 29: 19, 33: 18, 34: 19},
		"gemma-4-e4b":  {24: 22, 28: 22, 29: 23, 35: 23, 40: 22, 41: 23},
	} {
		m := published(t, model, architecture.Options{})
		owners := map[int]int{}
		for _, g := range m.Groups {
			for _, s := range g.Shared {
				owners[s.Layer] = s.Owner
			}
		}
		for layer, owner := range want {
			if owners[layer] != owner {
				t.Errorf("%s: layer %d reads the cache of %d, want %d", model, layer, owners[layer], owner)
			}
		}
	}
}

// longFactor is sha256sum of "1" and 47 times ",1.0299999713897705".
const longFactor = "3278584e3855939e7d121e676a455ee37b97b6d07f8d608fe1e83bd3321d9bab"

// TestIdentity: numbers have one text however the file writes them.
func TestIdentity(t *testing.T) {
	m := published(t, "llama-3.1-405b", architecture.Options{})
	want := geometry.Identity{
		"rope.type": "llama3", "rope.theta": "500000", "rope.factor": "8", "rope.high_freq_factor": "4",
		"rope.low_freq_factor": "1", "rope.original_max_position_embeddings": "8192",
	}
	if !maps.Equal(m.Identity, want) {
		t.Errorf("llama-3.1-405b: %v, want %v", m.Identity, want)
	}
	for text, want := range map[string]string{"5e5": "500000", "500000.0": "500000", "1000000000000000000000000": "1e+24", "0.25": "0.25"} {
		config := `{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "torch_dtype": "bfloat16", "rope_theta": ` + text + `}`
		m, err := architecture.Read([]byte(config), architecture.Options{Name: "m"})
		if err != nil || m.Identity["rope.theta"] != want {
			t.Errorf("rope_theta %s: %v, %v, want %s", text, m.Identity, err, want)
		}
	}
	// A list too long to read is declared by its digest.
	long := `{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "torch_dtype": "bfloat16", "rope_scaling": {"type": "longrope", "long_factor": [1.0` + strings.Repeat(", 1.0299999713897705", 47) + `]}}`
	m, err := architecture.Read([]byte(long), architecture.Options{Name: "m"})
	if err != nil || m.Identity["rope.long_factor"] != "sha256:"+longFactor || m.Identity["rope.type"] != "longrope" {
		t.Errorf("long factors: %v, %v", m.Identity, err)
	}
	if m := published(t, "gemma-4-31b", architecture.Options{}); m.Identity["rope.full_attention.theta"] != "1000000" || m.Identity["rope.sliding_attention.theta"] != "10000" {
		t.Errorf("gemma-4-31b: %v", m.Identity)
	}
	if m := published(t, "llama-4-scout-17b-16e", architecture.Options{}); m.Identity["attention.chunk"] != "8192" || !strings.HasPrefix(m.Identity["rope.none"], "3,7,11,") {
		t.Errorf("llama-4-scout: %v", m.Identity)
	}
}

// TestOptions: names and element types that the file does not say.
func TestOptions(t *testing.T) {
	const config = `{"_name_or_path": "some/where/tiny", "model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4,
		"num_attention_heads": 2, "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
		"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "dtype": "float16"}`
	types := func(o architecture.Options) (name string, conv, ssm, k geometry.DType) {
		m, err := architecture.Read([]byte(config), o)
		if err != nil {
			t.Fatal(err)
		}
		return m.Name, m.Groups[0].Components[0].DType, m.Groups[0].Components[3].DType, m.Groups[1].Components[0].DType
	}
	for _, c := range []struct {
		o            architecture.Options
		name         string
		conv, ssm, k geometry.DType
	}{
		{architecture.Options{}, "tiny", geometry.FP16, geometry.FP16, geometry.FP16},
		{architecture.Options{Name: "mine", CacheDType: "bfloat16"}, "mine", geometry.BF16, geometry.BF16, geometry.BF16},
		{architecture.Options{CacheDType: "auto", StateDType: "float32"}, "tiny", geometry.FP16, geometry.FP32, geometry.FP16},
		{architecture.Options{Quantisation: "fp8"}, "tiny", geometry.FP16, geometry.FP16, geometry.FP8E4M3},
	} {
		name, conv, ssm, k := types(c.o)
		if name != c.name || conv != c.conv || ssm != c.ssm || k != c.k {
			t.Errorf("%+v: %s, conv %s, ssm %s, k %s", c.o, name, conv, ssm, k)
		}
	}
}

// TestKnown: no name stands in two lines of the table.
func TestKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range architecture.Known() {
		if a.Doc == "" || len(a.Names) == 0 {
			t.Errorf("%+v says nothing", a)
		}
		for _, n := range a.Names {
			if seen[n] {
				t.Errorf("%s stands in two lines", n)
			}
			seen[n] = true
		}
	}
}

// FuzzRead: whatever the bytes, Read returns a valid model or an error of its
// own, the same each time; and the model does not depend on how the JSON is
// written.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(configs + "*.json")
	if err != nil {
		f.Fatal(err)
	}
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "", i%2 == 0)
		f.Add(data, architecture.Quantisations()[i%len(architecture.Quantisations())], i%2 == 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, quantisation string, draft bool) {
		o := architecture.Options{Name: "m", Quantisation: quantisation, Draft: draft}
		m, err := architecture.Read(data, o)
		if err != nil {
			var e *architecture.Error
			var u *architecture.UnknownError
			if !errors.As(err, &e) && !errors.As(err, &u) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.MarshalIndent(v, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > architecture.MaxBytes {
			return
		}
		if second, err := architecture.Read(again, o); err != nil || second.Text() != m.Text() {
			t.Fatalf("%v\n%s\n%s", err, m.Text(), second.Text())
		}
	})
}
