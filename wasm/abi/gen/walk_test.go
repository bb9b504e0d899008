package main

import (
	"fmt"
	"strings"
)

// The code generators of this file are those of the compatibility test. In each
// language they make two functions from a schema: walk reads a message through
// the generated code and writes all that it holds as a stream of 64-bit words,
// and fill writes a message in which no two values are equal, in the order in
// which the golden messages hold them.
//
// In a stream a number is itself; a text is its length and a hash of its bytes
// (h = h * 31 + byte); a list is its count and its records.

// goWalk is a file of a package that holds the guest code, or of the host's
// where host is set.
func (s *schema) goWalk(pkg string, host bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `package %s

import "fmt"

func hash(t []byte) (h uint64) {
	for _, c := range t {
		h = h*31 + uint64(c)
	}
	return h
}

// Walk streams a message.
func Walk(name string, message []byte) (o []uint64, err error) {
	switch name {
`, pkg)
	for i := range s.records {
		if r := &s.records[i]; r.hook != "" && host {
			fmt.Fprintf(&b, "\tcase %q:\n\t\tx, err := Decode%s(message)\n\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\treturn walk%s(nil, x), nil\n", r.name, camel(r.name), camel(r.name))
		} else if r.hook != "" {
			fmt.Fprintf(&b, "\tcase %q:\n\t\tif x, ok := Open[%s](message); ok {\n\t\t\treturn walk%s(nil, x), nil\n\t\t}\n", r.name, camel(r.name), camel(r.name))
		}
	}
	b.WriteString("\t}\n\treturn nil, fmt.Errorf(\"%s is none\", name)\n}\n\n")
	for i := range s.records {
		r := &s.records[i]
		star, call := "", "()"
		if host {
			star, call = "*", ""
		}
		fmt.Fprintf(&b, "func walk%s(o []uint64, x %s%s) []uint64 {\n", camel(r.name), star, camel(r.name))
		for _, f := range r.own() {
			field := "x." + camel(f.name) + call
			switch {
			case f.kind == "list" && host:
				fmt.Fprintf(&b, "\to = append(o, uint64(len(%s)))\n\tfor i := range %s {\n\t\to = walk%s(o, &%s[i])\n\t}\n", field, field, camel(f.of), field)
			case f.kind == "list":
				fmt.Fprintf(&b, "\to = append(o, uint64(%s.Len()))\n\tfor i := range %s.Len() {\n\t\to = walk%s(o, %s.At(i))\n\t}\n", field, field, camel(f.of), field)
			case f.kind == "text" || f.kind == "bytes":
				fmt.Fprintf(&b, "\to = append(o, uint64(len(%s)), hash([]byte(%s)))\n", field, field)
			default:
				fmt.Fprintf(&b, "\to = append(o, uint64(%s))\n", field)
			}
		}
		b.WriteString("\treturn o\n}\n\n")
	}
	if host {
		return b.String()
	}
	b.WriteString("// Fill writes an answer and returns its size.\nfunc Fill(name string, out []byte) uint32 {\n\tn := uint64(0)\n\tswitch name {\n")
	for i := range s.records {
		if r := &s.records[i]; r.hook != "" && r.answer() {
			fmt.Fprintf(&b, "\tcase %q:\n\t\ta, r := Begin[%s](out)\n\t\tfill%s(a, r, &n)\n\t\treturn uint32(a.End(StatusOk))\n", r.name, camel(r.name), camel(r.name))
		}
	}
	b.WriteString("\t}\n\treturn 0\n}\n\n")
	written := s.written()
	for i := range s.records {
		r := &s.records[i]
		if !written[r.name] {
			continue
		}
		fmt.Fprintf(&b, "func fill%s(a *Answer, x %s, n *uint64) {\n", camel(r.name), camel(r.name))
		for _, f := range r.own() {
			b.WriteString("\t*n++\n")
			switch f.kind {
			case "u32":
				fmt.Fprintf(&b, "\tx.Set%s(uint32(*n))\n", camel(f.name))
			case "u64":
				fmt.Fprintf(&b, "\tx.Set%s(*n << 32)\n", camel(f.name))
			case "text":
				fmt.Fprintf(&b, "\tx.Set%s(new(Line).Say(\"text \").SayNumber(*n).Text(a))\n", camel(f.name))
			case "list":
				fmt.Fprintf(&b, "\t{\n\t\tl := NewRecords[%s](a)\n\t\tfirst, second := l.Add(a), l.Add(a)\n\t\tfill%s(a, first, n)\n\t\tfill%s(a, second, n)\n\t\tx.Set%s(l)\n\t}\n", camel(f.of), camel(f.of), camel(f.of), camel(f.name))
			}
		}
		b.WriteString("}\n\n")
	}
	return b.String()
}

