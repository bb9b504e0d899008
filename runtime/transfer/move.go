package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
)

// Direction is which way a Move's bytes go.
type Direction uint8

// The directions.
const (
	Pull Direction = 1 // from the peer's offer
	Push Direction = 2 // to the peer's expectation
)

// MoveSpec describes a transfer to the machine of the side that acts.
type MoveSpec struct {
	Direction Direction
	Shape     Shape
	From, To  int64
	Layers    plan.Range
	// Links are the peer's agents: for each whether any edge of the plan joins
	// its ranks and ours. One without has nothing to move and finishes as soon
	// as it granted.
	Links     []bool
	Streaming bool // Push: nothing is ready before Written
	// Grain is, by group, how many tokens an operation may not part: it ends at
	// a multiple or at To. Nil: one token.
	Grain    []int64
	Verify   bool      // Pull: what landed is compared with the source before it is done
	Deadline time.Time // required
}

// Move is one transfer. Driven by one caller at a time.
type Move struct {
	spec  MoveSpec
	need  []Box
	void  *cover // what does not move, of need
	known bool   // void is
	links []moveLink
	ready *cover // Push: what the engine wrote
	ops   map[uint64]operation
	next  uint64
	err   error
	final bool

	bytes, segments int64
}

type moveLink struct {
	state   linkState
	ready   *cover // Pull: what the owner marked
	asked   *cover // submitted
	landed  *cover // completed
	pending int
	// What landed is being compared with the source, and was found equal.
	verifying, verified bool
}

type linkState uint8

const (
	linkOpening linkState = iota
	linkMoving
	linkDone   // Done sent (Push: waiting for Closed)
	linkClosed // nothing more to say
)

type operation struct {
	link int
	box  Box
}

// ErrUnproved is a transfer without a proved plan.
var ErrUnproved = errors.New("transfer: refused: the plan was not proved")

// NewMove makes a transfer's machine. Only a plan that proof.Check accepted
// can be moved: the zero Proven is ErrUnproved. Errors: *RangeError.
func NewMove(p proof.Proven, spec MoveSpec) (*Move, error) {
	if !p.Valid() {
		return nil, blame.On(blame.Local, ErrUnproved)
	}
	if spec.Layers == (plan.Range{}) {
		spec.Layers = spec.Shape.Layers()
	}
	if err := spec.Shape.CheckLayers(spec.Layers); err != nil {
		return nil, blame.On(blame.Local, err)
	}
	if err := checkTokens(spec.From, spec.To, 0, MaxTokens); err != nil {
		return nil, blame.On(blame.Local, err)
	}
	if spec.Deadline.IsZero() {
		return nil, blame.On(blame.Local, errors.New("transfer: no deadline"))
	}
	m := &Move{spec: spec, need: spec.Shape.Boxes(spec.Layers, spec.From, spec.To), void: newCover(spec.Shape), links: make([]moveLink, len(spec.Links)),
		ready: newCover(spec.Shape), ops: map[uint64]operation{}}
	for i := range m.links {
		m.links[i] = moveLink{ready: newCover(spec.Shape), asked: newCover(spec.Shape), landed: newCover(spec.Shape)}
	}
	if !spec.Streaming && spec.Direction == Push {
		for _, b := range m.need {
			m.ready.add(b)
		}
	}
	return m, nil
}

// MoveEvent is what happened to a transfer: one of the types below, Written
// (Push) or Tick.
type MoveEvent interface{ moveEvent() }

type (
	// Begin asks for the first Ready.
	Begin struct{}
	// Permitted is the owner's Granted.
	Permitted struct {
		Link  int
		Boxes []Box // Pull: ready already
		// Void is what of the range does not move: tokens out of a window that
		// one side no longer holds, groups that the peer has not. It counts as
		// done and is never valid. Every link says the same.
		Void []Box
	}
	// Readied is the owner's Mark.
	Readied struct {
		Link  int
		Boxes []Box
	}
	// Completed is the end of a submitted operation.
	Completed struct {
		Op              uint64
		Err             error
		Bytes, Segments int64
	}
	// Verified answers MoveReady.Verify, whatever became of it.
	Verified struct {
		Link int
		Err  error
	}
	// Declined is the owner's Refused: it holds nothing of ours.
	Declined struct {
		Link int
		Err  error
	}
	// Stopping is the owner's Ended: it waits for our Done.
	Stopping struct {
		Link int
		Err  error
	}
	// Lost is a link whose connection broke.
	Lost struct {
		Link int
		Err  error
	}
	// Taken is the owner's Closed.
	Taken struct {
		Link int
		Err  error
	}
	// Abort ends the transfer.
	Abort struct{ Err error }
)

