// Package shard says which part of a cache each rank of an engine holds:
// layers (pipeline stages), heads (tensor parallelism, with replication) and
// tokens (decode context parallelism with interleave).
//
// It knows no bytes. Token arithmetic follows the canonical mapping of DCP: with
// size c and interleave I, canonical token t lies on rank (t / I) mod c at the
// local place (t / (I*c)) * I + t mod I.
package shard

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// Grid is an axis of the rank grid.
type Grid uint8

// The axes over which ranks are numbered.
const (
	PP  Grid = 1
	TP  Grid = 2
	DCP Grid = 3
)

// String is the axis's name in pair files.
func (g Grid) String() string {
	switch g {
	case PP:
		return "pp"
	case TP:
		return "tp"
	case DCP:
		return "dcp"
	}
	return fmt.Sprintf("grid(%d)", uint8(g))
}

// MaxRanks bounds the ranks of one engine.
const MaxRanks = 1 << 12

// Spec says how an engine is sharded.
type Spec struct {
	TP         int     // head shards, >= 1
	Stages     []int   // layers of each pipeline stage in model order; they sum to the model's layers
	DCPSize    int     // ranks over which a head shard's tokens are dealt, >= 1
	Interleave int     // consecutive tokens dealt at a time, >= 1; 1 where DCPSize is 1
	Heads      [][]int // one list a TP rank, in storage order; nil: contiguous equal parts
	Order      [3]Grid // outermost first; all three axes
	// Places, where not nil, says by rank number where in the grid each rank
	// stands, and Order says nothing.
	Places []Place
}

