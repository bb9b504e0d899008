package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is one field of a record; at is its offset. kind is a key of sizes, and
// of names the record of a list.
type field struct {
	kind, name, of, doc string
	at                  int
}

// reserved fields are written as zero and have no name in most languages.
func (f *field) reserved() bool { return strings.HasSuffix(f.name, "reserved") }

type record struct {
	name, doc, hook string // hook: messages only
	fields          []field
	size            int // a multiple of 8
}

// own are the fields that a reader and a writer see: neither the header's nor
// reserved ones.
func (r *record) own() []field {
	fields := r.fields
	if r.hook != "" {
		fields = fields[len(header):]
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.reserved() })
}

// end is where the last field ends: less than size where a tail is reserved.
func (r *record) end() int {
	f := &r.fields[len(r.fields)-1]
	return f.at + sizes[f.kind]
}

// answer reports whether the record is the message that a guest writes.
func (r *record) answer() bool { return strings.HasSuffix(r.name, "_out") }

type value struct {
	name, doc string
	n         uint64
}

type enum struct {
	name, doc string
	values    []value
}

type schema struct {
	magic        uint64
	major, minor uint64
	enums        []enum
	records      []record
}

// sizes of the kinds of fields. A list's and a text's are the words that point
// at its contents.
var sizes = map[string]int{"u32": 4, "u64": 8, "text": 8, "bytes": 8, "list": 12}

// header is what every message begins with.
var header = []field{{kind: "u32", name: "magic"}, {kind: "u32", name: "version"}, {kind: "u32", name: "hook"}, {kind: "u32", name: "record"}, {kind: "u32", name: "size"}, {kind: "u32", name: "header_reserved"}}

// written returns the records that a guest writes: its answers and what they
// list.
func (s *schema) written() map[string]bool {
	out := map[string]bool{}
	var add func(r *record)
	add = func(r *record) {
		if out[r.name] {
			return
		}
		out[r.name] = true
		for _, f := range r.fields {
			if f.of != "" {
				add(s.find(f.of))
			}
		}
	}
	for i := range s.records {
		if s.records[i].hook != "" && s.records[i].answer() {
			add(&s.records[i])
		}
	}
	return out
}

func (s *schema) find(name string) *record {
	for i := range s.records {
		if s.records[i].name == name {
			return &s.records[i]
		}
	}
	return nil
}

func (s *schema) number(enum, name string) uint32 {
	for _, e := range s.enums {
		for _, v := range e.values {
			if e.name == enum && v.name == name {
				return uint32(v.n)
			}
		}
	}
	return 0
}

// parse reads a schema. Errors name the line.
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
				s.enums = append(s.enums, enum{name: words[1], doc: strings.Join(words[2:], " ")})
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
				s.records = append(s.records, record{name: words[1], hook: words[2], doc: strings.Join(words[3:], " "), fields: slices.Clone(header)})
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

// parts of names that are abbreviations.
func abbreviation(part string) bool {
	switch part {
	case "tp", "pp", "dcp", "crc", "tls", "cpu", "numa", "id":
		return true
	}
	return false
}

// camel is a name as Go writes exported ones.
func camel(s string) string {
	if s == "" {
		return ""
	}
	var b strings.Builder
	for part := range strings.SplitSeq(s, "_") {
		if abbreviation(part) {
			b.WriteString(strings.ToUpper(part))
			continue
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// title is what an enum is, for a comment.
func (e *enum) title() string {
	if e.doc != "" {
		return e.name + ", " + e.doc
	}
	return e.name
}

// title is what a record is, for a comment.
func (r *record) title() string {
	switch {
	case r.hook != "" && r.answer():
		return "message: the answer to " + r.hook
	case r.hook != "":
		return "message: the question of " + r.hook
	case r.doc != "":
		return "record: " + r.doc
	}
	return "record"
}
