// Package artifact moves policies: it packs a module and its signatures, puts
// them into a file, an OCI layout or an OCI registry, and gets them back.
//
// In a layout and in a registry a policy is an OCI image manifest with the media
// types of the CNCF's Wasm artifact, so that other tools read it: a config of
// type application/vnd.wasm.config.v0+json and one layer of type
// application/wasm, which is the module. A signature (package signature) is a
// manifest of its own whose subject is the policy's: a referrer. Beside a file
// it is a file with .sig after its name.
//
// What a registry says is not believed. A reference names a manifest by its
// digest, and everything follows from that; sizes are checked before anything is
// downloaded; signatures are required unless the configuration says otherwise;
// credentials go to the registry's own host and nowhere else (guard.go).
package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/signature"
	"github.com/kvferry/kvferry/wasm/module"
)

// Media types.
const (
	ConfigType    = "application/vnd.wasm.config.v0+json"
	ModuleType    = "application/wasm"
	SignatureType = "application/vnd.kvferry.policy.signature.v1" // of a referrer that holds an EnvelopeType
	EnvelopeType  = "application/vnd.dsse.envelope.v1+json"
)

// Bounds on what is read.
const (
	MaxModule     = module.MaxModule
	MaxManifest   = 64 << 10
	MaxConfig     = 64 << 10
	MaxSignatures = 64 // referrers of a policy that are looked at
)

// SignatureSuffix is after the name of a module's file in that of its
// signature's.
const SignatureSuffix = ".sig"

// ErrNotFound is a policy, or a place for it, that is not there.
var ErrNotFound = errors.New("not found")

