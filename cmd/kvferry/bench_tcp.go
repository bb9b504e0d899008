package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/transport/tcp"
)

func benchTCPCommand(a *app) *cobra.Command {
	var flags benchFlags
	streams := 2
	cmd := &cobra.Command{
		Use:   "tcp",
		Short: "one rank's request of the 70B pair over TCP on this host, against plain sockets and against contiguous memory",
		Long: "tcp moves the request between two providers over loopback, in both layouts, and\n" +
			"as many bytes through plain blocking sockets and between contiguous memories.\n" +
			"Loopback is bound by the processors: both ends copy on the same ones.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			if streams < 1 || streams > 16 {
				return usagef("--streams %d: want 1 to 16", streams)
			}
			return a.benchTCP(cmd.Context(), &flags, streams)
		},
	}
	flags.add(cmd, 7)
	cmd.Flags().IntVar(&streams, "streams", streams, "`N` data connections")
	return cmd
}

func (a *app) benchTCP(ctx context.Context, flags *benchFlags, streams int) (err error) {
	layers := flags.layers()
	pol, err := (&policyFlags{name: defaultPolicy}).open(ctx)
	if err != nil {
		return err
	}
	defer pol.close()
	r := &report{Bench: "bench tcp", Small: flags.small, Rounds: flags.rounds, Verified: true,
		Case: fmt.Sprintf("%d layers, 8 kv heads, dim 128, bf16, block 16, TP 2 -> 4, %d tokens, random tables, loopback, %d streams", layers, referenceTokens, streams)}
	var closing []func() error
	defer func() {
		for i := len(closing) - 1; i >= 0; i-- {
			err = errors.Join(err, closing[i]())
		}
	}()
	var congestion string // control, of the provider's data connections
	var cases []*copyCase
	var variants []variant
	for _, s := range []struct{ name, layout string }{{"contiguous", "flat"}, {"HND -> HND", "hnd"}, {"NHD -> NHD", "nhd"}} {
		c, err := a.open(ctx, pol, s.name, s.layout, s.layout, layers, 0, flags.seed)
		if err != nil {
			return err
		}
		closing = append(closing, c.close)
		fill(regions(c.src))
		one := func() (*tcp.Provider, error) { return tcp.New(tcp.Options{Listen: "127.0.0.1:0", Streams: streams}) }
		source, err := one()
		if err != nil {
			return err
		}
		destination, err := one()
		if err != nil {
			return errors.Join(err, source.Close())
		}
		between, err := connect(ctx, c, source, destination)
		if err != nil {
			return fmt.Errorf("bench over tcp: %w", err)
		}
		closing = append(closing, between.close)
		cases = append(cases, c)
		variants = append(variants, variant{s.name + fmt.Sprintf(", pieces of %d B", c.pieces[0].bytes), 1, between.run})
		if len(cases) == 1 {
			links, err := destination.Links(between.here)
			if err != nil {
				return err
			}
			for _, l := range links {
				if l.CongestionError != nil {
					r.Notes = append(r.Notes, l.CongestionError.Error())
				}
			}
			congestion = links[len(links)-1].Congestion
			r.Memory = "congestion control " + congestion
		}
	}
	plain, err := openSockets(streams, cases[0].bytes, congestion)
	if err != nil {
		return err
	}
	closing = append(closing, plain.close)
	variants = append([]variant{{"blocking sockets", 1, plain.run}}, variants...)
	t, err := a.interleave(ctx, flags.rounds, variants...)
	if err != nil {
		return err
	}
	r.Rows = append(r.Rows, moved(variants[0].name, t[0], cases[0].bytes, 0))
	for i, c := range cases {
		a.step("verify %s", c.name)
		if err := c.verify(c.name, regions(c.dst), regions(c.src), variants[i+1].run); err != nil {
			return err
		}
		row := moved(variants[i+1].name, t[i+1], c.bytes, int64(len(c.pieces)))
		switch i {
		case 0:
			row = row.against(judge("blocking sockets", t[0].median/t[1].median, "least", 0.95, 0.8))
		case 1:
			row = row.against(judge("contiguous", t[1].median/t[i+1].median, "least", 0.75, 0.5))
		case 2:
			row = row.against(judge("contiguous", t[1].median/t[i+1].median, "least", 0.65, 0.5))
		}
		r.Rows = append(r.Rows, row)
	}
	return a.report(r)
}

// sockets is what anybody would write: threads that send and receive in blocking
// calls, on connections tuned as the provider's are, from memory that no cache
// holds and into such memory.
type sockets struct {
	pairs   [][2]int
	bytes   int64 // of each pair
	out, in []byte
	free    []func()
}

const socketBuffer = 1 << 20

func openSockets(n int, bytes int64, congestion string) (_ *sockets, err error) {
	s := &sockets{bytes: bytes / int64(n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, b := range []*[]byte{&s.out, &s.in} {
		var free func()
		if *b, free, err = anonymous(bytes); err != nil {
			return nil, err
		}
		s.free = append(s.free, free)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	blocking := func(c net.Conn, err error) (int, error) {
		if err != nil {
			return -1, err
		}
		defer c.Close()
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			return -1, err
		}
		defer f.Close()
		fd, err := syscall.Dup(int(f.Fd())) // Fd makes it blocking
		if err != nil {
			return -1, err
		}
		for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBuffer) // the kernel caps it
		}
		return fd, errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion))
	}
	for range n {
		there, err := blocking(net.Dial("tcp", l.Addr().String()))
		if err != nil {
			return nil, err
		}
		here, err := blocking(l.Accept())
		s.pairs = append(s.pairs, [2]int{there, here})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sockets) close() error {
	var errs []error
	for _, p := range s.pairs {
		for _, fd := range p {
			if fd >= 0 {
				errs = append(errs, syscall.Close(fd))
			}
		}
	}
	for _, free := range s.free {
		free()
	}
	s.pairs, s.free = nil, nil
	return errors.Join(errs...)
}

func (s *sockets) run() error {
	errs := make([]error, 2*len(s.pairs))
	var wg sync.WaitGroup
	for i, p := range s.pairs {
		wg.Go(func() {
			for part := s.out[int64(i)*s.bytes : int64(i+1)*s.bytes]; len(part) > 0 && errs[2*i] == nil; {
				n, err := syscall.Write(p[0], part[:min(len(part), socketBuffer)])
				part = part[max(n, 0):]
				errs[2*i] = err
			}
		})
		wg.Go(func() {
			for part := s.in[int64(i)*s.bytes : int64(i+1)*s.bytes]; len(part) > 0 && errs[2*i+1] == nil; {
				n, err := syscall.Read(p[1], part[:min(len(part), socketBuffer)])
				if n == 0 && err == nil {
					err = io.ErrUnexpectedEOF
				}
				part = part[max(n, 0):]
				errs[2*i+1] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
