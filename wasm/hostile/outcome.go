package hostile

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Outcome is what becomes of a module: it is refused at a stage, for a reason of
// some kind, at a place; or it is contained, and may run.
type Outcome struct {
	Does      string  `json:"does"`
	Contained bool    `json:"contained,omitempty"`
	Clamped   int     `json:"clamped,omitempty"` // answers that were put within the limits
	Stage     string  `json:"stage,omitempty"`
	Kind      string  `json:"kind,omitempty"`
	Fault     string  `json:"fault,omitempty"`
	Hook      string  `json:"hook,omitempty"`
	Export    string  `json:"export,omitempty"`
	Function  *int    `json:"function,omitempty"`
	Offset    *int    `json:"offset,omitempty"`
	Got       *uint64 `json:"got,omitempty"`
	Limit     *uint64 `json:"limit,omitempty"`
}

// String is the outcome as the folder's page has it.
func (o Outcome) String() string {
	if o.Contained && o.Clamped > 0 {
		return fmt.Sprintf("contained: %d answers clamped", o.Clamped)
	}
	if o.Contained {
		return "contained"
	}
	s := fmt.Sprintf("refused at %s: %s", o.Stage, o.Kind)
	if o.Offset != nil {
		s += fmt.Sprintf(", byte %d", *o.Offset)
	}
	if o.Function != nil {
		s += fmt.Sprintf(", function %d", *o.Function)
	}
	if o.Export != "" {
		s += ", `" + o.Export + "`"
	}
	if o.Limit != nil {
		s += fmt.Sprintf(", limit %d", *o.Limit)
	}
	return s
}

// Report is what a check of a module said.
type Report struct {
	Name         string // of the module
	Outcome      Outcome
	Message, Fix string // of a refusal
}

// Read reads a report in the JSON that "kvferry policy check" prints.
func Read(line []byte) (Report, error) {
	var r struct {
		File  string
		OK    bool
		Stage string
		Hooks []struct{ Clamped int }
		Error *struct {
			Kind, Fault, Hook, Export, Message, Fix string
			Function, Offset                        *int
			Got, Limit                              *uint64
		}
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Report{}, err
	}
	if r.OK == (r.Error != nil) || r.OK == (r.Stage != "") {
		return Report{}, fmt.Errorf("%s: ok %v at stage %q with error %+v", r.File, r.OK, r.Stage, r.Error)
	}
	out := Report{Name: strings.TrimSuffix(filepath.Base(r.File), ".wasm"), Outcome: Outcome{Contained: r.OK, Stage: r.Stage}}
	for _, h := range r.Hooks {
		if r.OK {
			out.Outcome.Clamped += h.Clamped
		}
	}
	for _, m := range Modules() {
		if m.Name == out.Name {
			out.Outcome.Does = m.Does
		}
	}
	if e := r.Error; e != nil {
		o := &out.Outcome
		o.Kind, o.Fault, o.Hook, o.Export, o.Function, o.Offset, o.Got, o.Limit = e.Kind, e.Fault, e.Hook, e.Export, e.Function, e.Offset, e.Got, e.Limit
		out.Message, out.Fix = e.Message, e.Fix
	}
	return out, nil
}

// Is reports whether the module came to what was expected of it. On processors
// other than amd64 both engines may compute alike, and engines-differ be contained.
func (r Report) Is(want Outcome) bool {
	if runtime.GOARCH != "amd64" && r.Name == "engines-differ" && r.Outcome.Contained {
		return true
	}
	return reflect.DeepEqual(r.Outcome, want)
}

// numbered is what a message says that names a limit.
var numbered = regexp.MustCompile(`at most \d`)

// Lacks is what a refusal does not say that it has to; empty: nothing.
func (r Report) Lacks() string {
	o := r.Outcome
	limited := slices.Contains([]string{"over limit", "fuel", "depth", "budget"}, o.Kind) || numbered.MatchString(r.Message)
	switch {
	case o.Contained:
	case r.Message == "":
		return "what is wrong"
	case strings.ContainsFunc(r.Message+r.Fix, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "what can be shown on one line"
	case o.Fault == "":
		return "whose fault it is"
	case r.Fix == "":
		return "how to fix it"
	case o.Offset == nil && o.Function == nil && o.Export == "" && r.Name != "manifest-missing": // that is nowhere
		return "where"
	case limited && o.Limit == nil:
		return "the limit"
	case o.Limit != nil && o.Got != nil && *o.Got < *o.Limit:
		return fmt.Sprintf("a number beyond the limit: %d of %d", *o.Got, *o.Limit)
	}
	return ""
}
