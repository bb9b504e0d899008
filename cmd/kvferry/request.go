package main

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// requestFlags say which request a plan is applied to.
type requestFlags struct {
	source, destination []string
	from, tokens        int64
}

func (f *requestFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.source, "source-blocks", nil, "the source's block tables: `IDS` in token order, 1,3, or where the pair names groups GROUP:1,3 for each")
	flags.StringArrayVar(&f.destination, "destination-blocks", nil, "the destination's block tables: `IDS`")
	flags.Int64Var(&f.from, "from", 0, "the first `TOKEN` moved")
	flags.Int64Var(&f.tokens, "tokens", 0, "the request's tokens: move up to `N`, not including it (default: what both sides' tables hold)")
}

func (f *requestFlags) check(cmd *cobra.Command) error {
	if f.from < 0 {
		return usagef("--from %d: want a token from 0", f.from)
	}
	if cmd.Flags().Changed("tokens") && f.tokens < 1 {
		return usagef("--tokens %d: want at least 1", f.tokens)
	}
	return nil
}

// blockTables reads "1,3", or "NAME:1,3" for each group, into tables by group.
// Several groups stand in values of their own or in one, parted by blanks or
// semicolons. A number that no group is called is a group's index. Nothing
// given is nil.
func blockTables(flag string, values []string, m *geometry.Model) ([][]uint32, error) {
	if len(values) == 0 {
		return nil, nil
	}
	out := make([][]uint32, len(m.Groups))
	for _, value := range values {
		for _, v := range tableTexts(value) {
			g, list, err := ofGroup(flag, v, m)
			if err != nil {
				return nil, err
			}
			if out[g] != nil {
				return nil, usagef("--%s: %s is given twice", flag, called(m, g))
			}
			for f := range strings.SplitSeq(list, ",") {
				id, err := strconv.ParseUint(strings.TrimSpace(f), 10, 32)
				if err != nil {
					return nil, usagef("--%s %s: %q is no block id: want numbers from 0, separated by commas", flag, v, f)
				}
				out[g] = append(out[g], uint32(id))
			}
		}
	}
	for g := range out {
		if out[g] == nil {
			return nil, usagef("--%s: %s is missing", flag, called(m, g))
		}
	}
	return out, nil
}

// tableTexts parts a value where the table of another group starts: at
// semicolons, and at blanks that stand neither behind nor before a comma.
func tableTexts(value string) []string {
	var out []string
	for part := range strings.SplitSeq(value, ";") {
		open := false // the word before goes on
		for _, word := range strings.Fields(part) {
			if open || strings.HasPrefix(word, ",") && len(out) > 0 {
				out[len(out)-1] += word
			} else {
				out = append(out, word)
			}
			open = strings.HasSuffix(word, ",") || strings.HasSuffix(word, ":")
		}
	}
	if out == nil {
		return []string{value} // to be refused as it is
	}
	return out
}

