package main

import (
	"bytes"
	"fmt"
	"strings"
)

// guestCode is a file of the package for guests in Go: views of records in a
// message's bytes, which take nothing from the heap.
func (s *schema) guestCode() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.\n\npackage kvferry\n\n")
	fmt.Fprintf(&b, "// The version of the records.\nconst (\n\tMagic = %#x\n\tMajor = %d\n\tMinor = %d\n)\n\n", s.magic, s.major, s.minor)
	for _, e := range s.enums {
		kind := "uint32"
		if e.name == "status" {
			kind = "Status"
		}
		fmt.Fprintf(&b, "// The numbers of %s; they never change.\nconst (\n", e.title())
		for _, v := range e.values {
			fmt.Fprintf(&b, "\t%s%s %s = %d", camel(e.name), camel(v.name), kind, v.n)
			if v.doc != "" {
				fmt.Fprintf(&b, " // %s", v.doc)
			}
			b.WriteByte('\n')
		}
		b.WriteString(")\n\n")
	}
	written := s.written()
	for i := range s.records {
		r := &s.records[i]
		name := camel(r.name)
		fmt.Fprintf(&b, "// %s is a view of a %s\ntype %s struct{ view }\n\n", name, strings.TrimSuffix(r.title(), ".")+".", name)
		fmt.Fprintf(&b, "func (%s) size() uint32 { return %d }\n\n", name, r.size)
		if r.hook != "" {
			fmt.Fprintf(&b, "func (%s) hook() uint32 { return Hook%s }\n\n", name, camel(r.hook))
		}
		for _, f := range r.own() {
			n := camel(f.name)
			doc := func(what string) {
				if f.doc != "" {
					what += ": " + f.doc
				}
				fmt.Fprintf(&b, "// %s.\n", strings.TrimSuffix(what, "."))
			}
			switch f.kind {
			case "u32", "u64":
				doc(n + " is a field")
				fmt.Fprintf(&b, "func (x %s) %s() uint%s { return x.u%s(%d) }\n\n", name, n, f.kind[1:], f.kind[1:], f.at)
				if written[r.name] {
					fmt.Fprintf(&b, "// Set%s writes it.\nfunc (x %s) Set%s(v uint%s) { x.set%s(%d, v) }\n\n", n, name, n, f.kind[1:], f.kind[1:], f.at)
				}
			case "text", "bytes":
				doc(n + " is a text, not a copy")
				fmt.Fprintf(&b, "func (x %s) %s() []byte { return x.text(%d) }\n\n", name, n, f.at)
				if written[r.name] {
					fmt.Fprintf(&b, "// Set%s points it at a text of the answer.\nfunc (x %s) Set%s(t Text) { x.setText(%d, t) }\n\n", n, name, n, f.at)
				}
			case "list":
				of := camel(f.of)
				doc(n + " is a list")
				fmt.Fprintf(&b, "func (x %s) %s() List[%s] { return listAt[%s](x.view, %d) }\n\n", name, n, of, of, f.at)
				if written[r.name] {
					fmt.Fprintf(&b, "// Set%s points it at records of the answer.\nfunc (x %s) Set%s(l Records[%s]) { x.setList(%d, l.at, l.count, %d) }\n\n", n, name, n, of, f.at, s.find(f.of).size)
				}
			}
		}
	}
	return b.Bytes()
}
