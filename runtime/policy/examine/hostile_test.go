package examine_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/kvferry/kvferry/runtime/policy/examine"
	"github.com/kvferry/kvferry/wasm/hostile"
)

// Every hostile module is refused at its stage and place, or is contained. An
// agent, which asks little when it loads one, comes to the same or is content; it
// never says otherwise, and what traps or does not end it does not take.
func TestHostileModules(t *testing.T) {
	text, err := os.ReadFile("../../../wasm/testdata/hostile/expect.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]hostile.Outcome
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	all := hostile.Modules()
	if len(want) != len(all) {
		t.Errorf("%d outcomes of %d modules", len(want), len(all))
	}
	said := func(t *testing.T, m hostile.Module, opt examine.Options) hostile.Report {
		t.Helper()
		r := examined(t, m.Wasm, opt)
		r.File = m.Name
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := hostile.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for i, m := range all {
		if m.Runs && testing.Short() && i%4 > 0 {
			continue // the race detector looks for races: some do for that
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel() // they do not disturb each other
			got := said(t, m, examine.Options{})
			if w, ok := want[m.Name]; !ok || !got.Is(w) {
				t.Errorf("got %v, want %v: %s", got.Outcome, w, got.Message)
			}
			if l := got.Lacks(); l != "" {
				t.Errorf("does not say %s: %q; %q", l, got.Message, got.Fix)
			}
			// What an agent asks when it loads a module: less, so it may be content.
			if !m.Runs {
				return
			}
			few := said(t, m, examine.Options{Few: true})
			if o := few.Outcome; !o.Contained && (o.Stage != got.Outcome.Stage || o.Kind != got.Outcome.Kind || o.Fault != got.Outcome.Fault) {
				t.Errorf("an agent says %v, a check %v", o, got.Outcome)
			}
			if few.Outcome.Contained && got.Outcome.Stage == string(examine.Vectors) && got.Outcome.Kind != "fault" {
				t.Errorf("an agent is content, a check says %v", got.Outcome)
			}
		})
	}
}
