package policies_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
)

var rewrite = flag.Bool("rewrite", false, "write the vectors anew; read the difference before you keep it")

// A vector is one question and its answer, in the schema's names, so that any
// SDK can check itself against it.
type vector struct {
	Hook               string               `json:"hook"`
	SelectLayoutInput  *abi.SelectLayoutIn  `json:"select_layout_in,omitempty"`
	RemapInput         *abi.RemapIn         `json:"remap_in,omitempty"`
	RouteInput         *abi.RouteIn         `json:"route_in,omitempty"`
	Status             string               `json:"status"`
	SelectLayoutAnswer *abi.SelectLayoutOut `json:"select_layout_out,omitempty"`
	RemapAnswer        *abi.RemapOut        `json:"remap_out,omitempty"`
	RouteAnswer        *abi.RouteOut        `json:"route_out,omitempty"`
	Reason             string               `json:"reason,omitempty"` // of a refusal
}

// load gives the host's view of a built-in policy.
func load(t testing.TB, name string, interpreter bool) *host.Policy {
	t.Helper()
	wasm, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	var allowed []geometry.Digest
	for _, d := range policies.Digests() {
		allowed = append(allowed, d)
	}
	p, err := host.Load(context.Background(), wasm, host.Options{Trusted: allowed, Interpreter: interpreter})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// inputs are the questions of the vectors: pairs by file, and layout
// selections.
func inputs(t *testing.T) map[string]*vector {
	t.Helper()
	out := map[string]*vector{}
	for _, name := range []string{
		"seed", "tp4-tp6-h12", "pp-uneven", "dcp-both", "vllm-mla-p8-d2", "replicas-both", "heads-explicit",
		// Several groups, and classes of a group that are dealt unlike.
		"groups-hybrid-few-groups", "groups-hybrid-dcp", "groups-gdn", "groups-unequal-heads",
		"groups-head-block-scales", "groups-block-scales", "groups-mla-indexer", "groups-compressed",
		"groups-own-shard", "groups-draft-destination", "groups-window-ring",
	} {
		pair := parsePair(t, name)
		out["remap-"+name] = &vector{Hook: "remap", RemapInput: policy.RemapInput(pair)}
		if name == "seed" { // and where its engines run
			in, err := sited(pair).Input()
			if err != nil {
				t.Fatal(err)
			}
			out["remap-site"] = &vector{Hook: "remap", RemapInput: in}
		}
	}
	q := question()
	there := q
	where := sited(&plan.Pair{})
	there.Engine.About, there.Recorded, there.Providers, there.Configuration = where.Source, 2, where.Providers, where.Configuration
	there.Edges = [][]policy.Edge{where.Edges}
	alone, told := q, q
	alone.Peers = nil
	told.Engine.Candidates = q.Engine.Candidates[1:]
	back := policy.Question{Engine: q.Peers[0], Role: policy.Destination, Peers: []policy.Engine{q.Engine}}
	dear := q
	dear.Engine.Candidates = append([]policy.Candidate(nil), q.Engine.Candidates...)
	dear.Engine.Candidates[1].Attention = 400
	for name, q := range map[string]policy.Question{"nhd": q, "alone": alone, "told": told, "destination": back, "attention": dear, "groups": grouped(), "site": there} {
		in, err := q.Input()
		if err != nil {
			t.Fatal(err)
		}
		out["select-"+name] = &vector{Hook: "select_layout", SelectLayoutInput: in}
	}
	return out
}

// questions are those of a policy's vectors.
func questions(t *testing.T, name string) map[string]*vector {
	t.Helper()
	all := inputs(t)
	keep := func(names ...string) map[string]*vector {
		out := map[string]*vector{}
		for _, n := range names {
			if out[n] = all[n]; out[n] == nil {
				t.Fatalf("there is no question %s", n)
			}
		}
		return out
	}
	selections := func() (names []string) {
		for n, v := range all {
			if v.SelectLayoutInput != nil {
				names = append(names, n)
			}
		}
		return names
	}
	switch name {
	case "heads":
		return all
	case "seedbug": // it matches heads as heads does
		return keep(append(selections(), "remap-seed")...)
	case "compat-vllm":
		out := all
		for n, file := range map[string]string{"p4-d2-h8": "vllm-p4-d2-h8", "p8-d16-h8": "vllm-p8-d16-h8", "p16-d8-h8": "vllm-p16-d8-h8", "mla-p2-d8": "vllm-mla-p2-d8", "n16-n64": "vllm-n16-n64", "block-64-16": "block-64-16", "tp2-tp3": "tp2-tp3-h12"} {
			out["remap-"+n] = &vector{Hook: "remap", RemapInput: policy.RemapInput(parsePair(t, file))}
		}
		return out
	}
	configured := func(yaml string) []byte { return written(t, yaml) }
	out := map[string]*vector{}
	remap := func(as string, q policy.RemapQuestion) {
		in, err := q.Input()
		if err != nil {
			t.Fatal(err)
		}
		out["remap-"+as] = &vector{Hook: "remap", RemapInput: in}
	}
	route := func(as string, q policy.RouteQuestion) {
		in, err := q.Input()
		if err != nil {
			t.Fatal(err)
		}
		out["route-"+as] = &vector{Hook: "route", RouteInput: in}
	}
	if name == "pin" {
		table := configured(`
pairs:
- source: pre*
  destination: decode
  layouts: {source: nhd, destination: nhd}
  from: [0, 0, 1, [1, 0]]
  transports: [shm, tcp]
  chunk: 1048576
  streams: 2
  integrity: sample
  rails: {source: [mlx5_1]}
- {source: "*", destination: other, from: heads}
`)
		seed := sited(parsePair(t, "seed"))
		remap("no-table", policy.RemapQuestion{Pair: seed.Pair})
		seed.Configuration = table
		remap("table", seed)
		answered := policy.Answer{Alternatives: [][]plan.Assignment{matchHeads(seed.Pair)}}
		r := routed(seed, answered)
		route("unserved", r)
		seed.Edges[1].Providers, seed.Edges[2].Providers = []int{0}, []int{0, 1}
		route("table", routed(seed, answered))
		seed.Configuration = configured("pairs: [{source: '*', destination: '*', from: [0, 1, 1, 1], streams: many}]")
		remap("lacking", seed)
		route("wrong", routed(seed, answered))
		seed.Configuration = configured("pairs: [{source: prefill-2, destination: '*', from: heads}]")
		remap("no-row", seed)
		chosen := question()
		chosen.Configuration = table
		in, err := chosen.Input()
		if err != nil {
			t.Fatal(err)
		}
		out["select-table"] = &vector{Hook: "select_layout", SelectLayoutInput: in}
		return out
	}
	out = keep("remap-seed", "remap-site", "remap-replicas-both", "remap-vllm-mla-p8-d2", "remap-groups-mla-indexer", "remap-dcp-both", "select-nhd", "select-groups", "select-destination")
	for _, file := range []string{"replicas-both", "vllm-mla-p8-d2", "vllm-p16-d8-h8"} {
		q := policy.RemapQuestion{Pair: parsePair(t, file)}
		crowded(&q)
		remap("crowded-"+file, q)
		if file == "vllm-p16-d8-h8" {
			continue
		}
		r := routed(q, policy.Answer{Alternatives: spreadOut(name, q, 8, 1000)})
		route("crowded-"+file, r)
		r.Previous = &policy.Decision{Alternative: 1}
		r.Source.Places, r.Destination.Places, r.Edges = nil, nil, nil // equals: by turns
		route("turn-"+file, r)
	}
	few := policy.RemapQuestion{Pair: parsePair(t, "vllm-mla-p8-d2"), Configuration: configured("alternatives: 2")}
	remap("two", few)
	few.Configuration = configured("alternatives: two")
	remap("wrong", few)
	if name == "rails" {
		q := sited(parsePair(t, "seed"))
		q.Configuration = configured("transports: [tcp, nixl]")
		r := routed(q, policy.Answer{Alternatives: [][]plan.Assignment{matchHeads(q.Pair)}})
		route("transports", r)
		r.Configuration = configured("transports: [nixl]")
		route("unserved", r)
	}
	return out
}

// sited asks about a pair of two and four ranks with all that can be known of
// where they run.
func sited(pair *plan.Pair) policy.RemapQuestion {
	place := func(host string, rank int, load policy.Load) policy.Place {
		numa := 1 + rank%2
		return policy.Place{
			Host: host, Domain: "nvl-3", NUMA: numa, Load: load,
			Devices: []policy.Device{{ID: fmt.Sprintf("GPU-%d", rank), Kind: policy.CUDAMemory, NUMA: numa}},
			Rails:   []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 1}, {Name: "mlx5_1", NUMA: 2, Gbits: 400, Load: 8}},
		}
	}
	q := policy.RemapQuestion{
		Pair:        pair,
		Source:      policy.About{Software: "vllm", Version: "0.11.0", Labels: map[string]string{"zone": "b", "rack": "7"}},
		Destination: policy.About{Software: "sglang"},
		Providers: []policy.Provider{
			{Name: "shm", Memory: []policy.Memory{policy.HostMemory}, OneSided: true, PeerCPU: true, Strides: true, Piece: 256},
			{Name: "tcp", Memory: []policy.Memory{policy.HostMemory, policy.CUDAMemory}, PeerCPU: true, CRC: true, TLS: true, Piece: 2048},
		},
		Edges: []policy.Edge{
			{Source: plan.Range{From: 0, To: 1}, Destination: plan.Range{From: 0, To: 2}, Providers: []int{0, 1}, Reach: policy.SameDomain, Load: 2},
			{Source: plan.Range{From: 0, To: 1}, Destination: plan.Range{From: 2, To: 4}, Providers: []int{1}, Reach: policy.OverNetwork, Load: 5},
			{Source: plan.Range{From: 1, To: 2}, Destination: plan.Range{From: 0, To: 4}, Providers: []int{1}, Reach: policy.OverNetwork},
		},
		Configuration: []byte(`{"prefer":["mlx5_1"]}`),
	}
	for r := range 2 {
		q.Source.Places = append(q.Source.Places, place("node-1", r, policy.Load(1+7*r)))
	}
	q.Source.Places[1].Labels = map[string]string{"slot": "2"}
	for r := range 4 {
		q.Destination.Places = append(q.Destination.Places, place("node-2", r, 0))
	}
	return q
}

