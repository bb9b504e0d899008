package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/journal"
)

// tapFlags say what to record of a process that runs.
type tapFlags struct {
	lifeFlags
	out   string
	long  time.Duration
	calls int64
}

func (f *tapFlags) add(cmd *cobra.Command) {
	f.lifeFlags.add(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "with --store: the `FILE` to write, where it is not the argument")
	cmd.Flags().DurationVar(&f.long, "for", 0, "with --store: how long; without --calls, until it is interrupted or "+control.MaxRecord.String()+" are over")
	cmd.Flags().Int64Var(&f.calls, "calls", 0, "with --store: so many calls of guests at most")
}

// tap records what a process asks its policies.
func (a *app) tap(ctx context.Context, f tapFlags, args []string) error {
	switch {
	case len(args) > 1 || len(args) == 1 && f.out != "":
		return usagef("--store records into one file, which is FILE or --out")
	case len(args) == 1:
		f.out = args[0]
	case f.out == "":
		return usagef("--out is missing: the file that is written")
	}
	if f.long < 0 || f.long > control.MaxRecord || f.calls < 0 {
		return usagef("--for %v, --calls %d: want 0 or more, and at most %v", f.long, f.calls, control.MaxRecord)
	}
	// What is no journal is refused before anything is recorded.
	r, err := journal.Create(f.out, journal.Options{})
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		return err
	}
	a.step("recording")
	out, err := control.Send(ctx, f.store, &control.Request{Verb: control.Record, Calls: f.calls, For: f.long}, generation.Options{})
	a.step("")
	if err != nil {
		return err
	}
	if err := journal.Write(f.out, out.Journal); err != nil {
		return err
	}
	v := struct {
		Where   string `json:"where"`
		Process int    `json:"process"`
		File    string `json:"file"`
		Entries int    `json:"entries"`
		Dropped uint64 `json:"dropped"`
	}{where(out.Live), out.Process, f.out, len(out.Journal.Entries), out.Journal.Dropped}
	if a.json() {
		return a.emit(v)
	}
	fmt.Fprintf(a.out, "%s: %d questions that process %d asked\n", v.File, v.Entries, v.Process)
	if v.Dropped > 0 {
		fmt.Fprintf(a.out, "  %d found no room\n", v.Dropped)
	}
	return nil
}
