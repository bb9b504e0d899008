// Package tinyllm is a small language model (RMSNorm, SwiGLU, greedy decoding)
// with seeded weights, for engines that need real tokens from a real cache. It
// comes in the shapes in which models keep caches today: Llama's grouped query
// attention, layers with a sliding window, multi-head latent attention, keys
// and values in fp8 with their scales, and layers with a recurrent state. It
// keeps its cache in paged memory that it is given, in any layout and on any
// number of ranks.
//
// Arithmetic is float32 in a fixed order that does not depend on how the cache
// is sharded or laid out, so two engines that hold the same cache produce the
// same tokens, bit for bit.
package tinyllm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Shape is a kind of model by what it keeps.
type Shape string

// The shapes.
const (
	Llama   Shape = "llama"   // k and v of every token
	Sliding Shape = "sliding" // every other layer looks back over Window tokens only
	MLA     Shape = "mla"     // one latent a token for all heads
	FP8     Shape = "fp8"     // k and v in fp8, with a scale for each row
	Hybrid  Shape = "hybrid"  // every other layer keeps one state instead of tokens
)

// Shapes are all shapes.
func Shapes() []string {
	return []string{string(Llama), string(Sliding), string(MLA), string(FP8), string(Hybrid)}
}

// Window is how many tokens, itself counted, a layer with a window looks at.
const Window = 24

// Config is the size of a model.
type Config struct {
	Shape   Shape
	Layers  int
	KVHeads int
	Queries int // query heads a kv head
	HeadDim int // even
	Hidden  int
	FFN     int
	Vocab   int
	Seed    uint64
}

// Default is the model of the demo in the given shape, with the given number of
// kv heads.
func Default(shape Shape, kvHeads int, seed uint64) Config {
	return Config{Shape: shape, Layers: 4, KVHeads: kvHeads, Queries: 2, HeadDim: 16, Hidden: 64, FFN: 128, Vocab: 256, Seed: seed}
}

const epsilon = 1e-5

// layer is one layer: a mixer and an MLP.
type layer struct {
	mixer             mixer
	o, gate, up, down matrix
}

// Model holds the weights. It is immutable and safe for concurrent use.
type Model struct {
	cfg     Config
	embed   matrix
	layers  []layer
	unembed matrix
	digest  [32]byte
}

// matrix is row-major [rows][cols].
type matrix struct {
	rows, cols int
	w          []float32
}

// mul returns m x.
func (m matrix) mul(x []float32) []float32 {
	out := make([]float32, m.rows)
	for r := range out {
		out[r] = dot(m.w[r*m.cols:(r+1)*m.cols], x)
	}
	return out
}

// drawer makes a matrix of the next weights.
type drawer func(rows, cols int, gain float64) matrix

// New makes the model whose weights the seed determines.
func New(cfg Config) (*Model, error) {
	if !slices.Contains(Shapes(), string(cfg.Shape)) {
		return nil, fmt.Errorf("tinyllm: shape is %q: want one of %s", cfg.Shape, strings.Join(Shapes(), ", "))
	}
	least := 1
	if len(cfg.groups()) > 1 {
		least = 2 // a layer of each kind
	}
	for _, f := range []struct {
		name        string
		v, low, max int
	}{{"layers", cfg.Layers, least, 256}, {"kv heads", cfg.KVHeads, 1, 256}, {"queries", cfg.Queries, 1, 64}, {"head dim", cfg.HeadDim, 1, 512}, {"hidden", cfg.Hidden, 1, 8192}, {"ffn", cfg.FFN, 1, 32768}, {"vocab", cfg.Vocab, 1, 65536}} {
		if f.v < f.low || f.v > f.max {
			return nil, fmt.Errorf("tinyllm: %s is %d: want %d to %d", f.name, f.v, f.low, f.max)
		}
	}
	if cfg.HeadDim%2 != 0 {
		return nil, fmt.Errorf("tinyllm: head dim is %d: RoPE rotates pairs, want an even number", cfg.HeadDim)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6b766665727279))
	sum := sha256.New()
	draw := func(rows, cols int, gain float64) matrix {
		m := matrix{rows, cols, make([]float32, rows*cols)}
		scale := gain / math.Sqrt(float64(cols))
		var b [4]byte
		for i := range m.w {
			m.w[i] = float32(rng.NormFloat64() * scale)
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(m.w[i]))
			sum.Write(b[:])
		}
		return m
	}
	m := &Model{cfg: cfg, embed: draw(cfg.Vocab, cfg.Hidden, math.Sqrt(float64(cfg.Hidden)))}
	for l := range cfg.Layers {
		own := layer{mixer: m.mixer(draw, l)}
		wide := cfg.KVHeads * cfg.HeadDim
		if _, ok := own.mixer.(*recurrent); !ok {
			wide *= cfg.Queries
		}
		own.o = draw(cfg.Hidden, wide, 4)
		own.gate, own.up, own.down = draw(cfg.FFN, cfg.Hidden, 1), draw(cfg.FFN, cfg.Hidden, 1), draw(cfg.Hidden, cfg.FFN, 1)
		m.layers = append(m.layers, own)
	}
	m.unembed = draw(cfg.Vocab, cfg.Hidden, 1)
	sum.Sum(m.digest[:0])
	return m, nil
}

