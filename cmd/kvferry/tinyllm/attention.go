package tinyllm

import (
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
)

// mixer is the part of a layer in which tokens look at others: what keeps a
// cache.
type mixer interface {
	// keep computes tokens at positions from, from+1, ... whose inputs are in,
	// writes what the layer keeps of them into the cache, and returns what
	// gives the i-th one's output.
	keep(c *Cache, t Tables, in [][]float32, from int64) func(i int) []float32
}

// attention is grouped query attention over all tokens or a window of them.
type attention struct {
	group, place       int // of the layer in the cache
	heads, queries, d  int // kv heads, query heads a kv head
	window             int64
	quantised          bool // k and v in fp8, each row with a scale
	frequency          []float64
	q, k, v            matrix
	keys, values, step int // component numbers; a row's scale is step behind
}

func (m *Model) attention(draw drawer, place int, window int64) *attention {
	cfg := m.cfg
	a := &attention{place: place, heads: cfg.KVHeads, queries: cfg.Queries, d: cfg.HeadDim, window: window, frequency: frequencies(cfg.HeadDim), values: 1}
	if cfg.Shape == FP8 {
		a.quantised, a.values, a.step = true, 2, 1
	}
	// Gains above 1 on queries and on the mixer's output make the tokens depend
	// on the cache: a model that ignored it would prove nothing.
	a.q, a.k, a.v = draw(cfg.KVHeads*cfg.Queries*cfg.HeadDim, cfg.Hidden, 2), draw(cfg.KVHeads*cfg.HeadDim, cfg.Hidden, 1), draw(cfg.KVHeads*cfg.HeadDim, cfg.Hidden, 1)
	return a
}

// components are what attention keeps of a token.
func (cfg Config) components() []geometry.Component {
	row := func(name string) geometry.Component {
		return geometry.Component{Name: name, Heads: cfg.KVHeads, Dim: cfg.HeadDim, DType: geometry.BF16}
	}
	k, v := row("k"), row("v")
	if cfg.Shape != FP8 {
		return []geometry.Component{k, v}
	}
	k.DType, v.DType = geometry.FP8E4M3, geometry.FP8E4M3
	scale := func(of string) geometry.Component {
		return geometry.Component{Name: of + "_scale", Heads: cfg.KVHeads, Dim: 1, DType: geometry.FP32, Scales: of}
	}
	return []geometry.Component{k, scale("k"), v, scale("v")}
}

// put keeps one row.
func (a *attention) put(c *Cache, t Tables, component, head int, position int64, row []float32) {
	if a.quantised {
		scale := quantise(row)
		c.write(t, a.group, component+a.step, a.place, head, position, []float32{scale})
	}
	c.write(t, a.group, component, a.place, head, position, row)
}

// get returns one row to a query head.
func (a *attention) get(c *Cache, t Tables, component, head int, position int64, query int, row []float32) {
	c.read(t, a.group, component, a.place, head, position, query, row)
	if a.quantised {
		var scale [1]float32
		c.read(t, a.group, component+a.step, a.place, head, position, query, scale[:])
		for d := range row {
			row[d] *= scale[0]
		}
	}
}

func (a *attention) keep(c *Cache, t Tables, in [][]float32, from int64) func(int) []float32 {
	queries := make([][]float32, len(in))
	for i, x := range in {
		q, k, v := a.q.mul(x), a.k.mul(x), a.v.mul(x)
		position := from + int64(i)
		rotate(q, a.frequency, position)
		rotate(k, a.frequency, position)
		queries[i] = q
		for h := range a.heads {
			a.put(c, t, a.keys, h, position, k[h*a.d:(h+1)*a.d])
			a.put(c, t, a.values, h, position, v[h*a.d:(h+1)*a.d])
		}
	}
	return func(i int) []float32 { return a.attend(c, t, queries[i], from+int64(i)) }
}

// attend returns the attention output of one token, all query heads.
func (a *attention) attend(c *Cache, t Tables, q []float32, position int64) []float32 {
	out := make([]float32, len(q))
	first := int64(0)
	if a.window > 0 {
		first = max(0, position-a.window+1)
	}
	scores := make([]float32, position+1-first)
	row := make([]float32, a.d)
	for head := range len(q) / a.d {
		h := head / a.queries
		query := q[head*a.d : (head+1)*a.d]
		for i := range scores {
			a.get(c, t, a.keys, h, first+int64(i), head, row)
			scores[i] = dot(query, row) / float32(math.Sqrt(float64(a.d)))
		}
		softmax(scores)
		into := out[head*a.d : (head+1)*a.d]
		for i, s := range scores {
			a.get(c, t, a.values, h, first+int64(i), head, row)
			for d, v := range row {
				into[d] += s * v
			}
		}
	}
	return out
}

func dot(x, y []float32) float32 {
	var sum float32
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// softmax turns scores into weights that sum to 1.
func softmax(scores []float32) {
	highest := float32(math.Inf(-1))
	for _, s := range scores {
		highest = max(highest, s)
	}
	var sum float32
	for i, s := range scores {
		scores[i] = float32(math.Exp(float64(s - highest)))
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
}

const ropeTheta = 10000

// frequencies are the RoPE angles of one position, by dim pair.
func frequencies(dim int) []float64 {
	var out []float64
	for i := range dim / 2 {
		out = append(out, math.Pow(ropeTheta, -2*float64(i)/float64(dim)))
	}
	return out
}

// rotate applies RoPE (Su et al. 2021, pairs i and i+dim/2 as in Llama's
// public weights) to each head of x.
func rotate(x []float32, frequency []float64, position int64) {
	half := len(frequency)
	for h := 0; h < len(x); h += 2 * half {
		for i, f := range frequency {
			sin, cos := math.Sincos(float64(position) * f)
			a, b := x[h+i], x[h+i+half]
			x[h+i] = a*float32(cos) - b*float32(sin)
			x[h+i+half] = a*float32(sin) + b*float32(cos)
		}
	}
}
