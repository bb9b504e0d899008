package conformance

import (
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// benchmarks are shapes of the 80-layer reference case, with fewer layers.
var benchmarks = []pairCase{
	shape("pieces-64KiB", "block component head token dim", "block component head token dim", 256),
	shape("pieces-8KiB", "block component head token dim", "block component head token dim", 16),
	shape("pieces-512B", "block component token head dim", "block component token head dim", 16),
	shape("pieces-256B", "block component token head dim", "block component head token dim", 16),
}

func shape(name, source, destination string, block int) pairCase {
	const tokens = 4096
	return pairCase{name, 24, kv(24, 4, 128),
		engine{name: "prefill", tp: 1, order: source, block: block, blocks: tokens / block},
		engine{name: "decode", tp: 2, order: destination, block: block, blocks: tokens / block}, tokens}
}

// Benchmark moves requests with random block tables through the provider and,
// turn about, copies the same pieces from and to the same memory with a plain
// loop of copy(). x-copy is how many times as fast as that the provider is, in
// processor time of the whole process: neighbours on the machine disturb both
// alike.
func Benchmark(b *testing.B, harness func(b *testing.B) Harness) {
	for _, c := range benchmarks {
		w := open(b, harness(b), c)
		w.source.set(1)
		w.destination.set(0)
		src, dst := w.source.alloc(b, c.tokens), w.destination.alloc(b, c.tokens)
		edge := stamp.EdgeKey{Source: w.proven.Plan().Edges[0].Source, Destination: w.proven.Plan().Edges[0].Destination}
		x := transferCase{direction: transport.Read, source: src, destination: dst, to: c.tokens, edges: []stamp.EdgeKey{edge}}
		op, err := w.grant(x)
		if err != nil {
			b.Fatal(err)
		}
		s, err := stamp.New(w.proven)
		if err != nil {
			b.Fatal(err)
		}
		req := stamp.Request{Plan: w.digest, Source: src, Destination: dst, To: c.tokens, Edges: x.edges}
		bytes, _, err := s.Totals(&req, edge)
		if err != nil {
			b.Fatal(err)
		}
		type piece struct {
			source, destination []byte
		}
		var pieces []piece
		from, to := w.source.memory()[edge.Source][0], w.destination.memory()[edge.Destination][0]
		var cursor stamp.Cursor
		if err := s.Cursor(&req, edge, &cursor); err != nil {
			b.Fatal(err)
		}
		for seg := (stamp.Segment{}); cursor.Next(&seg); {
			n := seg.Run.Bytes * max(seg.Blocks, 1)
			for k := range seg.Run.Pieces() {
				o, d := seg.SourceOffset, seg.DestinationOffset
				for i := len(seg.Run.Loops) - 1; i >= 0; i-- {
					l := seg.Run.Loops[i]
					o += k % l.Count * l.SourceStride
					d += k % l.Count * l.DestinationStride
					k /= l.Count
				}
				pieces = append(pieces, piece{from[seg.Run.SourceRegion][o : o+n], to[seg.Run.DestinationRegion][d : d+n]})
			}
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(2 * bytes)
			p := w.destination.provider
			var done [1]transport.Completion
			var ours, plain time.Duration
			for b.Loop() {
				began := processorTime(b)
				op.Deadline = time.Now().Add(time.Minute)
				if _, err := p.Submit(op); err != nil {
					b.Fatal(err)
				}
				for p.Poll(done[:]) == 0 {
					<-p.Ready()
				}
				if done[0].Err != nil {
					b.Fatal(done[0].Err)
				}
				between := processorTime(b)
				for i := range pieces {
					copy(pieces[i].destination, pieces[i].source)
				}
				ours += between - began
				plain += processorTime(b) - between
			}
			b.ReportMetric(float64(plain)/float64(ours), "x-copy")
		})
		w.close()
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
