package pairfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
)

// shards reads how a side is sharded: the engine, and the groups that say so
// otherwise.
func (r *reader) shards(n *yaml.Node, field string, groups []groupNode, f *File, s *Side) error {
	var common []int // groups of the side's model sharded as the engine is
	own := map[int]*yaml.Node{}
	model := f.SideModel(s)
	for i, g := range s.Present() {
		// Without "groups" the node is the side itself, whose shard is the engine's.
		if v, ok := groups[g].keys["shard"]; ok && f.named() {
			own[i] = v
			continue
		}
		common = append(common, i)
	}
	var err error
	if s.Shard, err = r.shard(n, field+".shard", f, model.Select(common)); err != nil {
		return err
	}
	for i, g := range s.Present() {
		v, ok := own[i]
		if !ok {
			continue
		}
		at := f.groupField(field, g) + ".shard"
		spec, err := r.shard(v, at, f, model.Select([]int{i}))
		if err != nil {
			return err
		}
		if a, b := spec.Ranks(), s.Shard.Ranks(); a != b {
			return r.fail(v, at, nil, "shards group %q over %d ranks, the engine has %d", f.Model.Groups[g].Name, a, b)
		}
		s.Groups[g].Shard = &spec
	}
	return nil
}

// shard reads one shard, of the groups of m.
func (r *reader) shard(n *yaml.Node, field string, f *File, m geometry.Model) (shard.Spec, error) {
	s := shard.Spec{TP: 1, Stages: []int{f.Model.Layers}, DCPSize: 1, Interleave: 1}
	keys, _, err := r.mapping(n, field, "tp", "pp", "pcp", "dcp", "heads", "rank_order", "ranks")
	if err != nil {
		return s, err
	}
	fault := func(err error) error {
		var e *shard.Error
		if !errors.As(err, &e) {
			return err
		}
		at := e.Field
		if _, ok := keys["dcp"]; !ok && at == "dcp.size" && keys["pcp"] != nil {
			at = "pcp"
		}
		value := e.Value
		if p, ok := value.(shard.Place); ok {
			value = placed(placeText(s, p))
		}
		return f.locate(field+"."+at, value, e.Reason, err)
	}
	if v, ok := keys["tp"]; ok {
		tp, err := r.integer(v, field+".tp", shard.MaxRanks)
		if err != nil {
			return s, err
		}
		s.TP = int(tp)
	}
	if v, ok := keys["pp"]; ok {
		if v.Kind == yaml.SequenceNode {
			if s.Stages, err = r.integers(v, field+".pp", geometry.MaxLayers, geometry.MaxLayers); err != nil {
				return s, err
			}
		} else {
			pp, err := r.integer(v, field+".pp", geometry.MaxLayers)
			if err != nil {
				return s, err
			}
			tail := f.tail()
			if s.Stages, err = shard.Even(f.Model.Layers-tail, int(pp)); err != nil {
				return s, fault(err)
			}
			s.Stages[pp-1] += tail
		}
	}
	if v, ok := keys["dcp"]; ok {
		if err := r.dcp(v, field+".dcp", &s); err != nil {
			return s, err
		}
	}
	pcp := 1
	if v, ok := keys["pcp"]; ok {
		if pcp, err = r.optional(keys, field, "pcp", 1, shard.MaxRanks); err != nil {
			return s, err
		}
		if n := pcp * s.DCPSize; n > shard.MaxRanks {
			return s, r.fail(v, field+".pcp", pcp, "%d context-parallel ranks with dcp.size %d: want at most %d", n, s.DCPSize, shard.MaxRanks)
		}
	}
	if v, ok := keys["heads"]; ok {
		lists, err := r.list(v, field+".heads", shard.MaxRanks)
		if err != nil {
			return s, err
		}
		for i, n := range lists {
			heads, err := r.integers(n, fmt.Sprintf("%s.heads[%d]", field, i), geometry.MaxHeads, geometry.MaxHeads)
			if err != nil {
				return s, err
			}
			s.Heads = append(s.Heads, heads)
		}
	}
	ranks, explicit := keys["ranks"]
	if explicit {
		for _, other := range []string{"rank_order", "pcp"} {
			if v, ok := keys[other]; ok {
				return s, r.fail(v, field+"."+other, nil, "ranks says where each rank stands: %s adds nothing (pcp is part of dcp there)", other)
			}
		}
		s.Order = [3]shard.Grid{shard.PP, shard.TP, shard.DCP}
		if s.Places, err = r.ranks(ranks, field+".ranks", &s); err != nil {
			return s, err
		}
		return s, fault(s.Validate(m))
	}
	var order []string
	if v, ok := keys["rank_order"]; ok {
		if order, err = r.rankOrder(v, field+".rank_order", keys["pcp"] != nil); err != nil {
			return s, err
		}
	}
	if pcp > 1 {
		s.Order = [3]shard.Grid{shard.PP, shard.TP, shard.DCP}
		if n := s.Ranks() * pcp; n > shard.MaxRanks {
			return s, fault(&shard.Error{Field: "ranks", Value: n, Reason: fmt.Sprintf("want at most %d", shard.MaxRanks)})
		}
		g := newGrid(order, len(s.Stages), pcp, s.TP, s.DCPSize)
		s.Places = g.places()
		s.DCPSize *= pcp
		return s, fault(s.Validate(m))
	}
	var partial []shard.Grid
	for _, name := range order { // pcp may be one of them, of one place
		if g := slices.Index(gridNames[:], name); g >= 0 {
			partial = append(partial, shard.Grid(g+1))
		}
	}
	if s.Order, err = shard.Order(partial); err != nil {
		return s, fault(err)
	}
	return s, fault(s.Validate(m))
}

