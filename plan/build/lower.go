package build

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// end is one end of an edge.
type end struct {
	layout *layout.Layout
	form   *form
	part   *shard.Part
}

// row is a head that both ranks hold, with its places.
type row struct {
	head                int
	source, destination int64
}

// lowering lowers the assignments of one edge.
type lowering struct {
	b                   *builder
	edge                plan.Edge
	index               int // of the edge
	group               *geometry.Group
	source, destination end
	classes             []geometry.Class
	rows                [][]row // by class, in the destination's order; nil until needed

	a     *plan.Assignment
	mask  uint64        // the components of the assignment in one class
	heads []progression // of these
}

// run lowers what the assignment says of one class of components.
func (l *lowering) run(class int) error {
	pieces, err := l.b.piecesOf(l.edge.Group, &l.classes[class], l.source.part, l.destination.part, l.a.Tokens)
	if err != nil {
		return err
	}
	if pieces.from == pieces.to {
		return nil
	}
	if err := l.common(class); err != nil {
		return err
	}
	if len(l.heads) == 0 {
		return nil
	}
	sl, dl := l.source.part.Layers, l.destination.part.Layers
	di, _ := slices.BinarySearch(dl, l.a.Layers.From)
	last, lastSource := -1, -1 // indices of the layer lowered before
	var made span              // its runs
	for ; di < len(dl) && dl[di] < l.a.Layers.To; di++ {
		si, ok := slices.BinarySearch(sl, dl[di])
		if !ok {
			continue
		}
		from := len(l.b.out.Runs)
		if last >= 0 && l.source.alike(lastSource, si) && l.destination.alike(last, di) {
			err = l.repeat(made, lastSource, last, si, di)
		} else {
			err = l.layer(si, di, pieces)
		}
		if err != nil {
			return err
		}
		last, lastSource, made = di, si, span{from, len(l.b.out.Runs)}
	}
	return nil
}

// common fills in the heads of the assignment that both ranks hold of a class:
// sequences of places that are consecutive on both sides.
func (l *lowering) common(class int) error {
	l.heads = l.b.heads[:0]
	defer func() { l.b.heads = l.heads }()
	if l.classes[class].Heads == 0 {
		l.heads = append(l.heads, progression{0, 1, 0, 1, 1})
		return nil
	}
	if l.rows[class] == nil {
		if err := l.match(class); err != nil {
			return err
		}
	}
	rows := l.rows[class]
	if err := l.b.step(1 + len(rows)/16); err != nil { // cheap ones
		return err
	}
	for _, r := range rows {
		if r.head < l.a.Heads.From || r.head >= l.a.Heads.To {
			continue
		}
		if n := len(l.heads); n > 0 {
			if p := &l.heads[n-1]; r.source == p.source+p.n && r.destination == p.destination+p.n {
				p.n++
				continue
			}
		}
		l.heads = append(l.heads, progression{r.source, 1, r.destination, 1, 1})
	}
	return nil
}

// match finds the heads of a class that both ranks hold.
func (l *lowering) match(class int) error {
	first := bits.TrailingZeros64(l.classes[class].Components)
	sh, dh := l.source.part.Heads[first], l.destination.part.Heads[first]
	if err := l.b.step(1 + (len(sh)+len(dh))/16); err != nil {
		return err
	}
	if n := l.classes[class].Heads; len(l.b.places) < n {
		l.b.places = make([]int32, n)
	}
	for i, h := range sh {
		l.b.places[h] = int32(i) + 1
	}
	rows := make([]row, 0, min(len(sh), len(dh)))
	for i, h := range dh {
		if s := l.b.places[h]; s > 0 {
			rows = append(rows, row{h, int64(s) - 1, int64(i)})
		}
	}
	l.rows[class] = rows
	for _, h := range sh {
		l.b.places[h] = 0
	}
	return nil
}

// alike reports whether layer j lies as layer i does, but for one shift of all
// its regions and one, of whole bytes, of all its offsets.
func (e *end) alike(i, j int) bool {
	first := e.layout.Places[0]
	regions, bits := first[j].Region-first[i].Region, first[j].Offset-first[i].Offset
	for _, places := range e.layout.Places {
		a, b := &places[i], &places[j]
		if a.Map != b.Map || b.Offset-a.Offset != bits || b.Region-a.Region != regions {
			return false
		}
	}
	return bits%8 == 0
}

