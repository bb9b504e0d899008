package main

import (
	"bytes"
	"fmt"
)

// goCode is the host's side: records that are encoded and decoded.
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
		own := r.own()
		if r.hook != "" {
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
			kind := map[string]string{"u32": "uint32", "u64": "uint64", "text": "string", "bytes": "Bytes", "list": "[]" + camel(f.of)}[f.kind]
			fmt.Fprintf(&b, "\t%s %s `json:\"%s,omitempty\"`", camel(f.name), kind, f.name)
			if f.doc != "" {
				fmt.Fprintf(&b, " // %s", f.doc)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "}\n\nconst size%s = %d\n\n", name, r.size)
		fmt.Fprintf(&b, "func (x *%s) put(e *encoder, at int) {\n", name)
		for _, f := range own {
			n := camel(f.name)
			if f.kind == "list" {
				fmt.Fprintf(&b, "\tputList(e, at+%d, x.%s, size%s, (*%s).put)\n", f.at, n, camel(f.of), camel(f.of))
			} else {
				fmt.Fprintf(&b, "\te.%s(at+%d, x.%s)\n", f.kind, f.at, n)
			}
		}
		fmt.Fprintf(&b, "}\n\nfunc (x *%s) get(d *decoder, at, end int) {\n", name)
		for _, f := range own {
			n := camel(f.name)
			where := fmt.Sprintf("%q", r.name+"."+f.name)
			if f.kind == "list" {
				fmt.Fprintf(&b, "\tx.%s = getList(d, at+%d, end, %s, (*%s).get)\n", n, f.at, where, camel(f.of))
			} else if f.kind == "text" || f.kind == "bytes" {
				fmt.Fprintf(&b, "\tx.%s = d.%s(at+%d, end, %s)\n", n, f.kind, f.at, where)
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
