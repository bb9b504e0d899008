// Package shm moves bytes between processes of one host: each maps the pools
// of the other and whoever owns the destination copies straight to its place,
// once, at memory speed.
//
// A Unix socket between the two carries pool descriptors and small messages,
// never bytes of blocks. The owner of the source keeps the grant; the reader
// asks for it, checks the owner's generation words before and after its copy,
// and reports when it is done, so that a Fence can wait for it. A write is a
// request to the peer, which copies from here and answers. A peer that died is
// noticed by its socket's end, at once; one that hangs, by the deadline of
// every operation.
//
// Only processes of one user connect, with a secret that travels in the
// address, and what they map of each other is read-only.
package shm

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// Name is the provider's name.
const Name = "shm"

// Options of New. The zero value uses an abstract socket and half the
// processors.
type Options struct {
	Workers int // copy goroutines; 0: half the processors
	// Dir, where not empty, is the folder in which a private one (mode 0700)
	// for the socket is made: for peers in another network namespace, which
	// see no abstract sockets of this one.
	Dir string
	// Handshake bounds how long a connection may take to say hello; 0 is 5 s.
	Handshake time.Duration
}

// Provider implements transport.Provider.
type Provider struct {
	*direct.Core
	options  Options
	listener *net.UnixListener
	dir      string // private folder, to be removed
	address  address
	owner    host.Owner // of the views
	wg       sync.WaitGroup

	mu      sync.Mutex // taken before a peer's
	closed  bool
	last    transport.PeerID
	peers   map[transport.PeerID]*peer
	pending map[*net.UnixConn]struct{} // said no hello yet
}

var _ transport.Provider = (*Provider)(nil)

// exporter is memory that another process can map, as memory/host makes it.
type exporter interface {
	Export() (host.Manifest, host.Descriptors, error)
}

// New listens for peers. The caller must Close it.
func New(o Options) (*Provider, error) {
	if o.Workers < 1 {
		o.Workers = direct.Workers()
	}
	if o.Handshake <= 0 {
		o.Handshake = 5 * time.Second
	}
	p := &Provider{options: o, peers: map[transport.PeerID]*peer{}, pending: map[*net.UnixConn]struct{}{}}
	name := random()
	p.address = address{socket: fmt.Sprintf("@kvferry-%x", name), secret: random()}
	if o.Dir != "" {
		dir, err := os.MkdirTemp(o.Dir, "kvferry-") // mode 0700
		if err != nil {
			return nil, fmt.Errorf("make a private folder for the socket: %w", err)
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("find the folder of the socket: %w", err)
		}
		p.dir = dir
		p.address.socket = filepath.Join(dir, "shm")
	}
	var err error
	if p.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: p.address.socket, Net: "unix"}); err != nil {
		p.removeDir()
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	p.Core = direct.NewCore(o.Workers)
	p.wg.Go(p.accept)
	return p, nil
}

func (p *Provider) removeDir() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// Name implements transport.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements transport.Provider.
func (p *Provider) Capabilities() transport.Capabilities {
	return transport.Capabilities{Memory: []memory.Kind{memory.Host}, OneSided: true, NeedsPeerCPU: true, NativeStrides: true, DetectsDeath: true, Efficient: 256}
}

// Address implements transport.Provider.
func (p *Provider) Address() transport.Address {
	return transport.Address{Provider: Name, Data: p.address.text()}
}

// maxPending bounds the connections that have not said hello.
const maxPending = 64

func (p *Provider) accept() {
	for {
		c, err := p.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or a peer that hung up: go on
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.mu.Lock()
		ok := !p.closed && len(p.pending) < maxPending
		if ok {
			p.pending[c] = struct{}{}
			p.wg.Go(func() { p.welcome(c) })
		}
		p.mu.Unlock()
		if !ok {
			c.Close()
		}
	}
}

// welcome answers a dialler's hello. A bad one is hung up on, without a word.
func (p *Provider) welcome(c *net.UnixConn) {
	x := newConn(c)
	token, err := p.hello(x)
	p.mu.Lock()
	delete(p.pending, c)
	p.mu.Unlock()
	if err == nil {
		// In the books before the dialler knows: its Connect returns with the
		// welcome, and Accepted must find it then.
		_, err = p.add(x, token, true)
	}
	if err != nil {
		x.close()
		x.drop()
	}
}

