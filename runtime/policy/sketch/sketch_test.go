package sketch_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/sketch"
	"github.com/kvferry/kvferry/wasm/abi"
)

// first answers for a side that offers layouts: its first.
func first(string, int) (int, error) { return 0, nil }

// files are the pairs of the repository, by name.
func files(t testing.TB) map[string]*plan.Pair {
	t.Helper()
	names, err := filepath.Glob("../../../testdata/pairs/*.yaml")
	if err != nil || len(names) < 40 {
		t.Fatalf("%d pair files (%v)", len(names), err)
	}
	out := map[string]*plan.Pair{}
	for _, name := range names {
		pair, _, err := fixture.File(t, name).Pair(first)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = pair
	}
	return out
}

// proved reports whether assignments bring everything in a pair.
func proved(p *plan.Pair, as []plan.Assignment) error {
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err == nil {
		_, err = proof.Check(p, pl)
	}
	return err
}

// Every pair of the repository can be sketched, but for those whose question
// tells too little, which are named.
func TestPairs(t *testing.T) {
	for name, pair := range files(t) {
		in := policy.RemapInput(pair)
		q, err := sketch.Remap(in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := q.Pair.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Assignments that are proved in the pair are proved in its sketch, and those
// that are not, are not: neither layouts nor offsets matter to them.
func TestProofsAgree(t *testing.T) {
	n := uint64(400)
	if testing.Short() {
		n = 60
	}
	sketched, good, bad := 0, 0, 0
	for seed := range n {
		m := sample.New(seed)
		pair := m.Pair()
		in := policy.RemapInput(pair)
		q, err := sketch.Remap(in)
		if err != nil {
			var e *sketch.Error
			if !errors.As(err, &e) {
				t.Errorf("seed %d: error %v", seed, err)
			}
			continue
		}
		sketched++
		if !bytes.Equal(policy.RemapInput(q.Pair).Encode(), in.Encode()) {
			t.Errorf("seed %d: the sketch asks another question", seed)
		}
		as := m.Assign(pair)
		if m.Chance(40) && len(as) > 1 {
			as = as[1:] // a gap
		}
		a, b := proved(pair, as), proved(q.Pair, as)
		var layouts *build.Unaligned
		if errors.As(a, &layouts) {
			continue // of the real layouts, of which the question tells nothing
		}
		if (a == nil) != (b == nil) {
			t.Errorf("seed %d: the pair says %v, its sketch %v", seed, a, b)
		}
		if a == nil {
			good++
		} else {
			bad++
		}
	}
	t.Logf("%d of %d sketched, %d proved, %d not", sketched, n, good, bad)
	if sketched < int(n)*9/10 || good < sketched/3 || bad < sketched/10 {
		t.Errorf("%d of %d sketched, %d proved, %d not: the draw shows nothing", sketched, n, good, bad)
	}
}

// A question about a transfer is made again with all that it says.
func TestRoute(t *testing.T) {
	place := policy.Place{Host: "a", Domain: "d", NUMA: 2, Load: 3, Labels: map[string]string{"slot": "1"},
		Devices: []policy.Device{{ID: "GPU-0", Kind: policy.CUDAMemory, NUMA: 1}}, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 8}}}
	q := policy.RouteQuestion{
		Model: "m", Tokens: 4096, Cached: 16, Priority: 3, Deadline: 77e6, Lease: 12345e6,
		Source:        policy.Party{Name: "p", About: policy.About{Software: "vllm", Version: "1", Labels: map[string]string{"b": "1", "a": "2"}, Places: []policy.Place{place}}},
		Destination:   policy.Party{Name: "d", About: policy.About{Places: []policy.Place{place}}},
		Limits:        policy.Limits{Chunk: 1 << 20, Streams: 4, Integrity: policy.IntegritySample, Recompute: true},
		Providers:     []policy.Provider{{Name: "shm", Memory: []policy.Memory{policy.HostMemory, policy.OtherMemory}, OneSided: true, Strides: true, CRC: true, Piece: 64}, {Name: "tcp", PeerCPU: true, TLS: true}},
		Edges:         []policy.Edge{{Source: plan.Range{To: 1}, Destination: plan.Range{To: 1}, Providers: []int{0, 1}, Reach: policy.SameHost, Load: 2}},
		Alternatives:  [][]policy.Flow{{{Bytes: 1, Pieces: 1}}, {}},
		Previous:      &policy.Decision{Alternative: 1, Providers: []int{1}, Mode: policy.Staged, Rails: []policy.RailChoice{{Side: policy.Source}}},
		Configuration: []byte(`{"a":1}`),
	}
	in, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	got, err := sketch.Route(in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := got.Input()
	if err != nil || !bytes.Equal(again.Encode(), in.Encode()) {
		t.Errorf("%+v (%v)", got, err)
	}
	in.Engines = in.Engines[:1]
	if _, err := sketch.Route(in); err == nil {
		t.Error("a transfer of one engine")
	}
}

// Whatever bytes a question is, it is sketched or refused; what is sketched
// asks the same again.
func FuzzQuestion(f *testing.F) {
	for name, pair := range files(f) {
		if name == "seed.yaml" || name == "groups-gdn.yaml" || name == "groups-own-shard.yaml" || name == "heads-explicit.yaml" || name == "dcp-both.yaml" {
			f.Add(policy.RemapInput(pair).Encode(), false)
		}
	}
	in, err := (policy.RouteQuestion{Model: "m", Source: policy.Party{Name: "p"}, Alternatives: [][]policy.Flow{{}}}).Input()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(in.Encode(), true)
	f.Fuzz(func(t *testing.T, b []byte, route bool) {
		hook := "remap"
		if route {
			hook = "route"
		}
		q, err := sketch.Question(hook, b)
		if err != nil {
			return
		}
		var again []byte
		switch q := q.(type) {
		case *policy.RemapQuestion:
			if err := q.Pair.Validate(); err != nil {
				t.Fatalf("a pair that is none: %v", err)
			}
			in, err := q.Input()
			if err != nil {
				t.Fatal(err)
			}
			again = in.Encode()
			want, _ := abi.DecodeRemapIn(b)
			if !bytes.Equal(again, want.Encode()) {
				t.Error("another question")
			}
		case *policy.RouteQuestion:
			in, err := q.Input()
			if err != nil {
				t.Fatal(err)
			}
			again = in.Encode()
			want, _ := abi.DecodeRouteIn(b)
			if !bytes.Equal(again, want.Encode()) {
				t.Error("another question")
			}
		}
	})
}
