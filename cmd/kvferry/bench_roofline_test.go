package main

import "testing"

// Every cut of the pools is moved as it should be, on each number of threads.
// How long it takes is not looked at here.
func TestBenchRoofline(t *testing.T) {
	code, out, errs := kvferry("bench", "roofline", "--small", "--rounds", "1", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, %s", code, errs)
	}
	r := decode[report](t, out)
	per := 2 + len(cuts())
	if !r.Verified || len(r.Rows) != per*min(2, r.Machine.CPUs) {
		t.Errorf("verified %v, %d rows, want %d for each number of threads", r.Verified, len(r.Rows), per)
	}
	for i, row := range r.Rows {
		if row.Bytes <= 0 || row.Seconds <= 0 || (i%per >= 2) != (len(row.Compared) == 1) {
			t.Errorf("%+v", row)
		}
	}
	if code, _, errs := kvferry("bench", "roofline", "--rounds", "0"); code != 2 {
		t.Errorf("exit status %d, %s", code, errs)
	}
}