// mixer draws the mixer of layer l.
func (m *Model) mixer(draw drawer, l int) mixer {
	// Where layers are of two kinds, the first is of the second group.
	switch m.cfg.Shape {
	case MLA:
		return m.latent(draw, l)
	case Hybrid:
		if l%2 == 0 {
			return m.recurrent(draw, 1, l/2)
		}
		return m.attention(draw, l/2, 0)
	case Sliding:
		if l%2 == 0 {
			a := m.attention(draw, l/2, Window)
			a.group = 1
			return a
		}
		return m.attention(draw, l/2, 0)
	}
	return m.attention(draw, l, 0)
}

// groups are the groups of the model's cache.
func (cfg Config) groups() []geometry.Group {
	var all, even, odd []int
	for l := range cfg.Layers {
		all = append(all, l)
		if l%2 == 0 {
			even = append(even, l)
		} else {
			odd = append(odd, l)
		}
	}
	switch cfg.Shape {
	case MLA:
		return []geometry.Group{{Layers: all, Components: latentComponents()}}
	case Hybrid:
		return []geometry.Group{
			{Name: "attention", Layers: odd, Components: cfg.components()},
			{Name: "state", Layers: even, Components: cfg.stateComponents(), State: true},
		}
	case Sliding:
		return []geometry.Group{
			{Name: "full", Layers: odd, Components: cfg.components()},
			{Name: "window", Layers: even, Components: cfg.components(), Window: Window},
		}
	}
	return []geometry.Group{{Layers: all, Components: cfg.components()}}
}

// Geometry says what the model's cache is, with the weights' digest and the
// rope parameters as identity.
func (m *Model) Geometry() geometry.Model {
	name := "tinyllm"
	if m.cfg.Shape != Llama {
		name += "-" + string(m.cfg.Shape)
	}
	return geometry.Model{
		Name:   name,
		Layers: m.cfg.Layers,
		Identity: geometry.Identity{
			"weights":    geometry.Digest(m.digest).String(),
			"rope.type":  "default",
			"rope.theta": fmt.Sprint(ropeTheta),
		},
		Groups: m.cfg.groups(),
	}
}

// Config returns the model's size.
func (m *Model) Config() Config { return m.cfg }

// Prompt returns n tokens that the seed and the request's number determine.
func (m *Model) Prompt(request, n int) []int {
	rng := rand.New(rand.NewPCG(m.cfg.Seed, 0x70726f6d7074+uint64(request)))
	out := make([]int, n)
	for i := range out {
		out[i] = rng.IntN(m.cfg.Vocab)
	}
	return out
}

func normed(x []float32) []float32 {
	scale := float32(1 / math.Sqrt(float64(dot(x, x))/float64(len(x))+epsilon))
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = v * scale
	}
	return out
}

// run computes tokens at positions from, from+1, ... layer by layer: it writes
// what the layers keep of them into the cache, lets them look at everything
// before, and returns the token that follows the last one (the largest logit;
// the smallest id among equals). wrote, where not nil, is called when what a
// layer keeps of all these tokens is in the cache.
func (m *Model) run(c *Cache, t Tables, tokens []int, from int64, wrote func(layer int)) int {
	cfg := m.cfg
	states := make([][]float32, len(tokens))
	for i, token := range tokens {
		states[i] = append([]float32(nil), m.embed.w[token*cfg.Hidden:(token+1)*cfg.Hidden]...)
	}
	in := make([][]float32, len(tokens))
	for l, w := range m.layers {
		for i, x := range states {
			in[i] = normed(x)
		}
		mix := w.mixer.keep(c, t, in, from)
		if wrote != nil {
			wrote(l)
		}
		for i, x := range states {
			add(x, w.o.mul(mix(i)))
			in := normed(x)
			gate, up := w.gate.mul(in), w.up.mul(in)
			for i, g := range gate {
				up[i] *= silu(g)
			}
			add(x, w.down.mul(up))
		}
	}
	logits := m.unembed.mul(normed(states[len(states)-1]))
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return best
}

func add(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

// Prefill runs the prompt from position 0 in chunks of the given number of
// tokens (0: all at once) and returns the first generated token. wrote, where
// not nil, is called when what a layer keeps of tokens [from, to) is in the
// cache; a layer's state is then that of to tokens. Nothing that the tables'
// blocks held before matters.
func (m *Model) Prefill(c *Cache, t Tables, prompt []int, chunk int, wrote func(layer int, from, to int64)) int {
	if chunk <= 0 {
		chunk = len(prompt)
	}
	next := 0
	for from := 0; from < len(prompt); from += chunk {
		to := min(from+chunk, len(prompt))
		var each func(int)
		if wrote != nil {
			each = func(layer int) { wrote(layer, int64(from), int64(to)) }
		}
		next = m.run(c, t, prompt[from:to], int64(from), each)
	}
	return next
}

// Decode continues after position tokens whose cache is in place: it returns
// first and the n-1 tokens that follow it.
func (m *Model) Decode(c *Cache, t Tables, first int, position int64, n int) []int {
	out := make([]int, 0, n)
	next := first
	for range n {
		out = append(out, next)
		if len(out) < n {
			next = m.run(c, t, []int{next}, position, nil)
			position++
		}
	}
	return out
}
