package session

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
)

// LayoutState says how far a side's layouts can be trusted.
type LayoutState string

// The states.
const (
	Declared LayoutState = "declared" // computed from what the engine registered
	Measured LayoutState = "measured" // observed through the engine's own cache-write kernel
)

// Engine is what one agent says of an engine: the whole engine's description
// (all ranks), and which ranks' memory this agent holds.
type Engine struct {
	Side        plan.Side
	Incarnation string
	Held        []int // ascending
	State       LayoutState
	Probes      bool // its kernel can take part in a probe transfer
}

// MaxIncarnation bounds an incarnation's name.
const MaxIncarnation = 64

// Digest covers everything but Held: agents of one engine must agree on it.
func (e *Engine) Digest() geometry.Digest {
	h := sha256.New()
	fmt.Fprintf(h, "engine %q incarnation %q state %q probes %t\n", e.Side.Engine, e.Incarnation, e.State, e.Probes)
	p := plan.Pair{Source: e.Side, Destination: plan.Side{}}
	d := p.Digest()
	h.Write(d[:])
	return geometry.Digest(h.Sum(nil))
}

// Validate returns every reason for which the description cannot be true, as
// fields below "engine".
func (e *Engine) Validate(name string) []error {
	var out []error
	if e.Incarnation == "" || len(e.Incarnation) > MaxIncarnation {
		out = append(out, &plan.Error{Side: name, Field: "incarnation", Value: fmt.Sprintf("%q", e.Incarnation), Reason: fmt.Sprintf("an incarnation has 1 to %d bytes", MaxIncarnation)})
	}
	if e.State != Declared && e.State != Measured {
		out = append(out, &plan.Error{Side: name, Field: "layout.state", Value: fmt.Sprintf("%q", e.State), Reason: "want declared or measured"})
	}
	if err := e.Side.Validate(name); err != nil {
		return append(out, err)
	}
	for i, r := range e.Held {
		if r < 0 || r >= len(e.Side.Ranks) {
			out = append(out, &plan.Error{Side: name, Field: fmt.Sprintf("held[%d]", i), Value: r, Reason: fmt.Sprintf("the engine has ranks 0 to %d", len(e.Side.Ranks)-1)})
		} else if i > 0 && r <= e.Held[i-1] {
			out = append(out, &plan.Error{Side: name, Field: fmt.Sprintf("held[%d]", i), Value: r, Reason: "rank numbers ascend"})
		}
	}
	if len(e.Held) == 0 {
		out = append(out, &plan.Error{Side: name, Field: "held", Value: "empty", Reason: "an agent speaks for the ranks that it holds"})
	}
	return out
}

