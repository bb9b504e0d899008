package main

import (
	"bytes"
	"fmt"
	"strings"
)

// lowerCamel is a name as AssemblyScript writes fields.
func lowerCamel(s string) string {
	c := camelWords(s)
	return strings.ToLower(c[:1]) + c[1:]
}

// asCode is a module of the package for guests in AssemblyScript: records as
// they lie in memory, which changetype turns an address into.
func (s *schema) asCode() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.\n\n")
	fmt.Fprintf(&b, "export const MAGIC: u32 = %#x;\nexport const MAJOR: u32 = %d;\nexport const MINOR: u32 = %d;\n\n", s.magic, s.major, s.minor)
	for _, e := range s.enums {
		fmt.Fprintf(&b, "/** The numbers of %s; they never change. */\nexport namespace %s {\n", e.title(), camelWords(e.name))
		for _, v := range e.values {
			if v.doc != "" {
				fmt.Fprintf(&b, "  /** %s */\n", v.doc)
			}
			fmt.Fprintf(&b, "  export const %s: u32 = %d;\n", strings.ToUpper(v.name), v.n)
		}
		b.WriteString("}\n\n")
	}
	b.WriteString("/** What every message begins with. */\n@unmanaged\nexport class Header {\n")
	for _, f := range header {
		fmt.Fprintf(&b, "  %s: u32;\n", lowerCamel(f.name))
	}
	b.WriteString("}\n\n")
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		extends, fields := "", r.fields
		if r.hook != "" {
			extends, fields = " extends Header", r.fields[len(header):]
		}
		fmt.Fprintf(&b, "/** %s */\n@unmanaged\nexport class %s%s {\n", r.title(), name, extends)
		var methods strings.Builder
		for _, f := range fields {
			n := lowerCamel(f.name)
			doc := func(what string) {
				if f.doc != "" {
					what = strings.TrimSuffix(what+": "+f.doc, ": ")
				}
				if what = strings.TrimPrefix(what, ": "); what != "" {
					fmt.Fprintf(&b, "  /** %s */\n", what)
				}
			}
			switch f.kind {
			case "u32", "u64":
				doc("")
				fmt.Fprintf(&b, "  %s: %s;\n", n, f.kind)
			case "text", "bytes":
				doc("")
				fmt.Fprintf(&b, "  %sAt: u32;\n  %sLength: u32;\n", n, n)
				fmt.Fprintf(&methods, "  /** Points %s at something in the answer. */\n  @inline set%s(at: u32, length: u32): void {\n    this.%sAt = at;\n    this.%sLength = length;\n  }\n", n, camelWords(f.name), n, n)
			case "list":
				of := camelWords(f.of)
				doc("of " + of)
				fmt.Fprintf(&b, "  %sAt: u32;\n  %sCount: u32;\n  %sStep: u32;\n", n, n, n)
				fmt.Fprintf(&methods, "  /** Record i of %s in the message at base. */\n  @inline %s(base: usize, i: u32): %s {\n    return changetype<%s>(base + this.%sAt + i * this.%sStep);\n  }\n", n, n, of, of, n, n)
				fmt.Fprintf(&methods, "  /** Points %s at records in the answer. */\n  @inline set%s(at: u32, count: u32): void {\n    this.%sAt = at;\n    this.%sCount = count;\n    this.%sStep = %d;\n  }\n", n, camelWords(f.name), n, n, n, s.find(f.of).size)
			}
		}
		if r.end() < r.size {
			b.WriteString("  tailReserved: u32;\n")
		}
		b.WriteString(methods.String())
		b.WriteString("}\n\n")
	}
	b.WriteString("/** Does not compile where the compiler lays records out otherwise. */\n@inline\nexport function checkRecords(): void {\n")
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		fmt.Fprintf(&b, "  if (offsetof<%s>() != %d) ERROR(\"%s\");\n", name, r.size, name)
		for _, f := range r.fields {
			first := map[string]string{"u32": "", "u64": "", "text": "At", "bytes": "At", "list": "At"}[f.kind]
			fmt.Fprintf(&b, "  if (offsetof<%s>(\"%s%s\") != %d) ERROR(\"%s.%s\");\n", name, lowerCamel(f.name), first, f.at, name, lowerCamel(f.name))
		}
	}
	b.WriteString("}\n")
	return b.Bytes()
}
