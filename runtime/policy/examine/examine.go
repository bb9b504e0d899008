// Package examine says of a policy module whether it can be trusted with
// questions: everything that "kvferry policy check" shows, and what a module has
// to pass before an agent asks it anything.
//
// A module is read within limits, compiled, and asked: a fixed set of questions
// about pairs of every kind, transfers, and whatever vectors its author has. It
// has to answer each of them the same in a fresh instance and in used ones, and
// on the compiler and on the interpreter, to the byte and to the unit of fuel.
// Every answer has to be one that the question can have, and every assignment is
// lowered and proved. A deliberate no is no fault. What a policy prefers is its
// own business: nothing is compared with another policy.
package examine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
)

// Stage is how far a module came.
type Stage string

// The stages, in their order.
const (
	Preflight   Stage = "preflight"   // it is read within limits: sections, sizes, imports, manifest
	Validate    Stage = "validate"    // it is valid WebAssembly and speaks the ABI
	Compile     Stage = "compile"     // it is metered and compiled
	Instance    Stage = "instance"    // an instance can be made
	Vectors     Stage = "vectors"     // its answers can be read, are what the questions can have, and what its vectors say
	Determinism Stage = "determinism" // it answers the same twice
	Engines     Stage = "engines"     // it answers the same on the compiler and on the interpreter
	Proof       Stage = "proof"       // its assignments are proved
)

// Options of an examination.
type Options struct {
	// Host are the limits that the module will run under. Interpreter,
	// Instances and Observe are the examination's own.
	Host          host.Options
	Configuration []byte   // the operator's for the policy, canonical JSON
	Vectors       []Vector // the module's own
	// Few asks about one pair of each kind, once more, and on both engines: what
	// an agent has time for when it loads a module.
	Few bool
}

// Report is what there is to say of a module. The JSON form is what
// "kvferry policy check" prints.
type Report struct {
	File    string           `json:"file,omitempty"`
	OK      bool             `json:"ok"`
	Name    string           `json:"name,omitempty"`
	Version string           `json:"version,omitempty"`
	Digest  string           `json:"digest"`
	Size    int              `json:"size"` // bytes
	ABI     *module.ABIRange `json:"abi,omitempty"`
	Imports []string         `json:"imports,omitempty"`
	Stage   Stage            `json:"stage,omitempty"` // at which it is refused
	Error   *Error           `json:"error,omitempty"`
	Hooks   []Hook           `json:"hooks,omitempty"`
	Memory  *Memory          `json:"memory,omitempty"`

	Questions int       `json:"questions"`
	Vectors   int       `json:"vectors"`            // of them, the module's own
	Refusals  []Refusal `json:"refusals,omitempty"` // deliberate ones
}

// Hook is what came of the questions to one hook.
type Hook struct {
	Name        string `json:"name"`
	Questions   int    `json:"questions"`
	Answered    int    `json:"answered"`
	Proved      int    `json:"proved"`     // remap: answers whose alternatives are all proved
	Refused     int    `json:"refused"`    // deliberately: declined, unsupported or bad input
	Clamped     int    `json:"clamped"`    // route: decisions beyond the limits
	Fuel        uint64 `json:"fuel"`       // that the costliest call spent
	Costliest   string `json:"costliest"`  // the question of that call
	Limit       uint64 `json:"fuel_limit"` // of a call
	NotProvable int    `json:"not_provable"`
}

// Memory is what an instance's linear memory came to, in bytes.
type Memory struct {
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
}

// Refusal is a deliberate no.
type Refusal struct {
	Question string `json:"question"`
	Hook     string `json:"hook"`
	Status   string `json:"status"`
	Reason   string `json:"reason,omitempty"`
}

// Module examines a module.
//
// Errors: only those of the examination itself: a configuration that no
// question can hold, the context's. What is wrong with the module is in the
// report.
func Module(ctx context.Context, wasm []byte, opt Options) (*Report, error) {
	r := &Report{Digest: geometry.Digest(sha256.Sum256(wasm)).String(), Size: len(wasm), Vectors: len(opt.Vectors)}
	if m, err := module.ReadManifest(wasm); err == nil {
		r.Name, r.Version, r.ABI = m.Name, m.Version, &m.ABI
	}
	if imports, err := module.Imports(wasm); err == nil {
		for _, i := range imports {
			r.Imports = append(r.Imports, i.Module+"."+i.Name)
		}
	}
	asked, err := questions(opt.Configuration, !opt.Few)
	if err != nil {
		return nil, err
	}
	for i := range opt.Vectors {
		asked = append(asked, opt.Vectors[i].question())
	}
	x := &examination{report: r, wasm: wasm, opt: opt, asked: asked}
	stage, err := x.run(ctx)
	if stopped := ctx.Err(); stopped != nil {
		return nil, fmt.Errorf("examine a policy: %w", stopped)
	}
	if err != nil {
		r.Stage, r.Error = stage, describe(err)
		return r, nil
	}
	r.OK = true
	return r, nil
}

