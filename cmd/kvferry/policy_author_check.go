package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/runtime/policy/examine"
)

func policyCheckCommand(a *app) *cobra.Command {
	var flags policyFlags
	var vectors string
	cmd := &cobra.Command{
		Use:   "check [FILE.wasm|DIR]...",
		Short: "says of each module whether it can be trusted with questions",
		Long: "check reads a module within limits, compiles it in a process of its own, and asks\n" +
			"it: general questions about pairs of every kind and about transfers, and the\n" +
			"vectors in the folder vectors/ beside it. It has to answer the same twice, in\n" +
			"fresh instances and in used ones, and on the compiler and on the interpreter;\n" +
			"every assignment is proved. A deliberate no is no fault.\n\n" +
			"Without an argument it checks the policy of the folder one stands in. Several\n" +
			"modules give one JSON object a line; a refused one is exit status 1.",
		Example: "  kvferry policy check\n  kvferry policy check mine.wasm other/ -o json",
		Args:    arguments(0, -1, "FILE.wasm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			site, err := flags.read()
			if err != nil {
				return err
			}
			return a.eachFile(cmd.Context(), args, func(name string) error {
				return a.policyCheck(cmd.Context(), name, vectors, site.Configuration)
			})
		},
	}
	flags.addConfiguration(cmd)
	cmd.Flags().StringVar(&vectors, "vectors", "", "the `FOLDER` of the module's vectors (default: vectors/ beside it)")
	return cmd
}

func (a *app) policyCheck(ctx context.Context, name, vectors string, configuration []byte) error {
	file, err := moduleFile(name)
	if err != nil {
		return err
	}
	wasm, err := readModule(file)
	if err != nil {
		return err
	}
	opt := examine.Options{Configuration: configuration}
	if vectors == "" {
		vectors = filepath.Join(filepath.Dir(file), "vectors")
	} else if _, err := os.Stat(vectors); err != nil {
		return err
	}
	if opt.Vectors, err = examine.ReadVectors(vectors); err != nil {
		return err
	}
	box, err := sandbox.Open(wasm)
	if err != nil {
		return err
	}
	defer box.Close()
	opt.Host = box.Limits()
	a.step("checking %s", file)
	r, err := examine.Module(ctx, wasm, opt)
	a.step("")
	if err != nil {
		return err
	}
	r.File = file
	switch {
	case a.json():
		err = a.emit(r)
	default:
		_, err = fmt.Fprint(a.out, r.Text())
	}
	if err == nil && !r.OK {
		return errReported
	}
	return err
}
