// Package tinyllm is a small Llama-architecture model (RMSNorm, RoPE, grouped
// query attention, SwiGLU, greedy decoding) with seeded weights, for engines
// that need real tokens from a real KV cache. It keeps its cache in paged
// memory that it is given, in any layout and on any number of ranks.
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

	"github.com/kvferry/kvferry/kv/geometry"
)

// Config is the shape of a model.
type Config struct {
	Layers  int
	KVHeads int
	Queries int // query heads a kv head
	HeadDim int // even
	Hidden  int
	FFN     int
	Vocab   int
	Seed    uint64
}

// Default is the model of the demo, with the given number of kv heads.
func Default(kvHeads int, seed uint64) Config {
	return Config{Layers: 4, KVHeads: kvHeads, Queries: 2, HeadDim: 16, Hidden: 64, FFN: 128, Vocab: 256, Seed: seed}
}

const (
	ropeTheta = 10000
	epsilon   = 1e-5
)

type layerWeights struct {
	q, k, v, o     matrix
	gate, up, down matrix
}

// Model holds the weights. It is immutable and safe for concurrent use.
type Model struct {
	cfg       Config
	embed     matrix
	layers    []layerWeights
	unembed   matrix
	digest    [32]byte
	frequency []float64 // RoPE angle of one position, by dim pair
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
		row := m.w[r*m.cols : (r+1)*m.cols]
		var sum float32
		for i, w := range row {
			sum += w * x[i]
		}
		out[r] = sum
	}
	return out
}

// New makes the model whose weights the seed determines.
func New(cfg Config) (*Model, error) {
	for _, f := range []struct {
		name string
		v    int
		max  int
	}{{"layers", cfg.Layers, 256}, {"kv heads", cfg.KVHeads, 256}, {"queries", cfg.Queries, 64}, {"head dim", cfg.HeadDim, 512}, {"hidden", cfg.Hidden, 8192}, {"ffn", cfg.FFN, 32768}, {"vocab", cfg.Vocab, 65536}} {
		if f.v < 1 || f.v > f.max {
			return nil, fmt.Errorf("tinyllm: %s is %d: want 1 to %d", f.name, f.v, f.max)
		}
	}
	if cfg.HeadDim%2 != 0 {
		return nil, fmt.Errorf("tinyllm: head dim is %d: RoPE rotates pairs, want an even number", cfg.HeadDim)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6b766665727279))
	sum := sha256.New()
	random := func(rows, cols int, gain float64) matrix {
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
	m := &Model{cfg: cfg, embed: random(cfg.Vocab, cfg.Hidden, math.Sqrt(float64(cfg.Hidden)))}
	heads := cfg.KVHeads * cfg.Queries
	for range cfg.Layers {
		m.layers = append(m.layers, layerWeights{
			// Gains above 1 on queries and on the attention's output make the
			// tokens depend on the cache: a model that ignored it would prove
			// nothing.
			q: random(heads*cfg.HeadDim, cfg.Hidden, 2), k: random(cfg.KVHeads*cfg.HeadDim, cfg.Hidden, 1),
			v: random(cfg.KVHeads*cfg.HeadDim, cfg.Hidden, 1), o: random(cfg.Hidden, heads*cfg.HeadDim, 4),
			gate: random(cfg.FFN, cfg.Hidden, 1), up: random(cfg.FFN, cfg.Hidden, 1), down: random(cfg.Hidden, cfg.FFN, 1),
		})
	}
	m.unembed = random(cfg.Vocab, cfg.Hidden, 1)
	for i := range cfg.HeadDim / 2 {
		m.frequency = append(m.frequency, math.Pow(ropeTheta, -2*float64(i)/float64(cfg.HeadDim)))
	}
	sum.Sum(m.digest[:0])
	return m, nil
}

// Geometry says what the model's cache is: k and v in bf16, with the weights'
// digest and the rope parameters as identity.
func (m *Model) Geometry() geometry.Model {
	layers := make([]int, m.cfg.Layers)
	for i := range layers {
		layers[i] = i
	}
	component := func(name string) geometry.Component {
		return geometry.Component{Name: name, Heads: m.cfg.KVHeads, Dim: m.cfg.HeadDim, DType: geometry.BF16}
	}
	return geometry.Model{
		Name:   "tinyllm",
		Layers: m.cfg.Layers,
		Identity: geometry.Identity{
			"weights":    geometry.Digest(m.digest).String(),
			"rope.type":  "default",
			"rope.theta": fmt.Sprint(ropeTheta),
		},
		Groups: []geometry.Group{{Layers: layers, Components: []geometry.Component{component("k"), component("v")}}},
	}
}

