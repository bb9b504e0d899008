// Package preset holds the layouts of known engines by name. A preset is a
// description like any other: it says where elements lie, which is then
// computed for a rank's sizes, and two presets of different names can be the
// same layout.
//
// It refuses to guess: a name that is not known is no preset, and an engine
// whose components a preset is not made for is refused by layout.Spec.Resolve.
package preset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/layout"
)

// Preset is a layout of a known engine.
type Preset struct {
	Name    string   // "engine/layout"
	Aliases []string // other names, each of one preset only
	Doc     string   // one line: what lies where, and who keeps it so
	Source  string   // where the fact comes from
	Spec    layout.Spec
}

// Resolve computes the layout of one rank. The error names the preset.
//
// Errors: *layout.Error and *layout.ClaimError, wrapped.
func (p Preset) Resolve(e layout.Extent) (*layout.Layout, error) {
	l, err := p.Spec.Resolve(e)
	if err != nil {
		return nil, fmt.Errorf("resolve preset %s: %w", p.Name, err)
	}
	return l, nil
}

// Get returns the preset with the given name or alias. Its Name is the full
// one.
func Get(name string) (Preset, bool) {
	for _, p := range All() {
		if p.Name == name || slices.Contains(p.Aliases, name) {
			return p, true
		}
	}
	return Preset{}, false
}

// Lookup returns the layout of the preset with the given name or alias.
func Lookup(name string) (layout.Spec, bool) {
	p, ok := Get(name)
	return p.Spec, ok
}

// All returns the presets in the order in which they are listed to people.
// The caller owns the result.
func All() []Preset {
	var out []Preset
	for _, r := range table {
		out = append(out, r.preset())
	}
	return out
}

// row is a preset as the table writes it.
type row struct {
	name    string
	aliases string // separated by blanks
	order   string // as in pair files
	claim   string
	bits    []int64
	doc     string
	source  string
}

// preset reads the row.
func (r row) preset() Preset {
	p := Preset{Name: r.name, Doc: r.doc, Source: r.source, Spec: layout.Spec{Name: r.claim, Bits: slices.Clone(r.bits)}}
	if r.aliases != "" {
		p.Aliases = strings.Fields(r.aliases)
	}
	p.Spec.Order = order(r.order)
	return p
}

// order reads an order of the table. A branch is its last entry.
func order(text string) []layout.Entry {
	var out []layout.Entry
	common, branch, branches := strings.Cut(text, "{")
	for word := range strings.FieldsSeq(common) {
		if word == "component" {
			out = append(out, layout.Entry{Component: true})
			continue
		}
		out = append(out, layout.Entry{Item: item(word)})
	}
	if !branches {
		return out
	}
	branch, ok := strings.CutSuffix(strings.TrimSpace(branch), "}")
	if !ok {
		panic(fmt.Sprintf("preset: %q in the table does not end its branch", text))
	}
	below := map[string][]layout.Entry{}
	for _, one := range parts(branch) {
		key, rest, _ := strings.Cut(one, ":")
		below[strings.TrimSpace(key)] = order(rest)
	}
	return append(out, layout.Entry{Branch: below})
}

// parts divides a branch at the semicolons that stand in no branch below.
func parts(branch string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range branch {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ';' && depth == 0:
			out = append(out, branch[from:i])
			from = i + 1
		}
	}
	return append(out, branch[from:])
}

func item(text string) layout.Item {
	it, err := layout.ParseItem(text)
	if err != nil {
		panic(fmt.Sprintf("preset: %v in the table", err))
	}
	return it
}
