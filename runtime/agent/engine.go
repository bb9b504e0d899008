package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// Engine is a registered engine. Safe for concurrent use.
type Engine struct {
	agent *Agent
	desc  session.Engine
	site  session.Site
	held  map[int]memory.Rank
	shape transfer.Shape

	kernel  measure.Kernel // nil: none
	scratch [][]uint32
	probing chan struct{}     // a slot: one probe is served at a time
	probed  map[probeKey]bool // under mu
	owner   transfer.Owner
	blocks  *ledger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup // holdings and transfers

	mu       sync.Mutex
	closed   bool
	offers   map[transfer.ID]*Offered
	expects  map[transfer.ID]*Expected
	requests map[string]struct{} // of live offers and expectations, "offer r1"
	peers    map[*Peer]struct{}
	inbound  map[inboundKey]*Peer
	askers   map[inboundKey]*asker
	previous map[geometry.Digest][][]plan.Assignment // answered before, by pair
	arrived  chan struct{}                           // closed and replaced when inbound grows
	moves    map[*Transfer]struct{}
}

type inboundKey struct {
	engine, incarnation string
	role                session.Role
}

// Register makes an engine known and its held ranks' memory known to every
// provider. The memory must stay open until Engine.Close returned.
func (a *Agent) Register(ctx context.Context, spec EngineSpec) (*Engine, error) {
	if err := a.reserve(spec); err != nil {
		return nil, err
	}
	e, err := a.newEngine(ctx, spec)
	a.mu.Lock()
	delete(a.reserved, spec.ID)
	if err == nil && a.closed {
		e.cancel()
		err = ErrClosed
	}
	if err != nil {
		a.mu.Unlock()
		return nil, blame.On(blame.Local, err)
	}
	a.engines[spec.ID] = e // the peers that find it now wait for their providers
	a.mu.Unlock()
	var done []func()
	for _, p := range a.cfg.Providers {
		for _, r := range e.desc.Held {
			err := ctx.Err()
			if err == nil {
				err = p.Register(e.held[r])
			}
			if err != nil {
				for _, undo := range done {
					undo()
				}
				a.mu.Lock()
				delete(a.engines, spec.ID)
				a.mu.Unlock()
				e.cancel()
				return nil, blame.On(blame.Provider, fmt.Errorf("agent: register rank %d with provider %s: %w", r, p.Name(), err))
			}
			done = append(done, func() { _ = p.Unregister(spec.ID, r) })
		}
	}
	a.log.Info().Str("engine", spec.ID).Str("incarnation", spec.Incarnation).Ints("ranks", e.desc.Held).Msg("engine registered")
	return e, nil
}

// reserve takes an engine's id before its memory is touched: measuring that of
// an engine at work would destroy it.
func (a *Agent) reserve(spec EngineSpec) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	if e := a.engines[spec.ID]; e != nil {
		return blame.On(blame.Local, fmt.Errorf("agent: engine %q is registered already, as incarnation %q", spec.ID, e.desc.Incarnation))
	}
	if _, ok := a.reserved[spec.ID]; ok {
		return blame.On(blame.Local, fmt.Errorf("agent: engine %q is being registered", spec.ID))
	}
	a.reserved[spec.ID] = struct{}{}
	return nil
}

