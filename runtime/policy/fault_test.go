package policy

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
)

// guest is a module whose two hooks run the given code, put together by hand:
// its arena is at 4096 in a memory of two pages, whatever is asked for.
func guest(t *testing.T, code ...byte) *Policy {
	t.Helper()
	section := func(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	hook := slices.Concat([]byte{0}, code, []byte{0x0b})
	linked := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte("\x02\x60\x01\x7f\x01\x7f\x60\x04\x7f\x7f\x7f\x7f\x01\x7e")...),
		section(3, 2, 0, 1),
		section(5, 1, 0, 2),
		section(7, []byte("\x04\x06memory\x02\x00\x0dkvferry_arena\x00\x00\x0dkvferry_remap\x00\x01\x15kvferry_select_layout\x00\x01")...),
		section(10, slices.Concat([]byte{2, 5, 0, 0x41, 0x80, 0x20, 0x0b, byte(len(hook))}, hook)...),
	)
	sealed, err := module.Seal(linked, []byte(`{"name": "guest", "version": "0.1.0", "hooks": ["remap", "select_layout"], "abi": {"min": "1.0", "max": "1.0"}}`), abi.Minor)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(ctx, sealed, Options{InProcess: true})
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

// status is the hook's result: status << 32, no bytes.
func status(s byte) []byte { return []byte{0x42, s, 0x42, 0x20, 0x86} } // i64.const s; i64.const 32; i64.shl

// Each kind of failure says whose fault it is, in both hooks, and gives no
// answer.
func TestFailuresSayWhoseFault(t *testing.T) {
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	var (
		fault    *host.Fault
		declined *Declined
		broken   *host.Error
	)
	for _, c := range []struct {
		name string
		code []byte
		ctx  context.Context
		as   any // what errors.As must find; nil: see is
		is   error
		want blame.Party
		text string
	}{
		{"traps", []byte{0x00}, ctx, &fault, nil, blame.Policy, "trapped"},
		{"answers nothing", status(abi.StatusOk), ctx, &fault, nil, blame.Policy, "answered what cannot be read"},
		{"status of no version", status(9), ctx, &fault, nil, blame.Policy, "status 9 is none of kvferry/1"},
		{"wants more than it can hold", []byte{0x42, 1, 0x42, 0x20, 0x86, 0x42, 0x80, 0x80, 0x08, 0x84}, ctx, &broken, nil, blame.Policy, "export kvferry_arena"},
		{"declines", status(abi.StatusDeclined), ctx, &declined, nil, blame.Policy, "there is no default: policy guest declined"},
		{"does not support it", status(abi.StatusUnsupported), ctx, &declined, nil, blame.Policy, "there is no default: policy guest does not support this"},
		{"calls the input bad", status(abi.StatusBadInput), ctx, &declined, nil, blame.Policy, "there is no default: policy guest calls the input bad"},
		{"cancelled", status(abi.StatusDeclined), cancelled, nil, context.Canceled, blame.Local, "canceled"},
	} {
		p := guest(t, c.code...)
		answer, err := p.Remap(c.ctx, sample.New(1).Pair())
		choice, too := p.SelectLayout(c.ctx, question())
		if len(answer.Alternatives) > 0 || choice != (Choice{}) {
			t.Errorf("%s: an answer came with the error: %+v, %+v", c.name, answer, choice)
		}
		for hook, err := range map[string]error{"remap": err, "select_layout": too} {
			if c.as != nil && !errors.As(err, c.as) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: hook %s: error %v (%T), want one that holds %T%v", c.name, hook, err, err, c.as, c.is)
				continue
			}
			if blame.Of(err) != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: hook %s: error %v, fault %s, want %s and %q", c.name, hook, err, blame.Of(err), c.want, c.text)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Remap(ctx, sample.New(1).Pair()); !errors.Is(err, host.ErrClosed) || blame.Of(err) != blame.Local {
			t.Errorf("%s: after Close: error %v, fault %s", c.name, err, blame.Of(err))
		}
	}
}

// A remap that is declined names both engines and how each is divided.
func TestDeclinedRemapNamesBothSides(t *testing.T) {
	pair := sample.New(1).Pair()
	_, err := guest(t, status(abi.StatusDeclined)...).Remap(ctx, pair)
	var declined *Declined
	if !errors.As(err, &declined) || declined.Hook != "remap" || len(declined.Can) != 2 {
		t.Fatalf("error %v, want *Declined that names two sides", err)
	}
	for _, s := range []*plan.Side{&pair.Source, &pair.Destination} {
		if want := "engine " + s.Engine + " has " + strings.TrimSpace(s.Shard.Text()); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q does not say %q in one line", err, want)
		}
	}
}

