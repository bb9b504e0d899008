package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// The versions that this package speaks.
const (
	Protocol    = 2 // the handshake's and the transfers' messages
	ABI         = 1 // kvferry/1, the policies'
	PlanVersion = 1 // what a plan digest covers
)

// MaxReason bounds the reason that a policy gives with its answer, in bytes.
const MaxReason = 256

// Versions is what a side speaks. Equal protocol and plan versions are
// required; a policy ABI that differs means that answers may, so it is too.
type Versions struct {
	Protocol int `json:"protocol"`
	ABI      int `json:"abi"`
	Plan     int `json:"plan"`
}

// Role is what a side's engine is in the pair.
type Role string

// The roles.
const (
	Source      Role = "source"
	Destination Role = "destination"
)

// Other is the opposite role.
func (r Role) Other() Role {
	if r == Source {
		return Destination
	}
	return Source
}

// Policy names the module that a side runs.
type Policy struct {
	Name     string `json:"name"`   // "" where the side runs none
	Digest   string `json:"digest"` // "sha256:..."
	Required bool   `json:"required"`
}

// Provider is one way to move bytes that a side offers.
type Provider struct {
	Name string `json:"name"`
	Data []byte `json:"data"` // opaque to all but the provider of that name
}

// Hello is the first message of either side.
type Hello struct {
	Versions  Versions   `json:"versions"`
	Role      Role       `json:"role"` // the sender's
	Agent     string     `json:"agent"`
	Group     string     `json:"group"` // trust group
	Want      string     `json:"want"`  // the dialler's wish: the peer's engine; "" the only one
	Engine    Engine     `json:"engine"`
	Policy    Policy     `json:"policy"`
	Site      Site       `json:"site"`
	Providers []Provider `json:"providers"` // in order of preference
}

// Link names the providers that the dialler connected, in its order, each with
// the token of its connection.
type Link struct {
	Connections []Connection `json:"connections"`
}

// Connection is one provider's.
type Connection struct {
	Provider string `json:"provider"`
	Token    string `json:"token"`
}

// Linked says which of the connections the acceptor's providers know: some of
// those of the link, in its order.
type Linked struct {
	Providers []string `json:"providers"`
}

// Propose is what the destination's policy answered, as far as the destination
// proved it, in the policy's order.
type Propose struct {
	Alternatives []Proposed `json:"alternatives"`
	Policy       Policy     `json:"policy"`
	Reason       string     `json:"reason"`
}

// Proposed is one alternative.
type Proposed struct {
	Assignments []Assignment `json:"assignments"`
	Plan        string       `json:"plan"` // digest
}

// Assignment is the wire form of plan.Assignment.
type Assignment struct {
	Group       int    `json:"group"`
	Components  uint64 `json:"components"`
	Destination int    `json:"destination"`
	Source      int    `json:"source"`
	Layers      [2]int `json:"layers"`
	Heads       [2]int `json:"heads"`
	Tokens      [3]int `json:"tokens"` // size, interleave, phase
}

// Agree says which of the proposed alternatives the source built and proved
// itself.
type Agree struct {
	Plans    []string  `json:"plans"` // digests, one for each alternative; "" for one that is not proved
	Unproved []Failing `json:"unproved,omitempty"`
}

// Failing is an alternative that the sender of an Agree did not prove.
type Failing struct {
	Index   int         `json:"index"` // in the proposal
	Blame   blame.Party `json:"blame"` // as the sender sees it
	Message string      `json:"message"`
}

// Confirm ends the handshake: the plans of the Agree.
type Confirm struct {
	Plans []string `json:"plans"`
}

// Refuse ends the handshake, or any connection before it, with the reason.
type Refuse struct {
	Code    Code                  `json:"code"`
	Blame   blame.Party           `json:"blame"` // as the sender sees it
	Message string                `json:"message"`
	Fields  []geometry.Difference `json:"fields,omitempty"`
}

// Code is the kind of a refusal.
type Code string

// The codes. They travel and never change.
const (
	CodeProtocol Code = "protocol" // a frame or message that is none, or out of turn
	CodeVersion  Code = "version"
	CodeMismatch Code = "mismatch"
	CodeEngine   Code = "engine"   // no such engine here, or it is not open
	CodePolicy   Code = "policy"   // no answer, or one that does not hold
	CodePlan     Code = "plan"     // plan digests differ
	CodeProvider Code = "provider" // none in common, or it failed
	CodeClosed   Code = "closed"
	CodeBusy     Code = "busy"
)

