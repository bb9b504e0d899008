package policies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/host"
)

// metered opens a policy and shows what each of its calls takes.
func metered(t testing.TB, name string, observe func(host.Call)) *policy.Policy {
	t.Helper()
	module, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	p, err := policy.Open(context.Background(), module, policy.Options{Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// large is a pair of engines as far as a remap looks at it, with nothing of how
// a cache lies in memory.
func large(source, destination int, model geometry.Model) *plan.Pair {
	p := &plan.Pair{}
	for i, s := range []*plan.Side{&p.Source, &p.Destination} {
		tp := []int{source, destination}[i]
		*s = plan.Side{Engine: []string{"prefill", "decode"}[i], Model: model, Groups: make([]plan.Pool, len(model.Groups)),
			Shard: shard.Spec{TP: tp, Stages: []int{model.Layers}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}},
			Ranks: make([][]*layout.Layout, tp)}
		for g := range s.Groups {
			s.Groups[g] = plan.Pool{Block: 16, Blocks: 64}
			if model.Groups[g].State {
				s.Groups[g].Block = 1
			}
		}
	}
	return p
}

// deep is a model of 128 layers.
func deep(heads int) geometry.Model {
	m := geometry.Model{Name: "deep", Layers: 128, Groups: []geometry.Group{{Name: "attention"}}}
	for l := range m.Layers {
		m.Groups[0].Layers = append(m.Groups[0].Layers, l)
	}
	for _, name := range []string{"k", "v"}[:1+min(heads, 1)] {
		m.Groups[0].Components = append(m.Groups[0].Components, geometry.Component{Name: name, Heads: heads, Dim: 128, DType: geometry.BF16})
	}
	return m
}

// crowded is a site whose ranks, of eight a host, each have two rails, with an
// edge of its own for each pair of hosts.
func crowded(q *policy.RemapQuestion) {
	places := func(side string, n int) policy.About {
		about := policy.About{Software: "vllm"}
		for r := range n {
			about.Places = append(about.Places, policy.Place{Host: fmt.Sprintf("%s-%d.rack-7.example", side, r/8), Domain: "nvl-" + side, NUMA: 1 + r%8/4, Load: policy.Load(1 + r%8),
				Devices: []policy.Device{{ID: fmt.Sprintf("GPU-%d", r), Kind: policy.CUDAMemory, NUMA: 1 + r%8/4}},
				Rails:   []policy.Rail{{Name: fmt.Sprintf("mlx5_%d", r%8), NUMA: 1, Gbits: 400, Load: policy.Load(1 + r%5)}, {Name: fmt.Sprintf("mlx5_%d", (r+4)%8), NUMA: 2, Gbits: 400, Load: 3}}})
		}
		return about
	}
	n, m := len(q.Pair.Source.Ranks), len(q.Pair.Destination.Ranks)
	q.Source, q.Destination = places("p", n), places("d", m)
	q.Providers = []policy.Provider{{Name: "tcp", Memory: []policy.Memory{policy.HostMemory, policy.CUDAMemory}, PeerCPU: true, Strides: true, CRC: true}, {Name: "nixl", Memory: []policy.Memory{policy.CUDAMemory}, OneSided: true}}
	for s := 0; s < n; s += 8 {
		for d := 0; d < m; d += 8 {
			q.Edges = append(q.Edges, policy.Edge{Source: plan.Range{From: s, To: min(s+8, n)}, Destination: plan.Range{From: d, To: min(d+8, m)}, Providers: []int{0, 1}, Reach: policy.OverNetwork, Load: policy.Load(1 + (s/8+d/8)%8)})
		}
	}
}

// routed is the question of a transfer by an answer to remap, with flows of the
// assignments' own sizes.
func routed(q policy.RemapQuestion, answer policy.Answer) policy.RouteQuestion {
	out := policy.RouteQuestion{
		Model: q.Pair.Source.Model.Name, Source: policy.Party{Name: q.Pair.Source.Engine, About: q.Source}, Destination: policy.Party{Name: q.Pair.Destination.Engine, About: q.Destination},
		Tokens: 4096, Limits: policy.Limits{Streams: 4}, Providers: q.Providers, Edges: q.Edges, Configuration: q.Configuration,
	}
	for _, as := range answer.Alternatives {
		bytes := map[[2]int]int64{}
		for _, a := range as {
			row := int64(0)
			for i, c := range q.Pair.Source.Model.Groups[a.Group].Components {
				if a.Components>>i&1 == 1 {
					row += int64(c.RowBits()) / 8
				}
			}
			bytes[[2]int{a.Destination, a.Source}] += row * int64(a.Heads.To-a.Heads.From) * int64(a.Layers.To-a.Layers.From) * 4096
		}
		var flows []policy.Flow
		for d := range q.Pair.Destination.Ranks {
			for s := range q.Pair.Source.Ranks {
				if n := bytes[[2]int{d, s}]; n > 0 {
					flows = append(flows, policy.Flow{Source: s, Destination: d, Bytes: n, Pieces: 1 + n>>20})
				}
			}
		}
		out.Alternatives = append(out.Alternatives, flows)
	}
	return out
}

// mixed is a hybrid of 128 layers: attention, a latent, and states of three
// kinds, which are matched each for itself.
func mixed() geometry.Model {
	m := deep(8)
	m.Groups[0].Layers, m.Groups = m.Groups[0].Layers[:32], append(m.Groups,
		geometry.Group{Name: "latent", Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.BF16}}},
		geometry.Group{Name: "states", State: true, Components: []geometry.Component{
			{Name: "x", Heads: 128, Dim: 3, DType: geometry.BF16}, {Name: "B", Heads: 64, Dim: 3, DType: geometry.BF16}, {Name: "ssm", Heads: 64, Dim: 128, DType: geometry.FP32},
		}})
	for l := 32; l < 128; l++ {
		m.Groups[1+l%2].Layers = append(m.Groups[1+l%2].Layers, l)
	}
	return m
}