// RefusedError is a module that did not pass. The fault is that of the report's
// error: mostly the policy's.
type RefusedError struct{ Report *Report }

func (e *RefusedError) Error() string {
	who := e.Report.Name
	if who == "" {
		who = e.Report.Digest
	}
	return fmt.Sprintf("policy %s is refused at %s: %s", who, e.Report.Stage, e.Report.Error.Message)
}

// Blame is whoever has to change something.
func (e *RefusedError) Blame() blame.Party { return blame.Party(e.Report.Error.Fault) }

// Conform is the examination before a policy is asked anything that counts: the
// few questions, on both engines. The limits are those that the policy is run
// under. It takes some milliseconds for a small module; where the module was
// compiled into the compiler's cache before, it is not compiled again.
//
// Errors: *RefusedError; those of Module.
func Conform(ctx context.Context, wasm []byte, limits host.Options, configuration []byte) error {
	r, err := Module(ctx, wasm, Options{Host: limits, Configuration: configuration, Few: true})
	if err != nil {
		return err
	}
	if !r.OK {
		return &RefusedError{r}
	}
	return nil
}

// Text is the report for people; the first line says whether the module passed.
func (r *Report) Text() string {
	var b strings.Builder
	file := r.File
	if file == "" {
		file = "module"
	}
	if !r.OK {
		fmt.Fprintf(&b, "%s: refused at %s: %s (fault: %s)\n", file, r.Stage, r.Error.Message, r.Error.Fault)
		for _, f := range r.Error.facts() {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s: ok: %s %s, %d bytes, %s\n", file, r.Name, r.Version, r.Size, r.Digest)
	imports := "imports nothing"
	switch n := len(r.Imports); {
	case n > 3: // a language's own runtime
		imports = fmt.Sprintf("imports %s and %d more", r.Imports[0], n-1)
	case n > 0:
		imports = "imports " + strings.Join(r.Imports, ", ")
	}
	fmt.Fprintf(&b, "  speaks kvferry/%s to %s, %s\n", r.ABI.Min, r.ABI.Max, imports)
	for _, h := range r.Hooks {
		fmt.Fprintf(&b, "  %-13s %2d questions: %d answered", h.Name, h.Questions, h.Answered)
		if h.Name == "remap" && h.Answered > 0 {
			fmt.Fprintf(&b, ", %d proved", h.Proved)
		}
		if h.Refused > 0 {
			fmt.Fprintf(&b, ", %d refused", h.Refused)
		}
		if h.Clamped > 0 {
			fmt.Fprintf(&b, ", %d clamped", h.Clamped)
		}
		if h.NotProvable > 0 {
			fmt.Fprintf(&b, ", %d compared only", h.NotProvable)
		}
		fmt.Fprintf(&b, "; at most %d of %d fuel (%s)\n", h.Fuel, h.Limit, h.Costliest)
	}
	for i, n := range r.Refusals {
		same := func(o Refusal) bool { return o.Hook == n.Hook && o.Status == n.Status && o.Reason == n.Reason }
		if slices.ContainsFunc(r.Refusals[:i], same) {
			continue // said with the first of them
		}
		fmt.Fprintf(&b, "    %s %s", n.Status, n.Question)
		if more := len(slices.DeleteFunc(slices.Clone(r.Refusals[i+1:]), func(o Refusal) bool { return !same(o) })); more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		if n.Reason != "" {
			fmt.Fprintf(&b, ": %s", n.Reason)
		}
		fmt.Fprintln(&b)
	}
	if r.Memory != nil {
		fmt.Fprintf(&b, "  memory        %d KiB of %d\n", r.Memory.Used>>10, r.Memory.Limit>>10)
	}
	fmt.Fprintf(&b, "  %d questions, %d of them the module's own vectors: the same answers twice, in fresh and used instances, and on both engines\n", r.Questions, r.Vectors)
	return b.String()
}

// hook is the counts of a hook, made on first use.
func (r *Report) hook(name string) *Hook {
	i := slices.IndexFunc(r.Hooks, func(h Hook) bool { return h.Name == name })
	if i < 0 {
		i = len(r.Hooks)
		r.Hooks = append(r.Hooks, Hook{Name: name})
	}
	return &r.Hooks[i]
}
