package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/demo"
	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/runtime/policy/configuration"
	"github.com/kvferry/kvferry/runtime/policy/document"
)

func demoCommand(a *app) *cobra.Command {
	c := demo.Default()
	var source, destination, shape, settings string
	var from originFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "hand over KV caches between two small engines of different shape",
		Long: "A prefill engine and a decode engine, each a process of its own with a small\n" +
			"model, hand over the cache of several requests: Llama's keys and values, or with\n" +
			"--model-shape those of layers with a window, a latent, fp8 with scales, or states.\n" +
			"The tokens must equal those of an unsplit run.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Shape = tinyllm.Shape(shape)
			if c = demo.Shaped(c); c.ReplaySeed {
				c = demo.SeedCase(c)
			}
			for _, s := range []struct {
				flag, text string
				side       *demo.SideConfig
			}{{"source", source, &c.Source}, {"destination", destination, &c.Destination}} {
				if s.text == "" {
					continue
				}
				if err := s.side.Set(s.flag, s.text); err != nil {
					return asUsage(err)
				}
			}
			found, err := from.resolve(cmd.Context(), c.Policy)
			if err != nil {
				return err
			}
			c.Module, c.Origin, c.Keys = found.wasm, found.Source, found.Keys
			if settings != "" {
				if c.Settings, err = readAll(settings, document.MaxBytes); err != nil {
					return err
				}
				if _, err := configuration.Canonical(settings, c.Settings); err != nil {
					return err
				}
			}
			if c.ReplaySeed {
				return a.replaySeed(cmd, c)
			}
			return a.demo(cmd, c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&shape, "model-shape", string(c.Shape), strings.Join(tinyllm.Shapes(), ", "))
	f.IntVar(&c.Heads, "heads", c.Heads, "kv heads of the model")
	f.StringVar(&source, "source", "", "the prefill engine: `tp=2,pp=1,block=16,layout=hnd` or can=hnd,nhd; a hybrid's states: state=gdn-ds")
	f.StringVar(&destination, "destination", "", "the decode engine: `tp=4,pp=1,block=32,layout=nhd` or can=nhd")
	f.StringVar(&c.Transport, "transport", c.Transport, "loop (one process), shm or tcp")
	f.StringVar(&c.Mode, "mode", c.Mode, "pull, push, layers or chunks")
	f.StringVar(&c.Integrity, "integrity", c.Integrity, "how much of what arrived is compared with what was sent: off, sample or full")
	f.StringVar(&c.Policy, "policy", c.Policy, "the policy that decides: "+policyForms)
	f.StringVar(&settings, "policy-config", "", "the operator's configuration for the policy: a YAML `FILE`")
	from.add(cmd)
	f.StringVar(&c.Record, "record", "", "keep what the policies are asked and answer in `FILE`, for policy replay")
	f.StringVar(&c.Store, "policy-store", "", "run decode's policies on the store in `FOLDER`, so that policy load, activate and the like change them; the one that is active there decides, --policy where it is empty")
	f.StringVar(&c.Fallback, "policy-fallback", c.Fallback, "with --policy-store, who answers where a policy fails: none, last-good or built-in")
	f.IntVar(&c.Repeat, "repeat", c.Repeat, "rounds of requests")
	f.DurationVar(&c.For, "for", 0, "go on with rounds of requests for so long")
	f.IntVar(&c.Requests, "requests", c.Requests, "requests at once")
	f.IntVar(&c.Tokens, "tokens", c.Tokens, "tokens generated for each request")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of weights, prompts and block tables")
	f.BoolVar(&c.LieLayout, "lie-layout", false, "label the source's cache with a layout that its strides contradict: refused")
	f.BoolVar(&c.LieKernel, "lie-kernel", false, "let the source's kernel write another order than its strides say: refused")
	f.BoolVar(&c.ReplaySeed, "replay-seed", false, "give the proof the copies of a bug that kvferry was born from: refused")
	f.BoolVar(&c.Unchecked, "unchecked", false, "with --replay-seed: run those copies unproved and show what comes out")
	return cmd
}

// asUsage makes a demo's usage error the command's.
func asUsage(err error) error {
	var u *demo.UsageError
	if errors.As(err, &u) {
		return &usageError{u}
	}
	return err
}

func (a *app) demo(cmd *cobra.Command, c demo.Config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	result, err := demo.Run(cmd.Context(), c, []string{program, "demo-engine"}, a.stderr, a.step)
	a.step("")
	if err = asUsage(err); isUsage(err) || result == nil {
		return err
	}
	if a.json() {
		out := struct {
			*demo.Result
			Error *refusal.Refusal `json:"error,omitempty"`
		}{Result: result}
		if err != nil {
			out.Error = refusal.Of(err)
		}
		if emitted := a.emit(out); emitted != nil {
			return emitted
		}
		if err != nil {
			return errReported
		}
		return nil
	}
	if len(result.Requests) > 0 {
		if printed := result.Print(a.out, c, a.colour()); printed != nil {
			return printed
		}
	}
	return err
}

func isUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

func (a *app) replaySeed(cmd *cobra.Command, c demo.Config) error {
	seed, err := demo.ReplaySeed(cmd.Context(), c)
	if err = asUsage(err); err != nil {
		return err
	}
	if a.json() {
		return a.emit(seed)
	}
	return seed.Print(a.out)
}

// demoEngineCommand is one of the demo's engines; the demo starts it.
func demoEngineCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo-engine",
		Short:  "one of the demo's engines, on standard input and output",
		Hidden: true,
		Args:   arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Serve(cmd.Context(), os.Stdin, os.Stdout, nil)
		},
	}
}
