package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/transport"
)

// lane is one provider's connection of a link.
type lane struct {
	provider transport.Provider
	peer     transport.PeerID

	mu       sync.Mutex
	prepared map[geometry.Digest]error // plans; nil: usable
}

func (l *lane) name() string { return l.provider.Name() }

// prepare makes a plan usable on the lane. What the provider cannot do it cannot
// the next time; other errors may pass.
func (l *lane) prepare(a *agreed, role session.Role) error {
	l.mu.Lock()
	err, known := l.prepared[a.digest]
	l.mu.Unlock()
	if known {
		return err
	}
	side := transport.Destination
	if role == session.Source {
		side = transport.Source
	}
	if err = l.provider.Prepare(a.Proven, l.peer, side); err != nil {
		err = blame.On(blame.Provider, fmt.Errorf("prepare the plan with provider %s: %w", l.name(), err))
	}
	if err == nil || errors.Is(err, transport.ErrNotSupported) {
		l.mu.Lock()
		if l.prepared == nil {
			l.prepared = map[geometry.Digest]error{}
		}
		l.prepared[a.digest] = err
		l.mu.Unlock()
	}
	return err
}

// connect connects the common providers, as many as can be: at least one.
func (l *link) connect(ctx context.Context, to []*session.Provider) ([]session.Connection, error) {
	var out []session.Connection
	var errs []error
	for i, at := range to {
		p := l.agent.provider(at.Name)
		// One that hangs must leave time to the others.
		share, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok && len(to) > 1 {
			share, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(to)-i+1))
		}
		peer, err := p.Connect(share, transport.Address{Provider: at.Name, Data: at.Data})
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("connect with provider %s: %w", at.Name, err))
			continue
		}
		l.lanes = append(l.lanes, &lane{provider: p, peer: peer})
		out = append(out, session.Connection{Provider: at.Name, Token: p.Token(peer)})
	}
	return out, l.some(len(out), errs)
}

// accept finds the connections that the peer made, as many as are known.
func (l *link) accept(made []session.Connection) ([]string, error) {
	var out []string
	var errs []error
	for _, c := range made {
		p := l.agent.provider(c.Provider)
		peer, err := p.Accepted(c.Token)
		if err != nil {
			errs = append(errs, fmt.Errorf("find the peer's connection at provider %s: %w", c.Provider, err))
			continue
		}
		l.lanes = append(l.lanes, &lane{provider: p, peer: peer})
		out = append(out, c.Provider)
	}
	return out, l.some(len(out), errs)
}

// ready prepares a link's first plan with all its providers, as many as can, and
// lets go of those that the peer does not know.
func (l *link) ready(first *agreed, both []string) error {
	kept := l.lanes[:0]
	for _, lane := range l.lanes {
		if slices.Contains(both, lane.name()) {
			kept = append(kept, lane)
			continue
		}
		l.agent.log.Warn().Str("provider", lane.name()).Msg("the peer does not know the provider's connection")
		_ = lane.provider.Disconnect(lane.peer)
	}
	clear(l.lanes[len(kept):])
	l.lanes = kept
	n := 0
	var errs []error
	for _, lane := range l.lanes {
		if err := lane.prepare(first, l.role); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return l.some(n, errs)
}

// some is nil where at least one of several providers did what it was asked;
// what the others said is logged.
func (l *link) some(n int, errs []error) error {
	if n == 0 {
		return blame.On(blame.Provider, session.With(session.CodeProvider, errors.Join(errs...)))
	}
	for _, err := range errs {
		l.agent.log.Warn().Err(err).Msg("a provider cannot be used with the peer")
	}
	return nil
}

// abandonLanes disconnects what a failed handshake connected.
func (l *link) abandonLanes() {
	for _, lane := range l.lanes {
		_ = lane.provider.Disconnect(lane.peer)
	}
	if l.result.Peer != nil {
		l.untold()
	}
}

// lane is that of a provider; nil: none.
func (l *link) lane(name string) *lane {
	for _, lane := range l.lanes {
		if lane.name() == name {
			return lane
		}
	}
	return nil
}

// healthy are the names of the providers whose peer is believed alive.
func (l *link) healthy() []string {
	var out []string
	for _, lane := range l.lanes {
		if lane.provider.Health(lane.peer) == nil {
			out = append(out, lane.name())
		}
	}
	return out
}
