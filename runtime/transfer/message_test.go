package transfer

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
)

func messages() []Message {
	fail := &Failure{Code: "stale", Blame: blame.Peer, Message: "block 3"}
	box := Box{0, plan.Range{From: 1, To: 2}, 16, 32}
	return []Message{
		&Open{X: 1, Kind: ToRead, Ticket: "abc", Ranks: []int{0, 1}, Plan: "sha256:00", Providers: []string{"shm", "tcp"}, From: 0, To: 5, Layers: [2]int{0, 4}, More: true},
		&Granted{X: 1, Grant: Grant{1, 15: 255}, TTL: 30000, Request: "r1", Providers: []string{"tcp"}, Tables: []byte{1, 0}, Generations: []byte{1, 0}, Ready: []Box{box}, SideData: []byte("hi")},
		&Refused{X: 1, Failure: fail},
		&Mark{X: 1, Boxes: []Box{box}},
		&Landed{X: 1, Boxes: []Box{box}},
		&Done{X: 1},
		&Ended{X: 1, Failure: fail},
		&Closed{X: 1, Failure: fail},
		&Beat{X: []uint64{1, 2}, Loads: []Load{{0, 1}, {3, 8}}},
		&Extend{X: 2, Kind: ToWrite, Ticket: "abc"},
		&Extended{X: 2, TTL: 5},
		&Bye{Message: "closing"},
	}
}

func TestMessageTexts(t *testing.T) {
	want := []string{
		`16 {"x":1,"kind":1,"ticket":"abc","ranks":[0,1],"plan":"sha256:00","providers":["shm","tcp"],"from":0,"to":5,"layers":[0,4],"end":0,"more":true}`,
		`17 {"x":1,"grant":"010000000000000000000000000000ff","ttl_ms":30000,"request":"r1","providers":["tcp"],"end":0,"tables":"AQA=","generations":"AQA=","ready":[{"group":0,"layers":[1,2],"from":16,"to":32}],"side_data":"aGk="}`,
		`18 {"x":1,"failure":{"code":"stale","blame":"peer","message":"block 3"}}`,
		`19 {"x":1,"boxes":[{"group":0,"layers":[1,2],"from":16,"to":32}]}`,
		`20 {"x":1,"boxes":[{"group":0,"layers":[1,2],"from":16,"to":32}]}`,
		`21 {"x":1}`,
		`22 {"x":1,"failure":{"code":"stale","blame":"peer","message":"block 3"}}`,
		`23 {"x":1,"failure":{"code":"stale","blame":"peer","message":"block 3"}}`,
		`24 {"x":[1,2],"loads":[[0,1],[3,8]]}`,
		`25 {"x":2,"kind":2,"ticket":"abc"}`,
		`26 {"x":2,"ttl_ms":5}`,
		`27 {"message":"closing"}`,
	}
	for i, m := range messages() {
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		typ, text, _ := strings.Cut(want[i], " ")
		if string(b) != text || typ != itoa(m.Type()) {
			t.Errorf("%T is %d %s, want %s", m, m.Type(), b, want[i])
		}
		back, err := Decode(m.Type(), b)
		if err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%T came back as %+v, %v", m, back, err)
		}
	}
}

func itoa(n uint8) string { return string([]byte{'0' + n/10, '0' + n%10}) }

func TestMessageRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   uint8
		text  string
		field string
	}{
		{"unknown type", 63, `{}`, "type"},
		{"unknown key", TypeDone, `{"x":1,"y":2}`, "payload"},
		{"two values", TypeDone, `{"x":1}{"x":2}`, "payload"},
		{"not JSON", TypeDone, `x`, "payload"},
		{"cut short", TypeDone, `{"x":`, "payload"},
		{"no kind", TypeOpen, `{"x":1,"ranks":[0]}`, "kind"},
		{"no ranks", TypeOpen, `{"x":1,"kind":1}`, "ranks"},
		{"a load that is none", TypeBeat, `{"loads":[[0,9]]}`, "payload"},
		{"a load of nothing", TypeBeat, `{"loads":[[1]]}`, "payload"},
		{"a load of no rank", TypeBeat, `{"loads":[[-1,1]]}`, "payload"},
		{"too many loads", TypeBeat, `{"loads":[` + strings.Repeat("[1,1],", 1<<12) + `[1,1]]}`, "loads"},
		{"too many providers", TypeOpen, `{"x":1,"kind":1,"ranks":[0],"providers":["a"` + strings.Repeat(`,"a"`, 64) + `]}`, "providers"},
		{"no failure", TypeRefused, `{"x":1}`, "failure"},
		{"no lease", TypeGranted, `{"x":1,"grant":"010000000000000000000000000000ff"}`, "ttl_ms"},
		{"short grant", TypeGranted, `{"x":1,"grant":"01"}`, "payload"},
		{"long ticket", TypeOpen, `{"x":1,"kind":1,"ranks":[0],"ticket":"` + strings.Repeat("a", 513) + `"}`, "ticket"},
	} {
		_, err := Decode(c.typ, []byte(c.text))
		var me *MessageError
		if !errors.As(err, &me) || me.Field != c.field || blame.Of(err) != blame.Peer {
			t.Errorf("%s: %v, want a *MessageError of %s", c.name, err, c.field)
		}
	}
}

func TestFailuresTravel(t *testing.T) {
	for _, c := range codings() {
		err := Failed(blame.On(blame.Local, &RangeError{})).Err()
		if !errors.Is(err, ErrRange) {
			t.Fatal(err)
		}
		back := Failed(blame.On(blame.Local, c.err)).Err()
		if !errors.Is(back, c.err) || blame.Of(back) != blame.Peer {
			t.Errorf("%v came back as %v, blaming %s", c.err, back, blame.Of(back))
		}
	}
	if Failed(nil).Err() != nil {
		t.Error("no failure came back as one")
	}
	if err := (&Failure{Code: "from the future", Blame: "?"}).Err(); !errors.Is(err, ErrInternal) || blame.Of(err) != blame.Peer {
		t.Errorf("an unknown code: %v", err)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		b, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.Type(), b)
	}
	f.Fuzz(func(t *testing.T, typ uint8, b []byte) {
		m, err := Decode(typ, b)
		if err != nil {
			var me *MessageError
			if !errors.As(err, &me) {
				t.Fatalf("%v is no *MessageError", err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(typ, again)
		if err != nil {
			t.Fatalf("%s does not decode: %v", again, err)
		}
		third, err := Encode(back)
		if err != nil || string(third) != string(again) {
			t.Fatalf("%s came back as %s, %v", again, third, err)
		}
	})
}
