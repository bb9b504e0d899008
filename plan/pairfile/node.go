package pairfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader walks YAML nodes, remembers where each field stands, and refuses
// what pair files have no use for.
type reader struct {
	name string
	at   map[string]position
}

func (r *reader) fail(n *yaml.Node, field string, value any, why string, args ...any) error {
	e := &Error{File: r.name, Field: field, Value: value, Reason: fmt.Sprintf(why, args...)}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	return e
}

var kinds = map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a value", yaml.AliasNode: "an alias"}

// expect checks the node's kind and that it is plain YAML, and remembers its
// place.
func (r *reader) expect(n *yaml.Node, field string, kind yaml.Kind) error {
	r.at[field] = position{n.Line, n.Column}
	if err := r.plain(n, field); err != nil {
		return err
	}
	if n.Kind != kind {
		return r.fail(n, field, describe(n), "wrong type: want %s, got %s", kinds[kind], kinds[n.Kind])
	}
	return nil
}

func (r *reader) plain(n *yaml.Node, field string) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return r.fail(n, field, nil, "anchors and aliases are not part of a pair file")
	case n.Style&yaml.TaggedStyle != 0:
		return r.fail(n, field, n.Tag, "tags are not part of a pair file")
	}
	return nil
}

// describe is a node's value for an error: a scalar's text, nil otherwise.
func describe(n *yaml.Node) any {
	if n.Kind == yaml.ScalarNode {
		return clip(n.Value)
	}
	return nil
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}

// mapping returns the values of a mapping by key. known nil allows any key.
func (r *reader) mapping(n *yaml.Node, field string, known ...string) (map[string]*yaml.Node, []string, error) {
	if err := r.expect(n, field, yaml.MappingNode); err != nil {
		return nil, nil, err
	}
	out := map[string]*yaml.Node{}
	var order []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if err := r.plain(key, field); err != nil {
			return nil, nil, err
		}
		if key.Kind != yaml.ScalarNode {
			return nil, nil, r.fail(key, field, nil, "wrong type: a key is a word, got %s", kinds[key.Kind])
		}
		name := key.Value
		at := join(field, name)
		if key.ShortTag() == "!!merge" {
			return nil, nil, r.fail(key, at, nil, "merge keys are not part of a pair file")
		}
		if first, ok := out[name]; ok {
			return nil, nil, r.fail(key, at, nil, "duplicate key: given first at line %d", first.Line)
		}
		if known != nil && !slices.Contains(known, name) {
			return nil, nil, r.fail(key, at, nil, "unknown key (known: %s)", strings.Join(known, ", "))
		}
		out[name] = value
		order = append(order, name)
	}
	return out, order, nil
}

// child returns the value of a mapping's key, nil where there is none.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// list returns the elements of a list of 1 to max.
func (r *reader) list(n *yaml.Node, field string, max int) ([]*yaml.Node, error) {
	if err := r.expect(n, field, yaml.SequenceNode); err != nil {
		return nil, err
	}
	if len(n.Content) == 0 || len(n.Content) > max {
		return nil, r.fail(n, field, len(n.Content), "want a list of 1 to %d", max)
	}
	return n.Content, nil
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer reads a whole number of 0 to max, in plain decimal.
func (r *reader) integer(n *yaml.Node, field string, max int64) (int64, error) {
	if err := r.expect(n, field, yaml.ScalarNode); err != nil {
		return 0, err
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 || !decimal.MatchString(n.Value) {
		return 0, r.fail(n, field, clip(n.Value), "wrong type: want a whole decimal number")
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case strings.HasPrefix(n.Value, "-"):
		return 0, r.fail(n, field, clip(n.Value), "negative: want 0 to %d", max)
	case err != nil || v > max:
		return 0, r.fail(n, field, clip(n.Value), "overflow: want 0 to %d", max)
	}
	return v, nil
}

// text reads a string.
func (r *reader) text(n *yaml.Node, field string) (string, error) {
	if err := r.expect(n, field, yaml.ScalarNode); err != nil {
		return "", err
	}
	if tag := n.ShortTag(); tag != "!!str" {
		return "", r.fail(n, field, clip(n.Value), "wrong type: want a string, got %s", strings.TrimPrefix(tag, "!!"))
	}
	return n.Value, nil
}

// required returns the value of a key that must be there.
func (r *reader) required(m map[string]*yaml.Node, parent *yaml.Node, field, name string) (*yaml.Node, error) {
	v, ok := m[name]
	if !ok {
		return nil, r.fail(parent, join(field, name), nil, "missing")
	}
	return v, nil
}

// optional reads a whole number that may be left out, and is then 0: of least
// to max.
func (r *reader) optional(m map[string]*yaml.Node, field, name string, least, max int64) (int, error) {
	n, ok := m[name]
	if !ok {
		return 0, nil
	}
	v, err := r.integer(n, join(field, name), max)
	if err == nil && v < least {
		err = r.fail(n, join(field, name), v, "want %d to %d, or nothing", least, max)
	}
	return int(v), err
}

// flag reads a truth that may be left out, and is then false.
func (r *reader) flag(m map[string]*yaml.Node, field, name string) (bool, error) {
	n, ok := m[name]
	if !ok {
		return false, nil
	}
	field = join(field, name)
	if err := r.expect(n, field, yaml.ScalarNode); err != nil {
		return false, err
	}
	if n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		return false, r.fail(n, field, clip(n.Value), "wrong type: want true or false")
	}
	return n.Value == "true", nil
}

func (r *reader) integers(n *yaml.Node, field string, count int, max int64) ([]int, error) {
	list, err := r.list(n, field, count)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(list))
	for i, n := range list {
		v, err := r.integer(n, fmt.Sprintf("%s[%d]", field, i), max)
		if err != nil {
			return nil, err
		}
		out[i] = int(v)
	}
	return out, nil
}
