package main

import "github.com/spf13/cobra"

// policyCommand is what authors and operators do with policies.
func policyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "write, check, compare, ship and run policies", Args: cobra.ArbitraryArgs, RunE: verbNeeded}
	cmd.AddCommand(policyAuthorCommands(a)...)
	cmd.AddCommand(policyShipCommands(a)...)
	cmd.AddCommand(policyLifeCommands(a)...)
	return cmd
}
