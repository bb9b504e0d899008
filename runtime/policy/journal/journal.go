// Package journal keeps what policies were asked and what they answered, so
// that another policy can be asked the same later.
//
// A journal holds the messages of the ABI and nothing else: names, versions and
// shapes of models and engines, block sizes and pool sizes, ranks and where they
// run (host names, NUMA nodes, device and rail names, load buckets), labels and
// configuration that the operator gave for the policy, and for each transfer the
// number of its tokens, its priority and its deadline. It holds no cache
// contents, no tokens, no block ids, no keys. What an operator writes into a
// label or a policy's configuration is in it as it stands; files are readable by
// their owner alone.
//
// The file, little-endian:
//
//	magic    8 bytes "kvfJourn"
//	version  u32     1
//	count    u32     entries
//	dropped  u64     calls that found no room
//	entries
//	checksum 32 bytes, the SHA-256 of all before it
//
// and an entry:
//
//	size     u32     bytes of the entry behind this field
//	hook     u32     its number in the ABI
//	status   u32     that the guest returned
//	times    u64     how often it was asked
//	fuel     u64     that the first call spent
//	nanos    u64     that the first call took
//	policy   32 bytes, the SHA-256 of the module
//	lengths  3 x u32 of question, answer and error
//	question, answer, error
//
// Forward compatibility: a later version may append to an entry, which readers
// of this one step over by its size; anything else changes the version, and a
// file of another version is refused by name.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/wasm/abi"
)

const (
	magic     = "kvfJourn"
	version   = 1
	headBytes = 24
	sumBytes  = sha256.Size
	fixed     = 4 + 4 + 8 + 8 + 8 + 32 + 12 // of an entry, behind its size
)

// MaxBytes bounds a journal: a larger file is not read.
const MaxBytes = 256 << 20

// maxError bounds the text of an error in an entry.
const maxError = 1 << 10

// Entry is one question to one policy, and what came of it.
type Entry struct {
	Policy   geometry.Digest
	Hook     string // "select_layout", "remap" or "route"
	Question []byte // an encoded message
	Answer   []byte // as the guest wrote it; nil where there is none
	Status   uint32 // of the ABI; meaningless where Error is set
	Error    string // why there is no answer: a fault of the guest; else empty
	Times    uint64 // how often it was asked, at least 1
	Fuel     uint64 // spent by the first call
	Duration time.Duration
}

// size is what an entry takes in a file.
func (e *Entry) size() int64 {
	return 4 + fixed + int64(len(e.Question)) + int64(len(e.Answer)) + int64(len(e.Error))
}

// Journal is the contents of a file.
type Journal struct {
	Entries []Entry
	Dropped uint64 // calls that found no room
}

// Error is a file that is no journal, or a broken one. The fault is the
// operator's: whoever named the file.
type Error struct {
	File   string // empty: not from a file
	Offset int64
	Reason string
}

func (e *Error) Error() string {
	s := "journal"
	if e.File != "" {
		s = e.File
	}
	return fmt.Sprintf("%s: byte %d: %s", s, e.Offset, e.Reason)
}

// Blame is the operator.
func (e *Error) Blame() blame.Party { return blame.Operator }

// hooks are the hooks by their number in the ABI.
func hooks() map[uint32]string {
	return map[uint32]string{abi.HookSelectLayout: "select_layout", abi.HookRemap: "remap", abi.HookRoute: "route"}
}

func hookNumber(name string) (uint32, bool) {
	for n, s := range hooks() {
		if s == name {
			return n, true
		}
	}
	return 0, false
}

