package agent_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
)

// latent is a cache without heads, of which every source rank has all: 16 KiB a
// token.
func latent(t testing.TB) *plan.Pair {
	t.Helper()
	return parseText(t, `
kvferry: pair/1
model:
  name: mla
  layers: 4
  identity: {weights: "sha256:aa"}
  components:
    - {name: c, heads: 0, dim: 1024, dtype: fp32}
source: {engine: prefill, shard: {tp: 2}, block: 16, blocks: 224, layout: {order: [block, token, dim]}}
destination: {engine: decode, shard: {tp: 1}, block: 16, blocks: 192, layout: {order: [block, token, dim]}}
`)
}

// spread is the built-in policy that reads by load, and what it decided.
type spread struct {
	*policy.Policy
	mu   sync.Mutex
	from []int // source ranks, a route each
}

// spreading opens one for the consumers of a test.
func spreading(t testing.TB) *spread {
	t.Helper()
	wasm, ok := policies.Get("mla-spread")
	if !ok {
		t.Fatal("mla-spread is not built in")
	}
	p, err := policy.Open(t.Context(), wasm, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &spread{Policy: p}
}

func (s *spread) Route(ctx context.Context, q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
	d, clamped, err := s.Policy.Route(ctx, q)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.from = append(s.from, q.Alternatives[d.Alternative][0].Source)
	}
	return d, clamped, err
}

func (s *spread) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.from)
}

// hurried is a clock for which time passes ten times as fast.
type hurried struct{ begun time.Time }

const hurry = 10

func (h hurried) Now() time.Time { return h.begun.Add(hurry * time.Since(h.begun)) }

func (h hurried) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d/hurry, f).Stop
}

// Reads of a cache that every source rank has go to the rank that is less busy,
// also where it is other consumers that keep the first one busy: how busy ranks
// are travels with the beats.
func TestReadsSpreadByLoad(t *testing.T) {
	for _, name := range []string{"loop", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig{open: providers[name]}
			clock := hurried{time.Now()}
			quick := option(func(c *agent.Config, _ *agent.EngineSpec) { c.Clock = clock })
			p := latent(t)
			s := r.node(t, "a", &p.Source, nil, quick)
			var consumers []*node
			var peers []*agent.Peer
			var deciders []*spread
			for i := range 3 {
				side := p.Destination
				side.Engine = fmt.Sprint("decode-", i)
				decider := spreading(t)
				d := r.node(t, side.Engine, &side, nil, quick, func(c *agent.Config, _ *agent.EngineSpec) { c.Policy = decider })
				consumers, peers, deciders = append(consumers, d), append(peers, d.dial(transport.Destination, s)), append(deciders, decider)
			}
			// Requests that do not end: what is offered is not written yet.
			const tokens = 512 // 8 MiB
			var ends []func()
			begin := func(i int) {
				o := offer(t, s, agent.Offer{Request: fmt.Sprint("r", len(ends)), Tables: s.table(tokens), Tokens: tokens, Streaming: true, TTL: 200 * time.Second})
				x, err := peers[i].Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: consumers[i].table(tokens), Tokens: tokens, Timeout: 200 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, func() {
					x.Cancel()
					o.Cancel()
					wait(t, "the end", func(ctx context.Context) error { _, _ = x.Wait(ctx); _, _ = o.Wait(ctx); return ctx.Err() })
				})
			}
			// loads are what a consumer's policy is told of the source's ranks.
			loads := func(i int) [2]policy.Load {
				l, _ := peers[i].Loads()
				return [2]policy.Load{l[0], l[1]}
			}
			begin(0) // rank 0: nothing is busy
			eventually(t, "the others hear that rank 0 is busy", func() bool { l := loads(1); return l[0] >= 3 && l[1] == 1 })
			eventually(t, "the others hear that rank 0 is busy", func() bool { l := loads(2); return l[0] >= 3 && l[1] == 1 })
			begin(1) // rank 1: rank 0 has work
			eventually(t, "both hear of both", func() bool { return loads(1) == [2]policy.Load{3, 3} && loads(2) == [2]policy.Load{3, 3} })
			begin(1)                        // rank 0: both are as busy, and it is its turn
			begin(1)                        // rank 1, for the same reason: twice as much is the same bucket
			for _, i := range []int{1, 3} { // rank 1 has no work left
				ends[i]()
				ends[i] = func() {}
			}
			eventually(t, "rank 0 has more", func() bool { l := loads(2); return l[0] > l[1] })
			begin(2) // rank 1
			begin(2) // rank 1 again, whosever turn it is
			if a, b, c := deciders[0].String(), deciders[1].String(), deciders[2].String(); a != "[0]" || b != "[1 0 1]" || c != "[1 1]" {
				t.Errorf("read from ranks %s, %s and %s, want [0], [1 0 1] and [1 1]", a, b, c)
			}
			for _, end := range ends {
				end()
			}
			eventually(t, "all is idle again", func() bool { return loads(0) == [2]policy.Load{1, 1} })
			// And it arrives, from either.
			for i, d := range consumers {
				st, dt := s.table(64), d.table(64)
				s.fill(uint32(i), st, allLayers, 0, 64)
				d.soil()
				o := offer(t, s, agent.Offer{Request: fmt.Sprint("last", i), Tables: st, Tokens: 64, TTL: 200 * time.Second})
				if err := pull(t, peers[i], o.Ticket(), dt, 64); err != nil {
					t.Fatal(err)
				}
				d.check("moved", moved{uint32(i), dt, allLayers, 0, 64})
			}
		})
	}
}
