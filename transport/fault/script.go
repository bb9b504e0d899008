package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Script is what goes wrong, and when: rules separated by ";", each
//
//	point: action [when]
//
// Points:
//
//	connect register unregister prepare grant revoke submit read write
//	cancel fence disconnect health      one hit a call (read and write: a
//	                                    submission in that direction)
//	complete                            one hit a completion
//	poll                                one hit a call
//
// Actions:
//
//	fail         the call returns an *Injected (read, write: the operation is
//	             not carried out and completes with one; complete: the
//	             completion carries one)
//	refuse       like fail, and the error matches transport.ErrPeerGone
//	cannot       like fail, and the error matches transport.ErrNotSupported
//	delay D      the call, or the completion, takes D longer ("10ms")
//	drop         complete: the completion never comes; poll: nothing is
//	             reported this time
//	corrupt      complete: of a read that succeeded, one byte that it brought
//	             is changed, and success reported
//
// When, counted in hits of the point: nothing (always), "once", "N" or
// "first N" (the first N), "after N" (all but the first N), "every N" (the Nth,
// 2Nth, ...). "drop 1" thus loses the first completion.
//
// Equal scripts on equal calls do the same: there is no chance in it.
type Script struct{ rules []rule }

type rule struct {
	point  string
	action string
	delay  time.Duration
	when   string // "", "first", "after", "every"
	n      int
}

// MaxRules bounds a script.
const MaxRules = 64

// ScriptError is a script that cannot be read. The fault is whoever wrote it.
type ScriptError struct {
	Rule   int // from 0
	Field  string
	Value  string
	Reason string
}

func (e *ScriptError) Error() string {
	return fmt.Sprintf("transport/fault: rule %d: %s %q: %s", e.Rule, e.Field, e.Value, e.Reason)
}

var (
	calls   = []string{"connect", "register", "unregister", "prepare", "grant", "revoke", "submit", "read", "write", "cancel", "fence", "disconnect", "health"}
	actions = map[string][]string{"complete": {"fail", "refuse", "cannot", "delay", "drop", "corrupt"}, "poll": {"delay", "drop"}}
)

// Parse reads a script. The empty one does nothing.
//
// Errors: *ScriptError.
func Parse(text string) (Script, error) {
	var s Script
	for i, part := range strings.Split(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		bad := func(field, value, why string, args ...any) (Script, error) {
			return Script{}, &ScriptError{i, field, value, fmt.Sprintf(why, args...)}
		}
		if len(s.rules) == MaxRules {
			return bad("rule", part, "want at most %d", MaxRules)
		}
		point, rest, ok := strings.Cut(part, ":")
		r := rule{point: strings.TrimSpace(point)}
		words := strings.Fields(rest)
		may, special := actions[r.point]
		if !special {
			may = []string{"fail", "refuse", "cannot", "delay"}
		}
		switch {
		case !ok:
			return bad("rule", part, "want \"point: action\"")
		case !special && !slices.Contains(calls, r.point):
			return bad("point", r.point, "not known (%s complete poll)", strings.Join(calls, " "))
		case len(words) == 0:
			return bad("action", "", "missing")
		case !slices.Contains(may, words[0]):
			return bad("action", words[0], "%s can %s", r.point, strings.Join(may, ", "))
		}
		r.action, words = words[0], words[1:]
		if r.action == "delay" {
			if len(words) == 0 {
				return bad("delay", "", "how long?")
			}
			d, err := time.ParseDuration(words[0])
			if err != nil || d < 0 || d > time.Hour {
				return bad("delay", words[0], "want a duration up to 1h")
			}
			r.delay, words = d, words[1:]
		}
		number := ""
		switch {
		case len(words) == 0:
		case len(words) == 1 && words[0] == "once":
			r.when, number = "first", "1"
		case len(words) == 1:
			r.when, number = "first", words[0]
		case len(words) == 2 && slices.Contains([]string{"first", "after", "every"}, words[0]):
			r.when, number = words[0], words[1]
		default:
			return bad("when", strings.Join(words, " "), "want once, N, first N, after N or every N")
		}
		if r.when != "" {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > 1<<30 {
				return bad("when", number, "want a number from 1 on")
			}
			r.n = n
		}
		s.rules = append(s.rules, r)
	}
	return s, nil
}

// String is the script in canonical form; Parse reads it back.
func (s Script) String() string {
	var parts []string
	for _, r := range s.rules {
		p := r.point + ": " + r.action
		if r.action == "delay" {
			p += " " + r.delay.String()
		}
		if r.when != "" {
			p += fmt.Sprintf(" %s %d", r.when, r.n)
		}
		parts = append(parts, p)
	}
	return strings.Join(parts, "; ")
}

// applies reports whether the rule acts on the hit with the given number,
// from 1.
func (r *rule) applies(hit int) bool {
	switch r.when {
	case "first":
		return hit <= r.n
	case "after":
		return hit > r.n
	case "every":
		return hit%r.n == 0
	}
	return true
}
