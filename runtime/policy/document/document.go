// Package document reads the YAML files that operators and authors write about
// policies, strictly: one document, and nothing that makes a text mean something
// else than stands there.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/runtime/blame"
)

// MaxBytes bounds a file.
const MaxBytes = 1 << 20

// Error is a file that cannot be. The fault is the operator's: whoever wrote
// it.
type Error struct {
	File   string
	Line   int    // from 1; 0 where unknown
	Field  string // dotted; empty for the file as a whole
	Reason string
}

func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	return s + ": " + e.Reason
}

// Blame is the operator.
func (e *Error) Blame() blame.Party { return blame.Operator }

// yamlError is how the YAML package begins its messages.
var yamlError = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?(?:line (\d+): )?((?s:.*))$`)

// unknownField is its message about a key that there is not, or that stands
// twice.
var unknownField = regexp.MustCompile(`^field (\S+) (not found|already set) in type .*$`)

// said is what the YAML package says of a file, with the place that it names.
func said(name string, err error) error {
	m := yamlError.FindStringSubmatch(strings.TrimSpace(err.Error()))
	line, _ := strconv.Atoi(m[1]) // absent: 0
	text := strings.SplitN(strings.TrimSpace(m[2]), "\n", 2)[0]
	f := unknownField.FindStringSubmatch(text)
	switch {
	case f == nil:
		return &Error{name, line, "", text}
	case f[2] == "already set":
		return &Error{name, line, f[1], "stands twice"}
	}
	return &Error{name, line, f[1], "there is no such key here"}
}

// Read returns the one document in a file, without anchors, aliases and tags;
// nil where there is none. name is for errors.
//
// Errors: *Error.
func Read(name string, text []byte) (root *yaml.Node, err error) {
	if len(text) > MaxBytes {
		return nil, &Error{name, 0, "", fmt.Sprintf("%d bytes, at most %d are read", len(text), MaxBytes)}
	}
	defer recovered(name, &err)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, rest yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, said(name, err)
	}
	if err := dec.Decode(&rest); err == nil {
		return nil, &Error{name, rest.Line, "", "a second document: a file holds one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, said(name, err)
	}
	if err := plain(name, &doc); err != nil {
		return nil, err
	}
	return doc.Content[0], nil
}

// Decode reads the one document in a file into a value, and refuses keys that
// the value does not have. It returns the document, for its lines.
//
// Errors: *Error.
func Decode(name string, text []byte, into any) (root *yaml.Node, err error) {
	if root, err = Read(name, text); err != nil {
		return nil, err
	}
	if root == nil || root.ShortTag() == "!!null" {
		return nil, &Error{name, 0, "", "empty"}
	}
	defer recovered(name, &err)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		return nil, said(name, err)
	}
	return root, nil
}

// recovered makes a panic of the YAML package an error: it reports some
// malformed input so, and a file is never a reason to crash.
func recovered(name string, err *error) {
	if p := recover(); p != nil {
		*err = &Error{name, 0, "", fmt.Sprintf("not YAML: %v", p)}
	}
}

// plain refuses what makes a node mean something else than stands there.
func plain(name string, n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return &Error{name, n.Line, "", "anchors and aliases are not part of such a file"}
	case n.Style&yaml.TaggedStyle != 0:
		return &Error{name, n.Line, "", "tags are not part of such a file"}
	}
	for _, c := range n.Content {
		if err := plain(name, c); err != nil {
			return err
		}
	}
	return nil
}
