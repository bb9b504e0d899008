package architecture

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// fields are those of a configuration. Of a model of several parts (text and
// vision) inner are those of the language model; else inner is outer.
type fields struct {
	outer, inner map[string]any
	at           string // what stands before the name of a field of inner
}

// nested are the names under which the language model of a larger one lies.
const nested = "text_config language_config llm_config thinker_config"

// parse reads the JSON object.
func parse(config []byte) (fields, error) {
	bad := func(why string, args ...any) (fields, error) {
		return fields{}, &Error{Field: "the configuration", Reason: fmt.Sprintf(why, args...)}
	}
	if len(config) > MaxBytes {
		return bad("%d bytes, want at most %d", len(config), MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var f fields
	if err := d.Decode(&f.outer); err != nil {
		return bad("not a JSON object: %v", err)
	}
	if f.outer == nil {
		return bad("not a JSON object: null")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object")
	}
	f.inner = f.outer
	for depth := 0; depth < 2; depth++ { // thinker_config holds a text_config
		for _, name := range strings.Fields(nested) {
			if in, ok := f.inner[name].(map[string]any); ok {
				f.inner, f.at = in, f.at+name+"."
				break
			}
		}
	}
	return f, nil
}

// get returns the first of the named fields that is there and not null, with
// its place. The place of a missing one is that of the first name.
func (r *reader) get(names ...string) (v any, at string) {
	for _, n := range names {
		if v, ok := r.fields.inner[n]; ok && v != nil {
			return v, r.fields.at + n
		}
	}
	return nil, r.fields.at + names[0]
}

// has reports whether one of the named fields is there and not null.
func (r *reader) has(names ...string) bool {
	v, _ := r.get(names...)
	return v != nil
}

// whole reads a number from 0 to max. What stands at is for the error.
func (r *reader) whole(v any, at string, max int) int {
	n, ok := v.(json.Number)
	if !ok {
		r.fail(at, describe(v), "want a whole number")
		return 0
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil {
		// Some files write sizes as 4.0.
		f, ferr := n.Float64()
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			r.fail(at, clip(n.String()), "want a whole number")
			return 0
		}
		i = int64(f)
	}
	if i < 0 || i > int64(max) {
		r.fail(at, i, "want 0 to %d", max)
		return 0
	}
	return int(i)
}

// size reads a number from 1 to max that must be there under one of the names.
// After an error it is 1, so that callers may divide by it.
func (r *reader) size(max int, names ...string) int {
	v, at := r.get(names...)
	if v == nil {
		r.fail(at, nil, "missing%s", also(names))
		return 1
	}
	n := r.whole(v, at, max)
	if n == 0 {
		r.fail(at, 0, "want 1 to %d", max)
		return 1
	}
	return n
}

// sizeOr is size, or a value that the configuration may leave out.
func (r *reader) sizeOr(or, max int, names ...string) int {
	if !r.has(names...) {
		return or
	}
	return r.size(max, names...)
}

// count reads a number that may be 0 or left out.
func (r *reader) count(names ...string) int {
	v, at := r.get(names...)
	if v == nil {
		return 0
	}
	return r.whole(v, at, geometry.MaxLayers)
}

// flag reads a boolean, false where it is left out.
func (r *reader) flag(name string) bool {
	v, at := r.get(name)
	if v == nil {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		r.fail(at, describe(v), "want true or false")
	}
	return b
}

// text reads a string, "" where it is left out.
func (r *reader) text(names ...string) string {
	v, at := r.get(names...)
	if v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		r.fail(at, describe(v), "want a text")
	}
	return s
}

// list reads a list of at most MaxLayers elements, nil where it is left out.
func (r *reader) list(names ...string) ([]any, string) {
	v, at := r.get(names...)
	if v == nil {
		return nil, at
	}
	l, ok := v.([]any)
	if !ok {
		r.fail(at, describe(v), "want a list")
		return nil, at
	}
	if len(l) > geometry.MaxLayers {
		r.fail(at, len(l), "want at most %d elements", geometry.MaxLayers)
		return nil, at
	}
	return l, at
}

// perLayer reads a list with a number from 0 to max for each layer; nil where
// it is left out or empty.
func (r *reader) perLayer(max int, names ...string) []int {
	list, at := r.list(names...)
	if len(list) > 0 && len(list) != r.layers {
		r.fail(at, fmt.Sprintf("%d elements", len(list)), "there are %d layers", r.layers)
		return nil
	}
	var out []int
	for i, v := range list {
		out = append(out, r.whole(v, fmt.Sprintf("%s[%d]", at, i), max))
	}
	return out
}

// numbers reads a list of layer numbers, counted from first, and returns them
// from 0, ascending.
func (r *reader) numbers(first int, v any, at string) []int {
	list, ok := v.([]any)
	if !ok || len(list) > geometry.MaxLayers {
		r.fail(at, describe(v), "want a list of layer numbers")
		return nil
	}
	var out []int
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		n := r.whole(v, at, geometry.MaxLayers)
		if n < first || n >= r.layers+first {
			r.fail(at, n, "there are %d layers, numbered from %d", r.layers, first)
			return nil
		}
		out = append(out, n-first)
	}
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i] == out[i-1] {
			r.fail(at, out[i]+first, "named twice")
			return nil
		}
	}
	return out
}

