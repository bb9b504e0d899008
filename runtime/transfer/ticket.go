package transfer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
)

// ID names an offer or an expectation; random, unguessable.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Kind says what a ticket permits.
type Kind uint8

// The kinds.
const (
	ToRead  Kind = 1 // an offer's blocks
	ToWrite Kind = 2 // an expectation's blocks
)

func (k Kind) String() string {
	switch k {
	case ToRead:
		return "read"
	case ToWrite:
		return "write"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Ticket is a permission, and all of it: block tables and generations stay
// with the owner. Sealed, it is at most MaxTicketBytes of URL-safe text:
// unpadded base64 of
//
//	offset size
//	     0    2  "KT"
//	     2    1  version, 1
//	     3    1  kind
//	     4   16  offer
//	    20    8  deadline, milliseconds since 1970, big-endian
//	    28    -  engine, incarnation, audience, trace: a length byte and the bytes, each
//	     -   32  HMAC-SHA256 of everything before, under the engine's key
//
// The deadline is by the owner's clock, which decides: an offer whose lease
// was extended honours its tickets after it, one that was given back never
// does.
type Ticket struct {
	Kind        Kind
	Offer       ID
	Deadline    time.Time // whole milliseconds
	Engine      string
	Incarnation string
	Audience    string // trust group
	Trace       string // trace context; "" none
}

const (
	ticketVersion = 1
	maxEngine     = 128
	maxOther      = 64
	macSize       = sha256.Size
)

// Seal returns the ticket's text. Errors are the caller's: a field too long,
// a key under 32 bytes.
func (t Ticket) Seal(key []byte) (string, error) {
	if len(key) < 32 {
		return "", fmt.Errorf("ticket: a key has at least 32 bytes, not %d", len(key))
	}
	if t.Kind != ToRead && t.Kind != ToWrite {
		return "", fmt.Errorf("ticket: %s is no kind", t.Kind)
	}
	b := append([]byte("KT"), ticketVersion, byte(t.Kind))
	b = append(b, t.Offer[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Deadline.UnixMilli()))
	for _, f := range t.strings() {
		if len(f.value) > f.limit {
			return "", fmt.Errorf("ticket: %s has %d bytes, want at most %d", f.name, len(f.value), f.limit)
		}
		b = append(b, byte(len(f.value)))
		b = append(b, f.value...)
	}
	b = append(b, mac(key, b)...)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

type ticketField struct {
	name, value string
	limit       int
}

func (t Ticket) strings() [4]ticketField {
	return [4]ticketField{{"engine", t.Engine, maxEngine}, {"incarnation", t.Incarnation, maxOther}, {"audience", t.Audience, maxOther}, {"trace", t.Trace, 55}}
}

func mac(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("kvferry ticket 1\n"))
	h.Write(b)
	return h.Sum(nil)
}

// Peek parses a ticket without checking its seal: to route it, never to
// trust it.
func Peek(sealed string) (Ticket, error) {
	t, _, _, err := parseTicket(sealed)
	return t, err
}

func parseTicket(sealed string) (t Ticket, body, seal []byte, err error) {
	bad := func(field, have, want string) (Ticket, []byte, []byte, error) {
		return Ticket{}, nil, nil, &TicketError{ErrMalformed, field, have, want}
	}
	if len(sealed) > MaxTicketBytes {
		return bad("length", fmt.Sprint(len(sealed)), fmt.Sprintf("at most %d bytes", MaxTicketBytes))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || strings.ContainsAny(sealed, "\r\n") { // which the decoder skips, even a strict one
		return bad("text", "not base64", "unpadded URL-safe base64")
	}
	if len(b) < 28+4+macSize {
		return bad("length", fmt.Sprint(len(b)), fmt.Sprintf("at least %d", 28+4+macSize))
	}
	if string(b[:2]) != "KT" {
		return bad("magic", fmt.Sprintf("%q", b[:2]), `"KT"`)
	}
	if b[2] != ticketVersion {
		return bad("version", fmt.Sprint(b[2]), fmt.Sprint(ticketVersion))
	}
	t.Kind = Kind(b[3])
	if t.Kind != ToRead && t.Kind != ToWrite {
		return bad("kind", t.Kind.String(), "read or write")
	}
	copy(t.Offer[:], b[4:20])
	t.Deadline = time.UnixMilli(int64(binary.BigEndian.Uint64(b[20:28])))
	rest := b[28 : len(b)-macSize]
	for i, f := range [4]*string{&t.Engine, &t.Incarnation, &t.Audience, &t.Trace} {
		if len(rest) == 0 || len(rest)-1 < int(rest[0]) {
			return bad(t.strings()[i].name, "cut short", "whole")
		}
		n := int(rest[0])
		*f = string(rest[1 : 1+n])
		if limit := t.strings()[i].limit; n > limit {
			return bad(t.strings()[i].name, fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", limit))
		}
		rest = rest[1+n:]
	}
	if len(rest) != 0 {
		return bad("length", fmt.Sprintf("%d bytes too many", len(rest)), "nothing after the trace")
	}
	return t, b[:len(b)-macSize], b[len(b)-macSize:], nil
}

// Owner is who checks a ticket.
type Owner struct {
	Engine, Incarnation string
	Group               string // trust group
	Key                 []byte
}

// Check parses a ticket and checks everything about it that does not depend
// on the offer's state: the error is a *TicketError. consumer is the trust
// group of whoever shows it. Whether it has expired depends on the offer:
// see Late.
func (o Owner) Check(sealed string, kind Kind, consumer string) (Ticket, error) {
	t, body, seal, err := parseTicket(sealed)
	if err != nil {
		return Ticket{}, err
	}
	// Engine and incarnation come before the seal, whose key changes with
	// them: "of an engine that restarted" says more than "forged". Nothing is
	// given away, the ticket is refused in any case.
	switch {
	case t.Engine != o.Engine:
		return Ticket{}, &TicketError{ErrEngine, "engine", t.Engine, o.Engine}
	case t.Incarnation != o.Incarnation:
		return Ticket{}, &TicketError{ErrIncarnation, "incarnation", t.Incarnation, o.Incarnation}
	case !hmac.Equal(seal, mac(o.Key, body)):
		return Ticket{}, &TicketError{ErrForged, "seal", "not made with this engine's key", "one that is"}
	case t.Kind != kind:
		return Ticket{}, &TicketError{ErrKind, "kind", t.Kind.String(), kind.String()}
	case t.Audience != consumer || t.Audience != o.Group:
		return Ticket{}, &TicketError{ErrAudience, "audience", t.Audience, fmt.Sprintf("consumer %q, owner %q", consumer, o.Group)}
	}
	return t, nil
}

// Late returns the error for a genuine ticket whose offer is not open any
// more.
func (t Ticket) Late(now time.Time) error {
	if now.After(t.Deadline) {
		return &TicketError{ErrExpired, "deadline", t.Deadline.UTC().Format(time.RFC3339Nano), "now " + now.UTC().Format(time.RFC3339Nano)}
	}
	return &TicketError{ErrUnknown, "offer", t.Offer.String(), "an open one"}
}

// TicketError is a ticket that permits nothing. Err is one of the sentinels
// below; match with errors.Is.
type TicketError struct {
	Err        error
	Field      string
	Have, Want string
}

func (e *TicketError) Error() string {
	return fmt.Sprintf("%v: %s is %s, want %s", e.Err, e.Field, e.Have, e.Want)
}

// Unwrap returns the sentinel.
func (e *TicketError) Unwrap() error { return e.Err }

// Blame is the peer, who showed the ticket.
func (e *TicketError) Blame() blame.Party { return blame.Peer }
