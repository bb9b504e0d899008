package transfer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvferry/kvferry/plan/proof"
)

// The machines of both sides over a network that delays and breaks, and a
// provider that fails, in fake time. Whatever happens, every transfer reaches
// one final state after its last operation ended, every offer and expectation
// gives its blocks back once, and never while something touches them.

var errSim = errors.New("simulated")

type simWorld struct {
	mu     sync.Mutex // one event at a time, also where two fall on one instant
	t      *testing.T
	rng    *rand.Rand
	push   bool
	owners []*simOwner
	moves  []*simMove
	count  map[string]int
}

// simOwner is one agent of the owning engine.
type simOwner struct {
	w      *simWorld
	n      int
	offer  *Offer  // pull
	expect *Expect // push
	grants map[Key]*simGrant
	next   Key
	freed  int
	finals int
	ok     bool
	wake   *time.Timer
}

type simGrant struct {
	move    *simMove
	link    int
	revoked bool
	running int
	told    bool // Stopped was posted
}

type simMove struct {
	w       *simWorld
	n       int
	m       *Move
	links   []*simLink
	ops     map[uint64]*simOp
	started bool
	finals  int
	failure error
	wake    *time.Timer
}

type simLink struct {
	alive bool
	key   Key
	last  [2]time.Time // of the last delivery each way
}

type simOp struct{ canceled bool }

func (w *simWorld) delay() time.Duration { return time.Duration(1+w.rng.IntN(20)) * time.Millisecond }

// after runs f in the world after d.
func (w *simWorld) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

// send delivers in order, unless the link breaks first.
func (w *simWorld) send(l *simLink, way int, f func()) {
	if !l.alive {
		return
	}
	at := time.Now().Add(w.delay())
	if !at.After(l.last[way]) {
		at = l.last[way].Add(time.Microsecond)
	}
	l.last[way] = at
	w.after(time.Until(at), func() {
		if l.alive {
			f()
		}
	})
}

func (o *simOwner) step(ev any) {
	now := time.Now()
	var stops []Stop
	var wake time.Time
	if o.w.push {
		r := o.expect.Step(now, ev.(ExpectEvent))
		if ev, ok := ev.(OpenWrite); ok {
			o.answer(ev.Key, r.Err, nil)
		}
		stops, wake = r.Stop, r.Wake
		if r.Final {
			o.finals++
			o.ok = r.Failure == nil
		}
		if r.Free {
			o.free()
		}
	} else {
		r := o.offer.Step(now, ev.(OfferEvent))
		if ev, ok := ev.(OpenRead); ok {
			o.answer(ev.Key, r.Err, r.Ready)
		}
		for _, m := range r.Marks {
			g := o.grants[m.Key]
			o.w.send(g.move.links[g.link], 1, func() { g.move.step(Readied{g.link, m.Boxes}) })
		}
		stops, wake = r.Stop, r.Wake
		if r.Free {
			o.finals++
			o.free()
		}
	}
	for _, s := range stops {
		o.stop(s)
	}
	if o.wake != nil {
		o.wake.Stop()
	}
	if !wake.IsZero() {
		o.wake = o.w.after(time.Until(wake), func() { o.step(Tick{}) })
	}
}

func (o *simOwner) free() {
	o.freed++
	for k, g := range o.grants {
		if g.running > 0 {
			o.w.t.Errorf("owner %d: blocks given back while %d operations of key %d run", o.n, g.running, k)
		}
	}
}

func (o *simOwner) answer(k Key, err error, ready []Box) {
	g := o.grants[k]
	l := g.move.links[g.link]
	if err != nil {
		g.revoked, g.told = true, true
		o.w.count["refused "+short(err)]++
		o.w.send(l, 1, func() { g.move.step(Declined{g.link, err}) })
		return
	}
	o.w.send(l, 1, func() { g.move.step(Permitted{Link: g.link, Boxes: ready}) })
	if !l.alive {
		o.gone(k)
	}
}

func (o *simOwner) gone(k Key) {
	if o.w.push {
		o.step(WriterGone{k, errSim})
	} else {
		o.step(ReaderGone{k})
	}
}

