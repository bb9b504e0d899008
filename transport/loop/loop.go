// Package loop moves bytes between engines of one process: whoever submits
// copies straight from one side's memory to the other's.
//
// It is the smallest real provider: no wire, no second process, the full
// contract.
package loop

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/direct"
)

// Name is the provider's name.
const Name = "loop"

// Network is where the providers of one process find each other. The zero
// value is ready. Safe for concurrent use; must not be copied.
type Network struct {
	mu        sync.Mutex
	last      int
	providers map[string]*Provider // by address
}

// Options of New. The zero value uses half the processors.
type Options struct {
	Workers int // copy goroutines; 0: half the processors
}

// New makes a provider on the network. The caller must Close it.
func (n *Network) New(o Options) *Provider {
	workers := o.Workers
	if workers < 1 {
		workers = direct.Workers()
	}
	p := &Provider{Core: direct.NewCore(workers), network: n, peers: map[transport.PeerID]*peer{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.providers == nil {
		n.providers = map[string]*Provider{}
	}
	n.last++
	p.address = fmt.Sprintf("loop-%d", n.last)
	n.providers[p.address] = p
	return p
}

func (n *Network) find(address string) *Provider {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.providers[address]
}

// token makes a name for a connection.
func (n *Network) token() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	return fmt.Sprintf("loop-connection-%d", n.last)
}

func (n *Network) remove(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.providers, address)
}

// Provider implements transport.Provider.
type Provider struct {
	*direct.Core
	network *Network
	address string

	mu    sync.Mutex
	last  transport.PeerID
	peers map[transport.PeerID]*peer
}

// peer is one end of a connection.
type peer struct {
	direct.Gate // jobs of either side that touch this side's memory
	remote      *Provider
	id          transport.PeerID // of this side at the remote
	token       string
}

var _ transport.Provider = (*Provider)(nil)

// Name implements transport.Provider.
func (p *Provider) Name() string { return Name }

// Capabilities implements transport.Provider.
func (p *Provider) Capabilities() transport.Capabilities {
	return transport.Capabilities{Memory: []memory.Kind{memory.Host}, OneSided: true, NativeStrides: true, DetectsDeath: true, Efficient: 256}
}

// Address implements transport.Provider.
func (p *Provider) Address() transport.Address {
	return transport.Address{Provider: Name, Data: []byte(p.address)}
}

// Connect implements transport.Provider. It never waits.
func (p *Provider) Connect(ctx context.Context, a transport.Address) (transport.PeerID, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if a.Provider != Name {
		return 0, fmt.Errorf("connect to an address of provider %q: %w", a.Provider, transport.ErrNotSupported)
	}
	remote := p.network.find(string(a.Data))
	if remote == nil {
		return 0, fmt.Errorf("connect to %q: %w", a.Data, transport.ErrPeerGone)
	}
	token := p.network.token()
	ours, theirs := &peer{remote: remote, token: token}, &peer{remote: p, token: token}
	id, err := p.add(ours)
	if err != nil {
		return 0, err
	}
	there, err := remote.add(theirs)
	if err != nil {
		p.drop(id)
		return 0, fmt.Errorf("connect to %q: %w", a.Data, transport.ErrPeerGone)
	}
	p.mu.Lock()
	ours.id = there
	p.mu.Unlock()
	remote.mu.Lock()
	theirs.id = id
	remote.mu.Unlock()
	return id, nil
}

func (p *Provider) add(e *peer) (transport.PeerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return 0, transport.ErrClosed
	}
	p.last++
	p.peers[p.last] = e
	return p.last, nil
}

func (p *Provider) drop(id transport.PeerID) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.peers[id]
	delete(p.peers, id)
	return e
}

// peer returns a peer and this side's id at it.
func (p *Provider) peer(id transport.PeerID) (*peer, transport.PeerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		return nil, 0, transport.ErrClosed
	}
	e := p.peers[id]
	if e == nil {
		return nil, 0, fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
	}
	return e, e.id, nil
}

