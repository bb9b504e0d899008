package matrix_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/memory/digest"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy"
)

// engineOf is one side of a row.
type engineOf struct {
	name           string
	tp, block      int
	stages, layout string
	dealing        dealing
	lacks          string // an optional group
	ring           bool   // the shape's ring is on this side
	shuffled       bool   // its ranks stand anywhere
	kernel         bool   // blocks are made of smaller ones where they can be
}

// ends are both sides of a row.
func (c choice) ends(rng *rand.Rand) (source, destination engineOf) {
	source = engineOf{name: "prefill", tp: levels.tps[c[inSourceTP]], stages: levels.stages[c[inSourceStages]], block: levels.blocks[c[inSourceBlock]],
		layout: kindsOfLayout[c[inSourceLayout]], dealing: levels.dealings[c[inSourceDCP]], lacks: c.shape().sourceLacks}
	destination = engineOf{name: "decode", tp: levels.tps[c[inDestinationTP]], stages: levels.stages[c[inDestinationStages]], block: levels.blocks[c[inDestinationBlock]],
		layout: kindsOfLayout[c[inDestinationLayout]], dealing: levels.dealings[c[inDestinationDCP]], lacks: c.shape().destinationLacks}
	if rng.IntN(2) == 0 {
		source.ring = true
	} else {
		destination.ring = true
	}
	source.kernel, destination.kernel = rng.IntN(3) == 0, rng.IntN(3) == 0
	source.shuffled, destination.shuffled = rng.IntN(5) == 0, rng.IntN(5) == 0
	return source, destination
}

// kernelBlock is of how many tokens the kernel blocks are that a block is made
// of, 0 where it is one.
func (e engineOf) kernelBlock(block int) int64 {
	if e.kernel && block > 16 && block%16 == 0 {
		return 16
	}
	return 0
}

// side makes the engine as it lies in memory, with pools for a request of so
// many tokens.
func (c choice) side(e engineOf, tokens int64, rng *rand.Rand) (plan.Side, error) {
	s := c.shape()
	order, err := shard.Order(nil)
	if err != nil {
		return plan.Side{}, err
	}
	stages := map[string][]int{"1": {s.layers}, "2": {2, s.layers - 2}, "uneven": {1, s.layers - 1}}[e.stages]
	out := plan.Side{Engine: e.name, Model: geometry.Model{Name: "cover", Layers: s.layers, Groups: s.groups(c.quantisation())},
		Shard: shard.Spec{TP: e.tp, Stages: stages, DCPSize: e.dealing.size, Interleave: e.dealing.interleave, Order: order}}
	if e.shuffled {
		var places []shard.Place
		for _, r := range rng.Perm(out.Shard.Ranks()) {
			places = append(places, out.Shard.Place(r))
		}
		out.Shard.Places = places
	}
	if e.lacks != "" {
		var has []int
		for g := range out.Model.Groups {
			if out.Model.Groups[g].Name != e.lacks {
				has = append(has, g)
			}
		}
		out.Model = out.Model.Select(has)
	}
	out.Ranks = make([][]*layout.Layout, out.Shard.Ranks())
	for gi := range out.Model.Groups {
		g := &out.Model.Groups[gi]
		pool := plan.Pool{Block: e.block}
		if f := s.blocks[g.Name]; f != nil {
			pool.Block = f(e.block)
		}
		spec := lie(e.layout, g, c.quantisation())
		switch {
		case g.State:
			pool.Block = 1
			if e.dealing.size > 1 { // a state has no tokens to deal: all ranks take channels
				pool.Shard = &shard.Spec{TP: e.tp * e.dealing.size, Stages: stages, DCPSize: 1, Interleave: 1, Order: order}
			}
		default:
			spec.Kernel = e.kernelBlock(pool.Block)
		}
		out.Groups = append(out.Groups, pool)
		need := entries(&out, gi, tokens)
		out.Groups[gi].Blocks = need + rng.IntN(3)
		if e.ring && g.Name == s.ring && s.ring != "" {
			out.Groups[gi].Ring = need - spare(&out, gi, tokens)
		}
		known := map[string]*layout.Layout{}
		for r := range out.Ranks {
			part := out.Part(gi, r)
			if len(part.Layers) == 0 {
				out.Ranks[r] = append(out.Ranks[r], nil)
				continue
			}
			x := part.Extent(*g, pool.Block, out.Groups[gi].Blocks)
			key := fmt.Sprint(x.Layers, x.Heads)
			if known[key] == nil {
				if known[key], err = spec.Resolve(x); err != nil {
					return out, fmt.Errorf("lay out group %q of rank %d of %s: %w", g.Name, r, e.name, err)
				}
			}
			out.Ranks[r] = append(out.Ranks[r], known[key])
		}
	}
	return out, nil
}

