package tcp

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// maxQueued bounds the frames that wait for a peer that does not read them.
const maxQueued = 4 << 20

// conn is one connection to a peer: a link, its wrapping, and what waits to be
// written. One goroutine reads it and one writes it.
type conn struct {
	link   *link
	c      net.Conn // link, or what Options.Wrap made of it
	tcp    *net.TCPConn
	tuned  Link
	stream int // -1: control
	reader reader

	mu     sync.Mutex
	frames []byte  // whole frames
	parts  []*part // that have bytes to send, taking turns
	wake   chan struct{}
}

// newConn sets up a connected socket; it must end within the given time
// unless released. On an error the socket is closed.
func (o *Options) newConn(t *net.TCPConn, dialler bool, deadline time.Time) (*conn, error) {
	tuned, err := o.tune(t)
	if err != nil {
		t.Close()
		return nil, err
	}
	l := &link{Conn: t, progress: o.Progress}
	l.until(deadline)
	c := &conn{link: l, c: l, tcp: t, tuned: tuned, wake: make(chan struct{}, 1)}
	if o.Wrap != nil {
		if c.c, err = o.Wrap(l, dialler); err != nil {
			t.Close()
			return nil, err
		}
	}
	// Long bodies are read past this buffer; it is for headers and small frames.
	c.reader.r = bufio.NewReaderSize(c.c, 4096)
	return c, nil
}

func (c *conn) close() { c.tcp.Close() }

// send queues a frame and returns false if too many wait.
func (c *conn) send(frame []byte) bool {
	c.mu.Lock()
	ok := len(c.frames)+len(frame) <= maxQueued
	if ok {
		c.frames = append(c.frames, frame...)
	}
	c.mu.Unlock()
	c.signal()
	return ok
}

// push queues a part behind those that wait for their turn.
func (c *conn) push(p *part) {
	c.mu.Lock()
	c.parts = append(c.parts, p)
	c.mu.Unlock()
	c.signal()
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pop returns what to write next: frames, swapped with the spent buffer, or
// the part whose turn it is.
func (c *conn) pop(spent []byte) (frames []byte, p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) > 0 {
		frames, c.frames = c.frames, spent[:0]
		return frames, nil
	}
	if len(c.parts) > 0 {
		p = c.parts[0]
		c.parts = slices.Delete(c.parts, 0, 1)
	}
	return nil, p
}
