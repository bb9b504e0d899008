// Package architecture says what cache a model keeps, from the configuration
// file that it is published with (Hugging Face's config.json).
//
// It owns a table of architectures: for each, which fields of a configuration
// make which groups and components. It knows no ranks, layouts or engines, and
// it guesses nothing: an architecture that the table does not have is an
// *UnknownError that says what to add, a field that is missing or contradicts
// another is an *Error with its name and value.
//
// Names of groups. A model whose layers all keep the same entries of all tokens,
// and whose configuration speaks of no draft layers, has one group without a
// name. In every other model groups are called for what they hold: attention, full,
// sliding, chunked, indexer, mamba, gdn, kda, lightning, conv, and for DeepSeek
// V4 window, c4, c4-index, c128 and their -state. Draft layers that keep a cache
// are numbered behind the model's own; each is an optional group called mtp and its layer's
// number, so that it is met by name, never by its place in a list.
//
// Names of components: k and v; latent and rope (MLA); kv (one row that is both
// key and value); index_k; x, B and C (the convolution of Mamba), q, k and v (that
// of linear attention) and ssm (the recurrent state); scales are called for what
// they scale, with _scale behind it (that of a latent scale, of index_k index_scale). A state's convolution is as wide as its
// kernel less one.
package architecture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Options say what a configuration does not: how an engine keeps the cache.
type Options struct {
	// Name is the model's; "" takes the last part of the configuration's
	// _name_or_path, and where there is none either it is an *Error.
	Name string
	// CacheDType is the element type of what is not quantised, as the
	// geometry or PyTorch calls it ("bf16", "bfloat16"); "" and "auto" take the
	// configuration's dtype.
	CacheDType string
	// Quantisation is how attention caches are quantised: one of Quantisations,
	// or "" for not at all. States and indexers are not touched by it.
	Quantisation string
	// StateDType is the element type of recurrent states (ssm); "" and "auto"
	// take the one that the configuration names for them, or that the
	// architecture is always run with, or that of the rest of the cache.
	StateDType string
	// Draft adds the draft (multi-token prediction) layers that the
	// configuration speaks of; an *Error where it speaks of none.
	Draft bool
}

// MaxBytes bounds a configuration.
const MaxBytes = 1 << 20

// Error is a configuration from which no model follows. Field is its dotted
// place in the file, or an option's name; Value what stands there, nil where
// nothing does. The fault is the operator's.
type Error struct {
	Field  string
	Value  any
	Reason string
	Err    error // the cause, where another package found it
}

func (e *Error) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return fmt.Sprintf("architecture: %s: %s", e.Field, e.Reason)
	case string:
		return fmt.Sprintf("architecture: %s is %q: %s", e.Field, v, e.Reason)
	default:
		return fmt.Sprintf("architecture: %s is %v: %s", e.Field, v, e.Reason)
	}
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fault says whose fault the error is.
func (e *Error) Fault() string { return "operator" }

// UnknownError is an architecture that the table does not have.
type UnknownError struct {
	Architecture string   // the first of "architectures", "" where there is none
	ModelType    string   // "model_type", "" where there is none
	Fields       []string // those of the configuration that usually say what the cache is, ascending
}

func (e *UnknownError) Error() string {
	what := e.Architecture
	if what == "" {
		what = "model_type " + e.ModelType
	} else if e.ModelType != "" {
		what += " (model_type " + e.ModelType + ")"
	}
	has := "none of the fields that usually describe a cache"
	if len(e.Fields) > 0 {
		has = "of the fields that usually describe a cache " + strings.Join(e.Fields, ", ")
	}
	return fmt.Sprintf("architecture: %s is not known. To add it: write a function that turns its fields into groups, "+
		"such as decoder in kv/architecture/attention.go, name it in a line of the table in kv/architecture/table.go, and put its "+
		"configuration into testdata/configs with a line for it in TestSizes. Its configuration has %s", what, has)
}