// tables are configurations of pin: what heads does, and a row for a pair of
// engines after many for others.
func tables(t testing.TB, q policy.RemapQuestion) [][]byte {
	var rows strings.Builder
	for i := range 30 {
		fmt.Fprintf(&rows, "- {source: 'prefill-%d-*', destination: 'decode-*', from: heads, transports: [nixl, tcp], chunk: 1048576}\n", i)
	}
	n, k := len(q.Pair.Source.Ranks), len(q.Pair.Destination.Ranks)
	var from [][]int
	for d := range k {
		var own []int
		for s := range n {
			own = append(own, (d*n/k+s)%n)
		}
		from = append(from, own[:min(len(own), 8)])
	}
	return [][]byte{written(t, "pairs: [{source: prefill, destination: decode, from: heads}]"), written(t, fmt.Sprintf("pairs:\n%s- {source: '*', destination: '*', from: %s}\n", rows.String(), strings.ReplaceAll(fmt.Sprint(from), " ", ", ")))}
}

// Every policy answers about engines of 64 ranks each and 128 layers within its
// fuel, and so it does about their transfers. What the costliest takes is logged.
func TestLargePairsStayWithinFuel(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			spent, costliest := map[string]uint64{}, map[string]string{}
			asked := ""
			p := metered(t, name, func(c host.Call) {
				if c.Fuel > spent[c.Hook] {
					spent[c.Hook], costliest[c.Hook] = c.Fuel, asked
				}
			})
			ask := func(q policy.RemapQuestion) {
				answer, err := p.RemapFor(context.Background(), q)
				var declined *policy.Declined
				if err != nil && !errors.As(err, &declined) {
					t.Fatalf("%s: %v", asked, err)
				}
				if err != nil { // transfers are asked about all the same
					answer.Alternatives = [][]plan.Assignment{matchHeads(q.Pair)}
				}
				for len(answer.Alternatives) < policy.MaxAlternatives { // the most there can be
					answer.Alternatives = append(answer.Alternatives, answer.Alternatives[0])
				}
				if _, _, err := p.Route(context.Background(), routed(q, answer)); err != nil && !errors.As(err, &declined) {
					t.Fatalf("%s, route: %v", asked, err)
				}
			}
			for _, c := range []struct{ source, destination int }{{64, 64}, {64, 8}, {8, 64}, {64, 16}, {16, 64}, {1, 64}, {64, 1}, {32, 32}, {32, 64}, {128, 32}} {
				for kind, model := range map[string]geometry.Model{"a latent": deep(0), "8 heads": deep(8), "64 heads": deep(64), "128 heads": deep(128), "a hybrid": mixed()} {
					asked = fmt.Sprintf("%s, %d to %d ranks", kind, c.source, c.destination)
					q := policy.RemapQuestion{Pair: large(c.source, c.destination, model)}
					if q.Pair.Source.Shard.Validate(model) != nil || q.Pair.Destination.Shard.Validate(model) != nil {
						continue
					}
					crowded(&q)
					configurations := [][]byte{nil}
					if name == "pin" {
						configurations = tables(t, q)
					}
					for _, c := range configurations {
						q.Configuration = c
						ask(q)
					}
				}
			}
			for _, hook := range []string{"remap", "route"} {
				t.Logf("%s: at most %d of %d fuel (%s)", hook, spent[hook], uint64(host.DefaultFuel), costliest[hook])
				if spent[hook] == 0 && slices.Contains(p.Hooks(), hook) || spent[hook] > host.DefaultFuel*9/10 {
					t.Errorf("%s spent %d fuel: too little to be true, or too near the limit", hook, spent[hook])
				}
			}
		})
	}
}
