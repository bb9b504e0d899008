// Package signature signs policies and says whose signatures count.
//
// A signature is a DSSE envelope (https://github.com/secure-systems-lab/dsse,
// version 1) over a statement that names a policy, its version and the SHA-256
// of its module, signed with Ed25519:
//
//	{"payloadType": "application/vnd.kvferry.policy.v1+json",
//	 "payload": base64 of {"name": "heads", "version": "1.0.0", "digest": "sha256:..."},
//	 "signatures": [{"keyid": "...", "sig": base64}]}
//
// So a signature for one policy cannot be shown for another, nor one for an old
// version as one for a new, whatever stores both. Which keys may sign which
// names is a trust file's to say (see ParseTrust).
//
// What a verifier reads comes from strangers: sizes are bounded first, the
// envelope and the statement are read strictly, and a statement is looked at
// only once its signature holds.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
)

// PayloadType is the type of a statement.
const PayloadType = "application/vnd.kvferry.policy.v1+json"

// Bounds on an envelope.
const (
	MaxEnvelope   = 16 << 10 // bytes
	MaxSignatures = 16
)

// Statement is what a signature covers.
type Statement struct {
	Name    string          // of the policy, as its manifest has it
	Version string          // semantic, as its manifest has it
	Digest  geometry.Digest // SHA-256 of the module
}

// String is the statement for people: heads 1.0.0 (sha256:...).
func (s Statement) String() string { return fmt.Sprintf("%s %s (%s)", s.Name, s.Version, s.Digest) }

// Kind says why a signature does not count.
type Kind string

// The kinds of refusals.
const (
	Unsigned   Kind = "unsigned"    // there is none
	Malformed  Kind = "malformed"   // the envelope or its statement cannot be read
	UnknownKey Kind = "unknown key" // no key of the trust file signed it
	OtherName  Kind = "other name"  // it is sound, and of another policy
	OtherVer   Kind = "other version"
	OtherBytes Kind = "other digest" // it is sound, and of another module
	NotAllowed Kind = "not allowed"  // the key may not sign policies of this name
	Expired    Kind = "expired"      // the key counted once
)

// Error is a policy whose signatures do not count. The fault is the operator's,
// who has to trust a key or take another policy.
type Error struct {
	Kind   Kind
	Policy Statement // that a signature was wanted for
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("signature of policy %s: %s: %s", e.Policy, e.Kind, e.Reason)
}

// Blame is the operator.
func (e *Error) Blame() blame.Party { return blame.Operator }

type envelopeRecord struct {
	PayloadType string            `json:"payloadType"`
	Payload     string            `json:"payload"`
	Signatures  []signatureRecord `json:"signatures"`
}

type signatureRecord struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   string `json:"sig"`
}

type statementRecord struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
}

// Envelope is a statement and who signed it. Nothing of it is believed before
// Trust.Verify says so.
type Envelope struct {
	Payload    []byte // the statement as it was signed
	Signatures []Signature
}

// Signature is one key's.
type Signature struct {
	KeyID string // a hint at whose it is; not covered by the signature
	Sig   []byte
}

// encoding is DSSE's pre-authentication encoding of a payload: what is signed.
func encoding(payload []byte) []byte {
	b := append([]byte("DSSEv1 "), strconv.Itoa(len(PayloadType))...)
	b = append(append(b, ' '), PayloadType...)
	b = append(strconv.AppendInt(append(b, ' '), int64(len(payload)), 10), ' ')
	return append(b, payload...)
}

// Sign signs a statement with one key.
//
// Errors: *Error for a statement that cannot be.
func Sign(s Statement, key ed25519.PrivateKey) ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, &Error{Malformed, s, err.Error()}
	}
	payload, err := json.Marshal(statementRecord{s.Name, s.Version, s.Digest.String()})
	if err != nil {
		return nil, fmt.Errorf("write a policy statement: %w", err)
	}
	e := Envelope{payload, []Signature{{KeyID(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, encoding(payload))}}}
	return e.Encode()
}