// grouped asks about an engine with states, scales in an order of their own and
// draft layers, which its peer lacks.
func grouped() policy.Question {
	attention := geometry.Group{Name: "attention", Layers: []int{1, 3}, Window: 64, Shared: []geometry.Share{{Layer: 0, Owner: 1}}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 16, DType: geometry.FP8E4M3}, {Name: "k_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Scales: "k"},
		{Name: "v", Heads: 8, Dim: 16, DType: geometry.FP8E4M3}, {Name: "v_scale", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "v"},
	}}
	states := geometry.Group{Name: "states", Layers: []int{2}, State: true, Components: []geometry.Component{
		{Name: "x", Heads: 64, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 32, Unit: 8, Dim: 3, DType: geometry.BF16},
	}}
	draft := geometry.Group{Name: "draft", Layers: []int{4}, Optional: true, Components: attention.Components[:1]}
	items := func(words string) []layout.Entry { return sample.Order(words).Order }
	inner := append(items("head"), layout.Entry{Branch: map[string][]layout.Entry{
		"v_scale": items("token dim"), "v": items("token dim"), "k,k_scale": items("token component dim"),
	}})
	grid := func(tp int, stages ...int) shard.Spec {
		return shard.Spec{TP: tp, Stages: stages, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	}
	split := grid(2, 3, 2)
	own := policy.Engine{Name: "prefill", Shard: grid(4, 5), Model: geometry.Model{Name: "hybrid", Layers: 5, Groups: []geometry.Group{draft, attention, states}},
		Candidates: []policy.Candidate{
			{Name: "head", Layouts: []layout.Spec{sample.Order("block head token dim"), {Order: append(items("block component"), inner...), Kernel: 16}, sample.Order("slot component channel dim")},
				Pools: []plan.Pool{{Block: 16, Blocks: 8}, {Block: 32, Blocks: 8, Ring: 6}, {Block: 1, Blocks: 4, Shard: &split}}},
			{Name: "token", Layouts: []layout.Spec{sample.Order("block token head dim"), sample.Order("block component token head dim"), sample.Order("slot component dim channel")},
				Pools: []plan.Pool{{Block: 16, Blocks: 8}, {Block: 16, Blocks: 16, Ring: 12}, {Block: 1, Blocks: 4, Shard: &split}}},
		}}
	peer := policy.Engine{Name: "decode", Shard: grid(2, 5), Model: own.Model.Select([]int{2, 1}),
		Candidates: []policy.Candidate{{Name: "head", Layouts: []layout.Spec{sample.Order("slot component channel dim"), sample.Order("block component head token dim")}, Pools: []plan.Pool{{Block: 1, Blocks: 4}, {Block: 16, Blocks: 8}}}}}
	return policy.Question{Engine: own, Role: policy.Source, Peers: []policy.Engine{peer}}
}

