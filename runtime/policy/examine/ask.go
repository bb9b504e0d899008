package examine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

// answer is what a guest made of a question.
type answer struct {
	status uint32
	out    []byte // as it wrote it
	fuel   uint64
	reason string // of a refusal, printable
	err    error  // a fault: there is no answer

	selection   *abi.SelectLayoutOut
	assignments *abi.RemapOut
	route       *abi.RouteOut
}

// engine is a module on one of the engines.
type engine struct {
	name string // "the compiler" or "the interpreter"
	p    *host.Policy
	last host.Call // of the call that goes on; its messages are clones
}

// examination is one in progress.
type examination struct {
	report *Report
	wasm   []byte
	opt    Options
	asked  []question
	memory uint64
}

// open loads the module, ready to be asked.
func (x *examination) open(ctx context.Context, interpreter bool) (*engine, error) {
	e := &engine{name: "the compiler"}
	opt := x.opt.Host
	opt.Instances, opt.Interpreter = 1, interpreter
	if interpreter {
		e.name = "the interpreter"
	}
	opt.Observe = func(c host.Call) {
		fuel := max(c.Fuel, e.last.Fuel) // of a question that needs two calls, the dearer
		e.last = c
		e.last.In, e.last.Out, e.last.Fuel = nil, bytes.Clone(c.Out), fuel
	}
	var err error
	e.p, err = host.Load(ctx, x.wasm, opt)
	return e, err
}

// ask puts one question. The engine has one instance, so calls follow each
// other in it.
func (e *engine) ask(ctx context.Context, q *question) *answer {
	e.last = host.Call{}
	a := &answer{}
	var err error
	switch q.hook {
	case "select_layout":
		var index int
		var reason string
		if index, reason, err = e.p.SelectLayout(ctx, q.in, q.candidates); err == nil {
			a.selection = &abi.SelectLayoutOut{Index: uint32(index), Reason: reason}
		}
	case "remap":
		a.assignments, err = e.p.Remap(ctx, q.in)
	case "route":
		a.route, err = e.p.Route(ctx, q.in)
	}
	a.status, a.out, a.fuel = e.last.Status, e.last.Out, e.last.Fuel
	var refused *host.Refused
	if errors.As(err, &refused) {
		a.status, a.reason = refused.Status, refused.Reason
	} else {
		a.err = err
	}
	return a
}

// run goes through the stages and returns the one at which the module is
// refused, and why.
func (x *examination) run(ctx context.Context) (stage Stage, err error) {
	var opened []*engine
	defer func() {
		for _, e := range opened {
			x.memory = max(x.memory, e.p.Memory())
			if closed := e.p.Close(context.WithoutCancel(ctx)); err == nil {
				err = closed
			}
		}
		if len(opened) > 0 {
			x.report.Memory = &Memory{x.memory, x.limit()}
		}
	}()
	open := func(interpreter bool) (*engine, error) {
		e, err := x.open(ctx, interpreter)
		if err == nil {
			opened = append(opened, e)
		}
		return e, err
	}
	compiled, err := open(false)
	if err != nil {
		return stageOf(err), err
	}
	hooks := compiled.p.Manifest().Hooks
	x.asked = slices.DeleteFunc(x.asked, func(q question) bool { return q.want == nil && !slices.Contains(hooks, q.hook) })
	x.report.Questions = len(x.asked)
	first := make([]*answer, len(x.asked))
	for i := range x.asked {
		if ctx.Err() != nil {
			return Vectors, ctx.Err()
		}
		q := &x.asked[i]
		first[i] = compiled.ask(ctx, q)
		if err := x.accept(q, first[i]); err != nil {
			return Vectors, &questionError{q, err}
		}
		x.count(q, first[i], compiled)
	}
	if stage, err := x.again(ctx, compiled, first, open); err != nil {
		return stage, err
	}
	for i := range x.asked {
		if err := x.prove(&x.asked[i], first[i]); err != nil {
			return Proof, &questionError{&x.asked[i], err}
		}
	}
	return "", nil
}

