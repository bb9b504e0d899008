package tcp

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// arrival is an incoming connection whose handshake is not over.
type arrival struct {
	conn net.Conn
	join *join // of a control connection that was welcome
}

// join is a peer of which not all connections have been made.
type join struct {
	token, secret key
	progress      uint32
	control       *conn
	data          []*conn // by stream, nil until it arrives
	missing       int
	arrivals      []*arrival
	expiry        *time.Timer
}

// errExpired is the cause of a handshake that took too long or made way for
// another.
var errExpired = errors.New("transport/tcp: handshake: not all connections of the peer were made in time")

// accept runs until the listener is closed.
func (p *Provider) accept() {
	wait := time.Duration(0)
	for {
		t, err := p.listener.AcceptTCP()
		switch {
		case err == nil:
			wait = 0
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors, or a connection that died while it waited:
			// what is here already must go on.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-p.stopped.Done():
				return
			}
			continue
		}
		if a := p.arrive(t); a != nil {
			p.wg.Go(func() {
				if err := p.welcome(t, a); err != nil && p.o.Refused != nil {
					p.o.Refused(t.RemoteAddr(), err)
				}
			})
		}
	}
}

// arrive counts a connection. When too many are under way the oldest makes
// way: an honest peer is done in moments, one that only holds its place is not.
func (p *Provider) arrive(t *net.TCPConn) *arrival {
	a := &arrival{conn: t}
	p.mu.Lock()
	if p.peers == nil {
		p.mu.Unlock()
		t.Close()
		return nil
	}
	var oldest *arrival
	if len(p.arrivals) >= p.o.Pending {
		oldest = p.arrivals[0]
		p.arrivals = slices.Delete(p.arrivals, 0, 1)
	}
	p.arrivals = append(p.arrivals, a)
	var j *join
	if oldest != nil {
		j = oldest.join
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.conn.Close()
		p.abandon(j)
	}
	return a
}

// leave no longer counts connections.
// Preconditions: p.mu is held.
func (p *Provider) leave(as ...*arrival) {
	p.arrivals = slices.DeleteFunc(p.arrivals, func(a *arrival) bool { return slices.Contains(as, a) })
}

// welcome does an incoming connection's handshake. The connection is then
// refused, or part of a join, or it completes a peer.
func (p *Provider) welcome(t *net.TCPConn, a *arrival) error {
	refuse := func(err error) error {
		t.Close()
		p.mu.Lock()
		p.leave(a)
		p.mu.Unlock()
		return err
	}
	c, err := p.o.newConn(t, false, time.Now().Add(p.o.Handshake))
	if err != nil {
		return refuse(err)
	}
	h, s, err := readHello(c.reader.r)
	w := welcome{version: version, progress: p.o.milliseconds()}
	var e *peer
	if err == nil {
		switch h.role {
		case roleControl:
			w.secret, s, err = p.begin(c, a, &h)
		case roleData:
			e, s, err = p.join(c, a, &h)
		}
	}
	if err != nil {
		if s != statusOK {
			w.secret, w.status = key{}, s
			c.c.Write(w.encode())
			// Bytes not read when a socket is closed make the kernel take back
			// what was written.
			t.CloseWrite()
			io.Copy(io.Discard, io.LimitReader(c.c, 1<<12))
		}
		return refuse(err)
	}
	_, err = c.c.Write(w.encode())
	if e != nil {
		e.run()
		e.fail(err)
	}
	return err
}

// begin makes a join of a control connection.
func (p *Provider) begin(c *conn, a *arrival, h *hello) (secret key, s status, err error) {
	j := &join{token: h.token, progress: h.progress, control: c, data: make([]*conn, h.streams), missing: int(h.streams), arrivals: []*arrival{a}}
	rand.Read(j.secret[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.peers == nil:
		return key{}, statusOK, net.ErrClosed
	case p.tokens[h.token] != nil || p.joins[h.token] != nil:
		return key{}, statusToken, handshake("token", "in use", "the same")
	case p.accepted+len(p.joins) >= p.o.Peers:
		return key{}, statusBusy, handshake("peers", fmt.Sprintf("at most %d", p.o.Peers), "one more")
	}
	p.joins[h.token] = j
	a.join = j
	p.wg.Add(1) // for the timer, or for whoever stops it
	j.expiry = time.AfterFunc(p.o.Handshake, func() {
		defer p.wg.Done()
		p.expire(j)
	})
	return j.secret, statusOK, nil
}

// abandon expires a join, which may be nil or complete, before its time.
func (p *Provider) abandon(j *join) {
	if j != nil && j.expiry.Stop() {
		p.expire(j)
		p.wg.Done()
	}
}

// expire gives up a join of which connections are missing.
func (p *Provider) expire(j *join) {
	p.mu.Lock()
	if p.joins[j.token] != j {
		p.mu.Unlock()
		return
	}
	delete(p.joins, j.token)
	p.leave(j.arrivals...)
	p.mu.Unlock()
	j.control.close()
	for _, c := range j.data {
		if c != nil {
			c.close()
		}
	}
	if p.o.Refused != nil {
		p.o.Refused(j.control.tuned.Remote, fmt.Errorf("%w: %d are missing", errExpired, j.missing))
	}
}

// join adds a data connection to its peer and returns the peer if that was the
// last one.
func (p *Provider) join(c *conn, a *arrival, h *hello) (*peer, status, error) {
	p.mu.Lock()
	j := p.joins[h.token]
	var err error
	switch {
	case p.peers == nil:
		p.mu.Unlock()
		return nil, statusOK, net.ErrClosed
	case j == nil:
		err = handshake("token", "of no connection", h.token)
	case subtle.ConstantTimeCompare(j.secret[:], h.secret[:]) != 1:
		err = handshake("secret", "another", "not the one that was given")
	case int(h.streams) >= len(j.data):
		err = handshake("stream", fmt.Sprintf("below %d", len(j.data)), h.streams)
	case j.data[h.streams] != nil:
		err = handshake("stream", fmt.Sprintf("%d is there already", h.streams), h.streams)
	}
	if err != nil {
		p.mu.Unlock()
		return nil, statusUnknown, err
	}
	j.data[h.streams] = c
	j.arrivals = append(j.arrivals, a)
	if j.missing--; j.missing > 0 {
		p.mu.Unlock()
		return nil, statusOK, nil
	}
	delete(p.joins, j.token)
	p.leave(j.arrivals...)
	if j.expiry.Stop() {
		p.wg.Done()
	}
	p.mu.Unlock()
	e := p.newPeer(j.token, j.control, j.data, j.progress)
	// The dialler may ask for the peer as soon as it is welcome.
	if err := p.add(e, true); err != nil {
		j.control.close()
		for _, c := range j.data {
			c.close()
		}
		return nil, statusOK, err
	}
	return e, statusOK, nil
}
