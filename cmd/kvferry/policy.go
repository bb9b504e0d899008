package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// defaultPolicy is the built-in policy that commands ask unless told
// otherwise. It is a module like any other; there is no native one behind it.
const defaultPolicy = "heads"

// policyFlags say which policy decides.
type policyFlags struct {
	name      string
	unmetered bool
}

func (f *policyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "policy", defaultPolicy, "the policy that decides: a built-in `NAME` or FILE.wasm")
	cmd.Flags().BoolVar(&f.unmetered, "unsafe-unmetered", false, "run a module that is not built in, without metering: it can hang this process")
}

// chooser is an open policy.
type chooser struct {
	p *policy.Policy
}

// open loads the policy.
func (f policyFlags) open(ctx context.Context) (*chooser, error) {
	module, ok := policies.Get(f.name)
	if !ok {
		if !strings.HasSuffix(f.name, ".wasm") {
			return nil, usagef("--policy %q: no built-in policy of that name (%s) and no .wasm file", f.name, strings.Join(policies.Names(), ", "))
		}
		var err error
		if module, err = os.ReadFile(filepath.Clean(f.name)); err != nil {
			return nil, err
		}
	}
	p, err := policy.Open(ctx, module, policy.Options{Unmetered: f.unmetered})
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", f.name, err)
	}
	return &chooser{p}, nil
}

func (c *chooser) close() { _ = c.p.Close() } // nothing is left to lose

// policyJSON names a policy in output.
type policyJSON struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

func (c *chooser) json() *policyJSON {
	return &policyJSON{c.p.Name(), c.p.Digest().String()}
}

// alternatives asks the policy which rank feeds which.
func (c *chooser) alternatives(ctx context.Context, pair *plan.Pair) (policy.Answer, error) {
	answer, err := c.p.Remap(ctx, pair)
	if err != nil {
		return answer, fmt.Errorf("ask policy %s for assignments: %w", c.p.Name(), err)
	}
	if len(answer.Alternatives) == 0 {
		return answer, blame.On(blame.Policy, fmt.Errorf("policy %s answered with no alternative", c.p.Name()))
	}
	return answer, nil
}

// remap is the policy's first alternative.
func (c *chooser) remap(ctx context.Context, pair *plan.Pair) ([]plan.Assignment, error) {
	answer, err := c.alternatives(ctx, pair)
	if err != nil {
		return nil, err
	}
	return answer.Alternatives[0], nil
}

// plan lowers and proves the policy's alternatives in its order of preference
// and returns the first that is proved; where none is, what is wrong with the
// first.
func (c *chooser) plan(ctx context.Context, pair *plan.Pair) (proof.Proven, string, error) {
	answer, err := c.alternatives(ctx, pair)
	if err != nil {
		return proof.Proven{}, "", err
	}
	var first error
	for _, assignments := range answer.Alternatives {
		pl, err := build.Build(pair, assignments, nil, plan.DefaultBudget())
		if err == nil {
			var proven proof.Proven
			if proven, err = proof.Check(pair, pl); err == nil {
				return proven, answer.Reason, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return proof.Proven{}, "", first
}

// offered is a group of a side of a file, whose layout the policy may choose.
type offered struct {
	side  string
	group int // index in the file's model
}

// name is the group's in output: the side's where the model has one group
// without a name.
func (o offered) name(f *pairfile.File) string {
	if group := f.Model.Groups[o.group].Name; group != "" {
		return o.side + "." + group
	}
	return o.side
}

// layout asks which of the layouts that a side of the file offers for a group
// it should use. The source is asked first; the destination is then asked with
// the source's choice, which is decided by then.
func (c *chooser) layout(ctx context.Context, f *pairfile.File, of offered, decided map[offered]int) (policy.Choice, error) {
	peer := offered{map[string]string{pairfile.Source: pairfile.Destination, pairfile.Destination: pairfile.Source}[of.side], of.group}
	q := policy.Question{Engine: candidates(f, of, decided), Role: policy.Source}
	if !f.Side(peer.side).Groups[peer.group].Absent {
		q.Peers = []policy.Engine{candidates(f, peer, decided)}
	}
	if of.side == pairfile.Destination {
		q.Role = policy.Destination
	}
	choice, err := c.p.SelectLayout(ctx, q)
	if err != nil {
		can := func(side string) string {
			g := &f.Side(side).Groups[of.group]
			switch {
			case g.Absent:
				return "(no such group)"
			case g.Can == nil:
				return given(g)
			}
			return strings.Join(g.Can, ", ")
		}
		return choice, &refusal.Layout{Fields: []geometry.Difference{{Field: "layout", Source: can(pairfile.Source), Destination: can(pairfile.Destination)}},
			Err: fmt.Errorf("ask policy %s for the layout of %s: %w", c.p.Name(), of.name(f), err)}
	}
	return choice, nil
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
func candidates(f *pairfile.File, of offered, decided map[offered]int) policy.Engine {
	s := f.Side(of.side)
	g := &s.Groups[of.group]
	e := policy.Engine{Name: s.Engine, Model: f.SideModel(s), Shard: s.Shard}
	if len(e.Model.Groups) > 1 {
		e.Model = e.Model.Select([]int{slices.Index(s.Present(), of.group)})
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

// builtin lists the built-in policies. The digest of an empty module is "".
func builtin() []policyJSON {
	var out []policyJSON
	for _, name := range policies.Names() {
		p := policyJSON{Name: name}
		if module, ok := policies.Get(name); ok && len(module) > 0 {
			p.Digest = geometry.Digest(sha256.Sum256(module)).String()
		}
		out = append(out, p)
	}
	return out
}