// repeat copies the runs of a layer, made from places s0 and d0, for the alike
// layer at s1 and d1.
func (l *lowering) repeat(made span, s0, d0, s1, d1 int) error {
	b := l.b
	if err := b.spend(made.to-made.from, (made.to-made.from)*runBytes); err != nil {
		return err
	}
	s, d := l.source.layout.Places[0], l.destination.layout.Places[0]
	n := len(b.out.Runs)
	if n+made.to-made.from > cap(b.out.Runs) {
		l.reserve(made.to - made.from)
	}
	b.out.Runs = append(b.out.Runs, b.out.Runs[made.from:made.to]...)
	number := l.destination.part.Layers[d1]
	sourceRegion, destinationRegion := s[s1].Region-s[s0].Region, d[d1].Region-d[d0].Region
	source, destination := (s[s1].Offset-s[s0].Offset)/8, (d[d1].Offset-d[d0].Offset)/8
	for i := n; i < len(b.out.Runs); i++ {
		r := &b.out.Runs[i]
		r.Layer = number
		r.SourceRegion += sourceRegion
		r.DestinationRegion += destinationRegion
		r.SourceOffset += source
		r.DestinationOffset += destination
	}
	return nil
}

// runBytes is what a run takes in a plan and beside it, without its loops,
// which alike layers share.
const runBytes = 160

// loopBytes is what a loop takes.
const loopBytes = 24

// reserve makes room for the runs that the assignments not yet lowered will
// want if all layers and assignments take n, within the budget: the plan's
// largest part is then allocated once.
func (l *lowering) reserve(n int) {
	b := l.b
	left := len(b.out.Assignments) * len(l.destination.part.Layers)
	room := min(b.budget.Runs-len(b.out.Runs), (b.budget.Bytes-b.bytes)/runBytes+n, 1024)
	b.out.Runs = slices.Grow(b.out.Runs, max(n, min(room, n*min(left, room))))
}

// wide is a run while its sizes are still bits.
type wide struct {
	component           int
	source, destination int64 // bits
	bits                int64 // contiguous on both sides
	loops               []bitLoop
}

// layer lowers all components and pieces of one layer.
func (l *lowering) layer(si, di int, pieces span) error {
	for i := pieces.from; i < pieces.to; i++ {
		if err := l.piece(si, di, i); err != nil {
			return err
		}
	}
	return nil
}

// piece lowers all components of one layer and piece.
func (l *lowering) piece(si, di, index int) error {
	b := l.b
	q := &b.out.Pieces[index]
	tokens := progression{q.SourceToken, q.SourceStep, q.DestinationToken, q.DestinationStep, q.Count}
	b.wide, b.loops = b.wide[:0], b.loops[:0]
	for ci := range l.group.Components {
		if l.mask>>ci&1 == 0 {
			continue
		}
		c := &l.group.Components[ci]
		sp, dp := l.source.layout.Places[ci][si], l.destination.layout.Places[ci][di]
		key := foldKey{source: l.source.form, destination: l.destination.form, sourceMap: sp.Map, destinationMap: dp.Map}
		heads, err := l.foldHeads(key)
		if err != nil {
			return err
		}
		key.axis, key.p = geometry.Token, tokens
		tokens, err := b.folded(key)
		if err != nil {
			return err
		}
		key.axis, key.p = geometry.Dim, progression{0, 1, 0, 1, int64(c.Dim)}
		dims, err := b.folded(key)
		if err != nil {
			return err
		}
		// Each may be as long as the budget of runs, so their product fits.
		n := len(heads) * len(tokens) * len(dims)
		if limit := b.budget.Runs - len(b.out.Runs); n > limit || len(b.wide)+n > 2*limit {
			return &plan.TooLarge{What: "runs", Need: len(b.out.Runs) + n, Limit: b.budget.Runs}
		}
		if err := b.step(n); err != nil {
			return err
		}
		for i := range heads {
			for j := range tokens {
				for k := range dims {
					h, t, d := &heads[i], &tokens[j], &dims[k]
					from := len(b.loops)
					b.loops = append(append(append(b.loops, h.loops...), t.loops...), d.loops...)
					w := wide{
						component:   ci,
						source:      sp.Offset + h.source + t.source + d.source,
						destination: dp.Offset + h.destination + t.destination + d.destination,
						bits:        c.DType.Bits(),
						loops:       b.loops[from:len(b.loops):len(b.loops)],
					}
					w.collapse()
					b.wide = append(b.wide, w)
				}
			}
		}
	}
	l.sort(si, di)
	return l.emit(si, di, index)
}

// foldHeads returns the fragments of the assignment's heads.
func (l *lowering) foldHeads(key foldKey) ([]fragment, error) {
	key.axis = geometry.Head
	if len(l.heads) == 1 {
		key.p = l.heads[0]
		return l.b.folded(key)
	}
	var out []fragment
	for _, p := range l.heads {
		key.p = p
		f, err := l.b.folded(key)
		if err != nil {
			return nil, err
		}
		out = append(out, f...)
	}
	return compress(out), nil
}

// sort puts the runs of one layer and piece in the destination's order.
func (l *lowering) sort(si, di int) {
	places := l.destination.layout.Places
	compare := func(x, y wide) int {
		return cmp.Or(cmp.Compare(places[x.component][di].Region, places[y.component][di].Region), cmp.Compare(x.destination, y.destination))
	}
	if !slices.IsSortedFunc(l.b.wide, compare) {
		slices.SortStableFunc(l.b.wide, compare)
	}
}

