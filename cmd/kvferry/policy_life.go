package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/generation"
)

// policyLifeCommands change which policies a process asks, while it runs or
// before it starts.
func policyLifeCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		policyLoadCommand(a), policyListCommand(a), policyShadowCommand(a), policyCanaryCommand(a), policyActivateCommand(a),
		policyPromoteCommand(a), policyDropCommand(a), policyRollbackCommand(a), policyHistoryCommand(a), policyDifferencesCommand(a), policyRecoverCommand(a),
	}
}

// lifeFlags say which store is meant.
type lifeFlags struct{ store string }

func (f *lifeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.store, "store", "", "the `FOLDER` in which a process keeps its policies")
}

func (f *lifeFlags) check() error {
	if f.store == "" {
		return usagef("--store is missing: the folder in which a process keeps its policies (demo --policy-store)")
	}
	return nil
}

// moduleFlags say what a module from elsewhere needs to be let in.
type moduleFlags struct {
	lifeFlags
	from      originFlags
	downgrade bool
}

func (f *moduleFlags) add(cmd *cobra.Command) {
	f.lifeFlags.add(cmd)
	f.from.add(cmd)
	cmd.Flags().BoolVar(&f.downgrade, "allow-downgrade", false, "let in a lower version of the policy that is active")
}

// shareFlags are a canary's.
type shareFlags struct {
	percent float64
	by      string
}

func (f *shareFlags) add(cmd *cobra.Command, percent float64, what string) {
	cmd.Flags().Float64Var(&f.percent, "percent", percent, what)
	cmd.Flags().StringVar(&f.by, "by", string(generation.ByRequest), "what the canary is chosen by: request (each transfer by its request) or pair (all that is asked about two engines)")
}

func (f *shareFlags) check() error {
	if !(f.percent > 0 && f.percent <= 100) {
		return usagef("--percent %v: want more than 0 and at most 100", f.percent)
	}
	if by := generation.By(f.by); by != generation.ByRequest && by != generation.ByPair {
		return usagef("--by %q: want %s or %s", f.by, generation.ByRequest, generation.ByPair)
	}
	return nil
}

// lifeJSON is what the commands print.
type lifeJSON struct {
	Where string `json:"where"` // "live" or "at rest"
	*control.Answer
}

func where(live bool) string {
	if live {
		return "live"
	}
	return "at rest"
}

// told is an answer in output.
func told(out *control.Answer) lifeJSON { return lifeJSON{where(out.Live), out} }

// whereText says for a person where something happened.
func whereText(out *control.Answer) string {
	if out.Live {
		return fmt.Sprintf("live, process %d", out.Process)
	}
	return "at rest: no process runs on the store, the next one begins with it"
}

// changed prints what became of a change.
func (a *app) changed(out *control.Answer, what string) error {
	if a.json() {
		return a.emit(told(out))
	}
	_, err := fmt.Fprintf(a.out, "generation %d %s (%s)\n", out.Generation, what, whereText(out))
	return err
}

// send has a request done that opens no module here.
func send(ctx context.Context, store string, q *control.Request) (*control.Answer, error) {
	return control.Send(ctx, store, q, generation.Options{})
}

// load lets a module into a store.
func (f *moduleFlags) load(ctx context.Context, name string) (*control.Answer, error) {
	found, err := f.from.resolve(ctx, name)
	var usage *usageError
	if errors.As(err, &usage) {
		return nil, usagef("MODULE %s", strings.TrimPrefix(usage.Error(), "--policy "))
	} else if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(found.wasm)
	if err != nil {
		return nil, err
	}
	defer box.Close()
	q := &control.Request{Verb: control.Load, Source: found.Source, Keys: found.Keys, AllowDowngrade: f.downgrade, Module: found.wasm}
	out, err := control.Send(ctx, f.store, q, generation.Options{Policy: box.Policy()})
	var low *generation.DowngradeError
	if errors.As(err, &low) {
		return nil, &hint{err, "--allow-downgrade does"}
	}
	return out, err
}

// generation is the number that an argument stands for: it is one, or a module
// that is let in first.
func (f *moduleFlags) generation(ctx context.Context, arg string) (uint64, error) {
	if id, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return id, nil
	}
	out, err := f.load(ctx, arg)
	if err != nil {
		return 0, err
	}
	return out.Generation, nil
}

