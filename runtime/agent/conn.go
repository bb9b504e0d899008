package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
)

// conn is a control connection. One goroutine reads; any may write.
type conn struct {
	raw   net.Conn      // for deadlines, and to close it
	write time.Duration // deadline of one frame
	// stream carries the frames: raw, or what Config.Wrap made of it. Nil before
	// protect: nothing is said on a connection that is not protected yet.
	stream io.ReadWriter
	mu     sync.Mutex // held while a frame is written, so that frames stay whole
}

// newConn readies a connection for frames, unless it is to be protected first:
// those of a socket in the file system stay on this host and are not.
func (a *Agent) newConn(raw net.Conn) *conn {
	c := &conn{raw: raw, write: a.times.Write}
	if _, local := raw.(*net.UnixConn); local || a.cfg.Wrap == nil {
		c.stream = raw
	}
	return c
}

// protect protects a connection that is to be.
func (c *conn) protect(wrap func(net.Conn, bool) (net.Conn, error), dialler bool) error {
	if c.stream != nil {
		return nil
	}
	s, err := wrap(c.raw, dialler)
	if err != nil {
		return fmt.Errorf("agent: protect the control connection: %w", err)
	}
	c.stream = s
	return nil
}

// read returns the next frame. idle bounds the silence before it and the time
// it takes; zero leaves the connection's deadline as it is.
func (c *conn) read(idle time.Duration) (session.Type, []byte, error) {
	if idle > 0 {
		if err := c.raw.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return 0, nil, err
		}
	}
	var head [session.HeaderSize]byte
	if _, err := io.ReadFull(c.stream, head[:]); err != nil {
		return 0, nil, err
	}
	h, err := session.ParseHeader(head)
	if err != nil {
		return 0, nil, err
	}
	payload, err := readPayload(c.stream, h.Length)
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, fmt.Errorf("read a %s of %d bytes: %w", h.Type, h.Length, err)
	}
	return h.Type, payload, nil
}

// readPayload grows with what arrives: a header alone must not make us
// allocate what it claims.
func readPayload(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, 0, min(n, 64<<10))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		to := min(cap(buf), n)
		k, err := io.ReadFull(r, buf[len(buf):to])
		buf = buf[:len(buf)+k]
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func (c *conn) send(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == nil {
		return errors.New("agent: the connection is not protected yet")
	}
	if err := c.raw.SetWriteDeadline(time.Now().Add(c.write)); err != nil {
		return err
	}
	_, err := c.stream.Write(frame)
	return err
}

func (c *conn) close() error { return c.raw.Close() }

// maxSocketPath is what the kernel has room for (sun_path, less its NUL).
const maxSocketPath = 107

// splitAddress parses "unix:/path" and "tcp:host:port".
func splitAddress(s string) (network, address string, err error) {
	network, address, ok := strings.Cut(s, ":")
	if !ok || address == "" || network != "unix" && network != "tcp" {
		return "", "", blame.On(blame.Operator, fmt.Errorf("agent: address %q: want unix:/path or tcp:host:port", s))
	}
	if network == "unix" && len(address) > maxSocketPath {
		return "", "", blame.On(blame.Operator, fmt.Errorf("agent: address %q: the path of a socket has %d bytes, at most %d are possible", s, len(address), maxSocketPath))
	}
	return network, address, nil
}

func listen(s string, anywhere bool) (net.Listener, error) {
	network, address, err := splitAddress(s)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		if err := loopbackOnly(address, anywhere); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, blame.On(blame.Operator, fmt.Errorf("agent: listen: %w", err))
	}
	return l, nil
}

func loopbackOnly(address string, anywhere bool) error {
	if anywhere {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return blame.On(blame.Operator, fmt.Errorf("agent: address %q: %w", address, err))
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return blame.On(blame.Operator, fmt.Errorf("agent: address %q is not on loopback, and the control connection would be plaintext: refused unless Wrap protects it or Insecure is set", address))
}

func dial(ctx context.Context, s string, anywhere bool) (net.Conn, error) {
	network, address, err := splitAddress(s)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		if err := loopbackOnly(address, anywhere); err != nil {
			return nil, err
		}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, blame.On(blame.Peer, fmt.Errorf("agent: connect to %s: %w", s, err))
	}
	return c, nil
}

// broken says whose fault a failed read or write of a connection is.
func broken(err error) error {
	var b blame.Error
	if errors.As(err, &b) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the peer closed the connection: %w", err)
	}
	return blame.On(blame.Peer, err)
}
