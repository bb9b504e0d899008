package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/picture"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
)

// chunkTokens is the prefill chunk of mode "chunks".
const chunkTokens = 24

// lease and deadline of a request's transfer, far above what it takes: the
// largest run computes many long prompts at once.
const (
	lease    = 5 * time.Minute
	deadline = 5 * time.Minute
)

// engine is one side of the demo: a model, its cache on all ranks of the
// engine, and an agent.
type engine struct {
	start  start
	lines  *lines
	model  *tinyllm.Model
	shard  shard.Spec
	cache  *tinyllm.Cache
	owner  host.Owner
	blocks *host.Blocks
	policy *policy.Policy
	agent  *agent.Agent
	engine *agent.Engine
	peer   *agent.Peer
	close  []func() error

	stamper *stamp.Stamper

	mu     sync.Mutex
	tables map[int]*held // by request, at the destination
}

// held is a request's blocks at the destination.
type held struct {
	table    []uint32
	tokens   int64
	expected *agent.Expected // push mode
}

// Serve runs one engine until its input ends or it is told to stop. open makes
// the provider; a nil open opens the one that the start order names.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(name, folder string) (transport.Provider, error)) error {
	e := &engine{lines: newLines(in, out), tables: map[int]*held{}}
	if open == nil {
		open = openProvider
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer func() {
		cancel()
		work.Wait()
		for i := len(e.close) - 1; i >= 0; i-- {
			_ = e.close[i]() // the process ends; the parent has its results
		}
	}()
	for {
		var o order
		err := e.lines.read(&o)
		if errors.Is(err, io.EOF) || err == nil && o.Kind == orderStop {
			return nil
		}
		if err != nil {
			return err
		}
		handle := func() {
			r, err := e.do(ctx, &o, open)
			r.N, r.State = o.N, "done"
			if err != nil {
				r.State, r.Error = "failed", refusal.Of(err)
				if e.policy != nil {
					r.Policy = e.usage()
				}
			}
			_ = e.lines.write(r) // a parent that is gone closes our input next
		}
		switch o.Kind {
		case orderStart, orderConnect, orderAccept:
			handle() // what follows needs it
		default:
			work.Go(handle)
		}
	}
}

func (e *engine) do(ctx context.Context, o *order, open func(name, folder string) (transport.Provider, error)) (reply, error) {
	if o.Kind != orderStart && e.engine == nil {
		return reply{}, fmt.Errorf("demo: order %s before start", o.Kind)
	}
	switch o.Kind {
	case orderStart:
		if o.Start == nil {
			return reply{}, errors.New("demo: order start says nothing")
		}
		e.start = *o.Start
		return e.open(ctx, open)
	case orderConnect:
		return e.connect(ctx, o.Address)
	case orderAccept:
		return e.accept(ctx)
	case orderExpect:
		return e.expect(ctx, o)
	case orderPrefill:
		return e.prefill(ctx, o)
	case orderTake:
		return e.take(ctx, o)
	case orderDecode:
		return e.decode(o)
	}
	return reply{}, fmt.Errorf("demo: unknown order %q", o.Kind)
}

func engineName(role string) string {
	if role == "source" {
		return "prefill"
	}
	return "decode"
}

func (e *engine) other() string {
	if e.start.Role == "source" {
		return engineName("destination")
	}
	return engineName("source")
}

