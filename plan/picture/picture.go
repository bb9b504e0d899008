// Package picture draws a plan as a terminal grid: which destination rank's
// heads and layers come from which source rank.
//
// It shows what a plan's assignments bring, after the part that the ranks of
// each edge do not share is taken off; it proves nothing.
package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// Options says how to draw. The zero value draws 80 columns of plain text and
// at most 64 ranks.
type Options struct {
	Width  int  // columns; 0: 80; less than 40 is drawn as 40
	Ranks  int  // destination ranks shown; 0: 64
	Colour bool // a colour for each source rank, as ANSI escapes
}

// Grid draws the plan, one table for each group, and in it for each number of
// heads that components have. Rows are destination ranks, with a row for each
// range of layers (and, where they differ, for each component) that is fed
// alike; columns are heads, or the channels of states; a cell names the source
// ranks, "." is what the rank does not hold and "!" what nothing brings.
// Preconditions: pl was built for p, and p.Validate() is nil.
func Grid(p *plan.Pair, pl *plan.Plan, o Options) string {
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 40)
	if o.Ranks == 0 {
		o.Ranks = 64
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s) -> %s (%s)\n", p.Source.Engine, describe(&p.Source), p.Destination.Engine, describe(&p.Destination))
	for g := range p.Source.Model.Groups {
		draw(&b, p, pl, g, o)
	}
	return b.String()
}

// describe is a side's shard and block sizes in few words.
func describe(s *plan.Side) string {
	t := shards(&s.Shard)
	var blocks []string
	for g, pool := range s.Groups {
		if !s.Model.Groups[g].State {
			blocks = append(blocks, fmt.Sprint(pool.Block))
		}
	}
	if blocks != nil {
		t += ", block " + strings.Join(blocks, "/")
	}
	for g, pool := range s.Groups {
		if pool.Shard != nil {
			t += fmt.Sprintf("; %s: %s", s.Model.Groups[g].Name, shards(pool.Shard))
		}
	}
	return t
}

func shards(s *shard.Spec) string {
	t := fmt.Sprintf("tp %d", s.TP)
	if n := len(s.Stages); n > 1 {
		t += fmt.Sprintf(", pp %d", n)
	}
	if s.DCPSize > 1 {
		t += fmt.Sprintf(", dcp %d by %d", s.DCPSize, s.Interleave)
	}
	return t
}

// cell is the source ranks of one (component, layer, head), as text; sources
// is the first of them, for its colour, or -1.
type cell struct {
	text   string
	source int
}

var (
	absent  = cell{".", -1}
	missing = cell{"!", -1}
)

type row struct {
	label string
	cells []cell // by atom
}

// drawing is one table: components of a group with equally many heads.
type drawing struct {
	p          *plan.Pair
	pl         *plan.Plan
	group      int
	components []int // indices
	heads      int   // of the model; 0: the components have none
	// atoms are the first heads of the finest ranges that ranks and
	// assignments tell apart, ascending, and the number of heads.
	atoms []int
}

func draw(b *strings.Builder, p *plan.Pair, pl *plan.Plan, g int, o Options) {
	group := &p.Source.Model.Groups[g]
	if group.Name != "" {
		fmt.Fprintf(b, "group %s\n", group.Name)
	}
	var all []*drawing
	for i, c := range group.Components {
		k := slices.IndexFunc(all, func(d *drawing) bool { return d.heads == c.Heads })
		if k < 0 {
			k = len(all)
			all = append(all, &drawing{p: p, pl: pl, group: g, heads: c.Heads})
		}
		all[k].components = append(all[k].components, i)
	}
	ranks := len(p.Destination.Ranks)
	if ranks == 0 {
		ranks = p.Destination.ShardOf(g).Ranks()
	}
	shown := min(ranks, o.Ranks)
	for _, d := range all {
		if len(all) > 1 {
			var names []string
			for _, c := range d.components {
				names = append(names, group.Components[c].Name)
			}
			fmt.Fprintf(b, "%s\n", strings.Join(names, ", "))
		}
		d.divide(shown)
		var rows []row
		for r := range shown {
			rows = append(rows, d.rankRows(r)...)
		}
		what := "heads"
		if group.State {
			what = "channels"
		}
		d.table(b, rows, what, o)
	}
	if ranks > shown {
		fmt.Fprintf(b, "... and %d more ranks\n", ranks-shown)
	}
}

