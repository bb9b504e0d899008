package shm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/wire"
)

func asks() []*ask {
	return []*ask{
		{op: 1, direction: transport.Read, request: stamp.Request{To: 5}, remaining: 9},
		{op: 2, grant: transport.GrantID{1, 2}, direction: transport.Read,
			request: stamp.Request{Plan: geometry.Digest{7}, From: 3, To: 99, Layers: plan.Range{From: 1, To: 2}, Edges: []stamp.EdgeKey{{Source: 1, Destination: 2}}},
			tables:  [][]uint32{{4, 5}, {}}, generations: [][]uint64{{6, 7}, {}}},
		{op: 3, direction: transport.Write, request: stamp.Request{To: 1, Edges: []stamp.EdgeKey{}}, own: [][]uint32{{8}}, snapshot: []snapshot{{2, [][]uint64{{1 << 40}}}}},
		{op: 4, direction: transport.Read, request: stamp.Request{From: 1, To: 9, Spans: []stamp.Span{{From: 4, To: 9}, {}, {To: 1}}}},
	}
}

func TestAskOnTheWire(t *testing.T) {
	for i, a := range asks() {
		got, err := decodeAsk(a.encode())
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("ask %d: %+v, %v, want %+v", i, got, err, a)
		}
	}
	// The bytes themselves: what two versions must agree on.
	for i, want := range map[int]string{
		0: "0100000000000000" + strings.Repeat("00", 16) + "01" + strings.Repeat("00", 32) + "0000000000000000" + "0500000000000000" +
			"00" + "00000000" + "00000000" + "00" + "0900000000000000" + "00",
		3: "0400000000000000" + strings.Repeat("00", 16) + "01" + strings.Repeat("00", 32) + "0100000000000000" + "0900000000000000" +
			"01" + "03000000" + "0400000000000000" + "0900000000000000" + strings.Repeat("00", 16) + "0000000000000000" + "0100000000000000" +
			"00000000" + "00000000" + "00" + "0000000000000000" + "00",
	} {
		if got := hex.EncodeToString(asks()[i].encode()); got != want {
			t.Errorf("ask %d: got  %s\nwant %s", i, got, want)
		}
	}
	r := &report{op: 3, mine: true, err: transport.ErrNotGranted, bytes: 2, segments: 1}
	if got, want := hex.EncodeToString(r.encode()), "0300000000000000"+"01"+"01"+"0200000000000000"+"0100000000000000"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func faults() []error {
	return []error{nil, transport.ErrNotGranted, transport.ErrDeadline, transport.ErrCanceled, transport.ErrPeerGone, transport.ErrNotSupported,
		&transport.Unknown{Plan: geometry.Digest{1, 2}}, &transport.Mismatch{Field: "a", Asked: "b", Grants: "c"},
		&transport.Stale{Group: 1, Rank: 2, Block: 3, Granted: 4, Found: 5}, &transport.Unregistered{Engine: "e", Rank: 3}, &wire.PeerError{Text: "text"}}
}

func TestErrorsOnTheWire(t *testing.T) {
	for _, err := range faults() {
		r := report{op: 9, err: err}
		got, bad := decodeReport(frameEnd, r.encode())
		if bad != nil || !reflect.DeepEqual(got.err, err) && err != nil && !errors.As(err, new(*wire.PeerError)) {
			t.Errorf("%v: got %v, %v", err, got, bad)
		}
	}
	wrapped := report{err: fmt.Errorf("copy: %w", transport.ErrClosed)} // the peer's closing is, here, its going
	if got, err := decodeReport(frameEnd, wrapped.encode()); err != nil || !errors.Is(got.err, transport.ErrPeerGone) {
		t.Errorf("got %v, %v", got, err)
	}
}

