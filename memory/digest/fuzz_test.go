package digest_test

import (
	"errors"
	"testing"

	"github.com/kvferry/kvferry/memory/digest"
)

// FuzzSum sums rows whose numbers come from anywhere, in layouts that are drawn:
// they are refused, or the digest is that of the definition.
func FuzzSum(f *testing.F) {
	f.Add(uint64(1), uint32(0), int64(0), int64(1), int64(2), int64(0), int64(1), 0, 0, 0, 1)
	f.Add(uint64(2), uint32(1), int64(3), int64(-1), int64(1), int64(1)<<39, int64(0), 1, 5, 1, 64)
	f.Add(uint64(9), uint32(0), int64(1), int64(1)<<62, int64(3), int64(1)<<62, int64(1)<<61, -1, 1<<15, 7, 0)
	f.Fuzz(func(t *testing.T, seed uint64, block uint32, place, step, count, entry, entryStep int64, headPlace, head, component, every int) {
		r := draw(seed, 4)
		s := r.side(r.box())
		key := r.key()
		rows := s.rows(0, 0, 0)
		rows.Component = component
		rows.Heads = []digest.Head{{Place: headPlace, Number: head}}
		rows.Spans = []digest.Span{{Block: block, Place: place, Step: step, Count: count, Entry: entry, EntryStep: entryStep}}
		got, err := digest.New(key).SumSampled(rows, every)
		if err != nil {
			var refused *digest.Error
			if !errors.As(err, &refused) || got != 0 {
				t.Fatalf("%016x, %v: want an *Error", got, err)
			}
			return
		}
		if want, _ := newTwin(key).sum(rows, int64(every)); got != want {
			t.Fatalf("%016x, want %016x", got, want)
		}
	})
}
