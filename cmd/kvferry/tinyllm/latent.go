package tinyllm

import (
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Sizes of multi-head latent attention: the latent that is kept instead of keys
// and values, and the part of a key that carries its position.
const (
	latentDim = 24
	ropeDim   = 8
)

// latent is multi-head latent attention (DeepSeek-V2, 2024): a token keeps one
// latent and one rotated part for all heads, and the keys and values of each
// head are projections of the latent. They are not formed here: a query is
// projected down instead, and the mixed latents up, which is the same.
type latent struct {
	place, heads, d int
	frequency       []float64
	q               matrix // of each head: d dims, then ropeDim
	down            matrix // latentDim, then ropeDim
	keys            []matrix
	values          []matrix
}

const (
	latentPart = 0 // components
	ropePart   = 1
)

func (m *Model) latent(draw drawer, place int) *latent {
	cfg := m.cfg
	heads := cfg.KVHeads * cfg.Queries
	l := &latent{place: place, heads: heads, d: cfg.HeadDim, frequency: frequencies(ropeDim)}
	l.q, l.down = draw(heads*(cfg.HeadDim+ropeDim), cfg.Hidden, 2), draw(latentDim+ropeDim, cfg.Hidden, 1)
	for range heads {
		// A key is keys^T times the latent, so that a query is projected by
		// keys.
		l.keys = append(l.keys, draw(latentDim, cfg.HeadDim, 1))
		l.values = append(l.values, draw(cfg.HeadDim, latentDim, 1))
	}
	return l
}

func latentComponents() []geometry.Component {
	return []geometry.Component{
		{Name: "latent", Dim: latentDim, DType: geometry.BF16},
		{Name: "rope", Dim: ropeDim, DType: geometry.BF16},
	}
}

func (l *latent) keep(c *Cache, t Tables, in [][]float32, from int64) func(int) []float32 {
	queries := make([][]float32, len(in))
	for i, x := range in {
		position := from + int64(i)
		q, kept := l.q.mul(x), l.down.mul(x)
		step := l.d + ropeDim
		for h := range l.heads {
			head := q[h*step : (h+1)*step]
			rotate(head[l.d:], l.frequency, position)
			queries[i] = append(queries[i], l.keys[h].mul(head[:l.d])...)
			queries[i] = append(queries[i], head[l.d:]...)
		}
		rotate(kept[latentDim:], l.frequency, position)
		c.write(t, 0, latentPart, l.place, 0, position, normed(kept[:latentDim]))
		c.write(t, 0, ropePart, l.place, 0, position, kept[latentDim:])
	}
	return func(i int) []float32 { return l.attend(c, t, queries[i], from+int64(i)) }
}

func (l *latent) attend(c *Cache, t Tables, q []float32, position int64) []float32 {
	var out []float32
	scores := make([]float32, position+1)
	row := make([]float32, latentDim+ropeDim)
	const step = latentDim + ropeDim
	for h := range l.heads {
		for i := range scores {
			c.read(t, 0, latentPart, l.place, 0, int64(i), h, row[:latentDim])
			c.read(t, 0, ropePart, l.place, 0, int64(i), h, row[latentDim:])
			scores[i] = dot(q[h*step:(h+1)*step], row) / float32(math.Sqrt(float64(l.d+ropeDim)))
		}
		softmax(scores)
		mixed := make([]float32, latentDim)
		for i, s := range scores {
			c.read(t, 0, latentPart, l.place, 0, int64(i), h, row[:latentDim])
			for d := range mixed {
				mixed[d] += s * row[d]
			}
		}
		out = append(out, l.values[h].mul(mixed)...)
	}
	return out
}
