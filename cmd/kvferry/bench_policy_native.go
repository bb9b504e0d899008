package main

import (
	"errors"
	"slices"

	"github.com/kvferry/kvferry/plan"
)

// nativeHeads answers as the policy heads does about the bench's own pair, and
// about no other kind: one group, components with heads, nothing held twice,
// whole layers, all tokens. It is what a call of a guest is measured against.
func nativeHeads(p *plan.Pair) ([]plan.Assignment, error) {
	s, d := &p.Source, &p.Destination
	if len(s.Model.Groups) != 1 || s.Shard.DCPSize > 1 || d.Shard.DCPSize > 1 {
		return nil, errors.New("bench policy: the native code does not know such pairs")
	}
	components := uint64(1)<<len(s.Model.Groups[0].Components) - 1
	var out []plan.Assignment
	for dr := range d.Ranks {
		want := d.Part(0, dr)
		for sr := range s.Ranks {
			have := s.Part(0, sr)
			layers := plan.Range{From: max(want.Layers[0], have.Layers[0]), To: min(want.Layers[len(want.Layers)-1], have.Layers[len(have.Layers)-1]) + 1}
			if layers.From >= layers.To {
				continue
			}
			for _, h := range want.Heads[0] {
				if !slices.Contains(have.Heads[0], h) {
					continue
				}
				if n := len(out) - 1; n >= 0 && out[n].Destination == dr && out[n].Source == sr && out[n].Heads.To == h {
					out[n].Heads.To++
				} else {
					out = append(out, plan.Assignment{Components: components, Destination: dr, Source: sr, Layers: layers, Heads: plan.Range{From: h, To: h + 1}})
				}
			}
		}
	}
	return out, nil
}
