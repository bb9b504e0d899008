package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/picture"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/difference"
)

// addMine adds the flags of a command that is about the policy of the folder
// one stands in, unless told otherwise.
func (f *policyFlags) addMine(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "policy", "", "the policy that decides: "+policyForms+" (default: the module of the folder one stands in, else "+defaultPolicy+")")
	f.from.add(cmd)
	f.addConfiguration(cmd)
	f.site.add(cmd)
}

func policyExplainCommand(a *app) *cobra.Command {
	var flags policyFlags
	tokens := build.CostTokens
	cmd := &cobra.Command{
		Use:   "explain PAIR...",
		Short: "shows what a policy decides about pair files: reason, plan, fuel and time",
		Long: "explain asks a policy everything that there is to decide about a pair: layouts,\n" +
			"assignments, and how the transfer of a request goes, where it has that hook. The\n" +
			"assignments are proved, and drawn as plan show draws them.",
		Example: "  kvferry policy explain testdata/pairs/seed.yaml\n  kvferry policy explain pair.yaml --policy mine.wasm --site racks.yaml -o json",
		Args:    arguments(1, -1, "PAIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if tokens < 1 {
				return usagef("--tokens %d: want at least 1", tokens)
			}
			return a.policyExplain(cmd.Context(), flags, args, tokens)
		},
	}
	flags.addMine(cmd)
	cmd.Flags().IntVar(&tokens, "tokens", tokens, "of the request whose transfer is routed")
	return cmd
}

// explainedJSON is what policy explain prints of a pair.
type explainedJSON struct {
	File         string            `json:"file"`
	Policy       *policyJSON       `json:"policy"`
	Layouts      map[string]string `json:"layouts,omitempty"`
	Alternatives int               `json:"alternatives"`
	Alternative  int               `json:"alternative"` // the one that is proved
	Edges        []edgeJSON        `json:"edges"`
	Runs         int               `json:"runs"`
	Proof        *proofJSON        `json:"proof"`
	Route        *routedJSON       `json:"route,omitempty"`
	Reasons      map[string]string `json:"reasons,omitempty"`
	Cost         map[string]spent  `json:"cost"` // by hook
}

