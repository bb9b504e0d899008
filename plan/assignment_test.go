package plan_test

import (
	"errors"
	"testing"

	"github.com/kvferry/kvferry/plan"
)

func TestValidateAssignments(t *testing.T) {
	p := hybrid(t)
	for _, c := range []struct {
		name string
		a    plan.Assignment
		want string // "" where it can be
	}{
		{"attention", plan.Assignment{Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 1, To: 4}}, ""},
		{"dealt tokens", plan.Assignment{Components: 3, Source: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 1, To: 4}, Tokens: plan.Tokens{Size: 2, Interleave: 3, Phase: 1}}, ""},
		{"one size is all", plan.Assignment{Group: 1, Components: 1, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 8}, Tokens: plan.Tokens{Size: 1, Interleave: 3}}, ""},
		{"channels", plan.Assignment{Group: 1, Components: 1, Layers: plan.Range{From: 0, To: 1}, Heads: plan.Range{From: 0, To: 8}}, ""},
		{"states", plan.Assignment{Group: 1, Components: 2, Layers: plan.Range{From: 0, To: 1}, Heads: plan.Range{From: 3, To: 4}}, ""},
		{"components of one head count and unequal entries", plan.Assignment{Group: 2, Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 1}}, ""},
		{"whole entries", plan.Assignment{Group: 2, Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 1}, Tokens: plan.Tokens{Size: 2, Interleave: 8, Phase: 1}}, ""},
		{"entries of one token are never parted", plan.Assignment{Group: 2, Components: 2, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 1}, Tokens: plan.Tokens{Size: 2, Interleave: 3}}, ""},

		{"no such group", plan.Assignment{Group: 3, Components: 1}, "assignment 0: group is 3: the model has 3"},
		{"no component", plan.Assignment{Group: 1}, "assignment 0: components is 0x0: the group has 2"},
		{"no such component", plan.Assignment{Group: 1, Components: 5}, "assignment 0: components is 0x5: the group has 2"},
		{"no such destination", plan.Assignment{Components: 1, Destination: 1}, "assignment 0: destination rank is 1: the destination has 1 ranks"},
		{"no such source", plan.Assignment{Components: 1, Source: -1}, "assignment 0: source rank is -1: the source has 4 ranks"},
		{"no layers", plan.Assignment{Components: 1, Layers: plan.Range{From: 2, To: 2}}, "assignment 0: layers is {2 2}: want a range within 0 to 4"},
		{"unequal head counts", plan.Assignment{Group: 1, Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 4}},
			"assignment 0: components is 0x3: x has 8 heads and ssm 4: a box of both has no range of heads"},
		{"heads of the other component", plan.Assignment{Group: 1, Components: 2, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 8}}, "assignment 0: heads is {0 8}: want a range within 0 to 4"},
		{"heads of none", plan.Assignment{Group: 2, Components: 1, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 2}}, "assignment 0: heads is {0 2}: want a range within 0 to 1"},
		{"phase", plan.Assignment{Components: 1, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 1}, Tokens: plan.Tokens{Size: 2, Interleave: 1, Phase: 2}},
			"assignment 0: tokens is {2 1 2}: want phase below size, size 1 to 4096 and interleave 1 to 1048576"},
		{"tokens of a state", plan.Assignment{Group: 1, Components: 2, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 4}, Tokens: plan.Tokens{Size: 2, Interleave: 1}},
			`assignment 0: tokens is {2 1 0}: group "mamba" keeps states: want all`},
		{"parted entries", plan.Assignment{Group: 2, Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 0, To: 1}, Tokens: plan.Tokens{Size: 2, Interleave: 6}},
			"assignment 0: tokens is {2 6 0}: the interleave parts the entries of 4 tokens of component c"},
	} {
		err := p.ValidateAssignments([]plan.Assignment{c.a})
		var e *plan.AssignmentError
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &e) || err.Error() != c.want):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	good := plan.Assignment{Components: 3, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: 1, To: 4}}
	if err := p.ValidateAssignments([]plan.Assignment{good, good, {Group: 9}}); err == nil || err.Error() != "assignment 2: group is 9: the model has 3" {
		t.Errorf("got %v", err)
	}
	if err := p.ValidateAssignments(make([]plan.Assignment, plan.MaxAssignments+1)); err == nil || err.Error() != "assignment 65536: assignments is 65537: want at most 65536" {
		t.Errorf("got %v", err)
	}
}
