package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/runtime/agent"
)

// Print writes the result for a person. colour paints the plan's picture.
func (r *Result) Print(w io.Writer, c Config, colour bool) error {
	fmt.Fprintf(w, "prefill (%s)  ->  decode (%s)\n", c.Source, c.Destination)
	shape := ""
	if c.Shape != tinyllm.Llama {
		shape = "model shape " + r.Shape + ", "
	}
	fmt.Fprintf(w, "%stransport %s, mode %s, processes %v\n", shape, r.Transport, r.Mode, r.Processes)
	fmt.Fprintf(w, "policy %s %s, %d calls\n", r.Policy.Name, short(r.Policy.Digest), r.Policy.Calls)
	if len(r.Policy.Keys) > 0 {
		fmt.Fprintf(w, "  from %s, signed by %s\n", r.Policy.Source, strings.Join(r.Policy.Keys, ", "))
	} else if r.Policy.Source != "" && r.Policy.Source != "built-in" {
		fmt.Fprintf(w, "  from %s\n", r.Policy.Source)
	}
	for _, l := range []struct{ engine, layout, reason string }{
		{"prefill", r.Layouts.Source, r.Layouts.SourceReason},
		{"decode", r.Layouts.Destination, r.Layouts.DestinationReason},
	} {
		fmt.Fprintf(w, "  %s keeps its cache as %s (%s)\n", l.engine, l.layout, l.reason)
	}
	fmt.Fprintf(w, "layouts %s, %s\n", r.Layout, map[bool]string{true: "and probed: decode's kernel reads what prefill's wrote", false: "not probed"}[r.Probed])
	fmt.Fprintf(w, "plan %s, %d runs, proved on both sides\n\n", short(r.Plan.Digest), r.Plan.Runs)
	picture := r.Plan.Picture
	if colour {
		picture = r.Plan.Coloured
	}
	fmt.Fprintln(w, picture)

	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "request\tprompt\tbytes\tpieces\ttime\tGB/s\ttokens equal to the unsplit run\t")
	for _, q := range r.Requests {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2f ms\t%.3g\t%s\t\n", q.ID, q.PromptTokens, q.Bytes, q.Pieces, q.Seconds*1e3, rate(q), yes(q.Equal))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, q := range r.Requests {
		if q.Route != nil {
			routed(w, q.ID, q.Route)
		}
	}
	if r.Integrity != "off" {
		n := int64(0)
		for _, q := range r.Requests {
			n += q.Digests
		}
		fmt.Fprintf(w, "integrity %s: %d digests of the source and the destination are equal\n", r.Integrity, n)
	}
	fmt.Fprintf(w, "control: cache cleared before decode, tokens differ: %s\n", yes(!r.Control.Equal))
	if n := r.Rounds; n != nil {
		fmt.Fprintf(w, "%d rounds: %d requests moved, %d did not\n", n.Rounds, n.Moved, n.Failed)
	}
	if r.Life != nil {
		return r.Life.print(w)
	}
	return nil
}

// print says which generations answered how many calls.
func (l *Life) print(w io.Writer) error {
	fmt.Fprintf(w, "policies of %s, run by process %d:\n", l.Store, l.Process)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, g := range l.Status.Generations {
		c := g.Counters
		fmt.Fprintf(t, "  generation %d\t%s\t%s %s\t%d calls\t%d answers\t%d faults\t%d by the fallback\n", g.ID, g.Stage, g.Name, g.Version, c.Calls, c.Answers, c.Faults(), c.Replaced)
	}
	return t.Flush()
}

// routed says what a policy decided about a request, and what became of that.
func routed(w io.Writer, id string, r *agent.Route) {
	if r.Fault != "" {
		fmt.Fprintf(w, "%s: as configured, since the policy failed: %s\n", id, r.Fault)
		return
	}
	reason := ""
	if r.Reason != "" {
		reason = " (" + r.Reason + ")"
	}
	fmt.Fprintf(w, "%s: alternative %d, %d proved, over %s%s\n", id, r.Alternative, r.Proved, strings.Join(r.Transports, ", "), reason)
	for _, more := range slices.Concat(r.Clamped, r.Unmet, r.Refused) {
		fmt.Fprintf(w, "    %s\n", more)
	}
}

func rate(q RequestResult) float64 {
	if q.Seconds == 0 {
		return 0
	}
	return float64(q.Bytes) / q.Seconds / 1e9
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

// short is a digest's beginning, enough to compare by eye.
func short(digest string) string {
	if len(digest) > 19 {
		return digest[:19]
	}
	return digest
}

// Print writes what the unchecked replay showed for a person.
func (s *Seed) Print(w io.Writer) error {
	fmt.Fprintf(w, "the seed case, unchecked: both caches are %s, the copies were computed as if both were %s\n", s.Layouts.Source, s.Assumed.Source)
	fmt.Fprintln(w, "every length matches, no transfer reports an error, and this is what decode reads:")
	for _, r := range s.Requests {
		fmt.Fprintf(w, "  %s  expected %v\n", r.ID, r.Expected)
		fmt.Fprintf(w, "  %s       got %v\n", r.ID, r.Tokens)
	}
	_, err := fmt.Fprintf(w, "%d of %d elements of the moved blocks are wrong: %.2f %%\n", s.Wrong, s.Elements, s.Percent)
	return err
}
