// Package policy asks policy modules the runtime's questions: it puts pairs
// and layout candidates into the records of the ABI, runs the guest, and turns
// the answer back into assignments or an index.
//
// There is no default answer here. A policy that declines or fails is an error
// that names the engine and what each side can do.
package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/compiler"
	"github.com/kvferry/kvferry/wasm/host"
)

// Options of a policy. Built-in modules are compiled in this process; who
// compiles others is said by InProcess and Compiler, as host.Options has it.
type Options struct {
	Memory      uint32 // bytes of linear memory; 0: 16 MiB
	Fuel        host.Fuel
	Log         func(level uint32, text string)
	Observe     func(host.Call) // told of every call of the guest; answers that are known are none
	Compiler    host.Compiler
	InProcess   bool
	Interpreter bool
}

// Host is what a module is loaded with under these options.
func (o Options) Host() host.Options {
	out := host.Options{
		Memory: o.Memory, Fuel: o.Fuel, InProcess: o.InProcess, Compiler: o.Compiler,
		Interpreter: o.Interpreter, Log: o.Log, Observe: o.Observe,
	}
	for _, d := range policies.Digests() {
		out.Trusted = append(out.Trusted, d)
	}
	return out
}

// Answer is a policy's answer to remap.
type Answer = plan.Answer

// Role is what an engine is in its pairs.
type Role uint32

// The roles.
const (
	Source      Role = abi.RoleSource
	Destination Role = abi.RoleDestination
)

// Candidate is a layout of the whole cache that an engine's attention can read
// and write.
type Candidate struct {
	Name      string
	Layouts   []layout.Spec // by group of the engine's model
	Pools     []plan.Pool   // by group of the engine's model
	Attention int           // what attention costs more on it than on the engine's best, in per cent; 0: nothing said
}

// MaxAttention bounds Candidate.Attention.
const MaxAttention = 10000

// Engine is an engine as far as a layout selection knows it.
type Engine struct {
	Name       string
	Model      geometry.Model // its own: without the optional groups that it lacks
	Shard      shard.Spec     // of the groups whose pool gives none of their own
	Candidates []Candidate    // in the engine's order of preference
	About
}

// Question is a layout selection: which of Engine's candidates it should use,
// given the peers that it is expected to meet.
type Question struct {
	Engine   Engine
	Role     Role
	Peers    []Engine
	Previous int // 1 + the index answered before; 0: none
	Recorded int // 1 + the index that the fleet has on record for the engine; 0: none

	Providers     []Provider // in the configured order
	Edges         [][]Edge   // by peer, between the engine and it; nil: not known
	Configuration []byte     // the operator's for the policy, canonical JSON
}

// Choice is the answer: an index into the engine's candidates.
type Choice struct {
	Index  int
	Reason string
}

// Declined is a policy that gave no layout, or no assignments, on purpose. It
// offers nothing in their place.
type Declined struct {
	Policy string
	Hook   string
	Engine string   // that the question was about; for remap and route, the pair
	Can    []string // what each side can do ("engine prefill can do hnd, nhd"); for remap, how each is divided
	Err    error
}

func (e *Declined) Error() string {
	s := fmt.Sprintf("policy %s answered no %s for %s", e.Policy, map[string]string{"select_layout": "layout", "remap": "assignments", "route": "decision"}[e.Hook], e.Engine)
	if len(e.Can) > 0 {
		s += " (" + strings.Join(e.Can, "; ") + ")"
	}
	return s + "; there is no default: " + e.Err.Error()
}

// Unwrap returns what the policy said.
func (e *Declined) Unwrap() error { return e.Err }

// Blame is the policy.
func (e *Declined) Blame() blame.Party { return blame.Policy }

// Bounds on the answers that are kept: how many, and assignments in all of
// them together.
const (
	maxAnswers     = 256
	maxAssignments = 1 << 18
)

type answerKey [32]byte

// known is an answer that is kept: a Choice or an Answer.
type known struct {
	answer any
	size   int // assignments
}

// Policy is an open policy. Safe for concurrent use.
type Policy struct {
	host *host.Policy

	mu      sync.Mutex
	closed  bool
	answers map[answerKey]known // by hook and input bytes
	recent  []answerKey         // of answers, oldest first
	size    int                 // of all answers
}

// Open loads a policy module.
//
// Errors: *meter.Error, *module.Error, *host.Error; those of opt.Compiler.
func Open(ctx context.Context, wasm []byte, opt Options) (*Policy, error) {
	h, err := host.Load(ctx, wasm, opt.Host())
	if err != nil {
		party := blame.Policy
		var e *host.Error
		var c *compiler.Error
		if errors.As(err, &e) && e.Operator || errors.As(err, &c) && c.Operator {
			party = blame.Operator
		}
		return nil, blame.On(party, fmt.Errorf("open a policy: %w", err))
	}
	return &Policy{host: h, answers: map[answerKey]known{}}, nil
}

// Name is the policy's name.
func (p *Policy) Name() string { return p.host.Name() }

// Version is the policy's semantic version.
func (p *Policy) Version() string { return p.host.Version() }

// Hooks are those that the policy has. They must not be modified.
func (p *Policy) Hooks() []string { return p.host.Manifest().Hooks }