func (a *Agent) newEngine(ctx context.Context, spec EngineSpec) (*Engine, error) {
	e := &Engine{agent: a, held: map[int]memory.Rank{}, offers: map[transfer.ID]*Offered{}, expects: map[transfer.ID]*Expected{},
		requests: map[string]struct{}{}, peers: map[*Peer]struct{}{}, inbound: map[inboundKey]*Peer{}, askers: map[inboundKey]*asker{}, previous: map[geometry.Digest][][]plan.Assignment{}, arrived: make(chan struct{}), moves: map[*Transfer]struct{}{}}
	for _, m := range spec.Held {
		if m.Engine != spec.ID {
			return nil, fmt.Errorf("agent: held rank %d is memory of engine %q, want %q", m.Rank, m.Engine, spec.ID)
		}
		if _, ok := e.held[m.Rank]; ok {
			return nil, fmt.Errorf("agent: rank %d is held twice", m.Rank)
		}
		e.held[m.Rank] = m
		e.desc.Held = append(e.desc.Held, m.Rank)
	}
	slices.Sort(e.desc.Held)
	e.desc.Side = plan.Side{Engine: spec.ID, Model: spec.Model, Shard: spec.Shard, Groups: spec.Pools, Ranks: spec.Layouts}
	e.desc.Incarnation, e.desc.State = spec.Incarnation, session.Declared
	if errs := e.desc.Validate("engine"); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, m := range spec.Held {
		if err := e.fits(m); err != nil {
			return nil, err
		}
	}
	if err := spec.About.Validate("about", len(spec.Layouts)); err != nil {
		return nil, fmt.Errorf("agent: engine %q: %w", spec.ID, err)
	}
	if e.site = a.here(e, spec.About); e.site.Validate("site", len(spec.Layouts)) != nil {
		e.site.About = spec.About // what was found out is too much beside what was said
	}
	if err := a.layouts.check(spec); err != nil {
		return nil, err
	}
	key := slices.Clone(spec.Key)
	if key == nil {
		if len(e.held) != len(spec.Layouts) {
			return nil, fmt.Errorf("agent: engine %q: %d of %d ranks are held elsewhere and Key is absent: its agents need one in common", spec.ID, len(spec.Layouts)-len(e.held), len(spec.Layouts))
		}
		key = make([]byte, 32)
		rand.Read(key)
	}
	if len(key) < 32 {
		return nil, fmt.Errorf("agent: engine %q: Key has %d bytes, want at least 32", spec.ID, len(key))
	}
	e.owner = transfer.Owner{Engine: spec.ID, Incarnation: spec.Incarnation, Group: a.cfg.Group, Key: key}
	e.shape = transfer.NewShape(spec.Model)
	e.blocks = newLedger(len(spec.Pools))
	e.scratch, e.probing, e.probed = spec.Scratch, make(chan struct{}, 1), map[probeKey]bool{}
	if spec.Kernel != nil {
		e.kernel = &exclusive{make(chan struct{}, 1), spec.Kernel}
		e.owner.Engine = spec.ID
		if _, err := e.scratchTokens(); err != nil {
			return nil, err
		}
		e.desc.Probes, e.desc.State = true, session.Measured
		ctx, cancel := context.WithTimeoutCause(ctx, a.times.Measure, fmt.Errorf("measuring the engine's kernel took longer than %v", a.times.Measure))
		defer cancel()
		switch err := e.measure(ctx, e.kernel); {
		case errors.Is(err, measure.ErrTooLarge):
			e.desc.State = session.Declared
			a.log.Warn().Err(err).Str("engine", spec.ID).Msg("layouts are believed as declared")
		case err != nil:
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
			}
			return nil, fmt.Errorf("agent: engine %q: %w", spec.ID, err)
		}
	}
	e.ctx, e.cancel = context.WithCancel(a.ctx)
	return e, nil
}

// fits checks a rank's memory against its layouts.
func (e *Engine) fits(m memory.Rank) error {
	layouts := e.desc.Side.Ranks[m.Rank]
	if len(m.Buffers) != len(layouts) || len(m.Generations) != len(layouts) {
		return fmt.Errorf("agent: rank %d: memory for %d groups and generations for %d, the model has %d", m.Rank, len(m.Buffers), len(m.Generations), len(layouts))
	}
	for g, l := range layouts {
		if l == nil {
			continue
		}
		if len(m.Buffers[g]) != len(l.Regions) {
			return fmt.Errorf("agent: rank %d group %d: %d buffers, the layout has %d regions", m.Rank, g, len(m.Buffers[g]), len(l.Regions))
		}
		for i, r := range l.Regions {
			b := m.Buffers[g][i]
			switch {
			case b == nil:
				return fmt.Errorf("agent: rank %d region %q has no buffer", m.Rank, r.Name)
			case b.Name() != r.Name:
				return fmt.Errorf("agent: rank %d region %d is called %q in memory and %q in the layout", m.Rank, i, b.Name(), r.Name)
			case b.Size() < r.Bytes:
				return fmt.Errorf("agent: rank %d region %q is too small: %d bytes, the layout needs %d", m.Rank, r.Name, b.Size(), r.Bytes)
			}
		}
		if m.Generations[g] == nil || m.Generations[g].Blocks() < l.Extent.Blocks {
			return fmt.Errorf("agent: rank %d group %d: generations for fewer than %d blocks", m.Rank, g, l.Extent.Blocks)
		}
	}
	return nil
}

// Side is the engine as it appears in a pair. It must not be modified.
func (e *Engine) Side() *plan.Side { return &e.desc.Side }

// Close ends everything of the engine, as Agent.Close does for all. When it
// returns nothing touches its memory any more.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.closed = true
	close(e.arrived)
	var peers []*Peer
	for p := range e.peers {
		peers = append(peers, p)
	}
	for _, o := range e.offers {
		o.post(offerEvent{ev: transfer.End{Reason: transfer.Shut}})
	}
	for _, x := range e.expects {
		x.post(expectEvent{ev: transfer.End{Reason: transfer.Shut}})
	}
	for t := range e.moves {
		t.box.post(moveEvent{ev: transfer.Abort{Err: transfer.ErrShut}})
	}
	e.mu.Unlock()
	e.cancel() // fences in progress end: Unregister below is stronger
	e.wg.Wait()
	for _, p := range peers {
		p.shut("the engine was closed")
	}
	a := e.agent
	a.mu.Lock()
	delete(a.engines, e.owner.Engine)
	a.mu.Unlock()
	var errs []error
	for _, p := range a.cfg.Providers {
		for _, r := range e.desc.Held {
			if err := p.Unregister(e.owner.Engine, r); err != nil && !errors.Is(err, transport.ErrClosed) {
				errs = append(errs, blame.On(blame.Provider, fmt.Errorf("agent: unregister rank %d with provider %s: %w", r, p.Name(), err)))
			}
		}
	}
	return errors.Join(errs...)
}

