package transfer

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kvferry/kvferry/runtime/blame"
)

// Boxes and tables are by group of the pair, which may have fewer than an
// engine.
//
// The frame types of this package's messages, within the range that package
// session leaves to it. Numbers never change. "Opener" is the side that acts
// (the reader of an offer, the writer of an expectation), "owner" the side
// that opened the blocks; X is the opener's number of the transfer, unique
// on its connection.
const (
	TypeOpen     uint8 = 16 // opener -> owner
	TypeGranted  uint8 = 17 // owner -> opener
	TypeRefused  uint8 = 18 // owner -> opener; final
	TypeMark     uint8 = 19 // owner -> opener: boxes that may be read
	TypeLanded   uint8 = 20 // opener -> owner: boxes that were written
	TypeDone     uint8 = 21 // opener -> owner: no handle of mine touches your blocks any more
	TypeEnded    uint8 = 22 // owner -> opener: stop; final
	TypeClosed   uint8 = 23 // owner -> opener: answer to Done
	TypeBeat     uint8 = 24 // opener -> owner: these are alive; and both ways, empty: so is the connection
	TypeExtend   uint8 = 25 // consumer -> owner: extend a ticket's lease
	TypeExtended uint8 = 26
	TypeBye      uint8 = 27 // closing on purpose
	TypeAsk      uint8 = 28 // destination -> source: digests of what a transfer moved
	TypeSums     uint8 = 29 // source -> destination
	TypeProbe    uint8 = 30 // destination -> source: write your scratch blocks and offer them
	TypeProbed   uint8 = 31 // source -> destination: the answer
	TypeVerdict  uint8 = 32 // destination -> source: whether the probe arrived
)

// Message is one of this package's messages, by pointer.
type Message interface{ Type() uint8 }

