package host

import (
	"context"

	"github.com/kvferry/kvferry/wasm/abi"
)

// Route asks how one transfer goes. The answer has exactly one decision.
//
// Errors: *Refused, *Fault, *Error, ErrClosed.
func (p *Policy) Route(ctx context.Context, in []byte) (*abi.RouteOut, error) {
	out, err := p.call(ctx, "route", in)
	if err != nil {
		return nil, err
	}
	a, err := abi.DecodeRouteOut(out)
	if err != nil {
		return nil, p.fault("route", err, "answered what cannot be read")
	}
	if n := len(a.Decisions); n != 1 {
		return nil, p.fault("route", nil, "answered %d decisions, want 1", n)
	}
	a.Reason = abi.Reason(a.Reason)
	return a, nil
}
