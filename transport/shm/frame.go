package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// The control socket carries frames, each a header of 8 bytes (little-endian
// body length u32, type u8, number of descriptors u8, two zero bytes) and a
// body. Numbers in bodies are little-endian; strings and lists are preceded by
// their u32 length. A side refuses a frame of a type it does not know and one
// whose body does not end where its fields do: the version in hello and
// welcome is the only way to grow.
//
//	hello    version u16, secret 16, token 16         dialler, first
//	welcome  version u16                              acceptor, first
//	memory   manifest (JSON) + 2 descriptors          a rank's memory, read-only
//	forget   engine, rank u32                         that memory is gone
//	ask      an operation of the sender               see ask
//	answer   op u64, error                            the receiver's read may begin, or not
//	end      op u64, mine u8, error, bytes, segments  whoever copies is done
//	stop     op u64, mine u8, error                   whoever copies shall stop
//
// mine is 1 where the operation is the sender's.
const (
	frameHello   = 1
	frameWelcome = 2
	frameMemory  = 3
	frameForget  = 4
	frameAsk     = 5
	frameAnswer  = 6
	frameEnd     = 7
	frameStop    = 8
)

const (
	version    = 1
	headerSize = 8
	maxBody    = 16 << 20
	maxFiles   = 2
)

// FrameError is a frame that cannot be read. The peer is at fault.
type FrameError struct {
	Type   uint8
	Field  string
	Reason string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("transport/shm: the peer's frame of type %d: %s: %s", e.Type, e.Field, e.Reason)
}

// PeerError is a failure on the peer's side that has no type here.
type PeerError struct{ Text string }

func (e *PeerError) Error() string { return "transport/shm: peer: " + e.Text }

// ask is an operation for which the sender wants the receiver's grant.
type ask struct {
	op          uint64 // of the sender
	grant       transport.GrantID
	direction   transport.Direction
	plan        geometry.Digest
	from, to    int64
	layers      plan.Range
	edges       []stamp.EdgeKey // nil: all
	tables      [][]uint32      // what the sender believes of the granted blocks; nil: nothing
	generations [][]uint64
	remaining   int64 // nanoseconds until the deadline
	// A write's own side: the receiver copies from there.
	own      [][]uint32
	snapshot []snapshot
}

// snapshot is the generations of the own entries on one rank.
type snapshot struct {
	rank        int
	generations [][]uint64
}

// forget names memory that is gone.
type forget struct {
	engine string
	rank   int
}

// report is an answer, end or stop.
type report struct {
	op              uint64
	mine            bool
	err             error
	bytes, segments int64
}

