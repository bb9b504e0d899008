package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// The router (the parent process) and the two engines exchange one JSON object
// a line over the engines' standard input and output.

// Kinds of orders.
const (
	orderStart   = "start"   // become an engine
	orderConnect = "connect" // shake hands with the peer's agent
	orderAccept  = "accept"  // wait for the peer's handshake
	orderExpect  = "expect"  // destination, push: open blocks for writing
	orderPrefill = "prefill" // source: compute a prompt's cache and offer or push it
	orderTake    = "take"    // destination: take a request's cache over
	orderDecode  = "decode"  // destination: generate from it
	orderDrop    = "drop"    // end a request that did not move
	orderLife    = "life"    // destination: what the store's policies did
	orderStop    = "stop"
)

// order is one line to an engine. The engine answers each with exactly one
// final reply of the same number; a streaming or pulled prefill answers with
// one of State "offered" before that.
type order struct {
	N    int    `json:"n"`
	Kind string `json:"kind"`

	Start   *start `json:"start,omitempty"`
	Address string `json:"address,omitempty"`

	Request int    `json:"request,omitempty"`
	Prompt  []int  `json:"prompt,omitempty"` // prefill
	Ticket  string `json:"ticket,omitempty"` // prefill in push mode, take in the others
	Tokens  int64  `json:"tokens,omitempty"` // prompt tokens: expect, take
	First   int    `json:"first,omitempty"`  // decode: the token that prefill produced
	Count   int    `json:"count,omitempty"`  // expect, take, decode: tokens to generate
	Zero    bool   `json:"zero,omitempty"`   // decode: clear the cache first (the control)
}

// start is everything that an engine needs to know.
type start struct {
	Role       string             `json:"role"` // "source" or "destination"
	Shape      tinyllm.Shape      `json:"shape"`
	Heads      int                `json:"heads"`
	Seed       uint64             `json:"seed"`
	Side       SideConfig         `json:"side"`
	Peer       SideConfig         `json:"peer"`
	Transport  string             `json:"transport"`
	Mode       string             `json:"mode"`
	Integrity  transfer.Integrity `json:"integrity"`
	Policy     string             `json:"policy"` // what it was asked for as
	Module     []byte             `json:"module"`
	Settings   []byte             `json:"settings,omitempty"`
	Origin     string             `json:"origin,omitempty"` // where the module came from
	Keys       []string           `json:"keys,omitempty"`   // that signed it
	Store      string             `json:"store,omitempty"`  // policy store that it runs on; destination only
	Fallback   string             `json:"fallback,omitempty"`
	Record     string             `json:"record,omitempty"` // file for what the policy is asked
	Lie        string             `json:"lie,omitempty"`
	Blocks     []int              `json:"blocks"` // of each rank's pools, by group
	PeerBlocks []int              `json:"peer_blocks"`
	Folder     string             `json:"folder"` // private folder for sockets
}

// What an engine can be told to lie about.
const (
	lieLayout = "layout" // its label
	lieKernel = "kernel" // where its kernel writes
)

// reply is one line from an engine.
type reply struct {
	N     int              `json:"n"`
	State string           `json:"state"` // "done", "offered" or "failed"
	Error *refusal.Refusal `json:"error,omitempty"`

	Address string  `json:"address,omitempty"`
	Layout  string  `json:"layout,omitempty"` // the layout chosen or told
	Reason  string  `json:"reason,omitempty"`
	Policy  *Policy `json:"policy,omitempty"`

	Plan *planned `json:"plan,omitempty"`

	Ticket string `json:"ticket,omitempty"`
	First  int    `json:"first,omitempty"`

	Life   *Life  `json:"life,omitempty"`
	Moved  *moved `json:"moved,omitempty"`
	Output []int  `json:"output,omitempty"`
}

// planned is what the handshake led to.
type planned struct {
	Reason   string `json:"reason"`
	Runs     int    `json:"runs"`
	Digest   string `json:"digest"`
	Picture  string `json:"picture"`  // plain text
	Coloured string `json:"coloured"` // the same with ANSI colours
	Provider string `json:"provider"`
	Peer     string `json:"peer"` // whether the peer's layouts were measured or declared
	Probed   bool   `json:"probed"`
}

// moved is what a transfer moved, as the side that drove it saw it.
type moved struct {
	Bytes    int64   `json:"bytes"`
	Segments int64   `json:"segments"`
	Pieces   int64   `json:"pieces"`  // contiguous copies
	Digests  int64   `json:"digests"` // that were compared
	Seconds  float64 `json:"seconds"`
	// Route is how it went, where a policy decided that.
	Route *agent.Route `json:"route,omitempty"`
}

// Policy names the policy that decided, and how often it was asked.
type Policy struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Calls  int64  `json:"calls"`
	// Source is where it came from, Keys are those that signed it.
	Source string   `json:"source,omitempty"`
	Keys   []string `json:"keys,omitempty"`
}

// maxLine bounds a line: the longest carries a policy module.
const maxLine = 64 << 20

// lines reads and writes one JSON object a line. Writes are safe for
// concurrent use, reads are not.
type lines struct {
	in  *bufio.Scanner
	mu  sync.Mutex
	out io.Writer
}

func newLines(in io.Reader, out io.Writer) *lines {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &lines{in: s, out: out}
}

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.out.Write(append(b, '\n'))
	return err
}

// read stores the next line in v; io.EOF at the end.
func (l *lines) read(v any) error {
	if !l.in.Scan() {
		if err := l.in.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if err := json.Unmarshal(l.in.Bytes(), v); err != nil {
		return fmt.Errorf("read a line between router and engine: %w", err)
	}
	return nil
}
