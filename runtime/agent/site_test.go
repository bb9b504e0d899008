package agent_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/locality"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/transport"
)

// at says where a node runs.
func at(machine, process, host string, numa int) option {
	return func(c *agent.Config, _ *agent.EngineSpec) {
		c.Here = &locality.Locality{Machine: machine, Process: process, Host: host, NUMA: numa}
	}
}

// Everything that operators and engines say, and what is found out, reaches the
// policy of the destination; what nobody knows stays unknown.
func TestPolicyIsToldWhatIsKnown(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	s := r.node(t, "a", &p.Source, nil, at("m1", "p1", "node-1", 2), also(t, "tcp"), func(_ *agent.Config, e *agent.EngineSpec) {
		e.About = policy.About{Software: "vllm", Version: "0.11", Labels: map[string]string{"zone": "b"}, Places: []policy.Place{
			{Host: "told", Domain: "nvl", NUMA: 1, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400}}, Labels: map[string]string{"slot": "1"}}, {}}}
	})
	d := r.node(t, "b", &p.Destination, nil, at("m2", "p2", "node-2", 0), also(t, "shm", "tcp"), func(c *agent.Config, e *agent.EngineSpec) {
		e.About = policy.About{Software: "sglang", Labels: map[string]string{"zone": "c"}}
		c.Configurations = map[string][]byte{"heads-double": []byte("b: 2\na: [1, x]\n"), "other": []byte("c: 3")}
	})
	peer := d.dial(transport.Destination, s)
	if len(d.policy.asked) != 1 || len(s.policy.asked) != 0 {
		t.Fatalf("asked %d and %d times", len(d.policy.asked), len(s.policy.asked))
	}
	q := d.policy.asked[0]
	want := policy.RemapQuestion{Pair: q.Pair,
		Source: policy.About{Software: "vllm", Version: "0.11", Labels: map[string]string{"zone": "b"}, Places: []policy.Place{
			{Host: "told", Domain: "nvl", NUMA: 1, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400}}, Labels: map[string]string{"slot": "1"}}, {Host: "node-1", NUMA: 2}}},
		Destination: policy.About{Software: "sglang", Labels: map[string]string{"zone": "c"}, Places: []policy.Place{
			{Host: "node-2", Load: 1}, {Host: "node-2", Load: 1}, {Host: "node-2", Load: 1}, {Host: "node-2", Load: 1}}},
		Providers: []policy.Provider{
			{Name: "loop", Memory: []policy.Memory{policy.HostMemory}, OneSided: true, Strides: true, Piece: 256},
			{Name: "shm", Memory: []policy.Memory{policy.HostMemory}, OneSided: true, PeerCPU: true, Strides: true, Piece: 256},
			{Name: "tcp", Memory: []policy.Memory{policy.HostMemory}, PeerCPU: true, Strides: true, CRC: true, Piece: 2 << 10}},
		Edges:         []policy.Edge{{Source: plan.Range{To: 2}, Destination: plan.Range{To: 4}, Providers: []int{0, 2}, Reach: policy.OverNetwork, Load: 1}},
		Configuration: []byte(`{"a":[1,"x"],"b":2}`),
	}
	if !reflect.DeepEqual(q, want) {
		t.Errorf("asked\n%+v\nwant\n%+v", q, want)
	}
	if _, err := q.Input(); err != nil {
		t.Error(err)
	}
	// By the time that it is asked again, the source has told its loads.
	if err := peer.Replan(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := d.policy.asked[1]
	if len(again.Previous) != 1 || !reflect.DeepEqual(again.Previous[0], peer.Plans().Alternatives[0].Assignments) {
		t.Errorf("previous: %d alternatives", len(again.Previous))
	}
}

