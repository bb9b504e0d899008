package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Everything that a question about a transfer says reaches the policy.
func TestRouteInput(t *testing.T) {
	q := routeQuestion()
	q.Source.Labels = map[string]string{"zone": "b", "rack": "7"}
	q.Source.Software, q.Source.Version = "vllm", "0.11"
	q.Source.Places[0] = Place{Host: "node-1", Domain: "nvl", NUMA: 2, Load: 3, Labels: map[string]string{"slot": "1"},
		Devices: []Device{{ID: "GPU-0", Kind: CUDAMemory, NUMA: 1}}, Rails: []Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 5}, {Name: "mlx5_1"}}}
	q.Providers[0] = Provider{Name: "shm", Memory: []Memory{HostMemory, OtherMemory}, OneSided: true, PeerCPU: true, Strides: true, Piece: 256}
	q.Cached, q.Priority, q.Deadline, q.Lease = 16, 3, 1800*time.Millisecond, time.Microsecond
	q.Limits.Recompute = true
	q.Configuration = []byte(`{"a":1}`)
	q.Previous = &Decision{Alternative: 1, Providers: []int{1}, Mode: Direct, Permute: Destination, Chunk: 1 << 20, Streams: 2, Priority: 1, Integrity: IntegrityFull, CRC: On, TLS: Off, Rails: []RailChoice{{Source, 0, 1}}, Recompute: true}
	q.Edges[0], q.Edges[1] = q.Edges[1], q.Edges[0] // the order does not matter
	got, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	want := &abi.RouteIn{
		Model: "llama", Tokens: 4096, Cached: 16, Priority: 3, Deadline: 1536, Lease: 1, Chunk: 1 << 20, Streams: 4, Integrity: abi.IntegritySample, Recompute: 1,
		Alternatives: []abi.Proven{
			{Bytes: 10, Pieces: 1, Flows: []abi.Flow{{Bytes: 10, Pieces: 1}}},
			{Bytes: 10, Pieces: 1, Flows: []abi.Flow{{Bytes: 10, Pieces: 1, Source: 1}}},
		},
		Engines: []abi.Engine{
			{Name: "prefill", Software: "vllm", Version: "0.11", Labels: []abi.Label{{Key: "rack", Value: "7"}, {Key: "zone", Value: "b"}}, Places: []abi.Place{
				{NUMA: 2, Load: 3, Host: "node-1", Domain: "nvl", Labels: []abi.Label{{Key: "slot", Value: "1"}}, Devices: []abi.Device{{ID: "GPU-0", Kind: abi.MemoryCuda, NUMA: 1}},
					Rails: []abi.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 5}, {Name: "mlx5_1"}}},
				{Rank: 1, Rails: []abi.Rail{{Name: "mlx5_0"}}},
			}},
			{Name: "decode"},
		},
		Providers: []abi.Provider{
			{Name: "shm", Memories: 1<<abi.MemoryHost | 1<<abi.MemoryOther, OneSided: 1, PeerCPU: 1, Strides: 1, CRC: abi.SwitchOff, TLS: abi.SwitchOff, Piece: 256},
			{Name: "tcp", CRC: abi.SwitchOn, TLS: abi.SwitchOn}, {Name: "ucx", CRC: abi.SwitchOn, TLS: abi.SwitchOff},
		},
		Edges: []abi.Edge{
			{Providers: 7, SourceTo: 1, DestinationTo: 1, Reach: abi.ReachHost, Load: 1},
			{Providers: 6, SourceFrom: 1, SourceTo: 2, DestinationTo: 1, Reach: abi.ReachNetwork, Load: 8},
		},
		Previous: []abi.Decision{{Alternative: 1, Mode: abi.ModeDirect, Permute: abi.RoleDestination, Chunk: 1 << 20, Streams: 2, Priority: 1, Integrity: abi.IntegrityFull, CRC: abi.SwitchOn, TLS: abi.SwitchOff, Recompute: 1,
			Transports: []abi.Transport{{Provider: 1}}, Rails: []abi.RailChoice{{Side: abi.RoleSource, Rail: 1}}}},
		Configuration: abi.Bytes(`{"a":1}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("input\n%+v\nwant\n%+v", got, want)
	}
	back, err := abi.DecodeRouteIn(got.Encode())
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("read back %+v (%v)", back, err)
	}
}

// Times are rounded down to two significant bits, and never to none.
func TestLeft(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, 3 * time.Millisecond: 3, 5 * time.Millisecond: 4, 7 * time.Millisecond: 6,
		1000 * time.Millisecond: 768, 1024 * time.Millisecond: 1024, 1535 * time.Millisecond: 1024, 1<<62 - 1: 1 << 31,
	} {
		if got := left(d); got != want {
			t.Errorf("%v: %d ms, want %d", d, got, want)
		}
	}
}

// Questions that cannot be asked name the field.
func TestSiteRefusals(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		field  string
		change func(q *RouteQuestion)
	}{
		{"model", func(q *RouteQuestion) { q.Model = long }},
		{"source.name", func(q *RouteQuestion) { q.Source.Name = "\xff" }},
		{"destination.software", func(q *RouteQuestion) { q.Destination.Software = long }},
		{"source.places[1].load", func(q *RouteQuestion) { q.Source.Places[1].Load = 9 }},
		{"source.places[0].numa", func(q *RouteQuestion) { q.Source.Places[0].NUMA = -1 }},
		{"source.places[0].rails[1].gbits", func(q *RouteQuestion) { q.Source.Places[0].Rails[1].Gbits = -1 }},
		{"source.places[0].devices[0].kind", func(q *RouteQuestion) { q.Source.Places[0].Devices = []Device{{}} }},
		{"source.places[0].labels.k", func(q *RouteQuestion) { q.Source.Places[0].Labels = map[string]string{"k": long} }},
		{"tokens", func(q *RouteQuestion) { q.Tokens = -1 }},
		{"cached", func(q *RouteQuestion) { q.Cached = 4097 }},
		{"priority", func(q *RouteQuestion) { q.Priority = 9 }},
		{"limits.integrity", func(q *RouteQuestion) { q.Limits.Integrity = 4 }},
		{"limits.streams", func(q *RouteQuestion) { q.Limits.Streams = -1 }},
		{"alternatives", func(q *RouteQuestion) { q.Alternatives = nil }},
		{"alternatives", func(q *RouteQuestion) { q.Alternatives = make([][]Flow, 9) }},
		{"alternatives[1].bytes", func(q *RouteQuestion) { q.Alternatives[1][0].Bytes = -1 }},
		{"providers", func(q *RouteQuestion) { q.Providers = make([]Provider, 65) }},
		{"providers[1].name", func(q *RouteQuestion) { q.Providers[1].Name = "shm" }},
		{"providers[2].memory", func(q *RouteQuestion) { q.Providers[2].Memory = []Memory{0} }},
		{"edges[0].providers", func(q *RouteQuestion) { q.Edges[0].Providers = []int{3} }},
		{"edges[1].reach", func(q *RouteQuestion) { q.Edges[1].Reach = 5 }},
		{"edges[1].source", func(q *RouteQuestion) { q.Edges[1].Source = plan.Range{From: 2, To: 2} }},
		{"edges[1].destination", func(q *RouteQuestion) { q.Edges[1].Destination = plan.Range{From: -1, To: 2} }},
		{"edges", func(q *RouteQuestion) { q.Edges[1].Source.From = 0 }},
		{"edges", func(q *RouteQuestion) { q.Edges = make([]Edge, MaxEdges+1) }},
		{"configuration", func(q *RouteQuestion) { q.Configuration = make([]byte, abi.MaxBytes+1) }},
		{"previous.alternative", func(q *RouteQuestion) { q.Previous = &Decision{Alternative: 2} }},
	} {
		q := routeQuestion()
		c.change(&q)
		_, err := q.Input()
		var e *QuestionError
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%s: error %v", c.field, err)
		}
	}
}

// An answer that names what the question does not have is the policy's fault
// and names the field.
func TestAcceptRefusals(t *testing.T) {
	for _, c := range []struct {
		field, why string
		change     func(d *abi.Decision)
	}{
		{"alternative", "0 to 1 are the alternatives of the question", func(d *abi.Decision) { d.Alternative = 2 }},
		{"mode", "0 to 2 are the numbers of enum mode", func(d *abi.Decision) { d.Mode = 3 }},
		{"permute", "0 to 2 are", func(d *abi.Decision) { d.Permute = 3 }},
		{"integrity", "0 to 3 are", func(d *abi.Decision) { d.Integrity = 1 << 31 }},
		{"crc", "0 to 2 are", func(d *abi.Decision) { d.CRC = 3 }},
		{"tls", "0 to 2 are", func(d *abi.Decision) { d.TLS = 3 }},
		{"recompute", "want 0 or 1", func(d *abi.Decision) { d.Recompute = 2 }},
		{"transport.provider", "the question has 3 providers", func(d *abi.Decision) { d.Transports = []abi.Transport{{Provider: 3}} }},
		{"rail_choice.side", "want source or destination", func(d *abi.Decision) { d.Rails = []abi.RailChoice{{}} }},
		{"rail_choice.rank", "the question has places of 2 ranks", func(d *abi.Decision) { d.Rails = []abi.RailChoice{{Side: 1, Rank: 2}} }},
		{"rail_choice.rank", "the question has places of 0 ranks", func(d *abi.Decision) { d.Rails = []abi.RailChoice{{Side: 2}} }},
		{"rail_choice.rail", "rank 1 has 1 rails", func(d *abi.Decision) { d.Rails = []abi.RailChoice{{Side: 1, Rank: 1, Rail: 1}} }},
		{"rail_choice.rank", "is bound twice", func(d *abi.Decision) { d.Rails = []abi.RailChoice{{Side: 1}, {Side: 1, Rail: 1}} }},
		{"transports", "none of them serves source rank 1 and destination rank 0", func(d *abi.Decision) { d.Alternative, d.Transports = 1, []abi.Transport{{Provider: 0}} }},
		// Recompute does not excuse it where it is not to be had.
		{"transports", "none of them serves", func(d *abi.Decision) {
			d.Alternative, d.Transports, d.Recompute = 1, []abi.Transport{{Provider: 0}}, 1
		}},
	} {
		d := abi.Decision{}
		c.change(&d)
		_, err := routeQuestion().Accept(&abi.RouteOut{Decisions: []abi.Decision{d}})
		var e *DecisionError
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Reason, c.why) {
			t.Errorf("%s: error %v, want %q", c.field, err, c.why)
		}
	}
	// What is within comes back whole.
	previous := Decision{Alternative: 0, Providers: []int{0}, Mode: Direct, Permute: Source, Chunk: 5, Streams: 9, Priority: 10, Integrity: IntegrityOff, CRC: On, TLS: On, Rails: []RailChoice{{Source, 1, 0}}, Recompute: true}
	got, err := routeQuestion().Accept(&abi.RouteOut{Decisions: []abi.Decision{previous.record()}, Reason: "a\nb"})
	previous.Reason = `a\u000ab`
	if err != nil || !reflect.DeepEqual(got, previous) {
		t.Errorf("%+v (%v), want %+v", got, err, previous)
	}
}

// A policy without the hook leaves all to the host, and says so.
func TestRouteWithoutTheHook(t *testing.T) {
	d, changes, err := open(t, "heads").Route(ctx, routeQuestion())
	if want := (Decision{Reason: "policy heads has no route: as configured"}); err != nil || changes != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v, %v", d, changes, err)
	}
}

// A question about a pair of which nothing more is known is that of RemapInput,
// and where all is known it has all.
func TestRemapQuestion(t *testing.T) {
	a, b := engine("prefill", 2, hnd), engine("decode", 4, nhd)
	source, err := a.Candidates[0].side(a)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := b.Candidates[0].side(b)
	if err != nil {
		t.Fatal(err)
	}
	pair := &plan.Pair{Source: source, Destination: destination}
	bare, err := RemapQuestion{Pair: pair}.Input()
	if err != nil || !reflect.DeepEqual(bare, RemapInput(pair)) {
		t.Errorf("%+v (%v)", bare, err)
	}
	p := open(t, "heads")
	answer, err := p.Remap(ctx, pair)
	if err != nil {
		t.Fatal(err)
	}
	r := routeQuestion()
	q := RemapQuestion{Pair: pair, Source: About{Software: "vllm", Places: make([]Place, 2)}, Destination: About{Labels: map[string]string{"zone": "b"}},
		Providers: r.Providers, Edges: r.Edges, Previous: answer.Alternatives, Configuration: []byte("{}")}
	in, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	if in.Engines[0].Name != "prefill" || in.Engines[0].Software != "vllm" || len(in.Engines[0].Places) != 2 || in.Engines[1].Labels[0].Value != "b" || len(in.Providers) != 3 || len(in.Edges) != 2 || string(in.Configuration) != "{}" {
		t.Errorf("%+v", in)
	}
	back, err := assignments(pair, &abi.RemapOut{Alternatives: in.Previous})
	if err != nil || !reflect.DeepEqual(back.Alternatives, answer.Alternatives) {
		t.Errorf("previous %+v (%v), want %+v", back.Alternatives, err, answer.Alternatives)
	}
	again, err := p.RemapFor(ctx, q)
	if err != nil || !reflect.DeepEqual(again.Alternatives, answer.Alternatives) {
		t.Errorf("%+v (%v), want %+v", again, err, answer)
	}
	for _, c := range []struct {
		field  string
		change func(q *RemapQuestion)
	}{
		{"source.places", func(q *RemapQuestion) { q.Source.Places = q.Source.Places[:1] }},
		{"edges[1].source", func(q *RemapQuestion) { q.Edges = append([]Edge(nil), q.Edges...); q.Edges[1].Source.To = 3 }},
		{"previous", func(q *RemapQuestion) { q.Previous = make([][]plan.Assignment, 9) }},
		{"previous[0]", func(q *RemapQuestion) { q.Previous = [][]plan.Assignment{{{Destination: 9}}} }},
	} {
		bad := q
		c.change(&bad)
		_, err := p.RemapFor(ctx, bad)
		var e *QuestionError
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%s: error %v", c.field, err)
		}
	}
}

// The flows of a proved plan add up to what the pair costs.
func TestFlowsOf(t *testing.T) {
	a, b := engine("prefill", 2, hnd), engine("decode", 4, nhd)
	source, err := a.Candidates[0].side(a)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := b.Candidates[0].side(b)
	if err != nil {
		t.Fatal(err)
	}
	pair := &plan.Pair{Source: source, Destination: destination}
	answer, err := open(t, "heads").Remap(ctx, pair)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := build.Build(pair, answer.Alternatives[0], nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(pair, pl); err != nil {
		t.Fatal(err)
	}
	cost, err := build.CostOf(pair, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	var sum build.Cost
	for d, f := range FlowsOf(pair, pl) {
		if f.Destination != d || f.Source != d/2 || f.Bytes == 0 || f.Pieces == 0 {
			t.Errorf("flow %d: %+v", d, f)
		}
		sum.Bytes += f.Bytes
		sum.Pieces += f.Pieces
	}
	if sum != cost {
		t.Errorf("flows of %+v, the pair costs %+v", sum, cost)
	}
}