// Encode is the envelope as it is stored.
func (e Envelope) Encode() ([]byte, error) {
	r := envelopeRecord{PayloadType: PayloadType, Payload: base64.StdEncoding.EncodeToString(e.Payload), Signatures: []signatureRecord{}}
	for _, s := range e.Signatures {
		r.Signatures = append(r.Signatures, signatureRecord{s.KeyID, base64.StdEncoding.EncodeToString(s.Sig)})
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a signature envelope: %w", err)
	}
	return append(b, '\n'), nil
}

var (
	keyIDForm   = regexp.MustCompile(`^[!-~]{0,128}$`)
	nameForm    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`) // a manifest's name
	versionForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$`)
)

// Parse reads an envelope. It checks no signature.
func Parse(b []byte) (Envelope, error) {
	var e Envelope
	if len(b) > MaxEnvelope {
		return e, fmt.Errorf("the envelope has %d bytes, at most %d are read", len(b), MaxEnvelope)
	}
	var r envelopeRecord
	if err := strictly(b, &r); err != nil {
		return e, fmt.Errorf("the envelope is no DSSE envelope: %w", err)
	}
	if r.PayloadType != PayloadType {
		return e, fmt.Errorf("the payload's type is %.80q, want %q", r.PayloadType, PayloadType)
	}
	if n := len(r.Signatures); n == 0 || n > MaxSignatures {
		return e, fmt.Errorf("the envelope has %d signatures, want 1 to %d", n, MaxSignatures)
	}
	payload, err := unbase64(r.Payload)
	if err != nil {
		return e, fmt.Errorf("payload: %w", err)
	}
	e.Payload = payload
	for i, s := range r.Signatures {
		sig, err := unbase64(s.Sig)
		if err != nil {
			return Envelope{}, fmt.Errorf("signatures[%d].sig: %w", i, err)
		}
		if len(sig) != ed25519.SignatureSize {
			return Envelope{}, fmt.Errorf("signatures[%d].sig has %d bytes, one of Ed25519 has %d", i, len(sig), ed25519.SignatureSize)
		}
		if !keyIDForm.MatchString(s.KeyID) {
			return Envelope{}, fmt.Errorf("signatures[%d].keyid is %.40q, want at most 128 printable characters", i, s.KeyID)
		}
		e.Signatures = append(e.Signatures, Signature{s.KeyID, sig})
	}
	return e, nil
}

// unbase64 reads standard base64 in its one spelling.
func unbase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		return nil, errors.New("is not base64 in its standard form")
	}
	return b, nil
}

// strictly reads one JSON object that has no field but those of v, each at most
// once and spelt as there.
func strictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return plainKeys(b)
}

// plainKeys refuses keys that stand twice in an object, or are spelt with
// escapes or other letters than ours: the JSON package takes them, and two
// readers of one envelope would read two things.
func plainKeys(b []byte) error {
	known := map[string]bool{"payloadType": true, "payload": true, "signatures": true, "keyid": true, "sig": true, "name": true, "version": true, "digest": true}
	d := json.NewDecoder(bytes.NewReader(b))
	var objects []map[string]bool // open ones by depth; nil for an array
	key := false
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		value := true
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				objects, key, value = append(objects, map[string]bool{}), true, false
			case '[':
				objects, key, value = append(objects, nil), false, false
			default:
				objects = objects[:len(objects)-1]
			}
		case string:
			if key {
				here := objects[len(objects)-1]
				if !known[t] || here[t] {
					return fmt.Errorf("key %.40q is unknown here, or stands twice", t)
				}
				here[t], key, value = true, false, false
			}
		}
		if value && len(objects) > 0 {
			key = objects[len(objects)-1] != nil
		}
	}
}

func (s Statement) validate() error {
	switch {
	case !nameForm.MatchString(s.Name):
		return fmt.Errorf("name is %.80q, which no policy can have", s.Name)
	case !versionForm.MatchString(s.Version):
		return fmt.Errorf("version is %.80q, which is no semantic version", s.Version)
	case s.Digest == geometry.Digest{}:
		return errors.New("digest is all zero")
	}
	return nil
}

