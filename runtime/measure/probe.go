package measure

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// A probe transfer shows what two declarations that are each right cannot: that
// what one engine's kernel writes is what the other's kernel reads, through the
// plan and the provider between them. Its values depend on canonical
// coordinates, so that both sides know them.

// picks are the numbers below n at which a probe looks: the first two, one in
// the middle and the last.
func picks(n int64) []int64 {
	out := []int64{0, 1, n / 2, n - 1}
	out = slices.DeleteFunc(out, func(x int64) bool { return x < 0 || x >= n })
	slices.Sort(out)
	return slices.Compact(out)
}

// groupKey stands for a group in canonical coordinates: its name, since the two
// sides may count their groups differently.
func groupKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return int64(h.Sum64() >> 1)
}

// Probe returns the elements of a probe of tokens [0, n) that a rank holds of a
// group, by block, with the bits that they are to have in a pass. tables are the scratch
// blocks of every group, as stamp.Held wants them.
//
// Errors: *stamp.Error.
// Preconditions: the side is valid.
func Probe(side *plan.Side, rank, group int, tables [][]uint32, n int64, pass int) (map[uint32][]Set, error) {
	held, first, err := stamp.Held(side, tables, n)
	if err != nil {
		return nil, err
	}
	g, part := &side.Model.Groups[group], side.Part(group, rank)
	block := int64(side.Groups[group].Block)
	out := map[uint32][]Set{}
	for ci, c := range g.Components {
		heads := part.Heads[ci]
		if c.Heads == 0 {
			heads = []int{0}
		}
		e := int64(c.EntryTokens())
		lo, hi := c.Entries(0, n)
		if g.State {
			lo, hi = 0, 1
		}
		for _, x := range picks(hi - lo) {
			entry := lo + x
			at, place := int64(0), int64(0)
			if !g.State {
				u, ok := part.Local(entry * e)
				if !ok {
					continue
				}
				if at = u/block - first[group]; at < 0 || at >= int64(len(held[group])) {
					continue // out of the window
				}
				place = u % block / e
			}
			id := held[group][at]
			for li, layer := range part.Layers {
				for hi, head := range heads {
					for _, d := range picks(int64(c.Dim)) {
						canonical := layout.Element{Component: ci, Layer: layer, Block: groupKey(g.Name), Token: entry, Head: int64(head), Dim: d}
						out[id] = append(out[id], Set{
							Element: layout.Element{Component: ci, Layer: li, Block: int64(id), Token: place, Head: int64(hi), Dim: d},
							Bits:    Bits(c.DType, canonical, pass),
						})
					}
				}
			}
		}
	}
	return out, nil
}

// Mismatch is an element that the destination's kernel reads otherwise than the
// source's kernel wrote it.
type Mismatch struct {
	Rank      int // of the destination
	Group     string
	Component string
	Layer     int // the model's
	Block     uint32
	Token     int64 // entry in the block
	Head      int64 // place on the rank
	Dim       int64
	DType     geometry.DType
	Want, Got uint64 // bits
	Wrong, Of int    // elements of the block
}

func (e *Mismatch) Error() string {
	of := ""
	if e.Group != "" {
		of = fmt.Sprintf("group %q ", e.Group)
	}
	return fmt.Sprintf("probe: rank %d: %scomponent %s layer %d block %d token %d head %d dim %d reads %#x (%s), the source's kernel wrote %#x; %d of %d elements of the block are wrong",
		e.Rank, of, e.Component, e.Layer, e.Block, e.Token, e.Head, e.Dim, e.Got, e.DType, e.Want, e.Wrong, e.Of)
}

// Compare returns a *Mismatch where what was read of one block is not what the
// probe wrote.
func Compare(side *plan.Side, rank, group int, block uint32, want, got []Set) error {
	g := &side.Model.Groups[group]
	var out *Mismatch
	wrong := 0
	for i, w := range want {
		if got[i].Bits == w.Bits {
			continue
		}
		if wrong++; out == nil {
			out = &Mismatch{Rank: rank, Group: g.Name, Component: g.Components[w.Component].Name, Layer: side.Ranks[rank][group].Extent.Layers[w.Layer], Block: block,
				Token: w.Token, Head: w.Head, Dim: w.Dim, DType: g.Components[w.Component].DType, Want: w.Bits, Got: got[i].Bits, Of: len(want)}
		}
	}
	if out == nil {
		return nil
	}
	out.Wrong = wrong
	return out
}
