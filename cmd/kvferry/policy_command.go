package main

import "github.com/spf13/cobra"

// policyCommand is what authors and operators do with policies.
func policyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "write, check, compare and ship policies", Args: cobra.ArbitraryArgs, RunE: verbNeeded}
	cmd.AddCommand(policyAuthorCommands(a)...)
	cmd.AddCommand(policyShipCommands(a)...)
	return cmd
}
