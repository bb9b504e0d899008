package tcp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/wire"
)

func clean(s string) string { return strings.Join(strings.Fields(s), "") }

func TestFramesOnTheWire(t *testing.T) {
	a := &ask{grant: transport.GrantID{1, 2}, direction: transport.Write, remaining: 1e9, bytes: 1 << 33,
		request: stamp.Request{From: 16, To: 4096, Layers: plan.Range{From: 3, To: 80}, Edges: []stamp.EdgeKey{{Source: 1, Destination: 2}}}}
	a.request.Plan[31] = 0xff
	b := *a
	b.request.Spans, b.request.Edges = []stamp.Span{{From: 16, To: 4000}, {From: 0, To: 1}}, nil
	for _, c := range []struct {
		name string
		h    header
		body []byte
		want string
	}{
		{"ask", header{kind: kindAsk, mine: true, op: 1}, a.encode(), `
			67000000 01 01 0000 0100000000000000 00000000 0000000000000000 015e0273 1011ddf6
			01020000000000000000000000000000
			02 00000000000000000000000000000000000000000000000000000000000000ff
			1000000000000000 0010000000000000 00 03000000 50000000
			01 01000000 01000000 02000000 00ca9a3b00000000 0000000002000000`},
		{"ask with spans", header{kind: kindAsk, mine: true, op: 1}, b.encode(), `
			7f000000 01 01 0000 0100000000000000 00000000 0000000000000000 be431074 baaf16e9
			01020000000000000000000000000000
			02 00000000000000000000000000000000000000000000000000000000000000ff
			1000000000000000 0010000000000000
			01 02000000 1000000000000000 a00f000000000000 0000000000000000 0100000000000000
			03000000 50000000 00 00ca9a3b00000000 0000000002000000`},
		{"go", header{kind: kindGo, op: 1}, nil, `
			00000000 02 00 0000 0100000000000000 00000000 0000000000000000 39c3f9b1 39c3f9b1`},
		{"data", header{kind: kindData, mine: true, op: 7, part: 2, offset: 1 << 18}, []byte("block"), `
			05000000 03 01 0000 0700000000000000 02000000 0000040000000000 1015603c c57b28bb 626c6f636b`},
		{"end", header{kind: kindEnd, op: 7}, (&report{bytes: 4096, segments: 3}).encode(kindEnd), `
			11000000 04 00 0000 0700000000000000 00000000 0000000000000000 9e841336 1996d771
			00 0010000000000000 0300000000000000`},
		{"end with an error", header{kind: kindEnd, op: 7}, (&report{err: transport.ErrNotGranted}).encode(kindEnd), `
			11000000 04 00 0000 0700000000000000 00000000 0000000000000000 9e841336 192bf191
			01 0000000000000000 0000000000000000`},
		{"stop", header{kind: kindStop, mine: true, op: 7}, (&report{err: transport.ErrCanceled}).encode(kindStop), `
			01000000 05 01 0000 0700000000000000 00000000 0000000000000000 025f6cfc 0dbceaa0 03`},
		{"ping", header{kind: kindPing}, nil, `
			00000000 06 00 0000 0000000000000000 00000000 0000000000000000 5ed35d64 5ed35d64`},
		{"bye", header{kind: kindBye}, (&report{err: transport.ErrPeerGone}).encode(kindBye), `
			01000000 07 00 0000 0000000000000000 00000000 0000000000000000 e49a077c d1fc31b1 04`},
	} {
		got := c.h.frame(c.body)
		if hex.EncodeToString(got) != clean(c.want) {
			t.Errorf("%s:\n%x, want\n%s", c.name, got, clean(c.want))
		}
		h, body, err := readOne(got)
		if err != nil || h != c.h || !bytes.Equal(body, c.body) {
			t.Errorf("%s is read as %+v, %x, %v", c.name, h, body, err)
		}
	}
}

func TestHelloOnTheWire(t *testing.T) {
	h := hello{version: version, role: roleControl, streams: 2, token: key{1, 2, 3}, progress: 5000}
	want := clean(`4b564659 0100 01 02 01020300000000000000000000000000 00000000000000000000000000000000 88130000 af4f6f7b`)
	if got := hex.EncodeToString(h.encode()); got != want {
		t.Errorf("hello:\n%s, want\n%s", got, want)
	}
	if got, s, err := readHello(bytes.NewReader(h.encode())); got != h || s != statusOK || err != nil {
		t.Errorf("hello is read as %+v, %v, %v", got, s, err)
	}
	w := welcome{version: version, secret: key{9}, progress: 250}
	want = clean(`4b564659 0100 00 00 09000000000000000000000000000000 fa000000 0da159fc`)
	if got := hex.EncodeToString(w.encode()); got != want {
		t.Errorf("welcome:\n%s, want\n%s", got, want)
	}
	if got, err := readWelcome(bytes.NewReader(w.encode()), roleControl); got != w || err != nil {
		t.Errorf("welcome is read as %+v, %v", got, err)
	}
}

