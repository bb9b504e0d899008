package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

func policyRecoverCommand(a *app) *cobra.Command {
	var flags lifeFlags
	cmd := &cobra.Command{
		Use:   "recover --store DIR",
		Short: "goes back to the backup of a store whose state cannot be read",
		Long: "recover sets a broken state aside under another name and goes on from its backup. A\n" +
			"policy whose module is not whole is left out; where that was the active one, the\n" +
			"last good one is active. A store that is sound stays as it is. No process may run\n" +
			"on the store.",
		Example: "  kvferry policy recover --store DIR",
		Args:    arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.policyRecover(flags.store)
		},
	}
	flags.add(cmd)
	return cmd
}

func (a *app) policyRecover(folder string) (err error) {
	if err := store.Present(folder); err != nil {
		return err
	}
	s, set, err := store.Recover(folder)
	if errors.Is(err, store.ErrLocked) {
		return blame.On(blame.Operator, fmt.Errorf("%w: a process that runs has a sound store; end it first", err))
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rest := generation.AtRest(generation.Options{Store: s})
	if set != "" {
		if err := rest.Recovered(set); err != nil {
			return err
		}
	}
	if a.json() {
		return a.emit(struct {
			Store  string          `json:"store"`
			Set    string          `json:"set_aside,omitempty"` // the broken state; empty: it was sound
			Status *control.Status `json:"status"`
		}{s.Folder(), set, control.StatusOf(rest.Status(), false)})
	}
	if set == "" {
		fmt.Fprintln(a.out, "the state is sound and stays as it is")
	} else {
		fmt.Fprintf(a.out, "the state is again what its backup says; the broken one is %s\n", set)
	}
	return printList(a.out, &control.Answer{Store: s.Folder(), Status: control.StatusOf(rest.Status(), false)})
}
