package main

import (
	"bytes"
	"fmt"
	"strings"
)

// cCode is a header for freestanding guests in C.
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
		for _, f := range r.fields {
			kind := map[string]string{"u32": "uint32_t", "u64": "uint64_t", "text": "kvf_text", "bytes": "kvf_text", "list": "kvf_list"}[f.kind]
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
		}
		if r.end() < r.size {
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
