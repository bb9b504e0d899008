package build

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
)

// bitLoop is a loop while its strides are still bits.
type bitLoop struct{ count, source, destination int64 }

// fragment is a part of one axis on which both sides advance in the same
// nested loops. Offsets and strides are bits. Fragments are kept and shared:
// their loops are not modified.
type fragment struct {
	source, destination int64
	loops               []bitLoop // outermost first
}

// rung is a digit of an axis: the coordinate adds (x / div) * stride, where x
// is what the rungs above it have left.
type rung struct{ div, stride int64 }

// ladder is one axis under one map, the lowest rung first. An axis of one
// coordinate has none.
type ladder []rung

// form is a layout as the builder reads it.
type form struct {
	maps    [][]layout.Digit // of the layout it was made of
	ladders [][geometry.Dim + 1]ladder
	blocks  []int // by map: equal numbers place blocks alike
}

// form returns the form of a layout of a side (0: source, 1: destination).
// The ranks of a side mostly have equal maps, and then one form.
func (b *builder) form(side int, l *layout.Layout) *form {
	if f, ok := b.forms[l]; ok {
		return f
	}
	f := b.latest[side]
	if f == nil || !slices.EqualFunc(f.maps, l.Maps, slices.Equal[[]layout.Digit]) {
		f = newForm(l)
		b.latest[side] = f
	}
	b.forms[l] = f
	return f
}

func newForm(l *layout.Layout) *form {
	f := &form{maps: l.Maps, ladders: make([][geometry.Dim + 1]ladder, len(l.Maps)), blocks: make([]int, len(l.Maps))}
	for m, digits := range l.Maps {
		for axis := geometry.Block; axis <= geometry.Dim; axis++ {
			f.ladders[m][axis] = newLadder(digits, axis)
		}
		f.blocks[m] = slices.IndexFunc(f.ladders[:m+1], func(o [geometry.Dim + 1]ladder) bool {
			return slices.Equal(o[geometry.Block], f.ladders[m][geometry.Block])
		})
	}
	return f
}

func newLadder(digits []layout.Digit, axis geometry.Axis) ladder {
	var own []layout.Digit
	for _, d := range digits {
		if d.Axis == axis && d.Count() > 1 {
			own = append(own, d)
		}
	}
	slices.SortFunc(own, func(a, b layout.Digit) int { return cmp.Compare(a.Div, b.Div) })
	var out ladder
	for i, d := range own {
		if i > 0 && own[i-1].Count()*own[i-1].Stride == d.Stride {
			own[i].Stride, own[i].Div = own[i-1].Stride, own[i-1].Div // one digit as good as two
			continue
		}
		out = append(out, rung{d.Div, d.Stride})
	}
	return out
}

// walk is a progression of coordinates under a ladder: start + i*step.
type walk struct {
	at          ladder
	base        int64 // bits
	start, step int64
}

// settle takes the rungs off that stand still for the first n coordinates.
func (w *walk) settle(n int64) {
	for k := len(w.at) - 1; k >= 0; k-- {
		r := w.at[k]
		q := w.start / r.div
		if (w.start+(n-1)*w.step)/r.div != q {
			return
		}
		w.base += q * r.stride
		w.start -= q * r.div
		w.at = w.at[:k]
	}
}

// affine says whether the offset advances by one distance, and by which: where
// no rung moves, or the top one alone.
func (w *walk) affine() (int64, bool) {
	if len(w.at) == 0 {
		return 0, true
	}
	top := w.at[len(w.at)-1]
	return w.step / top.div * top.stride, w.step%top.div == 0
}

// offset is the offset of the first coordinate.
func (w *walk) offset() int64 {
	bits, x := w.base, w.start
	for k := len(w.at) - 1; k >= 0; k-- {
		bits += x / w.at[k].div * w.at[k].stride
		x %= w.at[k].div
	}
	return bits
}

// period is the number of steps after which the walk has advanced by a whole
// number of its top rung.
func (w *walk) period() int64 {
	if _, ok := w.affine(); ok {
		return 1
	}
	div := w.at[len(w.at)-1].div
	return div / gcd(div, w.step)
}

// turn is the number of steps, at least one, until the top rung of a walk that
// is not affine moves.
func (w *walk) turn() int64 {
	div := w.at[len(w.at)-1].div
	return (div - w.start%div + w.step - 1) / w.step
}

// fresh is the number of steps until the walk stands behind a move of its top
// rung, 0 where it does.
func (w *walk) fresh() int64 {
	if _, ok := w.affine(); ok || w.start%w.at[len(w.at)-1].div < w.step {
		return 0
	}
	return w.turn()
}

