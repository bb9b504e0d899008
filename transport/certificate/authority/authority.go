// Package authority signs certificates for tests.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvferry/kvferry/transport/certificate"
)

// Authority signs certificates. Make one with New.
type Authority struct {
	File string // its own certificate
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der := a.sign(template, template, &a.key.PublicKey)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = filepath.Join(t.TempDir(), "authority.pem")
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Leaf is what a certificate says. The zero value of Uses means both sides'.
type Leaf struct {
	Name    string // a DNS name
	URI     string
	Uses    []x509.ExtKeyUsage
	Expires time.Duration // from now; 0: 1 h
}

// Issue signs a certificate and returns the files in a folder of their own.
func (a *Authority) Issue(l Leaf) certificate.Config {
	a.t.Helper()
	dir := a.t.TempDir()
	c := certificate.Config{Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Authority: a.File}
	a.Renew(c, l)
	return c
}

// Renew signs another certificate into the same files.
func (a *Authority) Renew(c certificate.Config, l Leaf) {
	a.t.Helper()
	if l.Uses == nil {
		l.Uses = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	if l.Expires == 0 {
		l.Expires = time.Hour
	}
	template := &x509.Certificate{SerialNumber: serial(a.t), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(l.Expires), ExtKeyUsage: l.Uses}
	if l.Name != "" {
		template.DNSNames = []string{l.Name}
	}
	if l.URI != "" {
		u, err := url.Parse(l.URI)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	key := newKey(a.t)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, c.Key, "PRIVATE KEY", secret)
	write(a.t, c.Certificate, "CERTIFICATE", a.sign(template, a.cert, &key.PublicKey))
}

// Open is an identity with a certificate of that name.
func (a *Authority) Open(name string) *certificate.Identity {
	a.t.Helper()
	i, err := certificate.Open(a.Issue(Leaf{Name: name}))
	if err != nil {
		a.t.Fatal(err)
	}
	return i
}

func (a *Authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// write replaces a file as a renewal does: under another name first.
func write(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}
