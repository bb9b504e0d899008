package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/sdk/toolchain"
)

// later is a schema of the next minor: every record and message has fields more,
// of each kind that there is, some inside what was a reserved tail.
func later(t *testing.T, text string) string {
	t.Helper()
	var out []string
	inside := false // a record that is no first one
	end := func() {
		if inside {
			out = append(out, "  u32 later_number", "  list later_ranges range", "  text later_text", "  u32 later_other")
		}
		inside = false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, " ") && line != "" {
			end()
			inside = strings.HasPrefix(line, "record ") && !strings.HasPrefix(line, "record range") || strings.HasPrefix(line, "message ")
		}
		switch line {
		case "minor 0":
			line = "minor 1"
		case "enum switch":
			line += "\n  later 3"
		}
		out = append(out, line)
	}
	end()
	return strings.Join(out, "\n")
}

// reader reads messages for the comparison: by a schema's offsets, in none of
// the generated codes.
type reader struct {
	s   *schema
	b   []byte
	out []uint64
}

// streamed is what a reader of schema s should find in a message.
func streamed(s *schema, name string, message []byte) []uint64 {
	r := &reader{s: s, b: message}
	r.record(s.find(name), 0, int(r.u32(12, len(message))))
	return r.out
}

func (r *reader) u32(at, end int) uint32 {
	if at+4 > end {
		return 0
	}
	return binary.LittleEndian.Uint32(r.b[at:])
}

func (r *reader) record(of *record, at, end int) {
	for _, f := range of.own() {
		a, b, c := r.u32(at+f.at, end), r.u32(at+f.at+4, end), r.u32(at+f.at+8, end)
		switch f.kind {
		case "u32":
			r.out = append(r.out, uint64(a))
		case "u64":
			r.out = append(r.out, uint64(b)<<32|uint64(a))
		case "text", "bytes":
			h := uint64(0)
			for _, c := range r.b[a : a+b] {
				h = h*31 + uint64(c)
			}
			r.out = append(r.out, uint64(b), h)
		case "list":
			r.out = append(r.out, uint64(b))
			for i := range int(b) {
				from := int(a) + i*int(c)
				r.record(r.s.find(f.of), from, from+int(c))
			}
		}
	}
}

// side is a version of the schema and all that is generated from it.
type side struct {
	s        *schema
	files    map[string][]byte // generated
	messages map[string][]byte // golden, by name
}

func sideOf(t *testing.T, text string) *side {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("../schema/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "schema", schemaFile), []byte(text))
	write(t, filepath.Join(dir, "schema", "abi.md"), rules)
	files, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := &side{files: map[string][]byte{}, messages: map[string][]byte{}}
	if out.s, err = parse(text); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		out.files[f.path] = f.data
		name, ok := strings.CutSuffix(f.path, ".hex")
		if !ok {
			continue
		}
		var b []byte
		for line := range strings.Lines(string(f.data)) {
			_, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
			part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, part...)
		}
		out.messages[filepath.Base(name)] = b
	}
	return out
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sources copies a folder's files that end so, but for generated ones.
func sources(t *testing.T, from, to, end string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*"+end))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s (%v)", len(files), from, err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || strings.Contains(f, "_gen") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, filepath.Base(f)), b)
	}
}

// code is generated code at work: what it reads in a message, and the answers
// that it writes.
type code interface {
	walk(t *testing.T, name string, message []byte) []uint64
	fill(t *testing.T, name string) []byte // nil where it writes none
}

