// Package plan holds the types of a planned transfer: the pair of engines, a
// policy's assignments, and the strided runs that carry them out, with their
// text, JSON and digest forms.
//
// It makes no plan (package plan/build), checks none (plan/proof) and applies
// none to a request (plan/stamp). Everything here is a pure value.
package plan

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// Side is one engine of a pair, as it lies in memory.
type Side struct {
	Engine string
	Model  geometry.Model
	Shard  shard.Spec
	Groups []Pool             // by group index of Model
	Ranks  [][]*layout.Layout // [rank][group]; nil where the rank holds nothing of the group
	// Own is, by group, its index among the engine's own groups, where a pair
	// has not all of them; nil: the same. Memory and block tables that an engine
	// gives are by its own groups.
	Own []int
}

// OwnGroup is the index of a group among the engine's own.
func (s *Side) OwnGroup(group int) int {
	if s.Own == nil {
		return group
	}
	return s.Own[group]
}

// Pool is the block pool of one group, the same size on every rank.
type Pool struct {
	Block  int // tokens a block, on each rank; 1 for a state
	Blocks int // blocks in the pool; slots for states
	// Ring, where not 0, is the number of blocks that a request goes round in:
	// its table has that many entries and block i of its tokens lies in entry
	// i mod Ring.
	Ring int
	// Shard is the group's own where it is sharded otherwise than the engine,
	// over as many ranks; else nil.
	Shard *shard.Spec
}

// ShardOf is how a group is sharded: its own way or the engine's. It must not
// be modified.
func (s *Side) ShardOf(group int) *shard.Spec {
	if own := s.Groups[group].Shard; own != nil {
		return own
	}
	return &s.Shard
}

// Part is what a rank holds of a group.
func (s *Side) Part(group, rank int) shard.Part {
	return s.ShardOf(group).Part(s.Model.Groups[group], rank)
}

// Pair is a source engine and a destination engine: all that a plan depends
// on, and nothing about a request. Both sides have the same groups in the same
// order; Join makes a pair of sides that do not.
type Pair struct {
	Source, Destination Side
}

// Mismatch is a pair whose sides do not hold the same cache. Fields names
// every difference, with both values.
type Mismatch struct {
	Fields []geometry.Difference
}

func (e *Mismatch) Error() string {
	f := e.Fields[0]
	s := fmt.Sprintf("pair: %s differs: source %s, destination %s", f.Field, f.Source, f.Destination)
	if n := len(e.Fields) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Format prints every field on %+v.
func (e *Mismatch) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		fmt.Fprint(f, e.Error())
		return
	}
	fmt.Fprint(f, "pair: the sides do not hold the same cache:")
	for _, d := range e.Fields {
		fmt.Fprintf(f, "\n  %s: source %s, destination %s", d.Field, d.Source, d.Destination)
	}
}

// Error is a side that contradicts itself. Field is the dotted place below
// the side, which is "source" or "destination".
type Error struct {
	Side   string
	Field  string
	Value  any
	Reason string
	Err    error // the cause, where another package found it
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("pair: %s: %v", e.Side, e.Err)
	}
	return fmt.Sprintf("pair: %s.%s is %v: %s", e.Side, e.Field, e.Value, e.Reason)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Validate returns an *Error where a side contradicts itself and a *Mismatch
// where the sides do not hold the same cache. A pair that passes has, for
// each rank, a layout of exactly the part that the rank's shard says it
// holds.
func (p *Pair) Validate() error {
	if err := p.Source.Validate("source"); err != nil {
		return err
	}
	if err := p.Destination.Validate("destination"); err != nil {
		return err
	}
	match, d := geometry.Compare(p.Source.Model, p.Destination.Model)
	if len(d) > 0 {
		return &Mismatch{Fields: d}
	}
	for i, g := range match.Groups {
		if n := len(match.Groups); g.Source != i || g.Destination != i || n != len(p.Source.Groups) || n != len(p.Destination.Groups) {
			return &Error{Side: "pair", Field: "groups", Value: fmt.Sprintf("%d and %d", len(p.Source.Groups), len(p.Destination.Groups)), Reason: "the sides of a pair have the same groups in the same order"}
		}
	}
	return nil
}

