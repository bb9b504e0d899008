package configuration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/policy/configuration"
)

// What means the same is the same bytes, however it is laid out.
func TestCanonical(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""}, {"# nothing\n", ""}, {"null", ""}, {"~", ""},
		{"b: 1\na: [x, 'y', \"z\"]", `{"a":["x","y","z"],"b":1}`},
		{"{\"a\": [\"x\",\"y\",\"z\"], \"b\": 0x1}", `{"a":["x","y","z"],"b":1}`},
		{"{}", "{}"}, {"[]", "[]"}, {"a: {}\nb: []\nc:", `{"a":{},"b":[],"c":null}`},
		{"a: <&>é", `{"a":"<&>é"}`}, {`a: "\u2028"`, `{"a":"\u2028"}`},
		{"a: 0.50\nb: 1e3\nc: -7\nd: true\ne: 'true'\nf: |\n  two\n  lines\n", `{"a":0.5,"b":1000,"c":-7,"d":true,"e":"true","f":"two\nlines\n"}`},
		{"1: a\ntrue: b", `{"1":"a","true":"b"}`},
		{"[-0.0, 1e19, 1e300, 2.50, 9007199254740993.0]", "[0,1e+19,1e+300,2.5,9.007199254740992e+15]"},
		{"9223372036854775807", "9223372036854775807"},
	} {
		got, err := configuration.Canonical("c.yaml", []byte(c.text))
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %s (%v), want %s", c.text, got, err, c.want)
		}
	}
}

// Every error names the file, the line and the field.
func TestErrors(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct{ text, want string }{
		{"a: [", "c.yaml:1: did not find expected node content"},
		{"a: 1\n---\nb: 2", "c.yaml:2: a second document: a file holds one"},
		{"a:\n  b: 1\n  b: 2", "c.yaml:3: a.b: stands twice"},
		{"a: &x 1\nb: *x", "c.yaml:1: anchors and aliases are not part of such a file"},
		{"a: !!str 1", "c.yaml:1: tags are not part of such a file"},
		{"a: [1, .inf]", "c.yaml:1: a[1]: .inf is no number that JSON has"},
		{"a: .nan", "c.yaml:1: a: .nan is no number that JSON has"},
		{"a: 2020-01-01", `c.yaml:1: a: "2020-01-01" would be a timestamp: write it in quotes`},
		{"a: 18446744073709551615", "c.yaml:1: a: 18446744073709551615: integers go from -2^63 to 2^63-1; write it in quotes"},
		{"[a]: 1", "c.yaml:1: a key is a plain text"},
		{"<<: {a: 1}", "c.yaml:1: a key is a plain text"},
		{deep, "nested more than 32 deep"},
		{"a: " + strings.Repeat("x", configuration.MaxBytes), "a policy is given at most"},
	} {
		_, err := configuration.Canonical("c.yaml", []byte(c.text))
		var e *configuration.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "c.yaml") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q:\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
}

// Whatever a file holds, it is JSON or refused; canonical JSON stays as it is.
func FuzzCanonical(f *testing.F) {
	for _, text := range []string{"a: 1\nb: [x, {y: 0.5}]", "{}", "- ~", "a: |\n  x\n", "? [a]\n: 1", "a: &x 1", "[-0.0, 1e19, .5]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := configuration.Canonical("c.yaml", text)
		var e *configuration.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("error %T %v", err, err)
			}
			return
		}
		if out == nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q is no JSON", out)
		}
		again, err := configuration.Canonical("c.yaml", out)
		if err != nil || !bytes.Equal(again, out) {
			t.Errorf("%q becomes %q (%v)", out, again, err)
		}
	})
}
