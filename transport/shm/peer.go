package shm

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// peer is one connection. Its gate holds every job of either side that
// touches memory of both.
type peer struct {
	direct.Gate
	provider *Provider
	conn     *conn
	id       transport.PeerID
	token    string
	accepted bool
	// gone is closed when the connection has ended, with the cause before;
	// done when nothing of it is left.
	gone, done chan struct{}
	cause      error

	// Guarded by provider.mu.
	engines map[string]bool // ours, that it may map
	shared  map[direct.RankKey]bool

	mu     sync.Mutex
	views  map[direct.RankKey]*view // its memory
	own    map[uint64]*direct.Job   // our operations, by the number we gave them
	served map[uint64]*direct.Job   // its operations, by the number it gave them
	last   uint64
}

// view is one rank of the peer, mapped.
type view struct {
	direct.Memory
	mapped *host.View
}

func (v *view) close() {
	v.Wait(context.Background(), false)
	v.mapped.Close()
}

func (e *peer) want(engine string)       { e.engines[engine] = true }
func (e *peer) wants(engine string) bool { return e.engines[engine] }

// share shows a rank of ours to the peer. Preconditions: provider.mu is held.
func (e *peer) share(r memory.Rank) error {
	k := direct.RankKey{Engine: r.Engine, Rank: r.Rank}
	if e.shared[k] {
		return nil
	}
	m, d, err := r.Export.(exporter).Export()
	if err != nil {
		return fmt.Errorf("export rank %d of engine %q: %w", r.Rank, r.Engine, err)
	}
	text, err := m.Text()
	if err != nil {
		d.Close()
		return err
	}
	e.shared[k] = true
	e.conn.send(frameMemory, text, d.Files...)
	return nil
}

// unshare tells the peer that memory is gone. Preconditions: provider.mu is
// held.
func (e *peer) unshare(k direct.RankKey) {
	if e.shared[k] {
		delete(e.shared, k)
		e.conn.send(frameForget, forget{k.Engine, k.Rank}.encode())
	}
}

// run receives until the connection ends, then ends all that depends on it.
func (e *peer) run() {
	defer close(e.done)
	err := e.receive()
	e.cause = err
	close(e.gone)
	e.conn.close()
	e.conn.drop()
	e.provider.Core.RevokeAll(e.id)
	e.Shut(transport.ErrPeerGone)
	e.mu.Lock()
	views := e.views
	e.views = nil
	e.mu.Unlock()
	for _, v := range views {
		v.Shut(transport.ErrPeerGone)
		v.close()
	}
	e.Wait(context.Background(), false)
}

func (e *peer) receive() error {
	for {
		kind, body, files, err := e.conn.receive()
		if err != nil {
			return err
		}
		if kind != frameMemory && len(files) > 0 {
			closeFiles(files)
			return &FrameError{kind, "descriptors", "this type has none"}
		}
		switch kind {
		case frameMemory:
			err = e.onMemory(body, files)
		case frameForget:
			err = e.onForget(body)
		case frameAsk:
			err = e.onAsk(body)
		case frameAnswer, frameEnd, frameStop:
			err = e.onReport(kind, body)
		default:
			err = &FrameError{kind, "type", "not known"}
		}
		if err != nil {
			return err
		}
	}
}

// maxViews bounds the ranks that one peer shows.
const maxViews = 1 << 12

func (e *peer) onMemory(body []byte, files []*os.File) error {
	m, err := host.ParseManifest(body)
	if err != nil {
		closeFiles(files)
		return err
	}
	// The descriptors came in this very frame, which pairs them: the token is
	// the manifest's.
	mapped, err := e.provider.owner.Import(m, host.Descriptors{Token: m.Token, Files: files})
	if err != nil {
		return err
	}
	k := direct.RankKey{Engine: m.Engine, Rank: m.Rank}
	v := &view{Memory: direct.Memory{Rank: mapped.Rank()}, mapped: mapped}
	e.mu.Lock()
	ok := e.views != nil && e.views[k] == nil && len(e.views) < maxViews
	if ok {
		e.views[k] = v
	}
	e.mu.Unlock()
	if !ok {
		mapped.Close()
		return &FrameError{frameMemory, "rank", fmt.Sprintf("rank %d of engine %q is mapped already", m.Rank, m.Engine)}
	}
	return nil
}

func (e *peer) onForget(body []byte) error {
	f, err := decodeForget(body)
	if err != nil {
		return err
	}
	k := direct.RankKey{Engine: f.engine, Rank: f.rank}
	e.mu.Lock()
	v := e.views[k]
	delete(e.views, k)
	e.mu.Unlock()
	if v == nil {
		return &FrameError{frameForget, "rank", fmt.Sprintf("rank %d of engine %q is not mapped", f.rank, f.engine)}
	}
	v.Shut(&transport.Unregistered{Engine: f.engine, Rank: f.rank})
	v.close()
	return nil
}

