package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/locality"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/configuration"
	"github.com/kvferry/kvferry/runtime/policy/load"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/transport"
)

// ErrClosed is returned by every use of an agent, engine or peer after Close.
var ErrClosed = errors.New("agent: closed")

const (
	maxHandshakes = 64 // of connections that have not said who they are
	maxLinks      = 64 // of one peer engine
	maxStreams    = 1 << 12
)

// Agent holds engines' ranks and talks to other agents. Safe for concurrent
// use.
//
// Lock order: Agent.mu, Engine.mu, Peer.mu, link.turn, link.mu, ledger.mu;
// lane.mu and Agent.metering are leaves. None but link.turn is held while a
// provider, a policy or a connection is called. The slots that stand for a turn
// (asker.turn, Peer.planning, layouts.turn) come before all of them.
type Agent struct {
	cfg   Config
	times Timeouts
	clock Clock
	log   zerolog.Logger
	pumps map[string]*pump // by provider name
	local locality.Locality
	// configurations are canonical JSON by policy name.
	configurations map[string][]byte
	layouts        *layouts

	metering sync.Mutex // a leaf; held while meter is used
	meter    *load.Meter[loadKey]

	listener net.Listener
	tokens   chan struct{}   // handshakes in progress of incoming connections
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // every goroutine of the agent

	mu       sync.Mutex
	closed   bool
	engines  map[string]*Engine
	reserved map[string]struct{} // ids of engines that are being registered
	conns    map[*conn]struct{}  // every open control connection
	counts   Counts
}

// New starts an agent: it listens when New returns.
func New(cfg Config) (*Agent, error) {
	bad := func(format string, args ...any) error {
		return blame.On(blame.Operator, fmt.Errorf("agent: "+format, args...))
	}
	if cfg.Name == "" || len(cfg.Name) > geometry.MaxName {
		return nil, bad("name %q: want 1 to %d bytes", cfg.Name, geometry.MaxName)
	}
	if len(cfg.Group) > 64 {
		return nil, bad("group has %d bytes, want at most 64", len(cfg.Group))
	}
	if len(cfg.Providers) == 0 {
		return nil, bad("no providers: name at least one")
	}
	if cfg.PolicyMatch > MatchRequired {
		return nil, bad("policy match is %d, want reported or required", cfg.PolicyMatch)
	}
	if cfg.OnPolicyFault > FaultHost {
		return nil, bad("on policy fault is %d, want fails or host", cfg.OnPolicyFault)
	}
	if l := cfg.Limits; l.Chunk < 0 || l.Chunk > policy.MaxChunk || l.Streams < 0 || l.Streams > maxStreams {
		return nil, bad("limits: chunk %d and streams %d, want 0 to %d and 0 to %d", l.Chunk, l.Streams, policy.MaxChunk, maxStreams)
	}
	if n := len(cfg.Providers); n > policy.MaxProviders {
		return nil, bad("%d providers, want at most %d", n, policy.MaxProviders)
	}
	if cfg.Budget == (plan.Budget{}) {
		cfg.Budget = plan.DefaultBudget()
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	a := &Agent{cfg: cfg, times: cfg.Timeouts.filled(), clock: cfg.Clock, log: cfg.Log.With().Str("agent", cfg.Name).Logger(),
		pumps: map[string]*pump{}, tokens: make(chan struct{}, maxHandshakes), engines: map[string]*Engine{}, reserved: map[string]struct{}{}, conns: map[*conn]struct{}{}}
	if cfg.Here != nil {
		a.local = *cfg.Here
	} else {
		a.local = locality.Here()
	}
	a.meter, a.layouts = load.New[loadKey](load.Options{}), newLayouts(cfg.Layouts)
	a.configurations = map[string][]byte{}
	for name, text := range cfg.Configurations {
		b, err := configuration.Canonical("configuration of policy "+name, text)
		if err != nil {
			return nil, bad("%w", err)
		}
		a.configurations[name] = b
	}
	for _, p := range cfg.Providers {
		if p == nil || a.pumps[p.Name()] != nil {
			return nil, bad("providers: each is named once")
		}
		a.pumps[p.Name()] = newPump(p)
	}
	if cfg.Listen != "" {
		l, err := listen(cfg.Listen, cfg.Insecure || cfg.Wrap != nil)
		if err != nil {
			return nil, err
		}
		a.listener = l
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	for _, p := range a.pumps {
		a.wg.Go(p.run)
	}
	if a.listener != nil {
		a.wg.Go(a.accept)
		a.log.Info().Str("address", a.Address()).Msg("listening")
	}
	return a, nil
}

// Address is where peers connect, in the form of Config.Listen with the real
// port; "" where the agent does not listen.
func (a *Agent) Address() string {
	if a.listener == nil {
		return ""
	}
	addr := a.listener.Addr()
	return addr.Network() + ":" + addr.String()
}

// Close ends every offer, expectation, transfer and connection, waits for all
// goroutines and gives the ranks back. A second Close returns ErrClosed. The
// providers stay open; close them afterwards.
func (a *Agent) Close() error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return ErrClosed
	}
	a.closed = true
	engines := make([]*Engine, 0, len(a.engines))
	for _, e := range a.engines {
		engines = append(engines, e)
	}
	a.mu.Unlock()
	if a.listener != nil {
		a.listener.Close()
	}
	var errs []error
	for _, e := range engines {
		if err := e.Close(); err != nil && !errors.Is(err, ErrClosed) {
			errs = append(errs, err)
		}
	}
	a.cancel()
	a.mu.Lock()
	for c := range a.conns {
		c.close()
	}
	a.mu.Unlock()
	for _, p := range a.pumps {
		close(p.stop)
	}
	a.wg.Wait()
	return errors.Join(errs...)
}

