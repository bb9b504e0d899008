package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/wasm/host"
)

func policyBenchCommand(a *app) *cobra.Command {
	var flags policyFlags
	calls := 500
	cmd := &cobra.Command{
		Use:   "bench PAIR...",
		Short: "measures the hooks of a policy over pair files, beside the built-in " + defaultPolicy,
		Long: "bench asks a policy the questions of each pair again and again, past the cache\n" +
			"that answers are kept in, and shows what a call spends and takes, beside the\n" +
			"built-in policy " + defaultPolicy + " in the same run. Trust the ratio, not the time.",
		Example: "  cd mine && kvferry policy bench ../testdata/pairs/seed.yaml ../testdata/pairs/llama-70b.yaml",
		Args:    arguments(1, -1, "PAIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if calls < 1 || calls > 1_000_000 {
				return usagef("--calls %d: want 1 to 1000000", calls)
			}
			return a.policyBench(cmd.Context(), flags, args, calls)
		},
	}
	flags.addMine(cmd)
	cmd.Flags().IntVar(&calls, "calls", calls, "`N` calls of each question")
	return cmd
}

// benchedJSON is what policy bench prints of a hook and a pair.
type benchedJSON struct {
	File     string     `json:"file"`
	Hook     string     `json:"hook"`
	Question string     `json:"question"` // "remap", "select_layout of source"
	Calls    int        `json:"calls"`
	Policy   policyJSON `json:"policy"`
	Outcome  string     `json:"outcome"` // "ok", or why there is no answer
	Fuel     uint64     `json:"fuel"`
	Limit    uint64     `json:"fuel_limit"`
	Median   int64      `json:"median_ns"`
	P99      int64      `json:"p99_ns"`
	// Of the built-in policy; zero where it does not have the hook.
	HeadsFuel   uint64  `json:"heads_fuel"`
	HeadsMedian int64   `json:"heads_median_ns"`
	Ratio       float64 `json:"ratio"` // of the medians
}

// asked is a question of a pair, encoded.
type asked struct {
	hook, name string
	in         []byte
	candidates int
}

// questionsOf are the questions that a pair asks a policy: those about layouts
// with nothing decided, and that about assignments with the first layouts.
func questionsOf(f *pairfile.File, site decision.Site) ([]asked, error) {
	var out []asked
	for _, of := range decision.Offers(f) {
		q := decision.Question(f, of, nil)
		q.Providers, q.Configuration = site.Providers, site.Configuration
		in, err := q.Input()
		if err != nil {
			return nil, err
		}
		out = append(out, asked{"select_layout", "select_layout of " + of.Name(f), in.Encode(), len(q.Engine.Candidates)})
	}
	pair, _, err := f.Pair(func(string, int) (int, error) { return 0, nil })
	if err != nil {
		return nil, err
	}
	in, err := policy.RemapQuestion{Pair: pair, Source: site.Source, Destination: site.Destination, Providers: site.Providers, Edges: site.Edges, Configuration: site.Configuration}.Input()
	if err != nil {
		return nil, err
	}
	return append(out, asked{"remap", "remap", in.Encode(), 0}), nil
}

