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

// Grid draws the plan, one table for each group. Rows are destination ranks,
// with a row for each range of layers (and, where they differ, for each
// component) that is fed alike; columns are heads; a cell names the source
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

// describe is a side's shard and block size in few words.
func describe(s *plan.Side) string {
	t := fmt.Sprintf("tp %d", s.Shard.TP)
	if n := len(s.Shard.Stages); n > 1 {
		t += fmt.Sprintf(", pp %d", n)
	}
	if s.Shard.DCPSize > 1 {
		t += fmt.Sprintf(", dcp %d by %d", s.Shard.DCPSize, s.Shard.Interleave)
	}
	for g, pool := range s.Groups {
		if g == 0 {
			t += ", block "
		} else {
			t += "/"
		}
		t += fmt.Sprint(pool.Block)
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
	cells []cell // by head of the model
}

func draw(b *strings.Builder, p *plan.Pair, pl *plan.Plan, g int, o Options) {
	group := p.Source.Model.Groups[g]
	if group.Name != "" {
		fmt.Fprintf(b, "group %s\n", group.Name)
	}
	ranks := p.Destination.Shard.Ranks()
	shown := min(ranks, o.Ranks)
	var rows []row
	for r := range shown {
		rows = append(rows, rankRows(p, pl, g, r)...)
	}
	table(b, rows, headNames(group), o)
	if ranks > shown {
		fmt.Fprintf(b, "... and %d more ranks\n", ranks-shown)
	}
}

func headNames(g geometry.Group) []int {
	n := make([]int, max(g.Heads(), 1))
	for i := range n {
		n[i] = i
	}
	if g.Heads() == 0 {
		return nil
	}
	return n
}

// rankRows computes the rows of one destination rank.
func rankRows(p *plan.Pair, pl *plan.Plan, g, rank int) []row {
	group := p.Source.Model.Groups[g]
	part := p.Destination.Shard.Part(group, rank)
	heads := max(group.Heads(), 1)
	fed := feeders(p, pl, g, rank, part)

	// line is one layer of one component, drawn.
	line := func(c, layer int) []cell {
		out := make([]cell, heads)
		for h := range out {
			out[h] = absent
			if group.Heads() == 0 || slices.Contains(part.Heads, h) {
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
		return []row{{fmt.Sprintf("rank %d    no layers", rank), repeat(absent, heads)}}
	}
	for i := 0; i < len(part.Layers); {
		first := lines(group, part.Layers[i], line)
		j := i + 1
		for j < len(part.Layers) && slices.EqualFunc(first, lines(group, part.Layers[j], line), slices.Equal[[]cell]) {
			j++
		}
		alike := true
		for _, l := range first[1:] {
			alike = alike && slices.Equal(l, first[0])
		}
		if alike {
			add(part.Layers[i:j], "", first[0])
		} else {
			for c, l := range first {
				add(part.Layers[i:j], group.Components[c].Name, l)
			}
		}
		i = j
	}
	return rows
}

func lines(g geometry.Group, layer int, line func(c, layer int) []cell) [][]cell {
	out := make([][]cell, len(g.Components))
	for c := range out {
		out[c] = line(c, layer)
	}
	return out
}

func repeat(c cell, n int) []cell {
	out := make([]cell, n)
	for i := range out {
		out[i] = c
	}
	return out
}

type at struct{ component, layer, head int }

// feeders lists the source ranks, ascending, that feed each of the rank's
// rows.
func feeders(p *plan.Pair, pl *plan.Plan, g, rank int, part shard.Part) map[at][]int {
	group := p.Source.Model.Groups[g]
	edges := map[int]bool{}
	for _, e := range pl.Edges {
		if e.Group == g && e.Destination == rank {
			edges[e.Source] = true
		}
	}
	parts := map[int]shard.Part{}
	out := map[at][]int{}
	for _, a := range pl.Assignments {
		if a.Group != g || a.Destination != rank || !edges[a.Source] {
			continue
		}
		src, ok := parts[a.Source]
		if !ok {
			src = p.Source.Shard.Part(group, a.Source)
			parts[a.Source] = src
		}
		rows := part.Heads
		if group.Heads() == 0 {
			rows = []int{0}
		}
		for _, l := range part.Layers {
			if l < a.Layers.From || l >= a.Layers.To || !slices.Contains(src.Layers, l) {
				continue
			}
			for _, h := range rows {
				if h < a.Heads.From || h >= a.Heads.To || group.Heads() > 0 && !slices.Contains(src.Heads, h) {
					continue
				}
				for c := range group.Components {
					if a.Components>>c&1 == 0 {
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
	head  int // the first
	width int
}

// table writes the rows, with heads drawn alike in one column and the columns
// in as many panels as the width needs.
func table(b *strings.Builder, rows []row, heads []int, o Options) {
	label := len("heads")
	for _, r := range rows {
		label = max(label, len(r.label))
	}
	cols := columns(rows, heads, false)
	if label+total(cols) > o.Width {
		cols = columns(rows, heads, true)
	}
	for len(cols) > 0 {
		n, used := 0, label
		for n < len(cols) && (n == 0 || used+2+cols[n].width <= o.Width) {
			used += 2 + cols[n].width
			n++
		}
		if heads != nil {
			fmt.Fprintf(b, "%*s", label, "heads")
			for _, c := range cols[:n] {
				fmt.Fprintf(b, "  %*s", c.width, c.title)
			}
			b.WriteByte('\n')
		}
		for _, r := range rows {
			fmt.Fprintf(b, "%-*s", label, r.label)
			for _, c := range cols[:n] {
				v := r.cells[c.head]
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

func columns(rows []row, heads []int, merge bool) []column {
	if heads == nil {
		heads = []int{0}
	}
	var out []column
	for i := 0; i < len(heads); {
		j := i + 1
		for merge && j < len(heads) && alike(rows, i, j) {
			j++
		}
		c := column{title: geometry.Ranges(heads[i:j]), head: i}
		c.width = len(c.title)
		for _, r := range rows {
			c.width = max(c.width, len(r.cells[i].text))
		}
		out = append(out, c)
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