// routedJSON is a decision about a transfer.
type routedJSON struct {
	Alternative int              `json:"alternative"`
	Providers   []string         `json:"providers,omitempty"` // in order of preference; none: as configured
	Mode        string           `json:"mode,omitempty"`
	Chunk       int64            `json:"chunk,omitempty"`
	Streams     int              `json:"streams,omitempty"`
	Priority    int              `json:"priority,omitempty"`
	Recompute   bool             `json:"recompute,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Clamped     []string         `json:"clamped,omitempty"`
	Error       *refusal.Refusal `json:"error,omitempty"`
}

// routeOf asks how a transfer goes. A policy that says no, or fails, is shown as
// such: the plan stands.
func routeOf(ctx context.Context, d *decision.Decision, pol *chooser, tokens int) *routedJSON {
	r, err := d.Route(ctx, pol.p, pol.site, tokens)
	if err != nil {
		return &routedJSON{Error: refusal.Of(err)}
	}
	return routed(r)
}

// routed is a decision in output.
func routed(r *decision.Routed) *routedJSON {
	out := &routedJSON{
		Alternative: r.Decision.Alternative, Chunk: r.Decision.Chunk, Streams: r.Decision.Streams, Priority: r.Decision.Priority,
		Recompute: r.Decision.Recompute, Reason: r.Decision.Reason, Mode: map[policy.Mode]string{policy.Direct: "direct", policy.Staged: "staged"}[r.Decision.Mode],
	}
	for _, p := range r.Decision.Providers {
		out.Providers = append(out.Providers, r.Question.Providers[p].Name)
	}
	for _, c := range r.Clamped {
		out.Clamped = append(out.Clamped, c.String())
	}
	return out
}

// text is a decision on one line.
func (r *routedJSON) text() string {
	if r.Error != nil {
		return r.Error.Message
	}
	parts := []string{fmt.Sprintf("alternative %d", r.Alternative)}
	if r.Recompute {
		parts = []string{"nothing moves, the destination computes the tokens itself"}
	}
	add := func(has bool, format string, args ...any) {
		if has {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(len(r.Providers) > 0, "over %s", strings.Join(r.Providers, ", then "))
	add(r.Mode != "", "%s", r.Mode)
	add(r.Chunk > 0, "chunks of %d bytes", r.Chunk)
	add(r.Streams > 0, "%d streams", r.Streams)
	add(r.Priority > 0, "priority %d", r.Priority)
	return strings.Join(parts, ", ")
}

func (a *app) policyExplain(ctx context.Context, flags policyFlags, files []string, tokens int) error {
	var err error
	if flags.name, err = mine(flags.name); err != nil {
		return err
	}
	w := &watch{}
	pol, err := flags.openWatched(ctx, w.see)
	if err != nil {
		return err
	}
	defer pol.close()
	limits := pol.box.Limits()
	return a.eachFile(ctx, files, func(name string) error {
		f, err := pairFile(name)
		if err != nil {
			return err
		}
		d, err := pol.decide(ctx, f)
		if err != nil {
			return err
		}
		out := explainedJSON{
			File: name, Policy: pol.json(), Layouts: d.Layouts, Alternatives: len(d.Answer.Alternatives), Alternative: d.Alternative,
			Runs: len(d.Proven.Plan().Runs), Proof: &proofJSON{true, d.Proven.Elements()}, Reasons: d.Reasons,
		}
		for _, e := range d.Proven.Plan().Edges {
			if key := (edgeJSON{e.Source, e.Destination}); !slices.Contains(out.Edges, key) {
				out.Edges = append(out.Edges, key)
			}
		}
		if slices.Contains(pol.p.Hooks(), "route") {
			out.Route = routeOf(ctx, d, pol, tokens)
		}
		out.Cost = w.costs(limits)
		if a.json() {
			return a.emit(out)
		}
		a.explainedDecision(&out, d, pol)
		return nil
	})
}

// explainedDecision prints a decision for people.
func (a *app) explainedDecision(out *explainedJSON, d *decision.Decision, pol *chooser) {
	fmt.Fprintf(a.out, "%s: policy %s %s decides\n", out.File, pol.p.Name(), pol.p.Version())
	for _, of := range slices.Sorted(maps.Keys(d.Layouts)) {
		fmt.Fprintf(a.out, "layout of %s: %s\n", of, d.Layouts[of])
		if why := d.Reasons[of]; why != "" {
			fmt.Fprintf(a.out, "  because %s\n", why)
		}
	}
	fmt.Fprintf(a.out, "assignments: alternative %d of %d, %d edges, %d runs, %d elements a period of %s proved\n", out.Alternative, out.Alternatives, len(out.Edges), out.Runs, out.Proof.Elements, periods(d.Pair, d.Proven.Plan()))
	if why := d.Reasons["assignments"]; why != "" {
		fmt.Fprintf(a.out, "  because %s\n", why)
	}
	if r := out.Route; r != nil {
		fmt.Fprintf(a.out, "transfer: %s\n", r.text())
		if r.Reason != "" {
			fmt.Fprintf(a.out, "  because %s\n", r.Reason)
		}
		for _, c := range r.Clamped {
			fmt.Fprintf(a.out, "  clamped: %s\n", c)
		}
	}
	fmt.Fprint(a.out, picture.Grid(d.Pair, d.Proven.Plan(), picture.Options{Width: a.width, Colour: a.colour()}))
	for _, hook := range hookNames() {
		if c, ok := out.Cost[hook]; ok {
			fmt.Fprintf(a.out, "%s: %d of %d fuel, %v\n", hook, c.Fuel, c.Limit, time.Duration(c.Nanoseconds).Round(100*time.Nanosecond))
		}
	}
	if a.verbose {
		fmt.Fprintf(a.out, "policy %s\npair %s\nplan %s\n", out.Policy.Digest, d.Pair.Digest(), d.Proven.Digest())
	}
}

func policyDiffCommand(a *app) *cobra.Command {
	var flags policyFlags
	cmd := &cobra.Command{
		Use:   "diff A B PAIR...",
		Short: "shows where two policies disagree about pair files, as plans",
		Long: "diff asks two policies everything that there is to decide about each pair and shows\n" +
			"what they decide unlike: layouts, which rank feeds which with what, how a transfer\n" +
			"goes, and where one declines or fails. In which boxes they write the same moves\n" +
			"does not matter, nor do their reasons.\n\n" +
			"Exit status: 0 they agree, 1 they do not or a file is bad, 2 wrong flags.",
		Example: "  kvferry policy diff heads mine.wasm testdata/pairs/*.yaml",
		Args:    arguments(3, -1, "A, B or PAIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.policyDiff(cmd.Context(), flags, args[0], args[1], args[2:])
		},
	}
	flags.from.add(cmd)
	flags.addConfiguration(cmd)
	flags.site.add(cmd)
	return cmd
}

// decidedJSON is one of two policies.
type decidedJSON struct {
	policyJSON
	Error *refusal.Refusal `json:"error,omitempty"` // why it decides nothing
}

// diffJSON is what policy diff prints of a pair.
type diffJSON struct {
	File    string       `json:"file"`
	Same    bool         `json:"same"`
	A       decidedJSON  `json:"a"`
	B       decidedJSON  `json:"b"`
	Layouts []layoutDiff `json:"layouts,omitempty"`
	difference.Plans
	Route []fieldDiff `json:"route,omitempty"`
}

type layoutDiff struct {
	Of string `json:"of"` // "source", "destination.full"
	A  string `json:"a"`
	B  string `json:"b"`
}

type fieldDiff struct {
	Field string `json:"field"`
	A     string `json:"a"`
	B     string `json:"b"`
}

func (a *app) policyDiff(ctx context.Context, flags policyFlags, one, two string, files []string) error {
	var pols [2]*chooser
	for i, name := range []string{one, two} {
		flags.name = name
		var err error
		if pols[i], err = flags.open(ctx); err != nil {
			return err
		}
		defer pols[i].close()
	}
	differ := false
	err := a.eachFile(ctx, files, func(name string) error {
		f, err := pairFile(name)
		if err != nil {
			return err
		}
		out, err := disagree(ctx, name, pols, func(pol *chooser) (*decision.Decision, error) { return pol.decide(ctx, f) })
		if err != nil {
			return err
		}
		differ = differ || !out.Same
		if a.json() {
			return a.emit(out)
		}
		a.differs(out, one, two)
		return nil
	})
	if err == nil && differ {
		return errReported
	}
	return err
}

// disagree asks two policies the same and says where they disagree.
func disagree(ctx context.Context, name string, pols [2]*chooser, ask func(*chooser) (*decision.Decision, error)) (*diffJSON, error) {
	out := &diffJSON{File: name, A: decidedJSON{policyJSON: *pols[0].json()}, B: decidedJSON{policyJSON: *pols[1].json()}}
	var made [2]*decision.Decision
	for i, side := range []*decidedJSON{&out.A, &out.B} {
		d, err := ask(pols[i])
		if stopped := ctx.Err(); stopped != nil {
			return nil, stopped
		}
		if err != nil && refusal.Of(err).Fault != "policy" {
			return nil, err // of the pair, not of what a policy makes of it
		}
		if made[i] = d; err != nil {
			side.Error = refusal.Of(err)
		}
	}
	if made[0] == nil || made[1] == nil {
		out.Same = made[0] == nil && made[1] == nil && out.A.Error.Kind == out.B.Error.Kind
		return out, nil
	}
	for _, of := range slices.Sorted(maps.Keys(made[0].Layouts)) {
		if x, y := made[0].Layouts[of], made[1].Layouts[of]; x != y {
			out.Layouts = append(out.Layouts, layoutDiff{of, x, y})
		}
	}
	plans, err := difference.Of(made[0].Pair, made[0].Proven.Plan(), made[1].Pair, made[1].Proven.Plan())
	if err != nil {
		return nil, err
	}
	out.Plans = *plans
	if slices.Contains(pols[0].p.Hooks(), "route") || slices.Contains(pols[1].p.Hooks(), "route") {
		x, y := routeOf(ctx, made[0], pols[0], build.CostTokens), routeOf(ctx, made[1], pols[1], build.CostTokens)
		out.Route = routesDiffer(x, y)
	}
	out.Same = len(out.Layouts) == 0 && out.Plans.Same() && len(out.Route) == 0
	return out, nil
}

// routesDiffer compares two decisions about a transfer, reasons aside. Which
// alternative it is says nothing where the two have others: the plans are
// compared.
func routesDiffer(a, b *routedJSON) []fieldDiff {
	var out []fieldDiff
	add := func(field string, x, y any) {
		if s, t := fmt.Sprint(x), fmt.Sprint(y); s != t {
			out = append(out, fieldDiff{field, s, t})
		}
	}
	kind := func(r *routedJSON) string {
		if r.Error != nil {
			return r.Error.Kind
		}
		return "answered"
	}
	add("outcome", kind(a), kind(b))
	if a.Error != nil || b.Error != nil {
		return out
	}
	add("alternative", a.Alternative, b.Alternative)
	add("recompute", a.Recompute, b.Recompute)
	add("providers", strings.Join(a.Providers, ", "), strings.Join(b.Providers, ", "))
	add("mode", a.Mode, b.Mode)
	add("chunk", a.Chunk, b.Chunk)
	add("streams", a.Streams, b.Streams)
	add("priority", a.Priority, b.Priority)
	return out
}

// differs prints a comparison for people, with the names of the two as they
// were given.
func (a *app) differs(out *diffJSON, one, two string) {
	if out.Same {
		what := "the same"
		if out.A.Error != nil {
			what = "neither decides: " + out.A.Error.Message
		}
		fmt.Fprintf(a.out, "%s: %s\n", out.File, what)
		return
	}
	fmt.Fprintf(a.out, "%s: they disagree\n", out.File)
	for _, s := range []struct {
		name string
		side *decidedJSON
	}{{one, &out.A}, {two, &out.B}} {
		if s.side.Error != nil {
			fmt.Fprintf(a.out, "  %s decides nothing (%s): %s\n", s.name, s.side.Error.Kind, s.side.Error.Message)
		}
	}
	for _, l := range out.Layouts {
		fmt.Fprintf(a.out, "  layout of %s: %s chooses %s, %s %s\n", l.Of, one, l.A, two, l.B)
	}
	for _, line := range out.Lines(one, two) {
		fmt.Fprintf(a.out, "  %s\n", line)
	}
	for _, f := range out.Route {
		fmt.Fprintf(a.out, "  transfer, %s: %s decides %s, %s %s\n", f.Field, one, nothing(f.A), two, nothing(f.B))
	}
}

// nothing is what an empty choice is called.
func nothing(s string) string {
	if s == "" || s == "0" {
		return "as configured"
	}
	return s
}