// ask fills in a policy's answer.
func ask(t *testing.T, p *host.Policy, v *vector) {
	t.Helper()
	var err error
	v.Status = "ok"
	if v.RemapInput != nil {
		v.RemapAnswer, err = p.Remap(context.Background(), v.RemapInput.Encode())
	} else if v.RouteInput != nil {
		v.RouteAnswer, err = p.Route(context.Background(), v.RouteInput.Encode())
	} else {
		var index int
		var reason string
		if index, reason, err = p.SelectLayout(context.Background(), v.SelectLayoutInput.Encode(), len(v.SelectLayoutInput.Candidates)); err == nil {
			v.SelectLayoutAnswer = &abi.SelectLayoutOut{Index: uint32(index), Reason: reason}
		}
	}
	var refused *host.Refused
	switch {
	case errors.As(err, &refused):
		v.Status = map[uint32]string{abi.StatusDeclined: "declined", abi.StatusUnsupported: "unsupported", abi.StatusBadInput: "bad_input"}[refused.Status]
		v.Reason = refused.Reason
	case err != nil:
		t.Fatal(err)
	}
}

// readable writes JSON with what fits into a line on one line.
func readable(t *testing.T, b *strings.Builder, text json.RawMessage, indent string) {
	t.Helper()
	if len(text) <= 160 || text[0] != '{' && text[0] != '[' {
		b.Write(text)
		return
	}
	d := json.NewDecoder(bytes.NewReader(text))
	open, err := d.Token()
	for n := 0; err == nil && d.More(); n++ {
		if n > 0 {
			b.WriteByte(',')
		} else {
			b.WriteString(string(open.(json.Delim)))
		}
		b.WriteString(indent + " ")
		if open == json.Delim('{') {
			var key json.Token
			if key, err = d.Token(); err != nil {
				break
			}
			fmt.Fprintf(b, "%q: ", key)
		}
		var value json.RawMessage
		if err = d.Decode(&value); err == nil {
			readable(t, b, value, indent+" ")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString(indent + map[json.Token]string{json.Delim('{'): "}", json.Delim('['): "]"}[open])
}

// The vectors hold in a fresh instance, in used ones, and on the interpreter.
func TestVectors(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			questions := questions(t, name)
			folder := filepath.Join(name, "vectors")
			if *rewrite {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				p := load(t, name, false)
				for question, v := range questions {
					answered := *v
					ask(t, p, &answered)
					text, err := json.Marshal(answered)
					if err != nil {
						t.Fatal(err)
					}
					var b strings.Builder
					readable(t, &b, text, "\n")
					if err := os.WriteFile(filepath.Join(folder, question+".json"), []byte(b.String()+"\n"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			files, err := filepath.Glob(filepath.Join(folder, "*.json"))
			if err != nil || len(files) != len(questions) {
				t.Fatalf("%d vectors (%v), want %d", len(files), err, len(questions))
			}
			used, interpreted := load(t, name, false), load(t, name, true)
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				d := json.NewDecoder(bytes.NewReader(text))
				d.DisallowUnknownFields()
				var want vector
				if err := d.Decode(&want); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				q := questions[strings.TrimSuffix(filepath.Base(file), ".json")]
				if q == nil || !reflect.DeepEqual(q.RemapInput, want.RemapInput) || !reflect.DeepEqual(q.SelectLayoutInput, want.SelectLayoutInput) || !reflect.DeepEqual(q.RouteInput, want.RouteInput) {
					t.Errorf("%s: the runtime asks another question", file)
				}
				for _, c := range []struct {
					how string
					p   *host.Policy
				}{{"a fresh instance", load(t, name, false)}, {"a used instance", used}, {"a used instance", used}, {"the interpreter", interpreted}} {
					got := vector{Hook: want.Hook, RemapInput: want.RemapInput, SelectLayoutInput: want.SelectLayoutInput, RouteInput: want.RouteInput}
					ask(t, c.p, &got)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s, in %s:\n%+v\nwant\n%+v", file, c.how, got, want)
					}
				}
			}
		})
	}
}

// The names, the manifests beside the sources and those in the modules are the
// same.
func TestManifests(t *testing.T) {
	names := policies.Names()
	if !reflect.DeepEqual(names, []string{"compat-vllm", "heads", "mla-spread", "pin", "rails", "seedbug"}) || len(policies.Digests()) != len(names) {
		t.Fatalf("built in are %v, with %d digests", names, len(policies.Digests()))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(name, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := module.ParseManifest(bytes.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		wasm, _ := policies.Get(name)
		got, err := module.ReadManifest(wasm)
		if err != nil || !reflect.DeepEqual(got, want) || got.Name != name {
			t.Errorf("%s: the module says %+v (%v), its manifest %+v", name, got, err, want)
		}
		if imports, err := module.Imports(wasm); err != nil || len(imports) > 0 {
			t.Errorf("%s imports %v (%v)", name, imports, err)
		}
		if bytes.Contains(wasm, []byte("policies/")) || bytes.Contains(wasm, []byte(".c\x00")) {
			t.Errorf("%s: the module holds a path of the machine that built it", name)
		}
	}
	if _, ok := policies.Get("../policies/heads"); ok {
		t.Error("a path was taken for a name")
	}
	if _, ok := policies.Get("absent"); ok {
		t.Error("a policy was found that is not there")
	}
}

// Whatever stands in a question, it is refused or answered, and never traps: a
// guest that reads past its input would. Questions are mangled and encoded again,
// as the host does: records have the size that they are known with.
func FuzzMangledQuestion(f *testing.F) {
	var all []*host.Policy
	for _, name := range policies.Names() {
		all = append(all, load(f, name, false))
	}
	table := written(f, "pairs: [{source: 'p*', destination: '*', layouts: {source: hnd, destination: hnd}, from: heads, transports: [tcp], rails: {source: [mlx5_0]}}]")
	asked := question()
	asked.Configuration = table
	q, err := asked.Input()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q.Encode(), uint8(0))
	f.Add(q.Encode()[:40], uint8(0))
	f.Add((&abi.RemapIn{}).Encode(), uint8(1))
	for seed := range uint64(4) { // states, classes, scales, shards of groups' own
		m := sample.New(seed + 40)
		r := policy.RemapQuestion{Pair: drawn(m), Configuration: table}
		drawSite(m, &r)
		in, err := r.Input()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(in.Encode(), uint8(1))
		way, err := drawRoute(m).Input()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(way.Encode(), uint8(2))
		// Ranks that are not there.
		for i := range in.Edges {
			in.Edges[i].SourceFrom, in.Edges[i].DestinationTo = 1<<31-1, 1<<32-1
		}
		in.Engines[0].Places = slices.Repeat([]abi.Place{{Host: "a", Domain: "b", Load: 99, Rails: []abi.Rail{{Name: "c", Load: 1 << 31}}}}, 40)
		way.Alternatives[0].Flows = append(way.Alternatives[0].Flows, abi.Flow{Source: 1<<32 - 1, Bytes: 1<<64 - 1}, abi.Flow{Destination: 1<<32 - 1})
		f.Add(in.Encode(), uint8(1))
		f.Add(way.Encode(), uint8(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, hook uint8) {
		for _, p := range all {
			var err error
			switch hook % 3 {
			case 0:
				q, no := abi.DecodeSelectLayoutIn(in)
				if no != nil {
					return
				}
				_, _, err = p.SelectLayout(context.Background(), q.Encode(), 1<<30)
			case 1:
				q, no := abi.DecodeRemapIn(in)
				if no != nil {
					return
				}
				_, err = p.Remap(context.Background(), q.Encode())
			default:
				q, no := abi.DecodeRouteIn(in)
				if no != nil {
					return
				}
				if !slices.Contains(p.Manifest().Hooks, "route") {
					continue
				}
				_, err = p.Route(context.Background(), q.Encode())
			}
			var refused *host.Refused
			var fault *host.Fault
			switch {
			case err == nil, errors.As(err, &refused), errors.Is(err, host.ErrFuel):
			case errors.As(err, &fault) && fault.Reason != "trapped": // more than an answer may hold, say
			default:
				t.Errorf("%s: error %v, want an answer or a refusal", p.Name(), err)
			}
		}
	})
}
