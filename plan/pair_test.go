package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
)

// hybrid is a pair with a group of tokens that is sharded as the engine is, one
// of states with a shard of its own, and one of entries of several tokens.
func hybrid(t testing.TB) *plan.Pair {
	t.Helper()
	p, _ := fixture.Parse(t, `
model:
  name: hybrid
  layers: 4
  groups:
    - {name: attention, layers: "1,3", window: 32, components: [{name: k, heads: 4, dim: 4, dtype: bf16}, {name: v, heads: 4, dim: 4, dtype: bf16}]}
    - {name: mamba, layers: "0,2", state: true, components: [{name: x, channels: 8, dim: 3, dtype: bf16}, {name: ssm, channels: 4, dim: 4, dtype: fp32}]}
    - {name: compressed, layers: "2", components: [{name: c, heads: 0, dim: 4, dtype: bf16, tokens_per_entry: 4}, {name: k, heads: 0, dim: 4, dtype: bf16}]}
source:
  engine: p
  shard: {tp: 2, dcp: {size: 2, interleave: 4}}
  groups:
    attention: {block: 8, blocks: 16, ring: 6, layout: {order: [block, head, token, component, dim]}}
    mamba: {slots: 4, shard: {tp: 4}, layout: {order: [slot, component, channel, dim]}}
    compressed: {block: 16, blocks: 8, layout: {order: [block, token, dim]}}
destination:
  engine: d
  shard: {tp: 1}
  groups:
    attention: {block: 16, blocks: 16, layout: {order: [block, token, head, component, dim]}}
    mamba: {slots: 4, layout: {order: [slot, component, channel, dim]}}
    compressed: {block: 4, blocks: 8, layout: {order: [block, token, dim]}}
`)
	return p
}

