package host

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/meter"
)

// Error is a module that cannot be a policy here, or a call that cannot be put
// to it. The fault is the policy's unless Operator says that the configuration
// refuses it. What the preflight refuses is a *meter.Error instead.
type Error struct {
	What     string // "import", "export", "memory", "fuel", "compile", "instance", ...
	Name     string
	Reason   string
	Offset   int    // byte offset into the module; -1: none
	Func     int    // index of the function, imports counted; -1: none
	Export   string // that it is about; empty: none
	Got      uint64 // how many the module wants, where Limit is not 0
	Limit    uint64 // how many it may have; 0: it is not about a number
	Fix      string // what can be done about it; may be empty
	Operator bool
	Err      error
}

// refuse is an Error without a place.
func refuse(what, name, reason string, args ...any) *Error {
	return &Error{What: what, Name: name, Reason: fmt.Sprintf(reason, args...), Offset: -1, Func: -1}
}

// exported is an Error about an export.
func exported(name, reason string, args ...any) *Error {
	e := refuse("export", name, reason, args...)
	e.Export = name
	return e
}

// because adds a cause.
func (e *Error) because(err error) *Error {
	e.Err = err
	return e
}

// fixed adds what can be done about it.
func (e *Error) fixed(how string, args ...any) *Error {
	e.Fix = fmt.Sprintf(how, args...)
	return e
}

func (e *Error) Error() string {
	s := "policy module: "
	if e.Offset >= 0 {
		s += fmt.Sprintf("byte %d: ", e.Offset)
	}
	if e.Func >= 0 {
		s += fmt.Sprintf("function %d: ", e.Func)
	}
	s += e.What
	if e.Name != "" {
		s += " " + e.Name
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fault is a guest that trapped or answered nonsense. The fault is the
// policy's.
type Fault struct {
	Policy string
	Hook   string
	Reason string
	// Cause says why the guest trapped; empty where it did not.
	Cause meter.Cause
	Fuel  uint64 // that the call used
	Limit uint64 // that it had
	Err   error
}

func (e *Fault) Error() string {
	s := fmt.Sprintf("policy %s, hook %s: %s", e.Policy, e.Hook, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Fault) Unwrap() error { return e.Err }

// Is makes it an ErrFuel or an ErrTrap, by its cause.
func (e *Fault) Is(target error) bool {
	switch e.Cause {
	case "":
		return false
	case meter.ByFuel:
		return target == ErrFuel
	}
	return target == ErrTrap
}

// Refused is a deliberate answer other than ok.
type Refused struct {
	Policy string
	Hook   string
	Status uint32 // abi.StatusDeclined, abi.StatusUnsupported or abi.StatusBadInput
	Reason string // as the guest gave it, made printable; may be empty
}

func (e *Refused) Error() string {
	word := map[uint32]string{abi.StatusDeclined: "declined", abi.StatusUnsupported: "does not support this", abi.StatusBadInput: "calls the input bad"}[e.Status]
	s := fmt.Sprintf("policy %s %s (hook %s)", e.Policy, word, e.Hook)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("wasm/host: policy is closed")

// ErrTrap is what a *Fault is (errors.Is) whose guest trapped, for another
// reason than that it had no fuel left.
var ErrTrap = errors.New("wasm/host: the guest trapped")

// ErrFuel is what a *Fault is (errors.Is) whose guest used up the fuel of its
// call.
var ErrFuel = errors.New("wasm/host: out of fuel")
