package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// measure has the engine's kernel say where the cache lies. Afterwards the
// measured memory is all zeros.
//
// Errors: *measure.Disagreement, what the kernel returns.
func (e *Engine) measure(ctx context.Context, k measure.Kernel) error {
	side := &e.desc.Side
	for _, rank := range e.desc.Held {
		m := e.held[rank]
		for g, l := range side.Ranks[rank] {
			if l == nil {
				continue
			}
			p := measure.Part{Rank: rank, Group: g, Declared: l}
			for _, b := range m.Buffers[g] {
				p.Regions = append(p.Regions, b.Bytes())
			}
			err := move.Guard(func() error { // the memory is the engine's to take away
				_, err := measure.Run(ctx, k, p)
				for _, r := range p.Regions {
					clear(r)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// scratchTokens is how many tokens the scratch blocks hold in every group.
func (e *Engine) scratchTokens() (int64, error) {
	side := &e.desc.Side
	if len(e.scratch) != len(side.Groups) {
		return 0, fmt.Errorf("agent: engine %q: scratch blocks of %d groups, the model has %d", e.owner.Engine, len(e.scratch), len(side.Groups))
	}
	n := int64(transfer.MaxTokens)
	for g, pool := range side.Groups {
		if !side.Model.Groups[g].State {
			n = min(n, stamp.Capacity(len(e.scratch[g]), pool.Block, *side.ShardOf(g)))
		}
	}
	if n < 1 {
		return 0, fmt.Errorf("agent: engine %q has a kernel and no scratch blocks to probe with", e.owner.Engine)
	}
	if _, err := e.check("probe", e.scratch, 0, n, true); err != nil {
		return 0, err
	}
	return n, nil
}

// probeKey says under which circumstances a probe stays true.
type probeKey struct {
	pair        geometry.Digest
	plan        geometry.Digest
	incarnation string // the peer's
	agent       string
}

// settle makes sure that the pair's kernels understand each other, where both
// engines have one: the destination asks for a probe transfer and judges it,
// the source waits for the verdict. It returns nil where nothing is to be
// probed. Every call returns the one result.
func (p *Peer) settle(ctx context.Context) error {
	links, err := p.open()
	if err != nil {
		return err
	}
	first := p.firstResult()
	if p.e.kernel == nil || !first.Peer.Engine.Probes {
		return nil
	}
	p.mu.Lock()
	if p.settled == nil {
		p.settled = make(chan struct{})
		p.e.wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(p.e.ctx, p.e.agent.times.Transfer, fmt.Errorf("the probe took longer than %v", p.e.agent.times.Transfer))
			defer cancel()
			err := p.probe(ctx, links)
			if err != nil {
				err = fmt.Errorf("agent: probe engine %q: %w", first.Peer.Engine.Side.Engine, err)
			}
			p.mu.Lock()
			p.unfit = err
			p.mu.Unlock()
			close(p.settled)
			if err != nil {
				p.shut(err.Error())
			}
		})
	}
	settled := p.settled
	p.mu.Unlock()
	select {
	case <-settled:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.unfit
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Probed reports whether what the source's kernel wrote was read by the
// destination's kernel, through the plan and the provider.
func (p *Peer) Probed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.settled: // nil: never
		return p.unfit == nil
	default:
		return false
	}
}

func (p *Peer) probe(ctx context.Context, links []*link) error {
	if p.role == session.Source {
		for _, l := range links {
			select {
			case <-l.judged:
				if err := l.verdict.Err(); err != nil {
					return err
				}
			case <-l.done:
				return fmt.Errorf("%w: %w", transfer.ErrGone, l.err)
			case <-ctx.Done():
				return blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrTimeout, context.Cause(ctx)))
			}
		}
		return nil
	}
	var err error
	if !p.known(links) {
		for {
			if err = p.once(ctx, links); !errors.Is(err, transfer.ErrBusy) || ctx.Err() != nil {
				break
			}
			// Two engines that probe each other, or many that probe one, take
			// turns: whoever is told so lets go of its own blocks, and comes again.
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(10+rand.IntN(90)) * time.Millisecond):
			}
		}
		if err == nil {
			p.remember(links)
		}
	}
	for _, l := range links {
		l.send(&transfer.Verdict{Failure: transfer.Failed(err)})
	}
	return err
}

