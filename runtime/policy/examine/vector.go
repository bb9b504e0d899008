package examine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/sketch"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Vector is one question and its answer in the schema's names, as the files in
// a policy's folder vectors/ hold them: what the module has to answer, to the
// byte.
type Vector struct {
	Name string `json:"-"` // the file's, without .json

	Hook               string               `json:"hook"`
	SelectLayoutInput  *abi.SelectLayoutIn  `json:"select_layout_in,omitempty"`
	RemapInput         *abi.RemapIn         `json:"remap_in,omitempty"`
	RouteInput         *abi.RouteIn         `json:"route_in,omitempty"`
	Status             string               `json:"status"` // "ok", "declined", "unsupported" or "bad_input"
	SelectLayoutAnswer *abi.SelectLayoutOut `json:"select_layout_out,omitempty"`
	RemapAnswer        *abi.RemapOut        `json:"remap_out,omitempty"`
	RouteAnswer        *abi.RouteOut        `json:"route_out,omitempty"`
	Reason             string               `json:"reason,omitempty"` // of a refusal
}

// maxVector bounds the file of a vector, maxVectors how many there are.
const (
	maxVector  = 8 << 20
	maxVectors = 1 << 10
)

// VectorError is a file that is no vector. The fault is the operator's: whoever
// wrote it.
type VectorError struct {
	File   string
	Reason string
}

func (e *VectorError) Error() string { return e.File + ": no vector of a policy: " + e.Reason }

// Blame is the operator.
func (e *VectorError) Blame() blame.Party { return blame.Operator }

// ReadVectors reads the vectors in a folder, in ascending order of their names. A
// folder that is not there has none.
//
// Errors: *VectorError; those of reading files.
func ReadVectors(folder string) ([]Vector, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var out []Vector
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		name := filepath.Join(folder, e.Name())
		if len(out) == maxVectors {
			return nil, &VectorError{name, fmt.Sprintf("more than %d stand in the folder", maxVectors)}
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxVector+1))
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, err
		}
		v, err := ParseVector(name, text)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// statuses are the statuses by their names in vectors.
func statuses() map[string]uint32 {
	return map[string]uint32{"ok": abi.StatusOk, "declined": abi.StatusDeclined, "unsupported": abi.StatusUnsupported, "bad_input": abi.StatusBadInput}
}

// ParseVector reads a vector. file is for errors and gives it its name.
//
// Errors: *VectorError.
func ParseVector(file string, text []byte) (Vector, error) {
	bad := func(why string, args ...any) (Vector, error) {
		return Vector{}, &VectorError{file, fmt.Sprintf(why, args...)}
	}
	if len(text) > maxVector {
		return bad("%d bytes, at most %d are read", len(text), maxVector)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	v := Vector{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
	if err := d.Decode(&v); err != nil {
		return bad("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("something follows the object")
	}
	if _, ok := statuses()[v.Status]; !ok {
		return bad("status %q: want ok, declined, unsupported or bad_input", v.Status)
	}
	for hook, m := range map[string][2]any{"select_layout": {v.SelectLayoutInput, v.SelectLayoutAnswer}, "remap": {v.RemapInput, v.RemapAnswer}, "route": {v.RouteInput, v.RouteAnswer}} {
		has := func(p any) bool { return !reflect.ValueOf(p).IsNil() }
		if has(m[0]) != (hook == v.Hook) {
			return bad("hook %q: want %s_in and no other question", v.Hook, v.Hook)
		}
		if has(m[1]) != (hook == v.Hook && v.Status == "ok") {
			return bad("status %s of hook %s: want %s_out where it is ok, and nowhere else", v.Status, v.Hook, v.Hook)
		}
	}
	if in := v.input(); in == nil {
		return bad("hook %q: there is no such hook", v.Hook)
	} else if len(in) > abi.MaxMessage {
		return bad("a question of %d bytes, none has more than %d", len(in), abi.MaxMessage)
	}
	return v, nil
}

// input is the question, encoded.
func (v *Vector) input() []byte {
	switch {
	case v.SelectLayoutInput != nil:
		return v.SelectLayoutInput.Encode()
	case v.RemapInput != nil:
		return v.RemapInput.Encode()
	case v.RouteInput != nil:
		return v.RouteInput.Encode()
	}
	return nil
}

// question is the vector as it is asked. What an answer is proved against is
// made of the question; where that cannot be, the answer is only compared.
func (v *Vector) question() question {
	q := question{name: "vector " + v.Name, hook: v.Hook, in: v.input(), want: v}
	switch {
	case v.SelectLayoutInput != nil:
		q.candidates = len(v.SelectLayoutInput.Candidates)
	case v.RemapInput != nil:
		if of, err := sketch.Remap(v.RemapInput); err == nil {
			q.remap = &of
		}
	case v.RouteInput != nil:
		if of, err := sketch.Route(v.RouteInput); err == nil {
			q.route = &of
		}
	}
	return q
}

// compare says in what an answer is not the vector's; empty where it is.
func (v *Vector) compare(a *answer) string {
	got := "ok"
	for name, s := range statuses() {
		if s == a.status {
			got = name
		}
	}
	if got != v.Status {
		return fmt.Sprintf("status %s, the vector says %s", got, v.Status)
	}
	if got != "ok" {
		if a.reason != v.Reason {
			return fmt.Sprintf("the reason %q, the vector says %q", a.reason, v.Reason)
		}
		return ""
	}
	var same bool
	switch {
	case v.SelectLayoutAnswer != nil:
		same = a.selection != nil && reflect.DeepEqual(a.selection, v.SelectLayoutAnswer)
	case v.RemapAnswer != nil:
		same = a.assignments != nil && reflect.DeepEqual(a.assignments, v.RemapAnswer)
	case v.RouteAnswer != nil:
		same = a.route != nil && reflect.DeepEqual(a.route, v.RouteAnswer)
	}
	if !same {
		return "another answer than the vector's"
	}
	return ""
}
