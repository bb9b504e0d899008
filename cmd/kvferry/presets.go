package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
)

// presetJSON is one layout that has a name.
type presetJSON struct {
	Name       string   `json:"name"`
	Aliases    []string `json:"aliases,omitempty"`
	Kind       string   `json:"kind"` // "attention", "latent", "quantised" or "state"
	Claim      string   `json:"claim,omitempty"`
	Order      string   `json:"order"`
	Components []string `json:"components,omitempty"` // that a group must have, where the order names any
	Bits       []int64  `json:"bits,omitempty"`       // sizes that an element may have, where not any
	Doc        string   `json:"doc"`
	Source     string   `json:"source"`
}

// kinds are the sorts of caches that presets are made for, in the order in
// which they are listed.
var kinds = [...]struct{ name, title string }{
	{"attention", "Attention: K and V of each token and head"},
	{"latent", "Latents: rows without heads (MLA, sparse indexers)"},
	{"quantised", "Quantised: values with their scales"},
	{"state", "States: one slot a request (Mamba, gated delta nets)"},
}

// kindOf tells what sort of cache an order is made for: it has slots, names
// scales, has no heads, or is any other.
func kindOf(s layout.Spec) string {
	axes := map[geometry.Axis]bool{}
	scales := false
	var walk func(order []layout.Entry)
	walk = func(order []layout.Entry) {
		for _, e := range order {
			if !e.Component && e.Branch == nil {
				axes[e.Item.Axis] = true
			}
			for key, below := range e.Branch {
				scales = scales || strings.Contains(key, "scale")
				walk(below)
			}
		}
	}
	walk(s.Order)
	switch {
	case axes[geometry.Slot]:
		return "state"
	case !axes[geometry.Head]:
		return "latent"
	case scales:
		return "quantised"
	}
	return "attention"
}

// componentsOf are the components that an order names, sorted as it has them.
func componentsOf(s layout.Spec) []string {
	for _, e := range s.Order {
		var keys []string
		for key := range e.Branch {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if keys != nil {
			return strings.Split(strings.Join(keys, ","), ",")
		}
	}
	return nil
}

func (a *app) presets(all []preset.Preset) error {
	out := []presetJSON{}
	for _, p := range all {
		out = append(out, presetJSON{p.Name, p.Aliases, kindOf(p.Spec), p.Spec.Name, p.Spec.Text(), componentsOf(p.Spec), p.Spec.Bits, p.Doc, p.Source})
	}
	if a.json() {
		return a.emit(map[string]any{"presets": out})
	}
	for i, kind := range kinds {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintln(a.out, kind.title)
		for _, p := range out {
			if p.Kind == kind.name {
				a.preset(p)
			}
		}
	}
	return nil
}

func (a *app) preset(p presetJSON) {
	fmt.Fprintf(a.out, "  %s\n    order %s\n    %s\n", p.Name, p.Order, p.Doc)
	if len(p.Components) > 0 || len(p.Bits) > 0 {
		t := "any components"
		if len(p.Components) > 0 {
			t = "components " + strings.Join(p.Components, ", ")
		}
		if len(p.Bits) > 0 {
			t += fmt.Sprintf(", elements of %s bits", strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Bits), " ", " or "), "[]"))
		}
		fmt.Fprintf(a.out, "    for %s\n", t)
	}
	if len(p.Aliases) > 0 {
		fmt.Fprintf(a.out, "    also %s\n", strings.Join(p.Aliases, ", "))
	}
	if a.verbose {
		fmt.Fprintf(a.out, "    source: %s\n", p.Source)
	}
}
