// Package decision carries a pair file to its proof: a policy is asked for
// everything that the file leaves to decide, layouts first, then assignments,
// and what it answers is lowered and proved. Nothing is decided without it.
package decision

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// Asker is a policy that answers for a pair: *policy.Policy is one.
type Asker interface {
	Name() string
	SelectLayout(context.Context, policy.Question) (policy.Choice, error)
	RemapFor(context.Context, policy.RemapQuestion) (policy.Answer, error)
}

// Router is a policy that decides how transfers go: *policy.Policy is one.
type Router interface {
	Route(context.Context, policy.RouteQuestion) (policy.Decision, []policy.Clamped, error)
}

// Site is what is known of a pair besides its caches. The zero value is
// nothing.
type Site struct {
	Source, Destination policy.About
	Providers           []policy.Provider
	Edges               []policy.Edge
	Configuration       []byte // the operator's for the policy, canonical JSON
}

// Offered is a group of a side of a file, whose layout a policy may choose.
type Offered struct {
	Side  string
	Group int // index in the file's model
}

// Name is the group's in output: the side's where the model has one group
// without a name.
func (o Offered) Name(f *pairfile.File) string {
	if group := f.Model.Groups[o.Group].Name; group != "" {
		return o.Side + "." + group
	}
	return o.Side
}

// Decision is a pair file carried to its proof.
type Decision struct {
	File    *pairfile.File
	Pair    *plan.Pair
	Common  plan.Common
	Decided map[Offered]int // which of the layouts offered the policy chose
	// Layouts and Reasons are by Offered.Name; the reason of the assignments is
	// by "assignments". What has no reason is left out.
	Layouts, Reasons map[string]string

	Answer      policy.Answer // to remap; shared with other calls
	Alternative int           // index of the one that is proved
	Proven      proof.Proven
}

// Undecided is a side without a layout: what each side could do, or told.
type Undecided struct {
	Fields []geometry.Difference
	Err    error
}

func (e *Undecided) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Undecided) Unwrap() error { return e.Err }

// Offers are the groups whose layout a file leaves to the policy, the source's
// first.
func Offers(f *pairfile.File) []Offered {
	var out []Offered
	for _, side := range []string{pairfile.Source, pairfile.Destination} {
		for g := range f.Side(side).Groups {
			if f.Side(side).Groups[g].Can != nil {
				out = append(out, Offered{Side: side, Group: g})
			}
		}
	}
	return out
}

// Make asks the policy and proves what it answers: the first of its
// alternatives that is proved counts.
//
// Errors: those of pairfile.File.Pair; *Undecided; those of
// policy.Policy.RemapFor; where no alternative is proved, what is wrong with
// the first.
func Make(ctx context.Context, f *pairfile.File, by Asker, site Site) (*Decision, error) {
	d, err := Layouts(ctx, f, by, site)
	if err != nil {
		return nil, err
	}
	d.Answer, err = by.RemapFor(ctx, policy.RemapQuestion{
		Pair: d.Pair, Source: site.Source, Destination: site.Destination, Providers: site.Providers, Edges: site.Edges, Configuration: site.Configuration,
	})
	if err != nil {
		return nil, fmt.Errorf("ask policy %s for assignments: %w", by.Name(), err)
	}
	d.Proven, d.Alternative, err = Prove(d.Pair, d.Answer)
	if err != nil {
		return nil, err
	}
	d.because("assignments", d.Answer.Reason)
	return d, nil
}

