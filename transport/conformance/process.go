package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// Child is a process that runs Serve.
type Child struct {
	In      io.WriteCloser // its standard input
	Out     io.Reader      // its standard output
	Process *os.Process
	Wait    func() error
}

// line is what parent and child say to each other, one JSON object a line.
type line struct {
	Address *transport.Address `json:"address,omitempty"` // child: it listens
	Token   string             `json:"token,omitempty"`   // parent: it has connected
	Done    bool               `json:"done,omitempty"`    // child: it did what it was told
	Error   string             `json:"error,omitempty"`   // child
	Write   bool               `json:"write,omitempty"`   // parent: push everything
}

var readGrant, writeGrant = transport.GrantID{1}, transport.GrantID{2}

// theirs is the block table of the side in the other process: both processes
// make the same.
func theirs(c engine) []uint32 {
	table, err := host.NewBlocks(c.blocks, 1).Alloc(c.blocks)
	if err != nil {
		panic(err) // as many as there are
	}
	return table
}

// Serve is the source of the big case in a process of its own: it lets the
// parent read, and pushes when told to, until its input ends.
func Serve(p transport.Provider, in io.Reader, out io.Writer) error {
	say := json.NewEncoder(out)
	pair, proven, err := big.proven()
	if err != nil {
		return err
	}
	var owner host.Owner
	memory := groups(&pair.Source, 0)
	pool, err := owner.Open(host.Spec{Engine: big.source.name, Groups: memory}, host.Options{SmallPages: true})
	if err != nil {
		return err
	}
	for i := range memory[0].Regions {
		b := pool.Buffer(0, i).Bytes()
		for k := range b {
			b[k] = 1
		}
	}
	if err := p.Register(pool.Rank()); err != nil {
		return err
	}
	a := p.Address()
	if err := say.Encode(line{Address: &a}); err != nil {
		return err
	}
	table := theirs(big.source)
	req := stamp.Request{Plan: proven.Digest(), Source: [][]uint32{table}, To: big.tokens}
	var peer transport.PeerID
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return err
		}
		reply := line{Done: true}
		switch {
		case l.Token != "":
			if peer, err = p.Accepted(l.Token); err != nil {
				return err
			}
			if err := p.Prepare(proven, peer, transport.Source); err != nil {
				return err
			}
			if err := p.Grant(transport.Grant{ID: readGrant, Peer: peer, Direction: transport.Read, Request: req, Deadline: time.Now().Add(time.Hour),
				Generations: [][]uint64{make([]uint64, len(table))}}); err != nil {
				return err
			}
		case l.Write:
			op := transport.Operation{Peer: peer, Grant: writeGrant, Direction: transport.Write, Request: req, Deadline: time.Now().Add(patience)}
			if p.Capabilities().OneSided {
				op.Request.Destination = [][]uint32{theirs(big.destination)}
				op.PeerGenerations = [][]uint64{make([]uint64, big.destination.blocks)}
			}
			if _, err := p.Submit(op); err != nil {
				reply.Error = err.Error()
				break
			}
			var c [1]transport.Completion
			for p.Poll(c[:]) == 0 {
				<-p.Ready()
			}
			if c[0].Err != nil {
				reply.Error = c[0].Err.Error()
			}
		}
		if err := say.Encode(reply); err != nil {
			return err
		}
	}
	if err := p.Close(); err != nil {
		return err
	}
	return pool.Close()
}

// pairing is the destination of the big case with its child.
type pairing struct {
	*world
	child Child
	from  *bufio.Scanner
	to    *json.Encoder
}

func (p *pairing) hear() line {
	p.t.Helper()
	var l line
	if !p.from.Scan() {
		p.t.Fatalf("the other process said nothing: %v", p.from.Err())
	}
	if err := json.Unmarshal(p.from.Bytes(), &l); err != nil {
		p.t.Fatal(err)
	}
	return l
}

