package shm

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/wire"
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

// ask is an operation for which the sender wants the receiver's grant.
type ask struct {
	op          uint64 // of the sender
	grant       transport.GrantID
	direction   transport.Direction
	request     stamp.Request // without tables
	tables      [][]uint32    // what the sender believes of the granted blocks; nil: nothing
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

// encoder and decoder add the lists of this package to what wire reads and
// writes.
type encoder struct{ wire.Encoder }

func (e *encoder) ids(t [][]uint32) {
	e.U32(uint32(len(t)))
	for _, g := range t {
		e.U32(uint32(len(g)))
		for _, v := range g {
			e.U32(v)
		}
	}
}

func (e *encoder) words(t [][]uint64) {
	e.U32(uint32(len(t)))
	for _, g := range t {
		e.U32(uint32(len(g)))
		for _, v := range g {
			e.U64(v)
		}
	}
}

type decoder struct {
	*wire.Decoder
	kind uint8
}

func read(kind uint8, body []byte) *decoder { return &decoder{wire.NewDecoder(body), kind} }

// end says what was wrong, as an error of the frame.
func (d *decoder) end() error {
	err := d.End()
	var field *wire.Error
	if errors.As(err, &field) {
		return &FrameError{d.kind, field.Field, field.Reason}
	}
	return err
}

func (d *decoder) ids(f string) [][]uint32 {
	out := make([][]uint32, d.Count(4, f))
	for g := range out {
		out[g] = make([]uint32, d.Count(4, f))
		for i := range out[g] {
			out[g][i] = d.U32(f)
		}
	}
	return out
}

func (d *decoder) words(f string) [][]uint64 {
	out := make([][]uint64, d.Count(4, f))
	for g := range out {
		out[g] = make([]uint64, d.Count(8, f))
		for i := range out[g] {
			out[g][i] = d.U64(f)
		}
	}
	return out
}

func (a *ask) encode() []byte {
	var e encoder
	e.U64(a.op)
	e.Raw(a.grant[:])
	e.U8(uint8(a.direction))
	e.Request(&a.request)
	e.I64(a.remaining)
	e.Flag(a.tables != nil)
	if a.tables != nil {
		e.ids(a.tables)
		e.words(a.generations)
	}
	if a.direction == transport.Write {
		e.ids(a.own)
		e.U32(uint32(len(a.snapshot)))
		for _, s := range a.snapshot {
			e.U32(uint32(s.rank))
			e.words(s.generations)
		}
	}
	return e.B
}

func decodeAsk(body []byte) (*ask, error) {
	d := read(frameAsk, body)
	a := &ask{op: d.U64("op")}
	d.Raw(a.grant[:], "grant")
	a.direction = transport.Direction(d.U8("direction"))
	if a.direction != transport.Read && a.direction != transport.Write {
		d.Fail("direction", "neither read nor write")
	}
	a.request = d.Request()
	a.remaining = d.I64("deadline")
	if d.Flag("tables") {
		a.tables = d.ids("tables")
		a.generations = d.words("generations")
	}
	if a.direction == transport.Write {
		a.own = d.ids("own tables")
		a.snapshot = make([]snapshot, d.Count(8, "snapshot"))
		for i := range a.snapshot {
			a.snapshot[i] = snapshot{d.Small("snapshot"), d.words("snapshot")}
		}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return a, nil
}

func (f forget) encode() []byte {
	var e encoder
	e.Text(f.engine)
	e.U32(uint32(f.rank))
	return e.B
}

func decodeForget(body []byte) (forget, error) {
	d := read(frameForget, body)
	f := forget{d.Text("engine"), d.Small("rank")}
	return f, d.end()
}

func (r *report) encode() []byte {
	var e encoder
	e.U64(r.op)
	e.Flag(r.mine)
	e.Fault(r.err)
	e.I64(r.bytes)
	e.I64(r.segments)
	return e.B
}

func decodeReport(kind uint8, body []byte) (*report, error) {
	d := read(kind, body)
	r := &report{op: d.U64("op"), mine: d.Flag("mine"), err: d.Fault()}
	r.bytes, r.segments = d.I64("bytes"), d.I64("segments")
	if r.bytes < 0 || r.segments < 0 {
		d.Fail("bytes", "negative")
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}
