package tcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// Name is the provider's name.
const Name = "tcp"

// Options of New. The zero value of each field but Listen means what is
// written beside it.
type Options struct {
	// Listen is the host:port to listen on; port 0 takes a free one. A host
	// that is empty or unspecified means all interfaces, and wants Advertise.
	Listen string
	// Advertise is the host:port that Address tells peers. Empty: that of the
	// listener.
	Advertise string

	Streams   int           // data connections to a peer dialled from here, at most 16; 0: 2
	Chunk     int           // bytes of a data frame at most, up to 1 MiB; 0: 256 KiB
	Buffer    int           // bytes of each socket buffer; 0: 1 MiB (more falls out of the caches)
	Progress  time.Duration // a connection that stands still for so long is dead; at least 10 ms; 0: 5 s
	Handshake time.Duration // time for all connections of a peer to be made; 0: 5 s
	Unclaimed time.Duration // time for an accepted peer to be claimed by Accepted; 0: 1 min
	Pending   int           // handshakes under way at once; the oldest makes way for one more; 0: 512
	Peers     int           // accepted peers at once; 0: 1024

	// Congestion is the congestion control to use; Links reports what came of
	// it. Empty: cubic on loopback, elsewhere the system's own.
	Congestion string

	// Insecure allows addresses off this host in plain text: whoever can read
	// the network can then read the caches.
	Insecure bool
	// Wrap, where not nil, protects each connection before anything of this
	// package is sent on it, and counts as protection off this host. The
	// result must read and write through c, which enforces the timeouts.
	Wrap func(c net.Conn, dialler bool) (net.Conn, error)

	// Refused, where not nil, is told of each incoming connection that was
	// refused, and why. It is called from several goroutines.
	Refused func(from net.Addr, err error)
}

// OptionError is an option that cannot be. The fault is the operator's.
type OptionError struct {
	Option string
	Value  any
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("transport/tcp: option %s is %v: %s", e.Option, e.Value, e.Reason)
}

func (o *Options) complete() error {
	for _, f := range []struct {
		name     string
		v        *int
		zero     int
		min, max int
	}{
		{"Streams", &o.Streams, 2, 1, maxStreams},
		{"Chunk", &o.Chunk, 256 << 10, 1, maxBody},
		{"Buffer", &o.Buffer, 1 << 20, 1 << 12, 1 << 30},
		{"Pending", &o.Pending, 512, 2, 1 << 16},
		{"Peers", &o.Peers, 1024, 1, 1 << 20},
	} {
		if *f.v == 0 {
			*f.v = f.zero
		}
		if *f.v < f.min || *f.v > f.max {
			return &OptionError{f.name, *f.v, fmt.Sprintf("want %d to %d", f.min, f.max)}
		}
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		zero time.Duration
	}{
		{"Progress", &o.Progress, 5 * time.Second},
		{"Handshake", &o.Handshake, 5 * time.Second},
		{"Unclaimed", &o.Unclaimed, time.Minute},
	} {
		if *f.v == 0 {
			*f.v = f.zero
		}
		if *f.v < 10*time.Millisecond || *f.v > 24*time.Hour {
			return &OptionError{f.name, *f.v, "want 10ms to 24h"}
		}
	}
	if o.Listen == "" {
		return &OptionError{"Listen", `""`, "want host:port; there is no default"}
	}
	return nil
}

// Provider implements transport.Provider.
type Provider struct {
	*direct.Core
	o        Options
	listener *net.TCPListener
	address  string
	stop     context.CancelFunc // ends Connects under way
	stopped  context.Context
	wg       sync.WaitGroup // every goroutine

	mu       sync.Mutex
	last     transport.PeerID
	peers    map[transport.PeerID]*peer // nil: closed
	accepted int                        // how many of them were accepted here
	tokens   map[key]*peer
	joins    map[key]*join
	arrivals []*arrival // oldest first
}

var _ transport.Provider = (*Provider)(nil)

