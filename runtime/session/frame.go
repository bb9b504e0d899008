// Package session is the handshake between two agents: a pure state machine,
// the messages that it exchanges and the framing that carries them (and, in
// frames of other types, those of package transfer). It owns no connection,
// clock, goroutine or memory: Step takes an event and returns what to send
// and what to do.
//
// # Frames
//
// A control connection carries frames in both directions, all integers
// little-endian:
//
//	offset size
//	     0    4  magic "KVFY"
//	     4    1  framing version, 1
//	     5    1  type: 1-15 handshake (this package), 16-63 transfers (package transfer)
//	     6    2  zero
//	     8    4  payload length, at most MaxPayload
//	    12       payload: one JSON object, nothing after it
//
// A receiver refuses another magic, another framing version, a non-zero
// reserved field, an unknown type and an oversized payload before it reads a
// byte of payload. JSON is strict: an unknown key is refused.
//
// Forward compatibility: the framing version never changes meaning. Keys are
// added only together with a new protocol version. Each side's hello carries
// its versions, which are read first and leniently, so that a peer of another
// version is told so and not that it sent an unknown key.
//
// # Handshake
//
//	dialler                             acceptor
//	hello            ->
//	                 <-                 hello        both compare everything
//	(providers connect)
//	link {providers, tokens}  ->
//	                 <-                 linked {those that are known}
//
// then, whoever dialled:
//
//	destination                         source
//	(policy answers remap)
//	propose {alternatives, plan digests} ->
//	                 <-                 agree {plan digests}   built and proved by itself
//	confirm {plan digests} ->
//
// An alternative that a side cannot prove is left out and named; the handshake
// fails where none is left. Either side may send refuse instead of any message,
// with every field that differs, and closes. Block tables never travel in a
// handshake.
//
// Later, on the open connection, the destination may propose again, one proposal
// at a time, and the source answers with agree, which may then name no plan.
// What was agreed on before stays valid; no confirm follows.
package session

import (
	"encoding/binary"
	"fmt"

	"github.com/kvferry/kvferry/runtime/blame"
)

// Magic opens every frame.
const Magic = "KVFY"

// Sizes of frames.
const (
	FrameVersion = 1
	HeaderSize   = 12
	MaxPayload   = 8 << 20
)

// Type is the type of a frame.
type Type uint8

// The types of the handshake. Numbers never change.
const (
	TypeHello   Type = 1
	TypeLink    Type = 2
	TypeLinked  Type = 3
	TypePropose Type = 4
	TypeAgree   Type = 5
	TypeConfirm Type = 6
	TypeRefuse  Type = 7

	FirstTransfer Type = 16 // package transfer's
	LastTransfer  Type = 63
)

// Known reports whether a receiver lets a frame of the type in.
func (t Type) Known() bool {
	return t >= TypeHello && t <= TypeRefuse || t >= FirstTransfer && t <= LastTransfer
}

func (t Type) String() string {
	names := [...]string{TypeHello: "hello", TypeLink: "link", TypeLinked: "linked", TypePropose: "propose", TypeAgree: "agree", TypeConfirm: "confirm", TypeRefuse: "refuse"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// FrameError is a frame that is none of this protocol. The peer's fault.
type FrameError struct {
	Field string // "magic", "version", "type", "reserved", "length", "payload"
	Have  any
	Want  any
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("frame: %s is %v, want %v", e.Field, e.Have, e.Want)
}

// Blame is the peer.
func (e *FrameError) Blame() blame.Party { return blame.Peer }

// Header is a parsed frame header.
type Header struct {
	Type   Type
	Length int
}

// ParseHeader checks the first HeaderSize bytes of a frame.
func ParseHeader(b [HeaderSize]byte) (Header, error) {
	if string(b[:4]) != Magic {
		return Header{}, &FrameError{"magic", fmt.Sprintf("%q", b[:4]), fmt.Sprintf("%q", Magic)}
	}
	if b[4] != FrameVersion {
		return Header{}, &FrameError{"version", b[4], FrameVersion}
	}
	h := Header{Type: Type(b[5])}
	if !h.Type.Known() {
		return Header{}, &FrameError{"type", b[5], "a known type"}
	}
	if r := binary.LittleEndian.Uint16(b[6:]); r != 0 {
		return Header{}, &FrameError{"reserved", r, 0}
	}
	n := binary.LittleEndian.Uint32(b[8:])
	if n > MaxPayload {
		return Header{}, &FrameError{"length", n, fmt.Sprintf("at most %d", MaxPayload)}
	}
	h.Length = int(n)
	return h, nil
}

// AppendFrame appends a frame to dst. It is an error where the payload is too
// large.
func AppendFrame(dst []byte, t Type, payload []byte) ([]byte, error) {
	if !t.Known() {
		return dst, &FrameError{"type", uint8(t), "a known type"}
	}
	if len(payload) > MaxPayload {
		return dst, blame.On(blame.Local, fmt.Errorf("frame: a %s of %d bytes is larger than %d", t, len(payload), MaxPayload))
	}
	dst = append(dst, Magic...)
	dst = append(dst, FrameVersion, byte(t), 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...), nil
}
