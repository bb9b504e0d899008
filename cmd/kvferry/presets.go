package main

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/kv/preset"
)

// presetJSON is one layout that has a name.
type presetJSON struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Claim   string   `json:"claim,omitempty"`
	Order   string   `json:"order"`
	Doc     string   `json:"doc"`
	Source  string   `json:"source"`
}

func (a *app) presets(all []preset.Preset) error {
	if a.json() {
		out := []presetJSON{}
		for _, p := range all {
			out = append(out, presetJSON{p.Name, p.Aliases, p.Spec.Name, p.Spec.Text(), p.Doc, p.Source})
		}
		return a.emit(map[string]any{"presets": out})
	}
	for _, p := range all {
		fmt.Fprintf(a.out, "%s\n  order %s\n  %s\n", p.Name, p.Spec.Text(), p.Doc)
		if len(p.Aliases) > 0 {
			fmt.Fprintf(a.out, "  also %s\n", strings.Join(p.Aliases, ", "))
		}
		if a.verbose {
			fmt.Fprintf(a.out, "  source: %s\n", p.Source)
		}
	}
	return nil
}