// track enters a connection; false: the agent is closed and so is c.
func (a *Agent) track(c *conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		c.close()
		return false
	}
	a.conns[c] = struct{}{}
	return true
}

func (a *Agent) untrack(c *conn) {
	c.close()
	a.mu.Lock()
	delete(a.conns, c)
	a.mu.Unlock()
}

// accept takes connections until the listener is closed. Nothing that a peer
// sends ends it.
func (a *Agent) accept() {
	for {
		raw, err := a.listener.Accept()
		if err != nil {
			if a.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, or the connection broke before we had it:
			// the next one may be fine, but not at full speed.
			a.log.Warn().Err(err).Msg("accept failed")
			wait := make(chan struct{})
			stop := a.clock.AfterFunc(a.times.Handshake/100, func() { close(wait) })
			select {
			case <-wait:
			case <-a.ctx.Done():
				stop()
				return
			}
			continue
		}
		c := a.newConn(raw)
		if !a.track(c) {
			continue
		}
		select {
		case a.tokens <- struct{}{}:
			a.wg.Go(func() { a.welcome(c) })
		default:
			a.refuse(c, session.With(session.CodeBusy, errors.New("agent: too many handshakes at once")))
			a.untrack(c)
		}
	}
}

// refuse tells the peer why, as far as it can be told.
func (a *Agent) refuse(c *conn, err error) {
	if frame, e := session.Encode(session.Refusal(err)); e == nil {
		_ = c.send(frame) // it may be gone already
	}
}

// engine finds the engine that a hello wants.
func (a *Agent) engine(want string) (*Engine, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if want == "" && len(a.engines) == 1 {
		for _, e := range a.engines {
			return e, nil
		}
	}
	if e := a.engines[want]; e != nil {
		return e, nil
	}
	why := fmt.Errorf("agent %q holds no engine %q", a.cfg.Name, want)
	if want == "" {
		why = fmt.Errorf("agent %q holds %d engines: name one", a.cfg.Name, len(a.engines))
	}
	return nil, blame.On(blame.Peer, session.With(session.CodeEngine, why))
}

func (a *Agent) provider(name string) transport.Provider { return a.pumps[name].provider }
