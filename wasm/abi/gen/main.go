// Command gen makes the Go records, the C header and the golden messages of
// ABI kvferry/1 from its schema. It is run by "go generate ./wasm/abi".
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"log"
	"os"
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

func main() {
	in := flag.String("schema", "schema/kvferry1.schema", "the schema")
	goOut := flag.String("go", "records_gen.go", "Go output")
	cOut := flag.String("c", "../sdk/c/kvferry_abi_gen.h", "C output")
	flag.Parse()
	text, err := os.ReadFile(*in)
	if err != nil {
		log.Fatal(err)
	}
	s, err := parse(string(text))
	if err != nil {
		log.Fatal(err)
	}
	code, err := format.Source(s.goCode())
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{*goOut, code}, {*cOut, s.cCode()}} {
		if err := os.WriteFile(f.path, f.data, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func parse(text string) (*schema, error) {
	s := &schema{}
	known := map[string]bool{}
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
			e.values = append(e.values, value{words[0], strings.Join(words[2:], " "), n})
			continue
		}
		r := &s.records[len(s.records)-1]
		if len(words) < 2 || sizes[words[0]] == 0 {
			return nil, fail("unknown field kind")
		}
		f := field{kind: words[0], name: words[1], doc: strings.Join(words[2:], " ")}
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
			fmt.Fprintf(&b, "\t%s %s", camel(f.name), kind)
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
			fmt.Fprintf(&b, "// Decode%s reads a message.\n//\n// Errors: *Error.\nfunc Decode%s(b []byte) (*%s, error) {\n\tx := new(%s)\n\treturn x, decode(b, Hook%s, %q, x.get)\n}\n\n", name, name, name, name, camel(r.hook), r.name)
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
		fmt.Fprintf(&b, "} kvf_%s;\n_Static_assert(sizeof(kvf_%s) == %d, \"kvf_%s\");\n\n", r.name, r.name, r.size, r.name)
	}
	b.WriteString("#endif\n")
	return b.Bytes()
}
