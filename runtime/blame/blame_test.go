package blame_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/runtime/blame"
)

type lower struct{ by string }

func (l lower) Error() string { return "lower" }
func (l lower) Fault() string { return l.by }

func TestOf(t *testing.T) {
	base := errors.New("base")
	for _, c := range []struct {
		name string
		err  error
		want blame.Party
	}{
		{"nobody", base, blame.Local},
		{"marked", blame.On(blame.Policy, base), blame.Policy},
		{"marked twice keeps the first", blame.On(blame.Local, blame.On(blame.Peer, base)), blame.Peer},
		{"wrapped", fmt.Errorf("do: %w", blame.On(blame.Provider, base)), blame.Provider},
		{"said by a lower package", fmt.Errorf("do: %w", lower{"operator"}), blame.Operator},
		{"said wrongly", lower{"moon"}, blame.Local},
		{"overruled", blame.On(blame.Peer, lower{"operator"}), blame.Peer},
	} {
		if got := blame.Of(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if err := blame.On(blame.Peer, base); err.Error() != "base" || !errors.Is(err, base) {
		t.Errorf("the mark changed the error: %v", err)
	}
	if blame.On(blame.Peer, nil) != nil {
		t.Error("no error became one")
	}
}

func TestSeen(t *testing.T) {
	for p, want := range map[blame.Party]blame.Party{blame.Local: blame.Peer, blame.Peer: blame.Local, blame.Policy: blame.Policy, blame.Operator: blame.Operator, blame.Provider: blame.Provider} {
		if got := p.Seen(); got != want {
			t.Errorf("%s seen from the other side is %s, want %s", p, got, want)
		}
	}
}
