package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kvferry/kvferry/kv/geometry"
)

// Bounds on a state. What is beyond them was not written here.
const (
	MaxState       = 1 << 20 // bytes of the file
	MaxGenerations = 64
	maxText        = 1024 // bytes of each text in it
	maxKeys        = 16
)

// Generation is one policy that an agent was given, whatever became of it.
type Generation struct {
	ID      uint64 // never used again; from 1
	Name    string
	Version string // semantic
	Digest  geometry.Digest
	Source  string   // where the module came from, for people
	Keys    []string // whose signatures were accepted
	Loaded  time.Time
}

// State is what outlives a process: which generations there are and what each
// is for. A generation that stands in no role is loaded and waits. The zero
// value is the state of an empty store.
type State struct {
	Last        uint64 // the highest ID ever given; 0: none
	Active      uint64 // ID; 0: none
	LastGood    uint64 // the one before Active that was not rolled back
	Shadow      uint64
	Canary      uint64
	Percent     float64 // of Canary, in (0, 100]; 0 where there is none
	By          string  // what Canary is chosen by, "request" or "pair"; empty where there is none, and in files of before it was written
	Generations []Generation
}

// Find returns the generation of an ID.
func (s *State) Find(id uint64) (Generation, bool) {
	for _, g := range s.Generations {
		if g.ID == id && id != 0 {
			return g, true
		}
	}
	return Generation{}, false
}

// record and the fields below are the state as it stands in the file.
type record struct {
	Format      string             `json:"kvferry"`
	Last        uint64             `json:"last"`
	Active      uint64             `json:"active,omitempty"`
	LastGood    uint64             `json:"last_good,omitempty"`
	Shadow      uint64             `json:"shadow,omitempty"`
	Canary      uint64             `json:"canary,omitempty"`
	Percent     float64            `json:"percent,omitempty"`
	By          string             `json:"by,omitempty"`
	Generations []generationRecord `json:"generations"`
}

