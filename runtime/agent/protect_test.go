package agent_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/certificate/authority"
	"github.com/kvferry/kvferry/transport/tcp"
)

// Everything between two agents is protected, control connection and data, on
// addresses off loopback too; who shows no certificate of the fleet learns
// nothing.
func TestProtectedConnections(t *testing.T) {
	fleet := authority.New(t)
	r := rig{}
	p := parsePair(t, tp2, tp4)
	protected := func(name string) (transport.Provider, option) {
		i := fleet.Open(name)
		provider, err := tcp.New(tcp.Options{Listen: "127.0.0.1:0", Wrap: i.Wrap})
		if err != nil {
			t.Fatal(err)
		}
		if !provider.Capabilities().TLS {
			t.Error("the provider does not say that it is protected")
		}
		return provider, func(c *agent.Config, _ *agent.EngineSpec) {
			c.Listen, c.Wrap, c.Timeouts.Handshake = "tcp:0.0.0.0:0", i.Wrap, 2*time.Second
		}
	}
	one, first := protected("prefill")
	two, second := protected("decode")
	s, d := r.nodeWith(t, "a", &p.Source, nil, one, first), r.nodeWith(t, "b", &p.Destination, nil, two, second)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.Address(), "tcp:"))
	if err != nil {
		t.Fatal(err)
	}
	listening := net.JoinHostPort("127.0.0.1", port)
	tap := newTap(t, listening)
	peer, err := d.engine.Connect(t.Context(), agent.Dial{Addresses: []string{"tcp:" + tap.address}, Role: transport.Destination})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := once(t, s, d, peer, 1, nil); err != nil {
		t.Fatal(err)
	}
	if seen := tap.bytes(); len(seen) < 1000 || bytes.Contains(seen, []byte("prefill")) || bytes.Contains(seen, []byte("decode")) {
		t.Errorf("%d bytes went by, in the clear: %v", len(seen), bytes.Contains(seen, []byte("decode")))
	}

	// A stranger without TLS, one of another authority, and one that says
	// nothing.
	strangers := authority.New(t)
	q := parsePair(t, tp2, tp4)
	q.Destination.Engine = "other"
	for name, o := range map[string]option{
		"plaintext":         func(*agent.Config, *agent.EngineSpec) {},
		"another authority": func(c *agent.Config, _ *agent.EngineSpec) { c.Wrap = strangers.Open("decode").Wrap },
	} {
		provider, err := tcp.New(tcp.Options{Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		x := r.nodeWith(t, name, &q.Destination, nil, provider, o, func(c *agent.Config, _ *agent.EngineSpec) {
			c.Listen, c.Timeouts.Handshake = "", 2*time.Second
		})
		if _, err := x.engine.Connect(t.Context(), agent.Dial{Addresses: []string{"tcp:" + listening}, Role: transport.Destination}); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
	silent, err := net.Dial("tcp", listening)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(silent); len(b) > 0 || err != nil {
		t.Errorf("a silent stranger reads %q, %v", b, err)
	}
	if _, err := once(t, s, d, peer, 2, nil); err != nil {
		t.Errorf("after the strangers: %v", err)
	}
}

// Off loopback nothing goes in the clear unless it is allowed to.
func TestPlaintextOffLoopbackIsRefused(t *testing.T) {
	provider := (&rig{}).provider(t)
	defer provider.Close()
	_, err := agent.New(agent.Config{Name: "a", Listen: "tcp:0.0.0.0:0", Providers: []transport.Provider{provider}})
	if err == nil || !strings.Contains(err.Error(), "refused unless Wrap protects it or Insecure is set") {
		t.Errorf("listening in the clear: %v", err)
	}
}

// tap forwards connections and keeps what goes by.
type tap struct {
	address string
	mu      sync.Mutex
	seen    []byte
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{address: l.Addr().String()}
	var wg sync.WaitGroup
	over, end := context.WithCancel(t.Context())
	t.Cleanup(func() {
		end()
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{c, there}, {there, c}} {
				stop := context.AfterFunc(over, func() { way[0].Close() })
				wg.Go(func() {
					defer stop()
					defer way[1].Close()
					io.Copy(io.MultiWriter(way[1], x), way[0])
				})
			}
		}
	})
	return x
}

// Write implements io.Writer.
func (x *tap) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = append(x.seen, b...)
	return len(b), nil
}

func (x *tap) bytes() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Clone(x.seen)
}
