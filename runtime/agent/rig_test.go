package agent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
	"github.com/kvferry/kvferry/transport/shm"
	"github.com/kvferry/kvferry/transport/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// providers are those that two engines of one host can have.
var providers = map[string]func() (transport.Provider, error){
	"loop": nil,
	"shm":  func() (transport.Provider, error) { return shm.New(shm.Options{Workers: 1}) },
	"tcp":  func() (transport.Provider, error) { return tcp.New(tcp.Options{Listen: "127.0.0.1:0"}) },
}

// pairText is TP 2, HND, block 16 to TP 4, NHD, block 32. fp32, so that every
// element of a request has a value of its own.
func pairText(source, destination string) string {
	return `
kvferry: pair/1
model:
  name: tiny
  layers: 4
  identity: {weights: "sha256:aa"}
  components:
    - {name: k, heads: 4, dim: 8, dtype: fp32}
    - {name: v, heads: 4, dim: 8, dtype: fp32}
source: {engine: prefill, ` + source + `, blocks: 64, layout: {order: [block, head, token, component, dim]}}
destination: {engine: decode, ` + destination + `, blocks: 48, layout: {order: [block, token, head, component, dim]}}
`
}

const (
	tp2 = "shard: {tp: 2}, block: 16"
	tp4 = "shard: {tp: 4}, block: 32"
)

func parsePair(t testing.TB, source, destination string) *plan.Pair {
	t.Helper()
	return parseText(t, pairText(source, destination))
}

// parseText makes the pair of a pair file.
func parseText(t testing.TB, text string) *plan.Pair {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := f.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// heads is a test double of the policy: each head comes from one of the
// source ranks that hold it, evenly.
type heads struct {
	change func([]plan.Assignment) []plan.Assignment
	// picks are one alternative each: which of the ranks that hold a head serves
	// a destination rank. Nil: one, that takes turns.
	picks  []func(d int, holders []int) int
	err    error
	digest byte
	calls  int
	asked  []policy.RemapQuestion
	// route, where not nil, is the route that the policy has.
	route  func(policy.RouteQuestion) (policy.Decision, []policy.Clamped, error)
	routed []policy.RouteQuestion
	judged []error
	mu     sync.Mutex
}

func (h *heads) Name() string { return "heads-double" }
func (h *heads) Digest() geometry.Digest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return geometry.Digest{h.digest}
}

func (h *heads) SelectLayout(context.Context, policy.Question) (policy.Choice, error) {
	return policy.Choice{}, errors.New("this double selects no layouts")
}

func (h *heads) Hooks() []string {
	if h.route == nil {
		return []string{"remap"}
	}
	return []string{"remap", "route"}
}

func (h *heads) Route(_ context.Context, q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
	h.mu.Lock()
	h.routed = append(h.routed, q)
	h.mu.Unlock()
	return h.route(q)
}

func (h *heads) Judge(_ *plan.Pair, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judged = append(h.judged, err)
}

func (h *heads) RemapFor(_ context.Context, q policy.RemapQuestion) (policy.Answer, error) {
	p := q.Pair
	h.mu.Lock()
	h.calls++
	h.asked = append(h.asked, q)
	picks, err := h.picks, h.err
	h.mu.Unlock()
	if err != nil {
		return policy.Answer{}, err
	}
	if picks == nil {
		picks = []func(int, []int) int{func(d int, holders []int) int { return holders[d%len(holders)] }}
	}
	out := policy.Answer{Reason: "each head from a rank that holds it"}
	for _, pick := range picks {
		as := assign(p, pick)
		if h.change != nil {
			as = h.change(as)
		}
		out.Alternatives = append(out.Alternatives, as)
	}
	return out, nil
}

func assign(p *plan.Pair, pick func(d int, holders []int) int) []plan.Assignment {
	var out []plan.Assignment
	for g, group := range p.Source.Model.Groups {
		for _, class := range group.Classes() {
			first := bits.TrailingZeros64(class.Components)
			for d := range p.Destination.Ranks {
				part := p.Destination.Part(g, d)
				heads := part.Heads[first]
				if class.Heads == 0 {
					heads = []int{0}
				}
				for _, head := range heads {
					for _, layer := range part.Layers {
						var holders []int
						for s := range p.Source.Ranks {
							if from := p.Source.Part(g, s); slices.Contains(from.Layers, layer) && (class.Heads == 0 || slices.Contains(from.Heads[first], head)) {
								holders = append(holders, s)
							}
						}
						out = append(out, plan.Assignment{Group: g, Components: class.Components, Destination: d, Source: pick(d, holders),
							Layers: plan.Range{From: layer, To: layer + 1}, Heads: plan.Range{From: head, To: head + 1}})
					}
				}
			}
		}
	}
	return out
}

