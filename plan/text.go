package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// Text writes the plan for people and for goldens: one line an edge, piece
// and run, with regions and components by name. pair is the pair that the plan
// was built for. A reference that the pair does not have is written as its
// number with a question mark, so that a plan that is refused can be shown.
//
//	period 32 tokens, source 2 blocks, destination 1 block
//	edge 0 -> 1
//	  piece 0: tokens 0 to 15, block 0 at 0 -> block 0 at 0
//	  layer 0 k: layer0+16384 -> layer0+0, 8192 bytes, 2 x (16384 -> 8192)
//
// The heads of states are called channels, and their blocks slots; the pieces
// of a component whose entries are several tokens count entries:
//
//	piece 1: entries 0 to 3 of 4 tokens, block 0 at 0 -> block 0 at 0
//	piece 2: state, slot 0 -> slot 0
func (p *Plan) Text(pair *Pair) string {
	var b strings.Builder
	for _, a := range p.Assignments {
		fmt.Fprintf(&b, "assign %s\n", a.Text(pair))
	}
	for g, period := range p.Groups {
		if len(p.Groups) > 1 {
			fmt.Fprintf(&b, "group %s ", cmp.Or(groupName(pair, g), fmt.Sprint(g)))
		}
		if isState(pair, g) {
			fmt.Fprintf(&b, "period %s, source %s, destination %s", count(period.Tokens, "state"), count(period.SourceBlocks, "slot"), count(period.DestinationBlocks, "slot"))
		} else {
			fmt.Fprintf(&b, "period %d tokens, source %s, destination %s", period.Tokens, count(period.SourceBlocks, "block"), count(period.DestinationBlocks, "block"))
		}
		if period.From != 0 || period.To != period.Tokens {
			fmt.Fprintf(&b, ", window %d to %d", period.From, period.To)
		}
		b.WriteByte('\n')
	}
	for _, e := range p.Edges {
		fmt.Fprintf(&b, "edge %d -> %d", e.Source, e.Destination)
		if len(p.Groups) > 1 {
			fmt.Fprintf(&b, " group %s", cmp.Or(groupName(pair, e.Group), fmt.Sprint(e.Group)))
		}
		b.WriteByte('\n')
		src, dst := rankLayout(&pair.Source, e.Source, e.Group), rankLayout(&pair.Destination, e.Destination, e.Group)
		last, unit := -1, 0
		for i := max(e.From, 0); i < min(e.To, len(p.Runs)); i++ {
			r := &p.Runs[i]
			if u := entryOf(pair, e.Group, r.Component); r.Piece != last || u != unit {
				last, unit = r.Piece, u
				if r.Piece >= 0 && r.Piece < len(p.Pieces) {
					fmt.Fprintf(&b, "  piece %d: %s\n", r.Piece, p.Pieces[r.Piece].text(u, isState(pair, e.Group)))
				} else {
					fmt.Fprintf(&b, "  piece %d?\n", r.Piece)
				}
			}
			fmt.Fprintf(&b, "  %s\n", r.text(pair, e.Group, src, dst))
		}
	}
	return b.String()
}

// Text is the assignment in words: "rank 1 <- rank 0: k v, layers 0-79, heads
// 2-3".
func (a Assignment) Text(pair *Pair) string {
	s := fmt.Sprintf("rank %d <- rank %d:", a.Destination, a.Source)
	for c := a.Components; c != 0; c &= c - 1 {
		s += " " + componentName(pair, a.Group, bits.TrailingZeros64(c))
	}
	heads := "heads"
	if isState(pair, a.Group) {
		heads = "channels"
	}
	s += fmt.Sprintf(", layers %s, %s %s", layersText(pair, a), heads, a.Heads.text())
	if !a.Tokens.All() {
		s += fmt.Sprintf(", tokens with (t / %d) mod %d = %d", a.Tokens.Interleave, a.Tokens.Size, a.Tokens.Phase)
	}
	if name := groupName(pair, a.Group); name != "" {
		s += ", group " + name
	}
	return s
}

// groupName is what a group is called in words; "" where it is the only one and
// has no name.
func groupName(pair *Pair, group int) string {
	if groups := pair.Source.Model.Groups; group >= 0 && group < len(groups) && groups[group].Name != "" {
		return groups[group].Name
	}
	if group == 0 {
		return ""
	}
	return fmt.Sprint(group)
}

// layersText is the layers of an assignment: those of its group, where it has
// not all of them.
func layersText(pair *Pair, a Assignment) string {
	groups := pair.Source.Model.Groups
	if a.Group < 0 || a.Group >= len(groups) {
		return a.Layers.text()
	}
	var own []int
	for _, l := range groups[a.Group].Layers {
		if l >= a.Layers.From && l < a.Layers.To {
			own = append(own, l)
		}
	}
	if len(own) == 0 {
		return a.Layers.text()
	}
	return geometry.Ranges(own)
}

