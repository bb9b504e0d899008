package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/guest"
)

// An answer that can be read is still checked against the question.
func TestAnswersThatCannotBe(t *testing.T) {
	choice := (&abi.SelectLayoutOut{Index: 1, Reason: "the second"}).Encode()
	for _, c := range []struct {
		name  string
		guest *guest.Module
		want  string
	}{
		{"index of none", guest.Selecting(guest.Reply(abi.StatusOk, (&abi.SelectLayoutOut{Index: 2}).Encode())...), "chose candidate 2 of 2"},
		{"index that is negative", guest.Selecting(guest.Reply(abi.StatusOk, (&abi.SelectLayoutOut{Index: 1<<32 - 1}).Encode())...), "chose candidate 4294967295 of 2"},
		{"cut by a word", guest.Selecting(append(guest.Store(choice), guest.Answer(abi.StatusOk, uint32(len(choice)-8))...)...), "select_layout_out: size is 56: the message has 48 bytes"},
		{"one header", guest.Selecting(append(guest.Store(choice), guest.Answer(abi.StatusOk, 23)...)...), "select_layout_out: size is 23"},
		{"the answer to another hook", guest.Selecting(guest.Reply(abi.StatusOk, guest.Remap(1, ""))...), "select_layout_out: hook is 2: want 1"},
		{"another major", guest.Selecting(guest.Reply(abi.StatusOk, guest.With(choice, 4, 2<<16))...), "select_layout_out: version is 2"},
		{"reason outside", guest.Selecting(guest.Reply(abi.StatusOk, guest.With(choice, 32, 1<<20))...), "select_layout_out.reason is 1048576"},
		{"reason not UTF-8", guest.Selecting(guest.Reply(abi.StatusOk, guest.With(choice, 40, 0xffffffff))...), "select_layout_out.reason is 40: not UTF-8"},
		{"reason too long", guest.Selecting(guest.Reply(abi.StatusOk, guest.With(choice, 36, abi.MaxText+1))...), "select_layout_out.reason is 1025: a text has at most 1024 bytes"},
		{"no alternative", guest.Sound(guest.Reply(abi.StatusOk, guest.Remap(0, "nothing"))...), "answered 0 alternatives, want 1 to 8"},
		{"too many alternatives", guest.Sound(guest.Reply(abi.StatusOk, guest.Remap(abi.MaxAlternatives+1, ""))...), "answered 9 alternatives, want 1 to 8"},
		{"2^32-1 alternatives", guest.Sound(guest.Reply(abi.StatusOk, guest.With(guest.Remap(1, ""), 28, 1<<32-1))...), "remap_out.alternatives is 4294967295: a message has at most 262144 records"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines(t, func(t *testing.T, opt Options) {
				p := load(t, c.guest.Bytes(), opt)
				var err error
				hook := p.Manifest().Hooks[0]
				if hook == "remap" {
					_, err = p.Remap(ctx, question)
				} else {
					_, _, err = p.SelectLayout(ctx, question, 2)
				}
				var fault *Fault
				if !errors.As(err, &fault) || fault.Policy != "guest" || fault.Hook != hook || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, want a *Fault of hook %s with %q", err, hook, c.want)
				}
			})
		})
	}
}

// A reason is shown as the guest gave it, escaped and cut; one that cannot be
// read does not turn a no into something else.
func TestReasonsAreMadeFitToShow(t *testing.T) {
	const hostile = "a\x1b[31m\r\n\u202eb"
	const shown = `a\u001b[31m\u000d\u000a\u202eb`
	long := strings.Repeat("x", abi.MaxText)

	p := load(t, guest.Selecting(guest.Reply(abi.StatusOk, (&abi.SelectLayoutOut{Index: 1, Reason: hostile}).Encode())...).Bytes(), Options{})
	if i, reason, err := p.SelectLayout(ctx, question, 2); err != nil || i != 1 || reason != shown {
		t.Errorf("chose %d, reason %q (%v), want 1 and %q", i, reason, err, shown)
	}
	p = load(t, guest.Sound(guest.Reply(abi.StatusOk, guest.Remap(abi.MaxAlternatives, hostile))...).Bytes(), Options{})
	if a, err := p.Remap(ctx, question); err != nil || len(a.Alternatives) != abi.MaxAlternatives || a.Reason != shown {
		t.Errorf("answer %+v (%v), want %d alternatives and %q", a, err, abi.MaxAlternatives, shown)
	}

	no := (&abi.SelectLayoutOut{Reason: "because"}).Encode()
	for _, c := range []struct {
		name, want string
		g          *guest.Module
	}{
		{"sound", "because", guest.Selecting(guest.Reply(abi.StatusDeclined, no)...)},
		{"hostile", shown, guest.Selecting(guest.Reply(abi.StatusDeclined, (&abi.SelectLayoutOut{Reason: hostile}).Encode())...)},
		{"long", long[:abi.MaxReason], guest.Selecting(guest.Reply(abi.StatusDeclined, (&abi.SelectLayoutOut{Reason: long}).Encode())...)},
		{"none", "", guest.Selecting(guest.Answer(abi.StatusDeclined, 0)...)},
		{"not UTF-8", "(its reason cannot be read: abi: select_layout_out: select_layout_out.reason is 40: not UTF-8)", guest.Selecting(guest.Reply(abi.StatusDeclined, guest.With(no, 40, 0xffffffff))...)},
		{"of another hook", "(its reason cannot be read: abi: select_layout_out: hook is 2: want 1)", guest.Selecting(guest.Reply(abi.StatusDeclined, guest.Remap(0, "because"))...)},
		{"of remap", "because", guest.Sound(guest.Reply(abi.StatusDeclined, guest.Remap(0, "because"))...)},
	} {
		p := load(t, c.g.Bytes(), Options{})
		var err error
		if p.Manifest().Hooks[0] == "remap" {
			_, err = p.Remap(ctx, question)
		} else {
			_, _, err = p.SelectLayout(ctx, question, 2)
		}
		var refused *Refused
		if !errors.As(err, &refused) || refused.Status != abi.StatusDeclined || refused.Reason != c.want {
			t.Errorf("%s: error %v, want a refusal because of %q", c.name, err, c.want)
		}
	}
}