// Code of both minors reads the messages of both: what the reader does not know
// it steps over, what the writer did not know is zero. Answers that guests write
// are the golden messages, to the byte.
func TestMinorsReadEachOther(t *testing.T) {
	text, err := os.ReadFile("../schema/" + schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	sides := []*side{sideOf(t, string(text)), sideOf(t, later(t, string(text)))}
	if o, l := sides[0].s, sides[1].s; o.minor+1 != l.minor || len(o.records) != len(l.records) || l.number("switch", "later") != 3 {
		t.Fatalf("the later schema is 1.%d of %d records, want 1.%d of %d", l.minor, len(l.records), o.minor+1, len(o.records))
	}
	for name, b := range sides[0].messages {
		have, err := os.ReadFile("../testdata/" + name + ".hex")
		if err != nil || !bytes.Equal(have, dump(b)) {
			t.Fatalf("%s: the golden message is another (%v)", name, err)
		}
	}
	for _, c := range []struct {
		language string
		build    func(*testing.T, []*side) []code
	}{
		{"go host", buildHost}, {"go guest", buildGuest}, {"c", buildC}, {"rust", buildRust}, {"assemblyscript", buildAS},
	} {
		t.Run(c.language, func(t *testing.T) {
			for minor, code := range c.build(t, sides) {
				for written, other := range sides {
					for name, message := range other.messages {
						want := streamed(sides[minor].s, name, message)
						if got := code.walk(t, name, message); got != nil && !reflect.DeepEqual(got, want) {
							t.Errorf("code of 1.%d reads %s of 1.%d as\n%x\nwant\n%x", minor, name, written, got, want)
						} else if got == nil && strings.HasSuffix(name, "_in") {
							t.Errorf("code of 1.%d does not read %s of 1.%d", minor, name, written)
						}
					}
				}
				for name, want := range sides[minor].messages {
					if got := code.fill(t, name); got != nil && !bytes.Equal(got, want) {
						t.Errorf("code of 1.%d writes %s as\n%x\nwant\n%x", minor, name, got, want)
					} else if got == nil && strings.HasSuffix(name, "_out") && c.language != "go host" {
						t.Errorf("code of 1.%d does not write %s", minor, name)
					}
				}
			}
		})
	}
}

// goCode is a Go package of a program that was run once for all messages.
type goCode struct {
	Walks map[string][]uint64 // by message in hex
	Fills map[string][]byte
}

func (c goCode) walk(_ *testing.T, name string, message []byte) []uint64 {
	return c.Walks[name+string(hex.EncodeToString(message))]
}

func (c goCode) fill(_ *testing.T, name string) []byte { return c.Fills[name] }

func buildHost(t *testing.T, sides []*side) []code {
	return buildGo(t, sides, "abi", "..", "records_gen.go", true)
}

func buildGuest(t *testing.T, sides []*side) []code {
	return buildGo(t, sides, "kvferry", "../../sdk/go/kvferry", "../sdk/go/kvferry/abi_gen.go", false)
}

func buildGo(t *testing.T, sides []*side, pkg, from, generated string, host bool) []code {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), []byte("module compat\n\ngo 1.26\n"))
	var lines, imports strings.Builder
	for i, s := range sides {
		folder := filepath.Join(dir, fmt.Sprintf("minor%d", i))
		sources(t, from, folder, ".go")
		write(t, filepath.Join(folder, "abi_gen.go"), s.files[generated])
		write(t, filepath.Join(folder, "walk.go"), []byte(s.s.goWalk(pkg, host)))
		fmt.Fprintf(&imports, "import m%d \"compat/minor%d\"\n", i, i)
		fmt.Fprintf(&lines, "\tcodes[%d].Walks, codes[%d].Fills = map[string][]uint64{}, map[string][]byte{}\n", i, i)
		for _, o := range sides {
			for name, b := range o.messages {
				fmt.Fprintf(&lines, "\tcodes[%[1]d].Walks[%[2]q] = must(m%[1]d.Walk(%[3]q, unhex(%[4]q)))\n", i, name+hex.EncodeToString(b), name, hex.EncodeToString(b))
			}
		}
		for name := range s.messages {
			if !host && strings.HasSuffix(name, "_out") {
				fmt.Fprintf(&lines, "\t{\n\t\tb := make([]byte, 1<<16)\n\t\tcodes[%[1]d].Fills[%[2]q] = b[:m%[1]d.Fill(%[2]q, b)]\n\t}\n", i, name)
			}
		}
	}
	write(t, filepath.Join(dir, "main.go"), []byte(fmt.Sprintf(`package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

%s
var codes [2]struct {
	Walks map[string][]uint64
	Fills map[string][]byte
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

func unhex(s string) []byte { return must(hex.DecodeString(s)) }

func main() {
%s	if err := json.NewEncoder(os.Stdout).Encode(codes); err != nil {
		os.Exit(1)
	}
}
`, imports.String(), lines.String())))
	c := exec.Command("go", "run", ".")
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var failure bytes.Buffer
	c.Stderr = &failure
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, failure.Bytes())
	}
	var got []goCode
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return []code{got[0], got[1]}
}