// What a frame decodes to encodes to the same bytes, and nothing panics.
func FuzzFrames(f *testing.F) {
	for _, a := range asks() {
		f.Add(uint8(frameAsk), a.encode())
	}
	for _, err := range faults() {
		f.Add(uint8(frameEnd), (&report{op: 1, err: err}).encode())
	}
	f.Add(uint8(frameForget), forget{"e", 3}.encode())
	f.Add(uint8(frameHello), encodeHello([16]byte{1}, [16]byte{2}))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		var again []byte
		var err error
		switch kind {
		case frameAsk:
			var a *ask
			if a, err = decodeAsk(body); err == nil {
				again = a.encode()
			}
		case frameEnd, frameStop, frameAnswer:
			var r *report
			if r, err = decodeReport(kind, body); err == nil {
				var mismatch *transport.Mismatch
				var gone *transport.Unregistered
				var other *wire.PeerError
				if errors.As(r.err, &mismatch) || errors.As(r.err, &gone) || errors.As(r.err, &other) {
					// Texts are cut to a length when sent, and a wire.PeerError gains
					// its own words: only that it can be read back is said.
					if _, err := decodeReport(kind, r.encode()); err != nil {
						t.Fatal(err)
					}
					return
				}
				again = r.encode()
			}
		case frameForget:
			var g forget
			if g, err = decodeForget(body); err == nil {
				again = g.encode()
			}
		case frameHello:
			v, secret, token, e := decodeHello(kind, body)
			if err = e; err == nil && v == version {
				again = encodeHello(secret, token)
			} else if err == nil {
				return
			}
		default:
			return
		}
		if err != nil {
			var e *FrameError
			if !errors.As(err, &e) || e.Type != kind {
				t.Fatalf("refused with %v, want a *FrameError of type %d", err, kind)
			}
			return
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("type %d: %x encodes again to %x", kind, body, again)
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add("@kvferry-0123 00112233445566778899aabbccddeeff")
	f.Add("/run/x/shm 00112233445566778899aabbccddeeff")
	f.Add("@ ")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(transport.Address{Provider: Name, Data: []byte(text)})
		if err != nil {
			var e *AddressError
			if !errors.As(err, &e) {
				t.Fatalf("refused with %v, want an *AddressError", err)
			}
			return
		}
		if got := string(a.text()); got != text {
			t.Fatalf("%q reads back as %q", text, got)
		}
	})
}

// rawPeer connects to a provider as a peer that then says what it likes.
func rawPeer(t *testing.T, p *Provider, greet bool) *conn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.address.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	x := newConn(c)
	if greet {
		if err := x.greet(p.address.secret, random()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { x.close(); x.drop() })
	return x
}

func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "hostile")
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	return f
}

