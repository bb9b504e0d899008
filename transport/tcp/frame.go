package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/wire"
)

type kind uint8

const (
	kindAsk  kind = 1
	kindGo   kind = 2
	kindData kind = 3
	kindEnd  kind = 4
	kindStop kind = 5
	kindPing kind = 6
	kindBye  kind = 7
)

func (k kind) String() string {
	if n := [...]string{"ask", "go", "data", "end", "stop", "ping", "bye"}; k >= 1 && int(k) <= len(n) {
		return n[k-1]
	}
	return fmt.Sprintf("unknown (%d)", uint8(k))
}

const (
	headerSize = 36
	maxBody    = 1 << 20
)

// FrameError is a frame that the peer must not have sent, or that was damaged
// on the way.
type FrameError struct {
	Frame string // "ask", "data", ... or "header" where it is not known
	Field string
	Got   string
	Want  string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("transport/tcp: the peer's %s frame: %s is %s, want %s", e.Frame, e.Field, e.Got, e.Want)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is all of a frame but its body; mine is as its sender sees it.
type header struct {
	kind   kind
	mine   bool
	op     uint64
	part   uint32
	offset uint64
}

func (h *header) bad(field string, got any, want string, args ...any) error {
	return &FrameError{h.kind.String(), field, fmt.Sprint(got), fmt.Sprintf(want, args...)}
}

// seal writes the header of a frame whose body follows it in b.
// Preconditions: headerSize <= len(b) <= headerSize + maxBody.
func (h *header) seal(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(len(b)-headerSize))
	b[4], b[5], b[6], b[7] = uint8(h.kind), 0, 0, 0
	if h.mine {
		b[5] = 1
	}
	le.PutUint64(b[8:], h.op)
	le.PutUint32(b[16:], h.part)
	le.PutUint64(b[20:], h.offset)
	c := crc32.Checksum(b[:28], castagnoli)
	le.PutUint32(b[28:], c)
	le.PutUint32(b[32:], crc32.Update(c, castagnoli, b[headerSize:]))
}

// frame returns a whole frame.
func (h *header) frame(body []byte) []byte {
	b := make([]byte, headerSize+len(body))
	copy(b[headerSize:], body)
	h.seal(b)
	return b
}

// open reads a header and returns the length of its body.
// Preconditions: len(b) == headerSize.
func (h *header) open(b []byte) (length int, err error) {
	le := binary.LittleEndian
	head := func(field string, got any, want string, args ...any) (int, error) {
		return 0, &FrameError{"header", field, fmt.Sprint(got), fmt.Sprintf(want, args...)}
	}
	if got, want := le.Uint32(b[28:]), crc32.Checksum(b[:28], castagnoli); got != want {
		return head("check", fmt.Sprintf("%08x", got), "%08x", want)
	}
	*h = header{kind(b[4]), b[5] == 1, le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint64(b[20:])}
	if h.kind < kindAsk || h.kind > kindBye {
		return head("type", b[4], "1 to 7")
	}
	n := le.Uint32(b)
	low, high := uint32(0), uint32(maxBody)
	switch h.kind {
	case kindData:
		low = 1
	case kindGo, kindPing:
		high = 0
	}
	owner := h.kind == kindGo || h.kind == kindEnd
	submitter := h.kind == kindAsk || h.kind == kindStop
	without := h.kind == kindPing || h.kind == kindBye
	switch {
	case n < low || n > high:
		return 0, h.bad("length", n, "%d to %d", low, high)
	case b[5] > 1 || owner && h.mine || without && h.mine:
		return 0, h.bad("mine", b[5], "0")
	case submitter && !h.mine:
		return 0, h.bad("mine", b[5], "1")
	case b[6]|b[7] != 0:
		return 0, h.bad("bytes 6 and 7", fmt.Sprintf("%x", b[6:8]), "0")
	case without && h.op != 0:
		return 0, h.bad("op", h.op, "0")
	case !without && h.op == 0:
		return 0, h.bad("op", h.op, "at least 1")
	case h.kind != kindData && h.part != 0:
		return 0, h.bad("part", h.part, "0")
	case h.kind != kindData && h.offset != 0:
		return 0, h.bad("offset", h.offset, "0")
	}
	return int(n), nil
}

// reader reads frames of one connection. Its buffers grow to the longest
// frame seen.
type reader struct {
	r    io.Reader
	head [headerSize]byte
	buf  []byte
}

// next reads a header. It returns io.EOF only between frames.
func (r *reader) next(h *header) (length int, err error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return 0, err
	}
	return h.open(r.head[:])
}

// body reads the body of the header that next returned and checks the frame's
// CRC. The bytes are valid until the next call.
func (r *reader) body(h *header, length int) ([]byte, error) {
	if cap(r.buf) < length {
		r.buf = make([]byte, max(length, 4096))
	}
	b := r.buf[:length]
	if _, err := io.ReadFull(r.r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	check, got := binary.LittleEndian.Uint32(r.head[28:]), binary.LittleEndian.Uint32(r.head[32:])
	if want := crc32.Update(check, castagnoli, b); got != want { // check is the CRC so far
		return nil, h.bad("crc", fmt.Sprintf("%08x", got), "%08x", want)
	}
	return b, nil
}

// ask is an operation as its submitter asks for it.
type ask struct {
	grant     transport.GrantID
	direction transport.Direction
	request   stamp.Request // without tables
	remaining int64         // nanoseconds
	bytes     int64
}

func (a *ask) encode() []byte {
	var e wire.Encoder
	e.Raw(a.grant[:])
	e.U8(uint8(a.direction))
	e.Request(&a.request)
	e.I64(a.remaining)
	e.I64(a.bytes)
	return e.B
}

func decodeAsk(b []byte) (*ask, error) {
	d := wire.NewDecoder(b)
	a := &ask{}
	d.Raw(a.grant[:], "grant")
	a.direction = transport.Direction(d.U8("direction"))
	if a.direction != transport.Read && a.direction != transport.Write {
		d.Fail("direction", "is %d, want 1 or 2", a.direction)
	}
	a.request = d.Request()
	a.remaining, a.bytes = d.I64("time left"), d.I64("bytes")
	if err := d.End(); err != nil {
		return nil, fmt.Errorf("transport/tcp: the peer's ask frame: %w", err)
	}
	return a, nil
}

// report is the body of an end, a stop or a bye; the latter two have an error
// only.
type report struct {
	err             error
	bytes, segments int64
}

func (r *report) encode(k kind) []byte {
	var e wire.Encoder
	e.Fault(r.err)
	if k == kindEnd {
		e.I64(r.bytes)
		e.I64(r.segments)
	}
	return e.B
}

func decodeReport(k kind, b []byte) (r report, err error) {
	d := wire.NewDecoder(b)
	r.err = d.Fault()
	if k == kindEnd {
		if r.bytes, r.segments = d.I64("bytes"), d.I64("segments"); r.bytes < 0 || r.segments < 0 {
			d.Fail("bytes", "%d in %d segments, want none below 0", r.bytes, r.segments)
		}
	} else if r.err == nil {
		d.Fail("error", "there is none")
	}
	if err := d.End(); err != nil {
		return report{}, fmt.Errorf("transport/tcp: the peer's %s frame: %w", k, err)
	}
	return r, nil
}
