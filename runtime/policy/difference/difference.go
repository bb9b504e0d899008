// Package difference says where two answers about one pair disagree: as what
// moves from which rank to which, whatever boxes the policies wrote it in, and
// never as bytes.
package difference

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/runtime/policy"
)

// Edge is a pair of ranks between which the two move unlike amounts, of a
// request of build.CostTokens tokens.
type Edge struct {
	Source      int   `json:"source"`
	Destination int   `json:"destination"`
	A           int64 `json:"a_bytes"`
	B           int64 `json:"b_bytes"`
}

// Box is part of a cache that the two feed a destination rank from unlike
// source ranks.
type Box struct {
	Destination int    `json:"destination"`
	Group       string `json:"group,omitempty"` // where the pair's groups have names
	Components  string `json:"components"`      // "k, v"
	Layers      string `json:"layers"`          // "0-79"
	Heads       string `json:"heads,omitempty"` // "0-3"; empty for components without heads
	A           string `json:"a"`               // "rank 1", "rank 0 (half of the tokens), rank 1 (the rest)"; "none"
	B           string `json:"b"`
}

// Plans is where two plans disagree. The zero value is nowhere.
type Plans struct {
	Edges []Edge `json:"edges,omitempty"`
	Boxes []Box  `json:"boxes,omitempty"`
}

// Same reports whether they agree.
func (p *Plans) Same() bool { return len(p.Edges) == 0 && len(p.Boxes) == 0 }

// Bounds on a comparison: cells are layers times heads of a component on a
// rank.
const (
	maxCells  = 1 << 22
	maxTokens = 1 << 12 // of the period after which tokens are dealt alike again
)

// TooLarge is a pair that is not compared.
type TooLarge struct {
	What        string
	Need, Limit int
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("compare two plans: %s: %d, at most %d are compared", e.What, e.Need, e.Limit)
}

// Of compares two plans of pairs of the same engines; their layouts may
// differ.
//
// Errors: *TooLarge.
// Preconditions: a and b were built for pa and pb, and these differ in nothing
// but layouts.
func Of(pa *plan.Pair, a *plan.Plan, pb *plan.Pair, b *plan.Plan) (*Plans, error) {
	out := &Plans{}
	flows := map[[2]int]*[2]int64{}
	for side, list := range [][]policy.Flow{policy.FlowsOf(pa, a), policy.FlowsOf(pb, b)} {
		for _, f := range list {
			at := [2]int{f.Source, f.Destination}
			if flows[at] == nil {
				flows[at] = &[2]int64{}
			}
			flows[at][side] += f.Bytes
		}
	}
	for at, bytes := range flows {
		if bytes[0] != bytes[1] {
			out.Edges = append(out.Edges, Edge{at[0], at[1], bytes[0], bytes[1]})
		}
	}
	slices.SortFunc(out.Edges, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Source, b.Source))
	})
	cells := 0
	for g, group := range pa.Destination.Model.Groups {
		for r := range pa.Destination.Ranks {
			part := pa.Destination.Part(g, r)
			for _, c := range group.Components {
				cells += len(part.Layers) * c.HeadCount()
			}
		}
	}
	if cells > maxCells {
		return nil, &TooLarge{"heads and layers of all ranks", cells, maxCells}
	}
	for g := range pa.Destination.Model.Groups {
		period, err := periodOf(pa, g, a.Assignments, b.Assignments)
		if err != nil {
			return nil, err
		}
		fa, fb := feedsOf(pa, g, period, a.Assignments), feedsOf(pb, g, period, b.Assignments)
		out.Boxes = append(out.Boxes, boxes(pa, g, period, fa, fb)...)
	}
	return out, nil
}

// periodOf is after how many tokens ranks and assignments deal them alike again.
func periodOf(p *plan.Pair, g int, lists ...[]plan.Assignment) (int, error) {
	period := 1
	add := func(n int) {
		a, b := period, max(n, 1)
		for b != 0 {
			a, b = b, a%b
		}
		if period <= maxTokens {
			period = period / a * max(n, 1)
		}
	}
	for _, s := range []*plan.Side{&p.Source, &p.Destination} {
		if spec := s.ShardOf(g); !s.Model.Groups[g].State {
			add(spec.DCPSize * spec.Interleave)
		}
	}
	for _, as := range lists {
		for _, a := range as {
			if a.Group == g && !a.Tokens.All() {
				add(a.Tokens.Size * a.Tokens.Interleave)
			}
		}
	}
	if period > maxTokens {
		return 0, &TooLarge{"tokens after which ranks deal them alike again", period, maxTokens}
	}
	return period, nil
}

// feed is what a source rank gives of a cell: which tokens of the period.
type feed struct {
	source int
	tokens string // a byte a token, 1 where it moves
}

// cellKey is a head of a layer of a component on a destination rank.
type cellKey struct {
	destination, component, layer, head int
}

