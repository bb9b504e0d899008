package transfer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
)

func proven(t *testing.T) proof.Proven {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(`
kvferry: pair/1
model: {name: m, layers: 4, components: [{name: k, heads: 2, dim: 4, dtype: fp16}]}
source: {engine: p, shard: {tp: 1}, block: 4, blocks: 8, layout: {order: [block, head, token, dim]}}
destination: {engine: d, shard: {tp: 1}, block: 4, blocks: 8, layout: {order: [block, token, head, dim]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := f.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := build.Build(p, []plan.Assignment{{Components: 1, Layers: layers(0, 4), Heads: plan.Range{From: 0, To: 2}}}, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	ok, err := proof.Check(p, pl)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (r MoveReady) text() string {
	var out []string
	if r.Err != nil {
		out = append(out, "error "+short(r.Err))
	}
	if len(r.Open) > 0 {
		out = append(out, fmt.Sprintf("open %v", r.Open))
	}
	for _, s := range r.Submit {
		out = append(out, fmt.Sprintf("submit %d on %d [%s]", s.Op, s.Link, boxText([]Box{s.Box})))
	}
	if len(r.Cancel) > 0 {
		out = append(out, fmt.Sprintf("cancel %v", r.Cancel))
	}
	for _, l := range r.Landed {
		out = append(out, fmt.Sprintf("landed %d [%s]", l.Link, boxText(l.Boxes)))
	}
	for _, d := range r.Done {
		if d.Err == nil {
			out = append(out, fmt.Sprintf("done %d", d.Link))
		} else {
			out = append(out, fmt.Sprintf("done %d %s", d.Link, short(d.Err)))
		}
	}
	if r.Final {
		if r.Failure == nil {
			out = append(out, "final")
		} else {
			out = append(out, "final "+short(r.Failure))
		}
	}
	return strings.Join(out, "; ")
}

func TestMove(t *testing.T) {
	p := proven(t)
	all := []Box{{0, layers(0, 4), 0, 100}}
	type step struct {
		at   float64
		ev   MoveEvent
		want string
	}
	eof := errors.New("eof")
	done := func(op uint64) Completed { return Completed{Op: op, Bytes: 10, Segments: 2} }
	for _, c := range []struct {
		name   string
		dir    Direction
		links  []bool
		stream bool
		layers plan.Range
		grain  []int64
		steps  []step
		valid  string
		bytes  int64
	}{
		{name: "pull", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, Readied{0, all}, ""},
			{3, done(1), "done 0; final"},
			{4, done(1), ""},
			{9, Abort{ErrCanceled}, ""},
		}, valid: "L0-3 T0-99", bytes: 10},
		{name: "pull some layers of an offer", dir: Pull, links: []bool{true}, layers: layers(1, 3), steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L1-2 T0-99]"},
			{3, done(1), "done 0; final"},
		}, valid: "L1-2 T0-99", bytes: 10},
		{name: "pull by layers", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, ""},
			{2, Readied{0, []Box{{0, layers(0, 1), 0, 200}}}, "submit 1 on 0 [L0-0 T0-99]"},
			{3, Readied{0, []Box{{0, layers(0, 3), 0, 200}}}, "submit 2 on 0 [L1-2 T0-99]"},
			{4, done(2), ""},
			{5, done(1), ""},
			{6, Readied{0, []Box{{0, layers(3, 4), 0, 200}}}, "submit 3 on 0 [L3-3 T0-99]"},
			{7, done(3), "done 0; final"},
		}, valid: "L0-3 T0-99", bytes: 30},
		{name: "pull by chunks", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: []Box{{0, layers(0, 4), 0, 64}}}, "submit 1 on 0 [L0-3 T0-63]"},
			{2, Readied{0, []Box{{0, layers(0, 4), 64, 128}}}, "submit 2 on 0 [L0-3 T64-99]"},
			{3, done(1), ""},
			{4, done(2), "done 0; final"},
		}, valid: "L0-3 T0-99", bytes: 20},
		{name: "an agent with nothing for us does not wait for marks", dir: Pull, links: []bool{true, false}, steps: []step{
			{0, Begin{}, "open [0 1]"},
			{1, Permitted{Link: 1, Boxes: nil}, "done 1"},
			{2, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{3, Lost{1, eof}, ""},
			{4, done(1), "done 0; final"},
		}, valid: "L0-3 T0-99", bytes: 10},
		{name: "nothing to move at all", dir: Pull, links: []bool{false}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, "done 0; final"},
		}, valid: "L0-3 T0-99"},
		{name: "refused", dir: Pull, links: []bool{true, true}, steps: []step{
			{0, Begin{}, "open [0 1]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, Declined{1, ErrUsed}, "cancel [1]"},
			{3, done(1), "done 0 used; final used"},
		}, valid: "", bytes: 10},
		{name: "the owner takes it back: it waits for our handles", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: []Box{{0, layers(0, 4), 0, 64}}}, "submit 1 on 0 [L0-3 T0-63]"},
			{2, done(1), ""},
			{2, Readied{0, all}, "submit 2 on 0 [L0-3 T64-99]"},
			{3, Stopping{0, ErrExpired}, "cancel [2]"},
			{3, Stopping{0, ErrExpired}, ""},
			{4, Readied{0, all}, ""},
			{5, Completed{Op: 2, Err: ErrCanceled}, "done 0 expired; final expired"},
		}, valid: "L0-3 T0-63", bytes: 10},
		{name: "the peer dies", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, Lost{0, eof}, "cancel [1]"},
			{3, Completed{Op: 1, Err: ErrCanceled}, "final gone"},
		}, valid: ""},
		{name: "the peer dies before it answers", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{2, Lost{0, eof}, "final gone"},
		}, valid: ""},
		{name: "a stale block", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, Completed{Op: 1, Err: ErrStale}, "done 0 stale; final stale"},
		}, valid: ""},
		{name: "canceled", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Abort{ErrCanceled}, "done 0 canceled; final canceled"},
			{2, Permitted{Link: 0, Boxes: all}, ""},
		}, valid: ""},
		{name: "timeout", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all}, "submit 1 on 0 [L0-3 T0-99]"},
			{29, Tick{}, ""},
			{30, Tick{}, "cancel [1]"},
			{31, Completed{Op: 1, Err: ErrCanceled}, "done 0 timeout; final timeout"},
		}, valid: ""},
		{name: "marks outside the model", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: []Box{{0, layers(0, 5), 0, 100}}}, "done 0 range; final range"},
		}, valid: ""},
		{name: "push waits for the last word", dir: Push, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, done(1), "landed 0 [L0-3 T0-99]; done 0"},
			{3, Taken{0, nil}, "final"},
		}, valid: "L0-3 T0-99", bytes: 10},
		{name: "push, and the last word is no", dir: Push, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, done(1), "landed 0 [L0-3 T0-99]; done 0"},
			{3, Taken{0, ErrTimeout}, "final timeout"},
		}, valid: "L0-3 T0-99", bytes: 10},
		{name: "push, and nobody has the last word", dir: Push, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, "submit 1 on 0 [L0-3 T0-99]"},
			{2, done(1), "landed 0 [L0-3 T0-99]; done 0"},
			{3, Lost{0, eof}, "final gone"},
		}, valid: "L0-3 T0-99", bytes: 10},
		{name: "push by layers, written before it is granted", dir: Push, links: []bool{true, false}, stream: true, steps: []step{
			{0, Begin{}, "open [0 1]"},
			{0, Written{[]Box{{0, layers(0, 1), 0, 100}}}, ""},
			{1, Permitted{Link: 1, Boxes: nil}, "done 1"},
			{1, Taken{1, nil}, ""},
			{1, Permitted{Link: 0, Boxes: nil}, "submit 1 on 0 [L0-0 T0-99]"},
			{2, done(1), "landed 0 [L0-0 T0-99]"},
			{2, Written{[]Box{{0, layers(0, 4), 0, 101}}}, "error transfer: tokens [0, 101) lie outside [0, 100)"},
			{3, Written{[]Box{{0, layers(0, 4), 0, 100}}}, "submit 2 on 0 [L1-3 T0-99]"},
			{4, done(2), "landed 0 [L1-3 T0-99]; done 0"},
			{5, Taken{0, nil}, "final"},
		}, valid: "L0-3 T0-99", bytes: 20},
		{name: "what is out of the window does not move", dir: Pull, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: all, Void: []Box{{0, layers(0, 4), 0, 48}}}, "submit 1 on 0 [L0-3 T48-99]"},
			{3, done(1), "done 0; final"},
		}, valid: "L0-3 T48-99", bytes: 10},
		{name: "agents that hold different tokens", dir: Pull, links: []bool{true, true}, steps: []step{
			{0, Begin{}, "open [0 1]"},
			{1, Permitted{Link: 0, Boxes: all, Void: []Box{{0, layers(0, 4), 0, 48}}}, "submit 1 on 0 [L0-3 T48-99]"},
			{2, Permitted{Link: 1, Boxes: all}, "cancel [1]"},
			{3, Completed{Op: 1, Err: ErrCanceled}, "done 0 range; done 1 range; final range"},
		}, valid: ""},
		{name: "a group that the peer has not", dir: Push, links: []bool{true}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Void: []Box{{0, layers(0, 4), 0, 100}}}, "done 0"},
			{2, Taken{0, nil}, "final"},
		}, valid: ""},
		{name: "an operation ends where tokens share a scale", dir: Pull, links: []bool{true}, grain: []int64{16}, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: []Box{{0, layers(0, 4), 0, 20}}}, "submit 1 on 0 [L0-3 T0-15]"},
			{2, Readied{0, []Box{{0, layers(0, 4), 0, 31}}}, ""},
			{3, Readied{0, []Box{{0, layers(0, 4), 0, 100}}}, "submit 2 on 0 [L0-3 T16-99]"},
			{4, done(1), ""},
			{5, done(2), "done 0; final"},
		}, valid: "L0-3 T0-99", bytes: 20},
		{name: "push taken back", dir: Push, links: []bool{true}, stream: true, steps: []step{
			{0, Begin{}, "open [0]"},
			{1, Permitted{Link: 0, Boxes: nil}, ""},
			{2, Stopping{0, ErrCanceled}, "done 0 canceled; final canceled"},
		}, valid: ""},
	} {
		m, err := NewMove(p, MoveSpec{Direction: c.dir, Shape: flatShape(), From: 0, To: 100, Layers: c.layers, Links: c.links, Streaming: c.stream, Grain: c.grain, Deadline: at(30)})
		if err != nil {
			t.Fatal(err)
		}
		finals := 0
		for i, s := range c.steps {
			r := m.Step(at(s.at), s.ev)
			if got := r.text(); got != s.want {
				t.Errorf("%s: step %d (%T): %q, want %q", c.name, i, s.ev, got, s.want)
			}
			if r.Final {
				finals++
			}
		}
		if finals != 1 {
			t.Errorf("%s: %d final states", c.name, finals)
		}
		if got := boxText(m.Valid()); got != c.valid {
			t.Errorf("%s: valid %q, want %q", c.name, got, c.valid)
		}
		if b, _ := m.Moved(); b != c.bytes {
			t.Errorf("%s: %d bytes, want %d", c.name, b, c.bytes)
		}
	}
}

// Nothing moves without a proof.
func TestMoveNeedsAProof(t *testing.T) {
	spec := MoveSpec{Direction: Pull, Shape: flatShape(), From: 0, To: 100, Links: []bool{true}, Deadline: at(1)}
	if _, err := NewMove(proof.Proven{}, spec); !errors.Is(err, ErrUnproved) || blame.Of(err) != blame.Local {
		t.Errorf("the zero Proven: %v", err)
	}
	p := proven(t)
	for name, change := range map[string]func(*MoveSpec){
		"no deadline": func(s *MoveSpec) { s.Deadline = time.Time{} },
		"layers":      func(s *MoveSpec) { s.Layers = layers(0, 5) },
		"no tokens":   func(s *MoveSpec) { s.To = 0 },
		"negative":    func(s *MoveSpec) { s.From = -1 },
	} {
		s := spec
		change(&s)
		if _, err := NewMove(p, s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