// An answer that was meant for another pair names what this one does not have.
func TestAnswerForAnotherPair(t *testing.T) {
	p := open(t, "heads")
	var large, small *plan.Pair
	for seed := uint64(0); large == nil || small == nil; seed++ {
		switch pair := sample.New(seed).Pair(); {
		case len(pair.Source.Ranks) >= 4 && len(pair.Source.Model.Groups) == 1 && large == nil:
			large = pair
		case len(pair.Source.Ranks) == 1 && len(pair.Source.Model.Groups) == 1 && small == nil:
			small = pair
		}
	}
	out, err := p.host.Remap(ctx, RemapInput(large).Encode())
	if err != nil {
		t.Fatal(err)
	}
	_, err = assignments(small, out)
	var e *plan.AssignmentError
	if !errors.As(err, &e) {
		t.Errorf("error %v, want a *plan.AssignmentError", err)
	}
}

// A combination that cannot be planned has no cost, the others keep theirs; a
// policy sees which.
func TestWhatCannotBePlannedHasNoCost(t *testing.T) {
	q := question()
	for _, e := range []*Engine{&q.Engine, &q.Peers[0]} { // half a byte a value: a token's row of one dim cannot be cut
		e.Model.Groups = []geometry.Group{{Layers: []int{0, 1}, Components: []geometry.Component{
			{Name: "k", Heads: 8, Dim: 16, DType: geometry.FP4}, {Name: "v", Heads: 8, Dim: 16, DType: geometry.FP4},
		}}}
	}
	odd := hnd
	odd.Name, odd.Layouts = "transposed", []layout.Spec{sample.Order("block head component dim token")}
	q.Engine.Candidates = []Candidate{odd, hnd}
	in, err := q.Input()
	if err != nil {
		t.Fatal(err)
	}
	if got := in.Candidates[0].Costs; len(got) != 0 {
		t.Errorf("costs %+v of what cannot be planned, want none", got)
	}
	if got := in.Candidates[1].Costs; len(got) != 1 || got[0].Pieces == 0 || got[0].Bytes == 0 {
		t.Errorf("costs %+v, want one", got)
	}
	p := open(t, "heads")
	if choice, err := p.SelectLayout(ctx, q); err != nil || choice.Index != 1 {
		t.Errorf("chose %+v (%v), want what can be planned", choice, err)
	}
	q.Engine.Candidates = q.Engine.Candidates[:1]
	_, err = p.SelectLayout(ctx, q)
	var declined *Declined
	if !errors.As(err, &declined) || !reflect.DeepEqual(declined.Can, []string{"engine prefill can do transposed", "engine decode can do nhd"}) || blame.Of(err) != blame.Policy {
		t.Errorf("error %v, want *Declined", err)
	}
}

// The record of a question about a pair, field by field.
func TestRemapInput(t *testing.T) {
	a, b := engine("prefill", 2, hnd), engine("decode", 4, nhd)
	b.Shard.DCPSize, b.Shard.TP = 2, 2
	source, err := a.Candidates[0].side(a)
	if err != nil {
		t.Fatal(err)
	}
	destination, err := b.Candidates[0].side(b)
	if err != nil {
		t.Fatal(err)
	}
	got := RemapInput(&plan.Pair{Source: source, Destination: destination})
	layers := []abi.Range{{From: 0, To: 2}}
	rank := func(r, tp, dcp, phase, size uint32) abi.Rank {
		return abi.Rank{Rank: r, TP: tp, DCP: dcp, Parts: []abi.Part{{Components: 3, DCPSize: size, DCPInterleave: 1, DCPPhase: phase, Layers: layers, Heads: []abi.Range{{From: 4 * tp, To: 4*tp + 4}}}}}
	}
	pool := []abi.Pool{{Block: 16, Blocks: 4}}
	want := &abi.RemapIn{Model: "llama", Layers: 2,
		Groups: []abi.Group{{Layers: layers, Components: []abi.Component{
			{Name: "k", Heads: 8, Dim: 16, Dtype: abi.DtypeBf16, Bits: 16, Unit: 1, TokensPerEntry: 1}, {Name: "v", Heads: 8, Dim: 16, Dtype: abi.DtypeBf16, Bits: 16, Unit: 1, TokensPerEntry: 1},
		}}},
		Engines: []abi.Engine{{Name: "prefill"}, {Name: "decode"}},
		Sides: []abi.Side{
			{Engine: "prefill", TP: 2, Stages: 1, DCP: 1, Interleave: 1, Pools: pool, Ranks: []abi.Rank{rank(0, 0, 0, 0, 1), rank(1, 1, 0, 0, 1)}},
			{Engine: "decode", TP: 2, Stages: 1, DCP: 2, Interleave: 1, Pools: pool, Ranks: []abi.Rank{rank(0, 0, 0, 0, 2), rank(1, 0, 1, 1, 2), rank(2, 1, 0, 0, 2), rank(3, 1, 1, 1, 2)}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("input\n%+v\nwant\n%+v", got, want)
	}
	back, err := abi.DecodeRemapIn(got.Encode())
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("read back %+v (%v)", back, err)
	}
}
