package direct

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
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

// Tables returns the block tables of a side.
func Tables(r *stamp.Request, s transport.Side) [][]uint32 {
	if s == transport.Source {
		return r.Source
	}
	return r.Destination
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

// CheckTables refuses tables and generations that do not reach over the
// tokens [from, to).
func CheckTables(side *plan.Side, tables [][]uint32, generations [][]uint64, from, to int64) error {
	if from < 0 || from > to {
		return &transport.Mismatch{Field: "from", Asked: fmt.Sprint(from), Grants: fmt.Sprintf("0 to %d", to)}
	}
	if len(tables) != len(side.Groups) || len(generations) != len(side.Groups) {
		return &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("of %d groups, with generations of %d", len(tables), len(generations)), Grants: fmt.Sprintf("%d groups of engine %q", len(side.Groups), side.Engine)}
	}
	for g := range tables {
		_, hi := transport.Entries(side, g, from, to)
		if int64(len(tables[g])) < hi {
			return &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("%d entries of group %d", len(tables[g]), g), Grants: fmt.Sprintf("at least %d for tokens up to %d", hi, to)}
		}
		if int64(len(generations[g])) < hi {
			return &transport.Mismatch{Field: "generations", Asked: fmt.Sprintf("%d entries of group %d", len(generations[g]), g), Grants: fmt.Sprintf("at least %d for tokens up to %d", hi, to)}
		}
	}
	return nil
}

// Slice returns the entries of tables and generations in which the tokens lie.
func Slice(side *plan.Side, tables [][]uint32, generations [][]uint64, from, to int64) (t [][]uint32, g [][]uint64) {
	for i := range tables {
		lo, hi := transport.Entries(side, i, from, to)
		t = append(t, tables[i][lo:hi])
		g = append(g, generations[i][lo:hi])
	}
	return t, g
}

// Checks returns the checks of the tokens' blocks on the given memories of a
// side. A rank without layers of a group holds none of its blocks, and nobody
// bumps them there.
func Checks(side *plan.Side, tables [][]uint32, generations [][]uint64, from, to int64, on map[int]*Memory) []Check {
	t, g := Slice(side, tables, generations, from, to)
	ranks := make([]int, 0, len(on))
	for r := range on {
		ranks = append(ranks, r)
	}
	slices.Sort(ranks)
	var out []Check
	for i := range t {
		for _, r := range ranks {
			if m := on[r]; len(t[i]) > 0 && i < len(m.Generations) && side.Ranks[r][i] != nil {
				out = append(out, Check{Group: i, Rank: r, Table: m.Generations[i], Blocks: t[i], Granted: g[i]})
			}
		}
	}
	return out
}

// Snapshot returns the present generations of table entries on one memory.
func Snapshot(m *Memory, tables [][]uint32) (out [][]uint64, err error) {
	// Guarded: no gate keeps the memory's owner from closing it meanwhile.
	err = move.Guard(func() error {
		out, err = snapshot(m, tables)
		return err
	})
	return out, err
}

func snapshot(m *Memory, tables [][]uint32) ([][]uint64, error) {
	out := make([][]uint64, len(tables))
	for g, table := range tables {
		if g >= len(m.Generations) {
			return nil, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("group %d", g), Grants: fmt.Sprintf("%d groups", len(m.Generations))}
		}
		out[g] = make([]uint64, len(table))
		for i, b := range table {
			if int64(b) >= int64(m.Generations[g].Blocks()) {
				return nil, &transport.Mismatch{Field: "tables", Asked: fmt.Sprintf("block %d of group %d", b, g), Grants: fmt.Sprintf("%d blocks", m.Generations[g].Blocks())}
			}
			out[g][i] = m.Generations[g].Load(int(b))
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
	Plan      geometry.Digest
	From, To  int64
	Layers    plan.Range
	Edges     []stamp.EdgeKey // nil: all
	// Tables and Generations are what the submitter believes of the granted
	// blocks, for the entries of the tokens only; nil where it need not know.
	Tables      [][]uint32
	Generations [][]uint64
}

// Admitted is what a grant gives to an operation.
type Admitted struct {
	Grant       *Grant
	Plan        *Plan
	Tables      [][]uint32 // whole
	Generations [][]uint64 // whole
}

// Admit finds the grant of an operation and refuses what it does not cover.
//
// Errors: transport.ErrNotGranted, ErrDeadline, *Unknown, *Mismatch.
func (c *Core) Admit(a *Ask) (*Admitted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, transport.ErrPeerGone // seen from the submitter
	}
	p, err := c.plan(a.Peer, a.Plan)
	if err != nil {
		return nil, err
	}
	g := c.grants[a.Grant]
	if g == nil || g.Peer != a.Peer { // another peer's is as good as none
		return nil, transport.ErrNotGranted
	}
	bad := func(field string, asked, grants any) error {
		return &transport.Mismatch{Field: field, Asked: fmt.Sprint(asked), Grants: fmt.Sprint(grants)}
	}
	r := &g.Request
	switch {
	case !time.Now().Before(g.Deadline):
		return nil, fmt.Errorf("use grant %x: %w", a.Grant, transport.ErrDeadline)
	case a.Direction != g.Direction:
		return nil, bad("direction", a.Direction, g.Direction)
	case a.Plan != r.Plan:
		return nil, bad("plan", a.Plan, r.Plan)
	case a.From < r.From || a.From > a.To:
		return nil, bad("from", a.From, r.From)
	case a.To > r.To:
		return nil, bad("to", a.To, r.To)
	case r.Layers != (plan.Range{}) && (a.Layers == (plan.Range{}) || a.Layers.From < r.Layers.From || a.Layers.To > r.Layers.To):
		return nil, bad("layers", a.Layers, r.Layers)
	case r.Edges != nil && a.Edges == nil:
		return nil, bad("edges", "all", r.Edges)
	}
	if r.Edges != nil {
		for _, e := range a.Edges {
			if !slices.Contains(r.Edges, e) {
				return nil, bad("edges", e, r.Edges)
			}
		}
	}
	out := &Admitted{Grant: g, Plan: g.plan, Tables: Tables(r, p.Local), Generations: g.Generations}
	t, gen := Slice(p.Engine(p.Local), out.Tables, out.Generations, a.From, a.To)
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

// Wide returns a whole table again from its entries in [lo, lo+len): the
// entries before are zero and never looked at.
func Wide[T any](entries []T, lo int64) []T {
	return append(make([]T, lo, lo+int64(len(entries))), entries...)
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
