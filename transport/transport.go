// Package transport is the contract between the runtime and whatever moves
// bytes. A Provider knows bytes and handles, never heads or layers: both ends
// hold the same proved plan and expand it for themselves, so what travels is a
// plan digest, a token range and block tables.
//
// Every provider passes the conformance suite in transport/conformance.
package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// Capabilities says what a provider can do; the cost model and the session
// read it.
type Capabilities struct {
	Memory        []memory.Kind
	OneSided      bool  // the reader reaches the owner's memory itself and checks the owner's generations
	NeedsPeerCPU  bool  // the peer's process must be running to make progress
	NativeStrides bool  // loops need not be expanded
	DetectsDeath  bool  // a dead peer fails its operations without a deadline
	Efficient     int64 // smallest piece, in bytes, that moves at full speed
	CRC           bool  // every byte that arrives is checked against a sum that its sender made
	TLS           bool  // connections are protected
}

// Direction is which way an operation's bytes go, seen from the submitter.
type Direction uint8

// The directions.
const (
	Read  Direction = 1 // from the peer's blocks into ours
	Write Direction = 2 // from our blocks into the peer's
)

// PeerID, OpID and GrantID are handles of one provider; zero is none.
type (
	PeerID  uint64
	OpID    uint64
	GrantID [16]byte // chosen by the granting runtime, unguessable; travels in the control protocol
)

// Address is what a peer's provider needs to connect to this one. It travels
// in the handshake. Data is opaque to all but the provider of that Name.
type Address struct {
	Provider string `json:"provider"`
	Data     []byte `json:"data"`
}

// Grant permits the peer to move one request's blocks, until Revoke. Request
// holds the granting side's own tables (the other side's are nil); for a
// one-sided provider the session hands the tables and generations to the
// reader itself.
type Grant struct {
	ID        GrantID
	Peer      PeerID
	Direction Direction // seen from the peer: Read lets it read our blocks
	Request   stamp.Request
	Deadline  time.Time
	// Generations of the granted blocks when they were granted, by group of the
	// pair and table entry, as many as the tables have: whoever copies checks
	// those of the entries that it moves, before and after it touches the
	// blocks. One value serves all ranks: an owner bumps a block on every rank
	// that holds it.
	Generations [][]uint64
}

// Operation is one movement of one request's blocks over some edges of a
// plan.
type Operation struct {
	Peer      PeerID
	Grant     GrantID
	Direction Direction
	Request   stamp.Request // own tables, and the peer's where the provider is one-sided
	// PeerGenerations are the generations under which the peer granted its
	// blocks, by group of the pair and table entry (one-sided providers check
	// them before and after). Own generations are the caller's business.
	PeerGenerations [][]uint64
	Deadline        time.Time // zero is refused: every operation has a deadline
}

// Completion is the one final report of an operation.
type Completion struct {
	Op       OpID
	Err      error // nil: every byte of the operation is in place and was checked
	Bytes    int64
	Segments int64         // stamped segments
	Elapsed  time.Duration // from Submit to the last byte applied
}

