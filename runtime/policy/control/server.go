// Package control lets an operator change the policies of a process that runs:
// the process listens on a socket in its store's folder, and whoever may write to
// the folder tells it what to do. Where no process runs on the store, the same
// requests change what stands in it, from which the next process begins. Every
// answer says which of the two it was.
//
// The socket, control.sock, is its owner's alone (mode 0600, in a folder that
// others cannot write to), and both ends look at who the other one runs as
// (SO_PEERCRED): the same user or root, nobody else. A connection carries one
// request:
//
//	frame  u32 bytes of JSON, u32 bytes that follow it, little-endian; both parts
//
// and its answer, several for history that is followed; "more" says so. Requests
// carry "kvferry": "control/1", and one of another version is refused by name.
// Readers step over fields that they do not know; a later version may add some
// that may be left out.
//
// Frames are bounded before anything is read, reading and writing have deadlines,
// and only a few connections are served at a time. Who sends half a request and
// goes silent holds up nobody.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/policy/store"
	"github.com/kvferry/kvferry/wasm/host"
)

// socketName is the socket in a store's folder.
const socketName = "control.sock"

// maxSocketPath is what the kernel has room for (sun_path, less its NUL).
const maxSocketPath = 107

// Bounds of a server.
const (
	maxConnections = 16
	readTime       = 5 * time.Second  // for a whole request
	writeTime      = 10 * time.Second // for a whole answer
	maxFollowed    = 1024             // events that wait for a connection that follows
	// MaxRecord is how long a recording may take.
	MaxRecord = time.Hour
)

// Line is what can be changed: a *generation.Manager, or a *generation.Rest.
type Line interface {
	Load(ctx context.Context, m generation.Module) (uint64, error)
	Shadow(id uint64) error
	Canary(id uint64, share generation.Share) error
	Activate(ctx context.Context, id uint64) error
	Promote(ctx context.Context, id uint64, share generation.Share) (uint64, generation.Stage, error)
	Drop(id uint64) error
	Rollback(ctx context.Context, reason string) (uint64, error)
	Status() generation.Status
	History() ([]generation.Event, error)
}

// Server lets others change a process's policies. It is made before the manager,
// whose events it passes on:
//
//	s, err := control.Listen(store)
//	options.Events = s.Tell
//	m, err := generation.New(ctx, options)
//	s.Serve(m)
//
// Requests that come before Serve wait for it. Close it before the manager.
type Server struct {
	store    string
	socket   *socket
	listener *net.UnixListener
	ready    chan struct{} // closed by Serve
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	turns    chan struct{}

	manager *generation.Manager // once ready is closed

	mu        sync.Mutex
	served    bool
	followers map[chan generation.Event]struct{}
}

