package main

import (
	"strings"
	"testing"
)

// The bench of policies measures everything that it says, with answers that are
// equal and no call that fails. How long things take is not looked at here.
func TestBenchPolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	code, out, errs := kvferry("bench", "policy", "--rounds", "1", "--swaps", "12", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, %s", code, errs)
	}
	r := decode[report](t, out)
	if !r.Verified || r.Bench != "bench policy" || r.Machine.CPUs == 0 {
		t.Errorf("%+v", r)
	}
	for what, least := range map[string]int{"metered": 7, "call, ": 3, "load from the cache, ": 1, "hot swaps": 1, "standstill for a collection, ": 4} {
		n := 0
		for _, row := range r.Rows {
			if !strings.Contains(row.Name, what) {
				continue
			}
			n++
			if len(row.Compared) == 0 || row.Seconds <= 0 && row.Value <= 0 {
				t.Errorf("%+v", row)
			}
			if what == "hot swaps" && (row.Compared[0].Ratio != 0 || row.Value < 12) {
				t.Errorf("calls failed while policies changed: %+v, %v", row, r.Notes)
			}
		}
		if n < least {
			t.Errorf("%d rows with %q, want %d", n, what, least)
		}
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--swaps", "0"}} {
		if code, _, errs := kvferry(append([]string{"bench", "policy"}, args...)...); code != 2 {
			t.Errorf("%v: exit status %d, %s", args, code, errs)
		}
	}
}