// A guest that always wants a little more gets what there may be, and no more.
func TestAgainForEver(t *testing.T) {
	// The arena is at 4096 whatever is asked for; the memory grows to hold it.
	// out_cap + 8 bytes are wanted each time.
	hook := slices.Concat([]byte{0x20, 3}, guest.I32(8), []byte{0x6a, 0xad}, guest.Answer(abi.StatusAgain, 0), []byte{0x84})
	g := guest.Sound(hook...)
	g.Memory = []byte{0, 0x82, 0x01} // 130 pages: the largest arena, and some
	engines(t, func(t *testing.T, opt Options) {
		p := load(t, g.Bytes(), opt)
		_, err := p.Remap(ctx, question)
		var fault *Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), fmt.Sprintf("at most %d are read", abi.MaxMessage)) {
			t.Fatalf("error %v, want a *Fault that says how much is read", err)
		}
		if p.Calls() > 9 {
			t.Errorf("%d calls of the guest, want one for each size of arena", p.Calls())
		}
	})
	// Where the guest cannot hold the room it asked for, that is its fault too.
	g.Memory = []byte{0, 2}
	_, err := load(t, g.Bytes(), Options{}).Remap(ctx, question)
	var e *Error
	if !errors.As(err, &e) || e.Operator || !strings.Contains(err.Error(), "export kvferry_arena: answered 4096 for 131072 bytes in a memory of 131072") {
		t.Errorf("error %v, want one about the arena", err)
	}
}

// A guest that takes all the memory it can is stopped at its limit, and the
// next call has as little as the first.
func TestGrowthIsBounded(t *testing.T) {
	// loop: if memory.grow(1) != -1, again; then trap unless the memory has the
	// 256 pages of the limit.
	grow := slices.Concat([]byte{0x03, 0x40}, guest.I32(1), []byte{0x40, 0}, guest.I32(-1), []byte{0x47, 0x0d, 0, 0x0b})
	check := slices.Concat([]byte{0x3f, 0}, guest.I32(256), []byte{0x47, 0x04, 0x40, 0x00, 0x0b})
	first := slices.Concat([]byte{0x3f, 0}, guest.I32(2), []byte{0x47, 0x04, 0x40, 0x00, 0x0b}) // trap unless 2 pages
	g := guest.Sound(slices.Concat(first, grow, check, guest.Answer(abi.StatusDeclined, 0))...)
	engines(t, func(t *testing.T, opt Options) {
		p := load(t, g.Bytes(), opt)
		for i := range 3 {
			var refused *Refused
			if _, err := p.Remap(ctx, question); !errors.As(err, &refused) {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		if p.live != 0 {
			t.Errorf("%d instances of 16 MiB are kept", p.live)
		}
	})
}

// What a guest wrote before it trapped is not there for the next call.
func TestTrapLeavesNothing(t *testing.T) {
	// Trap where memory[16] is not 0; write it; trap all the same.
	seen := slices.Concat([]byte{0x41, 16, 0x28, 2, 0, 0x04, 0x40}, guest.Answer(abi.StatusDeclined, 0), []byte{0x0f, 0x0b})
	hook := slices.Concat(seen, []byte{0x41, 16, 0x41, 1, 0x36, 2, 0, 0x00})
	engines(t, func(t *testing.T, opt Options) {
		p := load(t, guest.Sound(hook...).Bytes(), opt)
		for i := range 4 {
			var fault *Fault
			if _, err := p.Remap(ctx, question); !errors.As(err, &fault) {
				t.Fatalf("call %d: %v, want that it traps as the first did", i, err)
			}
		}
	})
}

// Calls that run at a time do not see each other's input or answer.
func TestConcurrentCallsAreApart(t *testing.T) {
	// memory.copy(out, in, in_len); ok, in_len bytes: the input is the answer.
	echo := slices.Concat([]byte{0x20, 2, 0x20, 0, 0x20, 1, 0xfc, 10, 0, 0}, []byte{0x20, 1, 0xad})
	p := load(t, guest.Sound(echo...).Bytes(), Options{Instances: 3})
	var wait sync.WaitGroup
	for n := range 6 {
		wait.Go(func() {
			for i := range 60 {
				want := fmt.Sprintf("caller %d, call %d", n, i)
				a, err := p.Remap(ctx, guest.Remap(1+i%abi.MaxAlternatives, want))
				if err != nil || a.Reason != want || len(a.Alternatives) != 1+i%abi.MaxAlternatives {
					t.Errorf("%+v (%v), want %s", a, err, want)
					return
				}
			}
		})
	}
	wait.Wait()
	if p.Calls() != 360 {
		t.Errorf("%d calls, want 360", p.Calls())
	}
}
