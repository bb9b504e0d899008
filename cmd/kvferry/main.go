// Command kvferry moves KV caches between inference engines whose tensor
// parallelism, memory layout or block size differ, and explains what it would
// do.
//
// Exit status: 0 done; 1 refused, failed or a bad file; 2 wrong flags. With
// -o json every command prints JSON on standard output, also for a refusal.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
)

func main() {
	if status, ran := sandbox.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); ran {
		os.Exit(status)
	}
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit statuses, part of the stable interface.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what the commands of one invocation share.
type app struct {
	out    *bufio.Writer
	stderr io.Writer

	terminal bool // out is a terminal: colours, width
	progress bool // stderr is a terminal
	width    int

	output  string // -o
	verbose bool
	verify  bool // bench: a missed floor is a failure
}

// commands are the nouns. A command is a function here, so that nothing is
// registered by an import's side effect.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		demoCommand(a),
		demoEngineCommand(),
		planCommand(a),
		policyCommand(a),
		benchCommand(a),
		doctorCommand(a),
		versionCommand(a),
	}
}

// run is the whole program: it never exits, so that tests run commands in
// process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{out: bufio.NewWriterSize(stdout, 1<<16), stderr: stderr, width: 80, output: "text"}
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		a.terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			a.width = w
		}
	}
	if f, ok := stderr.(*os.File); ok {
		a.progress = term.IsTerminal(int(f.Fd()))
	}

	root := &cobra.Command{
		Use:           "kvferry",
		Short:         "moves KV caches between inference engines of different shape",
		Long:          "kvferry moves KV caches between inference engines whose tensor parallelism,\nmemory layout or block size differ. A KV cache that arrives is the KV cache\nthat was sent, or you get an error that names what differs.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          verbNeeded,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "text" && a.output != "json" {
				return usagef("-o %s: want text or json", a.output)
			}
			return nil
		},
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args to cobra
	root.SetOut(a.out)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "text", "output form: text or json")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "say everything, not one line")
	root.AddCommand(commands(a)...)

	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	code := exitDone
	switch {
	case errors.Is(err, errReported):
		code = exitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nrun '%s --help' for what it takes\n", cmd.CommandPath(), usage.err, cmd.CommandPath())
		code = exitUsage
	case err != nil:
		a.fail("", err)
		code = exitFailed
	}
	if err := a.out.Flush(); err != nil && code == exitDone {
		fmt.Fprintf(stderr, "kvferry: write output: %v\n", err)
		code = exitFailed
	}
	return code
}

// usageError is a command line that cannot be: exit status 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported ends a command whose failures are already on its output.
var errReported = errors.New("already reported")

// verbNeeded is the RunE of a command that only groups others.
func verbNeeded(cmd *cobra.Command, args []string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	slices.Sort(verbs)
	known := strings.Join(verbs, ", ")
	if len(args) > 0 {
		cmd.SuggestionsMinimumDistance = 2
		if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			return usagef("unknown command %q, did you mean %s? (known: %s)", args[0], strings.Join(s, " or "), known)
		}
		return usagef("unknown command %q (known: %s)", args[0], known)
	}
	return usagef("say what to do: one of %s", known)
}

// arguments checks the number of arguments; max < 0 is no limit.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", what)
		case most >= 0 && len(args) > most && most == 0:
			return usagef("takes no arguments, got %q", args[0])
		case most >= 0 && len(args) > most:
			return usagef("takes %d %s, got %d", most, what, len(args))
		}
		return nil
	}
}

func (a *app) json() bool { return a.output == "json" }

// colour reports whether to paint: on a terminal whose user did not say no.
func (a *app) colour() bool { return a.terminal && os.Getenv("NO_COLOR") == "" }

// emit writes v as one line of JSON.
func (a *app) emit(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// step reports progress on a terminal, on one line that the next replaces; an
// empty step erases it.
func (a *app) step(format string, args ...any) {
	if a.progress {
		fmt.Fprintf(a.stderr, "\r\x1b[K"+format, args...)
	}
}
