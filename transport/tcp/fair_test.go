package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/transport"
)

// Small operations that come after a large one are done long before it.
func TestSmallOperationsAreNotHeldUp(t *testing.T) {
	for name, d := range directions {
		t.Run(name, func(t *testing.T) {
			// Short chunks, so that the large one has some 2,000 turns to take.
			w := newWorld(t).open(Options{Streams: 1, Chunk: 4 << 10})
			if err := w.connect(""); err != nil {
				t.Fatal(err)
			}
			p := w.destination
			if d == transport.Write {
				p = w.source
			}
			want := w.moved(w.image(transport.Destination), 0, tokens)
			large, err := w.start(1, d, 0, tokens)
			if err != nil {
				t.Fatal(err)
			}
			ids := []transport.OpID{large}
			for i := range 20 {
				id, err := w.start(byte(2+i), d, 32*int64(i), 32*int64(i)+16)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			var order []transport.OpID
			var some [32]transport.Completion
			for limit := time.After(patience); len(order) < len(ids); {
				for _, c := range some[:p.Poll(some[:])] {
					if c.Err != nil || !slices.Contains(ids, c.Op) || slices.Contains(order, c.Op) {
						t.Fatalf("completed %+v", c)
					}
					order = append(order, c.Op)
				}
				select {
				case <-p.Ready():
				case <-time.After(time.Millisecond):
				case <-limit:
					t.Fatalf("completed %v of %v", order, ids)
				}
			}
			if at := slices.Index(order, large); at < 15 {
				t.Errorf("the large operation was number %d of %d to be done", at+1, len(order))
			}
			w.same(want, "all together")
		})
	}
}

func TestInsecureIsRefused(t *testing.T) {
	for _, at := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:7400"} {
		var e *InsecureError
		if p, err := New(Options{Listen: at, Advertise: "192.0.2.1:7400"}); !errors.As(err, &e) || e.Address != at || !errors.Is(err, transport.ErrNotSupported) {
			t.Errorf("listen on %s: %v", at, err)
			if err == nil {
				p.Close()
			}
		}
	}
	p, err := New(Options{Listen: "localhost:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var e *InsecureError
	if _, err := p.Connect(t.Context(), transport.Address{Provider: Name, Data: []byte("192.0.2.1:7400")}); !errors.As(err, &e) || e.What != "connect to" {
		t.Errorf("connect: %v", err)
	}
	open, err := New(Options{Listen: "0.0.0.0:0", Advertise: "192.0.2.1:7400", Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if a := open.Address(); string(a.Data) != "192.0.2.1:7400" {
		t.Errorf("address %s", a.Data)
	}
}

func TestOptionsRefuse(t *testing.T) {
	for option, o := range map[string]Options{
		"Listen":    {},
		"Streams":   {Listen: "127.0.0.1:0", Streams: 17},
		"Chunk":     {Listen: "127.0.0.1:0", Chunk: 1<<20 + 1},
		"Buffer":    {Listen: "127.0.0.1:0", Buffer: -1},
		"Progress":  {Listen: "127.0.0.1:0", Progress: time.Millisecond},
		"Handshake": {Listen: "127.0.0.1:0", Handshake: -time.Second},
		"Pending":   {Listen: "127.0.0.1:0", Pending: 1},
		"Advertise": {Listen: "0.0.0.0:0", Insecure: true},
	} {
		var e *OptionError
		if p, err := New(o); !errors.As(err, &e) || e.Option != option {
			t.Errorf("%s: %v", option, err)
			if err == nil {
				p.Close()
			}
		}
	}
}

func TestLinksSayWhatTheyAre(t *testing.T) {
	w := newWorld(t).open(Options{Streams: 3})
	if err := w.connect(""); err != nil {
		t.Fatal(err)
	}
	for s, p := range map[transport.Side]*Provider{transport.Source: w.source, transport.Destination: w.destination} {
		links, err := p.Links(w.peers[s])
		if err != nil || len(links) != 4 || links[0].Role != "control" {
			t.Fatalf("%+v, %v", links, err)
		}
		for _, l := range links {
			if l.Congestion == "" || (l.Congestion != "cubic") != (l.CongestionError != nil) || l.UserTimeoutError != nil || l.SendBuffer < 1<<12 || l.ReceiveBuffer < 1<<12 || l.RTT <= 0 {
				t.Errorf("%+v", l)
			}
		}
	}
	if _, err := w.source.Links(99); !errors.Is(err, transport.ErrPeerGone) {
		t.Error(err)
	}
}

// A congestion control that no kernel has is reported, not fatal.
func TestCongestionIsReported(t *testing.T) {
	w := newWorld(t).open(Options{Congestion: "no-such-control"})
	if err := w.connect(""); err != nil {
		t.Fatal(err)
	}
	links, err := w.source.Links(w.peers[transport.Source])
	if err != nil || links[1].CongestionError == nil || links[1].Congestion == "" {
		t.Errorf("%+v, %v", links, err)
	}
}

// The seam for TLS takes TLS: every byte goes through it, and timeouts still
// work below it.
func TestWrap(t *testing.T) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: secret}}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "127.0.0.1"}
	wrap := func(c net.Conn, dialler bool) (net.Conn, error) {
		s := tls.Server(c, config)
		if dialler {
			s = tls.Client(c, config)
		}
		return s, s.Handshake()
	}
	w := newWorld(t).open(Options{Wrap: wrap, Handshake: time.Second})
	if err := w.connect(""); err != nil {
		t.Fatal(err)
	}
	want := w.moved(w.image(transport.Destination), 0, tokens)
	id, err := w.start(1, transport.Read, 0, tokens)
	if err != nil {
		t.Fatal(err)
	}
	if c := w.wait(w.destination, id); c.Err != nil {
		t.Fatal(c.Err)
	}
	w.same(want, "through TLS")
	plain := w.provider(Options{Handshake: time.Second})
	defer plain.Close()
	if _, err := plain.Connect(t.Context(), w.source.Address()); err == nil {
		t.Error("plain text was accepted where TLS is required")
	}
}