// open makes the model, chooses the layout, allocates the cache in it and
// starts the agent.
func (e *engine) open(ctx context.Context, provide func(name, folder string) (transport.Provider, error)) (reply, error) {
	var err error
	if e.model, err = tinyllm.New(tinyllm.Default(e.start.Heads, e.start.Seed)); err != nil {
		return reply{}, err
	}
	m := e.model.Geometry()
	if e.shard, err = e.start.Side.Shard(m); err != nil {
		return reply{}, err
	}
	if e.policy, err = policy.Open(ctx, e.start.Module, policy.Options{Unmetered: e.start.Unmetered}); err != nil {
		return reply{}, fmt.Errorf("policy %s: %w", e.start.Policy, err)
	}
	e.close = append(e.close, e.policy.Close)

	chosen, err := e.choose(ctx)
	if err != nil {
		return reply{}, err
	}
	layouts, buffers, ranks, err := e.allocate(chosen.spec)
	if err != nil {
		return reply{}, err
	}
	if e.cache, err = tinyllm.NewCache(m, e.shard, layouts, buffers); err != nil {
		return reply{}, err
	}
	e.blocks = host.NewBlocks(e.start.Blocks, 2*e.start.Seed+uint64(len(e.start.Role))%2)

	provider, err := provide(e.start.Transport, e.start.Folder)
	if err != nil {
		return reply{}, err
	}
	e.close = append(e.close, provider.Close)
	listen := "unix:" + filepath.Join(e.start.Folder, engineName(e.start.Role)+".sock")
	if e.start.Transport == "tcp" {
		listen = "tcp:127.0.0.1:0"
	}
	e.agent, err = agent.New(agent.Config{Name: engineName(e.start.Role), Listen: listen, Providers: []transport.Provider{provider}, Policy: e.policy})
	if err != nil {
		return reply{}, err
	}
	e.close = append(e.close, e.agent.Close)
	perRank := make([][]*layout.Layout, len(layouts))
	for r, l := range layouts {
		perRank[r] = []*layout.Layout{l}
	}
	e.engine, err = e.agent.Register(ctx, agent.EngineSpec{
		ID: engineName(e.start.Role), Incarnation: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano()),
		Model: m, Shard: e.shard, Layouts: perRank, Held: ranks,
		Pools: []plan.Pool{{Block: e.start.Side.Block, Blocks: e.start.Blocks}},
	})
	if err != nil {
		return reply{}, err
	}
	return reply{Address: e.agent.Address(), Layout: chosen.name, Reason: chosen.reason, Policy: e.usage()}, nil
}

// usage is the policy with its number of calls so far.
func (e *engine) usage() *Policy {
	return &Policy{Name: e.policy.Name(), Digest: e.policy.Digest().String(), Calls: e.policy.Calls()}
}

// allocate makes one pool a rank, in the layout that the engine chose.
func (e *engine) allocate(spec layout.Spec) ([]*layout.Layout, [][][]byte, []memory.Rank, error) {
	m := e.model.Geometry()
	var layouts []*layout.Layout
	var buffers [][][]byte
	var ranks []memory.Rank
	for r := range e.shard.Ranks() {
		part := e.shard.Part(m.Groups[0], r)
		l, err := spec.Resolve(layout.Extent{Layers: part.Layers, Blocks: e.start.Blocks, Tokens: e.start.Side.Block, Heads: len(part.Heads), Components: m.Groups[0].Components})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("lay out rank %d of engine %s: %w", r, engineName(e.start.Role), err)
		}
		group := host.Group{Blocks: e.start.Blocks}
		for _, region := range l.Regions {
			group.Regions = append(group.Regions, host.Region{Name: region.Name, Bytes: region.Bytes})
		}
		pool, err := e.owner.Open(host.Spec{Engine: engineName(e.start.Role), Rank: r, Groups: []host.Group{group}}, host.Options{})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("allocate rank %d of engine %s: %w", r, engineName(e.start.Role), err)
		}
		e.close = append(e.close, pool.Close)
		rank := pool.Rank()
		views := make([][]byte, len(l.Regions))
		for i := range views {
			views[i] = rank.Buffers[0][i].Bytes()
		}
		layouts, buffers, ranks = append(layouts, l), append(buffers, views), append(ranks, rank)
	}
	return layouts, buffers, ranks, nil
}

