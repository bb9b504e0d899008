package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

// protocol stands in every request. Another version is refused by name.
const protocol = "control/1"

// Bounds of a frame.
const (
	maxText      = 1 << 20         // bytes of its JSON
	maxBytesIn   = store.MaxModule // of what follows it in a request
	maxBytesOut  = maxRecording    // and in an answer
	maxRecording = 16 << 20        // of a journal that is recorded through a socket
	headBytes    = 8
)

// A frame is two little-endian u32, the lengths of two parts, and the parts: a
// JSON object, and bytes that it says the meaning of.

// writeFrame writes one frame.
func writeFrame(w io.Writer, v any, more []byte) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a message as JSON: %w", err)
	}
	if len(text) > maxText {
		return fmt.Errorf("a message has %d bytes, at most %d are sent", len(text), maxText)
	}
	b := make([]byte, headBytes, headBytes+len(text)+len(more))
	binary.LittleEndian.PutUint32(b, uint32(len(text)))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(more)))
	_, err = w.Write(append(append(b, text...), more...))
	return err
}

// readFrame reads one frame whose bytes are at most most. io.EOF is an end
// before a frame.
//
// Errors: *FrameError for what is no frame; those of reading.
func readFrame(r io.Reader, v any, most int) (more []byte, err error) {
	var head [headBytes]byte
	if n, err := io.ReadFull(r, head[:]); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, &FrameError{Offset: n, Reason: "ends within its head"}
	} else if err != nil {
		return nil, err
	}
	text, bytes := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if text < 2 || text > maxText {
		return nil, &FrameError{Offset: 0, Reason: fmt.Sprintf("has %d bytes of JSON, want 2 to %d", text, maxText)}
	}
	if int64(bytes) > int64(most) {
		return nil, &FrameError{Offset: 4, Reason: fmt.Sprintf("has %d bytes more, at most %d are read here", bytes, most)}
	}
	part := func(at int, n uint32) ([]byte, error) {
		// Grows with what arrives: who says 8 MiB has to send them.
		b, err := io.ReadAll(io.LimitReader(r, int64(n)))
		if err == nil && len(b) < int(n) {
			err = &FrameError{Offset: at + len(b), Reason: fmt.Sprintf("ends after %d bytes of %d", len(b), n)}
		}
		return b, err
	}
	b, err := part(headBytes, text)
	if err != nil {
		return nil, err
	}
	if more, err = part(headBytes+len(b), bytes); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, &FrameError{Offset: headBytes, Reason: "is no message: " + err.Error()}
	}
	if len(more) == 0 {
		more = nil
	}
	return more, nil
}

// FrameError is what came over a socket and is no message. The fault is the
// other side's.
type FrameError struct {
	Offset int // in the frame
	Reason string
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("policy control: the frame %s (byte %d)", e.Reason, e.Offset)
}

// Blame is the peer.
func (e *FrameError) Blame() blame.Party { return blame.Peer }

// Verb is what is to be done.
type Verb string

// The verbs.
const (
	Load     Verb = "load"     // Module, Source, Keys, AllowDowngrade
	List     Verb = "list"     //
	Shadow   Verb = "shadow"   // Generation
	Canary   Verb = "canary"   // Generation, Percent, By
	Activate Verb = "activate" // Generation
	Promote  Verb = "promote"  // Generation, 0 for the candidate that is furthest; Percent and By where it becomes the canary
	Drop     Verb = "drop"     // Generation
	Rollback Verb = "rollback" // Reason
	History  Verb = "history"  // Last; Follow, of a process that runs
	Record   Verb = "record"   // Calls, For; of a process that runs
)

// Request is one thing to be done. Fields that its verb does not name are not
// looked at.
type Request struct {
	Verb           Verb          `json:"verb"`
	Generation     uint64        `json:"generation,omitempty"`
	Percent        float64       `json:"percent,omitempty"`
	By             generation.By `json:"by,omitempty"` // empty: by request
	Reason         string        `json:"reason,omitempty"`
	Source         string        `json:"source,omitempty"` // where the module came from, for people
	Keys           []string      `json:"keys,omitempty"`   // whose signatures were accepted
	AllowDowngrade bool          `json:"allow_downgrade,omitempty"`
	Last           int           `json:"last,omitempty"`   // events of the history; 0: all that are kept
	Follow         bool          `json:"follow,omitempty"` // and those to come
	Calls          int64         `json:"calls,omitempty"`  // to be recorded; 0: no such end
	For            time.Duration `json:"for,omitempty"`    // to record; 0: no such end

	Module []byte `json:"-"`
	// Events takes what Follow shows, one at a time.
	Events func(generation.Event) error `json:"-"`
}

