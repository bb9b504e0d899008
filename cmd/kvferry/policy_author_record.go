package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/difference"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/policy/sketch"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

func policyRecordCommand(a *app) *cobra.Command {
	var flags policyFlags
	var pairs []string
	var live tapFlags
	cmd := &cobra.Command{
		Use:   "record FILE [--pairs PAIR...] | record FILE --store DIR",
		Short: "keeps what a policy is asked, about pair files or by a process, and what it answers, in a journal",
		Long: "record asks a policy everything that there is to decide about the pairs and keeps\n" +
			"questions and answers in FILE, for policy replay. A demo keeps its own with demo\n" +
			"--record.\n\n" +
			"With --store it keeps what the process that runs on the store asks its policies,\n" +
			"each question once, for as long or as many calls as --for and --calls say, or\n" +
			"until it is interrupted.\n\n" +
			"A journal holds names, shapes, ranks, where engines run, labels, and the operator's\n" +
			"configuration of the policy; no cache contents, no tokens, no block ids. Only its\n" +
			"owner may read it.",
		Example: "  kvferry policy record questions.journal --pairs a.yaml --pairs b.yaml\n  kvferry policy record questions.journal --pairs a.yaml b.yaml c.yaml --policy mine.wasm\n  kvferry policy record questions.journal --store DIR --for 30s",
		Args:    arguments(0, -1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if live.store != "" {
				if len(pairs) > 0 {
					return usagef("--pairs goes without --store: the process is asked what it is asked")
				}
				return a.tap(cmd.Context(), live, args)
			}
			if live.out != "" || live.long != 0 || live.calls != 0 {
				return usagef("--out, --for and --calls go with --store")
			}
			if len(args) == 0 {
				return usagef("FILE is missing")
			}
			// "--pairs *.yaml" is how a shell gives several.
			if pairs = append(pairs, args[1:]...); len(pairs) == 0 {
				return usagef("--pairs is missing: want the pair files to ask about")
			}
			return a.policyRecord(cmd.Context(), flags, args[0], pairs)
		},
	}
	flags.addMine(cmd)
	live.add(cmd)
	cmd.Flags().StringArrayVar(&pairs, "pairs", nil, "a `PAIR` file to ask about; more may follow")
	return cmd
}

// recordedJSON is what policy record prints.
type recordedJSON struct {
	File    string      `json:"file"`
	Policy  *policyJSON `json:"policy"`
	Entries int         `json:"entries"`
	Dropped uint64      `json:"dropped"`
}

func (a *app) policyRecord(ctx context.Context, flags policyFlags, file string, pairs []string) error {
	var err error
	if flags.name, err = mine(flags.name); err != nil {
		return err
	}
	r, err := journal.Create(file, journal.Options{})
	if err != nil {
		return err
	}
	pol, err := flags.openWatched(ctx, r.Observe)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	defer pol.close()
	err = a.eachFile(ctx, pairs, func(name string) error {
		f, err := pairFile(name)
		if err != nil {
			return err
		}
		d, err := pol.decide(ctx, f)
		if err != nil {
			if refusal.Of(err).Fault == "policy" {
				return nil // that is kept too
			}
			return err
		}
		if slices.Contains(pol.p.Hooks(), "route") {
			routeOf(ctx, d, pol, build.CostTokens)
		}
		return nil
	})
	if closed := r.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	j := r.Journal()
	out := recordedJSON{file, pol.json(), len(j.Entries), j.Dropped}
	if a.json() {
		return a.emit(out)
	}
	fmt.Fprintf(a.out, "%s: %d questions to policy %s %s\n", file, out.Entries, pol.p.Name(), pol.p.Version())
	if out.Dropped > 0 {
		fmt.Fprintf(a.out, "  %d found no room\n", out.Dropped)
	}
	return nil
}

