package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// The errors of the contract keep their types over the wire, wrapped or not.
func TestFaultKeepsItsType(t *testing.T) {
	stale := &transport.Stale{Group: 1, Rank: 2, Block: 3, Granted: 4, Found: 5}
	for _, c := range []struct {
		in, out error
		hex     string
	}{
		{nil, nil, "00"},
		{transport.ErrNotGranted, transport.ErrNotGranted, "01"},
		{transport.ErrDeadline, transport.ErrDeadline, "02"},
		{transport.ErrCanceled, transport.ErrCanceled, "03"},
		{transport.ErrPeerGone, transport.ErrPeerGone, "04"},
		{transport.ErrClosed, transport.ErrPeerGone, "04"}, // the peer's provider, not ours
		{transport.ErrNotSupported, transport.ErrNotSupported, "0a"},
		{stale, stale, "07" + "01000000" + "02000000" + "03000000" + "0400000000000000" + "0500000000000000"},
		{&transport.Unknown{Plan: [32]byte{9}}, &transport.Unknown{Plan: [32]byte{9}}, "05" + "09" + strings.Repeat("00", 31)},
		{&transport.Mismatch{Field: "to", Asked: "9", Grants: "8"}, &transport.Mismatch{Field: "to", Asked: "9", Grants: "8"}, "06" + "02000000746f" + "0100000039" + "0100000038"},
		{&transport.Unregistered{Engine: "e", Rank: 1}, &transport.Unregistered{Engine: "e", Rank: 1}, "08" + "0100000065" + "01000000"},
		{errors.New("disk"), &PeerError{"disk"}, "09" + "040000006469736b"},
	} {
		for _, in := range []error{c.in, fmt.Errorf("do something: %w", c.in)} {
			if c.in == nil {
				in = nil
			}
			if _, other := c.out.(*PeerError); other && in != c.in {
				continue
			}
			var e Encoder
			e.Fault(in)
			if got := hex.EncodeToString(e.B); got != c.hex {
				t.Errorf("%v: %s, want %s", in, got, c.hex)
			}
			d := NewDecoder(e.B)
			got := d.Fault()
			if err := d.End(); err != nil || !reflect.DeepEqual(got, c.out) {
				t.Errorf("%v arrives as %#v (%v), want %#v", in, got, err, c.out)
			}
		}
	}
}

func TestDecoderNamesTheField(t *testing.T) {
	for _, c := range []struct {
		hex  string
		read func(d *Decoder)
		want string
	}{
		{"0102", func(d *Decoder) { d.U32("from") }, "from: 2 bytes are left of the frame, 4 are needed"},
		{"0102", func(d *Decoder) { d.U8("kind") }, "end: 1 bytes follow the last field"},
		{"02", func(d *Decoder) { d.Flag("all") }, "all: is 2, want 0 or 1"},
		{"ffffffff", func(d *Decoder) { d.Small("rank") }, "rank: is 4294967295, want at most 2147483647"},
		{"ffffffff00", func(d *Decoder) { d.Count(8, "edges") }, "edges: a list of 4294967295 items is longer than the frame"},
		{"0500000061", func(d *Decoder) { d.Text("engine") }, "engine: a list of 5 items is longer than the frame"},
		{strings.Repeat("00", 48) + "01" + "01000000" + "0000", func(d *Decoder) { d.Request() }, "spans: a list of 1 items is longer than the frame"},
		{strings.Repeat("00", 48) + "01" + "ffffffff", func(d *Decoder) { d.Request() }, "spans: a list of 4294967295 items is longer than the frame"},
		{"63", func(d *Decoder) { d.Fault() }, "error: code 99 is not known"},
		{"", func(d *Decoder) { d.U8("first"); d.U64("second") }, "first: 0 bytes are left of the frame, 1 are needed"},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		d := NewDecoder(b)
		c.read(d)
		if err := d.End(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.hex, err, c.want)
		}
	}
}

func TestLongTextsAreCutAtACharacter(t *testing.T) {
	var e Encoder
	e.Fault(errors.New("x" + strings.Repeat("é", maxText)))
	got := NewDecoder(e.B).Fault().(*PeerError)
	if want := "x" + strings.Repeat("é", maxText/2-1); got.Text != want {
		t.Errorf("%d bytes arrive, want %d", len(got.Text), len(want))
	}
}

func requests() []stamp.Request {
	return []stamp.Request{
		{To: 1},
		{Plan: [32]byte{9}, From: 16, To: 1 << 40, Layers: plan.Range{From: 3, To: 4}},
		{From: 1, To: 9, Spans: []stamp.Span{{From: 4, To: 9}, {}, {To: 1}}, Edges: []stamp.EdgeKey{{Source: 1, Destination: 2}, {}}},
		{From: -1, To: -2, Spans: []stamp.Span{}, Edges: []stamp.EdgeKey{}},
	}
}

// What a request moves arrives as it was sent, and no spans are not no group's
// spans; its name and tables stay.
func TestRequestOnTheWire(t *testing.T) {
	for i, r := range requests() {
		var e Encoder
		sent := r
		sent.ID, sent.Source, sent.SourceFirst = "name", [][]uint32{{1}}, []int64{2}
		e.Request(&sent)
		d := NewDecoder(e.B)
		if got := d.Request(); d.End() != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("request %d arrives as %+v (%v), want %+v", i, got, d.End(), r)
		}
		for n := range e.B {
			d := NewDecoder(e.B[:n])
			if d.Request(); d.End() == nil {
				t.Errorf("request %d: %d of %d bytes are taken for whole", i, n, len(e.B))
			}
		}
	}
	var e Encoder
	e.Request(&requests()[2])
	want := strings.Repeat("00", 32) + "0100000000000000" + "0900000000000000" +
		"01" + "03000000" + "0400000000000000" + "0900000000000000" + strings.Repeat("00", 16) + "0000000000000000" + "0100000000000000" +
		"00000000" + "00000000" + "01" + "02000000" + "01000000" + "02000000" + "00000000" + "00000000"
	if got := hex.EncodeToString(e.B); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzRequest(f *testing.F) {
	for _, r := range requests() {
		var e Encoder
		e.Request(&r)
		f.Add(e.B)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(b)
		r := d.Request()
		if d.End() != nil {
			return
		}
		var e Encoder
		e.Request(&r)
		if !bytes.Equal(e.B, b) {
			t.Fatalf("%x is read and written as %x", b, e.B)
		}
	})
}

func FuzzFault(f *testing.F) {
	for _, err := range []error{nil, transport.ErrDeadline, &transport.Stale{Block: 7}, &transport.Mismatch{Field: "to"}, &transport.Unknown{}, &transport.Unregistered{Engine: "e"}, errors.New("x")} {
		var e Encoder
		e.Fault(err)
		f.Add(e.B)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(b)
		err := d.Fault()
		if d.End() != nil {
			return
		}
		var e Encoder
		if p, ok := err.(*PeerError); ok { // the prefix is this side's
			err = errors.New(p.Text)
		}
		e.Fault(err)
		if len(b) <= maxText && !bytes.Equal(e.B, b) {
			t.Fatalf("%x is read and written as %x", b, e.B)
		}
	})
}
