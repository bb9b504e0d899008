package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/wasm/host"
)

// Policy is a policy that is tried: *policy.Policy is one.
type Policy interface {
	decision.Asker
	decision.Router
}

// Setting is what a case is run with: its files, read.
type Setting struct {
	Pair *pairfile.File
	Site decision.Site // with the case's configuration
	// Fuel gives what the costliest call of a hook spent since it was last
	// asked.
	Fuel func(hook string) uint64
}

// Result is what came of a case.
type Result struct {
	Name   string   `json:"name"`
	Line   int      `json:"line"`
	OK     bool     `json:"ok"`
	Reason string   `json:"reason,omitempty"` // that the policy gave
	Fuel   uint64   `json:"fuel"`
	Wrong  []string `json:"wrong,omitempty"` // what is not as expected, a line each
}

// Run runs a case.
//
// Errors: none of the policy, which are in the result; those of the question,
// and of the context.
func (c *Case) Run(ctx context.Context, by Policy, s Setting) (Result, error) {
	r := Result{Name: c.Name, Line: c.Line}
	wrong := func(format string, args ...any) { r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...)) }
	s.Fuel(c.Hook) // of other cases
	err := c.ask(ctx, by, s, &r, wrong)
	r.Fuel = s.Fuel(c.Hook)
	if stopped := ctx.Err(); stopped != nil {
		return r, stopped
	}
	var question *policy.QuestionError
	if errors.As(err, &question) {
		return r, err
	}
	var declined *policy.Declined
	isNo := errors.As(err, &declined)
	switch {
	case isNo && declined.Hook == c.Hook && c.Expect.Declined != nil:
		var refused *host.Refused
		if errors.As(err, &refused) {
			r.Reason = refused.Reason
		}
		if !strings.Contains(r.Reason, *c.Expect.Declined) {
			wrong("declined because %q: expected a reason that holds %q", r.Reason, *c.Expect.Declined)
		}
	case err != nil:
		wrong("%v", err)
	case c.Expect.Declined != nil:
		wrong("answered, where it was expected to decline because %q", *c.Expect.Declined)
	}
	if most := c.Expect.Fuel; most > 0 && r.Fuel > most {
		wrong("spent %d fuel: expected at most %d", r.Fuel, most)
	}
	r.OK = len(r.Wrong) == 0
	return r, nil
}

// ask puts the question and compares an answer with what is expected of it.
func (c *Case) ask(ctx context.Context, by Policy, s Setting, r *Result, wrong func(string, ...any)) error {
	x := &c.Expect
	if c.Hook == "select_layout" {
		d, err := decision.Layouts(ctx, s.Pair, by, s.Site)
		if err != nil {
			return err
		}
		if len(d.Layouts) == 0 {
			wrong("nothing was asked: no side of the pair offers layouts with can")
		}
		c.layouts(d, wrong)
		r.Reason = d.Reasons[pairfile.Source]
		return nil
	}
	d, err := decision.Make(ctx, s.Pair, by, s.Site)
	if err != nil {
		return err
	}
	r.Reason = d.Reasons["assignments"]
	c.layouts(d, wrong)
	if x.Edges != nil {
		var got []stamp.EdgeKey
		for _, e := range d.Proven.Plan().Edges {
			if key := (stamp.EdgeKey{Source: e.Source, Destination: e.Destination}); !slices.Contains(got, key) {
				got = append(got, key)
			}
		}
		for _, key := range x.Edges {
			if !slices.Contains(got, key) {
				wrong("nothing moves from rank %d to rank %d, where an edge is expected", key.Source, key.Destination)
			}
		}
		for _, key := range got {
			if !slices.Contains(x.Edges, key) {
				wrong("something moves from rank %d to rank %d, where no edge is expected", key.Source, key.Destination)
			}
		}
	}
	if n := len(d.Answer.Alternatives); x.Alternatives > 0 && n != x.Alternatives {
		wrong("%d alternatives: expected %d", n, x.Alternatives)
	}
	if c.Hook == "remap" {
		return nil
	}
	tokens := c.Tokens
	if tokens == 0 {
		tokens = build.CostTokens
	}
	routed, err := d.Route(ctx, by, s.Site, tokens)
	if err != nil {
		return err
	}
	r.Reason = routed.Decision.Reason
	if x.Route != nil {
		x.Route.compare(routed, wrong)
	}
	return nil
}

func (c *Case) layouts(d *decision.Decision, wrong func(string, ...any)) {
	for _, of := range slices.Sorted(maps.Keys(c.Expect.Layouts)) {
		want := c.Expect.Layouts[of]
		switch got, ok := d.Layouts[of]; {
		case !ok:
			wrong("the layout of %s is not the policy's to choose: it is given in the pair, or there is no such side", of)
		case got != want:
			wrong("%s: layout %s: expected %s", of, got, want)
		}
	}
}

func (x *Route) compare(r *decision.Routed, wrong func(string, ...any)) {
	d := &r.Decision
	check := func(what string, same bool, got, want any) {
		if !same {
			wrong("%s %v: expected %v", what, got, want)
		}
	}
	if x.Alternative != nil {
		check("alternative", d.Alternative == *x.Alternative, d.Alternative, *x.Alternative)
	}
	if x.Recompute != nil {
		check("recompute", d.Recompute == *x.Recompute, d.Recompute, *x.Recompute)
	}
	if x.Chunk != nil {
		check("chunk", d.Chunk == *x.Chunk, d.Chunk, *x.Chunk)
	}
	if x.Streams != nil {
		check("streams", d.Streams == *x.Streams, d.Streams, *x.Streams)
	}
	if x.Priority != nil {
		check("priority", d.Priority == *x.Priority, d.Priority, *x.Priority)
	}
	if x.Mode != nil {
		check("mode", d.Mode == modes()[*x.Mode], d.Mode, *x.Mode)
	}
	if x.Provider != nil {
		got := "as configured"
		if len(d.Providers) > 0 {
			got = r.Question.Providers[d.Providers[0]].Name
		}
		check("provider", got == *x.Provider, got, *x.Provider)
	}
}
