package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/runtime/blame"
)

// Bounds on a trust file.
const (
	MaxTrust    = 256 << 10 // bytes
	MaxKeys     = 256
	MaxPatterns = 64 // of a key
)

// Trust says which keys may sign which policies.
type Trust struct{ Keys []Key }

// Key is one trusted key.
type Key struct {
	Name     string
	Public   ed25519.PublicKey
	Policies []string  // patterns of policy names; * stands for any run of characters, none included
	Expires  time.Time // its signatures do not count from then on; zero: never
}

// TrustError is a trust file that cannot be read. The fault is the operator's.
type TrustError struct {
	Field  string
	Reason string
}

func (e *TrustError) Error() string { return "trust file: " + e.Field + ": " + e.Reason }

// Blame is the operator.
func (e *TrustError) Blame() blame.Party { return blame.Operator }

type trustRecord struct {
	Format string      `yaml:"kvferry"`
	Keys   []keyRecord `yaml:"keys"`
}

type keyRecord struct {
	Name     string   `yaml:"name"`
	Key      string   `yaml:"key"`
	Policies []string `yaml:"policies"`
	Expires  string   `yaml:"expires,omitempty"`
}

const trustFormat = "trust/1"

var (
	keyNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	patternForm = regexp.MustCompile(`^[a-z0-9*-]{1,64}$`)
)

// ParseTrust reads a trust file, YAML or JSON:
//
//	kvferry: trust/1
//	keys:
//	  - name: platform
//	    key: ed25519:bjJ2...=          # base64 of the 32 bytes, or a PEM block PUBLIC KEY
//	    policies: [heads, "team-*"]    # names of policies that the key may sign
//	    expires: 2027-01-01T00:00:00Z  # optional; a day alone is its start in UTC
//
// Unknown fields, keys that stand twice and keys that may sign nothing are
// refused.
//
// Errors: *TrustError.
func ParseTrust(text []byte) (*Trust, error) {
	bad := func(field, why string, args ...any) (*Trust, error) {
		return nil, &TrustError{field, fmt.Sprintf(why, args...)}
	}
	if len(text) > MaxTrust {
		return bad("size", "%d bytes, at most %d are read", len(text), MaxTrust)
	}
	var r trustRecord
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		return bad("YAML", "%v", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return bad("YAML", "a second document follows")
	}
	if r.Format != trustFormat {
		return bad("kvferry", "is %.40q, want %q", r.Format, trustFormat)
	}
	if n := len(r.Keys); n > MaxKeys {
		return bad("keys", "%d of them, at most %d are read", n, MaxKeys)
	}
	t := &Trust{}
	for i, k := range r.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		out := Key{Name: k.Name, Policies: k.Policies}
		var err error
		switch out.Public, err = parsePublic(k.Key); {
		case err != nil:
			return bad(at+".key", "%v", err)
		case !keyNameForm.MatchString(k.Name):
			return bad(at+".name", "is %.80q, want 1 to 64 letters, digits and ._@-", k.Name)
		case len(k.Policies) == 0 || len(k.Policies) > MaxPatterns:
			return bad(at+".policies", "names %d patterns, want 1 to %d", len(k.Policies), MaxPatterns)
		}
		for n, p := range k.Policies {
			if !patternForm.MatchString(p) {
				return bad(fmt.Sprintf("%s.policies[%d]", at, n), "is %.80q, want the characters of a policy's name and *", p)
			}
		}
		if k.Expires != "" {
			if out.Expires, err = parseTime(k.Expires); err != nil {
				return bad(at+".expires", "is %.40q, want a time such as 2027-01-01T00:00:00Z, or a day", k.Expires)
			}
		}
		for _, o := range t.Keys {
			if o.Name == out.Name {
				return bad(at+".name", "%q stands twice", out.Name)
			}
			if o.Public.Equal(out.Public) {
				return bad(at+".key", "is that of %q as well", o.Name)
			}
		}
		t.Keys = append(t.Keys, out)
	}
	return t, nil
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	t = t.UTC()
	if err == nil && (t.Year() < 1970 || t.Year() > 9999) { // the zero time means never
		err = errors.New("out of range")
	}
	return t, err
}

const publicPrefix = "ed25519:"

// FormatPublic is a public key as a trust file has it.
func FormatPublic(key ed25519.PublicKey) string {
	return publicPrefix + base64.StdEncoding.EncodeToString(key)
}

func parsePublic(text string) (ed25519.PublicKey, error) {
	if rest, ok := strings.CutPrefix(strings.TrimSpace(text), publicPrefix); ok {
		b, err := unbase64(rest)
		if err != nil || len(b) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("want ed25519: and the base64 of %d bytes", ed25519.PublicKeySize)
		}
		return b, nil
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("want ed25519: and base64, or one PEM block PUBLIC KEY")
	}
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("PEM block PUBLIC KEY: %w", err)
	}
	key, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("PEM block PUBLIC KEY holds a %T, want Ed25519", k)
	}
	return key, nil
}

// Format is the trust file in its canonical form, which ParseTrust reads back.
func (t *Trust) Format() ([]byte, error) {
	r := trustRecord{Format: trustFormat, Keys: []keyRecord{}}
	for _, k := range t.Keys {
		out := keyRecord{Name: k.Name, Key: FormatPublic(k.Public), Policies: k.Policies}
		if !k.Expires.IsZero() {
			out.Expires = k.Expires.UTC().Format(time.RFC3339Nano)
		}
		r.Keys = append(r.Keys, out)
	}
	b, err := yaml.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a trust file: %w", err)
	}
	return b, nil
}

func (k Key) allows(name string) bool {
	return slices.ContainsFunc(k.Policies, func(p string) bool { return match(p, name) })
}

// match reports whether a pattern stands for the whole name.
func match(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	last := parts[len(parts)-1]
	if !ok || !strings.HasSuffix(rest, last) {
		return false
	}
	rest = rest[:len(rest)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return true
}
