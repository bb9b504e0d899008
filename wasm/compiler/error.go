package compiler

import "fmt"

// Kind says why a module was not compiled.
type Kind string

// The kinds.
const (
	Setup    Kind = "setup"    // the child cannot be started, or the cache not be used
	Protocol Kind = "protocol" // the child does not answer as one
	Missed   Kind = "missed"   // what it compiled is not what this process's engine looks for
	Invalid  Kind = "invalid"  // the engine does not take the module
	Memory   Kind = "memory"   // compiling takes too much of it
	Time     Kind = "time"     // compiling takes too long
	Crashed  Kind = "crashed"  // the compiler came to grief over the module
)

// Error is a module that was not compiled. The fault is the policy's unless
// Operator says that it is the set-up's.
type Error struct {
	Kind     Kind
	Reason   string
	Limit    uint64 // that it is over: bytes of Memory or of a module, milliseconds of Time; 0: it is about none
	Fix      string // may be empty
	Operator bool
	Err      error
}

func (e *Error) Error() string {
	s := "compile the module in a child: " + e.Reason
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

// fixed adds what can be done about it.
func (e *Error) fixed(how string) *Error {
	e.Fix = how
	return e
}

func setup(err error, reason string, args ...any) *Error {
	return &Error{Kind: Setup, Reason: fmt.Sprintf(reason, args...), Operator: true, Err: err}
}
