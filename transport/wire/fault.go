package wire

import (
	"errors"
	"unicode/utf8"

	"github.com/kvferry/kvferry/transport"
)

// Error codes on the wire.
const (
	codeNone         = 0
	codeNotGranted   = 1
	codeDeadline     = 2
	codeCanceled     = 3
	codePeerGone     = 4
	codeUnknown      = 5
	codeMismatch     = 6
	codeStale        = 7
	codeUnregistered = 8
	codeOther        = 9
	codeNotSupported = 10
)

// maxText bounds the texts of an error.
const maxText = 4096

// PeerError is a failure on the peer's side that has no type here.
type PeerError struct{ Text string }

func (e *PeerError) Error() string { return "transport: peer: " + e.Text }

// Fault appends an error, or nil. The errors of package transport arrive as
// what they are, others as a *PeerError.
func (e *Encoder) Fault(err error) {
	var unknown *transport.Unknown
	var mismatch *transport.Mismatch
	var stale *transport.Stale
	var unregistered *transport.Unregistered
	switch {
	case err == nil:
		e.U8(codeNone)
	case errors.As(err, &unknown):
		e.U8(codeUnknown)
		e.Raw(unknown.Plan[:])
	case errors.As(err, &mismatch):
		e.U8(codeMismatch)
		e.Text(cut(mismatch.Field))
		e.Text(cut(mismatch.Asked))
		e.Text(cut(mismatch.Grants))
	case errors.As(err, &stale):
		e.U8(codeStale)
		e.U32(uint32(stale.Group))
		e.U32(uint32(stale.Rank))
		e.U32(stale.Block)
		e.U64(stale.Granted)
		e.U64(stale.Found)
	case errors.As(err, &unregistered):
		e.U8(codeUnregistered)
		e.Text(cut(unregistered.Engine))
		e.U32(uint32(unregistered.Rank))
	case errors.Is(err, transport.ErrNotGranted):
		e.U8(codeNotGranted)
	case errors.Is(err, transport.ErrDeadline):
		e.U8(codeDeadline)
	case errors.Is(err, transport.ErrCanceled):
		e.U8(codeCanceled)
	case errors.Is(err, transport.ErrPeerGone), errors.Is(err, transport.ErrClosed):
		e.U8(codePeerGone)
	case errors.Is(err, transport.ErrNotSupported):
		e.U8(codeNotSupported)
	default:
		e.U8(codeOther)
		e.Text(cut(err.Error()))
	}
}

// cut shortens a text to maxText, at a whole character.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > maxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Fault reads an error, or nil.
func (d *Decoder) Fault() error {
	switch code := d.U8("error"); code {
	case codeNone:
		return nil
	case codeNotGranted:
		return transport.ErrNotGranted
	case codeDeadline:
		return transport.ErrDeadline
	case codeCanceled:
		return transport.ErrCanceled
	case codePeerGone:
		return transport.ErrPeerGone
	case codeNotSupported:
		return transport.ErrNotSupported
	case codeUnknown:
		u := &transport.Unknown{}
		d.Raw(u.Plan[:], "error.plan")
		return u
	case codeMismatch:
		return &transport.Mismatch{Field: d.Text("error.field"), Asked: d.Text("error.asked"), Grants: d.Text("error.grants")}
	case codeStale:
		return &transport.Stale{Group: d.Small("error.group"), Rank: d.Small("error.rank"), Block: d.U32("error.block"), Granted: d.U64("error.granted"), Found: d.U64("error.found")}
	case codeUnregistered:
		return &transport.Unregistered{Engine: d.Text("error.engine"), Rank: d.Small("error.rank")}
	case codeOther:
		return &PeerError{d.Text("error.text")}
	default:
		d.Fail("error", "code %d is not known", code)
		return nil
	}
}