// stop revokes: what runs is noticed within a moment, then Stopped. Where the
// machine asks for a fence, a write stops only when its handle does.
func (o *simOwner) stop(s Stop) {
	g := o.grants[s.Key]
	g.revoked = true
	if s.Tell != nil {
		o.w.send(g.move.links[g.link], 1, func() { g.move.step(Stopping{g.link, s.Tell}) })
	}
	if g.told {
		return
	}
	g.told = true
	var poll func()
	poll = func() {
		if g.running > 0 {
			o.w.after(time.Millisecond, poll)
			return
		}
		if s.Tell == nil && o.w.push {
			o.w.send(g.move.links[g.link], 1, func() { g.move.step(Taken{g.link, nil}) })
		}
		o.step(Stopped{s.Key})
	}
	o.w.after(o.w.delay(), poll)
}

func (m *simMove) step(ev MoveEvent) {
	if !m.started {
		m.started = true
		m.step(Begin{})
	}
	r := m.m.Step(time.Now(), ev)
	for _, i := range r.Open {
		m.open(i)
	}
	for _, s := range r.Submit {
		m.submit(s)
	}
	for _, op := range r.Cancel {
		if x := m.ops[op]; x != nil {
			x.canceled = true
		}
	}
	for _, b := range r.Landed {
		o, l := m.w.owners[b.Link], m.links[b.Link]
		m.w.send(l, 0, func() { o.step(Arrived{l.key, b.Boxes}) })
	}
	for _, d := range r.Done {
		o, l := m.w.owners[d.Link], m.links[d.Link]
		m.w.send(l, 0, func() {
			if m.w.push {
				o.step(WriteDone{l.key, d.Err})
			} else {
				o.step(ReadDone{l.key, d.Err})
			}
		})
	}
	if r.Final {
		m.finals++
		m.failure = r.Failure
		if len(m.ops) > 0 {
			m.w.t.Errorf("move %d: final with %d operations running", m.n, len(m.ops))
		}
		if r.Failure == nil {
			m.w.count["well"]++
			if got := boxText(m.m.Valid()); got != "L0-3 T0-99" {
				m.w.t.Errorf("move %d: done with %s", m.n, got)
			}
		} else {
			m.w.count["failed "+short(r.Failure)]++
		}
	}
	if m.wake != nil {
		m.wake.Stop()
	}
	if !r.Wake.IsZero() {
		m.wake = m.w.after(time.Until(r.Wake), func() { m.step(Tick{}) })
	}
}

func (m *simMove) open(i int) {
	o, l := m.w.owners[i], m.links[i]
	m.w.send(l, 0, func() {
		o.next++
		l.key = o.next
		o.grants[l.key] = &simGrant{move: m, link: i}
		who := fmt.Sprint("engine ", m.n/2)
		if m.w.push {
			o.step(OpenWrite{Key: l.key, Producer: "engine", Ranks: []int{m.n}, Total: len(m.w.moves), From: 0, To: 100, Layers: layers(0, 4)})
		} else {
			o.step(OpenRead{Key: l.key, Consumer: who, Ranks: []int{m.n % 2}, Total: 2, From: 0, To: 100, Layers: layers(0, 4)})
		}
	})
	if !l.alive {
		m.step(Lost{i, errSim})
	}
}

func (m *simMove) submit(s Submission) {
	op := &simOp{}
	m.ops[s.Op] = op
	g := m.w.owners[s.Link].grants[m.links[s.Link].key]
	fails := m.w.rng.IntN(40) == 0
	left := 1 + m.w.rng.IntN(10)
	end := func(err error) {
		delete(m.ops, s.Op)
		m.step(Completed{Op: s.Op, Err: err, Bytes: 1})
	}
	var chunk func()
	chunk = func() {
		switch {
		case op.canceled:
			g.running--
			end(ErrCanceled)
		case g.revoked:
			g.running--
			end(ErrEnded)
		case left == 0 && fails:
			g.running--
			end(ErrProvider)
		case left == 0:
			g.running--
			end(nil)
		default:
			left--
			m.w.after(time.Duration(1+m.w.rng.IntN(5))*time.Millisecond, chunk)
		}
	}
	m.w.after(time.Millisecond, func() {
		switch {
		case g.revoked:
			end(ErrEnded)
		case op.canceled:
			end(ErrCanceled)
		default:
			g.running++
			chunk()
		}
	})
}

