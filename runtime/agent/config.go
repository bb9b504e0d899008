// Package agent is what a Go engine imports to hand over KV caches. It owns
// the control sockets, goroutines, timers and logging, and drives the pure
// machines of runtime/session and runtime/transfer and the providers it was
// given.
//
//	a, err := agent.New(agent.Config{Name: "prefill-0", Listen: "tcp:127.0.0.1:0", Providers: providers, Policy: p})
//	e, err := a.Register(ctx, agent.EngineSpec{...})
//	offered, err := e.Offer(ctx, agent.Offer{Request: "r1", Tables: tables, Tokens: 1000})
//	ticket := offered.Ticket()           // travels to the consumer by any way
//	freed, err := offered.Wait(ctx)      // returned: the blocks may be reused
//
// and on the other side
//
//	peer, err := e.Connect(ctx, agent.Dial{Addresses: []string{addr}, Role: transport.Destination})
//	t, err := peer.Pull(ctx, agent.Pull{Ticket: ticket, Tables: tables, Tokens: 1000})
//	result, err := t.Wait(ctx)
//
// Every error says whose fault it is (blame.Of). Nothing here has a default
// layout, and no transfer starts without a proof.Proven.
package agent

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/transport"
)

// Config describes an agent. A zero field means what its comment says.
type Config struct {
	Name string // in logs, handshakes and the errors of peers; required

	// Listen is where peers' agents connect: "unix:/path/to/socket" or
	// "tcp:host:port" (port 0 picks one; see Agent.Address). Empty: this agent
	// only dials. A tcp host off loopback is refused unless Insecure, since
	// the control connection is plaintext.
	Listen   string
	Insecure bool

	// Group is the trust group of this agent: tickets are for it, and peers
	// of another group are refused. Empty is a group of its own name "".
	Group string

	// Providers in order of preference; at least one. The dialling side's
	// order decides. A provider belongs to one agent, which polls it; whoever
	// opened it closes it, after Agent.Close.
	Providers []transport.Provider

	// Policy answers remap. Required before a Connect or an incoming
	// connection in which this side is the destination.
	Policy Policy
	// PolicyMatch says what unequal policy digests lead to.
	PolicyMatch PolicyMatch

	// Integrity is the least that this agent compares of what its engines
	// take over; a transfer may ask for more.
	Integrity Integrity

	Budget   plan.Budget // of one plan; zero: plan.DefaultBudget()
	Timeouts Timeouts
	Clock    Clock          // nil: the machine's clock
	Log      zerolog.Logger // the zero value writes nothing
}

// PolicyMatch says whether both sides of a pair must run the same policy.
type PolicyMatch uint8

// The settings of policy.match.
const (
	MatchReported PolicyMatch = 0 // unequal digests are logged and shown by Peer.PolicyDiffers
	MatchRequired PolicyMatch = 1 // unequal digests are refused
)

// Timeouts of an agent. Zero fields take the defaults named.
type Timeouts struct {
	Handshake time.Duration // of each connection's whole handshake; 10 s
	Write     time.Duration // of one control message; 5 s
	Idle      time.Duration // a control connection silent for this long is dead; 15 s. Beats go out three times in it
	Transfer  time.Duration // of a Pull or Push whose own Timeout is zero; 60 s
	Measure   time.Duration // of measuring an engine\'s kernel at Register; 60 s
	Lifetime  time.Duration // no offer or expectation lives longer, however often it is extended; 1 h
}

// Policy is what an agent needs of a policy; *policy.Policy is one.
type Policy interface {
	Name() string
	Digest() geometry.Digest
	// Remap answers which rank feeds which for the pair. An error is the
	// policy's fault unless it says otherwise.
	Remap(ctx context.Context, pair *plan.Pair) (Answer, error)
}

// Clock is the source of time of an agent; tests replace it.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stop was called
	// before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

func (t Timeouts) filled() Timeouts {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&t.Handshake, 10*time.Second)
	def(&t.Write, 5*time.Second)
	def(&t.Idle, 15*time.Second)
	def(&t.Transfer, 60*time.Second)
	def(&t.Measure, 60*time.Second)
	def(&t.Lifetime, time.Hour)
	return t
}
