// Package trial reads and runs the cases that a policy's author expects of it
// (YAML, "kvferry: cases/1"), and reads what is known of where engines run
// (YAML, "kvferry: site/1"):
//
//	kvferry: cases/1
//	cases:
//	  - name: two ranks feed four
//	    pair: seed.yaml             # beside this file
//	    hook: remap                 # select_layout, remap or route
//	    configuration: {keep: true} # the operator's, as the policy is given it
//	    site: racks.yaml            # where the engines run
//	    expect:
//	      edges: [0 -> 0, 0 -> 1, 1 -> 2, 1 -> 3]
//	      fuel: 100000              # at most
//	  - pair: can.yaml
//	    hook: select_layout
//	    expect: {layouts: {source: vllm/packed-nhd}}
//	  - pair: dcp.yaml
//	    hook: remap
//	    expect: {declined: both sides part tokens}
//	  - pair: seed.yaml
//	    hook: route
//	    tokens: 4096
//	    expect: {route: {alternative: 1, recompute: false}}
//
// A case fails where an answer is not as expected, and always where an answer
// to remap is not proved. What is not expected is not compared. Other versions
// are refused by name.
package trial

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy/document"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Versions of the two kinds of files.
const (
	Version     = "cases/1"
	SiteVersion = "site/1"
)

// MaxBytes bounds a file, maxCases the cases in it.
const (
	MaxBytes = document.MaxBytes
	maxCases = 1 << 10
)

// Error is a file that cannot be. The fault is the operator's: whoever wrote
// it.
type Error = document.Error

// Case is one question and what is expected of the answer.
type Case struct {
	Name          string // the hook and the pair's file where none is given
	Line          int    // where it stands
	Pair          string // a pair file, relative to the cases' folder
	Site          string // a site file, likewise; empty: nothing is known
	Hook          string // "select_layout", "remap" or "route"
	Configuration any    // as YAML gives it; nil: none
	Tokens        int    // of the request, for route; 0: 4096
	Expect        Expect
}

// Expect is what a case expects. What is zero is not compared.
type Expect struct {
	Edges        []stamp.EdgeKey   // of the plan, all of them, in any order; nil: not compared
	Layouts      map[string]string // by side, and group where they have names: "source", "source.mamba"
	Alternatives int               // that are answered
	Declined     *string           // the policy says no, and its reason holds this
	Fuel         uint64            // that a call of the hook spends at most
	Route        *Route
}

// Route is what is expected of a decision; nil fields are not compared.
type Route struct {
	Alternative *int    `yaml:"alternative"`
	Recompute   *bool   `yaml:"recompute"`
	Chunk       *int64  `yaml:"chunk"`
	Streams     *int    `yaml:"streams"`
	Priority    *int    `yaml:"priority"`
	Mode        *string `yaml:"mode"` // "direct" or "staged"
	Provider    *string `yaml:"provider"`
}

// file is the YAML form.
type file struct {
	Kvferry string     `yaml:"kvferry"`
	Cases   []caseText `yaml:"cases"`
}

type caseText struct {
	line          int
	Name          string     `yaml:"name"`
	Pair          string     `yaml:"pair"`
	Site          string     `yaml:"site"`
	Hook          string     `yaml:"hook"`
	Tokens        int        `yaml:"tokens"`
	Configuration any        `yaml:"configuration"`
	Expect        expectText `yaml:"expect"`
}

type expectText struct {
	Edges        []string          `yaml:"edges"`
	Layouts      map[string]string `yaml:"layouts"`
	Alternatives int               `yaml:"alternatives"`
	Declined     *string           `yaml:"declined"`
	Fuel         uint64            `yaml:"fuel"`
	Route        *Route            `yaml:"route"`
}

