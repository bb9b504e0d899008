package tcp

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Stalled is a connection on which nothing moved for the progress timeout
// although something should have: the peer, or the network to it, is gone.
type Stalled struct {
	What    string // "read" or "write"
	Timeout time.Duration
}

func (e *Stalled) Error() string {
	return fmt.Sprintf("transport/tcp: %s: no byte for %s", e.What, e.Timeout)
}

// link is a connection that notices when it stands still. A call that moves a
// byte in time may take as long as it needs; plain TCP would wait many seconds
// for a link that was cut.
type link struct {
	net.Conn
	progress time.Duration
	limit    atomic.Int64 // in Unix nanoseconds: nothing lasts longer; 0: no limit
}

// until ends everything at t, reads and writes in progress included; the zero
// time lifts the limit.
func (l *link) until(t time.Time) {
	if t.IsZero() {
		l.limit.Store(0)
		return
	}
	l.limit.Store(t.UnixNano())
	l.Conn.SetDeadline(t)
}

// arm sets a deadline for the next byte.
func (l *link) arm(set func(time.Time) error) error {
	for {
		limit := l.limit.Load()
		t := time.Now().Add(l.progress)
		if limit != 0 && limit < t.UnixNano() {
			t = time.Unix(0, limit)
		}
		if err := set(t); err != nil {
			return err
		}
		if l.limit.Load() == limit { // else until was called in between, with a shorter deadline
			return nil
		}
	}
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	if err := l.arm(l.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(b)
	return n, l.stalled("read", err)
}

// Write implements net.Conn.
func (l *link) Write(b []byte) (n int, err error) {
	for {
		if err := l.arm(l.Conn.SetWriteDeadline); err != nil {
			return n, err
		}
		m, err := l.Conn.Write(b[n:])
		n += m
		if err == nil {
			return n, nil
		}
		limit := l.limit.Load()
		late := limit != 0 && time.Now().UnixNano() >= limit
		if m == 0 || late || !isTimeout(err) {
			return n, l.stalled("write", err)
		}
	}
}

func (l *link) stalled(what string, err error) error {
	if isTimeout(err) && l.limit.Load() == 0 {
		return &Stalled{what, l.progress}
	}
	return err
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout() || err == os.ErrDeadlineExceeded
}
