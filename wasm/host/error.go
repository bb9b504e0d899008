package host

import (
	"errors"
	"fmt"
	"strings"

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
	Instance bool // the module passed, and then no instance could be made of it
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

// whileMade says that it showed when an instance was made.
func (e *Error) whileMade() *Error {
	e.Instance = true
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
		s += ": " + firstLine(e.Err)
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// firstLine is an error without the stack that the engine puts below it.
func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

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
	// Got and Most are how many of something it answered or asked for, and how
	// many it may; Most is 0 where it is not about a number.
	Got, Most uint64
	// Trapped is the index of the function that trapped, imports counted; nil where
	// none did, or it is not known.
	Trapped *int
	Err     error // of a trap, with the guest's stack on the lines below the first
}

func (e *Fault) Error() string {
	s := fmt.Sprintf("policy %s, hook %s: %s", e.Policy, e.Hook, e.Reason)
	if e.Trapped != nil {
		s += fmt.Sprintf(" in function %d", *e.Trapped)
	}
	if e.Err != nil {
		s += ": " + firstLine(e.Err)
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