// Message is one of the handshake's messages, by pointer.
type Message interface{ Type() Type }

// Type is the frame type.
func (*Hello) Type() Type   { return TypeHello }
func (*Link) Type() Type    { return TypeLink }
func (*Linked) Type() Type  { return TypeLinked }
func (*Propose) Type() Type { return TypePropose }
func (*Agree) Type() Type   { return TypeAgree }
func (*Confirm) Type() Type { return TypeConfirm }
func (*Refuse) Type() Type  { return TypeRefuse }

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var own *FrameError
		if errors.As(err, &own) {
			return own
		}
		return &FrameError{"payload", err.Error(), fmt.Sprintf("a %T", v)}
	}
	if _, err := d.Token(); err != io.EOF {
		return &FrameError{"payload", "more than one JSON value", "exactly one"}
	}
	return nil
}

// Decode parses a handshake payload. Errors: *VersionError, *FrameError.
func Decode(t Type, payload []byte) (Message, error) {
	var m Message
	switch t {
	case TypeHello:
		var v struct {
			Versions *Versions `json:"versions"`
		}
		if err := json.Unmarshal(payload, &v); err != nil {
			return nil, &FrameError{"payload", err.Error(), "a hello"}
		}
		if v.Versions == nil {
			return nil, &FrameError{"versions", "absent", "the sender's versions"}
		}
		if err := compareVersions(*v.Versions); err != nil {
			return nil, err
		}
		m = &Hello{}
	case TypeLink:
		m = &Link{}
	case TypeLinked:
		m = &Linked{}
	case TypePropose:
		m = &Propose{}
	case TypeAgree:
		m = &Agree{}
	case TypeConfirm:
		m = &Confirm{}
	case TypeRefuse:
		m = &Refuse{}
	default:
		return nil, &FrameError{"type", uint8(t), "a handshake message"}
	}
	if err := strict(payload, m); err != nil {
		return nil, err
	}
	if err := limits(m); err != nil {
		return nil, err
	}
	return m, nil
}

// maxProviders bounds the providers of a message.
const maxProviders = policy.MaxProviders

// limits checks how much a message carries; what it means is for the machine.
func limits(m Message) error {
	over := func(field string, n, most int) error {
		if n > most {
			return &FrameError{field, n, fmt.Sprintf("at most %d", most)}
		}
		return nil
	}
	switch m := m.(type) {
	case *Hello:
		return over("providers", len(m.Providers), maxProviders)
	case *Link:
		return over("connections", len(m.Connections), maxProviders)
	case *Linked:
		return over("providers", len(m.Providers), maxProviders)
	case *Propose:
		if len(m.Reason) > MaxReason || !utf8.ValidString(m.Reason) {
			return &FrameError{"reason", fmt.Sprintf("%d bytes", len(m.Reason)), fmt.Sprintf("at most %d bytes of UTF-8", MaxReason)}
		}
		return over("alternatives", len(m.Alternatives), MaxAlternatives)
	case *Agree:
		return errors.Join(over("plans", len(m.Plans), MaxAlternatives), over("unproved", len(m.Unproved), MaxAlternatives))
	case *Confirm:
		return over("plans", len(m.Plans), MaxAlternatives)
	}
	return nil
}

// Encode gives a message's frame.
func Encode(m Message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Type(), err)
	}
	return AppendFrame(nil, m.Type(), b)
}

func assignmentsOut(as []plan.Assignment) []Assignment {
	out := make([]Assignment, len(as))
	for i, a := range as {
		out[i] = Assignment{a.Group, a.Components, a.Destination, a.Source, [2]int{a.Layers.From, a.Layers.To}, [2]int{a.Heads.From, a.Heads.To}, [3]int{a.Tokens.Size, a.Tokens.Interleave, a.Tokens.Phase}}
	}
	return out
}

func assignmentsIn(as []Assignment) []plan.Assignment {
	out := make([]plan.Assignment, len(as))
	for i, a := range as {
		out[i] = plan.Assignment{Group: a.Group, Components: a.Components, Destination: a.Destination, Source: a.Source,
			Layers: plan.Range{From: a.Layers[0], To: a.Layers[1]}, Heads: plan.Range{From: a.Heads[0], To: a.Heads[1]},
			Tokens: plan.Tokens{Size: a.Tokens[0], Interleave: a.Tokens[1], Phase: a.Tokens[2]}}
	}
	return out
}