// Layouts asks the policy for the layouts that the file leaves to decide, and
// for nothing else: there are no answer and no proof.
//
// Errors: those of pairfile.File.Pair; *Undecided.
func Layouts(ctx context.Context, f *pairfile.File, by Asker, site Site) (*Decision, error) {
	d := &Decision{File: f, Decided: map[Offered]int{}, Layouts: map[string]string{}, Reasons: map[string]string{}}
	var err error
	d.Pair, d.Common, err = f.Pair(func(side string, group int) (int, error) {
		of := Offered{side, group}
		c, err := d.layout(ctx, by, site, of)
		if err == nil {
			d.Decided[of] = c.Index
			d.Layouts[of.Name(f)] = f.Side(side).Groups[group].Can[c.Index]
			d.because(of.Name(f), c.Reason)
		}
		return c.Index, err
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Decision) because(what, reason string) {
	if reason != "" {
		d.Reasons[what] = reason
	}
}

// Prove lowers and proves the alternatives of an answer in its order and
// returns the first that is proved, with its index; where none is, what is wrong
// with the first.
//
// Errors: those of build.Build and proof.Check.
func Prove(pair *plan.Pair, answer policy.Answer) (proof.Proven, int, error) {
	var first error
	for i, assignments := range answer.Alternatives {
		proven, err := Alternative(pair, assignments)
		if err == nil {
			return proven, i, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = blame.On(blame.Policy, fmt.Errorf("the policy answered with no alternative"))
	}
	return proof.Proven{}, 0, first
}

// Alternative lowers and proves assignments.
//
// Errors: those of build.Build and proof.Check.
func Alternative(pair *plan.Pair, assignments []plan.Assignment) (proof.Proven, error) {
	pl, err := build.Build(pair, assignments, nil, plan.DefaultBudget())
	if err != nil {
		return proof.Proven{}, err
	}
	return proof.Check(pair, pl)
}

// layout asks which of the layouts that a side of the file offers for a group
// it should use. The source is asked first; the destination is then asked with
// the source's choice, which is decided by then.
func (d *Decision) layout(ctx context.Context, by Asker, site Site, of Offered) (policy.Choice, error) {
	f := d.File
	q := Question(f, of, d.Decided)
	q.Providers, q.Configuration = site.Providers, site.Configuration
	abouts := [2]policy.About{site.Source, site.Destination}
	if q.Role == policy.Destination {
		abouts[0], abouts[1] = abouts[1], abouts[0]
	}
	q.Engine.About = abouts[0]
	if len(q.Peers) > 0 {
		q.Peers[0].About = abouts[1]
		if site.Edges != nil {
			q.Edges = [][]policy.Edge{site.Edges}
		}
	}
	choice, err := by.SelectLayout(ctx, q)
	if err != nil {
		can := func(side string) string {
			g := &f.Side(side).Groups[of.Group]
			switch {
			case g.Absent:
				return "(no such group)"
			case g.Can == nil:
				return given(g)
			}
			return strings.Join(g.Can, ", ")
		}
		return choice, &Undecided{Fields: []geometry.Difference{{Field: "layout", Source: can(pairfile.Source), Destination: can(pairfile.Destination)}},
			Err: fmt.Errorf("ask policy %s for the layout of %s: %w", by.Name(), of.Name(f), err)}
	}
	return choice, nil
}

// Question is the layout selection for a group of a side, given what is decided
// already.
func Question(f *pairfile.File, of Offered, decided map[Offered]int) policy.Question {
	peer := Offered{map[string]string{pairfile.Source: pairfile.Destination, pairfile.Destination: pairfile.Source}[of.Side], of.Group}
	q := policy.Question{Engine: candidates(f, of, decided), Role: policy.Source}
	if !f.Side(peer.Side).Groups[peer.Group].Absent {
		q.Peers = []policy.Engine{candidates(f, peer, decided)}
	}
	if of.Side == pairfile.Destination {
		q.Role = policy.Destination
	}
	return q
}

// given names the layout that a side tells for a group.
func given(g *pairfile.SideGroup) string {
	if g.Preset != "" {
		return g.Preset
	}
	return g.Layout.Text()
}

// candidates is a group of a side as the policy sees it: with all that it
// offers, or the one layout that it tells or has been decided on.
func candidates(f *pairfile.File, of Offered, decided map[Offered]int) policy.Engine {
	s := f.Side(of.Side)
	g := &s.Groups[of.Group]
	e := policy.Engine{Name: s.Engine, Model: f.SideModel(s), Shard: s.Shard}
	if len(e.Model.Groups) > 1 {
		e.Model = e.Model.Select([]int{slices.Index(s.Present(), of.Group)})
	}
	add := func(name string, spec layout.Spec) {
		e.Candidates = append(e.Candidates, policy.Candidate{Name: name, Layouts: []layout.Spec{spec}, Pools: []plan.Pool{g.Pool()}})
	}
	i, known := decided[of]
	switch c := g.Candidates(); {
	case g.Layout != nil:
		add(given(g), *g.Layout)
	case known:
		add(c[i].Name, c[i].Spec)
	default:
		for _, p := range c {
			add(p.Name, p.Spec)
		}
	}
	return e
}

// Routed is what a policy decides about one transfer of a pair.
type Routed struct {
	Question policy.RouteQuestion
	Decision policy.Decision // within the limits
	Clamped  []policy.Clamped
}

// Route asks how a transfer of so many tokens goes, among the alternatives that
// are proved. The decision's Alternative counts these.
//
// Errors: those of policy.Policy.Route.
func (d *Decision) Route(ctx context.Context, by Router, site Site, tokens int) (*Routed, error) {
	q := policy.RouteQuestion{
		Model: d.Pair.Source.Model.Name, Tokens: tokens,
		Source:      policy.Party{Name: d.Pair.Source.Engine, About: site.Source},
		Destination: policy.Party{Name: d.Pair.Destination.Engine, About: site.Destination},
		Providers:   site.Providers, Edges: site.Edges, Configuration: site.Configuration,
	}
	for i, as := range d.Answer.Alternatives {
		proven := d.Proven
		if i != d.Alternative {
			var err error
			if proven, err = Alternative(d.Pair, as); err != nil {
				continue
			}
		}
		q.Alternatives = append(q.Alternatives, policy.FlowsOf(d.Pair, proven.Plan()))
	}
	r := &Routed{Question: q}
	var err error
	r.Decision, r.Clamped, err = by.Route(ctx, q)
	return r, err
}