func (p *pairing) tell(l line) {
	p.t.Helper()
	if err := p.to.Encode(l); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the other process without a chance to say anything.
func (p *pairing) kill() {
	p.t.Helper()
	if err := p.child.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pairing) read(deadline time.Duration) transport.Operation {
	req := stamp.Request{Plan: p.digest, Destination: [][]uint32{theirs(big.destination)}, To: big.tokens}
	op := transport.Operation{Peer: p.destination.peer, Grant: readGrant, Direction: transport.Read, Request: req, Deadline: time.Now().Add(deadline)}
	if p.h.Destination.Capabilities().OneSided {
		op.Request.Source = [][]uint32{theirs(big.source)}
		op.PeerGenerations = [][]uint64{make([]uint64, big.source.blocks)}
	}
	return op
}

func (p *pairing) grantWrite() {
	p.t.Helper()
	req := stamp.Request{Plan: p.digest, Destination: [][]uint32{theirs(big.destination)}, To: big.tokens}
	if err := p.h.Destination.Grant(transport.Grant{ID: writeGrant, Peer: p.destination.peer, Direction: transport.Write, Request: req,
		Deadline: time.Now().Add(time.Hour), Generations: [][]uint64{make([]uint64, big.destination.blocks)}}); err != nil {
		p.t.Fatal(err)
	}
}

// notices waits until the death of the other process is noticed, without any
// operation's help.
func (p *pairing) notices() {
	p.t.Helper()
	began := time.Now()
	for p.h.Destination.Health(p.destination.peer) == nil {
		if time.Since(began) > patience {
			p.t.Fatal("the dead peer is believed alive")
		}
		time.Sleep(time.Millisecond)
	}
	if err := p.h.Destination.Health(p.destination.peer); !errors.Is(err, transport.ErrPeerGone) {
		p.t.Errorf("health: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.h.Destination.Fence(ctx, p.destination.peer); err != nil {
		p.t.Errorf("fence against a dead peer: %v", err)
	}
}

// Processes runs the part of the suite that takes two OS processes. start
// starts a child that runs Serve; provider makes this side's provider.
func Processes(t *testing.T, start func(t *testing.T) Child, provider func(t *testing.T) transport.Provider) {
	in := func(name string, f func(t *testing.T, p *pairing)) {
		t.Run(name, func(t *testing.T) {
			before := count()
			p := connect(t, start(t), provider(t))
			f(t, p)
			p.t = t
			if err := p.h.Destination.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			p.child.In.Close()
			p.child.Process.Signal(syscall.SIGCONT)
			p.child.Wait() // what it returns is each test's to look at
			for _, pool := range p.destination.pools {
				pool.Close()
			}
			before.same(t)
		})
	}
	in("both-ways", func(t *testing.T, p *pairing) {
		if err := p.submit(p.destination, p.read(patience)); err != nil {
			t.Fatal(err)
		}
		if n := p.destination.unlike(1); n > 0 {
			t.Errorf("read: %d bytes are wrong", n)
		}
		p.destination.set(0)
		p.grantWrite()
		p.tell(line{Write: true})
		if l := p.hear(); !l.Done || l.Error != "" {
			t.Fatalf("write: %+v", l)
		}
		if n := p.destination.unlike(1); n > 0 {
			t.Errorf("write: %d bytes are wrong", n)
		}
	})
	in("killed-when-idle", func(t *testing.T, p *pairing) {
		p.kill()
		p.notices()
		if err := p.submit(p.destination, p.read(patience)); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("read from the dead: %v", err)
		}
	})
	for _, wait := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond} {
		in(fmt.Sprintf("killed-while-read/%v", wait), func(t *testing.T, p *pairing) {
			id, err := p.h.Destination.Submit(p.read(patience))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			p.kill()
			c := p.wait(p.destination, id)
			if c.Err == nil {
				if n := p.destination.unlike(1); n > 0 {
					t.Fatalf("success was reported with %d bytes wrong", n)
				}
			} else if !errors.Is(c.Err, transport.ErrPeerGone) {
				t.Errorf("got %v", c.Err)
			}
			p.notices()
		})
		in(fmt.Sprintf("killed-while-writing/%v", wait), func(t *testing.T, p *pairing) {
			p.grantWrite()
			p.tell(line{Write: true})
			time.Sleep(wait)
			p.kill()
			p.notices()
			// After the fence nothing of the dead writer arrives any more.
			p.destination.set(7)
			time.Sleep(10 * time.Millisecond)
			if n := p.destination.unlike(7); n > 0 {
				t.Errorf("%d bytes were written after the fence", n)
			}
		})
	}
	in("hangs", func(t *testing.T, p *pairing) {
		if err := p.child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		const limit = 100 * time.Millisecond
		began := time.Now()
		err := p.submit(p.destination, p.read(limit))
		if !errors.Is(err, transport.ErrDeadline) && !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("read from a peer that hangs: %v", err)
		}
		if d := time.Since(began); d < limit/2 || d > patience {
			t.Errorf("noticed after %v, the deadline was %v", d, limit)
		}
		p.kill()
		p.notices()
	})
}

func connect(t *testing.T, c Child, provider transport.Provider) *pairing {
	t.Helper()
	p := &pairing{world: &world{t: t, c: big, h: Harness{Destination: provider}}, child: c, from: bufio.NewScanner(c.Out), to: json.NewEncoder(c.In)}
	p.pair, p.proven = big.prove(t)
	p.digest = p.proven.Digest()
	p.destination = p.end(p.pair.Destination, &p.pair.Destination, provider, 1)
	l := p.hear()
	if l.Address == nil {
		t.Fatalf("the other process says %+v, want its address", l)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if p.destination.peer, err = provider.Connect(ctx, *l.Address); err != nil {
		t.Fatal(err)
	}
	if err := provider.Prepare(p.proven, p.destination.peer, transport.Destination); err != nil {
		t.Fatal(err)
	}
	p.tell(line{Token: provider.Token(p.destination.peer)})
	if l := p.hear(); !l.Done {
		t.Fatalf("the other process says %+v", l)
	}
	return p
}