// Digest is the SHA-256 of the module.
func (p *Policy) Digest() geometry.Digest { return p.host.Digest() }

// Calls is how often the guest was called; answers that were known are not
// calls.
func (p *Policy) Calls() int64 { return p.host.Calls() }

// Close waits for the calls in progress. Later calls and a second Close return
// host.ErrClosed.
func (p *Policy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.answers, p.recent, p.size = nil, nil, 0
	p.mu.Unlock()
	return p.host.Close(context.Background())
}

// remembered returns the answer to an input, asking for it where it is new.
// Guests are deterministic, so a hit is exact; errors are not kept. size is the
// number of assignments in an answer.
func remembered[T any](p *Policy, hook string, in []byte, size func(T) int, ask func() (T, error)) (T, error) {
	h := sha256.New()
	h.Write([]byte(hook))
	h.Write(in)
	key := answerKey(h.Sum(nil))
	p.mu.Lock()
	k, ok := p.answers[key]
	p.mu.Unlock()
	if ok {
		return k.answer.(T), nil
	}
	out, err := ask()
	if err == nil {
		p.keep(key, known{out, size(out)})
	}
	return out, err
}

// keep keeps an answer, in place of the oldest where there are too many.
func (p *Policy) keep(key answerKey, k known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.answers[key]; ok || p.closed || k.size > maxAssignments {
		return
	}
	for len(p.recent) >= maxAnswers || p.size+k.size > maxAssignments {
		p.size -= p.answers[p.recent[0]].size
		delete(p.answers, p.recent[0])
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	p.answers[key] = k
	p.recent = append(p.recent, key)
	p.size += k.size
}

// Forget forgets the answers that are known: the guest is asked again.
func (p *Policy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.answers)
	p.recent, p.size = nil, 0
}

// wrap says whose fault an error of a hook is, and names what was asked.
func (p *Policy) wrap(hook, engine string, can []string, err error) error {
	var refused *host.Refused
	if errors.As(err, &refused) {
		return &Declined{p.Name(), hook, engine, can, refused}
	}
	var fault *host.Fault
	if errors.As(err, &fault) {
		return blame.On(blame.Policy, err)
	}
	var e *host.Error
	if errors.As(err, &e) && !e.Operator {
		return blame.On(blame.Policy, err)
	}
	return err
}

// SelectLayout asks which layout an engine should use.
//
// Errors: *Declined; *host.Fault, *host.Error; those of Question.Input.
func (p *Policy) SelectLayout(ctx context.Context, q Question) (Choice, error) {
	in, err := q.Input()
	if err != nil {
		return Choice{}, err
	}
	b := in.Encode()
	return remembered(p, "select_layout", b, func(Choice) int { return 0 }, func() (Choice, error) {
		index, reason, err := p.host.SelectLayout(ctx, b, len(q.Engine.Candidates))
		if err != nil {
			can := []string{offers(q.Engine)}
			for _, peer := range q.Peers {
				can = append(can, offers(peer))
			}
			return Choice{}, p.wrap("select_layout", "engine "+q.Engine.Name, can, err)
		}
		return Choice{index, reason}, nil
	})
}

func offers(e Engine) string {
	names := make([]string, len(e.Candidates))
	for i, c := range e.Candidates {
		names[i] = c.Name
	}
	return fmt.Sprintf("engine %s can do %s", e.Name, strings.Join(names, ", "))
}

func divided(s *plan.Side) string {
	text := fmt.Sprintf("engine %s has %s", s.Engine, strings.TrimSpace(s.Shard.Text()))
	for g, pool := range s.Groups {
		if pool.Shard != nil {
			text += fmt.Sprintf(", group %s %s", s.Model.Groups[g].Name, strings.TrimSpace(pool.Shard.Text()))
		}
	}
	return text
}

// Remap asks RemapFor about a pair of whose engines nothing is known but their
// caches.
func (p *Policy) Remap(ctx context.Context, pair *plan.Pair) (Answer, error) {
	return p.RemapFor(ctx, RemapQuestion{Pair: pair})
}

// RemapFor asks which source rank feeds which destination rank of the pair. The
// answer is shared with later calls and must not be modified.
//
// Errors: *QuestionError; *Declined; *host.Fault, *host.Error;
// *plan.AssignmentError for an answer that names what the pair does not have.
// Preconditions: q.Pair.Validate() is nil.
func (p *Policy) RemapFor(ctx context.Context, q RemapQuestion) (Answer, error) {
	in, err := q.Input()
	if err != nil {
		return Answer{}, err
	}
	b, pair := in.Encode(), q.Pair
	return remembered(p, "remap", b, assigned, func() (Answer, error) {
		out, err := p.host.Remap(ctx, b)
		if err != nil {
			return Answer{}, p.wrap("remap", fmt.Sprintf("engines %s and %s", pair.Source.Engine, pair.Destination.Engine), []string{divided(&pair.Source), divided(&pair.Destination)}, err)
		}
		answer, err := assignments(pair, out)
		if err != nil {
			return Answer{}, blame.On(blame.Policy, fmt.Errorf("policy %s, hook remap: %w", p.Name(), err))
		}
		return answer, nil
	})
}

// assigned counts the assignments of an answer.
func assigned(a Answer) int {
	n := 0
	for _, as := range a.Alternatives {
		n += len(as)
	}
	return n
}
