// Package refusal turns errors into what scripts read: a kind, whose fault it
// is, the fields that differ and the first wrong coordinate.
package refusal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// Refusal is the "error" object of JSON output. It is an error itself, so that
// one process can hand it on to another.
type Refusal struct {
	Kind       string                `json:"kind"`
	Fault      string                `json:"fault"`
	Message    string                `json:"message"`
	Group      string                `json:"group,omitempty"` // that it is about, where groups have names
	Fields     []geometry.Difference `json:"fields,omitempty"`
	Coordinate *Coordinate           `json:"coordinate,omitempty"`
	Line       int                   `json:"line,omitempty"`
	Column     int                   `json:"column,omitempty"`
}

// Coordinate names the first wrong element.
type Coordinate struct {
	Rank      int    `json:"rank"` // of the destination
	Group     int    `json:"group"`
	Component string `json:"component"`
	Layer     int    `json:"layer"`
	Head      int    `json:"head"`
	Token     int64  `json:"token"`
	Dim       int    `json:"dim"`
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Layout is a side without a layout: what each side could do, or told.
type Layout struct {
	Fields []geometry.Difference
	Err    error
}

func (e *Layout) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Layout) Unwrap() error { return e.Err }

// Group is a request that cannot be served because of one of its groups, which
// has a name.
type Group struct {
	Name string
	Err  *stamp.Error
}

func (e *Group) Error() string {
	return fmt.Sprintf("stamp: %s of group %s is %v: %s", e.Err.Field, e.Name, e.Err.Value, e.Err.Reason)
}

// Unwrap returns the cause.
func (e *Group) Unwrap() error { return e.Err }

// Of sorts an error into the object that scripts read. A Refusal in its chain
// is returned as it is.
func Of(err error) *Refusal {
	var known *Refusal
	if errors.As(err, &known) {
		return known
	}
	f := &Refusal{Kind: "failed", Fault: string(blame.Of(err)), Message: err.Error()}
	var (
		pf        *pairfile.Error
		mismatch  *plan.Mismatch
		proofErr  *proof.Fault
		assign    *plan.AssignmentError
		large     *plan.TooLarge
		request   *stamp.Error
		group     *Group
		undecided *Layout
		claim     *layout.ClaimError
		declined  *policy.Declined
		config    *architecture.Error
		unknown   *architecture.UnknownError
	)
	if errors.As(err, &undecided) {
		f.Kind, f.Fields = "policy", undecided.Fields
	}
	if errors.As(err, &group) {
		f.Group = group.Name
	}
	switch {
	case errors.As(err, &declined):
		f.Kind = "declined"
	case errors.As(err, &pf):
		f.Kind, f.Fault, f.Line, f.Column = "pairfile", pf.Fault(), pf.Line, pf.Column
		if pf.Field != "" {
			f.Fields = []geometry.Difference{onSide(pf.Field, pf.Value)}
		}
	case errors.As(err, &claim):
		f.Kind = "claim"
		f.Fields = []geometry.Difference{{Field: "layout.name", Source: claim.Claim}, {Field: "layout.strides", Source: claim.Actual}}
	case errors.As(err, &mismatch):
		f.Kind, f.Fault, f.Fields = "mismatch", string(blame.Operator), mismatch.Fields
	case errors.As(err, &proofErr):
		f.Kind, f.Fault = string(proofErr.Kind), string(blame.Policy)
		f.Group = proofErr.Group
		if proofErr.Has {
			c := proofErr.At
			f.Coordinate = &Coordinate{proofErr.Rank, c.Group, proofErr.AtComponent, c.Layer, c.Head, c.Token, c.Dim}
		}
		if proofErr.SourceLayout != "" || proofErr.DestinationLayout != "" {
			f.Fields = []geometry.Difference{{Field: "layout", Source: proofErr.SourceLayout, Destination: proofErr.DestinationLayout}}
		}
	case errors.As(err, &assign):
		f.Kind, f.Fault = "assignment", string(blame.Policy)
		f.Fields = []geometry.Difference{{Field: fmt.Sprintf("assignments[%d].%s", assign.Index, assign.Field), Source: fmt.Sprint(assign.Value)}}
	case errors.As(err, &large):
		f.Kind, f.Fault = "budget", string(blame.Operator)
		f.Fields = []geometry.Difference{{Field: large.What, Source: fmt.Sprint(large.Need), Destination: fmt.Sprint(large.Limit)}}
	case errors.As(err, &request):
		f.Kind, f.Fault = "request", string(blame.Operator)
		d := geometry.Difference{Field: request.Field, Source: fmt.Sprint(request.Value), Destination: fmt.Sprint(request.Value)}
		switch {
		case strings.HasPrefix(request.Field, pairfile.Source):
			d.Destination = ""
		case strings.HasPrefix(request.Field, pairfile.Destination):
			d.Source = ""
		}
		f.Fields = []geometry.Difference{d}
	case errors.As(err, &config):
		f.Kind = "config"
		d := geometry.Difference{Field: config.Field}
		if config.Value != nil {
			d.Source = fmt.Sprint(config.Value)
		}
		f.Fields = []geometry.Difference{d}
	case errors.As(err, &unknown):
		f.Kind = "architecture"
		f.Fields = []geometry.Difference{{Field: "architectures", Source: unknown.Architecture}, {Field: "model_type", Source: unknown.ModelType}}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), isPathError(err):
		f.Kind, f.Fault = "file", string(blame.Operator)
	case errors.Is(err, context.Canceled):
		f.Kind, f.Fault = "canceled", string(blame.Operator)
	case f.Kind == "failed" && blame.Of(err) == blame.Policy:
		f.Kind = "policy" // it did not load, trapped, or answered nonsense
	}
	return f
}

func isPathError(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p)
}

// onSide puts a value of a pair file under the side that it stands on; what
// belongs to the model stands on both.
func onSide(field string, value any) geometry.Difference {
	d := geometry.Difference{Field: field}
	v := ""
	if value != nil {
		v = fmt.Sprint(value)
	}
	if !strings.HasPrefix(field, pairfile.Destination+".") {
		d.Source = v
	}
	if !strings.HasPrefix(field, pairfile.Source+".") {
		d.Destination = v
	}
	return d
}