func policyReplayCommand(a *app) *cobra.Command {
	var flags policyFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "asks another policy what a journal holds and shows where it answers otherwise",
		Long: "replay puts every question of a journal to a policy, byte for byte as it was asked,\n" +
			"and compares what it decides with what was recorded: layouts by name, assignments\n" +
			"as plans, transfers field by field, and where one declines or fails. Answers are\n" +
			"proved in a pair that is made of the question.\n\n" +
			"Exit status: 0 all the same, 1 some differ or the file is bad, 2 wrong flags.",
		Example: "  kvferry policy replay questions.journal --policy mine.wasm",
		Args:    arguments(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.policyReplay(cmd.Context(), flags, args[0])
		},
	}
	cmd.Flags().StringVar(&flags.name, "policy", "", "the policy that is asked: "+policyForms+" (default: the module of the folder one stands in, else "+defaultPolicy+")")
	flags.from.add(cmd)
	return cmd
}

// replayedJSON is what policy replay prints of a question.
type replayedJSON struct {
	File  string      `json:"file"`
	Entry int         `json:"entry"` // index in the journal
	Hook  string      `json:"hook"`
	About string      `json:"about"` // "engine prefill", "prefill -> decode"
	Times uint64      `json:"times"` // how often it was asked
	Same  bool        `json:"same"`
	A     outcomeJSON `json:"a"` // as recorded
	B     outcomeJSON `json:"b"` // of the policy that is asked now

	Layouts []layoutDiff `json:"layouts,omitempty"`
	*difference.Plans
	Route []fieldDiff `json:"route,omitempty"`
}

// outcomeJSON is what became of a question.
type outcomeJSON struct {
	Policy  string `json:"policy"`  // digest
	Outcome string `json:"outcome"` // "answered", "declined", "unsupported", "bad input", "unproved" or "fault"
	Reason  string `json:"reason,omitempty"`
	Fuel    uint64 `json:"fuel"`
}

// summaryJSON is the last line of a replay.
type summaryJSON struct {
	File      string         `json:"file"`
	Policy    *policyJSON    `json:"policy"`
	Questions int            `json:"questions"`
	Same      int            `json:"same"`
	Differ    int            `json:"differ"`
	Skipped   int            `json:"skipped"`  // of hooks that the policy does not have
	Outcomes  map[string]int `json:"outcomes"` // of the policy that is asked now
	Dropped   uint64         `json:"dropped"`  // questions that the journal had no room for
}

// verdict is an answer as far as it can be compared.
type verdict struct {
	outcomeJSON
	layout string
	pair   *plan.Pair
	proven proof.Proven
	route  *routedJSON
}

func (a *app) policyReplay(ctx context.Context, flags policyFlags, file string) error {
	j, err := journal.Read(file)
	if err != nil {
		return err
	}
	if flags.name, err = mine(flags.name); err != nil {
		return err
	}
	found, err := flags.from.resolve(ctx, flags.name)
	if err != nil {
		return err
	}
	wasm := found.wasm
	box, err := sandbox.Open(wasm)
	if err != nil {
		return err
	}
	defer box.Close()
	g, err := openGuest(ctx, wasm, box)
	if err != nil {
		return err
	}
	defer g.close()
	sum := summaryJSON{File: file, Policy: &policyJSON{g.p.Name(), g.p.Digest().String()}, Outcomes: map[string]int{}, Dropped: j.Dropped}
	for i := range j.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := &j.Entries[i]
		if !slices.Contains(g.p.Manifest().Hooks, e.Hook) {
			sum.Skipped++
			continue
		}
		out, err := replayed(ctx, g, e)
		if err != nil {
			return fmt.Errorf("%s: entry %d: %w", file, i, err)
		}
		out.File, out.Entry = file, i
		sum.Questions++
		sum.Outcomes[out.B.Outcome]++
		if out.Same {
			sum.Same++
		} else {
			sum.Differ++
		}
		if err := a.replayedOut(out); err != nil {
			return err
		}
	}
	if a.json() {
		err = a.emit(sum)
	} else {
		fmt.Fprintf(a.out, "%s: policy %s %s: %d questions, %d the same, %d differ", file, g.p.Name(), g.p.Version(), sum.Questions, sum.Same, sum.Differ)
		if sum.Skipped > 0 {
			fmt.Fprintf(a.out, ", %d of hooks that it does not have", sum.Skipped)
		}
		fmt.Fprintln(a.out)
	}
	if err == nil && sum.Differ > 0 {
		return errReported
	}
	return err
}