func (p *Provider) hello(x *conn) (token [16]byte, err error) {
	if err := sameUser(x.c); err != nil {
		return token, err
	}
	x.c.SetDeadline(time.Now().Add(p.options.Handshake))
	kind, body, files, err := x.receive()
	closeFiles(files)
	if err != nil {
		return token, err
	}
	v, secret, token, err := decodeHello(kind, body)
	if err != nil {
		return token, err
	}
	if subtle.ConstantTimeCompare(secret[:], p.address.secret[:]) != 1 {
		return token, &AddressError{"secret", "not this provider's"}
	}
	if v != version {
		// Say which version this is, so that the dialler can name both.
		x.writeFrame(outgoing{bytes: frame(frameWelcome, thisVersion(), 0)})
		return token, &VersionError{Peer: v, Self: version}
	}
	return token, nil
}

func thisVersion() []byte { return []byte{byte(version), byte(version >> 8)} }

// VersionError is a peer that speaks another version of the frames.
type VersionError struct{ Peer, Self int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("transport/shm: the peer speaks version %d, this process %d", e.Peer, e.Self)
}

func encodeHello(secret, token [16]byte) []byte {
	b := append(thisVersion(), secret[:]...)
	return append(b, token[:]...)
}

func decodeHello(kind uint8, body []byte) (v int, secret, token [16]byte, err error) {
	if kind != frameHello {
		return 0, secret, token, &FrameError{kind, "type", "want hello first"}
	}
	d := read(kind, body)
	v = int(d.U16("version"))
	d.Raw(secret[:], "secret")
	d.Raw(token[:], "token")
	if least := 2 + len(secret) + len(token); v != version && len(body) >= least {
		return v, secret, token, nil // a later hello may be longer
	}
	return v, secret, token, d.end()
}

// Connect implements transport.Provider.
func (p *Provider) Connect(ctx context.Context, a transport.Address) (transport.PeerID, error) {
	at, err := parseAddress(a)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.Handshake)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", at.socket)
	if err != nil {
		return 0, fmt.Errorf("connect to %s: %w (%w)", at.socket, transport.ErrPeerGone, err)
	}
	x := newConn(c.(*net.UnixConn))
	stop := context.AfterFunc(ctx, x.close)
	defer stop()
	token := random()
	if err := x.greet(at.secret, token); err != nil {
		x.close()
		x.drop()
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return 0, fmt.Errorf("greet %s: %w", at.socket, err)
	}
	if !stop() {
		x.close()
		x.drop()
		return 0, fmt.Errorf("greet %s: %w", at.socket, ctx.Err())
	}
	return p.add(x, token, false)
}

// greet says hello and waits for the welcome.
func (x *conn) greet(secret, token [16]byte) error {
	if err := sameUser(x.c); err != nil {
		return err
	}
	if err := x.writeFrame(outgoing{bytes: frame(frameHello, encodeHello(secret, token), 0)}); err != nil {
		return fmt.Errorf("%w (%w)", transport.ErrPeerGone, err)
	}
	kind, body, files, err := x.receive()
	closeFiles(files)
	if err != nil {
		return fmt.Errorf("%w: it hung up on hello (%w)", transport.ErrPeerGone, err)
	}
	if kind != frameWelcome || len(body) != 2 {
		return &FrameError{kind, "type", "want welcome first"}
	}
	if v := int(body[0]) | int(body[1])<<8; v != version {
		return &VersionError{Peer: v, Self: version}
	}
	return nil
}

func (p *Provider) add(x *conn, token [16]byte, accepted bool) (transport.PeerID, error) {
	x.c.SetDeadline(time.Time{})
	e := &peer{provider: p, conn: x, token: hex.EncodeToString(token[:]), accepted: accepted,
		views: map[direct.RankKey]*view{}, shared: map[direct.RankKey]bool{}, engines: map[string]bool{},
		own: map[uint64]*direct.Job{}, served: map[uint64]*direct.Job{},
		gone: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		x.close()
		x.drop()
		return 0, transport.ErrClosed
	}
	for _, other := range p.peers {
		if accepted && other.accepted && other.token == e.token {
			return 0, &FrameError{frameHello, "token", "used before"}
		}
	}
	p.last++
	e.id = p.last
	p.peers[e.id] = e
	if accepted {
		x.send(frameWelcome, thisVersion())
	}
	p.wg.Go(x.write)
	p.wg.Go(e.run)
	return e.id, nil
}

func (p *Provider) peer(id transport.PeerID) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, transport.ErrClosed
	}
	if e := p.peers[id]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
}

// Token implements transport.Provider.
func (p *Provider) Token(id transport.PeerID) string {
	e, err := p.peer(id)
	if err != nil {
		return ""
	}
	return e.token
}

// Accepted implements transport.Provider.
func (p *Provider) Accepted(token string) (transport.PeerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, transport.ErrClosed
	}
	for id, e := range p.peers {
		if e.accepted && subtle.ConstantTimeCompare([]byte(e.token), []byte(token)) == 1 {
			return id, nil
		}
	}
	return 0, fmt.Errorf("connection %.40q: %w", token, transport.ErrPeerGone)
}

