package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Element names one element of a rank: indices into the extent's Components
// and Layers, and the coordinates on the rank.
type Element struct {
	Component, Layer        int
	Block, Token, Head, Dim int64
}

// String gives the element in words.
func (el Element) String() string {
	return fmt.Sprintf("component %d layer index %d block %d token %d head %d dim %d", el.Component, el.Layer, el.Block, el.Token, el.Head, el.Dim)
}

func (el Element) on(axis geometry.Axis) int64 {
	switch axis {
	case geometry.Block:
		return el.Block
	case geometry.Token:
		return el.Token
	case geometry.Head:
		return el.Head
	}
	return el.Dim
}

func (el *Element) set(axis geometry.Axis, x int64) {
	switch axis {
	case geometry.Block:
		el.Block = x
	case geometry.Token:
		el.Token = x
	case geometry.Head:
		el.Head = x
	default:
		el.Dim = x
	}
}

// Sample is an observation: the element was found at this place.
type Sample struct {
	Element
	Region int   // index into the regions
	Bit    int64 // of the element's first bit in the region: 8 times the byte offset
}

// String gives the sample in words.
func (s Sample) String() string {
	if s.Bit%8 == 0 {
		return fmt.Sprintf("%s at byte %d of region %d", s.Element, s.Bit/8, s.Region)
	}
	return fmt.Sprintf("%s at bit %d of region %d", s.Element, s.Bit, s.Region)
}

// MaxSamples bounds what Infer takes.
const MaxSamples = 1 << 22

// Contradiction is two samples that no layout explains together.
type Contradiction struct {
	A, B   Sample // A was given first
	Reason string
}

func (e *Contradiction) Error() string {
	return fmt.Sprintf("layout: no layout explains both %s and %s: %s", e.A, e.B, e.Reason)
}

// Ambiguous is a set of samples that more than one layout explains.
type Ambiguous struct {
	Component string
	Layer     int           // the model's layer number
	Axis      geometry.Axis // 0: the place as a whole
	Missing   Element       // a sample that would help
	Reason    string
}

func (e *Ambiguous) Error() string {
	what := "the place"
	if e.Axis != 0 {
		what = "axis " + e.Axis.String()
	}
	return fmt.Sprintf("layout: the samples do not settle %s of component %s of layer %d: %s (a sample of %s would help)", what, e.Component, e.Layer, e.Reason, e.Missing)
}

