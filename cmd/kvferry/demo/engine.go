package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/picture"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/transfer"
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
	start   start
	lines   *lines
	model   *tinyllm.Model
	side    plan.Side
	cache   *tinyllm.Cache
	owner   host.Owner
	blocks  []*host.Blocks // by group
	policy  asks
	manager *generation.Manager // nil: without a store
	agent   *agent.Agent
	engine  *agent.Engine
	peer    *agent.Peer
	close   []func() error

	stamper *stamp.Stamper
	work    sync.WaitGroup // orders in progress, and what goes on beside them

	mu       sync.Mutex
	requests map[int]*held     // at the destination
	offers   map[int]*offering // at the source
}

// held is a request's blocks at the destination.
type held struct {
	tables   tinyllm.Tables
	tokens   int64
	expected *agent.Expected // push mode
}

// offering is a request that the source hands over.
type offering struct {
	open *agent.Offered
	done chan struct{} // closed when its blocks are free again
}

// Serve runs one engine until its input ends or it is told to stop. open makes
// the provider; a nil open opens the one that the start order names.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(name, folder string) (transport.Provider, error)) error {
	e := &engine{lines: newLines(in, out), requests: map[int]*held{}, offers: map[int]*offering{}}
	if open == nil {
		open = openProvider
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		e.work.Wait()
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
				r.State, r.Error = "failed", refused(err)
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
			e.work.Go(handle)
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
	case orderDrop:
		return reply{}, e.drop(ctx, o)
	case orderLife:
		return reply{Life: e.life(), Policy: e.usage()}, nil
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

// open makes the model, chooses the layouts, allocates the cache in them and
// starts the agent.
func (e *engine) open(ctx context.Context, provide func(name, folder string) (transport.Provider, error)) (reply, error) {
	var err error
	if e.model, err = tinyllm.New(tinyllm.Default(e.start.Shape, e.start.Heads, e.start.Seed)); err != nil {
		return reply{}, err
	}
	box, err := e.box()
	if err != nil {
		return reply{}, err
	}
	e.close = append(e.close, func() error { box.Close(); return nil })
	options := box.Policy()
	if e.start.Record != "" {
		r, err := journal.Create(e.start.Record, journal.Options{})
		if err != nil {
			return reply{}, err
		}
		e.close = append(e.close, r.Close)
		options.Observe = r.Observe
	}
	if e.start.Store != "" {
		if err := e.manage(ctx, options); err != nil {
			return reply{}, err
		}
	} else {
		p, err := policy.Open(ctx, e.start.Module, options)
		if err != nil {
			return reply{}, fmt.Errorf("policy %s: %w", e.start.Policy, err)
		}
		e.close = append(e.close, p.Close)
		e.policy = p
	}

	provider, err := provide(e.start.Transport, e.start.Folder)
	if err != nil {
		return reply{}, err
	}
	// Closed before the pools, which are opened later: the agent's engine uses
	// them until it is closed.
	last := []func() error{provider.Close}
	defer func() { e.close = append(e.close, last...) }()
	listen := "unix:" + filepath.Join(e.start.Folder, engineName(e.start.Role)+".sock")
	if e.start.Transport == "tcp" {
		listen = "tcp:127.0.0.1:0"
	}
	config := agent.Config{Name: engineName(e.start.Role), Listen: listen, Providers: []transport.Provider{provider}, Policy: e.policy, Layouts: e.start.Folder}
	if e.start.Settings != nil {
		config.Configurations = map[string][]byte{e.policy.Name(): e.start.Settings}
	}
	e.agent, err = agent.New(config)
	if err != nil {
		return reply{}, err
	}
	last = append(last, e.agent.Close)
	incarnation := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	chosen, err := e.choose(ctx, incarnation)
	if err != nil {
		return reply{}, err
	}
	ranks, err := e.allocate(chosen.candidate)
	if err != nil {
		return reply{}, err
	}
	scratch, err := e.tables(e.start.Side.probeTokens())
	if err != nil {
		return reply{}, err
	}
	e.engine, err = e.agent.Register(ctx, agent.EngineSpec{
		ID: e.side.Engine, Incarnation: incarnation, Can: chosen.can,
		Model: e.side.Model, Shard: e.side.Shard, Pools: e.side.Groups, Layouts: e.side.Ranks, Held: ranks,
		Kernel: &kernel{e.cache, &e.side}, Scratch: scratch,
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

func (e *engine) connect(ctx context.Context, address string) (reply, error) {
	role := transport.Destination
	if e.start.Role == "source" {
		role = transport.Source
	}
	p, err := e.engine.Connect(ctx, agent.Dial{Addresses: []string{address}, Role: role, Engine: e.other()})
	if err != nil {
		return reply{}, err
	}
	return e.connected(ctx, p)
}

func (e *engine) accept(ctx context.Context) (reply, error) {
	p, err := e.engine.Peer(ctx, e.other())
	if err != nil {
		return reply{}, err
	}
	return e.connected(ctx, p)
}

func (e *engine) connected(ctx context.Context, p *agent.Peer) (reply, error) {
	var err error
	e.peer = p
	if e.stamper, err = stamp.New(p.Proven()); err != nil {
		return reply{}, err
	}
	if e.manager != nil {
		e.work.Go(func() { e.askOn(ctx) })
	}
	_, reason := p.Assignments()
	return reply{Policy: e.usage(), Plan: &planned{
		Reason: reason, Provider: p.Provider(),
		Runs: len(p.Proven().Plan().Runs), Digest: p.Proven().Digest().String(),
		Peer: string(p.LayoutState()), Probed: p.Probed(),
		Picture:  picture.Grid(p.Pair(), p.Proven().Plan(), picture.Options{}),
		Coloured: picture.Grid(p.Pair(), p.Proven().Plan(), picture.Options{Colour: true}),
	}}, nil
}

func (e *engine) expect(ctx context.Context, o *order) (reply, error) {
	tables, err := e.tables(o.Tokens + int64(o.Count))
	if err != nil {
		return reply{}, err
	}
	x, err := e.engine.Expect(ctx, agent.Expect{Request: requestName(o.Request), Tables: tables, Tokens: o.Tokens, TTL: lease})
	if err != nil {
		e.give(tables)
		return reply{}, err
	}
	e.hold(o.Request, &held{tables: tables, tokens: o.Tokens, expected: x})
	return reply{Ticket: string(x.Ticket())}, nil
}

func (e *engine) hold(request int, h *held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests[request] = h
}

func (e *engine) held(request int) (*held, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.requests[request]
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
	tables, err := e.tables(n)
	if err != nil {
		return reply{}, err
	}
	done := make(chan struct{})
	defer close(done)
	defer e.give(tables)
	handed := e.handed(tables, n)
	if e.start.Mode == "push" {
		first := e.model.Prefill(e.cache, tables, o.Prompt, 0, nil)
		t, err := e.peer.Push(ctx, agent.Push{Ticket: agent.Ticket(o.Ticket), Tables: handed, Tokens: n, SideData: []byte{byte(first)}, Timeout: deadline, Integrity: e.start.Integrity})
		if err != nil {
			return reply{}, err
		}
		result, err := t.Wait(ctx)
		return reply{First: first, Moved: e.movedOf(result, 0)}, err
	}
	offer := agent.Offer{Request: requestName(o.Request), Tables: handed, Tokens: n, TTL: lease}
	defer func() {
		e.mu.Lock()
		delete(e.offers, o.Request)
		e.mu.Unlock()
	}()
	offered := func(first int) (*agent.Offered, error) {
		open, err := e.engine.Offer(ctx, offer)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.offers[o.Request] = &offering{open, done}
		e.mu.Unlock()
		return open, e.lines.write(reply{N: o.N, State: "offered", Ticket: string(open.Ticket()), First: first})
	}
	if e.start.Mode == "pull" {
		first := e.model.Prefill(e.cache, tables, o.Prompt, 0, nil)
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
	first := e.model.Prefill(e.cache, tables, o.Prompt, chunk, func(layer int, from, to int64) {
		within := plan.Range{From: layer, To: layer + 1}
		if e.start.Mode == "chunks" {
			if layer != layers-1 {
				return
			}
			within = plan.Range{From: 0, To: layers}
		}
		marked = errors.Join(marked, open.Ready(e.boxes(within, from, to, n)...))
	})
	if marked != nil {
		open.Cancel()
	}
	_, err = open.Wait(ctx)
	return reply{First: first}, errors.Join(marked, err)
}

// boxes says that layers have written tokens [from, to) of a request of n. A
// state is the request's only at its end, and counts as its last token then.
func (e *engine) boxes(layers plan.Range, from, to, n int64) []agent.Box {
	var out []agent.Box
	for g, group := range e.side.Model.Groups {
		box := agent.Box{Group: g, Layers: layers, From: from, To: to}
		if group.State {
			if to < n {
				continue
			}
			box.From = n - 1
		}
		if slices.ContainsFunc(group.Layers, func(l int) bool { return l >= layers.From && l < layers.To }) {
			out = append(out, box)
		}
	}
	return out
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
		tables, err := e.tables(o.Tokens + int64(o.Count))
		if err != nil {
			return reply{}, err
		}
		e.hold(o.Request, &held{tables: tables, tokens: o.Tokens})
		t, err := e.peer.Pull(ctx, agent.Pull{Ticket: agent.Ticket(o.Ticket), Tables: tables, Tokens: o.Tokens, Timeout: deadline, Integrity: e.start.Integrity})
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
	pieces, err := e.pieces(h.tables, o.Tokens, result.OutOfWindow)
	if err != nil {
		return reply{}, err
	}
	first := -1 // streamed: the source tells the router when it is known
	if len(result.SideData) == 1 {
		first = int(result.SideData[0])
	}
	return reply{First: first, Moved: e.movedOf(result, pieces)}, nil
}

func (e *engine) movedOf(r agent.Result, pieces int64) *moved {
	return &moved{Bytes: r.Bytes, Segments: r.Segments, Pieces: pieces, Digests: e.digests(r.Integrity), Seconds: r.Elapsed.Seconds(), Route: routeOf(r)}
}

// routeOf is how a transfer went, where a policy decided that.
func routeOf(r agent.Result) *agent.Route {
	if r.Route.Policy == "" && r.Route.Fault == "" {
		return nil
	}
	return &r.Route
}

// decode generates from a cache that was taken over, and frees its blocks.
func (e *engine) decode(o *order) (reply, error) {
	h, err := e.held(o.Request)
	if err != nil {
		return reply{}, err
	}
	e.mu.Lock()
	delete(e.requests, o.Request)
	e.mu.Unlock()
	defer e.give(h.tables)
	if o.Zero {
		e.cache.Zero(h.tables, h.tokens)
	}
	return reply{Output: e.model.Decode(e.cache, h.tables, o.First, h.tokens, o.Count)}, nil
}

// refused is an error as scripts read it.
func refused(err error) *refusal.Refusal {
	var kernel *measure.Disagreement
	if errors.As(err, &kernel) {
		return disagrees(kernel, err)
	}
	out := refusal.Of(err)
	var corrupt *transfer.Corrupt
	if errors.As(err, &corrupt) && out.Coordinate == nil {
		out.Kind = "corrupt"
		out.Coordinate = &refusal.Coordinate{Rank: corrupt.DestinationRank, Component: corrupt.Component, Layer: corrupt.Layer, Head: max(corrupt.Head, 0), Token: corrupt.From}
	}
	return out
}
