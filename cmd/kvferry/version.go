package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/plan/pairfile"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "what this binary is, and the versions that it speaks",
		Args:  arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := version()
			if a.json() {
				return a.emit(v)
			}
			fmt.Fprintf(a.out, "kvferry %s\n", v.Version)
			if v.Revision != "" {
				fmt.Fprintf(a.out, "revision  %s\n", v.Revision)
			}
			fmt.Fprintf(a.out, "go        %s %s/%s\npair file %s\npolicy    ABI %s\n", v.Go, v.OS, v.Arch, v.PairFile, v.ABI)
			for _, p := range v.Policies {
				fmt.Fprintf(a.out, "policy    %s %s\n", p.Name, p.Digest)
			}
			return nil
		},
	}
}

type versionJSON struct {
	Version  string       `json:"version"`
	Revision string       `json:"revision,omitempty"`
	Go       string       `json:"go"`
	OS       string       `json:"os"`
	Arch     string       `json:"arch"`
	PairFile string       `json:"pair_file"`
	ABI      string       `json:"abi"`
	Policies []policyJSON `json:"policies"` // built in
}

func version() versionJSON {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, PairFile: pairfile.Version, ABI: "kvferry/1"}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				v.Revision = s.Value + v.Revision
			case s.Key == "vcs.modified" && s.Value == "true":
				v.Revision += " modified"
			}
		}
	}
	v.Policies = builtin()
	return v
}
