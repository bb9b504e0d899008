// Package module reads and seals policy modules without running them: their
// sections, the marker of the ABI and the manifest.
//
// It is no validator; the host validates what it loads.
package module

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names that a sealed module carries.
const (
	Marker          = "kvferry_abi_v1" // exported immutable i32 global; its value is the ABI's minor
	ManifestSection = "kvferry.manifest"
	MaxManifest     = 16 << 10
	MaxModule       = 8 << 20
)

// Manifest is what a policy says of itself.
type Manifest struct {
	Name    string   `json:"name"`
	Version string   `json:"version"` // semantic
	Hooks   []string `json:"hooks"`   // "select_layout", "remap", "route"
	ABI     ABIRange `json:"abi"`
	Fuel    uint64   `json:"fuel,omitempty"`   // wanted for a call
	Memory  uint64   `json:"memory,omitempty"` // bytes wanted
}

// ABIRange is the range of minors that a policy can work with.
type ABIRange struct {
	Min string `json:"min"` // "1.0"
	Max string `json:"max"`
}

// Minors returns the range's bounds.
// Preconditions: both are versions, as in what came from ParseManifest.
func (r ABIRange) Minors() (low, high int) {
	low, _ = strconv.Atoi(strings.TrimPrefix(r.Min, "1."))
	high, _ = strconv.Atoi(strings.TrimPrefix(r.Max, "1."))
	return low, high
}

// Error is a module that cannot be a policy. Offset is a byte offset into it,
// or -1.
type Error struct {
	Offset int
	What   string
	Reason string
	Got    uint64 // how many there are, where Limit is not 0
	Limit  uint64 // how many may be; 0: it is not about a number
}

func refuse(at int, what, reason string) *Error {
	return &Error{Offset: at, What: what, Reason: reason}
}

// over refuses more of something than is read.
func over(at int, what, unit string, got, limit int) *Error {
	return &Error{at, what, fmt.Sprintf("%d %s, at most %d are read", got, unit, limit), uint64(got), uint64(limit)}
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("module: %s: %s", e.What, e.Reason)
	}
	return fmt.Sprintf("module: byte %d: %s: %s", e.Offset, e.What, e.Reason)
}

