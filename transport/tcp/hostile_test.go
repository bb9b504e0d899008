package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/wire"
)

// ledger keeps what Options.Refused is told.
type ledger struct {
	mu   sync.Mutex
	errs []error
}

func (l *ledger) add(_ net.Addr, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// find waits for a refusal of a field.
func (l *ledger) find(t *testing.T, field string) *HandshakeError {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		for _, err := range l.errs {
			var e *HandshakeError
			if errors.As(err, &e) && e.Field == field {
				l.mu.Unlock()
				return e
			}
		}
		l.mu.Unlock()
	}
	t.Fatalf("nothing was refused for its %s: %v", field, l.errs)
	return nil
}

// A bad hello is refused by name, with both values, and never stops the
// listener.
func TestHelloRefuses(t *testing.T) {
	var l ledger
	w := newWorld(t).open(Options{Refused: l.add})
	good := hello{version: version, role: roleControl, streams: 2, token: key{1}, progress: 5000}
	edit := func(f func(h *hello)) []byte {
		h := good
		f(&h)
		return h.encode()
	}
	held, _, err := greetRaw(w.source, edit(func(h *hello) { h.token = key{42} }), roleControl)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, c := range []struct {
		name, field, ours, theirs string
		hello                     []byte
		answer                    status // statusOK: none
	}{
		{"http", "magic", "4b564659", "47455420", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n        "), statusOK},
		{"the next version", "version", "1", "2", edit(func(h *hello) { h.version = 2 }), statusVersion},
		{"damaged", "crc", "", "", append(good.encode()[:47], 0xee), statusHello},
		{"role", "role", "1 or 2", "9", edit(func(h *hello) { h.role = 9 }), statusHello},
		{"no streams", "streams", "1 to 16", "0", edit(func(h *hello) { h.streams = 0 }), statusHello},
		{"too many streams", "streams", "1 to 16", "17", edit(func(h *hello) { h.streams = 17 }), statusHello},
		{"no progress timeout", "progress", "at least 1 ms", "0", edit(func(h *hello) { h.progress = 0 }), statusHello},
		{"no token", "token", "not zero", "zero", edit(func(h *hello) { h.token = key{} }), statusHello},
		{"a token in use", "token", "in use", "the same", edit(func(h *hello) { h.token = key{42} }), statusToken},
		{"data of nobody", "token", "of no connection", key{77}.String(), edit(func(h *hello) { h.role, h.progress, h.token = roleData, 0, key{77} }), statusUnknown},
		{"data with a guessed secret", "secret", "another", "not the one that was given", edit(func(h *hello) { h.role, h.progress, h.token, h.secret = roleData, 0, key{42}, key{1} }), statusUnknown},
	} {
		l.mu.Lock()
		l.errs = nil
		l.mu.Unlock()
		conn, err := net.Dial("tcp", string(w.source.Address().Data))
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		conn.Write(c.hello)
		_, err = readWelcome(conn, roleControl)
		var e *HandshakeError
		if c.answer == statusOK {
			if err == nil || errors.As(err, &e) {
				t.Errorf("%s: answered with %v", c.name, err)
			}
		} else if !errors.As(err, &e) || e.Field != "status" || e.Theirs != c.answer.String() {
			t.Errorf("%s: answered with %v, want %q", c.name, err, c.answer)
		}
		conn.Close()
		if e := l.find(t, c.field); c.ours != "" && (e.Ours != c.ours || e.Theirs != c.theirs) {
			t.Errorf("%s: %v, want ours %s, theirs %s", c.name, e, c.ours, c.theirs)
		}
	}
	if err := w.connect(""); err != nil {
		t.Errorf("an honest peer afterwards: %v", err)
	}
}

// fake answers every connection with the same bytes.
func fake(t *testing.T, answer []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, helloSize))
			c.Write(answer)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestConnectRefuses(t *testing.T) {
	w := newWorld(t)
	w.source = w.provider(Options{Handshake: 300 * time.Millisecond})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed.Close()
	gone := func(err error) bool { return errors.Is(err, transport.ErrPeerGone) }
	field := func(name, ours, theirs string) func(error) bool {
		return func(err error) bool {
			var e *HandshakeError
			return errors.As(err, &e) && e.Field == name && e.Ours == ours && e.Theirs == theirs
		}
	}
	for _, c := range []struct {
		name, at string
		ok       func(error) bool
	}{
		{"nobody listens", closed.Addr().String(), gone},
		{"nobody answers", silent.Addr().String(), func(err error) bool { return gone(err) && errors.Is(err, context.DeadlineExceeded) }},
		{"hangs up", fake(t, nil), gone},
		{"another version", fake(t, (&welcome{version: 7, progress: 1}).encode()), field("version", "1", "7")},
		{"another protocol", fake(t, []byte("HTTP/1.1 400 Bad Request\r\n\r\n         ")), field("magic", "4b564659", "48545450")},
		{"busy", fake(t, (&welcome{version: version, status: statusBusy, progress: 1}).encode()), field("status", "accepted", "too many peers")},
		{"no port", "127.0.0.1", func(err error) bool { return err != nil && strings.Contains(err.Error(), "missing port") }},
	} {
		if _, err := w.source.Connect(context.Background(), transport.Address{Provider: Name, Data: []byte(c.at)}); !c.ok(err) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	if _, err := w.source.Connect(context.Background(), transport.Address{Provider: "shm"}); !errors.Is(err, transport.ErrNotSupported) {
		t.Errorf("another provider's address: %v", err)
	}
}

// Connections that never get to the point neither stop an honest peer, however
// many there are, nor stay.
func TestSlowHandshakes(t *testing.T) {
	var l ledger
	w := newWorld(t).open(Options{Handshake: time.Second, Pending: 8, Refused: l.add})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var lorises []net.Conn
	for i := range 12 {
		c, err := net.Dial("tcp", string(w.source.Address().Data))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lorises = append(lorises, c)
		// A byte now and then; or all but the last connection.
		h := (&hello{version: version, role: roleControl, streams: 3, token: key{byte(i + 1)}, progress: 5000}).encode()
		wg.Go(func() {
			for k := range h {
				if _, err := c.Write(h[k : k+1]); err != nil {
					return
				}
				if i%2 == 0 {
					continue
				}
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	if err := w.connect(""); err != nil {
		t.Errorf("an honest peer: %v", err)
	}
	if id, err := w.start(1, transport.Read, 0, 100); err != nil {
		t.Error(err)
	} else if c := w.wait(w.destination, id); c.Err != nil {
		t.Error(c.Err)
	}
	for i, c := range lorises {
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Errorf("connection %d is still open", i)
			}
		}
	}
	close(stop)
	wg.Wait()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		w.source.mu.Lock()
		n, m := len(w.source.arrivals), len(w.source.joins)
		w.source.mu.Unlock()
		if n+m == 0 {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%d arrivals and %d joins are left", n, m)
		}
	}
}

// A peer that nobody claims, or one too many, does not stay.
func TestStrangersDoNotStay(t *testing.T) {
	w := newWorld(t).open(Options{Unclaimed: 100 * time.Millisecond, Peers: 1})
	ctx := context.Background()
	id, err := w.destination.Connect(ctx, w.source.Address())
	if err != nil {
		t.Fatal(err)
	}
	var e *HandshakeError
	if _, err := w.destination.Connect(ctx, w.source.Address()); !errors.As(err, &e) || e.Theirs != statusBusy.String() {
		t.Errorf("one too many: %v", err)
	}
	if err := w.health(w.destination, id); !errors.Is(err, transport.ErrPeerGone) {
		t.Error(err)
	}
	if _, err := w.source.Accepted(w.destination.Token(id)); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("claimed too late: %v", err)
	}
	if err := w.connect(""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := w.source.Health(w.peers[transport.Source]); err != nil {
		t.Errorf("claimed: %v", err)
	}
}

// attack is frames that a peer sends at some point of an operation, and what
// is said of them. Nothing of them may land.
type attack struct {
	name  string
	field string
	got   string
	send  func(r *raw, data func(stream int, part uint32, offset uint64, body []byte) []byte)
}

func zeros(n int) []byte { return make([]byte, n) }

// attacks are those on an operation whose bytes come from the peer: number 1,
// tokens 0 to 1024, 2 MiB in two parts over two connections.
var attacks = []attack{
	{"starts later", "offset", "5", func(r *raw, d func(int, uint32, uint64, []byte) []byte) { r.send(0, d(0, 0, 5, zeros(100))) }},
	{"starts far away", "offset", fmt.Sprint(uint64(1) << 63), func(r *raw, d func(int, uint32, uint64, []byte) []byte) { r.send(0, d(0, 0, 1<<63, zeros(100))) }},
	{"no such part", "part", "99", func(r *raw, d func(int, uint32, uint64, []byte) []byte) { r.send(0, d(0, 99, 0, zeros(100))) }},
	{"the last part there is", "part", "4294967295", func(r *raw, d func(int, uint32, uint64, []byte) []byte) { r.send(0, d(0, 1<<32-1, 0, zeros(1))) }},
	{"on the other connection", "connection", "0", func(r *raw, d func(int, uint32, uint64, []byte) []byte) { r.send(0, d(0, 1, 0, zeros(100))) }},
	{"damaged", "crc", "", func(r *raw, d func(int, uint32, uint64, []byte) []byte) {
		b := d(0, 0, 0, zeros(100))
		b[headerSize+50] ^= 4
		r.send(0, b)
	}},
	{"too long", "length", "1048577", func(r *raw, d func(int, uint32, uint64, []byte) []byte) {
		b := d(0, 0, 0, zeros(1))
		b[0], b[1], b[2] = 1, 0, 0x10
		r.send(0, reseal(b))
	}},
}

// late are attacks that come after some honest bytes, which may have landed.
var late = []attack{
	{"twice", "offset", "0", func(r *raw, d func(int, uint32, uint64, []byte) []byte) {
		b := d(0, 0, 0, zeros(100))
		r.send(0, append(b, b...))
	}},
	{"with a gap", "offset", "101", func(r *raw, d func(int, uint32, uint64, []byte) []byte) {
		r.send(0, append(d(0, 0, 0, zeros(100)), d(0, 0, 101, zeros(100))...))
	}},
	{"more than announced", "length", "1024", func(r *raw, d func(int, uint32, uint64, []byte) []byte) {
		r.send(0, append(d(0, 0, 0, zeros(maxBody-100)), d(0, 0, maxBody-100, zeros(1024))...))
	}},
}

// others are wrong whatever goes on.
var others = []attack{
	{"data of no operation", "op", "9", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(0, (&header{kind: kindData, mine: true, op: 9}).frame(zeros(10)))
	}},
	{"end of no operation", "op", "9", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(-1, (&header{kind: kindEnd, op: 9}).frame((&report{}).encode(kindEnd)))
	}},
	{"go for no operation", "op", "9", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(-1, (&header{kind: kindGo, op: 9}).frame(nil))
	}},
	{"an unknown type", "type", "8", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(1, reseal((&header{kind: 8}).frame(nil)))
	}},
	{"an ask on a data connection", "connection", "data", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(0, (&header{kind: kindAsk, mine: true, op: 8}).frame(nil))
	}},
	{"data on the control connection", "connection", "control", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		r.send(-1, (&header{kind: kindData, op: 1}).frame(zeros(1)))
	}},
	{"a number used before", "op", "1", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
		a := &ask{direction: transport.Read, request: stamp.Request{To: 1}}
		h := header{kind: kindAsk, mine: true, op: 1}
		r.send(-1, append(h.frame(a.encode()), h.frame(a.encode())...))
	}},
}