func (e *engine) connect(ctx context.Context, address string) (reply, error) {
	role := transport.Destination
	if e.start.Role == "source" {
		role = transport.Source
	}
	p, err := e.engine.Connect(ctx, agent.Dial{Addresses: []string{address}, Role: role, Engine: e.other()})
	if err != nil {
		return reply{}, err
	}
	return e.connected(p)
}

func (e *engine) accept(ctx context.Context) (reply, error) {
	p, err := e.engine.Peer(ctx, e.other())
	if err != nil {
		return reply{}, err
	}
	return e.connected(p)
}

func (e *engine) connected(p *agent.Peer) (reply, error) {
	var err error
	e.peer = p
	if e.stamper, err = stamp.New(p.Proven()); err != nil {
		return reply{}, err
	}
	_, reason := p.Assignments()
	return reply{Policy: e.usage(), Plan: &planned{
		Reason: reason, Provider: p.Provider(),
		Runs: len(p.Proven().Plan().Runs), Digest: p.Proven().Digest().String(),
		Picture:  picture.Grid(p.Pair(), p.Proven().Plan(), picture.Options{}),
		Coloured: picture.Grid(p.Pair(), p.Proven().Plan(), picture.Options{Colour: true}),
	}}, nil
}

// table takes random blocks for n tokens.
func (e *engine) table(n int64) ([]uint32, error) {
	perEntry := int64(e.start.Side.Block) * int64(e.start.Side.DCP)
	return e.blocks.Alloc(int((n + perEntry - 1) / perEntry))
}

// give gives blocks back that table took.
func (e *engine) give(table []uint32) {
	if err := e.blocks.Release(table); err != nil {
		panic(err) // a block given back twice is this package's own mistake
	}
}

func (e *engine) expect(ctx context.Context, o *order) (reply, error) {
	table, err := e.table(o.Tokens + int64(o.Count))
	if err != nil {
		return reply{}, err
	}
	x, err := e.engine.Expect(ctx, agent.Expect{Request: requestName(o.Request), Tables: [][]uint32{table}, Tokens: o.Tokens, TTL: lease})
	if err != nil {
		e.give(table)
		return reply{}, err
	}
	e.hold(o.Request, &held{table: table, tokens: o.Tokens, expected: x})
	return reply{Ticket: string(x.Ticket())}, nil
}

func (e *engine) hold(request int, h *held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tables[request] = h
}

func (e *engine) held(request int) (*held, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.tables[request]
	if h == nil {
		return nil, fmt.Errorf("demo: request %d holds no blocks here", request)
	}
	return h, nil
}

func requestName(n int) string { return fmt.Sprintf("r%d", n) }

// prefill computes a prompt's cache and hands it over; it returns when the
// blocks are free again.
func (e *engine) prefill(ctx context.Context, o *order) (reply, error) {
	n := int64(len(o.Prompt))
	table, err := e.table(n)
	if err != nil {
		return reply{}, err
	}
	defer e.give(table)
	tables := [][]uint32{table}
	if e.start.Mode == "push" {
		first := e.model.Prefill(e.cache, table, o.Prompt, 0, nil)
		t, err := e.peer.Push(ctx, agent.Push{Ticket: agent.Ticket(o.Ticket), Tables: tables, Tokens: n, SideData: []byte{byte(first)}, Timeout: deadline})
		if err != nil {
			return reply{}, err
		}
		result, err := t.Wait(ctx)
		return reply{First: first, Moved: movedOf(result, 0)}, err
	}
	offer := agent.Offer{Request: requestName(o.Request), Tables: tables, Tokens: n, TTL: lease}
	offered := func(first int) (*agent.Offered, error) {
		open, err := e.engine.Offer(ctx, offer)
		if err != nil {
			return nil, err
		}
		return open, e.lines.write(reply{N: o.N, State: "offered", Ticket: string(open.Ticket()), First: first})
	}
	if e.start.Mode == "pull" {
		first := e.model.Prefill(e.cache, table, o.Prompt, 0, nil)
		offer.SideData = []byte{byte(first)}
		open, err := offered(first)
		if err != nil {
			return reply{}, err
		}
		_, err = open.Wait(ctx)
		return reply{First: first}, err
	}
	// Streamed: the consumer pulls while the prompt is being computed, layer
	// by layer or chunk by chunk.
	offer.Streaming = true
	open, err := offered(-1)
	if err != nil {
		return reply{}, err
	}
	chunk := 0
	if e.start.Mode == "chunks" {
		chunk = chunkTokens
	}
	layers := e.model.Config().Layers
	var marked error
	first := e.model.Prefill(e.cache, table, o.Prompt, chunk, func(layer int, from, to int64) {
		box := agent.Box{Layers: plan.Range{From: layer, To: layer + 1}, From: from, To: to}
		if e.start.Mode == "chunks" {
			if layer != layers-1 {
				return
			}
			box.Layers = plan.Range{From: 0, To: layers}
		}
		marked = errors.Join(marked, open.Ready(box))
	})
	if marked != nil {
		open.Cancel()
	}
	_, err = open.Wait(ctx)
	return reply{First: first}, errors.Join(marked, err)
}

