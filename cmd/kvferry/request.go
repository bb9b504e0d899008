package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// blockTables reads "1,3" or "G:1,3", one value a group, into tables by
// group. Nothing given is nil.
func blockTables(flag string, values []string, groups int) ([][]uint32, error) {
	if len(values) == 0 {
		return nil, nil
	}
	out := make([][]uint32, groups)
	for _, v := range values {
		g, list := 0, v
		if name, rest, ok := strings.Cut(v, ":"); ok {
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= groups {
				return nil, usagef("--%s %s: %q is no group (groups 0 to %d)", flag, v, name, groups-1)
			}
			g, list = n, rest
		}
		if out[g] != nil {
			return nil, usagef("--%s: group %d is given twice", flag, g)
		}
		for f := range strings.SplitSeq(list, ",") {
			id, err := strconv.ParseUint(strings.TrimSpace(f), 10, 32)
			if err != nil {
				return nil, usagef("--%s %s: %q is no block id: want numbers from 0, separated by commas", flag, v, f)
			}
			out[g] = append(out[g], uint32(id))
		}
	}
	for g := range out {
		if out[g] == nil {
			return nil, usagef("--%s: group %d is missing", flag, g)
		}
	}
	return out, nil
}

// one is the table of one full block, id 0, for every group.
func one(groups int) [][]uint32 {
	out := make([][]uint32, groups)
	for g := range out {
		out[g] = []uint32{0}
	}
	return out
}

// elements counts the destination elements of tokens [from, to), replicas
// included.
func elements(p *plan.Pair, from, to int64) int64 {
	var n int64
	d := &p.Destination
	for _, g := range d.Model.Groups {
		for r := range d.Shard.Ranks() {
			part := d.Shard.Part(g, r)
			rows := (held(part, to) - held(part, from)) * int64(len(part.Layers)) * int64(part.HeadCount())
			for _, c := range g.Components {
				n += rows * int64(c.Dim)
			}
		}
	}
	return n
}

// held counts the canonical tokens below n that the part holds.
func held(p shard.Part, n int64) int64 {
	i, c := int64(p.Interleave), int64(p.Size)
	return n/(i*c)*i + min(max(n%(i*c)-int64(p.Phase)*i, 0), i)
}

// stamped applies the plan to the request: what moves over each edge, and the
// copies, either as strided segments or expanded, sorted by destination.
// Preconditions: st.Validate(req) is nil.
func stamped(p *plan.Pair, st *stamp.Stamper, req *stamp.Request, expand bool) ([]plan.Flow, []plan.Copy, error) {
	var flows []plan.Flow
	for _, key := range st.Edges(req) {
		bytes, segments, err := st.Totals(req, key)
		if err != nil {
			return nil, nil, err
		}
		if bytes > 0 {
			flows = append(flows, plan.Flow{Source: key.Source, Destination: key.Destination, Bytes: bytes, Segments: segments})
		}
	}
	if expand {
		list, err := st.Expand(req)
		if err != nil {
			return nil, nil, err
		}
		copies := make([]plan.Copy, len(list))
		for i, c := range list {
			copies[i] = named(p, c)
		}
		return flows, copies, nil
	}
	// Segments in the order of Expand, so that the two forms can be compared.
	type placed struct {
		at    stamp.Copy
		loops []plan.Loop
	}
	var all []placed
	for _, key := range st.Edges(req) {
		var c stamp.Cursor
		if err := st.Cursor(req, key, &c); err != nil {
			return nil, nil, err
		}
		var seg stamp.Segment
		for c.Next(&seg) {
			if len(all) == stamp.MaxCopies {
				return nil, nil, &plan.TooLarge{What: "segments", Need: stamp.MaxCopies + 1, Limit: stamp.MaxCopies}
			}
			r := seg.Run
			all = append(all, placed{stamp.Copy{SourceRank: key.Source, SourceRegion: r.SourceRegion, SourceOffset: seg.SourceOffset,
				DestinationRank: key.Destination, DestinationRegion: r.DestinationRegion, DestinationOffset: seg.DestinationOffset, Bytes: r.Bytes * max(seg.Blocks, 1)}, r.Loops})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.at.DestinationRank, b.at.DestinationRank), cmp.Compare(a.at.DestinationRegion, b.at.DestinationRegion), cmp.Compare(a.at.DestinationOffset, b.at.DestinationOffset))
	})
	copies := make([]plan.Copy, len(all))
	for i, c := range all {
		copies[i] = named(p, c.at)
		copies[i].Loops = c.loops
	}
	return flows, copies, nil
}

// named gives a copy's regions their names.
func named(p *plan.Pair, c stamp.Copy) plan.Copy {
	return plan.Copy{
		Source:      plan.Place{Rank: c.SourceRank, Region: p.Source.Ranks[c.SourceRank][c.Group].Regions[c.SourceRegion].Name, Offset: c.SourceOffset},
		Destination: plan.Place{Rank: c.DestinationRank, Region: p.Destination.Ranks[c.DestinationRank][c.Group].Regions[c.DestinationRegion].Name, Offset: c.DestinationOffset},
		Bytes:       c.Bytes,
	}
}