// divisors returns the divisors of n below n, ascending: 1 first; none for 1.
func divisors(n int64) []int64 {
	var low, high []int64
	for d := int64(1); d*d <= n; d++ {
		if n%d != 0 {
			continue
		}
		if d < n {
			low = append(low, d)
		}
		if o := n / d; o != d && o < n {
			high = append(high, o)
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}

// Samples returns the elements whose places settle the layout of a rank,
// whatever legal layout it is, and a few more that would show a layout which
// is none. Observed in any order they are enough for Infer.
//
// For each component of each layer these are the first element and, along each
// axis, the coordinates that divide its extent: an axis can be cut at its
// divisors only, and how far the coordinate at a cut lies tells whether there
// is one. The last coordinate of each axis, and all last ones together, are
// for the check.
func Samples(e Extent) []Element {
	var out []Element
	for ci := range e.Components {
		for li := range e.Layers {
			first := Element{Component: ci, Layer: li}
			last := first
			out = append(out, first)
			for axis := geometry.Block; axis <= geometry.Dim; axis++ {
				n := e.size(axis, ci)
				xs := divisors(n)
				if len(xs) > 0 && xs[len(xs)-1] != n-1 {
					xs = append(xs, n-1)
				}
				for _, x := range xs {
					el := first
					el.set(axis, x)
					out = append(out, el)
				}
				last.set(axis, n-1)
			}
			if !slices.Contains(out, last) {
				out = append(out, last)
			}
		}
	}
	return out
}

// Infer returns the layout that explains every sample: the only one in which
// each component of each layer has a place and each axis is cut into digits.
// No layer is taken to lie as another does, no axis to be linear: what was not
// observed and does not follow is refused. Samples lists a sufficient set.
//
// Errors: *Contradiction with the first two samples that do not fit together
// (in the order given: the one that comes too much, and one that it
// contradicts); *Ambiguous where several layouts explain the samples; *Error
// for samples outside the extent or the regions, and for a layout whose
// elements overlap.
func Infer(samples []Sample, e Extent, regions []Region) (*Layout, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if len(samples) > MaxSamples {
		return nil, bad("samples", len(samples), "want at most %d", MaxSamples)
	}
	if err := plausible(samples, &e, regions); err != nil {
		return nil, err
	}
	byPlace := make([][]int, len(e.Layers)*len(e.Components)) // by layer, component
	for i, s := range samples {
		at := s.Layer*len(e.Components) + s.Component
		byPlace[at] = append(byPlace[at], i)
	}
	var doubt error // a contradiction elsewhere says more
	spots := make([]observed, len(byPlace))
	for at, own := range byPlace {
		o := &spots[at]
		o.e, o.samples, o.own = &e, samples, own
		o.component, o.layer = at%len(e.Components), at/len(e.Components)
		err, conflict := o.settle()
		if conflict != nil {
			return nil, conflict
		}
		doubt = cmp.Or(doubt, err)
	}
	if doubt != nil {
		return nil, doubt
	}
	l := build(e, slices.Clone(regions), func(ci, li int) (int, int64, []Digit) {
		o := &spots[li*len(e.Components)+ci]
		return o.region, o.base, o.digits
	})
	if len(l.Maps) > MaxMaps {
		return nil, l.Validate()
	}
	// Samples that took no part in settling the layout are explained by it, or
	// contradict it.
	for i, s := range samples {
		if _, bit := l.Bit(s.Component, s.Layer, s.Block, s.Token, s.Head, s.Dim); bit != s.Bit {
			o := &spots[s.Layer*len(e.Components)+s.Component]
			return nil, contradiction(samples, o.origin, i, "with the others they put it at bit %d", bit)
		}
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return l, nil
}

func contradiction(samples []Sample, i, j int, why string, args ...any) error {
	return &Contradiction{samples[min(i, j)], samples[max(i, j)], fmt.Sprintf(why, args...)}
}

// plausible checks each sample alone, and the pairs that cannot be: an element
// at two places, two elements at one, a component of a layer in two regions.
func plausible(samples []Sample, e *Extent, regions []Region) error {
	type spot struct {
		region int
		bit    int64
	}
	where := make(map[Element]int, len(samples))
	what := make(map[spot]int, len(samples))
	home := map[[2]int]int{}
	for i, s := range samples {
		refuse := func(field string, value any, why string, args ...any) error {
			return bad(fmt.Sprintf("samples[%d].%s", i, field), value, why, args...)
		}
		if s.Component < 0 || s.Component >= len(e.Components) {
			return refuse("component", s.Component, "there are %d", len(e.Components))
		}
		if s.Layer < 0 || s.Layer >= len(e.Layers) {
			return refuse("layer", s.Layer, "there are %d", len(e.Layers))
		}
		for axis := geometry.Block; axis <= geometry.Dim; axis++ {
			if x, n := s.on(axis), e.size(axis, s.Component); x < 0 || x >= n {
				return refuse(axis.String(), x, "want 0 to %d", n-1)
			}
		}
		if s.Region < 0 || s.Region >= len(regions) {
			return refuse("region", s.Region, "there are %d", len(regions))
		}
		if bits, size := e.Components[s.Component].DType.Bits(), regions[s.Region].Bytes; s.Bit < 0 || size > MaxRegionBytes || s.Bit > size*8-bits {
			return refuse("bit", s.Bit, "region %q has %d bytes, an element %d bits", clip(regions[s.Region].Name), size, bits)
		}
		if j, ok := where[s.Element]; ok && samples[j] != s {
			return contradiction(samples, j, i, "one element lies at one place")
		}
		where[s.Element] = i
		at := spot{s.Region, s.Bit}
		if j, ok := what[at]; ok && samples[j] != s {
			return contradiction(samples, j, i, "two elements lie at two places")
		}
		what[at] = i
		place := [2]int{s.Component, s.Layer}
		if j, ok := home[place]; !ok {
			home[place] = i
		} else if samples[j].Region != s.Region {
			return contradiction(samples, j, i, "a component of a layer lies in one region")
		}
	}
	return nil
}

// observed is what the samples say about one component of one layer.
type observed struct {
	e                *Extent
	samples          []Sample
	own              []int // indices of its samples
	component, layer int

	region int
	base   int64
	origin int // the sample that gave the base
	digits []Digit
}

// term is an unknown of a sample: how far one coordinate of one axis moves an
// element, or (Axis 0) where the first element lies.
type term struct {
	axis geometry.Axis
	x    int64
}

type value struct {
	bits int64
	from int // the sample that gave it
}

func (o *observed) ambiguous(axis geometry.Axis, x int64, why string, args ...any) error {
	missing := Element{Component: o.component, Layer: o.layer}
	if axis != 0 {
		missing.set(axis, x)
	}
	return &Ambiguous{o.e.Components[o.component].Name, o.e.Layers[o.layer], axis, missing, fmt.Sprintf(why, args...)}
}

// settle finds the place and its digits. doubt is an *Ambiguous, conflict a
// *Contradiction; at most one of them is set.
func (o *observed) settle() (doubt, conflict error) {
	if len(o.own) == 0 {
		return o.ambiguous(0, 0, "it was not observed"), nil
	}
	o.region = o.samples[o.own[0]].Region
	known, conflict := o.distances()
	if conflict != nil {
		return nil, conflict
	}
	base, ok := known[term{}]
	if !ok {
		return o.ambiguous(0, 0, "where it starts does not follow"), nil
	}
	o.base, o.origin = base.bits, base.from
	for axis := geometry.Block; axis <= geometry.Dim; axis++ {
		c := cutter{n: o.e.size(axis, o.component)}
		for t, v := range known {
			if t.axis == axis {
				c.points = append(c.points, point{t.x, v})
			}
		}
		slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		c.cut(1, nil)
		switch {
		case c.unknown > 0:
			doubt = cmp.Or(doubt, o.ambiguous(axis, c.unknown, "whether it is cut at %d does not follow", c.unknown))
		case len(c.found) > 1:
			x := int64(1)
			for _, d := range divisors(c.n) {
				if _, ok := known[term{axis, d}]; !ok {
					x = d
					break
				}
			}
			doubt = cmp.Or(doubt, o.ambiguous(axis, x, "it can be cut in more than one way"))
		case len(c.found) == 0:
			i := c.against[0].from
			if c.against[0].x == 0 {
				i = o.origin
			}
			return nil, contradiction(o.samples, i, c.against[1].from, "the distances along %s fit no division of its %d places", axis, c.n)
		default:
			for _, d := range c.found[0] {
				d.Axis = axis
				o.digits = append(o.digits, d)
			}
		}
	}
	o.digits = canonical(o.digits)
	return doubt, nil
}

// distances solves for the terms, one at a time: a sample with one unknown
// term gives its value.
func (o *observed) distances() (map[term]value, error) {
	known := map[term]value{}
	waiting := map[term][]int{} // samples with an unknown term
	terms := func(i int) []term {
		ts := make([]term, 1, 5)
		for axis := geometry.Block; axis <= geometry.Dim; axis++ {
			if x := o.samples[i].on(axis); x > 0 {
				ts = append(ts, term{axis, x})
			}
		}
		return ts
	}
	left := map[int]int{}
	var ready []int
	for _, i := range o.own {
		ts := terms(i)
		left[i] = len(ts)
		for _, t := range ts {
			waiting[t] = append(waiting[t], i)
		}
		if len(ts) == 1 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		if left[i] != 1 {
			continue
		}
		var unknown term
		rest := o.samples[i].Bit
		for _, t := range terms(i) {
			if v, ok := known[t]; ok {
				rest -= v.bits
			} else {
				unknown = t
			}
		}
		known[unknown] = value{rest, i}
		for _, j := range waiting[unknown] {
			if left[j]--; left[j] == 1 {
				ready = append(ready, j)
			}
		}
	}
	for _, i := range o.own {
		if left[i] > 0 {
			continue
		}
		sum, with := int64(0), -1
		for _, t := range terms(i) {
			v := known[t]
			sum += v.bits
			if v.from != i && v.from > with {
				with = v.from
			}
		}
		if sum != o.samples[i].Bit {
			return nil, contradiction(o.samples, with, i, "with the others they put it at bit %d", sum)
		}
	}
	return known, nil
}

// cutter finds the ways in which one axis can be cut into digits.
type cutter struct {
	n      int64
	points []point // ascending by x, all above 0
	steps  int

	found   [][]Digit // at most two
	unknown int64     // > 0: nothing tells the stride of a digit that starts here
	against [2]point  // where the attempt that came furthest failed
}

type point struct {
	x int64
	value
}

// maxSteps bounds the search where samples are few.
const maxSteps = 1 << 16

// cut adds what explains the axis from place m on, given digits for what lies
// below m.
func (c *cutter) cut(m int64, digits []Digit) {
	if m == c.n {
		c.found = append(c.found, slices.Clone(digits))
		return
	}
	rest := func(p point) int64 {
		v := p.bits
		for _, d := range digits {
			v -= p.x % d.Mod / d.Div * d.Stride
		}
		return v
	}
	fail := func(a, b point) {
		if b.x > c.against[1].x {
			c.against = [2]point{a, b}
		}
	}
	for _, to := range append(divisors(c.n), c.n) {
		if to <= m || to%m != 0 {
			continue
		}
		if c.steps++; c.steps > maxSteps {
			c.unknown = m
		}
		if c.unknown > 0 || len(c.found) > 1 {
			return
		}
		first := slices.IndexFunc(c.points, func(p point) bool { return p.x >= m })
		if first < 0 || c.points[first].x >= to {
			c.unknown = m
			return
		}
		p := c.points[first]
		stride := rest(p) / (p.x / m)
		if stride < 1 || stride > maxBits/(to/m) || stride*(p.x/m) != rest(p) {
			fail(point{}, p)
			continue
		}
		fits := true
		for _, q := range c.points[first:] {
			if q.x >= to {
				break
			}
			if rest(q) != q.x/m*stride {
				fail(p, q)
				fits = false
				break
			}
		}
		if last := len(digits) - 1; !fits || last >= 0 && stride == digits[last].Count()*digits[last].Stride {
			continue // the second: the same as a larger digit before, which is tried
		}
		c.cut(to, append(digits, Digit{Mod: to, Div: m, Stride: stride}))
	}
}
