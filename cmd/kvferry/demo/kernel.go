package demo

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/measure"
)

// kernel is how an engine of the demo writes and reads its cache: with the
// functions that the model itself uses.
type kernel struct {
	cache *tinyllm.Cache
	side  *plan.Side
}

// Write writes a block: zeros, and then the rows that have an element of set.
func (k *kernel) Write(ctx context.Context, rank, group int, block uint32, set []measure.Set) error {
	e := &k.side.Ranks[rank][group].Extent
	at := tinyllm.Row{Group: group, Rank: rank, Block: block}
	for ci, c := range e.Components {
		zero := make([]float32, c.Dim)
		at.Component = ci
		for at.Layer = range e.Layers {
			for at.Token = range e.Tokens {
				for at.Head = range max(e.Heads[ci], 1) {
					k.cache.Store(at, zero)
				}
			}
		}
	}
	rows := map[tinyllm.Row][]float32{}
	for _, s := range set {
		at := rowOf(at, s.Element)
		if rows[at] == nil {
			rows[at] = make([]float32, e.Components[at.Component].Dim)
		}
		rows[at][s.Dim] = tinyllm.FromBits(e.Components[at.Component].DType, s.Bits)
	}
	for at, row := range rows {
		k.cache.Store(at, row)
	}
	return ctx.Err()
}

// Read fills in the bits of elements of a block.
func (k *kernel) Read(ctx context.Context, rank, group int, block uint32, get []measure.Set) error {
	e := &k.side.Ranks[rank][group].Extent
	for i, s := range get {
		at := rowOf(tinyllm.Row{Group: group, Rank: rank, Block: block}, s.Element)
		row := make([]float32, e.Components[at.Component].Dim)
		k.cache.Load(at, row)
		get[i].Bits = tinyllm.Bits(e.Components[at.Component].DType, row[s.Dim])
	}
	return ctx.Err()
}

// rowOf is the row in which an element of a block lies.
func rowOf(at tinyllm.Row, e measure.Element) tinyllm.Row {
	at.Component, at.Layer, at.Token, at.Head = e.Component, e.Layer, int(e.Token), int(e.Head)
	return at
}

// otherwise is a side whose first group lies in another order than was
// declared, in the same memory: head and token transposed, or what else makes a
// difference on its ranks.
func otherwise(s plan.Side, spec layout.Spec) (plan.Side, error) {
	orders := [][]layout.Entry{
		swapped(spec.Order, [2]geometry.Axis{geometry.Head, geometry.Token}),
		swapped(spec.Order, [2]geometry.Axis{geometry.Token, geometry.Dim}),
	}
	if i := slices.IndexFunc(spec.Order, func(e layout.Entry) bool { return e.Component }); i > 0 {
		apart := slices.Clone(spec.Order)
		apart[i-1], apart[i] = apart[i], apart[i-1]
		orders = append(orders, apart)
	}
	for _, order := range orders {
		out := s
		out.Ranks = slices.Clone(s.Ranks)
		differs := false
		var err error
		for r, layouts := range s.Ranks {
			if layouts[0] == nil {
				continue
			}
			var l *layout.Layout
			if l, err = (layout.Spec{Order: order}).Resolve(layouts[0].Extent); err != nil {
				break
			}
			differs = differs || !l.Equal(layouts[0])
			out.Ranks[r] = slices.Clone(layouts)
			out.Ranks[r][0] = l
		}
		if err == nil && differs {
			return out, nil
		}
	}
	return plan.Side{}, fmt.Errorf("demo: no kernel of engine %s could write otherwise than %s", s.Engine, spec.Text())
}

// swapped is an order with two axes in each other's place.
func swapped(order []layout.Entry, axes [2]geometry.Axis) []layout.Entry {
	out := slices.Clone(order)
	for i, e := range out {
		switch {
		case e.Branch != nil:
			below := map[string][]layout.Entry{}
			for key, order := range e.Branch {
				below[key] = swapped(order, axes)
			}
			out[i].Branch = below
		case e.Item.Axis == axes[0]:
			out[i].Item.Axis = axes[1]
		case e.Item.Axis == axes[1]:
			out[i].Item.Axis = axes[0]
		}
	}
	return out
}

// disagrees is the refusal of an engine whose kernel does not do what was
// declared.
func disagrees(e *measure.Disagreement, err error) *refusal.Refusal {
	place := func(region string, bit int64) string {
		if bit < 0 {
			return "nowhere"
		}
		return fmt.Sprintf("byte %d of %s", bit/8, region)
	}
	what := fmt.Sprintf("rank %d component %s layer %d block %d token %d head %d dim %d", e.Rank, e.Component, e.Layer, e.Element.Block, e.Element.Token, e.Element.Head, e.Element.Dim)
	return &refusal.Refusal{Kind: "kernel", Fault: string(blame.Of(err)), Message: err.Error(), Fields: []geometry.Difference{
		{Field: "declared place of " + what, Source: place(e.DeclaredRegion, e.DeclaredBit)},
		{Field: "measured place of " + what, Source: place(e.MeasuredRegion, e.MeasuredBit)},
	}}
}
