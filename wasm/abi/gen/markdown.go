package main

import (
	"bytes"
	"fmt"
	"strings"
)

// markdown is the specification: the rules of schema/abi.md, with the tables
// that the schema gives in place of {{version}}, {{hooks}}, {{enums}},
// {{records}} and {{messages}}.
func (s *schema) markdown(rules string) ([]byte, error) {
	tables := map[string]string{
		"version": fmt.Sprintf("%d.%d", s.major, s.minor), "magic": fmt.Sprintf("%#x", s.magic),
		"hooks": s.wat(), "enums": s.enumTables(), "records": s.recordTables(false), "messages": s.recordTables(true),
	}
	for name, text := range tables {
		mark := "{{" + name + "}}"
		if !strings.Contains(rules, mark) {
			return nil, fmt.Errorf("schema/abi.md has no %s", mark)
		}
		rules = strings.ReplaceAll(rules, mark, strings.TrimSpace(text))
	}
	if at := strings.Index(rules, "{{"); at >= 0 {
		return nil, fmt.Errorf("schema/abi.md: byte %d: unknown mark %.20q", at, rules[at:])
	}
	head, rest, _ := strings.Cut(rules, "\n")
	return []byte(head + "\n\n<!-- Generated from wasm/abi/schema by gen; edit that. -->\n" + rest), nil
}

// wat are the types of a policy's exports and imports.
func (s *schema) wat() string {
	var b bytes.Buffer
	b.WriteString("```wat\n;; exports\n(memory (export \"memory\") 1)\n(global (export \"kvferry_abi_v" + fmt.Sprint(s.major) + "\") i32 (i32.const " + fmt.Sprint(s.minor) + "))\n(func (export \"kvferry_arena\") (param $size i32) (result i32))\n")
	for _, e := range s.enums {
		if e.name != "hook" {
			continue
		}
		for _, v := range e.values {
			fmt.Fprintf(&b, "(func (export \"kvferry_%s\")  ;; hook %d\n  (param $in i32) (param $in_len i32) (param $out i32) (param $out_cap i32) (result i64))\n", v.name, v.n)
		}
	}
	b.WriteString(";; import, optional\n(import \"kvferry_v" + fmt.Sprint(s.major) + "\" \"log\" (func (param $level i32) (param $at i32) (param $length i32)))\n```\n")
	return b.String()
}

func (s *schema) enumTables() string {
	var b bytes.Buffer
	for _, e := range s.enums {
		fmt.Fprintf(&b, "### enum %s\n\n", e.name)
		if e.doc != "" {
			fmt.Fprintf(&b, "%s.\n\n", sentence(e.doc))
		}
		b.WriteString("| number | name | |\n|---:|---|---|\n")
		for _, v := range e.values {
			fmt.Fprintf(&b, "| %d | `%s` | %s |\n", v.n, v.name, cell(v.doc))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// recordTables are the records, or the messages.
func (s *schema) recordTables(messages bool) string {
	var b bytes.Buffer
	if messages {
		b.WriteString("### header\n\n| offset | kind | field |\n|---:|---|---|\n")
		for i, f := range header {
			fmt.Fprintf(&b, "| %d | %s | `%s` |\n", 4*i, f.kind, f.name)
		}
		b.WriteByte('\n')
	}
	for i := range s.records {
		r := &s.records[i]
		if (r.hook != "") != messages {
			continue
		}
		if messages {
			fmt.Fprintf(&b, "### message %s\n\nHook `%s`, %d bytes, the header first.\n\n", r.name, r.hook, r.size)
		} else {
			fmt.Fprintf(&b, "### record %s\n\n", r.name)
			if r.doc != "" {
				fmt.Fprintf(&b, "%s. ", sentence(r.doc))
			}
			fmt.Fprintf(&b, "%d bytes.\n\n", r.size)
		}
		b.WriteString("| offset | kind | field | |\n|---:|---|---|---|\n")
		fields := r.fields
		if messages {
			fields = fields[len(header):]
		}
		for _, f := range fields {
			kind := f.kind
			if f.of != "" {
				kind = "list of " + f.of
			}
			fmt.Fprintf(&b, "| %d | %s | `%s` | %s |\n", f.at, kind, f.name, cell(f.doc))
		}
		if r.end() < r.size {
			fmt.Fprintf(&b, "| %d | u32 | `tail_reserved` | |\n", r.end())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func sentence(s string) string {
	if s[0] >= 'a' && s[0] <= 'z' {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return cell(strings.TrimSuffix(s, "."))
}

// cell keeps a text inside its cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "*", "\\*", "<", "&lt;").Replace(s)
}
