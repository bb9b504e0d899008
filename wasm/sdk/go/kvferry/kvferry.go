// Package kvferry is what a kvferry/1 policy in Go needs: views of a question's
// records, an answer that grows inside the host's buffer, and reasons. It imports
// the standard library only and takes next to nothing from the heap in a call.
//
// A policy exports the hooks that it has, and no more:
//
//	//go:wasmexport kvferry_remap
//	func remap(in, inLen, out, outCap uint32) uint64 {
//		return kvferry.Call(in, inLen, out, outCap, matchHeads)
//	}
//
//	func matchHeads(q kvferry.RemapIn, a *kvferry.Answer, r kvferry.RemapOut) kvferry.Status
//
//	func main() {}
//
// and is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags="-s -w"
//
// The functions are plain Go: a test on any machine opens a question's bytes with
// Open, begins an answer with Begin, and calls them.
package kvferry

import "encoding/binary"

// Status is what a hook says of its answer.
type Status uint32

// view is one record in a message: it ends where the next one in its list
// begins. Fields that an older host left out lie behind its end and are zero.
type view struct {
	b       []byte // the message
	at, end uint32
}

func (v view) u32(at uint32) uint32 {
	if at += v.at; at+4 <= v.end {
		return binary.LittleEndian.Uint32(v.b[at:])
	}
	return 0
}

func (v view) u64(at uint32) uint64 {
	if at += v.at; at+8 <= v.end {
		return binary.LittleEndian.Uint64(v.b[at:])
	}
	return 0
}

func (v view) text(at uint32) []byte {
	from, n := v.u32(at), v.u32(at+4)
	return v.b[from : from+n : from+n]
}

// The setters of a record for which the answer had no room do nothing.

func (v view) set32(at, x uint32) {
	if at += v.at; at+4 <= v.end {
		binary.LittleEndian.PutUint32(v.b[at:], x)
	}
}

func (v view) set64(at uint32, x uint64) {
	if at += v.at; at+8 <= v.end {
		binary.LittleEndian.PutUint64(v.b[at:], x)
	}
}

func (v view) setText(at uint32, t Text) {
	v.set32(at, t.at)
	v.set32(at+4, t.length)
}

func (v view) setList(at, from, count, step uint32) {
	if count == 0 {
		from, step = 0, 0
	}
	v.set32(at, from)
	v.set32(at+4, count)
	v.set32(at+8, step)
}

// record is any of the generated views.
type record interface {
	~struct{ view }
	size() uint32
}

// message is any of the views of messages.
type message interface {
	record
	hook() uint32
}

// reply is any of the answers.
type reply interface {
	message
	SetReason(Text)
}

// List is the records that a field of a question lists.
type List[T record] struct {
	b               []byte
	at, count, step uint32
}

func listAt[T record](v view, at uint32) List[T] {
	return List[T]{v.b, v.u32(at), v.u32(at + 4), v.u32(at + 8)}
}

// Len is the number of records.
func (l List[T]) Len() uint32 { return l.count }

// At is record i.
// Preconditions: i < l.Len(), else the guest traps.
func (l List[T]) At(i uint32) T {
	if i >= l.count {
		panic("kvferry: a list has no such record")
	}
	at := l.at + i*l.step
	return T(struct{ view }{view{l.b, at, at + l.step}})
}

// sizeHeader is what every message begins with: magic, version, hook, size of
// its record, size of the whole, a reserved word.
const sizeHeader = 24

// Open reads a message of T's hook. ok is false where it is none of this
// major.
func Open[T message](b []byte) (m T, ok bool) {
	v := view{b, 0, sizeHeader}
	if len(b) < sizeHeader || v.u32(0) != Magic || v.u32(4)>>16 != Major || v.u32(8) != m.hook() || uint64(v.u32(16)) != uint64(len(b)) || uint64(v.u32(12)) > uint64(len(b)) {
		return m, false
	}
	v.end = v.u32(12)
	return T(struct{ view }{v}), true
}

// Answer is an answer that grows. It goes on counting where the buffer is full,
// so that the host can be told what would have been enough.
type Answer struct {
	b    []byte
	need uint64
	none bool
}

