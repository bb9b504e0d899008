package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// cutter passes frames between two agents and cuts both ways after so many.
type cutter struct {
	t       testing.TB
	to      string
	l       net.Listener
	address string
	wg      sync.WaitGroup

	stall bool // swallow everything instead of cutting, as a peer that hangs

	mu    sync.Mutex
	left  int
	seen  []string
	conns []net.Conn
}

func newCutter(t testing.TB, to string, frames int, stall bool) *cutter {
	path := filepath.Join(t.TempDir(), "cut")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, to: strings.TrimPrefix(to, "unix:"), l: l, address: "unix:" + path, left: frames, stall: stall}
	c.wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("unix", c.to)
			if err != nil {
				a.Close()
				return
			}
			c.mu.Lock()
			c.conns = append(c.conns, a, b)
			c.mu.Unlock()
			c.wg.Go(func() { c.copy(a, b, ">") })
			c.wg.Go(func() { c.copy(b, a, "<") })
		}
	})
	return c
}

func (c *cutter) copy(from, to net.Conn, arrow string) {
	defer from.Close()
	defer to.Close()
	for {
		var head [session.HeaderSize]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return
		}
		h, err := session.ParseHeader(head)
		if err != nil {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		if beat := h.Type == session.Type(transfer.TypeBeat); !beat || c.stall {
			c.mu.Lock()
			if !beat || c.left < 0 {
				c.left--
			}
			cut := c.left < 0
			if !cut {
				c.seen = append(c.seen, arrow+h.Type.String())
			}
			c.mu.Unlock()
			if cut && c.stall {
				continue
			}
			if cut { // both directions end, as when the peer is killed
				c.mu.Lock()
				for _, x := range c.conns {
					x.Close()
				}
				c.mu.Unlock()
				return
			}
		}
		if _, err := to.Write(append(head[:], payload...)); err != nil {
			return
		}
	}
}

func (c *cutter) close() {
	c.l.Close()
	c.mu.Lock()
	for _, x := range c.conns {
		x.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: descriptors cannot be counted")
	}
	return len(list)
}

// The connection dies after every number of frames, in both modes: a typed
// error or a whole result on each side, never a block that stays away, and
// nothing leaks.
func TestDeathAtEachStep(t *testing.T) {
	for name, open := range providers {
		for _, mode := range []string{"pull", "push"} {
			t.Run(name+" "+mode, func(t *testing.T) { deaths(t, open, mode) })
		}
	}
}

func deaths(t *testing.T, open func() (transport.Provider, error), mode string) {
	const tokens = 48
	r := rig{open: open}
	s, d := r.pair(t, tp2, tp4)
	fds := descriptors(t)
	for n := 0; ; n++ {
		if n > 40 {
			t.Fatal("a whole exchange takes more than 40 frames")
		}
		d.soil()
		c := newCutter(t, s.Address(), n, false)
		if mode == "push" {
			c.close()
			c = newCutter(t, d.Address(), n, false)
		}
		st, dt := s.table(tokens), d.table(tokens)
		s.fill(7, st, allLayers, 0, tokens)
		connect := func(n *node, role transport.Side) (*agent.Peer, error) {
			return n.engine.Connect(t.Context(), agent.Dial{Addresses: []string{c.address}, Role: role})
		}
		var acted, owned error
		if mode == "pull" {
			o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
			p, err := connect(d, transport.Destination)
			if err == nil {
				err = pull(t, p, o.Ticket(), dt, tokens)
				p.Close()
			}
			acted = err
			time.AfterFunc(20*time.Millisecond, o.Cancel) // whatever the reader reported in time counts
			wait(t, "freed", func(ctx context.Context) error { _, owned = o.Wait(ctx); return ctx.Err() })
		} else {
			x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "r", Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			p, err := connect(s, transport.Source)
			if err == nil {
				var y *agent.Transfer
				if y, err = p.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens}); err == nil {
					_, err = y.Wait(t.Context())
				}
				p.Close()
			}
			acted = err
			if err != nil {
				time.AfterFunc(20*time.Millisecond, x.Cancel)
			}
			wait(t, "final", func(ctx context.Context) error { _, owned = x.Wait(ctx); return ctx.Err() })
			wait(t, "free", x.Free)
		}
		c.close()
		if acted == nil && mode == "pull" || owned == nil && mode == "push" {
			d.check(fmt.Sprint(mode, " reported well after ", n, " frames"), moved{7, dt, allLayers, 0, tokens})
		}
		for _, e := range []error{acted, owned} {
			known := e == nil
			for _, k := range []error{transfer.ErrGone, transfer.ErrCanceled, agent.ErrClosed} {
				known = known || errors.Is(e, k)
			}
			if !known {
				t.Errorf("%s: after %d frames: %v is none of the errors expected", mode, n, e)
			}
		}
		if acted != nil && blame.Of(acted) != blame.Peer {
			t.Errorf("%s: after %d frames: %v blames %s", mode, n, acted, blame.Of(acted))
		}
		for _, x := range []struct {
			n *node
			b [][]uint32
		}{{s, st}, {d, dt}} {
			if err := x.n.blocks.Release(x.b[0]); err != nil {
				t.Fatal(err)
			}
		}
		whole := acted == nil && owned == nil
		if whole {
			if n < 9 {
				t.Errorf("%s: done after %d frames %v", mode, n, c.seen)
			}
			t.Logf("%s: %d steps: %v", mode, n, c.seen)
			break
		}
	}
	eventually(t, fmt.Sprintf("%s: going back to %d descriptors, have %d", mode, fds, descriptors(t)), func() bool { return descriptors(t) <= fds })
	d.dial(transport.Destination, s)
}

// The peer hangs at each step: it keeps its connection and says nothing any
// more. Deadlines end it, on both sides.
func TestHangAtEachStep(t *testing.T) {
	t.Parallel()
	const tokens = 48
	var r rig
	quick := option(func(c *agent.Config, _ *agent.EngineSpec) {
		c.Timeouts.Handshake, c.Timeouts.Idle = 150*time.Millisecond, 150*time.Millisecond
	})
	s, d := r.pair(t, tp2, tp4, quick)
	st, dt := s.table(tokens), d.table(tokens)
	for n := range 12 {
		d.soil()
		c := newCutter(t, d.Address(), n, true)
		x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "r", Tables: dt, Tokens: tokens, TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.engine.Connect(t.Context(), agent.Dial{Addresses: []string{c.address}, Role: transport.Source})
		if err == nil {
			var y *agent.Transfer
			if y, err = p.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens}); err == nil {
				_, err = y.Wait(t.Context())
			}
		}
		if n < 11 && (err == nil || blame.Of(err) != blame.Peer || !errors.Is(err, transfer.ErrGone) && !errors.Is(err, transfer.ErrTimeout)) {
			t.Errorf("silent after %d frames %v: %v (blames %s)", n, c.seen, err, blame.Of(err))
		}
		x.Cancel()
		wait(t, "final", func(ctx context.Context) error { _, err := x.Wait(ctx); _ = err; return ctx.Err() })
		wait(t, "free", x.Free)
		c.close()
	}
}