// Encode is the bytes of the file.
// Preconditions: entries have hooks of the ABI.
func (j *Journal) Encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, 1<<12), magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, uint32(len(j.Entries)))
	b = le.AppendUint64(b, j.Dropped)
	for i := range j.Entries {
		e := &j.Entries[i]
		n, ok := hookNumber(e.Hook)
		if !ok {
			panic("journal: hook " + e.Hook)
		}
		b = le.AppendUint32(b, uint32(e.size()-4))
		b = le.AppendUint32(b, n)
		b = le.AppendUint32(b, e.Status)
		b = le.AppendUint64(b, e.Times)
		b = le.AppendUint64(b, e.Fuel)
		b = le.AppendUint64(b, uint64(max(e.Duration, 0)))
		b = append(b, e.Policy[:]...)
		for _, n := range []int{len(e.Question), len(e.Answer), len(e.Error)} {
			b = le.AppendUint32(b, uint32(n))
		}
		b = append(append(append(b, e.Question...), e.Answer...), e.Error...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Parse reads the bytes of a file. What it returns shares no memory with b.
//
// Errors: *Error.
func Parse(b []byte) (*Journal, error) {
	bad := func(at int, why string, args ...any) (*Journal, error) {
		return nil, &Error{Offset: int64(at), Reason: fmt.Sprintf(why, args...)}
	}
	le := binary.LittleEndian
	switch {
	case len(b) > MaxBytes:
		return bad(0, "%d bytes, at most %d are read", len(b), MaxBytes)
	case len(b) < len(magic) || string(b[:len(magic)]) != magic:
		return bad(0, "no journal of questions to policies")
	case len(b) < headBytes+sumBytes:
		return bad(len(b), "ends within its head")
	}
	if v := le.Uint32(b[8:]); v != version {
		return bad(8, "version %d, this program reads version %d", v, version)
	}
	body := b[:len(b)-sumBytes]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[len(body):]) {
		return bad(len(body), "the checksum is not that of the file: it is damaged, or was cut off")
	}
	j := &Journal{Dropped: le.Uint64(b[16:])}
	count, known := le.Uint32(b[12:]), hooks()
	at := headBytes
	for i := range count {
		if len(body)-at < 4 {
			return bad(at, "ends before entry %d of %d", i, count)
		}
		size := le.Uint32(body[at:])
		if at += 4; uint64(size) > uint64(len(body)-at) || size < fixed {
			return bad(at-4, "entry %d has %d bytes: want %d to %d", i, size, fixed, len(body)-at)
		}
		r := body[at : at+int(size)]
		e := Entry{Hook: known[le.Uint32(r)], Status: le.Uint32(r[4:]), Times: le.Uint64(r[8:]), Fuel: le.Uint64(r[16:]), Duration: time.Duration(le.Uint64(r[24:]))}
		if e.Hook == "" {
			return bad(at, "entry %d is about hook %d, which there is not", i, le.Uint32(r))
		}
		if e.Times == 0 || e.Duration < 0 {
			return bad(at, "entry %d was asked %d times and took %d ns", i, e.Times, int64(e.Duration))
		}
		copy(e.Policy[:], r[32:])
		rest := r[fixed:]
		for k, into := range []*[]byte{&e.Question, &e.Answer, nil} {
			n := le.Uint32(r[64+4*k:])
			if uint64(n) > uint64(len(rest)) {
				return bad(at+fixed, "entry %d: its parts reach past it", i)
			}
			switch {
			case into == nil:
				if e.Error = string(rest[:n]); !utf8.ValidString(e.Error) || n > maxError {
					return bad(at+fixed, "entry %d: its error is no text of at most %d bytes", i, maxError)
				}
			case n > abi.MaxMessage:
				return bad(at+fixed, "entry %d: a message of %d bytes, none has more than %d", i, n, abi.MaxMessage)
			case n > 0:
				*into = bytes.Clone(rest[:n])
			}
			rest = rest[n:]
		}
		j.Entries = append(j.Entries, e)
		at += int(size)
	}
	if at != len(body) {
		return bad(at, "%d bytes follow the last entry", len(body)-at)
	}
	return j, nil
}

// Read reads a file.
//
// Errors: *Error; those of opening and reading a file.
func Read(name string) (*Journal, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read a journal: %w", err)
	}
	j, err := Parse(b)
	var e *Error
	if errors.As(err, &e) {
		e.File = name
	}
	return j, err
}

// Write writes a file that only its owner may read, in place of the one of its
// name as a whole or not at all.
func Write(name string, j *Journal) error {
	name = filepath.Clean(name)
	f, err := os.CreateTemp(filepath.Dir(name), ".journal-*") // 0600
	if err != nil {
		return fmt.Errorf("write a journal: %w", err)
	}
	_, err = f.Write(j.Encode())
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write a journal: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// Merge is what several journals hold, in their order, each question to a policy
// once.
func Merge(journals ...*Journal) *Journal {
	out := &Journal{}
	at := map[[sha256.Size]byte]int{}
	for _, j := range journals {
		out.Dropped += j.Dropped
		for _, e := range j.Entries {
			key := e.key()
			if i, ok := at[key]; ok {
				out.Entries[i].Times += e.Times
				continue
			}
			at[key] = len(out.Entries)
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// key is what an entry is about: the policy, the hook and the question.
func (e *Entry) key() [sha256.Size]byte {
	h := sha256.New()
	h.Write(e.Policy[:])
	h.Write([]byte(e.Hook))
	h.Write([]byte{0})
	h.Write(e.Question)
	return [sha256.Size]byte(h.Sum(nil))
}