func policyLoadCommand(a *app) *cobra.Command {
	var flags moduleFlags
	cmd := &cobra.Command{
		Use:   "load MODULE --store DIR",
		Short: "lets a policy into a store, where it waits",
		Long: "load examines a module as policy check does in short, keeps it in the store and gives\n" +
			"it a number, its generation. It is asked nothing before shadow, canary or activate.\n" +
			"A lower version of the active policy is refused. A module that is in the store\n" +
			"already is the generation that it is.",
		Example: "  kvferry policy load mine.wasm --store /var/lib/kvferry/decode\n  kvferry policy load oci://registry.example/policies/mine@sha256:... --trust keys.yaml --store DIR",
		Args:    arguments(1, 1, "MODULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			out, err := flags.load(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.changed(out, "is "+string(out.Stage))
		},
	}
	flags.add(cmd)
	return cmd
}

// staged is a command that puts a generation, or a module, to a stage.
func staged(a *app, verb control.Verb, share *shareFlags, cmd *cobra.Command, what string) *cobra.Command {
	var flags moduleFlags
	cmd.Args = arguments(1, 1, "ID or MODULE")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		q := &control.Request{Verb: verb}
		if share != nil {
			if !cmd.Flags().Changed("percent") {
				return usagef("--percent is missing: the share of the questions that it answers")
			}
			if err := share.check(); err != nil {
				return err
			}
			q.Percent, q.By = share.percent, generation.By(share.by)
		}
		var err error
		if q.Generation, err = flags.generation(cmd.Context(), args[0]); err != nil {
			return err
		}
		out, err := send(cmd.Context(), flags.store, q)
		if err != nil {
			return err
		}
		if share != nil {
			return a.changed(out, fmt.Sprintf("is the canary with %v per cent by %s", share.percent, share.by))
		}
		return a.changed(out, what)
	}
	flags.add(cmd)
	return cmd
}

func policyShadowCommand(a *app) *cobra.Command {
	return staged(a, control.Shadow, nil, &cobra.Command{
		Use:   "shadow ID|MODULE --store DIR",
		Short: "asks a policy what the active one is asked, and compares; its answers go nowhere",
		Long: "shadow puts a generation beside the active one. Whatever the active one is asked, it\n" +
			"is asked too, later and holding up nobody; its plans are proved, and where its\n" +
			"answers differ they are counted and shown by policy differences. A MODULE is let\n" +
			"in first.",
		Example: "  kvferry policy shadow mine.wasm --store DIR\n  kvferry policy shadow 3 --store DIR",
	}, "is in shadow")
}

func policyCanaryCommand(a *app) *cobra.Command {
	share := new(shareFlags)
	cmd := staged(a, control.Canary, share, &cobra.Command{
		Use:   "canary ID|MODULE --percent P --store DIR",
		Short: "gives a policy a share of the questions, or changes its share",
		Long: "canary gives a generation P per cent of the questions. Which, depends on its digest\n" +
			"and on the request (--by request) or the two engines (--by pair), so that all\n" +
			"processes choose alike and a pair or request stays with its policy. Assignments\n" +
			"have no request: --by request chooses them by their pair. A MODULE is let in first.",
		Example: "  kvferry policy canary 3 --percent 5 --store DIR\n  kvferry policy canary 3 --percent 50 --by pair --store DIR",
	}, "")
	share.add(cmd, 0, "the share of the questions that it answers, above 0 and at most 100")
	return cmd
}

func policyActivateCommand(a *app) *cobra.Command {
	return staged(a, control.Activate, nil, &cobra.Command{
		Use:   "activate ID|MODULE --store DIR",
		Short: "puts a policy in charge",
		Long: "activate lets a generation answer from now on. The one before answers what it was\n" +
			"asked, is closed, and is what a rollback goes back to. A MODULE is let in first.",
		Example: "  kvferry policy activate 3 --store DIR\n  kvferry policy activate rails --store DIR",
	}, "is active")
}

func policyPromoteCommand(a *app) *cobra.Command {
	var flags lifeFlags
	var share shareFlags
	cmd := &cobra.Command{
		Use:   "promote [ID] --store DIR",
		Short: "takes a policy one stage further: loaded, shadow, canary, active",
		Long: "promote takes a candidate to its next stage: the generation that is named, else the\n" +
			"canary, else the one in shadow, else the only one that is loaded.",
		Example: "  kvferry policy promote --store DIR\n  kvferry policy promote 3 --percent 10 --store DIR",
		Args:    arguments(0, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(flags.check()); err != nil {
				return err
			}
			if err := share.check(); err != nil {
				return err
			}
			q := &control.Request{Verb: control.Promote, Percent: share.percent, By: generation.By(share.by)}
			if len(args) > 0 {
				var err error
				if q.Generation, err = number64(args[0]); err != nil {
					return err
				}
			}
			out, err := send(cmd.Context(), flags.store, q)
			if err != nil {
				return err
			}
			what := map[generation.Stage]string{generation.Shadow: "is in shadow", generation.Active: "is active"}[out.Stage]
			if out.Stage == generation.Canary {
				what = fmt.Sprintf("is the canary with %v per cent by %s", share.percent, share.by)
			}
			return a.changed(out, what)
		},
	}
	flags.add(cmd)
	share.add(cmd, 5, "the share of the questions, where it becomes the canary")
	return cmd
}