// gridNames are the axes of the rank grid; a shard.Grid counts them from 1.
var gridNames = [...]string{"pp", "tp", "dcp"}

// tail is the number of the model's last layers that only optional groups hold.
// A number of stages divides the layers before them, and the last stage holds
// them too.
func (f *File) tail() int {
	needed, optional := 0, map[int]bool{}
	for _, g := range f.Model.Groups {
		if g.Optional {
			for _, l := range g.Layers {
				optional[l] = true
			}
			continue
		}
		needed = max(needed, g.Layers[len(g.Layers)-1]+1)
		if k := len(g.Shared); k > 0 {
			needed = max(needed, g.Shared[k-1].Layer+1)
		}
	}
	first := f.Model.Layers
	for first > needed && optional[first-1] {
		first--
	}
	if first == 0 {
		return 0
	}
	return f.Model.Layers - first
}

func (r *reader) dcp(n *yaml.Node, field string, s *shard.Spec) error {
	d, _, err := r.mapping(n, field, "size", "interleave", "split")
	if err != nil {
		return err
	}
	if v, ok := d["split"]; ok {
		split, err := r.text(v, field+".split")
		switch {
		case err != nil:
			return err
		case split == "contiguous":
			return r.fail(v, field+".split", split, "contiguous context parallelism cuts each request by its own length, so which rank holds a token differs from request to request and no plan of the pair can serve it; want interleaved")
		case split != "interleaved":
			return r.fail(v, field+".split", clip(split), "want interleaved")
		}
	}
	size, err := r.required(d, n, field, "size")
	if err != nil {
		return err
	}
	c, err := r.integer(size, field+".size", shard.MaxRanks)
	if err != nil {
		return err
	}
	s.DCPSize = int(c)
	if v, ok := d["interleave"]; ok {
		i, err := r.integer(v, field+".interleave", 1<<20)
		if err != nil {
			return err
		}
		s.Interleave = int(i)
	}
	return nil
}

// rankOrder reads the axes of the rank grid, outermost first; pcp is one where
// the shard has it.
func (r *reader) rankOrder(n *yaml.Node, field string, pcp bool) ([]string, error) {
	axes := gridNames[:]
	if pcp {
		axes = gridAxes[:]
	}
	names, err := r.list(n, field, len(axes))
	if err != nil {
		return nil, err
	}
	var order []string
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", field, i)
		name, err := r.text(n, at)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(axes, name) {
			return nil, r.fail(n, at, clip(name), "want %s or %s", strings.Join(axes[:len(axes)-1], ", "), axes[len(axes)-1])
		}
		if pcp && slices.Contains(order, name) { // shard.Order sees to it otherwise
			return nil, r.fail(n, at, name, "named twice")
		}
		order = append(order, name)
	}
	return order, nil
}