// emit joins what continues one another and appends the runs to the plan.
func (l *lowering) emit(si, di, piece int) error {
	b := l.b
	n := 0
	for i := range b.wide {
		if n > 0 && l.join(&b.wide[n-1], &b.wide[i], si, di) {
			continue
		}
		b.wide[n] = b.wide[i]
		n++
	}
	for i := range b.wide[:n] {
		w := &b.wide[i]
		if err := b.spend(1, runBytes+len(w.loops)*loopBytes); err != nil {
			return err
		}
		sp, dp := l.source.layout.Places[w.component][si], l.destination.layout.Places[w.component][di]
		r := plan.Run{
			Edge: l.index, Piece: piece, Component: w.component, Layer: l.destination.part.Layers[di],
			SourceRegion: sp.Region, DestinationRegion: dp.Region, SourceMap: sp.Map, DestinationMap: dp.Map,
		}
		if err := l.narrow(w, &r); err != nil {
			return err
		}
		if len(b.out.Runs) == cap(b.out.Runs) {
			l.reserve(n - i)
		}
		b.out.Runs = append(b.out.Runs, r)
	}
	return nil
}

// collapse sorts the loops by descending destination stride, so that the
// destination is written in ascending order; makes the contiguous part as long
// as it gets; and joins loops that continue one another on both sides.
func (w *wide) collapse() {
	for i := 1; i < len(w.loops); i++ { // a handful
		for k := i; k > 0 && w.loops[k-1].destination < w.loops[k].destination; k-- {
			w.loops[k-1], w.loops[k] = w.loops[k], w.loops[k-1]
		}
	}
	for again := true; again; {
		again = false
		for i := len(w.loops) - 1; i >= 0; i-- {
			o := w.loops[i]
			switch {
			case o.source == w.bits && o.destination == w.bits:
				w.bits *= o.count
			case i+1 < len(w.loops) && o.source == w.loops[i+1].source*w.loops[i+1].count && o.destination == w.loops[i+1].destination*w.loops[i+1].count:
				w.loops[i+1].count *= o.count
			default:
				continue
			}
			w.loops = slices.Delete(w.loops, i, i+1)
			again = true
		}
	}
}

// join adds next to w where it continues w's contiguous part on both sides
// under the same loops, in the same blocks.
func (l *lowering) join(w, next *wide, si, di int) bool {
	if w.source+w.bits != next.source || w.destination+w.bits != next.destination || !slices.Equal(w.loops, next.loops) {
		return false
	}
	sp, sn := l.source.layout.Places[w.component][si], l.source.layout.Places[next.component][si]
	dp, dn := l.destination.layout.Places[w.component][di], l.destination.layout.Places[next.component][di]
	if sp.Region != sn.Region || dp.Region != dn.Region ||
		l.source.form.blocks[sp.Map] != l.source.form.blocks[sn.Map] || l.destination.form.blocks[dp.Map] != l.destination.form.blocks[dn.Map] {
		return false
	}
	for _, o := range w.loops { // the longer part must not run into the next iteration
		if o.source < w.bits+next.bits || o.destination < w.bits+next.bits {
			return false
		}
	}
	w.bits += next.bits
	w.collapse() // the loops are w's own
	return true
}

// narrow turns bits to bytes.
func (l *lowering) narrow(w *wide, r *plan.Run) error {
	c := &l.group.Components[w.component]
	if len(w.loops) > plan.MaxLoops {
		return &TooDeep{c.Name, c.DType, r.Layer, l.edge.Source, l.edge.Destination, len(w.loops)}
	}
	for _, v := range [3]int64{w.source, w.destination, w.bits} {
		if v%8 != 0 {
			return &Unaligned{c.Name, c.DType, r.Layer, l.edge.Source, l.edge.Destination, v}
		}
	}
	for _, o := range w.loops {
		if v := cmp.Or(o.source%8, o.destination%8); v != 0 {
			return &Unaligned{c.Name, c.DType, r.Layer, l.edge.Source, l.edge.Destination, v}
		}
	}
	r.SourceOffset, r.DestinationOffset, r.Bytes = w.source/8, w.destination/8, w.bits/8
	if len(w.loops) == 0 {
		return nil
	}
	same := func(p plan.Loop, o bitLoop) bool {
		return p == plan.Loop{Count: o.count, SourceStride: o.source / 8, DestinationStride: o.destination / 8}
	}
	if n := len(l.b.out.Runs); n > 0 && slices.EqualFunc(l.b.out.Runs[n-1].Loops, w.loops, same) {
		r.Loops = l.b.out.Runs[n-1].Loops // runs are not modified: neighbours share
		return nil
	}
	r.Loops = make([]plan.Loop, len(w.loops))
	for i, o := range w.loops {
		r.Loops[i] = plan.Loop{Count: o.count, SourceStride: o.source / 8, DestinationStride: o.destination / 8}
	}
	return nil
}
