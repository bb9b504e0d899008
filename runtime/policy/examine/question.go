package examine

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
)

// Pairs of the repository's that between them hold what pairs can: heads that
// are split, joined, copied and listed, latents, uneven stages, tokens dealt
// over ranks, and groups of every kind.
//
//go:embed pairs/*.yaml
var files embed.FS

// question is one that a policy is asked, encoded once.
type question struct {
	name string // "remap seed"
	hook string
	in   []byte

	candidates int                   // select_layout: how many there are
	remap      *policy.RemapQuestion // what an answer is proved against; nil: the question cannot tell
	route      *policy.RouteQuestion // what a decision is compared with; nil likewise
	want       *Vector               // what has to be answered; nil: anything that is sound
}

// few are the pairs that are asked about where a policy is loaded: one of each
// kind, all small.
func few() []string {
	return []string{"can", "dcp-both", "groups-gdn", "replicas-both", "seed", "vllm-mla-p8-d2"}
}

// questions are the general ones, in their order. They depend on nothing but the
// operator's configuration and on whether all are wanted.
//
// Errors: those of a configuration that no question can hold.
func questions(configuration []byte, all bool) ([]question, error) {
	entries, err := files.ReadDir("pairs")
	if err != nil {
		panic("examine: the embedded pairs cannot be read: " + err.Error())
	}
	var out []question
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".yaml")
		if !all && !slices.Contains(few(), name) {
			continue
		}
		text, err := files.ReadFile(path.Join("pairs", e.Name()))
		if err != nil {
			panic("examine: an embedded pair cannot be read: " + err.Error())
		}
		f, err := pairfile.Parse(e.Name(), text)
		if err != nil {
			panic("examine: " + err.Error())
		}
		some, err := about(name, f, configuration)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	routes, err := transfers(configuration)
	if err != nil {
		return nil, err
	}
	return append(out, routes...), nil
}

// about is what there is to ask about a pair file. A side that offers layouts
// has the first of them in the question about assignments, whatever the policy
// says, so that all policies are asked the same.
func about(name string, f *pairfile.File, configuration []byte) ([]question, error) {
	var out []question
	for _, of := range decision.Offers(f) {
		q := decision.Question(f, of, nil)
		q.Configuration = configuration
		in, err := q.Input()
		if err != nil {
			return nil, fmt.Errorf("ask about %s: %w", name, err)
		}
		out = append(out, question{name: fmt.Sprintf("select_layout %s %s", name, of.Name(f)), hook: "select_layout", in: in.Encode(), candidates: len(q.Engine.Candidates)})
	}
	pair, _, err := f.Pair(func(string, int) (int, error) { return 0, nil })
	if err != nil {
		panic("examine: " + err.Error())
	}
	asked := []policy.RemapQuestion{{Pair: pair, Configuration: configuration}}
	if name == "seed" {
		asked = append(asked, sited(pair, configuration))
	}
	for i := range asked {
		in, err := asked[i].Input()
		if err != nil {
			return nil, fmt.Errorf("ask about %s: %w", name, err)
		}
		q := question{name: "remap " + name, hook: "remap", in: in.Encode(), remap: &asked[i]}
		if i > 0 {
			q.name += " on two hosts"
		}
		out = append(out, q)
	}
	return out, nil
}