// The wire forms: keys in snake case, numbers where the core has enums whose
// numbers are frozen. Layouts that ranks share are sent once.
type (
	wireComponent struct {
		Name   string `json:"name"`
		Heads  int    `json:"heads"`
		Dim    int    `json:"dim"`
		DType  uint8  `json:"dtype"`
		Unit   int    `json:"unit,omitempty"`
		Entry  int    `json:"tokens_per_entry,omitempty"`
		Scales string `json:"scales,omitempty"`
	}
	wireGroup struct {
		Name       string          `json:"name"`
		Layers     []int           `json:"layers"`
		Components []wireComponent `json:"components"`
		State      bool            `json:"state,omitempty"`
		Window     int             `json:"window,omitempty"`
		Optional   bool            `json:"optional,omitempty"`
		Shared     [][2]int        `json:"shared,omitempty"` // layer, owner
	}
	wireModel struct {
		Name     string            `json:"name"`
		Layers   int               `json:"layers"`
		Left     int               `json:"left,omitempty"`
		Identity map[string]string `json:"identity,omitempty"`
		Groups   []wireGroup       `json:"groups"`
	}
	wireShard struct {
		TP         int      `json:"tp"`
		Stages     []int    `json:"stages"`
		DCP        int      `json:"dcp"`
		Interleave int      `json:"interleave"`
		Heads      [][]int  `json:"heads,omitempty"`
		Order      [3]uint8 `json:"order"`
		Places     [][3]int `json:"places,omitempty"` // by rank: pp, tp, dcp
	}
	wirePool struct {
		Block  int        `json:"block"`
		Blocks int        `json:"blocks"`
		Ring   int        `json:"ring,omitempty"`
		Shard  *wireShard `json:"shard,omitempty"`
	}
	wireRegion struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	}
	wireLayout struct {
		Layers     []int           `json:"layers"`
		Blocks     int             `json:"blocks"`
		Tokens     int             `json:"tokens"`
		Heads      []int           `json:"heads"` // by component
		State      bool            `json:"state,omitempty"`
		Components []wireComponent `json:"components"`
		Regions    []wireRegion    `json:"regions"`
		Maps       [][][4]int64    `json:"maps"`   // axis, mod, div, stride in bits
		Places     [][][3]int64    `json:"places"` // region, offset in bits, map
	}
	wireEngine struct {
		ID          string       `json:"id"`
		Incarnation string       `json:"incarnation"`
		Model       wireModel    `json:"model"`
		Shard       wireShard    `json:"shard"`
		Pools       []wirePool   `json:"pools"`
		Layouts     []wireLayout `json:"layouts"`
		Ranks       [][]int      `json:"ranks"` // [rank][group]: index into layouts, -1 none
		Held        []int        `json:"held"`
		State       LayoutState  `json:"layout_state"`
		Probes      bool         `json:"probes,omitempty"`
	}
)

func componentsOut(cs []geometry.Component) []wireComponent {
	out := make([]wireComponent, len(cs))
	for i, c := range cs {
		out[i] = wireComponent{c.Name, c.Heads, c.Dim, uint8(c.DType), c.Unit, c.Entry, c.Scales}
	}
	return out
}

func componentsIn(cs []wireComponent) []geometry.Component {
	out := make([]geometry.Component, len(cs))
	for i, c := range cs {
		out[i] = geometry.Component{Name: c.Name, Heads: c.Heads, Dim: c.Dim, DType: geometry.DType(c.DType), Unit: c.Unit, Entry: c.Entry, Scales: c.Scales}
	}
	return out
}

func layoutOut(l *layout.Layout) wireLayout {
	w := wireLayout{Layers: l.Extent.Layers, Blocks: l.Extent.Blocks, Tokens: l.Extent.Tokens, Heads: l.Extent.Heads, State: l.Extent.State, Components: componentsOut(l.Extent.Components)}
	for _, r := range l.Regions {
		w.Regions = append(w.Regions, wireRegion{r.Name, r.Bytes})
	}
	for _, m := range l.Maps {
		digits := [][4]int64{}
		for _, d := range m {
			digits = append(digits, [4]int64{int64(d.Axis), d.Mod, d.Div, d.Stride})
		}
		w.Maps = append(w.Maps, digits)
	}
	for _, ps := range l.Places {
		places := [][3]int64{}
		for _, p := range ps {
			places = append(places, [3]int64{int64(p.Region), p.Offset, int64(p.Map)})
		}
		w.Places = append(w.Places, places)
	}
	return w
}

func (w wireLayout) in() *layout.Layout {
	l := &layout.Layout{Extent: layout.Extent{Layers: w.Layers, Blocks: w.Blocks, Tokens: w.Tokens, Heads: w.Heads, State: w.State, Components: componentsIn(w.Components)}}
	for _, r := range w.Regions {
		l.Regions = append(l.Regions, layout.Region{Name: r.Name, Bytes: r.Bytes})
	}
	for _, m := range w.Maps {
		digits := make([]layout.Digit, len(m))
		for i, d := range m {
			axis := d[0]
			if axis < 0 || axis > 255 {
				axis = 0 // no axis: Validate names it
			}
			digits[i] = layout.Digit{Axis: geometry.Axis(axis), Mod: d[1], Div: d[2], Stride: d[3]}
		}
		l.Maps = append(l.Maps, digits)
	}
	for _, ps := range w.Places {
		places := make([]layout.Place, len(ps))
		for i, p := range ps {
			places[i] = layout.Place{Region: int(p[0]), Offset: p[1], Map: int(p[2])}
		}
		l.Places = append(l.Places, places)
	}
	return l
}