// once asks for a probe and takes it. Meanwhile the engine's scratch blocks are
// its own: it serves no other probe.
func (p *Peer) once(ctx context.Context, links []*link) error {
	select {
	case p.e.probing <- struct{}{}:
		defer func() { <-p.e.probing }()
	case <-ctx.Done():
		return blame.On(blame.Local, fmt.Errorf("%w: other probes are under way: %w", transfer.ErrTimeout, context.Cause(ctx)))
	}
	asked, err := p.ask(ctx, links)
	if err != nil {
		return err
	}
	return p.take(ctx, asked)
}

func (p *Peer) key(l *link) probeKey {
	h := l.result.Peer
	return probeKey{l.result.Pair.Digest(), l.result.Alternatives[0].Proven.Digest(), h.Engine.Incarnation, h.Agent}
}

// known reports whether all links were probed before, under the same pair and
// incarnation.
func (p *Peer) known(links []*link) bool {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for _, l := range links {
		if !p.e.probed[p.key(l)] {
			return false
		}
	}
	return true
}

// maxProbed bounds the probes that an engine remembers.
const maxProbed = 1 << 12

func (p *Peer) remember(links []*link) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if len(p.e.probed) > maxProbed {
		clear(p.e.probed) // asked for again
	}
	for _, l := range links {
		p.e.probed[p.key(l)] = true
	}
}

// probeAsked is a probe that the source has written.
type probeAsked struct {
	ticket string
	tokens int64
	pass   int // which values it has: other ones each time, so that none is left from before
}

// ask has every agent of the source write a probe.
func (p *Peer) ask(ctx context.Context, links []*link) (probeAsked, error) {
	n, err := p.e.scratchTokens()
	if err != nil {
		return probeAsked{}, err
	}
	out := probeAsked{tokens: n, pass: rand.IntN(measure.Digits)}
	for _, l := range links {
		l.send(&transfer.Probe{Tokens: out.tokens, Pass: out.pass, Ticket: out.ticket})
		select {
		case m := <-l.probes:
			if err := m.Failure.Err(); err != nil {
				return out, fmt.Errorf("the source writes a probe: %w", err)
			}
			if out.ticket != "" && (m.Ticket != out.ticket || m.Tokens != out.tokens) || m.Tokens > out.tokens {
				return out, blame.On(blame.Peer, errors.New("the source's agents probe with different offers"))
			}
			out.ticket, out.tokens = m.Ticket, m.Tokens
		case <-l.done:
			return out, fmt.Errorf("%w: %w", transfer.ErrGone, l.err)
		case <-ctx.Done():
			return out, blame.On(blame.Peer, fmt.Errorf("%w: %w", transfer.ErrTimeout, context.Cause(ctx)))
		}
	}
	return out, nil
}

// take pulls a probe and compares what our kernel reads.
func (p *Peer) take(ctx context.Context, asked probeAsked) error {
	e := p.e
	tables, err := e.shorten(asked.tokens)
	if err != nil {
		return err
	}
	t, err := p.pull(ctx, Pull{Ticket: Ticket(asked.ticket), Tables: tables, Tokens: asked.tokens, Timeout: e.agent.times.Transfer}, true)
	if err != nil {
		return err
	}
	result, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	side := &e.desc.Side
	for _, rank := range e.desc.Held {
		for g, l := range side.Ranks[rank] {
			if l == nil || slices.Contains(result.Absent, side.Model.Groups[g].Name) {
				continue
			}
			want, err := measure.Probe(side, rank, g, tables, asked.tokens, asked.pass)
			if err != nil {
				return err
			}
			for _, b := range tables[g] {
				got := slices.Clone(want[b])
				for i := range got {
					got[i].Bits = 0
				}
				if err := e.kernel.Read(ctx, rank, g, b, got); err != nil {
					return blame.On(blame.Local, fmt.Errorf("read scratch block %d with the engine's kernel: %w", b, err))
				}
				if err := measure.Compare(side, rank, g, b, want[b], got); err != nil {
					return blame.On(blame.Peer, err)
				}
			}
		}
	}
	return nil
}

// exclusive lets one goroutine at a time use a kernel.
type exclusive struct {
	turn   chan struct{} // a slot
	kernel measure.Kernel
}