// Error is a shard that cannot be. Field is the dotted place below "shard".
type Error struct {
	Field  string
	Value  any
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("shard: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Order completes a partial rank order: axes left out come innermost in the
// order pp, tp, dcp. Nil gives [pp, tp, dcp].
func Order(partial []Grid) ([3]Grid, error) {
	var out [3]Grid
	n := 0
	seen := [4]bool{}
	for _, g := range append(append([]Grid{}, partial...), PP, TP, DCP) {
		if g < PP || g > DCP {
			return out, &Error{"rank_order", g, "want pp, tp and dcp"}
		}
		if seen[g] {
			if n < len(partial) {
				return out, &Error{"rank_order", g, "named twice"}
			}
			continue
		}
		seen[g] = true
		out[n] = g
		n++
	}
	return out, nil
}

// Validate returns an *Error naming the first field under which m cannot be
// sharded so.
func (s Spec) Validate(m geometry.Model) error {
	if s.TP < 1 || s.TP > MaxRanks {
		return &Error{"tp", s.TP, fmt.Sprintf("want 1 to %d", MaxRanks)}
	}
	if s.DCPSize < 1 || s.DCPSize > MaxRanks {
		return &Error{"dcp.size", s.DCPSize, fmt.Sprintf("want 1 to %d", MaxRanks)}
	}
	if s.Interleave < 1 || s.Interleave > 1<<20 {
		return &Error{"dcp.interleave", s.Interleave, "want 1 to 1048576"}
	}
	if len(s.Stages) < 1 || len(s.Stages) > m.Layers {
		return &Error{"pp", len(s.Stages), fmt.Sprintf("want 1 to %d stages", m.Layers)}
	}
	sum := 0
	for i, n := range s.Stages {
		if n < 1 || n > m.Layers {
			return &Error{fmt.Sprintf("pp[%d]", i), n, "a stage holds at least one layer"}
		}
		sum += n
	}
	if sum != m.Layers {
		return &Error{"pp", fmt.Sprint(s.Stages), fmt.Sprintf("the stages hold %d layers, the model has %d", sum, m.Layers)}
	}
	if _, err := Order(s.Order[:]); err != nil {
		return err
	}
	if n := s.TP * len(s.Stages) * s.DCPSize; n > MaxRanks {
		return &Error{"ranks", n, fmt.Sprintf("want at most %d", MaxRanks)}
	}
	if err := s.validatePlaces(); err != nil {
		return err
	}
	headed := false
	for gi := range m.Groups {
		g := &m.Groups[gi]
		for _, class := range g.Classes() {
			headed = headed || class.Heads > 0
			if err := s.validateHeads(g, class); err != nil {
				return err
			}
			if class.Entry > 1 && s.DCPSize > 1 && s.Interleave%class.Entry != 0 {
				return &Error{"dcp.interleave", s.Interleave, fmt.Sprintf("parts the entries of %d tokens that %s has", class.Entry, called(g))}
			}
		}
		if g.State && s.DCPSize > 1 {
			return &Error{"dcp.size", s.DCPSize, fmt.Sprintf("group %q keeps states, which have no tokens to deal: give the group a shard of its own", g.Name)}
		}
		for _, share := range g.Shared {
			if s.stage(share.Layer) != s.stage(share.Owner) {
				return &Error{"pp", fmt.Sprint(s.Stages), fmt.Sprintf("layer %d shares the cache of layer %d, which lies in another stage", share.Layer, share.Owner)}
			}
		}
	}
	if s.Heads != nil && !headed {
		return &Error{"heads", "given", "the model's components have no heads: every tp rank holds them whole"}
	}
	return nil
}

// called is a group in a message.
func called(g *geometry.Group) string {
	if g.Name == "" {
		return "the model"
	}
	return fmt.Sprintf("group %q", g.Name)
}

// stage is the pipeline stage of a layer.
func (s Spec) stage(layer int) int {
	for i, n := range s.Stages {
		if layer < n {
			return i
		}
		layer -= n
	}
	return len(s.Stages)
}

// validatePlaces checks that the places are those of the grid, each once.
func (s Spec) validatePlaces() error {
	if s.Places == nil {
		return nil
	}
	if len(s.Places) != s.Ranks() {
		return &Error{"ranks", len(s.Places), fmt.Sprintf("want a place for each of %d ranks", s.Ranks())}
	}
	seen := make(map[Place]int, len(s.Places))
	for r, p := range s.Places {
		if p.PP < 0 || p.PP >= len(s.Stages) || p.TP < 0 || p.TP >= s.TP || p.DCP < 0 || p.DCP >= s.DCPSize {
			return &Error{fmt.Sprintf("ranks[%d]", r), p, fmt.Sprintf("want a place in %d pp x %d tp x %d dcp", len(s.Stages), s.TP, s.DCPSize)}
		}
		if o, ok := seen[p]; ok {
			return &Error{fmt.Sprintf("ranks[%d]", r), p, fmt.Sprintf("is the place of rank %d", o)}
		}
		seen[p] = r
	}
	return nil
}

// uneven says what does not split, and what can be done about it: heads can be
// dealt by a list, channels only in equal parts.
func uneven(g *geometry.Group, class geometry.Class, units, tp int) string {
	of := ""
	if g.Name != "" {
		of = fmt.Sprintf(" of group %q (component %s)", g.Name, g.Components[bits.TrailingZeros64(class.Components)].Name)
	}
	if class.Unit > 1 || g.State {
		what := "channels"
		if class.Unit > 1 {
			what = fmt.Sprintf("units of %d", class.Unit)
		}
		return fmt.Sprintf("%d %s%s do not split evenly over tp %d, nor tp over them: they are dealt in equal parts, so choose a tp that divides them, or give the group a shard of its own", units, what, of, tp)
	}
	return fmt.Sprintf("%d heads%s do not split evenly over tp %d, nor tp over heads: give the shard's heads explicitly", units, of, tp)
}

func (s Spec) validateHeads(g *geometry.Group, class geometry.Class) error {
	heads := class.Heads
	if heads == 0 {
		return nil
	}
	if s.Heads == nil {
		if units := heads / class.Unit; units%s.TP != 0 && s.TP%units != 0 {
			return &Error{"tp", s.TP, uneven(g, class, units, s.TP)}
		}
		return nil
	}
	if class.Unit > 1 || g.State {
		return &Error{"heads", "given", fmt.Sprintf("%s has channels, which are dealt in equal parts", called(g))}
	}
	if len(s.Heads) != s.TP {
		return &Error{"heads", len(s.Heads), fmt.Sprintf("want one list for each of %d tp ranks", s.TP)}
	}
	covered := make([]bool, heads)
	for t, list := range s.Heads {
		if len(list) == 0 {
			return &Error{fmt.Sprintf("heads[%d]", t), "empty", "a rank holds at least one head"}
		}
		own := map[int]bool{}
		for i, h := range list {
			if h < 0 || h >= heads || own[h] {
				return &Error{fmt.Sprintf("heads[%d][%d]", t, i), h, fmt.Sprintf("head numbers are 0 to %d, each once a rank", heads-1)}
			}
			own[h] = true
			covered[h] = true
		}
	}
	for h, ok := range covered {
		if !ok {
			return &Error{"heads", fmt.Sprintf("head %d missing", h), "every head lies on some rank"}
		}
	}
	return nil
}

// Ranks is the number of ranks of the engine.
func (s Spec) Ranks() int { return s.TP * len(s.Stages) * s.DCPSize }

func (s Spec) size(g Grid) int {
	switch g {
	case PP:
		return len(s.Stages)
	case TP:
		return s.TP
	}
	return s.DCPSize
}

// Place is a rank's position in the grid.
type Place struct{ PP, TP, DCP int }

// Place returns where in the grid rank r stands.
// Preconditions: 0 <= r < Ranks, s is valid.
func (s Spec) Place(r int) Place {
	if s.Places != nil {
		return s.Places[r]
	}
	var p Place
	for i := len(s.Order) - 1; i >= 0; i-- {
		n := s.size(s.Order[i])
		switch s.Order[i] {
		case PP:
			p.PP = r % n
		case TP:
			p.TP = r % n
		case DCP:
			p.DCP = r % n
		}
		r /= n
	}
	return p
}

// Rank is the inverse of Place.
func (s Spec) Rank(p Place) int {
	if s.Places != nil {
		return slices.Index(s.Places, p)
	}
	r := 0
	for _, g := range s.Order {
		v := p.DCP
		switch g {
		case PP:
			v = p.PP
		case TP:
			v = p.TP
		}
		r = r*s.size(g) + v
	}
	return r
}

// Part is what one rank holds of one group.
type Part struct {
	Layers []int   // model layer numbers in storage order; empty: none of the group's
	Heads  [][]int // by component: model head numbers in storage order; nil for one without heads
	// Token t is held when (t/Interleave) mod Size == Phase, at the local
	// place (t/(Interleave*Size))*Interleave + t mod Interleave.
	Size, Interleave, Phase int
}

// Extent is the shape of the part on a rank with a pool of the given number of
// blocks of block tokens each.
func (p Part) Extent(g geometry.Group, block, blocks int) layout.Extent {
	e := layout.Extent{Layers: p.Layers, Blocks: blocks, Tokens: block, Heads: make([]int, len(p.Heads)), Components: g.Components, State: g.State}
	for i, h := range p.Heads {
		e.Heads[i] = len(h)
	}
	return e
}

// Local returns the local place of canonical token t, and whether the rank
// holds it.
func (p Part) Local(t int64) (int64, bool) {
	i, c := int64(p.Interleave), int64(p.Size)
	return t/(i*c)*i + t%i, t/i%c == int64(p.Phase)
}

// Token returns the canonical token at local place u.
func (p Part) Token(u int64) int64 {
	i, c := int64(p.Interleave), int64(p.Size)
	return (u/i*c+int64(p.Phase))*i + u%i
}

// Part returns what rank r holds of g.
// Preconditions: s is valid for g's model, 0 <= r < Ranks.
func (s Spec) Part(g geometry.Group, r int) Part {
	at := s.Place(r)
	p := Part{Size: s.DCPSize, Interleave: s.Interleave, Phase: at.DCP}
	lo := 0
	for _, n := range s.Stages[:at.PP] {
		lo += n
	}
	hi := lo + s.Stages[at.PP]
	from, _ := slices.BinarySearch(g.Layers, lo)
	to, _ := slices.BinarySearch(g.Layers, hi)
	if from < to {
		p.Layers = slices.Clone(g.Layers[from:to])
	}
	p.Heads = make([][]int, len(g.Components))
	for i, c := range g.Components {
		for k, o := range g.Components[:i] { // mostly the same for all
			if o.Heads == c.Heads && o.Unit == c.Unit {
				p.Heads[i] = p.Heads[k]
				break
			}
		}
		if p.Heads[i] == nil && c.Heads > 0 {
			p.Heads[i] = s.heads(c, at.TP)
		}
	}
	return p
}

// heads are the heads of a component that TP rank t holds: units t*n/TP and
// what follows, n/TP of n in all, or the one that it shares with others.
func (s Spec) heads(c geometry.Component, t int) []int {
	if s.Heads != nil {
		return slices.Clone(s.Heads[t])
	}
	unit := c.UnitHeads()
	n := c.Heads / unit
	first, count := t*n/s.TP*unit, max(n/s.TP, 1)*unit
	out := make([]int, count)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// Text is the canonical form, one line.
func (s Spec) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shard tp %d pp %v dcp %d interleave %d order %s,%s,%s", s.TP, s.Stages, s.DCPSize, s.Interleave, s.Order[0], s.Order[1], s.Order[2])
	if s.Heads != nil {
		fmt.Fprintf(&b, " heads %v", s.Heads)
	}
	if s.Places != nil {
		fmt.Fprintf(&b, " places %v", s.Places)
	}
	b.WriteByte('\n')
	return b.String()
}

// Digest is the SHA-256 of Text.
func (s Spec) Digest() geometry.Digest { return sha256.Sum256([]byte(s.Text())) }

// Even splits layers into n equal stages. It is an *Error where n does not
// divide them: uneven stages are given as a list.
func Even(layers, n int) ([]int, error) {
	if n < 1 || layers%n != 0 {
		return nil, &Error{"pp", n, fmt.Sprintf("does not divide %d layers: give the stages as a list", layers)}
	}
	out := make([]int, n)
	for i := range out {
		out[i] = layers / n
	}
	return out, nil
}
