// Package proof decides whether a plan puts every element where it belongs,
// exactly once.
//
// It reads a plan as a stranger would. No field of it is believed: the offsets
// of every run are decoded to coordinates on both sides, by arithmetic of this
// package (form.go, walk.go), the tokens of every piece are recomputed from the
// shards (token.go), and what the runs write is counted against what the
// destination ranks hold (cover.go). It knows nothing of how plans are made and
// imports no package that makes them.
//
// The cost grows with the number of runs, not of elements: a run is taken apart
// into products of loops, each of which moves along one axis on both sides, and
// layers whose runs differ by their place only are decided once. Only a refused
// plan is looked at element by element (explain.go), to name the first
// coordinate that is wrong.
package proof

import (
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// Proven is a plan that Check accepted, with its pair. Only Check makes one;
// the zero value is refused everywhere.
type Proven struct {
	pair     *plan.Pair
	plan     *plan.Plan
	digest   geometry.Digest
	elements int64
}

// Valid reports whether p came from Check.
func (p Proven) Valid() bool { return p.plan != nil }

// Plan returns the accepted plan, nil for the zero value. It must not be
// modified.
func (p Proven) Plan() *plan.Plan { return p.plan }

// Pair returns the pair that the plan was proved for. It must not be modified.
func (p Proven) Pair() *plan.Pair { return p.pair }

// Digest is the plan's digest.
func (p Proven) Digest() geometry.Digest { return p.digest }

// Elements is the number of destination elements that one application of the
// plan to its windows writes, replicas included.
func (p Proven) Elements() int64 { return p.elements }

// Budget bounds what a proof may cost. A plan that needs more is refused, so
// that a peer's answer cannot stall everyone.
type Budget struct {
	Runs   int // of the plan
	Pieces int // of the plan
	Cells  int // products of loops into which the runs fall apart, and places passed on the way
	Steps  int // single heads, tokens and dims looked at where no formula decides
}

// DefaultBudget is far above what the plans of real pairs need and keeps a
// proof within seconds.
func DefaultBudget() Budget {
	return Budget{Runs: 1 << 18, Pieces: 1 << 16, Cells: 1 << 23, Steps: 1 << 25}
}

// Check proves that, for the plan's window of every group and for every legal
// block id, every element that a destination rank holds is written exactly
// once, from the same element at the source, inside the registered regions,
// and that nothing else is written; and that every scale comes from the source
// rank that all rows come from which it scales on the destination rank. It also
// proves what the stamp relies on: edges and runs in canonical order, each
// run's layer, its tokens those of its piece, and its maps those of the rows it
// moves.
//
// Of components whose entries are several tokens, a window holds those whose
// last token it holds; of scales those whose first token it does, and no window
// starts inside one. A piece counts the entries of the components that its runs
// move, which must therefore be of one kind. A group of states has a period of
// one token, which stands for the state.
//
// Errors: *Fault; *plan.TooLarge where the default budget does not suffice;
// what p.Validate returns where the pair itself is refused. The result depends
// on the arguments only. Neither argument is modified; both must stay
// unmodified while the Proven is in use. Safe for concurrent use.
func Check(p *plan.Pair, pl *plan.Plan) (Proven, error) {
	return CheckWithin(p, pl, DefaultBudget())
}

// CheckWithin is Check with another budget.
func CheckWithin(p *plan.Pair, pl *plan.Plan, b Budget) (Proven, error) {
	if err := p.Validate(); err != nil {
		return Proven{}, err
	}
	c := newChecker(p, pl, b)
	if d := p.Digest(); d != pl.Pair {
		return Proven{}, c.malformed(-1, -1, "the plan is for pair %s, this is %s", pl.Pair, d)
	}
	if err := c.check(); err != nil {
		return Proven{}, err
	}
	return Proven{p, pl, pl.Digest(), c.elements}, nil
}

// Examine says what Check would, but for the equality of the pair's digest: it
// judges copies that were computed for another pair, such as those of a caller
// that took one layout for another. It returns nil or an error of Check, and
// nothing that could be executed.
func Examine(p *plan.Pair, pl *plan.Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return newChecker(p, pl, DefaultBudget()).check()
}
