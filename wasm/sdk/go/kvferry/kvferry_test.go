package kvferry_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/sdk/go/kvferry"
)

// decide is a hook as an author writes it.
func decide(q kvferry.RouteIn, a *kvferry.Answer, r kvferry.RouteOut) kvferry.Status {
	decisions := kvferry.NewRecords[kvferry.Decision](a)
	d := decisions.Add(a)
	d.SetAlternative(q.Alternatives().Len() - 1)
	d.SetStreams(q.Streams())
	transports := kvferry.NewRecords[kvferry.Transport](a)
	for i := range q.Providers().Len() {
		transports.Add(a).SetProvider(i)
	}
	d.SetTransports(transports)
	r.SetDecisions(decisions)
	var line kvferry.Line
	line.Say("for ").SayBytes(q.Engines().At(0).Name(), 4).Say(": ").SayNumber(q.Alternatives().At(0).Bytes())
	r.SetReason(line.Text(a))
	return kvferry.StatusOk
}

func question() []byte {
	return (&abi.RouteIn{Model: "m", Streams: 3, Alternatives: make([]abi.Proven, 2), Engines: []abi.Engine{{Name: "größer"}}, Providers: []abi.Provider{{Name: "shm"}, {Name: "tcp"}}}).Encode()
}

// What an author's test looks like: no guest, no host.
func TestHookWithoutAGuest(t *testing.T) {
	q, ok := kvferry.Open[kvferry.RouteIn](question())
	if !ok {
		t.Fatal("the question cannot be read")
	}
	out := bytes.Repeat([]byte{0xaa}, 1024)
	a, r := kvferry.Begin[kvferry.RouteOut](out)
	result := a.End(decide(q, a, r))
	if result>>32 != uint64(kvferry.StatusOk) {
		t.Fatalf("result %#x", result)
	}
	got, err := abi.DecodeRouteOut(out[:uint32(result)])
	if err != nil {
		t.Fatal(err)
	}
	d := got.Decisions[0]
	if d.Alternative != 1 || d.Streams != 3 || len(d.Transports) != 2 || d.Transports[1].Provider != 1 || got.Reason != "for grö: 0" {
		t.Errorf("%+v", got)
	}

	// Too small a buffer is not written past, and says what is needed.
	for room := range uint32(result) {
		small := bytes.Repeat([]byte{0xaa}, 1024)
		a, r := kvferry.Begin[kvferry.RouteOut](small[:room])
		if again := a.End(decide(q, a, r)); again != uint64(kvferry.StatusAgain)<<32|result&0xffffffff {
			t.Fatalf("in %d bytes: result %#x, want that %d are needed", room, again, uint32(result))
		}
		if !bytes.Equal(small[room:], bytes.Repeat([]byte{0xaa}, 1024-int(room))) {
			t.Fatalf("in %d bytes: written past them", room)
		}
	}
}

func TestRefusals(t *testing.T) {
	out := make([]byte, 256)
	a, r := kvferry.Begin[kvferry.RemapOut](out)
	alternatives := kvferry.NewRecords[kvferry.Alternative](a)
	alternatives.Add(a)
	r.SetAlternatives(alternatives)
	result := a.End(kvferry.Refuse[kvferry.RemapOut](a, kvferry.StatusDeclined, new(kvferry.Line).Say("no")))
	got, err := abi.DecodeRemapOut(out[:uint32(result)])
	if err != nil || result>>32 != uint64(kvferry.StatusDeclined) || len(got.Alternatives) != 0 || got.Reason != "no" {
		t.Errorf("%#x: %+v (%v)", result, got, err)
	}
	a, _ = kvferry.Begin[kvferry.RemapOut](out)
	if result := a.End(a.Nothing(kvferry.StatusBadInput)); result != uint64(kvferry.StatusBadInput)<<32 {
		t.Errorf("%#x", result)
	}
}

// What is no message of the hook is not opened.
func TestOpen(t *testing.T) {
	whole := question()
	change := func(at int, v byte) []byte {
		b := bytes.Clone(whole)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "cut": whole[:len(whole)-8], "the header alone": whole[:24], "magic": change(0, 0), "major": change(6, 2), "hook": change(8, 2), "a record past the end": change(14, 0xff),
	} {
		if _, ok := kvferry.Open[kvferry.RouteIn](b); ok {
			t.Errorf("%s was opened", name)
		}
	}
}

func TestLine(t *testing.T) {
	text := func(l *kvferry.Line) string {
		out := make([]byte, 512)
		a, r := kvferry.Begin[kvferry.RemapOut](out)
		r.SetReason(l.Text(a))
		got, err := abi.DecodeRemapOut(out[:uint32(a.End(kvferry.StatusOk))])
		if err != nil {
			t.Fatal(err)
		}
		return got.Reason
	}
	for want, l := range map[string]*kvferry.Line{
		"":                             new(kvferry.Line),
		"0 18446744073709551615":       new(kvferry.Line).SayNumber(0).Say(" ").SayNumber(1<<64 - 1),
		strings.Repeat("é", 128):       new(kvferry.Line).Say(strings.Repeat("é", 200)),
		"x" + strings.Repeat("é", 127): new(kvferry.Line).Say("x").Say(strings.Repeat("é", 200)),
		"良":                            new(kvferry.Line).SayBytes([]byte("良い"), 5),
	} {
		if got := text(l); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The records of a list follow each other; something between is the author's
// mistake, found by the first test that he writes.
func TestListsAreWhole(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a text between the records of a list was not noticed")
		}
	}()
	a, _ := kvferry.Begin[kvferry.RemapOut](make([]byte, 1024))
	l := kvferry.NewRecords[kvferry.Alternative](a)
	l.Add(a)
	new(kvferry.Line).Say("between").Text(a)
	l.Add(a)
}

// Views take nothing from the heap.
func TestNoAllocations(t *testing.T) {
	b, out := question(), make([]byte, 1024)
	n := testing.AllocsPerRun(100, func() {
		q, _ := kvferry.Open[kvferry.RouteIn](b)
		a, r := kvferry.Begin[kvferry.RouteOut](out)
		a.End(decide(q, a, r))
	})
	if n > 1 {
		t.Errorf("%v allocations a call, want the answer's own at most", n)
	}
}
