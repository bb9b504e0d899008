package document_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/document"
)

type shape struct {
	Name   string         `yaml:"name"`
	Count  int            `yaml:"count"`
	Ratio  float64        `yaml:"ratio"`
	Inner  inner          `yaml:"inner"`
	Others map[string]any `yaml:"others"`
}

type inner struct {
	Deep []string `yaml:"deep"`
}

func TestDecode(t *testing.T) {
	var got shape
	root, err := document.Decode("f.yaml", []byte("name: a\ncount: 3\nratio: 0.5\ninner:\n  deep: [x, y]\nothers: {p: 1}\n"), &got)
	want := shape{Name: "a", Count: 3, Ratio: 0.5, Inner: inner{[]string{"x", "y"}}, Others: map[string]any{"p": 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if root.Kind != yaml.MappingNode || root.Content[2].Value != "count" || root.Content[2].Line != 2 {
		t.Errorf("the document's lines: %+v", root)
	}
}

// What a file cannot be, with the place and whose fault it is.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "f.yaml: empty"},
		{"a comment only", "# nothing yet\n", "f.yaml: empty"},
		{"a marker only", "---\n...\n", "f.yaml: empty"},
		{"null", "null\n", "f.yaml: empty"},
		{"two documents", "name: a\n---\nname: b\n", "f.yaml:2: a second document: a file holds one"},
		{"a second document that is none", "name: a\n---\n\tname: b\n", "f.yaml:3: found character that cannot start any token"},
		{"an unknown key", "name: a\nnmae: b\n", "f.yaml:2: nmae: there is no such key here"},
		{"an unknown key inside", "inner:\n  depe: []\n", "f.yaml:2: depe: there is no such key here"},
		{"a key twice", "name: a\ncount: 1\nname: b\n", `f.yaml:3: mapping key "name" already defined at line 1`},
		{"another kind", "count: many\n", "f.yaml:1: cannot unmarshal !!str `many` into int"},
		{"an anchor", "name: &n a\n", "f.yaml:1: anchors and aliases are not part of such a file"},
		{"an alias", "name: &n a\nothers: {p: *n}\n", "f.yaml:1: anchors and aliases are not part of such a file"},
		{"a merge", "inner: {<<: {deep: [x]}}\n<<: *gone\n", "f.yaml: unknown anchor 'gone' referenced"},
		{"a tag", "name: !!binary YQ==\n", "f.yaml:1: tags are not part of such a file"},
		{"a tag of the file's own", "name: a\nothers:\n  p: !mine {q: 1}\n", "f.yaml:3: tags are not part of such a file"},
		{"no YAML", "name: [a\n", "f.yaml:1: did not find expected ',' or ']'"},
		{"a control character", "name: \x01\n", "f.yaml: control characters are not allowed"},
		{"no UTF-8", "name: \xff\xfe\n", "f.yaml: invalid leading UTF-8 octet"},
	} {
		var v shape
		_, err := document.Decode("f.yaml", []byte(c.text), &v)
		var e *document.Error
		if !errors.As(err, &e) || blame.Of(err) != blame.Operator || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	long := bytes.Repeat([]byte("#"), document.MaxBytes+1)
	if _, err := document.Read("f.yaml", long); err == nil || err.Error() != "f.yaml: 1048577 bytes, at most 1048576 are read" {
		t.Errorf("a file that is too long: %v", err)
	}
	if root, err := document.Read("f.yaml", nil); root != nil || err != nil {
		t.Errorf("an empty file has no document: %v, %v", root, err)
	}
	// Deep nesting and many anchors are refused or read, and never crash.
	for _, text := range []string{strings.Repeat("[", 1<<17), strings.Repeat("{a: ", 1<<16), strings.Repeat("- ", 1<<17), strings.Repeat("? ", 1<<17)} {
		if _, err := document.Read("f.yaml", []byte(text)); err == nil {
			t.Errorf("%.8s... of %d bytes was read", text, len(text))
		}
	}
}

// FuzzRead: whatever the text is, what is read has a line and no anchor, alias or
// tag anywhere, reads the same a second time, and is refused as two documents
// where it stands twice.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{"a: 1\n", "a: [x, {b: c}]\n", "a: |\n  text\n", "a: 'q'\nb: \"w\"\n", "- 1\n- - 2\n", "&a b", "a: b\n---\nc", "? [a]\n: b\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, err := document.Read("f", text)
		again, second := document.Read("f", text)
		if err != nil {
			var e *document.Error
			if !errors.As(err, &e) || second == nil || second.Error() != err.Error() {
				t.Fatalf("%T: %v, then %v", err, err, second)
			}
			return
		}
		if !reflect.DeepEqual(root, again) || second != nil {
			t.Fatalf("%+v, then %+v, %v", root, again, second)
		}
		if root == nil {
			return
		}
		var look func(n *yaml.Node)
		look = func(n *yaml.Node) {
			if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 || n.Line < 1 {
				t.Fatalf("%q has %+v", text, n)
			}
			for _, c := range n.Content {
				look(c)
			}
		}
		look(root)
		twice := slices.Concat([]byte("---\n"), text, []byte("\n---\n"), text)
		if root, err := document.Read("f", twice); err == nil {
			t.Fatalf("%q was read as %+v", twice, root)
		}
	})
}
