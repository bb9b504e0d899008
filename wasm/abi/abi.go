// Package abi is the policy ABI kvferry/1: the records that go into a guest's
// hooks and come out of them. The schema folder holds their only source and
// says how they are encoded and how they may grow; this package's records, the
// guests' code (wasm/sdk) and the specification (docs/abi.md) are generated from
// it.
//
// Decoding never trusts a guest: offsets, counts, distances and texts are
// bounded before anything is read, everything is copied out, and what lists and
// texts point at may in sum not exceed the message, so that a small message
// cannot unfold into a large one.
package abi

//go:generate go run ./gen

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Limits on messages.
const (
	MaxMessage      = 4 << 20
	MaxRecords      = 1 << 18 // of one message, all lists together
	MaxText         = 1024
	MaxBytes        = 64 << 10 // of a field of bytes, such as the operator's configuration
	MaxReason       = 256
	MaxAlternatives = 8
)

// Bytes are a field that is no text. In JSON they are a string where they are
// UTF-8, and {"hex": "..."} where they are not.
type Bytes []byte

// MarshalJSON writes them.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.Valid(b) {
		return json.Marshal(string(b))
	}
	return json.Marshal(map[string]string{"hex": hex.EncodeToString(b)})
}

// UnmarshalJSON reads what MarshalJSON writes, and nothing else.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var s string
		err := json.Unmarshal(text, &s)
		*b = Bytes(s)
		return err
	}
	var other struct {
		Hex *string `json:"hex"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&other); err != nil {
		return fmt.Errorf("abi: bytes are a string or {\"hex\": \"...\"}: %w", err)
	}
	if other.Hex == nil {
		return errors.New("abi: bytes are a string or {\"hex\": \"...\"}, not null")
	}
	out, err := hex.DecodeString(*other.Hex)
	*b = out
	return err
}

// Error is a message that cannot be. Field is "record.field" in the schema's
// names.
type Error struct {
	Message string
	Field   string
	Value   uint64
	Reason  string
	Limit   uint64 // that Value is beyond; 0: it is not about a limit
}

func (e *Error) Error() string {
	return fmt.Sprintf("abi: %s: %s is %d: %s", e.Message, e.Field, e.Value, e.Reason)
}

// sizeHeader is what every message begins with: magic, version (major << 16 |
// minor), hook, size of its own record, size of the whole, and one reserved
// word.
const sizeHeader = 24

type encoder struct{ b []byte }

// take appends n zero bytes, 8-aligned, and returns where they start.
func (e *encoder) take(n int) int {
	at := (len(e.b) + 7) &^ 7
	e.b = append(e.b, make([]byte, at+n-len(e.b))...)
	return at
}

func (e *encoder) u32(at int, v uint32) { binary.LittleEndian.PutUint32(e.b[at:], v) }
func (e *encoder) u64(at int, v uint64) { binary.LittleEndian.PutUint64(e.b[at:], v) }

func (e *encoder) text(at int, s string) {
	if s == "" {
		return
	}
	to := e.take(len(s))
	copy(e.b[to:], s)
	e.u32(at, uint32(to))
	e.u32(at+4, uint32(len(s)))
}

func (e *encoder) bytes(at int, b Bytes) { e.text(at, string(b)) }

func putList[T any](e *encoder, at int, list []T, size int, put func(*T, *encoder, int)) {
	if len(list) == 0 {
		return
	}
	to := e.take(len(list) * size)
	e.u32(at, uint32(to))
	e.u32(at+4, uint32(len(list)))
	e.u32(at+8, uint32(size))
	for i := range list {
		put(&list[i], e, to+i*size)
	}
}

func encode(hook uint32, size int, put func(*encoder, int)) []byte {
	e := &encoder{}
	e.take(size)
	put(e, 0)
	e.take(0)
	e.u32(0, Magic)
	e.u32(4, Major<<16|Minor)
	e.u32(8, hook)
	e.u32(12, uint32(size))
	e.u32(16, uint32(len(e.b)))
	return e.b
}

type decoder struct {
	b       []byte
	name    string
	records int
	left    uint64 // bytes of the message that no list or text has claimed
	err     error
}

// claim accounts for what a list or text points at: nothing is shared.
func (d *decoder) claim(field string, n uint64) bool {
	if n > d.left {
		d.fail(field, n, "bytes are pointed at, of which the message has %d left: nothing is shared", d.left)
		return false
	}
	d.left -= n
	return true
}

func (d *decoder) fail(field string, v uint64, why string, args ...any) {
	if d.err == nil {
		d.err = &Error{Message: d.name, Field: field, Value: v, Reason: fmt.Sprintf(why, args...)}
	}
}

// over fails for a value that is beyond a limit.
func (d *decoder) over(field string, v, most uint64, why string, args ...any) {
	if d.err == nil {
		d.err = &Error{Message: d.name, Field: field, Value: v, Reason: fmt.Sprintf(why, args...), Limit: most}
	}
}

// u32 reads a field; one that an older writer left out is zero.
func (d *decoder) u32(at, end int) uint32 {
	if at+4 > end {
		return 0
	}
	return binary.LittleEndian.Uint32(d.b[at:])
}

func (d *decoder) u64(at, end int) uint64 {
	if at+8 > end {
		return 0
	}
	return binary.LittleEndian.Uint64(d.b[at:])
}

func (d *decoder) text(at, end int, field string) string {
	s := d.stretch(at, end, field, "a text has", MaxText)
	if !utf8.ValidString(s) {
		d.fail(field, uint64(d.u32(at, end)), "not UTF-8")
	}
	return s
}

func (d *decoder) bytes(at, end int, field string) Bytes {
	if s := d.stretch(at, end, field, "such a field has", MaxBytes); s != "" {
		return Bytes(s)
	}
	return nil
}

// stretch reads what a text or bytes point at.
func (d *decoder) stretch(at, end int, field, has string, most uint64) string {
	from, n := uint64(d.u32(at, end)), uint64(d.u32(at+4, end))
	switch {
	case n == 0:
		return ""
	case n > most:
		d.over(field, n, most, "%s at most %d bytes", has, most)
		return ""
	case from < sizeHeader || from+n > uint64(len(d.b)):
		d.fail(field, from, "%d bytes there are not inside the message of %d", n, len(d.b))
		return ""
	case !d.claim(field, n):
		return ""
	}
	return string(d.b[from : from+n])
}

func getList[T any](d *decoder, at, end int, field string, get func(*T, *decoder, int, int)) []T {
	from, n, step := uint64(d.u32(at, end)), uint64(d.u32(at+4, end)), uint64(d.u32(at+8, end))
	if n == 0 || d.err != nil {
		return nil
	}
	d.records += int(min(n, MaxRecords+1))
	switch {
	case d.records > MaxRecords:
		d.over(field, n, MaxRecords, "a message has at most %d records", MaxRecords)
		return nil
	case step < 8 || step%8 != 0 || from%8 != 0:
		d.fail(field, step, "records are 8-aligned and at least 8 bytes apart (list at %d)", from)
		return nil
	case from < sizeHeader || from+n*step > uint64(len(d.b)):
		d.fail(field, n, "records of %d bytes at %d are not inside the message of %d", step, from, len(d.b))
		return nil
	case !d.claim(field, n*step):
		return nil
	}
	out := make([]T, n)
	for i := range out {
		lo := int(from) + i*int(step)
		get(&out[i], d, lo, lo+int(step))
		if d.err != nil {
			return nil
		}
	}
	return out
}

func decode(b []byte, hook uint32, name string, get func(*decoder, int, int)) error {
	d := &decoder{b: b, name: name}
	if len(b) < sizeHeader || len(b) > MaxMessage {
		d.fail("size", uint64(len(b)), "a message has %d to %d bytes", sizeHeader, MaxMessage)
		return d.err
	}
	record, size := uint64(d.u32(12, sizeHeader)), uint64(d.u32(16, sizeHeader))
	switch {
	case d.u32(0, 4) != Magic:
		d.fail("magic", uint64(d.u32(0, 4)), "want %d", uint64(Magic))
	case d.u32(4, 8)>>16 != Major:
		d.fail("version", uint64(d.u32(4, 8)>>16), "this side speaks kvferry/%d", Major)
	case d.u32(8, 12) != hook:
		d.fail("hook", uint64(d.u32(8, 12)), "want %d", hook)
	case size != uint64(len(b)):
		d.fail("size", size, "the message has %d bytes", len(b))
	case record < sizeHeader || record%8 != 0 || record > size:
		d.fail("record", record, "want a multiple of 8 from %d to %d", sizeHeader, size)
	default:
		d.left = size - record
		get(d, 0, int(record))
	}
	return d.err
}

// Reason returns a guest's reason fit to be shown: at most MaxReason bytes, and
// every rune that is not printable escaped.
func Reason(s string) string {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		next := utf8.AppendRune(nil, r)
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			next = fmt.Appendf(nil, "\\u%04x", r)
		}
		if len(out)+len(next) > MaxReason {
			break
		}
		out = append(out, next...)
	}
	return string(out)
}