// divide finds the atoms.
func (d *drawing) divide(shown int) {
	ends := map[int]bool{0: true, max(d.heads, 1): true}
	runs := func(heads []int) {
		for i, h := range heads {
			if i == 0 || heads[i-1] != h-1 {
				ends[h] = true
			}
			if i == len(heads)-1 || heads[i+1] != h+1 {
				ends[h+1] = true
			}
		}
	}
	for r := range shown {
		for _, c := range d.components {
			runs(d.p.Destination.Part(d.group, r).Heads[c])
		}
	}
	for _, e := range d.pl.Edges {
		if e.Group == d.group && e.Destination < shown {
			for _, c := range d.components {
				runs(d.p.Source.Part(d.group, e.Source).Heads[c])
			}
		}
	}
	for _, a := range d.pl.Assignments {
		if a.Group == d.group && a.Destination < shown && slices.ContainsFunc(d.components, func(c int) bool { return a.Components>>c&1 != 0 }) {
			ends[a.Heads.From], ends[a.Heads.To] = true, true
		}
	}
	for e := range ends {
		d.atoms = append(d.atoms, e)
	}
	slices.Sort(d.atoms)
}

// held says by component and atom what a part has.
func (d *drawing) held(part *shard.Part) map[int][]bool {
	out := map[int][]bool{}
	for _, c := range d.components {
		out[c] = make([]bool, len(d.atoms)-1)
		if d.heads == 0 {
			out[c][0] = true
		}
		for _, h := range part.Heads[c] {
			if i, ok := slices.BinarySearch(d.atoms, h); ok {
				out[c][i] = true
			}
		}
	}
	return out
}

// rankRows computes the rows of one destination rank.
func (d *drawing) rankRows(rank int) []row {
	part := d.p.Destination.Part(d.group, rank)
	group := &d.p.Source.Model.Groups[d.group]
	atoms := len(d.atoms) - 1
	held := d.held(&part)
	fed := d.feeders(rank, part.Layers, held)

	// line is one layer of one component, drawn.
	line := func(c, layer int) []cell {
		out := make([]cell, atoms)
		for h := range out {
			out[h] = absent
			if held[c][h] {
				out[h] = missing
				if s := fed[at{c, layer, h}]; len(s) > 0 {
					out[h] = cell{sources(s), s[0]}
				}
			}
		}
		return out
	}
	var rows []row
	add := func(layers []int, what string, cells []cell) {
		label := ""
		if len(rows) == 0 {
			label = fmt.Sprintf("rank %d", rank)
		}
		label = fmt.Sprintf("%-9s layers %s", label, geometry.Ranges(layers))
		if what != "" {
			label += " " + what
		}
		rows = append(rows, row{label, cells})
	}
	if len(part.Layers) == 0 {
		return []row{{fmt.Sprintf("rank %d    no layers", rank), slices.Repeat([]cell{absent}, atoms)}}
	}
	for i := 0; i < len(part.Layers); {
		first := d.lines(part.Layers[i], line)
		j := i + 1
		for j < len(part.Layers) && slices.EqualFunc(first, d.lines(part.Layers[j], line), slices.Equal[[]cell]) {
			j++
		}
		alike := true
		for _, l := range first[1:] {
			alike = alike && slices.Equal(l, first[0])
		}
		if alike {
			add(part.Layers[i:j], "", first[0])
		} else {
			for k, l := range first {
				add(part.Layers[i:j], group.Components[d.components[k]].Name, l)
			}
		}
		i = j
	}
	return rows
}

func (d *drawing) lines(layer int, line func(c, layer int) []cell) [][]cell {
	out := make([][]cell, len(d.components))
	for i, c := range d.components {
		out[i] = line(c, layer)
	}
	return out
}

type at struct{ component, layer, atom int }

