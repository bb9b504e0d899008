package transfer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
)

// ExpectSpec describes an expectation to its machine.
type ExpectSpec struct {
	Shape    Shape
	From, To int64
	Lease    time.Duration
	Limit    time.Time
}

// Expect is the owner's side of writing: one producer engine, any number of
// its agents. Driven by one caller at a time.
//
// It succeeds when every rank of the producer has said that the whole range
// is done; a rank that has nothing to send says so like any other. A failure
// is reported at once, and the blocks stay in quarantine until every handle
// that could write to them has stopped.
type Expect struct {
	spec     ExpectSpec
	lease    time.Time
	producer string
	total    int
	ranks    map[int]*cover    // by producer rank: what landed, or needed no move
	used     map[int]*cover    // by producer rank: what was opened
	plans    map[string]*cover // by plan: what was opened under it
	void     *cover            // of what was opened, what does not move
	writers  map[Key]*writer
	side     []byte
	over     bool  // no more writers
	err      error // why, nil: complete
	told     bool
	freed    bool
}

type writer struct {
	open     OpenWrite
	finished bool
	stopping bool
	checking bool // its bytes are being compared with the source's
}

// NewExpect opens an expectation.
func NewExpect(spec ExpectSpec, now time.Time) *Expect {
	return &Expect{spec: spec, lease: earlier(now.Add(spec.Lease), spec.Limit),
		ranks: map[int]*cover{}, used: map[int]*cover{}, plans: map[string]*cover{}, void: newCover(spec.Shape), writers: map[Key]*writer{}}
}

// ExpectEvent is what happened to an expectation: one of the types below,
// or Stopped, Beaten, Tick or End.
type ExpectEvent interface{ expectEvent() }

type (
	// OpenWrite is a producer's genuine ticket.
	OpenWrite struct {
		Key      Key
		Producer string // engine and incarnation
		// Plan is the digest of that under which it writes. What several openers
		// write to the same tokens and layers has to be of one plan.
		Plan     string
		Ranks    []int // of the producer, that this opener speaks for
		Total    int   // ranks of the producer's engine
		From, To int64
		Layers   plan.Range
		// Void is what of the range does not move, as in Permitted.
		Void     []Box
		Verify   bool // what it writes is compared with the source before it counts
		SideData []byte
	}
	// Arrived is a writer's Landed.
	Arrived struct {
		Key   Key
		Boxes []Box
	}
	// WriteDone is the writer's Done.
	WriteDone struct {
		Key Key
		Err error
	}
	// Checked answers ExpectReady.Verify, whatever became of it.
	Checked struct {
		Key Key
		Err error
	}
	// WriterGone is a writer whose connection is lost.
	WriterGone struct {
		Key Key
		Err error
	}
)

func (OpenWrite) expectEvent()  {}
func (Arrived) expectEvent()    {}
func (WriteDone) expectEvent()  {}
func (Checked) expectEvent()    {}
func (WriterGone) expectEvent() {}
func (Stopped) expectEvent()    {}
func (Beaten) expectEvent()     {}
func (Tick) expectEvent()       {}
func (End) expectEvent()        {}

// ExpectReady is what to do, in this order.
type ExpectReady struct {
	Err      error // the event was refused and changed nothing
	Grant    bool  // OpenWrite: grant it
	Verify   []Key // writers whose bytes to compare with the source's; answered by Checked
	Stop     []Stop
	Progress bool // Valid has grown
	// Final: the one final state, Failure nil when everything arrived. On
	// success Free comes with it.
	Final   bool
	Failure error
	Wake    time.Time
	Free    bool // bump the generations; the blocks belong to the engine again
}

