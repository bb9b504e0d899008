package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/generation"
)

func policyListCommand(a *app) *cobra.Command {
	return listing(&cobra.Command{
		Use:   "list --store DIR",
		Short: "shows a store's policies: where each stands, and what it did",
		Long: "list shows the generations of a store with their stages and, where a process runs,\n" +
			"with what they did since it started: calls, faults (traps, fuel that ran out,\n" +
			"answers that cannot be read or are not proved), answers that cost over four times\n" +
			"the built-in policy's, fuel, and calls in progress.",
		Example: "  kvferry policy list --store DIR\n  kvferry policy list --store DIR -o json",
	}, func(out *control.Answer) error {
		if a.json() {
			return a.emit(told(out))
		}
		return printList(a.out, out)
	})
}

// listing is a command that shows something of a store's list.
func listing(cmd *cobra.Command, show func(*control.Answer) error) *cobra.Command {
	var flags lifeFlags
	cmd.Args = arguments(0, 0, "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		out, err := send(cmd.Context(), flags.store, &control.Request{Verb: control.List})
		if err != nil {
			return err
		}
		return show(out)
	}
	flags.add(cmd)
	return cmd
}

// printList prints the answer to List.
func printList(w io.Writer, out *control.Answer) error {
	s := out.Status
	if out.Live {
		fmt.Fprintf(w, "%s, live: process %d, fallback %s\n", out.Store, out.Process, s.Fallback)
	} else {
		fmt.Fprintf(w, "%s, at rest: no process runs on it\n", out.Store)
	}
	if len(s.Generations) == 0 {
		fmt.Fprintln(w, "no policy is in it; policy load lets one in")
	} else if err := generationTable(w, s.Generations); err != nil {
		return err
	}
	if g := s.LastGood; g != nil {
		fmt.Fprintf(w, "a rollback goes back to %s %s, generation %d\n", g.Name, g.Version, g.ID)
	}
	if g := s.FallbackBy; g != nil {
		fmt.Fprintf(w, "where a policy fails, %s %s answers; it was asked %d times\n", g.Name, g.Version, g.Counters.Calls)
	}
	for _, g := range s.Generations {
		c := g.Counters
		if c == nil {
			continue
		}
		if c.Faults() > 0 {
			fmt.Fprintf(w, "generation %d: %d traps, %d times out of fuel, %d faulty answers, %d plans not proved; the fallback answered %d times\n", g.ID, c.Traps, c.Fuel, c.Faulty, c.Unproved, c.Replaced)
		}
		if c.Agreed+c.Differed > 0 {
			fmt.Fprintf(w, "generation %d in shadow: %d answers like the active policy's, %d others\n", g.ID, c.Agreed, c.Differed)
		}
	}
	if s.Unaudited > 0 {
		fmt.Fprintf(w, "%d answers were not compared: too many waited\n", s.Unaudited)
	}
	if s.Unwritten > 0 {
		fmt.Fprintf(w, "%d changes could not be written to the history\n", s.Unwritten)
	}
	return nil
}

// generationTable lists generations. What was not counted is a dash.
func generationTable(w io.Writer, list []control.Generation) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "generation\tstage\tpolicy\tdigest\tcalls\tfaults\tcostly\tfuel\tin flight\tsource\tkeys")
	for _, g := range list {
		stage := string(g.Stage)
		if g.Stage == generation.Canary {
			stage = fmt.Sprintf("%s %v%% by %s", stage, g.Percent, g.By)
		}
		counts := "-\t-\t-\t-\t-"
		if c := g.Counters; c != nil {
			counts = fmt.Sprintf("%d\t%d\t%d\t%d\t%d", c.Calls, c.Faults(), c.Costly, c.Spent, c.InFlight)
		}
		fmt.Fprintf(t, "%d\t%s\t%s %s\t%s\t%s\t%s\t%s\n", g.ID, stage, g.Name, g.Version, digestStart(g.Digest), counts, orDash(g.Source), orDash(strings.Join(g.Keys, ", ")))
	}
	return t.Flush()
}

// digestStart is a digest's beginning, enough to compare by eye.
func digestStart(d string) string { return d[:min(len(d), 19)] }

func policyDifferencesCommand(a *app) *cobra.Command {
	return listing(&cobra.Command{
		Use:   "differences --store DIR",
		Short: "shows where the policy in shadow answered otherwise than the active one",
		Long: "differences shows the last questions to which a generation in shadow gave another\n" +
			"answer than the active one, compared by what is meant: plans by which source rank\n" +
			"fills which bytes, layouts by name. A process that ended has forgotten them; what\n" +
			"differs is in the log.",
		Example: "  kvferry policy differences --store DIR",
	}, func(out *control.Answer) error {
		for _, d := range out.Status.Differences {
			var err error
			if a.json() {
				err = a.emit(d)
			} else {
				_, err = fmt.Fprintf(a.out, "%s, %s: generation %d %s (generation %d)\n", d.Hook, d.About, d.Candidate, d.Text, d.Active)
			}
			if err != nil {
				return err
			}
		}
		if len(out.Status.Differences) == 0 && !a.json() {
			fmt.Fprintf(a.out, "none (%s)\n", where(out.Live))
		}
		return nil
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