// Listen makes the socket of an open store, in place of one that a process left
// there which is dead: the caller has the store's lock.
//
// Errors: *store.FileError where something else has the name; those of making a
// socket.
func Listen(s *store.Store) (*Server, error) {
	k, err := socketOf(s.Folder())
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Server, error) {
		return nil, errors.Join(fmt.Errorf("listen for changes of policies: %w", err), k.close())
	}
	if info, err := os.Lstat(k.path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return fail(&store.FileError{File: filepath.Join(s.Folder(), socketName), Reason: fmt.Sprintf("is no socket (mode %v); remove it", info.Mode())})
		}
		if err := os.Remove(k.path); err != nil {
			return fail(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: k.path, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	if err := os.Chmod(k.path, 0o600); err != nil {
		return fail(errors.Join(err, l.Close()))
	}
	out := &Server{store: s.Folder(), socket: k, listener: l, ready: make(chan struct{}), turns: make(chan struct{}, maxConnections), followers: map[chan generation.Event]struct{}{}}
	out.ctx, out.stop = context.WithCancel(context.Background())
	out.wg.Go(out.accept)
	return out, nil
}

// socket is where a store's socket is, in a form that the kernel has room for.
type socket struct {
	path   string
	folder *os.File // that path goes through; nil: path is the whole one
}

// socketOf finds the socket's path. One that is too long goes through the
// folder's descriptor.
func socketOf(folder string) (*socket, error) {
	if path := filepath.Join(folder, socketName); len(path) <= maxSocketPath {
		return &socket{path: path}, nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	short := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(short); err != nil {
		return nil, errors.Join(blame.On(blame.Operator, fmt.Errorf("policy store: a socket's path has at most %d bytes, %s has %d, and there is no /proc to shorten it; use a folder with a shorter name", maxSocketPath, filepath.Join(folder, socketName), len(folder)+1+len(socketName))), f.Close())
	}
	return &socket{filepath.Join(short, socketName), f}, nil
}

func (k *socket) close() error {
	if k.folder == nil {
		return nil
	}
	return k.folder.Close()
}

// Serve begins to answer requests. m must not be closed before the server.
// Preconditions: it is called once.
func (s *Server) Serve(m *generation.Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served {
		panic("control: Serve was called twice")
	}
	s.served = true
	s.manager = m
	close(s.ready)
}

// Tell shows an event to who follows the history: the Events of the manager's
// options. It never waits: who does not keep up is disconnected.
func (s *Server) Tell(e generation.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.followers {
		select {
		case ch <- e:
		default:
			delete(s.followers, ch)
			close(ch)
		}
	}
}

// Close ends the server: requests in progress are cancelled, and the socket is
// removed. A second Close returns net.ErrClosed.
func (s *Server) Close() error {
	err := s.listener.Close()
	if err != nil {
		return net.ErrClosed
	}
	s.stop()
	s.wg.Wait()
	return s.socket.close()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors, say
			case <-time.After(100 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		select {
		case s.turns <- struct{}{}:
			s.wg.Go(func() {
				defer func() { <-s.turns }()
				s.serve(c)
			})
		default:
			// Too many. Who hears that comes again; a few bytes always fit.
			_ = c.SetWriteDeadline(time.Now().Add(writeTime))
			_ = writeFrame(c, received{Answer: Answer{Store: s.store, Live: true, Process: os.Getpid()}, Busy: true}, nil)
			_ = c.Close()
		}
	}
}

// serve answers the one request of a connection.
func (s *Server) serve(c *net.UnixConn) {
	defer c.Close() // what could not be sent is the other side's loss
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	answer := func(out received, err error, more []byte) bool {
		out.Store, out.Live, out.Process = s.store, true, os.Getpid()
		if err != nil {
			out.Error = &Error{blame.Of(err), err.Error()}
		}
		_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a connection that has none fails below
		return writeFrame(c, out, more) == nil
	}
	if err := sameUser(c); err != nil {
		answer(received{}, err, nil)
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(readTime)) // likewise
	var q sent
	module, err := readFrame(c, &q, maxBytesIn)
	if err == nil && q.Protocol != protocol {
		err = blame.On(blame.Peer, fmt.Errorf("policy control: the request is of %q, this process speaks %q", q.Protocol, protocol))
	}
	if errors.Is(err, io.EOF) {
		return
	} else if err != nil {
		answer(received{}, err, nil)
		return
	}
	q.Module = module
	// Who goes away, or says that it has heard enough, ends what is going on.
	_ = c.SetReadDeadline(time.Time{}) // likewise
	s.wg.Go(func() {
		var b [1]byte
		_, _ = c.Read(b[:]) // an end, an error, or a byte that has no meaning
		cancel()
	})
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	switch {
	case q.Verb == Record:
		j, err := s.record(ctx, &q.Request)
		if err != nil {
			answer(received{}, err, nil)
			return
		}
		answer(received{}, nil, j.Encode())
	case q.Verb == History && q.Follow:
		s.follow(ctx, &q.Request, answer)
	default:
		out, err := Do(ctx, s.manager, &q.Request, true)
		if out == nil {
			out = &Answer{}
		}
		answer(received{Answer: *out}, err, nil)
	}
	// The reader ends with the connection.
	_ = c.Close()
}

// record keeps what the guests are asked.
func (s *Server) record(ctx context.Context, q *Request) (*journal.Journal, error) {
	if q.Calls < 0 || q.For < 0 || q.For > MaxRecord {
		return nil, blame.On(blame.Operator, fmt.Errorf("record %d calls for %v: want 0 or more, and at most %v", q.Calls, q.For, MaxRecord))
	}
	length := q.For
	if length == 0 {
		length = MaxRecord
	}
	r := journal.Keep(journal.Options{Bytes: maxRecording})
	enough := make(chan struct{})
	var calls int64 // the manager shows one call at a time
	stop, err := s.manager.Tap(func(c host.Call) {
		if calls++; q.Calls > 0 && calls > q.Calls {
			return
		}
		r.Observe(c)
		if calls == q.Calls {
			close(enough)
		}
	})
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-enough:
	case <-timer.C:
	case <-ctx.Done():
	}
	stop()
	return r.Journal(), nil
}

// follow shows the history and then what happens.
func (s *Server) follow(ctx context.Context, q *Request, answer func(received, error, []byte) bool) {
	ch := make(chan generation.Event, maxFollowed)
	s.mu.Lock()
	s.followers[ch] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.followers, ch)
		s.mu.Unlock()
	}()
	out, err := Do(ctx, s.manager, q, true)
	if err != nil {
		answer(received{}, err, nil)
		return
	}
	known := map[string]bool{} // what the history has and is told now
	for _, e := range out.Events {
		known[text(e)] = true
	}
	if !answer(received{Answer: *out, More: true}, nil, nil) {
		return
	}
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				answer(received{}, blame.On(blame.Peer, errors.New("policy control: events come faster than they are read")), nil)
				return
			}
			if known[text(e)] {
				continue
			}
			if !answer(received{Answer: Answer{Events: []generation.Event{e}}, More: true}, nil, nil) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// text is an event as it is kept, to tell whether two are the same.