// Step advances the expectation.
func (x *Expect) Step(now time.Time, ev ExpectEvent) ExpectReady {
	var out ExpectReady
	switch ev := ev.(type) {
	case OpenWrite:
		if err := x.open(now, ev); err != nil {
			out.Err = err
			break
		}
		out.Grant = true
	case Arrived:
		w := x.writers[ev.Key]
		if w == nil || x.over {
			break
		}
		for _, b := range ev.Boxes {
			err := x.spec.Shape.Check(b, w.open.From, w.open.To)
			if err == nil && (b.Layers.From < w.open.Layers.From || b.Layers.To > w.open.Layers.To) {
				err = &RangeError{"layers", fmt.Sprint(b.Layers), fmt.Sprint(w.open.Layers)}
			}
			if err != nil {
				err = blame.On(blame.Peer, fmt.Errorf("%w: %w", ErrRange, err))
				x.fail(err, &out)
				out.Err = err
				return x.settle(out)
			}
		}
		for _, b := range ev.Boxes {
			if err := x.land(w, b); err != nil {
				x.fail(err, &out)
				out.Err = err
				return x.settle(out)
			}
		}
		out.Progress = true
	case WriteDone:
		w := x.writers[ev.Key]
		if w == nil || w.finished {
			break
		}
		if w.open.Verify && ev.Err == nil && !w.stopping && !x.over {
			// Its handles have stopped, so no fence is due any more; it is told
			// so when the bytes were found right.
			w.stopping, w.checking = true, true
			out.Verify = append(out.Verify, ev.Key)
			break
		}
		w.finished = true
		if w.stopping {
			// It was asked to stop, and has: the fence may be skipped.
			out.Stop = append(out.Stop, Stop{Key: ev.Key})
			break
		}
		w.stopping = true
		out.Stop = append(out.Stop, Stop{Key: ev.Key})
		if ev.Err != nil {
			x.fail(ev.Err, &out)
			break
		}
		x.done(w, &out)
	case Checked:
		w := x.writers[ev.Key]
		if w == nil || !w.checking {
			break
		}
		w.checking, w.finished = false, true
		out.Stop = append(out.Stop, Stop{Key: ev.Key, Failure: ev.Err})
		if ev.Err != nil {
			// What differs may be anywhere: nothing of the writer's is valid.
			for _, r := range w.open.Ranks {
				x.ranks[r] = newCover(x.spec.Shape)
			}
			x.fail(ev.Err, &out)
			break
		}
		x.done(w, &out)
	case WriterGone:
		if w := x.writers[ev.Key]; w != nil {
			if !w.stopping {
				w.stopping = true
				out.Stop = append(out.Stop, Stop{Key: ev.Key, Fence: !w.finished})
			}
			if !w.finished {
				x.fail(fmt.Errorf("%w: %w", ErrGone, ev.Err), &out)
			}
		}
	case Stopped:
		delete(x.writers, ev.Key)
	case Beaten:
		if !x.over {
			if l := earlier(now.Add(x.spec.Lease), x.spec.Limit); l.After(x.lease) {
				x.lease = l
			}
		}
	case Tick:
		if !x.over && !now.Before(x.lease) {
			x.fail(fmt.Errorf("%w: nothing more arrived within the lease of %v", ErrTimeout, x.spec.Lease), &out)
		}
	case End:
		cause := error(ErrCanceled)
		if ev.Reason == Shut {
			cause = ErrShut
		}
		x.fail(cause, &out)
	}
	return x.settle(out)
}

// done enters everything that a writer opened.
func (x *Expect) done(w *writer, out *ExpectReady) {
	for _, b := range x.spec.Shape.Boxes(w.open.Layers, w.open.From, w.open.To) {
		if err := x.land(w, b); err != nil {
			x.fail(err, out)
			return
		}
	}
	out.Progress = true
}

func (x *Expect) open(now time.Time, ev OpenWrite) error {
	switch {
	case x.over || !now.Before(x.lease):
		return &TicketError{ErrUnknown, "expectation", "given back", "an open one"}
	case x.producer != "" && x.producer != ev.Producer:
		return &TicketError{ErrUsed, "producer", ev.Producer, x.producer + ", who writes already"}
	}
	if err := checkTokens(ev.From, ev.To, x.spec.From, x.spec.To); err != nil {
		return fmt.Errorf("%w: %w", ErrRange, err)
	}
	if err := x.spec.Shape.CheckLayers(ev.Layers); err != nil {
		return fmt.Errorf("%w: %w", ErrRange, err)
	}
	boxes := x.spec.Shape.Boxes(ev.Layers, ev.From, ev.To)
	for _, r := range ev.Ranks {
		if r < 0 || r >= ev.Total {
			return fmt.Errorf("%w: %w", ErrRange, &RangeError{"rank", fmt.Sprint(r), fmt.Sprintf("the producer's %d ranks", ev.Total)})
		}
		if used := x.used[r]; used != nil {
			if used.most() >= MaxSpans {
				return fmt.Errorf("%w: more than %d pieces of one expectation", ErrLimit, MaxSpans)
			}
			for _, b := range boxes {
				if used.overlaps(b) {
					return &TicketError{ErrUsed, fmt.Sprintf("producer %s rank %d", ev.Producer, r), b.String(), "a range not written before"}
				}
			}
		}
	}
	for _, b := range boxes {
		for plan, under := range x.plans {
			if plan != ev.Plan && under.overlaps(b) {
				return blame.On(blame.Peer, fmt.Errorf("%w: %s of the producer's other ranks is written under plan %.80q, this under %.80q: elements could come twice, or not at all", ErrPlan, b, plan, ev.Plan))
			}
		}
	}
	if x.plans[ev.Plan] == nil {
		if len(x.plans) >= MaxPlans {
			return fmt.Errorf("%w: more than %d plans of one expectation", ErrLimit, MaxPlans)
		}
		x.plans[ev.Plan] = newCover(x.spec.Shape)
	}
	for _, b := range boxes {
		x.plans[ev.Plan].add(b)
	}
	x.producer, x.total = ev.Producer, ev.Total
	for _, r := range ev.Ranks {
		if x.used[r] == nil {
			x.used[r], x.ranks[r] = newCover(x.spec.Shape), newCover(x.spec.Shape)
		}
		for _, b := range boxes {
			x.used[r].add(b)
		}
		for _, b := range ev.Void {
			x.ranks[r].add(b)
		}
	}
	for _, b := range ev.Void {
		x.void.add(b)
	}
	if len(ev.SideData) > 0 {
		x.side = ev.SideData
	}
	x.writers[ev.Key] = &writer{open: ev}
	return nil
}