func TestSideValidate(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*plan.Side)
		want  string
	}{
		{"engine", func(s *plan.Side) { s.Engine = "" }, `pair: source.engine is "": an engine's name has 1 to 128 bytes`},
		{"model", func(s *plan.Side) { s.Model.Layers = 0 }, "pair: source: geometry: layers is 0: want 1 to 16384"},
		{"pools", func(s *plan.Side) { s.Groups = s.Groups[:2] }, "pair: source.groups is 2: the model has 3"},
		{"shard", func(s *plan.Side) { s.Shard.TP = 3 }, "pair: source: shard: tp is 3: 4 heads of group \"attention\" (component k) do not split evenly over tp 3"},
		{"the engine's shard parts an entry", func(s *plan.Side) { s.Shard.Interleave = 2 }, `pair: source: shard: dcp.interleave is 2: parts the entries of 4 tokens that group "compressed" has`},
		{"the engine's shard deals states", func(s *plan.Side) { s.Groups[1].Shard = nil }, `pair: source: shard: dcp.size is 2: group "mamba" keeps states, which have no tokens to deal: give the group a shard of its own`},
		{"a group's own shard", func(s *plan.Side) { own := *s.Groups[1].Shard; own.TP = 3; s.Groups[1].Shard = &own }, `pair: source: group "mamba": shard: tp is 3: 8 channels of group "mamba" (component x) do not split evenly over tp 3`},
		{"a group's own shard over other ranks", func(s *plan.Side) { own := *s.Groups[1].Shard; own.TP = 2; s.Groups[1].Shard = &own }, `pair: source.shard is 2: group "mamba" is sharded over that many ranks, the engine has 4`},
		{"own", func(s *plan.Side) { s.Own = []int{0, 1} }, "pair: source.own is 2: there are 3 groups"},
		{"own twice", func(s *plan.Side) { s.Own = []int{0, 1, 0} }, "pair: source.own[2] is 0: want the indices of groups, each once"},
		{"own below", func(s *plan.Side) { s.Own = []int{0, -1, 2} }, "pair: source.own[1] is -1: want the indices of groups, each once"},
		{"own beyond", func(s *plan.Side) { s.Own = []int{0, 64, 2} }, "pair: source.own[1] is 64: want the indices of groups, each once"},
		{"ranks", func(s *plan.Side) { s.Ranks = s.Ranks[:3] }, "pair: source.ranks is 3: the shard has 4"},
		{"block", func(s *plan.Side) { s.Groups[0].Block = 0 }, "pair: source.groups[0].block is 0: want 1 to 1048576 tokens"},
		{"block of a state", func(s *plan.Side) { s.Groups[1].Block = 2 }, `pair: source.groups[1].block is 2: a slot of group "mamba" holds one state`},
		{"block that parts an entry", func(s *plan.Side) { s.Groups[2].Block = 6 }, "pair: source.groups[2].block is 6: component c has an entry for every 4 tokens"},
		{"blocks", func(s *plan.Side) { s.Groups[0].Blocks = 0 }, "pair: source.groups[0].blocks is 0: want 1 to 268435456"},
		{"ring below", func(s *plan.Side) { s.Groups[0].Ring = -1 }, "pair: source.groups[0].ring is -1: want 0 (no ring) to 16 blocks"},
		{"ring larger than the pool", func(s *plan.Side) { s.Groups[0].Ring = 17 }, "pair: source.groups[0].ring is 17: want 0 (no ring) to 16 blocks"},
		{"ring of states", func(s *plan.Side) { s.Groups[1].Ring = 1 }, "pair: source.groups[1].ring is 1: want 0 (no ring) to 4 blocks, and none in a group of states"},
		{"layouts of a rank", func(s *plan.Side) { s.Ranks[1] = s.Ranks[1][:2] }, "pair: source.ranks[1].layouts is 2: want one a group, 3"},
		{"no layout", func(s *plan.Side) { s.Ranks[1][1] = nil }, "pair: source.ranks[1].layouts[1] is absent: the rank holds layers 0,2 and there is no default layout"},
		{"a layout of other heads", func(s *plan.Side) {
			s.Ranks[2][0] = changed(s.Ranks[2][0], func(e *layout.Extent) { e.Heads = []int{2, 1} })
		}, "pair: source.ranks[2].layouts[0].heads is [2 1]: the rank's shard says [2 2]"},
		{"a layout of other layers", func(s *plan.Side) {
			s.Ranks[2][0] = changed(s.Ranks[2][0], func(e *layout.Extent) { e.Layers = []int{1} })
		}, "pair: source.ranks[2].layouts[0].layers is 1: the rank's shard says 1,3"},
		{"a layout of no state", func(s *plan.Side) { s.Ranks[3][1] = changed(s.Ranks[3][1], func(e *layout.Extent) { e.State = false }) }, "pair: source.ranks[3].layouts[1].state is false: the rank's shard says true"},
		{"a layout that is none", func(s *plan.Side) {
			l := *s.Ranks[3][1]
			l.Regions = nil
			s.Ranks[3][1] = &l
		}, "pair: source: check rank 3: layout: "},
	} {
		s := hybrid(t).Source
		for r := range s.Ranks {
			s.Ranks[r] = slices.Clone(s.Ranks[r])
		}
		if err := s.Validate("source"); err != nil {
			t.Fatal(err)
		}
		c.spoil(&s)
		err := s.Validate("source")
		var e *plan.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	// With one group its fields are the side's.
	s := fixture.Pair(t, 1, fixture.KV(2, 4, "bf16"), fixture.Side("{tp: 1}", 8, "hnd"), fixture.Side("{tp: 1}", 8, "hnd")).Source
	for _, c := range []struct {
		pool plan.Pool
		want string
	}{
		{plan.Pool{Block: 8, Blocks: 512, Ring: 513}, "pair: source.ring is 513"},
		{plan.Pool{Block: 1<<20 + 1, Blocks: 512}, "pair: source.block is 1048577"},
		{plan.Pool{Block: 8, Blocks: 511}, "pair: source.ranks[0].layout.blocks is 512: the rank's shard says 511"},
	} {
		s.Groups[0] = c.pool
		if err := s.Validate("source"); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func changed(l *layout.Layout, f func(*layout.Extent)) *layout.Layout {
	out := *l
	f(&out.Extent)
	return &out
}

// A group of its own shard is held as that says, not as the engine's.
func TestGroupsOwnShard(t *testing.T) {
	p := hybrid(t)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	s := &p.Source
	if s.ShardOf(0) != &s.Shard || s.ShardOf(1) != s.Groups[1].Shard {
		t.Error("a group's shard is not the one that it has")
	}
	for r := range s.Ranks {
		// Rank r stands at tp r/2, dcp r%2 of the engine and at tp r of the group's.
		attention, mamba := s.Part(0, r), s.Part(1, r)
		if attention.Size != 2 || attention.Phase != r%2 || !slices.Equal(attention.Heads[0], []int{r / 2 * 2, r/2*2 + 1}) {
			t.Errorf("rank %d holds %+v", r, attention)
		}
		if mamba.Size != 1 || !slices.Equal(mamba.Heads[0], []int{2 * r, 2*r + 1}) || !slices.Equal(mamba.Heads[1], []int{r}) {
			t.Errorf("rank %d holds %+v", r, mamba)
		}
	}
	check(t, "hybrid", p)
}

// Everything that a plan depends on is in the digest: pools, rings, shards of
// groups, and which of its groups an engine has in the pair.
func TestPairText(t *testing.T) {
	text := hybrid(t).Text()
	for _, want := range []string{
		"pool 0 block 8 blocks 16 ring 6\n",
		"pool 1 block 1 blocks 4\npool shard tp 4 pp [4] dcp 1 interleave 1 order pp,tp,dcp\n",
		"pool 2 block 16 blocks 8\n",
		"group \"mamba\" layers 0,2 state\n",
		"group \"attention\" layers 1,3 window 32\n",
		"component \"c\" heads 0 dim 4 dtype bf16 entry 4\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	digest := hybrid(t).Digest()
	for name, change := range map[string]func(*plan.Pair){
		"ring":       func(p *plan.Pair) { p.Source.Groups[0].Ring = 5 },
		"no ring":    func(p *plan.Pair) { p.Source.Groups[0].Ring = 0 },
		"own shard":  func(p *plan.Pair) { p.Source.Groups[1].Shard = &shard.Spec{} },
		"own groups": func(p *plan.Pair) { p.Destination.Own = []int{0, 1, 2} },
		"others":     func(p *plan.Pair) { p.Destination.Own = []int{0, 1, 3} },
		"left":       func(p *plan.Pair) { p.Destination.Model.Left = 1 },
		"scales":     func(p *plan.Pair) { p.Source.Model.Groups[2].Components = scales(p.Source.Model.Groups[2].Components) },
		"block": func(p *plan.Pair) {
			p.Source.Ranks[0][0] = changed(p.Source.Ranks[0][0], func(e *layout.Extent) { e.Tokens = 9 })
		},
	} {
		p := hybrid(t)
		change(p)
		if p.Digest() == digest {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if hybrid(t).Digest() != digest {
		t.Error("the digest is not always the same")
	}
}

func scales(in []geometry.Component) []geometry.Component {
	out := slices.Clone(in)
	out[0].Scales = "k"
	return out
}