// New makes a provider that listens. The caller must Close it.
//
// Errors: *OptionError, *InsecureError, those of the resolver and of net.
func New(o Options) (*Provider, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	stopped, stop := context.WithCancel(context.Background())
	at, err := o.resolve(stopped, "listen on", o.Listen)
	if err != nil {
		stop()
		return nil, err
	}
	if o.Advertise == "" && (at.IP == nil || at.IP.IsUnspecified()) {
		stop()
		return nil, &OptionError{"Advertise", `""`, fmt.Sprintf("%s means all interfaces; peers must be told one address", o.Listen)}
	}
	config := net.ListenConfig{Control: o.before}
	l, err := config.Listen(stopped, "tcp", at.String())
	if err != nil {
		stop()
		return nil, fmt.Errorf("listen on %s: %w", o.Listen, err)
	}
	p := &Provider{
		Core: direct.NewCore(1), // its copy goroutine idles: connections copy for themselves
		o:    o, listener: l.(*net.TCPListener), address: o.Advertise, stop: stop, stopped: stopped,
		peers: map[transport.PeerID]*peer{}, tokens: map[key]*peer{}, joins: map[key]*join{},
	}
	if p.address == "" {
		p.address = l.Addr().String()
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Name implements transport.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements transport.Provider.
func (p *Provider) Capabilities() transport.Capabilities {
	return transport.Capabilities{Memory: []memory.Kind{memory.Host}, NeedsPeerCPU: true, NativeStrides: true, DetectsDeath: true, Efficient: 2 << 10, CRC: true, TLS: p.o.Wrap != nil}
}

// Address implements transport.Provider: Data is host:port.
func (p *Provider) Address() transport.Address {
	return transport.Address{Provider: Name, Data: []byte(p.address)}
}

// Connect implements transport.Provider.
//
// Errors: *InsecureError, *HandshakeError, transport.ErrPeerGone where nobody
// answers, transport.ErrNotSupported for another provider's address.
func (p *Provider) Connect(ctx context.Context, a transport.Address) (transport.PeerID, error) {
	if a.Provider != Name {
		return 0, fmt.Errorf("connect to an address of provider %q: %w", a.Provider, transport.ErrNotSupported)
	}
	p.mu.Lock()
	if p.peers == nil {
		p.mu.Unlock()
		return 0, transport.ErrClosed
	}
	p.wg.Add(1)
	p.mu.Unlock()
	defer p.wg.Done()
	ctx, cancel := context.WithTimeout(ctx, p.o.Handshake)
	defer cancel()
	defer context.AfterFunc(p.stopped, cancel)()
	to, err := p.o.resolve(ctx, "connect to", string(a.Data))
	if err != nil {
		return 0, err
	}
	id, err := p.dial(ctx, to)
	if err == nil {
		return id, nil
	}
	if p.stopped.Err() != nil {
		return 0, transport.ErrClosed
	}
	cause := ctx.Err()
	if errors.Is(err, os.ErrDeadlineExceeded) { // a moment before the context's
		cause = context.DeadlineExceeded
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	var refused *HandshakeError
	if errors.As(err, &refused) {
		return 0, fmt.Errorf("connect to %s: %w", a.Data, err)
	}
	return 0, fmt.Errorf("connect to %s: %w: %w", a.Data, transport.ErrPeerGone, err)
}

func (p *Provider) dial(ctx context.Context, to *net.TCPAddr) (id transport.PeerID, err error) {
	var conns []*conn
	defer func() {
		if err != nil {
			for _, c := range conns {
				c.close()
			}
		}
	}()
	h := hello{version: version, role: roleControl, streams: uint8(p.o.Streams), progress: p.o.milliseconds()}
	rand.Read(h.token[:])
	control, w, err := p.greet(ctx, to, &h)
	if err != nil {
		return 0, err
	}
	conns = append(conns, control)
	h.role, h.secret, h.progress = roleData, w.secret, 0
	for i := range p.o.Streams {
		h.streams = uint8(i)
		c, _, err := p.greet(ctx, to, &h)
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
	}
	e := p.newPeer(h.token, control, conns[1:], w.progress)
	e.claimed = true
	if err := p.add(e, false); err != nil {
		return 0, err
	}
	e.run()
	return e.id, nil
}

// greet makes one connection and says hello on it.
func (p *Provider) greet(ctx context.Context, to *net.TCPAddr, h *hello) (c *conn, w welcome, err error) {
	dialer := net.Dialer{Control: p.o.before}
	t, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, w, err
	}
	defer context.AfterFunc(ctx, func() { t.Close() })()
	deadline, _ := ctx.Deadline()
	if c, err = p.o.newConn(t.(*net.TCPConn), true, deadline); err != nil {
		return nil, w, err
	}
	if _, err = c.c.Write(h.encode()); err == nil {
		w, err = readWelcome(c.reader.r, h.role)
	}
	if err == nil && ctx.Err() != nil { // AfterFunc may have closed it
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, w, err
	}
	return c, w, nil
}

func (o *Options) milliseconds() uint32 { return uint32(o.Progress.Milliseconds()) }

// add makes a peer known; an accepted one is given up if nobody claims it.
func (p *Provider) add(e *peer, accepted bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return transport.ErrClosed
	}
	p.last++
	e.id = p.last
	p.peers[e.id] = e
	if accepted {
		p.accepted++
		p.tokens[e.token] = e
		e.expiry = time.AfterFunc(p.o.Unclaimed, func() {
			p.mu.Lock()
			claimed := e.claimed
			p.mu.Unlock()
			if !claimed {
				e.fail(fmt.Errorf("transport/tcp: nobody asked for the connection within %s", p.o.Unclaimed))
			}
		})
	}
	return nil
}

// drop forgets a peer.
func (p *Provider) drop(e *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers[e.id] != e {
		return
	}
	delete(p.peers, e.id)
	if p.tokens[e.token] == e {
		delete(p.tokens, e.token)
		p.accepted--
	}
	if e.expiry != nil {
		e.expiry.Stop()
	}
}

// lost is called when a peer is gone: one that nobody has claimed is
// forgotten, others stay until Disconnect.
func (p *Provider) lost(e *peer) {
	p.mu.Lock()
	claimed := e.claimed
	p.mu.Unlock()
	if !claimed {
		p.drop(e)
	}
}

func (p *Provider) peer(id transport.PeerID) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return nil, transport.ErrClosed
	}
	if e := p.peers[id]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
}

