package generation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// listener keeps the events that a manager tells.
type listener struct {
	mu     sync.Mutex
	events []Event
}

func (l *listener) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *listener) of(kind EventKind) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Event
	for _, e := range l.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// rig is a manager whose events are kept.
type rig struct {
	*Manager
	t    testing.TB
	told *listener
}

func start(t testing.TB, opt Options) *rig {
	t.Helper()
	r := &rig{t: t, told: &listener{}}
	opt.Policy.InProcess = true
	if opt.Policy.Fuel == (host.Fuel{}) { // some guests here take their time
		opt.Policy.Fuel = host.Fuel{SelectLayout: 1 << 40, Remap: 1 << 40, Route: 1 << 40}
	}
	if opt.Conform == nil { // guests here do wrong, in questions that count
		opt.Conform = func(context.Context, []byte) error { return nil }
	}
	opt.Events = r.told.add
	m, err := New(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	r.Manager = m
	t.Cleanup(func() {
		if err := m.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) load(wasm []byte) uint64 {
	r.t.Helper()
	id, err := r.Load(ctx, Module{Wasm: wasm, Source: "a test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) do(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) activate(wasm []byte) uint64 {
	r.t.Helper()
	id := r.load(wasm)
	r.do(r.Activate(ctx, id))
	return id
}

// info is a generation as Status shows it.
func (r *rig) info(id uint64) Info {
	r.t.Helper()
	for _, i := range r.Status().Generations {
		if i.ID == id {
			return i
		}
	}
	r.t.Fatalf("no generation %d: %+v", id, r.Status().Generations)
	return Info{}
}

// until waits for something that goes on in the background.
func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain: %s; %+v", what, r.Status())
		}
	}
}

func (r *rig) reaches(id uint64, stage Stage) {
	r.t.Helper()
	r.until(fmt.Sprintf("generation %d %s", id, stage), func() bool { return r.info(id).Stage == stage })
}

// idle waits until every answer so far was looked at.
func (r *rig) idle() {
	r.t.Helper()
	done := make(chan struct{})
	r.until("room for one more audit", func() bool {
		select {
		case r.audit.jobs <- func(context.Context) { close(done) }:
			return true
		default:
			return false
		}
	})
	<-done
}

func heads(version string) []byte { return builtin("heads", version) }

func builtin(name, version string) []byte {
	wasm, ok := policies.Get(name)
	if !ok {
		panic("no policy " + name)
	}
	return fixture.Rename(wasm, name, version)
}

var (
	hnd = policy.Candidate{Name: "hnd", Layouts: []layout.Spec{sample.Order("block head token component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
	nhd = policy.Candidate{Name: "nhd", Layouts: []layout.Spec{sample.Order("block token head component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
)

func engine(name string, tp int, can ...policy.Candidate) policy.Engine {
	return policy.Engine{
		Name: name, Candidates: can,
		Model: geometry.Model{Name: "llama", Layers: 2, Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: 16, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 16, DType: geometry.BF16},
		}}}},
		Shard: grid(tp),
	}
}

func grid(tp int) shard.Spec {
	return shard.Spec{TP: tp, Stages: []int{2}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
}

func question(name string) policy.Question {
	return policy.Question{Engine: engine(name, 2, nhd, hnd), Role: policy.Source, Peers: []policy.Engine{engine("decode", 4, nhd)}}
}

// latent is a pair whose source holds every element on each of its ranks, as
// engines hold an MLA latent.
func latent(t testing.TB, tp int) *plan.Pair {
	t.Helper()
	side := func(name string) plan.Side {
		m := geometry.Model{Name: "mla", Layers: 2, Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{{Name: "latent", Dim: 64, DType: geometry.BF16}}}}}
		s := plan.Side{Engine: name, Model: m, Shard: grid(tp), Groups: []plan.Pool{{Block: 16, Blocks: 4}}}
		for r := range tp {
			part := s.Part(0, r)
			l, err := sample.Order("block token dim").Resolve(part.Extent(m.Groups[0], 16, 4))
			if err != nil {
				t.Fatal(err)
			}
			s.Ranks = append(s.Ranks, []*layout.Layout{l})
		}
		return s
	}
	p := &plan.Pair{Source: side("prefill"), Destination: side("decode")}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// record is assignments as an answer has them.
func record(alternatives ...[]plan.Assignment) *abi.RemapOut {
	out := &abi.RemapOut{}
	for _, as := range alternatives {
		var a abi.Alternative
		for _, v := range as {
			a.Assignments = append(a.Assignments, abi.Assignment{
				Components: v.Components, Group: uint32(v.Group), Destination: uint32(v.Destination), Source: uint32(v.Source),
				LayerFrom: uint32(v.Layers.From), LayerTo: uint32(v.Layers.To), HeadFrom: uint32(v.Heads.From), HeadTo: uint32(v.Heads.To),
			})
		}
		out.Alternatives = append(out.Alternatives, a)
	}
	return out
}

// feeds are assignments of a latent pair: source rank from(r) feeds rank r.
func feeds(tp int, from func(r int) int) []plan.Assignment {
	var out []plan.Assignment
	for r := range tp {
		out = append(out, plan.Assignment{Components: 1, Destination: r, Source: from(r), Layers: plan.Range{To: 2}, Heads: plan.Range{To: 1}})
	}
	return out
}

func same(r int) int { return r }
