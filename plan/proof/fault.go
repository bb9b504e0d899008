package proof

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Kind says in what way a plan is wrong.
type Kind string

// The kinds of faults.
const (
	Gap       Kind = "gap"       // an element that the destination holds is not written
	Clash     Kind = "clash"     // an element is written more than once
	Swap      Kind = "swap"      // an element is written from another one
	Bounds    Kind = "bounds"    // a byte is read or written outside the rows of the run's block, or outside the window
	Parted    Kind = "parted"    // a scale comes from another source rank than the rows it scales
	Malformed Kind = "malformed" // the plan contradicts itself, its pair or the canonical order, or cannot be decided
)

// Fault says what is wrong with a plan, at the first coordinate where it is:
// in the order of group, destination rank, layer, component, the head's place
// on the rank, token and dim. A scale is Parted only in a layer that is right
// otherwise. The token of an entry of several is the first of them, that of a
// state is 0, and the head of a state is its channel.
type Fault struct {
	Kind   Kind
	Rank   int // destination rank, -1 where the fault is in none
	Source int // source rank, -1 where no run is to blame; of a Parted scale
	Other  int // of a Parted scale: the source rank of Got; otherwise 0
	Edge   int // index into Plan.Edges, -1 where none is to blame
	Run    int // index into Plan.Runs, -1 where none is to blame

	// At is the destination's element; Has says whether there is one (a
	// Malformed plan or a byte outside every row has none).
	At  geometry.Coord
	Has bool
	// Got is, for a Swap, the element that the plan puts there, and for a
	// Parted scale the first element scaled by it that comes from another
	// source rank. Its token counts within the period, like that of At.
	Got geometry.Coord

	AtComponent, GotComponent string // names, "" where there is no coordinate
	Group                     string // name of the group
	State                     bool   // the group is one of states
	Reason                    string // what kind and coordinates do not say; may be empty

	SourceEngine, DestinationEngine string
	SourceLayout, DestinationLayout string // orders as read from the strides, outermost first; "" where no ranks are named
}

// coordinate gives a coordinate of the fault in words, with the component's
// name.
func (f *Fault) coordinate(c geometry.Coord, component string) string {
	s := fmt.Sprintf("%s layer %d head %d token %d dim %d", component, c.Layer, c.Head, c.Token, c.Dim)
	if f.State {
		s = fmt.Sprintf("%s layer %d channel %d dim %d", component, c.Layer, c.Head, c.Dim)
	}
	if f.Group != "" {
		s = f.Group + " " + s
	}
	return s
}

func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "proof: %s", f.Kind)
	if f.Rank >= 0 {
		fmt.Fprintf(&b, " at destination rank %d", f.Rank)
	}
	if f.Has {
		fmt.Fprintf(&b, ": %s", f.coordinate(f.At, f.AtComponent))
	}
	switch {
	case f.Kind == Swap:
		fmt.Fprintf(&b, " gets %s of source rank %d", f.coordinate(f.Got, f.GotComponent), f.Source)
	case f.Kind == Parted && f.Has:
		fmt.Fprintf(&b, " comes from source rank %d, and %s, which it scales, from source rank %d", f.Source, f.coordinate(f.Got, f.GotComponent), f.Other)
	case f.Kind == Gap:
		b.WriteString(" is not written")
	case f.Kind == Clash:
		b.WriteString(" is written more than once")
	}
	if f.Reason != "" {
		fmt.Fprintf(&b, ": %s", f.Reason)
	}
	if f.Run >= 0 {
		fmt.Fprintf(&b, " (run %d)", f.Run)
	}
	return b.String()
}

// Format prints everything that is known on %+v.
func (f *Fault) Format(s fmt.State, verb rune) {
	fmt.Fprint(s, f.Error())
	if verb != 'v' || !s.Flag('+') {
		return
	}
	if f.Edge >= 0 {
		fmt.Fprintf(s, "\n  edge %d: source rank %d to destination rank %d", f.Edge, f.Source, f.Rank)
	}
	fmt.Fprintf(s, "\n  source %q", f.SourceEngine)
	if f.SourceLayout != "" {
		fmt.Fprintf(s, " lies as %s", f.SourceLayout)
	}
	fmt.Fprintf(s, "\n  destination %q", f.DestinationEngine)
	if f.DestinationLayout != "" {
		fmt.Fprintf(s, " lies as %s", f.DestinationLayout)
	}
}
