package policy

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Mode is how pieces travel.
type Mode uint32

// The modes; 0 leaves it to the cost model.
const (
	Direct Mode = abi.ModeDirect // each run goes to its place
	Staged Mode = abi.ModeStaged // packed on one side, unpacked on the other
)

// Integrity is how much of what arrived is compared with its source.
type Integrity uint32

// The levels, weakest first; 0 is what is configured.
const (
	IntegrityOff    Integrity = abi.IntegrityOff
	IntegritySample Integrity = abi.IntegritySample
	IntegrityFull   Integrity = abi.IntegrityFull
)

// Switch is something that can be on and off; 0 is what is configured.
type Switch uint32

// The positions.
const (
	Off Switch = abi.SwitchOff
	On  Switch = abi.SwitchOn
)

// MaxPriority is served first, 1 last; 0 is what was asked.
const MaxPriority = 8

// Flow is what moves between two ranks, for a request of build.CostTokens
// tokens.
type Flow struct {
	Source, Destination int
	Bytes, Pieces       int64
}

// FlowsOf is what a plan moves, in ascending order of destination, then source.
// Preconditions: the plan was built for the pair.
func FlowsOf(pair *plan.Pair, pl *plan.Plan) []Flow {
	var out []Flow
	for _, e := range pl.Edges {
		var period Flow
		for i := e.From; i < e.To; i++ {
			period.Pieces += pl.Runs[i].Pieces()
			period.Bytes += pl.Runs[i].Total()
		}
		c := build.Scale(pair, pl, e.Group, build.Cost{Pieces: period.Pieces, Bytes: period.Bytes})
		at, ok := slices.BinarySearchFunc(out, e, func(f Flow, e plan.Edge) int {
			if f.Destination != e.Destination {
				return f.Destination - e.Destination
			}
			return f.Source - e.Source
		})
		if !ok {
			out = slices.Insert(out, at, Flow{Source: e.Source, Destination: e.Destination})
		}
		out[at].Bytes += c.Bytes
		out[at].Pieces += c.Pieces
	}
	return out
}

// Limits are what the configuration says of a transfer: a decision chooses
// within them.
type Limits struct {
	Chunk     int64     // bytes that travel as one; 0: each provider's own
	Streams   int       // most connections in parallel; 0: 1
	Integrity Integrity // the least; 0: off
	Recompute bool      // a policy may have the destination recompute instead
}

// Party is one engine of a transfer.
type Party struct {
	Name string
	About
}

// RouteQuestion asks how one transfer goes.
type RouteQuestion struct {
	// Request names the transfer, for whoever chooses by it which policy is
	// asked. It is no part of what a policy is told.
	Request             string
	Model               string
	Source, Destination Party
	// Tokens of the request, and of them at its start what the destination has
	// already. An agent gives the four leading bits of both, so that requests of
	// about one length are one question.
	Tokens, Cached int
	Priority       int           // as asked, 1 to MaxPriority; 0: nothing asked
	Deadline       time.Duration // left; 0: none
	Lease          time.Duration // left of the source's; 0: none
	Limits         Limits
	Alternatives   [][]Flow   // what each of remap's alternatives moves, in their order; at least one
	Providers      []Provider // in the configured order
	Edges          []Edge     // nil: not known
	Previous       *Decision  // answered before for these engines; nil: none
	Configuration  []byte     // the operator's for the policy, canonical JSON
}

// Decision is how a transfer goes. Zero leaves a thing to the host, as
// configured.
type Decision struct {
	Alternative int
	Providers   []int // indices into the question's, in order of preference; nil: all, as configured
	Mode        Mode
	Permute     Role // the side that brings elements into the other's order
	Chunk       int64
	Streams     int
	Priority    int
	Integrity   Integrity
	CRC, TLS    Switch
	Rails       []RailChoice
	Recompute   bool
	Reason      string // as the policy gave it, printable
}

// RailChoice binds a rank to one of its rails.
type RailChoice struct {
	Side Role
	Rank int
	Rail int // index into the rank's rails
}

// Input is the question as a policy is asked it. Deadline and lease are rounded
// down to two significant bits of milliseconds, so that questions that differ
// in nothing else are asked once. The same question gives the same bytes.
//
// Errors: *QuestionError.
func (q RouteQuestion) Input() (*abi.RouteIn, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	in := &abi.RouteIn{
		Model: q.Model, Tokens: uint32(q.Tokens), Cached: uint32(q.Cached), Priority: uint32(q.Priority),
		Deadline: left(q.Deadline), Lease: left(q.Lease),
		Chunk: uint32(q.Limits.Chunk), Streams: uint32(max(q.Limits.Streams, 1)), Integrity: uint32(max(q.Limits.Integrity, IntegrityOff)), Recompute: flag(q.Limits.Recompute),
		Engines:   []abi.Engine{q.Source.record(q.Source.Name), q.Destination.record(q.Destination.Name)},
		Providers: providers(q.Providers), Edges: edges(q.Edges), Configuration: q.Configuration,
	}
	for _, flows := range q.Alternatives {
		var p abi.Proven
		for _, f := range flows {
			p.Flows = append(p.Flows, abi.Flow{Bytes: uint64(f.Bytes), Pieces: uint64(f.Pieces), Source: uint32(f.Source), Destination: uint32(f.Destination)})
			p.Bytes += uint64(f.Bytes)
			p.Pieces += uint64(f.Pieces)
		}
		in.Alternatives = append(in.Alternatives, p)
	}
	if q.Previous != nil {
		in.Previous = []abi.Decision{q.Previous.record()}
	}
	return in, nil
}