// theirs looks up the peer's memory.
func (e *peer) theirs(engine string) func(rank int) (*direct.Memory, error) {
	return func(rank int) (*direct.Memory, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if v := e.views[direct.RankKey{Engine: engine, Rank: rank}]; v != nil {
			return &v.Memory, nil
		}
		return nil, &transport.Unregistered{Engine: engine, Rank: rank}
	}
}

// onAsk serves an operation of the peer: it lets it read, or copies what it
// writes. What is wrong with the operation is the operation's end, not the
// connection's.
func (e *peer) onAsk(body []byte) error {
	a, err := decodeAsk(body)
	if err != nil {
		return err
	}
	e.mu.Lock()
	_, twice := e.served[a.op]
	e.mu.Unlock()
	if twice {
		return &FrameError{frameAsk, "op", fmt.Sprintf("%d is running", a.op)}
	}
	j, gates, err := e.serve(a)
	if err == nil {
		e.mu.Lock()
		e.served[a.op] = j
		e.mu.Unlock()
		if err = j.Open(e.provider.Core.Mover, gates...); err != nil {
			e.forgetServed(a.op)
		} else if a.direction == transport.Read {
			// What is found stale here costs the reader no copy.
			if err = j.Verify(); err != nil {
				j.Complete(direct.Result{Err: err})
			}
		}
	}
	switch {
	case a.direction == transport.Read:
		e.conn.send(frameAnswer, (&report{op: a.op, err: err}).encode())
	case err != nil:
		e.conn.send(frameEnd, (&report{op: a.op, err: err}).encode())
	default:
		e.provider.Core.Mover.Start(j)
	}
	return nil
}

func (e *peer) serve(a *ask) (*direct.Job, []*direct.Gate, error) {
	core := e.provider.Core
	granted, err := core.Admit(&direct.Ask{Peer: e.id, Grant: a.grant, Direction: a.direction, Request: a.request, Tables: a.tables, Generations: a.generations})
	if err != nil {
		return nil, nil, err
	}
	p := granted.Plan
	j := &direct.Job{Plan: p, Request: granted.Request, Edges: p.Stamper.Edges(&granted.Request)}
	side, across := p.Engine(p.Local), p.Engine(direct.Other(p.Local))
	ours, err := direct.Memories(j.Edges, p.Local, func(rank int) (*direct.Memory, error) { return core.Memory(side.Engine, rank) })
	if err != nil {
		return nil, nil, err
	}
	j.Checks = direct.Checks(p.Pair, &granted.Request, p.Local, granted.Generations, ours)
	gates := append([]*direct.Gate{&granted.Grant.Gate, &e.Gate}, direct.Gates(ours)...)
	if a.direction == transport.Read {
		j.Interrupt = func(err error) { e.conn.send(frameStop, (&report{op: a.op, err: err}).encode()) }
		j.Finish = func(direct.Result) { e.forgetServed(a.op) }
		return j, gates, nil
	}

	theirs, err := direct.Memories(j.Edges, direct.Other(p.Local), e.theirs(across.Engine))
	if err != nil {
		return nil, nil, err
	}
	own, err := widen(p.Pair, &granted.Request, direct.Other(p.Local), a)
	if err != nil {
		return nil, nil, err
	}
	j.Set(direct.Of(&granted.Request, p.Local), ours, own, theirs)
	if err := p.Stamper.Validate(&j.Request); err != nil {
		return nil, nil, err
	}
	snapshots := map[int][][]uint64{}
	for _, s := range a.snapshot {
		snapshots[s.rank] = s.generations
	}
	for rank := range theirs {
		s := snapshots[rank]
		if len(s) != len(a.own) {
			return nil, nil, &transport.Mismatch{Field: "generations", Asked: fmt.Sprintf("%d groups of rank %d", len(s), rank), Grants: fmt.Sprintf("%d groups", len(a.own))}
		}
		for g := range s {
			if len(s[g]) != len(a.own[g]) {
				return nil, nil, &transport.Mismatch{Field: "generations", Asked: fmt.Sprintf("%d entries of rank %d", len(s[g]), rank), Grants: fmt.Sprintf("%d entries", len(a.own[g]))}
			}
		}
	}
	j.Checks = append(j.Checks, direct.SnapshotChecks(across, a.own, snapshots, theirs)...)
	j.Deadline = time.Now().Add(time.Duration(a.remaining))
	j.Finish = func(r direct.Result) {
		e.forgetServed(a.op)
		e.conn.send(frameEnd, (&report{op: a.op, err: r.Err, bytes: r.Bytes, segments: r.Segments}).encode())
	}
	return j, append(gates, direct.Gates(theirs)...), nil
}