type (
	// Open asks to read an offer or to write to an expectation.
	Open struct {
		X      uint64 `json:"x"`
		Kind   Kind   `json:"kind"`
		Ticket string `json:"ticket"`
		Ranks  []int  `json:"ranks"` // the opener's ranks that it speaks for
		Plan   string `json:"plan"`  // digest
		// Providers may move it, in the opener's order of preference; none
		// where nothing is to be moved on the connection.
		Providers []string `json:"providers,omitempty"`
		From      int64    `json:"from"`
		To        int64    `json:"to"`
		Layers    [2]int   `json:"layers"` // from, to
		// End is the token up to which the opener's request goes, and First, by
		// group of the pair, how many leading entries its tables leave out.
		End   int64   `json:"end"`
		First []int64 `json:"first,omitempty"`
		More  bool    `json:"more,omitempty"`
		// Integrity is how much of what is written is compared with the
		// source (a write only; who reads compares by itself).
		Integrity Integrity `json:"integrity,omitempty"`
		SideData  []byte    `json:"side_data,omitempty"` // of a write
	}
	// Granted answers Open. TTL is how long the grant lasts without a beat,
	// relative, since clocks differ.
	Granted struct {
		X       uint64 `json:"x"`
		Grant   Grant  `json:"grant"`
		TTL     int64  `json:"ttl_ms"`
		Request string `json:"request"`
		// Providers are those of the Open that take the grant, in its order.
		Providers   []string `json:"providers,omitempty"`
		End         int64    `json:"end"`                   // as in Open, of the owner
		First       []int64  `json:"first,omitempty"`       // as in Open, of the owner
		Tables      []byte   `json:"tables,omitempty"`      // AppendTables; for one-sided providers
		Generations []byte   `json:"generations,omitempty"` // AppendGenerations
		Ready       []Box    `json:"ready,omitempty"`
		SideData    []byte   `json:"side_data,omitempty"` // of an offer
	}
	// Refused answers Open.
	Refused struct {
		X       uint64   `json:"x"`
		Failure *Failure `json:"failure"`
	}
	// Mark says what may be read.
	Mark struct {
		X     uint64 `json:"x"`
		Boxes []Box  `json:"boxes"`
	}
	// Landed says what was written, on all of the opener's ranks.
	Landed struct {
		X     uint64 `json:"x"`
		Boxes []Box  `json:"boxes"`
	}
	// Done says that the opener has finished, well where Failure is nil.
	Done struct {
		X       uint64   `json:"x"`
		Failure *Failure `json:"failure,omitempty"`
	}
	// Ended takes the grant away.
	Ended struct {
		X       uint64   `json:"x"`
		Failure *Failure `json:"failure"`
	}
	// Closed says that the owner has taken Done in.
	Closed struct {
		X       uint64   `json:"x"`
		Failure *Failure `json:"failure,omitempty"`
	}
	// Beat extends the leases of the named transfers, and says how busy the
	// sender's ranks are where that changed.
	Beat struct {
		X     []uint64 `json:"x,omitempty"`
		Loads []Load   `json:"loads,omitempty"`
	}
	// Extend extends the lease of a ticket's offer or expectation.
	Extend struct {
		X      uint64 `json:"x"`
		Kind   Kind   `json:"kind"`
		Ticket string `json:"ticket"`
	}
	// Extended answers Extend.
	Extended struct {
		X       uint64   `json:"x"`
		TTL     int64    `json:"ttl_ms"`
		Failure *Failure `json:"failure,omitempty"`
	}
	// Ask asks the source for digests of what a transfer moved. Mine says that
	// X is a number of the sender's.
	Ask struct {
		X       uint64  `json:"x"`
		Mine    bool    `json:"mine,omitempty"`
		N       uint64  `json:"n"`    // of the question; ascending on a connection
		Key     []byte  `json:"key"`  // of the digests, 32 bytes
		Rate    int     `json:"rate"` // one row of so many is looked at
		Queries []Query `json:"queries"`
	}
	// Sums answers Ask: a digest for each query, layer of the group and
	// component, in that order, of those that the query names and the edge's
	// ranks both hold.
	Sums struct {
		N       uint64   `json:"n"`
		Sums    []uint64 `json:"sums,omitempty"`
		Failure *Failure `json:"failure,omitempty"`
	}
	// Probe asks the source to write a probe with its own kernel and to offer
	// it. Tokens is how many the destination's scratch blocks hold.
	// Ticket, where not empty, is of the offer that another agent of the
	// source's engine opened for the probe.
	Probe struct {
		Tokens int64  `json:"tokens"`
		Pass   int    `json:"pass"` // which values: 0 to 15
		Ticket string `json:"ticket,omitempty"`
	}
	// Probed answers Probe: the offer's ticket and how many tokens it has.
	Probed struct {
		Ticket  string   `json:"ticket,omitempty"`
		Tokens  int64    `json:"tokens"`
		Failure *Failure `json:"failure,omitempty"`
	}
	// Verdict says whether the destination's kernel read what the source's
	// wrote; Failure nil: it did, now or before under the same plan.
	Verdict struct {
		Failure *Failure `json:"failure,omitempty"`
	}
	// Bye announces that the sender closes the connection.
	Bye struct {
		Message string `json:"message"`
	}
)

// Load is how busy a rank of the sender is, from 1 to MaxLoad. It travels as
// [rank, load].
type Load struct {
	Rank int
	Load uint8
}

// MarshalJSON writes [rank, load].
func (l Load) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{l.Rank, int(l.Load)}) }

// UnmarshalJSON reads it.
func (l *Load) UnmarshalJSON(b []byte) error {
	var v []int
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if len(v) != 2 || v[0] < 0 || v[1] < 1 || v[1] > MaxLoad {
		return fmt.Errorf("load %v: want [rank, 1 to %d]", v, MaxLoad)
	}
	*l = Load{v[0], uint8(v[1])}
	return nil
}

