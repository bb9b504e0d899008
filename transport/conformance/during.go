package conformance

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/transport"
)

// The tests in this file catch an operation in the middle. Each tries often
// enough that it does; an operation that finished first must be right.
const attempts = 12

// bigTransfer is a transfer of everything the big case has.
func (w *world) bigTransfer(t *testing.T, d transport.Direction) transferCase {
	n := w.c.tokens
	x := transferCase{direction: d, source: w.source.alloc(t, n), destination: w.destination.alloc(t, n), to: n}
	w.source.set(1)
	w.destination.set(0)
	return x
}

// set fills all memory of a side with a byte.
func (e *end) set(v byte) {
	e.spread(func(b []byte) {
		for k := range b {
			b[k] = v
		}
	})
}

// unlike counts the bytes of a side that differ from v.
func (e *end) unlike(v byte) (n int) {
	e.spread(func(b []byte) { n += len(b) - bytes.Count(b, []byte{v}) })
	return n
}

// caught runs attempts of a big transfer; disturb is called right after each
// submission. It returns the errors. An operation that reports success must
// have brought every byte.
func caught(t *testing.T, w *world, d transport.Direction, disturb func(id transport.OpID, op transport.Operation), again func()) (failed []error) {
	x := w.bigTransfer(t, d)
	for range attempts {
		w.t = t
		id, op := w.start(x)
		disturb(id, op)
		c := w.wait(w.submitter(d), id)
		if c.Err != nil {
			failed = append(failed, c.Err)
		} else if n := w.destination.unlike(1); n > 0 {
			t.Fatalf("success was reported with %d bytes wrong", n)
		}
		w.granter(d).provider.Revoke(op.Grant)
		if again != nil {
			again()
		}
		if len(failed) >= 3 {
			break
		}
	}
	return failed
}

func cancels(t *testing.T, w *world, d transport.Direction) {
	failed := caught(t, w, d, func(id transport.OpID, _ transport.Operation) {
		if err := w.submitter(d).provider.Cancel(id); err != nil {
			t.Errorf("cancel: %v", err)
		}
	}, func() { w.destination.set(0) })
	if len(failed) == 0 {
		t.Errorf("none of %d operations was canceled", attempts)
	}
	for _, err := range failed {
		if !errors.Is(err, transport.ErrCanceled) {
			t.Errorf("canceled: got %v", err)
		}
	}
	// Nothing of it goes on: what is written now stays.
	w.destination.set(7)
	time.Sleep(20 * time.Millisecond)
	if n := w.destination.unlike(7); n > 0 {
		t.Errorf("%d bytes were written after the operation's completion", n)
	}
}

func deadlines(t *testing.T, w *world, d transport.Direction) {
	x := w.bigTransfer(t, d)
	failed := 0
	for limit := 4 * time.Millisecond; limit > 100*time.Microsecond && failed < 2; limit /= 2 {
		x.deadline = limit
		w.destination.set(0)
		switch err := w.try(x); {
		case err == nil:
			if n := w.destination.unlike(1); n > 0 {
				t.Fatalf("success was reported with %d bytes wrong", n)
			}
		case errors.Is(err, transport.ErrDeadline):
			failed++
		default:
			t.Errorf("deadline of %v: got %v", limit, err)
		}
	}
	if failed == 0 {
		t.Error("no operation missed its deadline")
	}
	x.deadline = patience
	w.move(x) // the connection is sound
}

