package session

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// MaxAlternatives bounds the alternatives of one answer.
const MaxAlternatives = policy.MaxAlternatives

// Alternative is one of a policy's alternatives, proved by this side.
type Alternative struct {
	Index       int // in the answer
	Assignments []plan.Assignment
	Proven      proof.Proven
}

// Unproved is one of a policy's alternatives that cannot be used.
type Unproved struct {
	Index int
	By    blame.Party
	Err   error
}

// Error says which and why.
func (u Unproved) Error() string { return fmt.Sprintf("alternative %d: %v", u.Index, u.Err) }

// Unwrap returns the cause.
func (u Unproved) Unwrap() error { return u.Err }

// Blame is the policy, or the operator for the budget.
func (u Unproved) Blame() blame.Party { return u.By }

// Prove lowers and proves an answer's alternatives, each for itself: those that
// cannot be are listed beside those that can. All of them together stay within
// the budget of one plan, so that a peer with many alternatives takes no more
// memory than one with one.
func Prove(pair *plan.Pair, alternatives [][]plan.Assignment, budget plan.Budget) ([]Alternative, []Unproved) {
	var out []Alternative
	var not []Unproved
	left := budget
	for i, as := range alternatives {
		a, err := prove(pair, as, left)
		if i >= MaxAlternatives {
			err = fmt.Errorf("more than %d alternatives", MaxAlternatives)
		}
		if err != nil {
			by := blame.Policy
			var large *plan.TooLarge
			if errors.As(err, &large) {
				by = blame.Operator // the budget
				if len(out) > 0 {
					err = fmt.Errorf("with the alternatives before it: %w", err)
				}
			}
			not = append(not, Unproved{i, by, err})
			continue
		}
		a.Index = i
		out = append(out, a)
		left.Runs -= len(a.Proven.Plan().Runs)
		left.Bytes = int(int64(budget.Bytes) * int64(left.Runs) / int64(max(budget.Runs, 1)))
	}
	return out, not
}

func prove(pair *plan.Pair, as []plan.Assignment, budget plan.Budget) (Alternative, error) {
	if len(as) == 0 {
		return Alternative{}, errors.New("no assignments")
	}
	if err := pair.ValidateAssignments(as); err != nil {
		return Alternative{}, err
	}
	pl, err := build.Build(pair, as, nil, budget)
	if err != nil {
		return Alternative{}, fmt.Errorf("build: %w", err)
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return Alternative{}, fmt.Errorf("prove: %w", err)
	}
	return Alternative{Assignments: as, Proven: proven}, nil
}

// Proposal is the destination's message of what it proved.
func Proposal(alternatives []Alternative, by Policy, reason string) *Propose {
	p := &Propose{Policy: by, Reason: reason}
	for _, a := range alternatives {
		p.Alternatives = append(p.Alternatives, Proposed{assignmentsOut(a.Assignments), a.Proven.Digest().String()})
	}
	return p
}

// Judge lowers and proves what the destination proposes, for ourselves: the
// peer's proof is worth nothing here, and our memory is at stake. The answer
// names what was proved on both sides; alternatives counts within the proposal.
//
// Errors: *DigestError.
func (p *Propose) Judge(pair *plan.Pair, budget plan.Budget) (proved []Alternative, not []Unproved, _ *Agree, _ error) {
	lists := make([][]plan.Assignment, len(p.Alternatives))
	for i, a := range p.Alternatives {
		lists[i] = assignmentsIn(a.Assignments)
	}
	proved, not = Prove(pair, lists, budget)
	out := &Agree{Plans: make([]string, len(lists))}
	for _, a := range proved {
		own := a.Proven.Digest().String()
		if said := p.Alternatives[a.Index].Plan; said != own {
			return nil, nil, nil, &DigestError{Source: own, Destination: clip(said)}
		}
		out.Plans[a.Index] = own
	}
	for _, u := range not {
		out.Unproved = append(out.Unproved, Failing{u.Index, u.By, clip(u.Err.Error())})
	}
	return proved, not, out, nil
}

// Agreed is what of a proposal the source proved too. What it did not is listed
// by its number in the policy's answer.
//
// Errors: *DigestError, *FrameError.
// Preconditions: proposed is what Proposal was given.
func (a *Agree) Agreed(proposed []Alternative) (both []Alternative, not []Unproved, _ error) {
	if len(a.Plans) != len(proposed) {
		return nil, nil, &FrameError{"plans", len(a.Plans), fmt.Sprintf("%d, one for each alternative", len(proposed))}
	}
	why := map[int]Failing{}
	for _, f := range a.Unproved {
		why[f.Index] = f
	}
	for i, p := range proposed {
		switch own := p.Proven.Digest().String(); a.Plans[i] {
		case own:
			both = append(both, p)
		case "":
			f := why[i]
			by := f.Blame.Seen()
			if !by.Valid() {
				by = blame.Peer
			}
			not = append(not, Unproved{p.Index, by, fmt.Errorf("the source did not prove it: %s", f.Message)})
		default:
			return nil, nil, &DigestError{Source: clip(a.Plans[i]), Destination: own}
		}
	}
	return both, not, nil
}

// NoneProved is the error of an answer that has no usable alternative, an
// *Answer.
func NoneProved(name string, not []Unproved) error {
	if len(not) == 0 {
		return &Answer{name, blame.Policy, errors.New("no alternative")}
	}
	err := not[0].Err
	if len(not) > 1 {
		err = fmt.Errorf("%w (and %d more alternatives that are not proved)", err, len(not)-1)
	}
	return &Answer{name, not[0].By, err}
}
