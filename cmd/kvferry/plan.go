package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/picture"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy/decision"
)

func planCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "plans transfers from pair files, proves them and shows them",
		Long:  "plan reads pair files (YAML, kvferry: pair/1), asks the policy which rank feeds\nwhich, lowers the answer to copies and proves that every element arrives where\nit belongs, exactly once. Nothing is moved.",
		Args:  cobra.ArbitraryArgs,
		RunE:  verbNeeded,
	}
	cmd.AddCommand(planCheckCommand(a), planShowCommand(a), planExplainCommand(a), planPresetsCommand(a), planModelCommand(a))
	return cmd
}

// planned is a pair file carried to its proof.
type planned struct {
	file    *pairfile.File
	pair    *plan.Pair
	common  plan.Common
	proven  proof.Proven
	decided map[decision.Offered]int // which of the layouts offered the policy chose
	reasons map[string]string        // that the policy gave, by side (and group, "source.mamba") and for "assignments"
	layouts map[string]string        // by side (and group): what the policy chose
}

// prepare carries one pair file to its proof. Everything that there is to
// decide is decided by the policy; nothing is decided without it.
func prepare(ctx context.Context, name string, pol *chooser) (*planned, error) {
	f, err := pairFile(name)
	if err != nil {
		return nil, err
	}
	d, err := pol.decide(ctx, f)
	if err != nil {
		return nil, err
	}
	return &planned{file: f, pair: d.Pair, common: d.Common, proven: d.Proven, decided: d.Decided, reasons: d.Reasons, layouts: d.Layouts}, nil
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
	File        string            `json:"file"`
	Edges       []flowJSON        `json:"edges,omitempty"`
	Copies      []copyJSON        `json:"copies,omitempty"`
	Absent      []string          `json:"absent,omitempty"`        // groups that only the destination has
	Skipped     []string          `json:"skipped,omitempty"`       // groups that only the source has
	OutOfWindow []passed          `json:"out_of_window,omitempty"` // tokens that do not move
	Proof       *proofJSON        `json:"proof,omitempty"`
	Policy      *policyJSON       `json:"policy,omitempty"`
	Layouts     map[string]string `json:"layouts,omitempty"` // that the policy chose
	Reasons     map[string]string `json:"reasons,omitempty"` // that the policy gave, by side and for "assignments"
	Plan        *plan.Plan        `json:"plan,omitempty"`    // with --verbose
}

