package artifact

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/signature"
)

func heads(t testing.TB) []byte {
	t.Helper()
	wasm, ok := policies.Get("heads")
	if !ok {
		t.Fatal("heads is not built in")
	}
	return wasm
}

func reference(t testing.TB, text string) Reference {
	t.Helper()
	r, err := ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func key(n byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)) }

func trusting(n byte, names ...string) *signature.Trust {
	return &signature.Trust{Keys: []signature.Key{{Name: "ops", Public: key(n).Public().(ed25519.PublicKey), Policies: names}}}
}

// server is a registry that others wrote, with or without the referrers API.
func server(t testing.TB, referrers bool, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	h := registry.New(registry.WithReferrersSupport(referrers), registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func sign(t testing.TB, ref Reference, wasm []byte, n byte) {
	t.Helper()
	s, err := Statement(wasm)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := signature.Sign(s, key(n))
	if err != nil {
		t.Fatal(err)
	}
	if err := Attach(t.Context(), ref, envelope, Options{}); err != nil {
		t.Fatal(err)
	}
}

// What is pushed is fetched, wherever it lies: unsigned refused from a registry,
// signed by a trusted key accepted, by another refused.
func TestPushSignFetch(t *testing.T) {
	wasm := heads(t)
	for name, at := range map[string]func(t *testing.T) string{
		"file":               func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "heads.wasm") },
		"layout":             func(t *testing.T) string { return "oci-layout:" + filepath.Join(t.TempDir(), "layout") + ":v1" },
		"registry":           func(t *testing.T) string { return "oci://" + server(t, true, nil) + "/policies/heads:v1" },
		"registry, fallback": func(t *testing.T) string { return "oci://" + server(t, false, nil) + "/policies/heads:v1" },
	} {
		t.Run(name, func(t *testing.T) {
			ref := reference(t, at(t))
			pinned, err := Push(t.Context(), ref, wasm, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if ref.Scheme != File {
				if !pinned.Pinned() {
					t.Fatalf("pushed as %s", pinned)
				}
				var e *Error
				if _, err := Fetch(t.Context(), ref, Options{AllowUnsigned: true}); !errors.As(err, &e) || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), "names a tag") {
					t.Errorf("by its tag: %v", err)
				}
				if p, err := Fetch(t.Context(), ref, Options{AllowUnsigned: true, AllowTag: true}); err != nil || p.Reference.String() != pinned.String() {
					t.Errorf("by its tag, which is allowed: %v", err)
				}
			}
			_, err = Fetch(t.Context(), pinned, Options{})
			var unsigned *signature.Error
			if refused := errors.As(err, &unsigned) && unsigned.Kind == signature.Unsigned; refused != ref.Remote() {
				t.Errorf("unsigned: %v", err)
			}
			if _, err := Fetch(t.Context(), pinned, Options{Trust: trusting(1, "heads")}); !errors.As(err, &unsigned) || unsigned.Kind != signature.Unsigned {
				t.Errorf("unsigned where keys are trusted: %v", err)
			}
			sign(t, pinned, wasm, 2)
			sign(t, pinned, wasm, 1)
			p, err := Fetch(t.Context(), pinned, Options{Trust: trusting(1, "heads")})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p.Module, wasm) || fmt.Sprint(p.Keys) != "[ops]" || p.Manifest.Name != "heads" || p.Reference.String() != pinned.String() {
				t.Errorf("fetched %d bytes of %s %s signed by %v from %s", len(p.Module), p.Manifest.Name, p.Manifest.Version, p.Keys, p.Reference)
			}
			for n, keys := range map[signature.Kind]*signature.Trust{signature.UnknownKey: trusting(3, "*"), signature.NotAllowed: trusting(1, "lab-*")} {
				if _, err := Fetch(t.Context(), pinned, Options{Trust: keys}); !errors.As(err, &unsigned) || unsigned.Kind != n {
					t.Errorf("want %s, got %v", n, err)
				}
			}
		})
	}
}