// left is a time in milliseconds, rounded down to two significant bits; at
// least 1 where there is any.
func left(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	ms := uint32(min(max(d.Milliseconds(), 1), 1<<31))
	if drop := bits.Len32(ms) - 2; drop > 0 {
		ms = ms >> drop << drop
	}
	return ms
}

func (d *Decision) record() abi.Decision {
	out := abi.Decision{
		Alternative: uint32(d.Alternative), Mode: uint32(d.Mode), Permute: uint32(d.Permute), Chunk: uint32(d.Chunk), Streams: uint32(d.Streams),
		Priority: uint32(d.Priority), Integrity: uint32(d.Integrity), CRC: uint32(d.CRC), TLS: uint32(d.TLS), Recompute: flag(d.Recompute),
	}
	for _, p := range d.Providers {
		out.Transports = append(out.Transports, abi.Transport{Provider: uint32(p)})
	}
	for _, r := range d.Rails {
		out.Rails = append(out.Rails, abi.RailChoice{Side: uint32(r.Side), Rank: uint32(r.Rank), Rail: uint32(r.Rail)})
	}
	return out
}

// Route asks how one transfer goes. The decision is within the limits; what had
// to be changed for that is listed beside it. A policy without the hook leaves
// everything to the host: the decision is zero, and says so in its reason.
//
// Errors: *QuestionError; *Declined; *host.Fault, *host.Error; *DecisionError for
// an answer that names what the question does not have.
func (p *Policy) Route(ctx context.Context, q RouteQuestion) (Decision, []Clamped, error) {
	in, err := q.Input()
	if err != nil {
		return Decision{}, nil, err
	}
	if !slices.Contains(p.host.Manifest().Hooks, "route") {
		return Decision{Reason: "policy " + p.Name() + " has no route: as configured"}, nil, nil
	}
	b := in.Encode()
	d, err := remembered(p, "route", b, func(Decision) int { return 0 }, func() (Decision, error) {
		out, err := p.host.Route(ctx, b)
		if err != nil {
			return Decision{}, p.wrap("route", fmt.Sprintf("a transfer from engine %s to engine %s", q.Source.Name, q.Destination.Name), nil, err)
		}
		d, err := q.Accept(out)
		if err != nil {
			return Decision{}, blame.On(blame.Policy, fmt.Errorf("policy %s, hook route: %w", p.Name(), err))
		}
		return d, nil
	})
	if err != nil {
		return Decision{}, nil, err
	}
	d, changes := q.Clamp(d)
	return d, changes, nil
}

// maxTokens bounds the tokens of a request.
const maxTokens = 1 << 31

func (q RouteQuestion) validate() error {
	err := first(textual("model", q.Model, geometry.MaxName), textual("source.name", q.Source.Name, geometry.MaxName), textual("destination.name", q.Destination.Name, geometry.MaxName),
		q.Source.Validate("source", -1), q.Destination.Validate("destination", -1),
		between("tokens", int64(q.Tokens), 0, maxTokens), between("cached", int64(q.Cached), 0, int64(q.Tokens)), between("priority", int64(q.Priority), 0, MaxPriority),
		between("limits.chunk", q.Limits.Chunk, 0, 1<<31), between("limits.streams", int64(q.Limits.Streams), 0, 1<<16), between("limits.integrity", int64(q.Limits.Integrity), 0, int64(IntegrityFull)),
		between("alternatives", int64(len(q.Alternatives)), 1, abi.MaxAlternatives),
		site{q.Providers, q.Edges, q.Configuration, [2]int{-1, -1}}.validate())
	for i, flows := range q.Alternatives {
		for _, f := range flows {
			at := fmt.Sprintf("alternatives[%d]", i)
			err = first(err, between(at+".source", int64(f.Source), 0, 1<<20), between(at+".destination", int64(f.Destination), 0, 1<<20), between(at+".bytes", f.Bytes, 0, 1<<55), between(at+".pieces", f.Pieces, 0, 1<<55))
		}
	}
	if err == nil && q.Previous != nil {
		if bad := q.check(q.Previous); bad != nil {
			err = &QuestionError{"previous." + bad.Field, bad.Value, bad.Reason}
		}
	}
	return err
}