// Validate returns an *Error naming the first thing in which the side, called
// name in the message, contradicts itself.
func (s *Side) Validate(name string) error {
	bad := func(field string, v any, why string, args ...any) error {
		return &Error{Side: name, Field: field, Value: v, Reason: fmt.Sprintf(why, args...)}
	}
	if s.Engine == "" || len(s.Engine) > geometry.MaxName {
		return bad("engine", fmt.Sprintf("%q", s.Engine), "an engine's name has 1 to %d bytes", geometry.MaxName)
	}
	if err := s.Model.Validate(); err != nil {
		return &Error{Side: name, Err: err}
	}
	if len(s.Groups) != len(s.Model.Groups) {
		return bad("groups", len(s.Groups), "the model has %d", len(s.Model.Groups))
	}
	var common []int // groups sharded as the engine is
	for g, pool := range s.Groups {
		if pool.Shard == nil {
			common = append(common, g)
		}
	}
	if err := s.Shard.Validate(s.Model.Select(common)); err != nil {
		return &Error{Side: name, Err: err}
	}
	if s.Own != nil && len(s.Own) != len(s.Groups) {
		return bad("own", len(s.Own), "there are %d groups", len(s.Groups))
	}
	for g, o := range s.Own {
		if o < 0 || o >= geometry.MaxGroups || slices.Contains(s.Own[:g], o) {
			return bad(fmt.Sprintf("own[%d]", g), o, "want the indices of groups, each once")
		}
	}
	if len(s.Ranks) != s.Shard.Ranks() {
		return bad("ranks", len(s.Ranks), "the shard has %d", s.Shard.Ranks())
	}
	for g, pool := range s.Groups {
		group := &s.Model.Groups[g]
		if own := pool.Shard; own != nil {
			if err := own.Validate(s.Model.Select([]int{g})); err != nil {
				return &Error{Side: name, Err: fmt.Errorf("group %q: %w", group.Name, err)}
			}
			if n := own.Ranks(); n != len(s.Ranks) {
				return bad("shard", n, "group %q is sharded over that many ranks, the engine has %d", group.Name, len(s.Ranks))
			}
		}
		// With one group a field is the side's.
		at := func(field string) string { return field }
		if len(s.Groups) > 1 {
			at = func(field string) string { return fmt.Sprintf("groups[%d].%s", g, field) }
		}
		if pool.Block < 1 || pool.Block > 1<<20 {
			return bad(at("block"), pool.Block, "want 1 to 1048576 tokens")
		}
		if pool.Blocks < 1 || pool.Blocks > 1<<28 {
			return bad(at("blocks"), pool.Blocks, "want 1 to 268435456")
		}
		if group.State && pool.Block != 1 {
			return bad(at("block"), pool.Block, "a slot of group %q holds one state", group.Name)
		}
		for _, c := range group.Components {
			if pool.Block%c.EntryTokens() != 0 {
				return bad(at("block"), pool.Block, "component %s has an entry for every %d tokens", c.Name, c.EntryTokens())
			}
		}
		if pool.Ring < 0 || pool.Ring > pool.Blocks || pool.Ring > 0 && group.State {
			return bad(at("ring"), pool.Ring, "want 0 (no ring) to %d blocks, and none in a group of states", pool.Blocks)
		}
		components := group.Components
		headless := !slices.ContainsFunc(components, func(c geometry.Component) bool { return c.Heads > 0 })
		var checked *layout.Layout // the ranks of a side mostly have equal layouts
		var last shard.Place       // of the rank that has it
		spec := s.ShardOf(g)
		for r, layouts := range s.Ranks {
			if len(layouts) != len(s.Groups) {
				return bad(fmt.Sprintf("ranks[%d].layouts", r), len(layouts), "want one a group, %d", len(s.Groups))
			}
			l, place := layouts[g], spec.Place(r)
			if l != nil && l == checked && place.PP == last.PP && (headless || place.TP == last.TP) {
				continue // it holds as many layers and heads as the rank before, if not the same tokens
			}
			part := s.Part(g, r)
			at := func() string {
				if len(s.Groups) > 1 {
					return fmt.Sprintf("ranks[%d].layouts[%d]", r, g)
				}
				return fmt.Sprintf("ranks[%d].layout", r)
			}
			if l == nil {
				if len(part.Layers) > 0 {
					return bad(at(), "absent", "the rank holds layers %s and there is no default layout", geometry.Ranges(part.Layers))
				}
				continue
			}
			e := &l.Extent
			heads := part.Extent(*group, 0, 0).Heads
			fits := slices.Equal(part.Layers, e.Layers) && slices.Equal(heads, e.Heads) && pool.Block == e.Tokens && pool.Blocks == e.Blocks && slices.Equal(components, e.Components) && group.State == e.State
			if fits && checked != nil && (l == checked || same(l, checked)) {
				last = place
				continue
			}
			if !fits { // then one of these differs
				for _, c := range []struct {
					field     string
					have, got string
				}{
					{"layers", geometry.Ranges(part.Layers), geometry.Ranges(e.Layers)},
					{"heads", fmt.Sprint(heads), fmt.Sprint(e.Heads)},
					{"block", fmt.Sprint(pool.Block), fmt.Sprint(e.Tokens)},
					{"blocks", fmt.Sprint(pool.Blocks), fmt.Sprint(e.Blocks)},
					{"state", fmt.Sprint(group.State), fmt.Sprint(e.State)},
					{"components", fmt.Sprint(components), fmt.Sprint(e.Components)},
				} {
					if c.have != c.got {
						return bad(at()+"."+c.field, c.got, "the rank's shard says %s", c.have)
					}
				}
			}
			if err := l.Validate(); err != nil {
				return &Error{Side: name, Err: fmt.Errorf("check rank %d: %w", r, err)}
			}
			checked, last = l, place
		}
	}
	return nil
}