// readOne reads a frame that must be all of b.
func readOne(b []byte) (h header, body []byte, err error) {
	r := reader{r: bytes.NewReader(b)}
	n, err := r.next(&h)
	if err != nil {
		return h, nil, err
	}
	if body, err = r.body(&h, n); err != nil {
		return h, nil, err
	}
	if len(b) != headerSize+n {
		return h, nil, fmt.Errorf("%d bytes are left", len(b)-headerSize-n)
	}
	return h, body, nil
}

// Damage is found wherever it is, before anything waits for bytes that a
// damaged length promises.
func TestEveryDamagedBitIsFound(t *testing.T) {
	h := header{kind: kindData, mine: true, op: 7, part: 2, offset: 1 << 18}
	good := h.frame([]byte("the bytes of a block"))
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			var e *FrameError
			_, _, err := readOne(b)
			field := "check"
			if i >= 32 {
				field = "crc"
			}
			if !errors.As(err, &e) || e.Field != field {
				t.Fatalf("byte %d bit %d: %v, want a wrong %s", i, bit, err, field)
			}
		}
	}
	for n := range good {
		_, _, err := readOne(good[:n])
		if want := io.ErrUnexpectedEOF; n > 0 && err != want || n == 0 && err != io.EOF {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// reseal makes the checks of a frame right again after an edit.
func reseal(b []byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	le.PutUint32(b[32:], crc32.Checksum(append(bytes.Clone(b[:28]), b[headerSize:]...), castagnoli))
	return b
}

func TestHeaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		h     header
		body  int
		edit  func(b []byte)
		frame string
		field string
		got   string
	}{
		{"type 0", header{kind: 0}, 0, nil, "header", "type", "0"},
		{"type 8", header{kind: 8}, 0, nil, "header", "type", "8"},
		{"too long", header{kind: kindData, op: 1}, 1, func(b []byte) { binary.LittleEndian.PutUint32(b, 1<<20+1) }, "data", "length", "1048577"},
		{"longest length there is", header{kind: kindAsk, mine: true, op: 1}, 1, func(b []byte) { binary.LittleEndian.PutUint32(b, 1<<32-1) }, "ask", "length", "4294967295"},
		{"empty data", header{kind: kindData, op: 1}, 0, nil, "data", "length", "0"},
		{"ping with a body", header{kind: kindPing}, 1, nil, "ping", "length", "1"},
		{"mine is 2", header{kind: kindData, op: 1}, 1, func(b []byte) { b[5] = 2 }, "data", "mine", "2"},
		{"an end of one's own operation", header{kind: kindEnd, mine: true, op: 1}, 1, nil, "end", "mine", "1"},
		{"an ask for the other's operation", header{kind: kindAsk, op: 1}, 1, nil, "ask", "mine", "0"},
		{"zero bytes that are not", header{kind: kindData, op: 1}, 1, func(b []byte) { b[7] = 1 }, "data", "bytes 6 and 7", "0001"},
		{"no operation", header{kind: kindData}, 1, nil, "data", "op", "0"},
		{"a ping of an operation", header{kind: kindPing, op: 3}, 0, nil, "ping", "op", "3"},
		{"a part of an ask", header{kind: kindAsk, mine: true, op: 1, part: 1}, 1, nil, "ask", "part", "1"},
		{"an offset of an end", header{kind: kindEnd, op: 1, offset: 4}, 1, nil, "end", "offset", "4"},
	} {
		b := c.h.frame(make([]byte, c.body))
		if c.edit != nil {
			c.edit(b)
		}
		var e *FrameError
		if _, _, err := readOne(reseal(b)); !errors.As(err, &e) || e.Frame != c.frame || e.Field != c.field || e.Got != c.got || e.Want == "" {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestBodiesRefuse(t *testing.T) {
	good := (&ask{direction: transport.Read, request: stamp.Request{To: 1, Edges: []stamp.EdgeKey{{Source: 1}}}}).encode()
	edit := func(i int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[i:], v)
		return b
	}
	for _, c := range []struct {
		name  string
		kind  kind
		body  []byte
		field string
	}{
		{"direction", kindAsk, edit(16, 3), "direction"},
		{"spans or none", kindAsk, edit(65, 2), "spans"},
		{"a lying count of spans", kindAsk, edit(65, 1, 0xff, 0xff, 0xff, 0xff), "spans"},
		{"layers", kindAsk, edit(66, 0xff, 0xff, 0xff, 0xff), "layers.from"},
		{"all edges or some", kindAsk, edit(74, 7), "edges"},
		{"a lying count", kindAsk, edit(75, 0xff, 0xff, 0xff, 0xff), "edges"},
		{"cut short", kindAsk, good[:60], "to"},
		{"too long", kindAsk, append(bytes.Clone(good), 0), "end"},
		{"an unknown error", kindEnd, append([]byte{200}, make([]byte, 16)...), "error"},
		{"fewer than no bytes", kindEnd, append([]byte{0}, bytes.Repeat([]byte{0xff}, 16)...), "bytes"},
		{"a stop without a reason", kindStop, []byte{0}, "error"},
	} {
		var err error
		if c.kind == kindAsk {
			_, err = decodeAsk(c.body)
		} else {
			_, err = decodeReport(c.kind, c.body)
		}
		var e *wire.Error
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// Whatever is accepted is written again as it was read.
func FuzzFrame(f *testing.F) {
	a := &ask{direction: transport.Read, request: stamp.Request{From: 1, To: 2, Edges: []stamp.EdgeKey{{Source: 1, Destination: 2}}}}
	spans := &ask{direction: transport.Write, request: stamp.Request{To: 9, Spans: []stamp.Span{{From: 3, To: 9}, {}, {To: 1}}, Edges: []stamp.EdgeKey{}}, bytes: 1}
	for h, body := range map[header][]byte{
		{kind: kindAsk, mine: true, op: 1}:              a.encode(),
		{kind: kindAsk, mine: true, op: 7}:              spans.encode(),
		{kind: kindGo, op: 2}:                           nil,
		{kind: kindData, op: 3, part: 1, offset: 1}:     []byte("x"),
		{kind: kindEnd, op: 4}:                          (&report{bytes: 1}).encode(kindEnd),
		{kind: kindStop, mine: true, op: 5}:             (&report{err: &transport.Stale{Block: 3}}).encode(kindStop),
		{kind: kindPing}:                                nil,
		{kind: kindBye}:                                 (&report{err: transport.ErrPeerGone}).encode(kindBye),
		{kind: kindData, mine: true, op: 1 << 63}:       make([]byte, 300),
		{kind: kindStop, mine: true, op: 6}:             (&report{err: &transport.Mismatch{Field: "to"}}).encode(kindStop),
		{kind: kindEnd, op: 1<<64 - 1, part: 0}:         (&report{err: &transport.Unknown{}}).encode(kindEnd),
		{kind: kindAsk, mine: true, op: 2, part: 0}:     (&ask{direction: transport.Write}).encode(),
		{kind: kindEnd, op: 5, part: 0, offset: 0}:      (&report{err: errors.New("other")}).encode(kindEnd),
		{kind: kindStop, mine: true, op: 9, offset: 0}:  (&report{err: transport.ErrDeadline}).encode(kindStop),
		{kind: kindData, mine: true, op: 2, offset: 12}: bytes.Repeat([]byte{1}, 64),
	} {
		f.Add(h.frame(body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerSize { // or hardly any input gets past the checks
			reseal(b)
		}
		h, body, err := readOne(b)
		if err != nil {
			return
		}
		if got := h.frame(body); !bytes.Equal(got, b) {
			t.Fatalf("%x is read and written as %x", b, got)
		}
		var again []byte
		switch h.kind {
		case kindAsk:
			a, err := decodeAsk(body)
			if err != nil {
				return
			}
			again = a.encode()
		case kindEnd, kindStop, kindBye:
			r, err := decodeReport(h.kind, body)
			if err != nil {
				return
			}
			var other *wire.PeerError
			if errors.As(r.err, &other) { // the prefix is this side's
				r.err = errors.New(other.Text)
			}
			if again = r.encode(h.kind); len(body) > 4096 { // texts are cut
				return
			}
		default:
			return
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("%s: %x is read and written as %x", h.kind, body, again)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{version: version, role: roleControl, streams: 2, token: key{1}, progress: 5000}).encode())
	f.Add((&hello{version: version, role: roleData, streams: 1, token: key{1}, secret: key{2}}).encode())
	f.Add((&hello{version: 2}).encode())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == helloSize {
			binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
		}
		if h, s, err := readHello(bytes.NewReader(b)); err == nil && (s != statusOK || !bytes.Equal(h.encode(), b[:helloSize])) {
			t.Fatalf("%x is read and written as %x", b, h.encode())
		}
		if len(b) == welcomeSize {
			binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
		}
		for _, of := range []role{roleControl, roleData} {
			if w, err := readWelcome(bytes.NewReader(b), of); err == nil && !bytes.Equal(w.encode(), b[:welcomeSize]) {
				t.Fatalf("%x is read and written as %x", b, w.encode())
			}
		}
	})
}
