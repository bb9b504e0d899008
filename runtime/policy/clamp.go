package policy

import (
	"fmt"
	"slices"
)

// Bounds on the chunk that a policy may choose.
const (
	MinChunk = 64 << 10
	MaxChunk = 16 << 20
)

// Clamped is one thing that a policy chose and did not get. It is no fault, but
// it is shown.
type Clamped struct {
	Field string // in the schema's names
	Asked any
	Given any
	Why   string
}

// String is one line for people.
func (c Clamped) String() string {
	return fmt.Sprintf("%s: asked %v, given %v: %s", c.Field, c.Asked, c.Given, c.Why)
}

// Clamp is the decision within what the configuration allows, and what had to
// be changed for that, in the order of the decision's fields. A decision that is
// clamped already comes back as it is. d and the question are not modified.
//
// Preconditions: the question is valid; d came from Accept, or is zero.
func (q RouteQuestion) Clamp(d Decision) (Decision, []Clamped) {
	var changes []Clamped
	say := func(field string, asked, given any, why string, args ...any) {
		changes = append(changes, Clamped{field, asked, given, fmt.Sprintf(why, args...)})
	}
	var named []int
	for _, p := range d.Providers {
		if !slices.Contains(named, p) {
			named = append(named, p)
		}
	}
	if len(named) != len(d.Providers) {
		say("transports", d.Providers, named, "each once")
	}
	d.Providers = named
	d.Rails = slices.Clone(d.Rails)

	if c := d.Chunk; c != 0 {
		if d.Chunk = min(max(c, MinChunk), MaxChunk); d.Chunk != c {
			say("chunk", c, d.Chunk, "chunks have %d to %d bytes", MinChunk, MaxChunk)
		}
	}
	if most := max(q.Limits.Streams, 1); d.Streams > most {
		say("streams", d.Streams, most, "so many are configured")
		d.Streams = most
	}
	if d.Priority > MaxPriority {
		say("priority", d.Priority, MaxPriority, "priorities go from 1 to %d", MaxPriority)
		d.Priority = MaxPriority
	}
	if least := max(q.Limits.Integrity, IntegrityOff); d.Integrity != 0 && d.Integrity < least {
		say("integrity", uint32(d.Integrity), uint32(least), "no less than configured")
		d.Integrity = least
	}
	// Off means less where any transport that may be used has it on.
	may := func(on func(Provider) bool) string {
		for i, p := range q.Providers {
			if (d.Providers == nil || slices.Contains(d.Providers, i)) && on(p) {
				return p.Name
			}
		}
		return ""
	}
	for _, s := range []struct {
		field string
		asked *Switch
		on    func(Provider) bool
	}{
		{"crc", &d.CRC, func(p Provider) bool { return p.CRC }},
		{"tls", &d.TLS, func(p Provider) bool { return p.TLS }},
	} {
		if name := may(s.on); *s.asked == Off && name != "" {
			say(s.field, "off", "as configured", "transport %s is configured with it", name)
			*s.asked = 0
		}
	}
	if d.Recompute && !q.Limits.Recompute {
		say("recompute", true, false, "it is not configured for these engines")
		d.Recompute = false
	}
	return d, changes
}
