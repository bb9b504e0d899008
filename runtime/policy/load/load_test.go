package load_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/load"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// Work of each size has its bucket, in flight as well as moved.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		flying int64
		want   policy.Load
	}{{0, 1}, {1 << 20, 1}, {5 << 18, 2}, {4 << 20, 2}, {5 << 20, 3}, {20 << 20, 4}, {80 << 20, 5}, {320 << 20, 6}, {1280 << 20, 7}, {5120 << 20, 8}, {1 << 50, 8}} {
		m := load.New[int](load.Options{})
		m.Begin(3, c.flying)
		if got := m.Sample(at(0)).Load(3); got != c.want {
			t.Errorf("%d bytes in flight are load %d, want %d", c.flying, got, c.want)
		}
		if got := m.Sample(at(0)).Load(4); got != 1 {
			t.Errorf("a rank without work has load %d", got)
		}
		m = load.New[int](load.Options{})
		for i := range 20 {
			n := c.flying + c.flying/4 // the average comes near it from below
			m.Begin(3, n)
			m.End(3, n, n)
			m.Sample(at(float64(i)))
		}
		if got := m.Sample(at(20)).Load(3); got != c.want && c.flying < 1<<50 {
			t.Errorf("%d bytes a second are load %d, want %d", c.flying, got, c.want)
		}
	}
}

// What ended is forgotten within some samples, and what did not move counts only
// while it is in flight.
func TestWorkEnds(t *testing.T) {
	m := load.New[string](load.Options{})
	m.Begin("a", 1<<30)
	m.Begin("b", 1<<30)
	if s := m.Sample(at(0)); s.Load("a") != 6 || s.Load("b") != 6 {
		t.Fatalf("%d and %d", s.Load("a"), s.Load("b"))
	}
	m.End("a", 1<<30, 1<<30)
	m.End("b", 1<<30, 0)
	s := m.Sample(at(1))
	if s.Load("a") != 6 || s.Load("b") != 1 {
		t.Errorf("after the end: %d and %d, want 6 and 1", s.Load("a"), s.Load("b"))
	}
	if s := m.Sample(at(60)); s.Load("a") != 1 {
		t.Errorf("a minute later: %d", s.Load("a"))
	}
}

// There is one sample a second, whatever happens between.
func TestSampledOnceASecond(t *testing.T) {
	m := load.New[int](load.Options{Every: time.Millisecond}) // no less than a second
	m.Begin(0, 1<<30)
	first := m.Sample(at(0))
	m.Begin(1, 1<<30)
	m.Tell(2, 7)
	for _, s := range []float64{0, 0.5, 0.999, -5} {
		if got := m.Sample(at(s)); got.Number != first.Number || got.Load(1) != 1 || got.Load(2) != 1 {
			t.Errorf("after %v s: %+v", s, got)
		}
	}
	if got := m.Sample(at(1)); got.Number == first.Number || got.Load(1) != 6 || got.Load(2) != 7 {
		t.Errorf("after a second: %+v", got)
	}
	m.Forget(2)
	if got := m.Sample(at(2)); got.Load(2) != 1 {
		t.Errorf("what was told is still there: %+v", got)
	}
}

// No more is kept than the options allow, and what is not kept is not called
// idle.
func TestBounded(t *testing.T) {
	m := load.New[int](load.Options{Most: 3})
	for i := range 2 {
		if !m.Begin(i, 1<<30) {
			t.Fatal(i)
		}
	}
	if !m.Tell(2, 4) || m.Tell(3, 4) || m.Begin(4, 1<<30) {
		t.Error("three things are too many, or four are not")
	}
	s := m.Sample(at(0))
	if s.Load(0) != 6 || s.Load(2) != 4 || s.Load(3) != 0 || s.Load(4) != 0 {
		t.Errorf("%d %d %d %d", s.Load(0), s.Load(2), s.Load(3), s.Load(4))
	}
}

// question is one about a pair under a snapshot.
func question(t *testing.T, s load.Snapshot[int]) []byte {
	t.Helper()
	p := fixture.Pair(t, 2, fixture.KV(2, 8, "fp32"), fixture.Side("{tp: 2}", 16, "{order: [block, head, token, component, dim]}"), fixture.Side("{tp: 1}", 16, "{order: [block, token, head, component, dim]}"))
	q := policy.RemapQuestion{Pair: p}
	for r := range p.Source.Ranks {
		q.Source.Places = append(q.Source.Places, policy.Place{Load: s.Load(r)})
	}
	in, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	return in.Encode()
}

// Work that comes and goes about the edge of a bucket leaves questions as they
// are; within a sample they have the same bytes whatever moves.
func TestQuestionsDoNotFlicker(t *testing.T) {
	m := load.New[int](load.Options{})
	const edge = 16 << 20
	r := rand.New(rand.NewPCG(1, 2))
	m.Begin(0, edge)
	first := question(t, m.Sample(at(0)))
	last := int64(edge)
	for i := range 200 {
		next := edge + r.Int64N(edge/4) - edge/8
		m.End(0, last, 0)
		m.Begin(0, next)
		last = next
		if got := question(t, m.Sample(at(float64(i)/3+1))); !bytes.Equal(got, first) {
			t.Fatalf("sample %d, with %d bytes in flight, asks another question", i, next)
		}
	}
	m.End(0, last, 0)
	m.Begin(0, 8*edge)
	if got := question(t, m.Sample(at(100))); bytes.Equal(got, first) {
		t.Error("eight times as much asks the same question")
	}
}

// However work changes, there are no more questions than samples, and a rank has
// eight loads.
func TestDistinctQuestionsAreBounded(t *testing.T) {
	m := load.New[int](load.Options{})
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[string]bool{}
	const seconds, each = 300, 20
	last := int64(0)
	for i := range seconds * each {
		next := last + r.Int64N(last+1) - last/2
		if i%(each*5) == 0 {
			next = int64(1) << r.IntN(36)
		}
		m.End(0, last, last)
		m.Begin(0, next)
		last = next
		seen[fmt.Sprintf("%x", question(t, m.Sample(at(float64(i)/each))))] = true
	}
	if len(seen) > policy.MaxLoad || len(seen) < 3 {
		t.Errorf("%d questions of one rank's load", len(seen))
	}
}