// Token implements transport.Provider: 128 random bits in hexadecimal.
func (p *Provider) Token(id transport.PeerID) string {
	e, err := p.peer(id)
	if err != nil {
		return ""
	}
	return e.token.String()
}

// Accepted implements transport.Provider.
func (p *Provider) Accepted(token string) (transport.PeerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return 0, transport.ErrClosed
	}
	var k key
	if len(token) == hex.EncodedLen(len(k)) {
		if _, err := hex.Decode(k[:], []byte(token)); err == nil && p.tokens[k] != nil {
			e := p.tokens[k]
			e.claimed = true
			return e.id, nil
		}
	}
	return 0, fmt.Errorf("connection %q: %w", token, transport.ErrPeerGone)
}

// Links says what the connections to a peer came to be, control first.
func (p *Provider) Links(id transport.PeerID) ([]Link, error) {
	e, err := p.peer(id)
	if err != nil {
		return nil, err
	}
	var out []Link
	for _, c := range append([]*conn{e.control}, e.data...) {
		l := c.tuned
		l.Role = "data"
		if c.stream < 0 {
			l.Role = "control"
		}
		l.measure(c.tcp)
		out = append(out, l)
	}
	return out, nil
}

// Prepare implements transport.Provider.
func (p *Provider) Prepare(pr proof.Proven, id transport.PeerID, local transport.Side) error {
	if _, err := p.peer(id); err != nil {
		return err
	}
	_, err := p.Core.Prepare(pr, id, local)
	return err
}

// Grant implements transport.Provider.
func (p *Provider) Grant(g transport.Grant) error {
	if err := p.Health(g.Peer); err != nil {
		return err
	}
	return p.Core.Grant(g)
}

// Submit implements transport.Provider. The operation's tables are copied.
func (p *Provider) Submit(op transport.Operation) (transport.OpID, error) {
	e, err := p.peer(op.Peer)
	if err != nil {
		return 0, err
	}
	return e.submit(&op)
}

// Fence implements transport.Provider. The owner of memory is the only one who
// ever touches it, so nothing is asked of the peer.
func (p *Provider) Fence(ctx context.Context, id transport.PeerID) error {
	e, err := p.peer(id)
	if err != nil {
		return err
	}
	p.Core.RevokeAll(id)
	e.Stop(transport.ErrCanceled)
	return e.Wait(ctx, false)
}

// Disconnect implements transport.Provider.
func (p *Provider) Disconnect(id transport.PeerID) error {
	e, err := p.peer(id)
	if err != nil {
		return err
	}
	p.drop(e)
	e.fail(transport.ErrPeerGone)
	p.Core.Forget(id)
	e.Wait(context.Background(), false)
	e.wg.Wait()
	return nil
}

// Health implements transport.Provider. The error says why the peer is gone.
func (p *Provider) Health(id transport.PeerID) error {
	e, err := p.peer(id)
	if err != nil {
		return err
	}
	return e.gone()
}

// Close implements transport.Provider.
func (p *Provider) Close() error {
	if err := p.Core.BeginClose(); err != nil {
		return err
	}
	p.stop()
	p.listener.Close()
	p.mu.Lock()
	peers := p.peers
	p.peers = nil
	for _, e := range peers {
		if e.expiry != nil {
			e.expiry.Stop()
		}
	}
	for _, a := range p.arrivals {
		a.conn.Close()
	}
	joins := slices.Collect(maps.Values(p.joins))
	p.mu.Unlock()
	for _, j := range joins {
		p.abandon(j)
	}
	for _, e := range peers {
		e.fail(transport.ErrClosed)
	}
	p.wg.Wait()
	p.Core.EndClose()
	return nil
}