// refused checks that a peer was given up for what it sent and that nobody
// else suffers.
func (w *world) refused(p *Provider, a *attack, id transport.PeerID, r *raw) {
	w.t.Helper()
	var e *FrameError
	err := w.health(p, id)
	if !errors.As(err, &e) || e.Field != a.field || a.got != "" && e.Got != a.got || e.Want == "" || !errors.Is(err, transport.ErrPeerGone) {
		w.t.Errorf("got %v, want field %s, value %s", err, a.field, a.got)
	}
	for i := range r.conns {
		r.hungUp(i - 1)
	}
	if _, id := w.dialRaw(p, 1); p.Health(id) != nil {
		w.t.Error("the next peer suffers")
	}
}

const attackTokens = 2 << 20 / tokenBytes

// An owner that was asked for a read sends something else.
func TestLyingOwner(t *testing.T) {
	more := []attack{
		{"ends with other numbers", "bytes", "12", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
			r.send(-1, (&header{kind: kindEnd, op: 1}).frame((&report{bytes: 12}).encode(kindEnd)))
		}},
		{"go for a read", "op", "1", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
			r.send(-1, (&header{kind: kindGo, op: 1}).frame(nil))
		}},
	}
	for i, list := range [][]attack{attacks, others, more, late} {
		for _, a := range list {
			t.Run(a.name, func(t *testing.T) {
				w := newWorld(t)
				w.destination = w.provider(Options{})
				w.register(w.destination, transport.Destination)
				r, id := w.dialRaw(w.destination, 2)
				w.peers[transport.Destination] = id
				w.prepare(w.destination, transport.Destination)
				before := w.image(transport.Destination)
				op, err := w.destination.Submit(w.operation(transport.Destination, transport.GrantID{1}, transport.Read, 0, attackTokens))
				if err != nil {
					t.Fatal(err)
				}
				h, body := r.must(-1, kindAsk)
				if got, err := decodeAsk(body); err != nil || h.op != 1 || got.bytes != 2<<20 || got.direction != transport.Read {
					t.Fatalf("asked for %+v, %v", got, err)
				}
				a.send(r, func(_ int, part uint32, offset uint64, body []byte) []byte {
					return (&header{kind: kindData, op: 1, part: part, offset: offset}).frame(body)
				})
				c := w.wait(w.destination, op)
				var e *FrameError
				if !errors.Is(c.Err, transport.ErrPeerGone) || !errors.As(c.Err, &e) || e.Field != a.field {
					t.Errorf("the operation ends with %v", c.Err)
				}
				w.refused(w.destination, &a, id, r)
				if i < 3 {
					w.same(before, "nothing was to land")
				}
			})
		}
	}
}