// wasmCode is a guest.
type wasmCode struct{ m api.Module }

const outAt = 1 << 16 // behind the question, in the arena

func (c wasmCode) call(t *testing.T, name string, params ...uint64) (uint64, bool) {
	f := c.m.ExportedFunction(name)
	if f == nil {
		return 0, false
	}
	out, err := f.Call(context.Background(), params...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out[0], true
}

func (c wasmCode) walk(t *testing.T, name string, message []byte) []uint64 {
	at, _ := c.call(t, "kvferry_arena", 2*outAt)
	if !c.m.Memory().Write(uint32(at), message) {
		t.Fatal("the question does not fit")
	}
	n, ok := c.call(t, "walk_"+name, at, uint64(len(message)), at+outAt)
	if !ok {
		return nil
	}
	b, _ := c.m.Memory().Read(uint32(at+outAt), uint32(n))
	var out []uint64
	for ; len(b) > 0; b = b[8:] {
		out = append(out, binary.LittleEndian.Uint64(b))
	}
	return out
}

func (c wasmCode) fill(t *testing.T, name string) []byte {
	at, _ := c.call(t, "kvferry_arena", outAt)
	n, ok := c.call(t, "fill_"+name, at, outAt)
	if !ok {
		return nil
	}
	b, _ := c.m.Memory().Read(uint32(at), uint32(n))
	return bytes.Clone(b)
}

func instantiate(t *testing.T, path string) code {
	t.Helper()
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	t.Cleanup(func() {
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	m, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	return wasmCode{m}
}

func buildC(t *testing.T, sides []*side) (out []code) {
	clang := toolchain.Clang(t, "")
	for _, s := range sides {
		dir := t.TempDir()
		sources(t, "../../sdk/c", dir, ".h")
		write(t, filepath.Join(dir, "kvferry_abi_gen.h"), s.files["../sdk/c/kvferry_abi_gen.h"])
		write(t, filepath.Join(dir, "walk.c"), []byte(s.s.cWalk()))
		toolchain.Run(t, dir, nil, clang, "--target=wasm32-unknown-unknown", "-O2", "-std=c11", "-Wall", "-Werror", "-Wno-unused-function", "-mbulk-memory", "-nostdlib", "-Wl,--no-entry", "-o", "walk.wasm", "walk.c")
		out = append(out, instantiate(t, filepath.Join(dir, "walk.wasm")))
	}
	return out
}

func buildRust(t *testing.T, sides []*side) (out []code) {
	rustc := toolchain.Rustc(t, "")
	for _, s := range sides {
		dir := t.TempDir()
		sources(t, "../../sdk/rust/src", filepath.Join(dir, "src"), ".rs")
		write(t, filepath.Join(dir, "src", "abi_gen.rs"), s.files["../sdk/rust/src/abi_gen.rs"])
		write(t, filepath.Join(dir, "walk.rs"), []byte(s.s.rustWalk()))
		flags := []string{rustc, "--edition", "2021", "--target", "wasm32-unknown-unknown", "-O", "-C", "panic=abort"}
		toolchain.Run(t, dir, nil, append(flags, "--crate-name", "kvferry", "--crate-type", "rlib", "src/lib.rs")...)
		toolchain.Run(t, dir, nil, append(flags, "--crate-type", "cdylib", "--extern", "kvferry=libkvferry.rlib", "-o", "walk.wasm", "walk.rs")...)
		out = append(out, instantiate(t, filepath.Join(dir, "walk.wasm")))
	}
	return out
}

func buildAS(t *testing.T, sides []*side) (out []code) {
	asc := toolchain.ASC(t, "")
	for _, s := range sides {
		dir := t.TempDir()
		sources(t, "../../sdk/assemblyscript/assembly", filepath.Join(dir, "assembly"), ".ts")
		write(t, filepath.Join(dir, "assembly", "abi_gen.ts"), s.files["../sdk/assemblyscript/assembly/abi_gen.ts"])
		write(t, filepath.Join(dir, "walk.ts"), []byte(s.s.asWalk()))
		toolchain.Run(t, dir, nil, asc, "walk.ts", "--runtime", "./assembly/runtime", "--stackSize", "4096", "--use", "abort=", "-o", "walk.wasm")
		out = append(out, instantiate(t, filepath.Join(dir, "walk.wasm")))
	}
	return out
}