func (a *app) replayedOut(out *replayedJSON) error {
	if a.json() {
		return a.emit(out)
	}
	if out.Same {
		if a.verbose {
			fmt.Fprintf(a.out, "%d %s, %s: the same (%s)\n", out.Entry, out.Hook, out.About, out.B.Outcome)
		}
		return nil
	}
	fmt.Fprintf(a.out, "%d %s, %s, asked %d times:\n", out.Entry, out.Hook, out.About, out.Times)
	if out.A.Outcome != out.B.Outcome || out.A.Outcome != "answered" {
		for _, s := range []struct {
			who string
			o   *outcomeJSON
		}{{"recorded", &out.A}, {"now", &out.B}} {
			fmt.Fprintf(a.out, "  %s: %s", s.who, s.o.Outcome)
			if s.o.Reason != "" {
				fmt.Fprintf(a.out, ": %s", s.o.Reason)
			}
			fmt.Fprintln(a.out)
		}
	}
	for _, l := range out.Layouts {
		fmt.Fprintf(a.out, "  layout of %s: %s as recorded, %s now\n", l.Of, l.A, l.B)
	}
	if out.Plans != nil {
		for _, line := range out.Lines("the recorded answer", "the new one") {
			fmt.Fprintf(a.out, "  %s\n", line)
		}
	}
	for _, f := range out.Route {
		fmt.Fprintf(a.out, "  transfer, %s: %s as recorded, %s now\n", f.Field, nothing(f.A), nothing(f.B))
	}
	return nil
}

// replayed asks a guest what an entry holds and compares.
func replayed(ctx context.Context, g *guest, e *journal.Entry) (*replayedJSON, error) {
	q := asked{hook: e.Hook, in: e.Question}
	out := &replayedJSON{Hook: e.Hook, Times: e.Times}
	var of any
	switch e.Hook {
	case "select_layout":
		in, err := abi.DecodeSelectLayoutIn(e.Question)
		if err != nil {
			return nil, err
		}
		of, out.About, q.candidates = in, "engine "+abi.Reason(in.Engine), len(in.Candidates)
	default:
		// A question that no pair can be made of is compared by its bytes.
		of, _ = sketch.Question(e.Hook, e.Question)
		switch of := of.(type) {
		case *policy.RemapQuestion:
			out.About = abi.Reason(of.Pair.Source.Engine) + " -> " + abi.Reason(of.Pair.Destination.Engine)
		case *policy.RouteQuestion:
			out.About = abi.Reason(of.Source.Name) + " -> " + abi.Reason(of.Destination.Name)
		default:
			out.About = fmt.Sprintf("a question of %d bytes", len(e.Question))
		}
	}
	now := journal.Entry{Policy: g.p.Digest(), Hook: e.Hook, Question: e.Question}
	observed := host.Call{}
	g.keep = func(c host.Call) {
		observed = c
		now.Answer = slices.Clone(c.Out)
	}
	err := g.ask(ctx, q)
	g.keep = nil
	if stopped := ctx.Err(); stopped != nil {
		return nil, stopped
	}
	now.Status, now.Fuel = observed.Status, observed.Fuel
	var refused *host.Refused
	if err != nil && !errors.As(err, &refused) {
		now.Error = err.Error()
	}
	a, b := verdictOf(e, of), verdictOf(&now, of)
	out.A, out.B = a.outcomeJSON, b.outcomeJSON
	out.compare(e, &now, a, b)
	return out, nil
}