// take takes a request's cache over. The blocks stay the request's until it
// is decoded.
func (e *engine) take(ctx context.Context, o *order) (reply, error) {
	var result agent.Result
	if e.start.Mode == "push" {
		h, err := e.held(o.Request)
		if err != nil {
			return reply{}, err
		}
		if result, err = h.expected.Wait(ctx); err != nil {
			return reply{}, err
		}
	} else {
		table, err := e.table(o.Tokens + int64(o.Count))
		if err != nil {
			return reply{}, err
		}
		e.hold(o.Request, &held{table: table, tokens: o.Tokens})
		t, err := e.peer.Pull(ctx, agent.Pull{Ticket: agent.Ticket(o.Ticket), Tables: [][]uint32{table}, Tokens: o.Tokens, Timeout: deadline})
		if err != nil {
			return reply{}, err
		}
		if result, err = t.Wait(ctx); err != nil {
			return reply{}, err
		}
	}
	h, err := e.held(o.Request)
	if err != nil {
		return reply{}, err
	}
	pieces, err := e.pieces(h.table, o.Tokens)
	if err != nil {
		return reply{}, err
	}
	first := -1 // streamed: the source tells the router when it is known
	if len(result.SideData) == 1 {
		first = int(result.SideData[0])
	}
	return reply{First: first, Moved: movedOf(result, pieces)}, nil
}

func movedOf(r agent.Result, pieces int64) *moved {
	return &moved{Bytes: r.Bytes, Segments: r.Segments, Pieces: pieces, Seconds: r.Elapsed.Seconds()}
}

// decode generates from a cache that was taken over, and frees its blocks.
func (e *engine) decode(o *order) (reply, error) {
	h, err := e.held(o.Request)
	if err != nil {
		return reply{}, err
	}
	e.mu.Lock()
	delete(e.tables, o.Request)
	e.mu.Unlock()
	defer e.give(h.table)
	if o.Zero {
		e.cache.Zero(h.table, h.tokens)
	}
	return reply{Output: e.model.Decode(e.cache, h.table, o.First, h.tokens, o.Count)}, nil
}

// pieces counts the contiguous copies of a request.
func (e *engine) pieces(table []uint32, tokens int64) (int64, error) {
	req := stamp.Request{Plan: e.peer.Proven().Digest(), Destination: [][]uint32{table}, To: tokens}
	var n int64
	for _, edge := range e.peer.Proven().Plan().Edges {
		var c stamp.Cursor
		if err := e.stamper.Cursor(&req, stamp.EdgeKey{Source: edge.Source, Destination: edge.Destination}, &c); err != nil {
			return 0, err
		}
		var seg stamp.Segment
		for c.Next(&seg) {
			n += seg.Run.Pieces()
		}
	}
	return n, nil
}
