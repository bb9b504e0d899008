package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/transport"
)

// Link is what one connection to a peer came to be.
type Link struct {
	Role          string // "control" or "data"
	Local, Remote net.Addr
	// Congestion is the congestion control in use. CongestionError says why it
	// is not the one that was asked for; that is a loss of speed only (some
	// system defaults halve a loopback's).
	Congestion      string
	CongestionError error
	// UserTimeoutError says why the kernel itself does not give up on bytes
	// that are not acknowledged; the progress timeout still does.
	UserTimeoutError           error
	SendBuffer, ReceiveBuffer  int // bytes, as the kernel counts them
	RTT                        time.Duration
	Retransmits, TotalSegments uint32
}

// InsecureError is an address off this host, without anything that protects
// the bytes on the way.
type InsecureError struct {
	What    string // "listen on" or "connect to"
	Address string
}

func (e *InsecureError) Error() string {
	return fmt.Sprintf("transport/tcp: refused to %s %s in plain text: it is not a loopback address and Options.Insecure is not set", e.What, e.Address)
}

// Is makes the error match transport.ErrNotSupported.
func (e *InsecureError) Is(target error) bool { return target == transport.ErrNotSupported }

// resolve returns the address to use for a host and port, which it refuses if
// bytes would leave the host unprotected. What it returns is an address, not a
// name, so that nobody can change it between check and use.
func (o *Options) resolve(ctx context.Context, what, address string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, address, err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, address, err)
	}
	a := &net.TCPAddr{Port: n}
	if host != "" {
		ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", what, address, err)
		}
		a.IP, a.Zone = ips[0].IP, ips[0].Zone
	}
	if !a.IP.IsLoopback() && !o.Insecure && o.Wrap == nil {
		return nil, &InsecureError{what, address}
	}
	return a, nil
}

// before sets what has to be set before a socket listens or connects: the
// window scale is agreed on in the first segment.
func (o *Options) before(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// A smaller buffer than wanted is no error: the kernel caps it.
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, o.Buffer)
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, o.Buffer)
	})
}

// tune sets the rest on a connected socket.
func (o *Options) tune(c *net.TCPConn) (l Link, err error) {
	l.Local, l.Remote = c.LocalAddr(), c.RemoteAddr()
	if err := c.SetNoDelay(true); err != nil {
		return l, err
	}
	if err := c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: max(o.Progress, time.Second), Interval: max(o.Progress/3, time.Second), Count: 3}); err != nil {
		return l, err
	}
	want := o.Congestion
	remote, ok := l.Remote.(*net.TCPAddr)
	if want == "" && ok && remote.IP.IsLoopback() {
		want = "cubic"
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return l, err
	}
	return l, raw.Control(func(fd uintptr) {
		l.UserTimeoutError = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(o.Progress.Milliseconds()))
		if want != "" {
			if err := unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, want); err != nil {
				l.CongestionError = fmt.Errorf("use congestion control %q: %w", want, err)
			}
		}
	})
}

// measure fills in what changes while a connection is used.
func (l *Link) measure(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		l.Congestion, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		l.SendBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		l.ReceiveBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			l.RTT = time.Duration(i.Rtt) * time.Microsecond
			l.Retransmits, l.TotalSegments = i.Total_retrans, i.Segs_out
		}
	})
}

// gone marks an error as one that ends the peer.
func gone(id transport.PeerID, err error) error {
	if errors.Is(err, transport.ErrPeerGone) {
		return fmt.Errorf("peer %d: %w", id, err)
	}
	return fmt.Errorf("peer %d: %w: %w", id, transport.ErrPeerGone, err)
}
