package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// VersionError is a peer of another version.
type VersionError struct {
	Field      string // "versions.protocol", ...
	Peer, Ours int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("handshake: %s differs: the peer speaks %d, this side %d", e.Field, e.Peer, e.Ours)
}

// Blame is the operator, who runs two versions.
func (e *VersionError) Blame() blame.Party { return blame.Operator }

func compareVersions(v Versions) error {
	for _, f := range []struct {
		field      string
		peer, ours int
	}{{"versions.protocol", v.Protocol, Protocol}, {"versions.abi", v.ABI, ABI}, {"versions.plan", v.Plan, PlanVersion}} {
		if f.peer != f.ours {
			return &VersionError{f.field, f.peer, f.ours}
		}
	}
	return nil
}

// Mismatch is a pair of sides that cannot exchange a cache. Fields names
// every difference, with both values.
type Mismatch struct{ Fields []geometry.Difference }

func (e *Mismatch) Error() string {
	return "handshake: " + describe(e.Fields)
}

// Blame is the operator, who configured both.
func (e *Mismatch) Blame() blame.Party { return blame.Operator }

// Format prints every field on %+v.
func (e *Mismatch) Format(f fmt.State, verb rune) { format(f, verb, e.Error(), e.Fields) }

func describe(fields []geometry.Difference) string {
	f := fields[0]
	s := fmt.Sprintf("%s differs: source %s, destination %s", f.Field, f.Source, f.Destination)
	if n := len(fields) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

func format(f fmt.State, verb rune, line string, fields []geometry.Difference) {
	fmt.Fprint(f, line)
	if verb == 'v' && f.Flag('+') {
		for _, d := range fields {
			fmt.Fprintf(f, "\n  %s: source %s, destination %s", d.Field, d.Source, d.Destination)
		}
	}
}

// Invalid is a peer whose description of its engine cannot be true.
type Invalid struct{ Err error }

func (e *Invalid) Error() string { return fmt.Sprintf("handshake: check the peer's engine: %v", e.Err) }

// Unwrap returns the cause, a *plan.Error.
func (e *Invalid) Unwrap() error { return e.Err }

// Blame is the peer.
func (e *Invalid) Blame() blame.Party { return blame.Peer }

// Turn is a message that does not belong where it came.
type Turn struct {
	State string
	Got   Type
}

func (e *Turn) Error() string {
	return fmt.Sprintf("handshake: a %s message while %s", e.Got, e.State)
}

// Blame is the peer.
func (e *Turn) Blame() blame.Party { return blame.Peer }

// DigestError is a plan that came out differently on the two sides, although
// both proved theirs.
type DigestError struct{ Source, Destination string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("handshake: plan digest differs: source %s, destination %s", e.Source, e.Destination)
}

// Blame is the operator: two builds of the planner that order runs
// differently meet.
func (e *DigestError) Blame() blame.Party { return blame.Operator }

// Answer is a policy's answer that cannot be carried out.
type Answer struct {
	Policy string // name
	By     blame.Party
	Err    error
}

func (e *Answer) Error() string {
	return fmt.Sprintf("handshake: policy %q: %v", e.Policy, e.Err)
}

// Unwrap returns the cause.
func (e *Answer) Unwrap() error { return e.Err }

// Blame is the policy's, or the peer's whose policy it was.
func (e *Answer) Blame() blame.Party { return e.By }

// ErrNoProvider is a pair of agents without a provider in common.
var ErrNoProvider = errors.New("handshake: no provider in common")

// Refused is the peer's refusal.
type Refused struct {
	Code    Code
	By      blame.Party // as this side sees it
	Message string
	Fields  []geometry.Difference
}

func (e *Refused) Error() string {
	return fmt.Sprintf("the peer refused (%s): %s", e.Code, e.Message)
}

// Blame is the peer's verdict, seen from here.
func (e *Refused) Blame() blame.Party { return e.By }

// Format prints every field on %+v.
func (e *Refused) Format(f fmt.State, verb rune) { format(f, verb, e.Error(), e.Fields) }

// Refusal is the message that tells a peer of err.
func Refusal(err error) *Refuse {
	r := &Refuse{Code: CodeProtocol, Blame: blame.Of(err), Message: clip(err.Error())}
	var (
		mismatch *Mismatch
		invalid  *Invalid
		version  *VersionError
		digest   *DigestError
		answer   *Answer
		roster   *RosterError
		refusing *coded
	)
	switch {
	case errors.As(err, &refusing):
		r.Code = refusing.code
	case errors.As(err, &mismatch):
		r.Code, r.Fields = CodeMismatch, mismatch.Fields
	case errors.As(err, &invalid):
		r.Code = CodeMismatch
		var field *plan.Error
		if errors.As(err, &field) && field.Field != "" {
			r.Fields = []geometry.Difference{sideOnly(field)}
		}
		var said *policy.QuestionError
		if errors.As(err, &said) {
			side, name, _ := strings.Cut(said.Field, ".")
			r.Fields = []geometry.Difference{sideOnly(&plan.Error{Side: side, Field: name, Value: said.Value, Reason: said.Reason})}
		}
	case errors.As(err, &version):
		r.Code = CodeVersion
		r.Fields = []geometry.Difference{{Field: version.Field, Source: fmt.Sprint(version.Peer), Destination: fmt.Sprint(version.Ours)}}
	case errors.As(err, &digest):
		r.Code, r.Fields = CodePlan, []geometry.Difference{{Field: "plan.digest", Source: digest.Source, Destination: digest.Destination}}
	case errors.As(err, &answer):
		r.Code = CodePolicy
	case errors.As(err, &roster):
		r.Code = CodeEngine
	case errors.Is(err, ErrNoProvider):
		r.Code = CodeProvider
	}
	return r
}

func sideOnly(e *plan.Error) geometry.Difference {
	d := geometry.Difference{Field: e.Field, Source: "-", Destination: "-"}
	v := clip(fmt.Sprintf("%v: %s", e.Value, e.Reason))
	if e.Side == string(Source) {
		d.Source = v
	} else {
		d.Destination = v
	}
	return d
}

type coded struct {
	code Code
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// With marks err with the code under which a refusal carries it.
func With(code Code, err error) error { return &coded{code, err} }

// clip bounds what a message carries of an error.
func clip(s string) string {
	const limit = 2000
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}