func (x *Expect) land(w *writer, b Box) error {
	for _, r := range w.open.Ranks {
		x.ranks[r].add(b)
		if x.ranks[r].most() > MaxSpans {
			return fmt.Errorf("%w: a layer arrives in more than %d ranges", ErrLimit, MaxSpans)
		}
	}
	return nil
}

func (x *Expect) keys() []Key { return slices.SortedFunc(maps.Keys(x.writers), cmp.Compare[Key]) }

func (x *Expect) fail(err error, out *ExpectReady) {
	if x.over {
		return
	}
	x.over, x.err = true, err
	for _, k := range x.keys() {
		if w := x.writers[k]; !w.stopping {
			w.stopping = true
			out.Stop = append(out.Stop, Stop{Key: k, Fence: true, Tell: err})
		}
	}
}

func (x *Expect) settle(out ExpectReady) ExpectReady {
	if !x.over && x.complete() {
		x.over = true // every writer that contributed has finished, or has nothing left to write
		for _, k := range x.keys() {
			if w := x.writers[k]; !w.stopping {
				w.stopping = true
				out.Stop = append(out.Stop, Stop{Key: k, Tell: ErrEnded})
			}
		}
	}
	if x.over && !x.told && (x.err != nil || len(x.writers) == 0) {
		x.told, out.Final, out.Failure = true, true, x.err
	}
	if x.over && len(x.writers) == 0 && !x.freed {
		x.freed, out.Free = true, true
	}
	if !x.over {
		out.Wake = x.lease
	}
	return out
}

// complete reports whether every rank has everything and every writer said
// that it finished: a landed mark alone does not end a write.
func (x *Expect) complete() bool {
	if x.producer == "" || len(x.ranks) < x.total {
		return false
	}
	for _, w := range x.writers {
		if !w.finished {
			return false
		}
	}
	all := x.spec.Shape.Boxes(x.spec.Shape.Layers(), x.spec.From, x.spec.To)
	for _, c := range x.ranks {
		if !c.containsAll(all) {
			return false
		}
	}
	return true
}

// TTL is how long the lease still lasts.
func (x *Expect) TTL(now time.Time) time.Duration { return x.lease.Sub(now) }

// SideData is what the producer sent along.
func (x *Expect) SideData() []byte { return x.side }

// Valid is what every producer rank has written or had nothing to write of.
func (x *Expect) Valid() []Box {
	if x.producer == "" || len(x.ranks) < x.total {
		return nil
	}
	var c *cover
	for _, r := range slices.Sorted(maps.Keys(x.ranks)) {
		if c == nil {
			c = x.ranks[r]
		} else {
			c = c.intersect(x.ranks[r])
		}
	}
	return c.minus(x.void).boxes()
}

// Has reports whether a box is valid, as far as it moves.
func (x *Expect) Has(b Box) bool {
	if x.producer == "" || len(x.ranks) < x.total {
		return false
	}
	for _, c := range x.ranks {
		if !c.contains(b) {
			return false
		}
	}
	return true
}

// Wake is when the first Tick is due.
func (x *Expect) Wake() time.Time { return x.lease }