func (r Range) text() string {
	if r.To-r.From == 1 {
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To-1)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// text is a piece in words: of states, or of entries of so many tokens.
func (q Piece) text(entry int, state bool) string {
	if state && q.Count == 1 && q.Token|q.SourceToken|q.DestinationToken == 0 {
		return fmt.Sprintf("state, slot %d -> slot %d", q.SourceBlock, q.DestinationBlock)
	}
	one, several, of := "token", "tokens", ""
	if entry > 1 {
		one, several, of = "entry", "entries", fmt.Sprintf(" of %d tokens", entry)
	}
	tokens := fmt.Sprintf("%s %d%s", one, q.Token, of)
	switch {
	case q.Count > 1 && q.Step == 1:
		tokens = fmt.Sprintf("%s %d to %d%s", several, q.Token, q.Token+q.Count-1, of)
	case q.Count > 1:
		tokens = fmt.Sprintf("%s %d to %d by %d%s", several, q.Token, q.Token+(q.Count-1)*q.Step, q.Step, of)
	}
	end := func(block, token, step int64) string {
		s := fmt.Sprintf("block %d at %d", block, token)
		if q.Count > 1 && step != 1 {
			s += fmt.Sprintf(" by %d", step)
		}
		return s
	}
	return tokens + ", " + end(q.SourceBlock, q.SourceToken, q.SourceStep) + " -> " + end(q.DestinationBlock, q.DestinationToken, q.DestinationStep)
}

func (r *Run) text(pair *Pair, group int, src, dst *layout.Layout) string {
	s := fmt.Sprintf("layer %d %s: %s+%d -> %s+%d, %d bytes", r.Layer, componentName(pair, group, r.Component),
		regionName(src, r.SourceRegion), r.SourceOffset, regionName(dst, r.DestinationRegion), r.DestinationOffset, r.Bytes)
	for _, l := range r.Loops {
		s += fmt.Sprintf(", %d x (%d -> %d)", l.Count, l.SourceStride, l.DestinationStride)
	}
	return s
}

func rankLayout(s *Side, rank, group int) *layout.Layout {
	if rank < 0 || rank >= len(s.Ranks) || group < 0 || group >= len(s.Ranks[rank]) {
		return nil
	}
	return s.Ranks[rank][group]
}

func regionName(l *layout.Layout, i int) string {
	if l == nil || i < 0 || i >= len(l.Regions) {
		return fmt.Sprintf("region %d?", i)
	}
	return l.Regions[i].Name
}

// isState reports whether the pair's group is one of states.
func isState(pair *Pair, group int) bool {
	m := &pair.Source.Model
	return group >= 0 && group < len(m.Groups) && m.Groups[group].State
}

// entryOf is the tokens of an entry of a component, 1 where there is none.
func entryOf(pair *Pair, group, i int) int {
	if m := &pair.Source.Model; group >= 0 && group < len(m.Groups) && i >= 0 && i < len(m.Groups[group].Components) {
		return m.Groups[group].Components[i].EntryTokens()
	}
	return 1
}

func componentName(pair *Pair, group, i int) string {
	if m := &pair.Source.Model; group >= 0 && group < len(m.Groups) && i >= 0 && i < len(m.Groups[group].Components) {
		return m.Groups[group].Components[i].Name
	}
	return fmt.Sprintf("component %d?", i)
}

// Place is one end of a copy: a byte offset inside a rank's region.
type Place struct {
	Rank   int    `json:"rank"`
	Region string `json:"region"`
	Offset int64  `json:"offset"`
}

// Copy is one copy of a request in the form that people and scripts read:
// Bytes contiguous bytes, repeated by Loops, outermost first.
type Copy struct {
	Source      Place  `json:"source"`
	Destination Place  `json:"destination"`
	Bytes       int64  `json:"bytes"`
	Loops       []Loop `json:"loops,omitempty"`
}

// String is the copy in one line: "rank 0 layer0+16384 -> rank 1 layer0+0,
// 16384 bytes".
func (c Copy) String() string {
	s := fmt.Sprintf("rank %d %s+%d -> rank %d %s+%d, %d bytes", c.Source.Rank, c.Source.Region, c.Source.Offset,
		c.Destination.Rank, c.Destination.Region, c.Destination.Offset, c.Bytes)
	for _, l := range c.Loops {
		s += fmt.Sprintf(", %d x (%d -> %d)", l.Count, l.SourceStride, l.DestinationStride)
	}
	return s
}

// Flow is what moves over one edge, from one source rank to one destination
// rank, for one request.
type Flow struct {
	Source      int   `json:"source"`
	Destination int   `json:"destination"`
	Bytes       int64 `json:"bytes"`
	Segments    int64 `json:"segments"` // strided copies, before any expansion
}

// MarshalJSON summarises the plan: its digests, its sizes, and the runs of each
// edge. A plan is not sent in this form; both ends of a transfer build and
// prove their own.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type edge struct {
		Group       int `json:"group"`
		Source      int `json:"source"`
		Destination int `json:"destination"`
		Runs        int `json:"runs"`
	}
	edges := make([]edge, len(p.Edges))
	for i, e := range p.Edges {
		edges[i] = edge{e.Group, e.Source, e.Destination, e.To - e.From}
	}
	return json.Marshal(struct {
		Digest      string `json:"digest"`
		Pair        string `json:"pair"`
		Assignments int    `json:"assignments"`
		Pieces      int    `json:"pieces"`
		Runs        int    `json:"runs"`
		Edges       []edge `json:"edges"`
	}{p.Digest().String(), p.Pair.String(), len(p.Assignments), len(p.Pieces), len(p.Runs), edges})
}
