package sdk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// maxDepth is KVF_JSON_DEPTH.
const maxDepth = 64

// described is what testdata/json.c writes of a text, by another reader; "x" for
// a text that is refused.
func described(text []byte) string {
	if !json.Valid(text) || !utf8.Valid(text) {
		return "x"
	}
	var b strings.Builder
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	deep := false
	var value func(t json.Token, depth int)
	next := func() json.Token {
		t, err := d.Token()
		if err != nil {
			panic(err) // it is valid
		}
		return t
	}
	value = func(t json.Token, depth int) {
		if _, ok := t.(json.Delim); ok && depth == maxDepth {
			deep = true
		}
		switch v := t.(type) {
		case nil:
			b.WriteString("n\n")
		case bool:
			b.WriteString(map[bool]string{true: "t\n", false: "f\n"}[v])
		case string:
			b.WriteString("s" + hex.EncodeToString([]byte(v)) + "\n")
		case json.Number:
			b.WriteString("d" + v.String())
			if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
				fmt.Fprintf(&b, "=%d", n)
			}
			b.WriteByte('\n')
		case json.Delim:
			b.WriteString(map[json.Delim]string{'[': "a\n", '{': "o\n"}[v])
			for d.More() {
				if v == '{' {
					b.WriteString(hex.EncodeToString([]byte(next().(string))) + ":")
				} else {
					b.WriteByte('-')
				}
				value(next(), depth+1)
			}
			next()
			b.WriteString(".\n")
		}
	}
	value(next(), 0)
	if deep {
		return "x"
	}
	return b.String()
}

// reader is the header as a guest.
type reader struct {
	memory  api.Memory
	call    api.Function
	in, out uint32
}

