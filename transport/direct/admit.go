package direct

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/move"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Faults of the local caller.
var (
	ErrRegistered = errors.New("transport: the rank is registered already")
	ErrGranted    = errors.New("transport: the grant exists already")
)

// Held is one side's tables in a request.
type Held struct {
	Tables [][]uint32 // nil: not known
	First  []int64    // leading entries left out, by group; nil: none
}

// Of returns a side's tables.
func Of(r *stamp.Request, s transport.Side) Held {
	if s == transport.Source {
		return Held{r.Source, r.SourceFirst}
	}
	return Held{r.Destination, r.DestinationFirst}
}

// put makes the tables those of a side.
func (h Held) put(r *stamp.Request, s transport.Side) {
	if s == transport.Source {
		r.Source, r.SourceFirst = h.Tables, h.First
	} else {
		r.Destination, r.DestinationFirst = h.Tables, h.First
	}
}

// Clone copies the tables, so that the caller's may change.
func (h Held) Clone() Held { return Held{Clone(h.Tables), slices.Clone(h.First)} }

// scope is what the request moves, without tables.
func scope(r *stamp.Request) stamp.Request {
	out := *r
	out.Source, out.Destination, out.SourceFirst, out.DestinationFirst = nil, nil, nil, nil
	return out
}

// Other is the side across.
func Other(s transport.Side) transport.Side {
	return transport.Source + transport.Destination - s
}

// CheckSide refuses a direction that the local side cannot have: whoever
// submits a read is the destination, whoever grants it the source.
func CheckSide(d transport.Direction, local transport.Side, submits bool) error {
	want := transport.Source
	if (d == transport.Read) == submits {
		want = transport.Destination
	}
	if d != transport.Read && d != transport.Write {
		return &transport.Mismatch{Field: "direction", Asked: fmt.Sprint(d), Grants: "read or write"}
	}
	if local != want {
		return &transport.Mismatch{Field: "side", Asked: fmt.Sprint(want), Grants: fmt.Sprint(local)}
	}
	return nil
}

// CheckTables refuses tables and generations of a side that do not reach over
// what the request moves.
// Preconditions: the stamper has validated r.
func CheckTables(p *plan.Pair, r *stamp.Request, s transport.Side, generations [][]uint64) error {
	tables := Of(r, s).Tables
	if n := len(p.Source.Groups); len(tables) != n || len(generations) != n {
		return &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("of %d groups, with generations of %d", len(tables), len(generations)), Grants: fmt.Sprintf("%d groups", n)}
	}
	for g := range tables {
		lo, hi := transport.Entries(p, r, s, g)
		if lo < 0 || int64(len(tables[g])) < hi {
			return &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("%d entries of group %d", len(tables[g]), g), Grants: fmt.Sprintf("at least %d for tokens up to %d", hi, r.To)}
		}
		if int64(len(generations[g])) < hi {
			return &transport.Mismatch{Field: "generations", Asked: fmt.Sprintf("%d entries of group %d", len(generations[g]), g), Grants: fmt.Sprintf("at least %d for tokens up to %d", hi, r.To)}
		}
	}
	return nil
}

// Slice returns the entries of a side's tables and generations in which what
// the request moves lies.
func Slice(p *plan.Pair, r *stamp.Request, s transport.Side, generations [][]uint64) (t [][]uint32, g [][]uint64) {
	for i, table := range Of(r, s).Tables {
		lo, hi := transport.Entries(p, r, s, i)
		t = append(t, table[lo:hi])
		g = append(g, generations[i][lo:hi])
	}
	return t, g
}