type generationRecord struct {
	ID      uint64   `json:"id"`
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Digest  string   `json:"digest"`
	Source  string   `json:"source,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	Loaded  string   `json:"loaded"`
}

// The file is one line that says what follows and its SHA-256, then JSON:
//
//	kvferry policy state 1 sha256:2f0c...
//	{ "kvferry": "policies/1", ... }
//
// A reader refuses a format that it does not know and every field that it does
// not know: an older kvferry must not drop what a newer one wrote.
const (
	header = "kvferry policy state 1 "
	format = "policies/1"
)

// Encode is the state as a file holds it. The same state gives the same bytes.
//
// Errors: *StateError.
func (s State) Encode() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	r := record{Format: format, Last: s.Last, Active: s.Active, LastGood: s.LastGood, Shadow: s.Shadow, Canary: s.Canary, Percent: s.Percent, By: s.By, Generations: []generationRecord{}}
	for _, g := range s.Generations {
		r.Generations = append(r.Generations, generationRecord{g.ID, g.Name, g.Version, g.Digest.String(), g.Source, g.Keys, g.Loaded.UTC().Format(time.RFC3339Nano)})
	}
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a policy state as JSON: %w", err)
	}
	body = append(body, '\n')
	if len(body) > MaxState-len(header)-80 {
		return nil, &StateError{"size", fmt.Sprintf("%d bytes, at most %d fit", len(body), MaxState)}
	}
	return append(fmt.Appendf(nil, "%s%s\n", header, geometry.Digest(sha256.Sum256(body))), body...), nil
}

// Decode reads a state strictly: what it returns encodes to the same meaning.
//
// Errors: *StateError.
func Decode(b []byte) (State, error) {
	bad := func(field, why string, args ...any) (State, error) {
		return State{}, &StateError{field, fmt.Sprintf(why, args...)}
	}
	if len(b) == 0 {
		return bad("file", "is empty")
	}
	if len(b) > MaxState {
		return bad("size", "%d bytes, at most %d are read", len(b), MaxState)
	}
	line, body, ok := bytes.Cut(b, []byte("\n"))
	sum, ours := strings.CutPrefix(string(line), header)
	if !ours {
		return bad("first line", "is %.80q, want %q and the SHA-256 of what follows", line, header)
	}
	if !ok {
		return bad("file", "ends in its first line: it was cut")
	}
	want, err := digest(sum)
	if err != nil {
		return bad("first line", "%v", err)
	}
	if got := geometry.Digest(sha256.Sum256(body)); got != want {
		return bad("content", "has SHA-256 %s, the first line says %s: it was cut or changed", got, want)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return bad("JSON", "%v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("JSON", "something follows the object")
	}
	if r.Format != format {
		return bad("kvferry", "is %.40q, this kvferry reads %q", r.Format, format)
	}
	s := State{Last: r.Last, Active: r.Active, LastGood: r.LastGood, Shadow: r.Shadow, Canary: r.Canary, Percent: r.Percent, By: r.By}
	if len(r.Generations) > MaxGenerations {
		return bad("generations", "%d of them, at most %d are kept", len(r.Generations), MaxGenerations)
	}
	for i, g := range r.Generations {
		at := fmt.Sprintf("generations[%d]", i)
		out := Generation{ID: g.ID, Name: g.Name, Version: g.Version, Source: g.Source, Keys: g.Keys}
		if out.Digest, err = digest(g.Digest); err != nil {
			return bad(at+".digest", "%v", err)
		}
		if out.Loaded, err = time.Parse(time.RFC3339Nano, g.Loaded); err != nil {
			return bad(at+".loaded", "%.40q is no time in RFC 3339", g.Loaded)
		}
		out.Loaded = out.Loaded.UTC()
		s.Generations = append(s.Generations, out)
	}
	if err := s.validate(); err != nil {
		return State{}, err
	}
	return s, nil
}

// digest reads "sha256:" and 64 small hexadecimal digits, and nothing else.
func digest(text string) (geometry.Digest, error) {
	var d geometry.Digest
	digits, ok := strings.CutPrefix(text, "sha256:")
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(d) {
		copy(d[:], b)
		if d.String() == text {
			return d, nil
		}
	}
	return d, fmt.Errorf("%.80q is no digest: want sha256: and 64 small hexadecimal digits", text)
}

// StateError is a state that cannot be.
type StateError struct {
	Field  string
	Reason string
}

func (e *StateError) Error() string { return "policy state: " + e.Field + ": " + e.Reason }

func (s *State) validate() error {
	bad := func(field, why string, args ...any) error { return &StateError{field, fmt.Sprintf(why, args...)} }
	if len(s.Generations) > MaxGenerations {
		return bad("generations", "%d of them, at most %d are kept", len(s.Generations), MaxGenerations)
	}
	for i, g := range s.Generations {
		at := fmt.Sprintf("generations[%d]", i)
		switch {
		case g.ID == 0 || g.ID > s.Last:
			return bad(at+".id", "is %d, want 1 to %d, the last that was given", g.ID, s.Last)
		case i > 0 && g.ID <= s.Generations[i-1].ID:
			return bad(at+".id", "is %d after %d: want them ascending", g.ID, s.Generations[i-1].ID)
		case g.Name == "":
			return bad(at+".name", "is empty")
		case len(g.Keys) > maxKeys:
			return bad(at+".keys", "%d of them, at most %d are kept", len(g.Keys), maxKeys)
		case g.Loaded.IsZero() || g.Loaded.Year() < 1 || g.Loaded.Year() > 9999:
			return bad(at+".loaded", "%v is no time of this format", g.Loaded)
		}
		for _, text := range append([]string{g.Name, g.Version, g.Source}, g.Keys...) {
			if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
				return bad(at, "%.40q: want printable UTF-8 of at most %d bytes", text, maxText)
			}
		}
	}
	taken := map[uint64]string{}
	for _, role := range []struct {
		name string
		id   uint64
	}{{"active", s.Active}, {"last_good", s.LastGood}, {"shadow", s.Shadow}, {"canary", s.Canary}} {
		if role.id == 0 {
			continue
		}
		if _, ok := s.Find(role.id); !ok {
			return bad(role.name, "is %d, which is none of the generations", role.id)
		}
		if other, ok := taken[role.id]; ok {
			return bad(role.name, "is %d, which is %s as well", role.id, other)
		}
		taken[role.id] = role.name
	}
	switch {
	case s.By != "" && s.By != "request" && s.By != "pair" || s.By != "" && s.Canary == 0:
		return bad("by", "is %.40q, want request or pair, and a canary", s.By)
	case s.Canary == 0 && s.Percent != 0:
		return bad("percent", "is %v without a canary", s.Percent)
	case s.Canary != 0 && !(s.Percent > 0 && s.Percent <= 100) || math.IsNaN(s.Percent):
		return bad("percent", "is %v, want more than 0 and at most 100", s.Percent)
	}
	return nil
}