var (
	nameForm    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	versionForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$`)
	abiForm     = regexp.MustCompile(`^1\.(0|[1-9][0-9]{0,4})$`)
)

// Lower reports whether semantic version a is lower than b.
// Preconditions: both came from a manifest.
func Lower(a, b string) bool {
	parts := func(v string) []int {
		var out []int
		for p := range strings.SplitSeq(v, ".") {
			n, _ := strconv.Atoi(p) // a manifest's version is three numbers
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(parts(a), parts(b)) < 0
}

// ParseManifest reads a manifest strictly.
func ParseManifest(text []byte) (Manifest, error) {
	var m Manifest
	bad := func(what, why string, args ...any) (Manifest, error) {
		return Manifest{}, refuse(-1, "manifest: "+what, fmt.Sprintf(why, args...))
	}
	if len(text) > MaxManifest {
		return Manifest{}, over(-1, "manifest: size", "bytes", len(text), MaxManifest)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return bad("JSON", "%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("JSON", "something follows the object")
	}
	if key, why := oddKey(text); why != "" {
		return bad("JSON", "%q %s", key, why)
	}
	switch {
	case !nameForm.MatchString(m.Name):
		return bad("name", "%q: want a small letter, then small letters, digits and -, 63 at most", m.Name)
	case !versionForm.MatchString(m.Version):
		return bad("version", "%q is no semantic version", m.Version)
	case len(m.Hooks) == 0:
		return bad("hooks", "none named")
	case !abiForm.MatchString(m.ABI.Min) || !abiForm.MatchString(m.ABI.Max):
		return bad("abi", "%q to %q: want versions such as 1.0", m.ABI.Min, m.ABI.Max)
	}
	for i, h := range m.Hooks {
		if h != "select_layout" && h != "remap" && h != "route" || slices.Contains(m.Hooks[:i], h) {
			return bad("hooks", "%q: want select_layout, remap and route, each once", h)
		}
	}
	if low, high := m.ABI.Minors(); low > high {
		return bad("abi", "%s to %s is no range: want the lower version as min", m.ABI.Min, m.ABI.Max)
	}
	return m, nil
}

// manifestKeys are all that a manifest may hold, in the only spelling.
var manifestKeys = map[string]bool{"name": true, "version": true, "hooks": true, "abi": true, "fuel": true, "memory": true, "min": true, "max": true}

// oddKey returns a key that stands twice in its object or is spelt otherwise
// than here: the JSON package takes both, and two readers of one manifest would
// read two things.
// Preconditions: text is one JSON value.
func oddKey(text []byte) (key, why string) {
	d := json.NewDecoder(bytes.NewReader(text))
	var seen []map[string]bool // by depth; nil for an array
	isKey := false             // the next string is a key
	for {
		t, err := d.Token()
		if err != nil {
			return "", ""
		}
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				seen = append(seen, map[string]bool{})
			case '[':
				seen = append(seen, nil)
			default:
				seen = seen[:len(seen)-1]
			}
		case string:
			if isKey {
				here := seen[len(seen)-1]
				if here[t] {
					return t, "stands twice"
				}
				if !manifestKeys[t] {
					return t, "is no key of a manifest: keys are small letters"
				}
				here[t] = true
				isKey = false
				continue
			}
		}
		isKey = len(seen) > 0 && seen[len(seen)-1] != nil
	}
}

// section is one section of a module; from and to bound its contents.
type section struct {
	id       byte
	start    int // of the id
	from, to int
	name     string // of a custom section
	nameEnd  int
}

var errTruncated = errors.New("truncated")

func sections(b []byte) ([]section, error) {
	if len(b) < 8 || string(b[:4]) != "\x00asm" || binary.LittleEndian.Uint32(b[4:]) != 1 {
		return nil, refuse(0, "header", "no core WebAssembly module of version 1")
	}
	if len(b) > MaxModule {
		return nil, over(0, "size", "bytes", len(b), MaxModule)
	}
	var out []section
	var seen [256]bool
	for at := 8; at < len(b); {
		s := section{id: b[at], start: at}
		n, w, err := leb(b[at+1:])
		if err != nil || uint64(n) > uint64(len(b)-at-1-w) {
			return nil, refuse(at, "section size", "reaches past the module")
		}
		s.from = at + 1 + w
		s.to = s.from + int(n)
		if s.id == 0 {
			n, w, err := leb(b[s.from:s.to])
			if err != nil || uint64(n) > uint64(s.to-s.from-w) {
				return nil, refuse(s.from, "custom section", "its name reaches past the section")
			}
			s.nameEnd = s.from + w + int(n)
			s.name = string(b[s.from+w : s.nameEnd])
		}
		// Twice is not valid, and would let a reader that takes the first and one
		// that takes the last see two modules.
		if s.id != 0 && seen[s.id] {
			return nil, refuse(at, fmt.Sprintf("section %d", s.id), "stands twice")
		}
		seen[s.id] = true
		out = append(out, s)
		at = s.to
	}
	return out, nil
}

// ReadManifest returns the manifest of a module.
func ReadManifest(b []byte) (Manifest, error) {
	ss, err := sections(b)
	if err != nil {
		return Manifest{}, err
	}
	found := -1
	for i, s := range ss {
		if s.id == 0 && s.name == ManifestSection {
			if found >= 0 {
				return Manifest{}, refuse(s.start, "section "+ManifestSection, "stands twice")
			}
			found = i
		}
	}
	if found < 0 {
		return Manifest{}, refuse(-1, "section "+ManifestSection, "missing: the module was not sealed")
	}
	at := ss[found].nameEnd
	m, err := ParseManifest(b[at:ss[found].to])
	var e *Error
	if errors.As(err, &e) && e.Offset < 0 {
		e.Offset = at
	}
	return m, err
}

// ManifestOffset returns the byte offset of a module's manifest, or -1.
func ManifestOffset(b []byte) int {
	ss, err := sections(b)
	if err != nil {
		return -1
	}
	for _, s := range ss {
		if s.id == 0 && s.name == ManifestSection {
			return s.nameEnd
		}
	}
	return -1
}

// Start returns the byte offset of a module's start section, or -1.
func Start(b []byte) int {
	ss, err := sections(b)
	if err != nil {
		return -1
	}
	for _, s := range ss {
		if s.id == 8 {
			return s.start
		}
	}
	return -1
}

// leb reads an unsigned LEB128 of at most 32 bits.
func leb(b []byte) (v uint32, width int, err error) {
	for i := range 5 {
		if i >= len(b) {
			return 0, 0, errTruncated
		}
		if i == 4 && b[i] > 0x0f {
			return 0, 0, errTruncated
		}
		v |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1, nil
		}
	}
	return 0, 0, errTruncated
}

// Seal adds the marker of the ABI with the given minor and the manifest to a
// linked module. A module that has either is refused.
func Seal(b, manifest []byte, minor uint32) ([]byte, error) {
	if _, err := ParseManifest(manifest); err != nil {
		return nil, err
	}
	ss, err := sections(b)
	if err != nil {
		return nil, err
	}
	globals := uint32(0)
	var global, export *section
	for i := range ss {
		s := &ss[i]
		switch s.id {
		case 0:
			if s.name == ManifestSection {
				return nil, refuse(s.start, "section "+ManifestSection, "the module is sealed already")
			}
		case 2:
			list, err := imports(b[s.from:s.to], s.from)
			if err != nil {
				return nil, err
			}
			for _, i := range list {
				if i.Kind == Global {
					globals++
				}
			}
		case 6:
			global = s
			n, _, err := leb(b[s.from:s.to])
			if err != nil {
				return nil, refuse(s.from, "global section", "no count")
			}
			globals += n
		case 7:
			export = s
		}
	}
	if export == nil {
		return nil, refuse(-1, "export section", "missing: a policy exports memory, kvferry_arena and its hooks")
	}
	list, err := exports(b[export.from:export.to], export.from)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Name == Marker {
			return nil, refuse(export.start, "export "+Marker, "there already: the marker is added here and nowhere else")
		}
	}
	entry := AppendSigned([]byte{0x7f, 0x00, 0x41}, int64(int32(minor)))
	entry = append(entry, 0x0b)
	exported := append(uleb(uint32(len(Marker))), Marker...)
	exported = append(append(exported, 0x03), uleb(globals)...)

	out := slices.Clone(b[:8])
	for i := range ss {
		s := &ss[i]
		if s == export && global == nil {
			out = appendSection(out, 6, append([]byte{1}, entry...))
		}
		switch s {
		case global:
			body, err := grown(b[s.from:s.to], entry)
			if err != nil {
				return nil, err
			}
			out = appendSection(out, 6, body)
		case export:
			body, err := grown(b[s.from:s.to], exported)
			if err != nil {
				return nil, err
			}
			out = appendSection(out, 7, body)
		default:
			out = append(out, b[s.start:s.to]...)
		}
	}
	return appendManifest(out, manifest), nil
}

// Reseal gives a sealed module another manifest in place of its own. The rest
// stays as it is.
func Reseal(b, manifest []byte) ([]byte, error) {
	if _, err := ParseManifest(manifest); err != nil {
		return nil, err
	}
	if _, err := ReadManifest(b); err != nil {
		return nil, err
	}
	ss, err := sections(b)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(b[:8])
	for _, s := range ss {
		if s.id != 0 || s.name != ManifestSection {
			out = append(out, b[s.start:s.to]...)
		}
	}
	return appendManifest(out, manifest), nil
}

func appendManifest(out, manifest []byte) []byte {
	custom := append(uleb(uint32(len(ManifestSection))), ManifestSection...)
	return appendSection(out, 0, append(custom, manifest...))
}

// grown is a section's contents with one entry more.
func grown(body, entry []byte) ([]byte, error) {
	n, w, err := leb(body)
	if err != nil {
		return nil, refuse(-1, "section", "no count")
	}
	out := append(uleb(n+1), body[w:]...)
	return append(out, entry...), nil
}

func appendSection(out []byte, id byte, body []byte) []byte {
	out = append(append(out, id), uleb(uint32(len(body)))...)
	return append(out, body...)
}

// Kind is what an import is.
type Kind byte

// The kinds of imports.
const (
	Function Kind = 0
	Table    Kind = 1
	Memory   Kind = 2
	Global   Kind = 3
)

// String is the kind's name.
func (k Kind) String() string {
	if names := [...]string{"function", "table", "memory", "global"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Import is one import of a module.
type Import struct {
	Module, Name string
	Kind         Kind
}

// maxImports is far above what any policy asks for.
const maxImports = 1024

// Imports returns what a module imports, in its order.
//
// Errors: *Error.
func Imports(b []byte) ([]Import, error) {
	ss, err := sections(b)
	if err != nil {
		return nil, err
	}
	var out []Import
	for _, s := range ss {
		if s.id != 2 {
			continue
		}
		list, err := imports(b[s.from:s.to], s.from)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// imports reads an import section that starts at byte offset base.
func imports(b []byte, base int) ([]Import, error) {
	at := 0
	number := func() (uint32, bool) {
		n, w, err := leb(b[min(at, len(b)):])
		at += w
		return n, err == nil
	}
	text := func() (string, bool) {
		n, ok := number()
		if !ok || uint64(n) > uint64(len(b)-at) {
			return "", false
		}
		at += int(n)
		return string(b[at-int(n) : at]), true
	}
	limits := func() bool { // flags, least and perhaps most
		flag, ok := number()
		if ok {
			_, ok = number()
		}
		if ok && flag&1 != 0 {
			_, ok = number()
		}
		return ok
	}
	bad := refuse(base, "import section", "cannot be read")
	n, ok := number()
	if !ok {
		return nil, bad
	}
	if n > maxImports {
		return nil, over(base, "import section", "imports", int(n), maxImports)
	}
	var out []Import
	for range n {
		var i Import
		var ok, too bool
		i.Module, ok = text()
		if ok {
			i.Name, too = text()
		}
		if !too || at >= len(b) {
			return nil, bad
		}
		i.Kind = Kind(b[at])
		at++
		switch i.Kind {
		case Function:
			_, ok = number()
		case Table:
			at++
			ok = at <= len(b) && limits()
		case Memory:
			ok = limits()
		case Global:
			at += 2
			ok = at <= len(b)
		default:
			ok = false
		}
		if !ok {
			return nil, bad
		}
		out = append(out, i)
	}
	if at != len(b) {
		return nil, bad
	}
	return out, nil
}

// uleb is an unsigned LEB128 number, which is what encoding/binary calls a varint.
func uleb(v uint32) []byte { return binary.AppendUvarint(nil, uint64(v)) }

// AppendSigned appends a signed LEB128 number.
func AppendSigned(out []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(out, c)
		}
		out = append(out, c|0x80)
	}
}