// json is what every report on a pair says.
func (p *planned) json(a *app, name string, pol *chooser, elements int64) planJSON {
	out := planJSON{File: name, Absent: p.common.Absent, Skipped: p.common.Skipped, Proof: &proofJSON{true, elements}, Policy: pol.json(), Layouts: p.layouts, Reasons: p.reasons}
	if a.verbose {
		out.Plan = p.proven.Plan()
	}
	return out
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

// each opens the policy and runs one for each file.
func (a *app) each(ctx context.Context, flags policyFlags, files []string, one func(context.Context, string, *chooser) error) error {
	pol, err := flags.open(ctx)
	if err != nil {
		return err
	}
	defer pol.close()
	return a.eachFile(ctx, files, func(name string) error { return one(ctx, name, pol) })
}

func (a *app) check(ctx context.Context, name string, pol *chooser) error {
	p, err := prepare(ctx, name, pol)
	if err != nil {
		return err
	}
	pl := p.proven.Plan()
	if a.json() {
		return a.emit(p.json(a, name, pol, p.proven.Elements()))
	}
	edges := map[stamp.EdgeKey]bool{}
	for _, e := range pl.Edges {
		edges[stamp.EdgeKey{Source: e.Source, Destination: e.Destination}] = true
	}
	fmt.Fprintf(a.out, "%s: ok: %s -> %s, %d edges, %d runs, %d elements a period of %s proved", name,
		ranks(&p.pair.Source), ranks(&p.pair.Destination), len(edges), len(pl.Runs), p.proven.Elements(), periods(p.pair, pl))
	for _, left := range []struct {
		what  string
		names []string
	}{{"absent", p.common.Absent}, {"skipped", p.common.Skipped}} {
		if len(left.names) > 0 {
			fmt.Fprintf(a.out, "; %s: %s", left.what, strings.Join(left.names, ", "))
		}
	}
	fmt.Fprintln(a.out)
	if a.verbose {
		a.left(p)
		a.details(p, pol)
	}
	return nil
}

// periods are the periods of a plan: "32 tokens", or where groups have names
// "32 tokens (full, sliding), a state (mamba)".
func periods(p *plan.Pair, pl *plan.Plan) string {
	var texts, names []string
	for g, group := range p.Destination.Model.Groups {
		t := fmt.Sprintf("%d tokens", pl.Groups[g].Tokens)
		if group.State {
			t = "a state"
		}
		if group.Name == "" {
			return t
		}
		i := slices.Index(texts, t)
		if i < 0 {
			i = len(texts)
			texts, names = append(texts, t), append(names, "")
		} else {
			names[i] += ", "
		}
		names[i] += group.Name
	}
	for i := range texts {
		texts[i] += " (" + names[i] + ")"
	}
	return strings.Join(texts, ", ")
}

// left says which groups do not move.
func (a *app) left(p *planned) {
	for _, g := range p.common.Absent {
		fmt.Fprintf(a.out, "group %s is absent: %s has it and %s has not; nothing fills it\n", g, p.pair.Destination.Engine, p.pair.Source.Engine)
	}
	for _, g := range p.common.Skipped {
		fmt.Fprintf(a.out, "group %s is skipped: %s has it and %s has not\n", g, p.pair.Source.Engine, p.pair.Destination.Engine)
	}
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
		for g := range p.file.Model.Groups {
			of := decision.Offered{Side: side, Group: g}.Name(p.file)
			chosen, ok := p.layouts[of]
			if !ok {
				continue
			}
			fmt.Fprintf(a.out, "  %s layout chosen: %s\n", of, chosen)
			if why := p.reasons[of]; why != "" {
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
	requestFlags
	expand bool
}

func planShowCommand(a *app) *cobra.Command {
	var flags showFlags
	cmd := &cobra.Command{
		Use:   "show FILE...",
		Short: "shows the copies of a request, and which rank feeds which",
		Long: "show applies the proved plan of each pair file to a request: block tables (block\n" +
			"ids in token order; without them one full block each, id 0) and a token range.\n\n" +
			"Where the pair names its groups each has a table: --source-blocks full:1,3\n" +
			"--source-blocks mamba:0, or 'full:1,3; mamba:0'. A group that looks back over a\n" +
			"window may give its last blocks only, one that goes round in a ring gives the\n" +
			"ring's blocks, a state its slot.",
		Example: "  kvferry plan show pair.yaml --source-blocks 1,3 --destination-blocks 2,0 --expand -o json\n" +
			"  kvferry plan show hybrid.yaml --source-blocks 'attention:1,3 mamba:2' --destination-blocks 'attention:0 mamba:1'",
		Args: arguments(1, -1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd); err != nil {
				return err
			}
			return a.each(cmd.Context(), flags.policyFlags, args, func(ctx context.Context, name string, pol *chooser) error {
				return a.show(ctx, name, pol, &flags)
			})
		},
	}
	flags.policyFlags.add(cmd)
	flags.requestFlags.add(cmd)
	cmd.Flags().BoolVar(&flags.expand, "expand", false, "show maximal contiguous copies, sorted by destination, instead of loops")
	return cmd
}

func (a *app) show(ctx context.Context, name string, pol *chooser, flags *showFlags) error {
	p, err := prepare(ctx, name, pol)
	if err != nil {
		return err
	}
	st, err := stamp.New(p.proven)
	if err != nil {
		return err
	}
	req, err := request(p.pair, st, &flags.requestFlags, 1)
	if err != nil {
		return err
	}
	edges, err := flows(p.pair, st, req)
	if err != nil {
		return err
	}
	list, err := copies(p.pair, st, req, flags.expand)
	if err != nil {
		return err
	}
	n := elements(p.pair, req)
	passed := outOfWindow(&p.pair.Destination.Model, req)
	if a.json() {
		out := p.json(a, name, pol, n)
		out.Edges, out.Copies, out.OutOfWindow = edges, list, passed
		return a.emit(out)
	}
	var bytes, segments int64
	for _, e := range edges {
		bytes += e.Bytes
		segments += e.Segments
	}
	fmt.Fprint(a.out, picture.Grid(p.pair, p.proven.Plan(), picture.Options{Width: a.width, Colour: a.colour()}))
	what := fmt.Sprintf("tokens %d to %d", req.From, req.To-1)
	if !slices.ContainsFunc(p.pair.Destination.Model.Groups, func(g geometry.Group) bool { return !g.State }) {
		what = "states"
	}
	fmt.Fprintf(a.out, "%s: %d bytes in %d segments over %d edges, %d elements, proved\n", what, bytes, segments, len(edges), n)
	for _, w := range passed {
		fmt.Fprintf(a.out, "%s: tokens %d to %d are out of the window and do not move\n", cmp.Or(w.Group, "all layers"), w.From, w.To-1)
	}
	a.left(p)
	if a.verbose {
		for _, e := range edges {
			fmt.Fprintf(a.out, "  rank %d -> rank %d: %d bytes in %d segments\n", e.Source, e.Destination, e.Bytes, e.Segments)
			for _, g := range e.Groups {
				fmt.Fprintf(a.out, "    %s: %d bytes in %d segments\n", g.Group, g.Bytes, g.Segments)
			}
		}
		a.details(p, pol)
		fmt.Fprint(a.out, indent(p.proven.Plan().Text(p.pair)))
	}
	if flags.expand || a.verbose {
		for _, c := range list {
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