// Answer is what came of a request.
type Answer struct {
	Store   string `json:"store"`
	Live    bool   `json:"live"`              // a process runs the store, and did it; else it was done to what stands there
	Process int    `json:"process,omitempty"` // that runs the store

	Generation uint64           `json:"generation,omitempty"` // that the change is about; for a rollback, the one that is active now
	Stage      generation.Stage `json:"stage,omitempty"`      // where it is now

	Status *Status            `json:"status,omitempty"`
	Events []generation.Event `json:"events,omitempty"`

	Journal *journal.Journal `json:"-"`
}

// sent is a request as it goes over the socket, received an answer.
type (
	sent struct {
		Protocol string `json:"kvferry"`
		Request
	}
	received struct {
		Answer
		More  bool   `json:"more,omitempty"` // another follows
		Busy  bool   `json:"busy,omitempty"` // too many connections; nothing was done
		Error *Error `json:"error,omitempty"`
	}
)

// Error is what a process says that a request came to.
type Error struct {
	Fault   blame.Party `json:"fault"`
	Message string      `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Blame is who the process blames.
func (e *Error) Blame() blame.Party { return e.Fault }

// Generation is a generation as answers have it.
type Generation struct {
	ID       uint64               `json:"generation"`
	Stage    generation.Stage     `json:"stage"`
	Percent  float64              `json:"percent,omitempty"` // of a canary
	By       generation.By        `json:"by,omitempty"`      // likewise
	Name     string               `json:"name"`
	Version  string               `json:"version"`
	Digest   string               `json:"digest"`
	Source   string               `json:"source,omitempty"`
	Keys     []string             `json:"keys,omitempty"`
	Loaded   time.Time            `json:"loaded"`
	Guest    int64                `json:"guest_calls"` // of the guest; the other answers were known
	Counters *generation.Counters `json:"counters,omitempty"`
}

// Difference is generation.Difference.
type Difference struct {
	At        time.Time `json:"at"`
	Hook      string    `json:"hook"`
	About     string    `json:"about"`
	Candidate uint64    `json:"candidate"`
	Active    uint64    `json:"active"`
	Text      string    `json:"text"`
}

// Status is generation.Status. Counters are those of the process; a store at
// rest has none.
type Status struct {
	Generations []Generation                   `json:"generations"`
	LastGood    *Generation                    `json:"last_good,omitempty"` // what a rollback goes back to
	Fallback    string                         `json:"fallback,omitempty"`  // none, last-good or built-in; empty at rest
	FallbackBy  *Generation                    `json:"fallback_by,omitempty"`
	Differences []Difference                   `json:"differences,omitempty"` // the last answers of shadows that differed
	Unaudited   int64                          `json:"unaudited"`
	Unwritten   int64                          `json:"unwritten"`
	Events      map[generation.EventKind]int64 `json:"events,omitempty"`
}

func generationOf(i *generation.Info, live bool) Generation {
	g := Generation{ID: i.ID, Stage: i.Stage, Percent: i.Share.Percent, By: i.Share.By, Name: i.Name, Version: i.Version, Digest: i.Digest.String(), Source: i.Source, Keys: i.Keys, Loaded: i.Loaded, Guest: i.Guest}
	if live {
		g.Counters = &i.Counters
	}
	return g
}

// StatusOf is a status as answers have it.
func StatusOf(s generation.Status, live bool) *Status {
	out := &Status{Generations: []Generation{}, Unaudited: s.Unaudited, Unwritten: s.Unwritten, Events: s.Events}
	for i := range s.Generations {
		out.Generations = append(out.Generations, generationOf(&s.Generations[i], live))
	}
	if s.LastGood != nil {
		g := generationOf(s.LastGood, false)
		out.LastGood = &g
	}
	if live {
		out.Fallback = s.Fallback.String()
	}
	if s.FallbackBy != nil {
		g := generationOf(s.FallbackBy, live)
		out.FallbackBy = &g
	}
	for _, d := range s.Differences {
		out.Differences = append(out.Differences, Difference(d))
	}
	return out
}