// number64 is the generation that an argument names.
func number64(arg string) (uint64, error) {
	id, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || id == 0 {
		return 0, usagef("%q is no generation: want its number, which policy list shows", arg)
	}
	return id, nil
}

func policyDropCommand(a *app) *cobra.Command {
	var flags lifeFlags
	cmd := &cobra.Command{
		Use:     "drop ID --store DIR",
		Short:   "takes out a policy that is not active",
		Long:    "drop closes a generation that is loaded, in shadow or the canary. Calls that it has\ncome to their end.",
		Example: "  kvferry policy drop 3 --store DIR",
		Args:    arguments(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			id, err := number64(args[0])
			if err != nil {
				return err
			}
			out, err := send(cmd.Context(), flags.store, &control.Request{Verb: control.Drop, Generation: id})
			if err != nil {
				return err
			}
			return a.changed(out, "is dropped")
		},
	}
	flags.add(cmd)
	return cmd
}

func policyRollbackCommand(a *app) *cobra.Command {
	var flags lifeFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "rollback --store DIR",
		Short: "puts the policy back in charge that was active before",
		Long: "rollback opens the last good policy again, from the store, as a generation of its\n" +
			"own, and lets it answer. It can be done once: then there is none to go back to\n" +
			"before another one was activated.",
		Example: "  kvferry policy rollback --store DIR --reason \"transfers take twice as long\"",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			out, err := send(cmd.Context(), flags.store, &control.Request{Verb: control.Rollback, Reason: reason})
			if err != nil {
				return err
			}
			return a.changed(out, "is active: the last good policy, again")
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "an operator's command", "what the history says")
	return cmd
}

func policyHistoryCommand(a *app) *cobra.Command {
	var flags lifeFlags
	q := &control.Request{Verb: control.History}
	cmd := &cobra.Command{
		Use:   "history --store DIR",
		Short: "shows every change of a store's policies, and why",
		Long: "history shows the changes that the store has kept, oldest first, those of earlier\n" +
			"processes too. --follow goes on with what happens, faults, differences and costly\n" +
			"answers included, one a second and generation at most.",
		Example: "  kvferry policy history -n 20 --store DIR\n  kvferry policy history --follow --store DIR -o json",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if q.Last < 0 {
				return usagef("-n %d: want 0 (all) or more", q.Last)
			}
			q.Events = func(e generation.Event) error {
				if err := a.event(e); err != nil {
					return err
				}
				return a.out.Flush()
			}
			out, err := send(cmd.Context(), flags.store, q)
			if err != nil || q.Follow && out.Live {
				return err
			}
			if q.Follow {
				return nil
			}
			for _, e := range out.Events {
				if err := a.event(e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVarP(&q.Last, "last", "n", 0, "only the last so many changes; 0: all")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "and go on with what happens")
	return cmd
}

// event prints one event.
func (a *app) event(e generation.Event) error {
	if a.json() {
		return a.emit(e)
	}
	line := fmt.Sprintf("%s  %-11s", e.At.Format(time.RFC3339), e.Kind)
	if e.Generation > 0 {
		line += fmt.Sprintf("  generation %d", e.Generation)
	}
	line += fmt.Sprintf("  %s %s", e.Name, e.Version)
	switch {
	case e.From != "" && e.To != "":
		line += fmt.Sprintf("  %s -> %s", e.From, e.To)
	case e.To != "":
		line += fmt.Sprintf("  -> %s", e.To)
	}
	if e.Percent > 0 {
		line += fmt.Sprintf(" %v%% by %s", e.Percent, e.By)
	}
	if e.Fault != "" {
		line += "  fault: " + string(e.Fault)
	}
	if e.Count > 1 {
		line += fmt.Sprintf("  %d times", e.Count)
	}
	if e.Reason != "" {
		line += "  (" + e.Reason + ")"
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}
