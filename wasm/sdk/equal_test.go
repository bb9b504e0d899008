package sdk_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/abi/vector"
)

const room = 1 << 20

// vectors are the questions that come with the built-in policy, encoded, by
// name.
func vectors(t testing.TB) map[string][]byte {
	t.Helper()
	list := vector.Read(t, "../../policies/heads/vectors")
	if len(list) < 20 {
		t.Fatalf("%d vectors", len(list))
	}
	out := map[string][]byte{}
	for _, q := range list {
		out[q.Name+".json"] = q.In
	}
	return out
}

// drawSelection is a layout selection as no engine would ask it, in all its
// corners.
func drawSelection(m *sample.Maker) []byte {
	names := []string{"hnd", "nhd", "", "größer", strings.Repeat("é", 60), "良い" + strings.Repeat("x", 99)}
	in := &abi.SelectLayoutIn{Engine: "prefill", Model: "m", Role: uint32(1 + m.IntN(2)), Candidates: make([]abi.Candidate, m.IntN(5)), Peers: make([]abi.Peer, m.IntN(4))}
	if m.Chance(3) {
		in.Role = uint32(m.IntN(5))
	}
	for i := range in.Peers {
		in.Peers[i] = abi.Peer{Engine: names[m.IntN(len(names))], Candidates: make([]abi.Candidate, m.IntN(4))}
		for k := range in.Peers[i].Candidates {
			in.Peers[i].Candidates[k].Attention = uint32(m.IntN(2) * m.IntN(500))
		}
	}
	figure := func() uint64 {
		switch m.IntN(6) {
		case 0:
			return 0
		case 1:
			return 1<<64 - 1 - uint64(m.IntN(3))
		}
		return uint64(m.IntN(1 << 20))
	}
	for i := range in.Candidates {
		c := &in.Candidates[i]
		c.Name, c.Attention = names[m.IntN(len(names))], uint32(m.IntN(3)*m.IntN(20000))
		for p := range in.Peers {
			for k := range in.Peers[p].Candidates {
				if m.Chance(90) {
					c.Costs = append(c.Costs, abi.Cost{Peer: uint32(p), Candidate: uint32(k + m.IntN(20)/19), Pieces: figure(), Bytes: figure()})
				}
			}
		}
	}
	in.Previous = uint32(m.IntN(len(in.Candidates) + 2))
	return in.Encode()
}

// spoil changes something of a question about a pair.
func spoil(m *sample.Maker, in *abi.RemapIn) {
	for range 1 + m.IntN(3) {
		side := &in.Sides[m.IntN(2)]
		if len(side.Ranks) == 0 {
			continue
		}
		rank := &side.Ranks[m.IntN(len(side.Ranks))]
		if len(rank.Parts) == 0 {
			continue
		}
		part := &rank.Parts[m.IntN(len(rank.Parts))]
		switch m.IntN(9) {
		case 0:
			rank.Parts = rank.Parts[1:]
		case 1:
			part.Group = uint32(m.IntN(4))
		case 2:
			part.Components = uint64(m.IntN(8))
		case 3:
			part.DCPSize, part.DCPPhase = uint32(m.IntN(4)), uint32(m.IntN(4))
		case 4:
			part.DCPInterleave = uint32(m.IntN(3))
		case 5:
			part.Layers = append(part.Layers, abi.Range{From: uint32(m.IntN(9)), To: uint32(m.IntN(9))})
		case 6:
			part.Heads = []abi.Range{{From: uint32(m.IntN(9)), To: uint32(m.IntN(20))}, {From: uint32(m.IntN(9)), To: uint32(m.IntN(20))}}
		case 7:
			rank.Rank = uint32(m.IntN(100))
		case 8:
			c := &in.Groups[0].Components[m.IntN(len(in.Groups[0].Components))]
			c.Scales, c.TokensPerEntry, c.Heads = uint32(m.IntN(4)), uint32(m.IntN(3)), uint32(m.IntN(9))
		}
	}
}

