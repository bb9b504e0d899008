package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/wasm/abi"
)

// routeQuestion has two alternatives, three providers, of which tcp is
// configured with CRC and TLS, and rails at the source.
func routeQuestion() RouteQuestion {
	return RouteQuestion{
		Model:        "llama",
		Source:       Party{"prefill", About{Places: []Place{{Rails: []Rail{{Name: "mlx5_0"}, {Name: "mlx5_1"}}}, {Rails: []Rail{{Name: "mlx5_0"}}}}}},
		Destination:  Party{"decode", About{}},
		Tokens:       4096,
		Limits:       Limits{Chunk: 1 << 20, Streams: 4, Integrity: IntegritySample},
		Alternatives: [][]Flow{{{Source: 0, Destination: 0, Bytes: 10, Pieces: 1}}, {{Source: 1, Destination: 0, Bytes: 10, Pieces: 1}}},
		Providers:    []Provider{{Name: "shm"}, {Name: "tcp", CRC: true, TLS: true}, {Name: "ucx", CRC: true}},
		Edges: []Edge{
			{Source: plan.Range{From: 0, To: 1}, Destination: plan.Range{From: 0, To: 1}, Providers: []int{0, 1, 2}, Reach: SameHost, Load: 1},
			{Source: plan.Range{From: 1, To: 2}, Destination: plan.Range{From: 0, To: 1}, Providers: []int{1, 2}, Reach: OverNetwork, Load: 8},
		},
	}
}

func TestClamp(t *testing.T) {
	q := routeQuestion()
	for _, c := range []struct {
		name      string
		asked     Decision
		want      Decision
		recompute bool
		changes   []Clamped
	}{
		{name: "nothing said"},
		{name: "all within", asked: Decision{Alternative: 1, Providers: []int{2, 1}, Mode: Staged, Permute: Source, Chunk: MinChunk, Streams: 4, Priority: 8, Integrity: IntegrityFull, CRC: On, TLS: On, Rails: []RailChoice{{Source, 0, 1}}, Reason: "x"},
			want: Decision{Alternative: 1, Providers: []int{2, 1}, Mode: Staged, Permute: Source, Chunk: MinChunk, Streams: 4, Priority: 8, Integrity: IntegrityFull, CRC: On, TLS: On, Rails: []RailChoice{{Source, 0, 1}}, Reason: "x"}},
		{name: "a chunk below", asked: Decision{Chunk: 1}, want: Decision{Chunk: 64 << 10}, changes: []Clamped{{"chunk", int64(1), int64(64 << 10), "chunks have 65536 to 16777216 bytes"}}},
		{name: "a chunk above", asked: Decision{Chunk: 16<<20 + 1}, want: Decision{Chunk: 16 << 20}, changes: []Clamped{{"chunk", int64(16<<20 + 1), int64(16 << 20), "chunks have 65536 to 16777216 bytes"}}},
		{name: "the largest chunk", asked: Decision{Chunk: 16 << 20}, want: Decision{Chunk: 16 << 20}},
		{name: "more streams than configured", asked: Decision{Streams: 5}, want: Decision{Streams: 4}, changes: []Clamped{{"streams", 5, 4, "so many are configured"}}},
		{name: "beyond the first priority", asked: Decision{Priority: 9}, want: Decision{Priority: 8}, changes: []Clamped{{"priority", 9, 8, "priorities go from 1 to 8"}}},
		{name: "less integrity", asked: Decision{Integrity: IntegrityOff}, want: Decision{Integrity: IntegritySample}, changes: []Clamped{{"integrity", uint32(1), uint32(2), "no less than configured"}}},
		{name: "a transport named twice", asked: Decision{Providers: []int{2, 1, 2}}, want: Decision{Providers: []int{2, 1}}, changes: []Clamped{{"transports", []int{2, 1, 2}, []int{2, 1}, "each once"}}},
		{name: "no CRC, no TLS, any transport", asked: Decision{CRC: Off, TLS: Off}, changes: []Clamped{
			{"crc", "off", "as configured", "transport tcp is configured with it"}, {"tls", "off", "as configured", "transport tcp is configured with it"}}},
		{name: "no TLS where none has it", asked: Decision{Providers: []int{0, 2}, CRC: Off, TLS: Off}, want: Decision{Providers: []int{0, 2}, TLS: Off}, changes: []Clamped{
			{"crc", "off", "as configured", "transport ucx is configured with it"}}},
		{name: "neither where none has them", asked: Decision{Providers: []int{0}, CRC: Off, TLS: Off}, want: Decision{Providers: []int{0}, CRC: Off, TLS: Off}},
		{name: "recompute, which is not configured", asked: Decision{Recompute: true}, changes: []Clamped{{"recompute", true, false, "it is not configured for these engines"}}},
		{name: "recompute, as configured", asked: Decision{Recompute: true}, want: Decision{Recompute: true}, recompute: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := q
			q.Limits.Recompute = c.recompute
			before := slices.Clone(c.asked.Providers)
			got, changes := q.Clamp(c.asked)
			if !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(changes, c.changes) {
				t.Errorf("%+v, changes %v\nwant %+v, changes %v", got, changes, c.want, c.changes)
			}
			if again, more := q.Clamp(got); !reflect.DeepEqual(again, got) || more != nil {
				t.Errorf("clamped once more: %+v, %v", again, more)
			}
			if !slices.Equal(before, c.asked.Providers) {
				t.Error("what was asked has changed")
			}
		})
	}
	if s := (Clamped{"chunk", 1, 65536, "why"}).String(); s != "chunk: asked 1, given 65536: why" {
		t.Errorf("%q", s)
	}
}

