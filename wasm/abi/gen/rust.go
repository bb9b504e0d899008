package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// rustName is a field's name in Rust, where some are keywords.
func rustName(s string) string {
	if slices.Contains([]string{"mod", "type", "move", "ref", "use", "where", "match", "impl", "fn", "in", "as", "box"}, s) {
		return "r#" + s
	}
	return s
}

// rustCode is a module of the crate for guests in Rust: records as they lie in
// memory.
func (s *schema) rustCode() []byte {
	var b bytes.Buffer
	b.WriteString("// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.\n\nuse crate::{Header, List, Message, Question, Record, Reply, Text, Zero};\n\n")
	fmt.Fprintf(&b, "pub const MAGIC: u32 = %#x;\npub const MAJOR: u32 = %d;\npub const MINOR: u32 = %d;\n\n", s.magic, s.major, s.minor)
	for _, e := range s.enums {
		fmt.Fprintf(&b, "/// The numbers of %s; they never change.\npub mod %s {\n", e.title(), e.name)
		for _, v := range e.values {
			if v.doc != "" {
				fmt.Fprintf(&b, "    /// %s\n", v.doc)
			}
			fmt.Fprintf(&b, "    pub const %s: u32 = %d;\n", strings.ToUpper(v.name), v.n)
		}
		b.WriteString("}\n\n")
	}
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		fmt.Fprintf(&b, "/// %s\n#[repr(C)]\n#[derive(Clone, Copy, Default)]\npub struct %s {\n", rustDoc(r.title()), name)
		fields := r.fields
		if r.hook != "" {
			fields = fields[len(header):]
			b.WriteString("    pub header: Header,\n")
		}
		for _, f := range fields {
			if f.doc != "" {
				fmt.Fprintf(&b, "    /// %s\n", rustDoc(f.doc))
			}
			kind := map[string]string{"u32": "u32", "u64": "u64", "text": "Text", "bytes": "Text", "list": "List<" + camelWords(f.of) + ">"}[f.kind]
			fmt.Fprintf(&b, "    pub %s: %s,\n", rustName(f.name), kind)
		}
		if r.end() < r.size {
			b.WriteString("    pub tail_reserved: u32,\n")
		}
		fmt.Fprintf(&b, "}\n\n// SAFETY: words only, of which every value is one; no padding.\nunsafe impl Record for %s {}\nunsafe impl Zero for %s {}\nconst _: () = assert!(core::mem::size_of::<%s>() == %d);\n\n", name, name, name, r.size)
		if r.hook != "" {
			kind, body := "Question", "{}"
			if r.answer() {
				kind, body = "Reply", "{\n    fn set_reason(&mut self, reason: Text) {\n        self.reason = reason;\n    }\n}"
			}
			fmt.Fprintf(&b, "impl Message for %s {\n    const HOOK: u32 = hook::%s;\n}\nimpl %s for %s %s\n\n", name, strings.ToUpper(r.hook), kind, name, body)
		}
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// rustDoc keeps rustdoc from taking a range for a link.
func rustDoc(s string) string {
	return strings.NewReplacer("[", "\\[", "]", "\\]").Replace(s)
}

// camelWords is a name as Rust and AssemblyScript write types.
func camelWords(s string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(s, "_") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