// cWalk is a guest in C.
func (s *schema) cWalk() string {
	var b strings.Builder
	b.WriteString(`#include "kvferry.h"
static uint64_t *o;
static uint64_t n;
static void say(uint64_t v) { *o++ = v; }
static void text(const void *base, kvf_text t) {
	uint64_t h = 0;
	for (uint32_t i = 0; i < t.length; i++) h = h * 31 + (unsigned char)kvf_chars(base, t)[i];
	say(t.length);
	say(h);
}
static kvf_text put(kvf_answer *a) {
	kvf_line l = {{0}, 0};
	kvf_text t = {0, 0};
	KVF_SAY(&l, "text ");
	kvf_say_number(&l, n);
	kvf_put_text(a, &t, &l);
	return t;
}
`)
	written := s.written()
	for i := range s.records {
		r := &s.records[i]
		fmt.Fprintf(&b, "static void walk_%s(const void *base, const kvf_%s *x) {\n", r.name, r.name)
		for _, f := range r.own() {
			switch f.kind {
			case "list":
				fmt.Fprintf(&b, "\tsay(x->%[1]s.count);\n\tfor (uint32_t i = 0; i < x->%[1]s.count; i++) {\n\t\tkvf_%[2]s r;\n\t\tKVF_READ(r, base, x->%[1]s, i);\n\t\twalk_%[2]s(base, &r);\n\t}\n", f.name, f.of)
			case "text", "bytes":
				fmt.Fprintf(&b, "\ttext(base, x->%s);\n", f.name)
			default:
				fmt.Fprintf(&b, "\tsay(x->%s);\n", f.name)
			}
		}
		b.WriteString("}\n")
		if !written[r.name] {
			continue
		}
		fmt.Fprintf(&b, "static void fill_%s(kvf_answer *a, kvf_%s *x) {\n", r.name, r.name)
		for _, f := range r.own() {
			b.WriteString("\tn++;\n")
			switch f.kind {
			case "u32":
				fmt.Fprintf(&b, "\tx->%s = (uint32_t)n;\n", f.name)
			case "u64":
				fmt.Fprintf(&b, "\tx->%s = n << 32;\n", f.name)
			case "text":
				fmt.Fprintf(&b, "\tx->%s = put(a);\n", f.name)
			case "list":
				fmt.Fprintf(&b, "\t{\n\t\tkvf_%[2]s *l = (kvf_%[2]s *)kvf_grow(a, 2 * sizeof *l);\n\t\tfill_%[2]s(a, l);\n\t\tfill_%[2]s(a, l + 1);\n\t\tx->%[1]s = (kvf_list){(uint32_t)l - a->at, 2, sizeof *l};\n\t}\n", f.name, f.of)
			}
		}
		b.WriteString("}\n")
	}
	for i := range s.records {
		r := &s.records[i]
		if r.hook == "" {
			continue
		}
		hook := "KVF_HOOK_" + strings.ToUpper(r.hook)
		fmt.Fprintf(&b, "KVF_EXPORT(\"walk_%[1]s\") uint32_t export_walk_%[1]s(uint32_t in, uint32_t in_len, uint32_t out) {\n\tkvf_%[1]s x;\n\to = (uint64_t *)out;\n\tif (!kvf_read(&x, sizeof x, in, in_len, %[2]s)) return 0;\n\twalk_%[1]s((const void *)in, &x);\n\treturn (uint32_t)o - out;\n}\n", r.name, hook)
		if r.answer() {
			fmt.Fprintf(&b, "KVF_EXPORT(\"fill_%[1]s\") uint32_t export_fill_%[1]s(uint32_t out, uint32_t cap) {\n\tkvf_answer a = kvf_begin(out, cap, %[2]s, sizeof(kvf_%[1]s));\n\tn = 0;\n\tfill_%[1]s(&a, (kvf_%[1]s *)out);\n\treturn (uint32_t)kvf_end(&a, KVF_STATUS_OK);\n}\n", r.name, hook)
		}
	}
	return b.String()
}