// How near two ranks are is said as far as it is known, rank by rank.
func TestEdges(t *testing.T) {
	place := func(hosts ...string) option {
		return func(_ *agent.Config, e *agent.EngineSpec) {
			for _, h := range hosts {
				host, domain, _ := strings.Cut(h, " ")
				e.About.Places = append(e.About.Places, policy.Place{Host: host, Domain: domain})
			}
		}
	}
	nowhere := at("", "", "", 0)
	edge := func(sf, st, df, dt int, reach policy.Reach) policy.Edge {
		return policy.Edge{Source: plan.Range{From: sf, To: st}, Destination: plan.Range{From: df, To: dt}, Providers: []int{0}, Reach: reach, Load: 1}
	}
	for _, c := range []struct {
		name string
		s, d []option
		want []policy.Edge
	}{
		{"one process", []option{at("m", "p", "h", 0)}, []option{at("m", "p", "h", 0)}, []policy.Edge{edge(0, 2, 0, 4, policy.SameProcess)}},
		{"one kernel", []option{at("m", "p", "h", 0)}, []option{at("m", "q", "i", 0)}, []policy.Edge{edge(0, 2, 0, 4, policy.SameHost)}},
		{"nothing is known", []option{nowhere}, []option{nowhere}, []policy.Edge{edge(0, 2, 0, 4, 0)}},
		{"told by rank", []option{nowhere, place("x d1", "y d2")}, []option{nowhere, place("x", "z d1", "z d2", "y")}, []policy.Edge{
			edge(0, 1, 0, 1, policy.SameHost), edge(0, 1, 1, 2, policy.SameDomain), edge(0, 1, 2, 4, policy.OverNetwork),
			edge(1, 2, 0, 2, policy.OverNetwork), edge(1, 2, 2, 3, policy.SameDomain), edge(1, 2, 3, 4, policy.SameHost)}},
	} {
		var r rig
		p := parsePair(t, tp2, tp4)
		s, d := r.node(t, "a", &p.Source, nil, c.s...), r.node(t, "b", &p.Destination, nil, c.d...)
		d.dial(transport.Destination, s)
		if got := d.policy.asked[0].Edges; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestBadAbouts(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	for _, about := range []policy.About{
		{Places: []policy.Place{{}}},
		{Software: strings.Repeat("v", 200)},
		{Places: []policy.Place{{}, {Load: 9}}},
	} {
		other := p.Source
		other.Engine = "prefill-3"
		_, err := r.register(t, "bad", &other, nil, r.provider(t), nil, func(_ *agent.Config, e *agent.EngineSpec) { e.About = about })
		var q *policy.QuestionError
		if !errors.As(err, &q) || blame.Of(err) != blame.Local {
			t.Errorf("%+v: %v", about, err)
		}
	}
	spare := r.provider(t)
	defer spare.Close()
	for name, text := range map[string]string{"not YAML": "{", "two": "a: 1\na: 2"} {
		_, err := agent.New(agent.Config{Name: "x", Providers: []transport.Provider{spare}, Configurations: map[string][]byte{"heads": []byte(text)}})
		if err == nil || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), "configuration of policy heads") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Alternatives that are not proved are left out, counted and told to the policy;
// none at all is a refusal.
func TestAlternatives(t *testing.T) {
	one, _ := session.Prove(parsePair(t, tp8, tp2), [][]plan.Assignment{assign(parsePair(t, tp8, tp2), replica(0))}, plan.DefaultBudget())
	enough := plan.Budget{Runs: len(one[0].Proven.Plan().Runs), Pieces: 64, Bytes: 1 << 20} // for one
	for _, c := range []struct {
		name     string
		picks    []func(int, []int) int
		budget   plan.Budget // of the source
		proved   int
		unproved int
		refused  string
	}{
		{name: "both", picks: []func(int, []int) int{replica(0), replica(1)}, proved: 2},
		{name: "one that leaves gaps", picks: []func(int, []int) int{func(d int, holders []int) int { return 7 - holders[0] }, replica(1)}, proved: 1, unproved: 1},
		{name: "one that the source cannot take", picks: []func(int, []int) int{replica(0), replica(1)}, budget: enough, proved: 1, unproved: 1},
		{name: "none", picks: []func(int, []int) int{func(d int, holders []int) int { return 7 - holders[0] }}, unproved: 1, refused: "gap"},
	} {
		var r rig
		p := parsePair(t, tp8, tp2)
		s := r.node(t, "a", &p.Source, nil, func(cfg *agent.Config, _ *agent.EngineSpec) { cfg.Budget = c.budget })
		d := r.node(t, "b", &p.Destination, nil)
		d.policy.picks = c.picks
		peer, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) || blame.Of(err) != blame.Policy || len(d.policy.judged) != 1 || d.policy.judged[0] == nil {
				t.Errorf("%s: %v, judged %v", c.name, err, d.policy.judged)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		plans := peer.Plans()
		if len(plans.Alternatives) != c.proved || len(plans.Unproved) != c.unproved {
			t.Errorf("%s: %d proved, %v", c.name, len(plans.Alternatives), plans.Unproved)
		}
		if n := d.Counts(); n.Unproved != int64(c.unproved) || n.Remaps != 1 {
			t.Errorf("%s: counted %+v", c.name, n)
		}
		if len(d.policy.judged) != 1 || (d.policy.judged[0] == nil) != (c.unproved == 0) {
			t.Errorf("%s: judged %v", c.name, d.policy.judged)
		}
		var back *agent.Peer
		wait(t, "the peer", func(ctx context.Context) (err error) { back, err = s.engine.Peer(ctx, "decode"); return err })
		for i, a := range back.Plans().Alternatives {
			if a.Proven.Digest() != plans.Alternatives[i].Proven.Digest() {
				t.Errorf("%s: plan %d differs", c.name, i)
			}
		}
		result, err := once(t, s, d, peer, 1, nil)
		if err != nil || result.Route.Proved != c.proved || result.Route.Alternative != plans.Alternatives[0].Index {
			t.Errorf("%s: %+v, %v", c.name, result.Route, err)
		}
	}
}

// All agents of an engine that connects get one answer, whatever became of
// loads meanwhile.
func TestOneAnswerForAllAgents(t *testing.T) {
	p := parsePair(t, tp8, tp2)
	var r rig
	key := option(func(c *agent.Config, s *agent.EngineSpec) { s.Key = bytes.Repeat([]byte{5}, 32) })
	s := []*node{r.node(t, "a0", &p.Source, []int{0, 2, 4, 6}, key), r.node(t, "a1", &p.Source, []int{1, 3, 5, 7}, key)}
	d := r.node(t, "b", &p.Destination, nil)
	for _, n := range s {
		n.dial(transport.Source, d)
	}
	var peer *agent.Peer
	wait(t, "the peer", func(ctx context.Context) (err error) { peer, err = d.engine.Peer(ctx, "prefill"); return err })
	if d.policy.calls != 1 || len(d.policy.judged) != 1 {
		t.Errorf("asked %d times, judged %d times", d.policy.calls, len(d.policy.judged))
	}
	if err := peer.Replan(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Now both agents are known.
	if q := d.policy.asked[1]; len(q.Edges) < 2 || q.Source.Places[1].Host == "" || q.Source.Places[0].Host == "" {
		t.Errorf("asked again about %+v, %+v", q.Source.Places, q.Edges)
	}
}