// modern are the words that newer files have for older ones.
func modern(known, word string) string {
	for _, w := range [][2]string{{"mamba", "linear_attention"}, {"attention", "full_attention"}} {
		if word == w[1] && !slices.Contains(strings.Fields(known), word) {
			return w[0]
		}
	}
	return word
}

// kinds reads a list with a word for each layer, and refuses words that are
// not among the known.
func (r *reader) kinds(known string, names ...string) []string {
	list, at := r.list(names...)
	if list == nil {
		return nil
	}
	if len(list) != r.layers {
		r.fail(at, fmt.Sprintf("%d elements", len(list)), "there are %d layers", r.layers)
		return nil
	}
	var out []string
	for i, v := range list {
		s, _ := v.(string)
		s = modern(known, s)
		if s == "" || !slices.Contains(strings.Fields(known), s) {
			r.fail(fmt.Sprintf("%s[%d]", at, i), describe(v), "want one of %s", strings.Join(strings.Fields(known), ", "))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// all are the numbers of the model's layers.
func (r *reader) all() []int { return r.where(func(int) bool { return true }) }

// where returns the numbers of the layers of which is holds.
func (r *reader) where(is func(layer int) bool) []int {
	var out []int
	for l := range r.layers {
		if is(l) {
			out = append(out, l)
		}
	}
	return out
}

// of returns the numbers of the layers that are of a kind.
func of(kinds []string, kind ...string) []int {
	var out []int
	for l, k := range kinds {
		if slices.Contains(kind, k) {
			out = append(out, l)
		}
	}
	return out
}

// also names the other names of a field.
func also(names []string) string {
	if len(names) < 2 {
		return ""
	}
	return ", and so is " + strings.Join(names[1:], ", ")
}

// describe is a value for an error.
func describe(v any) any {
	switch v := v.(type) {
	case json.Number:
		return clip(v.String())
	case string:
		return clip(v)
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	}
	return v
}

// cacheDType is the element type of what is not quantised.
func (r *reader) cacheDType() geometry.DType {
	if s := r.options.CacheDType; s != "" && s != "auto" {
		return r.parseDType("cache dtype", s)
	}
	for _, from := range []struct {
		of map[string]any
		at string
	}{{r.fields.inner, r.fields.at}, {r.fields.outer, ""}} {
		for _, name := range []string{"torch_dtype", "dtype"} {
			if s, ok := from.of[name].(string); ok && s != "auto" {
				return r.parseDType(from.at+name, s)
			}
		}
	}
	r.fail(r.fields.at+"torch_dtype", nil, "missing, and so is dtype: say what the cache's dtype is")
	return 0
}

// scheme refuses a file that says that the cache is quantised where nothing says
// how it is kept: its dtype would be the weights', and wrong.
func (r *reader) scheme() {
	if r.options.Quantisation != "" || r.options.CacheDType != "" {
		return
	}
	for _, from := range []struct {
		of map[string]any
		at string
	}{{r.fields.inner, r.fields.at}, {r.fields.outer, ""}} {
		q, _ := from.of["quantization_config"].(map[string]any)
		for _, name := range []string{"kv_cache_scheme", "kv_cache_quant_algo"} {
			if v := q[name]; v != nil && v != "" && v != "auto" && v != "none" {
				r.fail(from.at+"quantization_config."+name, describe(v), "the cache is quantised and its dtype is not said: give the cache dtype, a quantisation such as fp8 or an element type")
				return
			}
		}
	}
}

// stateDType is the element type of recurrent states; always is the type that
// the architecture is run with whatever the rest is, or 0.
func (r *reader) stateDType(always geometry.DType) geometry.DType {
	if s := r.options.StateDType; s != "" && s != "auto" {
		return r.parseDType("state dtype", s)
	}
	for _, name := range []string{"mamba_ssm_dtype", "mamba_ssm_cache_dtype"} {
		if s := r.text(name); s != "" && s != "auto" {
			return r.parseDType(r.fields.at+name, s)
		}
	}
	if always != 0 {
		return always
	}
	return r.dtype
}

// parseDType reads a type by the geometry's name or PyTorch's.
func (r *reader) parseDType(field, s string) geometry.DType {
	name := strings.TrimPrefix(s, "torch.")
	switch name {
	case "bfloat16":
		return geometry.BF16
	case "float16", "half":
		return geometry.FP16
	case "float32", "float":
		return geometry.FP32
	case "float8_e4m3fn":
		return geometry.FP8E4M3
	case "float8_e5m2":
		return geometry.FP8E5M2
	}
	d, err := geometry.ParseDType(name)
	if err != nil && r.err == nil {
		r.err = &Error{Field: field, Value: clip(s), Reason: "no such dtype", Err: err}
	}
	return d
}

// rope reads how positions are told: two caches of equal shape whose keys were
// turned otherwise are not the same.
func (r *reader) rope() {
	for _, name := range []struct{ field, as string }{
		{"rope_theta", "rope.theta"}, {"rope_local_base_freq", "rope.local_theta"},
		{"partial_rotary_factor", "rope.partial_rotary_factor"}, {"compress_rope_theta", "rope.compress_theta"},
		{"rotary_dim", "rope.rotary_dim"}, {"rope_ratio", "rope.ratio"}, {"position_embedding_type", "rope.type"},
	} {
		if v, _ := r.get(name.field); v != nil {
			r.declare(name.as, v)
		}
	}
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		if m, ok := r.fields.inner[name].(map[string]any); ok {
			r.ropeFields("rope", m)
		}
	}
	if r.identity["rope.type"] == "" && r.identity["rope.theta"] != "" {
		r.identity["rope.type"] = "default"
	}
}

// ropeFields declares the fields of an object; layer types have one of their
// own each.
func (r *reader) ropeFields(prefix string, m map[string]any) {
	for _, k := range sorted(m) {
		name := map[string]string{"rope_type": "type", "rope_theta": "theta"}[k]
		if name == "" {
			name = k
		}
		if in, ok := m[k].(map[string]any); ok && prefix == "rope" {
			r.ropeFields(prefix+"."+name, in)
			continue
		}
		r.declare(prefix+"."+name, m[k])
	}
}

func sorted(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// maxIdentity bounds an identity (that of a pair file has at most twice as many
// names); values longer than longValue are declared by their digest (lists of a
// factor for each dimension).
const (
	maxIdentity = 128
	longValue   = 256
)

// declare adds a value to the identity in its canonical text: 1e6, 1000000 and
// 1000000.0 are one.
func (r *reader) declare(name string, v any) {
	if v == nil {
		return
	}
	if len(name) > geometry.MaxName {
		r.fail("rope", clip(name), "a name has at most %d bytes", geometry.MaxName)
		return
	}
	s := plain(v)
	if len(r.identity) >= maxIdentity {
		r.fail(name, clip(s), "an identity has at most %d names", maxIdentity)
		return
	}
	if len(s) > longValue {
		s = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))
	}
	if s != "" {
		r.identity[name] = s
	}
}

// plain is the canonical text of a number, text, boolean or list of these.
func plain(v any) string {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10)
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case []any:
		var parts []string
		for _, e := range v {
			if _, deep := e.([]any); !deep {
				parts = append(parts, plain(e))
			}
		}
		return strings.Join(parts, ",")
	}
	return ""
}
