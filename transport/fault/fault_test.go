package fault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/fault"
	"github.com/kvferry/kvferry/transport/loop"
)

func parse(t testing.TB, text string) fault.Script {
	t.Helper()
	s, err := fault.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A decorator that has nothing to do, or only takes its time, conforms.
func TestConformance(t *testing.T) {
	for _, script := range []string{"", "poll: drop every 2; submit: delay 1us; complete: delay 200us every 3"} {
		conformance.Run(t, func(t *testing.T) conformance.Harness {
			var n loop.Network
			return conformance.Harness{Source: fault.New(n.New(loop.Options{}), parse(t, script)), Destination: fault.New(n.New(loop.Options{}), parse(t, script))}
		})
	}
}

// transfer connects two providers through the script at the destination and
// moves one request several times.
func transfer(t *testing.T, script string, times int) []conformance.Outcome {
	var n loop.Network
	return conformance.Repeat(t, conformance.Harness{Source: n.New(loop.Options{}), Destination: fault.New(n.New(loop.Options{}), parse(t, script))}, times)
}

func TestScriptsDoWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		script string
		want   string // a letter a transfer: . right, F injected, X wrong bytes, D nothing came
	}{
		{"", "...."},
		{"read: fail", "FFFF"},
		{"read: fail once", "F..."},
		{"read: fail 2", "FF.."},
		{"read: fail after 2", "..FF"},
		{"read: fail every 2", ".F.F"},
		{"submit: fail 1", "F..."},
		{"complete: fail after 3", "...F"},
		{"complete: corrupt first 1", "X..."},
		{"complete: drop 1", "D..."},
		{"write: fail", "...."},
		{"poll: drop 3; complete: delay 1ms", "...."},
		{"read: fail once; complete: corrupt 1", "FX.."},
	} {
		var got strings.Builder
		for _, o := range transfer(t, c.script, len(c.want)) {
			var injected *fault.Injected
			switch {
			case o.Missing:
				got.WriteByte('D')
			case errors.As(o.Err, &injected):
				got.WriteByte('F')
			case o.Err != nil:
				t.Errorf("%q: %v", c.script, o.Err)
			case o.Wrong == 1:
				got.WriteByte('X')
			case o.Wrong == 0:
				got.WriteByte('.')
			default:
				t.Errorf("%q: %d bytes wrong", c.script, o.Wrong)
			}
		}
		if got.String() != c.want {
			t.Errorf("%q: got %s, want %s", c.script, got.String(), c.want)
		}
	}
}

func TestCallsFail(t *testing.T) {
	var n loop.Network
	unable := fault.New(n.New(loop.Options{}), parse(t, "revoke: cannot once"))
	defer unable.Close()
	if err := unable.Revoke(transport.GrantID{}); !errors.Is(err, transport.ErrNotSupported) || errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("a provider that cannot: %v", err)
	}
	if err := unable.Revoke(transport.GrantID{}); !errors.Is(err, transport.ErrNotGranted) {
		t.Errorf("and then can: %v", err)
	}
	other := n.New(loop.Options{})
	defer other.Close()
	p := fault.New(n.New(loop.Options{}), parse(t, "connect: refuse once; health: fail after 1; fence: delay 5ms; cancel: fail; disconnect: refuse once"))
	defer p.Close()
	ctx := context.Background()
	var injected *fault.Injected
	if _, err := p.Connect(ctx, other.Address()); !errors.Is(err, transport.ErrPeerGone) || !errors.As(err, &injected) {
		t.Errorf("first connect: %v", err)
	}
	peer, err := p.Connect(ctx, other.Address())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Health(peer); err != nil {
		t.Errorf("first health: %v", err)
	}
	if err := p.Health(peer); !errors.As(err, &injected) || errors.Is(err, transport.ErrPeerGone) || injected.Hit != 2 {
		t.Errorf("second health: %v", err)
	}
	began := time.Now()
	if err := p.Fence(ctx, peer); err != nil || time.Since(began) < 5*time.Millisecond {
		t.Errorf("fence: %v after %v", err, time.Since(began))
	}
	if err := p.Cancel(1); !errors.As(err, &injected) {
		t.Errorf("cancel: %v", err)
	}
	if err := p.Disconnect(peer); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("disconnect: %v", err)
	}
	if err := p.Disconnect(peer); err != nil {
		t.Errorf("second disconnect: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, field string }{
		{"read", "rule"},
		{"reed: fail", "point"},
		{"read:", "action"},
		{"read: explode", "action"},
		{"read: corrupt", "action"},
		{"poll: fail", "action"},
		{"submit: delay", "delay"},
		{"submit: delay soon", "delay"},
		{"submit: delay -1s", "delay"},
		{"submit: delay 2h", "delay"},
		{"read: fail 0", "when"},
		{"read: fail after", "when"},
		{"read: fail after 1 2", "when"},
		{"read: fail before 3", "when"},
		{strings.Repeat("read: fail;", fault.MaxRules+1), "rule"},
	} {
		_, err := fault.Parse(c.text)
		var e *fault.ScriptError
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%.30q: got %v, want a refusal of its %s", c.text, err, c.field)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("read: fail after 2; submit: delay 10ms; complete: corrupt; poll: drop 1; connect: refuse once")
	f.Add("complete: delay 1.5h every 3")
	f.Add(";;:")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fault.Parse(text)
		if err != nil {
			var e *fault.ScriptError
			if !errors.As(err, &e) {
				t.Fatalf("%q: %v is no *ScriptError", text, err)
			}
			return
		}
		again, err := fault.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q: canonical %q reads back as %q, %v", text, s.String(), again.String(), err)
		}
	})
}