// ofGroup tells which group's table a value is.
func ofGroup(flag, v string, m *geometry.Model) (group int, list string, err error) {
	name, list, named := strings.Cut(v, ":")
	if !named {
		if len(m.Groups) > 1 {
			return 0, "", usagef("--%s %s: the pair has groups %s: say whose table this is, as in %s:%s", flag, v, groupNames(m), m.Groups[0].Name, v)
		}
		return 0, v, nil
	}
	if g := slices.IndexFunc(m.Groups, func(g geometry.Group) bool { return g.Name != "" && g.Name == name }); g >= 0 {
		return g, list, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(m.Groups) {
		return n, list, nil
	}
	if m.Groups[0].Name == "" {
		return 0, "", usagef("--%s %s: %q is no group: the pair names none", flag, v, name)
	}
	return 0, "", usagef("--%s %s: %q is no group of the pair (%s)", flag, v, name, groupNames(m))
}

func groupNames(m *geometry.Model) string {
	var names []string
	for _, g := range m.Groups {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// called is a group in a message.
func called(m *geometry.Model, g int) string {
	if name := m.Groups[g].Name; name != "" {
		return "group " + name
	}
	return "group " + strconv.Itoa(g)
}

// maxOwn bounds a table that is made up, since the pool of a file is as large as
// it says.
const maxOwn = 1 << 20

// ownTables are the tables of a side for which none are given: blocks 0, 1, 2,
// ... that hold at least tokens [0, want) (one full block each where want is
// 1), a whole ring where a group goes round in one, slot 0 for a state. A pool
// that is too small gives all it has. holds is how many tokens every group
// holds, groups aside that cannot say.
func ownTables(s *plan.Side, want int64) (tables [][]uint32, holds int64) {
	holds = math.MaxInt64
	for g, pool := range s.Groups {
		_, need := stamp.Entries(s, g, 0, want)
		n := min(need, int64(pool.Blocks), maxOwn)
		fits := n == need
		if pool.Ring > 0 {
			n, fits = int64(pool.Ring), need <= int64(pool.Ring)
		}
		table := make([]uint32, n)
		for i := range table {
			table[i] = uint32(i)
		}
		tables = append(tables, table)
		if !s.Model.Groups[g].State && (fits || s.Model.Groups[g].Window == 0 && pool.Ring == 0) {
			holds = min(holds, stamp.Capacity(int(min(n, need)), pool.Block, *s.ShardOf(g)))
		}
	}
	return tables, holds
}

// holds is how many tokens the tables that are given hold: those of the groups
// that keep all tokens. Where there is none, a table of a group that looks back
// over a window is taken for all of its tokens.
func holds(s *plan.Side, tables [][]uint32) int64 {
	all, some := int64(math.MaxInt64), int64(math.MaxInt64)
	for g, pool := range s.Groups {
		group := &s.Model.Groups[g]
		if group.State {
			continue
		}
		n := stamp.Capacity(len(tables[g]), pool.Block, *s.ShardOf(g))
		some = min(some, n)
		if group.Window == 0 && pool.Ring == 0 {
			all = min(all, n)
		}
	}
	if all == math.MaxInt64 {
		return some
	}
	return all
}

// request makes the request of the flags. Sides for which the flags give no
// tables have tables that hold tokens [0, want).
//
// Errors: wrong flags; *stamp.Error where the pair cannot serve the request,
// within a *refusal.Group where its groups have names.
func request(pair *plan.Pair, st *stamp.Stamper, flags *requestFlags, want int64) (*stamp.Request, error) {
	m := &pair.Destination.Model
	req := &stamp.Request{ID: "show", Plan: st.Proven().Digest(), From: flags.from, To: math.MaxInt64}
	ends := []struct {
		flag, field string
		values      []string
		side        *plan.Side
		tables      *[][]uint32
		first       *[]int64
	}{
		{"source-blocks", "source table", flags.source, &pair.Source, &req.Source, &req.SourceFirst},
		{"destination-blocks", "destination table", flags.destination, &pair.Destination, &req.Destination, &req.DestinationFirst},
	}
	for _, end := range ends {
		tables, err := blockTables(end.flag, end.values, m)
		if err != nil {
			return nil, err
		}
		n := int64(0)
		if tables == nil {
			tables, n = ownTables(end.side, want)
		} else {
			n = holds(end.side, tables)
		}
		*end.tables, req.To = tables, min(req.To, n)
	}
	switch {
	case flags.tokens != 0:
		req.To = flags.tokens
	case req.To == math.MaxInt64: // states only: no token moves
		req.To = flags.from + max(want, 1)
	}
	// The range first: what tables hold of no tokens is no question.
	if err := st.Validate(&stamp.Request{Plan: req.Plan, From: req.From, To: req.To, Spans: make([]stamp.Span, len(m.Groups))}); err != nil {
		return nil, err
	}
	for _, end := range ends {
		held, first, err := stamp.Held(end.side, *end.tables, req.To)
		if err != nil {
			return nil, inGroup(m, end.field, err)
		}
		*end.tables, *end.first = held, first
	}
	var err error
	if req.Spans, err = stamp.Spans(pair, req.From, req.To, req.To, req.SourceFirst, req.DestinationFirst); err != nil {
		return nil, inGroup(m, "", err)
	}
	if err := st.Validate(req); err != nil {
		return nil, inGroup(m, "", err)
	}
	return req, nil
}

// inGroup gives a request's fault the name of the group that it is in, and its
// field where stamp does not know whose table it was.
func inGroup(m *geometry.Model, field string, err error) error {
	var e *stamp.Error
	if !errors.As(err, &e) {
		return err
	}
	at := *e
	if at.Field == "table" {
		at.Field = field
	}
	if name := m.Groups[at.Group].Name; name != "" && (at.Field == "spans" || strings.HasSuffix(at.Field, " table")) {
		return &refusal.Group{Name: name, Err: &at}
	}
	return &at
}

// passed is a range of tokens of a group that its layers no longer look back
// to, and that do not move for it.
type passed struct {
	Group string `json:"group,omitempty"`
	From  int64  `json:"from"`
	To    int64  `json:"to"` // not included
}

// outOfWindow lists what a request does not move of its tokens, by group.
func outOfWindow(m *geometry.Model, req *stamp.Request) []passed {
	var out []passed
	for g := range m.Groups {
		group := &m.Groups[g]
		if group.State || group.Window == 0 {
			continue
		}
		switch span := req.Spans[g]; {
		case span.Empty():
			out = append(out, passed{group.Name, req.From, req.To})
		case span.From > req.From:
			out = append(out, passed{group.Name, req.From, span.From})
		}
	}
	return out
}

// elements counts the destination elements that a request moves, replicas
// included.
func elements(p *plan.Pair, req *stamp.Request) int64 {
	var n int64
	d := &p.Destination
	for gi, g := range d.Model.Groups {
		span := req.Span(p, gi)
		if span.Empty() {
			continue
		}
		for r := range d.Ranks {
			part := d.Part(gi, r)
			for ci, c := range g.Components {
				rows := int64(1)
				if !g.State {
					// An entry lies where its first token does, and none is parted.
					e := int64(c.EntryTokens())
					from, to := c.Entries(span.From, span.To)
					rows = (held(part, to*e) - held(part, from*e)) / e
				}
				n += rows * int64(len(part.Layers)) * int64(max(len(part.Heads[ci]), 1)) * int64(c.Dim)
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

// copyJSON is a copy as plan show prints it.
type copyJSON struct {
	Group string `json:"group,omitempty"` // where the pair's groups have names
	plan.Copy
}

func (c copyJSON) String() string {
	if c.Group != "" {
		return c.Group + ": " + c.Copy.String()
	}
	return c.Copy.String()
}

// flowJSON is an edge as plan show prints it: all of its groups together and,
// where these have names, each.
type flowJSON struct {
	plan.Flow
	Groups []groupFlow `json:"groups,omitempty"`
}

type groupFlow struct {
	Group    string `json:"group"`
	Bytes    int64  `json:"bytes"`
	Segments int64  `json:"segments"`
}

// flows says what a request moves over each edge.
// Preconditions: st.Validate(req) is nil.
func flows(p *plan.Pair, st *stamp.Stamper, req *stamp.Request) ([]flowJSON, error) {
	var out []flowJSON
	for _, key := range st.Edges(req) {
		bytes, segments, err := st.Totals(req, key)
		if err != nil {
			return nil, err
		}
		if bytes == 0 {
			continue
		}
		flow := flowJSON{Flow: plan.Flow{Source: key.Source, Destination: key.Destination, Bytes: bytes, Segments: segments}}
		for g, group := range p.Destination.Model.Groups {
			if group.Name == "" {
				continue
			}
			bytes, segments, err := st.Totals(alone(req, g), key)
			if err != nil {
				return nil, err
			}
			if bytes > 0 {
				flow.Groups = append(flow.Groups, groupFlow{group.Name, bytes, segments})
			}
		}
		out = append(out, flow)
	}
	return out, nil
}

// alone is what a request moves of one group.
func alone(req *stamp.Request, group int) *stamp.Request {
	one := *req
	one.Spans = make([]stamp.Span, len(req.Spans))
	one.Spans[group] = req.Spans[group]
	return &one
}

// copies lists what a request moves, either as strided segments or expanded,
// sorted by destination.
// Preconditions: st.Validate(req) is nil.
func copies(p *plan.Pair, st *stamp.Stamper, req *stamp.Request, expand bool) ([]copyJSON, error) {
	if expand {
		list, err := st.Expand(req)
		if err != nil {
			return nil, err
		}
		out := make([]copyJSON, len(list))
		for i, c := range list {
			out[i] = named(p, c)
		}
		return out, nil
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
			return nil, err
		}
		var seg stamp.Segment
		for c.Next(&seg) {
			if len(all) == stamp.MaxCopies {
				return nil, &plan.TooLarge{What: "segments", Need: stamp.MaxCopies + 1, Limit: stamp.MaxCopies}
			}
			all = append(all, placed{placedAt(key, c.Group(), &seg), seg.Run.Loops})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.at.DestinationRank, b.at.DestinationRank), cmp.Compare(a.at.Group, b.at.Group),
			cmp.Compare(a.at.DestinationRegion, b.at.DestinationRegion), cmp.Compare(a.at.DestinationOffset, b.at.DestinationOffset))
	})
	out := make([]copyJSON, len(all))
	for i, c := range all {
		out[i] = named(p, c.at)
		out[i].Loops = c.loops
	}
	return out, nil
}

// placedAt is a segment without its loops.
func placedAt(key stamp.EdgeKey, group int, seg *stamp.Segment) stamp.Copy {
	r := seg.Run
	return stamp.Copy{Group: group, SourceRank: key.Source, SourceRegion: r.SourceRegion, SourceOffset: seg.SourceOffset,
		DestinationRank: key.Destination, DestinationRegion: r.DestinationRegion, DestinationOffset: seg.DestinationOffset, Bytes: r.Bytes * max(seg.Blocks, 1)}
}

// named gives a copy's group and regions their names.
func named(p *plan.Pair, c stamp.Copy) copyJSON {
	return copyJSON{p.Destination.Model.Groups[c.Group].Name, plan.Copy{
		Source:      plan.Place{Rank: c.SourceRank, Region: p.Source.Ranks[c.SourceRank][c.Group].Regions[c.SourceRegion].Name, Offset: c.SourceOffset},
		Destination: plan.Place{Rank: c.DestinationRank, Region: p.Destination.Ranks[c.DestinationRank][c.Group].Regions[c.DestinationRegion].Name, Offset: c.DestinationOffset},
		Bytes:       c.Bytes,
	}}
}
