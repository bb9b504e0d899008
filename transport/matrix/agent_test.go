package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// node is one agent with its engine and the engine's memory.
type node struct {
	*agent.Agent
	engine *agent.Engine
	cache  *cache
}

// start makes an agent of a side. Its end is the test's.
func start(t *testing.T, p *policy.Policy, provider transport.Provider, c *cache) *node {
	t.Helper()
	a, err := agent.New(agent.Config{Name: c.side.Engine, Listen: "unix:" + filepath.Join(t.TempDir(), "s"), Providers: []transport.Provider{provider}, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), provider.Close()); err != nil {
			t.Errorf("close agent %s: %v", c.side.Engine, err)
		}
	})
	e, err := a.Register(t.Context(), agent.EngineSpec{ID: c.side.Engine, Incarnation: "1", Model: c.side.Model, Shard: c.side.Shard, Pools: c.side.Groups, Layouts: c.side.Ranks, Held: c.ranks()})
	if err != nil {
		t.Fatal(err)
	}
	return &node{a, e, c}
}

// handover is a request on its way between two agents.
type handover struct {
	ready  func(...agent.Box) error
	landed func(context.Context, agent.Box) error
	ends   []func(context.Context) error
}

// begin starts a request.
func (w *world) begin(ctx context.Context, s, d *node, toSource, toDestination *agent.Peer, name string, streaming bool) (*handover, error) {
	q := w.q
	if !q.write {
		o, err := s.engine.Offer(ctx, agent.Offer{Request: name, Tables: s.cache.tables, From: q.from, Tokens: q.to, TTL: patience, Streaming: streaming})
		if err != nil {
			return nil, fmt.Errorf("offer: %w", err)
		}
		x, err := toSource.Pull(ctx, agent.Pull{Ticket: o.Ticket(), Tables: d.cache.tables, From: q.from, Tokens: q.to, Layers: q.layers})
		if err != nil {
			return nil, fmt.Errorf("pull: %w", err)
		}
		return &handover{o.Ready, x.Landed, []func(context.Context) error{
			func(ctx context.Context) error { return w.whole(x.Wait(ctx)) },
			func(ctx context.Context) error {
				why, err := o.Wait(ctx)
				if err == nil && why != transfer.Read {
					err = fmt.Errorf("the offer was freed as %q", why)
				}
				return err
			},
		}}, nil
	}
	x, err := d.engine.Expect(ctx, agent.Expect{Request: name, Tables: d.cache.tables, From: q.from, Tokens: q.to, TTL: patience})
	if err != nil {
		return nil, fmt.Errorf("expect: %w", err)
	}
	p, err := toDestination.Push(ctx, agent.Push{Ticket: x.Ticket(), Tables: s.cache.tables, From: q.from, Tokens: q.to, Layers: q.layers, Streaming: streaming})
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return &handover{p.Ready, x.Landed, []func(context.Context) error{
		func(ctx context.Context) error { return w.whole(p.Wait(ctx)) },
		func(ctx context.Context) error { _, err := x.Wait(ctx); return err },
		x.Free,
	}}, nil
}

// whole checks the result of the side that moved the bytes.
func (w *world) whole(r agent.Result, err error) error {
	if want := w.bytes(); err == nil && r.Bytes != want {
		err = fmt.Errorf("%d bytes were moved, want %d", r.Bytes, want)
	}
	return err
}