// feedsOf is which ranks feed which cells of a group, each list in ascending
// order of ranks.
func feedsOf(p *plan.Pair, g, period int, as []plan.Assignment) map[cellKey][]feed {
	out := map[cellKey][]feed{}
	group := &p.Source.Model.Groups[g]
	for _, a := range as {
		if a.Group != g {
			continue
		}
		from, to := p.Source.Part(g, a.Source), p.Destination.Part(g, a.Destination)
		tokens := make([]byte, period)
		any := false
		for t := range tokens {
			_, here := from.Local(int64(t))
			_, there := to.Local(int64(t))
			if group.State {
				here, there = true, true
			}
			if here && there && (a.Tokens.All() || t/a.Tokens.Interleave%a.Tokens.Size == a.Tokens.Phase) {
				tokens[t], any = 1, true
			}
		}
		if !any {
			continue
		}
		for c := range group.Components {
			if a.Components>>c&1 == 0 {
				continue
			}
			heads := []int{0}
			if group.Components[c].Heads > 0 {
				heads = both(from.Heads[c], to.Heads[c], a.Heads)
			}
			for _, layer := range both(from.Layers, to.Layers, a.Layers) {
				for _, head := range heads {
					key := cellKey{a.Destination, c, layer, head}
					out[key] = merged(out[key], feed{a.Source, string(tokens)})
				}
			}
		}
	}
	return out
}

// both lists what stands in a and in b and in the range, ascending.
func both(a, b []int, within plan.Range) []int {
	in := make(map[int]bool, len(a))
	for _, v := range a {
		in[v] = true
	}
	var out []int
	for _, v := range b {
		if in[v] && v >= within.From && v < within.To {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// merged adds a feed to a list.
func merged(list []feed, f feed) []feed {
	i, ok := slices.BinarySearchFunc(list, f.source, func(o feed, source int) int { return cmp.Compare(o.source, source) })
	if !ok {
		return slices.Insert(list, i, f)
	}
	sum := []byte(list[i].tokens)
	for t := range sum {
		sum[t] |= f.tokens[t]
	}
	list[i].tokens = string(sum)
	return list
}

// text names the ranks of a cell, with their share of the tokens where it is
// not all.
func text(list []feed, period int) string {
	if len(list) == 0 {
		return "none"
	}
	var out []string
	for _, f := range list {
		s := fmt.Sprintf("rank %d", f.source)
		if n := strings.Count(f.tokens, "\x01"); n < period {
			first := strings.IndexByte(f.tokens, 1)
			s += fmt.Sprintf(" (%d of every %d tokens, from %d)", n, period, first)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// boxes joins the cells that are fed unlike into boxes.
func boxes(p *plan.Pair, g, period int, a, b map[cellKey][]feed) []Box {
	group := &p.Destination.Model.Groups[g]
	type stretch struct { // of heads of one layer
		from, to int
		a, b     string
	}
	var out []Box
	for d := range p.Destination.Ranks {
		part := p.Destination.Part(g, d)
		layers := slices.Sorted(slices.Values(part.Layers))
		byBox := map[string]int{} // in out, of this rank: components are joined
		for c := range group.Components {
			heads := []int{0}
			if group.Components[c].Heads > 0 {
				heads = slices.Sorted(slices.Values(part.Heads[c]))
			}
			row := func(layer int) []stretch {
				var row []stretch
				for _, head := range heads {
					key := cellKey{d, c, layer, head}
					if slices.Equal(a[key], b[key]) {
						continue
					}
					one := stretch{head, head + 1, text(a[key], period), text(b[key], period)}
					if n := len(row); n > 0 && row[n-1].to == head && row[n-1].a == one.a && row[n-1].b == one.b {
						row[n-1].to = head + 1
						continue
					}
					row = append(row, one)
				}
				return row
			}
			var last []stretch
			var same []int // layers of it
			flush := func() {
				for _, s := range last {
					box := Box{Destination: d, Group: group.Name, Components: group.Components[c].Name, Layers: geometry.Ranges(same), A: s.a, B: s.b}
					if group.Components[c].Heads > 0 {
						box.Heads = strconv.Itoa(s.from)
						if s.to > s.from+1 {
							box.Heads += "-" + strconv.Itoa(s.to-1)
						}
					}
					key := fmt.Sprint(box.Layers, " ", box.Heads, " ", box.A, " ", box.B)
					if i, ok := byBox[key]; ok {
						out[i].Components += ", " + box.Components
						continue
					}
					byBox[key] = len(out)
					out = append(out, box)
				}
			}
			for _, layer := range layers {
				r := row(layer)
				if !slices.Equal(r, last) {
					flush()
					last, same = r, nil
				}
				same = append(same, layer)
			}
			flush()
		}
	}
	return out
}

// Lines is the disagreement for people, a line each, with the names of the two.
func (p *Plans) Lines(a, b string) []string {
	var out []string
	for _, e := range p.Edges {
		out = append(out, fmt.Sprintf("rank %d -> rank %d: %s moves %d bytes of a request of %d tokens, %s %d", e.Source, e.Destination, a, e.A, build.CostTokens, b, e.B))
	}
	for _, x := range p.Boxes {
		what := x.Components
		if x.Group != "" {
			what = "group " + x.Group + ", " + what
		}
		what += ", layers " + x.Layers
		if x.Heads != "" {
			what += ", heads " + x.Heads
		}
		out = append(out, fmt.Sprintf("rank %d, %s: %s takes it from %s, %s from %s", x.Destination, what, a, x.A, b, x.B))
	}
	return out
}