func text(e generation.Event) string {
	b, _ := json.Marshal(e) // it has been written already
	return string(b)
}

// Do does what a request says to a line. Record and Follow need a server.
//
// Errors: those of the line; *generation.ChangeError, and others of an operator,
// for a request that cannot be.
func Do(ctx context.Context, l Line, q *Request, live bool) (*Answer, error) {
	out := &Answer{Live: live, Generation: q.Generation}
	share := generation.Share{Percent: q.Percent, By: q.By}
	var err error
	switch q.Verb {
	case Load:
		out.Stage = generation.Loaded
		out.Generation, err = l.Load(ctx, generation.Module{Wasm: q.Module, Source: q.Source, Keys: q.Keys, AllowDowngrade: q.AllowDowngrade})
	case Shadow:
		out.Stage, err = generation.Shadow, l.Shadow(q.Generation)
	case Canary:
		out.Stage, err = generation.Canary, l.Canary(q.Generation, share)
	case Activate:
		out.Stage, err = generation.Active, l.Activate(ctx, q.Generation)
	case Promote:
		out.Generation, out.Stage, err = l.Promote(ctx, q.Generation, share)
	case Drop:
		out.Stage, err = generation.Closed, l.Drop(q.Generation)
	case Rollback:
		out.Stage = generation.Active
		out.Generation, err = l.Rollback(ctx, q.Reason)
	case History:
		if out.Events, err = l.History(); err == nil && q.Last > 0 && len(out.Events) > q.Last {
			out.Events = out.Events[len(out.Events)-q.Last:]
		}
		// A frame has an end: the newest are shown.
		for size, i := 0, len(out.Events)-1; i >= 0; i-- {
			if size += len(text(out.Events[i])) + 1; size > maxText*3/4 {
				out.Events = out.Events[i+1:]
				break
			}
		}
	case List:
		out.Status = StatusOf(l.Status(), live)
	default:
		err = blame.On(blame.Operator, fmt.Errorf("policy control: unknown verb %.40q", q.Verb))
	}
	if err != nil {
		return nil, err
	}
	if q.Verb == Load { // a module that is in already may be further
		for _, g := range l.Status().Generations {
			if g.ID == out.Generation {
				out.Stage = g.Stage
			}
		}
	}
	return out, nil
}

// UserError is another user at the other end. The fault is the other end's.
type UserError struct{ Peer, Self int }

func (e *UserError) Error() string {
	return fmt.Sprintf("policy control: the other end runs as user %d, this process as %d: only the same user and root may change policies", e.Peer, e.Self)
}

// Blame is the peer.
func (e *UserError) Blame() blame.Party { return blame.Peer }

// sameUser refuses who is neither the same user nor root.
func sameUser(c *net.UnixConn) error {
	uid, err := peerOf(c)
	if err != nil {
		return fmt.Errorf("policy control: who the other end is: %w", err)
	}
	if self := os.Geteuid(); uid != self && uid != 0 {
		return &UserError{uid, self}
	}
	return nil
}

// peerOf is the user that the other end runs as.
func peerOf(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var bad error
	if err := raw.Control(func(fd uintptr) { who, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if bad != nil {
		return 0, bad
	}
	return int(who.Uid), nil
}
