package matrix_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// pool is how one group lies on a side.
type pool struct {
	preset string
	block  int
}

// half is one side of a case. What is left out is one.
type half struct {
	tp         int
	stages     []int
	dcp        int
	interleave int
	heads      [][]int
	order      []shard.Grid
	pools      []pool
}

// instance is a case: a pair, and one request of it.
type instance struct {
	clause              string
	layers              int
	groups              []geometry.Group
	source, destination half
	tokens              int64 // the request ends at or below
	write               bool  // the source submits
	part                bool  // some of the layers only
	seed                uint64
}

// name says what the case is.
func (c *instance) name() string {
	g := c.groups[0]
	say := func(h half) string {
		s := fmt.Sprintf("tp%d", h.tp)
		if len(h.stages) > 1 {
			s += fmt.Sprintf("pp%v", h.stages)
		}
		if h.dcp > 1 {
			s += fmt.Sprintf("dcp%dx%d", h.dcp, h.interleave)
		}
		for _, p := range h.pools {
			s += fmt.Sprintf(",%s,%d", p.preset, p.block)
		}
		return s
	}
	return fmt.Sprintf("%s/%d_heads_%s:%s->%s#%d", c.clause, g.Components[0].Heads, g.Components[0].DType, say(c.source), say(c.destination), c.seed)
}

// attention is a group with K and V.
func attention(layers, heads, k, v int, dtype geometry.DType) []geometry.Group {
	g := geometry.Group{Components: []geometry.Component{{Name: "k", Heads: heads, Dim: k, DType: dtype}, {Name: "v", Heads: heads, Dim: v, DType: dtype}}}
	for l := range layers {
		g.Layers = append(g.Layers, l)
	}
	return []geometry.Group{g}
}

// latent is a group of MLA.
func latent(layers int, dtype geometry.DType) []geometry.Group {
	gs := attention(layers, 0, 24, 8, dtype)
	gs[0].Components[0].Name, gs[0].Components[1].Name = "latent", "rope"
	return gs
}

// rowwise are the presets of attention whose rows of dim stay together.
var rowwise = []string{
	"vllm/packed-hnd", "vllm/packed-nhd", "vllm/split-hnd", "vllm/split-nhd", "vllm/joint-hnd", "vllm/joint-nhd",
	"vllm/lbhnc", "vllm/lbnhc", "vllm/lhbnc", "vllm/blhnc", "vllm/blnhc", "vllm/bhlnc", "vllm/cross-layer",
	"trtllm/pool", "trtllm/pool-nhd", "sglang/mha",
	"dynamo/universal", "dynamo/universal-pp", "dynamo/operational-hnd", "dynamo/operational-nhd",
}

// presets are those of attention; x-packed is that of the element size.
var presets = append(slices.Clone(rowwise), "vllm/cpu-vec", "vllm/cpu-amx", "vllm/x-packed")

// presetOf returns the preset for elements of the size.
func presetOf(name string, bits int64) (preset.Preset, error) {
	if name == "vllm/x-packed" && bits != 16 {
		name = fmt.Sprintf("vllm/x-packed-%d", 128/bits)
	}
	p, ok := preset.Get(name)
	if !ok {
		return p, fmt.Errorf("no preset %q", name)
	}
	return p, nil
}

// fits reports whether a preset takes elements and blocks of the sizes.
func fits(name string, bits int64, block int) bool {
	switch name {
	case "vllm/cpu-vec":
		return bits == 16 || bits == 32
	case "vllm/cpu-amx":
		return bits == 16 && block%16 == 0
	case "vllm/x-packed":
		return bits >= 8
	}
	return true
}