// distance is how far the offset advances in n steps.
// Preconditions: n is a multiple of period.
func (w *walk) distance(n int64) int64 {
	if stride, ok := w.affine(); ok {
		return n * stride
	}
	top := w.at[len(w.at)-1]
	return n * w.step / top.div * top.stride
}

// fold appends the fragments of n coordinates to out, in their order.
func (b *builder) fold(out []fragment, s, d walk, n int64) ([]fragment, error) {
	if err := b.step(1); err != nil {
		return nil, err
	}
	s.settle(n)
	d.settle(n)
	ss, sok := s.affine()
	ds, dok := d.affine()
	if sok && dok {
		f := fragment{source: s.offset(), destination: d.offset()}
		if n > 1 {
			f.loops = []bitLoop{{n, ss, ds}}
		}
		return append(out, f), nil
	}
	// Behind a turn of the rarer one, the pattern of one common period repeats.
	sp, dp := s.period(), d.period()
	period := sp / gcd(sp, dp) * dp
	head := s.fresh()
	if dp > sp {
		head = d.fresh()
	}
	repeats := (n - head) / period
	if repeats < 2 {
		return b.split(out, s, d, n)
	}
	var err error
	from := len(out)
	if out, err = b.split(out, s, d, head); err != nil {
		return nil, err
	}
	s.start += head * s.step
	d.start += head * d.step
	body := len(out)
	if out, err = b.split(out, s, d, period); err != nil {
		return nil, err
	}
	out = append(out[:body], compress(out[body:])...)
	outer := bitLoop{repeats, s.distance(period), d.distance(period)}
	for i := range out[body:] {
		f := &out[body+i]
		f.loops = append([]bitLoop{outer}, f.loops...)
	}
	s.start += repeats * period * s.step
	d.start += repeats * period * d.step
	if out, err = b.split(out, s, d, n-head-repeats*period); err != nil {
		return nil, err
	}
	return append(out[:from], compress(out[from:])...), nil
}

// split folds n coordinates from turn to turn: between two turns a rung less
// moves, so that this ends.
func (b *builder) split(out []fragment, s, d walk, n int64) ([]fragment, error) {
	for n > 0 {
		k := n
		if _, ok := s.affine(); !ok {
			k = min(k, s.turn())
		}
		if _, ok := d.affine(); !ok {
			k = min(k, d.turn())
		}
		var err error
		if out, err = b.fold(out, s, d, k); err != nil {
			return nil, err
		}
		if len(out) > b.budget.Runs {
			return nil, &plan.TooLarge{What: "runs", Need: len(out), Limit: b.budget.Runs}
		}
		s.start += k * s.step
		d.start += k * d.step
		n -= k
	}
	return out, nil
}

// compress joins consecutive fragments with equal loops and constant positive
// distances into one with a loop more, until nothing joins. It may reuse in.
func compress(in []fragment) []fragment {
	for {
		out := in[:0]
		for i := 0; i < len(in); {
			f := in[i]
			j := i + 1
			if j < len(in) {
				ds, dd := in[j].source-f.source, in[j].destination-f.destination
				for last := f; ds > 0 && dd > 0 && j < len(in) && in[j].source-last.source == ds && in[j].destination-last.destination == dd && slices.Equal(in[j].loops, f.loops); j++ {
					last = in[j]
				}
				if j > i+1 {
					f.loops = append([]bitLoop{{int64(j - i), ds, dd}}, f.loops...)
				}
			}
			out = append(out, f)
			i = j
		}
		if len(out) == len(in) {
			return out
		}
		in = out
	}
}

// progression is n coordinates at constant distances on both sides.
type progression struct{ source, sourceStep, destination, destinationStep, n int64 }

// foldKey names a progression of one axis under two maps.
type foldKey struct {
	source, destination       *form
	sourceMap, destinationMap int
	axis                      geometry.Axis
	p                         progression
}

// folded is fold of a progression, kept.
func (b *builder) folded(key foldKey) ([]fragment, error) {
	if f, ok := b.folds[key]; ok {
		return f, nil
	}
	p := &key.p
	s := walk{at: key.source.ladders[key.sourceMap][key.axis], start: p.source, step: p.sourceStep}
	d := walk{at: key.destination.ladders[key.destinationMap][key.axis], start: p.destination, step: p.destinationStep}
	f, err := b.fold(nil, s, d, p.n)
	if err != nil {
		return nil, err
	}
	b.folds[key] = f
	return f, nil
}