// Checks returns the checks of the blocks that the request moves on the given
// memories of a side. A rank without layers of a group holds none of its
// blocks, and nobody bumps them there.
func Checks(p *plan.Pair, r *stamp.Request, s transport.Side, generations [][]uint64, on map[int]*Memory) []Check {
	t, g := Slice(p, r, s, generations)
	side := &p.Source
	if s == transport.Destination {
		side = &p.Destination
	}
	ranks := make([]int, 0, len(on))
	for r := range on {
		ranks = append(ranks, r)
	}
	slices.Sort(ranks)
	var out []Check
	for i := range t {
		for _, r := range ranks {
			own := side.OwnGroup(i)
			if m := on[r]; len(t[i]) > 0 && own < len(m.Generations) && side.Ranks[r][i] != nil {
				out = append(out, Check{Group: i, Rank: r, Table: m.Generations[own], Blocks: t[i], Granted: g[i]})
			}
		}
	}
	return out
}

// Snapshot returns the present generations of a side's table entries on the
// memory of one of its ranks: zeros for groups of which the rank holds nothing.
func Snapshot(side *plan.Side, m *Memory, tables [][]uint32) (out [][]uint64, err error) {
	// Guarded: no gate keeps the memory's owner from closing it meanwhile.
	err = move.Guard(func() error {
		out, err = snapshot(side, m, tables)
		return err
	})
	return out, err
}

func snapshot(side *plan.Side, m *Memory, tables [][]uint32) ([][]uint64, error) {
	out := make([][]uint64, len(tables))
	for i, table := range tables {
		g := side.OwnGroup(i)
		if side.Ranks[m.Rank.Rank][i] == nil { // it holds none of the group's blocks
			out[i] = make([]uint64, len(table))
			continue
		}
		if g >= len(m.Generations) {
			return nil, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("group %d", g), Grants: fmt.Sprintf("%d groups", len(m.Generations))}
		}
		out[i] = make([]uint64, len(table))
		for k, b := range table {
			if int64(b) >= int64(m.Generations[g].Blocks()) {
				return nil, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("block %d of group %d", b, g), Grants: fmt.Sprintf("%d blocks", m.Generations[g].Blocks())}
			}
			out[i][k] = m.Generations[g].Load(int(b))
		}
	}
	return out, nil
}

// Clone copies tables, so that the caller's may change.
func Clone[T any](tables [][]T) [][]T {
	if tables == nil {
		return nil
	}
	out := make([][]T, len(tables))
	for i := range tables {
		out[i] = slices.Clone(tables[i])
	}
	return out
}

// Memories looks up the memory of one side of every edge.
func Memories(edges []stamp.EdgeKey, s transport.Side, find func(rank int) (*Memory, error)) (map[int]*Memory, error) {
	out := map[int]*Memory{}
	for _, e := range edges {
		r := e.Destination
		if s == transport.Source {
			r = e.Source
		}
		if out[r] != nil {
			continue
		}
		m, err := find(r)
		if err != nil {
			return nil, err
		}
		out[r] = m
	}
	return out, nil
}

// Gates returns the gates of memories, in order of rank.
func Gates(ms ...map[int]*Memory) []*Gate {
	var out []*Gate
	for _, m := range ms {
		ranks := make([]int, 0, len(m))
		for r := range m {
			ranks = append(ranks, r)
		}
		slices.Sort(ranks)
		for _, r := range ranks {
			out = append(out, &m[r].Gate)
		}
	}
	return out
}

// Ask is an operation as its submitter asks the granting side for it.
type Ask struct {
	Peer      transport.PeerID // as the granting side knows the submitter
	Grant     transport.GrantID
	Direction transport.Direction // seen from the submitter
	Request   stamp.Request       // what it moves; no tables
	// Tables and Generations are what the submitter believes of the granted
	// blocks, for the entries of the tokens only; nil where it need not know.
	Tables      [][]uint32
	Generations [][]uint64
}

// Admitted is what a grant gives to an operation.
type Admitted struct {
	Grant       *Grant
	Plan        *Plan
	Request     stamp.Request // as asked, with the granted tables
	Generations [][]uint64    // whole
}

