package agent

import (
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/measure"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// EngineSpec describes an engine and the ranks of it that this agent holds.
// An engine whose ranks live under several agents is registered with each of
// them, with the same description, incarnation and Key, and disjoint Held.
type EngineSpec struct {
	ID          string // 1 to 128 bytes
	Incarnation string // 1 to 64 bytes; a restart is a new one, for all ranks
	Model       geometry.Model
	Shard       shard.Spec
	Pools       []plan.Pool        // by group
	Layouts     [][]*layout.Layout // [rank][group], of every rank of the engine
	// Can, where not nil, are the layouts among which Agent.SelectLayout chose
	// for this engine and incarnation: Register refuses Layouts that are not
	// those of the choice. Role and Expected are what the policy is asked with:
	// what the engine is in its pairs, and the peers that it will meet.
	Can      []policy.Candidate
	Role     policy.Role
	Expected []policy.Engine
	Held     []memory.Rank // the ranks whose memory this agent holds
	// About is what policies are told of the engine besides its cache: software,
	// labels, and where its ranks run, of all ranks or of none. What an agent
	// finds out by itself of the ranks that it holds (the host's name, the NUMA
	// node) need not be said; what is said counts.
	About policy.About
	// Kernel, where not nil, is the engine's own way to write and read its
	// cache. Register then measures where it puts things, which overwrites the
	// memory, and refuses an engine whose kernel disagrees with Layouts; and a
	// peer that has a kernel too is met only after a probe transfer: what the
	// source's kernel wrote, the destination's must read. Without it layouts
	// are believed as declared.
	Kernel measure.Kernel
	// Scratch are blocks by group, as a request's tables, that belong to probe
	// transfers for as long as the engine is registered.
	Scratch [][]uint32
	// Key seals the engine's tickets; 32 bytes or more, the same with all its
	// agents. Nil: a random one, legal only where Held is every rank.
	Key []byte
}

// Ticket is a sealed permission (at most 512 bytes of URL-safe text) to read
// an offer's blocks or to write an expectation's; it may travel by any way.
type Ticket string

// Box is a part of a request; see transfer.Box. Groups are those of our model; in
// a group of states the state of n tokens counts as token n-1.
type Box = transfer.Box

// Offer describes blocks that peers may read.
type Offer struct {
	Request string // 1 to 128 bytes; names the request in logs and results
	// Tables are block ids by group of our model, in token order; not modified
	// until Wait returned. A group with a window may give the last blocks only,
	// one with a ring gives the ring's, one of states the slot: the state that
	// it holds is that of Tokens tokens. See stamp.Held.
	Tables [][]uint32
	From   int64 // first token offered
	Tokens int64 // tokens [From, Tokens) are offered
	// TTL is the lease: the offer ends when it passes without a reader's
	// beat. Zero is refused: every offer has an end.
	TTL time.Duration
	// Streaming offers nothing until Ready says what is written; otherwise
	// everything is ready at once.
	Streaming bool
	SideData  []byte // at most transfer.MaxSideData bytes; given to each reader
	// Readers is how many consumers read the offer before it is free; zero
	// is one.
	Readers int
	Trace   string // trace context, at most 55 bytes
	// Ticket, where not empty, joins the offer that another agent of the same
	// engine opened: this agent adds its ranks to it.
	Ticket Ticket
}

// Integrity is how much of what a transfer moved is compared with the source;
// see package memory/digest for what that finds.
type Integrity = transfer.Integrity

// Reason says why an offer's blocks are free.
type Reason = transfer.Reason

// Dial says whom to connect to and as what.
type Dial struct {
	// Addresses of all agents that hold ranks of the peer, as they listen:
	// "unix:/path" or "tcp:host:port".
	Addresses []string
	Role      transport.Side // what our engine is in the pair
	Engine    string         // the peer's engine; empty: the agents' only one
}

// Pull describes blocks to read into. Tables, From and Tokens are ours; the
// offer must cover [From, Tokens).
type Pull struct {
	Ticket Ticket
	Tables [][]uint32 // our block ids by group, in token order; ours to give until Wait returned
	From   int64      // first token moved (a prefix hit moves the missing suffix only)
	Tokens int64      // tokens [From, Tokens) are moved
	Layers plan.Range // of the model; the zero value is all
	More   bool       // further pulls of this ticket follow: the offer stays open for us
	// Integrity is how much of what arrived is compared with the source before
	// the transfer is done. What Landed reports is in place and not yet compared.
	Integrity Integrity
	Timeout   time.Duration
	// Priority is what the policy is asked with, from 1 to policy.MaxPriority,
	// which is served first; 0: nothing is asked.
	Priority int
}

// Expect describes blocks that a producer may write.
type Expect struct {
	Request string
	Tables  [][]uint32 // not to be used until Wait returned nil, or Free returned
	From    int64
	Tokens  int64
	TTL     time.Duration // as in Offer
	Trace   string
	Ticket  Ticket // as in Offer: joins an expectation of another agent of the engine
}

// Push describes blocks to write to a peer's expectation.
type Push struct {
	Ticket   Ticket
	Tables   [][]uint32 // our block ids by group; not modified until Wait returned
	From     int64
	Tokens   int64
	Layers   plan.Range // the zero value is all
	SideData []byte     // at most transfer.MaxSideData bytes
	// Streaming moves nothing until Transfer.Ready says what is written.
	Streaming bool
	Timeout   time.Duration
	Integrity Integrity // as in Pull; the destination compares
	Priority  int       // as in Pull
}

// Result is what a transfer moved, over all ranks of this side.
type Result struct {
	Request   string        `json:"request"`
	Bytes     int64         `json:"bytes"`
	Segments  int64         `json:"segments"` // stamped segments, as the provider counted them
	Elapsed   time.Duration `json:"elapsed"`  // from the start to the last byte in place
	SideData  []byte        `json:"side_data,omitempty"`
	Integrity Integrity     `json:"integrity,omitempty"` // what was compared with the source
	Ranks     []int         `json:"ranks"`               // our ranks that took part, whether or not they had anything to move
	// Valid is what is whole at the destination, on all ranks of this side:
	// everything after success, what had landed before a failure.
	Valid []Box `json:"valid"`
	// OutOfWindow is what of the range did not move because it lies out of a
	// group's window and one side no longer holds it.
	OutOfWindow []Box `json:"out_of_window,omitempty"`
	// Absent are the groups of ours that the source has not: nothing of them
	// was written, and none of their blocks is valid.
	Absent []string `json:"absent,omitempty"`
	// ValidBlocks are, by group, the places in the destination's table whose
	// tokens of the transfer, as far as they moved, are all valid in every
	// layer. Nil where this side is the source.
	ValidBlocks [][]int `json:"valid_blocks,omitempty"`
	// Route is how it went, and who decided that.
	Route Route `json:"route"`
}