// Provider moves bytes. Methods are safe for concurrent use unless they say
// otherwise; none blocks on the network but Connect, Fence and Close.
type Provider interface {
	Name() string // "loop", "shm", "tcp", ...
	Capabilities() Capabilities

	// Address is what peers connect to.
	Address() Address

	// Register makes a rank's memory known, before any Prepare that uses it: of
	// all groups that the engine has, by its own numbers of them, also where a
	// pair has not all of them. The provider keeps no reference after
	// Unregister returned.
	Register(memory.Rank) error
	// Unregister fails the operations that touch the rank and waits until none
	// does.
	Unregister(engine string, rank int) error

	// Connect reaches the peer at a (the remote provider's Address). Which
	// engines the two sides are is said by the plans they Prepare.
	Connect(ctx context.Context, a Address) (PeerID, error)
	// Accepted gives the PeerID of an incoming connection by the token that
	// its dialler's Token returned for it; both travel in the handshake. It is
	// known once the dialler's Connect has returned. An unknown token is
	// ErrPeerGone.
	Token(PeerID) string
	Accepted(token string) (PeerID, error)

	// Prepare makes a proved plan usable with the peer, by its digest. Both
	// sides prepare their own, each before its first Grant or Submit under the
	// plan. local says which side of the pair is ours. Preparing the same plan
	// again is no error.
	Prepare(p proof.Proven, peer PeerID, local Side) error

	// Grant lets the peer name g.ID in operations inside the granted range, each
	// group's span, layers and edges, any number of them; Revoke ends that and
	// returns when no copy under it is running here. Operations under it then
	// fail with ErrNotGranted. Revoking what is not granted is ErrNotGranted.
	Grant(g Grant) error
	Revoke(id GrantID) error

	// Submit starts an operation. The completion comes through Poll, exactly
	// one for each successful Submit. What is wrong with an operation may show
	// at once or in its completion, whoever finds it.
	Submit(op Operation) (OpID, error)
	// Poll stores finished operations in out and returns how many. It never
	// blocks; Ready is signalled (buffered, coalesced) when there is more.
	Poll(out []Completion) int
	Ready() <-chan struct{}
	// Cancel asks an operation to stop within one chunk; its completion then
	// carries ErrCanceled unless it had finished. An OpID that Submit never
	// gave is ErrNoOperation.
	Cancel(OpID) error

	// Fence returns when no operation or grant of the peer can touch this
	// side's memory any more: everything of it stopped, or its process died,
	// or its registration was revoked. A deadline alone never does that. The
	// operations submitted here end with ErrCanceled, the peer's grants are
	// revoked; new ones may follow.
	Fence(ctx context.Context, peer PeerID) error
	// Disconnect stops what runs with the peer, on this side at once and on
	// the other as soon as it notices, and forgets the peer. Operations end
	// with ErrPeerGone. An unknown peer is ErrPeerGone.
	Disconnect(peer PeerID) error
	// Health is nil while the peer is believed alive, else it matches
	// ErrPeerGone.
	Health(peer PeerID) error
	// Close ends all: every pending operation completes with ErrClosed, no
	// goroutine, descriptor or mapping is left. A second Close is ErrClosed.
	Close() error
}

// Side is one side of a pair.
type Side uint8

// The sides.
const (
	Source      Side = 1
	Destination Side = 2
)

// The sentinels of providers; match with errors.Is.
var (
	ErrClosed       = errors.New("transport: provider is closed")
	ErrCanceled     = errors.New("transport: operation canceled")
	ErrDeadline     = errors.New("transport: deadline passed")
	ErrPeerGone     = errors.New("transport: peer is gone")
	ErrNotGranted   = errors.New("transport: no such grant")
	ErrNotSupported = errors.New("transport: not supported by this provider")
	ErrNoDeadline   = errors.New("transport: operation without a deadline")
	ErrNoOperation  = errors.New("transport: no such operation")
)

// Stale is a block that was given back while, or before, it was read or
// written. The owner freed it: nothing of the operation may be used.
type Stale struct {
	Group, Rank int // the group of the pair
	Block       uint32
	Granted     uint64 // generation under which it was granted
	Found       uint64
}

func (e *Stale) Error() string {
	return fmt.Sprintf("transport: block %d of rank %d (group %d) was given back: granted in generation %d, found %d", e.Block, e.Rank, e.Group, e.Granted, e.Found)
}

// Unknown is a plan digest that was not prepared with the peer.
type Unknown struct{ Plan geometry.Digest }

func (e *Unknown) Error() string {
	return fmt.Sprintf("transport: plan %s was not prepared with this peer", e.Plan)
}

// Mismatch is an operation that asks for something else than was granted, or
// a side that describes it differently.
type Mismatch struct {
	Field  string // "direction", "plan", "from", "to", "spans", "layers", "edges", "tables", "generations", "bytes", "side"
	Asked  string
	Grants string
}

func (e *Mismatch) Error() string {
	return fmt.Sprintf("transport: the operation's %s is %s, the grant says %s", e.Field, e.Asked, e.Grants)
}

// Unregistered is memory that an operation needs and that is not registered,
// not yet or no longer.
type Unregistered struct {
	Engine string
	Rank   int
}

func (e *Unregistered) Error() string {
	return fmt.Sprintf("transport: rank %d of engine %q has no registered memory", e.Rank, e.Engine)
}
