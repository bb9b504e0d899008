package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/blame"
)

// explainFlags are the element and the request that it is part of.
type explainFlags struct {
	policyFlags
	requestFlags
	element, group string
}

func planExplainCommand(a *app) *cobra.Command {
	var flags explainFlags
	cmd := &cobra.Command{
		Use:   "explain FILE",
		Short: "says where one element lies on both sides and which copy moves it",
		Long: "explain follows one element through the proved plan of a pair file: every rank\n" +
			"that holds it on either side, with region, byte offset, block and place, and the\n" +
			"copy that brings it to each destination rank, or why it does not move.\n\n" +
			"An element is c=COMPONENT, layer, head, token and dim. A state's has channel\n" +
			"instead of head, and no token. What a component has one of may be left out. Block\n" +
			"tables and tokens are those of plan show; without tables a side has the blocks 0,\n" +
			"1, 2, ... as far as the element needs.",
		Example: "  kvferry plan explain pair.yaml --element c=k,layer=3,head=5,token=77,dim=9\n" +
			"  kvferry plan explain hybrid.yaml --group mamba --element c=ssm,layer=0,channel=5,dim=7",
		Args: arguments(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd); err != nil {
				return err
			}
			el, err := parseElement(flags.element)
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), flags.policyFlags, args, func(ctx context.Context, name string, pol *chooser) error {
				return a.explain(ctx, name, pol, &flags, el)
			})
		},
	}
	flags.policyFlags.add(cmd)
	flags.requestFlags.add(cmd)
	cmd.Flags().StringVar(&flags.element, "element", "", "the `ELEMENT`: c=k,layer=3,head=5,token=77,dim=9")
	cmd.Flags().StringVar(&flags.group, "group", "", "the element's group, by `NAME`: needed where several have a component of its name and the layer does not decide")
	return cmd
}

// element is an element as it was asked for; -1 is not said.
type element struct {
	component string
	layer     int64
	head      int64
	token     int64
	dim       int64
	channel   bool // head was called channel
}

// maxToken keeps sums of tokens within what a request may have.
const maxToken = 1<<40 - 1<<20

// parseElement reads c=k,layer=3,head=5,token=77,dim=9, in any order.
func parseElement(text string) (*element, error) {
	el := &element{layer: -1, head: -1, token: -1, dim: -1}
	if text == "" {
		return nil, usagef("--element is missing: want one such as c=k,layer=3,head=5,token=77,dim=9")
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, usagef("--element %s: %q is no KEY=VALUE", text, part)
		}
		to, most := (*int64)(nil), int64(math.MaxInt32)
		switch key {
		case "c", "component":
			key = "c"
		case "layer":
			to = &el.layer
		case "head", "channel":
			el.channel = key == "channel"
			key, to = "head", &el.head
		case "token":
			to, most = &el.token, maxToken
		case "dim":
			to = &el.dim
		default:
			return nil, usagef("--element %s: %q is no part of an element (c, layer, head or channel, token, dim)", text, key)
		}
		if seen[key] {
			return nil, usagef("--element %s: %s is given twice", text, key)
		}
		seen[key] = true
		if to == nil {
			if el.component = value; value == "" {
				return nil, usagef("--element %s: c is empty: want a component's name", text)
			}
			continue
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || int64(n) > most {
			return nil, usagef("--element %s: %s is %q: want a number from 0 to %d", text, key, value, most)
		}
		*to = int64(n)
	}
	if el.component == "" || el.layer < 0 {
		return nil, usagef("--element %s: want at least c and layer, as in c=k,layer=3,head=5,token=77,dim=9", text)
	}
	return el, nil
}

// noElement is an element that the file's model does not have.
func noElement(group, field string, value any, why string, args ...any) error {
	v := fmt.Sprint(value)
	reason := fmt.Sprintf(why, args...)
	return &refusal.Refusal{Kind: "element", Fault: string(blame.Operator), Group: group, Message: fmt.Sprintf("element: %s is %s: %s", field, v, reason),
		Fields: []geometry.Difference{{Field: "element." + field, Source: v, Destination: v}}}
}

