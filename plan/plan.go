package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// Plan is the strided runs of one pair for one period of tokens, in canonical
// order. It depends on no request: a request's block tables and token range
// are applied by package stamp.
//
// The tokens of a request repeat with a period: canonical token t of period k
// lies, on both sides, in the table entries k*SourceBlocks + i and
// k*DestinationBlocks + j of its group, at places that depend on t mod Period
// only.
//
// A plan covers the whole period or, in a Window of it, part: a request that
// starts or ends inside a period is moved with a plan of that window, built
// and proved like any other (package stamp keeps them).
type Plan struct {
	Pair        geometry.Digest
	Assignments []Assignment // what the policy answered
	Groups      []Period
	Edges       []Edge  // ascending by (Group, Destination, Source)
	Pieces      []Piece // shared by the edges whose ranks hold the same tokens
	Runs        []Run   // ascending by (Edge, Layer), then as built: the canonical order, covered by Digest
}

// Period is how tokens and block table entries of one group repeat.
type Period struct {
	Tokens            int64 // tokens a period
	From, To          int64 // the window: the plan moves tokens [From, To) of the period
	SourceBlocks      int64 // source table entries a period
	DestinationBlocks int64 // destination table entries a period
}

// Edge is one source rank that feeds one destination rank with one group's
// rows. Its runs are Runs[From:To].
type Edge struct {
	Group       int
	Source      int
	Destination int
	From, To    int
}

// Piece is a sequence of tokens of one period that stay inside one block on
// either side: token Token + j*Step for j in [0, Count) lies in source table
// entry SourceBlock (of the period) at in-block place SourceToken +
// j*SourceStep, and likewise at the destination. Of components whose entries
// are several tokens, tokens and in-block places count entries; the one state
// of a slot counts as a token.
type Piece struct {
	Token, Step, Count                int64
	SourceBlock, DestinationBlock     int64
	SourceToken, SourceStep           int64
	DestinationToken, DestinationStep int64
}

// Loop repeats what is inside it Count times, with the given distances.
type Loop struct {
	Count             int64 `json:"count"`
	SourceStride      int64 `json:"source_stride"`      // bytes
	DestinationStride int64 `json:"destination_stride"` // bytes
}

// MaxLoops bounds the loops of a run.
const MaxLoops = 8

// Run is one strided copy of a plan: Bytes contiguous bytes, repeated by
// Loops (outermost first), for the tokens of one piece. Offsets are bytes
// inside the region with both block ids 0; the stamp adds the blocks'
// offsets (SourceMap and DestinationMap say how).
type Run struct {
	Edge, Piece       int
	Component         int // first component; the run may carry several where they lie contiguous
	Layer             int // the model's layer number of the first layer carried
	SourceRegion      int // index into the source rank's Layout.Regions
	DestinationRegion int
	SourceOffset      int64
	DestinationOffset int64
	SourceMap         int // index into the source rank's Layout.Maps: its Block digits place a block
	DestinationMap    int
	Bytes             int64
	Loops             []Loop
}

// Total is the number of bytes that the run moves for one piece.
func (r *Run) Total() int64 {
	n := r.Bytes
	for _, l := range r.Loops {
		n *= l.Count
	}
	return n
}

// Pieces is the number of contiguous copies in the run.
func (r *Run) Pieces() int64 {
	n := int64(1)
	for _, l := range r.Loops {
		n *= l.Count
	}
	return n
}

// BlockOffset returns the byte offset that block id adds under map m of l.
func BlockOffset(l *layout.Layout, m int, id int64) int64 {
	var bits int64
	for _, d := range l.Maps[m] {
		if d.Axis == geometry.Block {
			bits += id % d.Mod / d.Div * d.Stride
		}
	}
	return bits / 8
}

// Digest is the SHA-256 of every field of every run in order. Both sides of a
// transfer compute it for themselves and refuse to start unless it is equal.
func (p *Plan) Digest() geometry.Digest {
	h := sha256.New()
	w := writer{h: h}
	h.Write([]byte("kvferry plan 1\n"))
	h.Write(p.Pair[:])
	w.n(int64(len(p.Assignments)), int64(len(p.Groups)), int64(len(p.Edges)), int64(len(p.Pieces)), int64(len(p.Runs)))
	for _, a := range p.Assignments {
		w.n(int64(a.Group), int64(a.Components), int64(a.Destination), int64(a.Source), int64(a.Layers.From), int64(a.Layers.To),
			int64(a.Heads.From), int64(a.Heads.To), int64(a.Tokens.Size), int64(a.Tokens.Interleave), int64(a.Tokens.Phase))
	}
	for _, g := range p.Groups {
		w.n(g.Tokens, g.From, g.To, g.SourceBlocks, g.DestinationBlocks)
	}
	for _, e := range p.Edges {
		w.n(int64(e.Group), int64(e.Source), int64(e.Destination), int64(e.From), int64(e.To))
	}
	for _, q := range p.Pieces {
		w.n(q.Token, q.Step, q.Count, q.SourceBlock, q.DestinationBlock, q.SourceToken, q.SourceStep, q.DestinationToken, q.DestinationStep)
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		w.n(int64(r.Edge), int64(r.Piece), int64(r.Component), int64(r.Layer), int64(r.SourceRegion), int64(r.DestinationRegion),
			r.SourceOffset, r.DestinationOffset, int64(r.SourceMap), int64(r.DestinationMap), r.Bytes, int64(len(r.Loops)))
		for _, l := range r.Loops {
			w.n(l.Count, l.SourceStride, l.DestinationStride)
		}
	}
	w.flush()
	return geometry.Digest(h.Sum(nil))
}

type writer struct {
	h   hash.Hash
	buf [4096]byte
	at  int
}

func (w *writer) n(v ...int64) {
	for _, x := range v {
		if w.at+8 > len(w.buf) {
			w.flush()
		}
		binary.LittleEndian.PutUint64(w.buf[w.at:], uint64(x))
		w.at += 8
	}
}

func (w *writer) flush() {
	w.h.Write(w.buf[:w.at])
	w.at = 0
}

// Budget bounds what a plan may cost; a pair that needs more is refused
// instead of stalling everyone.
type Budget struct {
	Runs   int // of a plan
	Pieces int // token pieces of a period, all edges together
	Bytes  int // memory of the plan, estimated
}

// DefaultBudget is generous: the 80-layer reference pair needs 640 runs.
func DefaultBudget() Budget { return Budget{Runs: 1 << 18, Pieces: 1 << 16, Bytes: 64 << 20} }

// TooLarge is a plan over its budget.
type TooLarge struct {
	What        string // "runs", "pieces", "bytes"
	Need, Limit int
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("plan: %s: at least %d needed, the budget is %d", e.What, e.Need, e.Limit)
}