func (Begin) moveEvent()     {}
func (Permitted) moveEvent() {}
func (Readied) moveEvent()   {}
func (Completed) moveEvent() {}
func (Verified) moveEvent()  {}
func (Declined) moveEvent()  {}
func (Stopping) moveEvent()  {}
func (Lost) moveEvent()      {}
func (Taken) moveEvent()     {}
func (Abort) moveEvent()     {}
func (Written) moveEvent()   {}
func (Tick) moveEvent()      {}

// Submission is an operation to start: Op names it in Completed.
type Submission struct {
	Link int
	Op   uint64
	Box  Box
}

// LinkBoxes are boxes for one link.
type LinkBoxes struct {
	Link  int
	Boxes []Box
}

// LinkDone is a Done for one link; Err nil: well.
type LinkDone struct {
	Link int
	Err  error
}

// MoveReady is what to do, in this order.
type MoveReady struct {
	Err      error // the event was refused and changed nothing
	Open     []int // links to send Open to
	Submit   []Submission
	Cancel   []uint64 // operations
	Landed   []LinkBoxes
	Verify   []int // links whose bytes to compare with the source's; answered by Verified
	Unverify bool  // give up what Verify asked for: the transfer has failed
	Progress bool
	Done     []LinkDone
	// Final: nothing of the transfer runs any more. Once; Failure nil when
	// everything is in place.
	Final   bool
	Failure error
	Wake    time.Time
}

// Step advances the transfer.
func (m *Move) Step(now time.Time, ev MoveEvent) MoveReady {
	var out MoveReady
	if m.final {
		return out
	}
	switch ev := ev.(type) {
	case Begin:
		for i := range m.links {
			out.Open = append(out.Open, i)
		}
	case Permitted:
		if l := &m.links[ev.Link]; l.state == linkOpening {
			l.state = linkMoving
			void := newCover(m.spec.Shape)
			for _, b := range ev.Void {
				void.add(b)
				l.asked.add(b)
				l.landed.add(b)
			}
			if m.known && !slices.Equal(void.boxes(), m.void.boxes()) {
				m.fail(blame.On(blame.Peer, fmt.Errorf("%w: the peer's agents do not hold the same tokens", ErrRange)), &out)
				break
			}
			m.void, m.known = void, true
			m.mark(ev.Link, ev.Boxes, &out)
		}
	case Readied:
		m.mark(ev.Link, ev.Boxes, &out)
	case Written:
		for _, b := range ev.Boxes {
			if err := m.spec.Shape.Check(b, m.spec.From, m.spec.To); err != nil {
				return MoveReady{Err: blame.On(blame.Local, err), Wake: m.spec.Deadline}
			}
		}
		for _, b := range ev.Boxes {
			m.ready.add(b)
		}
		if m.ready.most() > MaxSpans {
			m.fail(blame.On(blame.Local, fmt.Errorf("%w: a layer's ready marks fall into more than %d ranges", ErrLimit, MaxSpans)), &out)
		}
	case Completed:
		m.completed(ev, &out)
	case Verified:
		if l := &m.links[ev.Link]; l.verifying {
			l.verifying = false
			if l.verified = ev.Err == nil; !l.verified {
				// What differs may be anywhere: nothing of the link is valid.
				l.landed = newCover(m.spec.Shape)
				m.fail(ev.Err, &out)
			}
		}
	case Declined:
		if l := &m.links[ev.Link]; l.state == linkOpening {
			l.state = linkClosed
			m.fail(ev.Err, &out)
		}
	case Stopping:
		if l := &m.links[ev.Link]; l.state != linkClosed {
			if l.state == linkDone {
				l.state = linkClosed // our Done is on its way; a push's owner has the last word
			}
			m.fail(ev.Err, &out)
		}
	case Lost:
		if l := &m.links[ev.Link]; l.state != linkClosed {
			l.state = linkClosed
			m.fail(fmt.Errorf("%w: %w", ErrGone, ev.Err), &out)
		}
	case Taken:
		if l := &m.links[ev.Link]; l.state == linkDone {
			l.state = linkClosed
			if ev.Err != nil {
				m.fail(ev.Err, &out)
			}
		}
	case Abort:
		m.fail(ev.Err, &out)
	case Tick:
		if !now.Before(m.spec.Deadline) {
			m.fail(fmt.Errorf("%w: %s", ErrTimeout, m.missing()), &out)
		}
	}
	m.advance(&out)
	if !m.final {
		out.Wake = m.spec.Deadline
		if m.err != nil {
			out.Wake = time.Time{} // only completions are awaited
		}
	}
	return out
}

func (m *Move) mark(link int, boxes []Box, out *MoveReady) {
	l := &m.links[link]
	if m.spec.Direction != Pull || l.state == linkClosed || m.err != nil {
		return
	}
	for _, b := range boxes {
		if err := m.spec.Shape.Check(b, 0, MaxTokens); err != nil {
			m.fail(blame.On(blame.Peer, fmt.Errorf("%w: a ready mark: %w", ErrRange, err)), out)
			return
		}
		l.ready.add(b)
	}
	if l.ready.most() > MaxSpans {
		m.fail(blame.On(blame.Peer, fmt.Errorf("%w: a layer's ready marks fall into more than %d ranges", ErrLimit, MaxSpans)), out)
	}
}

