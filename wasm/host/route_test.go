package host

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
)

// routing is a sound module whose hook is route.
func routing(out *abi.RouteOut, status uint32) *guest {
	g := sound(reply(status, out.Encode())...)
	g.manifest = strings.Replace(soundManifest, "remap", "route", 1)
	g.exports[2] = export("kvferry_route", 0, 1)
	return g
}

// A transfer has exactly one decision.
func TestRoute(t *testing.T) {
	decision := abi.Decision{Alternative: 3, Chunk: 1 << 20, Transports: []abi.Transport{{Provider: 1}}}
	engines(t, func(t *testing.T, opt Options) {
		out, err := load(t, routing(&abi.RouteOut{Decisions: []abi.Decision{decision}, Reason: "a\nb"}, abi.StatusOk).bytes(), opt).Route(ctx, question)
		if want := (&abi.RouteOut{Decisions: []abi.Decision{decision}, Reason: `a\u000ab`}); err != nil || !reflect.DeepEqual(out, want) {
			t.Errorf("%+v (%v), want %+v", out, err, want)
		}
		for _, c := range []struct {
			guest *guest
			want  string
		}{
			{routing(&abi.RouteOut{}, abi.StatusOk), "answered 0 decisions, want 1"},
			{routing(&abi.RouteOut{Decisions: make([]abi.Decision, 2)}, abi.StatusOk), "answered 2 decisions, want 1"},
		} {
			_, err := load(t, c.guest.bytes(), opt).Route(ctx, question)
			var fault *Fault
			if !errors.As(err, &fault) || fault.Hook != "route" || fault.Reason != c.want {
				t.Errorf("error %v, want %q", err, c.want)
			}
		}
		_, err = load(t, routing(&abi.RouteOut{Reason: "because"}, abi.StatusDeclined).bytes(), opt).Route(ctx, question)
		var refused *Refused
		if !errors.As(err, &refused) || refused.Reason != "because" {
			t.Errorf("error %v, want a refusal because of it", err)
		}
		if _, err := load(t, sound(answer(abi.StatusOk, 0)...).bytes(), opt).Route(ctx, question); err == nil || !strings.Contains(err.Error(), "does not have it") {
			t.Errorf("error %v, want that the policy has no such hook", err)
		}
	})
}