// A writer that was let write sends something else.
func TestLyingWriter(t *testing.T) {
	more := []attack{
		{"data of the next operation", "op", "2", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
			r.send(0, (&header{kind: kindData, mine: true, op: 2}).frame(zeros(1)))
		}},
		{"a stop of no operation", "op", "3", func(r *raw, _ func(int, uint32, uint64, []byte) []byte) {
			r.send(-1, (&header{kind: kindStop, mine: true, op: 3}).frame((&report{err: transport.ErrCanceled}).encode(kindStop)))
		}},
	}
	for i, list := range [][]attack{attacks, others, more, late} {
		for _, a := range list {
			t.Run(a.name, func(t *testing.T) {
				w := newWorld(t)
				w.destination = w.provider(Options{})
				w.register(w.destination, transport.Destination)
				r, id := w.dialRaw(w.destination, 2)
				w.peers[transport.Destination] = id
				w.prepare(w.destination, transport.Destination)
				before := w.image(transport.Destination)
				grant := w.grant(w.destination, transport.Destination, 1, transport.Write, 0, attackTokens)
				q := &ask{grant: grant, direction: transport.Write, request: stamp.Request{Plan: w.proven.Digest(), To: attackTokens}, remaining: int64(time.Minute), bytes: 2 << 20}
				r.send(-1, (&header{kind: kindAsk, mine: true, op: 1}).frame(q.encode()))
				if h, _ := r.must(-1, kindGo); h.op != 1 {
					t.Fatalf("go for %d", h.op)
				}
				a.send(r, func(_ int, part uint32, offset uint64, body []byte) []byte {
					return (&header{kind: kindData, mine: true, op: 1, part: part, offset: offset}).frame(body)
				})
				w.refused(w.destination, &a, id, r)
				// The peer is seen to be gone a moment before its grants are.
				if err := w.destination.Fence(t.Context(), id); err != nil && !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("fence: %v", err)
				}
				if err := w.destination.Revoke(grant); !errors.Is(err, transport.ErrNotGranted) {
					t.Errorf("the grant of a peer that is gone: %v", err)
				}
				if i < 3 {
					w.same(before, "nothing was to land")
				}
			})
		}
	}
}

