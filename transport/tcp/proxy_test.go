package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/transport"
)

// event is what a proxy does to one connection when so many bytes have passed
// in one direction.
type event struct {
	conn int // in the order of arrival: control, then data; -1: each of them
	up   bool
	at   int64
	do   string // "cut", "flip" a bit, or "stall"
}

// proxy stands between a dialler and a listener.
type proxy struct {
	l     net.Listener
	to    string
	event event
	wg    sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	stalled chan struct{} // closed when a stall begins
	close   chan struct{}
}

func newProxy(t *testing.T, to string, e event) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, event: e, stalled: make(chan struct{}), close: make(chan struct{})}
	p.wg.Go(p.run)
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

func (p *proxy) Close() {
	p.l.Close()
	close(p.close)
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) run() {
	for i := 0; ; i++ {
		a, err := p.l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.to)
		if err != nil {
			a.Close()
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, a, b)
		p.mu.Unlock()
		mine := p.event.conn == i || p.event.conn < 0
		p.wg.Go(func() { p.pipe(b, a, mine && p.event.up) })
		p.wg.Go(func() { p.pipe(a, b, mine && !p.event.up) })
	}
}

func (p *proxy) pipe(to, from net.Conn, disturbed bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	var passed int64
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if at := p.event.at - passed; disturbed && at < int64(n) {
			disturbed = false
			switch p.event.do {
			case "cut":
				to.Write(b[:at])
				return
			case "flip":
				b[at] ^= 0x10
			case "stall":
				to.Write(b[:at])
				p.mu.Lock()
				select {
				case <-p.stalled:
				default:
					close(p.stalled)
				}
				p.mu.Unlock()
				<-p.close
				return
			}
		}
		passed += int64(n)
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

var directions = map[string]transport.Direction{"read": transport.Read, "write": transport.Write}

// A connection that is cut or damaged anywhere, from the first byte of the
// handshake on, ends what runs with the peer: once, with what it was, and
// success means success.
func TestCutAndDamaged(t *testing.T) {
	for _, do := range []string{"cut", "flip"} {
		for conn := range 3 {
			for _, up := range []bool{true, false} {
				for _, at := range []int64{0, 5, 47, 70, 400, 300_000, 2_000_000} {
					if testing.Short() && at%100 > 0 {
						continue
					}
					e := event{conn, up, at, do}
					t.Run(fmt.Sprintf("%s/%d/%v/%d", do, conn, up, at), func(t *testing.T) { disturb(t, e) })
				}
			}
		}
	}
}

func disturb(t *testing.T, e event) {
	w := newWorld(t).open(Options{Handshake: 2 * time.Second})
	p := newProxy(t, string(w.source.Address().Data), e)
	defer p.Close()
	if err := w.connect(p.address()); err != nil {
		var h *HandshakeError
		if !errors.Is(err, transport.ErrPeerGone) && !errors.As(err, &h) {
			t.Errorf("connect: %v", err)
		}
		return
	}
	want := w.moved(w.image(transport.Destination), 0, tokens)
	for i, d := range []transport.Direction{transport.Read, transport.Write} {
		s := submitter(d)
		p := map[transport.Side]*Provider{transport.Source: w.source, transport.Destination: w.destination}[s]
		q := w.source.Health(w.peers[transport.Source]) == nil && w.destination.Health(w.peers[transport.Destination]) == nil
		if !q {
			return
		}
		g := transport.Grant{ID: transport.GrantID{byte(i), 2}, Peer: w.peers[other(s)], Direction: d, Request: w.request(other(s), 0, tokens), Deadline: time.Now().Add(time.Minute),
			Generations: [][]uint64{make([]uint64, len(w.tables[other(s)]))}}
		granter := w.source
		if s == transport.Source {
			granter = w.destination
		}
		if err := granter.Grant(g); err != nil {
			if !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("grant: %v", err)
			}
			return
		}
		id, err := p.Submit(w.operation(s, g.ID, d, 0, tokens))
		if err != nil {
			if !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("submit: %v", err)
			}
			return
		}
		c := w.wait(p, id)
		if c.Err == nil {
			w.same(want, "reported as done")
			continue
		}
		if !errors.Is(c.Err, transport.ErrPeerGone) {
			t.Errorf("ends with %v", c.Err)
		}
		// Both sides know, at whatever end it happened.
		a, b := w.health(w.source, w.peers[transport.Source]), w.health(w.destination, w.peers[transport.Destination])
		var frame *FrameError
		if e.do == "flip" && !errors.As(a, &frame) && !errors.As(b, &frame) {
			t.Errorf("a damaged bit is %v at the source and %v at the destination", a, b)
		}
		return
	}
}

// A link on which nothing moves any more is noticed by both sides within twice
// the progress timeout, even if the kernel of whatever stands in between takes
// every byte; one connection of several suffices.
func TestStallIsNoticed(t *testing.T) {
	const progress = time.Second
	for _, e := range []event{{-1, true, 200, "stall"}, {-1, false, 1000, "stall"}, {1, true, 100, "stall"}, {1, false, 100_000, "stall"}, {0, true, 200, "stall"}} {
		for name, d := range directions {
			t.Run(fmt.Sprintf("%d/%v/%s", e.conn, e.up, name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t).open(Options{Progress: progress})
				w.goroutines = 1 << 20 // others run beside
				p := newProxy(t, string(w.source.Address().Data), e)
				defer p.Close()
				if err := w.connect(p.address()); err != nil {
					t.Fatal(err)
				}
				id, err := w.start(1, d, 0, tokens)
				if err != nil {
					t.Fatal(err)
				}
				q := w.destination
				if d == transport.Write {
					q = w.source
				}
				select {
				case <-p.stalled:
				case <-time.After(patience):
					t.Fatal("the stall was never reached")
				}
				began := time.Now()
				a, b := w.health(w.source, w.peers[transport.Source]), w.health(w.destination, w.peers[transport.Destination])
				if took := float64(time.Since(began)) / float64(progress); took > 2 {
					t.Errorf("noticed after %.1f times the progress timeout", took)
				}
				var stalled *Stalled
				if !errors.As(a, &stalled) && !errors.As(b, &stalled) {
					t.Errorf("the source says %v, the destination %v", a, b)
				}
				// Where only one connection stood still the operation may have
				// been done before.
				if c := w.wait(q, id); c.Err != nil && !errors.Is(c.Err, transport.ErrPeerGone) {
					t.Errorf("ends with %v", c.Err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := w.destination.Fence(ctx, w.peers[transport.Destination]); err != nil {
					t.Errorf("fence: %v", err)
				}
			})
		}
	}
}
