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
// A model of several groups (attention and states, windows, a draft model)
// gives "groups" instead of "components", and each side then gives a group's
// blocks and layout by the group's name:
//
//	model:
//	  name: hybrid
//	  layers: 4
//	  groups:
//	    - name: attention
//	      layers: "1,3"
//	      components:
//	        - {name: k, heads: 8, dim: 128, dtype: bf16}
//	        - {name: v, heads: 8, dim: 128, dtype: bf16}
//	    - name: mamba
//	      state: true
//	      layers: "0,2"
//	      components:
//	        - {name: x, channels: 8192, dim: 3, dtype: bf16}
//	        - {name: ssm, channels: 128, dim: 8192, dtype: fp32}
//	source:
//	  engine: prefill
//	  shard: {tp: 2}
//	  groups:
//	    attention: {block: 16, blocks: 256, layout: vllm/packed-hnd}
//	    mamba: {slots: 16, layout: {order: [slot, component, channel, dim]}}
//
// The reader is strict: an unknown or repeated key, a value of another type, a
// number below zero or beyond its range, a tag, an anchor or a second document
// is an *Error with its place in the file. Only what the format calls optional
// may be left out: model.identity; a group's layers (then all), window, state,
// optional, shared; a component's unit, tokens_per_entry, scales; a side's
// dtype and identity; shard.tp, shard.pp, shard.pcp and shard.dcp which are
// then 1, dcp.interleave which is then 1, dcp.split which is then interleaved,
// shard.heads, shard.rank_order, shard.ranks; kernel_block and ring; a group's
// shard which is then the engine's; layout.strides, layout.name; and on a side
// a group that the model calls optional. A layout never is: a side gives
// layout, or can.
//
// Forward compatibility: a file of another version than pair/1 is refused by
// name.
package pairfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
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
	Model               geometry.Model // without "groups" in the file: of one group without a name
	Source, Destination Side

	name string
	at   map[string]position
}

// Side is one engine of the file.
type Side struct {
	Engine   string
	Shard    shard.Spec        // complete
	Groups   []SideGroup       // by index of File.Model.Groups
	DType    geometry.DType    // of all components on this side; 0: as the model says
	Identity geometry.Identity // replaces the model's values of the same names on this side
}

// SideGroup is how a side keeps one group.
type SideGroup struct {
	Absent bool         // the side lacks this optional group; nothing else is set then
	Block  int          // tokens a block; 1 for a state
	Blocks int          // blocks in the pool; slots of a state
	Kernel int          // tokens of a kernel block; 0: the block is one
	Ring   int          // blocks that a request goes round in; 0: none
	Shard  *shard.Spec  // the group's own, complete; nil: the side's
	Layout *layout.Spec // of which Kernel is the Kernel above; nil where Can is given
	Preset string       // the name by which Layout was given, "" for an order; Layout is then that preset's
	Can    []string     // presets in the side's order of preference; nil where Layout is given
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

// Present returns the indices in File.Model.Groups of the groups that the side
// has: what the groups of SideModel, and of plan.Side, are by their own index.
func (s *Side) Present() []int {
	var out []int
	for g := range s.Groups {
		if !s.Groups[g].Absent {
			out = append(out, g)
		}
	}
	return out
}

// SideModel is the model as the side declares it: with its own dtype and
// identity values, and without the optional groups that it lacks.
func (f *File) SideModel(s *Side) geometry.Model {
	m := f.Model
	if present := s.Present(); len(present) < len(s.Groups) {
		m = m.Select(present)
	}
	if s.DType != 0 {
		groups := make([]geometry.Group, len(m.Groups))
		for gi, g := range m.Groups {
			g.Components = append([]geometry.Component(nil), g.Components...)
			for i := range g.Components {
				g.Components[i].DType = s.DType
			}
			groups[gi] = g
		}
		m.Groups = groups
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

// Candidates returns the layouts that a side offers for the group with can, in
// its order, made of the side's kernel blocks. It is nil for a group whose
// layout is given.
func (g *SideGroup) Candidates() []preset.Preset {
	var out []preset.Preset
	for _, name := range g.Can {
		if p, ok := preset.Get(name); ok {
			p.Spec.Kernel = int64(g.Kernel)
			out = append(out, p)
		}
	}
	return out
}

// Pool is the group's block pool on the side.
func (g *SideGroup) Pool() plan.Pool {
	return plan.Pool{Block: g.Block, Blocks: g.Blocks, Ring: g.Ring, Shard: g.Shard}
}

// named reports whether a file of the model has "groups".
func named(m geometry.Model) bool { return len(m.Groups) != 1 || m.Groups[0].Name != "" }

func (f *File) named() bool { return named(f.Model) }

// groupField is the place of a group on a side: the side itself where the file
// has no "groups".
func (f *File) groupField(side string, g int) string {
	if !f.named() {
		return side
	}
	return side + ".groups." + f.Model.Groups[g].Name
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
