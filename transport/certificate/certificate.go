// Package certificate protects connections between runtimes: TLS 1.3, with a
// certificate of both sides that one authority signed.
//
// Runtimes of one fleet trust whoever their authority signed: addresses come and
// go, so it is not the address that a certificate has to name. Identity.Names
// narrows that to some names.
//
// The files are read again when they have changed: a certificate is renewed
// without a restart, and connections that stand stay. A renewed file that cannot
// be used changes nothing and is reported.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// MaxBytes bounds each file.
const MaxBytes = 1 << 20

// Protocol is what both sides have to speak inside (ALPN): a connection that was
// meant for another service of the same authority is refused.
const Protocol = "kvferry/1"

// Config says what an Identity is made of.
type Config struct {
	Certificate string // PEM file: the certificate and those between it and the authority
	Key         string // PEM file: its private key; others may not be able to read it
	Authority   string // PEM file: the certificates of who signs peers'

	// Names are patterns, as of path.Match, of the DNS names and URIs that
	// peers' certificates may carry; one has to match. Empty: all that the
	// authority signed.
	Names []string

	Check  time.Duration    // how often files are looked at, at most; 0: 1 s
	Now    func() time.Time // that certificates expire by; nil: time.Now
	Failed func(error)      // told of renewed files that cannot be used, from any goroutine; nil: nobody
}

// FileError is a file that cannot be used. The fault is the operator's.
type FileError struct {
	File   string
	Reason string
	Err    error // may be nil
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("certificate: file %q: %s", e.File, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Fault names the party that has to change something.
func (e *FileError) Fault() string { return "operator" }

// PeerError is a peer that did not show a certificate that counts, or that did
// not accept ours.
type PeerError struct {
	Peer   string // what the certificate calls it; empty: it showed none
	Reason string
	Err    error // may be nil
}

func (e *PeerError) Error() string {
	s := "certificate: the peer"
	if e.Peer != "" {
		s += fmt.Sprintf(" %q", e.Peer)
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// Fault names the party that has to change something.
func (e *PeerError) Fault() string { return "peer" }

// Identity is who this side is, and whom it believes. Safe for concurrent use.
type Identity struct {
	c Config

	mu     sync.Mutex
	looked time.Time // when the files were last looked at
	stamps [3]stamp
	now    *material
}

// material is one reading of the files. It is not changed.
type material struct {
	own         tls.Certificate
	authorities *x509.CertPool
}

// stamp tells two states of a file apart.
type stamp struct {
	inode   uint64
	size    int64
	changed time.Time
}

// Open reads the files.
//
// Errors: *FileError.
func Open(c Config) (*Identity, error) {
	if c.Check == 0 {
		c.Check = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, p := range c.Names {
		if _, err := path.Match(p, ""); err != nil {
			return nil, &FileError{"", fmt.Sprintf("Names: pattern %q", p), err}
		}
	}
	i := &Identity{c: c}
	i.stamps, i.looked = i.look(), time.Now()
	var err error
	if i.now, err = i.read(); err != nil {
		return nil, err
	}
	return i, nil
}

func (i *Identity) files() [3]string { return [3]string{i.c.Certificate, i.c.Key, i.c.Authority} }

// look returns what is to be seen of the files without reading them.
func (i *Identity) look() (out [3]stamp) {
	for k, name := range i.files() {
		if info, err := os.Stat(name); err == nil {
			out[k] = stamp{size: info.Size(), changed: info.ModTime()}
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				out[k].inode = s.Ino
			}
		}
	}
	return out
}

// read reads the files. Certificates that have expired are refused already here:
// nobody would believe them.
func (i *Identity) read() (*material, error) {
	var text [3][]byte
	for k, name := range i.files() {
		var err error
		if text[k], err = readFile(name, k == 1); err != nil {
			return nil, err
		}
	}
	m := &material{authorities: x509.NewCertPool()}
	own, err := tls.X509KeyPair(text[0], text[1])
	if err != nil {
		return nil, &FileError{i.c.Certificate, fmt.Sprintf("is no certificate with the key in %q", i.c.Key), err}
	}
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		return nil, &FileError{i.c.Certificate, "cannot be read", err}
	}
	if now := i.c.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return nil, &FileError{i.c.Certificate, fmt.Sprintf("counts from %s to %s, and it is %s", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)), nil}
	}
	own.Leaf, m.own = leaf, own
	count := 0
	for rest := text[2]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, &FileError{i.c.Authority, "something that is no PEM follows the certificates", nil}
			}
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, &FileError{i.c.Authority, fmt.Sprintf("holds a %q, want certificates only", block.Type), nil}
		}
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return nil, &FileError{i.c.Authority, fmt.Sprintf("certificate %d", count), err}
		case !c.IsCA:
			return nil, &FileError{i.c.Authority, fmt.Sprintf("certificate %d (%s) is not that of an authority", count, title(c)), nil}
		}
		m.authorities.AddCert(c)
		count++
	}
	if count == 0 {
		return nil, &FileError{i.c.Authority, "holds no certificate", nil}
	}
	return m, nil
}

