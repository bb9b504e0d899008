package main

import "testing"

// Everything arrives over TCP in every layout, and the plain sockets move as much.
// How long it takes is not looked at here.
func TestBenchTCP(t *testing.T) {
	code, out, errs := kvferry("bench", "tcp", "--small", "--rounds", "1", "--streams", "3", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, %s", code, errs)
	}
	r := decode[report](t, out)
	if !r.Verified || len(r.Rows) != 4 || r.Memory == "" {
		t.Fatalf("%+v", r)
	}
	for i, row := range r.Rows {
		if row.Bytes != r.Rows[0].Bytes || row.Seconds <= 0 || (i > 0) != (len(row.Compared) == 1) {
			t.Errorf("%+v", row)
		}
	}
	if code, _, errs := kvferry("bench", "tcp", "--streams", "0"); code != 2 {
		t.Errorf("exit status %d, %s", code, errs)
	}
}