// group finds the group of an element, an index into the file's model.
func (el *element) group(m *geometry.Model, name string) (int, error) {
	var have []int
	for g := range m.Groups {
		if m.Groups[g].Component(el.component) >= 0 {
			have = append(have, g)
		}
	}
	if name != "" {
		g := slices.IndexFunc(m.Groups, func(g geometry.Group) bool { return g.Name == name })
		switch {
		case g < 0 && m.Groups[0].Name == "":
			return 0, usagef("--group %s: the pair names no groups", name)
		case g < 0:
			return 0, usagef("--group %s: no group has this name (%s)", name, groupNames(m))
		case !slices.Contains(have, g):
			return 0, noElement(name, "component", el.component, "group %s has %s", name, componentNames(&m.Groups[g]))
		}
		return g, nil
	}
	switch len(have) {
	case 1:
		return have[0], nil
	case 0:
		var all []string
		for g := range m.Groups {
			t := componentNames(&m.Groups[g])
			if m.Groups[g].Name != "" {
				t = m.Groups[g].Name + ": " + t
			}
			all = append(all, t)
		}
		return 0, noElement("", "component", el.component, "the model has none of this name (%s)", strings.Join(all, "; "))
	}
	// The layer may decide: which of them has it.
	holding := slices.DeleteFunc(slices.Clone(have), func(g int) bool { return !hasLayer(&m.Groups[g], int(el.layer)) })
	if len(holding) == 1 {
		return holding[0], nil
	}
	if len(holding) > 1 {
		have = holding
	}
	of := m.Select(have)
	return 0, usagef("--element c=%s: groups %s have a component of this name: say with --group which is meant", el.component, groupNames(&of))
}

