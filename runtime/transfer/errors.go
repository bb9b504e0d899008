package transfer

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/blame"
)

// The sentinels of tickets.
var (
	ErrMalformed   = errors.New("ticket: malformed")
	ErrForged      = errors.New("ticket: forged")
	ErrExpired     = errors.New("ticket: expired")
	ErrEngine      = errors.New("ticket: of another engine")
	ErrIncarnation = errors.New("ticket: of another incarnation")
	ErrAudience    = errors.New("ticket: for another group")
	ErrKind        = errors.New("ticket: permits something else")
	ErrUsed        = errors.New("ticket: used before by the same consumer for the same rank and range")
	ErrUnknown     = errors.New("ticket: its offer is not open any more")
)

// The sentinels of transfers.
var (
	ErrCanceled = errors.New("transfer: canceled")
	ErrTimeout  = errors.New("transfer: deadline passed")
	ErrGone     = errors.New("transfer: the peer is gone")
	ErrEnded    = errors.New("transfer: the owner ended it")
	ErrShut     = errors.New("transfer: the engine was closed")
	ErrPlan     = errors.New("transfer: plan is not the one agreed on")
	ErrRange    = errors.New("transfer: outside what is offered")
	ErrStale    = errors.New("transfer: a block was given back while it was used")
	ErrProvider = errors.New("transfer: the provider failed")
	ErrLimit    = errors.New("transfer: over a limit")
	ErrAbsent   = errors.New("transfer: the source has no such group")
	ErrCorrupt  = errors.New("transfer: what arrived is not what was sent")
	ErrBusy     = errors.New("transfer: the peer is busy with another probe")
	ErrInternal = errors.New("transfer: failed at the peer")
)

// Code names a sentinel in messages. Codes never change.
type Code string

type coding struct {
	code Code
	err  error
}

func codings() [23]coding {
	return [...]coding{
		{"malformed", ErrMalformed}, {"forged", ErrForged}, {"expired", ErrExpired}, {"engine", ErrEngine},
		{"incarnation", ErrIncarnation}, {"audience", ErrAudience}, {"kind", ErrKind}, {"used", ErrUsed}, {"unknown", ErrUnknown},
		{"canceled", ErrCanceled}, {"timeout", ErrTimeout}, {"gone", ErrGone}, {"ended", ErrEnded}, {"shut", ErrShut},
		{"plan", ErrPlan}, {"range", ErrRange}, {"stale", ErrStale}, {"provider", ErrProvider}, {"limit", ErrLimit},
		{"absent", ErrAbsent}, {"corrupt", ErrCorrupt}, {"busy", ErrBusy}, {"internal", ErrInternal},
	}
}

// Failure is why something ended, as it travels.
type Failure struct {
	Code    Code        `json:"code"`
	Blame   blame.Party `json:"blame"` // as the sender sees it
	Message string      `json:"message"`
}

// Failed makes a Failure of err; nil of nil.
func Failed(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Code: "internal", Blame: blame.Of(err), Message: err.Error()}
	if len(f.Message) > 1000 {
		f.Message = f.Message[:1000] + "..."
	}
	for _, c := range codings() {
		if errors.Is(err, c.err) {
			f.Code = c.code
			break
		}
	}
	var r *RangeError
	if errors.As(err, &r) {
		f.Code = "range"
	}
	return f
}

// Err is the failure as the receiver's error, a *Remote; nil of nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	r := &Remote{By: f.Blame.Seen(), Message: f.Message, Err: ErrInternal}
	for _, c := range codings() {
		if f.Code == c.code {
			r.Err = c.err
		}
	}
	if !r.By.Valid() {
		r.By = blame.Peer
	}
	return r
}

// Remote is a failure that the peer reported. It unwraps to the sentinel of
// its code.
type Remote struct {
	By      blame.Party // as this side sees it
	Message string
	Err     error
}

func (e *Remote) Error() string { return fmt.Sprintf("the peer reports: %s", e.Message) }

// Unwrap returns the sentinel.
func (e *Remote) Unwrap() error { return e.Err }

// Blame is the peer's verdict, seen from here.
func (e *Remote) Blame() blame.Party { return e.By }

// StateError is a transfer that would leave the destination with a state of
// another token than it asks for: a state is valid at one token count only.
type StateError struct {
	Group               string
	Source, Destination int64 // token counts
}

func (e *StateError) Error() string {
	return fmt.Sprintf("transfer: the source's state of group %q is that of %d tokens, the transfer ends at %d: a state is valid at one token count only", e.Group, e.Source, e.Destination)
}

// Is makes it an ErrRange.
func (e *StateError) Is(target error) bool { return target == ErrRange }

// Blame is the peer, which asked for it.
func (e *StateError) Blame() blame.Party { return blame.Peer }

// Corrupt is bytes that are not those of the source, found by their digests:
// the first head that differs, and the entries from the first to the last that
// do.
type Corrupt struct {
	SourceRank, DestinationRank int
	Group, Component            string
	Layer, Head                 int   // Head is -1 for a component without heads
	From, To                    int64 // tokens (states: 0 to 1)
}

func (e *Corrupt) Error() string {
	where := fmt.Sprintf("component %s layer %d", e.Component, e.Layer)
	if e.Group != "" {
		where = fmt.Sprintf("group %q ", e.Group) + where
	}
	if e.Head >= 0 {
		where += fmt.Sprintf(" head %d", e.Head)
	}
	return fmt.Sprintf("transfer: what arrived is not what was sent: %s tokens %d to %d, from source rank %d to destination rank %d", where, e.From, e.To-1, e.SourceRank, e.DestinationRank)
}

// Is makes it an ErrCorrupt.
func (e *Corrupt) Is(target error) bool { return target == ErrCorrupt }

// Blame is the provider: the plan was proved and the layouts were agreed on.
func (e *Corrupt) Blame() blame.Party { return blame.Provider }