// statement reads what a signature covers.
func statement(payload []byte) (Statement, error) {
	var r statementRecord
	if err := strictly(payload, &r); err != nil {
		return Statement{}, fmt.Errorf("the statement cannot be read: %w", err)
	}
	s := Statement{Name: r.Name, Version: r.Version}
	digits, ok := strings.CutPrefix(r.Digest, "sha256:")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != len(s.Digest) {
		return Statement{}, fmt.Errorf("the statement's digest is %.80q, want sha256: and 64 hexadecimal digits", r.Digest)
	} else {
		copy(s.Digest[:], b)
	}
	return s, s.validate()
}

// KeyID names a public key in envelopes: the first 16 hexadecimal digits of the
// SHA-256 of its 32 bytes.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// Verify checks envelopes of a policy and returns the names of the trust file's
// keys that signed it and may. One that counts is enough; an envelope that does
// not count, whatever is wrong with it, takes nothing from one that does.
//
// Errors: *Error with the kind of the envelope that came nearest to counting.
func (t *Trust) Verify(want Statement, envelopes [][]byte, now time.Time) ([]string, error) {
	best := &Error{Unsigned, want, "there is no signature; sign it, or allow unsigned policies"}
	var names []string
	for _, b := range envelopes {
		good, err := t.verify(want, b, now)
		for _, name := range good {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if err != nil && nearness(err.Kind) > nearness(best.Kind) {
			best = err
		}
	}
	if len(names) == 0 {
		return nil, best
	}
	return names, nil
}

// nearness orders refusals: the further a signature came, the more its refusal
// says.
func nearness(k Kind) int {
	for i, kind := range []Kind{Unsigned, Malformed, UnknownKey, OtherName, OtherVer, OtherBytes, NotAllowed, Expired} {
		if k == kind {
			return i
		}
	}
	return -1
}

func (t *Trust) verify(want Statement, b []byte, now time.Time) ([]string, *Error) {
	e, err := Parse(b)
	if err != nil {
		return nil, &Error{Malformed, want, err.Error()}
	}
	signed := encoding(e.Payload)
	var signers []Key
	var said []string
	for _, s := range e.Signatures {
		said = append(said, strconv.Quote(s.KeyID))
		for _, k := range t.Keys {
			if ed25519.Verify(k.Public, signed, s.Sig) {
				signers = append(signers, k)
			}
		}
	}
	if len(signers) == 0 {
		return nil, &Error{UnknownKey, want, fmt.Sprintf("no key of the trust file made it (it says key %s): the key is not trusted, or the envelope was changed", strings.Join(said, ", "))}
	}
	got, err := statement(e.Payload)
	if err != nil {
		return nil, &Error{Malformed, want, fmt.Sprintf("key %q signed it, but %v", signers[0].Name, err)}
	}
	switch {
	case got.Name != want.Name:
		return nil, &Error{OtherName, want, fmt.Sprintf("key %q signed policy %s", signers[0].Name, got.Name)}
	case got.Version != want.Version:
		return nil, &Error{OtherVer, want, fmt.Sprintf("key %q signed version %s", signers[0].Name, got.Version)}
	case got.Digest != want.Digest:
		return nil, &Error{OtherBytes, want, fmt.Sprintf("key %q signed module %s", signers[0].Name, got.Digest)}
	}
	var names []string
	var last *Error
	for _, k := range signers {
		switch {
		case !k.allows(want.Name):
			if last == nil {
				last = &Error{NotAllowed, want, fmt.Sprintf("key %q may sign %s, not %s", k.Name, strings.Join(k.Policies, ", "), want.Name)}
			}
		case !k.Expires.IsZero() && !now.Before(k.Expires):
			last = &Error{Expired, want, fmt.Sprintf("key %q counted until %s", k.Name, k.Expires.UTC().Format(time.RFC3339))}
		default:
			names = append(names, k.Name)
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	return nil, last
}

// ParsePrivate reads a private key: PKCS #8 in PEM, as
// "openssl genpkey -algorithm ed25519" writes it.
func ParsePrivate(text []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("read a private key: want one PEM block PRIVATE KEY (PKCS #8)")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read a private key: %w", err)
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read a private key: it is a %T, want Ed25519", k)
	}
	return key, nil
}

// FormatPrivate is what ParsePrivate reads.
func FormatPrivate(key ed25519.PrivateKey) ([]byte, error) {
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), nil
}