func (a *app) policyBench(ctx context.Context, flags policyFlags, files []string, calls int) error {
	var err error
	if flags.name, err = mine(flags.name); err != nil {
		return err
	}
	site, err := flags.read()
	if err != nil {
		return err
	}
	found, err := flags.from.resolve(ctx, flags.name)
	if err != nil {
		return err
	}
	wasm := found.wasm
	heads, ok := policies.Get(defaultPolicy)
	if !ok {
		return fmt.Errorf("policy %s is not built in", defaultPolicy)
	}
	box, err := sandbox.Open(wasm)
	if err != nil {
		return err
	}
	defer box.Close()
	var guests [2]*guest
	for i, module := range [][]byte{wasm, heads} {
		if guests[i], err = openGuest(ctx, module, box); err != nil {
			return err
		}
		defer guests[i].close()
	}
	return a.eachFile(ctx, files, func(name string) error {
		f, err := pairFile(name)
		if err != nil {
			return err
		}
		questions, err := questionsOf(f, site)
		if err != nil {
			return err
		}
		for _, q := range questions {
			if !slices.Contains(guests[0].p.Manifest().Hooks, q.hook) {
				continue
			}
			a.step("%s: %s", name, q.name)
			row, err := benched(ctx, guests, q, calls)
			a.step("")
			if err != nil {
				return err
			}
			row.File = name
			if a.json() {
				if err := a.emit(row); err != nil {
					return err
				}
				continue
			}
			us := func(ns int64) string { return fmt.Sprintf("%.1f us", float64(ns)/1e3) }
			fmt.Fprintf(a.out, "%s: %s: %d of %d fuel, median %s, p99 %s; %s: %d fuel, median %s; %.2f times\n",
				name, q.name, row.Fuel, row.Limit, us(row.Median), us(row.P99), defaultPolicy, row.HeadsFuel, us(row.HeadsMedian), row.Ratio)
			if row.Outcome != "ok" {
				fmt.Fprintf(a.out, "  %s\n", row.Outcome)
			}
		}
		return nil
	})
}

// guest is a module that is asked past the cache of answers.
type guest struct {
	p      *host.Policy
	limits host.Options
	last   host.Call       // of the last question, without its messages
	keep   func(host.Call) // sees each call; nil: nobody does
}

func openGuest(ctx context.Context, wasm []byte, box *sandbox.Box) (*guest, error) {
	g := &guest{limits: box.Limits()}
	opt := g.limits
	opt.Instances = 1
	opt.Observe = func(c host.Call) {
		if g.keep != nil {
			g.keep(c)
		}
		g.last = c
		g.last.In, g.last.Out = nil, nil
	}
	var err error
	if g.p, err = host.Load(ctx, wasm, opt); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *guest) close() { _ = g.p.Close(context.Background()) } // nothing is left to lose

// ask puts one question.
func (g *guest) ask(ctx context.Context, q asked) error {
	var err error
	switch q.hook {
	case "select_layout":
		_, _, err = g.p.SelectLayout(ctx, q.in, q.candidates)
	case "remap":
		_, err = g.p.Remap(ctx, q.in)
	case "route":
		_, err = g.p.Route(ctx, q.in)
	}
	return err
}

// benched asks two guests the same, turn by turn, so that both meet the machine
// in the same state.
func benched(ctx context.Context, guests [2]*guest, q asked, calls int) (benchedJSON, error) {
	out := benchedJSON{
		Hook: q.hook, Question: q.name, Calls: calls, Outcome: "ok", Limit: guests[0].limits.FuelOf(q.hook),
		Policy: policyJSON{guests[0].p.Name(), guests[0].p.Digest().String()},
	}
	var times [2][]int64
	for n := range calls + calls/10 + 1 {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		for i, g := range guests {
			if !slices.Contains(g.p.Manifest().Hooks, q.hook) {
				continue
			}
			start := time.Now()
			err := g.ask(ctx, q)
			took := time.Since(start).Nanoseconds()
			if err != nil && i == 0 {
				out.Outcome = err.Error()
			}
			if n > calls/10 { // the first ones make instances and grow stacks
				times[i] = append(times[i], took)
			}
		}
	}
	quantile := func(list []int64, q float64) int64 {
		if len(list) == 0 {
			return 0
		}
		slices.Sort(list)
		return list[int(q*float64(len(list)-1))]
	}
	out.Fuel, out.HeadsFuel = guests[0].last.Fuel, guests[1].last.Fuel
	out.Median, out.P99, out.HeadsMedian = quantile(times[0], 0.5), quantile(times[0], 0.99), quantile(times[1], 0.5)
	if out.HeadsMedian > 0 {
		out.Ratio = float64(out.Median) / float64(out.HeadsMedian)
	}
	return out, nil
}
