package tinyllm

import (
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
)

// kernelWidth is how many tokens the convolution before the recurrence spans:
// the state holds the inputs of all but the last.
const kernelWidth = 4

// recurrent is a gated delta net (Yang et al. 2024): per head a matrix that
// forgets a little with every token and learns to give the token's value for
// its key. Queries and keys of two heads are one, where the number of heads is
// even.
//
// It keeps one state a request: the last inputs of the convolution, which each
// channel of q, k and v passes through, and the matrices.
type recurrent struct {
	group, place          int
	heads, shared, d      int
	parts                 [3]matrix    // q, k and v of a token
	taps                  [3][]float32 // [channel][kernelWidth]
	learn, forget, output matrix
}

// recall is the component of the matrices, behind q, k and v.
const recall = 3

// sharedHeads is the number of heads of queries and keys.
func (cfg Config) sharedHeads() int {
	if cfg.KVHeads%2 == 0 {
		return cfg.KVHeads / 2
	}
	return cfg.KVHeads
}

func (m *Model) recurrent(draw drawer, group, place int) *recurrent {
	cfg := m.cfg
	r := &recurrent{group: group, place: place, heads: cfg.KVHeads, shared: cfg.sharedHeads(), d: cfg.HeadDim}
	for i, heads := range [3]int{r.shared, r.shared, r.heads} {
		r.parts[i] = draw(heads*r.d, cfg.Hidden, 1)
		r.taps[i] = draw(heads*r.d, kernelWidth, 1.5).w
	}
	r.learn, r.forget, r.output = draw(r.heads, cfg.Hidden, 1), draw(r.heads, cfg.Hidden, 1), draw(r.heads*r.d, cfg.Hidden, 1)
	return r
}

func (cfg Config) stateComponents() []geometry.Component {
	conv := func(name string, heads int) geometry.Component {
		return geometry.Component{Name: name, Heads: heads * cfg.HeadDim, Unit: cfg.HeadDim, Dim: kernelWidth - 1, DType: geometry.BF16}
	}
	return []geometry.Component{
		conv("q", cfg.sharedHeads()), conv("k", cfg.sharedHeads()), conv("v", cfg.KVHeads),
		{Name: "ssm", Heads: cfg.KVHeads, Dim: cfg.HeadDim * cfg.HeadDim, DType: geometry.FP32},
	}
}

// state is one layer's state of one request.
type state struct {
	inputs   [3][][]float32 // by channel, oldest first
	matrices [][]float32    // by head: rows of the value's dims, columns of the key's
}

// rows visits the state's rows as the cache keeps them.
func (s *state) rows(visit func(component, head int, row []float32)) {
	for i, channels := range s.inputs {
		for c, row := range channels {
			visit(i, c, row)
		}
	}
	for h, row := range s.matrices {
		visit(recall, h, row)
	}
}

// begin is the state before the first token.
func (r *recurrent) begin() *state {
	s := new(state)
	for i, p := range r.parts {
		for range p.rows {
			s.inputs[i] = append(s.inputs[i], make([]float32, kernelWidth-1))
		}
	}
	for range r.heads {
		s.matrices = append(s.matrices, make([]float32, r.d*r.d))
	}
	return s
}

// keep replaces the state of from tokens by that of all of them: a state is
// valid at one number of tokens only.
func (r *recurrent) keep(c *Cache, t Tables, in [][]float32, from int64) func(int) []float32 {
	s := r.begin()
	if from > 0 {
		s.rows(func(component, head int, row []float32) { c.readState(t, r.group, component, r.place, head, row) })
	}
	out := make([][]float32, len(in))
	for i, x := range in {
		out[i] = r.step(s, x)
	}
	s.rows(func(component, head int, row []float32) { c.write(t, r.group, component, r.place, head, 0, row) })
	return func(i int) []float32 { return out[i] }
}

// step takes one token into the state and returns its output.
func (r *recurrent) step(s *state, x []float32) []float32 {
	var mixed [3][]float32 // q, k and v behind the convolution
	for i := range r.parts {
		now := r.parts[i].mul(x)
		for ch, v := range now {
			// Rounded as the cache rounds it, so that it is the same whether
			// or not it has been there.
			v = fromBF16(bf16(v))
			row, taps := s.inputs[i][ch], r.taps[i][ch*kernelWidth:(ch+1)*kernelWidth]
			now[ch] = silu(dot(row, taps) + v*taps[kernelWidth-1])
			copy(row, row[1:])
			row[kernelWidth-2] = v
		}
		mixed[i] = now
	}
	d, share := r.d, r.heads/r.shared
	learn, forget, gate := r.learn.mul(x), r.forget.mul(x), r.output.mul(x)
	var out []float32
	for h := range r.heads {
		q, k := unit(mixed[0][h/share*d:][:d]), unit(mixed[1][h/share*d:][:d])
		v, m := mixed[2][h*d:][:d], s.matrices[h]
		keep, rate := sigmoid(forget[h]+3), sigmoid(learn[h])
		for i := range d {
			row := m[i*d : (i+1)*d]
			for j := range row {
				row[j] *= keep
			}
			wrong := rate * (v[i] - dot(row, k))
			for j := range row {
				row[j] += wrong * k[j]
			}
		}
		o := make([]float32, d)
		for i := range o {
			o[i] = dot(m[i*d:(i+1)*d], q)
		}
		o = normed(o)
		for i := range o {
			o[i] *= silu(gate[h*d+i])
		}
		out = append(out, o...)
	}
	return out
}

// unit returns x with length 1.
func unit(x []float32) []float32 {
	scale := float32(1 / math.Sqrt(float64(dot(x, x))+epsilon))
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = v * scale
	}
	return out
}
