package session

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
)

// Compare returns an *Invalid where the peer's hello contradicts itself, and
// a *Mismatch naming every field in which two hellos differ that may not.
// Shards, block sizes, layouts and what each agent holds may differ: that is
// what a plan is for. They must be possible.
func Compare(local, peer *Hello) error {
	for _, err := range peer.Engine.Validate(string(peer.Role)) {
		return &Invalid{err}
	}
	if err := peer.Site.Validate(string(peer.Role)+".site", len(peer.Engine.Side.Ranks)); err != nil {
		return &Invalid{err}
	}
	source, destination := local, peer
	if peer.Role == Source {
		source, destination = peer, local
	}
	var out []geometry.Difference
	add := func(field string, s, d any) {
		out = append(out, geometry.Difference{Field: field, Source: fmt.Sprint(s), Destination: fmt.Sprint(d)})
	}
	if local.Role == peer.Role {
		add("role", local.Role, peer.Role)
	}
	if peer.Role != Source && peer.Role != Destination {
		add("role", fmt.Sprintf("%q", peer.Role), "source or destination")
	}
	if source.Group != destination.Group {
		add("group", fmt.Sprintf("%q", source.Group), fmt.Sprintf("%q", destination.Group))
	}
	if s, d := source.Engine.Side.Engine, destination.Engine.Side.Engine; s == d {
		add("engine.id", s, d+" (one engine cannot be both sides)")
	}
	_, differences := geometry.Compare(source.Engine.Side.Model, destination.Engine.Side.Model)
	out = append(out, differences...)
	if (source.Policy.Required || destination.Policy.Required) && source.Policy.Digest != destination.Policy.Digest {
		add("policy.digest", orNone(source.Policy), orNone(destination.Policy))
	}
	if len(out) > 0 {
		return &Mismatch{out}
	}
	return nil
}

func orNone(p Policy) string {
	if p.Digest == "" {
		return "(no policy)"
	}
	return p.Name + " " + p.Digest
}

// PolicyDifference returns both sides' policies where their digests differ.
func PolicyDifference(source, destination Policy) (geometry.Difference, bool) {
	if source.Digest == destination.Digest {
		return geometry.Difference{}, false
	}
	return geometry.Difference{Field: "policy.digest", Source: orNone(source), Destination: orNone(destination)}, true
}

// Pair is the pair of two hellos: of the groups that both engines have.
//
// Errors: those of plan.Join.
func Pair(a, b *Hello) (*plan.Pair, error) {
	source, destination := a, b
	if a.Role != Source {
		source, destination = b, a
	}
	p, _, err := plan.Join(source.Engine.Side, destination.Engine.Side)
	return p, err
}