func (m *Move) completed(ev Completed, out *MoveReady) {
	op, ok := m.ops[ev.Op]
	if !ok {
		return
	}
	delete(m.ops, ev.Op)
	l := &m.links[op.link]
	l.pending--
	if ev.Err != nil {
		m.fail(ev.Err, out)
		return
	}
	m.bytes += ev.Bytes
	m.segments += ev.Segments
	before := l.landed.clone()
	l.landed.add(op.box)
	out.Progress = true
	if m.spec.Direction == Push && l.state == linkMoving {
		out.Landed = append(out.Landed, LinkBoxes{op.link, l.landed.minus(before).boxes()})
	}
}

func (m *Move) fail(err error, out *MoveReady) {
	if m.err != nil {
		return
	}
	m.err = err
	out.Submit = nil
	for i := range m.links {
		out.Unverify = out.Unverify || m.links[i].verifying
	}
	out.Cancel = slices.SortedFunc(maps.Keys(m.ops), cmp.Compare[uint64])
}

// advance submits what is ready and finishes what is complete.
func (m *Move) advance(out *MoveReady) {
	if m.err == nil {
		need := newCover(m.spec.Shape)
		for _, b := range m.need {
			need.add(b)
		}
		for i := range m.links {
			l := &m.links[i]
			if l.state != linkMoving {
				continue
			}
			if !m.spec.Links[i] {
				// Nothing to move for this agent's ranks: it is done with us at
				// once and must not wait for the others' marks.
				for _, b := range m.need {
					l.landed.add(b)
				}
			} else {
				ready := m.ready
				if m.spec.Direction == Pull {
					ready = l.ready
				}
				for _, b := range ready.intersect(need).minus(l.asked).boxes() {
					if b = m.whole(b); b.From >= b.To {
						continue
					}
					m.next++
					m.ops[m.next] = operation{i, b}
					l.pending++
					out.Submit = append(out.Submit, Submission{i, m.next, b})
					l.asked.add(b)
				}
			}
			if l.pending == 0 && l.landed.containsAll(m.need) {
				if m.spec.Verify && m.spec.Direction == Pull && m.spec.Links[i] && !l.verified {
					if !l.verifying {
						l.verifying = true
						out.Verify = append(out.Verify, i)
					}
					continue
				}
				l.state = linkDone
				if m.spec.Direction == Pull {
					l.state = linkClosed // the bytes are here: the owner's answer changes nothing
				}
				out.Done = append(out.Done, LinkDone{Link: i})
			}
		}
	} else if len(m.ops) == 0 {
		for i := range m.links {
			if l := &m.links[i]; l.state == linkOpening || l.state == linkMoving {
				l.state = linkClosed
				out.Done = append(out.Done, LinkDone{i, m.err})
			}
		}
	}
	if len(m.ops) > 0 {
		return
	}
	for i := range m.links {
		if m.links[i].verifying {
			return // it reads our blocks
		}
		if s := m.links[i].state; s != linkClosed && (m.err == nil || s != linkDone) {
			return
		}
	}
	m.final, out.Final, out.Failure = true, true, m.err
}

// whole is the box without the tokens at its end that an operation would part
// from those behind them.
func (m *Move) whole(b Box) Box {
	if m.spec.Grain != nil && b.To != m.spec.To {
		b.To -= b.To % m.spec.Grain[b.Group]
	}
	return b
}

func (m *Move) missing() string {
	opening, waiting, moving := 0, 0, len(m.ops)
	for i := range m.links {
		switch m.links[i].state {
		case linkOpening:
			opening++
		case linkMoving:
			waiting++
		}
	}
	return fmt.Sprintf("%d of %d agents have not granted, %d are not finished, %d operations run", opening, len(m.links), waiting, moving)
}

// Moved is the bytes and stamped segments of the completed operations.
func (m *Move) Moved() (bytes, segments int64) { return m.bytes, m.segments }

// Valid is what is in place at the destination, on all links.
func (m *Move) Valid() []Box {
	var c *cover
	for i := range m.links {
		if !m.spec.Links[i] {
			continue
		}
		if c == nil {
			c = m.links[i].landed
		} else {
			c = c.intersect(m.links[i].landed)
		}
	}
	if c == nil { // no link has anything to move
		c = newCover(m.spec.Shape)
		if m.final && m.err == nil {
			for _, b := range m.need {
				c.add(b)
			}
		}
	}
	return c.minus(m.void).boxes()
}

// Has reports whether a box is in place, as far as it moves.
func (m *Move) Has(b Box) bool {
	for i := range m.links {
		if m.spec.Links[i] && !m.links[i].landed.contains(b) {
			return false
		}
	}
	return true
}