// rustWalk is a guest in Rust.
func (s *schema) rustWalk() string {
	var b strings.Builder
	b.WriteString(`#![no_std]
use kvferry::*;

struct Out(*mut u64, u32);

impl Out {
    fn say(&mut self, v: u64) {
        unsafe { *self.0.add(self.1 as usize) = v };
        self.1 += 1;
    }
    fn text(&mut self, t: &[u8]) {
        self.say(t.len() as u64);
        self.say(t.iter().fold(0, |h: u64, c| h.wrapping_mul(31).wrapping_add(*c as u64)));
    }
}

fn put<R: Reply>(a: &mut Answer<R>, n: u64) -> Text {
    a.text(Line::default().say("text ").say_number(n))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    stop()
}

#[no_mangle]
pub extern "C" fn kvferry_arena(size: u32) -> u32 {
    arena(size)
}
`)
	written := s.written()
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		fmt.Fprintf(&b, "fn walk_%s<Q>(q: &Input<Q>, x: &%s, o: &mut Out) {\n", r.name, name)
		for _, f := range r.own() {
			switch f.kind {
			case "list":
				fmt.Fprintf(&b, "    o.say(x.%[1]s.count as u64);\n    for r in q.iter(x.%[1]s) {\n        walk_%[2]s(q, &r, o);\n    }\n", rustName(f.name), f.of)
			case "text", "bytes":
				fmt.Fprintf(&b, "    o.text(q.bytes(x.%s));\n", rustName(f.name))
			default:
				fmt.Fprintf(&b, "    o.say(x.%s as u64);\n", rustName(f.name))
			}
		}
		b.WriteString("    let _ = (q, o, x);\n}\n")
		if !written[r.name] {
			continue
		}
		fmt.Fprintf(&b, "fn fill_%s<R: Reply>(a: &mut Answer<R>, n: &mut u64) -> %s {\n    let mut x = %s::default();\n", r.name, name, name)
		for _, f := range r.own() {
			b.WriteString("    *n += 1;\n")
			switch f.kind {
			case "u32":
				fmt.Fprintf(&b, "    x.%s = *n as u32;\n", rustName(f.name))
			case "u64":
				fmt.Fprintf(&b, "    x.%s = *n << 32;\n", rustName(f.name))
			case "text":
				fmt.Fprintf(&b, "    x.%s = put(a, *n);\n", rustName(f.name))
			case "list":
				fmt.Fprintf(&b, "    let mut l = a.records();\n    a.add(&mut l, %[3]s::default());\n    a.add(&mut l, %[3]s::default());\n    for i in 0..2 {\n        let r = fill_%[2]s(a, n);\n        a.set(&l, i, r);\n    }\n    x.%[1]s = l.list();\n", rustName(f.name), f.of, camelWords(f.of))
			}
		}
		b.WriteString("    x\n}\n")
	}
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		if r.hook == "" {
			continue
		}
		if r.answer() {
			fmt.Fprintf(&b, `#[no_mangle]
pub unsafe extern "C" fn fill_%[1]s(out: u32, cap: u32) -> u32 {
    fn decide(_: &Input<%[3]s>, a: &mut Answer<%[2]s>) -> Status {
        let mut n = 0;
        a.record = fill_%[1]s_record(a, &mut n);
        Status::Ok
    }
    let mut question = %[3]s::default();
    question.header = Header { magic: MAGIC, version: MAJOR << 16, hook: %[3]s::HOOK, record: core::mem::size_of::<%[3]s>() as u32, size: core::mem::size_of::<%[3]s>() as u32, reserved: 0 };
    call(&question as *const %[3]s as u32, question.header.size, out, cap, decide) as u32
}
fn fill_%[1]s_record(a: &mut Answer<%[2]s>, n: &mut u64) -> %[2]s {
    fill_inner_%[1]s(a, n)
}
`, r.name, name, camelWords(strings.TrimSuffix(r.name, "_out")+"_in"))
			continue
		}
		fmt.Fprintf(&b, `#[no_mangle]
pub unsafe extern "C" fn walk_%[1]s(at: u32, length: u32, out: u32) -> u32 {
    let bytes = core::slice::from_raw_parts(at as usize as *const u8, length as usize);
    match Input::<%[2]s>::open(bytes) {
        Some(q) => {
            let (mut o, x) = (Out(out as usize as *mut u64, 0), q.record);
            walk_inner_%[1]s(&q, &x, &mut o);
            o.1 * 8
        }
        None => 0,
    }
}
`, r.name, name)
	}
	// The functions of messages and their exports share names.
	out := b.String()
	for i := range s.records {
		r := &s.records[i]
		if r.hook == "" {
			continue
		}
		out = strings.Replace(out, "fn walk_"+r.name+"<Q>", "fn walk_inner_"+r.name+"<Q>", 1)
		out = strings.Replace(out, "fn fill_"+r.name+"<R: Reply>", "fn fill_inner_"+r.name+"<R: Reply>", 1)
	}
	return out
}

