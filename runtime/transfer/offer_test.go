package transfer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

func flatShape() Shape {
	return NewShape(geometry.Model{Name: "m", Layers: 4, Groups: []geometry.Group{{Layers: []int{0, 1, 2, 3},
		Components: []geometry.Component{{Name: "k", Heads: 2, Dim: 4, DType: geometry.FP16}}}}})
}

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func layers(from, to int) plan.Range { return plan.Range{From: from, To: to} }

// short names the sentinel of an error, or its text where it has none.
func short(err error) string {
	for _, c := range codings() {
		if errors.Is(err, c.err) {
			return string(c.code)
		}
	}
	return err.Error()
}

func texts(stops []Stop) (out []string) {
	for _, s := range stops {
		t := fmt.Sprintf("stop %d", s.Key)
		if s.Fence {
			t += " fence"
		}
		if s.Tell != nil {
			t += " tell " + short(s.Tell)
		}
		out = append(out, t)
	}
	return out
}

func boxText(bs []Box) string {
	var out []string
	for _, b := range bs {
		out = append(out, fmt.Sprintf("L%d-%d T%d-%d", b.Layers.From, b.Layers.To-1, b.From, b.To-1))
	}
	return strings.Join(out, ",")
}

func (r OfferReady) text() string {
	var out []string
	if r.Err != nil {
		out = append(out, "error "+short(r.Err))
	}
	if r.Grant {
		out = append(out, "grant ["+boxText(r.Ready)+"]")
	}
	for _, m := range r.Marks {
		out = append(out, fmt.Sprintf("mark %d [%s]", m.Key, boxText(m.Boxes)))
	}
	out = append(out, texts(r.Stop)...)
	if r.Free {
		out = append(out, "free "+string(r.Reason))
	}
	return strings.Join(out, "; ")
}

type offerStep struct {
	at   float64
	ev   OfferEvent
	want string
}

func open(k Key, who string, total int, ranks ...int) OpenRead {
	return OpenRead{Key: k, Consumer: who, Ranks: ranks, Total: total, From: 0, To: 100, Layers: layers(0, 4)}
}

func ranged(o OpenRead, l plan.Range, from, to int64, more bool) OpenRead {
	o.Layers, o.From, o.To, o.More = l, from, to, more
	return o
}

