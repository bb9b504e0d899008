package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
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

// layout asks which of the layouts that a side of the file offers it should
// use. The source is asked first; the destination is then asked with the
// source's choice, which is decided by then.
func (c *chooser) layout(ctx context.Context, f *pairfile.File, side string, decided map[string]int) (policy.Choice, error) {
	peer := map[string]string{pairfile.Source: pairfile.Destination, pairfile.Destination: pairfile.Source}[side]
	q := policy.Question{Engine: candidates(f, side, decided), Role: policy.Source, Peers: []policy.Engine{candidates(f, peer, decided)}}
	if side == pairfile.Destination {
		q.Role = policy.Destination
	}
	choice, err := c.p.SelectLayout(ctx, q)
	if err != nil {
		can := func(side string) string {
			if s := f.Side(side); s.Can == nil {
				return given(s)
			}
			return strings.Join(f.Side(side).Can, ", ")
		}
		return choice, &refusal.Layout{Fields: []geometry.Difference{{Field: "layout", Source: can(pairfile.Source), Destination: can(pairfile.Destination)}},
			Err: fmt.Errorf("ask policy %s for the layout of %s: %w", c.p.Name(), side, err)}
	}
	return choice, nil
}

// given names the layout that a side tells.
func given(s *pairfile.Side) string {
	if s.Preset != "" {
		return s.Preset
	}
	return s.Layout.Text()
}

// candidates is a side as the policy sees it: with all that it offers, or the
// one layout that it tells or has been decided on.
func candidates(f *pairfile.File, side string, decided map[string]int) policy.Engine {
	s := f.Side(side)
	e := policy.Engine{Name: s.Engine, Model: f.SideModel(s), Shard: s.Shard}
	add := func(name string, spec layout.Spec) {
		e.Candidates = append(e.Candidates, policy.Candidate{Name: name, Layout: spec, Block: s.Block, Blocks: s.Blocks})
	}
	i, known := decided[side]
	switch c := s.Candidates(); {
	case s.Layout != nil:
		add(given(s), *s.Layout)
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
