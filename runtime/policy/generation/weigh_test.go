package generation

import (
	"errors"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

// However an answer is cut into assignments, its plan means the same; whoever
// else feeds a rank, it does not. Pairs of every shape.
func TestMeaningIsWhoFeedsWhat(t *testing.T) {
	wasm, _ := policies.Get("heads")
	p, err := policy.Open(ctx, wasm, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cut, moved := 0, 0
	for seed := range uint64(300) {
		m := sample.New(seed)
		pair := m.Pair()
		answer, err := p.Remap(ctx, pair)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		as := answer.Alternatives[0]
		whole, err := proved(pair, as, plan.DefaultBudget())
		var unaligned *build.Unaligned
		if errors.As(err, &unaligned) {
			continue // fp4 rows that the layouts part
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want, ok := meaning(whole)
		if !ok {
			t.Fatalf("seed %d: too large", seed)
		}
		var finer []plan.Assignment
		for _, a := range as {
			b := a
			switch {
			case a.Layers.To-a.Layers.From > 1 && m.Chance(50):
				a.Layers.To = a.Layers.From + 1
				b.Layers.From = a.Layers.To
				finer = append(finer, b)
			case a.Heads.To-a.Heads.From > 1 && unitary(pair, a):
				a.Heads.To = a.Heads.From + 1
				b.Heads.From = a.Heads.To
				finer = append(finer, b)
			}
			finer = append(finer, a)
		}
		m.Shuffle(len(finer), func(i, j int) { finer[i], finer[j] = finer[j], finer[i] })
		if other, err := proved(pair, finer, plan.DefaultBudget()); errors.As(err, &unaligned) {
			continue
		} else if err != nil {
			t.Errorf("seed %d, cut: %v", seed, err)
		} else if got, _ := meaning(other); got != want || unlike([]*plan.Plan{other}, []*plan.Plan{whole}) != "" {
			t.Errorf("seed %d: cut finer, the plan means something else", seed)
		} else if other.Digest() != whole.Digest() {
			cut++
		}
		// Another source rank for one assignment, where some other holds the same.
		tries := 0
		for i := range as {
			for s := range pair.Source.Ranks {
				if tries++; s == as[i].Source || tries > 24 {
					continue
				}
				swapped := append([]plan.Assignment(nil), as...)
				swapped[i].Source = s
				other, err := proved(pair, swapped, plan.DefaultBudget())
				if err != nil {
					continue
				}
				moved++
				if got, _ := meaning(other); got == want {
					t.Errorf("seed %d: source rank %d instead of %d means the same", seed, s, as[i].Source)
				}
			}
		}
	}
	if cut < 50 || moved < 50 {
		t.Errorf("%d plans were cut otherwise and %d fed otherwise: the test shows nothing", cut, moved)
	}
}

// unitary reports whether the components of an assignment may be parted between
// any two heads.
func unitary(p *plan.Pair, a plan.Assignment) bool {
	for i, c := range p.Source.Model.Groups[a.Group].Components {
		if a.Components>>i&1 != 0 && c.UnitHeads() > 1 {
			return false
		}
	}
	return true
}