// questions are all vectors, pairs of all kinds, and what no host would ask.
func questions(t testing.TB, n int) map[string][]byte {
	out := vectors(t)
	for seed := range uint64(n) {
		m := sample.New(seed)
		in := policy.RemapInput(m.Pair())
		out[fmt.Sprintf("pair %d", seed)] = in.Encode()
		spoil(m, in)
		out[fmt.Sprintf("spoiled pair %d", seed)] = in.Encode()
		out[fmt.Sprintf("selection %d", seed)] = drawSelection(m)
	}
	out["a pair of no sides"] = (&abi.RemapIn{}).Encode()
	out["a group of no components"] = (&abi.RemapIn{Groups: make([]abi.Group, 1), Sides: make([]abi.Side, 2)}).Encode()
	for _, name := range []string{"remap-seed.json", "select-nhd.json"} {
		cut := bytes.Clone(out[name])
		out["cut "+name] = cut[:len(cut)-8]
		other := bytes.Clone(cut)
		other[6] = 2 // another major
		out["major 2 of "+name] = other
	}
	return out
}

// The policy heads gives the same answers in every language that there is an SDK
// for, to the byte: on the vectors, on 1,000 pairs, on as many that no host
// would ask about, and on layout selections; refusals included.
func TestHeadsIsTheSameInEveryLanguage(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	all := questions(t, n)
	c, _ := policies.Get("heads")
	reference := run(t, c, room)
	want, statuses := map[string]answer{}, map[uint32]int{}
	for name, in := range all {
		a := reference.call(hookOf(in), in, room)
		want[name] = a
		statuses[a.status]++
	}
	if statuses[abi.StatusOk] < 2*n || statuses[abi.StatusDeclined] < n/20 || statuses[abi.StatusBadInput] < 4 {
		t.Errorf("statuses %v: the draw shows nothing", statuses)
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			g := run(t, l.heads(t), room)
			wrong := 0
			for name, in := range all {
				got := g.call(hookOf(in), in, room)
				if w := want[name]; got.status != w.status || got.low != w.low || !bytes.Equal(got.bytes, w.bytes) {
					t.Errorf("%s: status %d, %d bytes\n%x\nC answers status %d, %d bytes\n%x", name, got.status, got.low, got.bytes, w.status, w.low, w.bytes)
					if wrong++; wrong == 3 {
						t.Fatal("and so on")
					}
				}
			}
			if t.Logf("%d instances for %d questions", g.made, len(all)); g.made > len(all)/100+1 {
				t.Errorf("%d instances were made for %d questions: calls leave what the host cannot put back", g.made, len(all))
			}
		})
	}
}

// Where the buffer is too small all say the same size, and that size is enough.
func TestSmallBuffers(t *testing.T) {
	c, _ := policies.Get("heads")
	reference := run(t, c, room)
	v := vectors(t)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			g := run(t, l.heads(t), room)
			for _, name := range []string{"remap-groups-gdn.json", "select-nhd.json"} {
				in := v[name]
				whole := reference.call(hookOf(in), in, room)
				for _, room := range []uint32{0, 7, 8, 40, 64, whole.low - 8, whole.low - 1, whole.low, whole.low + 7} {
					got, want := g.call(hookOf(in), in, room), reference.call(hookOf(in), in, room)
					if got.status != want.status || got.low != whole.low || !bytes.Equal(got.bytes, want.bytes) {
						t.Errorf("%s in %d bytes: status %d, %d bytes; C answers status %d, %d bytes", name, room, got.status, got.low, want.status, want.low)
					}
					if again := room&^7 < whole.low; again != (got.status == abi.StatusAgain) {
						t.Errorf("%s in %d bytes of %d: status %d", name, room, whole.low, got.status)
					}
				}
			}
		})
	}
}

// A call in each language beside the same in C.
func BenchmarkHeads(b *testing.B) {
	c := language{"c", func(testing.TB) []byte { w, _ := policies.Get("heads"); return w }}
	for _, name := range []string{"select-nhd", "remap-seed", "remap-groups-gdn"} {
		in := vectors(b)[name+".json"]
		for _, l := range append([]language{c}, languages...) {
			b.Run(name+"/"+l.name, func(b *testing.B) {
				g := run(b, l.heads(b), 64<<10)
				for b.Loop() {
					g.call(hookOf(in), in, 64<<10)
				}
			})
		}
	}
}
