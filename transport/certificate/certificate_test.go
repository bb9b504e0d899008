package certificate_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/transport/certificate"
	"github.com/kvferry/kvferry/transport/certificate/authority"
)

type wrapper func(net.Conn, bool) (net.Conn, error)

// meet joins two sides over a socket. Each sends a line and reads the other's,
// as far as it gets; what stopped it is its error.
func meet(t *testing.T, dialler, acceptor wrapper) (there, here error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	talk := func(c net.Conn, w wrapper, dials bool) error {
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		s, err := w(c, dials)
		if err != nil {
			return err
		}
		if _, err := s.Write([]byte("hello")); err != nil {
			return err
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err != nil {
			return err
		}
		if string(b) != "hello" {
			return errors.New("other bytes")
		}
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			here = err
			return
		}
		here = talk(c, acceptor, false)
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there = talk(c, dialler, true)
	wg.Wait()
	return there, here
}

func open(t *testing.T, c certificate.Config) *certificate.Identity {
	t.Helper()
	i, err := certificate.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestBothSidesShowWhoTheyAre(t *testing.T) {
	fleet, strangers := authority.New(t), authority.New(t)
	only := func(name string, names ...string) wrapper {
		c := fleet.Issue(authority.Leaf{Name: name, URI: "spiffe://fleet/" + name})
		c.Names = names
		return open(t, c).Wrap
	}
	late := fleet.Issue(authority.Leaf{Name: "late", Expires: -time.Hour})
	late.Now = func() time.Time { return time.Now().Add(-90 * time.Minute) } // its own clock is slow
	mixed := strangers.Issue(authority.Leaf{Name: "mixed"})
	mixed.Authority = fleet.File
	for _, c := range []struct {
		name              string
		dialler, acceptor wrapper
		there, here       string // what each says; empty: nothing
	}{
		{"one authority", fleet.Open("a").Wrap, fleet.Open("b").Wrap, "", ""},
		{"a name that is wanted", only("decode-1", "prefill-*"), only("prefill-1", "decode-?"), "", ""},
		{"a URI that is wanted", only("decode-1", "spiffe://fleet/*"), only("prefill-1"), "", ""},
		{"another name", fleet.Open("decode-1").Wrap, only("prefill-1", "prefill-*"), "it refused us", `"decode-1": its names ["decode-1"] are none of ["prefill-*"]`},
		{"another name of the acceptor", only("a", "b-*"), fleet.Open("c").Wrap, `"c": its names ["c"] are none of ["b-*"]`, "it refused us"},
		{"another authority", strangers.Open("a").Wrap, fleet.Open("b").Wrap, "its certificate does not count", "it refused us"},
		{"another authority, believed by one side", open(t, mixed).Wrap, fleet.Open("b").Wrap, "it refused us", "its certificate does not count"},
		{"an expired certificate", open(t, late).Wrap, fleet.Open("b").Wrap, "it refused us", "certificate has expired"},
		{"a certificate for acceptors only", open(t, fleet.Issue(authority.Leaf{Name: "s", Uses: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})).Wrap, fleet.Open("b").Wrap, "it refused us", "incompatible key usage"},
		{"a certificate for diallers only", fleet.Open("a").Wrap, open(t, fleet.Issue(authority.Leaf{Name: "c", Uses: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})).Wrap, "incompatible key usage", "it refused us"},
		{"no certificate", bare(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{certificate.Protocol}}), fleet.Open("b").Wrap, "*", "didn't provide a certificate"},
		{"another protocol inside", bare(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}), fleet.Open("b").Wrap, "*", "unsupported application protocols"},
		{"no protocol named", bare(&tls.Config{InsecureSkipVerify: true, Certificates: pair(t, fleet)}), fleet.Open("b").Wrap, "*", `it speaks "" inside`},
		{"an older TLS", bare(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}), fleet.Open("b").Wrap, "*", "unsupported versions"},
		{"no TLS", func(c net.Conn, _ bool) (net.Conn, error) { return c, nil }, fleet.Open("b").Wrap, "*", "it does not speak TLS"},
		{"no TLS of the acceptor", fleet.Open("a").Wrap, func(c net.Conn, _ bool) (net.Conn, error) { return c, nil }, "it does not speak TLS", "*"},
	} {
		there, here := meet(t, c.dialler, c.acceptor)
		for _, s := range []struct {
			side, want string
			err        error
		}{{"dialler", c.there, there}, {"acceptor", c.here, here}} {
			switch {
			case s.want == "*": // a stranger's own matter
			case s.want == "" && s.err != nil, s.want != "" && (s.err == nil || !strings.Contains(s.err.Error(), s.want)):
				// A peer that hangs up at once may be seen as a reset before its
				// reason is read.
				if s.want == "it refused us" && s.err != nil {
					continue
				}
				t.Errorf("%s: the %s says %v, want %q", c.name, s.side, s.err, s.want)
			case strings.Contains(s.want, "certificate does not count") && blame.Of(s.err) != blame.Peer:
				t.Errorf("%s: blames %s", c.name, blame.Of(s.err))
			}
		}
		if c.there+c.here != "" && there == nil && here == nil {
			t.Errorf("%s: they talked", c.name)
		}
	}
}

