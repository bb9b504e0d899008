package digest

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// listLength is the number of rows that are hashed at once.
const listLength = 512

// summer is what one sum works with.
type summer struct {
	key   *nhKey
	start state

	region []byte
	unit   int64 // bits that offsets count: 8, or 4 where something lies across bytes
	base   int64 // where the place begins, in units as all offsets here
	block  axis
	token  axis
	head   axis
	heads  list // where the heads lie, and their names
	places list // the same of entries of a span
	span   Span // whose places these are, but for Block and Entry
	inside bool // heads lie inside entries
	bytes  int64
	chunk  int64   // units of a row that lie together
	chunks []int64 // where the chunks of a row lie; none where it is one
	dims   []layout.Digit
	named  state // S after the name

	sparse bool // the rows in the list lie far apart
	n      int  // rows in the list
	offs   [listLength]int64
	names  [listLength]uint64
	lo, hi [listLength]uint64
	sum    uint64
	rows   int64

	packed int64 // bytes of a row in buf, of which rows are at
	at     [listLength]int64
	buf    [gatherBytes]byte
}

// list is where some coordinates of an axis lie, and the names they have.
type list struct {
	offs  []int64
	names []uint64
}

func (l *list) reset() { l.offs, l.names = l.offs[:0], l.names[:0] }

func (l *list) add(off int64, name uint64) {
	l.offs, l.names = append(l.offs, off), append(l.names, name)
}

// axis is where the coordinates of one axis lie.
type axis struct {
	digits []layout.Digit // of more than one value, strides in units
	step   int64          // of the two coordinates that lie closest; far where there is one only
}

// far is a distance above all.
const far = int64(1) << 62

func (a *axis) set(m []layout.Digit, which geometry.Axis, unit int64) {
	a.digits, a.step = a.digits[:0], far
	for _, d := range m {
		if d.Axis == which && d.Count() > 1 {
			d.Stride /= unit
			a.digits = append(a.digits, d)
			a.step = min(a.step, d.Stride)
		}
	}
}

// at is where coordinate x lies.
func (a *axis) at(x int64) int64 {
	if len(a.digits) == 1 { // it has the whole axis
		return x * a.step
	}
	var off int64
	for i := range a.digits {
		d := &a.digits[i]
		off += x % d.Mod / d.Div * d.Stride
	}
	return off
}

// The last word of S's message: entry, head and in the top byte the message's
// length.
const (
	headShift = 40
	rowEnd    = uint64(39) << 56
	windowEnd = uint64(23) << 56
)

// prepare checks the rows and learns where they lie: after it, every offset
// that heads and spans give is inside the region.
func (s *summer) prepare(r *Rows) error {
	l := r.Layout
	e := &l.Extent
	switch {
	case r.Component < 0 || r.Component >= len(e.Components):
		return bad("component", r.Component, "the layout has %d", len(e.Components))
	case r.Layer < 0 || r.Layer >= len(e.Layers):
		return bad("layer", r.Layer, "the layout has %d", len(e.Layers))
	case r.Name.Group < 0 || r.Name.Group >= geometry.MaxGroups:
		return bad("name.group", r.Name.Group, "want 0 to %d", geometry.MaxGroups-1)
	case r.Name.Component < 0 || r.Name.Component >= geometry.MaxComponents:
		return bad("name.component", r.Name.Component, "want 0 to %d", geometry.MaxComponents-1)
	case r.Name.Layer < 0 || r.Name.Layer >= geometry.MaxLayers:
		return bad("name.layer", r.Name.Layer, "want 0 to %d", geometry.MaxLayers-1)
	}
	c := &e.Components[r.Component]
	p := l.Places[r.Component][r.Layer]
	region := &l.Regions[p.Region]
	if p.Region >= len(r.Regions) || int64(len(r.Regions[p.Region])) < region.Bytes {
		have := 0
		if p.Region < len(r.Regions) {
			have = len(r.Regions[p.Region])
		}
		return bad("regions", have, "region %q of the layout has %d bytes", region.Name, region.Bytes)
	}
	s.region = r.Regions[p.Region][:region.Bytes]
	if err := s.place(l.Maps[p.Map], p.Offset, c); err != nil {
		return err
	}
	if err := s.list(r.Heads, e.Heads[r.Component]); err != nil {
		return err
	}
	if err := checkSpans(r.Spans, int64(e.Blocks), int64(e.Tokens/c.EntryTokens())); err != nil {
		return err
	}
	s.span, s.sparse, s.n, s.sum, s.rows = Span{}, false, 0, 0, 0
	s.named = s.start.add(uint64(r.Name.Group) | uint64(r.Name.Component)<<16 | uint64(r.Name.Layer)<<32)
	return nil
}