// ranks reads the place of each rank. An axis of one place may be left out.
func (r *reader) ranks(n *yaml.Node, field string, s *shard.Spec) ([]shard.Place, error) {
	list, err := r.list(n, field, shard.MaxRanks)
	if err != nil {
		return nil, err
	}
	out := make([]shard.Place, len(list))
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		m, _, err := r.mapping(n, at, gridNames[:]...)
		if err != nil {
			return nil, err
		}
		p := &out[i]
		for _, axis := range []struct {
			name string
			size int
			to   *int
		}{{"pp", len(s.Stages), &p.PP}, {"tp", s.TP, &p.TP}, {"dcp", s.DCPSize, &p.DCP}} {
			v, ok := m[axis.name]
			if !ok && axis.size == 1 {
				continue
			} else if !ok {
				return nil, r.fail(n, join(at, axis.name), nil, "missing: %s has %d places", axis.name, axis.size)
			}
			place, err := r.integer(v, join(at, axis.name), shard.MaxRanks)
			if err != nil {
				return nil, err
			}
			*axis.to = int(place)
		}
	}
	return out, nil
}

// grid numbers ranks over pp x pcp x tp x dcp.
type grid struct {
	order [4]gridAxis // outermost first
	sizes [4]int      // by gridAxis
}

type gridAxis int

const (
	axisPP gridAxis = iota
	axisPCP
	axisTP
	axisDCP
)

// gridAxes are the axes' names, in the order in which those that rank_order
// leaves out come innermost.
var gridAxes = [...]string{"pp", "pcp", "tp", "dcp"}

// newGrid makes the grid of an order that may leave axes out.
func newGrid(order []string, pp, pcp, tp, dcp int) grid {
	g := grid{sizes: [4]int{pp, pcp, tp, dcp}}
	order = slices.Clone(order)
	for _, name := range gridAxes {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	for i, name := range order {
		g.order[i] = gridAxis(slices.Index(gridAxes[:], name))
	}
	return g
}

// place is where a rank stands: the context-parallel rank counts a pcp rank's
// dcp ranks one after the other.
func (g *grid) place(rank int) shard.Place {
	var at [4]int
	for i := len(g.order) - 1; i >= 0; i-- {
		n := g.sizes[g.order[i]]
		at[g.order[i]] = rank % n
		rank /= n
	}
	return shard.Place{PP: at[axisPP], TP: at[axisTP], DCP: at[axisPCP]*g.sizes[axisDCP] + at[axisDCP]}
}

// places are those of all ranks.
func (g *grid) places() []shard.Place {
	out := make([]shard.Place, g.sizes[0]*g.sizes[1]*g.sizes[2]*g.sizes[3])
	for rank := range out {
		out[rank] = g.place(rank)
	}
	return out
}

// gridOf finds the grid of more than one pcp rank whose places a shard has, the
// first by pcp and then by order; false where there is none.
func gridOf(s shard.Spec) (grid, bool) {
	for pcp := 2; pcp <= s.DCPSize; pcp++ {
		if s.DCPSize%pcp != 0 {
			continue
		}
		g := grid{sizes: [4]int{len(s.Stages), pcp, s.TP, s.DCPSize / pcp}}
		for _, g.order = range gridOrders() {
			fits := true
			for rank := 0; fits && rank < len(s.Places); rank++ {
				fits = g.place(rank) == s.Places[rank]
			}
			if fits {
				return g, true
			}
		}
	}
	return grid{}, false
}

// gridOrders are all orders of the axes, the default first.
func gridOrders() [][4]gridAxis {
	var out [][4]gridAxis
	var add func(order []gridAxis)
	add = func(order []gridAxis) {
		if len(order) == len(gridAxes) {
			out = append(out, [4]gridAxis(order))
			return
		}
		for axis := axisPP; axis <= axisDCP; axis++ {
			if !slices.Contains(order, axis) {
				add(append(slices.Clone(order), axis))
			}
		}
	}
	add(nil)
	return out
}

// placeText is a rank's place as the file writes it, without the axes of one
// place.
func placeText(s shard.Spec, p shard.Place) string {
	var out []string
	for _, axis := range []struct {
		name        string
		size, place int
	}{{"pp", len(s.Stages), p.PP}, {"tp", s.TP, p.TP}, {"dcp", s.DCPSize, p.DCP}} {
		if axis.size > 1 || axis.place > 0 {
			out = append(out, fmt.Sprintf("%s: %d", axis.name, axis.place))
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// placed is such a text in an error, which quotes other strings.
type placed string