func TestOffer(t *testing.T) {
	whole := "grant [L0-3 T0-99]"
	for _, c := range []struct {
		name    string
		readers int
		stream  bool
		steps   []offerStep
	}{
		{"read once", 1, false, []offerStep{
			{0, open(1, "d", 2, 0, 1), whole},
			{1, ReadDone{1, nil}, "stop 1"},
			{1, Stopped{1}, "free read"},
			{1, Tick{}, ""},
			{2, open(2, "e", 1, 0), "error unknown"},
		}},
		{"aggregated over the consumer's agents", 1, false, []offerStep{
			{0, open(1, "d", 4, 0, 1), whole},
			{1, ReadDone{1, nil}, "stop 1"},
			{1, Stopped{1}, ""}, // ranks 2 and 3 have not finished
			{2, open(2, "d", 4, 2, 3), whole},
			{3, ReadDone{2, nil}, "stop 2"}, // and had nothing to read, for all we know
			{3, Stopped{2}, "free read"},
		}},
		{"used twice", 1, false, []offerStep{
			{0, open(1, "d", 2, 0), whole},
			{0, open(2, "d", 2, 0), "error used"},
			{0, open(3, "d", 2, 1, 0), "error used"},
			{0, open(4, "d", 2, 1), whole},
			{0, open(5, "e", 1, 0), whole}, // fan-out is no second use
			{1, ReadDone{1, nil}, "stop 1"},
			{1, Stopped{1}, ""},
			{1, open(6, "d", 2, 0), "error used"},
		}},
		{"another range is no second use", 1, false, []offerStep{
			{0, ranged(open(1, "d", 1, 0), layers(0, 4), 0, 50, true), whole},
			{0, ranged(open(2, "d", 1, 0), layers(0, 4), 49, 100, false), "error used"},
			{0, ranged(open(3, "d", 1, 0), layers(0, 4), 50, 100, false), whole},
			{0, ranged(open(4, "d", 1, 0), layers(3, 4), 10, 11, false), "error used"},
			{1, ReadDone{3, nil}, "stop 3"},
			{1, Stopped{3}, ""}, // the earlier read still runs
			{2, ReadDone{1, nil}, "stop 1"},
			{2, Stopped{1}, "free read"},
		}},
		{"nothing after the last", 1, false, []offerStep{
			{0, ranged(open(1, "d", 2, 0), layers(0, 4), 0, 50, false), whole},
			{1, ReadDone{1, nil}, "stop 1"},
			{1, ranged(open(2, "d", 2, 0), layers(0, 4), 50, 100, false), "error used"},
		}},
		{"two readers wanted", 2, false, []offerStep{
			{0, open(1, "d", 1, 0), whole},
			{0, open(2, "e", 1, 0), whole},
			{1, ReadDone{1, nil}, "stop 1"},
			{1, Stopped{1}, ""},
			{2, ReadDone{2, nil}, "stop 2"},
			{2, Stopped{2}, "free read"},
		}},
		{"a reader gives up", 1, false, []offerStep{
			{0, open(1, "d", 1, 0), whole},
			{1, ReadDone{1, ErrCanceled}, "stop 1"},
			{1, Stopped{1}, "free abandoned"},
		}},
		{"a reader dies and the lease passes", 1, false, []offerStep{
			{0, open(1, "d", 1, 0), whole},
			{1, ReaderGone{1}, "stop 1 fence"},
			{1, ReaderGone{1}, ""},
			{2, Stopped{1}, ""},
			{3, open(2, "d2", 1, 0), whole}, // a restarted consumer may read
			{9, Tick{}, ""},
			{10, Tick{}, "stop 2 fence tell expired"},
			{10, open(3, "d3", 1, 0), "error unknown"},
			{11, ReadDone{2, ErrCanceled}, ""},
			{11, Stopped{2}, "free expired"},
		}},
		{"expired before anybody came", 1, false, []offerStep{{10, Tick{}, "free expired"}}},
		{"an open at the deadline is late", 1, false, []offerStep{{10, open(1, "d", 1, 0), "error unknown"}}},
		{"beats extend the lease, the limit ends it", 1, false, []offerStep{
			{0, open(1, "d", 1, 0), whole},
			{8, Beaten{}, ""},
			{10, Tick{}, ""},
			{17, Beaten{}, ""},
			{18, Tick{}, ""},
			{24, Beaten{}, ""},
			{30, Tick{}, "stop 1 fence tell expired"},
			{30, Beaten{}, ""},
			{31, Stopped{1}, "free expired"},
		}},
		{"canceled while two read", 1, false, []offerStep{
			{0, open(1, "d", 1, 0), whole},
			{0, open(2, "e", 1, 0), whole},
			{1, End{Canceled}, "stop 1 fence tell ended; stop 2 fence tell ended"},
			{1, End{Shut}, ""},
			{2, Stopped{2}, ""},
			{3, ReadDone{1, ErrEnded}, ""},
			{3, Stopped{1}, "free canceled"},
		}},
		{"streamed", 1, true, []offerStep{
			{0, Written{[]Box{{0, layers(0, 1), 0, 100}}}, ""},
			{1, open(1, "d", 1, 0), "grant [L0-0 T0-99]"},
			{2, Written{[]Box{{0, layers(0, 2), 0, 100}}}, "mark 1 [L1-1 T0-99]"},
			{2, Written{[]Box{{0, layers(1, 2), 5, 10}}}, ""},
			{3, Written{[]Box{{0, layers(2, 5), 0, 100}}}, "error transfer: layers [2, 5) lie outside [0, 4)"},
			{3, Written{[]Box{{0, layers(2, 4), 0, 101}}}, "error transfer: tokens [0, 101) lie outside [0, 100)"},
			{4, Written{[]Box{{0, layers(2, 4), 0, 16}}}, "mark 1 [L2-3 T0-15]"},
			{5, Written{[]Box{{0, layers(2, 4), 16, 100}}}, "mark 1 [L2-3 T16-99]"},
			{6, ReadDone{1, nil}, "stop 1"},
			{6, Written{[]Box{{0, layers(0, 1), 0, 1}}}, "error unknown"},
			{6, Stopped{1}, "free read"},
		}},
		{"outside the offer", 1, false, []offerStep{
			{0, ranged(open(1, "d", 1, 0), layers(0, 4), 0, 101, false), "error range"},
			{0, ranged(open(1, "d", 1, 0), layers(0, 5), 0, 100, false), "error range"},
			{0, ranged(open(1, "d", 1, 0), layers(2, 2), 0, 100, false), "error range"},
			{0, ranged(open(1, "d", 1, 0), layers(0, 4), -1, 100, false), "error range"},
			{0, open(1, "d", 1, 1), "error range"},
			{0, open(1, "d", 1, 0), whole},
		}},
	} {
		o := NewOffer(OfferSpec{Shape: flatShape(), From: 0, To: 100, Lease: 10 * time.Second, Limit: at(30), Readers: c.readers, Streaming: c.stream}, at(0))
		freed := 0
		for i, s := range c.steps {
			r := o.Step(at(s.at), s.ev)
			if got := r.text(); got != s.want {
				t.Errorf("%s: step %d (%T): %q, want %q", c.name, i, s.ev, got, s.want)
			}
			if r.Free {
				freed++
			}
		}
		if freed > 1 {
			t.Errorf("%s: freed %d times", c.name, freed)
		}
	}
}