// again asks everything once more: in instances that were used for other
// questions, in another order, in a fresh one, and on the other engine.
func (x *examination) again(ctx context.Context, compiled *engine, first []*answer, open func(bool) (*engine, error)) (Stage, error) {
	backwards := func(e *engine, stage Stage, against string) (Stage, error) {
		for i := len(x.asked) - 1; i >= 0; i-- {
			if ctx.Err() != nil {
				return stage, ctx.Err()
			}
			if err := equal(first[i], e.ask(ctx, &x.asked[i]), against); err != nil {
				return stage, &questionError{&x.asked[i], err}
			}
		}
		return "", nil
	}
	if stage, err := backwards(compiled, Determinism, "asked again in a used instance"); err != nil {
		return stage, err
	}
	if !x.opt.Few {
		fresh, err := open(false)
		if err != nil {
			return stageOf(err), err
		}
		if stage, err := backwards(fresh, Determinism, "asked again in a fresh instance"); err != nil {
			return stage, err
		}
	}
	interpreted, err := open(true)
	if err != nil {
		return Engines, err
	}
	return backwards(interpreted, Engines, "on the interpreter")
}

// Unequal is a guest that gave two answers to one question. The fault is the
// policy's.
type Unequal struct {
	How    string // the second time
	What   string
	vector bool // it is its vector that says otherwise
}

func (e *Unequal) Error() string { return fmt.Sprintf("%s, %s", e.How, e.What) }

// Blame is the policy.
func (e *Unequal) Blame() blame.Party { return blame.Policy }

// equal compares what a guest made of a question the first time with what it
// made of it again.
func equal(a, b *answer, how string) error {
	switch {
	case b.err != nil:
		return &Unequal{how, "it does not answer: " + b.err.Error(), false}
	case a.status != b.status:
		return &Unequal{how, fmt.Sprintf("its status is %d and was %d", b.status, a.status), false}
	case !bytes.Equal(a.out, b.out):
		at := 0
		for at < len(a.out) && at < len(b.out) && a.out[at] == b.out[at] {
			at++
		}
		return &Unequal{how, fmt.Sprintf("it answers %d bytes that differ from byte %d of the %d before", len(b.out), at, len(a.out)), false}
	case a.fuel != b.fuel:
		return &Unequal{how, fmt.Sprintf("it spends %d fuel and spent %d", b.fuel, a.fuel), false}
	}
	return nil
}

// accept refuses what no question can have for an answer.
func (x *examination) accept(q *question, a *answer) error {
	if a.err != nil {
		return a.err
	}
	if q.want != nil {
		if why := q.want.compare(a); why != "" {
			return &Unequal{"asked as its vector asks", why, true}
		}
	}
	switch {
	case a.assignments != nil && q.remap != nil:
		for i, alternative := range a.assignments.Alternatives {
			if err := q.remap.Pair.ValidateAssignments(policy.Assignments(alternative.Assignments)); err != nil {
				return fmt.Errorf("alternative %d: %w", i, err)
			}
		}
	case a.route != nil && q.route != nil:
		if _, err := q.route.Accept(a.route); err != nil {
			return blame.On(blame.Policy, err)
		}
	}
	return nil
}

// count adds an answer to the report.
func (x *examination) count(q *question, a *answer, e *engine) {
	h := x.report.hook(q.hook)
	h.Questions++
	if h.Limit = x.opt.Host.FuelOf(q.hook); a.fuel > h.Fuel || h.Costliest == "" {
		h.Fuel, h.Costliest = a.fuel, q.name
	}
	if a.status != abi.StatusOk {
		h.Refused++
		for name, s := range statuses() {
			if s == a.status {
				x.report.Refusals = append(x.report.Refusals, Refusal{q.name, q.hook, name, a.reason})
			}
		}
		return
	}
	h.Answered++
	if a.route != nil && q.route != nil {
		if d, err := q.route.Accept(a.route); err == nil {
			if _, changes := q.route.Clamp(d); len(changes) > 0 {
				h.Clamped++
			}
		}
	}
}

// prove lowers and proves every alternative of an answer.
func (x *examination) prove(q *question, a *answer) error {
	if a.assignments == nil {
		return nil
	}
	h := x.report.hook(q.hook)
	if q.remap == nil {
		h.NotProvable++
		return nil
	}
	for i, alternative := range a.assignments.Alternatives {
		if _, err := decision.Alternative(q.remap.Pair, policy.Assignments(alternative.Assignments)); err != nil {
			return fmt.Errorf("alternative %d: %w", i, err)
		}
	}
	h.Proved++
	return nil
}

// limit is the bound on linear memory, in bytes.
func (x *examination) limit() uint64 {
	if x.opt.Host.Memory == 0 {
		return host.DefaultMemory
	}
	return uint64(x.opt.Host.Memory)
}