// Parse reads a file of cases. name is for errors.
//
// Errors: *Error.
func Parse(name string, data []byte) ([]Case, error) {
	var f file
	root, err := document.Decode(name, data, &f)
	if err != nil {
		return nil, err
	}
	if f.Kvferry != Version {
		return nil, &Error{File: name, Line: root.Line, Field: "kvferry", Reason: fmt.Sprintf("%q: want %q", f.Kvferry, Version)}
	}
	if len(f.Cases) == 0 || len(f.Cases) > maxCases {
		return nil, &Error{File: name, Line: root.Line, Field: "cases", Reason: fmt.Sprintf("%d of them: want 1 to %d", len(f.Cases), maxCases)}
	}
	lines := caseLines(root)
	var out []Case
	for i, t := range f.Cases {
		if i < len(lines) {
			t.line = lines[i]
		}
		c, err := t.check(name, fmt.Sprintf("cases[%d]", i))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// caseLines are where the cases begin.
func caseLines(root *yaml.Node) []int {
	var out []int
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "cases" {
			for _, n := range root.Content[i+1].Content {
				out = append(out, n.Line)
			}
		}
	}
	return out
}

func (t caseText) check(name, at string) (Case, error) {
	bad := func(field, why string, args ...any) (Case, error) {
		return Case{}, &Error{File: name, Line: t.line, Field: at + "." + field, Reason: fmt.Sprintf(why, args...)}
	}
	c := Case{Name: t.Name, Line: t.line, Pair: t.Pair, Site: t.Site, Hook: t.Hook, Tokens: t.Tokens, Configuration: t.Configuration}
	if c.Pair == "" {
		return bad("pair", "missing: want the path of a pair file, beside this file")
	}
	if c.Hook != "select_layout" && c.Hook != "remap" && c.Hook != "route" {
		return bad("hook", "%q: want select_layout, remap or route", c.Hook)
	}
	if c.Name == "" {
		c.Name = c.Hook + " " + c.Pair
	}
	if c.Name = abi.Reason(c.Name); c.Name == "" {
		return bad("name", "nothing of it can be printed")
	}
	if c.Tokens < 0 || c.Tokens > 1<<30 {
		return bad("tokens", "%d: want 1 to %d", c.Tokens, 1<<30)
	}
	e := t.Expect
	c.Expect = Expect{Layouts: e.Layouts, Alternatives: e.Alternatives, Declined: e.Declined, Fuel: e.Fuel, Route: e.Route}
	for i, text := range e.Edges {
		key, err := edge(text)
		if err != nil {
			return bad(fmt.Sprintf("expect.edges[%d]", i), "%v", err)
		}
		if slices.Contains(c.Expect.Edges, key) {
			return bad(fmt.Sprintf("expect.edges[%d]", i), "%q stands twice", text)
		}
		c.Expect.Edges = append(c.Expect.Edges, key)
	}
	if e.Edges != nil && c.Expect.Edges == nil {
		c.Expect.Edges = []stamp.EdgeKey{}
	}
	x := &c.Expect
	switch {
	case x.Alternatives < 0 || x.Alternatives > abi.MaxAlternatives:
		return bad("expect.alternatives", "%d: want 1 to %d", x.Alternatives, abi.MaxAlternatives)
	case x.Declined != nil && (x.Edges != nil || x.Layouts != nil || x.Alternatives > 0 || x.Route != nil):
		return bad("expect.declined", "stands beside an answer that is expected: want one of them")
	case x.Layouts != nil && c.Hook == "route", x.Route != nil && c.Hook != "route", (x.Edges != nil || x.Alternatives > 0) && c.Hook == "select_layout":
		return bad("expect", "expects what hook %s does not answer", c.Hook)
	case x.Declined == nil && x.Edges == nil && x.Layouts == nil && x.Alternatives == 0 && x.Route == nil && x.Fuel == 0:
		return bad("expect", "nothing is expected: want edges, layouts, alternatives, declined, fuel or route")
	}
	if x.Route != nil && x.Route.Mode != nil && modes()[*x.Route.Mode] == 0 {
		return bad("expect.route.mode", "%q: want direct or staged", *x.Route.Mode)
	}
	return c, nil
}

// edge reads "0 -> 1".
func edge(text string) (stamp.EdgeKey, error) {
	from, to, ok := strings.Cut(text, "->")
	source, e1 := strconv.ParseUint(strings.TrimSpace(from), 10, 20)
	destination, e2 := strconv.ParseUint(strings.TrimSpace(to), 10, 20)
	if !ok || e1 != nil || e2 != nil {
		return stamp.EdgeKey{}, fmt.Errorf("%q is no edge: want ranks such as 0 -> 1, the source's first", text)
	}
	return stamp.EdgeKey{Source: int(source), Destination: int(destination)}, nil
}
