package meter

import (
	"math/rand/v2"
	"testing"

	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// step is one instruction of a body, and where control may go from it.
type step struct {
	at, next int // offsets
	op       uint32
	label    uint32
	cost     int64
	// Of block, loop, if and else: where what ends it ends; of an if, where its
	// else ends, too.
	end, other int
}

// steps takes a body apart.
func steps(t *testing.T, m *module, fn int, body span) map[int]*step {
	t.Helper()
	s := &scanner{m: m}
	out := map[int]*step{}
	var open []*step
	for ok := s.open(fn, body); ok && s.next(); {
		x := &step{at: s.start, next: s.r.at, op: s.op, label: s.label, cost: costOf(s.op)}
		if s.op == opCall && int(s.index) < m.imported {
			x.cost += costLeave
		}
		out[x.at] = x
		switch s.op {
		case opBlock, opLoop, opIf:
			open = append(open, x)
		case opElse:
			open[len(open)-1].other = x.next
		case opEnd:
			if len(open) > 0 {
				open[len(open)-1].end = x.next
				open = open[:len(open)-1]
			}
		}
	}
	if s.r.err != nil {
		t.Fatal(s.r.err)
	}
	return out
}

// walk runs through a function as if its values were random, and holds what the
// plan charges against what runs. It knows nothing of buckets.
func walk(t *testing.T, p *plan, all map[int]*step, end int, r *rand.Rand) (rounds int) {
	charges := map[int]int64{}
	for _, d := range p.edits {
		if d.kind == editCharge || d.kind == editRound || d.kind == editCheck {
			charges[d.at] += d.value
		}
	}
	paid, used, times := p.entry, int64(costEntry), int64(1)
	var open []*step
	at := p.code
	// leave goes to a label.
	leave := func(label int) int {
		if label >= len(open) {
			return end
		}
		to := open[len(open)-1-label]
		open = open[:len(open)-1-label]
		if to.op == opLoop {
			open = append(open, to)
			return to.next
		}
		return to.end
	}
	for at < end {
		if c := charges[at]; c > 0 {
			paid += c
			times++
		}
		x := all[at]
		used += x.cost
		if used > paid {
			t.Fatalf("byte %d: %d units are used, %d paid", at, used, paid)
		}
		at = x.next
		switch x.op {
		case opBlock, opLoop:
			open = append(open, x)
		case opIf:
			open = append(open, x)
			if r.IntN(2) == 0 {
				if x.other > 0 {
					at = x.other
				} else {
					at = leave(0)
				}
			}
		case opElse: // the first arm ends here
			at = leave(0)
		case opEnd:
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		case opBr:
			at = leave(int(x.label))
		case opBrIf:
			if rounds++; rounds > 2000 {
				return rounds // a loop that goes on and on
			}
			if r.IntN(3) == 0 {
				at = leave(int(x.label))
			}
		case opBrTable:
			at = leave(r.IntN(int(x.label) + 1))
		case opReturn:
			at = end
		case opUnreachable:
			return rounds
		}
	}
	if over := paid - used; over > times*tolerance {
		t.Fatalf("%d units are paid for %d, in %d charges of which each may exceed what it pays for by %d", paid, used, times, tolerance)
	}
	return rounds
}

// A plan never charges less than what runs, at no time, nor much more.
func TestPlanPaysForWhatRuns(t *testing.T) {
	walks, branches := 0, 0
	for seed := range uint64(300) {
		m, err := parse(sample.Random(seed).Wasm, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, 3))
		q := &planner{s: &scanner{m: m}}
		for i, b := range m.bodies {
			p, err := q.plan(m.imported+i, b)
			if err != nil {
				t.Fatal(err)
			}
			all := steps(t, m, m.imported+i, b)
			for range 20 {
				branches += walk(t, p, all, b.to, r)
				walks++
			}
		}
	}
	if walks < 10_000 || branches < 50_000 {
		t.Errorf("%d walks with %d branches", walks, branches)
	}
}

// What is small is paid for with what precedes it, what is large by itself, and
// dead code by nobody.
func TestPlanMerges(t *testing.T) {
	some := func(n int) []byte { return repeat(n, 0x45) } // i32.eqz
	get := sample.Op(opLocalGet, 0)
	plans := func(parts ...[]byte) *plan {
		m, err := parse(code(parts...), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&planner{s: &scanner{m: m}}).plan(0, m.bodies[0])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	arm := func(n int) []byte {
		return sample.Code(get, []byte{opIf, sample.Empty}, get, some(n), []byte{0x1a, opEnd})
	}
	for _, c := range []struct {
		name    string
		p       *plan
		entry   int64
		charges []int64
	}{
		{"straight", plans(get, some(100)), 103, nil},
		{"a small arm", plans(arm(10), get), 2 + 2 + 12 + 1, nil},
		{"a large arm", plans(arm(50), get), 2 + 2 + 1, []int64{52}},
		{"many small arms", plans(arm(20), arm(20), arm(20), arm(20), arm(20), arm(20), arm(20), get), 2 + 7*2 + 5*22 + 1, []int64{22, 22}},
		{"a loop", plans([]byte{opLoop, sample.Empty}, get, []byte{opBrIf, 0, opEnd}, get), 3, []int64{2}},
		{"a loop in a loop", plans([]byte{opLoop, sample.Empty, opLoop, sample.Empty}, get, []byte{opBrIf, 1, opEnd}, get, []byte{opBrIf, 0, opEnd}, get), 3, []int64{2, 2}},
		{"a loop without a round", plans([]byte{opLoop, sample.Empty, opEnd}, get), 3, nil},
		{"dead arms", plans(get, []byte{opReturn}, get, []byte{opIf, sample.Empty, opElse}, get, some(100), []byte{0x1a, opEnd}), 4, nil},
		{"dead code", plans(get, []byte{opReturn, opLoop, sample.Empty}, some(100), []byte{opBr, 0, opEnd}), 4, nil},
	} {
		var charges []int64
		for _, d := range c.p.edits {
			if d.kind == editCharge || d.kind == editRound || d.kind == editCheck {
				charges = append(charges, d.value)
			}
		}
		if c.p.entry != c.entry || len(charges) != len(c.charges) {
			t.Errorf("%s: entry %d, charges %v, want %d and %v", c.name, c.p.entry, charges, c.entry, c.charges)
			continue
		}
		for i := range charges {
			if charges[i] != c.charges[i] {
				t.Errorf("%s: charges %v, want %v", c.name, charges, c.charges)
			}
		}
	}
}