// granted looks up what an operation asks for.
func (c *Core) granted(a *Ask) (*Grant, *Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, transport.ErrPeerGone // seen from the submitter
	}
	p, err := c.plan(a.Peer, a.Request.Plan)
	if err != nil {
		return nil, nil, err
	}
	g := c.grants[a.Grant]
	if g == nil || g.Peer != a.Peer { // another peer's is as good as none
		return nil, nil, transport.ErrNotGranted
	}
	return g, p, nil
}

// Admit finds the grant of an operation and refuses what it does not cover.
//
// Errors: transport.ErrNotGranted, ErrDeadline, *Unknown, *Mismatch.
func (c *Core) Admit(a *Ask) (*Admitted, error) {
	g, p, err := c.granted(a)
	if err != nil {
		return nil, err
	}
	bad := func(field string, asked, grants any) error {
		return &transport.Mismatch{Field: field, Asked: fmt.Sprint(asked), Grants: fmt.Sprint(grants)}
	}
	r, q := &g.Request, &a.Request
	switch {
	case !time.Now().Before(g.Deadline):
		return nil, fmt.Errorf("use grant %x: %w", a.Grant, transport.ErrDeadline)
	case a.Direction != g.Direction:
		return nil, bad("direction", a.Direction, g.Direction)
	case q.Plan != r.Plan:
		return nil, bad("plan", q.Plan, r.Plan)
	case q.From < r.From || q.From > q.To:
		return nil, bad("from", q.From, r.From)
	case q.To > r.To:
		return nil, bad("to", q.To, r.To)
	case r.Layers != (plan.Range{}) && (q.Layers == (plan.Range{}) || q.Layers.From < r.Layers.From || q.Layers.To > r.Layers.To):
		return nil, bad("layers", q.Layers, r.Layers)
	case r.Edges != nil && q.Edges == nil:
		return nil, bad("edges", "all", r.Edges)
	}
	if r.Edges != nil {
		for _, e := range q.Edges {
			if !slices.Contains(r.Edges, e) {
				return nil, bad("edges", e, r.Edges)
			}
		}
	}
	out := &Admitted{Grant: g, Plan: g.plan, Request: scope(q), Generations: g.Generations}
	Of(r, p.Local).put(&out.Request, p.Local)
	if err := p.Stamper.Validate(&out.Request); err != nil { // its tables were validated with the grant's own range
		return nil, err
	}
	for group := range p.Pair.Source.Groups {
		asked, grants := out.Request.Span(p.Pair, group), r.Span(p.Pair, group)
		if !asked.Empty() && (asked.From < grants.From || asked.To > grants.To) {
			return nil, bad("spans", fmt.Sprintf("[%d, %d) of group %d", asked.From, asked.To, group), fmt.Sprintf("[%d, %d)", grants.From, grants.To))
		}
	}
	t, gen := Slice(p.Pair, &out.Request, p.Local, out.Generations)
	if a.Tables != nil && !slices.EqualFunc(a.Tables, t, slices.Equal) {
		return nil, bad("tables", brief(a.Tables), brief(t))
	}
	if a.Generations != nil && !slices.EqualFunc(a.Generations, gen, slices.Equal) {
		return nil, bad("generations", brief(a.Generations), brief(gen))
	}
	return out, nil
}

// brief prints the head of tables.
func brief[T any](tables [][]T) string {
	s := fmt.Sprint(tables)
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return s
}

// span returns the bytes of a region of a rank.
func span(r *memory.Rank, group, region int) ([]byte, error) {
	if group >= len(r.Buffers) || region >= len(r.Buffers[group]) {
		return nil, fmt.Errorf("transport: rank %d of engine %q has no region %d of group %d: other memory was registered than planned for", r.Rank, r.Engine, region, group)
	}
	b := r.Buffers[group][region].Bytes()
	if b == nil {
		return nil, fmt.Errorf("use region %q of rank %d of engine %q: %w", r.Buffers[group][region].Name(), r.Rank, r.Engine, memory.ErrClosed)
	}
	return b, nil
}
