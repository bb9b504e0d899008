package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/meter"
)

var ctx = context.Background()

func open(t testing.TB, name string) *Policy {
	t.Helper()
	wasm, ok := policies.Get(name)
	if !ok {
		t.Fatalf("no policy %q is built in", name)
	}
	p, err := Open(ctx, wasm, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, host.ErrClosed) {
			t.Error(err)
		}
	})
	return p
}

var (
	hnd = Candidate{Name: "hnd", Layouts: []layout.Spec{sample.Order("block head token component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
	nhd = Candidate{Name: "nhd", Layouts: []layout.Spec{sample.Order("block token head component dim")}, Pools: []plan.Pool{{Block: 16, Blocks: 4}}}
)

func engine(name string, tp int, can ...Candidate) Engine {
	return Engine{
		Name: name, Candidates: can,
		Model: geometry.Model{Name: "llama", Layers: 2, Groups: []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: 16, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 16, DType: geometry.BF16},
		}}}},
		Shard: shard.Spec{TP: tp, Stages: []int{2}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}},
	}
}

func question() Question {
	return Question{Engine: engine("prefill", 2, hnd, nhd), Role: Source, Peers: []Engine{engine("decode", 4, nhd)}}
}

// Everything that a question says reaches the policy.
func TestInput(t *testing.T) {
	q := question()
	q.Engine.Labels = map[string]string{"zone": "b", "rack": "7"}
	q.Engine.Candidates[1].Attention = 12
	q.Previous = 2
	q.Peers[0].Candidates = append(q.Peers[0].Candidates, Candidate{Name: "amx", Layouts: []layout.Spec{{
		Order: []layout.Entry{{Item: layout.Item{Axis: geometry.Block}}, {Item: layout.Item{Axis: geometry.Head}}, {Component: true}, {Branch: map[string][]layout.Entry{
			"k": layout.Items(layout.Item{Axis: geometry.Dim}, layout.Item{Axis: geometry.Token}),
			"v": layout.Items(layout.Item{Axis: geometry.Token, Div: 8}, layout.Item{Axis: geometry.Dim}, layout.Item{Axis: geometry.Token, Mod: 8}),
		}}},
	}}, Pools: []plan.Pool{{Block: 32, Blocks: 4}}})
	got, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	layouts := func(tp, block uint32, order ...abi.Item) []abi.GroupLayout {
		return []abi.GroupLayout{{Order: order, Block: block, Blocks: 4, TP: tp, Stages: 1, DCP: 1, Interleave: 1}}
	}
	whole := func(axis uint32) abi.Item { return abi.Item{Axis: axis, Div: 1} }
	ownHND := layouts(2, 16, whole(abi.AxisBlock), whole(abi.AxisHead), whole(abi.AxisToken), whole(abi.AxisComponent), whole(abi.AxisDim))
	ownNHD := layouts(2, 16, whole(abi.AxisBlock), whole(abi.AxisToken), whole(abi.AxisHead), whole(abi.AxisComponent), whole(abi.AxisDim))
	want := &abi.SelectLayoutIn{
		Engine: "prefill", Model: "llama", Role: abi.RoleSource, Layers: 2, TP: 2, Stages: 1, DCP: 1, Interleave: 1, Previous: 2,
		Groups: []abi.Group{{Layers: []abi.Range{{From: 0, To: 2}}, Components: []abi.Component{
			{Name: "k", Heads: 8, Dim: 16, Dtype: abi.DtypeBf16, Bits: 16, Unit: 1, TokensPerEntry: 1}, {Name: "v", Heads: 8, Dim: 16, Dtype: abi.DtypeBf16, Bits: 16, Unit: 1, TokensPerEntry: 1},
		}}},
		// A request of 4096 tokens, 256 blocks of 16 or 128 of 32. In one: layers 2,
		// heads 8, a row of k and v 64 bytes: rows move alone unless both sides keep
		// heads or tokens of one piece together, elements where one side keeps k
		// transposed.
		Candidates: []abi.Candidate{
			{Name: "hnd", Layouts: ownHND, Costs: []abi.Cost{{Peer: 0, Candidate: 0, Pieces: 256 * 256, Bytes: 256 * 16384}, {Peer: 0, Candidate: 1, Pieces: 128 * 8704, Bytes: 128 * 32768}}},
			{Name: "nhd", Attention: 12, Layouts: ownNHD, Costs: []abi.Cost{{Peer: 0, Candidate: 0, Pieces: 256 * 128, Bytes: 256 * 16384}, {Peer: 0, Candidate: 1, Pieces: 128 * 8704, Bytes: 128 * 32768}}},
		},
		Peers: []abi.Peer{{Engine: "decode", TP: 4, Stages: 1, DCP: 1, Interleave: 1, Candidates: []abi.Candidate{
			{Name: "nhd", Layouts: layouts(4, 16, ownNHD[0].Order...)},
			{Name: "amx", Layouts: layouts(4, 32, whole(abi.AxisBlock), whole(abi.AxisHead), whole(abi.AxisComponent),
				abi.Item{Axis: abi.AxisDim, Div: 1, Components: 1}, abi.Item{Axis: abi.AxisToken, Div: 1, Components: 1},
				abi.Item{Axis: abi.AxisToken, Div: 8, Components: 2}, abi.Item{Axis: abi.AxisDim, Div: 1, Components: 2}, abi.Item{Axis: abi.AxisToken, Mod: 8, Div: 1, Components: 2})},
		}}},
		Engines: []abi.Engine{{Name: "prefill", Labels: []abi.Label{{Key: "rack", Value: "7"}, {Key: "zone", Value: "b"}}}, {Name: "decode"}},
	}
	for i := range want.Candidates { // what matters is that they are there, and by whom
		for k := range want.Candidates[i].Costs {
			w, g := &want.Candidates[i].Costs[k], got.Candidates[i].Costs[k]
			if k == 1 && g.Pieces > 1000 { // transposed: element by element, however they merge
				w.Pieces = g.Pieces
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("input\n%+v\nwant\n%+v", got, want)
	}
	again, err := q.Input()
	if err != nil || string(again.Encode()) != string(got.Encode()) {
		t.Errorf("the same question has other bytes (%v)", err)
	}
}

func TestQuestionsThatCannotBeAsked(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(q *Question)
	}{
		{"no role", "policy question: role is 0", func(q *Question) { q.Role = 0 }},
		{"another role", "policy question: role is 3", func(q *Question) { q.Role = 3 }},
		{"previous below", "policy question: previous is -1", func(q *Question) { q.Previous = -1 }},
		{"previous above", "policy question: previous is 3", func(q *Question) { q.Previous = 3 }},
		{"attention below", "policy question: engine.candidates[1].attention is -1", func(q *Question) { q.Engine.Candidates[1].Attention = -1 }},
		{"attention above", "policy question: peers[0].candidates[0].attention is 10001", func(q *Question) { q.Peers[0].Candidates[0].Attention = MaxAttention + 1 }},
		{"long name", "policy question: peers[0].name is", func(q *Question) { q.Peers[0].Name = strings.Repeat("x", 200) }},
		{"candidate not UTF-8", "policy question: engine.candidates[0].name is", func(q *Question) { q.Engine.Candidates[0].Name = "\xff" }},
		{"long label", "policy question: engine.labels.a is", func(q *Question) { q.Engine.Labels = map[string]string{"a": strings.Repeat("x", 2000)} }},
		{"shard that cannot be", "engine prefill: shard: tp is 3", func(q *Question) { q.Engine.Shard.TP = 3 }},
		{"no layout", "policy question: engine.candidates[0] is 0 layouts and 1 pools", func(q *Question) { q.Engine.Candidates[0].Layouts = nil }},
		{"two pools for one group", "policy question: peers[0].candidates[0] is 1 layouts and 2 pools", func(q *Question) { q.Peers[0].Candidates[0].Pools = make([]plan.Pool, 2) }},
		{"model that cannot be", "engine decode: geometry: layers is 0", func(q *Question) { q.Peers[0].Model.Layers = 0 }},
		{"shard of a group's own that cannot be", "engine prefill, candidate hnd, group \"\": shard: tp is 3", func(q *Question) {
			q.Engine.Candidates[0].Pools = []plan.Pool{{Block: 16, Blocks: 4, Shard: &shard.Spec{TP: 3, Stages: []int{2}, DCPSize: 1, Interleave: 1, Order: q.Engine.Shard.Order}}}
		}},
		{"shard of a group's own over other ranks", "policy question: shard of group \"\" in candidate nhd of engine decode is 2 ranks: the engine has 4", func(q *Question) {
			q.Peers[0].Candidates[0].Pools = []plan.Pool{{Block: 16, Blocks: 4, Shard: &q.Engine.Shard}}
		}},
		{"ring that cannot be", "compare candidate hnd with nhd of engine decode: pair: source.ring is 5", func(q *Question) {
			q.Engine.Candidates[0].Pools = []plan.Pool{{Block: 16, Blocks: 4, Ring: 5}}
		}},
		{"absent layout", "engine prefill, candidate hnd: layout: order is empty", func(q *Question) { q.Engine.Candidates[0].Layouts = make([]layout.Spec, 1) }},
		{"label that lies", "engine prefill, candidate hnd: ", func(q *Question) {
			q.Engine.Candidates[0].Layouts = []layout.Spec{{Order: hnd.Layouts[0].Order, Name: "NHD"}}
		}},
		{"peer with another cache", "compare candidate hnd with nhd of engine decode: pair: model.layers differs", func(q *Question) {
			q.Peers[0].Model.Layers, q.Peers[0].Shard.Stages = 3, []int{3}
		}},
	} {
		q := question()
		q.Engine.Candidates, q.Peers[0].Candidates = append([]Candidate(nil), q.Engine.Candidates...), append([]Candidate(nil), q.Peers[0].Candidates...)
		c.change(&q)
		p := open(t, "heads")
		choice, err := p.SelectLayout(ctx, q)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || choice != (Choice{}) || p.Calls() != 0 {
			t.Errorf("%s: %+v, error %v after %d calls, want %s", c.name, choice, err, p.Calls(), c.want)
		}
	}
}

// A policy that declines is an error that names the engine and what each side
// can do; nothing takes the answer's place.
func TestDeclined(t *testing.T) {
	p := open(t, "seedbug")
	for range 2 { // and it is not remembered as an answer
		choice, err := p.SelectLayout(ctx, question())
		var declined *Declined
		var refused *host.Refused
		if !errors.As(err, &declined) || !errors.As(err, &refused) || refused.Status != abi.StatusDeclined || choice != (Choice{}) {
			t.Fatalf("%+v, error %v, want *Declined", choice, err)
		}
		if declined.Policy != "seedbug" || declined.Hook != "select_layout" || blame.Of(err) != blame.Policy {
			t.Errorf("declined by %s, hook %s, fault %s", declined.Policy, declined.Hook, blame.Of(err))
		}
		for _, want := range []string{"engine prefill can do hnd, nhd", "engine decode can do nhd", "there is no default", "connectors do not specify a kv cache layout"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
	if p.Calls() != 2 {
		t.Errorf("%d calls, want 2", p.Calls())
	}
	if _, err := p.Remap(ctx, sample.New(1).Pair()); err != nil {
		t.Errorf("its remap is sound, but %v", err)
	}
}

// An engine that offers nothing gets nothing.
func TestNothingOffered(t *testing.T) {
	q := question()
	q.Engine.Candidates = nil
	_, err := open(t, "heads").SelectLayout(ctx, q)
	var declined *Declined
	if !errors.As(err, &declined) || !strings.Contains(err.Error(), "the engine offers no layout") {
		t.Errorf("error %v, want *Declined", err)
	}
	q = question()
	q.Peers[0].Candidates = nil
	_, err = open(t, "heads").SelectLayout(ctx, q)
	if !errors.As(err, &declined) || !strings.Contains(err.Error(), "could be planned with engine decode") {
		t.Errorf("error %v, want *Declined that names the peer", err)
	}
}

func TestOpenErrorsSayWhoseFault(t *testing.T) {
	sound, _ := policies.Get("heads")
	strange := append(append([]byte(nil), sound...), "\x00\x02\x01x"...) // one custom section more
	for _, c := range []struct {
		name string
		wasm []byte
		want blame.Party
		text string
	}{
		{"not built in", strange, blame.Operator, "name a compiler"},
		{"emptied", nil, blame.Policy, "no WebAssembly module"},
		{"cut", sound[:len(sound)-1], blame.Policy, "section size"},
	} {
		p, err := Open(ctx, c.wasm, Options{})
		if err == nil {
			t.Error(errors.Join(errors.New(c.name+": opened"), p.Close()))
			continue
		}
		var e *host.Error
		var m *meter.Error
		if blame.Of(err) != c.want || !strings.Contains(err.Error(), c.text) || !errors.As(err, &e) && !errors.As(err, &m) {
			t.Errorf("%s: error %v, fault %s, want %s and %q", c.name, err, blame.Of(err), c.want, c.text)
		}
	}
	p, err := Open(ctx, strange, Options{InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.Name() != "heads" || p.Version() != "1.0.0" || p.Digest() != sha256.Sum256(strange) {
		t.Errorf("name %s, version %s, digest %s", p.Name(), p.Version(), p.Digest())
	}
	if _, err := p.Remap(ctx, sample.New(1).Pair()); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Answers are kept by what was asked, within bounds, and not beyond Close.
func TestAnswersAreRemembered(t *testing.T) {
	p := open(t, "heads")
	q := question()
	first, err := p.SelectLayout(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.SelectLayout(ctx, q); err != nil || again != first || p.Calls() != 1 {
		t.Errorf("again: %v, %v, %d calls", again, err, p.Calls())
	}
	q.Engine.Labels = map[string]string{"rack": "7"}
	if _, err := p.SelectLayout(ctx, q); err != nil || p.Calls() != 2 {
		t.Errorf("another label: %v, %d calls, want 2", err, p.Calls())
	}
	for seed := range uint64(maxAnswers + 20) {
		if _, err := p.Remap(ctx, sample.New(seed).Pair()); err != nil {
			t.Fatal(err)
		}
	}
	size := 0
	for _, k := range p.answers {
		size += k.size
	}
	if len(p.answers) != maxAnswers || len(p.recent) != maxAnswers || p.size != size {
		t.Errorf("%d answers, %d in order, size %d, want %d and the size of all, %d", len(p.answers), len(p.recent), p.size, maxAnswers, size)
	}
	p.keep(answerKey{1}, known{Answer{}, maxAssignments - 1})
	if p.size > maxAssignments || p.answers[answerKey{1}].size == 0 {
		t.Errorf("size %d after a large answer, want it kept and at most %d", p.size, maxAssignments)
	}
	p.keep(answerKey{2}, known{Answer{}, maxAssignments + 1})
	if p.answers[answerKey{2}].size != 0 || p.answers[answerKey{1}].size == 0 {
		t.Error("an answer that is larger than all may be was kept")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.SelectLayout(ctx, question()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := p.Close(); !errors.Is(err, host.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

// An answer that names what the pair does not have is the policy's fault.
func TestAssignmentsAreChecked(t *testing.T) {
	pair := sample.New(1).Pair()
	good := abi.Assignment{Components: 1, LayerTo: 1, HeadTo: 1}
	for _, c := range []struct {
		field  string
		change func(a *abi.Assignment)
	}{
		{"group", func(a *abi.Assignment) { a.Group = 0xffffffff }},
		{"components", func(a *abi.Assignment) { a.Components = 0 }},
		{"components", func(a *abi.Assignment) { a.Components = 1 << 63 }},
		{"destination rank", func(a *abi.Assignment) { a.Destination = 4096 }},
		{"source rank", func(a *abi.Assignment) { a.Source = 0x80000000 }},
		{"layers", func(a *abi.Assignment) { a.LayerTo = 0 }},
		{"heads", func(a *abi.Assignment) { a.HeadTo = 0xffffffff }},
		{"tokens", func(a *abi.Assignment) { a.TokenSize = 2 }},
	} {
		a := good
		c.change(&a)
		_, err := assignments(pair, &abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: []abi.Assignment{good}}, {Assignments: []abi.Assignment{good, a}}}})
		var e *plan.AssignmentError
		if !errors.As(err, &e) || e.Field != c.field || e.Index != 1 || !strings.HasPrefix(err.Error(), "alternative 1: ") {
			t.Errorf("%s: error %v", c.field, err)
		}
	}
}

func TestConcurrentQuestions(t *testing.T) {
	p := open(t, "heads")
	var wait sync.WaitGroup
	for g := range uint64(6) {
		wait.Go(func() {
			for seed := range uint64(20) {
				pair := sample.New(seed%7 + g%2).Pair()
				if _, err := p.Remap(ctx, pair); err != nil {
					t.Error(err)
				}
				if _, err := p.SelectLayout(ctx, question()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
