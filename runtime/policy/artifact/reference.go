package artifact

import (
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"oras.land/oras-go/v2/registry"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Scheme is the kind of place that a policy is kept in.
type Scheme string

// The schemes.
const (
	File     Scheme = "file"       // a module in a file, its signature beside it
	Layout   Scheme = "oci-layout" // a folder in the OCI image layout
	Registry Scheme = "oci"        // a registry that speaks the OCI distribution protocol
)

// Reference says where a policy is.
//
//	heads.wasm  file:heads.wasm  file:heads.wasm@sha256:...
//	oci-layout:DIR:TAG  oci-layout:DIR@sha256:...
//	oci://HOST[:PORT]/REPOSITORY:TAG  oci://HOST[:PORT]/REPOSITORY@sha256:...
//
// The digest of a file is that of the module, the digest in a layout or registry
// that of the manifest, which covers the module's.
type Reference struct {
	Scheme     Scheme
	Path       string // of the file or of the layout's folder
	Host       string // of the registry, with its port where it has one
	Repository string
	Tag        string          // empty where Digest counts
	Digest     geometry.Digest // zero: none
}

// ReferenceError is a reference that cannot be read. The fault is the
// operator's.
type ReferenceError struct {
	Text   string
	Reason string
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("policy reference %.200q: %s", e.Text, e.Reason)
}

// Fault names the party that has to change something.
func (e *ReferenceError) Fault() string { return "operator" }

// Pinned reports whether the reference can only ever mean one module.
func (r Reference) Pinned() bool { return r.Digest != geometry.Digest{} }

// Remote reports whether the policy comes over a network.
func (r Reference) Remote() bool { return r.Scheme == Registry }

// String is what ParseReference reads.
func (r Reference) String() string {
	s := string(r.Scheme) + ":" + r.Path
	if r.Scheme == Registry {
		s = "oci://" + r.Host + "/" + r.Repository
	}
	if r.Pinned() {
		return s + "@" + r.Digest.String()
	}
	if r.Tag != "" {
		return s + ":" + r.Tag
	}
	return s
}

// ParseReference reads a reference.
//
// Errors: *ReferenceError.
func ParseReference(text string) (Reference, error) {
	bad := func(why string, args ...any) (Reference, error) {
		return Reference{}, &ReferenceError{text, fmt.Sprintf(why, args...)}
	}
	if len(text) > 4096 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return bad("want printable UTF-8 of at most 4096 bytes")
	}
	r, rest := Reference{Scheme: File}, text
	if s, ok := strings.CutPrefix(text, "oci://"); ok {
		r.Scheme, rest = Registry, s
	} else if s, ok := strings.CutPrefix(text, "oci-layout:"); ok {
		r.Scheme, rest = Layout, strings.TrimPrefix(s, "//")
	} else if s, ok := strings.CutPrefix(text, "file:"); ok {
		rest = strings.TrimPrefix(s, "//")
	} else if i := strings.Index(text, "://"); i >= 0 {
		return bad("scheme %q is none of oci, oci-layout and file", text[:i])
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 && (r.Scheme != File || strings.HasPrefix(rest[i:], "@sha256:")) {
		digits, ok := strings.CutPrefix(rest[i+1:], "sha256:")
		b, err := hex.DecodeString(digits)
		if !ok || err != nil || len(b) != len(r.Digest) || strings.ToLower(digits) != digits {
			return bad("%q is no digest: want sha256: and 64 small hexadecimal digits", rest[i+1:])
		}
		copy(r.Digest[:], b)
		if !r.Pinned() {
			return bad("the digest is all zero")
		}
		rest = rest[:i]
	}
	switch r.Scheme {
	case Registry:
		parsed, err := registry.ParseReference(rest)
		switch {
		case err != nil:
			return bad("want HOST/REPOSITORY and a tag or a digest: %v", err)
		case parsed.Registry == "" || parsed.Repository == "":
			return bad("want HOST/REPOSITORY")
		case parsed.ValidateReferenceAsDigest() == nil:
			return bad("the digest stands twice")
		}
		r.Host, r.Repository = parsed.Registry, parsed.Repository
		if !r.Pinned() {
			r.Tag = parsed.Reference
		}
	case Layout:
		if i := strings.LastIndex(rest, ":"); i >= 0 && !strings.ContainsRune(rest[i:], '/') {
			if !r.Pinned() {
				r.Tag = rest[i+1:]
				if (registry.Reference{Registry: "x", Repository: "x", Reference: r.Tag}).ValidateReferenceAsTag() != nil {
					return bad("%q is no tag", r.Tag)
				}
			}
			rest = rest[:i]
		}
		r.Path = rest
	default:
		r.Path = rest
	}
	if r.Scheme != Registry {
		if r.Path == "" {
			return bad("names no path")
		}
		r.Path = filepath.Clean(r.Path)
	}
	if r.Scheme != File && r.Tag == "" && !r.Pinned() {
		return bad("names neither a tag nor a digest")
	}
	return r, nil
}

// loopback reports whether a registry is on this machine: there plain HTTP says
// nothing to anybody else.
func (r Reference) loopback() bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
