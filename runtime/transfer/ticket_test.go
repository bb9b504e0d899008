package transfer

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
)

var testKey = bytes.Repeat([]byte{7}, 32)

func testTicket() Ticket {
	return Ticket{Kind: ToRead, Offer: ID{1, 2, 3, 15: 16}, Deadline: time.UnixMilli(1_700_000_000_123), Engine: "prefill", Incarnation: "i1", Audience: "blue",
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
}

func testOwner() Owner {
	return Owner{Engine: "prefill", Incarnation: "i1", Group: "blue", Key: testKey}
}

func seal(t *testing.T, k Ticket, key []byte) string {
	t.Helper()
	s, err := k.Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTicketBytes(t *testing.T) {
	k := testTicket()
	k.Trace = "t"
	b, err := base64.RawURLEncoding.DecodeString(seal(t, k, testKey))
	if err != nil {
		t.Fatal(err)
	}
	const want = "4b54" + "01" + "01" + "01020300000000000000000000000010" + "0000018bcfe5687b" +
		"07" + "70726566696c6c" + "02" + "6931" + "04" + "626c7565" + "01" + "74"
	if got := hex.EncodeToString(b[:len(b)-32]); got != want {
		t.Errorf("ticket is\n%s, want\n%s", got, want)
	}
	const wantSeal = "5520be5134dd86f2e855ba795a20de7ac6a59279930bcd2a05f13d2a01349dec"
	if got := hex.EncodeToString(b[len(b)-32:]); got != wantSeal {
		t.Errorf("seal is %s, want %s", got, wantSeal)
	}
}

func TestTicketFits(t *testing.T) {
	k := testTicket()
	k.Engine, k.Incarnation, k.Audience = strings.Repeat("e", maxEngine), strings.Repeat("i", maxOther), strings.Repeat("a", maxOther)
	if s := seal(t, k, testKey); len(s) > MaxTicketBytes {
		t.Errorf("the largest ticket has %d bytes, want at most %d", len(s), MaxTicketBytes)
	}
	k.Engine += "e"
	if _, err := k.Seal(testKey); err == nil || !strings.Contains(err.Error(), "engine has 129 bytes") {
		t.Errorf("an engine's name too long: %v", err)
	}
	if _, err := testTicket().Seal(testKey[:31]); err == nil {
		t.Error("a short key was accepted")
	}
}

func TestTicketRefusals(t *testing.T) {
	good := seal(t, testTicket(), testKey)
	flip := func(at int) string {
		b, _ := base64.RawURLEncoding.DecodeString(good)
		b[at] ^= 1
		return base64.RawURLEncoding.EncodeToString(b)
	}
	other := func(change func(*Ticket)) string {
		k := testTicket()
		change(&k)
		return seal(t, k, testKey)
	}
	for _, c := range []struct {
		name, sealed string
		consumer     string
		want         error
		field        string
	}{
		{"good", good, "blue", nil, ""},
		{"offer changed", flip(10), "blue", ErrForged, "seal"},
		{"deadline changed", flip(25), "blue", ErrForged, "seal"},
		{"seal changed", flip(len(good)*3/4 - 1), "blue", ErrForged, "seal"},
		{"another key", seal(t, testTicket(), bytes.Repeat([]byte{8}, 32)), "blue", ErrForged, "seal"},
		{"another engine", other(func(k *Ticket) { k.Engine = "other" }), "blue", ErrEngine, "engine"},
		{"another incarnation", other(func(k *Ticket) { k.Incarnation = "i0" }), "blue", ErrIncarnation, "incarnation"},
		{"another kind", other(func(k *Ticket) { k.Kind = ToWrite }), "blue", ErrKind, "kind"},
		{"another consumer", good, "red", ErrAudience, "audience"},
		{"for another group", other(func(k *Ticket) { k.Audience = "red" }), "red", ErrAudience, "audience"},
		{"empty", "", "blue", ErrMalformed, "length"},
		{"not base64", "!!!", "blue", ErrMalformed, "text"},
		{"a line end", good + "\n", "blue", ErrMalformed, "text"},
		{"broken lines", good[:9] + "\r\n" + good[9:], "blue", ErrMalformed, "text"},
		{"cut short", good[:40], "blue", ErrMalformed, "length"},
		{"too long", strings.Repeat("A", 513), "blue", ErrMalformed, "length"},
		{"another magic", flip(0), "blue", ErrMalformed, "magic"},
		{"another version", flip(2), "blue", ErrMalformed, "version"},
		{"length byte", flip(28), "blue", ErrMalformed, "length"},
	} {
		_, err := testOwner().Check(c.sealed, ToRead, c.consumer)
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var te *TicketError
		if !errors.As(err, &te) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		if c.name != "length byte" && te.Field != c.field {
			t.Errorf("%s: field %q, want %q", c.name, te.Field, c.field)
		}
		if blame.Of(err) != blame.Peer {
			t.Errorf("%s: blames %s", c.name, blame.Of(err))
		}
	}
}

func TestTicketLate(t *testing.T) {
	k := testTicket()
	if err := k.Late(k.Deadline); !errors.Is(err, ErrUnknown) {
		t.Errorf("at the deadline: %v", err)
	}
	if err := k.Late(k.Deadline.Add(1)); !errors.Is(err, ErrExpired) {
		t.Errorf("after it: %v", err)
	}
}

func FuzzTicket(f *testing.F) {
	s, err := testTicket().Seal(testKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(s[:50])
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Peek(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		again, err := k.Seal(testKey)
		if err != nil {
			t.Fatalf("a ticket that parses cannot be sealed: %v", err)
		}
		back, err := Peek(again)
		if err != nil || back != k {
			t.Fatalf("%+v came back as %+v, %v", k, back, err)
		}
	})
}

func FuzzTables(f *testing.F) {
	f.Add(AppendTables(nil, [][]uint32{{1, 2, 3, 9, 4}, {}}))
	f.Add(AppendGenerations(nil, [][]uint64{{0, 0, 7, 7, 1 << 63}}))
	f.Add([]byte{1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if tables, err := ParseTables(b); err == nil {
			if again := AppendTables(nil, tables); !bytes.Equal(again, b) {
				t.Fatalf("tables %x came back as %x", b, again)
			}
		}
		if gens, err := ParseGenerations(b); err == nil {
			if again := AppendGenerations(nil, gens); !bytes.Equal(again, b) {
				t.Fatalf("generations %x came back as %x", b, again)
			}
		}
	})
}

func TestTables(t *testing.T) {
	for _, c := range []struct {
		name string
		hex  string
		want string
	}{
		{"two groups", hex.EncodeToString(AppendTables(nil, [][]uint32{{5, 6, 7, 300}, {}})), ""},
		{"an empty run", "0101" + "0500", "tables: a run of 0 entries, want 1 to 4194304 in all"},
		{"runs that are one", "0102" + "0501" + "0601", "tables: two runs that are one"},
		{"too many", "0101" + "00" + "81808002", "tables: a run of 4194305 entries, want 1 to 4194304 in all"},
		{"past the last id", "0101" + "ffffffff0f" + "02", "tables: block id 4294967296 is larger than 4294967295"},
		{"cut short", "0101", "tables: cut short or not canonical"},
		{"a long zero", "018000", "tables: cut short or not canonical"},
		{"trailing", "010000", "tables: 1 bytes too many"},
		{"too many groups", "41", "tables: 65 groups, want at most 64"},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, err := ParseTables(b); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := hex.EncodeToString(AppendTables(nil, [][]uint32{{5, 6, 7, 300}, {}})); got != "02"+"02"+"0503"+"ac0201"+"00" {
		t.Errorf("coding is %s", got)
	}
	table := make([]uint32, 1<<20)
	for i := range table {
		table[i] = uint32(i)
	}
	if n := len(AppendTables(nil, [][]uint32{table})); n > 16 {
		t.Errorf("a million blocks in a row take %d bytes", n)
	}
}