func groupOut(g geometry.Group) wireGroup {
	w := wireGroup{Name: g.Name, Layers: g.Layers, Components: componentsOut(g.Components), State: g.State, Window: g.Window, Optional: g.Optional}
	for _, s := range g.Shared {
		w.Shared = append(w.Shared, [2]int{s.Layer, s.Owner})
	}
	return w
}

func (w wireGroup) in() geometry.Group {
	g := geometry.Group{Name: w.Name, Layers: w.Layers, Components: componentsIn(w.Components), State: w.State, Window: w.Window, Optional: w.Optional}
	for _, s := range w.Shared {
		g.Shared = append(g.Shared, geometry.Share{Layer: s[0], Owner: s[1]})
	}
	return g
}

func shardOut(s *shard.Spec) wireShard {
	w := wireShard{TP: s.TP, Stages: s.Stages, DCP: s.DCPSize, Interleave: s.Interleave, Heads: s.Heads}
	for i, g := range s.Order {
		w.Order[i] = uint8(g)
	}
	for _, p := range s.Places {
		w.Places = append(w.Places, [3]int{p.PP, p.TP, p.DCP})
	}
	return w
}

func (w *wireShard) in() shard.Spec {
	s := shard.Spec{TP: w.TP, Stages: w.Stages, DCPSize: w.DCP, Interleave: w.Interleave, Heads: w.Heads}
	if len(s.Heads) == 0 {
		s.Heads = nil
	}
	for i, g := range w.Order {
		s.Order[i] = shard.Grid(g)
	}
	for _, p := range w.Places {
		s.Places = append(s.Places, shard.Place{PP: p[0], TP: p[1], DCP: p[2]})
	}
	return s
}

