package main

import "github.com/spf13/cobra"

// policyCommand is what authors do with policies.
func policyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "write, check and compare policies", Args: cobra.ArbitraryArgs, RunE: verbNeeded}
	cmd.AddCommand(policyAuthorCommands(a)...)
	return cmd
}