// end waits for all ends of a request.
func (h *handover) end(ctx context.Context) error {
	for _, f := range h.ends {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// boxes cuts what is moved into parts, by layer or by tokens that start and
// end anywhere.
func (w *world) boxes(by string, rng *rand.Rand) []box {
	m := w.moved()
	var out []box
	if by == "layers" {
		for l := m.layers.From; l < m.layers.To; l++ {
			out = append(out, box{layers: plan.Range{From: l, To: l + 1}, from: m.from, to: m.to})
		}
	} else {
		for at := m.from; at < m.to; {
			next := min(at+1+rng.Int64N(40), m.to)
			out = append(out, box{layers: m.layers, from: at, to: next})
			at = next
		}
	}
	return out
}

// stream hands the request over part by part, once a pass: each is written,
// marked, and found in place before the next is written.
func (w *world) stream(ctx context.Context, parts []box, begin func(pass int) (*handover, error)) error {
	for pass := range w.n.most() {
		w.soil(pass)
		want := w.destination.image()
		h, err := begin(pass)
		if err != nil {
			return err
		}
		for i, b := range parts {
			w.source.write(w.source.memory(), pass, b)
			w.destination.write(want, pass, b)
			var marks []agent.Box
			for g := range w.n.model.Groups {
				marks = append(marks, agent.Box{Group: g, Layers: b.layers, From: b.from, To: b.to})
			}
			if err := h.ready(marks...); err != nil {
				return fmt.Errorf("mark part %d: %w", i, err)
			}
			for _, mark := range marks {
				if err := h.landed(ctx, mark); err != nil {
					return fmt.Errorf("wait for part %d: %w", i, err)
				}
			}
			if err := w.destination.compare(want); err != nil {
				return fmt.Errorf("pass %d, after part %d of %d, layers %v tokens %d to %d: %w", pass, i, len(parts), b.layers, b.from, b.to-1, err)
			}
		}
		if err := h.end(ctx); err != nil {
			return err
		}
		if err := w.destination.compare(want); err != nil {
			return fmt.Errorf("pass %d, at the end: %w", pass, err)
		}
	}
	return nil
}

// handovers are the pairs of TestAgents.
func handovers() []*instance {
	b := &book{}
	add := func(clause string, layers int, groups []geometry.Group, s, d half) {
		b.add(instance{clause: clause, layers: layers, groups: groups, tokens: 90, source: s, destination: d})
	}
	of := func(preset string, block int) []pool { return []pool{{preset, block}} }
	bf16, fp32 := attention(3, 12, 16, 16, geometry.BF16), attention(3, 4, 8, 8, geometry.FP32)
	add("4 to 6", 3, bf16, half{tp: 4, pools: of("vllm/packed-hnd", 16)}, half{tp: 6, pools: of("vllm/packed-nhd", 32)})
	add("3 to 2", 3, bf16, half{tp: 3, stages: []int{1, 2}, pools: of("vllm/cpu-amx", 48)}, half{tp: 2, stages: []int{2, 1}, pools: of("vllm/cross-layer", 32)})
	add("replicas", 3, fp32, half{tp: 8, pools: of("vllm/split-nhd", 64)}, half{tp: 16, pools: of("vllm/cpu-vec", 16)})
	add("MLA", 3, latent(3, geometry.FP32), half{tp: 4, pools: of("vllm/mla", 16)}, half{tp: 2, stages: []int{1, 2}, pools: of("sglang/mla", 64)})
	add("dcp at the source", 3, fp32, half{tp: 2, dcp: 2, interleave: 1, pools: of("vllm/joint-hnd", 16)}, half{tp: 4, pools: of("sglang/mha", 32)})
	add("dcp at the destination", 3, fp32, half{tp: 4, pools: of("trtllm/pool", 16)}, half{tp: 1, dcp: 3, interleave: 2, pools: of("vllm/lbnhc", 8)})
	add("dcp on both sides", 3, fp32, half{tp: 2, dcp: 2, interleave: 4, pools: of("vllm/blhnc", 16)}, half{tp: 1, dcp: 4, interleave: 1, pools: of("dynamo/universal", 16)})
	add("dcp on both sides, MLA", 3, latent(3, geometry.BF16), half{tp: 1, dcp: 2, interleave: 1, pools: of("vllm/mla", 16)}, half{tp: 2, dcp: 2, interleave: 8, pools: of("vllm/mla", 16)})
	e := &book{}
	e.everything()
	for _, c := range []*instance{e.cases[0], e.cases[4]} {
		b.add(*c)
	}
	for _, c := range b.cases {
		c.part = false // an expectation waits for all layers
	}
	return b.cases
}

// TestAgents hands requests over between two agents, in every mode.
func TestAgents(t *testing.T) {
	p := heads(t)
	modes := []struct {
		name  string
		write bool
		by    string
	}{{"pull", false, ""}, {"push", true, ""}, {"pull by layers", false, "layers"}, {"push by layers", true, "layers"}, {"pull by chunks", false, "chunks"}, {"push by chunks", true, "chunks"}}
	cases, right := handovers(), make(chan string, 100)
	due := 0
	t.Run("loop", func(t *testing.T) {
		for i, c := range cases {
			for j, mode := range modes {
				if sparse() && (i+j)%len(cases) != 0 && !(i == 6 && j == 2) {
					continue
				}
				due++
				t.Run(c.name()+", "+mode.name, func(t *testing.T) {
					t.Parallel()
					rng := rand.New(rand.NewPCG(c.seed, uint64(j)))
					pair, q, err := c.draw(rng)
					if err != nil {
						t.Fatal(err)
					}
					q.write = mode.write
					w, err := newWorld(pair, q, c.seed)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { // after the agents
						if err := w.close(); err != nil {
							t.Error(err)
						}
					})
					sp, dp, err := providers["loop"]()
					if err != nil {
						t.Fatal(err)
					}
					s, d := start(t, p, sp, w.source), start(t, p, dp, w.destination)
					ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
					defer cancel()
					var toSource, toDestination *agent.Peer
					if i%2 == 0 {
						if toSource, err = d.engine.Connect(ctx, agent.Dial{Addresses: []string{s.Address()}, Role: transport.Destination}); err == nil {
							toDestination, err = s.engine.Peer(ctx, "decode")
						}
					} else if toDestination, err = s.engine.Connect(ctx, agent.Dial{Addresses: []string{d.Address()}, Role: transport.Source}); err == nil {
						toSource, err = d.engine.Peer(ctx, "prefill")
					}
					if err != nil {
						t.Fatalf("connect: %+v", err)
					}
					begin := func(pass int) (*handover, error) {
						return w.begin(ctx, s, d, toSource, toDestination, fmt.Sprint("r", pass), mode.by != "")
					}
					if mode.by != "" {
						err = w.stream(ctx, w.boxes(mode.by, rng), begin)
					} else {
						pass := 0
						err = w.verify(func() error {
							pass++
							h, err := begin(pass)
							if err != nil {
								return err
							}
							return h.end(ctx)
						})
					}
					if err != nil {
						t.Fatalf("%+v", err)
					}
					right <- mode.name
				})
			}
		}
	})
	if filtered() {
		return
	}
	close(right)
	count := map[string]int{}
	for name := range right {
		count[name]++
		due--
	}
	for _, name := range sorted(count) {
		t.Logf("%4d  %s", count[name], name)
	}
	if due != 0 {
		t.Errorf("%d cases were not right", due)
	}
	if !sparse() && (len(count) != len(modes) || len(cases)*len(modes) < 30) {
		t.Errorf("%d modes, %d cases", len(count), len(cases)*len(modes))
	}
}
