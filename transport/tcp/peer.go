package tcp

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// peer is one end of the connections to a peer. Its gate holds the jobs of
// either side that touch this side's memory.
type peer struct {
	direct.Gate
	provider *Provider
	id       transport.PeerID
	token    key
	control  *conn
	data     []*conn
	interval time.Duration // of pings
	done     chan struct{} // closed when the peer is gone
	wg       sync.WaitGroup

	claimed bool        // guarded by provider.mu; so is unclaimed
	expiry  *time.Timer // of an accepted peer that nobody claims

	mu     sync.Mutex
	err    error                // why the peer is gone
	last   uint64               // last operation asked for here
	mine   map[uint64]*transfer // operations submitted here
	asked  uint64               // last operation that the peer asked for
	served map[uint64]*transfer // its operations
}

// maxServed bounds the operations that a peer has under way here.
const maxServed = 1 << 16

// farewell bounds how long a connection that ends waits for its last words to
// be taken.
const farewell = 250 * time.Millisecond

// errBye is the cause of a peer that left on purpose.
var errBye = errors.New("transport/tcp: the peer closed the connection")

func (p *Provider) newPeer(token key, control *conn, data []*conn, theirs uint32) *peer {
	progress := p.o.Progress
	if t := time.Duration(theirs) * time.Millisecond; t < progress {
		progress = t
	}
	e := &peer{
		provider: p, token: token, control: control, data: data, interval: max(progress/3, 10*time.Millisecond),
		done: make(chan struct{}), mine: map[uint64]*transfer{}, served: map[uint64]*transfer{},
	}
	control.stream = -1
	for i, c := range data {
		c.stream = i
	}
	e.wg.Add(2 * (1 + len(data)))
	return e
}

// run starts the peer's goroutines; they end after fail.
// Preconditions: the peer was added to its provider.
func (e *peer) run() {
	for _, c := range append([]*conn{e.control}, e.data...) {
		c.link.until(time.Time{})
		e.provider.wg.Add(2)
		end := func() {
			e.wg.Done()
			e.provider.wg.Done()
		}
		go func() {
			defer end()
			e.fail(e.read(c))
		}()
		go func() {
			defer end()
			e.fail(e.write(c))
			if c == e.control {
				e.sayBye()
			}
			c.close()
		}()
	}
}

// fail ends the peer: everything that runs with it, its grants, and its
// connections. Only the first error counts. It does not wait.
func (e *peer) fail(err error) {
	if err == nil {
		return // the other goroutine of a connection said why
	}
	e.mu.Lock()
	if e.err != nil {
		e.mu.Unlock()
		return
	}
	e.err = gone(e.id, err)
	e.mu.Unlock()
	bye := &report{err: err}
	if errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerGone) {
		bye.err = transport.ErrPeerGone
	}
	h := header{kind: kindBye}
	e.control.send(h.frame(bye.encode(kindBye)))
	close(e.done)
	for _, c := range e.data {
		c.close()
	}
	// The control connection has a moment to say why.
	e.control.link.until(time.Now().Add(min(e.provider.o.Progress/8, farewell)))
	e.Shut(e.err)
	e.provider.Core.RevokeAll(e.id)
	e.provider.lost(e)
}

// sayBye writes what is left to say on the control connection.
func (e *peer) sayBye() {
	if frames, _ := e.control.pop(nil); frames != nil {
		e.control.c.Write(frames) // the peer may well be gone
	}
}

// gone returns why the peer is gone, or nil.
func (e *peer) gone() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// send queues a control frame. A peer that does not read what it is sent is
// given up.
func (e *peer) send(h header, body []byte) {
	if e.gone() == nil && !e.control.send(h.frame(body)) {
		e.fail(fmt.Errorf("transport/tcp: %d bytes of frames wait for the peer, which does not read them", maxQueued))
	}
}

// write writes what waits on a connection, or a ping when nothing did for
// long.
func (e *peer) write(c *conn) error {
	timer := time.NewTimer(e.interval)
	defer timer.Stop()
	ping := (&header{kind: kindPing}).frame(nil)
	var spent, chunk []byte
	for {
		select {
		case <-e.done:
			return nil
		default:
		}
		frames, p := c.pop(spent)
		switch {
		case frames != nil:
			if _, err := c.c.Write(frames); err != nil {
				return err
			}
			spent = frames
			if cap(spent) > maxBody {
				spent = nil
			}
		case p != nil:
			if chunk == nil {
				chunk = make([]byte, headerSize+e.provider.o.Chunk)
			}
			if err := e.sendChunk(c, p, chunk); err != nil {
				return err
			}
		default:
			timer.Reset(e.interval)
			select {
			case <-e.done:
				return nil
			case <-c.wake:
			case <-timer.C:
				if _, err := c.c.Write(ping); err != nil {
					return err
				}
			}
		}
	}
}

// read reads a connection's frames until one is wrong or the connection ends.
func (e *peer) read(c *conn) error {
	var h header
	for {
		n, err := c.reader.next(&h)
		if err == nil {
			err = e.on(c, &h, n)
		}
		switch {
		case err == io.EOF:
			return errBye
		case err != nil:
			return err
		}
	}
}

// on handles a frame of which the header has been read.
func (e *peer) on(c *conn, h *header, length int) error {
	control := c.stream < 0
	if h.kind == kindData {
		if control {
			return h.bad("connection", "control", "data")
		}
		return e.onData(c, h, length)
	}
	if !control && h.kind != kindPing {
		return h.bad("connection", "data", "control")
	}
	body, err := c.reader.body(h, length)
	if err != nil {
		return err
	}
	switch h.kind {
	case kindAsk:
		return e.onAsk(h, body)
	case kindGo:
		return e.onGo(h)
	case kindEnd:
		return e.onEnd(h, body)
	case kindStop:
		return e.onStop(h, body)
	case kindBye:
		r, err := decodeReport(kindBye, body)
		switch {
		case err != nil:
			return err
		case errors.Is(r.err, transport.ErrPeerGone):
			return errBye
		}
		return fmt.Errorf("%w: %w", errBye, r.err)
	}
	return nil // a ping
}

// find looks up an operation that the sender of h means. One that has ended is
// nil; one that never was is an error.
func (e *peer) find(h *header) (*transfer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, last := e.mine[h.op], e.last
	if h.mine {
		t, last = e.served[h.op], e.asked
	}
	if t == nil && h.op > last {
		return nil, h.bad("op", h.op, "at most %d, the last that was asked for", last)
	}
	return t, nil
}