type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) i64(v int64)  { e.u64(uint64(v)) }
func (e *encoder) text(s string) {
	e.u32(uint32(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) ids(t [][]uint32) {
	e.u32(uint32(len(t)))
	for _, g := range t {
		e.u32(uint32(len(g)))
		for _, v := range g {
			e.u32(v)
		}
	}
}

func (e *encoder) words(t [][]uint64) {
	e.u32(uint32(len(t)))
	for _, g := range t {
		e.u32(uint32(len(g)))
		for _, v := range g {
			e.u64(v)
		}
	}
}

func (e *encoder) flag(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

// decoder reads fields until the first that is not there; bad then says so.
type decoder struct {
	kind uint8
	b    []byte
	bad  error
}

func (d *decoder) fail(field, reason string) {
	if d.bad == nil {
		d.bad = &FrameError{d.kind, field, reason}
	}
	d.b = nil
}

func (d *decoder) take(n int, field string) []byte {
	if n < 0 || n > len(d.b) {
		d.fail(field, "the frame ends before it")
		return make([]byte, min(max(n, 0), 32))
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8(f string) uint8   { return d.take(1, f)[0] }
func (d *decoder) u32(f string) uint32 { return binary.LittleEndian.Uint32(d.take(4, f)) }
func (d *decoder) u64(f string) uint64 { return binary.LittleEndian.Uint64(d.take(8, f)) }
func (d *decoder) i64(f string) int64  { return int64(d.u64(f)) }

// count reads the length of a list whose items take at least size bytes each.
func (d *decoder) count(size int, f string) int {
	n := int64(d.u32(f))
	if n*int64(size) > int64(len(d.b)) {
		d.fail(f, "longer than the frame")
		return 0
	}
	return int(n)
}

func (d *decoder) text(f string) string { return string(d.take(d.count(1, f), f)) }

func (d *decoder) flag(f string) bool {
	v := d.u8(f)
	if v > 1 {
		d.fail(f, "neither 0 nor 1")
	}
	return v == 1
}

func (d *decoder) small(f string) int {
	v := d.u32(f)
	if v > math.MaxInt32 {
		d.fail(f, "too large")
		return 0
	}
	return int(v)
}

func (d *decoder) ids(f string) [][]uint32 {
	out := make([][]uint32, d.count(4, f))
	for g := range out {
		out[g] = make([]uint32, d.count(4, f))
		for i := range out[g] {
			out[g][i] = d.u32(f)
		}
	}
	return out
}

func (d *decoder) words(f string) [][]uint64 {
	out := make([][]uint64, d.count(4, f))
	for g := range out {
		out[g] = make([]uint64, d.count(8, f))
		for i := range out[g] {
			out[g][i] = d.u64(f)
		}
	}
	return out
}

func (d *decoder) end() error {
	if d.bad == nil && len(d.b) > 0 {
		d.fail("end", fmt.Sprintf("%d bytes too many", len(d.b)))
	}
	return d.bad
}

func (a *ask) encode() []byte {
	var e encoder
	e.u64(a.op)
	e.b = append(e.b, a.grant[:]...)
	e.u8(uint8(a.direction))
	e.b = append(e.b, a.plan[:]...)
	e.i64(a.from)
	e.i64(a.to)
	e.u32(uint32(a.layers.From))
	e.u32(uint32(a.layers.To))
	e.i64(a.remaining)
	e.flag(a.edges != nil)
	if a.edges != nil {
		e.u32(uint32(len(a.edges)))
		for _, k := range a.edges {
			e.u32(uint32(k.Source))
			e.u32(uint32(k.Destination))
		}
	}
	e.flag(a.tables != nil)
	if a.tables != nil {
		e.ids(a.tables)
		e.words(a.generations)
	}
	if a.direction == transport.Write {
		e.ids(a.own)
		e.u32(uint32(len(a.snapshot)))
		for _, s := range a.snapshot {
			e.u32(uint32(s.rank))
			e.words(s.generations)
		}
	}
	return e.b
}

func decodeAsk(body []byte) (*ask, error) {
	d := &decoder{kind: frameAsk, b: body}
	a := &ask{op: d.u64("op")}
	copy(a.grant[:], d.take(16, "grant"))
	a.direction = transport.Direction(d.u8("direction"))
	if a.direction != transport.Read && a.direction != transport.Write {
		d.fail("direction", "neither read nor write")
	}
	copy(a.plan[:], d.take(32, "plan"))
	a.from, a.to = d.i64("from"), d.i64("to")
	a.layers.From, a.layers.To = d.small("layers"), d.small("layers")
	a.remaining = d.i64("deadline")
	if d.flag("edges") {
		a.edges = make([]stamp.EdgeKey, d.count(8, "edges"))
		for i := range a.edges {
			a.edges[i] = stamp.EdgeKey{Source: d.small("edges"), Destination: d.small("edges")}
		}
	}
	if d.flag("tables") {
		a.tables = d.ids("tables")
		a.generations = d.words("generations")
	}
	if a.direction == transport.Write {
		a.own = d.ids("own tables")
		a.snapshot = make([]snapshot, d.count(8, "snapshot"))
		for i := range a.snapshot {
			a.snapshot[i] = snapshot{d.small("snapshot"), d.words("snapshot")}
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return a, nil
}

func (f forget) encode() []byte {
	var e encoder
	e.text(f.engine)
	e.u32(uint32(f.rank))
	return e.b
}

func decodeForget(body []byte) (forget, error) {
	d := &decoder{kind: frameForget, b: body}
	f := forget{d.text("engine"), d.small("rank")}
	return f, d.end()
}

func (r *report) encode() []byte {
	var e encoder
	e.u64(r.op)
	e.flag(r.mine)
	e.fault(r.err)
	e.i64(r.bytes)
	e.i64(r.segments)
	return e.b
}

func decodeReport(kind uint8, body []byte) (*report, error) {
	d := &decoder{kind: kind, b: body}
	r := &report{op: d.u64("op"), mine: d.flag("mine"), err: d.fault()}
	r.bytes, r.segments = d.i64("bytes"), d.i64("segments")
	if r.bytes < 0 || r.segments < 0 {
		d.fail("bytes", "negative")
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// Error codes on the wire.
const (
	codeNone         = 0
	codeNotGranted   = 1
	codeDeadline     = 2
	codeCanceled     = 3
	codePeerGone     = 4
	codeUnknown      = 5
	codeMismatch     = 6
	codeStale        = 7
	codeUnregistered = 8
	codeOther        = 9
	codeNotSupported = 10
)

const maxText = 4096

func (e *encoder) fault(err error) {
	var unknown *transport.Unknown
	var mismatch *transport.Mismatch
	var stale *transport.Stale
	var gone *transport.Unregistered
	switch {
	case err == nil:
		e.u8(codeNone)
	case errors.As(err, &unknown):
		e.u8(codeUnknown)
		e.b = append(e.b, unknown.Plan[:]...)
	case errors.As(err, &mismatch):
		e.u8(codeMismatch)
		e.text(cut(mismatch.Field))
		e.text(cut(mismatch.Asked))
		e.text(cut(mismatch.Grants))
	case errors.As(err, &stale):
		e.u8(codeStale)
		e.u32(uint32(stale.Group))
		e.u32(uint32(stale.Rank))
		e.u32(stale.Block)
		e.u64(stale.Granted)
		e.u64(stale.Found)
	case errors.As(err, &gone):
		e.u8(codeUnregistered)
		e.text(cut(gone.Engine))
		e.u32(uint32(gone.Rank))
	case errors.Is(err, transport.ErrNotGranted):
		e.u8(codeNotGranted)
	case errors.Is(err, transport.ErrDeadline):
		e.u8(codeDeadline)
	case errors.Is(err, transport.ErrCanceled):
		e.u8(codeCanceled)
	case errors.Is(err, transport.ErrPeerGone), errors.Is(err, transport.ErrClosed):
		e.u8(codePeerGone)
	case errors.Is(err, transport.ErrNotSupported):
		e.u8(codeNotSupported)
	default:
		e.u8(codeOther)
		e.text(cut(err.Error()))
	}
}

func cut(s string) string { return s[:min(len(s), maxText)] }

func (d *decoder) fault() error {
	switch code := d.u8("error"); code {
	case codeNone:
		return nil
	case codeNotGranted:
		return transport.ErrNotGranted
	case codeDeadline:
		return transport.ErrDeadline
	case codeCanceled:
		return transport.ErrCanceled
	case codePeerGone:
		return transport.ErrPeerGone
	case codeNotSupported:
		return transport.ErrNotSupported
	case codeUnknown:
		u := &transport.Unknown{}
		copy(u.Plan[:], d.take(32, "plan"))
		return u
	case codeMismatch:
		return &transport.Mismatch{Field: d.text("field"), Asked: d.text("asked"), Grants: d.text("grants")}
	case codeStale:
		return &transport.Stale{Group: d.small("group"), Rank: d.small("rank"), Block: d.u32("block"), Granted: d.u64("granted"), Found: d.u64("found")}
	case codeUnregistered:
		return &transport.Unregistered{Engine: d.text("engine"), Rank: d.small("rank")}
	case codeOther:
		return &PeerError{d.text("error")}
	default:
		d.fail("error", fmt.Sprintf("code %d is not known", code))
		return nil
	}
}