func bare(c *tls.Config) wrapper {
	return func(raw net.Conn, _ bool) (net.Conn, error) {
		s := tls.Client(raw, c)
		return s, s.Handshake()
	}
}

func pair(t *testing.T, a *authority.Authority) []tls.Certificate {
	t.Helper()
	c := a.Issue(authority.Leaf{Name: "x"})
	k, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{k}
}

// A renewed certificate is used without a restart, a broken renewal is not, and
// neither touches connections that stand.
func TestRenewal(t *testing.T) {
	fleet, others := authority.New(t), authority.New(t)
	c := fleet.Issue(authority.Leaf{Name: "before"})
	c.Check = time.Nanosecond
	var mu sync.Mutex
	var failed []error
	c.Failed = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, err)
	}
	i := open(t, c)
	peer := fleet.Open("peer")

	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	standing := make(chan net.Conn, 1)
	go func() {
		s, err := peer.Wrap(b, false)
		if err != nil {
			t.Error(err)
		}
		standing <- s
	}()
	mine, err := i.Wrap(a, true)
	if err != nil {
		t.Fatal(err)
	}
	theirs := <-standing

	if got := i.Status().Name; got != "before" {
		t.Fatalf("certificate %q", got)
	}
	fleet.Renew(c, authority.Leaf{Name: "after", Expires: 30 * time.Minute})
	s := i.Status()
	if s.Name != "after" || time.Until(s.Expires) > 31*time.Minute {
		t.Errorf("after the renewal: %+v", s)
	}
	if there, here := meet(t, i.Wrap, peer.Wrap); there != nil || here != nil {
		t.Errorf("after the renewal: %v, %v", there, here)
	}
	// The key of another certificate: what was read before stays.
	if err := os.Rename(others.Issue(authority.Leaf{Name: "odd"}).Key, c.Key); err != nil {
		t.Fatal(err)
	}
	if got := i.Status().Name; got != "after" {
		t.Errorf("after a broken renewal: %q", got)
	}
	mu.Lock()
	if len(failed) == 0 || !strings.Contains(failed[0].Error(), "the certificate in use stays") || blame.Of(failed[0]) != blame.Operator {
		t.Errorf("a broken renewal is told as %v", failed)
	}
	mu.Unlock()
	if there, here := meet(t, i.Wrap, peer.Wrap); there != nil || here != nil {
		t.Errorf("after a broken renewal: %v, %v", there, here)
	}
	fleet.Renew(c, authority.Leaf{Name: "mended"})
	if got := i.Status().Name; got != "mended" {
		t.Errorf("after it was mended: %q", got)
	}
	go func() {
		if _, err := mine.Write([]byte("still")); err != nil {
			t.Error(err)
		}
	}()
	got := make([]byte, 5)
	if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "still" {
		t.Errorf("the connection from before: %q, %v", got, err)
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	fleet := authority.New(t)
	good := fleet.Issue(authority.Leaf{Name: "a"})
	other := fleet.Issue(authority.Leaf{Name: "b"})
	text := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	file := func(content string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "f.pem")
		if err := os.WriteFile(name, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		name   string
		change func(*certificate.Config)
		want   string
	}{
		{"no certificate", func(c *certificate.Config) { c.Certificate = "nowhere.pem" }, `file "nowhere.pem": cannot be opened`},
		{"a folder", func(c *certificate.Config) { c.Authority = t.TempDir() }, "is no plain file"},
		{"a key that others may read", func(c *certificate.Config) { c.Key = file(text(good.Key), 0o644) }, "has mode 0644: others can read or change it; chmod it to 0600"},
		{"another key", func(c *certificate.Config) { c.Key = other.Key }, "is no certificate with the key in"},
		{"garbage", func(c *certificate.Config) { c.Certificate = file("hello", 0o600) }, "is no certificate"},
		{"an empty authority", func(c *certificate.Config) { c.Authority = file("\n", 0o600) }, "holds no certificate"},
		{"an authority that is none", func(c *certificate.Config) { c.Authority = good.Certificate }, "certificate 0 (a) is not that of an authority"},
		{"an authority with a key", func(c *certificate.Config) { c.Authority = file(text(fleet.File)+text(good.Key), 0o600) }, `holds a "PRIVATE KEY", want certificates only`},
		{"an authority and more", func(c *certificate.Config) { c.Authority = file(text(fleet.File)+"and more", 0o600) }, "something that is no PEM follows"},
		{"a broken authority", func(c *certificate.Config) {
			c.Authority = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o600)
		}, "certificate 0: x509"},
		{"one that has expired", func(c *certificate.Config) { *c = fleet.Issue(authority.Leaf{Name: "a", Expires: -time.Hour}) }, "counts from "},
		{"a file that is too long", func(c *certificate.Config) { c.Authority = file(strings.Repeat("#", certificate.MaxBytes+1), 0o600) }, "has more than 1048576 bytes"},
		{"a pattern that is none", func(c *certificate.Config) { c.Names = []string{"[a"} }, `pattern "[a"`},
	} {
		config := good
		c.change(&config)
		_, err := certificate.Open(config)
		var e *certificate.FileError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || blame.Of(err) != blame.Operator {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
