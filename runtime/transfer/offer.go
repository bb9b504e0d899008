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

// Key names one opened transfer at its owner; the owner's driver chooses it,
// never the same twice.
type Key uint64

// OfferSpec describes an offer to its machine.
type OfferSpec struct {
	Shape     Shape
	From, To  int64 // canonical tokens
	Lease     time.Duration
	Limit     time.Time // the offer ends then, however often it was extended
	Readers   int       // consumers after which it is free, >= 1
	Streaming bool      // nothing is ready before Written
}

// Offer is the owner's side of reading. Driven by one caller at a time.
type Offer struct {
	spec      OfferSpec
	lease     time.Time
	ready     *cover
	readers   map[Key]*reader
	consumers map[string]*consumer
	uses      int
	reason    Reason // set: closing
	freed     bool
}

type reader struct {
	open     OpenRead
	finished bool // nothing of the reader's touches our blocks any more
	stopping bool
}

type consumer struct {
	total    int           // ranks of its engine
	used     map[int][]Box // by rank: what it asked for
	finished map[int]bool  // ranks that want no more
	failed   bool
}

// NewOffer opens an offer.
func NewOffer(spec OfferSpec, now time.Time) *Offer {
	o := &Offer{spec: spec, lease: earlier(now.Add(spec.Lease), spec.Limit), ready: newCover(spec.Shape),
		readers: map[Key]*reader{}, consumers: map[string]*consumer{}}
	if !spec.Streaming {
		o.written(spec.Shape.Boxes(spec.Shape.Layers(), spec.From, spec.To))
	}
	return o
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (o *Offer) written(bs []Box) {
	for _, b := range bs {
		o.ready.add(b)
	}
}

// OfferEvent is what happened to an offer: one of the types below.
type OfferEvent interface{ offerEvent() }

type (
	// OpenRead is a consumer's genuine ticket.
	OpenRead struct {
		Key      Key
		Consumer string // engine and incarnation
		Ranks    []int  // of the consumer, that this opener speaks for
		Total    int    // ranks of the consumer's engine
		From, To int64
		Layers   plan.Range
		More     bool
	}
	// Written says that the engine wrote boxes.
	Written struct{ Boxes []Box }
	// ReadDone is the reader's Done.
	ReadDone struct {
		Key Key
		Err error
	}
	// ReaderGone is a reader whose connection is lost.
	ReaderGone struct{ Key Key }
	// Stopped answers Stop: nothing of the key touches our blocks any more.
	Stopped struct{ Key Key }
	// Beaten is a beat of a reader, or a ticket extended.
	Beaten struct{}
	// Tick is the time that Wake asked for.
	Tick struct{}
	// End is the owner's wish.
	End struct{ Reason Reason }
)

func (OpenRead) offerEvent()   {}
func (Written) offerEvent()    {}
func (ReadDone) offerEvent()   {}
func (ReaderGone) offerEvent() {}
func (Stopped) offerEvent()    {}
func (Beaten) offerEvent()     {}
func (Tick) offerEvent()       {}
func (End) offerEvent()        {}

// Marked are boxes for one reader.
type Marked struct {
	Key   Key
	Boxes []Box
}

// Stop asks the driver to take a grant away and to answer Stopped when
// nothing of it runs any more.
type Stop struct {
	Key Key
	// Fence: the handle did not say that it finished. Where the provider's
	// Revoke is not enough, the peer has to be fenced.
	Fence bool
	Tell  error // not nil: tell the opener, with this reason
	// Failure is what the opener, which has finished, is to hear of it.
	Failure error
}

// OfferReady is what to do, in this order.
type OfferReady struct {
	Err   error // the event was refused and changed nothing
	Grant bool  // OpenRead: grant it, with Ready
	Ready []Box
	Marks []Marked
	Stop  []Stop
	Wake  time.Time // send Tick then; zero: never
	// Free: bump the generations and give the blocks back. Once.
	Free   bool
	Reason Reason
}

// Step advances the offer.
func (o *Offer) Step(now time.Time, ev OfferEvent) OfferReady {
	var out OfferReady
	switch ev := ev.(type) {
	case OpenRead:
		if err := o.open(now, ev); err != nil {
			out.Err = err
			break
		}
		out.Grant, out.Ready = true, o.ready.boxes()
	case Written:
		for _, b := range ev.Boxes {
			if err := o.spec.Shape.Check(b, o.spec.From, o.spec.To); err != nil {
				return OfferReady{Err: blame.On(blame.Local, err), Wake: o.wake()}
			}
		}
		if o.reason != "" {
			out.Err = fmt.Errorf("mark as ready: %w (%s)", ErrUnknown, o.reason)
			break
		}
		before := o.ready.clone()
		o.written(ev.Boxes)
		if o.ready.most() > MaxSpans {
			o.ready = before
			out.Err = blame.On(blame.Local, fmt.Errorf("%w: a layer's ready marks fall into more than %d ranges", ErrLimit, MaxSpans))
			break
		}
		if news := o.ready.minus(before).boxes(); len(news) > 0 {
			for _, k := range o.keys() {
				if r := o.readers[k]; !r.stopping {
					out.Marks = append(out.Marks, Marked{k, news})
				}
			}
		}
	case ReadDone:
		if r := o.readers[ev.Key]; r != nil && !r.finished {
			r.finished = true
			o.count(r, ev.Err)
			if !r.stopping {
				r.stopping = true
				out.Stop = append(out.Stop, Stop{Key: ev.Key})
			}
		}
	case ReaderGone:
		if r := o.readers[ev.Key]; r != nil && !r.stopping {
			r.stopping = true
			out.Stop = append(out.Stop, Stop{Key: ev.Key, Fence: true})
		}
	case Stopped:
		delete(o.readers, ev.Key)
	case Beaten:
		if o.reason == "" {
			if l := earlier(now.Add(o.spec.Lease), o.spec.Limit); l.After(o.lease) {
				o.lease = l
			}
		}
	case Tick:
		if !now.Before(o.lease) {
			o.end(Expired, ErrExpired, &out)
		}
	case End:
		cause := ErrEnded
		if ev.Reason == Shut {
			cause = ErrShut
		}
		o.end(ev.Reason, cause, &out)
	}
	o.settle(&out)
	out.Wake = o.wake()
	return out
}

func (o *Offer) wake() time.Time {
	if o.reason != "" {
		return time.Time{}
	}
	return o.lease
}

// TTL is how long the lease still lasts.
func (o *Offer) TTL(now time.Time) time.Duration { return o.lease.Sub(now) }

// Open reports whether the offer takes readers.
func (o *Offer) Open() bool { return o.reason == "" }

func (o *Offer) keys() []Key { return slices.SortedFunc(maps.Keys(o.readers), cmp.Compare[Key]) }

func (o *Offer) open(now time.Time, ev OpenRead) error {
	if o.reason != "" || !now.Before(o.lease) {
		return &TicketError{ErrUnknown, "offer", "given back", "an open one"}
	}
	if err := checkTokens(ev.From, ev.To, o.spec.From, o.spec.To); err != nil {
		return fmt.Errorf("%w: %w", ErrRange, err)
	}
	if err := o.spec.Shape.CheckLayers(ev.Layers); err != nil {
		return fmt.Errorf("%w: %w", ErrRange, err)
	}
	for _, r := range ev.Ranks {
		if r < 0 || r >= ev.Total {
			return fmt.Errorf("%w: %w", ErrRange, &RangeError{"rank", fmt.Sprint(r), fmt.Sprintf("the consumer's %d ranks", ev.Total)})
		}
	}
	c := o.consumers[ev.Consumer]
	if c == nil {
		if len(o.consumers) >= MaxReaders {
			return fmt.Errorf("%w: more than %d consumers of one offer", ErrLimit, MaxReaders)
		}
		c = &consumer{total: ev.Total, used: map[int][]Box{}, finished: map[int]bool{}}
	}
	if o.uses+len(ev.Ranks) > MaxUses {
		return fmt.Errorf("%w: more than %d reads of one offer", ErrLimit, MaxUses)
	}
	ask := Box{0, ev.Layers, ev.From, ev.To}
	for _, r := range ev.Ranks {
		for _, used := range c.used[r] {
			if intersects(used, ask) {
				return &TicketError{ErrUsed, fmt.Sprintf("consumer %s rank %d", ev.Consumer, r),
					fmt.Sprintf("layers %d-%d tokens %d-%d", ask.Layers.From, ask.Layers.To-1, ask.From, ask.To-1), "a range not asked for before"}
			}
		}
		if c.finished[r] {
			return &TicketError{ErrUsed, fmt.Sprintf("consumer %s rank %d", ev.Consumer, r), "another read", "none after its last one"}
		}
	}
	o.uses += len(ev.Ranks)
	for _, r := range ev.Ranks {
		c.used[r] = append(c.used[r], ask)
	}
	o.consumers[ev.Consumer] = c
	o.readers[ev.Key] = &reader{open: ev}
	return nil
}

func intersects(a, b Box) bool {
	return a.Layers.From < b.Layers.To && b.Layers.From < a.Layers.To && a.From < b.To && b.From < a.To
}

// count enters what a reader finished with. A rank that had nothing to read
// finishes like any other; one that still reads under another key, or said
// that more follows, is not finished.
func (o *Offer) count(r *reader, err error) {
	c := o.consumers[r.open.Consumer]
	if err != nil {
		c.failed = true
	}
	if r.open.More {
		return
	}
	for _, rank := range r.open.Ranks {
		c.finished[rank] = true
	}
}

func (o *Offer) end(why Reason, cause error, out *OfferReady) {
	if o.reason != "" {
		return
	}
	o.reason = why
	for _, k := range o.keys() {
		if r := o.readers[k]; !r.stopping {
			r.stopping = true
			out.Stop = append(out.Stop, Stop{Key: k, Fence: !r.finished, Tell: cause})
		}
	}
}

// settle ends an offer that every reader has finished, and frees one that
// ended and that nothing touches any more.
func (o *Offer) settle(out *OfferReady) {
	if o.reason == "" {
		busy := map[string]bool{}
		for _, r := range o.readers {
			if !r.finished && !r.stopping {
				busy[r.open.Consumer] = true // an earlier read of a rank may outlast its last one
			}
		}
		done, failed := 0, false
		for name, c := range o.consumers {
			if len(c.finished) == c.total && !busy[name] {
				done++
				failed = failed || c.failed
			}
		}
		if done >= o.spec.Readers {
			why := Read
			if failed {
				why = Abandoned
			}
			o.end(why, ErrEnded, out)
		}
	}
	if o.reason != "" && len(o.readers) == 0 && !o.freed {
		o.freed = true
		out.Free, out.Reason = true, o.reason
	}
}

// Wake is when the first Tick is due.
func (o *Offer) Wake() time.Time { return o.wake() }
