package tcp_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/certificate/authority"
	"github.com/kvferry/kvferry/transport/conformance"
	"github.com/kvferry/kvferry/transport/tcp"
)

// serve makes this test binary the other process of the tests with two.
const serve = "KVFERRY_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serve) == "" {
		os.Exit(m.Run())
	}
	p, err := tcp.New(tcp.Options{Listen: "127.0.0.1:0"})
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

func provider(t testing.TB, o tcp.Options) *tcp.Provider {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	p, err := tcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]tcp.Options{
		"default":                             {},
		"more streams than edges, odd chunks": {Streams: 5, Chunk: 40_009},
		"protected":                           {Wrap: authority.New(t).Open("one").Wrap},
	} {
		if name != "default" && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) conformance.Harness {
				return conformance.Harness{Source: provider(t, o), Destination: provider(t, o)}
			})
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	conformance.Processes(t, start, func(t *testing.T) transport.Provider { return provider(t, tcp.Options{}) })
}

func BenchmarkMove(b *testing.B) {
	conformance.Benchmark(b, func(b *testing.B) conformance.Harness {
		return conformance.Harness{Source: provider(b, tcp.Options{}), Destination: provider(b, tcp.Options{})}
	})
}
