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
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/locality"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
)

// Config describes an agent. A zero field means what its comment says.
type Config struct {
	Name string // in logs, handshakes and the errors of peers; required

	// Listen is where peers' agents connect: "unix:/path/to/socket" or
	// "tcp:host:port" (port 0 picks one; see Agent.Address). Empty: this agent
	// only dials. A tcp host off loopback is refused unless Wrap protects the
	// control connection, or Insecure allows it to be plaintext.
	Listen   string
	Insecure bool
	// Wrap, where not nil, protects each control connection over tcp before
	// anything is sent on it, as certificate.Identity.Wrap does. The deadlines
	// of the result must be those of the connection that it was given. It is
	// called from several goroutines. Providers protect their connections
	// themselves.
	Wrap func(c net.Conn, dialler bool) (net.Conn, error)

	// Group is the trust group of this agent: tickets are for it, and peers
	// of another group are refused. Empty is a group of its own name "".
	Group string

	// Providers in order of preference; at least one. All that both sides have
	// are connected, as far as they can be. Where no policy says otherwise the
	// dialling side's order decides; one that cannot do a transfer
	// (transport.ErrNotSupported) makes way for the next. A provider belongs to
	// one agent, which polls it; whoever opened it closes it, after Agent.Close.
	Providers []transport.Provider

	// Policy answers remap, and how transfers go that this agent's engines
	// begin. Required before a Connect or an incoming connection in which this
	// side is the destination. Each peer is asked about again when the policy's
	// digest has changed; see Peer.Replan.
	Policy Policy
	// Configurations are what the operator tells policies, by their names: YAML
	// or JSON, given to them as canonical JSON (package policy/configuration).
	Configurations map[string][]byte
	// OnPolicyFault says what a transfer does whose policy fails to route it.
	OnPolicyFault OnPolicyFault
	// Limits of what a policy may choose for a transfer. The least integrity is
	// the transfer's own, and never less than Integrity.
	Limits Limits
	// Here is where this process runs; nil: what the kernel says of it.
	Here *locality.Locality
	// Layouts is a folder in which the layouts that SelectLayout chose are kept,
	// for all processes of an engine that share it. Empty: they are kept in
	// memory.
	Layouts string
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

// OnPolicyFault says what becomes of a transfer where the policy is at fault or
// declines.
type OnPolicyFault uint8

// The settings of on_policy_fault.
const (
	FaultFails OnPolicyFault = 0 // the transfer fails; the policy is to blame
	FaultHost  OnPolicyFault = 1 // the agent chooses as if there were no route; Result.Route.Fault and Counts.Replaced show it
)

// Limits are what the configuration says of transfers: a policy chooses within
// them.
type Limits struct {
	Chunk     int64 // bytes that travel as one; 0: each provider's own
	Streams   int   // most connections in parallel; 0: 1
	Recompute bool  // a policy may refuse a pull, so that the engine recomputes; see Recompute
}

// Timeouts of an agent. Zero fields take the defaults named.
type Timeouts struct {
	Handshake time.Duration // of each connection's whole handshake; 10 s
	Write     time.Duration // of one control message; 5 s
	Idle      time.Duration // a control connection silent for this long is dead; 15 s. Beats go out three times in it
	Transfer  time.Duration // of a Pull or Push whose own Timeout is zero; 60 s
	Measure   time.Duration // of measuring an engine's kernel at Register; 60 s
	Lifetime  time.Duration // no offer or expectation lives longer, however often it is extended; 1 h
}

// Policy is what an agent needs of a policy; *policy.Policy and
// *generation.Manager are ones. Safe for concurrent use. Errors are the policy's
// fault unless they say otherwise.
//
// A policy with a method Judge(*plan.Pair, error) is told what became of its
// answers to RemapFor: nil where every alternative was proved, else what is
// wrong with each that was not. One with a method Hooks() []string that does not
// list "route" is not asked for routes.
type Policy interface {
	Name() string
	Digest() geometry.Digest
	SelectLayout(ctx context.Context, q policy.Question) (policy.Choice, error)
	RemapFor(ctx context.Context, q policy.RemapQuestion) (policy.Answer, error)
	Route(ctx context.Context, q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error)
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