// Text is the canonical form of everything that a plan depends on. Ranks with
// equal layouts share one text.
func (p *Pair) Text() string {
	var b strings.Builder
	b.Grow(1<<14 + 48*(len(p.Source.Ranks)+len(p.Destination.Ranks))*len(p.Source.Groups))
	p.Source.text(&b, "source")
	p.Destination.text(&b, "destination")
	return b.String()
}

func (s *Side) text(b *strings.Builder, name string) {
	fmt.Fprintf(b, "%s engine %q\n%s%s", name, s.Engine, s.Model.Text(), s.Shard.Text())
	if s.Own != nil {
		fmt.Fprintf(b, "own %v\n", s.Own)
	}
	for g, p := range s.Groups {
		fmt.Fprintf(b, "pool %d block %d blocks %d", g, p.Block, p.Blocks)
		if p.Ring > 0 {
			fmt.Fprintf(b, " ring %d", p.Ring)
		}
		b.WriteByte('\n')
		if p.Shard != nil {
			b.WriteString("pool " + p.Shard.Text())
		}
	}
	seen := map[string]int{}
	known := map[*layout.Layout]int{} // ranks often share one value
	latest := make([]*layout.Layout, len(s.Groups))
	number := make([]int, len(s.Groups)) // of the latest
	var line, text []byte
	for r, layouts := range s.Ranks {
		for g, l := range layouts {
			line = strconv.AppendInt(append(line[:0], "rank "...), int64(r), 10)
			line = strconv.AppendInt(append(line, " group "...), int64(g), 10)
			if l == nil {
				b.Write(append(line, " none\n"...))
				continue
			}
			n, ok := number[g], l == latest[g]
			if !ok {
				n, ok = known[l]
			}
			if !ok && latest[g] != nil && same(latest[g], l) { // or have equal ones, and a text is dear
				n, ok = number[g], true
				known[l] = n
			}
			if !ok {
				text = l.AppendText(text[:0])
				if n, ok = seen[string(text)]; !ok {
					n = len(seen)
					seen[string(text)] = n
					b.Write(text)
				}
				known[l] = n
			}
			latest[g], number[g] = l, n
			b.Write(append(strconv.AppendInt(append(line, " layout "...), int64(n), 10), '\n'))
		}
	}
}

// same reports whether two layouts have equal fields, and so equal texts.
func same(a, b *layout.Layout) bool {
	x, y := &a.Extent, &b.Extent
	return x.Blocks == y.Blocks && x.Tokens == y.Tokens && x.State == y.State && slices.Equal(x.Heads, y.Heads) && slices.Equal(x.Layers, y.Layers) && slices.Equal(x.Components, y.Components) &&
		slices.Equal(a.Regions, b.Regions) && slices.EqualFunc(a.Maps, b.Maps, slices.Equal[[]layout.Digit]) && slices.EqualFunc(a.Places, b.Places, slices.Equal[[]layout.Place])
}

// Digest is the SHA-256 of Text.
func (p *Pair) Digest() geometry.Digest { return sha256.Sum256([]byte(p.Text())) }