// DecisionError is an answer to route that names what the question does not
// have. The fault is the policy's.
type DecisionError struct {
	Field  string // in the schema's names
	Value  any
	Reason string
}

func (e *DecisionError) Error() string {
	return fmt.Sprintf("decision: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Accept turns an answer into a decision that the question can have. What goes
// beyond the limits is still in it: Clamp is next.
//
// Errors: *DecisionError.
// Preconditions: the question is valid; the answer has exactly one decision.
func (q RouteQuestion) Accept(out *abi.RouteOut) (Decision, error) {
	r := &out.Decisions[0]
	d := Decision{
		Alternative: int(r.Alternative), Mode: Mode(r.Mode), Permute: Role(r.Permute), Chunk: int64(r.Chunk), Streams: int(r.Streams),
		Priority: int(r.Priority), Integrity: Integrity(r.Integrity), CRC: Switch(r.CRC), TLS: Switch(r.TLS), Recompute: r.Recompute != 0, Reason: abi.Reason(out.Reason),
	}
	for _, t := range r.Transports {
		d.Providers = append(d.Providers, int(t.Provider))
	}
	for _, c := range r.Rails {
		d.Rails = append(d.Rails, RailChoice{Role(c.Side), int(c.Rank), int(c.Rail)})
	}
	if r.Recompute > 1 {
		return Decision{}, &DecisionError{"recompute", r.Recompute, "want 0 or 1"}
	}
	if err := q.check(&d); err != nil {
		return Decision{}, err
	}
	return d, nil
}

// Fits reports whether the question can have a decision: one that was made for
// another may name what this one has not.
func (q RouteQuestion) Fits(d *Decision) bool { return q.check(d) == nil }

// check compares a decision with what the question has.
func (q RouteQuestion) check(d *Decision) *DecisionError {
	for _, f := range []struct {
		name  string
		v     int64
		most  int64
		those string
	}{
		{"alternative", int64(d.Alternative), int64(len(q.Alternatives)) - 1, "alternatives of the question"},
		{"mode", int64(d.Mode), int64(Staged), "numbers of enum mode"},
		{"permute", int64(d.Permute), int64(Destination), "numbers of enum role"},
		{"integrity", int64(d.Integrity), int64(IntegrityFull), "numbers of enum integrity"},
		{"crc", int64(d.CRC), int64(On), "numbers of enum switch"},
		{"tls", int64(d.TLS), int64(On), "numbers of enum switch"},
	} {
		if f.v < 0 || f.v > f.most {
			return &DecisionError{f.name, f.v, fmt.Sprintf("0 to %d are the %s", f.most, f.those)}
		}
	}
	for _, p := range d.Providers {
		if p < 0 || p >= len(q.Providers) {
			return &DecisionError{"transport.provider", p, fmt.Sprintf("the question has %d providers", len(q.Providers))}
		}
	}
	for i, c := range d.Rails {
		places := q.Source.Places
		if c.Side == Destination {
			places = q.Destination.Places
		}
		switch {
		case c.Side != Source && c.Side != Destination:
			return &DecisionError{"rail_choice.side", uint32(c.Side), "want source or destination"}
		case c.Rank < 0 || c.Rank >= len(places):
			return &DecisionError{"rail_choice.rank", c.Rank, fmt.Sprintf("the question has places of %d ranks of that side", len(places))}
		case c.Rail < 0 || c.Rail >= len(places[c.Rank].Rails):
			return &DecisionError{"rail_choice.rail", c.Rail, fmt.Sprintf("rank %d has %d rails", c.Rank, len(places[c.Rank].Rails))}
		case slices.ContainsFunc(d.Rails[:i], func(o RailChoice) bool { return o.Side == c.Side && o.Rank == c.Rank }):
			return &DecisionError{"rail_choice.rank", c.Rank, "is bound twice"}
		}
	}
	if d.Recompute && q.Limits.Recompute || d.Providers == nil || q.Edges == nil {
		return nil
	}
	// No transport that is not named is tried, so one that is must reach.
	for _, f := range q.Alternatives[d.Alternative] {
		e := slices.IndexFunc(q.Edges, func(e Edge) bool {
			return e.Source.From <= f.Source && f.Source < e.Source.To && e.Destination.From <= f.Destination && f.Destination < e.Destination.To
		})
		if e >= 0 && !slices.ContainsFunc(d.Providers, func(p int) bool { return slices.Contains(q.Edges[e].Providers, p) }) {
			return &DecisionError{"transports", d.Providers, fmt.Sprintf("none of them serves source rank %d and destination rank %d, between which alternative %d moves bytes", f.Source, f.Destination, d.Alternative)}
		}
	}
	return nil
}
