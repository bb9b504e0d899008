package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/policy/configuration"
	"github.com/kvferry/kvferry/runtime/policy/trial"
)

func policyTestCommand(a *app) *cobra.Command {
	var flags policyFlags
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "runs the author's own cases: tests/*.yaml of a policy's folder",
		Long: "test asks the policy the questions of the cases in tests/*.yaml and compares what\n" +
			"it decides with what each expects: edges, layouts, alternatives, a reason to\n" +
			"decline, fuel, or how a transfer goes. Assignments are proved as well. A case that\n" +
			"fails is exit status 1.",
		Example: "  cd mine && kvferry policy test\n  kvferry policy test mine --policy other.wasm -o json",
		Args:    arguments(0, 1, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.name == "" {
				flags.name = folder(args)
			}
			return a.policyTest(cmd.Context(), folder(args), flags)
		},
	}
	cmd.Flags().StringVar(&flags.name, "policy", "", "the policy that is tested: "+policyForms+" (default: that of the folder)")
	flags.from.add(cmd)
	return cmd
}

// caseJSON is what policy test prints of a case.
type caseJSON struct {
	File string `json:"file"`
	trial.Result
}

func (a *app) policyTest(ctx context.Context, dir string, flags policyFlags) error {
	files, err := caseFiles(dir)
	if err != nil {
		return err
	}
	// One that cannot be opened is told once, not with every file.
	pol, err := flags.open(ctx)
	if err != nil {
		return err
	}
	pol.close()
	passed, failed := 0, 0
	err = a.eachFile(ctx, files, func(name string) error {
		text, err := readAll(name, trial.MaxBytes)
		if err != nil {
			return err
		}
		cases, err := trial.Parse(name, text)
		if err != nil {
			return err
		}
		for i := range cases {
			r, err := a.policyCase(ctx, name, &cases[i], flags)
			if err != nil {
				return err
			}
			if r.OK {
				passed++
			} else {
				failed++
			}
			if a.json() {
				if err := a.emit(caseJSON{name, r}); err != nil {
					return err
				}
				continue
			}
			word := "ok"
			if !r.OK {
				word = "FAILED"
			}
			fmt.Fprintf(a.out, "%s:%d: %s: %s (%d fuel)\n", name, r.Line, word, r.Name, r.Fuel)
			for _, wrong := range r.Wrong {
				fmt.Fprint(a.out, indent(wrong+"\n"))
			}
			if a.verbose && r.Reason != "" {
				fmt.Fprintf(a.out, "  because %s\n", r.Reason)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !a.json() {
		fmt.Fprintf(a.out, "%d cases passed, %d failed\n", passed, failed)
	}
	if failed > 0 {
		return errReported
	}
	return nil
}

// policyCase reads a case's files and runs it, with a policy that remembers no
// answers: each case spends what it costs.
func (a *app) policyCase(ctx context.Context, file string, c *trial.Case, flags policyFlags) (trial.Result, error) {
	w := &watch{}
	pol, err := flags.openWatched(ctx, w.see)
	if err != nil {
		return trial.Result{}, err
	}
	defer pol.close()
	beside := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(file), filepath.FromSlash(name))
	}
	s := trial.Setting{Fuel: w.fuel}
	if s.Pair, err = pairFile(beside(c.Pair)); err != nil {
		return trial.Result{}, err
	}
	if c.Site != "" {
		if s.Site, err = (policyFlags{site: siteFlag{beside(c.Site)}}).read(); err != nil {
			return trial.Result{}, err
		}
	}
	if c.Configuration != nil {
		text, err := json.Marshal(c.Configuration)
		if err != nil {
			return trial.Result{}, fmt.Errorf("%s:%d: configuration: %w", file, c.Line, err)
		}
		if s.Site.Configuration, err = configuration.Canonical(fmt.Sprintf("%s:%d: configuration", file, c.Line), text); err != nil {
			return trial.Result{}, err
		}
	}
	r, err := c.Run(ctx, pol.p, s)
	if err != nil {
		return r, fmt.Errorf("%s:%d: %w", file, c.Line, err)
	}
	return r, nil
}
