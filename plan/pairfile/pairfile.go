// Package pairfile reads and writes pair files (YAML, "kvferry: pair/1"): all
// that a plan needs to know about a source and a destination engine, and
// nothing about a request.
//
//	kvferry: pair/1
//	model:
//	  name: llama-70b
//	  layers: 80
//	  identity: {weights: sha256:..., rope: {type: llama3, theta: 500000}}
//	  components:
//	    - {name: k, heads: 8, dim: 128, dtype: bf16}
//	    - {name: v, heads: 8, dim: 128, dtype: bf16}
//	source:
//	  engine: prefill
//	  shard: {tp: 2}
//	  block: 16
//	  blocks: 256
//	  layout: {order: [block, head, token, component, dim], name: HND}
//	destination:
//	  engine: decode
//	  shard: {tp: 4}
//	  block: 32
//	  blocks: 256
//	  layout: vllm/packed-nhd
//
// The reader is strict: an unknown or repeated key, a value of another type, a
// number below zero or beyond its range, a tag, an anchor or a second document
// is an *Error with its place in the file. Only what the format calls optional
// may be left out (model.identity, a side's dtype and identity, shard.tp,
// shard.pp and shard.dcp which are then 1, dcp.interleave which is then 1,
// shard.heads, shard.rank_order, layout.strides, layout.name). A layout never
// is: a side gives layout, or can.
//
// Forward compatibility: a file of another version than pair/1 is refused by
// name, and so is "groups", which a later version will bring.
package pairfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
)

// Version is the first line of a pair file.
const Version = "pair/1"

// MaxBytes bounds a pair file.
const MaxBytes = 1 << 20

// Names of the two sides, as fields and in errors.
const (
	Source      = "source"
	Destination = "destination"
)

// File is a pair file. It is a pure value; Parse makes one that is complete
// and whose sides can hold their model. Whether the sides agree is for
// plan.Pair.Validate.
type File struct {
	Model               geometry.Model // of one group, without a name
	Source, Destination Side

	name string
	at   map[string]position
}

// Side is one engine of the file.
type Side struct {
	Engine   string
	Shard    shard.Spec // complete
	Block    int        // tokens a block
	Blocks   int        // blocks in the pool
	Layout   *layout.Spec
	Preset   string            // the name by which Layout was given, "" for an order; Layout is then that preset's
	Can      []string          // presets in the side's order of preference; nil where Layout is given
	DType    geometry.DType    // of all components on this side; 0: as the model says
	Identity geometry.Identity // replaces the model's values of the same names on this side
}

// Error is a pair file that cannot be. Its fault is the operator's: whoever
// wrote the file.
type Error struct {
	File         string
	Line, Column int    // from 1; 0 where unknown
	Field        string // dotted place, "" for the file as a whole
	Value        any    // what stands there; nil where nothing does
	Reason       string
	Err          error // the cause, where another package found it
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
			if e.Column > 0 {
				fmt.Fprintf(&b, ":%d", e.Column)
			}
		}
		b.WriteString(": ")
	}
	field := e.Field
	if field == "" {
		field = "the document"
	}
	switch v := e.Value.(type) {
	case nil:
		if e.Field != "" {
			b.WriteString(field + ": ")
		}
	case string:
		fmt.Fprintf(&b, "%s is %q: ", field, v)
	default:
		fmt.Fprintf(&b, "%s is %v: ", field, v)
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fault says whose fault the error is.
func (e *Error) Fault() string { return "operator" }

type position struct{ line, column int }

// Side returns the named side, or nil.
func (f *File) Side(name string) *Side {
	switch name {
	case Source:
		return &f.Source
	case Destination:
		return &f.Destination
	}
	return nil
}

// SideModel is the model as the side declares it: with its own dtype and
// identity values.
func (f *File) SideModel(s *Side) geometry.Model {
	m := f.Model
	if s.DType != 0 {
		g := m.Groups[0]
		g.Components = append([]geometry.Component(nil), g.Components...)
		for i := range g.Components {
			g.Components[i].DType = s.DType
		}
		m.Groups = []geometry.Group{g}
	}
	if s.Identity != nil {
		id := geometry.Identity{}
		for n, v := range f.Model.Identity {
			id[n] = v
		}
		for n, v := range s.Identity {
			id[n] = v
		}
		m.Identity = id
	}
	return m
}

// Candidates returns the layouts that a side offers with can, in its order.
// It is nil for a side that gives its layout.
func (s *Side) Candidates() []preset.Preset {
	var out []preset.Preset
	for _, name := range s.Can {
		if p, ok := preset.Get(name); ok {
			out = append(out, p)
		}
	}
	return out
}

// locate turns a cause found by another package into an *Error at the place
// of field, or of the nearest field around it that the file names.
func (f *File) locate(field string, value any, reason string, cause error) *Error {
	if s, ok := value.(string); ok {
		if bare, err := strconv.Unquote(s); err == nil { // Error quotes strings itself
			value = bare
		}
	}
	e := &Error{File: f.name, Field: field, Value: value, Reason: reason, Err: cause}
	for at := field; at != ""; {
		if p, ok := f.at[at]; ok {
			e.Line, e.Column = p.line, p.column
			break
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	return e
}