// Register implements transport.Provider. The rank's Export must be what
// memory/host makes: other memory cannot be mapped by a peer.
func (p *Provider) Register(r memory.Rank) error {
	if _, ok := r.Export.(exporter); !ok {
		return fmt.Errorf("register rank %d of engine %q, which cannot be exported: %w", r.Rank, r.Engine, transport.ErrNotSupported)
	}
	if err := p.Core.Register(r); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.peers {
		if e.wants(r.Engine) {
			if err := e.share(r); err != nil {
				p.Core.Drop(r.Engine, r.Rank)
				return err
			}
		}
	}
	return nil
}

// patience is how long Unregister and Disconnect wait for a peer that still
// reads memory of ours: it harms nothing here, so a peer that hangs is not
// waited for.
const patience = 2 * time.Second

// Unregister implements transport.Provider.
func (p *Provider) Unregister(engine string, rank int) error {
	m, err := p.Core.Memory(engine, rank)
	if err != nil {
		return err
	}
	k := direct.RankKey{Engine: engine, Rank: rank}
	p.mu.Lock()
	for _, e := range p.peers {
		e.unshare(k)
	}
	p.mu.Unlock()
	m.Shut(&transport.Unregistered{Engine: engine, Rank: rank})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m.Wait(ctx, false)
	m.Wait(context.Background(), true)
	p.Core.Drop(engine, rank)
	return nil
}

// Prepare implements transport.Provider. It shows the local engine's memory
// to the peer.
func (p *Provider) Prepare(pr proof.Proven, id transport.PeerID, local transport.Side) error {
	e, err := p.peer(id)
	if err != nil {
		return err
	}
	if fresh, err := p.Core.Prepare(pr, id, local); err != nil || !fresh {
		return err
	}
	pair := pr.Pair()
	engine := pair.Source.Engine
	if local == transport.Destination {
		engine = pair.Destination.Engine
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.want(engine)
	for _, m := range p.Core.Registered(engine) {
		if err := e.share(m.Rank); err != nil {
			return err
		}
	}
	return nil
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
	pl, err := p.Core.Plan(op.Peer, op.Request.Plan)
	if err != nil {
		return 0, err
	}
	s, err := direct.Local(pl, &op, p.Core)
	if err != nil {
		return 0, err
	}
	if op.Direction == transport.Write {
		// The peer copies: this side's job has no copy and no checks.
		return e.submit(&direct.Job{Plan: pl, Edges: s.Edges, Deadline: op.Deadline}, s)
	}
	peer := direct.Of(&op.Request, direct.Other(pl.Local)).Clone()
	if peer.Tables == nil || op.PeerGenerations == nil {
		return 0, &transport.Mismatch{Field: "tables", Asked: "without the peer's tables and generations", Grants: "both: this provider's reader copies and checks itself"}
	}
	j := s.Job(peer, nil)
	j.Granted = direct.Clone(op.PeerGenerations)
	return e.submit(j, s)
}

// Fence implements transport.Provider. Where the peer hangs, it waits for it
// as long as ctx allows.
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
	p.mu.Lock()
	e := p.peers[id]
	delete(p.peers, id)
	p.mu.Unlock()
	if e == nil {
		return fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
	}
	p.Core.Forget(id)
	e.Shut(transport.ErrPeerGone)
	e.Wait(context.Background(), true)
	e.conn.close()
	<-e.done
	return nil
}

// Health implements transport.Provider.
func (p *Provider) Health(id transport.PeerID) error {
	e, err := p.peer(id)
	if err != nil {
		return err
	}
	select {
	case <-e.gone:
		return fmt.Errorf("peer %d: %w (%w)", id, transport.ErrPeerGone, e.cause)
	default:
		return nil
	}
}

// Close implements transport.Provider.
func (p *Provider) Close() error {
	if err := p.Core.BeginClose(); err != nil {
		return err
	}
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	peers := p.peers
	p.peers = map[transport.PeerID]*peer{}
	for c := range p.pending {
		c.Close()
	}
	p.mu.Unlock()
	for _, e := range peers {
		e.Shut(transport.ErrPeerGone)
		e.Wait(context.Background(), true) // nothing copies here when the peer sees the end
		e.conn.close()
	}
	p.wg.Wait()
	p.Core.EndClose()
	p.removeDir()
	return nil
}

// Leaks returns the peers' pools that are mapped here: none after Close.
func (p *Provider) Leaks() []host.Leak { return p.owner.Leaks() }