// move plans, proves and moves a row, and compares everything. It returns what
// the row has beside its choices, or nothing where it is refused for what they
// say it may be.
func (c choice) move(p *policy.Policy, seed uint64) (traits []string, err error) {
	rng := rand.New(rand.NewPCG(seed, 0x636f))
	end := 2*rng.Int64N(30) + 51
	from, to := c.ends(rng)
	source, err := c.side(from, end, rng)
	if err != nil {
		return nil, err
	}
	destination, err := c.side(to, end, rng)
	if err != nil {
		return nil, err
	}
	pair, common, err := plan.Join(source, destination)
	if err != nil {
		return nil, err
	}
	if err := c.joined(pair, common); err != nil {
		return nil, err
	}
	q := c.request(pair, end, rng)
	w, err := joinedWorld(pair, &source, &destination, q, seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.narrow(pair); err != nil {
		return nil, err
	}
	proven, err := prove(p, pair)
	if err == nil {
		err = w.through("loop", proven)
	}
	// Where rows lie in one piece nothing comes apart, and nothing may be refused.
	// Where they do not it depends, and what cannot be copied must be.
	must, may := w.torn(), mayPart(from.layout, pair.Source.Model.Groups) || mayPart(to.layout, pair.Destination.Model.Groups)
	var unaligned *build.Unaligned
	switch {
	case errors.As(err, &unaligned) && may:
		return nil, nil
	case err != nil:
		return nil, err
	case must:
		return nil, errors.New("elements that share a byte at the destination come from several bytes, and nobody refused")
	}
	if err := w.digests(proven, seed); err != nil {
		return nil, err
	}
	if err := w.through("shm", proven); err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	traits = w.traits()
	if from.kernelBlock(from.block)+to.kernelBlock(to.block) > 0 {
		traits = append(traits, "kernel blocks")
	}
	return traits, w.digests(proven, seed)
}

// coverTraits are what rows have by chance, each in some.
var coverTraits = []string{"a prefix is there already", "the end is not moved", "some layers", "push", "pull", "a table leaves entries out", "a ring has gone round", "a state moves", "a state does not", "kernel blocks", "ranks in an order of their own",
	"a group has a shard of its own", "an engine has a group more", "layers share a cache", "a compressed entry is not complete", "scales of several tokens, the last of fewer"}

func (w *world) traits() []string {
	out := []string{"pull"}
	if w.q.write {
		out[0] = "push"
	}
	add := func(ok bool, name string) {
		if ok && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	add(w.q.from > 0, "a prefix is there already")
	add(w.q.to < w.q.end, "the end is not moved")
	add(w.q.layers != plan.Range{}, "some layers")
	for g, group := range w.n.model.Groups {
		add(group.State && !w.q.spans[g].Empty(), "a state moves")
		add(group.State && w.q.spans[g].Empty(), "a state does not")
		add(len(group.Shared) > 0, "layers share a cache")
		for _, c := range group.Components {
			part := w.q.to%int64(c.EntryTokens()) > 0
			add(part && c.Scales == "", "a compressed entry is not complete")
			add(part && c.Scales != "", "scales of several tokens, the last of fewer")
		}
		for _, c := range []*cache{w.source, w.destination} {
			ring := c.side.Groups[g].Ring > 0
			add(c.gone[g] > 0 && !ring, "a table leaves entries out")
			add(c.gone[g] > 0 && ring, "a ring has gone round")
			add(c.side.Shard.Places != nil, "ranks in an order of their own")
			add(c.side.Groups[g].Shard != nil, "a group has a shard of its own")
			add(len(c.engine.Groups) > len(c.side.Groups), "an engine has a group more")
		}
	}
	return out
}

// joined checks what Join says of groups that one engine lacks.
func (c choice) joined(pair *plan.Pair, common plan.Common) error {
	var absent, skipped []string
	if name := c.shape().sourceLacks; name != "" {
		absent = []string{name}
	}
	if name := c.shape().destinationLacks; name != "" {
		skipped = []string{name}
	}
	if !slices.Equal(common.Absent, absent) || !slices.Equal(common.Skipped, skipped) {
		return fmt.Errorf("groups absent %v and skipped %v, want %v and %v", common.Absent, common.Skipped, absent, skipped)
	}
	for g := range pair.Source.Groups {
		if a, b := pair.Source.Model.Groups[g].Name, pair.Destination.Model.Groups[g].Name; a != b {
			return fmt.Errorf("group %d of the pair is %q at the source and %q at the destination", g, a, b)
		}
	}
	return nil
}

// request is what a row moves of a request of end tokens: a suffix behind some
// prefix mostly, and sometimes not up to the end, nor all layers.
func (c choice) request(pair *plan.Pair, end int64, rng *rand.Rand) request {
	q := request{to: end, end: end, write: rng.IntN(2) == 0}
	share := shared(pair.Source.Model)
	if rng.IntN(4) > 0 {
		q.from = rng.Int64N(end) / share * share
	}
	if rng.IntN(4) == 0 {
		if to := (q.from + rng.Int64N(end-q.from)) / share * share; to > q.from {
			q.to = to
		}
	}
	if n := c.shape().layers; rng.IntN(6) == 0 {
		q.layers.From = rng.IntN(n)
		q.layers.To = q.layers.From + 1 + rng.IntN(n-q.layers.From)
	}
	return q
}

// narrow finds out what the request moves of each group, by looking at what
// both sides hold, and holds stamp.Spans against it.
func (w *world) narrow(pair *plan.Pair) error {
	q := &w.q
	q.spans = make([]stamp.Span, len(w.n.model.Groups))
	for g := range q.spans {
		group := &w.n.model.Groups[g]
		if group.State {
			if q.to == q.end {
				q.spans[g] = stamp.Span{To: 1}
			}
			continue
		}
		from := q.from
		for _, c := range []*cache{w.source, w.destination} {
			have := held(c.side, g, c.gone[g], q.end)
			if have > max(0, q.end-int64(group.Window)) && c.gone[g] > 0 {
				return fmt.Errorf("%s holds group %d from token %d on: the window of %d is not covered", c.side.Engine, g, have, group.Window)
			}
			from = max(from, have)
		}
		if from < q.to {
			q.spans[g] = stamp.Span{From: from, To: q.to}
		}
	}
	got, err := stamp.Spans(pair, q.from, q.to, q.end, w.source.first, w.destination.first)
	if err != nil {
		return err
	}
	for g, want := range q.spans {
		if got[g] != want && !(got[g].Empty() && want.Empty()) {
			return fmt.Errorf("tokens %d to %d of %d move [%d, %d) of group %q, want [%d, %d)", q.from, q.to-1, q.end, got[g].From, got[g].To, w.n.model.Groups[g].Name, want.From, want.To)
		}
	}
	q.spans = got
	return nil
}

// torn reports whether two elements that share a byte at the destination share
// none, or in the other order, on any source rank: no copy of bytes can bring
// them.
func (w *world) torn() bool {
	type byteOf struct{ low, high int64 }
	together := func(c *cache, f func(byteOf)) {
		for r := range c.places {
			low := map[[3]int64]int64{}
			for i := range c.places[r] {
				if p := &c.places[r][i]; p.bits == 4 && p.bit%8 == 0 {
					low[[3]int64{int64(p.group), int64(p.region), p.bit}] = p.id
				}
			}
			for i := range c.places[r] {
				if p := &c.places[r][i]; p.bits == 4 && p.bit%8 == 4 {
					if id, ok := low[[3]int64{int64(p.group), int64(p.region), p.bit - 4}]; ok {
						f(byteOf{id, p.id})
					}
				}
			}
		}
	}
	if !halves(w.n.model) {
		return false
	}
	have, held, torn := map[byteOf]bool{}, map[int64]bool{}, false
	together(w.source, func(h byteOf) { have[h], held[h.low], held[h.high] = true, true, true })
	together(w.destination, func(h byteOf) { torn = torn || held[h.low] && held[h.high] && !have[h] })
	return torn
}

// digests compares the digests of both ends of every edge, and that of an end
// of which one bit is wrong.
func (w *world) digests(proven proof.Proven, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0x6469))
	var key digest.Key
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	h := digest.New(key)
	layers := w.moved().layers
	source, destination := w.source.memory(), w.destination.memory()
	of := func(c *cache, memory [][][][]byte, e plan.Edge) ([]uint64, error) {
		rank := e.Destination
		if c == w.source {
			rank = e.Source
		}
		return h.Part(&digest.Part{Pair: proven.Pair(), Assignments: proven.Plan().Assignments, OfSource: c == w.source, Source: e.Source, Destination: e.Destination,
			Group: e.Group, Component: -1, Layers: layers, Heads: plan.Range{To: geometry.MaxHeads}, From: w.q.spans[e.Group].From, To: w.q.spans[e.Group].To,
			Regions: memory[rank][c.side.OwnGroup(e.Group)], Table: c.tables[e.Group], First: c.first[e.Group]}, 1)
	}
	all := func() (found int, err error) {
		for _, e := range proven.Plan().Edges {
			a, err := of(w.source, source, e)
			if err != nil {
				return 0, err
			}
			b, err := of(w.destination, destination, e)
			if err != nil {
				return 0, err
			}
			if !slices.Equal(a, b) {
				found++
			}
		}
		return found, nil
	}
	if n, err := all(); err != nil || n > 0 {
		return errors.Join(fmt.Errorf("the digests of %d edges differ", n), err)
	}
	b := w.moved()
	for r := range w.destination.places {
		for i := range w.destination.places[r] {
			p := &w.destination.places[r][(i+int(seed)*7919)%len(w.destination.places[r])]
			if !b.holds(p, &w.n.model.Groups[p.group]) {
				continue
			}
			at := &destination[r][p.own][p.region][p.bit/8]
			*at ^= 1 << (p.bit % 8)
			n, err := all()
			*at ^= 1 << (p.bit % 8)
			if err == nil && n == 0 {
				err = fmt.Errorf("%s is wrong on destination rank %d, and the digests are equal", w.n.coord(p.id), r)
			}
			return err
		}
	}
	return nil
}