// Query names rows of which a digest is asked for: those that an edge of the
// plan carries, within layers and heads, and within tokens [From, To) where
// Component is -1 (every component of the group) or entries [From, To) of the
// one component.
type Query struct {
	Source      int    `json:"source"` // ranks
	Destination int    `json:"destination"`
	Group       int    `json:"group"` // of the pair
	Component   int    `json:"component"`
	Layers      [2]int `json:"layers"`
	Heads       [2]int `json:"heads"`
	From        int64  `json:"from"`
	To          int64  `json:"to"`
}

// Integrity is how much of what a transfer moved is compared with the source.
type Integrity string

// The levels. Off is the zero value.
const (
	Off    Integrity = ""
	Sample Integrity = "sample" // one row of SampleRate
	Full   Integrity = "full"
)

// SampleRate is how many rows one sampled row stands for.
const SampleRate = 64

// Valid reports whether i is a level.
func (i Integrity) Valid() bool { return i == Off || i == Sample || i == Full }

// Rate is one row of how many is looked at; 0: none.
func (i Integrity) Rate() int {
	switch i {
	case Sample:
		return SampleRate
	case Full:
		return 1
	}
	return 0
}

// Grant is the unguessable name of a grant, hexadecimal in messages.
type Grant [16]byte

// MarshalText writes 32 hexadecimal digits.
func (g Grant) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

// UnmarshalText reads them.
func (g *Grant) UnmarshalText(b []byte) error {
	if len(b) != 32 {
		return fmt.Errorf("a grant has 32 hexadecimal digits, not %d", len(b))
	}
	_, err := hex.Decode(g[:], b)
	return err
}

// Type is the frame type.
func (*Open) Type() uint8     { return TypeOpen }
func (*Granted) Type() uint8  { return TypeGranted }
func (*Refused) Type() uint8  { return TypeRefused }
func (*Mark) Type() uint8     { return TypeMark }
func (*Landed) Type() uint8   { return TypeLanded }
func (*Done) Type() uint8     { return TypeDone }
func (*Ended) Type() uint8    { return TypeEnded }
func (*Closed) Type() uint8   { return TypeClosed }
func (*Beat) Type() uint8     { return TypeBeat }
func (*Extend) Type() uint8   { return TypeExtend }
func (*Extended) Type() uint8 { return TypeExtended }
func (*Bye) Type() uint8      { return TypeBye }
func (*Ask) Type() uint8      { return TypeAsk }
func (*Probe) Type() uint8    { return TypeProbe }
func (*Probed) Type() uint8   { return TypeProbed }
func (*Verdict) Type() uint8  { return TypeVerdict }
func (*Sums) Type() uint8     { return TypeSums }

// MessageError is a payload that is no message. The peer's fault.
type MessageError struct {
	Type   uint8
	Field  string
	Reason string
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("message of type %d: %s: %s", e.Type, e.Field, e.Reason)
}

// Blame is the peer.
func (e *MessageError) Blame() blame.Party { return blame.Peer }

// Decode parses a payload, strictly: unknown keys, a second value and what
// breaks a limit are a *MessageError. Ranges are checked against the offer
// later.
func Decode(typ uint8, payload []byte) (Message, error) {
	var m Message
	switch typ {
	case TypeOpen:
		m = &Open{}
	case TypeGranted:
		m = &Granted{}
	case TypeRefused:
		m = &Refused{}
	case TypeMark:
		m = &Mark{}
	case TypeLanded:
		m = &Landed{}
	case TypeDone:
		m = &Done{}
	case TypeEnded:
		m = &Ended{}
	case TypeClosed:
		m = &Closed{}
	case TypeBeat:
		m = &Beat{}
	case TypeExtend:
		m = &Extend{}
	case TypeExtended:
		m = &Extended{}
	case TypeBye:
		m = &Bye{}
	case TypeAsk:
		m = &Ask{}
	case TypeSums:
		m = &Sums{}
	case TypeProbe:
		m = &Probe{}
	case TypeProbed:
		m = &Probed{}
	case TypeVerdict:
		m = &Verdict{}
	default:
		return nil, &MessageError{typ, "type", "unknown"}
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, &MessageError{typ, "payload", err.Error()}
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, &MessageError{typ, "payload", "more than one JSON value"}
	}
	if field, err := limits(m); err != nil {
		return nil, &MessageError{typ, field, err.Error()}
	}
	return m, nil
}

