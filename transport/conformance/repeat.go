package conformance

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/transport"
)

// Outcome is how one transfer of Repeat ended.
type Outcome struct {
	Err     error
	Wrong   int  // bytes of the destination that are not what they should be, where Err is nil
	Missing bool // no completion came
}

// Repeat moves the same request so many times between two new providers,
// which it closes, and tells how each ended: for tests of decorators that make
// transfers fail.
func Repeat(t *testing.T, h Harness, times int) []Outcome {
	t.Helper()
	w := open(t, h, cases[0])
	defer w.close()
	n := w.c.tokens
	src, dst := w.source.alloc(t, n), w.destination.alloc(t, n)
	w.source.guard(0x11)
	w.source.write(w.source.memory(), w.tokens(src, 0, n, plan.Range{}), 1)
	w.destination.guard(0x77)
	want := w.destination.image()
	w.destination.write(want, w.tokens(dst, 0, n, plan.Range{}), 1)
	var out []Outcome
	for range times {
		w.destination.guard(0x77)
		out = append(out, w.once(transferCase{direction: transport.Read, source: src, destination: dst, to: n}, want))
	}
	return out
}

func (w *world) once(x transferCase, want [][][][]byte) Outcome {
	w.t.Helper()
	op, err := w.grant(x)
	if err != nil {
		return Outcome{Err: err}
	}
	p := w.destination.provider
	id, err := p.Submit(op)
	if err != nil {
		return Outcome{Err: err}
	}
	limit := time.After(500 * time.Millisecond)
	for {
		var c [1]transport.Completion
		if p.Poll(c[:]) == 1 {
			if c[0].Op != id {
				w.t.Fatalf("operation %d completed, waiting for %d", c[0].Op, id)
			}
			if c[0].Err != nil {
				return Outcome{Err: c[0].Err}
			}
			var out Outcome
			for r, rank := range w.destination.memory() {
				for g, group := range rank {
					for i, b := range group {
						n, _ := wrong(b, want[r][g][i])
						out.Wrong += n
					}
				}
			}
			return out
		}
		select {
		case <-p.Ready():
		case <-limit:
			return Outcome{Missing: true}
		}
	}
}
