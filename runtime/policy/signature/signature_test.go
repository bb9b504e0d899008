package signature

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
)

// key is one of many, the same in every run.
func key(n byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)) }

func public(n byte) ed25519.PublicKey { return key(n).Public().(ed25519.PublicKey) }

var (
	heads = Statement{"heads", "1.2.3", geometry.Digest{1}}
	now   = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func signed(t testing.TB, s Statement, n byte) []byte {
	t.Helper()
	b, err := Sign(s, key(n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func trust() *Trust {
	return &Trust{[]Key{
		{"ops", public(1), []string{"heads", "mla-*"}, time.Time{}},
		{"old", public(2), []string{"*"}, now.Add(-time.Hour)},
		{"lab", public(3), []string{"lab-*"}, time.Time{}},
	}}
}

// A signature counts for one name, version and module, by a key that may.
func TestVerify(t *testing.T) {
	other := func(change func(s *Statement)) []byte {
		s := heads
		change(&s)
		return signed(t, s, 1)
	}
	good := signed(t, heads, 1)
	for name, c := range map[string]struct {
		envelopes [][]byte
		want      Kind // empty: ops counts
	}{
		"good":               {[][]byte{good}, ""},
		"good among others":  {[][]byte{[]byte("{}"), signed(t, heads, 3), good, signed(t, heads, 9)}, ""},
		"none":               {nil, Unsigned},
		"garbage":            {[][]byte{[]byte("heads")}, Malformed},
		"a stranger's":       {[][]byte{signed(t, heads, 9)}, UnknownKey},
		"expired":            {[][]byte{signed(t, heads, 2)}, Expired},
		"not its name":       {[][]byte{signed(t, heads, 3)}, NotAllowed},
		"of another policy":  {[][]byte{other(func(s *Statement) { s.Name = "mla-spread" })}, OtherName},
		"of another version": {[][]byte{other(func(s *Statement) { s.Version = "1.2.2" })}, OtherVer},
		"of another module":  {[][]byte{other(func(s *Statement) { s.Digest[31] = 1 })}, OtherBytes},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := trust().Verify(heads, c.envelopes, now)
			var e *Error
			switch {
			case c.want == "" && (err != nil || fmt.Sprint(keys) != "[ops]"):
				t.Errorf("keys %v, error %v", keys, err)
			case c.want != "" && (!errors.As(err, &e) || e.Kind != c.want || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), "heads 1.2.3")):
				t.Errorf("keys %v, error %v, want one of kind %s", keys, err, c.want)
			}
		})
	}
}

// No byte of an envelope can be another and the signature still count, unless
// what is said stays the same.
func TestEveryByteCounts(t *testing.T) {
	good := signed(t, heads, 1)
	held := 0
	for i := range good {
		for _, v := range []byte{1, 4, 32, 128} {
			b := bytes.Clone(good)
			b[i] ^= v
			if keys, err := trust().Verify(heads, [][]byte{b}, now); err == nil {
				held++
				if e, err := Parse(b); err != nil || len(e.Signatures) != 1 || fmt.Sprint(keys) != "[ops]" {
					t.Errorf("byte %d changed by %d: %s", i, v, b)
				}
			}
		}
	}
	// The key's name in an envelope is a hint, which nothing depends on.
	if held > 4*len(KeyID(public(1))) {
		t.Errorf("%d changes of %d bytes were accepted", held, len(good))
	}
}

func TestTrustFile(t *testing.T) {
	text, err := trust().Format()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseTrust(text)
	if err != nil || len(back.Keys) != 3 || !back.Keys[1].Expires.Equal(trust().Keys[1].Expires) || !back.Keys[2].Public.Equal(public(3)) {
		t.Fatalf("%s was read as %+v, %v", text, back, err)
	}
	k := FormatPublic(public(1))
	for bad, want := range map[string]string{
		"":                           "YAML",
		"x: 1":                       "field x not found",
		"kvferry: trust/9\nkeys: []": "want \"",
		string(text) + "---\n{}":     "second document",
		strings.ReplaceAll(string(text), "name: lab", "name: ops"):                                        "stands twice",
		strings.ReplaceAll(string(text), FormatPublic(public(3)), k):                                      "is that of",
		strings.Replace(string(text), "lab-*", "lab $", 1):                                                "policies[0]",
		strings.Replace(string(text), k, "AAAA", 1):                                                       "keys[0].key",
		strings.Replace(string(text), trust().Keys[1].Expires.Format(time.RFC3339), "some day", 1) + "\n": "expires",
	} {
		_, err := ParseTrust([]byte(bad))
		var e *TrustError
		if !errors.As(err, &e) || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", bad, err, want)
		}
	}
}

func TestPrivateKeyFile(t *testing.T) {
	text, err := FormatPrivate(key(7))
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePrivate(text)
	if err != nil || !back.Equal(key(7)) {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{"", "hello", strings.ReplaceAll(string(text), "PRIVATE", "PUBLIC"), string(text[:len(text)/2])} {
		if _, err := ParsePrivate([]byte(bad)); err == nil {
			t.Errorf("%q was read as a key", bad)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(signed(f, heads, 1))
	f.Add([]byte(`{"payloadType": "x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			return
		}
		again, err := e.Encode()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", b, err)
		}
		back, err := Parse(again)
		if err != nil || fmt.Sprint(back) != fmt.Sprint(e) {
			t.Errorf("%q was read as %+v and then as %+v (%v)", b, e, back, err)
		}
	})
}

func FuzzTrust(f *testing.F) {
	text, err := trust().Format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseTrust(b)
		if err != nil {
			return
		}
		again, err := k.Format()
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", b, err)
		}
		if back, err := ParseTrust(again); err != nil || len(back.Keys) != len(k.Keys) {
			t.Errorf("%q: read again as %+v (%v)", b, back, err)
		}
	})
}