// replica takes the n-th rank that holds a head.
func replica(n int) func(int, []int) int {
	return func(_ int, holders []int) int { return holders[n%len(holders)] }
}

// node is one agent with its engine.
type node struct {
	*agent.Agent
	engine *agent.Engine
	side   *plan.Side
	held   []int
	pools  map[int]*host.Pool
	blocks *host.Blocks
	policy *heads
	t      testing.TB
}

// rig is what the nodes of a test share.
type rig struct {
	net     loop.Network
	owner   host.Owner
	sockets int
	// open makes a node's provider; nil: loop.
	open func() (transport.Provider, error)
}

type option func(*agent.Config, *agent.EngineSpec)

// node starts an agent that holds some ranks of a side (nil: all).
func (r *rig) node(t testing.TB, name string, side *plan.Side, held []int, opts ...option) *node {
	t.Helper()
	return r.nodeWith(t, name, side, held, r.provider(t), opts...)
}

// provider opens a provider for a node.
func (r *rig) provider(t testing.TB) transport.Provider {
	t.Helper()
	if r.open == nil {
		return r.net.New(loop.Options{Workers: 1})
	}
	p, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *rig) nodeWith(t testing.TB, name string, side *plan.Side, held []int, provider transport.Provider, opts ...option) *node {
	t.Helper()
	n, err := r.register(t, name, side, held, provider, nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// register is nodeWith with the engine's own kernel, where it has one, and the
// error of registering it.
func (r *rig) register(t testing.TB, name string, side *plan.Side, held []int, provider transport.Provider, kernel func(*node) measure.Kernel, opts ...option) (*node, error) {
	t.Helper()
	n := &node{side: side, held: held, pools: map[int]*host.Pool{}, blocks: host.NewBlocks(side.Groups[0].Blocks, 3), policy: &heads{}, t: t}
	if held == nil {
		for i := range side.Ranks {
			n.held = append(n.held, i)
		}
	}
	r.sockets++
	cfg := agent.Config{Name: name, Listen: "unix:" + filepath.Join(t.TempDir(), fmt.Sprint("s", r.sockets)), Providers: []transport.Provider{provider}, Policy: n.policy,
		Timeouts: agent.Timeouts{Handshake: 5 * time.Second, Idle: 3 * time.Second, Transfer: 10 * time.Second}}
	spec := agent.EngineSpec{ID: side.Engine, Incarnation: "1", Model: side.Model, Shard: side.Shard, Pools: side.Groups, Layouts: side.Ranks}
	for _, rank := range n.held {
		h := host.Spec{Engine: side.Engine, Rank: rank}
		for g, l := range side.Ranks[rank] {
			group := host.Group{Blocks: side.Groups[g].Blocks}
			for i := 0; l != nil && i < len(l.Regions); i++ {
				group.Regions = append(group.Regions, host.Region{Name: l.Regions[i].Name, Bytes: l.Regions[i].Bytes})
			}
			h.Groups = append(h.Groups, group)
		}
		p, err := r.owner.Open(h, host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		n.pools[rank] = p
		spec.Held = append(spec.Held, p.Rank())
	}
	for _, o := range opts {
		o(&cfg, &spec)
	}
	if kernel != nil {
		spec.Kernel, spec.Scratch = kernel(n), scratch(side, 24)
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Agent = a
	t.Cleanup(func() {
		if err := a.Close(); err != nil && err != agent.ErrClosed {
			t.Errorf("close agent %s: %v", name, err)
		}
		if err := provider.Close(); err != nil && err != transport.ErrClosed {
			t.Errorf("close provider of %s: %v", name, err)
		}
		for _, p := range n.pools {
			if err := p.Close(); err != nil {
				t.Errorf("close a pool of %s: %v", name, err)
			}
		}
	})
	n.engine, err = a.Register(t.Context(), spec)
	return n, err
}

// pair starts a prefill and a decode node.
func (r *rig) pair(t testing.TB, source, destination string, opts ...option) (*node, *node) {
	t.Helper()
	p := parsePair(t, source, destination)
	return r.node(t, "a", &p.Source, nil, opts...), r.node(t, "b", &p.Destination, nil, opts...)
}

// dial connects a node to others.
func (n *node) dial(role transport.Side, to ...*node) *agent.Peer {
	n.t.Helper()
	d := agent.Dial{Role: role}
	for _, o := range to {
		d.Addresses = append(d.Addresses, o.Address())
	}
	p, err := n.engine.Connect(n.t.Context(), d)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// table takes blocks for so many tokens.
func (n *node) table(tokens int64) [][]uint32 {
	n.t.Helper()
	block := int64(n.side.Groups[0].Block)
	ids, err := n.blocks.Alloc(int((tokens + block - 1) / block))
	if err != nil {
		n.t.Fatal(err)
	}
	return [][]uint32{ids}
}

// value is the element at a coordinate of a request: unique in it.
func value(salt uint32, component, layer, head int, token int64, dim int) uint32 {
	return salt<<24 | (((uint32(token)*4+uint32(layer))*4+uint32(head))*2+uint32(component))*8 + uint32(dim)
}

// each visits every element that a rank holds of tokens [from, to) of group 0.
func (n *node) each(rank int, table []uint32, layers plan.Range, from, to int64, f func(bytes []byte, component, layer, head int, token int64, dim int)) {
	l, part := n.side.Ranks[rank][0], n.side.Part(0, rank)
	block := int64(n.side.Groups[0].Block)
	for ci, c := range l.Extent.Components {
		for li, layer := range part.Layers {
			if layer < layers.From || layer >= layers.To {
				continue
			}
			heads := part.Heads[ci]
			if c.Heads == 0 {
				heads = []int{0}
			}
			for hi, head := range heads {
				for tok := from; tok < to; tok++ {
					for d := range c.Dim {
						region, bit := l.Bit(ci, li, int64(table[tok/block]), tok%block, int64(hi), int64(d))
						f(n.pools[rank].Buffer(0, region).Bytes()[bit/8:bit/8+4], ci, layer, head, tok, d)
					}
				}
			}
		}
	}
}

var allLayers = plan.Range{From: 0, To: 4}

// fill writes a request's elements.
func (n *node) fill(salt uint32, tables [][]uint32, layers plan.Range, from, to int64) {
	for _, rank := range n.held {
		n.each(rank, tables[0], layers, from, to, func(b []byte, c, l, h int, tok int64, d int) {
			binary.LittleEndian.PutUint32(b, value(salt, c, l, h, tok, d))
		})
	}
}

// soil makes every byte of the node's memory recognisable.
func (n *node) soil() {
	for _, p := range n.pools {
		for region := range n.side.Ranks[n.held[0]][0].Regions {
			b := p.Buffer(0, region).Bytes()
			for i := range b {
				b[i] = 0xEE
			}
		}
	}
}

// moved is a request that should be in a node's memory.
type moved struct {
	salt     uint32
	tables   [][]uint32
	layers   plan.Range
	from, to int64
}

// check compares the node's whole memory: the requests' elements, and nothing
// else touched.
func (n *node) check(what string, requests ...moved) {
	n.t.Helper()
	for _, rank := range n.held {
		var images [][]byte
		for region := range n.side.Ranks[rank][0].Regions {
			b := n.pools[rank].Buffer(0, region).Bytes()
			got := bytes.Clone(b)
			images = append(images, got)
			for i := range b {
				b[i] = 0xEE
			}
		}
		for _, m := range requests {
			n.each(rank, m.tables[0], m.layers, m.from, m.to, func(b []byte, c, l, h int, tok int64, d int) {
				binary.LittleEndian.PutUint32(b, value(m.salt, c, l, h, tok, d))
			})
		}
		for region := range images {
			b := n.pools[rank].Buffer(0, region).Bytes()
			if !bytes.Equal(b, images[region]) {
				for i := range b {
					if b[i] != images[region][i] {
						n.t.Errorf("%s: %s rank %d region %d differs first at byte %d: %#x, want %#x", what, n.side.Engine, rank, region, i, images[region][i], b[i])
						break
					}
				}
			}
			copy(b, images[region])
		}
	}
}

func wait(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// eventually waits for what happens soon.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s did not happen", what)
}
