// Command gen makes the Go records, the C header and the golden messages of
// ABI kvferry/1 from its schema. It is run by "go generate ./wasm/abi".
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type field struct {
	kind, name, of, doc string
	at                  int
}

type record struct {
	name, doc, hook string // hook: messages only
	fields          []field
	size            int
}

type value struct {
	name, doc string
	n         uint64
}

type enum struct {
	name   string
	values []value
}

type schema struct {
	magic        uint64
	major, minor uint64
	enums        []enum
	records      []record
}

var sizes = map[string]int{"u32": 4, "u64": 8, "text": 8, "list": 12}

// header is what every message begins with.
var header = []field{{kind: "u32", name: "magic"}, {kind: "u32", name: "version"}, {kind: "u32", name: "hook"}, {kind: "u32", name: "record"}, {kind: "u32", name: "size"}, {kind: "u32", name: "header_reserved"}}

// folder is wasm/abi, from where "go run ./wasm/abi/gen" or "go generate" run.
func folder() string {
	for _, dir := range []string{".", "wasm/abi"} {
		if _, err := os.Stat(filepath.Join(dir, "schema", schemaFile)); err == nil {
			return dir
		}
	}
	return ".."
}

const schemaFile = "kvferry1.schema"

func main() {
	log.SetFlags(0)
	dir := folder()
	files, err := generate(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.path), f.data, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// file is a generated file; its path is relative to wasm/abi.
type file struct {
	path string
	data []byte
}

// generate makes every generated file from the schema below dir.
func generate(dir string) ([]file, error) {
	text, err := os.ReadFile(filepath.Join(dir, "schema", schemaFile))
	if err != nil {
		return nil, err
	}
	s, err := parse(string(text))
	if err != nil {
		return nil, err
	}
	out := []file{{"../sdk/c/kvferry_abi_gen.h", s.cCode()}}
	values, messages := s.golden()
	for path, code := range map[string][]byte{"records_gen.go": s.goCode(), "golden_gen_test.go": values} {
		formatted, err := format.Source(code)
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", path, err)
		}
		out = append(out, file{path, formatted})
	}
	return append(out, messages...), nil
}

func parse(text string) (*schema, error) {
	s := &schema{}
	known := map[string]bool{} // records
	taken := map[string]bool{} // keywords and names that may stand once
	for i, line := range strings.Split(text, "\n") {
		fail := func(why string) error { return fmt.Errorf("schema line %d: %s: %q", i+1, why, line) }
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if !strings.HasPrefix(line, " ") {
			if len(words) < 2 {
				return nil, fail("a keyword and a name are due")
			}
			name := words[0] // magic, major and minor stand once
			switch words[0] {
			case "enum":
				name = "enum " + words[1]
			case "record", "message":
				name = "record " + words[1] // one type in Go and C
			}
			if taken[name] {
				return nil, fail("stands twice")
			}
			taken[name] = true
			switch words[0] {
			case "magic", "major", "minor":
				n, err := strconv.ParseUint(words[1], 0, 32)
				if err != nil {
					return nil, fail("no number")
				}
				*map[string]*uint64{"magic": &s.magic, "major": &s.major, "minor": &s.minor}[words[0]] = n
			case "enum":
				s.enums = append(s.enums, enum{name: words[1]})
			case "record":
				s.records = append(s.records, record{name: words[1], doc: strings.Join(words[2:], " ")})
				known[words[1]] = true
			case "message":
				if len(words) < 3 {
					return nil, fail("a message names its hook")
				}
				if s.number("hook", words[2]) == 0 {
					return nil, fail("a message names a hook of enum hook, which stands above it")
				}
				s.records = append(s.records, record{name: words[1], hook: words[2], fields: append([]field(nil), header...)})
			default:
				return nil, fail("unknown keyword")
			}
			continue
		}
		if len(s.records) == 0 {
			if len(words) < 2 {
				return nil, fail("a name and a number are due")
			}
			n, err := strconv.ParseUint(words[1], 0, 32)
			if err != nil || len(s.enums) == 0 {
				return nil, fail("no number")
			}
			e := &s.enums[len(s.enums)-1]
			for _, o := range e.values {
				if o.name == words[0] || o.n == n {
					return nil, fail("the name or the number is taken")
				}
			}
			e.values = append(e.values, value{words[0], strings.Join(words[2:], " "), n})
			continue
		}
		r := &s.records[len(s.records)-1]
		if len(words) < 2 || sizes[words[0]] == 0 {
			return nil, fail("unknown field kind")
		}
		f := field{kind: words[0], name: words[1], doc: strings.Join(words[2:], " ")}
		for _, o := range r.fields {
			if o.name == f.name {
				return nil, fail("the name is taken")
			}
		}
		if f.kind == "list" {
			if len(words) < 3 || !known[words[2]] {
				return nil, fail("a list names a record that stands above it")
			}
			f.of, f.doc = words[2], strings.Join(words[3:], " ")
		}
		r.fields = append(r.fields, f)
	}
	for i := range s.records {
		r := &s.records[i]
		for j := range r.fields {
			f := &r.fields[j]
			f.at = r.size
			align := 4
			if f.kind == "u64" {
				align = 8
			}
			if f.at%align != 0 {
				return nil, fmt.Errorf("record %s: %s is not aligned at %d", r.name, f.name, f.at)
			}
			r.size += sizes[f.kind]
		}
		r.size = (r.size + 7) &^ 7
	}
	return s, nil
}