// A peer that talks nonsense is hung up on, leaves nothing behind, and stops
// nobody else.
func TestHostilePeers(t *testing.T) {
	p, err := New(Options{Handshake: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const manifest = `{"engine":"e","rank":0,"bytes":4096,"generation_bytes":4096,"groups":[{"blocks":1,"generations":0,"regions":[{"name":"k","offset":0,"bytes":4096}]}],"token":"00000000000000000000000000000000"}`
	header := func(length uint32, kind, files uint8, tail ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, length)
		return append(append(b, kind, files), tail...)
	}
	for _, c := range []struct {
		name  string
		greet bool
		say   func(x *conn)
	}{
		{"silence", false, func(x *conn) {}},
		{"half a header", false, func(x *conn) { x.c.Write([]byte{1, 2, 3}) }},
		{"garbage", false, func(x *conn) { x.c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100)) }},
		{"not hello", false, func(x *conn) { x.c.Write(frame(frameAsk, asks()[0].encode(), 0)) }},
		{"short hello", false, func(x *conn) { x.c.Write(frame(frameHello, []byte{1, 0, 5}, 0)) }},
		{"wrong secret", false, func(x *conn) { x.c.Write(frame(frameHello, encodeHello([16]byte{1}, [16]byte{}), 0)) }},
		{"descriptors with hello", false, func(x *conn) {
			f := memfd(t)
			x.writeFrame(outgoing{frame(frameHello, encodeHello(p.address.secret, random()), 2), []*os.File{f, f, f}})
			f.Close()
		}},
		{"unknown type", true, func(x *conn) { x.c.Write(frame(99, nil, 0)) }},
		{"hello again", true, func(x *conn) { x.c.Write(frame(frameHello, encodeHello(p.address.secret, random()), 0)) }},
		{"oversized", true, func(x *conn) { x.c.Write(header(maxBody+1, frameAsk, 0, 0, 0)) }},
		{"header not zero", true, func(x *conn) { x.c.Write(header(0, frameAsk, 0, 0, 1)) }},
		{"truncated ask", true, func(x *conn) { x.c.Write(frame(frameAsk, asks()[1].encode()[:40], 0)) }},
		{"ask with a tail", true, func(x *conn) { x.c.Write(frame(frameAsk, append(asks()[1].encode(), 0), 0)) }},
		{"descriptors that nobody announced", true, func(x *conn) {
			f := memfd(t)
			for range 3 {
				x.writeFrame(outgoing{frame(frameStop, (&report{op: 1, err: transport.ErrCanceled}).encode(), 0), []*os.File{f}})
			}
			f.Close()
		}},
		{"many descriptors", true, func(x *conn) {
			f := memfd(t)
			files := make([]*os.File, 20)
			for i := range files {
				files[i] = f
			}
			x.writeFrame(outgoing{frame(frameMemory, []byte(manifest), 2), files})
			f.Close()
		}},
		{"memory without descriptors", true, func(x *conn) { x.c.Write(frame(frameMemory, []byte(manifest), 2)) }},
		{"memory that can shrink", true, func(x *conn) {
			f, g := memfd(t), memfd(t)
			x.writeFrame(outgoing{frame(frameMemory, []byte(manifest), 2), []*os.File{f, g}})
			f.Close()
			g.Close()
		}},
		{"no manifest", true, func(x *conn) { x.c.Write(frame(frameMemory, []byte("{}"), 0)) }},
		{"forgets what it never showed", true, func(x *conn) { x.c.Write(frame(frameForget, forget{"e", 0}.encode(), 0)) }},
		{"stop without a reason", true, func(x *conn) {
			x.c.Write(frame(frameAsk, asks()[0].encode(), 0)) // refused, and that is all
			x.c.Write(frame(frameAnswer, (&report{op: 1, mine: true}).encode(), 0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := rawPeer(t, p, c.greet)
			c.say(x)
			x.c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.Copy(io.Discard, x.c); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("not hung up on: %v", err)
			}
		})
	}
	for i := 0; ; i++ { // whatever came with those frames is closed again
		n := 0
		list, _ := os.ReadDir("/proc/self/fd")
		for _, e := range list {
			if name, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(name, "hostile") {
				n++
			}
		}
		if n == 0 {
			break
		}
		if i == 200 {
			t.Errorf("%d descriptors of hostile peers are open", n)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if l := p.Leaks(); len(l) > 0 {
		t.Errorf("mapped: %v", l)
	}
	rawPeer(t, p, true) // an honest one still gets in
}

func TestVersionsAreNamed(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := rawPeer(t, p, false)
	hello := encodeHello(p.address.secret, random())
	hello[0] = 200
	x.c.Write(frame(frameHello, hello, 0))
	kind, body, _, err := x.receive()
	if err != nil || kind != frameWelcome || body[0] != version {
		t.Errorf("got type %d %v, %v: want the version of this side", kind, body, err)
	}
	// The other way round: a listener of another version.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@kvferry-test-%x", random()), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		y := newConn(c)
		y.receive()
		c.Write(frame(frameWelcome, []byte{7, 0}, 0))
		c.Close()
	}()
	a := address{socket: l.Addr().String()}
	_, err = p.Connect(t.Context(), transport.Address{Provider: Name, Data: a.text()})
	var v *VersionError
	if !errors.As(err, &v) || v.Peer != 7 || v.Self != version {
		t.Errorf("got %v", err)
	}
}