// request is a checked part of an offer, expectation or transfer.
type request struct {
	name     string
	tables   [][]uint32 // by our groups, as stamp.Held says
	first    []int64    // leading entries that they leave out
	from, to int64
	blocks   [][]uint32 // those that hold a token of [from, to)
}

// check validates what an engine asks for: the tables name blocks of the
// pools and hold the tokens.
func (e *Engine) check(name string, tables [][]uint32, from, to int64, write bool) (request, error) {
	bad := func(format string, args ...any) (request, error) {
		return request{}, blame.On(blame.Local, fmt.Errorf("agent: request %q: "+format, append([]any{name}, args...)...))
	}
	if name == "" || len(name) > transfer.MaxRequest {
		return bad("a request's name has 1 to %d bytes", transfer.MaxRequest)
	}
	if from < 0 || from >= to || to > transfer.MaxTokens {
		return bad("tokens [%d, %d) are no range", from, to)
	}
	pools := e.desc.Side.Groups
	if len(tables) != len(pools) {
		return bad("%d block tables, the model has %d groups", len(tables), len(pools))
	}
	total := 0
	for g, t := range tables {
		if total += len(t); total > transfer.MaxTable {
			return bad("more than %d table entries", transfer.MaxTable)
		}
		seen := map[uint32]int{}
		for i, id := range t {
			if int64(id) >= int64(pools[g].Blocks) {
				return bad("group %d: table entry %d is block %d, the pool has %d", g, i, id, pools[g].Blocks)
			}
			if !write {
				continue
			}
			if at, ok := seen[id]; ok {
				return bad("group %d: table entries %d and %d are both block %d: it would be written twice", g, at, i, id)
			}
			seen[id] = i
		}
	}
	held, first, err := stamp.Held(&e.desc.Side, tables, to)
	if err != nil {
		return bad("%w", err)
	}
	r := request{name: name, tables: make([][]uint32, len(tables)), first: first, from: from, to: to, blocks: make([][]uint32, len(tables))}
	for g, t := range held {
		r.tables[g] = slices.Clone(t)
		lo, hi := stamp.Entries(&e.desc.Side, g, from, to)
		r.blocks[g] = r.tables[g][max(lo-first[g], 0):max(hi-first[g], 0)]
	}
	return r, nil
}

// generations returns the words of the tables' blocks. The held ranks' tables
// move together; one that does not is the memory's fault, not the peer's.
func (e *Engine) generations(tables [][]uint32) ([][]uint64, error) {
	e.blocks.mu.Lock() // bumps happen under it
	defer e.blocks.mu.Unlock()
	out := make([][]uint64, len(tables))
	for g, t := range tables {
		out[g] = make([]uint64, len(t))
		first := -1
		for _, rank := range e.desc.Held {
			gen := e.held[rank].Generations[g]
			if e.desc.Side.Ranks[rank][g] == nil || gen == nil {
				continue
			}
			for i, id := range t {
				v := gen.Load(int(id))
				if first < 0 {
					out[g][i] = v
				} else if out[g][i] != v {
					return nil, blame.On(blame.Local, fmt.Errorf("agent: block %d (group %d) has generation %d on rank %d and %d on rank %d", id, g, out[g][i], first, v, rank))
				}
			}
			if first < 0 {
				first = rank
			}
		}
	}
	return out, nil
}

// bump gives blocks of one group new generations on every held rank.
func (e *Engine) bump(g int, blocks []uint32) {
	for _, rank := range e.desc.Held {
		if gen := e.held[rank].Generations[g]; gen != nil && e.desc.Side.Ranks[rank][g] != nil {
			gen.Bump(blocks)
		}
	}
}

// reserve takes a request's name among the engine's live offers or
// expectations (what is one of the two words), and its blocks; or neither.
// Preconditions: e.mu is held.
func (e *Engine) reserve(what, name string, blocks [][]uint32, write bool) error {
	key := what + " " + name
	if e.closed {
		return ErrClosed
	}
	if _, ok := e.requests[key]; ok {
		return blame.On(blame.Local, fmt.Errorf("agent: %s %q is open already", what, name))
	}
	if err := e.blocks.take(blocks, write, fmt.Sprintf("%s %q", what, name)); err != nil {
		return err
	}
	e.requests[key] = struct{}{}
	return nil
}
