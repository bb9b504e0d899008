package pairfile_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens under testdata/pairs/bad anew; review the difference")

const badPairs = "../../testdata/pairs/bad/"

// Each bad file is refused here, before anything is planned, with a message
// that names the place, the value and the fault: the goldens are what the
// command prints.
func TestBadPairs(t *testing.T) {
	for name, text := range files(t, badPairs+"*.yaml") {
		t.Run(name, func(t *testing.T) {
			f, err := pairfile.Parse(name, text)
			if err == nil {
				_, _, err = f.Pair(func(string, int) (int, error) { return 0, nil })
			}
			var e *pairfile.Error
			var mis *plan.Mismatch
			var got string
			switch {
			case errors.As(err, &e):
				got = fmt.Sprintf("kvferry: %v (fault: %s)\n", err, e.Fault())
			case errors.As(err, &mis):
				got = fmt.Sprintf("kvferry: %s: %v (fault: operator)\n", name, err)
			default:
				t.Fatalf("got %v, want an *Error or a *plan.Mismatch", err)
			}
			golden := badPairs + strings.TrimSuffix(filepath.Base(name), ".yaml") + ".txt"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got  %swant %s", got, want)
			}
		})
	}
}