func camel(s string) string {
	if s == "" {
		return ""
	}
	var b strings.Builder
	for part := range strings.SplitSeq(s, "_") {
		if part == "tp" || part == "pp" || part == "dcp" {
			b.WriteString(strings.ToUpper(part))
			continue
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

func (s *schema) goCode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated from schema/kvferry1.schema by gen; DO NOT EDIT.\n\npackage abi\n\n")
	fmt.Fprintf(&b, "// The version of the records.\nconst (\n\tMagic = %#x\n\tMajor = %d\n\tMinor = %d\n)\n\n", s.magic, s.major, s.minor)
	for _, e := range s.enums {
		fmt.Fprintf(&b, "// The numbers of %s; they never change.\nconst (\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(&b, "\t%s%s = %d", camel(e.name), camel(v.name), v.n)
			if v.doc != "" {
				fmt.Fprintf(&b, " // %s", v.doc)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, ")\n\n")
	}
	for _, r := range s.records {
		name := camel(r.name)
		own := r.fields
		if r.hook != "" {
			own = own[len(header):]
			fmt.Fprintf(&b, "// %s is a message of hook %s.\n", name, r.hook)
		} else {
			fmt.Fprintf(&b, "// %s is a record", name)
			if r.doc != "" {
				fmt.Fprintf(&b, ": %s", r.doc)
			}
			fmt.Fprintf(&b, ".\n")
		}
		fmt.Fprintf(&b, "type %s struct {\n", name)
		for _, f := range own {
			if strings.HasSuffix(f.name, "reserved") {
				continue
			}
			kind := map[string]string{"u32": "uint32", "u64": "uint64", "text": "string", "list": "[]" + camel(f.of)}[f.kind]
			fmt.Fprintf(&b, "\t%s %s `json:\"%s,omitempty\"`", camel(f.name), kind, f.name)
			if f.doc != "" {
				fmt.Fprintf(&b, " // %s", f.doc)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "}\n\nconst size%s = %d\n\n", name, r.size)
		fmt.Fprintf(&b, "func (x *%s) put(e *encoder, at int) {\n", name)
		for _, f := range own {
			if strings.HasSuffix(f.name, "reserved") {
				continue
			}
			n := camel(f.name)
			if f.kind == "list" {
				fmt.Fprintf(&b, "\tputList(e, at+%d, x.%s, size%s, (*%s).put)\n", f.at, n, camel(f.of), camel(f.of))
			} else {
				fmt.Fprintf(&b, "\te.%s(at+%d, x.%s)\n", f.kind, f.at, n)
			}
		}
		fmt.Fprintf(&b, "}\n\nfunc (x *%s) get(d *decoder, at, end int) {\n", name)
		for _, f := range own {
			if strings.HasSuffix(f.name, "reserved") {
				continue
			}
			n := camel(f.name)
			where := fmt.Sprintf("%q", r.name+"."+f.name)
			if f.kind == "list" {
				fmt.Fprintf(&b, "\tx.%s = getList(d, at+%d, end, %s, (*%s).get)\n", n, f.at, where, camel(f.of))
			} else if f.kind == "text" {
				fmt.Fprintf(&b, "\tx.%s = d.text(at+%d, end, %s)\n", n, f.at, where)
			} else {
				fmt.Fprintf(&b, "\tx.%s = d.%s(at+%d, end)\n", n, f.kind, f.at)
			}
		}
		fmt.Fprintf(&b, "}\n\n")
		if r.hook != "" {
			fmt.Fprintf(&b, "// Encode returns the message's bytes.\nfunc (x *%s) Encode() []byte { return encode(Hook%s, size%s, x.put) }\n\n", name, camel(r.hook), name)
			fmt.Fprintf(&b, "// Decode%s reads a message; with an error there is none.\n//\n// Errors: *Error.\nfunc Decode%s(b []byte) (*%s, error) {\n\tx := new(%s)\n\tif err := decode(b, Hook%s, %q, x.get); err != nil {\n\t\treturn nil, err\n\t}\n\treturn x, nil\n}\n\n", name, name, name, name, camel(r.hook), r.name)
		}
	}
	return b.Bytes()
}

func (s *schema) cCode() []byte {
	var b bytes.Buffer
	b.WriteString("/* Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT. */\n#ifndef KVFERRY_ABI_GEN_H\n#define KVFERRY_ABI_GEN_H\n\n#include <stdint.h>\n\n")
	fmt.Fprintf(&b, "#define KVF_MAGIC %#xu\n#define KVF_MAJOR %d\n#define KVF_MINOR %d\n\n", s.magic, s.major, s.minor)
	for _, e := range s.enums {
		fmt.Fprintf(&b, "enum kvf_%s {\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(&b, "\tKVF_%s_%s = %d,", strings.ToUpper(e.name), strings.ToUpper(v.name), v.n)
			if v.doc != "" {
				fmt.Fprintf(&b, " /* %s */", v.doc)
			}
			b.WriteByte('\n')
		}
		b.WriteString("};\n\n")
	}
	b.WriteString("/* at: offset from the start of the message */\ntypedef struct { uint32_t at, length; } kvf_text;\ntypedef struct { uint32_t at, count, step; } kvf_list;\n\n")
	for _, r := range s.records {
		if r.doc != "" {
			fmt.Fprintf(&b, "/* %s */\n", r.doc)
		}
		fmt.Fprintf(&b, "typedef struct {\n")
		end := 0
		for _, f := range r.fields {
			kind := map[string]string{"u32": "uint32_t", "u64": "uint64_t", "text": "kvf_text", "list": "kvf_list"}[f.kind]
			fmt.Fprintf(&b, "\t%s %s;", kind, f.name)
			var doc []string
			if f.of != "" {
				doc = append(doc, "of kvf_"+f.of)
			}
			if f.doc != "" {
				doc = append(doc, f.doc)
			}
			if len(doc) > 0 {
				fmt.Fprintf(&b, " /* %s */", strings.Join(doc, ": "))
			}
			b.WriteByte('\n')
			end = f.at + sizes[f.kind]
		}
		if end < r.size {
			b.WriteString("\tuint32_t tail_reserved;\n")
		}
		fmt.Fprintf(&b, "} kvf_%s;\n_Static_assert(sizeof(kvf_%s) == %d, \"kvf_%s\");\n", r.name, r.name, r.size, r.name)
		for _, f := range r.fields {
			fmt.Fprintf(&b, "_Static_assert(__builtin_offsetof(kvf_%s, %s) == %d, \"kvf_%s.%s\");\n", r.name, f.name, f.at, r.name, f.name)
		}
		b.WriteByte('\n')
	}
	b.WriteString("#endif\n")
	return b.Bytes()
}