// Whatever is answered, what comes out of Clamp is no less than configured, uses
// what is configured, and says so wherever it changed something.
func TestClampNeverWeakens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted, changed := 0, 0
	for range 20_000 {
		q := routeQuestion()
		q.Limits = Limits{Chunk: r.Int64N(1 << 25), Streams: r.IntN(6), Integrity: Integrity(r.IntN(4)), Recompute: r.IntN(2) == 0}
		for i := range q.Providers {
			q.Providers[i].CRC, q.Providers[i].TLS = r.IntN(2) == 0, r.IntN(2) == 0
		}
		record := abi.Decision{
			Alternative: uint32(r.IntN(2)), Mode: uint32(r.IntN(3)), Permute: uint32(r.IntN(3)), Chunk: uint32(r.IntN(2)) * (r.Uint32() >> r.IntN(32)), Streams: uint32(r.IntN(4)),
			Priority: uint32(r.IntN(10)), Integrity: uint32(r.IntN(4)), CRC: uint32(r.IntN(3)), TLS: uint32(r.IntN(3)), Recompute: uint32(r.IntN(2)),
		}
		for range r.IntN(4) {
			record.Transports = append(record.Transports, abi.Transport{Provider: uint32(r.IntN(3))})
		}
		asked, err := q.Accept(&abi.RouteOut{Decisions: []abi.Decision{record}})
		if err != nil {
			continue // shm alone does not reach rank 1
		}
		accepted++
		d, changes := q.Clamp(asked)
		if len(changes) > 0 {
			changed++
		}
		if (d.Chunk != 0 && (d.Chunk < MinChunk || d.Chunk > MaxChunk)) || d.Streams > max(q.Limits.Streams, 1) || d.Priority > MaxPriority || d.Integrity != 0 && d.Integrity < q.Limits.Integrity || d.Recompute && !q.Limits.Recompute {
			t.Fatalf("%+v within %+v", d, q.Limits)
		}
		for i, p := range q.Providers {
			if used := d.Providers == nil || slices.Contains(d.Providers, i); used && (p.CRC && d.CRC == Off || p.TLS && d.TLS == Off) {
				t.Fatalf("%+v switches off what %s is configured with", d, p.Name)
			}
		}
		for _, p := range d.Providers {
			if p < 0 || p >= len(q.Providers) {
				t.Fatalf("provider %d", p)
			}
		}
		if (len(changes) == 0) != reflect.DeepEqual(d, asked) {
			t.Fatalf("asked %+v, given %+v, said %v", asked, d, changes)
		}
	}
	if accepted < 15_000 || changed < 5_000 || changed > accepted*99/100 {
		t.Errorf("%d answers, %d of them changed: the draw shows nothing", accepted, changed)
	}
}
