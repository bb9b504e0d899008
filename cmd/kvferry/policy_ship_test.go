package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/module"
)

// registryServer is a registry that others wrote, on this machine.
func registryServer(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // nobody's credentials
	h := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// ran runs a command that must succeed and returns its output.
func ran(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := kvferry(args...)
	if code != 0 {
		t.Fatalf("%v: exit status %d, %s%s", args, code, errs, out)
	}
	return out
}

// refused runs a command that must end with status 1 and say some words.
func refusedWith(t *testing.T, want string, args ...string) {
	t.Helper()
	if code, out, errs := kvferry(args...); code != 1 || !strings.Contains(errs+out, want) {
		t.Errorf("%v: exit status %d, %s%s, want %q", args, code, errs, out, want)
	}
}

// signer is a key and a trust file that trusts it with some names.
type signer struct{ key, trust string }

func newSigner(t *testing.T, name, policies, more string) signer {
	t.Helper()
	dir := t.TempDir()
	s := signer{filepath.Join(dir, name+".key"), filepath.Join(dir, "trust.yaml")}
	made := decode[struct{ Key string }](t, ran(t, "policy", "keygen", s.key, "-o", "json"))
	write(t, s.trust, fmt.Sprintf("kvferry: trust/1\nkeys:\n- {name: %s, key: %q, policies: [%s]%s}\n", name, made.Key, policies, more))
	return s
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// numbered is the policy heads as another version, in a file.
func numbered(t *testing.T, version string) string {
	t.Helper()
	wasm, _ := policies.Get("heads")
	m, err := module.ReadManifest(wasm)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"name":%q,"version":%q,"hooks":["select_layout","remap"],"abi":{"min":%q,"max":%q}}`, m.Name, version, m.ABI.Min, m.ABI.Max)
	sealed, err := module.Reseal(wasm, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "heads.wasm")
	write(t, name, string(sealed))
	return name
}

// The whole way, from a key to a demo that runs what the registry has.
func TestShipAPolicy(t *testing.T) {
	host := registryServer(t, nil)
	ops, others := newSigner(t, "ops", "heads", ""), newSigner(t, "others", `"*"`, "")
	pushed := decode[shippedJSON](t, ran(t, "policy", "push", "heads", "oci://"+host+"/policies/heads:v1", "-o", "json"))
	wasm, _ := policies.Get("heads")
	if want := originOf(wasm, "", nil).Digest; pushed.Digest != want || pushed.Name != "heads" || !strings.Contains(pushed.Reference, "@sha256:") || pushed.KeyID != "" {
		t.Fatalf("pushed %+v, want digest %s", pushed, want)
	}
	refusedWith(t, "unsigned", "demo", "--policy", pushed.Reference)
	refusedWith(t, "--trust FILE says whose signatures count", "demo", "--policy", pushed.Reference)
	refusedWith(t, "there is no signature", "policy", "verify", pushed.Reference, "--trust", ops.trust)
	signed := decode[shippedJSON](t, ran(t, "policy", "sign", pushed.Reference, "--key", ops.key, "-o", "json"))
	if signed.Reference != pushed.Reference || len(signed.KeyID) != 16 {
		t.Errorf("signed %+v", signed)
	}
	if v := decode[shippedJSON](t, ran(t, "policy", "verify", pushed.Reference, "--trust", ops.trust, "-o", "json")); fmt.Sprint(v.Keys) != "[ops]" {
		t.Errorf("verified %+v", v)
	}
	refusedWith(t, "unknown key", "policy", "verify", pushed.Reference, "--trust", others.trust)
	refusedWith(t, "unknown key", "demo", "--policy", pushed.Reference, "--trust", others.trust)

	out := decode[struct {
		Policy struct {
			Name, Digest, Source string
			Keys                 []string
		}
	}](t, ran(t, "demo", "--policy", pushed.Reference, "--trust", ops.trust, "-o", "json"))
	if p := out.Policy; p.Digest != pushed.Digest || p.Source != pushed.Reference || fmt.Sprint(p.Keys) != "[ops]" {
		t.Errorf("the demo ran %+v", p)
	}
	if text := ran(t, "demo", "--policy", pushed.Reference, "--trust", ops.trust, "--transport", "loop"); !strings.Contains(text, "from "+pushed.Reference+", signed by ops") {
		t.Errorf("the demo says %s", text)
	}
	// The same reference serves every command that asks a policy.
	ran(t, "policy", "explain", pairs+"seed.yaml", "--policy", pushed.Reference, "--trust", ops.trust)
	ran(t, "plan", "check", pairs+"seed.yaml", "--policy", pushed.Reference, "--trust", ops.trust)

	// What was pulled is the same, with the signature that counts beside it.
	ran(t, "policy", "sign", pushed.Reference, "--key", others.key)
	file := filepath.Join(t.TempDir(), "mine.wasm")
	pulled := decode[shippedJSON](t, ran(t, "policy", "pull", pushed.Reference, "--trust", ops.trust, "--out", file, "-o", "json"))
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, wasm) || pulled.File != file {
		t.Errorf("pulled %+v, %v", pulled, err)
	}
	ran(t, "policy", "verify", file, "--trust", ops.trust)
	refusedWith(t, "unknown key", "policy", "verify", file, "--trust", others.trust)
	ran(t, "plan", "check", pairs+"seed.yaml", "--policy", file, "--trust", ops.trust)

	// On to a layout and to another repository, signatures and all.
	layout := "oci-layout:" + filepath.Join(t.TempDir(), "layout") + ":v1"
	there := decode[shippedJSON](t, ran(t, "policy", "push", file, layout, "-o", "json"))
	ran(t, "policy", "verify", there.Reference, "--trust", ops.trust)
	again := decode[shippedJSON](t, ran(t, "policy", "push", there.Reference, "oci://"+host+"/mirror/heads:v1", "-o", "json"))
	ran(t, "policy", "verify", again.Reference, "--trust", ops.trust)
}

func TestShipRefusals(t *testing.T) {
	var oversized, dying, leak atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leak.Store(true)
		}
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer elsewhere.Close()
	var away atomic.Bool
	host := registryServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case dying.Load() && strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet:
				w.Header().Set("Content-Length", "15000")
				w.WriteHeader(http.StatusOK)
				w.Write([]byte("\x00asm"))
				panic(http.ErrAbortHandler)
			case away.Load() && r.Method == http.MethodGet:
				http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
			case oversized.Load() && strings.Contains(r.URL.Path, "/manifests/") && r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				w.Write(bytes.Repeat([]byte(" "), 1<<20))
			default:
				h.ServeHTTP(w, r)
			}
		})
	})
	ops := newSigner(t, "ops", "heads", "")
	narrow, past := newSigner(t, "narrow", "rails", ""), newSigner(t, "past", "heads", ", expires: 2020-01-01")
	at := "oci://" + host + "/policies/heads:v1"
	pushed := decode[shippedJSON](t, ran(t, "policy", "push", "heads", at, "--key", ops.key, "-o", "json")).Reference
	out := filepath.Join(t.TempDir(), "out.wasm")

	refusedWith(t, "names a tag, which can be moved", "demo", "--policy", at, "--trust", ops.trust)
	refusedWith(t, "--allow-tag follows it", "policy", "pull", at, "--trust", ops.trust, "--out", out)
	ran(t, "policy", "pull", at, "--trust", ops.trust, "--out", out, "--allow-tag")

	ran(t, "policy", "sign", pushed, "--key", narrow.key)
	ran(t, "policy", "sign", pushed, "--key", past.key)
	refusedWith(t, "not allowed", "policy", "verify", pushed, "--trust", narrow.trust)
	refusedWith(t, "expired", "policy", "verify", pushed, "--trust", past.trust)

	// A digest that is not there, a registry that dies halfway, one that sends
	// more than it should, and one that sends us elsewhere.
	none := pushed[:len(pushed)-4] + "0000"
	refusedWith(t, "not found", "policy", "pull", none, "--trust", ops.trust, "--out", out)
	for what, flag := range map[string]*atomic.Bool{"EOF": &dying, "manifest": &oversized, "not found": &away} {
		flag.Store(true)
		before, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		refusedWith(t, what, "policy", "pull", pushed, "--trust", ops.trust, "--out", out)
		flag.Store(false)
		if after, err := os.ReadFile(out); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: what was there before is changed (%v)", what, err)
		}
	}
	write(t, filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Sprintf(`{"auths": {%q: {"auth": "dXNlcjpzZWNyZXQ="}}}`, host))
	away.Store(true)
	if code, _, _ := kvferry("policy", "pull", pushed, "--trust", ops.trust, "--out", out); code != 1 || leak.Load() {
		t.Errorf("sent elsewhere: exit status %d, the credential went along: %v", code, leak.Load())
	}
	away.Store(false)

	// A module that was changed after it was signed, and a signature of another.
	file := numbered(t, "1.0.1")
	ran(t, "policy", "sign", file, "--key", ops.key)
	ran(t, "policy", "verify", file, "--trust", ops.trust)
	changed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(changed)+"\x00\x02\x01x") // one more custom section, called x
	refusedWith(t, "other digest", "policy", "verify", file, "--trust", ops.trust)
	refusedWith(t, "other digest", "plan", "check", pairs+"seed.yaml", "--policy", file, "--trust", ops.trust)
	plain := filepath.Join(t.TempDir(), "plain.wasm")
	wasm, _ := policies.Get("heads")
	write(t, plain, string(wasm))
	refusedWith(t, "there is no signature", "plan", "check", pairs+"seed.yaml", "--policy", plain, "--trust", ops.trust)
	ran(t, "plan", "check", pairs+"seed.yaml", "--policy", plain, "--trust", ops.trust, "--allow-unsigned")

	// Lower versions and other policies are not written over higher ones.
	later := decode[shippedJSON](t, ran(t, "policy", "push", numbered(t, "2.0.0"), "oci://"+host+"/policies/heads:v2", "--key", ops.key, "-o", "json")).Reference
	ran(t, "policy", "pull", later, "--trust", ops.trust, "--out", out)
	refusedWith(t, "version 1.0.0 is lower than 2.0.0", "policy", "pull", pushed, "--trust", ops.trust, "--out", out)
	ran(t, "policy", "verify", out, "--trust", ops.trust)
	ran(t, "policy", "pull", pushed, "--trust", ops.trust, "--out", out, "--allow-downgrade")
	rails := decode[shippedJSON](t, ran(t, "policy", "push", "rails", "oci://"+host+"/policies/rails:v1", "-o", "json")).Reference
	refusedWith(t, "holds something else than policy rails", "policy", "pull", rails, "--allow-unsigned", "--out", out)

	// Keys.
	refusedWith(t, "is there already", "policy", "keygen", ops.key)
	if err := os.Chmod(ops.key, 0o644); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "others can read or change it; chmod it to 0600", "policy", "sign", plain, "--key", ops.key)
	refusedWith(t, "others can read or change it", "policy", "push", "heads", at, "--key", ops.key)
	broken := filepath.Join(t.TempDir(), "broken.key")
	write(t, broken, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	refusedWith(t, broken, "policy", "sign", plain, "--key", broken)
	write(t, broken, "keys: [")
	refusedWith(t, broken, "policy", "verify", plain, "--trust", broken)
}

func TestShipWrongFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"keygen"}, "FILE is missing"},
		{[]string{"sign", "x.wasm"}, "--key is missing"},
		{[]string{"verify", "x.wasm"}, "--trust is missing"},
		{[]string{"pull", "oci://h/p@sha256:" + strings.Repeat("0", 63) + "1"}, "--out is missing"},
		{[]string{"push", "heads"}, "NAME and REFERENCE is missing"},
		{[]string{"push", "heads", "ftp://h/p:v"}, `scheme "ftp" is none of`},
		{[]string{"push", "heads", "oci://h/p"}, "names neither a tag nor a digest"},
	} {
		if code, _, errs := kvferry(append([]string{"policy"}, c.args...)...); code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("policy %v: exit status %d, %q, want %q", c.args, code, errs, c.want)
		}
	}
	refusedWith(t, "no policy of that name is built in", "policy", "push", "nobody", "oci://127.0.0.1:1/p:v")
}

// What the operator writes reaches the policy in both engines.
func TestDemoPolicyConfig(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.yaml")
	write(t, table, "pairs:\n- {source: prefill, destination: decode, layouts: {source: hnd, destination: nhd}, from: [0, 0, 1, 1], integrity: full}\n")
	out := ran(t, "demo", "--policy", "pin", "--policy-config", table)
	for _, want := range []string{"prefill keeps its cache as hnd (hnd: pairs[0])", "decode keeps its cache as nhd (nhd: pairs[0])", "over shm (pairs[0])"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	write(t, table, "pairs:\n- {source: prefill, destination: decode, layouts: {source: hnd, destination: nhd}, from: [1, 1, 1, 1]}\n")
	refusedWith(t, "wants head 0, which none of its source ranks holds", "demo", "--policy", "pin", "--policy-config", table)
	write(t, table, "pairs: [\n")
	refusedWith(t, "table.yaml", "demo", "--policy", "pin", "--policy-config", table)
}
