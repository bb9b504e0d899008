package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/picture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

func planCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "plans transfers from pair files, proves them and shows them",
		Long:  "plan reads pair files (YAML, kvferry: pair/1), asks the policy which rank feeds\nwhich, lowers the answer to copies and proves that every element arrives where\nit belongs, exactly once. Nothing is moved.",
		Args:  cobra.ArbitraryArgs,
		RunE:  verbNeeded,
	}
	cmd.AddCommand(planCheckCommand(a), planShowCommand(a), planPresetsCommand(a))
	return cmd
}

// planned is a pair file carried to its proof.
type planned struct {
	pair    *plan.Pair
	proven  proof.Proven
	reasons map[string]string // that the policy gave, by side and for "assignments"
	layouts map[string]string // by side: what the policy chose
}

// prepare carries one pair file to its proof. Everything that there is to
// decide is decided by the policy; nothing is decided without it.
func prepare(ctx context.Context, name string, pol *chooser) (*planned, error) {
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	f, err := pairfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	p := &planned{layouts: map[string]string{}, reasons: map[string]string{}}
	decided := map[string]int{}
	p.pair, err = f.Pair(func(side string) (int, error) {
		c, err := pol.layout(ctx, f, side, decided)
		if err == nil {
			decided[side] = c.Index
			p.layouts[side] = f.Side(side).Can[c.Index]
			p.because(side, c.Reason)
		}
		return c.Index, err
	})
	if err != nil {
		return nil, err
	}
	proven, reason, err := pol.plan(ctx, p.pair)
	if err != nil {
		return nil, err
	}
	p.proven = proven
	p.because("assignments", reason)
	return p, nil
}

func (p *planned) because(what, reason string) {
	if reason != "" {
		p.reasons[what] = reason
	}
}

// read reads a file, or standard input for "-".
func read(name string) ([]byte, error) {
	if name == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, pairfile.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return b, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, pairfile.MaxBytes+1)) // Parse refuses what is larger
	if err != nil {
		return nil, fmt.Errorf("read pair file: %w", err)
	}
	return b, nil
}

// planJSON is what plan check and plan show print, a stable interface.
type planJSON struct {
	File    string            `json:"file"`
	Edges   []plan.Flow       `json:"edges,omitempty"`
	Copies  []plan.Copy       `json:"copies,omitempty"`
	Proof   *proofJSON        `json:"proof,omitempty"`
	Policy  *policyJSON       `json:"policy,omitempty"`
	Layouts map[string]string `json:"layouts,omitempty"` // that the policy chose
	Reasons map[string]string `json:"reasons,omitempty"` // that the policy gave, by side and for "assignments"
	Plan    *plan.Plan        `json:"plan,omitempty"`    // with --verbose
}

type proofJSON struct {
	OK       bool  `json:"ok"`
	Elements int64 `json:"elements"` // destination elements, replicas included
}

func planCheckCommand(a *app) *cobra.Command {
	var flags policyFlags
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "proves the plan of each pair file, or says what is wrong with it",
		Example: "  kvferry plan check testdata/pairs/*.yaml\n" +
			"  kvferry plan check - < pair.yaml",
		Args: arguments(1, -1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), flags, args, a.check)
		},
	}
	flags.add(cmd)
	return cmd
}

// each runs one after the other; a failure is reported and does not stop the
// rest.
func (a *app) each(ctx context.Context, flags policyFlags, files []string, one func(context.Context, string, *chooser) error) error {
	pol, err := flags.open(ctx)
	if err != nil {
		return err
	}
	defer pol.close()
	failed := false
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before %s: %w", name, err)
		}
		if err := one(ctx, name, pol); err != nil {
			var usage *usageError
			if errors.As(err, &usage) {
				return err
			}
			failed = true
			a.fail(name, err)
		}
	}
	if failed {
		return errReported
	}
	return nil
}

func (a *app) check(ctx context.Context, name string, pol *chooser) error {
	p, err := prepare(ctx, name, pol)
	if err != nil {
		return err
	}
	pl := p.proven.Plan()
	if a.json() {
		out := planJSON{File: name, Proof: &proofJSON{true, p.proven.Elements()}, Policy: pol.json(), Layouts: p.layouts, Reasons: p.reasons}
		if a.verbose {
			out.Plan = pl
		}
		return a.emit(out)
	}
	fmt.Fprintf(a.out, "%s: ok: %s -> %s, %d edges, %d runs, %d elements a period of %d tokens proved\n", name,
		ranks(&p.pair.Source), ranks(&p.pair.Destination), len(pl.Edges), len(pl.Runs), p.proven.Elements(), pl.Groups[0].Tokens)
	if a.verbose {
		a.details(p, pol)
	}
	return nil
}

func ranks(s *plan.Side) string {
	if n := s.Shard.Ranks(); n != 1 {
		return fmt.Sprintf("%s (%d ranks)", s.Engine, n)
	}
	return s.Engine + " (1 rank)"
}