// verdictOf reads an answer: what was decided, and whether it is one that the
// question can have.
func verdictOf(e *journal.Entry, of any) *verdict {
	v := &verdict{outcomeJSON: outcomeJSON{Policy: e.Policy.String(), Outcome: "answered", Fuel: e.Fuel}}
	fault := func(err error) *verdict {
		v.Outcome, v.Reason = "fault", abi.Reason(err.Error())
		return v
	}
	if e.Error != "" {
		return fault(errors.New(e.Error))
	}
	if e.Status != abi.StatusOk {
		v.Outcome = map[uint32]string{abi.StatusDeclined: "declined", abi.StatusUnsupported: "unsupported", abi.StatusBadInput: "bad input"}[e.Status]
		if v.Outcome == "" {
			return fault(fmt.Errorf("status %d", e.Status))
		}
		v.Reason = host.Reason(e.Hook, e.Answer)
		return v
	}
	switch of := of.(type) {
	case *abi.SelectLayoutIn:
		r, err := abi.DecodeSelectLayoutOut(e.Answer)
		if err == nil && int64(r.Index) >= int64(len(of.Candidates)) {
			err = fmt.Errorf("candidate %d of %d", r.Index, len(of.Candidates))
		}
		if err != nil {
			return fault(err)
		}
		v.layout, v.Reason = abi.Reason(of.Candidates[r.Index].Name), abi.Reason(r.Reason)
	case *policy.RemapQuestion:
		r, err := abi.DecodeRemapOut(e.Answer)
		if err != nil {
			return fault(err)
		}
		v.Reason, v.pair = abi.Reason(r.Reason), of.Pair
		answer := policy.Answer{}
		for i, alternative := range r.Alternatives {
			as := policy.Assignments(alternative.Assignments)
			if err := of.Pair.ValidateAssignments(as); err != nil {
				return fault(fmt.Errorf("alternative %d: %w", i, err))
			}
			answer.Alternatives = append(answer.Alternatives, as)
		}
		if v.proven, _, err = decision.Prove(of.Pair, answer); err != nil {
			v.Outcome, v.Reason = "unproved", abi.Reason(err.Error())
		}
	case *policy.RouteQuestion:
		r, err := abi.DecodeRouteOut(e.Answer)
		if err == nil && len(r.Decisions) != 1 {
			err = fmt.Errorf("%d decisions", len(r.Decisions))
		}
		if err != nil {
			return fault(err)
		}
		d, err := of.Accept(r)
		if err != nil {
			return fault(err)
		}
		d, clamped := of.Clamp(d)
		v.route, v.Reason = routed(&decision.Routed{Question: *of, Decision: d, Clamped: clamped}), d.Reason
	}
	return v
}

// compare fills in where two answers to one question differ.
func (out *replayedJSON) compare(old, now *journal.Entry, a, b *verdict) {
	out.Same = a.Outcome == b.Outcome
	if !out.Same || a.Outcome != "answered" {
		return
	}
	switch {
	case a.layout != "" || b.layout != "":
		if out.Same = a.layout == b.layout; !out.Same {
			out.Layouts = []layoutDiff{{strings.TrimPrefix(out.About, "engine "), a.layout, b.layout}}
		}
	case a.pair != nil:
		plans, err := difference.Of(a.pair, a.proven.Plan(), b.pair, b.proven.Plan())
		if err != nil { // too large to be compared so: the boxes have to do
			out.Same = slices.Equal(old.Answer, now.Answer)
			return
		}
		if out.Same = plans.Same(); !out.Same {
			out.Plans = plans
		}
	case a.route != nil:
		out.Route = routesDiffer(a.route, b.route)
		out.Same = len(out.Route) == 0
	default: // of the question no pair could be made
		out.Same = slices.Equal(old.Answer, now.Answer)
	}
}