// Fault says whose fault the error is.
func (e *UnknownError) Fault() string { return "operator" }

// Read returns the model that a configuration describes. It is valid.
//
// Errors: *Error, *UnknownError.
func Read(config []byte, o Options) (geometry.Model, error) {
	fields, err := parse(config)
	if err != nil {
		return geometry.Model{}, err
	}
	r := &reader{fields: fields, options: o, identity: geometry.Identity{}}
	read, err := fields.choose()
	if err != nil {
		return geometry.Model{}, err
	}
	if err := r.prepare(); err != nil {
		return geometry.Model{}, err
	}
	read(r)
	return r.finish()
}

// reader gathers what a configuration says. The functions of the table use it;
// the first error stays, and what they do after it does not count.
type reader struct {
	fields   fields
	options  Options
	name     string
	dtype    geometry.DType // of what is not quantised
	layers   int            // of the model itself, without draft layers
	groups   []geometry.Group
	draft    int  // draft layers that groups were made for
	spoken   bool // the configuration speaks of draft layers
	identity geometry.Identity
	err      error
}

// fail keeps the first error.
func (r *reader) fail(field string, value any, why string, args ...any) {
	if r.err == nil {
		r.err = &Error{Field: field, Value: value, Reason: fmt.Sprintf(why, args...)}
	}
}

// prepare reads what all configurations have: name, layers, element type, and
// how positions are told.
func (r *reader) prepare() error {
	r.name = r.options.Name
	if r.name == "" {
		path, _ := r.fields.outer["_name_or_path"].(string)
		r.name = path[strings.LastIndexByte(path, '/')+1:]
	}
	if r.name == "" {
		r.fail("name", nil, "the configuration does not say what the model is called: give a name")
	}
	if encoder, _ := r.fields.outer["is_encoder_decoder"].(bool); encoder {
		r.fail("is_encoder_decoder", true, "the cache of a cross attention is not described by any function of this package")
	}
	if q := r.options.Quantisation; q != "" && !slices.Contains(Quantisations(), q) {
		r.fail("quantisation", q, "want one of %s, or nothing", strings.Join(Quantisations(), ", "))
	}
	r.layers = r.howMany()
	r.scheme()
	r.dtype = r.cacheDType()
	r.rope()
	return r.err
}

// howMany is the number of layers: as the configuration says, or where it does
// not, as many as it lists.
func (r *reader) howMany() int {
	names := []string{"num_hidden_layers", "num_layers", "n_layer"}
	if !r.has(names...) {
		if list, _ := r.list("layers_block_type", "layer_types"); len(list) > 0 {
			return len(list)
		}
		if s := r.text("hybrid_override_pattern"); s != "" && len(s) <= geometry.MaxLayers {
			return len(s)
		}
	}
	return r.size(geometry.MaxLayers, names...)
}

// add appends a group of the model's own layers. A group without layers is
// none.
func (r *reader) add(g geometry.Group) {
	if len(g.Layers) > 0 {
		r.groups = append(r.groups, g)
	}
}

// draftLike appends what draft layers that are all alike keep: the given
// groups, each layer its own. names are the fields that say how many there are.
func (r *reader) draftLike(groups []geometry.Group, names ...string) {
	n := r.count(names...)
	if r.spoken = n > 0; r.spoken && r.options.Draft {
		r.drafts(n, names[0], groups...)
	}
}

// drafts appends the groups of n draft layers, of which the named field says
// how many there are. A group that has a name keeps it behind that of the layer.
func (r *reader) drafts(n int, field string, groups ...geometry.Group) {
	if n > geometry.MaxGroups || r.layers+n > geometry.MaxLayers {
		r.fail(r.fields.at+field, n, "draft layers, want at most %d, and %d with the model's own", geometry.MaxGroups, geometry.MaxLayers)
		return
	}
	r.draft = n
	for layer := r.layers; layer < r.layers+n; layer++ {
		for _, g := range groups {
			name := fmt.Sprintf("mtp%d", layer)
			if g.Name != "" {
				name += "-" + g.Name
			}
			g.Name, g.Layers, g.Optional = name, []int{layer}, true
			r.groups = append(r.groups, g)
		}
	}
}