func (e *peer) forgetServed(op uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.served, op)
}

// widen returns the writer's tables: the entries that the request moves, with
// what lies before left out.
func widen(p *plan.Pair, r *stamp.Request, across transport.Side, a *ask) (direct.Held, error) {
	if n := len(p.Source.Groups); len(a.own) != n {
		return direct.Held{}, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("of %d groups", len(a.own)), Grants: fmt.Sprintf("%d groups", n)}
	}
	first := make([]int64, len(a.own))
	for g := range a.own {
		lo, hi := transport.Entries(p, r, across, g)
		if int64(len(a.own[g])) != hi-lo {
			return direct.Held{}, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("%d entries of group %d", len(a.own[g]), g), Grants: fmt.Sprintf("%d for the tokens", hi-lo)}
		}
		first[g] = lo
	}
	return direct.Held{Tables: a.own, First: first}, nil
}

// onReport takes an answer, end or stop. One about an operation that has
// ended meanwhile is late, not wrong.
func (e *peer) onReport(kind uint8, body []byte) error {
	r, err := decodeReport(kind, body)
	if err != nil {
		return err
	}
	if kind == frameAnswer && r.mine {
		return &FrameError{kind, "mine", "an answer is about the receiver's operation"}
	}
	e.mu.Lock()
	j := e.own[r.op]
	if r.mine {
		j = e.served[r.op]
	}
	e.mu.Unlock()
	if j == nil {
		return nil
	}
	switch {
	case kind == frameStop:
		if r.err == nil {
			return &FrameError{kind, "error", "none"}
		}
		j.Stop(r.err)
	case kind == frameEnd:
		if j.Interrupt == nil {
			return &FrameError{kind, "op", "the receiver copies it"}
		}
		j.Complete(direct.Result{Err: r.err, Bytes: r.bytes, Segments: r.segments})
	case r.err != nil:
		j.Stop(r.err)
	default:
		e.begin(j)
	}
	return nil
}

// submit opens an operation of ours with the peer.
func (e *peer) submit(j *direct.Job, s *direct.Submission) (transport.OpID, error) {
	want, err := s.Ask(0) // the peer knows by the connection who asks
	if err != nil {
		return 0, err
	}
	e.mu.Lock()
	e.last++
	n := e.last
	e.own[n] = j
	e.mu.Unlock()
	remove := func() {
		e.mu.Lock()
		delete(e.own, n)
		e.mu.Unlock()
	}
	j.Finish = func(r direct.Result) {
		remove()
		if j.Interrupt == nil {
			e.conn.send(frameEnd, (&report{op: n, mine: true, err: r.Err, bytes: r.Bytes, segments: r.Segments}).encode())
		}
	}
	a := &ask{op: n, grant: want.Grant, direction: want.Direction, request: want.Request, tables: want.Tables, generations: want.Generations, remaining: int64(time.Until(j.Deadline))}
	if want.Direction == transport.Write {
		a.own = s.Entries()
		for rank, g := range s.Snapshot {
			a.snapshot = append(a.snapshot, snapshot{rank, g})
		}
		j.Interrupt = func(err error) { e.conn.send(frameStop, (&report{op: n, mine: true, err: err}).encode()) }
	}
	// Asked for after it is open: the answer finds it.
	id, err := e.provider.Core.Submit(j, append([]*direct.Gate{&e.Gate}, direct.Gates(s.Memories)...)...)
	if err != nil {
		remove()
		return 0, err
	}
	e.conn.send(frameAsk, a.encode())
	return id, nil
}

// begin starts a read of ours that the peer has granted.
func (e *peer) begin(j *direct.Job) {
	if j.Interrupt != nil || j.Source != nil {
		j.Stop(&FrameError{frameAnswer, "op", "not a read that waits"})
		return
	}
	theirs, err := direct.Memories(j.Edges, transport.Source, e.theirs(j.Plan.Pair.Source.Engine))
	if err != nil {
		j.Stop(err)
		return
	}
	if err := j.Enter(direct.Gates(theirs)...); err != nil {
		j.Stop(err)
		return
	}
	j.Source = theirs
	j.Checks = append(j.Checks, direct.Checks(j.Plan.Pair, &j.Request, transport.Source, j.Granted, theirs)...)
	e.provider.Core.Mover.Start(j)
}
