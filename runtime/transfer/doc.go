// Package transfer is the life cycle of moving one request's blocks, as pure
// state machines: Offer (blocks that may be read), Expect (blocks that may be
// written) and Move (the side that acts). It holds the tickets that permit a
// move, the messages that two agents exchange about one, and the codings of
// block tables.
//
// A machine takes what happened and the time at which it did, and answers
// what to do. It owns no clock, goroutine, connection or memory. Every
// machine reaches exactly one final state, and blocks are given back only
// when every handle that touches them has stopped.
package transfer

import "github.com/kvferry/kvferry/kv/shard"

// Limits of a transfer.
const (
	MaxSideData    = 64 << 10 // small data of a request that rides along
	MaxRequest     = 128      // bytes of a request's name
	MaxTokens      = 1 << 32  // of one request
	MaxTable       = 1 << 22  // block ids of one request, all groups together
	MaxBoxes       = 1 << 12  // boxes of one message
	MaxSpans       = 1 << 12  // token ranges that a layer's coverage may fall into
	MaxReaders     = 1 << 10
	MaxUses        = 1 << 16 // reads of one offer, all consumers and ranks together
	MaxTicketBytes = 512
	KeyBytes       = 32             // of a digest's key
	MaxQueries     = 1 << 12        // of one question about digests
	MaxSums        = 1 << 16        // of one answer
	MaxRanks       = shard.MaxRanks // of one engine
	MaxProviders   = 64             // of one connection
	MaxPlans       = 16             // of one expectation
	MaxLoad        = 8              // the busiest
)

// Reason says why an offer's blocks are free.
type Reason string

// The reasons.
const (
	Read      Reason = "read"      // every reader finished and has what it came for
	Abandoned Reason = "abandoned" // every reader finished, one of them without having it all
	Canceled  Reason = "canceled"  // the owner canceled the offer
	Expired   Reason = "expired"   // the lease passed
	Shut      Reason = "shut"      // the engine or agent was closed
)