// lists deals heads to ranks where they do not split evenly: nearly equal
// parts in order, or by chance in any order; more ranks than heads share them.
func lists(heads, tp int, shuffle bool, rng *rand.Rand) [][]int {
	if heads == 0 || heads%tp == 0 || tp%heads == 0 {
		return nil
	}
	deal := make([]int, heads)
	for i := range deal {
		deal[i] = i
	}
	if shuffle {
		deal = rng.Perm(heads)
	}
	out := make([][]int, tp)
	for t := range out {
		from, to := t*heads/tp, (t+1)*heads/tp
		if tp > heads {
			to = from + 1
		}
		out[t] = slices.Clone(deal[from:to])
	}
	return out
}

// entries is how many table entries hold tokens up to to.
func entries(s *plan.Side, g int, to int64) int {
	_, hi := stamp.Entries(s, g, 0, to)
	return int(hi)
}

// side makes the plan.Side of a half whose pools hold a request up to token
// to, and more.
func (c *instance) side(engine string, h half, to int64, rng *rand.Rand) (plan.Side, error) {
	order, err := shard.Order(h.order)
	if err != nil {
		return plan.Side{}, err
	}
	stages := h.stages
	if stages == nil {
		stages = []int{c.layers}
	}
	s := plan.Side{Engine: engine, Model: geometry.Model{Name: "matrix", Layers: c.layers, Groups: c.groups},
		Shard: shard.Spec{TP: h.tp, Stages: stages, DCPSize: max(h.dcp, 1), Interleave: max(h.interleave, 1), Heads: h.heads, Order: order}}
	s.Ranks = make([][]*layout.Layout, s.Shard.Ranks())
	for gi, g := range c.groups {
		s.Groups = append(s.Groups, plan.Pool{Block: h.pools[gi].block})
		s.Groups[gi].Blocks = entries(&s, gi, to) + rng.IntN(4)
		p, err := presetOf(h.pools[gi].preset, g.Components[0].DType.Bits())
		if err != nil {
			return s, err
		}
		known := map[string]*layout.Layout{}
		for r := range s.Ranks {
			part := s.Part(gi, r)
			if len(part.Layers) == 0 {
				s.Ranks[r] = append(s.Ranks[r], nil)
				continue
			}
			e := part.Extent(g, s.Groups[gi].Block, s.Groups[gi].Blocks)
			key := fmt.Sprint(e.Layers, e.Heads)
			if known[key] == nil {
				if known[key], err = p.Resolve(e); err != nil {
					return s, fmt.Errorf("lay out rank %d of %s: %w", r, engine, err)
				}
			}
			s.Ranks[r] = append(s.Ranks[r], known[key])
		}
	}
	return s, nil
}

// request is what a case moves.
type request struct {
	from, to int64
	spans    []stamp.Span // by group; nil: all of those tokens, and every state
	end      int64        // tokens of the request; 0: to
	layers   plan.Range
	write    bool
}

// length is how many tokens the request has.
func (q request) length() int64 { return max(q.to, q.end) }

// draw makes the pair of a case and its request.
func (c *instance) draw(rng *rand.Rand) (*plan.Pair, request, error) {
	blocks := func(t int64) bool { // inside a block on both sides
		for _, h := range []half{c.source, c.destination} {
			for _, p := range h.pools {
				if p.block > 1 && t%int64(p.block) == 0 {
					return false
				}
			}
		}
		return true
	}
	q := request{write: c.write}
	for q.to = c.tokens - rng.Int64N(c.tokens/3); !blocks(q.to); {
		q.to--
	}
	for q.from = rng.Int64N(q.to * 2 / 3); !blocks(q.from); {
		q.from++
	}
	if c.part && c.layers > 1 {
		q.layers.From = rng.IntN(c.layers - 1)
		q.layers.To = q.layers.From + 1 + rng.IntN(c.layers-1-q.layers.From)
	}
	p := &plan.Pair{}
	var err error
	if p.Source, err = c.side("prefill", c.source, q.to, rng); err != nil {
		return nil, q, err
	}
	if p.Destination, err = c.side("decode", c.destination, q.to, rng); err != nil {
		return nil, q, err
	}
	return p, q, p.Validate()
}