// Error is a policy that could not be fetched or stored.
type Error struct {
	Reference Reference
	What      string // "manifest", "module", "config", "reference", "registry", ...
	Reason    string
	Party     blame.Party
	Err       error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("policy %s: %s: %s", e.Reference, e.What, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Blame says whose fault it is.
func (e *Error) Blame() blame.Party { return e.Party }

// Credential is what a registry asks for: a user and a password, or a token.
// The zero value is nobody.
type Credential struct {
	Username, Password string
	Refresh            string // OAuth2 refresh token
	Token              string // bearer token
}

// Options say what may be fetched, and how. The zero value is the strictest.
type Options struct {
	// Trust says whose signatures count. Where it is given, a policy must be
	// signed wherever it comes from.
	Trust *signature.Trust
	// AllowUnsigned lets policies that no trusted key signed be fetched. Nil
	// Trust allows that for files and layouts, never for a registry.
	AllowUnsigned bool
	// Signatures has signatures fetched (Policy.Signatures) where no Trust looks
	// at them.
	Signatures bool
	// AllowTag lets a tag name what is fetched from a layout or a registry.
	// Whoever can move the tag then decides which policy it is.
	AllowTag bool

	// Credential answers what a registry on a host (with its port) asks for.
	// Nil: nobody. It is asked for no host but the reference's.
	Credential func(ctx context.Context, host string) (Credential, error)
	// TokenHosts are hosts besides the registry's own that may be sent its
	// credential, where the registry has its tokens made elsewhere.
	TokenHosts []string
	// PlainHTTP speaks HTTP to a registry that is not on this machine.
	PlainHTTP bool
	// Transport reaches registries; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Timeout bounds all of a fetch or a push; 0: 2 minutes.
	Timeout time.Duration
	// Now is the clock that keys expire by; nil: time.Now.
	Now func() time.Time
}

// Policy is a policy that was fetched.
type Policy struct {
	Module   []byte
	Manifest module.Manifest
	Digest   geometry.Digest // SHA-256 of Module
	Keys     []string        // of the trust file, that signed it and may; empty: unsigned, or nobody checked
	// Reference is where it came from, pinned.
	Reference Reference
	// Signatures are the envelopes that lie with it, whatever they are worth. In
	// a layout or registry they are looked for where Options say so.
	Signatures [][]byte
}

// Statement is what a signature of the policy covers.
func (p *Policy) Statement() signature.Statement {
	return signature.Statement{Name: p.Manifest.Name, Version: p.Manifest.Version, Digest: p.Digest}
}

// Statement reads from a module what a signature of it covers.
//
// Errors: *module.Error.
func Statement(wasm []byte) (signature.Statement, error) {
	m, err := module.ReadManifest(wasm)
	if err != nil {
		return signature.Statement{}, err
	}
	return signature.Statement{Name: m.Name, Version: m.Version, Digest: sha256.Sum256(wasm)}, nil
}

// descriptor is a blob as its manifest has it, with a digest of ours.
type descriptor struct {
	mediaType string
	digest    geometry.Digest
	size      int64
}

func (d descriptor) oci() v1.Descriptor {
	return v1.Descriptor{MediaType: d.mediaType, Digest: digest.Digest(d.digest.String()), Size: d.size}
}

func describe(mediaType string, b []byte) descriptor {
	return descriptor{mediaType, sha256.Sum256(b), int64(len(b))}
}

// readable turns a descriptor that a stranger wrote into one that may be
// followed.
func readable(d v1.Descriptor, what string, most int64) (descriptor, error) {
	out := descriptor{mediaType: d.MediaType, size: d.Size}
	digits, ok := strings.CutPrefix(string(d.Digest), "sha256:")
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(out.digest) || strings.ToLower(digits) != digits {
		return out, fmt.Errorf("%s: digest %.80q: want sha256: and 64 small hexadecimal digits", what, d.Digest)
	}
	copy(out.digest[:], b)
	if d.Size < 0 || d.Size > most {
		return out, fmt.Errorf("%s: has %d bytes, at most %d are downloaded", what, d.Size, most)
	}
	return out, nil
}

// place is where manifests and blobs lie: a layout or a repository.
type place interface {
	// resolve finds the manifest of a tag or of a digest.
	resolve(ctx context.Context, ref Reference) (v1.Descriptor, error)
	// fetch reads what a descriptor is of. The bytes have its size and digest.
	fetch(ctx context.Context, d descriptor) ([]byte, error)
	// referrers lists manifests of SignatureType whose subject is d's, no more
	// than MaxSignatures.
	referrers(ctx context.Context, d descriptor) ([]v1.Descriptor, error)
	// push stores a blob or a manifest; tag may be empty.
	push(ctx context.Context, d descriptor, b []byte, tag string) error
}

// open opens where a reference points. write makes a layout that is not there.
func open(ref Reference, opt Options, write bool) (place, func() error, error) {
	if ref.Scheme == Layout {
		l, err := openLayout(ref.Path, write)
		if err != nil {
			return nil, nil, err
		}
		return l, l.close, nil
	}
	r, err := openRepository(ref, opt)
	if err != nil {
		return nil, nil, err
	}
	return r, func() error { return nil }, nil
}

// within bounds a context by the options' timeout.
func (opt Options) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if opt.Timeout <= 0 {
		opt.Timeout = 2 * time.Minute
	}
	return context.WithTimeout(ctx, opt.Timeout)
}

// Fetch gets a policy and checks its signatures.
//
// Errors: *Error, *signature.Error, *module.Error.
func Fetch(ctx context.Context, ref Reference, opt Options) (*Policy, error) {
	ctx, cancel := opt.within(ctx)
	defer cancel()
	if ref.Scheme != File && !ref.Pinned() && !opt.AllowTag {
		return nil, &Error{ref, "reference", "names a tag, which can be moved; name the manifest by its digest, or allow tags", blame.Operator, nil}
	}
	var p *Policy
	var envelopes [][]byte
	var err error
	if ref.Scheme == File {
		p, envelopes, err = fetchFile(ref)
	} else {
		p, envelopes, err = fetchManifest(ctx, ref, opt)
	}
	if err != nil {
		return nil, err
	}
	p.Signatures = envelopes
	if p.Manifest, err = module.ReadManifest(p.Module); err != nil {
		return nil, blame.On(blame.Policy, fmt.Errorf("policy %s: %w", ref, err))
	}
	switch {
	case opt.Trust != nil:
		now := time.Now
		if opt.Now != nil {
			now = opt.Now
		}
		p.Keys, err = opt.Trust.Verify(p.Statement(), envelopes, now())
		if err != nil && !opt.AllowUnsigned {
			return nil, fmt.Errorf("policy %s: %w", ref, err)
		}
	case ref.Remote() && !opt.AllowUnsigned:
		return nil, fmt.Errorf("policy %s: %w", ref, &signature.Error{Kind: signature.Unsigned, Policy: p.Statement(), Reason: "no trust file says whose signatures count; give one, or allow unsigned policies"})
	}
	return p, nil
}

// config is the CNCF's config of a Wasm artifact.
type config struct {
	Created      string          `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
}

// epoch is the time in everything that is packed: the same module gives the
// same manifest.
const epoch = "1970-01-01T00:00:00Z"

func fetchManifest(ctx context.Context, ref Reference, opt Options) (*Policy, [][]byte, error) {
	at, done, err := open(ref, opt, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = done() }() // it was only read from
	fail := func(what string, party blame.Party, err error) (*Policy, [][]byte, error) {
		return nil, nil, failed(ref, what, party, err)
	}
	found, err := at.resolve(ctx, ref)
	if err != nil {
		return fail("manifest", blame.Operator, err)
	}
	top, err := readable(found, "manifest", MaxManifest)
	if err != nil {
		return fail("manifest", blame.Policy, err)
	}
	if ref.Pinned() && top.digest != ref.Digest {
		return fail("manifest", blame.Operator, fmt.Errorf("is %s, the reference names %s", top.digest, ref.Digest))
	}
	if top.mediaType != v1.MediaTypeImageManifest {
		return fail("manifest", blame.Policy, fmt.Errorf("is a %.80q, want %q", top.mediaType, v1.MediaTypeImageManifest))
	}
	b, err := at.fetch(ctx, top)
	if err != nil {
		return fail("manifest", blame.Operator, err)
	}
	layer, conf, err := readManifest(b)
	if err != nil {
		return fail("manifest", blame.Policy, err)
	}
	if b, err = at.fetch(ctx, conf); err != nil {
		return fail("config", blame.Operator, err)
	}
	if err := readConfig(b, layer); err != nil {
		return fail("config", blame.Policy, err)
	}
	// Signatures first: they are small, and what nobody signed need not be
	// downloaded.
	var envelopes [][]byte
	if opt.Trust != nil || opt.Signatures {
		if envelopes, err = signatures(ctx, at, top); err != nil {
			return fail("signatures", blame.Operator, err)
		}
		if len(envelopes) == 0 && opt.Trust != nil && !opt.AllowUnsigned {
			return nil, nil, fmt.Errorf("policy %s: %w", ref, &signature.Error{Kind: signature.Unsigned, Policy: signature.Statement{Digest: layer.digest}, Reason: "there is no signature; sign it, or allow unsigned policies"})
		}
	}
	p := &Policy{Digest: layer.digest, Reference: ref}
	p.Reference.Digest, p.Reference.Tag = top.digest, ""
	if p.Module, err = at.fetch(ctx, layer); err != nil {
		return fail("module", blame.Operator, err)
	}
	return p, envelopes, nil
}

func failed(ref Reference, what string, party blame.Party, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{ref, what, "cannot be used", party, err}
}

// readManifest reads a policy's manifest: what its module and its config are.
func readManifest(b []byte) (layer, conf descriptor, err error) {
	var m v1.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return layer, conf, fmt.Errorf("is no OCI manifest: %w", err)
	}
	if m.SchemaVersion != 2 {
		return layer, conf, fmt.Errorf("schemaVersion is %d, want 2", m.SchemaVersion)
	}
	if m.MediaType != "" && m.MediaType != v1.MediaTypeImageManifest {
		return layer, conf, fmt.Errorf("mediaType is %.80q, want %q", m.MediaType, v1.MediaTypeImageManifest)
	}
	if m.Config.MediaType != ConfigType {
		return layer, conf, fmt.Errorf("config.mediaType is %.80q, want %q: this is no Wasm artifact", m.Config.MediaType, ConfigType)
	}
	if n := len(m.Layers); n != 1 {
		return layer, conf, fmt.Errorf("has %d layers, want 1, the module", n)
	}
	if t := m.Layers[0].MediaType; t != ModuleType {
		return layer, conf, fmt.Errorf("layers[0].mediaType is %.80q, want %q", t, ModuleType)
	}
	if conf, err = readable(m.Config, "config", MaxConfig); err != nil {
		return layer, conf, err
	}
	layer, err = readable(m.Layers[0], "layers[0]", MaxModule)
	return layer, conf, err
}

func readConfig(b []byte, layer descriptor) error {
	var c config
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("is no JSON object: %w", err)
	}
	if c.Architecture != "wasm" {
		return fmt.Errorf("architecture is %.40q, want wasm", c.Architecture)
	}
	if len(c.LayerDigests) != 1 || string(c.LayerDigests[0]) != layer.digest.String() {
		return fmt.Errorf("layerDigests are %.200q, the manifest's layer is %s", c.LayerDigests, layer.digest)
	}
	return nil
}

// signatures reads the envelopes of a policy's referrers. One that is no
// signature of ours, or is not whole, is as none.
func signatures(ctx context.Context, at place, subject descriptor) ([][]byte, error) {
	list, err := at.referrers(ctx, subject)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, d := range list {
		m, err := readable(d, "referrer", MaxManifest)
		if err != nil || m.mediaType != v1.MediaTypeImageManifest {
			continue
		}
		b, err := at.fetch(ctx, m)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		envelope, ok := readSignature(b, subject)
		if !ok {
			continue
		}
		if b, err = at.fetch(ctx, envelope); err == nil {
			out = append(out, b)
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// readSignature reads a referrer's manifest: what the envelope in it is.
func readSignature(b []byte, subject descriptor) (descriptor, bool) {
	var m v1.Manifest
	if err := json.Unmarshal(b, &m); err != nil || m.ArtifactType != SignatureType || m.Subject == nil || string(m.Subject.Digest) != subject.digest.String() || len(m.Layers) != 1 || m.Layers[0].MediaType != EnvelopeType {
		return descriptor{}, false
	}
	d, err := readable(m.Layers[0], "envelope", signature.MaxEnvelope)
	return d, err == nil
}

// pack is a policy as blobs and a manifest. The same module gives the same.
func pack(wasm []byte, m module.Manifest) (manifest, conf []byte, err error) {
	layer := describe(ModuleType, wasm)
	if conf, err = json.Marshal(config{epoch, "wasm", "wasip1", []digest.Digest{layer.oci().Digest}}); err != nil {
		return nil, nil, err
	}
	described := layer.oci()
	described.Annotations = map[string]string{v1.AnnotationTitle: m.Name + ".wasm"}
	manifest, err = json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: describe(ConfigType, conf).oci(), Layers: []v1.Descriptor{described},
		Annotations: map[string]string{v1.AnnotationCreated: epoch, v1.AnnotationTitle: m.Name, v1.AnnotationVersion: m.Version},
	})
	return manifest, conf, err
}

// Push stores a policy under ref, whose tag may be empty, and returns the
// reference that names it by its digest. A digest in ref must be the one that
// results.
//
// Errors: *Error, *module.Error.
func Push(ctx context.Context, ref Reference, wasm []byte, opt Options) (Reference, error) {
	ctx, cancel := opt.within(ctx)
	defer cancel()
	m, err := module.ReadManifest(wasm)
	if err != nil {
		return ref, blame.On(blame.Policy, err)
	}
	if len(wasm) > MaxModule {
		return ref, &Error{ref, "module", fmt.Sprintf("has %d bytes, at most %d can be fetched again", len(wasm), MaxModule), blame.Policy, nil}
	}
	manifest, conf, err := pack(wasm, m)
	if err != nil {
		return ref, failed(ref, "manifest", blame.Local, err)
	}
	pinned := ref
	pinned.Digest, pinned.Tag = sha256.Sum256(manifest), ""
	if ref.Scheme == File {
		pinned.Digest = sha256.Sum256(wasm)
	}
	if ref.Pinned() && ref.Digest != pinned.Digest {
		return ref, &Error{ref, "reference", "names a digest, and this policy has " + pinned.Digest.String(), blame.Operator, nil}
	}
	if ref.Scheme == File {
		if err := writeFile(ref.Path, wasm); err != nil {
			return ref, failed(ref, "module", blame.Operator, err)
		}
		return pinned, nil
	}
	at, done, err := open(ref, opt, true)
	if err != nil {
		return ref, err
	}
	for _, item := range []struct {
		what string
		d    descriptor
		b    []byte
		tag  string
	}{
		{"module", describe(ModuleType, wasm), wasm, ""},
		{"config", describe(ConfigType, conf), conf, ""},
		{"manifest", describe(v1.MediaTypeImageManifest, manifest), manifest, ref.Tag},
	} {
		if err = at.push(ctx, item.d, item.b, item.tag); err != nil {
			err = failed(ref, item.what, blame.Operator, err)
			break
		}
	}
	if err = errors.Join(err, done()); err != nil {
		return ref, err
	}
	return pinned, nil
}

// Attach stores a signature of a policy beside it. Several signatures of one
// policy stand beside each other.
//
// Errors: *Error.
func Attach(ctx context.Context, ref Reference, envelope []byte, opt Options) error {
	ctx, cancel := opt.within(ctx)
	defer cancel()
	if _, err := signature.Parse(envelope); err != nil {
		return &Error{ref, "signature", "cannot be stored", blame.Operator, err}
	}
	if ref.Scheme == File {
		return attachFile(ref, envelope)
	}
	if !ref.Pinned() {
		return &Error{ref, "reference", "names a tag, which can be moved; name what is signed by its digest", blame.Operator, nil}
	}
	at, done, err := open(ref, opt, false)
	if err != nil {
		return err
	}
	return errors.Join(attach(ctx, at, ref, envelope), done())
}

func attach(ctx context.Context, at place, ref Reference, envelope []byte) error {
	found, err := at.resolve(ctx, ref)
	if err != nil {
		return failed(ref, "manifest", blame.Operator, err)
	}
	subject := found
	subject.Annotations, subject.Platform, subject.URLs, subject.Data = nil, nil, nil, nil
	empty := []byte("{}")
	layer := describe(EnvelopeType, envelope)
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, ArtifactType: SignatureType,
		Config: describe(v1.MediaTypeEmptyJSON, empty).oci(), Layers: []v1.Descriptor{layer.oci()}, Subject: &subject,
		Annotations: map[string]string{v1.AnnotationCreated: epoch},
	})
	if err != nil {
		return failed(ref, "signature", blame.Local, err)
	}
	for _, item := range []struct {
		d descriptor
		b []byte
	}{
		{layer, envelope},
		{describe(v1.MediaTypeEmptyJSON, empty), empty},
		{describe(v1.MediaTypeImageManifest, manifest), manifest},
	} {
		if err := at.push(ctx, item.d, item.b, ""); err != nil {
			return failed(ref, "signature", blame.Operator, err)
		}
	}
	return nil
}

// verified compares bytes with what they should be.
func verified(b []byte, d descriptor) ([]byte, error) {
	if int64(len(b)) != d.size {
		return nil, fmt.Errorf("%s has %d bytes, its descriptor says %d", d.digest, len(b), d.size)
	}
	if got := geometry.Digest(sha256.Sum256(b)); got != d.digest {
		return nil, fmt.Errorf("holds %s, want %s: it was changed on the way or where it lies", got, d.digest)
	}
	return bytes.Clone(b), nil
}