// sited asks about a pair with all that can be known of where its engines run:
// two hosts, two nodes and two rails each, one of the rails busy.
func sited(pair *plan.Pair, configuration []byte) policy.RemapQuestion {
	q := policy.RemapQuestion{
		Pair:        pair,
		Source:      policy.About{Software: "vllm", Version: "0.11.0", Labels: map[string]string{"zone": "b"}},
		Destination: policy.About{Software: "sglang"},
		Providers: []policy.Provider{
			{Name: "shm", Memory: []policy.Memory{policy.HostMemory}, OneSided: true, PeerCPU: true, Strides: true, Piece: 256},
			{Name: "tcp", Memory: []policy.Memory{policy.HostMemory, policy.CUDAMemory}, PeerCPU: true, CRC: true, TLS: true, Piece: 2048},
		},
		Configuration: configuration,
	}
	for i, side := range []*plan.Side{&pair.Source, &pair.Destination} {
		to := &q.Source
		if i == 1 {
			to = &q.Destination
		}
		for r := range side.Ranks {
			numa := 1 + r%2
			to.Places = append(to.Places, policy.Place{
				Host: fmt.Sprintf("node-%d", 1+i), Domain: "nvl-3", NUMA: numa, Load: policy.Load(1 + 3*r%policy.MaxLoad),
				Devices: []policy.Device{{ID: fmt.Sprintf("GPU-%d", r), Kind: policy.CUDAMemory, NUMA: numa}},
				Rails:   []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 1}, {Name: "mlx5_1", NUMA: 2, Gbits: 400, Load: policy.MaxLoad}},
			})
		}
	}
	source, destination := len(pair.Source.Ranks), len(pair.Destination.Ranks)
	q.Edges = []policy.Edge{
		{Source: plan.Range{To: 1}, Destination: plan.Range{To: destination}, Providers: []int{0, 1}, Reach: policy.SameDomain, Load: 2},
		{Source: plan.Range{From: 1, To: source}, Destination: plan.Range{To: destination}, Providers: []int{1}, Reach: policy.OverNetwork, Load: 5},
	}
	return q
}

// transfers are the questions about transfers: of one alternative and nothing
// known, and of two alternatives where the ranks of the first are busy.
func transfers(configuration []byte) ([]question, error) {
	flow := func(source, destination int) policy.Flow {
		return policy.Flow{Source: source, Destination: destination, Bytes: 1 << 25, Pieces: 1 << 12}
	}
	plain := policy.RouteQuestion{
		Model: "llama-70b", Tokens: 4096, Source: policy.Party{Name: "prefill"}, Destination: policy.Party{Name: "decode"}, Configuration: configuration,
		Alternatives: [][]policy.Flow{{flow(0, 0), flow(1, 1)}},
	}
	busy := plain
	busy.Cached, busy.Priority, busy.Deadline, busy.Lease = 512, 5, 800e6, 30e9
	busy.Alternatives = [][]policy.Flow{{flow(0, 0), flow(2, 1)}, {flow(1, 0), flow(2, 1)}}
	busy.Limits = policy.Limits{Chunk: 1 << 20, Streams: 4, Integrity: policy.IntegritySample, Recompute: true}
	busy.Providers = []policy.Provider{{Name: "shm", Memory: []policy.Memory{policy.HostMemory}, OneSided: true}, {Name: "tcp", Memory: []policy.Memory{policy.HostMemory}, PeerCPU: true, CRC: true}}
	busy.Edges = []policy.Edge{{Source: plan.Range{To: 3}, Destination: plan.Range{To: 2}, Providers: []int{0, 1}, Reach: policy.SameHost, Load: 3}}
	for r, load := range []policy.Load{policy.MaxLoad, 2, 1} {
		busy.Source.Places = append(busy.Source.Places, policy.Place{Host: "node-1", NUMA: 1 + r%2, Load: load, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: load}, {Name: "mlx5_1", NUMA: 2, Gbits: 400, Load: 1}}})
	}
	for range 2 {
		busy.Destination.Places = append(busy.Destination.Places, policy.Place{Host: "node-1", NUMA: 1, Load: 1})
	}
	again := busy
	again.Previous = &policy.Decision{Alternative: 1, Providers: []int{1}, Mode: policy.Staged}
	var out []question
	for _, c := range []struct {
		name string
		q    policy.RouteQuestion
	}{{"route one way", plain}, {"route where the first way is busy", busy}, {"route after the second way", again}} {
		in, err := c.q.Input()
		if err != nil {
			return nil, fmt.Errorf("ask about a transfer: %w", err)
		}
		out = append(out, question{name: c.name, hook: "route", in: in.Encode(), route: &c.q})
	}
	return out, nil
}