// asWalk is a guest in AssemblyScript.
func (s *schema) asWalk() string {
	var b strings.Builder
	b.WriteString(`import * as k from "./assembly";
import { Answer, Line } from "./assembly";
export { kvferry_arena } from "./assembly";

@unmanaged
class Out {
  n: u32 = 0;
  constructor(public at: usize) {}
  say(v: u64): void {
    store<u64>(this.at + (this.n++ << 3), v);
  }
  text(base: usize, at: u32, length: u32): void {
    let h: u64 = 0;
    for (let i: u32 = 0; i < length; i++) h = h * 31 + load<u8>(base + at + i);
    this.say(length);
    this.say(h);
  }
}

@unmanaged
class Count {
  n: u64 = 0;
}

`)
	written := s.written()
	for i := range s.records {
		r := &s.records[i]
		name := camelWords(r.name)
		fmt.Fprintf(&b, "function walk%s(base: usize, x: k.%s, o: Out): void {\n", name, name)
		for _, f := range r.own() {
			n := lowerCamel(f.name)
			switch f.kind {
			case "list":
				fmt.Fprintf(&b, "  o.say(x.%[1]sCount);\n  for (let i: u32 = 0; i < x.%[1]sCount; i++) walk%[2]s(base, k.whole<k.%[2]s>(changetype<usize>(x.%[1]s(base, i)), x.%[1]sStep), o);\n", n, camelWords(f.of))
			case "text", "bytes":
				fmt.Fprintf(&b, "  o.text(base, x.%[1]sAt, x.%[1]sLength);\n", n)
			default:
				fmt.Fprintf(&b, "  o.say(x.%s);\n", n)
			}
		}
		b.WriteString("}\n\n")
		if !written[r.name] {
			continue
		}
		fmt.Fprintf(&b, "function fill%s(a: Answer, x: k.%s, c: Count): void {\n", name, name)
		for _, f := range r.own() {
			n := lowerCamel(f.name)
			b.WriteString("  c.n++;\n")
			switch f.kind {
			case "u32":
				fmt.Fprintf(&b, "  x.%s = <u32>c.n;\n", n)
			case "u64":
				fmt.Fprintf(&b, "  x.%s = c.n << 32;\n", n)
			case "text":
				fmt.Fprintf(&b, "  {\n    const l = new Line().say(\"text \").sayNumber(c.n);\n    x.set%s(a.text(l), l.length);\n  }\n", camelWords(f.name))
			case "list":
				fmt.Fprintf(&b, "  {\n    const at = a.here(), size = <u32>offsetof<k.%[2]s>(), p = a.grow(2 * size);\n    fill%[2]s(a, changetype<k.%[2]s>(p), c);\n    fill%[2]s(a, changetype<k.%[2]s>(p + size), c);\n    x.set%[1]s(at, 2);\n  }\n", camelWords(f.name), camelWords(f.of))
			}
		}
		b.WriteString("}\n\n")
	}
	for i := range s.records {
		r := &s.records[i]
		if r.hook == "" {
			continue
		}
		name, hook := camelWords(r.name), "k.Hook."+strings.ToUpper(r.hook)
		fmt.Fprintf(&b, "export function walk_%[1]s(at: usize, length: u32, out: usize): u32 {\n  const x = k.read<k.%[2]s>(at, length, %[3]s);\n  if (!x) return 0;\n  const o = new Out(out);\n  walk%[2]s(at, x, o);\n  return o.n * 8;\n}\n\n", r.name, name, hook)
		if r.answer() {
			fmt.Fprintf(&b, "export function fill_%[1]s(out: usize, cap: u32): u32 {\n  const a = new Answer(out, cap, %[3]s, <u32>offsetof<k.%[2]s>());\n  fill%[2]s(a, changetype<k.%[2]s>(out), new Count());\n  return <u32>a.end(k.Status.OK);\n}\n\n", r.name, name, hook)
		}
	}
	return b.String()
}