// Config returns the model's shape.
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
	var sum float32
	for _, v := range x {
		sum += v * v
	}
	scale := float32(1 / math.Sqrt(float64(sum)/float64(len(x))+epsilon))
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = v * scale
	}
	return out
}

// rotate applies RoPE (Su et al. 2021, pairs i and i+dim/2 as in Llama's
// public weights) to each head of x.
func (m *Model) rotate(x []float32, position int64) {
	d := m.cfg.HeadDim
	for h := 0; h < len(x); h += d {
		for i, f := range m.frequency {
			sin, cos := math.Sincos(float64(position) * f)
			a, b := x[h+i], x[h+i+d/2]
			x[h+i] = a*float32(cos) - b*float32(sin)
			x[h+i+d/2] = a*float32(sin) + b*float32(cos)
		}
	}
}

// run computes tokens at positions from, from+1, ... layer by layer: it writes
// their k and v into the cache, attends causally over everything before, and
// returns the token that follows the last one (the largest logit; the smallest
// id among equals). wrote, where not nil, is called when a layer's rows of all
// these tokens are in the cache.
func (m *Model) run(c *Cache, table []uint32, tokens []int, from int64, wrote func(layer int)) int {
	cfg := m.cfg
	d := cfg.HeadDim
	states := make([][]float32, len(tokens))
	for i, token := range tokens {
		states[i] = append([]float32(nil), m.embed.w[token*cfg.Hidden:(token+1)*cfg.Hidden]...)
	}
	queries := make([][]float32, len(tokens))
	for l, w := range m.layers {
		for i, x := range states {
			in := normed(x)
			q, k, v := w.q.mul(in), w.k.mul(in), w.v.mul(in)
			position := from + int64(i)
			m.rotate(q, position)
			m.rotate(k, position)
			queries[i] = q
			for h := range cfg.KVHeads {
				c.write(table, 0, l, h, position, k[h*d:(h+1)*d])
				c.write(table, 1, l, h, position, v[h*d:(h+1)*d])
			}
		}
		if wrote != nil {
			wrote(l)
		}
		for i, x := range states {
			add(x, w.o.mul(m.attend(c, table, l, queries[i], from+int64(i))))
			in := normed(x)
			gate, up := w.gate.mul(in), w.up.mul(in)
			for i, g := range gate {
				up[i] *= g / (1 + float32(math.Exp(float64(-g))))
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

// attend returns the attention output of one token, all query heads.
func (m *Model) attend(c *Cache, table []uint32, layer int, q []float32, position int64) []float32 {
	d := m.cfg.HeadDim
	out := make([]float32, len(q))
	scores := make([]float32, position+1)
	row := make([]float32, d)
	for head := range len(q) / d {
		h := head / m.cfg.Queries
		query := q[head*d : (head+1)*d]
		highest := float32(math.Inf(-1))
		for t := range scores {
			c.read(table, 0, layer, h, int64(t), head, row)
			var dot float32
			for i, v := range query {
				dot += v * row[i]
			}
			scores[t] = dot / float32(math.Sqrt(float64(d)))
			highest = max(highest, scores[t])
		}
		var sum float32
		for t, s := range scores {
			scores[t] = float32(math.Exp(float64(s - highest)))
			sum += scores[t]
		}
		into := out[head*d : (head+1)*d]
		for t, s := range scores {
			c.read(table, 1, layer, h, int64(t), head, row)
			for i, v := range row {
				into[i] += s / sum * v
			}
		}
	}
	return out
}

func add(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

// Prefill runs the prompt from position 0 in chunks of the given number of
// tokens (0: all at once) and returns the first generated token. wrote, where
// not nil, is called when a layer's rows of tokens [from, to) are in the cache.
func (m *Model) Prefill(c *Cache, table []uint32, prompt []int, chunk int, wrote func(layer int, from, to int64)) int {
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
		next = m.run(c, table, prompt[from:to], int64(from), each)
	}
	return next
}

// Decode continues after position tokens whose cache is in place: it returns
// first and the n-1 tokens that follow it.
func (m *Model) Decode(c *Cache, table []uint32, first int, position int64, n int) []int {
	out := make([]int, 0, n)
	next := first
	for range n {
		out = append(out, next)
		if len(out) < n {
			next = m.run(c, table, []int{next}, position, nil)
			position++
		}
	}
	return out
}