// The library behind crane reads what is pushed as an image with the CNCF's
// types.
func TestOthersReadIt(t *testing.T) {
	host := server(t, true, nil)
	pinned, err := Push(t.Context(), reference(t, "oci://"+host+"/policies/heads:v1"), heads(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host+"/policies/heads:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	m, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil || digest.String() != pinned.Digest.String() || string(m.Config.MediaType) != ConfigType || len(m.Layers) != 1 || string(m.Layers[0].MediaType) != ModuleType {
		t.Errorf("digest %s (pushed %s), manifest %+v, %v", digest, pinned.Digest, m, err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, heads(t)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// A registry that gives other bytes, more bytes or a redirect elsewhere gets
// nothing through, and the credential stays at home.
func TestHostileRegistry(t *testing.T) {
	wasm := heads(t)
	blob := func(path string) bool { return strings.Contains(path, "/blobs/sha256:") }
	for what, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"other bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, len(wasm))) },
		"more bytes": func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"fewer bytes": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wasm[:9]) },
		"a loop": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		},
		"nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(what, func(t *testing.T) {
			hostile := false
			host := server(t, true, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if hostile && r.Method == http.MethodGet && blob(r.URL.Path) {
						answer(w, r)
						return
					}
					h.ServeHTTP(w, r)
				})
			})
			pinned, err := Push(t.Context(), reference(t, "oci://"+host+"/policies/heads:v1"), wasm, Options{})
			if err != nil {
				t.Fatal(err)
			}
			hostile = true
			p, err := Fetch(t.Context(), pinned, Options{AllowUnsigned: true})
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("fetched %v, error %v", p, err)
			}
		})
	}
}

func TestCredentialStaysAtHome(t *testing.T) {
	wasm := heads(t)
	var elsewhere []http.Header
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Clone())
		_, _ = w.Write(wasm)
	}))
	t.Cleanup(foreign.Close)
	asked, redirects := 0, false
	host := server(t, true, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			asked++
			if redirects && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, foreign.URL+"/blob", http.StatusTemporaryRedirect)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	opt := Options{AllowUnsigned: true, Credential: func(context.Context, string) (Credential, error) {
		return Credential{Username: "me", Password: "secret"}, nil
	}}
	pinned, err := Push(t.Context(), reference(t, "oci://"+host+"/policies/heads:v1"), wasm, opt)
	if err != nil {
		t.Fatal(err)
	}
	redirects = true
	if _, err := Fetch(t.Context(), pinned, opt); err != nil {
		t.Logf("the redirect was refused: %v", err)
	}
	for _, h := range elsewhere {
		if h.Get("Authorization") != "" || h.Get("Cookie") != "" {
			t.Errorf("another host was sent %v", h)
		}
	}
	if asked == 0 {
		t.Error("the registry never saw its credential: the test shows nothing")
	}
	nobody := opt
	nobody.Credential = nil
	var e *Error
	if _, err := Fetch(t.Context(), pinned, nobody); !errors.As(err, &e) {
		t.Errorf("without a credential: %v", err)
	}
}

func TestReferences(t *testing.T) {
	d := "sha256:" + strings.Repeat("ab", 32)
	for _, text := range []string{"file:heads.wasm", "oci-layout:dir:v1", "oci-layout:dir@" + d, "oci://registry.example/policies/heads:v1", "oci://127.0.0.1:5000/policies/heads@" + d} {
		if r := reference(t, text); r.String() != text {
			t.Errorf("%s was read as %s", text, r)
		}
	}
	for _, bad := range []string{"", "oci://", "oci://host", "oci://host/UPPER:v1", "oci://host/a@sha256:12", "oci-layout:", "oci://u:p@host/a:v1", "http://host/a"} {
		r, err := ParseReference(bad)
		var e *ReferenceError
		if !errors.As(err, &e) {
			t.Errorf("%q was read as %+v (%v)", bad, r, err)
		}
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"heads.wasm", "file:x", "oci-layout:dir:v1", "oci://h:1/a/b:v1", "oci://h/a@sha256:" + strings.Repeat("0", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			return
		}
		back, err := ParseReference(r.String())
		if err != nil || back != r {
			t.Errorf("%q was read as %+v, and %q as %+v (%v)", s, r, r.String(), back, err)
		}
	})
}

func TestMissing(t *testing.T) {
	d := "@sha256:" + strings.Repeat("ab", 32)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"file:" + filepath.Join(empty, "no.wasm"), "oci-layout:" + empty + d, "oci://" + server(t, true, nil) + "/policies/no" + d} {
		if _, err := Fetch(t.Context(), reference(t, text), Options{AllowUnsigned: true}); err == nil {
			t.Errorf("%s was fetched", text)
		} else if blame.Of(err) == "" {
			t.Errorf("%s: nobody is to blame for %v", text, err)
		}
	}
}