// readFile reads a bounded plain file; a secret one must be its owner's alone.
func readFile(name string, secret bool) (_ []byte, err error) {
	f, err := os.OpenFile(filepath.Clean(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &FileError{name, "cannot be opened", err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, &FileError{name, "cannot be read", err}
	case !info.Mode().IsRegular():
		return nil, &FileError{name, "is no plain file", nil}
	case secret && info.Mode().Perm()&0o077 != 0:
		return nil, &FileError{name, fmt.Sprintf("holds a private key and has mode %#o: others can read or change it; chmod it to 0600", info.Mode().Perm()), nil}
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	switch {
	case err != nil:
		return nil, &FileError{name, "cannot be read", err}
	case len(b) > MaxBytes:
		return nil, &FileError{name, fmt.Sprintf("has more than %d bytes", MaxBytes), nil}
	}
	return b, nil
}

// current is the newest reading of the files that can be used.
func (i *Identity) current() *material {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.looked) < i.c.Check {
		return i.now
	}
	i.looked = time.Now()
	stamps := i.look()
	if stamps == i.stamps {
		return i.now
	}
	m, err := i.read()
	if err != nil {
		// A renewal writes several files: they are looked at again until they
		// go together.
		if i.c.Failed != nil {
			i.c.Failed(fmt.Errorf("the certificate in use stays: %w", err))
		}
		return i.now
	}
	i.stamps, i.now = stamps, m
	return m
}

// Status is the certificate in use.
type Status struct {
	Name    string    // what it calls this side
	Expires time.Time // no connection is made after that
}

// Status is the certificate in use.
func (i *Identity) Status() Status {
	leaf := i.current().own.Leaf
	return Status{title(leaf), leaf.NotAfter}
}

// Wrap protects a connection that the caller has just dialled, or accepted, and
// returns once both sides have shown their certificates. The deadlines of the
// result are c's. Ours may still be refused by the peer; the first read then
// says so.
//
// Errors: *PeerError; those of c.
func (i *Identity) Wrap(c net.Conn, dialler bool) (net.Conn, error) {
	m := i.current()
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.own}, NextProtos: []string{Protocol},
		// Every peer proves who it is, each time.
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		// Instead of a host's name, verify looks at who signed.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return i.verify(m, s, dialler) },
	}
	var t *tls.Conn
	if dialler {
		t = tls.Client(c, config)
	} else {
		t = tls.Server(c, config)
	}
	if err := t.Handshake(); err != nil {
		return nil, explained(err)
	}
	return &conn{t}, nil
}

// verify decides whether a peer is believed.
func (i *Identity) verify(m *material, s tls.ConnectionState, dialler bool) error {
	if len(s.PeerCertificates) == 0 {
		return &PeerError{"", "it showed no certificate", nil}
	}
	leaf := s.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	use := x509.ExtKeyUsageClientAuth
	if dialler {
		use = x509.ExtKeyUsageServerAuth
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: m.authorities, Intermediates: between, CurrentTime: i.c.Now(), KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
		return &PeerError{title(leaf), "its certificate does not count", err}
	}
	if s.NegotiatedProtocol != Protocol {
		return &PeerError{title(leaf), fmt.Sprintf("it speaks %q inside, want %q", s.NegotiatedProtocol, Protocol), nil}
	}
	if len(i.c.Names) == 0 {
		return nil
	}
	for _, name := range names(leaf) {
		for _, p := range i.c.Names {
			if ok, err := path.Match(p, name); ok && err == nil {
				return nil
			}
		}
	}
	return &PeerError{title(leaf), fmt.Sprintf("its names %q are none of %q", names(leaf), i.c.Names), nil}
}

// names are what a certificate may be matched by.
func names(c *x509.Certificate) []string {
	out := append([]string(nil), c.DNSNames...)
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	return out
}

// title is what a certificate calls its holder.
func title(c *x509.Certificate) string {
	if n := names(c); len(n) > 0 {
		return n[0]
	}
	return c.Subject.String()
}

// conn says in the words of this package why a peer hung up.
type conn struct{ *tls.Conn }

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, explained(err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, explained(err)
}

// explained turns what the peer said of us, or what makes no TLS, into a
// *PeerError. Everything else stays as it is.
func explained(err error) error {
	var (
		alert  tls.AlertError
		record tls.RecordHeaderError
		peer   *PeerError
		remote *net.OpError
	)
	switch {
	case err == nil || errors.As(err, &peer):
		return err
	case errors.As(err, &record):
		return &PeerError{"", "it does not speak TLS", err}
	case errors.As(err, &remote) && remote.Op == "remote error", errors.As(err, &alert):
		return &PeerError{"", "it refused us; its own log says why", err}
	}
	return err
}