// Token implements transport.Provider.
func (p *Provider) Token(id transport.PeerID) string {
	e, _, err := p.peer(id)
	if err != nil {
		return ""
	}
	return e.token
}

// Accepted implements transport.Provider.
func (p *Provider) Accepted(token string) (transport.PeerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.peers {
		if e.token == token && token != "" {
			return id, nil
		}
	}
	return 0, fmt.Errorf("connection %q: %w", token, transport.ErrPeerGone)
}

// Prepare implements transport.Provider.
func (p *Provider) Prepare(pr proof.Proven, id transport.PeerID, local transport.Side) error {
	if _, _, err := p.peer(id); err != nil {
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
	e, self, err := p.peer(op.Peer)
	if err != nil {
		return 0, err
	}
	pl, err := p.Core.Plan(op.Peer, op.Request.Plan)
	if err != nil {
		return 0, err
	}
	local, err := direct.Local(pl, &op, p.Core)
	if err != nil {
		return 0, err
	}
	ask, err := local.Ask(self)
	if err != nil {
		return 0, err
	}
	granted, err := e.remote.Core.Admit(ask)
	if err != nil {
		return 0, err
	}
	remote, err := direct.Memories(local.Edges, direct.Other(pl.Local), func(rank int) (*direct.Memory, error) {
		return e.remote.Core.Memory(pl.Engine(direct.Other(pl.Local)).Engine, rank)
	})
	if err != nil {
		return 0, err
	}
	j := local.Job(direct.Of(&granted.Request, granted.Plan.Local), remote)
	j.Checks = append(j.Checks, direct.Checks(granted.Plan.Pair, &granted.Request, granted.Plan.Local, granted.Generations, remote)...)
	gates := []*direct.Gate{&e.Gate, &granted.Grant.Gate}
	back, _, err := e.remote.peer(self)
	if err != nil {
		return 0, fmt.Errorf("reach the peer: %w", transport.ErrPeerGone)
	}
	gates = append(gates, &back.Gate)
	gates = append(gates, direct.Gates(local.Memories, remote)...)
	id, err := p.Core.Submit(j, gates...)
	if err != nil {
		return 0, err
	}
	p.Core.Mover.Start(j)
	return id, nil
}

// Fence implements transport.Provider.
func (p *Provider) Fence(ctx context.Context, id transport.PeerID) error {
	e, _, err := p.peer(id)
	if err != nil {
		return err
	}
	p.Core.RevokeAll(id)
	e.Stop(transport.ErrCanceled)
	return e.Wait(ctx, false)
}

// Disconnect implements transport.Provider.
func (p *Provider) Disconnect(id transport.PeerID) error {
	e := p.drop(id)
	if e == nil {
		return fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
	}
	p.part(id, e)
	return nil
}

// part ends a connection whose peer was dropped from p.
func (p *Provider) part(id transport.PeerID, e *peer) {
	e.Shut(transport.ErrPeerGone)
	p.Core.Forget(id)
	if back, _, err := e.remote.peer(e.id); err == nil {
		back.Shut(transport.ErrPeerGone)
		e.remote.Core.RevokeAll(e.id)
	}
	e.Wait(context.Background(), false)
}

// Health implements transport.Provider.
func (p *Provider) Health(id transport.PeerID) error {
	e, self, err := p.peer(id)
	if err != nil {
		return err
	}
	if _, _, err := e.remote.peer(self); err != nil {
		return fmt.Errorf("peer %d: %w", id, transport.ErrPeerGone)
	}
	return nil
}

// Close implements transport.Provider.
func (p *Provider) Close() error {
	if err := p.Core.BeginClose(); err != nil {
		return err
	}
	p.network.remove(p.address)
	p.mu.Lock()
	peers := p.peers
	p.peers = nil
	p.mu.Unlock()
	for id, e := range peers {
		p.part(id, e)
	}
	p.Core.EndClose()
	return nil
}
