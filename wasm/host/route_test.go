package host

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
)

// routing is a sound module whose hook is route.
func routing(out *abi.RouteOut, status uint32) *guest.Module {
	g := guest.Sound(guest.Reply(status, out.Encode())...)
	g.Manifest = strings.Replace(guest.SoundManifest, "remap", "route", 1)
	g.Exports[2] = guest.Export("kvferry_route", 0, 1)
	return g
}

// A transfer has exactly one decision.
func TestRoute(t *testing.T) {
	decision := abi.Decision{Alternative: 3, Chunk: 1 << 20, Transports: []abi.Transport{{Provider: 1}}}
	engines(t, func(t *testing.T, opt Options) {
		out, err := load(t, routing(&abi.RouteOut{Decisions: []abi.Decision{decision}, Reason: "a\nb"}, abi.StatusOk).Bytes(), opt).Route(ctx, question)
		if want := (&abi.RouteOut{Decisions: []abi.Decision{decision}, Reason: `a\u000ab`}); err != nil || !reflect.DeepEqual(out, want) {
			t.Errorf("%+v (%v), want %+v", out, err, want)
		}
		for _, c := range []struct {
			guest *guest.Module
			want  string
		}{
			{routing(&abi.RouteOut{}, abi.StatusOk), "answered 0 decisions, want 1"},
			{routing(&abi.RouteOut{Decisions: make([]abi.Decision, 2)}, abi.StatusOk), "answered 2 decisions, want 1"},
		} {
			_, err := load(t, c.guest.Bytes(), opt).Route(ctx, question)
			var fault *Fault
			if !errors.As(err, &fault) || fault.Hook != "route" || fault.Reason != c.want {
				t.Errorf("error %v, want %q", err, c.want)
			}
		}
		_, err = load(t, routing(&abi.RouteOut{Reason: "because"}, abi.StatusDeclined).Bytes(), opt).Route(ctx, question)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Reason != "because" {
			t.Errorf("error %v, want a refusal because of it", err)
		}
		if _, err := load(t, guest.Sound(guest.Answer(abi.StatusOk, 0)...).Bytes(), opt).Route(ctx, question); err == nil || !strings.Contains(err.Error(), "does not have it") {
			t.Errorf("error %v, want that the policy has no such hook", err)
		}
	})
}
