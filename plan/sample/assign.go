package sample

import (
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// holds reports whether a rank has a head of a component; head 0 of one
// without heads.
func holds(p *shard.Part, component, head int) bool {
	return p.Heads[component] == nil && head == 0 || slices.Contains(p.Heads[component], head)
}

// wanted are the heads of a component on a rank, ascending; head 0 of one
// without heads.
func wanted(p *shard.Part, component int) []int {
	if p.Heads[component] == nil {
		return []int{0}
	}
	heads := slices.Clone(p.Heads[component])
	slices.Sort(heads)
	return heads
}

// scalesOf are the components that scale component i.
func scalesOf(g *geometry.Group, i int) []int {
	var out []int
	for k, c := range g.Components {
		if c.Scales == g.Components[i].Name {
			out = append(out, k)
		}
	}
	return out
}

// serves reports whether a source rank holds a head of component i, or all
// that the destination rank wants where a scale without heads belongs to all of
// them; and whatever scales them there.
func serves(g *geometry.Group, have, want *shard.Part, i, head int) bool {
	heads := []int{head}
	scales := scalesOf(g, i)
	for _, s := range scales {
		if g.Components[s].Heads == 0 {
			heads = wanted(want, i)
		}
	}
	for _, h := range heads {
		if !holds(have, i, h) {
			return false
		}
		for _, s := range scales {
			if g.Components[s].Heads > 0 && holds(want, s, h) && !holds(have, s, h) {
				return false
			}
		}
	}
	return true
}

// answerable reports whether every row of every destination rank has a source
// rank that serves it.
func answerable(p *plan.Pair) bool {
	for gi := range p.Source.Model.Groups {
		g := &p.Source.Model.Groups[gi]
		if !slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.Scales != "" }) {
			continue
		}
		source, destination := parts(&p.Source, gi), parts(&p.Destination, gi)
		for d := range destination {
			for i := range g.Components {
				for _, h := range wanted(&destination[d], i) {
					if !slices.ContainsFunc(source, func(have shard.Part) bool { return serves(g, &have, &destination[d], i, h) }) {
						return false
					}
				}
			}
		}
	}
	return true
}

func parts(s *plan.Side, gi int) []shard.Part {
	out := make([]shard.Part, len(s.Ranks))
	for r := range out {
		out[r] = s.Part(gi, r)
	}
	return out
}

// Assign matches ranks as a policy would: it finds, for each destination rank,
// who holds what it needs, and chooses among replicas by chance. A scale is
// taken from where its rows are.
func (m *Maker) Assign(p *plan.Pair) []plan.Assignment {
	var out []plan.Assignment
	for gi := range p.Source.Model.Groups {
		out = append(out, m.match(p, gi)...)
	}
	return out
}

func (m *Maker) match(p *plan.Pair, gi int) []plan.Assignment {
	var out []plan.Assignment
	g := &p.Source.Model.Groups[gi]
	fine := m.Chance(30) // box by box, instead of one favourite source for all
	source, destination := parts(&p.Source, gi), parts(&p.Destination, gi)
	c := p.Source.ShardOf(gi)
	for d := range destination {
		want := &destination[d]
		favour := m.Perm(len(source))
		for phase := range c.DCPSize {
			var tokens plan.Tokens
			if c.DCPSize > 1 {
				tokens = plan.Tokens{Size: c.DCPSize, Interleave: c.Interleave, Phase: phase}
			}
			for _, layer := range want.Layers {
				choose := func(i, head int) int {
					if fine {
						m.Shuffle(len(favour), func(i, j int) { favour[i], favour[j] = favour[j], favour[i] })
					}
					at := slices.IndexFunc(favour, func(r int) bool {
						return source[r].Phase == phase && slices.Contains(source[r].Layers, layer) && serves(g, &source[r], want, i, head)
					})
					if at < 0 {
						return -1
					}
					return favour[at]
				}
				rows := m.rows(g, want, choose)
				box := plan.Assignment{Group: gi, Destination: d, Layers: plan.Range{From: layer, To: layer + 1}, Tokens: tokens}
				out = append(out, boxes(g, want, rows, box)...)
			}
		}
	}
	if !fine && m.Chance(70) {
		out = joined(out)
	}
	if len(g.Components) > 1 && m.Chance(15) { // components apart
		var apart []plan.Assignment
		for _, a := range out {
			for i := range g.Components {
				if b := a; a.Components>>i&1 != 0 {
					b.Components = 1 << i
					apart = append(apart, b)
				}
			}
		}
		out = apart
	}
	return out
}

// rows says by component from which rank each of the wanted heads comes, -1
// where none serves it.
func (m *Maker) rows(g *geometry.Group, want *shard.Part, choose func(component, head int) int) [][]int {
	rows := make([][]int, len(g.Components))
	for i := range g.Components {
		c := &g.Components[i]
		if c.Scales != "" {
			continue
		}
		scales := scalesOf(g, i)
		for k := range i { // dealt alike, and so mostly taken alike
			if o := &g.Components[k]; o.Scales == "" && o.Heads == c.Heads && o.Unit == c.Unit && scales == nil && scalesOf(g, k) == nil {
				rows[i] = rows[k]
				break
			}
		}
		if rows[i] != nil {
			continue
		}
		whole := slices.ContainsFunc(scales, func(s int) bool { return g.Components[s].Heads == 0 })
		for k, h := range wanted(want, i) {
			if whole && k > 0 {
				rows[i] = append(rows[i], rows[i][0])
				continue
			}
			rows[i] = append(rows[i], choose(i, h))
		}
	}
	for i := range g.Components {
		if g.Components[i].Scales == "" {
			continue
		}
		of := g.Component(g.Components[i].Scales)
		heads := wanted(want, of)
		for _, h := range wanted(want, i) {
			rows[i] = append(rows[i], rows[of][max(slices.Index(heads, h), 0)]) // the same heads, or all
		}
	}
	return rows
}

// boxes are the assignments of one layer, by the classes of components and what
// is taken alike in each.
func boxes(g *geometry.Group, want *shard.Part, rows [][]int, box plan.Assignment) []plan.Assignment {
	var out []plan.Assignment
	for _, class := range g.Classes() {
		for left := class.Components; left != 0; {
			box.Components = 0
			first := -1
			for i := range g.Components {
				if left>>i&1 != 0 && (first < 0 || slices.Equal(rows[i], rows[first])) {
					if first < 0 {
						first = i
					}
					box.Components |= 1 << i
				}
			}
			left &^= box.Components
			last := -1
			for k, h := range wanted(want, first) {
				switch {
				case rows[first][k] < 0:
				case last >= 0 && out[last].Source == rows[first][k] && out[last].Heads.To == h:
					out[last].Heads.To++
				default:
					last = len(out)
					box.Source, box.Heads = rows[first][k], plan.Range{From: h, To: h + 1}
					out = append(out, box)
				}
			}
		}
	}
	return out
}

// joined joins the layers of equal boxes.
func joined(as []plan.Assignment) []plan.Assignment {
	var out []plan.Assignment
	for _, a := range as {
		at := slices.IndexFunc(out, func(b plan.Assignment) bool {
			same := b
			same.Layers = a.Layers
			return same == a && b.Layers.To == a.Layers.From
		})
		if at >= 0 {
			out[at].Layers.To = a.Layers.To
		} else {
			out = append(out, a)
		}
	}
	return out
}
