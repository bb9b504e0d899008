package difference_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy/difference"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
)

func built(t *testing.T, p *plan.Pair, as []plan.Assignment) *plan.Plan {
	t.Helper()
	pl, err := build.Build(p, as, nil, plan.DefaultBudget())
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

func of(t *testing.T, p *plan.Pair, a, b []plan.Assignment) *difference.Plans {
	t.Helper()
	d, err := difference.Of(p, built(t, p, a), p, built(t, p, b))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// box is an assignment of all components of the first group.
func box(destination, source, layers, from, to int) plan.Assignment {
	return plan.Assignment{Components: 3, Destination: destination, Source: source, Layers: plan.Range{To: layers}, Heads: plan.Range{From: from, To: to}}
}

// The same moves in other boxes, in another order, are no difference.
func TestBoxesDoNotMatter(t *testing.T) {
	compared := 0
	for seed := range uint64(150) {
		m := sample.New(seed)
		pair := m.Pair()
		as := m.Assign(pair)
		if _, err := build.Build(pair, as, nil, plan.DefaultBudget()); err != nil {
			continue
		}
		var finer []plan.Assignment
		for _, a := range as {
			for l := a.Layers.From; l < a.Layers.To; l++ {
				one := a
				one.Layers = plan.Range{From: l, To: l + 1}
				finer = append([]plan.Assignment{one}, finer...)
			}
		}
		if _, err := build.Build(pair, finer, nil, plan.DefaultBudget()); err != nil {
			continue
		}
		compared++
		if d := of(t, pair, as, finer); !d.Same() {
			t.Errorf("seed %d: %+v", seed, d)
		}
	}
	if compared < 60 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// What moves from another rank is named: which rank, components, layers and
// heads, and what moves over which edge.
func TestReplicas(t *testing.T) {
	// Two heads on eight source ranks and four destination ranks.
	pair := fixture.Pair(t, "../../../testdata/pairs/replicas-both.yaml")
	layers := pair.Source.Model.Layers
	for _, c := range []struct {
		name string
		b    func([]plan.Assignment) []plan.Assignment
		want string
	}{
		{"the same", func(as []plan.Assignment) []plan.Assignment { return as }, ""},
		{"a replica", func(as []plan.Assignment) []plan.Assignment { as[0].Source++; return as }, "rank 0 -> rank 0: a moves 524288 bytes of a request of 4096 tokens, b 0\n" +
			"rank 1 -> rank 0: a moves 0 bytes of a request of 4096 tokens, b 524288\n" +
			"rank 0, k, v, layers 0-1, heads 0: a takes it from rank 0, b from rank 1"},
		{"nothing for one", func(as []plan.Assignment) []plan.Assignment { return as[1:] }, "rank 0 -> rank 0: a moves 524288 bytes of a request of 4096 tokens, b 0\n" +
			"rank 0, k, v, layers 0-1, heads 0: a takes it from rank 0, b from none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := func() []plan.Assignment {
				var as []plan.Assignment
				for d := range pair.Destination.Ranks {
					head := pair.Destination.Part(0, d).Heads[0][0]
					for s := range pair.Source.Ranks {
						if pair.Source.Part(0, s).Heads[0][0] == head {
							as = append(as, box(d, s, layers, head, head+1))
							break
						}
					}
				}
				return as
			}
			d := of(t, pair, base(), c.b(base()))
			if got := strings.Join(d.Lines("a", "b"), "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if d.Same() != (c.want == "") {
				t.Error("Same contradicts its lines")
			}
		})
	}
}

// Ranks that hold some tokens only feed those.
func TestTokens(t *testing.T) {
	pair := fixture.Pair(t, "../../../testdata/pairs/dcp-source.yaml")
	layers, heads := pair.Source.Model.Layers, pair.Source.Model.Groups[0].Components[0].Heads
	var all, parted []plan.Assignment
	for d := range pair.Destination.Ranks {
		for s := range pair.Source.Ranks {
			all = append(all, box(d, s, layers, 0, heads))
			part := pair.Source.Part(0, s)
			one := box(d, s, layers, 0, heads)
			one.Tokens = plan.Tokens{Size: part.Size, Interleave: part.Interleave, Phase: part.Phase}
			parted = append(parted, one)
		}
	}
	if d := of(t, pair, all, parted); !d.Same() {
		t.Errorf("what a rank does not hold does not move, and is no difference: %v", d.Lines("a", "b"))
	}
	d := of(t, pair, all, parted[:len(parted)-1])
	if len(d.Boxes) != 1 || !strings.Contains(d.Boxes[0].A, "of every") || reflect.DeepEqual(d.Boxes[0].A, d.Boxes[0].B) {
		t.Errorf("%+v", d)
	}
}
