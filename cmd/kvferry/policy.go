package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/configuration"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/trial"
	"github.com/kvferry/kvferry/wasm/host"
)

// defaultPolicy is the built-in policy that commands ask unless told
// otherwise. It is a module like any other; there is no native one behind it.
const defaultPolicy = "heads"

// policyFlags say which policy decides, and with what configuration.
type policyFlags struct {
	name          string
	configuration string // file
	site          siteFlag
	from          originFlags
}

func (f *policyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "policy", defaultPolicy, "the policy that decides: "+policyForms)
	f.from.add(cmd)
	f.addConfiguration(cmd)
	f.site.add(cmd)
}

func (f *policyFlags) addConfiguration(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.configuration, "policy-config", "", "the operator's configuration for the policy: a YAML `FILE`")
}

// chooser is an open policy, and what it is told besides the pair.
type chooser struct {
	p    *policy.Policy
	site decision.Site
	box  *sandbox.Box
}

// open loads the policy.
func (f policyFlags) open(ctx context.Context) (*chooser, error) {
	return f.openWatched(ctx, nil)
}

// openWatched loads the policy and shows each of its calls to observe.
func (f policyFlags) openWatched(ctx context.Context, observe func(host.Call)) (_ *chooser, err error) {
	site, err := f.read()
	if err != nil {
		return nil, err
	}
	found, err := f.from.resolve(ctx, f.name)
	if err != nil {
		return nil, err
	}
	module := found.wasm
	c := &chooser{site: site}
	if c.box, err = sandbox.Open(module); err != nil {
		return nil, err
	}
	options := c.box.Policy()
	options.Observe = observe
	if c.p, err = policy.Open(ctx, module, options); err != nil {
		c.box.Close()
		return nil, fmt.Errorf("policy %s: %w", f.name, err)
	}
	return c, nil
}

// read reads the configuration and the site.
func (f policyFlags) read() (site decision.Site, err error) {
	if f.site.file != "" {
		text, err := readAll(f.site.file, trial.MaxBytes)
		if err != nil {
			return site, err
		}
		if site, err = trial.ParseSite(f.site.file, text); err != nil {
			return site, err
		}
	}
	if f.configuration != "" {
		text, err := readAll(f.configuration, 1<<20)
		if err != nil {
			return site, err
		}
		if site.Configuration, err = configuration.Canonical(f.configuration, text); err != nil {
			return site, err
		}
	}
	return site, nil
}

func (c *chooser) close() {
	_ = c.p.Close() // nothing is left to lose
	c.box.Close()
}

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
	answer, err := c.p.RemapFor(ctx, policy.RemapQuestion{Pair: pair, Configuration: c.site.Configuration})
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

// decide carries a pair file to its proof.
func (c *chooser) decide(ctx context.Context, f *pairfile.File) (*decision.Decision, error) {
	d, err := decision.Make(ctx, f, c.p, c.site)
	var undecided *decision.Undecided
	if errors.As(err, &undecided) {
		return nil, &refusal.Layout{Fields: undecided.Fields, Err: undecided.Err}
	}
	var asked *policy.QuestionError
	if errors.As(err, &asked) { // of the site or the configuration: the pair is valid
		return nil, blame.On(blame.Operator, err)
	}
	return d, err
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
