// Package configuration turns what an operator writes for a policy (YAML) into
// what the policy is given: canonical JSON, the same bytes for the same meaning,
// since it is part of every question and of what answers are kept by.
//
// Canonical JSON has no blanks, keys in ascending order of their bytes, integers
// in decimal, other numbers as short as they can be read back, and escapes only
// what JSON must, and U+2028 and U+2029. Nothing in it depends on how the YAML was laid out.
package configuration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/runtime/policy/document"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Bounds on a configuration.
const (
	MaxBytes = abi.MaxBytes // of the canonical form
	maxDepth = 32
)

// Error is a configuration that cannot be. The fault is the operator's.
type Error = document.Error

// Canonical reads a YAML document, which JSON is one of, and returns it as
// canonical JSON; nil for a document that is empty or null. name is for errors.
//
// Errors: *Error.
func Canonical(name string, text []byte) ([]byte, error) {
	root, err := document.Read(name, text)
	if err != nil || root == nil {
		return nil, err
	}
	v, err := walker{name}.value(root, "", 0)
	if err != nil || v == nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // it sorts the keys
		return nil, &Error{File: name, Reason: err.Error()}
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(out) > MaxBytes {
		return nil, &Error{File: name, Reason: fmt.Sprintf("%d bytes as JSON, a policy is given at most %d", len(out), MaxBytes)}
	}
	return out, nil
}

// walker turns YAML nodes into values, and refuses what JSON has no word for.
type walker struct{ name string }

func (w walker) fail(n *yaml.Node, field, why string, args ...any) error {
	return &Error{File: w.name, Line: n.Line, Field: field, Reason: fmt.Sprintf(why, args...)}
}

func (w walker) value(n *yaml.Node, field string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, w.fail(n, field, "nested more than %d deep", maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
				return nil, w.fail(key, field, "a key is a plain text")
			}
			at := key.Value
			if field != "" {
				at = field + "." + at
			}
			if !utf8.ValidString(key.Value) {
				return nil, w.fail(key, field, "a key is not UTF-8")
			}
			if _, twice := out[key.Value]; twice {
				return nil, w.fail(key, at, "stands twice")
			}
			v, err := w.value(value, at, depth+1)
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := []any{}
		for i, c := range n.Content {
			v, err := w.value(c, fmt.Sprintf("%s[%d]", field, i), depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	return w.scalar(n, field)
}

func (w walker) scalar(n *yaml.Node, field string) (any, error) {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil, nil
	case "!!str":
		if !utf8.ValidString(n.Value) {
			return nil, w.fail(n, field, "a text is not UTF-8")
		}
		return n.Value, nil
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return nil, w.fail(n, field, "%v", err)
		}
		return v, nil
	case "!!int":
		var v int64
		if err := n.Decode(&v); err != nil {
			return nil, w.fail(n, field, "%s: integers go from -2^63 to 2^63-1; write it in quotes", n.Value)
		}
		return v, nil
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, w.fail(n, field, "%s is no number that JSON has", n.Value)
		}
		return number(v), nil
	default:
		return nil, w.fail(n, field, "%q would be a %s: write it in quotes", n.Value, strings.TrimPrefix(tag, "!!"))
	}
}

// number is a finite number as JSON, so that it is read as the same again: whole
// ones are integers as far as these are exact.
func number(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return json.Number(strconv.FormatFloat(v, 'g', -1, 64))
}