// Begin starts an answer to T's hook in a buffer.
func Begin[T message](out []byte) (*Answer, T) {
	a := &Answer{b: out[:len(out)&^7]}
	return a, begin[T](a)
}

func begin[T message](a *Answer) T {
	var m T
	v := a.grow(m.size())
	v.set32(0, Magic)
	v.set32(4, Major<<16|Minor)
	v.set32(8, m.hook())
	v.set32(12, m.size())
	return T(struct{ view }{v})
}

// Refuse makes of the answer one that holds nothing but a reason, and returns
// the status.
func Refuse[T reply](a *Answer, s Status, reason *Line) Status {
	a.need = 0
	r := begin[T](a)
	r.SetReason(reason.Text(a))
	return s
}

// Nothing makes of the answer one of no bytes, not even a reason, and returns
// the status.
func (a *Answer) Nothing(s Status) Status {
	a.none = true
	return s
}

// End is what the hook returns for the answer: the status and the bytes
// written, or that more room is needed.
func (a *Answer) End(s Status) uint64 {
	if a.none {
		return uint64(s) << 32
	}
	a.need = (a.need + 7) &^ 7
	if a.need > uint64(len(a.b)) {
		return uint64(StatusAgain)<<32 | min(a.need, 1<<32-1)
	}
	binary.LittleEndian.PutUint32(a.b[16:], uint32(a.need))
	return uint64(s)<<32 | a.need
}

// grow takes n more zero bytes, 8-aligned; nothing where there is no room.
func (a *Answer) grow(n uint32) view {
	from := (a.need + 7) &^ 7
	a.need = from + uint64(n)
	to := (a.need + 7) &^ 7
	if to > uint64(len(a.b)) {
		return view{}
	}
	clear(a.b[from:to])
	return view{a.b, uint32(from), uint32(a.need)}
}

// Records is a list that an answer grows. The records of one list follow each
// other: none of another list and no text may come between.
type Records[T record] struct {
	at, count uint32
	next      uint64
}

// NewRecords begins a list where the answer ends.
func NewRecords[T record](a *Answer) Records[T] {
	next := (a.need + 7) &^ 7
	return Records[T]{at: uint32(next), next: next}
}

// Len is the number of records added.
func (l *Records[T]) Len() uint32 { return l.count }

// Add appends a record of zeros.
func (l *Records[T]) Add(a *Answer) T {
	var zero T
	if (a.need+7)&^7 != l.next {
		panic("kvferry: something was added to the answer between the records of a list")
	}
	v := a.grow(zero.size())
	l.count++
	l.next += uint64(zero.size())
	return T(struct{ view }{v})
}

// Text is a text in an answer.
type Text struct{ at, length uint32 }

// Line is a text that is put together piece by piece, at most 256 bytes, whole
// runes only.
type Line struct {
	c [256]byte
	n int
}

// Say adds what fits.
func (l *Line) Say(s string) *Line {
	l.n += copy(l.c[l.n:], s[:fitting(len(s), len(l.c)-l.n, func(i int) byte { return s[i] })])
	return l
}

// SayBytes adds what fits, at most room bytes.
func (l *Line) SayBytes(s []byte, room int) *Line {
	l.n += copy(l.c[l.n:], s[:fitting(len(s), min(room, len(l.c)-l.n), func(i int) byte { return s[i] })])
	return l
}

// fitting is how many of n bytes fit into room without cutting a rune.
func fitting(n, room int, at func(int) byte) int {
	if n <= room {
		return n
	}
	for n = room; n > 0 && at(n)&0xc0 == 0x80; {
		n--
	}
	return n
}

// SayNumber adds a number.
func (l *Line) SayNumber(v uint64) *Line {
	var d [20]byte
	n := len(d)
	for {
		n--
		d[n] = byte('0' + v%10)
		if v /= 10; v == 0 {
			break
		}
	}
	return l.SayBytes(d[n:], len(d))
}

// Text puts the line into an answer.
func (l *Line) Text(a *Answer) Text {
	v := a.grow(uint32(l.n))
	if v.b == nil {
		return Text{}
	}
	copy(v.b[v.at:], l.c[:l.n])
	return Text{v.at, uint32(l.n)}
}