// details prints what one line leaves out.
func (a *app) details(p *planned, pol *chooser) {
	for _, side := range []string{pairfile.Source, pairfile.Destination} {
		if chosen, ok := p.layouts[side]; ok {
			fmt.Fprintf(a.out, "  %s layout chosen: %s\n", side, chosen)
			if why := p.reasons[side]; why != "" {
				fmt.Fprintf(a.out, "    because %s\n", why)
			}
		}
	}
	fmt.Fprintf(a.out, "  policy %s %s\n", pol.json().Name, pol.json().Digest)
	if why := p.reasons["assignments"]; why != "" {
		fmt.Fprintf(a.out, "    because %s\n", why)
	}
	fmt.Fprintf(a.out, "  pair %s\n  plan %s\n", p.pair.Digest(), p.proven.Digest())
}

// showFlags are the request that plan show applies a plan to.
type showFlags struct {
	policyFlags
	source, destination []string
	from, tokens        int64
	expand              bool
}

func planShowCommand(a *app) *cobra.Command {
	var flags showFlags
	cmd := &cobra.Command{
		Use:   "show FILE...",
		Short: "shows the copies of a request, and which rank feeds which",
		Long: "show applies the proved plan of each pair file to a request: block tables (block\n" +
			"ids in token order; without them one full block each, id 0) and a token range.",
		Example: "  kvferry plan show pair.yaml --source-blocks 1,3 --destination-blocks 2,0 --expand -o json",
		Args:    arguments(1, -1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.from < 0 {
				return usagef("--from %d: want a token from 0", flags.from)
			}
			if cmd.Flags().Changed("tokens") && flags.tokens < 1 {
				return usagef("--tokens %d: want at least 1", flags.tokens)
			}
			return a.each(cmd.Context(), flags.policyFlags, args, func(ctx context.Context, name string, pol *chooser) error {
				return a.show(ctx, name, pol, &flags)
			})
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&flags.source, "source-blocks", nil, "the source's block table: `IDS` in token order, 1,3 or G:1,3 for group G")
	f.StringArrayVar(&flags.destination, "destination-blocks", nil, "the destination's block table: `IDS`")
	f.Int64Var(&flags.from, "from", 0, "the first `TOKEN` moved")
	f.Int64Var(&flags.tokens, "tokens", 0, "move tokens up to `N`, not including it (default: what both tables hold)")
	f.BoolVar(&flags.expand, "expand", false, "show maximal contiguous copies, sorted by destination, instead of loops")
	return cmd
}

func (a *app) show(ctx context.Context, name string, pol *chooser, flags *showFlags) error {
	p, err := prepare(ctx, name, pol)
	if err != nil {
		return err
	}
	req, err := request(p, flags)
	if err != nil {
		return err
	}
	st, err := stamp.New(p.proven)
	if err != nil {
		return err
	}
	if err := st.Validate(req); err != nil {
		return err
	}
	edges, copies, err := stamped(p.pair, st, req, flags.expand)
	if err != nil {
		return err
	}
	if a.json() {
		out := planJSON{File: name, Edges: edges, Copies: copies, Policy: pol.json(), Layouts: p.layouts, Reasons: p.reasons,
			Proof: &proofJSON{true, elements(p.pair, req.From, req.To)}}
		if a.verbose {
			out.Plan = p.proven.Plan()
		}
		return a.emit(out)
	}
	var bytes, segments int64
	for _, e := range edges {
		bytes += e.Bytes
		segments += e.Segments
	}
	fmt.Fprint(a.out, picture.Grid(p.pair, p.proven.Plan(), picture.Options{Width: a.width, Colour: a.colour()}))
	fmt.Fprintf(a.out, "tokens %d to %d: %d bytes in %d segments over %d edges, %d elements, proved\n", req.From, req.To-1, bytes, segments, len(edges), elements(p.pair, req.From, req.To))
	for _, e := range edges {
		if a.verbose {
			fmt.Fprintf(a.out, "  rank %d -> rank %d: %d bytes in %d segments\n", e.Source, e.Destination, e.Bytes, e.Segments)
		}
	}
	if a.verbose {
		a.details(p, pol)
		fmt.Fprint(a.out, indent(p.proven.Plan().Text(p.pair)))
	}
	if flags.expand || a.verbose {
		for _, c := range copies {
			fmt.Fprintf(a.out, "  %s\n", c)
		}
	}
	return nil
}

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// request makes the request of the flags.
func request(p *planned, flags *showFlags) (*stamp.Request, error) {
	groups := len(p.pair.Source.Groups)
	source, err := blockTables("source-blocks", flags.source, groups)
	if err != nil {
		return nil, err
	}
	destination, err := blockTables("destination-blocks", flags.destination, groups)
	if err != nil {
		return nil, err
	}
	if source == nil {
		source = one(groups)
	}
	if destination == nil {
		destination = one(groups)
	}
	to := flags.tokens
	if to == 0 {
		to = math.MaxInt64
		for g := range groups {
			to = min(to, stamp.Capacity(len(source[g]), p.pair.Source.Groups[g].Block, p.pair.Source.Shard),
				stamp.Capacity(len(destination[g]), p.pair.Destination.Groups[g].Block, p.pair.Destination.Shard))
		}
	}
	return &stamp.Request{ID: "show", Plan: p.proven.Digest(), Source: source, Destination: destination, From: flags.from, To: to}, nil
}

func planPresetsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "presets",
		Short: "lists the layouts that have a name, with their orders",
		Args:  arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.presets(preset.All())
		},
	}
}