func (r ExpectReady) text() string {
	var out []string
	if r.Err != nil {
		out = append(out, "error "+short(r.Err))
	}
	if r.Grant {
		out = append(out, "grant")
	}
	out = append(out, texts(r.Stop)...)
	if r.Final {
		if r.Failure == nil {
			out = append(out, "final")
		} else {
			out = append(out, "final "+short(r.Failure))
		}
	}
	if r.Free {
		out = append(out, "free")
	}
	return strings.Join(out, "; ")
}

func write(k Key, who string, total int, ranks ...int) OpenWrite {
	return OpenWrite{Key: k, Producer: who, Ranks: ranks, Total: total, From: 0, To: 100, Layers: layers(0, 4)}
}

func part(o OpenWrite, l plan.Range, from, to int64) OpenWrite {
	o.Layers, o.From, o.To = l, from, to
	return o
}

func TestExpect(t *testing.T) {
	type step struct {
		at   float64
		ev   ExpectEvent
		want string
	}
	for _, c := range []struct {
		name  string
		steps []step
		valid string
	}{
		{"written once", []step{
			{0, write(1, "p", 2, 0, 1), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 2), 0, 100}}}, ""},
			{2, WriteDone{1, nil}, "stop 1"},
			{2, Stopped{1}, "final; free"},
			{3, write(2, "p", 2, 0), "error unknown"},
		}, "L0-3 T0-99"},
		{"aggregated over the producer's agents, one with nothing to send", []step{
			{0, write(1, "p", 4, 0, 1), "grant"},
			{1, WriteDone{1, nil}, "stop 1"},
			{1, Stopped{1}, ""},
			{2, write(2, "p", 4, 2, 3), "grant"},
			{2, WriteDone{2, nil}, "stop 2"},
			{2, Stopped{2}, "final; free"},
		}, "L0-3 T0-99"},
		{"in two parts", []step{
			{0, part(write(1, "p", 1, 0), layers(0, 2), 0, 100), "grant"},
			{0, part(write(2, "p", 1, 0), layers(1, 4), 0, 100), "error used"},
			{0, part(write(3, "p", 1, 0), layers(2, 4), 0, 100), "grant"},
			{1, WriteDone{3, nil}, "stop 3"},
			{1, Stopped{3}, ""},
			{1, WriteDone{1, nil}, "stop 1"},
			{1, Stopped{1}, "final; free"},
		}, "L0-3 T0-99"},
		{"landed marks alone do not end it", []step{
			{0, write(1, "p", 1, 0), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 4), 0, 100}}}, ""},
			{2, WriteDone{1, ErrCanceled}, "stop 1; final canceled"},
			{2, Stopped{1}, "free"},
		}, "L0-3 T0-99"},
		{"another producer", []step{
			{0, write(1, "p", 2, 0), "grant"},
			{0, write(2, "q", 2, 1), "error used"},
		}, ""},
		{"dies in the middle: quarantine until the fence", []step{
			{0, write(1, "p", 1, 0), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 4), 0, 32}}}, ""},
			{2, WriterGone{1, errors.New("eof")}, "stop 1 fence; final gone"},
			{50, Tick{}, ""}, // no deadline frees the blocks
			{90, Stopped{1}, "free"},
		}, "L0-3 T0-31"},
		{"one of two dies, both have to stop", []step{
			{0, write(1, "p", 2, 0), "grant"},
			{0, write(2, "p", 2, 1), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 4), 0, 64}}}, ""},
			{1, Arrived{2, []Box{{0, layers(0, 4), 0, 48}}}, ""},
			{2, WriterGone{2, errors.New("eof")}, "stop 2 fence; stop 1 fence tell gone; final gone"},
			{3, Stopped{2}, ""},
			{4, WriteDone{1, ErrEnded}, "stop 1"},
			{4, Stopped{1}, "free"},
		}, "L0-3 T0-47"},
		{"nobody comes", []step{
			{9, Tick{}, ""},
			{10, Tick{}, "final timeout; free"},
		}, ""},
		{"beats extend the lease", []step{
			{0, write(1, "p", 1, 0), "grant"},
			{9, Beaten{}, ""},
			{10, Tick{}, ""},
			{19, Tick{}, "stop 1 fence tell timeout; final timeout"},
			{20, WriteDone{1, nil}, "stop 1"},
			{20, Stopped{1}, "free"},
		}, ""},
		{"canceled before anybody came", []step{{1, End{Canceled}, "final canceled; free"}, {2, End{Canceled}, ""}}, ""},
		{"shut while written", []step{
			{0, write(1, "p", 1, 0), "grant"},
			{1, End{Shut}, "stop 1 fence tell shut; final shut"},
			{2, Stopped{1}, "free"},
		}, ""},
		{"marks outside the write", []step{
			{0, part(write(1, "p", 1, 0), layers(0, 2), 0, 50), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 2), 0, 51}}}, "error range; stop 1 fence tell range; final range"},
		}, ""},
		{"layers outside the write", []step{
			{0, part(write(1, "p", 1, 0), layers(0, 2), 0, 50), "grant"},
			{1, Arrived{1, []Box{{0, layers(0, 3), 0, 50}}}, "error range; stop 1 fence tell range; final range"},
		}, ""},
		{"outside the expectation", []step{
			{0, part(write(1, "p", 1, 0), layers(0, 2), 0, 101), "error range"},
			{0, write(1, "p", 1, 7), "error range"},
		}, ""},
	} {
		x := NewExpect(ExpectSpec{Shape: flatShape(), From: 0, To: 100, Lease: 10 * time.Second, Limit: at(30)}, at(0))
		finals, freed := 0, 0
		for i, s := range c.steps {
			r := x.Step(at(s.at), s.ev)
			if got := r.text(); got != s.want {
				t.Errorf("%s: step %d (%T): %q, want %q", c.name, i, s.ev, got, s.want)
			}
			if r.Final {
				finals++
			}
			if r.Free {
				freed++
			}
		}
		if finals > 1 || freed > 1 {
			t.Errorf("%s: %d final states, freed %d times", c.name, finals, freed)
		}
		if got := boxText(x.Valid()); got != c.valid {
			t.Errorf("%s: valid %q, want %q", c.name, got, c.valid)
		}
	}
}