func simulate(t *testing.T, p proof.Proven, seed uint64, push bool, count map[string]int) {
	w := &simWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), push: push, count: count}
	w.mu.Lock()
	now := time.Now()
	streaming := w.rng.IntN(2) == 0
	for i := range 1 + w.rng.IntN(2) {
		o := &simOwner{w: w, n: i, grants: map[Key]*simGrant{}}
		lease, limit := time.Duration(200+w.rng.IntN(2000))*time.Millisecond, now.Add(3*time.Second)
		if push {
			o.expect = NewExpect(ExpectSpec{Shape: flatShape(), From: 0, To: 100, Lease: lease, Limit: limit}, now)
		} else {
			o.offer = NewOffer(OfferSpec{Shape: flatShape(), From: 0, To: 100, Lease: lease, Limit: limit, Readers: 1 + w.rng.IntN(2), Streaming: streaming}, now)
		}
		w.owners = append(w.owners, o)
	}
	for i := range 2 * (1 + w.rng.IntN(2)) {
		spec := MoveSpec{Direction: Pull, Shape: flatShape(), From: 0, To: 100, Streaming: streaming, Deadline: now.Add(time.Duration(100+w.rng.IntN(1500)) * time.Millisecond)}
		if push {
			spec.Direction = Push
		}
		m := &simMove{w: w, n: i, ops: map[uint64]*simOp{}}
		for range w.owners {
			m.links = append(m.links, &simLink{alive: true})
			spec.Links = append(spec.Links, w.rng.IntN(4) > 0)
		}
		var err error
		if m.m, err = NewMove(p, spec); err != nil {
			t.Fatal(err)
		}
		w.moves = append(w.moves, m)
	}
	at := func(max int, f func()) {
		w.after(time.Duration(w.rng.IntN(max*1000))*time.Microsecond, f)
	}
	for _, m := range w.moves {
		at(100, func() {
			if !m.started {
				m.started = true
				m.step(Begin{})
			}
		})
		if w.rng.IntN(8) == 0 {
			at(300, func() { m.step(Abort{ErrCanceled}) })
		}
		if push && streaming {
			for l := range 4 {
				at(300, func() { m.step(Written{[]Box{{0, layers(l, l+1), 0, 100}}}) })
			}
		}
		for i, l := range m.links {
			if w.rng.IntN(12) == 0 {
				at(300, func() {
					l.alive = false
					if l.key != 0 {
						w.owners[i].gone(l.key)
					}
					m.step(Lost{i, errSim})
				})
			}
		}
	}
	for _, o := range w.owners {
		o.step(Beaten{}) // arms the lease
		if !push && streaming {
			for c := range 4 {
				at(300, func() { o.step(Written{[]Box{{0, layers(0, 4), int64(c) * 25, int64(c+1) * 25}}}) })
			}
		}
		if w.rng.IntN(8) == 0 {
			at(300, func() { o.step(End{Canceled}) })
		}
	}
	w.mu.Unlock()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	for _, o := range w.owners {
		if o.freed != 1 || o.finals != 1 {
			t.Errorf("owner %d: freed %d times, %d final states", o.n, o.freed, o.finals)
		}
	}
	for _, m := range w.moves {
		if m.finals != 1 {
			t.Errorf("move %d: %d final states", m.n, m.finals)
		}
	}
	if push {
		for _, o := range w.owners {
			if o.ok {
				count["expectation complete"]++
				if got := boxText(o.expect.Valid()); got != "L0-3 T0-99" {
					t.Errorf("owner %d: complete with %s", o.n, got)
				}
			}
		}
	}
}

func TestSimulation(t *testing.T) {
	p := proven(t)
	for _, push := range []bool{false, true} {
		count := map[string]int{}
		n := 2000
		if testing.Short() {
			n = 200
		}
		for seed := range uint64(n) {
			synctest.Test(t, func(t *testing.T) { simulate(t, p, seed, push, count) })
			if t.Failed() {
				t.Fatalf("push %v seed %d", push, seed)
			}
		}
		t.Logf("push %v: %v", push, count)
		for _, want := range []string{"well", "failed canceled", "failed gone", "failed timeout", "failed provider"} {
			if count[want] < n/100 {
				t.Errorf("push %v: only %d times %q", push, count[want], want)
			}
		}
	}
}