func componentNames(g *geometry.Group) string {
	var names []string
	for _, c := range g.Components {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// spot is an element that the model has.
type spot struct {
	group     *geometry.Group
	component int
	layer     int // whose cache it is in
	asked     int // the layer asked for: another where layers share a cache
	head      int
	token     int64 // 0 of a state
	dim       int
}

func (s *spot) of() geometry.Component { return s.group.Components[s.component] }

// entry is the tokens [from, to) that share the element.
func (s *spot) entry() (from, to int64) {
	e := int64(s.of().EntryTokens())
	return s.token / e * e, (s.token/e + 1) * e
}

// String is the element in words, as faults of a proof name it.
func (s *spot) String() string {
	t := fmt.Sprintf("%s layer %d", s.of().Name, s.asked)
	if s.group.Name != "" {
		t = s.group.Name + " " + t
	}
	switch {
	case s.of().Heads == 0:
	case s.group.State:
		t += fmt.Sprintf(" channel %d", s.head)
	default:
		t += fmt.Sprintf(" head %d", s.head)
	}
	if !s.group.State {
		t += fmt.Sprintf(" token %d", s.token)
	}
	return t + fmt.Sprintf(" dim %d", s.dim)
}

// hasLayer reports whether a group has a layer, of its own or shared.
func hasLayer(g *geometry.Group, layer int) bool {
	return slices.Contains(g.Layers, layer) || slices.ContainsFunc(g.Shared, func(o geometry.Share) bool { return o.Layer == layer })
}

// in looks an element up in its group.
func (el *element) in(g *geometry.Group) (*spot, error) {
	s := &spot{group: g, component: g.Component(el.component), layer: int(el.layer), asked: int(el.layer)}
	c := s.of()
	bad := func(field string, value any, why string, args ...any) error {
		return noElement(g.Name, field, value, why, args...)
	}
	where := "the model"
	if g.Name != "" {
		where = "group " + g.Name
	}
	if !slices.Contains(g.Layers, s.layer) {
		i := slices.IndexFunc(g.Shared, func(o geometry.Share) bool { return o.Layer == s.layer })
		if i < 0 {
			return nil, bad("layer", s.layer, "%s has layers %s", where, geometry.Ranges(g.Layers))
		}
		s.layer = g.Shared[i].Owner
	}
	row, rows := "head", "heads"
	if g.State {
		row, rows = "channel", "channels"
	}
	// One of one may be left out.
	one := func(v int64, n int, field string) (int64, error) {
		if v >= int64(n) || v < 0 && n > 1 {
			value := any(v)
			if v < 0 {
				value = "missing"
			}
			return 0, bad(field, value, "component %s has 0 to %d", c.Name, n-1)
		}
		return max(v, 0), nil
	}
	switch {
	case el.head >= 0 && el.channel != g.State:
		asked := map[bool]string{true: "channel", false: "head"}[el.channel]
		return nil, bad(asked, el.head, "%s has %s: say %s=", where, rows, row)
	case el.head > 0 && c.Heads == 0:
		return nil, bad(row, el.head, "component %s has no %s: leave it out", c.Name, rows)
	case g.State && el.token >= 0:
		return nil, bad("token", el.token, "%s keeps a state, which has no tokens: leave it out", where)
	case !g.State && el.token < 0:
		return nil, bad("token", "missing", "%s keeps something for each token", where)
	}
	head, err := one(el.head, c.HeadCount(), row)
	if err != nil {
		return nil, err
	}
	dim, err := one(el.dim, c.Dim, "dim")
	if err != nil {
		return nil, err
	}
	s.head, s.dim, s.token = int(head), int(dim), max(el.token, 0)
	return s, nil
}

// location is where an element lies on a rank that holds it. Region, offset and
// block are left out where the block table does not hold the element.
type location struct {
	Rank   int     `json:"rank"`
	Region string  `json:"region,omitempty"`
	Offset *int64  `json:"offset,omitempty"` // bytes
	Bit    *int64  `json:"bit,omitempty"`    // of the byte at offset, of elements below a byte
	Entry  int64   `json:"entry"`            // of the block table, from the request's first block on
	Block  *uint32 `json:"block,omitempty"`  // id; a state's slot
	Place  int64   `json:"place"`            // in the block: token, or entry of several tokens
	Layer  int     `json:"layer_place"`      // on the rank
	Head   int     `json:"head_place"`       // on the rank; 0 for a component without heads

	region int
}

// locate lists the ranks of a side that hold an element. table is the group's
// and leaves out the first entries before first.
func locate(s *plan.Side, g int, table []uint32, first int64, at *spot) []location {
	var out []location
	for r := range s.Ranks {
		part := s.Part(g, r)
		layer := slices.Index(part.Layers, at.layer)
		head := 0
		if heads := part.Heads[at.component]; heads != nil {
			head = slices.Index(heads, at.head)
		}
		from, _ := at.entry()
		local, held := part.Local(from)
		if layer < 0 || head < 0 || !held {
			continue
		}
		block, c := int64(s.Groups[g].Block), at.of()
		l := location{Rank: r, Entry: local / block, Place: local % block / int64(c.EntryTokens()), Layer: layer, Head: head}
		if i := l.Entry - first; i >= 0 && i < int64(len(table)) {
			lies := s.Ranks[r][g]
			id := table[i]
			region, bit := lies.Bit(at.component, layer, int64(id), l.Place, int64(head), int64(at.dim))
			offset := bit / 8
			l.Block, l.Offset, l.region, l.Region = &id, &offset, region, lies.Regions[region].Name
			if c.DType.Bits() < 8 {
				within := bit % 8
				l.Bit = &within
			}
		}
		out = append(out, l)
	}
	return out
}

// carried is what brings an element to one destination rank.
type carried struct {
	Edge edgeJSON `json:"edge"`
	// Copy is the contiguous copy, as plan show --expand lists it, and Byte
	// where the element starts in it.
	Copy copyJSON `json:"copy"`
	Byte int64    `json:"byte"`
	// Run is the index of the plan's run of which the copy is part, left out
	// where the plan is that of a window of tokens; Segment is the run at these
	// blocks, as plan show lists it.
	Run        *int     `json:"run,omitempty"`
	Window     *span    `json:"window,omitempty"` // tokens of the period
	Segment    copyJSON `json:"segment"`
	Assignment string   `json:"assignment"` // of the policy's answer

	assigned int // index of the assignment
}

type edgeJSON struct {
	Source      int `json:"source"`      // rank
	Destination int `json:"destination"` // rank
}

type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"` // not included
}

// explainer follows elements of one request. Not safe for concurrent use.
type explainer struct {
	p      *planned
	st     *stamp.Stamper
	req    *stamp.Request
	copies map[fed][]stamp.Copy // by group and destination rank: sorted by region and offset
}

type fed struct{ group, rank int }

// explained is what there is to say of an element.
type explained struct {
	source, destination []location
	carried             []carried // one a destination rank; none where it does not move
	reason              string    // why it does not move
}

// element follows an element of a group of the pair.
func (x *explainer) element(g int, at *spot) (*explained, error) {
	pair, req := x.p.pair, x.req
	out := &explained{
		source:      locate(&pair.Source, g, req.Source[g], req.SourceFirst[g], at),
		destination: locate(&pair.Destination, g, req.Destination[g], req.DestinationFirst[g], at),
	}
	if out.reason = still(req, g, at); out.reason != "" {
		return out, nil
	}
	for side, held := range map[string][]location{"source": out.source, "destination": out.destination} {
		if len(held) == 0 {
			out.reason = fmt.Sprintf("no rank of the %s holds it", side)
			return out, nil
		}
	}
	for i := range out.destination {
		c, err := x.carrier(g, at, &out.destination[i], out.source)
		if err != nil {
			return nil, err
		}
		out.carried = append(out.carried, *c)
	}
	return out, nil
}

// still says why a request does not move an element, "" where it does.
func still(req *stamp.Request, g int, at *spot) string {
	s, c := req.Spans[g], at.of()
	if at.group.State {
		if s.Empty() {
			return "a state moves with a transfer up to the request's end only"
		}
		return ""
	}
	first, end := at.entry()
	from, to := c.Entries(s.From, s.To)
	e := first / int64(c.EntryTokens())
	switch {
	case from <= e && e < to:
		return ""
	case at.token >= req.To || at.token < req.From:
		return fmt.Sprintf("token %d is outside the transfer of tokens %d to %d", at.token, req.From, req.To-1)
	case c.Scales == "" && end > req.To:
		return fmt.Sprintf("its entry for tokens %d to %d is partial: it is complete with token %d, and the transfer ends with token %d", first, end-1, end-1, req.To-1)
	case c.Scales != "" && first < s.From:
		return fmt.Sprintf("it belongs to tokens %d to %d and moves with the first of them, which the transfer leaves out", first, end-1)
	}
	return fmt.Sprintf("token %d is out of the window: the layers look back %d tokens from token %d on, and not both sides hold it any more", at.token, at.group.Window, req.To)
}

// into lists the copies of a group into a destination rank.
func (x *explainer) into(key fed) ([]stamp.Copy, error) {
	if list, ok := x.copies[key]; ok {
		return list, nil
	}
	one := alone(x.req, key.group)
	one.Edges = []stamp.EdgeKey{}
	for _, e := range x.p.proven.Plan().Edges {
		if e.Group == key.group && e.Destination == key.rank {
			one.Edges = append(one.Edges, stamp.EdgeKey{Source: e.Source, Destination: e.Destination})
		}
	}
	list, err := x.st.Expand(one)
	if err != nil {
		return nil, err
	}
	x.copies[key] = list
	return list, nil
}

// carrier finds what brings an element to a place. What the proved plan says
// must be what the layouts say; anything else is a bug of ours.
func (x *explainer) carrier(g int, at *spot, to *location, sources []location) (*carried, error) {
	list, err := x.into(fed{g, to.Rank})
	if err != nil {
		return nil, err
	}
	lost := func(what string, args ...any) error {
		return fmt.Errorf("explain %s at destination rank %d: the proved plan and the layouts contradict each other: %s", at, to.Rank, fmt.Sprintf(what, args...))
	}
	if to.Offset == nil {
		return nil, lost("the block table lacks entry %d", to.Entry)
	}
	i := slices.IndexFunc(list, func(c stamp.Copy) bool {
		return c.DestinationRegion == to.region && c.DestinationOffset <= *to.Offset && *to.Offset < c.DestinationOffset+c.Bytes
	})
	if i < 0 {
		return nil, lost("no copy writes %s+%d", to.Region, *to.Offset)
	}
	c := &list[i]
	out := &carried{Edge: edgeJSON{c.SourceRank, c.DestinationRank}, Copy: named(x.p.pair, *c), Byte: *to.Offset - c.DestinationOffset}
	s := slices.IndexFunc(sources, func(l location) bool { return l.Rank == c.SourceRank })
	if s < 0 || sources[s].Offset == nil || sources[s].region != c.SourceRegion || *sources[s].Offset != c.SourceOffset+out.Byte || to.Bit != nil && *sources[s].Bit != *to.Bit {
		return nil, lost("it comes from %s+%d of source rank %d", out.Copy.Source.Region, c.SourceOffset+out.Byte, c.SourceRank)
	}
	if err := x.run(out, g, at, to); err != nil {
		return nil, err
	}
	if out.assigned = x.assignment(g, at, out.Edge); out.assigned < 0 {
		return nil, lost("the policy assigned it to no edge from rank %d", c.SourceRank)
	}
	out.Assignment = x.p.proven.Plan().Assignments[out.assigned].Text(x.p.pair)
	return out, nil
}

// run finds the run that writes a place.
func (x *explainer) run(out *carried, g int, at *spot, to *location) error {
	var cursor stamp.Cursor
	if err := x.st.Cursor(alone(x.req, g), stamp.EdgeKey(out.Edge), &cursor); err != nil {
		return err
	}
	var seg stamp.Segment
	for cursor.Next(&seg) {
		r := seg.Run
		if r.DestinationRegion != to.region || !writes(r.Loops, r.Bytes*max(seg.Blocks, 1), *to.Offset-seg.DestinationOffset) {
			continue
		}
		out.Segment = named(x.p.pair, placedAt(stamp.EdgeKey(out.Edge), g, &seg))
		out.Segment.Loops = r.Loops
		pl := x.p.proven.Plan()
		for i := range pl.Runs {
			if &pl.Runs[i] == r {
				out.Run = &i
				return nil
			}
		}
		// The plan of a window: that of the period in which the token lies.
		period, moved := pl.Groups[g].Tokens, x.req.Spans[g]
		from, _ := at.entry()
		k := from / period * period
		out.Window = &span{max(moved.From-k, 0), min(moved.To-k, period)}
		return nil
	}
	return fmt.Errorf("explain: no run of edge %d to %d writes %s+%d, but a copy does", out.Edge.Source, out.Edge.Destination, to.Region, *to.Offset)
}

// writes reports whether bytes repeated by loops cover an offset from their
// first one.
func writes(loops []plan.Loop, bytes, offset int64) bool {
	if len(loops) == 0 {
		return offset >= 0 && offset < bytes
	}
	inner := bytes // how far the inner loops reach
	for _, l := range loops[1:] {
		inner += (l.Count - 1) * l.DestinationStride
	}
	l := loops[0]
	for i := range l.Count {
		if at := offset - i*l.DestinationStride; at >= 0 && at < inner && writes(loops[1:], bytes, at) {
			return true
		}
	}
	return false
}

// assignment finds the line of the policy's answer that an edge moves an
// element by, -1 where there is none.
func (x *explainer) assignment(g int, at *spot, edge edgeJSON) int {
	from, _ := at.entry()
	return slices.IndexFunc(x.p.proven.Plan().Assignments, func(a plan.Assignment) bool {
		t := a.Tokens
		return a.Group == g && a.Components>>at.component&1 != 0 && a.Source == edge.Source && a.Destination == edge.Destination &&
			a.Layers.From <= at.layer && at.layer < a.Layers.To && a.Heads.From <= at.head && at.head < a.Heads.To &&
			(t.All() || from/int64(t.Interleave)%int64(t.Size) == int64(t.Phase))
	})
}
