package meter

import "fmt"

// Kind says what sort of refusal an Error is.
type Kind string

// The kinds of refusals.
const (
	Malformed   Kind = "malformed"   // the bytes are no WebAssembly module
	OverLimit   Kind = "over limit"  // more of something than Limits allows
	Forbidden   Kind = "forbidden"   // valid, and not allowed here: an import, a start function, a reserved name
	Unsupported Kind = "unsupported" // a feature of WebAssembly that is not enabled here
)

// Error is a module that is refused, and where. The fault is the module's.
type Error struct {
	Kind   Kind
	Offset int    // byte offset into the module; -1: the whole module
	Func   int    // index of the function, imports counted; -1: not in a function
	What   string // the thing that is refused: "locals", "import env.now", "return_call"
	Got    uint64 // how many there are; OverLimit only
	Limit  uint64 // how many may be; OverLimit only
	Reason string // what is wrong with it; empty for OverLimit
	Fix    string // what its author can do about it
}

func (e *Error) Error() string {
	s := "wasm module"
	if e.Offset >= 0 {
		s += fmt.Sprintf(": byte %d", e.Offset)
	}
	if e.Func >= 0 {
		s += fmt.Sprintf(", function %d", e.Func)
	}
	s += ": " + e.What + ": "
	if e.Kind == OverLimit {
		s += fmt.Sprintf("%d, at most %d are allowed", e.Got, e.Limit)
	} else {
		s += e.Reason
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Fault names the party that has to change something.
func (e *Error) Fault() string { return "policy" }

// malformed is bytes that are no module. It returns the struct, not the
// interface, so that nothing here can make an error of a nil pointer.
func malformed(at, fn int, what, why string, args ...any) *Error {
	return &Error{Kind: Malformed, Offset: at, Func: fn, What: what, Reason: fmt.Sprintf(why, args...), Fix: "build the module anew: its bytes are damaged, or no compiler made them"}
}