// What is wrong with an operation ends the operation, not the connection.
func TestAskIsRefusedAlone(t *testing.T) {
	w := newWorld(t)
	w.source = w.provider(Options{})
	w.register(w.source, transport.Source)
	r, id := w.dialRaw(w.source, 1)
	w.peers[transport.Source] = id
	w.prepare(w.source, transport.Source)
	grant := w.grant(w.source, transport.Source, 1, transport.Read, 16, 64)
	good := ask{grant: grant, direction: transport.Read, request: stamp.Request{Plan: w.proven.Digest(), From: 16, To: 64}, remaining: int64(time.Minute), bytes: 48 * tokenBytes}
	mismatch := func(field string) func(error) bool {
		return func(err error) bool { var e *transport.Mismatch; return errors.As(err, &e) && e.Field == field }
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	stamped := func(field string) func(error) bool {
		return func(err error) bool {
			var e *wire.PeerError // the stamper's errors have no type on the wire
			return errors.As(err, &e) && strings.Contains(e.Text, "stamp: "+field)
		}
	}
	spans := func(list ...stamp.Span) func(a *ask) {
		return func(a *ask) { a.request.Spans = append([]stamp.Span{}, list...) }
	}
	op := uint64(0)
	for _, c := range []struct {
		name string
		edit func(a *ask)
		ok   func(error) bool
	}{
		{"no such grant", func(a *ask) { a.grant[5]++ }, is(transport.ErrNotGranted)},
		{"no such plan", func(a *ask) { a.request.Plan[5]++ }, func(err error) bool { var e *transport.Unknown; return errors.As(err, &e) }},
		{"a write", func(a *ask) { a.direction = transport.Write }, mismatch("direction")},
		{"from before", func(a *ask) { a.request.From-- }, mismatch("from")},
		{"from below zero", func(a *ask) { a.request.From = -1 << 63 }, mismatch("from")},
		{"to beyond", func(a *ask) { a.request.To++ }, mismatch("to")},
		{"other bytes", func(a *ask) { a.bytes++ }, mismatch("bytes")},
		{"no time left", func(a *ask) { a.remaining = -1 }, is(transport.ErrDeadline)},
		{"no layers", func(a *ask) { a.request.Layers = plan.Range{From: 3, To: 2} }, func(err error) bool { return err != nil }},
		{"spans before the grant's", spans(stamp.Span{From: 15, To: 64}), stamped("spans")},
		{"spans below zero", spans(stamp.Span{From: -1 << 63, To: 64}), stamped("spans")},
		{"spans beyond everything", spans(stamp.Span{From: 16, To: 1<<63 - 1}), stamped("spans")},
		{"spans that end before they begin", spans(stamp.Span{From: 40, To: 20}), stamped("spans")},
		{"spans of no group", spans(), stamped("spans")},
		{"spans of more groups than there are", spans(stamp.Span{From: 16, To: 64}, stamp.Span{From: 16, To: 64}), stamped("spans")},
		{"layers beyond the model", func(a *ask) { a.request.Layers.To = 1 << 30 }, func(err error) bool { return err != nil }},
	} {
		op++
		a := good
		c.edit(&a)
		r.send(-1, (&header{kind: kindAsk, mine: true, op: op}).frame(a.encode()))
		h, b := r.must(-1, kindEnd)
		got, err := decodeReport(kindEnd, b)
		if err != nil || h.op != op || !c.ok(got.err) {
			t.Errorf("%s: %+v, %v", c.name, got.err, err)
		}
	}
	op++
	r.send(-1, (&header{kind: kindAsk, mine: true, op: op}).frame(good.encode()))
	h, body := r.must(0, kindData)
	if h.op != op || h.part != 0 || h.offset != 0 || int64(len(body)) != good.bytes {
		t.Errorf("data %+v of %d bytes", h, len(body))
	}
	if crc32.Checksum(body, castagnoli) == crc32.Checksum(zeros(len(body)), castagnoli) {
		t.Error("nothing but zeros")
	}
	if h, b := r.must(-1, kindEnd); h.op != op || b[0] != 0 {
		t.Errorf("ends with %x", b)
	}
	if err := w.source.Health(id); err != nil {
		t.Fatal(err)
	}
}

// A reader sends bytes where it should take them.
func TestLyingReader(t *testing.T) {
	w := newWorld(t)
	w.source = w.provider(Options{Buffer: 1 << 12})
	w.register(w.source, transport.Source)
	r, id := w.dialRaw(w.source, 2)
	w.peers[transport.Source] = id
	w.prepare(w.source, transport.Source)
	grant := w.grant(w.source, transport.Source, 1, transport.Read, 0, tokens)
	before := w.image(transport.Source)
	a := ask{grant: grant, direction: transport.Read, request: stamp.Request{Plan: w.proven.Digest(), To: tokens}, remaining: int64(time.Minute), bytes: tokens * tokenBytes}
	r.send(-1, (&header{kind: kindAsk, mine: true, op: 1}).frame(a.encode()))
	r.must(0, kindData) // the rest waits for us
	r.send(0, (&header{kind: kindData, mine: true, op: 1}).frame(zeros(100)))
	w.refused(w.source, &attack{field: "op", got: "1"}, id, r)
	for i, b := range w.image(transport.Source) {
		if !bytes.Equal(b, before[i]) {
			t.Error("bytes landed in the source")
		}
	}
}

// Bytes for an operation that has ended are dropped, and the connection lives.
func TestLateDataIsDropped(t *testing.T) {
	w := newWorld(t)
	w.destination = w.provider(Options{})
	w.register(w.destination, transport.Destination)
	r, id := w.dialRaw(w.destination, 2)
	w.peers[transport.Destination] = id
	w.prepare(w.destination, transport.Destination)
	before := w.image(transport.Destination)
	op, err := w.destination.Submit(w.operation(transport.Destination, transport.GrantID{1}, transport.Read, 0, attackTokens))
	if err != nil {
		t.Fatal(err)
	}
	r.must(-1, kindAsk)
	if err := w.destination.Cancel(op); err != nil {
		t.Fatal(err)
	}
	if c := w.wait(w.destination, op); c.Err != transport.ErrCanceled {
		t.Fatal(c.Err)
	}
	if _, b := r.must(-1, kindStop); !bytes.Equal(b, []byte{3}) {
		t.Errorf("stopped with %x", b)
	}
	for i := range 2 {
		r.send(i, (&header{kind: kindData, op: 1, part: uint32(i), offset: 0}).frame(zeros(1<<20)))
	}
	r.send(-1, (&header{kind: kindEnd, op: 1}).frame((&report{err: transport.ErrCanceled}).encode(kindEnd)))
	// The connection still works: an operation on it is asked for and ended.
	op, err = w.destination.Submit(w.operation(transport.Destination, transport.GrantID{1}, transport.Read, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	h, _ := r.must(-1, kindAsk)
	r.send(-1, (&header{kind: kindEnd, op: h.op}).frame((&report{err: &transport.Stale{Block: 7, Found: 1}}).encode(kindEnd)))
	var stale *transport.Stale
	if c := w.wait(w.destination, op); !errors.As(c.Err, &stale) || stale.Block != 7 {
		t.Errorf("got %v", c.Err)
	}
	w.same(before, "late data")
}

// A peer that asks and never reads is given up before it costs much memory.
func TestPeerThatDoesNotRead(t *testing.T) {
	w := newWorld(t)
	w.source = w.provider(Options{Buffer: 1 << 12, Progress: time.Minute})
	r, id := w.dialRaw(w.source, 1)
	a := (&ask{direction: transport.Read}).encode()
	var wg sync.WaitGroup
	wg.Go(func() {
		for op := uint64(1); ; {
			var b []byte
			for range 1000 {
				b = append(b, (&header{kind: kindAsk, mine: true, op: op}).frame(a)...)
				op++
			}
			if _, err := r.conns[0].Write(b); err != nil {
				return
			}
		}
	})
	err := w.health(w.source, id)
	wg.Wait()
	if !strings.Contains(err.Error(), "does not read") {
		t.Error(err)
	}
}