// feeders lists the source ranks, ascending, that feed each of the rows that
// the rank holds.
func (d *drawing) feeders(rank int, layers []int, held map[int][]bool) map[at][]int {
	edges := map[int]bool{}
	for _, e := range d.pl.Edges {
		if e.Group == d.group && e.Destination == rank {
			edges[e.Source] = true
		}
	}
	type end struct {
		layers []int
		held   map[int][]bool
	}
	ends := map[int]end{}
	out := map[at][]int{}
	for _, a := range d.pl.Assignments {
		if a.Group != d.group || a.Destination != rank || !edges[a.Source] {
			continue
		}
		src, ok := ends[a.Source]
		if !ok {
			part := d.p.Source.Part(d.group, a.Source)
			src = end{part.Layers, d.held(&part)}
			ends[a.Source] = src
		}
		for _, c := range d.components {
			if a.Components>>c&1 == 0 {
				continue
			}
			for _, l := range layers {
				if l < a.Layers.From || l >= a.Layers.To || !slices.Contains(src.layers, l) {
					continue
				}
				for h, head := range d.atoms[:len(d.atoms)-1] {
					if head < a.Heads.From || head >= a.Heads.To || !held[c][h] || !src.held[c][h] {
						continue
					}
					k := at{c, l, h}
					if i, dup := slices.BinarySearch(out[k], a.Source); !dup {
						out[k] = slices.Insert(out[k], i, a.Source)
					}
				}
			}
		}
	}
	return out
}

// sources names source ranks in at most nine columns.
func sources(s []int) string {
	t := geometry.Ranges(s)
	if len(t) > 9 {
		return fmt.Sprintf("%d..%d", s[0], s[len(s)-1])
	}
	return t
}

// column is a range of heads that every row shows alike.
type column struct {
	title string
	atom  int // the first
	width int
}

// table writes the rows, each head in a column of its own if the width allows,
// otherwise those drawn alike in one, and the columns in as many panels as the
// width needs.
func (d *drawing) table(b *strings.Builder, rows []row, what string, o Options) {
	label := len(what)
	for _, r := range rows {
		label = max(label, len(r.label))
	}
	cols := d.columns(rows, false)
	if label+total(cols) > o.Width {
		cols = d.columns(rows, true)
	}
	for len(cols) > 0 {
		n, used := 0, label
		for n < len(cols) && (n == 0 || used+2+cols[n].width <= o.Width) {
			used += 2 + cols[n].width
			n++
		}
		if d.heads > 0 {
			fmt.Fprintf(b, "%*s", label, what)
			for _, c := range cols[:n] {
				fmt.Fprintf(b, "  %*s", c.width, c.title)
			}
			b.WriteByte('\n')
		}
		for _, r := range rows {
			fmt.Fprintf(b, "%-*s", label, r.label)
			for _, c := range cols[:n] {
				v := r.cells[c.atom]
				fmt.Fprintf(b, "  %*s%s", c.width-len(v.text), "", paint(v, o.Colour))
			}
			b.WriteByte('\n')
		}
		cols = cols[n:]
	}
}

func total(cols []column) int {
	n := 0
	for _, c := range cols {
		n += 2 + c.width
	}
	return n
}

// columns are the heads one by one, or the atoms, those drawn alike in one.
func (d *drawing) columns(rows []row, merge bool) []column {
	var out []column
	put := func(title string, atom int) {
		c := column{title, atom, len(title)}
		for _, r := range rows {
			c.width = max(c.width, len(r.cells[atom].text))
		}
		out = append(out, c)
	}
	n := len(d.atoms) - 1
	for i := 0; i < n; {
		j := i + 1
		for merge && j < n && alike(rows, i, j) {
			j++
		}
		switch from, to := d.atoms[i], d.atoms[j]; {
		case d.heads == 0:
			put("", i)
		case merge && to-from > 1:
			put(fmt.Sprintf("%d-%d", from, to-1), i)
		default:
			for h := from; h < to; h++ {
				put(fmt.Sprint(h), i)
			}
		}
		i = j
	}
	return out
}

func alike(rows []row, i, j int) bool {
	for _, r := range rows {
		if r.cells[i] != r.cells[j] {
			return false
		}
	}
	return true
}

// colours are the twelve that read well on dark and light; source ranks take
// them in turn.
var colours = [...]int{36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91}

func paint(c cell, colour bool) string {
	switch {
	case !colour:
		return c.text
	case c == missing:
		return "\x1b[7m" + c.text + "\x1b[0m"
	case c.source < 0:
		return "\x1b[2m" + c.text + "\x1b[0m"
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[c.source%len(colours)], c.text)
}