// MarshalJSON writes the wire form.
func (e Engine) MarshalJSON() ([]byte, error) {
	m := e.Side.Model
	w := wireEngine{ID: e.Side.Engine, Incarnation: e.Incarnation, Held: e.Held, State: e.State, Probes: e.Probes,
		Model: wireModel{Name: m.Name, Layers: m.Layers, Left: m.Left, Identity: m.Identity},
		Shard: shardOut(&e.Side.Shard)}
	for _, g := range m.Groups {
		w.Model.Groups = append(w.Model.Groups, groupOut(g))
	}
	for _, p := range e.Side.Groups {
		out := wirePool{Block: p.Block, Blocks: p.Blocks, Ring: p.Ring}
		if p.Shard != nil {
			own := shardOut(p.Shard)
			out.Shard = &own
		}
		w.Pools = append(w.Pools, out)
	}
	byText := map[string]int{}
	byPointer := map[*layout.Layout]int{}
	for _, layouts := range e.Side.Ranks {
		row := make([]int, len(layouts))
		for g, l := range layouts {
			if l == nil {
				row[g] = -1
				continue
			}
			n, ok := byPointer[l]
			if !ok {
				text := l.Text()
				if n, ok = byText[text]; !ok {
					n = len(w.Layouts)
					byText[text] = n
					w.Layouts = append(w.Layouts, layoutOut(l))
				}
				byPointer[l] = n
			}
			row[g] = n
		}
		w.Ranks = append(w.Ranks, row)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the wire form. It checks what would not fit the types;
// Validate checks the rest.
func (e *Engine) UnmarshalJSON(b []byte) error {
	var w wireEngine
	if err := strict(b, &w); err != nil {
		return err
	}
	s := plan.Side{Engine: w.ID, Model: geometry.Model{Name: w.Model.Name, Layers: w.Model.Layers, Left: w.Model.Left}, Shard: w.Shard.in()}
	if len(w.Model.Identity) > 0 {
		s.Model.Identity = w.Model.Identity
	}
	for _, g := range w.Model.Groups {
		s.Model.Groups = append(s.Model.Groups, g.in())
	}
	for _, p := range w.Pools {
		pool := plan.Pool{Block: p.Block, Blocks: p.Blocks, Ring: p.Ring}
		if p.Shard != nil {
			own := p.Shard.in()
			pool.Shard = &own
		}
		s.Groups = append(s.Groups, pool)
	}
	layouts := make([]*layout.Layout, len(w.Layouts))
	for i, l := range w.Layouts {
		layouts[i] = l.in()
	}
	if len(w.Ranks) > shard.MaxRanks {
		return &FrameError{"engine.ranks", len(w.Ranks), fmt.Sprintf("at most %d", shard.MaxRanks)}
	}
	for r, row := range w.Ranks {
		out := make([]*layout.Layout, len(row))
		for g, n := range row {
			if n < -1 || n >= len(layouts) {
				return &FrameError{fmt.Sprintf("engine.ranks[%d][%d]", r, g), n, fmt.Sprintf("-1 to %d", len(layouts)-1)}
			}
			if n >= 0 {
				out[g] = layouts[n]
			}
		}
		s.Ranks = append(s.Ranks, out)
	}
	*e = Engine{Side: s, Incarnation: w.Incarnation, Held: w.Held, State: w.State, Probes: w.Probes}
	return nil
}

// Roster gathers what the agents of one engine say of it. The engine is open
// when every rank is held by some agent, under one description and one
// incarnation.
type Roster struct {
	first  string // agent that spoke first
	engine *Engine
	holder map[int]string
}

// RosterError is an agent that contradicts another one of the same engine.
type RosterError struct {
	Field         string // "engine", "incarnation", "description" or "rank 3"
	First, Second string // agents
	Have, Want    string // the second's value and the first's
}

func (e *RosterError) Error() string {
	if strings.HasPrefix(e.Field, "rank ") {
		return fmt.Sprintf("roster: %s is claimed by agent %q and by agent %q", e.Field, e.First, e.Second)
	}
	return fmt.Sprintf("roster: %s differs: agent %q says %s, agent %q says %s", e.Field, e.First, e.Want, e.Second, e.Have)
}

// Add takes in one agent's word. On an error the roster is unchanged.
func (r *Roster) Add(agent string, e *Engine) error {
	if r.engine != nil {
		for _, f := range []struct{ field, have, want string }{
			{"engine", e.Side.Engine, r.engine.Side.Engine},
			{"incarnation", e.Incarnation, r.engine.Incarnation},
			{"description", e.Digest().String(), r.engine.Digest().String()},
		} {
			if f.have != f.want {
				return &RosterError{Field: f.field, First: r.first, Second: agent, Have: f.have, Want: f.want}
			}
		}
	}
	for _, rank := range e.Held {
		if other, ok := r.holder[rank]; ok {
			return &RosterError{Field: fmt.Sprintf("rank %d", rank), First: other, Second: agent}
		}
	}
	if r.engine == nil {
		r.first, r.engine, r.holder = agent, e, map[int]string{}
	}
	for _, rank := range e.Held {
		r.holder[rank] = agent
	}
	return nil
}

// Remove takes an agent's ranks out again.
func (r *Roster) Remove(agent string) {
	for rank, a := range r.holder {
		if a == agent {
			delete(r.holder, rank)
		}
	}
	if len(r.holder) == 0 {
		r.engine = nil
	}
}

// Missing returns the ranks that no agent holds, ascending. Before the first
// Add it is nil and Open is false.
func (r *Roster) Missing() []int {
	var out []int
	if r.engine == nil {
		return nil
	}
	for rank := range r.engine.Side.Ranks {
		if _, ok := r.holder[rank]; !ok {
			out = append(out, rank)
		}
	}
	sort.Ints(out)
	return out
}

// Open reports whether every rank is held.
func (r *Roster) Open() bool { return r.engine != nil && len(r.Missing()) == 0 }

// Engine is the description that the agents agree on, nil before the first.
func (r *Roster) Engine() *Engine { return r.engine }

// Blame is the operator: the agents of one engine are configured differently.
func (e *RosterError) Blame() blame.Party { return blame.Operator }