func staleDuring(t *testing.T, w *world, d transport.Direction) {
	granter := w.granter(d)
	x := w.bigTransfer(t, d)
	table := x.source
	if d == transport.Write {
		table = x.destination
	}
	stale := 0
	for i := range attempts {
		w.t = t
		w.source.set(1)
		w.destination.set(0)
		id, op := w.start(x)
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		// The owner gives the blocks back and reuses them at once. A reader
		// that is late must not report success; a writer must not either.
		granter.release(t, 0, table[0])
		if d == transport.Read {
			granter.set(2)
		}
		c := w.wait(w.submitter(d), id)
		var s *transport.Stale
		switch {
		case errors.As(c.Err, &s):
			stale++
		case c.Err != nil:
			t.Errorf("got %v, want *Stale", c.Err)
		default:
			if n := w.destination.unlike(1); n > 0 {
				t.Fatalf("success was reported with %d bytes of reused blocks", n)
			}
		}
		if err := granter.provider.Revoke(op.Grant); err != nil {
			t.Errorf("revoke: %v", err)
		}
		if stale >= 3 && i > 4 {
			break
		}
	}
	if stale == 0 {
		t.Errorf("none of %d operations met a block that was given back", attempts)
	}
}

func revokes(t *testing.T, w *world, d transport.Direction) {
	failed := caught(t, w, d, func(_ transport.OpID, op transport.Operation) {
		if err := w.granter(d).provider.Revoke(op.Grant); err != nil {
			t.Errorf("revoke: %v", err)
		}
		if d == transport.Write {
			// No copy under it is running at the destination any more: it
			// may give the blocks to someone else.
			before := w.destination.unlike(0)
			time.Sleep(2 * time.Millisecond)
			if after := w.destination.unlike(0); after != before {
				t.Errorf("%d bytes were written after Revoke returned", after-before)
			}
		}
	}, func() { w.destination.set(0) })
	for _, err := range failed {
		if !errors.Is(err, transport.ErrNotGranted) {
			t.Errorf("revoked: got %v", err)
		}
	}
	if len(failed) == 0 {
		t.Errorf("none of %d operations was revoked", attempts)
	}
}

func disconnects(t *testing.T, w *world, d transport.Direction) {
	x := w.bigTransfer(t, d)
	id, _ := w.start(x)
	granter, submitter := w.granter(d), w.submitter(d)
	if err := granter.provider.Disconnect(granter.peer); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(submitter, id).Err; err == nil {
		if n := w.destination.unlike(1); n > 0 {
			t.Fatalf("success was reported with %d bytes wrong", n)
		}
	} else if !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("the peer disconnected: got %v", err)
	}
	for i := 0; submitter.provider.Health(submitter.peer) == nil; i++ {
		if i == 1000 {
			t.Fatal("the peer that disconnected is believed alive")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := submitter.provider.Health(submitter.peer); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("health: %v", err)
	}
	if _, err := w.grant(x); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("granted to a peer that is gone: %v", err)
	}
	if err := submitter.provider.Disconnect(submitter.peer); err != nil {
		t.Errorf("disconnect from a peer that is gone: %v", err)
	}
}

// closes closes one provider, then the other, in the middle.
func closes(t *testing.T, harness func(t *testing.T) Harness, d transport.Direction) {
	for _, who := range []string{"submitter", "granter"} {
		t.Run(who, func(t *testing.T) {
			before := count()
			w := open(t, harness(t), big)
			x := w.bigTransfer(t, d)
			id, _ := w.start(x)
			first, other := w.submitter(d), w.granter(d)
			want := transport.ErrClosed
			if who == "granter" {
				first, other = other, first
				want = transport.ErrPeerGone
			}
			if err := first.provider.Close(); err != nil {
				t.Fatal(err)
			}
			if c := w.wait(w.submitter(d), id); c.Err == nil {
				if n := w.destination.unlike(1); n > 0 {
					t.Fatalf("success was reported with %d bytes wrong", n)
				}
			} else if !errors.Is(c.Err, want) {
				t.Errorf("the %s closed: got %v, want %v", who, c.Err, want)
			}
			if err := other.provider.Close(); err != nil {
				t.Fatal(err)
			}
			for _, e := range []*end{first, other} {
				if err := e.provider.Close(); !errors.Is(err, transport.ErrClosed) {
					t.Errorf("second close: %v", err)
				}
				for _, p := range e.pools {
					p.Close()
				}
			}
			for _, l := range w.owner.Leaks() {
				t.Errorf("not closed: %s", l)
			}
			before.same(t)
		})
	}
}
