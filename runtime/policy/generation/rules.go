package generation

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvferry/kvferry/runtime/policy/store"
)

// By says what decides whether the canary answers.
type By string

// What a canary can be chosen by.
const (
	// ByRequest: each transfer by its request, so that the share is one of the
	// transfers; assignments by their pair, and layouts by their engine.
	ByRequest By = "request"
	// ByPair: transfers and assignments by the engines' names, so that all that is
	// asked about two engines goes to the same policy.
	ByPair By = "pair"
)

// Share is what a canary answers.
type Share struct {
	Percent float64 // in (0, 100]
	By      By      // empty: ByRequest
}

// valid refuses what is no share, and fills in what is not said.
func (s Share) valid(id uint64) (Share, error) {
	if p := s.Percent; math.IsNaN(p) || p <= 0 || p > 100 {
		return s, &ChangeError{id, Canary, fmt.Sprintf("%v per cent is no share: want more than 0 and at most 100", p)}
	}
	switch s.By {
	case "":
		s.By = ByRequest
	case ByRequest, ByPair:
	default:
		return s, &ChangeError{id, Canary, fmt.Sprintf("by %q: want by %s or by %s", s.By, ByRequest, ByPair)}
	}
	return s, nil
}

// roles is who stands where, by number; 0 is nobody. What may follow what is
// decided here, for a manager and for a store at rest alike.
type roles struct{ active, canary, shadow uint64 }

// unknown is a change of what is not there.
func unknown(id uint64, to Stage) error {
	return &ChangeError{id, to, "there is no such generation, or it is closed; list shows those there are"}
}

// follows refuses a stage that a generation cannot come to from where it is.
func follows(id uint64, from, to Stage) error {
	may := []Stage{Loaded, Shadow, Canary}
	if to == Shadow {
		may = []Stage{Loaded, Canary}
	}
	if !slices.Contains(may, from) {
		return &ChangeError{id, to, fmt.Sprintf("it is %s, want %v", from, may)}
	}
	return nil
}

// room refuses a stage that another generation has, and one that makes no sense
// without an active one.
// Preconditions: id has no role.
func (r roles) room(id uint64, to Stage) error {
	bad := func(why string, args ...any) error { return &ChangeError{id, to, fmt.Sprintf(why, args...)} }
	switch to {
	case Shadow:
		if r.active == 0 {
			return bad("no generation is active to compare it with; activate one first")
		}
		if r.shadow != 0 {
			return bad("generation %d is in shadow; drop it, or put it to another stage", r.shadow)
		}
	case Canary:
		if r.active == 0 {
			return bad("no generation is active that would answer the others; activate one first")
		}
		if r.canary != 0 {
			return bad("generation %d is the canary; drop it, or put it to another stage", r.canary)
		}
	}
	return nil
}

// promoted is which generation goes a stage further, and where to. id 0 stands
// for the candidate that is furthest; loaded are those that wait.
func (r roles) promoted(id uint64, loaded []uint64) (uint64, Stage, error) {
	if id == 0 {
		switch {
		case r.canary != 0:
			id = r.canary
		case r.shadow != 0:
			id = r.shadow
		case len(loaded) == 1:
			id = loaded[0]
		case len(loaded) > 1:
			return 0, Shadow, &ChangeError{0, Shadow, fmt.Sprintf("neither a canary nor a generation in shadow, and generations %d are loaded: name one", loaded)}
		default:
			return 0, Active, &ChangeError{0, Active, "there is neither a canary nor a generation in shadow, nor one that is loaded; load a policy first"}
		}
	}
	switch {
	case id == r.canary:
		return id, Active, nil
	case id == r.shadow:
		return id, Canary, nil
	case slices.Contains(loaded, id):
		return id, Shadow, nil
	case id == r.active:
		return id, Active, &ChangeError{id, Active, "it is active: there is nothing further"}
	}
	return id, Shadow, unknown(id, Shadow)
}

// broughtBack is the reason of a generation that a rollback brought back.
const broughtBack = "the last good policy, again"

// full is a module for which there is no room.
func full(id uint64, open int) error {
	return &ChangeError{id, Loaded, fmt.Sprintf("%d generations are open, at most %d may be; drop one, or wait until those that drain are closed", open, maxOpen)}
}

// shareOf is the share of a state's canary.
func shareOf(s *store.State) Share {
	out := Share{s.Percent, By(s.By)}
	if out.By == "" {
		out.By = ByRequest
	}
	return out
}
