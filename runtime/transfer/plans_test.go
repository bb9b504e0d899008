package transfer

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// What several agents of a producer write to the same tokens and layers is of
// one plan; what lies beside it may be of another.
func TestExpectOfOnePlan(t *testing.T) {
	under := func(o OpenWrite, plan string) OpenWrite {
		o.Plan = plan
		return o
	}
	x := NewExpect(ExpectSpec{Shape: flatShape(), From: 0, To: 100, Lease: time.Second, Limit: at(100)}, at(0))
	for _, c := range []struct {
		open OpenWrite
		want error
	}{
		{under(part(write(1, "p", 2, 0), layers(0, 2), 0, 100), "A"), nil},
		{under(part(write(2, "p", 2, 1), layers(0, 2), 0, 50), "B"), ErrPlan},
		{under(part(write(2, "p", 2, 1), layers(0, 2), 0, 50), "A"), nil},
		{under(part(write(3, "p", 2, 1), layers(1, 4), 50, 100), "B"), ErrPlan},
		{under(part(write(3, "p", 2, 1), layers(2, 4), 50, 100), "B"), nil},
		{under(part(write(4, "p", 2, 0), layers(2, 4), 40, 60), "A"), ErrPlan},
		{under(part(write(4, "p", 2, 0), layers(2, 4), 0, 50), "A"), nil},
		{under(part(write(5, "p", 2, 0), layers(2, 4), 50, 100), "B"), nil}, // as before it was refused
	} {
		if out := x.Step(at(0), c.open); !errors.Is(out.Err, c.want) || out.Grant != (c.want == nil) {
			t.Errorf("rank %v of %v [%d, %d) under %s: %v, want %v", c.open.Ranks, c.open.Layers, c.open.From, c.open.To, c.open.Plan, out.Err, c.want)
		}
	}
	x = NewExpect(ExpectSpec{Shape: flatShape(), From: 0, To: 100, Lease: time.Second, Limit: at(100)}, at(0))
	for i := range MaxPlans + 1 {
		out := x.Step(at(0), under(part(write(Key(i+1), "p", 1, 0), layers(0, 4), int64(i), int64(i)+1), fmt.Sprint(i)))
		if errors.Is(out.Err, ErrLimit) != (i == MaxPlans) {
			t.Errorf("plan %d: %v", i, out.Err)
		}
	}
}
