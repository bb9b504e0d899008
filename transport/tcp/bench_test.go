package tcp

import (
	"io"
	"net"
	"testing"
)

// BenchmarkPlain is what a connection set up like ours carries from memory to
// memory without any of this package on top: the figure to hold the provider's
// contiguous case against, in the same run.
func BenchmarkPlain(b *testing.B) {
	const bytes = 192 << 20
	o := Options{Listen: "127.0.0.1:0"}
	if err := o.complete(); err != nil {
		b.Fatal(err)
	}
	config := net.ListenConfig{Control: o.before}
	l, err := config.Listen(b.Context(), "tcp", o.Listen)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	dialer := net.Dialer{Control: o.before}
	to, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	from, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	for _, c := range []net.Conn{to, from} {
		if _, err := o.tune(c.(*net.TCPConn)); err != nil {
			b.Fatal(err)
		}
	}
	source, destination := make([]byte, bytes), make([]byte, bytes)
	for i := range source {
		source[i], destination[i] = 1, 2
	}
	b.SetBytes(bytes)
	for b.Loop() {
		go func() {
			for at := 0; at < bytes; at += o.Chunk {
				if _, err := to.Write(source[at : at+o.Chunk]); err != nil {
					return
				}
			}
		}()
		for at := 0; at < bytes; at += o.Chunk {
			if _, err := io.ReadFull(from, destination[at:at+o.Chunk]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