// place learns where the elements of a row and the rows lie.
func (s *summer) place(m []layout.Digit, offset int64, c *geometry.Component) error {
	element := c.DType.Bits()
	s.dims = s.dims[:0]
	grain := offset // the lowest bit that is set in any offset
	for _, d := range m {
		switch {
		case d.Count() == 1:
		case d.Axis == geometry.Dim:
			s.dims = append(s.dims, d)
		default:
			grain |= d.Stride
		}
	}
	slices.SortFunc(s.dims, func(a, b layout.Digit) int { return cmp.Compare(a.Div, b.Div) })
	chunk, joined := element, 0
	for joined < len(s.dims) && s.dims[joined].Stride == chunk {
		chunk *= s.dims[joined].Count()
		joined++
	}
	for _, d := range s.dims[joined:] {
		grain |= d.Stride
	}
	s.unit = 8
	if (grain|chunk)%8 != 0 {
		s.unit = 4
	}
	if grain%4 != 0 {
		return bad("layout", grain&-grain, "elements of component %s begin at bits that are multiples of no more than that, want 4", c.Name)
	}
	s.bytes = c.RowBits() / 8
	s.base = offset / s.unit
	s.block.set(m, geometry.Block, s.unit)
	s.token.set(m, geometry.Token, s.unit)
	s.head.set(m, geometry.Head, s.unit)
	s.inside = s.head.step < s.token.step
	s.chunk, s.chunks = chunk/s.unit, s.chunks[:0]
	if s.unit == 8 && s.chunk == s.bytes {
		return nil // rows are hashed where they lie
	}
	s.chunk = gcd(s.chunk, segmentBytes*8/s.unit) // none goes over the end of a segment
	for at := int64(0); at < s.bytes*8; at += s.chunk * s.unit {
		off, dim := int64(0), at/element
		for _, d := range s.dims {
			off += dim % d.Mod / d.Div * d.Stride
		}
		s.chunks = append(s.chunks, off/s.unit)
	}
	return nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// list lists the heads. A rank with none of its own has one place.
func (s *summer) list(heads []Head, places int) error {
	s.heads.reset()
	switch {
	case places == 0 && len(heads) == 0:
		s.heads.add(0, rowEnd)
		return nil
	case len(heads) == 0:
		return bad("heads", "empty", "the component has %d on the rank", places)
	}
	for _, h := range heads {
		if h.Place < 0 || h.Place >= max(places, 1) {
			return bad("heads", h.Place, "the component has %d places for heads on the rank", max(places, 1))
		}
		if h.Number < 0 || h.Number >= geometry.MaxHeads {
			return bad("heads", h.Number, "heads have numbers of 0 to %d", geometry.MaxHeads-1)
		}
		s.heads.add(s.head.at(int64(h.Place)), rowEnd|uint64(h.Number)<<headShift)
	}
	return nil
}

func checkSpans(spans []Span, blocks, places int64) error {
	for i := range spans {
		sp := &spans[i]
		n := sp.Count - 1
		switch {
		case int64(sp.Block) >= blocks:
			return bad("spans.block", sp.Block, "the layout has %d", blocks)
		case sp.Count < 1 || sp.Count > places:
			return bad("spans.count", sp.Count, "a block has %d places for entries", places)
		case sp.Place < 0 || sp.Place >= places:
			return bad("spans.place", sp.Place, "a block has %d places for entries", places)
		case sp.Entry < 0 || sp.Entry >= MaxEntry:
			return bad("spans.entry", sp.Entry, "want 0 to %d", MaxEntry-1)
		case n == 0:
		case sp.Step < 1 || sp.Step > (places-1-sp.Place)/n:
			return bad("spans.step", sp.Step, "%d entries from place %d on do not lie in a block with %d places", sp.Count, sp.Place, places)
		case sp.EntryStep < 1 || sp.EntryStep > (MaxEntry-1-sp.Entry)/n:
			return bad("spans.entry_step", sp.EntryStep, "%d entries from %d on are not within 0 to %d", sp.Count, sp.Entry, MaxEntry-1)
		}
	}
	return nil
}

// maxPlaces is the number of entries whose places are listed at a time.
const maxPlaces = 1 << 12

// all puts every row into the list.
func (s *summer) all(spans []Span) {
	for i := range spans {
		left := spans[i]
		for left.Count > 0 {
			part := left
			part.Count = min(part.Count, maxPlaces)
			s.entries(&part)
			at := s.base + s.block.at(int64(part.Block))
			outer, inner := &s.heads, &s.places
			if s.inside {
				outer, inner = inner, outer
			}
			for k, off := range outer.offs {
				s.put(at+off, uint64(part.Entry)+outer.names[k], inner)
			}
			left.Count -= part.Count
			left.Place += part.Count * part.Step
			left.Entry += part.Count * part.EntryStep
		}
	}
}

// entries lists the places of a span, which many spans have in common.
func (s *summer) entries(sp *Span) {
	if sp.Place == s.span.Place && sp.Step == s.span.Step && sp.Count == s.span.Count && sp.EntryStep == s.span.EntryStep {
		return
	}
	s.span = *sp
	s.places.reset()
	for i := range sp.Count {
		s.places.add(s.token.at(sp.Place+i*sp.Step), uint64(i*sp.EntryStep))
	}
}

// put puts the rows of l, above an offset and a name, into the list.
func (s *summer) put(off int64, name uint64, l *list) {
	offs, names := l.offs, l.names
	if s.bytes < 16 && len(s.chunks) == 0 { // longer rows are fetched by nhRows
		fetchLines(s.region, off, offs, s.bytes)
	}
	for len(offs) > 0 {
		if s.n == listLength {
			s.flush()
		}
		to, named := s.offs[s.n:], s.names[s.n:]
		n := min(len(offs), len(to))
		for i := range n {
			to[i], named[i] = off+offs[i], name+names[i]
		}
		s.n += n
		offs, names = offs[n:], names[n:]
	}
}

// noSegment stands where a row's message has its segment.
const noSegment = 1<<32 - 1

// sampled puts one row of every so many into the list.
func (s *summer) sampled(spans []Span, every int64) {
	s.sparse = true
	mid := s.named.add(noSegment | uint64(every)<<32)
	for i := range spans {
		sp := &spans[i]
		at := s.base + s.block.at(int64(sp.Block))
		last := sp.Entry + (sp.Count-1)*max(sp.EntryStep, 1)
		if sp.Count == 1 {
			last = sp.Entry
		}
		for w := sp.Entry / every; w <= last/every; w++ {
			for k, name := range s.heads.names {
				e := w*every + pick(mid, name, w, every) - sp.Entry
				n := e
				switch {
				case e < 0 || e > last-sp.Entry:
					continue
				case sp.Count > 1 && sp.EntryStep > 1:
					if n = e / sp.EntryStep; n*sp.EntryStep != e {
						continue
					}
				}
				if s.n == listLength {
					s.flush()
				}
				s.offs[s.n] = at + s.heads.offs[k] + s.token.at(sp.Place+n*sp.Step)
				s.names[s.n] = name + uint64(sp.Entry+e)
				s.n++
			}
		}
	}
}

// pick is which entry of a window is chosen.
func pick(mid state, head uint64, window, every int64) int64 {
	h := mid.end(head - rowEnd + windowEnd + uint64(window))
	return int64(high(h, uint64(every)))
}

// flush hashes the rows in the list.
func (s *summer) flush() {
	n := s.n
	if n == 0 {
		return
	}
	s.n = 0
	s.rows += int64(n)
	for segment, from := int64(0), int64(0); from < s.bytes; segment, from = segment+1, from+segmentBytes {
		length := min(s.bytes-from, segmentBytes)
		if len(s.chunks) == 0 {
			s.inPlace(n, from, length)
		} else {
			s.gathered(n, from, length)
		}
		mid := s.named.add(uint64(segment) | uint64(length)<<32)
		s.sum += sipRows(s.lo[:n], s.hi[:n], s.names[:n], &mid)
	}
}

// scatteredBytes is how much of rows that lie far apart is fetched at once.
const scatteredBytes = 16 << 10

// inPlace hashes the segment of the first n rows in the list that begins at
// byte from.
func (s *summer) inPlace(n int, from, length int64) {
	region, step := s.region[from:], n
	if s.sparse {
		// Each row is in a page of its own: looking up where pages are takes
		// longest, and is done for many at once only where they are fetched one
		// right after the other.
		step = int(max(min(scatteredBytes/length, listLength), 1))
	}
	for i := 0; i < n; i += step {
		k := min(i+step, n)
		if s.sparse {
			fetchLines(region, 0, s.offs[i:k], length)
		}
		nhRows(region, s.offs[i:k], length, s.key, s.lo[i:k], s.hi[i:k])
	}
}