func open(t testing.TB) *reader {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() {
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	m, err := r.Instantiate(ctx, read(t, "c/testdata/json.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) uint32 {
		got, err := m.ExportedFunction(name).Call(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(got[0])
	}
	return &reader{m.Memory(), m.ExportedFunction("describe"), at("in"), at("out")}
}

func (r *reader) describe(t testing.TB, text []byte) string {
	t.Helper()
	if !r.memory.Write(r.in, text) {
		t.Fatal("the text has no room")
	}
	got, err := r.call.Call(context.Background(), uint64(len(text)))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	out, ok := r.memory.Read(r.out, uint32(got[0]))
	if !ok {
		t.Fatalf("%d bytes were written", got[0])
	}
	return string(out)
}

// agrees compares what was described with what another reader makes of a text.
func agrees(text []byte, got string) bool {
	want := described(text)
	if want != "x" {
		return got == want
	}
	at, err := strconv.Atoi(strings.TrimPrefix(got, "x"))
	return err == nil && strings.HasPrefix(got, "x") && at <= len(text)
}

func texts() [][]byte {
	out := [][]byte{
		[]byte(`{"pairs":[{"source":"prefill-*","from":[0,[1,0],null],"chunk":1048576,"crc":true,"tls":false}]}`),
		[]byte(" \t\r\n{ \"a\" : [ ] , \"b\" : { } } \n"), []byte(`"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00 é😀"`), []byte(`"\ud800"`), []byte(`"\ud800\u0041\udc00\ud83dx"`), []byte(`"\ud83d\ud83d\ude00"`),
		[]byte(`[0,-0,1.5,1e3,1E-2,-1.25e+9,9223372036854775807,-9223372036854775808,9223372036854775808,-9223372036854775809,18446744073709551616]`),
		[]byte(`{"a":1,"a":2,"":{"":null}}`),
		nil, []byte(" "), []byte("{"), []byte("["), []byte("[1,]"), []byte("[,1]"), []byte(`{"a"}`), []byte(`{"a":}`), []byte(`{"a":1,}`), []byte(`{1:2}`), []byte("[1 2]"), []byte("1 2"), []byte("nul"), []byte("nulll"), []byte("tru"),
		[]byte("01"), []byte("-"), []byte("1."), []byte(".5"), []byte("1e"), []byte("+1"), []byte("]"), []byte("{]"), []byte("[}"), []byte(`"`), []byte(`"\`), []byte(`"\x"`), []byte(`"\u12`), []byte(`"\u12g4"`), []byte("\"\x01\""), []byte("\"\x7f\""),
		[]byte("\"\xff\""), []byte("\"\xc0\x80\""), []byte("\"\xed\xa0\x80\""), []byte("\"\xf4\x90\x80\x80\""), []byte("\"\xf0\x9f\x98\""), []byte("\"\xe2\x80\xa8\"\x00"), []byte("\ufeff1"),
	}
	for _, n := range []int{maxDepth - 1, maxDepth, maxDepth + 1, 200} {
		out = append(out, []byte(strings.Repeat("[", n)+strings.Repeat("]", n)), []byte(strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)), []byte(strings.Repeat(`[{"a":`, n/2)+"1"+strings.Repeat("}]", n/2)))
	}
	// Everything cut short, and with one byte changed.
	for _, text := range slices.Clone(out[:8]) {
		for i := range text {
			out = append(out, text[:i])
			for _, c := range []byte{0, '"', '\\', ',', ':', ']', '}', '9', 0x80, 0xe2} {
				changed := bytes.Clone(text)
				changed[i] = c
				out = append(out, changed)
			}
		}
	}
	return out
}

// The header reads as another reader does, as a guest.
func TestJSON(t *testing.T) {
	r := open(t)
	accepted := 0
	for _, text := range texts() {
		if got := r.describe(t, text); !agrees(text, got) {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, described(text))
		}
		if described(text) != "x" {
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("only %d texts are JSON", accepted)
	}
	for text, at := range map[string]int{`{"a":1,"b":tru}`: 11, `[1,2`: 4, `{"a":1}}`: 7, "\"ab\x01\"": 3, `[1.x]`: 3, `{"a" 1}`: 5, "": 0} {
		if got := r.describe(t, []byte(text)); got != fmt.Sprintf("x%d", at) {
			t.Errorf("%s goes wrong at %s, want %d", text, got, at)
		}
	}
}

// The same natively, under sanitizers: nothing is read or written beyond what
// there is, and nothing undefined is done.
func TestJSONNatively(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc, whose sanitizers this needs")
	}
	toolchain.Opened(t, "c")
	program := filepath.Join(t.TempDir(), "json")
	toolchain.Run(t, "c/testdata", nil, gcc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I", "..", "-o", program, "json.c")
	var in bytes.Buffer
	all := texts()
	for _, text := range all {
		in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
		in.Write(text)
	}
	c := exec.Command(program)
	c.Stdin = &in
	var wrong bytes.Buffer
	c.Stderr = &wrong
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, wrong.String())
	}
	for _, text := range all {
		if len(out) < 4 || len(out)-4 < int(binary.LittleEndian.Uint32(out)) {
			t.Fatal("the answers end before the texts do")
		}
		n := 4 + int(binary.LittleEndian.Uint32(out))
		if got := string(out[4:n]); !agrees(text, got) {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, described(text))
		}
		out = out[n:]
	}
}

// The committed guest is what its source gives.
func TestJSONGuestIsRebuilt(t *testing.T) {
	toolchain.Clang(t, "14")
	toolchain.Opened(t, "c")
	folder := t.TempDir()
	toolchain.Run(t, "c/testdata", nil, "sh", "build.sh", folder)
	if !bytes.Equal(read(t, filepath.Join(folder, "json.wasm")), read(t, "c/testdata/json.wasm")) {
		t.Error("the committed guest is not what its source gives: run wasm/sdk/c/testdata/build.sh")
	}
}

// Whatever a text is, the header and another reader make the same of it.
func FuzzJSON(f *testing.F) {
	for _, text := range texts()[:60] {
		f.Add(text)
	}
	r := open(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<12 {
			return
		}
		if got := r.describe(t, text); !agrees(text, got) {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, described(text))
		}
	})
}
