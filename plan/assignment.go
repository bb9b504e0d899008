package plan

import "fmt"

// Assignment is one line of a policy's answer: the destination rank takes a
// box of logical coordinates from the source rank. It never says an offset.
// A box may name more than the two ranks share; what they do not both hold is
// not moved, and whatever is then missing is a gap that the proof names.
type Assignment struct {
	Group       int
	Components  uint64 // bit i: component i of the group
	Destination int    // rank
	Source      int    // rank
	Layers      Range  // the model's layer numbers
	Heads       Range  // the model's head numbers; {0, 1} for components without heads; the components of one assignment have equally many
	Tokens      Tokens
}

// Range is [From, To).
type Range struct{ From, To int }

// Tokens selects canonical tokens: all (the zero value), or those t with
// (t / Interleave) mod Size == Phase.
type Tokens struct{ Size, Interleave, Phase int }

// All reports whether every token is selected.
func (t Tokens) All() bool { return t == Tokens{} || t.Size == 1 }

// MaxAssignments bounds a policy's answer.
const MaxAssignments = 1 << 16

// AssignmentError is an assignment that cannot be, by index. The fault is the
// policy's.
type AssignmentError struct {
	Index  int
	Field  string
	Value  any
	Reason string
}

func (e *AssignmentError) Error() string {
	return fmt.Sprintf("assignment %d: %s is %v: %s", e.Index, e.Field, e.Value, e.Reason)
}

// ValidateAssignments returns an *AssignmentError naming the first assignment
// that names what the pair does not have.
// Preconditions: p is valid.
func (p *Pair) ValidateAssignments(as []Assignment) error {
	if len(as) > MaxAssignments {
		return &AssignmentError{MaxAssignments, "assignments", len(as), fmt.Sprintf("want at most %d", MaxAssignments)}
	}
	m := &p.Source.Model
	layers := max(m.Layers, p.Destination.Model.Layers)
	for i, a := range as {
		bad := func(field string, v any, why string, args ...any) error {
			return &AssignmentError{i, field, v, fmt.Sprintf(why, args...)}
		}
		if a.Group < 0 || a.Group >= len(m.Groups) {
			return bad("group", a.Group, "the model has %d", len(m.Groups))
		}
		g := m.Groups[a.Group]
		if n := len(g.Components); a.Components == 0 || n < 64 && a.Components>>n != 0 {
			return bad("components", fmt.Sprintf("%#x", a.Components), "the group has %d", n)
		}
		if a.Destination < 0 || a.Destination >= len(p.Destination.Ranks) {
			return bad("destination rank", a.Destination, "the destination has %d ranks", len(p.Destination.Ranks))
		}
		if a.Source < 0 || a.Source >= len(p.Source.Ranks) {
			return bad("source rank", a.Source, "the source has %d ranks", len(p.Source.Ranks))
		}
		if a.Layers.From < 0 || a.Layers.To > layers || a.Layers.From >= a.Layers.To {
			return bad("layers", a.Layers, "want a range within 0 to %d", layers)
		}
		first := -1
		for ci, c := range g.Components {
			switch {
			case a.Components>>ci&1 == 0:
			case first < 0:
				first = ci
			case c.Heads != g.Components[first].Heads:
				return bad("components", fmt.Sprintf("%#x", a.Components), "%s has %d heads and %s %d: a box of both has no range of heads", g.Components[first].Name, g.Components[first].Heads, c.Name, c.Heads)
			}
		}
		if h := g.Components[first].HeadCount(); a.Heads.From < 0 || a.Heads.To > h || a.Heads.From >= a.Heads.To {
			return bad("heads", a.Heads, "want a range within 0 to %d", h)
		}
		if t := a.Tokens; !t.All() && (t.Size < 1 || t.Interleave < 1 || t.Phase < 0 || t.Phase >= t.Size || t.Size > 1<<12 || t.Interleave > 1<<20) {
			return bad("tokens", t, "want phase below size, size 1 to 4096 and interleave 1 to 1048576")
		} else if !t.All() {
			if g.State {
				return bad("tokens", t, "group %q keeps states: want all", g.Name)
			}
			for ci, c := range g.Components {
				if a.Components>>ci&1 != 0 && t.Interleave%c.EntryTokens() != 0 {
					return bad("tokens", t, "the interleave parts the entries of %d tokens of component %s", c.EntryTokens(), c.Name)
				}
			}
		}
	}
	return nil
}

// Answer is a policy's answer to remap: alternatives in its order of
// preference, and why. Each is proved before it is used.
type Answer struct {
	Alternatives [][]Assignment
	Reason       string // printable UTF-8, at most 256 bytes; may be empty
}
