package session

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// clash is an answer that writes head 0 twice.
func clash() []plan.Assignment { return append(answer(), answer()[0]) }

// whole is the answer in other words: layer by layer, another plan.
func whole() []plan.Assignment {
	var out []plan.Assignment
	for _, a := range answer() {
		for l := range 4 {
			a.Layers = plan.Range{From: l, To: l + 1}
			out = append(out, a)
		}
	}
	return out
}

func indices(as []Alternative) []int {
	var out []int
	for _, a := range as {
		out = append(out, a.Index)
	}
	return out
}

// Alternatives that a side does not prove are left out and named; both sides
// hold the others, under the same digests.
func TestAlternatives(t *testing.T) {
	one, _ := Prove(testPair(t), [][]plan.Assignment{answer()}, plan.DefaultBudget())
	enough := len(one[0].Proven.Plan().Runs)
	for _, c := range []struct {
		name     string
		answer   [][]plan.Assignment
		source   plan.Budget // of the source; zero: the default
		both     string      // indices in the answer
		unproved string      // what the destination knows of it
		err      string
	}{
		{name: "all", answer: [][]plan.Assignment{answer(), whole()}, both: "[0 1]"},
		{name: "the first clashes", answer: [][]plan.Assignment{clash(), answer(), nil}, both: "[1]", unproved: "alternative 0: prove: proof: clash; alternative 2: no assignments"},
		{name: "none", answer: [][]plan.Assignment{clash(), nil}, err: "clash"},
		{name: "no alternative", answer: nil, err: "no alternative"},
		{name: "more than eight", answer: [][]plan.Assignment{answer(), answer(), answer(), answer(), answer(), answer(), answer(), answer(), answer()}, both: "[0 1 2 3 4 5 6 7]", unproved: "alternative 8: more than 8"},
		{name: "the source's budget", answer: [][]plan.Assignment{answer(), whole()}, source: plan.Budget{Runs: enough, Pieces: 16, Bytes: 1 << 20}, both: "[0]", unproved: "alternative 1: the source did not prove it: with the alternatives before it: build: plan: "},
		{name: "less than the source's budget", answer: [][]plan.Assignment{answer()}, source: plan.Budget{Runs: 1, Pieces: 16, Bytes: 1 << 20}, err: "plan: runs"},
	} {
		s, d := hellos(t)
		dialler, acceptor := sides(d, s)
		if c.source != (plan.Budget{}) {
			acceptor.m = NewMachine(s, false, c.source)
		}
		talk(t, dialler, acceptor, Answered{Alternatives: c.answer})
		if c.err != "" {
			if dialler.err == nil || acceptor.err == nil || !strings.Contains(dialler.err.Error(), c.err) {
				t.Errorf("%s: %v and %v, want %q", c.name, dialler.err, acceptor.err, c.err)
			}
			continue
		}
		if !dialler.open || !acceptor.open {
			t.Errorf("%s: %v, %v", c.name, dialler.err, acceptor.err)
			continue
		}
		a, b := dialler.m.Result(), acceptor.m.Result()
		b0 := indices(b.Alternatives) // of the proposal, not of the answer
		if got := strings.Trim(strings.ReplaceAll(jsonText(indices(a.Alternatives)), ",", " "), ""); got != c.both || len(b0) != len(a.Alternatives) {
			t.Errorf("%s: the destination has %s, the source %v, want %s", c.name, got, b0, c.both)
		}
		for i := range a.Alternatives {
			if a.Alternatives[i].Proven.Digest() != b.Alternatives[i].Proven.Digest() {
				t.Errorf("%s: alternative %d is another plan on each side", c.name, i)
			}
		}
		var why []string
		for _, u := range a.Unproved {
			why = append(why, u.Error())
		}
		for i, want := range strings.Split(c.unproved, "; ") {
			if want != "" && (i >= len(why) || !strings.HasPrefix(why[i], want)) || c.unproved == "" && len(why) > 0 {
				t.Errorf("%s: unproved %q, want %q", c.name, why, c.unproved)
			}
		}
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// All alternatives together stay within the budget of one plan.
func TestAlternativesShareABudget(t *testing.T) {
	p := testPair(t)
	one, not := Prove(p, [][]plan.Assignment{answer()}, plan.DefaultBudget())
	if len(one) != 1 || len(not) != 0 {
		t.Fatal(not)
	}
	runs := len(one[0].Proven.Plan().Runs)
	many := [][]plan.Assignment{answer(), answer(), answer(), answer()}
	got, not := Prove(p, many, plan.Budget{Runs: 3*runs + runs/2, Pieces: 1 << 10, Bytes: 1 << 20})
	if len(got) != 3 || len(not) != 1 || not[0].By != blame.Operator {
		t.Errorf("%d of 4 within a budget of three and a half: %v", len(got), not)
	}
}

// A source that answers a proposal with what was not proposed is refused.
func TestAgreeMustFit(t *testing.T) {
	p := testPair(t)
	proposed, _ := Prove(p, [][]plan.Assignment{answer(), whole()}, plan.DefaultBudget())
	first, second := proposed[0].Proven.Digest().String(), proposed[1].Proven.Digest().String()
	for _, c := range []struct {
		name  string
		agree Agree
		both  int
		err   bool
	}{
		{"both", Agree{Plans: []string{first, second}}, 2, false},
		{"one", Agree{Plans: []string{"", second}, Unproved: []Failing{{0, blame.Operator, "too large"}}}, 1, false},
		{"none", Agree{Plans: []string{"", ""}}, 0, false},
		{"swapped", Agree{Plans: []string{second, first}}, 0, true},
		{"too few", Agree{Plans: []string{first}}, 0, true},
		{"another", Agree{Plans: []string{first, "sha256:00"}}, 0, true},
	} {
		both, not, err := c.agree.Agreed(proposed)
		if len(both) != c.both || (err != nil) != c.err || err == nil && len(both)+len(not) != 2 {
			t.Errorf("%s: %d, %v, %v", c.name, len(both), not, err)
		}
	}
	_, not, err := (&Agree{Plans: []string{"", second}, Unproved: []Failing{{0, blame.Operator, "too large"}}}).Agreed(proposed)
	if err != nil || len(not) != 1 || not[0].By != blame.Operator || !strings.Contains(not[0].Error(), "alternative 0: the source did not prove it: too large") {
		t.Errorf("%v, %v", not, err)
	}
}

// A provider that does not know the connection is left out; one that is left is
// enough, none is not.
func TestProvidersThatAreKnown(t *testing.T) {
	s, d := hellos(t)
	dialler, acceptor := sides(d, s)
	acceptor.lacks = "loop"
	talk(t, dialler, acceptor, Answered{Alternatives: [][]plan.Assignment{answer()}})
	for _, x := range []*side{dialler, acceptor} {
		if got := x.m.Result().Providers; !x.open || !reflect.DeepEqual(got, []string{"tcp"}) {
			t.Errorf("%v, %v", got, x.err)
		}
	}
	for _, c := range []struct {
		name string
		msg  Message
		as   bool // of the dialler
	}{
		{"no connection", &Link{}, true},
		{"one twice", &Link{[]Connection{{"loop", "a"}, {"loop", "b"}}}, true},
		{"one that was not linked", &Linked{[]string{"shm"}}, false},
		{"in another order", &Linked{[]string{"tcp", "loop"}}, false},
		{"none known", &Linked{}, false},
	} {
		m := NewMachine(s, !c.as, plan.Budget{})
		m.Step(Start{})
		m.Step(Received{d})
		if !c.as {
			m.Step(Connected{[]Connection{{"loop", "a"}, {"tcp", "b"}}})
		}
		r := m.Step(Received{c.msg})
		if r.Err == nil || blame.Of(r.Err) != blame.Peer {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// What is said of an engine arrives as it was said, and what cannot be is
// refused with its name.
func TestSites(t *testing.T) {
	_, d := hellos(t)
	b, err := json.Marshal(d.Site)
	if err != nil {
		t.Fatal(err)
	}
	var back Site
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, d.Site) {
		t.Errorf("%s came back as %+v, %v", b, back, err)
	}
	for _, text := range []string{`{"ranks":-1}`, `{"ranks":5000}`, `{"places":[{"rank":0,"host":"h"}]}`, `{"ranks":2,"places":[{"rank":1,"host":"h"},{"rank":0,"host":"h"}]}`,
		`{"ranks":2,"places":[{"rank":0}]}`, `{"zone":1}`} {
		var f *FrameError
		if err := json.Unmarshal([]byte(text), &back); !errors.As(err, &f) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(s *Site)
		field  string
	}{
		{"a long machine", func(s *Site) { s.Machine = strings.Repeat("m", 65) }, "site.machine"},
		{"a rank too many", func(s *Site) { s.About.Places = append(s.About.Places, policy.Place{}) }, "site.places"},
		{"a load that is none", func(s *Site) { s.About.Places[0].Load = 9 }, "site.places[0].load"},
		{"a long host", func(s *Site) { s.About.Places[0].Host = strings.Repeat("h", 1025) }, "site.places[0].host"},
		{"a device of no kind", func(s *Site) { s.About.Places[0].Devices[0].Kind = 9 }, "site.places[0].devices[0].kind"},
		{"many rails", func(s *Site) { s.About.Places[0].Rails = make([]policy.Rail, 65) }, "site.places[0].rails"},
		{"many labels", func(s *Site) {
			s.About.Labels = map[string]string{}
			for i := range 65 {
				s.About.Labels[strings.Repeat("x", i+1)] = ""
			}
		}, "site.labels"},
	} {
		s, d := hellos(t)
		c.change(&d.Site)
		m := NewMachine(s, false, plan.Budget{})
		m.Step(Start{})
		r := m.Step(Received{d})
		var q *policy.QuestionError
		if !errors.As(r.Err, &q) || q.Field != "destination."+c.field || blame.Of(r.Err) != blame.Peer {
			t.Errorf("%s: %v", c.name, r.Err)
			continue
		}
		if refuse := r.Send[0].(*Refuse); len(refuse.Fields) != 1 || refuse.Fields[0].Field != c.field || refuse.Fields[0].Destination == "-" {
			t.Errorf("%s: told %+v", c.name, refuse)
		}
	}
}

func TestReach(t *testing.T) {
	site := func(machine, process, host, domain string) *Site {
		return &Site{Machine: machine, Process: process, About: policy.About{Places: []policy.Place{{Host: host, Domain: domain}}}}
	}
	for _, c := range []struct {
		name string
		a, b *Site
		want policy.Reach
	}{
		{"one process", site("m", "p", "h", ""), site("m", "p", "h", ""), policy.SameProcess},
		{"one kernel, two containers", site("m", "p", "h", ""), site("m", "q", "i", ""), policy.SameHost},
		{"two kernels of one name", site("m", "p", "h", ""), site("n", "q", "h", ""), policy.OverNetwork},
		{"two kernels of one domain", site("m", "p", "h", "d"), site("n", "q", "i", "d"), policy.SameDomain},
		{"one name, kernels not known", site("", "", "h", ""), site("n", "", "h", ""), policy.SameHost},
		{"two names", site("", "", "h", ""), site("", "", "i", "d"), policy.OverNetwork},
		{"nothing known", site("m", "p", "h", ""), site("", "", "", ""), 0},
		{"a rank of which nothing is known", site("", "", "", ""), &Site{}, 0},
	} {
		if got := Reach(c.a, 0, c.b, 0); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got := Reach(c.b, 0, c.a, 0); got != c.want {
			t.Errorf("%s, the other way: %d, want %d", c.name, got, c.want)
		}
	}
}

// Of each rank the agent counts that holds it.
func TestMerge(t *testing.T) {
	a := &Site{About: policy.About{Software: "vllm", Labels: map[string]string{"zone": "a"}, Places: []policy.Place{{Host: "h0", Load: 3}, {Host: "not mine"}, {}}}}
	b := &Site{About: policy.About{Software: "other", Labels: map[string]string{"zone": "b", "rack": "1"}, Places: []policy.Place{{}, {Host: "h1"}, {Host: "told"}}}}
	got := Merge([]*Site{a, b}, [][]int{{0}, {1}}, 3)
	want := policy.About{Software: "vllm", Labels: map[string]string{"zone": "a", "rack": "1"}, Places: []policy.Place{{Host: "h0"}, {Host: "h1"}, {Host: "told"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Merge([]*Site{{}, {}}, [][]int{{0}, {1}}, 2); got.Places != nil {
		t.Errorf("of nothing: %+v", got)
	}
}