// finish makes the model.
func (r *reader) finish() (geometry.Model, error) {
	if r.err != nil {
		return geometry.Model{}, r.err
	}
	if r.options.Draft && r.draft == 0 {
		return geometry.Model{}, &Error{Field: "draft", Value: true, Reason: "the configuration speaks of no draft layers that keep a cache"}
	}
	if q := r.options.Quantisation; q != "" && r.identity["cache.quantisation"] == "" {
		return geometry.Model{}, &Error{Field: "quantisation", Value: q, Reason: "the model has no attention cache to quantise: its layers keep states"}
	}
	if len(r.groups) == 1 && !r.spoken {
		g := &r.groups[0]
		if len(g.Layers) == r.layers && !g.State && g.Window == 0 && g.Shared == nil {
			g.Name = ""
		}
	}
	m := geometry.Model{Name: r.name, Layers: r.layers + r.draft, Groups: r.groups}
	if len(r.identity) > 0 {
		m.Identity = r.identity
	}
	if err := m.Validate(); err != nil {
		e := &Error{Field: "the model", Reason: err.Error(), Err: err}
		var g *geometry.Error
		if errors.As(err, &g) {
			e.Field, e.Value, e.Reason = "the model's "+g.Field, g.Value, g.Reason
		}
		return geometry.Model{}, e
	}
	return m, nil
}

// Architecture is a line of the table.
type Architecture struct {
	Names []string // as "architectures" and "model_type" call it
	Doc   string   // what its layers keep
}

// Known returns what the table has, in its order. The caller owns the result.
func Known() []Architecture {
	var out []Architecture
	for _, row := range table() {
		out = append(out, Architecture{strings.Fields(row.names), row.doc})
	}
	return out
}

// choose returns the function for the configuration: that of the language
// model inside it where it has one, and "architectures" counts before
// "model_type".
func (f fields) choose() (func(*reader), error) {
	var tried []string
	for _, of := range []map[string]any{f.inner, f.outer} {
		if list, _ := of["architectures"].([]any); len(list) > 0 {
			if s, ok := list[0].(string); ok {
				tried = append(tried, s)
			}
		}
		if s, ok := of["model_type"].(string); ok {
			tried = append(tried, s)
		}
	}
	for _, name := range tried {
		for _, row := range table() {
			if slices.Contains(strings.Fields(row.names), name) {
				return row.read, nil
			}
		}
	}
	if len(tried) == 0 {
		return nil, &Error{Field: "architectures", Reason: "missing, and so is model_type: nothing says what model this is"}
	}
	e := &UnknownError{}
	for _, of := range []map[string]any{f.inner, f.outer} {
		if list, _ := of["architectures"].([]any); len(list) > 0 {
			s, _ := list[0].(string)
			e.Architecture = cmp.Or(e.Architecture, clip(s))
		}
		s, _ := of["model_type"].(string)
		e.ModelType = cmp.Or(e.ModelType, clip(s))
	}
	for _, name := range strings.Fields(telling) {
		if v, ok := f.inner[name]; ok && v != nil {
			e.Fields = append(e.Fields, name)
		}
	}
	return nil, e
}

// telling are the fields that usually say what the cache is.
const telling = "attention_chunk_size attn_type_list compress_ratios conv_kernel d_state full_attention_interval head_dim " +
	"hybrid_override_pattern index_head_dim kv_lora_rank layer_types layers_block_type linear_attn_config linear_num_key_heads " +
	"mamba_d_state mamba_n_heads num_attention_heads num_hidden_layers num_key_value_heads num_kv_shared_layers " +
	"num_nextn_predict_layers qk_rope_head_dim sliding_window ssm_state_size state_size"

// clip shortens a text from outside to what a message can hold.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}