func (x *exclusive) Write(ctx context.Context, rank, group int, block uint32, set []measure.Set) error {
	x.turn <- struct{}{}
	defer func() { <-x.turn }()
	return x.kernel.Write(ctx, rank, group, block, set)
}

func (x *exclusive) Read(ctx context.Context, rank, group int, block uint32, get []measure.Set) error {
	x.turn <- struct{}{}
	defer func() { <-x.turn }()
	return x.kernel.Read(ctx, rank, group, block, get)
}

// shorten is the scratch tables for n tokens: surplus blocks are left alone.
func (e *Engine) shorten(n int64) ([][]uint32, error) {
	out := make([][]uint32, len(e.scratch))
	for g, t := range e.scratch {
		_, need := stamp.Entries(&e.desc.Side, g, 0, n)
		if e.desc.Side.Groups[g].Ring > 0 || need > int64(len(t)) {
			need = int64(len(t))
		}
		out[g] = t[:need]
	}
	return out, nil
}

// serveProbes serves what the peer asks for until the verdict or the link's
// end.
func (l *link) serveProbes() {
	for {
		select {
		case m := <-l.asksProbe:
			l.serveProbe(m)
		case <-l.judged:
			return
		case <-l.done:
			return
		case <-l.engine.ctx.Done():
			return
		}
	}
}

// serveProbe writes a probe with our kernel and offers it until the verdict, or
// until the peer asks again.
func (l *link) serveProbe(m *transfer.Probe) {
	e := l.engine
	reply := func(out *transfer.Probed, err error) {
		out.Failure = transfer.Failed(err)
		l.send(out)
	}
	select {
	case e.probing <- struct{}{}:
		defer func() { <-e.probing }()
	default:
		reply(&transfer.Probed{}, blame.On(blame.Local, transfer.ErrBusy))
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.agent.times.Transfer)
	defer cancel()
	offered, n, err := e.offerProbe(ctx, m)
	if err != nil {
		reply(&transfer.Probed{}, err)
		return
	}
	reply(&transfer.Probed{Ticket: string(offered.Ticket()), Tokens: n}, nil)
	select {
	case <-l.judged:
	case <-l.done:
	case <-offered.done:
	case <-ctx.Done():
	case again := <-l.asksProbe:
		select {
		case l.asksProbe <- again:
		default: // the peer filled the place meanwhile, and hears of that
		}
	}
	offered.Cancel()
	<-offered.done
}

func (e *Engine) offerProbe(ctx context.Context, m *transfer.Probe) (*Offered, int64, error) {
	if e.kernel == nil {
		return nil, 0, blame.On(blame.Peer, errors.New("agent: probe: the engine has no kernel to probe with"))
	}
	n, err := e.scratchTokens()
	if err != nil {
		return nil, 0, err
	}
	n = min(n, m.Tokens)
	tables, err := e.shorten(n)
	if err != nil {
		return nil, 0, err
	}
	// Reserved first, so that nothing else uses the blocks while they are
	// written.
	offered, err := e.Offer(ctx, Offer{Request: fmt.Sprintf("probe %016x", rand.Uint64()), Tables: tables, Tokens: n, TTL: e.agent.times.Transfer, Ticket: Ticket(m.Ticket), Streaming: true})
	if err != nil {
		return nil, 0, err
	}
	if err = e.writeProbe(ctx, tables, n, m.Pass); err == nil {
		err = offered.Ready(e.shape.Boxes(e.shape.Layers(), 0, n)...)
	}
	if err != nil {
		offered.Cancel()
		<-offered.done
		return nil, 0, err
	}
	return offered, n, nil
}

func (e *Engine) writeProbe(ctx context.Context, tables [][]uint32, n int64, pass int) error {
	side := &e.desc.Side
	for _, rank := range e.desc.Held {
		for g, l := range side.Ranks[rank] {
			if l == nil {
				continue
			}
			sets, err := measure.Probe(side, rank, g, tables, n, pass)
			if err != nil {
				return err
			}
			for _, b := range tables[g] {
				if err := e.kernel.Write(ctx, rank, g, b, sets[b]); err != nil {
					return blame.On(blame.Local, fmt.Errorf("agent: probe: write scratch block %d with the engine's kernel: %w", b, err))
				}
			}
		}
	}
	return nil
}
