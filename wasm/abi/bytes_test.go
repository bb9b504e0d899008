package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// Bytes in JSON are readable where they can be, and never ambiguous.
func TestBytesInJSON(t *testing.T) {
	for _, c := range []struct {
		b    Bytes
		want string
	}{
		{Bytes(`{"a":[1]}`), `"{\"a\":[1]}"`},
		{Bytes("größer"), `"größer"`},
		{Bytes{}, `""`},
		{Bytes("\xff\x00"), `{"hex":"ff00"}`},
	} {
		text, err := json.Marshal(c.b)
		if err != nil || string(text) != c.want {
			t.Errorf("%q: %s (%v), want %s", c.b, text, err, c.want)
		}
		var back Bytes
		if err := json.Unmarshal(text, &back); err != nil || !bytes.Equal(back, c.b) {
			t.Errorf("%s is read as %q (%v)", text, back, err)
		}
	}
	for _, text := range []string{`null`, `{}`, `{"hex":null}`, `{"hex":"f"}`, `{"hex":"ff","more":1}`, `1`, `["a"]`} {
		if err := new(Bytes).UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

// Bytes need not be UTF-8 and may be long, but not longer than they may.
func TestBytesInMessages(t *testing.T) {
	in := &RouteIn{Model: "m", Configuration: bytes.Repeat([]byte{0xff}, MaxBytes)}
	got, err := DecodeRouteIn(in.Encode())
	if err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("%d bytes (%v)", len(got.Configuration), err)
	}
	in.Configuration = append(in.Configuration, 0)
	_, err = DecodeRouteIn(in.Encode())
	var e *Error
	if !errors.As(err, &e) || e.Field != "route_in.configuration" || !strings.Contains(e.Reason, "such a field has at most 65536 bytes") || e.Value != MaxBytes+1 || e.Limit != MaxBytes {
		t.Errorf("error %v", err)
	}
}