var errMissing = errors.New("absent")

func limits(m Message) (string, error) {
	over := func(n, most int) error {
		if n > most {
			return fmt.Errorf("%d, want at most %d", n, most)
		}
		return nil
	}
	switch m := m.(type) {
	case *Open:
		if err := over(len(m.Ticket), MaxTicketBytes); err != nil {
			return "ticket", err
		}
		if m.Kind != ToRead && m.Kind != ToWrite {
			return "kind", fmt.Errorf("%s, want read or write", m.Kind)
		}
		if len(m.Ranks) == 0 {
			return "ranks", errMissing
		}
		if err := over(len(m.Ranks), MaxRanks); err != nil {
			return "ranks", err
		}
		if !m.Integrity.Valid() {
			return "integrity", fmt.Errorf("%.20q, want sample or full", m.Integrity)
		}
		if err := over(len(m.First), 1<<6); err != nil {
			return "first", err
		}
		if err := over(len(m.Providers), MaxProviders); err != nil {
			return "providers", err
		}
		return "side_data", over(len(m.SideData), MaxSideData)
	case *Ask:
		if len(m.Key) != KeyBytes {
			return "key", fmt.Errorf("%d bytes, want %d", len(m.Key), KeyBytes)
		}
		if m.Rate < 1 || m.Rate > 1<<16 {
			return "rate", fmt.Errorf("%d, want 1 to %d", m.Rate, 1<<16)
		}
		return "queries", over(len(m.Queries), MaxQueries)
	case *Probe:
		if m.Pass < 0 || m.Pass > 15 {
			return "pass", fmt.Errorf("%d, want 0 to 15", m.Pass)
		}
		if m.Tokens < 1 || m.Tokens > MaxTokens {
			return "tokens", fmt.Errorf("%d, want 1 to %d", m.Tokens, MaxTokens)
		}
		return "ticket", over(len(m.Ticket), MaxTicketBytes)
	case *Probed:
		if m.Failure == nil && (m.Tokens < 1 || m.Tokens > MaxTokens) {
			return "tokens", fmt.Errorf("%d, want 1 to %d", m.Tokens, MaxTokens)
		}
		return "ticket", over(len(m.Ticket), MaxTicketBytes)
	case *Sums:
		return "sums", over(len(m.Sums), MaxSums)
	case *Granted:
		if m.TTL <= 0 {
			return "ttl_ms", fmt.Errorf("%d, want more than 0", m.TTL)
		}
		if err := over(len(m.Ready), MaxBoxes); err != nil {
			return "ready", err
		}
		if err := over(len(m.Request), MaxRequest); err != nil {
			return "request", err
		}
		if err := over(len(m.Providers), MaxProviders); err != nil {
			return "providers", err
		}
		return "side_data", over(len(m.SideData), MaxSideData)
	case *Mark:
		return "boxes", over(len(m.Boxes), MaxBoxes)
	case *Landed:
		return "boxes", over(len(m.Boxes), MaxBoxes)
	case *Refused:
		if m.Failure == nil {
			return "failure", errMissing
		}
	case *Ended:
		if m.Failure == nil {
			return "failure", errMissing
		}
	case *Beat:
		if err := over(len(m.Loads), MaxRanks); err != nil {
			return "loads", err
		}
		return "x", over(len(m.X), 1<<16)
	case *Extend:
		return "ticket", over(len(m.Ticket), MaxTicketBytes)
	}
	return "", nil
}

// Encode gives a message's payload.
func Encode(m Message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message of type %d: %w", m.Type(), err)
	}
	return b, nil
}
