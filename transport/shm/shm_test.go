package shm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/shm"
)

// serve makes this test binary the other process of the tests with two.
const serve = "KVFERRY_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serve) == "" {
		os.Exit(m.Run())
	}
	p, err := shm.New(shm.Options{})
	if err == nil {
		err = conformance.Serve(p, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func start(t *testing.T) conformance.Child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serve+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return conformance.Child{In: in, Out: out, Process: cmd.Process, Wait: cmd.Wait}
}

func provider(t *testing.T, o shm.Options) *shm.Provider {
	t.Helper()
	p, err := shm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 3} {
		if workers > 1 && testing.Short() {
			break
		}
		conformance.Run(t, func(t *testing.T) conformance.Harness {
			o := shm.Options{Workers: workers}
			return conformance.Harness{Source: provider(t, o), Destination: provider(t, o)}
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	conformance.Processes(t, start, func(t *testing.T) transport.Provider { return provider(t, shm.Options{}) })
}

// A socket in a folder serves peers that see no abstract sockets of this
// network namespace; the folder is private and goes with the provider.
func TestSocketInAFolder(t *testing.T) {
	dir := t.TempDir()
	p := provider(t, shm.Options{Dir: dir})
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("the folder holds %v, %v", list, err)
	}
	info, err := list[0].Info()
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v, want 0700", info.Mode(), err)
	}
	q := provider(t, shm.Options{})
	id, err := q.Connect(context.Background(), p.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Accepted(q.Token(id)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(q.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
}

func TestConnectRefuses(t *testing.T) {
	p, q := provider(t, shm.Options{}), provider(t, shm.Options{Handshake: 200 * time.Millisecond})
	defer p.Close()
	defer q.Close()
	good := string(p.Address().Data)
	last := good[len(good)-1]
	wrong := "0"
	if last == '0' {
		wrong = "1"
	}
	for _, c := range []struct {
		name string
		a    transport.Address
		ok   func(error) bool
	}{
		{"another provider", transport.Address{Provider: "tcp", Data: []byte(good)}, func(err error) bool { return errors.Is(err, transport.ErrNotSupported) }},
		{"nobody there", transport.Address{Provider: "shm", Data: []byte("@kvferry-nobody " + strings.Repeat("0", 32))}, func(err error) bool { return errors.Is(err, transport.ErrPeerGone) }},
		{"wrong secret", transport.Address{Provider: "shm", Data: []byte(good[:len(good)-1] + wrong)}, func(err error) bool { return errors.Is(err, transport.ErrPeerGone) }},
		{"no secret", transport.Address{Provider: "shm", Data: []byte("@x")}, func(err error) bool { var e *shm.AddressError; return errors.As(err, &e) && e.Field == "secret" }},
		{"no socket", transport.Address{Provider: "shm", Data: []byte("x " + strings.Repeat("0", 32))}, func(err error) bool { var e *shm.AddressError; return errors.As(err, &e) && e.Field == "socket" }},
	} {
		if _, err := q.Connect(context.Background(), c.a); !c.ok(err) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := q.Connect(ctx, p.Address()); err == nil {
		t.Error("connected under a context that was over")
	}
	// None of it stopped the listener.
	if _, err := q.Connect(context.Background(), p.Address()); err != nil {
		t.Error(err)
	}
}

func TestRegisterRefusesWhatCannotBeMapped(t *testing.T) {
	p := provider(t, shm.Options{})
	defer p.Close()
	if err := p.Register(memory.Rank{Engine: "e"}); !errors.Is(err, transport.ErrNotSupported) {
		t.Errorf("got %v", err)
	}
}
