package examine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/compiler"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/module"
)

// Error is why a module is refused. Offset, Function, Got and Limit are nil
// where there is none.
type Error struct {
	Kind     string  `json:"kind"`
	Fault    string  `json:"fault"` // whose it is
	Message  string  `json:"message"`
	Question string  `json:"question,omitempty"` // that it was asked
	Hook     string  `json:"hook,omitempty"`
	Offset   *int    `json:"offset,omitempty"`   // bytes into the module
	Function *int    `json:"function,omitempty"` // index, imports counted
	Export   string  `json:"export,omitempty"`
	Got      *uint64 `json:"got,omitempty"`
	Limit    *uint64 `json:"limit,omitempty"`
	Fix      string  `json:"fix,omitempty"`
}

// facts are what the message may not say, a line each.
func (e *Error) facts() []string {
	var out []string
	add := func(what string, v any) { out = append(out, fmt.Sprintf("%s %v", what, v)) }
	if e.Question != "" {
		add("asked:", e.Question)
	}
	if e.Offset != nil {
		add("at byte", *e.Offset)
	}
	if e.Function != nil {
		add("in function", *e.Function)
	}
	if e.Export != "" {
		add("export", e.Export)
	}
	if e.Limit != nil {
		add("limit", *e.Limit)
	}
	if e.Fix != "" && !strings.Contains(e.Message, e.Fix) {
		add("to fix it:", e.Fix)
	}
	return out
}

// questionError is an error about one of the questions.
type questionError struct {
	q   *question
	err error
}

func (e *questionError) Error() string { return fmt.Sprintf("asked %q: %v", e.q.name, e.err) }

func (e *questionError) Unwrap() error { return e.err }

// at is a number where there is one.
func at(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// describe sorts an error into the form that scripts read.
func describe(err error) *Error {
	out := &Error{Kind: "failed", Fault: string(blame.Of(err)), Message: err.Error()}
	var (
		asked     *questionError
		preflight *meter.Error
		sealed    *module.Error
		loading   *host.Error
		compiled  *compiler.Error
		fault     *host.Fault
		unread    *abi.Error
		unequal   *Unequal
		proofs    *proof.Fault
		assigned  *plan.AssignmentError
		unaligned *build.Unaligned
		large     *plan.TooLarge
		decided   *policy.DecisionError
	)
	if errors.As(err, &asked) {
		out.Question, out.Hook = asked.q.name, asked.q.hook
		out.Export = "kvferry_" + asked.q.hook
	}
	switch {
	case errors.As(err, &preflight):
		out.Kind, out.Fault, out.Fix = string(preflight.Kind), preflight.Fault(), preflight.Fix
		out.Offset, out.Function = at(preflight.Offset), at(preflight.Func)
		if preflight.Kind == meter.OverLimit {
			out.Got, out.Limit = &preflight.Got, &preflight.Limit
		}
	case errors.As(err, &sealed):
		out.Kind, out.Fault, out.Offset = "manifest", string(blame.Policy), at(sealed.Offset)
		out.Fix = "build it with \"kvferry policy build\", which seals it with its manifest.json"
		if sealed.Limit > 0 {
			out.Got, out.Limit = &sealed.Got, &sealed.Limit
		}
	case errors.As(err, &loading):
		out.Kind, out.Fault = loading.What, string(blame.Policy)
		if loading.Operator {
			out.Fault = string(blame.Operator)
		}
		out.Offset, out.Function, out.Export, out.Fix = at(loading.Offset), at(loading.Func), loading.Export, loading.Fix
		if loading.Limit > 0 {
			out.Got, out.Limit = &loading.Got, &loading.Limit
		}
	case errors.As(err, &compiled):
		out.Kind, out.Fault, out.Fix = "compile "+string(compiled.Kind), string(blame.Policy), compiled.Fix
		if compiled.Operator {
			out.Fault = string(blame.Operator)
		}
	case errors.As(err, &fault):
		out.Kind, out.Fault, out.Fix = "fault", string(blame.Policy), "answer as docs/abi.md says, or decline"
		switch {
		case errors.Is(err, host.ErrFuel):
			out.Kind, out.Fix = "fuel", "make the hook do less work, or have the operator give it more fuel"
		case fault.Cause == meter.ByDepth:
			out.Kind, out.Fix = "depth", "make the hook recurse less"
		case errors.Is(err, host.ErrTrap):
			out.Kind, out.Fix = "trap", "read and write within memory, and check the numbers of a question before they are used as indices"
		}
		switch frames := uint64(meter.Frames); {
		case fault.Cause == meter.ByDepth:
			out.Limit = &frames
		case errors.Is(err, host.ErrFuel):
			out.Got, out.Limit = &fault.Fuel, &fault.Limit
		case fault.Most > 0:
			out.Got, out.Limit = &fault.Got, &fault.Most
		case errors.As(err, &unread) && unread.Limit > 0:
			out.Got, out.Limit = &unread.Value, &unread.Limit
		}
		out.Function = fault.Trapped
	case errors.As(err, &unequal):
		out.Kind, out.Fault, out.Fix = "unequal", string(blame.Policy), "decide from the question alone: keep nothing between calls, and use no floating point whose result is not a number"
		if unequal.vector {
			out.Fix = "change the policy, or the vector"
		}
	case errors.As(err, &proofs):
		out.Kind, out.Fault, out.Fix = string(proofs.Kind), string(blame.Policy), "bring all that the destination's ranks hold, each part once, or decline pairs that the policy does not serve"
	case errors.As(err, &assigned), errors.As(err, &unaligned):
		out.Kind, out.Fault, out.Fix = "assignment", string(blame.Policy), "name ranks, layers, heads and components that the question has"
		if n, ok := tooMany(assigned); ok {
			most := uint64(plan.MaxAssignments)
			out.Got, out.Limit, out.Fix = &n, &most, "answer with fewer, larger assignments"
		}
	case errors.As(err, &large):
		out.Kind, out.Fault, out.Fix = "budget", string(blame.Policy), "answer with fewer, larger assignments" // the examination's pairs are small
		got, limit := uint64(max(large.Need, 0)), uint64(max(large.Limit, 0))
		out.Got, out.Limit = &got, &limit
	case errors.As(err, &decided):
		out.Kind, out.Fault, out.Fix = "decision", string(blame.Policy), "name alternatives, providers and rails that the question has"
	}
	return out
}

// tooMany is how many assignments there are, where that is what is wrong.
func tooMany(e *plan.AssignmentError) (n uint64, ok bool) {
	if e == nil || e.Index != plan.MaxAssignments {
		return 0, false
	}
	all, ok := e.Value.(int)
	return uint64(all), ok && all > plan.MaxAssignments
}

// stageOf is the stage at which a module could not be loaded.
func stageOf(err error) Stage {
	var preflight *meter.Error
	var sealed *module.Error
	var loading *host.Error
	switch {
	case errors.As(err, &preflight), errors.As(err, &sealed):
		return Preflight
	case errors.As(err, &loading):
		if loading.Instance {
			return Instance
		}
		switch loading.What {
		case "import", "manifest", "memory", "fuel":
			return Preflight
		case "validation", "export":
			return Validate
		case "instance":
			return Instance
		}
	}
	return Compile
}
