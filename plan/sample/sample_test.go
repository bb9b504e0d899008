package sample_test

import (
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/plan/sample"
)

// TestPairs holds that pairs and answers depend on the seed only, and are valid.
func TestPairs(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(500) {
		m, again := sample.New(seed), sample.New(seed)
		p, q := m.Pair(), again.Pair()
		if p.Text() != q.Text() || !reflect.DeepEqual(m.Has, again.Has) {
			t.Fatalf("seed %d gives two pairs:\n%s\n%s", seed, p.Text(), q.Text())
		}
		if err := p.Validate(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		as := m.Assign(p)
		if !reflect.DeepEqual(as, again.Assign(q)) {
			t.Errorf("seed %d gives two answers", seed)
		}
		if err := p.ValidateAssignments(as); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		seen[p.Text()] = true
	}
	if len(seen) < 490 {
		t.Errorf("only %d of 500 pairs differ", len(seen))
	}
}
