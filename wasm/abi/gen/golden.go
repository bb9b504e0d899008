package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// writer makes one golden message, its bytes and the Go literal of its value,
// straight from the schema: it shares no code with the encoder that it is there
// to check.
type writer struct {
	s *schema
	b []byte
	n uint32 // of values written, so that no two are equal
}

// golden returns the values of all golden messages as a Go file, and each
// message's bytes as readable hex.
func (s *schema) golden() (values []byte, messages []file) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated from schema/kvferry1.schema by gen; DO NOT EDIT.\n\npackage abi\n\n")
	fmt.Fprintf(&b, "// goldens are the values whose bytes lie in testdata.\nvar goldens = map[string]any{\n")
	for i := range s.records {
		r := &s.records[i]
		if r.hook == "" {
			continue
		}
		w := &writer{s: s}
		at := w.take(r.size)
		literal := w.record(r, at)
		w.take(0)
		for i, v := range []uint32{uint32(s.magic), uint32(s.major<<16 | s.minor), s.number("hook", r.hook), uint32(r.size), uint32(len(w.b))} {
			w.u32(4*i, v)
		}
		fmt.Fprintf(&b, "%q: &%s%s,\n", r.name, camel(r.name), literal)
		messages = append(messages, file{"testdata/" + r.name + ".hex", dump(w.b)})
	}
	b.WriteString("}\n")
	return b.Bytes(), messages
}

// dump writes bytes as lines of 16 with their offset.
func dump(b []byte) []byte {
	var out bytes.Buffer
	for at := 0; at < len(b); at += 16 {
		fmt.Fprintf(&out, "%04x: % x\n", at, b[at:min(at+16, len(b))])
	}
	return out.Bytes()
}

func (w *writer) take(n int) int {
	at := (len(w.b) + 7) / 8 * 8
	w.b = append(w.b, make([]byte, at+n-len(w.b))...)
	return at
}

func (w *writer) u32(at int, v uint32) { binary.LittleEndian.PutUint32(w.b[at:], v) }

// record fills in the record at an offset, lists with two records each, and
// returns the literal without its type.
func (w *writer) record(r *record, at int) string {
	var lit strings.Builder
	lit.WriteString("{\n")
	for _, f := range r.own() {
		w.n++
		fmt.Fprintf(&lit, "%s: ", camel(f.name))
		switch f.kind {
		case "u32":
			w.u32(at+f.at, w.n)
			fmt.Fprintf(&lit, "%d", w.n)
		case "u64":
			v := uint64(w.n) << 32
			binary.LittleEndian.PutUint64(w.b[at+f.at:], v)
			fmt.Fprintf(&lit, "%d", v)
		case "text", "bytes":
			text := fmt.Sprintf("text %d", w.n)
			if f.kind == "bytes" {
				text = fmt.Sprintf("bytes %d \xff", w.n) // no UTF-8
			}
			to := w.take(len(text))
			copy(w.b[to:], text)
			w.u32(at+f.at, uint32(to))
			w.u32(at+f.at+4, uint32(len(text)))
			if f.kind == "bytes" {
				fmt.Fprintf(&lit, "Bytes(%q)", text)
			} else {
				fmt.Fprintf(&lit, "%q", text)
			}
		case "list":
			of := w.s.find(f.of)
			const n = 2
			to := w.take(n * of.size)
			w.u32(at+f.at, uint32(to))
			w.u32(at+f.at+4, n)
			w.u32(at+f.at+8, uint32(of.size))
			fmt.Fprintf(&lit, "[]%s{\n", camel(f.of))
			for i := range n {
				lit.WriteString(w.record(of, to+i*of.size) + ",\n")
			}
			lit.WriteString("}")
		}
		lit.WriteString(",\n")
	}
	lit.WriteString("}")
	return lit.String()
}
